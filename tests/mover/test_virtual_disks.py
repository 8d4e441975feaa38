"""A qcow2 is realigned like its raw content; killed at any moment, with or without the server, nothing is lost.

The moments are spread evenly over the bytes written by the server. `ALIGNTOOL_KILLS=300` makes 300 of them;
`ALIGNTOOL_SEED` repeats a run, and every failure prints its own.
"""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from aligntool.units import MIB
from tests.conftest import run
from tests.mover.command_line import DONE, REFUSED, STOPPED, aligntool, begin, realign, resume, rollback
from tests.mover.conftest import MakeDisk
from tests.mover.disks import Row, content_of
from tests.mover.filesystems import FILESYSTEMS, SECTOR, Kind
from tests.mover.invariants import Journey, arrived, check_signatures, copy, trial, whole
from tests.mover.media import medium, needs_media
from tests.mover.test_convert import ESP, files_of
from tests.mover.test_convert import make as make_esp
from tests.mover.test_write_log import replay, survivors
from tests.thorough import SEED, THOROUGH

pytestmark = [
    pytest.mark.needs_tools("qemu-img", "qemu-storage-daemon", "unshare", "setpriv"),
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid"),
]
NAMED = {kind.name: kind for kind in FILESYSTEMS}
KILLS = int(os.environ.get("ALIGNTOOL_KILLS") or (40 if THOROUGH else 2))
CUTS = 4  # of the power of the host
SERVER = "qemu-storage-da"  # as much of its name as the kernel keeps


def packed(disk: Path, qcow2: Path) -> Path:
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk, qcow2)
    return qcow2


def unpacked(qcow2: Path, disk: Path) -> Path:
    """Return its content, once the server has ended and qemu-img finds no error; leaked clusters (3) are not errors."""
    deadline = time.monotonic() + 30
    while (done := checked(qcow2)).returncode == 1 and "lock" in done.stderr and time.monotonic() < deadline:
        time.sleep(0.05)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow2, disk)
    return disk


