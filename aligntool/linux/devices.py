"""List block devices; read what the kernel reports of each: kind, stacking, limits, identity, md."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.commands import ByHand, by_hand, command, is_node
from aligntool.contents.layers import TABLE_AND_CONTENTS
from aligntool.contents.md import CHUNKED
from aligntool.inventory import (
    ARRAY_SETTINGS,
    MEMBER_SETTINGS,
    ArrayFacts,
    DiskKind,
    Gap,
    IoLimits,
    Unseen,
    rule_path,
)
from aligntool.linux.commands import is_standby
from aligntool.linux.held import open_held
from aligntool.linux.sysfs import NOTHING, READ_ONLY, Record, Tree, as_number
from aligntool.system import array_uuid
from aligntool.units import KIB

# List the block devices that are disks. Captured trees keep them in different places, and the kernel has many
# block devices that are not disks.

MOST_FOLDERS = 200_000  # if a captured tree has to be searched
DEEPEST = 16

# Optical drives, floppies, compressed memory, raw flash; the paths of an NVMe multipath device; eMMC's boot
# areas.
_NEVER_A_DISK = r"(?:sr|scd|fd|zram|mtdblock|ubiblock)\d.*|nvme\d+c\d+n\d+|mmcblk\d+(?:boot\d|rpmb|gp\d).*"
_VIRTUAL = r"(?:loop|md|dm-|nbd|rbd|ram|drbd|bcache|ublkb|zd|nullb)\d*.*"  # of size 0 while not in use
_NAMESPACE = r"nvme\d+n\d+"
_NUMBERS = re.compile(r"\d+")
_STACKED = r"(?:md|dm-|bcache)\d*.*"
_IN_MEMORY = r"(?:loop|nbd|rbd|ram|zd|nullb|ublkb)\d*.*"


@dataclass(frozen=True, slots=True)
class Block:
    """A whole block device in sysfs."""

    sysname: str  # "sda", "cciss!c0d0"
    path: str  # with no symbolic link in it

    @property
    def name(self) -> str:
        """Return the kernel's name as in /dev: sysfs has "!" for a slash."""
        return self.sysname.replace("!", "/")

    @property
    def device(self) -> str:
        """Return the path of the device to which this block device belongs: a SCSI device, an NVMe controller
        or subsystem, a card.
        """
        above = self.path.removesuffix(f"/block/{self.sysname}")
        if not self.path.startswith("/sys/devices/"):
            return f"{self.path}/device"
        return above if above != self.path else self.path.rpartition("/")[0]


def list_blocks(tree: Tree) -> list[Block]:
    """Return all disks to audit, physical ones first, in natural order."""
    found = {block.path: block for block in _all_blocks(tree)}
    return sorted((block for block in found.values() if is_disk(tree, block)), key=_sort_key)


def list_names(tree: Tree) -> list[Block]:
    """Return all block devices in the same order without reading an attribute, for use after such a read
    hung.
    """
    return sorted(_listed_in(tree, "/sys/block"), key=_sort_key)


def find_block(tree: Tree, name: str) -> Block | None:
    """Return the disk with this kernel name, or the disk of the partition with this name."""
    sysname = name.replace("/", "!")
    if sysname in ("", ".", ".."):
        return None
    for place in (f"/sys/class/block/{sysname}", f"/sys/block/{sysname}"):
        real = tree.real(place)
        if real:
            return _block_or_disk(tree, real)
    if tree.live:
        return None  # /sys/class/block of a running machine is complete
    for block in _all_blocks(tree):
        if block.sysname == sysname or tree.is_directory(f"{block.path}/{sysname}/holders"):
            return block
        if sysname.startswith(block.sysname) and tree.exists(f"{block.path}/{sysname}/start"):
            return block
    return None


def block_of_number(tree: Tree, number: str) -> Block | None:
    real = tree.real(f"/sys/dev/block/{number}")
    return None if real is None else _block_or_disk(tree, real)


def _block_or_disk(tree: Tree, path: str) -> Block:
    if tree.exists(f"{path}/partition"):
        path = path.rpartition("/")[0]
    return Block(path.rpartition("/")[2], path)


