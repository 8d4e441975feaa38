"""MBR disks for tests: made by sfdisk, or by hand where a chain or a nested table has to be set up."""

import struct
from collections.abc import Callable
from pathlib import Path

from tests.conftest import run
from tests.formats.images import MIB, disk, mbr

Sparse = Callable[..., Path]
SIZE = 64 * MIB
SCRIPTS = {
    "one partition": "start=2048, size=4096, type=83, bootable\n",
    "from sector 63": "start=63, size=20000, type=7\nstart=20063, size=20000, type=c\n",
    "four primaries, out of order": (
        "start=60000, size=2048, type=82\nstart=2048, size=2048, type=83\n"
        "start=10000, size=2048, type=8e\nstart=8000, size=100, type=fd\n"
    ),
    "holes in the numbers": "2: start=2048, size=2048, type=83\n4: start=8192, size=1024, type=ef\n",
    "logicals": (
        "start=2048, size=2048, type=83\nstart=6144, size=100000, type=5\n"
        + "".join(f"{5 + index}: start={8192 + 4096 * index}, size=2048, type=83\n" for index in range(20))
    ),
    "logicals in an LBA extended partition": (
        "1: start=2048, size=120000, type=f\n5: start=4096, size=2048, type=b\n6: start=8192, size=2048, type=82\n"
    ),
    "extended but empty": "start=2048, size=100000, type=5\n",
    "no partitions": "",
}


def make_mbr(sparse: Sparse, script: str, *, size: int = SIZE) -> Path:
    path = sparse(size)
    run("sfdisk", "-q", path, stdin=f"label: dos\nlabel-id: 0x1234abcd\n{script}")
    return path


def chain(size: int, extended: tuple[int, int], *ebrs: tuple[int, bytes]) -> bytes:
    start, sectors = extended
    return disk(size, (0, mbr((0x05, start, sectors, 0))), *((at * 512, sector) for at, sector in ebrs))


def bsd_label(*slices: tuple[int, int, int]) -> bytes:
    """Return a disklabel of (sectors, start, type), with its checksum (FreeBSD sys/disk/bsd.h)."""
    label = bytearray(148 + 16 * 16)
    struct.pack_into("<I", label, 0, 0x82564557)
    struct.pack_into("<IHH", label, 132, 0x82564557, 0, len(slices))
    for index, (sectors, start, kind) in enumerate(slices):
        struct.pack_into("<IIIB", label, 148 + 16 * index, sectors, start, 0, kind)
    checksum = 0
    for word in struct.unpack(f"<{len(label) // 2}H", label):
        checksum ^= word
    struct.pack_into("<H", label, 136, checksum)
    return bytes(label)


def solaris_vtoc(*slices: tuple[int, int, int]) -> bytes:
    vtoc = bytearray(512)
    struct.pack_into("<II", vtoc, 12, 0x600DDEEE, 1)
    struct.pack_into("<HH", vtoc, 28, 512, 16)
    for index, (tag, start, sectors) in enumerate(slices):
        struct.pack_into("<HHII", vtoc, 72 + 12 * index, tag, 0, start, sectors)
    return bytes(vtoc)
