"""Decode FAT, exFAT, NTFS and other formats of Windows: where their data begin and whether they are clean."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from aligntool.formats.numbers import be16, be64, guid_at, le16, le32, le64, serial_at, text_at
from aligntool.formats.reader import Area, checksum_problem, rotating_sum
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, is_power_of_two

MEDIUM_ERRORS = (  # exFAT, FAT; only Windows clears them
    "has errors on its medium that a system detected (media failure flag set)",
    "has errors on its medium that a system detected (error bit in the allocation table)",
)

# exFAT.
#
# Source: Microsoft's exFAT file system specification, section 3 (boot region) and 7.3 (volume label).

CHANGING = (106, 107, 112)  # VolumeFlags and PercentInUse: excluded from the checksum
CHECKED_SECTORS = 11
ENTRY = 32
LONGEST_DIRECTORY = 64 * KIB  # of the root directory is searched for the label
MOST_CLUSTERS_READ = 64


def read_exfat(area: Area) -> Layer | None:
    boot = area.head[:512]
    if boot[:11] != b"\xeb\x76\x90EXFAT   " or boot[510:512] != b"\x55\xaa" or any(boot[11:64]):
        return None
    hidden, sectors, fat, fat_length, heap, clusters, root = struct.unpack_from("<2Q5I", boot, 64)
    flags, sector_shift, cluster_shift, copies = struct.unpack_from("<H3B", boot, 106)
    if not (9 <= sector_shift <= 12 and cluster_shift <= 25 - sector_shift and copies in (1, 2)):
        return None
    if fat < 24 or heap < fat + fat_length * copies or not 2 <= root <= clusters + 1:
        return None
    sector, cluster = 1 << sector_shift, 1 << sector_shift + cluster_shift
    unclean = "was not unmounted cleanly (dirty flag set)" if flags & 0x2 else None
    if flags & 0x4:
        unclean = MEDIUM_ERRORS[0]
    directories = _directories(area, root, fat * sector, heap * sector, cluster, clusters)
    copy = area.read((CHECKED_SECTORS + 1) * sector, 512)
    return replace(
        area.layer("exfat", sectors << sector_shift, cluster), version=f"{boot[105]}.{boot[104]}",
        label=_exfat_label(directories), uuid=serial_at(boot, 100), data_start=area.start + heap * sector,
        problems=_exfat_problems(area, sector), unclean=unclean, hidden_sectors=hidden,
        backup_boot=(CHECKED_SECTORS + 1) * sector,
        backup_hidden_sectors=le64(copy, 64) if copy[:11] == boot[:11] else None,
    )  # fmt: skip


def _exfat_problems(area: Area, sector: int) -> tuple[str, ...]:
    region = area.read(0, (CHECKED_SECTORS + 1) * sector)
    stored = region[CHECKED_SECTORS * sector :]
    computed = rotating_sum(region[: CHECKED_SECTORS * sector], CHANGING)
    if stored == computed.to_bytes(4, "little") * (sector // 4):
        return ()
    first = next((at for at in range(0, len(stored), 4) if le32(stored, at) != computed), 0)
    return checksum_problem("the exFAT boot region", le32(stored, first), computed) or (
        f"the boot region of exFAT ends after {len(region)} bytes",
    )


def _exfat_label(directories: Iterator[bytes]) -> str | None:
    for directory in directories:
        for at in range(0, len(directory) - ENTRY + 1, ENTRY):
            if directory[at] == 0:
                return None
            if directory[at] == 0x83:  # the entry of the volume label
                return text_at(directory, at + 2, min(directory[at + 1], 11) * 2, "utf-16-le")
    return None


def _directories(
    area: Area, number: int, fat: int, heap: int, cluster: int, clusters: int, mask: int = 0xFFFFFFFF
) -> Iterator[bytes]:
    """Yield the clusters of a directory in the order of the allocation table at `fat`, up to the limits of the search.

    `mask`: the bits of an entry that are the cluster number.
    """
    left = LONGEST_DIRECTORY
    for _ in range(MOST_CLUSTERS_READ):
        if not 2 <= number < clusters + 2 or left <= 0:
            return
        yield area.read(heap + (number - 2) * cluster, min(cluster, left))
        left -= cluster
        number = le32(area.read(fat + 4 * number, 4), 0) & mask


# FAT12, FAT16 and FAT32.
#
# A master boot record begins with a jump and ends with 55 AA like a FAT boot sector, so every field is checked
# first. Source: Microsoft's FAT specification 1.03 (fatgen103).

FAT12_BELOW, FAT16_BELOW, MOST_CLUSTERS = 4085, 65525, 0x0FFFFFF6
ATTRIBUTES, VOLUME_LABEL, DIRECTORY, LONG_NAME = 11, 0x08, 0x10, 0x0F
NAMES = (
    (0x52, b"MSWIN"), (0x52, b"FAT32   "), (0x36, b"MSDOS"), (0x36, b"FAT16   "), (0x36, b"FAT12   "),
    (0x36, b"FAT     "),
)  # fmt: skip
OTHERS = (b"JFS     ", b"HPFS    ")  # OS/2 put FAT-like boot sectors in front of these


@dataclass(frozen=True, slots=True)
class FatBootSector:
    """The layout of a FAT volume as stated by its boot sector."""

    sector: int  # bytes
    cluster: int  # bytes
    reserved: int  # sectors
    copies: int  # of the allocation table
    fats: int  # sectors of all copies
    directory: int  # bytes of a fixed root directory; nonzero on FAT32: an area that is not used
    sectors: int
    clusters: int
    root_cluster: int  # FAT32 only, else 0

    @property
    def data_start(self) -> int:
        # The directory counts on FAT32 as well: linux/fs/fat/inode.c, fat_fill_super(); FatFileAreaLbo of Windows.
        return (self.reserved + self.fats) * self.sector + -(-self.directory // self.sector) * self.sector

    @property
    def bits(self) -> int:
        if self.root_cluster:
            return 32
        return 12 if self.clusters < FAT12_BELOW else 16


def is_small_fat32(problem: str) -> bool:
    """Return whether a problem of a layer is that some systems mistake the FAT32 for a FAT16, wherever it is."""
    return problem.startswith("a FAT32 of ")


def read_fat(area: Area) -> Layer | None:
    sector = area.head[:512]
    boot = parse_fat_boot_sector(sector)
    if boot is None or (boot.bits == 32 and not _has_plausible_info(area, sector, boot)):
        return None
    extended = 64 if boot.bits == 32 else 36  # offset of drive number, signature, serial and label
    signature = sector[extended + 2]
    few = f"a FAT32 of {boot.clusters} clusters: some systems treat fewer than {FAT16_BELOW} as FAT16"
    backup = le16(sector, 50) if boot.bits == 32 else 0
    copy = area.read(backup * boot.sector, 512) if 0 < backup < boot.reserved else b""
    return replace(
        area.layer("vfat", boot.sectors * boot.sector, boot.cluster), version=f"FAT{boot.bits}",
        label=_root_label(area, boot),  # Windows and blkid use the directory, not the copy in the boot sector
        uuid=serial_at(sector, extended + 3) if signature in (0x28, 0x29) else None,
        data_start=area.start + boot.data_start, unclean=_fat_unclean(area, sector, boot, extended),
        problems=(few,) if boot.bits == 32 and boot.clusters < FAT16_BELOW else (), hidden_sectors=le32(sector, 28),
        backup_boot=backup * boot.sector if copy else None,
        backup_hidden_sectors=le32(copy, 28) if parse_fat_boot_sector(copy) else None,
    )  # fmt: skip


def _fat_unclean(area: Area, sector: bytes, boot: FatBootSector, extended: int) -> str | None:
    """Return why the volume is not clean, or None: while it is mounted, Windows clears bits in the entry of cluster 1,
    Linux sets one after the drive number.
    """
    entry = le32(area.read(boot.reserved * boot.sector + boot.bits // 8, 4), 0)
    shut, no_error = {16: (0x8000, 0x4000), 32: (0x08000000, 0x04000000)}.get(boot.bits, (0, 0))
    if entry & no_error != no_error:
        return MEDIUM_ERRORS[1]
    if entry & shut != shut:
        return "was not unmounted cleanly (bit in the allocation table)"
    return "was not unmounted cleanly (dirty flag set)" if sector[extended + 1] & 0x1 else None  # FAT_STATE_DIRTY


def parse_fat_boot_sector(sector: bytes) -> FatBootSector | None:
    """Return the boot sector, or None if its fields are inconsistent. `sector`: the volume's first 512 bytes."""
    if len(sector) < 512 or not _looks_like_fat(sector):
        return None
    size, per_cluster, reserved, copies, entries, total16, media, fat16 = struct.unpack_from("<HBHBHHBH", sector, 11)
    if size not in (512, 1024, 2048, 4096) or not is_power_of_two(per_cluster):
        return None
    if not reserved or not copies or not (media >= 0xF8 or media == 0xF0):
        return None
    fats = (fat16 or le32(sector, 36)) * copies
    directory, sectors = entries * ENTRY, total16 or le32(sector, 32)
    clusters = (sectors - reserved - fats - -(-directory // size)) // per_cluster
    root = 0 if fat16 else le32(sector, 44)
    most = FAT16_BELOW - 1 if fat16 else MOST_CLUSTERS
    if not fats or not 0 < clusters <= most or (not fat16 and root < 2):
        return None
    return FatBootSector(size, size * per_cluster, reserved, copies, fats, directory, sectors, clusters, root)


def _looks_like_fat(sector: bytes) -> bool:
    named = any(sector.startswith(name, at) for at, name in NAMES)
    return named or (sector[510:512] == b"\x55\xaa" and sector[0x36:0x3E] not in OTHERS)


def _has_plausible_info(area: Area, sector: bytes, boot: FatBootSector) -> bool:
    """Return whether FAT32's FSInfo sector has its signatures, or is empty (blkid's rule, from real volumes)."""
    at = le16(sector, 48)
    if at in (0, 0xFFFF):
        return True
    info = area.read(at * boot.sector, 512)
    return info[:4] in (b"RRaA", b"RRdA", bytes(4)) and info[484:488] in (b"rrAa", bytes(4))


def _root_label(area: Area, boot: FatBootSector) -> str | None:
    if not boot.root_cluster:
        at = (boot.reserved + boot.fats) * boot.sector
        return _label_in(area.read(at, min(boot.directory, LONGEST_DIRECTORY)))
    fat = boot.reserved * boot.sector
    clusters = _directories(area, boot.root_cluster, fat, boot.data_start, boot.cluster, boot.clusters, 0x0FFFFFFF)
    return next((label for directory in clusters if (label := _label_in(directory))), None)


def _label_in(directory: bytes) -> str | None:
    for at in range(0, len(directory) - ENTRY + 1, ENTRY):
        first, attributes = directory[at], directory[at + ATTRIBUTES]
        if first == 0:
            return None
        if first == 0xE5 or attributes & 0x3F == LONG_NAME or le16(directory, at + 20) or le16(directory, at + 26):
            continue
        if attributes & (VOLUME_LABEL | DIRECTORY) == VOLUME_LABEL:
            name = directory[at : at + 11]
            return text_at(b"\xe5" + name[1:] if first == 0x05 else name, 0, 11, "cp437")
    return None


# Windows dynamic disks: the private header of the Logical Disk Manager.
#
# Layout: linux/block/partitions/ldm.c, ldm_parse_privhead.

SECTOR = 512


def read_ldm(area: Area) -> Layer | None:
    places = (area.head[6 * SECTOR : 7 * SECTOR], area.tail[-SECTOR:])  # on an MBR disk; at the end of a GPT partition
    header = next((place for place in places if place[:8] == b"PRIVHEAD"), b"")
    if len(header) < SECTOR or be16(header, 12) != 2:
        return None
    start = be64(header, 0x11B) * SECTOR
    return Layer(
        kind="ldm", extent=area.extent, version=f"{be16(header, 12)}.{be16(header, 14)}",
        uuid=text_at(header, 0x30, 64, "ascii"), data_start=start if area.is_whole and start else None,
    )  # fmt: skip


# The state of an NTFS volume: the dirty flag, an unfinished log, a hibernated Windows.
#
# Every step is bounded, and anything that cannot be followed counts as absent. Layout: linux/fs/ntfs3/ntfs.h;
# conditions of a clean volume: ntfs_is_logfile_clean() and ntfs_volume_check_hiberfile() of ntfs-3g.

LOG_FILE, VOLUME, ROOT, BAD_CLUSTERS = 2, 3, 5, 8  # numbers of file records
NUMBER, IN_USE = (1 << 48) - 1, 1  # the bits of a reference that are the record number; a flag of a record
MFT_RECORD_ROOM = 64 * KIB  # the largest size of a record
ATTRIBUTE_LIST, VOLUME_INFORMATION, DATA, INDEX_ROOT, INDEX_ALLOCATION = 0x20, 0x70, 0x80, 0x90, 0xA0
MOST_VOLUME_ATTRIBUTES, MOST_ENTRIES, DEEPEST = 64, 4096, 8
LARGEST_INDEX_BLOCK = 64 * KIB
LONGEST_INDEX = 64 * MIB  # of a directory whose names are all read
LONGEST_LIST = 256 * KIB  # of attributes, as Windows limits it
MOST_PIECES = 4096  # of a file

HIBERNATION_HEADER = 4096
HIBERNATED = (b"hibr", b"HIBR")  # after a resume it is b"wake" or b"RSTR"
WINDOWS_HIBERNATED = "Windows is hibernated in it, or was shut down with fast startup (hiberfil.sys)"

Runs = tuple[tuple[int, int], ...]  # (first cluster, or -1 for a hole; clusters)


Attribute = tuple[bytes, Runs]  # of an NTFS file record: the value if resident, the runs if not


class CannotFollow(ValueError):
    """Something exists but cannot be followed; the message follows the name of a file."""


_LOST = "cannot be followed in the NTFS file records"


@dataclass(frozen=True, slots=True)
class NtfsFiles:
    """The files of an NTFS volume, by the number of their record."""

    area: Area
    cluster: int
    record_size: int
    table: Runs  # of the master file table

    def attribute(self, number: int, kind: int) -> Attribute | None:
        record = _with_fixups(self.read(self.table, number * self.record_size, self.record_size), b"FILE")
        return next(_attributes(record, kind), None)

    def read(self, runs: Runs, offset: int, length: int) -> bytes:
        """Return bytes from `offset` on, fewer at the end of the runs and before a hole."""
        found = b""
        for first, count in runs:
            size = count * self.cluster
            if offset < size:
                wanted = min(length - len(found), size - offset)
                piece = self.area.read(first * self.cluster + offset, wanted) if first >= 0 else b""
                found += piece
                if len(piece) < wanted or len(found) == length:
                    break
                offset = size
            offset -= size
        return found

    def parts(self, number: int, kind: int, *, named: bool = False) -> list[bytes]:
        """Return the parts of an attribute, one from each record of the file that has a part. `named`: of a data
        attribute with a name. Raises CannotFollow.
        """
        base = self.record(number)
        records = [base]
        for listed in _bodies(base, ATTRIBUTE_LIST):
            numbers = self._records_of(listed, kind, named=named)
            records = [base if n == number else self.record(n, of=number) for n in numbers]
        return sorted((body for record in records for body in _bodies(record, kind, named=named)), key=_first_cluster)

    def record(self, number: int, of: int = 0) -> bytes:
        """Return a record in use. `of`: for an extension record, the number of the base record. Raises CannotFollow."""
        record = _with_fixups(self.read(self.table, number * self.record_size, self.record_size), b"FILE")
        if not le16(record, 22) & IN_USE or le64(record, 32) & NUMBER != of:
            raise CannotFollow(_LOST)
        return record

    def _records_of(self, listed: bytes, kind: int, *, named: bool) -> Iterator[int]:
        """Yield the numbers of the records with parts of an attribute, from the attribute list. Raises CannotFollow."""
        entries = (
            resident_value(listed)
            if not listed[8]
            else self.read(runs_of([listed]), 0, min(le64(listed, 48), LONGEST_LIST))
        )
        at, seen = 0, set[int]()
        while at + 26 <= len(entries) and (length := le16(entries, at + 4)) >= 26:
            number = le64(entries, at + 16) & NUMBER
            if le32(entries, at) == kind and number not in seen and (kind != DATA or named == bool(entries[at + 6])):
                seen.add(number)
                yield number
            at += length
        if at != len(entries):
            raise CannotFollow(_LOST)


def _first_cluster(body: bytes) -> int:
    return le64(body, 16) if body[8] else 0


def resident_value(body: bytes) -> bytes:
    """Return the value of a resident attribute."""
    begin = le16(body, 20)
    return body[begin : begin + le32(body, 16)]


def runs_of(parts: Sequence[bytes]) -> Runs:
    """Return the runs of a nonresident attribute. Raises CannotFollow if its parts do not cover all of it."""
    runs: list[tuple[int, int]] = []
    for body in parts:
        before = sum(count for _, count in runs)
        runs += _decode_runs(body[le16(body, 32) :]) if body[8] else ()
        if not body[8] or (le64(body, 16), le64(body, 24)) != (before, sum(count for _, count in runs) - 1):
            raise CannotFollow(_LOST)
        if len(runs) > MOST_PIECES:
            raise CannotFollow(_LOST)
    return tuple(runs)


def open_ntfs(area: Area) -> NtfsFiles:
    """Return the files of an NTFS volume. Raises CannotFollow."""
    boot = area.head[:512]
    files = NtfsFiles(area, _cluster_size(boot), _record_size(boot, _cluster_size(boot)), ())
    if not files.cluster:
        raise CannotFollow(_LOST)
    first = replace(files, table=((le64(boot, 48), -(-MFT_RECORD_ROOM // files.cluster)),))
    first = replace(first, table=runs_of([body for body in _bodies(first.record(0), DATA) if not _first_cluster(body)]))
    return replace(first, table=runs_of(first.parts(0, DATA)))


def bad_clusters(files: NtfsFiles) -> int:
    """Return how many clusters the stream $Bad lists: its runs, between holes. Raises CannotFollow."""
    parts = (body for body in files.parts(BAD_CLUSTERS, DATA, named=True) if body[8])
    runs = (run for body in parts for run in _decode_runs(body[le16(body, 32) :]))
    return sum(count for first, count in runs if first >= 0)


def ntfs_unclean(area: Area, table_start: int, cluster: int, record_size: int) -> str | None:
    """Return why the volume is not clean, or None if nothing indicates it. `table_start`: the first cluster of the
    master file table.
    """
    record = _with_fixups(area.read(table_start * cluster, record_size), b"FILE")
    table = next(_attributes(record, DATA), None)
    if table is None:
        return None
    files = NtfsFiles(area, cluster, record_size, table[1])
    with suppress(CannotFollow):
        files = open_ntfs(area)  # with a table in many pieces; the first one is all that a damaged list of them leaves
    with suppress(CannotFollow):
        if _is_hibernated(files):
            return WINDOWS_HIBERNATED
    volume = files.attribute(VOLUME, VOLUME_INFORMATION)
    if volume and le16(volume[0], 10) & 0x1:
        return "was not unmounted cleanly (dirty flag set)"
    log = files.attribute(LOG_FILE, DATA)
    return "was not unmounted cleanly ($LogFile is in use)" if log and not _is_log_clean(files, log[1]) else None


def _is_hibernated(files: NtfsFiles) -> bool:
    """Return whether hiberfil.sys states so; it is shorter than its header where it protects a volume that does not
    hold the system. Raises CannotFollow.
    """
    number = (find_reference(files, ROOT, "HIBERFIL.SYS") or 0) & NUMBER
    first = [body for body in _bodies(files.record(number), DATA) if not _first_cluster(body)] if number else []
    for body in (first or files.parts(number, DATA))[:1] if number else ():
        is_short = not body[8] or le64(body, 48) < HIBERNATION_HEADER
        return is_short or files.read(_decode_runs(body[le16(body, 32) :]), 0, 4) in HIBERNATED
    return False


def _with_fixups(record: bytes, magic: bytes) -> bytes:
    """Return a record with its update sequence applied (the last bytes of each sector), or b"" if it is not valid."""
    at, count = le16(record, 4), le16(record, 6)
    if record[:4] != magic or not 2 <= count <= len(record) // SECTOR + 1 or at + 2 * count > len(record):
        return b""
    fixed = bytearray(record)
    for sector in range(1, count):
        if fixed[sector * SECTOR - 2 : sector * SECTOR] != record[at : at + 2]:
            return b""
        fixed[sector * SECTOR - 2 : sector * SECTOR] = record[at + 2 * sector : at + 2 * sector + 2]
    return bytes(fixed)


def _bodies(record: bytes, kind: int, *, named: bool = False) -> Iterator[bytes]:
    """Yield the attributes of one kind in a record; of the data attributes, only the unnamed one or the named ones."""
    at = le16(record, 20)
    for _ in range(MOST_VOLUME_ATTRIBUTES):
        found, length = le32(record, at), le32(record, at + 4)
        if length < 24 or at + length > len(record):
            return
        body = record[at : at + length]
        if found == kind and (kind != DATA or named == bool(body[9])):
            yield body
        at += length


def _attributes(record: bytes, kind: int) -> Iterator[Attribute]:
    for body in _bodies(record, kind):
        yield (b"", _decode_runs(body[le16(body, 32) :])) if body[8] else (resident_value(body), ())


def _decode_runs(packed: bytes) -> Runs:
    """Return the runs of mapping pairs: a byte with two lengths, a count, a signed distance from the previous run."""
    runs: list[tuple[int, int]] = []
    at, first = 0, 0
    while at < len(packed) and packed[at] and len(runs) <= MOST_PIECES:
        count_size, step_size = packed[at] & 15, packed[at] >> 4
        if count_size > 8 or step_size > 8:
            break
        count = int.from_bytes(packed[at + 1 : at + 1 + count_size], "little")
        step = packed[at + 1 + count_size : at + 1 + count_size + step_size]
        first += int.from_bytes(step, "little", signed=True)
        runs.append((first if step_size and first >= 0 else -1, count))
        at += 1 + count_size + step_size
    return tuple(runs)


def _is_log_clean(files: NtfsFiles, log: Runs) -> bool:
    """Return whether the log is clean by the newer of its two restart pages; an emptied log (all ones) has none."""
    page_size = le32(files.read(log, 0, 32), 16)
    pages = [files.read(log, at, 512) for at in (0, page_size if SECTOR <= page_size <= 64 * KIB else 4096)]
    areas = [page[le16(page, 24) :] for page in pages if page[:4] == b"RSTR" and le16(page, 24) <= 496]
    if not areas:
        return True
    newest = max(areas, key=lambda area: le64(area, 0))
    return le16(newest, 12) == 0xFFFF or bool(le16(newest, 14) & 0x2)  # no client, or RESTART_VOLUME_IS_CLEAN


def find_reference(files: NtfsFiles, directory: int, name: str) -> int | None:
    """Return the reference of a file (record number, and in the upper bits its sequence number), or None if the
    directory does not contain it. The index is sorted by name in upper case. Raises CannotFollow.
    """
    root = next((resident_value(body) for body in files.parts(directory, INDEX_ROOT) if not body[8]), b"")
    block_size = le32(root, 8)
    unit = files.cluster if files.cluster <= block_size else SECTOR
    blocks = runs_of(files.parts(directory, INDEX_ALLOCATION))
    node = root[16:]
    for _ in range(DEEPEST):
        found, below = _search(node, name)
        if found is not None or below is None:
            return found
        if not 0 < block_size <= LARGEST_INDEX_BLOCK:
            break
        node = _with_fixups(files.read(blocks, below * unit, block_size), b"INDX")[24:]
    raise CannotFollow(_LOST)


def names_in(files: NtfsFiles, directory: int) -> Iterator[str]:
    """Yield the names in a directory: those of its root, then those of each block of its index, also of blocks that are
    not in use any more. Raises CannotFollow.
    """
    root = next((resident_value(body) for body in files.parts(directory, INDEX_ROOT) if not body[8]), b"")
    yield from _names(root[16:])
    block_size = le32(root, 8)
    runs = runs_of(files.parts(directory, INDEX_ALLOCATION))
    length = sum(count for _, count in runs) * files.cluster
    if length and not (0 < block_size <= LARGEST_INDEX_BLOCK and length <= LONGEST_INDEX):
        raise CannotFollow(_LOST)
    for at in range(0, length, block_size):
        block = files.read(runs, at, block_size)
        if block.startswith(b"INDX"):
            yield from _names(_with_fixups(block, b"INDX")[24:])


def _names(node: bytes) -> Iterator[str]:
    """Yield the names in a node, which begins with its index header. Raises CannotFollow."""
    at = le32(node, 0)
    for _ in range(MOST_ENTRIES):
        length, flags = le16(node, at + 8), le16(node, at + 12)
        if length < 16 or at + length > len(node):
            break
        if flags & 2:  # the last one
            return
        entry = node[at : at + length]
        if length > 80:
            yield entry[82 : 82 + 2 * entry[80]].decode("utf-16-le", "replace")
        at += length
    raise CannotFollow(_LOST)


def _search(node: bytes, name: str) -> tuple[int | None, int | None]:
    """Return (the reference, the child node to search), each None if absent. `node` begins with its index header.

    Only ASCII letters are put in upper case, which suffices for the names that are searched. Raises CannotFollow.
    """
    at = le32(node, 0)
    for _ in range(MOST_ENTRIES):
        length, flags = le16(node, at + 8), le16(node, at + 12)
        if length < 16 or at + length > len(node):
            break
        entry = node[at : at + length]
        below = le64(entry, length - 8) if flags & 1 else None
        if flags & 2:  # the last one
            return None, below
        found = entry[82 : 82 + 2 * entry[80]].decode("utf-16-le", "replace") if length > 80 else ""
        found = "".join(letter.upper() if letter.isascii() else letter for letter in found)
        if found == name:
            return le64(entry, 0), None
        if found > name:
            return None, below
        at += length
    raise CannotFollow(_LOST)


# NTFS, ReFS and BitLocker.
#
# Layout of NTFS: linux/fs/ntfs3/ntfs.h, struct NTFS_BOOT; of BitLocker: cryptsetup lib/bitlk/bitlk.c and
# libbde's format notes; of ReFS: libfsrefs's format notes.

VOLUME_NAME = 0x60
UNUSED = ((14, 2), (16, 1), (17, 2), (19, 2), (22, 2), (32, 4))  # fields of FAT that are zero on NTFS
VISTA, WINDOWS_7, TO_GO = b"\xeb\x52\x90-FVE-FS-", b"\xeb\x58\x90-FVE-FS-", b"\xeb\x58\x90MSWIN4.1"


def read_ntfs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if len(boot) < 512 or boot[3:11] != b"NTFS    " or any(any(boot[at : at + size]) for at, size in UNUSED):
        return None
    sector, cluster = le16(boot, 11), _cluster_size(boot)
    sectors, table, mirror, serial = struct.unpack_from("<3Q8xQ", boot, 40)
    if not is_power_of_two(sector) or not 256 <= sector <= 4096 or not cluster or not sectors:
        return None
    if max(table, mirror) * cluster > sectors * sector:
        return None  # the MFT or its mirror outside the volume
    claims = (sectors + 1) * sector  # the copy of the boot sector follows the volume and is not counted
    record_size = _record_size(boot, cluster)
    record = area.read(table * cluster + VOLUME * record_size, record_size)
    name = next(_attributes(record, VOLUME_NAME), None) if record[:4] == b"FILE" else None
    copy = area.read(sectors * sector, 512)
    return replace(
        area.layer("ntfs", claims, cluster), label=text_at(name[0], 0, 256, "utf-16-le") if name else None,
        uuid=f"{serial:016X}", unclean=ntfs_unclean(area, table, cluster, record_size),
        hidden_sectors=le32(boot, 28), backup_boot=sectors * sector,
        backup_hidden_sectors=le32(copy, 28) if copy[3:11] == boot[3:11] else None,
    )  # fmt: skip


def _cluster_size(boot: bytes) -> int:
    """Return the bytes per cluster, or 0 for an invalid field. A field above 128 is a negated exponent of two."""
    sectors = boot[13]
    if sectors > 128:
        sectors = 1 << 256 - sectors if sectors >= 240 else 0
    size = sectors * le16(boot, 11)
    return size if is_power_of_two(size) and size <= 2 * MIB else 0


def _record_size(boot: bytes, cluster: int) -> int:
    """Return the bytes per record, or 0 for an invalid field."""
    raw = boot[64]
    size = raw * cluster if raw < 128 else 1 << 256 - raw if raw > 225 else 0
    return size if 256 <= size <= 64 * KIB else 0


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
    at = {WINDOWS_7: le64(boot, 176), TO_GO: le64(boot, 440)}.get(start, 0)
    metadata = area.read(at, 64 * KIB) if at and at % 64 == 0 else b""
    if start != VISTA and metadata[:8] != b"-FVE-FS-":
        return None
    sector, cluster = le16(boot, 11), _cluster_size(boot)
    version = str(le16(metadata, 10)) if metadata else None
    unit = cluster or (sector if is_power_of_two(sector) else None)
    # Encryption in place: all data has the same offset as in the file system.
    found = replace(area.layer("BitLocker", None, unit), version=version, label=next(_descriptions(metadata), None))
    return replace(found, uuid=guid_at(metadata, 64 + 16))


def _descriptions(metadata: bytes) -> Iterator[str]:
    """Yield the descriptions in the metadata, whose entries are: size, entry type, value type, version, value."""
    end, at = min(64 + le32(metadata, 64), len(metadata)), 64 + 48
    while at + 8 < end:
        size = le16(metadata, at)
        if size < 8 or at + size > end:
            return
        text = text_at(metadata, at + 8, size - 8, "utf-16-le")
        if le32(metadata, at + 2) == 7 | 2 << 16 and text:  # a description, a string
            yield text
        at += size
