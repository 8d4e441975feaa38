"""A disk gets a table for sectors of another size: the same files, no tool objects, and what cannot work is refused."""

import json
import os
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.conftest import is_blank, run
from tests.contents.test_lvm import Lvm
from tests.mover.command_line import REFUSED, STOPPED, aligntool, begin
from tests.mover.containers import lvm_on
from tests.mover.disks import place
from tests.mover.entries import write_records
from tests.mover.loop_mounts import looped, mounted
from tests.mover.test_kills import killed, written
from tests.run_aligntool import program, run_aligntool
from tests.thorough import SEED, THOROUGH, sample

Loop = Callable[..., Path]
pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "blkid", "mke2fs", "e2fsck", "mkswap", "mkfs.fat", "mcopy")
ESP, SWAP, ROOT = MIB, 41 * MIB, 45 * MIB
SIZE = 64 * MIB
MCOPY = ("env", "LC_ALL=C.UTF-8", "mcopy")
FILES = {"EFI/BOOT/BOOTX64.EFI": 700_001, "A long näme, with spaces.txt": 5000, "EMPTY": 0}


def make(folder: Path, *, free: int = 0, sizes: tuple[int, ...] = (40 * MIB, 4 * MIB)) -> Path:
    """Make an ESP with files, swap, and an ext4 up to the last sector that a GPT of 512-byte sectors leaves."""
    disk, esp, swap, root = (folder / name for name in ("disk.img", "esp", "swap", "root"))
    tree = folder / "tree"
    luck = random.Random(1)
    for name, length in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(luck.randbytes(length))
    last = SIZE - 33 * 512
    for path, length in ((disk, SIZE + free), (esp, sizes[0]), (swap, sizes[1]), (root, last - ROOT)):
        with path.open("wb") as file:
            file.truncate(length)
    run("mkfs.fat", "-F", "32", "-s", "1", "-n", "ESP", "-i", "feed0123", "--mbr=n", esp)
    run(*MCOPY, "-s", "-i", esp, *sorted(tree.iterdir()), "::")
    run("mkswap", swap)
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-L", "root", "-d", tree, root)
    starts = ((ESP, sizes[0], "U"), (SWAP, sizes[1], "S"), (ROOT, last - ROOT, "L"))
    lines = "".join(f"start={at // 512},size={length // 512},type={kind}\n" for at, length, kind in starts)
    run("sfdisk", "-q", disk, stdin=f"label: gpt\n{lines}")
    for content, at in ((esp, ESP), (swap, SWAP), (root, ROOT)):
        place(content, disk, at)
    return disk


def files_of(folder: Path, image: Path) -> dict[str, bytes]:
    """Return the files of the ESP, as mtools reads them."""
    out = folder / "out"
    run("rm", "-rf", out)
    out.mkdir()
    run(*MCOPY, "-s", "-n", "-i", f"{image}@@{ESP}", "::*", out)
    return {str(one.relative_to(out)): one.read_bytes() for one in out.rglob("*") if one.is_file()}


def entries(device: Path) -> list[dict[str, object]]:
    """Return what sfdisk reads, with places in bytes."""
    table = json.loads(run("sfdisk", "--json", device))["partitiontable"]
    size = table["sectorsize"]
    return [{**each, "node": "", "start": each["start"] * size, "size": 0} for each in table["partitions"]]


def check(image: Path, sector: int, before: list[dict[str, object]], *, fat: int) -> None:
    """Check it with the usual tools on sectors of this size."""
    with looped(image, sector_size=sector) as device:
        assert "No errors detected" in run("sfdisk", "--verify", device)
        assert "No problems found" in run("sgdisk", "--verify", device)
        assert entries(device) == before
        run("partx", "-a", device)
        facts = run("blkid", "-p", "-o", "export", f"{device}p1")
        assert {"UUID=FEED-0123", "LABEL=ESP", f"BLOCK_SIZE={fat}", "TYPE=vfat"} <= set(facts.split())
        run("fsck.fat", "-n", f"{device}p1")
        run("e2fsck", "-fn", f"{device}p3")
        assert "TYPE=swap" in run("blkid", "-p", "-o", "export", f"{device}p2")


@pytest.mark.needs_root
@pytest.mark.on_disk
@pytest.mark.needs_tools("losetup", "partx", "fsck.fat")
def test_a_copy_on_a_4kn_disk_is_converted_and_converted_back_for_512_byte_sectors(tmp_path: Path) -> None:
    """The device has sectors of 4096 bytes, and the table on it is still for 512."""
    image = make(tmp_path)
    with looped(image) as device:
        before = entries(device)
    files, root = files_of(tmp_path, image), image.read_bytes()[ROOT : SIZE - 20 * KIB]
    assert set(files) == set(FILES)
    with looped(image, sector_size=4096) as device:
        said = aligntool("convert", device, "--yes", "--journal", tmp_path / "journal")
    assert "its FAT32 becomes a FAT16" in " ".join(said.split())
    check(image, 4096, before, fat=4096)
    assert files_of(tmp_path, image) == files
    assert image.read_bytes()[ROOT : SIZE - 20 * KIB] == root
    aligntool("convert", image, "--sector-size", "512", "--yes", "--journal", tmp_path / "journal")
    check(image, 512, before, fat=512)
    assert files_of(tmp_path, image) == files
    assert not (tmp_path / "journal").exists()


def test_the_boot_flag_of_a_protective_mbr_is_kept(tmp_path: Path) -> None:
    image, new = make(tmp_path, free=8 * MIB), tmp_path / "new.img"
    with image.open("r+b") as file:
        file.seek(446)
        file.write(b"\x80")
    aligntool("convert", image, "--yes", "-o", new)
    aligntool("convert", image, "--both", "--yes", "-o", tmp_path / "both.img")
    aligntool("convert", new, "--sector-size", "512", "--yes")
    assert {path.read_bytes()[446] for path in (new, tmp_path / "both.img")} == {0x80}


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx", "fsck.fat")
@pytest.mark.parametrize(("words", "sectors"), [(["--sector-size", "4096"], (4096,)), (["--both"], (512, 4096))])
def test_a_copy_in_a_new_image_gets_the_table_and_the_source_is_unchanged(
    tmp_path: Path, words: list[str], sectors: tuple[int, ...]
) -> None:
    image, new = make(tmp_path), tmp_path / "new.img"
    with looped(image) as device:
        before = entries(device)
    whole, files = image.read_bytes(), files_of(tmp_path, image)
    aligntool("convert", image, *words, "--yes", "-o", new)
    assert image.read_bytes() == whole
    for sector in sectors:
        check(new, sector, before, fat=4096)
    assert files_of(tmp_path, new) == files
    assert new.read_bytes()[ROOT : SIZE - 20 * KIB] == whole[ROOT : SIZE - 20 * KIB]
    assert "already exists" in aligntool("convert", image, *words, "--yes", "-o", new, code=REFUSED)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "fsck.fat")
