"""ext2/3/4, XFS, btrfs, f2fs and swap, made by their own tools and compared with the reports of these tools."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.formats.reader import crc32c_inverted
from aligntool.units import KIB, MIB, TIB, Extent
from tests.conftest import run
from tests.contents.placed_partitions import STARTS, agree, bytes_of, field, layers_of, number, place

Sparse = Callable[..., Path]


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "options",
    [
        ("-t", "ext2", "-b", "1024"),
        ("-t", "ext2", "-b", "2048", "-O", "^filetype"),
        ("-t", "ext3", "-b", "2048"),
        ("-t", "ext3", "-b", "4096", "-L", "three words here"),
        ("-t", "ext4", "-b", "1024", "-O", "^metadata_csum"),
        ("-t", "ext4", "-b", "4096", "-L", "root", "-E", "stride=16,stripe_width=64"),
        ("-t", "ext4", "-O", "64bit,metadata_csum,^has_journal"),
        ("-t", "ext4", "-O", "^64bit,bigalloc"),
        ("-O", "journal_dev", "-b", "4096"),
    ],
    ids=" ".join,
)
def test_ext_is_read_as_by_dumpe2fs_and_blkid(sparse: Sparse, start: int, options: tuple[str, ...]) -> None:
    content = sparse(24 * MIB)
    run("mkfs.ext4", "-q", "-F", *options, content)
    placed = place(content, start)
    layer, report = placed.layer(), run("dumpe2fs", "-h", content)
    agree(layer, placed.blkid())
    block = number(report, "Block size")
    assert layer.extent.start == layer.data_start == start
    assert layer.data_unit == block
    assert layer.claims_size == layer.extent.length == number(report, "Block count") * block
    if layer.kind == "jbd":
        assert layer.stripe_unit is None
        return
    assert layer.stripe_unit == (number(report, "RAID stride") * block if "RAID stride" in report else 0)
    assert layer.stripe_width == (number(report, "RAID stripe width") * block if "RAID stripe width" in report else 0)


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_ext4_of_more_than_32_bits_of_blocks_keeps_its_size(sparse: Sparse) -> None:
    content = sparse(5 * TIB)
    features = "bigalloc,64bit,^has_journal,^resize_inode"
    run("mkfs.ext4", "-q", "-F", "-b", "1024", "-O", features, "-C", "1048576", "-N", "10000", content)
    (layer,) = layers_of(content)
    assert layer.claims_size == number(run("dumpe2fs", "-h", content), "Block count") * 1024
    assert layer.claims_size > 4 * TIB


@pytest.mark.needs_tools("mkfs.ext4")
def test_a_file_system_larger_than_its_partition_is_reported_with_the_missing_bytes(sparse: Sparse) -> None:
    content = sparse(24 * MIB)
    run("mkfs.ext4", "-q", "-F", content)
    (layer,) = layers_of(content, Extent(0, 20 * MIB))
    assert layer.problems == (f"ext4 claims {24 * MIB} bytes, but its container has {20 * MIB}: {4 * MIB} are missing",)


@pytest.mark.needs_tools("mkfs.xfs", "xfs_db", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "options",
    [
        ("-L", "no stripes"),
        ("-d", "su=256k,sw=2"),
        ("-b", "size=1024", "-d", "sunit=128,swidth=384"),
        ("-s", "size=4096"),
        ("-m", "crc=0", "-d", "su=64k,sw=3"),
    ],
    ids=" ".join,
)
def test_xfs_is_read_as_by_xfs_db_and_blkid(sparse: Sparse, start: int, options: tuple[str, ...]) -> None:
    content = sparse(600 * MIB)
    run("mkfs.xfs", "-q", "-f", *options, content)
    placed = place(content, start)
    layer = placed.layer()
    agree(layer, placed.blkid())
    report = run("xfs_db", "-r", "-c", "sb 0", "-c", "p blocksize dblocks unit width", content)
    block = number(report, "blocksize")
    assert layer.data_start == start
    assert layer.data_unit == block
    assert layer.claims_size == number(report, "dblocks") * block
    assert layer.stripe_unit == number(report, "unit") * block
    assert layer.stripe_width == number(report, "width") * block


@pytest.mark.needs_tools("mkfs.xfs")
def test_the_length_of_an_xfs_with_zones_is_not_derived_from_its_block_count(sparse: Sparse) -> None:
    """mkfs.xfs -r zoned=1 (6.15) puts a section with the data of files behind those blocks (sb_rtstart)."""
    content = sparse(600 * MIB)
    run("mkfs.xfs", "-q", "-f", "-d", "size=400m", content)
    superblock = bytearray(bytes_of(content, 0, 512))
    superblock[216:220] = (int.from_bytes(superblock[216:220], "big") | 0x300).to_bytes(4, "big")  # METADIR, ZONED
    superblock[288:296] = superblock[8:16]  # sb_rtstart: where the data section ends
    superblock[224:228] = bytes(4)
    superblock[224:228] = crc32c_inverted(bytes(superblock)).to_bytes(4, "little")
    with content.open("r+b") as file:
        file.write(superblock)
    (layer,) = layers_of(content)
    assert (layer.kind, layer.claims_size, layer.problems) == ("xfs", None, ())


@pytest.mark.needs_tools("mkfs.xfs", "blkid")
def test_the_external_log_of_an_xfs_is_recognised(sparse: Sparse) -> None:
    content, log = sparse(600 * MIB), sparse(128 * MIB, "log.img")
    run("mkfs.xfs", "-q", "-f", "-l", f"logdev={log},size=64m", content)
    placed = place(log, MIB)
    assert [layer.kind for layer in placed.layers()] == [placed.blkid()["TYPE"]] == ["xfs_external_log"]


@pytest.mark.needs_tools("mkfs.xfs", "blkid")
def test_a_log_record_near_the_start_of_an_xfs_is_not_taken_for_a_log_device(sparse: Sparse) -> None:
    content, log = sparse(600 * MIB), sparse(128 * MIB, "log.img")
    run("mkfs.xfs", "-q", "-f", "-l", f"logdev={log},size=64m", content)
    with content.open("r+b") as file:
        file.seek(32 * KIB)
        file.write(bytes_of(log, 0, 512))
    placed = place(content, MIB)
    assert [layer.kind for layer in placed.layers()] == [placed.blkid()["TYPE"]] == ["xfs"]


@pytest.mark.needs_tools("mkfs.btrfs", "btrfs", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("checksum", ["crc32c", "xxhash", "sha256", "blake2"])
def test_btrfs_is_read_as_by_its_own_dump_and_blkid(sparse: Sparse, start: int, checksum: str) -> None:
    content = sparse(128 * MIB)
    run("mkfs.btrfs", "-q", "-L", "data disk", "--csum", checksum, "-s", "4096", content)
    placed = place(content, start)
    layer, report = placed.layer(), run("btrfs", "inspect-internal", "dump-super", content)
    agree(layer, placed.blkid())
    words = dict(line.split(None, 1) for line in report.splitlines() if len(line.split(None, 1)) == 2)
    assert layer.uuid == words["fsid"].strip()
    assert layer.data_unit == int(words["sectorsize"])
    assert layer.claims_size == int(words["dev_item.total_bytes"])
    assert layer.data_start == start
    assert layer.stripe_unit is None


@pytest.mark.needs_tools("mkfs.btrfs", "btrfs")
def test_each_device_of_a_btrfs_claims_its_own_size(sparse: Sparse) -> None:
    small, large = sparse(128 * MIB, "small.img"), sparse(200 * MIB, "large.img")
    run("mkfs.btrfs", "-q", "-d", "single", "-m", "raid1", small, large)
    assert place(small, MIB).layer().claims_size == 128 * MIB
    assert place(large, MIB).layer().claims_size == 200 * MIB


@pytest.mark.needs_tools("mkfs.f2fs", "dump.f2fs", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("features", ["", "extra_attr,sb_checksum"])
def test_f2fs_is_read_as_by_its_own_dump_and_blkid(sparse: Sparse, start: int, features: str) -> None:
    content = sparse(64 * MIB)
    run("mkfs.f2fs", "-q", "-l", "Фото", *(("-O", features) if features else ()), content)
    placed = place(content, start)
    layer, report = placed.layer(), run("dump.f2fs", "-d", "1", content)
    agree(layer, placed.blkid())
    values = {line.split()[0]: int(line.split(":")[-1].strip(" ]")) for line in report.splitlines() if "[0x" in line}
    assert (values["crc"] != 0) == bool(features)
    block = 1 << values["log_blocksize"]
    assert layer.data_unit == block
    assert layer.data_start == start + values["main_blkaddr"] * block
    assert layer.claims_size == 64 * MIB


@pytest.mark.needs_tools("mkswap", "swaplabel", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("page", [4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB])
def test_swap_of_any_page_size_is_read_as_by_swaplabel_and_blkid(sparse: Sparse, start: int, page: int) -> None:
    content = sparse(8 * MIB)
    run("mkswap", "-p", str(page), "-L", "swap one", content)
    placed = place(content, start)
    layer, report = placed.layer(), run("swaplabel", content)
    agree(layer, placed.blkid())
    assert (layer.uuid, layer.label) == (field(report, "UUID"), field(report, "LABEL"))
    assert layer.data_unit == page
    assert layer.data_start == start + page
    assert layer.claims_size == 8 * MIB


@pytest.mark.needs_tools("mkswap", "blkid")
@pytest.mark.parametrize("mark", [b"S1SUSPEND\0", b"S2SUSPEND\0", b"ULSUSPEND\0", b"LINHIB0001"])
def test_a_hibernation_image_is_recognised_instead_of_the_swap_that_contains_it(sparse: Sparse, mark: bytes) -> None:
    content = sparse(8 * MIB)
    run("mkswap", "-p", "4096", "-L", "sleep", content)
    with content.open("r+b") as file:
        file.seek(4096 - 10)
        file.write(mark)
    placed = place(content, MIB)
    agree(placed.layer(), placed.blkid())
    assert placed.layer().kind == "swsuspend"
    assert placed.layer().data_unit == 4096
