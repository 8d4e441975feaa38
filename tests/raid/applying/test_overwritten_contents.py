"""A plan overwrites only what was seen when it was made; what appeared on the drive later is not overwritten."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.change import from_json
from aligntool.errors import Stopped
from aligntool.steps import MakeMember
from aligntool.units import GIB, MIB, Extent
from tests.conftest import run
from tests.raid.applying.builders import made_member, member_step, paths_in
from tests.run_aligntool import run_aligntool

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("losetup", "sfdisk", "partx", "mkfs.ext4", "blkid", "mdadm"),
]

Sparse = Callable[..., Path]
Attach = Callable[..., Path]
PLAN = ("raid", "plan", "--level", "1", "--fs", "ext4")


@pytest.fixture
def drives(sparse: Sparse, loop: Attach) -> tuple[Path, Path]:
    """Return two drives, each with a partition that the kernel shows."""
    found = loop(sparse(GIB, "a.img")), loop(sparse(GIB, "b.img"))
    for drive in found:
        run("sfdisk", "-q", "--no-tell-kernel", drive, stdin="label: gpt\nstart=2048, size=1000000, type=R\n")
        run("partx", "-a", drive)
    return found


@pytest.mark.parametrize("part", ["", "p1"], ids=["a drive", "a partition"])
def test_a_saved_plan_does_not_overwrite_content_created_since(
    drives: tuple[Path, Path], tmp_path: Path, part: str
) -> None:
    kept, first = tmp_path / "plan.json", f"{drives[0]}p1"
    assert Path(first).is_block_device()
    run("mkfs.ext4", "-q", "-L", "old", first)
    names = [f"{drive}{part}" for drive in drives]
    wipe = [word for name in names for word in ("--wipe", name)]
    done = run_aligntool(*PLAN, *wipe, "-o", kept, *names)
    assert done.returncode == 0, done.stderr
    uuid = run("blkid", "-p", "-o", "value", "-s", "UUID", first).strip()
    members = [step for step in json.loads(kept.read_text())["plan"]["steps"] if step["step"] == "MakeMember"]
    assert any(uuid in line and "old" in line for line in members[0]["holds"]) and "ext4" not in str(
        members[1]["holds"]
    )
    run("mkfs.ext4", "-q", "-F", "-L", "precious", first)
    before = run("blkid", "-p", first)
    done = run_aligntool("apply", "--yes", kept)
    assert done.returncode == 3
    assert "has changed since the plan was made" in done.stderr
    assert uuid in done.stderr and "precious" in done.stderr
    assert run("blkid", "-p", first) == before


@pytest.mark.parametrize("again", [False, True])
def test_the_apply_run_overwrites_only_the_content_in_the_plan(
    sparse: Sparse, loop: Attach, tmp_path: Path, again: bool
) -> None:
    drive, paths = loop(sparse(64 * MIB)), paths_in(tmp_path)
    run("mkfs.ext4", "-q", "-L", "old", drive)
    step = member_step(paths, drive, wipe=True)
    run("mkfs.ext4", "-q", "-F", "-L", "precious", drive)
    with pytest.raises(Stopped, match=r"was not there when the plan was made: ext4 .* precious"):
        made_member(step, again=again)
    assert 'LABEL="precious"' in run("blkid", "-p", drive)


def test_unrecognised_data_are_overwritten_only_if_the_drive_is_named(
    sparse: Sparse, loop: Attach, tmp_path: Path
) -> None:
    """Plain dm-crypt, a raw database and a hidden volume look random, and blkid does not identify them."""
    drives = [loop(sparse(GIB, name)) for name in ("a.img", "b.img")]
    run("dd", "if=/dev/urandom", f"of={drives[0]}", "bs=1M", "count=64", "conv=fsync")
    assert run("blkid", "-p", drives[0], fails=True) == ""
    done = run_aligntool(*PLAN, *drives)
    assert done.returncode == 3 and done.stdout == ""
    assert f"{drives[0].name} is not empty: unrecognised data at 6 of 67 places" in done.stderr
    assert f"--wipe {drives[0].name}" in done.stderr and f"{drives[1].name} is" not in done.stderr
    swept = run_aligntool("raid", "tune", "--level", "0", "--dry-run", *drives)
    assert swept.returncode == 3 and "unrecognised data" in swept.stderr and "--wipe" not in swept.stderr
    kept = tmp_path / "plan.json"
    done = run_aligntool(*PLAN, "--wipe", drives[0], "-o", kept, *drives)
    assert done.returncode == 0 and "lost: unrecognised data" in " ".join(done.stdout.split())
    run("dd", "if=/dev/urandom", f"of={drives[0]}", "bs=1M", "count=1", "conv=fsync")
    done = run_aligntool("apply", "--yes", kept)
    assert done.returncode == 3 and "has changed since the plan was made" in done.stderr
    run("sfdisk", "-q", "--no-tell-kernel", drives[0], stdin="label: dos\n")
    done = run_aligntool(*PLAN, *drives)
    assert done.returncode == 3 and "a partition table (MBR) without partitions" in done.stderr
    assert f"{drives[0].name} is not empty: unrecognised data at 6 of 67 places" in done.stderr
    run("blkdiscard", "--zeroout", drives[0])
    assert run_aligntool(*PLAN, *drives).returncode == 0


@pytest.mark.parametrize("kind", ["--whole-drives", ""])
def test_remains_of_a_gpt_are_overwritten_only_if_the_drive_is_named(
    sparse: Sparse, loop: Attach, tmp_path: Path, kind: str
) -> None:
    """Firmware that finds only one copy "repairs" the other, over the superblock of a whole drive: see AT608."""
    drives = [loop(sparse(GIB, name)) for name in ("a.img", "b.img")]
    run("sfdisk", "-q", "--no-tell-kernel", drives[0], stdin="label: gpt\nstart=2048, size=1000000\n")
    run("blkdiscard", "--zeroout", "-l", str(MIB), drives[0])
    assert run("blkid", "-p", drives[0], fails=True) == ""
    words = [*PLAN, *([kind] if kind else [])]
    done = run_aligntool(*words, *drives)
    assert done.returncode == 3 and done.stdout == ""
    assert "is not empty: partition 1, unrecognised (type Linux filesystem)" in done.stderr, "the backup copy lists it"
    assert f"audit {drives[0]}" in done.stderr and "--wipe /dev" not in done.stderr
    kept = tmp_path / "plan.json"
    done = run_aligntool(*words, "--wipe", drives[0], "-o", kept, *drives)
    assert done.returncode == 0 and "lost: partition 1, unrecognised (type Linux filesystem)" in " ".join(
        done.stdout.split()
    )
    (step, _) = [each for each in from_json(kept.read_text()).steps if isinstance(each, MakeMember)]
    made_member(step)
    for part in (Extent(0, MIB), Extent(GIB - MIB, MIB)) if kind else ():
        same = ("-n", str(part.length), "-i", f"{part.start}:0")
        assert run("cmp", *same, drives[0], "/dev/zero") == "", "both ends are zeroed"


def test_a_large_rotating_drive_is_not_taken_for_empty_unless_it_is_named(sparse: Sparse, loop: Attach) -> None:
    drives = [loop(sparse(256 * GIB, name)) for name in ("a.img", "b.img")]
    queues = [Path("/sys/block", drive.name, "queue/rotational") for drive in drives]
    before = [queue.read_text() for queue in queues]
    named = [word for drive in drives for word in ("--wipe", drive)]
    unread = "8195 places of 4KiB, every 32MiB, read as unwritten; what lies between them was not read"
    try:
        for queue in queues:
            queue.write_text("1")
        done = run_aligntool(*PLAN, *drives)
        assert done.returncode == 3 and done.stderr.count(unread) == 1
        names = [drive.name for drive in drives]
        assert f"{names[0]}, {names[1]} are not known to be empty: {unread}" in done.stderr
        assert f"add: --wipe {names[0]} --wipe {names[1]}\n" in done.stderr
        done = run_aligntool(*PLAN, *named, *drives)
        assert done.returncode == 0 and f"{drives[1].name}: {unread}" in " ".join(done.stdout.split())
        for queue in queues:
            queue.write_text("0")
        done = run_aligntool(*PLAN, *drives)
        assert done.returncode == 0 and "every 16MiB, read as unwritten" in " ".join(done.stdout.split())
    finally:
        for queue, text in zip(queues, before, strict=True):
            queue.write_text(text)