def test_a_copy_on_a_smaller_disk_says_what_it_leaves_out(tmp_path: Path) -> None:
    image, target = make(tmp_path, free=8 * MIB), tmp_path / "target.img"
    with target.open("wb") as file:
        file.truncate(SIZE + MIB)
    with looped(target, sector_size=4096) as device:
        said = " ".join(aligntool("convert", image, "--dry-run", "-o", device).split())
    assert f"{device} is smaller: what is in no partition from byte {SIZE + MIB - 20 * 1024} on is not copied" in said


@pytest.mark.needs_tools("losetup", "partx", "fsck.fat")
def test_a_copy_is_written_only_to_an_empty_disk_with_sectors_of_that_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, target = make(tmp_path), tmp_path / "target.img"
    with looped(image) as device:
        before = entries(device)
    target.write_bytes(b"\xff" * (80 * MIB))  # erased flash
    with looped(target) as device:
        said = aligntool("convert", image, "--yes", "-o", device, code=REFUSED)
        assert "has sectors of 512 bytes" in said
    with target.open("r+b") as file:
        file.write(b"\xa5")
    with looped(target, sector_size=4096) as device:
        said = aligntool("convert", image, "--yes", "-o", device, code=REFUSED)
        assert (
            "is not empty: unrecognised data at 1 of" in said
            and f"with blkdiscard on {device}: docs/by-hand.md#overwrite-what-is-not-needed" in said
        )
        aligntool("convert", image, "--yes", "-o", device, "--wipe", f"{device}0", code=2)
        said = aligntool("convert", image, "--dry-run", "-o", device, "--wipe", device)
        assert "lost: unrecognised data at 1 of" in said and f"--wipe {device}" in said
    with target.open("r+b") as file:
        file.write(b"\xff")
    with looped(target, sector_size=4096) as device:
        run("sfdisk", "-q", "--no-tell-kernel", device, stdin="label: dos\n")
        said = aligntool("convert", image, "--yes", "-o", device, code=REFUSED)
        assert (
            "without partitions" in said
            and f"with blkdiscard on {device}: docs/by-hand.md#overwrite-what-is-not-needed" in said
            and "--wipe" not in said
        )
        aligntool("convert", image, "--yes", "-o", device, "--wipe", device, code=REFUSED)  # it has a table
    target.write_bytes(b"\xff" * (80 * MIB))
    monkeypatch.chdir(tmp_path)
    with looped(target, sector_size=4096) as device:
        said = aligntool("convert", image, "--dry-run", "-o", device)
        assert f"→ sudo aligntool convert {image} --sector-size 4096 -o {device}" in said
        Path("link").symlink_to(device)
        aligntool("convert", image, "--yes", "-o", "link")
        said = aligntool("convert", image, "--yes", "-o", device, code=REFUSED)
        assert "is not empty" in said
    check(target, 4096, before, fat=4096)
    assert files_of(tmp_path, target) == files_of(tmp_path, image)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx", "fsck.fat")
