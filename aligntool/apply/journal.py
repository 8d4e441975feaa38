"""The journal: everything that a resume or a rollback needs, on the disk that is being changed.

In: a Device and a place on it. Out: what was written there before the first byte moved, and how far the work has come.
Alone because it is the one thing that must be readable after any cut.

Two copies, each a head, two slots for records, and a body; the stash of the mover lies behind them. Heads and records
fit in one sector of 512 bytes and carry checksums. A record goes to both copies, into the slot that does not hold the
newest one, so a torn record leaves the one before it. docs/crash-safety.md argues why that is enough.
"""

import hashlib
import secrets
import struct
import zlib
from dataclasses import dataclass

from aligntool.apply.device import Device
from aligntool.apply.journal_body import Contents, pack, unpack
from aligntool.errors import Refused, Stopped
from aligntool.plan import JournalPlace

SLOT = 4096  # heads and records each have a slot of a size that is whole on every disk
RECORD_SLOTS = 2
BODY_AT = SLOT * (1 + RECORD_SLOTS)
SMALLEST_COPY, LONGEST_COPY = 1 << 16, 1 << 30
GRID = 1 << 16  # journals begin on it

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
class _Head:
    copy: int
    id: bytes
    copy_length: int
    body_length: int
    body_digest: bytes


class Journal:
    """Raises OSError where the medium does; every method that returns has made durable what it wrote."""

    def __init__(self, device: Device, at: int, id_: bytes, copy_length: int, contents: Contents) -> None:
        self._device = device
        self._at = at
        self.id = id_
        self._copy_length = copy_length
        self.contents = contents
        self._number = 0
        self.position = Position(0)
        self.damage: tuple[str, ...] = ()

    @classmethod
    def create(
        cls, device: Device, place: JournalPlace, contents: Contents, id_: bytes, first: Position
    ) -> "Journal":
        """Write both copies and read them back.

        Raises Refused when the body does not fit, and when what is read back is not what was written: nothing else
        has been touched then.
        """
        body = pack(contents)
        if BODY_AT + len(body) > place.copy_length:
            raise Refused(f"the journal needs {BODY_AT + len(body)} bytes and its place has {place.copy_length}",
                          hint="aligntool plan realign --journal FILE, on another disk")  # fmt: skip
        journal = cls(device, place.extent.start, id_, place.copy_length, contents)
        digest = hashlib.sha256(body).digest()
        for at in (0, *_copy_lengths(place.extent.length)):  # no head, old or new, over half a body, nor one
            device.write(place.extent.start + at, bytes(SLOT))  # that `open` could take for the second copy's
        device.flush()
        for copy in range(2):
            device.write(journal._slot(copy, 0) + BODY_AT, _padded(body))
        journal.record(first)
        heads = [_sealed(_HEAD.pack(_MAGIC, _VERSION, copy, id_, place.copy_length, len(body), digest))
                 for copy in range(2)]  # fmt: skip
        for copy, head in enumerate(heads):
            device.write(journal._slot(copy, 0), head)
        device.flush()
        if any(
            _read_copy(device, journal._slot(copy, 0), copy) != (_head(heads[copy]), body)
            for copy in range(2)
        ):
            raise Refused(
                "what was written to the journal is not what is read back from it: this disk is failing"
            )
        return journal

    @classmethod
    def open(cls, device: Device, at: int) -> "Journal":
        """The newest state, from either copy. Raises Refused when there is no journal at `at`, or it is damaged."""
        damage = []
        found: list[tuple[_Head, bytes]] = []
        first = _read_copy(device, at, 0)
        lengths = [first[0].copy_length] if first else _copy_lengths(device.size - at)
        if first:
            found.append(first)
        else:
            damage.append(f"the copy of the journal at byte {at} is damaged; the other one is used")
        seconds = ((length, _read_copy(device, at + length, 1)) for length in lengths)
        second = next((it for length, it in seconds if it and it[0].copy_length == length), None)
        if second and (not first or second[0].id == first[0].id):
            found.append(second)
        elif first:
            damage.append(
                f"the copy of the journal at byte {at + lengths[0]} is damaged; the other one is used"
            )
        if not found:
            raise Refused(f"there is no readable journal at byte {at}")
        head, body = found[0]
        journal = cls(device, at, head.id, head.copy_length, unpack(body))
        journal.damage = tuple(damage)
        journal._read_records()
        return journal

    def record(self, position: Position) -> None:
        """Durable when this returns. Writes before it in the same flush are durable, too.

        One copy is enough, so a bad sector in the other one does not keep a disk in flight.
        """
        self._number += 1
        raw = _sealed(
            _RECORD.pack(
                _RECORD_MAGIC, self.id, self._number, position.forward, position.step, position.batch
            )
        )
        self._write_to_either(1 + self._number % RECORD_SLOTS, raw)
        self._device.flush()
        self.position = position

    def close(self) -> None:
        """Wipe the heads and the records: nothing is in flight any more."""
        self._write_to_either(0, bytes(BODY_AT))
        self._device.flush()

    def _write_to_either(self, slot: int, raw: bytes) -> None:
        """To both copies. Raises OSError when neither takes it."""
        failed = []
        for copy in range(2):
            try:
                self._device.write(self._slot(copy, slot), raw)
            except OSError as error:
                failed.append(error)
        if len(failed) == 2:
            raise failed[0]

    def _slot(self, copy: int, slot: int) -> int:
        return self._at + copy * self._copy_length + slot * SLOT

    def _read_records(self) -> None:
        records = []
        for copy in range(2):
            for slot in range(1, 1 + RECORD_SLOTS):
                raw = _unsealed(_read(self._device, self._slot(copy, slot), SLOT))
                if raw is None:
                    continue
                magic, id_, number, forward, step, batch = _RECORD.unpack(raw[: _RECORD.size])
                if magic == _RECORD_MAGIC and id_ == self.id:
                    records.append((number, Position(step, batch, bool(forward))))
        if not records:
            raise Stopped("the journal is there, but none of its records is readable",
                          hint="keep the disk as it is and report this with `aligntool snapshot`")  # fmt: skip
        self._number, self.position = max(records, key=lambda record: record[0])


