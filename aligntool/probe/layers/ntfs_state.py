"""What NTFS says of how it was left: the dirty flag, an unfinished log, a hibernated Windows.

In: the area of the volume, its cluster and the size of its file records. Out: a sentence, or nothing. Alone because it
reads files, not a boot sector: $LogFile, $Volume and, through the index of the root directory, hiberfil.sys. Every step
is bounded, and what cannot be followed is taken for absent. Layout: linux/fs/ntfs3/ntfs.h; what counts as clean:
ntfs_is_logfile_clean() and ntfs_volume_check_hiberfile() of ntfs-3g.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.probe.layers.area import Area, le16, le32, le64
from aligntool.units import KIB

LOG_FILE, VOLUME, ROOT = 2, 3, 5  # numbers of file records
VOLUME_INFORMATION, DATA, INDEX_ROOT, INDEX_ALLOCATION = 0x70, 0x80, 0x90, 0xA0
MOST_ATTRIBUTES, MOST_RUNS, MOST_ENTRIES, DEEPEST = 64, 256, 4096, 8
SECTOR = 512  # a record's sectors end with its update sequence number, every 512 bytes whatever the disk has
LARGEST_INDEX_BLOCK = 64 * KIB

DIRTY = 0x0001  # in $VOLUME_INFORMATION
NO_CLIENT, LOG_IS_CLEAN = 0xFFFF, 0x0002  # in a restart area
HAS_SUBNODE, IS_LAST = 1, 2  # in an index entry
HIBERNATED = (b"hibr", b"HIBR")  # b"wake" and b"RSTR" stand there once it was resumed

Runs = tuple[tuple[int, int], ...]  # (first cluster, or -1 for a hole; clusters)


@dataclass(frozen=True, slots=True)
class Attribute:
    value: bytes  # what a resident one holds
    runs: Runs  # where another one lies


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a volume, by the number of their record."""

    area: Area
    cluster: int
    record_size: int
    table: Runs  # where the table of all records lies

    def attribute(self, number: int, kind: int) -> Attribute | None:
        record = _mended(self.read(self.table, number * self.record_size, self.record_size), b"FILE")
        return next(_attributes(record, kind), None)

    def read(self, runs: Runs, offset: int, length: int) -> bytes:
        """From one run; shorter where it ends."""
        for first, count in runs:
            size = count * self.cluster
            if offset < size:
                wanted = min(length, size - offset)
                return self.area.read(first * self.cluster + offset, wanted) if first >= 0 else b""
            offset -= size
        return b""


def read_state(area: Area, table_start: int, cluster: int, record_size: int) -> str | None:
    """`table_start`: the first cluster of the file records; None: nothing speaks against the volume."""
    record = _mended(area.read(table_start * cluster, record_size), b"FILE")
    table = next(_attributes(record, DATA), None)
    if table is None:
        return None
    files = Files(area, cluster, record_size, table.runs)
    if _is_hibernated(files):
        return "Windows is hibernated in it, or was shut down by fast startup (hiberfil.sys)"
    volume = files.attribute(VOLUME, VOLUME_INFORMATION)
    if volume and le16(volume.value, 10) & DIRTY:
        return "was not unmounted cleanly (dirty flag set)"
    log = files.attribute(LOG_FILE, DATA)
    if log and not _is_clean(files, log.runs):
        return "was not unmounted cleanly ($LogFile is in use)"
    return None


def _mended(record: bytes, magic: bytes) -> bytes:
    """A record with the ends of its sectors put back; nothing when it is none."""
    at, count = le16(record, 4), le16(record, 6)
    if record[:4] != magic or not 2 <= count <= len(record) // SECTOR + 1 or at + 2 * count > len(record):
        return b""
    mended = bytearray(record)
    for sector in range(1, count):
        if mended[sector * SECTOR - 2 : sector * SECTOR] != record[at : at + 2]:
            return b""
        mended[sector * SECTOR - 2 : sector * SECTOR] = record[at + 2 * sector : at + 2 * sector + 2]
    return bytes(mended)


