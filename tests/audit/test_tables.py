"""Findings about a partition table, and who owns the table."""

from dataclasses import replace

import pytest

from aligntool.audit.report import Answer, Severity
from aligntool.inventory import (
    Disk,
    DiskKind,
    Fault,
    InFlight,
    Layer,
    Table,
    TableCopy,
    TableCopyState,
    TableFault,
    TableLabel,
)
from aligntool.units import MIB, Extent
from tests.audit.builders import codes, judge, made_disk

EXPECTED = {
    Fault.GPT_PRIMARY_DAMAGED: ("AT301", Severity.ERROR),
    Fault.GPT_BACKUP_DAMAGED: ("AT302", Severity.WARNING),
    Fault.GPT_BACKUP_MISPLACED: ("AT312", Severity.WARNING),
    Fault.GPT_COPIES_DIFFER: ("AT313", Severity.ERROR),
    Fault.PROTECTIVE_MBR: ("AT310", Severity.WARNING),
    Fault.HYBRID_MBR: ("AT307", Severity.INFO),
    Fault.OTHER_SECTOR_SIZE: ("AT303", Severity.ERROR),
    Fault.OVERLAP: ("AT304", Severity.ERROR),
    Fault.BEYOND_END: ("AT305", Severity.ERROR),
    Fault.OUTSIDE_USABLE: ("AT311", Severity.WARNING),
    Fault.COVERS_TABLE: ("AT318", Severity.ERROR),
    Fault.EBR_LOOP: ("AT306", Severity.ERROR),
    Fault.EBR_BROKEN: ("AT306", Severity.ERROR),
    Fault.EBR_INSIDE_PARTITION: ("AT306", Severity.ERROR),
    Fault.LOGICAL_OUTSIDE_EXTENDED: ("AT306", Severity.ERROR),
    Fault.IMPLAUSIBLE_COUNT: ("AT309", Severity.ERROR),
    Fault.BAD_ENTRY: ("AT309", Severity.ERROR),
    Fault.DYNAMIC_DISK: ("AT314", Severity.INFO),
    Fault.UNREADABLE: ("AT316", Severity.ERROR),
}


def faulty(*faults: TableFault) -> Disk:
    disk = made_disk("2048+1000000; 1048576+1000000", physical=4096)
    copies = (TableCopy("primary", 512, TableCopyState.HEADER_CRC_BAD),)
    return replace(disk, table=Table(TableLabel.GPT, 512, copies=copies, faults=faults))


@pytest.mark.parametrize("parked", [(1,), ()])
def test_in_flight_the_faults_of_a_table_are_evidence_of_the_move(parked: tuple[int, ...]) -> None:
    """A table is rewritten step by step: a whole disk that gets a GPT has only a backup for a time."""
    disk = faulty(*(TableFault(fault, f"about {fault}", 512, (2,)) for fault in Fault))
    assert disk.table is not None
    moving = replace(disk, table=replace(disk.table, in_flight=InFlight(parked, 4096)))
    moving = replace(moving, kernel_partitions=((7, Extent(0, MIB)),))
    found = [one for one in judge(moving).findings if one.code.startswith("AT3")]
    assert [one.code for one in found] == ["AT317"]
    assert all(f"the table now: about {fault}" in found[0].evidence for fault in Fault)


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_of_a_table_becomes_its_finding(fault: Fault) -> None:
    report = judge(faulty(TableFault(fault, "a sentence with numbers", 512, (2,))))
    assert [(finding.code.value, finding.severity) for finding in report.findings] == [EXPECTED[fault]]
    finding = report.findings[0]
    assert (finding.partition, finding.start, finding.disk) == (2, 512, "sda")
    assert "a sentence with numbers" in finding.summary
    assert finding.evidence == ("primary GPT at byte 512: header-crc-bad",)


def test_a_fault_of_two_partitions_is_not_attributed_to_one() -> None:
    assert judge(faulty(TableFault(Fault.OVERLAP, "…", 512, (1, 2)))).findings[0].partition is None


