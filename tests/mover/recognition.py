"""A specimen moved on a simulated disk, with every state that a power cut can leave examined by libblkid.

It counts the states, and raises AssertionError if something is recognised that is not complete. docs/crash-safety.md,
"The promise".
"""

import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path

from aligntool.change import MovePlan, Place
from aligntool.contents.layers import read_layers
from aligntool.inventory import Partition
from aligntool.mover.context import MoveContext
from aligntool.mover.held_ranges import held_ranges
from aligntool.mover.move import realign, rollback
from aligntool.realign.planning import copy_strips_for
from aligntool.steps import (
    CloseJournal,
    CopyContent,
    EntryChange,
    HoldContent,
    JournalPlace,
    ParkEntries,
    ReleaseContent,
    RewriteTable,
    Subject,
    WriteJournal,
)
from aligntool.units import MIB, Extent, align_up
from tests.conftest import run
from tests.in_memory import BytesReader
from tests.mover.libblkid import ProbedImage
from tests.mover.simulated_disk import SECTOR, SimulatedDisk
from tests.mover.superblocks import Specimen
from tests.mover.test_simulated_cuts import NoKernel

Log = list[tuple[int, bytes] | None]
SIGN = b"aligntool: a partition was here"


@dataclass(frozen=True, slots=True)
class Shift:
    """The distance of a move in sectors."""

    old: int
    new: int


@dataclass(frozen=True)
class Trip:
    specimen: Specimen
    platter: bytes
    plan: MovePlan
    runs: tuple[Extent, ...]
    old: Extent
    new: Extent

    @cached_property
    def recognised_at_target(self) -> dict[str, str]:
        with ProbedImage(self.platter) as witness:
            return witness.see(self.new.start, self.new.length)

    @property
    def counts(self) -> tuple[Extent, ...]:
        """Return the parts of the partition that must be there: the runs, and the held ranges."""
        held = next(step.held for step in self.plan.steps if isinstance(step, HoldContent))
        return (*self.runs, *held.ranges)


@cache
def pieces_of(specimen: Specimen) -> tuple[tuple[int, bytes], ...]:
    return tuple(specimen.make(specimen.length))


def make_trip(specimen: Specimen, shift: Shift, *, stale: bytes = b"") -> Trip:
    """Prepare a move. `stale`: the old content of the new place where the old place does not cover it."""
    old, new = (Extent(at * SECTOR, specimen.length) for at in (shift.old, shift.new))
    at = align_up(max(old.end, new.end), MIB)
    place = JournalPlace(Extent(at, 5 * MIB), 2 * MIB, Extent(4 * MIB, MIB))
    platter = bytearray(at + 5 * MIB + SECTOR)
    platter[new.start : new.start + len(stale)] = stale
    platter[old.start : old.end] = bytes(old.length)
    for where, raw in pieces_of(specimen):
        platter[old.start + where : old.start + where + len(raw)] = raw
    platter[:SECTOR] = _table(old, len(platter))
    layers = read_layers(BytesReader(bytes(platter)), old)
    held = held_ranges(Partition(1, old, content=layers), old.length, SECTOR)
    runs = tuple(_runs(pieces_of(specimen), old.length))
    steps = (
        WriteJournal(place),
        ParkEntries((1,), (1,)),
        HoldContent(1, old, held),
        CopyContent(1, "unknown", old, new, held, copy_strips_for(abs(new.start - old.start), place, SECTOR)),
        ReleaseContent(1, "unknown", new, held, ()),
        RewriteTable("dos", (EntryChange(1, old, new, None, None),)),
        CloseJournal(place),
    )
    disk = Subject("specimen.img", len(platter), SECTOR, "dos", None, None, None, None, "")
    plan = MovePlan("realign", disk, "anywhere", (Place(1, old, new, "a specimen"),), steps)
    return Trip(specimen, bytes(platter), plan, runs, old, new)


def _runs(pieces: Iterable[tuple[int, bytes]], length: int) -> Iterator[Extent]:
    end = 0
    for at, raw in sorted(pieces):
        start = max(end, at // SECTOR * SECTOR)
        end = max(end, min(align_up(at + len(raw), SECTOR), length))
        if start < end:
            yield Extent(start, end - start)


@cache
def _table(extent: Extent, size: int) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".img") as image:
        image.truncate(size)
        line = f"label: dos\nunit: sectors\nstart={extent.start // SECTOR}, size={extent.length // SECTOR}, type=83\n"
        run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", image.name, stdin=line)
        return Path(image.name).read_bytes()[:SECTOR]


def move_log(trip: Trip) -> Log:
    disk = SimulatedDisk(trip.platter)
    for _ in realign(trip.plan, MoveContext(disk, NoKernel()), {1: trip.runs}):
        pass
    return disk.log


def state_before_commit(trip: Trip, log: Log) -> bytes:
    """Return the disk with everything at its new place, before the table is rewritten."""
    commit = max(index for index, entry in enumerate(log) if entry and entry[0] == 0)
    platter = bytearray(trip.platter)
    for entry in log[:commit]:
        if entry:
            platter[entry[0] : entry[0] + len(entry[1])] = entry[1]
    return bytes(platter)


