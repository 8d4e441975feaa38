"""Decide what a change may overwrite outside of the partitions that it moves, and of their table.

Bytes that read as zero, and ranges that the user names: nothing else. Whether something is recognised in the
other bytes does not matter: what no table lists and nothing recognises may still be data.
docs/crash-safety.md, "What a change may overwrite".
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from aligntool.units import KIB, MIB, Extent, align_down, merged, parse_size

_SECTOR = 512  # bytes; data is found by the smallest sector of any disk
_BLOCK = 4 * KIB  # the smallest that a drive discards
_PIECE = MIB
_COPY = 64 * KIB  # bytes in which the table of a disk lies, and more
_NEAR = 64 * KIB  # two runs of data that are closer count as one: no journal begins between them
_MOST_SEARCHED = 4096  # pieces that a search for free space reads in one gap
_MOST_REMEMBERED = 200_000  # runs of data; a made-up disk can have a thousand in each piece


class Readable(Protocol):
    """A disk that is open for reading. Offsets and lengths are bytes."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes | memoryview: ...


Copies = Callable[[bytes, int], Iterable[Extent]]


class Claims:
    """The bytes of a disk that a change may overwrite. They are read when a planner asks, and once. What
    cannot be read is kept like data.

    `disk` None: nothing is read, and everything counts as free; only for an estimate, after which nothing is
    written. `named`: ranges that the user allows to be overwritten. `copies`: returns the copies of the
    disk's own table, with nothing that the table in use has not, in the bytes that begin at an offset.
    """

    def __init__(
        self, disk: Readable | None, named: Iterable[Extent] = (), copies: Copies | None = None
    ) -> None:
        self._disk = disk
        self._named = tuple(named)
        self._copies = copies
        self._pieces: dict[int, tuple[Extent, ...]] = {}
        self._remembered = 0
        self._met: set[Extent] = set()

    @property
    def in_the_way(self) -> tuple[Extent, ...]:
        """The data that a planner met, and must plan around; runs that are near each other as one."""
        if not self._met or self._disk is None:
            return ()
        return _near_ones_merged(merged(self._met, Extent(0, self._disk.size), _SECTOR))

    def kept_in(self, extent: Extent) -> tuple[Extent, ...]:
        """Return the runs of an extent that hold data, and may not be overwritten. They are sorted and
        disjoint.
        """
        if self._disk is None:
            return ()
        inside: list[Extent] = []
        for at in _pieces_of(extent):
            found = self._data_in_piece(self._disk, at)
            if not extent.contains(Extent(at, _PIECE)):
                found = tuple(run.clipped(extent) for run in found if run.overlaps(extent))
            inside += found
        return tuple(outside(inside, self._named) if self._named else inside)

    def kept_in_any(self, extents: Iterable[Extent], listed: Iterable[Extent]) -> tuple[Extent, ...]:
        """Return the data in extents that a change would overwrite, and remember it as in the way. `listed`:
        bytes that belong to the change: the partitions that it moves, and their table.
        """
        unlisted = outside(extents, tuple(listed))
        kept = tuple(run for extent in unlisted for run in self.kept_in(extent))
        self._remember(kept)
        return kept

    def free_runs(
        self, gaps: Iterable[Extent], least: int, enough: int, listed: Iterable[Extent] = ()
    ) -> tuple[Extent, ...]:
        """Return the free runs of gaps, the last ones first, until one has `enough` bytes. What was not read
        by then does not count as free. Runs of less than `least` bytes are left out, unless none before them
        is longer. `listed`: as in `kept_in_any`.
        """
        found: list[Extent] = []
        own = tuple(listed)
        longest = 0
        for gap in sorted(gaps, reverse=True):
            for run in self._free_runs_in(gap, enough, own):
                if run.length >= min(least, longest + 1):
                    found.append(run)
                if run.length >= enough:
                    return tuple(found)
                longest = max(longest, run.length)
        return tuple(found)

    def _free_runs_in(self, gap: Extent, enough: int, own: tuple[Extent, ...]) -> Iterator[Extent]:
        if self._disk is None:
            yield gap
            return
        end = gap.end  # of the free run whose start is not known yet
        for count, at in enumerate(reversed(_pieces_of(gap))):
            piece = Extent(at, _PIECE).clipped(gap)
            inside = tuple(extent for extent in own if extent.overlaps(piece))
            kept = self.kept_in(piece)
            if inside:
                kept = tuple(outside(kept, inside))
            self._remember(kept)
            for run in reversed(kept):
                if run.end < end:
                    yield Extent(run.end, end - run.end)
                end = run.start
            if end - piece.start >= enough or count == _MOST_SEARCHED:
                yield Extent(piece.start, end - piece.start)
                return
        if gap.start < end:
            yield Extent(gap.start, end - gap.start)

    def _remember(self, kept: tuple[Extent, ...]) -> None:
        self._met.update(kept)
        if len(self._met) > _MOST_REMEMBERED:
            self._met = set(self.in_the_way)

    def _data_in_piece(self, disk: Readable, at: int) -> tuple[Extent, ...]:
        if at not in self._pieces:
            whole = Extent(at, min(_PIECE, disk.size - at))
            if self._remembered > _MOST_REMEMBERED:
                self._pieces.clear()
                self._remembered = 0
            try:
                content = bytes(disk.read(at, whole.length))
                runs = tuple(_data_runs(content, at))
                self._pieces[at] = self._without_copies(disk, runs, content, at)
            except OSError:
                self._pieces[at] = (whole,)
            self._remembered += len(self._pieces[at])
        return self._pieces[at]

    def _without_copies(
        self, disk: Readable, runs: tuple[Extent, ...], content: bytes, at: int
    ) -> tuple[Extent, ...]:
        """Return the runs of data of a piece without copies of the table, which may end in the next piece.
        `content`: of the piece, which begins at byte `at`.
        """
        if not runs or self._copies is None:
            return runs
        end = at + len(content)
        content += bytes(disk.read(end, min(_COPY, disk.size - end)))
        return tuple(outside(runs, tuple(self._copies(content, at))))


