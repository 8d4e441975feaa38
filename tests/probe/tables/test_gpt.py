"""GPT: whole, damaged, moved, hybrid; judged against sgdisk and sfdisk on the same bytes."""

import functools
import os
import re
import struct
import tempfile
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import Fault, Role, TableCopyState, TableLabel
from aligntool.probe.reader import BytesReader
from aligntool.probe.tables import read_table
from tests.conftest import run
from tests.probe.tables.images import (
    MIB,
    CountingReader,
    FailingReader,
    detail_of,
    disk,
    faults_of,
    flip,
    mbr,
    patch,
    places,
    read_bytes,
    read_image,
    sfdisk,
    sfdisk_partitions,
    sgdisk_verify,
    table_of,
)

pytestmark = pytest.mark.needs_tools("sgdisk", "sfdisk")
Sparse = Callable[..., Path]
SIZE = 64 * MIB
LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"


def make(sparse: Sparse, *options: str, size: int = SIZE, name: str = "disk.img") -> Path:
    path = sparse(size, name)
    start, end = made_by_sgdisk(options or ("-n1:2048:+10M", "-n2:0:+10M", "-t2:8200", "-c1:one"), size)
    patch(path, 0, start)
    patch(path, size - len(end), end)
    return path


@functools.cache
def made_by_sgdisk(options: tuple[str, ...], size: int) -> tuple[bytes, bytes]:
    """The first and the last 64 KiB. Kept, because sgdisk sleeps for a second after each time it writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "disk.img"
        path.touch()
        os.truncate(path, size)
        run("sgdisk", *options, path)
        with path.open("rb") as file:
            start = file.read(65536)
            file.seek(-65536, os.SEEK_END)
            return start, file.read()


def sgdisk_states(path: Path) -> dict[str, bool]:
    """Which of the four parts sgdisk finds good.

    It lists them only when one is not, and for a header with an odd entry size it says a sentence instead.
    """
    said = sgdisk_verify(path)
    states = dict(re.findall(r"^((?:Main|Backup) (?:header|partition table)): (OK|ERROR)$", said, re.M))
    for name in re.findall(r"The CRC for the (main|backup) GPT header is invalid", said):
        states[f"{name.capitalize()} header"] = "ERROR"
    parts = ("Main header", "Backup header", "Main partition table", "Backup partition table")
    return {part: states.get(part, "OK") == "OK" for part in parts}


def header(
    *,
    own: int,
    other: int,
    entries_lba: int,
    entries: bytes = b"",
    crc: int | None = None,
    numbers: dict[str, int] | None = None,
) -> bytes:
    """A header after the UEFI specification, table 5-5, with a right checksum.

    `numbers`: what is not as usual of first and last (usable), count and entry_size; `crc`: one for the entries.
    """
    usual = {"first": 34, "last": 2014, "count": 128, "entry_size": 128} | (numbers or {})
    entries_crc = zlib.crc32(entries) if crc is None else crc
    limits = struct.pack("<QQ", usual["first"], usual["last"])
    array = struct.pack("<QIII", entries_lba, usual["count"], usual["entry_size"], entries_crc)
    fields = struct.pack("<QQ", own, other) + limits + bytes(range(16)) + array
    blank = b"EFI PART" + struct.pack("<IIII", 0x10000, 92, 0, 0) + fields
    return blank[:16] + struct.pack("<I", zlib.crc32(blank)) + blank[20:]


def entry(start: int, last: int, *, name: bytes = b"", attributes: int = 0, kind: str = LINUX) -> bytes:
    ids = uuid.UUID(kind).bytes_le + uuid.UUID(int=start + 1).bytes_le
    return ids + struct.pack("<QQQ", start, last, attributes) + name.ljust(72, b"\0")


def gpt_disk(
    entries: bytes, *, sectors: int = 2048, count: int = 128, entry_size: int = 128, pmbr: bytes = b""
) -> bytes:
    """A disk of 512-byte sectors whose two copies are both right."""
    array = entries.ljust(count * entry_size, b"\0")
    length = -(-len(array) // 512)
    numbers = {"first": 2 + length, "last": sectors - length - 2, "count": count, "entry_size": entry_size}
    primary = header(own=1, other=sectors - 1, entries_lba=2, entries=array, numbers=numbers)
    backup = header(
        own=sectors - 1, other=1, entries_lba=sectors - 1 - length, entries=array, numbers=numbers
    )
    return disk(
        sectors * 512,
        (0, pmbr or mbr((0xEE, 1, sectors - 1, 0))),
        (512, primary),
        (1024, array),
        ((sectors - 1 - length) * 512, array),
        ((sectors - 1) * 512, backup),
    )


def test_every_field_is_what_sfdisk_says(sparse: Sparse) -> None:
    path = make(
        sparse,
        "-a1",
        "-n1:34:2047",
        "-t1:ef02",
        "-n2:2048:+8M",
        "-c2:Grüße 💾",
        "-t2:8300",
        "-A2:set:60",
        "-n9:0:+3M",
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
    path = make(
        sparse, "-n1:0:+1M", "-t1:0700", "-A1:set:60", "-A1:set:62", "-A1:set:63", "-A1:set:0",
        "-n2:0:+1M", "-t2:8300", "-A2:set:2", "-A2:set:59", "-n3:0:+1M", "-t3:af00", "-A3:set:50",
    )  # fmt: skip
    assert [part.flags for part in read_image(path).partitions] == [
        ("required", "read-only", "hidden", "no-automount"),
        ("legacy-boot", "grow-file-system"),
        ("guid:50",),
    ]


# Bytes in each part of both copies: signature, sizes, checksums, LBAs, GUID; type, start, name of entries, empty ones.
HEADER_BYTES = (0, 7, 12, 16, 24, 32, 40, 48, 56, 72, 80, 84, 88)
ENTRY_BYTES = (0, 16, 32, 40, 60, 128, 200, 5000, 16383)
DAMAGE = [
    *((512 + at, "primary") for at in HEADER_BYTES),
    *((1024 + at, "primary") for at in ENTRY_BYTES),
    *((-512 + at, "backup") for at in HEADER_BYTES),
    *((-33 * 512 + at, "backup") for at in ENTRY_BYTES),
]


@pytest.mark.parametrize(("offset", "name"), DAMAGE)
def test_one_wrong_byte_is_found_where_sgdisk_finds_it(offset: int, name: str, sparse: Sparse) -> None:
    path = make(sparse)
    whole = read_image(path)
    flip(path, offset)
    states, reading = sgdisk_states(path), read_image(path)
    table = table_of(reading)
    primary, backup = table.copies
    assert (primary.state is TableCopyState.GOOD) == (
        states["Main header"] and states["Main partition table"]
    )
    assert (backup.state is TableCopyState.GOOD) == (
        states["Backup header"] and states["Backup partition table"]
    )
    kind = Fault.GPT_PRIMARY_DAMAGED if name == "primary" else Fault.GPT_BACKUP_DAMAGED
    assert faults_of(reading) == [kind]
    assert reading.partitions == whole.partitions, "the other copy has them all"


@pytest.mark.parametrize(
    ("offset", "state"),
    [
        (512 + 16, TableCopyState.HEADER_CRC_BAD),
        (512 + 13, TableCopyState.MALFORMED),
        (512, TableCopyState.MISSING),
        (1024 + 60, TableCopyState.ENTRIES_CRC_BAD),
    ],
)
def test_the_state_says_which_checksum_is_wrong(offset: int, state: TableCopyState, sparse: Sparse) -> None:
    path = make(sparse)
    flip(path, offset)
    assert table_of(read_image(path)).copies[0].state is state


def test_with_both_copies_damaged_the_entries_are_still_listed(sparse: Sparse) -> None:
    path = make(sparse)
    whole = read_image(path)
    for offset in (1024 + 60, -33 * 512 + 60):
        flip(path, offset)
    reading = read_image(path)
    assert faults_of(reading) == [Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED]
    assert places(reading) == places(whole)


def test_with_nothing_left_of_the_gpt_its_mbr_is_shown(sparse: Sparse) -> None:
    path = make(sparse)
    patch(path, 512, bytes(512))
    patch(path, SIZE - 512, bytes(512))
    reading = read_image(path)
    assert table_of(reading).label is TableLabel.DOS
    assert [copy.state for copy in table_of(reading).copies] == [TableCopyState.MISSING] * 2
    assert faults_of(reading) == [Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED]
    assert places(reading) == {
        number: (part.start, part.size) for number, part in sfdisk_partitions(path).items()
    }


def test_a_grown_disk_has_its_backup_misplaced(sparse: Sparse) -> None:
    path = make(sparse)
    with path.open("r+b") as file:
        file.truncate(80 * MIB)
    assert "doesn't reside" in sgdisk_verify(path)
    reading = read_image(path)
    assert faults_of(reading) == [Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR]
    assert [copy.state for copy in table_of(reading).copies] == [TableCopyState.GOOD] * 2
    assert table_of(reading).copies[1].at == SIZE - 512


def test_on_a_grown_disk_with_a_damaged_primary_the_backup_is_found_all_the_same(sparse: Sparse) -> None:
    path = make(sparse)
    whole = read_image(path)
    with path.open("r+b") as file:
        file.truncate(80 * MIB)
    patch(path, 512, bytes(512 * 33))
    assert (
        table_of(read_image(path)).label is TableLabel.DOS
    )  # nothing at LBA 1, nothing at the end: nobody finds it
    patch(path, 512, b"EFI PART")
    reading = read_image(path)
    assert reading.partitions == whole.partitions
    assert {Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_MISPLACED} <= set(faults_of(reading))


def test_a_cut_off_disk_says_so_and_lists_what_reaches_beyond_its_end(sparse: Sparse) -> None:
    path = make(sparse, "-n1:2048:+10M", "-n2:0:0")
    with path.open("r+b") as file:
        file.truncate(40 * MIB)
    assert "too small" in sgdisk_verify(path)
    faults = faults_of(read_image(path))
    assert {Fault.GPT_BACKUP_MISPLACED, Fault.GPT_BACKUP_DAMAGED, Fault.BEYOND_END} <= set(faults)
    assert sorted(places(read_image(path))) == [1, 2]


def test_an_older_tables_leftover_in_the_last_sector_is_not_taken_for_the_backup(sparse: Sparse) -> None:
    """A small image written onto a disk that had a GPT of its own: the last sector still holds that one's backup."""
    large, small = make(sparse, size=80 * MIB), make(sparse, name="small.img")
    patch(large, 0, small.read_bytes()[:-512])
    reading = read_image(large)
    assert table_of(reading).disk_id == table_of(read_image(small)).disk_id
    assert {Fault.GPT_BACKUP_DAMAGED, Fault.GPT_BACKUP_MISPLACED} <= set(faults_of(reading))
    assert Fault.GPT_COPIES_DIFFER not in faults_of(reading)


