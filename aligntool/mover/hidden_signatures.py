"""Hide the signatures of a partition while it is in flight, and restore them at its new place."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Literal

from aligntool.contents import zfs
from aligntool.contents.catalogue import SIGNATURES
from aligntool.contents.md import MD
from aligntool.contents.signatures import Signature
from aligntool.device import Device
from aligntool.errors import Stopped
from aligntool.formats.parked import read_or_empty
from aligntool.steps import SavedRanges
from aligntool.units import KIB, Extent, align_down, merged

# The bytes that recognition depends on, and the order in which they are hidden and restored.
#
# Safety rests on this order: docs/crash-safety.md, "Saved".
#
# Of the signature that `blkid -p` reports, only one byte is changed, alone in its sector, so a torn write
# leaves the signature either unchanged or hidden. All other signatures are hidden before it and restored
# after it:
# as long as anything is recognised, it is recognised by that signature, with everything else whole.

Bytes = frozenset[int]  # offsets in a partition


@dataclass(frozen=True, slots=True)
class SignatureBytes:
    """The signatures in saved bytes. `redundant`: sectors, hidden first. `last`: bytes in levels, each level
    hidden after the one before it. No sector is in two of these sets.
    """

    redundant: Bytes
    last: tuple[Bytes, ...]
    vital: Bytes  # one byte of each signature


@dataclass(frozen=True, slots=True)
class View:
    """The saved bytes of a partition as seen by a program that reads a partition of `length` bytes at `base`.

    `base` counts from the partition's start. If it is not 0, it is the other place of a move so short that
    the two overlap.
    """

    held: SavedRanges
    content: Sequence[bytes]
    length: int
    sign: bytes  # the marker, a sector long
    base: int = 0

    def read(self, at: int, width: int) -> bytes:
        """Return `width` bytes at offset `at`, or b"" unless all of them are saved."""
        for extent, part in zip(self.held.ranges, self.content, strict=True):
            if extent.start <= at and at + width <= extent.end:
                return part[at - extent.start : at - extent.start + width]
        return b""


def signature_bytes(view: View, *others: View) -> SignatureBytes:
    """Return the signatures in the view. `others`: the same bytes as seen from other places; a signature
    recognised from there counts as redundant, unless it shares a sector with one that is hidden last.
    """
    size = len(view.sign)
    own = list(_find_signatures(view))
    elsewhere = [at for other in others for _, at in _find_signatures(other)]
    vital = frozenset((*(at for _, at in own), *elsewhere))
    levels = [sectors_of(level, size) for level in _hidden_last(view, own)]
    # A sector with bytes of two levels goes with the later one.
    levels = [sectors.difference(*levels[number:]) for number, sectors in enumerate(levels, start=1)]
    last = tuple(
        frozenset(at for at in vital if align_down(at, size) in sectors) for sectors in levels if sectors
    )
    return SignatureBytes(sectors_of(vital, size).difference(*levels), last, vital)


def first_vital_byte(view: View) -> int | None:
    """Return the vital byte of the signature that blkid reports, or None if nothing is recognised."""
    return next((at for _, at in _find_signatures(view)), None)


def signature_ranges(view: View) -> Iterator[Extent]:
    """Yield the extent of each signature in the view, counted from the partition's start."""
    for _, pattern, number, at, end in _saved_places(view.held, view.length, view.base):
        if pattern.match(view.content[number], at, end):
            start = view.held.ranges[number].start
            yield Extent(start + at, end - at)


def with_signatures(
    device: Device, start: int, length: int, ranges: Sequence[Extent], sector_size: int
) -> tuple[Extent, ...]:
    """Return the ranges of a partition of `length` bytes with its first sector, and every sector that has a
    part of a signature, so that all of them can be hidden. Raises OSError.
    """
    within = Extent(0, length)
    places = (Extent(at, min(one.width, length - at)) for one in SIGNATURES for at in one.places(length))
    searched = SavedRanges(merged(places, within, sector_size))
    view = View(searched, read_saved(device, start, searched), length, bytes(sector_size))
    return merged((*ranges, *signature_ranges(view), Extent(0, sector_size)), within, sector_size)


