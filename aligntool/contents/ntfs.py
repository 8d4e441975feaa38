"""NTFS: its boot sector, its files, and whether it is clean."""

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from aligntool.contents.fat import sector_of_boot_sector
from aligntool.contents.kind import Kind, Shrinker, StartField, Words, contains_no_device
from aligntool.contents.signatures import magic
from aligntool.contents.used_blocks import used_by_partclone
from aligntool.device import Medium
from aligntool.formats.numbers import le16, le32, le64, text_at
from aligntool.formats.reader import Area, Reader, open_area
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, Extent, is_power_of_two

# The state of an NTFS volume: the dirty flag, an unfinished log, a hibernated Windows.
#
# Every step is bounded, and anything that cannot be followed counts as absent. Layout: linux/fs/ntfs3/ntfs.h;
# conditions of a clean volume: ntfs_is_logfile_clean() and ntfs_volume_check_hiberfile() of ntfs-3g.

# numbers of file records
LOG_FILE = 2
VOLUME = 3
ROOT = 5
BAD_CLUSTERS = 8
NUMBER = (1 << 48) - 1  # the bits of a reference that are the record number
IN_USE = 1  # a flag of a record
MFT_RECORD_ROOM = 64 * KIB  # the largest size of a record
ATTRIBUTE_LIST = 0x20
VOLUME_INFORMATION = 0x70
DATA = 0x80
INDEX_ROOT = 0x90
INDEX_ALLOCATION = 0xA0
MOST_VOLUME_ATTRIBUTES = 64
MOST_ENTRIES = 4096
DEEPEST = 8
LARGEST_INDEX_BLOCK = 64 * KIB
LONGEST_INDEX = 64 * MIB  # of a directory whose names are all read
LONGEST_LIST = 256 * KIB  # of attributes, as Windows limits it
MOST_PIECES = 4096  # of a file

