"""Plan a partition table for a disk whose content begins at byte 0, and the removal of one."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from aligntool import steps
from aligntool.audit.report import Judged
from aligntool.audit.wording import (
    LOST,
    audit_command,
    change_by_hand,
    label_words,
    labelled,
    layer_name,
    look_at,
    next_command,
)
from aligntool.change import MovePlan, Place, RealignGoal
from aligntool.claims import ALL_FREE, Claims
from aligntool.commands import ByHand, by_hand
from aligntool.contents.catalogue import kind_named
from aligntool.contents.windows_names import StartNames
from aligntool.errors import Refusal, Refused, refuse
from aligntool.formats.mbr import ADDRESSABLE, MOST_SECTORS
from aligntool.inventory import Disk, DiskKind, Layer, Partition, Role, TableCopyState, TableLabel
from aligntool.mover.held_ranges import held_ranges
from aligntool.mover.old_keys import attention_to_keys
from aligntool.mover.whole_disk import NUMBER, places, role_of
from aligntool.realign import search
from aligntool.realign.partition_selection import DELETE_FILES, MAKE_ROOM, REPAIR, Uses, most_shrinkable
from aligntool.realign.placing import on_grain, required_grid
from aligntool.realign.planning import copy_strips_for, estimate
from aligntool.realign.refusals import content_reasons, disk_reasons, partition_reasons, unlisted_data
from aligntool.realign.suspended import suspension_attention
from aligntool.units import MIB, Extent, align_down, align_up, format_about, format_size

# Contents known to work at another offset of the disk, found by their UUID or label.


@dataclass(frozen=True, slots=True)
class _Move:
    """The move of the content of a disk, with its journal."""

    disk: Disk
    part: Partition  # as it is, or will be after the shrink
    target: Extent
    journal: steps.JournalPlace
    needs: search.JournalNeeds
    shrunk_from: Extent | None = None


def plan_partition(
    judged: Judged, goal: RealignGoal, label: str, used: Uses, claims: Claims, *, others: Collection[str] = ()
) -> MovePlan:
    """Return the plan that moves the content of a whole disk into a partition of a new table of the kind
    `label`. `claims`: what may be overwritten. `others`: other kinds with a signature on the disk.

    Raises Refused with all reasons, a line each.
    """
    refuse_unmovable(judged, others)
    disk = judged.disk
    part = as_partition(disk)
    size = disk.sector_size
    need = required_grid(judged.grids, size)
    if need is None:
        text = "no offset is on all grids at once"
        hint = audit_command(disk)
        raise Refused(text, hint=hint, code="grids-exclude", subject=disk.name)
    start = on_grain(need, goal.grain).up(places(disk.size or 0, size)[0].end)
    move = _fitting(disk, part, goal, start, part.extent.length, claims)
    if move is None and goal.shrink:
        move = _shortened(disk, part, goal, start, used, claims)
    if move is None and claims.in_the_way and _fitting(disk, part, goal, start, part.extent.length, ALL_FREE):
        refuse((unlisted_data(disk, claims, "plan partition", for_journal=True),))
    if move is None:
        raise _too_long(disk, part, goal, start, used)
    # where an old GPT has its backup
    has_backup = any(copy.name == "backup" and copy.state is TableCopyState.GOOD for copy in disk.gpt_headers)
    tail = () if has_backup else (places(disk.size or 0, size)[1],)
    if claims.kept_in_any((move.target, *tail), (_own_bytes(disk, part),)):
        refuse((unlisted_data(disk, claims, "plan partition", for_journal=False),))
    if label == "dos" and move.target.end > ADDRESSABLE * size:
        text = f"an MBR reaches only to sector {MOST_SECTORS}, but the content would end after it"
        raise Refused(text, hint=next_command(disk, "plan partition"), code="table-limit", subject=disk.name)
    return _plan(move, judged, label, used)


def plan_unpartition(
    judged: Judged,
    goal: RealignGoal,
    used: Uses,
    claims: Claims,
    *,
    inside: str | None = None,
    names: StartNames | None = None,
    kinds: Sequence[str] = (),
) -> MovePlan:
    """Return the plan that moves the only partition of a disk to byte 0 and removes the table. `claims`: what
    may be overwritten. `inside`: the kind of the table in the first sectors of the partition. `names`: the
    starts recorded in files of Windows in it. `kinds`: what would be recognised on the whole disk.

    Raises Refused with all reasons, a line each.
    """
    disk = judged.disk
    refuse((*disk_reasons(judged), *_table_refusals(disk, inside, names, kinds)))
    part = disk.partitions[0]
    size = disk.sector_size
    target = part.extent.moved_to(0)
    needs = _needs(disk, part, part.extent.start)
    head, tail = places(disk.size or 0, size)
    room = Extent(0, tail.start)
    is_gpt = disk.table is not None and disk.table.label is TableLabel.GPT
    table = (head, tail) if is_gpt else (Extent(0, size),)
    if claims.kept_in_any((target, tail), (part.extent, *table)):
        refuse((unlisted_data(disk, claims, "plan partition --undo", for_journal=False),))
    taken = (part.extent, target)
    own = part.extent
    journal = _journal(disk, goal, needs, taken, room, claims, own)
    if journal is None and claims.in_the_way and _journal(disk, goal, needs, taken, room, ALL_FREE, own):
        refuse((unlisted_data(disk, claims, "plan partition --undo", for_journal=True),))
    if journal is None:
        most = max((run.length for run in search.free_runs((part.extent, target), room)), default=0)
        least = format_about(search.least_journal_length(needs))
        room_words = f"it needs {least} after the partition, but only {format_about(most)} is free"
        text = f"there is no room for the journal: {room_words}; a file on another disk also works"
        hint = next_command(disk, "partition", "--undo", "--journal FILE")
        raise Refused(text, hint=hint, code="no-journal-room", subject=disk.name)
    return _plan(
        _Move(disk, part, target, journal, needs), judged, disk.table.label.value if disk.table else "", used
    )


def refuse_unmovable(judged: Judged, others: Collection[str]) -> None:
    """Raise Refused if the content of the disk must not be moved, or is not known to work elsewhere."""
    refuse((*disk_reasons(judged), *_content_refusals(judged.disk, others)))


def with_needed_length(luks: Layer, inside: Sequence[Layer], decrypted: int, disk: Disk) -> Layer:
    """Return the LUKS with the length that its content needs: the layers read inside, of `decrypted` bytes.

    Raises Refused if that is not certain. Decrypted bytes must lie one after the other from the start of the
    data on to the end of the disk: with dm-integrity, tags lie between them, and there are fewer.
    """
    what = f"{layer_name(luks)} on {disk.name}"
    unit = luks.data_unit or 512
    start = luks.data_start or 0
    found = [
        layer
        for layer in inside
        if kind_named(layer.kind).works_anywhere and layer.claims_size and not layer.problems
    ]
    if not start or decrypted != align_down((disk.size or 0) - start, unit):
        text = (
            f"the {what} has {decrypted} bytes inside, which do not extend from byte {start} to the end of"
            " the disk"
        )
        raise Refused(text, hint=audit_command(disk), code="content-kind", subject=disk.name)
    if len(inside) != 1 or not found:
        names = " and ".join(map(layer_name, inside)) or "nothing"
        text = f"{names} is recognised inside the {what}, so the length in use is unknown"
        raise Refused(text, hint=audit_command(disk), code="no-content", subject=disk.name)
    if found[0].unclean:  # its superblock may be older than its journal
        text = f"the {layer_name(found[0])} inside the {what}: {found[0].unclean}"
        hint = by_hand(ByHand.UNCLEAN, "mount", f"the {layer_name(found[0])} inside")
        raise Refused(text, hint=hint, code="unclean", subject=disk.name)
    claims = start + align_up(found[0].claims_size or 0, max(unit, disk.sector_size))
    return replace(luks, claims_size=claims, extent=Extent(luks.extent.start, claims), inner=tuple(found))


def as_partition(disk: Disk) -> Partition:
    """Return the content of the whole disk as a partition, as long as its superblock states."""
    length = align_up(disk.content[0].claims_size or disk.size or 0, disk.sector_size)
    node = None if disk.kind is DiskKind.IMAGE else disk.name
    return Partition(NUMBER, Extent(0, length), content=disk.content, content_read=True, node=node)


def _content_refusals(disk: Disk, others: Collection[str]) -> Iterator[Refusal]:
    """Yield the reasons why the disk cannot get a table around its content."""
    name = disk.name
    if disk.table is not None:
        text = f"{name} already has a partition table ({disk.table.label})"
        yield Refusal("has-table", name, text, next_command(disk, "plan realign"))
    elif not disk.content_read:
        text = f"the content of {name} could not be read"
        yield Refusal("not-read", name, text, audit_command(disk), False)
    elif not disk.content:
        text = f"nothing is recognised on {name} as a whole"
        hint = next_command(disk, "plan layout", "--part rest:linux")
        if disk.content_hint:
            text = f"{text}, but udev reports {disk.content_hint}"
            hint = audit_command(disk)
        yield Refusal("no-content", name, text, hint)
    else:
        yield from content_reasons(disk, as_partition(disk), name)
        if others and len(disk.content) == 1:
            what = name
            kinds = " and ".join((disk.content[0].kind, *others))
            text = f"{what} is ambiguous: {kinds} are recognised"
            yield Refusal("ambiguous", name, text, _signatures_command(disk))
        for layer in disk.content:
            kind = kind_named(layer.kind)
            if not kind.works_anywhere and not kind.is_member:
                yield _unsupported(disk, layer, name)
            elif not kind.works_anywhere and not kind.is_raid_member:
                text = (
                    f"{name} is a {layer.kind}: the table belongs to the pool or device of which it is a"
                    " member"
                )
                yield Refusal("array-member", name, text, audit_command(disk))


def _signatures_command(disk: Disk) -> str:
    return look_at(disk, "wipefs --no-act")


def _table_refusals(
    disk: Disk, inside: str | None, names: StartNames | None, kinds: Sequence[str]
) -> Iterator[Refusal]:
    """Yield the reasons why the table cannot be removed."""
    name = disk.name
    table = disk.table
    if table is None:
        yield Refusal("no-partition", name, f"{name} has no partition table", audit_command(disk))
        return
    if len(disk.partitions) != 1 or disk.partitions[0].role is not Role.PRIMARY:
        text = (
            f"{name} has {len(disk.partitions)} partitions; only a single primary one can become the whole"
            " disk"
        )
        yield Refusal("not-single", name, text, audit_command(disk))
        return
    part = disk.partitions[0]
    what = f"partition {disk.partitions[0].number}"
    yield from partition_reasons(disk, (part,))[part.number]
    if part.content and not kind_named(part.content[0].kind).works_anywhere:
        yield _unsupported(disk, part.content[0], what)
    elif not part.content and part.content_read:
        text = f"nothing is recognised on {what}"
        yield Refusal("no-content", what, text, audit_command(disk))
    yield from _luks_length_refusals(disk, part, what)
    if inside:
        text = f"{what} begins with a table of its own ({inside}), which would become that of the disk"
        yield Refusal("nested-label", what, text, audit_command(disk))
    if len(kinds) > 1:
        text = f"without its table, {name} would be ambiguous: {' and '.join(kinds)} would be recognised"
        yield Refusal("ambiguous", name, text, _signatures_command(disk))
    if names:
        yield from _windows_refusals(part, what, names)
    tail = places(disk.size or 0, disk.sector_size)[1]
    if part.extent.end > tail.start:
        late = part.extent.end - tail.start
        last = tail.length
        text = (
            f"{what} extends {late} bytes too far: the last {last} bytes of the disk must record that it is"
            " in flight"
        )
        yield Refusal("no-room", what, text, audit_command(disk))


def _luks_length_refusals(disk: Disk, part: Partition, what: str) -> Iterator[Refusal]:
    """Yield the reason why a LUKS that extends to the end of its device would not open on the whole disk:
    dm-crypt requires whole sectors of its own size (drivers/md/dm-crypt.c, crypt_ctr()).
    """
    for layer in part.content:
        unit = layer.data_unit or disk.sector_size
        start = (layer.data_start or 0) - part.extent.start
        length = align_down(disk.size or 0, disk.sector_size) - start
        if kind_named(layer.kind).fills_device and start > 0 and not layer.claims_size and length % unit:
            text = (
                f"{what} holds {layer_name(layer)} with sectors of {unit} bytes: on the whole disk its data"
                f" would be {length} bytes long, which is not a multiple of that, so it would not open"
            )
            yield Refusal("odd-size", what, text, audit_command(disk))


def _windows_refusals(part: Partition, what: str, names: StartNames) -> Iterator[Refusal]:
    """Yield the reasons why Windows would not find its partition, however its files were changed: the disk
    signature and the start that they name are removed with the table.
    """
    found = [named.what for named in names.starts if named.start == part.extent.start]
    if found:
        text = (
            f"{what} contains Windows files that name it by the disk signature and its start, and both are"
            f" lost with the table: {', '.join(found)}"
        )
        yield Refusal("bound", what, text)
    elif names.unclear:
        yield Refusal("content-damaged", what, f"{what}: {names.unclear}; it may name this partition", REPAIR)


def _unsupported(disk: Disk, layer: Layer, what: str) -> Refusal:
    text = f"{what} holds {layer_name(layer)}, which is not known to work at another offset of the disk"
    return Refusal("content-kind", what, text, audit_command(disk))


# The length that the content may have.


def _needs(disk: Disk, part: Partition, distance: int) -> search.JournalNeeds:
    size = disk.sector_size
    head, tail = places(disk.size or 0, size)
    held, spots = (
        held_ranges(part, part.extent.length, size, (head,), signatures_only=signatures_only).length
        for signatures_only in (False, True)
    )
    return search.JournalNeeds(held, head.length + tail.length, 1, (distance,), spots)


def _journal(
    disk: Disk,
    goal: RealignGoal,
    needs: search.JournalNeeds,
    taken: tuple[Extent, ...],
    room: Extent,
    claims: Claims,
    own: Extent,
) -> steps.JournalPlace | None:
    if goal.journal_file:
        return search.in_file(goal, needs)
    gaps = tuple(search.free_runs(taken, room))
    runs = search.runs_for_journal(disk, gaps, search.journal_lengths(needs), claims, (own,))
    return search.place_journal(runs, needs)


def _own_bytes(disk: Disk, part: Partition) -> Extent:
    """Return the bytes of content that begins at byte 0. What follows that of a LUKS without a length of its
    own is its noise.
    """
    layer = part.content[0]
    has_length = layer.claims_size is not None and not layer.inner
    is_all = kind_named(layer.kind).fills_device and not has_length
    return Extent(0, disk.size or 0) if is_all else part.extent


def _fitting(
    disk: Disk, part: Partition, goal: RealignGoal, start: int, length: int, claims: Claims
) -> _Move | None:
    """Return the move of content shortened to this length; None if it does not fit."""
    tail = places(disk.size or 0, disk.sector_size)[1]
    source, target = Extent(0, length), Extent(start, length)
    own = _own_bytes(disk, part)
    part = replace(part, extent=source)
    needs = _needs(disk, part, start)
    room = Extent(0, tail.start)
    if target.end > tail.start:
        return None
    journal = _journal(disk, goal, needs, (source, target), room, claims, own)
    return None if journal is None else _Move(disk, part, target, journal, needs)


def _longest(disk: Disk, part: Partition, goal: RealignGoal, start: int, journal: int) -> int:
    """Return the maximum length of the content that leaves room for a journal of this length."""
    end = places(disk.size or 0, disk.sector_size)[1].start - start
    return align_down(max(end if goal.journal_file else end - align_up(journal, MIB), 0), MIB)


def _shortened(
    disk: Disk, part: Partition, goal: RealignGoal, start: int, used: Uses, claims: Claims
) -> _Move | None:
    """Return the move of the content after a shrink that makes just enough room for the best possible
    journal.
    """
    if not kind_named(part.content[0].kind).shrinkable:
        return None
    least_length = part.extent.length - most_shrinkable(part, used)
    for pair in search.journal_sizes(_needs(disk, part, start)):
        length = _longest(disk, part, goal, start, 2 * pair[0] + pair[1])
        if length >= least_length and (move := _fitting(disk, part, goal, start, length, claims)):
            return replace(move, shrunk_from=part.extent)
    return None


def _too_long(disk: Disk, part: Partition, goal: RealignGoal, start: int, used: Uses) -> Refused:
    """Return the refusal that states by how much the content is too long, and the command that shrinks it."""
    name = disk.name
    layer = part.content[0]
    most = _longest(disk, part, goal, start, search.least_journal_length(_needs(disk, part, start)))
    length = part.extent.length
    what = layer_name(layer)
    beside = "beside the table" if goal.journal_file else "beside the table and the journal"
    text = (
        f"the {what} on {name} takes {length} bytes, but {beside} there is room for {most}, {length - most}"
        f" bytes ({format_about(length - most)}) fewer"
    )
    if goal.shrink and kind_named(layer.kind).shrinkable:
        by = format_size(max(most_shrinkable(part, used), 0))
        text = f"{text}; it can be shrunk by an estimated {by} at most"
        if part.number in used and (why := used[part.number].why):
            text = f"{text}, because all of it counts as used: {why}"
    elif kind_named(layer.kind).opens_with_key and layer.inner:
        text = f"{text}; its length depends on the {layer_name(layer.inner[0])} inside"
    elif kind_named(layer.kind).opens_with_key:
        text = (
            f"{text}; without its key the whole disk counts as in use, because its header does not state its"
            " length"
        )
    elif why := kind_named(layer.kind).why_not_shrinkable:
        text = f"{text}; {why}"
    return Refused(
        text, hint=_shrink_hint(goal, part) or _how_to_shorten(disk, part, most), code="no-room", subject=name
    )


def _shrink_hint(goal: RealignGoal, part: Partition) -> str:
    """Return what makes room if --shrink cannot, or "" if it was not given or the content is not its
    subject.
    """
    kind = part.content[0].kind
    if not goal.shrink or not kind_named(kind).shrinkable:
        return ""
    least = kind_named(kind).least_size
    if part.extent.length <= least:
        return f"copy its files to another disk: a {kind} is not shrunk below {format_size(least)}"
    return DELETE_FILES if goal.journal_file else MAKE_ROOM


def _how_to_shorten(disk: Disk, part: Partition, most: int) -> str:
    """Return how the user makes the content short enough; the audit if `most` is 0, because nothing does."""
    layer = part.content[0]
    if most and kind_named(layer.kind).shrinkable:
        return next_command(disk, "plan partition", "--shrink")
    if most and kind_named(layer.kind).opens_with_key and not layer.inner:
        return next_command(disk, "plan partition", "--key-file FILE")
    inside = layer.inner[0] if kind_named(layer.kind).opens_with_key and layer.inner else layer
    program = kind_named(inside.kind).shortener
    if not program or align_down(most - (layer.data_start or 0 if inside is not layer else 0), MIB) <= 0:
        return audit_command(disk)
    return change_by_hand(disk, ByHand.SHRINKING, program)


# From the move to the plan.


def _plan(move: _Move, judged: Judged, label: str, used: Uses) -> MovePlan:
    disk = move.disk
    part = move.part
    back = move.target.start == 0
    if move.shrunk_from:
        length = part.extent.length
        part = replace(part, content=tuple(search.with_new_copy(layer, length) for layer in part.content))
    patched = search.patching(part, move.target, None, disk.sector_size)
    before = move.shrunk_from or part.extent
    why = (
        "becomes the whole disk"
        if back
        else f"gets a partition of type {role_of(part.content[0].kind).title}"
    )
    place = Place(part.number, before, move.target, labelled(part.content[0]), why)
    table = label_words(label)
    words = (
        "the only partition becomes the whole disk"
        if back
        else f"the content moves into a partition of a new {table}"
    )
    notes = (*_notes(move), *((patched.note,) if patched.note else ()))
    attention = (
        *suspension_attention(disk),
        *((*_boot_code_attention(disk), *_shorter_attention(disk)) if back else ()),
        *((patched.attention,) if patched.attention else ()),
        *attention_to_keys(disk.name, part.content),
    )
    plan_steps = tuple(_plan_steps(move, part, label, patched))
    cost = estimate(replace(disk, partitions=(part,)), frozenset({part.number}), used, plan_steps)
    purpose = "unpartition" if back else "partition"
    return MovePlan(purpose, steps.subject(disk), words, (place,), plan_steps, attention, notes, cost)


def _shorter_attention(disk: Disk) -> Iterator[str]:
    """Yield that the file system on the only partition is shorter than the disk that it gets, if its kind can
    be shrunk, and so lengthened.
    """
    layer = disk.partitions[0].content[0]
    rest = (disk.size or 0) - (layer.claims_size or disk.size or 0)
    if kind_named(layer.kind).shrinkable and rest >= MIB:
        how = by_hand(ByHand.GROWING, "its own tool")
        yield f"the {layer.kind} is {format_about(rest)} shorter than the disk it gets; to lengthen it: {how}"


def _boot_code_attention(disk: Disk) -> Iterator[str]:
    for code in disk.table.boot_code if disk.table else ():
        if code.partition is not None:  # it moves with the content, and becomes that of the disk
            where = f"the boot sector of partition {code.partition}"
            again = by_hand(ByHand.BOOT_PROGRAMS, code.kind)
            yield (
                f"{code.kind} in {where} keeps a list of absolute sectors: run it again from another system"
                f" {again}"
            )
            continue
        before = "before that, make the PC start from another disk"
        if code.kind.startswith("GRUB"):
            before += f", {by_hand(ByHand.BOOT_PROGRAMS, 'grub-install')}"
        yield f"{LOST}{code.kind}, found at byte {code.at}: this disk no longer starts; {before}"


def _plan_steps(move: _Move, part: Partition, label: str, patched: search.Patching) -> Iterator[steps.Step]:
    disk = move.disk
    number = part.number
    kind = part.content[0].kind
    target = move.target
    source = part.extent
    journal = move.journal
    size = disk.sector_size
    more = (places(disk.size or 0, size)[0], *(search.needed_for(patch) for patch in patched.patches))
    held = held_ranges(
        part, source.length, size, more, signatures_only=not search.holds_all(journal, move.needs)
    )
    if kind_named(kind).checker:
        yield steps.CheckContent(number, move.shrunk_from or source, kind)
    if move.shrunk_from:
        yield steps.ShrinkContent(number, move.shrunk_from, kind, source.length)
    yield steps.WriteJournal(journal)
    yield steps.ParkEntries((number,), (number,))
    yield steps.HoldContent(number, source, held)
    lanes = copy_strips_for(abs(target.start - source.start), journal, size)
    yield steps.CopyContent(number, kind, source, target, held, lanes)
    yield steps.ReleaseContent(number, kind, target, held, patched.patches)
    yield steps.RewriteTable(label, (steps.EntryChange(number, source, target),))
    yield steps.CloseJournal(journal)


def _notes(move: _Move) -> Iterator[str]:
    disk = move.disk
    target = move.target
    journal = move.journal
    back = target.start == 0
    layer = move.part.content[0]
    yield f"UUID and label of the {layer_name(layer)} stay: whatever uses them still finds it"
    for inner in layer.inner if kind_named(layer.kind).opens_with_key else ():
        what = layer_name(inner)
        yield f"the key shows {what} inside, which ends at byte {layer.claims_size}: the rest is not moved"
    if back:
        yield (
            "the table is removed, with PARTUUID, name and type of the partition and the boot code in sector"
            " 0"
        )
    elif any(disk.gpt_headers):
        yield "the remains of an old GPT on this disk are overwritten by the new table"
    if move.shrunk_from:
        by = format_size(move.shrunk_from.length - move.part.extent.length)
        yield (
            f"its {layer.kind} is shrunk by {by} to make room for the aligned start, the table and the"
            " journal"
        )
    if journal.file is None:
        size = format_about(journal.extent.length)
        start = format_size(journal.extent.start)
        yield f"the journal takes {size} of free space at {start} until the change is complete"
        if not search.holds_all(journal, move.needs):
            yield (
                "the journal is small (signature sectors only): more frequent flushes are slower, but just as"
                " safe"
            )
    free = places(disk.size or 0, disk.sector_size)[1].start - target.end
    if not back and free >= MIB:
        how = change_by_hand(disk, ByHand.GROWING, "sfdisk")
        yield (
            f"{format_about(free)} at the end stays free; afterwards the partition can be extended into it:"
            f" {how}"
        )