def test_a_copy_over_unrecognised_data_is_complete_if_the_disk_is_named(tmp_path: Path) -> None:
    image, target = make(tmp_path), tmp_path / "target.img"
    with looped(image) as device:
        before = entries(device)
    target.write_bytes(os.urandom(MIB) * 80)
    with looped(target, sector_size=4096) as device:
        assert "unrecognised data" in aligntool("convert", image, "--yes", "-o", device, code=REFUSED)
        aligntool("convert", image, "--yes", "-o", device, "--wipe", device)
    check(target, 4096, before, fat=4096)
    assert files_of(tmp_path, target) == files_of(tmp_path, image)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.parametrize("at", [0, ROOT + MIB // 2, SIZE - MIB // 2])
def test_a_copy_reads_all_that_it_overwrites_of_a_disk_that_is_only_sampled(tmp_path: Path, at: int) -> None:
    """A sample reads 4 KiB in every 16 MiB. Elsewhere on the disk nothing is overwritten."""
    image, target = make(tmp_path), tmp_path / "target.img"
    with target.open("wb") as file:
        file.truncate(3 * 1024 * MIB)
        file.seek(at + 5 * KIB)
        file.write(b"\xa5")
        file.seek(100 * MIB)
        file.write(b"between two places")
    with looped(target, sector_size=4096) as device:
        said = aligntool("convert", image, "--yes", "-o", device, code=REFUSED)
        assert "is not empty: unrecognised data at 1 of" in said
        assert "lost: unrecognised data at 1 of" in aligntool(
            "convert", image, "--dry-run", "-o", device, "--wipe", device
        )
    with target.open("r+b") as file:
        file.seek(at + 5 * KIB)
        file.write(b"\0")
    with looped(target, sector_size=4096) as device:
        said = aligntool("convert", image, "--yes", "-o", device)
    read = r"all \d+\.?\d*MiB that are overwritten, and 4KiB in every 16MiB, read as unwritten"
    assert re.search(f"Decided .*{read}.* Afterwards", " ".join(said.split()))
    with target.open("rb") as file:
        file.seek(100 * MIB)
        assert file.read(18) == b"between two places"


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.parametrize("at", [401 * MIB, 605 * MIB])
def test_a_long_copy_stops_at_data_that_the_samples_missed(tmp_path: Path, at: int) -> None:
    image, target = make(tmp_path, free=640 * MIB), tmp_path / "target.img"
    with image.open("r+b") as file:
        file.seek(400 * MIB)
        file.write(os.urandom(2 * MIB))
    with target.open("wb") as file:
        file.truncate(1024 * MIB)
        file.seek(at)
        file.write(b"missed")
    with looped(target, sector_size=4096) as device:
        said = aligntool("convert", image, "--yes", "-o", device, code=STOPPED)
        assert f"holds data at byte {at}, between the places that were read" in said
        assert f"--wipe {device}" in said
    with target.open("rb") as file:
        assert file.read(4 * KIB) == bytes(4 * KIB)
        file.seek(at)
        assert file.read(6) == b"missed"
    with looped(target, sector_size=4096) as device:
        aligntool("convert", image, "--yes", "-o", device, "--wipe", device)
    with image.open("rb") as file, target.open("rb") as other:
        file.seek(at)
        other.seek(at)
        assert file.read(MIB) == other.read(MIB)


LOGICALS = {5: (62 * MIB, 20 * MIB), 6: (83 * MIB, 17 * MIB)}


def make_mbr(folder: Path) -> Path:
    """Make a FAT, an ext4, and two more ext4 in an extended partition, where fdisk puts the EBR of the second one
    sector before it; and a program in the boot sector.
    """
    disk, content = folder / "disk.img", folder / "content"
    parts = {1: (MIB, 40 * MIB), 2: (41 * MIB, 20 * MIB), 3: (61 * MIB, 39 * MIB), **LOGICALS}
    kinds = {1: "c,bootable", 3: "5"}
    with disk.open("wb") as file:
        file.truncate(101 * MIB)
    lines = (f"start={at // 512},size={size // 512},type={kinds.get(n, '83')}\n" for n, (at, size) in parts.items())
    script, tree = folder / "script", folder / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(random.Random(3).randbytes(MIB))
    script.write_text(f"label: dos\nlabel-id: 0xfeed0123\n{''.join(lines)}")
    run("fdisk", disk, stdin=f"I\n{script}\nw\n")
    content.write_bytes(b"a boot program".ljust(440, b"."))
    place(content, disk, 0)
    for number, (at, size) in parts.items():
        with content.open("wb") as file:
            file.truncate(size)
        if number == 1:
            run("mkfs.fat", "-F", "32", "-s", "1", "-i", "feed0123", content)
            run(*MCOPY, "-i", content, script, "::")
        elif number != 3:
            run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", tree, content)
        if number != 3:
            place(content, disk, at)
    return disk


def places_of(device: Path) -> list[tuple[object, ...]]:
    """Return what sfdisk reads of an MBR, with places in bytes."""
    table = json.loads(run("sfdisk", "--json", device))["partitiontable"]
    size = table["sectorsize"]
    return [
        (table["id"], each["start"] * size, each["size"] * size, each["type"], each.get("bootable"))
        for each in table["partitions"]
    ]


@pytest.mark.needs_root
@pytest.mark.on_disk
@pytest.mark.needs_tools("losetup", "partx", "fsck.fat", "fdisk")
def test_an_mbr_and_its_logical_partitions_are_converted_to_4kn_and_back(tmp_path: Path) -> None:
    image, new = make_mbr(tmp_path), tmp_path / "new.img"
    with looped(image) as device:
        before = places_of(device)
    assert len(before) == 5
    kept = [image.read_bytes()[at : at + size] for at, size in ((41 * MIB, 20 * MIB), *LOGICALS.values())]
    aligntool("convert", image, "--yes", "-o", new)
    with looped(image, sector_size=4096) as device:
        assert "written for sectors of 512 bytes" in aligntool("audit", device, code=None)
        aligntool("convert", device, "--yes")
        assert "OK: every partition" in aligntool("audit", device)
    for one, sector in ((new, 4096), (image, 4096), (image, 512)):
        if sector == 512:
            aligntool("convert", image, "--sector-size", "512", "--yes", "--journal", tmp_path / "journal")
        with looped(one, sector_size=sector) as device:
            assert places_of(device) == before
            assert "No errors detected" in run("sfdisk", "--verify", device)
            for numbers in ("1:2", "5:6"):  # partx adds an extended one over its logical ones
                run("partx", "-a", "--nr", numbers, device)
            run("fsck.fat", "-n", f"{device}p1")
            for number in (2, *LOGICALS):
                run("e2fsck", "-fn", f"{device}p{number}")
        content = one.read_bytes()
        assert [content[at : at + size] for at, size in ((41 * MIB, 20 * MIB), *LOGICALS.values())] == kept
        assert content.startswith(b"a boot program.")
        assert run(*MCOPY, "-i", f"{one}@@{MIB}", "::script", "-") == (tmp_path / "script").read_text()


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx", "fdisk")
def test_partitions_that_the_kernel_shows_at_wrong_places_are_updated(tmp_path: Path) -> None:
    """A kernel that counts an MBR for 512 in sectors of 4096 bytes shows them eight times as long, if they fit."""
    image, content = tmp_path / "disk.img", tmp_path / "content"
    for path, size in ((image, 64 * MIB), (content, 4 * MIB)):
        with path.open("wb") as file:
            file.truncate(size)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=2048,size=8192,type=83\n")
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", content)
    place(content, image, MIB)
    with looped(image, sector_size=4096) as device:
        run("partx", "-a", device)
        assert run("lsblk", "-nbo", "START,SIZE", f"{device}p1").split() == ["16384", str(32 * MIB)]
        aligntool("convert", device, "--yes")
        assert run("lsblk", "-nbo", "START,SIZE", f"{device}p1").split() == ["2048", str(4 * MIB)]
        run("e2fsck", "-fn", f"{device}p1")


KILLS = 40 if THOROUGH else 2


@pytest.mark.needs_root
@pytest.mark.on_disk
@pytest.mark.needs_tools("losetup", "partx", "fsck.fat")
def test_a_conversion_killed_at_any_moment_is_resumed_or_rolled_back(tmp_path: Path, loop: Loop) -> None:
    """The journal is in free space of the disk itself, which is byte for byte either the old one or the new one."""
    image = make(tmp_path, free=40 * MIB)
    run("sgdisk", "-e", image)
    whole, copy = image.read_bytes(), tmp_path / "copy.img"
    with looped(image) as device:
        before = entries(device)
    files = files_of(tmp_path, image)
    run("cp", image, copy)
    first = written(device := loop(copy, sector_size=4096))
    assert not killed(device, 1 << 40, "convert", str(device), "--yes")
    total, luck = written(device) - first, random.Random(SEED)
    for number in range(KILLS):
        run("cp", "--sparse=always", image, again := tmp_path / f"{number}.img")
        with looped(again, sector_size=4096) as device:
            cut = killed(device, luck.randrange(total), "convert", str(device), "--yes")
            if cut and '"in-flight"' in aligntool("status", device, "--json"):
                killed(device, luck.randrange(total), luck.choice(("resume", "rollback")), str(device), "--yes")
            if '"in-flight"' in aligntool("status", device, "--json"):
                aligntool(luck.choice(("resume", "rollback")), device, "--yes", code=None)
                if '"in-flight"' in aligntool("status", device, "--json"):
                    aligntool("resume", device, "--yes")
            old = (
                run("dd", f"if={device}", "bs=8", "skip=64", "count=1", "iflag=fullblock", "status=none") == "EFI PART"
            )
        check(again, 512 if old else 4096, before, fat=512 if old else 4096)
        assert files_of(tmp_path, again) == files
        if old:
            assert again.read_bytes()[: SIZE - 33 * 512] == whole[: SIZE - 33 * 512]
        again.unlink()


# Content that is kept, and content that is refused, by the tool that made it.

LUKS = "cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /etc/hostname"
KEPT = {
    "ext4 4096": "mke2fs -q -t ext4 -b 4096 {0}",
    "xfs 4096": "mkfs.xfs -q -s size=4096 {0}",
    "btrfs": "mkfs.btrfs -q {0}",
    "swap": "mkswap {0}",
    "luks2 4096": f"{LUKS} --type luks2 --sector-size 4096 {{0}}",
}
REFUSALS = {
    "ext2 1024": ("mke2fs -q -t ext2 -b 1024 {0}", "uses blocks of 1024 bytes"),
    "xfs 512": ("mkfs.xfs -q -s size=512 {0}", "uses blocks of 512 bytes"),
    "luks2 512": (f"{LUKS} --type luks2 --sector-size 512 {{0}}", "with cryptsetup on"),
    "luks1": (f"{LUKS} --type luks1 {{0}}", "with cryptsetup on"),
    "ntfs": ("mkntfs -q -F -f -s 512 -p 2048 -H 255 -S 63 {0}", "which Windows mounts only"),
    "exfat": ("mkfs.exfat {0}", "which Windows mounts only"),
    "f2fs": ("mkfs.f2fs -q {0}", "is not known to work on sectors of another size"),
    "nothing": ("true", "nothing is recognised"),
}


LENGTHS = {"mkfs.xfs": 320 * MIB, "mkfs.btrfs": 128 * MIB, "mkfs.f2fs": 64 * MIB}  # the minimum size of each


def with_content(folder: Path, command: str, *, start: int = MIB, sector: int = 512, length: int = 24 * MIB) -> Path:
    disk, content = folder / "disk.img", folder / "content"
    length = LENGTHS.get(command.split()[0], length)
    for path, size in ((disk, length + 4 * MIB), (content, length)):
        with path.open("wb") as file:
            file.truncate(size)
    run(*command.format(content).split())
    run(
        "sfdisk",
        "-q",
        disk,
        stdin=f"label: gpt\nfirst-lba: 34\nstart={start // sector},size={length // sector},type=L\n",
    )
    place(content, disk, start)
    return disk


def needed(command: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.needs_tools(command.split()[0])]


@sample(2)
@pytest.mark.parametrize("command", [pytest.param(each, id=name, marks=needed(each)) for name, each in KEPT.items()])
def test_content_with_blocks_of_4096_bytes_is_kept(tmp_path: Path, command: str) -> None:
    """The journal of such a small change fits into the free space before the first partition."""
    disk = with_content(tmp_path, command)
    before = disk.read_bytes()[MIB:-MIB]
    aligntool("convert", disk, "--yes", *(["--not-suspended"] if command.startswith("cryptsetup") else []))
    after = disk.read_bytes()
    assert after[MIB:-MIB] == before
    assert after[4096:4104] == b"EFI PART"
    assert b"EFI PART" not in after[:4096]


@sample(4)
@pytest.mark.parametrize(
    ("command", "words"), [pytest.param(*each, id=name, marks=needed(each[0])) for name, each in REFUSALS.items()]
)
def test_content_with_smaller_blocks_is_refused_with_what_to_do(tmp_path: Path, command: str, words: str) -> None:
    disk = with_content(tmp_path, command)
    before = disk.read_bytes()
    assert words in re.sub(r"\s+", " ", aligntool("convert", disk, "--yes", code=REFUSED))
    assert disk.read_bytes() == before


def with_volumes(folder: Path, **volumes: str) -> Path:
    """Make a disk with a volume group in its only partition; each volume of 16 MiB is made by this command."""
    content = folder / "volumes"
    with content.open("wb") as file:
        file.truncate(64 * MIB)
    with lvm_on(content) as (lvm, device):
        lvm("pvcreate", "-q", device)
        lvm("vgcreate", "-q", "group", device)
        for name in volumes:
            lvm.create("-q", "-n", name, "-L", "16M", "group")
        places = {volume.partition("/")[2]: at for volume, at, _ in lvm.segments(device)}
    for name, command in volumes.items():
        inner = folder / name
        with inner.open("wb") as file:
            file.truncate(16 * MIB)
        run(*command.format(inner).split())
        place(inner, content, places[name])
    disk = with_content(folder, f"cp {content} {{0}}", length=64 * MIB)
    content.unlink()
    return disk


EXT4_4096 = "mke2fs -q -t ext4 -b 4096 {0}"


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm", "partx", "mke2fs", "mkswap", "e2fsck")
def test_volumes_with_blocks_of_4096_bytes_are_kept_and_lvm_reads_and_writes_them(tmp_path: Path) -> None:
    disk = with_volumes(tmp_path, root=EXT4_4096, swap="mkswap {0}")
    before = disk.read_bytes()[MIB:-MIB]
    aligntool("convert", disk, "--yes")
    assert disk.read_bytes()[MIB:-MIB] == before
    with looped(disk, sector_size=4096) as device:
        run("partx", "-u", device)
        part = Path(f"{device}p1")
        lvm = Lvm(tmp_path / "lvm", part)
        lvm("vgck", "group")
        lvm("vgrename", "group", "renamed")
        lvm("pvck", "--dump", "headers", part)
        places = {name: (at, length) for name, at, length in lvm.segments(part)}
    assert set(places) == {"renamed/root", "renamed/swap"}
    start, length = places["renamed/root"]
    inner = tmp_path / "inner"
    inner.write_bytes(disk.read_bytes()[MIB + start : MIB + start + length])
    run("e2fsck", "-f", "-n", inner)


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm", "mke2fs", "mkfs.fat")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mke2fs -q -t ext2 -b 1024 {0}", "has the volume group/other, whose ext2 uses blocks of 1024 bytes"),
        ("mkfs.fat -S 4096 {0}", "has the volume group/other, whose vfat is not known to work"),
        ("true", "has the volume group/other, whose content is not recognised"),
    ],
)
def test_a_volume_with_smaller_blocks_is_named(tmp_path: Path, command: str, words: str) -> None:
    disk = with_volumes(tmp_path, root=EXT4_4096, other=command)
    before = disk.read_bytes()
    assert words in re.sub(r"\s+", " ", aligntool("convert", disk, "--yes", code=REFUSED))
    assert disk.read_bytes() == before


