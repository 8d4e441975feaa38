"""Plan `raid reformat`: give every NVMe member of a running array another LBA format, one after the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aligntool.audit.array_boot import is_native, mount_points_of
from aligntool.audit.arrays import IN_SYNC, PARITY, Member, partition_node
from aligntool.audit.wording import (
    audit_command,
    change_by_hand,
    device_refusals,
    inner_first,
    label_words,
    labelled,
    look_at,
    shell_word,
    use_refusals,
)
from aligntool.change import ArrayPlan
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.kind import NOT_READ, Unit
from aligntool.contents.luks import LUKS
from aligntool.errors import Refusal, Refused, refuse
from aligntool.formats.gpt import table_sizes
from aligntool.inventory import ArrayFacts, Disk, Inventory, Layer, TableLabel, array_uuid
from aligntool.raid import boot
from aligntool.raid.lba_formats import LARGEST, Namespace, change_words, format_of, format_refusals
from aligntool.raid.levels import copies_of, level_of
from aligntool.steps import (
    CheckArray,
    FormatMember,
    NewEntry,
    PutBackMember,
    Step,
    Subject,
    TakeOutMember,
    subject,
)
from aligntool.units import format_about, format_size

LEVELS = ("raid1", "raid10", "raid5", "raid6")
METADATA = ("1.0", "1.1", "1.2")
RUNS = ("active", "active-idle", "clean", "write-pending", "read-auto")
SPARE = "spare"  # a state of a member: Documentation/admin-guide/md.rst
MARKS = {"write_mostly": "writemostly", "failfast": "failfast"}  # states that a user sets, and how: md.rst
_INSTEAD = (
    f"save the content, recreate the array and restore the content, {by_hand(ByHand.SECTOR_SIZE, 'nvme')}"
)


@dataclass(frozen=True, slots=True)
class ReformatGoal:
    """`block_size`: bytes of the logical blocks that every member gets."""

    block_size: int


@dataclass(frozen=True, slots=True)
class ArrayDetails:
    """Details of an array and its drives that an inventory lacks. None: not readable."""

    states: Mapping[str, str] = field(default_factory=dict)  # md's state of each member, by its kernel name
    bad_blocks: tuple[str, ...] = ()  # members with blocks that md could not read or write
    bitmap_at: int | None = None  # bytes from the superblock, which may be before it
    unit: Unit = NOT_READ  # of the array's content
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)  # of each drive, by its name
    clustered: bool = False  # other machines may be using it as well


@dataclass(frozen=True, slots=True)
class _Array:
    disk: Disk
    facts: ArrayFacts
    uuid: str
    members: tuple[Member, ...]  # spares first: with a spare no copy is ever missing
    others: tuple[Disk, ...]  # every disk of the machine
    details: ArrayDetails
    size: int  # of the new blocks

    @property
    def path(self) -> str:
        """Return the name that survives a reboot, else the kernel's."""
        return f"/dev/{self.facts.links[0]}" if self.facts.links else self.disk.path

    @property
    def grows(self) -> bool:
        """Return whether the blocks of the array itself become larger, which its content has to support."""
        return self.size > (self.disk.limits.logical_block_size or 512)

    @property
    def shrinks(self) -> bool:
        """Return whether the blocks of the array become smaller, from its next assembly on."""
        return (
            bool(self.to_format)
            and not self.facts.stored_block_size
            and self.size < (self.disk.limits.logical_block_size or 512)
        )

    @property
    def spares(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if self.details.states.get(member.name) == SPARE)

    @property
    def to_format(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.disk.limits.logical_block_size != self.size)