def _all_blocks(tree: Tree) -> list[Block]:
    if tree.live and (found := [Block(path.rpartition("/")[2], path) for path in _list_by_udev()]):
        return found
    for folder in ("/sys/block", "/sys/class/block", "/sys/dev/block"):
        found = list(_listed_in(tree, folder))
        if found:
            return found
    return list(_search_capture(tree))


def _list_by_udev() -> list[str]:
    """Return the paths of the disks that libudev lists; [] without libudev: sysfs is read instead."""
    try:
        import pyudev

        devices = pyudev.Context().list_devices(subsystem="block", DEVTYPE="disk")
        return [str(device.sys_path) for device in devices]
    except (ImportError, OSError, ValueError):
        return []


def _listed_in(tree: Tree, folder: str) -> Iterator[Block]:
    for name in tree.names(folder):
        path = tree.real(f"{folder}/{name}")
        if path and (folder == "/sys/block" or not tree.exists(f"{path}/partition")):
            yield Block(path.rpartition("/")[2], path)


def _search_capture(tree: Tree) -> Iterator[Block]:
    """Yield the devices of a capture that lacks the kernel's lists, such as libnvme's: every entry of a
    folder "block", and NVMe namespaces.
    """
    pending = [("/sys/devices", 0)]
    seen = 0
    while pending:
        folder, depth = pending.pop()
        seen += 1
        if seen > MOST_FOLDERS:
            return
        for name in tree.names(folder):
            path = f"{folder}/{name}"
            is_block = folder.endswith("/block") or re.fullmatch(_NAMESPACE, name) is not None
            if is_block and tree.exists(f"{path}/size") and tree.link(path) is None:
                yield Block(name, path)
            elif depth < DEEPEST and "." not in name[:1] and tree.link(path) is None:
                pending.append((path, depth + 1))


def is_disk(tree: Tree, block: Block) -> bool:
    """Return whether the block device is a disk in use; True if its size cannot be read."""
    if re.fullmatch(_NEVER_A_DISK, block.sysname) or tree.text(f"{block.path}/hidden") == "1":
        return False
    if re.fullmatch(_VIRTUAL, block.sysname) and tree.number(f"{block.path}/size") == 0:
        return bool(inactive_members(tree, block))
    # The kernel creates sixteen RAM disks at once, mostly unused.
    in_use = tree.names(f"{block.path}/holders") or any(
        name.startswith(block.sysname) for name in tree.names(block.path)
    )
    return not block.sysname.startswith("ram") or bool(in_use)


def _sort_key(block: Block) -> tuple[int, str, int, str]:
    name = block.sysname
    rank = 1 if re.fullmatch(_STACKED, name) else 2 if re.fullmatch(_IN_MEMORY, name) else 0
    padded = _NUMBERS.sub(lambda number: number.group().zfill(6), name)
    letters = _NUMBERS.split(name, maxsplit=1)[0]
    return rank, letters[:2], len(letters), padded  # sdz comes before sdaa


# Open a disk for reading, or return the reason why not. Nothing is opened for writing, a sleeping drive is
# not woken, and a drive that cannot be opened does not prevent reading the others.

_REASONS = {
    errno.ENOMEDIUM: "there is no medium in the drive",
    errno.EBUSY: "it is in exclusive use",
    errno.ENOENT: "its node in /dev is missing",
    errno.ENXIO: "the device is gone",
    errno.ENODEV: "the device is gone",
}


def open_to_read(path: str) -> int | Unseen:
    """Return a descriptor of the device, or why it cannot be opened."""
    try:
        return open_held(path, READ_ONLY)
    except OSError as error:
        if isinstance(error, PermissionError) and os.geteuid() != 0:
            return Unseen(TABLE_AND_CONTENTS, f"needs root to open {path}", command("audit", path), Gap.DISK)
        reason = _REASONS.get(error.errno or 0, error.strerror or "it cannot be opened")
        return Unseen(
            TABLE_AND_CONTENTS,
            f"{path}: {reason}",
            gap=Gap.EMPTY if error.errno == errno.ENOMEDIUM else Gap.DISK,
        )


