"""NTFS (where it begins, whether it is clean) and LDM."""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.formats.reader import Area, be16, be64, guid_at, le16, le32, le64, text_at
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, is_power_of_two

# Windows dynamic disks: the private header of the Logical Disk Manager.
#
# Layout: linux/block/partitions/ldm.c, ldm_parse_privhead.

MAGIC = b"PRIVHEAD"
SECTOR = 512
MBR_PLACE = 6 * SECTOR  # on a disk with an MBR; a GPT metadata partition ends with it


def read_ldm(area: Area) -> Layer | None:
    places = (area.head[MBR_PLACE : MBR_PLACE + SECTOR], area.tail[-SECTOR:])
    header = next((place for place in places if place[:8] == MAGIC), b"")
    if len(header) < SECTOR or be16(header, 12) != 2:
        return None
    start = be64(header, 0x11B) * SECTOR
    return Layer(
        kind="ldm", extent=area.extent, version=f"{be16(header, 12)}.{be16(header, 14)}",
        uuid=text_at(header, 0x30, 64, "ascii"), data_start=start if area.is_whole and start else None,
    )  # fmt: skip


# What NTFS says of how it was left: the dirty flag, an unfinished log, a hibernated Windows.
#
# Every step is bounded, and what cannot be followed is taken for absent. Layout: linux/fs/ntfs3/ntfs.h; what
# counts as clean: ntfs_is_logfile_clean() and ntfs_volume_check_hiberfile() of ntfs-3g.

LOG_FILE, VOLUME, ROOT = 2, 3, 5  # numbers of file records
VOLUME_INFORMATION, DATA, INDEX_ROOT, INDEX_ALLOCATION = 0x70, 0x80, 0x90, 0xA0
MOST_VOLUME_ATTRIBUTES, MOST_RUNS, MOST_ENTRIES, DEEPEST = 64, 256, 4096, 8
LARGEST_INDEX_BLOCK = 64 * KIB

DIRTY = 0x0001  # in $VOLUME_INFORMATION
NO_CLIENT, LOG_IS_CLEAN = 0xFFFF, 0x0002  # in a restart area
HAS_SUBNODE, IS_LAST = 1, 2  # in an index entry
HIBERNATED = (b"hibr", b"HIBR")  # b"wake" and b"RSTR" stand there once it was resumed

Runs = tuple[tuple[int, int], ...]  # (first cluster, or -1 for a hole; clusters)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an NTFS file record."""

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
    for _ in range(MOST_VOLUME_ATTRIBUTES):
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


# Windows: NTFS, ReFS and BitLocker.
#
# Layout of NTFS: linux/fs/ntfs3/ntfs.h, struct NTFS_BOOT; of BitLocker: cryptsetup lib/bitlk/bitlk.c and
# libbde's format notes; of ReFS: libfsrefs's format notes.

LARGEST_CLUSTER = 2 * MIB
VOLUME_NAME = 0x60
LARGEST_RECORD = 64 * KIB
UNUSED = ((14, 2), (16, 1), (17, 2), (19, 2), (22, 2), (32, 4))  # fields of FAT that are zero on NTFS

VISTA, WINDOWS_7, TO_GO = b"\xeb\x52\x90-FVE-FS-", b"\xeb\x58\x90-FVE-FS-", b"\xeb\x58\x90MSWIN4.1"
METADATA_MAGIC = b"-FVE-FS-"
LONGEST_METADATA = 64 * KIB
DESCRIPTION, STRING = 7, 2


def read_ntfs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if len(boot) < 512 or boot[3:11] != b"NTFS    " or any(any(boot[at : at + size]) for at, size in UNUSED):
        return None
    sector, cluster = le16(boot, 11), _cluster(boot)
    sectors = le64(boot, 40)
    if not is_power_of_two(sector) or not 256 <= sector <= 4096 or not cluster or not sectors:
        return None
    if max(le64(boot, 48), le64(boot, 56)) * cluster > sectors * sector:
        return None  # the MFT or its mirror outside the volume
    claims = (sectors + 1) * sector  # the copy of the boot sector lies behind the volume and is not counted
    return area.layer(
        "ntfs", claims, cluster, label=_ntfs_label(area, boot, cluster), uuid=f"{le64(boot, 72):016X}",
        unclean=read_state(area, le64(boot, 48), cluster, _record_size(boot, cluster)),
        hidden_sectors=le32(boot, 28), backup_boot=sectors * sector,
    )  # fmt: skip


def _cluster(boot: bytes) -> int:
    """Bytes; 0 when the field makes no sense. Above 128 it is a negative power of two."""
    sectors = boot[13]
    if sectors > 128:
        sectors = 1 << 256 - sectors if sectors >= 240 else 0
    size = sectors * le16(boot, 11)
    return size if is_power_of_two(size) and size <= LARGEST_CLUSTER else 0


def _record_size(boot: bytes, cluster: int) -> int:
    """Bytes; 0 when the field makes no sense."""
    raw = boot[64]
    size = raw * cluster if raw < 128 else 1 << 256 - raw if raw > 225 else 0
    return size if 256 <= size <= LARGEST_RECORD else 0


def _ntfs_label(area: Area, boot: bytes, cluster: int) -> str | None:
    record_size = _record_size(boot, cluster)
    record = area.read(le64(boot, 48) * cluster + VOLUME * record_size, record_size)
    name = next(_attributes(record, VOLUME_NAME), None) if record[:4] == b"FILE" else None
    return text_at(name.value, 0, 256, "utf-16-le") if name else None


def read_refs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if boot[:8] != b"\0\0\0ReFS\0":
        return None
    sector, per_cluster = le32(boot, 32), le32(boot, 36)
    known = sector in (512, 4096) and is_power_of_two(per_cluster) and sector * per_cluster <= 64 * KIB
    claims = le64(boot, 24) * sector if known else None
    return area.layer("ReFS", claims or None, sector * per_cluster if known else None)


def read_bitlocker(area: Area) -> Layer | None:
    boot = area.head[:512]
    start = boot[:11] if len(boot) == 512 else b""
    if start == VISTA:
        return _bitlocker(area, boot, b"")
    if start not in (WINDOWS_7, TO_GO):
        return None
    at = le64(boot, 176 if start == WINDOWS_7 else 440)
    metadata = area.read(at, LONGEST_METADATA) if at and at % 64 == 0 else b""
    return _bitlocker(area, boot, metadata) if metadata[:8] == METADATA_MAGIC else None


def _bitlocker(area: Area, boot: bytes, metadata: bytes) -> Layer:
    sector, cluster = le16(boot, 11), _cluster(boot)
    return Layer(
        kind="BitLocker",
        extent=area.extent,
        version=str(le16(metadata, 10)) if metadata else None,
        label=next(_descriptions(metadata), None),
        uuid=guid_at(metadata, 64 + 16),
        data_start=area.start,  # encrypted in place: byte for byte where the file system would have it
        data_unit=cluster or (sector if is_power_of_two(sector) else None),
    )


def _descriptions(metadata: bytes) -> Iterator[str]:
    """The names among the metadata's entries: size, entry type, value type, version, value."""
    end, at = min(64 + le32(metadata, 64), len(metadata)), 64 + 48
    while at + 8 < end:
        size = le16(metadata, at)
        if size < 8 or at + size > end:
            return
        if le16(metadata, at + 2) == DESCRIPTION and le16(metadata, at + 4) == STRING:
            text = text_at(metadata, at + 8, size - 8, "utf-16-le")
            if text:
                yield text
        at += size
