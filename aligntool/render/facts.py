"""What a drive says of itself, for `-v`: firmware, queues, NVMe formats and buffers, links up to the processor."""

from collections.abc import Iterator

from aligntool.inventory import AtaFacts, Disk, Inventory, LinkHop, NvmeFacts
from aligntool.render.lines import Line, Style, wrapped
from aligntool.units import format_about, format_size

Facts = Iterator[tuple[str, str]]
"""A word and what is to be said under it."""


def fact_lines(disk: Disk, *, width: int) -> Iterator[Line]:
    for word, text in facts_of(disk):
        for line in wrapped(f"  {word}: {text}", width, "    "):
            yield ((line, Style.DIM),)


def uplink_lines(inventory: Inventory, *, width: int) -> Iterator[Line]:
    """Links that several drives share, after the disks."""
    for uplink in inventory.uplinks:
        rate = f"{format_about(uplink.bandwidth)}/s" if uplink.bandwidth else "bandwidth unknown"
        text = f"{uplink.name}: {rate} ({uplink.source}) in each direction, shared by {', '.join(uplink.members)}"
        for line in wrapped(text, width, "    "):
            yield ((line, Style.DIM),)


def facts_of(disk: Disk) -> Facts:
    """What the drive says of itself, and its ways up to the processor."""
    yield from _drive(disk)
    if disk.nvme:
        yield from _nvme(disk.nvme)
    if disk.ata:
        yield from _ata(disk.ata)
    for path in disk.links:
        yield "path", " ← ".join(_hop(hop) for hop in path)


def _drive(disk: Disk) -> Facts:
    limits = disk.limits
    said = [
        ("firmware", disk.firmware),
        ("logical sector", _size(limits.logical_block_size)),
        ("rotating", None if disk.rotational is None else "yes" if disk.rotational else "no"),
        ("queue depth", disk.queue_depth),
        ("NUMA node", disk.numa_node),
        ("optimal I/O", _size(limits.optimal_io_size)),
        ("discard granularity", _size(limits.discard_granularity)),
        ("discard alignment", _size(limits.discard_alignment)),
        ("I/O boundary", _size(limits.chunk_size)),
        ("erase size", _size(disk.erase_size)),
    ]
    words = [f"{name} {value}" for name, value in said if value is not None]
    if words:
        yield "drive", ", ".join(words)


def _nvme(nvme: NvmeFacts) -> Facts:
    if nvme.formats:
        yield (
            "LBA formats",
            ", ".join(
                f"{form.index}: {form.data_size}{f'+{form.metadata_size}' if form.metadata_size else ''} bytes,"
                f" performance {form.relative_performance}{' (in use)' if form.index == nvme.format_in_use else ''}"
                for form in nvme.formats
            ),
        )
    sizes = [
        ("write granularity NPWG", nvme.preferred_write_granularity),
        ("write alignment NPWA", nvme.preferred_write_alignment),
        ("deallocate granularity NPDG", nvme.preferred_deallocate_granularity),
        ("optimal write NOWS", nvme.optimal_write_size),
        ("I/O boundary NOIOB", nvme.optimal_io_boundary),
        ("atomic write", nvme.atomic_write_unit),
        ("atomic at power loss", nvme.atomic_write_unit_power_fail),
        ("largest transfer MDTS", nvme.max_transfer),
    ]
    words = [f"{name} {format_size(value)}" for name, value in sizes if value]
    if words:
        yield "NVMe", ", ".join(words)
    if nvme.multipath:
        yield "multipath", f"controllers {', '.join(nvme.controllers)}"
    if nvme.hmb_preferred:
        yield "host memory buffer", _buffer(nvme)


def _buffer(nvme: NvmeFacts) -> str:
    granted = "not known without root" if nvme.hmb_granted is None else format_about(nvme.hmb_granted)
    if nvme.hmb_granted is None and nvme.hmb_enabled is not None:
        granted = "some (on)" if nvme.hmb_enabled else "nothing (off)"
    controller = nvme.controllers[0] if nvme.controllers else "nvmeN"
    return (
        f"preferred {format_about(nvme.hmb_preferred or 0)}, minimum {format_about(nvme.hmb_minimum or 0)},"
        f" granted {granted}; set it with nvme.max_host_mem_size_mb= on the kernel command line,"
        f" switch it with /sys/class/nvme/{controller}/hmb"
    )


def _ata(ata: AtaFacts) -> Facts:
    said = [
        ("physical sector", _size(ata.physical_sector_size)),
        ("offset", _size(ata.alignment_offset)),
        ("rotation", f"{ata.rotation_rpm} rpm" if (ata.rotation_rpm or 0) > 1 else None),
        ("queue depth", ata.queue_depth),
        ("hybrid", "yes" if ata.hybrid else None),
    ]
    words = [f"{name} {value}" for name, value in said if value is not None]
    if words:
        yield "ATA IDENTIFY", ", ".join(words)


def _hop(hop: LinkHop) -> str:
    speed = f" {hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    most = f" of {hop.max_speed_gts:g} GT/s x{hop.max_width}" if hop.max_speed_gts and hop.max_width else ""
    hidden = f" ← {hop.hidden_uplink} to the processor" if hop.hidden_uplink else ""
    return f"{hop.address} {hop.port}{speed}{most}{hidden}"


def _size(size: int | None) -> str | None:
    return format_size(size) if size else None
