"""Checkers: intact file systems pass, and each kind of damage that a tool finds is reported."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.formats.reader import crc32c_inverted
from aligntool.linux.checks import CheckResult, check_content
from aligntool.units import KIB, MIB, Extent
from tests.conftest import attached, run
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

Sparse = Callable[..., Path]
START = 63 * 512

# kind -> how it is made, its size, bytes that damage it and their place
MADE: dict[str, tuple[tuple[str, ...], int, tuple[int, bytes]]] = {
    "ext4": (
        ("mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum"),
        32 * MIB,
        (2048 + 12, b"\7\7"),
    ),  # free blocks of the first group
    "xfs": (("mkfs.xfs", "-q", "-f"), 320 * MIB, (512, b"rubbish!")),  # head of the first group's free space
    "btrfs": (("mkfs.btrfs", "-q", "-f"), 128 * MIB, (64 * 1024 + 80, b"\1\2\3")),  # root of the root tree
    "ntfs": (("mkfs.ntfs", "-q", "-F", "-f", "-c", "4096"), 16 * MIB, (4 * 4096 + 5 * 1024, b"rubbish!")),  # root
    "vfat": (("mkfs.fat", "-F32"), 64 * MIB, (32 * 512 + 40, b"\x29\0\0\0")),  # a chain without an owner
    "exfat": (("mkfs.exfat",), 16 * MIB, (80, b"\xff\xff\xff")),  # where the allocation table is
    "f2fs": (("mkfs.f2fs", "-q"), 64 * MIB, (512 * 4096 + 140, b"\x63\x63\x63\x63")),  # in the checkpoint
}


def make(sparse: Sparse, kind: str, *, hurt: bool) -> tuple[Path, Extent]:
    command, size, (at, rubbish) = MADE[kind]
    content = sparse(size, "content.img")
    run(*command, content)
    with content.open("r+b") as file:
        file.seek(at if hurt else 0)
        file.write(rubbish if hurt else b"")
    disk = sparse(START + size + MIB)
    run("dd", f"if={content}", f"of={disk}", "bs=512", "seek=63", "conv=notrunc,sparse", "status=none")
    return disk, Extent(START, size)


@sample(3)
@pytest.mark.needs_root
@pytest.mark.needs_tools(
    "mkfs.ext4",
    "mkfs.xfs",
    "xfs_repair",
    "mkfs.btrfs",
    "mkfs.ntfs",
    "ntfsresize",
    "fsck.fat",
    "fsck.exfat",
    "fsck.f2fs",
)
@pytest.mark.parametrize("kind", MADE)
def test_a_new_file_system_passes_the_check_until_it_is_damaged(sparse: Sparse, kind: str) -> None:
    disk, extent = make(sparse, kind, hurt=False)
    whole = check_content(str(disk), extent, kind)
    assert (whole.checked, whole.problem) == (True, None)

    disk, extent = make(sparse, kind, hurt=True)
    before = disk.read_bytes()
    hurt = check_content(str(disk), extent, kind)
    assert hurt.checked
    assert hurt.problem is not None and hurt.problem.startswith(f"{whole.by} found errors in the {kind}: ")
    assert disk.read_bytes() == before, "a checker wrote"


@pytest.mark.needs_tools("mkfs.ext4", "e2fsck")
def test_an_ext4_in_an_image_is_checked_without_a_loop_device(sparse: Sparse) -> None:
    disk, extent = make(sparse, "ext4", hurt=True)
    result = check_content(str(disk), extent, "ext4")
    assert result.by == "e2fsck"
    assert result.problem is not None and "still has errors" in result.problem


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.fat", "fsck.fat")
def test_a_stale_count_of_free_clusters_is_not_reported_as_damage(sparse: Sparse) -> None:
    disk, extent = make(sparse, "vfat", hurt=False)
    with disk.open("r+b") as file:
        file.seek(START + 512 + 488)
        file.write(b"\x11\0\0\0")
        file.seek(START + 0x1C)  # the hidden sectors, in the first boot sector alone
        file.write(b"\x3f")
    with attached(disk, "-r", "-o", str(START), "--sizelimit", str(extent.length)) as device:
        said = run("fsck.fat", "-n", device, fails=True)
    assert "Free cluster summary wrong" in said and "mostly harmless" in said
    assert check_content(str(disk), extent, "vfat") == CheckResult(True, None, "fsck.fat")


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.fat", "fsck.fat")
@pytest.mark.parametrize("fields", [(50,), (48, 50)], ids=["no copy", "neither copy nor FSInfo"])
def test_a_fat32_without_a_copy_of_its_boot_sector_is_not_reported_as_damaged(
    sparse: Sparse, fields: tuple[int, ...]
) -> None:
    disk = sparse(40 * MIB)
    run("mkfs.fat", "-F32", "-s1", disk)
    with disk.open("r+b") as file:
        for at in fields:
            file.seek(at)
            file.write(b"\0\0")
    with attached(disk, "-r") as device:
        assert "no backup boot sector" in run("fsck.fat", "-n", device, fails=True)
    assert check_content(str(disk), Extent(0, 40 * MIB), "vfat") == CheckResult(True, None, "fsck.fat")


def test_content_without_a_checker_or_on_a_missing_disk_does_not_count_as_checked(
    sparse: Sparse, tmp_path: Path
) -> None:
    disk = sparse(8 * MIB)
    for kind in ("swap", "crypto_LUKS", "zfs_member"):
        assert check_content(str(disk), Extent(0, 8 * MIB), kind) == CheckResult(False, None, f"no checker for {kind}")
    result = check_content(str(tmp_path / "none"), Extent(0, 8 * MIB), "ext4")
    assert not result.checked
    assert result.problem is None


# File systems that are intact, and that their checkers refuse to check.


def exfat_with_two_tables(sparse: Sparse) -> Path:
    """mkfs.exfat makes one table: NumberOfFats is increased in both boot regions, with their checksums (specification
    of exFAT, 3.1.16 and 3.4).
    """
    image = sparse(16 * MIB, "content.img")
    run("mkfs.exfat", image)
    with image.open("r+b") as file:
        for region in (0, 12 * 512):
            file.seek(region)
            sectors = bytearray(file.read(11 * 512))
            sectors[110] = 2
            checksum = 0
            for at, byte in enumerate(sectors):
                if at not in (106, 107, 112):
                    checksum = ((checksum >> 1 | checksum << 31) + byte) & 0xFFFFFFFF
            file.seek(region)
            file.write(sectors + checksum.to_bytes(4, "little") * 128)
    return image


def ext4_of_the_future(sparse: Sparse) -> Path:
    image = sparse(32 * MIB, "content.img")
    run("mkfs.ext4", "-q", "-F", image)
    run("debugfs", "-w", "-R", "feature FEATURE_R20", image)
    return image


def ext4_with_encoding_of_the_future(sparse: Sparse) -> Path:
    image = sparse(32 * MIB, "content.img")
    run("mkfs.ext4", "-q", "-F", "-O", "casefold", image)
    run("debugfs", "-w", "-R", "set_super_value encoding 99", image)
    return image


def btrfs_of_the_future(sparse: Sparse) -> Path:
    """As with simple quotas, which a kernel 6.7 can enable, for btrfs-progs before 6.7."""
    image = sparse(128 * MIB, "content.img")
    run("mkfs.btrfs", "-q", "-f", image)
    with image.open("r+b") as file:
        for copy in (64 * KIB, 64 * MIB):
            file.seek(copy)
            superblock = bytearray(file.read(4 * KIB))
            superblock[188 + 7] |= 0x40  # incompat_flags
            superblock[:4] = crc32c_inverted(bytes(superblock[32:])).to_bytes(4, "little")
            file.seek(copy)
            file.write(superblock)
    return image


def ext4_with_external_journal(sparse: Sparse) -> Path:
    image, journal = sparse(32 * MIB, "content.img"), sparse(16 * MIB, "journal.img")
    run("mke2fs", "-q", "-F", "-b", "4096", "-O", "journal_dev", journal)
    with attached(journal) as device:
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", f"device={device}", image)
    return image


def btrfs_of_two_devices(sparse: Sparse) -> Path:
    """Return the second, without which the first cannot be read either."""
    devices = [sparse(128 * MIB, name) for name in ("first.img", "content.img")]
    run("mkfs.btrfs", "-q", "-f", "-d", "raid0", "-m", "raid0", *devices)
    return devices[1]


def fat_with_four_tables(sparse: Sparse) -> Path:
    image = sparse(64 * MIB, "content.img")
    run("mkfs.fat", "-f", "4", image)
    return image


def xfs_with_another_device(sparse: Sparse, *options: str) -> Path:
    image, other = sparse(320 * MIB, "content.img"), sparse(66 * MIB, "other.img")
    with attached(other) as device:
        run("mkfs.xfs", "-q", "-f", *(option.format(device) for option in options), image)
    return image


def xfs_with_external_log(sparse: Sparse) -> Path:
    return xfs_with_another_device(sparse, "-l", "logdev={},size=64m")


def xfs_with_realtime_device(sparse: Sparse) -> Path:
    return xfs_with_another_device(sparse, "-m", "rmapbt=0", "-r", "rtdev={}")


def xfs_with_one_group(sparse: Sparse) -> Path:
    """As mkfs.xfs made it before version 5.19; since then it does so only for xfstests."""
    image = sparse(24 * MIB, "content.img")
    run("env", "TEST_DIR=1", "TEST_DEV=1", "QA_CHECK_FS=1", "mkfs.xfs", "-q", "-d", "agcount=1", image)
    return image


@pytest.mark.needs_root
@pytest.mark.needs_tools(
    *("mkfs.exfat", "fsck.exfat", "mkfs.ext4", "debugfs", "mkfs.btrfs", "mkfs.fat", "fsck.fat", "mkfs.xfs"),
    *("xfs_repair", "losetup"),
)
@pytest.mark.parametrize(
    ("make_content", "kind", "words"),
    [
        (exfat_with_two_tables, "exfat", "fsck.exfat cannot check this exfat (unsupported FAT count: 2)"),
        (ext4_of_the_future, "ext4", "e2fsck cannot check this ext4 ("),
        (ext4_with_encoding_of_the_future, "ext4", "e2fsck cannot check this ext4 ("),
        (btrfs_of_the_future, "btrfs", "btrfs cannot check this btrfs (couldn't open because of unsupported"),
        (ext4_with_external_journal, "ext4", "e2fsck cannot check this ext4: its journal is on another device"),
        (btrfs_of_two_devices, "btrfs", "btrfs cannot check this btrfs (warning, device 1 is missing)"),
        (fat_with_four_tables, "vfat", "fsck.fat cannot check this vfat (Currently, only 1 or 2 FATs are supported"),
        (xfs_with_external_log, "xfs", "xfs_repair cannot check this xfs (fatal error -- This filesystem has an ext"),
        (xfs_with_realtime_device, "xfs", "xfs_repair cannot check this xfs (xfs_repair: filesystem has a realtime"),
        (xfs_with_one_group, "xfs", "xfs_repair cannot check this xfs (Only one AG detected"),
    ],
    ids=[
        *("exFAT, two tables", "ext4, unknown feature", "ext4, unknown encoding", "btrfs, unknown feature"),
        *("ext4, external journal", "btrfs, two devices"),
        *("FAT, four tables", "XFS, external log", "XFS, realtime device", "XFS, one group"),
    ],
)
def test_content_that_its_checker_cannot_check_is_not_reported_as_damaged(
    sparse: Sparse, make_content: Callable[[Sparse], Path], kind: str, words: str
) -> None:
    content = make_content(sparse)
    result = check_content(str(content), Extent(0, content.stat().st_size), kind)
    assert (result.checked, result.problem) == (False, None)
    assert result.by.startswith(words)


def test_the_name_of_a_damaged_file_is_not_taken_for_an_unknown_feature(sparse: Sparse) -> None:
    """e2fsck prints the names of files, here that of an entry whose inode was cleared."""
    image, name = sparse(32 * MIB, "content.img"), "x has unsupported encoding: y"
    run("mkfs.ext4", "-q", "-F", image)
    run("debugfs", "-w", "-R", f'symlink "{name}" target', image)
    run("debugfs", "-w", "-R", f'clri "{name}"', image)
    result = check_content(str(image), Extent(0, 32 * MIB), "ext4")
    assert result.checked and result.problem


ALL_FEATURES = "quota,project,casefold,encrypt,verity"


@pytest.fixture
def filled(sparse: Sparse, tmp_path: Path) -> tuple[Path, Extent]:
    """Return an ext4 that mke2fs filled after it had counted the quotas; e2fsck itself reports them as inconsistent."""
    disk, (folder, size) = sparse(START + 65 * MIB), (tmp_path / "files", 64 * MIB)
    folder.mkdir()
    (folder / "file").write_bytes(bytes(range(256)) * 400)
    words = ("-q", "-t", "ext4", "-O", ALL_FEATURES, "-d", folder, "-E", f"offset={START}", disk, f"{size // KIB}k")
    run("mke2fs", *words)
    assert "[QUOTA WARNING] Usage inconsistent" in run("sh", "-c", f"e2fsck -fn '{disk}?offset={START}' 2>&1 || true")
    return disk, Extent(START, size)


@pytest.mark.needs_tools("mke2fs", "e2fsck", "debugfs")
def test_an_ext4_of_which_only_the_counts_of_quotas_are_wrong_passes_the_check(filled: tuple[Path, Extent]) -> None:
    disk, extent = filled
    assert check_content(str(disk), extent, "ext4") == CheckResult(True, None, "e2fsck")


@pytest.mark.needs_tools("mke2fs", "e2fsck", "debugfs")
@pytest.mark.parametrize("damage", ["set_inode_field /file links_count 7", "freeb 100 3", "clri /file"])
def test_any_other_error_beside_the_counts_of_quotas_is_reported(filled: tuple[Path, Extent], damage: str) -> None:
    disk, extent = filled
    run("debugfs", "-w", "-R", damage, f"{disk}?offset={START}")
    assert check_content(str(disk), extent, "ext4").problem is not None


@pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs", "dumpe2fs")
def test_such_an_ext4_is_moved_with_its_files(filled: tuple[Path, Extent], tmp_path: Path) -> None:
    disk, extent = filled
    run("sfdisk", "-q", disk, stdin=f"label: dos\nstart=63, size={extent.length // 512}\n")
    run("truncate", "-s", "128M", disk)
    run_aligntool("realign", "--yes", disk, code=0)
    (part,) = json.loads(run("sfdisk", "--json", disk))["partitiontable"]["partitions"]
    assert part["start"] % 2048 == 0
    inside = f"{disk}?offset={part['start'] * 512}"
    run("debugfs", "-R", f"dump /file {tmp_path}/copy", inside)
    assert (tmp_path / "copy").read_bytes() == bytes(range(256)) * 400
    assert run("e2fsck", "-f", "-y", inside, fails=True).count("Update quota info") == 3
    run("e2fsck", "-f", "-n", inside)
