"""Make the disk image of `aligntool demo`: an MBR disk with its first partition at sector 63."""

import hashlib
import os
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from aligntool.errors import Refused
from aligntool.formats.mbr import USUAL_GEOMETRY, MbrEntry, with_entries
from aligntool.inventory import Role
from aligntool.linux.outputs import new_file, open_place, private_folder
from aligntool.linux.programs import find_program, run_program
from aligntool.units import GIB, KIB, MIB, Extent, format_size

# The content of the demo disk as frozen values: a family computer of 2005 with Windows and Linux. It is pure,
# so that an audit of the image can be compared with the intended layout.

DEFAULT_SIZE = 1 * GIB
SMALLEST = 512 * MIB
DISK_ID = 0x2005C0DE
SECTOR = 512
TRACK = USUAL_GEOMETRY.sectors * SECTOR
CYLINDER = USUAL_GEOMETRY.heads * TRACK
_SWAP = "20050701-0006-4006-8006-000000000006"


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
    """Return the layout of the demo disk: Windows, Linux and two logical partitions, all on cylinder
    boundaries.

    At the default size three of the four start off a 4 KiB grid, and the swap area starts on it by chance, as
    one partition in eight did. A cylinder before the logical partitions and a few at the end are free, so
    that all partitions can be moved. Raises Refused if `size` is too small.
    """
    if size < SMALLEST:
        raise Refused(
            f"a demo disk of {format_size(size)} is too small; the smallest is {format_size(SMALLEST)}"
        )
    cylinders = size // CYLINDER
    windows_end, linux_end, extended, data_end, end = (
        cylinders * share // 130 for share in (50, 89, 90, 113, 122)
    )
    partitions = (
        _windows(_cylinders(0, windows_end, TRACK)),
        _linux(_cylinders(windows_end, linux_end)),
        DemoPartition(3, _cylinders(extended, end), Role.EXTENDED, "0x05"),
        _data(_cylinders(extended, data_end, TRACK)),
        DemoPartition(
            6, _cylinders(data_end, end, TRACK), Role.LOGICAL, "0x82", False, "swap", "swap", _SWAP
        ),
    )
    return DemoDisk(size, f"0x{DISK_ID:08x}", partitions)


def _cylinders(first: int, end: int, free: int = 0) -> Extent:
    """Return the extent of a range of cylinders, without `free` bytes at its start: the track of the MBR or
    an EBR.
    """
    return Extent(first * CYLINDER + free, (end - first) * CYLINDER - free)


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
        DemoFile("holiday.jpg", _incompressible("holiday.jpg", 2 * MIB + 345)),
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
        DemoFile("home/anna/garden.jpg", _incompressible("garden.jpg", 3 * MIB + 17)),
    )
    uuid = "20050701-0002-4002-8002-000000000002"
    return DemoPartition(2, extent, Role.PRIMARY, "0x83", False, "ext3", "linux", uuid, files)


def _data(extent: Extent) -> DemoPartition:
    files = (
        DemoFile("README.TXT", b"Shared between Windows and Linux.\r\n"),
        DemoFile("MUSIC/SONG.OGG", _incompressible("song.ogg", 1 * MIB + 99)),
    )
    return DemoPartition(5, extent, Role.LOGICAL, "0x0b", False, "vfat", "DATA", "2005-0701", files)


def _incompressible(name: str, length: int) -> bytes:
    """Return bytes as incompressible as a photograph's, always the same for a name."""
    return hashlib.shake_128(name.encode()).digest(length)


# Writing the demo disk: a sparse image with a partition table on cylinder boundaries, real file systems and
# files.
#
# It needs no root, no loop device and no mount: every file system is made in a separate file and copied into
# its place.

# The programs, and the Debian packages that contain them.
PROGRAMS = dict.fromkeys(("mkntfs", "ntfscp", "ntfslabel"), "ntfs-3g")
PROGRAMS |= {"mke2fs": "e2fsprogs", "mkfs.fat": "dosfstools", "mcopy": "mtools", "mkswap": "util-linux"}

_CLOCK = 1120212000  # 2005-07-01, for programs with an option or a variable for the time
# The boot sector's "hidden sectors": the distance of a volume from its table. That is the MBR for the first
# primary and its own EBR for a logical partition, so a track for both.
_HIDDEN_SECTORS = str(USUAL_GEOMETRY.sectors)
_BLOCK = 4 * KIB  # of most file systems; smaller holes would save nothing


def make_demo_image(path: str | os.PathLike[str], *, size: int = DEFAULT_SIZE) -> DemoDisk:
    """Write the demo disk to a new file, and return its layout. Never replace an existing file.

    Raises Refused if the file cannot be created; nothing is left behind.
    """
    disk = demo_disk(size=size)
    _refuse_without_programs()
    image = Path(path)
    try:
        with (
            open_place(image) as place,
            private_folder(image.absolute().parent, "aligntool-demo-") as folder,
            new_file(place, 0o666) as descriptor,
        ):
            os.truncate(descriptor, size)
            _fill(Path(f"/proc/self/fd/{descriptor}"), disk, folder)
    except FileExistsError:
        raise Refused(f"{image} already exists; nothing was written", hint="use another name") from None
    except OSError as error:
        raise Refused(f"{image} cannot be created: {error.strerror}") from error
    return disk


def _refuse_without_programs() -> None:
    missing = {name: package for name, package in PROGRAMS.items() if not find_program(name)}
    if missing:
        named = ", ".join(f"{name} (Debian package {package})" for name, package in missing.items())
        text = f"the demo disk needs programs that are not installed: {named}; nothing was written"
        raise Refused(text, hint=f"install the packages {' '.join(sorted(set(missing.values())))}")


