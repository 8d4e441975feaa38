"""The copier alone, on sparse images: cut before every operation, resumed from the record, forwards and backwards."""

import random

import pytest

from aligntool.mover.journal_format import Position
from aligntool.mover.schedule import Schedule
from aligntool.mover.steps import Places, copy_batches
from aligntool.steps import CopyStrips
from aligntool.units import Extent
from tests.mover.simulated_disk import SECTOR, PowerCut, SimulatedDisk
from tests.thorough import sample

ROOM = 60 * SECTOR  # on both sides of the partition
STASH = 64 * SECTOR


class Case:
    """A sparse partition of runs, and its target."""

    def __init__(self, seed: int) -> None:
        luck = random.Random(seed)
        runs, at = [], 0
        for _ in range(luck.randint(1, 3)):
            at += luck.randint(0, 6)
            length = luck.randint(4, 24)
            runs.append(Extent(at * SECTOR, length * SECTOR))
            at += length
        distance = luck.randint(1, 12) * SECTOR
        window = luck.randint(1, distance // SECTOR) * SECTOR
        lanes = CopyStrips(window, luck.randint(1, 12) * SECTOR, 200 * SECTOR, luck.choice((0, STASH)))
        self.schedule = Schedule(tuple(runs), distance * luck.choice((1, -1)), lanes)
        self.platter = bytearray(2 * ROOM + at * SECTOR + STASH)
        self.old = ROOM
        self.new = ROOM + self.schedule.distance
        at = 0
        while at < runs[-1].end:  # data and holes, each some sectors long
            length = luck.randint(1, 8) * SECTOR
            if luck.random() < 0.5:
                end = min(at + length, runs[-1].end)
                self.platter[ROOM + at : ROOM + end] = luck.randbytes(end - at)
            at += length

    def content(self, platter: bytes | bytearray, start: int) -> list[bytes]:
        return [bytes(platter[start + run.start : start + run.end]) for run in self.schedule.runs]

    def run(
        self, platter: bytes, done: int, luck: random.Random, cut: int | None, *, back: bool
    ) -> tuple[bytes, int, int]:
        """Return the platter, how many batches are recorded as done, and how many operations it took."""
        disk = SimulatedDisk(platter, cut=cut)
        recorded = [done]

        def record(position: Position) -> None:
            disk.flush()
            recorded.append(position.batch)

        places = Places(disk, self.old, self.new, disk, len(self.platter) - STASH)
        batches = list(self.schedule.batches())
        if back:
            work = ((Position(0, number), batch) for number, batch in self.schedule.backwards(done))
        else:
            work = ((Position(0, number + 1), batch) for number, batch in enumerate(batches) if number >= done)
        try:
            for _ in copy_batches(places, work, record, back=back):
                pass
        except PowerCut:
            return disk.after_the_cut(luck), recorded[-1], disk.operations
        return disk.after_the_cut(luck, torn=False), recorded[-1], disk.operations


@sample(20)
@pytest.mark.parametrize("seed", range(40))
def test_a_copy_can_be_continued_or_undone_from_every_record(seed: int) -> None:
    luck = random.Random(seed)
    case = Case(seed)
    before = case.content(case.platter, case.old)
    whole, done, operations = case.run(bytes(case.platter), 0, luck, None, back=False)
    assert case.content(whole, case.new) == before
    for cut in range(operations):
        platter, done, _ = case.run(bytes(case.platter), 0, luck, cut, back=False)
        forth, _, _ = case.run(platter, done, luck, None, back=False)
        assert case.content(forth, case.new) == before, f"cut {cut}, forwards"
        back, _, _ = case.run(platter, done, luck, None, back=True)
        assert case.content(back, case.old) == before, f"cut {cut}, back"


def test_holes_of_the_source_are_not_written() -> None:
    """Holes of the source are not written."""
    schedule = Schedule((Extent(0, 40 * SECTOR),), 10 * SECTOR, CopyStrips(10 * SECTOR, 1 << 20, 1 << 20, 0))
    disk = SimulatedDisk(bytes(100 * SECTOR))
    work = ((Position(0, number), batch) for number, batch in enumerate(schedule.batches(), 1))
    recorded: list[Position] = []
    batches = list(copy_batches(Places(disk, 0, 10 * SECTOR, disk, 0), work, recorded.append))
    assert len(batches) == 4
    assert disk.operations == 0
    assert recorded == [Position(0, 4)]