def plan_reformat(
    disk: Disk,
    members: Mapping[str, Member],
    disks: Sequence[Disk],
    goal: ReformatGoal,
    details: ArrayDetails,
) -> ArrayPlan:
    """Plan a reformat. `members`: every disk or partition that may be one, by kernel name. Raises Refused
    with every reason.
    """
    facts = disk.array
    path = disk.path
    if facts is None or not is_native(facts) or not facts.uuid:
        text = f"{path} is not a running md array with its own UUID and metadata"
        raise Refused(text, hint="aligntool raid show", code="no-array", subject=path)
    named = sorted(facts.members, key=lambda name: (details.states.get(name) != SPARE, name))
    found = tuple(members[name] for name in named if name in members)
    array = _Array(disk, facts, facts.uuid, found, tuple(disks), details, goal.block_size)
    reasons = [*_refuse_array(array), *_refuse_used(array), *_refuse_content(array)]
    reasons += [
        reason
        for candidate in found
        for reason in device_refusals(candidate.disk, candidate.partition, candidate.name)
    ]
    refuse([*reasons, *(reason for member in array.to_format for reason in _refuse_member(array, member))])
    steps = tuple(_steps(array))
    about = Subject(
        array.path, disk.size or 0, disk.limits.logical_block_size or 512, None, array.uuid, *_UNKNOWN
    )
    title = (
        f"{facts.level} of {format_about(disk.size or 0)}: members with logical blocks of {goal.block_size}"
        " bytes"
    )
    attention = tuple(_attention(array)) if steps else ()
    return ArrayPlan("reformat", about, title, (), steps, attention, tuple(_notes(array)))


_UNKNOWN = (None, None, None, "")


def _steps(array: _Array) -> Iterator[Step]:
    whose = (array.uuid, array.path)
    spare = ""
    if not array.to_format:
        return
    yield CheckArray(*whose)
    if array.spares and array.spares[0] not in array.to_format:
        spare = f"/dev/{array.spares[0].name}"
    for member in array.to_format:
        device = f"/dev/{member.name}"
        yield TakeOutMember(*whose, device, "" if member in array.spares else spare)
        yield _format_step(array, member)
        yield PutBackMember(*whose, device, array.size)
        spare = device if array.spares else ""
    yield CheckArray(*whose)


def _format_step(array: _Array, member: Member) -> FormatMember:
    disk = member.disk
    part = member.partition
    form = format_of(member.disk, array.size)
    before = disk.nvme.format_in_use if disk.nvme else None
    number = array.details.namespaces.get(disk.name, Namespace()).number
    if form is None or before is None or number is None:
        text = f"the formats of {disk.name} are unknown"
        raise Refused(text, hint=typed("nvme id-ns -H", disk.path), code="not-read")
    entries = (NewEntry(part.number, part.extent, part.type_code, part.name or ""),) if part else ()
    uuids = (part.uuid or "",) if part else ()
    sizes = (before, disk.limits.logical_block_size or 512, form.index, form.data_size)
    return FormatMember(
        array.uuid, array.path, subject(disk), f"/dev/{member.name}", number, *sizes, entries, uuids
    )


# Reasons in the array.


