"""Read a machine, a captured tree or disk images into an Inventory."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import TypeVar

from aligntool import __version__
from aligntool.audit.wording import audit_command
from aligntool.commands import command, typed
from aligntool.contents.layers import NOT_READ, TABLE_AND_CONTENTS, Contents, read_contents
from aligntool.documents import decode, load_object
from aligntool.errors import Refusal, Refused, refuse
from aligntool.formats import identify
from aligntool.formats.gpt import MOST_ENTRY_BYTES
from aligntool.formats.reader import HeartbeatReader
from aligntool.formats.table_sectors import TableSectors
from aligntool.formats.tables import read_table
from aligntool.inventory import Disk, DiskKind, Gap, Health, Inventory, IoLimits, LinkHop, NvmeFacts, Unseen
from aligntool.linux import commands, partitions
from aligntool.linux.deadline import SILENCE_S, SILENT, Pulse, result_in_child, results_in_children
from aligntool.linux.devices import (
    SYSFS_SECTOR,
    Block,
    Identity,
    backing_file,
    find_block,
    find_kind,
    inactive_members,
    is_disk,
    left_asleep,
    list_blocks,
    list_names,
    lowest_devices,
    names_above,
    names_below,
    open_to_read,
    read_array,
    read_drive_port,
    read_identity,
    read_limits,
    read_mapping,
    read_rotation,
    spun_down,
    suspended,
    why_read_blocks,
)
from aligntool.linux.file_reader import FileReader, forget_cached
from aligntool.linux.pcie import Topology, find_adapters, find_uplinks
from aligntool.linux.sysfs import Record, Tree, UdevDatabase, read_mounts, refuse_unmounted
from aligntool.linux.system import RECORDS, read_system
from aligntool.linux.targets import UserLimits, find_target, open_sysroot, read_image, with_user_limits
from aligntool.system import Manifest, System

# Read NvmeFacts and AtaFacts of a disk. A file of the kernel takes precedence over a command to the drive.

# The places in a snapshot of the pages, NAME.ctrl, NAME.ns, NAME.hmb and NAME.health; and of its manifest.
CAPTURED_IDENTIFY = "/aligntool/identify"
MANIFEST = "/aligntool/manifest.json"


def nvme_controllers(tree: Tree, block: Block) -> tuple[str, ...]:
    """Return the paths of the controllers of a namespace: its own, or those of the subsystem of a multipath
    device.
    """
    above = block.device
    if not above.rpartition("/")[2].startswith("nvme-subsys"):
        return (above,)
    paths = [tree.real(f"{block.path}/multipath/{name}") for name in tree.names(f"{block.path}/multipath")]
    found = [path.rpartition("/")[0] for path in paths if path]
    # before Linux 6.15 sysfs does not show which of the subsystem's controllers have the namespace
    if not found:
        names = [name for name in tree.names(above) if name[4:].isdigit() and name.startswith("nvme")]
        found = [real for name in names if (real := tree.real(f"{above}/{name}"))]
    return tuple(dict.fromkeys(found))


def read_nvme(
    tree: Tree, block: Block, controllers: tuple[str, ...], descriptor: int | None
) -> tuple[NvmeFacts, bool]:
    """Return the facts, and whether Identify itself was read."""
    pages = _captured_pages(tree, block) if descriptor is None else _query_pages(tree, block, descriptor)
    facts = identify.decode_nvme(pages[0] or b"", pages[1] or b"")
    granted = 0 if facts.hmb_preferred == 0 else None  # a drive that requests none gets none
    facts = replace(
        facts,
        hmb_granted=identify.decode_hmb(*pages[2]) if pages[2] is not None else granted,
        hmb_enabled=_flag(tree.text(f"{controllers[0]}/hmb")) if controllers else None,
        multipath=block.device.rpartition("/")[2].startswith("nvme-subsys"),
        controllers=tuple(path.rpartition("/")[2] for path in controllers),
    )
    return facts, facts.format_in_use is not None


Pages = tuple[bytes | None, bytes | None, tuple[int, bytes] | None]


def _query_pages(tree: Tree, block: Block, descriptor: int) -> Pages:
    controller = commands.identify_controller(descriptor)
    namespace = commands.identify_namespace(descriptor, tree.number(f"{block.path}/nsid"))
    wants = identify.decode_nvme(controller or b"", b"").hmb_preferred
    return controller, namespace, commands.get_host_memory_buffer(descriptor) if wants else None


def _captured_pages(tree: Tree, block: Block) -> Pages:
    if tree.live:
        return None, None, None
    place = f"{CAPTURED_IDENTIFY}/{block.sysname}"
    controller, namespace = (tree.content(f"{place}.{name}", identify.PAGE) for name in ("ctrl", "ns"))
    hmb = tree.content(f"{place}.hmb", 4 + identify.PAGE) or b""
    return controller, namespace, (int.from_bytes(hmb[:4], "little"), hmb[4:]) if len(hmb) >= 4 else None


def captured_health(tree: Tree, block: Block) -> tuple[str | None, Health | None]:
    """Return the predicted failure and the health of a captured drive; no drive is queried."""
    log = (
        None
        if tree.live
        else tree.content(f"{CAPTURED_IDENTIFY}/{block.sysname}.health", commands.HEALTH_LENGTH)
    )
    return commands.decode_health_log(log) if log and len(log) == commands.HEALTH_LENGTH else (None, None)


def read_ata(tree: Tree, block: Block, kind: DiskKind, descriptor: int | None) -> bytes:
    """Return the IDENTIFY data, or b"". It is in VPD page 89h, which the kernel read at boot: this requires
    no command and no root, and works in captured trees. Without the page, query the drive by SG_IO.
    """
    data = identify.identify_in_vpd(tree.content(f"{block.device}/vpd_pg89", 4096))
    if data is None and descriptor is not None and kind is DiskKind.ATA:
        data = commands.identify_device(descriptor)
    return data or b""


# Read one disk: combine sysfs, udev, the table on the disk and the drive's identify data; other modules read
# each of them.

# in a snapshot: a folder for each disk, a file for each byte where some begin
CAPTURED_SECTORS = "/aligntool/sectors"
CAPTURED_CONTENTS = "/aligntool/contents"  # blkid's TYPE of what is on a disk without a table, a file each
_MOST_PLACES = 1000  # of sectors of one disk: a chain of extended boot records is no longer
# of one disk: two copies of the largest GPT, and as much of an older one
_MOST_CAPTURED = 4 * MOST_ENTRY_BYTES
CAPTURED = Unseen(TABLE_AND_CONTENTS, "a captured tree does not contain the sectors of the disk")
ONLY_TABLE = Unseen(
    "contents", "a captured tree contains the partition table, and no other sectors of the disk"
)
NO_IDENTIFY = Unseen("NVMe Identify", "the captured tree does not contain it")
_CARDS = (DiskKind.SD, DiskKind.EMMC)
_DRIVES = (DiskKind.NVME, DiskKind.ATA, DiskKind.SCSI, DiskKind.VIRTIO, DiskKind.USB, DiskKind.OTHER)


class Looker:
    """Reads disks; it has the data of the machine that all of them need. `wake`: also read disks that are
    asleep.
    """

    def __init__(self, tree: Tree, given: UserLimits, *, wake: bool) -> None:
        self.around = partitions.Surroundings(tree, UdevDatabase(tree), read_mounts(tree))
        self.topology = Topology(tree)
        self.given = given
        self.wake = wake
        self._numa: dict[str, int | None] = {}

    def look_at(self, block: Block, pulse: Pulse = SILENT, closed: Unseen | None = None) -> Disk:
        """Read a disk from sysfs, udev and, if it can be opened, from itself. `closed`: why it must not be
        opened.
        """
        number = self.around.tree.text(f"{block.path}/dev")
        record = self.around.udev.record(number, block.sysname)
        kind = find_kind(self.around.tree, block, record)
        limits, limits_given = with_user_limits(read_limits(self.around.tree, block.path), self.given)
        kernel = partitions.read_kernel_partitions(self.around, block)
        if kind is DiskKind.DM:
            kernel = kernel or partitions.read_mapped_partitions(self.around, block)
        if not self.around.tree.live:
            closed = CAPTURED
        members = inactive_members(self.around.tree, block)
        if members:
            why = f"the array is not started; its members that are present: {', '.join(members)}"
            closed = Unseen(TABLE_AND_CONTENTS, why, typed("mdadm --detail", f"/dev/{block.name}"), Gap.DISK)
        disk, seen = self._open_and_read(block, kind, record, limits, pulse, closed, partitioned=bool(kernel))
        if closed is CAPTURED:
            seen = self._captured_table(block, disk.size, limits) or seen
        node = f"/dev/{block.name}"
        found = replace(
            _with_contents(disk, seen, kernel, record, self._captured_content(block)),
            limits_given=limits_given,
            mounted_at=self.around.mounts.of(number, node, *_aliases(disk, record)),
            unseen=(*seen.unseen, *disk.unseen, *self._missing_facts(block, disk, kernel)),
        )
        if CAPTURED in found.unseen and not _is_known_without_sectors(found, record):
            unseen = tuple(_not_captured(found) if one is CAPTURED else one for one in found.unseen)
            found = replace(found, unseen=unseen)
        return found

    def _captured_table(self, block: Block, size: int | None, limits: IoLimits) -> Contents | None:
        """Return the table of a captured disk, or None if the capture does not contain it."""
        tree = self.around.tree
        folder = f"{CAPTURED_SECTORS}/{block.sysname}"
        places = [name for name in tree.names(folder) if re.fullmatch("[0-9]{1,19}", name)][:_MOST_PLACES]
        if not places or not size:
            return None
        sectors: dict[int, bytes] = {}
        left = _MOST_CAPTURED
        for name in places:
            sectors[int(name)] = content = (
                tree.content(f"{folder}/{name}", min(MOST_ENTRY_BYTES, left)) or b""
            )
            left -= len(content)
        found = read_table(TableSectors(size, sectors), sector_size=limits.logical_block_size)
        return replace(
            NOT_READ, table=found.table, table_read=True, partitions=found.partitions, unseen=(ONLY_TABLE,)
        )

    def _captured_content(self, block: Block) -> str | None:
        """Return what the capture says is on a disk without a table."""
        tree = self.around.tree
        return None if tree.live else tree.text(f"{CAPTURED_CONTENTS}/{block.sysname}") or None

    def _missing_facts(
        self, block: Block, disk: Disk, kernel: Sequence[partitions.KernelPartition]
    ) -> Iterator[Unseen]:
        """Yield the facts that sysfs always has and lacks here: an incomplete capture, or a device being
        removed.
        """
        if disk.size is None:
            yield Unseen("size", f"{block.path}/size cannot be read", gap=Gap.DISK)
        missing = partitions.unreadable_partitions(self.around.tree, block, kernel)
        if missing:
            yield Unseen("partitions", f"start or size of {', '.join(missing)} cannot be read", gap=Gap.DISK)

    def _open_and_read(
        self,
        block: Block,
        kind: DiskKind,
        record: Record,
        limits: IoLimits,
        pulse: Pulse,
        closed: Unseen | None,
        *,
        partitioned: bool,
    ) -> tuple[Disk, Contents]:
        descriptor = closed or self._open(block, pulse)
        if isinstance(descriptor, Unseen):
            return self._describe(block, kind, record, limits, None), replace(NOT_READ, unseen=(descriptor,))
        try:
            disk = self._describe(block, kind, record, limits, descriptor)
            if spun_down(descriptor, kind, disk.rotational):
                if not self.wake:
                    return disk, replace(NOT_READ, unseen=(left_asleep(),))
                pulse.request_more_time()
            if partitioned:
                forget_cached(descriptor)
            reader = HeartbeatReader(FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END)), pulse.beat)
            return disk, read_contents(reader, sector_size=limits.logical_block_size)
        except OSError as error:
            return disk, replace(
                NOT_READ,
                unseen=(Unseen(TABLE_AND_CONTENTS, f"cannot be read: {error.strerror}", gap=Gap.DISK),),
            )
        finally:
            os.close(descriptor)

    def _open(self, block: Block, pulse: Pulse) -> int | Unseen:
        tree = self.around.tree
        if tree.number(f"{block.path}/size") == 0:
            return _no_medium(block.name)
        reason = why_read_blocks(tree, block)
        if reason:
            return reason
        if suspended(tree, block):
            if not self.wake:
                return left_asleep()
            pulse.request_more_time()
        return open_to_read(f"/dev/{block.name}")

    def _describe(
        self, block: Block, kind: DiskKind, record: Record, limits: IoLimits, descriptor: int | None
    ) -> Disk:
        """Return the disk with everything but its content."""
        tree = self.around.tree
        path = block.path
        identity = read_identity(tree, block, kind, record)
        size = tree.number(f"{path}/size")
        disk = Disk(
            name=block.name,
            path=f"/dev/{block.name}",
            kind=kind,
            size=None if size is None or size < 0 else size * SYSFS_SECTOR,
            limits=limits,
            **asdict(identity),
            rotational=_flag(tree.text(f"{path}/queue/rotational")),
            removable=tree.text(f"{path}/removable") == "1",
            read_only=tree.text(f"{path}/ro") == "1",
            numa_node=self._numa_node(block.device),
            slaves=names_below(tree, path),
            stands_on=lowest_devices(tree, path),
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
                allocation_unit=identify.read_allocation_unit(tree.text(f"{block.device}/ssr")),
                links=self._links((block.device,)),
            )
        if kind in _DRIVES:
            return self._as_drive(disk, block, record, identity, descriptor)
        mapping = {DiskKind.DM: read_mapping, DiskKind.LOOP: backing_file}.get(kind)
        array = read_array(tree, path, record) if kind is DiskKind.MD else None
        return replace(disk, array=array, mapping=mapping(tree, path) if mapping else None)

    def _as_nvme(self, disk: Disk, block: Block, descriptor: int | None) -> Disk:
        tree = self.around.tree
        controllers = nvme_controllers(tree, block)
        facts, identified = read_nvme(tree, block, controllers, descriptor)
        failing, health = captured_health(tree, block)
        depth = tree.number(f"{controllers[0]}/sqsize") if controllers else None
        return replace(
            disk,
            nvme=facts,
            failing=failing,
            health=health,
            queue_depth=None if depth is None else depth + 1,  # SQSIZE counts from zero
            numa_node=self._numa_node(controllers[0])
            if disk.numa_node is None and controllers
            else disk.numa_node,
            links=self._links(controllers),
            unseen=() if identified else (_not_identified(disk.path, live=tree.live),),
        )

    def _as_drive(
        self, disk: Disk, block: Block, record: Record, identity: Identity, descriptor: int | None
    ) -> Disk:
        tree = self.around.tree
        data = read_ata(tree, block, disk.kind, descriptor)
        facts = identify.decode_identify(data)
        model = identity.model
        serial = identity.serial
        firmware = identity.firmware
        if facts is not None and disk.kind is DiskKind.ATA:
            its_model, its_serial, its_firmware = identify.decode_names(data)
            model = its_model if its_model and its_model.startswith(model or "") else model
            serial = serial or its_serial
            firmware = its_firmware or firmware
        return replace(
            disk,
            model=model,
            serial=serial,
            firmware=firmware,
            queue_depth=tree.number(f"{block.device}/queue_depth"),
            ata=facts,
            drive_port=read_drive_port(tree, block, disk.kind),
            rotation_rpm=read_rotation(tree, block, record),
            links=self._links((block.device,)),
        )

    def _links(self, paths: Sequence[str]) -> tuple[tuple[LinkHop, ...], ...]:
        return tuple(links for device in paths if (links := self.topology.links(device)))

    def _numa_node(self, path: str) -> int | None:
        """Return the NUMA node of the device, or of the nearest device above it that has one; None for -1,
        which means that the firmware did not report it.
        """
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


def _is_known_without_sectors(disk: Disk, record: Record) -> bool:
    """Return whether the kernel or udev has read the table of a disk, or knows that it is used without one.
    That the kernel lists no partitions is no evidence: it does not look for them on every device, nor for
    every kind of table.
    """
    if disk.partitions:
        return True
    is_used_whole = disk.content_hint or disk.mounted_at or (disk.kind is DiskKind.DM and disk.holders)
    return bool(is_used_whole) and record.get("ID_PART_TABLE_TYPE") is None


def _not_captured(disk: Disk) -> Unseen:
    if disk.size == 0:
        return _no_medium(disk.name)
    why = f"{CAPTURED.why}, and neither it nor the kernel nor udev reports what is on it"
    return Unseen(TABLE_AND_CONTENTS, why, audit_command(disk), Gap.DISK)


def _no_medium(name: str) -> Unseen:
    return Unseen(TABLE_AND_CONTENTS, f"{name} is empty: no medium, or nothing attached", gap=Gap.EMPTY)


def _with_contents(
    disk: Disk,
    seen: Contents,
    kernel: Sequence[partitions.KernelPartition],
    record: Record,
    captured: str | None,
) -> Disk:
    table, parts = partitions.merge_with_kernel(seen, kernel, record, disk.limits.logical_block_size)
    return replace(
        disk,
        table=table,
        table_read=seen.table_read,
        partitions=parts,
        kernel_partitions=()
        if disk.kind is DiskKind.DM  # the kernel has no partitions of a mapping: they are read from its table
        else tuple((part.number, part.extent) for part in kernel),
        content=seen.content,
        content_read=seen.content_read,
        content_hint=record.get("ID_FS_TYPE") or captured,
        gpt_headers=seen.gpt_headers,
    )


def _aliases(disk: Disk, record: Record) -> tuple[str, ...]:
    """Return other nodes by which a stacked device may be mounted: /dev/mapper/NAME, /dev/md/NAME."""
    if disk.kind not in (DiskKind.DM, DiskKind.MD):
        return ()
    name = record.get("DM_NAME")
    links = tuple(f"/dev/{link}" for link in record.links if link.startswith(("mapper/", "md/")))
    return (f"/dev/mapper/{name}", *links) if name else links


def _not_identified(path: str, *, live: bool) -> Unseen:
    if not live:
        return NO_IDENTIFY
    if os.geteuid() != 0:
        return Unseen("NVMe Identify", f"needs root to open {path}", command("audit", path))
    return Unseen("NVMe Identify", f"{path} did not answer")


def _flag(text: str | None) -> bool | None:
    return None if text not in ("0", "1") else text == "1"


# Read the machine, or the disks and images that the user named, into an Inventory.
#
# The code below decides only what is read, in which order, and what is reported for a target that cannot be
# read; on this machine the reading runs in a child process with a deadline (linux/deadline).

T = TypeVar("T")
Job = Callable[[Pulse], T]

_NOTHING_GIVEN = UserLimits()
_NOT_NEEDED = Unseen(TABLE_AND_CONTENTS, "not needed here")
_SYSTEM_FILES_S = 60.0  # for mdadm.conf, fstab and every initramfs, which are unpacked


def look(
    targets: Sequence[str],
    *,
    sysroot: str | None = None,
    given: UserLimits = _NOTHING_GIVEN,
    wake: bool = False,
    files: bool = True,
    arrays: bool = False,
    silence_s: float = SILENCE_S,
    keep_going: bool = False,
    known: bool = True,
    below: bool = False,
) -> Inventory:
    """Return all disks of the machine, or the targets. `sysroot`: read only this captured tree. `files`: if
    there is an array, also read the files of the system that assemble it, which takes seconds. `arrays`: also
    return every running array, named or not; without targets, disks that are not below an array are then read
    from sysfs only and not opened. `silence_s`: how long to wait for a disk. `known`: refuse a file in which
    nothing is recognised. `below`: also look at what the targets stand on, which their verdicts depend on.

    Raises Refused if none of the targets can be read, or if one does not answer; with `keep_going` they are
    listed in the inventory's `unseen`.
    """
    with open_sysroot(sysroot) as tree:
        machine = _Machine(tree, given, wake or bool(targets), silence_s, known)
        if not targets:
            found = machine.all_disks(arrays=arrays)
            return _inventory(machine, found, files=files, is_whole=not arrays, sysroot=sysroot or "")
        results = machine.named(targets)
        disks = [item for item in results if isinstance(item, Disk)]
        refused = [
            (name, item) for name, item in zip(targets, results, strict=True) if isinstance(item, Refused)
        ]
        if not keep_going:
            if not disks:
                refuse(item for _, refusal in refused for item in refusal.refusals)
            late_disks = [(disk, item) for disk in disks for item in disk.unseen if item.gap is Gap.NO_ANSWER]
            refuse(
                Refusal("no-answer", disk.path, f"{disk.path} {item.why}", item.hint)
                for disk, item in late_disks
            )
        unique: dict[str, Disk] = {}
        for disk in (*disks, *(machine.arrays() if arrays else ())):
            image = disk.kind is DiskKind.IMAGE
            unique.setdefault(os.path.realpath(disk.path) if image else disk.path, disk)
        images = tuple(disk for disk in unique.values() if disk.kind is DiskKind.IMAGE)
        blocks = [disk for disk in unique.values() if disk.kind is not DiskKind.IMAGE]
        seen = (
            _inventory(machine, blocks, files=files)
            if blocks
            else Inventory((), manifest=read_manifest(tree))
        )
        unseen = tuple(Unseen(name, str(refusal), refusal.hint, Gap.DISK) for name, refusal in refused)
        return replace(
            seen,
            disks=(*seen.disks, *images),
            unseen=unseen,
            sysroot=sysroot or "",
            below=replace(machine, wake=wake).below(blocks) if below else (),
        )


def read_manifest(tree: Tree) -> Manifest:
    """Return the manifest of a snapshot, empty if it is not valid; for this machine, the time and the
    version.
    """
    if tree.live:
        return Manifest(now(), __version__)
    try:
        found = load_object((tree.content(MANIFEST, 4096) or b"{}").decode())
        return decode(Manifest, found, "manifest")
    except ValueError:
        return Manifest()


def now() -> str:
    """Return the current time in UTC, in the format of ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True)
