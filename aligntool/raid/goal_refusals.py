"""Why an array is not planned: because of what is wanted, whatever the members are.

In: the goal, and how many members there are to be. Out: reasons, each with the next thing to type. Alone because it is
what md, mdadm and fstab themselves would refuse, and no drive has to be looked at for it.
"""

import re
from collections.abc import Iterator

from aligntool.errors import Objection
from aligntool.plan import RaidGoal
from aligntool.raid.levels import LEVELS, WORKLOADS, layouts_of
from aligntool.raid.systems import SYSTEMS
from aligntool.units import KIB, format_size, is_power_of_two

FILE_SYSTEMS = ("xfs", "ext4", "btrfs", "swap", "none")
METADATA = ("1.2", "1.0")
BITMAPS = ("internal", "none")
MEMBERS = ("new-partitions", "partitions", "whole-drives")
PAGE = 4 * KIB  # the kernel's: a chunk is a multiple of it (md.c, raid5.c setup_conf)
LONGEST_NAME = 27  # "any:" before it makes 31; before a longer one mdadm leaves it out (super1.c)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def about_goal(goal: RaidGoal, members: int) -> Iterator[Objection]:
    words: tuple[tuple[str, str | None, tuple[str, ...], str], ...] = (
        ("level", goal.level, tuple(LEVELS), "--level"),
        ("workload", goal.workload, WORKLOADS, "--workload"),
        ("file system", goal.filesystem, FILE_SYSTEMS, "--fs"),
        ("metadata version", goal.metadata, METADATA, ""),
        ("bitmap", goal.bitmap, BITMAPS, ""),
        ("kind of member", goal.members, MEMBERS, ""),
    )
    for what, word, allowed, option in words:
        if word is not None and word not in allowed:
            yield f"{word!r} is no {what} of an array here", f"{option or what}: {', '.join(allowed)}"
    if not _NAME.fullmatch(goal.name) or len(goal.name) > LONGEST_NAME:
        yield (
            f"{goal.name!r} is no name for an array: letters, digits, '.', '_' and '-', at most {LONGEST_NAME}",
            "--name data",
        )
    if goal.mount_at and not re.fullmatch(r"/[^\s\\#]*", goal.mount_at):
        yield f"{goal.mount_at!r} is no place to mount at that fstab could hold", f"--mount /srv/{goal.name}"
    if goal.system not in SYSTEMS:
        yield f"{goal.system!r} is no system whose files are known", f"--system: {', '.join(SYSTEMS)}"
    if level := LEVELS.get(goal.level):
        allowed = layouts_of(level, members)
        if goal.layout is not None and goal.layout not in allowed:
            yield (
                f"{level.title} of {members} has no layout {goal.layout!r}",
                f"layouts: {', '.join(allowed) or 'none'}",
            )
        if goal.bitmap == "internal" and not level.redundant:
            yield f"{level.title} has nothing to resynchronise, so it has no bitmap", ""
        yield from _about_chunk(goal)


def _about_chunk(goal: RaidGoal) -> Iterator[Objection]:
    """What md itself refuses: raid0.c create_strip_zones, raid5.c setup_conf, raid10.c setup_geo, mdadm Create.c."""
    level, chunk = LEVELS[goal.level], goal.chunk
    if chunk is None:
        return
    if not level.striped:
        yield f"{level.title} has no chunk: every member holds everything", "leave --chunk out"
    elif chunk <= 0 or chunk % PAGE:
        yield (
            f"a chunk of {format_size(chunk)} is no multiple of the kernel's pages of {format_size(PAGE)}",
            "--chunk 64KiB",
        )
    elif level.word != "raid0" and not is_power_of_two(chunk):
        yield (
            f"a chunk of {format_size(chunk)} is no power of two, which {level.title} asks for",
            "--chunk 64KiB",
        )
