"""Remove and restore the signatures by which content is recognised while it moves."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from aligntool.device import Device
from aligntool.errors import Stopped
from aligntool.formats import signatures
from aligntool.formats.parked import or_nothing
from aligntool.formats.signatures import SIGNATURES, ZFS_LABEL, ZFS_NVLIST, ZFS_UBERBLOCK, Signature, places
from aligntool.steps import Held
from aligntool.units import KIB, Extent, align_down

# Which bytes recognition depends on, and in which order they go and come back.
#
# The order is an argument: docs/crash-safety.md, "Held".
#
# Of the signature that `blkid -p` reports one byte is changed, alone in its sector, so that a torn write
# leaves either the signature as it was, or none. All others go before it and come back after it: as long as
# anything is recognised, it is recognised by that one, with everything else whole.

Bytes = frozenset[int]  # offsets in a partition


@dataclass(frozen=True, slots=True)
class Signs:
    """The signatures of held bytes. `redundant`: sectors; `last`: bytes in levels, each hidden after the one before. No
    sector is in two of them.
    """

    redundant: Bytes
    last: tuple[Bytes, ...]
    vital: Bytes  # one byte of each signature


@dataclass(frozen=True, slots=True)
class View:
    """A partition's held bytes as read by a program that reads `length` bytes from `base` on, counted from the
    partition's start; a `base` other than 0 is where the other end of a short move begins.
    """

    held: Held
    content: Sequence[bytes]
    length: int
    sign: bytes  # the marker, a sector long
    base: int = 0

    def read(self, at: int, width: int) -> bytes:
        """Return bytes by offset; nothing where not all of it is held."""
        for extent, part in zip(self.held.ranges, self.content, strict=True):
            if extent.start <= at and at + width <= extent.end:
                return part[at - extent.start : at - extent.start + width]
        return b""


def signs_of(view: View, *others: View) -> Signs:
    """Return the signatures in the view. `others`: views of the same bytes from elsewhere; what is recognised from
    there is redundant, unless it shares a sector with what goes last.
    """
    size = len(view.sign)
    own = list(_found(view))
    elsewhere = [at for other in others for _, at in _found(other)]
    vital = frozenset((*(at for _, at in own), *elsewhere))
    levels = [sectors_of(level, size) for level in _last(view, own)]
    # A sector with bytes of two levels goes with the later one.
    levels = [sectors.difference(*levels[number:]) for number, sectors in enumerate(levels, start=1)]
    last = tuple(frozenset(at for at in vital if align_down(at, size) in sectors) for sectors in levels if sectors)
    return Signs(sectors_of(vital, size).difference(*levels), last, vital)


def first_sign(view: View) -> int | None:
    """Return the byte of the signature that blkid reports; None where nothing is recognised."""
    return next((at for _, at in _found(view)), None)


def is_there(view: View, signature: Signature) -> bool:
    """Return whether a signature is in the view."""
    return any(found is signature for found, _ in _found(view))


def veiled(view: View, sectors: Bytes, hidden: Bytes) -> tuple[bytes, ...]:
    """Return the held bytes, with these sectors and these bytes replaced by those of the marker."""
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
    """Return what goes after everything else: the signature that blkid reports.

    Of ZFS the newest uberblocks of the first label, as few of them as libblkid needs, then that label's list of names.
    """
    if not found:
        return ()
    signature, at = found[0]
    if signature not in (ZFS_NVLIST, ZFS_UBERBLOCK):
        return (frozenset({at}),)
    labels = [at for one, at in found if one is ZFS_NVLIST]
    blocks = [at for one, at in found if one is ZFS_UBERBLOCK]
    blocks.sort(key=lambda at: (at >= ZFS_LABEL, -_transaction(view, at), at))
    return (frozenset(blocks[: signatures.ZFS_UBERBLOCKS_WANTED]), frozenset(labels[:1]))


def _transaction(view: View, at: int) -> int:
    """Return the number in an uberblock: ub_txg, 16 bytes behind the first one of its magic, in the pool's byte
    order.
    """
    start = align_down(at, KIB)
    is_little = view.read(start, 1) == b"\x0c"
    return int.from_bytes(view.read(start + 16, 8), "little" if is_little else "big")


def _found(view: View) -> Iterator[tuple[Signature, int]]:
    """Yield each signature that is present with its vital byte."""
    parts = [(extent.start, extent.end, part) for extent, part in zip(view.held.ranges, view.content, strict=True)]
    for signature, pattern, place, end in _every_place(view.length):
        at = view.base + place
        for first, last, part in parts:
            if first <= at and view.base + end <= last:
                match = pattern.match(part, at - first, view.base + end - first)
                if match:
                    # A byte that differs from the marker's, so that hiding changes it.
                    found, sign = match[0], view.sign
                    candidates = range(len(found)) if signature.vital is None else (signature.vital,)
                    differing = (at + index for index in candidates if found[index] != sign[(at + index) % len(sign)])
                    yield from ((signature, vital) for vital in islice(differing, 1))
                break


@lru_cache(maxsize=32)
def _every_place(length: int) -> tuple[tuple[Signature, re.Pattern[bytes], int, int], ...]:
    """Return where a partition of this length may have a signature: its pattern, the offset, and that of its end.

    Kept, since a move asks a thousand times, at each of some 800 places.
    """
    found = ((signature, signature.pattern, at) for signature in SIGNATURES for at in places(signature, length))
    return tuple((signature, pattern, at, at + signature.width) for signature, pattern, at in found)


# What would be recognised is taken off the disk while a partition is in flight, and put back last.
#
# The order matters: what recognition depends on (`veil`) goes first and comes last, each time with a flush and a look
# between them and the rest, so that at any cut there is nothing to see, or everything.

_PIECE = 1 << 17


def marker(sector_size: int, journal_at: int | None, id_: bytes) -> bytes:
    """Return a sector that no program recognises, but a person can read."""
    where = "in a file elsewhere" if journal_at is None else f"at byte {journal_at}"
    text = (
        "aligntool: a partition was here or will be; it is in flight.\n"
        "Do not repair or format it. Type: aligntool resume DISK\n"
        f"journal {id_.hex()} {where}\n"
    )
    return text.encode().ljust(sector_size, b"\0")


def read_held(device: Device, start: int, held: Held) -> tuple[bytes, ...]:
    return tuple(bytes(device.read(start + extent.start, extent.length)) for extent in held.ranges)


def mark(device: Device, start: int, view: View, *others: View) -> None:
    """Write markers over all that is held of the partition at `start`: its signatures, then the rest, each flushed.

    Raises Stopped when a signature can still be read after that: nothing else was written then.
    """
    _hide(device, start, view, signs_of(view, *others))
    _write(device, start, view.held, _blank(view.held, view.sign))
    device.flush()


def _hide(device: Device, start: int, view: View, signs: Signs) -> None:
    if signs.redundant:
        _write_sectors(device, start, view, _blank(view.held, view.sign), signs.redundant)
        _check_hidden(device, start, view, signs.vital - frozenset().union(*signs.last))
    hidden: Bytes = frozenset()
    for level in signs.last:
        hidden |= level
        _write_sectors(device, start, view, veiled(view, signs.redundant, hidden), _sectors(view, level))
        _check_hidden(device, start, view, level)


def _check_hidden(device: Device, start: int, view: View, vital: Bytes) -> None:
    device.flush()
    if _still_there(device, start, view, vital):
        raise Stopped(f"what was written at byte {start} reads back as something else: the disk is failing")


def take_away(device: Device, start: int, view: View, *others: View) -> None:
    """Mark on the way back, where an unwritable sector must not stop the rollback.

    Raises OSError only when a signature can still be read there.
    """
    try:
        mark(device, start, view, *others)
    except OSError:
        for extent in view.held.ranges:
            for at in range(extent.start, extent.end, len(view.sign)):
                with suppress(OSError):
                    device.write(start + at, view.sign)
        device.flush()
        if _still_there(device, start, view, signs_of(view, *others).vital):
            raise


def _still_there(device: Device, start: int, view: View, vital: Bytes) -> bool:
    for at in vital:
        with suppress(OSError):
            size = len(view.sign)
            sector = align_down(at, size)
            if bytes(device.read(start + sector, size))[at - sector] == view.read(at, 1)[0]:
                return True
    return False


def release(device: Device, start: int, view: View, *others: View) -> None:
    """Write the content to the place at `start`: all but its signatures, then the signatures, each flushed and read
    back.

    What is recognised at the place beforehand, a file system of years ago, is marked first. Raises Stopped when what is
    read back differs; before the signatures are there, nothing is recognised.
    """
    _clear(device, start, view, lambda _: True)
    signs = signs_of(view, *others)
    hidden: Bytes = frozenset().union(*signs.last)
    _write(device, start, view.held, veiled(view, signs.redundant, hidden))
    _check(device, start, view.held, veiled(view, signs.redundant, hidden))
    for level in reversed(signs.last):
        hidden -= level
        _write_sectors(device, start, view, veiled(view, signs.redundant, hidden), _sectors(view, level))
        _check(device, start, view.held, veiled(view, signs.redundant, hidden))
    if signs.redundant:
        _write_sectors(device, start, view, view.content, signs.redundant)
        _check(device, start, view.held, view.content)


def put(device: Device, start: int, held: Held, content: Sequence[bytes]) -> None:
    """Write bytes, flushed and read back, in a partition that no table shows. Raises Stopped where they differ."""
    _write(device, start, held, content)
    _check(device, start, held, content)


def _check(device: Device, start: int, held: Held, content: Sequence[bytes]) -> None:
    """Verify what was written; nothing may follow a write that was lost."""
    device.flush()
    if read_held(device, start, held) != tuple(content):
        raise Stopped(f"what was put at byte {start} reads back as something else: the disk is failing")


def clear_free(device: Device, start: int, view: View, occupied: Sequence[Extent]) -> None:
    """Write markers over what is recognised at the place at `start` and belongs to nothing in `occupied`.

    Left over from years ago, it would be seen there until the move is done.
    """
    size = len(view.sign)
    _clear(device, start, view, lambda at: not any(one.overlaps(Extent(start + at, size)) for one in occupied))


def _clear(device: Device, start: int, view: View, may: Callable[[int], bool]) -> None:
    places = ((start + extent.start, extent.length) for extent in view.held.ranges)
    # An unreadable place is not recognised, and will be overwritten.
    content = tuple(or_nothing(device, at, length) or bytes(length) for at, length in places)
    there = View(view.held, content, view.length, view.sign)
    signs = signs_of(there)
    hidden: Bytes = frozenset()
    for level in (frozenset(), *signs.last):
        hidden |= level
        wanted = frozenset(filter(may, _sectors(view, level) if level else signs.redundant))
        if wanted:
            _write_sectors(device, start, view, veiled(there, signs.redundant, hidden), wanted)
            device.flush()


def check_unchanged(device: Device, start: int, held: Held, content: Sequence[bytes], sign: bytes) -> None:
    """Raise Stopped unless the partition is as the journal holds it, except for markers that a cut left there.

    Raises Stopped when somebody else has written to it since.
    """
    for extent, was, found in zip(held.ranges, content, read_held(device, start, held), strict=True):
        if was == found:
            continue
        size = len(sign)
        for at in range(0, extent.length, size):
            sector = found[at : at + size]
            if sector not in (was[at : at + size], sign) and not _torn(sector, was[at : at + size], sign):
                text = f"byte {start + extent.start + at} was changed by another program since the journal was written"
                raise Stopped(text, hint="aligntool rollback DISK, then check the file system and begin anew")


def _torn(found: bytes, one: bytes, other: bytes) -> bool:
    return all(byte in pair for byte, *pair in zip(found, one, other, strict=True))


def _blank(held: Held, sign: bytes) -> list[bytes]:
    return [sign * (extent.length // len(sign)) for extent in held.ranges]


def _write(device: Device, start: int, held: Held, content: Sequence[bytes]) -> None:
    for extent, part in zip(held.ranges, content, strict=True):
        for at in range(0, extent.length, _PIECE):
            device.write(start + extent.start + at, part[at : at + _PIECE])


def _sectors(view: View, level: Bytes) -> Bytes:
    return sectors_of(level, len(view.sign))


def _write_sectors(device: Device, start: int, view: View, content: Sequence[bytes], sectors: Bytes) -> None:
    size = len(view.sign)
    for at in sorted(sectors):
        for extent, part in zip(view.held.ranges, content, strict=True):
            if extent.start <= at < extent.end:
                device.write(start + at, part[at - extent.start : at - extent.start + size])
