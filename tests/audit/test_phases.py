"""Arrays on members whose data start off their sectors.

The limits are those that Linux 6.1 set for such arrays of scsi_debug and virtio disks; a verdict is the sum of the
array's offset, the member's data offset and the start of the member partition, against the sectors of the member.
"""

from dataclasses import replace

import pytest

from aligntool.audit.report import Answer, Severity
from aligntool.inventory import ArrayFacts, Disk, DiskKind, Layer
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.builders import codes, judge, made_disk, with_content


def member(name: str, start: int, *, physical: int = 4096, offset: int = 0) -> Disk:
    disk = made_disk(f"{start}+409600", name=name, physical=physical, offset=offset, rotational=False)
    return replace(disk, partitions=(replace(disk.partitions[0], node=f"{name}1"),))


def array(
    level: str, chunk: int, offset: int, *members: Disk, data: int = 0, starts: str = "63+1000; 102400+1000"
) -> Disk:
    nodes = tuple(disk.partitions[0].node or "" for disk in members)
    facts = ArrayFacts(level, chunk or None, nodes, tuple((node, data) for node in nodes), "0.90")
    physical = members[0].limits.physical_block_size or 512
    made = made_disk(starts, name="md3", kind=DiskKind.MD, physical=physical, minimum=chunk or physical, offset=offset)
    return replace(made, array=facts, slaves=nodes)


def answers(*disks: Disk) -> list[tuple[Answer, int]]:
    """Return the verdict for each partition of the array, and the bytes past a physical sector of the members."""
    verdicts = judge(*disks).judged[-1].verdicts
    return [(verdict.answer, verdict.checks[0].off_by) for verdict in verdicts]


def test_raid10_on_partitions_at_63_is_judged_though_the_kernel_reports_minus_1() -> None:
    """alignment_offset was −1, and 4294967295 for md3p1 and md3p2."""
    members = [member(name, 63) for name in ("vdc", "vdd", "vde", "vdf")]
    raid = array("raid10", 128 * KIB, -1, *members)
    assert (63 * 512 + 63 * 512) % 4096 == 3072 and (63 * 512 + 102400 * 512) % 4096 == 3584
    assert answers(*members, raid) == [(Answer.OFF, 3072), (Answer.OFF, 3584)]
    told = [finding for finding in judge(*members, raid).findings if finding.disk == "md3"]
    assert {finding.code.value for finding in told if finding.severity is not Severity.INFO} == {"AT101"}
    assert [finding.code.value for finding in told if "−1" in finding.summary or "-1" in finding.summary] == ["AT208"]
    assert "the data of every member begin" in told[0].summary


def test_a_start_that_compensates_for_the_shift_of_the_members_is_aligned() -> None:
    members = [member("vdc", 63), member("vdd", 63)]
    on = array("raid1", 0, -1, *members, starts="2049+1000")
    assert (2049 + 63) % 8 == 0
    assert answers(*members, on) == [(Answer.ON, 0)]


def test_with_shifted_members_a_start_on_a_sector_may_be_off_the_chunk() -> None:
    members = [member("vdc", 63), member("vdd", 63)]
    raid = array("raid0", 64 * KIB, -1, *members, starts="2049+1000")
    (verdict,) = judge(*members, raid).judged[-1].verdicts
    assert [(check.grid.kind.value, check.off_by) for check in verdict.checks[:2]] == [
        ("physical sector", 0), ("RAID chunk", 512),
    ]  # fmt: skip


def test_the_start_of_a_journal_or_a_spare_does_not_count() -> None:
    """They have no data of the array. Drives that report 512 bytes: the kernel's offset is 0, not -1."""
    members = [member(name, 63, physical=512) for name in ("vdb", "vdc", "vdd")]
    beside = [member("vde", 2048, physical=512), member("vdf", 2049, physical=512)]
    for offset in (0, -1):
        raid = array("raid5", 64 * KIB, offset, *members, *beside, starts="2048+1000; 2049+1000")
        assert raid.array
        raid = replace(raid, array=replace(raid.array, spares=("vde1", "vdf1")))
        assert [off_by for _, off_by in answers(*members, *beside, raid)] == [63 * 512 % 4096, 0]


def test_the_data_offset_of_the_members_is_included() -> None:
    members = [member("vda", 2048), member("vdb", 2048)]
    raid = array("raid0", 64 * KIB, -1, *members, data=MIB + 512, starts="2048+1000")
    assert answers(*members, raid) == [(Answer.OFF, 512)]


