"""Plan an array: turn an inventory and a goal into steps and notes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from aligntool import steps
from aligntool.audit.arrays import Member, chunk_units
from aligntool.audit.report import Judged
from aligntool.audit.wording import LOST, VIOLATES, audit_command, unread_between
from aligntool.change import NOT_MOUNTED, ArrayPlan, RaidGoal
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refusal, refuse
from aligntool.inventory import Disk, Inventory, superblocks_on
from aligntool.raid import boot, ceilings, chunks, commands, members, refusals
from aligntool.raid.first_sync import Zeroing, ready_words, refuse_zeroing
from aligntool.raid.formatting import plan_formats
from aligntool.raid.lba_formats import Namespace
from aligntool.raid.levels import LEVELS, Level, data_members, layouts_of
from aligntool.raid.measured import MeasuredAdvice, apply_measurement
from aligntool.raid.members import DataOffset, Known, Placed, place_members
from aligntool.raid.stale import StaleLine
from aligntool.steps import FileStep, MakeArray, MakeFileSystem, MakeMember, Step, Subject, SystemStep
from aligntool.system import Installed
from aligntool.units import MIB, counted, format_about, format_size

# The sentences of a plan: the decisions and their reasons, and what needs the user's attention.


@dataclass(frozen=True, slots=True)
class Decided:
    """A planned array with all decisions about it."""

    goal: RaidGoal
    placed: tuple[Placed, ...]
    offset: DataOffset
    stripes: chunks.Stripes
    advice: chunks.ChunkAdvice
    geometry: commands.ArrayGeometry
    measured: MeasuredAdvice


def notes_of(
    decided: Decided, inventory: Inventory, known: Known, zeroing: Mapping[str, Zeroing]
) -> tuple[str, ...]:
    """Return the decisions and their reasons, a sentence each; the first one says when the array is at full
    speed.
    """
    geometry = decided.geometry
    named = [placed.member for placed in decided.placed]
    disks = [member.disk for member in named]
    rates = {
        **ceilings.known_rates({disk.name: known.get(disk.name, ()) for disk in disks}),
        **decided.measured.rates,
    }
    ceiling = ceilings.ceiling(disks, inventory.uplinks, geometry.level, geometry.layout, rates)
    facts = (
        members.member_sentences(member, known.get(member.disk.name, ()), inventory.uplinks)
        for member in named
    )
    array = (
        *_chunk_notes(decided),
        *_layout_notes(decided),
        *commands.consistency_notes(decided.goal, geometry),
        *_placement_notes(decided),
    )
    made = (
        *commands.filesystem_notes(decided.goal, geometry),
        *_option_notes(decided),
        *ceilings.ceiling_words(ceiling),
    )
    limit = inventory.system.sync_limit if inventory.system else None
    of_drives = [zeroing.get(disk.name, Zeroing()) for disk in disks]
    ready = ready_words(decided.goal, geometry, ceiling, of_drives, limit)
    return (ready, *members.unused_words(decided.placed), *chain(*facts), *array, *made)


def _chunk_notes(decided: Decided) -> Iterator[str]:
    advice = decided.advice
    chunk = decided.geometry.chunk
    if chunk is None or advice.size is None:
        yield f"no chunk: {advice.reason}"
        return
    other = f" as requested; aligntool recommends {format_size(advice.size)}" if chunk != advice.size else ""
    yield (
        f"chunk {format_size(chunk)}{other} for {decided.goal.workload} use: {advice.reason}"
        f" ({advice.evidence})"
    )
    for rule in chunks.judge_chunk(chunk, decided.stripes):
        broken = f"{VIOLATES}, because it conflicts with {rule.conflict}" if rule.conflict else VIOLATES
        yield (
            f"chunk {format_size(chunk)} {'satisfies' if rule.kept else broken}: {rule.sentence}"
            f" ({rule.evidence})"
        )
    ahead = 2 * chunk * decided.geometry.data
    yield from decided.measured.notes
    yield f"the kernel will read {format_size(ahead)} ahead, twice the full stripe; less with a smaller chunk"
    if not decided.measured.used:
        yield (
            "on NVMe the chunk matters less than the level, the bitmap and the links: docs/raid.md has the"
            " evidence"
        )
        yield "to know more, measure these drives while they are empty: aligntool raid tune"


def _layout_notes(decided: Decided) -> Iterator[str]:
    layout = decided.geometry.layout
    level = decided.geometry.level
    if level.word == "raid10":
        kinds = {
            "n": "copies are next to each other: writes cost the least",
            "f": "copies are in different halves: a single reader is as fast as on a RAID0, but writes cost"
            " more",
            "o": "copies are one chunk further: between near and far",
        }
        yield f"layout {layout}: {kinds[layout[0]]}"
    elif layout:
        why = "sequential reads use all members" if layout == "left-symmetric" else "as requested"
        yield f"layout {layout}: {why}"


def _placement_notes(decided: Decided) -> Iterator[str]:
    offset = decided.offset
    goal = decided.goal
    first = decided.placed[0]
    if offset.size:
        grain = f", a multiple of {format_size(offset.grain)}" if offset.grain else ""
        begins = f"at byte {first.extent.start + offset.size} of its drive{grain}"
        usual = "mdadm's default of 129MiB is a multiple of 1MiB only"
        yield f"the data of {first.device} begin {format_size(offset.size)} into it, {begins}; {usual}"
    if goal.metadata == "1.2":
        yield (
            "metadata 1.2 is 4KiB into each member: a program that reads it as a plain file system finds none"
        )
    if goal.metadata == "1.0":
        yield "metadata 1.0 is at the end, so the data begin at the start of the member"
    room = members.spare_room(goal, decided.geometry.level)
    if room and (first.entries or goal.whole_drives):
        yield (
            f"{format_size(room)} stay free at the end of each drive, so that a slightly smaller drive can"
            " replace it"
        )
    lengths = {members.own_length(placed) for placed in decided.placed}
    if len(lengths) > 1 and (first.entries or decided.geometry.level.redundant):
        yield f"every member contributes {format_size(first.extent.length)}"
    if goal.system in boot.SYSTEMS:
        yield f"the files and commands are those of {boot.SYSTEMS[goal.system].title}"


def _option_notes(decided: Decided) -> Iterator[str]:
    """Yield the options of the goal that differ from the recommended ones, and why."""
    goal = decided.goal
    kind = kind_named(goal.filesystem)
    if kind.on_array:
        yield from kind.on_array.option_notes(commands.new_array(goal, decided.geometry))
    if goal.mount_options is not None and goal.place:
        for option in goal.mount_options:
            if option == "logbufs=8":
                yield "mount option logbufs=8 as requested; it is the default of XFS"
            elif option not in kind.mount_options:
                yield f"mount option {option} as requested; aligntool would omit it"


def attention_of(decided: Decided, inventory: Inventory, known: Known) -> tuple[str, ...]:
    """Return what needs the user's attention, a sentence each."""
    adapters = [
        (adapter.remapped_nvme, f"{adapter.name or 'a controller'} at {adapter.address}")
        for adapter in inventory.adapters
    ]
    hidden = [
        f"{name} hides {count} NVMe drives: the firmware is in RAID mode" for count, name in adapters if count
    ]
    array = (*_array_attention(decided), *_discards(decided, inventory), *_system_attention(decided))
    if inventory.system:
        array += (*boot.kernel_attention(inventory.system),)
    return (*_member_attention(decided, known, captured=inventory.captured), *hidden, *array)