def chained(folder: Path, *logicals: tuple[int, int]) -> Path:
    """Make a disk with an ext4 in two logical partitions, each from a sector on and so many long, with both EBRs in one
    block of 4096 bytes.
    """
    disk, content = folder / "disk.img", folder / "content"
    (first, second), end = logicals, sum(logicals[-1])
    tables = {
        0: ((5, 2048, end - 2048),),
        2048: ((0x83, first[0] - 2048, first[1]), (5, 1, end - 2049)),
        2049: ((0x83, second[0] - 2049, second[1]),),
    }
    write_records(disk, 32 * MIB, tables)
    for at, count in logicals:
        with content.open("wb") as file:
            file.truncate(count * 512)
        run("mke2fs", "-q", "-t", "ext4", "-b", "4096", content)
        place(content, disk, at * 512)
        content.unlink()
    return disk


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk")
def test_an_ebr_that_would_share_a_block_with_another_is_placed_before_its_partition(tmp_path: Path) -> None:
    disk, new = chained(tmp_path, (4096, 8192), (16384, 8192)), tmp_path / "new.img"
    kept = [disk.read_bytes()[at * 512 :][: 4 * MIB] for at in (4096, 16384)]
    with looped(disk) as device:
        before = places_of(device)
    aligntool("convert", disk, "--yes", "-o", new)
    aligntool("convert", disk, "--yes")
    for one in (disk, new):
        with looped(one, sector_size=4096) as device:
            assert places_of(device) == before and len(before) == 3
            assert "No errors detected" in run("sfdisk", "--verify", device)
        assert [one.read_bytes()[at * 512 :][: 4 * MIB] for at in (4096, 16384)] == kept


