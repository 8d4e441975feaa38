"""Judge whether arrays are assembled and mounted at boot: mdadm.conf, fstab, crypttab, initramfs, minor
numbers.

Sources: mdadm.conf(5), fstab(5), systemd.mount(5).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from aligntool.audit.arrays import REDUNDANT
from aligntool.audit.drives import disk_finding
from aligntool.audit.report import Code, Finding, Severity
from aligntool.audit.wording import shell_word
from aligntool.commands import ByHand, by_hand, typed
from aligntool.inventory import ArrayFacts, Disk, Inventory, superblocks_on
from aligntool.system import ArrayLine, Initramfs, System, TableLine

_AS_ROOT = "sudo aligntool audit"
DEEPEST = 8  # levels of stacked devices
SYSTEM_PLACES = re.compile(r"/|/(usr|boot|efi|var|home|root|opt|etc)(/.*)?|none|swap")
NUMBERED = re.compile(r"/dev/(md_?d?\d+)(p\d+)?")
CARRIAGE_RETURN = "ends with a carriage return, which mdadm reads as part of the last word"
FSTAB_RETURN = "its options end with a carriage return, which systemd reads as part of the last one"
LEAVES_INACTIVE = "debian"  # the family with initramfs-tools; not tested with dracut


@dataclass(frozen=True, slots=True)
class RunningArray:
    """An array with md's own metadata, with the other disks and the config files of its system."""

    disk: Disk
    facts: ArrayFacts
    inventory: Inventory
    system: System

    def matched_lines(self, lines: Sequence[ArrayLine]) -> tuple[ArrayLine, ...]:
        """Return the ARRAY lines that mdadm matches with this array. If there are several, `mdadm
        --incremental` does not assemble it: config.c, conf_match. Before 4.3 a line with another name than
        the superblock's does not match.
        """
        uuid = self.facts.uuid
        name = (self.facts.name or "").lower()
        nodes = self.nodes()

        def is_matched(line: ArrayLine) -> bool:
            if (line.name and name and line.name.lower() != name) or (
                line.uuid and self.is_excluded_by(line)
            ):
                return False
            listed = "devices" in line.pinned and node_of(line.device) in nodes
            return line.uuid == uuid if line.uuid else bool((line.name and name) or listed)

        return tuple(filter(is_matched, lines)) if uuid is not None else ()

    def is_excluded_by(self, line: ArrayLine) -> bool:
        """Return whether the line lists other devices than the members, whose names may have changed since,
        or has a super-minor, which metadata 1.x lacks: config.c, conf_match; super1.c, getinfo_super1.
        """
        patterns = [word for word in line.members if word.startswith("/")]  # those of a snapshot are masked
        nodes = [PurePath("/dev", member) for member in self.facts.members]
        lists_others = bool(patterns) and not all(any(map(node.match, patterns)) for node in nodes)
        return lists_others or ("super-minor" in line.pinned and (self.facts.metadata or "").startswith("1."))

    def mismatch_words(self, line: ArrayLine) -> str:
        """Return why a line with the array's UUID does not match it."""
        other = "has another name than its superblock"
        return "has devices= or super-minor=, which do not match it" if self.is_excluded_by(line) else other

    def lines_in(self, lines: Sequence[ArrayLine]) -> tuple[ArrayLine, ...]:
        """Return the ARRAY lines that name this array by UUID, without those that forbid assembly
        (`<ignore>`) or do not match.
        """
        matched = self.matched_lines(lines)
        return tuple(line for line in matched if line.uuid == self.facts.uuid and line.device != "<ignore>")

    def surplus_lines(self) -> tuple[ArrayLine, ...]:
        """Return the lines that match besides the first one that names this array; () if none names it."""
        lines = self.system.mdadm.arrays
        named = self.lines_in(lines)
        return tuple(line for line in self.matched_lines(lines) if named and line is not named[0])

    def wrong_lines(self) -> tuple[ArrayLine, ...]:
        """Return the ARRAY lines for this array that identify it by node, by name or with another UUID, that
        have another name than its superblock or other devices, or that forbid its assembly.
        """
        uuid = self.facts.uuid
        name = self.facts.name
        nodes = self.nodes()
        named = self.lines_in(self.system.mdadm.arrays)

        def is_for_this(line: ArrayLine) -> bool:
            if line.uuid == uuid:
                return line not in named
            return node_of(line.device) in nodes or bool(
                line.uuid is None and line.name and line.name == name
            )

        return tuple(filter(is_for_this, self.system.mdadm.arrays)) if uuid is not None else ()

    def nodes(self) -> frozenset[str]:
        """Return every device node that the array has or may get from the name in its superblock, without the
        nodes of other arrays: two arrays may both be named "data".
        """
        name = short_name(self.disk)
        wanted = {*running_nodes(self.disk), *([f"/dev/md/{name}"] if name else [])}
        wanted |= {f"/dev/md{int(name)}"} if name.isdecimal() and len(name) < 5 else set()
        return frozenset(wanted - self.nodes_of_others())

    def nodes_of_others(self) -> frozenset[str]:
        """Return the nodes of other arrays that run, or that have an ARRAY line and a member present."""
        known = known_arrays(self.inventory)
        lines = self.system.mdadm.arrays
        others = [disk for disk in self.inventory.disks if disk.array and disk.name != self.disk.name]
        named = {
            node_of(line.device) for line in lines if line.uuid in known and line.uuid != self.facts.uuid
        }
        return frozenset(named.union(*map(running_nodes, others)))

    def stack(self) -> tuple[Disk, ...]:
        """Return the array and the devices stacked on it."""
        return above(self.disk, self.inventory.disks)

    def places(self) -> tuple[str, ...]:
        """Return the mount points of the array and of the devices stacked on it."""
        return tuple(dict.fromkeys(place for disk in self.stack() for place in mount_points_of(disk)))

    def holds_system(self) -> bool:
        """Return whether the root file system or /usr is on the array, so that the initramfs must assemble
        it.
        """
        return any(place in ("/", "/usr") for place in self.places())

    def is_assembled_by(self, image: Initramfs) -> bool:
        """Return whether this initramfs assembles the array. dracut assembles only the arrays that its
        options select: rd.md.uuid=, rd.auto (dracut.cmdline(7)).
        """
        if image.maker != "dracut":
            return image.has_mdadm
        words = [word.partition("=") for word in self.system.command_line]
        named = {
            value.replace("-", "").replace(":", "").lower() for key, _, value in words if key == "rd.md.uuid"
        }
        named |= {array.replace(":", "") for array in image.arrays_asked}
        everything = any(key == "rd.auto" and value not in ("0", "no", "off") for key, _, value in words)
        uuid = (self.facts.uuid or "-").replace(":", "")
        return image.has_mdadm and (uuid in named or (everything and not named))

    def is_named_in(self, image: Initramfs) -> bool:
        """Return whether an ARRAY line in the image names the array by UUID, and no other line matches it."""
        lines = image.conf.arrays if image.conf else ()
        return bool(self.lines_in(lines)) and len(self.matched_lines(lines)) == 1

    def fstab_lines(self) -> tuple[TableLine, ...]:
        """Return the fstab lines of this array, matched by UUID, label or node, and of volumes on it, matched
        by their current mount point.
        """

        def is_volume(spec: str) -> bool:
            """Return whether only its mount point identifies the node: /dev/mapper/vg-lv, /dev/vg/lv,
            /dev/disk/...
            """
            return spec.startswith("/dev/") and spec.count("/") > 2 and not spec.startswith("/dev/md/")

        contents = ((disk.content, *(part.content for part in disk.partitions)) for disk in self.stack())
        layers = [layer for disk_contents in contents for content in disk_contents for layer in content]
        specs = {f"UUID={layer.uuid}" for layer in layers if layer.uuid}
        specs |= {f"LABEL={layer.label}" for layer in layers if layer.label}
        nodes = self.nodes()
        places = self.places()
        return tuple(
            line
            for line in self.system.fstab
            if line.spec in specs
            or base_node(line.spec) in nodes
            or (is_volume(line.spec) and line.place in places and line.place not in ("none", "swap"))
        )

    def stays_inactive(self, family: str | None) -> bool:
        """Return whether the array, with a drive missing, could run but stays inactive after an initramfs
        that adds its members.

        scripts/local-block/mdadm starts only the arrays that the root file system needs. If no initramfs adds
        the members, mdadm-last-resort@.timer starts the array: docs/decisions/0022.
        """
        is_covered = self.facts.level in REDUNDANT and not self.system.late_start
        return is_covered and family == LEAVES_INACTIVE and not self.holds_system()


