"""Whether a misaligned partition can be mended, for the audit to tell.

In: a judged disk. Out: an answer for each partition that is off its grid. Alone because it must be cheap: an audit of
thousands of disks asks it of each, and of tables with thousands of partitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from aligntool.audit import Answer, Judged, Report
from aligntool.audit.words import next_command, next_look, next_realign
from aligntool.inventory import Disk
from aligntool.plan import RealignGoal
from aligntool.realign.holds import kind_of
from aligntool.realign.placing import first_place
from aligntool.realign.planning import movable, parts_of
from aligntool.realign.reasons import Reason, disk_reasons, partition_reasons
from aligntool.realign.row import row_of
from aligntool.realign.search import room_of, search
from aligntool.realign.shrinking import SHRINKABLE
from aligntool.realign.wanted import Wanted, wanted

IN_PLACE, WITH_SHRINK, NOT = "in-place", "with-shrink", "not"
"""What `Mend.answer` can be."""

_SEARCHED_UP_TO = 32  # partitions; of more, each is asked only whether there is room beside it
_GOAL = RealignGoal()


class _Room(Enum):
    NONE = "nowhere to go"
    NO_JOURNAL = "a place, but no journal"
    ENOUGH = "a place and a journal"


@dataclass(frozen=True, slots=True)
class Mend:
    partition: int
    answer: str
    why: str  # one sentence
    next: str  # the command to type


def mends(judged: Judged) -> tuple[Mend, ...]:
    """One answer for each partition that is off the grid, where that matters; empty on a disk that is in order."""
    off = [
        verdict.partition
        for verdict in judged.verdicts
        if verdict.answer is Answer.OFF and verdict.matters and verdict.partition is not None
    ]
    if not off:
        return ()
    wish = wanted(judged, _GOAL)
    disk_wide = (*wish.reasons, *disk_reasons(judged, None))
    room = _rooms(judged, wish)
    against = partition_reasons(judged.disk, parts_of(judged.disk, frozenset(off)))
    return tuple(
        _mend(judged.disk, number, room.get(number, _Room.NONE), (*disk_wide, *against[number]))
        for number in off
    )


def point_to_answers(report: Report, mends: Mapping[str, Sequence[Mend]]) -> Report:
    """The same report; where a finding says to plan a move, it says what the answer says to type.

    That is what has to be settled first, the option without which the plan is refused, or where to read why it is.
    """
    answers: dict[tuple[str | None, int | None, str], str] = {
        (judged.disk.name, mend.partition, next_realign(judged.disk)): mend.next
        for judged in report.judged
        for mend in mends.get(judged.disk.name, ())
        if mend.next
    }
    findings = (
        replace(one, next=answers.get((one.disk, one.partition, one.next), one.next))
        for one in report.findings
    )
    return replace(report, findings=tuple(findings))


def on_captured_machine(
    report: Report, mends: Mapping[str, Sequence[Mend]]
) -> tuple[Report, dict[str, tuple[Mend, ...]]]:
    """The same for a captured machine: every command that would act on a disk of this one is marked as one to be typed
    there.
    """
    findings = (replace(one, next=_there(one.next)) for one in report.findings)
    moved = {
        name: tuple(replace(mend, next=_there(mend.next)) for mend in found) for name, found in mends.items()
    }
    return replace(report, findings=tuple(findings)), moved


def _there(command: str) -> str:
    if not command or command.startswith(("aligntool explain ", "aligntool drives ")):
        return command
    return f"on the captured machine: {command}"


def _mend(disk: Disk, number: int, room: _Room, reasons: tuple[Reason, ...]) -> Mend:
    lasting = next((reason for reason in reasons if reason.lasting), None)
    if lasting is not None:
        return Mend(number, NOT, lasting.text, lasting.hint)
    passing = next(iter(reasons), None)
    first = f", once this is settled: {passing.text}" if passing else ""
    if room is _Room.NO_JOURNAL:
        why = f"there is room beside it, but none on this disk for a journal{first}"
        return Mend(number, IN_PLACE, why, next_command(disk, "plan realign", "--journal FILE"))
    if room is _Room.ENOUGH:
        command = passing.hint if passing else next_realign(disk)
        return Mend(number, IN_PLACE, f"there is room to get onto the grid{first}", command)
    shorter = [one.number for one in disk.partitions if kind_of(one) in SHRINKABLE]
    if shorter:
        numbers = " or ".join(str(number) for number in shorter[-2:])
        why = (
            f"there is not enough room; shrinking the file system on partition {numbers} may make some{first}"
        )
        return Mend(number, WITH_SHRINK, why, next_command(disk, "plan realign", "--shrink"))
    why = "there is not enough room, and no file system here that can be shrunk"
    return Mend(number, NOT, why, next_look(disk))


def _rooms(judged: Judged, wish: Wanted) -> dict[int, _Room]:
    """All of them at once where that is possible, else each for itself; who is not in it has no room."""
    disk = judged.disk
    if not wish.lattices or disk.size is None:
        return {}
    if len(disk.partitions) > _SEARCHED_UP_TO:
        return dict.fromkeys(_beside(disk, wish), _Room.ENOUGH)
    together = _search(judged, wish)
    if together is not _Room.NONE:
        return dict.fromkeys(wish.must, together)
    return {
        number: _search(judged, wanted(judged, RealignGoal(partitions=(number,)))) for number in wish.must
    }


def _search(judged: Judged, wish: Wanted) -> _Room:
    found = search(judged.disk, movable(judged.disk, wish, {}, {}), _GOAL, finer=True)
    if found is None:
        return _Room.NONE
    return _Room.ENOUGH if found.journal else _Room.NO_JOURNAL


def _beside(disk: Disk, wish: Wanted) -> frozenset[int]:
    """Those with enough free space at their left or right, everybody else staying."""
    row = row_of(disk, movable(disk, wish, {}, {}))
    room = room_of(disk, _GOAL)
    found = set()
    end = room.extent.start
    for index, thing in enumerate(row):
        free_to = row[index + 1].extent.start if index + 1 < len(row) else room.extent.end
        if thing.number is not None and thing.number in wish.must:
            start = first_place(thing, wish.lattices[-1], end, room)
            if start + thing.extent.length <= free_to:
                found.add(thing.number)
        end = max(end, thing.extent.end)
    return frozenset(found)
