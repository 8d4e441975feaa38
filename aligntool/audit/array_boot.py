"""Judge whether arrays start and mount after a reboot: mdadm.conf, fstab, crypttab, initramfs, minor numbers."""

import re
from collections.abc import Iterator, Sequence

from aligntool.audit.arrays import REDUNDANT
from aligntool.audit.drives import tell
from aligntool.audit.report import Code, Finding, Severity
from aligntool.audit.wording import shell_word
from aligntool.inventory import ArrayFacts, Disk, Inventory, superblocks_on
from aligntool.system import ArrayLine, Initramfs, System, TableLine
from aligntool.values import dataclass

# Whether arrays are assembled at boot under their names and their file systems are mounted: mdadm.conf(5), fstab(5),
# systemd.mount(5).

DEEPEST = 8  # devices on devices
SYSTEM_PLACES = re.compile(r"/|/(usr|boot|efi|var|home|root|opt|etc)(/.*)?|none|swap")
NUMBERED = re.compile(r"/dev/(md_?d?\d+)(p\d+)?")
LEAVES_INACTIVE = "debian"  # the family with initramfs-tools; with dracut it was not tried


@dataclass(frozen=True, slots=True)
class RunningArray:
    """An array with md's own metadata, among the other disks and the files of its system."""

    disk: Disk
    facts: ArrayFacts
    inventory: Inventory
    system: System

    def lines_in(self, lines: Sequence[ArrayLine]) -> tuple[ArrayLine, ...]:
        """Return the ARRAY lines that name the array by its UUID, and let it be assembled."""
        uuid = self.facts.uuid
        return tuple(line for line in lines if uuid and line.uuid == uuid and line.device != "<ignore>")

    def wrong_lines(self) -> tuple[ArrayLine, ...]:
        """Return those that mean the array and do not name it by its UUID but by its node, its name, or another
        UUID.
        """
        uuid, name, nodes = self.facts.uuid, self.facts.name, self.nodes()

        def means_it(line: ArrayLine) -> bool:
            if line.uuid == uuid:
                return line.device == "<ignore>"
            return node_of(line.device) in nodes or bool(line.uuid is None and line.name and line.name == name)

        return tuple(filter(means_it, self.system.mdadm.arrays)) if uuid is not None else ()

    def nodes(self) -> frozenset[str]:
        """Return everything that it may be called below /dev, now or when it has the name of its superblock; but
        nothing that is another array's: two arrays may both be "data".
        """
        name = short_name(self.disk)
        wanted = {*running_nodes(self.disk), *([f"/dev/md/{name}"] if name else [])}
        wanted |= {f"/dev/md{int(name)}"} if name.isdecimal() and len(name) < 5 else set()
        return frozenset(wanted - self.nodes_of_others())

    def nodes_of_others(self) -> frozenset[str]:
        """Return the nodes of other arrays, which run, or whose line and members are here."""
        known, lines = known_arrays(self.inventory), self.system.mdadm.arrays
        others = [one for one in self.inventory.disks if one.array and one.name != self.disk.name]
        named = {node_of(line.device) for line in lines if line.uuid in known and line.uuid != self.facts.uuid}
        return frozenset(named.union(*map(running_nodes, others)))

    def stack(self) -> tuple[Disk, ...]:
        """Return the array and what is stacked on it."""
        return above(self.disk, self.inventory.disks)

    def places(self) -> tuple[str, ...]:
        """Return where something of the array is mounted now."""
        return tuple(dict.fromkeys(place for one in self.stack() for place in places_on(one)))

    def holds_system(self) -> bool:
        """Return whether the system itself is on it: the initramfs has to assemble it."""
        return any(place in ("/", "/usr") for place in self.places())

    def is_assembled_by(self, image: Initramfs) -> bool:
        """Return whether that initramfs would assemble it. dracut assembles only what its options name: rd.md.uuid=,
        rd.auto (dracut.cmdline(7)).
        """
        if image.maker != "dracut":
            return image.has_mdadm
        words = [word.partition("=") for word in self.system.command_line]
        named = {value.replace("-", "").replace(":", "").lower() for key, _, value in words if key == "rd.md.uuid"}
        named |= {asked.replace(":", "") for asked in image.arrays_asked}
        everything = any(key == "rd.auto" and value not in ("0", "no", "off") for key, _, value in words)
        uuid = (self.facts.uuid or "-").replace(":", "")
        return image.has_mdadm and (uuid in named or (everything and not named))

    def is_named_in(self, image: Initramfs) -> bool:
        """Return whether an ARRAY line in the image names it."""
        return bool(self.lines_in(image.conf.arrays if image.conf else ()))

    def fstab_lines(self) -> tuple[TableLine, ...]:
        """Return those of fstab that are of this array, by what they name, or a volume on it by where it is mounted
        now.
        """

        def is_volume(spec: str) -> bool:
            """Return whether only its mount point identifies the node: /dev/mapper/vg-lv, /dev/vg/lv, /dev/disk/..."""
            return spec.startswith("/dev/") and spec.count("/") > 2 and not spec.startswith("/dev/md/")

        contents = ((one.content, *(part.content for part in one.partitions)) for one in self.stack())
        layers = [layer for content in contents for each in content for layer in each]
        specs = {f"UUID={layer.uuid}" for layer in layers if layer.uuid}
        specs |= {f"LABEL={layer.label}" for layer in layers if layer.label}
        nodes, places = self.nodes(), self.places()
        return tuple(
            line
            for line in self.system.fstab
            if line.spec in specs
            or base_node(line.spec) in nodes
            or (is_volume(line.spec) and line.place in places and line.place not in ("none", "swap"))
        )

    def stays_inactive(self, family: str | None) -> bool:
        """Return whether it could run without a drive, but stays inactive then after an initramfs that adds its
        members.

        scripts/local-block/mdadm starts what the root file system needs, and no other. Where no initramfs adds its
        members, mdadm-last-resort@.timer starts it: docs/decisions/0022.
        """
        may_lack = self.facts.level in REDUNDANT and not self.system.late_start
        return may_lack and family == LEAVES_INACTIVE and not self.holds_system()