def suspended(tree: Tree, block: Block) -> bool:
    """Return whether the kernel has suspended the device and opening its node would start a motor (sd_open
    resumes it).

    False for flash, which resumes in milliseconds: an SD card is suspended three seconds after its last
    request (drivers/mmc/core/block.c), so an idle one would never be read.
    """
    if tree.text(f"{block.path}/queue/rotational") == "0":
        return False
    return tree.text(f"{block.device}/power/runtime_status") == "suspended"


def why_read_blocks(tree: Tree, block: Block) -> Unseen | None:
    """Return why a read would block until the device is resumed, which may be never; None if it would not
    block.
    """
    if tree.text(f"{block.path}/dm/suspended") == "1":
        resume = by_hand(ByHand.MAPPINGS, "dmsetup", f"/dev/{block.name}")
        return Unseen(TABLE_AND_CONTENTS, "the mapping is suspended", resume, Gap.DISK)
    if tree.text(f"{block.device}/state") in ("offline", "blocked", "transport-offline", "quiesce"):
        return Unseen(TABLE_AND_CONTENTS, f"the kernel has taken {block.name} offline", gap=Gap.DISK)
    return None


def spun_down(descriptor: int, kind: DiskKind, rotational: bool | None) -> bool:
    """Return whether the drive has entered standby by itself; the next read would spin it up."""
    return kind is DiskKind.ATA and rotational is not False and is_standby(descriptor) is True


def left_asleep() -> Unseen:
    return Unseen(
        TABLE_AND_CONTENTS, "the drive is asleep and was not woken", "sudo aligntool audit --wake", Gap.DISK
    )


# Determine the kind of a disk. The kernel does not report it in a single place: it follows from the name, the
# bus, and the driver of the host.

# By kernel name (Documentation/admin-guide/devices.txt); sd and mmcblk need a closer look.
_STEMS = {
    DiskKind.NVME: ("nvme",),
    DiskKind.VIRTIO: ("vd", "xvd"),
    DiskKind.LOOP: ("loop",),
    DiskKind.MD: ("md",),
    DiskKind.DM: ("dm-",),
    DiskKind.BCACHE: ("bcache",),
    DiskKind.DASD: ("dasd",),
    DiskKind.NETWORK: ("nbd", "rbd", "drbd"),
    DiskKind.MEMORY: ("ram", "pmem", "nullb"),
    DiskKind.ATA: ("hd",),
}
_SCSI = ("sd", "sata", "sas")  # the latter two on Synology's kernels: sata1, with partitions sata1p1
_LETTERED = r"(xvd|vd|sd|hd|dasd)[a-z]+"  # disks counted in letters
_NUMBERED = r"([a-z_-]+?)\d.*"
_HOST = r"(.*/host\d+)(?:/|$)"
_USB = r".*/usb\d+/.*"
_HOST_DRIVERS = {  # scsi_host's proc_name, as each driver's scsi_host_template spells it
    "ufshcd": DiskKind.UFS,
    **dict.fromkeys(("usb-storage", "uas"), DiskKind.USB),
    **dict.fromkeys(("storvsc_host", "vmw_pvscsi", "virtio_scsi", "xen-scsifront"), DiskKind.VIRTIO),
}


def find_kind(tree: Tree, block: Block, record: Record) -> DiskKind:
    name = block.sysname
    # md_d0, or md_data after "CREATE names=yes" in mdadm.conf (md.c, add_named_array)
    if name.startswith("md_"):
        return DiskKind.MD
    found = re.fullmatch(_LETTERED, name) or re.fullmatch(_NUMBERED, name)
    stem = found[1] if found else name
    if stem in _SCSI:
        return _scsi_kind(tree, block, record)
    if stem == "mmcblk":
        return DiskKind.SD if (tree.text(f"{block.device}/type") or "").startswith("SD") else DiskKind.EMMC
    return next((kind for kind, stems in _STEMS.items() if stem in stems), DiskKind.OTHER)


