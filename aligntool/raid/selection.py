"""Find the drives of an array that is to exist at every boot, and what is there of it already."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.audit.array_boot import short_name
from aligntool.audit.inactive_arrays import prospects
from aligntool.audit.wording import audit_command, contents_of_disk
from aligntool.change import ArrayPlan, EnsureGoal, RaidGoal
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.md import MD
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, DiskKind, Inventory, array_uuid, layers_on, superblocks_on
from aligntool.raid import one_drive
from aligntool.raid.stale import lines_in_the_way
from aligntool.raid.steps_drives import is_same_drive
from aligntool.recipes.schema import normal, parse_pattern
from aligntool.units import counted, first_of

Names = Mapping[str, Sequence[str]]
"""The names in /dev/disk/by-id of each drive, by its path."""

DRIVES = (DiskKind.NVME, DiskKind.ATA, DiskKind.SCSI, DiskKind.VIRTIO)
# The models of ephemeral drives: the EC2 user guide, "Instance store"; google-guest-configs,
# 65-gce-disk-naming.rules, whose persistent disks are "nvme_card-pd"; azure-vm-utils, 80-azure-disk.rules.
INSTANCE_STORES = (
    "Amazon EC2 NVMe Instance Storage",
    "nvme_card",
    "nvme_card[0-9]*",
    "Microsoft NVMe Direct Disk",
    "Microsoft NVMe Direct Disk v2",
)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is for an array. `running`: the array of its name; `drives`: those that it has or gets."""

    running: Disk | None
    drives: tuple[Disk, ...]
    more: tuple[Disk, ...] = ()  # selected, but not in the running array
    is_plain: bool = False  # the only drive has the plain file system already
    others: str = ""  # each drive that was seen and is not selected, with the reason


def find_drives(goal: EnsureGoal, inventory: Inventory, names: Names) -> Found:
    """Return the array that runs, or the drives for a new one. Raises Refused if neither can be said."""
    arrays = [disk for disk in inventory.disks if disk.array and short_name(disk) == goal.array.name]
    refuse(_refuse_several(arrays))
    whys = {disk.name: _why_not(disk, goal, inventory, names) for disk in inventory.disks}
    selected = [disk for disk in inventory.disks if not whys[disk.name]]
    if arrays:
        return _of_running(arrays[0], selected, goal, inventory)
    refuse(_refuse_parts(selected, goal, inventory))
    others = [disk for disk in inventory.disks if disk.kind in DRIVES and whys[disk.name]]
    # First those that the patterns mean, and that are not unused.
    others.sort(key=lambda disk: whys[disk.name] != _use_of(disk))
    why_not = _short_list([f"{_identity(disk)}: {whys[disk.name]}" for disk in others])
    refuse(_refuse_number(selected, goal, why_not))
    is_plain = len(selected) == 1 and _has_file_system(selected[0], goal)
    return Found(None, tuple(selected), is_plain=is_plain, others=why_not)


def is_gone(plan: ArrayPlan, goal: EnsureGoal, inventory: Inventory, names: Names) -> bool:
    """Return whether nothing is left of an interrupted making, as after an instance was stopped: every drive
    that is selected, and every one of the plan that is there, is unused.
    """
    try:
        found = find_drives(goal, inventory, names)
    except Refused:
        return False
    theirs = [disk for disk in inventory.disks if any(is_same_drive(disk, step) for step in plan.drives)]
    return bool(found.drives) and not any(map(_use_of, (*found.drives, *theirs)))


def _refuse_several(arrays: Sequence[Disk]) -> Iterator[Refusal]:
    if len(arrays) > 1:
        paths = ", ".join(disk.path for disk in arrays)
        text = f"several running arrays have the name {short_name(arrays[0])}: {paths}"
        yield Refusal("name-ambiguous", short_name(arrays[0]), text, "aligntool raid show")


