"""Show plans, their steps, and arrays as text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import assert_never

from aligntool import steps
from aligntool.audit.arrays import IN_SYNC
from aligntool.audit.wording import LOST, NOT_READ, SUSPENDED, VIOLATES, ZEROED, label_words, shell_word
from aligntool.change import (
    COPY_RATES,
    ENCRYPTION_RATES,
    ArrayPlan,
    Estimate,
    MovePlan,
    Place,
    Plan,
    Rates,
    TablePlan,
    what_stays_shrunk,
)
from aligntool.commands import commands_in
from aligntool.contents.catalogue import kind_named
from aligntool.documents import as_object
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Role
from aligntool.raid import commands as raid_commands
from aligntool.raid.boot import BACKUP
from aligntool.raid.ceilings import ceiling_words
from aligntool.raid.first_sync import READY, SYNC_LIFTED, area_of_data, read_back_words
from aligntool.raid.levels import level_of, may_fail
from aligntool.raid.members import UNUSED
from aligntool.raid.refusals import UNRECOGNISED
from aligntool.raid.running import ArrayView, MemberView
from aligntool.render.disk_map import journal_of, plan_map_lines
from aligntool.render.json import document_text
from aligntool.render.lines import EMPTY, Line, Style, columns, fits, paragraph, plain, stacked, step_line
from aligntool.system import Installed
from aligntool.units import Extent, counted, format_about, format_size, format_start, listed, time_words

# The steps of array plans in words.

_PLAIN = re.compile(r"--?[A-Za-z0-9-]+=[\w./:,@%+-]+|[a-z]+=[\w=,./-]+", re.ASCII)


def array_title(step: steps.ArrayStep) -> str:
    """Return a short title of a step of an array plan."""
    if isinstance(step, steps.SystemStep):
        return raid_commands.purpose_of(step)
    if isinstance(step, _RunningStep):
        return _running_title(step)
    match step:
        case steps.FormatDrive() | steps.FormatMember():
            return (
                f"format {step.disk.path}: change the logical block size from {step.block_before} to"
                f" {step.block_after}"
            )
        case steps.MakeMember():
            table = "write a partition table to" if step.entries else "use"
            is_plain = step.entries and step.entries[-1].type_code == ROLES["linux"].gpt
            what = "gets a file system" if is_plain else "becomes a member"
            return f"{table} {step.disk.path}: {step.device} {what}"
        case steps.MakeArray():
            zeroing = "zero the data areas of the members, and " if step.zeroed else ""
            return f"{zeroing}create the array {step.device}, UUID {step.uuid}"
        case steps.MakeFileSystem():
            return f"create {step.kind} on {step.device}, UUID {step.uuid}"
        case steps.EditFile():
            return f"edit {step.path}; the old version is kept as {step.backup}, numbered if that exists"
        case steps.ReencryptSectors():
            sizes = f"from {format_size(step.before)} sectors to {format_size(step.after)}"
            return f"re-encrypt the LUKS2 volume on partition {step.partition}, {sizes}"
        case steps.WriteFile():
            return (
                f"write {step.path}; a different old version is kept as {step.backup}, numbered if that"
                " exists"
            )
        case _:
            assert_never(step)


_RunningStep = (
    steps.CheckArray | steps.TakeOutMember | steps.PutBackMember | steps.Synchronise | steps.ApplySettings
)


def _running_title(step: _RunningStep) -> str:
    """Return a short title of a step on a running array."""
    match step:
        case steps.Synchronise():
            return f"synchronise {step.device} without md's limit, and restore the limit at the end"
        case steps.ApplySettings():
            return f"change settings of {step.path} and its drives now, in sysfs"
        case steps.CheckArray():
            return f"compare all members of {step.path}"
        case steps.TakeOutMember():
            return f"remove {step.device} from {step.path}"
        case steps.PutBackMember():
            return f"add {step.device} to {step.path} again, and wait until it is in sync"


def _running_details(step: _RunningStep) -> Iterator[str]:
    if isinstance(step, steps.Synchronise):
        yield f"sync_speed_max of the array is {SYNC_LIFTED} KiB/s meanwhile, and then that of the system"
        yield "md gives way to other requests"
    elif isinstance(step, steps.ApplySettings):
        yield f"$ {shell_line(raid_commands.RELOAD_RULES)}"
        yield from (f"{each.name}: {each.before} → {each.after}" for each in step.settings)
    else:
        yield from (f"$ {shell_line(words)}" for words in raid_commands.member_commands(step))


def array_details(step: steps.ArrayStep, installed: Installed | None = None) -> Iterator[str]:
    """Yield the details of a step: the identity of a drive, lines of a file, commands."""
    if isinstance(step, steps.MakeArray) and step.zeroed:
        yield from _zeroing_details(step)
    if isinstance(step, raid_commands.ProgramStep):
        yield f"$ {shell_line(raid_commands.command_in(step, installed))}"
        if isinstance(step, steps.CheckInitramfs):
            yield f"its output must contain {step.uuid}"
        return
    if isinstance(step, _RunningStep):
        yield from _running_details(step)
        return
    match step:
        case steps.MakeMember():
            disk = step.disk
            known = identity_words(("", disk.model), ("serial ", disk.serial), ("WWN ", disk.wwn))
            yield known or "identity unknown"
            if step.zeroed:
                ranges = ", ".join(map(byte_range, step.zeroed))
                yield f"{ZEROED}bytes {ranges}"
            yield from (_entry(entry, disk.sector_size) for entry in step.entries)
        case steps.EditFile():
            yield f"replacing a line with {step.instead_of}, or at the end:"
            yield from step.lines
        case steps.ReencryptSectors():
            yield f"bytes {byte_range(step.extent)}, UUID {step.uuid}"
            yield f"$ {shell_line(raid_commands.reencrypt_command(step))} DEVICE"
        case steps.WriteFile():
            yield "the whole file:"
            yield from step.lines
        case steps.FormatDrive():
            disk = step.disk
            yield identity_words(("", disk.model), ("serial ", disk.serial), ("WWN ", disk.wwn))
            yield f"$ {shell_line(raid_commands.format_command(step))}"
        case steps.FormatMember():
            disk = step.disk
            yield identity_words(("", disk.model), ("serial ", disk.serial), ("WWN ", disk.wwn))
            commands = raid_commands.member_commands(step)
            yield f"$ {shell_line(commands[0])}"
            yield from (f"$ {shell_line(words)}, with this input:" for words in commands[1:])
            yield from raid_commands.table_script(step).splitlines() if step.entries else ()
        case _:
            assert_never(step)


def _zeroing_details(step: steps.MakeArray) -> Iterator[str]:
    yield "each member is read again before, and stays locked; only one that is still blank is zeroed:"
    area = area_of_data(step)
    yield from (f"$ {shell_line(raid_commands.zero_command(device, area))}" for device in step.members)
    yield f"then {read_back_words(step.level)} of each must read as zeros, and only then:"


def identity_words(*known: tuple[str, str | None]) -> str:
    """Return the known identifiers of a disk, which do not depend on where it is attached."""
    return ", ".join(f"{title}{word}" for title, word in known if word)


def shell_line(words: Sequence[str]) -> str:
    """Return a command to type. `--level=0` needs no quotes, which `shell_word` adds for the sake of file
    names.
    """
    return " ".join(word if _PLAIN.fullmatch(word) else shell_word(word) for word in words)


# The steps of a plan in words: what each does, and to which bytes.


def byte_range(extent: Extent) -> str:
    """Return an extent as text: its first byte, and the first byte after it."""
    return f"{extent.start}..{extent.end}"


def size_words(size: int) -> str:
    """Return a readable size, followed by the exact number if it was rounded: 401.6MiB (421076992B)."""
    about = format_about(size)
    return about if about == format_size(size) else f"{about} ({size}B)"


def step_title(step: steps.Step) -> str:
    """Return a short title of a step."""
    if isinstance(step, steps.ArrayStep):
        return array_title(step)
    match step:
        case steps.CheckContent():
            return f"check partition {step.partition} ({step.kind}), read-only"
        case steps.ShrinkContent():
            return f"shrink {step.kind} on partition {step.partition} to {size_words(step.length)}"
        case steps.WriteJournal():
            return "write the journal"
        case steps.ParkEntries():
            inside = listed(number for number in step.partitions if number not in step.parked)
            them = "it" if len(step.parked) == 1 else "them"
            also = f", and with {them} {inside}" if inside else ""
            return f"park {_partitions(step.parked)}{also}: set a type that nothing mounts"
        case steps.HoldContent():
            return (
                f"hide partition {step.partition} from other programs: its signatures are saved in the"
                " journal"
            )
        case steps.CopyContent():
            return f"copy partition {step.partition}"
        case steps.ReleaseContent():
            return f"restore the signatures of partition {step.partition} at the new place"
        case steps.RebuildContent() | steps.RewriteTable() | steps.ConvertTable() | steps.CopyDisk():
            return _write_title(step)
        case steps.CloseJournal():
            return (
                "close the journal: its place reads as zero again"
                if not step.journal.file
                else "close the journal"
            )
        case steps.MakeTable():
            return f"create {'an' if step.label == 'dos' else 'a'} {label_words(step.label)} table"
        case _:
            assert_never(step)


def undo_title(step: steps.Step) -> str:
    """Return a short title of what a rollback does in place of a step."""
    match step:
        case steps.ParkEntries():
            return "write the old table: from here on the old places are valid"
        case steps.HoldContent():
            return f"restore the signatures of partition {step.partition} at the old place"
        case steps.CopyContent():
            return f"copy back what was overwritten of partition {step.partition}"
        case steps.ReleaseContent():
            return f"hide partition {step.partition} at the new place"
        case steps.RebuildContent():
            return f"restore the {step.kind} on partition {step.partition} as it was"
        case steps.RewriteTable() | steps.ConvertTable():
            return f"keep the new {label_words(step.label)} table out of force"
        case steps.Synchronise():
            return f"restore md's limit for {step.device}"
        case steps.FormatDrive():
            return f"leave {step.disk.path} with the format that it has"
        case _:
            return f"undo: {step_title(step)}"


def _write_title(step: steps.Commit | steps.RebuildContent | steps.CopyDisk) -> str:
    if isinstance(step, steps.CopyDisk):
        return f"copy {size_words(step.bytes)} of {step.source.path}, each byte to the same offset"
    if isinstance(step, steps.RebuildContent):
        if not step.sector_size:
            return f"write the shrunk {step.kind} on partition {step.partition}"
        return f"rewrite the {step.kind} on partition {step.partition} for {step.sector_size}-byte sectors"
    label = label_words(step.label)
    if step.changes and step.changes[0].after.start == 0:
        return f"clear the remains of the {label} at the end of the disk"
    if isinstance(step, steps.RewriteTable) and not step.changes:
        return f"write the {label} table: from here on the shrunk file system is valid"
    if isinstance(step, steps.ConvertTable):
        return f"write the {label} for sectors of {' and '.join(map(str, step.sector_sizes))} bytes"
    return f"write the {label} table: from here on the new places are valid"


ContentStep = steps.ContentStep
TableStep = (
    steps.WriteJournal
    | steps.CloseJournal
    | steps.ParkEntries
    | steps.Commit
    | steps.MakeTable
    | steps.CopyDisk
)


def step_details(step: steps.Step, *, sector_size: int, installed: Installed | None = None) -> Iterator[str]:
    """Yield the bytes that a step reads and writes, as offsets on the disk, and its commands. `installed`: as
    in the plan.
    """
    if isinstance(step, steps.ArrayStep):
        yield from array_details(step, installed)
    elif isinstance(step, ContentStep):
        yield from _content_details(step)
    else:
        yield from _table_details(step, sector_size)


def _content_details(step: ContentStep) -> Iterator[str]:
    match step:
        case steps.CheckContent():
            yield f"bytes {byte_range(step.extent)}"
        case steps.ShrinkContent():
            freed = size_words(step.extent.length - step.length)
            yield f"bytes {byte_range(step.extent)}; the last {freed} become free"
            if kind_named(step.kind).is_shrunk_mounted:
                yield "with its own tool, which never overwrites data in use"
            else:
                yield "with its own tool on a copy-on-write view, then written under a journal of its own"
        case steps.HoldContent():
            yield _saved_ranges(step.held, step.source.start)
        case steps.CopyContent():
            lanes = step.lanes
            how = "all through the stash" if lanes.staged else f"at most {format_size(lanes.window)} at once"
            yield (
                f"bytes {byte_range(step.source)} to {byte_range(step.target)}, only used blocks if they are"
                " known"
            )
            yield f"{how}; flushed, read back and recorded every {format_size(lanes.batch)}"
        case steps.ReleaseContent():
            yield _saved_ranges(step.held, step.target.start)
            yield from (_patch(patch, step.target.start) for patch in step.patches)
        case steps.RebuildContent():
            yield _saved_ranges(step.held, step.extent.start)


def _table_details(step: TableStep, sector_size: int) -> Iterator[str]:
    match step:
        case steps.WriteJournal():
            yield from _journal(step.journal)
        case steps.CloseJournal():
            yield f"bytes {_in_file(step.journal)}{byte_range(step.journal.extent)} are free again"
        case steps.ParkEntries():
            hidden = [number for number in step.partitions if number not in step.parked]
            if hidden:
                yield f"this also hides {_partitions(hidden)}, which the EBR chain no longer shows"
        case steps.RewriteTable() | steps.ConvertTable():
            new_size = step.sector_sizes[0] if isinstance(step, steps.ConvertTable) else sector_size
            for change in step.changes:
                yield from _change(change, new_size)
        case steps.MakeTable():
            if step.wipe:
                yield "signatures on the disk are wiped first"
            yield from (_entry(entry, sector_size) for entry in step.entries)


def partition_of(step: steps.Step) -> int | None:
    """Return the partition with the content that a step concerns, or None."""
    return step.partition if isinstance(step, ContentStep) else None


def distance_words(distance: int) -> str:
    """Return distance and direction: "up by 992.5KiB" is towards the end of the disk."""
    return f"{'up' if distance > 0 else 'down'} by {format_about(abs(distance))}"


def sector_words(start: int, sector_size: int) -> str:
    """Return a start in sectors of the disk, or "–" if it is not a multiple of them."""
    return str(start // sector_size) if start % sector_size == 0 else "–"


def _journal(place: steps.JournalPlace) -> Iterator[str]:
    start, length = place.extent.start, place.copy_length
    where = _in_file(place)
    first = Extent(start, length)
    second = Extent(start + length, length)
    yield f"bytes {where}{byte_range(first)} and {byte_range(second)}: two identical copies"
    yield f"bytes {where}{byte_range(place.stash.moved_to(start + place.stash.start))}: the stash"


def _in_file(place: steps.JournalPlace) -> str:
    return f"of {place.file}, " if place.file else ""


def _saved_ranges(held: steps.SavedRanges, start: int) -> str:
    return "bytes " + ", ".join(byte_range(run.moved_to(start + run.start)) for run in held.ranges)


def _patch(patch: steps.Patch, start: int) -> str:
    where = f"bytes {byte_range(Extent(start + patch.at, patch.length))}"
    if patch.before is None or patch.after is None:
        return f"{patch.what}, {where}: recomputed"
    return f"{patch.what}, {where}: {patch.before} → {patch.after}"


def _change(change: steps.EntryChange, sector_size: int) -> Iterator[str]:
    before, after = change.before, change.after
    sectors = f"sector {sector_words(before.start, sector_size)} → {sector_words(after.start, sector_size)}"
    yield f"entry {change.number}: {sectors}, bytes {byte_range(before)} → {byte_range(after)}"
    if change.record_after is not None:
        old = "–" if change.record_before is None else change.record_before
        yield f"its extended boot record: byte {old} → {change.record_after}"


def _entry(entry: steps.NewEntry, sector_size: int) -> str:
    name = f" {entry.name}" if entry.name else ""
    boot = ", active" if entry.active else ""
    sector = sector_words(entry.extent.start, sector_size)
    return (
        f"entry {entry.number}{name}: sector {sector}, bytes {byte_range(entry.extent)}, type"
        f" {entry.type_code}{boot}"
    )


def _partitions(numbers: Sequence[int]) -> str:
    word = "partition" if len(numbers) == 1 else "partitions"
    return f"{word} {listed(numbers)}"


# A plan as text: the disk before and after, the cost, every step with its bytes, and the command to type.

Commands = Mapping[int, Sequence[str]]
"""The command lines that each step would run, by step index."""

_NO_COMMANDS: Commands = {}


def plan_lines(
    plan: Plan, *, width: int, commands: Commands = _NO_COMMANDS, type_next: str = "", verbose: bool = False
) -> Iterator[Line]:
    """Yield the plan, with the bytes and commands of each step if `verbose`. `type_next`: the command that
    applies it.
    """
    yield from _title_lines(plan, width)
    yield EMPTY
    yield from plan_map_lines(plan, width=width)
    yield EMPTY
    yield from _place_lines(plan, width)
    yield EMPTY
    yield from _lost_lines(plan, width)
    if plan.steps:
        cost = tuple(_cost_lines(plan, width))
        if cost:
            yield from (*cost, EMPTY)
        if type_next:  # otherwise the question has it
            yield from _risk_lines(plan, width)
        yield from step_lines(plan, commands, width) if verbose else short_step_lines(plan, width)
        yield EMPTY
    else:
        yield plain("Nothing to do.")
    notes = [note for note in plan.notes if verbose or not note.startswith(ZEROED)]
    yield from sentence_lines("Decided", notes, Style.PLAIN, width)
    yield from attention_lines(plan, width=width)
    if type_next and plan.steps:
        yield step_line("", type_next)


def _risk_lines(plan: Plan, width: int) -> Iterator[Line]:
    """Yield what a move puts at risk, with an empty line behind it."""
    for text in _summary_sentences(plan) if isinstance(plan, MovePlan) else ():
        if text.startswith("At risk: "):
            yield from paragraph(text, width, "")
            yield EMPTY


def summary_lines(plan: Plan, *, width: int) -> Iterator[Line]:
    """Yield the short summary before the confirmation: disk, what is lost (only the number, if the plan above
    has a list of it), amount, duration, risk.
    """
    disk = plan.disk
    known = identity_words(("", disk.model), ("serial ", disk.serial))
    yield from paragraph(
        "  " + " · ".join(word for word in (known, size_words(disk.size)) if word), width, "  "
    )
    lost = _lost(plan) or [f"{LOST}{_nothing_lost(plan)}"]
    if len(lost) > 1:
        lost = [f"{LOST}{len(lost)} items, listed in the plan above"]
    suspended = (sentence for sentence in plan.attention if sentence.startswith(SUSPENDED))
    unknown = unidentified(plan)
    for sentence in (*lost, *_summary_sentences(plan), *suspended, *([unknown] if unknown else [])):
        yield from paragraph(f"  {sentence}", width, "  ")


_REFORMAT_RISK = (
    "At risk: the data of the array, if another member fails meanwhile, or if a RAID5 or RAID6 is in use at a"
    " power cut. Otherwise a power cut loses nothing: resume continues from there."
)


def unidentified(plan: Plan) -> str:
    """Return that drives of a new array report neither serial number nor WWN, or "" if each does."""
    drives = dict.fromkeys(step.disk for step in plan.steps if isinstance(step, steps.MakeMember))
    names = [disk.path for disk in drives if not (disk.serial or disk.wwn) and disk.path.startswith("/dev/")]
    if not names:
        return ""
    verb, other = "reports", "it from another drive"
    if len(names) > 1:
        verb, other = "report", "them from other drives"
    return f"{', '.join(names)} {verb} no serial number: nothing distinguishes {other} of the same size"


def _nothing_lost(plan: Plan) -> str:
    """Return that nothing is lost, as far as that is known of a disk that gets a new table."""
    if isinstance(plan, TablePlan) or plan.of(steps.MakeMember):
        return "nothing was recognised there"
    return "nothing, unless the drive fails meanwhile" if isinstance(plan, MovePlan) else "nothing"


def _summary_sentences(plan: Plan) -> Iterator[str]:
    match plan:
        case MovePlan(conversion=None):
            count = sum(place.what != Role.EXTENDED for place in plan.places)
            yield f"{len(plan.copies)} of {counted(count, 'partition')} to move{_copy_words(plan)}."
            shorter = what_stays_shrunk(plan)
            yield (
                "At risk: the partitions that move, if the drive fails or the journal is lost meanwhile: have"
                " a backup. Ctrl-C or a power cut loses nothing: resume finishes the move, rollback undoes"
                f" it, until it is complete{f'; {shorter}' if shorter else '.'}"
            )
            journal = journal_of(plan)
            if journal and journal.file:
                yield f"Journal: {_keep_words(journal.file)}."
        case MovePlan():
            yield (
                f"{counted(len(plan.places), 'partition')} in a new table, {len(plan.rebuilds)} recreated in"
                " place."
            )
            yield (
                "At risk: the table and the recreated content, if the drive fails or the journal is lost"
                " meanwhile. Ctrl-C or a power cut loses nothing: resume finishes it, rollback undoes it."
            )
        case TablePlan():
            yield f"A new partition table: {counted(len(plan.places), 'partition')}{_copy_words(plan)}."
            yield from _formatted_words(plan)
        case ArrayPlan(changes_layers=True):
            yield from _layer_summary(plan)
        case ArrayPlan(array=steps.MakeArray()):
            yield f"A new array of {counted(len(plan.members), 'member')}."
            yield from _formatted_words(plan)
            if plan.array and plan.array.zeroed:
                zeroed = ", ".join(_drive_words(step.disk) for step in plan.of(steps.MakeMember))
                yield f"Zeroed first, which erases the member on it: {zeroed}."
        case ArrayPlan() if plan.drives:
            drives = ", ".join(step.disk.path for step in plan.drives)
            yield f"{drives}: each is erased and resynchronised from the other members."
            yield _REFORMAT_RISK
        case _:
            yield "At risk: how the system boots; the old version of each file is kept next to it."


def _formatted_words(plan: Plan) -> Iterator[str]:
    formatted = [_drive_words(step.disk) for step in plan.of(steps.FormatDrive)]
    if formatted:
        yield f"Formatted first, which erases the whole drive: {', '.join(formatted)}."


def _drive_words(disk: steps.Subject) -> str:
    return f"{disk.path} ({identity_words(('serial ', disk.serial), ('WWN ', disk.wwn))})"


def _copy_words(plan: Plan) -> str:
    """Return ", SIZE to copy, DURATION", or "" if nothing is copied."""
    cost = plan.estimate
    return f", {_size_to_copy(plan, cost)} to copy, {_duration_words(cost)}" if cost else ""


def _duration_words(cost: Estimate, rates: Rates = COPY_RATES) -> str:
    """Return the duration. Of an image, or of a drive of an unknown kind, it is that at assumed rates."""
    if cost.seconds is not None:
        return f"about {time_words(cost.seconds)}"
    disk, ssd = (time_words(-(-cost.bytes_to_copy // rate)) for rate in rates)
    if disk == ssd:
        return f"about {disk}"
    slow, fast = (f"{rate // 10**6} MB/s" for rate in rates)
    return f"about {disk} on a hard disk ({slow}) or {ssd} on an SSD ({fast})"


def _layer_summary(plan: Plan) -> Iterator[str]:
    cost = plan.estimate
    if cost:
        yield f"{size_words(cost.bytes_to_copy)} to encrypt, {_duration_words(cost, ENCRYPTION_RATES)}."
    yield (
        "At risk: all data on it, if the drive fails meanwhile or the header is lost: make a backup. Ctrl-C"
        " or a power cut loses nothing: resume continues from there. The change cannot be rolled back."
    )


def _lost_lines(plan: Plan, width: int) -> Iterator[Line]:
    """Yield the content that the plan overwrites, and what may be suspended."""
    yield from sentence_lines("Overwritten", _lost(plan), Style.BAD, width)
    yield from _suspended_lines(plan, width)


def _lost(plan: Plan) -> list[str]:
    return [sentence for sentence in plan.attention if sentence.startswith(LOST)]


def _suspended_lines(plan: Plan, width: int) -> Iterator[Line]:
    suspended = [sentence for sentence in plan.attention if sentence.startswith(SUSPENDED)]
    yield from sentence_lines("Before", suspended, Style.BAD, width)


def attention_lines(plan: Plan, *, width: int) -> Iterator[Line]:
    """Yield what the user has to do afterwards; shown before and after the move."""
    remaining = [sentence for sentence in plan.attention if not sentence.startswith((LOST, SUSPENDED))]
    title = "Afterwards" if plan.steps else "Not changed by a move"
    yield from sentence_lines(title, remaining, Style.DOUBT, width)


def _title_lines(plan: Plan, width: int) -> Iterator[Line]:
    disk = plan.disk
    label = f"{label_words(disk.label)} table" if disk.label else "no partition table"
    known = identity_words(("", disk.model), ("serial ", disk.serial), ("disk ", disk.disk_id))
    facts = (known, size_words(disk.size), label, f"{disk.sector_size}-byte sectors")
    goal = f"goal: {plan.goal}" if isinstance(plan, MovePlan) else plan.goal
    yield from stacked(((f"{disk.path}: ", Style.TITLE), (goal, Style.TITLE)), width)
    yield from paragraph("  " + " · ".join(fact for fact in facts if fact), width, style=Style.DIM)


_HEADS = ("#", "sector", "start", "new sector", "new start", "size", "what")


def _place_lines(plan: Plan, width: int) -> Iterator[Line]:
    """Yield a row for each partition, and below it the distance and reason if it moves. On a narrow terminal
    the columns of sectors are omitted.
    """
    rows = [_HEADS, *(_place_cells(place, plan.disk.sector_size) for place in plan.places)]
    if len(rows) == 1:
        yield (("  no partitions", Style.DIM),)
        return
    if not fits(rows, width - 2):
        yield (("  (--json, or a wider terminal, shows the sectors)", Style.DIM),)
        rows = [
            (number, start, new or stays, size, what) for number, _, start, stays, new, size, what in rows
        ]
    heads, *texts = columns(rows, left=(len(rows[0]) - 1,), wide=width - 2)
    shrunk = {step.partition for step in plan.of(steps.ShrinkContent)}
    yield ((f"  {heads}", Style.DIM),)
    for place, row in zip(plan.places, texts, strict=True):
        yield plain(f"  {row}")
        before = place.before
        moves = before is not None and before != place.after
        words = [_move_words(place, shrunk=place.number in shrunk), place.why] if moves else [place.why]
        text = "; ".join(word for word in words if word)
        if text:
            yield from paragraph(f"     {text}", width, "       ", Style.NOTE if moves else Style.DIM)


def _move_words(place: Place, *, shrunk: bool) -> str:
    if place.before is None or place.before.start == place.after.start:
        size = "shrunk to" if shrunk else "new size"
        return f"keeps its start, {size} {size_words(place.after.length)}"
    words = distance_words(place.after.start - place.before.start)
    if place.before.length != place.after.length:
        sizes = f"{size_words(place.before.length)} → {size_words(place.after.length)}"
        words += f", shrunk {sizes}" if shrunk else f", {sizes}"
    return words


def _place_cells(place: Place, sector_size: int) -> tuple[str, ...]:
    before, after = place.before, place.after
    stays = before is not None and before.start == after.start
    old = (
        (sector_words(before.start, sector_size), format_start(before.start, sector_size))
        if before
        else ("", "")
    )
    start = format_start(after.start, sector_size)
    if before and not stays and start.replace(".0", "") == old[1].replace(".0", ""):
        # rounded, the two would look equal
        start = format_size(after.start)
        old = (old[0], format_size(before.start))
    new = ("stays", "") if stays else (sector_words(after.start, sector_size), start)
    return str(place.number), *old, *new, format_about(after.length), place.what


def _cost_lines(plan: Plan, width: int) -> Iterator[Line]:
    estimate = plan.estimate
    if estimate:
        words = f"To copy: {_size_to_copy(plan, estimate)}, {_duration_words(estimate)}"
        yield from paragraph(words, width, "  ", Style.TITLE)
        for used in estimate.used:
            by = used.by if used.by.startswith("everything") else f"according to {used.by}"
            yield from paragraph(f"  partition {used.partition}: {size_words(used.bytes)}, {by}", width)
    journal = journal_of(plan)
    if journal:
        where = (
            f"in {journal.file}"
            if journal.file
            else f"in free space of this disk, bytes {byte_range(journal.extent)}"
        )
        text = f"Journal (J): {size_words(journal.extent.length)} {where}"
        keep = f"; {_keep_words(journal.file)}" if journal.file else ""
        yield from paragraph(f"{text}{keep}", width, "  ")


def _size_to_copy(plan: Plan, estimate: Estimate) -> str:
    """Return the bytes to copy, which a shrink changes."""
    return f"{'about ' if plan.of(steps.ShrinkContent) else ''}{size_words(estimate.bytes_to_copy)}"


def _keep_words(file: str) -> str:
    return f"keep {file}, and note its path, until the move is complete: resume and rollback need it"


def short_step_lines(plan: Plan, width: int) -> Iterator[Line]:
    """Yield a line for each step, or for several of a kind that follow one another."""
    yield (("Steps", Style.TITLE), ("  (-v: every byte range, command and reason)", Style.DIM))
    sizes = {used.partition: used.bytes for used in plan.estimate.used} if plan.estimate else {}
    rows = []
    for _, group in groupby(enumerate(plan.steps, 1), key=lambda step: (type(step[1]), _has_own_line(step))):
        numbers, same = zip(*group, strict=True)
        rows.append(
            (
                f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}",
                place_words(plan, same[0]) + _title_of_all(same),
            )
        )
        if isinstance(same[0], steps.CopyContent) and same[0].partition in sizes:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]}: {format_about(sizes[same[0].partition])}")
    digits = max(len(number) for number, _ in rows)
    for number, title in rows:
        yield from paragraph(f"  {number:>{digits}}. {title}", width, " " * (digits + 4))
    if any(isinstance(step, steps.FileStep) for step in plan.steps):
        text = f"  The old version of a file is kept next to it, with {BACKUP} at the end of its name."
        yield from paragraph(text, width, "  ", Style.DIM)


def place_words(plan: Plan, step: steps.Step) -> str:
    """Return where a step is done, if the plan is for an installed system."""
    if plan.installed is None:
        return ""
    root = plan.installed.root
    if isinstance(step, steps.Mount):
        return f"here, below {root}: "
    return f"in {root}: " if isinstance(step, steps.InstalledStep) else "here: "


def _has_own_line(numbered: tuple[int, steps.Step]) -> int:
    """Return 0 for a step that is shown together with those of its kind, and a number of its own for
    others.
    """
    number, step = numbered
    together = (
        steps.CheckContent | steps.HoldContent | steps.ReleaseContent | steps.MakeMember | steps.FileStep
    )
    return 0 if isinstance(step, together) else number


def _title_of_all(same: Sequence[steps.Step]) -> str:
    """Return the title of steps of one kind."""
    parts = _partitions([step.partition for step in same if isinstance(step, ContentStep)])
    match same[0]:
        case steps.CheckContent() if len(same) > 1:
            kinds = dict.fromkeys(step.kind for step in same if isinstance(step, steps.CheckContent))
            return f"check {parts} ({', '.join(kinds)}), read-only"
        case steps.HoldContent() if len(same) > 1:
            return f"hide {parts} from other programs: their signatures are saved in the journal"
        case steps.ReleaseContent() if len(same) > 1:
            return f"restore the signatures of {parts} at the new places"
        case steps.MakeMember():
            return _members_title([step for step in same if isinstance(step, steps.MakeMember)])
        case steps.EditFile() | steps.WriteFile():
            word = "edit" if isinstance(same[0], steps.EditFile) else "write"
            return f"{word} {', '.join(step.path for step in same if isinstance(step, steps.FileStep))}"
        case _:
            return step_title(same[0])


def _members_title(members: Sequence[steps.MakeMember]) -> str:
    tables = [step.disk.path for step in members if step.entries]
    if tables:
        return (
            f"write {'a partition table' if len(tables) == 1 else 'partition tables'} to {', '.join(tables)}"
        )
    return f"use {', '.join(step.device for step in members)}"


def step_lines(plan: Plan, commands: Commands, width: int) -> Iterator[Line]:
    """Yield every step with its bytes and the commands that it would run."""
    yield (("Steps", Style.TITLE), ("  (A..B: from byte A up to but not including byte B)", Style.DIM))
    digits = len(str(len(plan.steps)))
    indent = " " * (digits + 4)
    for index, step in enumerate(plan.steps):
        yield from paragraph(
            f"  {index + 1:>{digits}}. {place_words(plan, step)}{step_title(step)}", width, indent
        )
        for detail in step_details(step, sector_size=plan.disk.sector_size, installed=plan.installed):
            yield from paragraph(indent + detail, width, indent + "  ", Style.DIM)
        for command in commands.get(index, ()):
            yield ((indent + "$ ", Style.DIM), (command, Style.PLAIN))


def sentence_lines(title: str, sentences: Sequence[str], style: Style, width: int) -> Iterator[Line]:
    """Yield a heading and the sentences as a list, or nothing if there are none."""
    if not sentences:
        return
    yield ((title, Style.TITLE),)
    for sentence in merged_sentences(sentences):
        yield from paragraph(f"  - {sentence}", width, style=style)
    yield EMPTY


def merged_sentences(sentences: Sequence[str]) -> list[str]:
    """Return sentences that differ only in the device or partition that they begin with as one: "sda, sdb: a
    sentence".
    """
    devices: dict[str, list[str]] = {}
    for sentence in sentences:
        device, _, rest = sentence.partition(": ")
        if not rest or " " in device.removeprefix("partition "):
            device = ""
            rest = sentence
        devices.setdefault(rest, []).append(device)
    return [f"{', '.join(names)}: {rest}" if all(names) else rest for rest, names in devices.items()]


# Plans of arrays, and running arrays, as text.


_IN_HEAD = (READY, UNUSED)  # the notes that are shown first


def raid_plan_lines(
    plan: ArrayPlan, *, width: int, type_next: str = "", verbose: bool = False
) -> Iterator[Line]:
    """Yield the goal, the members, what is made on them, a line for each step, and what the user has to do.
    `verbose`: also the reason of every value, the files, ranges and commands.

    `type_next`: the command that applies the plan.
    """
    members = plan.of(steps.MakeMember)
    yield from _array_head(plan, width, is_new_each_time=bool(type_next) and " apply " not in type_next)
    yield EMPTY
    if members:
        is_read = not any(sentence.startswith(NOT_READ) for sentence in plan.unchecked)
        yield from _member_lines(members, width, blank="no data seen" if is_read else "not read")
        if is_read and (unknown := unidentified(plan)):
            yield from paragraph(f"  {unknown}", width, "  ", style=Style.DOUBT)
        yield EMPTY
    values = list(_made_values(plan, members))
    if values:
        for row in columns(values, left=(0, 1)):
            yield from paragraph(f"  {row.rstrip()}", width, "           ")
        yield EMPTY
    yield from _suspended_lines(plan, width)
    if plan.changes_layers and plan.steps:
        for sentence in _layer_summary(plan):
            yield from paragraph(sentence, width)
        yield EMPTY
    notes = [note for note in plan.notes if not note.startswith(_IN_HEAD)]
    decided = [note for note in notes if verbose or not plan.array or VIOLATES in note]
    yield from sentence_lines("Decided", decided, Style.PLAIN, width)
    if plan.steps:
        yield from step_lines(plan, {}, width) if verbose else short_step_lines(plan, width)
        yield EMPTY
    yield from attention_lines(plan, width=width)
    yield from sentence_lines("Not checked here", plan.unchecked, Style.DOUBT, width)
    if type_next and plan.steps:
        yield step_line("", type_next)


def _array_head(plan: ArrayPlan, width: int, *, is_new_each_time: bool) -> Iterator[Line]:
    """Yield the goal, what is lost, the size, when the array is at full speed, and the system for which it is
    made.
    """
    yield from stacked(((f"{plan.disk.path}: ", Style.TITLE), (plan.goal, Style.TITLE)), width)
    for sentence in _lost(plan):
        yield from paragraph(f"  {sentence}", width, style=Style.BAD)
    facts = f"  {size_words(plan.disk.size)} · {plan.disk.sector_size}-byte sectors" if plan.disk.size else ""
    facts += f" · UUID {plan.disk.disk_id}" if plan.disk.disk_id and not plan.changes_layers else ""
    if plan.array and is_new_each_time:
        facts += " (each plan has a new one; `raid plan -o FILE` keeps it)"
    if facts:
        yield from paragraph(facts, width, style=Style.DIM)
    for note in plan.notes:
        if note.startswith(_IN_HEAD):
            yield from paragraph(f"  {note}", width)
    if plan.installed is not None:
        text = f"  for the system in {plan.installed.root} ({plan.installed.file_system})"
        yield from paragraph(f"{text}: its files, its programs in a chroot", width, "  ")


def _member_lines(members: Sequence[steps.MakeMember], width: int, *, blank: str) -> Iterator[Line]:
    """Yield a row for each member: its device, the drive, and what is lost there, or `blank`."""
    rows = [("member", "drive", "size", "now")]
    for step in members:
        known = (
            identity_words(("", step.disk.model), ("serial ", step.disk.serial)) or "a drive without a model"
        )
        holds = ("unrecognised data" if each.startswith(UNRECOGNISED) else each for each in step.holds)
        rows.append((step.device, known, format_about(step.disk.size), "; ".join(holds) or blank))
    heads, *texts = columns(rows, left=(0, 1, 3), wide=width - 2)
    yield ((f"  {heads.rstrip()}", Style.DIM),)
    for step, text in zip(members, texts, strict=True):
        yield ((f"  {text.rstrip()}", Style.BAD if step.holds else Style.PLAIN),)


def _made_values(plan: Plan, members: Sequence[steps.MakeMember]) -> Iterator[tuple[str, str]]:
    """Yield what the steps of a new array make, a name and its values each."""
    for step in plan.steps:
        match step:
            case steps.MakeArray():
                words = (
                    step.level.replace("raid", "RAID"),
                    step.layout and f"layout {step.layout}",
                    f"chunk {format_size(step.chunk)}" if step.chunk else "",
                    f"metadata {step.metadata}",
                    "write-intent bitmap" if step.bitmap_chunk else "",
                )
                yield "array", ", ".join(word for word in words if word)
                yield "may fail", _may_fail_words(step)
                begins = {entry.extent.start for member in members for entry in member.entries[-1:]} or {0}
                starts = ", ".join(format_size(start + step.data.offset) for start in sorted(begins))
                yield (
                    "data",
                    f"from {starts} of each drive" if len(begins) == 1 else f"from {starts} of the drives",
                )
            case steps.MakeFileSystem():
                yield (
                    "content",
                    step.kind if step.device == plan.disk.path else f"{step.kind} on {step.device}",
                )
            case steps.Mount() if plan.installed:
                now = f"{plan.installed.root}{step.path}"
                yield "mounted", f"at {now} now, and at {step.path} whenever that system boots"
            case steps.Mount():
                yield "mounted", f"at {step.path}, now and at every boot"
            case steps.BindMount():
                yield "mounted", f"{step.source} at {step.path} as well"


def _may_fail_words(step: steps.MakeArray) -> str:
    members = len(step.members)
    number = may_fail(level_of(step.level), members, step.layout)
    if not number:
        return "no member: the loss of one is the loss of all data"
    more = "; more only if a copy of everything is left" if step.level == "raid10" and members > 2 else ""
    later = ", once it is synchronised" if level_of(step.level).parity and not step.zeroed else ""
    return f"any {number} of {members} members{later}{more}"


def array_lines(views: Sequence[ArrayView], *, width: int) -> Iterator[Line]:
    """Yield each array with members, ceiling, audit findings on its stack, and the commands that repair
    it.
    """
    if not views:
        yield plain("No md array is running.")
    for view in views:
        words = [view.level, size_words(view.size) if view.size else ""]
        words += [f"metadata {view.metadata}" if view.metadata else ""]
        words += [f"chunk {format_size(view.chunk)}" if view.chunk else "no chunk", view.bitmap, view.state]
        yield ((f"{view.name}: ", Style.TITLE), (" · ".join(word for word in words if word), Style.PLAIN))
        for member in view.members:
            yield from _member(member, width)
        for sentence in (*view.contents, *ceiling_words(view.ceiling)):
            yield from paragraph(f"  {sentence}", width)
        for sentence in view.kept:
            yield from paragraph(f"  {sentence}", width)
        for finding in view.findings:
            yield from paragraph(f"  {finding}", width, style=Style.DOUBT)
        for step in view.next:
            yield step_line("  ", step)
        yield EMPTY


def _member(member: MemberView, width: int) -> Iterator[Line]:
    words = [member.model or "", member.own_link or "", member.data]
    state = "" if member.md_state in (None, IN_SYNC) else f" ({member.md_state})"
    yield from paragraph(f"  {member.name}{state}: " + ", ".join(word for word in words if word), width)
    more = [
        f"narrowest link on its path: {member.link}" if member.link else "",
        *member.shares,
        member.memory or "",
    ]
    for phrase in (phrase for phrase in more if phrase):
        yield from paragraph(f"    {phrase}", width)


def arrays_json(views: Sequence[ArrayView]) -> str:
    """Return the arrays as JSON: sizes in bytes, bandwidths in bytes per second; null: unknown."""
    arrays = [as_object(view) | {"commands": commands_in(view.next)} for view in views]
    return document_text("aligntool.raid.show", {"arrays": arrays})
