"""Running arrays: find one by name, describe it for `raid show`, and plan `raid persist`."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType

from aligntool.audit import array_boot
from aligntool.audit.array_boot import (
    RunningArray,
    above,
    base_node,
    is_native,
    running_nodes,
    short_name,
    uuid_behind,
)
from aligntool.audit.arrays import BROKEN, Member, member_state, members_of, sync_words
from aligntool.audit.report import Finding, Judged, Report, Severity
from aligntool.audit.wording import grid_words, layer_name, past_words, shell_word, type_words
from aligntool.change import ArrayPlan
from aligntool.commands import ByHand, by_hand, typed
from aligntool.contents.catalogue import kind_named
from aligntool.contents.swap import SWAP
from aligntool.documents import OMITTED
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import ArrayFacts, Disk, Inventory, Layer
from aligntool.raid import boot
from aligntool.raid.ceilings import Ceiling, Rates, ceiling, narrowest_link
from aligntool.raid.levels import Level, level_of
from aligntool.raid.members import Known, dramless_words, is_dramless, link_words, shared_words
from aligntool.raid.settings import bitmap_words, kept_words, refuse_tuned, settings_notes, settings_steps
from aligntool.steps import CheckInitramfs, EditFile, RebuildInitramfs, ReloadUnits, Step, Subject
from aligntool.system import TableLine
from aligntool.units import format_about, format_rate, format_size

# Finding an array by name: the kernel's, a node below /dev, or the name that mdadm gave it.
#
# Two arrays may have the same name, which all commands that take a name must refuse in the same way.


_SUBCOMMAND = re.compile(r"raid\s\w+")


def find_array(disks: Sequence[Disk], name: str, *, command: str) -> Disk:
    """Return the array that runs as "md127", "/dev/md127", "/dev/md/data", or has the name "data" or
    "host:data" in its superblock or below /dev/md (mdadm(8), "DEVICE NAMES"). The kernel's own names take
    precedence: they are unique.

    `command`: the command that the hint completes with each candidate. Raises Refused if no array or several
    match.
    """
    arrays = [disk for disk in disks if disk.array]
    node = [disk for disk in arrays if name == disk.name or name in running_nodes(disk)]
    found = node or [disk for disk in arrays if disk.array and name in _mdadm_names(disk.array, disk)]
    if len(found) == 1:
        return found[0]
    of_all = _SUBCOMMAND.sub("audit", command, count=1)  # of the same machine
    hint = "\n".join(f"{command} {shell_word(disk.name)}" for disk in found or arrays) or of_all
    if found:
        text = f"{name}: several md arrays have that name: {', '.join(disk.path for disk in found)}"
        raise Refused(text, hint=hint, code="name-ambiguous", subject=name)
    raise Refused(f"{name}: no running md array has that name", hint=hint, code="no-array", subject=name)


def _mdadm_names(facts: ArrayFacts, disk: Disk) -> set[str]:
    return {*(link.removeprefix("md/") for link in facts.links), facts.name or "", short_name(disk)} - {""}


# The description of an array.


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member. `data_at`: the byte of its drive where the array's data begin, or None if unknown."""

    name: str
    data: str  # `data_at` and `aligned` in words
    drive: str | None = None
    model: str | None = None
    own_link: str | None = None  # the drive's own link, current and maximum
    link: str | None = None  # the narrowest link on the path
    bandwidth: int | None = None  # of that link, bytes per second
    shares: tuple[str, ...] = ()  # shared uplinks with the other drives on them, a phrase each
    dramless: bool = False  # known to have no DRAM
    memory: str | None = None  # of a drive without DRAM: how much of the host's memory it requests, and got
    data_at: int | None = None
    aligned: bool | None = None
    md_state: str | None = None  # as `member_state` returns it


@dataclass(frozen=True, slots=True)
class ArrayView:
    name: str
    path: str
    level: str
    size: int | None
    chunk: int | None
    metadata: str | None
    state: str
    members: tuple[MemberView, ...]
    contents: tuple[str, ...]  # its content, a phrase each
    ceiling: Ceiling
    findings: tuple[str, ...]
    next: tuple[str, ...]  # the commands for these findings, without duplicates
    # settings that a udev rule keeps, and which of them differ now, a sentence each
    kept: tuple[str, ...] = field(default=(), metadata={OMITTED: True})
    bitmap: str = field(default="", metadata={OMITTED: True})  # as `bitmap_words` returns it