def rewrite(
    device: Device, start: int, hidden: SavedRanges, view: View, before_showing: Callable[[], object]
) -> None:
    """Write the content of the view over other content: what is recognised in the ranges of `hidden` is
    hidden first, and these ranges are written last, as when a partition moves. `before_showing`: as of
    `restore_content`. Raises Stopped if a write reads back differently.
    """
    found = replace(view, held=hidden, content=read_saved(device, start, hidden))
    write_markers(device, start, found)
    rest = _without(view.held, hidden)
    write_verified(device, start, rest, _parts_of(view, rest))
    restore_content(device, start, part_of(view, hidden), before_showing=before_showing)


def part_of(view: View, held: SavedRanges) -> View:
    """Return the view of these ranges only, which lie inside of its own."""
    return replace(view, held=held, content=_parts_of(view, held))


def _without(held: SavedRanges, hidden: SavedRanges) -> SavedRanges:
    """Return the parts of the ranges that are not in `hidden`, whose ranges lie inside of them."""
    left = []
    for extent in held.ranges:
        start = extent.start
        for other in hidden.ranges:
            if extent.contains(other):
                left.append(Extent(start, other.start - start))
                start = other.end
        left.append(Extent(start, extent.end - start))
    return SavedRanges(tuple(part for part in left if part.length))


def _parts_of(view: View, held: SavedRanges) -> tuple[bytes, ...]:
    return tuple(view.read(extent.start, extent.length) for extent in held.ranges)


def has_signature(view: View, signature: Signature) -> bool:
    """Return whether a signature is in the view."""
    return any(found is signature for found, _ in _find_signatures(view))


def with_markers(view: View, sectors: Bytes, hidden: Bytes) -> tuple[bytes, ...]:
    """Return the saved bytes with these sectors and these single bytes replaced by the marker's."""
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


def _hidden_last(view: View, found: Sequence[tuple[Signature, int]]) -> tuple[Bytes, ...]:
    """Return the bytes to be hidden last, in levels: one byte of the signature that blkid reports.

    For a mirror of md with its superblock at the end: that superblock, then what is recognised without it,
    which is whole; the other way round, the member would be recognised while the superblock of its content is
    a marker.

    For ZFS: the newest uberblocks of the first label, as few as libblkid requires, then the list of names
    (nvlist) in that label.
    """
    if not found:
        return ()
    signature, at = found[0]
    below = _mirrored_below(view, found)
    if below is not None:
        return (frozenset({at}), frozenset({below}))
    if signature not in (zfs.NVLIST, zfs.UBERBLOCK):
        return (frozenset({at}),)
    labels = [at for one, at in found if one is zfs.NVLIST]
    blocks = [at for one, at in found if one is zfs.UBERBLOCK]
    blocks.sort(key=lambda at: (at >= zfs.LABEL, -_transaction_group(view, at), at))
    return (frozenset(blocks[: zfs.UBERBLOCKS_WANTED]), frozenset(labels[:1]))


def _mirrored_below(view: View, found: Sequence[tuple[Signature, int]]) -> int | None:
    """Return the vital byte of the content of a member of md that is a mirror and has its superblock at the
    end, or None. Of other levels, content that is recognised on a member is not whole.

    Level: md(4), struct mdp_superblock_1 (byte 72) of version 1.0 and mdp_super_t (word 7) of 0.90.
    """
    signature, at = found[0]
    if signature.kind != MD.name:
        return None
    start = align_down(at, 4 * KIB)
    version = view.read(start + 4, 4)
    is_little = view.read(start, 1) == b"\xfc"
    order: Literal["little", "big"] = "little" if is_little else "big"
    level = view.read(start + (72 if int.from_bytes(version, order) else 28), 4)
    if int.from_bytes(level, order) != 1:
        return None
    return next((other for one, other in found if one.kind != signature.kind and other < start), None)


def _transaction_group(view: View, at: int) -> int:
    """Return the transaction group of an uberblock: ub_txg, 16 bytes after the start of its magic, in the
    byte order of the pool.
    """
    start = align_down(at, KIB)
    is_little = view.read(start, 1) == b"\x0c"
    return int.from_bytes(view.read(start + 16, 8), "little" if is_little else "big")


