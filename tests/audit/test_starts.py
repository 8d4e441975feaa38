"""Verdicts on partition starts: the kernel's rule, the other grids, and starts that do not matter."""

import itertools
from dataclasses import replace

import pytest

from aligntool.audit.report import Answer, AuditOptions, GridKind, Severity
from aligntool.inventory import DiskKind, KnownGeometry, Partition, Role, Source, TableLabel
from aligntool.units import GIB, KIB, MIB, TIB, Extent
from tests.audit.builders import codes, judge, made_disk, with_content


def kernel_alignment_offset(start: int, physical: int, minimum: int, offset: int) -> int:
    """Compute queue_limit_alignment_offset() of block/blk-settings.c, in its own arithmetic (512-byte sectors)."""
    granularity = max(physical, minimum)
    alignment = ((start >> 9) % (granularity >> 9)) << 9
    return (granularity + offset - alignment) % granularity


LIMITS = [
    (512, 512, 512, 0),
    (512, 4096, 4096, 0),
    (4096, 4096, 4096, 0),
    (512, 4096, 4096, 3584),
    (512, 4096, 16384, 0),
    (512, 512, 16384, 0),
    (512, 4096, 65536, 0),
    (4096, 4096, 16384, 0),
    (512, 8192, 8192, 0),
]
STARTS = [1, 7, 8, 15, 34, 40, 56, 63, 64, 128, 256, 1953, 2047, 2048, 2049, 2055, 8192, 65535, 409640]


@pytest.mark.parametrize(("limits", "start"), list(itertools.product(LIMITS, STARTS)))
@pytest.mark.parametrize("optimal", [0, 33553920, 1 * MIB])
def test_a_trusted_drive_is_judged_by_the_rule_of_the_kernel(
    limits: tuple[int, int, int, int], start: int, optimal: int
) -> None:
    logical, physical, minimum, offset = limits
    disk = made_disk(
        f"{start}+100000", logical=logical, physical=physical, minimum=minimum, offset=offset, optimal=optimal
    )
    report = judge(disk)
    kernel = kernel_alignment_offset(start * logical, physical, minimum, offset)
    verdict = report.judged[0].verdicts[0]
    assert (verdict.answer is Answer.ON) == (kernel == 0)
    assert ("AT101" in codes(report)) == (kernel != 0)


def test_with_the_xp_jumper_sector_63_is_aligned_and_2048_is_not() -> None:
    disk = made_disk("63+1000; 2048+1000", physical=4096, offset=3584)
    answers = [verdict.answer for verdict in judge(disk).judged[0].verdicts]
    assert answers == [Answer.ON, Answer.OFF]


@pytest.mark.parametrize(
    ("kind", "rotational", "size", "source"),
    [
        (DiskKind.ATA, True, 500 * GIB, Source.REPORTED),
        (DiskKind.SCSI, True, 2 * TIB, Source.REPORTED),
        (DiskKind.ATA, True, 3 * TIB, Source.ASSUMED),
        (DiskKind.ATA, False, 500 * GIB, Source.ASSUMED),
        (DiskKind.ATA, None, 500 * GIB, Source.ASSUMED),
        (DiskKind.NVME, False, 500 * GIB, Source.ASSUMED),
        (DiskKind.USB, True, 500 * GIB, Source.ASSUMED),
        (DiskKind.VIRTIO, True, 10 * GIB, Source.ASSUMED),
        (DiskKind.LOOP, None, 10 * GIB, Source.ASSUMED),
    ],
)
def test_reported_512_byte_sectors_are_trusted_only_on_hard_disks_up_to_2_tib(
    kind: DiskKind, rotational: bool | None, size: int, source: Source
) -> None:
    report = judge(made_disk("63+1000", kind=kind, rotational=rotational, size=size))
    physical = report.judged[0].grids[0]
    assert physical.source is source
    assert physical.size == (512 if source is Source.REPORTED else 4096)
    assert ("AT101" in codes(report)) == (source is Source.ASSUMED)


NAMES = [  # vendor and model as in their SCSI INQUIRY data
    ("DELL", "PERC H700"), ("LSI", "MR9260-8i"), ("AVAGO", "MR9361-8i"), ("HP", "LOGICAL VOLUME"),
    ("Adaptec", "Array"), ("Areca", "ARC-1220-VOL#00"), ("AMCC", "9650SE-8LP DISK"), ("IBM", "ServeRAID M5015"),
    ("ATA", "QEMU HARDDISK"), ("ATA", "VBOX HARDDISK"), ("", "VMware Virtual SATA Hard Drive"),
    ("LIO-ORG", "block0"), ("JMicron", "H/W RAID1"), ("Google", "PersistentDisk"),
]  # fmt: skip


