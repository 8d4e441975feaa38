"""The layers above a partition, added up to a byte on the device."""

from dataclasses import replace

import pytest

from aligntool.audit.report import AuditOptions, Report, Severity
from aligntool.inventory import ArrayFacts, DiskKind, KnownGeometry, Layer, Segment, Source
from aligntool.render.audit import verdict_line
from aligntool.render.lines import Style
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.builders import codes, judge, made_disk, with_content

HOME = Extent(1 * MIB, 10 * GIB)


def on_ssd(*layers: Layer, known: tuple[KnownGeometry, ...] = ()) -> Report:
    disk = made_disk("2048+20971520", kind=DiskKind.NVME, rotational=False, physical=4096)
    return judge(with_content(disk, *layers), known=known)


def test_layers_whose_data_start_on_the_grid_have_no_findings() -> None:
    luks = Layer("crypto_LUKS", HOME, "LUKS2", data_start=17 * MIB, data_unit=4096)
    raid = Layer("linux_raid_member", HOME, "1.2", data_start=130 * MIB, inner=(luks,))
    assert codes(on_ssd(raid)) == []


def test_a_volume_of_several_pieces_may_be_larger_than_the_partition() -> None:
    """The rest of the volume lies before the piece with its superblock, or on another disk."""
    late = Extent(9 * GIB, 2 * GIB)
    root = Layer("ext4", late, data_start=9 * GIB, claims_size=2 * GIB, data_unit=4096)
    nested = Layer("linux_raid_member", late, "1.0", data_start=9 * GIB, claims_size=2 * GIB, inner=(root,))
    here = Segment("vg/root", 0, Extent(9 * GIB, GIB))
    volumes = Layer("LVM2_member", HOME, data_start=2 * MIB, segments=(here,), inner=(nested,))
    assert codes(on_ssd(volumes)) == []


@pytest.mark.parametrize("past", [512, 2048, 3584])
def test_data_that_start_off_the_sectors_in_an_aligned_partition_are_an_error(past: int) -> None:
    report = on_ssd(Layer("crypto_LUKS", HOME, "LUKS1", data_start=3 * MIB + past))
    assert codes(report) == ["AT401"]
    assert (report.findings[0].start, report.findings[0].off_by) == (3 * MIB + past, past)
    assert report.findings[0].layer == "LUKS1"


def test_the_default_data_offset_of_mdadm_is_reported_against_a_4_mib_unit() -> None:
    card = replace(made_disk("8192+20971520", kind=DiskKind.SD, rotational=False), preferred_erase_size=4 * MIB)
    member = Layer("linux_raid_member", Extent(4 * MIB, 10 * GIB), "1.2", data_start=4 * MIB + 129 * MIB)
    report = judge(with_content(card, member))
    assert "AT402" in codes(report)
    assert next(finding for finding in report.findings if finding.code.value == "AT402").off_by == 1 * MIB


def test_a_misaligned_partition_is_not_reported_again_for_each_layer() -> None:
    disk = made_disk("63+20971520", physical=4096)
    luks = Layer("crypto_LUKS", Extent(63 * 512, 10 * GIB), "LUKS2", data_start=63 * 512 + 16 * MIB)
    assert [code for code in codes(judge(with_content(disk, luks))) if code != "AT107"] == ["AT101"]


def test_fat_clusters_misaligned_by_the_fats_are_a_warning_and_on_an_esp_a_note() -> None:
    fat = Layer("vfat", HOME, "FAT32", data_start=1 * MIB + 2050 * 512, data_unit=4096)
    assert on_ssd(fat).findings[0].severity is Severity.WARNING
    disk = with_content(made_disk("2048+20971520", physical=4096), fat)
    esp = replace(disk.partitions[0], type_code="C12A7328-F81F-11D2-BA4B-00A0C93EC93B")
    report = judge(replace(disk, partitions=(esp,)))
    assert (codes(report)[0], report.findings[0].severity) == ("AT403", Severity.INFO)


