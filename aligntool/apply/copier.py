"""Batches: copied, flushed, read back, recorded.

In: batches of copies and where their places are. Out: the same bytes at the other place, durable and compared with what
was read. Alone because it is where nearly all time is spent.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from aligntool.apply.buffers import same
from aligntool.apply.device import Device, Jobs
from aligntool.apply.journal_sectors import Position
from aligntool.errors import Stopped
from aligntool.plan.lanes import Batch
from aligntool.units import MIB

PIECE = MIB  # bytes of one request: long enough for any disk, short enough to have several under way


Work = tuple[Position, Batch]
"""A batch, and what the journal says when it has arrived."""


@dataclass(frozen=True, slots=True)
class Piece:
    length: int
    from_: Device
    source: int  # absolute, on its device
    to: Device
    target: int


@dataclass(frozen=True, slots=True)
class Places:
    """What the offsets of a batch are counted from."""

    disk: Device
    old: int  # byte of the partition's old start
    new: int
    stash_on: Device
    stash: int

    def pieces(self, batch: Batch, *, back: bool) -> Iterator[Piece]:
        for copy in batch:
            from_, source = self._end(copy.source, self.old, stash=copy.from_stash)
            to, target = self._end(copy.target, self.new, stash=copy.to_stash)
            if back:
                from_, source, to, target = to, target, from_, source
            for at in range(0, copy.length, PIECE):
                yield Piece(min(PIECE, copy.length - at), from_, source + at, to, target + at)

    def _end(self, offset: int, start: int, *, stash: bool) -> tuple[Device, int]:
        return (self.stash_on, self.stash + offset) if stash else (self.disk, start + offset)


@dataclass(frozen=True, slots=True)
class _Load:
    """A batch under way. `read` is filled and emptied piece by piece."""

    after: Position
    batch: Batch
    pieces: tuple[Piece, ...]
    read: list[bytes | memoryview]

    def reading(self) -> Jobs:
        return (partial(self._read, index) for index in range(len(self.pieces)))

    def writing(self) -> Jobs:
        return (partial(self._write, index) for index in range(len(self.pieces)))

    def comparing(self) -> Jobs:
        return (partial(self._compare, index) for index in range(len(self.pieces)))

    def flush(self) -> None:
        for device in {id(piece.to): piece.to for piece in self.pieces}.values():
            device.flush()

    def _read(self, index: int) -> None:
        piece = self.pieces[index]
        self.read[index] = piece.from_.read(piece.source, piece.length)

    def _write(self, index: int) -> None:
        piece = self.pieces[index]
        piece.to.write(piece.target, self.read[index])

    def _compare(self, index: int) -> None:
        piece = self.pieces[index]
        if not same(piece.to.read(piece.target, piece.length), self.read[index]):
            raise Stopped(
                f"{piece.length} bytes written at byte {piece.target} read back as something else",
                hint="the disk is failing; aligntool rollback DISK takes the move back",
            )
        self.read[index] = b""  # its memory is free for the next batch


def copy_batches(
    places: Places, work: Iterable[Work], record: Callable[[Position], None], *, back: bool = False
) -> Iterator[Batch]:
    """Yields each batch when it is at the other place: durable, verified and recorded.

    While one batch is flushed, read back and recorded, the next one is read already, so that the disk does not wait for
    us: it was idle for a fifth of the time. That is safe. No batch writes what a later one reads, except into the stash
    (`plan.lanes`), and what goes there has been written when the reading begins. Nothing of a batch is written before
    the record of the one before it is durable.

    A batch of which both places are holes of a sparse image is at the other place already. It is recorded together with
    the one before it, because it must be before anything is written over its source.

    The memory needed is that of two batches. Raises OSError where the medium does, Stopped when a target reads back as
    something else.
    """
    disk = places.disk
    loads = (_load(places, after, batch, back=back) for after, batch in work)
    load, there = _next(loads)
    if there:
        record(there[-1].after)
        yield from (it.batch for it in there)
    if load:
        disk.together(load.reading())
    while load:
        disk.together(load.writing())
        following, there = _next(loads)
        after = there[-1].after if there else load.after
        disk.together(following.reading() if following else (), partial(_finish, disk, load, record, after))
        yield load.batch
        yield from (it.batch for it in there)
        load = following


def _load(places: Places, after: Position, batch: Batch, *, back: bool) -> _Load:
    pieces = tuple(piece for piece in places.pieces(batch, back=back) if not _is_there(piece))
    return _Load(after, batch, pieces, [b""] * len(pieces))


def _is_there(piece: Piece) -> bool:
    return piece.from_.is_hole(piece.source, piece.length) and piece.to.is_hole(piece.target, piece.length)


def _next(loads: Iterator[_Load]) -> tuple[_Load | None, list[_Load]]:
    """The next one with something to write, and those before it that have nothing."""
    there: list[_Load] = []
    for load in loads:
        if load.pieces:
            return load, there
        there.append(load)
    return None, there


def _finish(disk: Device, load: _Load, record: Callable[[Position], None], after: Position) -> None:
    load.flush()
    disk.together(load.comparing())
    record(after)


def bytes_arriving(batch: Batch) -> int:
    """Bytes that reach their new place: what is only put by does not count."""
    return sum(copy.length for copy in batch if not copy.to_stash)
