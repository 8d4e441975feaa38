"""Bad sectors, damaged journals and wrong disks, on the simulated disk."""

import errno
import itertools
import os
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from aligntool.change import KernelBehind
from aligntool.errors import JournalUnwritten, Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_contents import journal_contents
from aligntool.mover.move import realign, resume, rollback, status
from aligntool.steps import CloseJournal, JournalPlace, WriteJournal
from aligntool.units import Extent
from tests.mover.crowded_disks import JOURNAL, Crowd, make_crowd
from tests.mover.simulated_disk import SECTOR, PowerCut, SimulatedDisk, until_cut
from tests.mover.test_simulated_cuts import NoKernel, act, check_end, final, is_new, recover

pytestmark = pytest.mark.needs_tools("sfdisk")

COPY = 1 << 17


def place_of(crowd: Crowd) -> JournalPlace:
    return next(step.journal for step in crowd.plan.steps if isinstance(step, WriteJournal))


def half_way(crowd: Crowd, seed: int = 1) -> bytes:
    operations = act(crowd, crowd.platter, "realign").operations
    return act(crowd, crowd.platter, "realign", operations // 2).after_the_cut(random.Random(seed))


def run_until_stopped(crowd: Crowd, platter: bytes, how: str, bad: set[int]) -> tuple[bytes, str]:
    """Return the platter afterwards, and how it ended."""
    disk = SimulatedDisk(platter, bad=bad)
    context = MoveContext(disk, NoKernel())
    acts = {"resume": resume, "rollback": rollback}
    events = realign(crowd.plan, context, crowd.runs) if how == "realign" else acts[how](context)
    try:
        for _ in events:
            pass
    except (Refused, JournalUnwritten):
        return final(disk), "refused"
    except Stopped:
        return final(disk), "stopped"
    return final(disk), "done"


@pytest.mark.parametrize("seed", range(40))
def test_a_bad_sector_stops_the_move_and_after_a_repair_it_is_continued(seed: int) -> None:
    luck = random.Random(seed)
    crowd = make_crowd(4000 + seed, luck.choice(("gpt", "dos")))
    moving = [part for part in crowd.parts if part.moves]
    part = luck.choice(moving)
    extent = luck.choice((part.old, part.new, place_of(crowd).extent))
    bad = {luck.randrange(extent.start, extent.end, SECTOR)}
    platter, end = run_until_stopped(crowd, crowd.platter, "realign", bad)
    if end == "done":  # that sector was not needed
        check_end(crowd, platter, new=True)
        return
    if end == "refused":  # or the journal could not be written
        check_end(crowd, final(recover(crowd, platter, "resume")), new=False)
        return
    check_end(crowd, final(recover(crowd, platter, "resume")), new=True)
    check_end(crowd, final(recover(crowd, platter, "rollback")), new=False)


class _FullHost(SimulatedDisk):
    """A sparse image on a file system that becomes full."""

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if self.operations > 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(offset, data)


def test_a_full_file_system_below_an_image_is_not_reported_as_an_error_of_the_disk() -> None:
    crowd = make_crowd(4000, "gpt")
    with pytest.raises(Stopped, match="free some space where the image or the journal file is stored"):
        for _ in realign(crowd.plan, MoveContext(_FullHost(crowd.platter), NoKernel()), crowd.runs):
            pass


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_write_that_fails_while_the_journal_is_written_is_reported_as_a_change(seed: int, number: int) -> None:
    """It is a refusal, which states that nothing was written, only if nothing was."""
    crowd = make_crowd(4600 + seed, "gpt" if seed % 2 else "dos")
    place = place_of(crowd).extent
    first = next(count for count in range(1000) if is_parked_at(crowd, count))  # its last operation is that write
    for failing in range(first - 1):
        disk = FailingDisk(crowd.platter, failing, number)
        with pytest.raises(JournalUnwritten) as stop:
            list(realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs))
        assert "no partition was touched" in str(stop.value)
        left = final(disk)
        assert status(MoveContext(SimulatedDisk(left), NoKernel())).state == "old"
        assert left[: place.start] + left[place.end :] == crowd.platter[: place.start] + crowd.platter[place.end :]
        done = final(act(crowd, left, "realign"))
        check_end(crowd, done, new=True)


