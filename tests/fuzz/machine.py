"""A small machine as a captured tree, and edits of it: what a hostile snapshot can contain.

A list of edits, as bytes, is applied to a folder with sysfs, udev's database and the mounts, and then undone. One file
is one attribute, so an edit of a few bytes reaches every parser of sysfs and udev.
"""

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_EDIT = struct.Struct("<HBH")  # which file, what is done to it, how long the content is
MOST_EDITS = 24

_ROOT_PORT = "/sys/devices/pci0000:00/0000:00:1c.0"
_NVME = f"{_ROOT_PORT}/0000:01:00.0"
_NAMESPACE = f"{_NVME}/nvme/nvme0/nvme0n1"
_SATA = "/sys/devices/pci0000:00/0000:00:17.0"
_SCSI = f"{_SATA}/ata1/host0/target0:0:0/0:0:0:0"
_CARD = "/sys/devices/platform/mmc/mmc_host/mmc0/mmc0:0001"
_MD, _DM = "/sys/devices/virtual/block/md0", "/sys/devices/virtual/block/dm-0"


def _queue(path: str, *, physical: int = 4096, optimal: int = 0) -> dict[str, bytes]:
    names = {"logical_block_size": 512, "physical_block_size": physical, "minimum_io_size": physical,
             "optimal_io_size": optimal, "discard_granularity": 4096, "chunk_sectors": 0,
             "max_hw_sectors_kb": 1024, "rotational": 0}  # fmt: skip
    return {f"{path}/queue/{name}": b"%d\n" % value for name, value in names.items()}


def _attributes(path: str, **values: str) -> dict[str, bytes]:
    return {f"{path}/{name}": value.encode() + b"\n" for name, value in values.items()}


def _partition(disk: str, node: str, number: int, start: int, size: int, device: str) -> dict[str, bytes]:
    return _attributes(f"{disk}/{node}", partition=str(number), start=str(start), size=str(size), dev=device,
                       alignment_offset="0", discard_alignment="0")  # fmt: skip


def _pcie(path: str, vendor: str, device: str, speed: str, width: str) -> dict[str, bytes]:
    return _attributes(path, vendor=vendor, device=device, numa_node="-1", current_link_speed=speed,
                       current_link_width=width, max_link_speed=speed, max_link_width=width)  # fmt: skip


def _record(number: str, **values: str) -> dict[str, bytes]:
    lines = ["S:disk/by-id/made-up", *(f"E:{name}={value}" for name, value in values.items())]
    return {f"/run/udev/data/b{number}": "\n".join(lines).encode()}


FILES: dict[str, bytes] = {
    **_pcie(_ROOT_PORT, "0x8086", "0xa110", "8.0 GT/s PCIe", "4"),
    **_pcie(_NVME, "0x144d", "0xa808", "8.0 GT/s PCIe", "4"),
    **_pcie(_SATA, "0x8086", "0xa102", "Unknown", "0"),
    f"{_SATA}/remapped_nvme": b"1\n",
    **_attributes(f"{_NVME}/nvme/nvme0", model="Made Up 970", serial="S0", firmware_rev="1B", sqsize="127", hmb="1"),
    **_attributes(_NAMESPACE, dev="259:0", size="1953525168", removable="0", ro="0", nsid="1", wwid="eui.0025",
                  alignment_offset="0", discard_alignment="0"),
    **_queue(_NAMESPACE, physical=512),
    **_partition(_NAMESPACE, "nvme0n1p1", 1, 2048, 1048576, "259:1"),
    **_attributes(_SCSI, model="WDC WD20EARS-00M", vendor="ATA", rev="0A80", queue_depth="32", wwid="naa.50014ee2"),
    **_attributes(f"{_SCSI}/block/sda", dev="8:0", size="3907029168", removable="0", ro="0", alignment_offset="0",
                  discard_alignment="0"),
    **_queue(f"{_SCSI}/block/sda", optimal=33553920),
    **_partition(f"{_SCSI}/block/sda", "sda1", 1, 63, 80262, "8:1"),
    **_partition(f"{_SCSI}/block/sda", "sda2", 2, 80325, 2, "8:2"),
    **_partition(f"{_SCSI}/block/sda", "sda5", 5, 80388, 160587, "8:5"),
    f"{_SCSI}/vpd_pg80": b"\0\x80\0\x08WD-12345",
    f"{_SCSI}/vpd_pg89": b"\0\x89\x02\x38".ljust(56, b"\0") + b"\xec".ljust(4, b"\0") + b"\x40" + bytes(511),
    **_attributes(_CARD, name="SD32G", manfid="0x3", serial="0x1", fwrev="0x0", cid="0353", type="SD",
                  erase_size="512", preferred_erase_size="4194304"),
    **_attributes(f"{_CARD}/block/mmcblk0", dev="179:0", size="62333952", removable="0", ro="0"),
    **_queue(f"{_CARD}/block/mmcblk0", physical=512),
    **_partition(f"{_CARD}/block/mmcblk0", "mmcblk0p1", 1, 8192, 62325760, "179:1"),
    **_attributes(_MD, dev="9:0", size="4000000", ro="0", alignment_offset="-1"),
    **_attributes(f"{_MD}/md", level="raid0", chunk_size="524288", metadata_version="1.2", degraded="0"),
    **_attributes(f"{_MD}/md/dev-sda1", offset="2048", state="in_sync"),
    **_queue(_MD, optimal=1048576),
    **_attributes(_DM, dev="253:0", size="2000000", ro="0"),
    **_attributes(f"{_DM}/dm", name="vg-lv", uuid="LVM-abc"),
    **_queue(_DM),
    **_record("8:0", ID_MODEL_ENC="WDC\\x20WD20EARS-00MVWB0", ID_BUS="ata", ID_SERIAL_SHORT="WD-12345",
              ID_WWN="0x50014ee2", ID_PART_TABLE_TYPE="dos", ID_PART_TABLE_UUID="1234abcd"),
    **_record("8:1", ID_FS_TYPE="ext4", ID_PART_ENTRY_SCHEME="dos", ID_PART_ENTRY_TYPE="0x83",
              ID_PART_ENTRY_NUMBER="1", ID_PART_ENTRY_FLAGS="0x80", ID_PART_ENTRY_UUID="1234abcd-01"),
    **_record("8:2", ID_PART_ENTRY_SCHEME="dos", ID_PART_ENTRY_TYPE="0x5", ID_PART_ENTRY_SIZE="160650"),
    **_record("259:0", ID_PART_TABLE_TYPE="gpt", ID_PART_TABLE_UUID="0a0b0c0d-0000-0000-0000-000000000000"),
    **_record("259:1", ID_PART_ENTRY_SCHEME="gpt", ID_PART_ENTRY_NAME="EFI\\x20System",
              ID_PART_ENTRY_TYPE="c12a7328-f81f-11d2-ba4b-00a0c93ec93b", ID_PART_ENTRY_FLAGS="0x8000000000000001"),
    "/proc/self/mountinfo": b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                            b"23 1 259:1 / /boot\\040efi rw - vfat /dev/nvme0n1p1 rw\n",
    "/proc/swaps": b"Filename\tType\tSize\tUsed\tPriority\n/dev/sda5 partition 80292 0 -2\n",
}  # fmt: skip