def arrays_of(
    report: Report,
    names: Sequence[str] = (),
    rates: Rates = MappingProxyType({}),
    known: Known = MappingProxyType({}),
    command: str = "aligntool raid show",
) -> tuple[ArrayView, ...]:
    """Return the arrays with these names or paths, or all. `rates`: of the drives, as far as known. `known`:
    the rows of the drive database for each drive. `command`: as in `find_array`. Raises Refused as that does.
    """
    disks = [judged.disk for judged in report.judged]
    wanted = {find_array(disks, name, command=command).name for name in names}
    selected = [judged for judged in report.judged if not names or judged.disk.name in wanted]
    return tuple(
        _view(judged, judged.disk.array, report, rates, known) for judged in selected if judged.disk.array
    )


def _view(judged: Judged, facts: ArrayFacts, report: Report, rates: Rates, known: Known) -> ArrayView:
    disk = judged.disk
    places = members_of(report.judged)
    offsets = dict(facts.member_data_offsets)
    level = level_of(facts.level)
    drives = [places[name].disk for name in facts.members if name in places]
    own = {drive.name: rates[drive.name] for drive in drives if drive.name in rates}
    found = tuple(_findings(disk, [drive.name for drive in drives], report))
    views = (_member_view(name, places.get(name), offsets.get(name), report, known) for name in facts.members)
    members = tuple(replace(view, md_state=member_state(facts, view.name)) for view in views)
    loaded = [places[name].disk for name in facts.members if name in places and name not in facts.spares]
    bound = ceiling(loaded, report.inventory.uplinks, level, facts.layout or "", own)
    findings = tuple(f"{finding.code.value} {finding.summary}" for finding in found)
    following = tuple(dict.fromkeys(finding.next for finding in found if finding.next))
    kept = tuple(kept_words(facts))
    if tuple(settings_steps(facts, disk.path, "")):
        following += (typed("aligntool raid persist", disk.path),)
    form = (disk.name, disk.path, facts.level, disk.size, facts.chunk, facts.metadata, _state(facts, level))
    return ArrayView(
        *form, members, tuple(_contents(judged)), bound, findings, following, kept, bitmap_words(facts)
    )


def _member_view(
    name: str, member: Member | None, offset: int | None, report: Report, known: Known
) -> MemberView:
    if member is None:
        return MemberView(name, "its drive was not read")
    disk = member.disk
    part = member.partition
    bottleneck = narrowest_link(disk)
    link = f"{bottleneck.what}, {format_rate(bottleneck.bandwidth)}" if bottleneck else None
    shares = tuple(shared_words(disk, report.inventory.uplinks))
    links = (link_words(disk) or None, link, bottleneck.bandwidth if bottleneck else None, shares)
    memory = dramless_words(disk) if is_dramless(disk, known.get(disk.name, ())) else None
    start = None if offset is None else (part.extent.start if part else 0) + offset
    aligned, words = _judge_data(member, start)
    return MemberView(name, words, disk.name, disk.model, *links, memory is not None, memory, start, aligned)


def _judge_data(member: Member, start: int | None) -> tuple[bool | None, str]:
    if start is None:
        return None, "data offset unknown"
    worst = next((grid for grid in member.grids if grid.off_by(start)), None)
    if worst is None:
        return True, f"data at byte {start}, on the grid"
    past = past_words(worst.off_by(start), worst.size)
    return False, f"data at byte {start}, {past} ({grid_words(worst)})"


def _state(facts: ArrayFacts, level: Level) -> str:
    """Return whether members are missing, and md's current action with its progress, speed and remaining
    time.
    """
    state = "all members present" if level.redundant else "no redundancy"
    if facts.state == BROKEN:
        state = "FAILED: it has lost more members than it can lose"
    elif facts.degraded:
        state = f"DEGRADED: {facts.degraded} missing"
    elif facts.degraded is None and level.redundant:
        state = "state unknown"
    idle = facts.sync_action in (None, "idle", "frozen")
    return state if idle else f"{state}, {facts.sync_action}{sync_words(facts)}"


