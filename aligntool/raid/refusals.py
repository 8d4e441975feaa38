"""Why an array is not planned: because of its members, or because of what is wanted.

In: the members, and the goal. Out: reasons, each with the next thing to type; all of them at once. Alone because this
is
what stands between a slip of the keyboard and somebody's data.
"""

import re
from collections.abc import Iterator, Sequence

from aligntool.audit.words import layer_name, shell_word
from aligntool.errors import Refused
from aligntool.inventory import DiskKind, Layer, Partition, Role
from aligntool.plan import RaidGoal
from aligntool.raid.levels import LEVELS, WORKLOADS, copies_of, layouts_of
from aligntool.raid.members import Member
from aligntool.units import KIB, format_about, format_size, is_power_of_two

Reason = tuple[str, str]
"""Why, and what to type next."""

FILE_SYSTEMS = ("xfs", "ext4", "btrfs", "swap", "none")
METADATA = ("1.2", "1.0")
BITMAPS = ("internal", "none")
MEMBERS = ("new-partitions", "partitions", "whole-drives")
PAGE = 4 * KIB  # the kernel's: a chunk is a multiple of it (md.c, raid5.c setup_conf)
LONGEST_NAME = 32  # mdadm(8), --name
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def refuse_unfit(members: Sequence[Member], goal: RaidGoal) -> None:
    """Raises Refused with every reason there is."""
    reasons = [*_about_goal(goal, len(members)), *_about_count(members, goal), *_about_paths(members)]
    reasons += [*_about_kinds(members, goal), *_about_sectors(members), *_about_wipe(members, goal)]
    for member in members:
        reasons += _about_member(member, goal)
    if reasons:
        hints = dict.fromkeys(hint for _, hint in reasons if hint)
        raise Refused("\n".join(dict.fromkeys(why for why, _ in reasons)), hint="\n".join(hints))


def _about_goal(goal: RaidGoal, members: int) -> Iterator[Reason]:
    words: tuple[tuple[str, str | None, tuple[str, ...], str], ...] = (
        ("level", goal.level, tuple(LEVELS), "--level"),
        ("workload", goal.workload, WORKLOADS, "--workload"),
        ("file system", goal.filesystem, FILE_SYSTEMS, "--fs"),
        ("metadata version", goal.metadata, METADATA, ""),
        ("bitmap", goal.bitmap, BITMAPS, ""),
        ("kind of member", goal.members, MEMBERS, ""),
    )
    for what, word, allowed, option in words:
        if word is not None and word not in allowed:
            yield f"{word!r} is no {what} of an array here", f"{option or what}: {', '.join(allowed)}"
    if not _NAME.fullmatch(goal.name) or len(goal.name) > LONGEST_NAME:
        yield (
            f"{goal.name!r} is no name for an array: letters, digits, '.', '_' and '-', at most {LONGEST_NAME}",
            "--name data",
        )
    if goal.mount_at and not re.fullmatch(r"/[^\s\\#]*", goal.mount_at):
        yield f"{goal.mount_at!r} is no place to mount at that fstab could hold", f"--mount /srv/{goal.name}"
    if level := LEVELS.get(goal.level):
        allowed = layouts_of(level, members)
        if goal.layout is not None and goal.layout not in allowed:
            yield (
                f"{level.title} of {members} has no layout {goal.layout!r}",
                f"layouts: {', '.join(allowed) or 'none'}",
            )
        if goal.bitmap == "internal" and not level.redundant:
            yield f"{level.title} has nothing to resynchronise, so it has no bitmap", ""
        yield from _about_chunk(goal)


def _about_chunk(goal: RaidGoal) -> Iterator[Reason]:
    """What md itself refuses: raid0.c create_strip_zones, raid5.c setup_conf, raid10.c setup_geo, mdadm Create.c."""
    level, chunk = LEVELS[goal.level], goal.chunk
    if chunk is None:
        return
    if not level.striped:
        yield f"{level.title} has no chunk: every member holds everything", "leave --chunk out"
    elif chunk <= 0 or chunk % PAGE:
        yield (
            f"a chunk of {format_size(chunk)} is no multiple of the kernel's pages of {format_size(PAGE)}",
            "--chunk 64KiB",
        )
    elif level.word != "raid0" and not is_power_of_two(chunk):
        yield (
            f"a chunk of {format_size(chunk)} is no power of two, which {level.title} asks for",
            "--chunk 64KiB",
        )


def _about_count(members: Sequence[Member], goal: RaidGoal) -> Iterator[Reason]:
    level = LEVELS.get(goal.level)
    if level is None:
        return
    layout = goal.layout or (layouts_of(level, len(members)) or ("",))[0]
    least = max(level.least_members, copies_of(level, 0, layout))
    if len(members) < least:
        counted = f"{least} members, and {len(members)} {'is' if len(members) == 1 else 'are'} named"
        yield f"{level.title} needs at least {counted}", "name more drives"


def _about_paths(members: Sequence[Member]) -> Iterator[Reason]:
    """Two names for one drive: multipath, two namespaces, two partitions. One failure would take both."""
    seen: dict[object, Member] = {}
    for member in members:
        disk = member.disk
        keys: list[object] = [("path", disk.path)]
        keys += [("wwn", disk.wwn)] if disk.wwn else []
        keys += [("serial", disk.model, disk.serial)] if disk.serial else []
        other = next((seen[key] for key in keys if key in seen), None)
        if other is not None:
            same = f"WWN {disk.wwn}" if disk.wwn and disk.wwn == other.disk.wwn else f"serial {disk.serial}"
            why = "both on one drive" if disk.path == other.disk.path else f"one drive by two names, {same}"
            yield (
                f"{other.name} and {member.name} are {why}: they would fail together",
                "name each drive once",
            )
        seen.update(dict.fromkeys(keys, member))


