"""Arrays, LUKS and LVM on partitions at sector 63 and on shifted disks, against mdadm, the kernel and dmsetup there."""

from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Code
from aligntool.commands import ByHand, by_hand
from aligntool.inventory import DiskKind
from aligntool.linux.look import look
from aligntool.linux.targets import unpack
from aligntool.realign.planning import with_repair_commands
from aligntool.realign.repairs import with_repairs
from aligntool.recipes.drives import known_geometries
from aligntool.render.audit import verdict_line
from aligntool.units import KIB
from tests.audit.machines.captured import HERE, answers, codes, disk, judged, report
from tests.run_aligntool import run_aligntool

RAID = "md-on-misaligned-partitions"

# start in sectors of partitions 1 to 4 of vda to vdh, and their alignment_offset in sysfs
ON_VIRTIO = {1: (63, 512), 2: (614400, 0), 3: (1228800, 0), 4: (2248704, 0)}
# mdadm --detail: level, chunk, metadata; the member's start in sectors, mdadm --examine's data offset in sectors
ARRAYS = {
    "md0": ("raid0", 64 * KIB, "1.2", 63, 2048),
    "md1": ("raid1", None, "1.0", 614400, 0),
    "md2": ("raid5", 512 * KIB, "1.2", 1228800, 4096),
    "md3": ("raid10", 128 * KIB, "0.90", 63, 0),
    "md4": ("raid1", None, "1.1", 614400, 2048),
}


@pytest.mark.parametrize("letter", "abcdefgh")
def test_member_partitions_are_judged_as_by_the_kernel(letter: str) -> None:
    for number, (start, offset) in ON_VIRTIO.items():
        verdict = judged(RAID, f"vd{letter}").by_partition().get(number)
        assert verdict is not None and verdict.start == start * 512
        assert (verdict.answer is Answer.ON) == (offset == 0)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_have_the_properties_that_mdadm_printed(name: str) -> None:
    level, chunk, metadata, _, data = ARRAYS[name]
    facts = disk(RAID, name).array
    assert facts is not None
    assert (facts.level, facts.chunk, facts.metadata) == (level, chunk, metadata)
    assert facts.degraded == (None if level == "raid0" else 0)  # mdadm counts no failed devices
    assert {offset for _, offset in facts.member_data_offsets} == {data * 512}
    assert disk(RAID, name).slaves == facts.members


@pytest.mark.parametrize("name", ARRAYS)
def test_member_data_begin_at_the_sum_of_the_partition_start_and_the_data_offset(name: str) -> None:
    *_, start, data = ARRAYS[name]
    for member in disk(RAID, name).slaves:
        part = next(part for part in disk(RAID, member[:3]).partitions if part.node == member)
        assert part.content[0].data_start == (start + data) * 512


@pytest.mark.parametrize("name", ["md0", "md1", "md2", "md4"])
def test_the_content_of_an_array_is_judged_by_the_sectors_of_its_members(name: str) -> None:
    """lsblk: ext4 on md0, crypto_LUKS on md1, xfs on md2, swap on md4. The kernel reports −1 for md0."""
    *_, start, data = ARRAYS[name]
    assert answers(RAID, name) == {None: Answer.ON if (start + data) % 8 == 0 else Answer.OFF}


def test_partitions_on_an_array_are_judged_with_the_offsets_of_its_members() -> None:
    """alignment_offset was −1 for md3 and 4294967295 for md3p1 (sector 63) and md3p2 (sector 622592)."""
    start = ARRAYS["md3"][3]
    past = [one.checks[0].off_by for one in judged(RAID, "md3").verdicts]
    assert past == [(start + 63) % 8 * 512, (start + 622592) % 8 * 512]
    assert [part.kernel_alignment_offset for part in disk(RAID, "md3").partitions] == [-1, -1]
    assert "AT201" not in codes(RAID, "md3")


@pytest.mark.parametrize("name", ["md5", "dm-3"])
def test_members_with_contradictory_offsets_make_the_verdict_unknown(name: str) -> None:
    """md5: sda has alignment_offset 3584, vde2 0. dm-3 (dmsetup table): stripes at sectors 2048 and 2055 of the two."""
    assert answers(RAID, name) == {None: Answer.UNKNOWN}
    assert {"AT109", "AT201"} <= codes(RAID, name)


def test_arrays_on_whole_disks_with_shifted_sectors_are_misaligned() -> None:
    """sdb and sdc have alignment_offset 3584; mdadm --examine: md6's data begin at sector 2048 of them."""
    assert (2048 * 512 - 3584) % 4096 == 512
    assert [verdict.checks[0].off_by for verdict in judged(RAID, "md6").verdicts] == [512]
    assert "AT101" in codes(RAID, "sdb")