@pytest.mark.parametrize(("vendor", "model"), NAMES)
@pytest.mark.parametrize("port", ["ata", "sas"])
def test_512_byte_sectors_of_a_controller_or_hypervisor_are_not_trusted(vendor: str, model: str, port: str) -> None:
    kind = DiskKind.ATA if port == "ata" else DiskKind.SCSI
    disk = replace(made_disk("63+1000", kind=kind), vendor=vendor, model=model, drive_port=port)
    assert judge(disk).judged[0].grids[0].source is Source.ASSUMED


@pytest.mark.parametrize(
    ("port", "rpm", "source"),
    [
        ("sas", 15000, Source.REPORTED),
        ("spi", None, Source.REPORTED),
        ("sas", 0, Source.ASSUMED),  # an array behind SAS: it was queried, and reports no rotation rate
        (None, 7200, Source.ASSUMED),  # a LUN for which the controller repeats what its drives report
        (None, None, Source.ASSUMED),
    ],
)
def test_512_byte_sectors_of_a_scsi_disk_are_trusted_only_on_a_single_drive_port(
    port: str | None, rpm: int | None, source: Source
) -> None:
    disk = replace(made_disk("63+1000", kind=DiskKind.SCSI), drive_port=port, rotation_rpm=rpm)
    assert judge(disk).judged[0].grids[0].source is source


def test_the_sector_size_of_an_array_with_unread_members_is_not_trusted() -> None:
    array = made_disk("63+1000", name="md0", kind=DiskKind.MD)
    assert judge(array).judged[0].grids[0].source is Source.ASSUMED


def test_4096_byte_sectors_are_assumed_for_an_image_unless_another_size_is_given() -> None:
    image = made_disk("63+1000", kind=DiskKind.IMAGE, logical=None, physical=None, offset=None, rotational=None)
    assert codes(judge(image))[0] == "AT101"
    assert "AT204" in codes(judge(image))
    said = replace(image, limits=replace(image.limits, physical_block_size=512), limits_given=("physical_block_size",))
    assert "AT101" not in codes(judge(said))
    assert judge(said).judged[0].grids[0].source is Source.GIVEN


def test_a_drive_with_a_false_sector_size_is_judged_by_the_database() -> None:
    known = KnownGeometry(Source.KNOWN, "WD20EARS", "data sheet", "high", physical_block_size=4096)
    report = judge(made_disk("63+1000", size=2000 * 1000**3), known=(known,))
    finding = next(finding for finding in report.findings if finding.code.value == "AT101")
    assert finding.severity is Severity.ERROR
    assert finding.grid and (finding.grid.source, finding.grid.by) == (Source.KNOWN, "WD20EARS")
    assert (finding.off_by, finding.start, finding.sector_size) == (3584, 32256, 512)
    assert "AT203" in codes(report)


def test_an_alignment_offset_of_minus_one_is_unknown_and_never_aligned() -> None:
    report = judge(made_disk("2048+1000", kind=DiskKind.MD, name="md0", offset=-1))
    assert report.judged[0].verdicts[0].answer is Answer.UNKNOWN
    assert {"AT201", "AT109"} <= set(codes(report))
    assert report.count(Severity.ERROR) == 0


def test_a_start_off_the_page_alone_is_a_warning_and_off_the_mib_alone_a_note() -> None:
    known = KnownGeometry(Source.ASSUMED, "class: 3D NAND SSD", "…", "medium", page_size=16 * KIB)
    disk = made_disk("40+1000; 64+1000; 2048+1000", kind=DiskKind.NVME, rotational=False, physical=4096)
    report = judge(disk, known=(known,))
    assert [verdict.answer for verdict in report.judged[0].verdicts] == [Answer.OFF, Answer.ON, Answer.ON]
    assert next(finding.code.value for finding in report.findings if finding.partition == 1) == "AT102"
    assert next(finding.code.value for finding in report.findings if finding.partition == 2) == "AT106"
    assert [finding for finding in report.findings if finding.partition == 3] == []


def test_the_page_size_of_the_user_overrides_the_database() -> None:
    known = KnownGeometry(Source.KNOWN, "row", "…", "high", page_size=16 * KIB)
    report = judge(made_disk("64+1000", physical=4096), known=(known,), wishes=AuditOptions(page_size=64 * KIB))
    assert report.findings[0].grid and report.findings[0].grid.source is Source.GIVEN


