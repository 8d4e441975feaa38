"""A measurement of chunks, brought into the plan of an array.

In: the goal with what `raid tune` wrote, the array as far as it is decided, the chunk without a measurement. Out: the
chunk with it, the figures in words, what each drive does alone; or why the measurement is not about this array. Alone
because a plan without a measurement does not need to know that there are any.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aligntool.inventory import Disk
from aligntool.plan import RaidGoal
from aligntool.raid.ceilings import DriveRate, Rates
from aligntool.raid.chunks import ChunkAdvice, Evidence, Stripes, judge_chunk
from aligntool.raid.tuning import Choice, Tuning, Verdict, choose
from aligntool.raid.tuning_file import identity_of, parse_tuning, why_not_here
from aligntool.units import format_size


@dataclass(frozen=True, slots=True)
class MeasuredHere:
    """`notes` tell what the measurement says, or why it is not used."""

    advice: ChunkAdvice
    notes: tuple[str, ...] = ()
    rates: Rates = field(default_factory=dict)
    used: bool = False


def measured_here(
    goal: RaidGoal,
    stripes: Stripes,
    advice: ChunkAdvice,
    disks: Sequence[Disk],
    layout: str,
    bitmap: str,
) -> MeasuredHere:
    """Raises Refused for a text that is no result of `raid tune`."""
    if not goal.measured:
        return MeasuredHere(advice)
    tuning = parse_tuning(goal.measured)
    rates = _rates(tuning, disks)
    if advice.size is None:
        return MeasuredHere(advice, ("the measurement says nothing here: this level has no chunk",), rates)
    reasons = why_not_here(tuning, disks, goal, layout, bitmap)
    if reasons:
        return MeasuredHere(
            advice, (f"the measurement is not used for the chunk: {'; '.join(reasons)}",), rates
        )
    choice = choose(tuning.samples, advice.size)
    if choice.chunk is None:
        return MeasuredHere(advice, (f"the measurement is not used for the chunk: {choice.reason}",), rates)
    judged = judge_chunk(choice.chunk, stripes)
    chosen = ChunkAdvice(choice.chunk, choice.reason, Evidence.MEASURED, judged)
    return MeasuredHere(chosen, tuple(_figures(tuning, choice, advice.size)), rates, True)


def _figures(tuning: Tuning, choice: Choice, recommended: int) -> Iterator[str]:
    told = [
        f"{format_size(chunk)} {ratio}{'' if chunk in choice.apart else ', within the noise'}"
        for chunk, ratio in choice.against.items()
        if chunk != recommended
    ]
    yield (
        f"measured on these drives: the work done against {format_size(recommended)}, median (smallest–largest) of "
        f"{choice.rounds} rounds: {'; '.join(told) or 'nothing else was tried'}"
    )
    if choice.verdict is Verdict.KEPT and not choice.apart:
        yield "the chunk makes no difference here that could be measured"
    if not tuning.complete:
        yield "the measurement was ended early; its whole rounds count"


def _rates(tuning: Tuning, disks: Sequence[Disk]) -> dict[str, DriveRate]:
    """What each drive did alone; a drive is the same under whatever level."""
    by_key = {member.key: member for member in tuning.members if any(member.key)}
    found = {}
    for disk in disks:
        member = by_key.get(identity_of(disk).key)
        if member is not None and (member.read or member.write):
            found[disk.name] = DriveRate(member.read, member.write, "measured here")
    return found
