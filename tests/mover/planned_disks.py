"""Small disks with real tables and odd contents, and the plans that the planner makes for them.

A seed gives the platter, the plan and the runs. Tables are written by sfdisk; contents are made by mkfs, or are made-up
superblocks at odd places, or noise.
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from aligntool.change import MovePlan, RealignGoal, Used
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.realign.planning import plan_realign
from aligntool.realign.request import Request, look_at
from aligntool.steps import CloseJournal, HoldContent, JournalPlace, ReleaseContent, WriteJournal
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.fuzz import handmade_layers

TIGHT = (300 * KIB, 600 * KIB, 1126 * KIB, 2150 * KIB)
SPARES = (*TIGHT, 4 * MIB)  # free behind the last partition: for the journal, and to move into
GAPS = (0, 1, 3, 8, 33, 300)  # sectors
LENGTHS = (60 * KIB, 200 * KIB, 700 * KIB, 1500 * KIB, 4200 * KIB)


@dataclass(frozen=True, slots=True)
class Planned:
    platter: bytes
    sector: int
    plan: MovePlan
    runs: dict[int, tuple[Extent, ...]]

    def content(self, platter: bytes, step: HoldContent, start: int) -> list[bytes]:
        """Return the used content of a partition that begins at `start`, without the patched ranges."""
        patches = [patch for one in self.plan.steps if isinstance(one, ReleaseContent)
                   if one.partition == step.partition for patch in one.patches]  # fmt: skip
        found = []
        for extent in sorted({*self.runs[step.partition], *step.held.ranges}):
            raw = bytearray(platter[start + extent.start : start + extent.end])
            for patch in patches:
                if extent.start <= patch.at < extent.end:
                    at = patch.at - extent.start
                    raw[at : at + patch.length] = bytes(patch.length)
            found.append(bytes(raw))
        return found

    @property
    def in_file(self) -> "Planned":
        """Return the same with its journal at the beginning of a file."""
        return replace(self, plan=with_journal_in_file(self.plan))


def with_journal_in_file(plan: MovePlan) -> MovePlan:
    """Return the plan with its journal at the beginning of a file."""

    def moved(place: JournalPlace) -> JournalPlace:
        return replace(place, extent=replace(place.extent, start=0), file="journal")

    steps = tuple(
        replace(step, journal=moved(step.journal)) if isinstance(step, WriteJournal | CloseJournal) else step
        for step in plan.steps
    )
    return replace(plan, steps=steps)


def make_planned(seed: int, label: str, sector: int, spares: tuple[int, ...] = SPARES) -> Planned:
    """Make the same disk for the same seed; one for which there is no plan is drawn again."""
    luck = random.Random(f"{seed} {label} {sector}")
    while True:
        with tempfile.TemporaryDirectory(prefix="aligntool-planned-") as folder:
            image = Path(folder, "disk.img")
            _make(image, luck, label, sector, spares)
            found = _plan(image, luck, sector)
        if found is not None:
            return found


def _plan(image: Path, luck: random.Random, sector: int) -> Planned | None:
    grain = luck.choice((MIB, 64 * KIB, 256 * KIB))
    goal = RealignGoal(grain=grain, grain_given=sector == 4096 or luck.random() < 0.3)
    judged, _ = look_at(str(image), Request(goal=goal, sector_size=sector))
    runs = {part.number: _runs(luck, part.extent.length, sector) for part in judged.disk.partitions}
    used = {number: Used(number, sum(run.length for run in those), "drawn") for number, those in runs.items()}
    try:
        plan = plan_realign(judged, goal, used, ALL_FREE)
    except Refused:
        return None
    if not plan.steps:
        return None
    return Planned(image.read_bytes(), sector, plan, runs)


def _runs(luck: random.Random, length: int, sector: int) -> tuple[Extent, ...]:
    """Return a map of used runs: everything, nothing, or pieces that end anywhere in the held ranges."""
    kind = luck.random()
    if kind < 0.3:
        return (Extent(0, length),)
    if kind < 0.35:
        return ()
    found, at = [], luck.choice((0, luck.randrange(length // sector))) * sector
    while at < length:
        size = min(luck.randint(1, 120) * luck.choice((1, 8)) * sector, length - at)
        found.append(Extent(at, size))
        at += size + luck.randint(1, 60) * luck.choice((1, 8)) * sector
    return tuple(found)


def _make(image: Path, luck: random.Random, label: str, sector: int, spares: tuple[int, ...]) -> None:
    rows, at = [], luck.choice((34, 63))
    primaries = luck.randint(1, 3)
    lines = [f"label: {label}", "unit: sectors", "grain: 512", *(["first-lba: 34"] if label == "gpt" else [])]
    for _ in range(primaries):
        at += luck.choice(GAPS)
        rows.append((at, luck.choice(LENGTHS) // sector + luck.randint(0, 7)))
        at = sum(rows[-1])
        lines.append(
            f"start={rows[-1][0]}, size={rows[-1][1]}, type={'L' if label == 'gpt' else luck.choice(('83', '7', 'c'))}"
        )
    if label == "dos" and luck.random() < 0.7:
        logicals, begin = [], at + luck.choice(GAPS)
        at = begin
        for _ in range(luck.randint(1, 3)):
            at += luck.choice((1, 2, 63, 300))
            logicals.append((at, luck.choice(LENGTHS) // sector + luck.randint(0, 7)))
            at = sum(logicals[-1])
        at += luck.choice(GAPS)
        lines.append(f"4 : start={begin}, size={at - begin}, type=5")
        lines += [f"{5 + index} : start={start}, size={size}, type=83" for index, (start, size) in enumerate(logicals)]
        rows += logicals
    size = (at * sector + luck.choice(spares)) // sector * sector + 40 * sector
    with image.open("wb") as file:
        file.write(luck.randbytes(size))
        file.seek(510)
        file.write(bytes(2))
        for start, length in rows:
            for at_, piece in _content(luck, length * sector, sector):
                file.seek(start * sector + at_)
                file.write(piece)
        for at, piece in _table(lines, size // sector, sector, gpt=label == "gpt"):
            file.seek(at)
            file.write(piece)


def _table(lines: list[str], sectors: int, sector: int, *, gpt: bool) -> list[tuple[int, bytes]]:
    """Return a table written by sfdisk for sectors of 512 bytes. Sector numbers mean the same for larger ones; only the
    two entry arrays of a GPT are one piece, whatever the size of the sectors.
    """
    with tempfile.NamedTemporaryFile(suffix=".img") as image:
        image.truncate(sectors * 512)
        run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", image.name, stdin="\n".join(lines) + "\n")
        raw = Path(image.name).read_bytes()
    arrays = (2, sectors - 33) if gpt else ()
    found = []
    for number in range(sectors):
        piece = raw[number * 512 : (number + 1) * 512]
        array = next((first for first in arrays if first <= number < first + 32), number)
        if piece != bytes(512) or array != number:
            found.append((array * sector + (number - array) * 512, piece))
    return found


def _content(luck: random.Random, length: int, sector: int) -> list[tuple[int, bytes]]:
    """Return pieces and their places; no pieces: noise."""
    made: list[Callable[[], list[tuple[int, bytes]]]] = [
        lambda: [],
        lambda: [(0, _filesystem("mke2fs -q -b 1024", length))],
        lambda: [(0, _filesystem(f"mkfs.fat -S {sector}", length))],
        lambda: [handmade_layers.md("1.0", size=length)] if length > 4 * MIB else [],
        lambda: [handmade_layers.md_0_90(length)] if length > 128 * KIB else [],
        lambda: [handmade_layers.luks1()],
        lambda: [handmade_layers.luks2(b"LUKS\xba\xbe", 0), handmade_layers.luks2(b"SKUL\xba\xbe", 16384)],
    ]
    pieces = luck.choice(made)()
    return [(at, raw) for at, raw in pieces if at >= 0 and at + len(raw) <= length]


@cache
def _filesystem(command: str, length: int) -> bytes:
    """Return a file system; nothing if the place is too small."""
    with tempfile.NamedTemporaryFile(suffix=".fs") as file:
        file.truncate(length)
        run(*command.split(), file.name, fails=True)
        return Path(file.name).read_bytes()
