"""Plan, realign, apply, interrupt and resume, as a user types them; without root, on image files only."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aligntool.commands import shell_word
from aligntool.units import GIB, MIB
from tests.cli.old_disks import LENGTH, ROOT, SIZE, START, assert_whole, first_start, found_at, make_old_disk
from tests.conftest import digest, run
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs", "blkid")


# The plan


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx")
def test_a_partition_is_refused_with_its_disk_and_number(disk: Path, loop: Callable[..., Path]) -> None:
    before, device = digest(disk), loop(disk)
    run("partx", "-a", device)
    for command in (("plan", "realign"), ("realign", "--yes")):
        for target in (f"{device}p1", f"{device.name}p1"):
            done = run_aligntool(*command, target)
            assert done.returncode == 3 and f"give {device} --partition 1" in done.stderr, done.stderr
    assert run_aligntool("plan", "realign", device, "--partition", "1").returncode == 0
    assert digest(disk) == before


def test_a_plan_is_shown_with_the_command_that_applies_it_and_writes_nothing(disk: Path) -> None:
    before = digest(disk)
    done = run_aligntool("plan", "realign", disk)
    assert done.returncode == 0 and done.stderr == ""
    for words in ("31.50KiB", "2048", "up by 992.5KiB", "before", "after", "Journal", f"aligntool realign '{disk}'"):
        assert words in done.stdout, words
    assert digest(disk) == before


def test_the_title_does_not_promise_a_grain_that_a_partition_keeps_off(disk: Path) -> None:
    run("sfdisk", "-q", "--append", disk, stdin="start=204808, size=2048\n")  # on 4 KiB, not on 1 MiB
    said = run_aligntool("plan", "realign", disk, code=0).stdout
    assert said.splitlines()[0].endswith(": every start on its boundary")
    assert run_aligntool("plan", "realign", "--grain", "1MiB", disk, code=0).stdout.splitlines()[0].endswith("on 1MiB")


def test_a_disk_in_place_of_a_command_leads_to_the_command(disk: Path) -> None:
    for words, meant in ((("plan",), "plan realign"), ((), "audit")):
        assert run_aligntool(*words, disk, code=2).stderr.endswith(f"→ aligntool {meant} {shell_word(str(disk))}\n")
    assert run_aligntool("raid", disk, code=2).stderr.endswith("→ aligntool raid --help\n")


def test_a_plan_that_was_applied_already_is_refused_with_the_likely_reason(disk: Path, tmp_path: Path) -> None:
    run_aligntool("plan", "realign", disk, "-o", tmp_path / "plan.json", code=0)
    run_aligntool("apply", tmp_path / "plan.json", "--yes", code=0)
    said = run_aligntool("apply", tmp_path / "plan.json", "--yes", code=3).stderr
    assert "different partition table; a new plan has nothing to do" in said
    assert said.endswith(f"→ aligntool audit {shell_word(str(disk))}\n")


def test_a_saved_plan_is_named_with_the_command_that_applies_it(disk: Path, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    done = run_aligntool("plan", "realign", disk, "-o", kept, "--json", code=0)
    assert done.stderr == f"the plan is saved in {kept}\n  → aligntool apply {kept}\n"
    assert json.loads(done.stdout) == json.loads(kept.read_text())
    assert run_aligntool("plan", "realign", disk, "-o", "-", code=0).stderr == ""


def test_a_disk_image_is_not_a_plan(disk: Path) -> None:
    said = run_aligntool("apply", disk, code=3).stderr
    assert "is a disk or a disk image, not a plan" in said and "plan realign" in said


def test_a_rollback_of_a_finished_move_says_what_brings_it_back(disk: Path) -> None:
    run_aligntool("realign", disk, "--yes", code=0)
    said = run_aligntool("rollback", disk, "--yes", code=3).stderr
    assert "a complete change lost nothing, and only a backup has the state before it" in " ".join(said.split())
    assert "backup" not in run_aligntool("resume", disk, "--yes", code=3).stderr


@pytest.mark.needs_tools("mke2fs")
def test_a_target_without_partitions_leads_to_its_command(tmp_path: Path) -> None:
    image = tmp_path / "bare.img"
    image.touch()
    run("mke2fs", "-q", "-t", "ext4", image, "40M")
    assert f"aligntool plan partition {image}" in run_aligntool("plan", "realign", image, code=3).stderr
    image.write_text("hello world\n")
    assert "it has less than 64KiB" in run_aligntool("rollback", image, code=3).stderr
    assert "  → aligntool report\n" in run_aligntool("audit", "--html", code=2).stderr


@pytest.mark.parametrize("word", ["rollback", "resume", "backup"])
def test_the_words_of_a_recovery_are_explained(word: str) -> None:
    assert "journal" in run_aligntool("explain", word, code=0).stdout


def test_a_partition_that_is_aligned_already_is_moved_only_as_asked(tmp_path: Path) -> None:
    image = tmp_path / "aligned.img"
    with image.open("wb") as file:
        file.truncate(200 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=206856, size=100000, type=83\n")
    said = " ".join(run_aligntool("plan", "realign", image, "-p", "1", code=0).stdout.split())
    assert "already aligned for the drive; off the grain of 1MiB by 4KiB: moved as asked" in said


def test_starts_that_are_equal_when_rounded_are_shown_exactly(tmp_path: Path) -> None:
    image = tmp_path / "close.img"
    with image.open("wb") as file:
        file.truncate(200 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=206911, size=100000, type=83\n")
    said = run_aligntool("plan", "realign", image, code=0).stdout
    assert f"{206911 * 512}B" in said and "101.0MiB" not in said


def test_a_rate_gives_the_move_of_an_image_a_duration(disk: Path) -> None:
    """The place of the journal is zeroed in the end: that counts as well."""
    found = json.loads(run_aligntool("plan", "realign", "--json", disk).stdout)["plan"]
    size = found["estimate"]["bytes_to_copy"]
    (journal,) = (step["journal"]["extent"]["length"] for step in found["steps"] if step["step"] == "WriteJournal")
    seconds = -(-(size + journal) // MIB)
    said = run_aligntool("realign", "--rate", "1MiB", disk, code=3).stdout
    assert f"To copy: {size / MIB:.1f}MiB ({size}B), about {seconds} s\n" in said
    planned = run_aligntool("plan", "realign", "--rate", "1MiB", disk, code=0).stdout
    assert f"({size}B), about {seconds} s\n" in planned
    assert planned.splitlines()[-1] == f"→ aligntool realign {shell_word(str(disk))} --rate 1MiB"


@pytest.mark.needs_tools("parted")
@pytest.mark.parametrize("grain", [4096, MIB])
def test_a_move_to_a_finer_grain_ends_with_its_boundary_and_how_to_check_it(tmp_path: Path, grain: int) -> None:
    image = tmp_path / "fine.img"
    with image.open("wb") as file:
        file.truncate(100 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=63, size=65536, type=83\n")
    done = run_aligntool("realign", "--yes", "--grain", str(grain), image, code=0)
    said = " ".join(done.stdout.split())
    parted = subprocess.run(["parted", image, "align-check", "opt", "1"], input=b"", capture_output=True, check=False)
    assert (b"not aligned" in parted.stdout) == ("reports such a start as not aligned" in said) == (grain < MIB)
    if grain < MIB:
        check = re.search(r"To check it: (sfdisk --dump .*); start × (\d+) is a multiple of (\d+)$", said)
        start = re.search(r"start= *(\d+)", run("sfdisk", "--dump", image))
        assert check and start and check[1].endswith(shell_word(str(image)))
        assert int(start[1]) * int(check[2]) % int(check[3]) == 0 and int(check[3]) == grain


def test_a_plan_for_an_image_has_the_time_on_a_hard_disk_and_on_an_ssd(tmp_path: Path) -> None:
    image = tmp_path / "large.img"
    with image.open("wb") as file:
        file.truncate(64 * GIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=63, size=104857600, type=83\n")
    minutes = [round(104857600 * 512 / rate / 60) for rate in (60e6, 300e6)]
    said = f"about {minutes[0]} min on a hard disk (60 MB/s) or {minutes[1]} min on an SSD (300 MB/s)"
    assert said in " ".join(run_aligntool("plan", "realign", image, code=0).stdout.split())
    asked = run_aligntool("realign", image, code=3)
    assert said in " ".join(asked.stdout.split())


def test_a_plan_says_what_is_at_risk_and_so_does_the_question_of_a_run(disk: Path) -> None:
    for words in (("plan", "realign"), ("realign", "--dry-run")):
        said = run_aligntool(*words, disk, code=0).stdout
        assert said.count("At risk: the partitions that move") == 1
    # A run asks, and the question says it.
    assert "At risk" not in run_aligntool("realign", disk, code=3).stdout


def test_the_plan_and_the_progress_count_the_same_bytes(disk: Path) -> None:
    planned = run_aligntool("plan", "realign", disk, code=0).stdout
    done = run_aligntool("realign", "--yes", "--json", disk, code=0).stdout
    events = [json.loads(line) for line in done.splitlines()]
    totals = {event["total"] for event in events if event["event"] == "progress"}
    assert totals == {events[0]["bytes_to_copy"]}
    assert f"({totals.pop()}B), about 1 s\n" in planned


def test_the_command_lines_of_the_checks_are_shown_and_can_be_run(disk: Path) -> None:
    said = run_aligntool("plan", "realign", "-v", disk).stdout
    line = next(line.strip().removeprefix("$ ") for line in said.splitlines() if line.strip().startswith("$ "))
    assert "e2fsck" in line
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False,
                          env=os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_plan_as_json_conforms_to_its_schema_and_agrees_with_sfdisk(disk: Path) -> None:
    document = json.loads(run_aligntool("plan", "realign", "--json", disk).stdout)
    check(document)
    place = document["plan"]["places"][0]
    assert place["before"]["start"] == first_start(disk) * 512 == START
    assert place["after"] == {"start": MIB, "length": place["before"]["length"]}


def test_the_command_that_applies_the_plan_repeats_the_options(disk: Path) -> None:
    said = run_aligntool("plan", "realign", disk, "-p", "1", "--grain", "4MiB", "--physical-sector-size", "4096").stdout
    assert "-p 1 --grain 4MiB --physical-sector-size 4KiB" in said
    assert "8192" in said, "4 MiB are 8192 sectors"


@pytest.mark.parametrize("words", [("realign", "--dry-run"), ("realign",), ("realign", "--dry-run", "--json")])
def test_a_dry_run_and_a_missing_confirmation_write_nothing(disk: Path, words: tuple[str, ...]) -> None:
    before = digest(disk)
    done = run_aligntool(*words, disk)
    assert done.returncode == (0 if "--dry-run" in words else 3)
    assert digest(disk) == before
    if words == ("realign",):
        assert "--yes" in done.stderr


# The move


def test_a_realigned_disk_is_aligned_intact_and_needs_no_second_realign(disk: Path) -> None:
    done = run_aligntool("realign", "--yes", disk)
    assert done.returncode == 0, done.stderr
    assert "partition 1: sector 2048 (1MiB), on the grid" in done.stdout
    assert first_start(disk) == 2048
    assert_whole(disk)
    assert run_aligntool("audit", disk).returncode == 0
    again = run_aligntool("realign", disk)
    assert again.returncode == 0 and "Nothing to do." in again.stdout


def test_events_are_json_lines_from_the_plan_to_the_end(disk: Path) -> None:
    done = run_aligntool("realign", "--yes", "--json", disk)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[0]["event"], lines[0]["schema"]) == ("plan", "aligntool.events")
    assert (lines[-1]["event"], lines[-1]["state"]) == ("end", "new")
    copied = [line for line in lines if line["event"] == "progress"]
    assert copied[-1]["done"] == copied[-1]["total"] > 0
    begun = [line["index"] for line in lines if line["event"] == "step-begun"]
    assert begun == sorted(begun) and begun == [line["index"] for line in lines if line["event"] == "step-done"]


# The question


def answered(disk: Path, answer: str) -> subprocess.CompletedProcess[str]:
    """Answer at a terminal that script(1) provides."""
    words = " ".join(f"'{word}'" for word in program("realign", disk))
    return subprocess.run(
        ["script", "-qec", words, "/dev/null"], input=answer, capture_output=True, text=True, check=False, cwd=ROOT,
        timeout=120,
    )  # fmt: skip


@pytest.mark.needs_tools("script")
@pytest.mark.parametrize("answer", ["yes\n", "\n"])
def test_an_answer_other_than_the_required_name_writes_nothing(disk: Path, answer: str) -> None:
    before = digest(disk)
    done = answered(disk, answer)
    assert done.returncode == 3 and "0x2005c0de" in done.stdout
    assert digest(disk) == before


@pytest.mark.needs_tools("script")
def test_the_name_of_the_image_as_it_was_typed_starts_the_move(disk: Path) -> None:
    done = answered(disk, f"{disk}\n")
    assert done.returncode == 0, done.stdout
    assert first_start(disk) == 2048


# Stored plans


@pytest.fixture
def kept(disk: Path, tmp_path: Path) -> Path:
    plan = tmp_path / "plan.json"
    done = run_aligntool("plan", "realign", disk, "-o", plan)
    assert done.returncode == 0 and f"aligntool apply {plan}" in done.stdout
    return plan


def test_a_saved_plan_is_applied_once(disk: Path, kept: Path) -> None:
    check(json.loads(kept.read_text()))
    assert run_aligntool("apply", "--yes", kept).returncode == 0
    assert_whole(disk)
    again = run_aligntool("apply", "--yes", kept)
    assert again.returncode == 3 and "partition table" in again.stderr


def test_a_plan_never_overwrites_another_file(disk: Path, kept: Path) -> None:
    assert run_aligntool("plan", "realign", disk, "-o", kept).returncode == 3


def change_table(disk: Path, plan: Path) -> None:
    run("sfdisk", "-q", "--part-type", disk, "1", "a9")


def change_id(disk: Path, plan: Path) -> None:
    run("sfdisk", "-q", "--disk-id", disk, "0x11111111")


def change_content(disk: Path, plan: Path) -> None:
    run("mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-E", f"offset={START}", disk, "4096")


def change_size(disk: Path, plan: Path) -> None:
    os.truncate(disk, SIZE + MIB)


def change_plan(disk: Path, plan: Path) -> None:
    plan.write_text(plan.read_text().replace(str(MIB), str(2 * MIB), 1))


def change_wish(disk: Path, plan: Path) -> None:
    document = json.loads(plan.read_text())
    document["asked"]["goal"] |= {"grain": 8 * MIB, "grain_given": True}
    plan.write_text(json.dumps(document))


def change_to_nonsense(disk: Path, plan: Path) -> None:
    plan.write_bytes(b"\xff\xfe{}")


def lose_disk(disk: Path, plan: Path) -> None:
    disk.rename(disk.parent / "elsewhere.img")


@sample(4)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_table, "partition table"),
        (change_id, "disk id"),
        (change_content, "a new plan has different steps"),
        (change_size, "size"),
        (change_plan, "digest"),
        (change_wish, "a new plan has different steps"),
        (change_to_nonsense, "not a text file"),
        (lose_disk, "No such file"),
    ],
)
def test_an_outdated_plan_is_refused_with_the_change(
    disk: Path, kept: Path, change: Callable[[Path, Path], None], said: str
) -> None:
    change(disk, kept)
    before = digest(disk) if disk.exists() else ""
    done = run_aligntool("apply", "--yes", kept)
    assert done.returncode == 3, done.stderr
    assert said in done.stderr and "→" in done.stderr and "Traceback" not in done.stderr
    assert not disk.exists() or digest(disk) == before


def test_files_may_change_after_a_plan_was_saved_as_the_help_states(disk: Path, kept: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.txt"
    new.write_text("written after the plan was saved")
    run("debugfs", "-w", "-R", f"write {new} new.txt", f"{disk}?offset={START}")
    said = " ".join(run_aligntool("apply", "--help", env=os.environ | {"COLUMNS": "200"}).stdout.split())
    assert "It is refused if the disk or its table is another one, or if a new plan has other steps." in said
    done = run_aligntool("apply", "--yes", kept)
    assert done.returncode == 0, done.stderr
    shown = run("debugfs", "-R", "cat new.txt", f"{disk}?offset={first_start(disk) * 512}")
    assert "written after the plan was saved" in shown


# Interrupted


def interrupted(
    disk: Path, *words: str | Path, with_signal: signal.Signals = signal.SIGINT, mover: bool = False,
    under: Sequence[str] = (), rate: str = "2MiB",
) -> tuple[int, str, float]:  # fmt: skip
    """Return exit code, standard error, and the seconds from the signal to the end. `mover`: signal the
    child process.
    """
    process = subprocess.Popen(
        [*under, *program("realign", "--yes", "--json", "--rate", rate, *words, disk)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "step-begun" and json.loads(line)["step"] == "CopyContent":
            break
    time.sleep(0.3)  # into the copy, which takes ten seconds at this rate
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]) if mover else process.pid, with_signal)
    sent = time.monotonic()
    _, said = process.communicate(timeout=300)
    return process.returncode, said, time.monotonic() - sent


@pytest.fixture(scope="module")
def stopped(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk in flight, whose move was stopped by Ctrl-C."""
    disk = tmp_path_factory.mktemp("stopped") / "old.img"
    run("cp", "--sparse=always", model, disk)
    code, said, _ = interrupted(disk)
    assert code == 4, said
    return disk