def _member_attention(decided: Decided, known: Known, *, captured: bool) -> Iterator[str]:
    named = [placed.member for placed in decided.placed]
    for member in named:
        if refusals.is_wiped(member, decided.goal):
            yield from (f"{LOST}{holding}, on {member.name}" for holding in refusals.member_holdings(member))
        unread = unread_between(member.disk)
        if unread:
            yield f"{member.name}: {unread}"
    if not decided.geometry.level.redundant:
        yield f"{decided.geometry.level.title}: if one drive fails, all data is lost; keep copies elsewhere"
    if not captured:
        yield from members.unread_health([candidate.disk for candidate in named])
    yield from members.differences(named, known)
    yield from (line for member in named for line in members.link_sentences(member))
    dramless = [
        candidate.name
        for candidate in named
        if members.is_dramless(candidate.disk, known.get(candidate.disk.name, ()))
    ]
    if dramless:
        yield f"without DRAM: {', '.join(dramless)}; not suitable for many random writes"
    if decided.offset.off:
        yield (
            f"no data offset aligns the data of {', '.join(decided.offset.off)} with their grids: realign"
            " them first"
        )


def _array_attention(decided: Decided) -> Iterator[str]:
    goal = decided.goal
    level = decided.geometry.level
    chunk = decided.geometry.chunk
    for rule in chunks.judge_chunk(chunk, decided.stripes) if chunk is not None else ():
        size = format_size(chunk or 0)
        if rule.conflict:
            both = f"{rule.conflict}, which takes precedence; {rule.sentence}"
            yield f"two rules conflict for the chunk of {size}: {both}. With fewer members it is shorter"
        elif not rule.kept:
            yield f"the chunk of {size} breaks a rule: {rule.sentence}"
    if level.redundant and not (goal.zero_members or goal.fast_sync):
        yield "do not measure before the initial resynchronisation ends"
    if goal.whole_drives:
        why = "some firmware 'repairs' the remains of an old table and overwrites the array's superblock"
        yield f"members without a partition table: {why}; partitions are safer"
    if goal.metadata == "1.0":
        yield "metadata 1.0: a write to one member as a plain file system makes the copies differ unnoticed"


