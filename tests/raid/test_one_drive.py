"""One drive instead of several: a plain file system on an aligned partition, made, compared and never made anew."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from aligntool.audit.report import Judged
from aligntool.change import ArrayPlan, Bind, EnsureGoal, RaidGoal
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, Layer
from aligntool.raid.apply import apply_record, begin, undo_record
from aligntool.raid.one_drive import find_file_system, goal_of, plan_existing_one, plan_one_drive
from aligntool.raid.record import find_records, lock_state
from aligntool.raid.selection import find_drives, goal_for
from aligntool.raid.stale import stale_lines
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_system import Paths
from aligntool.steps import EditFile, FileStep, MakeArray, MakeFileSystem, MakeMember, Mount, SystemStep
from aligntool.units import GIB, MIB, Extent
from tests.audit.array_builders import OTHER, fstab, image, lines, system
from tests.conftest import is_blank, remove_partitions, run
from tests.raid.applying.builders import paths_in
from tests.raid.builders import FS_UUID, drive, goal, judged
from tests.raid.test_selection import ALL, blank, member

LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"  # UEFI, the Discoverable Partitions Specification
WANTED = replace(ALL, one="filesystem")
LINE = f"UUID={FS_UUID} /srv/data xfs noatime,x-aligntool.drive=data,nofail,x-systemd.device-timeout=2min 0 0"


def asked(**words: object) -> RaidGoal:
    return goal_of(goal("raid1", **{"filesystem": "xfs", **words}))


def planned(disk: Disk, **words: object) -> ArrayPlan:
    return plan_one_drive(judged(disk)[0], asked(**words))


def kept(start: int = 2048, **words: object) -> Disk:
    """Return a drive with the file system as the plan makes it; `words` change its partition."""
    disk = replace(drive(0, parts=f"{start}+2097152"), table_read=True)
    layer = Layer("xfs", Extent(0, GIB), data_unit=4096, uuid=FS_UUID, label="data")
    part = replace(disk.partitions[0], name="data", content=(layer,), content_read=True, mounted_at=("/srv/data",))
    return replace(disk, partitions=(replace(part, **words),))  # type: ignore[arg-type]


def test_the_plan_has_one_partition_of_type_linux_on_the_grid_and_no_array() -> None:
    plan = planned(drive(0))
    (step,) = plan.of(MakeMember)
    (entry,) = step.entries
    assert (entry.type_code, entry.name, entry.extent.start % MIB) == (LINUX, "data", 0)
    (file_system,) = plan.of(MakeFileSystem)
    assert (file_system.device, file_system.kind) == ("/dev/nvme0n1p1", "xfs")
    assert not any(word.startswith(("su=", "sunit=")) for word in file_system.options)
    assert plan.of(MakeArray) == () and plan.of(Mount) == (Mount("/srv/data"),)
    assert [step.lines for step in plan.of(EditFile)] == [(LINE,)]
    assert (plan.disk.path, plan.disk.disk_id) == ("/dev/disk/by-partlabel/data", FS_UUID)


def test_a_drive_with_content_or_too_small_is_refused() -> None:
    with pytest.raises(Refused, match="nvme0n1 is not empty"):
        planned(replace(drive(0), content=(Layer("ext4", Extent(0, GIB)),)))
    with pytest.raises(Refused, match="xfs needs"):
        planned(drive(0, size=100 * MIB))
    with pytest.raises(Refused, match="members need at least 16MiB"):
        planned(drive(0, size=10 * MIB))


def found(*drives: Disk, wanted: object = WANTED) -> tuple[bool, list[str]]:
    ensured = EnsureGoal(goal("raid1", filesystem="xfs"), wanted)  # type: ignore[arg-type]
    there = find_drives(ensured, Inventory(drives, system=system(conf=lines())), {})
    return there.is_plain, [disk.name for disk in there.drives]


def test_the_drive_is_selected_blank_and_with_its_file_system_only() -> None:
    assert found(blank(0)) == (False, ["nvme0n1"])
    assert found(kept()) == (True, ["nvme0n1"])
    none = replace(WANTED, may_be_none=True)
    layer = kept().partitions[0].content[0]
    for other in (
        kept(name="other"), kept(content=()), kept(content=(replace(layer, kind="ext4"),)),
        kept(content=(replace(layer, label="mine"),)), kept(content=(layer, layer)),
    ):  # fmt: skip
        assert found(other, wanted=none) == (False, [])
    assert found(kept(), wanted=replace(none, one="raid0")) == (False, [])
    two = replace(drive(0, parts="2048+100; 4096+100"), table_read=True)
    assert find_file_system(two, goal(filesystem="xfs")) is None


def test_no_array_is_made_beside_the_file_system_or_over_a_member() -> None:
    with pytest.raises(Refused, match=r"nvme0n1 \(serial S0000\) has the file system data of a single drive"):
        found(kept(), blank(1))
    with pytest.raises(Refused, match="it is not made anew"):
        found(member(0))


def test_several_drives_become_the_array_and_one_the_file_system() -> None:
    ensured = EnsureGoal(goal("raid1", filesystem="xfs"), WANTED)
    assert goal_for(ensured, [blank(0), blank(1)]) == ensured.array
    assert goal_for(ensured, [blank(0)]) == asked()


def compared(disk: Disk, wanted: RaidGoal, *table: str, unmet: bool = False) -> ArrayPlan:
    def is_in_effect(step: FileStep | SystemStep) -> bool:
        return not unmet

    (one,) = judged(disk)
    assert isinstance(one, Judged)
    return plan_existing_one(one, wanted, Inventory((disk,), system=system(fstab=fstab(*table))), b"", is_in_effect)


def test_a_file_system_as_wanted_needs_no_step() -> None:
    plan = compared(kept(), asked(), LINE.replace(" noatime,", " discard,noatime,"))
    assert plan.steps == () and plan.goal.endswith("already as requested")
    assert plan.notes == ("it is on nvme0n1p1",)


@pytest.mark.parametrize(
    ("disk", "words", "table", "why"),
    [
        (kept(), {}, "", "/etc/fstab does not mount it at /srv/data"),
        (kept(), {"mount_at": "/mnt"}, LINE, "/etc/fstab does not mount it at /mnt"),
        (kept(), {"mount_options": ("discard",)}, LINE, "its line in fstab lacks the option discard"),
        (kept(), {}, LINE.replace(",x-aligntool.drive=data", ""), "lacks the option x-aligntool.drive=data"),
        (kept(mounted_at=()), {}, LINE, "it is not mounted at /srv/data"),
        (kept(2047), {}, LINE, "it begins at byte 1048064, off its grid"),
        (kept(), {"block_size": 1024}, LINE, "block_size of its xfs is 4KiB, not 1KiB"),
        (kept(), {"owner": "root", "binds": (Bind("a", "/b"),)}, LINE, "does not have the requested owner root"),
    ],
)
def test_each_difference_is_named_with_a_way_on(disk: Disk, words: dict[str, object], table: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        compared(disk, asked(**words), table, unmet=True)
    assert why in str(refused.value)
    assert all(one.code == "array-differs" and one.hint for one in refused.value.refusals)


def test_only_the_marked_line_of_a_file_system_that_is_gone_is_replaced() -> None:
    files = replace(system(conf=lines()), fstab=fstab(LINE), initramfs=(image(),))
    gone = Inventory((drive(0),), system=files)
    assert [line.text for line in stale_lines(gone, asked())] == [LINE]
    assert [line.text for line in stale_lines(gone, goal("raid0", mount_at="/mnt"))] == [LINE]
    assert stale_lines(gone, goal("raid0", name="other")) == ()
    assert stale_lines(replace(gone, disks=(kept(),)), asked()) == ()
    unmarked = replace(files, fstab=fstab(LINE.replace(",x-aligntool.drive=data", "")))
    assert stale_lines(replace(gone, system=unmarked), asked()) == ()
    running = replace(files, mdadm=lines(f"ARRAY /dev/md/data UUID={OTHER}"))
    held = replace(drive(1), content=(Layer("linux_raid_member", Extent(0, GIB), uuid=OTHER),))
    assert stale_lines(Inventory((drive(0), held), system=running), asked()) == ()


SIZE = 400 * MIB


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = paths_in(tmp_path)
    (tmp_path / "root/etc/fstab").write_text("tmpfs /tmp tmpfs defaults 0 0\n")
    with lock_state(made.state):
        pass
    return made


def without_mounts(plan: ArrayPlan) -> ArrayPlan:
    """Return the plan with the steps that need only the drive and the files."""
    steps = tuple(step for step in plan.steps if isinstance(step, MakeMember | MakeFileSystem | EditFile))
    return replace(plan, steps=steps)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.xfs", "xfs_repair", "blkdiscard")
def test_it_is_made_after_every_cut_and_every_rollback_leaves_the_drive_blank(
    paths: Paths, sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    device = loop(sparse(SIZE))
    for cut in range(4):
        disk = replace(read_disk(str(device)), serial=None)
        plan = without_mounts(plan_one_drive(judged(disk)[0], asked()))
        walk = apply_record(begin(plan, paths), plan, paths)
        list(islice(walk, cut * 2))
        walk.close()  # type: ignore[attr-defined]
        (record,) = find_records(paths.state)
        if cut % 2:
            list(undo_record(record, plan, paths))
            remove_partitions(device)
            run("blkdiscard", "--zeroout", "-o", str(MIB), "-l", str(SIZE - 4 * MIB), device)
            run("wipefs", "--all", "--quiet", device)
            assert is_blank(device)
            continue
        list(apply_record(record, plan, paths))
        values = run("blkid", "-p", "-o", "export", f"{device}p1")
        assert f"UUID={FS_UUID}" in values and "TYPE=xfs" in values and "LABEL=data" in values
        assert f"PART_ENTRY_TYPE={LINUX.lower()}" in values and "PART_ENTRY_NAME=data" in values
        run("xfs_repair", "-n", f"{device}p1")
        assert LINE in (tmp_path / "root/etc/fstab").read_text().splitlines()
        remove_partitions(device)
        run("blkdiscard", "--zeroout", device)