@pytest.fixture
def in_flight(stopped: Path, disk: Path) -> Path:
    run("cp", "--sparse=always", stopped, disk)
    return disk


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_long_before_the_end_with_exit_code_4_and_the_next_commands(
    disk: Path, number: signal.Signals
) -> None:
    code, said, seconds = interrupted(disk, with_signal=number, rate="256KiB")
    assert code == 4 and "Traceback" not in said
    assert f"aligntool resume '{disk}'" in said and f"aligntool rollback '{disk}'" in said
    assert seconds < 30, "at this rate the copy takes more than a minute"


def test_under_nohup_a_closed_terminal_does_not_stop_a_move(disk: Path) -> None:
    code, said, _ = interrupted(disk, with_signal=signal.SIGHUP, under=("nohup",), rate="16MiB")
    assert code == 0, said
    assert_whole(disk)


def test_a_move_whose_child_process_is_killed_is_stopped_and_can_be_resumed(disk: Path) -> None:
    code, said, _ = interrupted(disk, with_signal=signal.SIGKILL, mover=True)
    assert code == 4 and f"the process working on {disk} was killed by SIGKILL" in said and "Traceback" not in said
    assert f"aligntool resume '{disk}'" in said and f"aligntool rollback '{disk}'" in said
    assert run_aligntool("resume", "--yes", disk).returncode == 0
    assert_whole(disk)


