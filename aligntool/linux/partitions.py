"""Read the partitions of a disk from the kernel, and merge them with the entries of its table."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.contents.layers import Contents
from aligntool.formats.parked import parked_by_type
from aligntool.formats.part_types import gpt_type_name, mbr_type_name
from aligntool.inventory import (
    ArrayFacts,
    Disk,
    DiskKind,
    Fault,
    Inventory,
    IoLimits,
    Partition,
    Role,
    Table,
    TableLabel,
)
from aligntool.linux.devices import SYSFS_SECTOR, Block, list_names, names_above, read_mapping
from aligntool.linux.sysfs import LIVE, Mounts, Record, Tree, UdevDatabase, as_number, read_mounts
from aligntool.units import Extent

# The kernel's partitions, with udev's records. sysfs counts in 512-byte units whatever the disk's sectors
# are, and does not report the type of a partition.

EXTENDED_TYPES = frozenset(("0x5", "0xf", "0x85"))
MOST_PRIMARIES = 4
_DOS_BOOT = 0x80
_GPT_FLAGS = {0: "required", 1: "no-block-io", 2: "legacy-boot"}  # as probe.tables names them


@dataclass(frozen=True, slots=True)
class KernelPartition:
    """A partition as the running kernel has it, in bytes."""

    number: int
    extent: Extent
    node: str
    alignment_offset: int | None
    discard_alignment: int | None
    holders: tuple[str, ...]
    mounted_at: tuple[str, ...]
    record: Record


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The data that all disks of a machine share, read once."""

    tree: Tree
    udev: UdevDatabase
    mounts: Mounts


def read_kernel_partitions(around: Surroundings, block: Block) -> tuple[KernelPartition, ...]:
    """Return the kernel's partitions by number, each number once. Entries without start and size are
    omitted.
    """
    names = [name for name in around.tree.names(block.path) if name.startswith(block.sysname)]
    return _by_number(_read_sysfs(around, f"{block.path}/{name}", name, block.sysname) for name in names)


def _by_number(read: Iterable[KernelPartition | None]) -> tuple[KernelPartition, ...]:
    found: dict[int, KernelPartition] = {}
    for partition in filter(None, read):
        found.setdefault(partition.number, partition)
    return tuple(found[number] for number in sorted(found))


def unreadable_partitions(tree: Tree, block: Block, known: Sequence[KernelPartition]) -> list[str]:
    """Return the names of partitions without a readable start or size; the name of the disk if none of its
    attributes can be listed.
    """
    names = tree.names(block.path)
    seen = {part.node.replace("/", "!") for part in known}
    own = [name for name in names if name.startswith(block.sysname) and name not in seen]
    numbered = [name for name in own if _partition_number(name, block.sysname) is not None]
    return [name for name in numbered if tree.is_directory(f"{block.path}/{name}")] if names else [block.name]


def _partition_number(name: str, disk: str) -> int | None:
    """Return the number in a partition's name (block/genhd.c), or None."""
    digits = name.removeprefix(disk).removeprefix("p")
    number = as_number(digits)
    return number if number is not None and number >= 0 and digits == str(number) else None


def _read_sysfs(around: Surroundings, path: str, name: str, disk: str) -> KernelPartition | None:
    tree = around.tree
    start = tree.number(f"{path}/start")
    size = tree.number(f"{path}/size")
    number = _partition_number(name, disk)
    if start is None or size is None or number is None or min(start, size) < 0:
        return None
    device = tree.text(f"{path}/dev")
    node = name.replace("!", "/")
    extent = Extent(start * SYSFS_SECTOR, size * SYSFS_SECTOR)
    mounted = around.mounts.of(device, f"/dev/{node}")
    shift = _as_signed(tree.number(f"{path}/alignment_offset"))
    discard = tree.number(f"{path}/discard_alignment")
    record = around.udev.record(device, name)
    return KernelPartition(number, extent, node, shift, discard, names_above(tree, path), mounted, record)