def rollback_log(platter: bytes) -> Log:
    disk = SimulatedDisk(platter)
    for _ in rollback(MoveContext(disk, NoKernel())):
        pass
    return disk.log


def check_every_state(
    trip: Trip, start: bytes, log: Log, luck: random.Random, *, most: int, marker: bytes = b""
) -> int:
    """Check the states and return their number. `most`: states per flush epoch. `marker`: for logs that
    contain none.
    """
    looked = 0
    with ProbedImage(trip.platter) as witness:
        seen = witness.see(trip.old.start, trip.old.length)
        assert trip.specimen.seen in (seen.get("TYPE"), seen.get("PTTYPE")), f"libblkid sees {seen} at first"
        for at in range(0, len(start), MIB):
            if start[at : at + MIB] != trip.platter[at : at + MIB]:
                witness.write(at, start[at : at + MIB])
        marker = marker or next(raw for entry in log if entry for raw in (entry[1][:SECTOR],) if raw.startswith(SIGN))
        for number, epoch in enumerate(_epochs(log)):
            there = {at: witness.read(at, SECTOR) for at in epoch}
            changes = {at: raw for at, raw in epoch.items() if there[at] != raw}
            for state in _states(changes, there, luck, most, torn=not trip.specimen.shared):
                for at, raw in state.items():
                    witness.write(at, raw)
                try:
                    _check(trip, witness, seen, marker)
                except AssertionError as error:
                    error.add_note(f"{trip.specimen.name}, epoch {number}, {len(state)} of {len(changes)} sectors")
                    raise
                for at in state:
                    witness.write(at, there[at])
                looked += 1
            for at, raw in changes.items():
                witness.write(at, raw)
        _check(trip, witness, seen, marker)
    return looked + 1


def _epochs(log: Log) -> Iterator[dict[int, bytes]]:
    epoch: dict[int, bytes] = {}
    for entry in (*log, None):
        if entry is None:
            yield epoch
            epoch = {}
        else:
            epoch |= {entry[0] + at: entry[1][at : at + SECTOR] for at in range(0, len(entry[1]), SECTOR)}


def _states(
    changes: dict[int, bytes], there: dict[int, bytes], luck: random.Random, most: int, *, torn: bool
) -> Iterator[dict[int, bytes]]:
    """Return every subset of a few sectors; for many: none, all, each, all but each, beginnings, and random ones."""
    sectors = sorted(changes)
    if len(sectors) <= 5:
        for count in range(len(sectors) + 1):
            for some in combinations(sectors, count):
                yield {at: changes[at] for at in some}
    else:
        yield {}
        yield dict(changes)
        for at in luck.sample(sectors, min(len(sectors), most // 4)):
            yield {at: changes[at]}
            yield {other: changes[other] for other in sectors if other != at}
        for _ in range(most // 4):
            cut = luck.randrange(len(sectors))
            yield {at: changes[at] for at in luck.choice((sectors[:cut], sectors[cut:]))}
            chance = luck.choice((0.02, 0.5, 0.98))
            yield {at: changes[at] for at in sectors if luck.random() < chance}
    for at in luck.sample(sectors, min(len(sectors), most // 4)) if torn else ():
        cut = luck.choice((luck.randrange(1, SECTOR), 256))
        yield {at: changes[at][:cut] + there[at][cut:]}
        yield {at: there[at][:cut] + changes[at][cut:]}


def _check(trip: Trip, witness: ProbedImage, seen: dict[str, str], marker: bytes) -> None:
    there = witness.see(trip.old.start, trip.old.length)
    for place in (trip.old, trip.new):
        found = witness.see(place.start, place.length)
        if found == trip.recognised_at_target and there == seen and place == trip.new:
            continue  # old content of that place, until the partition is hidden
        if found:
            is_below = bool(trip.specimen.below) and found.get("TYPE") == trip.specimen.below
            assert found == seen or is_below, f"{found} at {place}"
            wrong = len(set(_hidden_sectors(trip, witness, place, marker)))
            most = 1 if trip.specimen.below and not is_below else trip.specimen.signatures
            assert wrong < most, f"{found} at {place}, and {wrong} sectors are not whole"


def _hidden_sectors(trip: Trip, witness: ProbedImage, place: Extent, marker: bytes) -> Iterator[int]:
    """Return the sectors that are at least partly those of the marker; any other difference raises AssertionError."""
    for extent in trip.counts:
        was = trip.platter[trip.old.start + extent.start : trip.old.start + extent.end]
        found = witness.read(place.start + extent.start, extent.length)
        if was == found:
            continue
        for at in range(0, extent.length, SECTOR):
            before, after = was[at : at + SECTOR], found[at : at + SECTOR]
            if before != after:
                assert all(now in pair for now, *pair in zip(after, before, marker, strict=True)), (
                    f"{place} + {extent.start + at} is neither whole nor hidden"
                )
                yield extent.start + at
