"""Read what the kernel reports of a drive: I/O limits, identity, md attributes, SCSI transport."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aligntool.inventory import ArrayFacts, DiskKind, IoLimits
from aligntool.linux.devices import Block, names_below
from aligntool.linux.sysfs import NOTHING, Record, Tree
from aligntool.system import array_uuid
from aligntool.units import KIB

# Evidence that a SCSI disk is one drive, and not a LUN that a RAID controller, an array or a hypervisor
# makes.

_SAS = re.compile(r"/end_device-[^/]+/target[^/]+/")  # scsi_transport_sas.c: below a phy or an expander
_HOST = re.compile(r"(.*/host\d+)/(target\d+:\d+:\d+)/")
_B1_LENGTH = 6


def read_drive_port(tree: Tree, block: Block, kind: DiskKind) -> str | None:
    """Return which bus addresses the drive itself; None without evidence of a single drive.

    RAID controllers put what they make below their host at once, without an end device of the SAS transport
    (megaraid_sas, hpsa, smartpqi, aacraid, arcmsr, 3w-*), and so do FC, iSCSI and hypervisors.
    """
    if kind is DiskKind.ATA:
        return "ata"
    if kind is not DiskKind.SCSI:
        return None
    if _SAS.search(f"{block.path}/"):
        return "sas"
    place = _HOST.match(f"{block.path}/")
    spi = place and tree.exists(f"{place[1]}/{place[2]}/spi_transport")  # scsi_transport_spi.c
    return "spi" if spi else None


def read_rotation(tree: Tree, block: Block, record: Record) -> int | None:
    """Return the reported revolutions per minute, 0 where the drive reports none; None: not readable here.

    Block Device Characteristics VPD page (SBC-4, 6.6.2), bytes 4 and 5: 0 not reported, 1 not rotating.
    """
    page = tree.content(f"{block.device}/vpd_pgb1", 4096)
    if page is not None and len(page) >= _B1_LENGTH and page[1] == 0xB1:
        rate = int.from_bytes(page[4:6], "big")
        return rate if 0x0401 <= rate <= 0xFFFE else 0
    return record.number("ID_ATA_ROTATION_RATE_RPM")


# What a disk calls itself: model, vendor, serial, firmware, world-wide name. Each bus keeps them under other names,
# and SCSI cuts an ATA drive's model to sixteen characters.

_SCSI = frozenset((DiskKind.ATA, DiskKind.SCSI, DiskKind.USB, DiskKind.UFS))
_SERIALS = ("SCSI_IDENT_SERIAL", "ID_SCSI_SERIAL", "ID_SERIAL_SHORT", "ID_SERIAL")  # the order lsblk takes them in


@dataclass(frozen=True, slots=True)
class Identity:
    """The names of a drive."""

    model: str | None = None
    vendor: str | None = None
    serial: str | None = None
    firmware: str | None = None
    wwn: str | None = None


# model, vendor, serial, firmware below the device, and the name below the device or the block device
_NVME = ("model", "", "serial", "firmware_rev")  # of the controller, or of the subsystem above a multipath device
_CARD = ("name", "manfid", "serial", "fwrev")


def read_identity(tree: Tree, block: Block, kind: DiskKind, record: Record) -> Identity:
    device = block.device
    if kind is DiskKind.NVME:
        return _named(tree, device, _NVME, f"{block.path}/wwid")
    if kind in _SCSI or (kind is DiskKind.VIRTIO and block.sysname.startswith("sd")):
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
        model=_longer(tree.text(f"{device}/model"), record),
        vendor=tree.text(f"{device}/vendor") or None,
        serial=_serial(record) or vpd_serial(tree.content(f"{device}/vpd_pg80", 4096)),
        firmware=record.get("ID_REVISION") or tree.text(f"{device}/rev") or None,
        wwn=_wwn(record) or _naa(tree.text(f"{device}/wwid")),
    )


def _longer(short: str | None, record: Record) -> str | None:
    """Return the longer model: udev reads it from an ATA drive (ata_id) completely, SCSI shows sixteen characters."""
    whole = record.decoded("ID_MODEL_ENC") or (record.get("ID_MODEL") or "").replace("_", " ").strip() or None
    if whole and (record.get("ID_BUS") == "ata" or not short or whole.startswith(short)):
        return whole
    return short or None


def _serial(record: Record) -> str | None:
    return next((value for key in _SERIALS if (value := record.get(key))), None)


def _wwn(record: Record) -> str | None:
    return record.get("ID_WWN_WITH_EXTENSION") or record.get("ID_WWN")


def _naa(wwid: str | None) -> str | None:
    """Return the WWN: "naa.5000c500a1b2c3d4" is udev's 0x5000c500a1b2c3d4; a "t10." name repeats model and serial."""
    return f"0x{wwid.removeprefix('naa.')}" if wwid and wwid.startswith("naa.") else None


def vpd_serial(page: bytes | None) -> str | None:
    """Return the Unit Serial Number (SPC-4, 7.8.18): the length at byte 2, ASCII from byte 4."""
    if page is None or len(page) < 4 or page[1] != 0x80:
        return None
    text = page[4 : 4 + int.from_bytes(page[2:4], "big")].decode("ascii", "replace")
    return text.strip(" \0\t\n") or None


# The grid that the kernel reports of a disk, and what the user puts in its place. These few numbers decide every
# verdict: nothing is corrected here, a bogus value is kept and judged elsewhere.

SYSFS_SECTOR = 512  # sysfs counts start, size and chunk_sectors in these, whatever the disk's own sectors are


