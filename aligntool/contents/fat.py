"""FAT12, FAT16 and FAT32; what exFAT has in common with them."""

import struct
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice
from sys import byteorder

from aligntool.commands import ByHand
from aligntool.contents.kind import Answers, Kind, StartField, Unit, UnitOf, contains_no_device, unit_of
from aligntool.contents.signatures import Signature
from aligntool.contents.used_blocks import NoMap
from aligntool.device import Medium
from aligntool.formats.numbers import le16, le32, serial_at, text_at
from aligntool.formats.reader import LONGEST_READ, Area, Reader
from aligntool.inventory import Layer
from aligntool.units import KIB, Extent, is_power_of_two

# A master boot record begins with a jump and ends with 55 AA like a FAT boot sector, so every field is
# checked first. Source: Microsoft's FAT specification 1.03 (fatgen103).

MEDIUM_ERRORS = (  # exFAT, FAT; only Windows clears them
    "has errors on its medium that a system detected (media failure flag set)",
    "has errors on its medium that a system detected (error bit in the allocation table)",
)

ENTRY = 32
LONGEST_DIRECTORY = 64 * KIB  # of the root directory is searched for the label
MOST_CLUSTERS_READ = 64
FIRST_CLUSTER = 2  # the number of the first cluster
BAD_CLUSTER = {12: 0xFF7, 16: 0xFFF7, 32: 0x0FFFFFF7}  # marks a bad cluster; greater values end a chain
FAT12_BELOW = 4085
FAT16_BELOW = 65525
MOST_CLUSTERS = 0x0FFFFFF6
ATTRIBUTES = 11
VOLUME_LABEL = 0x08
DIRECTORY = 0x10
LONG_NAME = 0x0F
NAMES = (
    (0x52, b"MSWIN"),
    (0x52, b"FAT32   "),
    (0x36, b"MSDOS"),
    (0x36, b"FAT16   "),
    (0x36, b"FAT12   "),
    (0x36, b"FAT     "),
)
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
        # The directory counts on FAT32 as well: linux/fs/fat/inode.c, fat_fill_super(); FatFileAreaLbo of
        # Windows.
        return (self.reserved + self.fats) * self.sector + -(-self.directory // self.sector) * self.sector

    @property
    def bits(self) -> int:
        if self.root_cluster:
            return 32
        return 12 if self.clusters < FAT12_BELOW else 16


def is_small_fat32(problem: str) -> bool:
    """Return whether a problem of a layer is that some systems mistake the FAT32 for a FAT16, wherever it
    is.
    """
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
        area.layer("vfat", boot.sectors * boot.sector, boot.cluster),
        version=f"FAT{boot.bits}",
        label=_root_label(area, boot),  # Windows and blkid use the directory, not the copy in the boot sector
        uuid=serial_at(sector, extended + 3) if signature in (0x28, 0x29) else None,
        data_start=area.start + boot.data_start,
        unclean=_fat_unclean(area, sector, boot, extended),
        problems=(few,) if boot.bits == 32 and boot.clusters < FAT16_BELOW else (),
        hidden_sectors=le32(sector, 28),
        backup_boot=backup * boot.sector if copy else None,
        backup_hidden_sectors=le32(copy, 28) if parse_fat_boot_sector(copy) else None,
    )


