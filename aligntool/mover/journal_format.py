"""Encode and decode the heads and records of a journal, and combine what is left of two damaged copies."""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.formats.parked import read_or_empty
from aligntool.formats.reader import has_data
from aligntool.units import Extent

# The parts of a journal that fit in one sector: heads and records, each with a checksum, and their places in
# a copy.
#
# Which parts share a sector decides what a cut can damage: docs/crash-safety.md, "The journal".

SLOT = 4096  # bytes of the slot of a head or a record: whole sectors on every disk
RECORD_SLOTS = 2
BODY_AT = SLOT * (1 + RECORD_SLOTS)
SMALLEST_COPY = 1 << 16
LONGEST_COPY = 1 << 30

_SECTOR = 512  # bytes of a slot that are used: the smallest sector of any disk
_OWN = b"aligntool "
_MAGIC = b"aligntool journal\n"
_VERSION = 1
OTHER_VERSION = "use the aligntool that began the move, or a newer one"
# magic, version, which copy, id, copy length, body length, body SHA-256
_HEAD = struct.Struct("<18sHB16sQQ32s")
_RECORD = struct.Struct("<18s16sQBIQ")  # magic, id, number, way, step, batch
_RECORD_MAGIC = b"aligntool record_\n"
_TURNED = 2  # added to 1, which says forward: older versions take both for forward
_CHECKSUM = struct.Struct("<I")
_CLOSING = struct.Struct("<18s16sQQ")  # magic, id, start, length
_CLOSING_MAGIC = b"aligntool closing\n"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a move: all steps before `step` are done, and `batch` batches of it. `forward` False: a
    rollback.
    """

    step: int
    batch: int = 0
    forward: bool = True


@dataclass(frozen=True, slots=True)
class Head:
    copy: int
    id: bytes
    copy_length: int
    body_length: int
    body_digest: bytes

    def sealed(self) -> bytes:
        fields = (self.copy, self.id, self.copy_length, self.body_length, self.body_digest)
        return _with_checksum(_HEAD.pack(_MAGIC, _VERSION, *fields))

    def is_twin_of(self, other: "Head") -> bool:
        """Return whether both are heads of the same journal."""
        return self == replace(other, copy=self.copy)


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    position: Position
    turned: bool = False  # forward, and a rollback was begun before: what it undid may be left at new places

    @property
    def slot(self) -> int:
        """Return the slot of a copy that the record is written to last, and version 0.1.0 wrote it to nothing
        else: never that of the record before it.
        """
        return 1 + self.number % RECORD_SLOTS

    @property
    def next_slot(self) -> int:
        """Return the slot of the record after it, which this one is written to first."""
        return 1 + (self.number + 1) % RECORD_SLOTS

    def sealed(self, id_: bytes) -> bytes:
        at = self.position
        way = at.forward + _TURNED * self.turned
        return _with_checksum(_RECORD.pack(_RECORD_MAGIC, id_, self.number, way, at.step, at.batch))


@dataclass(frozen=True, slots=True)
class Closing:
    """The mark of a journal that is not needed any more, or not complete yet, in place of a head: all of the
    journal is zeroed, and the marks last. After a cut in between, a resume zeroes what remains.
    """

    id: bytes
    extent: Extent  # the place of the whole journal

    def sealed(self) -> bytes:
        return _with_checksum(_CLOSING.pack(_CLOSING_MAGIC, self.id, self.extent.start, self.extent.length))


def read_closing(device: Device, at: int) -> Closing | None:
    """Return the mark at `at` of a journal that is being zeroed, or None."""
    content = _without_checksum(read_or_nothing(device, at, _used_length(device)))
    if content is None or not content.startswith(_CLOSING_MAGIC):
        return None
    _, id_, start, length = _CLOSING.unpack(content[: _CLOSING.size])
    extent = Extent(start, length)
    is_own = at in (start, *(start + copy for copy in copy_lengths(length)))
    return Closing(id_, extent) if is_own and extent.end <= device.size else None


def begins_as_own(raw: bytes) -> bool:
    """Return whether the bytes begin like a head or a mark, which may be torn."""
    return raw.startswith(_OWN)


def is_own_slot(raw: bytes) -> bool:
    """Return whether the bytes of a slot are as a head, a record or a mark leaves them, which may be torn."""
    return begins_as_own(raw) and not has_data(raw[_SECTOR:])


def is_head(raw: bytes | memoryview) -> bool:
    """Return whether the bytes begin with the magic of a head."""
    return bytes(raw[: len(_MAGIC)]) == _MAGIC


def read_head(device: Device, at: int, copy: int) -> Head | None:
    """Return the head of copy number `copy` at `at`, or None. Raises Refused for another version."""
    content = _without_checksum(read_or_nothing(device, at, _used_length(device)))
    if content is None:
        return None
    magic, version, *fields = _HEAD.unpack(content[: _HEAD.size])
    if magic != _MAGIC:
        return None
    if version != _VERSION:
        raise Refused(
            f"the journal has format {version}; this aligntool reads format {_VERSION}", hint=OTHER_VERSION
        )
    head = Head(*fields)
    fits = SMALLEST_COPY <= head.copy_length <= LONGEST_COPY
    fits = fits and head.body_length <= head.copy_length - BODY_AT
    return head if fits and head.copy == copy else None


def read_record(device: Device, at: int, id_: bytes) -> Record | None:
    """Return the record of journal `id_` at `at`, or None if it is damaged, unreadable or of another
    journal.
    """
    content = _without_checksum(read_or_nothing(device, at, _used_length(device)))
    if content is None:
        return None
    magic, of, number, way, step, batch = _RECORD.unpack(content[: _RECORD.size])
    if magic != _RECORD_MAGIC or of != id_:
        return None
    return Record(number, Position(step, batch, bool(way)), bool(way & _TURNED))


def read_or_nothing(device: Device, at: int, length: int) -> bytes:
    """Return the bytes, or b"" if they are unreadable or reach beyond the end of the device: they count as
    damaged.
    """
    return b"" if at + length > device.size else read_or_empty(device, at, length)


def _used_length(device: Device) -> int:
    """Return the bytes to read of a slot, the used part in whole sectors: a bad sector after it is not
    damage.
    """
    return max(_SECTOR, device.sector_size)


def _with_checksum(raw: bytes) -> bytes:
    front = raw.ljust(_SECTOR - _CHECKSUM.size, b"\0")
    return (front + _CHECKSUM.pack(zlib.crc32(front))).ljust(SLOT, b"\0")


def _without_checksum(raw: bytes) -> bytes | None:
    front = raw[: _SECTOR - _CHECKSUM.size]
    checksum = raw[_SECTOR - _CHECKSUM.size : _SECTOR]
    if len(checksum) < _CHECKSUM.size or zlib.crc32(front) != _CHECKSUM.unpack(checksum)[0]:
        return None
    return front


# Combining a journal from the intact parts of its two copies.
#
# If the head of one copy and the body of the other are lost, every part still exists once.

COPIES = (0, 1)
_BLOCK = 512
_MOST_CHOICES = 8  # places at which the two bodies differ: 256 digests to try


class NoJournal(Refused):
    """There is no journal at this place."""


class LostPart(Refused):
    """A journal exists, but a part of it is lost in both copies."""


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """A damaged head, body or record, and its correct content."""

    name: str
    copy_at: int  # offset of the copy that it belongs to
    at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class JournalParts:
    head: Head
    body: bytes
    damaged: tuple[DamagedPart, ...]  # bodies before heads

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each damaged part."""
        where = [f"the {part.name} of the journal copy at byte {part.copy_at}" for part in self.damaged]
        return tuple(f"{place} is damaged; it is intact in the other copy" for place in where)


