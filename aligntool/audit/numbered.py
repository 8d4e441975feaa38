"""What is named by the number of an array, which md gives anew at every start.

In: an Inventory with its System. Out: findings. Alone because the number in a file is often not the one that the array
has now: which array is meant, and what mends it, has to be found out first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit.codes import Code
from aligntool.audit.coming_back import (
    NUMBERED,
    base_node,
    fstab_lines,
    is_native,
    node_of,
    nodes_of,
    places_on,
)
from aligntool.audit.report import Finding, Severity
from aligntool.inventory import Disk, Inventory, System

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


def numbered_findings(inventory: Inventory) -> Iterator[Finding]:
    """A number that an ARRAY line with a UUID gives is kept, and only told."""
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


def _probably(
    word: Naming, arrays: Sequence[Disk], inventory: Inventory, system: System
) -> tuple[Disk | None, str]:
    """The only array that fits, and by what; where a disk of that name is here, it is that one."""
    node = base_node(word.spec)
    if any(disk.path == node for disk in inventory.disks):
        return None, ""
    names = {line.name for line in system.mdadm.arrays if line.name and node_of(line.device) == node}
    free = [disk for disk in arrays if not fstab_lines(disk, inventory, system)]
    ways = (
        (
            f"is mounted at {word.place} now",
            [one for one in arrays if word.place in places_on(one, inventory)],
        ),
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
    """What `raid persist` does not mend: words of the boot loader, and what is not sure to be of an array."""
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
