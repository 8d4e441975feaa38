"""Number one marker on the disk, which shows whether a journal in a file and the disk are of the same moment.

A journal on the disk is copied and restored with it. A journal in a file may be an older copy, or the disk
may be: to continue would repeat copies whose source is overwritten, or skip copies that were never made. So
one marker on the disk names the file's newest record, in two lines: the record that is about to be written,
and the one that has been written. Each is flushed before anything else is written. docs/crash-safety.md, "A
journal in a file".
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from aligntool.change import MovePlan
from aligntool.claims import outside
from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.formats.parked import read_or_empty
from aligntool.mover.disk_state import is_complete
from aligntool.mover.hidden_signatures import is_marker, is_mix
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import Position, Record
from aligntool.mover.table import TableImages, TableState, table_state
from aligntool.steps import HoldContent
from aligntool.units import Extent

_LINE = 96  # bytes; two of them follow the text of the marker, and each has a digest, as a write may be torn
_DIGITS = 16


def place_for(plan: MovePlan, images: TableImages, held: Mapping[int, Sequence[bytes]]) -> int | None:
    """Return the byte of a sector of the disk that has a marker while content is copied, or None if the new
    places and the tables take them all: of the partition that is hidden first, and shown last by a rollback.
    `held`: the saved content; that of the sector is not zeros, if possible, which a place that was cleared
    has as well.
    """
    arriving = (*(copy.target for copy in plan.copies), *(release.target for release in plan.releases))
    taken = (*arriving, *(Extent(sectors.at, len(sectors.data)) for sectors in images.sectors))
    size = plan.disk.sector_size
    free = []
    for (index, part), content in zip(_held_parts(plan), _held_content(plan, held), strict=True):
        for left in outside((part,), taken):
            places = range(left.start, left.end, size)
            free += [(index, not any(content[at - part.start :][:size]), at) for at in places]
    return min(free)[2] if free else None


def record(device: Device, journal: Journal, sign: bytes, position: Position) -> None:
    """Write a record of the journal, and name it on the disk before and after. Nothing but a marker is
    overwritten. Raises OSError; a rollback goes on without the number, which a bad sector must not stop.
    """
    at = journal.contents.numbered_at
    newest = journal.newest
    hold = None if at is None else _hold_of(journal.contents.plan, at)
    # the content is about to be restored over the marker
    is_last = position.step == hold and not position.forward
    has_number = hold is not None and (position.step > hold or is_last)
    if at is None or not has_number or not is_marker(read_or_empty(device, at, len(sign)), sign):
        journal.record(position)
        return
    following = journal.following(position)
    _write(device, at, _numbered(sign, newest, following), position)
    journal.record(position)
    _write(device, at, sign if is_last else _numbered(sign, following, following), position)


def refuse_other_age(device: Device, journal: Journal, sign: bytes) -> None:
    """Raise Refused if the disk and the journal, which is a file, are of different moments of the move."""
    at = journal.contents.numbered_at
    if at is not None and _is_of_other_age(device, journal, sign, at):
        text = (
            "the journal file and the disk are of different moments of this move (record"
            f" {journal.newest.number} in the file, byte {at} of the disk): one of them is an older copy"
        )
        hint = (
            "give the file that was named when the move began, not a copy, and the disk as the move left it"
        )
        raise Refused(text, hint=hint, code="wrong-journal")


def _is_of_other_age(device: Device, journal: Journal, sign: bytes, at: int) -> bool:
    """A sector that cannot be read shows nothing, and one that has neither the marker nor the content is of
    another program, as is every sector once the move is complete.
    """
    found = read_or_empty(device, at, len(sign))
    newest = journal.newest
    hold = _hold_of(journal.contents.plan, at)
    step = newest.position.step
    if is_marker(found, sign):
        named = [line for line in _lines_of(found, sign) if line]
        return _line(newest) not in named if named else step != hold
    content = _content_at(journal, at, len(sign))
    is_own = bool(found) and is_mix(found, (content, sign))
    if is_complete(journal):
        shown = table_state(device, journal.contents.images)
        return shown is TableState.PARKED or (is_own and shown is TableState.BEFORE)
    return is_own and (step > hold or (step < hold and found != content))


def _hold_of(plan: MovePlan, at: int) -> int:
    """Return the index of the step that writes the marker at this byte of the disk."""
    return next(index for index, part in _held_parts(plan) if part.contains(Extent(at, 1)))


def _held_parts(plan: MovePlan) -> Iterator[tuple[int, Extent]]:
    for index, step in plan.numbered(HoldContent):
        yield from ((index, Extent(step.source.start + part.start, part.length)) for part in step.held.ranges)


def _held_content(plan: MovePlan, held: Mapping[int, Sequence[bytes]]) -> Iterator[bytes]:
    """Yield the saved bytes of each of `_held_parts`."""
    return (raw for step in plan.holds for raw in held[step.partition])


def _content_at(journal: Journal, at: int, size: int) -> bytes:
    """Return the bytes that the journal has saved of this sector of the disk."""
    plan = journal.contents.plan
    held = journal.contents.held
    parts = zip((part for _, part in _held_parts(plan)), _held_content(plan, held), strict=True)
    return next(raw[at - part.start :][:size] for part, raw in parts if part.contains(Extent(at, 1)))


def _numbered(sign: bytes, written: Record, following: Record) -> bytes:
    return (sign.rstrip(b"\0") + _line(written) + _line(following)).ljust(len(sign), b"\0")


def _lines_of(sector: bytes, sign: bytes) -> Iterator[bytes | None]:
    """Yield both lines of a marker, None for one that is torn or missing."""
    start = len(sign.rstrip(b"\0"))
    for at in (start, start + _LINE):
        line = sector[at : at + _LINE]
        yield line if line == _with_digest(line[: _LINE - _DIGITS - 1]) else None


def _line(of: Record) -> bytes:
    position = of.position
    way = "forward" if position.forward else "back"
    return _with_digest(f"record {of.number} step {position.step} batch {position.batch} {way} ".encode())


def _with_digest(text: bytes) -> bytes:
    padded = text.ljust(_LINE - _DIGITS - 1)
    return padded + hashlib.sha256(padded).hexdigest()[:_DIGITS].encode() + b"\n"


def _write(device: Device, at: int, sector: bytes, position: Position) -> None:
    with suppress(*(() if position.forward else (OSError,))):
        device.write(at, sector)
    device.flush()
