"""Judge whether arrays start and mount after a reboot: mdadm.conf, fstab, crypttab, initramfs, minor numbers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit.arrays import REDUNDANT, tell
from aligntool.audit.report import Code, Finding, Severity
from aligntool.audit.wording import shell_word
from aligntool.inventory import Disk, Inventory
from aligntool.steps import superblocks_on
from aligntool.system import ArrayLine, Initramfs, System, TableLine

# Whether arrays are assembled at boot under their names and their file systems are mounted: mdadm.conf(5), fstab(5),
# systemd.mount(5).

DEEPEST = 8  # devices on devices
NEEDED_TO_START = ("/", "/usr")
SYSTEM_PLACES = re.compile(r"/|/(usr|boot|efi|var|home|root|opt|etc)(/.*)?|none|swap")
NUMBERED = re.compile(r"/dev/(md_?d?\d+)(p\d+)?")


def system_findings(inventory: Inventory) -> Iterator[Finding]:
    system = inventory.system
    if system is None:
        return
    for sentence in system.unfinished:
        yield Finding(Code.UNFINISHED_ARRAY, Severity.ERROR, sentence, next="sudo aligntool status")
    arrays = [disk for disk in inventory.disks if is_native(disk)]
    if not arrays:
        return
    for image in system.initramfs:
        if image.unseen:
            yield Finding(
                Code.NOT_SEEN, Severity.INFO, f"arrays in the initramfs {image.path} not seen: {image.unseen}",
                next=_look_inside(image, system),
            )  # fmt: skip
    for disk in arrays:
        yield from _about(disk, inventory, system)


def _look_inside(image: Initramfs, system: System) -> str:
    """The program that makes the images there; `file` where it is unknown."""
    if image.unseen == "needs root":
        return "sudo aligntool audit"
    lister = {None: "file", "debian": "lsinitramfs", "arch": "lsinitcpio"}.get(system.family, "lsinitrd")
    return f"sudo {lister} {shell_word(image.path)}"


def is_native(disk: Disk) -> bool:
    """md's own metadata; what firmware keeps comes back by other ways."""
    facts = disk.array
    return facts is not None and facts.level != "container" and not (facts.metadata or "").startswith("external")


def lines_of(disk: Disk, lines: Sequence[ArrayLine]) -> tuple[ArrayLine, ...]:
    """The ARRAY lines that name the array by its UUID, and let it be assembled."""
    uuid = disk.array.uuid if disk.array else None
    return tuple(line for line in lines if uuid and line.uuid == uuid and line.device != "<ignore>")


def known_arrays(inventory: Inventory) -> frozenset[str]:
    """UUIDs of the arrays that run, and of those of which a member is there."""
    running = {one.array.uuid for one in inventory.disks if one.array and one.array.uuid}
    return frozenset(running.union(*(superblocks_on(one) for one in inventory.disks)))


def wrong_lines(disk: Disk, inventory: Inventory, system: System) -> tuple[ArrayLine, ...]:
    """Those that mean the array and do not name it by its UUID but by its node, its name, or another UUID."""
    facts = disk.array
    if facts is None or facts.uuid is None:
        return ()
    nodes = nodes_of(disk, inventory)
    return tuple(
        line
        for line in system.mdadm.arrays
        if (line.uuid == facts.uuid and line.device == "<ignore>")
        or (
            line.uuid != facts.uuid
            and (node_of(line.device) in nodes or (line.uuid is None and line.name and line.name == facts.name))
        )
    )


def nodes_of(disk: Disk, inventory: Inventory) -> frozenset[str]:
    """Everything that it may be called below /dev, now or when it has the name of its superblock; but nothing that is
    another array's, which runs or whose line and members are here: two arrays may both be "data".
    """
    name, files = short_name(disk), inventory.system
    wanted = {*running_nodes(disk), *([f"/dev/md/{name}"] if name else [])}
    wanted |= {f"/dev/md{int(name)}"} if name.isdecimal() and len(name) < 5 else set()
    others = [one for one in inventory.disks if one.array and one.name != disk.name]
    taken = {node for one in others for node in running_nodes(one)}
    uuid, known = (disk.array.uuid if disk.array else None), known_arrays(inventory)
    for line in files.mdadm.arrays if files else ():
        if line.uuid and line.uuid != uuid and line.uuid in known:
            taken.add(node_of(line.device))
    return frozenset(wanted - taken)


def running_nodes(disk: Disk) -> tuple[str, ...]:
    return (disk.path, *(f"/dev/{link}" for link in (disk.array.links if disk.array else ())))


