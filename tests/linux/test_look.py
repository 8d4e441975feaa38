"""The devices and files that a user names, and the result; images; without root; nothing is opened for writing."""

import atexit
import ctypes
import os
import pickle
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.commands import LISTS_DISKS
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, Role, TableLabel
from aligntool.linux.devices import list_blocks
from aligntool.linux.look import Looker, look
from aligntool.linux.pcie import find_adapters
from aligntool.linux.sysfs import Tree
from aligntool.linux.targets import UserLimits
from aligntool.units import GIB, KIB, MIB, TIB, Extent
from tests.conftest import add_partition, run
from tests.linux.trees import MadeDisk, MadePartition, make_tree

Sparse = Callable[..., Path]
Loop = Callable[..., Path]

TABLE_OF_2005 = "label: dos\nlabel-id: 0x12345678\nstart=63, size=40000, type=83\nstart=40320, size=20000, type=7\n"


@pytest.fixture
def image(sparse: Sparse) -> Path:
    path = sparse(64 * MIB)
    run("sfdisk", "--quiet", path, stdin=TABLE_OF_2005)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    disks = [
        MadeDisk("sda", GIB, [MadePartition(1, MIB, MIB)], links=["disk/by-id/ata-x"]),
        MadeDisk("nvme0n1", GIB, [MadePartition(2, MIB, MIB)]),
    ]
    return make_tree(tmp_path / "tree", disks)


class TestTargets:
    @pytest.mark.parametrize(
        "target", ["sda", "/dev/sda", "sda1", "/dev/sda1", "/dev/disk/by-id/ata-x", "disk/by-id/ata-x"]
    )
    def test_a_disk_can_be_named_in_many_ways(self, root: Path, target: str) -> None:
        assert [disk.name for disk in look([target], sysroot=str(root)).disks] == ["sda"]

    def test_a_disk_named_twice_is_listed_once(self, root: Path) -> None:
        disks = look(["sda1", "/dev/sda", "nvme0n1p2"], sysroot=str(root)).disks
        assert [disk.name for disk in disks] == ["sda", "nvme0n1"]

    @pytest.mark.parametrize("target", ["sdz", "/dev/sda9x", "", "..", "/", "sda\0", "/etc/passwd", "*"])
    def test_a_disk_that_a_captured_tree_does_not_contain_is_refused(self, root: Path, target: str) -> None:
        with pytest.raises(Refused):
            look([target], sysroot=str(root))

    def test_the_refusal_lists_the_disks_of_the_tree(self, root: Path) -> None:
        with pytest.raises(Refused, match="sdz is not in the captured tree") as refusal:
            look(["sdz"], sysroot=str(root))
        assert refusal.value.hint == "it has: nvme0n1, sda"

    def test_a_long_list_of_disks_ends_with_the_number_of_the_others(self, tmp_path: Path) -> None:
        root = make_tree(tmp_path / "tree", [MadeDisk(f"sd{letter}", GIB) for letter in "abcdefghijklmno"])
        with pytest.raises(Refused) as refusal:
            look(["sdz"], sysroot=str(root))
        assert refusal.value.hint == f"it has: {', '.join(f'sd{letter}' for letter in 'abcdefghijkl')} and 3 more"

    def test_an_image_file_is_not_a_part_of_a_captured_tree(self, root: Path, image: Path) -> None:
        with pytest.raises(Refused):
            look([str(image)], sysroot=str(root))

    def test_all_reasons_are_reported_together(self, tmp_path: Path) -> None:
        (tmp_path / "empty.img").touch()
        os.mkfifo(tmp_path / "pipe")
        bad = [
            str(tmp_path),
            str(tmp_path / "missing"),
            "/dev/null",
            str(tmp_path / "empty.img"),
            str(tmp_path / "pipe"),
        ]
        with pytest.raises(Refused) as refusal:
            look(bad)
        reasons = str(refusal.value).splitlines()
        assert len(reasons) == 5
        assert all(path in reason for path, reason in zip(bad, reasons, strict=True))
        for word in ("is a folder", "No such file", "character device", "is empty", "neither"):
            assert word in str(refusal.value)

    @pytest.mark.needs_tools("sfdisk")
    def test_valid_arguments_are_read_and_the_others_are_reported(self, image: Path) -> None:
        inventory = look([str(image), "/dev/null"])
        assert [disk.path for disk in inventory.disks] == [str(image)]
        (unseen,) = inventory.unseen
        assert unseen.what == "/dev/null" and "character device" in unseen.why

    def test_a_misspelled_image_is_refused_with_the_similar_file_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "my clone.img").write_bytes(bytes(4096))
        (tmp_path / "my clon").mkdir()
        (tmp_path / "loop").symlink_to("/dev/null")
        for name, hint in (
            ("my clon.img", f"did you mean '{tmp_path}/my clone.img'?"),
            ("other.raw", LISTS_DISKS),
            ("loop0", LISTS_DISKS),
        ):
            with pytest.raises(Refused, match="No such file") as refusal:
                look([str(tmp_path / name)])
            assert refusal.value.hint == hint

    def test_a_folder_with_the_name_of_an_nvme_controller_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "nvme0").mkdir()
        with pytest.raises(Refused) as refusal:
            look([str(tmp_path / "nvme0")])
        assert "folder" in str(refusal.value)


