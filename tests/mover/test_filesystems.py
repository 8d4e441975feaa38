"""Every kind of content moved over every kind of distance: other programs report the same before and after.

On image files without root if the content's own tools allow that, and on loop devices. By default a selection, in which
every kind makes two moves; ALIGNTOOL_THOROUGH=1 makes all of them.
"""

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.contents.test_windows_file_systems import with_fixed_root
from tests.mover.command_line import aligntool, realign
from tests.mover.conftest import Contents, MakeDisk
from tests.mover.containers import CONTAINERS
from tests.mover.disks import Disk, Row, blkid, check_table, entries, hidden_sector_fields, hidden_sectors, place, read
from tests.mover.fileset import noise
from tests.mover.filesystems import FILESYSTEMS, SECTOR, Kind
from tests.mover.loop_mounts import partitioned
from tests.mover.shifts import SHIFTS, Shift, chosen, far_left
from tests.thorough import THOROUGH, sample

Loop = Callable[..., Path]
Sparse = Callable[..., Path]
pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "blkid")

KINDS = (*FILESYSTEMS, *CONTAINERS)
NAMED = {kind.name: kind for kind in KINDS}
MOVES = [pytest.param(kind, shift, marks=kind.marks, id=f"{kind.name}, {shift.name}") for kind, shift in chosen(KINDS)]
SOME = [NAMED[name].parameter() for name in (NAMED if THOROUGH else ("ext4", "xfs", "fat32", "luks2"))]


def moved(disk: Disk, target: Path, *options: str) -> dict[int, Extent]:
    """Realign it, and check everything that must not change. Return the places afterwards."""
    before, old, first = disk.seen(), disk.extents(), boot_code(disk)
    fields = {number: hidden(disk, number) for number in old}
    realign(target, *options)
    new = disk.extents()
    assert disk.seen() == before
    disk.check()
    assert boot_code(disk) == first
    for number, row in zip(disk.numbers(), disk.rows, strict=True):
        if old[number] != new[number] and row.kind.name != "zfs":
            # ZFS repeats its uberblock every KiB: six sectors away from the new place blkid still sees a row of them.
            assert blkid(disk.image, old[number]) == {}, "the old place is still taken for something"
        assert hidden(disk, number) == fields[number], "the boot sector does not know where it lies"
    return new


def boot_code(disk: Disk) -> bytes:
    """Return the loader in the first sector, up to the disk's number, and in the gap behind the table."""
    label = run("blkid", "-p", "-s", "PTTYPE", "-o", "value", disk.image).strip()
    end = min(extent.start for extent in disk.extents().values()) if label == "dos" else 0
    with disk.image.open("rb") as file:
        content = file.read(min(end, 63 * SECTOR))
    return content[:440] + content[SECTOR:]


