"""One disk, from everything that can be seen of it.

In: a `Block` and what surrounds it. Out: a Disk. Alone because this is where sysfs, udev, the table on the disk and the
drive's own word are put together; each of them is read elsewhere.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from aligntool.inventory import Disk, DiskKind, Gap, IoLimits, LinkHop, Unseen
from aligntool.probe import access
from aligntool.probe.cards import read_allocation_unit
from aligntool.probe.contents import NOT_READ, WHAT, Contents, read_contents
from aligntool.probe.deadline import SILENT, Pulse
from aligntool.probe.devices import Block
from aligntool.probe.drive_ports import read_drive_port, read_rotation
from aligntool.probe.file_reader import FileReader
from aligntool.probe.identify import nvme_controllers, read_ata, read_nvme
from aligntool.probe.identity import Identity, read_identity
from aligntool.probe.kinds import find_kind
from aligntool.probe.limits import SYSFS_SECTOR, Given, override, read_limits
from aligntool.probe.mapped import read_mapped_partitions
from aligntool.probe.md import read_array
from aligntool.probe.merge import bring_together
from aligntool.probe.mounts import read_mounts
from aligntool.probe.partitions import (
    KernelPartition,
    Surroundings,
    read_kernel_partitions,
    unreadable_partitions,
)
from aligntool.probe.pcie import Topology
from aligntool.probe.reader import BeatingReader
from aligntool.probe.stack import backing_file, names_above, names_at_the_bottom, names_below, read_mapping
from aligntool.probe.tree import Tree
from aligntool.probe.udev import Record, open_database

CAPTURED = Unseen(WHAT, "a captured tree holds no sectors of the disk")
NO_IDENTIFY = Unseen("NVMe Identify", "the captured tree does not hold it")
_CARDS = (DiskKind.SD, DiskKind.EMMC)
_ON_THE_BUS = (DiskKind.NVME, DiskKind.ATA, DiskKind.SCSI, DiskKind.VIRTIO, DiskKind.USB, DiskKind.OTHER)


@dataclass(frozen=True, slots=True)
class Looker:
    around: Surroundings
    topology: Topology
    given: Given
    wake: bool  # disks that are asleep, too
    _numa: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: Tree, given: Given, *, wake: bool) -> "Looker":
        """Reads what is the same for every disk."""
        around = Surroundings(tree, open_database(tree), read_mounts(tree))
        return cls(around, Topology(tree), given, wake)

    def look_at(self, block: Block, pulse: Pulse = SILENT, closed: Unseen | None = None) -> Disk:
        """The disk from sysfs, udev and, opened, from itself. `closed`: why it is not to be opened."""
        number = self.around.tree.text(f"{block.path}/dev")
        record = self.around.udev.record(number, block.sysname)
        kind = find_kind(self.around.tree, block, record)
        limits, limits_given = override(read_limits(self.around.tree, block.path), self.given)
        kernel = read_kernel_partitions(self.around, block)
        if kind is DiskKind.DM:
            kernel = kernel or read_mapped_partitions(self.around, block)
        if not self.around.tree.live:
            seen, descriptor = replace(NOT_READ, unseen=(CAPTURED,)), None
            disk = self._described(block, kind, record, limits, descriptor)
        elif closed is not None:
            seen, disk = (
                replace(NOT_READ, unseen=(closed,)),
                self._described(block, kind, record, limits, None),
            )
        else:
            disk, seen = self._opened(block, kind, record, limits, pulse, partitioned=bool(kernel))
        node = f"/dev/{block.name}"
        return replace(
            _with_contents(disk, seen, kernel, record),
            limits_given=limits_given,
            mounted_at=self.around.mounts.of(number, node, *_aliases(disk, record)),
            unseen=(*seen.unseen, *disk.unseen, *self._unknown(block, disk, kernel)),
        )

    def _unknown(self, block: Block, disk: Disk, kernel: Sequence[KernelPartition]) -> Iterator[Unseen]:
        """What sysfs always has, and this one does not: a capture with holes, or a device that is going away."""
        if disk.size is None:
            yield Unseen("size", f"{block.path}/size cannot be read", gap=Gap.DISK)
        missing = unreadable_partitions(self.around.tree, block, kernel)
        if missing:
            why = f"start or size of {', '.join(missing)} cannot be read"
            yield Unseen("partitions", why, gap=Gap.DISK)

    def _opened(
        self,
        block: Block,
        kind: DiskKind,
        record: Record,
        limits: IoLimits,
        pulse: Pulse,
        *,
        partitioned: bool,
    ) -> tuple[Disk, Contents]:
        opened = self._open(block, pulse)
        if isinstance(opened, Unseen):
            return self._described(block, kind, record, limits, None), replace(NOT_READ, unseen=(opened,))
        try:
            disk = self._described(block, kind, record, limits, opened)
            if access.spun_down(opened, kind, disk.rotational):
                if not self.wake:
                    return disk, replace(NOT_READ, unseen=(access.left_asleep(),))
                pulse.ask_for_patience()
            if partitioned:
                access.forget_cached(opened)
            size = os.lseek(opened, 0, os.SEEK_END)
            reader = BeatingReader(FileReader(opened, size), pulse.beat)
            seen = read_contents(reader, sector_size=limits.logical_block_size)
            return disk, seen
        except OSError as error:
            return disk, replace(
                NOT_READ, unseen=(Unseen(WHAT, f"cannot be read: {error.strerror}", gap=Gap.DISK),)
            )
        finally:
            os.close(opened)

    def _open(self, block: Block, pulse: Pulse) -> int | Unseen:
        tree = self.around.tree
        if tree.number(f"{block.path}/size") == 0:
            why = f"{block.name} is empty: no medium in it, or nothing attached"
            return Unseen(WHAT, why, gap=Gap.EMPTY)
        stuck = access.blocked(tree, block)
        if stuck is not None:
            return stuck
        if access.suspended(tree, block):
            if not self.wake:
                return access.left_asleep()
            pulse.ask_for_patience()
        return access.open_to_read(f"/dev/{block.name}")

    def _described(
        self, block: Block, kind: DiskKind, record: Record, limits: IoLimits, descriptor: int | None
    ) -> Disk:
        """Everything but what lies on the disk."""
        tree, path = self.around.tree, block.path
        identity = read_identity(tree, block, kind, record)
        size = tree.number(f"{path}/size")
        disk = Disk(
            name=block.name,
            path=f"/dev/{block.name}",
            kind=kind,
            size=None if size is None or size < 0 else size * SYSFS_SECTOR,
            limits=limits,
            model=identity.model,
            vendor=identity.vendor,
            serial=identity.serial,
            firmware=identity.firmware,
            wwn=identity.wwn,
            rotational=_flag(tree.text(f"{path}/queue/rotational")),
            removable=tree.text(f"{path}/removable") == "1",
            read_only=tree.text(f"{path}/ro") == "1",
            numa_node=self._numa_node(block.device),
            slaves=names_below(tree, path),
            stands_on=names_at_the_bottom(tree, path),
            zoned=tree.text(f"{path}/queue/zoned"),
            holders=names_above(tree, path),
        )
        if kind is DiskKind.NVME:
            return self._as_nvme(disk, block, descriptor)
        if kind in _CARDS:
            return replace(
                disk,
                erase_size=tree.number(f"{block.device}/erase_size"),
                preferred_erase_size=tree.number(f"{block.device}/preferred_erase_size"),
                allocation_unit=read_allocation_unit(tree.text(f"{block.device}/ssr")),
                links=self._links((block.device,)),
            )
        if kind in _ON_THE_BUS:
            return self._as_drive(disk, block, record, identity, descriptor)
        return self._as_stacked(disk, block, record)

    def _as_nvme(self, disk: Disk, block: Block, descriptor: int | None) -> Disk:
        tree = self.around.tree
        controllers = nvme_controllers(tree, block)
        facts, identified = read_nvme(tree, block, controllers, descriptor)
        depth = tree.number(f"{controllers[0]}/sqsize") if controllers else None
        unseen = () if identified else (_not_identified(disk.path, live=tree.live),)
        return replace(
            disk,
            nvme=facts,
            queue_depth=None if depth is None else depth + 1,  # SQSIZE counts from zero
            numa_node=disk.numa_node
            if disk.numa_node is not None or not controllers
            else self._numa_node(controllers[0]),
            links=self._links(controllers),
            unseen=unseen,
        )

    def _as_drive(
        self, disk: Disk, block: Block, record: Record, identity: Identity, descriptor: int | None
    ) -> Disk:
        tree = self.around.tree
        told = read_ata(tree, block, disk.kind, descriptor)
        model, serial, firmware = identity.model, identity.serial, identity.firmware
        if told is not None and disk.kind is DiskKind.ATA:
            names = told[1]
            if names.model and (not model or names.model.startswith(model)):
                model = names.model
            serial, firmware = serial or names.serial, names.firmware or firmware
        return replace(
            disk,
            model=model,
            serial=serial,
            firmware=firmware,
            queue_depth=tree.number(f"{block.device}/queue_depth"),
            ata=told[0] if told is not None else None,
            drive_port=read_drive_port(tree, block, disk.kind),
            rotation_rpm=read_rotation(tree, block, record),
            links=self._links((block.device,)),
        )

    def _as_stacked(self, disk: Disk, block: Block, record: Record) -> Disk:
        tree, path = self.around.tree, block.path
        match disk.kind:
            case DiskKind.MD:
                return replace(disk, array=read_array(tree, path, record))
            case DiskKind.DM:
                return replace(disk, mapping=read_mapping(tree, path))
            case DiskKind.LOOP:
                return replace(disk, mapping=backing_file(tree, path))
        return disk

    def _links(self, devices: Sequence[str]) -> tuple[tuple[LinkHop, ...], ...]:
        return tuple(links for device in devices if (links := self.topology.links(device)))

    def _numa_node(self, path: str) -> int | None:
        """Of the device or the nearest one above it that has one; -1: the firmware does not say."""
        if path in self._numa:
            return self._numa[path]
        above = path.rpartition("/")[0]
        if above in ("", "/sys", "/sys/devices", "/sys/devices/virtual"):
            return None
        node = self.around.tree.number(f"{path}/numa_node")
        if node is None:
            node = self._numa_node(above)
        self._numa[path] = node if node is None or node >= 0 else None
        return self._numa[path]


def _with_contents(disk: Disk, seen: Contents, kernel: Sequence[KernelPartition], record: Record) -> Disk:
    table, partitions = bring_together(seen, kernel, record, disk.limits.logical_block_size)
    return replace(
        disk,
        table=table,
        table_read=seen.table_read,
        partitions=partitions,
        kernel_partitions=()
        if disk.kind is DiskKind.DM  # the kernel has none there: what is known of them is the table itself
        else tuple((part.number, part.extent) for part in kernel),
        content=seen.content,
        content_read=seen.content_read,
        content_hint=record.get("ID_FS_TYPE"),
        gpt_headers=seen.gpt_headers,
    )


def _aliases(disk: Disk, record: Record) -> tuple[str, ...]:
    """Other nodes under which a stacked device is mounted: /dev/mapper/NAME, /dev/md/NAME."""
    if disk.kind not in (DiskKind.DM, DiskKind.MD):
        return ()
    name = record.get("DM_NAME")
    links = tuple(f"/dev/{link}" for link in record.links if link.startswith(("mapper/", "md/")))
    return (f"/dev/mapper/{name}", *links) if name else links


def _not_identified(path: str, *, live: bool) -> Unseen:
    if not live:
        return NO_IDENTIFY
    if os.geteuid() != 0:
        return Unseen("NVMe Identify", f"needs root to open {path}", f"sudo aligntool audit {path}")
    return Unseen("NVMe Identify", f"{path} did not answer")


def _flag(text: str | None) -> bool | None:
    return None if text not in ("0", "1") else text == "1"