def _find_signatures(view: View) -> Iterator[tuple[Signature, int]]:
    """Yield each signature that is present, and its vital byte."""
    for signature, pattern, number, at, end in _saved_places(view.held, view.length, view.base):
        match = pattern.match(view.content[number], at, end)
        if match:
            # The vital byte must differ from the marker's, or hiding it would change nothing.
            found = match[0]
            sign = view.sign
            start = view.held.ranges[number].start + at
            candidates = range(len(found)) if signature.vital is None else (signature.vital,)
            differing = (
                start + index for index in candidates if found[index] != sign[(start + index) % len(sign)]
            )
            yield from ((signature, vital) for vital in islice(differing, 1))


@lru_cache(maxsize=64)
def _saved_places(
    held: SavedRanges, length: int, base: int
) -> Sequence[tuple[Signature, re.Pattern[bytes], int, int, int]]:
    """Return every place in saved bytes where a partition of this length at `base` may have a signature: its
    pattern, the number of the range, and start and end in it.

    Cached: a move calls this a thousand times, and there are some 800 places.
    """
    places = ((one, base + at) for one in SIGNATURES for at in one.places(length))
    return [
        (one, one.pattern, number, at - extent.start, at - extent.start + one.width)
        for one, at in places
        for number, extent in enumerate(held.ranges)
        if extent.start <= at and at + one.width <= extent.end
    ]


# Everything that could be recognised is removed from the disk while a partition is in flight, and restored
# last.
#
# The order matters: the bytes that recognition depends on are hidden first and restored last, each time
# separated from the rest by a flush and a read-back, so after a cut at any moment either nothing is
# recognised or the whole content.

_PIECE = 1 << 17
_LEAST_TEXT = 16  # bytes of a marker that no program writes by chance


def marker(sector_size: int, journal_at: int | None, id_: bytes) -> bytes:
    """Return the marker, a sector of readable text that no program recognises. `journal_at` None: in a
    file.
    """
    where = "in a file elsewhere" if journal_at is None else f"at byte {journal_at}"
    text = (
        "aligntool: a partition was here or will be; it is in flight.\n"
        "Do not repair or format it. Type: aligntool resume DISK\n"
        f"journal {id_.hex()} {where}\n"
    )
    return text.encode().ljust(sector_size, b"\0")


def is_marker(sector: bytes, sign: bytes) -> bool:
    """Return whether a sector is the marker `sign`, which may have a number, or a flipped bit."""
    text = sign.rstrip(b"\0")
    return is_mix(sector[: len(text)], (text,), flipped=True)


def is_mix(sector: bytes, known: Sequence[bytes], *, flipped: bool = False) -> bool:
    """Return whether each byte is that of one of the known sectors: a write of one over another was torn.
    `flipped`: but for one bit, as a disk or memory that fails leaves it; a program changes more.
    """
    both = zip(sector, zip(*known, strict=True), strict=True)
    others = list(islice(((byte, choices) for byte, choices in both if byte not in choices), 2))
    if len(others) == 1 and flipped:
        byte, choices = others[0]
        return any((byte ^ one).bit_count() == 1 for one in choices)
    return not others


def has_marker_text(sector: bytes, contents: Sequence[bytes], sign: bytes, *, byte: bool) -> bool:
    """Return whether a sector has a piece of the marker's text that none of these contents has there. `byte`:
    in one of them, with nothing else in it, also a single byte, as a byte of a signature is hidden, or a
    write was torn. Otherwise single bytes of the text prove nothing, nor the zeros behind it: a program may
    have written them.
    """
    text = sign.rstrip(b"\0")
    own = [
        at for at, one in enumerate(text) if sector[at] == one and all(each[at] != one for each in contents)
    ]
    if byte and any(is_mix(sector, (content, sign)) for content in contents):
        return bool(own)
    pieces = ((at, at + _LEAST_TEXT) for at in own if at + _LEAST_TEXT <= len(text))
    return any(sector[start:end] == text[start:end] for start, end in pieces)


def read_saved(device: Device, start: int, held: SavedRanges) -> tuple[bytes, ...]:
    return tuple(bytes(device.read(start + extent.start, extent.length)) for extent in held.ranges)