def test_a_factory_card_with_aligned_clusters_is_a_warning_without_a_cost() -> None:
    fat = Layer("vfat", Extent(63 * 512, GIB), "FAT32", data_start=4 * MIB, data_unit=32 * KIB)
    finding = judge(with_content(made_disk("63+20971520", physical=4096), fat)).findings[0]
    assert (finding.code.value, finding.severity, finding.cost) == ("AT101", Severity.WARNING, None)
    assert "the data of FAT32 inside begin on the boundary nevertheless" in finding.evidence


def test_a_start_does_not_matter_if_the_data_of_the_container_are_aligned() -> None:
    luks = Layer("crypto_LUKS", Extent(63 * 512, GIB), "LUKS2", data_start=32769 * 512 + 63 * 512, data_unit=512)
    finding = judge(with_content(made_disk("63+20971520", physical=4096), luks)).findings[0]
    assert (finding.code.value, finding.severity) == ("AT110", Severity.INFO)
    assert "which does not matter: the data of LUKS2 inside begin on the boundary" in finding.summary
    shifted = replace(luks, data_start=32768 * 512 + 63 * 512)
    assert codes(judge(with_content(made_disk("63+20971520", physical=4096), shifted)))[0] == "AT101"


def test_a_member_with_a_misaligned_bitmap_is_misaligned_wherever_its_data_are() -> None:
    """md writes its superblock and its bitmap, at the start of the member, as often as data (md(4), BITMAP)."""
    member = Layer("linux_raid_member", Extent(63 * 512, GIB), "1.2", data_start=1 * MIB)
    report = judge(with_content(made_disk("63+20971520", physical=4096), member))
    assert codes(report)[0] == "AT101"
    assert "the data of md 1.2 inside begin on the boundary nevertheless" in report.findings[0].evidence


def test_data_that_no_start_of_a_member_aligns_are_not_to_be_realigned() -> None:
    """`plan realign` keeps the superblock and the bitmap of the member on a boundary, with a note."""
    group = Layer("LVM2_member", HOME, data_start=2 * MIB + 512)
    member = Layer("linux_raid_member", HOME, "1.2", data_start=2 * MIB + 512)
    for layer, can_move in (
        (group, True), (member, False), (replace(member, data_start=2 * MIB, inner=(group,)), False),
    ):  # fmt: skip
        (finding,) = on_ssd(layer).findings
        assert finding.code.value == "AT401" and ("plan realign" in finding.next) == can_move


def test_every_lvm_segment_is_judged_not_only_the_first() -> None:
    segments = (
        Segment("vg/root", 0, Extent(2 * MIB, GIB)),
        Segment("vg/root", GIB, Extent(2 * GIB + 512, GIB)),
        Segment("vg/home", 0, Extent(4 * GIB, GIB)),
    )
    lvm = Layer("LVM2_member", HOME, data_start=2 * MIB, data_unit=4 * MIB, segments=segments)
    report = on_ssd(lvm)
    assert [(finding.code.value, finding.layer) for finding in report.findings] == [("AT401", "LVM vg/root")]


def test_a_volume_that_starts_inside_a_chunk_of_the_underlying_array_is_a_warning() -> None:
    array = replace(made_disk(name="md0", kind=DiskKind.MD, physical=4096, minimum=256 * KIB, optimal=768 * KIB),
                    array=ArrayFacts("raid5", 256 * KIB, ("sda", "sdb", "sdc", "sdd")))  # fmt: skip
    lvm = Layer("LVM2_member", Extent(0, 100 * GIB), data_start=192 * KIB, data_unit=4 * MIB)
    assert codes(judge(replace(array, content=(lvm,)))) == ["AT404"]


RAID = Layer(
    "linux_raid_member", HOME, "1.2", data_start=2 * MIB, raid_level="raid5", raid_chunk=64 * KIB, raid_members=4
)


