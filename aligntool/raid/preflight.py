"""Find every reason against the plan of an array before the first write.

A problem found after the first write leaves an unfinished array; found before, it is only a message.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from aligntool import steps
from aligntool.audit.array_boot import kernel_node, mount_points_of
from aligntool.audit.arrays import partition_node
from aligntool.audit.wording import shell_word
from aligntool.change import ArrayPlan
from aligntool.commands import ByHand, by_hand, typed
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk
from aligntool.linux.programs import find_program, run_program
from aligntool.raid import steps_drives, steps_md, steps_system
from aligntool.raid.boot import (
    FSTAB,
    LIST_FILE,
    SYSTEMS,
    refuse_array_lines,
    refuse_device_lines,
    taken_places,
)
from aligntool.raid.current_names import NUMBERS, is_same_drive
from aligntool.raid.members import array_of, data_area
from aligntool.raid.planning import Needs, needs_of_plan
from aligntool.raid.running import free_mount_point
from aligntool.raid.steps_system import Paths, edited, text_of
from aligntool.steps import FileStep, MakeMember, MountStep, Step
from aligntool.system import merge_confs, parse_fstab, parse_mdadm_conf

_MODULE = {"raid5": "raid456", "raid6": "raid456"}


def refuse_impossible(plan: ArrayPlan, paths: Paths) -> None:
    """Raise Refused with every reason. Writes nothing, but may load the kernel's module for the level."""
    if os.geteuid() != 0:
        raise Refused("only root can create arrays", hint="run the same command with sudo", code="root-only")
    disks = steps_drives.read_all_disks() if plan.of(MakeMember) else ()
    refuse([*_check_kernel(plan.steps), *preflight(needs_of_plan(plan, here=True), plan.steps, paths, disks)])


def preflight(
    needs: Needs, planned: Sequence[Step], paths: Paths, disks: Sequence[Disk] = ()
) -> list[Refusal]:
    """Return every reason that can be found by reading, also for a plan that is only shown. `planned`: the
    steps, empty for a goal without a plan. `disks`: all of the machine, to find drives with two names. Root
    only.
    """
    reasons = list(steps_system.missing_programs(needs.programs))
    if paths.installed is not None:
        reasons += steps_system.refuse_installed(needs.inside, paths.installed)
    if needs.device and any(Path(node).exists() for node in (needs.device, kernel_node(needs.device))):
        text = f"an array named {needs.device} is already running"
        reasons.append(Refusal("name-taken", needs.device, text, "--name another"))
    reasons += [*_refuse_other_names(planned, disks), *_refuse_files(needs.steps, planned, paths)]
    if find_program("blkid"):
        # content that no table shows, but blkid finds as soon as a partition exists
        area = data_area(planned)
        reasons += chain(
            *(steps_drives.old_signatures(step, area) for step in members_in(planned) if not step.wipe)
        )
    for step in needs.steps:
        if isinstance(step, steps.RebuildInitramfs):
            reasons += steps_system.refuse_hooks(step, paths)
        if isinstance(step, MountStep) and find_program("mountpoint"):
            found = steps_system.refuse_mount_point(step, paths)
            free = _hint_for_free_place(step.path, paths)
            if isinstance(step, steps.BindMount):
                free = typed("ls", step.path)
            reasons += (Refusal("mount-point", step.path, text, free) for text in found)
        if isinstance(step, steps.PrepareDirectory):
            reasons += steps_system.refuse_unknown_names(step)
    return reasons


def _check_kernel(planned: Sequence[Step]) -> Iterator[Refusal]:
    """Refuse a level that the kernel lacks. /proc/mdstat lists the available levels; a missing module is
    loaded.
    """
    made = array_of(planned)
    mdstat = Path("/proc/mdstat")
    if made and f"[{made.level}]" not in steps_md.read_kernel_file(mdstat):
        module = _MODULE.get(made.level, made.level)
        if find_program("modprobe"):
            run_program("modprobe", "-q", "--", module)
        if f"[{made.level}]" not in steps_md.read_kernel_file(mdstat):
            text = f"this kernel lacks md or {made.level}"
            yield Refusal("kernel-lacks", made.level, text, f"{typed('modprobe', module)}; uname -r")