def node_of(device: str | None) -> str:
    """mdadm.conf(5): a name without a slash is below /dev/md."""
    if not device or device.startswith("/"):
        return device or ""
    return f"/dev/{device}" if NUMBERED.fullmatch(f"/dev/{device}") else f"/dev/md/{device}"


def short_name(disk: Disk) -> str:
    """Without the host; "" where the superblock names none."""
    name = disk.array.name if disk.array else None
    return (name or "").rpartition(":")[2]


def above(disk: Disk, inventory: Inventory) -> tuple[Disk, ...]:
    """The array and what is stacked on it."""
    found = {disk.name}
    for _ in range(DEEPEST):
        found |= {one.name for one in inventory.disks if not found.isdisjoint(one.slaves)}
        nodes = {part.node for one in inventory.disks if one.name in found for part in one.partitions if part.node}
        found |= {one.name for one in inventory.disks if not nodes.isdisjoint(one.slaves)}
    return tuple(one for one in inventory.disks if one.name in found)


def places_on(disk: Disk, inventory: Inventory) -> tuple[str, ...]:
    """Where something of the array is mounted now."""
    places: list[str] = []
    for one in above(disk, inventory):
        places += one.mounted_at
        places += [place for part in one.partitions for place in part.mounted_at]
    return tuple(dict.fromkeys(places))


def starts_from(disk: Disk, inventory: Inventory) -> bool:
    """The system itself lies on it: the initramfs has to assemble it."""
    return any(place in NEEDED_TO_START for place in places_on(disk, inventory))


def assembles(image: Initramfs, disk: Disk, system: System) -> bool:
    """Whether that initramfs would try. dracut assembles only what its options name: rd.md.uuid=, rd.auto
    (dracut.cmdline(7)).
    """
    if image.maker != "dracut":
        return image.has_mdadm
    uuid = (disk.array.uuid if disk.array else None) or "-"
    words = [word.partition("=") for word in system.command_line]
    told = {value.replace("-", "").replace(":", "").lower() for key, _, value in words if key == "rd.md.uuid"}
    told |= {asked.replace(":", "") for asked in image.arrays_asked}
    everything = any(key == "rd.auto" and value not in ("0", "no", "off") for key, _, value in words)
    return image.has_mdadm and (uuid.replace(":", "") in told or (everything and not told))


def _about(disk: Disk, inventory: Inventory, system: System) -> Iterator[Finding]:
    facts = disk.array
    if facts is None or facts.uuid is None:
        return
    named = lines_of(disk, system.mdadm.arrays)
    persist = f"sudo aligntool raid persist {disk.path}"
    if not named:
        yield from _no_line(disk, inventory, system, persist)
        yield from _foreign(disk, system, persist)
    yield from _images(disk, inventory, system, persist)
    yield from _without_nofail(disk, inventory, system, persist)


def _no_line(disk: Disk, inventory: Inventory, system: System, persist: str) -> Iterator[Finding]:
    wrong = wrong_lines(disk, inventory, system)
    uuid = disk.array.uuid if disk.array else ""
    for line in wrong:
        why = "belongs to another array" if line.uuid and line.device != "<ignore>" else "does not name it by its UUID"
        why = "says that it is not to be assembled" if line.device == "<ignore>" else why
        yield tell(
            disk, Code.WRONG_ARRAY_LINE, Severity.WARNING, f"its line in {line.file} {why}; it has UUID {uuid}",
            line.text, next_=persist,
        )  # fmt: skip
    if not wrong:
        files = ", ".join(system.mdadm.files)
        yield tell(
            disk, Code.NO_ARRAY_LINE, Severity.WARNING,
            f"no ARRAY line in {files} names it" if files else "there is no mdadm.conf that names it",
            f"UUID={uuid}", next_=persist,
        )  # fmt: skip


def _foreign(disk: Disk, system: System, persist: str) -> Iterator[Finding]:
    host, colon, name = ((disk.array.name if disk.array else None) or "").rpartition(":")
    home = system.mdadm.homehost
    here = system.hostname if home in (None, "<system>") else home
    if not colon or not here or home == "<ignore>" or host in (here, "any"):
        return
    yield tell(
        disk, Code.FOREIGN_ARRAY, Severity.WARNING,
        f"belongs to the host {host!r} by its superblock, and this one is {here!r}: it comes up as {disk.path} or "
        f"/dev/md/{host}:{name}, and under another number the next time",
        next_=persist,
    )  # fmt: skip


