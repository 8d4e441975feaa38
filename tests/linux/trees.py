"""Made-up machines: a short description of the disks becomes a /sys, a /proc and a udev database in a folder.

    parts = [MadePartition(1, 32256, GIB)]
    root = make_tree(tmp_path, [MadeDisk("sda", size=8 * GIB, physical=4096, partitions=parts)])
    look([], sysroot=str(root))

What the kernel would compute (a partition's alignment_offset) is computed by its formula; everything else is as given.
"""

# ruff: noqa: PTH112, PTH103, PTH120, PTH211  (a thousand disks are a hundred thousand files)

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

KERNEL_SECTOR = 512
_MAJORS = {"sd": 8, "hd": 3, "md": 9, "lo": 7, "dm": 253, "nv": 259, "mm": 179, "vd": 254, "da": 94}


@dataclass(frozen=True)
class MadePartition:
    number: int
    start: int  # bytes
    size: int
    udev: Mapping[str, str] = field(default_factory=dict)
    mounted_at: Sequence[str] = ()
    holders: Sequence[str] = ()
    alignment_offset: int | None = None  # None: by the kernel's formula
    discard_alignment: int = 0


@dataclass(frozen=True)
class MadeDisk:
    name: str
    size: int
    partitions: Sequence[MadePartition] = ()
    logical: int = 512
    physical: int = 512
    minimum_io: int | None = None  # None: the physical sector
    optimal_io: int = 0
    alignment_offset: int = 0
    discard_granularity: int = 0
    discard_alignment: int = 0
    chunk_sectors: int = 0
    max_hw_sectors_kb: int = 1280
    rotational: bool = False
    removable: bool = False
    read_only: bool = False
    model: str = ""
    vendor: str = ""
    serial: str = ""
    firmware: str = ""
    usb: bool = False
    pci: Sequence[str] = ("0000:00:1f.2",)  # addresses from the root port down
    udev: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[str] = ()  # below /dev, as created by udev
    mounted_at: Sequence[str] = ()
    slaves: Sequence[str] = ()
    holders: Sequence[str] = ()
    attributes: Mapping[str, str | bytes | None] = field(default_factory=dict)  # of the disk; None: not there
    device: Mapping[str, str | bytes | None] = field(default_factory=dict)  # of its parent device


def make_tree(
    root: Path,
    disks: Sequence[MadeDisk],
    *,
    swaps: Sequence[str] = (),
    pci: Mapping[str, Mapping[str, str]] | None = None,
) -> Path:
    """`pci`: attributes of PCI devices by address, {"0000:01:00.0": {"current_link_width": "4"}}."""
    mounts: list[str] = []
    for index, disk in enumerate(disks):
        _make_disk(root, disk, index, mounts)
    for folder in ("sys/block", "sys/dev/block", "sys/class/block", "proc/self", "run/udev/data"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "proc/self/mountinfo").write_text("".join(mounts))
    lines = "".join(f"{node}\tpartition\t1048572\t0\t-2\n" for node in swaps)
    (root / "proc/swaps").write_text(f"Filename\tType\tSize\tUsed\tPriority\n{lines}")
    for address, attributes in (pci or {}).items():
        for device in root.glob(f"sys/devices/**/{address}"):
            _write_all(str(device), attributes)
    return root


def _make_disk(root: Path, disk: MadeDisk, index: int, mounts: list[str]) -> None:
    path = _place(disk, index)
    above = os.path.dirname(path).removesuffix("/block")
    number = f"{_major(disk.name)}:{index * 256}"
    folder = f"{root}{path}"
    _write_all(folder, _disk_attributes(disk, number))
    _write_all(f"{folder}/queue", _queue(disk))
    if "/virtual/" not in path:
        _write_all(f"{root}{above}", _device_attributes(disk))
    _mkdir(f"{folder}/holders")
    _mkdir(f"{folder}/slaves")
    _link_names(root, f"{folder}/slaves", disk.slaves)
    _link_names(root, f"{folder}/holders", disk.holders)
    _register(root, path, disk.name, number)
    _udev(root, number, disk.udev, disk.links)
    mounts += [_mount(number, f"/dev/{disk.name}", place) for place in disk.mounted_at]
    for partition in disk.partitions:
        _make_partition(root, path, disk, partition, index, mounts)