def checked(qcow2: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["qemu-img", "check", "-q", str(qcow2)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [[], ["-o", "new.img"]])
def test_no_command_of_another_program_is_suggested_for_the_file_of_a_virtual_disk(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a dd at the disk's offset, which would overwrite tables of the qcow2."""
    monkeypatch.chdir(tmp_path)
    disk = make_esp(tmp_path, free=8 * MIB)
    with disk.open("r+b") as file:
        file.seek(20_480)
        file.write(b"something else")
    qcow2 = packed(disk, tmp_path / "disk.qcow2")
    for one, command in ((disk, f"with dd on {disk}"), (qcow2, f"qemu-img convert -f qcow2 -O raw {qcow2}")):
        said = aligntool("convert", one, "--yes", *words, code=REFUSED)
        assert command in said and f"dd on {qcow2}" not in said and f"dd of={qcow2}" not in said


@pytest.mark.parametrize("kind", [NAMED[name].parameter() for name in (NAMED if THOROUGH else ("ext4", "ntfs"))])
def test_a_qcow2_is_realigned_as_its_raw_content_is(kind: Kind, make: MakeDisk, tmp_path: Path) -> None:
    disk = make("dos", Row(kind, 63), free=12 * 2048)
    qcow2 = packed(disk.image, tmp_path / "disk.qcow2")
    realign(copy(disk.image, trial(disk)))
    trip = arrived(disk)
    realign(qcow2)
    assert "No errors" in run("qemu-img", "check", qcow2)
    moved = unpacked(qcow2, tmp_path / "moved.img")
    assert whole(trip, moved) == "new"
    with content_of(moved, trip.new[1]) as one, content_of(trial(disk), trip.new[1]) as other:
        pairs = zip(sectors(one), sectors(other), strict=True)
        differing = [sector for pair in pairs if pair[0] != pair[1] for sector in pair]
    # Unused blocks at the old place contain the number of the move.
    assert all(sector.startswith(b"aligntool: a partition was") for sector in differing)


def sectors(content: Path) -> list[bytes]:
    read = content.read_bytes()
    return [read[at : at + SECTOR] for at in range(0, len(read), SECTOR)]


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mkswap", "mke2fs")
def test_requests_longer_than_a_mib_are_written_intact_to_a_qcow2(tmp_path: Path) -> None:
    """The FAT that is recreated is written to the journal as a whole: QEMU garbles such a request of direct I/O."""
    disk, large = make_esp(tmp_path, free=64 * MIB), tmp_path / "large"
    large.write_bytes(random.Random(SEED).randbytes(4_000_000))
    run("mcopy", "-i", f"{disk}@@{ESP}", large, "::")
    files = files_of(tmp_path, disk)
    qcow2 = packed(disk, tmp_path / "disk.qcow2")
    aligntool("convert", qcow2, "--sector-size", "4096", "--yes")
    assert files_of(tmp_path, unpacked(qcow2, tmp_path / "converted.img")) == files


@pytest.mark.needs_tools("mkfs.ext4", "debugfs", "e2fsck")
def test_a_kill_at_any_moment_loses_nothing_of_a_qcow2(make: MakeDisk, tmp_path: Path) -> None:
    disk = make("gpt", Row(NAMED["ext4"], 35), free=12 * 2048)
    qcow2 = packed(disk.image, tmp_path / "disk.qcow2")
    whole_run = tmp_path / "whole.qcow2"
    whole_run.write_bytes(qcow2.read_bytes())
    total = killed("realign", whole_run, limit=1 << 40)[1]
    unpacked(whole_run, trial(disk))
    trip, chance, told = arrived(disk), random.Random(SEED), []
    for number in range(KILLS):
        image = tmp_path / "killed.qcow2"
        image.write_bytes(qcow2.read_bytes())
        try:
            told.append(run_case(trip, image, total, chance))
        except BaseException as error:
            error.add_note(f"ALIGNTOOL_SEED={SEED}, story {number} of {KILLS}; told so far: {told}")
            raise
    print(f"seed {SEED}:", *told, sep="\n")
    assert sum("killed" in story for story in told) >= KILLS // 2, told


@needs_media
@pytest.mark.needs_tools("mkfs.ext4", "debugfs", "e2fsck")
def test_a_host_that_loses_its_page_cache_loses_nothing_of_a_qcow2(make: MakeDisk, tmp_path: Path) -> None:
    """What QEMU wrote before a flush is there after it; what it wrote later may be, sector by sector."""
    disk, kept = make("gpt", Row(NAMED["ext4"], 35), free=12 * 2048), tmp_path / "kept.qcow2"
    packed(disk.image, kept)
    os.truncate(kept, kept.stat().st_size + disk.image.stat().st_size)  # such a medium does not grow
    with medium(copy(kept, tmp_path / "moved.qcow2")) as recorder:
        realign(recorder.disk, "--no-lease")
        epochs = recorder.epochs()
    unpacked(tmp_path / "moved.qcow2", trial(disk))
    trip, chance, raw, crashed = arrived(disk), random.Random(SEED), tmp_path / "raw", tmp_path / "crashed.qcow2"
    assert len(epochs) > 10, "there are flushes between the steps"
    for number in range(len(epochs)) if THOROUGH else sorted(chance.sample(range(len(epochs)), CUTS)):
        replay(copy(kept, crashed), epochs[:number])
        replay(crashed, [survivors(epochs[number], chance)])
        try:
            check_signatures(trip, unpacked(crashed, raw))
            finish = rollback if chance.random() < 0.3 else resume
            finish(crashed, code=None)
            whole(trip, unpacked(crashed, raw))
            assert '"in-flight"' not in aligntool("status", crashed, "--json")
        except BaseException as error:
            error.add_note(f"ALIGNTOOL_SEED={SEED}, cut in epoch {number} of {len(epochs)}")
            raise


def run_case(trip: Journey, image: Path, total: int, chance: random.Random) -> str:
    """Kill, check, kill the resume or the rollback too, and finish."""
    story, command, raw = [], "realign", image.with_suffix(".img")
    for _ in range(chance.choice((1, 1, 2))):
        victims = chance.choice(("both", "server", "aligntool"))
        code, _ = killed(command, image, limit=chance.randrange(total), victims=victims)
        story.append(f"{command}: {f'killed {victims}' if code else 'done'}")
        check_signatures(trip, unpacked(image, raw))
        if not code or '"in-flight"' not in aligntool("status", image, "--json"):
            break
        command = chance.choice(("resume", "rollback"))
    finish = rollback if chance.random() < 0.3 else resume
    finish(image, code=None)
    state = whole(trip, unpacked(image, raw))
    assert '"in-flight"' not in aligntool("status", image, "--json")
    return ", ".join((*story, state))


def killed(command: str, image: Path, *, limit: int, victims: str = "") -> tuple[int, int]:
    """Kill when the server has written this many bytes. Return the exit code, and the number of bytes seen."""
    process, server, done = begin(command, str(image), "--yes"), 0, 0
    while process.poll() is None and done <= limit:
        server = server or child_of(process.pid)
        with suppress(OSError):  # it has just ended
            done = max(done, int(Path(f"/proc/{server}/io").read_text().split()[3]) if server else 0)
        time.sleep(0.0005)
    if process.poll() is None:
        for victim in {"both": (server, process.pid), "server": (server,), "aligntool": (process.pid,)}[victims]:
            os.kill(victim, signal.SIGKILL)
    code = process.wait(timeout=300)
    assert code in {DONE, REFUSED, STOPPED, -9}, code
    return code, done


def child_of(pid: int) -> int:
    """Return the server of a process; 0 if it has none."""
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == SERVER:
                return int(child)
    return 0