def _attributes(record: bytes, kind: int) -> Iterator[Attribute]:
    """Those of one kind, in the record itself; of data the one without a name."""
    at = le16(record, 20)
    for _ in range(MOST_ATTRIBUTES):
        found, length = le32(record, at), le32(record, at + 4)
        if length < 24 or at + length > len(record):
            return
        body = record[at : at + length]
        if found == kind and not (kind == DATA and body[9]):
            if body[8]:
                yield Attribute(b"", _runs(body[le16(body, 32) :]))
            else:
                begin = le16(body, 20)
                yield Attribute(body[begin : begin + le32(body, 16)], ())
        at += length


def _runs(packed: bytes) -> Runs:
    """Mapping pairs: a byte with two lengths, a count, a signed distance from the run before."""
    runs: list[tuple[int, int]] = []
    at, first = 0, 0
    while at < len(packed) and packed[at] and len(runs) < MOST_RUNS:
        count_size, step_size = packed[at] & 15, packed[at] >> 4
        if count_size > 8 or step_size > 8:
            break
        count = int.from_bytes(packed[at + 1 : at + 1 + count_size], "little")
        step = packed[at + 1 + count_size : at + 1 + count_size + step_size]
        first += int.from_bytes(step, "little", signed=True)
        runs.append((first if step_size and first >= 0 else -1, count))
        at += 1 + count_size + step_size
    return tuple(runs)


def _is_clean(files: Files, log: Runs) -> bool:
    """By the newer of the two restart pages; a log that was emptied (all ones) has none."""
    page_size = le32(files.read(log, 0, 32), 16)
    pages = [files.read(log, at, 512) for at in (0, page_size if SECTOR <= page_size <= 64 * KIB else 4096)]
    areas = [page[le16(page, 24) :] for page in pages if page[:4] == b"RSTR" and le16(page, 24) <= 496]
    if not areas:
        return True
    newest = max(areas, key=lambda area: le64(area, 0))
    return le16(newest, 12) == NO_CLIENT or bool(le16(newest, 14) & LOG_IS_CLEAN)


def _is_hibernated(files: Files) -> bool:
    number = _find(files, "HIBERFIL.SYS")
    data = files.attribute(number, DATA) if number else None
    if data is None:
        return False
    return (data.value[:4] or files.read(data.runs, 0, 4)) in HIBERNATED


def _find(files: Files, name: str) -> int | None:
    """The record of a file in the root directory: down its index, which is sorted by name in upper case."""
    root = files.attribute(ROOT, INDEX_ROOT)
    if root is None:
        return None
    block_size = le32(root.value, 8)
    unit = files.cluster if files.cluster <= block_size else SECTOR
    blocks = files.attribute(ROOT, INDEX_ALLOCATION)
    node = root.value[16:]
    for _ in range(DEEPEST):
        found, below = _search(node, name)
        if found is not None or below is None or blocks is None or block_size > LARGEST_INDEX_BLOCK:
            return found
        node = _mended(files.read(blocks.runs, below * unit, block_size), b"INDX")[24:]
    return None


def _search(node: bytes, name: str) -> tuple[int | None, int | None]:
    """(the record, the node below to go on in), each if there is one. `node` begins with its index header."""
    at = le32(node, 0)
    for _ in range(MOST_ENTRIES):
        length, flags = le16(node, at + 8), le16(node, at + 12)
        if length < 16 or at + length > len(node):
            break
        entry = node[at : at + length]
        below = le64(entry, length - 8) if flags & HAS_SUBNODE else None
        if flags & IS_LAST:
            return None, below
        here = _upper(entry)
        if here == name:
            return le64(entry, 0) & 0xFFFFFFFFFFFF, None
        if here > name:
            return None, below
        at += length
    return None, None


def _upper(entry: bytes) -> str:
    """The name in an index entry; only letters of ASCII matter for the names that are looked for."""
    length = entry[80] * 2 if len(entry) > 80 else 0
    text = entry[82 : 82 + length].decode("utf-16-le", "replace")
    return "".join(letter.upper() if letter.isascii() else letter for letter in text)
