"""What would be recognised is taken off the disk while a partition is in flight, and put back last.

In: what the journal holds of a partition. Out: markers at one place, or the content at one place. Alone because of the
order: what recognition depends on (`veil`) goes first and comes last, each time with a flush and a look between
them and the rest, so that at any cut there is nothing to see, or everything.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from aligntool.apply.device import Device
from aligntool.apply.veil import Bytes, Signs, View, sectors_of, signs_of, veiled
from aligntool.errors import Stopped
from aligntool.plan import Held
from aligntool.units import Extent, align_down

_PIECE = 1 << 17


def marker(sector_size: int, journal_at: int | None, id_: bytes) -> bytes:
    """A sector that no program recognises, and a person does."""
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
    """Markers over all that is held of the partition at `start`: its signatures, then the rest, each flushed.

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
    """As `mark`, on the way back, where a sector that cannot be written must not bar it.

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
    """The content to the place at `start`: all but its signatures, then the signatures, each flushed and read back.

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


def _check(device: Device, start: int, held: Held, content: Sequence[bytes]) -> None:
    """Nothing may follow what has not landed."""
    device.flush()
    if read_held(device, start, held) != tuple(content):
        raise Stopped(f"what was put at byte {start} reads back as something else: the disk is failing")


def clear_free(device: Device, start: int, view: View, occupied: Sequence[Extent]) -> None:
    """Markers over what is recognised at the place at `start` and belongs to nothing in `occupied`.

    Left over from years ago, it would be seen there until the move is done.
    """
    size = len(view.sign)
    _clear(
        device, start, view, lambda at: not any(one.overlaps(Extent(start + at, size)) for one in occupied)
    )


def _clear(device: Device, start: int, view: View, may: Callable[[int], bool]) -> None:
    content = tuple(_readable(device, start, extent) for extent in view.held.ranges)
    there = View(view.held, content, view.length, view.sign)
    signs = signs_of(there)
    hidden: Bytes = frozenset()
    for level in (frozenset(), *signs.last):
        hidden |= level
        wanted = frozenset(filter(may, _sectors(view, level) if level else signs.redundant))
        if wanted:
            _write_sectors(device, start, view, veiled(there, signs.redundant, hidden), wanted)
            device.flush()


def _readable(device: Device, start: int, extent: Extent) -> bytes:
    """What cannot be read is not recognised, and will be written to."""
    try:
        return bytes(device.read(start + extent.start, extent.length))
    except OSError:
        return bytes(extent.length)


def check_untouched(device: Device, start: int, held: Held, content: Sequence[bytes], sign: bytes) -> None:
    """Before anything is marked: the partition is as the journal holds it, but for markers that a cut left there.

    Raises Stopped when somebody else has written to it since.
    """
    for extent, was, found in zip(held.ranges, content, read_held(device, start, held), strict=True):
        if was == found:
            continue
        size = len(sign)
        for at in range(0, extent.length, size):
            sector = found[at : at + size]
            if sector not in (was[at : at + size], sign) and not _torn(sector, was[at : at + size], sign):
                raise Stopped(
                    f"byte {start + extent.start + at} was changed by another program since the journal was written",
                    hint="aligntool rollback DISK, then check the file system and begin anew",
                )


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
