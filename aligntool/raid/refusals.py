"""Every reason why an array cannot be created as requested."""

import re
from collections.abc import Iterator, Sequence
from itertools import permutations

from aligntool.audit.arrays import Member
from aligntool.audit.wording import (
    audit_command,
    change_by_hand,
    contents,
    contents_or_data,
    device_refusals,
    inner_first,
    look_at,
    refuse_sparse,
    replacement_hint,
    shell_word,
    unrecognised_data,
    use_refusals,
)
from aligntool.change import MOUNT_POINT, NOT_MOUNTED, RAID_WORDS, EnsureGoal, RaidGoal
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refusal
from aligntool.inventory import Disk, DiskKind, LbaFormat, Role, Sampled
from aligntool.raid.boot import SYSTEMS
from aligntool.raid.commands import ArrayGeometry, new_array
from aligntool.raid.lba_formats import format_of
from aligntool.raid.levels import LEVELS, layouts_of, least_members
from aligntool.raid.measured import TEST_UUID, has_test_array
from aligntool.raid.members import Placed, own_length
from aligntool.steps import recognised_content
from aligntool.units import KIB, format_about, format_size, is_power_of_two

# Reasons in the goal, for any members.
#
# md, mdadm or fstab would refuse these, too, and no drive has to be read to find them.

PAGE = 4 * KIB  # the kernel's page: a chunk is a multiple of it (md.c, raid5.c setup_conf)
MOST_COPIES = 255  # of a RAID10: one byte of its layout (raid10.c, setup_geo)
# a name that is a number becomes that of the node: md.c, add_named_array, MINORMASK
MOST_NUMBER = (1 << 20) - 1
LONGEST_NAME = 27  # 31 with the prefix "any:", which mdadm omits from a longer name (super1.c)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def goal_problems(goal: RaidGoal, members: int | None = None) -> Iterator[Refusal]:
    """Yield every reason in the goal itself, for an array of that many members; None: of any number."""
    titles = {"filesystem": "file system", "metadata": "metadata version", "members": "kind of member"}
    options = {"level": "--level", "workload": "--workload", "filesystem": "--fs"}
    for key, allowed in RAID_WORDS.items():
        word = getattr(goal, key)
        title = titles.get(key, key)
        if word is not None and word not in allowed:
            option = options.get(key, title)
            text = f"{word!r} is not a supported {title}"
            yield Refusal("invalid-option", option, text, f"{option}: {', '.join(allowed)}")
    yield from _refuse_names(goal)
    for option in goal.mount_options or ():
        if re.search(r"\s", option):
            text = f"{option!r} is not a mount option: white space would end the field in fstab"
            yield Refusal(
                "invalid-option", "mount_options", text, 'mount_options = ["noatime", "nodiratime"]'
            )
    yield from _refuse_mkfs_sizes(goal)
    if goal.system not in SYSTEMS:
        text = f"{goal.system!r} is not a supported system"
        yield Refusal("invalid-option", "--system", text, f"--system: {', '.join(SYSTEMS)}")
    level = LEVELS.get(goal.level)
    if level:
        if members is None:
            members = min(least_members(level, goal.layout or ""), MOST_COPIES)
        allowed = layouts_of(level, members)
        if goal.layout is not None and goal.layout not in allowed:
            text = f"{level.title} of {members} members has no layout {goal.layout!r}"
            yield Refusal("invalid-option", "--layout", text, f"layouts: {', '.join(allowed) or 'none'}")
        if goal.bitmap == "internal" and not level.redundant:
            text = f"{level.title} has nothing to resynchronise, so it has no bitmap"
            yield Refusal("invalid-option", "--bitmap", text)
        if goal.metadata == "1.0" and level.striped:
            text = f"metadata 1.0 is for members that can be read alone, unlike those of a {level.title}"
            yield Refusal("invalid-option", "--metadata", text, "--metadata 1.2")
        yield from _refuse_chunk(goal)
        yield from _refuse_first_sync(goal)


