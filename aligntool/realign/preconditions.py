"""Look at a disk that is to be changed, and refuse what must not be planned on at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from aligntool.audit.report import Judged
from aligntool.audit.wording import command, holders_of
from aligntool.errors import Refusal, Refused, failing_as, refuse
from aligntool.inventory import Disk, Inventory
from aligntool.linux.commands import with_health
from aligntool.linux.held import status_of
from aligntool.linux.in_use import all_ends, loops_over, occupants, remaining_occupants
from aligntool.linux.partitions import find_devices
from aligntool.mover.journal import refuse_volatile
from aligntool.mover.unfinished_change import refuse_changed_table, refuse_in_flight, refuse_marked
from aligntool.realign.request import Request, look_at


def look_before_change(target: str, request: Request, rule: str, option: str = "") -> Judged:
    """Return the disk, judged, with its health and the devices that hold it. `rule`, `option`: see
    `refuse_part`.

    Raises Refused if it cannot be read, is a partition or in flight, or if a killed aligntool's programs
    still use it; also if the file requested for the journal would be in memory.
    """
    judged, _ = look_at(target, request)
    if request.goal.journal_file:
        refuse_volatile(request.goal.journal_file)
    if wait_for_leftovers(judged.disk.path):
        judged, _ = look_at(target, request)
    disk = judged.disk
    refuse_part(target, disk, rule, option)
    refuse_in_flight(disk.path)
    refuse_marked(disk)
    refuse_changed_table(disk)
    return replace(judged, disk=replace(disk, failing=with_health(disk).failing), above=find_holders(disk))


def refuse_part(target: str, disk: Disk, rule: str, option: str = "") -> None:
    """Raise Refused if the target is a partition: reading it means reading its disk, but the user who names a
    partition does not expect writes to the whole disk.

    `option`: the option that takes the number of a partition besides the disk.
    """
    node = Path(target) if "/" in target or Path(target).exists() else Path("/dev", target)
    if not Path(disk.path).is_block_device() or (node.exists() and node.samefile(disk.path)):
        return
    numbers = {part.node: part.number for part in disk.partitions}
    number = numbers.get(node.resolve().name)
    more = f" {option} {number}" if option and number is not None else ""
    raise Refused(f"{target} is a part of {disk.path}, but {rule}", hint=f"give {disk.path}{more}")


def wait_for_leftovers(path: str) -> bool:
    """Wait for programs that a killed aligntool started, and return whether there were any: resize2fs runs to
    its end, and no plan must rely on what was read before it ends. Raises Refused if it takes long.
    """
    status = _status_of(path)
    if not any(loop.passing for loop in loops_over(status)):
        return False
    remaining = [occupant for occupant in remaining_occupants(status) if occupant.passing]
    if remaining:
        words = "; ".join(occupant.what for occupant in remaining)
        raise Refused(f"{path} is in use: {words}", hint="\n".join(occupant.end for occupant in remaining))
    return True


def _status_of(path: str) -> os.stat_result:
    """Return the status of a disk or image. Raises Refused if the kernel lists a disk whose node in /dev is
    missing.
    """
    with failing_as(
        Refused,
        path,
        hint=f"the device node {path} is missing: udev creates it, at the latest when the machine starts",
    ):
        return status_of(path)


@contextmanager
def naming_loops(path: str) -> Iterator[None]:
    """Extend a refusal of an image or disk that is attached to a loop device: it may be mounted there, and
    then it must not be checked or repaired here. Raises Refused for sectors that the disk cannot read.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        text = f"{path} cannot be read: {error.strerror}"
        raise Refused(text, hint=command("audit", path), code="not-read", subject=path) from error
    except Refused as error:
        attached = use_through_loops(path)
        if attached is None:
            raise
        refuse((attached, *(replace(reason, hint="") for reason in error.refusals)))


def use_through_loops(path: str) -> Refusal | None:
    """Return why an image or disk is in use if it is attached to a loop device. Raises Refused as
    `look_before_change` does.
    """
    status = _status_of(path)
    found = occupants(status) if stat.S_ISREG(status.st_mode) else tuple(loops_over(status))
    text = f"{path} is in use: {'; '.join(occupant.what for occupant in found)}"
    return Refusal("in-use", path, text, all_ends(found)) if found else None


def find_holders(disk: Disk) -> Inventory | None:
    """Return all devices that may be on the disk; None if none is."""
    return find_devices() if holders_of(disk) else None