def _of_running(array: Disk, selected: list[Disk], goal: EnsureGoal, inventory: Inventory) -> Found:
    """Return the running array with its drives. One that the file does not select is refused, not removed."""
    members = set(array.array.members if array.array else ())
    has = [disk for disk in inventory.disks if not members.isdisjoint(_nodes(disk))]
    others = [disk for disk in has if disk not in selected]
    refuse(
        Refusal(
            "array-differs",
            disk.name,
            f"{array.path} exists, and {disk.name}, on which it has a member, is not selected",
            typed("aligntool raid show", array.path),
        )
        for disk in others
    )
    # whether members are missing is compared later, and named
    is_degraded = bool(array.array and array.array.degraded)
    wanted = replace(goal.drives, least=1) if is_degraded else goal.drives
    refuse(_refuse_number(has, replace(goal, drives=wanted)))
    if is_plain(goal, has) and array.array and array.array.devices == 1:
        text = f"{array.path} exists on {has[0].name}, where the file wants a plain file system"
        refuse([Refusal("array-differs", array.path, text, typed("aligntool raid show", array.path))])
    return Found(array, tuple(has), tuple(disk for disk in selected if disk not in has))


def _nodes(disk: Disk) -> set[str]:
    return {disk.name, *(part.node for part in disk.partitions if part.node)}


def _why_not(disk: Disk, goal: EnsureGoal, inventory: Inventory, names: Names) -> str:
    """Return the first reason why the drive does not match every kind of pattern that is given, or ""."""
    wanted = goal.drives
    size = disk.size or 0
    if disk.kind not in DRIVES or disk.removable:
        return "removable" if disk.removable else "not a drive"
    if not size or size < wanted.least_size or (wanted.most_size is not None and size > wanted.most_size):
        return "another size"
    models = (*wanted.models, *(INSTANCE_STORES if wanted.instance_store else ()))
    patterns = (
        (f"model {disk.model or 'unknown'}, not {_quoted(models)}", models, (disk.model or "",)),
        ("another name in /dev/disk/by-id", wanted.names, names.get(disk.path, ())),
        (
            "another PCI address",
            wanted.addresses,
            tuple(hop.address for path in disk.links for hop in path[:1]),
        ),
    )
    for why, texts, found in patterns:
        if texts and not _matches(texts, found):
            return why
    is_listed = bool(disk.serial) and disk.serial in wanted.wiped_serials
    is_own = _has_member(disk, goal.array, inventory) or _has_file_system(disk, goal)
    return "" if not wanted.unused or is_listed or is_own else _use_of(disk)


def _quoted(patterns: Sequence[str]) -> str:
    return first_of([f'"{text}"' for text in patterns], 2)


def _has_file_system(disk: Disk, goal: EnsureGoal) -> bool:
    """Return whether the drive has the file system that the file wants on a single one."""
    return goal.drives.one == "filesystem" and one_drive.find_file_system(disk, goal.array) is not None


def _matches(patterns: Sequence[str], found: Sequence[str]) -> bool:
    return any(parse_pattern(text).fits(normal(each)) for text in patterns for each in found)


def _use_of(disk: Disk) -> str:
    """Return why the drive is not unused, or "" if nothing is recognised on it; it may hold data all the
    same, which is sampled before a plan is made.
    """
    if not (disk.table_read and disk.content_read):
        return "its content could not be read"
    if disk.mounted_at or disk.holders:
        return "in use"
    if disk.read_only:
        return "read-only"
    contents = contents_of_disk(disk)
    return f"has {first_of(contents, 2)}" if contents else ""


def _has_member(disk: Disk, array: RaidGoal, inventory: Inventory) -> bool:
    """Return whether a superblock on the drive is of an array of this name, or of the one that mdadm.conf
    has under this name.
    """
    files = inventory.system
    uuids = {line.uuid for line in lines_in_the_way(files, array)} if files else set()
    running = {disk.array.uuid for disk in inventory.disks if disk.array and short_name(disk) == array.name}
    if not (uuids | running).isdisjoint(superblocks_on(disk)):
        return True
    labels = (layer.label for layer in layers_on(disk, None) if array_uuid(layer))
    return any((label or "").rpartition(":")[2] == array.name for label in labels)


