"""A disk that stops answering in the middle of a move: the move waits and reports it, can be interrupted, and
is finished later; until the disk has answered the open request, no other move begins.

The disk is a loop device over a file served by the test, which leaves requests unanswered on demand; verification reads
the file itself. A process that waits for it cannot be killed meanwhile.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Timer

import pytest

from aligntool.errors import ExitCode, Refused
from aligntool.linux.lock import lock_disk
from aligntool.linux.sysfs import live_paths
from aligntool.mover.journal_format import SLOT
from aligntool.units import KIB, MIB
from tests.mover import fileset
from tests.mover.command_line import REFUSED, STOPPED, aligntool, resume, rollback
from tests.mover.conftest import MakeDisk
from tests.mover.disks import Row
from tests.mover.filesystems import FILESYSTEMS, SECTOR
from tests.mover.invariants import Journey, check_signatures, copy, journey, whole
from tests.mover.loop_mounts import looped
from tests.mover.media import Medium, medium, needs_media
from tests.mover.test_bad_media import find
from tests.run_aligntool import program

pytestmark = [
    pytest.mark.needs_root,
    needs_media,
    pytest.mark.needs_tools("sfdisk", "blkid", "debugfs", "e2fsck", "losetup", "qemu-storage-daemon"),
]
EXT2 = next(kind for kind in FILESYSTEMS if kind.name == "ext2")
WHERE = ("read", "write", "record", "flush")
PATIENCE_S = 300


def stall(where: str, trip: Journey) -> tuple[str, int, int]:
    old, new = trip.old[1], trip.new[1]
    content = find(trip.disk.image, old, fileset.fragmented()[200 * KIB :][:2000])
    if where in ("read", "write"):
        return f"stall-{where}", content + new.start - old.start, SECTOR
    if where == "flush":
        return "stall-flush", 0, 1
    steps = json.loads(aligntool("plan", "realign", "--json", trip.disk.image).partition("\n")[2])["plan"]["steps"]
    journal = next(step["journal"] for step in steps if step["step"] == "WriteJournal")
    return "stall-write", journal["extent"]["start"], 3 * SLOT  # docs/crash-safety.md: the head, and two records


@contextmanager
def stalling(where: str, trip: Journey, folder: Path) -> Iterator[tuple[Medium, Path]]:
    """Return the disk, and the environment for the program."""
    with ExitStack() as stack:
        disk = stack.enter_context(medium(copy(trip.disk.image, folder / f"{where}.img")))
        path = disk.disk if where == "read" else stack.enter_context(looped(disk.disk))
        stack.callback(disk.fail)
        yield disk, path


def gone(pid: str) -> bool:
    """Return whether no thread of a process is left. An orphan is not reaped here, and then stays a zombie."""
    with suppress(OSError):
        states = [file.read_text() for file in live_paths(Path(f"/proc/{pid}/task"), "*/status")]
        return all("\nState:\tZ" in state for state in states)
    return True


def interrupted(where: str, trip: Journey, disk: Medium, path: Path) -> str:
    """Move until the disk stalls, and interrupt that. Return which process is left."""
    words = program("realign", "--yes", "--no-lease", "--json", "--rate", "8MiB", path)
    fault = stall(where, trip)
    disk.fail(*([fault] if where == "write" else ()))  # other requests would stall before the copy
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        alarm = Timer(PATIENCE_S, process.kill)
        alarm.start()
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step-begun" and event["step"] == "CopyContent":
                disk.fail(fault)
            if event["event"] == "waiting":
                break
        assert event["event"] == "waiting", process.communicate()[1]
        assert (event["disk"], event["request"]) == (str(path), "write" if where == "record" else where)
        assert 5 <= event["seconds"] < 60 and f"for {event['seconds']} s. The move is waiting" in event["text"]
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        alarm.cancel()
        assert time.monotonic() - began < 30, "it was to end although the disk does not answer"
    assert process.returncode == STOPPED, said
    left = re.search(rf"{path} has not answered a read or write: process (\d+) waits .* keeps the disk open", said)
    assert left, said
    assert re.search(r"interrupted in step .*; the journal is kept", said)
    assert f"aligntool resume {path}" in said and f"aligntool rollback {path}" in said
    return left[1]


def run_case(where: str, trip: Journey, folder: Path) -> None:
    with stalling(where, trip, folder) as (disk, path):
        pid = interrupted(where, trip, disk, path)
        before = disk.log.read_bytes()
        assert not gone(pid)
        with pytest.raises(Refused, match=f"process {pid} was interrupted, but still waits"), lock_disk(str(path)):
            pass
        said = resume(path, "--no-lease", code=REFUSED)
        # It is read before it is locked; the process that is left may still have a lease on an image.
        assert "did not answer within" in said or "is being changed by another program" in said, said
        assert disk.log.read_bytes() == before
        disk.fail()
        deadline = time.monotonic() + PATIENCE_S
        while not gone(pid):
            assert time.monotonic() < deadline, "it was to end as soon as the disk answers"
            time.sleep(0.05)
        check_signatures(trip, disk.image)
        back = where in ("write", "flush")
        (rollback if back else resume)(path, "--no-lease")
    assert whole(trip, disk.image) == ("old" if back else "new")


def until_closed(disk: Medium, path: Path) -> None:
    """Let the disk answer again, and wait until the process that was stuck on it has ended."""
    disk.fail()
    deadline = time.monotonic() + PATIENCE_S
    while str(path) in opened():
        assert time.monotonic() < deadline, "who was killed was to end as soon as the disk answers"
        time.sleep(0.2)


def opened() -> Iterator[str]:
    """Return the files that the processes of this machine have open."""
    for link in live_paths(Path("/proc"), "[0-9]*/fd/*"):
        with suppress(OSError):
            yield str(link.readlink())


def stall_journal_reads(trip: Journey, folder: Path) -> None:
    """Read the table, then stall the reads of places where a journal may be."""
    with medium(copy(trip.disk.image, folder / "end.img")) as disk:
        disk.fail(("stall-read", trip.disk.image.stat().st_size - 5 * MIB, 4 * MIB))
        try:
            for words in (("status",), ("resume", "--yes")):
                assert f"{disk.disk} did not answer within 12 s" in aligntool(*words, disk.disk, code=REFUSED)
        finally:
            until_closed(disk, disk.disk)


def layout_interrupted(trip: Journey, folder: Path) -> None:
    with stalling("table", trip, folder) as (disk, path):
        disk.fail(("stall-write", 0, 1))
        words = program("layout", path, "--part", "rest:linux", "--wipe", path, "--yes", "--json")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            alarm = Timer(PATIENCE_S, process.kill)
            alarm.start()
            event = next(event for event in map(json.loads, process.stdout) if event["event"] == "waiting")
            assert (event["disk"], event["request"]) == (str(path), "any") and event["seconds"] >= 5
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            said = process.communicate()[1]
            alarm.cancel()
        took = time.monotonic() - began
        until_closed(disk, path)
        assert took < 10 and process.returncode == STOPPED, said
        assert "in step 1 of 1; the new table may be incomplete" in said and f"layout {path} --wipe {path}" in said


def measurement_interrupted(
    name: str, options: str, begins: str, silence: str, most_s: int, trip: Journey, folder: Path
) -> None:
    """Interrupt a measurement. `silence`: the expected message after the path. `most_s`: until it has ended."""
    with stalling(name.replace(" ", "-"), trip, folder) as (disk, path):
        words = program(*name.split(), path, *options.split())
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            alarm = Timer(PATIENCE_S, process.kill)
            alarm.start()
            assert any(begins in line for line in process.stderr), "it was to begin"
            disk.fail(("stall-read", 0, trip.disk.image.stat().st_size))
            silent = next(line for line in process.stderr if f"{path} {silence}" in line)
            assert "Ctrl-C does not wait" in silent
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            alarm.cancel()
        took = time.monotonic() - began
        until_closed(disk, path)
        assert took < most_s and process.returncode == ExitCode.INTERRUPTED and "Traceback" not in said, said


probe_interrupted = partial(
    measurement_interrupted, "probe", f"--limit {PATIENCE_S} --largest 64KiB --most 1TiB", "timing for",
    "has not answered for", 5,
)  # fmt: skip
bench_interrupted = partial(
    measurement_interrupted, "bench run", "--profile boot --runtime 2 --repeats 1", "1 of 1, ", "may not respond", 20
)


def test_a_disk_that_stalls_in_the_middle_of_a_move_blocks_only_itself(make: MakeDisk, tmp_path: Path) -> None:
    trip = journey(make("dos", Row(EXT2, 63), free=6 * 2048))
    with ThreadPoolExecutor() as pool:
        stories = {where: pool.submit(run_case, where, trip, tmp_path) for where in WHERE}
        others = (stall_journal_reads, layout_interrupted, probe_interrupted, bench_interrupted)
        stories |= {str(other): pool.submit(other, trip, tmp_path) for other in others}
    for name, story in stories.items():
        assert story.exception() is None, (name, story.result())


def test_a_loop_device_on_a_server_that_does_not_answer_blocks_no_other_disk(make: MakeDisk, tmp_path: Path) -> None:
    """The kernel queries the server of a loop device's file when a program reads which file that is."""
    trip = journey(make("dos", Row(EXT2, 63)))
    image = copy(trip.disk.image, tmp_path / "other.img")
    shown, below = tmp_path / "shown", tmp_path / "below"
    shown.touch()
    below.write_bytes(bytes(MIB))
    export = f"type=fuse,id=shown,node-name=below,mountpoint={shown},writable=on"
    words = ("--blockdev", f"driver=file,node-name=below,filename={below}", "--export", export)
    with subprocess.Popen(["qemu-storage-daemon", *words]) as server:
        try:
            while shown.stat().st_size != MIB:
                time.sleep(0.05)
            with looped(shown), looped(image) as device:
                server.send_signal(signal.SIGSTOP)
                time.sleep(2)  # the kernel caches the attributes of the file for a second
                try:
                    aligntool("realign", device, "--yes")
                finally:
                    server.send_signal(signal.SIGCONT)
                assert whole(trip, image) == "new"
        finally:
            server.terminate()