def running_arrays(inventory: Inventory) -> tuple[RunningArray, ...]:
    """Return the arrays with md's own metadata; none where the system's files were not looked at."""
    system = inventory.system
    return tuple(
        RunningArray(disk, disk.array, inventory, system)
        for disk in inventory.disks
        if system and disk.array and is_native(disk.array)
    )


def is_native(facts: ArrayFacts) -> bool:
    """Return whether it has md's own metadata; firmware arrays are assembled in other ways."""
    return facts.level != "container" and not (facts.metadata or "").startswith("external")


def known_arrays(inventory: Inventory) -> frozenset[str]:
    """Return the UUIDs of running arrays, and of those with a member present."""
    running = {one.array.uuid for one in inventory.disks if one.array and one.array.uuid}
    return frozenset(running.union(*(superblocks_on(one) for one in inventory.disks)))


def running_nodes(disk: Disk) -> tuple[str, ...]:
    return (disk.path, *(f"/dev/{link}" for link in (disk.array.links if disk.array else ())))


def node_of(device: str | None) -> str:
    """Return the node; mdadm.conf(5): a name without a slash is below /dev/md."""
    if not device or device.startswith("/"):
        return device or ""
    return f"/dev/{device}" if NUMBERED.fullmatch(f"/dev/{device}") else f"/dev/md/{device}"


def base_node(spec: str) -> str:
    """Return the array of a node: /dev/md0 of /dev/md0p1; /dev/md/data of /dev/md/data1 is unchanged."""
    found = NUMBERED.fullmatch(spec)
    return f"/dev/{found[1]}" if found else spec


def short_name(disk: Disk) -> str:
    """Return the name without the host; "" where the superblock has none."""
    name = disk.array.name if disk.array else None
    return (name or "").rpartition(":")[2]


def above(disk: Disk, disks: Sequence[Disk]) -> tuple[Disk, ...]:
    """Return the disk and what is stacked on it or on its partitions: volumes, mappings, other arrays."""
    found = {disk.name}
    for _ in range(DEEPEST):
        nodes = {part.node for one in disks if one.name in found for part in one.partitions if part.node}
        found |= {one.name for one in disks if not (found | nodes).isdisjoint(one.slaves)}
    return tuple(one for one in disks if one.name in found)


def places_on(disk: Disk) -> tuple[str, ...]:
    """Return where the disk and its partitions are mounted."""
    return (*disk.mounted_at, *(place for part in disk.partitions for place in part.mounted_at))


def _persists(array: RunningArray, code: Code, severity: Severity, sentence: str, *evidence: str) -> Finding:
    """Return a finding that `raid persist` repairs."""
    path = array.disk.path
    return tell(array.disk, code, severity, sentence, *evidence, next_=f"sudo aligntool raid persist {path}")


