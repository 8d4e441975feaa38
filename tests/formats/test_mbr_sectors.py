"""An MBR does not state its sector size: what the device reports, and what the disk itself shows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.formats.mbr import protective_mbr
from aligntool.inventory import Fault
from tests.conftest import run
from tests.formats.images import MIB, disk, faults_of, mbr, places, read_bytes, read_image, sfdisk_partitions, table_of
from tests.formats.mbr_images import SCRIPTS

Sparse = Callable[..., Path]


def table_for(sector_size: int, size: int) -> bytes:
    """Return a partition with a FAT-like start and an EBR chain, all in units of `sector_size`."""
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
def test_the_content_of_a_partition_shows_the_sector_size_of_the_table(
    written: int, reported: int | None, faults: list[Fault]
) -> None:
    reading = read_bytes(table_for(written, 4 * MIB), reported)
    assert table_of(reading).sector_size == written
    assert faults_of(reading) == faults
    assert places(reading) == {1: (64, 200), 2: (300, 300), 5: (308, 20)}


def test_a_table_that_fits_only_in_512_byte_sectors_is_read_so_on_a_disk_of_4096() -> None:
    reading = read_bytes(disk(MIB, (0, mbr((0x83, 64, 1984, 0)))), 4096)
    assert table_of(reading).sector_size == 512
    assert faults_of(reading) == [Fault.OTHER_SECTOR_SIZE]


@pytest.mark.parametrize("reported", [512, 4096])
def test_without_evidence_the_reported_sector_size_is_used(reported: int) -> None:
    reading = read_bytes(disk(4 * MIB, (0, mbr((0x83, 64, 100, 0)))), reported)
    assert table_of(reading).sector_size == reported
    assert faults_of(reading) == []


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "losetup")
def test_a_table_of_sfdisk_on_a_4096_byte_loop_device_is_read_as_by_sfdisk(
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


@pytest.mark.needs_tools("sfdisk")
def test_a_protective_mbr_is_the_same_as_that_of_sfdisk(sparse: Sparse) -> None:
    path = sparse(64 * MIB)
    run("sfdisk", path, stdin="label: gpt\n")
    assert protective_mbr(bytes(512), 64 * MIB // 512) == path.read_bytes()[:512]