class FailingDisk(SimulatedDisk):
    """A disk of which one operation fails."""

    def __init__(self, platter: bytes, failing: int, number: int) -> None:
        super().__init__(platter)
        self._failing, self._number = failing, number

    def _draw(self) -> None:
        super()._draw()
        if self.operations - 1 == self._failing:
            raise OSError(self._number, os.strerror(self._number))


def is_parked_at(crowd: Crowd, count: int) -> bool:
    """Return whether something besides the journal has been written after that many operations."""
    place, log = place_of(crowd).extent, act(crowd, crowd.platter, "realign", count).log
    return any(entry and not place.start <= entry[0] < place.end for entry in log)


def only_targets(crowd: Crowd) -> list[int]:
    """Return sectors that are copied to and contain nothing before: neither a source nor an EBR."""
    part = next(part for part in crowd.parts if part.moves)
    taken = [other.old for other in crowd.parts]
    taken += [Extent(other.record_old, SECTOR) for other in crowd.parts if other.record_old is not None]
    return [part.new.start + at for run in part.runs for at in range(run.start, run.end, SECTOR)
            if not any(it.start <= part.new.start + at < it.end for it in taken)
            and any(crowd.platter[part.old.start + at : part.old.start + at + SECTOR])]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_a_target_that_cannot_be_written_does_not_prevent_a_rollback(seed: int) -> None:
    label = "gpt" if seed % 2 else "dos"
    crowd = next(it for number in range(1000) if only_targets(it := make_crowd(5000 + 40 * seed + number, label)))
    bad = {random.Random(seed).choice(only_targets(crowd))}
    platter, end = run_until_stopped(crowd, crowd.platter, "realign", bad)
    assert end == "stopped"
    back, end = run_until_stopped(crowd, platter, "rollback", bad)
    assert end == "done"
    check_end(crowd, back, new=False)


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("where", ["head", "records", "body", "all of it"])
def test_one_damaged_copy_of_the_journal_is_enough(copy: int, where: str) -> None:
    crowd = make_crowd(6000, "gpt")
    start = place_of(crowd).extent.start + copy * COPY
    offset, length = {"head": (0, 512), "records": (4096, 8192), "body": (12288, 512), "all of it": (0, COPY)}[where]
    platter = bytearray(half_way(crowd))
    platter[start + offset : start + offset + length] = b"\xff" * length
    if where in ("head", "body", "all of it"):
        told = status(MoveContext(SimulatedDisk(bytes(platter)), NoKernel()))
        assert any("damaged" in sentence for sentence in told.sentences)
    check_end(crowd, final(recover(crowd, bytes(platter), "resume")), new=True)
    check_end(crowd, final(recover(crowd, bytes(platter), "rollback")), new=False)


def test_with_both_copies_damaged_nothing_is_written() -> None:
    crowd = make_crowd(6001, "gpt")
    platter = bytearray(half_way(crowd))
    start = place_of(crowd).extent.start
    for copy in (0, 1):
        platter[start + copy * COPY + 12288] ^= 0xFF
    disk = SimulatedDisk(bytes(platter))
    with pytest.raises(Refused, match="no readable journal"):
        list(resume(MoveContext(disk, NoKernel())))
    assert disk.operations == 0


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_table_changed_meanwhile_by_another_program_is_refused(label: str) -> None:
    crowd = make_crowd(6002, label)
    platter = bytearray(half_way(crowd))
    if label == "gpt":  # as if another program had made a table of its own around the parked entries
        platter[SECTOR : 34 * SECTOR] = bytes(33 * SECTOR)
        platter[-33 * SECTOR :] = bytes(33 * SECTOR)
    platter[446 + 16 * 3 : 446 + 16 * 4] = bytes.fromhex("00000000830000000000020000000400")
    disk = SimulatedDisk(bytes(platter))
    with pytest.raises(Refused):
        list(resume(MoveContext(disk, NoKernel())))
    assert disk.operations == 0