def with_ext4(folder: Path, parts: str, *sectors: int) -> tuple[Path, Path]:
    """Make an MBR disk with these partitions and an ext4 at each of the sectors; return it and the file system."""
    disk, content = folder / "disk.img", folder / "content"
    for path, size in ((disk, 32 * MIB), (content, 4 * MIB)):
        with path.open("wb") as file:
            file.truncate(size)
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", content)
    run("sfdisk", "-q", disk, stdin=f"label: dos\nlabel-id: 0xfeed0123\n{parts}")
    for sector in sectors:
        place(content, disk, sector * 512)
    return disk, content


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk")
@pytest.mark.parametrize(("start", "after"), [(2049, 2056), (4095, 4088)])
def test_an_extended_partition_that_begins_off_a_block_is_placed_on_one(tmp_path: Path, start: int, after: int) -> None:
    """A realign does not move it; its old EBR is in the block before its first logical partition, or further away."""
    parts = f"start={start},size={24576 - start},type=5\nstart=4096,size=8192\nstart=16384,size=8192\n"
    disk, content = with_ext4(tmp_path, parts, 4096, 16384)
    new = tmp_path / "new.img"
    aligntool("convert", disk, "--yes", "-o", new)
    aligntool("convert", disk, "--yes")
    for one in (disk, new):
        with looped(one, sector_size=4096) as device:
            sectors = [(after, 24576 - after), (4096, 8192), (16384, 8192)]
            assert [place[1:3] for place in places_of(device)] == [(at * 512, size * 512) for at, size in sectors]
            assert "No errors detected" in run("sfdisk", "--verify", device)
        assert [one.read_bytes()[at * 512 :][: 4 * MIB] == content.read_bytes() for at in (4096, 16384)] == [True] * 2


def test_an_empty_extended_partition_that_begins_off_a_block_has_to_be_deleted(tmp_path: Path) -> None:
    """It has no EBR that could be written at another place, where old bytes would count as one."""
    disk, _ = with_ext4(tmp_path, "start=32768,size=8192,type=83\nstart=2049,size=22527,type=5\n", 32768)
    refused = " ".join(aligntool("convert", disk, "--yes", code=REFUSED).split())
    assert "partition 2 begins at byte 1049088, which is not a multiple of 4KiB" in refused
    assert f"partition 2: by hand, with sfdisk on {disk}: docs/by-hand.md#delete-a-partition" in refused


def test_a_logical_partition_past_the_end_of_its_extended_one_is_an_error(tmp_path: Path) -> None:
    disk = chained(tmp_path, (4096, 8192), (16384, 8192))
    with disk.open("r+b") as file:
        file.seek(446 + 12)
        file.write(struct.pack("<I", 18432))  # the length of the extended partition
    for more in ((), ("-o", tmp_path / "new.img")):
        assert "the partition table has an error" in aligntool("convert", disk, *more, "--yes", code=REFUSED)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sgdisk")
@pytest.mark.parametrize("sizes", ["--sector-size=512", "--both"])
def test_a_copy_to_a_disk_of_an_odd_length_has_its_backup_table_in_the_last_sector(tmp_path: Path, sizes: str) -> None:
    source, target = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}"), tmp_path / "odd.img"
    if sizes != "--both":
        aligntool("convert", source, "--yes")
    with target.open("wb") as file:
        file.truncate(source.stat().st_size + MIB + 512)
    with looped(target) as device:
        aligntool("convert", source, sizes, "-o", device, "--yes")
        assert "No problems found" in run("sgdisk", "-v", device)
    assert target.read_bytes()[-512:].startswith(b"EFI PART")


