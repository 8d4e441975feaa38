"""Heads, records and parts of a journal: bytes to values, damage and recovery."""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.formats.parked import or_nothing

# The parts of a journal that fit in one sector: heads and records, each with a checksum, and their places in
# a copy.
#
# What a cut can damage is decided by what lies in which sector: docs/crash-safety.md, "The journal".

SLOT = 4096  # heads and records each have a slot of a size that is whole on every disk
RECORD_SLOTS = 2
BODY_AT = SLOT * (1 + RECORD_SLOTS)
SMALLEST_COPY, LONGEST_COPY = 1 << 16, 1 << 30

_SECTOR = 512  # of a slot, what is used: the smallest sector that there is
_MAGIC = b"aligntool journal\n"
_VERSION = 1
_HEAD = struct.Struct("<18sHB16sQQ32s")  # magic, version, which copy, id, copy length, body length, body SHA-256
_RECORD = struct.Struct("<18s16sQBIQ")  # magic, id, number, forward, step, batch
_RECORD_MAGIC = b"aligntool record_\n"
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Position:
    """All steps before `step` are done, and `batch` batches of it; `forward` False: a rollback."""

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
        return _sealed(_HEAD.pack(_MAGIC, _VERSION, *fields))

    def is_twin_of(self, other: "Head") -> bool:
        """Return whether both are heads of one journal."""
        return self == replace(other, copy=self.copy)


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    position: Position

    @property
    def slot(self) -> int:
        """Return the slot of a copy that it belongs in: never that of the record before it."""
        return 1 + self.number % RECORD_SLOTS

    def sealed(self, id_: bytes) -> bytes:
        at = self.position
        return _sealed(_RECORD.pack(_RECORD_MAGIC, id_, self.number, at.forward, at.step, at.batch))


def is_head(raw: bytes | memoryview) -> bool:
    """Return whether a journal's head begins with these bytes."""
    return bytes(raw[: len(_MAGIC)]) == _MAGIC


def read_head(device: Device, at: int, copy: int) -> Head | None:
    """Return the head of that copy at `at`, None where there is none. Raises Refused for another version."""
    content = _unsealed(read_or_nothing(device, at, _whole_sectors(device)))
    if content is None:
        return None
    magic, version, *fields = _HEAD.unpack(content[: _HEAD.size])
    if magic != _MAGIC:
        return None
    if version != _VERSION:
        raise Refused(f"the journal has format {version}; this aligntool reads format {_VERSION}",
                      hint="use the aligntool that began the move, or a newer one")  # fmt: skip
    head = Head(*fields)
    fits = SMALLEST_COPY <= head.copy_length <= LONGEST_COPY
    fits = fits and head.body_length <= head.copy_length - BODY_AT
    return head if fits and head.copy == copy else None


def read_record(device: Device, at: int, id_: bytes) -> Record | None:
    """Return the record of journal `id_` at `at`; None where it is damaged, unreadable or of another journal."""
    content = _unsealed(read_or_nothing(device, at, _whole_sectors(device)))
    if content is None:
        return None
    magic, of, number, forward, step, batch = _RECORD.unpack(content[: _RECORD.size])
    if magic != _RECORD_MAGIC or of != id_:
        return None
    return Record(number, Position(step, batch, bool(forward)))


def read_or_nothing(device: Device, at: int, length: int) -> bytes:
    """Return the bytes; nothing where the medium is unreadable or has ended, which counts as damaged."""
    return b"" if at + length > device.size else or_nothing(device, at, length)


def _whole_sectors(device: Device) -> int:
    """Return the bytes of a slot in use: a bad sector in its unused part is not damage."""
    return max(_SECTOR, device.sector_size)


def _sealed(raw: bytes) -> bytes:
    front = raw.ljust(_SECTOR - _CHECKSUM.size, b"\0")
    return (front + _CHECKSUM.pack(zlib.crc32(front))).ljust(SLOT, b"\0")


def _unsealed(raw: bytes) -> bytes | None:
    front, checksum = raw[: _SECTOR - _CHECKSUM.size], raw[_SECTOR - _CHECKSUM.size : _SECTOR]
    if len(checksum) < _CHECKSUM.size or zlib.crc32(front) != _CHECKSUM.unpack(checksum)[0]:
        return None
    return front


