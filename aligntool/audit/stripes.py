"""Stripe settings of ext4 and XFS against the array below them.

The array is the md layer under the file system (in an image of a member), or the striped device it lies on.
"""

from collections.abc import Iterator

from aligntool.audit.codes import Code
from aligntool.audit.limits import STACKED, believed_minimum_io
from aligntool.audit.report import Finding, Severity
from aligntool.audit.words import layer_name, where
from aligntool.inventory import Disk, Layer, Partition
from aligntool.units import format_size


def stripe_findings(
    disk: Disk, partition: Partition | None, layer: Layer, below: Layer | None, sector_size: int
) -> Iterator[Finding]:
    if layer.stripe_unit is None:
        return
    level, chunk, stripe = _array(disk, below)
    if chunk == 0 and _is_a_sector(disk, layer.stripe_unit):
        return
    sentence = _mismatch(layer, level, chunk, stripe)
    if sentence:
        yield Finding(
            Code.STRIPE_MISMATCH, Severity.WARNING, f"{where(disk, partition)}: {layer_name(layer)} {sentence}",
            disk=disk.name, partition=partition.number if partition else None, layer=layer_name(layer),
            start=layer.extent.start, sector_size=sector_size, next=f"aligntool explain {Code.STRIPE_MISMATCH}",
        )  # fmt: skip


def _is_a_sector(disk: Disk, unit: int) -> bool:
    """mke2fs writes a stride where its blocks are smaller than the physical sector: no stripe is meant."""
    return unit <= (disk.limits.physical_block_size or 0)


def _array(disk: Disk, below: Layer | None) -> tuple[str, int, int | None]:
    """Level, chunk and full stripe of the array below, in bytes; chunk 0: an array without chunks, -1: none known."""
    if below is not None:
        if below.kind == "linux_raid_member" and below.raid_level:
            return below.raid_level, below.raid_chunk or 0, _full_stripe(below)
        return "", -1, None
    if disk.array:
        return disk.array.level, disk.array.chunk or 0, disk.limits.optimal_io_size or None
    if disk.kind in STACKED and believed_minimum_io(disk) > (disk.limits.physical_block_size or 512):
        return "striped device", believed_minimum_io(disk), disk.limits.optimal_io_size or None
    return "", -1, None


def _full_stripe(member: Layer) -> int | None:
    """Chunk × data members, for the levels where it follows from the two numbers alone."""
    parity = {"raid0": 0, "raid4": 1, "raid5": 1, "raid6": 2}.get(member.raid_level or "")
    if parity is None or not member.raid_chunk or not member.raid_members or member.raid_members <= parity:
        return None
    return member.raid_chunk * (member.raid_members - parity)


def _mismatch(layer: Layer, level: str, chunk: int, stripe: int | None) -> str:
    unit, width = layer.stripe_unit or 0, layer.stripe_width or 0
    if chunk < 0 or level in ("linear", "container"):
        return ""
    if chunk == 0:
        return f"has a stripe unit of {format_size(unit)}, but {level} has no chunks" if unit else ""
    if not unit:
        return f"knows nothing of the {level} below with its chunk of {format_size(chunk)}"
    if unit != chunk:
        return f"has a stripe unit of {format_size(unit)}, but the chunk of the {level} below is {format_size(chunk)}"
    if width and stripe and width != stripe:
        return f"has a stripe width of {format_size(width)}, but the {level} below has {format_size(stripe)}"
    return ""
