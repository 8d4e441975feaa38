"""Plan what an existing array lacks to start and mount after a reboot."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from aligntool.audit.array_boot import NUMBERED, SYSTEM_PLACES, RunningArray, base_node, is_native, uuid_behind
from aligntool.audit.wording import shell_word
from aligntool.change import Plan
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, Inventory
from aligntool.raid import boot
from aligntool.raid.boot import FSTAB, SYSTEMS, System
from aligntool.steps import CheckInitramfs, EditFile, RebuildInitramfs, ReloadUnits, Step, Subject
from aligntool.system import TableLine
from aligntool.units import format_about

# fstab and crypttab of an array that is there: by UUID, and with nofail where the system can start without
# it.
#
# Here a field is changed in a line that somebody wrote, and everything else in it stays as it is: fstab(5),
# crypttab(5), systemd.mount(5).

CRYPTTAB = "/etc/crypttab"
FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "ntfs")
_PLACE = re.compile(r"/[^\s\\#]*")


def table_steps(array: RunningArray) -> Iterator[EditFile]:
    for line in array.fstab_lines():
        new = _repaired_line(line, array)
        if new != line.text:
            yield boot.edit(FSTAB, line.text, new)
    for line in _crypt_lines(array):
        uuid = uuid_behind(line.spec, array.disk)
        yield boot.edit(CRYPTTAB, line.text, _with_field(line.text, 1, f"UUID={uuid}"))


def _crypt_lines(array: RunningArray) -> tuple[TableLine, ...]:
    return tuple(line for line in array.system.crypttab if _is_by_node(line, array))


def _repaired_line(line: TableLine, array: RunningArray) -> str:
    text = line.text
    if _is_by_node(line, array):
        text = _with_field(text, 0, f"UUID={uuid_behind(line.spec, array.disk)}")
    if _lacks_nofail(line):
        waits = line.kind == "swap" or boot.waits_as_asked(line.options)
        more = ("nofail",) if waits else ("nofail", boot.PATIENCE)
        text = _with_field(text, 3, ",".join((*(line.options or ("defaults",)), *more)))
    return text


def _is_by_node(line: TableLine, array: RunningArray) -> bool:
    return base_node(line.spec) in array.nodes()


def _lacks_nofail(line: TableLine) -> bool:
    """The root is never without; what else the system may need is left as its owner wrote it."""
    if {"nofail", "noauto"} & set(line.options):
        return False
    return line.kind == "swap" or not SYSTEM_PLACES.fullmatch(line.place)


def _with_field(text: str, number: int, value: str) -> str:
    """The line with another word in that field; blanks and everything else as they were."""
    pieces = re.split(r"(\s+)", text)
    at = [index for index, piece in enumerate(pieces) if piece and not piece.isspace()]
    if number < len(at):
        pieces[at[number]] = value
        return "".join(pieces)
    return f"{text.rstrip()} {value} 0 0"


def refuse_mount(array: RunningArray, place: str | None) -> Iterator[Refusal]:
    """Yield why the tables cannot be changed as wanted."""
    disk, lines = array.disk, array.fstab_lines()
    for line in (*(line for line in lines if _is_by_node(line, array)), *_crypt_lines(array)):
        if uuid_behind(line.spec, disk) is None:
            text = f"the UUID on {line.spec}, from which {line.place} is mounted, is unknown"
            yield Refusal("uuid-unknown", line.spec, text, f"blkid {line.spec}")
    if place is None:
        return
    layer = disk.content[0] if len(disk.content) == 1 else None
    if not _PLACE.fullmatch(place) or place == "/":
        text = f"{place!r} is not a mount point that fstab can hold"
        yield Refusal("invalid-option", "--mount", text, "--mount /srv/data")
    if not disk.content_read and not (layer and layer.uuid and layer.kind in FILE_SYSTEMS):
        text = f"the content of {disk.path} could not be read"
        yield Refusal("not-read", disk.path, text, f"sudo blkid -p {disk.path}")
    elif layer is None or not layer.uuid or layer.kind not in FILE_SYSTEMS:
        text = f"{disk.path} holds {layer.kind if layer else 'no one file system'}, which cannot be mounted as it is"
        yield Refusal("not-mountable", disk.path, text, f"blkid -p {disk.path}")
    for line in array.system.fstab:
        if line.place == place and line not in lines:
            free = other_place(place, lambda each: _is_taken(each, array))
            text = f"fstab mounts {line.spec} at {place} already"
            yield Refusal("mount-point", place, text, f"--mount {shell_word(free)}")
        elif line in lines and line.place != place:
            yield Refusal("mount-point", line.place, f"fstab mounts it at {line.place} already", "leave --mount out")


def other_place(place: str, taken: Callable[[str], bool]) -> str:
    """One that is free: /srv/data-2 for /srv/data. What is not for mounting (hier(7)) gives its name to one in /srv."""
    plain = place.rstrip("/")
    if not plain.startswith(("/srv/", "/mnt/", "/media/")):
        plain = f"/srv/{plain.rpartition('/')[2] or 'data'}"
        if not taken(plain):
            return plain
    return next(each for number in count(2) if not taken(each := f"{plain}-{number}"))


def _is_taken(place: str, array: RunningArray) -> bool:
    disks = array.inventory.disks
    mounted = any(
        place in disk.mounted_at or any(place in part.mounted_at for part in disk.partitions) for disk in disks
    )
    return mounted or any(line.place == place for line in array.system.fstab)


def mount_steps(array: RunningArray, place: str | None) -> Iterator[Step]:
    """A new line, and the mount itself where it is not there yet."""
    if place is None or not array.disk.content:
        return
    layer, line = array.disk.content[0], ""
    if not any(line.place == place for line in array.fstab_lines()):
        options = (*(boot.default_options(layer.kind) or ("defaults",)), "nofail", boot.PATIENCE)
        line = boot.mount_line(layer.uuid or "", place, layer.kind, options)
    yield from boot.mount_steps(layer.uuid or "", place, line, mounted=place in array.places())


def mount_words(array: RunningArray, place: str | None) -> Iterator[str]:
    lines = array.fstab_lines()
    for line in lines:
        said = "is named by its UUID from now on" if _is_by_node(line, array) else "stays as it is"
        extra = ", and may be missing when the system starts (nofail)" if _lacks_nofail(line) else ""
        yield f"fstab: {line.place if line.kind != 'swap' else 'swap'} {said}{extra}"
    if not lines and place is None:
        stacked = [one.name for one in array.stack() if one.name != array.disk.name]
        carries = f"; it carries {', '.join(stacked)}" if stacked else "; --mount DIR adds a line"
        yield f"fstab mounts nothing of it{carries}"


# An array that somebody made -> the plan of what makes it come back after every reboot.
#
# `raid create` knows what its files will say, and here it depends on what they say already.


@dataclass(frozen=True, slots=True)
class PersistGoal:
    """`system` None: the machine's own. `mount_at` None: where it is mounted is not changed."""

    system: str | None = None
    mount_at: str | None = None


