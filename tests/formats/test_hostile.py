"""Arbitrary bytes: no crash, no endless loop, no gigabytes of memory, no negative extents."""

import lzma
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aligntool.formats.reader import TableReading
from aligntool.formats.tables import read_table
from tests.conftest import SHARED
from tests.formats.gpt_images import entry, gpt_disk, header
from tests.formats.images import MIB, CountingReader, FailingReader, disk, mbr
from tests.formats.mbr_images import bsd_label, chain, solaris_vtoc
from tests.formats.test_other_labels import ENTRIES, apple_map, xgm_disk
from tests.in_memory import BytesReader
from tests.thorough import examples

MOST_PARTITIONS = 8192  # a MiB of GPT entries
MOST_BYTES = 6 * MIB
MOST_REQUESTS = 2000
COMMON = settings(max_examples=examples(150), deadline=2000, suppress_health_check=[HealthCheck.data_too_large])
SECTOR_SIZES = st.sampled_from([None, 512, 1024, 2048, 4096])


def images() -> list[bytes]:
    """Return small disks with a valid table of every kind."""
    made = [
        gpt_disk(entry(200, 299, name=b"a\0b\0") + entry(300, 399), sectors=512),
        gpt_disk(entry(200, 299), sectors=512, pmbr=mbr((0xEE, 1, 33, 0), (0x0C, 200, 100, 0))),
        chain(256 * 1024, (100, 400), (100, mbr((0x83, 10, 20, 0), (0x05, 200, 50, 0))), (300, mbr((0x82, 5, 9, 0)))),
        disk(256 * 1024, (0, mbr((0xA5, 100, 300, 0))), (101 * 512, bsd_label((40, 110, 7), (9, 160, 1)))),
        disk(256 * 1024, (0, mbr((0xBF, 100, 300, 0))), (101 * 512, solaris_vtoc((2, 10, 40)))),
        disk(256 * 1024, (512, bsd_label((40, 110, 7), (9, 160, 1)))),
        apple_map(512, *ENTRIES)[: 256 * 1024],
        xgm_disk((100, 200), (300, 0)),
    ]
    packed = sorted((SHARED / "images").glob("*.img.xz"))
    return made + [lzma.open(path).read(256 * 1024) for path in packed]


IMAGES = images()


def read_within_bounds(content: bytes, sector_size: int | None) -> TableReading:
    counting = CountingReader(BytesReader(content))
    reading = read_table(counting, sector_size=sector_size)
    assert counting.bytes_read <= MOST_BYTES
    assert counting.requests <= MOST_REQUESTS
    assert len(reading.partitions) <= MOST_PARTITIONS
    assert all(part.extent.start >= 0 and part.extent.length > 0 for part in reading.partitions)
    numbers = [part.number for part in reading.partitions]
    assert len(set(numbers)) == len(numbers)
    if reading.table is None:
        assert reading.partitions == ()
    else:
        assert len(reading.table.faults) <= 1000
        assert all(fault.detail and "\n" not in fault.detail for fault in reading.table.faults)
    return reading


@given(content=st.binary(max_size=8192), sector_size=SECTOR_SIZES)
@COMMON
def test_arbitrary_bytes_are_read_within_bounds(content: bytes, sector_size: int | None) -> None:
    read_within_bounds(content, sector_size)


@given(
    image=st.sampled_from(IMAGES),
    patches=st.lists(st.tuples(st.integers(0, 20000), st.binary(min_size=1, max_size=16)), max_size=12),
    sector_size=SECTOR_SIZES,
)
@COMMON
def test_a_damaged_table_of_any_kind_is_read_within_bounds(
    image: bytes, patches: list[tuple[int, bytes]], sector_size: int | None
) -> None:
    content = bytearray(image)
    for at, piece in patches:
        content[at : at + len(piece)] = piece
    read_within_bounds(bytes(content), sector_size)


@given(image=st.sampled_from(IMAGES), length=st.integers(0, 70000), sector_size=SECTOR_SIZES)
@COMMON
def test_a_table_cut_off_anywhere_is_read_within_bounds(image: bytes, length: int, sector_size: int | None) -> None:
    read_within_bounds(image[:length], sector_size)


