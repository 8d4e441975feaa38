"""Judge arrays that are not started because members are missing: what of them can be kept, and what is lost.

Sources: md(4), mdadm(8).
"""

from collections.abc import Iterator

from aligntool.audit.arrays import PARITY, members_of
from aligntool.audit.drives import disk_finding
from aligntool.audit.report import Code, Finding, Judged, Severity
from aligntool.audit.wording import change_by_hand, look_at
from aligntool.commands import ByHand
from aligntool.contents.md import MD
from aligntool.inventory import Disk, DiskKind, Layer
from aligntool.units import counted

_WITHOUT_COPIES = ("raid0", "linear")
_ANEW = (
    "to make a new array of these drives: stop this one, and name each drive that holds a member with --wipe;"
    " the parts on it are lost then"
)


def inactive_array_findings(judged: tuple[Judged, ...]) -> Iterator[Finding]:
    """Yield a finding for each array that has members and is not started."""
    members = members_of(judged)
    for disk in (each.disk for each in judged):
        if disk.kind is not DiskKind.MD or disk.array is not None or not disk.slaves:
            continue
        found = [members[name] for name in disk.slaves if name in members]
        contents = [one.partition.content if one.partition else one.disk.content for one in found]
        layers = [layer for content in contents for layer in content[:1] if layer.kind == MD.name]
        if len(layers) == len(disk.slaves) and len({layer.uuid for layer in layers}) == 1:
            yield _finding(disk, layers[0])


def _finding(disk: Disk, layer: Layer) -> Finding:
    level = layer.raid_level or "an unknown level"
    count = layer.raid_members or 0
    here = f"{len(disk.slaves)} of {counted(count, 'member')} here: {', '.join(disk.slaves)}"
    text = f"{level} is not started, {here}"
    may_start, words = prospects(layer, len(disk.slaves))
    start = f"start it without the missing ones, then add a blank drive: {_by_hand(disk)}"
    if len(disk.slaves) >= count:
        start = f"start it: {_by_hand(disk)}"
    look = look_at(disk, "mdadm --detail")
    following = start if may_start else _ANEW
    return disk_finding(disk, Code.ARRAY_NOT_STARTED, Severity.ERROR, text, words, following, next_=look)


def prospects(layer: Layer, here: int) -> tuple[bool, str]:
    """Return whether an array may be started with the members that are there, and what is kept or lost.
    `layer`: the superblock of one of them; `here`: their number.
    """
    level = layer.raid_level or "an unknown level"
    count = layer.raid_members or 0
    spare = "if none of these is a spare (mdadm --examine: Device Role)"
    most = {"raid1": count - 1, **PARITY}.get(level)
    missing = count - here
    if missing <= 0:
        return True, "no member is missing"
    if most is not None and missing <= most:
        return True, f"kept: everything, {spare}"
    if level in _WITHOUT_COPIES or most is not None:
        lost = f"lost: everything, unless a missing member comes back; {level} needs more than are here"
        return False, lost
    return True, f"kept: everything if each part has a copy here, and {spare}; otherwise lost"


def _by_hand(disk: Disk) -> str:
    return str(change_by_hand(disk, ByHand.MEMBERS, "mdadm"))