def test_a_move_whose_messages_have_no_reader_any_more_ends_with_exit_code_4(disk: Path) -> None:
    """As in `realign 2>&1 | head`: only the exit code states that something was written."""
    moving = program("realign", "--yes", "--rate", "2MiB", disk)
    process = subprocess.Popen(moving, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    for line in process.stderr:
        if "copy" in line:
            break
    process.stderr.close()
    assert process.wait(300) == 4
    assert run_aligntool("resume", "--yes", disk).returncode == 0
    assert_whole(disk)


def test_a_disk_in_flight_cannot_be_mounted_planned_realigned_or_wiped(in_flight: Path) -> None:
    assert found_at(in_flight, START) == "" and found_at(in_flight, MIB) == ""
    status = run_aligntool("status", in_flight)
    assert status.returncode == 0 and "in flight" in status.stdout and "aligntool resume" in status.stdout
    document = json.loads(run_aligntool("status", "--json", in_flight).stdout)
    check(document)
    assert document["state"] == "in-flight"
    anew = ("--part", "rest:linux", "--wipe", in_flight, "--yes")
    for words in (("plan", "realign"), ("realign", "--yes"), ("layout", *anew)):
        done = run_aligntool(*words, in_flight)
        assert done.returncode == 3 and "in flight" in done.stderr and "aligntool status" in done.stderr
    assert "aligntool resume" in run_aligntool("audit", in_flight).stdout


def test_resume_completes_an_interrupted_move(in_flight: Path) -> None:
    done = run_aligntool("resume", "--yes", in_flight)
    assert done.returncode == 0, done.stderr
    assert "sector 2048 (1MiB), on the grid" in done.stdout
    assert first_start(in_flight) == 2048
    assert_whole(in_flight)


@pytest.mark.parametrize(("stream", "code"), [("stdout", 4), ("stderr", 0)])
def test_unwritable_output_neither_stops_a_resume_nor_makes_it_a_refusal(
    in_flight: Path, stream: str, code: int
) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE} | {stream: full}
        done = subprocess.run(program("resume", "--yes", in_flight), text=True, check=False, **streams)  # type: ignore[call-overload] # its streams
    assert done.returncode == code, "3 would mean that nothing was written, 1 means findings"
    assert code == 0 or "finished, but the result was not reported" in done.stderr
    assert_whole(in_flight)


