"""`aligntool trace record` on an NVMe drive, under a kernel that allows tracing: the counts of dd and fio."""

import json
from pathlib import Path

import pytest

from tests.conftest import run
from tests.lab import trace_recordings
from tests.lab.conftest import Part
from tests.lab.drives import MIB, Nvme
from tests.lab.kernel import ROOT
from tests.thorough import THOROUGH, when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "fio", "blkparse", "mkfs.ext4"),
]

WORDS = (trace_recordings.EVERY,) if THOROUGH else ()
PART = Part("trace_recordings", (Nvme(trace_recordings.SERIAL, size=128 * MIB),), WORDS, limit_s=1800)
further = when_thorough("is one of nine recordings in an emulated PC")
QUIET = "0\n"  # nothing is traced, no blktrace runs, no folder is left


def read(said: Path, name: str) -> str:
    return (said / name).read_text()


@further
def test_debugfs_must_be_mounted(said: Path) -> None:
    assert read(said, "unmounted.code") == "3\n"
    assert "sudo mount -t debugfs debugfs /sys/kernel/debug" in read(said, "unmounted.err")


def test_every_read_of_dd_is_counted_and_the_log_gives_the_same_counts(said: Path) -> None:
    assert read(said, "reads.code") == "0\n", read(said, "reads.err")
    found = json.loads(read(said, "reads"))
    (row,) = found["commands"]
    assert (row["command"], row["count"], row["bytes"]) == ("read", 100, 100 * 65536)
    assert (row["sequential"], row["random"]) == (99, 1)
    assert found["queue_depth"] == [{"from": 1, "to": 1, "count": 100}]
    again = json.loads(run(ROOT / ".venv/bin/aligntool", "trace", said / "reads.txt", "--json"))
    assert again["commands"] == [row | {"alignment": []}]
    assert "dd exited with 0" in read(said, "reads.err") and read(said, "reads.left") == QUIET


def test_every_write_of_fio_is_counted_and_all_of_them_straddle(said: Path) -> None:
    assert read(said, "writes.code") == "0\n", read(said, "writes.err")
    (job,) = json.loads(read(said, "fio.json"))["jobs"]
    rows = {row["command"]: row for row in json.loads(read(said, "writes"))["commands"]}
    write = rows["write"]
    assert (write["count"], write["bytes"]) == (job["write"]["total_ios"], job["write"]["io_bytes"])
    (grid,) = write["alignment"]
    assert grid["off_grid"] == grid["straddling"] == write["count"]
    assert read(said, "writes.left") == QUIET


@further
def test_the_exit_code_is_that_of_the_command(said: Path) -> None:
    assert read(said, "failed.code") == "7\n"
    assert "sh exited with 7" in read(said, "failed.err") and (said / "failed.txt").stat().st_size
    assert read(said, "failed.left") == QUIET


@further
def test_a_disk_without_requests_is_not_an_error(said: Path) -> None:
    assert read(said, "idle.code") == "0\n", read(said, "idle.err")
    assert "received no requests" in read(said, "idle")


def test_an_interruption_ends_the_recording_and_the_command_and_keeps_the_log(said: Path) -> None:
    assert read(said, "stopped.code") == "130\n", read(said, "stopped.err")
    told = run(ROOT / ".venv/bin/aligntool", "trace", said / "stopped.txt", "--json")
    assert json.loads(told)["commands"][0]["count"] == 9
    assert read(said, "stopped.left") == QUIET
    assert read(said, "pid").strip() not in read(said, "stopped.alive")


def test_a_killed_recording_leaves_no_active_trace_in_the_kernel(said: Path) -> None:
    assert read(said, "killed.left").splitlines()[0] == "0"
    assert not any(line.isdecimal() for line in read(said, "killed.left").splitlines()[1:])


@further
def test_a_trace_of_another_program_is_not_disturbed(said: Path) -> None:
    assert read(said, "busy.code") == "3\n" and "is already being traced" in read(said, "busy.err")
    assert read(said, "busy.left") == "1\n" and not (said / "ran").exists()


@further
def test_a_log_on_the_traced_disk_is_reported(said: Path) -> None:
    assert read(said, "itself.code") == "0\n"
    assert "is written to the traced disk" in read(said, "itself.err")