def test_the_sectors_after_an_mbr_are_copied_as_well(tmp_path: Path) -> None:
    """GRUB's program begins in sector 1; the table for 4096 bytes has it in its first sector."""
    disk = chained(tmp_path, (4096, 8192), (16384, 8192))
    program = bytes(range(1, 256)) * 60
    with disk.open("r+b") as file:
        file.seek(512)
        file.write(program)
    for sector_size, source in ((4096, disk), (512, tmp_path / "4096.img")):
        aligntool("convert", source, "--sector-size", str(sector_size), "-o", tmp_path / f"{sector_size}.img", "--yes")
        assert (tmp_path / f"{sector_size}.img").read_bytes()[512:].startswith(program)


@pytest.mark.parametrize("name", ["n" * 300, f"./{'n' * 300}", "new/"])
def test_an_invalid_name_for_the_copy_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    source = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")
    before = sorted(tmp_path.iterdir())
    done = run_aligntool("convert", source, "--yes", "-o", name, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert sorted(tmp_path.iterdir()) == before


def other_tables() -> Iterator[object]:
    """Return each way to make a disk unsuitable, and the expected message."""

    def off_grid(folder: Path) -> Path:
        return with_content(folder, "mke2fs -q -t ext4 -b 4096 {0}", start=MIB + 512)

    def crowded_chain(folder: Path) -> Path:
        """Partition 6 begins where partition 5 ends, and its EBR is directly behind that of partition 5."""
        return chained(folder, (2056, 8192), (10248, 8192))

    def first_sector(folder: Path) -> Path:
        return with_content(folder, "mke2fs -q -t ext4 -b 4096 {0}", start=20 * KIB)

    def used_gap(folder: Path) -> Path:
        disk = with_content(folder, "mke2fs -q -t ext4 -b 4096 {0}")
        with disk.open("r+b") as file:
            file.seek(20_000)
            file.write(b"a boot loader of some board")
        return disk

    def damaged(folder: Path) -> Path:
        disk = with_content(folder, "mke2fs -q -t ext4 -b 4096 {0}")
        with disk.open("r+b") as file:
            file.seek(-512, 2)
            file.write(bytes(8))
        return disk

    def odd_length(folder: Path) -> Path:
        disk = with_content(folder, "mke2fs -q -t ext4 -b 4096 {0}")
        with disk.open("r+b") as file:
            file.truncate(28 * MIB + 512)
        run("sgdisk", "-e", disk)
        return disk

    yield pytest.param(off_grid, "aligntool plan realign", id="off the grid")
    yield pytest.param(crowded_chain, "no room for one of 4096 bytes", id="crowded chain")
    yield pytest.param(first_sector, "the new table extends to byte 24576", id="in the new table")
    yield pytest.param(used_gap, "byte 20000 is where the new table goes", id="place taken")
    yield pytest.param(damaged, "the partition table has an error", id="damaged")
    yield pytest.param(odd_length, "not a multiple of 4096", id="odd length")


@pytest.mark.parametrize(("spoil", "words"), list(other_tables()))
def test_an_unsuitable_table_is_refused(tmp_path: Path, spoil: Callable[[Path], Path], words: str) -> None:
    disk = spoil(tmp_path)
    before = disk.read_bytes()
    assert words in re.sub(r"\s+", " ", aligntool("convert", disk, "--yes", code=REFUSED))
    if "in the place of" in words:  # a copy would lack it
        said = aligntool("convert", disk, "--yes", "-o", tmp_path / "copy.img", code=REFUSED)
        assert words in re.sub(r"\s+", " ", said)
        assert not (tmp_path / "copy.img").exists()
    assert disk.read_bytes() == before


@pytest.mark.needs_tools("mkntfs", "sfdisk")
def test_a_content_that_stays_unsuitable_is_not_to_be_realigned_first(tmp_path: Path) -> None:
    disk, content = tmp_path / "disk.img", tmp_path / "content"
    for path, size in ((disk, 24 * MIB), (content, 16 * MIB)):
        with path.open("wb") as file:
            file.truncate(size)
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=63, size=32768, type=7\n")
    run("mkntfs", "-q", "-F", "-s", "512", content)
    place(content, disk, 63 * 512)
    said = re.sub(r"\s+", " ", aligntool("convert", disk, "--yes", code=REFUSED))
    assert "begins at byte 32256" in said and "holds ntfs with sectors of 512 bytes" in said
    assert "plan realign" not in said and "with mkfs.ntfs" in said


@pytest.mark.needs_tools("fdisk")
def test_an_mbr_that_extends_past_the_limit_for_512_byte_sectors_is_refused(tmp_path: Path) -> None:
    """As behind a USB adapter that shows sectors of 4096 bytes; without the adapter the drive shows 512."""
    disk, swap = tmp_path / "disk.img", tmp_path / "swap"
    for path, size in ((disk, 3 << 40), (swap, 24 * MIB)):
        with path.open("wb") as file:
            file.truncate(size)
    run("fdisk", "-b", "4096", disk, stdin="o\nn\np\n1\n256\n\nt\n82\nw\n")
    run("mkswap", swap)
    place(swap, disk, MIB)
    said = re.sub(r"\s+", " ", aligntool("convert", disk, "--sector-size", "512", "--yes", code=REFUSED))
    assert "reaches only to 2TiB" in said
    assert f"with sgdisk on {disk}: docs/by-hand.md#another-kind-or-length-of-table" in said


@pytest.mark.needs_tools("fdisk", "fsck.fat")
def test_a_fat_beyond_2tib_is_recreated(tmp_path: Path) -> None:
    """Its boot sector counts the sectors before it in 32 bits."""
    disk, fat, start = tmp_path / "disk.img", tmp_path / "fat", (2 << 40) + MIB
    for path, size in ((disk, 3 << 40), (fat, 64 * MIB)):
        with path.open("wb") as file:
            file.truncate(size)
    run("mkfs.fat", "-F", "16", "-S", "4096", "-n", "FAR", fat)
    run("fdisk", "-b", "4096", disk, stdin=f"g\nn\n1\n{start // 4096}\n+64M\nt\n1\nw\n")
    place(fat, disk, start)
    aligntool("convert", disk, "--sector-size", "512", "--yes")
    with disk.open("rb") as file:  # mdir does not find it behind 2 GiB where a C long has 32 bits
        file.seek(start)
        fat.write_bytes(file.read(64 * MIB))
    assert "FAR" in run("mdir", "-i", fat, "::")


def test_two_mbrs_do_not_fit_in_one_sector(tmp_path: Path) -> None:
    disk = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=2048,size=49152,type=83\n")
    assert "do not fit in one sector" in aligntool("convert", disk, "--both", "--yes", code=REFUSED)


def test_the_sector_size_that_the_table_already_has_is_refused(tmp_path: Path) -> None:
    disk = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")
    assert "is already for sectors of 512 bytes" in aligntool("convert", disk, "--sector-size", "512", code=REFUSED)


def test_a_table_for_4096_is_recognised_although_a_start_is_an_eighth_of_another(tmp_path: Path) -> None:
    """8 MiB are sector 2048 of 4096 bytes, and sector 2048 of 512 bytes is where the first one begins."""
    disk = with_content(tmp_path, "mkswap {0}")
    with disk.open("r+b") as file:
        file.truncate(64 * MIB)
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=2048,size=2048,type=82\nstart=16384,size=49152,type=82\n")
    place(tmp_path / "content", disk, 8 * MIB)
    run("mkswap", "-U", "clear", tmp_path / "content", str(1024))
    place(tmp_path / "content", disk, MIB)
    aligntool("convert", disk, "--yes")
    assert "is already for sectors of 4096 bytes" in aligntool("convert", disk, code=REFUSED)


def test_a_copy_to_an_unsuitable_output_is_refused(tmp_path: Path) -> None:
    disk = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")

    def refused(output: str | Path, *words: str, code: int = REFUSED) -> str:
        return re.sub(r"\s+", " ", aligntool("convert", disk, "--yes", *words, "-o", output, code=code))

    assert "is not a folder" in refused(tmp_path / "no" / "new.img")
    assert "a device of this machine" in refused("null")
    for output in ("", "-"):
        assert "name a file or a disk for the copy" in refused(output, code=2)
    assert "are mutually exclusive" in refused(tmp_path / "new.img", "--both", "--sector-size", "512", code=2)
    assert {one.name for one in tmp_path.iterdir()} == {"disk.img", "content"}


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    """Neither its sizes nor its target can differ from what was shown."""
    disk, kept, new = (tmp_path / name for name in ("disk.img", "plan.json", "new.img"))
    with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")
    aligntool("plan", "convert", disk, "-o", kept)
    plan = json.loads(kept.read_text())
    said = aligntool("convert", disk, "--dry-run", "--json", "-o", new)
    copy = json.loads(said[said.index("{") :])
    for document, key, value in (
        (plan, "sector_sizes", [0]),
        (plan, "sector_sizes", []),
        (copy, "sector_sizes", [1]),
        (copy, "output", str(tmp_path / "other.img")),
    ):
        asked = "convert" if document is plan else "copying"
        kept.write_text(json.dumps({**document, asked: {**document[asked], key: value}}))
        aligntool("apply", kept, "--yes", code=REFUSED)
    assert {one.name for one in tmp_path.iterdir()} == {"disk.img", "content", "plan.json"}


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "fdisk")
def test_an_mbr_is_not_copied_to_a_disk_that_ends_before_its_partitions(tmp_path: Path) -> None:
    image, target = make_mbr(tmp_path), tmp_path / "target.img"
    with target.open("wb") as file:
        file.truncate(90 * MIB)
    with looped(target, sector_size=4096) as device:
        said = re.sub(r"\s+", " ", aligntool("convert", image, "--yes", "-o", device, code=REFUSED))
        assert f"partition 6 extends {10 * MIB} bytes too far: the disk ends there" in said
    assert is_blank(target)


