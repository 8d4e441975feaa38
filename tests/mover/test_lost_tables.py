"""A disk in flight whose partition table is unreadable, or was replaced by another program."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aligntool.change import StepBegun
from aligntool.errors import NothingInFlight, Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_format import read_record
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback, status
from aligntool.steps import CloseJournal, CopyContent, HoldContent
from aligntool.units import MIB
from tests.conftest import run
from tests.mover.crowded_disks import Crowd, make_crowd
from tests.mover.simulated_disk import SECTOR, SimulatedDisk, crashes
from tests.mover.test_other_journals import until
from tests.mover.test_simulated_cuts import NoKernel, act, check_end, final, leads_to_new
from tests.mover.test_simulated_media import COPY, place_of
from tests.thorough import THOROUGH

pytestmark = pytest.mark.needs_tools("sfdisk")

STRIDE = 1 if THOROUGH else 11


def flipped(platter: bytes, *places: int) -> bytes:
    made = bytearray(platter)
    for at in places:
        made[at] ^= 0xFF
    return bytes(made)


def without_table(crowd: Crowd, platter: bytes) -> bytes:
    """Destroy the table: the checksums in both GPT headers are flipped, or the signature of the MBR.

    All four bytes: one alone could by chance be that of another state of the table, and the header a torn mix of the
    two.
    """
    if crowd.label == "dos":
        return flipped(platter, 510)
    return flipped(platter, *(at + byte for at in (SECTOR, len(platter) - SECTOR) for byte in range(16, 20)))


def copying(crowd: Crowd) -> bytes:
    return until(crowd, crowd.platter, CopyContent)[0]


def ended(platter: bytes, way: Callable[..., Iterator[object]], *, restore_table: bool = False) -> bytes:
    disk = SimulatedDisk(platter)
    with suppress(NothingInFlight):  # a rollback once content is visible at its new place
        list(way(MoveContext(disk, NoKernel()), restore_table=restore_table))
    return final(disk)


@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("seed", range(20 if THOROUGH else 2))
def test_without_a_readable_table_the_journal_is_found_and_the_table_is_restored(label: str, seed: int) -> None:
    crowd = make_crowd(9400 + seed, label)
    for kind in (HoldContent, CopyContent):
        platter = without_table(crowd, until(crowd, crowd.platter, kind)[0])
        told = status(MoveContext(SimulatedDisk(platter), NoKernel()))
        assert told.state == "in-flight" and any("cannot be read" in it for it in told.sentences)
        for way in (resume, rollback):
            check_end(crowd, ended(platter, way), new=leads_to_new(platter, resumed=way is resume))


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_table_lost_at_any_moment_does_not_lead_to_a_wrong_result(label: str) -> None:
    crowd = make_crowd(9450, label)
    ways = itertools.cycle((resume, rollback))
    whole = act(crowd, crowd.platter, "realign")
    for platter in itertools.islice(crashes(crowd.platter, whole.log, random.Random(1)), 0, None, STRIDE):
        disk = SimulatedDisk(without_table(crowd, platter))
        way = next(ways)
        try:
            list(way(MoveContext(disk, NoKernel())))
        except Stopped as stop:
            assert "complete" in str(stop) and way is rollback
            continue
        except Refused as refusal:
            if find_journal(SimulatedDisk(platter), None) is None:
                continue  # nothing was in flight
            assert disk.operations == 0
            assert "--restore-table" in refusal.hint
            list(way(MoveContext(disk, NoKernel()), restore_table=True))
        if find_journal(SimulatedDisk(platter), None) is None:
            continue  # nothing was in flight, and only what was left of a journal was zeroed
        check_end(crowd, final(disk), new=leads_to_new(platter, resumed=way is resume))


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_the_journal_is_found_without_a_table_and_without_its_first_head(label: str) -> None:
    crowd = make_crowd(9401, label)
    start = place_of(crowd).extent.start
    platter = bytearray(without_table(crowd, copying(crowd)))
    platter[start : start + SECTOR] = bytes(SECTOR)
    check_end(crowd, ended(bytes(platter), resume), new=True)


def pieces(crowd: Crowd) -> list[tuple[str, int]]:
    """Return what a copy of the journal has, and a byte of each."""
    start = place_of(crowd).extent.start
    parts = {"head": 20, "slot 1": 4096 + 20, "slot 2": 8192 + 20, "body": 12288 + 20, "end of body": 12288 + 800}
    return [(name, start + copy * COPY + at) for copy in (0, 1) for name, at in parts.items()]


def slot_of_a_newer_record(crowd: Crowd, platter: bytes) -> str:
    """Return the slot where a newer record would be, on which something relies: without it nothing may continue."""
    journal = find_journal(SimulatedDisk(platter), None)
    assert journal is not None
    newest = read_record(SimulatedDisk(platter), place_of(crowd).extent.start + 4096, journal.id)
    assert newest is not None and newest.position == journal.position
    return f"slot {newest.next_slot}"


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_piece_intact_in_one_copy_suffices_and_one_damaged_in_both_stops_the_move(label: str) -> None:
    """Every single damage and every pair of them. A record is in both slots, so only one of them is such a piece."""
    crowd = make_crowd(9402, label)
    platter = copying(crowd)
    needed = ("body", "end of body", slot_of_a_newer_record(crowd, platter))
    for (name, at), (other, at_other) in itertools.combinations_with_replacement(pieces(crowd), 2):
        damage = flipped(platter, *{at, at_other})
        if name == other and at != at_other and name in needed:
            disk = SimulatedDisk(damage)
            for way in (resume, rollback, lambda context: [status(context)]):
                with pytest.raises(Refused):
                    list(way(MoveContext(disk, NoKernel())))
            assert disk.operations == 0
            continue
        if name == other == "head" and at != at_other:
            with pytest.raises(Refused):
                ended(damage, resume)
            continue
        way = resume if (at + at_other) % 3 else rollback
        check_end(crowd, ended(damage, way), new=way is resume)


def test_a_damaged_piece_is_written_again_before_the_move_continues() -> None:
    crowd = make_crowd(9402, "gpt")
    start = place_of(crowd).extent.start
    damage = flipped(copying(crowd), start + 20, start + COPY + 12288 + 20)
    cut = final(act(crowd, damage, "resume", 12))
    again = flipped(cut, start + COPY + 20, start + 12288 + 20)
    check_end(crowd, ended(again, resume), new=True)


@pytest.mark.needs_tools("sgdisk")
@pytest.mark.parametrize("way", [resume, rollback])
def test_a_larger_clone_whose_backup_gpt_was_moved_gets_the_table_of_the_journal(
    way: Callable[..., Iterator[object]], tmp_path: Path
) -> None:
    crowd = make_crowd(9403, "gpt")
    clone = tmp_path / "clone.img"
    clone.write_bytes(copying(crowd) + bytes(MIB))
    run("sgdisk", "-e", clone)
    disk = SimulatedDisk(clone.read_bytes())
    told = status(MoveContext(disk, NoKernel()))
    assert told.state == "in-flight" and told.restore_table
    with pytest.raises(Refused, match="another program has changed"):
        list(way(MoveContext(disk, NoKernel())))
    assert disk.operations == 0
    done = ended(clone.read_bytes(), way, restore_table=True)
    check_end(crowd, done, new=way is resume)
    clone.write_bytes(done)
    run("sgdisk", "-e", clone)
    assert "No problems found" in run("sgdisk", "--verify", clone)


@pytest.mark.needs_tools("sfdisk", "sgdisk")
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("other", ["gpt", "dos"])
@pytest.mark.parametrize("way", [resume, rollback])
def test_a_table_created_by_another_program_is_replaced_by_that_of_the_journal(
    label: str, other: str, way: Callable[..., Iterator[object]], tmp_path: Path
) -> None:
    """The new table is of the same kind or of the other one."""
    crowd = make_crowd(9404, label)
    image = tmp_path / "disk.img"
    image.write_bytes(copying(crowd))
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--wipe", "never", image, stdin=f"label: {other}\n")
    done = ended(image.read_bytes(), way, restore_table=True)
    check_end(crowd, done, new=way is resume)
    image.write_bytes(done)
    assert "No errors detected" in run("sfdisk", "--verify", image)
    assert ("No problems found" in run("sgdisk", "--verify", image)) or label == "dos"
    assert f'"label": "{label}"'.replace(" ", "") in run("sfdisk", "--json", image).replace(" ", "")


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_rollback_that_finds_the_move_complete_repairs_the_table_that_it_found(label: str) -> None:
    """The last record states that the table is written, and a copy of it is torn."""
    crowd = make_crowd(9406, label)
    done = final(act(crowd, crowd.platter, "realign"))
    closing = _closing(crowd)
    torn = bytearray(closing)
    torn[SECTOR + 40 : 34 * SECTOR] = (
        crowd.platter[SECTOR + 40 : 34 * SECTOR] if label == "gpt" else closing[SECTOR + 40 : 34 * SECTOR]
    )
    disk = SimulatedDisk(bytes(torn))
    with pytest.raises(Stopped, match="complete"):
        list(rollback(MoveContext(disk, NoKernel())))
    check_end(crowd, final(disk), new=True)
    assert final(disk)[: 34 * SECTOR] == done[: 34 * SECTOR]
    assert final(disk)[-33 * SECTOR :] == done[-33 * SECTOR :]


def test_a_resume_that_finds_the_move_complete_repairs_either_copy_of_the_gpt() -> None:
    crowd = make_crowd(9406, "gpt")
    closing, done = _closing(crowd), final(act(crowd, crowd.platter, "realign"))
    for at in (SECTOR + 20, 2 * SECTOR + 40, len(closing) - SECTOR + 20, len(closing) - 33 * SECTOR + 40):
        for way in (resume, rollback):
            disk = SimulatedDisk(flipped(closing, at))
            try:
                list(way(MoveContext(disk, NoKernel())))
            except Stopped:
                assert way is rollback
            assert final(disk)[: 34 * SECTOR] == done[: 34 * SECTOR]
            assert final(disk)[-33 * SECTOR :] == done[-33 * SECTOR :]


def test_a_complete_move_is_never_parked_again() -> None:
    """The chain of EBRs is damaged between the last record and the end of the journal."""
    crowd = next(it for seed in itertools.count(9500) if _moves_logicals(it := make_crowd(seed, "dos")))
    closing, done = _closing(crowd), final(act(crowd, crowd.platter, "realign"))
    record = next(part.record_new for part in crowd.parts if part.moves and part.record_new is not None)
    assert record is not None
    damage = flipped(closing, record + 510)
    assert ended(damage, resume)[:SECTOR] == done[:SECTOR]
    check_end(crowd, ended(damage, resume), new=True)


def _moves_logicals(crowd: Crowd) -> bool:
    return any(part.moves and part.record_new is not None for part in crowd.parts)


def _closing(crowd: Crowd) -> bytes:
    disk = SimulatedDisk(crowd.platter)
    index = next(index for index, step in enumerate(crowd.plan.steps) if isinstance(step, CloseJournal))
    from aligntool.mover.move import realign

    for event in realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs):
        if event == StepBegun(index):
            break
    return final(disk)
