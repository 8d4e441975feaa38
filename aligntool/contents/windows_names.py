"""Find the bytes in Windows files that identify partitions of an MBR disk by their start offsets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from aligntool.contents import ntfs
from aligntool.formats.numbers import le16, le32, le64
from aligntool.formats.reader import Area
from aligntool.units import KIB, Extent

# A file of an NTFS volume by its path: its bytes, and their places on the volume.

_NOT_LOCATED = "has bytes that cannot be located on the volume"
_TRANSFORMED = 0x00FF | 0x4000 | 0x8000  # flags of an attribute: compressed, encrypted, sparse


@dataclass(frozen=True, slots=True)
class File:
    """A file that is stored byte for byte on the volume, or in its record."""

    files: ntfs.NtfsFiles
    runs: ntfs.Runs
    size: int
    resident: bytes | None = None

    def places(self, offset: int, length: int) -> tuple[Extent, ...]:
        """Return the extents of bytes, from the volume's start on, with adjacent ones merged. Raises
        CannotFollow.
        """
        found: list[Extent] = []
        cluster = self.files.cluster
        end = offset + length
        before = 0
        for first, count in self.runs:
            start = max(offset, before)
            stop = min(end, before + count * cluster)
            if start < stop:
                at = first * cluster + start - before
                if first < 0 or not 0 <= at <= self.files.area.size - (stop - start):
                    raise ntfs.CannotFollow(_NOT_LOCATED)
                if found and found[-1].end == at:
                    found[-1] = Extent(found[-1].start, found[-1].length + stop - start)
                else:
                    found.append(Extent(at, stop - start))
            before += count * cluster
        if offset < 0 or end > self.size or sum(extent.length for extent in found) != length:
            raise ntfs.CannotFollow(_NOT_LOCATED)
        return tuple(found)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes. Raises CannotFollow, and OSError if the medium cannot be read."""
        if self.resident is not None:
            return self.resident[offset : offset + length]
        found = b"".join(
            self.files.area.read(extent.start, extent.length) for extent in self.places(offset, length)
        )
        if len(found) != length:
            raise ntfs.CannotFollow(_NOT_LOCATED)
        return found


def open_file(files: ntfs.NtfsFiles, path: str) -> File | None:
    """Return the file at a path with backslashes, or None if it does not exist. Raises CannotFollow."""
    number = ntfs.ROOT
    for name in path.strip("\\").split("\\"):
        found = ntfs.find_reference(files, number, name.upper())
        if found is None:
            return None
        number = found & ntfs.NUMBER
        if le16(files.record(number), 16) != found >> 48:
            raise ntfs.CannotFollow(_NOT_LOCATED)
    parts = files.parts(number, ntfs.DATA)
    if not parts:
        raise ntfs.CannotFollow(_NOT_LOCATED)
    if not parts[0][8]:
        value = ntfs.resident_value(parts[0])
        return File(files, (), len(value), value)
    if any(le16(part, 12) & _TRANSFORMED for part in parts):
        text = "is stored compressed, encrypted or sparse, so its bytes on the disk differ from its content"
        raise ntfs.CannotFollow(text)
    return File(files, ntfs.runs_of(parts), min(le64(parts[0], 48), le64(parts[0], 56)))


# A registry hive: keys and values, and the offsets of the values in the file.
#
# Only what is needed to find some values; every size is bounded before use. Layout: Maxim Suhanov, "Windows
# registry file format specification".

_DAMAGED = "is not an intact registry hive"
_HEADER = 4096
_LARGEST_CELL = 64 * KIB
_MOST_NAMES = 1000  # in one hive
_MOST_CELLS = 10_000  # read in one hive
_INLINE_DATA = 1 << 31  # flag in the data size: the data is in the value's own cell
_ASCII_NAME = {b"nk": 0x20, b"vk": 0x01}  # flags: the name has one byte per character


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    data: bytes
    at: int  # offset of the data in the file