def _refuse_array(array: _Array) -> Iterator[Refusal]:
    facts = array.facts
    path = array.disk.path
    detail = typed("mdadm --detail", array.disk.path)
    count = facts.devices or 0
    copies = (
        copies_of(level_of(facts.level), count, facts.layout or "")
        if facts.level in ("raid1", "raid10")
        else 2
    )
    if facts.level not in LEVELS or min(copies, count) < 2:
        text = (
            f"{path} is a {facts.level} that cannot run without a member: formatting one would lose its data"
        )
        if facts.level in PARITY:
            text = f"{path} is a {facts.level}; only {', '.join(LEVELS)} are supported"
        yield Refusal("not-redundant", path, text, _INSTEAD)
        return
    if facts.metadata not in METADATA:
        text = (
            f"{path} has metadata {facts.metadata}; only {', '.join(METADATA)} are known to work on larger"
            " blocks"
        )
        yield Refusal("metadata", path, text, _INSTEAD)
    yield from _refuse_states(array, detail)
    if facts.state not in RUNS or facts.sync_action != "idle":
        text = (
            f"{path} is {facts.state}, and its sync action is {facts.sync_action}: it must be running and"
            " idle"
        )
        yield Refusal("not-clean", path, text, f"{detail}; cat /proc/mdstat")
    kinds = {"external": "a bitmap in a file", "lockless": "a lockless bitmap"}
    if facts.policy not in ("bitmap", "resync") or facts.bitmap in kinds:
        log = kinds.get(facts.bitmap or "", f"the consistency policy {facts.policy}")
        text = f"{path} has {log}: a separate log or file stores its positions in blocks"
        yield Refusal("metadata", path, text, "mdadm(8), --grow --bitmap and --consistency-policy")
    for name in array.details.bad_blocks:
        text = f"{name} has a list of bad blocks, which have no second copy while another member is removed"
        yield Refusal("failing", name, text, typed("mdadm --examine-badblocks", f"/dev/{name}"))
    for spare in (spare for spare in array.spares if array.grows and spare not in array.to_format):
        # `--replace` would make it active at once, while nothing keeps the array from being used
        # (PutBackMember does).
        text = (
            f"the spare {spare.name} has blocks of {array.size} bytes; once active, {path} has them too, even"
            " in use"
        )
        hint = by_hand(
            ByHand.MEMBERS, "mdadm", f"{shell_word(path)}, the spare {spare.name} to remove meanwhile"
        )
        yield Refusal("block-sizes", spare.name, text, hint)
    yield from _refuse_kernel(array)
    yield from _refuse_places(array)


def _refuse_states(array: _Array, detail: str) -> Iterator[Refusal]:
    facts = array.facts
    path = array.disk.path
    known = {member.name for member in array.members}
    states = {name: array.details.states.get(name) or "unknown" for name in facts.members}
    for name, state in states.items():
        marks = sorted(set(state.split(",")) - {IN_SYNC, SPARE})
        if marks and set(marks) <= MARKS.keys():
            text = f"the member {name} of {path} is marked {', '.join(marks)}, which a removal would clear"
            hint = by_hand(
                ByHand.MEMBERS, "tee", f"{name}, marked {', '.join(MARKS[mark] for mark in marks)}"
            )
            yield Refusal("not-clean", path, text, hint)
        elif marks:
            yield Refusal("not-clean", path, f"the member {name} of {path} is {state}, not in sync", detail)
        if name not in known:
            yield Refusal("not-read", name, f"the drive of the member {name} could not be read", "lsblk")
    in_sync = [name for name, state in states.items() if IN_SYNC in state.split(",")]
    if facts.degraded or len(in_sync) != facts.devices:
        text = (
            f"{path} has {len(in_sync)} of {facts.devices} members in sync; removing one would leave too few"
        )
        yield Refusal("not-clean", path, text, detail)


def _refuse_kernel(array: _Array) -> Iterator[Refusal]:
    path = array.disk.path
    if array.size > LARGEST:
        text = f"blocks of {array.size} bytes are too large for md; the maximum is {LARGEST} bytes"
        yield Refusal("lba-format", path, text)
    if array.details.clustered:
        yield Refusal("in-use", path, f"{path} has a clustered bitmap, so other machines may be using it")


def _refuse_places(array: _Array) -> Iterator[Refusal]:
    facts = array.facts
    path = array.disk.path
    places = {"size used of each member": facts.each, "bitmap, from the superblock": array.details.bitmap_at}
    places |= {f"data offset of {name}": offset for name, offset in facts.member_data_offsets}
    for title, number in places.items():
        if number is not None and number % array.size:
            text = f"{path}: {title}: {number} bytes, which is not a multiple of {array.size}"
            yield Refusal("metadata", path, text, _INSTEAD)
    if facts.each is None or len(facts.member_data_offsets) != len(facts.members):
        yield Refusal(
            "not-read", path, f"{path}: the data offsets of its members are unknown", "aligntool raid show"
        )


