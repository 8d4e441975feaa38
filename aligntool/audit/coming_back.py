"""Whether arrays come back after a reboot, under their names, and what is mounted from them with them.

In: an Inventory with its System. Out: findings. Alone because nothing of this is on a disk: an array without fault is
lost to its user when mdadm.conf, the initramfs or fstab do not know it (mdadm.conf(5), fstab(5), systemd.mount(5)).
"""

import re
from collections.abc import Iterator, Sequence

from aligntool.audit.arrays import tell
from aligntool.audit.codes import Code
from aligntool.audit.report import Finding, Severity
from aligntool.audit.words import shell_word
from aligntool.inventory import ArrayLine, Disk, Initramfs, Inventory, System, TableLine
from aligntool.plan.subject import superblocks_on

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
    """By the program of whoever makes images there; `file` where nobody knows."""
    if image.unseen == "needs root":
        return "sudo aligntool audit"
    lister = {None: "file", "debian": "lsinitramfs", "arch": "lsinitcpio"}.get(system.family, "lsinitrd")
    return f"sudo {lister} {shell_word(image.path)}"


def is_native(disk: Disk) -> bool:
    """md's own metadata; what firmware keeps comes back by other ways."""
    facts = disk.array
    return (
        facts is not None and facts.level != "container" and not (facts.metadata or "").startswith("external")
    )


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
            and (
                node_of(line.device) in nodes or (line.uuid is None and line.name and line.name == facts.name)
            )
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
        nodes = {
            part.node for one in inventory.disks if one.name in found for part in one.partitions if part.node
        }
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
    """Whether that initramfs would try. dracut does only what it was told: rd.md.uuid=, rd.auto (dracut.cmdline(7))."""
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
        why = (
            "belongs to another array"
            if line.uuid and line.device != "<ignore>"
            else "does not name it by its UUID"
        )
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
    """/dev/mapper/vg-lv, /dev/vg/lv, /dev/disk/by-...: nobody knows of what it is but by where it is mounted."""
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
