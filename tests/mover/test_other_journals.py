"""Stale journals of other moves, and a journal of which one copy cannot be written any more."""

import json
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aligntool.change import StepBegun, StepDone, from_json, to_json
from aligntool.errors import Refused
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Journal, pack, unpack
from aligntool.mover.move import realign, resume, rollback
from aligntool.steps import (
    CloseJournal,
    CopyContent,
    HoldContent,
    JournalPlace,
    ParkEntries,
    ReleaseContent,
    RewriteTable,
    Step,
    WriteJournal,
)
from aligntool.units import Extent
from tests.mover.crowded_disks import JOURNAL, Crowd, make_crowd
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.test_simulated_cuts import NoKernel, check_end, final, is_new, leads_to_new, recover

pytestmark = pytest.mark.needs_tools("sfdisk")

TYPE = 0x7F  # the type of a parked entry in an MBR


def with_place(crowd: Crowd, **changes: object) -> Crowd:
    def changed(place: JournalPlace) -> JournalPlace:
        return replace(place, **changes)  # type: ignore[arg-type]

    steps = tuple(
        replace(step, journal=changed(step.journal)) if isinstance(step, WriteJournal | CloseJournal) else step
        for step in crowd.plan.steps
    )
    return replace(crowd, plan=replace(crowd.plan, steps=steps))


def until(crowd: Crowd, platter: bytes, kind: type, file: bytes | None = None) -> tuple[bytes, bytes]:
    """Return the disk and the journal file when the last step of that kind begins."""
    disk = SimulatedDisk(platter)
    journal = None if file is None else SimulatedDisk(file)
    last = max(index for index, step in enumerate(crowd.plan.steps) if isinstance(step, kind))
    for event in realign(crowd.plan, MoveContext(disk, NoKernel(), journal), crowd.runs):
        if event == StepBegun(last):
            break
    return final(disk), final(journal) if journal else b""


@pytest.mark.parametrize("way", [resume, rollback])
@pytest.mark.parametrize("kind", [CopyContent, ReleaseContent])
def test_the_journal_file_of_a_move_that_never_began_is_refused_for_another_move(way: type, kind: type) -> None:
    """In an MBR nothing shows which of the two is meant, but the markers do."""
    crowd = with_place(make_crowd(9001, "dos"), extent=Extent(0, JOURNAL), file="journal")
    _, stale = until(crowd, crowd.platter, ParkEntries, bytes(JOURNAL))
    cut, right = until(crowd, crowd.platter, kind, bytes(JOURNAL))
    disk = SimulatedDisk(cut)
    with pytest.raises(Refused, match="another move"):
        list(way(MoveContext(disk, NoKernel(), SimulatedDisk(stale))))
    assert disk.operations == 0
    list(way(MoveContext(disk, NoKernel(), SimulatedDisk(right))))
    check_end(crowd, final(disk), new=way is resume)


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_one_copy_of_an_older_smaller_journal_is_not_taken_for_a_copy_of_the_new_one(label: str) -> None:
    crowd = make_crowd(9003, label)
    platter, _ = until(with_place(crowd, copy_length=1 << 16), crowd.platter, ParkEntries)
    cut, _ = until(crowd, platter, HoldContent)
    place = next(step.journal for step in crowd.plan.steps if isinstance(step, WriteJournal))
    damaged = bytearray(cut)
    damaged[place.extent.start : place.extent.start + SECTOR] = bytes(SECTOR)
    disk = SimulatedDisk(bytes(damaged))
    list(resume(MoveContext(disk, NoKernel())))
    check_end(crowd, final(disk), new=leads_to_new(bytes(damaged), resumed=True))


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("slot", [1, 2])
@pytest.mark.parametrize("way", [resume, rollback])
def test_a_bad_sector_in_one_copy_does_not_prevent_the_end_of_the_move(way: type, slot: int, copy: int) -> None:
    crowd = make_crowd(9005, random.Random(slot).choice(("gpt", "dos")))
    cut, _ = until(crowd, crowd.platter, HoldContent)
    place = next(step.journal for step in crowd.plan.steps if isinstance(step, WriteJournal))
    bad = place.extent.start + copy * place.copy_length + slot * 4096
    disk = SimulatedDisk(cut, bad={bad})
    list(way(MoveContext(disk, NoKernel())))
    check_end(crowd, final(SimulatedDisk(final(disk))), new=way is resume)