def _scsi_kind(tree: Tree, block: Block, record: Record) -> DiskKind:
    path = block.path
    if re.fullmatch(_USB, path):
        return DiskKind.USB
    vendor = tree.text(f"{block.device}/vendor") or ""
    if vendor == "ATA":
        return DiskKind.ATA
    if "/virtio" in path or vendor.startswith(("VMware", "Msft")):
        return DiskKind.VIRTIO
    if "ufshc" in path:
        return DiskKind.UFS
    host = re.match(_HOST, path)
    if host:
        driver = tree.text(f"{host[1]}/scsi_host/{host[1].rpartition('/')[2]}/proc_name") or ""
        kind = _HOST_DRIVERS.get(driver.lower().replace(" ", "_"))
        if kind:
            return kind
    return {"ata": DiskKind.ATA, "usb": DiskKind.USB}.get(record.get("ID_BUS") or "", DiskKind.SCSI)


# Stacked devices: device-mapper, loop files. Each stacking driver has its own folder besides the common
# slaves/ and holders/.

MOST_BELOW = 4096  # devices below one; a captured tree may have cycles
_PARTITION = r"part(\d+)-.*"  # as kpartx and multipath-tools name the mappings of partitions


def names_below(tree: Tree, path: str) -> tuple[str, ...]:
    return _list_names(tree, f"{path}/slaves")


def lowest_devices(tree: Tree, path: str) -> tuple[str, ...]:
    """Return the lowest devices of the stack: drives, for a partition its drive; for a loop device its
    file.
    """
    found: set[str] = set()
    seen: set[str] = set()
    pending = [path]
    while pending and len(seen) < MOST_BELOW:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        backing = (tree.text(f"{current}/loop/backing_file") or "").removesuffix(" (deleted)")
        names = [backing.removeprefix("/dev/")] if is_node(backing) else names_below(tree, current)
        if not names:
            found.add(f"file {backing}" if backing else current.rpartition("/")[2].replace("!", "/"))
        for name in names:
            block = find_block(tree, name)
            pending += [block.path] if block else []
            found |= set() if block else {name}
    return tuple(sorted(found))


def names_above(tree: Tree, path: str) -> tuple[str, ...]:
    return _list_names(tree, f"{path}/holders")


def _list_names(tree: Tree, folder: str) -> tuple[str, ...]:
    return tuple(name.replace("!", "/") for name in tree.names(folder))


def read_mapping(tree: Tree, path: str) -> str | None:
    """Describe a device-mapper device; the prefix of its UUID names the program that made it (lvm2,
    lib/misc/lvm-string.c).
    """
    name = tree.text(f"{path}/dm/name")
    uuid = tree.text(f"{path}/dm/uuid") or ""
    if not name:
        return None
    owner, _, rest = uuid.partition("-")
    if owner == "LVM":
        return f"lvm {volume_name(name)}"
    partition = re.fullmatch(_PARTITION, uuid)
    word = {"CRYPT": f"crypt {rest.partition('-')[0]}", "mpath": "multipath", "DMRAID": "raid"}.get(
        owner, "dm"
    )
    return f"partition {partition[1]} {name}" if partition else f"{word} {name}"


def volume_name(name: str) -> str:
    """Return the group and volume of a mapping's name: "vg-one/lv" for "vg--one-lv", as LVM doubles their
    hyphens.
    """
    parts = name.replace("--", "\0").split("-")
    return "/".join(part.replace("\0", "-") for part in parts[:2]) + "".join(
        f" ({part})" for part in parts[2:]
    )


def backing_file(tree: Tree, path: str) -> str | None:
    """Return the file of a loop device, as the kernel reports it: cut to a page, "(deleted)" appended."""
    name = tree.text(f"{path}/loop/backing_file")
    return f"file {name}" if name else None


# Evidence that a SCSI disk is a single drive, not a LUN of a RAID controller, a storage array or a
# hypervisor.

_SAS = r"/end_device-[^/]+/target[^/]+/"  # scsi_transport_sas.c: below a phy or an expander
_HOST_TARGET = r"(.*/host\d+)/(target\d+:\d+:\d+)/"
_B1_LENGTH = 6


def read_drive_port(tree: Tree, block: Block, kind: DiskKind) -> str | None:
    """Return the bus that addresses the drive itself, or None without evidence of a single drive.

    RAID controllers put their volumes directly below their host, without an end device of the SAS transport
    (megaraid_sas, hpsa, smartpqi, aacraid, arcmsr, 3w-*), and so do FC, iSCSI and hypervisors.
    """
    if kind is DiskKind.ATA:
        return "ata"
    if kind is not DiskKind.SCSI:
        return None
    if re.search(_SAS, f"{block.path}/"):
        return "sas"
    place = re.match(_HOST_TARGET, f"{block.path}/")
    spi = place and tree.exists(f"{place[1]}/{place[2]}/spi_transport")  # scsi_transport_spi.c
    return "spi" if spi else None


