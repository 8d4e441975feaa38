"""Drives and arrays that are refused: all reasons together, each with the next command."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aligntool.change import RaidGoal
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, Sampled
from aligntool.raid.planning import plan_raid
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.machines.captured import judged as captured
from tests.audit.machines.captured import report
from tests.raid.builders import drive, drives, goal, judged, layer, planned
from tests.run_aligntool import run_aligntool

Change = Callable[[Disk], Disk]


def mounted(place: str) -> Change:
    def change(disk: Disk) -> Disk:
        part = replace(disk.partitions[0], mounted_at=(place,))
        return replace(disk, partitions=(part,))

    return change


MEMBERS: list[tuple[str, Change, str, str, str]] = [  # code, evidence in the text, hint
    ("2048+1000 ext4", mounted("/srv"), "mounted", "nvme1n1p1 is mounted at /srv", "umount /srv"),
    ("2048+1000 swap", mounted("[SWAP]"), "mounted", "nvme1n1p1", "swapoff /dev/nvme1n1p1"),
    ("", lambda disk: replace(disk, holders=("md127",)), "held", "nvme1n1 is in use by md127", "audit md127"),
    ("2048+1000 ext4", lambda disk: disk, "not-empty", "partition 1, ext4", "audit /dev/nvme1n1"),
    ("", lambda disk: replace(disk, content=(layer("linux_raid_member", "old"),)), "not-empty", 'md "old"', "audit"),
    ("", lambda disk: replace(disk, content_read=False), "not-read", "nvme1n1", "sudo"),
    ("", lambda disk: replace(disk, failing="its reliability is degraded"), "failing", "is degraded", "smartctl"),
    ("", lambda disk: replace(disk, read_only=True), "read-only", "nvme1n1", ""),
    ("", lambda disk: replace(disk, kind=DiskKind.IMAGE), "file", "nvme1n1", "losetup"),
    (
        "",
        lambda disk: replace(disk, limits=IoLimits(4096, 4096)),
        "block-sizes",
        "nvme1n1 4096",
        "by hand, with nvme: docs/by-hand.md#another-sector-size",
    ),
    ("", lambda disk: replace(disk, wwn="eui.0000000000000000"), "same-drive", "WWN", "once"),
    ("", lambda disk: replace(disk, wwn="eui.ff", serial="S0000"), "same-drive", "serial", "once"),
    ("", lambda disk: replace(disk, stands_on=("sda", "sdb")), "same-drive", "both on sda", "once"),
    ("", lambda disk: replace(disk, kind=DiskKind.DM), "mapping", "nvme1n1", "--whole-drives"),
    ("", lambda disk: replace(disk, zoned="host-managed"), "zoned", "nvme1n1 is host-managed", ""),
    ("", lambda disk: replace(disk, size=8 * MIB), "too-small", "16MiB", "larger"),
]


@pytest.mark.parametrize(("parts", "change", "code", "evidence", "hint"), MEMBERS)
def test_an_unsuitable_drive_is_refused_as_a_member(
    parts: str, change: Change, code: str, evidence: str, hint: str
) -> None:
    with pytest.raises(Refused) as refused:
        planned(goal(), replace(drive(0), stands_on=("sda",), zoned="none"), change(drive(1, parts=parts)))
    refusal = next(one for one in refused.value.refusals if one.code == code)
    assert evidence in refusal.text and refusal.subject
    assert hint in refused.value.hint
    assert "--wipe nvme" not in refused.value.hint and "--wipe /dev" not in refused.value.hint


@pytest.mark.parametrize(
    ("more", "is_named"), [({}, True), ({"lba_size": 4096}, False), ({"zero_members": True}, False)]
)
def test_wipe_is_named_where_it_helps_and_without_a_drive(more: dict[str, Any], is_named: bool) -> None:
    """Pasted without thinking, the hint loses nothing: the drive has to be typed."""
    with pytest.raises(Refused) as refused:
        planned(goal(**more), drive(0), drive(1, parts="2048+1000 ext4"))
    hints = [one.hint for one in refused.value.refusals if one.code == "not-empty"]
    assert hints and all(("with --wipe, which overwrites all of it" in hint) is is_named for hint in hints)
    assert not any("--wipe nvme" in hint or "--wipe /dev" in hint for hint in hints)


PLACES: list[tuple[str, Change, str, str]] = [  # code, evidence in the text
    ("", lambda disk: replace(disk, content=(layer("isw_raid_member"),)), "array-member", "as a whole is a isw"),
    ("", lambda disk: replace(disk, content=(layer("drbd"),)), "array-member", "the table belongs to the array"),
    ("", lambda disk: replace(disk, kernel_partitions=((1, Extent(GIB, GIB)),)), "kernel-differs", "the kernel has it"),
    ("; 1048576+4096", lambda disk: disk, "table-damaged", "nvme1n1p1 and partition 2 of nvme1n1 overlap"),
]


@pytest.mark.parametrize(("parts", "change", "code", "evidence"), PLACES)
@pytest.mark.parametrize("wipe", [(), ("nvme1n1p1",)])
def test_a_partition_that_looks_empty_is_refused_if_its_bytes_are_needed(
    parts: str, change: Change, code: str, evidence: str, wipe: tuple[str, ...]
) -> None:
    """Nothing is recognised in it, and its bytes are those of an array, of its old place, of another partition."""
    drives = [drive(0, parts="2048+2097152"), change(drive(1, parts=f"2048+2097152{parts}"))]
    wanted = goal(partitions=(1, 1), wipe=wipe)
    whole = [drive(number, parts="2048+2097152") for number in range(2)]
    assert planned(replace(wanted, wipe=()), *whole).steps
    with pytest.raises(Refused) as refused:
        planned(wanted, *drives)
    (refusal,) = refused.value.refusals
    assert refusal.code == code and evidence in refusal.text and refusal.hint


GOALS: list[tuple[RaidGoal, int, str]] = [
    (goal("raid1", chunk=64 * KIB), 2, "--chunk"),
    (goal("raid5", chunk=96 * KIB), 3, "--chunk"),
    (goal("raid0", chunk=6 * KIB), 2, "--chunk"),
    (goal("raid5"), 2, "--level"),
    (goal("raid6"), 3, "--level"),
    (goal("raid0"), 1, "--level"),
    (goal("raid10", layout="n5"), 4, "--layout"),
    (goal("raid10", layout="n3"), 2, "--layout"),
    (goal("raid5", layout="n2"), 3, "--layout"),
    (goal("raid0", bitmap="internal"), 2, "--bitmap"),
    (goal("raid7"), 2, "--level"),
    (goal("raid1", filesystem="zfs"), 2, "--fs"),
    (goal("raid1", workload="games"), 2, "--workload"),
    (goal("raid1", name="my data"), 2, "--name"),
    (goal("raid1", name="x" * 33), 2, "--name"),
    (goal("raid1", mount_at="/srv/my data"), 2, "--mount"),
    (goal("raid1", mount_at="srv"), 2, "--mount"),
    (goal("raid1", members="partitions"), 2, "nvme0n1, nvme1n1"),
    (goal("raid1", system="plan9"), 2, "--system"),
]
CODES = {"--level": {"invalid-option", "too-few-members"}, "nvme0n1, nvme1n1": {"wrong-members"}}


@pytest.mark.parametrize(("wanted", "count", "subject"), GOALS)
def test_an_impossible_array_is_refused(wanted: RaidGoal, count: int, subject: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(wanted, *drives(count))
    (refusal,) = (one for one in refused.value.refusals if one.subject == subject)
    assert refusal.code in CODES.get(subject, {"invalid-option"})


def test_a_raid0_chunk_may_be_other_than_a_power_of_two_with_a_warning() -> None:
    """raid0.c, create_strip_zones: a multiple of the logical block is enough."""
    plan = planned(goal("raid0", chunk=96 * KIB), *drives(2))
    assert any("power of two" in sentence for sentence in plan.attention)


def test_all_reasons_are_reported_together() -> None:
    bad = replace(drive(1, parts="2048+1000 ext4"), read_only=True, failing="it dies", limits=IoLimits(4096, 4096))
    with pytest.raises(Refused) as refused:
        planned(goal("raid5", chunk=96 * KIB), drive(0), bad)
    assert {one.code for one in refused.value.refusals} == {
        "read-only", "failing", "not-empty", "block-sizes", "too-few-members", "invalid-option"
    }  # fmt: skip
    assert len(set(refused.value.hint.split("\n"))) == len(refused.value.hint.split("\n"))


def test_only_the_content_of_drives_named_by_wipe_may_be_lost() -> None:
    full = [drive(number, parts="2048+1000 ext4") for number in range(2)]
    with pytest.raises(Refused) as refused:
        planned(goal(wipe=("nvme0n1",)), *full)
    assert "nvme1n1 is not empty" in str(refused.value) and "nvme0n1 is" not in str(refused.value)
    plan = planned(goal(wipe=("/dev/nvme0n1", "nvme1n1")), *full)
    assert plan.steps
    for number in range(2):
        assert any(line.startswith("lost: partition 1, ext4") and f"nvme{number}n1" in line for line in plan.attention)


def test_wipe_of_a_partition_does_not_cover_its_drive_and_must_name_a_member() -> None:
    full = [drive(number, parts="2048+1000 ext4") for number in range(2)]
    with pytest.raises(Refused) as refused:
        planned(goal(wipe=("nvme0n1p1", "nvme1n1", "sda")), *full)
    for why in ("nvme0n1 is not empty", "--wipe nvme0n1p1: not a member", "--wipe sda: not a member"):
        assert why in str(refused.value)


def test_drives_and_partitions_are_not_mixed() -> None:
    disks = (drive(0), drive(1, parts="2048+4000000"))
    with pytest.raises(Refused) as refused:
        planned(goal(partitions=(None, 1)), *disks)
    assert "wrong-members" in [one.code for one in refused.value.refusals]


def test_two_partitions_of_one_drive_do_not_count_as_two_members() -> None:
    (one,) = judged(drive(0, parts="2048+4000000; 4100000+4000000"))
    with pytest.raises(Refused, match="both on one drive"):
        plan_raid((one, one), Inventory((one.disk,)), goal(partitions=(1, 2)))


def test_two_namespaces_of_one_controller_count_as_one_drive() -> None:
    """nvme list of that machine: nvme4n1 and nvme4n2 have one serial number."""
    members = [captured("nvme-behind-switch", name) for name in ("nvme4n1", "nvme4n2")]
    with pytest.raises(Refused, match="nvme4n1 and nvme4n2 are two names of one drive"):
        plan_raid(members, report("nvme-behind-switch").inventory, goal())


def test_members_of_running_arrays_of_a_captured_machine_are_refused() -> None:
    members = [captured("md-on-misaligned-partitions", name) for name in ("vda", "vdb")]
    inventory = report("md-on-misaligned-partitions").inventory
    with pytest.raises(Refused) as refused:
        plan_raid(members, inventory, goal(partitions=(1, 1)))
    assert "vda1 is in use by md0" in str(refused.value)
    assert "vdb1 is in use by md0" in str(refused.value)
    assert "aligntool audit md0" in refused.value.hint
    members = [replace(member, above=inventory) for member in members]
    with pytest.raises(Refused) as refused:
        plan_raid(members, inventory, goal(partitions=(1, 1)))
    assert "sudo mdadm --stop /dev/md0" in refused.value.hint
    assert "vdb1 is in use by md0; to stop it takes what is on it out of use" in str(refused.value)
    assert "audit md0" not in refused.value.hint


def test_a_drive_that_is_too_small_for_a_member_is_refused() -> None:
    with pytest.raises(Refused, match="need at least"):
        planned(goal(spare_room=2 * GIB), drive(0), drive(1, size=GIB))


def test_a_mapping_may_be_a_member() -> None:
    mapped = [replace(disk, kind=DiskKind.DM, stands_on=(disk.name,)) for disk in drives(2)]
    assert planned(goal(members="whole-drives"), *mapped).steps


@pytest.mark.parametrize(
    ("kind", "word"), [(DiskKind.USB, "on USB"), (DiskKind.NETWORK, "over a network"), (DiskKind.MEMORY, "in memory")]
)
def test_a_member_that_may_disappear_is_reported(kind: DiskKind, word: str) -> None:
    plan = planned(goal(), drive(0), replace(drive(1), kind=kind))
    assert [sentence.split()[0] for sentence in plan.attention if word in sentence] == ["nvme1n1:"]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.on_disk
def test_two_loop_devices_over_one_file_do_not_count_as_two_members(
    sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    """Even if one is on top of the other: both end on the file."""
    file, other = sparse(GIB), sparse(GIB, "other.img")
    first, second = loop(file), loop(file)
    third = loop(first)
    for one, two in ((first, second), (second, third)):
        done = run_aligntool("raid", "plan", "--level", "1", "--system", "debian", one, two)
        assert done.returncode == 3 and done.stdout == ""
        assert f"{one.name} and {two.name} are both on file {file}" in done.stderr
    done = run_aligntool("raid", "plan", "--level", "1", "--system", "debian", second, loop(other))
    assert "made of" not in done.stderr


def test_two_volumes_on_one_drive_of_a_captured_machine_are_not_two_members() -> None:
    """lsblk of it: the parts dm-5 and dm-6 of a volume are on vde3, dm-7 on vdf3."""
    inventory = report("md-on-misaligned-partitions").inventory
    named = {name: captured("md-on-misaligned-partitions", name) for name in ("dm-5", "dm-6", "dm-7")}
    for one, two, same in (("dm-5", "dm-6", True), ("dm-6", "dm-7", False)):
        with pytest.raises(Refused) as refused:
            plan_raid((named[one], named[two]), inventory, goal(members="whole-drives"))
        assert (f"{one} and {two} are both on vde" in str(refused.value)) == same


def test_the_refusal_of_a_small_drive_states_its_room_and_what_remains_free() -> None:
    """100 MiB at the end remain free for a replacement drive that is smaller: docs/cli.md, --spare-end."""
    small = [replace(drive(number), size=64 * MIB) for number in (0, 1)]
    with pytest.raises(Refused) as refused:
        planned(goal("raid1"), *small)
    text = str(refused.value)
    assert "nvme0n1 of 64MiB has room for 0B, nvme1n1 of 64MiB has room for 0B; 100MiB at the end" in text
    assert "--spare-end 1MiB" in refused.value.hint
    assert planned(replace(goal("raid1"), spare_room=MIB, filesystem="ext4"), *small).steps
    with pytest.raises(Refused, match="nvme0n1 of 8MiB has room for 6MiB") as refused:
        planned(goal("raid0"), *(replace(one, size=8 * MIB) for one in small))
    assert "at the end" not in str(refused.value) and "--spare-end" not in refused.value.hint


def test_only_the_drive_that_is_too_small_is_named_as_such() -> None:
    for wanted in (goal("raid1"), goal("raid1", members="whole-drives")):
        with pytest.raises(Refused) as refused:
            planned(wanted, replace(drive(0), size=50 * MIB), drive(1))
        (refusal,) = refused.value.refusals
        assert refusal.subject == "nvme0n1" and "nvme1n1" not in refusal.text
    with pytest.raises(Refused) as refused:  # room for a member, but not for its chunk
        planned(goal("raid0", chunk=GIB), drive(0), replace(drive(1), size=GIB))
    assert [each.subject for each in refused.value.refusals] == ["nvme1n1"]


def test_a_missing_partition_does_not_hide_other_reasons() -> None:
    small, full = drive(0, size=8 * MIB), drive(1, parts="2048+1000 ext4")
    wanted = goal("raid5", system="plan9", partitions=(None, None, 7))
    members = judged(replace(small, size=8 * MIB), full, drive(2))
    with pytest.raises(Refused) as refused:
        plan_raid(members, Inventory(tuple(each.disk for each in members)), wanted)
    for why in ("'plan9' is not a supported system", "nvme2n1 has no partition 7", "nvme1n1 is not empty"):
        assert why in str(refused.value)
    assert "needs at least 3" not in str(refused.value)
    with pytest.raises(Refused) as refused:
        planned(goal(system="plan9"), small, full)
    for why in ("'plan9' is not a supported system", "members need at least 16MiB", "nvme1n1 is not empty"):
        assert why in str(refused.value)


def test_a_single_drive_is_a_raid0_only_if_the_user_accepts_one() -> None:
    for wanted in (goal("raid0"), goal("raid1", one_drive=True), goal("raid10", one_drive=True)):
        with pytest.raises(Refused, match=r"needs at least 2 members, and 1 is named"):
            planned(wanted, drive(0))
    with pytest.raises(Refused) as refused:
        planned(goal("raid0"), drive(0))
    assert "--one-drive" in refused.value.hint
    assert planned(goal("raid0", one_drive=True), drive(0)).steps
    assert planned(goal("raid0", one_drive=True), *drives(2)) == planned(goal("raid0"), *drives(2))


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.on_disk
def test_links_to_one_drive_count_once_and_a_repeated_name_is_refused(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    """udev makes several links to each drive in /dev/disk/by-id."""
    first, second = loop(sparse(GIB)), loop(sparse(GIB, "other.img"))
    links = [tmp_path / name for name in ("nvme-eui.01", "nvme-A_S1", "nvme-A_S1_1", "nvme-A_S2")]
    for link, target in zip(links, (first, first, first, second), strict=True):
        link.symlink_to(target)
    plan = ("raid", "plan", "--level", "1", "--system", "debian", "--fs", "none")
    done = run_aligntool(*plan, *links)
    assert f"{links[0]}, {links[1]}, {links[2]}: the same device, {first}; it counts once" in done.stderr
    assert done.returncode == 0 and "RAID1 of 2 members" in done.stdout
    few = run_aligntool(*plan, *links[:3])
    assert few.returncode == 3 and "needs at least 2 members, and 1 is named" in few.stderr
    twice = run_aligntool(*plan, links[0], links[0], second)
    assert twice.returncode == 3 and f"{first.name} is named twice" in twice.stderr


def test_drives_of_which_too_little_was_read_are_refused_in_one_line_with_one_hint() -> None:
    sampled = Sampled(places=8195, written=0, unreadable=0, digest="", spacing=32 * MIB)
    sparse = [replace(drive(number), sampled=sampled) for number in range(3)]
    other = replace(drive(3), sampled=replace(sampled, places=99))
    with pytest.raises(Refused) as refused:
        planned(goal(wipe=("nvme2n1",)), *sparse, other)
    assert [each.subject for each in refused.value.refusals] == ["nvme0n1", "nvme1n1", "nvme3n1"]
    assert [line.partition(": ")[0] for line in str(refused.value).splitlines()] == [
        "nvme0n1, nvme1n1 are not known to be empty",
        "nvme3n1 is not known to be empty",
    ]
    assert refused.value.hint.endswith("add: --wipe nvme0n1 --wipe nvme1n1 --wipe nvme3n1")
    assert refused.value.hint.count("\n") == 0
