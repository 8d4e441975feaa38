"""Moves at the limits of the tables: partitions that end at the last sector that an MBR reaches."""

from pathlib import Path

import pytest

from aligntool.units import MIB
from tests.conftest import run
from tests.moving.command_line import aligntool, realign
from tests.moving.disks import place

pytestmark = pytest.mark.needs_tools("sfdisk", "fdisk", "mkswap", "blkid")

LAST = 2**32  # sectors that an MBR reaches


def sparse(path: Path, sectors: int) -> Path:
    with path.open("wb") as file:
        file.truncate(sectors * 512)
    return path


@pytest.fixture
def swap(tmp_path: Path) -> Path:
    path = sparse(tmp_path / "swap", 8 * MIB // 512)
    run("mkswap", path)
    return path


@pytest.mark.parametrize("sectors", [LAST, LAST + 1])
def test_a_partition_may_end_at_2tib_of_an_mbr(sectors: int, swap: Path, tmp_path: Path) -> None:
    """sfdisk makes such a partition if it is given no size, on a disk of any size from 2 TiB."""
    disk = sparse(tmp_path / "disk.img", sectors)
    target = LAST - 16384
    end = f"start=  {target}, size=       16384"
    run("sfdisk", disk, stdin=f"label: dos\nstart={target}\n")
    assert end in run("sfdisk", "--dump", disk)
    before = f"start=2048,size=2048\nstart={target - 16384},size={16384 - 7}"
    run("sfdisk", disk, stdin=f"label: dos\n{before}\nstart={target - 7},size=16384,type=82\n")
    place(swap, disk, (target - 7) * 512)
    realign(disk, "--partition", "3")
    assert end in run("sfdisk", "--dump", disk)
    assert 'TYPE="swap"' in run("blkid", "-p", "-O", str(target * 512), disk)


def test_a_table_for_sectors_of_4096_bytes_is_converted_if_its_partition_ends_at_2tib(
    swap: Path, tmp_path: Path
) -> None:
    disk = sparse(tmp_path / "disk.img", LAST)
    run("fdisk", "-b", "4096", disk, stdin=f"o\nn\np\n1\n{(LAST - 16384) // 8}\n{LAST // 8 - 1}\nt\n82\nw\n")
    place(swap, disk, (LAST - 16384) * 512)
    aligntool("convert", disk, "--sector-size", "512", "--yes")
    assert f"start=  {LAST - 16384}, size=       16384" in run("sfdisk", "--dump", disk)