@pytest.mark.parametrize(
    "faults",
    [
        (Fault.GPT_PRIMARY_DAMAGED,),
        (Fault.GPT_BACKUP_DAMAGED,),
        (Fault.GPT_COPIES_DIFFER,),
        (Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR),
    ],
)
def test_the_next_step_of_a_damaged_gpt_is_its_repair(faults: tuple[Fault, ...]) -> None:
    """docs/by-hand.md: after what to save, `sgdisk -e` corrects the protective MBR with the place of the backup."""
    found = judge(faulty(*(TableFault(fault, "…") for fault in faults))).findings
    repair = "by hand, with sgdisk on /dev/sda: docs/by-hand.md#a-damaged-partition-table"
    assert [finding.next for finding in found] == [repair] * len(faults)


def test_the_suggested_command_dumps_a_broken_chain() -> None:
    broken = judge(faulty(TableFault(Fault.EBR_LOOP, "…"))).findings[0]
    assert broken.next == "sudo sfdisk --dump /dev/sda"


def test_a_path_in_a_suggested_command_is_quoted_for_the_shell() -> None:
    disk = replace(faulty(TableFault(Fault.BAD_ENTRY, "…")), path="/tmp/my disk's\x1b.img", kind=DiskKind.IMAGE)
    assert judge(disk).findings[0].next == "sfdisk --dump $'/tmp/my disk\\047s\\033.img'"
    spaced = replace(disk, path="/tmp/my disk's.img")
    assert judge(spaced).findings[0].next == "sfdisk --dump '/tmp/my disk'\\''s.img'"


@pytest.mark.parametrize(
    ("type_code", "kind", "severity"),
    [("0x00", None, Severity.INFO), ("0x17", "iso9660", Severity.INFO), ("0x83", None, Severity.ERROR)],
)
def test_the_overlap_of_a_hybrid_iso_s_covering_entry_is_only_a_note(
    type_code: str, kind: str | None, severity: Severity
) -> None:
    iso = replace(made_disk("0+4000000; 21056+8000", physical=4096), content_hint=kind)
    parts = (replace(iso.partitions[0], type_code=type_code), iso.partitions[1])
    fault = TableFault(Fault.OVERLAP, "…", None, (1, 2))
    report = judge(replace(iso, partitions=parts, table=Table(TableLabel.DOS, 512, faults=(fault,))))
    assert [finding.severity for finding in report.findings if finding.code.value == "AT304"] == [severity]
    assert report.judged[0].verdicts[0].matters is (severity is Severity.ERROR)


@pytest.mark.parametrize("fault", [Fault.PROTECTIVE_MBR, Fault.GPT_BACKUP_MISPLACED])
@pytest.mark.parametrize(("spec", "is_image"), [("0+4000000", True), ("64+4000000", True), ("2048+4000000", False)])
def test_the_tables_of_an_iso_image_need_no_repair(fault: Fault, spec: str, *, is_image: bool) -> None:
    disk = replace(made_disk(f"{spec} iso9660", physical=4096), content_hint="iso9660")
    report = judge(replace(disk, table=Table(TableLabel.GPT, 512, faults=(TableFault(fault, "…", 512),))))
    (finding,) = (finding for finding in report.findings if finding.code.value == EXPECTED[fault][0])
    assert finding.severity is (Severity.INFO if is_image else Severity.WARNING)
    assert any("nothing needs repair" in line for line in finding.evidence) is is_image
    assert finding.next.startswith("aligntool explain") or not is_image


@pytest.mark.parametrize(
    ("kind", "ours"),
    [("isw_raid_member", False), ("ddf_raid_member", False), ("linux_raid_member", False), ("ext4", True)],
)
def test_a_table_on_a_member_of_a_whole_disk_array_belongs_to_the_array(kind: str, ours: bool) -> None:
    disk = faulty(TableFault(Fault.BEYOND_END, "…", 512, (2,)))
    disk = replace(disk, content=(Layer(kind, Extent(0, 500 * MIB)),), content_read=True)
    report = judge(disk)
    assert (codes(report) == ["AT305"]) is ours
    assert ("AT315" in codes(report)) is not ours
    answers = {verdict.answer for verdict in report.judged[0].verdicts}
    assert answers == ({Answer.ON} if ours else {Answer.UNKNOWN})
    hinted = replace(disk, content=(), content_hint=kind)
    assert ("AT315" in codes(judge(hinted))) is not ours


