"""bcache, read-only images and BSD file systems made by their own tools.

ZFS, firmware RAID and dynamic disks have headers written here after their documented layout, which blkid (and mdadm)
then read as well.
"""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.contents.layers import read_layers
from aligntool.formats.reader import MAY_BE_SHARED
from aligntool.units import KIB, MIB, Extent
from tests.conftest import find_tool, run
from tests.contents.placed_partitions import STARTS, agree, blkid, field, layers_of, number, place
from tests.in_memory import BytesReader

Sparse = Callable[..., Path]


@pytest.mark.needs_tools("make-bcache", "bcache-super-show", "mkfs.ext4", "blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("options", [(), ("-o", "2048"), ("-w", "4k")], ids=" ".join)
def test_the_content_of_a_bcache_backing_device_is_read(sparse: Sparse, start: int, options: tuple[str, ...]) -> None:
    content, inner = sparse(32 * MIB), sparse(16 * MIB, "fs.img")
    run("make-bcache", "-B", *options, content)
    report = run("bcache-super-show", content)
    values = dict(line.split(None, 1) for line in report.splitlines() if len(line.split(None, 1)) == 2)
    data = int(values["dev.data.first_sector"].split()[0]) * 512
    run("mkfs.ext4", "-q", "-F", inner)
    with content.open("r+b") as file:
        file.seek(data)
        file.write(inner.read_bytes())
    placed = place(content, start)
    layer = placed.layer()
    agree(layer, placed.blkid(), unsaid=("VERSION",))
    assert layer.version == values["sb.version"].split()[0]
    assert layer.data_start == start + data
    assert layer.data_unit == int(values["dev.sectors_per_block"]) * 512
    assert layer.uuid == values["dev.uuid"]
    assert [found.extent for found in layer.inner] == [Extent(start + data, 16 * MIB)]


@pytest.mark.needs_tools("make-bcache", "bcache-super-show", "blkid")
def test_a_bcache_cache_starts_at_its_first_bucket(sparse: Sparse) -> None:
    content = sparse(64 * MIB)
    run("make-bcache", "-C", "-b", "256k", content)
    report = run("bcache-super-show", content)
    values = dict(line.split(None, 1) for line in report.splitlines() if len(line.split(None, 1)) == 2)
    placed = place(content, MIB)
    layer = placed.layer()
    agree(layer, placed.blkid(), unsaid=("VERSION",))
    assert layer.version == values["sb.version"].split()[0]
    assert layer.data_start == MIB + int(values["dev.cache.first_sector"].split()[0]) * 512
    assert layer.claims_size == int(values["dev.cache.total_sectors"].split()[0]) * 512


@pytest.mark.needs_tools("mksquashfs", "blkid")
def test_squashfs_has_no_data_unit(sparse: Sparse, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "word").write_text("word")
    run("mksquashfs", tmp_path / "files", tmp_path / "image", "-quiet", "-noappend")
    placed = place(_padded(tmp_path / "image"), MIB)
    agree(placed.layer(), placed.blkid())
    assert placed.layer().data_unit is None


@pytest.mark.needs_tools("mkfs.erofs", "blkid")
def test_erofs_is_read_as_by_blkid(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "word").write_text("word")
    run("mkfs.erofs", tmp_path / "image", tmp_path / "files")
    placed = place(_padded(tmp_path / "image"), MIB)
    agree(placed.layer(), placed.blkid())
    assert placed.layer().data_unit == 4 * KIB


@pytest.mark.needs_tools("genisoimage", "blkid")
@pytest.mark.parametrize("options", [("-V", "PLAIN DISC"), ("-J", "-V", "A Longer Name Than Sixteen")], ids=" ".join)
def test_iso_9660_is_read_as_by_blkid(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "word").write_text("word" * 1_000_000)
    run("genisoimage", "-quiet", *options, "-o", tmp_path / "image", tmp_path / "files")
    placed = place(tmp_path / "image", MIB)
    layer = placed.layer()
    agree(layer, placed.blkid())
    assert layer.claims_size == (tmp_path / "image").stat().st_size
    assert layer.data_unit == 2 * KIB


@pytest.mark.needs_tools("makefs", "blkid")
@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("order", ["le", "be"])
def test_ufs_is_read_as_by_blkid(tmp_path: Path, version: str, order: str) -> None:
    (tmp_path / "files").mkdir()
    run("makefs", "-t", "ffs", "-B", order, "-o", f"version={version},bsize=16384,fsize=2048", "-s", "16m",
        tmp_path / "image", tmp_path / "files")  # fmt: skip
    placed = place(tmp_path / "image", MIB)
    layer = placed.layer()
    agree(layer, placed.blkid())
    assert layer.data_unit == 2048
    assert layer.claims_size == 16 * MIB


@pytest.mark.needs_tools("qemu-img")
@pytest.mark.parametrize(
    ("name", "kind"),
    [("qcow2", "qcow2"), ("qed", "qed"), ("vmdk", "vmdk"), ("vdi", "vdi"), ("vhdx", "vhdx"), ("vpc", "vhd")],
)
def test_the_disk_of_a_virtual_machine_is_named(tmp_path: Path, name: str, kind: str) -> None:
    """oVirt and Cinder keep one on a volume. `name`: that of the format for qemu-img."""
    run("qemu-img", "create", "-q", "-f", name, tmp_path / "image", "64M")
    assert f"file format: {name}" in run("qemu-img", "info", "-f", name, tmp_path / "image")
    placed = place(_padded(tmp_path / "image"), MIB)
    assert [layer.kind for layer in placed.layers()] == [kind]


def _padded(image: Path) -> Path:
    with image.open("r+b") as file:
        file.truncate(8 * MIB)
    return image


def zfs_label(*, ashift: int, order: str, state: int = 0, delays: tuple[int, ...] = ()) -> bytes:
    """Make one vdev label with a pool's name-value list in XDR (module/nvpair/nvpair.c) and a ring of uberblocks.
    `delays`: ub_mmp_delay of the last ones, from the newest transaction group backwards (include/sys/uberblock_impl.h).
    """

    def pair(name: str, kind: int, value: bytes) -> bytes:
        raw = name.encode()
        body = (
            struct.pack(">I", len(raw)) + raw.ljust(-(-len(raw) // 4) * 4, b"\0") + struct.pack(">II", kind, 1) + value
        )
        return struct.pack(">II", len(body) + 8, len(body) + 8) + body

    def text(value: str) -> bytes:
        return struct.pack(">I", len(value)) + value.encode().ljust(-(-len(value) // 4) * 4, b"\0")

    tree = struct.pack(">II", 0, 1) + pair("type", 9, text("disk")) + pair("guid", 8, struct.pack(">Q", 5))
    tree += pair("ashift", 8, struct.pack(">Q", ashift)) + bytes(8)
    pairs = (
        pair("version", 8, struct.pack(">Q", 5000))
        + pair("name", 9, text("tank"))
        + pair("state", 8, struct.pack(">Q", state))
    )
    pairs += pair("txg", 8, struct.pack(">Q", 4)) + pair("pool_guid", 8, struct.pack(">Q", 1782036546311300980))
    pairs += pair("guid", 8, struct.pack(">Q", 77)) + pair("vdev_tree", 19, tree) + bytes(8)
    label = bytearray(256 * KIB)
    nvlist = bytes((1, 1, 0, 0)) + struct.pack(">II", 0, 1) + pairs
    label[16 * KIB : 16 * KIB + len(nvlist)] = nvlist
    for slot in range(0, 128 * KIB, max(1 << ashift, KIB)):
        struct.pack_into(f"{order}QQQQQ", label, 128 * KIB + slot, 0x00BAB10C, 5000, 4, 0, 1_700_000_000)
    for index, delay in enumerate(delays):
        at = 256 * KIB - (index + 1) * max(1 << ashift, KIB)
        struct.pack_into(f"{order}Q", label, at + 16, 9 - index)
        struct.pack_into(f"{order}QQ", label, at + 176, 0xA11CEA11, delay)
    return bytes(label)


@pytest.mark.needs_tools("blkid")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("ashift", [9, 12, 13])
def test_the_pool_and_the_unit_of_a_zfs_member_are_read(sparse: Sparse, start: int, order: str, ashift: int) -> None:
    content = sparse(96 * MIB)
    label = zfs_label(ashift=ashift, order=order)
    with content.open("r+b") as file:
        for at in (0, 256 * KIB, 96 * MIB - 512 * KIB, 96 * MIB - 256 * KIB):
            file.seek(at)
            file.write(label)
    placed = place(content, start)
    layer, said = placed.layer(), placed.blkid()
    assert (layer.kind, layer.label, layer.uuid) == (said["TYPE"], said["LABEL"], said["UUID"])
    assert (layer.label, layer.version) == ("tank", "5000")
    assert layer.data_unit == 1 << ashift
    assert layer.data_start == start + 4 * MIB  # on-disk specification, 1.2: two labels and the boot block


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("ashift", [9, 13])
@pytest.mark.parametrize(
    ("state", "delays", "is_shared"),
    [(0, (), False), (0, (10**9,), True), (1, (10**9,), False), (0, (0, 10**9), False), (0, (10**9, 0), True)],
)
def test_a_zfs_member_with_multihost_that_was_not_exported_may_be_shared(
    sparse: Sparse, order: str, ashift: int, state: int, delays: tuple[int, ...], *, is_shared: bool
) -> None:
    disk = sparse(96 * MIB)
    with disk.open("r+b") as file:
        file.write(zfs_label(ashift=ashift, order=order, state=state, delays=delays))
    (layer,) = layers_of(disk)
    assert layer.unclean == (f"{MAY_BE_SHARED} (multihost)" if is_shared else None)


@pytest.mark.needs_tools("sfdisk", "blkid")
def test_zfs_on_the_last_partition_is_not_taken_for_zfs_on_the_whole_disk(sparse: Sparse) -> None:
    disk, label = sparse(97 * MIB), zfs_label(ashift=12, order="<")
    run("sfdisk", "-q", disk, stdin="label: dos\n2048,,bf\n")
    with disk.open("r+b") as file:
        for at in (MIB, MIB + 256 * KIB, 97 * MIB - 512 * KIB, 97 * MIB - 256 * KIB):
            file.seek(at)
            file.write(label)
    assert [layer.kind for layer in layers_of(disk, Extent(MIB, 96 * MIB))] == ["zfs_member"]
    assert layers_of(disk) == ()  # as libblkid 2.38, while 2.41 takes it for the disk's as well


@pytest.mark.needs_tools("sfdisk", "blkid")
def test_drbd_on_the_last_partition_is_not_taken_for_drbd_on_the_whole_disk(sparse: Sparse) -> None:
    disk = sparse(9 * MIB)
    run("sfdisk", "-q", disk, stdin="label: dos\n2048,,83\n")
    superblock = bytes(60) + b"\x83\x74\x02\x6b" + bytes(16) + (4096).to_bytes(4, "big")  # libblkid's drbd.c
    with disk.open("r+b") as file:
        file.seek(9 * MIB - 4096)
        file.write(superblock)
    partition = Extent(MIB, 8 * MIB)
    (layer,) = layers_of(disk, partition)
    assert layer.kind == blkid(disk, partition)["TYPE"] == "drbd"
    assert layers_of(disk) == ()


def intel_block(*, level: int, strip: int, members: int, start: int) -> bytes:
    """Make a metadata block of Intel Matrix Storage with one volume, after mdadm's super-intel.c."""
    disks = b"".join(
        f"SERIAL{index:04d}".encode().ljust(16, b"\0") + struct.pack("<III", 65536, index, 0x3A) + bytes(20)
        for index in range(members)
    )
    volume = b"Volume0".ljust(16, b"\0") + struct.pack("<IIII", 40000, 0, 0, 0) + bytes(48) + bytes(32)
    stripes = 20000 // (strip // 512)
    volume += struct.pack("<IIIHBBB", start // 512, 20000, stripes, strip // 512, 0, level, members)
    volume += bytes(3) + bytes(28) + b"".join(struct.pack("<I", index) for index in range(members))
    signature = b"Intel Raid ISM Cfg Sig. 1.3.00\0\0"
    body = signature + struct.pack("<IIIIIIBB", 0, 0, 0x1234, 1, 4096, 0x80000000, members, 1)
    block = bytearray(body.ljust(216, b"\0") + disks + volume)
    struct.pack_into("<I", block, 36, len(block))
    words = struct.unpack(f"<{len(block) // 4}I", block[: len(block) & ~3])
    struct.pack_into("<I", block, 32, sum(words) & 0xFFFFFFFF)
    return bytes(block)


@pytest.mark.needs_root
@pytest.mark.needs_tools("blkid", "mdadm")
@pytest.mark.parametrize(
    ("level", "members", "name"), [(0, 2, "raid0"), (1, 2, "raid1"), (5, 3, "raid5"), (1, 4, "raid10")]
)
def test_the_level_and_the_strip_of_an_intel_raid_member_are_read(
    sparse: Sparse, loop: Callable[..., Path], level: int, members: int, name: str
) -> None:
    disk = sparse(32 * MIB)
    block = intel_block(level=level, strip=128 * KIB, members=members, start=MIB)
    more = -(-len(block) // 512) - 1  # sectors of the block that do not fit into the anchor are before it
    with disk.open("r+b") as file:
        file.seek(32 * MIB - 1024 - more * 512)
        file.write(block[512:].ljust(more * 512, b"\0") + block[:512])
    (layer,) = layers_of(disk)
    assert layer.problems == ()
    agree(layer, blkid(disk))
    assert (layer.raid_level, layer.raid_members) == (name, members)
    assert layer.raid_chunk == (None if name == "raid1" else 128 * KIB)
    assert layer.data_start == MIB
    assert layers_of(disk, Extent(0, 16 * MIB)) == (), "it is the whole disk's end that counts"
    report = run("env", "IMSM_NO_PLATFORM=1", "IMSM_DEVNAME_AS_SERIAL=1", find_tool("mdadm") or "", "-E", loop(disk))
    assert field(report, "Checksum").endswith("correct")
    assert field(report, "RAID Level") == name.removeprefix("raid")
    assert number(report, "Members") == members
    assert number(report, "Sector Offset") * 512 == layer.data_start
    assert field(report, "Chunk Size") == "128 KiB"


def ddf_header(primary: int, secondary: int = 0) -> bytes:
    """Return a header, or the anchor, with the bytes where the two headers are."""
    header = bytearray(b"\xff" * 512)
    struct.pack_into(">I", header, 0, 0xDE11DE11)
    header[8:32], header[32:40] = b"Linux-MD" + b"A" * 16, b"01.02.00"
    struct.pack_into(">QQ", header, 96, primary // 512, secondary // 512)
    struct.pack_into(">I", header, 4, zlib.crc32(bytes(header), 0xFFFFFFFF) ^ 0xFFFFFFFF)
    return bytes(header)


@pytest.mark.needs_tools("blkid")
def test_a_ddf_member_is_recognised_with_its_checksum(sparse: Sparse) -> None:
    disk = sparse(32 * MIB)
    anchor = ddf_header(0)  # mdadm's crc32 inverts nothing
    with disk.open("r+b") as file:
        file.seek(32 * MIB - 512)
        file.write(anchor)
    (layer,) = layers_of(disk)
    assert layer.problems == ()
    agree(layer, blkid(disk))


def test_a_ddf_member_with_only_the_secondary_header_is_recognised(sparse: Sparse) -> None:
    """mdadm assembles it: super-ddf.c, load_ddf_headers."""
    disk, header = sparse(32 * MIB), ddf_header(30 * MIB, 31 * MIB)
    for at, kinds in ((32 * MIB - 512, []), (31 * MIB, ["ddf_raid_member"])):
        with disk.open("r+b") as file:
            file.seek(at)
            file.write(header)
        assert [layer.kind for layer in layers_of(disk)] == kinds


@pytest.mark.needs_tools("blkid", "sfdisk")
def test_a_ddf_anchor_at_the_disks_end_is_that_of_the_last_partition(sparse: Sparse) -> None:
    """The anchor has the sector of the primary header, counted from the start of the disk or partition."""
    disk, extent = sparse(33 * MIB), Extent(MIB, 32 * MIB)
    run("sfdisk", "-q", disk, stdin="label: dos\n2048,,fd\n")
    header = ddf_header(extent.length - MIB)
    with disk.open("r+b") as file:
        for at in (extent.end - MIB, extent.end - 512):
            file.seek(at)
            file.write(header)
    (layer,) = layers_of(disk, extent)
    agree(layer, blkid(disk, extent))
    assert "TYPE" not in blkid(disk) and layers_of(disk) == ()


@pytest.mark.needs_tools("blkid")
@pytest.mark.parametrize(
    ("at", "mark"),
    [(512, b"$XIDE$"), (63 * 512, b"Promise Technology, Inc."), (11 * 512, b"\xf3\x16\x78\x5a")],
    ids=["LSI", "Promise", "HighPoint"],
)
def test_other_firmware_raids_are_named_as_by_blkid(sparse: Sparse, at: int, mark: bytes) -> None:
    disk = sparse(32 * MIB)
    with disk.open("r+b") as file:
        file.seek(32 * MIB - at)
        file.write(mark)
    (layer,) = layers_of(disk)
    agree(layer, blkid(disk))


def test_a_windows_dynamic_disk_is_named() -> None:
    """Fields as linux/block/partitions/ldm.c, ldm_parse_privhead, reads them."""
    disk = bytearray(8 * MIB)
    header = bytearray(512)
    header[:8], header[12:16] = b"PRIVHEAD", b"\0\x02\0\x0c"
    header[0x30:0x54] = b"cf51bba8-0c31-11d9-9d9b-505054503030"
    struct.pack_into(">QQ", header, 0x11B, 63, 14000)
    disk[6 * 512 : 7 * 512] = header
    (layer,) = read_layers(BytesReader(bytes(disk)), Extent(0, len(disk)))
    assert (layer.kind, layer.version, layer.data_start) == ("ldm", "2.12", 63 * 512)
    assert layer.uuid == "cf51bba8-0c31-11d9-9d9b-505054503030"
    disk[-512:] = header
    (inside,) = read_layers(BytesReader(bytes(disk)), Extent(7 * MIB, MIB))
    assert inside.kind == "ldm"