LINKS: dict[str, str] = {
    **{f"/sys/block/{path.rpartition('/')[2]}": ".." + path.removeprefix("/sys")
       for path in (_NAMESPACE, f"{_SCSI}/block/sda", f"{_CARD}/block/mmcblk0", _MD, _DM)},
    f"{_SCSI}/subsystem": "../" * 8 + "bus/scsi",
    f"{_SCSI}/block/sda/device": "../../../0:0:0:0",
    f"{_NVME}/subsystem": "../" * 5 + "bus/pci",
    f"{_SATA}/driver": "../../../bus/pci/drivers/ahci",
    f"{_MD}/slaves/sda1": f"../../../../..{_SCSI.removeprefix('/sys')}/block/sda/sda1",
    f"{_MD}/md/dev-sda1/block": f"../../../../../..{_SCSI.removeprefix('/sys')}/block/sda/sda1",
    f"{_SCSI}/block/sda/sda1/holders/md0": "../" * 12 + _MD.removeprefix("/"),
    f"{_DM}/slaves/md0": "../../md0",
}  # fmt: skip

PLACES = tuple(sorted((*FILES, *LINKS)))


@dataclass(frozen=True, slots=True)
class Edit:
    index: int
    kind: int
    content: bytes

    def encoded(self) -> bytes:
        return _EDIT.pack(self.index & 0xFFFF, self.kind & 0xFF, len(self.content) & 0xFFFF) + self.content


def decode_edits(data: bytes) -> list[Edit]:
    edits: list[Edit] = []
    at = 0
    while at + _EDIT.size <= len(data) and len(edits) < MOST_EDITS:
        index, kind, length = _EDIT.unpack_from(data, at)
        at += _EDIT.size
        edits.append(Edit(index, kind, data[at : at + length]))
        at += length
    return edits


def write_machine(folder: Path) -> None:
    for path, content in FILES.items():
        place = Path(f"{folder}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    for path, target in LINKS.items():
        place = Path(f"{folder}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


@contextmanager
def edited(folder: Path, edits: list[Edit]) -> Iterator[None]:
    """Apply the edits, and undo them at the end."""
    touched = set()
    try:
        for edit in edits:
            path = PLACES[edit.index % len(PLACES)]
            touched.add(path)
            _make(Path(f"{folder}{path}"), edit)
        yield
    finally:
        for path in touched:
            _restore(folder, path)


def _make(place: Path, edit: Edit) -> None:
    """Replace a file by other content (mostly), a link to wherever the content points, nothing, or a folder."""
    kind = edit.kind % 16
    _remove(place)
    if kind == 13:
        name = edit.content.replace(b"\0", b"")[:200] or b"."
        place.symlink_to(os.fsdecode(name))
    elif kind == 14:
        place.mkdir()
    elif kind != 15:
        place.write_bytes(edit.content)


def _restore(folder: Path, path: str) -> None:
    place = Path(f"{folder}{path}")
    _remove(place)
    if path in LINKS:
        place.symlink_to(LINKS[path])
    else:
        place.write_bytes(FILES[path])


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
