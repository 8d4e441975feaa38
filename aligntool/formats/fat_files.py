"""All files and folders of a FAT, copied into an empty one: entries stay as they are, but for the clusters in them."""

from array import array
from collections.abc import Iterable, Iterator
from sys import byteorder
from typing import Protocol

from aligntool.formats.numbers import le16, le32
from aligntool.formats.windows_fs import ATTRIBUTES, DIRECTORY, ENTRY, LONG_NAME, VOLUME_LABEL, read_boot

# Long names, short names, times and attributes are in the entries of folders, which are copied byte by byte; mcopy
# makes short names and folder times anew, and reads no character outside of the BMP. Deleted entries are left out.
# Source: Microsoft's FAT specification 1.03, "FAT Directory Structure" and "FSInfo Sector Structure".

FIRST = 2  # the number of the first cluster
_BAD = {12: 0xFF7, 16: 0xFFF7, 32: 0x0FFFFFF7}  # what is above ends a chain
_OWN, _ABOVE = b".".ljust(11), b"..".ljust(11)
_DELETED = 0xE5
_HIGH, _LOW = 20, 26  # both halves of the number of the first cluster
_INFO, _FREE, _NEXT = 48, 488, 492  # where FSInfo lies; in it: free clusters, and where to look for one


class Bytes(Protocol):
    """Bytes of which pieces are read and written."""

    def __getitem__(self, piece: slice, /) -> bytes: ...
    def __setitem__(self, piece: slice, content: bytes, /) -> None: ...


class BrokenFatError(ValueError):
    """The one is not whole, or has no room in the other."""