def _contents(judged: Judged) -> Iterator[str]:
    disk = judged.disk
    for content in [_layer(layer) for layer in disk.content] or (
        [disk.content_hint] if disk.content_hint else []
    ):
        yield f"on it: {content}{_mounted(disk.mounted_at)}"
    for part in disk.partitions:
        content = ", ".join(_layer(layer) for layer in part.content) or part.content_hint or type_words(part)
        where = f"partition {part.number} at byte {part.extent.start}"
        yield f"{where}: {content or 'unknown content'}{_mounted(part.mounted_at)}"
    if disk.holders:
        yield f"carries {', '.join(disk.holders)}"


def _layer(layer: Layer) -> str:
    stripe = ""
    if layer.stripe_unit:
        width = f", width {format_size(layer.stripe_width)}" if layer.stripe_width else ""
        stripe = f" (stripe unit {format_size(layer.stripe_unit)}{width})"
    return layer_name(layer) + stripe


def _mounted(places: Sequence[str]) -> str:
    return f", mounted at {', '.join(places)}" if places else ""


def _findings(disk: Disk, drives: Sequence[str], report: Report) -> Iterator[Finding]:
    """Yield errors and warnings of the array, of everything stacked on it, and of the links of its drives."""
    stacked = {other.name for other in above(disk, report.inventory.disks)}
    for finding in report.findings:
        relevant = finding.disk in stacked or (
            finding.disk in drives and finding.code.value.startswith("AT5")
        )
        if relevant and finding.severity is not Severity.INFO:
            yield finding


# fstab and crypttab lines of an existing array: by UUID, and with nofail if the system can boot without it.
#
# In a line that a user wrote only one field is changed, and the rest of the line stays as it is: fstab(5),
# crypttab(5), systemd.mount(5).

CRYPTTAB = "/etc/crypttab"
_PLACE = re.compile(r"/[^\s\\#]*")


def table_steps(array: RunningArray) -> Iterator[EditFile]:
    """Yield the edits of fstab and crypttab lines that name the array by its node, or lack nofail."""
    for line in array.fstab_lines():
        new = _repaired_line(line, array)
        if new != line.text:
            yield boot.edit(boot.FSTAB, line.text, new)
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
        waits = line.kind == SWAP.name or boot.sets_device_timeout(line.options)
        more = ("nofail",) if waits else ("nofail", boot.DEVICE_TIMEOUT)
        # a carriage return hides the last one
        words = [word.rstrip("\r") for word in line.options] or ["defaults"]
        text = _with_field(
            text.rstrip("\r"), 3, ",".join((*words, *(word for word in more if word not in words)))
        )
    return text


def _is_by_node(line: TableLine, array: RunningArray) -> bool:
    return base_node(line.spec) in array.nodes()


def _lacks_nofail(line: TableLine) -> bool:
    """Return whether a line should get nofail. Mounts that the system may need to start, above all the root,
    are left as they are.
    """
    if {"nofail", "noauto"} & set(line.options):
        return False
    return line.kind == SWAP.name or not array_boot.SYSTEM_PLACES.fullmatch(line.place)


def _with_field(text: str, number: int, value: str) -> str:
    """Return the line with this value in that field; all else stays, including the white space."""
    pieces = re.split(r"(\s+)", text)
    fields = [index for index, piece in enumerate(pieces) if piece and not piece.isspace()]
    if number < len(fields):
        pieces[fields[number]] = value
        return "".join(pieces)
    return f"{text.rstrip()} {value} 0 0"


def refuse_mount(array: RunningArray, place: str | None) -> Iterator[Refusal]:
    """Yield why fstab and crypttab cannot be changed as requested."""
    disk = array.disk
    lines = array.fstab_lines()
    for line in (*(line for line in lines if _is_by_node(line, array)), *_crypt_lines(array)):
        if uuid_behind(line.spec, disk) is None:
            text = f"the UUID of {line.spec}, which is mounted at {line.place}, is unknown"
            yield Refusal("uuid-unknown", line.spec, text, typed("blkid", line.spec))
    if place is None:
        return
    layer = disk.content[0] if len(disk.content) == 1 else None
    if not _PLACE.fullmatch(place) or place == "/":
        text = f"{place!r} is not a valid mount point for fstab"
        yield Refusal("invalid-option", "--mount", text, "--mount /srv/data")
    if layer is None or not layer.uuid or not kind_named(layer.kind).is_mountable:
        content = layer.kind if layer else "no single file system"
        look = typed("blkid -p", disk.path)
        text = f"{disk.path} holds {content}, so it cannot be mounted directly"
        if disk.content_read:
            yield Refusal("not-mountable", disk.path, text, look)
        else:
            yield Refusal("not-read", disk.path, f"the content of {disk.path} could not be read", look)
    for line in array.system.fstab:
        if line.place == place and line not in lines:
            free = free_mount_point(place, lambda path: _is_taken(path, array))
            text = f"fstab already mounts {line.spec} at {place}"
            yield Refusal("mount-point", place, text, f"--mount {shell_word(free)}")
        elif line in lines and line.place != place:
            yield Refusal(
                "mount-point", line.place, f"fstab already mounts it at {line.place}", "omit --mount"
            )


