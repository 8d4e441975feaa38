"""SIGKILL at random moments of a move and of its resume, on a real block device. Nothing is lost.

The moments are spread evenly over the written bytes: the process is killed when the device has received that many.
`ALIGNTOOL_KILLS=300` makes 300 of them; `ALIGNTOOL_SEED` repeats a run, and every failure prints its own.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import run
from tests.mover.command_line import DONE, STOPPED, aligntool, begin, kill
from tests.mover.conftest import MakeDisk
from tests.mover.containers import CONTAINERS
from tests.mover.disks import Disk, Row
from tests.mover.filesystems import FILESYSTEMS, Kind
from tests.mover.invariants import Journey, arrived, check_signatures, copy, recover_and_check, trial
from tests.thorough import SEED, THOROUGH

Loop = Callable[..., Path]
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "mkfs.ext4", "debugfs", "e2fsck"),
    pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel", "mkswap", "swaplabel", "mdadm"),
]

KILLS = int(os.environ.get("ALIGNTOOL_KILLS") or (300 if THOROUGH else 3))
NAMED: dict[str, Kind] = {kind.name: kind for kind in (*FILESYSTEMS, *CONTAINERS)}


def packed(make: MakeDisk, label: str, start: int, *names: str, logical: int = 99) -> Disk:
    """Return adjacent partitions, the first one at `start`; from the index `logical` on they are logical."""
    rows: list[Row] = []
    for index, name in enumerate(names):
        at = rows[-1].end if rows else start
        gap = 0 if index < logical else 63 + (2048 if index == logical else 0)
        rows.append(Row(NAMED[name], at + gap, logical=index >= logical))
    return make(label, *rows, free=12 * 2048, name=f"{label} {start} {logical}.img")


@pytest.fixture
def disks(make: MakeDisk) -> list[Disk]:
    return [
        packed(make, "dos", 63, "ext4"),
        packed(make, "gpt", 34, "fat16", "md 1.0", "swap"),
        packed(make, "gpt", 2049, "ext2"),
        packed(make, "dos", 63, "fat12", "ext2", "swap", logical=1),
    ]


def written(device: Path) -> int:
    """Return the sectors written to the device, by anything attached to it: Documentation/block/stat.rst, field 7."""
    return int(Path("/sys/block", device.name, "stat").read_text().split()[6])


def killed(device: Path, limit: int, *words: str, ends: tuple[int, ...] = (DONE,)) -> bool:
    """Kill the program once the device has received `limit` more sectors; return whether it was still running. `ends`:
    the exit codes with which it may have ended before. A rollback may also find the move complete.
    """
    first = written(device)
    with tempfile.TemporaryFile() as errors:
        process = begin(*words, errors=errors)
        try:
            while process.poll() is None and written(device) - first < limit:
                time.sleep(0.0002)
        finally:
            code = kill(process)
        settle(device)
        errors.seek(0)
        said = errors.read().decode()
        is_complete = code == STOPPED and words[0] == "rollback" and "the move is complete and cannot be" in said
        assert is_complete or code in {*ends, -9}, f"{words}: exit {code}\n{said}"
    return code == -9


def settle(device: Path) -> None:
    """Flush the page cache, which holds what the killed program wrote; a power cut is not simulated here."""
    descriptor = os.open(device, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def whole_run(disk: Disk, loop: Loop, *options: str) -> tuple[Journey, int]:
    """Return the result of an undisturbed move, and how many sectors it writes."""
    device = loop(copy(disk.image, trial(disk)))
    first = written(device)
    assert not killed(device, 1 << 40, "realign", str(device), "--yes", "--not-suspended", *options)
    return arrived(disk, *options), written(device) - first


def run_case(trip: Journey, device: Path, image: Path, total: int, chance: random.Random) -> str:
    """Kill, check, kill the resume or the rollback too, and finish."""
    story = []
    words: tuple[str, ...] = ("realign", str(device), "--yes", "--not-suspended", *trip.options)
    for _ in range(chance.choice((1, 1, 2, 3))):
        cut = killed(device, chance.randrange(0, total), *words)
        story.append(f"{words[0]} {'cut' if cut else 'done'}")
        check_signatures(trip, image)
        if not cut or nothing_in_flight(device, *trip.options):
            break
        words = (chance.choice(("resume", "rollback")), str(device), "--yes", *trip.options)
    back = chance.random() < 0.3
    story.append(recover_and_check(trip, image, device, *trip.options, back=back))
    return ", ".join(story)


def nothing_in_flight(device: Path, *options: str) -> bool:
    """Check that nothing is in flight, not yet or not any more."""
    return '"in-flight"' not in aligntool("status", device, *options, "--json", code=None)


def test_a_kill_at_any_moment_loses_nothing(disks: list[Disk], tmp_path: Path, loop: Loop) -> None:
    chance, told = random.Random(SEED), []
    whole_runs = [whole_run(disk, loop) for disk in disks]
    for number in range(KILLS):
        trip, total = whole_runs[number % len(disks)]
        image = copy(trip.disk.image, tmp_path / f"killed {number}.img")
        try:
            told.append(run_case(trip, loop(image), image, total, chance))
        except BaseException as error:
            error.add_note(f"ALIGNTOOL_SEED={SEED}, story {number} of {KILLS}; told so far: {told}")
            raise
        image.unlink()
    print(f"seed {SEED}:", *told, sep="\n")
    assert sum("cut" in story for story in told) >= KILLS // 2, told


@pytest.mark.on_disk
def test_a_kill_with_the_journal_on_another_disk_loses_nothing(make: MakeDisk, tmp_path: Path, loop: Loop) -> None:
    """There is room for the move and none for a journal."""
    folder = tmp_path / "another disk"
    folder.mkdir()
    journal = ("--journal", str(folder / "journal"))
    disk = make("dos", Row(NAMED["fat12"], 63), free=2048 - 63)
    if run("stat", "-f", "-c", "%T", folder).strip() == "tmpfs":
        pytest.skip("temporary files lie in memory here, where no journal may lie")
    trip, total = whole_run(disk, loop, *journal)
    chance = random.Random(SEED)
    for number in range(max(2, KILLS // 8)):
        image = copy(trip.disk.image, tmp_path / f"killed {number}.img")
        try:
            run_case(trip, loop(image), image, total, chance)
        except BaseException as error:
            error.add_note(f"ALIGNTOOL_SEED={SEED}, story {number}")
            raise
        (folder / "journal").unlink(missing_ok=True)
