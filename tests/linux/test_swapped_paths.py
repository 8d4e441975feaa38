"""Another user swaps what the path of an image leads to, after it was looked at or locked. strace and the bytes of the
other file show that nothing is opened by the path again.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refused
from aligntool.inventory import Layer
from aligntool.layout.layout import new_table, opened_by_libparted
from aligntool.linux.block import open_read_only
from aligntool.linux.checks import check_content
from aligntool.linux.content import open_medium
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.held import held
from aligntool.linux.lock import lock_disk, refuse_disturbed, written_at
from aligntool.linux.look import look
from aligntool.linux.loops import partition_loop, read_only_loop
from aligntool.steps import MakeTable
from aligntool.units import MIB, Extent
from tests.conftest import digest, run
from tests.run_aligntool import program, run_aligntool
from tests.thorough import THOROUGH, sample

Make = Callable[..., Path]
AT = 63 * 512
LENGTH = 62 * MIB
root = pytest.mark.needs_root


def formatted(image: Path, kind: str = "ext4", start: int = 63, size: int = LENGTH) -> Path:
    """Make an MBR with one partition, and a file system in it."""
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart={start}, size={size // 512}, type=83\n")
    inside = image.with_name("inside.img")
    with inside.open("wb") as file:
        file.truncate(size)
    words = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f"), "btrfs": ("mkfs.btrfs", "-q", "-f")}
    run(*words[kind], inside)
    run("dd", f"if={inside}", f"of={image}", "bs=512", f"seek={start}", "conv=notrunc,sparse", "status=none")
    inside.unlink()
    return image


@pytest.fixture
def images(sparse: Make) -> tuple[Path, Path]:
    """A disk, and another file that its path will lead to."""
    return formatted(sparse(64 * MIB, "mine.img")), formatted(sparse(64 * MIB, "other.img"))


@contextmanager
def swapped(how: str, mine: Path, other: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield a path of the first image, and the function that makes it lead to the other one."""
    link = mine.with_name("disk.img")
    if how == "a link":
        link.symlink_to(mine)
        new = mine.with_name("new")
        new.symlink_to(other)
        yield str(link), lambda: new.rename(link)
    else:
        yield str(mine), lambda: other.replace(mine)


def opens(path: str) -> None:
    with open_read_only(path):
        pass


def reads(path: str) -> None:
    with fresh_reader(path):
        pass


def loops(path: str) -> None:
    with partition_loop(path, Extent(AT, LENGTH)):
        pass


def loops_to_read(path: str) -> None:
    with read_only_loop(path, Extent(AT, LENGTH)):
        pass


def maps(path: str) -> None:
    with open_medium(path, Extent(AT, LENGTH)) as medium:
        used_blocks = kind_named("ext4").used_blocks
        assert used_blocks
        list(used_blocks(medium, Layer("ext4", Extent(AT, LENGTH), claims_size=LENGTH), False))


def measures(path: str) -> None:
    with open_medium(path, Extent(AT, LENGTH)) as medium:
        least_length = kind_named("ext4").least_length
        assert least_length
        least_length(medium)


USES = (
    opens, reads, loops, loops_to_read,
    lambda path: check_content(path, Extent(AT, LENGTH), "ext4"),
    maps, measures,
    lambda path: refuse_disturbed(path, written_at(path)),
    lambda path: look((path,)),
)  # fmt: skip
NAMES = ("opened", "read", "looped", "looped-read-only", "checked", "mapped", "measured", "asked-for-uses", "looked-at")


@root
@pytest.mark.needs_tools("sfdisk", "mkfs.ext4", "e2fsck", "dumpe2fs")
@pytest.mark.parametrize("how", ["a link", "a rename"])
@pytest.mark.parametrize("use", USES, ids=NAMES)
def test_what_a_locked_path_leads_to_afterwards_is_not_used(
    use: Callable[[str], object], how: str, images: tuple[Path, Path]
) -> None:
    mine, other = images
    before = digest(other)
    with swapped(how, mine, other) as (path, swap), lock_disk(path):
        use(path)  # as long as nothing is swapped
        swap()
        with pytest.raises(Refused, match="names another file or device than when it was first opened"):
            use(path)
    assert digest(other if how == "a link" else mine) == before


@pytest.mark.needs_tools("sfdisk", "mkfs.ext4")
def test_a_disk_that_was_looked_at_is_not_replaced_before_it_is_locked(images: tuple[Path, Path]) -> None:
    mine, other = images
    with swapped("a rename", mine, other) as (path, swap), held(path):
        swap()
        with pytest.raises(Refused, match="something replaced it"), lock_disk(path):
            pass
    with lock_disk(str(mine)):  # a later command knows nothing of the first one
        pass


LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # <linux/loop.h>


@contextmanager
def loop_of_its_own() -> Iterator[Path]:
    """Yield a loop device with a number that no other test is given while it is free."""
    with Path("/dev/loop-control").open("rb") as control:
        number = fcntl.ioctl(control, LOOP_CTL_ADD, 1000 + os.getpid() % 100_000)
        try:
            yield Path(f"/dev/loop{number}")
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