def running_arrays(inventory: Inventory) -> tuple[RunningArray, ...]:
    """Return the arrays with md's own metadata, or () if the config files of the system were not read."""
    system = inventory.system
    return tuple(
        RunningArray(disk, disk.array, inventory, system)
        for disk in inventory.disks
        if system and disk.array and is_native(disk.array)
    )


def finished_arrays(inventory: Inventory) -> tuple[RunningArray, ...]:
    """Return the arrays without those whose start at boot an unfinished change configures: it is finished or
    rolled back first, and what it did not reach yet is not missing.
    """
    return tuple(
        array
        for array in running_arrays(inventory)
        if array.facts.uuid not in [change.starts for change in array.system.unfinished]
    )


def is_native(facts: ArrayFacts) -> bool:
    """Return whether the array has md's own metadata. Firmware arrays are assembled differently."""
    return facts.level != "container" and not (facts.metadata or "").startswith("external")


def known_arrays(inventory: Inventory) -> frozenset[str]:
    """Return the UUIDs of the arrays that run or have a member present."""
    running = {disk.array.uuid for disk in inventory.disks if disk.array and disk.array.uuid}
    return frozenset(running.union(*(superblocks_on(disk) for disk in inventory.disks)))


def running_nodes(disk: Disk) -> tuple[str, ...]:
    return (disk.path, *(f"/dev/{link}" for link in (disk.array.links if disk.array else ())))


