"""The drives of an emulated PC and the PCIe ports that they are attached to, as values.

They become QEMU options, and an image file for each drive that has none yet. Both kinds of emulated PC use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Port:
    """A PCIe root port. Its capability can be set; QEMU's drives themselves have one lane of 2.5 GT/s."""

    name: str
    speed: str = "16"  # GT/s, as QEMU writes it: 2_5, 5, 8, 16
    width: int = 32  # lanes: 1, 2, 4, 8, 12, 16, 32


@dataclass(frozen=True, slots=True)
class Switch:
    """A PCIe switch: its upstream port is attached to a root port, and each drive gets a downstream port of its own."""

    name: str
    port: Port


@dataclass(frozen=True, slots=True)
class Nvme:
    """An NVMe drive. Sizes are bytes; its image is SERIAL.img. Without a place it is on the root bus and has no link.

    QEMU 7.2 reports a physical block that is larger than the logical one only as a larger unit of deallocation, so the
    kernel uses the logical one: the drive does not report its physical block.
    """

    serial: str
    size: int = 256 * MIB
    block: int = 512  # logical
    physical: int = 0  # 0: like the logical one
    behind: Port | Switch | None = None
    options: str = ""  # further properties of QEMU's nvme device, with commas


@dataclass(frozen=True, slots=True)
class Scsi:
    """A SCSI disk on a virtio-scsi adapter. Sizes are bytes; its image is SERIAL.img."""

    serial: str
    size: int = 256 * MIB
    block: int = 512
    physical: int = 0
    options: str = ""


Drive = Nvme | Scsi


def words(drives: Sequence[Drive], folder: Path, *, cache: str = "writeback") -> tuple[str, ...]:
    """Return QEMU's options for these drives with their images in this folder; `cache` is that of QEMU's -drive."""
    said: list[str] = []
    for number, (name, bus, device) in enumerate(_ports(drives), 1):
        numbers = "" if device.startswith("x3130") else f",chassis={number},slot={number}"
        said += ["-device", f"{device},id={name},bus={bus}{numbers}"]
    if any(isinstance(drive, Scsi) for drive in drives):
        said += ["-device", "virtio-scsi-pci,id=scsi"]
    for drive in drives:
        said += ["-drive", f"file={image(drive, folder)},if=none,id=d-{drive.serial},format=raw,cache={cache}"]
        said += ["-device", _device(drive)]
    return tuple(said)


def image(drive: Drive, folder: Path) -> Path:
    """Return the file with the content of a drive: empty and sparse at first."""
    path = folder / f"{drive.serial}.img"
    if not path.exists():
        with path.open("wb") as file:
            file.truncate(drive.size)
    return path


def _device(drive: Drive) -> str:
    said = f"drive=d-{drive.serial},serial={drive.serial},logical_block_size={drive.block}"
    said += f",physical_block_size={drive.physical or drive.block}"
    said += f",{drive.options}" if drive.options else ""
    match drive:
        case Scsi():
            return f"scsi-hd,bus=scsi.0,{said}"
        case Nvme(behind=None):
            return f"nvme,bus=pcie.0,{said}"
        case Nvme(behind=Port(name=name)):
            return f"nvme,bus={name},{said}"
        case Nvme():
            return f"nvme,bus=below-{drive.serial},{said}"


def _ports(drives: Sequence[Drive]) -> list[tuple[str, str, str]]:
    """Return (name, the bus it is attached to, QEMU's device) of every port, those nearer to the processor first."""
    ports: dict[str, tuple[str, str, str]] = {}
    for drive in drives:
        place = drive.behind if isinstance(drive, Nvme) else None
        if isinstance(place, Switch):
            ports[place.port.name] = _root_port(place.port)
            ports[place.name] = (place.name, place.port.name, "x3130-upstream")
            below = f"below-{drive.serial}"
            ports[below] = (below, place.name, "xio3130-downstream")
        elif place:
            ports[place.name] = _root_port(place)
    return list(ports.values())


def _root_port(port: Port) -> tuple[str, str, str]:
    return port.name, "pcie.0", f"pcie-root-port,x-speed={port.speed},x-width={port.width}"
