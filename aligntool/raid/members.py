"""The drives that an array is to be made of, and what is said of each before anything is made.

In: judged disks, and which partition of each is meant. Out: sentences: what each one is, and where they differ. Alone
because nothing here forbids anything; what does is in `refusals`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aligntool.audit import Grid, Judged, Severity
from aligntool.inventory import Disk, DiskKind, KnownGeometry, LinkHop, Partition
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


def member_sentences(member: Member, known: Sequence[KnownGeometry]) -> Iterator[str]:
    """What it is, its link, its formats, its memory. A sentence each, with its name before."""
    disk = member.disk
    facts = [disk.model or "a drive without a model", f"firmware {disk.firmware}" if disk.firmware else ""]
    facts += [format_about(disk.size or 0), f"{disk.limits.logical_block_size or '?'}-byte sectors"]
    node = disk.numa_node
    facts += [_link(disk), f"NUMA node {node}" if node is not None and node >= 0 else ""]
    yield f"{member.name}: " + ", ".join(fact for fact in facts if fact)
    yield from _format(member)
    if is_dramless(disk, known):
        yield (
            f"{member.name} has no DRAM of its own: its random writes are slower and less even, and an array is as "
            "slow as its slowest member"
        )


def link_sentences(member: Member) -> Iterator[str]:
    """Where a drive's link is slower or narrower than the drive could use."""
    hops = [path[0] for path in member.disk.links if path]
    if hops and all(_is_slowed(hop) for hop in hops):
        yield f"{member.name}: {_link(member.disk)}; its slot or its link holds it back: aligntool audit -v"


def is_dramless(disk: Disk, known: Sequence[KnownGeometry]) -> bool:
    """It asks for a Host Memory Buffer, or the database says so. Without either nobody knows, and that is no yes."""
    asks = disk.nvme is not None and bool(disk.nvme.hmb_preferred)
    return asks or any(row.dram is False for row in known)


def _link(disk: Disk) -> str:
    if not disk.links or not disk.links[0]:
        return ""
    hop = disk.links[0][0]
    if not hop.speed_gts or not hop.width:
        return ""
    most = f" of {hop.max_speed_gts:g} GT/s x{hop.max_width}" if _is_slowed(hop) else ""
    return f"link {hop.speed_gts:g} GT/s x{hop.width}{most}"


def _is_slowed(hop: LinkHop) -> bool:
    return bool(hop.bandwidth and hop.max_bandwidth and hop.bandwidth < hop.max_bandwidth)


def _format(member: Member) -> Iterator[str]:
    """The LBA format that the drive itself calls better than the one in use, without metadata."""
    nvme = member.disk.nvme
    if nvme is None or nvme.format_in_use is None:
        return
    used = next((form for form in nvme.formats if form.index == nvme.format_in_use), None)
    plain = [form for form in nvme.formats if form.metadata_size == 0]
    if used is None or not plain:
        return
    best = min(plain, key=lambda form: (form.relative_performance, -form.data_size))
    if best.relative_performance < used.relative_performance:
        why = f"performance {best.relative_performance} against {used.relative_performance}, 0 is best"
    elif best.relative_performance == used.relative_performance and best.data_size > used.data_size:
        why = "the drive rates both alike, and larger blocks need fewer commands for the same data"
    else:
        return
    yield (
        f"{member.name} is formatted with {used.data_size}-byte blocks and offers {best.data_size} (format "
        f"{best.index}; {why}); nvme format --lbaf={best.index} changes that and erases the drive, so it is for now "
        "or never"
    )


def differences(members: Sequence[Member], known: Known) -> Iterator[str]:
    """Where the members are not alike, a sentence each."""
    drives = [member.disk for member in members]
    asked: tuple[tuple[str, Callable[[Disk], str | None]], ...] = (
        ("models", lambda disk: disk.model),
        ("firmware", lambda disk: disk.firmware),
        ("sizes", lambda disk: format_size(disk.size) if disk.size else None),
        ("links", lambda disk: _link(disk) or None),
        ("NUMA nodes", lambda disk: None if disk.numa_node in (None, -1) else str(disk.numa_node)),
        ("kinds", lambda disk: disk.kind.value),
        ("DRAM", lambda disk: "no DRAM" if is_dramless(disk, known.get(disk.name, ())) else "not said to lack it"),
    )  # fmt: skip
    for what, ask in asked:
        found = {member.name: ask(disk) for member, disk in zip(members, drives, strict=True)}
        if len(set(found.values()) - {None}) > 1:
            told = ", ".join(f"{name} {value}" for name, value in found.items() if value)
            yield f"the members have different {what}: {told}; the slowest and the smallest sets the pace"


def is_flash(disk: Disk) -> bool:
    return disk.kind is DiskKind.NVME or disk.rotational is False
