"""FAT, exFAT and NTFS, made by their own tools; BitLocker and ReFS with headers written here and read by blkid."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.contents.placed_partitions import STARTS, Placed, agree, bytes_of, layers_of, number, place

Sparse = Callable[..., Path]


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("options", "size"),
    [
        (("-F12", "-n", "FLOPPY"), 4 * MIB),
        (("-F12", "-R", "3", "-f", "1", "-r", "32"), 2 * MIB),
        (("-F16", "-n", "TWO WORDS"), 64 * MIB),
        (("-F16", "-R", "7", "-s", "16", "-i", "cafe0123"), 200 * MIB),
        (("-F16", "-S", "4096"), 64 * MIB),
        (("-F32",), 64 * MIB),
        (("-F32", "-n", "EFI"), 600 * MIB),
        (("-F32", "-R", "37", "-a", "-s", "8"), 600 * MIB),
        (("-F32", "-S", "4096", "-s", "1"), 300 * MIB),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else f"{value // MIB}MiB",
)
def test_fat_is_read_as_by_fsck_and_blkid(sparse: Sparse, start: int, options: tuple[str, ...], size: int) -> None:
    content = sparse(size)
    run("mkfs.fat", *options, content)
    placed = place(content, start)
    layer, report = placed.layer(), run("fsck.fat", "-v", "-n", content)
    agree(layer, placed.blkid())
    assert layer.data_start == start + _in_words(report, r"Data area starts at byte (\d+)")
    assert layer.data_unit == _in_words(report, r"(\d+) bytes per cluster")
    sector = _in_words(report, r"(\d+) bytes per logical sector")
    assert layer.claims_size == _in_words(report, r"(\d+) sectors total") * sector
    bits = _in_words(report, r"(\d+) bit entries")
    assert layer.version == f"FAT{bits}"


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mlabel")
def test_the_data_of_a_fat32_with_a_fixed_root_directory_begin_behind_it_as_in_fsck(sparse: Sparse) -> None:
    content = sparse(64 * MIB)
    run("mkfs.fat", "-F32", "-n", "LABEL", content, str(60 * 1024))
    content.write_bytes(with_fixed_root(content.read_bytes()))
    layer, report = place(content, MIB).layer(), run("fsck.fat", "-v", "-n", content)
    assert layer.data_start == MIB + _in_words(report, r"Data area starts at byte (\d+)")
    assert layer.claims_size == _in_words(report, r"(\d+) sectors total") * 512
    assert layer.label == "LABEL"


def with_fixed_root(fat32: bytes) -> bytes:
    """Return a FAT32 with sectors of 512 bytes and a field for 512 entries in the root directory: they take 32 sectors
    between the allocation tables and the clusters, which begin there.
    """
    raw = bytearray(fat32)
    reserved, copies = int.from_bytes(raw[14:16], "little"), raw[16]
    data = (reserved + copies * int.from_bytes(raw[36:40], "little")) * 512
    sectors = int.from_bytes(raw[32:36], "little") + 32
    for boot in (0, 6 * 512):
        raw[boot + 17 : boot + 19] = (512).to_bytes(2, "little")
        raw[boot + 32 : boot + 36] = sectors.to_bytes(4, "little")
    return bytes(raw[:data] + bytes(32 * 512) + raw[data:])[: max(len(raw), sectors * 512)]


def _in_words(report: str, pattern: str) -> int:
    match = re.search(pattern, report)
    assert match, report
    return int(match.group(1))


@pytest.mark.needs_tools("mkfs.fat")
def test_fat32_on_64_mib_starts_its_data_two_sectors_off_the_4_kib_grid(sparse: Sparse) -> None:
    content = sparse(64 * MIB)
    run("mkfs.fat", "-F32", content)
    layer = place(content, MIB).layer()
    assert layer.data_start == MIB + 2050 * 512  # mkfs.fat's own `Data area starts at ... (sector 2050)`


@pytest.mark.needs_tools("mkfs.fat", "mlabel", "blkid")
def test_the_label_of_the_root_directory_is_used_instead_of_the_boot_sectors_copy(sparse: Sparse) -> None:
    content = sparse(64 * MIB)
    run("mkfs.fat", "-F32", "-n", "OLD", content)
    at = 2050 * 512  # the root directory: mkfs.fat puts the label into its first entry
    assert bytes_of(content, at, 11) == b"OLD        "
    with content.open("r+b") as file:
        file.seek(at)
        file.write(b"NEW NAME   ")
    placed = place(content, MIB)
    assert placed.layer().label == placed.blkid()["LABEL"] == "NEW NAME"


@pytest.mark.needs_tools("mkfs.fat")
def test_a_fat32_with_too_few_clusters_is_recognised_and_reported(sparse: Sparse) -> None:
    content = sparse(33 * MIB)
    run("mkfs.fat", "-F32", "-s", "4", content)
    (layer,) = layers_of(content)
    clusters = _in_words(run("fsck.fat", "-v", "-n", content), r"(\d+) data clusters")
    assert layer.version == "FAT32"
    assert any(f"of {clusters} clusters" in problem for problem in layer.problems)


@pytest.mark.needs_tools("sfdisk", "blkid")
@pytest.mark.parametrize("code", [b"", b"\xeb\x63\x90", b"\xeb\x58\x90SYSLINUX", b"\xe9\x00\x00"])
def test_a_master_boot_record_is_not_a_file_system(sparse: Sparse, code: bytes) -> None:
    disk = sparse(8 * MIB)
    run("sfdisk", "-q", disk, stdin="label: dos\n63,4096,c\n,,83\n")
    with disk.open("r+b") as file:
        file.write(code)
    assert layers_of(disk) == ()
    assert "TYPE" not in Placed(disk, Extent(0, 8 * MIB)).blkid()


def exfat_units(report: str) -> tuple[int, int]:
    """Return the bytes of a sector and of a cluster, as dump.exfat states them: in powers of two before 1.2.9."""
    if "Sector Size Bits" in report:
        sector = 1 << number(report, "Sector Size Bits")
        return sector, sector << number(report, "Sector per Cluster bits")
    sector = number(report, "Bytes per Sector")
    return sector, sector * number(report, "Sectors per Cluster")


@pytest.mark.needs_tools("mkfs.exfat", "dump.exfat", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "options", [("-L", "Two Books"), ("-c", "128K", "-b", "1M"), ("-c", "4K", "-b", "4K")], ids=" ".join
)
def test_exfat_is_read_as_by_its_own_dump_and_blkid(sparse: Sparse, start: int, options: tuple[str, ...]) -> None:
    content = sparse(64 * MIB)
    run("mkfs.exfat", *options, content)
    placed = place(content, start)
    layer, report = placed.layer(), run("dump.exfat", content)
    agree(layer, placed.blkid())
    sector, cluster = exfat_units(report)
    assert layer.data_start == start + number(report, "Cluster Heap Offset (sector offset)") * sector
    assert layer.data_unit == cluster
    assert layer.claims_size == number(report, "Volume Length(sectors)") * sector


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.exfat", "dump.exfat")
def test_exfat_on_a_disk_with_4_kib_sectors_is_read_as_by_its_own_dump(
    sparse: Sparse, loop: Callable[..., Path]
) -> None:
    content = sparse(64 * MIB)
    device = loop(content, sector_size=4096)
    run("mkfs.exfat", device)
    report = run("dump.exfat", device)
    (layer,) = layers_of(content)
    assert exfat_units(report)[0] == 4096
    assert layer.problems == ()
    assert layer.data_start == number(report, "Cluster Heap Offset (sector offset)") * 4096
    assert layer.claims_size == number(report, "Volume Length(sectors)") * 4096 == 64 * MIB


@pytest.mark.needs_tools("mkfs.ntfs", "ntfsresize", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "options",
    [
        ("-L", "Neues Volume"),
        ("-c", "65536"),
        ("-c", "512"),
        ("-s", "4096", "-c", "4096"),
        ("-s", "4096", "-c", "1048576"),
    ],
    ids=" ".join,
)
def test_ntfs_is_read_as_by_ntfsresize_and_blkid(sparse: Sparse, start: int, options: tuple[str, ...]) -> None:
    content = sparse(64 * MIB)
    run("mkfs.ntfs", "-q", "-F", "-f", *options, content)
    placed = place(content, start)
    layer, report = placed.layer(), run("ntfsresize", "--info", "--force", content)
    agree(layer, placed.blkid())
    assert layer.data_start == start
    assert layer.data_unit == number(report, "Cluster size")
    assert layer.claims_size == number(report, "Current device size")


def bitlocker(*, start: bytes, metadata_field: int) -> bytes:
    """Make a volume header and one metadata block, as in libbde's format notes."""
    volume = bytearray(4 * MIB)
    volume[:11], volume[510:512] = start, b"\x55\xaa"
    volume[11:14] = b"\x00\x02\x08"  # 512-byte sectors, 8 per cluster
    at = 2 * MIB
    volume[metadata_field : metadata_field + 8] = at.to_bytes(8, "little")
    name = "LAPTOP C: 1/2/2024\0".encode("utf-16-le")
    entry = (8 + len(name)).to_bytes(2, "little") + b"\x07\0\x02\0\x01\0" + name
    size = 48 + len(entry)
    header = size.to_bytes(4, "little") + b"\x01\0\0\0" + (48).to_bytes(4, "little") + size.to_bytes(4, "little")
    block = b"-FVE-FS-" + bytes(2) + b"\x02\0" + bytes(52) + header + bytes(range(1, 17)) + bytes(16) + entry
    volume[at : at + len(block)] = block
    return bytes(volume)


