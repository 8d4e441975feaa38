"""A sparse image whose file system has less space than a change fills of its holes: refused before the first write."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from aligntool.linux.block import DiskDevice
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.run_aligntool import run_aligntool


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=22m", "aligntool-test", folder)
    try:
        yield folder
    finally:
        run("umount", folder)


def make_image(folder: Path) -> Path:
    """Make a sparse image of 200 MiB with 16 MiB of data in an ext4 that begins at sector 63."""
    image, tree = folder / "disk.img", folder.parent / "tree"
    tree.mkdir()
    (tree / "data").write_bytes(random.Random(1).randbytes(16 * MIB))
    image.touch()
    os.truncate(image, 200 * MIB)
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", image, stdin="label: dos\nstart=63, size=163840, type=83\n")
    run("mkfs.ext4", "-q", "-F", "-d", tree, "-E", f"offset={63 * 512}", image, "80M")
    return image


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "mkfs.ext4", "e2fsck", "mount")
def test_a_sparse_image_without_space_for_its_holes_is_refused_unchanged(small: Path) -> None:
    image = make_image(small)
    before = image.read_bytes()
    done = run_aligntool("realign", "--yes", image, code=3)
    assert "is sparse" in done.stderr and f"df -h {image}" in done.stderr
    free = os.statvfs(small)
    assert f"{free.f_bfree * free.f_frsize // KIB}KiB are free" in done.stderr
    assert image.read_bytes() == before
    run("mount", "-o", "remount,size=200m", small)
    run_aligntool("realign", "--yes", image, code=0)


def test_the_holes_of_a_place_are_what_a_file_grows_by_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(4 * MIB)
        for at in (0, 64 * KIB, MIB, 3 * MIB):
            file.seek(at)
            file.write(b"x" * 8 * KIB)
    places = (Extent(4 * KIB, 128 * KIB), Extent(MIB - 16 * KIB, 20 * KIB), Extent(4 * MIB - 4 * KIB, 4 * KIB))
    descriptor = os.open(path, os.O_RDWR)
    try:
        with DiskDevice(descriptor) as device:
            found = device.room_for(places)
        before = os.fstat(descriptor).st_blocks
        for place in places:
            os.pwrite(descriptor, b"y" * place.length, place.start)
        os.fsync(descriptor)
        assert found is not None
        assert found[0] == (os.fstat(descriptor).st_blocks - before) * 512
    finally:
        os.close(descriptor)
