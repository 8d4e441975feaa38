"""The parts of a journal that fit in one sector: heads and records, each with a checksum, and their places in a copy.

In: fields. Out: a sealed sector, and the fields back or nothing. Alone because what a cut can damage is decided by what
lies in which sector: docs/crash-safety.md, "The journal".
"""

import struct
import zlib
from dataclasses import dataclass

from aligntool.apply.device import Device
from aligntool.errors import Refused

SLOT = 4096  # heads and records each have a slot of a size that is whole on every disk
RECORD_SLOTS = 2
BODY_AT = SLOT * (1 + RECORD_SLOTS)
SMALLEST_COPY, LONGEST_COPY = 1 << 16, 1 << 30

_SECTOR = 512  # of a slot, what is used: the smallest sector that there is
_MAGIC = b"aligntool journal\n"
_VERSION = 1
_HEAD = struct.Struct(
    "<18sHB16sQQ32s"
)  # magic, version, which copy, id, copy length, body length, body SHA-256
_RECORD = struct.Struct("<18s16sQBIQ")  # magic, id, number, forward, step, batch
_RECORD_MAGIC = b"aligntool record_\n"
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Position:
    """All steps before `step` are done, and `batch` batches of it; `forward` False: being taken back."""

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
        return (self.id, self.copy_length, self.body_length, self.body_digest) == (
            other.id, other.copy_length, other.body_length, other.body_digest,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    position: Position

    @property
    def slot(self) -> int:
        """The slot of a copy that it belongs in: never that of the record before it."""
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
    """Return what is there; nothing where it cannot be read or the disk has ended, which is as good as damaged."""
    if at + length > device.size:
        return b""
    try:
        return bytes(device.read(at, length))
    except OSError:
        return b""


def _whole_sectors(device: Device) -> int:
    """A bad sector in the unused part of a slot is no damage."""
    return max(_SECTOR, device.sector_size)


def _sealed(raw: bytes) -> bytes:
    front = raw.ljust(_SECTOR - _CHECKSUM.size, b"\0")
    return (front + _CHECKSUM.pack(zlib.crc32(front))).ljust(SLOT, b"\0")


def _unsealed(raw: bytes) -> bytes | None:
    front, checksum = raw[: _SECTOR - _CHECKSUM.size], raw[_SECTOR - _CHECKSUM.size : _SECTOR]
    if len(checksum) < _CHECKSUM.size or zlib.crc32(front) != _CHECKSUM.unpack(checksum)[0]:
        return None
    return front
