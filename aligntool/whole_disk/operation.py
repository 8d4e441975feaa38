"""Plan a partition for a whole disk as requested: look at the disk, read its used blocks and the system's
files.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from aligntool.audit.report import Judged
from aligntool.audit.wording import audit_command, change_by_hand, hints_for_disk, layer_name, look_at
from aligntool.change import MovePlan, Used
from aligntool.claims import Claims
from aligntool.commands import ByHand
from aligntool.contents.catalogue import kind_named
from aligntool.contents.layers import read_layers
from aligntool.contents.luks import LUKS
from aligntool.errors import Refused
from aligntool.formats.reader import MappedReader, Reader, has_data
from aligntool.formats.tables import read_table
from aligntool.inventory import Disk, DiskKind, Layer, Partition
from aligntool.linux.block import open_read_only
from aligntool.linux.content import UsedMap
from aligntool.linux.loops import NoLoop, read_only_loop
from aligntool.linux.luks import open_luks
from aligntool.mover.whole_disk import other_kinds, refuse_unusual_table, table_inside
from aligntool.realign.disk_facts import least_lengths, names_on, open_claims, refuse_bad_blocks, uses_of
from aligntool.realign.found_plan import FoundPlan, with_exact_cost
from aligntool.realign.preconditions import look_before_change, naming_loops
from aligntool.realign.request import Request
from aligntool.realign.second_table import refuse_second_table
from aligntool.realign.used_maps import read_map
from aligntool.system import TableLine, parse_crypttab, parse_fstab
from aligntool.units import Extent, align_down, align_up
from aligntool.whole_disk import planning as partition_plan

_BLOCK = 4096
_LVM = ("lvm/lvm.conf", "lvm/lvmlocal.conf", "lvm/devices/system.devices")


@dataclass(frozen=True, slots=True)
class WholeDisk:
    """The request to make a table of a kind around the content of a disk, or to remove its table."""

    request: Request
    label: str = "gpt"
    undo: bool = False

    def find_plan(self, target: str, request: Request, *, key: bytes | None = None) -> FoundPlan:
        """Return the plan, and the data from which it was made. `key` opens a LUKS to read its length in use.

        Raises Refused with every reason.
        """
        rule = "a table can only be made on or removed from a whole disk"
        judged = look_before_change(target, request, rule)
        path = judged.disk.path
        with naming_loops(path), hints_for_disk(path, judged.disk.raw_copy, request.typed):
            return with_exact_cost(self._find(judged, request, key))

    def _find(self, judged: Judged, request: Request, key: bytes | None) -> FoundPlan:
        with open_claims(judged.disk, request.goal) as (claims, sentences):
            found = self._find_with(judged, request, key, claims)
            return replace(found, plan=replace(found.plan, attention=(*sentences, *found.plan.attention)))

    def _find_with(self, judged: Judged, request: Request, key: bytes | None, claims: Claims) -> FoundPlan:
        disk = judged.disk
        if key is not None and not self.undo:
            judged = replace(judged, disk=self._with_length(judged, key))
            disk = judged.disk
        maps: dict[int, UsedMap] = {}
        least: dict[int, int] = {}
        if request.goal.shrink and not self.undo and disk.table is None and len(disk.content) == 1:
            part = partition_plan.as_partition(disk)
            maps[part.number] = read_map(disk, part.number, part.extent, used_only=request.goal.used_only)
            least = least_lengths(disk, (part,))
        step = self._plan(judged, request, uses_of(maps, least), claims).copies[0]
        number = step.partition
        if number not in maps:
            maps[number] = read_map(disk, number, step.source, used_only=request.goal.used_only)
        plan = self._plan(judged, request, uses_of(maps, least), claims)
        refuse_bad_blocks(disk, disk.partitions or (partition_plan.as_partition(disk),), (number,))
        return FoundPlan(
            replace(plan, attention=(*plan.attention, *named_in_files(disk, undo=self.undo))), judged, maps
        )

    def _plan(self, judged: Judged, request: Request, used: dict[int, Used], claims: Claims) -> MovePlan:
        disk = judged.disk
        inside = None
        kinds: tuple[str, ...] = ()
        if self.undo:
            if len(disk.partitions) == 1:
                with open_read_only(disk.path) as device:
                    inside = table_inside(device, disk.partitions[0].extent, disk.sector_size)
                    kinds = _kinds_without_table(device, disk)
            refuse_second_table(disk)
            names = next(iter(names_on(disk).values()), None)
            plan = partition_plan.plan_unpartition(
                judged, request.goal, used, claims, inside=inside, names=names, kinds=kinds
            )
            with open_read_only(disk.path) as device:
                _refuse_before_partition(device, disk)
                refuse_unusual_table(device, plan, change_by_hand(disk, ByHand.TABLE_KIND, "sgdisk"))
            return plan
        plan = partition_plan.plan_partition(
            judged, request.goal, self.label, used, claims, others=_others(disk)
        )
        with open_read_only(disk.path) as device:
            _refuse_more_behind(device, disk.content[0], disk)
            lost = tuple(_boot_attention(device, disk))
        return replace(plan, attention=(*lost, *plan.attention))

    def _with_length(self, judged: Judged, key: bytes) -> Disk:
        """Return the disk with its LUKS as long as its content needs. Raises Refused as for any other
        content.
        """
        disk = judged.disk
        if [(layer.kind, layer.claims_size) for layer in disk.content] != [(LUKS.name, None)]:
            return disk
        partition_plan.refuse_unmovable(judged, _others(disk))
        (luks,) = disk.content
        try:
            with (
                read_only_loop(disk.path, Extent(0, disk.size or 0)) as loop,
                open_luks(loop, key) as content,
            ):
                inside = read_layers(content, Extent(0, content.size))
                size = content.size
                others = other_kinds(content, inside[0].kind) if inside else ()
                tables = [sector for sector in (512, 4096) if read_table(content, sector_size=sector).table]
                if inside:
                    _refuse_more_behind(content, inside[0], disk)
        except NoLoop as reason:
            text = f"the LUKS on {disk.name} cannot be opened to look inside: {reason}"
            raise Refused(
                text, hint="run the same command with sudo", code="root-only", subject=disk.name
            ) from reason
        if others or tables:
            table = ("a partition table",) if tables else ()
            what = " and ".join((*(layer.kind for layer in inside), *others, *table))
            text = f"the content of the LUKS on {disk.name} is ambiguous: {what}"
            raise Refused(text, hint=audit_command(disk), code="ambiguous", subject=disk.name)
        return replace(disk, content=(partition_plan.with_needed_length(luks, inside, size, disk),))


def _others(disk: Disk) -> tuple[str, ...]:
    """Return the other kinds with a signature on the disk, besides its content."""
    if not disk.content:
        return ()
    with open_read_only(disk.path) as device:
        return other_kinds(device, disk.content[0].kind)


def _kinds_without_table(reader: Reader, disk: Disk) -> tuple[str, ...]:
    """Return the kinds of what is recognised on the disk once the only partition begins at byte 0: what is
    relative to the end of the disk, such as the last labels of a ZFS pool, is not in the partition.
    """
    part = disk.partitions[0].extent
    size = align_down(disk.size or 0, disk.sector_size)
    runs = ((0, part.start, part.length), (part.length, part.length, size - part.length))
    layers = read_layers(MappedReader(reader, runs, size), Extent(0, size), sector_size=disk.sector_size)
    return tuple(layer.kind for layer in layers)


def _refuse_before_partition(reader: Reader, disk: Disk) -> None:
    """Raise Refused if something is recognised before the only partition, such as the label of an LVM volume
    whose first sector was overwritten by the table: the content would be moved over it. A boot sector is that
    of the table.
    """
    size = disk.size or 0
    start = disk.partitions[0].extent.start
    layers = read_layers(
        MappedReader(reader, ((0, 0, start),), size), Extent(0, size), sector_size=disk.sector_size
    )
    found = [layer for layer in layers if layer.hidden_sectors is None]
    if found:
        text = (
            f"{layer_name(found[0])} is recognised on {disk.name} before the partition, and would be"
            " overwritten"
        )
        look = look_at(disk, "wipefs --no-act")
        raise Refused(text, hint=look, code="ambiguous", subject=disk.name)


def _boot_attention(reader: Reader, disk: Disk) -> Iterator[str]:
    """Yield that a boot program in the first sector is not the disk's any more. These kinds leave that sector
    free, except FAT, in which syslinux writes its name (core/diskstart.inc, bsOemName).
    """
    sector = reader.read(0, 440)
    kind = kind_named(disk.content[0].kind)
    is_syslinux = kind.starts_syslinux and sector.startswith(b"SYSLINUX", 3)
    if (kind.leaves_first_sector and has_data(sector)) or is_syslinux:
        yield (
            f"the boot program in the first sector of {disk.name} moves with the content: no BIOS starts from"
            " this disk until one is installed again, such as with grub-install"
        )


def _refuse_more_behind(reader: Reader, layer: Layer, disk: Disk) -> None:
    """Raise Refused if something is recognised where a layer ends that begins at byte 0 of `reader`: a hash
    tree of dm-verity, or another file system, which would not be moved. In a LUKS it is encrypted, and
    nothing else shows it.
    """
    end = align_up(layer.claims_size or reader.size, _BLOCK)
    found = read_layers(reader, Extent(end, reader.size - end)) if end < reader.size else ()
    if found:
        text = (
            f"{found[0].kind} begins at byte {end}, where the {layer.kind} on {disk.name} ends, and would not"
            " be moved"
        )
        raise Refused(text, hint=audit_command(disk), code="ambiguous", subject=disk.name)


# Lines in the configuration of this system that name the disk or its partition by a path. They are shown with
# their replacement, and never edited.


def named_in_files(disk: Disk, *, undo: bool, etc: Path = Path("/etc")) -> Iterator[str]:
    """Yield a sentence for each line with a name that changes. `etc`: the folder of the files."""
    if disk.kind is DiskKind.IMAGE:
        return
    part = disk.partitions[0] if undo else None
    layers = part.content if part else disk.content
    after = disk.path if part else f"{disk.path}{'p' if disk.path[-1].isdigit() else ''}1"
    new = f"UUID={layers[0].uuid}" if layers and layers[0].uuid else after
    old = Path("/dev", part.node) if part and part.node else Path(disk.path)
    for name, parse, field in (("fstab", parse_fstab, 0), ("crypttab", parse_crypttab, 1)):
        for line in parse(_text_or_empty(etc / name)):
            if _line_names(line, old, part):  # as it is written: `spec` has no quotes and escapes
                instead = line.text.strip().replace(line.text.split()[field], new, 1)
                yield (
                    f"/etc/{name} names it by its path; replace the line `{line.text.strip()}` with:"
                    f" {instead}"
                )
    for name in _LVM:
        for text in _text_or_empty(etc / name).splitlines():
            if f"{old}" in text.replace('"', " ").replace("|", " ").split() and not text.strip().startswith(
                "#"
            ):
                yield f"/etc/{name} names {old}; afterwards it is {after}: {text.strip()}"


def _text_or_empty(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text()
    return ""


def _line_names(line: TableLine, node: Path, part: Partition | None) -> bool:
    """Return whether a line names the device `node`. `part`: the partition, whose own names are lost."""
    tag, _, value = line.spec.partition("=")
    if part and tag == "PARTLABEL" and value == part.name:
        return True
    if part and part.uuid and tag.upper() == "PARTUUID" and value.lower() == part.uuid.lower():
        return True
    with suppress(OSError):
        return line.spec.startswith("/dev/") and Path(line.spec).resolve() == node.resolve()
    return False
