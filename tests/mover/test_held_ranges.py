"""The held ranges are sufficient: without them blkid recognises nothing, nor with only their signatures hidden."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from aligntool.inventory import Layer, Partition
from aligntool.linux.look import look
from aligntool.mover.held_ranges import held_ranges
from aligntool.mover.hidden_signatures import View, marker, signature_bytes
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.mover.containers import CONTAINERS
from tests.mover.filesystems import Kind

Sparse = Callable[..., Path]
SIGN = marker(512, 0, bytes(16))

FORMATTERS = {
    "ext2": (9 * MIB + 512, ("mkfs.ext2", "-q", "-F")),
    "ext3": (9 * MIB + 512, ("mkfs.ext3", "-q", "-F")),
    "ext4": (9 * MIB + 1536, ("mkfs.ext4", "-q", "-F")),
    "xfs": (300 * MIB + 512, ("mkfs.xfs", "-q")),
    "btrfs": (120 * MIB + 512, ("mkfs.btrfs", "-q")),
    "ntfs": (9 * MIB + 512, ("mkfs.ntfs", "-q", "-Q", "-F")),
    "FAT12": (2 * MIB, ("mkfs.vfat", "-F", "12")),
    "FAT16": (16 * MIB + 512, ("mkfs.vfat", "-F", "16")),
    "FAT32": (40 * MIB + 512, ("mkfs.vfat", "-F", "32")),
    "exfat": (9 * MIB + 512, ("mkfs.exfat",)),
    "f2fs": (64 * MIB, ("mkfs.f2fs", "-q")),
    "swap": (9 * MIB + 512, ("mkswap",)),
}
NAMED = [
    pytest.param(name, marks=pytest.mark.needs_tools(words[0], "blkid"), id=name)
    for name, (_, words) in FORMATTERS.items()
]


def seen(image: Path) -> str:
    """Return every signature that blkid accepts in a partition of this length."""
    return run("blkid", "-p", "-o", "export", image, fails=True)


def as_partition(image: Path) -> Partition:
    disk = look((str(image),)).disks[0]
    assert disk.size is not None
    return Partition(1, Extent(0, disk.size), content=disk.content, content_read=disk.content_read)


def without(image: Path, runs: Iterable[Extent]) -> str:
    """Return what blkid recognises when these bytes are blank, a single one as in a marker; the image is restored
    afterwards.
    """
    kept = []
    with image.open("r+b") as file:
        for run_ in runs:
            file.seek(run_.start)
            kept.append((run_.start, file.read(run_.length)))
            file.seek(run_.start)
            file.write(SIGN[run_.start % 512 :][:1] if run_.length == 1 else bytes(run_.length))
        file.flush()
        found = seen(image)
        for start, raw in kept:
            file.seek(start)
            file.write(raw)
    return found


def check_held_ranges(image: Path) -> None:
    part = as_partition(image)
    held = held_ranges(part, part.extent.length, 512)
    before = seen(image)
    assert before, "blkid must see something at first"
    assert without(image, held.ranges) == ""
    raw = image.read_bytes()
    content = tuple(raw[one.start : one.end] for one in held.ranges)
    signs = signature_bytes(View(held, content, part.extent.length, SIGN))
    assert signs.vital
    assert without(image, (Extent(at, 1) for at in signs.vital)) == ""
    assert seen(image) == before


@pytest.mark.parametrize("name", NAMED)
def test_without_the_held_ranges_blkid_recognises_no_file_system(name: str, sparse: Sparse) -> None:
    size, words = FORMATTERS[name]
    image = sparse(size)
    run(*words, image)
    check_held_ranges(image)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=(*kind.marks, pytest.mark.needs_tools("blkid")), id=kind.name)
             for kind in CONTAINERS if kind.name != "unknown"]
)  # fmt: skip
def test_without_the_held_ranges_blkid_recognises_no_container(kind: Kind, sparse: Sparse) -> None:
    image = sparse(kind.length)
    kind.make(image)
    check_held_ranges(image)


@pytest.mark.needs_tools("cryptsetup", "blkid")
@pytest.mark.parametrize("metadata", ["16k", "128k", "1024k", "4096k"])
def test_the_second_luks2_header_is_held_at_any_place(metadata: str, sparse: Sparse) -> None:
    image = sparse(40 * MIB)
    run("cryptsetup", "luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2",
        "--pbkdf-force-iterations", "1000", "--luks2-metadata-size", metadata, image, "-", stdin="secret")  # fmt: skip
    check_held_ranges(image)


@pytest.mark.needs_tools("mkfs.ext4", "blkid")
def test_no_file_system_inside_a_mirror_is_recognised_when_its_superblock_is_hidden(sparse: Sparse) -> None:
    md_1_0 = next(kind for kind in CONTAINERS if kind.name == "md 1.0")
    image = sparse(md_1_0.length)
    md_1_0.make(image)
    end = image.read_bytes()[-128 * KIB :]
    run("mkfs.ext4", "-q", "-F", image, str(md_1_0.length // KIB - 256))
    with image.open("r+b") as file:
        file.seek(-128 * KIB, 2)
        file.write(end)
    assert "linux_raid_member" in seen(image)
    check_held_ranges(image)


def test_a_tiny_partition_is_held_completely() -> None:
    part = Partition(1, Extent(63 * 512, 100 * KIB), content=(Layer("vfat", Extent(63 * 512, 100 * KIB)),))
    assert held_ranges(part, part.extent.length, 512).ranges == (Extent(0, 100 * KIB),)


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("kind", ["ext4", "crypto_LUKS", "zfs_member", "something new"])
def test_ranges_are_whole_sectors_sorted_and_separate(kind: str, sector: int) -> None:
    length = 40 * MIB + 3 * sector
    held = held_ranges(Partition(1, Extent(0, length), content=(Layer(kind, Extent(0, length)),)), length, sector)
    ends = [0]
    for one in held.ranges:
        assert one.start % sector == one.length % sector == 0
        assert one.start > ends[-1] or one.start == 0
        ends.append(one.end)
    assert ends[-1] == length