def _beside_a_damaged_record(*words: str | Path) -> subprocess.CompletedProcess[str]:
    state = "/var/lib/aligntool"
    script = (
        f'mkdir -p {state} && mount -t tmpfs tmpfs {state} && mkdir {state}/arrays && > {state}/arrays/1.json && "$@"'
    )
    command = ["unshare", "-m", "sh", "-c", script, "sh", *program(*words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "unshare")
def test_a_damaged_array_record_does_not_prevent_the_resume_of_another_disk(
    in_flight: Path, loop: Callable[..., Path]
) -> None:
    done = _beside_a_damaged_record("status", in_flight)
    assert done.returncode == 0 and "in flight" in done.stdout, done.stderr
    device = loop(in_flight)
    done = _beside_a_damaged_record("resume", "--yes", device)
    assert done.returncode == 0, done.stderr
    done = _beside_a_damaged_record("resume", "--yes", device)
    assert done.returncode == 3 and "the record of an unfinished array cannot be read" in done.stderr
    done = _beside_a_damaged_record("status", in_flight)
    assert done.returncode == 3, "layers of an image also have a record: nothing may be in flight, or a re-encryption"
    assert_whole(in_flight)


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare", "qemu-img", "qemu-storage-daemon")
def test_a_damaged_record_of_an_array_keeps_no_virtual_disk_in_flight(in_flight: Path, tmp_path: Path) -> None:
    disk, back = tmp_path / "disk.qcow2", tmp_path / "disk.img"
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", in_flight, disk)
    done = _beside_a_damaged_record("status", disk)
    assert done.returncode == 0 and "in flight" in done.stdout, done.stderr
    done = _beside_a_damaged_record("resume", "--yes", disk)
    assert done.returncode == 0, done.stderr
    run("qemu-img", "convert", "-O", "raw", disk, back)
    assert_whole(back)


def test_rollback_restores_the_table_and_the_content(in_flight: Path, model: Path) -> None:
    done = run_aligntool("rollback", "--yes", "--json", in_flight)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "old"
    dumps = [run("sfdisk", "--dump", image).replace(str(image), "") for image in (in_flight, model)]
    assert dumps[0] == dumps[1]
    assert_whole(in_flight)


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_neither_resume_nor_rollback_begins_without_confirmation(in_flight: Path, way: str) -> None:
    before = digest(in_flight)
    done = run_aligntool(way, in_flight)
    assert done.returncode == 3 and "no terminal for the confirmation" in done.stderr and "--yes" in done.stderr
    assert "in flight" in done.stderr and f"to {'take' if way == 'resume' else 'undo'}:" in done.stderr
    assert digest(in_flight) == before


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_dry_run_shows_the_steps_that_are_then_executed(in_flight: Path, way: str) -> None:
    before = digest(in_flight)
    shown = run_aligntool(way, "--dry-run", in_flight)
    assert shown.returncode == 0, shown.stderr
    numbers = [int(number) for number in re.findall(r"^ +(\d+)\. ", shown.stdout, re.MULTILINE)]
    status = json.loads(run_aligntool(way, "--dry-run", "--json", in_flight).stdout)
    assert status["state"] == "in-flight" and numbers[0] == status["index"] + 1
    assert digest(in_flight) == before
    events = [json.loads(line) for line in run_aligntool(way, "--yes", "--json", in_flight).stdout.splitlines()]
    done = [event["index"] + 1 for event in events if event["event"] == "step-done"]
    assert numbers == done


def test_the_image_may_be_moved_elsewhere_before_it_is_resumed(in_flight: Path, tmp_path: Path) -> None:
    other = tmp_path / "other machine"
    other.mkdir()
    moved = shutil.move(in_flight, other / "copy.img")
    assert run_aligntool("resume", "--yes", moved).returncode == 0
    assert_whole(Path(moved))


@pytest.mark.parametrize("name", ["resume", "rollback"])
def test_a_disk_that_is_not_in_flight_is_not_touched(disk: Path, name: str) -> None:
    before = digest(disk)
    done = run_aligntool(name, disk)
    assert done.returncode == 3 and "nothing is in flight" in done.stderr
    assert digest(disk) == before
    assert "nothing is in flight" in run_aligntool("status", disk).stdout


# The journal elsewhere


@pytest.fixture
def full_disk(tmp_path: Path) -> Path:
    """Make a disk with room to move the partition, but none for a journal."""
    return make_old_disk(tmp_path / "full.img", size=START + LENGTH + MIB)


@pytest.mark.on_disk
def test_a_full_disk_is_refused_with_the_option_that_makes_the_move_possible(full_disk: Path, tmp_path: Path) -> None:
    """On a finer grain than 1 MiB there would be room for a small journal."""
    words = ("realign", "--yes", "--grain", "1MiB")
    refused = run_aligntool(*words, full_disk)
    assert refused.returncode == 3 and "--journal" in refused.stderr
    journal = tmp_path / "the journal"
    done = run_aligntool(*words, "--journal", journal, full_disk)
    assert done.returncode == 0, done.stderr
    assert first_start(full_disk) == 2048
    assert_whole(full_disk)
    assert not journal.exists(), "nothing needs it any more"


def test_a_damaged_file_system_is_refused_and_no_journal_file_remains(full_disk: Path, tmp_path: Path) -> None:
    with full_disk.open("r+b") as file:
        file.seek(START + 4096 * 2)  # behind superblock and group descriptors: bitmaps and inodes
        file.write(b"\xa5" * 4096 * 64)
    before = digest(full_disk)
    journal = tmp_path / "journal"
    done = run_aligntool("realign", "--yes", "--journal", journal, full_disk)
    assert done.returncode == 3, done.stderr
    assert digest(full_disk) == before and not journal.exists()


@pytest.mark.on_disk
def test_a_move_with_a_journal_file_requires_the_file_to_resume(full_disk: Path, tmp_path: Path) -> None:
    journal = tmp_path / "the journal"
    code, said, _ = interrupted(full_disk, "--journal", journal)
    assert code == 4 and f"--journal '{journal}'" in said
    without = run_aligntool("resume", full_disk)
    assert without.returncode == 3 and "--journal" in without.stderr
    shown = run_aligntool("status", full_disk, code=0).stdout
    assert "do not mount" in shown
    assert f"→ fill in FILE: aligntool resume {shell_word(str(full_disk))} --journal FILE" in shown
    assert run_aligntool("resume", full_disk, "--journal", tmp_path / "another").returncode == 3
    (tmp_path / "another").write_bytes(bytes(1 << 20))
    other = run_aligntool("status", full_disk, "--journal", tmp_path / "another", code=3)
    assert "the file that was named contains none" in other.stderr and not other.stdout
    assert run_aligntool("resume", "--yes", full_disk, "--journal", journal).returncode == 0
    assert_whole(full_disk)


@pytest.mark.needs_tools("mkswap")
def test_a_small_journal_does_not_truncate_the_header_of_a_swap_area(tmp_path: Path) -> None:
    """Such a journal saves only the sectors that can contain a signature."""
    image, area = tmp_path / "disk.img", tmp_path / "area"
    run("truncate", "-s", "4M", area)
    run("mkswap", area)
    with area.open("r+b") as file:
        file.seek(512)
        file.write(bytes(range(1, 256)) * 2)  # a boot program, which mkswap leaves there
        file.seek(2048)
        file.write(bytes(range(1, 256)) * 7)
    header = area.read_bytes()[:4096]
    run("truncate", "-s", str(4095 * 512 + 4 * MIB + 300 * 1024), image)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=4095, size=8192, type=82\n")
    with image.open("r+b") as file:
        file.seek(4095 * 512)
        file.write(area.read_bytes())
    done = run_aligntool("realign", "--yes", image)
    assert done.returncode == 0 and "the journal is small" in " ".join(done.stdout.split()), done.stderr
    start = first_start(image) * 512
    assert start == 4096 * 512
    assert image.read_bytes()[start : start + 4096] == header


@pytest.mark.on_disk
def test_a_journal_never_overwrites_another_file(full_disk: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("thesis")
    for words in (("realign", "--yes"), ("realign", "--dry-run"), ("plan", "realign")):
        done = run_aligntool(*words, "--journal", precious, full_disk)
        assert done.returncode == 3 and "already exists" in done.stderr, words
        done = run_aligntool(*words, "--journal", tmp_path / "no folder" / "journal", full_disk)
        assert done.returncode == 3 and "No such file" in done.stderr, words
        done = run_aligntool(*words, "--journal", precious / "journal", full_disk)
        assert done.returncode == 3 and "Not a directory" in done.stderr, words
    assert precious.read_text() == "thesis"


@pytest.mark.on_disk
@pytest.mark.parametrize("way", ["realign", "resume"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_replaced_the_journal_file_is_kept(
    full_disk: Path, tmp_path: Path, way: str, replaced: bool
) -> None:
    journal = tmp_path / "journal"
    if way == "resume":
        assert interrupted(full_disk, "--journal", journal)[0] == 4
    command = program(way, "--yes", "--json", "--rate", "16MiB", "--journal", journal, full_disk)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "step-begun" and json.loads(line)["step"] == "CopyContent":
            break
    journal.rename(tmp_path / "renamed")
    if replaced:
        journal.write_text("thesis")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0 and "Traceback" not in said, said
    assert_whole(full_disk)
    assert not replaced or journal.read_text() == "thesis"


@pytest.mark.on_disk
def test_a_logical_partition_moved_down_from_the_end_leaves_no_disk_in_flight(tmp_path: Path) -> None:
    """Its old last sector, which holds a marker of the move, is still the last sector of the extended partition."""
    image = tmp_path / "logical.img"
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=2048, type=5\nstart=4099, type=83\n")
    run("mke2fs", "-q", "-F", "-t", "ext4", "-E", f"offset={4099 * 512}", image, f"{(32 * MIB - 4099 * 512) // 1024}k")
    done = run_aligntool("realign", "--yes", "--journal", tmp_path / "journal", image)
    assert done.returncode == 0, done.stderr
    starts = [part["start"] for part in json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"]]
    assert starts == [2048, 4096]
    again = run_aligntool("realign", "--yes", image)
    assert again.returncode == 0 and "Nothing to do" in again.stdout + again.stderr, again.stderr


def test_a_journal_in_memory_is_refused(full_disk: Path) -> None:
    if run("stat", "-f", "-c", "%T", "/dev/shm").strip() != "tmpfs":
        pytest.skip("/dev/shm is not a tmpfs here")
    for words in (("plan", "realign"), ("realign", "--yes"), ("plan", "convert"), ("plan", "partition", "--undo")):
        done = run_aligntool(*words, "--journal", "/dev/shm/aligntool-test-journal", full_disk)
        assert done.returncode == 3 and "power cut" in done.stderr, words
    assert not Path("/dev/shm/aligntool-test-journal").exists()


# Shrinking


@pytest.mark.needs_root
@pytest.mark.needs_tools("resize2fs", "losetup")
def test_a_file_system_that_fills_the_disk_is_shrunk_only_if_requested(tmp_path: Path) -> None:
    disk = make_old_disk(tmp_path / "full.img", size=START + LENGTH)
    refused = run_aligntool("realign", "--yes", "-p", "1", "--page-size", "16KiB", disk)
    assert refused.returncode == 3 and f" {disk} -p 1 --page-size 16KiB --shrink" in refused.stderr
    assert first_start(disk) == 63
    shown = run_aligntool("plan", "realign", "--shrink", "-v", disk).stdout
    assert "resize2fs DEVICE" in shown
    done = run_aligntool("realign", "--yes", "--shrink", disk)
    assert done.returncode == 0, done.stderr
    assert first_start(disk) == 2048
    assert_whole(disk)


# Wrong input


@pytest.mark.parametrize("words", [("plan", "realign"), ("realign", "--yes"), ("status",), ("resume",), ("rollback",)])
def test_a_target_that_is_not_a_disk_is_one_clear_error_with_exit_code_3(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for target in ("/no/such/disk", "/dev/null", str(fifo)):
        done = run_aligntool(*words, target)
        assert done.returncode == 3, done.stderr
        assert "→" in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
        assert "answer" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--recipe", "no-such-recipe"), 3),
        (("--recipe", "desktop-uefi"), 3),
        (("--grain", "1MB"), 2),
        (("-p", "0"), 2),
        (("-p", "77"), 3),
        (("--rate", "0"), 2),
    ],
)
def test_impossible_options_are_refused(disk: Path, words: tuple[str, ...], code: int) -> None:
    done = run_aligntool("realign", "--yes", *words, disk)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and first_start(disk) == 63


@pytest.mark.needs_tools("mkntfs", "ntfscp", "mkfs.fat", "mcopy", "mkswap")
def test_the_demo_ends_with_every_partition_on_the_grid() -> None:
    done = run_aligntool("demo")
    assert done.returncode == 0, done.stderr
    assert "3 off" in done.stdout and done.stdout.rstrip().endswith(
        "4 starts on the grid, 0 off, 0 unknown · 0 errors, 0 warnings"
    )


@pytest.mark.needs_tools("mkfs.f2fs")
@pytest.mark.parametrize("several", [False, True])
def test_an_f2fs_on_several_devices_is_refused_and_not_reported_as_damaged(several: bool, tmp_path: Path) -> None:
    one, other, image = (tmp_path / name for name in ("one", "other", "disk.img"))
    one.write_bytes(bytes(100 * MIB))
    other.write_bytes(bytes(100 * MIB))
    run("mkfs.f2fs", "-q", *(("-c", other) if several else ()), one)
    image.write_bytes(bytes(START) + one.read_bytes() + bytes(60 * MIB))
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart={START // 512}, size={100 * MIB // 512}\n")
    done = run_aligntool("plan", "realign", image, code=3 if several else 0)
    assert ("is part of an F2FS on several devices" in done.stderr) is several
