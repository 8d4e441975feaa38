"""Common wording of findings and refusals: names of things, next commands, reasons to refuse."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from aligntool.audit.report import Grid
from aligntool.commands import (
    ByHand,
    Command,
    Hint,
    by_hand,
    joined_commands,
    raw_first,
    typed,
    typed_on_loop,
)
from aligntool.commands import command as command
from aligntool.commands import shell_word as shell_word
from aligntool.contents.catalogue import kind_named
from aligntool.contents.md import MD
from aligntool.errors import Refusal, Refused, Stopped
from aligntool.formats.parked import is_marked_in_flight
from aligntool.formats.part_types import WITHOUT_SUPERBLOCK
from aligntool.inventory import Disk, DiskKind, Inventory, Layer, Partition, Role, Source, TableLabel
from aligntool.units import format_about, format_size


def subject_words(disk: Disk, partition: Partition | None) -> str:
    """Return "partition 2 of sda", or the disk's name if it is used whole."""
    return disk.name if partition is None else f"partition {partition.number} of {disk.name}"


def offset_words(offset: int, sector_size: int) -> str:
    """Return an offset in bytes and in the user's sectors: "sector 63 (32256B)"."""
    if offset % sector_size:
        return f"byte {offset}"
    return f"sector {offset // sector_size} ({format_size(offset)})"


def grid_words(grid: Grid) -> str:
    """Return kind and source of a grid: "NAND page, known: Samsung SSD 830"; of an assumption without the
    reason.
    """
    return f"{grid.kind}, {grid.source}" + ("" if grid.source is Source.ASSUMED else f": {grid.by}")


def past_words(past: int, size: int) -> str:
    """Return how far an offset is behind a boundary: "3584B past a 4KiB boundary"."""
    return f"{format_size(past)} past a {format_size(size)} boundary"


def layer_name(layer: Layer) -> str:
    """Return the usual name of a layer: "md 1.2", "LUKS2", "LVM2 PV", "FAT32"."""
    return kind_named(layer.kind).title(layer)


def next_look(disk: Disk) -> str:
    """Return the command that shows a disk's boundaries as a picture."""
    return next_command(disk, "audit --map")


def next_realign(disk: Disk) -> str:
    """Return the command that plans the moves of a disk's partitions; the command that resumes a move in
    flight; what is done with a whole drive in an array; or an audit if the table cannot be changed.
    """
    if is_marked_in_flight(disk):
        return next_resume(disk)
    kinds = [layer.kind for layer in disk.content] or [disk.content_hint or ""]
    if MD.name in kinds and not disk.partitions:
        return change_by_hand(disk, ByHand.MEMBERS, "mdadm")
    if disk.table is None or disk.table.label not in (TableLabel.GPT, TableLabel.DOS):
        return next_look(disk)
    return next_command(disk, "plan realign")


def next_resume(disk: Disk) -> str:
    """Return the command that resumes the move in flight on this disk."""
    flight = disk.table.in_flight if disk.table else None
    file = ("--journal FILE",) if flight and flight.journal_at is None else ()
    return next_command(disk, "resume", *file)


def next_command(disk: Disk, name: str, *words: str) -> str:
    """Return an aligntool command on this disk, such as `sudo aligntool plan realign /dev/sda --shrink`."""
    return command(name, disk.path, *words)


def audit_command(disk: Disk) -> str:
    """Return the command that shows what is known of a disk."""
    return next_command(disk, "audit")


def on_raw(disk: Disk, words: str) -> str:
    """Return the hint of another program, which takes a file for a raw image. It would destroy a virtual
    disk: return the command that makes a raw image of that.
    """
    return raw_first(disk.raw_copy) if disk.raw_copy else words


def look_at(disk: Disk, words: str, *values: str | int) -> str:
    """Return the command of another program that looks at a disk, with sudo except for an image file."""
    return on_raw(disk, typed(words, *values, disk.path, sudo=disk.kind is not DiskKind.IMAGE))


def look_at_table(disk: Disk, words: str) -> str:
    """Return the command of sgdisk or sfdisk that looks at the table of a disk; on a loop device if the tool
    would expect a table in other sectors: sfdisk then takes its protective MBR for the table. Both assume 512
    bytes for a file.
    """
    expected = 512 if disk.kind is DiskKind.IMAGE else disk.limits.logical_block_size or disk.sector_size
    if disk.sector_size == expected:
        return look_at(disk, words)
    return on_raw(disk, typed_on_loop(words, disk.path, "--sector-size", str(disk.sector_size)))