def _refuse_used(array: _Array) -> Iterator[Refusal]:
    """Refuse an array in use if its blocks grow: the kernel would change them, but a mounted file system
    keeps using the old size.
    """
    if not array.grows:
        return
    disk = array.disk
    above = Inventory(array.others)
    live = "do it from a live system"
    used = list(use_refusals(disk.name, disk.name, mount_points_of(disk), disk.holders, live, above=above))
    for part in disk.partitions:
        used += use_refusals(
            part.node or disk.name, part.node or disk.name, (), part.holders, live, above=above
        )
    used += [Refusal("in-use", disk.path, use, end) for use, end in disk.taken]
    if used:
        text = f"the logical blocks of {disk.path} cannot grow to {array.size} bytes while it is in use"
        again = "end these uses; it can be used again as soon as the first member is back"
        yield Refusal("in-use", disk.path, text, again)
    yield from inner_first(used)


# Reasons in the content. An array has one size of logical blocks, the largest of its members'.


def _refuse_content(array: _Array) -> Iterator[Refusal]:
    disk = array.disk
    size = array.size
    if not (array.grows or array.shrinks):
        return
    name = disk.path
    where = f"an array with logical blocks of {size} bytes"
    if array.shrinks and disk.table and disk.table.sector_size == size:
        return
    if disk.table or disk.partitions:
        label = label_words(disk.table.label) if disk.table else "partition"
        text = (
            f"{name} has a {label} table, which is stored in the present blocks: on {where} it would not be"
            " found"
        )
        yield Refusal("layer-blocks", name, text, _INSTEAD)
    elif not (disk.table_read and disk.content_read):
        look = audit_command(disk)
        yield Refusal("not-read", name, f"the content of {name} could not be read", look)
    # the kernel's file systems and mappings work on smaller blocks than they were made on
    elif array.shrinks:
        return
    elif len(disk.content) != 1:
        found = " and ".join(map(labelled, disk.content)) or disk.content_hint or "nothing recognised"
        text = f"{name} holds {found}, which may not work on {where}"
        yield Refusal("layer-blocks", name, text, _INSTEAD)
    elif not array.details.unit.fits(size):
        text = f"{name}: {labelled(disk.content[0])} {array.details.unit.words}: it would not work on {where}"
        yield Refusal("layer-blocks", name, text, _alternative(disk, disk.content[0]))


def _alternative(disk: Disk, layer: Layer) -> str:
    if layer.kind == LUKS.name and not layer.unclean and layer.data_start:
        return change_by_hand(disk, ByHand.LUKS, "cryptsetup")
    return _INSTEAD


# Reasons in a member.


def _refuse_member(array: _Array, member: Member) -> Iterator[Refusal]:
    disk = member.disk
    name = member.disk.name
    namespace = array.details.namespaces.get(name, Namespace())
    yield from format_refusals(disk, member.name, array.size, namespace, array.others)
    for use, end in disk.taken:
        yield Refusal("in-use", name, use, end)
    holders = [holder for holder in disk.holders if holder != array.disk.name]
    yield from use_refusals(name, name, mount_points_of(disk), holders, above=Inventory(array.others))
    for part in disk.partitions:
        if member.partition is None or part.number != member.partition.number:
            text = (
                f"{name} has partition {part.number} besides the member, and formatting erases the whole"
                " drive"
            )
            hint = f"save it and delete it first: {change_by_hand(disk, ByHand.DELETING, 'sfdisk')}"
            if member.partition is None:  # metadata 1.0: the table of the array's content
                hint = audit_command(disk)
            yield Refusal("not-empty", name, text, hint)
    content = [*disk.content, *(layer for part in disk.partitions for layer in part.content)]
    if not (disk.table_read and disk.content_read and all(part.content_read for part in disk.partitions)):
        look = audit_command(disk)
        yield Refusal("not-read", name, f"the content of {name} outside the array could not be read", look)
    elif any(array_uuid(layer) != array.uuid for layer in content):
        text = (
            f"{name} shows {' and '.join(map(labelled, content))}, not only the superblock of"
            f" {array.disk.path}"
        )
        yield Refusal("ambiguous", name, text, look_at(disk, "wipefs --no-act"))
    if member.partition is not None:
        yield from _refuse_partition(array, member, disk)


