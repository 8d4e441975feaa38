"""Judge the content of partitions: settings of file systems and LVM, data areas, stripes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aligntool.audit.grids import STACKED, believed_minimum_io
from aligntool.audit.report import Answer, Code, Finding, Grid, GridKind, Judged, Severity, Verdict, predict
from aligntool.audit.starts import EFI_SYSTEM
from aligntool.audit.wording import as_root, asked_by, layer_name, next_look, shell_word, spot, where
from aligntool.inventory import LIVE_TOGETHER, Disk, Layer, Partition, missing_bytes
from aligntool.units import format_size

# Stripe settings of ext4 and XFS against the array below them.
#
# The array is the md layer under the file system (in an image of a member), or the striped device it lies on.


def _is_a_sector(disk: Disk, unit: int) -> bool:
    """Return whether the stride is only a sector: mke2fs writes one where its blocks are smaller than the physical
    sector.
    """
    return unit <= (disk.limits.physical_block_size or 0)


def _array(disk: Disk, below: Layer | None) -> tuple[str, int, int | None]:
    """Return level, chunk and full stripe of the array below, in bytes; chunk 0: an array without chunks, -1: none
    known.
    """
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
    """Return chunk × data members, for the levels where the two numbers determine it."""
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


# The stack above a partition: where its data really start on the device, and whether its settings fit what
# lies below.

_CLUSTERED = frozenset({"vfat", "exfat"})
_COMPARED = frozenset(
    {GridKind.PHYSICAL, GridKind.MINIMUM_IO, GridKind.PAGE, GridKind.UNIT, GridKind.ALLOCATION, GridKind.CHUNK}
)
DEEPEST = 8  # layers within layers; a disk that nests deeper is not telling the truth


def layer_findings(judged: Judged, sector_size: int) -> Iterator[Finding]:
    disk, verdicts = judged.disk, judged.by_partition()
    for partition in disk.partitions:
        yield from _Walk(judged, partition, verdicts.get(partition.number), sector_size).contents(partition.content)
    if not disk.partitions:
        yield from _Walk(judged, None, verdicts.get(None), sector_size).contents(disk.content)


@dataclass(frozen=True, slots=True)
class _Walk:
    """One partition's stack, from the bottom up."""

    judged: Judged
    partition: Partition | None
    verdict: Verdict | None
    sector_size: int

    @property
    def disk(self) -> Disk:
        return self.judged.disk

    @property
    def grids(self) -> tuple[Grid, ...]:
        return tuple(grid for grid in self.judged.grids if grid.kind in _COMPARED)

    @property
    def start(self) -> int:
        return self.partition.extent.start if self.partition else 0

    @property
    def number(self) -> int | None:
        return self.partition.number if self.partition else None

    def finding(self, code: Code, severity: Severity, text: str, layer: Layer) -> Finding:
        return Finding(
            code, severity, f"{where(self.disk, self.partition)}: {text}", disk=self.disk.name,
            partition=self.number, layer=layer_name(layer),
            start=layer.extent.start, sector_size=self.sector_size, next=f"aligntool explain {code}",
        )  # fmt: skip

    def contents(self, layers: Sequence[Layer]) -> Iterator[Finding]:
        part, code = self.partition, Code.AMBIGUOUS_CONTENT
        if len(layers) > 1 and not all(layer.kind in LIVE_TOGETHER for layer in layers):
            text = f"{where(self.disk, part)}: {', '.join(map(layer_name, layers))} are all recognised here"
            node = f"/dev/{part.node}" if part and part.node else self.disk.path
            look = as_root(self.disk, f"wipefs --no-act {shell_word(node)}")
            yield Finding(
                code, Severity.WARNING, text, disk=self.disk.name, partition=self.number, sector_size=self.sector_size,
                next=look if part is None or part.node else f"aligntool explain {code}",
            )  # fmt: skip
        for layer in layers:
            yield from self.layer(layer, None, 0)

    def layer(self, layer: Layer, below: Layer | None, depth: int) -> Iterator[Finding]:
        yield from self._size(layer)
        yield from self._problems(layer)
        if layer.data_start is not None:
            yield from self._data_start(layer)
        yield from self._segments(layer)
        yield from self._small_blocks(layer)
        yield from self._stripes(layer, below)
        if depth < DEEPEST:
            for inner in layer.inner:
                yield from self.layer(inner, layer, depth + 1)

    def _stripes(self, layer: Layer, below: Layer | None) -> Iterator[Finding]:
        if layer.stripe_unit is None:
            return
        level, chunk, stripe = _array(self.disk, below)
        if chunk == 0 and _is_a_sector(self.disk, layer.stripe_unit):
            return
        if sentence := _mismatch(layer, level, chunk, stripe):
            text = f"{layer_name(layer)} {sentence}"
            yield self.finding(Code.STRIPE_MISMATCH, Severity.WARNING, text, layer)

    def _data_start(self, layer: Layer) -> Iterator[Finding]:
        start = layer.data_start or 0
        grid = self._worst_grid(start)
        if grid is None:
            return
        if layer.kind in _CLUSTERED:
            yield from self._clusters(layer, start, grid)
            return
        yield self._off(_code_of(grid), grid.severity, layer_name(layer), "data start", start, grid)

    def _clusters(self, layer: Layer, start: int, grid: Grid) -> Iterator[Finding]:
        """Yield findings on FAT and exFAT: only the physical sector counts, and hardly that on an EFI system
        partition.
        """
        if grid.kind not in (GridKind.PHYSICAL, GridKind.MINIMUM_IO):
            return
        boot = self.partition is not None and self.partition.type_code in EFI_SYSTEM
        severity = Severity.INFO if boot else Severity.WARNING
        yield self._off(Code.CLUSTERS_OFF, severity, layer_name(layer), "first cluster", start, grid)

    def _segments(self, layer: Layer) -> Iterator[Finding]:
        """Yield findings on every run of every logical volume; what pe_start already explains is not repeated."""
        said: set[tuple[str, GridKind]] = set()
        base = layer.data_start if layer.data_start is not None else self.start
        for segment in layer.segments:
            grid = self._worst_grid(segment.extent.start, base)
            if grid is None or (segment.volume, grid.kind) in said:
                continue
            said.add((segment.volume, grid.kind))
            name, start = f"LVM {segment.volume}", segment.extent.start
            yield self._off(_code_of(grid), grid.severity, name, "a segment", start, grid)

    def _worst_grid(self, start: int, base: int | None = None) -> Grid | None:
        """Return the worst grid that `start` is off, unless the layer below is off it by just as much."""
        base = self.start if base is None else base
        failed = [grid for grid in self.grids if grid.off_by(start) and grid.off_by(start) != grid.off_by(base)]
        if self.verdict and self.verdict.answer is Answer.UNKNOWN:
            return None
        return min(failed, key=lambda grid: grid.severity.rank, default=None)

    def _off(self, code: Code, severity: Severity, name: str, what: str, start: int, grid: Grid) -> Finding:
        past = grid.off_by(start)
        return Finding(
            code, severity,
            f"{where(self.disk, self.partition)}: {what} of {name} is at {spot(start, self.sector_size)} of the disk,"
            f" {format_size(past)} past a boundary of {format_size(grid.size)} ({asked_by(grid)})",
            disk=self.disk.name, partition=self.number, layer=name, start=start, sector_size=self.sector_size,
            grid=grid, off_by=past, cost=predict(grid.size), next=next_look(self.disk),
        )  # fmt: skip

    def _room(self, layer: Layer) -> int | None:
        """Return the bytes from the layer's start to its container's end, if the layer claims more; otherwise None."""
        end = self.partition.extent.end if self.partition else self.disk.size or 0
        room = end - layer.extent.start
        outgrown = layer.claims_size is not None and not layer.segments and 0 < room < layer.claims_size
        return room if outgrown else None

    def _size(self, layer: Layer) -> Iterator[Finding]:
        room = self._room(layer)
        if room is None or layer.claims_size is None:
            return
        text = (
            f"{layer_name(layer)} says it has {format_size(layer.claims_size)},"
            f" but there are {format_size(room)}: {format_size(layer.claims_size - room)} too few"
        )
        yield self.finding(Code.LARGER_THAN_CONTAINER, Severity.ERROR, text, layer)

    def _problems(self, layer: Layer) -> Iterator[Finding]:
        room = self._room(layer)
        same = missing_bytes(layer.kind, layer.claims_size or 0, room) if room is not None else None
        for problem in layer.problems:
            if problem != same:  # AT407 reports that one
                text = f"{layer_name(layer)}: {problem}"
                yield self.finding(Code.DAMAGED_SUPERBLOCK, Severity.WARNING, text, layer)

    def _small_blocks(self, layer: Layer) -> Iterator[Finding]:
        physical = next((grid for grid in self.grids if grid.kind is GridKind.PHYSICAL), None)
        unit = layer.data_unit or 0
        if physical is None or not 0 < unit < physical.size or layer.kind in ("swap", "iso9660", "squashfs", "erofs"):
            return
        text = (
            f"{layer_name(layer)} works in units of {format_size(unit)},"
            f" smaller than the physical sector of {format_size(physical.size)} ({physical.source})"
        )
        found = self.finding(Code.SMALL_BLOCKS, Severity.INFO, text, layer)
        yield replace(found, grid=physical, cost=predict(physical.size, request=unit))


def _code_of(grid: Grid) -> Code:
    """Return the code of a layer whose data are off this grid."""
    if grid.kind in (GridKind.PHYSICAL, GridKind.MINIMUM_IO):
        return Code.LAYER_OFF_PHYSICAL
    return Code.LAYER_OFF_CHUNK if grid.kind is GridKind.CHUNK else Code.LAYER_OFF_PAGE