def new_id() -> bytes:
    return secrets.token_bytes(16)


def is_head(raw: bytes | memoryview) -> bool:
    """Whether a journal's head begins with these bytes."""
    return bytes(raw[: len(_MAGIC)]) == _MAGIC


def _copy_lengths(room: int) -> list[int]:
    """Every length that a copy can have here: what tells is in the damaged head."""
    lengths = []
    length = SMALLEST_COPY
    while length <= LONGEST_COPY and length + SLOT <= room:
        lengths.append(length)
        length *= 2
    return lengths


def _read_copy(device: Device, at: int, copy: int) -> tuple[_Head, bytes] | None:
    head = _head(_read(device, at, SLOT))
    if head is None or head.copy != copy or head.body_length > head.copy_length - BODY_AT:
        return None
    body = _read(device, at + BODY_AT, len(_padded(bytes(head.body_length))))[: head.body_length]
    if hashlib.sha256(body).digest() != head.body_digest:
        return None
    return head, body


def _head(raw: bytes) -> _Head | None:
    content = _unsealed(raw)
    if content is None:
        return None
    magic, version, copy, id_, copy_length, body_length, digest = _HEAD.unpack(content[: _HEAD.size])
    if magic != _MAGIC:
        return None
    if version != _VERSION:
        raise Refused(f"the journal has format {version}; this aligntool reads format {_VERSION}",
                      hint="use the aligntool that began the move, or a newer one")  # fmt: skip
    if not SMALLEST_COPY <= copy_length <= LONGEST_COPY:
        return None
    return _Head(copy, id_, copy_length, body_length, digest)


def _read(device: Device, at: int, length: int) -> bytes:
    """What cannot be read is as good as damaged: the other copy has it."""
    try:
        return bytes(device.read(at, length))
    except OSError:
        return b""


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % SLOT)


def _sealed(raw: bytes) -> bytes:
    """With a checksum at the end of the first 512 bytes, the smallest sector there is."""
    front = raw.ljust(512 - _CHECKSUM.size, b"\0")
    return (front + _CHECKSUM.pack(zlib.crc32(front))).ljust(SLOT, b"\0")


def _unsealed(raw: bytes) -> bytes | None:
    front, checksum = raw[: 512 - _CHECKSUM.size], raw[512 - _CHECKSUM.size : 512]
    if len(checksum) < _CHECKSUM.size or zlib.crc32(front) != _CHECKSUM.unpack(checksum)[0]:
        return None
    return front
