"""What is on the demo disk: a family computer of 2005, Windows beside Linux, as frozen values.

A size comes in, the partitions and files go out; pure, so that whoever audits the image can compare with what was
meant.
"""

import hashlib
from dataclasses import dataclass

from aligntool.apply.tables import CYLINDER, TRACK
from aligntool.errors import Refused
from aligntool.inventory import Role
from aligntool.units import GIB, MIB, Extent, format_size

DEFAULT_SIZE = 1 * GIB
SMALLEST = 512 * MIB
DISK_ID = 0x2005C0DE


@dataclass(frozen=True, slots=True)
class DemoFile:
    path: str  # from the root of its file system
    content: bytes


@dataclass(frozen=True, slots=True)
class DemoPartition:
    number: int
    extent: Extent
    role: Role
    type_code: str
    active: bool = False
    kind: str | None = None  # blkid's TYPE
    label: str | None = None
    uuid: str | None = None  # as blkid prints it
    files: tuple[DemoFile, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoDisk:
    size: int
    disk_id: str
    partitions: tuple[DemoPartition, ...]


def demo_disk(*, size: int = DEFAULT_SIZE) -> DemoDisk:
    """Windows first, Linux after it, two logicals, all of it on cylinder boundaries.

    At the default size three of the four begin off a 4 KiB grid, and the swap space begins on it by luck, as one
    partition in eight did. A cylinder before the logicals and a few at the end are free, so that all can be moved.
    """
    if size < SMALLEST:
        raise Refused(
            f"a demo disk of {format_size(size)} is too small; the smallest is {format_size(SMALLEST)}"
        )
    cylinders = size // CYLINDER
    windows_end, linux_end, extended, data_end, end = (
        cylinders * share // 130 for share in (50, 89, 90, 113, 122)
    )
    return DemoDisk(
        size=size,
        disk_id=f"0x{DISK_ID:08x}",
        partitions=(
            _windows(Extent(TRACK, windows_end * CYLINDER - TRACK)),
            _linux(_cylinders(windows_end, linux_end)),
            DemoPartition(3, _cylinders(extended, end), Role.EXTENDED, "0x05"),
            _data(_after_track(_cylinders(extended, data_end))),
            _swap(_after_track(_cylinders(data_end, end))),
        ),
    )


def _cylinders(first: int, end: int) -> Extent:
    return Extent(first * CYLINDER, (end - first) * CYLINDER)


def _after_track(extent: Extent) -> Extent:
    """A logical partition leaves the first track of its cylinders to its EBR."""
    return Extent(extent.start + TRACK, extent.length - TRACK)


def _windows(extent: Extent) -> DemoPartition:
    boot_ini = (
        "[boot loader]\r\ntimeout=30\r\ndefault=multi(0)disk(0)rdisk(0)partition(1)\\WINDOWS\r\n"
        '[operating systems]\r\nmulti(0)disk(0)rdisk(0)partition(1)\\WINDOWS="Windows XP" /fastdetect\r\n'
    )
    files = (
        DemoFile("boot.ini", boot_ini.encode()),
        DemoFile(
            "letter.txt", b"Dear Anna,\r\nthe new computer has forty gigabytes. We will never fill it.\r\n"
        ),
        DemoFile("holiday.jpg", _photograph("holiday.jpg", 2 * MIB + 345)),
    )
    return DemoPartition(
        1, extent, Role.PRIMARY, "0x07", True, "ntfs", "Windows XP", "2005C0DE57494E58", files
    )


def _linux(extent: Extent) -> DemoPartition:
    fstab = "/dev/hda2 / ext3 defaults,errors=remount-ro 0 1\n/dev/hda6 none swap sw 0 0\n"
    menu = "title Debian GNU/Linux\nroot (hd0,1)\nkernel /boot/vmlinuz root=/dev/hda2 ro\n"
    files = (
        DemoFile("etc/fstab", fstab.encode()),
        DemoFile("boot/grub/menu.lst", menu.encode()),
        DemoFile("home/anna/thesis.tex", b"\\documentclass{article}\n" * 40),
        DemoFile("home/anna/garden.jpg", _photograph("garden.jpg", 3 * MIB + 17)),
    )
    uuid = "20050701-0002-4002-8002-000000000002"
    return DemoPartition(2, extent, Role.PRIMARY, "0x83", False, "ext3", "linux", uuid, files)


def _data(extent: Extent) -> DemoPartition:
    files = (
        DemoFile("README.TXT", b"Shared between Windows and Linux.\r\n"),
        DemoFile("MUSIC/SONG.OGG", _photograph("song.ogg", 1 * MIB + 99)),
    )
    return DemoPartition(5, extent, Role.LOGICAL, "0x0b", False, "vfat", "DATA", "2005-0701", files)


def _swap(extent: Extent) -> DemoPartition:
    uuid = "20050701-0006-4006-8006-000000000006"
    return DemoPartition(6, extent, Role.LOGICAL, "0x82", False, "swap", "swap", uuid)


def _photograph(name: str, length: int) -> bytes:
    """Bytes as incompressible as a photograph's, the same ones every time."""
    return hashlib.shake_128(name.encode()).digest(length)
