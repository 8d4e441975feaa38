"""How the kernel is informed of partitions, against lsblk, partx and sysfs."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.lock import KernelView, add_partitions, forget_partitions
from aligntool.units import MIB, Extent
from tests.conftest import run

Attach = Callable[..., Path]
Make = Callable[..., Path]

TABLE = "label: dos\nstart=2048, size=2048\nstart=4096, size=4096, type=5\nstart=6144, size=1024\n"


@contextmanager
def disk(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.fixture
def parted_disk(sparse: Make, loop: Attach) -> Iterator[Path]:
    """Make a loop device with partitions 1, 2 (extended) and 5 in its table and, by partx, in the kernel."""
    image = sparse(16 * MIB)
    run("sfdisk", "-q", image, stdin=TABLE)
    node = loop(image)
    run("partx", "-a", node)
    if len(shown(node)) != 3:
        pytest.skip("this kernel shows no partitions of loop devices")
    yield node


def shown(node: Path) -> dict[str, tuple[int, int]]:
    """Return the start and length in bytes of each partition that lsblk lists, by name."""
    listed = json.loads(run("lsblk", "-Jbo", "NAME,TYPE,START,SIZE", node))["blockdevices"][0]
    parts = [part for part in listed.get("children", []) if part["type"] == "part"]
    return {part["name"]: (part["start"] * 512, part["size"]) for part in parts}


def name(node: Path, number: int) -> str:
    return f"{node.name}p{number}"


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "lsblk")
def test_a_partition_is_removed_and_added_elsewhere_while_the_others_remain(parted_disk: Path) -> None:
    before = shown(parted_disk)
    with disk(parted_disk) as descriptor, (Path("/dev") / name(parted_disk, 1)).open("rb"):
        forget_partitions(descriptor, [5])
        assert shown(parted_disk) == {key: before[key] for key in before if not key.endswith("p5")}
        forget_partitions(descriptor, [5, 9])
        add_partitions(descriptor, [(5, Extent(3 * MIB + 512, 1 * MIB))])
        assert shown(parted_disk) == before | {name(parted_disk, 5): (3 * MIB + 512, MIB)}


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "lsblk")
def test_the_kernel_view_equals_the_output_of_lsblk(parted_disk: Path) -> None:
    with disk(parted_disk) as descriptor:
        view = KernelView(descriptor)
        assert view.numbers() == (1, 2, 5)
        found = {name(parted_disk, number): (it.start, it.length) for number, it in view.extents().items()}
        assert found == shown(parted_disk)


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "lsblk")
def test_only_partitions_that_were_removed_are_added_again(parted_disk: Path) -> None:
    before = shown(parted_disk)
    with disk(parted_disk) as descriptor:
        view = KernelView(descriptor)
        view.forget({2, 5, 7})
        assert shown(parted_disk) == {name(parted_disk, 1): before[name(parted_disk, 1)]}
        view.add_absent([(1, Extent(8 * MIB, MIB)), (2, Extent(2 * MIB, 1024)), (5, Extent(3 * MIB, MIB))])
        assert shown(parted_disk) == {
            name(parted_disk, 1): before[name(parted_disk, 1)],
            name(parted_disk, 2): (2 * MIB, 1024),
            name(parted_disk, 5): (3 * MIB, MIB),
        }


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "lsblk")
def test_a_partition_in_use_is_refused_and_nothing_is_removed(parted_disk: Path) -> None:
    before = shown(parted_disk)
    with disk(parted_disk) as descriptor, (Path("/dev") / name(parted_disk, 5)).open("rb"):
        with pytest.raises(Refused, match="partition 5 is in use"):
            KernelView(descriptor).forget((1, 5))
        assert shown(parted_disk) == before


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "lsblk")
def test_a_disk_whose_partitions_the_kernel_does_not_show_stays_that_way(sparse: Make, loop: Attach) -> None:
    image = sparse(16 * MIB)
    run("sfdisk", "-q", image, stdin=TABLE)
    node = loop(image)
    if shown(node):
        pytest.skip("this kernel shows the partitions of every loop device")
    with disk(node) as descriptor:
        view = KernelView(descriptor)
        view.forget([1, 2, 5])
        view.add_absent([(1, Extent(MIB, MIB))])
    assert shown(node) == {}


def test_an_image_file_has_no_partitions_in_the_kernel(sparse: Make) -> None:
    with disk(sparse(MIB)) as descriptor:
        view = KernelView(descriptor)
        assert view.numbers() == ()
        view.forget([1])
        view.add_absent([(1, Extent(4096, 4096))])


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "lsblk")
def test_an_overlapping_partition_is_an_error_of_the_kernel(parted_disk: Path) -> None:
    with disk(parted_disk) as descriptor, pytest.raises(OSError, match="busy"):
        add_partitions(descriptor, [(6, Extent(MIB, MIB))])