def ensure_problems(goal: EnsureGoal) -> Iterator[Refusal]:
    """Yield every reason why a file of `raid ensure` can never work, whatever the drives."""
    array = goal.array
    yield from goal_problems(array)
    level = LEVELS.get(array.level)
    most = goal.drives.most
    if level and most is not None and goal.drives.one == "error":
        least = least_members(level, array.layout or "")
        if most < least:
            text = f"{level.title} needs at least {least} members, and at_most allows {most}"
            yield Refusal("too-few-members", "at_most", text, f"at_most = {least}")


def _refuse_names(goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse a name or a mount point that mdadm or fstab would not take as it is."""
    if not _NAME.fullmatch(goal.name) or len(goal.name) > LONGEST_NAME:
        text = (
            f"{goal.name!r} is not a valid array name: letters, digits, '.', '_' and '-', at most"
            f" {LONGEST_NAME}"
        )
        yield Refusal("invalid-option", "--name", text, "--name data")
    elif re.fullmatch(r"(md)?\d+", goal.name) and int(goal.name.removeprefix("md")) > MOST_NUMBER:
        text = f"mdadm takes the name {goal.name} for the number of the array, which is at most {MOST_NUMBER}"
        yield Refusal("invalid-option", "--name", text, f"--name n{goal.name[: LONGEST_NAME - 1]}")
    if goal.mount_at and goal.filesystem in NOT_MOUNTED:
        content = "swap space" if kind_named(goal.filesystem).on_array else "no file system"
        text = f"nothing can be mounted at {goal.mount_at}: the array gets {content}"
        yield Refusal("invalid-option", "--mount", text, "omit --mount, or choose --fs xfs")
    yield from _refuse_directories(goal)
    if goal.mount_at and not MOUNT_POINT.fullmatch(goal.mount_at):
        text = f"{goal.mount_at!r} is not a valid mount point for fstab"
        yield Refusal("invalid-option", "--mount", text, f"--mount /srv/{goal.name}")


def _refuse_directories(goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse directories of a file system that is not mounted, or that fstab cannot have as a list of mounts
    that each wait for another one.
    """
    keys = [key for key in ("owner", "group", "mode", "binds") if getattr(goal, key)]
    if keys and not goal.place:
        text = f"{', '.join(keys)}: only a file system that is mounted has directories"
        yield Refusal("invalid-option", "--mount", text, f"--mount /srv/{goal.name}")
    if not (goal.binds and goal.place):
        return
    if goal.place == "/" or "," in goal.place:
        text = f"the directories of what is mounted at {goal.place} cannot be mounted elsewhere"
        yield Refusal("invalid-option", "--mount", text, f"--mount /srv/{goal.name}")
    paths = [goal.place, *(bind.path for bind in goal.binds)]
    for one, other in permutations(paths, 2):
        if f"{one}/".startswith(f"{other.rstrip('/')}/"):
            text = f"{one} is {'' if one == other else 'below '}{other}, which is another mount point of it"
            yield Refusal("invalid-option", one, text, "choose a path outside of it")


def _refuse_mkfs_sizes(goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse sizes that mkfs.xfs and mke2fs refuse or reduce: mkfs.xfs(8), mke2fs(8)."""
    on_array = kind_named(goal.filesystem).on_array
    block = goal.block_size or 4 * KIB
    if on_array is None or on_array.inode_sizes is None:
        return
    limits = {
        "block_size": (goal.block_size, KIB, 64 * KIB),
        "inode_size": (goal.inode_size, *on_array.inode_sizes(block)),
    }
    for key, (size, least, most) in limits.items():
        if size is not None and not (least <= size <= most and is_power_of_two(size)):
            found, *ends = map(format_size, (size, least, most))
            text = f"{goal.filesystem}: {key} must be a power of two from {ends[0]} to {ends[1]}, not {found}"
            yield Refusal("invalid-option", key, text, f"omit {key}")
    sizes = on_array.log_sizes
    log = goal.log_size
    if sizes and log is not None and (log % block or not sizes[0] <= log <= sizes[1]):
        found, *ends = map(format_size, (log, *sizes))
        text = (
            f"{goal.filesystem}: log_size must be a multiple of its blocks from {ends[0]} to {ends[1]}, not"
            f" {found}"
        )
        yield Refusal("invalid-option", "log_size", text, "omit log_size")


def _refuse_chunk(goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse what md refuses: raid0.c create_strip_zones, raid5.c setup_conf, raid10.c setup_geo, mdadm
    Create.c.
    """
    level = LEVELS[goal.level]
    chunk = goal.chunk
    if chunk is None:
        return
    text = ""
    hint = "omit --chunk: the plan recommends one"
    if not level.striped:
        text = f"{level.title} has no chunk: every member holds all data"
        hint = "omit --chunk"
    elif chunk <= 0 or chunk % PAGE:
        text = (
            f"a chunk of {format_size(chunk)} is not a multiple of the kernel's pages of {format_size(PAGE)}"
        )
    elif level.word != "raid0" and not is_power_of_two(chunk):
        text = f"a chunk of {format_size(chunk)} is not a power of two, which {level.title} requires"
    if text:
        yield Refusal("invalid-option", "--chunk", text, hint)


def _refuse_first_sync(goal: RaidGoal) -> Iterator[Refusal]:
    level = LEVELS[goal.level]
    options = {"--zero-members": goal.zero_members, "--fast-sync": goal.fast_sync}
    for option in (option for option, is_given in options.items() if is_given and not level.redundant):
        text = f"{level.title} has nothing to synchronise"
        yield Refusal("invalid-option", option, text, f"omit {option}")
    if goal.zero_members and goal.fast_sync:
        text = "an array of zeroed members has nothing to synchronise"
        yield Refusal("invalid-option", "--fast-sync", text, "omit --fast-sync")


# Reasons in the members.
#
# These checks keep a typing error from destroying data.


def member_problems(
    members: Sequence[Member], goal: RaidGoal, *, count: int, captured: bool = False
) -> Iterator[Refusal]:
    """Yield every reason in the goal and its members. `count`: members that were named, including missing
    ones. `captured`: they are of a captured machine, which shows only some of their content.
    """
    yield from goal_problems(goal, count)
    yield from _refuse_count(count, goal)
    for reasons in (
        _refuse_same_drive(members),
        _refuse_kinds(members, goal),
        _refuse_sectors(members, goal),
    ):
        yield from reasons
    if len(members) == count:
        yield from _refuse_wipe(members, goal)
    for member in members:
        yield from _refuse_member(member, goal, captured=captured)
    blank = [
        (member.disk, member.name, member.name)
        for member in members
        if not is_wiped(member, goal) and not any(_refuse_content(member, goal, captured=captured))
    ]
    yield from () if is_test(goal) else refuse_sparse(*blank)


def _refuse_count(count: int, goal: RaidGoal) -> Iterator[Refusal]:
    level = LEVELS.get(goal.level)
    if level:
        striped_only = level.word == "raid0"
        layout = goal.layout or (*layouts_of(level, count), "")[0]
        least = least_members(level, layout)
        if striped_only and goal.one_drive:
            least = 1
        if count < least:
            text = (
                f"{level.title} needs at least {least} members, and {count} {'is' if count == 1 else 'are'}"
                " named"
            )
            more = "name more drives"
            if striped_only and not is_test(goal):
                more += ", or accept one: --one-drive"
            yield Refusal("too-few-members", "--level", text, more)


def _refuse_same_drive(members: Sequence[Member]) -> Iterator[Refusal]:
    """Refuse two members on the same drive: by multipath, two namespaces, two partitions or two volumes. One
    failure would take both.
    """
    seen: dict[tuple[str | None, ...], Member] = {}
    for member in members:
        disk = member.disk
        keys: list[tuple[str | None, ...]] = [("path", disk.path)]
        keys += [("wwn", disk.wwn)] if disk.wwn else []
        keys += [("serial", disk.model, disk.serial)] if disk.serial else []
        keys += [("below", name) for name in disk.stands_on]
        found = next((key for key in keys if key in seen), None)
        if found is not None:
            other = seen[found]
            same = f"WWN {disk.wwn}" if disk.wwn and disk.wwn == other.disk.wwn else f"serial {disk.serial}"
            why = "both on one drive" if disk.path == other.disk.path else f"two names of one drive, {same}"
            why = f"both on {found[-1]}" if found[0] == "below" else why
            text = f"{other.name} and {member.name} are {why}: they would fail together"
            if other.name == member.name:
                text = f"{member.name} is named twice"
            yield Refusal("same-drive", member.name, text, "name each drive once")
        seen.update(dict.fromkeys(keys, member))


def _refuse_kinds(members: Sequence[Member], goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse a mix of drives and partitions, or members of another kind than requested."""
    parts = [member.name for member in members if member.partition]
    drives = [member.name for member in members if not member.partition]
    subject = ", ".join(parts or drives)
    if parts and drives:
        text = f"{subject} are partitions and {', '.join(drives)} whole drives"
        yield Refusal("wrong-members", subject, text, "name partitions only, or drives only")
    elif drives and goal.members == "partitions":
        text = f"{subject}: partitions were requested, but these are drives"
        yield Refusal("wrong-members", subject, text, "name partitions: /dev/nvme0n1p3")
    elif parts and goal.whole_drives:
        text = f"{subject}: whole drives were requested, but these are partitions"
        yield Refusal("wrong-members", subject, text, "name the drives")
    mapped = [member.name for member in members if not member.partition and member.disk.kind is DiskKind.DM]
    if mapped and goal.members == "new-partitions":
        text = f"{', '.join(mapped)}: the kernel creates no partitions on device-mapper devices"
        yield Refusal("mapping", ", ".join(mapped), text, "--whole-drives uses them as they are")
    if goal.esp_size and (parts or goal.whole_drives):
        why, hint = (
            ("partitions were named", "name the drives")
            if parts
            else ("whole drives were requested", "omit --whole-drives")
        )
        text = f"an EFI system partition needs a new partition table, but {why}"
        yield Refusal("wrong-members", subject, text, hint)


def _refuse_sectors(members: Sequence[Member], goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse members with different logical block sizes: the array has the largest of them, which may change
    when a member is removed (kernel commit 6c6b66f65e55).
    """
    sizes = {member.name: member.disk.limits.logical_block_size for member in members}
    if len({*sizes.values()} - {None}) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        text = (
            "the members have logical blocks of different sizes: those of the array would change when one"
            " fails"
        )
        yield Refusal(
            "block-sizes",
            ", ".join(sizes),
            f"{text}: {listed}",
            "\n".join(_hints_for_equal_blocks(members, goal)),
        )
    sector = max((size for size in sizes.values() if size), default=0)
    on_array = kind_named(goal.filesystem).on_array
    has_blocks = on_array is not None and on_array.inode_sizes is not None
    if has_blocks and (goal.block_size or sector) < sector:
        short = format_size(goal.block_size or 0)
        text = f"{goal.filesystem} cannot have blocks of {short} on logical blocks of {format_size(sector)}"
        yield Refusal("invalid-option", "block_size", text, "omit block_size")


def _hints_for_equal_blocks(members: Sequence[Member], goal: RaidGoal) -> Iterator[str]:
    """Yield how to format the fewest drives, preferably towards the larger blocks. Yield general
    advice if a drive that would be erased is in use, is not empty, or does not report its formats.
    """
    sizes = {size for member in members if (size := member.disk.limits.logical_block_size)}
    options = [
        formats for size in sorted(sizes, reverse=True) if (formats := _formats_for(members, goal, size))
    ]
    for member, form in min(options, key=len, default=[]):
        how = f"--lba-size {form.data_size}"
        if is_wiped(member, goal):  # it may hold data
            how = change_by_hand(member.disk, ByHand.SECTOR_SIZE, "nvme")
        yield f"format {form.index} erases {member.name} and gives it blocks of {form.data_size}: {how}"
    if not options:
        yield (
            "name members with the same block size, or change that of a drive"
            f" {by_hand(ByHand.SECTOR_SIZE, 'nvme')}"
        )


def _formats_for(members: Sequence[Member], goal: RaidGoal, size: int) -> list[tuple[Member, LbaFormat]]:
    """Return each member with other blocks and the format that it would get; [] if one of them cannot be
    formatted.
    """
    others = [member for member in members if member.disk.limits.logical_block_size != size]
    found = [
        (member, form)
        for member in others
        if _may_be_formatted(member, goal) and (form := format_of(member.disk, size))
    ]
    return found if len(found) == len(others) else []


def _may_be_formatted(member: Member, goal: RaidGoal) -> bool:
    """Return whether the member is a whole NVMe drive whose content is known, not in use, and empty or to be
    wiped.
    """
    disk = member.disk
    known = member.partition is None and disk.kind is DiskKind.NVME and disk.table_read and disk.content_read
    return known and not any(_refuse_used(member)) and (is_wiped(member, goal) or not member_holdings(member))


def _refuse_wipe(members: Sequence[Member], goal: RaidGoal) -> Iterator[Refusal]:
    """Refuse to wipe a name that is not a member: it is a typing error, and there may be others."""
    for name in goal.wipe:
        if not any(_is_named(member, name) for member in members):
            hint = f"members: {', '.join(member.name for member in members)}"
            yield Refusal("unknown-member", name, f"--wipe {name}: not a member of this array", hint)


def _refuse_member(member: Member, goal: RaidGoal, *, captured: bool) -> Iterator[Refusal]:
    disk = member.disk
    if disk.kind is DiskKind.IMAGE:
        hint = by_hand(ByHand.ATTACHING, "losetup", shell_word(disk.path))
        yield Refusal("file", disk.path, f"{disk.path} is a file; md works on block devices", hint)
        return
    if not disk.size:
        yield Refusal("size-unknown", disk.name, f"the size of {disk.name} is unknown")
    if disk.zoned not in (None, "none"):
        text = (
            f"{disk.name} is {disk.zoned} zoned: parts of it must be written in order, which md does not do"
        )
        yield Refusal("zoned", disk.name, text)
    yield from device_refusals(disk, member.partition, member.name)
    yield from _refuse_used(member)
    yield from _refuse_place(member)
    yield from _refuse_content(member, goal, captured=captured)


def _refuse_used(member: Member) -> Iterator[Refusal]:
    disk = member.disk
    above = member.judged.above
    uses = list[Refusal]()
    for part in (member.partition,) if member.partition else disk.partitions:
        name = Member(member.judged, part).name
        uses += use_refusals(name, name, part.mounted_at, part.holders, above=above)
    uses += use_refusals(disk.name, disk.name, disk.mounted_at, disk.holders, above=above)
    yield from inner_first(uses)
    yield from (Refusal("in-use", member.name, text, hint) for text, hint in disk.taken)


def _refuse_place(member: Member) -> Iterator[Refusal]:
    """Refuse an existing partition whose bytes are not its own, even with --wipe: its disk is a member of an
    array, the kernel has it elsewhere, or another partition overlaps it. Nothing of that need be recognised
    in the partition.
    """
    disk = member.disk
    part = member.partition
    name = member.name
    if part is None:
        return
    for layer in disk.content:
        if not kind_named(layer.kind).is_disc_image:  # of a hybrid image, which does not fill its disk
            text = f"{disk.name} as a whole is a {layer.kind}: the table belongs to the array"
            yield Refusal("array-member", name, text, look_at(disk, "wipefs --no-act"))
    seen = dict(disk.kernel_partitions).get(part.number, part.extent)
    if seen != part.extent:
        places = [f"{extent.start}..{extent.end}" for extent in (seen, part.extent)]
        text = f"{name}: the kernel has it at bytes {places[0]}, the table at {places[1]}"
        yield Refusal("kernel-differs", name, text, change_by_hand(disk, ByHand.KERNEL_TABLE, "partprobe"))
    for other in disk.partitions:
        if (
            other != part
            and other.role not in (Role.EXTENDED, Role.MAP)
            and other.extent.overlaps(part.extent)
        ):
            text = f"{name} and partition {other.number} of {disk.name} overlap"
            yield Refusal("table-damaged", name, text, look_at(disk, "sfdisk --verify"))


def refuse_unreadable(name: str, disk: Disk, sampled: Sampled) -> Iterator[Refusal]:
    """Refuse a drive, or a partition `name` of it, of which places cannot be read."""
    if sampled.unreadable:
        text = f"{name} cannot be read at {sampled.unreadable} of {sampled.places} places"
        yield Refusal("failing", name, text, replacement_hint(disk))


def _refuse_content(member: Member, goal: RaidGoal, *, captured: bool) -> Iterator[Refusal]:
    disk = member.disk
    part = member.partition
    name = member.name
    read = part.content_read if part else disk.table_read and disk.content_read
    if not (read or captured):
        needs_root = any(unseen.why.startswith("needs root") for unseen in disk.unseen)
        audit = audit_command(disk)
        look = "run the same command with sudo" if needs_root else audit
        yield Refusal("not-read", name, f"{name} could not be read, so it is not known to be empty", look)
    elif has_test_array(disk):
        clear = typed("aligntool raid tune --clear", f"/dev/{name}")
        yield Refusal("test-array", name, f"{name} holds a test array left by a sweep over chunks", clear)
    elif disk.sampled and disk.sampled.unreadable:
        yield from refuse_unreadable(name, disk, disk.sampled)
    elif not is_wiped(member, goal):
        hint = _hint_for_content(member, goal)
        for holding in member_holdings(member):
            yield Refusal("not-empty", name, f"{name} is not empty: {holding}", hint)


def _hint_for_content(member: Member, goal: RaidGoal) -> str:
    """Return how to see what is on a member, and how to lose it. Hints are pasted without thinking, so none
    that can be pasted destroys recognised content.
    """
    look = audit_command(member.disk)
    if goal.lba_size is not None or goal.zero_members:  # no drive with data is formatted or zeroed
        return look
    if _has_content(member):
        return f"{look}\n{MAY_BE_LOST}"
    return f"--wipe {shell_word(member.name)} overwrites all of it"


MAY_BE_LOST = (
    "if nothing on a drive is needed: name that drive once more, with --wipe, which overwrites all of it"
)
"""Hint for a member with recognised content."""


def is_test(goal: RaidGoal) -> bool:
    """Return whether the goal is a test array of a sweep over chunks, whose members are confirmed by their
    names.
    """
    return (goal.array_uuid or "").startswith(TEST_UUID)


def _has_content(member: Member) -> bool:
    """Return whether a partition or any content was recognised; unrecognised bytes and empty tables do not
    count.
    """
    disk = member.disk
    part = member.partition
    if part is not None:
        return bool(part.content or part.content_hint)
    return bool(disk.partitions or disk.content or disk.content_hint or disk.gpt_headers)


def is_wiped(member: Member, goal: RaidGoal) -> bool:
    """Return whether the user named the member with --wipe."""
    return any(_is_named(member, name) for name in goal.wipe)


def _is_named(member: Member, name: str) -> bool:
    return name in (member.name, f"/dev/{member.name}") or (
        member.partition is None and name == member.disk.path
    )


def member_holdings(member: Member) -> tuple[str, ...]:
    """Return the content of the drive or partition that would become a member, a phrase each."""
    if member.partition is None:
        return contents_or_data(member.disk, "whole drive")
    return contents(member.partition) or unrecognised_data(member.disk)


UNRECOGNISED = "unrecognised: "


def unrecognised_content(member: Member) -> tuple[str, ...]:
    """Return unrecognised content in a line that changes with its bytes; () if the member is blank, or has
    recognised content, which its kind and UUID identify.
    """
    disk = member.disk
    part = member.partition
    if (
        disk.sampled is None
        or not disk.sampled.written
        or recognised_content(disk, part.number if part else None)
    ):
        return ()
    return (f"{UNRECOGNISED}SHA-256 of {disk.sampled.places} places {disk.sampled.digest}",)


# Reasons why mdadm or mkfs would fail, or create something other than planned.
#
# These checks need the decided sizes. Both programs would fail only after the tables are written.


def geometry_problems(goal: RaidGoal, placed: Sequence[Placed], geometry: ArrayGeometry) -> Iterator[Refusal]:
    """Yield every reason in the sizes of a decided array."""
    yield from _refuse_lengths(goal, placed, geometry)
    yield from _refuse_filesystem(goal, geometry)


def _refuse_lengths(goal: RaidGoal, placed: Sequence[Placed], geometry: ArrayGeometry) -> Iterator[Refusal]:
    """Refuse a member length that md cannot use. A RAID0 uses whole members: it has no --size, and the excess
    of a longer member becomes a zone of fewer members (raid0.c, create_strip_zones).
    """
    if any(place.entries for place in placed):
        return
    if goal.spare_room and not (goal.whole_drives and geometry.level.redundant):
        members = "whole drives of a RAID0 are" if goal.whole_drives else "existing partitions are"
        text = f"no room can be left free: {members} used as they are"
        yield Refusal("invalid-option", "--spare-end", text, "omit --spare-end")
    if geometry.level.redundant or not geometry.chunk:
        return
    if goal.member_size is not None:
        text = "a RAID0 has no member size: its members are used as they are"
        yield Refusal("invalid-option", "member_size", text, "omit member_size")
    lengths = {place.member.name: own_length(place) for place in placed}
    if len({(length - geometry.offset) // geometry.chunk for length in lengths.values()}) > 1:
        listed = ", ".join(f"{name} {format_about(length)}" for name, length in lengths.items())
        text = f"the members of a RAID0 are used whole, and these differ in length ({listed})"
        hint = "name partitions of equal length, or drives without --whole-drives: these get such partitions"
        text += ": beyond the shortest, fewer drives would share the work"
        yield Refusal("lengths-differ", ", ".join(lengths), text, hint)


def _refuse_filesystem(goal: RaidGoal, geometry: ArrayGeometry) -> Iterator[Refusal]:
    on_array = kind_named(goal.filesystem).on_array
    if on_array is None:
        return
    array = new_array(goal, geometry)
    least = on_array.least_size(array)
    if geometry.size < least:
        text = (
            f"{goal.filesystem} needs {format_size(least)} here, but the array has"
            f" {format_about(geometry.size)}"
        )
        yield Refusal("too-small", geometry.device, text, on_array.if_too_small)
    text = on_array.chunk_problem(array)
    if not text and on_array.inode_sizes and array.chunk % array.block:
        blocks = format_size(array.block)
        text = (
            f"a chunk of {format_size(array.chunk)} is not a multiple of the blocks of {goal.filesystem},"
            f" {blocks}"
        )
    if text:
        yield Refusal("invalid-option", "--chunk", text, "--chunk 512KiB")
