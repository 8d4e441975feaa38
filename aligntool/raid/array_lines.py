"""The ARRAY line of an array that is there: what it is called, and which lines it takes the place of.

In: an array and the system's mdadm.conf. Out: edits of that file, and why. Alone because a line that is wrong is worse
than none, and because the first line in Debian's file ends the hook's own search for arrays.
"""

import re
from collections.abc import Iterator, Sequence

from aligntool.audit.coming_back import (
    is_native,
    known_arrays,
    lines_of,
    node_of,
    running_nodes,
    short_name,
    wrong_lines,
)
from aligntool.inventory import ArrayLine, Disk, Inventory
from aligntool.inventory import System as Files
from aligntool.plan import EditFile
from aligntool.raid.systems import BACKUP, System

COUNTED_DOWN = 120  # md gives numbers from 127 downwards to arrays that nobody gave one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_NUMBER = re.compile(r"md_?d?(\d+)")


def conf_steps(disk: Disk, inventory: Inventory, files: Files, system: System) -> Iterator[EditFile]:
    """For the array, and on Debian for every other one that runs, where the file has no line yet.

    The first wrong line is replaced; others become comments, so that one array has one line.
    """
    need = _in_need(disk, inventory, files, system)
    if not need:
        return
    wrong = wrong_lines(disk, inventory, files)
    file = wrong[0].file if wrong else _file(files, system)
    uuid = disk.array.uuid if disk.array else None
    yield EditFile(
        file, _lines(need, inventory, files), wrong[0].text if wrong else f"UUID={uuid}", file + BACKUP
    )
    for other in wrong[1:]:
        yield EditFile(
            other.file, (f"# replaced by aligntool: {other.text}",), other.text, other.file + BACKUP
        )


def lines_from_now_on(inventory: Inventory, system: System, new: str) -> Iterator[EditFile]:
    """For every array that runs, before Debian's file gets its first line: from then on its hook looks for no other.
    `new`: the device of the array that the first line is for, whose name no other gets.
    """
    files = inventory.system
    if files is None or system.word != "debian" or files.mdadm.arrays:
        return
    running = [one for one in inventory.disks if is_native(one) and one.array and one.array.uuid]
    if running and running[0].array:
        file = _file(files, system)
        key = f"UUID={running[0].array.uuid}"
        yield EditFile(file, _lines(running, inventory, files, new), key, file + BACKUP)


def _lines(arrays: Sequence[Disk], inventory: Inventory, files: Files, new: str = "") -> tuple[str, ...]:
    """Of two that would have the same name the second gets another; `new` is nobody's."""
    given: dict[str, str] = {}
    for one in arrays:
        device = device_of(one, inventory, files)
        device = made_up_name(one) if device in given or device == new else device
        given[device] = array_line(one, device)
    return tuple(given.values())


def conf_words(disk: Disk, inventory: Inventory, files: Files, system: System) -> Iterator[str]:
    """What is done with mdadm.conf and why, a sentence each."""
    named = lines_of(disk, files.mdadm.arrays)
    if named:
        yield f"its line in {named[0].file} is right: {named[0].text}"
        return
    yield f"it gets the name {device_of(disk, inventory, files)}, by its UUID"
    for line in wrong_lines(disk, inventory, files):
        gone = line.uuid is not None and line.uuid not in known_arrays(inventory)
        why = "names an array of which no member is here" if gone else "does not name it by its UUID"
        yield f"a line in {line.file} goes, because it {why}: {line.text}"
    others = [one.path for one in _in_need(disk, inventory, files, system) if one.name != disk.name]
    if others:
        yield (
            f"{', '.join(others)}: get their lines too, because Debian's initramfs finds arrays by itself only while "
            "mdadm.conf names none"
        )


def _in_need(disk: Disk, inventory: Inventory, files: Files, system: System) -> list[Disk]:
    """The array first."""
    if lines_of(disk, files.mdadm.arrays):
        return []
    if system.word != "debian" or files.mdadm.arrays:
        return [disk]
    others = [one for one in inventory.disks if is_native(one) and one.name != disk.name]
    return [disk, *(one for one in others if one.array and one.array.uuid)]


def _file(files: Files, system: System) -> str:
    """The one that is there, else the system's own."""
    there = files.mdadm.files
    return system.mdadm_conf if not there or system.mdadm_conf in there else there[0]


def array_line(disk: Disk, device: str) -> str:
    """mdadm.conf(5)."""
    facts = disk.array
    metadata = f" metadata={facts.metadata}" if facts and facts.metadata else ""
    return f"ARRAY {device}{metadata} UUID={facts.uuid if facts else ''}"


def device_of(disk: Disk, inventory: Inventory, files: Files) -> str:
    """The name that it keeps: of the wrong line, of its superblock, else the node that it has now."""
    taken = _taken(disk, inventory, files)
    wrong: list[ArrayLine] = list(wrong_lines(disk, inventory, files))
    names = [node_of(line.device) for line in wrong if line.device and line.device != "<ignore>"]
    name = short_name(disk)
    if name.isdecimal():
        names.append(f"/dev/md{int(name)}")
    elif _NAME.fullmatch(name):
        names.append(f"/dev/md/{name}")
    names += [disk.path] if not _counted_down(disk.path) else []
    names = [each for each in names if not _counted_down(each)]
    return next((each for each in names if each not in taken), made_up_name(disk))


def made_up_name(disk: Disk) -> str:
    """No other array has it: with the beginning of its UUID."""
    name, uuid = short_name(disk), (disk.array.uuid if disk.array else None) or ""
    return f"/dev/md/{name if _NAME.fullmatch(name) else 'array'}-{uuid[:8]}"


def _taken(disk: Disk, inventory: Inventory, files: Files) -> frozenset[str]:
    """By lines of other arrays that are here, and by other arrays that run."""
    uuid = disk.array.uuid if disk.array else None
    known = known_arrays(inventory)
    lines = {node_of(line.device) for line in files.mdadm.arrays if line.uuid != uuid and line.uuid in known}
    others = [one for one in inventory.disks if one.array and one.name != disk.name]
    return frozenset(lines | {node for one in others for node in running_nodes(one)})


def _counted_down(device: str) -> bool:
    found = _NUMBER.fullmatch(device.removeprefix("/dev/"))
    return found is not None and int(found[1]) >= COUNTED_DOWN
