"""Moves that were killed, then damaged with dd or edited by another program, and finished with the
suggested commands.
"""

import hashlib
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.cli.old_disks import LENGTH, assert_whole, first_start, make_old_disk
from tests.conftest import digest, run
from tests.mover.filesystems import LINUX
from tests.mover.test_simulated_cuts import final
from tests.mover.test_whole_disk_cuts import make
from tests.run_aligntool import program, run_aligntool
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "mke2fs", "e2fsck", "debugfs", "dd")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a disk in flight for each label: killed while it copied."""
    folder = tmp_path_factory.mktemp("in-flight")
    made = {label: make_old_disk(folder / f"{label}.img") for label in ("dos", "gpt")}
    table = f"label: gpt\nunit: sectors\nfirst-lba: 34\nstart=63, size={LENGTH // 512}\n"
    run("sfdisk", "-q", "--wipe", "never", made["gpt"], stdin=table)
    for image in made.values():
        kill_while_copying(image)
    return made


@pytest.fixture
def in_flight(models: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copied(label: str) -> Path:
        run("cp", "--sparse=always", models[label], tmp_path / f"{label}.img")
        return tmp_path / f"{label}.img"

    return copied


def kill_while_copying(image: Path, command: str = "realign") -> None:
    process = subprocess.Popen(
        program(command, "--yes", "--json", "--rate", "16MiB", image), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "progress":
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)


def overwrite(image: Path, *sectors: int) -> None:
    """Overwrite a part of the disk with dd, as by accident."""
    for sector in sectors:
        place = ("bs=512", f"seek={sector}", "count=1", "conv=notrunc", "status=none")
        run("dd", "if=/dev/urandom", f"of={image}", *place)


def journal_places(image: Path) -> tuple[int, int]:
    """Return the sectors of the two copies, found by their magic."""
    raw, found, at = image.read_bytes(), [], -1
    while (at := raw.find(b"aligntool journal\n", at + 1)) >= 0:
        found.append(at // 512)
    assert len(found) == 2
    return found[0], found[1]


@sample(1)
@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_journal_record_damaged_in_both_copies_is_refused_without_a_write(
    in_flight: Callable[[str], Path], way: str
) -> None:
    image = in_flight("gpt")
    damaged = image.with_suffix(".damaged")
    run("cp", "--sparse=always", image, damaged)
    overwrite(damaged, *(copy + slot for copy in journal_places(image) for slot in (8, 16)))
    before = digest(damaged)
    done = run_aligntool(way, "--yes", damaged)
    assert done.returncode == 3 and "Traceback" not in done.stderr, done.stderr
    assert run_aligntool("status", damaged).returncode == 3
    assert digest(damaged) == before
    overwrite(image, journal_places(image)[0] + 8, journal_places(image)[0] + 16)
    assert run_aligntool(way, "--yes", image).returncode == 0
    assert first_start(image) == (2048 if way == "resume" else 63)
    assert_whole(image)


@sample(2)
@pytest.mark.parametrize("way", ["resume", "rollback"])
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_disk_in_flight_with_an_unreadable_table_can_be_finished(
    in_flight: Callable[[str], Path], label: str, way: str
) -> None:
    image = in_flight(label)
    size = image.stat().st_size
    raw = bytearray(image.read_bytes())
    for at in (512 + 20, size - 512 + 20) if label == "gpt" else (510,):
        raw[at] ^= 0xFF
    image.write_bytes(raw)
    assert json.loads(run_aligntool("status", "--json", image).stdout)["state"] == "in-flight"
    done = run_aligntool(way, "--yes", image)
    assert done.returncode == 0, done.stderr
    assert first_start(image) == (2048 if way == "resume" else 63)
    assert "No errors detected" in run("sfdisk", "--verify", image)
    assert_whole(image)


@sample(1)
@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_larger_clone_with_a_moved_backup_can_be_finished_with_restore_table(
    in_flight: Callable[[str], Path], way: str
) -> None:
    image = in_flight("gpt")
    with image.open("r+b") as file:
        file.truncate(image.stat().st_size + 8 * MIB)
    run("sgdisk", "-e", image)
    before = digest(image)
    status = json.loads(run_aligntool("status", "--json", image).stdout)
    assert status["state"] == "in-flight" and all("--restore-table" in it for it in status["next"])
    for words in ((way, image), (way, image, "--restore-table")):  # refused, and no terminal for the confirmation
        done = run_aligntool(*words)
        assert done.returncode == 3 and "--restore-table" in done.stderr + " ".join(map(str, words))
        assert digest(image) == before
    done = run_aligntool(way, image, "--restore-table", "--yes")
    assert done.returncode == 0, done.stderr
    assert "table found" in done.stderr and "to be written" in done.stderr
    run("sgdisk", "-e", image)
    assert "No problems found" in run("sgdisk", "--verify", image)
    assert first_start(image) == (2048 if way == "resume" else 63)
    assert_whole(image)


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_disk_in_flight_whose_type_was_reset_is_not_moved_a_second_time(
    in_flight: Callable[[str], Path], label: str
) -> None:
    """The second move would overwrite the journal of the first."""
    image = in_flight(label)
    run("sfdisk", "-q", "--part-type", image, "1", {"gpt": LINUX, "dos": "83"}[label])
    before = digest(image)
    for words in (("plan", "realign"), ("realign", "--yes"), ("convert", "--yes"), ("partition", "--undo", "--yes")):
        done = run_aligntool(*words, image)
        assert done.returncode == 3 and f"aligntool status {image}" in done.stderr, (words, done.stderr)
        assert "in flight" in done.stderr
    assert digest(image) == before
    assert run_aligntool("resume", image, "--restore-table", "--yes").returncode == 0
    assert first_start(image) == 2048
    assert_whole(image)
    start = f"start=63, size={LENGTH // 512}, type={LINUX if label == 'gpt' else '83'}\n"
    table = f"label: {label}\n{'first-lba: 34' if label == 'gpt' else ''}\n{start}"
    run("sfdisk", "-q", "--wipe", "never", image, stdin=table)  # where the markers of the complete move still are
    assert run_aligntool("plan", "realign", image).returncode == 0


@pytest.mark.parametrize("start", [2 * MIB, 3 * MIB], ids=["where a marker is", "where none is"])
def test_a_new_table_does_not_hide_an_unfinished_move_into_a_first_partition(start: int, tmp_path: Path) -> None:
    """The content was half moved, and nothing is recognised in the new partition over it."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(96 * MIB)
    run("mke2fs", "-q", "-F", "-t", "ext4", image, "40m")
    with image.open("r+b") as file:
        file.seek(20 * MIB)
        file.write(bytes(range(1, 256)) * 4096)
    whole = hashlib.sha256(image.read_bytes()[: 40 * MIB]).hexdigest()
    kill_while_copying(image, "partition")
    run("sfdisk", "-q", "-w", "always", image, stdin=f"label: gpt\nstart={start // 512}, size=16MiB\n")
    before = digest(image)
    assert json.loads(run_aligntool("status", "--json", image).stdout)["state"] == "in-flight"
    for words in (("realign", "--grain", "8MiB"), ("layout", "--wipe", str(image), "--part", "rest:linux")):
        done = run_aligntool(*words, "--yes", image)
        assert done.returncode == 3 and f"aligntool status {image}" in done.stderr, (words, done.stderr)
    assert digest(image) == before
    run("sfdisk", "-q", "--delete", image, "1")
    done = run_aligntool("rollback", image, "--restore-table", "--yes")
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(image.read_bytes()[: 40 * MIB]).hexdigest() == whole


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_partition_created_meanwhile_in_the_area_of_the_move_is_not_overwritten(
    in_flight: Callable[[str], Path], label: str
) -> None:
    image = in_flight(label)
    run("sfdisk", "-q", "--no-reread", "--delete", image, "1")
    run("sfdisk", "-q", "--no-reread", "--append", "--wipe", "never", image, stdin="start=4096, size=4096\n")
    before = digest(image)
    assert "--restore-table is refused" in " ".join(run_aligntool("status", image).stdout.split())
    done = run_aligntool("resume", image, "--restore-table", "--yes")
    assert done.returncode == 3 and "docs/by-hand.md#delete-a-partition" in done.stderr, done.stderr
    assert digest(image) == before
    run("sfdisk", "-q", "--no-reread", "--delete", image, "1")
    assert run_aligntool("resume", image, "--restore-table", "--yes").returncode == 0
    assert first_start(image) == 2048
    assert_whole(image)


