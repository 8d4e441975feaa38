"""What a device stands on and what stands on it: md arrays, device-mapper, loop files.

In: a `Tree` and the path of a block device. Out: kernel names, ArrayFacts, a mapping in words. Alone because each
stacking driver keeps a folder of its own beside the common slaves/ and holders/.
"""

import re

from aligntool.inventory import ArrayFacts
from aligntool.probe.limits import SYSFS_SECTOR
from aligntool.probe.tree import Tree

_PARTITION = re.compile(r"part(\d+)-.*")  # as kpartx and multipath-tools name the mappings of partitions


def names_below(tree: Tree, path: str) -> tuple[str, ...]:
    return _devices(tree, f"{path}/slaves")


def names_above(tree: Tree, path: str) -> tuple[str, ...]:
    return _devices(tree, f"{path}/holders")


def _devices(tree: Tree, folder: str) -> tuple[str, ...]:
    return tuple(name.replace("!", "/") for name in tree.names(folder))


def read_array(tree: Tree, path: str) -> ArrayFacts | None:
    """Documentation/admin-guide/md.rst; an inactive array has no level."""
    md = f"{path}/md"
    level = tree.text(f"{md}/level")
    if not level:
        return None
    chunk = tree.number(f"{md}/chunk_size")
    members = names_below(tree, path)
    return ArrayFacts(
        level=level,
        chunk=chunk or None,  # 0: this level has no chunks
        members=members,
        member_data_offsets=tuple(_data_offsets(tree, md, members)),
        metadata=tree.text(f"{md}/metadata_version") or None,
        degraded=tree.number(f"{md}/degraded"),
    )


def _data_offsets(tree: Tree, md: str, members: tuple[str, ...]) -> list[tuple[str, int]]:
    found = []
    for member in members:
        offset = tree.number(f"{md}/dev-{member.replace('/', '!')}/offset")
        if offset is not None and offset >= 0:
            found.append((member, offset * SYSFS_SECTOR))
    return found


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