def system_findings(inventory: Inventory) -> Iterator[Finding]:
    system = inventory.system
    if system is None:
        return
    for sentence in system.unfinished:
        yield Finding(Code.UNFINISHED_ARRAY, Severity.ERROR, sentence, next="sudo aligntool status")
    arrays = running_arrays(inventory)
    for image in system.initramfs if arrays else ():
        if image.unseen:
            sentence = f"arrays in the initramfs {image.path} not seen: {image.unseen}"
            yield Finding(Code.NOT_SEEN, Severity.INFO, sentence, next=_look_inside(image, system))
    for array in arrays:
        if array.facts.uuid is None:
            continue
        if not array.lines_in(system.mdadm.arrays):
            yield from _no_line(array)
        yield from _images(array)
        for line in array.fstab_lines():
            if SYSTEM_PLACES.fullmatch(line.place) or {"nofail", "noauto"} & set(line.options):
                continue
            text = f"fstab mounts it at {line.place} without nofail: where it is missing, the machine does not start"
            yield _persists(array, Code.FSTAB_WITHOUT_NOFAIL, Severity.INFO, text, line.text)


def _look_inside(image: Initramfs, system: System) -> str:
    """Return the program that makes the images there; `file` where it is unknown."""
    if image.unseen == "needs root":
        return "sudo aligntool audit"
    lister = {None: "file", "debian": "lsinitramfs", "arch": "lsinitcpio"}.get(system.family, "lsinitrd")
    return f"sudo {lister} {shell_word(image.path)}"


def _no_line(array: RunningArray) -> Iterator[Finding]:
    wrong, uuid = array.wrong_lines(), array.facts.uuid
    for line in wrong:
        why = "belongs to another array" if line.uuid else "does not name it by its UUID"
        why = "says that it is not to be assembled" if line.device == "<ignore>" else why
        sentence = f"its line in {line.file} {why}; it has UUID {uuid}"
        yield _persists(array, Code.WRONG_ARRAY_LINE, Severity.WARNING, sentence, line.text)
    if not wrong:
        files = ", ".join(array.system.mdadm.files)
        sentence = f"no ARRAY line in {files} names it" if files else "there is no mdadm.conf that names it"
        yield _persists(array, Code.NO_ARRAY_LINE, Severity.WARNING, sentence, f"UUID={uuid}")
    host, colon, name = (array.facts.name or "").rpartition(":")
    home = array.system.mdadm.homehost
    here = array.system.hostname if home in (None, "<system>") else home
    if colon and here and home != "<ignore>" and host not in (here, "any"):
        up = f"{array.disk.path} or /dev/md/{host}:{name}, and under another number the next time"
        sentence = f"belongs to the host {host!r} by its superblock, and this one is {here!r}: it comes up as {up}"
        yield _persists(array, Code.FOREIGN_ARRAY, Severity.WARNING, sentence)


def _images(array: RunningArray) -> Iterator[Finding]:
    needed = array.holds_system()
    for image in array.system.initramfs:
        if image.unseen:
            continue
        if needed and not image.has_mdadm:
            text = f"the system lies on it, and the initramfs {image.path} holds no mdadm: this kernel does not start"
            yield _persists(array, Code.NOT_IN_INITRAMFS, Severity.ERROR, text)
        elif array.is_assembled_by(image) and not array.is_named_in(image):
            has = "holds an mdadm.conf without its ARRAY line" if image.conf else "holds no mdadm.conf"
            text = f"the initramfs {image.path} {has}: it assembles the array under a name of its own, or not at all"
            yield _persists(array, Code.NOT_IN_INITRAMFS, Severity.WARNING, text)


