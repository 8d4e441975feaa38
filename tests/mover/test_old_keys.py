"""Whatever a move of a LUKS is interrupted by, no key slot is left outside of the place where the LUKS is in the end.

The LUKS is cryptsetup's. A slot that is removed later must not open an old header: neither in what the new place does
not cover of the old one, nor in the journal.
"""

import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from aligntool.change import MovePlan, RealignGoal
from aligntool.errors import Refused, Stopped
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import SLOT, is_head, read_closing
from aligntool.mover.journal_search import find_journal
from aligntool.mover.left_journals import find_left
from aligntool.mover.move import realign, resume, rollback
from aligntool.mover.status import journal_status
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.steps import JournalPlace
from aligntool.units import MIB, Extent
from aligntool.whole_disk.operation import WholeDisk
from tests.conftest import run
from tests.mover.planned_disks import with_journal_in_file
from tests.mover.simulated_disk import SECTOR, SimulatedDisk, until_cut
from tests.mover.test_simulated_cuts import NoKernel
from tests.run_aligntool import run_aligntool
from tests.thorough import THOROUGH

pytestmark = pytest.mark.needs_tools("cryptsetup", "sfdisk")

LENGTH = 3 * MIB
FORMATS = {
    "luks1": ("--type", "luks1", "--offset", "4096"),
    "luks2": ("--type", "luks2", "--luks2-metadata-size", "16k", "--luks2-keyslots-size", "256k", "--offset", "2048"),
}
FAST = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
ENDS = ("resume", "rollback")


@dataclass(frozen=True, slots=True)
class Moved:
    platter: bytes
    plan: MovePlan
    runs: dict[int, tuple[Extent, ...]]
    keys: frozenset[bytes]  # sectors of the header and of the slots

    @property
    def places(self) -> tuple[Extent, Extent]:
        (place,) = self.plan.places
        assert place.before
        return place.before, place.after


def luks(kind: str, path: Path) -> bytes:
    """Return a LUKS in a file, and noise in its data."""
    with path.open("wb") as file:
        file.truncate(LENGTH)
    run("cryptsetup", "-q", "luksFormat", *FORMATS[kind], *FAST, path, "-", stdin="removed later")
    raw = bytearray(path.read_bytes())
    start = int(FORMATS[kind][-1]) * SECTOR
    raw[start:] = random.Random(kind).randbytes(LENGTH - start)
    path.write_bytes(raw)
    return bytes(raw)


def key_sectors(raw: bytes, kind: str) -> frozenset[bytes]:
    header = range(0, int(FORMATS[kind][-1]) * SECTOR, SECTOR)
    return frozenset(raw[at : at + SECTOR] for at in header) - {bytes(SECTOR)}


