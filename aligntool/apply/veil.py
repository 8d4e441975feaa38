"""Which bytes recognition depends on, and in which order they go and come back.

In: what is held of a partition. Out: its signatures: those that are redundant, and those that go last and come first.
Alone because the order is an argument: docs/crash-safety.md, "Held".

Of the signature that `blkid -p` reports one byte is changed, alone in its sector, so that a torn write leaves either
the signature as it was, or none. All others go before it and come back after it: as long as anything is recognised, it
is recognised by that one, with everything else whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.plan import Held
from aligntool.plan.signatures import (
    SIGNATURES,
    ZFS_LABEL,
    ZFS_NVLIST,
    ZFS_UBERBLOCK,
    ZFS_UBERBLOCKS_WANTED,
    Signature,
    places,
)
from aligntool.units import KIB, align_down

Bytes = frozenset[int]  # offsets in a partition


@dataclass(frozen=True, slots=True)
class Signs:
    """`redundant`: sectors. `last`: bytes in levels, each hidden after the one before. No sector is in two of them."""

    redundant: Bytes
    last: tuple[Bytes, ...]
    vital: Bytes  # one byte of each signature


@dataclass(frozen=True, slots=True)
class View:
    """A partition's held bytes as a program sees them that looks at `length` bytes from `base` on, counted from the
    partition's start; another base than 0 is where the other end of a short move begins.
    """

    held: Held
    content: Sequence[bytes]
    length: int
    sign: bytes  # the marker, a sector long
    base: int = 0

    def read(self, at: int, width: int) -> bytes:
        """Nothing where not all of it is held."""
        for extent, part in zip(self.held.ranges, self.content, strict=True):
            if extent.start <= at and at + width <= extent.end:
                return part[at - extent.start : at - extent.start + width]
        return b""


def signs_of(view: View, *others: View) -> Signs:
    """`others`: views of the same bytes from elsewhere; what is recognised from there is redundant."""
    found = [(signature, at) for signature in SIGNATURES for at in _found(view, signature)]
    vital = frozenset({at for _, at in found} | {at for other in others for at in _of_another(other)})
    size = len(view.sign)
    level_of = {
        sector: index for index, level in enumerate(_last(view, found)) for sector in sectors_of(level, size)
    }
    last = tuple(
        frozenset(at for at in vital if level_of.get(align_down(at, size)) == index)
        for index in sorted(set(level_of.values()))
    )
    return Signs(sectors_of(vital, size) - level_of.keys(), last, vital)


def veiled(view: View, sectors: Bytes, hidden: Bytes) -> tuple[bytes, ...]:
    """What is held, with these sectors and these bytes as in the marker."""
    size = len(view.sign)
    parts = []
    for extent, part in zip(view.held.ranges, view.content, strict=True):
        changed = bytearray(part)
        for at in sectors:
            if extent.start <= at < extent.end:
                changed[at - extent.start : at - extent.start + size] = view.sign
        for at in hidden:
            if extent.start <= at < extent.end:
                changed[at - extent.start] = view.sign[at % size]
        parts.append(bytes(changed))
    return tuple(parts)


def sectors_of(level: Bytes, size: int) -> Bytes:
    return frozenset(align_down(at, size) for at in level)


def _last(view: View, found: Sequence[tuple[Signature, int]]) -> tuple[Bytes, ...]:
    """What goes after everything else: the signature that blkid reports.

    Of ZFS the newest uberblocks of the first label, as few of them as libblkid needs, then that label's list of names.
    """
    if not found:
        return ()
    signature, at = found[0]
    if signature not in (ZFS_NVLIST, ZFS_UBERBLOCK):
        return (frozenset({at}),)
    labels = [at for one, at in found if one is ZFS_NVLIST]
    blocks = sorted(
        (at for one, at in found if one is ZFS_UBERBLOCK),
        key=lambda at: (at >= ZFS_LABEL, -_transaction(view, at), at),
    )
    return (frozenset(blocks[:ZFS_UBERBLOCKS_WANTED]), frozenset(labels[:1]))


def _transaction(view: View, at: int) -> int:
    """The number in an uberblock: ub_txg, 16 bytes behind the first one of its magic, in the pool's byte order."""
    start = align_down(at, KIB)
    is_little = view.read(start, 1) == b"\x0c"
    return int.from_bytes(view.read(start + 16, 8), "little" if is_little else "big")


def _found(view: View, signature: Signature) -> Iterator[int]:
    """The vital byte of each that is there."""
    for place in places(signature, view.length):
        at = view.base + place
        match = signature.pattern.match(view.read(at, signature.width))
        if match:
            vital = _vital(view.sign, signature, at, match[0])
            if vital is not None:
                yield vital


def _vital(sign: bytes, signature: Signature, at: int, found: bytes) -> int | None:
    """A byte that differs from the marker's, so that it becomes another one."""
    candidates = range(len(found)) if signature.vital is None else (signature.vital,)
    return next((at + index for index in candidates if found[index] != sign[(at + index) % len(sign)]), None)


def _of_another(view: View) -> Iterator[int]:
    for signature in SIGNATURES:
        yield from _found(view, signature)
