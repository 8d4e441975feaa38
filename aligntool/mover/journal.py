"""Write and read the journal of a move, on the disk or in a file: its two copies, their records and body."""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import AnyStr

from aligntool.change import MovePlan, from_json, move_plan, to_json
from aligntool.claims import outside
from aligntool.device import Device, Sectors, Writing, zero
from aligntool.documents import count_values, parse_json
from aligntool.errors import JournalUnwritten, Refused, refuse_folder_name
from aligntool.formats.reader import has_data
from aligntool.linux.block import DiskDevice
from aligntool.linux.files import volatile_kind
from aligntool.linux.lock import MOUNT_FOR_WRITING
from aligntool.linux.outputs import new_file, open_place, remove_if_same
from aligntool.mover import journal_format
from aligntool.mover.journal_format import (
    BODY_AT,
    COPIES,
    OTHER_VERSION,
    RECORD_SLOTS,
    SLOT,
    DamagedPart,
    Head,
    Position,
    Record,
)
from aligntool.mover.table import TableImages
from aligntool.steps import JournalPlace
from aligntool.units import MIB, Extent, align_down, format_about

# The body of a journal: its contents packed into bytes, and unpacked.
#
# Like every format, it is tested on its own.

_LENGTH = struct.Struct("<Q")
_RUN = struct.Struct("<QQ")
LONGEST = 1 << 30  # bytes unpacked; a damaged length must not fill memory
_LONGEST_INDEX = 16 << 20  # bytes of plan, extents and lengths; refused when a journal is written with more
# of the index, likewise: a few KiB on the disk unpack to as many as fit into these bytes
_MOST_VALUES = 500_000