def test_members_with_contradictory_offsets_make_the_verdict_unknown() -> None:
    """One disk with lowest_aligned=7 (alignment_offset 3584) and one without, in a RAID1: the kernel reported −1."""
    members = [member("sda", 2048, offset=3584), member("vde", 2048)]
    raid = array("raid1", 0, -1, *members, starts="2048+1000")
    assert [answer for answer, _ in answers(*members, raid)] == [Answer.UNKNOWN]
    assert {"AT109", "AT201"} <= set(codes(judge(*members, raid)))


@pytest.mark.parametrize("change", ["a member is not seen", "a data offset is not known", "linear"])
def test_a_verdict_stays_unknown_if_an_offset_is_missing(change: str) -> None:
    members = [member("vdc", 63), member("vdd", 63)]
    raid = array("linear" if change == "linear" else "raid0", 64 * KIB, -1, *members, starts="2048+1000")
    assert raid.array
    if change == "a data offset is not known":
        raid = replace(raid, array=replace(raid.array, member_data_offsets=raid.array.member_data_offsets[:1]))
    seen = members[:1] if change == "a member is not seen" else members
    assert [answer for answer, _ in answers(*seen, raid)] == [Answer.UNKNOWN]


def test_hidden_physical_sectors_of_the_members_are_respected_on_the_array() -> None:
    """SSDs that report 512: the array reports alignment_offset 0, wherever its members start."""
    members = [member("sda", 63, physical=512), member("sdb", 63, physical=512)]
    raid = array("raid1", 0, 0, *members, starts="2048+1000")
    assert answers(*members, raid) == [(Answer.OFF, 3584)]
    good = [member("sda", 2048, physical=512), member("sdb", 2048, physical=512)]
    assert answers(*good, array("raid1", 0, 0, *good, starts="2048+1000")) == [(Answer.ON, 0)]


def test_a_shift_that_the_kernel_reports_is_used() -> None:
    """RAID1 has no chunk: Linux 6.1 gave alignment_offset 512 for members at sector 63."""
    members = [member("vdc", 63), member("vdd", 63)]
    raid = array("raid1", 0, 512, *members, starts="2049+1000; 4096+1000")
    assert answers(*members, raid) == [(Answer.ON, 0), (Answer.OFF, 3584)]


def test_a_misaligned_whole_disk_member_is_an_error_like_a_member_partition() -> None:
    disk = made_disk(name="sda", physical=4096, offset=3584, rotational=False)
    raid = Layer("linux_raid_member", Extent(0, GIB), "1.0", data_start=0, raid_level="raid1", raid_chunk=0)
    report = judge(replace(disk, content=(raid,), holders=("md5",)))
    assert [(one.code.value, one.off_by) for one in report.findings if one.severity is Severity.ERROR] == [
        ("AT101", 512)
    ]


@pytest.mark.parametrize(("stride", "told"), [(4096, []), (64 * KIB, ["AT405"])])
def test_a_stride_of_one_sector_on_a_mirror_is_not_a_stripe_setting(stride: int, told: list[str]) -> None:
    """mkfs.ext4 with 1 KiB blocks on a 512e disk writes "RAID stride: 4" (dumpe2fs -h) by default."""
    disk = made_disk("2048+1000000", name="md5", kind=DiskKind.MD, physical=4096)
    disk = replace(disk, array=ArrayFacts("raid1", None, ("sda", "vde2")))
    ext4 = Layer("ext4", Extent(MIB, GIB), data_unit=1024, stripe_unit=stride, stripe_width=stride)
    assert [code for code in codes(judge(with_content(disk, ext4))) if code == "AT405"] == told


@pytest.mark.parametrize(
    ("minimum", "words"), [(4096, "physical sectors of 4KiB"), (16384, "minimum I/O units of 16KiB")]
)
def test_a_shift_is_reported_with_the_unit_that_is_shifted(minimum: int, words: str) -> None:
    """As scsi_debug reports it with physblk_exp=3 lowest_aligned=1, and with opt_xferlen_exp=5 in addition."""
    (finding,) = judge(made_disk(physical=4096, minimum=minimum, offset=512)).findings
    assert finding.code.value == "AT208"
    assert f"its {words} start 512B past byte 0" in finding.summary
