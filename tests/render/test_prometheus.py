"""Metrics: accepted by Prometheus's own linter, with the right values, and written atomically."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.report import Report
from aligntool.inventory import InFlight, LinkHop, Port, Table, TableLabel
from aligntool.render.prometheus import ARRAY_STATES, METRICS, Run, audit_prometheus
from tests.audit.array_builders import array, drive
from tests.audit.builders import judge, made_disk
from tests.audit.machines.captured import HERE as MACHINES
from tests.audit.machines.captured import report as captured
from tests.conftest import run
from tests.run_aligntool import program, run_aligntool
from tests.thorough import examples, sample

AT = Run(1_700_000_000.1234, 1.5)
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in MACHINES.glob("*.tar.xz"))


def metrics(report: Report, *, serials: bool = False) -> str:
    return "".join(audit_prometheus(report, AT, serials=serials))


def samples(report: Report, name: str, *, serials: bool = False) -> list[str]:
    """Return the samples of one metric, without its name."""
    lines = metrics(report, serials=serials).splitlines()
    return [line.removeprefix(name) for line in lines if re.match(rf"{name}[ {{]", line)]


def everything() -> Report:
    """Return a machine with something of every kind."""
    drives = [drive(number) for number in range(2)]
    hop = LinkHop("0000:01:00.0", Port.ENDPOINT, speed_gts=2.5, width=2, max_speed_gts=16.0, max_width=4)
    above = LinkHop("0000:00:01.0", Port.CPU_ROOT, max_speed_gts=8.0, max_width=16)
    busy = array(drives, degraded=1, sync_action="recover", sync_done=1 << 30, sync_total=4 << 30)
    return judge(replace(drives[0], links=((hop, above),), wwn="eui.0025385b71b0c1d2", serial="S1"), drives[1], busy)


# Prometheus's own program checks the format and its conventions. It exits with 3 for a warning.


@sample(1)
@pytest.mark.needs_tools("promtool")
@pytest.mark.parametrize("machine", NAMES)
def test_promtool_accepts_the_metrics_of_a_captured_machine(machine: str) -> None:
    assert run("promtool", "check", "metrics", stdin=metrics(captured(machine), serials=True)) == ""


@pytest.mark.needs_tools("promtool")
def test_promtool_accepts_every_metric() -> None:
    text = metrics(everything(), serials=True)
    assert set(re.findall(r"^# HELP (\w+)", text, re.MULTILINE)) == set(METRICS)
    assert run("promtool", "check", "metrics", stdin=text) == ""


@pytest.mark.needs_tools("promtool", "sfdisk")
def test_promtool_accepts_the_file_of_an_image(tmp_path: Path) -> None:
    image, file = tmp_path / 'odd "name"\\.img', tmp_path / "aligntool.prom"
    image.touch()
    os.truncate(image, 64 << 20)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=63,size=2000\nstart=4096\n")
    words = ("audit", "--format", "prometheus", "-o", file, "--fail-on", "never", image)
    assert run_aligntool(*words).returncode == 0
    assert run("promtool", "check", "metrics", stdin=file.read_text()) == ""
    assert file.read_text().count("\naligntool_partition_off_bytes{") == 2
    again = run_aligntool(*words)
    assert again.returncode == 3 and "--overwrite" in again.stderr
    file.write_text("old")
    foreign = run_aligntool(*words, "--overwrite")
    assert foreign.returncode == 3 and file.read_text() == "old", "only what aligntool wrote is replaced"
    file.write_text("# HELP aligntool_build_info of an older run\n")
    assert run_aligntool(*words, "--overwrite").returncode == 0
    assert run("promtool", "check", "metrics", stdin=file.read_text()) == ""


@pytest.mark.needs_tools("strace")
def test_a_collector_never_reads_an_incomplete_prom_file(tmp_path: Path) -> None:
    """node_exporter reads every file whose name ends in .prom: the file may get this name only by a rename."""
    file, log = tmp_path / "aligntool.prom", tmp_path / "log"
    run_aligntool("audit", "--format", "prometheus", "-o", file, "--sysroot", MACHINES / f"{NAMES[0]}.tar.xz")
    words = program(
        "audit", "--format", "prometheus", "-o", file, "--overwrite", "--sysroot", MACHINES / f"{NAMES[0]}.tar.xz"
    )
    traced = "trace=open,openat,link,linkat,rename,renameat,renameat2"
    run("strace", "-f", "-o", log, "-e", traced, *words, fails=True)
    lines = log.read_text().splitlines()
    named = [line for line in lines if file.name in line and not re.search(r"O_RDONLY|O_PATH|O_DIRECTORY", line)]
    made = [line for line in lines if re.search(r"O_TMPFILE|O_CREAT", line) and "/dev/" not in line]
    assert len(made) == 1 and file.name not in made[0]
    assert len(named) == 1 and " rename" in named[0] and file.read_text().startswith("# HELP")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aligntool.prom", "log"]


# Values


METRIC = re.compile(r'^[a-z_]+(\{([a-z]+="(\\.|[^"\\\n])*",?)*\})? [0-9.]+$')


@settings(max_examples=examples(50))
@given(st.text(max_size=30))
def test_every_line_conforms_to_the_exposition_format(name: str) -> None:
    disk = replace(made_disk("63+4096; 2048+4096"), name=name + '"\\\n', model=name)
    lines = metrics(judge(disk)).splitlines()
    assert [line for line in lines if not line.startswith("# ") and not METRIC.match(line)] == []


def test_an_unknown_value_has_no_sample() -> None:
    report = judge(made_disk("63+4096; 2048+4096", physical=4096), made_disk("2048+10", name="md0", offset=-1))
    assert samples(report, "aligntool_partition_aligned") == [
        '{device="sda",partition="1"} 0', '{device="sda",partition="2"} 1',
    ]  # fmt: skip
    assert samples(report, "aligntool_partition_off_bytes") == [
        '{device="sda",partition="1"} 3584', '{device="sda",partition="2"} 0',
    ]  # fmt: skip
    assert len(samples(report, "aligntool_partition_start_bytes")) == 3
    assert not re.search(r" -\d", metrics(report))
    unknown = judge(replace(made_disk(), size=None, table_read=False))
    for name in ("aligntool_disk_size_bytes", "aligntool_move_in_flight"):
        assert samples(unknown, name) == []


def test_an_identity_contains_the_serial_number_only_on_request() -> None:
    of_serial = (
        "nvme.1b36-5345435245540a-51454d55-00000001"  # as nvme_sysfs.c makes it: vendor, serial, model, namespace
    )
    disk = replace(made_disk(), serial="SECRET", wwn=of_serial, model=" QEMU ", vendor=None)
    plain, full = (samples(judge(disk), "aligntool_disk_info", serials=serials) for serials in (False, True))
    assert plain == ['{device="sda",kind="ata",model="QEMU"} 1']
    assert full == [f'{{device="sda",kind="ata",model="QEMU",wwn="{of_serial}",serial="SECRET"}} 1']
    named = judge(replace(disk, wwn="eui.0025385b71b0c1d2"))
    assert 'wwn="eui.0025385b71b0c1d2"' in samples(named, "aligntool_disk_info")[0]


def test_two_entries_of_one_number_give_one_sample() -> None:
    disk = made_disk("63+4096; 2048+4096")
    twice = replace(disk, partitions=tuple(replace(part, number=1) for part in disk.partitions))
    assert len(samples(judge(twice), "aligntool_partition_start_bytes")) == 1


def test_the_metric_of_a_move_in_flight_is_1() -> None:
    moving = Table(TableLabel.GPT, 512, in_flight=InFlight((1,), 0))
    report = judge(made_disk("63+10"), replace(made_disk("63+10", name="sdb"), table=moving))
    assert samples(report, "aligntool_move_in_flight") == ['{device="sda"} 0', '{device="sdb"} 1']


@pytest.mark.parametrize(
    ("facts", "states"),
    [
        ({}, {"clean"}),
        ({"state": "active", "sync_action": "check"}, {"clean", "check"}),
        ({"degraded": 1}, {"degraded"}),
        ({"degraded": 1, "sync_action": "recover"}, {"degraded", "recover"}),
        ({"sync_action": "resync"}, {"resync"}),
        ({"sync_action": "reshape"}, {"reshape"}),
        ({"state": "inactive", "degraded": None, "sync_action": None}, {"inactive"}),
        ({"state": "broken", "sync_action": None}, {"inactive"}),
    ],
)
def test_the_states_of_an_array_are_exported(facts: dict[str, object], states: set[str]) -> None:
    drives = [drive(0), drive(1)]
    report = judge(*drives, array(drives, "raid1", **facts))
    given_ = dict(re.findall(r'state="(\w+)"} (\d)', "\n".join(samples(report, "aligntool_array_state"))))
    assert {state for state, value in given_.items() if value == "1"} == states
    assert set(given_) == set(ARRAY_STATES)


def test_sizes_of_an_array_and_values_of_a_link_are_exported() -> None:
    report = everything()
    assert samples(report, "aligntool_array_devices") == ['{device="md127"} 2']
    assert samples(report, "aligntool_array_missing_devices") == ['{device="md127"} 1']
    assert samples(report, "aligntool_array_sync_ratio") == ['{device="md127"} 0.25']
    place = '{device="nvme0n1",address="0000:01:00.0"}'
    for name, value in (("transfers_per_second", 2_500_000_000), ("max_transfers_per_second", 8_000_000_000),
                        ("width", 2), ("max_width", 4)):  # fmt: skip
        assert samples(report, f"aligntool_link_{name}") == [f"{place} {value}"]


def test_the_time_of_the_run_is_in_seconds() -> None:
    report = judge(made_disk())
    assert samples(report, "aligntool_last_run_timestamp_seconds") == [" 1700000000.123"]
    assert samples(report, "aligntool_last_run_duration_seconds") == [" 1.5"]