# A journal put together again from what is left of its two copies.
#
# Damage is not tidy: the head of one copy and the body of the other may be gone, and then every part is there once.

COPIES = (0, 1)
_BLOCK = 512
_MOST_CHOICES = 8  # places at which the two bodies differ: 256 digests to try


class LostPart(Refused):
    """A journal exists, and a part of it is lost in both copies."""


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """A damaged head, body or record, and its right content."""

    name: str
    copy_at: int  # byte at which its copy begins
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
        where = [f"the {part.name} of the copy of the journal at byte {part.copy_at}" for part in self.damaged]
        return tuple(f"{each} is damaged; the other copy has it" for each in where)


def read_parts(device: Device, at: int) -> JournalParts:
    """Return the journal at `at` with what is damaged of it. Raises Refused where a part is lost in both copies."""
    found = False
    for head in _heads(device, at):
        found = True
        bodies = [_body(device, at, head, copy) for copy in COPIES]
        whole = [_is_body(body, head) for body in bodies]
        body = bodies[whole.index(True)] if any(whole) else _put_together(bodies, head)
        if body is not None:
            return JournalParts(head, body, tuple(_damaged(device, at, head, body, whole)))
    if found:
        raise LostPart(f"there is no readable journal at byte {at}: both of its copies are damaged at the same place",
                      hint="keep the disk as it is; a copy made with ddrescue may have what is missing",
                        code="journal-damaged")  # fmt: skip
    raise Refused(f"there is no readable journal at byte {at}")


def copy_lengths(room: int) -> list[int]:
    """Return every length that a copy can have here, for a damaged head."""
    powers = range(SMALLEST_COPY.bit_length() - 1, LONGEST_COPY.bit_length())
    return [1 << power for power in powers if (1 << power) + SLOT <= room]


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % SLOT)


def _heads(device: Device, at: int) -> Iterator[Head]:
    first = read_head(device, at, 0)
    if first is not None:
        yield first
        return
    for length in copy_lengths(device.size - at):
        second = read_head(device, at + length, 1)
        if second is not None and second.copy_length == length:
            yield second


def _body(device: Device, at: int, head: Head, copy: int) -> bytes:
    """Return the body with zeros for unreadable sectors."""
    start = at + copy * head.copy_length + BODY_AT
    length = len(padded(bytes(head.body_length)))
    whole = read_or_nothing(device, start, length)
    if not whole:
        each = (read_or_nothing(device, start + offset, SLOT) for offset in range(0, length, SLOT))
        whole = b"".join(block or bytes(SLOT) for block in each)
    return whole[: head.body_length]


def _is_body(body: bytes, head: Head) -> bool:
    return hashlib.sha256(body).digest() == head.body_digest


def _put_together(bodies: list[bytes], head: Head) -> bytes | None:
    """Return a body of which each copy has lost another part; None where both have lost the same part."""
    one, other = bodies
    blocks = [at for at in range(0, head.body_length, _BLOCK) if one[at : at + _BLOCK] != other[at : at + _BLOCK]]
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
        made = bytearray(bodies[0])
        for copy, part in zip(choice, parts, strict=True):
            made[part[0] : part[-1] + _BLOCK] = bodies[copy][part[0] : part[-1] + _BLOCK]
        if _is_body(bytes(made), head):
            return bytes(made)
    return None


def _damaged(device: Device, at: int, head: Head, body: bytes, whole: list[bool]) -> Iterator[DamagedPart]:
    copies = [at + copy * head.copy_length for copy in COPIES]
    for copy_at, is_whole in zip(copies, whole, strict=True):
        if not is_whole:
            yield DamagedPart("body", copy_at, copy_at + BODY_AT, padded(body))
    for copy, copy_at in zip(COPIES, copies, strict=True):
        found = head_or_none(device, copy_at, copy)
        if found is None or not found.is_twin_of(head):
            yield DamagedPart("head", copy_at, copy_at, replace(head, copy=copy).sealed())


def head_or_none(device: Device, at: int, copy: int) -> Head | None:
    """Return the head of that copy, None where there is none that this aligntool reads."""
    try:
        return read_head(device, at, copy)
    except Refused:  # of another version: not of this journal
        return None