def free_mount_point(place: str, taken: Callable[[str], bool]) -> str:
    """Return a free mount point, /srv/data-2 for /srv/data. If the place is not meant for mounts (hier(7)),
    the last component of its path is used below /srv.
    """
    plain = place.rstrip("/")
    if not plain.startswith(("/srv/", "/mnt/", "/media/")):
        plain = f"/srv/{plain.rpartition('/')[2] or 'data'}"
        if not taken(plain):
            return plain
    return next(path for number in count(2) if not taken(path := f"{plain}-{number}"))


def _is_taken(place: str, array: RunningArray) -> bool:
    disks = array.inventory.disks
    mounted = [place for disk in disks for place in disk.mounted_at]
    mounted += [place for disk in disks for part in disk.partitions for place in part.mounted_at]
    return place in mounted or any(line.place == place for line in array.system.fstab)


def mount_steps(array: RunningArray, place: str | None) -> Iterator[Step]:
    """Yield a new fstab line and the mount, as far as they do not exist yet."""
    if place is None or not array.disk.content:
        return
    layer = array.disk.content[0]
    line = ""
    if not any(line.place == place for line in array.fstab_lines()):
        options = (*(kind_named(layer.kind).mount_options or ("defaults",)), "nofail", boot.DEVICE_TIMEOUT)
        line = boot.mount_line(layer.uuid or "", place, layer.kind, options)
    yield from boot.mount_steps(layer.uuid or "", place, line, mounted=place in array.places())


def mount_words(array: RunningArray, place: str | None) -> Iterator[str]:
    """Yield what happens to the fstab lines of the array, a sentence each."""
    lines = array.fstab_lines()
    for line in lines:
        change = "is identified by UUID from now on" if _is_by_node(line, array) else "stays as it is"
        extra = ", and may be missing when the system boots (nofail)" if _lacks_nofail(line) else ""
        yield f"fstab: {line.place if line.kind != SWAP.name else 'swap'} {change}{extra}"
    if not lines and place is None:
        stacked = [disk.name for disk in array.stack() if disk.name != array.disk.name]
        carries = f"; on top of it: {', '.join(stacked)}" if stacked else "; --mount DIR adds a line"
        yield f"fstab has no line for it{carries}"


# The plan that makes an existing array start again after every reboot.
#
# Unlike in `raid create`, the edits depend on the lines that the files already have.


@dataclass(frozen=True, slots=True)
class PersistGoal:
    """`system` None: that of this machine. `mount_at` None: the mount point stays. `root`: the folder of an
    installed system; "": the running one. `tuned`: the text of a measurement of settings; "": of none.
    """

    system: str | None = None
    mount_at: str | None = None
    root: str = field(default="", metadata={OMITTED: True})
    tuned: str = field(default="", metadata={OMITTED: True})


def plan_persist(disk: Disk, inventory: Inventory, goal: PersistGoal) -> ArrayPlan:
    """Plan the files that make the array start after every reboot. Raises Refused with every reason why they
    cannot.
    """
    array, system = resolve_array(disk, inventory, goal)
    conf = array.system.mdadm
    nodes = [f"/dev/{name}" for name in array.facts.members]
    forbidden = boot.refuse_device_lines(conf, (*conf.files, system.mdadm_conf)[0], nodes)
    lines = (*_refuse_joined_lines(array), *_refuse_lines_outside(array, system))
    tuned = refuse_tuned(array.facts, _drives(array), goal.tuned, goal.root) if goal.tuned else ()
    refuse([*lines, *forbidden, *refuse_mount(array, goal.mount_at), *tuned])
    installed = array.system.installed
    steps = boot.steps_for(installed, _steps(array, system, goal))
    refuse(_refuse_ambiguous_edits(array, steps))
    size = disk.size or 0
    sector = disk.limits.logical_block_size or 512
    subject = Subject(disk.path, size, sector, None, array.facts.uuid, None, None, None, "")
    title = f"{array.facts.level} of {format_about(size)}: the same name and mounts after every reboot"
    attention = tuple(_attention(array, system)) if steps else ()
    notes = tuple(_notes(array, system, goal))
    return ArrayPlan("persist", subject, title, (), steps, attention, notes, installed=installed)