@sample(3)
@pytest.mark.parametrize("way", ["resume", "rollback"])
@pytest.mark.parametrize("start", [63, 2048])
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_file_system_created_meanwhile_in_the_same_extent_is_not_overwritten(
    in_flight: Callable[[str], Path], label: str, start: int, way: str
) -> None:
    image = in_flight(label)
    size = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"][0]["size"]
    first = "first-lba: 34\n" if label == "gpt" else ""
    run("sfdisk", "-q", "--no-reread", "--wipe", "always", "--wipe-partitions", "always", image,
        stdin=f"label: {label}\n{first}start={start}, size={size}\n")  # fmt: skip
    empty = image.with_suffix(".empty")
    run("cp", "--sparse=always", image, empty)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-E", f"offset={start * 512}", image, f"{size // 2}k")
    before = digest(image)
    done = run_aligntool(way, image, "--restore-table", "--yes")
    assert (
        done.returncode == 3 and "holds ext4" in done.stderr and "docs/by-hand.md#delete-a-partition" in done.stderr
    ), done.stderr
    assert digest(image) == before
    assert run_aligntool(way, empty, "--restore-table", "--yes").returncode == 0
    assert_whole(empty)


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_file_system_created_meanwhile_on_the_whole_disk_is_not_overwritten(
    in_flight: Callable[[str], Path], label: str
) -> None:
    image = in_flight(label)
    made = image.with_suffix(".ext4")
    run("mke2fs", "-q", "-F", "-t", "ext4", made, "16m")
    start = made.read_bytes()[: 4 * KIB]  # mkfs overwrites only the start of the old table
    image.write_bytes(start + image.read_bytes()[len(start) :])
    before = digest(image)
    for words in ((), ("--restore-table",)):
        done = run_aligntool("resume", image, "--yes", *words)
        assert done.returncode == 3, done.stderr
        assert digest(image) == before
    assert "the whole disk holds ext4" in done.stderr and "wipefs" in done.stderr


@pytest.mark.parametrize("made", ["mkswap -q", "mkfs.fat -I -F 12"])
def test_new_content_on_the_whole_disk_is_never_overwritten(made: str, tmp_path: Path) -> None:
    """Somebody gave up on a disk whose table was being removed, and uses it in another way."""
    folder = tmp_path / "case"
    folder.mkdir()
    parted = make(folder, "ext2")
    case = make(folder, "ext2", old=final(parted.act(parted.platter, "realign")), undo=True)
    whole = case.act(case.platter, "realign")
    image = tmp_path / "disk.img"
    tried = 0
    for cut in range(0, whole.operations, 1 if THOROUGH else 3):
        image.write_bytes(final(whole.before(cut)))
        if json.loads(run_aligntool("status", "--json", image).stdout)["state"] != "in-flight":
            continue
        run(*made.split(), image)
        before = image.read_bytes()
        for way in ("resume", "rollback"):
            run_aligntool(way, "--yes", "--restore-table", image)
            kept = 16 * KIB  # of a signature and what it leads to
            assert image.read_bytes()[:kept] == before[:kept], f"cut {cut}"
        tried += 1
    assert tried
