"""What class of device a disk is.

In: a `Tree`, a `Block` and its udev record. Out: a DiskKind. Alone because the kernel does not say it in one place: it
follows from the name, from what the device hangs on, and from the driver of its host.
"""

import re

from aligntool.inventory import DiskKind
from aligntool.probe.devices import Block
from aligntool.probe.tree import Tree
from aligntool.probe.udev import Record

# By kernel name (Documentation/admin-guide/devices.txt); sd and mmcblk need a closer look.
_NAMES = {
    "nvme": DiskKind.NVME,
    "vd": DiskKind.VIRTIO,
    "xvd": DiskKind.VIRTIO,
    "loop": DiskKind.LOOP,
    "md": DiskKind.MD,
    "md_d": DiskKind.MD,
    "dm-": DiskKind.DM,
    "bcache": DiskKind.BCACHE,
    "dasd": DiskKind.DASD,
    "nbd": DiskKind.NETWORK,
    "rbd": DiskKind.NETWORK,
    "drbd": DiskKind.NETWORK,
    "ram": DiskKind.MEMORY,
    "pmem": DiskKind.MEMORY,
    "nullb": DiskKind.MEMORY,
    "hd": DiskKind.ATA,
}
_SCSI = ("sd", "sata", "sas")  # the latter two on Synology's kernels: sata1, with partitions sata1p1
_LETTERED = re.compile(r"(xvd|vd|sd|hd|dasd)[a-z]+")  # disks counted in letters
_NUMBERED = re.compile(r"([a-z_-]+?)\d.*")
_HOST = re.compile(r"(.*/host\d+)(?:/|$)")
_USB = re.compile(r".*/usb\d+/.*")
_HOST_DRIVERS = {  # scsi_host's proc_name, as each driver's scsi_host_template spells it
    "ufshcd": DiskKind.UFS,
    "usb-storage": DiskKind.USB,
    "uas": DiskKind.USB,
    "storvsc_host": DiskKind.VIRTIO,
    "vmw_pvscsi": DiskKind.VIRTIO,
    "virtio_scsi": DiskKind.VIRTIO,
    "xen-scsifront": DiskKind.VIRTIO,
}


def find_kind(tree: Tree, block: Block, record: Record) -> DiskKind:
    name = block.sysname
    lettered = _LETTERED.fullmatch(name)
    numbered = _NUMBERED.fullmatch(name)
    stem = lettered.group(1) if lettered else numbered.group(1) if numbered else name
    if stem in _SCSI:
        return _scsi_kind(tree, block, record)
    if stem == "mmcblk":
        return DiskKind.SD if (tree.text(f"{block.device}/type") or "").startswith("SD") else DiskKind.EMMC
    return _NAMES.get(stem, DiskKind.OTHER)


def _scsi_kind(tree: Tree, block: Block, record: Record) -> DiskKind:
    path = block.path
    if _USB.fullmatch(path):
        return DiskKind.USB
    vendor = tree.text(f"{block.device}/vendor") or ""
    if vendor == "ATA":
        return DiskKind.ATA
    if "/virtio" in path or vendor.startswith(("VMware", "Msft")):
        return DiskKind.VIRTIO
    if "ufshc" in path:
        return DiskKind.UFS
    host = _HOST.match(path)
    if host is not None:
        place = host.group(1)
        driver = tree.text(f"{place}/scsi_host/{place.rpartition('/')[2]}/proc_name")
        kind = _HOST_DRIVERS.get((driver or "").lower().replace(" ", "_"))
        if kind is not None:
            return kind
    return {"ata": DiskKind.ATA, "usb": DiskKind.USB}.get(record.get("ID_BUS") or "", DiskKind.SCSI)
