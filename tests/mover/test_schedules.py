"""The rule of every schedule, on bytes in memory: a batch may be torn and repeated, and everything can be undone."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.mover.schedule import Batch, Schedule
from aligntool.steps import CopyStrips
from aligntool.units import Extent
from tests.thorough import examples

SECTOR = 512


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, int]:
    """Draw runs of sectors, and the length of the partition."""
    runs: list[Extent] = []
    at = draw(st.integers(0, 20))
    for _ in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 60))
        runs.append(Extent(at * SECTOR, length * SECTOR))
        at += length + draw(st.integers(1, 40))
    distance = draw(st.integers(1, 40)) * SECTOR
    staged = draw(st.booleans())
    stash = draw(st.integers(1 if staged else 0, 100)) * SECTOR
    window = draw(st.integers(1, 60)) * SECTOR if staged else draw(st.integers(1, distance // SECTOR)) * SECTOR
    lanes = CopyStrips(window, draw(st.integers(1, 100)) * SECTOR, draw(st.integers(1, 200)) * SECTOR, stash, staged)
    return Schedule(tuple(runs), distance * draw(st.sampled_from((1, -1))), lanes), at * SECTOR


class Disk:
    """A partition at its old place, with room on both sides, and a stash."""

    def __init__(self, schedule: Schedule, length: int) -> None:
        self.old = 100 * SECTOR
        self.new = self.old + schedule.distance
        self.bytes = bytearray(random.Random(1).randbytes(length + 200 * SECTOR))
        self.stash = bytearray(200 * SECTOR)

    def copy(self, batch: Batch, *, back: bool = False, torn: random.Random | None = None) -> None:
        """Read all strips before any is written; torn: write each only in part."""
        reads, writes = [], []
        for copy in batch:
            source = (self.stash, copy.source) if copy.from_stash else (self.bytes, self.old + copy.source)
            target = (self.stash, copy.target) if copy.to_stash else (self.bytes, self.new + copy.target)
            if back:
                source, target = target, source
            reads.append(bytes(source[0][source[1] : source[1] + copy.length]))
            writes.append(target)
        for data, (where, at) in zip(reads, writes, strict=True):
            for offset in range(0, len(data), SECTOR):
                if torn is None or torn.random() < 0.5:
                    where[at + offset : at + offset + SECTOR] = data[offset : offset + SECTOR]

    def content(self, schedule: Schedule, start: int) -> list[bytes]:
        return [bytes(self.bytes[start + run.start : start + run.end]) for run in schedule.runs]


@settings(max_examples=examples(400))
@given(schedules(), st.integers(0, 2**32))
def test_every_batch_may_be_torn_and_repeated(made: tuple[Schedule, int], seed: int) -> None:
    schedule, length = made
    luck = random.Random(seed)
    disk = Disk(schedule, length)
    before = disk.content(schedule, disk.old)
    for batch in schedule.batches():
        disk.copy(batch, torn=luck)
        disk.copy(batch)
    assert disk.content(schedule, disk.new) == before


@settings(max_examples=examples(400))
@given(schedules(), st.integers(0, 2**32))
def test_every_prefix_of_the_batches_can_be_undone(made: tuple[Schedule, int], seed: int) -> None:
    schedule, length = made
    luck = random.Random(seed)
    disk = Disk(schedule, length)
    before = disk.content(schedule, disk.old)
    batches = list(schedule.batches())
    done = luck.randint(0, len(batches))
    for batch in batches[:done]:
        disk.copy(batch)
    if done < len(batches):
        disk.copy(batches[done], torn=luck)
    undone = list(schedule.backwards(done))
    assert [number for number, _ in undone] == list(range(done - 1, -1, -1))
    assert [batch for _, batch in undone] == batches[:done][::-1]
    for _, batch in undone:
        disk.copy(batch, back=True, torn=luck)
        disk.copy(batch, back=True)
    assert disk.content(schedule, disk.old) == before


@given(schedules())
def test_batches_stay_within_the_limits(made: tuple[Schedule, int]) -> None:
    schedule, _ = made
    lanes = schedule.lanes
    arrived = 0
    for batch in schedule.batches():
        into = [copy for copy in batch if copy.to_stash]
        assert all(copy.target + copy.length <= lanes.stash for copy in into)
        if len(batch) > 1 and not into and not batch[0].from_stash:
            assert sum(copy.length for copy in batch) <= max(lanes.batch, lanes.window)
        arrived += sum(copy.length for copy in batch if not copy.to_stash)
    assert arrived == schedule.total


def test_a_dense_run_moves_in_batches_of_many_windows() -> None:
    """4 GiB by about 1 MiB, as for a partition at sector 63: one flush per 32 MiB, not one per window."""
    mib = 1 << 20
    schedule = Schedule((Extent(0, 4096 * mib),), 1985 * 512, CopyStrips(1015808, 32 * mib, 1024 * mib, 40 * mib))
    batches = list(schedule.batches())
    assert len(batches) < 200
    stashed = sum(copy.length for batch in batches for copy in batch if copy.to_stash)
    assert stashed < 4096 * mib * 0.05


def test_runs_far_apart_need_no_stash() -> None:
    mib = 1 << 20
    runs = tuple(Extent(4 * mib * index, mib) for index in range(64))
    schedule = Schedule(runs, mib, CopyStrips(mib, 32 * mib, 1024 * mib, 0))
    assert [len(batch) for batch in schedule.batches()] == [32, 32]
