"""Disks without any free space: a file system is shrunk by its own tool, everything moves, and nothing is lost.

Expected values come from the file systems' own checkers and readers, blkid and sfdisk.
"""

import json
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.block import DiskDevice
from aligntool.linux.loops import partition_loop
from aligntool.realign.shrink import refuse_unshrinkable
from aligntool.steps import ShrinkContent
from aligntool.units import KIB, MIB, Extent
from tests.by_hand import section_of
from tests.conftest import digest, find_tool, run
from tests.mover.command_line import DONE, REFUSED, STOPPED, aligntool, begin, exit_code, kill, realign, wait_for_child
from tests.mover.conftest import Contents, MakeDisk
from tests.mover.containers import write
from tests.mover.disks import Disk, Row, Seen, content_of
from tests.mover.filesystems import FILESYSTEMS, SECTOR, Kind, ext
from tests.mover.loop_mounts import mounted
from tests.mover.test_killed_loops import wait_until
from tests.mover.test_kills import killed, settle, written
from tests.run_aligntool import program, run_aligntool
from tests.thorough import SEED, THOROUGH, sample, when_thorough

Sparse = Callable[..., Path]
Loop = Callable[..., Path]
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid", "losetup", "resize2fs", "ntfsresize"),
]

NAMED = {kind.name: kind for kind in FILESYSTEMS}
BTRFS = replace(NAMED["btrfs"], name="long btrfs", length=300 * MIB + 9 * SECTOR)  # 256 MiB always remain
KINDS = [kind.parameter() for kind in (NAMED["ext4"], NAMED["ntfs"], BTRFS)]
EXT4 = replace(ext("ext4", 64 * 2048 + 5), name="long ext4")
OF_ITS_LENGTH = ("ID_FS_FSSIZE", "ID_FS_FSLASTBLOCK")  # newer versions of blkid print them


def full(make: MakeDisk, label: str, *rows: Row) -> Disk:
    """Make a disk whose last partition ends at the end of the disk, or at its backup table."""
    return make(label, *rows, free=33 if label == "gpt" else 0)


def seen(disk: Disk) -> dict[int, Seen]:
    """Return what does not change when a file system is shrunk."""
    return {
        number: Seen(
            {key: value for key, value in one.blkid.items() if key not in OF_ITS_LENGTH},
            {key: value for key, value in one.entry.items() if key != "size"},
            one.hashes,
        )
        for number, one in disk.seen().items()
    }


def shrunk(disk: Disk, target: Path, *, needed: bool = True) -> dict[int, Extent]:
    """Realign it, and check everything that must not change. Return the places afterwards.

    `needed`: without shrinking there is no room for a journal, on any grain.
    """
    before, old = seen(disk), disk.extents()
    if needed:
        assert "MiB to spare" in realign(target, code=REFUSED)
    said = realign(target, "--shrink")
    assert ("Windows checks a shrunk NTFS" in said) == any(row.kind.name == "ntfs" for row in disk.rows)
    assert seen(disk) == before
    disk.check()
    new = disk.extents()
    assert all(extent.start % MIB == 0 for extent in new.values())
    assert sum(new[number].length < old[number].length for number in old) == 1
    return new


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_on_a_full_disk_is_shrunk_and_moved_with_every_file(
    kind: Kind, make: MakeDisk, loop: Loop
) -> None:
    disk = full(make, "gpt", Row(kind, 34))
    shrunk(disk, loop(disk.image))


@when_thorough("takes longer")
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_in_an_image_with_an_mbr_is_shrunk_and_moved(kind: Kind, make: MakeDisk) -> None:
    disk = full(make, "dos", Row(kind, 63))
    shrunk(disk, disk.image)


def test_the_last_logical_partition_is_shrunk_to_make_room_for_all_others(make: MakeDisk) -> None:
    """The primary one needs none of it: the extended partition begins where it did."""
    primary = Row(NAMED["fat12"], 63)
    first = Row(NAMED["ext2"], primary.end + 2048 + 63, logical=True)
    disk = full(make, "dos", primary, first, Row(EXT4, first.end + 63, logical=True))
    assert shrunk(disk, disk.image, needed=False)[6].length < EXT4.length