def test_two_valid_copies_that_disagree_are_named_with_the_partitions(sparse: Sparse) -> None:
    one, two = (
        make(sparse),
        make(sparse, "-n1:2048:+10M", "-n2:0:+20M", "-t2:8200", "-c1:one", name="two.img"),
    )
    patch(one, SIZE - 33 * 512, two.read_bytes()[-33 * 512 :])
    assert "differ" in sgdisk_verify(one)
    reading = read_image(one)
    assert faults_of(reading) == [Fault.GPT_COPIES_DIFFER]
    assert table_of(reading).faults[0].partitions == (1, 2)
    assert places(reading)[2][1] * 512 == 10 * MIB, "the primary is believed"


def test_a_missing_protective_mbr_is_a_fault_and_the_partitions_are_listed(sparse: Sparse) -> None:
    path = make(sparse)
    whole = read_image(path)
    patch(path, 0, bytes(512))
    assert "does not contain" in _sfdisk_refusal(path)
    reading = read_image(path)
    assert faults_of(reading) == [Fault.PROTECTIVE_MBR]
    assert "`gpt`" in table_of(reading).faults[0].detail
    assert reading.partitions == whole.partitions


def _sfdisk_refusal(path: Path) -> str:
    try:
        return run("sfdisk", "--json", path)
    except AssertionError as refusal:
        return str(refusal)