def hidden(disk: Disk, number: int) -> list[int]:
    """Return the difference between the boot sector's place and the real one, in sectors: zero, or that of a logical
    one.
    """
    extent = disk.extents()[number]
    kind = dict(zip(disk.numbers(), disk.rows, strict=True))[number].kind
    return [extent.start // SECTOR - value for value in hidden_sectors(disk.image, extent.start, kind)]


@sample(16)
@pytest.mark.parametrize(("kind", "shift"), MOVES)
def test_a_move_in_an_image_file_keeps_everything(kind: Kind, shift: Shift, make: MakeDisk) -> None:
    disk = make(shift.label, Row(kind, shift.start), free=shift.free)
    assert moved(disk, disk.image, *shift.options())[1].start == shift.target * SECTOR


@sample(4)
@pytest.mark.needs_root
@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("shift", [SHIFTS[0], SHIFTS[1], *(SHIFTS[2:] if THOROUGH else ())], ids=lambda it: it.name)
def test_a_move_on_a_loop_device_keeps_everything(kind: Kind, shift: Shift, make: MakeDisk, loop: Loop) -> None:
    disk = make(shift.label, Row(kind, shift.start), free=shift.free)
    assert moved(disk, loop(disk.image), *shift.options())[1].start == shift.target * SECTOR


@pytest.mark.parametrize("label", ["dos", "gpt"])
@pytest.mark.parametrize("kind", [NAMED[name].parameter() for name in (NAMED if THOROUGH else ("ext4", "fat16"))])
def test_a_move_by_ten_gib_to_the_left_works_as_one_by_a_sector(kind: Kind, label: str, make: MakeDisk) -> None:
    rows = far_left(kind)
    disk = make(label, *rows, free=33 if label == "gpt" else 0)
    places = moved(disk, disk.image)
    assert [places[number].start for number in (1, 2)] == [row.start * SECTOR for row in rows[:2]]
    assert places[3].start % MIB == 0
    assert places[1].end <= places[3].start < places[3].end <= places[2].start


def test_adjacent_partitions_all_move_and_do_not_overlap(make: MakeDisk) -> None:
    kinds = [NAMED[name] for name in ("fat16", "ext4", "md 1.0", "swap", "ext2", "luks2", "unknown")]
    rows, at = [], 63
    for kind in kinds:
        rows.append(Row(kind, at))
        at = rows[-1].end
    disk = make("gpt", *rows, free=40 * 2048)
    places = moved(disk, disk.image)
    assert all(extent.start % 4096 == 0 for extent in places.values())
    in_order = sorted(places.values())
    assert all(left.end <= right.start for left, right in pairwise(in_order))


def test_logical_partitions_move_with_their_ebrs(make: MakeDisk) -> None:
    kinds = [NAMED[name] for name in ("fat12", "ext2", "swap")]
    rows = [Row(NAMED["fat16"], 63)]
    for kind in kinds:
        room = 2048 if len(rows) == 1 else 0
        rows.append(Row(kind, rows[-1].end + room + 63, logical=True))
    disk = make("dos", *rows, free=40 * 2048)
    places = moved(disk, disk.image)
    assert sorted(places) == [1, 5, 6, 7]
    assert all(extent.start % 4096 == 0 for extent in places.values())


@pytest.mark.needs_root
@pytest.mark.needs_tools("partx")
def test_the_kernel_shows_the_partitions_at_their_new_places(make: MakeDisk) -> None:
    disk = make("dos", Row(NAMED["ext4"], 63))
    with partitioned(disk.image) as device:
        node = Path("/sys/class/block") / f"{device.name}p1" / "start"
        assert node.read_text() == "63\n"
        moved(disk, device)
        assert node.read_text() == "2048\n"
        assert run("blkid", "-p", "-s", "TYPE", "-o", "value", f"{device}p1") == "ext4\n"


def test_a_second_realign_has_nothing_to_do(make: MakeDisk) -> None:
    disk = make("gpt", Row(NAMED["ext4"], 34))
    moved(disk, disk.image)
    before, table = disk.image.read_bytes(), entries(disk.image)
    realign(disk.image)
    assert disk.image.read_bytes() == before
    assert "AL001" not in aligntool("audit", disk.image)
    assert table[1]["start"] == 2048


@pytest.mark.needs_root
@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_disk_with_sectors_of_4_kib_is_moved_as_well(
    label: str, contents: Contents, loop: Loop, sparse: Sparse
) -> None:
    kind = NAMED["ext4"]
    start, size = 10 * 4096, kind.length // 4096 * 4096 + 4096
    image = sparse(60 * MIB)
    place(contents(kind), image, start)
    device = loop(image, sector_size=4096)
    table = f"label: {label}\nstart=10, size={size // 4096}, type=L\n"
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--wipe", "never", device, stdin=first_usable(label) + table)
    before, entry = read(image, Extent(start, kind.length), kind), entries(device)[1]
    assert entry.pop("start") == 10
    realign(device, "--grain", "1MiB")
    after = entries(device)[1]
    assert after.pop("start") == 256
    assert after == entry
    assert read(image, Extent(MIB, kind.length), kind) == before
    assert blkid(image, Extent(start, size)) == {}
    check_table(device)


def first_usable(label: str) -> str:
    return "first-lba: 6\n" if label == "gpt" else ""


@pytest.mark.needs_tools("mkfs.fat", "mcopy")
def test_a_fat_that_the_checker_cannot_check_is_moved(sparse: Sparse, tmp_path: Path) -> None:
    """fsck.fat knows one or two allocation tables."""
    content, disk = sparse(24 * MIB, "content.img"), sparse(60 * MIB)
    run("mkfs.fat", "-F", "16", "-f", "4", content)
    (tmp_path / "file").write_bytes(b"file " * 100_000)
    run("mcopy", "-i", content, tmp_path / "file", "::file")
    run("sfdisk", "-q", disk, stdin=f"label: dos\nstart=63, size={24 * MIB // SECTOR}, type=6\n")
    place(content, disk, 63 * SECTOR)
    assert "not checked: " in realign(disk)
    assert entries(disk)[1]["start"] == 2048
    run("mcopy", "-n", "-i", f"{disk}@@{MIB}", "::file", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "file").read_bytes()


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "mcopy", "mdel")
def test_a_fat32_with_a_fixed_root_directory_keeps_the_end_of_every_file(sparse: Sparse, tmp_path: Path) -> None:
    content, file, image = sparse(64 * MIB, "content"), tmp_path / "file", tmp_path / "disk.img"
    file.write_bytes(noise("file", 40_000))
    (tmp_path / "between").write_bytes(bytes(MIB))
    run("mkfs.fat", "-F32", "-s", "1", "-h", "63", content, str(60 * 1024))
    for number in range(4):
        run("mcopy", "-i", content, file, f"::file{number}")
        run("mcopy", "-i", content, tmp_path / "between", f"::between{number}")
    run("mdel", "-i", content, "::between0", "::between1", "::between2", "::between3")
    content.write_bytes(with_fixed_root(content.read_bytes()))
    run("fsck.fat", "-n", content)
    before = content.read_bytes()
    with image.open("wb") as whole:
        whole.truncate(70 * MIB)
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart=63, size={len(before) // SECTOR}, type=c\n")
    place(content, image, 63 * SECTOR)
    realign(image)
    after = bytearray(image.read_bytes()[MIB : MIB + len(before)])
    for boot in (0, 6 * SECTOR):
        assert after[boot + 0x1C : boot + 0x20] == (2048).to_bytes(4, "little")
        after[boot + 0x1C : boot + 0x20] = before[boot + 0x1C : boot + 0x20]
    assert after == before, "all of it is copied"
    content.write_bytes(after)
    assert run("fsck.fat", "-n", content).count(" files, ") == 1


COPIES = [NAMED[name].parameter() for name in ("fat32", "ntfs", "exfat")]


@sample(2)
@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("found", ["another value", "another sector"])
def test_a_copy_of_the_boot_sector_that_differs_is_not_changed(kind: Kind, found: str, make: MakeDisk) -> None:
    """GParted and Windows patch only the boot sector itself; ntfsfix may put the copy elsewhere."""
    disk = make("dos", Row(kind, 63))
    (_, (at, form)) = hidden_sector_fields(kind)
    start = at - (0x40 if kind.name == "exfat" else 0x1C)
    with disk.image.open("r+b") as image:
        image.seek(63 * SECTOR + (at if found == "another value" else start))
        image.write(struct.pack(form, 4096) if found == "another value" else noise("copy", SECTOR))
    with disk.image.open("rb") as image:
        image.seek(63 * SECTOR + start)
        copy = image.read(SECTOR)
    assert "stays unchanged" in " ".join(aligntool("plan", "realign", disk.image).split())
    realign(disk.image)
    assert hidden_sectors(disk.image, MIB, kind)[0] == 2048
    with disk.image.open("rb") as image:
        image.seek(MIB + start)
        assert image.read(SECTOR) == copy
    if kind.name != "exfat" or found == "another value":
        assert read(disk.image, disk.extents()[1], kind)
