"""Which partitions have to move, which may, and which stay: before anybody has looked for room.

In: a judged disk and the goal. Out: partition numbers with the lattices they may go to, and what was said on the way.
Alone because this is where the user's wish, the verdicts and the exceptions meet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from aligntool.audit import Answer, Judged, Verdict
from aligntool.audit.words import next_command
from aligntool.inventory import Partition, Role
from aligntool.plan import RealignGoal
from aligntool.realign.lattice import Lattice, choices, needed, on_grain
from aligntool.realign.reasons import Reason
from aligntool.units import format_size


@dataclass(frozen=True, slots=True)
class Wanted:
    lattices: tuple[Lattice, ...]  # best first
    must: dict[int, str]  # number -> why it moves
    may: tuple[int, ...]  # on the grid, but could make room
    stays: dict[int, str]  # number -> why it stays
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sorting:
    audit: str  # the command
    must: dict[int, str] = field(default_factory=dict)
    may: list[int] = field(default_factory=list)
    stays: dict[int, str] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def wanted(judged: Judged, goal: RealignGoal) -> Wanted:
    """Everybody sorted. Off the grid moves; on the grid stays, unless the user names it or insists on a grain."""
    disk = judged.disk
    need = needed(judged.grids, disk.sector_size)
    sorting = _Sorting(next_command(disk, "audit"))
    if need is None:
        sizes = ", ".join(
            f"{grid.kind} {format_size(grid.size)} + {format_size(grid.phase)}" for grid in judged.grids
        )
        return Wanted(
            (), {}, (), {}, (Reason(f"no place is on all the grids at once: {sizes}", sorting.audit),)
        )
    lattices = choices(need, goal.grain, only_grain=goal.grain_given)
    sorting.reasons += _unknown_names(judged, goal)
    verdicts = judged.by_partition()
    for part in disk.partitions:
        verdict = verdicts.get(part.number)
        if part.role is Role.EXTENDED:
            sorting.stays[part.number] = "a container of logical partitions needs no boundary"
        elif verdict is not None:
            _sort(sorting, part, verdict, goal, on_grain(need, goal.grain))
    return Wanted(
        lattices,
        sorting.must,
        tuple(sorting.may),
        sorting.stays,
        tuple(sorting.reasons),
        tuple(sorting.notes),
    )


def off_words(verdict: Verdict) -> str:
    """ "off 4KiB by 3584B", for the worst grid it is off."""
    failed = [check for check in verdict.checks if not check.on]
    worst = min(failed, key=lambda check: check.grid.severity.rank)
    return f"off {format_size(worst.grid.size)} by {format_size(worst.off_by)}"


def _unknown_names(judged: Judged, goal: RealignGoal) -> Iterator[Reason]:
    there = [part.number for part in judged.disk.partitions]
    for number in goal.partitions:
        if number not in there:
            numbers = ", ".join(str(one) for one in there) or "none"
            yield Reason(f"there is no partition {number} on {judged.disk.name}; there are {numbers}",
                         next_command(judged.disk, "audit"))  # fmt: skip


def _sort(sorting: _Sorting, part: Partition, verdict: Verdict, goal: RealignGoal, grain: Lattice) -> None:
    number, named = part.number, part.number in goal.partitions
    chosen = named or not goal.partitions
    if not verdict.matters:
        sorting.stays[number] = verdict.why
        if named:
            hint = f"name another partition; {number} stays"
            sorting.reasons.append(Reason(f"partition {number} is not moved: {verdict.why}", hint))
    elif verdict.answer is Answer.UNKNOWN:
        sorting.stays[number] = "nobody can tell whether it is on the grid"
        if chosen:
            text = f"partition {number}: alignment cannot be judged: {verdict.why}"
            sorting.reasons.append(Reason(text, sorting.audit))
    elif not chosen:
        off = verdict.answer is Answer.OFF
        sorting.stays[number] = "not named" if off else "on the grid"
        if off:
            sorting.notes.append(
                f"partition {number} is {off_words(verdict)} as well and stays: it was not named"
            )
    else:
        _sort_by_place(sorting, part, verdict, goal, grain)


def _sort_by_place(
    sorting: _Sorting, part: Partition, verdict: Verdict, goal: RealignGoal, grain: Lattice
) -> None:
    number, named = part.number, part.number in goal.partitions
    on_grain_now = grain.has(part.extent.start)
    if verdict.answer is Answer.OFF:
        sorting.must[number] = off_words(verdict)
    elif part.extent.start < goal.least_start:
        sorting.must[number] = f"begins before {format_size(goal.least_start)}"
    elif (named or goal.grain_given) and not on_grain_now:
        past = (part.extent.start - grain.phase) % grain.size
        sorting.must[number] = f"off the grain of {format_size(grain.size)} by {format_size(past)}"
    else:
        sorting.stays[number] = "on the grid"
        if named:
            sorting.notes.append(f"partition {number} was named and is on the grid: it stays")
        elif not goal.partitions:
            sorting.may.append(number)
