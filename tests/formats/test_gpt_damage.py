"""GPT disks that were damaged, grown, truncated, overwritten or made hybrid; compared with sgdisk and sfdisk."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import Fault, TableCopyState, TableLabel
from tests.conftest import run
from tests.formats.gpt_images import SIZE, make_gpt
from tests.formats.images import (
    MIB,
    detail_of,
    faults_of,
    flip,
    mbr,
    patch,
    places,
    read_image,
    sfdisk,
    sfdisk_partitions,
    sgdisk_verify,
    table_of,
)

pytestmark = pytest.mark.needs_tools("sgdisk", "sfdisk")
Sparse = Callable[..., Path]


def sgdisk_states(path: Path) -> dict[str, bool]:
    """Return which of the four parts sgdisk finds valid.

    It lists them only if one is not, and for a header with an odd entry size it prints a sentence instead.
    """
    said = sgdisk_verify(path)
    states = dict(re.findall(r"^((?:Main|Backup) (?:header|partition table)): (OK|ERROR)$", said, re.M))
    for name in re.findall(r"The CRC for the (main|backup) GPT header is invalid", said):
        states[f"{name.capitalize()} header"] = "ERROR"
    parts = ("Main header", "Backup header", "Main partition table", "Backup partition table")
    return {part: states.get(part, "OK") == "OK" for part in parts}


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
def test_one_wrong_byte_is_found_in_the_copy_where_sgdisk_finds_it(offset: int, name: str, sparse: Sparse) -> None:
    path = make_gpt(sparse)
    whole = read_image(path)
    flip(path, offset)
    states, reading = sgdisk_states(path), read_image(path)
    table = table_of(reading)
    primary, backup = table.copies
    assert (primary.state is TableCopyState.GOOD) == (states["Main header"] and states["Main partition table"])
    assert (backup.state is TableCopyState.GOOD) == (states["Backup header"] and states["Backup partition table"])
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
def test_the_state_shows_which_checksum_is_wrong(offset: int, state: TableCopyState, sparse: Sparse) -> None:
    path = make_gpt(sparse)
    flip(path, offset)
    table = table_of(read_image(path))
    assert table.copies[0].state is state
    if state is TableCopyState.ENTRIES_CRC_BAD:
        expected = "the primary GPT header at sector 1 has entries at sector 2 with a wrong checksum; Linux then"
        assert table.faults[0].detail.startswith(expected)


def test_with_both_copies_damaged_the_entries_are_still_listed(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    whole = read_image(path)
    for offset in (1024 + 60, -33 * 512 + 60):
        flip(path, offset)
    reading = read_image(path)
    assert faults_of(reading) == [Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED]
    assert places(reading) == places(whole)


def test_with_both_gpt_headers_erased_its_mbr_is_shown(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    patch(path, 512, bytes(512))
    patch(path, SIZE - 512, bytes(512))
    reading = read_image(path)
    assert table_of(reading).label is TableLabel.DOS
    assert [copy.state for copy in table_of(reading).copies] == [TableCopyState.MISSING] * 2
    assert faults_of(reading) == [Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED]
    assert places(reading) == {number: (part.start, part.size) for number, part in sfdisk_partitions(path).items()}


def test_the_backup_of_a_grown_disk_is_misplaced(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    with path.open("r+b") as file:
        file.truncate(80 * MIB)
    assert "doesn't reside" in sgdisk_verify(path)
    reading = read_image(path)
    assert faults_of(reading) == [Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR]
    assert [copy.state for copy in table_of(reading).copies] == [TableCopyState.GOOD] * 2
    assert table_of(reading).copies[1].at == SIZE - 512


def test_on_a_grown_disk_with_a_damaged_primary_the_backup_is_still_found(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    whole = read_image(path)
    with path.open("r+b") as file:
        file.truncate(80 * MIB)
    patch(path, 512, bytes(512 * 33))
    assert table_of(read_image(path)).label is TableLabel.DOS  # nothing at LBA 1, nothing at the end: no tool finds it
    patch(path, 512, b"EFI PART")
    reading = read_image(path)
    assert reading.partitions == whole.partitions
    assert {Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_MISPLACED} <= set(faults_of(reading))


def test_a_truncated_disk_is_reported_and_partitions_beyond_its_end_are_listed(sparse: Sparse) -> None:
    path = make_gpt(sparse, "-n1:2048:+10M", "-n2:0:0")
    with path.open("r+b") as file:
        file.truncate(40 * MIB)
    assert "too small" in sgdisk_verify(path)
    faults = faults_of(read_image(path))
    assert {Fault.GPT_BACKUP_MISPLACED, Fault.GPT_BACKUP_DAMAGED, Fault.BEYOND_END} <= set(faults)
    assert sorted(places(read_image(path))) == [1, 2]


def test_the_backup_of_an_older_table_in_the_last_sector_is_not_used(sparse: Sparse) -> None:
    """A small image written onto a disk that had its own GPT: the last sector still contains the backup of that one."""
    large, small = make_gpt(sparse, size=80 * MIB), make_gpt(sparse, name="small.img")
    patch(large, 0, small.read_bytes()[:-512])
    reading = read_image(large)
    assert table_of(reading).disk_id == table_of(read_image(small)).disk_id
    assert {Fault.GPT_BACKUP_DAMAGED, Fault.GPT_BACKUP_MISPLACED} <= set(faults_of(reading))
    assert Fault.GPT_COPIES_DIFFER not in faults_of(reading)


def test_two_valid_copies_that_differ_are_reported_with_the_partitions(sparse: Sparse) -> None:
    one, two = (
        make_gpt(sparse),
        make_gpt(sparse, "-n1:2048:+10M", "-n2:0:+20M", "-t2:8200", "-c1:one", name="two.img"),
    )
    patch(one, SIZE - 33 * 512, two.read_bytes()[-33 * 512 :])
    assert "differ" in sgdisk_verify(one)
    reading = read_image(one)
    assert faults_of(reading) == [Fault.GPT_COPIES_DIFFER]
    assert table_of(reading).faults[0].partitions == (1, 2)
    assert places(reading)[2][1] * 512 == 10 * MIB, "the primary is believed"


def test_a_missing_protective_mbr_is_a_fault_and_the_partitions_are_listed(sparse: Sparse) -> None:
    path = make_gpt(sparse)
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
    [(SIZE // 512 - 1, True), (0xFFFFFFFF, True), (SIZE // 512, False), (1000, False), (SIZE // 512 - 2, False)],
)
def test_two_sizes_of_the_protective_entry_are_valid(sectors: int, right: bool, sparse: Sparse) -> None:
    path = make_gpt(sparse)
    patch(path, 0, mbr((0xEE, 1, sectors, 0)))
    assert (Fault.PROTECTIVE_MBR in faults_of(read_image(path))) is not right


def test_a_protective_entry_that_starts_elsewhere_is_a_fault(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    patch(path, 0, mbr((0xEE, 2, SIZE // 512 - 2, 0)))
    assert faults_of(read_image(path))[0] is Fault.PROTECTIVE_MBR


def test_the_protective_entry_at_sector_1_is_the_one_that_is_checked(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    patch(path, 0, mbr((0xEE, 34, 2000, 0), (0xEE, 1, SIZE // 512 - 1, 0)))
    assert faults_of(read_image(path)) == []


def test_an_ordinary_mbr_over_a_leftover_gpt_has_precedence_as_in_linux(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    patch(path, 0, mbr((0x83, 2048, 4096, 0)))
    reading = read_image(path)
    assert table_of(reading).label == sfdisk(path)["label"] == "dos"
    assert faults_of(reading) == [Fault.PROTECTIVE_MBR]
    assert places(reading) == {1: (2048, 4096)}


def test_a_backup_alone_on_a_disk_with_an_empty_start_is_a_damaged_table(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    patch(path, 0, bytes(512 * 34))
    assert "does not contain" in _sfdisk_refusal(path)
    assert set(faults_of(read_image(path))) == {Fault.GPT_PRIMARY_DAMAGED, Fault.PROTECTIVE_MBR}


def test_the_partitions_listed_in_a_hybrid_mbr_are_reported(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    run("sgdisk", "-h2", path)
    reading = read_image(path)
    assert table_of(reading).hybrid and table_of(reading).label is TableLabel.GPT
    assert faults_of(reading) == [Fault.HYBRID_MBR]
    assert table_of(reading).faults[0].partitions == (2,)
    patch(path, 0, mbr((0xEE, 1, 33, 0), (0x0C, 4096, 100, 0)))
    assert "is not a GPT partition" in detail_of(read_image(path), Fault.HYBRID_MBR)
