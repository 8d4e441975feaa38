"""All reasons against a move are reported together, with evidence and the next command."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.change import LayoutGoal, PartitionRequest, Plan, RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.cli.partitions import Layout
from aligntool.commands import typed
from aligntool.contents.ntfs import WINDOWS_HIBERNATED
from aligntool.convert.operation import Conversion
from aligntool.errors import Refused
from aligntool.formats.reader import MAY_BE_SHARED
from aligntool.inventory import Disk, DiskKind, Fault, Inventory, Layer, Partition, Role, Table, TableFault, TableLabel
from aligntool.linux import in_use
from aligntool.linux.in_use import Occupant, all_ends
from aligntool.linux.partitions import find_devices
from aligntool.linux.sysfs import Tree
from aligntool.realign import preconditions, request
from aligntool.realign.found_plan import find_plan
from aligntool.realign.planning import find_repairs, plan_realign
from aligntool.realign.refusals import refuse_impossible
from aligntool.realign.request import Request
from aligntool.units import MIB, Extent
from aligntool.whole_disk.operation import WholeDisk
from tests.conftest import run
from tests.linux.trees import MadeDisk, make_tree
from tests.realign.movable_disks import judged, movable_disk, plan_for

OFF = "63+100000 ext4; 104448+100000 xfs"
HOME = Extent(104448 * 512, 100000 * 512)  # of the second partition, which is on the grid
SUSPENDED = Layer("swsuspend", HOME)
SHARED_PV = Layer("LVM2_member", HOME, unclean=f"{MAY_BE_SHARED} (vg: lock type sanlock)")
PLACE = "/dev/sda, 51200000 bytes from byte 32256"
SHARING = "docs/by-hand.md#a-content-marked-as-shared"
NOT_UNMOUNTED = "docs/by-hand.md#a-file-system-that-was-not-unmounted"
SHARED = Layer("ext4", HOME, unclean=f"{MAY_BE_SHARED} (MMP)")
Change = Callable[[Disk], Disk]


def test_what_a_mount_explains_is_not_a_second_reason() -> None:
    """The checker and the kernel see the journal of a mounted file system in use."""
    for unclean, codes in (
        ("its journal must be replayed", ["mounted"]),
        (f"{MAY_BE_SHARED} (MMP)", ["mounted", "unclean"]),
        (WINDOWS_HIBERNATED, ["mounted", "unclean"]),
    ):
        content = (Layer("ext4", Extent(63 * 512, 100000 * 512), unclean=unclean),)
        mounted = partition(content=content, mounted_at=("/home",))(movable_disk(OFF))
        with pytest.raises(Refused) as refused:
            plan_for(mounted)
        assert sorted({reason.code for reason in refused.value.refusals}) == codes


def partition(**changes: object) -> Change:
    """Change the first partition."""
    return lambda disk: replace(
        disk, partitions=(replace(disk.partitions[0], **changes), *disk.partitions[1:])  # type: ignore[arg-type]
    )  # fmt: skip


def second(**changes: object) -> Change:
    return lambda disk: replace(
        disk, partitions=(disk.partitions[0], replace(disk.partitions[1], **changes))  # type: ignore[arg-type]
    )  # fmt: skip


def layer(kind: str = "ext4", **changes: object) -> Change:
    one = Layer(kind, Extent(63 * 512, 100000 * 512), **changes)  # type: ignore[arg-type]
    return partition(content=(one,))


def disk(**changes: object) -> Change:
    return lambda disk: replace(disk, **changes)  # type: ignore[arg-type]


def table(**changes: object) -> Change:
    return lambda disk: replace(disk, table=replace(disk.table or Table(TableLabel.GPT, 512), **changes))  # type: ignore[arg-type]


def fault(kind: Fault) -> Change:
    return table(faults=(TableFault(kind, "the numbers"),))


def nested(disk: Disk) -> Disk:
    inside = Partition(5, Extent(2048 * 512, MIB), Role.NESTED, content_read=True)
    return replace(disk, partitions=(*disk.partitions, inside))


REFUSED = [  # code, evidence in the text, hint
    (partition(mounted_at=("/home",)), "mounted", "partition 1 is mounted at /home", "umount /home"),
    (second(mounted_at=("/",)), "mounted", "partition 2 is mounted at /: ", "live system"),
    (second(mounted_at=("[SWAP]",), node="sda2"), "mounted", "swap", "swapoff /dev/sda2"),
    (
        partition(holders=("md0",)),
        "held",
        "md0; to stop it takes what is on it out of use until it is started again, and loses nothing",
        "mdadm --stop /dev/md0",
    ),
    (partition(holders=("dm-0",)), "held", "dm-0 (lvm vg/root)", "vgchange -an vg"),
    (partition(holders=("dm-1",)), "held", "dm-1 (crypt LUKS2 secret)", "cryptsetup close secret"),
    (partition(holders=("dm-2",)), "held", "dm-2 (lvm vg/origin (real))", "vgchange -an vg"),
    (partition(holders=("dm-3",)), "held", "dm-3 (crypt LUKS2 my disk)", "cryptsetup close 'my disk'"),
    (partition(holders=("drbd0",)), "held", "drbd0", "drbdadm down RESOURCE"),
    (disk(mounted_at=("/mnt",)), "mounted", "sda is mounted at /mnt", "umount /mnt"),
    (disk(holders=("dm-7",)), "held", "sda is held by dm-7", "dmsetup remove /dev/dm-7"),
    (disk(read_only=True), "read-only", "sda", "with blockdev on /dev/sda: docs/by-hand.md#a-disk"),
    (disk(failing="8 sectors are pending"), "failing", "8 sectors are pending", "sudo smartctl -a /dev/sda"),
    (disk(size=None), "size-unknown", "sda", "audit"),
    (disk(table_read=False), "not-read", "table of sda", "sudo"),
    (disk(kind=DiskKind.DM, slaves=("sdb",)), "mapping", "it is mapped to sdb", "audit"),
    (disk(kind=DiskKind.DASD), "dasd", "sda", "fdasd"),
    (disk(zoned="host-managed"), "zoned", "sda is host-managed zoned", "blkzone report /dev/sda"),
    (disk(content=(Layer("isw_raid_member", Extent(0, MIB)),)), "not-judged", "array", ""),
    (disk(content=(Layer("drbd", Extent(0, MIB)),)), "not-judged", "DRBD array", ""),
    (disk(content=(Layer("ext4", Extent(0, MIB)),)), "ambiguous", "as a whole holds ext4", "wipefs --no-act"),
    (
        disk(content=(Layer("ext4", Extent(0, MIB)),), table=None, kernel_partitions=((1, HOME),)),
        "kernel-differs",
        "has no partition table, but the kernel has partitions",
        "with partprobe on /dev/sda: docs/by-hand.md#the-kernel",
    ),
    (table(label=TableLabel.SUN), "table-kind", "sun", "audit"),
    (table(hybrid=True), "hybrid-mbr", "sda", "AT307"),
    (fault(Fault.HYBRID_MBR), "hybrid-mbr", "sda", "AT307"),
    (partition(content_read=False), "not-read", "partition 1", "sudo"),
    (layer("BitLocker"), "bitlocker", "partition 1", "manage-bde -off"),
    (layer("swsuspend"), "hibernated", "partition 1", "shut it down"),
    (second(content=(SUSPENDED,)), "hibernated", "partition 2 holds the image", "shut it down"),
    (second(content=(Layer("LVM2_member", HOME, inner=(SUSPENDED,)),)), "hibernated", "partition 2", "shut it down"),
    (second(content=(Layer("ntfs", HOME, unclean=WINDOWS_HIBERNATED),)), "unclean", "partition 2: Windows", "/s /f"),
    (layer(problems=("the checksum is bad",)), "content-damaged", "the checksum is bad", "e2fsck -f -n"),
    (layer(claims_size=100001 * 512), "content-damaged", "51200000 bytes, but its ext4 claims 51200512", "e2fsck"),
    (layer(unclean=f"{MAY_BE_SHARED} (MMP)"), "unclean", "(MMP)", f"with tune2fs on {PLACE}: {SHARING}"),
    (
        layer("LVM2_member", unclean=f"{MAY_BE_SHARED} (vg: lock type dlm)"),
        "unclean",
        "dlm",
        f"with vgchange on {PLACE}: {SHARING}",
    ),
    (layer("LVM2_member", unclean=f"{MAY_BE_SHARED} (vg: system ID b)"), "unclean", "(vg: ", "with vgchange"),
    (layer("LVM2_member", unclean=f'{MAY_BE_SHARED} (-v: system ID b" x/y="/z)'), "unclean", "-v", "with vgchange"),
    (layer("zfs_member", unclean=f"{MAY_BE_SHARED} (multihost)", label="-R/etc"), "unclean", "(mul", "with zpool"),
    (
        layer("linux_raid_member", unclean=f"{MAY_BE_SHARED} (cluster bitmap)"),
        "unclean",
        "bitmap",
        f"with mdadm on {PLACE}: {SHARING}",
    ),
    (layer("gfs2", unclean=f"{MAY_BE_SHARED} (lock protocol lock_dlm)"), "unclean", "lock_dlm", "with tunegfs2"),
    (layer("ocfs2", unclean=f"{MAY_BE_SHARED} (a cluster)"), "unclean", "cluster", "with tunefs.ocfs2"),
    (
        layer("LVM2_member", inner=(SHARED,)),
        "unclean",
        "the ext4 in it: it may be",
        f"with tune2fs on the ext4 in it: {SHARING}",
    ),
    (
        layer("linux_raid_member", inner=(SHARED_PV,)),
        "unclean",
        "PV in it: it may",
        f"with vgchange on the LVM2 PV in it: {SHARING}",
    ),
    (
        layer(unclean="it is mounted on node7, or was (MMP)"),
        "unclean",
        "node7",
        f"with e2fsck on {PLACE}: {NOT_UNMOUNTED}",
    ),
    (
        layer(unclean="its journal must be replayed"),
        "unclean",
        "its journal must be replayed",
        f"with e2fsck on {PLACE}: {NOT_UNMOUNTED}",
    ),
    (partition(content=(Layer("ext4", Extent(0, 1)), Layer("xfs", Extent(0, 1)))), "ambiguous", "ext4", "wipefs"),
    (nested, "nested-label", "partition 1", "audit"),
    (disk(kernel_partitions=((1, Extent(64 * 512, 100000 * 512)),)), "kernel-differs", "byte 32768", "partprobe"),
]
BROKEN = [one for one in Fault if one not in (Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR, Fault.HYBRID_MBR)]


def above(seen: Disk) -> tuple[Disk, ...]:
    """Return devices that may hold the disk."""
    return (
        Disk("dm-0", "/dev/dm-0", DiskKind.DM, MIB, seen.limits, mapping="lvm vg/root"),
        Disk("dm-1", "/dev/dm-1", DiskKind.DM, MIB, seen.limits, mapping="crypt LUKS2 secret"),
        Disk("dm-2", "/dev/dm-2", DiskKind.DM, MIB, seen.limits, mapping="lvm vg/origin (real)"),
        Disk("dm-3", "/dev/dm-3", DiskKind.DM, MIB, seen.limits, mapping="crypt LUKS2 my disk"),
    )


def refusal_of(seen: Disk, goal: RealignGoal | None = None) -> Refused:
    """Return the refusal, also with devices that may be on top of it."""
    machine = Inventory((seen, *above(seen)))
    with pytest.raises(Refused) as refusal:
        plan_realign(replace(audit(machine, {}).judged[0], above=machine), goal or RealignGoal(), {}, ALL_FREE)
    return refusal.value


def plan_layout(disk: str, given: Request) -> Plan:
    return Layout(disk, LayoutGoal((PartitionRequest(None, "linux"),)), given).make_plan()


@pytest.mark.parametrize(
    "find",
    [find_plan, WholeDisk(Request(), undo=True).find_plan, Conversion(Request(), (4096,)).find_plan, plan_layout],
)
def test_the_refusal_of_every_change_names_the_command_that_releases_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, find: Callable[[str, Request], object]
) -> None:
    image = tmp_path / "disk.img"
    seen = partition(holders=("dm-0",))(replace(movable_disk("63+100000 ext4"), path=str(image)))
    with image.open("wb") as file:
        file.truncate(seen.size)
    monkeypatch.setattr(request, "look", lambda names, **_: Inventory((seen,)))
    monkeypatch.setattr(preconditions, "find_devices", lambda: Inventory(above(seen)[:1]))
    with pytest.raises(Refused, match=r"held by dm-0 \(lvm vg/root\)|in use by dm-0") as refusal:
        find(str(image), Request())
    assert "sudo vgchange -an vg" in refusal.value.hint


Above = tuple[str, str | None, tuple[str, ...], tuple[str, ...], str]

STACKS = [  # holders of the partition; devices above: name, kind, mapping, mounts, holders, metadata; the hint
    (
        ("dm-0",),
        [("dm-0", "crypt LUKS2 safe", (), ("dm-1", "dm-2"), ""), ("dm-1", "lvm vg/a", ("/srv", "/srv/in"), (), ""),
         ("dm-2", "lvm vg/b", ("[SWAP]",), (), "")],
        "sudo swapoff /dev/dm-2 && sudo umount /srv/in && sudo umount /srv && sudo vgchange -an vg"
        " && sudo cryptsetup close safe",
    ),
    (
        ("dm-0", "dm-1"),
        [("dm-0", "lvm vg/a", (), (), ""), ("dm-1", "lvm vg/b", ("/srv",), (), "")],
        "sudo umount /srv && sudo vgchange -an vg",
    ),
    (
        ("md0",),
        [("md0", None, (), ("dm-0",), "1.2"), ("dm-0", "crypt LUKS2 safe", (), ("md1",), ""),
         ("md1", None, ("/srv",), (), "1.2")],
        "sudo umount /srv && sudo mdadm --stop /dev/md1 && sudo cryptsetup close safe && sudo mdadm --stop /dev/md0",
    ),
    (
        ("md126", "md127"),
        [("md126", None, (), (), "external:imsm"), ("md127", None, ("/srv",), (), "external:/md126/0")],
        "sudo umount /srv && sudo mdadm --stop /dev/md127 && sudo mdadm --stop /dev/md126",
    ),
    (
        ("dm-0",),
        [("dm-0", "crypt SUBDEV safe_dif", (), ("dm-1",), ""), ("dm-1", "crypt LUKS2 safe", ("/srv",), (), "")],
        "sudo umount /srv && sudo cryptsetup close safe",
    ),
    # `vgchange -an` stops no volume of a group as long as one is in use, also on another disk.
    (
        ("dm-0",),
        [("dm-0", "lvm vg/a", (), (), ""), ("dm-8", "lvm vg/b", ("/home",), (), ""),
         ("dm-9", "lvm other/c", ("/srv",), (), "")],
        "sudo umount /home && sudo vgchange -an vg",
    ),
    (
        ("dm-0", "dm-1"),
        [("dm-0", "lvm vg/root", ("/mnt",), (), ""), ("dm-1", "lvm vg/home", ("/mnt/home",), (), "")],
        "sudo umount /mnt/home && sudo umount /mnt && sudo vgchange -an vg",
    ),
    (
        ("dm-0",),
        [("dm-0", "multipath my map", (), ("dm-1",), ""), ("dm-1", "partition 1 my map-part1", ("/srv",), (), "")],
        "sudo umount /srv && sudo dmsetup remove /dev/dm-1 && sudo multipath -f 'my map'",
    ),
    (("dm-0",), [("dm-0", "crypt LUKS2 safe", (), ("dm-1",), ""), ("dm-1", "lvm vg/root", ("/",), (), "")],
     "start from another medium, such as a live system, and run it there"),
]  # fmt: skip


UUIDS = {"crypt": "CRYPT-{0}-0-{1}", "lvm": "LVM-0", "multipath": "mpath-0", "partition": "part{0}-mpath-0"}


def stacked(folder: Path, above: Sequence[Above]) -> Inventory:
    """Return what is found of these devices in a made /sys."""
    made = []
    for name, mapping, mounts, holders, metadata in above:
        kind, _, rest = (mapping or "").partition(" ")
        first, _, named = rest.partition(" ")
        named = rest if kind == "multipath" else named or rest.replace("/", "-")
        dm = {"dm/name": named, "dm/uuid": UUIDS[kind].format(first, named)} if kind else {}
        attributes = dm | ({"md/metadata_version": metadata} if metadata else {})
        made.append(MadeDisk(name, MIB, mounted_at=mounts, holders=holders, attributes=attributes))
    swaps = [f"/dev/{name}" for name, _, mounts, *_ in above if "[SWAP]" in mounts]
    made = [replace(each, mounted_at=tuple(set(each.mounted_at) - {"[SWAP]"})) for each in made]
    found = find_devices(Tree(str(make_tree(folder, made, swaps=swaps))))
    assert {disk.name: disk.mapping for disk in found.disks} == {name: mapping for name, mapping, *_ in above}
    return found


@pytest.mark.parametrize(("holders", "above", "hint"), STACKS)
def test_a_stack_is_released_from_the_top(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holders: tuple[str, ...], above: Sequence[Above], hint: str
) -> None:
    image = tmp_path / "disk.img"
    seen = partition(holders=holders)(replace(movable_disk("63+100000 ext4"), path=str(image)))
    with image.open("wb") as file:
        file.truncate(seen.size)
    devices = stacked(tmp_path / "machine", above)
    monkeypatch.setattr(request, "look", lambda names, **_: Inventory((seen,)))
    monkeypatch.setattr(preconditions, "find_devices", lambda: devices)
    with pytest.raises(Refused, match=f"held by {holders[0]}") as refusal:
        find_plan(str(image), Request())
    assert refusal.value.hint == hint


@pytest.mark.parametrize(("holders", "above", "hint"), STACKS[:-1])
def test_a_stack_that_was_opened_meanwhile_is_released_from_the_top(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holders: tuple[str, ...], above: Sequence[Above], hint: str
) -> None:
    for name in holders:
        (tmp_path / "sda1/holders" / name).mkdir(parents=True)
    devices = stacked(tmp_path / "machine", above)
    monkeypatch.setattr(in_use, "sysfs_folder", lambda _: tmp_path / "sda1")
    monkeypatch.setattr(in_use, "find_devices", iter([devices]).__next__)  # reads all devices: once is enough
    found = [*in_use._holder_occupants({1: "sda1"})]
    assert (len(found) == len(holders) and f"{holders[0]} (" in found[0].what) or holders[0].startswith("md")
    assert all_ends(found) == hint


def test_a_mount_point_with_a_joined_command_in_its_name_stays_quoted() -> None:
    """The label of a stick may be such a name. Each half of it occurs twice."""
    places = ["/media/A && B", "/media/C'\\ && B", "/media/A && $(id)", "/media/D\n && $(id)", "/media/A && B"]
    found = [Occupant("", typed("umount", place)) for place in places]
    printed = run("bash", "-c", all_ends(found).replace("sudo umount", "printf '%s\\0'"))
    assert printed.split("\0") == [*places[:-1], ""]


def test_a_mount_inside_another_one_is_unmounted_first() -> None:
    seen = partition(mounted_at=("/mnt",))(second(mounted_at=("/mnt/home",))(movable_disk(OFF)))
    goal = LayoutGoal((PartitionRequest(None, "linux"),), wipe=True)
    with pytest.raises(Refused) as layout:
        refuse_impossible(replace(seen, content_read=True), goal)
    for refused in (refusal_of(seen), layout.value):
        assert [one.hint for one in refused.refusals] == ["sudo umount /mnt/home", "sudo umount /mnt"]


def codes_of(seen: Disk, goal: RealignGoal | None = None) -> list[str]:
    return [one.code for one in refusal_of(seen, goal).refusals]


@pytest.mark.parametrize(("change", "code", "evidence", "hint"), REFUSED)
def test_an_unsuitable_disk_is_refused_with_the_reason_and_what_to_do(
    change: Change, code: str, evidence: str, hint: str
) -> None:
    refused = refusal_of(change(movable_disk(OFF)))
    refusal = next(one for one in refused.refusals if one.code == code)
    assert evidence in refusal.text
    assert refusal.subject in ("sda", "partition 1", "partition 2") and refusal.text in str(refused).split("\n")
    assert hint in refused.hint
    assert refused.hint or not hint


@pytest.mark.parametrize("kind", BROKEN)
def test_a_damaged_table_is_refused(kind: Fault) -> None:
    (refusal,) = refusal_of(fault(kind)(movable_disk(OFF))).refusals
    assert refusal.code == "table-damaged" and refusal.text.endswith(": the numbers")


@pytest.mark.parametrize("kind", [Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR])
def test_a_misplaced_backup_and_a_protective_mbr_of_another_size_are_accepted(kind: Fault) -> None:
    assert plan_for(fault(kind)(movable_disk(OFF))).steps


def test_a_gpt_without_its_protective_mbr_is_refused_by_the_planner() -> None:
    """Not only by the mover: Linux does not see the partitions of such a disk."""
    unguarded = table(faults=(TableFault(Fault.PROTECTIVE_MBR, "the numbers", 0, hides=True),))
    (refusal,) = refusal_of(unguarded(movable_disk(OFF))).refusals
    assert refusal.code == "table-damaged"
    assert refusal.hint == "by hand, with gdisk on /dev/sda: docs/by-hand.md#a-damaged-partition-table"


@pytest.mark.parametrize(
    ("version", "after", "refused"), [("0.90.0", 60, True), ("1.0", 60, False), ("0.90.0", 180, False)]
)
def test_no_superblock_is_moved_to_where_that_of_the_whole_disk_would_be(
    version: str, after: int, refused: bool
) -> None:
    """Sectors after the new end: within 64 KiB of the disk's end, `mdadm --examine DISK` finds the superblock, too."""
    count = 65539
    seen = movable_disk(f"63+{count} linux_raid_member", label=TableLabel.DOS, size=(2048 + count + after) * 512)
    member = Layer("linux_raid_member", seen.partitions[0].extent, version)
    seen = partition(content=(member,))(seen)
    goal = RealignGoal(journal_file="elsewhere")
    if not refused:
        assert plan_for(seen, goal).places[0].after == Extent(MIB, count * 512)
        return
    (refusal,) = refusal_of(seen, goal).refusals
    assert refusal.code == "ambiguous" and "--grain 4KiB" in refusal.hint
    assert plan_for(seen, replace(goal, grain=4096)).steps


