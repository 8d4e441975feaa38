"""A disk that cannot be opened or read, or should not be: it is reported, and the others are still read."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aligntool.contents.layers import read_contents
from aligntool.inventory import DiskKind, Fault, Inventory, Role, TableLabel, Unseen
from aligntool.linux.devices import find_block, open_to_read, spun_down, suspended, why_read_blocks
from aligntool.linux.file_reader import forget_cached
from aligntool.linux.look import look
from aligntool.linux.partitions import KernelPartition, merge_with_kernel
from aligntool.linux.sysfs import Record, Tree
from aligntool.units import GIB, MIB, Extent
from tests.conftest import run
from tests.in_memory import BytesReader
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.thorough import examples


def why(path: Path) -> str:
    opened = open_to_read(str(path))
    assert isinstance(opened, Unseen)
    return opened.why


def test_a_missing_node_is_reported(tmp_path: Path) -> None:
    assert why(tmp_path / "sdz") == f"{tmp_path}/sdz: its node in /dev is missing"


@pytest.mark.needs_root
def test_a_node_without_a_device_is_reported(tmp_path: Path) -> None:
    os.mknod(tmp_path / "node", 0o600 | 0o060000, os.makedev(240, 77))
    assert "the device is gone" in why(tmp_path / "node")


def test_a_descriptor_is_read_only_and_not_inherited(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "disk").write_bytes(b"x")
    opened = open_to_read(str(tmp_path / "disk"))
    assert isinstance(opened, int)
    try:
        assert fcntl.fcntl(opened, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        assert not os.get_inheritable(opened)
        assert not spun_down(opened, DiskKind.ATA, rotational=True)  # it does not answer: not asleep
        forget_cached(opened)
    finally:
        os.close(opened)


class TestSleepers:
    def block(self, root: Path, **device: str) -> tuple[Tree, object]:
        make_tree(root, [MadeDisk("sda", GIB, rotational=True)])
        for name, text in device.items():
            path = next(root.glob("sys/devices/**/block")).parent / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return Tree(str(root)), None

    @pytest.mark.parametrize(("status", "asleep"), [("suspended", True), ("active", False), ("unsupported", False)])
    def test_a_suspended_disk_is_recognised_without_opening_it(self, tmp_path: Path, status: str, asleep: bool) -> None:
        tree, _ = self.block(tmp_path, power__runtime_status=status)
        block = find_block(tree, "sda")
        assert block is not None and suspended(tree, block) is asleep

    @pytest.mark.parametrize("name", ["mmcblk0", "sda"])
    def test_flash_that_the_kernel_suspends_whenever_it_is_idle_is_read(self, tmp_path: Path, name: str) -> None:
        """As on an emulated SD card: runtime_status is always "suspended" until the device is opened."""
        asleep = {"power/runtime_status": "suspended"}
        root = make_tree(tmp_path, [MadeDisk(name, GIB, rotational=False, device=asleep)])
        block = find_block(Tree(str(root)), name)
        assert block is not None and Tree(str(root)).text(f"{block.device}/power/runtime_status") == "suspended"
        assert not suspended(Tree(str(root)), block)

    @pytest.mark.parametrize(("state", "stuck"), [("offline", True), ("blocked", True), ("running", False)])
    def test_a_disk_that_the_kernel_has_set_offline_is_not_opened(
        self, tmp_path: Path, state: str, stuck: bool
    ) -> None:
        tree, _ = self.block(tmp_path, state=state)
        block = find_block(tree, "sda")
        assert block is not None and (why_read_blocks(tree, block) is not None) is stuck

    def test_a_suspended_mapping_which_would_block_a_reader_is_not_opened(self, tmp_path: Path) -> None:
        disk = MadeDisk("dm-0", GIB, attributes={"dm/suspended": "1", "dm/name": "x"})
        tree = Tree(str(make_tree(tmp_path, [disk])))
        block = find_block(tree, "dm-0")
        assert block is not None
        unseen = why_read_blocks(tree, block)
        assert unseen is not None and "suspended" in unseen.why


@dataclass(frozen=True)
class Failing:
    """A disk with an unreadable area."""

    good: BytesReader
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.good.size

    def read(self, offset: int, length: int) -> bytes:
        if offset < self.end and self.start < offset + length:
            raise OSError(errno.EIO, "Input/output error")
        return self.good.read(offset, length)


@pytest.mark.needs_tools("sfdisk", "mkfs.ext4")
class TestBadSectors:
    @pytest.fixture
    def good(self, tmp_path: Path) -> BytesReader:
        path = tmp_path / "disk.img"
        path.write_bytes(bytes(40 * MIB))
        run("sfdisk", "--quiet", path, stdin="label: gpt\nsize=16MiB\nsize=16MiB\n")
        for start in (1, 17):
            run("mkfs.ext4", "-q", "-E", f"offset={start * MIB}", path, "16M")
        return BytesReader(path.read_bytes())

    def test_a_partition_that_cannot_be_read_does_not_affect_the_other(self, good: BytesReader) -> None:
        seen = read_contents(Failing(good, 17 * MIB, 18 * MIB), sector_size=512)
        first, second = seen.partitions
        assert [layer.kind for layer in first.content] == ["ext4"]
        assert first.content_read
        assert not second.content
        assert second.content_read is False
        assert any("partition 2" in unseen.what and "Input/output error" in unseen.why for unseen in seen.unseen)

    def test_the_second_table_is_read_if_the_first_sector_cannot_be_read(self, good: BytesReader) -> None:
        seen = read_contents(Failing(good, 0, 512), sector_size=512)
        assert seen.table_read and len(seen.partitions) == 2

    def test_partitions_of_an_unreadable_mbr_come_from_the_udev_database(self, tmp_path: Path) -> None:
        """As scsi_debug shows with a medium error in sector 0: the container is not judged."""
        path = tmp_path / "disk.img"
        path.write_bytes(bytes(16 * MIB))
        run("sfdisk", "--quiet", path, stdin="label: dos\nstart=63,size=1000\nstart=4104,type=5\nstart=4167,size=9\n")
        seen = read_contents(Failing(BytesReader(path.read_bytes()), 0, 512), sector_size=512)
        udev = {"ID_PART_ENTRY_TYPE": "0x83"}, {"ID_PART_ENTRY_TYPE": "0x5", "ID_PART_ENTRY_SIZE": "28664"}
        kernel = [
            KernelPartition(number, Extent(start * 512, size * 512), f"sda{number}", 0, 0, (), (), Record(said))
            for number, start, size, said in ((1, 63, 1000, udev[0]), (2, 4104, 2, udev[1]), (5, 4167, 9, udev[0]))
        ]
        disk = Record({"ID_PART_TABLE_TYPE": "dos", "ID_PART_TABLE_UUID": "1a2b3c4d"})
        table, partitions = merge_with_kernel(seen, kernel, disk, 512)
        assert table is not None and table.label is TableLabel.DOS
        assert [fault.fault for fault in table.faults] == [Fault.UNREADABLE]
        roles = [(part.number, part.role, part.extent.start // 512) for part in partitions]
        assert roles == [(1, Role.PRIMARY, 63), (2, Role.EXTENDED, 4104), (5, Role.LOGICAL, 4167)]
        bare = merge_with_kernel(seen, (), Record({}), 512)
        assert bare == (seen.table, ())

    def test_a_disk_that_cannot_be_read_at_all_does_not_cause_a_crash(self, good: BytesReader) -> None:
        seen = read_contents(Failing(good, 0, good.size), sector_size=512)
        assert seen.partitions == () and (seen.unseen or (seen.table and seen.table.faults))


NAMES = ("size", "ro", "removable", "hidden", "dev", "alignment_offset", "queue/logical_block_size",
         "queue/physical_block_size", "queue/rotational", "queue/chunk_sectors", "md/level", "md/chunk_size",
         "dm/name", "dm/uuid", "loop/backing_file")  # fmt: skip
KEYS = ("ID_PART_TABLE_TYPE", "ID_PART_TABLE_UUID", "ID_PART_ENTRY_TYPE", "ID_PART_ENTRY_SIZE", "ID_PART_ENTRY_NAME",
        "ID_PART_ENTRY_FLAGS", "ID_FS_TYPE", "ID_MODEL_ENC", "ID_SERIAL")  # fmt: skip
odd = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"-1", b"0", b"18446744073709551615", b"gpt", b"dos", b"0x5", b"0xffffffffffffffff", b"\\x", b"2"]
    ),
)


@given(
    st.sampled_from(["sda", "nvme0n1", "mmcblk0", "md0", "dm-0", "loop0", "vda"]),
    st.dictionaries(st.sampled_from(NAMES), odd, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), odd, max_size=6),
    st.integers(1, 20),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values_in_a_captured_tree_give_an_inventory(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    attributes: dict[str, bytes],
    told: dict[str, bytes],
    number: int,
) -> None:
    udev = {key: value.decode("latin-1").replace("\n", "") for key, value in told.items()}
    parts = [MadePartition(number, 2 * MIB, 1024, udev=udev), MadePartition(number + 4, 3 * MIB, MIB, udev=udev)]
    made = MadeDisk(name, GIB, parts, udev=udev, attributes=dict(attributes), device=dict(attributes))
    root = make_tree(tmp_path_factory.mktemp("odd"), [made, MadeDisk("sdq", GIB)])
    inventory = look([], sysroot=str(root))
    assert isinstance(inventory, Inventory)
    assert inventory.disk("sdq") is not None