def plan_persist(disk: Disk, inventory: Inventory, goal: PersistGoal) -> Plan:
    """Raises Refused with every reason why the array cannot be made to come back by these files."""
    array, system = _found(disk, inventory, goal)
    refuse([*_unfit(array), *refuse_mount(array, goal.mount_at)])
    steps = tuple(_steps(array, system, goal))
    refuse(_swallowed(array, steps))
    size, sector = disk.size or 0, disk.limits.logical_block_size or 512
    return Plan(
        purpose="persist",
        disk=Subject(disk.path, size, sector, None, array.facts.uuid, None, None, None, ""),
        goal=f"{array.facts.level} of {format_about(size)}: the same name and mounts after every reboot",
        places=(),
        steps=steps,
        attention=tuple(_attention(array, system)) if steps else (),
        notes=tuple(_notes(array, system, goal)),
    )


def _swallowed(array: RunningArray, steps: Sequence[Step]) -> Iterator[Refusal]:
    """An edit replaces every line with that text in it: one that only begins like the line that is meant stops it."""
    files = array.system
    lines = [(line.file, line.text) for line in files.mdadm.arrays]
    lines += [(FSTAB, line.text) for line in files.fstab] + [(CRYPTTAB, line.text) for line in files.crypttab]
    for step in steps:
        if isinstance(step, EditFile):
            path, key = step.path, step.instead_of
            found = [f"the line {key!r} cannot be replaced, because another one holds the same words: {text}"
                     for file, text in lines if file == path and key in text and text != key]  # fmt: skip
            if "\ufffd" in key:  # what a byte that is not UTF-8 was read as: it cannot be found again
                found.insert(0, f"a line holds characters that are not UTF-8: {key}")
            for text in found:
                yield Refusal("file-conflict", path, f"{path}: {text}", f"change it in {path} by hand first")