def node_of(device: str | None) -> str:
    """Return the device node of an ARRAY line; a name without a slash is below /dev/md (mdadm.conf(5))."""
    if not device or device.startswith("/"):
        return device or ""
    return f"/dev/{device}" if NUMBERED.fullmatch(f"/dev/{device}") else f"/dev/md/{device}"


def kernel_node(device: str) -> str:
    """Return /dev/md0 for /dev/md/0 or /dev/md/md0: mdadm takes the name for a number (mdopen.c,
    create_mddev).
    """
    found = re.fullmatch(r"/dev/md/(?:md)?([0-9]+)", device)
    return f"/dev/md{int(found[1])}" if found else device


def base_node(spec: str) -> str:
    """Return the array of a partition node: /dev/md0 for /dev/md0p1. Nodes below /dev/md/ are returned
    unchanged.
    """
    found = NUMBERED.fullmatch(spec)
    return f"/dev/{found[1]}" if found else spec


def short_name(disk: Disk) -> str:
    """Return the name in the superblock without the host, or "" if there is none."""
    name = disk.array.name if disk.array else None
    return (name or "").rpartition(":")[2]


def above(disk: Disk, disks: Sequence[Disk]) -> tuple[Disk, ...]:
    """Return the disk and the devices stacked on it or on its partitions: volumes, mappings, other arrays."""
    found = {disk.name}
    for _ in range(DEEPEST):
        nodes = {
            part.node for device in disks if device.name in found for part in device.partitions if part.node
        }
        found |= {device.name for device in disks if not (found | nodes).isdisjoint(device.slaves)}
    return tuple(device for device in disks if device.name in found)


def mount_points_of(disk: Disk) -> tuple[str, ...]:
    """Return the mount points of the disk and its partitions."""
    return (*disk.mounted_at, *(place for part in disk.partitions for place in part.mounted_at))


def _persist_finding(
    array: RunningArray, code: Code, severity: Severity, sentence: str, *evidence: str
) -> Finding:
    """Return a finding that `raid persist` repairs."""
    following = persist_command(array.disk.path, array.system)
    return disk_finding(array.disk, code, severity, sentence, *evidence, next_=following)


def persist_command(path: str, system: System, *options: str) -> str:
    """Return the command that makes an array start whenever this system boots."""
    below = ("--root", system.installed.root) if system.installed else ()
    return typed("aligntool raid persist", *below, path, *options)


