"""Arrays at which mkfs or md would fail, or that they would make differently, are refused before
anything is written.
"""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import Plan, RaidGoal
from aligntool.errors import Refused
from aligntool.inventory import Disk, IoLimits, LbaFormat, NvmeFacts, Unseen
from aligntool.raid.commands import command_of
from aligntool.raid.members import UNUSED
from aligntool.raid.running import PersistGoal, plan_persist
from aligntool.steps import MakeArray, MakeFileSystem, Mount
from aligntool.units import GIB, KIB, MIB, parse_size
from tests.audit.array_builders import fstab, machine, system
from tests.conftest import find_tool, run
from tests.raid.builders import drive, drives, goal, planned
from tests.run_aligntool import run_aligntool


def refused(wanted: RaidGoal, *disks: object) -> str:
    with pytest.raises(Refused) as caught:
        planned(wanted, *disks)  # type: ignore[arg-type]
    return str(caught.value)


def mkfs(plan: Plan) -> tuple[str, ...]:
    """Return the command without the device."""
    (step,) = [step for step in plan.steps if isinstance(step, MakeFileSystem)]
    return command_of(step)[:-1]


# The size of the array of such drives, and its file system. Before the size was checked, each was planned, and mkfs 6.1
# failed after the array was made.
SMALL = [
    (goal("raid10"), 4, 201 * MIB),
    (goal("raid1"), 2, 390 * MIB),
    (goal("raid0"), 2, 240 * MIB),
    (goal("raid5"), 3, 300 * MIB),
    (goal("raid1", filesystem="btrfs"), 2, 200 * MIB),
    (goal("raid1", filesystem="ext4", inode_size=4 * KIB), 2, 400 * MIB),
]
ENOUGH = [
    (goal("raid10"), 4, 420 * MIB),
    (goal("raid1"), 2, 410 * MIB),
    (goal("raid0"), 2, 270 * MIB),
    (goal("raid5"), 3, 400 * MIB),
    (goal("raid1", filesystem="btrfs"), 2, 214 * MIB),
    (goal("raid1", filesystem="ext4", inode_size=4 * KIB), 2, 630 * MIB),
]


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.btrfs")
@pytest.mark.parametrize(("wanted", "count", "size"), SMALL)
def test_an_array_too_small_for_its_file_system_is_refused_as_by_mkfs(
    sparse: Callable[..., Path], wanted: RaidGoal, count: int, size: int
) -> None:
    said = refused(wanted, *drives(count, size=size))
    assert f"{wanted.filesystem} needs" in said and "but the array has" in said
    made = planned(replace(wanted, filesystem="none"), *drives(count, size=size)).disk.size
    large = mkfs(planned(wanted, *drives(count)))
    assert subprocess.run(
        [find_tool(large[0]) or "", *large[1:], str(sparse(made))], capture_output=True, check=False, timeout=300
    ).returncode


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.btrfs")
@pytest.mark.parametrize(("wanted", "count", "size"), ENOUGH)
def test_a_planned_array_is_large_enough_for_mkfs(
    sparse: Callable[..., Path], wanted: RaidGoal, count: int, size: int
) -> None:
    plan = planned(wanted, *drives(count, size=size))
    assert plan.disk.size < 640 * MIB
    run(*mkfs(plan), sparse(plan.disk.size))


@pytest.mark.needs_tools("mkfs.xfs")
def test_a_stripe_too_wide_for_xfs_is_refused_as_by_mkfs(sparse: Callable[..., Path]) -> None:
    wide, narrow = (goal("raid0", chunk=size) for size in (512 * MIB, 256 * MIB))
    assert "too wide for xfs" in refused(wide, *drives(4))
    command = mkfs(planned(narrow, *drives(4)))
    image = str(sparse(200 * GIB))
    run(command[0], "-N", *command[1:], image)
    words = [word.replace(f"su={256 * MIB}", f"su={512 * MIB}") for word in command]
    done = subprocess.run([find_tool(words[0]) or "", "-N", *words[1:], image], capture_output=True, check=False)
    assert done.returncode and b"too large" in done.stderr


