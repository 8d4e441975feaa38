"""Linux RAID members of every superblock version.

A kernel without md cannot make them, so the superblocks are written here after linux/include/uapi/linux/raid/md_p.h.
`mdadm --examine` and `blkid -p` confirm that they are valid, and aligntool is compared only with what these two read.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.formats.reader import MAY_BE_SHARED
from aligntool.inventory import Layer
from aligntool.linux.look import look
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.contents.placed_partitions import STARTS, agree, blkid, field, layers_of, place

Sparse = Callable[..., Path]

pytestmark = pytest.mark.needs_tools("mdadm", "blkid")

MAGIC = 0xA92B4EFC
LEVELS = {"raid0": 0, "raid1": 1, "raid5": 5, "raid6": 6, "raid10": 10, "linear": -1}
SIZE = 32 * MIB
PLACES = {"1.0": SIZE - 8 * KIB, "1.1": 0, "1.2": 4 * KIB}


def superblock_1(
    version: str, level: str, *, chunk: int = 0, disks: int = 2, data: int = MIB, number: int = 0
) -> tuple[int, bytes]:
    """Return its place on a member of SIZE bytes, and its bytes. `data` is where the data start, `number` that of the
    device, a spare from `disks` on.
    """
    at = PLACES[version]
    start, end = (0, at & ~(4 * KIB - 1)) if version == "1.0" else (data, SIZE)
    block = bytearray(512)
    struct.pack_into("<II", block, 0, MAGIC, 1)
    block[16:32], block[32:64] = bytes(range(0x10, 0x20)), b"host:data one".ljust(32, b"\0")
    struct.pack_into("<QiI", block, 64, 1_700_000_000, LEVELS[level], 0x102 if level == "raid10" else 0)
    struct.pack_into("<QII", block, 80, (end - start) // 512, chunk // 512, disks)
    struct.pack_into("<QQQ", block, 128, start // 512, (end - start) // 512, at // 512)
    struct.pack_into("<I", block, 160, number)
    block[168:184] = bytes(range(0x30, 0x40))
    struct.pack_into("<QQQ", block, 192, 1_700_000_000, 7, (1 << 64) - 1)
    struct.pack_into("<I", block, 220, 128)
    for role in range(128):
        struct.pack_into("<H", block, 256 + 2 * role, role if role < disks else 0xFFFF)
    total = sum(struct.unpack("<128I", block))
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32))
    return at, bytes(block)


def superblock_0_90(
    level: str, *, order: str = "<", chunk: int = 64 * KIB, disks: int = 2, size: int | None = None
) -> tuple[int, bytes]:
    """Return the same for 0.90; `size` is the number of bytes used on each member."""
    at = (SIZE & ~(64 * KIB - 1)) - 64 * KIB
    words = [0] * 1024
    given = (at if size is None else size) // KIB
    words[:8] = [MAGIC, 0, 90, 0, 0, 0x11111111, 1_700_000_000, LEVELS[level] & 0xFFFFFFFF]
    words[8:16] = [given, disks, disks, 0, 0, 0x22222222, 0x33333333, 0x44444444]
    words[32:38] = [1_700_000_000, 1, disks, disks, 0, 0]
    words[64:66] = [0, 0 if level == "raid1" else chunk]
    for disk in range(disks):
        words[128 + 32 * disk : 133 + 32 * disk] = [disk, 8, 16 * disk, disk, 6]
    words[128 + 27 * 32 : 133 + 27 * 32] = words[128:133]  # this_disk
    total = sum(words)
    words[38] = (total & 0xFFFFFFFF) + (total >> 32)
    return at, struct.pack(f"{order}1024I", *words)


def member(content: Path, superblock: tuple[int, bytes]) -> Path:
    with content.open("r+b") as file:
        file.seek(superblock[0])
        file.write(superblock[1])
    return content


def agree_if_recognised(layer: Layer, said: dict[str, str], version: str) -> None:
    """Check that they agree; libblkid 2.39 looks for the checksum of version 1.1 in a wrong place."""
    if said or version != "1.1":
        agree(layer, said)


def checked(content: Path) -> str:
    """Return what mdadm reads, without errors."""
    report = run("mdadm", "--examine", content)
    assert field(report, "Checksum").endswith("correct"), report
    return report


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    ("level", "chunk", "disks"), [("raid0", 512 * KIB, 2), ("raid5", 64 * KIB, 4), ("raid10", 4 * KIB, 4)]
)
def test_a_striped_member_is_read_as_by_mdadm_and_blkid(
    sparse: Sparse, start: int, version: str, level: str, chunk: int, disks: int
) -> None:
    content = member(sparse(SIZE), superblock_1(version, level, chunk=chunk, disks=disks, data=2 * MIB + 512))
    report = checked(content)
    placed = place(content, start)
    layer = placed.layer()
    agree_if_recognised(layer, placed.blkid(), version)
    data = 512 * int(field(report, "Data Offset").split()[0]) if version != "1.0" else 0
    assert layer.raid_level == field(report, "Raid Level")
    assert layer.raid_members == int(field(report, "Raid Devices")) == disks
    assert (layer.raid_chunk or 0) == int(field(report, "Chunk Size").removesuffix("K")) * KIB
    assert layer.data_start == start + data
    assert layer.claims_size == data + 512 * int(field(report, "Avail Dev Size").split()[0])
    assert layer.inner == ()


@pytest.mark.needs_tools("mkswap")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", ["0.90", "1.0", "1.2"])
def test_of_a_striped_array_only_a_hibernation_image_is_found(sparse: Sparse, start: int, version: str) -> None:
    """The swap area is longer than the member."""
    at_end = superblock_0_90("raid0") if version == "0.90" else superblock_1(version, "raid0", chunk=64 * KIB)
    content, swap, data = sparse(SIZE), sparse(2 * SIZE, "swap.img"), MIB if version == "1.2" else 0
    run("mkswap", swap)
    head = swap.read_bytes()[: 4 * KIB - 10]
    for mark, kinds in ((b"SWAPSPACE2", []), (b"S1SUSPEND\0", ["swsuspend"])):
        member(member(content, (data, head + mark)), at_end)
        checked(content)
        layer = place(content, start).layer()
        assert [(inner.kind, inner.extent.start, inner.problems) for inner in layer.inner] == [
            (kind, start + data, ()) for kind in kinds
        ]


@pytest.mark.needs_tools("mkswap")
@pytest.mark.parametrize("level", ["raid1", "raid5"])
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_remnants_on_a_spare_are_ignored(sparse: Sparse, version: str, level: str) -> None:
    """Nothing is written to it until it replaces a member. If the data would be at the first byte, the image may be
    newer than the array.
    """
    content, swap, data = sparse(SIZE), sparse(SIZE // 2, "swap.img"), MIB if version == "1.2" else 0
    run("mkswap", swap)
    head = swap.read_bytes()[: 4 * KIB - 10]
    for number, role, is_found in ((2, "spare", version == "1.0"), (1, "Active device 1", True)):
        at_end = superblock_1(version, level, chunk=64 * KIB if level == "raid5" else 0, number=number)
        member(member(content, (data, head + b"S1SUSPEND\0")), at_end)
        assert field(checked(content), "Device Role") == role
        assert [inner.kind for inner in place(content, 0).layer().inner] == ["swsuspend"] * is_found


@pytest.mark.needs_tools("mkfs.ext4")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_file_system_inside_a_mirror_is_read(sparse: Sparse, start: int, version: str) -> None:
    content, data = sparse(SIZE), 0 if version == "1.0" else 3 * MIB
    inner = sparse(24 * MIB, "fs.img")
    run("mkfs.ext4", "-q", "-F", "-L", "mirrored", inner)
    member(content, (data, inner.read_bytes()))
    member(content, superblock_1(version, "raid1", data=3 * MIB))
    checked(content)
    placed = place(content, start)
    layer = placed.layer()
    agree_if_recognised(layer, placed.blkid(), version)
    assert layer.raid_chunk is None
    (found,) = layer.inner
    assert (found.kind, found.label, found.problems) == ("ext4", "mirrored", ())
    assert found.extent == Extent(start + data, 24 * MIB)


@pytest.mark.parametrize(("major", "is_shared"), [(4, False), (5, True)])
@pytest.mark.parametrize(("version", "back"), [("1.0", -16), ("1.2", 8)])
def test_an_array_with_a_cluster_bitmap_may_be_shared(
    sparse: Sparse, version: str, back: int, major: int, *, is_shared: bool
) -> None:
    """Its bitmap lies `back` sectors after the superblock."""
    at, block = superblock_1(version, "raid1")
    changed = bytearray(block)
    struct.pack_into("<I", changed, 8, 1)  # MD_FEATURE_BITMAP_OFFSET
    struct.pack_into("<i", changed, 96, back)
    struct.pack_into("<I", changed, 216, 0)
    total = sum(struct.unpack("<128I", changed))
    struct.pack_into("<I", changed, 216, (total & 0xFFFFFFFF) + (total >> 32))
    content = member(sparse(SIZE), (at, bytes(changed)))
    bitmap = struct.pack("<4sI16sQQQII", b"bitm", major, block[16:32], 0, 0, SIZE // 512, 0, MIB).ljust(256, b"\0")
    (layer,) = layers_of(member(content, (at + back * 512, bitmap)))
    assert "Bitmap" in checked(content)
    assert layer.unclean == (f"{MAY_BE_SHARED} (cluster bitmap)" if is_shared else None)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("order", ["<", ">"], ids=["little endian", "big endian"])
@pytest.mark.parametrize("level", ["raid1", "raid5", "raid0"])
def test_a_member_of_version_0_90_is_read_in_either_byte_order(
    sparse: Sparse, start: int, order: str, level: str
) -> None:
    content = member(sparse(SIZE), superblock_0_90(level, order=order))
    placed = place(content, start)
    layer = placed.layer()
    agree(layer, placed.blkid())
    assert layer.version == "0.90.0"
    assert layer.data_start == start
    assert layer.raid_members == 2
    if order == "<":
        report = checked(content)
        assert layer.raid_level == field(report, "Raid Level")
        assert layer.uuid == "-".join(_groups(field(report, "UUID").split(" ")[0].replace(":", "")))
        if level != "raid1":
            assert layer.raid_chunk == int(field(report, "Chunk Size").removesuffix("K")) * KIB


def _groups(digits: str) -> list[str]:
    return [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]


def partitioned(content: Path, start: int) -> Path:
    """Return a disk whose last partition, an md member, ends where the disk ends."""
    placed = place(content, start)
    with placed.disk.open("r+b") as file:
        file.truncate(start + SIZE)
    run("sfdisk", "-q", placed.disk, stdin=f"label: dos\n{start // 512},{SIZE // 512},fd\n")
    return placed.disk


@pytest.mark.needs_tools("sfdisk")
def test_a_0_90_superblock_at_the_disks_end_of_the_partitions_size_is_the_partitions(sparse: Sparse) -> None:
    disk = partitioned(member(sparse(SIZE), superblock_0_90("raid1")), MIB)
    assert blkid(disk, Extent(MIB, SIZE))["TYPE"] == "linux_raid_member"
    assert [layer.kind for layer in layers_of(disk, Extent(MIB, SIZE))] == ["linux_raid_member"]
    assert layers_of(disk) == ()  # as libblkid 2.38, while 2.41 takes it for the disk's as well


@pytest.mark.needs_tools("sfdisk")
def test_a_0_90_superblock_of_the_whole_disk_is_not_that_of_its_last_partition(sparse: Sparse) -> None:
    disk = member(sparse(SIZE), superblock_0_90("raid1"))
    run("sfdisk", "-q", disk, stdin="label: dos\n2048,,83\n")  # seen through the mirror
    assert [layer.kind for layer in layers_of(disk)] == ["linux_raid_member"]
    partition = Extent(MIB, SIZE - MIB)
    assert "TYPE" not in blkid(disk, partition)
    assert layers_of(disk, partition) == ()


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("level", ["raid0", "linear"])
def test_a_table_that_extends_beyond_a_0_90_member_is_that_of_the_array(sparse: Sparse, level: str) -> None:
    """For these levels the superblock states no size: mdadm before 4.2 wrote 0."""
    disk = sparse(2 * SIZE)
    run("sfdisk", "-q", disk, stdin="label: dos\n63,20000\n20063,\n")
    with disk.open("r+b") as file:
        file.truncate(SIZE)
    member(disk, superblock_0_90(level, size=0))
    assert blkid(disk)["TYPE"] == "linux_raid_member"
    (seen,) = look((str(disk),)).disks
    assert [layer.kind for layer in seen.content] == ["linux_raid_member"]


@pytest.mark.needs_tools("sfdisk")
def test_a_1_0_superblock_at_the_disks_end_is_that_of_the_last_partition(sparse: Sparse) -> None:
    disk = partitioned(member(sparse(SIZE), superblock_1("1.0", "raid1")), MIB)
    assert [layer.kind for layer in layers_of(disk, Extent(MIB, SIZE))] == ["linux_raid_member"]
    assert layers_of(disk) == ()


@pytest.mark.parametrize(
    ("superblock", "at"),
    [(superblock_1("1.2", "raid0", chunk=64 * KIB), 4 * KIB + 100), (superblock_0_90("raid5"), SIZE - 64 * KIB + 600)],
)
def test_a_wrong_checksum_is_reported(sparse: Sparse, superblock: tuple[int, bytes], at: int) -> None:
    content = member(member(sparse(SIZE), superblock), (at, b"\x5a"))
    assert "expected" in field(run("mdadm", "--examine", content, fails=True), "Checksum")
    (layer,) = layers_of(content)
    assert any("checksum of the md superblock is wrong" in problem for problem in layer.problems)


@pytest.mark.needs_tools("mkfs.ext4")
def test_a_file_system_left_under_a_1_2_superblock_is_reported_after_it(sparse: Sparse) -> None:
    content = sparse(SIZE)
    run("mkfs.ext4", "-q", "-F", "-L", "old", content)
    member(content, superblock_1("1.2", "raid0", chunk=64 * KIB))
    layers = layers_of(content)
    assert [layer.kind for layer in layers] == ["linux_raid_member", "ext4"]
    assert blkid(content)["TYPE"] == "linux_raid_member"


@pytest.mark.needs_tools("mkfs.ext4")
def test_a_file_system_that_extends_over_a_mirrors_superblock_makes_both_uncertain(sparse: Sparse) -> None:
    content = sparse(SIZE)
    run("mkfs.ext4", "-q", "-F", "-L", "new", content)  # as large as the member, without regard to the superblock
    member(content, superblock_1("1.0", "raid1"))
    layers = layers_of(content)
    assert [layer.kind for layer in layers] == ["linux_raid_member", "ext4"]
    assert layers[0].inner[0].problems


@pytest.mark.needs_tools("cryptsetup")
@pytest.mark.parametrize("superblock", ["1.0", "0.90"])
def test_the_content_of_a_mirror_with_its_superblock_at_the_end_is_reported_once(
    sparse: Sparse, superblock: str
) -> None:
    """LUKS and LVM depend only on the start of their container; on a real RAID1, blkid -p reports only the
    array.
    """
    content = sparse(SIZE)
    quick = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "-q", "--key-file", "-", "--disable-locks")
    run("cryptsetup", "luksFormat", "--type", "luks2", *quick, content, stdin="secret")
    member(content, superblock_1("1.0", "raid1") if superblock == "1.0" else superblock_0_90("raid1"))
    (layer,) = layers_of(content)
    assert layer.kind == "linux_raid_member"
    assert blkid(content)["TYPE"] in (layer.kind, "crypto_LUKS")  # libblkid 2.39 looks for LUKS first
    assert [inner.kind for inner in layer.inner] == ["crypto_LUKS"]
    assert layer.problems == layer.inner[0].problems == ()


@pytest.mark.needs_tools("mkfs.ext4")
def test_the_first_chunk_of_a_striped_array_is_not_taken_for_the_members_content(sparse: Sparse) -> None:
    content = sparse(2 * SIZE)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", content)  # of the array, twice a member
    with content.open("r+b") as file:
        file.truncate(SIZE)
    member(content, superblock_0_90("raid0"))
    assert [layer.kind for layer in layers_of(content)] == ["linux_raid_member"]


def test_the_layer_of_a_member_ends_where_its_superblock_states(sparse: Sparse) -> None:
    content = member(sparse(SIZE), superblock_0_90("raid1", size=10 * MIB))
    (layer,) = layers_of(content)
    assert isinstance(layer, Layer)
    assert layer.claims_size == layer.extent.length == 10 * MIB


@pytest.mark.needs_root
@pytest.mark.needs_tools("mdadm", "losetup")
@pytest.mark.parametrize("events", [0, 46])
@pytest.mark.parametrize("distance", [8, -16])
def test_the_events_of_a_bitmap_that_was_cleared_are_read_as_by_mdadm(
    sparse: Sparse, loop: Callable[..., Path], events: int, distance: int
) -> None:
    """Bitmap: bitmap_super_s of drivers/md/md-bitmap.h; its place is in sectors from the superblock, before it too.

    On a device: mdadm 4.4 examines no file.
    """
    at, block = superblock_1("1.0", "raid5", chunk=64 * KIB, disks=3)
    content = member(sparse(SIZE), (at, with_bitmap(block, distance)))
    bitmap = struct.pack("<4sI16sQQQIIIIII", b"bitm", 4, block[16:32], 51, events, 64, 0, 1 << 26, 5, 0, 0, 0)
    with content.open("r+b") as file:
        file.seek(at + 512 * distance)
        file.write(bitmap)
    assert field(checked(content), "Internal Bitmap") == f"{distance} sectors from superblock"
    said = run("mdadm", "--examine-bitmap", loop(content))
    assert int(field(said, "Events Cleared")) == layers_of(content)[0].raid_cleared == events
    with content.open("r+b") as file:
        file.seek(at + 512 * distance + 8)
        file.write(bytes(16))  # the UUID of another array
    assert layers_of(content)[0].raid_cleared is None


def with_bitmap(block: bytes, distance: int) -> bytes:
    """Return a superblock with MD_FEATURE_BITMAP_OFFSET."""
    changed = bytearray(block)
    struct.pack_into("<I", changed, 8, 1)
    struct.pack_into("<i", changed, 96, distance)
    struct.pack_into("<I", changed, 216, 0)
    total = sum(struct.unpack("<128I", changed))
    struct.pack_into("<I", changed, 216, (total & 0xFFFFFFFF) + (total >> 32))
    return bytes(changed)