MAGICS = {
    "qcow2": b"QFI\xfb\0\0\0\3",
    "vmdk": b"KDMV\1\0\0\0",
    "vdi": b"<<< Oracle VM VirtualBox Disk Image >>>\n".ljust(64, b"\0") + b"\x7f\x10\xda\xbe",
    "vhdx": b"vhdxfile",
    "xz": b"\xfd7zXZ\0",
    "gzip": b"\x1f\x8b\x08",
    "zstd": b"\x28\xb5\x2f\xfd",
}


def md_superblock_090(device_kib: int) -> bytes:
    """Return the superblock of a RAID1 of two members of that size; words as in md_p.h, and mdadm confirms it."""
    words = [0] * 1024
    words[0:3] = 0xA92B4EFC, 0, 90
    words[5:11] = 0x11111111, 1, 1, device_kib // 64 * 64 - 64, 2, 2
    words[13:16] = 0x22222222, 0x33333333, 0x44444444
    words[32:36] = 1, 1, 2, 2
    words[39] = 1  # events
    words[992:996] = 0, 8, 1, 0
    total = sum(words)
    words[38] = (total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF
    return struct.pack("<1024I", *words)


class TestImages:
    @pytest.mark.needs_tools("sfdisk")
    def test_an_image_has_its_table_and_no_reported_limits(self, image: Path) -> None:
        (disk,) = look([str(image)]).disks
        assert (disk.kind, disk.size, disk.limits, disk.limits_given) == (DiskKind.IMAGE, 64 * MIB, IoLimits(), ())
        assert (disk.name, disk.path, disk.table_read) == (str(image), str(image), True)
        assert disk.table is not None and disk.table.label is TableLabel.DOS
        assert [part.extent for part in disk.partitions] == [
            Extent(63 * 512, 40000 * 512), Extent(40320 * 512, 20000 * 512),
        ]  # fmt: skip

    @pytest.mark.needs_tools("sfdisk")
    def test_given_limits_of_an_image_are_used_and_marked_as_given(self, image: Path) -> None:
        (disk,) = look([str(image)], given=UserLimits(sector_size=512, physical_sector_size=4096)).disks
        assert (disk.limits.logical_block_size, disk.limits.physical_block_size) == (512, 4096)
        assert disk.limits_given == ("logical_block_size", "physical_block_size")

    def test_given_limits_of_a_disk_have_precedence_over_reported_ones(self, root: Path) -> None:
        (disk,) = look(["sda"], sysroot=str(root), given=UserLimits(physical_sector_size=4096)).disks
        assert (disk.limits.logical_block_size, disk.limits.physical_block_size) == (512, 4096)
        assert disk.limits_given == ("physical_block_size",)

    @pytest.mark.needs_tools("sfdisk")
    def test_a_sparse_image_of_15_tib_is_read(self, sparse: Sparse) -> None:
        path = sparse(15 * TIB)  # ext4 holds no file of 16 TiB with 4 KiB blocks
        run("sfdisk", "--quiet", path, stdin="label: gpt\nfirst-lba: 34\nstart=34, size=2014\nstart=2048\n")
        (disk,) = look([str(path)]).disks
        assert disk.size == 15 * TIB
        assert [part.extent.start for part in disk.partitions] == [34 * 512, MIB]
        assert path.stat().st_blocks * 512 < 4 * MIB

    @pytest.mark.needs_tools("mkfs.ext4")
    def test_a_file_system_without_a_table_is_content_of_the_whole_disk(self, sparse: Sparse) -> None:
        path = sparse(64 * MIB)
        run("mkfs.ext4", "-q", path)
        (disk,) = look([str(path)]).disks
        assert disk.table is None and disk.table_read and disk.partitions == ()
        assert [layer.kind for layer in disk.content] == ["ext4"]

    @pytest.mark.needs_tools("sfdisk", "mkfs.ext4")
    def test_the_file_system_of_a_partition_is_content_of_the_partition_alone(self, image: Path) -> None:
        run("mkfs.ext4", "-q", "-E", f"offset={63 * 512}", image, "16M")
        (disk,) = look([str(image)]).disks
        assert [[layer.kind for layer in part.content] for part in disk.partitions] == [["ext4"], []]
        assert disk.content == () and all(part.content_read for part in disk.partitions)

    @pytest.mark.needs_tools("sfdisk", "mdadm")
    def test_a_superblock_at_the_end_of_the_last_partition_is_not_that_of_the_disk(self, sparse: Sparse) -> None:
        """md 0.90 is at the end, and the end of the last partition is the end of the disk."""
        path = sparse(64 * MIB)
        run("sfdisk", "--quiet", path, stdin="label: dos\nstart=2048, type=fd\n")
        with path.open("r+b") as file:
            file.seek(64 * MIB - 65536)
            file.write(md_superblock_090(63 * 1024))
        told = run("mdadm", "--examine", path)
        assert "0.90.00" in told and "- correct" in told
        (disk,) = look([str(path)]).disks
        assert [layer.kind for layer in disk.partitions[0].content] == ["linux_raid_member"]
        assert disk.content == ()

    def test_an_array_member_with_a_table_is_content_of_the_whole_disk(self, sparse: Sparse) -> None:
        path = sparse(64 * MIB + 512)  # so that the end of the last partition is not that of the disk
        run("sfdisk", "--quiet", path, stdin="label: dos\nstart=2048, size=2048, type=83\n")
        with path.open("r+b") as file:
            file.seek(64 * MIB - 65536)
            file.write(md_superblock_090(64 * 1024))
        (disk,) = look([str(path)]).disks
        assert [layer.kind for layer in disk.content] == ["linux_raid_member"]
        assert disk.partitions[0].content == ()

    @pytest.mark.needs_tools("sfdisk", "blkid")
    @pytest.mark.parametrize(
        ("kind", "back", "mark"),
        [
            pytest.param("linux_raid_member", 64 * KIB, md_superblock_090(48 * 1024), id="md, shorter than the disk"),
            pytest.param("drbd", 4 * KIB - 60, b"\x83\x74\x02\x6b" + bytes(16) + (4096).to_bytes(4), id="DRBD"),
            pytest.param("promise_fasttrack_raid_member", 399 * 512, b"Promise Technology, Inc.", id="Promise"),
        ],
    )
    def test_a_superblock_at_the_end_of_the_disk_is_its_own_where_no_partition_ends(
        self, sparse: Sparse, kind: str, back: int, mark: bytes
    ) -> None:
        """The table then belongs to the array, and space that appears free to a realign is not."""
        path = sparse(64 * MIB)
        run("sfdisk", "--quiet", path, stdin="label: dos\nstart=63, size=65536, type=83\n")
        with path.open("r+b") as file:
            file.seek(64 * MIB - back)
            file.write(mark)
        assert f'TYPE="{kind}"' in run("blkid", "-p", path)
        (disk,) = look([str(path)]).disks
        assert [layer.kind for layer in disk.content] == [kind]
        assert disk.partitions[0].content == ()

    @pytest.mark.needs_tools("sfdisk")
    @pytest.mark.parametrize(
        ("size", "sector", "kinds"),
        [(131009, 512, ["geom_raid_member"]), (131003, 4096, ["geom_raid_member"]), (131009 + 1, 512, [])],
    )
    def test_a_table_inside_a_mirror_of_freebsd_belongs_to_the_mirror(
        self, sparse: Sparse, size: int, sector: int, kinds: list[str]
    ) -> None:
        """FreeBSD's sys/geom/mirror/g_mirror.h: its metadata are in the last sector, and the mirror ends before it. In
        a partition that covers this sector they are the partition's.
        """
        path = sparse(64 * MIB)
        run("sfdisk", "--quiet", path, stdin=f"label: dos\nstart=62, size={size}, type=83\n")
        with path.open("r+b") as file:
            file.seek(64 * MIB - sector)
            file.write(b"GEOM::MIRROR\0\0\0\0" + (4).to_bytes(4, "little") + b"gm0")
        (disk,) = look([str(path)]).disks
        assert [(layer.kind, layer.version) for layer in disk.content] == [(kind, "mirror") for kind in kinds]

    @pytest.mark.needs_tools("sfdisk", "mkfs.ext4")
    def test_a_file_system_on_the_whole_disk_is_found_despite_a_table_without_content(self, sparse: Sparse) -> None:
        """A table written by mistake keeps the superblock at byte 1024, and the file system can be mounted."""
        path = sparse(64 * MIB)
        run("mkfs.ext4", "-q", "-F", path)
        run("sfdisk", "-q", "--wipe", "never", path, stdin="label: dos\nstart=63, size=65536, type=83\n")
        (disk,) = look([str(path)]).disks
        assert ([layer.kind for layer in disk.content], disk.partitions[0].content) == (["ext4"], ())
        with path.open("r+b") as file:
            file.seek(63 * 512 + 4086)
            file.write(b"SWAPSPACE2")
            file.seek(63 * 512 + 1024)
            file.write(struct.pack("<II", 1, 1000))
        (disk,) = look([str(path)]).disks
        assert (disk.content, disk.partitions[0].content[0].kind) == ((), "swap")

    @pytest.mark.parametrize("name", MAGICS)
    def test_a_compressed_or_virtual_disk_is_refused_with_the_command_that_unpacks_it(
        self, tmp_path: Path, name: str
    ) -> None:
        path = tmp_path / "disk.img"
        path.write_bytes(MAGICS[name].ljust(4096, b"\0"))
        with pytest.raises(Refused, match=name) as refusal:
            look([str(path)])
        assert str(path) in refusal.value.hint
        way = f"qemu-img convert -f {name}" if name in ("qcow2", "vmdk", "vdi", "vhdx") else f"{name} -dc"
        assert way in refusal.value.hint

    @pytest.mark.needs_tools("xz", "gzip", "zstd", "bzip2")
    @pytest.mark.parametrize("tool", ["xz", "gzip", "zstd", "bzip2"])
    def test_a_file_compressed_by_the_real_tool_is_recognised(self, tmp_path: Path, tool: str) -> None:
        (tmp_path / "disk.img").write_bytes(bytes(100_000))
        packed = run("sh", "-c", f"{tool} -c {tmp_path}/disk.img > {tmp_path}/packed; echo done")
        assert packed == "done\n"
        with pytest.raises(Refused, match=tool):
            look([str(tmp_path / "packed")])


def load_modules() -> None:
    """Import here what a look imports in children: a child that drops root may not read this checkout."""
    tree = Tree("")
    looker = Looker(tree, UserLimits(), wake=False)
    for block in list_blocks(tree):
        looker.look_at(block)
    find_adapters(tree)


def as_nobody(work: Callable[[], Inventory]) -> Inventory:
    """Run it in a child that drops root. Modules are loaded before: the child may not read this checkout."""
    load_modules()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        atexit._clear()
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is its own, as after an exec
            with os.fdopen(writing, "wb") as file:
                pickle.dump(work(), file)
            atexit._run_exitfuncs()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        content = file.read()
    assert os.waitpid(child, 0)[1] == 0
    result = pickle.loads(content)
    assert isinstance(result, Inventory)
    return result


def without_contents(disk: Disk) -> Disk:
    return replace(
        disk, unseen=(), table=None, table_read=False, content=(), content_read=False, partitions=(), mapping=None
    )


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "losetup")
def test_without_root_the_same_disks_are_found_and_unread_parts_are_reported(image: Path, loop: Loop) -> None:
    device = loop(image)
    run("partx", "-a", device)
    seen, unprivileged = look([str(device)]), as_nobody(lambda: look([str(device)]))
    (one,), (other,) = seen.disks, unprivileged.disks
    assert without_contents(one) == without_contents(other)
    assert [(part.number, part.extent, part.node) for part in one.partitions] == [
        (part.number, part.extent, part.node) for part in other.partitions
    ]
    assert one.table_read and not other.table_read
    (unseen,) = other.unseen
    assert unseen.why == f"needs root to open {device}"
    assert unseen.hint == f"sudo aligntool audit {device}"


