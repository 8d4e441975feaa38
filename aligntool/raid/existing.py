"""An array that exists already: whether it is the requested one, and everything in which it differs.

A value that cannot be read differs: nobody may be told that an array is as requested unless it was seen to
be.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from aligntool.audit.array_boot import (
    RunningArray,
    kernel_node,
    node_of,
    persist_command,
    running_nodes,
    short_name,
)
from aligntool.audit.arrays import IN_SYNC, Member, member_state, sync_words
from aligntool.audit.report import Judged
from aligntool.audit.wording import contents, shell_word
from aligntool.change import NOT_MOUNTED, ArrayPlan, RaidGoal
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.catalogue import kind_named
from aligntool.contents.swap import SWAP
from aligntool.errors import Refusal, Refused, refuse
from aligntool.formats.part_types import ROLES
from aligntool.inventory import ArrayFacts, Disk, Layer
from aligntool.raid import boot
from aligntool.raid.chunks import Stripes, recommend_chunk
from aligntool.raid.commands import access_words, array_device, label_of
from aligntool.raid.levels import LEVELS, data_members, level_of
from aligntool.raid.measured import apply_measurement
from aligntool.raid.members import Placed, place_members, type_steps
from aligntool.raid.running import PersistGoal, plan_persist
from aligntool.steps import (
    BindMount,
    EditFile,
    EnableUnit,
    FileStep,
    Mount,
    PrepareDirectory,
    RebuildInitramfs,
    Step,
    Subject,
    SystemStep,
    WriteFile,
)
from aligntool.units import counted, format_about, format_size

InEffect = Callable[[FileStep | SystemStep], bool]
"""Whether a step would change nothing on this machine now."""
_SWAP_PLACE = "[SWAP]"  # as in Disk.mounted_at
_RUNS = ("clean", "active", "active-idle", "write-pending", "read-auto")  # md.rst, array_state
_BUILT = "being rebuilt"  # as `member_state` has it: also of a RAID5 that is built for the first time


def array_on(named: Sequence[Judged], goal: RaidGoal, disks: Sequence[Disk]) -> Disk | None:
    """Return the running array that is meant by a request for a new one on these drives: the only one with
    members on them, if it has the requested name, or has no member elsewhere.
    """
    nodes = {node for judged, number in _numbered(named, goal) for node in _nodes(judged.disk, number)}
    found = [disk for disk in disks if disk.array and not nodes.isdisjoint(disk.array.members)]
    if len(found) != 1 or found[0].array is None:
        return None
    is_meant = short_name(found[0]) == goal.name or nodes.issuperset(found[0].array.members)
    return found[0] if is_meant else None


def _numbered(named: Sequence[Judged], goal: RaidGoal) -> Iterator[tuple[Judged, int | None]]:
    yield from zip(named, goal.partitions or (None,) * len(named), strict=True)


def _nodes(disk: Disk, number: int | None) -> set[str]:
    """Return the kernel names of the partition, or of the drive and all its partitions."""
    parts = {part.node for part in disk.partitions if part.node and number in (None, part.number)}
    return parts if number is not None else {disk.name, *parts}


@dataclass(frozen=True, slots=True)
class Existing:
    """A running array, and the request that it is compared with."""

    array: RunningArray
    named: tuple[Judged, ...]  # the drives of the request
    goal: RaidGoal
    head: bytes  # the first bytes of its content; empty: not read
    is_in_effect: InEffect

    @property
    def disk(self) -> Disk:
        return self.array.disk

    @property
    def facts(self) -> ArrayFacts:
        return self.array.facts

    def differ(self, subject: str, text: str, hint: str = "") -> Refusal:
        """Return the reason for which it is not the requested array."""
        hint = hint or typed("aligntool raid show", self.disk.path)
        return Refusal("array-differs", subject, f"{self.disk.path} exists on these drives, and {text}", hint)


def plan_existing(existing: Existing) -> ArrayPlan:
    """Return a plan without steps. Raises Refused with everything in which the array differs."""
    goal = existing.goal
    refuse(
        chain(
            _shape_differences(existing),
            _member_differences(existing),
            _content_differences(existing),
            _mount_differences(existing),
            (existing.differ(*each) for each in directory_differences(goal, existing.is_in_effect)),
            _boot_partition_differences(existing),
        )
    )
    disk = existing.disk
    facts = existing.facts
    sector = disk.limits.logical_block_size or 512
    device = array_device(existing.goal)
    subject = Subject(device, disk.size or 0, sector, None, facts.uuid, None, None, None, "")
    title = f"{level_of(facts.level).title} of {len(facts.members)} members, {format_about(disk.size or 0)}"
    return ArrayPlan("raid", subject, f"{title}: already as requested", (), (), (), tuple(_notes(existing)))


def _notes(existing: Existing) -> Iterator[str]:
    facts = existing.facts
    yield f"it runs as {existing.disk.path} on {', '.join(facts.members)}"
    if facts.chunk and existing.goal.chunk is None:
        yield f"no chunk was requested; it has one of {format_size(facts.chunk)}"
    building = [name for name in facts.members if member_state(facts, name) == _BUILT]
    if building:
        yield f"{', '.join(building)}: {_BUILT}{sync_words(facts)}"


# The array, as md has it.


def _shape_differences(existing: Existing) -> Iterator[Refusal]:
    facts = existing.facts
    goal = existing.goal
    if facts.level != goal.level:
        wanted, found = (level_of(word).title for word in (goal.level, facts.level))
        yield existing.differ("--level", f"is a {found}, not the requested {wanted}")
    chunk = _requested_chunk(existing)
    if chunk is not None and facts.chunk != chunk:
        found = format_size(facts.chunk) if facts.chunk else "unknown"
        yield existing.differ("--chunk", f"its chunk is {found}, not the requested {format_size(chunk)}")
    words = {"metadata": (facts.metadata, goal.metadata), "bitmap": (facts.bitmap, goal.bitmap)}
    words["layout"] = (facts.layout, goal.layout)
    for key, (has, wants) in words.items():
        if wants is not None and has != wants:
            yield existing.differ(f"--{key}", f"its {key} is {has or 'unknown'}, not the requested {wants}")
    size = existing.disk.limits.logical_block_size
    if goal.lba_size is not None and size != goal.lba_size:
        hint = typed("aligntool raid reformat", existing.disk.path, "--lba-size", goal.lba_size)
        text = f"its logical blocks have {size or 'an unknown number of'} bytes, not the requested"
        yield existing.differ("--lba-size", f"{text} {goal.lba_size}", hint)
    yield from _name_differences(existing)
    if facts.state not in _RUNS or facts.sync_action == "reshape":
        state = facts.sync_action if facts.state in _RUNS else facts.state or "unknown"
        yield existing.differ(existing.disk.path, f"its state is {state}")


def _requested_chunk(existing: Existing) -> int | None:
    """Return the chunk of the request, or of the sweep that it names; None: any will do."""
    goal = existing.goal
    facts = existing.facts
    level = LEVELS.get(goal.level)
    if goal.chunk is not None or not goal.measured or level is None:
        return goal.chunk
    layout = facts.layout or ""
    data = data_members(level, len(facts.members), layout)
    stripes = Stripes(level, data, goal.workload, goal.database_page, ())
    disks = [judged.disk for judged in existing.named]
    bitmap = facts.bitmap or "none"
    measured = apply_measurement(goal, stripes, recommend_chunk(stripes), disks, layout, bitmap)
    return measured.advice.size if measured.used else None


def _name_differences(existing: Existing) -> Iterator[Refusal]:
    """Compare the name in the superblock, the node, and the name that mdadm.conf gives it at every boot."""
    device = array_device(existing.goal)
    name = short_name(existing.disk)
    if name != existing.goal.name:
        hint = f"--name {shell_word(name)}" if name else ""
        has = f"its name is {name!r}" if name else "its name is unknown"
        yield existing.differ("--name", f"{has}, not {existing.goal.name!r}", hint)
        return
    if kernel_node(device) not in map(kernel_node, running_nodes(existing.disk)):
        yield existing.differ("--name", f"{device} does not lead to it")
    for line in existing.array.lines_in(existing.array.system.mdadm.arrays):
        if kernel_node(node_of(line.device)) != kernel_node(device):
            text = f"{line.file} gives it another name than {device}: {line.text}"
            yield existing.differ(line.file, text, by_hand(ByHand.SYSTEM_FILES, "an editor", line.file))


def _member_differences(existing: Existing) -> Iterator[Refusal]:
    facts = existing.facts
    goal = existing.goal
    left = set(facts.members)
    for judged, number in _numbered(existing.named, goal):
        disk = judged.disk
        nodes = {disk.name} if goal.whole_drives else _nodes(disk, number) - {disk.name}
        found = sorted(nodes & left)
        if len(found) == 1:
            yield from _place_differences(existing, judged, found[0])
            left.remove(found[0])
        else:
            what = f"partition {number} of {disk.name}" if number else f"no single partition of {disk.name}"
            text = f"{what} is {'not ' if number else ''}a member of it"
            text = f"{disk.name} as a whole is not a member of it" if goal.whole_drives else text
            yield existing.differ(disk.name, text)
    for name in sorted(left):
        yield existing.differ(name, f"its member {name} was not named")
    for name in facts.members:
        state = member_state(facts, name)
        if state not in (IN_SYNC, _BUILT):
            yield existing.differ(name, f"its member {name} is {state or 'in an unknown state'}")
    if facts.devices != len(facts.members):
        places = f"{facts.devices or 'an unknown number of'} members"
        hint = by_hand(ByHand.MEMBERS, "mdadm", existing.disk.path)
        yield existing.differ(existing.disk.path, f"{len(facts.members)} of {places} are there", hint)


def _place_differences(existing: Existing, judged: Judged, node: str) -> Iterator[Refusal]:
    """Compare the type, the length and the place of a member with those requested."""
    goal = existing.goal
    disk = judged.disk
    part = next((part for part in disk.partitions if part.node == node), None)
    if part is None:
        return
    if list(type_steps([Placed(Member(judged, part), f"/dev/{node}", part.extent)])):
        yield existing.differ(node, f"the type of the partition {node} is not that of a RAID member")
    if goal.member_size is not None and part.extent.length != goal.member_size:
        wanted = format_size(goal.member_size)
        yield existing.differ(
            node, f"{node} has {format_size(part.extent.length)}, not the requested {wanted}"
        )
    room = (disk.size or 0) - part.extent.end
    if goal.spare_room is not None and room < goal.spare_room:
        text = f"{format_size(max(room, 0))} are free behind {node}, not the requested"
        yield existing.differ("--spare-end", f"{text} {format_size(goal.spare_room)}")


# The file system.


def _content_differences(existing: Existing) -> Iterator[Refusal]:
    goal = existing.goal
    disk = existing.disk
    on_array = kind_named(goal.filesystem).on_array
    if on_array is None:
        return
    if not disk.content_read:
        yield existing.differ("--fs", "its content could not be read", "run the same command with sudo")
        return
    if disk.partitions or [layer.kind for layer in disk.content] != [goal.filesystem]:
        words = (*contents(disk), *([counted(len(disk.partitions), "partition")] if disk.partitions else ()))
        found = ", ".join(words) or "nothing that is recognised"
        yield existing.differ("--fs", f"it holds {found}, not {goal.filesystem}")
        return
    (layer,) = disk.content
    label = label_of(goal)
    if layer.label != label and short_name(existing.disk) == goal.name:
        has = repr(layer.label) if layer.label else "unknown or empty"
        yield existing.differ("--name", f"the label of its {goal.filesystem} is {has}, not {label!r}")
    for key, text in size_differences(layer, goal, existing.head):
        yield existing.differ(key, text)


def size_differences(layer: Layer, goal: RaidGoal, head: bytes) -> Iterator[tuple[str, str]]:
    """Yield the key and a phrase for each size of the file system that is not the requested one. `head`: its
    first bytes.
    """
    on_array = kind_named(goal.filesystem).on_array
    if on_array is None:
        return
    inode, log = on_array.sizes_in(head)
    found_sizes = {"block_size": (layer.data_unit, goal.block_size), "inode_size": (inode, goal.inode_size)}
    found_sizes = found_sizes if on_array.inode_sizes else {}
    found_sizes |= {"log_size": (log, goal.log_size)} if on_array.log_sizes else {}
    for key, (size, wants) in found_sizes.items():
        if wants is not None and size != wants:
            has = format_size(size) if size else "unknown"
            yield key, f"{key} of its {goal.filesystem} is {has}, not {format_size(wants)}"


# What makes it appear at every boot.


def _mount_differences(existing: Existing) -> Iterator[Refusal]:
    """Compare the files of the system and what is mounted: what `raid persist` would change differs."""
    goal = existing.goal
    path = existing.disk.path
    place = goal.place
    try:
        plan = plan_persist(existing.disk, existing.array.inventory, PersistGoal(goal.system, place or None))
    except Refused as refused:
        yield from refused.refusals
        return
    persist = persist_command(path, existing.array.system, *(("--mount", place) if place else ()))
    for text in _unmet(plan.steps):
        yield existing.differ(path, text, persist)
    lines = existing.array.fstab_lines()
    if goal.filesystem == SWAP.name:
        swaps = [line for line in lines if line.kind == SWAP.name]
        if not swaps or _SWAP_PLACE not in existing.disk.mounted_at:
            hint = by_hand(ByHand.SYSTEM_FILES, "an editor", boot.FSTAB)
            yield existing.differ(boot.FSTAB, "it is not in use as swap space, now and by fstab", hint)
    elif not place and goal.filesystem not in NOT_MOUNTED:
        for line in lines:
            yield existing.differ("--mount", f"fstab mounts it at {line.place}", f"--mount {line.place}")
    for line in lines if place else ():
        missing = [word for word in goal.mount_options or () if word not in line.options]
        if missing:
            text = f"its line in fstab lacks the option {', '.join(missing)}"
            hint = by_hand(ByHand.SYSTEM_FILES, "an editor", boot.FSTAB)
            yield existing.differ(boot.FSTAB, text, hint)


def _unmet(steps: Sequence[Step]) -> Iterator[str]:
    """Yield what the steps of `raid persist` would change, a phrase each."""
    for step in steps:
        match step:
            case EditFile(path, lines):
                yield f"{path} lacks a line of it: {'; '.join(lines)}"
            case WriteFile(path):
                yield f"{path} is missing or differs"
            case RebuildInitramfs():
                yield "an initramfs does not have its line"
            case Mount(path):
                yield f"it is not mounted at {path}"


def directory_differences(goal: RaidGoal, is_in_effect: InEffect) -> Iterator[tuple[str, str, str]]:
    """Compare who may use the file system, and what of it is mounted elsewhere. Yield the subject, a phrase,
    and what to do about it.
    """
    if not goal.place:
        return
    for step in (*boot.bind_edits(goal), *boot.directory_steps(goal)):
        found = _directory_words(step)
        if found is not None and not is_in_effect(step):
            path, text, program = found
            yield path, text, by_hand(ByHand.SYSTEM_FILES, program, shell_word(path))


def _directory_words(step: FileStep | SystemStep) -> tuple[str, str, str] | None:
    """Return the path of a step that is not in effect, a phrase, and the program that helps; None: it is not
    compared.
    """
    match step:
        case EditFile(path, lines):
            return path, f"{path} lacks a line of it: {'; '.join(lines)}", "an editor"
        case PrepareDirectory(path, mount) if path == mount:
            return path, f"{path} does not have the requested {access_words(step)}", "install"
        case BindMount(path, source):
            return path, f"its directory {source} is not mounted at {path}", "mount"
    return None


def _boot_partition_differences(existing: Existing) -> Iterator[Refusal]:
    """Compare the EFI system partitions, whose ids come from the UUID of the file system, and the files that
    keep them in sync.
    """
    goal = existing.goal
    layers = existing.disk.content
    if not goal.esp_size:
        return
    if len(layers) != 1 or not layers[0].uuid or not existing.facts.uuid:
        yield existing.differ("esp_size", "its EFI system partitions cannot be compared")
        return
    made = replace(goal, array_uuid=existing.facts.uuid, filesystem_uuid=layers[0].uuid)
    members = [Member(judged) for judged in existing.named]
    placed = place_members(members, made, level_of(existing.facts.level))
    for member, volume in zip(members, boot.boot_volumes(made, placed), strict=True):
        parts = [
            part for part in member.disk.partitions if part.type_code.upper() == ROLES["esp"].gpt.upper()
        ]
        found = [part for part in parts if any(layer.uuid == volume for layer in part.content)]
        if not any(part.extent.length >= goal.esp_size for part in found):
            text = f"{member.name} has no EFI system partition {volume} of {format_size(goal.esp_size)}"
            yield existing.differ(member.name, text)
    for step in boot.boot_copy_steps(made, placed):
        if isinstance(step, FileStep | EnableUnit) and not existing.is_in_effect(step):
            what = step.unit if isinstance(step, EnableUnit) else step.path
            yield existing.differ(what, f"{what} does not keep its EFI system partitions in sync")