def read_rotation(tree: Tree, block: Block, record: Record) -> int | None:
    """Return the reported revolutions per minute, 0 if the drive reports none, or None if it cannot be read.

    Block Device Characteristics VPD page (SBC-4, 6.6.2), bytes 4 and 5: 0 not reported, 1 not rotating.
    """
    page = tree.content(f"{block.device}/vpd_pgb1", 4096)
    if page is not None and len(page) >= _B1_LENGTH and page[1] == 0xB1:
        rate = int.from_bytes(page[4:6], "big")
        return rate if 0x0401 <= rate <= 0xFFFE else 0
    return record.number("ID_ATA_ROTATION_RATE_RPM")


# Identity of a disk: model, vendor, serial, firmware, world-wide name. Each bus names these attributes
# differently, and SCSI cuts the model of an ATA drive to sixteen characters.

_NAMED_BY_SCSI = frozenset((DiskKind.ATA, DiskKind.SCSI, DiskKind.USB, DiskKind.UFS))
_SERIALS = ("SCSI_IDENT_SERIAL", "ID_SCSI_SERIAL", "ID_SERIAL_SHORT", "ID_SERIAL")  # in the order of lsblk


@dataclass(frozen=True, slots=True)
class Identity:
    """The names of a drive."""

    model: str | None = None
    vendor: str | None = None
    serial: str | None = None
    firmware: str | None = None
    wwn: str | None = None


# model, vendor, serial, firmware below the device, and the name below the device or the block device
# of the controller, or of the subsystem above a multipath device
_NVME = ("model", "", "serial", "firmware_rev")
_CARD = ("name", "manfid", "serial", "fwrev")


def read_identity(tree: Tree, block: Block, kind: DiskKind, record: Record) -> Identity:
    device = block.device
    if kind is DiskKind.NVME:
        return _named(tree, device, _NVME, f"{block.path}/wwid")
    if kind in _NAMED_BY_SCSI or (kind is DiskKind.VIRTIO and block.sysname.startswith("sd")):
        return _scsi(tree, device, record)
    if kind in (DiskKind.SD, DiskKind.EMMC):
        return _named(tree, device, _CARD, f"{device}/cid")
    serial = tree.text(f"{block.path}/serial") if kind is DiskKind.VIRTIO else None
    return Identity(record.decoded("ID_MODEL_ENC"), None, serial or _serial(record), None, _wwn(record))


def _named(tree: Tree, device: str, names: Sequence[str], wwn: str) -> Identity:
    model, vendor, serial, firmware = (tree.text(f"{device}/{name}") if name else None for name in names)
    return Identity(model or None, vendor or None, serial or None, firmware or None, tree.text(wwn) or None)


def _scsi(tree: Tree, device: str, record: Record) -> Identity:
    return Identity(
        model=_full_model(tree.text(f"{device}/model"), record),
        vendor=tree.text(f"{device}/vendor") or None,
        serial=_serial(record) or vpd_serial(tree.content(f"{device}/vpd_pg80", 4096)),
        firmware=record.get("ID_REVISION") or tree.text(f"{device}/rev") or None,
        wwn=_wwn(record) or _naa(tree.text(f"{device}/wwid")),
    )


def _full_model(short: str | None, record: Record) -> str | None:
    """Return the complete model: udev reads it from an ATA drive (ata_id), SCSI has only sixteen
    characters.
    """
    full = record.decoded("ID_MODEL_ENC") or (record.get("ID_MODEL") or "").replace("_", " ").strip() or None
    if full and (record.get("ID_BUS") == "ata" or not short or full.startswith(short)):
        return full
    return short or None


def _serial(record: Record) -> str | None:
    return next((value for key in _SERIALS if (value := record.get(key))), None)


def _wwn(record: Record) -> str | None:
    return record.get("ID_WWN_WITH_EXTENSION") or record.get("ID_WWN")


