"""A disk gets a table for sectors of another size, and the power is cut before every operation: nothing is lost."""

import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from aligntool.change import MovePlan
from aligntool.convert.operation import Conversion
from aligntool.errors import Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback
from aligntool.realign.request import Request
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.mover.disks import place
from tests.mover.simulated_disk import SimulatedDisk, crashes
from tests.mover.test_simulated_cuts import NoKernel, act_on, final, recovered
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("mke2fs", "mkfs.fat", "mcopy", "fsck.fat", "fdisk")

ESP, ROOT = Extent(MIB // 4, 500 * KIB), Extent(MIB, 600 * KIB)
CONTAINER, MORE = Extent(MIB - 64 * KIB, 4 * MIB), Extent(3 * MIB, 256 * KIB)  # in an MBR
SIZE = {"gpt": 3 * MIB, "dos": 6 * MIB}
PLACES = {"gpt": {ESP, ROOT}, "dos": {ESP, CONTAINER, ROOT, MORE}}
PARKED = {"49D6ADEB-B2C3-4691-8FA8-BFBAC209865B", "7f"}
EVERY = 1 if THOROUGH else 5


@dataclass(frozen=True)
class Case:
    """A disk, the plan of its conversion, and the result. `unit`: the sector size of the device."""

    platter: bytes
    plan: MovePlan
    rebuilt: dict[int, tuple[bytes, ...]]
    new: tuple[int, ...]
    unit: int

    @property
    def old(self) -> int:
        return self.plan.disk.sector_size

    @property
    def label(self) -> str:
        return self.plan.disk.label or ""

    @property
    def places(self) -> set[Extent]:
        return PLACES[self.label]

    @property
    def journal(self) -> Extent:
        return next(step.journal.extent for step in self.plan.steps if hasattr(step, "journal"))

    def act(self, platter: bytes, how: str, cut: int | None = None) -> SimulatedDisk:
        disk = SimulatedDisk(platter, cut=cut, sector=self.unit)
        return act_on(disk, self.plan, {}, how, self.rebuilt)

    def bare(self, platter: bytes) -> bytes:
        """Return the disk without the free space that the journal used."""
        return platter[: self.journal.start] + platter[self.journal.end :]


def make(folder: Path, old: int, new: tuple[int, ...], unit: int, label: str) -> Case:
    """Make an ESP with files and an ext2, made by mkfs.fat, mke2fs and fdisk for sectors of `old` bytes.

    In an MBR the ext2 and one more are logical partitions.
    """
    path, esp, root, more, file = (folder / name for name in ("disk.img", "esp", "root", "more", "file"))
    for one in (path, esp, root, more):
        one.unlink(missing_ok=True)
    luck = random.Random(old)
    path.write_bytes(bytes(SIZE[label]))
    entries = ((ESP, "U"), *(((CONTAINER, "E"),) if label == "dos" else ()), (ROOT, "L"), (MORE, "L"))
    lines = "".join(
        f"start={one.start // old},size={one.length // old},type={kind}\n"
        for one, kind in entries
        if one in PLACES[label]
    )
    first = f"first-lba: {40 * KIB // old}\n" if label == "gpt" else ""
    file.write_text(f"label: {label}\n{first}{lines}")
    run("fdisk", "-b", str(old), path, stdin=f"I\n{file}\nw\n")
    for content, extent in ((esp, ESP), (root, ROOT), (more, MORE)):
        content.write_bytes(bytes(extent.length))
    run("mkfs.fat", "-F", "12", "-S", str(old), "-s", "1", "-n", "ESP", "-i", "feed0123", "--mbr=n", esp)
    for name, length in (("LOADER.EFI", 70_001), ("a long name.txt", 5_000), ("EMPTY", 0)):
        file.write_bytes(luck.randbytes(length))
        run("mcopy", "-m", "-i", esp, file, f"::{name}")
    run("mke2fs", "-q", "-t", "ext2", "-b", "4096", root)
    place(esp, path, ESP.start)
    place(root, path, ROOT.start)
    if MORE in PLACES[label]:
        run("mkswap", more)
        place(more, path, MORE.start)
    request = Request()
    found = Conversion(request, new).find_plan(str(path), request)
    return Case(path.read_bytes(), found.plan, dict(found.rebuilt), new, unit)


def table(case: Case, folder: Path, platter: bytes, sector: int) -> Mapping[Extent, str]:
    """Return what fdisk reads on a disk with such sectors: the places and their types.

    An MBR for other sectors gives other places, before and afterwards; here it gives none.
    """
    found = listed(case.label, folder, platter, sector)
    return found if case.label == "gpt" or ESP in found else {}


@lru_cache(8)  # most disks at the end of a recovery are equal
def listed(label: str, folder: Path, platter: bytes, sector: int) -> Mapping[Extent, str]:
    path = folder / "seen.img"
    path.write_bytes(platter)
    kind = {"gpt": "Type-UUID", "dos": "Id"}[label]
    words = ["fdisk", "-b", str(sector), "-o", f"Start,Sectors,{kind}", "-l", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = {}
    for fields in (line.split() for line in done.stdout.splitlines()):
        if len(fields) == 3 and fields[0].isdecimal():
            found[Extent(int(fields[0]) * sector, int(fields[1]) * sector)] = fields[2]
    return found


def check_seen(case: Case, folder: Path, platter: bytes, whole: bytes) -> None:
    """Check that every visible table, for sectors of its size, shows complete partitions or parked ones."""
    for sector in {case.old, *case.new}:
        seen = table(case, folder, platter, sector)
        # A parked entry also claims the free space of the journal.
        assert {place for place, kind in seen.items() if kind not in PARKED or not place.contains(case.journal)} <= (
            case.places
        )
        if seen and PARKED.isdisjoint(seen.values()):
            assert set(seen) == case.places
            shown = [content for size, content in ((case.old, case.platter), *((one, whole) for one in case.new))
                     if size == sector]  # fmt: skip
            assert any(
                all(platter[at.start : at.end] == content[at.start : at.end] for at in set(seen) - {CONTAINER})
                for content in shown
            )


def end(case: Case, folder: Path, platter: bytes, whole: bytes) -> str:
    """Return old or new; the disk must be exactly one of the two, with nothing in flight."""
    assert find_journal(SimulatedDisk(platter, sector=case.unit), None) is None
    is_new = case.bare(platter) == case.bare(whole)
    assert is_new or case.bare(platter) == case.bare(case.platter)
    for sector in (512, 4096):
        expected = case.places if sector in (case.new if is_new else (case.old,)) else set()
        assert set(table(case, folder, platter, sector)) == expected
    return "new" if is_new else "old"


KINDS = [
    *((*each, label) for each in ((512, (4096,), 512), (4096, (512,), 4096)) for label in ("gpt", "dos")),
    (4096, (512,), 512, "gpt"),
    (512, (4096,), 4096, "gpt"),
    (512, (512, 4096), 512, "gpt"),
]


@sample(3)
@pytest.mark.parametrize(("old", "new", "unit", "label"), KINDS)
def test_a_cut_before_every_operation_loses_nothing(
    tmp_path: Path, old: int, new: tuple[int, ...], unit: int, label: str
) -> None:
    case = make(tmp_path, old, new, unit, label)
    run_whole = case.act(case.platter, "realign")
    whole = final(run_whole)
    assert end(case, tmp_path, whole, whole) == "new"
    assert whole[ROOT.start : ROOT.end] == case.platter[ROOT.start : ROOT.end]
    states = set()
    luck = random.Random(old + unit)
    for number, platter in enumerate(crashes(case.platter, run_whole.log, luck, sector=unit)):
        if number % EVERY == 0:
            check_seen(case, tmp_path, platter, whole)
            for how in ("resume", "rollback"):
                states.add((how, end(case, tmp_path, final(recovered(case, platter, how, sector=case.unit)), whole)))
    assert {("resume", "new"), ("rollback", "old")} <= states


@sample(3)
@pytest.mark.parametrize("seed", range(200 if THOROUGH else 6))
def test_many_cuts_in_a_row_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Resume and rollback alternate, each cut again and again."""
    luck = random.Random(seed)
    case = make(tmp_path, *luck.choice(KINDS))
    run_whole = case.act(case.platter, "realign")
    whole = final(run_whole)
    disk = case.act(case.platter, "realign", luck.randrange(run_whole.operations))
    for _ in range(luck.randint(1, 8)):
        platter = disk.after_the_cut(luck)
        check_seen(case, tmp_path, platter, whole)
        disk = recovered(
            case, platter, luck.choice(("resume", "resume", "rollback")), luck.randint(0, 60), sector=case.unit
        )
    platter = disk.after_the_cut(luck)
    check_seen(case, tmp_path, platter, whole)
    end(case, tmp_path, final(recovered(case, platter, luck.choice(("resume", "rollback")), sector=case.unit)), whole)


@sample(1)
@pytest.mark.parametrize(("old", "new", "label"), [(512, 4096, "gpt"), (4096, 512, "gpt"), (512, 4096, "dos")])
def test_writes_of_a_system_after_a_cut_are_kept(tmp_path: Path, old: int, new: int, label: str) -> None:
    """A system that starts after a cut writes to the ESP that it sees; no recovery restores the
    journal's copy of it.
    """
    case = make(tmp_path, old, (new,), 512, label)
    run_whole = case.act(case.platter, "realign")
    whole = final(run_whole)
    count = {old: 0, new: 0}
    for number, platter in enumerate(crashes(case.platter, run_whole.log, random.Random(new), torn=False)):
        for sector, content in ((old, case.platter), (new, whole)):
            kinds = table(case, tmp_path, platter, sector).values()
            if not kinds or not PARKED.isdisjoint(kinds):
                continue
            at = content.index(b"LOADER  EFI", ESP.start) + 11  # the attributes of a file, in its directory
            used = bytearray(platter)
            used[at] ^= 1
            count[sector] += 1
            for how in ("resume", "rollback"):
                done = used_on(case, bytes(used), how)
                assert done[at] == used[at], f"cut {number}, {how}"
    assert all(count.values())


def used_on(case: Case, platter: bytes, how: str) -> bytes:
    disk = SimulatedDisk(platter, sector=case.unit)
    context = MoveContext(disk, NoKernel())
    if find_journal(disk, None) is not None:
        try:
            for _ in resume(context) if how == "resume" else rollback(context):
                pass
        except Stopped as stop:
            assert "another program has" in str(stop) or "complete" in str(stop)
            if "another program has" in str(stop):
                for _ in rollback(context):
                    pass
    return final(disk)