@dataclass(frozen=True, slots=True)
class Given:
    """The values given on the command line for a disk, in bytes."""

    sector_size: int | None = None
    physical_sector_size: int | None = None


def read_limits(tree: Tree, path: str) -> IoLimits:
    queue = f"{path}/queue"
    number = tree.number
    logical = number(f"{queue}/logical_block_size")
    return IoLimits(
        # hw_sector_size: its name before Linux 2.6.31, kept ever since
        logical_block_size=number(f"{queue}/hw_sector_size") if logical is None else logical,
        physical_block_size=number(f"{queue}/physical_block_size"),
        minimum_io_size=number(f"{queue}/minimum_io_size"),
        optimal_io_size=number(f"{queue}/optimal_io_size"),
        alignment_offset=number(f"{path}/alignment_offset"),
        discard_granularity=number(f"{queue}/discard_granularity"),
        discard_alignment=number(f"{path}/discard_alignment"),
        chunk_size=_times(number(f"{queue}/chunk_sectors"), SYSFS_SECTOR),
        max_transfer=_times(number(f"{queue}/max_hw_sectors_kb"), KIB),
        discard_max=number(f"{queue}/discard_max_bytes"),
    )


def override(limits: IoLimits, given: Given) -> tuple[IoLimits, tuple[str, ...]]:
    """Return the limits with the user's values, and the names of the fields that this set."""
    values = {"logical_block_size": given.sector_size, "physical_block_size": given.physical_sector_size}
    values = {name: value for name, value in values.items() if value is not None}
    return replace(limits, **values), tuple(values)


# A running md array: what the kernel says of it in sysfs, and udev of its name. md counts in KiB, in 512-byte
# sectors and in bytes, one attribute so and the next otherwise (Documentation/admin-guide/md.rst), and packs the
# layout of a RAID10 into one number.

OFFSET = 1 << 16  # in the layout of a RAID10: the far copies lie one chunk further (raid10.c, setup_geo)
PARITY_LAYOUTS = ("left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric")  # raid5.h


def read_array(tree: Tree, path: str, record: Record = NOTHING) -> ArrayFacts | None:
    """Return the array; None for an inactive one, which has no level."""
    md = f"{path}/md"
    level = tree.text(f"{md}/level")
    if not level:
        return None
    chunk = tree.number(f"{md}/chunk_size")
    members = names_below(tree, path)
    done, total = _progress(tree.text(f"{md}/sync_completed"))
    return ArrayFacts(
        level=level,
        chunk=chunk or None,  # 0: this level has no chunks
        members=members,
        member_data_offsets=tuple(_data_offsets(tree, md, members)),
        metadata=tree.text(f"{md}/metadata_version") or None,
        degraded=tree.number(f"{md}/degraded"),
        layout=layout_word(level, tree.number(f"{md}/layout")),
        devices=tree.number(f"{md}/raid_disks"),
        each=_times(tree.number(f"{md}/component_size"), KIB),
        uuid=array_uuid(record.get("MD_UUID") or tree.text(f"{md}/uuid")),
        name=record.get("MD_NAME"),
        links=tuple(link for link in record.links if link.startswith("md/")),
        state=tree.text(f"{md}/array_state") or None,
        sync_action=tree.text(f"{md}/sync_action") or None,
        sync_done=done,
        sync_total=total,
        sync_rate=_times(tree.number(f"{md}/sync_speed"), KIB),
        policy=tree.text(f"{md}/consistency_policy") or None,
        bitmap=_bitmap(tree, md),
        bitmap_chunk=tree.number(f"{md}/bitmap/chunksize"),
        stripe_cache=tree.number(f"{md}/stripe_cache_size"),
        worker_threads=tree.number(f"{md}/group_thread_cnt"),
    )


def layout_word(level: str, number: int | None) -> str | None:
    """Return the layout as in mdadm(8): "n2", "f2", "o2", "left-symmetric". None: none for this level, or an unknown
    one.
    """
    if number is None or number < 0:
        return None
    if level == "raid10":
        near, far = number & 0xFF, number >> 8 & 0xFF
        if far <= 1:
            return f"n{near}"
        return f"o{far}" if number & OFFSET else f"f{far}"
    if level in ("raid4", "raid5", "raid6") and number < len(PARITY_LAYOUTS):
        return PARITY_LAYOUTS[number]
    return None


def _bitmap(tree: Tree, md: str) -> str | None:
    """Return the bitmap; the attribute has "none", "file", or its place from the superblock: "+8"."""
    place = tree.text(f"{md}/bitmap/location")
    return {"none": "none", "file": "external"}.get(place, "internal") if place else None


def _progress(text: str | None) -> tuple[int | None, int | None]:
    """Return the progress: "1234 / 5678" in sectors of each member; "none" and "delayed" where nothing runs."""
    found = re.fullmatch(r"([0-9]+) / ([0-9]+)", text or "")
    return (int(found[1][:20]) * SYSFS_SECTOR, int(found[2][:20]) * SYSFS_SECTOR) if found else (None, None)


def _data_offsets(tree: Tree, md: str, members: tuple[str, ...]) -> list[tuple[str, int]]:
    found = ((member, tree.number(f"{md}/dev-{member.replace('/', '!')}/offset")) for member in members)
    return [(member, offset * SYSFS_SECTOR) for member, offset in found if offset is not None and offset >= 0]


def _times(number: int | None, factor: int) -> int | None:
    return None if number is None or number < 0 else number * factor