def _as_signed(offset: int | None) -> int | None:
    """Return a signed offset: −1, for a partition of an array with contradictory members, is printed as
    4294967295 (block/partitions/core.c, part_alignment_offset_show; genhd.c prints −1 for the array itself).
    """
    return offset - (1 << 32) if offset is not None and offset >= 1 << 31 else offset


def table_from_udev(
    record: Record, partitions: Sequence[KernelPartition], sector_size: int | None
) -> Table | None:
    """Return the table as udev records it; its label is UNKNOWN if only the kernel's partitions show that it
    exists.
    """
    schemes = (part.record.get("ID_PART_ENTRY_SCHEME") for part in partitions)
    scheme = record.get("ID_PART_TABLE_TYPE") or next(filter(None, schemes), None)
    if scheme is None and not partitions:
        return None
    label = next((known for known in TableLabel if known.value == scheme), TableLabel.UNKNOWN)
    identity = record.get("ID_PART_TABLE_UUID")
    if identity is not None and label is TableLabel.DOS:
        identity = f"0x{identity.removeprefix('0x').rjust(8, '0')}"
    return Table(label, sector_size or SYSFS_SECTOR, disk_id=identity)


def kernel_only_partitions(
    table: Table | None, partitions: Sequence[KernelPartition], sector_size: int | None
) -> tuple[Partition, ...]:
    """Return the kernel's partitions, for a disk whose table could not be read."""
    label = table.label if table is not None else TableLabel.UNKNOWN
    containers = _containers(label, partitions, sector_size or SYSFS_SECTOR)
    return tuple(kernel_only_partition(label, part, containers) for part in partitions)


def kernel_only_partition(
    label: TableLabel, part: KernelPartition, containers: Mapping[int, Extent]
) -> Partition:
    role = Role.EXTENDED if part.number in containers else Role.PRIMARY
    if part.number > MOST_PRIMARIES and (label is TableLabel.DOS or containers):
        role = Role.LOGICAL
    type_code, type_name = _type_of(label, part.record.get("ID_PART_ENTRY_TYPE") or "")
    return with_kernel(
        Partition(
            number=part.number,
            extent=containers.get(part.number, part.extent),
            role=role,
            type_code=type_code,
            type_name=type_name,
            name=part.record.decoded("ID_PART_ENTRY_NAME"),
            uuid=part.record.get("ID_PART_ENTRY_UUID"),
            flags=_flags_of(label, part.record.get("ID_PART_ENTRY_FLAGS")),
        ),
        part,
    )


def with_kernel(partition: Partition, part: KernelPartition) -> Partition:
    """Return the partition with the facts from the kernel, udev and the mounts."""
    return replace(
        partition,
        node=part.node,
        content_hint=part.record.get("ID_FS_TYPE"),
        mounted_at=part.mounted_at,
        holders=part.holders,
        kernel_alignment_offset=part.alignment_offset,
        kernel_discard_alignment=part.discard_alignment,
    )


def _containers(
    label: TableLabel, partitions: Sequence[KernelPartition], sector_size: int
) -> dict[int, Extent]:
    """Return the extended partitions by number, each as long as its content.

    The kernel shows two sectors of them, enough for LILO but too short for a file system
    (block/partitions/msdos.c). Without udev they are recognised by that short length, in front of logical
    partitions.
    """
    if label not in (TableLabel.DOS, TableLabel.UNKNOWN):
        return {}
    logicals = [part for part in partitions if part.number > MOST_PRIMARIES]
    containers = {}
    for part in partitions:
        if part.number > MOST_PRIMARIES:
            continue
        code = part.record.get("ID_PART_ENTRY_TYPE")
        stump = part.extent.length <= max(2 * SYSFS_SECTOR, sector_size) and code is None
        inside = [other.extent.end for other in logicals if other.extent.start > part.extent.start]
        if code in EXTENDED_TYPES or (stump and inside):
            table_length = (part.record.number("ID_PART_ENTRY_SIZE") or 0) * SYSFS_SECTOR
            end = max(part.extent.end, part.extent.start + table_length, *inside, 0)
            containers[part.number] = Extent(part.extent.start, end - part.extent.start)
    return containers