ALL_FREE = Claims(None)


def is_unwritten(content: bytes) -> bool:
    """Return whether every block of 4 KiB reads as zeros, or as the ones of a discarded block. Only for
    places that nothing uses, such as those of a new table: elsewhere a block of ones may be a bitmap.
    """
    blocks = (content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK))
    return all(not block.strip(b"\0") or not block.strip(b"\xff") for block in blocks)


def parse_range(text: str) -> Extent:
    """Return the bytes of "1MiB..64MiB": the first one included, the last one not. Raises ValueError."""
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError(f"{text!r} is not a range of bytes; write it like 1MiB..64MiB")
    start, end = parse_size(first), parse_size(last)
    if end <= start or start % _SECTOR or end % _SECTOR:
        raise ValueError(f"{text!r} is not a range of whole sectors of {_SECTOR} bytes")
    return Extent(start, end - start)


def format_range(extent: Extent) -> str:
    """Return a range as `parse_range` reads it, in bytes."""
    return f"{extent.start}..{extent.end}"


def _pieces_of(extent: Extent) -> range:
    return range(align_down(extent.start, _PIECE), extent.end, _PIECE)


def _data_runs(content: bytes, at: int) -> Iterator[Extent]:
    """Yield the runs of sectors with a byte other than zero, as extents of the disk. `at`: the offset of
    `content`.
    """
    if content == bytes(len(content)):
        return
    zeros = bytes(_SECTOR)
    start = None
    for offset in range(0, len(content), _SECTOR):
        sector = content[offset : offset + _SECTOR]
        has_data = sector != zeros[: len(sector)]
        if has_data and start is None:
            start = offset
        elif not has_data and start is not None:
            yield Extent(at + start, offset - start)
            start = None
    if start is not None:
        yield Extent(at + start, len(content) - start)


def outside(extents: Iterable[Extent], taken: tuple[Extent, ...]) -> Iterator[Extent]:
    """Yield the parts of extents that are in none of `taken`."""
    ordered = sorted(taken)
    for extent in extents:
        start = extent.start
        for other in ordered:
            if other.end <= start or other.start >= extent.end:
                continue
            if other.start > start:
                yield Extent(start, other.start - start)
            start = other.end
        if start < extent.end:
            yield Extent(start, extent.end - start)


def _near_ones_merged(runs: Iterable[Extent]) -> tuple[Extent, ...]:
    found: list[Extent] = []
    for run in runs:
        if found and run.start - found[-1].end < _NEAR:
            start = found.pop().start
            run = Extent(start, run.end - start)
        found.append(run)
    return tuple(found)
