"""GPT: the meaning of headers and entries, and faults in entries; compared with sfdisk on the same bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.formats.tables import read_table
from aligntool.inventory import Fault, Role, TableCopyState
from tests.formats.gpt_images import SIZE, entry, gpt_disk, header, make_gpt
from tests.formats.images import (
    MIB,
    CountingReader,
    FailingReader,
    disk,
    faults_of,
    mbr,
    places,
    read_bytes,
    read_image,
    sfdisk,
    sfdisk_partitions,
    table_of,
)
from tests.in_memory import BytesReader

pytestmark = pytest.mark.needs_tools("sgdisk", "sfdisk")
Sparse = Callable[..., Path]


def test_every_field_is_as_sfdisk_prints_it(sparse: Sparse) -> None:
    path = make_gpt(
        sparse, "-a1", "-n1:34:2047", "-t1:ef02", "-n2:2048:+8M", "-c2:Grüße 💾", "-t2:8300", "-A2:set:60", "-n9:0:+3M"
    )
    told, reading = sfdisk_partitions(path), read_image(path)
    table = sfdisk(path)
    assert places(reading) == {number: (part.start, part.size) for number, part in told.items()}
    for part in reading.partitions:
        truth = told[part.number]
        assert (part.type_code, part.name, part.uuid) == (truth.type, truth.name, str(truth.uuid).lower())
        assert part.role is Role.PRIMARY
    usable = table_of(reading).usable
    assert usable is not None
    assert (usable.start // 512, usable.end // 512 - 1) == (table["firstlba"], table["lastlba"])
    assert [part.flags for part in reading.partitions] == [(), ("read-only",), ()]


def test_attributes_have_the_names_of_their_type(sparse: Sparse) -> None:
    path = make_gpt(
        sparse, "-n1:0:+1M", "-t1:0700", "-A1:set:60", "-A1:set:62", "-A1:set:63", "-A1:set:0",
        "-n2:0:+1M", "-t2:8300", "-A2:set:2", "-A2:set:59", "-n3:0:+1M", "-t3:af00", "-A3:set:50",
    )  # fmt: skip
    assert [part.flags for part in read_image(path).partitions] == [
        ("required", "read-only", "hidden", "no-automount"),
        ("legacy-boot", "grow-file-system"),
        ("guid:50",),
    ]


@pytest.mark.parametrize("kind", ["4200", "4201"])
def test_ldm_partitions_make_a_dynamic_disk(kind: str, sparse: Sparse) -> None:
    path = make_gpt(sparse, "-n1:0:+1M", f"-t1:{kind}")
    reading = read_image(path)
    assert faults_of(reading) == [Fault.DYNAMIC_DISK]
    assert reading.partitions[0].type_name.startswith("Windows LDM")


@pytest.mark.parametrize("entry_size", [128, 256, 136, 4096])
def test_larger_entries_are_read_and_reported_as_unreadable_for_linux(entry_size: int) -> None:
    first, second = entry(200, 299, name="a".encode("utf-16-le")), entry(300, 399)
    entries = first.ljust(entry_size, b"\0") + second.ljust(entry_size, b"\0")
    reading = read_bytes(gpt_disk(entries, count=16, entry_size=entry_size))
    assert places(reading) == {1: (200, 100), 2: (300, 100)}
    assert reading.partitions[0].name == "a"
    assert (Fault.IMPLAUSIBLE_COUNT in faults_of(reading)) is (entry_size != 128)


@pytest.mark.parametrize("entry_size", [0, 1, 64, 127, 130, 8192, 0xFFFFFFFF])
def test_a_copy_with_an_impossible_entry_size_is_malformed(entry_size: int) -> None:
    broken = header(own=1, other=2047, entries_lba=2, numbers={"entry_size": entry_size})
    reading = read_bytes(disk(MIB, (0, mbr((0xEE, 1, 2047, 0))), (512, broken)))
    assert table_of(reading).copies[0].state is TableCopyState.MALFORMED


@pytest.mark.parametrize("count", [32769, 2**20, 2**32 - 1])
def test_a_huge_count_is_limited_and_reported(count: int) -> None:
    broken = header(own=1, other=2047, entries_lba=2, numbers={"count": count})
    content = disk(8 * MIB, (0, mbr((0xEE, 1, 16383, 0))), (512, broken), (1024, entry(40, 99)))
    counting = CountingReader(BytesReader(content))
    reading = read_table(counting, sector_size=512)
    assert Fault.IMPLAUSIBLE_COUNT in faults_of(reading)
    assert places(reading) == {1: (40, 60)}
    assert counting.bytes_read < 12 * MIB


@pytest.mark.parametrize(
    ("entries", "fault", "numbers"),
    [
        (entry(200, 299) + entry(299, 399), Fault.OVERLAP, (1, 2)),
        (entry(200, 900) + entry(210, 220) + entry(800, 850), Fault.OVERLAP, (1, 2)),
        (entry(300, 299 - 5), Fault.BAD_ENTRY, (1,)),
        (entry(200, 5000), Fault.BEYOND_END, (1,)),
        (entry(2**63, 2**64 - 1), Fault.BEYOND_END, (1,)),
        (entry(10, 300), Fault.OUTSIDE_USABLE, (1,)),
        (entry(200, 2040), Fault.OUTSIDE_USABLE, (1,)),
    ],
)
def test_a_bad_entry_is_reported_as_a_fault_with_its_number(
    entries: bytes, fault: Fault, numbers: tuple[int, ...]
) -> None:
    reading = read_bytes(gpt_disk(entries))
    found = next(item for item in table_of(reading).faults if item.fault is fault)
    assert found.partitions == numbers


def test_every_partition_inside_another_is_reported_not_only_its_neighbour() -> None:
    entries = entry(200, 900) + entry(210, 220) + entry(800, 850) + entry(901, 950)
    reading = read_bytes(gpt_disk(entries))
    assert [fault.partitions for fault in table_of(reading).faults] == [(1, 2), (1, 3)]


def test_a_partition_over_the_table_is_reported_even_where_the_header_allows_it() -> None:
    array = entry(2, 100).ljust(128 * 128, b"\0")
    primary = header(own=1, other=2047, entries_lba=2, entries=array, numbers={"first": 1})
    content = disk(MIB, (0, mbr((0xEE, 1, 2047, 0))), (512, primary), (1024, array))
    assert Fault.COVERS_TABLE in faults_of(read_bytes(content))


def test_half_a_surrogate_pair_in_a_name_is_replaced() -> None:
    reading = read_bytes(gpt_disk(entry(200, 299, name=b"\x00\xd8A\x00")))
    assert reading.partitions[0].name == "\ufffdA"


def test_partitions_above_255_are_not_a_fault_of_the_table() -> None:
    """UEFI 5.3.1 and 5.3.3 set no limit; that Linux does not show them is a finding of the audit."""
    entries = b"".join(entry(600 + number, 600 + number) for number in range(300))
    reading = read_bytes(gpt_disk(entries, sectors=8192, count=300))
    assert len(reading.partitions) == 300 and not table_of(reading).faults


@pytest.mark.parametrize("sector_size", [512, 1024, 2048, 4096])
@pytest.mark.parametrize("reported", [None, 512, 4096])
def test_the_header_shows_the_sector_size_for_which_it_was_written(sector_size: int, reported: int | None) -> None:
    sectors = 1024
    array = entry(100, 199).ljust(128 * 128, b"\0")
    primary = header(own=1, other=sectors - 1, entries_lba=2, entries=array, numbers={"last": 900})
    backup = header(own=sectors - 1, other=1, entries_lba=950, entries=array, numbers={"last": 900})
    content = disk(
        sectors * sector_size,
        (0, mbr((0xEE, 1, sectors - 1, 0))),
        (sector_size, primary),
        (2 * sector_size, array),
        (950 * sector_size, array),
        ((sectors - 1) * sector_size, backup),
    )
    reading = read_bytes(content, reported)
    assert table_of(reading).sector_size == sector_size
    assert reading.partitions[0].extent.start == 100 * sector_size
    assert faults_of(reading) == ([] if reported in (None, sector_size) else [Fault.OTHER_SECTOR_SIZE])


def test_with_an_unreadable_primary_the_backup_is_used(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    content = path.read_bytes()
    whole = read_bytes(content)
    for bad in ((512, 1024), (1024, 1536), (0, 512)):
        reading = read_table(FailingReader(BytesReader(content), (bad,)), sector_size=512)
        assert reading.partitions == whole.partitions
        assert table_of(reading).faults
    everything = read_table(FailingReader(BytesReader(content), ((0, SIZE),)), sector_size=512)
    assert faults_of(everything) == [Fault.UNREADABLE]
    assert everything.partitions == ()


def test_a_16_tib_disk_requires_reading_a_few_hundred_kib_at_most() -> None:
    """A sparse disk: only what is read exists."""

    sectors = 2**35
    array = entry(2048, 2**34).ljust(128 * 128, b"\0")
    pieces = {
        0: mbr((0xEE, 1, 0xFFFFFFFF, 0)),
        512: header(own=1, other=sectors - 1, entries_lba=2, entries=array, numbers={"last": sectors - 34}).ljust(
            512, b"\0"
        ),
        1024: array,
        (sectors - 33) * 512: array,
        (sectors - 1) * 512: header(
            own=sectors - 1, other=1, entries_lba=sectors - 33, entries=array, numbers={"last": sectors - 34}
        ).ljust(512, b"\0"),
    }
    counting = CountingReader(SparsePieces(sectors * 512, pieces))
    reading = read_table(counting, sector_size=512)
    assert faults_of(reading) == []
    assert places(reading) == {1: (2048, 2**34 - 2047)}
    assert counting.bytes_read < 300 * 1024


class SparsePieces:
    def __init__(self, size: int, pieces: dict[int, bytes]) -> None:
        self.size = size
        self.pieces = pieces

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        content = bytearray(length)
        for at, piece in self.pieces.items():
            start, end = max(at, offset), min(at + len(piece), offset + length)
            if start < end:
                content[start - offset : end - offset] = piece[start - at : end - at]
        return bytes(content)