@pytest.mark.needs_tools("mkfs.xfs")
@pytest.mark.parametrize("size", [64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_smallest_planned_striped_xfs_has_room_for_its_log(
    sparse: Callable[..., Path], count: int, size: int
) -> None:
    """Its log has to lie in one of eight groups, of which each may be shortened to whole stripe units."""
    wanted = goal("raid0", chunk=size)
    large = mkfs(planned(wanted, *drives(count)))
    said = refused(wanted, *drives(count, size=(512 * MIB + 8 * size) // count + 3 * MIB))
    assert "xfs needs" in said
    least = parse_size(said.partition(" needs ")[2].partition(" here")[0])
    run(large[0], "-N", *large[1:], sparse(least))
    run(large[0], "-N", *large[1:], sparse(least + size))


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.ext4")
@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_chunk_and_blocks_that_do_not_fit_are_refused_as_by_mkfs(sparse: Callable[..., Path], kind: str) -> None:
    wanted = goal("raid0", chunk=16 * KIB, block_size=64 * KIB, filesystem=kind)
    assert f"is not a multiple of the blocks of {kind}, 64KiB" in refused(wanted, *drives(2))
    words = ("mkfs.xfs", "-N", "-b", "size=65536", "-d", "su=16384,sw=2", str(sparse(8 * GIB)))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode and "not a multiple of the block size" in done.stderr + done.stdout


def test_blocks_below_the_logical_blocks_of_the_members_are_refused() -> None:
    for kind in ("xfs", "ext4"):
        said = refused(goal("raid1", filesystem=kind, block_size=KIB), *drives(2, logical=4096))
        assert f"{kind} cannot have blocks of 1KiB on logical blocks of 4KiB" in said
        assert planned(goal("raid1", filesystem=kind, block_size=KIB), *drives(2)).steps


def test_a_recommended_chunk_is_one_that_md_accepts() -> None:
    for level in ("raid0", "raid10"):
        for page in (192 * KIB, 200000, 16 * MIB):
            plan = planned(goal(level, workload="database", database_page=page), *drives(4))
            (made,) = [step for step in plan.steps if isinstance(step, MakeArray)]
            assert made.chunk == MIB


def test_an_array_name_that_mdadm_reads_as_a_number_must_be_in_its_range() -> None:
    for name in ("1048576", "md99999999"):
        assert "for the number of the array" in refused(goal(name=name), *drives(2))
    for name in ("1048575", "20240101a"):
        assert planned(goal(name=name), *drives(2)).steps


def test_an_efi_system_partition_and_whole_drives_exclude_each_other() -> None:
    said = refused(goal("raid1", members="whole-drives", esp_size=512 * MIB), *drives(2))
    assert "an EFI system partition needs a new partition table, but whole drives were requested" in said


def test_a_mount_point_without_a_file_system_is_refused() -> None:
    for kind in ("swap", "none"):
        assert "nothing can be mounted at /srv/x" in refused(goal(filesystem=kind, mount_at="/srv/x"), *drives(2))


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
def test_a_chunk_too_large_for_the_stride_of_ext4_is_refused(sparse: Callable[..., Path]) -> None:
    """mke2fs accepts 65536 blocks without a warning, and writes 0."""
    wanted = goal("raid0", chunk=256 * MIB, filesystem="ext4")
    assert "too large for the stride" in refused(wanted, *drives(4))
    image = sparse(GIB)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "stride=65536", image)
    assert "RAID stride" not in run("dumpe2fs", "-h", image)


def test_members_of_a_raid0_that_are_used_completely_must_have_equal_lengths() -> None:
    """md uses all of each, and makes a second zone of the excess: raid0.c, create_strip_zones."""
    unequal = (drive(0), drive(1, size=2 * 960_197_124_096))
    said = refused(goal("raid0", members="whole-drives"), *unequal)
    assert "differ in length (nvme0n1 894.3GiB, nvme1n1 1.7TiB)" in said
    parts = (drive(0, parts="2048+40000000"), drive(1, parts="2048+48000000"))
    assert "differ in length" in refused(goal("raid0", partitions=(1, 1)), *parts)
    assert planned(goal("raid0"), *unequal).disk.size == planned(goal("raid0"), *drives(2)).disk.size
    for level in ("raid1", "raid10"):
        for plan in (
            planned(goal(level, members="whole-drives"), *unequal),
            planned(goal(level, partitions=(1, 1)), *parts),
        ):
            assert any(note.startswith(UNUSED) for note in plan.notes)


def test_the_size_of_a_raid0_on_complete_members_is_that_of_md() -> None:
    """Whole chunks behind the data offset, and no size in the command: raid0.c rounds down to the chunk alone."""
    parts = [drive(number, parts="2048+40001000") for number in range(2)]
    plan = planned(goal("raid0", chunk=64 * KIB, partitions=(1, 1)), *parts)
    (step,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    (word,) = [word for word in command_of(step) if word.startswith("--data-offset=")]
    offset = int(word.removeprefix("--data-offset=").removesuffix("K")) * KIB
    assert plan.disk.size == 2 * ((40001000 * 512 - offset) // (64 * KIB)) * 64 * KIB


def test_spare_room_is_refused_where_it_cannot_be_left_free() -> None:
    assert "no room can be left" in refused(goal("raid0", members="whole-drives", spare_room=GIB), *drives(2))
    parts = [drive(number, parts="2048+40000000") for number in range(2)]
    assert "no room can be left" in refused(goal("raid1", partitions=(1, 1), spare_room=GIB), *parts)
    planned(goal("raid1", members="whole-drives", spare_room=GIB), *drives(2))


def test_superblocks_at_the_end_are_accepted_only_for_mirrors() -> None:
    assert "metadata 1.0" in refused(goal("raid10", metadata="1.0"), *drives(4))
    planned(goal("raid1", metadata="1.0"), *drives(2))


# The next command -------------------------------------------------------------------------------------------------

FORMATS = (LbaFormat(0, 512, 0, 2), LbaFormat(1, 4096, 8, 0), LbaFormat(2, 4096, 0, 1), LbaFormat(3, 4096, 0, 3))
LARGE = IoLimits(4096, 4096, 4096)


def with_formats(disk: Disk) -> Disk:
    return replace(disk, nvme=NvmeFacts(formats=FORMATS, format_in_use=0))


def next_of(wanted: RaidGoal, *disks: Disk) -> list[str]:
    with pytest.raises(Refused) as caught:
        planned(wanted, *disks)
    return caught.value.hint.split("\n")


@pytest.mark.parametrize(
    ("large", "words"),
    [
        ((1,), ["format 0 erases nvme1n1 and gives it blocks of 512"]),  # the fewest drives are erased: one, not two
        (
            (1, 2),
            ["format 2 erases nvme0n1 and gives it blocks of 4096"],
        ),  # without metadata, and of those the one that the drive rates best
    ],
)
def test_for_drives_of_two_block_sizes_the_fewest_formats_are_suggested(
    large: tuple[int, ...], words: list[str]
) -> None:
    disks = [with_formats(disk) for disk in drives(3)]
    disks = [replace(disk, limits=LARGE) if number in large else disk for number, disk in enumerate(disks)]
    found = [line for line in next_of(goal("raid5"), *disks) if "erases" in line]
    assert [line.partition(": ")[0] for line in found] == words
    assert all(re.search(r"blocks of (\d+): --lba-size \1$", line) for line in found)


@pytest.mark.parametrize(
    "change",
    [
        lambda disk: replace(disk, nvme=None),
        lambda disk: replace(disk, nvme=NvmeFacts(formats=FORMATS[:2])),
        lambda disk: replace(disk, holders=("md127",)),
        lambda disk: replace(disk, content_read=False),
        lambda disk: replace(disk, partitions=drive(0, parts="2048+1000 ext4").partitions),
    ],
)
def test_no_erasing_command_is_suggested_for_a_drive_that_may_have_content(change: Callable[[Disk], Disk]) -> None:
    small, large = with_formats(drive(0)), replace(drive(1), limits=LARGE)
    assert any("format 2 erases nvme0n1" in line for line in next_of(goal(), small, large))
    said = next_of(goal(), change(small), large)
    assert not any("erases" in line for line in said) and any("with the same block size" in line for line in said)


def test_the_format_command_is_suggested_for_a_drive_named_by_wipe() -> None:
    small, large = with_formats(drive(0, parts="2048+1000 ext4")), replace(drive(1), limits=LARGE)
    (line,) = next_of(goal(wipe=("nvme0n1",)), small, large)
    assert "format 2 erases nvme0n1" in line and "with nvme on /dev/nvme0n1" in line


def test_for_partitions_of_two_block_sizes_no_format_of_the_drives_is_suggested() -> None:
    small = with_formats(drive(0, parts="2048+40000000"))
    large = replace(drive(1, parts="2048+40000000"), limits=LARGE)
    assert not any("erases" in line for line in next_of(goal(partitions=(1, 1)), small, large))


@pytest.mark.parametrize(
    ("table", "asked", "free"),
    [
        ("UUID=1 /srv/data xfs defaults 0 0", "/srv/data", "/srv/data-2"),
        ("UUID=1 /srv/data xfs defaults 0 0\nUUID=2 /srv/data-2 xfs defaults 0 0", "/srv/data", "/srv/data-3"),
        ("UUID=1 /home xfs defaults 0 0", "/home", "/srv/home"),
        ("UUID=1 /home xfs defaults 0 0\nUUID=2 /srv/home xfs defaults 0 0", "/home", "/srv/home-2"),
    ],
)
def test_for_a_mount_point_used_in_fstab_a_free_one_is_suggested(table: str, asked: str, free: str) -> None:
    inventory = machine("raid1", system(fstab=fstab(*table.splitlines())))
    with pytest.raises(Refused) as caught:
        plan_persist(inventory.disks[-1], inventory, PersistGoal(mount_at=asked))
    assert caught.value.hint == f"--mount {free}"
    plan = plan_persist(inventory.disks[-1], inventory, PersistGoal(mount_at=free))
    assert Mount(free) in plan.steps


def test_for_a_drive_that_needs_root_sudo_is_suggested_for_an_unreadable_one_audit() -> None:
    """After an audit as root, the same plan without sudo would be refused again."""
    one, other = drives(2)
    closed = replace(one, content_read=False, unseen=(Unseen("partition table", "needs root to open /dev/nvme0n1"),))
    assert next_of(goal(), closed, other) == ["run the same command with sudo"]
    broken = replace(one, content_read=False, unseen=(Unseen("partition table", "cannot be read: I/O error"),))
    assert next_of(goal(), broken, other) == ["sudo aligntool audit /dev/nvme0n1"]


def test_the_command_shown_by_a_recipe_is_valid_verbatim() -> None:
    """Its partitions belong to another user; only those have another name here, which no machine has."""
    shown = " ".join(run_aligntool("recipes", "show", "partition-level").stdout.split())
    assert "→ sudo aligntool raid plan DEVICE... --recipe partition-level" in shown
    note = shown.partition("note: ")[2].partition("source: ")[0]
    words = note.partition("sudo aligntool ")[2].replace("/dev/", "/nowhere/").split()
    done = run_aligntool(*words)
    assert done.returncode == 3 and done.stderr.count("No such file") == 2, done.stderr
    assert "which RAID" not in done.stderr


# Sizes in a recipe, and what mkfs prints that refuses them or makes another; "" if it accepts them.
MKFS_SIZES = [
    ("xfs", {"block_size": 512}, "-b size=512", "Minimum block size"),
    ("xfs", {"block_size": KIB}, "", ""),
    ("xfs", {"block_size": 3 * KIB}, "-b size=3072", "must be a power of 2"),
    ("xfs", {"block_size": 128 * KIB}, "-b size=131072", "too large"),
    ("xfs", {"inode_size": 256}, "-i size=256", "Minimum inode size"),
    ("xfs", {"inode_size": 2 * KIB}, "", ""),
    ("xfs", {"inode_size": 4 * KIB}, "-i size=4096", "too large"),
    ("xfs", {"block_size": KIB, "inode_size": KIB}, "-b size=1024 -i size=1024", "illegal inode size"),
    ("xfs", {"log_size": 63 * MIB}, f"-l size={63 * MIB}", "at least 64M"),
    ("xfs", {"log_size": 64 * MIB}, "", ""),
    ("xfs", {"log_size": 64 * MIB + 512}, f"-l size={64 * MIB + 512}", "truncated"),
    ("xfs", {"log_size": 2039 * MIB}, f"-l size={2039 * MIB}", "too large"),
    ("ext4", {"block_size": 3 * KIB}, "-b 3072", "2k blocks"),
    ("ext4", {"block_size": 64 * KIB}, "", ""),
    ("ext4", {"inode_size": 1000}, "-I 1000", "invalid inode size"),
    ("ext4", {"inode_size": 8 * KIB}, "-I 8192", "invalid inode size"),
    ("ext4", {"block_size": KIB, "inode_size": KIB}, "", ""),
    ("ext4", {"block_size": 64 * KIB, "inode_size": 64 * KIB}, "-b 65536 -I 65536", "too big"),
    ("ext4", {"block_size": 64 * KIB, "inode_size": 4 * KIB}, "", ""),
    ("ext4", {"inode_size": 4 * KIB}, "", ""),
]


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.ext4")
@pytest.mark.parametrize(("kind", "sizes", "options", "printed"), MKFS_SIZES)
def test_a_size_that_mkfs_refuses_or_reduces_is_refused(
    sparse: Callable[..., Path], kind: str, sizes: dict[str, int], options: str, printed: str
) -> None:
    wanted = goal("raid1", filesystem=kind, **sizes)
    if options:
        assert f"{list(sizes)[-1]} must be" in refused(wanted, *drives(2))
        words: tuple[str, ...] = (f"mkfs.{kind}", *options.split())
    else:
        words = mkfs(planned(wanted, *drives(2)))
    words = (*words, "-N" if kind == "xfs" else "-n", str(sparse(8 * GIB)))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert printed in done.stdout + done.stderr
    assert options or done.returncode == 0, done.stderr


def test_a_mount_option_that_would_end_its_field_in_fstab_is_refused() -> None:
    for option in ("noatime, nodiratime", "ro\n/dev/sda1 /etc ext4 defaults", "\tro"):
        assert "is not a mount option" in refused(goal(mount_options=("noatime", option)), *drives(2))
