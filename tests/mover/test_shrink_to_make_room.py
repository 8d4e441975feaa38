"""A file system is shrunk by its own tool to make room for itself or its neighbour; then everything moves."""

import os
from pathlib import Path

import pytest

from aligntool.units import MIB, Extent, format_about
from tests.conftest import run
from tests.mover.command_line import REFUSED, aligntool, realign
from tests.mover.disks import content_of, entries
from tests.mover.loop_mounts import looped

pytestmark = pytest.mark.needs_root

SECTOR = 512


def make(image: Path, label: str, rows: list[tuple[int, Path]]) -> Path:
    """Make a disk from (start in sectors, content); the last one ends with the last sector that a
    partition may have.
    """
    lines = [f"label: {label}", "unit: sectors"] + (["first-lba: 34"] if label == "gpt" else [])
    end = 0
    for start, content in rows:
        end = start + content.stat().st_size // SECTOR
        lines.append(f"start={start}, size={end - start}, type={'L' if label == 'gpt' else '7'}")
    with image.open("xb") as file:
        file.truncate((end + (33 if label == "gpt" else 0)) * SECTOR)
        for start, content in rows:
            file.seek(start * SECTOR)
            file.write(content.read_bytes())
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--wipe", "never", image, stdin="\n".join(lines))
    return image


def extent(image: Path, number: int) -> Extent:
    entry = entries(image)[number]
    return Extent(entry["start"] * SECTOR, entry["size"] * SECTOR)


def half_full(image: Path, size: int) -> int:
    """Make an ext4 with 23 MiB of files, and return the bytes that resize2fs leaves at least, which are far more."""
    tree = image.with_name("tree")
    tree.mkdir()
    for name, length in (("a", 20 * MIB), ("b", 3 * MIB)):
        (tree / name).write_bytes(os.urandom(length))
    with image.open("wb") as file:
        file.truncate(size)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", tree, image)
    return int(run("resize2fs", "-P", image).split()[-1]) * 1024


@pytest.mark.needs_tools("resize2fs", "e2fsck", "mke2fs", "debugfs")
@pytest.mark.parametrize("whole", [True, False])
def test_no_ext4_is_planned_to_be_shorter_than_resize2fs_allows(tmp_path: Path, *, whole: bool) -> None:
    """A smaller journal than the preferred one leaves enough room."""
    image, kept = tmp_path / "disk.img", tmp_path / "kept"
    least = half_full(image, 100 * MIB)
    assert least > 55 * MIB
    if not whole:
        image = make(tmp_path / "table.img", "dos", [(63, image)])
    words = ("partition",) if whole else ("realign", "--not-suspended")
    said = aligntool(*words, image, "--yes", "--shrink")
    assert "\nnow shorter than before: the ext4 on partition 1; to lengthen it again: " in said
    place = extent(image, 1)
    assert place.length >= least and place.start % MIB == 0
    with image.open("rb") as file:
        file.seek(place.start)
        kept.write_bytes(file.read(place.length))
    run("e2fsck", "-fn", kept)
    run("debugfs", "-R", f"dump /a {tmp_path / 'a'}", kept)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "tree" / "a").read_bytes()
    if whole:
        undone = aligntool("partition", image, "--undo", "--yes")
        told = f"the ext4 is {format_about(100 * MIB - place.length)} shorter than the disk it gets; to lengthen it: by"
        assert " ".join(undone.split()).count(told) == 2  # in the plan, and at the end
        run("resize2fs", image)  # as docs/by-hand.md says
        assert "Block count:              102400\n" in run("dumpe2fs", "-h", image)


@pytest.mark.needs_tools("resize2fs", "mke2fs")
@pytest.mark.parametrize("whole", [True, False])
def test_an_ext4_that_cannot_be_shrunk_enough_is_refused_by_the_plan(tmp_path: Path, *, whole: bool) -> None:
    image = tmp_path / "disk.img"
    least = half_full(image, 40 * MIB)
    assert least > 36 * MIB
    if not whole:
        image = make(tmp_path / "table.img", "dos", [(63, image)])
    before = image.read_bytes()
    said = aligntool("plan", "partition" if whole else "realign", image, "--shrink", code=REFUSED)
    assert "shrunk" in said and "resize2fs" not in said
    assert image.read_bytes() == before


@pytest.mark.needs_tools("resize2fs", "e2fsck", "mke2fs", "partx")
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_file_system_that_does_not_move_is_shrunk_to_make_room_for_its_neighbour(label: str, tmp_path: Path) -> None:
    """The kernel updates the shorter partition as well, otherwise it would have no place for the neighbour."""
    first, second = tmp_path / "first", tmp_path / "second"
    run("mke2fs", "-q", "-t", "ext4", first, "40000k")
    second.write_bytes(os.urandom(3 * MIB))
    start = 2048 + first.stat().st_size // SECTOR + 1
    image = make(tmp_path / "disk.img", label, [(2048, first), (start, second)])
    with looped(image) as disk:
        run("partx", "-u", disk)
        realign(disk, "--shrink", "--used-only")  # nothing is recognised in the second one
        shown = run("partx", "-s", "-g", "-b", "-o", "START,SIZE", disk).split()
        kernel = [
            int((file.parent / name).read_text()) * SECTOR
            for file in sorted(Path("/sys/class/block", disk.name).glob("*/partition"))
            for name in ("start", "size")
        ]
        assert kernel == [int(shown[0]) * SECTOR, int(shown[1]), int(shown[2]) * SECTOR, int(shown[3])]
    assert extent(image, 1).start == 2048 * SECTOR
    assert extent(image, 1).length < first.stat().st_size
    assert extent(image, 2).start % MIB == 0
    with content_of(image, extent(image, 1)) as content:
        run("e2fsck", "-fn", content)
    with content_of(image, extent(image, 2)) as content:
        assert content.read_bytes() == second.read_bytes()


@pytest.mark.needs_tools("mkntfs", "ntfsresize", "ntfscat")
def test_an_ntfs_that_fills_the_disk_is_shrunk_and_moved(tmp_path: Path) -> None:
    """ntfsresize leaves the copy of the boot sector to chkdsk, so the place to change is unknown."""
    volume, file = tmp_path / "volume", tmp_path / "file"
    with volume.open("xb") as made:
        made.truncate(30 * MIB)
    run("mkntfs", "-q", "-Q", "-F", "-p", "63", "-H", "255", "-S", "63", volume)
    file.write_bytes(os.urandom(2 * MIB))
    run("ntfscp", volume, file, "file")
    image = make(tmp_path / "disk.img", "dos", [(63, volume)])
    realign(image, "--shrink")
    place = extent(image, 1)
    assert place.start == MIB
    assert image.read_bytes()[MIB + 28 : MIB + 32] == (2048).to_bytes(4, "little")
    with content_of(image, place) as content:
        run("ntfsresize", "--info", "--force", content)
        read = tmp_path / "read"
        run("sh", "-c", f"ntfscat -f {content} file > {read}")
        assert read.read_bytes() == file.read_bytes()
