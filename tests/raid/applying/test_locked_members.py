"""Members that are in use in ways that an exclusive open does not detect: when planning, and when creating."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.raid.steps_drives import lock_members
from aligntool.steps import MakeMember
from aligntool.units import GIB, MIB
from tests.conftest import attached, run, unmount
from tests.linux.test_lock import another_program
from tests.raid.applying.builders import made_member, member_step, paths_in
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("losetup", "sfdisk", "partx", "mkfs.ext4", "blkid", "mount", "mdadm"),
]
PLAN = ("raid", "plan", "--level", "1", "--fs", "ext4")
POSIX = "opened = os.open(sys.argv[1], os.O_RDWR)\nfcntl.lockf(opened, fcntl.LOCK_EX)"
FLOCK = "opened = os.open(sys.argv[1], os.O_RDWR)\nfcntl.flock(opened, fcntl.LOCK_EX)"


@pytest.fixture
def drives(sparse: Callable[..., Path], loop: Callable[..., Path]) -> list[Path]:
    found = [loop(sparse(GIB, name)) for name in ("a.img", "b.img")]
    for drive in found:
        run("sfdisk", "-q", "--no-tell-kernel", drive, stdin="label: gpt\nstart=2048, size=1000000\n")
        run("partx", "-a", drive)
        assert Path(f"{drive}p1").is_block_device()
    return found


def taken(folder: Path, drive: Path) -> MakeMember:
    """Return the step for the first partition of a drive, used as it is."""
    step = member_step(paths_in(folder), drive, wipe=True)
    return replace(step, device=f"{drive}p1", label="", entries=())


@pytest.mark.parametrize("whole", [False, True], ids=["partition", "drive"])
def test_a_mount_through_a_loop_device_over_a_member_is_detected(
    drives: list[Path], tmp_path: Path, whole: bool
) -> None:
    """open(2) with O_EXCL succeeds, and so does wipefs, though a file system on it is mounted."""
    run("mkfs.ext4", "-q", f"{drives[0]}p1")
    (tmp_path / "mnt").mkdir()
    with attached(f"{drives[0]}p1") as over:
        run("mount", over, tmp_path / "mnt")
        try:
            names = [f"{drive}{'' if whole else 'p1'}" for drive in drives]
            wipe = [word for name in names for word in ("--wipe", name)]
            done = run_aligntool(*PLAN, *wipe, *names)
            assert done.returncode == 3 and done.stdout == ""
            assert f"{drives[0].name}p1 is attached to {over}" in done.stderr
            step = taken(tmp_path, drives[0])
            with pytest.raises(Refused, match=f"is attached to {over}"), lock_members([step]):
                pass
            with pytest.raises(Refused, match=f"is attached to {over}"):
                made_member(step)
            assert "ext4" in run("blkid", "-p", f"{drives[0]}p1")
        finally:
            unmount(tmp_path / "mnt")


def test_a_loop_device_over_a_whole_drive_counts_as_use_of_its_partitions(drives: list[Path], tmp_path: Path) -> None:
    names = [f"{drive}p1" for drive in drives]
    with attached(drives[1]) as over:
        done = run_aligntool(*PLAN, *names)
        assert done.returncode == 3 and f"{drives[1].name} is attached to {over}" in done.stderr
        assert str(over) in done.stderr.partition("→")[2]
    assert run_aligntool(*PLAN, *names).returncode == 0


@sample(1)
@pytest.mark.parametrize("code", [POSIX, FLOCK], ids=["posix", "flock"])
@pytest.mark.parametrize("part", ["", "p1"], ids=["on the drive", "on the partition"])
def test_a_lock_of_another_program_is_detected(drives: list[Path], tmp_path: Path, code: str, part: str) -> None:
    """QEMU locks each drive of its machines, and nothing else shows that it writes there."""
    names = [f"{drive}p1" for drive in drives]
    step = taken(tmp_path, drives[0])
    with another_program(code, Path(f"{drives[0]}{part}")):
        done = run_aligntool(*PLAN, *names)
        assert done.returncode == 3 and f"{drives[0]}{part} is locked by another program" in done.stderr
        with pytest.raises(Refused, match=r"is (locked by|open for writing in) "), lock_members([step]):
            pass
    with lock_members([step]):
        assert run_aligntool(*PLAN, *names).returncode == 3, "it is held now"


def test_a_mounted_neighbour_partition_does_not_prevent_the_array(drives: list[Path], tmp_path: Path) -> None:
    """A drive may hold other partitions: that is why arrays of partitions exist."""
    for drive in drives:
        run("sfdisk", "-q", "--no-tell-kernel", "--no-reread", "--append", drive, stdin="size=1000000\n")
        run("partx", "-u", drive)
    run("mkfs.ext4", "-q", f"{drives[0]}p2")
    (tmp_path / "mnt").mkdir()
    run("mount", f"{drives[0]}p2", tmp_path / "mnt")
    try:
        assert run_aligntool(*PLAN, *(f"{drive}p1" for drive in drives)).returncode == 0
        step = taken(tmp_path, drives[0])
        with lock_members([step]):
            pass
        with Path(f"{drives[0]}p1").open("r+b") as member:
            member.write(b"\xa5" * (6 * MIB))
        made_member(step)
        head = run("cmp", "-n", str(6 * MIB), f"{drives[0]}p1", "/dev/zero", fails=True)
        assert f" {5 * MIB + 1}, line" in head, "the head is wiped, and only that"
        run("ls", tmp_path / "mnt" / "lost+found")
    finally:
        unmount(tmp_path / "mnt")