def test_a_start_off_the_chunk_of_an_array_is_a_warning_and_off_its_sectors_an_error() -> None:
    disk = made_disk("2056+1000; 63+1000", kind=DiskKind.MD, name="md0", physical=4096, minimum=512 * KIB)
    first, second = judge(disk).judged[0].verdicts
    report = judge(disk)
    assert first.answer is second.answer is Answer.OFF
    by_partition = {
        finding.partition: finding for finding in report.findings if finding.code.value in ("AT101", "AT104")
    }
    assert by_partition[1].code.value == "AT104" and by_partition[1].severity is Severity.WARNING
    assert by_partition[2].code.value == "AT101" and by_partition[2].severity is Severity.ERROR


def test_a_stacked_device_uses_the_largest_sector_of_its_members() -> None:
    members = [made_disk(name="sda", physical=512), made_disk(name="sdb", physical=4096)]
    array = replace(made_disk("63+1000", name="md0", kind=DiskKind.MD, physical=512), slaves=("sda", "sdb"))
    report = judge(*members, array)
    assert report.judged[2].grids[0].size == 4096


def test_slaves_that_refer_to_each_other_do_not_cause_an_endless_loop() -> None:
    one = replace(made_disk(name="dm-0", kind=DiskKind.DM), slaves=("dm-1",))
    two = replace(made_disk(name="dm-1", kind=DiskKind.DM), slaves=("dm-0",))
    assert len(judge(one, two).judged) == 2


@pytest.mark.parametrize(
    "type_code",
    ["21686148-6449-6E6F-744E-656564454649", "9E1A2D38-C612-4316-AA26-8B49521E5A8B", "0x41",
     "E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "83BD6B9D-7F41-11DC-BE0B-001560B84F0F", "0xee",
     "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3", "6A945A3B-1DD2-11B2-99A6-080020736631",
     "5B193300-FC78-40CD-8002-E86C45580B47", "2E54B353-1271-4842-806F-E436D6AF6985", "0x53"],
)  # fmt: skip
def test_a_partition_that_nothing_writes_to_is_never_an_error(type_code: str) -> None:
    disk = made_disk("34+2014", physical=4096)
    disk = replace(disk, partitions=(replace(disk.partitions[0], type_code=type_code),))
    report = judge(disk)
    assert {finding.severity for finding in report.findings} == {Severity.INFO}
    assert report.judged[0].verdicts[0].matters is False