def _naa(wwid: str | None) -> str | None:
    """Return the WWN as udev has it, 0x5000c500a1b2c3d4 for "naa.5000c500a1b2c3d4". None for a "t10." name,
    which repeats model and serial.
    """
    return f"0x{wwid.removeprefix('naa.')}" if wwid and wwid.startswith("naa.") else None


def vpd_serial(page: bytes | None) -> str | None:
    """Return the Unit Serial Number (SPC-4, 7.8.18): the length at byte 2, ASCII from byte 4."""
    if page is None or len(page) < 4 or page[1] != 0x80:
        return None
    return page[4 : 4 + int.from_bytes(page[2:4], "big")].decode("ascii", "replace").strip(" \0\t\n") or None


# The limits that the kernel reports for a disk. Every verdict depends on them: nothing is corrected here, the
# audit judges implausible values.

SYSFS_SECTOR = 512  # the unit of start, size and chunk_sectors in sysfs, whatever the disk's own sectors are


def read_limits(tree: Tree, path: str) -> IoLimits:
    queue = f"{path}/queue"
    number = tree.number
    logical = number(f"{queue}/logical_block_size")
    return IoLimits(
        # hw_sector_size: the name before Linux 2.6.31, which still exists
        logical_block_size=number(f"{queue}/hw_sector_size") if logical is None else logical,
        physical_block_size=number(f"{queue}/physical_block_size"),
        minimum_io_size=number(f"{queue}/minimum_io_size"),
        optimal_io_size=number(f"{queue}/optimal_io_size"),
        alignment_offset=number(f"{path}/alignment_offset"),
        discard_granularity=number(f"{queue}/discard_granularity"),
        discard_alignment=number(f"{path}/discard_alignment"),
        chunk_size=_scaled(number(f"{queue}/chunk_sectors"), SYSFS_SECTOR),
        max_transfer=_scaled(number(f"{queue}/max_hw_sectors_kb"), KIB),
        discard_max=number(f"{queue}/discard_max_bytes"),
    )


# A running md array, from sysfs, and its names from udev. An md attribute is in KiB, in 512-byte sectors or
# in bytes (Documentation/admin-guide/md.rst), and the layout of a RAID10 is packed into one number.

OFFSET = 1 << 16  # in the layout of a RAID10: the far copies lie one chunk further (raid10.c, setup_geo)
PARITY_LAYOUTS = ("left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric")  # raid5.h


def read_array(tree: Tree, path: str, record: Record = NOTHING) -> ArrayFacts | None:
    """Return the array, or None if it is inactive. It may have a level then, if the kernel refused to start
    it.
    """
    md = f"{path}/md"
    level = tree.text(f"{md}/level")
    if not level or tree.text(f"{md}/array_state") == "inactive":
        return None
    members = names_below(tree, path)
    folders = {member: f"{md}/dev-{member.replace('/', '!')}" for member in members}
    offsets = ((member, tree.number(f"{folder}/offset")) for member, folder in folders.items())
    done_bytes, total_bytes = _parse_progress(tree.text(f"{md}/sync_completed"))
    uuid = array_uuid(record.get("MD_UUID") or tree.text(f"{md}/uuid"))
    rule = tree.content(rule_path(uuid)) if uuid else None
    return ArrayFacts(
        level=level,
        # a mirror may show one
        chunk=_after_reshape(tree, f"{md}/chunk_size") or None if level in CHUNKED else None,
        members=members,
        member_data_offsets=tuple(
            (member, offset * SYSFS_SECTOR)
            for member, offset in offsets
            if offset is not None and offset >= 0
        ),
        metadata=tree.text(f"{md}/metadata_version") or None,
        degraded=tree.number(f"{md}/degraded"),
        layout=layout_word(level, _after_reshape(tree, f"{md}/layout")),
        devices=_after_reshape(tree, f"{md}/raid_disks"),
        each=_scaled(tree.number(f"{md}/component_size"), KIB),
        uuid=uuid,
        name=record.get("MD_NAME"),
        links=tuple(link for link in record.links if link.startswith("md/")),
        state=tree.text(f"{md}/array_state") or None,
        sync_action=tree.text(f"{md}/sync_action") or None,
        sync_done=done_bytes,
        sync_total=total_bytes,
        sync_rate=_scaled(tree.number(f"{md}/sync_speed"), KIB),
        policy=tree.text(f"{md}/consistency_policy") or None,
        bitmap=_read_bitmap(tree, md),
        bitmap_chunk=tree.number(f"{md}/bitmap/chunksize"),
        stripe_cache=tree.number(f"{md}/stripe_cache_size"),
        worker_threads=tree.number(f"{md}/group_thread_cnt"),
        stored_block_size=tree.number(f"{md}/logical_block_size"),
        spares=tuple(
            name for name, folder in folders.items() if tree.text(f"{folder}/slot") in ("none", "journal")
        ),
        member_states=tuple(
            (name, text) for name, folder in folders.items() if (text := tree.text(f"{folder}/state"))
        ),
        settings=tuple(_read_settings(tree, path, members)),
        rule=None if rule is None else rule.decode("utf-8", "replace"),
    )


