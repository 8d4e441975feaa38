"""Plan what an existing array lacks to start and mount after a reboot."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from aligntool.audit.array_boot import (
    NUMBERED,
    SYSTEM_PLACES,
    above,
    assembles,
    base_node,
    fstab_lines,
    is_native,
    lines_of,
    nodes_of,
    places_on,
    starts_from,
    stays_inactive,
    uuid_behind,
    wrong_lines,
)
from aligntool.audit.wording import shell_word
from aligntool.change import Plan
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Disk, Inventory
from aligntool.raid.boot import BACKUP, SYSTEMS, System, bring_late_start, conf_steps, conf_words
from aligntool.raid.commands import PATIENCE, default_options, mount_line, waits_as_asked
from aligntool.steps import (
    CheckInitramfs,
    EditFile,
    MakeDirectory,
    Mount,
    RebuildInitramfs,
    ReloadUnits,
    Step,
    Subject,
    SystemStep,
)
from aligntool.system import System as Files
from aligntool.system import TableLine
from aligntool.units import format_about

# fstab and crypttab of an array that is there: by UUID, and with nofail where the system can start without
# it.
#
# Here a field is changed in a line that somebody wrote, and everything else in it stays as it is: fstab(5),
# crypttab(5), systemd.mount(5).

FSTAB, CRYPTTAB = "/etc/fstab", "/etc/crypttab"
FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "ntfs")
_PLACE = re.compile(r"/[^\s\\#]*")


@dataclass(frozen=True, slots=True)
class PlaceWish:
    """Where it is to be mounted from now on; None: nothing is changed."""

    place: str | None = None


def table_steps(disk: Disk, inventory: Inventory, files: Files) -> Iterator[EditFile]:
    for line in fstab_lines(disk, inventory, files):
        new = _repaired_line(line, disk, inventory)
        if new != line.text:
            yield EditFile(FSTAB, (new,), line.text, FSTAB + BACKUP)
    for line in _crypt_lines(disk, inventory, files):
        uuid = uuid_behind(line.spec, disk)
        yield EditFile(CRYPTTAB, (_with_field(line.text, 1, f"UUID={uuid}"),), line.text, CRYPTTAB + BACKUP)


def _crypt_lines(disk: Disk, inventory: Inventory, files: Files) -> tuple[TableLine, ...]:
    return tuple(line for line in files.crypttab if base_node(line.spec) in nodes_of(disk, inventory))


def _repaired_line(line: TableLine, disk: Disk, inventory: Inventory) -> str:
    text = line.text
    if _is_by_node(line, disk, inventory):
        text = _with_field(text, 0, f"UUID={uuid_behind(line.spec, disk)}")
    if _lacks_nofail(line):
        waits = line.kind == "swap" or waits_as_asked(line.options)
        more = ("nofail",) if waits else ("nofail", PATIENCE)
        text = _with_field(text, 3, ",".join((*(line.options or ("defaults",)), *more)))
    return text


def _is_by_node(line: TableLine, disk: Disk, inventory: Inventory) -> bool:
    return base_node(line.spec) in nodes_of(disk, inventory)


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


def refuse_mount(disk: Disk, inventory: Inventory, wish: PlaceWish, files: Files) -> Iterator[Refusal]:
    """Yield why the tables cannot be changed as wanted."""
    named = [line for line in fstab_lines(disk, inventory, files) if _is_by_node(line, disk, inventory)]
    for line in (*named, *_crypt_lines(disk, inventory, files)):
        if uuid_behind(line.spec, disk) is None:
            text = f"the UUID on {line.spec}, from which {line.place} is mounted, is unknown"
            yield Refusal("uuid-unknown", line.spec, text, f"blkid {line.spec}")
    if wish.place is None:
        return
    layer = disk.content[0] if len(disk.content) == 1 else None
    if not _PLACE.fullmatch(wish.place) or wish.place == "/":
        text = f"{wish.place!r} is not a mount point that fstab can hold"
        yield Refusal("invalid-option", "--mount", text, "--mount /srv/data")
    if layer is None or not layer.uuid or layer.kind not in FILE_SYSTEMS:
        if disk.content_read:
            what = layer.kind if layer else "no one file system"
            text = f"{disk.path} holds {what}, which cannot be mounted as it is"
            yield Refusal("not-mountable", disk.path, text, f"blkid -p {disk.path}")
        else:
            text = f"the content of {disk.path} could not be read"
            yield Refusal("not-read", disk.path, text, f"sudo blkid -p {disk.path}")
    for line in files.fstab:
        mine = line in fstab_lines(disk, inventory, files)
        if line.place == wish.place and not mine:
            free = other_place(wish.place, lambda place: _is_taken(place, inventory, files))
            text = f"fstab mounts {line.spec} at {wish.place} already"
            yield Refusal("mount-point", wish.place, text, f"--mount {shell_word(free)}")
        elif mine and line.place != wish.place:
            yield Refusal("mount-point", line.place, f"fstab mounts it at {line.place} already", "leave --mount out")


def other_place(place: str, taken: Callable[[str], bool]) -> str:
    """One that is free: /srv/data-2 for /srv/data. What is not for mounting (hier(7)) gives its name to one in /srv."""
    plain = place.rstrip("/")
    if not plain.startswith(("/srv/", "/mnt/", "/media/")):
        plain = f"/srv/{plain.rpartition('/')[2] or 'data'}"
        if not taken(plain):
            return plain
    return next(each for number in count(2) if not taken(each := f"{plain}-{number}"))


def _is_taken(place: str, inventory: Inventory, files: Files) -> bool:
    mounted = [each for disk in inventory.disks for each in places_on(disk, inventory)]
    return place in mounted or any(line.place == place for line in files.fstab)


def mount_steps(disk: Disk, inventory: Inventory, wish: PlaceWish, files: Files) -> Iterator[EditFile | SystemStep]:
    """A new line, and the mount itself where it is not there yet."""
    if wish.place is None or not disk.content:
        return
    layer, there = disk.content[0], places_on(disk, inventory)
    if not any(line.place == wish.place for line in fstab_lines(disk, inventory, files)):
        options = (*(default_options(layer.kind) or ("defaults",)), "nofail", PATIENCE)
        line = mount_line(layer.uuid or "", wish.place, layer.kind, options)
        yield EditFile(FSTAB, (line,), f"UUID={layer.uuid}", FSTAB + BACKUP)
        yield ReloadUnits()
    if wish.place not in there:
        yield MakeDirectory(wish.place)
        yield Mount(wish.place)


def mount_words(disk: Disk, inventory: Inventory, wish: PlaceWish, files: Files) -> Iterator[str]:
    for line in fstab_lines(disk, inventory, files):
        said = "is named by its UUID from now on" if _is_by_node(line, disk, inventory) else "stays as it is"
        extra = ", and may be missing when the system starts (nofail)" if _lacks_nofail(line) else ""
        yield f"fstab: {line.place if line.kind != 'swap' else 'swap'} {said}{extra}"
    if not fstab_lines(disk, inventory, files) and wish.place is None:
        stacked = [one.name for one in above(disk, inventory) if one.name != disk.name]
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


@dataclass(frozen=True, slots=True)
class Case:
    """One array and everything around it."""

    disk: Disk
    inventory: Inventory
    files: Files
    system: System
    uuid: str

    @property
    def is_assembled_early(self) -> bool:
        """Some initramfs would assemble it, or has to. One that nobody could look into may."""
        images = self.files.initramfs
        return starts_from(self.disk, self.inventory) or any(
            image.unseen or assembles(image, self.disk, self.files) for image in images
        )


def plan_persist(disk: Disk, inventory: Inventory, goal: PersistGoal) -> Plan:
    """Raises Refused with every reason why the array cannot be made to come back by these files."""
    case = _case(disk, inventory, goal)
    refuse([*_unfit(case), *refuse_mount(disk, inventory, _wish(goal), case.files)])
    steps = tuple(_steps(case, goal))
    refuse(_swallowed(steps, case.files))
    facts = disk.array
    level = facts.level if facts else ""
    return Plan(
        purpose="persist",
        disk=Subject(
            disk.path, disk.size or 0, disk.limits.logical_block_size or 512, None, case.uuid, None, None, None, ""
        ),
        goal=f"{level} of {format_about(disk.size or 0)}: the same name and mounts after every reboot",
        places=(),
        steps=steps,
        attention=tuple(_attention(case)) if steps else (),
        notes=tuple(_notes(case, goal)),
    )


def _swallowed(steps: Sequence[Step], files: Files) -> Iterator[Refusal]:
    """An edit replaces every line with that text in it: one that only begins like the line that is meant stops it."""
    lines = [(line.file, line.text) for line in files.mdadm.arrays]
    lines += [(FSTAB, line.text) for line in files.fstab] + [(CRYPTTAB, line.text) for line in files.crypttab]
    for step in steps:
        if isinstance(step, EditFile):
            if "\ufffd" in step.instead_of:  # what a byte that is not UTF-8 was read as: it cannot be found again
                text = f"{step.path}: a line holds characters that are not UTF-8: {step.instead_of}"
                yield Refusal("file-conflict", step.path, text, f"change it in {step.path} by hand first")
            for file, text in lines:
                if file == step.path and step.instead_of in text and text != step.instead_of:
                    why = f"{file}: the line {step.instead_of!r} cannot be replaced, because another one holds the same"
                    hint = f"change it in {file} by hand first"
                    yield Refusal("file-conflict", file, f"{why} words: {text}", hint)


def _wish(goal: PersistGoal) -> PlaceWish:
    return PlaceWish(goal.mount_at)


def _case(disk: Disk, inventory: Inventory, goal: PersistGoal) -> Case:
    """Raise Refused where nothing can be planned."""
    facts, files = disk.array, inventory.system
    path = disk.path
    if facts is None:
        raise Refused(f"{path} is not a running md array", hint="aligntool raid show", code="no-array", subject=path)
    if not is_native(disk):
        text = f"{path} is an array of the firmware ({facts.metadata}): what makes it come back is kept there"
        hint = f"mdadm --detail-platform; mdadm --detail {path}"
        raise Refused(text, hint=hint, code="firmware-array", subject=path)
    if files is None:
        text, hint = "the files of this system cannot be seen", "ls /etc/os-release /etc/fstab"
        raise Refused(text, hint=hint, code="not-read")
    if not facts.uuid:
        text, hint = f"the UUID of {path} is unknown", f"mdadm --detail {path}"
        raise Refused(text, hint=hint, code="uuid-unknown", subject=path)
    word = goal.system or files.family
    if word not in SYSTEMS:
        text = f"{word!r} is not a known system" if word else "this system's family is not known"
        hint = f"--system: {', '.join(SYSTEMS)}"
        raise Refused(text, hint=hint, code="invalid-option", subject="--system")
    return Case(disk, inventory, files, SYSTEMS[word], facts.uuid)


def _unfit(case: Case) -> Iterator[Refusal]:
    for line in wrong_lines(case.disk, case.inventory, case.files):
        if line.joined:
            text = f"the array's wrong line in {line.file} goes on over several lines: {line.text}"
            yield Refusal("file-conflict", line.file, text, f"take it out of {line.file} by hand first")


def _steps(case: Case, goal: PersistGoal) -> Iterator[Step]:
    edits: tuple[EditFile, ...] = tuple(conf_steps(case.disk, case.inventory, case.files, case.system))
    yield from edits
    if _is_to_be_rebuilt(case, edits=bool(edits)):
        yield RebuildInitramfs(case.system.maker)
        # The maker's own program shows its own images only.
        if {image.maker for image in case.files.initramfs if not image.unseen} == {case.system.maker}:
            yield CheckInitramfs(case.system.maker, case.uuid)
    if case.is_assembled_early and stays_inactive(case.disk, case.inventory, case.files, case.system.word):
        yield from bring_late_start()
    tables = tuple(table_steps(case.disk, case.inventory, case.files))
    mount = tuple(mount_steps(case.disk, case.inventory, _wish(goal), case.files))
    yield from tables
    if tables and not mount:
        yield ReloadUnits()
    yield from mount


def _is_to_be_rebuilt(case: Case, *, edits: bool) -> bool:
    """When an image that assembles the array has no line of it, or an older one than the file will have."""
    if not case.files.initramfs or not case.is_assembled_early:
        return False
    return edits or any(
        (assembles(image, case.disk, case.files) and not lines_of(case.disk, image.conf.arrays if image.conf else ()))
        or (starts_from(case.disk, case.inventory) and not image.has_mdadm)
        for image in case.files.initramfs
        if not image.unseen
    )


def _notes(case: Case, goal: PersistGoal) -> Iterator[str]:
    yield f"files and commands are those of {case.system.title}; nothing is written to the array itself"
    yield from conf_words(case.disk, case.inventory, case.files, case.system)
    images = case.files.initramfs
    if not images:
        yield "no initramfs is in /boot: arrays are assembled by the running system alone"
    elif not case.is_assembled_early:
        yield (
            f"{len(images)} initramfs images were looked into, and none assembles this array: it comes up later, by "
            "the mdadm.conf of the running system"
        )
    else:
        seen = sum(not image.unseen for image in images)
        yield f"{seen} of {len(images)} initramfs images were looked into; they are again when all is done"
    yield from mount_words(case.disk, case.inventory, _wish(goal), case.files)


def _attention(case: Case) -> Iterator[str]:
    disk, facts = case.disk, case.disk.array
    for image in case.files.initramfs:
        if image.unseen:
            yield f"{image.path}: not readable: {image.unseen}"
    for word in case.files.command_line:
        key, _, value = word.partition("=")
        found = NUMBERED.fullmatch(value)
        if found and f"/dev/{found[1]}" in nodes_of(disk, case.inventory):
            yield (
                f"the kernel's command line says {word}: in the boot loader's settings put UUID= of the file system "
                "or swap space there, and renew its menu"
            )
            if key == "resume":
                yield "do not hibernate before that: the image is found by this word"
    host, colon, _ = ((facts.name if facts else None) or "").rpartition(":")
    if colon and case.files.hostname and host not in (case.files.hostname, "any"):
        yield (
            f"the superblock still names the host {host!r}; the ARRAY line is enough. To change it: mdadm --stop "
            f"{disk.path}, then mdadm --assemble --update=homehost --homehost=any with its members"
        )
    if facts and facts.degraded:
        yield "the array is degraded: repair that as well, it may not start by itself"
    if case.system.note and starts_from(disk, case.inventory):
        yield case.system.note.format(uuid=case.uuid)
    if disk.path.startswith("/dev/md12") and not places_on(disk, case.inventory):
        yield f"until the next start it stays {disk.path}; from then on it has the name of its ARRAY line"
