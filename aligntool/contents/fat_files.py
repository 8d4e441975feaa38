"""Copy all files and folders of a FAT into an empty one: directory entries stay the same except for their
clusters.
"""

from array import array
from collections.abc import Iterator
from sys import byteorder
from typing import Protocol

from aligntool.contents.fat import (
    ATTRIBUTES,
    BAD_CLUSTER,
    DIRECTORY,
    ENTRY,
    FIRST_CLUSTER,
    LONG_NAME,
    VOLUME_LABEL,
    BrokenFatError,
    fat_entries,
    parse_fat_boot_sector,
)
from aligntool.formats.numbers import le16, le32

# Long names, short names, times and attributes are in the directory entries, which are copied byte by byte;
# mcopy recreates short names and folder times, and cannot read characters outside the BMP. Deleted entries
# are omitted. Source: Microsoft's FAT specification 1.03, "FAT Directory Structure" and "FSInfo Sector
# Structure".

_DOT = b".".ljust(11)
_DOT_DOT = b"..".ljust(11)
_DELETED = 0xE5
# offsets in an entry: both halves of its first cluster
_HIGH = 20
_LOW = 26
# nested folders, as many as a path of Windows has room for; mtools and Python recurse into each
_DEEPEST = 128
_LABEL = 43  # offset of BS_VolLab in FAT12 and FAT16
_LABEL_32 = 71  # in FAT32
_TO_LABEL = 5  # from BS_BootSig to it
_HAS_LABEL = b"\x29"  # BS_BootSig
_BACKUP = 50  # BPB_BkBootSec
_FSINFO = 48  # offset of BPB_FSInfo
_FREE = 488  # in FSInfo: free clusters
_NEXT = 492  # in FSInfo: hint where to search


class Bytes(Protocol):
    """A byte sequence whose slices are read and written."""

    def __getitem__(self, piece: slice, /) -> bytes: ...
    def __setitem__(self, piece: slice, content: bytes, /) -> None: ...


def copy_files(old: Bytes, new: Bytes) -> int:
    """Copy all files and folders from one FAT to another, which is empty; return the number of files.

    Raises BrokenFatError if the first is inconsistent or does not fit.
    """
    source, target = _Fat(old), _Fat(new)
    if BAD_CLUSTER[source.boot.bits] in source.entries[FIRST_CLUSTER:]:
        raise BrokenFatError("it has clusters that are marked as bad")
    files = 0
    root = list(_entries_in_use(source.root()))
    # `..` of a folder in the root is cluster 0
    pending = [(root, target.place_root(len(root) * ENTRY), 0, 0, 0)]
    while pending:
        entries, offset, own_cluster, parent, depth = pending.pop()
        if depth > _DEEPEST:
            raise BrokenFatError(f"its folders are nested deeper than {_DEEPEST}", "move the deepest ones up")
        for entry in entries:
            attributes = entry[ATTRIBUTES]
            new_entry = entry
            if attributes & 0x3F != LONG_NAME and not attributes & VOLUME_LABEL:
                first = le16(entry, _LOW) | (le16(entry, _HIGH) << 16 if source.boot.bits == 32 else 0)
                if entry[:11] in (_DOT, _DOT_DOT):
                    cluster = own_cluster if entry[:11] == _DOT else parent
                elif attributes & DIRECTORY:
                    entries_in_folder = list(_entries_in_use(source.content(first)))
                    cluster = target.allocate(max(len(entries_in_folder) * ENTRY, 1))
                    pending.append((entries_in_folder, target.at(cluster), cluster, own_cluster, depth + 1))
                else:
                    cluster = source.copy_content(first, le32(entry, 28), target)
                    files += 1
                number = cluster.to_bytes(4, "little")
                new_entry = (
                    entry[:_HIGH] + number[2:] + entry[_HIGH + 2 : _LOW] + number[:2] + entry[_LOW + 2 :]
                )
            new[offset : offset + ENTRY] = new_entry
            offset += ENTRY
    target.write_table()
    return files


def count_root_entries(fat: Bytes) -> int:
    """Return how many entries of the root directory are in use. Raises BrokenFatError."""
    return sum(1 for _ in _entries_in_use(_Fat(fat).root()))


def copy_boot_label(old: Bytes, new: Bytes) -> None:
    """Copy the label in the boot sector byte by byte, also to the backup of a FAT32. mkfs.fat accepts only
    some labels. Raises BrokenFatError.
    """
    source, target = _Fat(old), _Fat(new)
    at, new_at = (_LABEL_32 if fat.boot.root_cluster else _LABEL for fat in (source, target))
    if old[at - _TO_LABEL : at - _TO_LABEL + 1] != _HAS_LABEL:
        return
    backup = le16(new[:512], _BACKUP) * target.boot.sector if target.boot.root_cluster else 0
    for start in {0, backup}:
        new[start + new_at : start + new_at + 11] = old[at : at + 11]