@pytest.mark.needs_root
def test_without_root_all_disks_of_the_machine_are_found(tmp_path: Path) -> None:
    look([])
    names = {disk.name for disk in as_nobody(lambda: look([])).disks if disk.kind is not DiskKind.LOOP}
    assert names == {disk.name for disk in look([]).disks if disk.kind is not DiskKind.LOOP}


@pytest.mark.needs_root
def test_an_image_without_read_permission_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = Path("/tmp") / f"aligntool-test-{os.getpid()}.img"
    path.write_bytes(bytes(4096))
    path.chmod(0o600)
    try:
        look([str(path)])
        as_nobody(lambda: refused_hint(str(path)))
    finally:
        path.unlink()


def refused_hint(path: str) -> Inventory:
    try:
        look([path])
    except Refused as refusal:
        assert refusal.hint == f"sudo aligntool audit {path}"
        return Inventory(())
    raise AssertionError("it was not refused")


@pytest.mark.needs_root
@pytest.mark.needs_tools("strace", "sfdisk", "partx", "losetup")
def test_nothing_is_opened_for_writing_and_no_ioctl_changes_anything(image: Path, loop: Loop, tmp_path: Path) -> None:
    device = loop(image)
    run("partx", "-a", device)
    log = tmp_path / "strace.log"
    program = f"from aligntool.linux.look import look; look([]); look([{str(device)!r}, {str(image)!r}])"
    run(
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=open,openat,openat2,creat,ioctl",
        "-o",
        log,
        sys.executable,
        "-B",
        "-c",
        program,
    )
    lines = log.read_text().splitlines()
    opened = [line for line in lines if f'"{device}"' in line or f'"{image}"' in line]
    assert len(opened) >= 3  # the device twice, the image once
    assert all("O_RDONLY" in line and "O_NONBLOCK" in line for line in opened if "= -1" not in line)
    writing = [line for line in lines if re.search(r"O_(RDWR|WRONLY|CREAT|TRUNC)|creat\(", line)]
    assert [line for line in writing if '"/dev/null"' not in line and "= -1" not in line] == []
    allowed = r"TCGETS|FIOCLEX|TIOCGWINSZ|SG_IO|NVME_IOCTL|BLKGETSIZE64|BLKSSZGET"
    assert [line for line in lines if "ioctl(" in line and not re.search(allowed, line)] == []


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "partx", "losetup", "mkfs.ext4", "mkswap")
class TestLoopDevices:
    @pytest.mark.parametrize("sector_size", [512, 4096])
    def test_table_kernel_and_content_are_combined(self, sparse: Sparse, loop: Loop, sector_size: int) -> None:
        path = sparse(64 * MIB)
        device = loop(path, sector_size=sector_size)
        run("sfdisk", "--quiet", "--no-reread", device, stdin="label: gpt\nsize=16MiB\nsize=16MiB\n")
        run("partx", "-a", device)
        run("mkfs.ext4", "-q", f"{device}p1")
        run("mkswap", f"{device}p2")
        (disk,) = look([str(device)]).disks
        assert disk.kind is DiskKind.LOOP and disk.mapping == f"file {path}"
        assert disk.table is not None and (disk.table.label, disk.table.sector_size) == (TableLabel.GPT, sector_size)
        assert disk.table.faults == ()
        first, second = disk.partitions
        assert (first.node, second.node) == (f"{device.name}p1", f"{device.name}p2")
        assert disk.kernel_partitions == ((1, first.extent), (2, second.extent))
        assert first.extent == Extent(MIB, 16 * MIB)
        assert [layer.kind for part in disk.partitions for layer in part.content] == ["ext4", "swap"]
        assert first.kernel_alignment_offset == 0

    def test_stale_data_of_an_earlier_read_in_the_cache_are_not_used(self, sparse: Sparse, loop: Loop) -> None:
        """The page cache of the disk does not see writes through the partition's while something holds
        the disk open.
        """
        device = loop(sparse(64 * MIB))
        run("sfdisk", "--quiet", "--no-reread", device, stdin="label: gpt\nsize=32MiB\n")
        run("partx", "-a", device)
        holder = os.open(device, os.O_RDONLY)
        try:
            run("mkfs.ext4", "-q", f"{device}p1")
            (before,) = look([str(device)]).disks
            run("wipefs", "-qa", f"{device}p1")
            run("mkswap", f"{device}p1")
            run("sync", f"{device}p1")
            (after,) = look([str(device)]).disks
        finally:
            os.close(holder)
        assert [layer.kind for layer in before.partitions[0].content] == ["ext4"]
        assert [layer.kind for layer in after.partitions[0].content] == ["swap"]

    def test_an_extended_partition_keeps_the_size_its_table_gives(self, sparse: Sparse, loop: Loop) -> None:
        device = loop(sparse(64 * MIB))
        table = "label: dos\nstart=2048,size=2048,type=83\nstart=8192,size=65536,type=f\nstart=8255,size=2048,type=83\n"
        run("sfdisk", "--quiet", "--no-reread", device, stdin=table)
        run("partx", "-a", device)
        (disk,) = look([str(device)]).disks
        roles = {part.number: (part.role, part.extent.length // 512) for part in disk.partitions}
        assert roles == {1: (Role.PRIMARY, 2048), 2: (Role.EXTENDED, 65536), 5: (Role.LOGICAL, 2048)}
        nodes = {part.number: part.node for part in disk.partitions}
        assert nodes == {number: f"{device.name}p{number}" for number in (1, 2, 5)}

    def test_partitions_known_only_to_the_kernel_are_listed(self, sparse: Sparse, loop: Loop) -> None:
        device = loop(sparse(64 * MIB))
        add_partition(device, 3, Extent(MIB, 2 * MIB))
        (disk,) = look([str(device)]).disks
        assert disk.table is None and disk.table_read
        assert [(part.number, part.extent) for part in disk.partitions] == [(3, Extent(MIB, 2 * MIB))]

    def test_the_node_of_a_partition_leads_to_its_disk(self, image: Path, loop: Loop, tmp_path: Path) -> None:
        device = loop(image)
        run("partx", "-a", device)
        (tmp_path / "link").symlink_to(f"{device}p2")
        names = [look([target]).disks[0].name for target in (f"{device}p1", str(tmp_path / "link"), device.name)]
        assert names == [device.name] * 3