@dataclass(frozen=True, slots=True)
class Hive:
    file: File
    budget: Iterator[int] = field(default_factory=lambda: iter(range(_MOST_CELLS)))

    @property
    def root(self) -> bytes:
        head = self.file.read(0, 512)
        total = 0
        for at in range(0, 508, 4):
            total ^= le32(head, at)
        # 0 and all ones are never stored as a checksum.
        total = {0: 1, 0xFFFFFFFF: 0xFFFFFFFE}.get(total, total)
        if (
            head[:4] != b"regf"
            or total != le32(head, 508)
            or (le32(head, 20), le32(head, 28), le32(head, 32)) != (1, 0, 1)
        ):
            raise ntfs.CannotFollow(_DAMAGED)
        return self._key(le32(head, 36))

    @property
    def is_clean(self) -> bool:
        """Return whether the hive is complete; otherwise a log next to it has further changes."""
        head = self.file.read(0, 12)
        return head[4:8] == head[8:12]

    def keys(self, key: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield (name, key) of the subkeys of a key."""
        if le32(key, 20):
            for at in self._keys_in_list(le32(key, 28)):
                below = self._key(at)
                yield _name(below, 76, le16(below, 72), le16(below, 2) & _ASCII_NAME[b"nk"]), below

    def key(self, key: bytes, *path: str) -> bytes | None:
        """Return the key at a path of names, which are not case-sensitive, or None if it does not exist."""
        for name in path:
            found = next(
                (subkey for own_name, subkey in self.keys(key) if own_name.upper() == name.upper()), None
            )
            if found is None:
                return None
            key = found
        return key

    def values(self, key: bytes) -> Iterator[Value]:
        """Yield the values of a key, except those with their data in the value's own cell or in several
        cells.
        """
        count = le32(key, 36)
        numbers = self._cell(le32(key, 40)) if count else b""
        for index in range(count):
            if len(numbers) < 4 * (index + 1):
                raise ntfs.CannotFollow(_DAMAGED)
            value = self._cell(le32(numbers, 4 * index), b"vk")
            size = le32(value, 4)
            if not size & _INLINE_DATA and 0 < size <= _LARGEST_CELL // 4:
                data = self._cell(le32(value, 8))
                if len(data) < size:
                    raise ntfs.CannotFollow(_DAMAGED)
                name = _name(value, 20, le16(value, 2), le16(value, 16) & _ASCII_NAME[b"vk"])
                yield Value(name, data[:size], _HEADER + le32(value, 8) + 4)

    def _key(self, at: int) -> bytes:
        return self._cell(at, b"nk")

    def _cell(self, at: int, magic: bytes = b"") -> bytes:
        """Return the content of a cell, without its length. `at` is relative to the end of the header."""
        if next(self.budget, None) is None:
            raise ntfs.CannotFollow(_DAMAGED)
        size = (1 << 32) - le32(self.file.read(_HEADER + at, 4), 0)  # a negative number: the cell is in use
        if at % 8 or not 8 <= size <= (1 << 31):
            raise ntfs.CannotFollow(_DAMAGED)
        content = self.file.read(_HEADER + at + 4, min(size, _LARGEST_CELL) - 4)
        if not content.startswith(magic):
            raise ntfs.CannotFollow(_DAMAGED)
        return content

    def _keys_in_list(self, at: int, depth: int = 0) -> Iterator[int]:
        """Yield the offsets of the keys in a list, which may be a list of lists."""
        cell = self._cell(at)
        kind = cell[:2]
        count = le16(cell, 2)
        width = {b"lf": 8, b"lh": 8, b"li": 4, b"ri": 4}.get(kind, 0)
        if not width or len(cell) < 4 + width * count or (kind == b"ri" and depth):
            raise ntfs.CannotFollow(_DAMAGED)
        for index in range(count):
            listed = le32(cell, 4 + width * index)
            yield from self._keys_in_list(listed, depth + 1) if kind == b"ri" else (listed,)


def _name(cell: bytes, at: int, length: int, ascii_: int) -> str:
    return cell[at : at + length].decode("latin-1" if ascii_ else "utf-16-le", "replace")


# Start offsets in two hives: the boot store (BCD) on the partition that the PC boots from, and the drive
# letters of each Windows.
#
# An element of the store identifies a device by a descriptor: type 6 (a partition), flags, its own size, 4
# bytes; for an MBR the start offset of the partition, in 16 bytes; type 0 (a hard disk), 1 (an MBR), the
# disk's signature. The descriptors of a RAM disk, of a file on a partition and of a search for one contain
# such a descriptor at any even offset. Source: BL_DEVICE_DESCRIPTOR in ReactOS, boot/environ/include/bl.h;
# seen in stores of Windows 7, 8.1 and 10.
# A mounted device is 12 bytes: the signature and the start offset.

BCD_STORES = ("\\Boot\\BCD", "\\EFI\\Microsoft\\Boot\\BCD")
SYSTEM_HIVE = "\\Windows\\System32\\config\\SYSTEM"
RECOVERY = "\\Windows\\System32\\Recovery\\ReAgent.xml"
_DEVICE = rb"(?s)\x06\0{3}.{4}\x48\0{3}.{4}(?P<start>.{8})\0{8}\0{4}\x01\0{3}(?P<signature>.{4})"
_ELEMENTS = {"11000001": "device", "21000001": "osdevice", "31000003": "ramdisksdidevice"}  # bcdedit's names
_OFFSET = rb'offset="([0-9]{1,19})"'
LENGTH_OF_START = 8


@dataclass(frozen=True, slots=True)
class NamedStart:
    """Eight bytes that are the start offset of a partition on the disk."""

    what: str  # "BCD {9dea862c-5cdd-4e70-acc1-f32b344d4795} device", "MountedDevices \DosDevices\C:"
    start: int
    places: tuple[Extent, ...]  # of the eight bytes, relative to the volume's start: one or more pieces


@dataclass(frozen=True, slots=True)
class StartNames:
    """The start offsets in the files of one volume."""

    files: tuple[str, ...] = ()  # that exist
    starts: tuple[NamedStart, ...] = ()
    dirty: tuple[str, ...] = ()  # files with changes that are only in a log
    unclear: str = ""  # why a file that exists could not be followed
    recovery: frozenset[int] = frozenset()  # start offsets in the configuration of the recovery environment


def read_names(area: Area, signature: bytes) -> StartNames:
    """Return the start offsets in an NTFS volume for the disk with this signature of four bytes. Raises
    OSError.
    """
    found = StartNames()
    path = "$MFT"
    try:
        files = ntfs.open_ntfs(area)
        for path in (*BCD_STORES, SYSTEM_HIVE):
            file = open_file(files, path)
            if file is not None:
                found = _with_hive(found, path, Hive(file), signature)
        path = RECOVERY
        if SYSTEM_HIVE in found.files and (file := open_file(files, path)) is not None:
            text = file.read(0, min(file.size, _LARGEST_CELL))
            starts = frozenset(int(match[1]) for match in re.finditer(_OFFSET, text.replace(b"\0", b"")))
            return StartNames(found.files, found.starts, found.dirty, found.unclear, starts)
    except ntfs.CannotFollow as error:
        if path == RECOVERY:
            return found  # these offsets are reported and never changed
        return StartNames(found.files, found.starts, found.dirty, f"{path} {error}")
    return found


def _with_hive(names: StartNames, path: str, hive: Hive, signature: bytes) -> StartNames:
    named = [
        *islice(
            _mounted(hive, signature) if path == SYSTEM_HIVE else _bcd_starts(hive, signature),
            _MOST_NAMES + 1,
        )
    ]
    if len(named) > _MOST_NAMES:
        raise ntfs.CannotFollow(_DAMAGED)
    starts = tuple(
        NamedStart(what, start, hive.file.places(at, LENGTH_OF_START)) for what, start, at in named
    )
    dirty = () if hive.is_clean else (path,)
    return StartNames((*names.files, path), (*names.starts, *starts), (*names.dirty, *dirty))


def _bcd_starts(hive: Hive, signature: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield (description, start, offset in the file) of each partition that an element identifies."""
    objects = hive.key(hive.root, "Objects")
    for name, key in hive.keys(objects) if objects else ():
        elements = hive.key(key, "Elements")
        for element, subkey in hive.keys(elements) if elements else ():
            if re.fullmatch("[0-9a-fA-F]{8}", element) and element[1] == "1":  # the format of a device
                for value in hive.values(subkey):
                    for match in re.finditer(_DEVICE, value.data):
                        if match["signature"] == signature:
                            what = f"BCD {name} {_ELEMENTS.get(element, element)}"
                            yield what, le64(match["start"], 0), value.at + match.start("start")


def _mounted(hive: Hive, signature: bytes) -> Iterator[tuple[str, int, int]]:
    key = hive.key(hive.root, "MountedDevices")
    for value in hive.values(key) if key else ():
        if len(value.data) == 12 and value.data[:4] == signature:
            yield f"MountedDevices {value.name}", le64(value.data, 4), value.at + 4
