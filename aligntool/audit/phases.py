"""Where the sectors of the members begin on an md array, when the kernel cannot say it.

In: an Inventory and the physical sectors settled for its disks. Out: for each such array the bytes from its byte 0 to
the first boundary. Alone because two kinds of arrays need it: on members that start off their sectors the kernel
reports −1 as soon as there is a chunk (blk_stack_limits: chunk and shift cannot be told in one number), and on members
whose sector size is only known or assumed it adds up nothing at all.
"""

from collections.abc import Mapping

from aligntool.audit.grids import Sized
from aligntool.inventory import Disk, Inventory

_ADDED_UP = ("raid0", "raid1", "raid4", "raid5", "raid6", "raid10")  # a byte keeps its place in a chunk


def shifted_arrays(inventory: Inventory, sectors: Mapping[str, Sized]) -> dict[str, int]:
    """By the array's name. Not in it: arrays that the kernel tells rightly, and those whose members contradict."""
    arrays = [disk for disk in inventory.disks if disk.array and _needs_it(disk, sectors[disk.name][0])]
    if not arrays:
        return {}
    places = _places(inventory)
    found = {disk.name: _shift(disk, sectors, places) for disk in arrays}
    return {name: shift for name, shift in found.items() if shift}


def _needs_it(disk: Disk, size: int) -> bool:
    return (disk.limits.alignment_offset or 0) < 0 or size > (disk.limits.physical_block_size or 0)


def _places(inventory: Inventory) -> dict[str, tuple[Disk, int]]:
    """Kernel name of a disk or partition -> the disk and the byte on it."""
    places = {disk.name: (disk, 0) for disk in inventory.disks}
    for disk in inventory.disks:
        places.update((part.node, (disk, part.extent.start)) for part in disk.partitions if part.node)
    return places


def _shift(array: Disk, sectors: Mapping[str, Sized], places: Mapping[str, tuple[Disk, int]]) -> int | None:
    """The same for every member, or None. Members with smaller sectors than the array's have no say."""
    facts, size = array.array, sectors[array.name][0]
    if facts is None or facts.level not in _ADDED_UP or (facts.chunk or 0) % size:
        return None
    if not facts.members or {name for name, _ in facts.member_data_offsets} != set(facts.members):
        return None
    shifts: set[int] = set()
    for name, offset in facts.member_data_offsets:
        if name not in places:
            return None
        disk, start = places[name]
        phase = disk.limits.alignment_offset or 0
        if phase < 0:
            return None
        if sectors[disk.name][0] == size:
            shifts.add((phase - start - offset) % size)
    return shifts.pop() if len(shifts) == 1 else None