@pytest.mark.parametrize("seen", ["content", "udev"])
@pytest.mark.parametrize("kind", ["vfat", "ntfs", "ext4", "crypto_LUKS"])
@pytest.mark.parametrize(
    "type_code", ["21686148-6449-6E6F-744E-656564454649", "E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "0x41"]
)
def test_recognised_content_overrides_a_type_that_nothing_writes_to(type_code: str, kind: str, seen: str) -> None:
    """Two models of laptops ship with file systems in partitions of type Microsoft reserved and BIOS boot."""
    disk = made_disk(f"63+20000 {kind if seen == 'content' else ''}", physical=4096)
    part = replace(disk.partitions[0], type_code=type_code)
    if seen == "udev":
        part = replace(part, content_read=False, content_hint=kind)
    report = judge(replace(disk, partitions=(part,)))
    assert report.findings[0].code.value == "AT101" and report.findings[0].severity is Severity.ERROR


def test_the_partition_of_the_ldm_database_does_not_matter() -> None:
    disk = made_disk("34+2014 ldm", physical=4096)
    part = replace(disk.partitions[0], type_code="5808C8AA-7E8F-42E0-85D2-E1E90434CFB3")
    assert judge(replace(disk, partitions=(part,))).judged[0].verdicts[0].matters is False


@pytest.mark.parametrize(("sectors", "matters"), [(1, False), (7, False), (8, True)])
def test_a_partition_smaller_than_a_block_is_a_placeholder(sectors: int, matters: bool) -> None:
    verdict = judge(made_disk(f"16449+{sectors}", physical=4096)).judged[0].verdicts[0]
    assert (verdict.answer, verdict.matters) == (Answer.OFF, matters)


@pytest.mark.parametrize(("type_code", "content"), [("", ""), ("0x83", ""), ("0x00", "ext4")])
def test_a_slice_from_sector_0_is_not_an_iso_image_and_the_others_still_matter(type_code: str, content: str) -> None:
    disk = made_disk(f"0+9000000; 63+1000000 {content}", physical=4096)
    disk = replace(disk, partitions=tuple(replace(part, type_code=type_code) for part in disk.partitions))
    assert judge(disk).judged[0].verdicts[1].matters


def test_the_container_of_logical_partitions_is_not_judged() -> None:
    disk = made_disk("2048+1000; 2e 4001+9000; 5l 4064+1000", physical=4096)
    assert [verdict.partition for verdict in judge(disk).judged[0].verdicts] == [1, 5]


def test_an_odd_end_is_a_note_but_not_at_the_end_of_the_disk() -> None:
    disk = made_disk("2048+1001", physical=4096)
    assert codes(judge(disk)) == ["AT107"]
    to_the_end = replace(disk, size=(2048 + 1001) * 512)
    assert codes(judge(to_the_end)) == []


@pytest.mark.parametrize(
    ("sectors", "unit", "opens"), [(100003, 4096, False), (100000, 4096, True), (100003, 512, True)]
)
def test_a_partition_end_that_prevents_opening_a_luks_is_an_error(sectors: int, unit: int, *, opens: bool) -> None:
    disk = made_disk(f"2048+{sectors} crypto_LUKS", physical=4096, size=(2048 + sectors) * 512)
    layer = replace(disk.partitions[0].content[0], version="LUKS2", data_unit=unit, data_start=17 * MIB)
    found = [one for one in judge(with_content(disk, layer)).findings if one.code == "AT107"]
    assert [one.severity for one in found] == ([] if opens else [Severity.ERROR])
    assert all("1536 bytes longer" in one.summary and one.disk == "sda" for one in found)
    for other in ({"claims_size": 40 * MIB}, {"has_tags": True}):  # the header, or that of dm-integrity, has the length
        assert "AT107" not in codes(judge(with_content(disk, replace(layer, **other))))
    whole = replace(disk, table=None, partitions=(), content=(replace(layer, data_start=16 * MIB),), content_read=True)
    for size, ends_well in ((64 * MIB, True), (64 * MIB + 512, unit == 512), (64 * MIB + 100, True)):
        assert ("AT107" not in codes(judge(replace(whole, size=size)))) is ends_well  # the kernel has whole sectors


def test_an_sd_card_is_judged_by_its_allocation_unit() -> None:
    card = replace(made_disk("2048+1000; 8192+1000", name="mmcblk0", kind=DiskKind.SD, physical=512),
                   preferred_erase_size=4 * MIB, rotational=False)  # fmt: skip
    report = judge(card)
    assert [verdict.answer for verdict in report.judged[0].verdicts] == [Answer.OFF, Answer.ON]
    assert codes(report)[0] == "AT103"
    assert report.findings[0].off_by == 1 * MIB


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (63, "Windows XP"), (34, "first usable"), (40, "macOS"), (1953, "decimal megabyte"), (2049, "one sector past"),
        (65535, "implausible optimal"), (131070, "implausible optimal"), (32760, "16773120"), (1, "after the MBR"),
        (16065, "cylinder"),
    ],
)  # fmt: skip
def test_a_start_with_a_known_pattern_is_reported_with_its_cause(start: int, words: str) -> None:
    report = judge(made_disk(f"{start}+1000", physical=65536, minimum=65536))
    assert words in (report.findings[0].cause or "")


@pytest.mark.parametrize(
    ("label", "start", "before"),
    [(TableLabel.GPT, 34, ""), (TableLabel.DOS, 34, "GPT"), (TableLabel.DOS, 63, ""), (TableLabel.GPT, 63, "MBR")],
)
def test_a_cause_that_belongs_to_another_table_says_so(label: TableLabel, start: int, before: str) -> None:
    cause = judge(made_disk(f"{start}+1000", physical=4096, label=label)).findings[0].cause or ""
    assert cause.endswith(f", as if the table had been {before} before") is bool(before)
    assert ("as if" in cause) is bool(before)


def test_a_start_after_an_odd_neighbour_names_the_neighbour() -> None:
    disk = made_disk("2048+1001; 3049+1000", physical=4096)
    finding = next(finding for finding in judge(disk).findings if finding.partition == 2)
    assert "partition 1 ends" in (finding.cause or "")