def write_markers(device: Device, start: int, view: View, *others: View) -> None:
    """Write markers over all saved bytes of the partition at `start`: the signatures, flush, then the rest,
    flush.

    Raises Stopped if a signature can still be read after the first flush: nothing else was written then.
    """
    _hide(device, start, view, signature_bytes(view, *others))
    _write_ranges(device, start, view.held, _markers(view.held, view.sign))
    device.flush()


def _hide(device: Device, start: int, view: View, signs: SignatureBytes) -> None:
    if signs.redundant:
        _write_sectors(device, start, view, _markers(view.held, view.sign), signs.redundant)
        _check_hidden(device, start, view, signs.vital - frozenset().union(*signs.last))
    hidden: Bytes = frozenset()
    for level in signs.last:
        hidden |= level
        _write_sectors(
            device, start, view, with_markers(view, signs.redundant, hidden), _sectors(view, level)
        )
        _check_hidden(device, start, view, level)


def _check_hidden(device: Device, start: int, view: View, vital: Bytes) -> None:
    device.flush()
    if _is_still_readable(device, start, view, vital):
        raise Stopped(f"data written at byte {start} reads back differently: the disk is failing")


def write_markers_despite_errors(device: Device, start: int, view: View, *others: View) -> None:
    """Write the markers as `write_markers` does, for a rollback, which an unwritable sector must not stop.

    Raises OSError only if a signature can still be read there.
    """
    try:
        write_markers(device, start, view, *others)
    except OSError:
        for extent in view.held.ranges:
            for at in range(extent.start, extent.end, len(view.sign)):
                with suppress(OSError):
                    device.write(start + at, view.sign)
        device.flush()
        if _is_still_readable(device, start, view, signature_bytes(view, *others).vital):
            raise


def _is_still_readable(device: Device, start: int, view: View, vital: Bytes) -> bool:
    for at in vital:
        with suppress(OSError):
            size = len(view.sign)
            sector = align_down(at, size)
            if bytes(device.read(start + sector, size))[at - sector] == view.read(at, 1)[0]:
                return True
    return False


def restore_content(
    device: Device, start: int, view: View, *others: View, before_showing: Callable[[], object]
) -> None:
    """Restore the content at `start`: all but its signatures, then the signatures, each flushed and read
    back. `before_showing` is called in between.

    An old file system that is still recognised at that place is hidden first. Raises Stopped if the data
    reads back differently; until the signatures are written, nothing is recognised.
    """
    _hide_recognised(device, start, view, lambda _: True)
    signs = signature_bytes(view, *others)
    hidden: Bytes = frozenset().union(*signs.last)
    write_verified(device, start, view.held, with_markers(view, signs.redundant, hidden))
    before_showing()
    for level in reversed(signs.last):
        hidden -= level
        _show(device, start, view, with_markers(view, signs.redundant, hidden), _sectors(view, level))
    if signs.redundant:
        _show(device, start, view, view.content, signs.redundant)


def _show(device: Device, start: int, view: View, content: Sequence[bytes], sectors: Bytes) -> None:
    """Write these sectors of the content, by which it is recognised. Raises Stopped if anything reads back
    differently; a sector with a flipped bit is hidden again then, as it must not be used.
    """
    _write_sectors(device, start, view, content, sectors)
    try:
        _check_written(device, start, view.held, content)
    except Stopped:
        size = len(view.sign)
        written = replace(view, content=content)
        for at in sectors:
            found = bytes(device.read(start + at, size))
            wanted = written.read(at, size)
            if found != wanted and is_mix(found, (wanted,), flipped=True):
                device.write(start + at, view.sign)
        device.flush()
        raise


def is_visible(device: Device, start: int, view: View) -> bool:
    """Return whether a byte that is hidden last, and shown first, is there: then so is all the rest of the
    content at `start`, but for redundant signatures, or a program that used it has changed it.
    """
    size = len(view.sign)
    for byte in frozenset().union(*signature_bytes(view).last):
        at = align_down(byte, size)
        sector = read_or_empty(device, start + at, size)
        if sector and not is_marker(sector, view.sign) and sector[byte - at] == view.read(byte, 1)[0]:
            return True
    return False