def test_the_hint_for_a_shared_content_has_nothing_that_was_read_from_it() -> None:
    shared = layer("zfs_member", unclean=f"{MAY_BE_SHARED} (multihost)", label="tank; rm x")(movable_disk(OFF))
    (refusal,) = refusal_of(partition(node="sda1")(shared)).refusals
    assert refusal.hint == f"by hand, with zpool on /dev/sda1: {SHARING}"


def test_a_fat32_of_few_clusters_is_accepted() -> None:
    sentence = "a FAT32 of 5000 clusters: some systems treat fewer than 65525 as FAT16"
    assert plan_for(layer("vfat", problems=(sentence,))(movable_disk(OFF))).steps


def test_all_reasons_are_reported_together_and_none_twice() -> None:
    seen = movable_disk("63+100000 BitLocker; 200001+100000 ext4; 300002+100000 xfs")
    seen = second_of_three(seen, mounted_at=("/home",))
    seen = replace(seen, failing="it says so", read_only=True)
    assert sorted(codes_of(seen)) == ["bitlocker", "failing", "mounted", "read-only"]
    assert len(str(refusal_of(seen)).split("\n")) == 4


def second_of_three(seen: Disk, **changes: object) -> Disk:
    one, two, three = seen.partitions
    return replace(seen, partitions=(one, replace(two, **changes), three))  # type: ignore[arg-type]