def system_findings(inventory: Inventory) -> Iterator[Finding]:
    system = inventory.system
    if system is None:
        return
    for change in system.unfinished:
        yield Finding(Code.UNFINISHED_ARRAY, Severity.ERROR, change.text, next="sudo aligntool status")
    arrays = finished_arrays(inventory)
    for image in system.initramfs if arrays else ():
        if image.unseen:
            sentence = f"the arrays in the initramfs {image.path} are unknown: {image.unseen}"
            yield Finding(Code.NOT_SEEN, Severity.INFO, sentence, next=_look_inside(image, system))
    for file in system.mdadm.unread if arrays else ():
        sentence = f"the arrays in {file} are unknown: it cannot be read"
        yield Finding(Code.NOT_SEEN, Severity.INFO, sentence, next=_AS_ROOT)
    for array in arrays:
        if array.facts.uuid is None:
            continue
        if not (array.lines_in(system.mdadm.arrays) or system.mdadm.unread):
            yield from _array_line_findings(array)
        yield from _forbidden_findings(array)
        for extra in array.surplus_lines():
            text = (
                f"two lines match it, so mdadm --incremental does not start it; the second is in {extra.file}"
            )
            yield _persist_finding(array, Code.WRONG_ARRAY_LINE, Severity.WARNING, text, extra.text)
        yield from _initramfs_findings(array)
        yield from _older_kernel_findings(array)
        for line in array.fstab_lines():
            if SYSTEM_PLACES.fullmatch(line.place) or {"nofail", "noauto"} & set(line.options):
                continue
            text = (
                f"fstab mounts it at {line.place} without nofail: if it is missing, the machine does not boot"
            )
            why = (FSTAB_RETURN,) if line.options and line.options[-1].endswith("\r") else ()
            yield _persist_finding(array, Code.FSTAB_WITHOUT_NOFAIL, Severity.INFO, text, line.text, *why)


def _look_inside(image: Initramfs, system: System) -> str:
    """Return the command that lists the content of an image; `file` if the family of the system is
    unknown.
    """
    if image.unseen == "needs root":
        return _AS_ROOT
    lister = {None: "file", "debian": "lsinitramfs", "arch": "lsinitcpio"}.get(system.family, "lsinitrd")
    return typed(lister, image.path)


def _array_line_findings(array: RunningArray) -> Iterator[Finding]:
    wrong = array.wrong_lines()
    uuid = array.facts.uuid
    for line in wrong:
        why = "belongs to another array" if line.uuid else "does not name it by its UUID"
        why = array.mismatch_words(line) if line.uuid == uuid else why
        why = "forbids its assembly" if line.device == "<ignore>" else why
        why = CARRIAGE_RETURN if line.text.endswith("\r") else why
        sentence = f"its line in {line.file} {why}; its UUID is {uuid}"
        yield _persist_finding(array, Code.WRONG_ARRAY_LINE, Severity.WARNING, sentence, line.text)
    if not wrong:
        files = ", ".join(array.system.mdadm.files)
        sentence = f"no ARRAY line in {files} names it" if files else "there is no mdadm.conf that names it"
        yield _persist_finding(array, Code.NO_ARRAY_LINE, Severity.WARNING, sentence, f"UUID={uuid}")
    host, colon, name = (array.facts.name or "").rpartition(":")
    home = array.system.mdadm.homehost
    here = array.system.hostname if home in (None, "<system>") else home
    if colon and here and home != "<ignore>" and host not in (here, "any"):
        nodes = f"{array.disk.path} or /dev/md/{host}:{name}, and with another number at the next boot"
        sentence = f"its superblock names the host {host!r}, but this is {here!r}: it is assembled as {nodes}"
        yield _persist_finding(array, Code.FOREIGN_ARRAY, Severity.WARNING, sentence)


