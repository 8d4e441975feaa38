"""Judge the content of partitions: data starts, LVM segments, stripe settings, block sizes, superblocks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from aligntool.audit import wording
from aligntool.audit.grids import STACKED, believed_minimum_io
from aligntool.audit.report import (
    Answer,
    Check,
    Code,
    Finding,
    Grid,
    GridKind,
    Judged,
    Severity,
    Verdict,
    cost_at,
)
from aligntool.contents.catalogue import kind_named
from aligntool.contents.md import MD
from aligntool.formats.part_types import EFI_SYSTEM
from aligntool.inventory import Disk, Layer, Partition, missing_bytes
from aligntool.units import format_size

# Stripe settings of ext4 and XFS against the array below.
#
# The array is the md layer under the file system (in an image of a member), or the striped device that the
# file system is on.


def _array_below(disk: Disk, below: Layer | None) -> tuple[str, int, int | None]:
    """Return level, chunk and full stripe of the array below, in bytes. Chunk 0: the array has no chunks; -1:
    no array is known.
    """
    if below is not None:
        if below.kind == MD.name and below.raid_level:
            return below.raid_level, below.raid_chunk or 0, _full_stripe(below)
        return "", -1, None
    if disk.array:
        return disk.array.level, disk.array.chunk or 0, disk.limits.optimal_io_size or None
    if disk.kind in STACKED and believed_minimum_io(disk) > (disk.limits.physical_block_size or 512):
        return "striped device", believed_minimum_io(disk), disk.limits.optimal_io_size or None
    return "", -1, None


def _full_stripe(member: Layer) -> int | None:
    """Return chunk × data members in bytes, or None for levels where these two do not determine the
    stripe.
    """
    parity = {"raid0": 0, "raid4": 1, "raid5": 1, "raid6": 2}.get(member.raid_level or "")
    if parity is None or not member.raid_chunk or not member.raid_members or member.raid_members <= parity:
        return None
    return member.raid_chunk * (member.raid_members - parity)


def _stripe_mismatch(layer: Layer, level: str, chunk: int, stripe: int | None) -> str:
    unit = layer.stripe_unit or 0
    width = layer.stripe_width or 0
    if chunk < 0 or level in ("linear", "container"):
        return ""
    if chunk == 0:
        return f"has a stripe unit of {format_size(unit)}, but {level} has no chunks" if unit else ""
    if not unit:
        return f"has no stripe unit, but the {level} below has a chunk of {format_size(chunk)}"
    if unit != chunk:
        return (
            f"has a stripe unit of {format_size(unit)}, but the chunk of the {level} below is"
            f" {format_size(chunk)}"
        )
    if width and stripe and width != stripe:
        return f"has a stripe width of {format_size(width)}, but the {level} below has {format_size(stripe)}"
    return ""


# The stack above a partition: where its data start on the device, and whether its settings match the device
# below.

_COMPARED = frozenset(
    {
        GridKind.PHYSICAL,
        GridKind.MINIMUM_IO,
        GridKind.PAGE,
        GridKind.UNIT,
        GridKind.ALLOCATION,
        GridKind.CHUNK,
    }
)


def data_starts(partition: Partition) -> tuple[int, ...]:
    """Return the offsets on the disk where data begin in the uppermost readable container of a partition:
    RAID, encryption or volume manager. Return () if there is none, or if its superblock is inconsistent or
    ambiguous.
    """
    content = partition.content
    if (
        len(content) != 1
        or not kind_named(content[0].kind).is_container
        or any(layer.problems for layer in content)
    ):
        return ()
    top = content[0]
    # A striped array spreads its content over the members: only the member's own data area has a place on
    # this disk.
    while top.raid_chunk is None and len(top.inner) == 1 and top.kind == MD.name:
        if not kind_named(top.inner[0].kind).is_container or top.inner[0].problems:
            break
        top = top.inner[0]
    places = {segment.extent.start for segment in top.segments}
    return tuple(sorted(places)) or (() if top.data_start is None else (top.data_start,))


def clusters_off(judged: Judged, part: Partition, start: int) -> Iterator[tuple[Layer, Check]]:
    """Yield each file system whose clusters are off the physical sectors if the partition begins at `start`,
    because the tables before them have an odd length. An EFI system partition is rarely written, so its
    clusters do not matter.
    """
    if part.type_code in EFI_SYSTEM:
        return
    grids = [grid for grid in judged.grids if grid.kind in _COMPARED]
    for layer in part.content:
        if layer.data_start is None or not kind_named(layer.kind).has_clusters:
            continue
        place = layer.data_start - part.extent.start + start
        grid = _worst_missed(grids, place, start)
        if grid is not None and grid.kind in _SECTORS:
            yield layer, Check(grid, grid.off_by(place))


_SECTORS = (GridKind.PHYSICAL, GridKind.MINIMUM_IO)


def _worst_missed(grids: Iterable[Grid], place: int, base: int) -> Grid | None:
    """Return the worst grid that a place is off, ignoring grids that `base`, below it, is off by as much."""
    failed = [grid for grid in grids if grid.off_by(place) and grid.off_by(place) != grid.off_by(base)]
    return min(failed, key=lambda grid: grid.severity.rank, default=None)


DEEPEST = 8  # layers within layers; deeper nesting is hostile or damaged


def layer_findings(judged: Judged, sector_size: int) -> Iterator[Finding]:
    disk = judged.disk
    verdicts = judged.by_partition()
    grids = tuple(grid for grid in judged.grids if grid.kind in _COMPARED)
    for part in disk.partitions or (None,):
        number = part.number if part else None
        walk = _Walk(disk, grids, part, number, verdicts.get(number), sector_size)
        yield from walk.contents(part.content if part else disk.content)


@dataclass(frozen=True, slots=True)
class _Walk:
    """The stack of one partition, judged from the bottom up."""

    disk: Disk
    grids: tuple[Grid, ...]
    partition: Partition | None
    number: int | None
    verdict: Verdict | None
    sector_size: int

    def finding(
        self, code: Code, severity: Severity, text: str, name: str | None, start: int | None
    ) -> Finding:
        sentence = f"{wording.subject_words(self.disk, self.partition)}: {text}"
        return Finding(
            code,
            severity,
            sentence,
            disk=self.disk.name,
            partition=self.number,
            layer=name,
            start=start,
            sector_size=self.sector_size,
            next=f"aligntool explain {code}",
        )

    def contents(self, layers: Sequence[Layer]) -> Iterator[Finding]:
        part = self.partition
        if len(layers) > 1 and not all(kind_named(layer.kind).coexists for layer in layers):
            text = f"{', '.join(map(wording.layer_name, layers))} are all recognised here"
            found = self.finding(Code.AMBIGUOUS_CONTENT, Severity.WARNING, text, None, None)
            node = f"/dev/{part.node}" if part and part.node else self.disk.path
            look = wording.look_at(replace(self.disk, path=node), "wipefs --no-act")
            yield replace(found, next=look) if part is None or part.node else found
        for layer in layers:
            yield from self.layer(layer, None, 0)

    def layer(
        self, layer: Layer, below: Layer | None, depth: int, *, in_volume: bool = False
    ) -> Iterator[Finding]:
        yield from self._size(layer, in_volume=in_volume)
        if layer.data_start is not None:
            yield from self._data_start(layer)
        yield from self._segments(layer)
        yield from self._small_blocks(layer)
        yield from self._stripes(layer, below)
        if depth < DEEPEST:
            for inner in layer.inner:
                yield from self.layer(inner, layer, depth + 1, in_volume=in_volume or bool(layer.segments))

    def _stripes(self, layer: Layer, below: Layer | None) -> Iterator[Finding]:
        if layer.stripe_unit is None:
            return
        level, chunk, stripe = _array_below(self.disk, below)
        if chunk == 0 and layer.stripe_unit <= (self.disk.limits.physical_block_size or 0):
            return  # mke2fs writes a stride of one sector if its blocks are smaller than the physical sector
        sentence = _stripe_mismatch(layer, level, chunk, stripe)
        if sentence:
            name = wording.layer_name(layer)
            text = f"{name} {sentence}"
            yield self.finding(Code.STRIPE_MISMATCH, Severity.WARNING, text, name, layer.extent.start)

    def _data_start(self, layer: Layer) -> Iterator[Finding]:
        start = layer.data_start or 0
        grid = self._worst_grid(start)
        if grid is None:
            return
        if not kind_named(layer.kind).has_clusters:
            yield self._off(
                _code_of(grid), grid.severity, wording.layer_name(layer), "data start", start, grid
            )
        # an EFI system partition is rarely written
        elif grid.kind in _SECTORS:
            boot = self.partition is not None and self.partition.type_code in EFI_SYSTEM
            severity = Severity.INFO if boot else Severity.WARNING
            yield self._off(
                Code.CLUSTERS_OFF, severity, wording.layer_name(layer), "first cluster", start, grid
            )

    def _segments(self, layer: Layer) -> Iterator[Finding]:
        """Yield findings on the segments of every logical volume. An offset that pe_start explains is not
        repeated.
        """
        reported: set[tuple[str, GridKind]] = set()
        for segment in layer.segments:
            grid = self._worst_grid(segment.extent.start, layer.data_start)
            if grid is None or (segment.volume, grid.kind) in reported:
                continue
            reported.add((segment.volume, grid.kind))
            name = f"LVM {segment.volume}"
            start = segment.extent.start
            yield self._off(_code_of(grid), grid.severity, name, "a segment", start, grid)

    def _worst_grid(self, start: int, base: int | None = None) -> Grid | None:
        """Return the worst grid that `start` is off, ignoring grids that the layer below is off by as
        much.
        """
        if base is None:
            base = self.partition.extent.start if self.partition else 0
        if self.verdict and self.verdict.answer is Answer.UNKNOWN:
            return None
        return _worst_missed(self.grids, start, base)

    def _off(self, code: Code, severity: Severity, name: str, what: str, start: int, grid: Grid) -> Finding:
        past = grid.off_by(start)
        boundary = (
            f"{format_size(past)} past a boundary of {format_size(grid.size)} ({wording.grid_words(grid)})"
        )
        text = (
            f"{what} of {name} is at {wording.offset_words(start, self.sector_size)} of the disk, {boundary}"
        )
        found = self.finding(code, severity, text, name, start)
        next_ = wording.next_realign(self.disk) if self._is_movable(start) else found.next
        return replace(found, grid=grid, off_by=past, cost=cost_at(past, grid.size), next=next_)

    def _is_movable(self, start: int) -> bool:
        """Return whether a move of the partition can align data at `start`. The superblock and the bitmap at
        the start of an md member are on physical sectors only if the distance of the data from it is a
        multiple of them.
        """
        part = self.partition
        if part is None or start not in data_starts(part):
            return False
        sizes = [grid.size for grid in self.grids if grid.kind is GridKind.PHYSICAL]
        updates = kind_named(part.content[0].kind).updates_superblock
        return not updates or not any((start - part.extent.start) % size for size in sizes)

    def _size(self, layer: Layer, *, in_volume: bool) -> Iterator[Finding]:
        """Yield findings on a layer that is larger than its container, and on other damage of its superblock.

        The pieces of an LVM volume may lie in any order, and on several disks, so the end of the partition
        does not limit what is in it; its reader compared it with the volume.
        """
        claims = layer.claims_size or 0
        reported = None
        end = self.partition.extent.end if self.partition else self.disk.size or 0
        room = end - layer.extent.start
        name = wording.layer_name(layer)
        start = layer.extent.start
        if not layer.segments and not in_volume and 0 < room < claims:
            text = f"{name} claims {format_size(claims)}, but its container has {format_size(room)}"
            few = f"{text}: {format_size(claims - room)} too few"
            yield self.finding(Code.LARGER_THAN_CONTAINER, Severity.ERROR, few, name, start)
            reported = missing_bytes(layer.kind, claims, room)
        for problem in layer.problems:
            if problem != reported:
                yield self.finding(
                    Code.DAMAGED_SUPERBLOCK, Severity.WARNING, f"{name}: {problem}", name, start
                )

    def _small_blocks(self, layer: Layer) -> Iterator[Finding]:
        physical = next((grid for grid in self.grids if grid.kind is GridKind.PHYSICAL), None)
        unit = layer.data_unit or 0
        if physical is None or not 0 < unit < physical.size or not kind_named(layer.kind).writes_units:
            return
        # its data are on another device
        if kind_named(layer.kind).may_be_detached and layer.data_start is None:
            return
        name = wording.layer_name(layer)
        sector = f"the physical sector of {format_size(physical.size)} ({physical.source})"
        text = (
            f"{name} works in units of {format_size(unit)}, smaller than {sector}, which each write of one"
            " rewrites"
        )
        found = self.finding(Code.SMALL_BLOCKS, Severity.INFO, text, name, layer.extent.start)
        is_outermost = self.partition is not None and layer in self.partition.content
        if layer.version == "LUKS2" and is_outermost:
            found = replace(found, next=wording.next_command(self.disk, "plan realign", "--layers"))
        yield replace(found, grid=physical)


def _code_of(grid: Grid) -> Code:
    """Return the finding code of a layer whose data are off this grid."""
    if grid.kind in (GridKind.PHYSICAL, GridKind.MINIMUM_IO):
        return Code.LAYER_OFF_PHYSICAL
    return Code.LAYER_OFF_CHUNK if grid.kind is GridKind.CHUNK else Code.LAYER_OFF_PAGE