def test_the_source_is_locked_during_a_copy_and_a_signal_removes_the_copy(tmp_path: Path) -> None:
    disk = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")
    with (tmp_path / "more").open("wb") as file:
        file.write(b"x" * (8 * MIB))
    run("debugfs", "-w", "-R", f"write {tmp_path / 'more'} more", f"{disk}?offset={MIB}")
    copying = begin("convert", disk, "--yes", "--rate", "512KiB", "-o", new := tmp_path / "new.img")
    try:
        while copying.poll() is None and not new.exists():
            time.sleep(0.05)
        assert "open in another program" in aligntool("convert", disk, "--yes", code=REFUSED)
    finally:
        copying.send_signal(signal.SIGTERM)
    assert copying.wait(300) == STOPPED  # it obeys the rate limit, or it would have ended
    assert not new.exists()


def test_a_source_that_another_program_changes_meanwhile_gets_no_copy(tmp_path: Path) -> None:
    """A loop device needs no lock of the image, and what is mounted there changes what was copied already."""
    disk = with_content(tmp_path, "mke2fs -q -t ext4 -b 4096 {0}")
    copying = begin("convert", disk, "--yes", "--rate", "2MiB", "-o", new := tmp_path / "new.img")
    while copying.poll() is None and not new.exists():
        time.sleep(0.05)
    with disk.open("r+b") as file:
        file.seek(20 * MIB)
        file.write(b"changed")
    assert copying.wait(300) == STOPPED
    assert not new.exists()
    aligntool("convert", disk, "--yes", "-o", new)


@pytest.mark.needs_root
@pytest.mark.needs_tools("fsck.fat")
def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path) -> None:
    """At any moment: a write to memory on a full file system would kill the process."""
    disk = make(tmp_path)
    for size in ("1800k", "2200k"):
        with mounted(Path("none"), "mount", "-t", "tmpfs", "-o", f"size={size}") as folder:
            environment = {**os.environ, "TMPDIR": str(folder)}
            ended = subprocess.run(
                program("convert", disk, "--dry-run"), env=environment, capture_output=True, text=True
            )
        assert ended.returncode == REFUSED, ended
        assert f"no space is left in {folder}, where it is built" in re.sub(r"\s+", " ", ended.stderr)


