"""MBR: primary, extended and logical partitions; broken entries and chains."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.formats.tables import read_table
from aligntool.inventory import Fault, Role, TableLabel
from aligntool.units import Extent
from tests.conftest import run
from tests.formats.images import (
    MIB,
    FailingReader,
    detail_of,
    disk,
    faults_of,
    mbr,
    patch,
    places,
    read_bytes,
    read_image,
    sfdisk,
    sfdisk_partitions,
    table_of,
)
from tests.formats.mbr_images import SCRIPTS, SIZE, chain, make_mbr
from tests.in_memory import BytesReader

Sparse = Callable[..., Path]


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_tables_made_by_sfdisk_are_read_as_by_sfdisk(script: str, sparse: Sparse) -> None:
    path = make_mbr(sparse, script)
    told, reading = sfdisk_partitions(path), read_image(path)
    table = table_of(reading)
    assert (table.label, table.disk_id) == (TableLabel.DOS, sfdisk(path)["id"])
    assert places(reading) == {number: (part.start, part.size) for number, part in told.items()}
    for part in reading.partitions:
        assert part.type_code == f"0x{int(told[part.number].type, 16):02x}"
        assert part.uuid == f"1234abcd-{part.number:02x}"
    assert table.faults == ()
    assert table.usable == Extent(512, SIZE - 512)


@pytest.mark.needs_tools("sfdisk")
def test_roles_flags_and_type_names_are_read(sparse: Sparse) -> None:
    path = make_mbr(
        sparse, "start=2048, size=2048, type=7, bootable\nstart=8192, size=90000, type=5\nstart=10240, type=83"
    )
    parts = {part.number: part for part in read_image(path).partitions}
    assert {number: part.role for number, part in parts.items()} == {1: Role.PRIMARY, 2: Role.EXTENDED, 5: Role.LOGICAL}
    assert parts[1].flags == ("boot",) and parts[5].flags == ()
    assert [part.type_name for part in parts.values()] == ["NTFS, exFAT or HPFS", "Extended", "Linux"]


@pytest.mark.needs_tools("sfdisk")
def test_a_disk_larger_than_2_tib_is_usable_up_to_the_limit_of_32_bits(sparse: Sparse) -> None:
    path = sparse(3 * 2**40)
    run("sfdisk", "-q", path, stdin="label: dos\nstart=2048, size=4294965000\n")
    assert table_of(read_image(path)).usable == Extent(512, 2**32 * 512 - 512)


def test_a_partition_without_a_type_but_with_a_size_is_listed_as_by_linux() -> None:
    reading = read_bytes(disk(MIB, (0, mbr((0, 0, 1000, 0x80), (0xEF, 100, 50, 0)))))
    assert places(reading) == {1: (0, 1000), 2: (100, 50)}
    assert faults_of(reading) == [Fault.OVERLAP]
    assert "hybrid ISO" in detail_of(reading, Fault.OVERLAP)


@pytest.mark.parametrize(
    ("entries", "fault", "numbers"),
    [
        ([(0x83, 100, 100, 0), (0x83, 199, 100, 0)], Fault.OVERLAP, (1, 2)),
        ([(0x83, 100, 100, 0), (0x05, 150, 500, 0)], Fault.OVERLAP, (1, 2)),
        ([(0x83, 2000, 100, 0)], Fault.BEYOND_END, (1,)),
        ([(0x83, 0xFFFFFFFF, 0xFFFFFFFF, 0)], Fault.BEYOND_END, (1,)),
        ([(0x83, 100, 0, 0)], Fault.BAD_ENTRY, (1,)),
        ([(0x83, 0, 100, 0)], Fault.BAD_ENTRY, (1,)),
        ([(0x07, 63, 100, 0), (0x42, 200, 100, 0)], Fault.DYNAMIC_DISK, (2,)),
        ([(0x05, 100, 500, 0)], Fault.EBR_BROKEN, (1,)),
    ],
)
def test_a_bad_entry_is_reported_as_a_fault_with_its_number(
    entries: list[tuple[int, int, int, int]], fault: Fault, numbers: tuple[int, ...]
) -> None:
    reading = read_bytes(disk(MIB, (0, mbr(*entries))))
    found = next(item for item in table_of(reading).faults if item.fault is fault)
    assert found.partitions == numbers


def test_adjacent_partitions_do_not_overlap() -> None:
    reading = read_bytes(disk(MIB, (0, mbr((0x83, 100, 100, 0), (0x83, 200, 100, 0), (0x83, 300, 1748, 0)))))
    assert faults_of(reading) == []


def test_links_are_relative_to_the_extended_partition_and_data_to_their_ebr() -> None:
    content = chain(
        MIB,
        (100, 1900),
        (100, mbr((0x83, 10, 20, 0), (0x05, 500, 100, 0))),
        (600, mbr((0x82, 5, 50, 0), (0x05, 200, 100, 0))),
        (300, mbr((0x83, 7, 9, 0))),
    )
    reading = read_bytes(content)
    assert places(reading) == {1: (100, 1900), 5: (110, 20), 6: (605, 50), 7: (307, 9)}
    assert [part.record_at for part in reading.partitions] == [None, 100 * 512, 600 * 512, 300 * 512]
    assert faults_of(reading) == []


def test_an_empty_ebr_and_a_link_in_the_first_entry_are_followed() -> None:
    content = chain(MIB, (100, 1900), (100, mbr((0x05, 300, 100, 0))), (400, mbr((0x83, 8, 20, 0), (0x83, 40, 10, 0))))
    assert places(read_bytes(content)) == {1: (100, 1900), 5: (408, 20), 6: (440, 10)}


def test_two_extended_partitions_are_numbered_one_after_the_other() -> None:
    content = disk(
        MIB,
        (0, mbr((0x05, 100, 500, 0), (0x83, 700, 10, 0), (0x0F, 1000, 500, 0))),
        (100 * 512, mbr((0x83, 10, 20, 0))),
        (1000 * 512, mbr((0x83, 10, 20, 0))),
    )
    assert places(read_bytes(content)) == {1: (100, 500), 2: (700, 10), 3: (1000, 500), 5: (110, 20), 6: (1010, 20)}


def test_a_circular_chain_ends_and_is_reported() -> None:
    content = chain(
        MIB,
        (100, 1900),
        (100, mbr((0x83, 10, 20, 0), (0x05, 500, 100, 0))),
        (600, mbr((0x82, 5, 50, 0), (0x05, 500, 100, 0))),
    )
    reading = read_bytes(content)
    assert faults_of(reading) == [Fault.EBR_LOOP]
    assert table_of(reading).faults[0].at == 600 * 512
    assert sorted(places(reading)) == [1, 5, 6]


def test_an_extended_partition_at_sector_0_is_a_loop_to_the_mbr() -> None:
    reading = read_bytes(disk(MIB, (0, mbr((0x05, 0, 2000, 0)))))
    assert Fault.EBR_LOOP in faults_of(reading)


def test_an_ebr_without_its_signature_ends_the_chain_with_a_fault() -> None:
    content = chain(MIB, (100, 1900), (100, mbr((0x83, 10, 20, 0), (0x05, 500, 100, 0))))
    reading = read_bytes(content)
    assert faults_of(reading) == [Fault.EBR_BROKEN]
    assert table_of(reading).faults[0].at == 600 * 512
    assert sorted(places(reading)) == [1, 5]


def test_an_unreadable_ebr_is_a_fault_and_the_rest_is_listed() -> None:
    content = chain(MIB, (100, 1900), (100, mbr((0x83, 10, 20, 0), (0x05, 500, 100, 0))))
    reading = read_table(FailingReader(BytesReader(content), ((600 * 512, 601 * 512),)), sector_size=512)
    assert faults_of(reading) == [Fault.UNREADABLE]
    assert sorted(places(reading)) == [1, 5]


def test_a_logical_partition_outside_its_extended_one_is_listed_with_a_fault() -> None:
    reading = read_bytes(chain(MIB, (100, 200), (100, mbr((0x83, 10, 500, 0)))))
    assert faults_of(reading) == [Fault.LOGICAL_OUTSIDE_EXTENDED]
    assert table_of(reading).faults[0].partitions == (1, 5)


def test_an_ebr_inside_a_partition_is_a_fault_util_linux_3925() -> None:
    content = chain(
        MIB, (100, 1900), (100, mbr((0x83, 10, 600, 0), (0x05, 500, 100, 0))), (600, mbr((0x82, 200, 50, 0)))
    )
    reading = read_bytes(content)
    assert faults_of(reading) == [Fault.EBR_INSIDE_PARTITION]
    assert table_of(reading).faults[0].partitions == (5,)
    assert table_of(reading).faults[0].at == 600 * 512


def test_a_chain_of_thousands_stops_at_number_255() -> None:
    ebrs = [(100 + 4 * index, mbr((0x83, 1, 2, 0), (0x05, 4 * (index + 1), 4, 0))) for index in range(3000)]
    reading = read_bytes(chain(8 * MIB, (100, 16000), *ebrs))
    assert max(places(reading)) == 255
    assert faults_of(reading) == [Fault.IMPLAUSIBLE_COUNT]


def test_a_chain_of_empty_ebrs_stops() -> None:
    ebrs = [(100 + index, mbr((0, 0, 0, 0), (0x05, index + 1, 4, 0))) for index in range(3000)]
    reading = read_bytes(chain(8 * MIB, (100, 16000), *ebrs))
    assert sorted(places(reading)) == [1]
    assert faults_of(reading) == [Fault.IMPLAUSIBLE_COUNT]


@pytest.mark.needs_tools("sfdisk")
def test_a_changed_disk_signature_changes_the_partuuid(sparse: Sparse) -> None:
    path = make_mbr(sparse, SCRIPTS["one partition"])
    patch(path, 440, b"\x78\x56\x34\x12")
    reading = read_image(path)
    assert table_of(reading).disk_id == sfdisk(path)["id"] == "0x12345678"
    assert reading.partitions[0].uuid == "12345678-01"