def change_by_hand(disk: Disk, section: ByHand, program: str, part: Partition | None = None) -> str:
    """Return where the user finds how to change a disk or a partition with another program."""
    place = shell_word(disk.path)
    if part is not None and part.node:
        place = f"/dev/{part.node}"
    elif part is not None:
        place = f"{place}, {part.extent.length} bytes from byte {part.extent.start}"
    return on_raw(disk, by_hand(section, program, place))


# the tables that aligntool writes, whose usual names are not those of libfdisk
LABELS = {"gpt": "GPT", "dos": "MBR"}
LOST = "lost: "  # begins the sentences of a plan on what it overwrites, which are shown before the question
VIOLATES = "VIOLATES"  # marks the sentences on broken rules, which a short plan shows, too
# begins the sentences on a system in a layer, which are shown before the question
SUSPENDED = "may be suspended: "
NOT_READ = "what is on the drives"  # begins the phrase of a plan on drives of which the content is unknown
ZEROED = "zeroed first, so that no old signature reappears: "  # begins a list of bytes, shown with -v
_LSBLK = "lsblk -d lists the other drives"


def label_words(label: str) -> str:
    """Return the usual name of a kind of partition table."""
    return LABELS.get(label, label)


def use_refusals(
    name: str,
    node: str,
    places: Iterable[str],
    holders: Iterable[str],
    root: str = _LSBLK,
    *,
    above: Inventory | None = None,
) -> Iterator[Refusal]:
    """Yield why a device must not be overwritten now: each mount point with the command that unmounts it, and
    each device on top. `root`: the hint if the system runs from it. `above`: the devices on top, if they were
    read.
    """
    for place in places:
        text = f"{name} is mounted at {place}"
        hint = typed("umount", place)
        if place == "[SWAP]":
            text = f"{name} is in use as swap"
            hint = typed("swapoff", f"/dev/{node.removeprefix('/dev/')}")
        elif place == "/":
            text = f"{text}: this system runs from it"
            hint = root
        yield Refusal("mounted", name, text, hint)
    for holder in holders:
        text = f"{name} is in use by {holder}"
        hint = command("audit", holder)
        if above:
            hint = release_command(holder, above, root)
            text += stopping_words(hint, root)
        yield Refusal("held", name, text, hint)


def stopping_words(release: str, root: str) -> str:
    """Return what it means to run the commands that end the use of a device, for the end of a sentence."""
    if release == root:
        return ""
    return "; to stop it takes what is on it out of use until it is started again, and loses nothing"


def inner_first(uses: Iterable[Refusal]) -> list[Refusal]:
    """Return these uses, mounts first, and a mount inside another one before that one, as they have to
    end.
    """
    return sorted(
        uses, key=lambda use: use.hint.replace("'", "") if use.code == "mounted" else "", reverse=True
    )


def holders_of(disk: Disk) -> tuple[str, ...]:
    """Return the kernel names of the devices on a disk and on its partitions."""
    return (*disk.holders, *(name for part in disk.partitions for name in part.holders))


_MOST_LEVELS = 16  # of devices on each other


def release_command(holder: str, above: Inventory, root: str = _LSBLK) -> str:
    """Return the commands that end every use of a device on a disk, from the top. `root`: see
    `use_refusals`.
    """
    known = {disk.name: disk for disk in above.disks}
    levels = _levels_above(holder, known)
    disks = [known[name] for name in levels if name in known]
    used = [(disk.name, disk.mounted_at) for disk in disks]
    used += [(part.node or disk.name, part.mounted_at) for disk in disks for part in disk.partitions]
    # /srv/in, then /srv
    mounts = sorted(((place, name) for name, places in used for place in places), reverse=True)
    uses = [use.hint for place, name in mounts for use in use_refusals(name, name, (place,), (), root)]
    ends = dict.fromkeys(
        _end_of(name, known.get(name)) for name in sorted(levels, key=lambda name: levels[name])
    )
    return root if root in uses else joined_commands((*uses, *reversed(ends)))