def restore_signatures(device: Device, start: int, view: View, *others: View) -> None:
    """Restore signatures that are still hidden although the content is visible: bytes of the signatures that
    are shown first, and redundant ones. Nothing else is written, as the content may be used: a byte only into
    a sector that is otherwise as it was hidden. Raises Stopped if one is hidden still.
    """
    size = len(view.sign)
    signs = signature_bytes(view, *others)
    hidden = replace(view, content=with_markers(view, frozenset(), frozenset().union(*signs.last)))
    for level in reversed(signs.last):
        for byte in sorted(level):
            at = align_down(byte, size)
            sector = bytes(device.read(start + at, size))
            known = view.read(at, size), hidden.read(at, size)
            if is_mix(sector, known) and sector[byte - at] != known[0][byte - at]:
                device.write(start + at, sector[: byte - at] + view.read(byte, 1) + sector[byte - at + 1 :])
        device.flush()
    content = {at: view.read(at, size) for at in sorted(signs.redundant)}
    for at in _half_hidden(device, start, content, view.sign):
        device.write(start + at, content[at])
    device.flush()
    if _half_hidden(device, start, content, view.sign):
        raise Stopped(f"data restored at byte {start} reads back differently: the disk is failing")


def _half_hidden(device: Device, start: int, content: Mapping[int, bytes], sign: bytes) -> list[int]:
    """Return the sectors that have a marker, or both a marker and content, as one was half written over the
    other.
    """
    return [
        at
        for at, own in content.items()
        if _is_half_hidden(bytes(device.read(start + at, len(own))), own, sign)
    ]


def _is_half_hidden(sector: bytes, content: bytes, sign: bytes) -> bool:
    for first, rest in ((content, sign), (sign, content)):
        same = next((at for at, byte in enumerate(sector) if byte != first[at]), len(sector))
        if sector != content and sector[same:] == rest[same:]:
            return True
    return is_marker(sector, sign)


def write_verified(device: Device, start: int, held: SavedRanges, content: Sequence[bytes]) -> None:
    """Write bytes of a partition that no table shows, flush and read back. Raises Stopped if they differ."""
    _write_ranges(device, start, held, content)
    _check_written(device, start, held, content)


def _check_written(device: Device, start: int, held: SavedRanges, content: Sequence[bytes]) -> None:
    """Flush and verify what was written: no other write may follow one that was lost."""
    device.flush()
    if read_saved(device, start, held) != tuple(content):
        raise Stopped(f"data restored at byte {start} reads back differently: the disk is failing")


def hide_in_free_space(device: Device, start: int, view: View, occupied: Sequence[Extent]) -> None:
    """Hide what is recognised at the place at `start`, except in sectors that belong to an extent of
    `occupied`.

    Free space reads as zero, except where the user named bytes. The remains of an old file system in them
    would be recognised until the move is complete, if it began where the partition will, and not where the
    named bytes do.
    """
    size = len(view.sign)
    _hide_recognised(
        device,
        start,
        view,
        lambda at: not any(extent.overlaps(Extent(start + at, size)) for extent in occupied),
    )


def _hide_recognised(device: Device, start: int, view: View, is_allowed: Callable[[int], bool]) -> None:
    places = ((start + extent.start, extent.length) for extent in view.held.ranges)
    # Unreadable bytes are not recognised, and will be overwritten.
    content = tuple(read_or_empty(device, at, length) or bytes(length) for at, length in places)
    found = View(view.held, content, view.length, view.sign)
    signs = signature_bytes(found)
    hidden: Bytes = frozenset()
    for level in (frozenset(), *signs.last):
        hidden |= level
        allowed = frozenset(filter(is_allowed, _sectors(view, level) if level else signs.redundant))
        if allowed:
            _write_sectors(device, start, view, with_markers(found, signs.redundant, hidden), allowed)
            device.flush()


def _markers(held: SavedRanges, sign: bytes) -> list[bytes]:
    return [sign * (extent.length // len(sign)) for extent in held.ranges]


def _write_ranges(device: Device, start: int, held: SavedRanges, content: Sequence[bytes]) -> None:
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