def _refuse_ambiguous_edits(array: RunningArray, steps: Sequence[Step]) -> Iterator[Refusal]:
    """Refuse an edit if another line contains the text to replace: an edit replaces every line that contains
    it.
    """
    files = array.system
    lines = [(line.file, line.text) for line in files.mdadm.arrays]
    lines += [(boot.FSTAB, line.text) for line in files.fstab] + [
        (CRYPTTAB, line.text) for line in files.crypttab
    ]
    for path, key in [(step.path, step.instead_of) for step in steps if isinstance(step, EditFile)]:
        # A byte that is not UTF-8 was read as U+FFFD, which the file does not contain.
        found = [f"a line holds characters that are not UTF-8: {key}"] if "\ufffd" in key else []
        found += [
            f"the line {key!r} cannot be replaced, because another line contains it: {text}"
            for file, text in lines
            if file == path and key in text and text != key
        ]
        hint = f"edit {path} by hand first"
        yield from (Refusal("file-conflict", path, f"{path}: {text}", hint) for text in found)


def resolve_array(disk: Disk, inventory: Inventory, goal: PersistGoal) -> tuple[RunningArray, boot.System]:
    """Return the array and the family of its system. Raises Refused if nothing can be planned."""
    facts = disk.array
    files = inventory.system
    path = disk.path
    detail = typed("mdadm --detail", path)
    if facts is None:
        raise Refused(
            f"{path} is not a running md array", hint="aligntool raid show", code="no-array", subject=path
        )
    if not is_native(facts):
        text = f"{path} is a firmware array ({facts.metadata}): the firmware keeps its configuration"
        raise Refused(
            text, hint=f"{typed('mdadm --detail-platform')}; {detail}", code="firmware-array", subject=path
        )
    if files is None:
        text = "the files of this system cannot be read"
        hint = "ls /etc/os-release /etc/fstab"
        if inventory.captured:
            text = "the snapshot does not contain the files of the captured system"
            hint = "on that machine: sudo aligntool snapshot -o FILE"
        raise Refused(text, hint=hint, code="not-read")
    refuse(
        Refusal("not-read", file, f"{file} cannot be read", typed("cat", file)) for file in files.mdadm.unread
    )
    if not facts.uuid:
        raise Refused(f"the UUID of {path} is unknown", hint=detail, code="uuid-unknown", subject=path)
    word = goal.system or files.family
    if word not in boot.SYSTEMS:
        text = (
            f"{word!r} is not a supported system"
            if word
            else "the distribution family of this system is unknown"
        )
        raise Refused(
            text, hint=f"--system: {', '.join(boot.SYSTEMS)}", code="invalid-option", subject="--system"
        )
    return RunningArray(disk, facts, inventory, files), boot.SYSTEMS[word]


def _refuse_joined_lines(array: RunningArray) -> Iterator[Refusal]:
    for line in (*array.wrong_lines(), *array.surplus_lines()):
        if line.joined:
            text = f"the array's wrong entry in {line.file} spans several lines: {line.text}"
            yield Refusal("file-conflict", line.file, text, f"remove it from {line.file} by hand first")


def _refuse_lines_outside(array: RunningArray, system: boot.System) -> Iterator[Refusal]:
    """Refuse a line in mdadm.conf.d, also a wrong one to be replaced there, if an initramfs lacks it:
    initramfs-tools copies only the main file.
    """
    images = [image for image in array.system.initramfs if not image.unseen and array.is_assembled_by(image)]
    for line in (array.lines_in(array.system.mdadm.arrays) or array.wrong_lines())[:1]:
        if (
            system.maker == "initramfs-tools"
            and ".conf.d/" in line.file
            and not all(map(array.is_named_in, images))
        ):
            text = (
                f"the array's line is in {line.file}, which initramfs-tools does not copy into the initramfs"
            )
            yield Refusal("file-conflict", line.file, text, f"move that line into {system.mdadm_conf}")