@pytest.mark.parametrize(
    ("unit", "width", "said"),
    [
        (64 * KIB, 192 * KIB, None),
        (64 * KIB, 128 * KIB, "stripe width"),
        (128 * KIB, 384 * KIB, "stripe unit of 128KiB"),
        (0, 0, "has no stripe unit"),
    ],
)
def test_stripe_settings_are_compared_with_the_underlying_array(unit: int, width: int, said: str | None) -> None:
    xfs = Layer("xfs", Extent(2 * MIB, GIB), data_unit=4096, stripe_unit=unit, stripe_width=width)
    report = on_ssd(replace(RAID, inner=(xfs,)))
    assert ("AT405" in codes(report)) == (said is not None)
    if said:
        assert said in report.findings[0].summary


def test_on_raid1_a_stripe_setting_is_reported_and_its_absence_is_not() -> None:
    mirror = replace(RAID, raid_level="raid1", raid_chunk=0)
    ext4 = Layer("ext4", Extent(2 * MIB, GIB), data_unit=4096, stripe_unit=64 * KIB, stripe_width=0)
    assert codes(on_ssd(replace(mirror, inner=(ext4,)))) == ["AT405"]
    assert codes(on_ssd(replace(mirror, inner=(replace(ext4, stripe_unit=0),)))) == []


def test_stripe_settings_on_a_plain_drive_are_not_reported() -> None:
    assert codes(on_ssd(Layer("ext4", HOME, data_unit=4096, stripe_unit=512 * KIB, stripe_width=0))) == []


def test_a_file_system_larger_than_its_partition_is_an_error() -> None:
    report = on_ssd(Layer("ext4", HOME, data_unit=4096, claims_size=10 * GIB + 4096))
    assert (codes(report), report.findings[0].severity) == (["AT407"], Severity.ERROR)
    assert codes(on_ssd(Layer("ext4", HOME, data_unit=4096, claims_size=10 * GIB))) == []


def test_small_blocks_two_superblocks_and_damage_are_reported() -> None:
    report = on_ssd(Layer("ext4", HOME, data_unit=1024), Layer("btrfs", HOME, data_unit=4096, problems=("bad crc",)))
    assert {"AT406", "AT408", "AT409"} == set(codes(report))


def test_very_deeply_nested_layers_are_truncated() -> None:
    layer = Layer("crypto_LUKS", HOME, "LUKS2", data_start=3 * MIB + 512)
    for _ in range(200):
        layer = replace(layer, inner=(layer,))
    assert len(on_ssd(layer).findings) < 20


def test_layers_are_judged_against_a_known_page_too() -> None:
    known = KnownGeometry(Source.KNOWN, "row", "…", "high", page_size=16 * KIB)
    report = on_ssd(Layer("crypto_LUKS", HOME, "LUKS1", data_start=1 * MIB + 4096), known=(known,))
    assert codes(report) == ["AT402"]


def test_member_data_of_a_running_array_are_judged_without_its_superblock() -> None:
    member = made_disk("2048+20971520", physical=4096)
    member = replace(member, partitions=(replace(member.partitions[0], node="sda1", content_read=False),))
    array = replace(
        made_disk(name="md0", kind=DiskKind.MD, physical=4096),
        array=ArrayFacts("raid1", None, ("sda1",), (("sda1", 1 * MIB + 512),), "1.2"), slaves=("sda1",),
    )  # fmt: skip
    report = judge(member, array)
    assert [(finding.code.value, finding.disk, finding.start) for finding in report.findings] == [
        ("AT401", "sda", 2 * MIB + 512)
    ]


def test_a_member_whose_superblock_was_read_is_not_judged_twice() -> None:
    read = Layer("linux_raid_member", HOME, "1.2", data_start=1 * MIB + 2 * MIB)
    member = with_content(made_disk("2048+20971520", physical=4096), read)
    member = replace(member, partitions=(replace(member.partitions[0], node="sda1"),))
    array = replace(made_disk(name="md0", kind=DiskKind.MD, physical=4096),
                    array=ArrayFacts("raid1", None, ("sda1",), (("sda1", 512),), "1.2"), slaves=("sda1",))  # fmt: skip
    assert codes(judge(member, array)) == []


