"""Content made on a disk in flight by another program, and content that only seems to have been made since."""

import tempfile
from pathlib import Path

import pytest

from aligntool.mover.context import MoveContext
from aligntool.mover.disk_state import foreign_content
from aligntool.mover.journal import Journal
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.steps import CopyContent, HoldContent
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.fuzz.handmade_layers import md_0_90, swap
from tests.mover.disks import blkid
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel, act_on, final

pytestmark = pytest.mark.needs_tools("mke2fs", "sfdisk")


def moved_beside_md(label: str) -> tuple[bytes, Journal, Extent]:
    """Return a disk in the middle of a move, its journal, and its last partition, which stays: md 0.90 at its end."""
    at, superblock = md_0_90(4 * MIB)
    with tempfile.TemporaryDirectory(prefix="aligntool-") as folder:
        image = Path(folder, "disk.img")
        image.write_bytes(bytes(12 * MIB))
        run("mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-E", f"offset={63 * 512}", image, "2m")
        run("sfdisk", "-q", image, stdin=f"label: {label}\nstart=63, size=4096, type=83\nstart=16384, type=fd\n")
        content = bytearray(image.read_bytes())
        content[8 * MIB + at : 8 * MIB + at + len(superblock)] = superblock
        image.write_bytes(content)
        found = find_plan(str(image), Request())
    cut = act_on(SimulatedDisk(bytes(content)), found.plan, found.runs, "realign").operations // 2
    left = final(act_on(SimulatedDisk(bytes(content), cut=cut), found.plan, found.runs, "realign"))
    journal = find_journal(SimulatedDisk(left), None)
    assert journal and isinstance(journal.contents.plan.steps[journal.position.step], CopyContent)
    return left, journal, Extent(8 * MIB, 4 * MIB)


def test_metadata_at_the_end_of_the_last_partition_are_not_those_of_the_disk() -> None:
    """Otherwise they would be those of an array that was made of the whole disk meanwhile."""
    left, journal, last = moved_beside_md("dos")
    assert last.end == len(left)
    damaged = SimulatedDisk(bytes(512) + left[512:])
    assert not list(foreign_content(damaged, journal, [Extent(0, damaged.size)]))
    list(resume(MoveContext(damaged, NoKernel()), restore_table=True))
    assert final(damaged)[last.start :] == left[last.start :]


def test_an_unreadable_sector_neither_hides_a_new_file_system_nor_stops_the_search() -> None:
    left, journal, _ = moved_beside_md("dos")
    step = next(step for step in journal.contents.plan.steps if isinstance(step, HoldContent))
    bad = [step.source.start + 4096, 4096]
    places = [step.source, Extent(0, len(left))]
    assert not list(foreign_content(SimulatedDisk(bytes(512) + left[512:], bad=bad), journal, places))
    at, superblock = swap()
    used = bytes(at) + superblock + left[at + len(superblock) :]
    ((place, layer),) = foreign_content(SimulatedDisk(used, bad=bad), journal, [places[1]])
    assert (place, layer.kind) == (places[1], "swap")


@pytest.mark.needs_tools("sfdisk", "mke2fs", "blkid")
def test_remains_of_an_old_file_system_in_a_container_are_not_touched(tmp_path: Path) -> None:
    image, start, remains = tmp_path / "disk.img", 126, Extent(2048 * SECTOR, 700 * KIB)
    with image.open("xb") as file:
        file.truncate(16 * MIB)
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart=63, type=5, size=20000\nstart={start}, size=1500\n")
    run("mke2fs", "-q", "-F", "-E", f"offset={remains.start}", image, "700k")
    found = find_plan(str(image), Request())
    before = image.read_bytes()
    disk = SimulatedDisk(before)
    list(realign(found.plan, MoveContext(disk, NoKernel()), found.runs))
    (step,) = (step for step in found.plan.steps if isinstance(step, CopyContent))
    assert step.target.start % 4096 == 0 and not step.target.overlaps(remains)
    after = final(disk)
    assert after[remains.start : remains.end] == before[remains.start : remains.end]
    assert blkid(image, remains)["ID_FS_TYPE"] == "ext2"