def _refuse_partition(array: _Array, member: Member, disk: Disk) -> Iterator[Refusal]:
    part = member.partition
    table = disk.table
    size = array.size
    if part is None:
        return
    name = member.name
    if (
        table is None
        or table.label is not TableLabel.GPT
        or table.faults
        or not (table.disk_id and part.uuid)
    ):
        text = (
            f"the table of {disk.name} is not a valid GPT; only a GPT can be rewritten for another sector"
            " size"
        )
        yield Refusal("metadata", disk.name, text, audit_command(disk))
        return
    head, tail = table_sizes(size)
    room = (disk.size or 0) // size * size - tail
    if (
        part.extent.start % size
        or part.extent.length % size
        or part.extent.start < head
        or part.extent.end > room
    ):
        must = f"start and end on a multiple of {size}, between {head} and {room}"
        text = f"{name} is at bytes {part.extent.start} to {part.extent.end} of {disk.name}"
        yield Refusal("metadata", name, f"{text}; with {size}-byte sectors it must {must}", _INSTEAD)
    plain = (
        (part.name or "").isascii()
        and (part.name or "").isprintable()
        and not set(part.name or "") & set("\"'\\")
    )
    if part.flags or not plain:
        extra = f"attributes ({', '.join(part.flags)})" if part.flags else f"the name {part.name!r}"
        text = f"{name} has {extra}, which the rewritten table would not have"
        yield Refusal("metadata", name, text, change_by_hand(disk, ByHand.TABLE_KIND, "sfdisk"))
    if name != partition_node(disk.name, part.number):
        yield Refusal(
            "metadata", name, f"{name} is not the usual name of partition {part.number} of {disk.name}"
        )


# The sentences of the plan: decisions, and what needs the user's attention.


def _notes(array: _Array) -> Iterator[str]:
    for member in array.members:
        if member in array.to_format:
            yield f"{member.name}: {change_words(member.disk, array.size)}"
        else:
            yield f"{member.name} already has logical blocks of {array.size} bytes"
    if array.grows:
        content = labelled(array.disk.content[0])
        unit = array.details.unit
        yield f"{content} {unit.words}, so it works on logical blocks of {array.size} bytes"
    if array.to_format and array.spares:
        yield f"the spare {array.spares[0].name} replaces each member in turn, so no copy is ever missing"
    if array.to_format:
        yield from _risks(array)


def _risks(array: _Array) -> Iterator[str]:
    length = format_size(array.facts.each or 0)
    yield f"{length} of each member are rewritten: this wears the drives and takes hours on large ones"
    if not array.spares and array.facts.level != "raid6":
        yield (
            "while a member is removed, the failure of another one loses data: have a backup, or add a spare"
            " first"
        )
    if not array.spares and array.facts.level in ("raid5", "raid6"):
        hole = "a power cut during a write to the degraded array can keep it from starting"
        yield f"leave the array unmounted until the end: {hole} (write hole)"


def _attention(array: _Array) -> Iterator[str]:
    if array.grows:
        yield "programs that bypass the page cache (O_DIRECT) in units of 512 bytes must use larger units"
        if array.facts.stored_block_size is not None:
            yield (
                f"its superblocks will store {array.size}-byte blocks, which a rollback does not change back"
            )
        if array.facts.stored_block_size == 0:
            yield boot.OLDER_KERNELS
    elif array.to_format and array.facts.stored_block_size:
        yield f"its superblocks store {array.facts.stored_block_size}-byte blocks, which the array keeps"
