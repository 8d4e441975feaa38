"""An array that somebody made -> the plan of what makes it come back after every reboot.

In: the array, the inventory it is of, and what the user wants. Out: a Plan of edits and commands, none of which
touches the array; no steps where nothing is to be done. Raises Refused with every reason. Alone because
`raid create` knows what its files will say, and here it depends on what they say already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit.coming_back import (
    NUMBERED,
    assembles,
    is_native,
    lines_of,
    nodes_of,
    places_on,
    starts_from,
    wrong_lines,
)
from aligntool.audit.incomplete import stays_inactive
from aligntool.errors import Objection, Refused, refuse
from aligntool.inventory import Disk, Inventory
from aligntool.inventory import System as Files
from aligntool.plan import EditFile, Plan, RunCommand, Step, Subject
from aligntool.raid.array_lines import conf_steps, conf_words
from aligntool.raid.late_start import bring_late_start
from aligntool.raid.mounting import (
    CRYPTTAB,
    FSTAB,
    PlaceWish,
    mount_steps,
    mount_words,
    refuse_mount,
    table_steps,
)
from aligntool.raid.systems import SYSTEMS, System
from aligntool.units import format_about


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
    refuse([*_unfit(case), *(refuse_mount(disk, inventory, _wish(goal), case.files))])
    steps = tuple(_steps(case, goal))
    refuse([*_swallowed(steps, case.files)])
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
    )  # fmt: skip


def _swallowed(steps: Sequence[Step], files: Files) -> Iterator[Objection]:
    """An edit replaces every line with that text in it: one that only begins like the line that is meant stops it."""
    lines = [(line.file, line.text) for line in files.mdadm.arrays]
    lines += [(FSTAB, line.text) for line in files.fstab] + [(CRYPTTAB, line.text) for line in files.crypttab]
    for step in steps:
        if isinstance(step, EditFile):
            if (
                "\ufffd" in step.instead_of
            ):  # what a byte that is no UTF-8 was read as: it cannot be found again
                yield (
                    f"{step.path}: a line holds characters that are no UTF-8: {step.instead_of}",
                    f"change it in {step.path} by hand first",
                )
            for file, text in lines:
                if file == step.path and step.instead_of in text and text != step.instead_of:
                    yield (
                        f"{file}: the line {step.instead_of!r} cannot be replaced, because another one holds the same "
                        f"words: {text}",
                        f"change it in {file} by hand first",
                    )


def _wish(goal: PersistGoal) -> PlaceWish:
    return PlaceWish(goal.mount_at)


def _case(disk: Disk, inventory: Inventory, goal: PersistGoal) -> Case:
    """Raises Refused where there is nothing to think about."""
    facts, files = disk.array, inventory.system
    if facts is None:
        raise Refused(f"{disk.path} is no md array that runs", hint="aligntool raid show")
    if not is_native(disk):
        raise Refused(
            f"{disk.path} is an array of the firmware ({facts.metadata}): what makes it come back is kept there",
            hint=f"mdadm --detail-platform; mdadm --detail {disk.path}",
        )
    if files is None:
        raise Refused("the files of this system cannot be seen", hint="ls /etc/os-release /etc/fstab")
    if not facts.uuid:
        raise Refused(f"nobody says which UUID {disk.path} has", hint=f"mdadm --detail {disk.path}")
    word = goal.system or files.family
    if word not in SYSTEMS:
        why = f"{word!r} is no system whose files are known" if word else "this system's family is not known"
        raise Refused(why, hint=f"--system: {', '.join(SYSTEMS)}")
    return Case(disk, inventory, files, SYSTEMS[word], facts.uuid)


def _unfit(case: Case) -> Iterator[Objection]:
    for line in wrong_lines(case.disk, case.inventory, case.files):
        if line.joined:
            yield (
                f"the array's wrong line in {line.file} goes on over several lines: {line.text}",
                f"take it out of {line.file} by hand first",
            )


def _steps(case: Case, goal: PersistGoal) -> Iterator[Step]:
    edits: tuple[EditFile, ...] = tuple(conf_steps(case.disk, case.inventory, case.files, case.system))
    yield from edits
    if _is_to_be_rebuilt(case, edits=bool(edits)):
        yield RunCommand("build every initramfs anew", case.system.rebuild)
        if _can_be_shown(case):
            yield case.system.look_inside(case.uuid)
    if case.is_assembled_early and stays_inactive(case.disk, case.inventory, case.files, case.system.word):
        yield from bring_late_start()
    tables = tuple(table_steps(case.disk, case.inventory, case.files))
    mount = tuple(mount_steps(case.disk, case.inventory, _wish(goal), case.files))
    yield from tables
    if tables and not mount:
        yield RunCommand("let systemd read fstab again", ("systemctl", "daemon-reload"))
    yield from mount


def _is_to_be_rebuilt(case: Case, *, edits: bool) -> bool:
    """When an image that assembles the array has no line of it, or an older one than the file will have."""
    if not case.files.initramfs or not case.is_assembled_early:
        return False
    return edits or any(
        (
            assembles(image, case.disk, case.files)
            and not lines_of(case.disk, image.conf.arrays if image.conf else ())
        )
        or (starts_from(case.disk, case.inventory) and not image.has_mdadm)
        for image in case.files.initramfs
        if not image.unseen
    )


def _can_be_shown(case: Case) -> bool:
    """By the system's own program, which knows its own images only."""
    makers = {image.maker for image in case.files.initramfs if not image.unseen}
    own = {"debian": "initramfs-tools", "arch": "mkinitcpio"}.get(case.system.word, "dracut")
    return makers == {own}


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
            yield f"nobody could look into {image.path}: {image.unseen}"
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
        yield "the array is degraded: mend that as well, it may not start by itself"
    if case.system.note and starts_from(disk, case.inventory):
        yield case.system.note.format(uuid=case.uuid)
    if disk.path.startswith("/dev/md12") and not places_on(disk, case.inventory):
        yield f"until the next start it stays {disk.path}; from then on it has the name of its ARRAY line"
