"""Sizes that devices report, and which of them are trusted (cases from bug reports; see the sources in
audit/grids.py).
"""

from dataclasses import replace

import pytest

from aligntool.audit.grids import Grade, grade_optimal_io, minimum_io_doubt
from aligntool.inventory import DiskKind, KnownGeometry, Source
from aligntool.units import GIB, KIB, MIB, TIB
from tests.audit.builders import codes, judge, made_disk


@pytest.mark.parametrize(
    ("kind", "physical", "minimum", "optimal", "grade"),
    [
        (DiskKind.USB, 512, 512, 0, Grade.ABSENT),
        (DiskKind.USB, 512, 512, 33553920, Grade.BOGUS),  # util-linux#1221
        (DiskKind.USB, 4096, 4096, 33553920, Grade.BOGUS),
        (DiskKind.SCSI, 4096, 4096, 16773120, Grade.BOGUS),  # SAS drivers, linux-block 2025-06
        (DiskKind.NVME, 512, 512, 33554432, Grade.BOGUS),  # NOWS 65535, azure-vm-utils#99
        (DiskKind.NVME, 4096, 4096, 131072, Grade.PLAUSIBLE),
        (DiskKind.NVME, 4096, 65536, 65536, Grade.PLAUSIBLE),
        (DiskKind.ATA, 4096, 4096, 1000, Grade.BOGUS),
        (DiskKind.SCSI, 512, 65536, 196608, Grade.STRIPE),  # three data disks, util-linux#688
        (DiskKind.MD, 512, 524288, 1572864, Grade.STRIPE),  # RAID0 over three, chunk 512 KiB
        (DiskKind.MD, 512, 524288, 524288 * 100, Grade.STRIPE),
        (DiskKind.MD, 512, 524288, 524288 + 512, Grade.BOGUS),
        (DiskKind.NVME, 4096, 4096, 4 * MIB, Grade.PLAUSIBLE),
        (DiskKind.NVME, 4096, 4096, 8 * MIB, Grade.BOGUS),
    ],
)
def test_optimal_io_sizes_are_graded(kind: DiskKind, physical: int, minimum: int, optimal: int, grade: Grade) -> None:
    disk = made_disk("2048+1000", kind=kind, physical=physical, minimum=minimum, optimal=optimal)
    assert grade_optimal_io(disk)[0] is grade
    report = judge(disk)
    assert ("AT202" in codes(report)) == (grade is Grade.BOGUS)


@pytest.mark.parametrize("optimal", [33553920, 16773120, 33554432, 1000])
def test_a_bogus_optimal_io_size_never_becomes_a_grid(optimal: int) -> None:
    report = judge(made_disk("2048+1000", kind=DiskKind.USB, physical=4096, optimal=optimal))
    assert optimal not in {grid.size for grid in report.judged[0].grids}
    assert "AT105" not in codes(report)


def test_a_partition_that_parted_placed_by_a_bogus_size_is_reported_with_its_cause() -> None:
    report = judge(made_disk("65535+1000", kind=DiskKind.USB, optimal=33553920))
    assert report.findings[0].code.value == "AT101"
    assert "33553920" in (report.findings[0].cause or "")


def test_a_plausible_optimal_io_size_is_at_most_a_note() -> None:
    report = judge(made_disk("2048+1000", kind=DiskKind.NVME, physical=4096, optimal=2 * MIB))
    assert codes(report) == ["AT105"]


