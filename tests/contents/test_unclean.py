"""Unclean file systems: made unclean by the kernel or by their own tools, and compared with the reports of these."""

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from aligntool.formats.reader import MAY_BE_SHARED
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB
from tests.conftest import find_tool, run, unmount
from tests.contents.placed_partitions import bytes_of, layers_of, place

Sparse = Callable[..., Path]
Loop = Callable[..., Path]


def layer_of(image: Path) -> Layer:
    (layer,) = layers_of(image)
    return layer


def unclean(image: Path) -> str:
    said = layer_of(image).unclean
    assert said is not None
    return said


def put(image: Path, at: int, data: bytes) -> None:
    with image.open("r+b") as file:
        file.seek(at)
        file.write(data)


def exit_code(*command: str | Path) -> int:
    words = [find_tool(str(command[0])) or command[0], *command[1:]]
    return subprocess.run(words, capture_output=True, check=False, timeout=120).returncode


SMALL = ("TEST_DIR=x", "TEST_DEV=x", "QA_CHECK_FS=x")  # what mkfs.xfs requires to make a short log

CLEAN = {
    "ext2": (8 * MIB, ("mkfs.ext2", "-q", "-F")),
    "ext4": (16 * MIB, ("mkfs.ext4", "-q", "-F")),
    "xfs": (320 * MIB, ("mkfs.xfs", "-q", "-f")),
    "xfs with a log in stripes": (1024 * MIB, ("mkfs.xfs", "-q", "-f", "-d", "su=64k,sw=1", "-l", "su=64k,size=64m")),
    "btrfs": (128 * MIB, ("mkfs.btrfs", "-q")),
    "f2fs": (64 * MIB, ("mkfs.f2fs", "-q")),
    "ntfs": (16 * MIB, ("mkfs.ntfs", "-q", "-F", "-f")),
    "exfat": (16 * MIB, ("mkfs.exfat",)),
    "FAT12": (2 * MIB, ("mkfs.fat", "-F12")),
    "FAT16": (32 * MIB, ("mkfs.fat", "-F16")),
    "FAT32": (64 * MIB, ("mkfs.fat", "-F32")),
    "swap": (8 * MIB, ("mkswap",)),
}


@pytest.mark.needs_tools(
    "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs", "mkfs.ntfs", "mkfs.exfat", "mkfs.fat", "mkswap"
)
@pytest.mark.parametrize("name", CLEAN)
def test_a_new_file_system_is_not_unclean(sparse: Sparse, name: str) -> None:
    size, command = CLEAN[name]
    image = sparse(size)
    run(*command, image)
    assert layer_of(image).unclean is None