def _is_assembled_early(array: RunningArray) -> bool:
    """Return whether an initramfs has to assemble the array, or may do so: an unreadable one counts."""
    images = array.system.initramfs
    return array.holds_system() or any(image.unseen or array.is_assembled_by(image) for image in images)


def _steps(array: RunningArray, system: boot.System, goal: PersistGoal) -> Iterator[Step]:
    edits = tuple(boot.conf_steps(array, system))
    yield from edits
    if _is_to_be_rebuilt(array, edits=bool(edits)):
        yield RebuildInitramfs(system.maker)
        # The maker's own program shows its own images only.
        if {image.maker for image in array.system.initramfs if not image.unseen} == {system.maker}:
            yield CheckInitramfs(system.maker, array.facts.uuid or "")
    if _is_assembled_early(array) and array.stays_inactive(system.word):
        yield from boot.install_late_start()
    tables = tuple(table_steps(array))
    mount = tuple(mount_steps(array, goal.mount_at))
    yield from tables
    if tables and not mount:
        yield ReloadUnits()
    yield from mount
    if not goal.root:
        yield from settings_steps(array.facts, array.disk.path, goal.tuned)


def _drives(array: RunningArray) -> list[Disk]:
    """Return the drives with members of the array."""
    members = set(array.facts.members)
    return [
        disk
        for disk in array.inventory.disks
        if members & {disk.name, *(part.node for part in disk.partitions)}
    ]


def _is_to_be_rebuilt(array: RunningArray, *, edits: bool) -> bool:
    """Return whether an image that assembles the array lacks its line, or has one that the edits replace."""
    images = [image for image in array.system.initramfs if not image.unseen]
    unnamed = any(array.is_assembled_by(image) and not array.is_named_in(image) for image in images)
    bare = array.holds_system() and not all(image.has_mdadm for image in images)
    return bool(array.system.initramfs) and _is_assembled_early(array) and (edits or unnamed or bare)


def _notes(array: RunningArray, system: boot.System, goal: PersistGoal) -> Iterator[str]:
    yield f"the files and commands are those of {system.title}; nothing is written to the array itself"
    yield from boot.conf_words(array, system)
    images = array.system.initramfs
    if not images:
        yield "no initramfs found in /boot: only the running system assembles arrays"
    elif not _is_assembled_early(array):
        later = "it starts later, by the mdadm.conf of the running system"
        yield f"{len(images)} initramfs images were examined, and none assembles this array: {later}"
    else:
        seen = sum(not image.unseen for image in images)
        yield f"{seen} of {len(images)} initramfs images were examined; they are checked again at the end"
    yield from mount_words(array, goal.mount_at)
    if goal.tuned:
        yield from settings_notes(array.facts, goal.tuned)


def _attention(array: RunningArray, system: boot.System) -> Iterator[str]:
    disk = array.disk
    facts = array.facts
    files = array.system
    for image in files.initramfs:
        if image.unseen:
            yield f"{image.path}: not readable: {image.unseen}"
    for word in files.command_line:
        key, _, value = word.partition("=")
        found = array_boot.NUMBERED.fullmatch(value)
        if found and f"/dev/{found[1]}" in array.nodes():
            put = (
                "in the boot loader's settings, use UUID= of the file system or swap space, and regenerate"
                " its menu"
            )
            yield f"the kernel's command line has {word}: {put}"
            if key == "resume":
                yield "do not hibernate before that: the hibernation image is found by this option"
    host, colon, _ = (facts.name or "").rpartition(":")
    if colon and files.hostname and host not in (files.hostname, "any"):
        change = by_hand(ByHand.ARRAY_SETTINGS, "mdadm", disk.path)
        yield (
            f"the superblock still names the host {host!r}; the ARRAY line is enough. To change it: {change}"
        )
    if facts.degraded or facts.state == BROKEN:
        yield "the array is degraded: repair it too, or it may not start on its own"
    if system.note and array.holds_system():
        yield system.note.format(uuid=facts.uuid)
    if disk.path.startswith("/dev/md12") and not array.places():
        yield f"until the next boot it stays {disk.path}; from then on it has the name in its ARRAY line"
