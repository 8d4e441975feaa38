"""Disks that fail in the middle of a move, damaged journals, and tables that another program changed meanwhile.

The faults are those of a disk that fails on request until it is repaired; its real content is checked directly. If
nothing can be done, the disk is left as it is, and the reason is reported.
"""

import random
import re
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.mover.journal import open_journal
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.mover import fileset
from tests.mover.command_line import DONE, REFUSED, STOPPED, aligntool, exit_code, realign, resume, rollback
from tests.mover.conftest import Contents
from tests.mover.containers import CONTAINERS, write
from tests.mover.disks import Row, entries, make_disk
from tests.mover.filesystems import FILESYSTEMS, SECTOR
from tests.mover.invariants import Journey, arrived, check_signatures, copy, recover_and_check, trial, whole
from tests.mover.loop_mounts import mounted
from tests.mover.media import Write, medium, needs_media
from tests.mover.test_write_log import cut_in_the_middle
from tests.thorough import SEED, THOROUGH, sample

pytestmark = [
    needs_media,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "mkfs.ext4", "debugfs", "e2fsck"),
]
NAMED = {kind.name: kind for kind in (*FILESYSTEMS, *CONTAINERS)}


Trip = tuple[Journey, list[list[Write]]]


@pytest.fixture(scope="module")
def trip(contents: Contents, tmp_path_factory: pytest.TempPathFactory) -> Trip:
    """Return one partition to be moved from 63 to 2048, and everything that is written for it."""
    row = Row(NAMED["ext2"], 63)
    image = tmp_path_factory.mktemp("trip") / "disk.img"
    disk = make_disk(image, "dos", (row,), {"ext2": contents(row.kind)}, free=6 * 2048)
    with medium(copy(disk.image, trial(disk))) as recorder:
        realign(recorder.disk, "--no-lease")
        epochs = recorder.epochs()
    return arrived(disk), epochs


def find(image: Path, extent: Extent, what: bytes) -> int:
    with image.open("rb") as file:
        file.seek(extent.start)
        return extent.start + file.read(extent.length).index(what) // SECTOR * SECTOR


@sample(3)
@pytest.mark.parametrize("mended", [True, False], ids=["mended and resumed", "taken back as it is"])
@pytest.mark.parametrize("what", ["read", "write", "garble"])
def test_a_bad_sector_stops_the_move_and_nothing_is_lost(what: str, mended: bool, trip: Trip, tmp_path: Path) -> None:
    journey, _ = trip
    old, new = journey.old[1], journey.new[1]
    bad = find(journey.disk.image, old, fileset.fragmented()[200 * KIB :][:2000])
    if what != "read":
        bad += new.start - old.start
    with medium(copy(journey.disk.image, tmp_path / "failing.img")) as disk:
        disk.fail((what, bad, SECTOR))
        said = realign(disk.disk, "--no-lease", code=STOPPED)
        assert "→ aligntool" in said.replace("sudo ", "")
        check_signatures(journey, disk.image)
        assert resume(disk.disk, "--no-lease", code=STOPPED)
        check_signatures(journey, disk.image)
        if mended:
            disk.fail()
        assert recover_and_check(journey, disk.image, disk.disk, back=not mended) == ("new" if mended else "old")


@pytest.mark.parametrize(("at", "tries"), [(9 * KIB, 1), (9 * KIB, 2), (KIB, 2)], ids=["hidden", "restored", "shown"])
@pytest.mark.parametrize("back", [True, False], ids=["rollback", "resume"])
def test_a_flipped_bit_of_what_was_written_is_of_no_other_program(
    back: bool, at: int, tries: int, trip: Trip, tmp_path: Path
) -> None:
    """The disk writes a sector of the old place wrongly, and one of the copy not at all."""
    journey, _ = trip
    old, new = journey.old[1], journey.new[1]
    bad = find(journey.disk.image, old, fileset.fragmented()[200 * KIB :][:2000]) + new.start - old.start
    with medium(copy(journey.disk.image, tmp_path / "failing.img")) as disk:
        disk.fail(("garble", old.start + at, SECTOR), ("write", bad, SECTOR))
        realign(disk.disk, "--no-lease", code=STOPPED)
        for _ in range(1, tries):
            assert "reads back differently" in rollback(disk.disk, "--no-lease", code=STOPPED)
        disk.fail()
        assert recover_and_check(journey, disk.image, disk.disk, back=back) == ("old" if back else "new")


