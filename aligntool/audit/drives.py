"""Drives and the links they hang on: what slows them, and what could not be seen of them."""

from collections.abc import Iterator, Sequence

from aligntool.audit.codes import Code
from aligntool.audit.devices import told
from aligntool.audit.report import Finding, Severity
from aligntool.audit.unjudged import unseen_findings
from aligntool.inventory import (
    Disk,
    DiskKind,
    Inventory,
    KnownGeometry,
    LinkHop,
    LinkMost,
    NvmeFacts,
    Port,
    Source,
    Uplink,
    most_of,
    port_above,
    runs_below,
)
from aligntool.units import format_about, format_rate

MAP_SHARE = 1024
"""A mapping table takes 4 bytes for each 4 KiB: capacity / 1024 (the HMB article's "about a thousandth")."""

_SHARED_ROOTS = (Port.CHIPSET_ROOT,)


def drive_findings(disk: Disk, known: Sequence[KnownGeometry]) -> Iterator[Finding]:
    for path in disk.links:
        yield from _link(disk, path)
    if disk.nvme:
        yield from _memory_buffer(disk, disk.nvme)
    yield from _queue(disk)
    for row in known:
        if row.note and row.source is Source.KNOWN:
            yield told(
                disk,
                Code.DRIVE_NOTE,
                Severity.INFO,
                f"{row.row}: {row.note}",
                next=f"aligntool drives '{row.row}'",
            )
    yield from unseen_findings(disk.unseen, disk)


def machine_findings(inventory: Inventory) -> Iterator[Finding]:
    by_name = {disk.name: disk for disk in inventory.disks}
    for uplink in inventory.uplinks:
        yield from _uplink(uplink, by_name)
    for adapter in inventory.adapters:
        name = f"{adapter.name or 'controller'} at {adapter.address}"
        if adapter.remapped_nvme:
            yield Finding(
                Code.REMAPPED_NVME, Severity.WARNING,
                f"{name} hides {adapter.remapped_nvme} NVMe drive(s): the firmware is in RAID mode",
                next=f"aligntool explain {Code.REMAPPED_NVME}",
            )  # fmt: skip
        if adapter.vmd:
            yield Finding(
                Code.BEHIND_VMD, Severity.INFO,
                f"{name} is a VMD controller; its drives are in a PCI domain of their own",
                next=f"aligntool explain {Code.BEHIND_VMD}",
            )  # fmt: skip
    yield from unseen_findings(inventory.unseen)


def map_size(capacity: int) -> int:
    """Bytes of the mapping table of a drive of `capacity` bytes that maps 4 KiB units with 4 bytes each."""
    return capacity // MAP_SHARE


def mapped_by(buffer: int) -> int:
    """Bytes of the drive that a map buffer of so many bytes covers."""
    return buffer * MAP_SHARE


def _link(disk: Disk, path: Sequence[LinkHop]) -> Iterator[Finding]:
    if not path:
        return
    drive = path[0]
    most = most_of(drive, port_above(path))
    if runs_below(drive, most):
        yield _slow_link(disk, drive, most)
    elif most.both_ends and _above(drive, most):
        yield told(
            disk, Code.SLOW_SLOT, Severity.INFO,
            f"it could do {_most_words(drive)}, in its slot only {_most_words(most)}",
        )  # fmt: skip
    if disk.kind is DiskKind.NVME and any(hop.port in _SHARED_ROOTS for hop in path):
        yield told(
            disk,
            Code.BEHIND_CHIPSET,
            Severity.INFO,
            "hangs behind the chipset and shares its link to the processor",
        )


def _link_words(hop: LinkHop) -> str:
    rate = f", {format_rate(hop.bandwidth)}" if hop.bandwidth else ""
    return f"{hop.speed_gts or 0:g} GT/s x{hop.width or 0}{rate}"


def _slow_link(disk: Disk, drive: LinkHop, most: LinkMost) -> Finding:
    """A port that reports nothing may be what limits the link, and is then no fault."""
    runs = f"its link at {drive.address} runs at {_link_words(drive)}"
    rate = f", {format_rate(most.bandwidth)}" if most.bandwidth else ""
    if most.both_ends:
        text = f"{runs}, but drive and port can do {_most_words(most)}{rate}"
        return told(disk, Code.LINK_DEGRADED, Severity.WARNING, text)
    text = (
        f"{runs}; the drive can do {_most_words(most)}{rate}, what the port above it can do is not reported"
    )
    return told(disk, Code.LINK_DEGRADED, Severity.INFO, text)


def _above(drive: LinkHop, most: LinkMost) -> bool:
    """Whether the drive could do more than its link ever will."""
    return (drive.max_speed_gts or 0) > (most.speed_gts or 0) or (drive.max_width or 0) > (most.width or 0)


def _most_words(most: LinkHop | LinkMost) -> str:
    speed, width = (
        (most.speed_gts, most.width) if isinstance(most, LinkMost) else (most.max_speed_gts, most.max_width)
    )
    return f"{speed or 0:g} GT/s x{width or 0}"


def _uplink(uplink: Uplink, by_name: dict[str, Disk]) -> Iterator[Finding]:
    """Only NVMe members count: a link of their own says what they could carry."""
    wanted, named = 0, []
    for name in uplink.members:
        disk = by_name.get(name)
        link = disk.links[0][0].bandwidth if disk and disk.links and disk.kind is DiskKind.NVME else None
        if link:
            wanted += link
            named.append(name)
    if uplink.bandwidth is None or len(named) < 2 or wanted <= uplink.bandwidth:
        return
    yield Finding(
        Code.SHARED_UPLINK, Severity.WARNING,
        f"{', '.join(named)} share {uplink.name} ({format_rate(uplink.bandwidth)}, {uplink.source}),"
        f" but their own links carry {format_rate(wanted)} together",
        next=f"aligntool explain {Code.SHARED_UPLINK}",
    )  # fmt: skip


def _memory_buffer(disk: Disk, nvme: NvmeFacts) -> Iterator[Finding]:
    """HMB: a drive that asks for one has no DRAM of its own (or too little)."""
    if not nvme.hmb_preferred:
        return
    granted = nvme.hmb_granted
    if granted is None and nvme.hmb_enabled is False:
        granted = 0
    if granted is not None and granted < nvme.hmb_preferred:
        least = f", at least {format_about(nvme.hmb_minimum)}" if nvme.hmb_minimum else ""
        given = format_about(granted) if granted else "nothing"
        yield told(
            disk, Code.HMB_SHORT, Severity.INFO,
            f"asks the host for {format_about(nvme.hmb_preferred)} of memory (HMB){least}; it was given {given}",
        )  # fmt: skip
    if disk.size:
        buffer = nvme.hmb_preferred if granted is None else granted
        word = "would map" if granted is None else "maps"
        covered = min(mapped_by(buffer), disk.size)
        yield told(
            disk, Code.HMB_COVERAGE, Severity.INFO,
            f"DRAM-less; a buffer of {format_about(buffer)} {word} at most {format_about(covered)} of its"
            f" {format_about(disk.size)}; the whole map takes {format_about(map_size(disk.size))}",
        )  # fmt: skip


def _queue(disk: Disk) -> Iterator[Finding]:
    depth = disk.queue_depth
    if depth == 1 and disk.kind is DiskKind.ATA:
        yield told(disk, Code.NO_QUEUE, Severity.INFO, "offers a queue depth of 1: NCQ is off or missing")
