"""One batch: copied, flushed, read back.

In: a batch of copies and where its places are. Out: the same bytes at the other place, durable and compared with what
was read. Alone because it is where nearly all time is spent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aligntool.apply.buffers import same
from aligntool.apply.device import Device
from aligntool.errors import Stopped
from aligntool.plan.lanes import Batch, Copy
from aligntool.units import MIB

PIECE = MIB  # bytes of one request: long enough for any disk, short enough to have several under way


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


def copy_batch(places: Places, batch: Batch, *, back: bool = False) -> None:
    """Durable and verified when this returns; the memory needed is that of the batch.

    What a batch writes is not what it reads (`plan.lanes`), so its pieces may be copied in any order, and all again.
    Raises OSError where the medium does, Stopped when a target reads back as something else.
    """
    pieces = list(places.pieces(batch, back=back))
    read: list[bytes | memoryview] = [b""] * len(pieces)
    places.disk.together(_copying(index, piece, read) for index, piece in enumerate(pieces))
    for device in {id(piece.to): piece.to for piece in pieces}.values():
        device.flush()
    places.disk.together(_comparing(index, piece, read) for index, piece in enumerate(pieces))


def _copying(index: int, piece: Piece, read: list[bytes | memoryview]) -> Callable[[], None]:
    def job() -> None:
        read[index] = piece.from_.read(piece.source, piece.length)
        piece.to.write(piece.target, read[index])

    return job


def _comparing(index: int, piece: Piece, read: list[bytes | memoryview]) -> Callable[[], None]:
    def job() -> None:
        if not same(piece.to.read(piece.target, piece.length), read[index]):
            raise Stopped(
                f"{piece.length} bytes written at byte {piece.target} read back as something else",
                hint="the disk is failing; aligntool rollback DISK takes the move back",
            )
        read[index] = b""

    return job


def bytes_arriving(batch: Batch) -> int:
    """Bytes that reach their new place: what is only put by does not count."""
    return sum(_arrives(copy) for copy in batch)


def _arrives(copy: Copy) -> int:
    return 0 if copy.to_stash else copy.length
