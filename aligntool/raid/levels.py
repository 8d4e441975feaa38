"""RAID levels: how many members each needs, how many copies it stores, how much of a stripe holds data
(md(4)).
"""

from dataclasses import dataclass

from aligntool.change import RAID_WORDS

WORKLOADS = RAID_WORDS["workload"]
PARITY_LAYOUTS = ("left-symmetric", "left-asymmetric", "right-symmetric", "right-asymmetric")


@dataclass(frozen=True, slots=True)
class Level:
    word: str  # the name that mdadm and the kernel use
    title: str
    least_members: int
    parity: int = 0  # members' worth of every stripe that holds no data
    striped: bool = True  # it has a chunk
    redundant: bool = True  # a member may fail


LEVELS = {
    "raid0": Level("raid0", "RAID0", 2, redundant=False),
    "raid1": Level("raid1", "RAID1", 2, striped=False),
    "raid10": Level("raid10", "RAID10", 2),
    "raid5": Level("raid5", "RAID5", 3, parity=1),
    "raid6": Level("raid6", "RAID6", 4, parity=2),
}


def level_of(word: str) -> Level:
    """Return the level of a running array, including levels that aligntool never plans. RAID4 keeps its
    parity on one member.
    """
    raid4 = Level("raid4", "RAID4", 3, parity=1)
    other = Level(word, word, 1, striped=False, redundant=False)
    return LEVELS.get(word) or (raid4 if word == "raid4" else other)


def layouts_of(level: Level, members: int) -> tuple[str, ...]:
    """Return the values of `--layout`, the recommended one first; () if there is no choice. RAID10: n near, f
    far, o offset.
    """
    if level.parity:
        return PARITY_LAYOUTS
    if level.word == "raid10":
        copies = range(2, max(members, 2) + 1)
        return tuple(f"{kind}{number}" for number in copies for kind in "nfo")
    return ()


def copies_of(level: Level, members: int, layout: str) -> int:
    """Return how many copies of every byte the array stores, not counting parity."""
    if level.word == "raid1":
        return members
    return int(layout[1:]) if level.word == "raid10" and layout[1:].isdecimal() else 1


def least_members(level: Level, layout: str) -> int:
    """Return how many members an array needs."""
    return max(level.least_members, copies_of(level, 0, layout))


def data_members(level: Level, members: int, layout: str) -> int:
    """Return how many members' worth of a full stripe hold data, at least 1.

    If the number of copies of a RAID10 does not divide its number of members, all members count, as in the
    kernel's io_opt (raid10_set_queue_limits). They also all count in the far and offset layouts, because the
    kernel divides by near copies only (raid10.c, setup_geo).
    """
    if level.word == "raid1":
        return 1
    copies = copies_of(level, members, layout)
    if layout.startswith(("f", "o")) or members % copies:
        copies = 1
    return max((members - level.parity) // copies, 1)


def capacity(level: Level, members: int, layout: str, each: int) -> int:
    """Return the size of the array in bytes when each member contributes `each` bytes."""
    return (members - level.parity) * each // copies_of(level, members, layout)


def may_fail(level: Level, members: int, layout: str) -> int:
    """Return how many members may fail, whichever they are, without a loss of data."""
    return level.parity or copies_of(level, members, layout) - 1
