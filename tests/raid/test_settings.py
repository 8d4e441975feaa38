"""Settings of a running array: what is tried, which value is chosen, the udev rule, and what is restored."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.change import ArrayPlan, from_json, to_json
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Inventory, rule_path
from aligntool.measure.arrays import job_of
from aligntool.measure.fio import fio_options
from aligntool.measure.schedule import Target, TargetKind
from aligntool.measure.settings import plan_settings, restored
from aligntool.raid.levels import WORKLOADS
from aligntool.raid.measured import Identity, Verdict, identity_of, loads_of, sweep_order
from aligntool.raid.running import PersistGoal, arrays_of, plan_persist
from aligntool.raid.settings import (
    CACHE,
    READ_AHEAD,
    REQUESTS,
    SCHEDULER,
    WORKERS,
    Machine,
    SettingSample,
    SettingsTuning,
    choices,
    faster,
    kept_settings,
    loads_for,
    parse_settings,
    reading_loads,
    rule_lines,
    settings_text,
    values_to_try,
)
from aligntool.render.lines import text_of
from aligntool.render.plan import array_lines
from aligntool.steps import ApplySettings, SettingChange, WriteFile
from aligntool.units import GIB, KIB, MIB
from tests.audit.array_builders import OTHER, RIGHT, UUID, image, lines, machine, system
from tests.schemas import check

HERE = Machine(processors=8, memory=16 * GIB, page=4 * KIB)
Truth = Mapping[str, Mapping[str, float]]


def tuning(truth: Truth, *, rounds: int = 5, seed: int = 0) -> SettingsTuning:
    """Return samples in which each value of a setting is `truth` times as fast; the first value is the present one."""
    rng = random.Random(seed)
    samples = tuple(
        SettingSample(number, name, value, load, int(rate * values[value] * rng.uniform(0.99, 1.01)), 0)
        for name, values in truth.items()
        for number, value in sweep_order(tuple(values), rounds)
        for load, rate in (("read", 8e9), ("randread", 4e7))
    )
    return SettingsTuning(
        UUID, "raid5", (Identity("nvme0n1", "ACME", "S0000", None, None),), "general", 16 * KIB, "array", GIB, 5.0,
        True, {"kernel": "6.1"}, {name: next(iter(values)) for name, values in truth.items()}, samples,
    )  # fmt: skip


def test_only_a_clearly_faster_value_is_chosen() -> None:
    found = tuning({
        CACHE: {"256": 1.0, "1024": 1.3, "4096": 1.3},
        READ_AHEAD: {"512": 1.0, "128": 0.5, "2048": 1.0},
        SCHEDULER: {"none": 1.0, "kyber": 1.5, "mq-deadline": 1.0},
    })  # fmt: skip
    assert faster(found) == {CACHE: "1024", SCHEDULER: "kyber"}
    assert choices(found)[READ_AHEAD].apart == {"128"}


def test_a_value_that_is_within_the_noise_is_not_chosen_because_it_is_near() -> None:
    """Between a slow present value and a clearly faster one, a third whose rounds overlap with both."""
    rates = {"256": (10, 10, 10), "1024": (10, 16, 22), "4096": (20, 20, 20)}
    samples = tuple(
        SettingSample(number, CACHE, value, "read", rate, 0)
        for value, of_rounds in rates.items()
        for number, rate in enumerate(of_rounds)
    )
    assert faster(replace(tuning({CACHE: {"256": 1.0}}), samples=samples)) == {CACHE: "4096"}


def test_noise_is_rarely_taken_for_a_faster_value() -> None:
    """Two values, five rounds: 2 in C(10, 5) = 252 sweeps have separate ranges; half of them are faster ones."""
    same = {CACHE: {"256": 1.0, "4096": 1.0}}
    assert sum(bool(faster(tuning(same, seed=seed))) for seed in range(500)) <= 8


def test_too_few_rounds_give_no_verdict() -> None:
    found = choices(tuning({CACHE: {"256": 1.0, "4096": 9.0}}, rounds=2))[CACHE]
    assert (found.verdict, found.value) == (Verdict.UNKNOWN, None)


def test_the_result_is_read_as_it_was_written() -> None:
    found = tuning({CACHE: {"256": 1.0, "4096": 1.3}})
    check(json.loads(settings_text(found)))
    assert parse_settings(settings_text(found)) == found


@pytest.mark.parametrize("odd", ['4096", RUN+="/bin/sh', "", "4096\n", "x" * 33])
def test_a_value_that_could_be_more_than_a_value_in_a_rule_is_refused(odd: str) -> None:
    document = json.loads(settings_text(tuning({CACHE: {"256": 1.0, "4096": 1.3}})))
    document["samples"][-1]["value"] = odd
    with pytest.raises(Refused, match="unknown setting or workload"):
        parse_settings(json.dumps(document))


@pytest.mark.parametrize("name", ["md/suspend_lo", "queue/rotational", "../../etc/passwd"])
def test_a_setting_that_is_not_measured_is_refused(name: str) -> None:
    document = json.loads(settings_text(tuning({CACHE: {"256": 1.0, "4096": 1.3}})))
    document["before"][name] = "1"
    with pytest.raises(Refused, match="unknown setting"):
        parse_settings(json.dumps(document))


def test_a_stripe_cache_takes_no_more_than_an_eighth_of_the_memory() -> None:
    """md.rst: memory_consumed = system_page_size * nr_disks * stripe_cache_size."""
    small = replace(HERE, memory=256 * MIB)
    assert values_to_try(CACHE, "256", (), 4, HERE) == ["256", "1024", "4096", "8192"]
    assert values_to_try(CACHE, "256", (), 4, small) == ["256", "1024"]
    assert values_to_try(CACHE, "300", (), 4, small) == ["256", "300", "1024"]


def test_no_more_workers_than_processors_are_tried() -> None:
    assert values_to_try(WORKERS, "0", (), 4, replace(HERE, processors=2)) == ["0", "2"]


def test_only_schedulers_that_the_kernel_offers_are_tried() -> None:
    assert values_to_try(SCHEDULER, "none", ("none", "kyber"), 4, HERE) == ["none", "kyber"]
    assert values_to_try(REQUESTS, "1023", (), 4, HERE) == ["64", "256", "1023", "1024"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_loads_on_an_array_in_use_only_read(workload: str) -> None:
    """fio(1), --readonly: "Safe mode: don't perform any writes"."""
    reading = reading_loads(loads_of(workload, 16 * KIB))
    for name in (WORKERS, CACHE, SCHEDULER, REQUESTS, READ_AHEAD):
        for load in loads_for(name, reading):
            words = fio_options(job_of(load, "/dev/md127", GIB, 1.0))
            assert "--readonly" in words and not any("write" in word for word in words)


def test_what_only_writes_use_is_not_tried_by_reading() -> None:
    loads = loads_of("general", 16 * KIB)
    assert not loads_for(CACHE, reading_loads(loads)) and not loads_for(WORKERS, reading_loads(loads))
    assert loads_for(CACHE, loads) == loads
    assert all(load.cached for load in loads_for(READ_AHEAD, loads))


def test_a_load_through_the_page_cache_reads_nothing_twice() -> None:
    (load, *_) = loads_for(READ_AHEAD, ())
    words = fio_options(job_of(load, "/dev/md127", GIB, 1.0))
    assert "--direct=0" in words and "--time_based=1" not in words and "--runtime=1000ms" in words


def planned(facts: dict[str, object], target: Target | None = None) -> object:
    inventory = machine("raid5", None, **facts)
    return plan_settings(
        audit(inventory, {}), inventory.disks[-1], workload="general", database_page=16 * KIB, target=target, wanted=(),
        repeats=5, runtime_s=5.0, span=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"degraded": 1}, "a member is missing"),
        ({"sync_action": "resync"}, "it is resyncing"),
        ({"sync_action": "check"}, "it is checking"),
        ({"uuid": None}, "UUID"),
    ],
)
def test_an_array_that_is_not_as_usual_is_refused(facts: dict[str, object], why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(facts)


# What is restored.


def files(folder: Path, *values: str) -> dict[str, str]:
    found = {str(folder / f"setting{index}"): value for index, value in enumerate(values)}
    for path, value in found.items():
        Path(path).write_text(f"{value}\n")
    return found


def changed(values: Mapping[str, str]) -> None:
    for path in values:
        Path(path).write_text("changed\n")


def now(values: Mapping[str, str]) -> dict[str, str]:
    return {path: Path(path).read_text().strip() for path in values}


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, OSError])
def test_settings_are_restored_however_the_sweep_ends(tmp_path: Path, error: type[BaseException] | None) -> None:
    values = files(tmp_path, "256", "none", "1 2")
    try:
        with restored(values):
            changed(values)
            if error:
                raise error
    except (KeyboardInterrupt, OSError):
        assert error
    assert now(values) == values


def test_what_could_not_be_restored_is_named(tmp_path: Path) -> None:
    values = files(tmp_path, "256")
    with pytest.raises(Stopped, match="setting0: 256"), restored(values):
        Path(next(iter(values))).unlink()
        tmp_path.joinpath("setting0").mkdir()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_settings_are_restored_if_the_process_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    values = files(tmp_path, "256", "none")
    script = (
        "import sys, time; from aligntool.measure.settings import restored\n"
        f"with restored({values!r}):\n"
        f"    [open(path, 'w').write('changed') for path in {list(values)!r}]\n"
        "    print('ready', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout and child.stdout.readline() == b"ready\n"
        os.killpg(child.pid, number)
        child.wait()
    _await(lambda: now(values) == values)


def _await(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


# The rule.


def test_the_rule_contains_the_settings_of_the_array_and_of_its_members() -> None:
    settings = {CACHE: "4096", READ_AHEAD: "2048", SCHEDULER: "none", REQUESTS: "256"}
    text = "\n".join(rule_lines(UUID, settings))
    assert kept_settings(text) == settings
    assert 'ENV{MD_UUID}=="01234567:89abcdef:01234567:89abcdef"' in text
    assert 'ENV{ID_FS_UUID}=="01234567-89ab-cdef-0123-456789abcdef"' in text, "as blkid writes it"
    assert text.index("ATTR{queue/scheduler}") < text.index("ATTR{queue/nr_requests}"), "a scheduler brings its own"


def test_a_rule_without_the_mark_is_not_ours() -> None:
    assert kept_settings(None) is None
    assert kept_settings('ENV{MD_UUID}=="x", ATTR{md/stripe_cache_size}="4096"\n') is None


def test_what_was_added_to_the_rule_by_hand_is_not_taken_for_a_setting() -> None:
    rule = "\n".join(
        (*rule_lines(UUID, {CACHE: "4096"}), 'ATTR{queue/rotational}="0", ATTR{md/stripe_cache_size}="a b"')
    )
    assert kept_settings(rule) == {CACHE: "4096"}


def test_a_folder_on_another_device_is_refused(tmp_path: Path) -> None:
    target = Target(str(tmp_path), TargetKind.FOLDER, str(tmp_path), free=GIB)
    with pytest.raises(Refused, match="not a folder of a file system"):
        planned({}, target)


# How a measurement is kept.

NOW = ((CACHE, "256"), (READ_AHEAD, "512"), (SCHEDULER, "none"), (REQUESTS, "1023"))
BETTER: Truth = {CACHE: {"256": 1.0, "4096": 1.5}, SCHEDULER: {"none": 1.0, "kyber": 1.5}, READ_AHEAD: {"512": 1.0}}


def array(**facts: object) -> Inventory:
    """Return a machine with an array that appears at every boot already."""
    files = system(conf=lines(RIGHT), images=(image(RIGHT),))
    made = machine("raid5", replace(files, late_start=True), **{"settings": NOW, **facts})
    drives = (replace(disk, serial=f"S{index}") for index, disk in enumerate(made.disks[:-1]))
    return replace(made, disks=(*drives, made.disks[-1]))


def keep(inventory: Inventory, truth: Truth = BETTER, *, root: str = "", **words: object) -> ArrayPlan:
    members = tuple(map(identity_of, inventory.disks[:-1]))
    text = ""
    if truth:
        measured = tuning(truth)
        text = settings_text(replace(measured, **{"members": members, **words}))  # type: ignore[arg-type]
    return plan_persist(inventory.disks[-1], inventory, PersistGoal(root=root, tuned=text))


def rule_of(plan: ArrayPlan) -> str | None:
    (path, text) = next(
        (
            (step.path, "".join(f"{line}\n" for line in step.lines))
            for step in plan.steps
            if isinstance(step, WriteFile)
        ),
        ("", ""),
    )
    assert path in ("", rule_path(UUID))
    return text or None


def after(inventory: Inventory, plan: ArrayPlan) -> Inventory:
    """Return the machine after the plan."""
    disk = inventory.disks[-1]
    assert disk.array
    now = dict(disk.array.settings)
    for step in plan.steps:
        if isinstance(step, ApplySettings):
            now |= {each.name: each.after for each in step.settings}
    facts = replace(disk.array, settings=tuple(now.items()), rule=rule_of(plan) or disk.array.rule)
    return replace(inventory, disks=(*inventory.disks[:-1], replace(disk, array=facts)))


def test_what_was_faster_is_kept_and_a_second_run_has_nothing_to_do() -> None:
    plan = keep(array())
    assert kept_settings(rule_of(plan)) == {CACHE: "4096", SCHEDULER: "kyber"}
    changes = (SettingChange(CACHE, "256", "4096"), SettingChange(SCHEDULER, "none", "kyber"))
    assert plan.of(ApplySettings) == (ApplySettings(UUID, "/dev/md127", changes),)
    assert from_json(to_json(plan)) == plan
    check(json.loads(to_json(plan)))
    assert any("md/stripe_cache_size 4096" in note and "(measured here)" in note for note in plan.notes)
    done = after(array(), plan)
    assert not keep(done).steps and not keep(done, {}).steps


def test_a_measurement_without_a_faster_value_keeps_nothing() -> None:
    plan = keep(array(), {CACHE: {"256": 1.0, "4096": 1.0}})
    assert not plan.steps and any("no setting was clearly faster" in note for note in plan.notes)


def test_an_earlier_measurement_of_other_settings_stays_kept() -> None:
    first = after(array(), keep(array(), {CACHE: {"256": 1.0, "4096": 1.5}}))
    second = keep(first, {READ_AHEAD: {"512": 1.0, "8192": 1.5}})
    assert kept_settings(rule_of(second)) == {CACHE: "4096", READ_AHEAD: "8192"}
    (step,) = second.of(ApplySettings)
    assert [each.name for each in step.settings] == [READ_AHEAD]


def test_a_kept_setting_that_was_lost_is_shown_and_applied_by_a_plain_persist() -> None:
    """As after a boot whose udev did not see the array."""
    done = after(array(), keep(array()))
    disk = done.disks[-1]
    assert disk.array
    lost = replace(done, disks=(*done.disks[:-1], replace(disk, array=replace(disk.array, settings=NOW))))
    (view,) = arrays_of(audit(lost, {}))
    assert view.kept == (f"{CACHE} is 256, but 4096 is kept", f"{SCHEDULER} is none, but kyber is kept")
    assert view.next[-1] == "sudo aligntool raid persist /dev/md127"
    (step,) = keep(lost, {}).steps
    assert isinstance(step, ApplySettings)
    (view,) = arrays_of(audit(done, {}))
    assert view.kept == (f"kept settings: {CACHE} 4096, {SCHEDULER} kyber",) and not view.next
    assert any("kept settings" in line for line in text_of(array_lines([view], width=200)))


@pytest.mark.parametrize(
    ("facts", "words", "why"),
    [
        ({"rule": "# by hand\n"}, {}, "was not written by aligntool"),
        ({}, {"array": OTHER}, "measured on the array with UUID"),
        ({}, {"members": ()}, "with other drives"),
        ({}, {"root": "/mnt"}, "for the running system"),
    ],
)
def test_a_measurement_is_only_kept_for_its_own_array(
    facts: dict[str, object], words: dict[str, object], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        keep(array(**facts), **words)  # type: ignore[arg-type]