def make_image(folder: Path, kind: str, start: int) -> tuple[Path, frozenset[bytes]]:
    raw = luks(kind, folder / "luks.img")
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(start * SECTOR + LENGTH + 6 * MIB)
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart={start}, size={LENGTH // SECTOR}, type=83\n")
    with image.open("r+b") as file:
        file.seek(start * SECTOR)
        file.write(raw)
    return image, key_sectors(raw, kind)


@cache
def moved(kind: str, start: int) -> Moved:
    with TemporaryDirectory(prefix="aligntool-keys-") as folder:
        image, keys = make_image(Path(folder), kind, start)
        found = find_plan(str(image), Request(goal=RealignGoal()))
        return Moved(image.read_bytes(), found.plan, found.runs, keys)


@cache
def undone(kind: str, start: int) -> Moved:
    with TemporaryDirectory(prefix="aligntool-keys-") as folder:
        image, keys = make_image(Path(folder), kind, start)
        request = Request(goal=RealignGoal())
        found = WholeDisk(request, "dos", undo=True).find_plan(str(image), request)
        return Moved(image.read_bytes(), found.plan, found.runs, keys)


def leaks(platter: bytes, keys: frozenset[bytes], place: Extent) -> list[int]:
    """Return the offsets of sectors of keys outside of the place."""
    found = (at for at in range(0, len(platter), SECTOR) if platter[at : at + SECTOR] in keys)
    return [at for at in found if not place.contains(Extent(at, SECTOR))]


def ended(case: Moved, platter: bytes, way: str) -> bytes:
    """Resume or roll back as a user would, until nothing is in flight or left."""
    for how in (way, "resume"):
        disk = SimulatedDisk(platter)
        if find_journal(disk, None) is None and find_left(disk) is None:
            break
        context = MoveContext(disk, NoKernel())
        try:
            for _ in resume(context) if how == "resume" else rollback(context):
                pass
        except Stopped as stop:
            assert "complete" in str(stop)
        platter = disk.after_the_cut(random.Random(0), torn=False)
    return platter


def cuts(operations: int) -> Iterator[int]:
    """Yield every cut of the end, where keys are overwritten, and some before it."""
    yield from range(operations - 60, operations, 1 if THOROUGH else 5)
    yield from random.Random(0).sample(range(operations - 60), operations - 60 if THOROUGH else 4)


def ends_without_keys(case: Moved) -> Iterator[bytes]:
    """Cut the change and end it either way: yield each disk, on which the content is whole and no key is elsewhere."""
    disk = SimulatedDisk(case.platter)
    until_cut(realign(case.plan, MoveContext(disk, NoKernel()), case.runs))
    old, new = case.places
    content = case.platter[old.start : old.end]
    for cut in [*cuts(disk.operations), None]:
        stopped = disk.before(cut)
        for way in ENDS:
            platter = ended(case, stopped.after_the_cut(random.Random(f"{cut} {way}")), way)
            place = new if platter[new.start : new.end] == content else old
            assert platter[place.start : place.end] == content, f"cut at {cut}, {way}: the content is not whole"
            # Content without a table may use what is left of a journal that was being zeroed.
            is_kept = place.start == 0 and is_closing(stopped, case.plan.journal)
            assert is_kept or not leaks(platter, case.keys, place), f"cut at {cut}, {way}"
            yield platter


def is_closing(disk: SimulatedDisk, journal: JournalPlace) -> bool:
    """Return whether a head of the journal may be a mark by now: it was being zeroed."""
    start = journal.extent.start
    return any(read_closing(disk, at) for at in (start, start + journal.copy_length))


def opens(path: Path) -> bool:
    words = ("cryptsetup", "open", "--test-passphrase", "--key-file", "-", path)
    return subprocess.run(words, input=b"removed later", capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("bits", ["256", "512"])
@pytest.mark.parametrize("kind", ["luks1", "luks2"])
def test_what_a_journal_saves_of_a_luks_opens_nothing(kind: str, bits: str, tmp_path: Path) -> None:
    """A cut may leave that in the place of a journal, on the disk of a LUKS that has lost its table."""
    size = 20 * MIB
    whole, saved, image = (tmp_path / name for name in ("whole", "saved", "disk.img"))
    whole.write_bytes(bytes(size))
    how = ("--type", kind, "--key-size", bits, *FAST)
    run("cryptsetup", "-q", "luksFormat", *how, whole, "-", stdin="removed later")
    luks = whole.read_bytes()
    image.write_bytes(bytes(2 * MIB) + luks + bytes(8 * MIB))
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart=4096, size={size // SECTOR}, type=83\n")
    request = Request(goal=RealignGoal())
    plan = WholeDisk(request, "dos", undo=True).find_plan(str(image), request).plan
    part = bytearray(size)
    for extent in plan.holds[0].held.ranges:
        part[extent.start : extent.end] = luks[extent.start : extent.end]
    saved.write_bytes(part)
    assert opens(whole)
    assert part[:4096] == luks[:4096]
    assert not opens(saved)


@pytest.mark.parametrize("start", [63, 2 * 2048 + 7])
@pytest.mark.parametrize("kind", FORMATS)
def test_no_key_is_left_at_the_other_place_after_any_cut(kind: str, start: int) -> None:
    assert all(ends_without_keys(moved(kind, start)))


@pytest.mark.parametrize("start", [63, LENGTH // SECTOR + 4096])  # one that needs the stash, and one that does not
@pytest.mark.parametrize("kind", FORMATS)
def test_no_key_is_left_where_a_luks_was_that_lost_its_table(kind: str, start: int) -> None:
    """Once it is shown, only a key would tell whether it uses all of the disk: its old header is zeroed before."""
    for platter in ends_without_keys(undone(kind, start)):
        assert find_journal(SimulatedDisk(platter), None) is None
        assert journal_status(SimulatedDisk(platter), None).state == "old"
        assert "aligntool".encode("utf-16-le") not in platter[-40 * SECTOR :]


@pytest.mark.parametrize(
    ("place", "with_old_table"),
    [
        ("behind the head", False),
        ("behind the head", True),
        ("old header", False),
        ("old header", True),
        ("tail", False),
    ],
)
def test_what_a_luks_without_a_table_was_given_since_stays(place: str, with_old_table: bool) -> None:
    """It maps all of the disk once it is opened, so a file may be wherever nothing proves that its bytes are ours."""
    case = undone("luks2", LENGTH // SECTOR + 4096)
    disk = SimulatedDisk(case.platter)
    until_cut(realign(case.plan, MoveContext(disk, NoKernel()), case.runs))
    journal = case.plan.journal.extent
    size = len(case.platter)
    at = {
        "behind the head": journal.start + SECTOR,
        "old header": case.places[0].start + 8 * SECTOR,
        "tail": size - 2048,
    }
    tried = 0
    for cut in range(disk.operations - 60, disk.operations, 1 if THOROUGH else 4):
        used = bytearray(disk.before(cut).after_the_cut(random.Random(cut), torn=False))
        if used[:6] != b"LUKS\xba\xbe" or find_journal(SimulatedDisk(bytes(used)), None) is None:
            continue
        data = random.Random(place).randbytes(SECTOR)
        used[at[place] : at[place] + SECTOR] = data
        if with_old_table:
            used[:SECTOR] = case.platter[:SECTOR]
        recovered = SimulatedDisk(bytes(used))
        with suppress(Stopped, Refused):
            for _ in resume(MoveContext(recovered, NoKernel()), restore_table=with_old_table):
                pass
        ended = recovered.after_the_cut(random.Random(0), torn=False)
        assert ended[at[place] : at[place] + SECTOR] == data, cut
        if not with_old_table:
            assert find_journal(SimulatedDisk(ended), None) is None
            assert journal_status(SimulatedDisk(ended), None).state == "old"
        tried += 1
    assert tried


@pytest.mark.parametrize("kind", FORMATS)
def test_a_rollback_that_is_cut_leaves_no_key_at_the_new_place(kind: str) -> None:
    case = moved(kind, 63)
    old, _ = case.places
    halfway = SimulatedDisk(case.platter)
    events = realign(case.plan, MoveContext(halfway, NoKernel()), case.runs)
    next(event for event in events if getattr(event, "index", 0) == len(case.plan.steps) - 2)  # the new table is next
    begun = halfway.after_the_cut(random.Random(0), torn=False)
    back = SimulatedDisk(begun)
    until_cut(rollback(MoveContext(back, NoKernel())))
    for cut in range(0, back.operations, 1 if THOROUGH else 13):
        platter = ended(case, back.before(cut).after_the_cut(random.Random(cut)), "rollback")
        assert platter[old.start : old.end] == case.platter[old.start : old.end]
        assert not leaks(platter, case.keys, old), f"cut at {cut}"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_key_that_is_removed_between_two_cuts_of_a_rollback_is_gone(kind: str) -> None:
    """Content may be used as soon as it is shown at its old place: its copy at the new one is zeroed before."""
    case = moved(kind, 2 * 2048 + 1001)  # down, so that the header is copied into free space
    old, new = case.places
    assert new.start + 400 * SECTOR < old.start
    header = case.platter[old.start : old.start + int(FORMATS[kind][-1]) * SECTOR]
    halfway = SimulatedDisk(case.platter)
    events = realign(case.plan, MoveContext(halfway, NoKernel()), case.runs)
    next(event for event in events if getattr(event, "index", 0) == len(case.plan.steps) - 2)  # the new table is next
    back = SimulatedDisk(halfway.after_the_cut(random.Random(0), torn=False))
    until_cut(rollback(MoveContext(back, NoKernel())))
    used = 0
    for cut in range(0, back.operations, 1 if THOROUGH else 3):
        platter = bytearray(back.before(cut).after_the_cut(random.Random(cut)))
        shown = platter[old.start : old.start + len(header)] == header
        if not shown or find_journal(SimulatedDisk(bytes(platter)), None) is None:
            continue
        removed = Extent(old.start + 300 * SECTOR, 32 * SECTOR)  # a part of the key slot
        gone = key_sectors(bytes(platter[removed.start : removed.end]), kind)
        assert len(gone) > 30
        platter[removed.start : removed.end] = bytes(removed.length)
        ended_at = ended(case, bytes(platter), "rollback")
        assert ended_at[removed.start : removed.end] == bytes(removed.length)
        assert not leaks(ended_at, gone, Extent(0, 0)), f"cut at {cut}"
        used += 1
    assert used


@pytest.mark.parametrize("kind", FORMATS)
def test_what_another_program_put_where_the_keys_were_is_not_overwritten(kind: str) -> None:
    """Once the new table is written, that is free space, such as for the core image of GRUB in front of a partition. A
    journal in a file is followed to its end then, from before that write if the cut was before the next record.
    """
    case = moved(kind, 63)
    plan = with_journal_in_file(case.plan)
    disk = SimulatedDisk(case.platter)
    file = SimulatedDisk(bytes(20 * MIB), beside=disk)
    until_cut(realign(plan, MoveContext(disk, NoKernel(), file), case.runs))
    old, new = case.places
    at, core = old.start + 300 * SECTOR, b"core image".ljust(SECTOR, b"\1")
    steps = set()
    for cut in range(file.operations - 40, file.operations):
        record, platter = (each.after_the_cut(random.Random(cut), torn=False) for each in file.both_before(cut))
        is_new = platter[new.start : new.start + 6] == b"LUKS\xba\xbe" and platter[446 + 4] == 0x83
        if not is_new or not is_head(record[:SLOT]):
            continue
        used, journal = SimulatedDisk(platter[:at] + core + platter[at + SECTOR :]), SimulatedDisk(record)
        steps.add(Journal.open(journal, 0, disk_size=used.size).position.step)
        until_cut(resume(MoveContext(used, NoKernel(), journal)))
        assert used.read(at, SECTOR) == core
    assert len(steps) > 1


@pytest.mark.parametrize("kind", FORMATS)
def test_a_journal_in_a_file_keeps_no_key(kind: str) -> None:
    case = moved(kind, 63)
    plan = with_journal_in_file(case.plan)
    disk, file = SimulatedDisk(case.platter), SimulatedDisk(bytes(20 * MIB))
    until_cut(realign(plan, MoveContext(disk, NoKernel(), file), case.runs))
    assert any(file.log)
    assert not any(file.after_the_cut(random.Random(0), torn=False))
    assert not leaks(disk.after_the_cut(random.Random(0), torn=False), case.keys, case.places[1])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_removed_passphrase_opens_nothing_that_is_left_on_the_disk(kind: str, tmp_path: Path) -> None:
    image, keys = make_image(tmp_path, kind, 63)
    said = run_aligntool("realign", image, "--yes", "--not-suspended", code=0).stdout
    assert "flash may keep a copy" in " ".join(said.split())
    raw = image.read_bytes()
    (luks_at,) = (at for at in range(0, len(raw), SECTOR) if raw[at : at + 6] == b"LUKS\xba\xbe")
    assert luks_at == MIB and not leaks(raw, keys, Extent(MIB, LENGTH))