def test_every_check_of_a_verdict_states_its_grid_and_source() -> None:
    verdict = judge(made_disk("63+1000", physical=4096, optimal=1 * MIB)).judged[0].verdicts[0]
    assert {check.grid.kind for check in verdict.checks} == {GridKind.PHYSICAL, GridKind.OPTIMAL_IO, GridKind.GRAIN}
    assert all(check.grid.by and check.grid.source for check in verdict.checks)
    assert {check.off_by for check in verdict.checks} == {3584, 32256}


def test_a_partition_map_entry_is_judged_but_does_not_matter() -> None:
    disk = made_disk("1+63")
    disk = replace(disk, partitions=(Partition(1, Extent(512, 63 * 512), Role.MAP),), rotational=False)
    assert judge(disk).judged[0].verdicts[0].matters is False


def test_an_assumed_allocation_unit_is_only_a_note() -> None:
    guess = KnownGeometry(Source.ASSUMED, "class", "…", "low", erase_block=4 * MIB)
    for kind in (DiskKind.USB, DiskKind.SD, DiskKind.EMMC):
        report = judge(made_disk("2048+1000", kind=kind, rotational=False, physical=4096), known=(guess,))
        assert [(finding.code.value, finding.severity) for finding in report.findings] == [("AT103", Severity.INFO)]
        assert report.judged[0].verdicts[0].answer is Answer.ON


@pytest.mark.parametrize(
    ("kind", "unit", "severity"),
    [
        (DiskKind.SD, 4 * MIB, Severity.WARNING),  # AU_SIZE of the SD Status
        (DiskKind.SD, None, Severity.WARNING),
        (DiskKind.SD, 0, Severity.INFO),  # mmc_init_erase() of the kernel uses the capacity then
        (DiskKind.EMMC, None, Severity.INFO),
    ],
)
def test_a_unit_that_the_kernel_derives_from_the_capacity_is_only_a_note(
    kind: DiskKind, unit: int | None, severity: Severity
) -> None:
    card = made_disk("2048+1000", kind=kind, rotational=False, physical=4096)
    report = judge(replace(card, preferred_erase_size=4 * MIB, allocation_unit=unit))
    assert [(one.code.value, one.severity) for one in report.findings] == [("AT103", severity)]


def test_the_minimum_io_of_a_raid_controller_is_judged_like_the_chunk_of_md() -> None:
    starts = "2048+1000; 4104+1000"
    lun = made_disk(starts, kind=DiskKind.SCSI, physical=4096, minimum=64 * KIB)
    lun = replace(lun, drive_port=None)
    array = made_disk(starts, name="md0", kind=DiskKind.MD, physical=4096, minimum=64 * KIB)
    found = [[(one.code.value, one.severity, one.partition) for one in judge(disk).findings] for disk in (lun, array)]
    assert found[0] == found[1] == [("AT104", Severity.WARNING, 2)]


def test_only_missed_grids_that_the_worst_does_not_imply_are_listed_as_evidence() -> None:
    """Every start off the boundaries of 4 KiB is off those of 1 MiB; one off those of 24 KiB need not be."""
    assert judge(made_disk("63+1000", physical=4096, optimal=1 * MIB)).findings[0].evidence == ()
    odd = judge(
        made_disk("64+1000", physical=4096, rotational=False), wishes=AuditOptions(page_size=24 * KIB)
    ).findings[0]
    assert (odd.code.value, odd.evidence) == ("AT102", ("also 32KiB off the grain of 1MiB (assumed)",))


def test_the_verdict_of_the_kernel_is_listed_as_evidence() -> None:
    disk = made_disk("63+1000", physical=4096)
    disk = replace(disk, partitions=(replace(disk.partitions[0], kernel_alignment_offset=512),))
    assert judge(disk).findings[0].evidence[-1] == "the kernel agrees: the partition's alignment_offset is 512"


def test_the_suggested_command_uses_sudo_for_a_device_and_not_for_an_image() -> None:
    disk = made_disk("63+1000", physical=4096)
    assert judge(disk).findings[0].next == "sudo aligntool plan realign /dev/sda"
    image = replace(made_disk("63+1000", kind=DiskKind.IMAGE, physical=4096), path="old.img")
    assert judge(image).findings[0].next == "aligntool plan realign old.img"


def test_the_audit_map_is_suggested_if_partitions_cannot_be_moved() -> None:
    disk = made_disk("63+1000", physical=4096, label=TableLabel.SUN)
    assert judge(disk).findings[0].next == "sudo aligntool audit --map /dev/sda"


def test_an_irrelevant_start_that_is_off_the_mib_alone_has_no_finding() -> None:
    disk = made_disk("64+1000", physical=4096)
    bios = replace(disk.partitions[0], type_code="21686148-6449-6E6F-744E-656564454649")
    assert codes(judge(replace(disk, partitions=(bios,)))) == []


