"""An older copy of a journal file, or of its disk: no command loses a byte silently.

Every moment of a run is combined with other ones, as if the file or the disk had been restored from a copy.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count

import pytest

from aligntool.change import Event
from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Journal
from aligntool.mover.move import realign, resume, rollback, status
from aligntool.units import Extent
from tests.mover.crowded_disks import JOURNAL, Crowd, make_crowd
from tests.mover.entries import entries
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_other_journals import with_place
from tests.mover.test_simulated_cuts import NoKernel, check_end, final, is_new
from tests.thorough import THOROUGH

pytestmark = pytest.mark.needs_tools("sfdisk")

Way = Callable[[MoveContext], Iterable[Event]]
WAYS: list[Way] = [resume, rollback]
SEEDS = range(40 if THOROUGH else 4)
PAIRS = 3000 if THOROUGH else 200


@dataclass(frozen=True)
class Moment:
    """What a program that is killed leaves behind."""

    disk: bytes
    file: bytes


class Recorded(SimulatedDisk):
    """A disk or a file of which every write is reported."""

    def __init__(self, content: bytes, sector: int, report: Callable[[], None]) -> None:
        super().__init__(content, sector=sector)
        self._report = report

    def write(self, offset: int, data: bytes | memoryview) -> None:
        super().write(offset, data)
        self._report()

    def seen(self) -> bytes:
        return self.read(0, self.size)


def moments_of(way: Way, start: Moment, *, sector: int = SECTOR, every: int = 1) -> list[Moment]:
    """Return the moments after every write of a run, or some of them."""
    found: list[Moment] = []
    numbers = count(1)

    def report() -> None:
        if next(numbers) % every == 0:
            found.append(Moment(disk.seen(), file.seen()))

    disk, file = Recorded(start.disk, sector, report), Recorded(start.file, sector, report)
    list(way(MoveContext(disk, NoKernel(), file)))
    return found


def both_directions(begin: Way, start: Moment, *, sector: int = SECTOR, every: int = 1) -> list[Moment]:
    """Return the moments of a run, and of the rollback from one of them."""
    forward = moments_of(begin, start, sector=sector, every=every)
    turn = next(each for each in reversed(forward[: len(forward) * 2 // 3 + 1]) if is_open(each, sector))
    back = moments_of(rollback, turn, sector=sector, every=every)
    return [*forward, *back]


def is_open(moment: Moment, sector: int) -> bool:
    """Return whether the change is in flight, and either way is open."""
    disk, file = (SimulatedDisk(content, sector=sector) for content in (moment.disk, moment.file))
    found = status(MoveContext(disk, NoKernel(), file))
    return found.state == "in-flight" and found.begun and len(found.ways) == 2


def outcome(way: Way, moment: Moment, sector: int = SECTOR) -> bytes | str:
    """Resume or roll back; return the disk if that was done, otherwise how it ended."""
    disk, file = (SimulatedDisk(content, sector=sector) for content in (moment.disk, moment.file))
    try:
        list(way(MoveContext(disk, NoKernel(), file)))
    except Refused:
        assert final(disk) == moment.disk, "a refusal after a write"
        return "refused"
    except Stopped:
        return "stopped"
    return final(disk)


def numbered_at(moment: Moment) -> int | None:
    return Journal.open(SimulatedDisk(moment.file), 0).contents.numbered_at


def crowd_with_moments(seed: int) -> tuple[Crowd, list[Moment]]:
    """Return a crowd in which a marker has a number, and the moments of its move and of a rollback."""
    for number in count(4000 + 100 * seed + seed % 2, 2):
        crowd = make_crowd(number, "gpt" if number % 2 else "dos")
        crowd = with_place(crowd, extent=Extent(0, JOURNAL), file="journal")
        begin = partial(begun, crowd)
        moments = both_directions(begin, Moment(crowd.platter, bytes(JOURNAL)))
        if numbered_at(moments[len(moments) // 2]) is not None:
            return crowd, moments
    raise AssertionError


def begun(crowd: Crowd, context: MoveContext) -> Iterable[Event]:
    return realign(crowd.plan, context, crowd.runs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_and_a_file_of_different_moments_are_refused_or_lose_nothing(seed: int) -> None:
    luck = random.Random(seed)
    crowd, moments = crowd_with_moments(seed)
    refused = 0
    for _ in range(PAIRS):
        mixed = Moment(luck.choice((crowd.platter, *(one.disk for one in moments))), luck.choice(moments).file)
        for way in WAYS:
            end = outcome(way, mixed)
            refused += end == "refused"
            if isinstance(end, bytes):
                check_end(crowd, end, new=is_new(crowd, end))
    assert refused > PAIRS // 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_and_a_file_of_the_same_moment_are_never_refused(seed: int) -> None:
    crowd, moments = crowd_with_moments(seed)
    begun = [one for one in moments if any(entry.parked for entry in entries(one.disk).values())]
    for moment in begun if THOROUGH else random.Random(seed).sample(begun, 25):
        for way in WAYS:
            end = outcome(way, moment)
            if isinstance(end, bytes):
                check_end(crowd, end, new=is_new(crowd, end))
            assert end != "refused"