def _fat_unclean(area: Area, sector: bytes, boot: FatBootSector, extended: int) -> str | None:
    """Return why the volume is not clean, or None: while it is mounted, Windows clears bits in the entry of
    cluster 1, Linux sets one after the drive number.
    """
    entry = le32(area.read(boot.reserved * boot.sector + boot.bits // 8, 4), 0)
    shut, no_error = {16: (0x8000, 0x4000), 32: (0x08000000, 0x04000000)}.get(boot.bits, (0, 0))
    if entry & no_error != no_error:
        return MEDIUM_ERRORS[1]
    if entry & shut != shut:
        return "was not unmounted cleanly (bit in the allocation table)"
    # FAT_STATE_DIRTY
    return "was not unmounted cleanly (dirty flag set)" if sector[extended + 1] & 0x1 else None


def parse_fat_boot_sector(sector: bytes) -> FatBootSector | None:
    """Return the boot sector, or None if its fields are inconsistent. `sector`: the volume's first 512
    bytes.
    """
    if len(sector) < 512 or not _looks_like_fat(sector):
        return None
    size, per_cluster, reserved, copies, entries, total16, media, fat16 = struct.unpack_from(
        "<HBHBHHBH", sector, 11
    )
    if size not in (512, 1024, 2048, 4096) or not is_power_of_two(per_cluster):
        return None
    if not reserved or not copies or not (media >= 0xF8 or media == 0xF0):
        return None
    fats = (fat16 or le32(sector, 36)) * copies
    directory = entries * ENTRY
    sectors = total16 or le32(sector, 32)
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
    """Return whether FAT32's FSInfo sector has its signatures, or is empty (blkid's rule, from real
    volumes).
    """
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
    clusters = directories(
        area, boot.root_cluster, fat, boot.data_start, boot.cluster, boot.clusters, 0x0FFFFFFF
    )
    return next((label for directory in clusters if (label := _label_in(directory))), None)


def _label_in(directory: bytes) -> str | None:
    for at in range(0, len(directory) - ENTRY + 1, ENTRY):
        first = directory[at]
        attributes = directory[at + ATTRIBUTES]
        if first == 0:
            return None
        if (
            first == 0xE5
            or attributes & 0x3F == LONG_NAME
            or le16(directory, at + 20)
            or le16(directory, at + 26)
        ):
            continue
        if attributes & (VOLUME_LABEL | DIRECTORY) == VOLUME_LABEL:
            name = directory[at : at + 11]
            return text_at(b"\xe5" + name[1:] if first == 0x05 else name, 0, 11, "cp437")
    return None


def directories(
    area: Area, number: int, fat: int, heap: int, cluster: int, clusters: int, mask: int = 0xFFFFFFFF
) -> Iterator[bytes]:
    """Yield the clusters of a directory in the order of the allocation table at `fat`, up to the limits of
    the search.

    `mask`: the bits of an entry that are the cluster number.
    """
    left = LONGEST_DIRECTORY
    for _ in range(MOST_CLUSTERS_READ):
        if not 2 <= number < clusters + 2 or left <= 0:
            return
        yield area.read(heap + (number - 2) * cluster, min(cluster, left))
        left -= cluster
        number = le32(area.read(fat + 4 * number, 4), 0) & mask


class BrokenFatError(ValueError):
    """The source is inconsistent, or cannot be copied into the target. Arguments: the reason and, if there is
    one, a hint.
    """


def fat_entries(bits: int, table: Iterable[bytes]) -> Iterator[int]:
    """Yield the entries of an allocation table that is read in pieces."""
    for piece in table:
        if bits == 12:  # the largest table of a FAT12 is one piece
            yield from (
                le16(piece, n * 3 // 2) >> (4 if n % 2 else 0) & 0xFFF for n in range(len(piece) * 2 // 3)
            )
            continue
        words = array("H" if bits == 16 else "I", piece)
        if byteorder == "big":
            words.byteswap()
        yield from words if bits == 16 else (word & 0x0FFFFFFF for word in words)


def table_pieces(area: Area, start: int, length: int) -> Iterator[bytes]:
    """Yield the bytes of an allocation table in pieces, up to the first one that is cut off."""
    for done in range(0, length, LONGEST_READ):
        size = min(LONGEST_READ, length - done)
        piece = area.read(start + done, size)
        if len(piece) < size:
            return
        yield piece


def _bad_blocks(area: Area) -> int:
    boot = parse_fat_boot_sector(area.head[:512])
    if boot is None:
        return 0
    length = -(-(boot.clusters + FIRST_CLUSTER) * boot.bits // 8)
    entries = fat_entries(boot.bits, table_pieces(area, boot.reserved * boot.sector, length))
    return sum(
        map(BAD_CLUSTER[boot.bits].__eq__, islice(entries, FIRST_CLUSTER, boot.clusters + FIRST_CLUSTER))
    )


_SCAN_MEDIUM = (
    "in Windows: chkdsk /r, which also clears the mark of these errors; fsck.fat and fsck.exfat do not"
)


def cleaning_with(program: str) -> Callable[[Layer], str | tuple[ByHand, str]]:
    """Return how a FAT or an exFAT becomes clean, with the checker of its kind."""

    def cleaning(layer: Layer) -> str | tuple[ByHand, str]:
        return _SCAN_MEDIUM if layer.unclean in MEDIUM_ERRORS else (ByHand.UNCLEAN, program)

    return cleaning


def sector_of_boot_sector(reader: Reader, layer: Layer, unit_of_inner: UnitOf) -> Unit:
    """Return the bytes per sector of a FAT or NTFS, which works on sectors of this size only."""
    head = reader.read(layer.extent.start, 512)
    return replace(unit_of(le16(head, 11)), exact=True)


# Used clusters of FAT12, FAT16 and FAT32, from the allocation table itself. The table is simple enough to be
# read here, so neither root nor another program is required: an entry of 0 is free, anything else (a next
# cluster, the end of a chain, a bad cluster) is used. Source: Microsoft's FAT specification 1.03, "FAT Data
# Structure".

_NOT_MIRRORED = 0x80  # in BPB_ExtFlags: only one copy of the table is up to date


def used_clusters(reader: Reader, start: int) -> Generator[Extent]:
    """Yield the used runs, counted from the file system's start. Raises NoMap, and OSError if a read
    fails.
    """
    sector = reader.read(start, 512)
    boot = parse_fat_boot_sector(sector)
    if boot is None:
        raise NoMap("its boot sector is invalid")
    if boot.bits == 32 and le16(sector, 40) & _NOT_MIRRORED:
        raise NoMap("only one copy of its allocation table is kept up to date")
    # mtools takes the clusters to begin before it, Linux and Windows behind it
    if boot.bits == 32 and boot.directory:
        raise NoMap(
            "it is a FAT32 with a root directory of fixed size, as in FAT16: systems differ on where its"
            " clusters begin"
        )
    length = -(-(boot.clusters + FIRST_CLUSTER) * boot.bits // 8)
    copy_length = boot.fats // boot.copies * boot.sector
    if length > copy_length:
        raise NoMap(f"its allocation table of {copy_length} bytes is too short for {boot.clusters} clusters")
    yield Extent(0, boot.data_start)
    position = boot.data_start
    table = _read_table(reader, start + boot.reserved * boot.sector, boot, length, copy_length)
    entries = islice(fat_entries(boot.bits, table), FIRST_CLUSTER, boot.clusters + FIRST_CLUSTER)
    for used, alike in groupby(entries, key=bool):
        run = Extent(position, sum(1 for _ in alike) * boot.cluster)
        if used:
            yield run
        position = run.end


def _read_table(
    reader: Reader, start: int, boot: FatBootSector, length: int, copy_length: int
) -> Iterator[bytes]:
    """Yield the table in pieces. Raises NoMap if it is cut off, or if its copies differ."""
    for done in range(0, length, LONGEST_READ):
        size = min(LONGEST_READ, length - done)
        piece, *others = (reader.read(start + copy * copy_length + done, size) for copy in range(boot.copies))
        if len(piece) != size:
            raise NoMap("its allocation table is truncated")
        if any(other != piece for other in others):
            raise NoMap("the copies of its allocation table differ")
        yield piece


def _used_blocks(medium: Medium, layer: Layer, shrunk: bool) -> Generator[Extent]:
    return used_clusters(medium, 0)


# The answers of fsck.fat 4.2.
#
# With exit code 1 and nothing else than these it found what harms no system: a label that is in one place
# only, or that DOS would not write; a stale count of free clusters, a differing copy of the boot sector
# (Windows and partition tools patch only the first one), a FAT32 without a copy or without that count, as the
# specification allows (BPB_BkBootSec, BPB_FSInfo).

ABOUT_LABELS = (
    r"fsck\.fat |Leaving filesystem unchanged|.*: \d+ files, \d+/\d+ clusters$"
    r"|(?:Volume l|L)abel '|Label in boot sector |There is no label in boot sector,"
    r"|Auto-(?:removing label|copying volume label) ?"
)
_HARMLESS = (
    rf"{ABOUT_LABELS}|Free cluster summary |Auto-correcting"
    r"|There are differences between boot sector and its backup|This is mostly harmless|[0-9:, /a-f]+$"
    r"|Not automatically fixing this|There is no backup boot sector|Auto-creating backup boot block"
    r"|Created backup of boot sector|No FSINFO sector|Not automatically creating it"
)
_ANSWERS = Answers(harmless=(1, _HARMLESS), unable="Currently, only 1 or 2 FATs are supported")

# A boot sector of FAT: one of the magics, sectors per cluster (a power of two), and the number of FATs (not
# zero).
_FAT = (
    rb"(?=.{54}(?:MSDOS|FAT1[26]   |FAT     )|.{82}(?:MSWIN|FAT32   )|.{510}\x55\xaa)"
    rb".{13}[\x01\x02\x04\x08\x10\x20\x40\x80].{2}[^\0]"
)

FAT = Kind(
    "vfat",
    readers=(read_fat,),
    signatures=(Signature("vfat", _FAT, 512, (0,), vital=13),),
    title=lambda layer: layer.version or "FAT",
    short_title=lambda layer: layer.version or layer.kind,
    checker=("fsck.fat", "-n"),
    answers=_ANSWERS,
    cleaning=cleaning_with("fsck.fat"),
    list_clearer="mkfs.fat",
    maker="mkfs.fat",
    map_source="the allocation table",
    used_blocks=_used_blocks,
    is_map_checked=False,  # it is the table that systems read
    is_recreated=True,
    why_not_shrinkable="no tool here shrinks a FAT",
    is_mountable=True,
    works_anywhere=True,
    role="fat",
    start_field=StartField(0x1C, 4, "FAT hidden sectors"),  # fatgen103
    bad_blocks=_bad_blocks,
    smallest_unit=sector_of_boot_sector,
    has_clusters=True,
    is_seen_through=contains_no_device,
    used_by_windows=True,
    starts_windows=True,
    starts_syslinux=True,
    states_length=True,
)