def test_the_journal_of_another_disk_is_refused() -> None:
    """Its entries point to the journal of another move."""
    crowd, other = make_crowd(6003, "gpt"), make_crowd(6005, "gpt")
    platter, wrong = half_way(crowd), half_way(other)
    place, its = place_of(crowd).extent, place_of(other).extent
    mixed = platter[: place.start] + wrong[its.start : its.start + JOURNAL] + platter[place.start + JOURNAL :]
    disk = SimulatedDisk(mixed)
    with pytest.raises(Refused):
        list(resume(MoveContext(disk, NoKernel())))
    assert disk.operations == 0


def numbered_crowd(number: int, label: str) -> Crowd:
    """Return a crowd in which a marker has room for the number of a journal in a file."""
    for candidate in itertools.count(number, 8):
        crowd = make_crowd(candidate, label)
        disk = SimulatedDisk(crowd.platter)
        with suppress(Refused):
            journal_contents(elsewhere(crowd).plan, disk, crowd.runs, {}, None, bytes(16))
            return crowd
    raise AssertionError


def elsewhere(crowd: Crowd) -> Crowd:
    """Return the same plan with its journal in a file."""
    place = replace(place_of(crowd), extent=Extent(0, JOURNAL), file="journal")
    steps = tuple(replace(step, journal=place) if isinstance(step, WriteJournal | CloseJournal) else step
                  for step in crowd.plan.steps)  # fmt: skip
    return replace(crowd, plan=replace(crowd.plan, steps=steps))


@pytest.mark.parametrize("seed", range(8))
def test_a_move_with_its_journal_in_a_file_is_recovered(seed: int) -> None:
    crowd = elsewhere(numbered_crowd(7000 + seed, "gpt" if seed % 2 else "dos"))
    luck = random.Random(seed)
    disk, file = SimulatedDisk(crowd.platter), SimulatedDisk(bytes(JOURNAL))
    list(realign(crowd.plan, MoveContext(disk, NoKernel(), file), crowd.runs))
    cut_at = luck.randrange(5, disk.operations)
    disk, file = SimulatedDisk(crowd.platter, cut=cut_at), SimulatedDisk(bytes(JOURNAL))
    until_cut(realign(crowd.plan, MoveContext(disk, NoKernel(), file), crowd.runs))
    cut, journal = disk.after_the_cut(luck), file.after_the_cut(luck)
    if status(MoveContext(SimulatedDisk(cut), NoKernel(), SimulatedDisk(journal))).state == "in-flight":
        disk, file = SimulatedDisk(cut), SimulatedDisk(journal)
        for _ in resume(MoveContext(disk, NoKernel(), file)):
            pass
        cut = final(disk)
    check_end(crowd, cut, new=is_new(crowd, cut))


def test_without_the_journal_file_the_refusal_requests_it() -> None:
    crowd = elsewhere(numbered_crowd(7001, "gpt"))
    disk, file = SimulatedDisk(crowd.platter, cut=8), SimulatedDisk(bytes(JOURNAL))
    with pytest.raises(PowerCut):
        list(realign(crowd.plan, MoveContext(disk, NoKernel(), file), crowd.runs))
    with pytest.raises(Refused) as told:
        list(resume(MoveContext(SimulatedDisk(final(disk)), NoKernel())))
    assert "--journal FILE" in told.value.hint


def test_a_kernel_that_is_not_updated_is_reported_separately_from_an_unfinished_disk() -> None:
    class Deaf(NoKernel):
        def add_absent(self, partitions: tuple[tuple[int, Extent], ...]) -> None:
            raise OSError(16, "Device or resource busy")

        def show(self, partitions: tuple[tuple[int, Extent], ...]) -> None:
            raise OSError(16, "Device or resource busy")

    crowd = make_crowd(6004, "gpt")
    disk = SimulatedDisk(crowd.platter)
    events = list(realign(crowd.plan, MoveContext(disk, Deaf()), crowd.runs))
    assert any(isinstance(event, KernelBehind) for event in events)
    check_end(crowd, final(disk), new=True)