def test_the_hint_names_the_partitions_that_can_be_moved() -> None:
    refusal = refusal_of(movable_disk("63+100000 BitLocker; 200001+100000 ext4; 300002+100000 xfs"))
    assert refusal.hint == "sudo aligntool plan realign /dev/sda -p 2 -p 3"


def test_an_aligned_disk_is_not_refused_for_being_mounted() -> None:
    seen = partition(mounted_at=("/",))(movable_disk("2048+100000 ext4; 104448+100000 xfs"))
    assert plan_for(seen).steps == ()


def test_missing_partitions_are_refused_by_their_numbers() -> None:
    (refusal,) = refusal_of(movable_disk(OFF), RealignGoal(partitions=(7,))).refusals
    assert (refusal.code, refusal.subject) == ("no-partition", "partition 7") and "there are 1, 2" in refusal.text


def test_a_disk_without_partitions_is_refused() -> None:
    assert codes_of(replace(movable_disk(OFF), partitions=())) == ["no-partition"]


def test_a_disk_whose_members_have_contradictory_values_is_refused() -> None:
    seen = movable_disk(OFF, offset=-1, kind=DiskKind.MD)
    assert set(codes_of(seen)) == {"not-judged"}


def test_partitions_on_an_md_array_can_be_moved() -> None:
    assert plan_for(movable_disk(OFF, kind=DiskKind.MD)).steps


