"""Moves at the limits of the tables: partitions that end at the last sector that an MBR reaches."""

import random
import struct
from pathlib import Path

import pytest

from aligntool.change import MovePlan, RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.mover.context import MoveContext
from aligntool.mover.move import realign
from aligntool.mover.status import journal_status
from aligntool.mover.table import is_readable
from aligntool.realign.planning import plan_realign
from aligntool.realign.request import Request, look_at
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.mover.command_line import aligntool
from tests.mover.command_line import realign as realign_image
from tests.mover.disks import place
from tests.mover.simulated_disk import SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel

pytestmark = pytest.mark.needs_tools("sfdisk", "fdisk", "mkswap", "blkid")

LAST = 2**32  # sectors that an MBR reaches
ACTIVE = bytes.fromhex("80000000000000000000000001000000")


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
    """sfdisk made such a partition if it was given no size, on a disk of any size from 2 TiB. Since 2.41.3 it makes
    none whose last sector is 2^32 - 1 (libfdisk, c0ee6fc19), but reads and keeps one.
    """
    disk = sparse(tmp_path / "disk.img", sectors)
    target = LAST - 16384
    before = f"start=2048,size=2048\nstart={target - 16384},size={16384 - 7}"
    run("sfdisk", disk, stdin=f"label: dos\n{before}\nstart={target - 7},size=16384,type=82\n")
    place(swap, disk, (target - 7) * 512)
    realign_image(disk, "--partition", "3")
    assert f"start=  {target}, size=       16384" in run("sfdisk", "--dump", disk)
    assert "No errors detected" in run("sfdisk", "--verify", disk)
    assert 'TYPE="swap"' in run("blkid", "-p", "-O", str(target * 512), disk)


def test_a_table_whose_partition_ends_at_2tib_is_converted(swap: Path, tmp_path: Path) -> None:
    disk = sparse(tmp_path / "disk.img", LAST)
    run("fdisk", "-b", "4096", disk, stdin=f"o\nn\np\n1\n{(LAST - 16384) // 8}\n{LAST // 8 - 1}\nt\n82\nw\n")
    place(swap, disk, (LAST - 16384) * 512)
    aligntool("convert", disk, "--sector-size", "512", "--yes")
    assert f"start=  {LAST - 16384}, size=       16384" in run("sfdisk", "--dump", disk)


@pytest.mark.needs_tools("gdisk")
def test_an_empty_active_entry_of_a_protective_mbr_is_kept(swap: Path, tmp_path: Path) -> None:
    """The entry is that of the ArchWiki ("Tricking old BIOS into booting from GPT") and of Ubuntu's ISO images
    (`xorriso --mbr-force-bootable`): some BIOSes start nothing without an active entry.
    """
    disk, entry = sparse(tmp_path / "disk.img", 40 * MIB // 512), ACTIVE
    run("sfdisk", disk, stdin="label: gpt\nfirst-lba: 34\nstart=63,size=16384,type=swap\n")
    place(swap, disk, 63 * 512)
    with disk.open("r+b") as file:
        file.seek(446 + 16)
        file.write(entry)
    assert "MBR: protective" in run("gdisk", "-l", disk)
    realign_image(disk)
    assert records(disk)[1] == entry
    assert "start=        2048" in run("sfdisk", "--dump", disk)
    aligntool("convert", disk, "--sector-size", "4096", "--yes")
    assert [raw[0] for raw in records(disk)] == [0x80, 0, 0, 0]


def test_an_empty_entry_beside_that_of_a_protective_mbr_is_not_a_table() -> None:
    """A resume writes the journal's table on a disk without one, and is refused if another program's table is there."""
    sector = bytearray(512)
    sector[450], sector[462:478], sector[510:] = 0xEE, ACTIVE, b"\x55\xaa"
    struct.pack_into("<II", sector, 454, 1, MIB // 512 - 1)
    assert not is_readable(SimulatedDisk(bytes(sector) + bytes(MIB - 512)))
    sector[466] = 0x83
    assert is_readable(SimulatedDisk(bytes(sector) + bytes(MIB - 512)))


def test_status_reads_an_image_with_4096_byte_sectors_like_a_resume(tmp_path: Path) -> None:
    """`status` opens an image in sectors of 512 bytes, a resume in those of the plan: 256 * 512, the new start in the
    wrong sectors, is at a marker of the old place.
    """
    path, content = tmp_path / "disk.img", bytearray(random.Random(1).randbytes(16 * MIB))
    content[:512] = bytes(446) + struct.pack("<4xB3xII", 0x83, 9, 512) + bytes(48) + b"\x55\xaa"
    path.write_bytes(content)
    judged, _ = look_at(str(path), Request(goal=RealignGoal(grain=MIB, grain_given=True), sector_size=4096))
    plan = plan_realign(judged, RealignGoal(grain=MIB, grain_given=True), {}, ALL_FREE)
    assert [place.after.start for place in plan.places if place.after] == [256 * 4096]
    whole = moved(content, plan)
    states = set()
    for cut in range(0, whole.operations + 1, 3):
        platter = whole.before(cut).after_the_cut(random.Random(cut), torn=False)
        seen = [journal_status(SimulatedDisk(platter, sector=size), None).state for size in (512, 4096)]
        assert seen[0] == seen[1], f"{seen} before operation {cut} of {whole.operations}"
        states.add(seen[0])
    assert states == {"old", "in-flight"}


def moved(content: bytearray, plan: MovePlan) -> SimulatedDisk:
    disk = SimulatedDisk(bytes(content), sector=4096)
    for _ in realign(plan, MoveContext(disk, NoKernel(), None), {1: (Extent(0, 2 * MIB),)}):
        pass
    return disk


def records(disk: Path) -> list[bytes]:
    with disk.open("rb") as file:
        sector = file.read(512)
    return [sector[at : at + 16] for at in range(446, 510, 16)]
