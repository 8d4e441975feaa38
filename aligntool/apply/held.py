"""What would be recognised is taken off the disk while a partition is in flight, and put back last.

In: what the journal holds of a partition. Out: markers at one place, or the content at one place. Alone because of the
order: a keystone is a sector without which blkid recognises nothing. Keystones go first and come last, each time with a
flush between them and the rest, so that at any cut there is nothing to see, or everything.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from aligntool.apply.device import Device
from aligntool.errors import Stopped
from aligntool.plan import Held
from aligntool.units import align_down

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


def mark(device: Device, start: int, held: Held, sign: bytes) -> None:
    """Markers over all that is held of the partition at `start`: the keystones, then the rest, each flushed."""
    blank = _blank(held, sign)
    _mark_keystones(device, start, held, blank)
    _write(device, start, held, blank, but=_keystones(device, held))
    device.flush()


def _mark_keystones(device: Device, start: int, held: Held, blank: Sequence[bytes]) -> None:
    for keystones in _by_weight(device, held):
        _write(device, start, held, blank, only=keystones)
        device.flush()


def take_away(device: Device, start: int, held: Held, content: Sequence[bytes], sign: bytes) -> None:
    """As `mark`, on the way back, where a sector that cannot be written must not bar it.

    Raises OSError only when a keystone can still be read there.
    """
    try:
        mark(device, start, held, sign)
    except OSError:
        for extent in held.ranges:
            for at in range(extent.start, extent.end, device.sector_size):
                with suppress(OSError):
                    device.write(start + at, sign)
        device.flush()
        if _still_there(device, start, held, content):
            raise


def _still_there(device: Device, start: int, held: Held, content: Sequence[bytes]) -> bool:
    for at in _keystones(device, held):
        for extent, part in zip(held.ranges, content, strict=True):
            if extent.start <= at < extent.end:
                with suppress(OSError):
                    found = device.read(start + at, device.sector_size)
                    if found == part[at - extent.start : at - extent.start + device.sector_size]:
                        return True
    return False


def release(device: Device, start: int, held: Held, content: Sequence[bytes], sign: bytes) -> None:
    """The content to the place at `start`: all but the keystones, a flush, the keystones, a flush. Then read back.

    The keystones are marked first, because the place may hold those of a file system of years ago. Raises Stopped when
    what is read back differs.
    """
    _mark_keystones(device, start, held, _blank(held, sign))
    _write(device, start, held, content, but=_keystones(device, held))
    device.flush()
    for keystones in reversed(_by_weight(device, held)):
        _write(device, start, held, content, only=keystones)
        device.flush()
    if read_held(device, start, held) != tuple(content):
        raise Stopped(f"what was put at byte {start} reads back as something else: the disk is failing")


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


def _by_weight(device: Device, held: Held) -> list[frozenset[int]]:
    """The sector that counts most, and the others: md looks at several places, and only one of them is its own."""
    first = frozenset(align_down(byte, device.sector_size) for byte in held.keystones[:1])
    return [first, _keystones(device, held) - first]


def _keystones(device: Device, held: Held) -> frozenset[int]:
    """The sectors, by their offset in the partition."""
    return frozenset(align_down(byte, device.sector_size) for byte in held.keystones)


def _write(
    device: Device,
    start: int,
    held: Held,
    content: Sequence[bytes],
    *,
    only: frozenset[int] | None = None,
    but: frozenset[int] = frozenset(),
) -> None:
    for extent, part in zip(held.ranges, content, strict=True):
        inside = (only if only is not None else but) & frozenset(
            range(extent.start, extent.end, device.sector_size)
        )
        if only is not None:
            for offset in sorted(inside):
                at = offset - extent.start
                device.write(start + offset, part[at : at + device.sector_size])
            continue
        for at, end in _between(
            extent.length, sorted(offset - extent.start for offset in inside), device.sector_size
        ):
            device.write(start + extent.start + at, part[at:end])


def _between(length: int, holes: Sequence[int], sector: int) -> Iterator[tuple[int, int]]:
    """The pieces of [0, length) around the sectors at `holes`, each at most _PIECE long."""
    at = 0
    for hole in (*holes, length):
        while at < hole:
            end = min(at + _PIECE, hole)
            yield at, end
            at = end
        at = hole + sector