@pytest.mark.parametrize(
    ("pieces", "by"),
    [
        ({64 * KIB: b"\1\x16\x19\x70\0\0\0\1", 64 * KIB + 96: b"lock_dlm"}, "lock protocol lock_dlm"),
        ({64 * KIB: b"\1\x16\x19\x70\0\0\0\1", 64 * KIB + 96: b"lock_nolock"}, None),
        ({4 * KIB: b"OCFSV2"}, "a cluster"),
        ({4 * KIB: b"OCFSV2", 4 * KIB + 192 + 32: b"\x08"}, None),
    ],
    ids=["GFS2", "local GFS2", "OCFS2", "local OCFS2"],
)
def test_a_cluster_file_system_may_be_shared(sparse: Sparse, pieces: dict[int, bytes], by: str | None) -> None:
    """Fields of struct gfs2_sb (sb_lockproto) and struct ocfs2_super_block (s_feature_incompat)."""
    image = sparse(4 * MIB)
    for at, data in pieces.items():
        put(image, at, data)
    assert layer_of(image).unclean == (by and f"{MAY_BE_SHARED} ({by})")


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs", "tune2fs")
@pytest.mark.parametrize(
    ("sequence", "why"),
    [(0xFF4D4D50, "shared"), (0xE24D4D50, "checked by"), (77, "mounted on"), (None, "damaged")],
    ids=["clean", "being checked", "mounted", "damaged"],
)
def test_the_state_of_multiple_mount_protection_is_reported(sparse: Sparse, sequence: int | None, why: str) -> None:
    """States of linux/fs/ext4/ext4.h, EXT4_MMP_SEQ_*; the block is where dumpe2fs reports it."""
    image = sparse(40 * MIB)
    run("mkfs.ext4", "-q", "-b", "4096", "-O", "mmp", image)
    header = run("dumpe2fs", "-h", image)
    block = int(next(line for line in header.splitlines() if line.startswith("MMP block number")).split()[-1])
    with image.open("r+b") as file:
        file.seek(block * 4096 + 4)
        if sequence is None:
            file.seek(block * 4096)
        file.write((sequence or 0).to_bytes(4, "little"))
    assert why in unclean(image)
    if sequence == 0xFF4D4D50:
        run("tune2fs", "-O", "^mmp", image)
        assert layer_of(image).unclean is None


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "mkfs.xfs", "xfs_logprint", "e2fsck")
@pytest.mark.parametrize(
    "command",
    [("mkfs.ext2", "-q"), ("mkfs.ext4", "-q"), ("mkfs.xfs", "-q"), ("mkfs.xfs", "-q", "-l", "su=256k,size=64m")],
    ids=" ".join,
)
def test_a_mounted_file_system_is_unclean_until_it_is_unmounted(
    sparse: Sparse, loop: Loop, tmp_path: Path, command: tuple[str, ...]
) -> None:
    image, folder, cut = sparse(320 * MIB), tmp_path / "mounted", tmp_path / "cut.img"
    folder.mkdir()
    device = loop(image)
    run(*command, device)
    for turn in range(1, 4):
        run("mount", device, folder)
        for at in range(300 * turn):
            (folder / f"{turn} {at}").write_bytes(b"some bytes")
        run("sync", "-f", folder)
        run("cp", "--sparse=always", image, cut)  # another program may have read the device, and a page be kept
        unmount(folder, device)
        run("blockdev", "--flushbufs", device)
        assert unclean(cut)
        assert layer_of(image).unclean is None
        if command[0] == "mkfs.xfs":
            assert "<DIRTY>" in run("xfs_logprint", "-t", cut, fails=True)
            assert "<CLEAN>" in run("xfs_logprint", "-t", image)


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.xfs", "xfs_logprint")
def test_an_unmounted_xfs_is_clean_wherever_its_log_has_the_unmount_record(
    sparse: Sparse, loop: Loop, tmp_path: Path
) -> None:
    image, folder, cut = sparse(320 * MIB), tmp_path / "mounted", tmp_path / "cut.img"
    folder.mkdir()
    device = loop(image)
    features = ("-m", "reflink=0", "-i", "nrext64=0")  # others need a longer log
    run("env", *SMALL, find_tool("mkfs.xfs") or "", "-q", "-l", "size=6400k", *features, device)
    heads = []
    for turn in range(8):
        run("mount", device, folder)
        for at in range(1200):  # files and directories that are created and removed fill about a third of the log
            (folder / f"{at}").mkdir()
            if at % 100 == 99:
                run("sync", "-f", folder)
        for at in range(1200):
            (folder / f"{at}").rmdir()
        run("sync", "-f", folder)
        run("cp", "--sparse=always", image, cut)  # another program may have read the device, and a page be kept
        unmount(folder, device)
        run("blockdev", "--flushbufs", device)
        assert "<DIRTY>" in run("xfs_logprint", "-t", cut, fails=True)
        assert unclean(cut)
        told = run("xfs_logprint", "-t", image)
        heads.append(int(told.partition("head: ")[2].split()[0]))
        assert "<CLEAN>" in told
        assert layer_of(image).unclean is None, turn
    assert heads != sorted(heads), f"the log was never begun anew: {heads}"


@pytest.mark.needs_tools("mkfs.xfs", "xfs_db")
@pytest.mark.parametrize("flags", [0x20, 0])
def test_the_last_record_of_an_xfs_log_is_found_across_its_end(sparse: Sparse, flags: int) -> None:
    """The unmount record of mkfs, cut in two: its header in the last block, its operation in the first one.

    The blocks after the end belong to the next cycle: xlog_split_iclog(), linux/fs/xfs/xfs_log.c.
    """
    image = sparse(320 * MIB)
    run("mkfs.xfs", "-q", "-f", image)
    told = run("xfs_db", "-r", "-c", "sb 0", "-c", "print agblocks agblklog logstart logblocks blocksize", image)
    agblocks, shift, start, blocks, size = (int(line.split()[2]) for line in told.splitlines())
    log = ((start >> shift) * agblocks + (start & (1 << shift) - 1)) * size
    header, operation = bytes_of(image, log, 512), bytearray(bytes_of(image, log + 512, 512))
    assert operation[9] == 0x20
    operation[:4], operation[9] = (2).to_bytes(4), flags
    count = blocks * size // 512
    put(image, log, bytes(operation) + ((1).to_bytes(4) + bytes(508)) * (count - 2) + header)
    assert layer_of(image).unclean == (None if flags else "needs its log replayed (the last record is not an unmount)")


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.btrfs", "btrfs")
def test_a_btrfs_with_a_log_tree_is_unclean(sparse: Sparse, loop: Loop, tmp_path: Path) -> None:
    image, folder, cut = sparse(128 * MIB), tmp_path / "mounted", tmp_path / "cut.img"
    folder.mkdir()
    device = loop(image)
    run("mkfs.btrfs", "-q", device)
    run("mount", device, folder)
    (folder / "synced").write_bytes(b"some bytes")
    run("sync", "-d", folder / "synced")
    run("cp", "--sparse=always", image, cut)
    unmount(folder, device)
    told = run("btrfs", "inspect-internal", "dump-super", cut)
    assert int(next(line for line in told.splitlines() if line.startswith("log_root\t")).split()[1]) > 0
    assert unclean(cut) == "needs its log tree replayed (log root set)"