def _forbidden_findings(array: RunningArray) -> Iterator[Finding]:
    conf = array.system.mdadm
    forbidden = conf.forbidden([f"/dev/{name}" for name in array.facts.members])
    if forbidden:
        files = ", ".join(conf.files)
        named = ", ".join(forbidden)
        text = f"the DEVICE line of {files} does not permit {named}: mdadm does not start the array from them"
        advice = 'remove that line, or add "partitions" to it, and rebuild the initramfs'
        if any(word.endswith("\r") for word in conf.devices):
            advice = CARRIAGE_RETURN
        line = f"DEVICE {' '.join(conf.devices)}"
        edit = by_hand(ByHand.SYSTEM_FILES, "an editor", ", ".join(map(shell_word, conf.files)))
        yield disk_finding(
            array.disk, Code.MEMBERS_FORBIDDEN, Severity.WARNING, text, line, advice, next_=edit
        )


# Kernels that assemble the array. Linux 6.19 and later store the logical block size of a new array in its
# superblocks, where older kernels expect zeros (md.c, super_1_load and mddev_stack_rdev_limits).

STORES_BLOCK_SIZE = (6, 19)
_RELEASE = r"(\d+)\.(\d+)"


def kernel_version(text: str) -> tuple[int, int]:
    """Return the first two numbers of a kernel's release, or of the name of its image; (0, 0) if there are
    none.
    """
    found = re.search(_RELEASE, text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def images_of_older_kernels(system: System) -> tuple[str, ...]:
    """Return the images of kernels that do not assemble arrays of Linux 6.19; one without a version is left
    out, and those from the running kernel on, which assembles such an array if there is one: distributions
    backport changes.
    """
    paths = [image.path for image in system.initramfs]
    running = kernel_version(system.kernel or "")
    first = min(STORES_BLOCK_SIZE, running) if any(running) else STORES_BLOCK_SIZE
    return tuple(path for path in paths if (0, 0) < kernel_version(path.rpartition("/")[2]) < first)


def _older_kernel_findings(array: RunningArray) -> Iterator[Finding]:
    for path in images_of_older_kernels(array.system) if array.facts.stored_block_size else ():
        text = (
            f"its superblocks store the block size, so the kernel of {path}, before Linux 6.19, does not"
            " assemble it"
        )
        severity = Severity.ERROR if array.holds_system() else Severity.WARNING
        yield disk_finding(array.disk, Code.NOT_IN_INITRAMFS, severity, text, next_="aligntool explain AT613")


def _initramfs_findings(array: RunningArray) -> Iterator[Finding]:
    needed = array.holds_system()
    for image in array.system.initramfs:
        if image.unseen:
            continue
        if needed and not image.has_mdadm:
            text = (
                f"the system is on it, but the initramfs {image.path} has no mdadm: it does not boot with"
                " that kernel"
            )
            yield _persist_finding(array, Code.NOT_IN_INITRAMFS, Severity.ERROR, text)
        elif array.is_assembled_by(image) and not array.is_named_in(image):
            has = "has an mdadm.conf without its ARRAY line" if image.conf else "has no mdadm.conf"
            has = (
                "has several ARRAY lines for it" if image.conf and array.lines_in(image.conf.arrays) else has
            )
            text = (
                f"the initramfs {image.path} {has}: it assembles the array under another name, or not at all"
            )
            yield _persist_finding(array, Code.NOT_IN_INITRAMFS, Severity.WARNING, text)


def late_start_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield findings for arrays with a UUID, which `raid persist` needs, that an initramfs that was read
    assembles.
    """
    for array in finished_arrays(inventory):
        system = array.system
        facts = array.facts
        assembling = [
            image for image in system.initramfs if not image.unseen and array.is_assembled_by(image)
        ]
        if assembling and facts.uuid is not None and array.stays_inactive(system.family):
            yield _persist_finding(
                array,
                Code.STARTS_ONLY_WHOLE,
                Severity.INFO,
                f"{facts.level} with a drive missing at boot stays inactive and is not mounted",
                f"{assembling[0].path} adds its members, but starts only the arrays of the root file system",
            )


# References to an array by its minor number, which md assigns at every boot. The number in a file is often
# not the current one.

_BOOT_SETTINGS = ("/etc/default/grub", "/etc/default/grub.d", "/etc/kernel", "/boot/loader")


def array_number_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield findings on references by number. A number from an ARRAY line with a UUID is stable, so that is a
    note.
    """
    system = inventory.system
    arrays = running_arrays(inventory)
    if system is None or not arrays:
        return
    fixed = {node_of(line.device) for line in system.mdadm.arrays if line.uuid}
    for where, file, line in _device_references(system):
        if NUMBERED.fullmatch(line.spec) is None:
            continue
        node = base_node(line.spec)
        known = _array_with_node(node, arrays)
        array, reason = (known, "") if known else _probable_array(line, arrays)
        disk = array.disk if array else None
        stable = node in fixed
        why = "its ARRAY line keeps that number" if stable else "md assigns the numbers at every boot"
        meant = f", which means {disk.name}" if disk and disk.path != node else ""
        advice = () if known and file else (_manual_fix(file, line, disk, reason),)
        following = typed("grep -rsw", line.spec, *_BOOT_SETTINGS)
        if file and known:
            following = persist_command(known.disk.path, known.system)
        elif file:
            following = by_hand(ByHand.SYSTEM_FILES, "an editor", file)
        yield Finding(
            Code.NUMBERED_IN_FSTAB,
            Severity.INFO if stable else Severity.WARNING,
            f"{where} uses {line.spec}{meant}; {why}",
            disk=disk.name if disk else None,
            evidence=(line.text, *advice),
            next=following,
        )


def _device_references(system: System) -> Iterator[tuple[str, str, TableLine]]:
    """Yield (place in words, file, line) for every reference to a device; the file is "" for the boot
    loader's settings.
    """
    yield from (("fstab", "/etc/fstab", line) for line in system.fstab)
    yield from (("crypttab", "/etc/crypttab", line) for line in system.crypttab)
    for text in system.command_line:
        key, _, value = text.partition("=")
        yield "the kernel's command line", "", TableLine(text, value, "/" if key == "root" else "")


def _array_with_node(node: str, arrays: Sequence[RunningArray]) -> RunningArray | None:
    """Return the array that has this node, or gets it from an ARRAY line with its UUID. Return None if there
    is none, or several.
    """
    lines = arrays[0].system.mdadm.arrays
    uuids = {line.uuid for line in lines if line.uuid and node_of(line.device) == node}
    found = [array for array in arrays if node in array.nodes()] or [
        array for array in arrays if array.facts.uuid in uuids
    ]
    return found[0] if len(found) == 1 else None


def _probable_array(line: TableLine, arrays: Sequence[RunningArray]) -> tuple[RunningArray | None, str]:
    """Return the only array that matches the line, and the reason; (None, "") if a disk with this path
    exists.
    """
    node = base_node(line.spec)
    system = arrays[0].system
    if any(disk.path == node for disk in arrays[0].inventory.disks):
        return None, ""
    names = {entry.name for entry in system.mdadm.arrays if entry.name and node_of(entry.device) == node}
    free = [array for array in arrays if not array.fstab_lines()]
    same_kind = [array for array in free if [layer.kind for layer in array.disk.content] == [line.kind]]
    criteria = (
        (f"is mounted at {line.place} now", [array for array in arrays if line.place in array.places()]),
        ("has the name of its ARRAY line", [array for array in arrays if array.facts.name in names]),
        (f"is the only array with {line.kind}", same_kind),
    )
    return next(((found[0], reason) for reason, found in criteria if len(found) == 1), (None, ""))


def uuid_behind(spec: str, disk: Disk) -> str | None:
    """Return the UUID of the content of the array, or of the partition that `spec` names. Return None unless
    exactly one layer is recognised there.
    """
    found = NUMBERED.fullmatch(spec)
    layers = [*disk.content]
    if found and found[2]:
        layers = [
            layer for part in disk.partitions if part.number == int(found[2][1:]) for layer in part.content
        ]
    return layers[0].uuid if len(layers) == 1 else None


def _manual_fix(file: str, line: TableLine, disk: Disk | None, reason: str) -> str:
    """Return the advice for a reference that `raid persist` does not change: in the boot loader's settings,
    or not certain to belong to an array.
    """
    uuid = uuid_behind(line.spec, disk) if disk else None
    advice = f"replace it with UUID={uuid}" if uuid else "replace it with UUID= of the intended device"
    menu = "" if file else ", and regenerate the boot loader's menu"
    prefix = (f"{disk.name} {reason}: " if reason else "") if disk else "the intended array is unknown: "
    return f"{prefix}{advice}{menu}"