def test_sectors_of_a_disk_without_a_table_are_those_the_device_reports() -> None:
    disk = made_disk("63+1000", logical=4096, physical=65536, minimum=65536)
    report = judge(replace(disk, table=None))
    assert (report.findings[0].sector_size, report.findings[0].start) == (4096, 63 * 4096)


@pytest.mark.parametrize(("start", "words"), [(131070, "2 × 65535"), (98280, "3 × 32760")])
def test_multiples_of_a_bogus_size_are_counted(start: int, words: str) -> None:
    assert words in (judge(made_disk(f"{start}+1000", physical=65536)).findings[0].cause or "")


def test_flash_geometry_in_the_database_does_not_apply_to_stacked_devices() -> None:
    row = KnownGeometry(Source.KNOWN, "row", "…", "high", page_size=16 * KIB, indirection_unit=64 * KIB)
    for kind, kinds in ((DiskKind.DM, set()), (DiskKind.NVME, {GridKind.PAGE, GridKind.UNIT})):
        report = judge(made_disk("2048+1000", kind=kind, physical=4096), known=(row,))
        assert {grid.kind for grid in report.judged[0].grids} & {GridKind.PAGE, GridKind.UNIT} == kinds


def test_the_erase_block_is_informative_for_an_ssd_and_a_grid_for_an_sd_card() -> None:
    row = KnownGeometry(Source.KNOWN, "row", "…", "high", erase_block=2 * MIB)
    ssd = judge(made_disk("2048+1000", kind=DiskKind.ATA, rotational=False, physical=4096), known=(row,))
    assert (codes(ssd), ssd.findings[0].severity) == (["AT108"], Severity.INFO)
    card = judge(made_disk("2048+1000", kind=DiskKind.SD, rotational=False, physical=4096), known=(row,))
    assert (codes(card), card.findings[0].severity) == (["AT103"], Severity.WARNING)


@pytest.mark.parametrize("reported", [0, 520, 4104, 6144])
def test_an_impossible_physical_sector_size_is_not_trusted(reported: int) -> None:
    physical = judge(made_disk("2048+1000", physical=reported, minimum=0)).judged[0].grids[0]
    assert (physical.size, physical.source) == (4096, Source.ASSUMED)


@pytest.mark.parametrize(
    ("kind", "rotational", "size", "words"),
    [
        (DiskKind.NVME, False, GIB, "flash is mapped"),
        (DiskKind.ATA, True, 4 * TIB, "over 2 TiB"),
        (DiskKind.ATA, None, GIB, "the medium below"),
        (DiskKind.USB, False, GIB, "USB bridges"),
    ],
)
def test_the_reason_for_an_assumption_is_stated(kind: DiskKind, rotational: bool | None, size: int, words: str) -> None:
    assert words in judge(made_disk("2048+1000", kind=kind, rotational=rotational, size=size)).judged[0].grids[0].by


def test_a_start_63_sectors_after_an_ebr_is_explained_for_a_logical_partition_only() -> None:
    logical = made_disk("5l 16128+1000", physical=65536, minimum=65536)
    assert "extended boot record" in (judge(logical).findings[0].cause or "")
    primary = made_disk("16128+1000", physical=65536, minimum=65536)
    assert judge(primary).findings[0].cause is None
    elsewhere = made_disk("5l 16129+1000", physical=4096)
    assert judge(elsewhere).findings[0].cause is None


@pytest.mark.parametrize(("unit", "asked"), [(4 * MIB, True), (64 * MIB, True), (128 * MIB, False), (6144, False)])
def test_an_allocation_unit_is_trusted_up_to_64_mib(unit: int, asked: bool) -> None:
    card = replace(made_disk("2048+1000", kind=DiskKind.SD, physical=512), preferred_erase_size=unit)
    assert (unit in {grid.size for grid in judge(card).judged[0].grids}) is asked


def test_a_rotating_disk_behind_usb_has_no_allocation_unit() -> None:
    row = KnownGeometry(Source.ASSUMED, "class", "…", "low", erase_block=4 * MIB)
    for rotational, asked in ((True, False), (False, True), (None, True)):
        disk = made_disk("2048+1000", kind=DiskKind.USB, rotational=rotational, physical=4096)
        assert (GridKind.ALLOCATION in {grid.kind for grid in judge(disk, known=(row,)).judged[0].grids}) is asked