def late_start_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield findings where an initramfs was read, and `raid persist` can name the array by its UUID."""
    for array in running_arrays(inventory):
        system, facts = array.system, array.facts
        seen = [image for image in system.initramfs if not image.unseen and array.is_assembled_by(image)]
        if seen and facts.uuid is not None and array.stays_inactive(system.family):
            yield _persists(
                array, Code.STARTS_ONLY_WHOLE, Severity.INFO,
                f"{facts.level} that lacks a drive at a start stays inactive and is not mounted",
                f"{seen[0].path} adds its members, and starts what the root file system lies on only",
            )  # fmt: skip


# What is named by the number of an array, which md assigns at every boot. The number in a file is often not the one
# that the array has now.

_BOOT_SETTINGS = "/etc/default/grub /etc/default/grub.d /etc/kernel /boot/loader"


def array_number_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield findings on numbers; one that an ARRAY line with a UUID gives is stable, and only a note."""
    system, arrays = inventory.system, running_arrays(inventory)
    if system is None or not arrays:
        return
    fixed = {node_of(line.device) for line in system.mdadm.arrays if line.uuid}
    for where, file, line in _namings(system):
        if NUMBERED.fullmatch(line.spec) is None:
            continue
        node = base_node(line.spec)
        known = _known_by(node, arrays)
        array, reason = (known, "") if known else _probably(line, arrays)
        disk = array.disk if array else None
        kept = node in fixed
        why = "its ARRAY line keeps that number" if kept else "md gives the numbers anew at every start"
        meant = f", which means {disk.name}" if disk and disk.path != node else ""
        by_hand = () if known and file else (_by_hand(file, line, disk, reason),)
        persist = f"sudo aligntool raid persist {known.disk.path}" if known else f"sudoedit {file}"
        yield Finding(
            Code.NUMBERED_IN_FSTAB, Severity.INFO if kept else Severity.WARNING,
            f"{where} says {line.spec}{meant}; {why}", disk=disk.name if disk else None,
            evidence=(line.text, *by_hand), next=persist if file else f"sudo grep -rsw {line.spec} {_BOOT_SETTINGS}",
        )  # fmt: skip


def _namings(system: System) -> Iterator[tuple[str, str, TableLine]]:
    """Yield every word that names a device, with where it stands in words and as a file; "": in the boot loader's
    settings.
    """
    yield from (("fstab", "/etc/fstab", line) for line in system.fstab)
    yield from (("crypttab", "/etc/crypttab", line) for line in system.crypttab)
    for text in system.command_line:
        key, _, value = text.partition("=")
        yield "the kernel's command line", "", TableLine(text, value, "/" if key == "root" else "")


def _known_by(node: str, arrays: Sequence[RunningArray]) -> RunningArray | None:
    """Return the array of that node, or the one that gets it by the ARRAY line with its UUID; None for none, and for
    several.
    """
    lines = arrays[0].system.mdadm.arrays
    uuids = {line.uuid for line in lines if line.uuid and node_of(line.device) == node}
    found = [one for one in arrays if node in one.nodes()] or [one for one in arrays if one.facts.uuid in uuids]
    return found[0] if len(found) == 1 else None


def _probably(line: TableLine, arrays: Sequence[RunningArray]) -> tuple[RunningArray | None, str]:
    """Return the only array that matches, and by what; if a disk of that name is present, it is that one."""
    node, system = base_node(line.spec), arrays[0].system
    if any(disk.path == node for disk in arrays[0].inventory.disks):
        return None, ""
    names = {one.name for one in system.mdadm.arrays if one.name and node_of(one.device) == node}
    free = [one for one in arrays if not one.fstab_lines()]
    alone = [one for one in free if [each.kind for each in one.disk.content] == [line.kind]]
    ways = (
        (f"is mounted at {line.place} now", [one for one in arrays if line.place in one.places()]),
        ("has the name of its ARRAY line", [one for one in arrays if one.facts.name in names]),
        (f"is the only array with {line.kind}", alone),
    )
    return next(((found[0], reason) for reason, found in ways if len(found) == 1), (None, ""))


def uuid_behind(spec: str, disk: Disk) -> str | None:
    """Return the UUID of the content of the array, or of that partition of it. None: nothing is recognised there, or
    more than one.
    """
    found, layers = NUMBERED.fullmatch(spec), [*disk.content]
    if found and found[2]:
        layers = [layer for part in disk.partitions if part.number == int(found[2][1:]) for layer in part.content]
    return layers[0].uuid if len(layers) == 1 else None


def _by_hand(file: str, line: TableLine, disk: Disk | None, reason: str) -> str:
    """Return what `raid persist` does not change: words of the boot loader, and what is not certain to belong to an
    array.
    """
    uuid = uuid_behind(line.spec, disk) if disk else None
    put = f"put UUID={uuid} in its place" if uuid else "put UUID= of what is meant in its place"
    menu = "" if file else ", and renew the boot loader's menu"
    who = (f"{disk.name} {reason}: " if reason else "") if disk else "which array is meant is not known here: "
    return f"{who}{put}{menu}"
