"""exFAT.

In: the area of a partition. Out: its layer. Source: Microsoft's exFAT file system specification, section 3
(boot region) and 7.3 (volume label).
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, checksum_problem, le16, le32, le64, serial_at, text_at
from aligntool.probe.layers.checksums import rotating_sum
from aligntool.units import KIB, Extent

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
    return Layer(
        kind="exfat",
        extent=Extent(area.start, claims),
        version=f"{boot[105]}.{boot[104]}",
        label=_label(area, boot, sector, cluster),
        uuid=serial_at(boot, 100),
        data_start=area.start + heap * sector,
        data_unit=cluster,
        claims_size=claims,
        problems=_checksum(area, sector),
        unclean=_unclean(le16(boot, 106)),
        hidden_sectors=le64(boot, 64),
        backup_boot=BACKUP_BOOT * sector,
    )


def _unclean(flags: int) -> str | None:
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
    fat, heap, number = le32(boot, 80) * sector, le32(boot, 88) * sector, le32(boot, 96)
    left = LONGEST_DIRECTORY
    for _ in range(MOST_CLUSTERS_READ):
        if not 2 <= number <= le32(boot, 92) + 1 or left <= 0:
            return None
        directory = area.read(heap + (number - 2) * cluster, min(cluster, left))
        for at in range(0, len(directory) - ENTRY + 1, ENTRY):
            if directory[at] == 0:
                return None
            if directory[at] == LABEL_ENTRY:
                return text_at(directory, at + 2, min(directory[at + 1], 11) * 2, "utf-16-le")
        left -= cluster
        number = le32(area.read(fat + 4 * number, 4), 0)
    return None