@pytest.mark.needs_tools("mkfs.ext4", "debugfs", "dumpe2fs")
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("set_super_value state 2", "error flag"),
        ("set_super_value state 3", "error flag"),
        ("set_super_value state 0", "valid flag"),
        ("set_super_value last_orphan 12", "orphan list"),
        ("feature needs_recovery", "recovery flag"),
    ],
)
def test_the_reason_why_an_ext4_is_unclean_is_reported(sparse: Sparse, request_: str, said: str) -> None:
    image = sparse(16 * MIB)
    run("mkfs.ext4", "-q", "-F", image)
    run("debugfs", "-w", "-R", request_, image)
    assert said in unclean(image)


@pytest.mark.needs_tools("mkfs.ntfs", "ntfsfix", "ntfsinfo", "ntfs-3g.probe")
def test_an_ntfs_with_its_dirty_flag_is_unclean(sparse: Sparse) -> None:
    image = sparse(16 * MIB)
    run("mkfs.ntfs", "-q", "-F", "-f", image)
    run("ntfsfix", image)  # leaves the flag set, so that Windows checks the volume
    assert "DIRTY" in run("ntfsinfo", "-f", "-m", image)
    assert unclean(image) == "was not unmounted cleanly (dirty flag set)"
    run("ntfsfix", "-d", image)
    assert layer_of(image).unclean is None


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ntfs", "ntfs-3g", "ntfs-3g.probe")
@pytest.mark.parametrize("cluster", ["512", "4096", "65536"])
@pytest.mark.parametrize("files", [0, 900])
def test_a_hibernated_windows_is_found_among_any_number_of_files(
    sparse: Sparse, tmp_path: Path, cluster: str, files: int
) -> None:
    image, folder = sparse(64 * MIB), tmp_path / "mounted"
    folder.mkdir()
    run("mkfs.ntfs", "-q", "-F", "-f", "-c", cluster, image)
    run("ntfs-3g", image, folder)
    try:
        for at in range(files):
            (folder / f"{'aghiz'[at % 5]} name that is somewhat longer {at}").touch()
        (folder / "hiberfil.sys").write_bytes(bytes(9000))
    finally:
        unmount(folder)
    assert exit_code("ntfs-3g.probe", "--readwrite", image) == 0
    assert layer_of(image).unclean is None

    run("ntfs-3g", image, folder)
    try:
        (folder / "hiberfil.sys").write_bytes(b"HIBR" + bytes(9000))
    finally:
        unmount(folder)
    assert exit_code("ntfs-3g.probe", "--readwrite", image) == 14  # NTFS_VOLUME_HIBERNATED
    assert "hiberfil.sys" in unclean(image)


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ntfs", "ntfs-3g", "ntfs-3g.probe", "ntfsinfo")
def test_a_hibernated_windows_is_found_behind_a_file_table_in_many_extents(sparse: Sparse, tmp_path: Path) -> None:
    image, folder = sparse(30 * MIB), tmp_path / "mounted"
    folder.mkdir()
    run("mkfs.ntfs", "-q", "-F", "-f", "-c", "512", image)
    run("ntfs-3g", image, folder)
    try:
        for number in range(3000):
            (folder / f"{number}").write_bytes(bytes(5000))
        with suppress(OSError), (folder / "rest").open("wb", buffering=0) as rest:
            while rest.write(bytes(4096)):
                pass
        for number in range(0, 3000, 2):  # the table grows into the gaps
            (folder / f"{number}").unlink()
        with suppress(OSError):
            for number in range(20000):
                (folder / f"new {number}").touch()
        (folder / f"new {number - 1}").unlink()
        os.truncate(folder / "rest", 64 * KIB)
        (folder / "hiberfil.sys").write_bytes(b"HIBR" + bytes(9000))
    finally:
        unmount(folder)
    assert "$ATTRIBUTE_LIST" in run("ntfsinfo", "-f", "-i", "0", image)
    assert exit_code("ntfs-3g.probe", "--readwrite", image) == 14  # NTFS_VOLUME_HIBERNATED
    assert "hiberfil.sys" in unclean(image)