def _fill(image: Path, disk: DemoDisk, place: Path) -> None:
    """Write the disk to the image. `place`: a folder for its parts."""
    _write_table(image, disk)
    makers = {"ntfs": _make_ntfs, "ext3": _make_ext3, "vfat": _make_fat32, "swap": _make_swap}
    for partition in disk.partitions:
        if partition.kind is None:
            continue
        folder = place / str(partition.number)
        volume = place / f"{partition.number}.img"
        _write_files(folder, partition.files)
        with volume.open("xb") as file:
            volume.chmod(0o600)
            file.truncate(partition.extent.length)
        makers[partition.kind](partition, volume, folder)
        _copy_into(image, partition.extent, volume)


def _write_table(image: Path, disk: DemoDisk) -> None:
    """Write the MBR and EBRs for 255 heads and 63 sectors per track, each EBR one track before its
    partition.
    """
    signature = DISK_ID.to_bytes(4, "little").rjust(444, b"\0").ljust(SECTOR, b"\0")
    container = next(part.extent.start for part in disk.partitions if part.role is Role.EXTENDED)
    logicals = [part for part in disk.partitions if part.role is Role.LOGICAL]
    entries = {part.number: _entry(part) for part in disk.partitions if part.role is not Role.LOGICAL}
    sectors = {0: with_entries(signature, entries)}
    for logical, following in zip_longest(logicals, logicals[1:]):
        at = logical.extent.start - TRACK
        entries = {1: _entry(logical, at)}
        if following is not None:
            place = Extent(following.extent.start - TRACK, following.extent.length + TRACK)
            entries[2] = _entry(DemoPartition(0, place, Role.EXTENDED, "0x05"), container)
        sectors[at] = with_entries(bytes(SECTOR), entries)
    with image.open("r+b") as file:
        for at, sector in sectors.items():
            file.seek(at)
            file.write(sector)


def _entry(part: DemoPartition, counted_from: int = 0) -> MbrEntry:
    place = part.extent
    first, last = (USUAL_GEOMETRY.nearest(byte // SECTOR) for byte in (place.start, place.end - 1))
    start = (place.start - counted_from) // SECTOR
    return MbrEntry(
        0x80 if part.active else 0, first, int(part.type_code, 16), last, start, place.length // SECTOR
    )


def _write_files(folder: Path, files: tuple[DemoFile, ...]) -> None:
    folder.mkdir()
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (_CLOCK, _CLOCK))


def _make_ntfs(partition: DemoPartition, volume: Path, folder: Path) -> None:
    geometry = ("-p", _HIDDEN_SECTORS, "-H", str(USUAL_GEOMETRY.heads), "-S", str(USUAL_GEOMETRY.sectors))
    label = partition.label or ""
    _run("mkntfs", "-q", "-Q", "-F", "-s", str(SECTOR), "-c", "4096", *geometry, "-L", label, str(volume))
    _run("ntfslabel", f"--new-serial={partition.uuid}", str(volume))
    for file in partition.files:
        _run("ntfscp", "-q", str(volume), str(folder / file.path), file.path)


def _make_ext3(partition: DemoPartition, volume: Path, folder: Path) -> None:
    named = ("-L", partition.label or "", "-U", partition.uuid or "")
    owner = f"root_owner=0:0,hash_seed={partition.uuid}"
    _run(
        "mke2fs", "-q", "-F", "-t", "ext3", "-b", "4096", *named, "-E", owner, "-d", str(folder), str(volume)
    )


def _make_fat32(partition: DemoPartition, volume: Path, folder: Path) -> None:
    # A FAT32 with fewer than 65,525 clusters would be mistaken for a FAT16 (Microsoft's FAT specification,
    # 3.5).
    sectors = partition.extent.length // SECTOR
    cluster = next((size for size in (8, 4, 2) if sectors // size > 70_000), 1)
    geometry = ("-g", f"{USUAL_GEOMETRY.heads}/{USUAL_GEOMETRY.sectors}", "-h", _HIDDEN_SECTORS)
    named = ("-n", partition.label or "", "-i", (partition.uuid or "").replace("-", ""))
    _run("mkfs.fat", "-F", "32", "-s", str(cluster), *geometry, *named, str(volume))
    _run("mcopy", "-s", "-m", "-i", str(volume), *(str(path) for path in sorted(folder.iterdir())), "::")


def _make_swap(partition: DemoPartition, volume: Path, _folder: Path) -> None:
    _run("mkswap", "-L", partition.label or "", "-U", partition.uuid or "", str(volume))


def _copy_into(image: Path, extent: Extent, volume: Path) -> None:
    """Copy the blocks of a volume that are not blank, so that the image stays sparse."""
    with image.open("r+b") as target, volume.open("rb", buffering=0) as source:
        at = 0
        while at < extent.length:
            try:
                at = os.lseek(source.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole up to the end
                return
            block = os.pread(source.fileno(), _BLOCK, at)
            if block != bytes(len(block)):
                target.seek(extent.start + at)
                target.write(block)
            at += _BLOCK


def _run(name: str, *arguments: str) -> None:
    clock = {"SOURCE_DATE_EPOCH": str(_CLOCK), "E2FSPROGS_FAKE_TIME": str(_CLOCK), "MTOOLS_SKIP_CHECK": "1"}
    ended = run_program(name, *arguments, environment=clock | {"TZ": "UTC"})
    if ended.code:
        raise Refused(f"{name} failed to make its part of the demo disk: {ended.output_tail}")
