"""A sweep over chunks, thought out: which test arrays are made of which members, and what is asked of each.

In: judged members and a goal. Out: a Sweep, in which every command is a value, or Refused with every reason. Alone
because what a sweep writes must be shown before it is done, as with every other plan.

The members are taken as they are, whole drives or partitions, without a table: the data begin at the same bytes of the
drive as they would in an array that is made to stay, and only md's superblock has to be taken away again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.audit import Judged
from aligntool.errors import Refused
from aligntool.plan import MakeArray, RaidGoal, Subject
from aligntool.plan.subject import subject
from aligntool.raid.creating import create_command, make_array
from aligntool.raid.levels import LEVELS, copies_of
from aligntool.raid.planning import decide_raid
from aligntool.raid.telling import Decided
from aligntool.raid.tuning import Identity
from aligntool.raid.tuning_file import identity_of
from aligntool.raid.tuning_marks import TEST_NAME
from aligntool.raid.tuning_shapes import Shape, drive_shapes, shapes_of, span_of, sweep_chunks, sweep_order
from aligntool.units import MIB, Extent, align_up, format_size

FILL_RATE = 500 * MIB  # bytes a second of each member, for the estimate of the time only
MAKING_S = 4.0  # an array made, found and taken away again
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sizes in bytes, times in seconds."""

    level: str
    layout: str
    bitmap: str
    workload: str
    database_page: int
    recommended: int
    chunks: tuple[int, ...]
    order: tuple[tuple[int, int], ...]  # (round, chunk)
    arrays: Mapping[int, MakeArray]  # by chunk
    shapes: tuple[Shape, ...]
    alone: tuple[Shape, ...]  # what each drive is asked to do by itself
    members: tuple[str, ...]  # device nodes
    disks: tuple[Subject, ...]
    identities: tuple[Identity, ...]
    data_offset: int
    span: int  # of the array
    each_span: int  # of a member
    written: tuple[Extent, ...]  # of every member, from its own start
    runtime_s: float

    @property
    def uuid(self) -> str:
        return self.arrays[self.recommended].uuid

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        fill = self.each_span / FILL_RATE
        loads = len(self.order) * (len(self.shapes) * self.ramped_s + fill + MAKING_S)
        return loads + len(self.members) * (len(self.alone) * self.ramped_s + fill)

    @property
    def ramp_s(self) -> float:
        """Run before each load and not counted."""
        return min(1.0, self.runtime_s / 5)

    @property
    def ramped_s(self) -> float:
        return self.runtime_s + self.ramp_s


def plan_sweep(
    members: Sequence[Judged],
    goal: RaidGoal,
    *,
    chunks: Sequence[int] = (),
    repeats: int,
    runtime_s: float,
    span: int | None = None,
) -> Sweep:
    """`goal`: level, workload, layout, bitmap, and which partitions; everything else of it is not asked. Raises Refused
    with every reason.
    """
    if not LEVELS[goal.level].striped:
        raise Refused(f"{LEVELS[goal.level].title} has no chunk, so there is none to choose")
    if repeats < 1 or not 0 < runtime_s <= LONGEST_S:
        raise Refused("at least one round, and loads of at most an hour", hint="--repeats 5 --runtime 5")
    wanted = _wanted(goal)
    decided = _decided(members, wanted)
    recommended = decided.advice.size or 0
    tried = sweep_chunks(decided.stripes, chunks)
    # The largest chunk first: what refuses an array of one chunk refuses the sweep.
    made = {chunk: _decided(members, replace(wanted, chunk=chunk)) for chunk in reversed(tried)}
    shape = decided.shape
    room = span_of(min(each.shape.size for each in made.values()), decided.stripe.data, span)
    if room < MIB:
        raise Refused(
            "the members are too small to measure anything on", hint="--span 64MiB, or larger drives"
        )
    each_span = align_up(room // decided.stripe.data, MIB)
    return Sweep(
        level=goal.level, layout=shape.layout, bitmap=shape.bitmap, workload=goal.workload,
        database_page=goal.database_page, recommended=recommended, chunks=tried, order=sweep_order(tried, repeats),
        arrays={chunk: _array(made[chunk]) for chunk in tried}, shapes=shapes_of(goal.workload, goal.database_page),
        alone=drive_shapes(), members=tuple(each.device for each in decided.placed),
        disks=tuple(subject(each.member.disk) for each in decided.placed),
        identities=tuple(identity_of(each.member.disk) for each in decided.placed),
        data_offset=shape.offset, span=room, each_span=min(each_span, shape.each),
        written=_written(decided, min(each_span + max(tried), shape.each)), runtime_s=runtime_s,
    )  # fmt: skip


def _wanted(goal: RaidGoal) -> RaidGoal:
    taken = "partitions" if any(goal.partitions) else "whole-drives"
    return replace(
        goal, name=TEST_NAME, filesystem="none", mount_at="", members=taken, metadata="1.2", wipe=(), chunk=None,
        measured="", esp_size=0, member_size=None,
    )  # fmt: skip


def _decided(members: Sequence[Judged], goal: RaidGoal) -> Decided:
    """A sweep wipes nothing, so what refuses it is not answered by --wipe."""
    try:
        return decide_raid(members, goal)
    except Refused as error:
        hints = [line for line in error.hint.split("\n") if line and not line.startswith("--wipe")]
        if " is not empty" in str(error):
            hints.append(
                "only empty drives, or empty partitions, are measured: wipefs DEV shows what is recognised there"
            )
        raise Refused(str(error), hint="\n".join(hints)) from None


def _array(decided: Decided) -> MakeArray:
    """Assumed clean: the parity that a resynchronisation would write is written to nothing that anybody reads, and
    while one runs every write to RAID5 and RAID6 is a reconstruction (raid5.c, handle_stripe_dirtying), which is not
    what the array does for the rest of its life.
    """
    devices = tuple(each.device for each in decided.placed)
    command = create_command(decided.goal, decided.shape, decided.placed)
    if decided.shape.level.redundant:
        at = len(command) - len(devices)
        command = (*command[:at], "--assume-clean", *command[at:])
    return make_array(decided.goal, decided.shape, devices, command)


def _written(decided: Decided, length: int) -> tuple[Extent, ...]:
    """Where the loads write on a member. The far layout keeps its second copies in other parts of it (md(4))."""
    shape, count = decided.shape, len(decided.placed)
    if not shape.layout.startswith("f"):
        return (Extent(shape.offset, length),)
    copies = copies_of(shape.level, count, shape.layout)
    stride = shape.each // copies
    return tuple(Extent(shape.offset + stride * number, min(length, stride)) for number in range(copies))


def sweep_words(sweep: Sweep) -> str:
    """ "the chunks 64KiB, 128KiB, 512KiB; 5 rounds"."""
    rounds = len(sweep.order) // len(sweep.chunks)
    counted = "1 round" if rounds == 1 else f"{rounds} rounds"
    chunks = ", ".join(map(format_size, sweep.chunks))
    return f"{'the chunk' if len(sweep.chunks) == 1 else 'the chunks'} {chunks}; {counted}"