def test_kinds_of_mappings_are_distinguished() -> None:
    """cryptsetup luksDump: one LUKS1 and two LUKS2; lvs -a: nine volumes; dmsetup: two mappings made by hand."""
    kinds = [(disk.mapping or "").split(" ") for disk in report(RAID).inventory.disks if disk.kind is DiskKind.DM]
    assert sorted(words[1] for words in kinds if words[0] == "crypt") == ["LUKS1", "LUKS2", "LUKS2"]
    assert sum(words[0] == "lvm" for words in kinds) == 9
    assert sum(words[0] == "dm" for words in kinds) == 2
    assert disk(RAID, "bcache0").kind is DiskKind.BCACHE and disk(RAID, "bcache0").slaves == ("vdg3",)


def test_a_tree_without_system_files_is_not_reported_as_an_unresponsive_disk() -> None:
    """Only sysfs, udev's data and sectors of this machine were captured."""
    assert "AT903" not in {finding.code.value for finding in report(RAID).findings}


def test_a_named_stacked_device_is_judged_as_among_all_disks(tmp_path: Path) -> None:
    unpack(str(HERE / f"{RAID}.tar.xz"), str(tmp_path))
    stacked = [one for one in report(RAID).judged if one.disk.slaves]
    assert len(stacked) > 15
    for one in stacked:
        name = one.disk.name
        inventory = look([name], sysroot=str(tmp_path), below=True)
        alone = audit(inventory, known_geometries(inventory))
        assert [(other.grids, other.verdicts) for other in alone.judged] == [(one.grids, one.verdicts)]
        assert {found.code.value for found in alone.findings if found.disk == name} == codes(RAID, name)
        assert {found.disk for found in alone.findings} <= {None, name}


def test_what_could_not_be_judged_is_counted_by_what_it_is() -> None:
    """lsblk: sdd is a disk; dm-4, dm-9 and dm-13 are volumes."""
    ((words, _),) = verdict_line(report(RAID))
    assert words.endswith("; 1 disk and 3 stacked devices could not be judged")


def test_an_array_whose_members_exclude_every_start_leads_to_its_members() -> None:
    """Before, the audit of md3 said to audit md3. Its members are partitions 1 of vdc to vdf: mdadm --detail."""
    found, repairs = with_repairs(report(RAID))
    (first, second) = repairs["md3"]
    assert first.answer == second.answer == "not" and first.next == second.next
    assert first.next == f"on the captured machine: {by_hand(ByHand.MEMBERS, 'mdadm', '/dev/md3')}"
    assert {one.next for one in found.findings if one.disk == "md3" and one.code is Code.OFF_PHYSICAL} == {first.next}
    assert not [
        one for name, each in repairs.items() for one in each if one.next.endswith(f"aligntool audit /dev/{name}")
    ]


def test_a_disk_that_is_audited_alone_leads_to_its_arrays_as_well() -> None:
    """Only udev says then that its partitions are members, and no files can be copied from a member."""
    said = run_aligntool("audit", "--sysroot", HERE / f"{RAID}.tar.xz", "vda", code=1).stdout
    assert ByHand.MEMBERS in said and ByHand.RECREATING not in said


def test_nothing_stops_an_array_for_members_that_cannot_be_moved() -> None:
    """No tool here shrinks md, and the partitions leave no room. A plan only reads: it is before every stop."""
    found, repairs = with_repairs(report(RAID))
    hints = [one.next for one in found.findings] + [one.next for each in repairs.values() for one in each]
    assert not [hint for hint in hints if "--stop" in hint or "release" in hint]
    for letter in "abcdef":
        (repair,) = repairs[f"vd{letter}"]
        assert repair.next == f"on the captured machine: {by_hand(ByHand.MEMBERS, 'mdadm', f'/dev/vd{letter}1')}"
    possible = with_repair_commands(report(RAID), {})
    (md0,) = (one for one in possible.findings if one.disk == "md0" and one.code is Code.OFF_PHYSICAL)
    assert md0.next == "sudo aligntool plan realign /dev/vda && sudo aligntool plan realign /dev/vdb"


@pytest.mark.parametrize("name", ["sda", "sdb", "sdc"])
def test_a_whole_drive_in_an_array_leads_to_what_is_done_with_members(name: str) -> None:
    """A plan cannot move it, and a picture of it leads nowhere."""
    off = [found for found in report(RAID).findings if found.disk == name and found.off_by]
    assert [found.next for found in off] == [f"by hand, with mdadm on /dev/{name}: docs/by-hand.md#members-of-an-array"]