def _found(disk: Disk, inventory: Inventory, goal: PersistGoal) -> tuple[RunningArray, System]:
    """Raise Refused where nothing can be planned."""
    facts, files, path = disk.array, inventory.system, disk.path
    detail = f"mdadm --detail {path}"
    if facts is None:
        raise Refused(f"{path} is not a running md array", hint="aligntool raid show", code="no-array", subject=path)
    if not is_native(facts):
        text = f"{path} is an array of the firmware ({facts.metadata}): what makes it come back is kept there"
        raise Refused(text, hint=f"mdadm --detail-platform; {detail}", code="firmware-array", subject=path)
    if files is None:
        text, hint = "the files of this system cannot be seen", "ls /etc/os-release /etc/fstab"
        raise Refused(text, hint=hint, code="not-read")
    if not facts.uuid:
        raise Refused(f"the UUID of {path} is unknown", hint=detail, code="uuid-unknown", subject=path)
    word = goal.system or files.family
    if word not in SYSTEMS:
        text = f"{word!r} is not a known system" if word else "this system's family is not known"
        raise Refused(text, hint=f"--system: {', '.join(SYSTEMS)}", code="invalid-option", subject="--system")
    return RunningArray(disk, facts, inventory, files), SYSTEMS[word]


def _unfit(array: RunningArray) -> Iterator[Refusal]:
    for line in array.wrong_lines():
        if line.joined:
            text = f"the array's wrong line in {line.file} goes on over several lines: {line.text}"
            yield Refusal("file-conflict", line.file, text, f"take it out of {line.file} by hand first")


def _is_assembled_early(array: RunningArray) -> bool:
    """Some initramfs would assemble it, or has to. One that nobody could look into may."""
    images = array.system.initramfs
    return array.holds_system() or any(image.unseen or array.is_assembled_by(image) for image in images)


def _steps(array: RunningArray, system: System, goal: PersistGoal) -> Iterator[Step]:
    edits = tuple(boot.conf_steps(array, system))
    yield from edits
    if _is_to_be_rebuilt(array, edits=bool(edits)):
        yield RebuildInitramfs(system.maker)
        # The maker's own program shows its own images only.
        if {image.maker for image in array.system.initramfs if not image.unseen} == {system.maker}:
            yield CheckInitramfs(system.maker, array.facts.uuid or "")
    if _is_assembled_early(array) and array.stays_inactive(system.word):
        yield from boot.bring_late_start()
    tables = tuple(table_steps(array))
    mount = tuple(mount_steps(array, goal.mount_at))
    yield from tables
    if tables and not mount:
        yield ReloadUnits()
    yield from mount


def _is_to_be_rebuilt(array: RunningArray, *, edits: bool) -> bool:
    """When an image that assembles the array has no line of it, or an older one than the file will have."""
    if not array.system.initramfs or not _is_assembled_early(array):
        return False
    return edits or any(
        (array.is_assembled_by(image) and not array.is_named_in(image))
        or (array.holds_system() and not image.has_mdadm)
        for image in array.system.initramfs
        if not image.unseen
    )


def _notes(array: RunningArray, system: System, goal: PersistGoal) -> Iterator[str]:
    yield f"files and commands are those of {system.title}; nothing is written to the array itself"
    yield from boot.conf_words(array, system)
    images = array.system.initramfs
    if not images:
        yield "no initramfs is in /boot: arrays are assembled by the running system alone"
    elif not _is_assembled_early(array):
        yield (
            f"{len(images)} initramfs images were looked into, and none assembles this array: it comes up later, by "
            "the mdadm.conf of the running system"
        )
    else:
        seen = sum(not image.unseen for image in images)
        yield f"{seen} of {len(images)} initramfs images were looked into; they are again when all is done"
    yield from mount_words(array, goal.mount_at)


def _attention(array: RunningArray, system: System) -> Iterator[str]:
    disk, facts, files = array.disk, array.facts, array.system
    for image in files.initramfs:
        if image.unseen:
            yield f"{image.path}: not readable: {image.unseen}"
    for word in files.command_line:
        key, _, value = word.partition("=")
        found = NUMBERED.fullmatch(value)
        if found and f"/dev/{found[1]}" in array.nodes():
            yield (
                f"the kernel's command line says {word}: in the boot loader's settings put UUID= of the file system "
                "or swap space there, and renew its menu"
            )
            if key == "resume":
                yield "do not hibernate before that: the image is found by this word"
    host, colon, _ = (facts.name or "").rpartition(":")
    if colon and files.hostname and host not in (files.hostname, "any"):
        yield (
            f"the superblock still names the host {host!r}; the ARRAY line is enough. To change it: mdadm --stop "
            f"{disk.path}, then mdadm --assemble --update=homehost --homehost=any with its members"
        )
    if facts.degraded:
        yield "the array is degraded: repair that as well, it may not start by itself"
    if system.note and array.holds_system():
        yield system.note.format(uuid=facts.uuid)
    if disk.path.startswith("/dev/md12") and not array.places():
        yield f"until the next start it stays {disk.path}; from then on it has the name of its ARRAY line"
