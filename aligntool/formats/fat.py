"""FAT and exFAT: where data begins, cluster size, whether the volume was unmounted."""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.formats.reader import Area, checksum_problem, le16, le32, le64, rotating_sum, serial_at, text_at
from aligntool.inventory import Layer
from aligntool.units import KIB, is_power_of_two

# exFAT.
#
# Source: Microsoft's exFAT file system specification, section 3 (boot region) and 7.3 (volume label).

CHANGING = (106, 107, 112)  # VolumeFlags and PercentInUse are outside the checksum
CHECKED_SECTORS = 11
LABEL_ENTRY = 0x83
ENTRY = 32
VOLUME_DIRTY, MEDIA_FAILURE = 0x2, 0x4  # in VolumeFlags
BACKUP_BOOT = 12  # the sector where the backup boot region begins
LONGEST_DIRECTORY = 64 * KIB  # of the root directory is searched for the label
MOST_CLUSTERS_READ = 64


def read_exfat(area: Area) -> Layer | None:
    boot = area.head[:512]
    if boot[:11] != b"\xeb\x76\x90EXFAT   " or boot[510:512] != b"\x55\xaa" or any(boot[11:64]):
        return None
    sector_shift, cluster_shift, copies = boot[108], boot[109], boot[110]
    if not (9 <= sector_shift <= 12 and cluster_shift <= 25 - sector_shift and copies in (1, 2)):
        return None
    fats_end = le32(boot, 80) + le32(boot, 84) * copies
    heap = le32(boot, 88)
    if le32(boot, 80) < 24 or heap < fats_end or not 2 <= le32(boot, 96) <= le32(boot, 92) + 1:
        return None
    sector, cluster = 1 << sector_shift, 1 << sector_shift + cluster_shift
    claims = le64(boot, 72) << sector_shift
    return area.layer(
        "exfat", claims, cluster, version=f"{boot[105]}.{boot[104]}",
        label=_label(area, boot, sector, cluster), uuid=serial_at(boot, 100),
        data_start=area.start + heap * sector, problems=_checksum(area, sector),
        unclean=_exfat_unclean(le16(boot, 106)), hidden_sectors=le64(boot, 64),
        backup_boot=BACKUP_BOOT * sector,
    )  # fmt: skip


def _exfat_unclean(flags: int) -> str | None:
    if flags & MEDIA_FAILURE:
        return "has errors on its medium that a system saw (media failure flag set)"
    return "was not unmounted cleanly (dirty flag set)" if flags & VOLUME_DIRTY else None