def _discards(decided: Decided, inventory: Inventory) -> Iterator[str]:
    level = decided.geometry.level
    if not level.parity:
        return
    passes_discards = inventory.system.discards_on_parity if inventory.system else None
    if passes_discards:
        lost = (
            f"if one does not return zeros for discarded blocks, a {level.title} loses data at a later"
            " failure"
        )
        yield f"raid456's devices_handle_discard_safely is on here, a promise for every member: {lost}"
        return
    handling = "raid456's devices_handle_discard_safely is off"
    why = f"while {handling}, the default" if passes_discards is None else f"because {handling}"
    yield (
        f"{level.title} does not forward discards {why}: fstrim has no effect, so leave part of the drives"
        " unused"
    )


def _system_attention(decided: Decided) -> Iterator[str]:
    goal = decided.goal
    yield from boot.esp_notes(goal, decided.placed)
    if goal.filesystem not in NOT_MOUNTED and not goal.place:
        fstab = f"the file system by UUID={goal.filesystem_uuid} in its own fstab"
        yield (
            "a system installed on the array needs this ARRAY line in its mdadm.conf and initramfs, and"
            f" {fstab}"
        )
    note = boot.SYSTEMS[goal.system].note
    if note:
        yield note.format(uuid=goal.array_uuid)


# The plan of an array that is assembled again after every reboot, from empty drives and a goal.
#
# It only combines what the other modules decide.

LEAST_MEMBER = 16 * MIB


def plan_raid(
    drives: Sequence[Judged],
    inventory: Inventory,
    goal: RaidGoal,
    *,
    known: Known | None = None,
    stale: Sequence[StaleLine] = (),
    namespaces: Mapping[str, Namespace] = MappingProxyType({}),
    disks: Sequence[Disk] = (),
    zeroing: Mapping[str, Zeroing] = MappingProxyType({}),
) -> ArrayPlan:
    """Plan an array. `known`: the rows of the drive database for each disk. `stale`: lines of the system's
    files that it replaces. If drives may be formatted, `namespaces`: of each NVMe drive by its name, and
    `disks`: all of the machine. `zeroing`: how each drive can be zeroed, by its name, if members are to be.
    Raises Refused with every reason.
    """
    formatting = plan_formats(
        drives, inventory, goal.lba_size, known or {}, namespaces, disks or inventory.disks
    )
    members_named, _ = _members_of(formatting.drives, goal)
    reasons = (*formatting.refusals, *refuse_zeroing(members_named, goal, zeroing))
    decided = decide_raid(formatting.drives, goal, reasons, captured=inventory.captured)
    geometry = decided.geometry
    placed = decided.placed
    refuse(refusals.geometry_problems(goal, placed, geometry))
    sector = placed[0].member.disk.limits.logical_block_size or 512  # an array has those of its members
    subject = Subject(geometry.device, geometry.size, sector, None, goal.array_uuid, None, None, None, "")
    title = f"{geometry.level.title} of {counted(len(placed), 'member')}, {format_about(geometry.size)}"
    attention = attention_of(decided, inventory, known or {})
    notes = notes_of(decided, inventory, known or {}, zeroing)
    attention += tuple(line.words for line in stale)
    installed = inventory.system.installed if inventory.system else None
    made = boot.steps_for(installed, _steps(decided, inventory, stale))
    steps = (*formatting.steps, *made)
    notes = (*notes[:1], *formatting.notes, *notes[1:])
    return ArrayPlan("raid", subject, title, (), steps, attention, notes, installed=installed)


@dataclass(frozen=True, slots=True)
class Needs:
    """What creating an array requires of the machine, apart from its drives."""

    programs: frozenset[str] = frozenset()  # of this system
    inside: frozenset[str] = frozenset()  # of an installed system, for which the steps are
    device: str = ""  # a node that no other array may have; "" if no array is created
    steps: tuple[FileStep | SystemStep, ...] = ()