@pytest.mark.needs_tools("mkfs.ntfs", "ntfscp", "ntfs-3g.probe")
@pytest.mark.parametrize("size", [0, 300, 4095])
def test_a_hibernated_windows_on_another_volume_is_found(sparse: Sparse, tmp_path: Path, size: int) -> None:
    image, content = sparse(16 * MIB), tmp_path / "content"
    content.write_bytes(bytes(size))
    run("mkfs.ntfs", "-q", "-F", "-f", image)
    run("ntfscp", image, content, "hiberfil.sys")
    assert exit_code("ntfs-3g.probe", "--readwrite", image) == 14  # NTFS_VOLUME_HIBERNATED
    assert "hiberfil.sys" in unclean(image)


@pytest.mark.needs_tools("mkfs.ntfs", "ntfscp")
def test_a_hibernated_windows_is_found_in_the_first_extent_of_a_damaged_file_table(
    sparse: Sparse, tmp_path: Path
) -> None:
    image, content = sparse(16 * MIB), tmp_path / "content"
    content.write_bytes(b"HIBR" + bytes(9000))
    run("mkfs.ntfs", "-q", "-F", "-f", "-c", "4096", image)
    run("ntfscp", image, content, "hiberfil.sys")
    table = int.from_bytes(bytes_of(image, 48, 8), "little") * 4096
    record = bytes_of(image, table, 1024)
    at = int.from_bytes(record[20:22], "little")
    while record[at] != 0x80:  # $DATA, whose last cluster is then one more than its runs have
        at += int.from_bytes(record[at + 4 : at + 8], "little")
    put(image, table + at + 24, (int.from_bytes(record[at + 24 : at + 32], "little") + 1).to_bytes(8, "little"))
    assert "hiberfil.sys" in unclean(image)


@pytest.mark.needs_tools("mkfs.ntfs", "ntfscp")
def test_a_hibernated_windows_is_found_wherever_its_name_is_in_the_index(sparse: Sparse, tmp_path: Path) -> None:
    """The position varies name by name, across the ends of sectors, where NTFS stores two bytes elsewhere."""
    image, content = sparse(16 * MIB), tmp_path / "content"
    content.write_bytes(b"found by this" + bytes(5000))
    run("mkfs.ntfs", "-q", "-F", "-f", image)
    run("ntfscp", image, content, "hiberfil.sys")
    first = image.read_bytes().index(b"found by this")
    for at in range(40):
        run("ntfscp", image, content, f"b{at}")
        assert layer_of(image).unclean is None
        put(image, first, b"hibr")
        assert "hiberfil.sys" in unclean(image), at
        put(image, first, b"foun")  # ntfscp would refuse


@pytest.mark.needs_tools("mkfs.ntfs", "ntfsinfo", "ntfs-3g.probe")
@pytest.mark.parametrize(("client", "flags", "clean"), [(0, 0, False), (0, 2, True), (0xFFFF, 0, True)])
def test_an_ntfs_log_in_use_is_unclean(sparse: Sparse, client: int, flags: int, clean: bool) -> None:
    """ntfs-3g of Debian 12 reads the same page and gives the same answer."""
    image = sparse(16 * MIB)
    run("mkfs.ntfs", "-q", "-F", "-f", "-s", "512", "-c", "4096", image)
    runs = run("ntfsinfo", "-i", "2", "-v", image)
    lcn = next(line for line in runs.splitlines() if line.startswith("\t\t\t0x0\t"))
    log = int(lcn.split()[1], 0) * 4096
    page = bytearray(4096)
    fields = (
        (0, b"RSTR"), (4, (30).to_bytes(2, "little")), (6, (9).to_bytes(2, "little")),
        (16, (4096).to_bytes(4, "little")), (20, (4096).to_bytes(4, "little")), (24, (0x30).to_bytes(2, "little")),
        (26, (1).to_bytes(2, "little")), (28, (1).to_bytes(2, "little")), (0x30, (9).to_bytes(8, "little")),
        (0x38, (1).to_bytes(2, "little")), (0x3A, b"\xff\xff"), (0x3C, client.to_bytes(2, "little")),
        (0x3E, flags.to_bytes(2, "little")),
    )  # fmt: skip
    for at, data in fields:
        page[at : at + len(data)] = data
    put(image, log, bytes(page) * 2)
    assert (layer_of(image).unclean is None) is clean


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat")
@pytest.mark.parametrize("bits", ["16", "32"])
def test_a_fat_that_linux_has_mounted_is_unclean(sparse: Sparse, bits: str) -> None:
    image = sparse(64 * MIB)
    run("mkfs.fat", "-F", bits, image)
    put(image, 0x25 if bits == "16" else 0x41, b"\x01")
    assert "Dirty bit is set" in run("fsck.fat", "-n", image, fails=True)
    assert unclean(image) == "was not unmounted cleanly (dirty flag set)"