def _checksum(area: Area, sector: int) -> tuple[str, ...]:
    region = area.read(0, (CHECKED_SECTORS + 1) * sector)
    stored = region[CHECKED_SECTORS * sector :]
    computed = rotating_sum(region[: CHECKED_SECTORS * sector], CHANGING)
    if stored == computed.to_bytes(4, "little") * (sector // 4):
        return ()
    first = next((at for at in range(0, len(stored), 4) if le32(stored, at) != computed), 0)
    return checksum_problem("the exFAT boot region", le32(stored, first), computed) or (
        f"the boot region of exFAT ends after {len(region)} bytes",
    )


def _label(area: Area, boot: bytes, sector: int, cluster: int) -> str | None:
    fat, heap = le32(boot, 80) * sector, le32(boot, 88) * sector
    for directory in _directories(area, le32(boot, 96), fat, heap, cluster, le32(boot, 92)):
        for at in range(0, len(directory) - ENTRY + 1, ENTRY):
            if directory[at] == 0:
                return None
            if directory[at] == LABEL_ENTRY:
                return text_at(directory, at + 2, min(directory[at + 1], 11) * 2, "utf-16-le")
    return None


def _directories(
    area: Area, number: int, fat: int, heap: int, cluster: int, clusters: int, mask: int = 0xFFFFFFFF
) -> Iterator[bytes]:
    """Yield the clusters of a directory in the order of the allocation table at `fat`, as many as are searched.

    `mask`: the bits of an entry that are a number.
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
# A master boot record begins with a jump and ends with 55 AA as a FAT boot sector does, so every field is
# checked before it is believed. Source: Microsoft's FAT specification 1.03 (fatgen103).

FAT12_BELOW, FAT16_BELOW, MOST_CLUSTERS = 4085, 65525, 0x0FFFFFF6
ATTRIBUTES, VOLUME_LABEL, DIRECTORY, LONG_NAME = 11, 0x08, 0x10, 0x0F
NAMES = (
    (0x52, b"MSWIN"), (0x52, b"FAT32   "), (0x36, b"MSDOS"), (0x36, b"FAT16   "), (0x36, b"FAT12   "),
    (0x36, b"FAT     "),
)  # fmt: skip
DIRTY = 0x1  # of the byte behind the drive number: FAT_STATE_DIRTY, linux/fs/fat/fat.h
OTHERS = (b"JFS     ", b"HPFS    ")  # OS/2 put FAT-like boot sectors in front of these


@dataclass(frozen=True, slots=True)
class Boot:
    """What the boot sector says of the volume's layout."""

    sector: int  # bytes
    cluster: int  # bytes
    reserved: int  # sectors
    copies: int  # of the allocation table
    fats: int  # sectors of all copies
    directory: int  # bytes of a fixed root directory; 0 on FAT32
    sectors: int
    clusters: int
    root_cluster: int  # FAT32 only, else 0

    @property
    def data_start(self) -> int:
        return (self.reserved + self.fats) * self.sector + -(-self.directory // self.sector) * self.sector

    @property
    def bits(self) -> int:
        if self.root_cluster:
            return 32
        return 12 if self.clusters < FAT12_BELOW else 16


def read_fat(area: Area) -> Layer | None:
    sector = area.head[:512]
    boot = read_boot(sector)
    if boot is None or (boot.bits == 32 and not _has_plausible_info(area, sector, boot)):
        return None
    extended = 64 if boot.bits == 32 else 36  # where drive number, signature, serial and label stand
    signature = sector[extended + 2]
    problems: tuple[str, ...] = ()
    if boot.bits == 32 and boot.clusters < FAT16_BELOW:
        problems = (f"a FAT32 of {boot.clusters} clusters: some systems take fewer than {FAT16_BELOW} for FAT16",)
    return area.layer(
        "vfat",
        boot.sectors * boot.sector,
        boot.cluster,
        version=f"FAT{boot.bits}",
        label=_root_label(area, boot),  # Windows and blkid believe the directory, not the copy in the boot sector
        uuid=serial_at(sector, extended + 3) if signature in (0x28, 0x29) else None,
        data_start=area.start + boot.data_start,
        problems=problems,
        unclean=_fat_unclean(area, sector, boot, extended),
        hidden_sectors=le32(sector, 28),
        backup_boot=_backup_boot(sector, boot),
    )


def _fat_unclean(area: Area, sector: bytes, boot: Boot, extended: int) -> str | None:
    """Windows clears bits in the entry of cluster 1 while it is mounted, Linux sets one beside the drive number."""
    entry = le32(area.read(boot.reserved * boot.sector + boot.bits // 8, 4), 0)
    shut, no_error = {16: (0x8000, 0x4000), 32: (0x08000000, 0x04000000)}.get(boot.bits, (0, 0))
    if entry & no_error != no_error:
        return "has errors on its medium that a system saw (error bit in the allocation table)"
    if entry & shut != shut:
        return "was not unmounted cleanly (bit in the allocation table)"
    return "was not unmounted cleanly (dirty flag set)" if sector[extended + 1] & DIRTY else None


def _backup_boot(sector: bytes, boot: Boot) -> int | None:
    at = le16(sector, 50) if boot.bits == 32 else 0
    return at * boot.sector if 0 < at < boot.reserved else None


def read_boot(sector: bytes) -> Boot | None:
    """None when the fields do not fit together. `sector`: the volume's first 512 bytes."""
    if len(sector) < 512 or not _has_name(sector):
        return None
    size, per_cluster, reserved, copies = le16(sector, 11), sector[13], le16(sector, 14), sector[16]
    media = sector[21]
    if size not in (512, 1024, 2048, 4096) or not is_power_of_two(per_cluster):
        return None
    if not reserved or not copies or not (media >= 0xF8 or media == 0xF0):
        return None
    is_32 = not le16(sector, 22)
    fats = (le32(sector, 36) if is_32 else le16(sector, 22)) * copies
    directory = le16(sector, 17) * ENTRY
    sectors = le16(sector, 19) or le32(sector, 32)
    before_data = reserved + fats + -(-directory // size)
    clusters = (sectors - before_data) // per_cluster
    limit = MOST_CLUSTERS if is_32 else FAT16_BELOW - 1
    root = le32(sector, 44) if is_32 else 0
    if not fats or not 0 < clusters <= limit or (is_32 and root < 2):
        return None
    return Boot(size, size * per_cluster, reserved, copies, fats, 0 if is_32 else directory, sectors, clusters, root)


def _has_name(sector: bytes) -> bool:
    if any(sector[at : at + len(name)] == name for at, name in NAMES):
        return True
    jumps = sector[0] in (0xEB, 0xE9) or sector[510:512] == b"\x55\xaa"
    return jumps and sector[510:512] == b"\x55\xaa" and sector[0x36:0x3E] not in OTHERS


def _has_plausible_info(area: Area, sector: bytes, boot: Boot) -> bool:
    """FAT32's FSInfo sector must carry its signatures, or nothing at all (blkid's rule, from real volumes)."""
    at = le16(sector, 48)
    if at in (0, 0xFFFF):
        return True
    info = area.read(at * boot.sector, 512)
    first, second = info[:4], info[484:488]
    return first in (b"RRaA", b"RRdA", bytes(4)) and second in (b"rrAa", bytes(4))


def _root_label(area: Area, boot: Boot) -> str | None:
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
