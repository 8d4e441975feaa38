"""MBR: primary, extended, logical and nested partitions; chains that are broken; sectors of another size."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import Fault, Role, TableLabel
from aligntool.probe.reader import BytesReader
from aligntool.probe.tables import read_table
from aligntool.units import Extent
from tests.conftest import run
from tests.probe.tables.images import (
    MIB,
    FailingReader,
    detail_of,
    disk,
    faults_of,
    mbr,
    partx_partitions,
    patch,
    places,
    read_bytes,
    read_image,
    sfdisk,
    sfdisk_partitions,
    table_of,
)

Sparse = Callable[..., Path]
SIZE = 64 * MIB
SCRIPTS = {
    "one partition": "start=2048, size=4096, type=83, bootable\n",
    "from sector 63": "start=63, size=20000, type=7\nstart=20063, size=20000, type=c\n",
    "four primaries, out of order": (
        "start=60000, size=2048, type=82\nstart=2048, size=2048, type=83\n"
        "start=10000, size=2048, type=8e\nstart=8000, size=100, type=fd\n"
    ),
    "holes in the numbers": "2: start=2048, size=2048, type=83\n4: start=8192, size=1024, type=ef\n",
    "logicals": (
        "start=2048, size=2048, type=83\nstart=6144, size=100000, type=5\n"
        + "".join(f"{5 + index}: start={8192 + 4096 * index}, size=2048, type=83\n" for index in range(20))
    ),
    "logicals in an LBA extended partition": (
        "1: start=2048, size=120000, type=f\n5: start=4096, size=2048, type=b\n6: start=8192, size=2048, type=82\n"
    ),
    "extended but empty": "start=2048, size=100000, type=5\n",
    "no partitions": "",
}


def make(sparse: Sparse, script: str, *, size: int = SIZE) -> Path:
    path = sparse(size)
    run("sfdisk", "-q", path, stdin=f"label: dos\nlabel-id: 0x1234abcd\n{script}")
    return path


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_sfdisks_tables_read_as_sfdisk_reads_them(script: str, sparse: Sparse) -> None:
    path = make(sparse, script)
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
def test_roles_flags_and_type_names(sparse: Sparse) -> None:
    path = make(
        sparse,
        "start=2048, size=2048, type=7, bootable\nstart=8192, size=90000, type=5\nstart=10240, type=83",
    )
    parts = {part.number: part for part in read_image(path).partitions}
    assert {number: part.role for number, part in parts.items()} == {
        1: Role.PRIMARY,
        2: Role.EXTENDED,
        5: Role.LOGICAL,
    }
    assert parts[1].flags == ("boot",) and parts[5].flags == ()
    assert [part.type_name for part in parts.values()] == ["NTFS, exFAT or HPFS", "Extended", "Linux"]


@pytest.mark.needs_tools("sfdisk")
def test_a_disk_beyond_2_tib_is_usable_as_far_as_32_bits_count(sparse: Sparse) -> None:
    path = sparse(3 * 2**40)
    run("sfdisk", "-q", path, stdin="label: dos\nstart=2048, size=4294965000\n")
    assert table_of(read_image(path)).usable == Extent(512, 2**32 * 512 - 512)


def test_a_partition_without_a_type_but_with_a_size_is_listed_as_linux_lists_it() -> None:
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
def test_a_bad_entry_is_a_fault_with_its_number(
    entries: list[tuple[int, int, int, int]], fault: Fault, numbers: tuple[int, ...]
) -> None:
    reading = read_bytes(disk(MIB, (0, mbr(*entries))))
    found = next(item for item in table_of(reading).faults if item.fault is fault)
    assert found.partitions == numbers


def test_partitions_that_touch_do_not_overlap() -> None:
    reading = read_bytes(disk(MIB, (0, mbr((0x83, 100, 100, 0), (0x83, 200, 100, 0), (0x83, 300, 1748, 0)))))
    assert faults_of(reading) == []


def chain(size: int, extended: tuple[int, int], *ebrs: tuple[int, bytes]) -> bytes:
    start, sectors = extended
    return disk(size, (0, mbr((0x05, start, sectors, 0))), *((at * 512, sector) for at, sector in ebrs))


def test_links_count_from_the_extended_partition_and_data_from_its_own_ebr() -> None:
    content = chain(
        MIB,
        (100, 1900),
        (100, mbr((0x83, 10, 20, 0), (0x05, 500, 100, 0))),
        (600, mbr((0x82, 5, 50, 0), (0x05, 200, 100, 0))),
        (300, mbr((0x83, 7, 9, 0))),
    )
    reading = read_bytes(content)
    assert places(reading) == {1: (100, 1900), 5: (110, 20), 6: (605, 50), 7: (307, 9)}
    assert faults_of(reading) == []


def test_an_empty_ebr_and_a_link_in_the_first_entry_are_followed() -> None:
    content = chain(
        MIB, (100, 1900), (100, mbr((0x05, 300, 100, 0))), (400, mbr((0x83, 8, 20, 0), (0x83, 40, 10, 0)))
    )
    assert places(read_bytes(content)) == {1: (100, 1900), 5: (408, 20), 6: (440, 10)}


def test_two_extended_partitions_are_numbered_one_after_the_other() -> None:
    content = disk(
        MIB,
        (0, mbr((0x05, 100, 500, 0), (0x83, 700, 10, 0), (0x0F, 1000, 500, 0))),
        (100 * 512, mbr((0x83, 10, 20, 0))),
        (1000 * 512, mbr((0x83, 10, 20, 0))),
    )
    assert places(read_bytes(content)) == {
        1: (100, 500), 2: (700, 10), 3: (1000, 500), 5: (110, 20), 6: (1010, 20),
    }  # fmt: skip


def test_a_chain_that_turns_in_a_circle_ends_and_says_so() -> None:
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


def test_an_extended_partition_at_sector_0_leads_to_the_mbr_itself() -> None:
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
        MIB,
        (100, 1900),
        (100, mbr((0x83, 10, 600, 0), (0x05, 500, 100, 0))),
        (600, mbr((0x82, 200, 50, 0))),
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


# 4096-byte sectors


def table_for(sector_size: int, size: int) -> bytes:
    """A partition with a FAT-like start and an EBR chain, all in units of `sector_size`."""
    return disk(
        size,
        (0, mbr((0x83, 64, 200, 0), (0x05, 300, 300, 0))),
        (64 * sector_size + 1080, b"\x53\xef"),
        (300 * sector_size, mbr((0x83, 8, 20, 0))),
    )


@pytest.mark.parametrize(
    ("written", "reported", "faults"),
    [
        (512, 512, []),
        (4096, 4096, []),
        (512, None, []),
        (4096, None, []),
        (512, 4096, [Fault.OTHER_SECTOR_SIZE]),
        (4096, 512, [Fault.OTHER_SECTOR_SIZE]),
    ],
)
def test_what_starts_at_a_partition_tells_its_sector_size(
    written: int, reported: int | None, faults: list[Fault]
) -> None:
    reading = read_bytes(table_for(written, 4 * MIB), reported)
    assert table_of(reading).sector_size == written
    assert faults_of(reading) == faults
    assert places(reading) == {1: (64, 200), 2: (300, 300), 5: (308, 20)}


def test_a_table_that_only_fits_in_512_bytes_is_read_so_on_a_disk_of_4096() -> None:
    reading = read_bytes(disk(MIB, (0, mbr((0x83, 64, 1984, 0)))), 4096)
    assert table_of(reading).sector_size == 512
    assert faults_of(reading) == [Fault.OTHER_SECTOR_SIZE]


@pytest.mark.parametrize("reported", [512, 4096])
def test_without_evidence_the_reported_sector_size_holds(reported: int) -> None:
    reading = read_bytes(disk(4 * MIB, (0, mbr((0x83, 64, 100, 0)))), reported)
    assert table_of(reading).sector_size == reported
    assert faults_of(reading) == []


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "losetup")
def test_sfdisks_table_on_a_4096_byte_loop_device_reads_the_same(
    sparse: Sparse, loop: Callable[..., Path]
) -> None:
    path = sparse(512 * MIB)
    device = loop(path, sector_size=4096)
    script = "label: dos\n" + SCRIPTS["logicals"]
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", device, stdin=script)
    told = sfdisk_partitions(device)
    assert len(told) == 22
    for sector_size in (4096, None):
        reading = read_image(path, sector_size)
        assert places(reading) == {number: (part.start, part.size) for number, part in told.items()}
        assert faults_of(reading) == []


# nested tables


def bsd_label(*slices: tuple[int, int, int]) -> bytes:
    """A disklabel of (sectors, start, type), with its checksum (FreeBSD sys/disk/bsd.h)."""
    label = bytearray(148 + 16 * 16)
    struct.pack_into("<I", label, 0, 0x82564557)
    struct.pack_into("<IHH", label, 132, 0x82564557, 0, len(slices))
    for index, (sectors, start, kind) in enumerate(slices):
        struct.pack_into("<IIIB", label, 148 + 16 * index, sectors, start, 0, kind)
    checksum = 0
    for word in struct.unpack(f"<{len(label) // 2}H", label):
        checksum ^= word
    struct.pack_into("<H", label, 136, checksum)
    return bytes(label)


def solaris_vtoc(*slices: tuple[int, int, int]) -> bytes:
    vtoc = bytearray(512)
    struct.pack_into("<II", vtoc, 12, 0x600DDEEE, 1)
    struct.pack_into("<HH", vtoc, 28, 512, 16)
    for index, (tag, start, sectors) in enumerate(slices):
        struct.pack_into("<HHII", vtoc, 72 + 12 * index, tag, 0, start, sectors)
    return bytes(vtoc)


@pytest.mark.needs_tools("partx")
@pytest.mark.parametrize(
    ("kind", "inside", "expected"),
    [
        (0xA5, (512, bsd_label((40, 10, 7), (9, 60, 1), (1000, 0, 0))), {5: (110, 40), 6: (160, 9)}),
        (0xA5, (512, bsd_label((40, 110, 7), (9, 160, 1), (1000, 100, 0))), {5: (110, 40), 6: (160, 9)}),
        (0xA6, (512, bsd_label((40, 110, 7), (9, 160, 1), (2048, 0, 0))), {5: (110, 40), 6: (160, 9)}),
        (0xA9, (512, bsd_label((40, 110, 7), (9, 3, 8))), {5: (110, 40)}),
        (0x82, (512, solaris_vtoc((2, 10, 40), (3, 60, 9))), {5: (110, 40), 6: (160, 9)}),
        (0x81, (0, mbr((0x81, 110, 40, 0), (0x81, 160, 9, 0))), {5: (110, 40), 6: (160, 9)}),
        (0x82, (512, b"not a label"), {}),
    ],
    ids=["FreeBSD, relative", "FreeBSD, absolute", "OpenBSD", "NetBSD", "Solaris", "Minix", "Linux swap"],
)
def test_nested_tables_are_read_as_partx_reads_them(
    kind: int, inside: tuple[int, bytes], expected: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    path = tmp_path / "disk.img"
    # 8 MiB: libblkid looks for no nested table on what could be a floppy disk.
    pieces = (0, mbr((kind, 100, 1000, 0), signature=1)), (100 * 512 + inside[0], inside[1])
    path.write_bytes(disk(8 * MIB, *pieces))
    reading = read_image(path)
    assert places(reading) == {1: (100, 1000), **expected} == partx_partitions(path)
    assert all(part.role is Role.NESTED for part in reading.partitions if part.number >= 5)


def test_unixware_slices_are_read() -> None:
    label = bytearray(512)
    struct.pack_into("<I", label, 4, 0xCA5E600D)
    struct.pack_into("<I", label, 156, 0x600DDEEE)
    for index, (tag, start, sectors) in enumerate([(5, 100, 1000), (2, 200, 40), (3, 300, 9)]):
        struct.pack_into("<HHII", label, 216 + 12 * index, tag, 0x200, start, sectors)
    content = disk(MIB, (0, mbr((0x63, 100, 1000, 0))), ((100 + 29) * 512, bytes(label)))
    assert places(read_bytes(content)) == {1: (100, 1000), 5: (200, 40), 6: (300, 9)}


def test_nested_numbers_go_on_after_the_logical_ones(tmp_path: Path) -> None:
    content = disk(
        MIB,
        (0, mbr((0xA5, 100, 500, 0), (0x05, 1000, 500, 0))),
        (1000 * 512, mbr((0x83, 10, 20, 0))),
        (101 * 512, bsd_label((40, 110, 7), (9, 160, 1), (500, 100, 0))),
    )
    assert places(read_bytes(content)) == {
        1: (100, 500), 2: (1000, 500), 5: (1010, 20), 6: (110, 40), 7: (160, 9),
    }  # fmt: skip


@pytest.mark.needs_tools("sfdisk")
def test_a_changed_disk_signature_changes_the_partuuid(sparse: Sparse) -> None:
    path = make(sparse, SCRIPTS["one partition"])
    patch(path, 440, b"\x78\x56\x34\x12")
    reading = read_image(path)
    assert table_of(reading).disk_id == sfdisk(path)["id"] == "0x12345678"
    assert reading.partitions[0].uuid == "12345678-01"
