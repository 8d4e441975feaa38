"""What was decided for an array and why, and what needs the user: the sentences of its plan.

In: everything that was decided. Out: notes and points of attention. Alone because the plan's steps say what will be
done, and this says why.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.inventory import Inventory
from aligntool.plan import RaidGoal
from aligntool.raid.boot_partitions import boot_words
from aligntool.raid.ceilings import ceiling, ceiling_words, known_rates
from aligntool.raid.chunks import ChunkAdvice, Stripes, judge_chunk
from aligntool.raid.creating import Shape, consistency_notes
from aligntool.raid.filesystems import (
    PATIENCE,
    XFS_INODE,
    Stripe,
    default_options,
    filesystem_notes,
    waits_as_asked,
)
from aligntool.raid.measured import MeasuredHere
from aligntool.raid.members import Known, differences, is_dramless, link_sentences, member_sentences
from aligntool.raid.placing import DataOffset, Placed, own_length, spare_room
from aligntool.raid.refusals import holdings, wiped
from aligntool.raid.systems import SYSTEMS
from aligntool.raid.wear import unasked
from aligntool.units import format_size


@dataclass(frozen=True, slots=True)
class Decided:
    """An array with everything that was settled about it."""

    goal: RaidGoal
    placed: tuple[Placed, ...]
    offset: DataOffset
    stripes: Stripes
    advice: ChunkAdvice
    shape: Shape
    stripe: Stripe
    measured: MeasuredHere

    @property
    def place(self) -> str:
        """Where it is mounted; "": nowhere."""
        return self.goal.place

    @property
    def options(self) -> tuple[str, ...]:
        """`nofail`: a machine whose data array is missing starts all the same, and can be mended from afar."""
        asked = self.goal.mount_options
        given = default_options(self.goal.filesystem) if asked is None else asked
        extra = () if self.place == "/" else ("nofail", *(() if waits_as_asked(given) else (PATIENCE,)))
        return tuple(dict.fromkeys((*given, *extra)))


def notes_of(decided: Decided, inventory: Inventory, known: Known) -> tuple[str, ...]:
    """What was decided and why, a sentence each."""
    members = [each.member for each in decided.placed]
    notes = [
        line
        for member in members
        for line in member_sentences(member, known.get(member.disk.name, ()), inventory.uplinks)
    ]
    notes += [*_chunk(decided), *_layout(decided), *consistency_notes(decided.shape), *_places(decided)]
    notes += [*filesystem_notes(decided.goal, decided.stripe), *_given(decided)]
    disks = [member.disk for member in members]
    rates = {**known_rates({disk.name: known.get(disk.name, ()) for disk in disks}), **decided.measured.rates}
    notes += ceiling_words(
        ceiling(disks, inventory.uplinks, decided.shape.level, decided.shape.layout, rates)
    )
    return tuple(notes)


def _chunk(decided: Decided) -> Iterator[str]:
    advice, chunk = decided.advice, decided.shape.chunk
    if chunk is None or advice.size is None:
        yield f"no chunk: {advice.reason}"
        return
    if chunk == advice.size:
        yield f"chunk {format_size(chunk)} for {decided.goal.workload} use: {advice.reason} ({advice.evidence})"
    else:
        yield (
            f"chunk {format_size(chunk)} as asked for; aligntool would take {format_size(advice.size)} for "
            f"{decided.goal.workload} use: {advice.reason} ({advice.evidence})"
        )
    for rule in judge_chunk(chunk, decided.stripes):
        broken = f"BREAKS, because it conflicts with {rule.conflict}" if rule.conflict else "BREAKS"
        yield f"chunk {format_size(chunk)} {'keeps' if rule.kept else broken}: {rule.sentence} ({rule.evidence})"
    ahead = 2 * chunk * decided.stripe.data
    yield from decided.measured.notes
    yield f"the kernel will read {format_size(ahead)} ahead, twice the full stripe: a smaller chunk reads less ahead"
    if not decided.measured.used:
        yield (
            "on NVMe the chunk matters less than the level, the bitmap and the links; the evidence is in docs/raid.md, "
            "and only a measurement on these drives would be better: aligntool raid tune, while they are empty"
        )


def _layout(decided: Decided) -> Iterator[str]:
    layout, level = decided.shape.layout, decided.shape.level
    if level.word == "raid10":
        kinds = {
            "n": "copies lie beside each other: writes cost the least",
            "f": "copies lie in different halves: one reader reads as from a RAID0, and writes pay for it",
            "o": "copies lie one chunk further: between near and far",
        }
        yield f"layout {layout}: {kinds[layout[0]]}"
    elif layout:
        why = "reads in order reach all members" if layout == "left-symmetric" else "as asked for"
        yield f"layout {layout}: {why}"


def _places(decided: Decided) -> Iterator[str]:
    offset, goal = decided.offset, decided.goal
    first = decided.placed[0]
    if offset.size:
        begins = first.extent.start + offset.size
        grain = f", a multiple of {format_size(offset.grain)}" if offset.grain else ""
        yield (
            f"the data of {first.device} begin {format_size(offset.size)} into it, at byte {begins} of its "
            f"drive{grain}; by default mdadm begins 129MiB into large members, which is a multiple of 1MiB and no "
            "more"
        )
    if goal.metadata == "1.2":
        yield "metadata 1.2 lies 4KiB into each member: what reads a member as a plain file system finds none"
    if goal.metadata == "1.0":
        yield "metadata 1.0 lies at the end, so the data begin where the member begins"
    room = spare_room(goal, decided.shape.level)
    if room and (first.entries or goal.whole_drives):
        yield f"{format_size(room)} stay free at the end of each drive, so that a slightly smaller one can replace it"
    lengths = {own_length(each) for each in decided.placed}
    if len(lengths) > 1 and (first.entries or decided.shape.level.redundant):
        yield (
            f"every member gives {format_size(first.extent.length)}, as the smallest allows; the rest of larger ones "
            "stays free"
        )
    if goal.system in SYSTEMS:
        yield f"files and commands are those of {SYSTEMS[goal.system].title}"


def _given(decided: Decided) -> Iterator[str]:
    """Values that were asked for and differ from what would have been taken, and why."""
    goal = decided.goal
    if goal.filesystem == "xfs" and goal.log_size:
        yield (
            f"XFS: a log of {format_size(goal.log_size)} as asked for; aligntool would leave its size to mkfs.xfs, "
            "which makes it larger with the file system, for more changes in flight"
        )
    if goal.filesystem == "xfs" and goal.inode_size:
        same = (
            "the same as mkfs.xfs takes by itself"
            if goal.inode_size == XFS_INODE
            else f"aligntool would take {XFS_INODE}B"
        )
        yield f"XFS: inodes of {goal.inode_size}B as asked for; {same}"
    if goal.mount_options is not None and decided.place:
        usual = default_options(goal.filesystem)
        for option in goal.mount_options:
            if option == "logbufs=8":
                yield "mount option logbufs=8 as asked for; it is what XFS takes by itself"
            elif option not in usual:
                yield f"mount option {option} as asked for; aligntool would leave it out"


def attention_of(decided: Decided, inventory: Inventory, known: Known) -> tuple[str, ...]:
    """What needs the user, a sentence each."""
    hidden = [
        f"{adapter.name or 'a controller'} at {adapter.address} hides {adapter.remapped_nvme} NVMe drives: the "
        "firmware is in RAID mode"
        for adapter in inventory.adapters
        if adapter.remapped_nvme
    ]
    return (
        *_member_attention(decided, known),
        *hidden,
        *_array_attention(decided),
        *_discards(decided, inventory),
        *_system_attention(decided),
    )


def _member_attention(decided: Decided, known: Known) -> Iterator[str]:
    members = [each.member for each in decided.placed]
    for member in members:
        if wiped(member, decided.goal):
            yield from (f"lost: {each}, on {member.name}" for each in holdings(member))
    if not decided.shape.level.redundant:
        yield (
            f"{decided.shape.level.title}: when one drive fails, everything is lost; keep nothing on it that is "
            "nowhere else"
        )
    yield from unasked([each.disk for each in members])
    yield from differences(members, known)
    yield from (line for member in members for line in link_sentences(member))
    dramless = [each.name for each in members if is_dramless(each.disk, known.get(each.disk.name, ()))]
    if dramless:
        yield f"without DRAM: {', '.join(dramless)}; not for arrays with many random writes"
    if decided.offset.off:
        yield (
            f"no data offset puts the data of {', '.join(decided.offset.off)} on their grids: realign those "
            "partitions first"
        )


def _array_attention(decided: Decided) -> Iterator[str]:
    goal, level, chunk = decided.goal, decided.shape.level, decided.shape.chunk
    if chunk is not None:
        for rule in judge_chunk(chunk, decided.stripes):
            if rule.conflict:
                yield (
                    f"two rules conflict for the chunk of {format_size(chunk)}: {rule.conflict}, which comes first; "
                    f"{rule.sentence}. Fewer members make it shorter"
                )
            elif not rule.kept:
                yield f"the chunk of {format_size(chunk)} breaks a rule: {rule.sentence}"
    if level.redundant:
        yield "the first resynchronisation runs in the background; measure nothing before /proc/mdstat shows its end"
    if goal.whole_drives:
        yield (
            "members without a partition table: some firmware takes what is left of an old table for a damaged "
            "one, 'repairs' it and overwrites the array's superblock; partitions are safer"
        )
    if goal.metadata == "1.0":
        yield (
            "metadata 1.0: whatever writes to one member as if it were a plain file system makes the halves "
            "differ, unseen"
        )


def _discards(decided: Decided, inventory: Inventory) -> Iterator[str]:
    level = decided.shape.level
    if not level.parity:
        return
    safely = inventory.system.discards_on_parity if inventory.system else None
    if safely:
        yield (
            "raid456's devices_handle_discard_safely is on here: it promises that every member returns zeros for what "
            f"was discarded, and where one does not, a {level.title} loses data at a later failure"
        )
        return
    why = "while" if safely is None else "because"
    usual = ", which is its default" if safely is None else ""
    yield (
        f"{level.title} passes no discards on {why} raid456's devices_handle_discard_safely is off{usual}: fstrim does "
        "nothing on it, and the drives fill up; leave part of them unused"
    )


def _system_attention(decided: Decided) -> Iterator[str]:
    goal = decided.goal
    yield from boot_words(goal, decided.placed)
    if goal.filesystem not in ("none", "swap") and not decided.place:
        yield (
            "a system that is put on the array needs the same ARRAY line in its own mdadm.conf and initramfs, and "
            f"the file system by UUID={goal.filesystem_uuid} in its own fstab"
        )
    if note := SYSTEMS[goal.system].note:
        yield note.format(uuid=goal.array_uuid)
