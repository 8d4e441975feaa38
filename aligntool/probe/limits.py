"""The grid that the kernel reports of a disk, and what the user puts in its place.

In: the attributes of queue/ and of the disk. Out: IoLimits in bytes. Alone because these few numbers decide every
verdict: nothing is corrected here, a bogus value is kept and judged elsewhere.
"""

from dataclasses import dataclass, replace

from aligntool.inventory import IoLimits
from aligntool.probe.tree import Tree

SYSFS_SECTOR = 512  # sysfs counts start, size and chunk_sectors in these, whatever the disk's own sectors are


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says of the disk on the command line, in bytes."""

    sector_size: int | None = None
    physical_sector_size: int | None = None


def read_limits(tree: Tree, path: str) -> IoLimits:
    queue = f"{path}/queue"
    number = tree.number
    logical = number(f"{queue}/logical_block_size")
    if logical is None:
        logical = number(f"{queue}/hw_sector_size")  # its name before Linux 2.6.31, kept ever since
    return IoLimits(
        logical_block_size=logical,
        physical_block_size=number(f"{queue}/physical_block_size"),
        minimum_io_size=number(f"{queue}/minimum_io_size"),
        optimal_io_size=number(f"{queue}/optimal_io_size"),
        alignment_offset=number(f"{path}/alignment_offset"),
        discard_granularity=number(f"{queue}/discard_granularity"),
        discard_alignment=number(f"{path}/discard_alignment"),
        chunk_size=_times(number(f"{queue}/chunk_sectors"), SYSFS_SECTOR),
        max_transfer=_times(number(f"{queue}/max_hw_sectors_kb"), 1024),
        discard_max=number(f"{queue}/discard_max_bytes"),
    )


def override(limits: IoLimits, given: Given) -> tuple[IoLimits, tuple[str, ...]]:
    """The limits with the user's word in them, and the names of the fields that this set."""
    names = []
    if given.sector_size is not None:
        limits = replace(limits, logical_block_size=given.sector_size)
        names.append("logical_block_size")
    if given.physical_sector_size is not None:
        limits = replace(limits, physical_block_size=given.physical_sector_size)
        names.append("physical_block_size")
    return limits, tuple(names)


def _times(number: int | None, factor: int) -> int | None:
    return None if number is None else number * factor