@pytest.mark.needs_tools("mkfs.fat")
@pytest.mark.parametrize(("bits", "entry"), [("16", b"\xff\x7f"), ("32", b"\xff\xff\xff\x07")])
def test_a_fat_that_windows_has_mounted_is_unclean(sparse: Sparse, bits: str, entry: bytes) -> None:
    """ClnShutBitMask of Microsoft's FAT specification 1.03, clear in the entry of cluster 1."""
    image = sparse(64 * MIB)
    run("mkfs.fat", "-F", bits, image)
    reserved = int.from_bytes(bytes_of(image, 14, 2), "little") * 512
    put(image, reserved + int(bits) // 8, entry)
    assert unclean(image) == "was not unmounted cleanly (bit in the allocation table)"


@pytest.mark.needs_tools("mkfs.exfat", "fsck.exfat", "dump.exfat")
def test_an_exfat_with_its_dirty_flag_is_unclean(sparse: Sparse) -> None:
    image = sparse(16 * MIB)
    run("mkfs.exfat", image)
    put(image, 106, b"\x02")
    assert unclean(image) == "was not unmounted cleanly (dirty flag set)"
    put(image, 106, b"\x04")
    assert "media failure" in unclean(image)


@pytest.mark.needs_tools("mkfs.f2fs", "dump.f2fs", "fsck.f2fs")
def test_an_f2fs_without_the_unmount_flag_is_unclean(sparse: Sparse) -> None:
    """mkfs writes the flags of its only checkpoint at byte 132 of both its first and its last block."""
    image = sparse(64 * MIB)
    run("mkfs.f2fs", "-q", image)
    report = run("dump.f2fs", "-d", "3", image)
    first = int(report.partition("\ncp_blkaddr ")[2].partition(":")[2].partition("]")[0]) * 4096
    flags = int.from_bytes(bytes_of(image, first + 132, 4), "little")
    blocks = int.from_bytes(bytes_of(image, first + 136, 4), "little")
    assert flags & 1
    for block in (0, blocks - 1):
        put(image, first + block * 4 * KIB + 132, (flags & ~1).to_bytes(4, "little"))
    assert unclean(image) == "was not unmounted cleanly (checkpoint without unmount flag)"


@pytest.mark.needs_tools("mkswap", "blkid")
def test_a_hibernated_linux_is_unclean(sparse: Sparse) -> None:
    image = sparse(8 * MIB)
    run("mkswap", image)
    put(image, 4096 - 10, b"S1SUSPEND\0")
    assert "TYPE=swsuspend" in run("blkid", "-p", "-o", "export", image)
    assert unclean(image) == "holds a hibernated system (S1SUSPEND)"


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ntfs", "mkfs.fat", "mkfs.exfat", "losetup")
@pytest.mark.parametrize(
    ("command", "copied"),
    [
        (("mkfs.ntfs", "-q", "-f", "-p", "63"), 512),
        (("mkfs.fat", "-F32", "-h", "63"), 512),
        (("mkfs.exfat",), 105),  # the flags and the use in per cent, from byte 106 on, are only in the first copy
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_hidden_sectors_and_the_copy_of_the_boot_sector_are_found(
    sparse: Sparse, command: tuple[str, ...], copied: int
) -> None:
    image = sparse(64 * MIB)
    run(*command, *(("-F",) if command[0] == "mkfs.ntfs" else ()), image)
    placed = place(image, 63 * 512)
    layer = placed.layer()
    assert layer.hidden_sectors == (0 if command[0] == "mkfs.exfat" else 63)
    assert layer.backup_hidden_sectors == layer.hidden_sectors
    assert layer.backup_boot is not None
    first = bytes_of(placed.disk, 63 * 512, copied)
    assert first == bytes_of(placed.disk, 63 * 512 + layer.backup_boot, copied)
    assert first[3:8] in (b"NTFS ", b"mkfs.", b"EXFAT")
