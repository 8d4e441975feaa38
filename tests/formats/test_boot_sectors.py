"""File systems and other contents on a whole disk are not partition tables, whatever their first sector contains."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import TableLabel
from tests.conftest import run
from tests.formats.images import MIB, disk, flip, mbr, patch, places, read_bytes, read_image, table_of

Sparse = Callable[..., Path]
MAKERS = {
    "FAT12": ("mkfs.fat", "-F", "12"),
    "FAT16": ("mkfs.fat", "-F", "16"),
    "FAT32": ("mkfs.fat", "-F", "32"),
    "FAT32 with 4096-byte sectors": ("mkfs.fat", "-F", "32", "-S", "4096", "-s", "1"),
    "exFAT": ("mkfs.exfat",),
    "NTFS": ("mkntfs", "-qFf"),
    "ext4": ("mke2fs", "-qFt", "ext4"),
    "XFS": ("mkfs.xfs", "-qf"),
    "btrfs": ("mkfs.btrfs", "-qf"),
    "f2fs": ("mkfs.f2fs", "-qf"),
    "swap": ("mkswap", "-q"),
}
SIZES = {"FAT12": 2 * MIB, "XFS": 400 * MIB}
NO_ENTRIES = bytes(64)
# The FAT32 boot sector of Windows has a message in place of the entries of an MBR, ending before 55 AA.
MESSAGE = b"\x00\x00\x00\x00\x0d\x0aDisk error\xff\x0d\x0aPress any key to restart\x0d\x0a".ljust(64, b"\0")


def make(sparse: Sparse, kind: str) -> Path:
    path = sparse(SIZES.get(kind, 300 * MIB))
    run(*MAKERS[kind], path)
    return path


@pytest.mark.needs_tools("mkfs.fat", "mkfs.exfat", "mkntfs", "mke2fs", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs", "mkswap")
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("sector_size", [None, 512, 4096])
def test_a_file_system_on_the_whole_disk_is_not_a_table(kind: str, sector_size: int | None, sparse: Sparse) -> None:
    path = make(sparse, kind)
    assert read_image(path, sector_size).table is None
    # A boot loader in its boot area: 55 AA, code, and nothing in place of the entries. LILO and GRUB leave this.
    if kind not in ("XFS", "exFAT", "NTFS") and "FAT" not in kind:
        patch(path, 0, b"\xeb\x63\x90" + bytes(437) + b"\x12\x34\x56\x78\0\0" + NO_ENTRIES + b"\x55\xaa")
        assert read_image(path, sector_size).table is None


@pytest.mark.needs_tools("mkfs.fat")
@pytest.mark.parametrize("message", [MESSAGE, b"\0" * 8 + b"Remove disks or other media.\xff", bytes(range(0, 64))])
def test_the_message_of_a_boot_sector_is_not_taken_for_entries(message: bytes, sparse: Sparse) -> None:
    """util-linux issue 4103: four partitions at 778135908 and the like, from the text in a FAT boot sector."""
    path = make(sparse, "FAT32")
    patch(path, 446, message)
    patch(path, 510, b"\x55\xaa")
    assert read_image(path).table is None


@pytest.mark.needs_tools("mkfs.fat")
def test_text_with_plausible_boot_flags_in_a_fat_boot_sector_is_not_a_table(sparse: Sparse) -> None:
    path = make(sparse, "FAT32")
    for slot in range(4):
        patch(path, 446 + 16 * slot, struct.pack("<B15s", 0x80 if slot else 0, b"Disk error Press"))
    assert read_image(path).table is None


@pytest.mark.needs_tools("mkfs.fat", "sfdisk")
def test_a_stick_with_a_fat_boot_sector_and_a_valid_table_is_partitioned(sparse: Sparse) -> None:
    """Linux reads the entries; a boot manager keeps the parameter block of the stick for old BIOSes."""
    path = make(sparse, "FAT32")
    patch(path, 446, mbr((0x0C, 2048, 100000, 0x80))[446:])
    assert places(read_image(path)) == {1: (2048, 100000)}


@pytest.mark.parametrize(
    ("at", "magic"),
    [
        (3, b"NTFS    "),
        (3, b"EXFAT   "),
        (3, b"-FVE-FS-"),
        (3, b"ReFS\0\0\0\0"),
        (3, b"HPFS"),
        (0, b"XFSB"),
        (0, b"LUKS\xba\xbe"),
    ],
)
def test_the_magics_of_boot_sectors_are_recognised(at: int, magic: bytes) -> None:
    text = mbr((0x6C, 0x20206F6E, 0x6F742073, 0x80))
    assert table_of(read_bytes(disk(MIB, (0, text)))).label is TableLabel.DOS
    assert read_bytes(disk(MIB, (0, text), (at, magic))).table is None


# Where each format has its magic: the headers that aligntool/formats names, and blkid's list of them.
MAGICS = [
    *((at, b"LABELONE") for at in (0x200, 0, 0x400, 0x600)),  # LVM, in any of the first four sectors
    (0x438, b"\x53\xef"),  # ext
    (0x400, b"\x10\x20\xf5\xf2"),  # F2FS
    (0x400, b"H+\0\x04"),  # HFS+
    (0x400, b"HX\0\x05"),  # HFSX
    (0x400, b"BD"),  # HFS
    (0x20, b"NXSB"),  # APFS
    (0x220, b"1SFB"),  # BFS of Haiku
    (0, b"\xfc\x4e\x2b\xa9"),  # md 1.1
    (0x1000, b"\xfc\x4e\x2b\xa9"),  # md 1.2
    (0x1018, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),  # bcache
    (0xFF6, b"SWAPSPACE2"),
    (0xFF6, b"SWAP-SPACE"),
    (0x8001, b"CD001"),  # ISO 9660
    (0x10040, b"_BHRfS_M"),  # btrfs
]


@pytest.mark.parametrize(("at", "magic"), MAGICS)
def test_a_content_with_a_boot_program_in_its_first_sector_is_not_an_empty_table(at: int, magic: bytes) -> None:
    """The boot program leaves 55 AA and no entries: only the content shows that there is no table."""
    sector = mbr(signature=0x12345678)
    assert table_of(read_bytes(disk(MIB, (0, sector)))).label is TableLabel.DOS
    assert read_bytes(disk(MIB, (0, sector), (at, magic))).table is None


@pytest.mark.parametrize("flag", [0x01, 0x7F, 0x81, 0xFF])
def test_a_boot_flag_that_is_neither_0_nor_0x80_is_not_that_of_a_table(flag: int) -> None:
    assert table_of(read_bytes(disk(MIB, (0, mbr((0x83, 100, 10, 0)))))).label is TableLabel.DOS
    assert read_bytes(disk(MIB, (0, mbr((0x83, 100, 10, 0), (0x83, 200, 10, flag))))).table is None


def test_an_aix_disk_is_an_mbr_disk_only_with_linux_partitions() -> None:
    aix = bytearray(mbr((0x41, 100, 10, 0)))
    aix[:4] = b"\xc9\xc2\xd4\xc1"
    assert read_bytes(disk(MIB, (0, bytes(aix)))).table is None
    aix[450] = 0x83
    assert table_of(read_bytes(disk(MIB, (0, bytes(aix))))).label is TableLabel.DOS


def test_a_sector_without_55_aa_is_not_an_mbr() -> None:
    assert read_bytes(disk(MIB, (0, mbr((0x83, 100, 10, 0))[:510]))).table is None


def test_a_fresh_label_without_partitions_is_a_table() -> None:
    reading = read_bytes(disk(MIB, (0, mbr(signature=0x1234ABCD))))
    assert (table_of(reading).label, table_of(reading).disk_id) == (TableLabel.DOS, "0x1234abcd")


@pytest.mark.needs_tools("parted")
def test_the_table_of_a_pc98_is_not_an_empty_mbr(sparse: Sparse) -> None:
    """It is in sector 1, and no kernel and no libblkid reads it."""
    path = sparse(64 * MIB)
    run("parted", "-s", path, "mklabel", "pc98", "mkpart", "primary", "ext2", "1MiB", "20MiB")
    assert path.read_bytes()[510:512] == b"\x55\xaa"
    assert read_image(path).table is None


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024, 4096])
def test_a_tiny_or_empty_disk_has_no_table(size: int) -> None:
    for sector_size in (None, 512, 4096):
        assert read_bytes(bytes(size), sector_size).table is None


@pytest.mark.needs_tools("sgdisk", "mkfs.fat")
def test_a_fat_partition_read_as_a_disk_has_no_table(sparse: Sparse) -> None:
    path = make(sparse, "FAT16")
    flip(path, 500)
    assert read_image(path).table is None
