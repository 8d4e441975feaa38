"""Which array is meant by a name: the kernel's, a node below /dev, or the one that mdadm gave it.

In: the arrays that run, and what was typed. Out: one of them. Alone because two arrays may have one name, and whatever
takes a name must refuse that alike.
"""

from collections.abc import Sequence

from aligntool.audit.coming_back import running_nodes, short_name
from aligntool.audit.words import shell_word
from aligntool.errors import Refused
from aligntool.inventory import Disk


def find_array(disks: Sequence[Disk], name: str, *, command: str) -> Disk:
    """The array that runs as "md127", "/dev/md127", "/dev/md/data", or has the name "data" or "host:data" in its
    superblock or below /dev/md (mdadm(8), "DEVICE NAMES"). The kernel's own names come first: no two share them.

    `command`: what the answer is to be typed behind. Raises Refused for a name of none, or of several.
    """
    arrays = [disk for disk in disks if disk.array]
    node = [disk for disk in arrays if name == disk.name or name in running_nodes(disk)]
    found = node or [disk for disk in arrays if name and name in _given_names(disk)]
    if len(found) == 1:
        return found[0]
    if found:
        paths = ", ".join(disk.path for disk in found)
        raise Refused(f"{name}: several md arrays have that name: {paths}", hint=_typed(found, command))
    raise Refused(
        f"{name}: no md array of that name runs here", hint=_typed(arrays, command) or "aligntool audit"
    )


def _typed(arrays: Sequence[Disk], command: str) -> str:
    return "\n".join(f"{command} {shell_word(disk.name)}" for disk in arrays)


def _given_names(disk: Disk) -> frozenset[str]:
    facts = disk.array
    if facts is None:
        return frozenset()
    links = (link.removeprefix("md/") for link in facts.links)
    return frozenset({*links, facts.name or "", short_name(disk)} - {""})