def test_a_journal_that_cannot_be_written_stops_before_anything_is_moved(trip: Trip, tmp_path: Path) -> None:
    journey, epochs = trip
    first = epochs[0][0].at
    with medium(copy(journey.disk.image, tmp_path / "failing.img")) as disk:
        # The head and the body: docs/crash-safety.md. Something may have been written, so it is not a refusal.
        faults = [("write", first), ("write", first + 13 * KIB), ("garble", first + 13 * KIB)]
        for what, at in faults:
            disk.fail((what, at, SECTOR))
            said = realign(disk.disk, "--no-lease", code=STOPPED)
            assert "no partition was touched" in " ".join(said.split()) and "aligntool status" in said
            assert "resume" not in said
            assert whole(journey, disk.image) == "old"
        realign(disk.disk, "--no-lease")  # the sector does not read as zero any more, so the journal is put elsewhere
        assert whole(journey, disk.image) == "new"


@pytest.mark.parametrize("what", ["write", "flush", "read"])
def test_an_error_of_the_journal_file_names_that_file(what: str, tmp_path: Path) -> None:
    """The journal file is on another disk, which may be the one that fails."""
    with (tmp_path / "journal").open("xb") as file:
        file.truncate(MIB)
    with medium(tmp_path / "journal") as other, open_journal(str(other.disk)) as device:
        other.fail((what, 0, SECTOR))
        with pytest.raises(OSError, match="Input/output error") as error:
            device.write(0, bytes(4 * KIB))
            device.flush()
            device.read(0, 4 * KIB)
        assert error.value.filename == str(other.disk)


@pytest.mark.needs_root
def test_a_journal_file_on_a_read_only_file_system_is_refused_with_a_hint() -> None:
    with mounted(Path("none"), "mount", "-t", "tmpfs") as folder:
        (folder / "journal").write_bytes(bytes(MIB))
        run("mount", "-o", "remount,ro", folder)
        with pytest.raises(Refused, match="Read-only file system") as refused, open_journal(str(folder / "journal")):
            pass
        assert "mount its file system for writing" in refused.value.hint


@pytest.mark.parametrize("what", ["write", "flush"])
def test_a_table_that_cannot_be_written_leaves_the_old_state_or_a_recoverable_one(
    what: str, trip: Trip, tmp_path: Path
) -> None:
    journey, _ = trip
    with medium(copy(journey.disk.image, tmp_path / "failing.img")) as disk:
        disk.fail((what, 0, SECTOR))
        said = realign(disk.disk, "--no-lease", code=None)
        assert exit_code(said) in {REFUSED, STOPPED}, said
        check_signatures(journey, disk.image)
        disk.fail()
        if exit_code(said) == REFUSED:
            assert whole(journey, disk.image) == "old"
        recover_and_check(journey, disk.image, disk.disk, back=False)


def test_a_move_with_random_faults_can_always_be_recovered(trip: Trip, tmp_path: Path) -> None:
    journey, epochs = trip
    chance = random.Random(SEED)
    places = [write.at for epoch in epochs for write in epoch]
    for number in range(60 if THOROUGH else 3):
        faults = [fault(journey, chance.choice(places), chance) for _ in range(chance.choice((1, 1, 3)))]
        image = copy(journey.disk.image, tmp_path / f"story {number}.img")
        try:
            run_case(journey, image, faults, chance)
        except BaseException as error:
            error.add_note(f"ALIGNTOOL_SEED={SEED}, story {number}, faults {faults}")
            raise


def fault(journey: Journey, near: int, chance: random.Random) -> tuple[str, int, int]:
    """Return a fault. What cannot be read where no partition is may be data, and another place is chosen then."""
    at = near + chance.randrange(64) * SECTOR
    is_listed = any(part.contains(Extent(at, SECTOR)) for part in journey.old.values())
    return chance.choice(("read", "write", "garble") if is_listed else ("write", "garble")), at, SECTOR


def run_case(journey: Journey, image: Path, faults: list[tuple[str, int, int]], chance: random.Random) -> None:
    with medium(image) as disk:
        disk.fail(*faults)
        said = realign(disk.disk, "--no-lease", code=None)
        assert exit_code(said) in {DONE, REFUSED, STOPPED}, said
        check_signatures(journey, image)
        if exit_code(said) == STOPPED and chance.random() < 0.5:
            said = rollback(disk.disk, "--no-lease", code=None)
            assert exit_code(said) in {DONE, REFUSED, STOPPED}, said
            check_signatures(journey, image)
        disk.fail()
        recover_and_check(journey, image, disk.disk, back=chance.random() < 0.5)


# A disk in flight that was changed by something else


@pytest.fixture
def cut(trip: Trip, tmp_path: Path) -> tuple[Journey, Path]:
    """Return a disk in flight, in the middle of the work."""
    journey, epochs = trip
    image = cut_in_the_middle(journey.disk.image, epochs, tmp_path / "cut.img")
    assert entries(image)[1]["type"] == "7f"
    return journey, image


Cut = tuple[Journey, Path]


