"""Start sector -> how it probably came about.

Fingerprints from the field; where each was seen: 63 DOS to Windows XP (first track of a 255/63 geometry); 34
first usable sector of a GPT (CasaOS#1933, ceph-csi); 40 macOS and FreeBSD; 1953 one decimal megabyte
(mintstick#139); 2049 off by one (calamares#1008); multiples of 65535 the bogus optimal size of USB bridges
(util-linux#1221); 32760 the same from the kernel's 16773120; 1 directly after the MBR (qubes-issues#5151).
"""

from collections.abc import Sequence

from aligntool.audit.report import Grid
from aligntool.inventory import Partition, Role
from aligntool.units import format_size

CYLINDER = 255 * 63
MOST_NEIGHBOURS = (
    512  # twice what Linux shows of one disk; a hostile table has thousands, each with thousands
)

_FIRST = {
    1: "placed directly after the MBR, with no thought of alignment (cloud-init and VM images of old)",
    34: "the first usable sector of a GPT: the tool took it without aligning",
    40: "the first 4 KiB boundary after a GPT, where macOS and FreeBSD begin: right for 4 KiB sectors, not for pages",
    63: "the second track of the DOS geometry (63 sectors each): DOS to Windows XP, or a clone of such a disk",
    1953: "one decimal megabyte (1,000,000 bytes) instead of 1 MiB",
    2049: "one sector past the 1 MiB boundary: an off-by-one in the partitioning tool",
}


def likely_cause(
    partition: Partition, sector_size: int, partitions: Sequence[Partition], grid: Grid
) -> str | None:
    """A sentence about where an odd start comes from, or None when it bears no known mark."""
    lba, rest = divmod(partition.extent.start, sector_size)
    if rest:
        return None
    if lba in _FIRST:
        return _FIRST[lba]
    return _multiples(lba) or _neighbour(partition, partitions, grid) or _geometry(lba, partition)


def _multiples(lba: int) -> str | None:
    if lba and lba % 65535 == 0:
        return f"{lba // 65535} × 65535 sectors: the bogus optimal I/O size 33553920 that USB bridges report"
    if lba and lba % 32760 == 0:
        return f"{lba // 32760} × 32760 sectors: the bogus optimal I/O size 16773120 that some kernels derive for SAS"
    return None


def _neighbour(partition: Partition, partitions: Sequence[Partition], grid: Grid) -> str | None:
    for other in partitions[:MOST_NEIGHBOURS]:
        if (
            other.role is not Role.EXTENDED
            and other.number != partition.number
            and other.extent.end == partition.extent.start
        ):
            if grid.off_by(other.extent.start) == grid.off_by(partition.extent.start):
                return f"it begins where partition {other.number} ends, and is off as that one is"
            size = format_size(grid.size)
            return (
                f"it begins where partition {other.number} ends, and that one's size is no multiple of {size}"
            )
    return None


def _geometry(lba: int, partition: Partition) -> str | None:
    if lba % CYLINDER == 0:
        return "a cylinder boundary of the DOS geometry (255 heads, 63 sectors)"
    if partition.role is Role.LOGICAL and (lba - 63) % CYLINDER == 0:
        return "63 sectors after its extended boot record, on a cylinder boundary of the DOS geometry"
    if (lba - 1) % 2048 == 0:
        return "one sector past a 1 MiB boundary: an off-by-one in the partitioning tool"
    return None
