"""The drives that an array is to be made of, and what is said of each before anything is made.

In: judged disks, and which partition of each is meant. Out: sentences: what each one is, and where they differ. Alone
because nothing here forbids anything; what does is in `refusals`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aligntool.audit import Grid, Judged, Severity
from aligntool.inventory import Disk, DiskKind, KnownGeometry, LinkHop, Partition, Uplink
from aligntool.raid.wear import health_words, wear_of
from aligntool.units import format_about, format_size

Known = Mapping[str, Sequence[KnownGeometry]]
"""What the drive database says of each disk, by the disk's name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A drive, or one of its partitions."""

    judged: Judged
    partition: Partition | None = None

    @property
    def disk(self) -> Disk:
        return self.judged.disk

    @property
    def name(self) -> str:
        """The kernel's, of what was named."""
        if self.partition is None:
            return self.disk.name
        return self.partition.node or partition_node(self.disk.name, self.partition.number)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Those that a start must lie on."""
        return tuple(grid for grid in self.judged.grids if grid.severity is not Severity.INFO)


def partition_node(disk: str, number: int) -> str:
    """A partition's name or path, by the kernel's rule: "p" after a digit (block/partitions/core.c, disk_name)."""
    return f"{disk}p{number}" if disk[-1:].isdigit() else f"{disk}{number}"


def member_sentences(
    member: Member, known: Sequence[KnownGeometry], uplinks: Sequence[Uplink] = ()
) -> Iterator[str]:
    """What it is, its link, its formats, its memory, its wear. A sentence each, with its name before."""
    disk = member.disk
    facts = [disk.model or "a drive without a model", f"firmware {disk.firmware}" if disk.firmware else ""]
    facts += [format_about(disk.size or 0), f"{disk.limits.logical_block_size or '?'}-byte sectors"]
    node = disk.numa_node
    facts += [link_words(disk), f"NUMA node {node}" if node is not None and node >= 0 else ""]
    yield f"{member.name}: " + ", ".join(fact for fact in facts if fact)
    yield from (f"{member.name} {words}" for words in shared_words(disk, uplinks))
    yield from _format(member)
    if is_dramless(disk, known):
        yield (
            f"{member.name} has {dramless_words(disk)}: its random writes are slower and less even, and an array is as "
            "slow as its slowest member"
        )
    if disk.health and (words := health_words(disk.health)):
        yield f"{member.name}: {words}"


def shared_words(disk: Disk, uplinks: Sequence[Uplink]) -> Iterator[str]:
    """ "shares DMI 3.0 x4 with nvme1n1", for each uplink that it is not alone on."""
    for uplink in uplinks:
        others = [name for name in uplink.members if name != disk.name]
        if disk.name in uplink.members and others:
            yield f"shares {uplink.name} with {', '.join(others)}"


def dramless_words(disk: Disk) -> str:
    """Of a drive without DRAM: what it asks of the host's memory instead, and what it got."""
    nvme = disk.nvme
    if nvme is None or not nvme.hmb_preferred:
        return "no DRAM of its own"
    granted = 0 if nvme.hmb_granted is None and nvme.hmb_enabled is False else nvme.hmb_granted
    got = "" if granted is None else f" and got {format_about(granted) if granted else 'nothing'}"
    return f"no DRAM of its own, asks for {format_about(nvme.hmb_preferred)} of the host's{got}"


def link_sentences(member: Member) -> Iterator[str]:
    """Where a drive's link is slower or narrower than the drive could use."""
    hops = [path[0] for path in member.disk.links if path]
    if hops and all(_is_slowed(hop) for hop in hops):
        yield f"{member.name}: {link_words(member.disk)}; its slot or its link holds it back: aligntool audit -v"


def is_dramless(disk: Disk, known: Sequence[KnownGeometry]) -> bool:
    """It asks for a Host Memory Buffer, or the database says so. Without either nobody knows, and that is no yes."""
    asks = disk.nvme is not None and bool(disk.nvme.hmb_preferred)
    return asks or any(row.dram is False for row in known)


