"""Whether anything came onto a member since its plan was made.

In: a MakeMember step that gives nothing up, and how to read a few places of its drive. Out: a sentence, or nothing.
Alone because an array may be gone on with months later: what was blank then may hold what nobody recognises now, and
that is found by its bytes only.
"""

from aligntool.apply.arrays.site import Site
from aligntool.errors import Stopped
from aligntool.inventory import Disk
from aligntool.plan import DataArea, MakeMember
from aligntool.units import Extent


def stop_unless_blank(
    step: MakeMember, site: Site, taken: Extent | None, area: DataArea, *, begun: bool
) -> None:
    """As `came_onto`. Raises Stopped."""
    if why := came_onto(step, site, taken, area, begun=begun):
        raise Stopped(
            f"{why}; it is not overwritten",
            hint="sudo aligntool rollback leaves that alone",
        )


def came_onto(step: MakeMember, site: Site, taken: Extent | None, area: DataArea, *, begun: bool) -> str:
    """A sentence; "" where it is blank, and where it was to be overwritten.

    `taken`: the partition or drive that is taken as it is, in bytes of the disk. `begun`: the table may be there, and
    superblocks and bitmaps of the array in front of its data; md itself writes nothing into an array of blank members.
    """
    if step.wipe:
        return ""
    whole = step.entries[-1].extent if step.entries and begun else taken
    if whole is None:
        return ""
    found = site.sample(step.disk.path, area.of(whole) if begun else whole)
    if found.unreadable:
        return f"{step.device} cannot be read at {found.unreadable} of {found.places} places"
    if found.written:
        where = f"at {found.written} of {found.places} places"
        return f"{step.device} holds what was not there when the plan was made, {where}"
    return ""


def whole_of(disk: Disk, step: MakeMember, number: int | None) -> Extent | None:
    """What the step takes, in bytes of the disk; `number`: of the partition. None: nobody knows how large it is."""
    if number is not None:
        return next((part.extent for part in disk.partitions if part.number == number), None)
    return Extent(0, disk.size) if disk.size else None