def _refuse_other_names(planned: Sequence[Step], disks: Sequence[Disk]) -> Iterator[Refusal]:
    """Refuse a drive that is in use under another name: to the kernel these are two drives, locked
    separately.
    """
    for other in disks:
        places = mount_points_of(other)
        above = [*other.holders, *(holder for part in other.partitions for holder in part.holders)]
        used = f"mounted at {places[0]}" if places else f"a part of {above[0]}" if above else ""
        drives = [step.disk for step in planned if isinstance(step, MakeMember | steps.FormatDrive)]
        for path in dict.fromkeys(drive.path for drive in drives if used and is_same_drive(other, drive)):
            if other.path != path:
                text = f"{path} and {other.path} are the same drive, which is {used}"
                yield Refusal(
                    "same-drive", path, text, typed("lsblk -o NAME,WWN,SERIAL,MOUNTPOINTS", path, other.path)
                )


def members_in(planned: Sequence[Step]) -> list[MakeMember]:
    return [step for step in planned if isinstance(step, MakeMember)]


def _refuse_files(files: Sequence[Step], planned: Sequence[Step], paths: Paths) -> Iterator[Refusal]:
    texts: dict[str, str] = {}  # of the edited files, as the steps before leave them
    for step in (step for step in files if isinstance(step, FileStep)):
        unwritable = tuple(steps_system.refuse_unwritable(step, paths))
        yield from (Refusal("not-writable", step.path, text) for text in unwritable)
        if isinstance(step, steps.EditFile) and not unwritable:
            text = texts.get(step.path) or text_of(step.path, paths)
            yield from _refuse_taken_places(step, text, paths)
            yield from _refuse_esp_copies(step, [member.disk.path for member in members_in(planned)], paths)
            if any(line.startswith("ARRAY ") for line in step.lines):
                yield from _refuse_array_lines(step, text, planned, paths)
            texts[step.path] = os.fsdecode(edited(os.fsencode(text), step))


def _refuse_array_lines(
    step: steps.EditFile, text: str, planned: Sequence[Step], paths: Paths
) -> Iterator[Refusal]:
    more = (f"{step.path}.d/{file.name}" for file in sorted(paths.of(f"{step.path}.d").glob("[!.]*.conf")))
    texts = {step.path: text, **{file: text_of(file, paths) for file in more}}
    conf = merge_confs([parse_mdadm_conf(text, file) for file, text in texts.items()])
    yield from refuse_array_lines(conf, step, array_of(planned))
    yield from refuse_device_lines(conf, step.path, [member.device for member in members_in(planned)])
    for other in {system.mdadm_conf for system in SYSTEMS.values()} - {step.path}:
        if paths.of(other).exists() and not paths.of(step.path).exists():
            why = f"{other} is read by mdadm now, but not once {step.path} exists"
            yield Refusal(
                "file-conflict", other, why, by_hand(ByHand.SYSTEM_FILES, "mv", f"{other}, to {step.path}")
            )


def _refuse_esp_copies(step: steps.EditFile, drives: Sequence[str], paths: Paths) -> Iterator[Refusal]:
    """Refuse to replace the list of another array's EFI system partitions, which would no longer be kept in
    sync.
    """
    if step.path != LIST_FILE:
        return
    ours = {partition_node(drive, number) for drive in drives for number in NUMBERS}
    text = text_of(step.path, paths)
    for uuid in re.findall(r"[0-9A-F]{4}-[0-9A-F]{4}", " ".join(re.findall(r"(?m)^ESP_COPIES=(.*)", text))):
        link = f"/dev/disk/by-uuid/{uuid}"
        device = os.path.realpath(link if paths.installed else paths.of(link))
        if os.path.lexists(device) and device not in ours:
            text = (
                f"{step.path} keeps {device}, an EFI system partition of another array, in sync; that would"
                " stop"
            )
            hint = "create this array from a live system, so that each array has its own list"
            yield Refusal("file-conflict", step.path, text, hint)
            return


def _refuse_taken_places(step: steps.EditFile, text: str, paths: Paths) -> Iterator[Refusal]:
    """Refuse the mount point of another file system in fstab, except in place of a line that has it
    already.
    """
    for wanted, spec in taken_places(step, parse_fstab(text) if step.path == FSTAB else ()):
        place = wanted.place
        text = f"{step.path} already mounts {spec} at {place}"
        hint = _hint_for_free_place(place, paths)
        if "bind" in wanted.options:
            hint = by_hand(ByHand.SYSTEM_FILES, "an editor", step.path)
        yield Refusal("mount-point", place, text, hint)


def _hint_for_free_place(place: str, paths: Paths) -> str:
    """Return the option for a mount point that neither exists nor is in fstab."""
    named = {word for line in text_of(FSTAB, paths).splitlines() for word in line.split()[1:2]}
    free = free_mount_point(place, lambda path: path in named or os.path.lexists(paths.mounted(path)))
    return f"--mount {shell_word(free)}"