def fat_entries(bits: int, table: Iterable[bytes]) -> Iterator[int]:
    """Yield the entries of an allocation table, which comes piece by piece."""
    for piece in table:
        if bits == 12:  # of which the largest table is one piece
            yield from (le16(piece, at * 3 // 2) >> (4 if at % 2 else 0) & 0xFFF for at in range(len(piece) * 2 // 3))
            continue
        words = array("H" if bits == 16 else "I", piece)
        if byteorder == "big":
            words.byteswap()
        yield from words if bits == 16 else (word & 0x0FFFFFFF for word in words)


def copy_files(old: Bytes, new: Bytes) -> int:
    """Copy everything from one FAT to another, which is empty; return the number of files.

    Raises BrokenFatError where the first is not whole, or does not fit.
    """
    source, target = _Fat(old), _Fat(new)
    if _BAD[source.boot.bits] in source.entries[FIRST:]:
        raise BrokenFatError("it has clusters that are marked as bad")
    files, root = 0, list(_used(source.root()))
    pending = [(root, target.place_root(len(root) * ENTRY), 0, 0)]  # the root is 0 for its folders
    while pending:
        entries, at, own, above = pending.pop()
        for entry in entries:
            kind, copied = entry[ATTRIBUTES], entry
            if kind & 0x3F != LONG_NAME and not kind & VOLUME_LABEL:
                first = le16(entry, _LOW) | (le16(entry, _HIGH) << 16 if source.boot.bits == 32 else 0)
                if entry[:11] in (_OWN, _ABOVE):
                    cluster = own if entry[:11] == _OWN else above
                elif kind & DIRECTORY:
                    inner = list(_used(source.content(first)))
                    cluster = target.allocate(max(len(inner) * ENTRY, 1))
                    pending.append((inner, target.at(cluster), cluster, own))
                else:
                    cluster, files = source.copy_content(first, le32(entry, 28), target), files + 1
                number = cluster.to_bytes(4, "little")
                copied = entry[:_HIGH] + number[2:] + entry[_HIGH + 2 : _LOW] + number[:2] + entry[_LOW + 2 :]
            new[at : at + ENTRY] = copied
            at += ENTRY
    target.write_table()
    return files


def _used(folder: bytes) -> Iterator[bytes]:
    for at in range(0, len(folder) - ENTRY + 1, ENTRY):
        if folder[at] == 0:
            return
        if folder[at] != _DELETED:
            yield folder[at : at + ENTRY]


class _Fat:
    """A FAT in memory. Clusters are taken in their order."""

    def __init__(self, data: Bytes) -> None:
        boot = read_boot(data[:512])
        if boot is None:
            raise BrokenFatError("its boot sector makes no sense")
        self.data, self.boot = data, boot
        self._table = boot.reserved * boot.sector
        self._length = boot.fats // boot.copies * boot.sector
        self._behind = FIRST + boot.clusters
        table = data[self._table : self._table + self._length]
        self.entries = array("I", fat_entries(boot.bits, (table,)))[: self._behind]
        self._free = boot.root_cluster or FIRST

    def at(self, cluster: int) -> int:
        return self.boot.data_start + (cluster - FIRST) * self.boot.cluster

    def root(self) -> bytes:
        if self.boot.root_cluster:
            return self.content(self.boot.root_cluster)
        start = (self.boot.reserved + self.boot.fats) * self.boot.sector
        return self.data[start : start + self.boot.directory]

    def content(self, first: int) -> bytes:
        size = self.boot.cluster
        return b"".join(self.data[self.at(one) : self.at(one) + size] for one in self._chain(first))

    def _chain(self, first: int) -> list[int]:
        found: list[int] = []
        while FIRST <= first < self._behind and len(found) <= self.boot.clusters:
            found.append(first)
            first = self.entries[first]
        if not found or first <= _BAD[self.boot.bits]:
            raise BrokenFatError(f"a chain of its clusters leads to {first}")
        return found

    def place_root(self, length: int) -> int:
        """Return the byte where the root directory begins, with room for so many."""
        if self.boot.root_cluster:
            return self.at(self.allocate(max(length, 1)))
        if length > self.boot.directory:
            raise BrokenFatError(f"its first folder has room for {self.boot.directory // ENTRY} entries")
        return (self.boot.reserved + self.boot.fats) * self.boot.sector

    def allocate(self, length: int) -> int:
        """Return the first of as many clusters, which follow each other."""
        count = -(-length // self.boot.cluster)
        first, end = self._free, self._free + count
        if end > self._behind:
            raise BrokenFatError("there are not enough clusters")
        self.entries[first:end] = array("I", (*range(first + 1, end), _BAD[self.boot.bits] + 8))
        self._free = end
        return first

    def copy_content(self, first: int, length: int, target: "_Fat") -> int:
        """Copy a file; return its first cluster there, 0 for one without content."""
        if not length:
            return 0
        there, size, left = target.allocate(length), self.boot.cluster, length
        at = target.at(there)
        for one in self._chain(first):
            piece = min(size, left)
            target.data[at : at + piece] = self.data[self.at(one) : self.at(one) + piece]
            at, left = at + piece, left - piece
        if left:
            raise BrokenFatError(f"a file of {length} bytes has fewer clusters")
        return there

    def write_table(self) -> None:
        """Write all copies, and how much is free."""
        bits, made = self.boot.bits, bytearray()
        if bits == 12:
            pairs = zip(self.entries[::2], (*self.entries[1::2], 0), strict=False)
            made += b"".join((low | high << 12).to_bytes(3, "little") for low, high in pairs)
            del made[self._length :]
        else:
            words = array("H" if bits == 16 else "I", self.entries)
            if byteorder == "big":
                words.byteswap()
            made += words.tobytes()
        for copy in range(self.boot.copies):
            at = self._table + copy * self._length
            self.data[at : at + len(made)] = bytes(made)
        if self.boot.root_cluster:
            info = le16(self.data[:512], _INFO) * self.boot.sector
            free, after = self._behind - self._free, min(self._free, self._behind - 1)
            self.data[info + _FREE : info + _NEXT + 4] = free.to_bytes(4, "little") + after.to_bytes(4, "little")