def _read_settings(tree: Tree, path: str, members: Sequence[str]) -> Iterator[tuple[str, str]]:
    drives = [drive_folder(tree, member) for member in members]
    places = {name: [path] for name in ARRAY_SETTINGS} | dict.fromkeys(MEMBER_SETTINGS, drives)
    for name, folders in places.items():
        found = {active_word(tree.text(f"{folder}/{name}") or "") for folder in folders} - {""}
        if found:
            yield name, ", ".join(sorted(found))


def drive_folder(tree: Tree, member: str) -> str:
    """Return the folder of the drive that a member is, or is a partition of."""
    place = f"/sys/class/block/{member.replace('/', '!')}"
    real = tree.real(place) or place
    return real if tree.is_directory(f"{real}/queue") else real.rpartition("/")[0]


def active_word(text: str) -> str:
    """Return the chosen one of several words, which is in brackets: "[none] mq-deadline"; or the text."""
    found = re.search(r"\[(.+?)\]", text)
    return found[1] if found else text


def _after_reshape(tree: Tree, path: str) -> int | None:
    """Return a number that a reshape may be changing, as it will be: "4 (3)" until then (md.c,
    raid_disks_show).
    """
    return as_number((tree.text(path) or "").partition(" ")[0])


def inactive_members(tree: Tree, block: Block) -> tuple[str, ...]:
    """Return the members of an md array that is not started, () for anything else. A container never starts:
    its metadata is external.
    """
    md = f"{block.path}/md"
    inactive = tree.text(f"{md}/array_state") == "inactive"
    external = (tree.text(f"{md}/metadata_version") or "").startswith("external")
    return names_below(tree, block.path) if inactive and not external else ()


def layout_word(level: str, number: int | None) -> str | None:
    """Return the layout as in mdadm(8): "n2", "f2", "o2", "left-symmetric"; None if the level has none, or if
    it is unknown.
    """
    if number is None or number < 0:
        return None
    if level == "raid10":
        far = number >> 8 & 0xFF
        return f"n{number & 0xFF}" if far <= 1 else f"o{far}" if number & OFFSET else f"f{far}"
    if level in ("raid4", "raid5", "raid6") and number < len(PARITY_LAYOUTS):
        return PARITY_LAYOUTS[number]
    return None


def _read_bitmap(tree: Tree, md: str) -> str | None:
    """Return the kind of bitmap; the attribute has "none", "file", or its offset from the superblock, such as
    "+8". A lockless bitmap has another folder (Documentation/admin-guide/md.rst, bitmap_type).
    """
    if active_word(tree.text(f"{md}/bitmap_type") or "") == "llbitmap":
        return "lockless"
    place = tree.text(f"{md}/bitmap/location")
    return {"none": "none", "file": "external"}.get(place, "internal") if place else None


def _parse_progress(text: str | None) -> tuple[int | None, int | None]:
    """Parse "1234 / 5678", sectors of each member, into bytes; (None, None) for "none" and "delayed": nothing
    runs.
    """
    found = re.fullmatch(r"([0-9]+) / ([0-9]+)", text or "")
    return (int(found[1][:20]) * SYSFS_SECTOR, int(found[2][:20]) * SYSFS_SECTOR) if found else (None, None)


def _scaled(number: int | None, factor: int) -> int | None:
    return None if number is None or number < 0 else number * factor