def read_parts(device: Device, at: int) -> JournalParts:
    """Return the parts of the journal at `at`, and those that are damaged in one copy.

    Raises LostPart if a part is lost in both copies, Refused if there is no journal.
    """
    found = False
    for head in _find_heads(device, at):
        found = True
        bodies = [_read_body(device, at, head, copy) for copy in COPIES]
        whole = [_has_digest(body, head) for body in bodies]
        body = bodies[whole.index(True)] if any(whole) else _combine(bodies, head)
        if body is not None:
            return JournalParts(head, body, tuple(_find_damaged(device, at, head, body, whole)))
    if found:
        raise LostPart(
            f"there is no readable journal at byte {at}: both of its copies are damaged at the same place",
            hint="leave the disk as it is; a copy made with ddrescue may contain the missing part",
            code="journal-damaged",
        )
    raise NoJournal(f"there is no readable journal at byte {at}")


def copy_lengths(room: int) -> list[int]:
    """Return every length that a copy can have in `room` bytes, for a search if the head of the first is
    damaged.
    """
    powers = range(SMALLEST_COPY.bit_length() - 1, LONGEST_COPY.bit_length())
    return [1 << power for power in powers if (1 << power) + SLOT <= room]


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % SLOT)


def _find_heads(device: Device, at: int) -> Iterator[Head]:
    head = read_head(device, at, 0)
    if head is not None:
        yield head
        return
    for length in copy_lengths(device.size - at):
        second = read_head(device, at + length, 1)
        if second is not None and second.copy_length == length:
            yield second