def _refuse_parts(selected: Sequence[Disk], goal: EnsureGoal, inventory: Inventory) -> Iterator[Refusal]:
    """Refuse to make an array anew of which a member is there, even if every other drive is blank."""
    has = [disk for disk in selected if _has_member(disk, goal.array, inventory)]
    if not has and len(selected) > 1:
        yield from _refuse_plain(selected, goal)
    if not has:
        return
    named = ", ".join(_identity(disk) for disk in has)
    blank = ", ".join(_identity(disk) for disk in selected if disk not in has)
    rest = f", and {blank} {'has' if len(selected) == len(has) + 1 else 'have'} none" if blank else ""
    text = f"the array {goal.array.name} does not run, but a member of it is on {named}{rest}"
    text += f": it is not made anew{_prospects(has)}"
    by_it = by_hand(ByHand.MEMBERS, "mdadm", ", ".join(disk.path for disk in has))
    yield Refusal("not-empty", goal.array.name, text, "\n".join((*_looks(has, inventory), by_it)))


def _prospects(has: Sequence[Disk]) -> str:
    """Return what of the array is kept and lost, if the superblocks are all of one array."""
    found = [layer for disk in has for layer in layers_on(disk, None) if layer.kind == MD.name]
    if len({layer.uuid for layer in found}) != 1 or not found[0].raid_members:
        return ""
    members = counted(found[0].raid_members, "member")
    return f"; {len(found)} of {members} are there, {prospects(found[0], len(found))[1]}"


def _looks(has: Sequence[Disk], inventory: Inventory) -> Iterable[str]:
    """Return the commands that show the array that is not started, or else the drives with its members."""
    nodes = {node for disk in has for node in _nodes(disk)}
    arrays = [disk for disk in inventory.disks if disk.slaves and nodes.issuperset(disk.slaves)]
    inactive = [typed("mdadm --detail", disk.path) for disk in arrays if disk.kind is DiskKind.MD]
    return inactive or dict.fromkeys(audit_command(disk) for disk in has)


def _refuse_plain(selected: Sequence[Disk], goal: EnsureGoal) -> Iterator[Refusal]:
    """Refuse to make an array beside the plain file system that one of several drives has."""
    for disk in (disk for disk in selected if _has_file_system(disk, goal)):
        text = f"{_identity(disk)} has the file system {goal.array.name} of a single drive"
        text += f", and {len(selected)} drives are selected: the array is not made"
        yield Refusal("not-empty", disk.name, text, audit_command(disk))


def _identity(disk: Disk) -> str:
    return f"{disk.name} (serial {disk.serial})" if disk.serial else disk.name


_MOST_NAMED = 8


def _short_list(others: Sequence[str]) -> str:
    more = f"; and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    return "; ".join(others[:_MOST_NAMED]) + more


def _refuse_number(drives: Sequence[Disk], goal: EnsureGoal, others: str = "") -> Iterator[Refusal]:
    """Refuse too few or too many drives. `others`: drives that are not selected, with the reason."""
    wanted = goal.drives
    count = len(drives)
    named = ", ".join(map(_identity, drives)) or "none"
    if not count and wanted.may_be_none:
        return
    if count < wanted.least:
        verb = "is" if wanted.least == 1 else "are"
        chosen = "1 is" if count == 1 else f"{count} are"
        text = f"at least {counted(wanted.least, 'drive')} {verb} wanted, and {chosen} selected: {named}"
        text += f"; not selected: {others}" if others else ""
        yield Refusal("too-few-members", goal.array.name, text, "aligntool audit")
    if wanted.most is not None and count > wanted.most:
        verb = "is" if wanted.most == 1 else "are"
        text = f"at most {counted(wanted.most, 'drive')} {verb} wanted, and {count} are selected: {named}"
        yield Refusal("too-many-members", goal.array.name, text, "aligntool audit")


def is_plain(goal: EnsureGoal, drives: Sequence[Disk]) -> bool:
    """Return whether these drives get a plain file system instead of an array."""
    return len(drives) == 1 and goal.drives.one == "filesystem"


def goal_for(goal: EnsureGoal, drives: Sequence[Disk]) -> RaidGoal:
    """Return the goal of the array of these drives: one drive becomes what the file says, and
    the content of drives whose serial is listed may be overwritten.
    """
    array = goal.array
    if len(drives) == 1 and goal.drives.one == "raid0":
        array = replace(array, level="raid0", one_drive=True, bitmap=None, metadata="1.2")
    elif is_plain(goal, drives):
        array = one_drive.goal_of(array)
    listed = [disk for disk in drives if disk.serial and disk.serial in goal.drives.wiped_serials]
    return replace(array, wipe=tuple(disk.path for disk in listed))