def _images(disk: Disk, inventory: Inventory, system: System, persist: str) -> Iterator[Finding]:
    needed = starts_from(disk, inventory)
    for image in system.initramfs:
        if image.unseen:
            continue
        if needed and not image.has_mdadm:
            yield tell(
                disk, Code.NOT_IN_INITRAMFS, Severity.ERROR,
                f"the system lies on it, and the initramfs {image.path} holds no mdadm: this kernel does not start",
                next_=persist,
            )  # fmt: skip
        elif assembles(image, disk, system) and not lines_of(disk, image.conf.arrays if image.conf else ()):
            has = "holds an mdadm.conf without its ARRAY line" if image.conf else "holds no mdadm.conf"
            yield tell(
                disk, Code.NOT_IN_INITRAMFS, Severity.WARNING,
                f"the initramfs {image.path} {has}: it assembles the array under a name of its own, or not at all",
                next_=persist,
            )  # fmt: skip


def fstab_lines(disk: Disk, inventory: Inventory, system: System) -> tuple[TableLine, ...]:
    """Those of fstab that are of this array, by what they name, or a volume on it by where it is mounted now."""
    stack = above(disk, inventory)
    layers = [layer for one in stack for layer in one.content]
    layers += [layer for one in stack for part in one.partitions for layer in part.content]
    specs = {f"UUID={layer.uuid}" for layer in layers if layer.uuid}
    specs |= {f"LABEL={layer.label}" for layer in layers if layer.label}
    nodes, places = nodes_of(disk, inventory), places_on(disk, inventory)
    return tuple(
        line
        for line in system.fstab
        if line.spec in specs
        or base_node(line.spec) in nodes
        or (_is_volume(line.spec) and line.place in places and line.place not in ("none", "swap"))
    )


def _is_volume(spec: str) -> bool:
    """/dev/mapper/vg-lv, /dev/vg/lv, /dev/disk/by-...: what it is can only be found by its mount point."""
    return spec.startswith("/dev/") and spec.count("/") > 2 and not spec.startswith("/dev/md/")


def base_node(spec: str) -> str:
    """The array of a node: /dev/md0 of /dev/md0p1, and /dev/md/data of /dev/md/data1 stays what it is."""
    found = NUMBERED.fullmatch(spec)
    return f"/dev/{found[1]}" if found else spec


def _without_nofail(disk: Disk, inventory: Inventory, system: System, persist: str) -> Iterator[Finding]:
    for line in fstab_lines(disk, inventory, system):
        if SYSTEM_PLACES.fullmatch(line.place) or {"nofail", "noauto"} & set(line.options):
            continue
        yield tell(
            disk, Code.FSTAB_WITHOUT_NOFAIL, Severity.INFO,
            f"fstab mounts it at {line.place} without nofail: where it is missing, the machine does not start",
            line.text, next_=persist,
        )  # fmt: skip


# Arrays that are not started at boot when a drive is missing (docs/decisions/0022).

LEAVES_INACTIVE = "debian"  # the family with initramfs-tools; with dracut it was not tried


def stays_inactive(disk: Disk, inventory: Inventory, system: System, family: str | None) -> bool:
    """Whether it could do without a drive, and an initramfs that adds its members leaves it inactive then.

    scripts/local-block/mdadm starts what the root file system needs, and no other. Where no initramfs adds its members,
    mdadm-last-resort@.timer starts it.
    """
    facts = disk.array
    return (
        facts is not None
        and is_native(disk)
        and facts.level in REDUNDANT
        and family == LEAVES_INACTIVE
        and not system.late_start
        and not starts_from(disk, inventory)
    )


def late_start_findings(inventory: Inventory) -> Iterator[Finding]:
    """Only where an initramfs was read, and where `raid persist` can name the array by its UUID."""
    system = inventory.system
    if system is None:
        return
    for disk in inventory.disks:
        facts = disk.array
        if facts is None or facts.uuid is None or not stays_inactive(disk, inventory, system, system.family):
            continue
        seen = [image for image in system.initramfs if not image.unseen and assembles(image, disk, system)]
        if seen:
            yield tell(
                disk, Code.STARTS_ONLY_WHOLE, Severity.INFO,
                f"{facts.level} that lacks a drive at a start stays inactive and is not mounted",
                f"{seen[0].path} adds its members, and starts what the root file system lies on only",
                next_=f"sudo aligntool raid persist {disk.path}",
            )  # fmt: skip


# What is named by the number of an array, which md assigns at every boot. The number in a file is often not the one
# that the array has now.

_BOOT_SETTINGS = "/etc/default/grub /etc/default/grub.d /etc/kernel /boot/loader"


@dataclass(frozen=True, slots=True)
class Naming:
    """A word that names a device, and where it stands. `file` "": in the boot loader's settings."""

    where: str
    file: str
    spec: str
    text: str
    place: str = ""
    kind: str = ""


