"""Find the reasons why a disk or a partition cannot be changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from aligntool.audit.drives import worst_gap
from aligntool.audit.report import Judged
from aligntool.audit.tables import repair_of_gpt
from aligntool.audit.wording import (
    LABELS,
    audit_command,
    change_by_hand,
    contents_or_data,
    inner_first,
    label_words,
    layer_name,
    look_at,
    look_at_table,
    next_command,
    next_look,
    on_raw,
    read_only_refusals,
    release_command,
    shell_word,
    stopping_words,
    subject_words,
    use_refusals,
)
from aligntool.change import LayoutGoal, PartitionRequest
from aligntool.claims import Claims, format_range
from aligntool.commands import ByHand, Hint, by_hand, typed, typed_on_loop
from aligntool.contents.catalogue import kind_named
from aligntool.contents.ext import name_for_e2fsck
from aligntool.contents.fat import is_small_fat32
from aligntool.contents.ntfs import SHUT_DOWN, WINDOWS_HIBERNATED
from aligntool.errors import Refusal, refuse
from aligntool.formats.gpt import table_sizes
from aligntool.formats.part_types import ROLES, role_list
from aligntool.formats.reader import MAY_BE_SHARED
from aligntool.inventory import (
    Disk,
    DiskKind,
    Fault,
    Inventory,
    Layer,
    Partition,
    Role,
    TableLabel,
    with_inner,
)
from aligntool.realign.placing import containers, fixed_layout_reasons, fixed_place_reasons, logicals_of
from aligntool.realign.search import irregular_chain_reason
from aligntool.units import Extent, align_down, counted, format_about, format_size

# Why a disk gets no new table: because of its content, or because of the request. These checks stand between
# a typing error and lost data.

MOST_ENTRIES = {"gpt": 128, "dos": 4}  # no logical partitions: more than four need a GPT
LONGEST_NAME = 36  # UTF-16 code units, UEFI 5.3.3


def refuse_impossible(disk: Disk, goal: LayoutGoal, above: Inventory | None = None) -> None:
    """Raise Refused if the disk must not get a new table, or no disk could satisfy the goal. `above`: see
    `Judged`.
    """
    refuse((*_disk_refusals(disk, wipe=goal.wipe, above=above), *goal_refusals(disk, goal)))


def goal_refusals(disk: Disk, goal: LayoutGoal) -> Iterator[Refusal]:
    """Yield the reasons why no disk with this sector size could satisfy the goal."""
    yield from _option_refusals(disk, goal)
    for what, part in ((f"partition {number}", part) for number, part in enumerate(goal.parts, 1)):
        yield from (
            Refusal("invalid-option", what, f"{what}: {why}", hint)
            for why, hint in _part_refusals(part, goal.label)
        )


def refuse_unfit(disk: Disk, *, wipe: bool | None) -> None:
    """Raise Refused if the disk must not get a new table. Called again just before the first write. `wipe`
    None: the command has no option --wipe.
    """
    refuse(_disk_refusals(disk, wipe=wipe))


def _disk_refusals(disk: Disk, *, wipe: bool | None, above: Inventory | None = None) -> Iterator[Refusal]:
    name = disk.name
    if not disk.size:
        yield Refusal("size-unknown", name, f"{name}: size unknown")
    yield from read_only_refusals(disk)
    if disk.kind is DiskKind.DASD:
        yield Refusal("dasd", name, f"{name} is a DASD, which has its own partitioning tool", "fdasd")
    yield from _zoned_refusals(disk)
    uses = [*use_refusals(name, name, disk.mounted_at, disk.holders, above=above)]
    for part in disk.partitions:
        words = subject_words(disk, part)
        uses += use_refusals(words, part.node or name, part.mounted_at, part.holders, above=above)
    yield from inner_first(uses)
    if not disk.table_read or not disk.content_read:
        text = f"{name}: content not readable, so it is not known to be empty"
        yield Refusal("not-read", name, text, audit_command(disk))
    elif gap := worst_gap(disk):
        yield Refusal("not-read", name, f"{name}: {gap.what}: {gap.why}", audit_command(disk))
    elif not wipe:
        for content in contents_or_data(disk):
            yield Refusal(
                "not-empty", name, f"{name} is not empty: {content}", _hint_to_keep_content(disk, wipe)
            )


def _zoned_refusals(disk: Disk) -> Iterator[Refusal]:
    """Refuse a host-managed disk. A host-aware one may be written in any order (Linux,
    block/partitions/core.c).
    """
    if disk.zoned == "host-managed":
        text = (
            f"{disk.name} is host-managed zoned: Linux uses no partition table on it, and zones are written"
            " in order"
        )
        hint = look_at(disk, "blkzone report")
        yield Refusal("zoned", disk.name, text, hint)


def _hint_to_keep_content(disk: Disk, wipe: bool | None) -> str:
    """Return the command that keeps the content. Users paste a hint without reading it, so --wipe is named
    only for a disk on which nothing but an empty table was recognised.
    """
    if disk.partitions:
        return next_command(disk, "plan realign")
    if disk.content or disk.content_hint or disk.gpt_headers:
        return audit_command(disk)
    path = shell_word(disk.path)
    if wipe is None:
        return f"if they are not needed: {change_by_hand(disk, ByHand.EMPTYING, 'blkdiscard')}"
    if disk.sampled and (disk.sampled.written or not disk.table):
        return f"if it is not needed, add: --wipe {path}"
    return f"--wipe {path} overwrites the empty table"


def _option_refusals(disk: Disk, goal: LayoutGoal) -> Iterator[Refusal]:
    if goal.label not in LABELS:
        text = f"{goal.label!r} is not a supported kind of table"
        yield Refusal("invalid-option", "--table", text, "--table gpt, or --table dos for an MBR")
        return
    if not goal.parts:
        hint = "name them, as in --part 512MiB:esp --part rest:linux, or add --recipe NAME"
        yield Refusal("invalid-option", "--part", "a layout needs partitions", hint)
    if len(goal.parts) > (most := MOST_ENTRIES[goal.label]):
        text = f"{len(goal.parts)} partitions are more than the {most} that this table can have"
        yield Refusal("table-limit", "--part", text, "--table gpt")
    if sum(part.size is None for part in goal.parts) > 1:
        yield Refusal("invalid-option", "--part", "only one partition can take the rest")
    sector_size = disk.limits.logical_block_size or disk.sector_size
    if goal.grain <= 0 or goal.grain % sector_size:
        text = f"a grain of {format_size(goal.grain)} is not a multiple of the {sector_size}-byte sectors"
        yield Refusal("invalid-option", "--grain", text, "--grain 1MiB")
    if goal.spare_end < 0:
        yield Refusal("invalid-option", "--spare-end", "the space left free cannot be negative")


def _part_refusals(part: PartitionRequest, label: str) -> Iterator[tuple[str, str]]:
    """Yield the reasons against this partition, each with a hint."""
    role = ROLES.get(part.role)
    if role is None:
        yield f"{part.role!r} is not a role", role_list()
    elif label == "dos" and role.mbr is None:
        yield f"an MBR has no type for {role.title}", "omit it, or --table gpt"
    if part.size is not None and part.size <= 0:
        yield "a partition needs a size", ""
    if len(part.name.encode("utf-16-le", "surrogatepass")) > 2 * LONGEST_NAME:
        yield f"its name is longer than {LONGEST_NAME} characters", ""
    if not part.name.isprintable():
        yield "its name contains non-printable characters", ""


# Why a disk or a partition is not moved: every reason, with its evidence and the next command. A reason that
# is missing here costs data.

MOVED_LABELS = (TableLabel.DOS, TableLabel.GPT)
# Faults with which the table is still complete: its backup stays where the primary states, and the size in
# the 0xEE entry is not a position.
_TOLERATED = (Fault.GPT_BACKUP_MISPLACED, Fault.PROTECTIVE_MBR, Fault.HYBRID_MBR)
_GPT_FAULTS = (Fault.GPT_PRIMARY_DAMAGED, Fault.GPT_BACKUP_DAMAGED, Fault.GPT_COPIES_DIFFER)


def disk_reasons(judged: Judged) -> tuple[Refusal, ...]:
    """Return every reason against writing to this disk."""
    disk = judged.disk
    bound = (Refusal("bound", disk.name, text, next_look(disk)) for text in fixed_layout_reasons(disk))
    held = _suspended_reasons(disk)
    return (*_device_reasons(disk), *_table_reasons(disk), *bound, *_use_reasons(disk, judged.above), *held)


def _device_reasons(disk: Disk) -> Iterator[Refusal]:
    name = disk.name
    audit = audit_command(disk)
    if disk.size is None:
        yield Refusal("size-unknown", name, f"the size of {name} is unknown", audit, lasting=False)
    if not disk.table_read:
        text = f"the partition table of {name} was not read"
        yield Refusal("not-read", name, text, next_command(disk, "plan realign"), lasting=False)
    elif gap := worst_gap(disk):
        yield Refusal("not-read", name, f"{name}: {gap.what}: {gap.why}", audit_command(disk))
    if disk.kind is DiskKind.DM:
        below = f": it is mapped to {', '.join(disk.slaves)}" if disk.slaves else ""
        yield Refusal("mapping", name, f"{name} is a device-mapper device{below}", audit)
    if disk.kind is DiskKind.DASD:
        tracks = f"{name} is a DASD: its partitions are counted in tracks, not in bytes"
        yield Refusal("dasd", name, tracks, look_at(disk, "fdasd -p"))
    yield from _zoned_refusals(disk)
    yield from read_only_refusals(disk)
    if disk.failing:
        text = f"{name} may be failing: {disk.failing}"
        yield Refusal("failing", name, text, look_at(disk, "smartctl -a"))
    for layer in disk.content:
        kind = kind_named(layer.kind)
        if kind.is_raid_member or kind.array_title:
            text = f"{name} as a whole is a {layer.kind}: the table belongs to the array"
            yield Refusal("array-member", name, text, audit)
        elif disk.partitions and disk.table is None:  # mkfs does not make the kernel read the table again
            text = (
                f"{name} as a whole holds {layer.kind} and has no partition table, but the kernel has"
                " partitions on it"
            )
            yield Refusal("kernel-differs", name, text, _reread(disk), lasting=False)
        elif disk.partitions and not kind.is_disc_image:
            text = (
                f"{name} as a whole holds {layer.kind}, and a table in which nothing is recognised: one is a"
                " remnant"
            )
            clear = change_by_hand(disk, ByHand.SIGNATURES, "wipefs")
            hint = f"{look_at(disk, 'wipefs --no-act')}\nto erase the remnant: {clear}"
            yield Refusal("ambiguous", name, text, hint)


def _reread(disk: Disk) -> str:
    return change_by_hand(disk, ByHand.KERNEL_TABLE, "partprobe")


def _table_reasons(disk: Disk) -> Iterator[Refusal]:
    name = disk.name
    table = disk.table
    if table is None:
        return
    if table.label not in MOVED_LABELS:
        text = f"{name} has a {label_words(table.label)} partition table; only MBR and GPT are supported"
        yield Refusal("table-kind", name, text, audit_command(disk))
        return
    if table.hybrid or any(fault.fault is Fault.HYBRID_MBR for fault in table.faults):
        text = (
            f"{name} has a hybrid MBR: two tables list the same partitions, and systems differ in which they"
            " use"
        )
        yield Refusal("hybrid-mbr", name, text, "aligntool explain AT307")
    for fault in table.faults:
        text = f"the partition table has an error: {fault.detail}"
        if fault.fault not in _TOLERATED:
            tool = "sgdisk -v" if fault.fault in _GPT_FAULTS else "sfdisk --verify"
            hint = repair_of_gpt(disk) if fault.hides and fault.fault in _GPT_FAULTS else ""
            yield Refusal("table-damaged", name, text, hint or look_at_table(disk, tool))
        elif fault.fault is Fault.PROTECTIVE_MBR and fault.at == 0:  # sector 0 has no 0xEE entry
            yield Refusal("table-damaged", name, text, repair_of_gpt(disk))
    # If the kernel's partitions differ, a mounted file system may lie elsewhere than the table states.
    kernel = dict(disk.kernel_partitions)
    for part in disk.partitions:
        seen = kernel.get(part.number, part.extent)
        if part.role is not Role.EXTENDED and seen != part.extent:
            what = f"partition {part.number}"
            text = f"{what}: the kernel has it at byte {seen.start}, the table at {part.extent.start}"
            yield Refusal("kernel-differs", what, text, _reread(disk), lasting=False)


_LIVE = "start from another medium, such as a live system, and run it there"


def _use_reasons(disk: Disk, above: Inventory | None) -> Iterator[Refusal]:
    """Yield a reason for each use of the disk and its partitions: the kernel would refuse to open it
    exclusively.
    """
    used = [(disk.name, shell_word(disk.path), disk.mounted_at, disk.holders)]
    for part in disk.partitions:
        what = f"partition {part.number}"
        used.append((what, f"/dev/{part.node}" if part.node else what, part.mounted_at, part.holders))
    uses = [use for what, node, places, _ in used for use in use_refusals(what, node, places, (), _LIVE)]
    yield from (replace(use, lasting=False) for use in inner_first(uses))
    yield from (_holder_refusal(what, holder, above) for what, _, _, holders in used for holder in holders)


def _suspended_reasons(disk: Disk) -> Iterator[Refusal]:
    """Yield a reason for each suspended system on the disk, wherever it lies: when it goes on, it writes to
    each partition that it had in use where that was before, whatever the table states.
    """
    for what, content in (
        (disk.name, disk.content),
        *((f"partition {part.number}", part.content) for part in disk.partitions),
    ):
        for layer in with_inner(content):
            if kind_named(layer.kind).is_suspended_system:
                yield _suspended(what)
            elif layer.unclean == WINDOWS_HIBERNATED:
                yield Refusal("unclean", what, f"{what}: {layer.unclean}", SHUT_DOWN, lasting=False)


def _suspended(what: str) -> Refusal:
    text = f"{what} holds the image of a suspended system"
    return Refusal("hibernated", what, text, "start that system and shut it down", lasting=False)


def _holder_refusal(what: str, holder: str, above: Inventory | None) -> Refusal:
    """Return that a device on the disk holds it, with the commands that end every use of that device, from
    the top.
    """
    device = above.disk(holder) if above else None
    by = f"{holder} ({device.mapping})" if device and device.mapping else holder
    hint = release_command(holder, above or Inventory(()), _LIVE)
    text = f"{what} is held by {by}{stopping_words(hint, _LIVE)}"
    return Refusal("held", what, text, hint, lasting=False)


def without_consequences(disk: Disk, reasons: Iterable[Refusal]) -> list[Refusal]:
    """Return the reasons without those that end with another one: a file system is not clean as long as it is
    mounted, unless another machine or a suspended system may use it as well.
    """
    found = list(reasons)
    mounted = {reason.subject for reason in found if reason.code == "mounted"}
    own = {
        f"partition {part.number}: {layer.unclean}"
        for part in disk.partitions
        for layer in part.content
        if f"partition {part.number}" in mounted and _ends_with_unmount(layer)
    }
    return [reason for reason in found if reason.code != "unclean" or reason.text not in own]


def _ends_with_unmount(layer: Layer) -> bool:
    unclean = layer.unclean or ""
    return unclean != WINDOWS_HIBERNATED and not unclean.startswith(MAY_BE_SHARED) and "(MMP)" not in unclean


def partition_reasons(disk: Disk, parts: Iterable[Partition]) -> dict[int, tuple[Refusal, ...]]:
    """Return the reasons against moving each of these partitions, by number."""
    nested = tuple(part for part in disk.partitions if part.role is Role.NESTED)
    found = {}
    for part in parts:
        place = _position_reasons(disk, part, nested)
        content = content_reasons(disk, part, f"partition {part.number}")
        found[part.number] = (*place, *content, *_chain_reasons(disk, part))
    return found


def _chain_reasons(disk: Disk, part: Partition) -> Iterator[Refusal]:
    for container in containers(disk) if part.role is Role.LOGICAL else ():
        chain = logicals_of(disk, container)
        why = irregular_chain_reason(container, chain) if part in chain else ""
        if why:
            what = f"partition {part.number}"
            dump = look_at_table(disk, "sfdisk --dump")
            yield Refusal("irregular-chain", what, f"{what} cannot be moved: {why}", dump)


def _position_reasons(disk: Disk, part: Partition, nested: Sequence[Partition]) -> Iterator[Refusal]:
    audit = next_look(disk)
    what = f"partition {part.number}"
    inside = ", ".join(str(inner.number) for inner in nested if part.extent.contains(inner.extent))
    if part.role is Role.NESTED:
        yield Refusal("nested-label", what, f"{what} is in a table nested inside another partition", audit)
    elif inside:
        text = (
            f"{what} contains a nested table, which counts from the start of the disk (partitions {inside})"
        )
        yield Refusal("nested-label", what, text, audit)
    for text in fixed_place_reasons(disk, part):
        yield Refusal("bound", what, text, audit)


def content_reasons(disk: Disk, part: Partition, what: str) -> Iterator[Refusal]:
    """Yield the reasons against moving the content of a partition. `what`: the name of the partition in
    messages.
    """
    if not part.content_read:
        text = f"the content of {what} could not be read"
        yield Refusal("not-read", what, text, next_command(disk, "plan realign"), lasting=False)
    if len(part.content) > 1:
        text = f"{what} is ambiguous: {' and '.join(layer.kind for layer in part.content)} are recognised"
        yield Refusal("ambiguous", what, text, look_at_part(disk, part, "wipefs --no-act"))
        return
    for layer in part.content:
        kind = kind_named(layer.kind)
        check = look_at_part(disk, part, kind.look)
        if kind.is_suspended_system:
            yield _suspended(what)
        fixed = kind.why_fixed(layer)
        if fixed:
            hint = fixed.hint or audit_command(disk)
            yield replace(fixed, subject=what, text=f"{what} {fixed.text}", hint=hint)
        for problem in layer.problems:
            if not is_small_fat32(problem):
                yield Refusal("content-damaged", what, f"{what}: {problem}", check)
        if not layer.problems and (layer.claims_size or 0) > part.extent.length:
            text = f"{what} has {part.extent.length} bytes, but its {layer.kind} claims {layer.claims_size}"
            yield Refusal("content-damaged", what, text, check)
        if layer.unclean:
            text = f"{what}: {layer.unclean}"
            yield Refusal("unclean", what, text, _cleaner(disk, part, layer), lasting=False)
        yield from _shared_inside(disk, part, layer, what)


def _shared_inside(disk: Disk, part: Partition, layer: Layer, what: str) -> Iterator[Refusal]:
    """Yield what another machine may use inside a layer."""
    for inner in with_inner(layer.inner):
        if (inner.unclean or "").startswith(MAY_BE_SHARED) or "(MMP)" in (inner.unclean or ""):
            text = f"{what}: the {layer_name(inner)} in it: {inner.unclean}"
            yield Refusal("unclean", what, text, _cleaner(disk, part, inner), lasting=False)


def with_table_to_end(disk: Disk) -> Disk | None:
    """Return the disk as it is once its GPT reaches to its end; None if it does, or if that is not known."""
    table = disk.table
    if table is None or table.usable is None or disk.size is None:
        return None
    if all(fault.fault is not Fault.GPT_BACKUP_MISPLACED for fault in table.faults):
        return None
    _, tail = table_sizes(disk.sector_size)
    end = align_down(disk.size, disk.sector_size) - tail
    usable = Extent(table.usable.start, end - table.usable.start)
    return replace(disk, table=replace(table, usable=usable)) if end > table.usable.end else None


def ends_early(disk: Disk) -> Refusal:
    """Return the refusal to move a partition for which there is room only behind the end of the GPT."""
    unused = (disk.size or 0) - (disk.table.usable.end if disk.table and disk.table.usable else 0)
    text = (
        f"the GPT of {disk.name} ends {format_about(unused)} before the end of the disk, and there is room"
        " once its backup is there"
    )
    hint = change_by_hand(disk, ByHand.TABLE, "sgdisk")
    return Refusal("no-room", disk.name, text, hint, lasting=False)


_MOST_NAMED = 4  # ranges of data in one message


def unlisted_data(disk: Disk, claims: Claims, command: str, *, for_journal: bool) -> Refusal:
    """Return the refusal to overwrite data that is in no partition. `command`: plans again, with
    --overwrite-bytes. `for_journal`: only the journal has no other place, and it can be a file.
    """
    found = _at_most_named(disk, claims.in_the_way)
    named = [format_range(extent) for extent in found[:_MOST_NAMED]]
    more = f" and {len(found) - len(named)} more ranges" if len(found) > len(named) else ""
    where = f"bytes {', '.join(named)}{more} of {disk.name} are in no partition and do not read as zero"
    text = f"{where}: they may be data, and are not overwritten"
    hint = look_at(disk, "od -A d -t x1z -N 512 -j", found[0].start)
    if for_journal:
        text = f"{where}, and beside them there is no room for the journal; a file on another disk also works"
        hint = Hint(hint, "\n", next_command(disk, command, "--journal FILE"))
    options = [f"--overwrite-bytes {one}" for one in named]
    if not more:
        hint = Hint(hint, "\nif they are not needed: ", next_command(disk, command, *options, "--save FILE"))
    return Refusal("unlisted-data", disk.name, text, hint, lasting=False)


def _at_most_named(disk: Disk, found: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """Return the ranges, and if they are too many to be named, those between the same partitions as one."""
    if len(found) <= _MOST_NAMED:
        return found
    between: dict[int, list[Extent]] = {}
    for extent in found:
        before = sum(
            part.role is not Role.EXTENDED and part.extent.start < extent.start for part in disk.partitions
        )
        between.setdefault(before, []).append(extent)
    return tuple(Extent(runs[0].start, runs[-1].end - runs[0].start) for runs in between.values())


def bad_blocks_refusal(disk: Disk, part: Partition, what: str, layer: Layer, count: int) -> Refusal:
    """Return the refusal to move a content that lists `count` blocks of its medium as bad. `what`: where it
    is.
    """
    text = (
        f"the {layer_name(layer)} on {what} lists {counted(count, 'bad block')} of its medium,"
        " and after the move the list would point to the wrong blocks"
    )
    clearing = change_by_hand(disk, ByHand.BAD_BLOCKS, kind_named(layer.kind).list_clearer, part)
    cloned = f"if the list is of another drive, from which this one was cloned: {clearing}"
    if disk.kind is DiskKind.IMAGE:
        return Refusal("failing", what, text, cloned, lasting=False)
    return Refusal("failing", what, text, f"{look_at(disk, 'smartctl -a')}\n{cloned}", lasting=False)


def _cleaner(disk: Disk, part: Partition, layer: Layer) -> str:
    """Return how the user makes an unclean content clean."""
    kind = kind_named(layer.kind)
    if (layer.unclean or "").startswith(MAY_BE_SHARED):
        return _by_hand(disk, part, layer, ByHand.SHARED, kind.unsharer)
    match kind.cleaning(layer):
        case (section, program):
            return _by_hand(disk, part, layer, section, program)
        case "":
            return look_at_part(disk, part, kind.look)
        case sentence:
            return sentence


def _by_hand(disk: Disk, part: Partition, layer: Layer, section: ByHand, program: str) -> str:
    """Return where the user finds how to change a content of a partition, which may be inside another
    layer.
    """
    if layer in part.content:
        return change_by_hand(disk, section, program, part)
    return by_hand(section, program, f"the {layer_name(layer)} in it")


def look_at_part(disk: Disk, part: Partition, words: str) -> str:
    """Return the command that looks at one partition; through a loop device over its bytes if the kernel has
    no node for it. With an offset, e2fsck does not see the end of the partition.
    """
    if part.node:
        return typed(words, f"/dev/{part.node}")
    start, length = part.extent.start, part.extent.length
    is_longer = any((layer.claims_size or 0) > length for layer in part.content)
    if words.startswith("e2fsck") and not is_longer and (inside := name_for_e2fsck(disk.path, start)):
        return on_raw(disk, typed(words, inside, sudo=disk.kind is not DiskKind.IMAGE))
    place = ("-o", str(start), "--sizelimit", str(length))
    return on_raw(disk, typed_on_loop(words, disk.path, *place))