def test_a_shrunk_ntfs_has_the_copy_of_its_boot_sector_in_its_last_sector(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ntfs"], 63))
    place = shrunk(disk, disk.image)[1]
    with disk.image.open("rb") as file:
        file.seek(place.start)
        first = file.read(SECTOR)
        file.seek(place.end - SECTOR)
        last = file.read(SECTOR)
    assert int.from_bytes(first[28:32], "little") == place.start // SECTOR
    assert (int.from_bytes(first[40:48], "little") + 1) * SECTOR <= place.length
    assert last == first


@pytest.mark.parametrize("command", ["realign", "partition"])
def test_a_shrunk_ntfs_with_large_clusters_and_sectors_has_all_its_copies(command: str, sparse: Sparse) -> None:
    """ntfsresize shortens it to whole clusters, and leaves its sectors: the copy is behind the last cluster."""
    content = image = sparse(64 * MIB, "content")
    run("mkntfs", "-q", "-Q", "-F", "-s", "4096", "-c", "65536", "-p", "63", "-H", "255", "-S", "63", content)
    if command == "realign":
        image = sparse(63 * SECTOR + 64 * MIB, "disk.img")
        run("sfdisk", "-q", image, stdin="label: dos\nstart=63, type=7\n")
        run("dd", f"if={content}", f"of={image}", "seek=63", "conv=notrunc,sparse", "status=none")
    lines = run_aligntool(command, image, "--shrink", "--yes", "--json", code=DONE).stdout.splitlines()
    totals = {each["total"] for each in map(json.loads, lines) if each.get("event") == "progress"}
    assert max(totals) < 32 * MIB  # not everything
    (part,) = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"]
    place = Extent(part["start"] * SECTOR, part["size"] * SECTOR)
    with image.open("rb") as file:
        first, last = (os.pread(file.fileno(), SECTOR, at) for at in (place.start, place.end - 4096))
    assert first[3:7] == b"NTFS" and last == first
    with content_of(image, place) as content:
        run("ntfsresize", "--info", "--force", content)


@pytest.mark.parametrize("command", ["realign", "partition"])
def test_only_the_used_clusters_of_a_shrunk_ntfs_are_copied(
    command: str, make: MakeDisk, contents: Contents, tmp_path: Path
) -> None:
    """partclone refuses the mark for Windows that ntfsresize sets, unless it is set to ignore it."""
    ntfs, image = NAMED["ntfs"], tmp_path / "whole.img"
    if command == "realign":
        image = full(make, "dos", Row(ntfs, 63)).image
    else:
        shutil.copy(contents(ntfs), image)
    with content_of(image, Extent(63 * SECTOR if command == "realign" else 0, ntfs.length)) as content:
        in_use = re.search(r"Space in use +: (\d+) MB", run("ntfsresize", "--info", content))
    lines = run_aligntool(command, image, "--shrink", "--yes", "--json", code=DONE).stdout.splitlines()
    totals = {each["total"] for each in map(json.loads, lines) if each.get("event") == "progress"}
    assert in_use and max(totals) < (int(in_use[1]) + 2) * 10**6 < ntfs.length * 3 // 4


# Shrinks that fail


def stand_in(folder: Path, name: str, *lines: str) -> None:
    """Write a program of that name that comes first in PATH."""
    program = folder / name
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_a_refusal_by_the_shrinking_tool_comes_before_anything_is_written(make: MakeDisk, programs: Path) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    stand_in(programs, "resize2fs", "echo 'resize2fs: Device or resource busy' >&2", "exit 1")
    before = disk.image.read_bytes()
    assert "Device or resource busy" in realign(disk.image, "--shrink", code=REFUSED)
    assert disk.image.read_bytes() == before


def test_a_length_that_resize2fs_finds_too_short_is_refused(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before, place = disk.image.read_bytes(), disk.extents()[1]
    with pytest.raises(Refused, match=r"needs .*, according to resize2fs"):
        refuse_unshrinkable(str(disk.image), ShrinkContent(1, place, "ext4", MIB))
    assert disk.image.read_bytes() == before


def test_a_length_that_ntfsresize_finds_too_short_is_refused(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ntfs"], 63))
    before, place = disk.image.read_bytes(), disk.extents()[1]
    with pytest.raises(Refused, match="ntfsresize failed"):
        refuse_unshrinkable(str(disk.image), ShrinkContent(1, place, "ntfs", MIB))
    assert disk.image.read_bytes() == before


@pytest.mark.needs_tools("mkfs.btrfs")
def test_a_btrfs_of_several_devices_is_refused(sparse: Sparse, loop: Loop) -> None:
    """Its tool would shrink the device with id 1, which is elsewhere."""
    first, second = (sparse(300 * MIB, name) for name in ("first", "second"))
    run("mkfs.btrfs", "-q", "-d", "single", "-m", "single", loop(first), loop(second))
    for number, image in enumerate((first, second), 1):
        with pytest.raises(Refused, match=f"device {number} of a btrfs with 2"):
            refuse_unshrinkable(str(image), ShrinkContent(1, Extent(0, 300 * MIB), "btrfs", 280 * MIB))


@pytest.mark.needs_tools("mkfs.btrfs", "btrfstune")
def test_a_btrfs_seed_is_refused(sparse: Sparse) -> None:
    """Linux mounts it read-only, so it would be refused after the mount."""
    image = sparse(300 * MIB)
    run("mkfs.btrfs", "-q", image)
    run("btrfstune", "-f", "-S", "1", image)
    with pytest.raises(Refused, match="is a btrfs seed") as refused:
        refuse_unshrinkable(str(image), ShrinkContent(1, Extent(0, 300 * MIB), "btrfs", 280 * MIB))
    assert f"with btrfstune on {image}, {300 * MIB} bytes from byte 0: " in refused.value.hint
    assert "`sudo btrfstune -S 0 PARTITION`" in section_of(refused.value.hint)


@pytest.mark.needs_tools("mkfs.btrfs")
def test_a_paused_balance_stays_paused_and_is_reported(sparse: Sparse, loop: Loop) -> None:
    image = sparse(400 * MIB)
    run("mkfs.btrfs", "-q", "-m", "single", image)
    disk = loop(image)
    with mounted(disk, "mount") as folder:
        for number in range(8):
            (folder / str(number)).write_bytes(os.urandom(8 * MIB))
        os.sync()
        balance = subprocess.Popen(["btrfs", "balance", "start", "--full-balance", folder])
        while subprocess.run(["btrfs", "balance", "pause", folder], capture_output=True, check=False).returncode:
            assert balance.poll() is None
            time.sleep(0.01)
        balance.wait()
    before = image.read_bytes()
    said = aligntool("partition", disk, "--shrink", "--yes", code=STOPPED)
    assert "'balance paused' in progress" in said and "btrfs balance cancel" in section_of(said.rpartition("→ ")[2])
    assert image.read_bytes() == before


def test_no_check_is_suggested_for_an_ext4_feature_that_resize2fs_does_not_shrink(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    run("debugfs", "-w", "-R", "feature encrypt stable_inodes", f"{disk.image}?offset={disk.extents()[1].start}")
    said = realign(disk.image, "--shrink", code=REFUSED)
    assert "stable_inodes" in said and said.rpartition("→")[2].startswith(" copy its files to another disk")


def test_an_ext4_with_bigalloc_is_not_to_be_checked_either(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(EXT4, 63))
    place = disk.extents()[1]
    words = ("-O", "bigalloc", "-E", f"offset={place.start}", disk.image, f"{place.length // KIB}k")
    run("mke2fs", "-q", "-F", "-t", "ext4", *words)
    said = realign(disk.image, "--shrink", code=REFUSED)
    assert "Resizing bigalloc" in said and said.rpartition("→")[2].startswith(" copy its files to another disk")


@pytest.mark.parametrize("feature", ["FEATURE_C20", "FEATURE_R20"])
def test_an_ext4_with_a_feature_of_a_newer_e2fsprogs_needs_that_version(feature: str, make: MakeDisk) -> None:
    """resize2fs -P refuses the one; e2fsck refuses both, and only its repair is no check of the plan."""
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    run("debugfs", "-w", "-R", f"feature {feature}", f"{disk.image}?offset={disk.extents()[1].start}")
    said = realign(disk.image, "--shrink", code=REFUSED)
    assert feature in said and said.rpartition("→")[2].startswith(" install a newer version of e2fsprogs")


def test_xfs_is_refused_with_the_reason(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["xfs"], 63))
    before = disk.image.read_bytes()
    assert "XFS cannot be shrunk" in realign(disk.image, "--shrink", code=REFUSED)
    assert disk.image.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "name", "asks"), [("ext4", "resize2fs", "-P"), ("ntfs", "ntfsresize", "--no-action|--info")]
)
@pytest.mark.parametrize("end", ["kill -9 $$", "exit 1"])
def test_a_tool_that_fails_in_the_middle_has_written_nothing(
    kind: str, name: str, asks: str, end: str, make: MakeDisk, programs: Path
) -> None:
    disk = full(make, "dos", Row(NAMED[kind], 63))
    before = disk.image.read_bytes()
    overwrite = 'for last in "$@"; do :; done; [ -b "$last" ] && head -c 8M /dev/urandom > "$last"'
    asks = "|".join(f"*{word}*" for word in asks.split("|"))
    stand_in(programs, name, f'case "$*" in {asks}) exec {find_tool(name)} "$@";; esac', overwrite, end)
    said = realign(disk.image, "--shrink", code=REFUSED)
    assert f"{name} was killed by SIGKILL" in said or f"{name} failed" in said
    assert "nothing was written" in said and "resume" not in said
    assert disk.image.read_bytes() == before


@pytest.mark.parametrize("kind", ["ext4", "ntfs"])
def test_a_tool_that_damages_the_file_system_has_written_nothing(kind: str, make: MakeDisk, programs: Path) -> None:
    """Its own checker reads the result before anything is written to the disk."""
    disk = full(make, "dos", Row(NAMED[kind], 63))
    before, name = disk.image.read_bytes(), {"ext4": "resize2fs", "ntfs": "ntfsresize"}[kind]
    stand_in(
        programs, name, f'case "$*" in *-P*|*--no-action*|*--info*) exec {find_tool(name)} "$@";; esac',
        f'{find_tool(name)} "$@" || exit', 'for last in "$@"; do [ -b "$last" ] && device=$last; done',
        'head -c 64K /dev/urandom | dd of="$device" bs=64K seek=64 conv=notrunc status=none',
        'head -c 2M /dev/urandom | dd of="$device" bs=4K seek=5 conv=notrunc status=none',
    )  # fmt: skip
    said = realign(disk.image, "--shrink", code=REFUSED)
    assert "nothing was written" in said
    assert disk.image.read_bytes() == before


def test_a_full_folder_for_temporary_files_is_named(make: MakeDisk) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before = disk.image.read_bytes()
    with mounted(Path("none"), "mount", "-t", "tmpfs", "-o", "size=16k") as folder:
        ended = subprocess.run(
            program("realign", disk.image, "--yes", "--shrink"), env={**os.environ, "TMPDIR": str(folder)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == REFUSED and "nothing was written" in ended.stderr, ended
    assert "set TMPDIR to a folder on another disk" in ended.stderr
    assert disk.image.read_bytes() == before


def test_an_image_that_is_changed_while_its_view_is_shrunk_stays(make: MakeDisk, programs: Path) -> None:
    """As by a file system that was mounted meanwhile: it would be replaced by a shrunk one from before that."""
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before = disk.image.read_bytes()
    stand_in(programs, "resize2fs", f'[ "$1" = -P ] || touch {disk.image}', f'exec {find_tool("resize2fs")} "$@"')
    # A confined program cannot do that.
    assert "was changed by another program" in realign(disk.image, "--shrink", "--unconfined", code=REFUSED)
    assert disk.image.read_bytes() == before


def test_a_tool_that_left_the_file_system_too_long_has_written_nothing(make: MakeDisk, programs: Path) -> None:
    disk = full(make, "dos", Row(NAMED["ext4"], 63))
    before = disk.image.read_bytes()
    stand_in(programs, "resize2fs", f'[ "$1" = -P ] && exec {find_tool("resize2fs")} "$@"', "exit 0")
    assert "was to be shrunk to" in realign(disk.image, "--shrink", code=REFUSED)
    assert disk.image.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "name", "asks"), [("ext4", "resize2fs", "*-P*"), ("ntfs", "ntfsresize", "*--info*|*--no-action*")]
)
def test_a_killed_aligntool_leaves_only_the_old_file_system(
    kind: str, name: str, asks: str, make: MakeDisk, programs: Path
) -> None:
    """Its tool and the view end with it."""
    disk = full(make, "gpt", Row(NAMED[kind], 34))
    before, bytes_before = seen(disk), disk.image.read_bytes()
    stand_in(programs, name, f'case "$*" in {asks}) exec {find_tool(name)} "$@";; esac', "exec sleep 600")
    process = begin("realign", disk.image, "--yes", "--shrink")
    stands = Path("/proc", str(wait_for_child(process, "sleep")), "exe")
    kill(process)
    wait_until_detached(disk.image)
    wait_until(lambda: not stands.exists())  # the kernel kills it after aligntool has ended
    (programs / name).unlink()
    assert disk.image.read_bytes() == bytes_before
    realign(disk.image, "--shrink")
    assert seen(disk) == before
    disk.check()


def put_behind(disk: Disk, content: bytes) -> None:
    """Write where the file system was before a shrink, and is not afterwards."""
    write(disk.image, disk.extents()[1].end - MIB // 2, content)


def kill_after_shrink(disk: Disk, programs: Path) -> None:
    """Shrink the ext4, and kill aligntool before the move."""
    name = "dumpe2fs"
    # On the disk, not on the view, where the file system begins at byte 0: "NAME?offset=BYTES".
    shrunk = """[ "${1##*=}" != 0 ] && grep -qa 'this file system was shrunk to' "${1%[?]*}" """
    stand_in(programs, name, f"if {shrunk}; then exec sleep 600; fi", f'exec {find_tool(name)} "$@"')
    process = begin("realign", disk.image, "--yes", "--shrink")
    wait_for_child(process, "sleep")
    assert kill(process) == -9
    wait_until_detached(disk.image)
    (programs / name).unlink()
    place = disk.extents()[1]
    with disk.image.open("rb") as image:
        image.seek(place.end - MIB)
        assert b"this file system was shrunk to" in image.read(MIB)


def test_a_shrink_killed_before_the_move_is_continued_by_the_same_command(make: MakeDisk, programs: Path) -> None:
    """What the old file system left behind the new one is not in use."""
    disk = full(make, "gpt", Row(NAMED["ext4"], 34))
    put_behind(disk, b"a block that the old file system used")
    before = seen(disk)
    kill_after_shrink(disk, programs)
    assert seen(disk) == before
    realign(disk.image, "--shrink")
    assert seen(disk) == before and disk.extents()[1].start % MIB == 0
    disk.check()


@pytest.mark.needs_tools("veritysetup")
@pytest.mark.parametrize("superblock", [True, False])
def test_a_hash_tree_put_behind_a_shrunk_file_system_is_not_overwritten(
    make: MakeDisk, programs: Path, superblock: bool
) -> None:
    """Neither it nor the free blocks that it covers."""
    disk = full(make, "gpt", Row(EXT4, 34))
    kill_after_shrink(disk, programs)
    place = disk.extents()[1]
    options = () if superblock else ("--no-superblock",)
    with content_of(disk.image, place) as content:
        said = dict(line.split(":", 1) for line in run("dumpe2fs", "-h", content).splitlines() if ":" in line)
        blocks = int(said["Block count"]) * int(said["Block size"]) // 4096
        size = f"--data-blocks={blocks}", f"--hash-offset={blocks * 4096}"
        run("veritysetup", "format", *options, *size, content, content)
        hashed = content.read_bytes()
    with disk.image.open("r+b") as image:
        image.seek(place.start)
        image.write(hashed)
    bytes_before = digest(disk.image)
    for more in ((), ("--used-only",)):
        assert "shrinking would overwrite the bytes after it" in realign(disk.image, "--shrink", *more, code=REFUSED)
    assert digest(disk.image) == bytes_before


@pytest.mark.needs_tools("mkfs.btrfs")
def test_data_behind_a_btrfs_that_is_already_short_enough_are_not_overwritten(make: MakeDisk) -> None:
    disk = full(make, "gpt", Row(BTRFS, 34))
    place = disk.extents()[1]
    with partition_loop(str(disk.image), place) as device, mounted(Path(device.device), "mount") as folder:
        run("btrfs", "filesystem", "resize", "-2M", folder)
    assert "shrink" in aligntool("plan", "realign", disk.image, "--shrink"), "it has the length that is wanted"
    write(disk.image, place.end - MIB // 2, b"data that nothing recognises")
    bytes_before = digest(disk.image)
    assert "shrinking would overwrite the bytes after it" in aligntool(
        "realign", disk.image, "--yes", "--shrink", code=REFUSED
    )
    assert digest(disk.image) == bytes_before


@pytest.mark.parametrize("blank", [0, 3 * MIB // 2])
def test_data_behind_a_file_system_that_is_already_short_enough_are_not_overwritten(blank: int, make: MakeDisk) -> None:
    """A part of them is found only if all bytes are read."""
    disk = full(make, "dos", Row(EXT4, 63))
    with content_of(disk.image, place := disk.extents()[1]) as content:
        run("e2fsck", "-fp", content)
        run("resize2fs", content, f"{place.length // KIB - 2 * KIB}K")
        shorter = content.read_bytes()
    with disk.image.open("r+b") as image:
        image.seek(place.start)
        image.write(shorter[: place.length - 2 * MIB].ljust(place.length, b"\0"))
    assert "shrink" in aligntool("plan", "realign", disk.image, "--shrink"), "it has the length that is wanted"
    write(disk.image, place.end - 2 * MIB + blank, b"data that nothing recognises")
    bytes_before = digest(disk.image)
    assert "shrinking would overwrite the bytes after it" in aligntool(
        "realign", disk.image, "--yes", "--shrink", code=REFUSED
    )
    assert digest(disk.image) == bytes_before


@pytest.mark.parametrize("rest", [3 * KIB, 60 * KIB])
def test_data_in_the_last_sectors_behind_a_file_system_are_not_overwritten(rest: int, make: MakeDisk) -> None:
    """Fewer than a tool rounds down to, and fewer than a block of 4 KiB; `--used-only` names none of them."""
    disk = full(make, "dos", Row(ext("ext4", (64 * MIB + rest) // SECTOR), 63))
    place = disk.extents()[1]
    with content_of(disk.image, place) as content:
        run("e2fsck", "-fp", content)
        run("resize2fs", content, f"{64 * KIB}K")
        shorter = content.read_bytes()
    write(disk.image, place.start, shorter[: 64 * MIB] + b"d" * rest)
    bytes_before = digest(disk.image)
    assert "shrinking would overwrite the bytes after it" in realign(
        disk.image, "--shrink", "--used-only", code=REFUSED
    )
    assert digest(disk.image) == bytes_before


def test_a_btrfs_already_shrunk_by_a_killed_run_is_moved_by_the_same_command(make: MakeDisk, programs: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("the root of this chroot is not a mount point: unshare --mount takes two tries")
    disk = full(make, "gpt", Row(BTRFS, 34))
    put_behind(disk, b"a block that the old file system used")
    before, ended, aligntool, name = seen(disk), programs / "ended", programs / "aligntool", "unshare"
    stand_in(programs, name, f'case "$*" in *true*) exec {find_tool(name)} "$@";; esac',
             f"kill -9 $(cat '{aligntool}')", f'{find_tool(name)} "$@"', f"echo $? > '{ended}'")  # fmt: skip
    process = begin("realign", disk.image, "--yes", "--shrink")
    aligntool.write_text(str(process.pid))
    process.wait()
    wait_for(ended)
    assert ended.read_text() == "0\n"
    wait_until_detached(disk.image)
    (programs / name).unlink()
    assert seen(disk) == before
    put_behind(disk, b"data that nothing recognises")
    bytes_before = digest(disk.image)
    assert "shrinking would overwrite the bytes after it" in realign(disk.image, "--shrink", code=REFUSED)
    assert digest(disk.image) == bytes_before
    put_behind(disk, b"a block that the old file system used")
    realign(disk.image, "--shrink")
    assert seen(disk) == before
    disk.check()


def wait_for(file: Path) -> None:
    limit = time.monotonic() + 30
    while not file.exists() or (file.name == "ended" and not file.read_text()):
        assert time.monotonic() < limit, f"{file.name} did not come"
        time.sleep(0.02)


def wait_until_detached(image: Path) -> None:
    """Wait until the tool is detached from its loop devices; it has ended; the shell around it follows."""
    limit = time.monotonic() + 30
    while attached := run("losetup", "-j", image):
        assert time.monotonic() < limit, attached
        time.sleep(0.02)


# Caches


def test_no_program_reads_stale_caches_after_the_tool_has_written(sparse: Sparse, loop: Loop) -> None:
    """The disk's cache is kept stale by a process that has it open; the loop device's own is not written back by itself
    as long as a process has it open.
    """
    image = sparse(4 * MIB)
    disk, place = loop(image), Extent(63 * SECTOR, 2 * MIB)
    with disk.open("rb", buffering=0) as looker:
        assert not any(looker.read(MIB))
        write(image, place.start, b"changed behind the cache")
        with partition_loop(str(disk), place) as other:
            late = os.open(other.device, os.O_RDONLY)
            assert os.read(late, 24) == b"changed behind the cache"
            write(Path(other.device), SECTOR, b"by the tool")
        try:
            assert image.read_bytes()[place.start + SECTOR :][:11] == b"by the tool"
            with disk.open("r+b", buffering=0) as file, DiskDevice(file.fileno()) as device:
                assert bytes(device.read(place.start + SECTOR, SECTOR))[:11] == b"by the tool"
            looker.seek(place.start + SECTOR)
            assert looker.read(11) == b"by the tool"
        finally:
            os.close(late)
    assert not Path("/sys/block", Path(other.device).name, "loop").exists()


# Kills

KILLS = 30 if THOROUGH else 3


def killed_and_finished(command: str, start: Path, loop: Loop, check: Callable[[Path], None]) -> list[str]:
    """Run the command again and again on copies of a disk, killed at a random moment, finish it, and check the result.
    Return what happened.
    """
    luck, told, total = random.Random(SEED), [f"ALIGNTOOL_SEED={SEED}"], 0
    for number in range(1 + KILLS):
        image = start.with_name(f"killed {number}")
        shutil.copy(start, image)
        device = loop(image)
        words, first = (command, str(device), "--yes", "--shrink"), written(device)
        if number:
            told.append(f"killed: {killed(device, luck.randrange(total), *words)}")
        undone = False
        while number and '"in-flight"' in aligntool("status", device, "--json", code=None):
            how = luck.choice(("resume", "rollback"))
            undone |= how == "rollback"
            ends = (DONE, STOPPED) if how == "rollback" else (DONE,)  # a complete one is not rolled back
            was_killed = killed(device, luck.randrange(total), how, str(device), "--yes", ends=ends)
            told.append(f"{how}, killed: {was_killed}")
        said = aligntool(*words, code=None)
        refused = ["already has a partition table", "start Windows"]
        if undone:  # what a move has copied behind the shrunk file system may be data, too
            refused += ["would overwrite the bytes after it", "may be data, and are not overwritten"]
        assert exit_code(said) == DONE or any(words in said for words in refused), said
        total = total or written(device) - first
        settle(device)
        check(image)
        image.unlink()
    return told


def assert_shrunk_ntfs(image: Path, place: Extent) -> None:
    """Check an NTFS that was shrunk and not yet moved: Windows has to check it first."""
    with content_of(image, place) as content:
        run("ntfsresize", "--info", "-ff", content)


@sample(1)
@pytest.mark.parametrize("kind", ["ext4", "ntfs"])
def test_a_shrink_and_move_killed_at_any_moment_lose_nothing(kind: str, make: MakeDisk, loop: Loop) -> None:
    disk = full(make, "gpt", Row(NAMED[kind], 34))
    before = seen(disk)

    def check(image: Path) -> None:
        copied = replace(disk, image=image)
        assert seen(copied) == before
        if kind == "ntfs" and copied.extents()[1].start % MIB:
            return assert_shrunk_ntfs(image, copied.extents()[1])
        copied.check()

    told = killed_and_finished("realign", disk.image, loop, check)
    assert "killed: True" in told, told


@sample(1)
@pytest.mark.parametrize("kind", ["ext4", "ntfs"])
def test_the_shrink_of_a_whole_disk_to_a_partition_survives_a_kill_at_any_moment(
    kind: str, contents: Contents, loop: Loop, tmp_path: Path
) -> None:
    start = tmp_path / "disk.img"
    shutil.copy(contents(NAMED[kind]), start)
    files = NAMED[kind].read(start)

    def check(image: Path) -> None:
        shown = subprocess.run(["sfdisk", "--json", image], capture_output=True, check=False).stdout
        if not shown:  # undone
            assert NAMED[kind].read(image) == files
            return NAMED[kind].check(image)
        table = json.loads(shown)["partitiontable"]
        if kind == "ntfs" and table["label"] == "dos":  # a boot sector
            return assert_shrunk_ntfs(image, Extent(0, image.stat().st_size))
        (part,) = table["partitions"]
        with content_of(image, Extent(part["start"] * SECTOR, part["size"] * SECTOR)) as content:
            assert NAMED[kind].read(content) == files
            NAMED[kind].check(content)

    told = killed_and_finished("partition", start, loop, check)
    assert "killed: True" in told, told
