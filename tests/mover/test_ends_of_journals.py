"""The last writes of a change: its new table before the record of it, and its journal, which is zeroed.

Another program may act between them, and a write may fail once.
"""

import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from aligntool.change import Event, RealignGoal, Said, StepBegun
from aligntool.errors import NothingInFlight, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Journal
from aligntool.mover.journal_search import journal_in_flight
from aligntool.mover.move import realign, resume, rollback, status
from aligntool.mover.table import TableState, table_state
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.steps import CloseJournal, RewriteTable
from aligntool.units import GIB, MIB, Extent
from tests.cli.old_disks import make_old_disk
from tests.cli.test_restore_table import kill_while_copying
from tests.conftest import digest, run
from tests.mover.crowded_disks import Crowd, Part, make_crowd
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel, act, final, whole_at
from tests.mover.test_simulated_media import place_of
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("sfdisk", "partx", "mke2fs")

Way = Callable[[MoveContext], Iterator[Event]]


def last_of(crowd: Crowd) -> Part:
    return max(crowd.parts, key=lambda part: part.new.start)


def before_the_record(crowd: Crowd) -> bytes:
    """Return the disk with the new table, of which the journal does not have a record yet."""
    disk = SimulatedDisk(crowd.platter)
    begins: dict[int, int] = {}
    for event in realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs):
        if isinstance(event, StepBegun):
            begins[event.index] = disk.operations
    rewriting, closing = (crowd.plan.index_of(kind) for kind in (RewriteTable, CloseJournal))
    for cut in range(begins[rewriting], begins[closing]):
        platter = final(disk.before(cut))
        seen = SimulatedDisk(platter)
        journal = Journal.open(seen, place_of(crowd).extent.start)
        shown = table_state(seen, journal.contents.images)
        if journal.position.step == rewriting and shown is TableState.AFTER:
            return platter
    raise AssertionError


@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_partition_that_grew_before_the_record_of_the_table_stays(label: str, way: Way, tmp_path: Path) -> None:
    """growpart, at the first start after the cut, takes the free space behind the last partition: the journal's."""
    crowd = next(crowd for seed in range(9400, 9440) if last_of(crowd := make_crowd(seed, label)).number <= 4)
    image = tmp_path / "disk.img"
    image.write_bytes(before_the_record(crowd))
    last = last_of(crowd)
    run("sfdisk", "-q", "--no-reread", "-N", str(last.number), image, stdin=", +\n")
    grown = image.read_bytes()
    listed = Extent(last.new.start, int(run("partx", "-go", "SECTORS", "-n", str(last.number), image)) * SECTOR)
    assert listed.length > last.new.length
    found = status(MoveContext(SimulatedDisk(grown), NoKernel()))
    assert (found.state, found.is_marked) == ("old", True), "resume closes the journal, and status says so"
    disk = SimulatedDisk(grown)
    with pytest.raises(NothingInFlight) if way is rollback else nullcontext():
        list(way(MoveContext(disk, NoKernel())))
    assert journal_in_flight(SimulatedDisk(final(disk))) is None, "another change can begin"
    assert not status(MoveContext(SimulatedDisk(final(disk)), NoKernel())).is_marked
    for part in crowd.parts:
        assert whole_at(crowd, final(disk), part, part.new.start)
    changed = [at for at in range(0, len(grown), SECTOR) if final(disk)[at : at + SECTOR] != grown[at : at + SECTOR]]
    assert all(place_of(crowd).extent.contains(Extent(at, SECTOR)) for at in changed)


def disk_with_a_gap(folder: Path, label: str) -> Path:
    disk = make_old_disk(folder / "disk.img", size=GIB, length=300 * MIB)
    second = f"start={400 * MIB // SECTOR}, size={600 * MIB // SECTOR}"
    if label == "dos":
        run("sfdisk", "-q", "--append", disk, stdin=second)
    else:
        first = f"first-lba: 34\nstart=63, size={300 * MIB // SECTOR}"
        run("sfdisk", "-q", "--wipe", "never", disk, stdin=f"label: gpt\n{first}\n{second}\n")
    return disk