def _levels_above(holder: str, known: Mapping[str, Disk]) -> dict[str, int]:
    """Return the devices that must end before a holder, and itself, each with the most devices between the
    two.
    """
    levels: dict[str, int] = {}
    waiting = [(holder, 0)]
    while waiting:
        name, level = waiting.pop()
        if levels.get(name, -1) >= level or level > _MOST_LEVELS:
            continue
        levels[name] = level
        device = known.get(name)
        group = _group_of(known.get(name))
        waiting += [(other, level + 1) for other in (holders_of(device) if device else ())]
        # An array in a container of external metadata ends before it; vgchange ends all volumes of a group
        # together.
        waiting += [(other, level + 1) for other, disk in known.items() if _is_in_container(disk, name)]
        waiting += [(other, level) for other, disk in known.items() if group and group == _group_of(disk)]
    return levels


def _is_in_container(disk: Disk, container: str) -> bool:
    return disk.array is not None and (disk.array.metadata or "").startswith(f"external:/{container}/")


def _group_of(device: Disk | None) -> str:
    """Return the volume group of a mapping, or ""."""
    mapping = (device and device.mapping) or ""
    return mapping.removeprefix("lvm ").partition("/")[0] if mapping.startswith("lvm ") else ""


def _end_of(name: str, device: Disk | None) -> str:
    """Return the command that stops a device of which nothing is in use."""
    mapping = (device and device.mapping) or ""
    if name.startswith("md"):
        return typed("mdadm --stop", f"/dev/{name}")
    group = _group_of(device)
    if group:
        return typed("vgchange -an", group)
    if mapping.startswith("crypt "):  # followed by its kind and its name
        # A LUKS2 with integrity has a mapping "name_dif" under "name", which ends with that
        # (luks2_json_metadata.c).
        kind, opened_as = mapping.split(" ", 2)[1:]
        suffix = "_dif" if kind == "SUBDEV" else ""
        return typed("cryptsetup close", opened_as.removesuffix(suffix))
    if mapping.startswith("multipath "):  # multipathd would make it again; this also removes its partitions
        return typed("multipath -f", mapping.removeprefix("multipath "))
    if name.startswith("drbd"):
        return typed("drbdadm down", "RESOURCE")
    if name.startswith("bcache"):
        return str(Command("tee", (f"/sys/block/{name}/bcache/stop",), stdin="1"))
    return typed("dmsetup remove", f"/dev/{name}")


def read_only_refusals(disk: Disk) -> Iterator[Refusal]:
    """Yield that a disk cannot be written to, with where the user finds how to make it writable."""
    if disk.read_only:
        hint = by_hand(
            ByHand.READ_ONLY, "chmod" if disk.kind is DiskKind.IMAGE else "blockdev", shell_word(disk.path)
        )
        yield Refusal("read-only", disk.name, f"{disk.name} is read-only", hint, lasting=False)


def device_refusals(disk: Disk, part: Partition | None, name: str) -> Iterator[Refusal]:
    """Yield why a disk or partition cannot be used, whatever its content. `name`: of the disk or
    partition.
    """
    yield from read_only_refusals(disk)
    if disk.failing:
        yield Refusal(
            "failing",
            disk.name,
            f"{disk.name} reports that it is failing: {disk.failing}",
            replacement_hint(disk),
        )
    if part is not None and part.role in (Role.EXTENDED, Role.MAP, Role.NESTED):
        text = f"{name} is not a separate partition but {part.role.value}"
        yield Refusal("not-a-partition", name, text)


def replacement_hint(disk: Disk) -> str:
    return f"{typed('smartctl -a', disk.path)}; replace it first"


def contents_of_disk(disk: Disk, whole: str = "whole disk") -> tuple[str, ...]:
    """Return the contents of the disk as phrases: "partition 2, ext4 "root", 20GiB"."""
    named = ((part, ", ".join(contents(part)) or type_words(part)) for part in disk.partitions)
    found = [f"partition {part.number}, {name}, {format_about(part.extent.length)}" for part, name in named]
    found += [f"{content} on the {whole}" for content in contents(disk)]
    if disk.table and not disk.partitions:
        found.append(f"a partition table ({label_words(disk.table.label)}) without partitions")
    if disk.table is None:  # firmware that finds one copy "repairs" the other, and overwrites the data there
        found += [
            f"the remains of a GPT, its {copy.name} copy at byte {copy.at}" for copy in disk.gpt_headers
        ]
    return tuple(found)