SECTOR = 512
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
        """Return the parts of an attribute, one from each record of the file that has a part. `named`: of a
        data attribute with a name. Raises CannotFollow.
        """
        base = self.record(number)
        records = [base]
        for listed in _bodies(base, ATTRIBUTE_LIST):
            numbers = self._records_of(listed, kind, named=named)
            records = [base if n == number else self.record(n, of=number) for n in numbers]
        return sorted(
            (body for record in records for body in _bodies(record, kind, named=named)), key=_first_cluster
        )

    def record(self, number: int, of: int = 0) -> bytes:
        """Return a record in use. `of`: for an extension record, the number of the base record. Raises
        CannotFollow.
        """
        record = _with_fixups(self.read(self.table, number * self.record_size, self.record_size), b"FILE")
        if not le16(record, 22) & IN_USE or le64(record, 32) & NUMBER != of:
            raise CannotFollow(_LOST)
        return record

    def _records_of(self, listed: bytes, kind: int, *, named: bool) -> Iterator[int]:
        """Yield the numbers of the records with parts of an attribute, from the attribute list. Raises
        CannotFollow.
        """
        entries = (
            resident_value(listed)
            if not listed[8]
            else self.read(runs_of([listed]), 0, min(le64(listed, 48), LONGEST_LIST))
        )
        at = 0
        seen = set[int]()
        while at + 26 <= len(entries) and (length := le16(entries, at + 4)) >= 26:
            number = le64(entries, at + 16) & NUMBER
            if (
                le32(entries, at) == kind
                and number not in seen
                and (kind != DATA or named == bool(entries[at + 6]))
            ):
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
    files = NtfsFiles(area, cluster_size(boot), _record_size(boot, cluster_size(boot)), ())
    if not files.cluster:
        raise CannotFollow(_LOST)
    first = replace(files, table=((le64(boot, 48), -(-MFT_RECORD_ROOM // files.cluster)),))
    first = replace(
        first, table=runs_of([body for body in _bodies(first.record(0), DATA) if not _first_cluster(body)])
    )
    return replace(first, table=runs_of(first.parts(0, DATA)))


def bad_clusters(files: NtfsFiles) -> int:
    """Return how many clusters the stream $Bad lists: its runs, between holes. Raises CannotFollow."""
    parts = (body for body in files.parts(BAD_CLUSTERS, DATA, named=True) if body[8])
    runs = (run for body in parts for run in _decode_runs(body[le16(body, 32) :]))
    return sum(count for first, count in runs if first >= 0)


def ntfs_unclean(area: Area, table_start: int, cluster: int, record_size: int) -> str | None:
    """Return why the volume is not clean, or None if nothing indicates it. `table_start`: the first cluster
    of the master file table.
    """
    record = _with_fixups(area.read(table_start * cluster, record_size), b"FILE")
    table = next(_attributes(record, DATA), None)
    if table is None:
        return None
    files = NtfsFiles(area, cluster, record_size, table[1])
    with suppress(CannotFollow):
        # with a table in many pieces; the first one is all that a damaged list of them leaves
        files = open_ntfs(area)
    with suppress(CannotFollow):
        if _is_hibernated(files):
            return WINDOWS_HIBERNATED
    volume = files.attribute(VOLUME, VOLUME_INFORMATION)
    if volume and le16(volume[0], 10) & 0x1:
        return "was not unmounted cleanly (dirty flag set)"
    log = files.attribute(LOG_FILE, DATA)
    return (
        "was not unmounted cleanly ($LogFile is in use)" if log and not _is_log_clean(files, log[1]) else None
    )


def _is_hibernated(files: NtfsFiles) -> bool:
    """Return whether hiberfil.sys states so; it is shorter than its header where it protects a volume that
    does not hold the system. Raises CannotFollow.
    """
    number = (find_reference(files, ROOT, "HIBERFIL.SYS") or 0) & NUMBER
    first = (
        [body for body in _bodies(files.record(number), DATA) if not _first_cluster(body)] if number else []
    )
    for body in (first or files.parts(number, DATA))[:1] if number else ():
        is_short = not body[8] or le64(body, 48) < HIBERNATION_HEADER
        return is_short or files.read(_decode_runs(body[le16(body, 32) :]), 0, 4) in HIBERNATED
    return False


def _with_fixups(record: bytes, magic: bytes) -> bytes:
    """Return a record with its update sequence applied (the last bytes of each sector), or b"" if it is not
    valid.
    """
    at = le16(record, 4)
    count = le16(record, 6)
    if record[:4] != magic or not 2 <= count <= len(record) // SECTOR + 1 or at + 2 * count > len(record):
        return b""
    fixed = bytearray(record)
    for sector in range(1, count):
        if fixed[sector * SECTOR - 2 : sector * SECTOR] != record[at : at + 2]:
            return b""
        fixed[sector * SECTOR - 2 : sector * SECTOR] = record[at + 2 * sector : at + 2 * sector + 2]
    return bytes(fixed)


def _bodies(record: bytes, kind: int, *, named: bool = False) -> Iterator[bytes]:
    """Yield the attributes of one kind in a record; of the data attributes, only the unnamed one or the named
    ones.
    """
    at = le16(record, 20)
    for _ in range(MOST_VOLUME_ATTRIBUTES):
        found = le32(record, at)
        length = le32(record, at + 4)
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
    """Return the runs of mapping pairs: a byte with two lengths, a count, a signed distance from the previous
    run.
    """
    runs: list[tuple[int, int]] = []
    at = 0
    first = 0
    while at < len(packed) and packed[at] and len(runs) <= MOST_PIECES:
        count_size = packed[at] & 15
        step_size = packed[at] >> 4
        if count_size > 8 or step_size > 8:
            break
        count = int.from_bytes(packed[at + 1 : at + 1 + count_size], "little")
        step = packed[at + 1 + count_size : at + 1 + count_size + step_size]
        first += int.from_bytes(step, "little", signed=True)
        runs.append((first if step_size and first >= 0 else -1, count))
        at += 1 + count_size + step_size
    return tuple(runs)


def _is_log_clean(files: NtfsFiles, log: Runs) -> bool:
    """Return whether the log is clean by the newer of its two restart pages; an emptied log (all ones) has
    none.
    """
    page_size = le32(files.read(log, 0, 32), 16)
    pages = [files.read(log, at, 512) for at in (0, page_size if SECTOR <= page_size <= 64 * KIB else 4096)]
    areas = [page[le16(page, 24) :] for page in pages if page[:4] == b"RSTR" and le16(page, 24) <= 496]
    if not areas:
        return True
    newest = max(areas, key=lambda area: le64(area, 0))
    return le16(newest, 12) == 0xFFFF or bool(le16(newest, 14) & 0x2)  # no client, or RESTART_VOLUME_IS_CLEAN


def find_reference(files: NtfsFiles, directory: int, name: str) -> int | None:
    """Return the reference of a file (record number, and in the upper bits its sequence number), or None if
    the directory does not contain it. The index is sorted by name in upper case. Raises CannotFollow.
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
    """Yield the names in a directory: those of its root, then those of each block of its index, also of
    blocks that are not in use any more. Raises CannotFollow.
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
        length = le16(node, at + 8)
        flags = le16(node, at + 12)
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
    """Return (the reference, the child node to search), each None if absent. `node` begins with its index
    header.

    Only ASCII letters are put in upper case, which suffices for the names that are searched. Raises
    CannotFollow.
    """
    at = le32(node, 0)
    for _ in range(MOST_ENTRIES):
        length = le16(node, at + 8)
        flags = le16(node, at + 12)
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


# The boot sector. Layout: linux/fs/ntfs3/ntfs.h, struct NTFS_BOOT.

VOLUME_NAME = 0x60
UNUSED = ((14, 2), (16, 1), (17, 2), (19, 2), (22, 2), (32, 4))  # fields of FAT that are zero on NTFS


def read_ntfs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if len(boot) < 512 or boot[3:11] != b"NTFS    " or any(any(boot[at : at + size]) for at, size in UNUSED):
        return None
    sector = le16(boot, 11)
    cluster = cluster_size(boot)
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
        area.layer("ntfs", claims, cluster),
        label=text_at(name[0], 0, 256, "utf-16-le") if name else None,
        uuid=f"{serial:016X}",
        unclean=ntfs_unclean(area, table, cluster, record_size),
        hidden_sectors=le32(boot, 28),
        backup_boot=sectors * sector,
        backup_hidden_sectors=le32(copy, 28) if copy[3:11] == boot[3:11] else None,
    )


def cluster_size(boot: bytes) -> int:
    """Return the bytes per cluster, or 0 for an invalid field. A field above 128 is a negated exponent of
    two.
    """
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


# Shadow copies of Windows.
#
# A shadow copy is made of the clusters that were in use when it was made: those that were overwritten since
# are in a file of the volume, and all others where they were, also if NTFS calls them free by now.
# Layout: libvshadow, documentation, "Volume Shadow Snapshot (VSS) format".

HEADER = 0x1E00  # bytes from the start of the volume, in the file $Boot
_IDENTIFIER = bytes.fromhex("6b870838 76c1484e b7ae0404 6e6cc752")  # a GUID as it is stored
# the same; of the catalog, or after the GUID of a shadow copy
_NAME = "{3808876B-C176-4E48-B7AE-04046E6CC752}"
_FOLDER = "SYSTEM VOLUME INFORMATION"


def shadow_copies(reader: Reader, extent: Extent) -> str:
    """Return a clause that states that the volume has shadow copies or may have some, or "". Raises OSError.

    The header is also there if the copies are kept on another volume, which has the files then.
    """
    area = open_area(reader, extent, SECTOR, lambda *_: ())
    if area.read(HEADER, len(_IDENTIFIER)) == _IDENTIFIER:
        return "has shadow copies (header of the volume)"
    try:
        files = open_ntfs(area)
        folder = find_reference(files, ROOT, _FOLDER)
        names = names_in(files, folder & NUMBER) if folder is not None else ()
        found = any(_NAME in name.upper() for name in names)
    except CannotFollow:
        return "may have shadow copies: its folder System Volume Information cannot be followed"
    return "has shadow copies (files in System Volume Information)" if found else ""


def _bad_blocks(area: Area) -> int:
    with suppress(CannotFollow):  # ntfsresize, which checks the volume before a move, rejects it
        return bad_clusters(open_ntfs(area))
    return 0


SHUT_DOWN = "start Windows and shut it down with: shutdown /s /f /t 0"

_PARTCLONE = "partclone.ntfs"


def _used_blocks(medium: Medium, layer: Layer, shrunk: bool) -> Generator[Extent]:
    with medium.device() as device:
        yield from used_by_partclone(_PARTCLONE, device, layer, 0, shrunk=shrunk)


def _shrink(device: str, folder: str, length: int) -> tuple[Words, ...]:
    return (("ntfsresize", "-ff", "--size", str(length), device),)


# ntfsresize(8): -ff asks no questions, and Windows checks the volume at its next start.
_SHRINKER = Shrinker(
    check=lambda device, length: (("ntfsresize", "--no-action", "-ff", "--size", str(length), device),),
    shrink=_shrink,
    verify=("ntfsresize", "--info", "-ff"),
    repair="start Windows and run there: chkdsk /f",
)

NTFS = Kind(
    "ntfs",
    readers=(read_ntfs,),
    signatures=(magic("ntfs", b"NTFS    ", heads=(3,)),),
    # ntfsfix does not count every cluster
    checker=("ntfsresize", "--info", "--bad-sectors", "--no-progress-bar"),
    cleaning=lambda layer: SHUT_DOWN,
    list_clearer="ntfsfix",
    recreator="mkfs.ntfs",
    map_source=_PARTCLONE,
    used_blocks=_used_blocks,
    is_unclean_after_shrink=True,
    shrinker=_SHRINKER,
    # ntfsresize sets the dirty flag, and then ntfs_fill_super() (Linux, fs/ntfs3/super.c) requires `force`.
    after_shrink=(
        "Windows checks a shrunk NTFS at its next start;"
        " until then the ntfs3 driver of Linux does not mount it writable (ntfs-3g does)"
    ),
    why_free_blocks_matter=shadow_copies,
    is_mountable=True,
    works_anywhere=True,
    role="windows",
    start_field=StartField(0x1C, 4, "NTFS hidden sectors"),  # linux/fs/ntfs3/ntfs.h, struct NTFS_BOOT
    bad_blocks=_bad_blocks,
    smallest_unit=sector_of_boot_sector,
    is_seen_through=contains_no_device,
    used_by_windows=True,
    holds_windows=True,
    starts_windows=True,
    states_length=True,
)