def _make_partition(
    root: Path, above: str, disk: MadeDisk, partition: MadePartition, index: int, mounts: list[str]
) -> None:
    name = f"{disk.name}{'p' if disk.name[-1].isdigit() else ''}{partition.number}"
    number = f"{_major(disk.name)}:{index * 256 + partition.number}"
    path = f"{above}/{name}"
    offset = partition.alignment_offset
    attributes = {
        "dev": number,
        "partition": str(partition.number),
        "start": str(partition.start // KERNEL_SECTOR),
        "size": str(partition.size // KERNEL_SECTOR),
        "ro": "0",
        "alignment_offset": str(kernel_alignment(disk, partition.start) if offset is None else offset),
        "discard_alignment": str(partition.discard_alignment),
    }
    _write_all(f"{root}{path}", attributes)
    _mkdir(f"{root}{path}/holders")
    _link_names(root, f"{root}{path}/holders", partition.holders)
    _register(root, path, name, number, disk=False)
    _udev(root, number, partition.udev, ())
    mounts += [_mount(number, f"/dev/{name}", place) for place in partition.mounted_at]


def kernel_alignment(disk: MadeDisk, start: int) -> int:
    """Compute block/blk-settings.c, queue_limit_alignment_offset; a disk that is misaligned itself
    counts as 0 there.
    """
    granularity = max(disk.physical, disk.minimum_io or disk.physical)
    offset = max(disk.alignment_offset, 0)
    return (granularity + offset - start % granularity) % granularity


def _place(disk: MadeDisk, index: int) -> str:
    name, bus = disk.name, "/sys/devices/pci0000:00/" + "/".join(disk.pci)
    if name.startswith("nvme"):
        return f"{bus}/nvme/{name.rpartition('n')[0]}/{name}"
    if name.startswith(("sd", "sr", "sata")):
        way = "usb1/1-1/1-1:1.0" if disk.usb else f"ata{index + 1}"
        return f"{bus}/{way}/host{index}/target{index}:0:0/{index}:0:0:0/block/{name}"
    if name.startswith("vd"):
        return f"{bus}/virtio{index}/block/{name}"
    if name.startswith("mmcblk"):
        return f"/sys/devices/platform/soc/mmc_host/mmc{index}/mmc{index}:0001/block/{name}"
    return f"/sys/devices/virtual/block/{name}"


def _disk_attributes(disk: MadeDisk, number: str) -> dict[str, str | bytes | None]:
    return {
        "dev": number,
        "size": str(disk.size // KERNEL_SECTOR),
        "ro": str(int(disk.read_only)),
        "removable": str(int(disk.removable)),
        "hidden": "0",
        "alignment_offset": str(disk.alignment_offset),
        "discard_alignment": str(disk.discard_alignment),
        **disk.attributes,
    }


def _queue(disk: MadeDisk) -> dict[str, str | bytes | None]:
    return {
        "logical_block_size": str(disk.logical),
        "physical_block_size": str(disk.physical),
        "minimum_io_size": str(disk.physical if disk.minimum_io is None else disk.minimum_io),
        "optimal_io_size": str(disk.optimal_io),
        "discard_granularity": str(disk.discard_granularity),
        "chunk_sectors": str(disk.chunk_sectors),
        "max_hw_sectors_kb": str(disk.max_hw_sectors_kb),
        "rotational": str(int(disk.rotational)),
    }


def _device_attributes(disk: MadeDisk) -> dict[str, str | bytes | None]:
    nvme = disk.name.startswith("nvme")
    card = disk.name.startswith("mmcblk")
    told: dict[str, str | bytes | None] = {
        "name" if card else "model": disk.model,
        "vendor": "" if nvme or card else disk.vendor,
        "serial": disk.serial if nvme or card else "",
        "firmware_rev" if nvme else "fwrev" if card else "rev": disk.firmware,
    }
    return {name: text for name, text in told.items() if text} | dict(disk.device)


def _register(root: Path, path: str, name: str, number: str, *, disk: bool = True) -> None:
    below = path.removeprefix("/sys/")
    if disk:
        _symlink(f"{root}/sys/block/{name}", f"../{below}")
    _symlink(f"{root}/sys/class/block/{name}", f"../../{below}")
    _symlink(f"{root}/sys/dev/block/{number}", f"../../{below}")


def _udev(root: Path, number: str, properties: Mapping[str, str], links: Sequence[str]) -> None:
    if properties or links:
        lines = [f"S:{link}\n" for link in links] + [f"E:{key}={value}\n" for key, value in properties.items()]
        _write(f"{root}/run/udev/data/b{number}", "".join(lines))


def _link_names(root: Path, folder: str, names: Sequence[str]) -> None:
    for name in names:
        _symlink(f"{folder}/{name}", f"/sys/class/block/{name}")


def _mount(number: str, node: str, place: str) -> str:
    escaped = place.replace("\\", "\\134").replace(" ", "\\040")
    return f"36 1 {number} / {escaped} rw,relatime shared:1 - ext4 {node} rw\n"


def _major(name: str) -> int:
    return _MAJORS.get(name[:2], 240)


def _write_all(folder: str, attributes: Mapping[str, str | bytes | None]) -> None:
    _mkdir(folder)
    for name, text in attributes.items():
        if text is not None:
            _write(f"{folder}/{name}", text)


def _write(path: str, text: str | bytes) -> None:
    content = text if isinstance(text, bytes) else text.encode() + (b"" if text.endswith("\n") else b"\n")
    _mkdir(os.path.dirname(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, content)
    os.close(descriptor)


def _symlink(path: str, target: str) -> None:
    _mkdir(os.path.dirname(path))
    os.symlink(target, path)


def _mkdir(path: str) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