def journal_copies(image: Path) -> tuple[int, int]:
    """Return the places of the two copies: the marker at the old place points to the first, and the other one begins
    like it.
    """
    content = image.read_bytes()
    named = re.search(rb"journal [0-9a-f]{32} at byte (\d+)\n", content)
    assert named
    first = int(named[1])
    places = range(first + 64 * KIB, len(content), 64 * KIB)
    return first, next(at for at in places if content[at : at + 8] == content[first : first + 8])


def check_refused_unchanged(image: Path, *words: str) -> None:
    before = image.read_bytes()
    for finish in (resume, rollback):
        said = finish(image, code=REFUSED)
        assert all(word in said for word in words), said
        assert image.read_bytes() == before


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("back", [False, True], ids=["resume", "rollback"])
def test_one_copy_of_the_journal_is_enough(which: int, back: bool, cut: Cut) -> None:
    journey, image = cut
    write(image, journal_copies(image)[which], fileset.noise("damage", 16 * KIB))
    assert recover_and_check(journey, image, image, back=back) == ("old" if back else "new")


def test_a_wrong_bit_anywhere_in_either_copy_prevents_nothing(cut: Cut, tmp_path: Path) -> None:
    journey, image = cut
    first, second = journal_copies(image)
    chance = random.Random(SEED)
    for number in range(40 if THOROUGH else 2):
        damaged = copy(image, tmp_path / "damaged.img")
        at = chance.choice((first, second)) + chance.randrange(200 * KIB)
        with damaged.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes((byte ^ 4,)))
        try:
            assert recover_and_check(journey, damaged, damaged, back=False) == "new"
        except BaseException as error:
            error.add_note(f"ALIGNTOOL_SEED={SEED}, bit {number} at byte {at}")
            raise


def test_two_damaged_copies_are_a_refusal(cut: Cut) -> None:
    _, image = cut
    for at in journal_copies(image):
        write(image, at, fileset.noise("damage", 16 * KIB))
    check_refused_unchanged(image, "no readable journal")


def test_a_smaller_disk_is_a_refusal(cut: Cut) -> None:
    _, image = cut
    size = image.stat().st_size
    with image.open("r+b") as file:
        file.truncate(size - 64 * KIB)
    check_refused_unchanged(image, str(size), str(size - 64 * KIB))


def test_a_disk_with_nothing_in_flight_is_a_refusal(trip: Trip) -> None:
    journey, _ = trip
    check_refused_unchanged(journey.disk.image, "nothing is in flight")


def test_a_table_that_was_changed_meanwhile_is_a_refusal_until_it_is_restored(cut: Cut) -> None:
    journey, image = cut
    kept = image.read_bytes()[:SECTOR]
    run("sfdisk", "-q", "--no-reread", "--disk-id", image, "0x01234567")
    check_refused_unchanged(image, "partition table", "→")
    write(image, 0, kept)
    assert recover_and_check(journey, image, image, back=False) == "new"


def test_a_complete_copy_of_a_disk_in_flight_can_be_finished_as_the_disk_can(cut: Cut, tmp_path: Path) -> None:
    journey, image = cut
    other = copy(image, tmp_path / "elsewhere.img")
    assert recover_and_check(journey, other, other, back=False) == "new"
    assert recover_and_check(journey, image, image, back=True) == "old"


@pytest.mark.parametrize(("words", "code"), [(("partition", "--undo"), REFUSED), (("convert",), DONE)])
def test_unlisted_bytes_that_cannot_be_read_are_not_overwritten(
    words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """They may be data: the journal of a conversion is put elsewhere, and a partition is not moved over them."""
    image, part, at = tmp_path / "disk.img", tmp_path / "part", 128 * KIB
    for file, size in ((image, 32 * MIB), (part, 8 * MIB)):
        with file.open("wb") as new:
            new.truncate(size)
    run("mkfs.ext4", "-q", "-b", "4096", part)
    run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048, size=8MiB\n")
    with image.open("r+b") as disk:
        disk.seek(MIB)
        disk.write(part.read_bytes())
    with medium(image) as failing:
        failing.fail(("read", at, SECTOR))
        said = aligntool("plan", *words, "--no-lease", failing.disk, code=code)
    assert ("bytes 17408..1048576" in " ".join(said.split())) == (code == REFUSED), said


def test_a_copy_whose_source_has_a_bad_sector_names_the_source(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as new:
        new.truncate(32 * MIB)
    run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048, size=8MiB, type=swap\n")
    part = tmp_path / "swap"
    part.write_bytes(bytes(8 * MIB))
    run("mkswap", part)
    with image.open("r+b") as disk:
        disk.seek(MIB)
        disk.write(part.read_bytes())
    with medium(image) as failing:
        failing.fail(("read", 600 * KIB, SECTOR))
        words = ("convert", failing.disk, "--sector-size=4096", "-o", tmp_path / "new", "--yes", "--no-lease")
        assert "the source cannot be read at byte " in " ".join(aligntool(*words, code=STOPPED).split())
    assert not (tmp_path / "new").exists()