class _Machine:
    """A machine to read. `wake`: also read disks that are asleep; disks that the user named always are."""

    tree: Tree
    given: UserLimits
    wake: bool
    silence_s: float
    known: bool

    def all_disks(self, *, arrays: bool) -> list[Disk]:
        """Return all disks. A device whose attributes cannot be listed in time does not prevent reading the
        others.
        """
        refuse_unmounted(self.tree)
        blocks = self._within_deadline(lambda _: list_blocks(self.tree)) or list_names(self.tree)
        if not arrays:
            return self._look_at(blocks)
        needed = self._within_deadline(lambda _: _arrays_and_below(self.tree, blocks)) or frozenset()
        opened = self._look_at([block for block in blocks if block.name in needed])
        return opened + self._look_at([block for block in blocks if block.name not in needed], _NOT_NEEDED)

    def below(self, disks: Sequence[Disk]) -> tuple[Disk, ...]:
        """Return everything that the disks stand on, down to the drives, without the disks themselves."""
        seen = {disk.name for disk in disks}
        found: list[Disk] = []
        level = disks
        while names := sorted({name for disk in level for name in disk.slaves}):
            blocks = self._within_deadline(partial(self._blocks, names)) or []
            new = {block.name: block for block in blocks if block.name not in seen}
            seen |= set(new)
            level = self._look_at(list(new.values()))
            found += level
        return partitions.without_mapped_partitions(found)

    def _blocks(self, names: Sequence[str], _: Pulse) -> list[Block]:
        return [block for name in names if (block := find_block(self.tree, name))]

    def arrays(self) -> list[Disk]:
        """Return the running arrays, from sysfs and udev."""
        blocks = self._within_deadline(lambda _: _arrays(self.tree, list_blocks(self.tree)))
        return self._look_at(blocks or [], _NOT_NEEDED)

    def system(self, disks: Sequence[Disk], *, is_whole: bool) -> tuple[System | None, tuple[Unseen, ...]]:
        """Return the system's files if there is an array, because initramfs images are unpacked for it; of a
        whole machine without one, those that name an array. A captured tree may have none.
        """
        if not any(disk.array for disk in disks) and not self.tree.names(RECORDS):
            named = read_system(self.tree, images=False) if is_whole else None
            return (named if named and named.names_arrays() else None), ()
        seen = self._within_deadline(lambda _: (read_system(self.tree),), _SYSTEM_FILES_S)
        if seen:
            return seen[0], ()
        why = f"did not answer within {_SYSTEM_FILES_S:g} s"
        return None, (Unseen("mdadm.conf, fstab and initramfs", why, "sudo dmesg", Gap.NO_ANSWER),)

    def named(self, targets: Sequence[str]) -> list[Disk | Refused]:
        """Return the disk of each target, or why it cannot be read. All are tried, so that all reasons are
        reported.
        """
        looker = self._cached_looker()
        found = self._with_retry([partial(self._target, target, looker) for target in targets], None)
        no_answer = self._no_answer().why
        return [disk or Refused(f"{target} {no_answer}") for target, disk in zip(targets, found, strict=True)]

    def _target(
        self, target: str, looker: Callable[[], Looker], pulse: Pulse, closed: Unseen | None
    ) -> Disk | Refused:
        try:
            block = find_target(self.tree, target)
            if block is None and closed is not None:
                return Refused(f"{target} {closed.why}")
            if block is None:
                return read_image(target, self.given, pulse, known=self.known)
            disk = looker().look_at(block, pulse, closed)
        except Refused as refusal:
            return refusal
        missing = tuple(
            replace(unseen, gap=Gap.DISK) if unseen.gap is Gap.EMPTY else unseen for unseen in disk.unseen
        )
        return replace(disk, unseen=missing)

    def _look_at(self, blocks: Sequence[Block], closed: Unseen | None = None) -> list[Disk]:
        """Return the disks. Describe one that does not answer from sysfs alone, or by its name if that hangs,
        too.
        """
        looker = self._cached_looker()
        found = self._with_retry([partial(self._disk, block, looker) for block in blocks], closed)
        for index, (block, found_disks) in enumerate(zip(blocks, found, strict=True)):
            if found_disks is None:
                bare = Disk(block.name, f"/dev/{block.name}", DiskKind.OTHER, None, IoLimits())
                found[index] = [replace(bare, unseen=(self._no_answer(),))]
        return [disk for found_disks in found for disk in found_disks or ()]

    def _disk(
        self, block: Block, looker: Callable[[], Looker], pulse: Pulse, closed: Unseen | None
    ) -> list[Disk]:
        return [looker().look_at(block, pulse, closed)] if is_disk(self.tree, block) else []

    def _with_retry(self, jobs: Sequence[Callable[..., T]], closed: Unseen | None) -> list[T | None]:
        """Return the results; retry a disk that does not answer once, without opening it."""
        found = self._all_within_deadline([partial(job, closed=closed) for job in jobs])
        late = [index for index, result in enumerate(found) if result is None]
        again = self._all_within_deadline([partial(jobs[index], closed=self._no_answer()) for index in late])
        for index, result in zip(late, again, strict=True):
            found[index] = result
        return found

    def _cached_looker(self) -> Callable[[], Looker]:
        """Return a function that makes the Looker of all disks, once in each process that calls it."""
        return cache(lambda: Looker(self.tree, self.given, wake=self.wake))

    def _no_answer(self) -> Unseen:
        return Unseen(
            TABLE_AND_CONTENTS, f"did not answer within {self.silence_s:g} s", "sudo dmesg", Gap.NO_ANSWER
        )

    def _within_deadline(self, job: Job[T], silence_s: float | None = None) -> T | None:
        """Return the result, or None after the deadline; a captured tree consists of files, and is read in
        this process.
        """
        return result_in_child(job, silence_s or self.silence_s) if self.tree.live else job(SILENT)

    def _all_within_deadline(self, jobs: Sequence[Job[T]]) -> list[T | None]:
        if not self.tree.live:
            return [job(SILENT) for job in jobs]
        answers = dict(results_in_children(jobs, self.silence_s))
        return [answers[index] for index in range(len(jobs))]


def _arrays_and_below(tree: Tree, blocks: Sequence[Block]) -> frozenset[str]:
    """Return the kernel names of running arrays and of the disks below them."""
    running = _arrays(tree, blocks)
    below = {name for block in running for name in lowest_devices(tree, block.path)}
    return frozenset(below | {block.name for block in running})


def _arrays(tree: Tree, blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if tree.exists(f"{block.path}/md")]


def _inventory(
    machine: _Machine, found: Sequence[Disk], *, files: bool, is_whole: bool = False, sysroot: str = ""
) -> Inventory:
    disks = partitions.without_mapped_partitions(found)
    system, unseen = machine.system(disks, is_whole=is_whole) if files else (None, ())
    adapters = find_adapters(machine.tree)
    captured = not machine.tree.live
    return Inventory(
        disks,
        find_uplinks(disks),
        adapters,
        unseen,
        system,
        captured,
        read_manifest(machine.tree),
        sysroot,
        is_whole,
    )
