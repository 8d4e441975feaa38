"""Fields that contain the start of the partition, and the messages about boot loaders."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from aligntool.change import Plan, RealignGoal
from aligntool.contents.windows_names import BCD_STORES, SYSTEM_HIVE, NamedStart, StartNames
from aligntool.errors import Refused
from aligntool.inventory import Disk, Layer, Partition, Role, TableLabel
from aligntool.mover.held_ranges import held_ranges
from aligntool.realign.search import needed_for, patching
from aligntool.steps import Patch, ReleaseContent, ShrinkContent
from aligntool.units import MIB, Extent
from tests.realign.movable_disks import movable_disk, plan_for

OLD, NEW = Extent(63 * 512, 100000 * 512), Extent(2048 * 512, 100000 * 512)
NTFS_COPY = OLD.length - 512


def boot(kind: str, hidden: int | None, copy: int | None, **changes: object) -> Partition:
    layer = Layer(kind, OLD, hidden_sectors=hidden, backup_boot=copy, backup_hidden_sectors=hidden if copy else None)
    return Partition(1, OLD, content=(layer,), content_read=True, **changes)  # type: ignore[arg-type]


def patched(part: Partition, record_after: int | None = None) -> tuple[Patch, ...]:
    return patching(part, NEW, record_after, 512).patches


def test_both_boot_sectors_of_ntfs_get_the_new_start() -> None:
    assert [(one.at, one.length, one.before, one.after) for one in patched(boot("ntfs", 63, NTFS_COPY))] == [
        (0x1C, 4, 63, 2048),
        (NTFS_COPY + 0x1C, 4, 63, 2048),
    ]


def test_the_copy_of_fat32_is_in_sector_6_and_fat16_has_none() -> None:
    assert [one.at for one in patched(boot("vfat", 63, 6 * 512))] == [0x1C, 6 * 512 + 0x1C]
    assert [one.at for one in patched(boot("vfat", 63, None))] == [0x1C]


@pytest.mark.parametrize("sector", [512, 4096])
def test_the_checksum_of_each_boot_region_of_exfat_is_updated(sector: int) -> None:
    told = [(one.at, one.length, one.after) for one in patched(boot("exfat", 63, 12 * sector))]
    assert told == [
        (0x40, 8, 2048),
        (11 * sector, sector, None),
        (12 * sector + 0x40, 8, 2048),
        (23 * sector, sector, None),
    ]


@pytest.mark.parametrize(("kind", "copy"), [("ntfs", NTFS_COPY), ("vfat", 6 * 512), ("exfat", 12 * 512)])
@pytest.mark.parametrize(("recorded", "words"), [(4096, "records 4096 hidden sectors instead of 63"), (None, "none")])
def test_a_copy_that_differs_is_not_changed_and_a_note_reports_it(
    kind: str, copy: int, recorded: int | None, words: str
) -> None:
    part = boot(kind, 63, copy)
    part = replace(part, content=(replace(part.content[0], backup_hidden_sectors=recorded),))
    told = patching(part, NEW, None, 512)
    assert told.patches
    assert all(one.at < copy for one in told.patches)
    assert words in told.note


@pytest.mark.parametrize("kind", ["ntfs", "vfat", "exfat"])
def test_a_field_of_0_stays_0_and_a_note_reports_it(kind: str) -> None:
    told = patching(boot(kind, 0, None), NEW, None, 512)
    assert (told.patches, told.attention) == ((), "")
    assert "does not record the start" in told.note


@pytest.mark.parametrize("kind", ["ntfs", "vfat", "exfat"])
def test_a_field_with_another_value_is_not_changed_and_needs_attention(kind: str) -> None:
    told = patching(boot(kind, 99, None), NEW, None, 512)
    assert told.patches == ()
    assert "99 hidden sectors" in told.attention


def test_the_field_of_a_logical_partition_may_be_relative_to_its_ebr() -> None:
    part = boot("vfat", 63, None, role=Role.LOGICAL, record_at=0)
    part = replace(part, extent=Extent(1063 * 512, OLD.length), record_at=1000 * 512)
    (one,) = patched(part, record_after=1048 * 512)
    assert (one.before, one.after) == (63, 1000)
    assert patched(part, record_after=(2048 - 63) * 512) == ()  # the distance stays, and so does the field


def test_a_start_too_large_for_the_four_bytes_of_the_field_becomes_0() -> None:
    told = patching(boot("ntfs", 63, None), Extent((1 << 32) * 512, OLD.length), None, 512)
    assert [one.after for one in told.patches] == [0]
    assert "does not fit" in told.note


def test_other_kinds_have_no_field_for_the_start() -> None:
    assert patching(boot("ext4", None, None), NEW, None, 512).patches == ()


def test_patched_sectors_are_held_even_if_the_volume_is_shorter_than_its_partition() -> None:
    middle = 20 * MIB - 512
    part = boot("ntfs", 63, middle)
    held = held_ranges(part, OLD.length, 512, map(needed_for, patched(part)))
    for one in patched(part):
        assert any(run.contains(Extent(one.at, one.length)) for run in held.ranges)
    assert not any(run.contains(Extent(middle, 512)) for run in held_ranges(part, OLD.length, 512).ranges)


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("signatures_only", [False, True])
def test_the_boot_regions_of_exfat_that_its_checksums_cover_are_held(*, sector: int, signatures_only: bool) -> None:
    part = boot("exfat", 63, 12 * sector)
    held = held_ranges(part, OLD.length, 512, map(needed_for, patched(part)), signatures_only=signatures_only)
    assert any(run.contains(Extent(0, 12 * sector)) for run in held.ranges)
    assert any(run.contains(Extent(12 * sector, 12 * sector)) for run in held.ranges)


def test_the_step_that_releases_the_content_has_the_patches() -> None:
    disk = movable_disk("63+100000 ntfs", label=TableLabel.DOS)
    part = replace(disk.partitions[0], content=boot("ntfs", 63, 20 * MIB - 512).content)
    plan = plan_for(replace(disk, partitions=(part,)))
    (release,) = (step for step in plan.steps if isinstance(step, ReleaseContent))
    assert [one.after for one in release.patches] == [2048, 2048]
    for one in release.patches:
        assert any(run.contains(Extent(one.at, one.length)) for run in release.held.ranges)


# Messages


def first(disk: Disk, **changes: object) -> Disk:
    return replace(disk, partitions=(replace(disk.partitions[0], **changes), *disk.partitions[1:]))  # type: ignore[arg-type]


def said(plan: Plan) -> str:
    return "\n".join((*plan.attention, *plan.notes))


EFI = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
SENTENCES: list[tuple[str, TableLabel, Callable[[Disk], Disk], str]] = [
    ("63+100000 ntfs", TableLabel.DOS, lambda disk: first(disk, flags=("active",)), "bootrec /rebuildbcd"),
    ("63+100000 ntfs", TableLabel.DOS, lambda disk: disk, "another letter"),
    ("63+100000 vfat", TableLabel.DOS, lambda disk: first(disk, flags=("active",)), "syslinux"),
    ("63+100000 vfat", TableLabel.GPT, lambda disk: first(disk, type_code=EFI), "efibootmgr"),
    ("63+100000 ext4", TableLabel.DOS, lambda disk: disk, "GRUB in the MBR gap stays intact"),
    ("63+100000 ext4", TableLabel.GPT, lambda disk: disk, "PARTUUIDs"),
    ("204800+1000; 63+100000 ext4", TableLabel.DOS, lambda disk: first(disk, type_code="0xa6"), "lists partition 2"),
]


@pytest.mark.parametrize(("text", "label", "change", "words"), SENTENCES)
def test_changes_that_may_need_action_by_the_user_are_reported(
    text: str, label: TableLabel, change: Callable[[Disk], Disk], words: str
) -> None:
    assert words in said(plan_for(change(movable_disk(text, label=label))))


def test_the_range_reported_as_unchanged_ends_at_the_new_start_of_partition_1() -> None:
    notes = plan_for(movable_disk("20601+100000 ext4; 204800+1000", label=TableLabel.DOS)).notes
    assert any("the 10MiB before the first partition" in note for note in notes)


def test_a_windows_on_gpt_uses_guids_and_needs_no_attention() -> None:
    disk = first(movable_disk("63+100000 ntfs"), flags=("active",))
    assert plan_for(disk).attention == ()


# Partitions that files of Windows identify


BOTH = StartNames(files=(BCD_STORES[0], SYSTEM_HIVE))
WINDOWS: list[tuple[str, StartNames, str, bool]] = [
    ("63+100000 ntfs", BOTH, "bootrec", False),
    ("63+100000 ntfs", BOTH, "another letter", False),
    ("63+100000 ntfs", StartNames(files=(SYSTEM_HIVE,)), "bootrec", True),  # its boot store is elsewhere
    ("63+100000 ntfs", StartNames(files=BCD_STORES[:1]), "another letter", True),
    ("63+100000 ntfs", replace(BOTH, recovery=frozenset({63 * 512})), "reagentc /disable", True),
    ("63+100000 ntfs", replace(BOTH, recovery=frozenset({64 * 512})), "reagentc /disable", False),
]


@pytest.mark.parametrize(("text", "names", "words", "is_said"), WINDOWS)
def test_values_that_the_move_itself_updates_need_no_attention(
    text: str, names: StartNames, words: str, is_said: bool
) -> None:
    disk = first(movable_disk(text, label=TableLabel.DOS), flags=("active",))
    assert (words in said(plan_for(disk, names={1: names}))) == is_said


def test_for_a_boot_store_on_fat_the_repair_by_windows_is_suggested() -> None:
    disk = first(movable_disk("63+100000 vfat; 204800+100000 ntfs", label=TableLabel.DOS), flags=("active",))
    assert "bootrec" in said(plan_for(disk, names={2: StartNames(files=(SYSTEM_HIVE,))}))
    assert "bootrec" not in said(plan_for(disk, names={2: StartNames()}))


def test_an_unreadable_windows_file_prevents_moves_that_affect_windows() -> None:
    names = {1: StartNames(unclear="\\Boot\\BCD is damaged")}
    plan_for(movable_disk("2048+100000 ntfs; 204801+100000 ext4", label=TableLabel.DOS), names=names)
    with pytest.raises(Refused, match="BCD is damaged; it may name"):
        plan_for(movable_disk("2048+100000 ntfs; 204801+100000 ntfs", label=TableLabel.DOS), names=names)


def test_a_shrink_that_would_move_the_file_is_refused() -> None:
    """ntfsresize moves clusters behind the new end, and only these."""
    tight = "63+60000 ext4; 60063+400000 ntfs"
    size = 460063 * 512 + 64 * 512
    goal = RealignGoal(shrink=True)
    for at, is_refused in ((MIB, False), (400000 * 512 - 4096, True)):
        names = {2: StartNames((SYSTEM_HIVE,), (NamedStart("MountedDevices C:", 60063 * 512, (Extent(at, 8),)),))}
        disk = movable_disk(tight, label=TableLabel.DOS, size=size)
        if is_refused:
            with pytest.raises(Refused, match="shrinking it would move a file"):
                plan_for(disk, goal, names=names)
        else:
            assert any(isinstance(step, ShrinkContent) for step in plan_for(disk, goal, names=names).steps)