def _entries_in_use(folder: bytes) -> Iterator[bytes]:
    """Yield the entries of a directory that are not deleted."""
    for offset in range(0, len(folder) - ENTRY + 1, ENTRY):
        if folder[offset] == 0:
            return
        if folder[offset] != _DELETED:
            yield folder[offset : offset + ENTRY]


class _Fat:
    """A FAT volume, with its allocation table in memory. Clusters are allocated in ascending order."""

    def __init__(self, data: Bytes) -> None:
        boot = parse_fat_boot_sector(data[:512])
        if boot is None:
            raise BrokenFatError("its boot sector is invalid")
        self.data = data
        self.boot = boot
        self._table_start = boot.reserved * boot.sector
        self._table_length = boot.fats // boot.copies * boot.sector
        self._clusters_end = FIRST_CLUSTER + boot.clusters
        table = data[self._table_start : self._table_start + self._table_length]
        self.entries = array("I", fat_entries(boot.bits, (table,)))[: self._clusters_end]
        self._next_free = boot.root_cluster or FIRST_CLUSTER

    def at(self, cluster: int) -> int:
        return self.boot.data_start + (cluster - FIRST_CLUSTER) * self.boot.cluster

    def root(self) -> bytes:
        if self.boot.root_cluster:
            return self.content(self.boot.root_cluster)
        start = (self.boot.reserved + self.boot.fats) * self.boot.sector
        return self.data[start : start + self.boot.directory]

    def content(self, first: int) -> bytes:
        size = self.boot.cluster
        return b"".join(self.data[self.at(number) : self.at(number) + size] for number in self._chain(first))

    def _chain(self, number: int) -> list[int]:
        """Return the clusters of a file in order. Raises BrokenFatError."""
        chain: list[int] = []
        while FIRST_CLUSTER <= number < self._clusters_end and len(chain) <= self.boot.clusters:
            chain.append(number)
            number = self.entries[number]
        if not chain or number <= BAD_CLUSTER[self.boot.bits]:
            raise BrokenFatError(f"a chain of its clusters leads to {number}")
        return chain

    def place_root(self, length: int) -> int:
        """Return the byte offset of the root directory, which has room for `length` bytes. Raises
        BrokenFatError.
        """
        if self.boot.root_cluster:
            return self.at(self.allocate(max(length, 1)))
        if length > self.boot.directory:
            raise BrokenFatError(f"its root directory has room for {self.boot.directory // ENTRY} entries")
        return (self.boot.reserved + self.boot.fats) * self.boot.sector

    def allocate(self, length: int) -> int:
        """Allocate contiguous clusters for `length` bytes and return the first. Raises BrokenFatError."""
        count = -(-length // self.boot.cluster)
        first = self._next_free
        end = self._next_free + count
        if end > self._clusters_end:
            raise BrokenFatError("there are not enough clusters")
        self.entries[first:end] = array("I", (*range(first + 1, end), BAD_CLUSTER[self.boot.bits] + 8))
        self._next_free = end
        return first

    def copy_content(self, first: int, length: int, target: "_Fat") -> int:
        """Copy a file of `length` bytes; return its first cluster in `target`, or 0 if it is empty."""
        if not length:
            return 0
        new_first = target.allocate(length)
        size = self.boot.cluster
        remaining = length
        offset = target.at(new_first)
        for number in self._chain(first):
            count = min(size, remaining)
            target.data[offset : offset + count] = self.data[self.at(number) : self.at(number) + count]
            offset += count
            remaining -= count
        if remaining:
            raise BrokenFatError(f"a file of {length} bytes has too few clusters")
        return new_first

    def write_table(self) -> None:
        """Write all copies of the allocation table, and the free clusters into FSInfo."""
        bits = self.boot.bits
        table = bytearray()
        if bits == 12:
            pairs = zip(self.entries[::2], (*self.entries[1::2], 0), strict=False)
            table += b"".join((low | high << 12).to_bytes(3, "little") for low, high in pairs)
            del table[self._table_length :]
        else:
            words = array("H" if bits == 16 else "I", self.entries)
            if byteorder == "big":
                words.byteswap()
            table += words.tobytes()
        for copy in range(self.boot.copies):
            offset = self._table_start + copy * self._table_length
            self.data[offset : offset + len(table)] = bytes(table)
        if self.boot.root_cluster:
            info = le16(self.data[:512], _FSINFO) * self.boot.sector
            free = self._clusters_end - self._next_free
            hint = min(self._next_free, self._clusters_end - 1)
            self.data[info + _FREE : info + _NEXT + 4] = free.to_bytes(4, "little") + hint.to_bytes(
                4, "little"
            )