# The verdict of the audit


def test_the_audit_reports_where_a_journal_needs_a_file() -> None:
    (mend,) = find_repairs(judged(movable_disk("2049+100000 ext4; 102400+300000 xfs", size=(402400 + 33) * 512)))
    assert (mend.answer, mend.next) == ("in-place", "fill in FILE: sudo aligntool plan realign /dev/sda --journal FILE")


@pytest.mark.parametrize(
    ("change", "answer", "words"),
    [
        (lambda seen: seen, "in-place", "there is room"),
        (partition(mounted_at=("/home",)), "in-place", "mounted at /home"),
        (layer("BitLocker"), "not", "BitLocker"),
        (table(hybrid=True), "not", "hybrid"),
        (layer(unclean="it was not unmounted"), "in-place", "not unmounted"),
    ],
)
def test_the_audit_reports_whether_a_partition_can_be_repaired(change: Change, answer: str, words: str) -> None:
    (mend,) = find_repairs(judged(change(movable_disk(OFF))))
    assert (mend.partition, mend.answer) == (1, answer)
    assert words in mend.why
    assert mend.next


def test_a_ventoy_medium_and_an_isohybrid_image_keep_their_layout() -> None:
    disk = movable_disk("63+100000 exfat; 100063+65536 vfat")
    first, second = disk.partitions
    labelled = replace(second, content=tuple(replace(each, label="VTOYEFI") for each in second.content))
    ventoy = replace(disk, partitions=(first, labelled))
    assert "bound" in codes_of(ventoy)
    hybrid = replace(disk, content=(replace(first.content[0], kind="iso9660"),))
    assert "bound" in codes_of(hybrid)
