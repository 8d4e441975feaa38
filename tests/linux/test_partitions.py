"""Partitions as the kernel and udev report them, and how they are merged with a table that was read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.inventory import Disk, Partition, Role, TableLabel
from aligntool.linux.look import look
from aligntool.linux.partitions import KernelPartition, merge
from aligntool.linux.sysfs import NOTHING
from aligntool.units import GIB, KIB, MIB, Extent
from tests.linux.trees import MadeDisk, MadePartition, make_tree

DOS = {"ID_PART_TABLE_TYPE": "dos", "ID_PART_TABLE_UUID": "1a2b3c4d"}
LINUX, EFI = "0fc63daf-8483-4772-8e79-3d69d8477de4", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"


def only(root: Path) -> Disk:
    (disk,) = look([], sysroot=str(root)).disks
    return disk


def entry(code: str, **more: str) -> dict[str, str]:
    return {"ID_PART_ENTRY_TYPE": code, **{f"ID_{key}": value for key, value in more.items()}}


def test_sysfs_uses_units_of_512_bytes_for_any_sector_size(tmp_path: Path) -> None:
    parts = [MadePartition(1, 1 * MIB, 10 * MIB)]
    disk = only(make_tree(tmp_path, [MadeDisk("sda", GIB, parts, logical=4096, physical=4096)]))
    start = next(tmp_path.glob("sys/devices/**/sda1/start")).read_text()
    assert start == "2048\n"
    assert disk.partitions[0].extent == Extent(MIB, 10 * MIB)
    assert disk.kernel_partitions == ((1, Extent(MIB, 10 * MIB)),)
    assert disk.size == GIB


@pytest.mark.parametrize(("written", "offset"), [(4294967295, -1), (512, 512), (0, 0)])
def test_an_offset_of_minus_one_is_read_as_the_kernel_prints_it_on_partitions(
    tmp_path: Path, written: int, offset: int
) -> None:
    """A RAID10 on partitions at sector 63 under Linux 6.1: -1 in md3/alignment_offset, 4294967295 in md3/md3p1."""
    parts = [MadePartition(1, MIB, 10 * MIB, alignment_offset=written)]
    disk = only(make_tree(tmp_path, [MadeDisk("md3", GIB, parts, alignment_offset=-1)]))
    assert disk.limits.alignment_offset == -1
    assert disk.partitions[0].kernel_alignment_offset == offset


def test_an_unreadable_gpt_is_taken_from_the_udev_database(tmp_path: Path) -> None:
    udev = entry(
        EFI, PART_ENTRY_NAME="EFI\\x20System", PART_ENTRY_UUID="aa-bb", PART_ENTRY_FLAGS="0x8000000000000001",
        FS_TYPE="vfat", FS_VERSION="FAT32",
    )  # fmt: skip
    told = {"ID_PART_TABLE_TYPE": "gpt", "ID_PART_TABLE_UUID": "cafe"}
    parts = [MadePartition(1, MIB, 100 * MIB, udev=udev, mounted_at=["/boot/efi"]), MadePartition(12, GIB, GIB)]
    disk = only(make_tree(tmp_path, [MadeDisk("sda", 8 * GIB, parts, udev=told)]))
    assert disk.table is not None and not disk.table_read
    assert (disk.table.label, disk.table.disk_id, disk.table.sector_size) == (TableLabel.GPT, "cafe", 512)
    first, second = disk.partitions
    assert (first.type_code, first.type_name) == (EFI.upper(), "EFI System")
    assert (first.name, first.uuid, first.flags) == ("EFI System", "aa-bb", ("required", "guid:63"))
    assert (first.content_hint, first.content_read, first.content) == ("vfat", False, ())
    assert (first.node, first.mounted_at) == ("sda1", ("/boot/efi",))
    assert (second.number, second.role) == (12, Role.PRIMARY)


def test_an_unreadable_mbr_is_taken_from_udev_with_its_boot_flag_and_signature(tmp_path: Path) -> None:
    parts = [MadePartition(1, 32256, GIB, udev=entry("0x7", PART_ENTRY_FLAGS="0x80"))]
    disk = only(make_tree(tmp_path, [MadeDisk("sda", 8 * GIB, parts, udev=DOS)]))
    assert disk.table is not None
    assert (disk.table.label, disk.table.disk_id) == (TableLabel.DOS, "0x1a2b3c4d")
    (part,) = disk.partitions
    assert (part.type_code, part.flags, part.role) == ("0x07", ("boot",), Role.PRIMARY)
    assert part.kernel_alignment_offset == 0


def extended(code: str | None, sectors: int, first_logical: int, logical: int = 512) -> MadeDisk:
    udev = {} if code is None else entry(code)
    parts = [
        MadePartition(1, MIB, GIB),
        MadePartition(2, 2 * GIB, sectors * 512, udev=udev),
        MadePartition(5, first_logical, GIB),
        MadePartition(6, first_logical + GIB + MIB, GIB),
    ]
    return MadeDisk("sda", 8 * GIB, parts, logical=logical, physical=4096, udev=DOS if code else {})


@pytest.mark.parametrize("code", ["0x5", "0xf", "0x85", None])
@pytest.mark.parametrize(("sectors", "logical"), [(2, 512), (1, 512), (8, 4096)])
def test_an_extended_partition_is_recognised_by_its_type_or_its_tiny_size(
    tmp_path: Path, code: str | None, sectors: int, logical: int
) -> None:
    disk = only(make_tree(tmp_path, [extended(code, sectors, 2 * GIB + 32256, logical)]))
    roles = {part.number: part.role for part in disk.partitions}
    assert roles == {1: Role.PRIMARY, 2: Role.EXTENDED, 5: Role.LOGICAL, 6: Role.LOGICAL}
    container = disk.partitions[1]
    assert all(container.extent.contains(part.extent) for part in disk.partitions[2:])
    assert dict(disk.kernel_partitions)[2] == Extent(2 * GIB, sectors * 512)


def test_a_tiny_partition_before_others_is_not_extended_if_udev_has_its_type(tmp_path: Path) -> None:
    parts = [MadePartition(1, 17408, 1024, udev=entry(LINUX)), MadePartition(5, MIB, GIB, udev=entry(LINUX))]
    gpt = {"ID_PART_TABLE_TYPE": "gpt"}
    disk = only(make_tree(tmp_path, [MadeDisk("sda", 8 * GIB, parts, udev=gpt)]))
    assert [part.role for part in disk.partitions] == [Role.PRIMARY, Role.PRIMARY]


def test_the_kernels_alignment_offset_of_each_partition_is_kept(tmp_path: Path) -> None:
    parts = [MadePartition(1, 63 * 512, GIB), MadePartition(2, 2 * GIB, GIB, discard_alignment=3145728)]
    disk = only(make_tree(tmp_path, [MadeDisk("sda", 8 * GIB, parts, physical=4096)]))
    assert [part.kernel_alignment_offset for part in disk.partitions] == [512, 0]
    assert disk.partitions[1].kernel_discard_alignment == 3145728


def test_partitions_are_sorted_by_number(tmp_path: Path) -> None:
    parts = [MadePartition(number, number * GIB, MIB) for number in (10, 2, 1)]
    disk = only(make_tree(tmp_path, [MadeDisk("nvme0n1", 16 * GIB, parts)]))
    assert [(part.number, part.node) for part in disk.partitions] == [
        (1, "nvme0n1p1"), (2, "nvme0n1p2"), (10, "nvme0n1p10"),
    ]  # fmt: skip


def test_folders_that_only_look_like_partitions_are_not_listed(tmp_path: Path) -> None:
    root = make_tree(tmp_path, [MadeDisk("sda", GIB, [MadePartition(1, MIB, MIB)])])
    above = next(root.glob("sys/devices/**/sda1")).parent
    for name, start in (("sda2", "-5"), ("sda3", "x"), ("sdax", "2048"), ("sda01", "4096")):
        (above / name).mkdir()
        (above / name / "start").write_text(start)
        (above / name / "size").write_text("8")
    assert [part.node for part in only(root).partitions] == ["sda1"]


class TestTableAndKernel:
    """`merge`: the table read from the disk, and the partitions of the kernel."""

    def kernel(self, number: int, start: int, length: int, node: str = "") -> KernelPartition:
        return KernelPartition(number, Extent(start, length), node or f"sda{number}", 0, 0, (), (), NOTHING)

    def table(self, number: int, start: int, length: int, role: Role = Role.PRIMARY) -> Partition:
        return Partition(number, Extent(start, length), role)

    def nodes(self, table: list[Partition], kernel: list[KernelPartition]) -> list[tuple[int, str | None]]:
        return [(part.number, part.node) for part in merge(TableLabel.DOS, table, kernel)]

    def test_entries_are_matched_to_their_nodes(self) -> None:
        table = [self.table(1, MIB, MIB), self.table(2, 4 * MIB, MIB)]
        kernel = [self.kernel(2, 4 * MIB, MIB), self.kernel(1, MIB, MIB)]
        assert self.nodes(table, kernel) == [(1, "sda1"), (2, "sda2")]

    def test_the_kernels_tiny_extended_partition_is_matched_to_its_entry(self) -> None:
        (part,) = merge(TableLabel.DOS, [self.table(2, MIB, GIB, Role.EXTENDED)], [self.kernel(2, MIB, KIB)])
        assert (part.node, part.extent) == ("sda2", Extent(MIB, GIB))

    def test_entries_are_matched_by_place_where_the_kernel_has_another_number(self) -> None:
        table = [self.table(1, MIB, MIB), self.table(3, 4 * MIB, MIB)]
        kernel = [self.kernel(1, MIB, MIB), self.kernel(5, 4 * MIB, MIB)]
        assert self.nodes(table, kernel) == [(1, "sda1"), (3, "sda5")]

    def test_a_table_that_was_changed_and_not_read_again_keeps_its_numbers(self) -> None:
        (part,) = merge(TableLabel.GPT, [self.table(1, MIB, MIB)], [self.kernel(1, 63 * 512, MIB)])
        assert (part.node, part.extent.start) == ("sda1", MIB)

    def test_a_partition_known_only_to_the_kernel_is_listed_as_well(self) -> None:
        table = [self.table(1, MIB, GIB)]
        kernel = [self.kernel(1, MIB, GIB), self.kernel(5, 2 * MIB, MIB), self.kernel(7, 3 * GIB, MIB)]
        roles = [(part.number, part.role) for part in merge(TableLabel.DOS, table, kernel)]
        assert roles == [(1, Role.PRIMARY), (5, Role.NESTED), (7, Role.PRIMARY)]

    def test_a_partition_that_is_only_in_the_table_is_listed_without_a_node(self) -> None:
        assert self.nodes([self.table(1, MIB, MIB)], []) == [(1, None)]

    extents = st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(1, 4))

    @given(st.lists(extents, max_size=6), st.lists(extents, max_size=6, unique_by=lambda one: one[0]))
    def test_no_node_is_lost_and_none_is_assigned_twice(
        self, table: list[tuple[int, int, int]], kernel: list[tuple[int, int, int]]
    ) -> None:
        entries = [self.table(*one) for one in table]
        merged = merge(TableLabel.DOS, entries, [self.kernel(*one) for one in kernel])
        nodes = [part.node for part in merged if part.node]
        assert len(nodes) == len(set(nodes))
        assert [part.extent for part in merged[: len(entries)]] == [part.extent for part in entries]
        taken = {part.number for part in entries}
        assert all(f"sda{number}" in nodes or number in taken for number, _, _ in kernel)