_KEYS = frozenset({"plan", "images", "runs", "held"})
_NUMBERED = "numbered_at"
_RECOGNISED = "recognised"
_BROUGHT = "brought"
_STATES = ("before", "parked", "after")


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a journal. By partition number: `runs`, the extents to copy, counted from the
    partition's start, and `held`, the saved bytes as read from the old place.
    """

    plan: MovePlan
    images: TableImages
    runs: Mapping[int, tuple[Extent, ...]]
    held: Mapping[int, tuple[bytes, ...]]
    # byte of the disk; only with a journal in a file (mover/numbered_marker.py)
    numbered_at: int | None = None
    # in the change's own bytes (mover/newcomers.py); None: an older journal
    recognised: tuple[str, ...] | None = None
    brought: Mapping[int, tuple[str, ...]] | None = None  # likewise, by old place, once its content is hidden


def pack(contents: Contents) -> bytes:
    blobs: list[bytes] = []
    index: dict[str, object] = {
        "plan": to_json(contents.plan),
        "images": {name: _append_images(getattr(contents.images, name), blobs) for name in _STATES},
        "runs": [[number, _append_blob(_pack_runs(runs), blobs)] for number, runs in contents.runs.items()],
        "held": [
            [number, [_append_blob(part, blobs) for part in parts]] for number, parts in contents.held.items()
        ],
    }
    if contents.numbered_at is not None:
        index[_NUMBERED] = contents.numbered_at
    if contents.recognised is not None:
        index[_RECOGNISED] = contents.recognised
    if contents.brought is not None:
        index[_BROUGHT] = list(contents.brought.items())
    text = json.dumps(index).encode()
    if len(text) > _LONGEST_INDEX or count_values(text) > _MOST_VALUES:
        raise Refused(
            "the plan has too many parts for one journal", hint="move fewer partitions at once: --partition"
        )
    return zlib.compress(b"".join((_LENGTH.pack(len(text)), text, *blobs)), 1)


def unpack(body: bytes, disk_size: int) -> Contents:
    """Return the contents of a packed body; the caller has checked its digest. `disk_size`: what it holds is
    from that disk, before and after, so a body that unpacks to much more is not a journal. Raises Refused for
    another version.
    """
    try:
        return _unpack(body, min(LONGEST, 2 * disk_size + _LONGEST_INDEX))
    except (
        LookupError,
        OverflowError,
        TypeError,
        ValueError,
        RecursionError,
        Refused,
        struct.error,
        zlib.error,
    ) as error:
        raise Refused(
            "the journal was written by another version of aligntool", hint=OTHER_VERSION
        ) from error


@lru_cache(1)  # a command opens its journal several times
def _unpack(body: bytes, longest: int) -> Contents:
    raw = zlib.decompressobj().decompress(body, longest)
    length = _LENGTH.unpack(raw[: _LENGTH.size])[0]
    if length > _LONGEST_INDEX:
        raise ValueError
    index = parse_json(_with_few_values(raw[_LENGTH.size : _LENGTH.size + length]))
    blobs = BytesIO(raw)  # in the order in which they were written
    blobs.seek(_LENGTH.size + length)
    if set(index) - {_NUMBERED, _RECOGNISED, _BROUGHT} != _KEYS:
        raise ValueError
    images = TableImages(*(_read_images(index["images"][name], blobs) for name in _STATES))
    runs = {number: _unpack_runs(_read_blob(size, blobs)) for number, size in index["runs"]}
    held = {number: tuple(_read_blob(size, blobs) for size in sizes) for number, sizes in index["held"]}
    plan = move_plan(from_json(_with_few_values(index["plan"])))
    if not plan.journal or plan.park_at >= plan.commit_at:  # LookupError: a step is missing
        raise ValueError
    copied = {step.partition for step in plan.copies}
    saved = {step.partition for step in plan.holds} | {step.partition for step in plan.rebuilds}
    if copied - runs.keys() or saved - held.keys():
        raise ValueError
    numbered_at = index.get(_NUMBERED)
    if not isinstance(numbered_at, int | None):
        raise ValueError
    found = index.get(_BROUGHT)
    brought = None if found is None else {start: _read_names(names) or () for start, names in found}
    return Contents(plan, images, runs, held, numbered_at, _read_names(index.get(_RECOGNISED)), brought)


def _with_few_values(text: AnyStr) -> AnyStr:
    if count_values(text) > _MOST_VALUES:
        raise ValueError
    return text


def _read_names(found: object) -> tuple[str, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError
    return tuple(found)


def _read_blob(size: int, blobs: BytesIO) -> bytes:
    blob = blobs.read(size)
    if len(blob) != size:  # negative: all of the rest
        raise ValueError
    return blob


def _append_blob(blob: bytes, blobs: list[bytes]) -> int:
    blobs.append(blob)
    return len(blob)


def _append_images(writing: Writing, blobs: list[bytes]) -> list[list[list[int]]]:
    return [[[sectors.at, _append_blob(sectors.data, blobs)] for sectors in group] for group in writing]


def _read_images(groups: Sequence[Sequence[tuple[int, int]]], blobs: BytesIO) -> Writing:
    return tuple(tuple(Sectors(at, _read_blob(length, blobs)) for at, length in group) for group in groups)


def _pack_runs(runs: Sequence[Extent]) -> bytes:
    return b"".join(_RUN.pack(run.start, run.length) for run in runs)


def _unpack_runs(raw: bytes) -> tuple[Extent, ...]:
    return tuple(Extent(start, length) for start, length in _RUN.iter_unpack(raw))


# The journal: everything that a resume or a rollback needs, on the disk that is being changed.
#
# It alone must be readable after any cut.
#
# It has two copies, each with a head, two slots for records, and a body; after them lies the stash of the
# mover. Four sectors hold the newest record: two slots of two copies. The next record overwrites one slot in
# both copies, flush, then the other slot in both copies, flush. A cut therefore damages one slot, and the
# other slot still has two sectors: one of them may be bad. docs/crash-safety.md, "The journal".

_TRIES = 2  # of a mark that ends a journal


class Journal:
    """The two copies on the medium. When a method returns, its writes are durable. Raises OSError."""

    def __init__(self, device: Device, at: int, head: Head, contents: Contents, newest: Record) -> None:
        self._device = device
        self.at = at
        self._head = head
        self.contents = contents
        self._newest = newest
        self.damage: tuple[str, ...] = ()
        self.lost_slots: tuple[int, ...] = ()  # offsets, in the first copy, of slots that are damaged in both
        self._damaged: tuple[DamagedPart, ...] = ()
        self._is_everywhere = True  # the newest record, in both slots of both copies

    @property
    def device(self) -> Device:
        """Return the device that the journal is on: the disk that is being changed, or a file."""
        return self._device

    @property
    def id(self) -> bytes:
        return self._head.id

    @property
    def position(self) -> Position:
        """Return the position of the newest readable record."""
        return self._newest.position

    @property
    def newest(self) -> Record:
        """Return the newest readable record."""
        return self._newest

    @classmethod
    def create(
        cls, device: Device, place: JournalPlace, contents: Contents, id_: bytes, first: Position
    ) -> "Journal":
        """Write both copies and read them back. Every slot holds a record before the first head is written.

        Raises Refused if the body does not fit, before the first write, and JournalUnwritten if the copies
        read back differently: nothing else was written then.
        """
        body = pack(contents)
        if BODY_AT + len(body) > place.copy_length:
            short = BODY_AT + len(body) - place.copy_length
            raise Refused(
                f"the journal needs {BODY_AT + len(body)} bytes, but its place has {place.copy_length}:"
                f" {short} bytes short; a file on another disk also works",
                hint="add --journal FILE",
            )
        at = place.extent.start
        erase_heads(device, place)
        if place.file is None:
            device.write(at, journal_format.Closing(id_, place.extent).sealed())
            device.flush()
        heads = [
            Head(copy, id_, place.copy_length, len(body), hashlib.sha256(body).digest()) for copy in COPIES
        ]
        records = [Record(number, first) for number in range(RECORD_SLOTS)]
        journal = cls(device, at, heads[0], contents, records[-1])
        for copy in COPIES:
            device.write(journal._offset(copy) + BODY_AT, journal_format.padded(body))
            for record in records:
                device.write(journal._offset(copy, record.slot), record.sealed(id_))
        device.flush()
        for head in reversed(heads):  # the first one replaces the mark
            device.write(journal._offset(head.copy), head.sealed())
            device.flush()
        if not journal._is_written(body, records):
            raise JournalUnwritten(
                "the journal reads back differently from what was written: the disk is failing"
            )
        return journal

    @classmethod
    def open(cls, device: Device, at: int, *, disk_size: int | None = None) -> "Journal":
        """Return the journal at `at` in its newest state, combined from both copies. `disk_size`: of the disk
        in flight, if that is not `device`.

        If `lost_slots` is not empty, there may have been a newer state, and no work may continue from this
        one.

        Raises Refused if there is no journal at `at`, or if a part of it is lost in both copies.
        """
        parts = journal_format.read_parts(device, at)
        journal = cls(
            device, at, parts.head, unpack(parts.body, disk_size or device.size), Record(0, Position(0))
        )
        journal.damage = parts.sentences
        journal._damaged = parts.damaged
        journal._is_everywhere = False  # until the sectors that lack the newest record are written
        records = {slot: journal._read_records(slot) for slot in range(1, 1 + RECORD_SLOTS)}
        readable = {
            slot: [record for record in found if record is not None] for slot, found in records.items()
        }
        journal._newest = max(
            itertools.chain.from_iterable(readable.values()),
            key=lambda record: record.number,
            default=journal._newest,
        )
        journal.lost_slots = tuple(at + slot * SLOT for slot in journal._slots_of_lost_records(readable))
        return journal

    def _slots_of_lost_records(self, readable: Mapping[int, Sequence[Record]]) -> list[int]:
        """Return the slots that may have held a record newer than the newest readable one, on which something
        relies.

        That record overwrote its slot in both copies, so an older record there, of either copy, proves that
        there is none. Records 0 and 1 are written with the journal and have the same position: nothing is
        lost with record 1 while record 0 is readable, because record 2 would have overwritten it.
        """
        if not any(readable.values()):
            return [*readable]
        newest = self._newest
        return [] if newest.number == 0 or readable[newest.next_slot] else [newest.next_slot]

    def record(self, position: Position) -> None:
        """Write a record and make it durable in both copies, never writing to both slots between two flushes.

        The slot that is written first belongs to the record after it (`_slots_of_lost_records`). One copy is
        enough, so a bad sector in the other one does not keep a disk in flight.
        """
        self._write_newest_everywhere()
        record = self.following(position)
        sealed = record.sealed(self.id)
        for slot in (record.next_slot, record.slot):
            self._write_to_either(slot, sealed)
        self._newest = record

    def following(self, position: Position) -> Record:
        """Return the record that is written next."""
        newest = self._newest
        turned = position.forward and (newest.turned or not newest.position.forward)
        return Record(newest.number + 1, position, turned)

    def repair_copies(self) -> None:
        """Repair the damaged parts of each copy, then write the newest record to every sector that lacks it.
        In content that may be used a damaged part may be a file.

        A repair that the medium refuses is skipped; each slot of the newest record must be written in one
        copy.
        """
        for part in self._damaged:
            if not self._is_shared:
                with suppress(OSError):
                    self._write_damaged_sectors(part)
        self._write_newest_everywhere()

    def _write_newest_everywhere(self) -> None:
        """Write the newest record to every sector that lacks it, one at a time: a cut may have left it in one
        sector, and version 0.1.0 wrote it to one slot only. Raises OSError if neither copy of a slot accepts
        it.
        """
        if self._is_everywhere:
            return
        sealed = self._newest.sealed(self.id)
        for slot in (self._newest.next_slot, self._newest.slot):
            lacking = [
                copy
                for copy, found in zip(COPIES, self._read_records(slot), strict=True)
                if found != self._newest and not self._is_new_journal(found)
            ]
            failed = self._write_one_by_one(slot, sealed, lacking)
            if len(failed) == len(COPIES):
                raise failed[0]
        self._is_everywhere = True

    def _is_new_journal(self, found: Record | None) -> bool:
        """Return whether the record was written with the journal, and so was the newest one: they are the
        same.
        """
        return found is not None and found.number == 0 and self._newest.number == 1

    def close_in_use(self) -> None:
        """Wipe the heads, and zero the bodies that are as they were written, which may hold keys: nothing
        else in its place is proven to be of the journal, if content may have that place by now.
        """
        bodies = self._whole_bodies()
        self.close(zeroed=False)
        zero(self._device, bodies)

    def _whole_bodies(self) -> tuple[Extent, ...]:
        """Return the places of its bodies that are as they were written, in whole sectors: nothing else has
        these bytes.
        """
        try:
            parts = journal_format.read_parts(self._device, self.at)
        except Refused:
            return ()
        length = align_down(len(parts.body), self._device.sector_size)
        damaged = {part.at for part in parts.damaged}
        places = (self._offset(copy) + BODY_AT for copy in COPIES)
        return tuple(Extent(at, length) for at in places if at not in damaged)

    def close(self, *, zeroed: bool = True) -> str:
        """Wipe the heads: no move is in flight any more. Zero the whole place: on the disk it read as zero
        before the move, and it may hold keys of encrypted content. `zeroed` False: wipe only the heads on the
        disk; the rest may be in use.

        What follows a head that cannot be wiped stays, so it is still followed by records of a complete move.
        Bytes that are not a head of this journal stay, too, and then so does all of its place: once the new
        table is durable, another program may have grown a partition over it. Return what is left of a place
        that should be zero, as a sentence, or "".
        """
        place = self.contents.plan.journal
        own = [copy for copy in COPIES if self._has_head(copy)]
        zeroed = zeroed and (not self._is_shared or self._has_only_own_bytes())
        if not (zeroed or place.file) or len(own) < len(COPIES):
            blank = bytes(self._device.sector_size)  # what follows a head in its slot is not its own
            failed = [error for copy in own for error in self._write_one_by_one(0, blank, (copy,))]
            if len(failed) == len(COPIES):
                raise failed[0]
            return ""
        first, second = (self._offset(copy) for copy in COPIES)
        closing = journal_format.Closing(self.id, place.extent)
        error = self._try_write(second, closing.sealed())
        if error is not None:
            closing = journal_format.Closing(self.id, Extent(first, second - first))
        if self._try_write(first, closing.sealed()) is None:
            finish_closing(self._device, closing)
        elif error is not None:
            raise error
        return what_is_left(self._device, place.extent)

    def _has_only_own_bytes(self) -> bool:
        """Return whether a place without a stash, in the free blocks of a file system that may have been
        mounted since, has nothing but this journal.
        """
        place = self.contents.plan.journal
        try:
            parts = journal_format.read_parts(self._device, self.at)
        except Refused:
            return False
        copies = (bytes(self._device.read(self._offset(copy), place.copy_length)) for copy in COPIES)
        return not parts.damaged and all(
            all(journal_format.is_own_slot(raw[at : at + SLOT]) for at in range(0, BODY_AT, SLOT))
            and not has_data(raw[BODY_AT + len(parts.body) :])
            for raw in copies
        )

    def _try_write(self, at: int, raw: bytes) -> OSError | None:
        """Write a mark, at the second try if the first one fails. Return the error of both."""
        for _ in range(_TRIES):
            try:
                self._device.write(at, raw)
            except OSError as error:
                failed = error
                continue
            self._device.flush()
            return None
        return failed

    def _has_head(self, copy: int) -> bool:
        """Return whether the head of a copy is there, or may be there: it cannot be read, or a cut has torn
        it or the mark in its place.
        """
        at = self._offset(copy)
        raw = journal_format.read_or_nothing(self._device, at, self._device.sector_size)
        found = journal_format.head_or_none(self._device, at, copy)
        return not raw or (found.id == self.id if found else journal_format.begins_as_own(raw))

    def _write_damaged_sectors(self, part: DamagedPart) -> None:
        """Write only the damaged sectors of a part: a sector that is good here may be lost in the other
        copy.
        """
        size = self._device.sector_size
        for at in range(0, len(part.content), size):
            content = part.content[at : at + size]
            if journal_format.read_or_nothing(self._device, part.at + at, size) != content:
                self._device.write(part.at + at, content)
        self._device.flush()

    def _write_to_either(self, slot: int, raw: bytes) -> None:
        """Write to both copies, then flush. Raises OSError if neither copy accepts the write."""
        failed = []
        for copy in COPIES:
            try:
                self._write_slot(self._offset(copy, slot), raw)
            except OSError as error:
                failed.append(error)
        if len(failed) == len(COPIES):
            raise failed[0]
        self._device.flush()

    def _write_one_by_one(self, slot: int, raw: bytes, copies: Iterable[int]) -> list[OSError]:
        """Write to these copies, with a flush after each; return the errors of the writes."""
        failed = []
        for copy in copies:
            try:
                self._write_slot(self._offset(copy, slot), raw)
            except OSError as error:
                failed.append(error)
                continue
            self._device.flush()
        return failed

    @property
    def _is_shared(self) -> bool:
        """Return whether the place is in free blocks of content, which may have been used since."""
        place = self.contents.plan.journal
        return place.file is None and not place.stash.length

    def _write_slot(self, at: int, raw: bytes) -> None:
        """Write to a slot. Raises OSError, also if a file may be there."""
        found = journal_format.read_or_nothing(self._device, at, len(raw)) if self._is_shared else b""
        if found and not journal_format.is_own_slot(found):
            raise OSError(errno.EBUSY, "another program has written to the place of the journal")
        self._device.write(at, raw)

    def _offset(self, copy: int, slot: int = 0) -> int:
        return self.at + copy * self._head.copy_length + slot * SLOT

    def _read_records(self, slot: int) -> list[Record | None]:
        return [
            journal_format.read_record(self._device, self._offset(copy, slot), self.id) for copy in COPIES
        ]

    def _is_written(self, body: bytes, records: list[Record]) -> bool:
        try:
            parts = journal_format.read_parts(self._device, self.at)
        except Refused:
            return False
        whole = parts.head == self._head and parts.body == body and not parts.damaged
        return whole and all(self._read_records(record.slot) == [record] * len(COPIES) for record in records)


def finish_closing(device: Device, closing: journal_format.Closing) -> None:
    """Zero what remains of a journal that is not needed any more, its marks last. A sector that accepts no
    write keeps what it has.
    """
    start, length = closing.extent.start, closing.extent.length
    places = (start, *(start + copy for copy in journal_format.copy_lengths(length)))
    marks = [Extent(at, SLOT) for at in places if journal_format.read_closing(device, at)]
    for extent in (*outside((closing.extent,), tuple(marks)), *reversed(marks)):
        try:
            zero(device, (extent,))
        except OSError:
            _zero_slots(device, extent)


def what_is_left(device: Device, extent: Extent) -> str:
    """Return that the place of a closed journal does not read as zero, as a sentence, or ""."""
    pieces = ((at, min(MIB, extent.end - at)) for at in range(extent.start, extent.end, MIB))
    with suppress(OSError):
        if not any(has_data(bytes(device.read(*piece))) for piece in pieces if not device.is_hole(*piece)):
            return ""
    where = f"bytes {extent.start} to {extent.end - 1}"
    return f"a part of the journal, which nothing needs, could not be zeroed and is left in {where}"


def _zero_slots(device: Device, extent: Extent) -> None:
    """Zero an extent as far as the medium accepts it."""
    for at in range(extent.start, extent.end, SLOT):
        with suppress(OSError):
            zero(device, (Extent(at, min(SLOT, extent.end - at)),))


def erase_heads(device: Device, place: JournalPlace) -> None:
    """Erase every head that would stand before an incomplete body, or that `Journal.open` could mistake for
    the second one. Raises OSError.
    """
    for offset in (0, *journal_format.copy_lengths(place.extent.length)):
        device.write(place.extent.start + offset, bytes(SLOT))
    device.flush()


def erase_unfinished(device: Device, place: JournalPlace, id_: bytes) -> None:
    """Erase the heads of a journal that could not be written, and zero its place. Raises OSError."""
    erase_heads(device, place)
    finish_closing(device, journal_format.Closing(id_, place.extent))


def new_id() -> bytes:
    return secrets.token_bytes(16)


# A journal in a file, for a disk that has no free space for one.
#
# A journal must survive whatever it protects against, so its file may not be in memory. The file cannot be on
# the disk that is being changed either, because nothing on a locked disk is mounted.


_JOURNAL_HINT = "--journal FILE names the journal's file"


@contextmanager
def open_journal(file: str, *, length: int | None = None) -> Iterator[DiskDevice]:
    """Open the file as a Device. `length`: create it with this many bytes; None: it must exist.

    A file created here is removed if it is not needed any more: the work is complete, or was refused before
    anything was written. Raises Refused.
    """
    refuse_folder_name(file)
    if length is None:
        descriptor = _open(file)
    else:
        refuse_volatile(file)
        descriptor = _create(file, length)
    needed = True
    try:
        _lock_file(descriptor, file)
        with DiskDevice(descriptor, name=file) as device:
            yield device
        needed = False
    except (Refused, JournalUnwritten, KeyboardInterrupt):
        needed = False
        raise
    finally:
        if length is not None and not needed:
            # the change is complete, or nothing was written: a file that stays is harmless
            with suppress(OSError):
                remove_if_same(file, descriptor)
        os.close(descriptor)


def _lock_file(descriptor: int, file: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Refused(f"{file} is in use by another aligntool process", code="in-use", subject=file) from None


def _open(file: str) -> int:
    try:
        with open_place(file, follow=True) as place:
            descriptor = place.open(os.O_RDWR)
    except OSError as error:
        hint = MOUNT_FOR_WRITING if error.errno == errno.EROFS else _JOURNAL_HINT
        raise Refused(f"{file}: {error.strerror}", hint=hint) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(f"{file} is not a regular file")
    return descriptor


def _create(file: str, length: int) -> int:
    """Create the file, its blocks allocated and its name durable before the first write."""
    kept = -1
    try:
        with open_place(file) as place:
            with new_file(place) as descriptor:
                kept = os.dup(descriptor)
                os.posix_fallocate(descriptor, 0, length)
            place.sync()
    except OSError as error:
        if kept >= 0:
            with suppress(OSError):
                remove_if_same(file, kept)
            os.close(kept)
        if isinstance(error, FileExistsError):
            raise _already_exists(Path(file)) from None
        hint = MOUNT_FOR_WRITING if error.errno == errno.EROFS else _JOURNAL_HINT
        text = f"{file}: a journal of {format_about(length)} cannot be created: {error.strerror}"
        raise Refused(text, hint=hint) from error
    return kept


def _already_exists(path: Path) -> Refused:
    return Refused(f"{path} already exists", hint="use another name for --journal")


def refuse_existing(file: str) -> None:
    """Raise Refused if this file cannot be created for a journal, as `_open` does when the change begins."""
    path = Path(file)
    if os.path.lexists(path):
        raise _already_exists(path)
    try:
        with open_place(path):
            pass
    except PermissionError:
        return  # root, who applies the plan, may look there
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}", hint=_JOURNAL_HINT) from error


def refuse_volatile(file: str) -> None:
    """Raise Refused if a journal in this file would be lost in a power cut."""
    folder = Path(file).absolute().parent
    kind = volatile_kind(folder)
    if kind:
        raise Refused(
            f"{folder} is a {kind}: the journal would be lost in a power cut",
            hint="give --journal FILE on a permanent disk",
        )