def contents_or_data(disk: Disk, whole: str = "whole disk") -> tuple[str, ...]:
    """Return the contents of the disk; if no partition and no content is recognised, also that it contains
    data.
    """
    found = contents_of_disk(disk, whole)
    is_unknown = not found or (disk.table and not disk.partitions and not contents(disk))
    return (*found, *unrecognised_data(disk)) if is_unknown else found


def unrecognised_data(disk: Disk) -> tuple[str, ...]:
    """Return, as a phrase, that the samples of the disk contain data; () if they are blank, or none were
    read.
    """
    sampled = disk.sampled
    if sampled is None or not sampled.written:
        return ()
    return (f"unrecognised data at {sampled.written} of {sampled.places} places that were read",)


def unread_between(disk: Disk) -> str | None:
    """Return what was read of a disk that seems to be blank, if not everything was; else None."""
    sampled = disk.sampled
    if sampled is None or sampled.spacing is None or sampled.written or sampled.unreadable:
        return None
    apart = f"{sampled.places} places of 4KiB, every {format_size(sampled.spacing)}"
    if sampled.whole:
        whole = format_about(sampled.whole)
        apart = f"all {whole} that are overwritten, and 4KiB in every {format_size(sampled.spacing)}"
    return f"{apart}, read as unwritten; what lies between them was not read"


def refuse_sparse(*seen: tuple[Disk, str, str]) -> Iterator[Refusal]:
    """Refuse to take a few places that are blank for a proof that all is: with one text for all disks of
    which as much was read, and one hint. `seen`: disks, each with its name and the path that the user gives.
    """
    sparse = [
        (name, path, unread)
        for disk, name, path in seen
        if disk.sampled and disk.sampled.is_sparse and (unread := unread_between(disk))
    ]
    wipe = " ".join(f"--wipe {shell_word(path)}" for _, path, _ in sparse)
    data = "if it is empty, or its data is" if len(sparse) == 1 else "if they are empty, or their data is"
    for name, _, unread in sparse:
        names = [other for other, _, same in sparse if same == unread]
        verb = "is" if len(names) == 1 else "are"
        text = f"{', '.join(names)} {verb} not known to be empty: {unread}"
        yield Refusal("not-read", name, text, f"{data} not needed, add: {wipe}")


def contents(on: Disk | Partition) -> tuple[str, ...]:
    """Return the layers on a disk or partition with their labels, or else the hint of udev or the table."""
    return tuple(map(labelled, on.content)) or ((on.content_hint,) if on.content_hint else ())


def type_words(part: Partition, *, brief: bool = False) -> str:
    """Return what is known of a partition without a recognised content: "unrecognised (type Linux)", or
    `brief`, without the type. The type is no content, except that of a partition that needs none.
    """
    named = part.type_name or part.type_code or ""
    if part.role not in (Role.PRIMARY, Role.LOGICAL) or part.type_code in WITHOUT_SUPERBLOCK:
        return named
    words = "unrecognised" if part.content_read else "not read"
    return f"{words} (type {named})" if named and not brief else words


def labelled(layer: Layer) -> str:
    return f'{layer_name(layer)} "{layer.label}"' if layer.label else layer_name(layer)


def typed_words(options: Mapping[str, str | int | None]) -> list[str]:
    """Return the options that were given, as they are typed."""
    given = {name: value for name, value in options.items() if value}
    return [f"{name} {format_size(v) if isinstance(v, int) else shell_word(v)}" for name, v in given.items()]


@contextmanager
def hints_for_disk(disk: str, raw_copy: str = "", typed: Sequence[str] = ()) -> Iterator[None]:
    """Complete the hints of Refused and Stopped, see `Command.on`: code below does not know what the user
    typed.
    """

    def full(hint: str) -> str:
        return hint.on(disk, raw_copy, typed) if isinstance(hint, Hint) else hint

    try:
        yield
    except Refused as error:
        error.change_hints(full)
        raise
    except Stopped as error:
        error.hint = full(error.hint)
        raise