@pytest.mark.needs_tools("blkid")
@pytest.mark.parametrize(
    ("start", "field_at"), [(b"\xeb\x58\x90-FVE-FS-", 176), (b"\xeb\x58\x90MSWIN4.1", 440)], ids=["Windows 7", "To Go"]
)
def test_bitlocker_is_recognised_and_its_data_begin_at_its_first_byte(
    sparse: Sparse, start: bytes, field_at: int
) -> None:
    content = sparse(4 * MIB)
    content.write_bytes(bitlocker(start=start, metadata_field=field_at))
    placed = place(content, 63 * 512)
    layer = placed.layer()
    assert layer.kind == placed.blkid()["TYPE"] == "BitLocker"
    assert layer.data_start == 63 * 512
    assert layer.data_unit == 4 * KIB
    assert layer.uuid == "04030201-0605-0807-090a-0b0c0d0e0f10"  # a GUID in Microsoft's byte order (libbde, 4.2)
    assert layer.label == "LAPTOP C: 1/2/2024"


@pytest.mark.needs_tools("blkid")
def test_refs_is_recognised_with_its_cluster(sparse: Sparse) -> None:
    content = sparse(8 * MIB)
    boot = b"\0\0\0ReFS\0" + bytes(8) + b"FSRS" + bytes(4) + (16384).to_bytes(8, "little")
    boot += (512).to_bytes(4, "little") + (128).to_bytes(4, "little")
    with content.open("r+b") as file:
        file.write(boot)
    placed = place(content, MIB)
    agree(placed.layer(), placed.blkid())
    assert placed.layer().data_unit == 64 * KIB
    assert placed.layer().claims_size == 8 * MIB