WORDS = st.one_of(st.integers(0, 600), st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31, 2**32 - 1]))
TYPES = st.sampled_from([0, 5, 0xF, 0x85, 0x83, 0x42, 0x63, 0x81, 0x82, 0xA5, 0xA6, 0xA9, 0xBF, 0xEE])
ENTRY = st.tuples(TYPES, WORDS, WORDS, st.sampled_from([0, 0x80]))


@given(sectors=st.lists(st.lists(ENTRY, max_size=4), min_size=1, max_size=12), sector_size=SECTOR_SIZES)
@COMMON
def test_ebrs_with_arbitrary_links_are_read_within_bounds(
    sectors: list[list[tuple[int, int, int, int]]], sector_size: int | None
) -> None:
    """Every sector of the disk is a table that may point to any other."""
    tables = [mbr(*entries) for entries in sectors]
    read_within_bounds(b"".join(tables) * (600 // len(tables)), sector_size)


LONG = st.one_of(st.integers(0, 600), st.integers(0, 2**64 - 1), st.sampled_from([2**63, 2**64 - 1]))


@given(
    count=st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)),
    entry_size=st.one_of(st.sampled_from([128, 256, 136, 4096]), st.integers(0, 2**32 - 1)),
    lbas=st.tuples(LONG, LONG, LONG, LONG),
    places=st.lists(st.tuples(LONG, LONG), max_size=8),
    checksum=st.booleans(),
    sector_size=SECTOR_SIZES,
)
@COMMON
def test_headers_with_right_checksums_and_any_numbers_are_read_within_bounds(
    count: int,
    entry_size: int,
    lbas: tuple[int, int, int, int],
    places: list[tuple[int, int]],
    checksum: bool,
    sector_size: int | None,
) -> None:
    array = b"".join(entry(first, last) for first, last in places).ljust(128 * 128, b"\0")
    other, entries_lba, first, last = lbas
    numbers = {"count": count, "entry_size": entry_size, "first": first, "last": last}
    broken = header(
        own=1, other=other, entries_lba=entries_lba, crc=None if checksum else 7, entries=array, numbers=numbers
    )
    read_within_bounds(disk(600 * 512, (0, mbr((0xEE, 1, 599, 0))), (512, broken), (1024, array)), sector_size)


def test_eight_thousand_overlapping_entries_give_a_readable_list() -> None:
    entries = b"".join(entry(3000 + number % 7, 90000) for number in range(8192))
    reading = read_within_bounds(gpt_disk(entries, sectors=100000, count=8192), 512)
    assert reading.table is not None and len(reading.partitions) == 8192
    assert len(reading.table.faults) < 200
    assert {number for fault in reading.table.faults for number in fault.partitions} == set(range(1, 8193))


@given(
    image=st.sampled_from(IMAGES),
    bad=st.lists(st.tuples(st.integers(0, 520), st.integers(1, 40)), max_size=4),
    sector_size=SECTOR_SIZES,
)
@COMMON
def test_a_medium_with_unreadable_sectors_never_raises(
    image: bytes, bad: list[tuple[int, int]], sector_size: int | None
) -> None:
    runs = [(start * 512, (start + count) * 512) for start, count in bad]
    read_table(FailingReader(BytesReader(image), runs), sector_size=sector_size)


def test_the_unchanged_images_have_recognised_tables() -> None:
    """Otherwise the mutations above could all start from garbage."""
    labels = {str(reading.table.label) for reading in map(lambda image: read_within_bounds(image, None), IMAGES)
              if reading.table}  # fmt: skip
    assert {"gpt", "dos", "bsd", "mac", "atari"} <= labels


@pytest.mark.parametrize("name", ["sgi", "sun", "dasd-cdl"])
def test_labels_with_checksums_are_read_within_bounds_with_any_bytes_changed(name: str, shared_data: Path) -> None:
    whole = lzma.decompress((shared_data / "images" / f"{name}.img.xz").read_bytes())[: 128 * 1024]
    for at in range(0, 512, 4):
        content = bytearray(whole)
        content[at : at + 4] = struct.pack(">I", 0xFFFFFFFF)
        read_within_bounds(bytes(content), None)