def _type_of(label: TableLabel, code: str) -> tuple[str, str]:
    if label is TableLabel.GPT:
        return code.upper(), gpt_type_name(code.upper())
    number = _parse_hex(code) if label is TableLabel.DOS and code.startswith("0x") else None
    return (code, "") if number is None else (f"0x{number:02x}", mbr_type_name(number))


def _flags_of(label: TableLabel, text: str | None) -> tuple[str, ...]:
    """Return the names of the flags; blkid prints the GPT attributes, or an MBR entry's first byte, as a hex
    number.
    """
    bits = _parse_hex(text or "") or 0
    if label is not TableLabel.GPT:
        return ("boot",) if label is TableLabel.DOS and bits & _DOS_BOOT else ()
    return tuple(_GPT_FLAGS.get(bit, f"guid:{bit}") for bit in range(64) if bits >> bit & 1)


def _parse_hex(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", text) else None


# The partitions of a multipath map are separate device-mapper devices, made by kpartx. They have no `start`
# in sysfs: udev records the start from the table (ID_PART_ENTRY_OFFSET, multipath-tools' kpartx.rules and
# blkid).

_MAPPING_UUID = r"(?a)part(\d{1,4})-.+"


def read_mapped_partitions(around: Surroundings, block: Block) -> tuple[KernelPartition, ...]:
    """Return the partitions of a multipath map by number, each number once."""
    return _by_number(_read_mapped(around, name) for name in around.tree.names(f"{block.path}/holders"))


def _read_mapped(around: Surroundings, name: str) -> KernelPartition | None:
    tree = around.tree
    path = tree.real(f"/sys/class/block/{name}") or tree.real(f"/sys/block/{name}") or ""
    mapping = re.fullmatch(_MAPPING_UUID, tree.text(f"{path}/dm/uuid") or "")
    size = tree.number(f"{path}/size")
    device = tree.text(f"{path}/dev")
    record = around.udev.record(device, name)
    start = record.number("ID_PART_ENTRY_OFFSET")
    if mapping is None or start is None or size is None or size < 0:
        return None
    shift = tree.number(f"{path}/alignment_offset")
    shift = shift if shift is not None and shift >= 0 else None
    extent = Extent(start * SYSFS_SECTOR, size * SYSFS_SECTOR)
    mounted = around.mounts.of(device, f"/dev/{name}", f"/dev/mapper/{record.get('DM_NAME')}")
    return KernelPartition(
        int(mapping[1]), extent, name, shift, None, names_above(tree, path), mounted, record
    )


def without_mapped_partitions(disks: Sequence[Disk]) -> tuple[Disk, ...]:
    """Return the disks without the mappings that are partitions of another mapping."""
    mapped = {part.node for disk in disks if disk.kind is DiskKind.DM for part in disk.partitions}
    return tuple(
        disk for disk in disks if disk.kind is not DiskKind.DM or disk.name not in mapped or disk.partitions
    )


# Merge the table on the disk with the partitions of the kernel. They can differ: the table was changed and
# not re-read, only one side knows some slices, the kernel shortens an extended partition.

# The keys by which an entry of the table is matched with a partition of the kernel, in this order.
_KEYS: tuple[Callable[[Partition | KernelPartition], tuple[int, ...]], ...] = (
    lambda part: (part.number, part.extent.start),
    lambda part: (part.extent.start, part.extent.length),
    lambda part: (part.number,),
)


def merge_with_kernel(
    seen: Contents, kernel: Sequence[KernelPartition], record: Record, sector_size: int | None
) -> tuple[Table | None, tuple[Partition, ...]]:
    """Return the table and the partitions of a disk. If reading the table fails, the kernel and udev still
    have what they read when the sector was good.
    """
    if not seen.table_read:
        return _as_kernel_reports(table_from_udev(record, kernel, sector_size), kernel, sector_size)
    if _are_dynamic_volumes(seen, kernel):
        return seen.table, kernel_only_partitions(None, kernel, sector_size)
    if seen.table is None or seen.table.label is not TableLabel.UNKNOWN or seen.partitions:
        label = seen.table.label if seen.table else TableLabel.UNKNOWN
        return seen.table, merge(label, seen.partitions, kernel)
    table = table_from_udev(record, kernel, sector_size) or seen.table
    return _as_kernel_reports(replace(table, faults=seen.table.faults), kernel, sector_size)


def _as_kernel_reports(
    table: Table | None, kernel: Sequence[KernelPartition], sector_size: int | None
) -> tuple[Table | None, tuple[Partition, ...]]:
    """Return the table and the kernel's partitions; whether a move is in flight follows from their types."""
    partitions = kernel_only_partitions(table, kernel, sector_size)
    return table and replace(table, in_flight=parked_by_type(partitions)), partitions


def _are_dynamic_volumes(seen: Contents, kernel: Sequence[KernelPartition]) -> bool:
    """Return whether the kernel's partitions are volumes of a Windows dynamic disk with an MBR: it shows the
    volumes of the database (block/partitions/ldm.c); the table only protects them from other systems.
    """
    if not kernel or seen.table is None or seen.table.label is not TableLabel.DOS:
        return False
    dynamic = any(fault.fault is Fault.DYNAMIC_DISK for fault in seen.table.faults)
    return dynamic and {part.extent for part in kernel} != {part.extent for part in seen.partitions}


def merge(
    label: TableLabel, partitions: Sequence[Partition], kernel: Sequence[KernelPartition]
) -> tuple[Partition, ...]:
    """Merge both lists. A partition of the kernel matches the table's entry with its number and start,
    otherwise with its extent, otherwise with its number. Partitions that are not in the table come last.
    """
    unmatched = {part.node: part for part in kernel}
    chosen: dict[int, KernelPartition] = {}
    for key in _KEYS:
        by_key = {key(part): part for part in unmatched.values()}
        for index, partition in enumerate(partitions):
            if index not in chosen and (found := by_key.pop(key(partition), None)):
                chosen[index] = unmatched.pop(found.node)
    merged = list(partitions)
    for index, part in chosen.items():
        merged[index] = with_kernel(merged[index], part)
    numbers = {partition.number for partition in partitions}
    merged += [
        _only_kernel(label, partitions, part) for part in unmatched.values() if part.number not in numbers
    ]
    return tuple(merged)


def _only_kernel(label: TableLabel, partitions: Sequence[Partition], part: KernelPartition) -> Partition:
    partition = kernel_only_partition(label, part, {})
    others = [
        other.extent
        for other in partitions
        if other.role is not Role.EXTENDED and other.extent != part.extent
    ]
    return replace(
        partition, role=Role.NESTED if any(other.contains(part.extent) for other in others) else Role.PRIMARY
    )


# The devices on each other, without opening one.


def find_devices(tree: Tree = LIVE) -> Inventory:
    """Return all block devices, of each only what it is and what uses it: enough for
    `wording.release_command`.
    """
    around = Surroundings(tree, UdevDatabase(tree), read_mounts(tree))
    return Inventory(tuple(_device(around, block) for block in list_names(tree)))


def _device(around: Surroundings, block: Block) -> Disk:
    tree = around.tree
    path = f"/dev/{block.name}"
    nodes = [f"/dev/{block.name}"]
    name = tree.text(f"{block.path}/dm/name")
    if name:
        nodes.append(f"/dev/mapper/{name}")
    parts = tuple(
        Partition(part.number, part.extent, node=part.node, mounted_at=part.mounted_at, holders=part.holders)
        for part in read_kernel_partitions(around, block)
    )
    metadata = tree.text(f"{block.path}/md/metadata_version")
    return Disk(
        block.name,
        path,
        DiskKind.OTHER,
        None,
        IoLimits(),
        partitions=parts,
        holders=names_above(tree, block.path),
        mounted_at=around.mounts.of(tree.text(f"{block.path}/dev"), *nodes),
        mapping=read_mapping(tree, block.path),
        array=ArrayFacts("", None, (), metadata=metadata) if metadata else None,
    )