@pytest.mark.parametrize("seed", range(9100, 9103))
def test_the_journal_of_a_torn_parked_entry_is_still_found(seed: int) -> None:
    """An MBR has no checksum: its type may be "parked", and the rest of the entry not yet the place of the journal."""
    crowd = make_crowd(seed, "dos")
    park = next(index for index, step in enumerate(crowd.plan.steps) if isinstance(step, ParkEntries))
    before, _ = until(crowd, crowd.platter, ParkEntries)
    disk = SimulatedDisk(crowd.platter)
    for event in realign(crowd.plan, MoveContext(disk, NoKernel()), crowd.runs):
        if event == StepDone(park):
            break
    parked = final(disk)[:SECTOR]
    for end in range(446, 511):
        disk = recover(crowd, parked[:end] + before[end:], "resume")
        check_end(crowd, final(disk), new=is_new(crowd, final(disk)))
        assert TYPE not in {final(disk)[450 + 16 * index] for index in range(4)}


CHANGES: dict[str, Callable[[Any], object]] = {
    "a list is a number": lambda index: index.update(held=5),
    "a state of the table is missing": lambda index: index["images"].pop("after"),
    "more bytes than there are": lambda index: index["runs"][0].__setitem__(1, 10**9),
    "more bytes than can be counted": lambda index: index["runs"][0].__setitem__(1, 10**30),
    "a negative length": lambda index: index["runs"][0].__setitem__(1, -16),
    "no whole run": lambda index: index["runs"][0].__setitem__(1, index["runs"][0][1] - 3),
    "no runs of a partition that is copied": lambda index: index["runs"].pop(),
    "another plan": lambda index: index.update(plan="{}"),
    "no place of the journal": lambda index: index.update(plan=without(index["plan"], WriteJournal)),
    "nothing is parked": lambda index: index.update(plan=without(index["plan"], ParkEntries)),
    "no table is written": lambda index: index.update(plan=without(index["plan"], RewriteTable)),
}


def without(text: str, kind: type[Step]) -> str:
    """Return a plan without its steps of a kind."""
    plan = from_json(text)
    return to_json(replace(plan, steps=tuple(step for step in plan.steps if not isinstance(step, kind))))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_journal_body_of_another_version_is_refused(change: Callable[[Any], object]) -> None:
    """Its digest is right, so no damage explains what it contains."""
    crowd = make_crowd(9001, "dos")
    file = with_place(crowd, extent=Extent(0, JOURNAL), file="journal")
    _, journal = until(file, crowd.platter, CopyContent, bytes(JOURNAL))
    contents = Journal.open(SimulatedDisk(journal), 0).contents
    assert unpack(pack(contents), len(crowd.platter)) == contents
    raw = zlib.decompress(pack(contents))
    length = struct.unpack("<Q", raw[:8])[0]
    index = json.loads(raw[8 : 8 + length])
    change(index)
    text = json.dumps(index).encode()
    with pytest.raises(Refused, match="another version of aligntool"):
        unpack(zlib.compress(struct.pack("<Q", len(text)) + text + raw[8 + length :]), len(crowd.platter))


BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: bytes(300 << 20),
    "a long index": lambda: struct.pack("<Q", 200 << 20) + b" " * (200 << 20),
    "many values": lambda: struct.pack("<Q", 12 << 20) + b"[" + b"[]," * (4 << 20),
    "many values in a plan": lambda: struct.pack("<Q", 15 << 20) + b'{"plan": "' + b"[]," * (5 << 20),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_body_that_unpacks_to_more_than_its_disk_is_refused_before_memory_fills(name: str) -> None:
    body = zlib.compress(BOMBS[name](), 1)
    assert len(body) < 2 << 20
    tracemalloc.start()
    with pytest.raises(Refused, match="another version of aligntool"):
        unpack(body, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
