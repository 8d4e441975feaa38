"""The map of used bytes: only the bytes that it names are copied over random data, and the copy must be intact.

That is, the file system's own checker finds no error, and every file has its bytes.
"""

import hashlib
import os
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.contents.exfat import exfat_runs_to_keep
from aligntool.contents.ext import used_in_dumpe2fs
from aligntool.contents.fat import used_clusters
from aligntool.contents.used_blocks import NoMap, used_in_mapfile
from aligntool.inventory import DiskKind, Layer
from aligntool.linux import checks
from aligntool.linux.content import EDGE, MOST_RUNS, SMALLEST_GAP, UsedMap, read_used, with_edges
from aligntool.linux.file_reader import FileReader
from aligntool.realign.used_maps import read_map
from aligntool.units import GIB, KIB, MIB, TIB, Extent
from tests.audit.builders import made_disk
from tests.conftest import attached, run, unmount
from tests.contents.placed_partitions import layers_of
from tests.thorough import sample, when_thorough

Sparse = Callable[..., Path]
START = 63 * 512
RUBBISH = bytes(range(1, 256)) * 4112  # no zeros: a byte that was not copied cannot be an empty one by chance


@dataclass(frozen=True)
class Kind:
    """A file system: how it is made, how it is mounted, and its checker, which must find no error."""

    make: tuple[str, ...]
    check: tuple[str, ...]
    mount: tuple[str, ...] = ("mount",)
    size: int = 64 * MIB


