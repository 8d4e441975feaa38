"""Divide a copy onto itself into batches that survive a power cut.

The batches are always the same ones for the same input, so that a journal only has to record how many are done. The
whole argument for safety is about this order.

The rule that every schedule keeps: what a batch writes is never read by the same or a later batch, except from the
stash, after a batch that filled it. So a batch that was cut short is simply done again; and because the rule reads the
same backwards, copies undone in reverse order take everything back.

Within the rule the batches are made large. The runs, taken from the far end of the direction of travel, form groups.
Where the unused gap between two runs of a group is at least the distance, they do not meet each other: each is a lane
of its own. Elsewhere a lane is cut by taking its foot, the bytes that the lane behind it will write over, into the
stash first. Every lane gives one window to each batch. docs/crash-safety.md draws it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aligntool.steps import Lanes
from aligntool.units import Extent, align_down, align_up

UNIT = 4096  # cuts fall on multiples of it, counted from the partition's start, where the window allows


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy: `source` and `target` are bytes from the start of the partition's old and new place, or of the
    stash.
    """

    length: int
    source: int
    target: int
    from_stash: bool = False
    to_stash: bool = False


Batch = tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    runs: tuple[Extent, ...]  # without the foot; ascending
    foot: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of one copy, upwards by `distance` bytes (downwards when negative).

    `runs`: sorted, disjoint, counted from the partition's start.
    """

    runs: tuple[Extent, ...]
    distance: int
    lanes: Lanes
    _groups: list[tuple[Extent, ...]] = field(init=False)
    _mirror: int = field(init=False)

    def __post_init__(self) -> None:
        end = align_up(max((run.end for run in self.runs), default=0), 1 << 20)
        object.__setattr__(self, "_mirror", end)
        runs = self.runs if self.distance > 0 else _mirrored(self.runs, end)
        object.__setattr__(self, "_groups", list(_groups(runs, self.lanes)))

    @property
    def total(self) -> int:
        """Return the bytes that arrive at their new place."""
        return sum(run.length for run in self.runs)

    def batches(self) -> Iterator[Batch]:
        """Yield all batches in order."""
        for group in self._groups:
            yield from self._of(group)

    def backwards(self, done: int) -> Iterator[tuple[int, Batch]]:
        """Yield the first `done` batches with their numbers, the last one first."""
        counts = []
        for group in self._groups:
            counts.append(len(self._of(group)))
            if sum(counts) >= done:
                break
        for index in range(len(counts) - 1, -1, -1):
            first = sum(counts[:index])
            batches = self._of(self._groups[index])[: done - first]
            for number in range(len(batches) - 1, -1, -1):
                yield first + number, batches[number]

    def _of(self, group: tuple[Extent, ...]) -> list[Batch]:
        if self.lanes.staged:
            batches = list(_staged(group, self.lanes))
        else:
            batches = list(_in_lanes(group, abs(self.distance), self.lanes))
        return batches if self.distance > 0 else [self._turned(batch) for batch in batches]

    def _turned(self, batch: Batch) -> Batch:
        """Return it mirrored back; the order of bytes in the stash is unchanged."""
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
    """Return the coarsest power of two, up to UNIT, that a window is a multiple of."""
    return min(UNIT, window & -window)


def _groups(runs: Sequence[Extent], lanes: Lanes) -> Iterator[tuple[Extent, ...]]:
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
                group, room = [], lanes.group
            else:
                break
        group.append(rest)
        room -= rest.length
        if room <= 0:
            yield tuple(reversed(group))
            group, room = [], lanes.group
    if group:
        yield tuple(reversed(group))


def _staged(group: Sequence[Extent], lanes: Lanes) -> Iterator[Batch]:
    """Yield the batches window by window into the stash, and from there to the new place."""
    for window in _windows(group, min(lanes.window, lanes.stash)):
        at, into, out = 0, [], []
        for run in window:
            into.append(Copy(run.length, run.start, at, to_stash=True))
            out.append(Copy(run.length, at, run.start, from_stash=True))
            at += run.length
        yield tuple(into)
        yield tuple(out)


def _in_lanes(group: Sequence[Extent], distance: int, lanes: Lanes) -> Iterator[Batch]:
    cut = _cut_lanes(group, distance, lanes)
    into, out, at = [], [], 0
    for lane in cut:
        for run in lane.foot:
            into.append(Copy(run.length, run.start, at, to_stash=True))
            out.append(Copy(run.length, at, run.start, from_stash=True))
            at += run.length
    if into:
        yield tuple(into)
    columns = [_windows(lane.runs, lanes.window) for lane in cut]
    while columns:
        row: list[Copy] = []
        going = []
        for column in columns:
            window = next(column, None)
            if window is not None:
                row += [Copy(run.length, run.start, run.start) for run in window]
                going.append(column)
        columns = going
        yield from _batches(row, lanes.batch)
    if out:
        yield tuple(out)


def _cut_lanes(group: Sequence[Extent], distance: int, lanes: Lanes) -> list[Lane]:
    """Return the lanes, top first. A lane close behind another one has a foot; the stash limits the number of feet."""
    feet = min(lanes.batch // max(lanes.window, distance), lanes.stash // distance)
    total = sum(run.length for run in group)
    shortest = align_up(max(-(-total // (feet + 1)), lanes.window, distance), lanes.window)
    found: list[Lane] = []
    for chain in _chains(group, distance):
        rest = list(chain)
        while feet > 0 and (pieces := _split(rest, shortest, _unit(lanes.window))):
            rest, lane = pieces
            reach = rest[-1].end + distance  # as far as the lane behind will write
            foot = [Extent(run.start, min(run.end, reach) - run.start) for run in lane if run.start < reach]
            body = [Extent(max(run.start, reach), run.end - max(run.start, reach)) for run in lane if run.end > reach]
            found.append(Lane(tuple(body), tuple(foot)))
            feet -= 1
        found.append(Lane(tuple(rest)))
    return found


def _chains(group: Sequence[Extent], distance: int) -> Iterator[list[Extent]]:
    """Yield chains of runs that touch each other when they move; top chain first."""
    chain: list[Extent] = []
    for run in reversed(group):
        if chain and chain[-1].start - run.end >= distance:
            yield chain[::-1]
            chain = []
        chain.append(run)
    if chain:
        yield chain[::-1]


def _split(runs: Sequence[Extent], top: int, unit: int) -> tuple[list[Extent], list[Extent]] | None:
    """Return the runs below and above a cut with at least `top` bytes above it; None when nothing would be left
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
    """Yield what is within `window` bytes below the highest remaining byte, repeatedly; ascending."""
    stack, unit = list(runs), _unit(window)
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
    """Yield copies; those of one row do not touch each other's sources, so they may be divided anywhere."""
    batch: list[Copy] = []
    size = 0
    for copy in row:
        if batch and size + copy.length > most:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(copy)
        size += copy.length
    if batch:
        yield tuple(batch)
