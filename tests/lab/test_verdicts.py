"""The audit's verdicts against the kernel's and parted's, on disks of odd geometry; its numbers against sysfs and
nvme-cli. Where aligntool differs, it does so on purpose, and each such partition is listed here.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import GEOMETRIES, REFERENCE_TOOLS
from tests.lab.odd_disks import NVME, TABLES
from tests.lab.reference_output import DiskReport

pytestmark = [
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "udevadm"),
    pytest.mark.needs_tools("sfdisk", "parted", "nvme", "lspci", "mdadm", "mkfs.xfs"),
]
PART = REFERENCE_TOOLS

SCSI = {geometry.name: geometry.table for geometry in GEOMETRIES}
ODD = {**SCSI, **{f"nvme-{drive.nvme.serial}": drive.table for drive in NVME}}

# If sectors of 4096 bytes are reported, by arithmetic: starts that are not a multiple of 8, or not 7 past one.
MISALIGNED = {
    *(("512e", start) for start in (63, 10001)),
    *(("lowest-aligned-7", start) for start in (1088, 5000, 8192)),
    *(("unmap-alignment", start) for start in (63, 2055)),
}
# docs/cli.md, "sector 63 is aligned on a device that reports 512-byte sectors": these report 512 bytes and are flash,
# so blocks of 4 KiB are assumed under them.
REPORT_NOT_BELIEVED = {
    *(("bogus-optimal", start) for start in (63, 10001)),
    *(("nvme-512", start) for start in (63, 10001)),
    *(("nvme-512e", start) for start in (63, 2055)),
}
# docs/cli.md, "a start on the physical sector is aligned": a warning, as it is off the flash's page of 16 KiB.
OFF_THE_PAGE = {
    *(("512e", start) for start in (4104,)),
    *(("4Kn", start) for start in (63, 2055)),
    *(("lowest-aligned-7", start) for start in (63,)),
    *(("bogus-optimal", start) for start in (4104,)),
    *(("unmap-alignment", start) for start in (5000,)),
}
# docs/cli.md, "a start off optimal_io_size is misaligned": not where that number is bogus (AT202).
BOGUS_OPTIMAL = {*(("bogus-optimal", start) for start in (2048,)), *(("unmap-alignment", start) for start in (8192,))}


def disk_report(folder: Path, name: str) -> DiskReport:
    return DiskReport(folder, name, "audit-nvme.json" if name.startswith("nvme-") else f"audit-{name}.json")


@pytest.fixture(scope="module")
def disks(said: Path) -> dict[str, DiskReport]:
    return {name: disk_report(said, name) for name in ODD}


@pytest.mark.parametrize("name", ODD)
def test_every_partition_was_judged_by_all_three_programs(disks: dict[str, DiskReport], name: str) -> None:
    disk, starts = disks[name], {start for start, _ in TABLES[ODD[name]]}
    assert set(disk.kernel("alignment_offset")) == starts
    assert set(disk.parted("minimal")) == set(disk.parted("optimal")) == starts
    assert set(disk.answers()) == starts


@pytest.mark.parametrize("name", ODD)
def test_the_numbers_behind_a_verdict_are_those_of_sysfs(disks: dict[str, DiskReport], name: str) -> None:
    disk = disks[name]
    limits = {path.removeprefix("queue/"): number for path, number in disk.sysfs.items() if path.startswith("queue/")}
    limits |= {word: disk.sysfs[word] for word in ("alignment_offset", "discard_alignment")}
    assert len(limits) == 7
    assert {word: disk.disk["limits"][word] for word in limits} == limits
    for word in ("alignment_offset", "discard_alignment"):
        shown = {part["node"]: part[f"kernel_{word}"] for part in disk.disk["partitions"]}
        assert shown == {name: disk.sysfs[f"{name}/{word}"] for name in disk.starts}


@pytest.mark.parametrize("name", ODD)
def test_on_the_physical_sector_the_kernel_and_parted_agree(disks: dict[str, DiskReport], name: str) -> None:
    """Both tools agree on every partition, so that there is one verdict to compare with."""
    assert _kernel(disks[name]) == disks[name].parted("minimal")


def test_the_audit_differs_from_the_kernel_only_where_a_report_is_not_trusted(disks: dict[str, DiskReport]) -> None:
    differing = {
        (name, start)
        for name, disk in disks.items()
        for start, on in disk.aligned("physical sector").items()
        if on != _kernel(disk)[start]
    }
    assert differing == REPORT_NOT_BELIEVED
    for name, start in REPORT_NOT_BELIEVED:
        assert disks[name].sources["physical sector"] == "assumed"
        assert disks[name].codes()["AT204"] == "info"
        assert disks[name].codes(start)["AT101"] == "error"
    reported = {name for name, disk in disks.items() if disk.sources["physical sector"] == "reported"}
    assert reported == {*SCSI, "nvme-4Kn"} - {"bogus-optimal"}


def test_a_start_that_only_the_kernel_considers_aligned_is_a_page_warning(disks: dict[str, DiskReport]) -> None:
    warned = {
        (name, start)
        for name, disk in disks.items()
        for start, answer in disk.answers().items()
        if answer == "off" and disk.aligned("physical sector")[start]
    }
    assert warned == {each for each in OFF_THE_PAGE if each[0] in ODD}
    for name, start in warned:
        assert disks[name].codes(start)["AT102"] == "warning"
        assert "AT101" not in disks[name].codes(start)


def test_a_start_that_the_kernel_reports_as_misaligned_is_an_error(disks: dict[str, DiskReport]) -> None:
    misaligned = {(name, start) for name, disk in disks.items() for start, on in _kernel(disk).items() if not on}
    assert misaligned == {each for each in MISALIGNED if each[0] in ODD}
    for name, start in misaligned:
        assert disks[name].answers()[start] == "off"
        assert disks[name].codes(start)["AT101"] == "error"


def test_starts_are_judged_relative_to_the_phase_of_the_physical_sectors(disks: dict[str, DiskReport]) -> None:
    """lowest_aligned=7: the kernel reports it in alignment_offset, and sector 63 is on the grid while
    2048 x 4 is not.
    """
    disk = disks["lowest-aligned-7"]
    phases = {grid["kind"]: grid["phase"] for grid in disk.disk["grids"]}
    assert phases["physical sector"] == disk.sysfs["alignment_offset"] == 7 * 512
    assert _kernel(disk) == {63: True, 1088: False, 2055: True, 5000: False, 8192: False}


def test_a_start_that_parted_finds_not_optimal_is_noted_except_for_bogus_sizes(disks: dict[str, DiskReport]) -> None:
    unnoticed = {
        (name, start)
        for name, disk in disks.items()
        for start, optimal in disk.parted("optimal").items()
        if not optimal and disk.on_all()[start]
    }
    assert unnoticed == {each for each in BOGUS_OPTIMAL if each[0] in ODD} != set()
    for name in {name for name, _ in unnoticed}:
        assert "AT202" in disks[name].codes()
        assert "optimal I/O size" not in disks[name].sources


def test_bogus_optimal_sizes_are_passed_on_by_the_kernel(disks: dict[str, DiskReport]) -> None:
    """65535 blocks where no physical block contradicts it, 65528 where one does: both reach sysfs, and parted uses
    them.
    """
    assert disks["bogus-optimal"].sysfs["queue/optimal_io_size"] == 65535 * 512
    if "unmap-alignment" in disks:  # make test-all
        assert disks["unmap-alignment"].sysfs["queue/optimal_io_size"] == 65528 * 512


# NVMe


def _identify(said: Path, command: str, serial: str) -> dict[str, Any]:
    answer = json.loads((said / f"{command}-{serial}.json").read_text())
    assert isinstance(answer, dict)
    return answer


def _nvme(said: Path, serial: str) -> dict[str, Any]:
    disks = json.loads((said / "audit-nvme.json").read_text())["disks"]
    (found,) = (disk for disk in disks if disk["serial"] == serial)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("serial", [drive.nvme.serial for drive in NVME])
def test_namespace_properties_are_those_that_nvme_cli_prints(said: Path, serial: str) -> None:
    """Units of blocks, 0-based except noiob, and only with bit 4 of nsfeat (NVM Express Base, Identify Namespace)."""
    theirs, disk = _identify(said, "id-ns", serial), _nvme(said, serial)
    nvme, in_use = disk["nvme"], theirs["flbas"] & 15
    block = 1 << theirs["lbafs"][in_use]["ds"]
    assert disk["size"] == theirs["nsze"] * block
    assert nvme["format_in_use"] == in_use
    assert [(one["metadata_size"], one["data_size"], one["relative_performance"]) for one in nvme["formats"]] == [
        (one["ms"], 1 << one["ds"], one["rp"]) for one in theirs["lbafs"][: theirs["nlbaf"] + 1]
    ]
    assert theirs["nsfeat"] & 16, "without these the next lines would compare nothing"
    assert {
        "preferred_write_granularity": (theirs["npwg"] + 1) * block,
        "preferred_write_alignment": (theirs["npwa"] + 1) * block,
        "preferred_deallocate_granularity": (theirs["npdg"] + 1) * block,
        "preferred_deallocate_alignment": (theirs["npda"] + 1) * block,
        "optimal_write_size": (theirs["nows"] + 1) * block,
        "optimal_io_boundary": theirs["noiob"] * block,
    }.items() <= nvme.items()


@pytest.mark.parametrize("serial", [drive.nvme.serial for drive in NVME])
def test_controller_properties_are_those_that_nvme_cli_prints(said: Path, serial: str) -> None:
    """mdts is in pages of the controller, 4 KiB here; awun and awupf are blocks, 0-based; hmpre and hmmin are 4 KiB."""
    theirs, disk = _identify(said, "id-ctrl", serial), _nvme(said, serial)
    block = disk["limits"]["logical_block_size"]
    assert disk["model"] == theirs["mn"].strip()
    assert disk["firmware"] == theirs["fr"].strip()
    assert serial == theirs["sn"].strip()
    assert {
        "max_transfer": 4096 << theirs["mdts"],
        "atomic_write_unit": (theirs["awun"] + 1) * block,
        "atomic_write_unit_power_fail": (theirs["awupf"] + 1) * block,
        "hmb_preferred": theirs["hmpre"] * 4096,
        "hmb_minimum": theirs["hmmin"] * 4096,
    }.items() <= disk["nvme"].items()


def _kernel(disk: DiskReport) -> dict[int, bool]:
    return {start: offset == 0 for start, offset in disk.kernel("alignment_offset").items()}
