"""Looking at drives that are, or are to be, members of an array.

In: their names as typed. Out: each judged, with its health, and what is known of it. Alone because planning, making,
tuning and showing an array all begin with it.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from aligntool.errors import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aligntool.audit import Judged, Report
    from aligntool.inventory import Disk
    from aligntool.plan import RaidGoal
    from aligntool.raid.arrays import ArrayView
    from aligntool.raid.members import Known


def look_at_members(
    drives: list[str],
) -> "tuple[list[Judged], tuple[int | None, ...], Report, Known]":
    """Each drive with its health; the partition of it that was named, None for the drive itself. Raises Refused."""
    from aligntool.cli.planning import refuse_in_flight
    from aligntool.probe.health import asked_health

    report, known = _look(drives, arrays=True)
    named = [_find(report, target) for target in drives]
    for judged, _ in named:
        # Where it cannot be read nobody can tell what is on it, which is refused as well.
        if os.access(judged.disk.path, os.R_OK):
            refuse_in_flight(judged.disk.path)
    members = [
        replace(judged, disk=replace(asked_health(judged.disk), taken=_taken(judged.disk, number)))
        for judged, number in named
    ]
    return members, tuple(number for _, number in named), report, known


def _taken(disk: "Disk", number: int | None) -> tuple[tuple[str, str], ...]:
    from aligntool.apply.locks import in_use

    node = next((part.node for part in disk.partitions if part.number == number and part.node), disk.name)
    try:
        return tuple((one.what, one.end) for one in in_use(f"/dev/{node}"))
    except OSError:
        return ()


def sampled_members(members: "Sequence[Judged]", goal: "RaidGoal") -> "list[Judged]":
    """The same, each with what a few places of it hold: what nobody recognises must be given up by name, too."""
    from itertools import zip_longest

    from aligntool.probe.samples import sample
    from aligntool.raid.beginnings import data_begins
    from aligntool.units import Extent

    begins = data_begins(members, goal)
    found = []
    for judged, number, at in zip_longest(members, goal.partitions, begins):
        disk = judged.disk
        part = next((part for part in disk.partitions if part.number == number), None)
        extent = part.extent if part else Extent(0, disk.size or 0)
        if extent.length and os.access(disk.path, os.R_OK):
            disk = replace(disk, sampled=sample(disk.path, extent, () if at is None else (at,)))
        found.append(replace(judged, disk=disk))
    return found


def look_at_arrays(names: "Sequence[str]", sysroot: str | None = None) -> "tuple[ArrayView, ...]":
    """The arrays of the machine, or of a captured one, by the kernel's names; all where none is named. Every disk is
    looked at: an array's members are among them. Raises Refused for a name that is no array.
    """
    from aligntool.raid.arrays import arrays_of
    from aligntool.raid.ceilings import known_rates

    report, known = _look([], sysroot, arrays=True)
    return arrays_of(report, names, known_rates(known), known)


def _look(targets: list[str], sysroot: str | None = None, *, arrays: bool = False) -> "tuple[Report, Known]":
    """`arrays`: those that run as well. Raises Refused, also where one of several targets could not be looked at."""
    from aligntool.audit import audit
    from aligntool.cli.audit import known_of
    from aligntool.probe.look import look
    from aligntool.realign import on_captured_machine

    inventory = look(targets, sysroot=sysroot, arrays=arrays)
    if targets:
        refuse((each.why, each.hint) for each in inventory.unseen)
    known = known_of(inventory)
    report = audit(inventory, known)
    return on_captured_machine(report, {})[0] if inventory.captured else report, known


def _find(report: "Report", target: str) -> "tuple[Judged, int | None]":
    """The disk that was meant, and the partition of it; None: the disk itself. Links are followed."""
    from pathlib import Path

    path = Path(target) if "/" in target else Path("/dev", target)
    names = {target, str(path), str(path.resolve())}
    for judged in report.judged:
        if names & {judged.disk.name, judged.disk.path}:
            return judged, None
        for part in judged.disk.partitions:
            if part.node and f"/dev/{part.node}" in names:
                return judged, part.number
    raise Refused(f"{target} is neither a disk nor a partition", hint="lsblk")
