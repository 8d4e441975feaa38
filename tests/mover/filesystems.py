"""Every file system of these tests: how it is made and filled, read back, and checked by its own tools.

A content file holds the bytes of one partition. Nothing here handles disks or tables.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.units import MIB
from tests.conftest import find_tool, run
from tests.mover import fileset
from tests.mover.loop_mounts import looped, mounted

SECTOR = 512
Hashes = dict[str, str]


@dataclass(frozen=True)
class Kind:
    """`length` is in bytes, a multiple of a sector and nothing else. `read` and `check` do not change the content."""

    name: str
    length: int
    mbr_type: str
    gpt_type: str
    make: Callable[[Path], None]
    read: Callable[[Path], Hashes]
    check: Callable[[Path], None]
    marks: tuple[pytest.MarkDecorator, ...]
    by_hand: bool = False  # its hashes are not those of the fileset

    def parameter(self) -> object:
        return pytest.param(self, marks=self.marks, id=self.name)


LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
WINDOWS = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"
needs_root = pytest.mark.needs_root


def read_folder(fill: Callable[[Path], None]) -> Hashes:
    """Return the hashes of what `fill` writes into a folder."""
    with tempfile.TemporaryDirectory(prefix="aligntool-read-") as name:
        folder = Path(name) / "files"
        folder.mkdir()
        fill(folder)
        return fileset.hashes(folder)


def laid_out(take: Callable[[Path], None]) -> None:
    """Call `take` with a folder that holds the files, including the spacers."""
    with tempfile.TemporaryDirectory(prefix="aligntool-made-") as name:
        folder = Path(name) / "files"
        folder.mkdir()
        fileset.lay_out(folder)
        (folder.parent / "fragmented").write_bytes(fileset.fragmented())
        take(folder)


# ext2, ext3, ext4


def make_ext(content: Path, kind: str, *options: str) -> None:
    def take(folder: Path) -> None:
        run("mke2fs", "-q", "-F", "-t", kind, "-L", f"a {kind}", *options, "-d", folder, content)
        words = [f'rm "/{name}"' for name in fileset.removed_spacers()]
        words += [f'write {folder.parent / "fragmented"} "{fileset.FRAGMENTED}"']
        run("debugfs", "-w", "-f", "-", content, stdin="\n".join(words))
        run("e2fsck", "-fy", content, fails=True)  # 1: it has corrected directory sizes

    laid_out(take)


def read_ext(content: Path) -> Hashes:
    return read_folder(lambda folder: _silent("debugfs", "-R", f'rdump / "{folder}"', content))


def _silent(*command: str | Path) -> None:
    run(*command)


def check_ext(content: Path) -> None:
    run("e2fsck", "-fn", content)


def ext(name: str, sectors: int, *options: str) -> Kind:
    return Kind(
        name, sectors * SECTOR, "83", LINUX,
        lambda content: make_ext(content, name, *options), read_ext, check_ext,
        (pytest.mark.needs_tools("mkfs.ext4", "debugfs", "e2fsck"),),
    )  # fmt: skip


# XFS and btrfs


def make_xfs(content: Path) -> None:
    run("mkfs.xfs", "-q", "-f", "-L", "an xfs", content)
    with mounted(content, "mount", "-o", "loop") as folder:
        fileset.fill(folder)


def read_xfs(content: Path) -> Hashes:
    with mounted(content, "mount", "-o", "loop,ro") as folder:
        return fileset.hashes(folder)


def check_xfs(content: Path) -> None:
    run("xfs_repair", "-n", "-f", content)


def make_btrfs(content: Path) -> None:
    def take(folder: Path) -> None:
        for name in fileset.removed_spacers():
            (folder / name).unlink()
        (folder / fileset.FRAGMENTED).write_bytes(fileset.fragmented())
        run("mkfs.btrfs", "-q", "-L", "a btrfs", "--rootdir", folder, content)

    laid_out(take)


def read_btrfs(content: Path) -> Hashes:
    return read_folder(lambda folder: _silent("btrfs", "restore", content, folder))


def check_btrfs(content: Path) -> None:
    run("btrfs", "check", "--readonly", "--check-data-csum", content)


# NTFS, FAT, exFAT


def make_ntfs(content: Path) -> None:
    # Sectors per track, heads and the start are those of a disk of cylinders; `disks` writes the real start.
    run("mkntfs", "-q", "-Q", "-F", "-p", "63", "-H", "255", "-S", "63", "-c", "4096", "-L", "an ntfs", content)
    with mounted(content, "ntfs-3g") as folder:
        fileset.fill(folder)


def read_ntfs(content: Path) -> Hashes:
    with mounted(content, "ntfs-3g", "-o", "ro") as folder:
        return fileset.hashes(folder)


def check_ntfs(content: Path) -> None:
    """Check with ntfsresize, which accounts for every cluster, and ntfsfix, which compares the mirror and the backup
    boot sector.
    """
    run("ntfsresize", "--info", "--force", "--no-progress-bar", content)
    said = run("ntfsfix", "--no-action", content)
    assert "alternate boot sector... OK" in said, said
    assert "processed successfully" in said, said


def make_fat(content: Path, bits: str, cluster: str) -> None:
    def take(folder: Path) -> None:
        run("mkfs.fat", "-F", bits, "-s", cluster, "-h", "63", "-n", "A FAT", content)
        mtools("mcopy", "-s", "-m", "-i", content, *sorted(folder.iterdir()), "::")
        for name in fileset.removed_spacers():
            mtools("mdel", "-i", content, f"::{name}")
        mtools("mcopy", "-i", content, folder.parent / "fragmented", f"::{fileset.FRAGMENTED}")

    laid_out(take)


def mtools(*command: str | Path) -> None:
    """Run it in a UTF-8 locale: in the C locale mtools replaces every letter it does not know by an underscore."""
    run("env", "LC_ALL=C.UTF-8", *command)


def read_fat(content: Path) -> Hashes:
    return read_folder(lambda folder: mtools("mcopy", "-s", "-n", "-i", content, "::*", folder))


def check_fat(content: Path) -> None:
    said = run("fsck.fat", "-n", "-v", content)
    assert "differences" not in said, said  # between the boot sector and its backup; fsck.fat accepts that


def fat(bits: str, sectors: int, *, cluster: str) -> Kind:
    """Return a FAT; `cluster` is in sectors."""
    return Kind(
        f"fat{bits}", sectors * SECTOR, {"12": "01", "16": "0e", "32": "0c"}[bits], WINDOWS,
        lambda content: make_fat(content, bits, cluster), read_fat, check_fat,
        (pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel"),),
    )  # fmt: skip


def make_exfat(content: Path) -> None:
    run("mkfs.exfat", "-L", "an exfat", content)
    with looped(content) as device, mounted(device, "mount.exfat-fuse") as folder:
        fileset.fill(folder)


def read_exfat(content: Path) -> Hashes:
    with looped(content) as device, mounted(device, "mount.exfat-fuse", "-o", "ro") as folder:
        return fileset.hashes(folder)


def check_exfat(content: Path) -> None:
    said = run("fsck.exfat", "-n", content)
    assert ": clean." in said, said


# f2fs


def make_f2fs(content: Path) -> None:
    def take(folder: Path) -> None:
        for name in fileset.removed_spacers():
            (folder / name).unlink()
        (folder / fileset.FRAGMENTED).write_bytes(fileset.fragmented())
        run("mkfs.f2fs", "-q", "-l", "an f2fs", content)
        run("sload.f2fs", "-f", folder, content)

    laid_out(take)


def read_f2fs(content: Path) -> Hashes:
    """Read each file: dump.f2fs writes one at a time, into a folder of its own, so the tree comes from fsck.f2fs."""
    found: Hashes = {}
    branch: list[str] = []
    dump = find_tool("dump.f2fs") or "dump.f2fs"
    for depth, name, inode in _f2fs_tree(content):
        branch[depth:] = [name]
        with tempfile.TemporaryDirectory(prefix="aligntool-read-") as folder:
            run("env", "-C", folder, dump, "-i", inode, content.absolute(), stdin="y\n")
            dumped = fileset.hashes(Path(folder))
        found["/".join(branch)] = dumped.get(f"lost_found/{name}", "a folder")
    return found


def _f2fs_tree(content: Path) -> list[tuple[int, str, str]]:
    """Return (depth, name, inode in hexadecimal) of every entry, in traversal order."""
    said = run("fsck.f2fs", "-t", content, stdin="n\n")
    lines = re.findall(r"^((?:\|   )*)\|-- (.*) <ino = (0x[0-9a-f]+)>", said, re.MULTILINE)
    return [(len(bars) // 4, name, inode) for bars, name, inode in lines]


def check_f2fs(content: Path) -> None:
    said = run("fsck.f2fs", "--dry-run", "-f", content)
    assert "[Fail]" not in said, said
    assert "other corrupted bugs                           [Ok..]" in said, said


FILESYSTEMS = (
    ext("ext2", 16 * 2048 + 1, "-b", "1024"),
    ext("ext3", 24 * 2048 + 5),
    ext("ext4", 24 * 2048 + 7),
    Kind("xfs", 300 * MIB + 3 * SECTOR, "83", LINUX, make_xfs, read_xfs, check_xfs,
         (pytest.mark.needs_tools("mkfs.xfs", "xfs_repair"), needs_root)),
    Kind("btrfs", 128 * MIB + 9 * SECTOR, "83", LINUX, make_btrfs, read_btrfs, check_btrfs,
         (pytest.mark.needs_tools("mkfs.btrfs", "btrfs"),)),
    Kind("ntfs", 16 * MIB + 11 * SECTOR, "07", WINDOWS, make_ntfs, read_ntfs, check_ntfs,
         (pytest.mark.needs_tools("mkntfs", "ntfs-3g", "ntfsfix", "ntfsresize"), needs_root)),
    fat("12", 8 * 2048 + 13, cluster="8"),
    fat("16", 20 * 2048 + 3, cluster="2"),
    fat("32", 80 * 2048 + 1, cluster="2"),
    Kind("exfat", 16 * MIB + 5 * SECTOR, "07", WINDOWS, make_exfat, read_exfat, check_exfat,
         (pytest.mark.needs_tools("mkfs.exfat", "fsck.exfat", "mount.exfat-fuse"), needs_root)),
    Kind("f2fs", 64 * MIB + 7 * SECTOR, "83", LINUX, make_f2fs, read_f2fs, check_f2fs,
         (pytest.mark.needs_tools("mkfs.f2fs", "fsck.f2fs", "sload.f2fs", "dump.f2fs"),)),
)  # fmt: skip
