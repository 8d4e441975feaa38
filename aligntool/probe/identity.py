"""What a disk calls itself: model, vendor, serial, firmware, world-wide name.

In: sysfs attributes and the udev record. Out: strings as the device gave them, stripped. Alone because each bus keeps
them under other names, and because SCSI cuts an ATA drive's model to sixteen characters.
"""

from dataclasses import dataclass

from aligntool.inventory import DiskKind
from aligntool.probe.devices import Block
from aligntool.probe.tree import Tree
from aligntool.probe.udev import Record

_SCSI = frozenset((DiskKind.ATA, DiskKind.SCSI, DiskKind.USB, DiskKind.UFS))
_SERIALS = (
    "SCSI_IDENT_SERIAL",
    "ID_SCSI_SERIAL",
    "ID_SERIAL_SHORT",
    "ID_SERIAL",
)  # the order lsblk takes them in


@dataclass(frozen=True, slots=True)
class Identity:
    model: str | None = None
    vendor: str | None = None
    serial: str | None = None
    firmware: str | None = None
    wwn: str | None = None


def read_identity(tree: Tree, block: Block, kind: DiskKind, record: Record) -> Identity:
    if kind is DiskKind.NVME:
        return _nvme(tree, block)
    if kind in _SCSI or (kind is DiskKind.VIRTIO and block.sysname.startswith("sd")):
        return _scsi(tree, block, record)
    if kind in (DiskKind.SD, DiskKind.EMMC):
        return _card(tree, block)
    serial = tree.text(f"{block.path}/serial") if kind is DiskKind.VIRTIO else None
    return Identity(record.decoded("ID_MODEL_ENC"), None, serial or _serial(record), None, _wwn(record))


def _nvme(tree: Tree, block: Block) -> Identity:
    """The controller has them, and so has the subsystem above a multipath device."""
    above = block.device
    return Identity(
        model=tree.text(f"{above}/model") or None,
        serial=tree.text(f"{above}/serial") or None,
        firmware=tree.text(f"{above}/firmware_rev") or None,
        wwn=tree.text(f"{block.path}/wwid") or None,
    )


def _scsi(tree: Tree, block: Block, record: Record) -> Identity:
    device = block.device
    return Identity(
        model=_longer(tree.text(f"{device}/model"), record),
        vendor=tree.text(f"{device}/vendor") or None,
        serial=_serial(record) or vpd_serial(tree.content(f"{device}/vpd_pg80", 4096)),
        firmware=record.get("ID_REVISION") or tree.text(f"{device}/rev") or None,
        wwn=_wwn(record) or _naa(tree.text(f"{device}/wwid")),
    )


def _longer(short: str | None, record: Record) -> str | None:
    """udev asks an ATA drive itself (ata_id), and so has the whole model where SCSI shows sixteen characters."""
    whole = record.decoded("ID_MODEL_ENC") or (record.get("ID_MODEL") or "").replace("_", " ").strip() or None
    if whole and (record.get("ID_BUS") == "ata" or not short or whole.startswith(short)):
        return whole
    return short or None


def _card(tree: Tree, block: Block) -> Identity:
    device = block.device
    return Identity(
        model=tree.text(f"{device}/name") or None,
        vendor=tree.text(f"{device}/manfid") or None,
        serial=tree.text(f"{device}/serial") or None,
        firmware=tree.text(f"{device}/fwrev") or None,
        wwn=tree.text(f"{device}/cid") or None,
    )


def _serial(record: Record) -> str | None:
    return next((value for key in _SERIALS if (value := record.get(key))), None)


def _wwn(record: Record) -> str | None:
    return record.get("ID_WWN_WITH_EXTENSION") or record.get("ID_WWN")


def _naa(wwid: str | None) -> str | None:
    """ "naa.5000c500a1b2c3d4" is what udev calls 0x5000c500a1b2c3d4; a "t10." name is model and serial again."""
    if wwid is None or not wwid.startswith("naa."):
        return None
    return f"0x{wwid.removeprefix('naa.')}"


def vpd_serial(page: bytes | None) -> str | None:
    """Unit Serial Number (SPC-4, 7.8.18): the length at byte 2, ASCII from byte 4."""
    if page is None or len(page) < 4 or page[1] != 0x80:
        return None
    text = page[4 : 4 + int.from_bytes(page[2:4], "big")].decode("ascii", "replace")
    return text.strip(" \0\t\n") or None