_WRITING = ("blkid", "wipefs", "mountpoint")
_MAKING = ("mdadm", *_WRITING)


def needs_of_plan(plan: ArrayPlan, *, here: bool) -> Needs:
    """Return what the plan needs. `here`: its files and commands are for this machine; otherwise they are
    ignored.
    """
    made = plan.array
    ours = tuple(step for step in plan.steps if isinstance(step, FileStep | SystemStep)) if here else ()
    making = (*plan.of(MakeArray), *plan.of(MakeFileSystem))
    programs, inside = _programs((*making, *ours), is_installed=plan.installed is not None)
    programs |= {*_MAKING} if made else {*_WRITING} if plan.of(MakeMember) else set()
    for step in (step for step in plan.steps if isinstance(step, steps.MemberStep)):
        programs |= {"blkid", *(words[0] for words in commands.member_commands(step))}
    programs |= {"nvme"} if plan.of(steps.FormatDrive) else set()
    programs |= {"cryptsetup", "dmsetup"} if plan.of(steps.ReencryptSectors) else set()
    return Needs(frozenset(programs), inside, made.device if made else "", ours)


def _programs(planned: Iterable[object], *, is_installed: bool) -> tuple[set[str], frozenset[str]]:
    """Return the programs that the steps need of this system, and of an installed one. To start the array,
    that has to have mdadm.
    """
    run = [step for step in planned if isinstance(step, commands.ProgramStep)]
    below = [step for step in run if is_installed and isinstance(step, steps.InstalledStep)]
    programs = {name for step in run if step not in below for name in commands.programs_of(step)}
    inside = {name for step in below for name in commands.programs_of(step)}
    return programs, frozenset(inside | {"mdadm"}) if is_installed else frozenset()


def needs_of_goal(
    goal: RaidGoal, *, here: bool, stale: Sequence[StaleLine] = (), installed: Installed | None = None
) -> Needs:
    """Return what every plan for the goal needs, for any members. `here`: as for `needs_of_plan`; `stale`: as
    for `plan_raid`; `installed`: the system that it is for.
    """
    if goal.system not in boot.SYSTEMS:
        return Needs()
    device = commands.array_device(goal)
    permanent = (
        *(line.edit for line in stale),
        *boot.persistence_steps(goal, boot.SYSTEMS[goal.system], device),
        *boot.mount_steps_of_goal(goal),
    )
    ours = boot.steps_for(installed, permanent) if here else ()
    programs, inside = _programs(ours, is_installed=installed is not None)
    programs |= {*_MAKING, *filter(None, (kind_named(goal.filesystem).maker,))}
    return Needs(frozenset(programs), inside, device, ours)


def decide_raid(
    drives: Sequence[Judged],
    goal: RaidGoal,
    refusals_before: Sequence[Refusal] = (),
    *,
    captured: bool = False,
) -> Decided:
    """Decide everything about an array except its steps. `captured`: as for `member_problems`. Raises Refused
    with every reason, after those before.
    """
    named, missing = _members_of(drives, goal)
    reasons = [*refusals_before, *missing]
    whole = bool(named) and not reasons and all(member.disk.size for member in named)
    reasons += refusals.member_problems(named, goal, count=len(drives), captured=captured)
    level = LEVELS.get(goal.level)
    if level and whole:
        reasons += refuse_small(_placed_alone(named, goal, level), members.spare_room(goal, level))
    refuse(reasons)
    return _decide(named, goal, LEVELS[goal.level])


def _members_of(drives: Sequence[Judged], goal: RaidGoal) -> tuple[list[Member], list[Refusal]]:
    """Return the members (drives, or the named partitions of them), and a reason for each missing
    partition.
    """
    found: list[Member] = []
    missing: list[Refusal] = []
    for judged, number in zip(drives, goal.partitions or (None,) * len(drives), strict=True):
        disk = judged.disk
        part = next((part for part in disk.partitions if part.number == number), None)
        if number is None or part:
            found.append(Member(judged, part))
        else:
            name = f"partition {number} of {disk.name}"
            text = f"{disk.name} has no partition {number}"
            missing.append(Refusal("no-partition", name, text, audit_command(disk)))
    return found, missing


