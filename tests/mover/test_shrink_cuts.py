"""A file system is shrunk, and the power is cut before every operation: it is the old one, the new one, or hidden.

resize2fs and ntfsresize work on a view of an image; what they wrote is written to a simulated disk. Expected values
come from the image before, from sfdisk and from the checkers.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.change import MovePlan, RealignGoal
from aligntool.errors import Refused, Stopped
from aligntool.formats.parked import find_parked
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import resume, rollback
from aligntool.mover.status import journal_status
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.realign.shrink_commit import Prepared, write
from aligntool.realign.shrink_step import prepare_shrink
from aligntool.steps import ShrinkContent, WriteJournal
from aligntool.units import MIB, Extent
from aligntool.whole_disk.operation import WholeDisk
from tests.conftest import run
from tests.mover import containers
from tests.mover.conftest import Contents
from tests.mover.disks import Row, content_of, make_disk
from tests.mover.filesystems import FILESYSTEMS, SECTOR
from tests.mover.simulated_disk import SimulatedDisk, crashes, until_cut
from tests.mover.test_simulated_cuts import NoKernel, act_on, final, recovered
from tests.thorough import THOROUGH, sample

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools(
        "sfdisk", "sgdisk", "blkid", "losetup", "resize2fs", "ntfsresize", "ntfsfix", "qemu-storage-daemon"
    ),
]

NAMED = {kind.name: kind for kind in FILESYSTEMS}
MAGIC = {"ext4": (1080, b"\x53\xef"), "ntfs": (3, b"NTFS    ")}
PARKED = {"49D6ADEB-B2C3-4691-8FA8-BFBAC209865B", "7f"}
WHOLE = "whole disk"
CASES = [(kind, table) for kind in MAGIC for table in ("gpt", "dos", WHOLE)]
EVERY = 1 if THOROUGH else 13
Recovery = Callable[..., Iterator[object]]


@dataclass(frozen=True)
class Case:
    """A file system on a disk, and what a shrink writes there."""

    platter: bytes
    plan: MovePlan
    step: ShrinkContent
    prepared: Prepared

    @property
    def place(self) -> Extent:
        return self.step.extent

    @property
    def journal(self) -> Extent:
        return next(one.journal.extent for one in self.prepared.contents.plan.steps if isinstance(one, WriteJournal))

    def act(self, platter: bytes, how: str, cut: int | None = None) -> SimulatedDisk:
        """Run to the end, or to the cut."""
        disk = SimulatedDisk(platter, cut=cut)
        if how != "shrink":
            return act_on(disk, self.plan, {}, how)
        until_cut(write(self.plan, MoveContext(disk, NoKernel()), self.prepared))
        return disk

    def bare(self, platter: bytes) -> bytes:
        """Return the disk without the free blocks that the journal used."""
        return platter[: self.journal.start] + platter[self.journal.end :]


def find(image: Path, table: str, file: SimulatedDisk | None = None) -> tuple[Request, MovePlan]:
    request = Request(RealignGoal(shrink=True, journal_file="/var/tmp/journal" if file else None))
    found = WholeDisk(request).find_plan(str(image), request) if table == WHOLE else find_plan(str(image), request)
    return request, found.plan


def make_case(folder: Path, contents: Contents, kind: str, table: str, file: SimulatedDisk | None = None) -> Case:
    image = folder / "disk.img"
    if table == WHOLE:
        shutil.copy(contents(NAMED[kind]), image)
    else:
        row = Row(NAMED[kind], 34 if table == "gpt" else 63)
        make_disk(image, table, (row,), {kind: contents(NAMED[kind])}, free=33 if table == "gpt" else 0)
    request, plan = find(image, table, file)
    (step,) = (step for step in plan.steps if isinstance(step, ShrinkContent))
    containers.write(image, behind(step), b"a block that the old file system used")
    before = image.read_bytes()
    prepared = prepare_shrink(plan, step, request, MoveContext(SimulatedDisk(before), NoKernel(), file))
    assert image.read_bytes() == before
    return Case(before, plan, step, prepared)


def behind(step: ShrinkContent) -> int:
    """Return a byte of the disk that is free in the old file system, and behind the new one."""
    return step.extent.start + step.length + MIB // 2


def is_visible(case: Case, platter: bytes, folder: Path) -> bool:
    """Return whether a system would recognise and mount the file system, or find it in its partition."""
    at, magic = MAGIC[case.step.kind]
    if case.place.start:
        image = folder / "seen.img"
        image.write_bytes(platter)
        words = run("sfdisk", "--part-type", image, "1", fails=True).split()
        return words != [] and PARKED.isdisjoint(words)
    return platter[at : at + len(magic)] == magic


def end(case: Case, platter: bytes, whole: bytes) -> str:
    """Return old or new; the disk must be exactly one of the two, with nothing in flight."""
    assert find_journal(SimulatedDisk(platter), None) is None
    is_new = case.bare(platter) == case.bare(whole)
    assert is_new or case.bare(platter) == case.bare(case.platter)
    return "new" if is_new else "old"


@sample(3)
@pytest.mark.parametrize(("kind", "table"), CASES)
def test_a_cut_before_every_operation_leaves_the_old_file_system_or_the_new_one(
    tmp_path: Path, contents: Contents, kind: str, table: str
) -> None:
    case = make_case(tmp_path, contents, kind, table)
    complete = case.act(case.platter, "shrink")
    whole = final(complete)
    assert end(case, whole, whole) == "new"
    check_shrunk(case, whole, tmp_path)
    states, hidden = set(), 0
    for number, platter in enumerate(crashes(case.platter, complete.log, random.Random(kind + table))):
        if number % EVERY == 0:
            if is_visible(case, platter, tmp_path):
                assert is_whole_but_for_the_table(case, platter, whole)
            else:
                hidden += 1
            for how in ("resume", "rollback"):
                states.add((how, end(case, final(recovered(case, platter, how)), whole)))
    assert {("resume", "new"), ("rollback", "old")} <= states
    assert hidden


@pytest.mark.parametrize(("kind", "table"), CASES)
def test_the_mark_of_a_shrink_vouches_only_for_what_the_old_file_system_left(
    tmp_path: Path, contents: Contents, kind: str, table: str
) -> None:
    case = make_case(tmp_path, contents, kind, table)
    image = tmp_path / "shrunk.img"
    image.write_bytes(final(case.act(case.platter, "shrink")))
    if kind == "ntfs":  # Windows has checked it
        place = Extent(case.place.start, case.step.length)
        with content_of(image, place) as content:
            run("ntfsfix", "-d", content)
            containers.write(image, place.start, content.read_bytes())
    assert find(image, table)[1].copies
    containers.write(image, behind(case.step) + MIB // 4, b"data that nothing recognises")
    with pytest.raises(Refused, match="overwrit"):
        find(image, table)


def is_whole_but_for_the_table(case: Case, platter: bytes, whole: bytes) -> bool:
    """Return whether everything except sectors of the table, or of the head of the whole disk, is old or new."""
    for content in (case.platter, whole):
        found = bytearray(platter)
        for sectors in case.prepared.contents.images.sectors:
            found[sectors.at : sectors.at + len(sectors.data)] = content[sectors.at : sectors.at + len(sectors.data)]
        if case.bare(bytes(found)) == case.bare(content):
            return True
    return False


def check_shrunk(case: Case, platter: bytes, folder: Path) -> None:
    """Check with its own tools that the file system is intact, and ends where intended."""
    image = folder / "shrunk.img"
    image.write_bytes(platter)
    with content_of(image, case.place) as content:
        if case.step.kind == "ext4":
            run("e2fsck", "-f", "-n", content)
            said = dict(line.split(":", 1) for line in run("dumpe2fs", "-h", content).splitlines() if ":" in line)
            assert int(said["Block count"]) * int(said["Block size"]) <= case.step.length
        else:
            run("ntfsresize", "--info", "-ff", content)
            with content.open("rb") as file:
                assert int.from_bytes(file.read(48)[40:], "little") * SECTOR <= case.step.length


@pytest.mark.parametrize("seed", range(60 if THOROUGH else 6))
def test_many_cuts_in_a_row_lose_nothing(tmp_path: Path, contents: Contents, seed: int) -> None:
    """Resume and rollback alternate, each cut again and again."""
    luck = random.Random(seed)
    case = make_case(tmp_path, contents, *CASES[seed % len(CASES)])
    complete = case.act(case.platter, "shrink")
    whole = final(complete)
    disk = case.act(case.platter, "shrink", luck.randrange(complete.operations))
    for _ in range(luck.randint(1, 8)):
        disk = recovered(case, disk.after_the_cut(luck), luck.choice(("resume", "rollback")), luck.randint(0, 60))
    end(case, final(recovered(case, disk.after_the_cut(luck), luck.choice(("resume", "rollback")))), whole)


LONG = 4 * MIB  # bytes of a journal file


def written_with_file(case: Case) -> SimulatedDisk:
    """Write the shrunk file system, with its journal in a file beside the disk."""
    file = SimulatedDisk(bytes(LONG))
    disk = SimulatedDisk(case.platter, beside=file)
    until_cut(write(case.plan, MoveContext(disk, NoKernel(), file), case.prepared))
    return disk


@sample(2)
@pytest.mark.parametrize("too_short", [False, True])
@pytest.mark.parametrize(("kind", "table"), [("ext4", "gpt"), ("ntfs", "dos"), ("ext4", WHOLE)])
def test_the_journal_of_a_shrink_is_found_by_the_file_that_was_named(
    tmp_path: Path, contents: Contents, kind: str, table: str, too_short: bool
) -> None:
    """Also if the file was too short, and the journal is in free blocks of the file system."""
    case = make_case(tmp_path, contents, kind, table, SimulatedDisk(bytes(4096 if too_short else LONG)))
    whole = written_with_file(case)
    expected, luck, hidden = final(whole), random.Random(kind), 0
    for cut in range(1, whole.operations, 1 if THOROUGH else 3):
        disk, file = whole.both_before(cut)
        left, journal = disk.after_the_cut(luck), final(file)
        entry = find_parked(SimulatedDisk(left))
        if entry is None or entry.only_backup:
            continue
        hidden += 1
        told = journal_status(SimulatedDisk(left), SimulatedDisk(journal))
        assert told.state == "in-flight"
        if not too_short:
            with pytest.raises(Refused, match="in a file on another disk"):
                journal_status(SimulatedDisk(left), None)
        forward = case.platter if told.ways == ("rollback",) else expected
        for way, content in ((resume, forward), (rollback, case.platter)):
            again = SimulatedDisk(left)
            try:
                list(way(MoveContext(again, NoKernel(), SimulatedDisk(journal))))
            except Stopped as stop:
                assert "complete" in str(stop)
                content = expected
            result = final(again)
            assert (case.bare(result) == case.bare(content)) if too_short else result == content
    assert hidden


@sample(2)
@pytest.mark.parametrize(("kind", "table"), CASES)
def test_writes_of_a_system_after_a_cut_are_kept(tmp_path: Path, contents: Contents, kind: str, table: str) -> None:
    """A system that starts after a cut and sees the file system changes its superblock; no recovery writes it back."""
    case = make_case(tmp_path, contents, kind, table)
    complete = case.act(case.platter, "shrink")
    at = case.place.start + {"ext4": 1024 + 0x34, "ntfs": 0x48}[kind]  # the count of mounts; the serial number
    luck, seen = random.Random(kind), set[str]()
    for number, platter in enumerate(crashes(case.platter, complete.log, luck, torn=False)):
        if not is_visible(case, platter, tmp_path):
            continue
        used = bytearray(platter)
        used[at] ^= 0x80
        for how in ("resume", "rollback"):
            disk = SimulatedDisk(bytes(used))
            if find_journal(disk, None) is None:
                seen.add("nothing in flight")
                continue
            try:
                disk = case.act(bytes(used), how)
            except (Refused, Stopped) as error:
                seen.add(str(error))
            assert final(disk)[at] == used[at], f"cut {number}, {how}"
    assert "nothing in flight" in seen


@sample(2)
@pytest.mark.parametrize("how", [resume, rollback])
@pytest.mark.parametrize("head", ["new", "old"])
def test_a_used_file_system_next_to_the_mark_is_not_overwritten_by_a_restored_table(
    tmp_path: Path, contents: Contents, how: Recovery, head: str
) -> None:
    """The superblock of an ext4 is not in the sector of the mark, so a cut can leave both."""
    case = make_case(tmp_path, contents, "ext4", WHOLE)
    log = case.act(case.platter, "shrink").log
    last = max(number for number, entry in enumerate(log) if entry and entry[0] == 0)
    used = bytearray(final(case.act(case.platter, "shrink", last)))
    shown = log[last][1] if head == "new" else case.platter  # type: ignore[index]  # it is a write
    used[2 * SECTOR : 4 * SECTOR] = shown[2 * SECTOR : 4 * SECTOR]
    used[1024 + 0x34] ^= 0x80  # the count of mounts
    disk = SimulatedDisk(bytes(used))
    found = journal_status(disk, None)
    assert (found.state, found.restore_table) == ("in-flight", False)
    assert "a file system is being shrunk" in found.sentences[0]
    for restore_table in (False, True):
        with pytest.raises(Refused, match="has written to the file system"):
            list(how(MoveContext(disk, NoKernel()), restore_table=restore_table))
    assert final(disk) == used