@pytest.mark.needs_tools("qemu-img", "qemu-storage-daemon", "unshare", "setpriv")
def test_a_virtual_disk_is_copied_and_remains_unchanged(tmp_path: Path) -> None:
    image = make(tmp_path)
    qcow2, new, other = (tmp_path / name for name in ("disk.qcow2", "new.img", "other.img"))
    run("qemu-img", "convert", "-O", "qcow2", image, qcow2)
    whole = qcow2.read_bytes()
    aligntool("convert", qcow2, "--yes", "-o", new)
    aligntool("convert", image, "--yes", "-o", other)
    assert files_of(tmp_path, new) == files_of(tmp_path, image)
    assert new.read_bytes()[ROOT:] == other.read_bytes()[ROOT:]
    assert qcow2.read_bytes() == whole


# A copy relies on a map of used blocks only if the file system passes the check by its own checker.


def with_freed_blocks(folder: Path) -> Path:
    """Make a disk with an ext4 that is marked clean and whose bitmap lists blocks of a file as free; all counters agree
    with it.
    """
    (folder / "tree").mkdir()
    (folder / "tree" / "file").write_bytes(random.Random(2).randbytes(12 * MIB))
    disk = with_content(folder, f"mke2fs -q -t ext4 -b 4096 -O ^metadata_csum -d {folder / 'tree'} {{0}}")
    content = f"{disk}?offset={MIB}"
    free = re.search(r"^Free blocks: +(\d+)$", run("tune2fs", "-l", content), re.MULTILINE)
    assert free
    block, count = int(run("debugfs", "-R", "bmap /file 100", content)), int(free[1]) + 1000
    script = f"freeb {block} 1000\nset_bg 0 free_blocks_count {count}\nssv free_blocks_count {count}\n"
    run("debugfs", "-w", "-f", "-", content, stdin=script)
    run("e2fsck", "-f", "-n", content, fails=True)
    return disk


@contextmanager
def shown_as(disk: Path, source: str) -> Iterator[Path]:
    """Yield the disk as an image, a block device, or a virtual disk."""
    if source == "device":
        with looped(disk) as device:
            yield device
    elif source == "qcow2":
        run("qemu-img", "convert", "-O", "qcow2", disk, disk.with_suffix(".qcow2"))
        yield disk.with_suffix(".qcow2")
    else:
        yield disk


@pytest.mark.needs_tools("debugfs", "tune2fs")
@pytest.mark.parametrize(
    "source",
    [
        "image",
        pytest.param("device", marks=[pytest.mark.needs_root, pytest.mark.needs_tools("losetup")]),
        pytest.param("qcow2", marks=pytest.mark.needs_tools("qemu-img", "qemu-storage-daemon", "unshare", "setpriv")),
    ],
)
def test_a_copy_does_not_rely_on_a_map_that_the_checker_finds_wrong(tmp_path: Path, source: str) -> None:
    with shown_as(with_freed_blocks(tmp_path), source) as shown:
        said = re.sub(r"\s+", " ", aligntool("convert", shown, "-v", "--yes", "-o", tmp_path / "new.img", code=REFUSED))
        assert "1. check partition 1 (ext4), read-only" in said
        checked = "DISK" if source == "qcow2" else shown  # e2fsck finds no ext4 in the file of the qcow2
        assert re.search(rf"\$ e2fsck -f -n '?{checked}\?offset={MIB}", said)
        assert "partition 1 (ext4) failed the check by e2fsck" in said
    assert not (tmp_path / "new.img").exists()


@pytest.mark.needs_root
@pytest.mark.needs_tools("debugfs", "tune2fs", "losetup")
def test_nothing_is_written_to_a_disk_if_the_check_of_the_source_fails(tmp_path: Path) -> None:
    disk, target = with_freed_blocks(tmp_path), tmp_path / "target.img"
    with target.open("wb") as file:
        file.truncate(disk.stat().st_size)
    with looped(target, sector_size=4096) as device:
        aligntool("convert", disk, "--yes", "-o", device, code=REFUSED)
    assert is_blank(target)


@pytest.mark.needs_tools("fsck.fat", "mcopy")
def test_a_fat_that_the_checker_cannot_check_is_copied(tmp_path: Path) -> None:
    """fsck.fat knows one or two allocation tables; all four are equal, so they are the map."""
    disk, new, out = with_content(tmp_path, "mkfs.fat -F 12 -S 4096 -f 4 {0}"), tmp_path / "new.img", tmp_path / "out"
    (tmp_path / "file").write_bytes(random.Random(3).randbytes(2 * MIB))
    run("mcopy", "-i", f"{disk}@@{MIB}", tmp_path / "file", "::file")
    assert "not checked: " in aligntool("convert", disk, "--yes", "-o", new)
    run("mcopy", "-n", "-i", f"{new}@@{MIB}", "::file", out)
    assert out.read_bytes() == (tmp_path / "file").read_bytes()


@pytest.mark.needs_root
@pytest.mark.needs_tools("fsck.fat", "mcopy")
def test_a_broken_fat_is_not_recreated_in_a_copy(tmp_path: Path) -> None:
    """As in place: what is recreated from it would lack what a repair recovers."""
    disk = make(tmp_path)
    with disk.open("r+b") as image:
        image.seek(ESP + 14)
        reserved = int.from_bytes(image.read(2), "little")
        image.seek(ESP + 36)
        length = int.from_bytes(image.read(4), "little")
        for copy in range(2):
            image.seek(ESP + (reserved + copy * length) * 512 + 4 * 60_000)
            image.write((0x0FFFFFFF).to_bytes(4, "little"))  # a chain without an owner
    said = aligntool("convert", disk, "--yes", "-o", tmp_path / "new.img", code=REFUSED)
    assert "partition 1 (vfat) failed the check by fsck.fat" in said
    assert not (tmp_path / "new.img").exists()


def test_a_copy_plan_made_before_checks_were_added_is_refused(tmp_path: Path) -> None:
    """It can be read, but its steps are no longer those of the same request."""
    disk, kept, new = with_content(tmp_path, KEPT["ext4 4096"]), tmp_path / "plan.json", tmp_path / "new.img"
    said = aligntool("convert", disk, "--dry-run", "--json", "-o", new)
    document = json.loads(said[said.index("{") :])
    first, *others = document["plan"]["steps"]
    assert first["step"] == "CheckContent"
    document["plan"]["steps"] = others
    document["digest"] = sha256(json.dumps(document["plan"], sort_keys=True).encode()).hexdigest()
    kept.write_text(json.dumps(document))
    assert "has changed since the plan was made" in aligntool("apply", kept, "--yes", code=REFUSED)
    assert not new.exists()