def array_number_findings(inventory: Inventory) -> Iterator[Finding]:
    """A number that an ARRAY line with a UUID gives is stable, and only a note."""
    system = inventory.system
    arrays = tuple(disk for disk in inventory.disks if is_native(disk))
    if system is None or not arrays:
        return
    fixed = {node_of(line.device) for line in system.mdadm.arrays if line.uuid}
    for word in _namings(system):
        if NUMBERED.fullmatch(word.spec) is None:
            continue
        node = base_node(word.spec)
        known = _known_by(node, arrays, inventory, system)
        disk, reason = (known, "") if known else _probably(word, arrays, inventory, system)
        kept = node in fixed
        why = "its ARRAY line keeps that number" if kept else "md gives the numbers anew at every start"
        meant = f", which means {disk.name}" if disk and disk.path != node else ""
        yield Finding(
            Code.NUMBERED_IN_FSTAB, Severity.INFO if kept else Severity.WARNING,
            f"{word.where} says {word.spec}{meant}; {why}", disk=disk.name if disk else None,
            evidence=(word.text, *_by_hand(word, disk, reason, mended=known is not None)),
            next=_next(word, known),
        )  # fmt: skip


def _namings(system: System) -> Iterator[Naming]:
    for line in system.fstab:
        yield Naming("fstab", "/etc/fstab", line.spec, line.text, line.place, line.kind)
    for line in system.crypttab:
        yield Naming("crypttab", "/etc/crypttab", line.spec, line.text)
    for text in system.command_line:
        key, _, value = text.partition("=")
        yield Naming("the kernel's command line", "", value, text, "/" if key == "root" else "")


def _known_by(node: str, arrays: Sequence[Disk], inventory: Inventory, system: System) -> Disk | None:
    """The array that goes by that node, or gets it by the ARRAY line with its UUID; None for none, and for several."""
    uuids = {line.uuid for line in system.mdadm.arrays if line.uuid and node_of(line.device) == node}
    found = [disk for disk in arrays if node in nodes_of(disk, inventory)]
    found = found or [disk for disk in arrays if disk.array and disk.array.uuid in uuids]
    return found[0] if len(found) == 1 else None


def _probably(word: Naming, arrays: Sequence[Disk], inventory: Inventory, system: System) -> tuple[Disk | None, str]:
    """The only array that fits, and by what; where a disk of that name is here, it is that one."""
    node = base_node(word.spec)
    if any(disk.path == node for disk in inventory.disks):
        return None, ""
    names = {line.name for line in system.mdadm.arrays if line.name and node_of(line.device) == node}
    free = [disk for disk in arrays if not fstab_lines(disk, inventory, system)]
    ways = (
        (f"is mounted at {word.place} now", [one for one in arrays if word.place in places_on(one, inventory)]),
        ("has the name of its ARRAY line", [one for one in arrays if one.array and one.array.name in names]),
        (f"is the only array with {word.kind}", [one for one in free if _kind_on(one) == word.kind]),
    )
    return next(((found[0], reason) for reason, found in ways if len(found) == 1), (None, ""))


def _kind_on(disk: Disk) -> str | None:
    return disk.content[0].kind if len(disk.content) == 1 else None


def uuid_behind(spec: str, disk: Disk) -> str | None:
    """Of what lies on the array, or on that partition of it. None: nothing is recognised there, or more than one."""
    found = NUMBERED.fullmatch(spec)
    number = int(found[2][1:]) if found and found[2] else None
    part = next((part for part in disk.partitions if part.number == number), None)
    if number is not None and part is None:
        return None
    layers = part.content if part else disk.content
    return layers[0].uuid if len(layers) == 1 else None


def _by_hand(word: Naming, disk: Disk | None, reason: str, *, mended: bool) -> Iterator[str]:
    """What `raid persist` does not change: words of the boot loader, and what is not sure to be of an array."""
    if mended and word.file:
        return
    uuid = uuid_behind(word.spec, disk) if disk else None
    put = f"put UUID={uuid} in its place" if uuid else "put UUID= of what is meant in its place"
    menu = "" if word.file else ", and renew the boot loader's menu"
    who = f"{disk.name} {reason}: " if disk and reason else ""
    who = who if disk else "which array is meant is not known here: "
    yield f"{who}{put}{menu}"


def _next(word: Naming, known: Disk | None) -> str:
    if not word.file:
        return f"sudo grep -rsw {word.spec} {_BOOT_SETTINGS}"
    return f"sudo aligntool raid persist {known.path}" if known else f"sudoedit {word.file}"