def _read_body(device: Device, at: int, head: Head, copy: int) -> bytes:
    """Return the body of a copy, with zeros for unreadable slots."""
    start = at + copy * head.copy_length + BODY_AT
    length = len(padded(bytes(head.body_length)))
    content = read_or_nothing(device, start, length)
    if not content:
        each = (read_or_nothing(device, start + offset, SLOT) for offset in range(0, length, SLOT))
        content = b"".join(block or bytes(SLOT) for block in each)
    return content[: head.body_length]


def _has_digest(body: bytes, head: Head) -> bool:
    return hashlib.sha256(body).digest() == head.body_digest


def _combine(bodies: list[bytes], head: Head) -> bytes | None:
    """Return the body, combined from two copies that have lost different parts, or None if both lost the same
    part.
    """
    first, second = bodies
    blocks = [
        at for at in range(0, head.body_length, _BLOCK) if first[at : at + _BLOCK] != second[at : at + _BLOCK]
    ]
    runs: list[list[int]] = []
    for at in blocks:
        if runs and runs[-1][-1] + _BLOCK == at:
            runs[-1].append(at)
        else:
            runs.append([at])
    parts = [[at] for at in blocks] if len(blocks) <= _MOST_CHOICES else runs
    if len(parts) > _MOST_CHOICES:
        return None
    for choice in product(COPIES, repeat=len(parts)):
        combined = bytearray(bodies[0])
        for copy, part in zip(choice, parts, strict=True):
            combined[part[0] : part[-1] + _BLOCK] = bodies[copy][part[0] : part[-1] + _BLOCK]
        if _has_digest(bytes(combined), head):
            return bytes(combined)
    return None


def _find_damaged(
    device: Device, at: int, head: Head, body: bytes, intact: list[bool]
) -> Iterator[DamagedPart]:
    copies = [at + copy * head.copy_length for copy in COPIES]
    for copy_at, is_whole in zip(copies, intact, strict=True):
        if not is_whole:
            yield DamagedPart("body", copy_at, copy_at + BODY_AT, padded(body))
    for copy, copy_at in zip(COPIES, copies, strict=True):
        found = head_or_none(device, copy_at, copy)
        if found is None or not found.is_twin_of(head):
            yield DamagedPart("head", copy_at, copy_at, replace(head, copy=copy).sealed())


def head_or_none(device: Device, at: int, copy: int) -> Head | None:
    """Return the head of copy number `copy` at `at`, or None if there is none that this aligntool reads."""
    try:
        return read_head(device, at, copy)
    except Refused:  # another version: not a head of this journal
        return None