def link_words(disk: Disk) -> str:
    """ "link 8 GT/s x4, its most", "link 8 GT/s x2 of 8 GT/s x4"; "": not known."""
    if not disk.links or not disk.links[0]:
        return ""
    hop = disk.links[0][0]
    if not hop.speed_gts or not hop.width:
        return ""
    if _is_slowed(hop) and hop.max_speed_gts:
        most = f" of {hop.max_speed_gts:g} GT/s x{hop.max_width}"
    else:
        most = ", its most" if hop.max_speed_gts and hop.max_width else ""
    return f"link {hop.speed_gts:g} GT/s x{hop.width}{most}"


def _is_slowed(hop: LinkHop) -> bool:
    return bool(hop.bandwidth and hop.max_bandwidth and hop.bandwidth < hop.max_bandwidth)


def _format(member: Member) -> Iterator[str]:
    """The LBA format that the drive itself rates better than the one in use, without metadata. Larger blocks
    alone are no reason.
    """
    nvme = member.disk.nvme
    if nvme is None or nvme.format_in_use is None:
        return
    used = next((form for form in nvme.formats if form.index == nvme.format_in_use), None)
    plain = [form for form in nvme.formats if form.metadata_size == 0]
    if used is None or not plain:
        return
    best = min(plain, key=lambda form: (form.relative_performance, -form.data_size))
    blocks = f"{used.data_size}-byte blocks and offers {best.data_size}"
    offer = f"{member.name} is formatted with {blocks} (format {best.index}"
    if best.relative_performance < used.relative_performance:
        yield (
            f"{offer}; performance {best.relative_performance} against {used.relative_performance}, 0 is best); nvme "
            f"format --lbaf={best.index} changes that and erases the drive, so it is for now or never"
        )
    elif best.relative_performance == used.relative_performance and best.data_size > used.data_size:
        yield f"{offer}), which the drive rates alike: nothing asks for a change"


def differences(members: Sequence[Member], known: Known) -> Iterator[str]:
    """Where the members are not alike, a sentence each."""
    drives = [member.disk for member in members]
    asked: tuple[tuple[str, Callable[[Disk], str | None]], ...] = (
        ("models", lambda disk: disk.model),
        ("firmware", lambda disk: disk.firmware),
        ("sizes", lambda disk: format_size(disk.size) if disk.size else None),
        ("links", lambda disk: link_words(disk) or None),
        ("kinds", lambda disk: disk.kind.value),
        ("DRAM", lambda disk: "no DRAM" if is_dramless(disk, known.get(disk.name, ())) else "not said to lack it"),
    )  # fmt: skip
    for what, ask in asked:
        found = {member.name: ask(disk) for member, disk in zip(members, drives, strict=True)}
        if len(set(found.values()) - {None}) > 1:
            told = ", ".join(f"{name} {value}" for name, value in found.items() if value)
            yield f"the members have different {what}: {told}; the slowest and the smallest sets the pace"
    yield from _odd(drives)
    yield from _numa(drives)
    yield from wear_of({member.name: member.disk.health for member in members})


_ODD = {
    DiskKind.MEMORY: "is memory: what is on it is gone when the power is, unless it is a kind that keeps it",
    DiskKind.NETWORK: "is reached over a network: when that is away, so is the member, and the array is degraded",
    DiskKind.USB: "is on USB: a cable that is touched takes the member out of the array, and flushes may not reach it",
    DiskKind.LOOP: "is a file: it is no member again after a reboot before somebody attaches it",
}


def _odd(drives: Sequence[Disk]) -> Iterator[str]:
    """What is no drive in a slot of this machine, or only by a cable, and comes and goes by its own rules."""
    for disk in drives:
        if disk.kind in _ODD:
            yield f"{disk.name} {_ODD[disk.kind]}"


def _numa(drives: Sequence[Disk]) -> Iterator[str]:
    nodes = {
        disk.name: disk.numa_node for disk in drives if disk.numa_node is not None and disk.numa_node >= 0
    }
    if len(set(nodes.values())) > 1:
        told = ", ".join(f"{name} {node}" for name, node in nodes.items())
        yield (
            f"the members hang on different NUMA nodes: {told}; whatever runs on one of them reaches the others over "
            "the link between the processors"
        )


def is_flash(disk: Disk) -> bool:
    return disk.kind is DiskKind.NVME or disk.rotational is False