def _about_kinds(members: Sequence[Member], goal: RaidGoal) -> Iterator[Reason]:
    """Drives get a table, partitions keep theirs, and no array is made of both."""
    parts = [member.name for member in members if member.partition]
    drives = [member.name for member in members if not member.partition]
    if parts and drives:
        yield (
            f"{', '.join(parts)} are partitions and {', '.join(drives)} whole drives",
            "name partitions only, or drives only",
        )
    elif drives and goal.members == "partitions":
        yield (
            f"{', '.join(drives)}: partitions were asked for, and these are drives",
            "name partitions: /dev/nvme0n1p3",
        )
    elif parts and goal.whole_drives:
        yield f"{', '.join(parts)}: whole drives were asked for, and these are partitions", "name the drives"
    if parts and goal.esp_size:
        yield "an EFI system partition needs a new table, and partitions were named", "name the drives"


def _about_sectors(members: Sequence[Member]) -> Iterator[Reason]:
    """An array of both counts in the larger ones, and changes when a member goes (kernel commit 6c6b66f65e55)."""
    sizes = {member.name: member.disk.limits.logical_block_size for member in members}
    if len(set(sizes.values()) - {None}) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        yield (
            "the members have logical blocks of different sizes, and an array of them changes its own when one "
            f"fails: {told}",
            "nvme format --lbaf=N /dev/nvmeXn1 gives a drive other blocks, and erases it",
        )


def _about_wipe(members: Sequence[Member], goal: RaidGoal) -> Iterator[Reason]:
    """A name that is no member is a slip of the keyboard, and the next one may be worse."""
    for name in goal.wipe:
        if not any(_is_named(member, name) for member in members):
            yield (
                f"--wipe {name}: that is no member of this array",
                f"members: {', '.join(each.name for each in members)}",
            )


def _about_member(member: Member, goal: RaidGoal) -> Iterator[Reason]:
    disk, part = member.disk, member.partition
    if disk.kind is DiskKind.IMAGE:
        yield (
            f"{disk.path} is a file; md works on block devices",
            f"losetup -f --show {shell_word(disk.path)}",
        )
        return
    if not disk.size:
        yield f"nobody says how large {disk.name} is", ""
    if disk.read_only:
        yield f"{disk.name} is read-only", ""
    if disk.failing:
        yield (
            f"{disk.name} says that it fails: {disk.failing}",
            f"smartctl -a {shell_word(disk.path)}; replace it first",
        )
    if part is not None and part.role in (Role.EXTENDED, Role.MAP, Role.NESTED):
        yield f"{member.name} is no partition of its own but {part.role.value}", ""
    yield from _about_use(member)
    yield from _about_content(member, goal)


def _about_use(member: Member) -> Iterator[Reason]:
    disk = member.disk
    used: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
    if member.partition is not None:
        used.append((member.name, member.partition.mounted_at, member.partition.holders))
    else:
        used += [
            (Member(member.judged, part).name, part.mounted_at, part.holders) for part in disk.partitions
        ]
    used.append((disk.name, disk.mounted_at, disk.holders))
    for name, places, holders in used:
        for place in places:
            hint = f"swapoff /dev/{name}" if place == "[SWAP]" else f"umount {shell_word(place)}"
            yield f"{name} is mounted at {place}", hint
        for holder in holders:
            yield f"{name} is a part of {holder}, which is running", f"aligntool audit {holder}"


def _about_content(member: Member, goal: RaidGoal) -> Iterator[Reason]:
    disk, part = member.disk, member.partition
    read = part.content_read if part else disk.table_read and disk.content_read
    if not read:
        yield (
            f"nobody could look whether {member.name} is empty",
            f"sudo aligntool audit {shell_word(disk.path)}",
        )
    elif not wiped(member, goal):
        hint = f"--wipe {shell_word(member.name)} gives all of it up"
        yield from ((f"{member.name} is not empty: {each}", hint) for each in holdings(member))


def wiped(member: Member, goal: RaidGoal) -> bool:
    """The user named it as one whose content may be lost."""
    return any(_is_named(member, name) for name in goal.wipe)


def _is_named(member: Member, name: str) -> bool:
    paths = (member.name, f"/dev/{member.name}")
    return name in paths or (member.partition is None and name == member.disk.path)


def holdings(member: Member) -> tuple[str, ...]:
    """What lies on what would be taken, a phrase each."""
    disk, part = member.disk, member.partition
    if part is not None:
        return _content(part.content, part.content_hint)
    found = [f"partition {each.number}, {_partition(each)}" for each in disk.partitions]
    found += [f"{what} on the whole drive" for what in _content(disk.content, disk.content_hint)]
    if disk.table and not disk.partitions:
        found.append(f"a partition table ({disk.table.label}) without partitions")
    return tuple(found)


def _partition(part: Partition) -> str:
    what = ", ".join(_content(part.content, part.content_hint)) or part.type_name or "no known content"
    return f"{what}, {format_about(part.extent.length)}"


def _content(layers: Sequence[Layer], hint: str | None) -> tuple[str, ...]:
    found = tuple(f'{layer_name(each)} "{each.label}"' if each.label else layer_name(each) for each in layers)
    return found or ((hint,) if hint else ())