@pytest.mark.parametrize(
    ("kind", "physical", "minimum", "doubted"),
    [
        (DiskKind.NVME, 4096, 262144, False),  # Micron 7450: large, but reported by the drive
        (DiskKind.NVME, 512, 16384, False),
        (DiskKind.NVME, 4096, 12288, True),
        (DiskKind.USB, 4096, 33553920, True),
        (DiskKind.SCSI, 512, 196608, False),
        (DiskKind.SCSI, 4096, 6144, True),
        (DiskKind.MD, 4096, 327680, False),
        (DiskKind.ATA, 4096, 512, False),
        (DiskKind.ATA, 4096, 16 * MIB, False),
        (DiskKind.ATA, 4096, 64 * MIB, True),
    ],
)
def test_implausible_minimum_io_sizes_are_not_used(kind: DiskKind, physical: int, minimum: int, doubted: bool) -> None:
    disk = made_disk("2048+1000", kind=kind, physical=physical, minimum=minimum)
    assert bool(minimum_io_doubt(disk)) == doubted
    assert ("AT205" in codes(judge(disk))) == doubted


def test_the_larger_of_two_contradictory_sector_sizes_is_used() -> None:
    from aligntool.inventory import AtaFacts

    disk = replace(made_disk("63+1000"), ata=AtaFacts(512, 4096))
    report = judge(disk)
    assert report.findings[0].code.value == "AT101"
    assert "AT209" in codes(report)


def test_a_large_unit_is_reported_with_its_amplification() -> None:
    report = judge(made_disk("2048+1000", kind=DiskKind.NVME, rotational=False, physical=4096, minimum=16 * KIB))
    finding = next(finding for finding in report.findings if finding.code.value == "AT207")
    assert "4 times" in finding.summary


def test_a_limit_that_the_database_distrusts_is_not_a_grid() -> None:
    row = KnownGeometry(Source.KNOWN, "Micron 7450", "…", "high", distrust=("minimum_io_size",))
    disk = made_disk("128+1000", kind=DiskKind.NVME, rotational=False, physical=4096, minimum=262144)
    assert "AT101" in codes(judge(disk))
    report = judge(disk, known=(row,))
    assert "AT101" not in codes(report) and "AT205" in codes(report)


def test_a_bogus_size_that_the_database_distrusts_too_is_reported_once() -> None:
    row = KnownGeometry(Source.KNOWN, "Azure NVMe", "…", "medium", distrust=("optimal_io_size",))
    disk = made_disk("2048+1000", kind=DiskKind.NVME, rotational=False, physical=4096, optimal=33554432)
    assert codes(judge(disk, known=(row,))).count("AT202") == 1


def test_a_drive_known_to_have_512_byte_sectors_is_trusted_whatever_its_size() -> None:
    row = KnownGeometry(Source.KNOWN, "Exos 7E8 512n", "data sheet", "high", physical_block_size=512)
    report = judge(made_disk("63+1000", size=8 * TIB), known=(row,))
    assert codes(report) == ["AT106"]
    assert report.judged[0].grids[0].source is Source.KNOWN


@pytest.mark.parametrize("physical", [0, 3, 4096000, 32 * MIB, 2 * GIB])
def test_an_implausible_physical_sector_size_is_not_a_grid_and_is_the_reason_given(physical: int) -> None:
    report = judge(made_disk("63+1000; 2048+1000", physical=physical))  # READ CAPACITY (16) has an exponent of 4 bits
    assert report.judged[0].grids[0].size == 4096
    (assumed,) = (finding.summary for finding in report.findings if finding.code.value == "AT204")
    assert "no plausible sector size is reported" in assumed


def test_the_reason_for_a_bogus_size_states_it_in_sectors() -> None:
    usb = made_disk("2048+1000", kind=DiskKind.USB, optimal=33553920)
    assert "65535 sectors of 512 bytes" in grade_optimal_io(usb)[1]
    usb_4k = made_disk("2048+1000", kind=DiskKind.USB, logical=4096, physical=4096, optimal=0xFFFF * 4096)
    assert "65535 sectors of 4096 bytes" in grade_optimal_io(usb_4k)[1]


def test_a_unit_of_4_kib_is_not_reported_as_large() -> None:
    disk = made_disk("2048+1000", kind=DiskKind.NVME, rotational=False, physical=512, minimum=4096)
    assert "AT207" not in codes(judge(disk))