def test_a_path_of_a_multipath_device_is_judged_only_once() -> None:
    path = replace(made_disk("63+1000", physical=4096), holders=("dm-0",))
    multipath = replace(made_disk("63+1000", name="dm-0", kind=DiskKind.DM, physical=4096), mapping="multipath mpatha")
    report = judge(path, multipath)
    assert [
        (finding.disk, finding.code.value) for finding in report.findings if finding.severity is Severity.ERROR
    ] == [("dm-0", "AT101")]
    crypt = replace(multipath, mapping="crypt LUKS2 root", partitions=(), table=None)
    assert ("sda", "AT101") in [(finding.disk, finding.code.value) for finding in judge(path, crypt).findings]


def kernel_has(*partitions: tuple[int, int, int]) -> Disk:
    """Return a disk of two partitions, and the kernel's view of it in sectors."""
    disk = made_disk("2048+1000000; 1048576+1000000", physical=4096)
    seen = tuple((number, Extent(start * 512, length * 512)) for number, start, length in partitions)
    return replace(disk, kernel_partitions=seen)


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        (((1, 2048, 1000000), (2, 1048576, 1000000)), None),
        (((1, 2048, 999992), (2, 1048576, 1000000)), "partition 1: the kernel has"),
        (((1, 2048, 1000000),), "partition 2 is in the table but not in the kernel"),
        (((1, 2048, 1000000), (2, 1048576, 1000000), (3, 9000000, 8)), "partition 3 is in the kernel but not in"),
        ((), "partition 1 is in the table but not in the kernel"),
    ],
)
def test_the_partitions_of_the_kernel_are_compared_with_the_table(
    partitions: tuple[tuple[int, int, int], ...], words: str | None
) -> None:
    report = judge(kernel_has(*partitions))
    assert codes(report) == (["AT308"] if words else [])
    if words:
        assert words in report.findings[0].evidence[0]
        assert (
            report.findings[0].next
            == "by hand, with partprobe on /dev/sda: docs/by-hand.md#the-kernel-has-an-older-table"
        )


def test_a_table_that_was_not_read_from_the_disk_is_not_compared() -> None:
    disk = kernel_has((1, 0, 8))
    assert codes(judge(replace(disk, table_read=False))) == []
    unknown = replace(disk, table=Table(TableLabel.UNKNOWN, 512))
    assert codes(judge(unknown)) == []


def test_the_sector_size_of_an_image_s_table_is_reported_if_it_is_not_given() -> None:
    image = made_disk("256+1000", kind=DiskKind.IMAGE, logical=4096, physical=4096)
    image = replace(image, limits=replace(image.limits, logical_block_size=None))
    finding = next(finding for finding in judge(image).findings if finding.code.value == "AT210")
    assert (
        "4096" in finding.summary
        and "losetup on /dev/sda: docs/by-hand.md#a-partition-without-a-device" in finding.summary
    )
    told = replace(image, limits=replace(image.limits, logical_block_size=4096))
    assert "AT210" not in codes(judge(told))
    device = replace(image, kind=DiskKind.LOOP)
    assert "AT210" not in codes(judge(device))


def test_an_invalid_mbr_entry_is_only_a_warning() -> None:
    disk = faulty(TableFault(Fault.BAD_ENTRY, "entry 3 has a type and no sectors"))
    disk = replace(disk, table=replace(disk.table, label=TableLabel.DOS) if disk.table else None)
    assert [finding.severity for finding in judge(disk).findings] == [Severity.WARNING]


def test_a_container_of_two_sectors_in_the_kernel_is_not_a_difference() -> None:
    disk = made_disk("2048+1000000; 2e 1048576+1000000; 5l 1050624+10000", physical=4096)
    seen = tuple(
        (number, Extent(start * 512, length * 512))
        for number, start, length in ((1, 2048, 1000000), (2, 1048576, 2), (5, 1050624, 10000))
    )
    assert codes(judge(replace(disk, kernel_partitions=seen))) == []
