"""A disk is used after its change was durable and before its journal was closed: resume and rollback keep what uses the
place of the journal, and what another program wrote into the table.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import RealignGoal
from aligntool.commands import ByHand
from aligntool.errors import NothingInFlight, Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.left_journals import find_left
from aligntool.mover.move import resume, rollback
from aligntool.mover.status import journal_status
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.steps import RebuildContent
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.mover.conftest import Contents
from tests.mover.disks import content_of
from tests.mover.entries import entries
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_changed_content import shrunk
from tests.mover.test_simulated_cuts import NoKernel, final
from tests.mover.test_whole_disk_cuts import Case, make
from tests.thorough import THOROUGH, sample

HEAD = 4 * KIB
Act = Callable[[Path], object]


def cuts(case: Case) -> Iterator[bytes]:
    """Yield what the last cuts leave."""
    whole = case.act(case.platter, "realign")
    for cut in range(whole.operations - 40, whole.operations):
        yield final(whole.before(cut))


def heads(place: Extent, copy_length: int) -> tuple[Extent, Extent]:
    return Extent(place.start, HEAD), Extent(place.start + copy_length, HEAD)


def changed(before: bytes, after: bytes) -> list[Extent]:
    places = range(0, len(before), SECTOR)
    return [Extent(at, SECTOR) for at in places if before[at : at + SECTOR] != after[at : at + SECTOR]]


def grow(image: Path) -> None:
    run("sfdisk", "-q", "--no-reread", "--wipe", "never", "-N", "1", image, stdin=", +\n")


def add(image: Path) -> None:
    run(
        "sfdisk",
        "-q",
        "--no-reread",
        "--wipe",
        "never",
        "--append",
        image,
        stdin=f"start={2 * MIB // SECTOR}, size=64\n",
    )


@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("act", [grow, add])
def test_a_table_that_another_program_changed_stays(
    act: Act, way: Callable[..., Iterator[object]], tmp_path: Path
) -> None:
    case = make(tmp_path, "ext2")
    journal = case.plan.journal
    image = tmp_path / "used.img"
    tried = 0
    for platter in cuts(case):
        image.write_bytes(platter)
        if platter[510:512] != b"\x55\xaa":  # sector 0 is written last
            continue
        act(image)
        used = image.read_bytes()
        disk = SimulatedDisk(used)
        with suppress(NothingInFlight, Refused, Stopped):
            list(way(MoveContext(disk, NoKernel())))
        own = heads(journal.extent, journal.copy_length) if act is grow else (journal.extent,)
        assert all(any(one.contains(each) for one in own) for each in changed(used, final(disk)))
        tried += 1
    assert tried


@pytest.mark.parametrize("way", [resume, rollback])
def test_a_table_that_was_removed_leaves_grown_content(way: Callable[..., Iterator[object]], tmp_path: Path) -> None:
    """A file system on the whole disk that was resized covers the place of the journal."""
    case = make(tmp_path, "ext2", old=final_of(make(tmp_path, "ext2")), undo=True)
    image = tmp_path / "used.img"
    tried = 0
    for platter in cuts(case):
        image.write_bytes(platter)
        if "ext2" not in run("blkid", "-p", "-o", "value", "-s", "TYPE", image, fails=True):
            continue
        run("e2fsck", "-fy", image, fails=True)
        run("resize2fs", image)
        used = image.read_bytes()
        disk = SimulatedDisk(used)
        with suppress(NothingInFlight, Refused, Stopped):
            list(way(MoveContext(disk, NoKernel())))
        for each in changed(used, final(disk)):
            assert used[each.start : each.end] == platter[each.start : each.end], "the file system has used it"
        tried += 1
    assert tried


def final_of(case: Case) -> bytes:
    return final(case.act(case.platter, "realign"))


@sample(4)
@pytest.mark.parametrize("slot", [0, 1, 2, 3, -1], ids=["head", "a record", "the other", "body", "unused end"])
@pytest.mark.parametrize("way", [resume, rollback])
def test_a_file_in_the_place_of_the_journal_of_a_shrink_stays(
    way: Callable[..., Iterator[object]], slot: int, tmp_path: Path, contents: Contents
) -> None:
    """The journal lies in free blocks of the file system, which a system may mount before the journal is closed."""
    case = shrunk("dos", tmp_path, contents)
    assert case.rebuilt
    place = case.rebuilt.plan.journal
    file = random.Random(1).randbytes(4 * KIB)
    at = place.extent.start + slot * len(file) % place.copy_length
    tried = 0
    for cut in range(case.run().operations):
        used = bytearray(final(case.run(cut)))
        if find_journal(SimulatedDisk(bytes(used)), None) is None and find_left(SimulatedDisk(bytes(used))) is None:
            continue
        used[at : at + len(file)] = file
        disk = SimulatedDisk(bytes(used))
        with suppress(NothingInFlight, Refused, Stopped):
            list(way(MoveContext(disk, NoKernel())))
        assert final(disk)[at : at + len(file)] == file, cut
        tried += 1
    assert tried


def random_bytes(old: dict[int, bytes], new: dict[int, bytes]) -> dict[int, bytes]:
    """Return a sector some of whose bytes are those that a marker would have there."""
    return {max(new): random.Random(1).randbytes(SECTOR)}


def as_before(old: dict[int, bytes], new: dict[int, bytes]) -> dict[int, bytes]:
    """Return a sector that is as it was before, as a bitmap when a file that was moved is deleted."""
    at = max(at for at in new if at >= HEAD and new[at] != old[at])
    return {at: old[at]}


@pytest.mark.parametrize("use", [random_bytes, as_before])
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_shrunk_file_system_that_is_used_before_the_table_is_written_stays(
    label: str, use: Callable[..., dict[int, bytes]], tmp_path: Path, contents: Contents
) -> None:
    """It is visible as soon as its signatures are shown, in an entry that is parked."""
    case = shrunk(label, tmp_path, contents)
    (step,) = (step for step in case.steps if isinstance(step, RebuildContent))
    offsets = [at for extent in step.held.ranges for at in range(extent.start, extent.end, SECTOR)]

    def sectors(platter: bytes) -> dict[int, bytes]:
        place = platter[step.extent.start : step.extent.start + max(offsets) + SECTOR]
        return {at: place[at : at + SECTOR] for at in offsets}

    old, new = sectors(case.platter), sectors(final(case.run()))
    written = use(old, new)
    tried = 0
    for cut in range(case.run().operations - 150, case.run().operations, 1 if THOROUGH else 5):
        used = bytearray(final(case.run(cut)))
        if sectors(bytes(used)) != new or find_journal(SimulatedDisk(bytes(used)), None) is None:
            continue
        for at, sector in written.items():
            used[step.extent.start + at : step.extent.start + at + SECTOR] = sector
        disk = SimulatedDisk(bytes(used))
        told = journal_status(disk, None)
        assert told.ways == ("resume",) or told.complete, cut
        with suppress(NothingInFlight):
            list(resume(MoveContext(disk, NoKernel())))
        found = sectors(final(disk))
        assert {at: found[at] for at in written} == written, cut
        tried += 1
    assert tried


def test_another_file_system_in_visible_content_stays(tmp_path: Path) -> None:
    """A FAT of another width has some of the bytes by which the old one is recognised."""
    image, other = tmp_path / "disk.img", tmp_path / "other.img"
    image.write_bytes(bytes(48 * MIB))
    run("sfdisk", "-q", "--no-reread", image, stdin="label: dos\nstart=63, size=81920, type=c\n")
    run("mkfs.fat", "-F", "16", "--offset", "63", image, "40960")
    run("mkfs.fat", "-C", "-F", "32", "-s", "1", other, "40960")
    made, start = other.read_bytes(), 63 * SECTOR
    found = find_plan(str(image), Request(RealignGoal(), sector_size=SECTOR))
    case = Case("vfat", image.read_bytes(), found.plan, found.runs)
    whole = case.act(case.platter, "realign")
    tried = 0
    for cut in range(whole.operations):
        platter = final(whole.before(cut))
        listed = entries(platter).get(1)
        if not (listed and listed.parked and platter[start : start + SECTOR] == case.platter[start : start + SECTOR]):
            continue
        used = platter[:start] + made + platter[start + len(made) :]
        if journal_status(SimulatedDisk(used), None).ways != ("rollback",):
            continue
        for way in (resume, rollback):
            disk = SimulatedDisk(used)
            list(way(MoveContext(disk, NoKernel())))
            result = final(disk)
            place = entries(result)[1]
            assert not place.parked and place.extent.start == start
            assert result.startswith(made, start), f"cut {cut}"
        tried += 1
    assert tried


def make_logical(image: Path) -> Case:
    """Make an MBR with a logical partition that moves, and room for another one behind it."""
    with image.open("wb") as file:
        file.truncate(80 * MIB)
    table = "label: dos\nstart=2048, size=2048\nstart=6000, size=150000, type=5\nstart=6063, size=2048\n"
    run("sfdisk", "-q", "--no-reread", image, stdin=table)
    run("mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-E", f"offset={6063 * SECTOR}", image, "1024")
    found = find_plan(str(image), Request(RealignGoal(), sector_size=SECTOR))
    return Case("ext2", image.read_bytes(), found.plan, found.runs)


def add_logical(image: Path) -> None:
    run("sfdisk", "-q", "--no-reread", "--wipe", "never", "--append", image, stdin="start=60000, size=2048\n")


@pytest.mark.parametrize("before", ["realign", "rollback"])
@pytest.mark.parametrize("way", [resume, rollback])
def test_a_logical_partition_that_was_added_stays(
    way: Callable[..., Iterator[object]], before: str, tmp_path: Path
) -> None:
    """The first sector is that of the old or the new table, and another program has changed the chain behind it."""
    image = tmp_path / "disk.img"
    case = make_logical(image)
    whole = case.act(case.platter, "realign")
    tables = {case.platter[:SECTOR], final(whole)[:SECTOR]}
    if before == "rollback":
        begun = final(whole.before(whole.operations // 2))
        whole = case.act(begun, "rollback")
    tried = 0
    for cut in range(0, whole.operations, 1 if THOROUGH else 3):
        platter = final(whole.before(cut))
        at = case.plan.journal.extent.start
        if platter[:SECTOR] not in tables or not platter.startswith(b"aligntool journal", at):
            continue
        image.write_bytes(platter)
        add_logical(image)
        used = image.read_bytes()
        disk = SimulatedDisk(used)
        with suppress(NothingInFlight, Refused, Stopped):
            list(way(MoveContext(disk, NoKernel())))
        journal = case.plan.journal
        own = heads(journal.extent, journal.copy_length)
        assert all(any(one.contains(each) for one in own) for each in changed(used, final(disk))), cut
        tried += 1
    assert tried


def test_an_old_sector_0_that_is_put_back_does_not_end_a_rollback(tmp_path: Path) -> None:
    """The new EBRs were written already, and are of no other program; content is copied back before the old table."""
    case = make_logical(tmp_path / "disk.img")
    (number,) = case.runs
    case = replace(case, runs={number: (Extent(0, MIB),)})  # all of it, so either way is open
    whole = case.act(case.platter, "realign")
    durable = (final(whole.before(cut)) for cut in range(whole.operations, 0, -1))
    new = final(whole)
    begun = next(one for one in durable if one[:SECTOR] != new[:SECTOR])
    run_back = case.act(begun, "rollback")
    old, tried = case.plan.holds[0].source, 0
    for cut in range(0, run_back.operations, 7):
        left = final(run_back.before(cut))
        used = case.platter[:SECTOR] + left[SECTOR:]
        if left == used:
            continue
        disk = SimulatedDisk(used)
        for restore in (False, True):
            with suppress(Refused, Stopped):
                list(rollback(MoveContext(disk, NoKernel()), restore_table=restore))
        result = final(disk)
        listed = entries(result)[5].extent  # the old place, or the new one if the change was complete
        assert result[listed.start : listed.end] == case.platter[old.start : old.end], cut
        tried += 1
    assert tried


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_files_over_all_of_the_journal_of_a_shrink_have_a_way_by_hand(
    label: str, tmp_path: Path, contents: Contents
) -> None:
    """The partition is still parked, and its file system is whole: only the type of its entry is missing."""
    case = shrunk(label, tmp_path, contents)
    assert case.rebuilt
    place = case.rebuilt.plan.journal.extent
    last = case.run().operations
    image = tmp_path / "filled.img"
    tried = 0
    for cut in range(last - 40, last):
        filled = bytearray(final(case.run(cut)))
        filled[place.start : place.end] = random.Random(1).randbytes(place.length)
        image.write_bytes(filled)
        try:
            list(resume(MoveContext(SimulatedDisk(bytes(filled)), NoKernel())))
        except Refused as refused:
            if refused.refusals[0].code == "not-in-flight":
                continue
            assert refused.refusals[0].code == "journal-damaged"
            assert ByHand.LOST_JOURNAL in str(refused.hint)
        with content_of(image, entries(bytes(filled))[1].extent) as content:
            if not run("blkid", "-p", content, fails=True):
                continue
            run("e2fsck", "-f", "-n", content)
        run("sfdisk", "-q", "--no-reread", "--part-type", image, "1", "83" if label == "dos" else "L")
        with pytest.raises(Refused, match="nothing is in flight"):
            list(resume(MoveContext(SimulatedDisk(image.read_bytes()), NoKernel())))
        tried += 1
    assert tried
