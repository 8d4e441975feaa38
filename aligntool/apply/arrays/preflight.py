"""Everything that can be known to stand in the way, before the first write.

In: a plan and a site. Out: nothing, or Refused with all reasons at once. Alone because a reason that is found after the
first write is a half-made array, and one that is found before is a line of text.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from aligntool.apply.arrays.commands import missing_programs, refuse_taken_place
from aligntool.apply.arrays.data_area import old_signatures
from aligntool.apply.arrays.editing import find_file, refuse_unwritable
from aligntool.apply.arrays.hooks import about_hooks
from aligntool.apply.arrays.running import ask
from aligntool.apply.arrays.site import Site
from aligntool.apply.programs import find_program
from aligntool.audit.words import shell_word
from aligntool.errors import Objection, Refused, refuse
from aligntool.inventory import Disk
from aligntool.plan import (
    EditFile,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    Plan,
    RunCommand,
    Step,
    Subject,
    WriteFile,
)
from aligntool.raid.boot_partitions import LIST_FILE
from aligntool.raid.mounting import FSTAB, other_place
from aligntool.raid.wiping import data_area

_MODULE = {"raid5": "raid456", "raid6": "raid456"}


def refuse_impossible(plan: Plan, site: Site) -> None:
    """Raises Refused with every reason there is. Writes nothing, but may load the kernel's module for the level."""
    if os.geteuid() != 0:
        raise Refused("arrays are made by root only", hint="type the same after sudo")
    refuse([*_about_kernel(plan.steps), *reasons_beforehand(plan.steps, site)])


def reasons_beforehand(steps: Sequence[Step], site: Site) -> list[Objection]:
    """All that can be asked by looking, so also of a plan that is only to be shown, and of what is known of one that
    there cannot be. Root only: others may not look.
    """
    reasons = [*_about_programs(steps), *_about_device(steps), *_about_paths(steps, site)]
    reasons += [*_about_files(steps, site), *about_hooks(steps, site)]
    if find_program("blkid"):
        reasons += _about_members(steps)
    for step in steps if find_program("mountpoint") else ():
        if isinstance(step, RunCommand):
            reasons += ((why, _elsewhere(step.command[1], site)) for why in refuse_taken_place(step))
    return reasons


def _about_programs(steps: Sequence[Step]) -> Iterator[Objection]:
    commands = [step.command for step in steps if isinstance(step, MakeArray | MakeFileSystem | RunCommand)]
    if any(isinstance(step, MakeArray) for step in steps):
        commands += [("mdadm",), ("blkid",), ("wipefs",), ("mountpoint",)]
    for program, package in missing_programs(commands):
        yield f"{program} is not installed", f"install the package {package}"


def _about_device(steps: Sequence[Step]) -> Iterator[Objection]:
    for step in steps:
        if isinstance(step, MakeArray) and Path(step.device).exists():
            yield f"an array of the name {step.device} runs already", "--name another"


def _about_kernel(steps: Sequence[Step]) -> Iterator[Objection]:
    """/proc/mdstat lists the levels that the kernel can do; one that it has as a module is loaded."""
    for step in steps:
        if isinstance(step, MakeArray):
            word = step.level
            if f"[{word}]" not in _mdstat() and find_program("modprobe"):
                ask("modprobe", "-q", "--", _MODULE.get(word, word))
            if f"[{word}]" not in _mdstat():
                yield f"this kernel has no md, or not {word}", f"modprobe {_MODULE.get(word, word)}; uname -r"


def _mdstat() -> str:
    try:
        return Path("/proc/mdstat").read_text()
    except OSError:
        return ""


def _about_members(steps: Sequence[Step]) -> Iterator[Objection]:
    """What no table shows and blkid would find the moment a partition is there."""
    for step in steps:
        if isinstance(step, MakeMember) and not step.wipe:
            yield from old_signatures(step, data_area(steps))


def _about_paths(steps: Sequence[Step], site: Site) -> Iterator[Objection]:
    """A drive that is in use by another name: the kernel knows of two drives, and guards each for itself."""
    members = [step for step in steps if isinstance(step, MakeMember)]
    for other in site.look_around() if members else ():
        places = [*other.mounted_at, *(place for part in other.partitions for place in part.mounted_at)]
        above = [*other.holders, *(holder for part in other.partitions for holder in part.holders)]
        for step in members:
            if other.path != step.disk.path and (places or above) and _is_same(other, step.disk):
                used = f"mounted at {places[0]}" if places else f"a part of {above[0]}"
                yield (
                    f"{step.disk.path} and {other.path} are one drive by two names, and it is {used}",
                    f"lsblk -o NAME,WWN,SERIAL,MOUNTPOINTS {step.disk.path} {other.path}",
                )


def _is_same(disk: Disk, was: Subject) -> bool:
    """By WWN; where one has none, by model, serial number and size."""
    if disk.wwn and was.wwn:
        return disk.wwn == was.wwn
    same = (disk.model, disk.serial, disk.size) == (was.model, was.serial, was.size)
    return bool(disk.serial) and same


def _about_files(steps: Sequence[Step], site: Site) -> Iterator[Objection]:
    for step in steps:
        if isinstance(step, EditFile | WriteFile):
            yield from ((why, "") for why in refuse_unwritable(step, site))
        if isinstance(step, EditFile):
            yield from _about_names(step, site)
            drives = [each.disk.path for each in steps if isinstance(each, MakeMember)]
            yield from _about_copies(step, drives, site)


def _about_copies(step: EditFile, drives: Sequence[str], site: Site) -> Iterator[Objection]:
    """EFI system partitions of another array that are kept alike: its line would go, and they would drift apart."""
    if step.path != LIST_FILE:
        return
    try:
        text = find_file(site, step.path).read_text(errors="surrogateescape")
    except (OSError, Refused):
        return
    for uuid in re.findall(r"[0-9A-F]{4}-[0-9A-F]{4}", " ".join(re.findall(r"(?m)^ESP_COPIES=(.*)", text))):
        device = os.path.realpath(site.path(f"/dev/disk/by-uuid/{uuid}"))
        if os.path.lexists(device) and not any(device.startswith(drive) for drive in drives):
            yield (
                f"{step.path} keeps {device}, an EFI system partition of another array, like its others, and would "
                "not any more",
                "make this array from a live system, so that each has a list of its own",
            )
            return


def _about_names(step: EditFile, site: Site) -> Iterator[Objection]:
    """Another array of that name in mdadm.conf, another file system at that place in fstab."""
    try:
        text = find_file(site, step.path).read_text(errors="surrogateescape")
    except (OSError, Refused):
        return
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]
    others = [line.split() for line in lines if step.instead_of not in line]  # that one is replaced
    for ours in (line.split() for line in step.lines):
        for other in others:
            taken = len(ours) > 1 and len(other) > 1
            if taken and other[0] == ours[0] == "ARRAY" and other[1] == ours[1]:
                yield (
                    f"{step.path} gives the name {ours[1]} to another array: {' '.join(other)}",
                    "--name another",
                )
            elif taken and step.path == FSTAB and other[1].rstrip("/") == ours[1] != "/":
                yield f"{step.path} mounts {other[0]} at {ours[1]} already", _elsewhere(ours[1], site)


def _elsewhere(place: str, site: Site) -> str:
    """A place that is not there yet, and that fstab does not name."""
    try:
        lines = find_file(site, FSTAB).read_text(errors="surrogateescape").splitlines()
    except (OSError, Refused):
        lines = []
    named = {word for line in lines for word in line.split()[1:2]}
    free = other_place(place, lambda each: each in named or os.path.lexists(each))
    return f"--mount {shell_word(free)}"
