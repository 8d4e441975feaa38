"""Inventory + goal -> Plan: the one function that decides what becomes of a disk.

In: a judged disk, the goal, how much of each partition is used. Out: a plan, or a refusal with every reason at once.
Alone because it is the table of contents of this folder: look who moves, ask what stands against it, find places,
write the steps down.
"""

from collections.abc import Collection, Mapping

from aligntool.audit import Answer, Judged
from aligntool.audit.words import next_command, next_look
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, Partition
from aligntool.plan import Plan, RealignGoal, Used
from aligntool.realign.layout_refusals import holdings
from aligntool.realign.reasons import Reason, disk_reasons, partition_reasons
from aligntool.realign.row import Movable
from aligntool.realign.search import Found, boot_floor, search
from aligntool.realign.shrinking import Shrunk, room_by_shrinking, what_would_help
from aligntool.realign.wanted import Wanted, wanted
from aligntool.realign.writing import write_plan
from aligntool.units import MIB, format_about, format_size


def plan_realign(
    judged: Judged,
    goal: RealignGoal,
    used: Mapping[int, Used],
    *,
    all_disks: Inventory | None = None,
) -> Plan:
    """The cheapest way to bring every start onto the grids. `used`: what a move of each partition has to copy;
    partitions it lacks are copied whole. `all_disks`: the rest of the machine, to name what holds a partition.

    A disk on which nothing has to move gives a plan without steps. Raises Refused with all reasons, a line each.
    """
    disk = judged.disk
    if not disk.partitions:
        why, hint = _nothing_there(disk)
        raise Refused(why, hint=hint)
    wish = wanted(judged, goal)
    if not wish.must and not wish.reasons:
        _refuse_if_untold(judged)
        return write_plan(disk, goal, wish, None, used, {})
    reasons = [*wish.reasons, *disk_reasons(judged, all_disks)]
    standing = partition_reasons(disk, parts_of(disk, wish.must))
    reasons += [reason for found in standing.values() for reason in found]
    whole = disk.size is not None and bool(wish.lattices)
    found, shrunk = _places(disk, goal, wish, used) if whole else (None, {})
    if whole and wish.must and (found is None or found.journal is None):
        reasons.append(_no_room(disk, goal, wish, used, found))
    if reasons or found is None:
        raise _refusal(disk, reasons, standing)
    return write_plan(disk, goal, wish, found, used, shrunk)


def movable(disk: Disk, wish: Wanted, used: Mapping[int, Used], shrunk: Mapping[int, Shrunk]) -> Movable:
    standing = partition_reasons(disk, parts_of(disk, wish.may))
    may = {number: wish.lattices for number, reasons in standing.items() if not reasons}
    cost = {part.number: used[part.number].bytes for part in disk.partitions if part.number in used}
    lengths = {number: one.length for number, one in shrunk.items()}
    return Movable(dict.fromkeys(wish.must, wish.lattices), may, cost, lengths)


def _places(
    disk: Disk, goal: RealignGoal, wish: Wanted, used: Mapping[int, Used]
) -> tuple[Found | None, dict[int, Shrunk]]:
    found = search(disk, movable(disk, wish, used, {}), goal)
    if (found is None or found.journal is None) and goal.shrink:
        shorter = room_by_shrinking(
            disk, used, lambda shrunk: search(disk, movable(disk, wish, used, shrunk), goal)
        )
        if shorter is not None:
            return shorter
    if found is not None and found.journal is None:
        found = search(disk, movable(disk, wish, used, {}), goal, finer=True)
    return found, {}


def parts_of(disk: Disk, numbers: Collection[int]) -> tuple[Partition, ...]:
    return tuple(part for part in disk.partitions if part.number in numbers)


def _nothing_there(disk: Disk) -> tuple[str, str]:
    if not disk.table_read:
        return f"the partition table of {disk.name} was not read", next_command(disk, "plan realign")
    held = holdings(disk)
    faults = disk.table.faults if disk.table else ()
    if held or faults or not disk.content_read or disk.gpt_headers:
        # No hint leads to a new table where anything was recognised, or could not be looked at.
        found = f": {', '.join(held)}" if held else ""
        return f"there are no partitions on {disk.name}{found}", next_command(disk, "audit")
    return f"there are no partitions on {disk.name}", next_command(disk, "plan layout", "--part rest:linux")


def _refuse_if_untold(judged: Judged) -> None:
    """A table that belongs to an array, say: nothing is off the grid, for nobody could tell."""
    untold = [verdict for verdict in judged.verdicts if verdict.answer is Answer.UNKNOWN]
    if untold and len(untold) == len(judged.verdicts):
        why = untold[0].why or "unknown"
        raise Refused(f"alignment cannot be judged: {why}", hint=next_command(judged.disk, "audit"))


def _no_room(
    disk: Disk, goal: RealignGoal, wish: Wanted, used: Mapping[int, Used], found: Found | None
) -> Reason:
    helps, hint = what_would_help(
        disk, used, lambda shrunk: search(disk, movable(disk, wish, used, shrunk), goal), shrink=goal.shrink
    )
    if found is not None:
        text = (
            f"there is no room for the journal: it needs {format_about(found.journal_least)} in one piece, the largest"
            f" free one has {format_about(found.journal_room)}, {found.journal_least - found.journal_room} bytes short"
        )
        text += "; a file on another disk does as well"
        return Reason(f"{text}{helps}", next_command(disk, "realign", "--journal FILE"), lasting=False)
    numbers = ", ".join(str(number) for number in sorted(wish.must))
    who = "partition" if len(wish.must) == 1 else "partitions"
    grain = " of the grain that was asked for" if goal.grain_given else ""
    text = f"there is no room to put {who} {numbers} on a boundary{grain}"
    if (floor := boot_floor(disk)) > MIB:
        text += f" (nothing is moved down below {format_size(floor)}: a boot loader may lie there)"
    return Reason(f"{text}{helps}", hint or next_look(disk), lasting=False)


def _refusal(disk: Disk, reasons: list[Reason], standing: Mapping[int, tuple[Reason, ...]]) -> Refused:
    """All reasons, and the next thing to type: the others alone where some cannot be moved for good, else the first
    thing that can be done.
    """
    lines = list(dict.fromkeys(reason.text for reason in reasons))
    own = [reason for found in standing.values() for reason in found]
    free = [number for number, found in standing.items() if not found]
    passing = [reason for reason in reasons if not reason.lasting]
    if free and own and len(own) == len(reasons) and not passing:
        hint = next_command(disk, "plan realign", *(f"-p {one}" for one in free))
    else:
        hint = (passing or reasons)[0].hint if reasons else ""
    return Refused("\n".join(lines), hint=hint)
