"""A plan that is resumed after a reboot, when its drives have other names."""

from dataclasses import replace

import pytest

from aligntool.change import ArrayPlan
from aligntool.cli.arrays import refuse_renamed
from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.raid.commands import command_of
from aligntool.raid.current_names import with_current_names
from aligntool.steps import MakeArray, MakeFileSystem, MakeMember, SetPartitionType
from tests.raid.builders import drive, goal, planned

DRIVES = (drive(0), drive(1))
PLAN = planned(goal(esp_size=512 << 20), *DRIVES)


def named(disk: Disk, name: str) -> Disk:
    return replace(disk, name=name, path=f"/dev/{name}")


def devices(plan: ArrayPlan) -> list[str]:
    found: list[str] = []
    for step in plan.steps:
        match step:
            case MakeMember():
                found += [step.disk.path, step.device]
            case MakeArray():
                found += [*step.members, *command_of(step)[-len(step.members) :]]
            case MakeFileSystem() if step.kind == "vfat":
                found += [step.device, command_of(step)[-1]]
    return found


def test_the_plan_is_unchanged_if_the_drives_keep_their_names() -> None:
    assert with_current_names(PLAN, DRIVES) == PLAN


def test_drives_that_swapped_names_are_identified_by_serial_number() -> None:
    swapped = (named(DRIVES[0], "nvme1n1"), named(DRIVES[1], "nvme0n1"))
    exchanged = {"0": "1", "1": "0"}
    before, now = devices(PLAN), devices(with_current_names(PLAN, swapped))
    assert now == [f"/dev/nvme{exchanged[each[9]]}{each[10:]}" for each in before]
    assert len(before) == 12 and {each[:9] for each in before} == {"/dev/nvme"}


def test_partition_types_are_set_on_the_drives_by_their_current_names() -> None:
    disks = tuple(drive(number, parts="2048+40000000") for number in range(2))
    plan = planned(goal(partitions=(1, 1)), *disks)
    moved = with_current_names(plan, (named(disks[0], "nvme1n1"), named(disks[1], "nvme0n1")))

    def paths(some: ArrayPlan) -> list[str]:
        return [step.disk for step in some.steps if isinstance(step, SetPartitionType)]

    assert (paths(plan), paths(moved)) == (["/dev/nvme0n1", "/dev/nvme1n1"], ["/dev/nvme1n1", "/dev/nvme0n1"])


def test_another_drive_that_received_a_name_in_the_plan_is_not_touched() -> None:
    other = replace(named(drive(7), "nvme0n1"), serial="FOREIGN", wwn="eui.7")
    moved = with_current_names(PLAN, (other, named(DRIVES[0], "nvme5n1"), DRIVES[1]))
    assert not any(each.startswith("/dev/nvme0n1") for each in devices(moved))


@pytest.mark.parametrize(
    ("disks", "why"),
    [
        (DRIVES[:1], "is missing"),
        ((*DRIVES, named(DRIVES[1], "nvme2n1")), "cannot be distinguished from others"),
        ((DRIVES[0], replace(DRIVES[1], size=1 << 30)), "is missing"),
    ],
    ids=["missing", "twice", "of another size"],
)
def test_a_missing_or_duplicate_drive_is_named(disks: tuple[Disk, ...], why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        with_current_names(PLAN, disks)
    assert "S0001" in str(caught.value)


def test_a_saved_plan_is_refused_if_its_drives_were_renamed_since() -> None:
    """The same command would now make an array of other drives, and --wipe would overwrite another one."""
    with pytest.raises(Refused) as refused:
        refuse_renamed(PLAN, (named(DRIVES[0], "nvme5n1"), named(drive(7), "nvme0n1"), DRIVES[1]))
    assert str(refused.value).endswith("serial S0000, was /dev/nvme0n1 and is /dev/nvme5n1 now")
    assert "current names" in refused.value.hint
    with pytest.raises(Refused, match="serial S0001, which was /dev/nvme1n1, is missing"):
        refuse_renamed(PLAN, (DRIVES[0], named(drive(7), "nvme1n1")))
    refuse_renamed(PLAN, DRIVES)
