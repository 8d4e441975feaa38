"""Divide a copy with overlapping source and target into batches that survive a power cut.

The same input always gives the same batches, so a journal only has to record how many are done. The safety of
a move depends on their order.

Every schedule keeps one rule: no batch writes bytes that the same or a later batch reads, except in the
stash, which a batch reads only after an earlier batch filled it. So a batch that was interrupted is simply
repeated; and because the rule holds in reverse as well, undoing the copies in reverse order restores
everything.

Within this rule the batches are made large. The runs are divided into groups, beginning at the far end in the
direction of the move. If the unused gap between two runs of a group is at least the distance, neither run
overwrites the other: each is a copy strip of its own (`CopyStrip`). Longer runs are cut into strips by saving
the foot of each, the bytes that the strip behind it will overwrite, to the stash first. A batch has one
window of every strip.
docs/crash-safety.md has a drawing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aligntool.steps import CopyStrips
from aligntool.units import Extent, align_down, align_up

UNIT = 4096  # cuts are at multiples of this, counted from the partition's start, if the window allows


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of `length` bytes. `source` and `target` are counted from the start of the partition's old and
    new place, or of the stash.
    """

    length: int
    source: int
    target: int
    from_stash: bool = False
    to_stash: bool = False


Batch = tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class CopyStrip:
    """A copy strip: runs that are copied side by side with those of other strips."""

    runs: tuple[Extent, ...]  # without the foot; ascending
    foot: tuple[Extent, ...] = ()  # saved to the stash first


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of one copy, upwards by `distance` bytes (downwards if negative).

    `runs`: sorted, disjoint, counted from the partition's start.
    """

    runs: tuple[Extent, ...]
    distance: int
    lanes: CopyStrips
    _groups: list[tuple[Extent, ...]] = field(init=False)
    _mirror: int = field(init=False)

    def __post_init__(self) -> None:
        end = align_up(max((run.end for run in self.runs), default=0), 1 << 20)
        object.__setattr__(self, "_mirror", end)
        runs = self.runs if self.distance > 0 else _mirrored(self.runs, end)
        object.__setattr__(self, "_groups", list(_groups(runs, self.lanes)))

    @property
    def total(self) -> int:
        """Return the number of bytes copied to their new place."""
        return sum(run.length for run in self.runs)

    def batches(self) -> Iterator[Batch]:
        """Yield all batches in order."""
        for group in self._groups:
            yield from self._batches_of(group)

    def backwards(self, done: int) -> Iterator[tuple[int, Batch]]:
        """Yield the first `done` batches with their numbers, in reverse order."""
        counts = []
        for group in self._groups:
            counts.append(len(self._batches_of(group)))
            if sum(counts) >= done:
                break
        for index in range(len(counts) - 1, -1, -1):
            first = sum(counts[:index])
            batches = self._batches_of(self._groups[index])[: done - first]
            for number in range(len(batches) - 1, -1, -1):
                yield first + number, batches[number]

    def _batches_of(self, group: tuple[Extent, ...]) -> list[Batch]:
        if self.lanes.staged:
            batches = list(_staged(group, self.lanes))
        else:
            batches = list(_in_strips(group, abs(self.distance), self.lanes))
        return batches if self.distance > 0 else [self._mirrored_back(batch) for batch in batches]

    def _mirrored_back(self, batch: Batch) -> Batch:
        """Return the batch mirrored back; offsets in the stash are unchanged."""
        end = self._mirror
        return tuple(
            Copy(
                copy.length,
                copy.source if copy.from_stash else end - copy.source - copy.length,
                copy.target if copy.to_stash else end - copy.target - copy.length,
                copy.from_stash,
                copy.to_stash,
            )
            for copy in batch
        )


def _mirrored(runs: Sequence[Extent], end: int) -> tuple[Extent, ...]:
    return tuple(Extent(end - run.end, run.length) for run in reversed(runs))


def _unit(window: int) -> int:
    """Return the largest power of two, up to UNIT, of which the window is a multiple."""
    return min(UNIT, window & -window)


def _groups(runs: Sequence[Extent], lanes: CopyStrips) -> Iterator[tuple[Extent, ...]]:
    """Yield groups from the top down, each of about `lanes.group` bytes, its runs ascending."""
    group: list[Extent] = []
    room = lanes.group
    for run in reversed(runs):
        rest = run
        while rest.length > room:
            cut = align_down(rest.end - room, _unit(lanes.window))
            if cut > rest.start:
                group.append(Extent(cut, rest.end - cut))
                rest = Extent(rest.start, cut - rest.start)
                yield tuple(reversed(group))
                group = []
                room = lanes.group
            else:
                break
        group.append(rest)
        room -= rest.length
        if room <= 0:
            yield tuple(reversed(group))
            group = []
            room = lanes.group
    if group:
        yield tuple(reversed(group))


def _staged(group: Sequence[Extent], lanes: CopyStrips) -> Iterator[Batch]:
    """Yield two batches for each window: into the stash, and from there to the new place."""
    for window in _windows(group, min(lanes.window, lanes.stash)):
        at = 0
        into = []
        out = []
        for run in window:
            into.append(Copy(run.length, run.start, at, to_stash=True))
            out.append(Copy(run.length, at, run.start, from_stash=True))
            at += run.length
        yield tuple(into)
        yield tuple(out)


def _in_strips(group: Sequence[Extent], distance: int, lanes: CopyStrips) -> Iterator[Batch]:
    strips = _strips(group, distance, lanes)
    into = []
    out = []
    at = 0
    for strip in strips:
        for run in strip.foot:
            into.append(Copy(run.length, run.start, at, to_stash=True))
            out.append(Copy(run.length, at, run.start, from_stash=True))
            at += run.length
    if into:
        yield tuple(into)
    columns = [_windows(strip.runs, lanes.window) for strip in strips]
    while columns:
        row: list[Copy] = []
        remaining = []
        for column in columns:
            window = next(column, None)
            if window is not None:
                row += [Copy(run.length, run.start, run.start) for run in window]
                remaining.append(column)
        columns = remaining
        yield from _batches(row, lanes.batch)
    if out:
        yield tuple(out)


def _strips(group: Sequence[Extent], distance: int, lanes: CopyStrips) -> list[CopyStrip]:
    """Return the copy strips, highest first. A strip that is followed closely by another has a foot; the size
    of the stash limits the number of feet.
    """
    feet = min(lanes.batch // max(lanes.window, distance), lanes.stash // distance)
    total = sum(run.length for run in group)
    shortest = align_up(max(-(-total // (feet + 1)), lanes.window, distance), lanes.window)
    found: list[CopyStrip] = []
    for chain in _chains(group, distance):
        rest = list(chain)
        while feet > 0 and (pieces := _split(rest, shortest, _unit(lanes.window))):
            rest, strip = pieces
            reach = rest[-1].end + distance  # end of what the strip behind will write
            foot = [Extent(run.start, min(run.end, reach) - run.start) for run in strip if run.start < reach]
            body = [
                Extent(max(run.start, reach), run.end - max(run.start, reach))
                for run in strip
                if run.end > reach
            ]
            found.append(CopyStrip(tuple(body), tuple(foot)))
            feet -= 1
        found.append(CopyStrip(tuple(rest)))
    return found


def _chains(group: Sequence[Extent], distance: int) -> Iterator[list[Extent]]:
    """Yield chains of runs less than `distance` apart, which overwrite each other in the move; highest chain
    first.
    """
    chain: list[Extent] = []
    for run in reversed(group):
        if chain and chain[-1].start - run.end >= distance:
            yield chain[::-1]
            chain = []
        chain.append(run)
    if chain:
        yield chain[::-1]


def _split(runs: Sequence[Extent], top: int, unit: int) -> tuple[list[Extent], list[Extent]] | None:
    """Return the runs below and above a cut with at least `top` bytes above it; None if nothing would be left
    below.
    """
    above: list[Extent] = []
    for index in range(len(runs) - 1, -1, -1):
        run = runs[index]
        if run.length < top:
            above.append(run)
            top -= run.length
            continue
        cut = max(align_down(run.end - top, unit), run.start)
        above.append(Extent(cut, run.end - cut))
        below = [*runs[:index], Extent(run.start, cut - run.start)] if cut > run.start else list(runs[:index])
        return (below, above[::-1]) if below else None
    return None


def _windows(runs: Sequence[Extent], window: int) -> Iterator[list[Extent]]:
    """Yield the runs within `window` bytes below the highest remaining byte, repeatedly; each window
    ascending.
    """
    stack = list(runs)
    unit = _unit(window)
    while stack:
        high = stack[-1].end
        low = align_up(high - window, unit)
        found: list[Extent] = []
        while stack and stack[-1].end > low:
            run = stack.pop()
            start = max(run.start, low)
            found.append(Extent(start, run.end - start))
            if start > run.start:
                stack.append(Extent(run.start, start - run.start))
                break
        yield found[::-1]


def _batches(row: Sequence[Copy], most: int) -> Iterator[Batch]:
    """Yield the copies of a row in batches of about `most` bytes. No copy of a row writes to the source of
    another, so the row may be divided between any two of them.
    """
    batch: list[Copy] = []
    size = 0
    for copy in row:
        if batch and size + copy.length > most:
            yield tuple(batch)
            batch = []
            size = 0
        batch.append(copy)
        size += copy.length
    if batch:
        yield tuple(batch)
