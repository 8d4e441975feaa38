"""Captured machines, audited without their disks, against what other programs printed there.

README.md describes how they were captured. The machines with NVMe drives and with arrays have files of their own.
"""

import pytest

from aligntool.audit.report import Answer, GridKind, Severity
from aligntool.inventory import DiskKind
from tests.audit.machines.captured import HERE, answers, disk, judged, names, report
from tests.thorough import sample

SHIFTED, BUSES = "lowest-aligned-7", "sata-usb-and-sd-card"


@sample(1)
@pytest.mark.parametrize("machine", sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz")))
def test_information_that_a_snapshot_lacks_is_reported_for_every_disk(machine: str) -> None:
    for one in report(machine).judged:
        assert any("captured tree" in unseen.why for unseen in one.disk.unseen)


@pytest.mark.parametrize("machine", ["lowest-aligned-7", "md-on-misaligned-partitions"])
def test_every_misaligned_start_has_a_finding_also_if_its_disk_is_audited_alone(machine: str) -> None:
    seen = 0
    for one in report(machine).judged:
        name = one.disk.name
        for audited in (report(machine), report(machine, name)):
            (alone,) = (each for each in audited.judged if each.disk.name == name)
            faults = (one for one in audited.findings if one.disk == name and one.severity is not Severity.INFO)
            found = {finding.partition for finding in faults}
            off = {verdict.partition for verdict in alone.verdicts if verdict.answer is Answer.OFF and verdict.matters}
            assert off <= found, name
            seen += len(off)
    assert seen


# lowest-aligned-7 --------------------------------------------------------------------------------------------------

# number: (start in sectors, alignment_offset in sysfs, exit code of `parted align-check minimal`)
STARTS = {
    1: (34, 2560, 1), 2: (63, 0, 0), 3: (2048, 3584, 1), 5: (4167, 0, 0), 6: (6152, 3584, 1), 7: (10303, 0, 0),
    8: (12288, 3584, 1),
}  # fmt: skip


def test_on_a_shifted_disk_the_kernel_parted_and_aligntool_agree() -> None:
    one = judged(SHIFTED, "sda")
    for number, (start, offset, exit_code) in STARTS.items():
        verdict = one.by_partition().get(number)
        assert verdict is not None and verdict.start == start * 512
        physical = verdict.checks[0]
        assert (physical.grid.size, physical.grid.phase) == (4096, 3584)
        assert (offset == 0) == (exit_code == 0) == physical.on
        assert physical.off_by == -offset % 4096  # the kernel counts up to the next boundary


def test_the_extended_partition_of_a_shifted_disk_is_not_judged() -> None:
    """The kernel's alignment_offset of sda4 is 3584: it holds no data."""
    assert judged(SHIFTED, "sda").by_partition().get(4) is None
    assert next(part for part in disk(SHIFTED, "sda").partitions if part.number == 4).type_code == "0x05"


# sata-usb-and-sd-card ----------------------------------------------------------------------------------------------

# lsblk -J -O -b: tran (or the driver where it is empty), size, log-sec, phy-sec, rota, rm, ro
LSBLK = {
    "mmcblk0": (DiskKind.SD, 268435456, 512, 512, False, False, False),
    "sda": (DiskKind.VIRTIO, 268435456, 512, 4096, False, False, False),
    "sdb": (DiskKind.VIRTIO, 0, 512, 512, True, True, False),
    "sdc": (DiskKind.SCSI, 268435456, 512, 512, True, False, False),
    "sdd": (DiskKind.ATA, 268435456, 512, 4096, True, False, False),
    "sde": (DiskKind.ATA, 268435456, 512, 512, False, False, False),
    "sdf": (DiskKind.ATA, 268435456, 512, 512, True, False, False),
    "sdg": (DiskKind.ATA, 3298534883328, 512, 512, True, False, False),
    "sdh": (DiskKind.USB, 268435456, 512, 4096, True, False, False),
    "sdi": (DiskKind.USB, 268435456, 512, 512, True, True, False),
    "vda": (DiskKind.VIRTIO, 268435456, 4096, 4096, True, False, False),
    "vdb": (DiskKind.VIRTIO, 268435456, 512, 512, True, False, True),
}
# hdparm -I: model, logical and physical sector, nominal media rotation rate (1: solid state), queue depth
HDPARM = {
    "sdd": ("QEMU HARDDISK", 512, 4096, 7200, 32),
    "sde": ("QEMU HARDDISK", 512, 512, 1, 32),
    "sdf": ("WDC WD20EARS-00MVWB0", 512, 512, 5400, 32),
    "sdg": ("QEMU HARDDISK", 512, 512, 7200, 32),
}
# parted align-check minimal of partition 1 (sector 63; on vda block 8) and 2 (sector 102400; on vda block 256)
PARTED = {
    "mmcblk0": (0, 0), "sda": (1, 0), "sdc": (0, 0), "sdd": (1, 0), "sde": (0, 0), "sdf": (0, 0), "sdg": (0, 0),
    "sdh": (1, 0), "sdi": (0, 0), "vda": (0, 0), "vdb": (0, 0),
}  # fmt: skip
# Disks for which parted believes 512 bytes and aligntool does not, and why (docs/cli.md)
DISBELIEVED = {
    "sdc": "assumed",  # nothing shows that it is one drive
    "mmcblk0": "assumed",
    "sde": "assumed",
    "sdf": "known",
    "sdg": "assumed",
    "sdi": "assumed",
    "vdb": "assumed",
}


def test_optical_and_floppy_drives_are_omitted() -> None:
    """lsblk lists fd0, sr0 and sr1 in addition."""
    assert names(BUSES) == set(LSBLK)


@pytest.mark.parametrize("name", LSBLK)
def test_disks_have_the_properties_that_lsblk_printed(name: str) -> None:
    kind, size, logical, physical, rotating, removable, read_only = LSBLK[name]
    one = disk(BUSES, name)
    assert (one.kind, one.size, one.rotational) == (kind, size, rotating)
    assert (one.limits.logical_block_size, one.limits.physical_block_size) == (logical, physical)
    assert (one.removable, one.read_only) == (removable, read_only)


@pytest.mark.parametrize("name", HDPARM)
def test_ata_disks_have_the_properties_that_hdparm_printed(name: str) -> None:
    model, logical, physical, rotation, depth = HDPARM[name]
    ata = disk(BUSES, name).ata
    assert ata is not None and disk(BUSES, name).model == model
    assert (ata.logical_sector_size, ata.physical_sector_size) == (logical, physical)
    assert (ata.rotation_rpm, ata.queue_depth, ata.alignment_offset) == (rotation, depth, 0)


@pytest.mark.parametrize("name", PARTED)
def test_verdicts_match_parted_except_where_the_sector_size_is_not_trusted(name: str) -> None:
    first, second = PARTED[name]
    found = answers(BUSES, name)
    assert (found[2] is Answer.ON) == (second == 0)
    assert judged(BUSES, name).grids[0].source.value == DISBELIEVED.get(name, "reported")
    assert found[1] is (Answer.OFF if name in DISBELIEVED or first else Answer.ON)


def test_the_allocation_unit_of_an_sd_card_is_a_grid() -> None:
    """mmcblk0/device: type SD, erase_size 512, preferred_erase_size 1048576."""
    one = judged(BUSES, "mmcblk0")
    assert (one.disk.erase_size, one.disk.preferred_erase_size) == (512, 1048576)
    assert any((grid.kind, grid.size) == (GridKind.ALLOCATION, 1048576) for grid in one.grids)


def test_a_minimum_io_size_above_the_sector_is_a_grid() -> None:
    """sg_vpd -p bl: optimal transfer length granularity 32 blocks of 512 bytes, optimal transfer length 128."""
    kinds = {grid.kind: grid.size for grid in judged(BUSES, "sda").grids}
    assert kinds[GridKind.CHUNK] == 32 * 512  # a virtual disk: the host may store it on a stripe
    assert kinds[GridKind.OPTIMAL_IO] == 128 * 512


def test_a_drive_without_a_medium_is_listed_and_not_judged() -> None:
    """sdb was ejected: lsblk prints a size of 0."""
    assert answers(BUSES, "sdb") == {}
    assert disk(BUSES, "sdb").partitions == ()