def _decide(named: Sequence[Member], goal: RaidGoal, level: Level) -> Decided:
    layout = goal.layout or (layouts_of(level, len(named)) or ("",))[0]
    placed = place_members(named, goal, level)
    offset = members.data_offset(placed, goal)
    data = data_members(level, len(named), layout)
    units = chunk_units(tuple(grid for member in named for grid in member.grids))
    stripes = chunks.Stripes(level, data, goal.workload, goal.database_page, units)
    bitmap = goal.bitmap or ("internal" if level.redundant else "none")
    advice = chunks.recommend_chunk(stripes)
    measured = apply_measurement(goal, stripes, advice, [member.disk for member in named], layout, bitmap)
    advice = measured.advice
    chunk = goal.chunk if goal.chunk is not None else advice.size
    geometry = commands.geometry_of(goal, level, layout, chunk, placed, offset.size)
    if geometry.each < max(chunk or 0, LEAST_MEMBER):
        least = offset.size + max(chunk or 0, LEAST_MEMBER)
        refuse(refuse_small(_placed_alone(named, goal, level), members.spare_room(goal, level), least))
    return Decided(goal, placed, offset, stripes, advice, geometry, measured)


def _placed_alone(named: Sequence[Member], goal: RaidGoal, level: Level) -> list[Placed]:
    """Return each member with its own room, which no smaller member limits."""
    return [placed for member in named for placed in place_members([member], goal, level)]


def refuse_small(placed: Sequence[Placed], spare: int, least: int = LEAST_MEMBER) -> Iterator[Refusal]:
    """Yield a reason if members are too small. `spare`: the bytes that stay free at the end of each drive,
    but not of an existing partition.
    """
    small = {place.member.name: place for place in placed if place.extent.length < least}
    if small:
        sizes = (
            (name, members.own_length(place), max(place.extent.length, 0)) for name, place in small.items()
        )
        found = (
            f"{name} of {format_about(whole)} has room for {format_about(room)}"
            for name, whole, room in sizes
        )
        text = f"members need at least {format_size(least)}, and {', '.join(found)}"
        hint = "use larger drives"
        if spare and not all(place.member.partition for place in small.values()):
            text += (
                f"; {format_size(spare)} at the end of each drive stay free for a slightly smaller"
                " replacement"
            )
            hint += ", or leave less free: --spare-end 1MiB"
        yield Refusal("too-small", ", ".join(small), text, hint)


_ANYWHERE = steps.DataArea()


def make_member(placed: Placed, goal: RaidGoal, area: steps.DataArea = _ANYWHERE) -> MakeMember:
    """Return the step that prepares a drive. `area`: of the array's data on it."""
    disk = placed.member.disk
    part = placed.member.partition
    entries = placed.entries
    number = part.number if part else None
    holds = steps.recognised_content(disk, number) + refusals.unrecognised_content(placed.member)
    wipe = refusals.is_wiped(placed.member, goal)
    zeroed = members.ranges_to_zero(disk, entries, part.extent if part else None, area) if wipe else ()
    arrays = superblocks_on(disk, number) if wipe else ()
    label = "gpt" if entries else ""
    return MakeMember(steps.subject(disk), placed.device, label, entries, wipe, holds, zeroed, arrays)


def _steps(decided: Decided, inventory: Inventory, stale: Sequence[StaleLine]) -> Iterator[Step]:
    goal = decided.goal
    geometry = decided.geometry
    placed = decided.placed
    system = boot.SYSTEMS[goal.system]
    made = commands.make_array(goal, geometry, tuple(place.device for place in placed))
    yield from (make_member(place, goal, made.data) for place in placed)
    yield made
    yield from members.type_steps(placed)
    yield from boot.boot_partition_steps(goal, placed)
    file_system = commands.file_system_step(goal, geometry)
    if file_system:
        yield file_system
    yield from (line.edit for line in stale)
    others = boot.lines_for_running_arrays(inventory, system, geometry.device)
    yield from boot.persistence_steps(goal, system, geometry.device, others)
    yield from boot.late_start_steps(goal, system)
    yield from boot.boot_copy_steps(goal, placed)
    yield from boot.mount_steps_of_goal(goal)
    if goal.fast_sync:
        yield steps.Synchronise(geometry.device)


# Where an array's data would begin on the drives of its members, before it is planned.
#
# That place is read before planning, because old data would show through the new array.


def data_begins(drives: Sequence[Judged], goal: RaidGoal) -> tuple[int, ...]:
    """Return an offset in bytes for each member, or () for a goal that is refused anyway."""
    level = LEVELS.get(goal.level)
    (named, missing) = _members_of(drives, goal)
    placed = place_members(named, goal, level) if level and named and not missing else ()
    return tuple(place.extent.start + members.data_offset(placed, goal).size for place in placed)
