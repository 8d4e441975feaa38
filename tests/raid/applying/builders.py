"""Steps and plans for loop devices, and paths below a folder of the test."""

from collections.abc import Sequence
from pathlib import Path

from aligntool.change import ArrayPlan
from aligntool.formats.part_types import ROLES
from aligntool.raid.steps_drives import LockedMembers, make_member, read_disk, wait_for_members
from aligntool.raid.steps_system import Paths
from aligntool.steps import (
    DataArea,
    EditFile,
    MakeFileSystem,
    MakeMember,
    NewEntry,
    Step,
    Subject,
    recognised_content,
    subject,
)
from aligntool.units import MIB, Extent
from tests.conftest import remove_partitions

ANYWHERE = DataArea()
FS_UUID = "11111111-2222-4333-8444-555555555555"
LINE = f"UUID={FS_UUID} /srv/data ext4 noatime,nofail 0 2"


def paths_in(folder: Path) -> Paths:
    """Return paths to this machine's disks and to a system tree below `folder`."""
    (folder / "root/etc/mdadm").mkdir(parents=True, exist_ok=True)
    return Paths(folder / "root", folder / "state")


def member_step(paths: Paths, disk: Path, *, wipe: bool = False, esp: bool = False) -> MakeMember:
    """Return a step that makes a table with a member up to 8 MiB before the end, after an EFI system partition if
    `esp`.
    """
    looked = read_disk(str(disk))
    end = (looked.size or 0) // MIB * MIB - 8 * MIB
    entries = [NewEntry(1, Extent(MIB, 40 * MIB), ROLES["esp"].gpt, "EFI")] if esp else []
    start = entries[-1].extent.end if entries else MIB
    entries.append(NewEntry(len(entries) + 1, Extent(start, end - start), ROLES["linux-raid"].gpt, "data"))
    device = f"{disk}p{len(entries)}"
    return MakeMember(subject(looked), device, "gpt", tuple(entries), wipe, recognised_content(looked))


def file_system_step(device: Path | str) -> MakeFileSystem:
    return MakeFileSystem(str(device), "ext4", FS_UUID, ("-q", "-F", "-U", FS_UUID))


def fstab_step(line: str = LINE) -> EditFile:
    return EditFile("/etc/fstab", (line,), f"UUID={FS_UUID}", "/etc/fstab.before-aligntool")


def program(folder: Path, name: str, script: str) -> Path:
    """Write a program of this name and return its folder, which the test puts in front of PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    file = folder / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file.parent


def plan_of(steps: Sequence[Step], name: str = "data") -> ArrayPlan:
    array = Subject(f"/dev/md/{name}", 64 * MIB, 512, None, "0:0:0:0", None, None, None, "")
    return ArrayPlan("raid", array, "an array", (), tuple(steps))


def made_member(step: MakeMember, *, again: bool = False, area: DataArea = ANYWHERE) -> list[str]:
    """Make the member, remove its partitions from the kernel, and return the notes."""
    try:
        found = [said.text for said in make_member(step, LockedMembers(), again=again, area=area)]
        wait_for_members([step])
        return found
    finally:
        if step.entries:
            remove_partitions(step.disk.path)