def disk_of_3_tib(folder: Path, label: str) -> Path:
    """The room of an MBR ends at 2 TiB, far from the end of the disk and from its partition."""
    disk = make_old_disk(folder / "disk.img", size=3072 * GIB, length=300 * MIB)
    if label == "gpt":
        first = f"first-lba: 34\nlast-lba: {(1 << 32) - 1}\nstart=63, size={300 * MIB // SECTOR}"
        run("sfdisk", "-q", "--wipe", "never", disk, stdin=f"label: gpt\n{first}\n")
    return disk


def disk_with_unlisted_data(folder: Path, label: str) -> Path:
    """The last free run with room for a journal ends before data that no table lists."""
    disk = make_old_disk(folder / "disk.img", size=3 * GIB, length=300 * MIB)
    if label == "gpt":
        first = f"first-lba: 34\nstart=63, size={300 * MIB // SECTOR}"
        run("sfdisk", "-q", "--wipe", "never", disk, stdin=f"label: gpt\n{first}\n")
    with disk.open("r+b") as file:
        for at in range(2 * GIB, 3 * GIB - 8 * MIB, 8 * MIB):
            file.seek(at)
            file.write(os.urandom(4096))
    return disk


@pytest.mark.parametrize("label", ["dos", "gpt"])
@pytest.mark.parametrize("make", [disk_with_a_gap, disk_of_3_tib, disk_with_unlisted_data])
def test_a_journal_is_found_after_old_first_bytes_were_put_back(
    make: Callable[[Path, str], Path], label: str, tmp_path: Path
) -> None:
    """No entry and no marker leads to it then."""
    disk = make(tmp_path, label)
    with disk.open("rb") as file:
        head = file.read(MIB)
        file.seek(-MIB, os.SEEK_END)
        tail = file.read()
    kill_while_copying(disk)
    with disk.open("r+b") as file:
        file.write(head)
        file.seek(-MIB, os.SEEK_END)
        file.write(tail)
    assert json.loads(run_aligntool("status", "--json", disk).stdout)["state"] == "in-flight"
    before = digest(disk)
    refused = run_aligntool("realign", "--yes", disk, code=3)
    assert "in flight" in refused.stderr and digest(disk) == before
    for way in ("resume", "rollback"):
        stopped = run_aligntool(way, "--yes", disk, code=4)
        assert "another program has written" in " ".join(stopped.stderr.split())
        assert digest(disk) == before


def test_a_journal_lies_where_sector_0_alone_leads(tmp_path: Path) -> None:
    """In flight, content is copied over EBRs: what only they list leads nowhere once the old sector 0 is put back."""
    disk = tmp_path / "disk.img"
    with disk.open("wb") as file:
        file.truncate(1600 * MIB)
    logicals = "start=126, size=40960\nstart=41149, size=40960\nstart=819263, size=2457537\n"
    run("sfdisk", "-q", disk, stdin=f"label: dos\nstart=63, size=3276737, type=5\n{logicals}")
    listed = json.loads(run("sfdisk", "--json", disk))["partitiontable"]["partitions"]
    assert len(listed) == 4
    (container,) = (one for one in listed if one["type"] == "5")
    edges = [container["start"] * SECTOR, (container["start"] + container["size"]) * SECTOR]
    near = [Extent(0, 64 * MIB), Extent(1344 * MIB, 256 * MIB)]
    near += [Extent(max(edge - 64 * MIB, 0), 64 * MIB) for edge in edges]
    journal = find_plan(str(disk), Request(RealignGoal(), sector_size=SECTOR)).plan.journal.extent
    assert any(place.contains(journal) for place in near)