EXT_CHECK = ("e2fsck", "-fn")
NTFS = Kind(("mkfs.ntfs", "-q", "-F", "-f"), ("ntfsfix", "-n"), ("ntfs-3g",))
EXFAT = Kind(("mkfs.exfat",), ("fsck.exfat", "-n"), ("mount.exfat-fuse",))
XFS = Kind(("mkfs.xfs", "-q"), ("xfs_repair", "-n"), size=320 * MIB)
BTRFS_CHECK = ("btrfs", "check", "--check-data-csum", "--readonly")
MOUNTED = {
    "ext2, 1 KiB": Kind(("mkfs.ext2", "-q", "-F", "-b", "1024"), EXT_CHECK),
    "ext3, 4 KiB": Kind(("mkfs.ext3", "-q", "-F", "-b", "4096"), EXT_CHECK),
    "ext4, 1 KiB": Kind(("mkfs.ext4", "-q", "-F", "-b", "1024"), EXT_CHECK),
    "ext4, 4 KiB": Kind(("mkfs.ext4", "-q", "-F", "-b", "4096"), EXT_CHECK),
    "ext4, meta_bg": Kind(("mkfs.ext4", "-q", "-F", "-O", "meta_bg,^resize_inode"), EXT_CHECK),
    "ext4, no flex_bg": Kind(("mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^flex_bg"), EXT_CHECK),
    "ext4, sparse_super2": Kind(("mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "sparse_super2"), EXT_CHECK),
    "ext4, no uninit": Kind(("mkfs.ext4", "-q", "-F", "-O", "^uninit_bg,^metadata_csum"), EXT_CHECK),
    "ext4, bigalloc": Kind(("mkfs.ext4", "-q", "-F", "-O", "bigalloc", "-C", "65536"), EXT_CHECK),
    "xfs": XFS,
    "xfs, 1 KiB": replace(XFS, make=(*XFS.make, "-b", "size=1024", "-m", "rmapbt=1")),
    "btrfs": Kind(("mkfs.btrfs", "-q"), BTRFS_CHECK, size=160 * MIB),
    "btrfs, no DUP": Kind(("mkfs.btrfs", "-q", "-m", "single"), BTRFS_CHECK, size=160 * MIB),
    "btrfs, mixed": Kind(("mkfs.btrfs", "-q", "--mixed"), BTRFS_CHECK, size=100 * MIB),
    "btrfs, compressed": Kind(("mkfs.btrfs", "-q"), BTRFS_CHECK, ("mount", "-o", "compress-force=zlib"), 160 * MIB),
    "ntfs": NTFS,
    "ntfs, 512": replace(NTFS, make=(*NTFS.make, "-c", "512")),
    "ntfs, 64 KiB": replace(NTFS, make=(*NTFS.make, "-c", "65536")),
    "exfat": EXFAT,
    "exfat, 512": replace(EXFAT, make=(*EXFAT.make, "-c", "512")),
}


def fill(folder: Path) -> None:
    """Write files of many lengths, and holes between them where others were deleted; some are written into these."""
    chance = random.Random(1)
    for at in range(240):
        (folder / f"{at:03} a file with a longer name").write_bytes(
            chance.randbytes(chance.choice((10, 700, 5000, 40_000, 120_000)))
        )
        if at % 3 == 2:
            (folder / f"{at - 1:03} a file with a longer name").unlink()
    (folder / "below").mkdir()
    (folder / "below" / "zeros").write_bytes(bytes(300_000))
    (folder / "below" / "pieces").write_bytes(chance.randbytes(6 * MIB))


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def mounted(device: Path, command: tuple[str, ...], folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    run(*command, device, folder)
    try:
        yield folder
    finally:
        unmount(folder, device)


def looped(image: Path, extent: Extent) -> AbstractContextManager[Path]:
    return attached(image, "-o", str(extent.start), "--sizelimit", str(extent.length))


def copy_used(disk: Path, extent: Extent, used: UsedMap) -> Path:
    """Return a file with the partition's used bytes at their places, and random data everywhere else."""
    copy = disk.with_name("copy.img")
    with disk.open("rb") as source, copy.open("wb") as target:
        while target.tell() < extent.length:
            target.write(RUBBISH[: extent.length - target.tell()])
        for part in used.runs:
            source.seek(extent.start + part.start)
            target.seek(part.start)
            target.write(source.read(part.length))
        target.truncate(extent.length)
    return copy


def the_layer(disk: Path, extent: Extent) -> Layer:
    (layer,) = layers_of(disk, extent)
    return layer


def is_sound(used: UsedMap, length: int) -> bool:
    apart = all(one.end < other.start for one, other in zip(used.runs, used.runs[1:], strict=False))
    whole = all(part.start % 512 == 0 and part.length % 512 == 0 and part.length > 0 for part in used.runs)
    ends = used.runs[0].start == 0 and used.runs[0].end >= MIB and used.runs[-1].end == length
    return apart and whole and ends and used.runs[-1].length >= MIB


@sample(7)
@pytest.mark.needs_root
@pytest.mark.needs_tools(
    "partclone.btrfs",
    "xfs_db",
    "mkfs.ext4",
    "dumpe2fs",
    "mkfs.xfs",
    "mkfs.btrfs",
    "mkfs.ntfs",
    "mkfs.exfat",
    "mount.exfat-fuse",
)
@pytest.mark.parametrize("name", MOUNTED)
def test_a_copy_of_only_the_used_bytes_is_an_intact_file_system(sparse: Sparse, tmp_path: Path, name: str) -> None:
    kind, folder = MOUNTED[name], tmp_path / "mounted"
    disk = sparse(START + kind.size + 2 * MIB)
    extent = Extent(START, kind.size + 512)  # one sector is behind the file system, for tools that read there
    with looped(disk, Extent(START, kind.size)) as device:
        run(*kind.make, device)
        with mounted(device, kind.mount, folder):
            fill(folder)
            before = hashes(folder)
    used = read_used(str(disk), extent, the_layer(disk, extent), sector_size=512)
    assert is_sound(used, extent.length) and not used.by.startswith("everything"), used.by
    assert used.bytes < kind.size * 3 // 4, "a map that names nearly everything proves nothing"

    copy = copy_used(disk, extent, used)
    with looped(copy, Extent(0, kind.size)) as device:
        run(*kind.check, device)
        with mounted(device, kind.mount, folder):
            assert hashes(folder) == before
    assert len(before) == 162


@pytest.mark.needs_root
@pytest.mark.needs_tools("partclone.btrfs", "mkfs.btrfs", "btrfs", "btrfs-map-logical")
def test_older_tree_roots_of_a_btrfs_are_used_as_well(sparse: Sparse, tmp_path: Path) -> None:
    """With the current tree root lost, a copy of the used bytes is mounted with an older one, like the original."""
    disk, folder, size = sparse(160 * MIB), tmp_path / "mounted", 160 * MIB
    with looped(disk, Extent(0, size)) as device:
        run("mkfs.btrfs", "-q", device)
        with mounted(device, ("mount",), folder):
            for turn in range(6):
                (folder / f"turn {turn}").write_bytes(bytes(100 * turn))
                run("sync", "-f", folder)
        root = re.search(r"^root\s+(\d+)$", run("btrfs", "inspect-internal", "dump-super", device), re.MULTILINE)
        assert root
        lost = [int(at) for at in re.findall(r"physical (\d+)", run("btrfs-map-logical", "-l", root[1], device))]
    used = read_used(str(disk), Extent(0, size), the_layer(disk, Extent(0, size)), sector_size=512)
    assert lost and not used.by.startswith("everything"), used.by
    for image in (disk, copy_used(disk, Extent(0, size), used)):
        with image.open("r+b") as file:
            for at in lost:
                file.seek(at)
                file.write(bytes(16 * KIB))
        with (
            looped(image, Extent(0, size)) as device,
            mounted(device, ("mount", "-o", "ro,rescue=usebackuproot"), folder),
        ):
            assert (folder / "turn 0").exists()


@pytest.mark.needs_root
@pytest.mark.needs_tools("partclone.btrfs", "mkfs.btrfs")
def test_everything_of_a_btrfs_is_used_if_its_data_are_stored_twice(sparse: Sparse) -> None:
    image = sparse(256 * MIB)
    run("mkfs.btrfs", "-q", "-m", "dup", "-d", "dup", image)
    used = read_used(str(image), Extent(0, 256 * MIB), the_layer(image, Extent(0, 256 * MIB)), sector_size=512)
    assert used.runs == (Extent(0, 256 * MIB),)
    assert "DATA|DUP" in used.by


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.xfs")
def test_everything_of_an_xfs_is_used_if_its_log_is_external(sparse: Sparse, tmp_path: Path) -> None:
    """What was written last is only in that log, whatever the superblock and the trees of free blocks state."""
    image, log, folder = sparse(320 * MIB), sparse(66 * MIB, "log.img"), tmp_path / "mounted"
    extent = Extent(0, 320 * MIB)
    with looped(image, extent) as device, looped(log, Extent(0, 66 * MIB)) as other:
        run("mkfs.xfs", "-q", "-f", "-l", f"logdev={other},size=64m", device)
        with mounted(device, ("mount", "-o", f"logdev={other}"), folder):
            (folder / "file").write_bytes(RUBBISH)
            run("sync", "-f", folder)
            run("cp", "--sparse=always", image, cut := tmp_path / "cut.img")  # as after a power cut
    used = read_used(str(cut), extent, the_layer(cut, extent), sector_size=512)
    assert used.runs == (extent,)
    assert used.by == "everything: its log is external, and may hold changes"


@pytest.mark.needs_root
@pytest.mark.needs_tools("partclone.exfat", "mkfs.exfat", "fsck.exfat")
@pytest.mark.parametrize("marked", [(), (-1,), (-2,), (-2, -1)], ids=str)
def test_clusters_that_partclone_omits_from_an_exfat_are_used(sparse: Sparse, marked: tuple[int, ...]) -> None:
    """That is, its own structures, if the bitmap lists them as free, and the last two clusters (`marked` as used)."""
    image, cluster = sparse(64 * MIB), MIB
    run("mkfs.exfat", "-c", str(cluster), image)
    with image.open("r+b") as volume:
        boot = volume.read(512)
        heap, count, root = (int.from_bytes(boot[at : at + 4], "little") for at in (88, 92, 96))
        volume.seek(heap * 512)
        bits = 1 | 1 << 20 | sum(1 << count + each for each in marked)
        volume.write(bits.to_bytes(-(-count // 8), "little"))
        volume.truncate(66 * MIB)  # a longer partition
    extent = Extent(0, 66 * MIB)
    run("fsck.exfat", "-n", image)
    used = read_used(str(image), extent, the_layer(image, extent), sector_size=512)
    assert used.by == "partclone.exfat" and is_sound(used, extent.length) and used.bytes < extent.length // 2
    for number in (*range(root - 1), 20, *(count + each for each in marked)):  # bitmap, up-case table, root directory
        place = Extent(heap * 512 + number * cluster, cluster)
        assert any(each.contains(place) for each in used.runs)


@pytest.mark.needs_tools("mkfs.exfat")
def test_each_cluster_of_a_cyclic_chain_of_an_exfat_is_listed_once(sparse: Sparse) -> None:
    """In the root directory, too, where each pass would find the bitmap again."""
    image, cluster = sparse(64 * MIB), 4 * KIB
    run("mkfs.exfat", "-c", str(cluster), image)
    with image.open("r+b") as volume:
        boot = volume.read(512)
        table, heap, root = (int.from_bytes(boot[at : at + 4], "little") for at in (80, 88, 96))
        volume.seek(table * 512 + 4 * root)
        volume.write(root.to_bytes(4, "little"))
    with image.open("rb") as volume:
        runs = list(exfat_runs_to_keep(FileReader(volume.fileno(), 64 * MIB)))
    at_root = Extent(heap * 512 + (root - 2) * cluster, cluster)
    assert sum(each.contains(at_root) for each in runs) == 1 and len(runs) < 20


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.exfat")
@pytest.mark.parametrize("fault", ["chain", "scattered chain", "system files"])
def test_an_exfat_with_too_much_to_keep_is_copied_whole(sparse: Sparse, fault: str) -> None:
    """A root directory of more than 256 MiB, or one that is full of bitmaps; to list them all took up to 50 s and
    300 MiB, for a few MiB on the disk.
    """
    image, extent = sparse(300 * MIB), Extent(0, 300 * MIB)
    run("mkfs.exfat", "-c", "512", image)
    with image.open("r+b") as volume:
        boot = volume.read(512)
        table, heap, count, root = (int.from_bytes(boot[at : at + 4], "little") for at in (80, 88, 92, 96))
        numbers = list(range(root + 1, count if "chain" in fault else root + 5))
        random.Random(1).shuffle(numbers if "scattered" in fault else [])
        volume.seek(table * 512)
        entries = bytearray(volume.read(4 * count))
        for number, after in pairwise((root, *numbers)):
            entries[4 * number : 4 * number + 4] = after.to_bytes(4, "little")
        volume.seek(table * 512)
        volume.write(entries)
        if fault == "system files":
            volume.seek((heap + root - 2) * 512)
            volume.write(b"".join(b"\x81".ljust(20, b"\0") + at.to_bytes(12, "little") for at in range(2, 66)))
    used = read_used(str(image), extent, the_layer(image, extent), sector_size=512)
    assert used.by.startswith("everything: ") and "its root directory" in used.by


@sample(2)
@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel", "mmd")
@pytest.mark.parametrize(
    ("words", "size"),
    [
        (("-F", "12"), 4 * MIB),
        (("-F", "12", "-s", "2", "-f", "1"), 3 * MIB),
        (("-F", "16"), 32 * MIB),
        (("-F", "32", "-s", "1"), 48 * MIB),
        (("-F", "32", "-S", "4096", "-s", "1"), 300 * MIB),
    ],
    ids=["FAT12", "FAT12, one table", "FAT16", "FAT32", "FAT32, 4 KiB sectors"],
)
def test_a_copy_of_only_the_used_clusters_is_an_intact_fat(
    sparse: Sparse, tmp_path: Path, words: tuple[str, ...], size: int
) -> None:
    image, names = sparse(size), [f"f{at:02}" for at in range(40)]
    run("mkfs.fat", *words, image)
    chance = random.Random(1)
    for name in names:
        (tmp_path / name).write_bytes(chance.randbytes(chance.choice((10, 700, 20_000, 50_000))))
    run("mmd", "-i", image, "::below")
    run("mcopy", "-i", image, *(tmp_path / name for name in names), "::below")
    run("mdel", "-i", image, *(f"::below/{name}" for name in names[::3]))
    (tmp_path / "pieces").write_bytes(chance.randbytes(600_000))
    run("mcopy", "-i", image, tmp_path / "pieces", "::")
    disk = sparse(START + size + MIB, "whole.img")
    with disk.open("r+b") as target:
        target.seek(START)
        target.write(image.read_bytes())
    extent = Extent(START, size)
    used = read_used(str(disk), extent, the_layer(disk, extent), sector_size=512)
    assert is_sound(used, size) and used.by == "the allocation table"
    assert used.bytes < size

    copy = copy_used(disk, extent, used)
    run("fsck.fat", "-n", copy)
    kept = ["pieces", *(f"below/{name}" for at, name in enumerate(names) if at % 3)]
    for name in kept:
        assert (tmp_path / Path(name).name).read_bytes() == _content(copy, name, tmp_path)


def _content(image: Path, name: str, folder: Path) -> bytes:
    target = folder / "read-back"
    run("mcopy", "-n", "-o", "-i", image, f"::{name}", target)
    return target.read_bytes()


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel", "mshowfat")
@pytest.mark.parametrize(("bits", "size"), [(12, 2 * MIB), (16, 6 * MIB), (32, 40 * MIB)])
def test_the_used_clusters_of_a_fat_are_those_that_mshowfat_lists(
    sparse: Sparse, tmp_path: Path, bits: int, size: int
) -> None:
    """Every second cluster is free, and the last one is used."""
    image, names, one = sparse(size), [f"f{at:02}" for at in range(13)], tmp_path / "one"
    run("mkfs.fat", "-F", str(bits), "-s", "1", image)
    one.write_bytes(b"x")
    for name in names:
        run("mcopy", "-i", image, one, f"::{name}")
    counted = run("fsck.fat", "-n", image).split()[-2].split("/")
    one.write_bytes(bytes((int(counted[1]) - int(counted[0])) * 512))
    run("mcopy", "-i", image, one, "::rest")
    run("mdel", "-i", image, *(f"::{name}" for name in names[::2]))

    with image.open("rb") as file:
        runs = tuple(used_clusters(FileReader(file.fileno(), size), 0))
    report = run("fsck.fat", "-v", "-n", image)
    start = next(int(line.split()[5]) for line in report.splitlines() if "Data area starts at byte" in line)
    listed = run("mshowfat", "-i", image, *(f"::{name}" for name in (*names[1::2], "rest")))
    clusters = {2} if bits == 32 else set()  # the root directory of FAT32 has one
    for first, last in re.findall(r"<(\d+)(?:-(\d+))?>", listed):
        clusters |= set(range(int(first), int(last or first) + 1))
    assert runs[0] == Extent(0, start)
    assert {start + (number - 2) * 512 for number in clusters} == {
        at for part in runs[1:] for at in range(part.start, part.end, 512)
    }
    assert max(clusters) == int(counted[1]) + 1


@pytest.mark.needs_tools("mkfs.fat")
def test_everything_of_a_fat_is_used_when_the_copies_of_its_table_differ(sparse: Sparse) -> None:
    image = sparse(32 * MIB)
    run("mkfs.fat", "-a", "-F", "16", "-R", "1", image)
    extent = Extent(0, 32 * MIB)
    layer = the_layer(image, extent)
    with image.open("r+b") as file:
        file.seek(512 + 40)  # an entry of the first copy, which follows the one reserved sector
        file.write(b"\xff\xff")
    used = read_used(str(image), extent, layer, sector_size=512)
    assert used == UsedMap((extent,), "everything: the copies of its allocation table differ")


@pytest.mark.needs_tools("mkswap")
def test_only_the_header_of_swap_is_used_but_all_of_a_hibernation_image(sparse: Sparse) -> None:
    image = sparse(8 * MIB)
    run("mkswap", image)
    extent = Extent(0, 8 * MIB)
    assert read_used(str(image), extent, the_layer(image, extent), sector_size=512).runs == (Extent(0, 4096),)
    with image.open("r+b") as file:
        file.seek(4096 - 10)
        file.write(b"S1SUSPEND\0")
    used = read_used(str(image), extent, the_layer(image, extent), sector_size=512)
    assert used.runs == (extent,)


@pytest.mark.needs_tools("mkswap")
def test_bytes_behind_the_pages_of_a_shorter_swap_area_are_used(sparse: Sparse) -> None:
    image = sparse(8 * MIB)
    run("mkswap", image, "4096")  # KiB
    extent = Extent(0, 8 * MIB)
    used = read_used(str(image), extent, the_layer(image, extent), sector_size=512)
    assert used.runs == (Extent(0, 4096), Extent(4 * MIB, 4 * MIB))


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_everything_is_used_where_a_hash_tree_may_follow_the_file_system(sparse: Sparse) -> None:
    """That of dm-verity also covers free blocks, and those of ChromeOS and Android have no superblock before it."""
    image, extent = sparse(16 * MIB), Extent(MIB, 14 * MIB)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", f"offset={MIB}", image, "10M")
    disk = replace(made_disk("2048+28672", kind=DiskKind.IMAGE), path=str(image))
    disk = replace(disk, partitions=(replace(disk.partitions[0], content=(the_layer(image, extent),)),))
    assert read_map(disk, 1, extent, used_only=False).by == "dumpe2fs"
    with image.open("r+b") as file:
        file.seek(11 * MIB)
        file.write(b"\x5a" * 4096)
    used = read_map(disk, 1, extent, used_only=False)
    assert used.runs == (Extent(0, extent.length),)
    assert used.by.startswith("everything: dm-verity hashes after the ext4 may cover its free blocks, too. ")
    assert read_map(disk, 1, extent, used_only=True).bytes < extent.length


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_everything_is_used_where_dm_verity_has_a_partition_of_hashes(sparse: Sparse) -> None:
    image, extent = sparse(16 * MIB), Extent(MIB, 8 * MIB)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", f"offset={MIB}", image, "8M")
    disk = replace(made_disk("2048+16384; 20480+2048 DM_verity_hash", kind=DiskKind.IMAGE), path=str(image))
    data = replace(disk.partitions[0], content=(the_layer(image, extent),))
    hashes = replace(disk.partitions[1], content=(Layer("DM_verity_hash", Extent(10 * MIB, MIB)),))
    assert read_map(replace(disk, partitions=(data,)), 1, extent, used_only=False).by == "dumpe2fs"
    assert read_map(replace(disk, partitions=(data, hashes)), 1, extent, used_only=False).runs == (
        Extent(0, extent.length),
    )


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_everything_is_used_where_the_map_cannot_be_checked(sparse: Sparse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move copies all of it then, so the plan must not promise less."""
    image, extent = sparse(16 * MIB), Extent(MIB, 8 * MIB)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", f"offset={MIB}", image, "8M")
    disk = replace(made_disk("2048+16384", kind=DiskKind.IMAGE), path=str(image))
    disk = replace(disk, partitions=(replace(disk.partitions[0], content=(the_layer(image, extent),)),))
    monkeypatch.setattr(checks, "find_program", lambda _: None)
    whole = UsedMap((Extent(0, extent.length),), "everything: e2fsck is not installed")
    assert read_map(disk, 1, extent, used_only=True) == whole


def test_everything_is_used_where_the_content_is_unknown(sparse: Sparse) -> None:
    image, extent = sparse(8 * MIB), Extent(MIB, 4 * MIB)
    for layer in (None, Layer("crypto_LUKS", extent), Layer("ext4", extent)):
        used = read_used(str(image), extent, layer, sector_size=512)
        assert used.runs == (Extent(0, 4 * MIB),)
        assert used.by.startswith("everything: ")


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_everything_of_an_unclean_or_inconsistent_ext4_is_used(sparse: Sparse) -> None:
    image, extent = sparse(32 * MIB), Extent(0, 32 * MIB)
    run("mkfs.ext4", "-q", "-F", "-O", "^metadata_csum,^uninit_bg", image)
    layer = the_layer(image, extent)
    assert read_used(str(image), extent, layer, sector_size=512).by == "dumpe2fs"
    unclean = read_used(str(image), extent, replace(layer, unclean="needs journal recovery"), sector_size=512)
    assert unclean.by == "everything: the ext4 is unclean: needs journal recovery"
    with image.open("r+b") as file:
        file.seek(1024 + 12)  # s_free_blocks_count
        file.write((77).to_bytes(4, "little"))
    used = read_used(str(image), extent, layer, sector_size=512)
    assert used.runs == (extent,)
    assert "the superblock counts 77" in used.by


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
@pytest.mark.parametrize("name", ["disk.img", "old?offset=512&disk", "LABEL=root", 'UUID="', "it's =.img"])
def test_an_ext4_is_mapped_in_an_image_of_any_name(sparse: Sparse, name: str) -> None:
    image, extent = sparse(20 * MIB, name), Extent(START, 16 * MIB)
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={START}", image, "16m")
    assert read_used(str(image), extent, the_layer(image, extent), sector_size=512).by == "dumpe2fs"


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_the_map_of_two_tib_is_small_and_covers_them(sparse: Sparse) -> None:
    image = sparse(2 * TIB)
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1", "-G", "8192", "-i", str(64 * MIB), image)
    extent = Extent(0, 2 * TIB)
    used = read_used(str(image), extent, the_layer(image, extent), sector_size=512)
    assert is_sound(used, 2 * TIB) and used.by == "dumpe2fs"
    assert used.bytes < 4 * GIB


MAP = """# Mapfile
0x03000     ?
0x00000  0x1000  +
0x01000  0x1000  ?
0x02000  0x1000  {}
"""


@pytest.mark.parametrize("status", ["+", "-", "*", "/"])
def test_only_blocks_that_a_mapfile_marks_as_untried_are_unused(status: str) -> None:
    found = used_in_mapfile(MAP.format(status).splitlines())
    assert (next(found), next(found)) == (Extent(0, 0x1000), Extent(0x2000, 0x1000))
    with pytest.raises(StopIteration) as end:
        next(found)
    assert end.value.value == (0x3000, 0x2000)


@pytest.mark.parametrize(
    ("line", "instead"),
    [("0x01000  0x1000  ?\n", ""), ("0x01000  0x1000", "0x01000  0x0800"), ("0x01000  0x1000", "0x00800  0x1800"),
     ("0x1000  ?", "many ?"), ("0x1000  ?", "0x1000"), ("0x02000  0x1000", "0x02000  -0x1000")],
)  # fmt: skip
def test_a_mapfile_with_a_gap_or_an_invalid_line_is_rejected(line: str, instead: str) -> None:
    broken = MAP.format("+").replace(line, instead)
    assert broken != MAP.format("+")
    with pytest.raises(NoMap):
        list(used_in_mapfile(broken.splitlines()))


REPORT = """Block count:              100
Free blocks:              30
Block size:               4096
Group 0: (Blocks 0-49)
  Free blocks: 10-19, 30
Group 1: (Blocks 50-99)
  Free blocks: 60-68, 90-99
"""


def test_blocks_that_dumpe2fs_does_not_list_as_free_are_used() -> None:
    runs = list(used_in_dumpe2fs(REPORT.splitlines(keepends=True), 409600))
    assert runs == [Extent(first * 4096, count * 4096) for first, count in ((0, 10), (20, 10), (31, 29), (69, 21))]


@pytest.mark.parametrize(
    ("words", "instead"),
    [("30\n", "31\n"), ("60-68", "15-23"), ("60-68", "68-60"), ("60-68", "x"), ("count:              100", "count: 99"),
     ("Block size:               4096\n", "")],
)  # fmt: skip
def test_an_inconsistent_report_is_rejected(words: str, instead: str) -> None:
    with pytest.raises(NoMap):
        list(used_in_dumpe2fs(REPORT.replace(words, instead).splitlines(keepends=True), 409600))


@pytest.fixture
def freesp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], UsedMap]:
    """Return the map of an XFS of four groups of 4 MiB for which xfs_db prints this."""
    image, program = tmp_path / "disk.img", tmp_path / "xfs_db"
    with image.open("wb") as file:
        file.truncate(16 * MIB)
        file.seek(48)
        file.write((1024).to_bytes(8, "big"))  # where its log begins
        file.seek(84)
        file.write((1024).to_bytes(4, "big"))
        file.seek(144)
        file.write((2048).to_bytes(8, "big"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    layer = Layer("xfs", Extent(0, 16 * MIB), claims_size=16 * MIB, data_unit=4096)

    def read(lines: str) -> UsedMap:
        program.write_text(f"#!/bin/sh\ncat <<.\n{lines}\n.\n")
        program.chmod(0o700)
        return read_used(str(image), layer.extent, layer, sector_size=512)

    return read


FREESP = "agno agbno len\n 1 6 1\n 1 4 1\n 1 100 600\n 2 0 1024\n from to extents blocks pct\n 512 1024 1 1 100"


@pytest.mark.needs_root
def test_only_the_longer_free_runs_that_xfs_db_lists_are_unused(freesp: Callable[[str], UsedMap]) -> None:
    first, second = Extent(0, 1124 * 4096), Extent(1724 * 4096, 324 * 4096)
    assert freesp(FREESP).runs == (first, second, Extent(3072 * 4096, 4 * MIB))


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("words", "instead"),
    [("100 600", "100 1000"), ("2 0", "1 0"), ("2 0", "9 0"), ("2 0 1024", "bad btree"), ("agno", "no"),
     ("100 600", "0 1024\n 3 0 1024")],
)  # fmt: skip
def test_an_inconsistent_list_of_free_blocks_is_rejected(
    freesp: Callable[[str], UsedMap], words: str, instead: str
) -> None:
    used = freesp(FREESP.replace(words, instead))
    assert used.by.startswith("everything: ") and used.runs == (Extent(0, 16 * MIB),)


@given(
    pieces=st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 900)), max_size=60),
    sectors=st.integers(20_000 + 900, 60_000),
    sector_size=st.sampled_from((512, 4096)),
    most_runs=st.integers(1, 20),
)
def test_the_final_map_covers_all_used_bytes_and_both_ends_in_few_runs(
    pieces: list[tuple[int, int]], sectors: int, sector_size: int, most_runs: int
) -> None:
    length = sectors * 4096
    used = [Extent(first * 4096 + 512, count * 512) for first, count in sorted(pieces)]
    final = with_edges(iter(used), length, sector_size=sector_size, by="x", most_runs=most_runs)
    for part in (*used, Extent(0, EDGE), Extent(length - EDGE, EDGE)):
        assert any(one.contains(part) for one in final.runs)
    assert is_sound(final, length) and len(final.runs) <= most_runs
    assert all(part.start % sector_size == 0 and part.length % sector_size == 0 for part in final.runs)
    found = gaps(final)
    assert all(gap >= SMALLEST_GAP for gap in found)
    all_gaps = gaps(with_edges(used, length, sector_size=sector_size, by="x"))
    assert sorted(found) == sorted(all_gaps)[max(len(all_gaps) - most_runs + 1, 0) :]


def gaps(used: UsedMap) -> list[int]:
    return [two.start - one.end for one, two in zip(used.runs, used.runs[1:], strict=False)]


@when_thorough("a quarter of a million runs")
def test_a_map_of_a_quarter_of_a_million_runs_needs_little_memory() -> None:
    """A disk of 2 TiB of which every second 4 MiB is used, and a map that is never in memory as a whole: 30 MiB."""
    length, count = 2 * TIB, 2 * TIB // (8 * MIB)
    tracemalloc.start()
    used = with_edges((Extent(at * 8 * MIB, 4 * MIB) for at in range(count)), length, sector_size=512, by="x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(used.runs) == MOST_RUNS and used.bytes < length
    assert peak < 24 * MIB


def test_a_partition_shorter_than_its_edges_is_copied_completely() -> None:
    assert with_edges((), 300 * KIB, sector_size=512, by="x").runs == (Extent(0, 300 * KIB),)
    assert MOST_RUNS == 65536


@pytest.mark.parametrize("runs", [[(9, 2)], [(4, 1), (3, 1)]], ids=["outside", "out of order"])
def test_a_run_outside_the_partition_or_out_of_order_is_rejected(runs: list[tuple[int, int]]) -> None:
    with pytest.raises(NoMap):
        with_edges((Extent(at * MIB, size * MIB) for at, size in runs), 10 * MIB, sector_size=512, by="x")