@pytest.mark.parametrize(
    ("sectors", "right"),
    [
        (SIZE // 512 - 1, True),
        (0xFFFFFFFF, True),
        (SIZE // 512, False),
        (1000, False),
        (SIZE // 512 - 2, False),
    ],
)
def test_the_protective_mbr_has_two_right_sizes(sectors: int, right: bool, sparse: Sparse) -> None:
    path = make(sparse)
    patch(path, 0, mbr((0xEE, 1, sectors, 0)))
    assert (Fault.PROTECTIVE_MBR in faults_of(read_image(path))) is not right


def test_a_protective_entry_that_starts_elsewhere_is_a_fault(sparse: Sparse) -> None:
    path = make(sparse)
    patch(path, 0, mbr((0xEE, 2, SIZE // 512 - 2, 0)))
    assert faults_of(read_image(path))[0] is Fault.PROTECTIVE_MBR


def test_an_ordinary_mbr_over_a_leftover_gpt_wins_as_in_linux(sparse: Sparse) -> None:
    path = make(sparse)
    patch(path, 0, mbr((0x83, 2048, 4096, 0)))
    reading = read_image(path)
    assert table_of(reading).label == sfdisk(path)["label"] == "dos"
    assert faults_of(reading) == [Fault.PROTECTIVE_MBR]
    assert places(reading) == {1: (2048, 4096)}


def test_a_leftover_backup_alone_is_no_table(sparse: Sparse) -> None:
    path = make(sparse)
    patch(path, 0, bytes(512 * 34))
    assert "does not contain" in _sfdisk_refusal(path)
    assert read_image(path).table is None


def test_a_hybrid_mbr_names_the_partitions_that_it_mirrors(sparse: Sparse) -> None:
    path = make(sparse)
    run("sgdisk", "-h2", path)
    reading = read_image(path)
    assert table_of(reading).hybrid and table_of(reading).label is TableLabel.GPT
    assert faults_of(reading) == [Fault.HYBRID_MBR]
    assert table_of(reading).faults[0].partitions == (2,)
    patch(path, 0, mbr((0xEE, 1, 33, 0), (0x0C, 4096, 100, 0)))
    assert "is no GPT partition" in detail_of(read_image(path), Fault.HYBRID_MBR)


@pytest.mark.parametrize("kind", ["4200", "4201"])
def test_ldm_partitions_make_a_dynamic_disk(kind: str, sparse: Sparse) -> None:
    path = make(sparse, "-n1:0:+1M", f"-t1:{kind}")
    reading = read_image(path)
    assert faults_of(reading) == [Fault.DYNAMIC_DISK]
    assert reading.partitions[0].type_name.startswith("Windows LDM")


@pytest.mark.parametrize("entry_size", [128, 256, 136, 4096])
def test_larger_entries_are_read_and_said_to_be_unreadable_for_linux(entry_size: int) -> None:
    first, second = entry(200, 299, name="a".encode("utf-16-le")), entry(300, 399)
    entries = first.ljust(entry_size, b"\0") + second.ljust(entry_size, b"\0")
    reading = read_bytes(gpt_disk(entries, count=16, entry_size=entry_size))
    assert places(reading) == {1: (200, 100), 2: (300, 100)}
    assert reading.partitions[0].name == "a"
    assert (Fault.IMPLAUSIBLE_COUNT in faults_of(reading)) is (entry_size != 128)


@pytest.mark.parametrize("entry_size", [0, 1, 64, 127, 130, 8192, 0xFFFFFFFF])
def test_an_impossible_entry_size_makes_a_malformed_copy(entry_size: int) -> None:
    broken = header(own=1, other=2047, entries_lba=2, numbers={"entry_size": entry_size})
    reading = read_bytes(disk(MIB, (0, mbr((0xEE, 1, 2047, 0))), (512, broken)))
    assert table_of(reading).copies[0].state is TableCopyState.MALFORMED


@pytest.mark.parametrize("count", [8193, 2**20, 2**32 - 1])
def test_a_huge_count_is_bounded_and_said(count: int) -> None:
    broken = header(own=1, other=2047, entries_lba=2, numbers={"count": count})
    content = disk(8 * MIB, (0, mbr((0xEE, 1, 16383, 0))), (512, broken), (1024, entry(40, 99)))
    counting = CountingReader(BytesReader(content))
    reading = read_table(counting, sector_size=512)
    assert Fault.IMPLAUSIBLE_COUNT in faults_of(reading)
    assert places(reading) == {1: (40, 60)}
    assert counting.bytes_read < 3 * MIB


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
def test_a_bad_entry_is_a_fault_with_its_number(
    entries: bytes, fault: Fault, numbers: tuple[int, ...]
) -> None:
    reading = read_bytes(gpt_disk(entries))
    found = next(item for item in table_of(reading).faults if item.fault is fault)
    assert found.partitions == numbers


def test_a_partition_on_the_tables_own_place_is_outside_even_if_the_header_calls_it_usable() -> None:
    array = entry(2, 100).ljust(128 * 128, b"\0")
    primary = header(own=1, other=2047, entries_lba=2, entries=array, numbers={"first": 1})
    content = disk(MIB, (0, mbr((0xEE, 1, 2047, 0))), (512, primary), (1024, array))
    assert "partition table itself" in detail_of(read_bytes(content), Fault.OUTSIDE_USABLE)


def test_half_a_surrogate_pair_in_a_name_is_readable() -> None:
    reading = read_bytes(gpt_disk(entry(200, 299, name=b"\x00\xd8A\x00")))
    assert reading.partitions[0].name == "\ufffdA"


def test_partitions_above_255_are_said_to_be_invisible() -> None:
    entries = b"".join(entry(600 + number, 600 + number) for number in range(300))
    reading = read_bytes(gpt_disk(entries, sectors=8192, count=300))
    found = next(item for item in table_of(reading).faults if item.fault is Fault.IMPLAUSIBLE_COUNT)
    assert found.partitions == tuple(range(256, 301))


@pytest.mark.parametrize("sector_size", [512, 1024, 2048, 4096])
@pytest.mark.parametrize("reported", [None, 512, 4096])
def test_the_header_tells_the_sector_size_it_was_written_for(sector_size: int, reported: int | None) -> None:
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


def test_an_unreadable_primary_leaves_the_backup(sparse: Sparse) -> None:
    path = make(sparse)
    content = path.read_bytes()
    whole = read_bytes(content)
    for bad in ((512, 1024), (1024, 1536), (0, 512)):
        reading = read_table(FailingReader(BytesReader(content), (bad,)), sector_size=512)
        assert reading.partitions == whole.partitions
        assert table_of(reading).faults
    everything = read_table(FailingReader(BytesReader(content), ((0, SIZE),)), sector_size=512)
    assert faults_of(everything) == [Fault.UNREADABLE]
    assert everything.partitions == ()


def test_a_16_tib_disk_costs_a_few_hundred_kib_at_most() -> None:
    """A sparse disk: only what is asked for exists."""

    sectors = 2**35
    array = entry(2048, 2**34).ljust(128 * 128, b"\0")
    pieces = {
        0: mbr((0xEE, 1, 0xFFFFFFFF, 0)),
        512: header(
            own=1, other=sectors - 1, entries_lba=2, entries=array, numbers={"last": sectors - 34}
        ).ljust(512, b"\0"),
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