@root
@pytest.mark.needs_tools("losetup", "sfdisk", "mkfs.ext4")
def test_another_disk_under_the_same_device_number_is_another_disk(images: tuple[Path, Path]) -> None:
    """A loop device is given another file; the kernel counts its disks (diskseq)."""
    mine, other = images
    with loop_of_its_own() as device:
        run("losetup", device, mine)
        try:
            with held(str(device)):
                with lock_disk(str(device)):
                    pass
                run("losetup", "-d", device)
                run("losetup", device, other)
                with pytest.raises(Refused, match="names another file or device"), lock_disk(str(device)):
                    pass
            with lock_disk(str(device)):
                pass
        finally:
            run("losetup", "-d", device)


@root
@pytest.mark.needs_tools("sfdisk", "mkfs.ext4", "mkfs.btrfs", "btrfs", "resize2fs", "qemu-img")
@sample(3)
@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
@pytest.mark.parametrize("how", ["a link", "a rename"])
def test_a_path_that_is_swapped_while_a_file_system_is_shrunk_changes_nothing_else(
    kind: str, how: str, sparse: Make
) -> None:
    size = 400 * MIB
    mine, other = (formatted(sparse(size, name), kind, size=size - AT) for name in ("mine.img", "other.img"))
    before = digest(other)
    with swapped(how, mine, other) as (path, swap):
        words = program("realign", "--shrink", "--yes", "--not-suspended", "--json", path)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout and running.stderr
            next(line for line in running.stdout if "step-begun" in line and "ShrinkContent" in line)
            swap()
            events = [json.loads(line)["event"] for line in running.stdout]
            said = running.stderr.read()
    assert running.returncode in (3, 4), said
    errors = [line for line in said.splitlines() if line.startswith("aligntool: ")]
    assert len(errors) == 1 and "something replaced it" in errors[0], said
    assert "progress" not in events
    assert digest(other if how == "a link" else mine) == before


@root
@pytest.mark.needs_tools("sfdisk", "mkfs.btrfs", "btrfs")
def test_a_path_that_is_swapped_by_the_end_of_a_shrink_stops_the_change(sparse: Make, tmp_path: Path) -> None:
    """Something was written by then, so it is no refusal. A program in place of btrfs swaps the link behind it."""
    size = 400 * MIB
    mine, other = (formatted(sparse(size, name), "btrfs", size=size - AT) for name in ("mine.img", "other.img"))
    before, started_as = digest(other), digest(mine)
    program_folder = tmp_path / "bin"
    program_folder.mkdir()
    with swapped("a link", mine, other) as (path, _):
        btrfs = shutil.which("btrfs")
        script = f'[ "$2" = resize ] || exec {btrfs} "$@"\n{btrfs} "$@"\nmv -T {mine.with_name("new")} {path}\n'
        (program_folder / "btrfs").write_text(f"#!/bin/sh\nset -e\n{script}")
        (program_folder / "btrfs").chmod(0o755)
        env = {"PATH": f"{program_folder}:{os.environ['PATH']}"}
        done = run_aligntool("realign", "--shrink", "--yes", "--not-suspended", path, env=env, code=4)
    assert "something replaced it meanwhile; no partition was moved" in done.stderr
    assert digest(other) == before and digest(mine) != started_as


@pytest.mark.needs_tools("sfdisk", "mkfs.ext4")
def test_libparted_writes_only_to_the_disk_that_is_locked(images: tuple[Path, Path], sparse: Make) -> None:
    """It opens a path. While it does, this one leads to another file, and afterwards to the locked one again."""
    mine, other = sparse(64 * MIB, "empty.img"), images[1]
    before = digest(other)
    link = mine.with_name("disk.img")
    link.symlink_to(mine)
    with lock_disk(str(link)):
        with new_table(str(link), MakeTable("gpt", ()), 512) as table, opened_by_libparted(table.device, str(link)):
            pass
        link.unlink()
        link.symlink_to(other)
        with new_table(str(link), MakeTable("gpt", ()), 512) as table:
            link.unlink()
            link.symlink_to(mine)
            with (
                pytest.raises(Refused, match="libparted opened another file"),
                opened_by_libparted(table.device, str(link)),
            ):
                pass
    assert digest(other) == before


OPENING = "trace=open,openat,openat2,creat"
COMMANDS = {"audit": "xfs", "plan realign": "ext4", "status": "ext4", "probe": "xfs"}
LOOKED_UP = [
    *((words, "ext4" if kind == "xfs" else "xfs") for words, kind in COMMANDS.items() if THOROUGH),
    *COMMANDS.items(),
    *(("realign --yes --not-suspended", kind) for kind in ("ext4", "xfs")),
]


@root
@pytest.mark.needs_tools("strace", "sfdisk", "mkfs.ext4", "mkfs.xfs", "xfs_db", "e2fsck", "losetup")
@pytest.mark.parametrize(("words", "kind"), LOOKED_UP)
def test_the_path_of_an_image_is_looked_up_once(words: str, kind: str, sparse: Make, tmp_path: Path) -> None:
    """By every process that a command starts; strace prints the name that each passes to the kernel."""
    image = formatted(sparse(400 * MIB), kind, size=320 * MIB)
    log = tmp_path / "strace.log"
    run(
        "strace", "-f", "-o", log, "-e", OPENING, *program(*words.split(), image), fails=True
    )  # an audit finds something
    found = [line for line in log.read_text().splitlines() if f'/{image.name}"' in line]
    assert len(found) == 1 and "O_PATH" in found[0], "\n".join(found)