def test_a_journal_between_logical_partitions_is_found_without_their_chain(tmp_path: Path) -> None:
    """The only room for it is between two that only EBRs list. One EBR is overwritten, as in flight it may be."""
    disk = tmp_path / "disk.img"
    with disk.open("wb") as file:
        file.truncate(2000 * MIB)
    size = 300 * MIB // SECTOR
    starts = 126, 126 + size + 63, 126 + 2 * size + 40 * MIB // SECTOR
    lengths = size, size, 2000 * MIB // SECTOR - starts[2]
    logicals = "".join(f"start={start}, size={length}\n" for start, length in zip(starts, lengths, strict=True))
    run("sfdisk", "-q", disk, stdin=f"label: dos\nstart=63, type=5\n{logicals}")
    for start in starts:
        run("mke2fs", "-q", "-F", "-t", "ext2", "-E", f"offset={start * SECTOR}", disk, f"{size // 2}")
    with disk.open("rb") as file:
        head = file.read(MIB)
    kill_while_copying(disk)
    with disk.open("r+b") as file:
        file.write(head)
        file.seek((starts[1] - 1) * SECTOR)  # sfdisk puts its EBR there
        file.write(os.urandom(SECTOR))
    assert json.loads(run_aligntool("status", "--json", disk).stdout)["state"] == "in-flight"


class FailingOnce(SimulatedDisk):
    """Write number `fails`, and the next `times` - 1 ones at its place, end with an I/O error."""

    def __init__(self, platter: bytes, fails: int, *, times: int = 1) -> None:
        super().__init__(platter)
        self.writes = 0
        self._fails = fails
        self._times = times
        self._at: int | None = None

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self.writes += 1
        if self.writes == self._fails:
            self._at = offset
        if offset == self._at and self._times:
            self._times -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().write(offset, data)


@pytest.mark.parametrize("times", [1, 1000])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_what_a_failing_write_leaves_of_the_journal_is_zeroed_or_named(label: str, back: bool, times: int) -> None:
    crowd = make_crowd(9401, label)
    place = place_of(crowd).extent
    begin = crowd.platter if not back else act(crowd, crowd.platter, "realign", 60).after_the_cut(random.Random(1))
    whole = FailingOnce(begin, 0)
    said: set[bool] = set()
    list(rollback(MoveContext(whole, NoKernel())) if back else move(crowd, whole))
    for fails in range(whole.writes - 12, whole.writes + 1):
        disk = FailingOnce(begin, fails, times=times)
        try:
            events = list(rollback(MoveContext(disk, NoKernel())) if back else move(crowd, disk))
        except Exception:
            continue
        left = final(disk)[place.start : place.end].strip(b"\0")
        words = [event.text for event in events if isinstance(event, Said)]
        said.add(bool(left))
        assert bool(left) is any("could not be zeroed" in text for text in words), (fails, words)
        assert times > 1 or not left
    assert said


def move(crowd: Crowd, disk: SimulatedDisk) -> Iterator[Event]:
    return realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs)


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_rollback_of_a_complete_move_names_what_it_could_not_zero(label: str) -> None:
    crowd = make_crowd(9401, label)
    place = place_of(crowd).extent
    disk = SimulatedDisk(crowd.platter)
    for event in move(crowd, disk):
        if isinstance(event, StepBegun) and event.index == crowd.plan.index_of(CloseJournal):
            break
    complete = final(act(crowd, crowd.platter, "realign", disk.operations))
    whole = FailingOnce(complete, 0)
    with pytest.raises(NothingInFlight, match="its journal is closed"):
        list(rollback(MoveContext(whole, NoKernel())))
    assert not final(whole)[place.start : place.end].strip(b"\0")
    named = 0
    for fails in range(1, whole.writes + 1):
        disk = FailingOnce(complete, fails, times=1000)
        with pytest.raises((NothingInFlight, Stopped)) as ended:
            list(rollback(MoveContext(disk, NoKernel())))
        if ended.type is NothingInFlight:
            left = final(disk)[place.start : place.end].strip(b"\0")
            named += bool(left)
            assert bool(left) is ("could not be zeroed" in str(ended.value)), fails
    assert named
