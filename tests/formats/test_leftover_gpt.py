"""A GPT left by sgdisk on a drive that was then made a member of an array as a whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.linux.look import look
from tests.conftest import run
from tests.contents.test_md import SIZE, superblock_1

pytestmark = pytest.mark.needs_tools("sgdisk", "wipefs", "blkid")


def member(image: Path, *, version: str = "1.2", wiped: str = "") -> Path:
    """Make a GPT with sgdisk, then md's superblock over it, as `mdadm --create` does after a confirmation."""
    run("sgdisk", "--new=1:2048:+8M", image)
    if wiped == "gpt":
        run("sgdisk", "--zap-all", image)
    with image.open("r+b") as file:
        if wiped == "start":  # as some firmware and installers do
            file.write(bytes(4096))
        if wiped == "end":
            file.seek(-512, 2)
            file.write(bytes(512))
        at, block = superblock_1(version, "raid1", data=2 << 20)
        file.seek(at)
        file.write(block)
    return image


def codes(image: Path) -> set[str]:
    inventory = look([str(image)])
    return {one.code.value for one in audit(inventory, {}).findings}


@pytest.mark.parametrize(
    ("wiped", "names"), [("", {"primary", "backup"}), ("start", {"backup"}), ("end", {"primary"}), ("gpt", set())]
)
def test_a_header_left_by_sgdisk_is_found_at_either_end(
    sparse: Callable[..., Path], wiped: str, names: set[str]
) -> None:
    image = member(sparse(SIZE), wiped=wiped)
    assert "linux_raid_member" in run("wipefs", "--noheadings", "--output=TYPE", image)
    disk = look([str(image)]).disks[0]
    assert {copy.name for copy in disk.gpt_headers} == names
    assert {copy.at for copy in disk.gpt_headers} <= {512, SIZE - 512}
    assert ("AT608" in codes(image)) == bool(names)


def test_the_table_of_a_disk_with_a_member_partition_is_not_a_leftover(sparse: Callable[..., Path]) -> None:
    image = sparse(2 * SIZE)
    run("sgdisk", "--new=1:2048:+32M", image)
    with image.open("r+b") as file:
        at, block = superblock_1("1.2", "raid1", data=2 << 20)
        file.seek((1 << 20) + at)
        file.write(block)
    disk = look([str(image)]).disks[0]
    assert disk.partitions[0].content[0].kind == "linux_raid_member"
    assert disk.gpt_headers == () and not {"AT608", "AT609"} & codes(image)


def test_the_table_inside_an_array_is_not_taken_for_that_of_the_drive(sparse: Callable[..., Path]) -> None:
    """Metadata 1.0 is at the end: the drive begins like the array, with the array's own GPT."""
    image = sparse(SIZE)
    inside = sparse(SIZE - (1 << 20), "array.img")
    run("sgdisk", "--new=1:2048:+8M", inside)
    image.write_bytes(inside.read_bytes() + bytes(1 << 20))
    at, block = superblock_1("1.0", "raid1")
    with image.open("r+b") as file:
        file.seek(at)
        file.write(block)
    assert {copy.name for copy in look([str(image)]).disks[0].gpt_headers} == {"primary"}
    assert "AT608" not in codes(image)
