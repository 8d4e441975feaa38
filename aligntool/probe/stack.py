"""What a device stands on and what stands on it: device-mapper, loop files.

In: a `Tree` and the path of a block device. Out: kernel names, a mapping in words. Alone because each
stacking driver keeps a folder of its own beside the common slaves/ and holders/.
"""

import re

from aligntool.probe.devices import find_block
from aligntool.probe.tree import Tree

MOST_BELOW = 4096  # devices below one; a captured tree may lead in circles
_PARTITION = re.compile(r"part(\d+)-.*")  # as kpartx and multipath-tools name the mappings of partitions


def names_below(tree: Tree, path: str) -> tuple[str, ...]:
    return _devices(tree, f"{path}/slaves")


def names_at_the_bottom(tree: Tree, path: str) -> tuple[str, ...]:
    """What a device ends on, however much lies between: drives, of a partition its drive; a file for a loop device."""
    found: set[str] = set()
    seen: set[str] = set()
    todo = [path]
    while todo and len(seen) < MOST_BELOW:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        backing = (tree.text(f"{here}/loop/backing_file") or "").removesuffix(" (deleted)")
        names = [backing.removeprefix("/dev/")] if backing.startswith("/dev/") else names_below(tree, here)
        if not names:
            found.add(f"file {backing}" if backing else here.rpartition("/")[2].replace("!", "/"))
        for name in names:
            block = find_block(tree, name)
            todo += [block.path] if block else []
            found |= set() if block else {name}
    return tuple(sorted(found))


def names_above(tree: Tree, path: str) -> tuple[str, ...]:
    return _devices(tree, f"{path}/holders")


def _devices(tree: Tree, folder: str) -> tuple[str, ...]:
    return tuple(name.replace("!", "/") for name in tree.names(folder))


def read_mapping(tree: Tree, path: str) -> str | None:
    """A device-mapper device in words: who made it is told by how its UUID begins (lvm2, lib/misc/lvm-string.c)."""
    name, uuid = tree.text(f"{path}/dm/name"), tree.text(f"{path}/dm/uuid") or ""
    if not name:
        return None
    owner, _, rest = uuid.partition("-")
    partition = _PARTITION.fullmatch(uuid)
    match owner:
        case "LVM":
            return f"lvm {volume_name(name)}"
        case "CRYPT":
            return f"crypt {rest.partition('-')[0]} {name}"
        case "mpath":
            return f"multipath {name}"
        case "DMRAID":
            return f"raid {name}"
    return f"partition {partition.group(1)} {name}" if partition else f"dm {name}"


def volume_name(name: str) -> str:
    """ "vg--one-lv" is the volume lv of the group vg-one: LVM doubles the hyphens of names."""
    parts = name.replace("--", "\0").split("-")
    return "/".join(part.replace("\0", "-") for part in parts[:2]) + "".join(
        f" ({part})" for part in parts[2:]
    )


def backing_file(tree: Tree, path: str) -> str | None:
    """The file behind a loop device, as the kernel tells it: cut to a page, "(deleted)" appended."""
    name = tree.text(f"{path}/loop/backing_file")
    return f"file {name}" if name else None
