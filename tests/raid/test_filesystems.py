"""The commands, executed: mkfs.xfs without writing, mke2fs, mkswap and mkfs.btrfs on files, mdadm up to its devices."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from aligntool.change import Plan, RaidGoal
from aligntool.inventory import LbaFormat, NvmeFacts
from aligntool.raid.commands import command_of
from aligntool.recipes.goals import load_recipes
from aligntool.steps import MakeArray, MakeFileSystem
from aligntool.units import GIB, KIB, MIB
from tests.conftest import find_tool, run
from tests.raid.builders import FS_UUID, drives, goal, planned


def made(plan: Plan, kind: str) -> tuple[str, ...]:
    """Return the arguments of the command, without the device at the end."""
    (step,) = [step for step in plan.steps if isinstance(step, MakeFileSystem) and step.kind == kind]
    assert command_of(step)[-1] == "/dev/md/data" == step.device
    return command_of(step)[:-1]


XFS = [
    ("raid0", 2, 256 * KIB, (64, 128), 64),
    ("raid0", 4, 512 * KIB, (128, 512), 8),  # the unit of the log falls back to 32 KiB
    ("raid10", 4, 64 * KIB, (16, 32), 16),
    ("raid5", 4, 128 * KIB, (32, 96), 32),
    ("raid6", 6, 64 * KIB, (16, 64), 16),
    ("raid1", 2, None, (0, 0), 0),
]


@pytest.mark.needs_tools("mkfs.xfs")
@pytest.mark.parametrize(("level", "count", "chunk", "stripe", "log"), XFS, ids=[row[0] for row in XFS])
def test_mkfs_xfs_reports_the_intended_stripe(
    sparse: Callable[..., Path], level: str, count: int, chunk: int | None, stripe: tuple[int, int], log: int
) -> None:
    """Its output is in blocks of 4096 bytes; it must print no warning, as it does if the log is limited."""
    command = made(planned(goal(level, chunk=chunk), *drives(count)), "xfs")
    words = [find_tool(command[0]) or "", "-N", *command[1:], str(sparse(20 * GIB))]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    found = re.search(r"sunit=(\d+)\s+swidth=(\d+) blks", done.stdout)
    assert found and (int(found[1]), int(found[2])) == stripe
    found = re.search(r"sectsz=\d+\s+sunit=(\d+) blks, lazy-count", done.stdout)
    assert found and int(found[1]) == log
    assert done.stderr == ""


SMALL, LARGE, TAGGED = LbaFormat(0, 512, 0, 2), LbaFormat(1, 4096, 0, 0), LbaFormat(2, 4096, 8, 0)


@pytest.mark.needs_tools("mkfs.xfs")
@pytest.mark.parametrize(
    ("formats", "logical", "words", "size"),
    [
        (((SMALL, LARGE), (SMALL, LARGE)), 512, {}, 4096),
        (((SMALL, LARGE), (SMALL,)), 512, {}, 512),
        (((SMALL, TAGGED), (SMALL, LARGE)), 512, {}, 512),
        (((), ()), 512, {}, 512),
        (((SMALL, LARGE), (SMALL, LARGE)), 512, {"block_size": 2048}, 512),
        (((SMALL, LARGE), (SMALL, LARGE)), 4096, {}, None),  # as the drives are
    ],
)
def test_xfs_gets_the_sectors_that_all_drives_could_be_given(
    sparse: Callable[..., Path],
    formats: tuple[tuple[LbaFormat, ...], ...],
    logical: int,
    words: dict[str, object],
    size: int | None,
) -> None:
    members = [
        replace(one, nvme=NvmeFacts(formats=each, format_in_use=0))
        for one, each in zip(drives(2, logical=logical), formats, strict=True)
    ]
    command = made(planned(goal("raid0", **words), *members), "xfs")
    assert ("-s" in command) == (size == 4096)
    if size is not None:  # of the data and of the log
        said = run(command[0], "-N", *command[1:], sparse(20 * GIB))
        assert [int(found) for found in re.findall(r"sectsz=(\d+)", said)] == [size, size]


@pytest.mark.parametrize(("level", "count"), [("raid0", 2), ("raid1", 2), ("raid10", 4), ("raid5", 3)])
def test_mkfs_gets_explicit_stripe_settings_instead_of_those_of_the_drives(level: str, count: int) -> None:
    """md passes on io_min and io_opt of its members (facts of a P5316: 64 KiB), and blkid passes them to mkfs:
    xfs_mkfs.c, calc_stripe_factors; mke2fs.c, set_stride and set_stripe, which an extended option overwrites.
    """
    xfs = " ".join(made(planned(goal(level), *drives(count)), "xfs"))
    assert ("-d noalign" in xfs) == (level == "raid1") and ("-d su=" in xfs) == (level != "raid1")
    ext4 = " ".join(made(planned(goal(level, filesystem="ext4"), *drives(count)), "ext4"))
    stride, width = re.search(r"-E stride=(\d+),stripe_width=(\d+)", ext4).groups()  # type: ignore[union-attr]
    assert (stride == "0") == (level == "raid1")
    assert (width == "0") == (level != "raid5")


@pytest.mark.needs_tools("mkfs.xfs")
def test_the_file_system_has_exactly_the_options_of_the_article(sparse: Callable[..., Path]) -> None:
    """Blocks of 4096 bytes, inodes of 512, a log of 64 MiB: 16384 blocks."""
    found = next(each.goal for each in load_recipes() if each.name == "nvme-raid0-scratch")
    assert isinstance(found, RaidGoal)
    plan = planned(goal("raid0", chunk=found.chunk, block_size=found.block_size, inode_size=found.inode_size,
                        log_size=found.log_size), *drives(2))  # fmt: skip
    command = made(plan, "xfs")
    said = run(command[0], "-N", *command[1:], sparse(20 * GIB))
    assert re.search(r"isize=512\b", said) and re.search(r"data\s+=\s+bsize=4096\b", said)
    assert re.search(r"log\s+=internal log\s+bsize=4096\s+blocks=16384\b", said)
    assert found.mount_options == ("noatime", "logbufs=8")


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mkfs.xfs", "mkfs.ext4", "mkfs.btrfs", "mkswap", "blkid")
@pytest.mark.parametrize("kind", ["xfs", "ext4", "btrfs", "swap"])
def test_content_of_an_earlier_array_does_not_prevent_a_file_system(
    sparse: Callable[..., Path], loop: Callable[..., Path], kind: str
) -> None:
    """Seen on an emulated PC: a RAID1 made on the drives of a stopped RAID0 contained the XFS of that one.

    On a device, because mkfs may overwrite a file without a warning. Of a UUID of its own: mkfs.btrfs(8) looks at all
    devices of the machine for another of the same.
    """
    device = loop(sparse(GIB))
    run("mkfs.ext4" if kind == "xfs" else "mkfs.xfs", "-q", device)
    command = made(planned(goal(filesystem=kind), *drives(2)), kind)
    run(*(word.replace(FS_UUID, str(uuid4())) for word in command), device)
    assert f"TYPE={kind}\n" in run("blkid", "-p", "-o", "export", device)


EXT4 = [("raid0", 4, 512 * KIB, "128", None), ("raid5", 4, 128 * KIB, "32", "96"), ("raid1", 2, None, None, None)]


@pytest.mark.needs_tools("mkfs.ext4", "dumpe2fs")
@pytest.mark.parametrize(("level", "count", "chunk", "stride", "width"), EXT4, ids=[row[0] for row in EXT4])
def test_ext4_has_the_stride_of_the_chunk_and_a_width_with_parity_only(
    sparse: Callable[..., Path], level: str, count: int, chunk: int | None, stride: str | None, width: str | None
) -> None:
    command = made(planned(goal(level, chunk=chunk, filesystem="ext4"), *drives(count)), "ext4")
    image = sparse(GIB)
    run(*command, "-q", image)
    facts = dict(line.split(":", 1) for line in run("dumpe2fs", "-h", image).splitlines() if ":" in line)
    told = {name: facts.get(f"RAID {name}", "").strip() or None for name in ("stride", "stripe width")}
    assert told == {"stride": stride, "stripe width": width}
    assert (facts["Filesystem UUID"].strip(), facts["Filesystem volume name"].strip()) == (FS_UUID, "data")


@pytest.mark.needs_tools("mkfs.btrfs", "mkswap", "blkid")
@pytest.mark.parametrize("kind", ["btrfs", "swap"])
def test_other_kinds_are_made_with_the_uuid_in_the_fstab_line(sparse: Callable[..., Path], kind: str) -> None:
    """The UUID is one of its own: mkfs.btrfs(8) looks at all devices of the machine for another of the same."""
    image, uuid = sparse(GIB), str(uuid4())
    command = made(planned(goal(filesystem=kind), *drives(2)), kind)
    assert FS_UUID in command
    run(*(word.replace(FS_UUID, uuid) for word in command), image)
    said = run("blkid", "-p", "-o", "export", image)
    assert f"UUID={uuid}\n" in said and f"TYPE={kind}\n" in said


@pytest.mark.needs_tools("mkfs.fat", "blkid")
def test_the_boot_partitions_of_a_system_are_fat32_with_different_ids(sparse: Callable[..., Path]) -> None:
    plan = planned(goal(esp_size=512 * MIB, filesystem="none"), *drives(2))
    steps = [step for step in plan.steps if isinstance(step, MakeFileSystem)]
    assert [step.device for step in steps] == ["/dev/nvme0n1p1", "/dev/nvme1n1p1"]
    assert len({step.uuid for step in steps}) == 2
    for step in steps:
        image = sparse(512 * MIB)
        run(*command_of(step)[:-1], image)
        said = run("blkid", "-p", "-o", "export", image)
        assert f"UUID={step.uuid}\n" in said and "VERSION=FAT32\n" in said


@pytest.mark.needs_root
@pytest.mark.needs_tools("mdadm")
@pytest.mark.parametrize(
    ("level", "count", "bitmap"),
    [("raid0", 2, None), ("raid1", 2, "none"), ("raid10", 4, None), ("raid5", 3, None), ("raid6", 4, "none")],
)
def test_mdadm_accepts_every_option_and_stops_at_missing_members(
    tmp_path: Path, level: str, count: int, bitmap: str | None
) -> None:
    """It reads all options before it opens a member, and the members do not exist: nothing can be made."""
    plan = planned(goal(level, bitmap=bitmap, name="aligntool-test"), *drives(count))
    (step,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    gone = {device: str(tmp_path / device.rpartition("/")[2]) for device in step.members}

    def ask(words: list[str]) -> str:
        words = [find_tool("mdadm") or "", *(gone.get(word, word) for word in words)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
        assert done.returncode
        return done.stdout + done.stderr

    words = list(command_of(step)[1:])
    assert "cannot open" in ask(words).lower() and "No such file" in ask(words)
    for wrong in ("--level=2", "--metadata=1.9", "--no-such-option"):
        assert "No such file" not in ask([wrong, *words])
