"""What was decided for an array and why, and what needs the user: the sentences of its plan.

In: everything that was decided. Out: notes and points of attention. Alone because the plan's steps say what will be
done, and this says why.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.inventory import Inventory, TableLabel
from aligntool.plan import RaidGoal
from aligntool.raid.ceilings import ceiling, ceiling_words
from aligntool.raid.chunks import ChunkAdvice, Stripes, judge_chunk
from aligntool.raid.creating import Shape, consistency_notes
from aligntool.raid.filesystems import XFS_INODE, Stripe, default_options, filesystem_notes
from aligntool.raid.members import Known, Member, differences, is_dramless, link_sentences, member_sentences
from aligntool.raid.placing import DataOffset, Placed, spare_room
from aligntool.raid.refusals import holdings, wiped
from aligntool.raid.systems import SYSTEMS
from aligntool.recipe.roles import ROLES
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

    @property
    def place(self) -> str:
        """Where it is mounted; "": nowhere."""
        if self.goal.filesystem in ("swap", "none"):
            return ""
        return f"/srv/{self.goal.name}" if self.goal.mount_at is None else self.goal.mount_at

    @property
    def options(self) -> tuple[str, ...]:
        """`nofail`: a machine whose data array is missing starts all the same, and can be mended from afar."""
        asked = self.goal.mount_options
        given = default_options(self.goal.filesystem) if asked is None else asked
        extra = () if self.place == "/" else ("nofail", "x-systemd.device-timeout=30s")
        return tuple(dict.fromkeys((*given, *extra)))


def notes_of(decided: Decided, inventory: Inventory, known: Known) -> tuple[str, ...]:
    """What was decided and why, a sentence each."""
    members = [each.member for each in decided.placed]
    notes = [line for member in members for line in member_sentences(member, known.get(member.disk.name, ()))]
    notes += [*_chunk(decided), *_layout(decided), *consistency_notes(decided.shape), *_places(decided)]
    notes += [*filesystem_notes(decided.goal, decided.stripe), *_given(decided)]
    disks = [member.disk for member in members]
    notes += ceiling_words(ceiling(disks, inventory.uplinks, decided.shape.level, decided.shape.layout))
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
        yield f"chunk {format_size(chunk)} {'keeps' if rule.kept else 'BREAKS'}: {rule.sentence} ({rule.evidence})"
    ahead = 2 * chunk * decided.stripe.data
    yield f"the kernel will read {format_size(ahead)} ahead, twice the full stripe: a smaller chunk reads less ahead"
    yield (
        "on NVMe the chunk matters less than the level, the bitmap and the links; the evidence is in docs/raid.md, "
        "and only a measurement on these drives would be better"
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
    lengths = {each.member.disk.size for each in decided.placed}
    if len(lengths) > 1:
        yield (
            f"every member is {format_size(first.extent.length)} long, as the smallest allows; the rest of larger "
            "drives stays free"
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
    for each in members:
        part = each.partition
        if part is not None and part.type_code not in (ROLES["linux-raid"].gpt, ROLES["linux-raid"].mbr):
            yield (
                f"{each.name} keeps the type of something else, and installers may take it for that: sfdisk "
                f"--part-type {each.disk.path} {part.number} {_raid_type(each)}"
            )


def _raid_type(member: Member) -> str:
    """As sfdisk takes it: a GUID, or a byte without 0x."""
    role, table = ROLES["linux-raid"], member.disk.table
    return role.gpt if table is None or table.label is TableLabel.GPT else (role.mbr or "").removeprefix("0x")


def _array_attention(decided: Decided) -> Iterator[str]:
    goal, level, chunk = decided.goal, decided.shape.level, decided.shape.chunk
    if chunk is not None:
        for rule in judge_chunk(chunk, decided.stripes):
            if not rule.kept:
                yield f"the chunk of {format_size(chunk)} breaks a rule: {rule.sentence}"
    if level.redundant:
        yield "the first resynchronisation runs in the background; measure nothing before /proc/mdstat shows its end"
    if level.parity:
        yield (
            f"{level.title} passes no discards on (devices_handle_discard_safely is off): fstrim does nothing on "
            "it, and the drives fill up; leave part of them unused"
        )
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


def _system_attention(decided: Decided) -> Iterator[str]:
    goal = decided.goal
    if goal.esp_size:
        yield (
            "the EFI system partitions are no part of the array: after each update of the boot loader copy the "
            "first over the others, and register each with efibootmgr, so that the machine starts from any drive"
        )
    if goal.filesystem not in ("none", "swap") and not decided.place:
        yield (
            "a system that is put on the array needs the same ARRAY line in its own mdadm.conf and initramfs, and "
            f"the file system by UUID={goal.filesystem_uuid} in its own fstab"
        )
    if note := SYSTEMS[goal.system].note:
        yield note.format(uuid=goal.array_uuid)