def test_partitions_on_a_whole_disk_member_are_judged_on_the_array() -> None:
    member = replace(made_disk("63+20971520", physical=4096), holders=("md126",))
    array = replace(made_disk("63+20971520", name="md126", kind=DiskKind.MD, physical=4096), slaves=("sda",))
    report = judge(member, array)
    assert [(finding.code.value, finding.disk) for finding in report.findings][:1] == [("AT101", "md126")]
    assert {finding.code.value for finding in report.findings if finding.disk == "sda"} == {"AT315"}


def test_a_file_system_without_a_partition_table_is_compared_with_the_disk_size() -> None:
    disk = replace(made_disk(physical=4096), size=10 * GIB)
    fits = Layer("ext4", Extent(0, 10 * GIB), data_unit=4096, claims_size=10 * GIB)
    assert codes(judge(replace(disk, content=(fits,)))) == []
    larger = replace(fits, claims_size=10 * GIB + 4096)
    assert codes(judge(replace(disk, content=(larger,)))) == ["AT407"]
    assert codes(judge(replace(disk, content=(larger,), size=None))) == []


def test_the_full_stripe_of_an_array_is_its_optimal_io_size() -> None:
    array = replace(made_disk(name="md0", kind=DiskKind.MD, physical=4096, minimum=64 * KIB, optimal=192 * KIB),
                    array=ArrayFacts("raid5", 64 * KIB, ("sda", "sdb", "sdc", "sdd")))  # fmt: skip
    right = Layer("xfs", Extent(0, GIB), data_unit=4096, stripe_unit=64 * KIB, stripe_width=192 * KIB)
    assert codes(judge(replace(array, content=(right,)))) == []
    wrong = replace(right, stripe_width=256 * KIB)
    assert codes(judge(replace(array, content=(wrong,)))) == ["AT405"]


def test_a_drive_with_a_large_minimum_io_is_not_treated_as_an_array() -> None:
    xfs = Layer("xfs", HOME, data_unit=4096, stripe_unit=0, stripe_width=0)
    drive = made_disk("2048+20971520", kind=DiskKind.NVME, rotational=False, physical=4096, minimum=64 * KIB)
    assert "AT405" not in codes(judge(with_content(drive, xfs)))
    striped = made_disk("2048+20971520", kind=DiskKind.DM, name="dm-0", physical=4096, minimum=64 * KIB)
    assert "AT405" in codes(judge(with_content(striped, xfs)))
    linear = made_disk("2048+20971520", kind=DiskKind.DM, name="dm-0", physical=4096, minimum=4096)
    assert "AT405" not in codes(judge(with_content(linear, xfs)))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Layer("vfat", HOME, "FAT32", data_start=MIB + 2050 * 512), "the clusters of 1 file system are off"),
        (Layer("crypto_LUKS", HOME, "LUKS2", data_start=MIB + 2052 * KIB), "the data of 1 layer are off"),
    ],
)
def test_the_headline_is_not_ok_if_data_inside_are_off(layer: Layer, words: str) -> None:
    disk = with_content(made_disk("2048+20971520", physical=4096), layer)
    ((headline, style),) = verdict_line(judge(disk, wishes=AuditOptions(page_size=16 * KIB)))
    assert headline == f"Every partition of 1 disk starts on its boundaries; {words}"
    assert style is Style.DOUBT


def test_what_a_move_cannot_align_leads_to_its_explanation() -> None:
    fat = Layer("vfat", HOME, "FAT32", data_start=1 * MIB + 2050 * 512)
    assert on_ssd(fat).findings[0].next == "aligntool explain AT403"
