"""A request for a plan of one disk, and the look at that disk."""

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions, Judged
from aligntool.change import RealignGoal
from aligntool.errors import Refused
from aligntool.inventory import Inventory
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits
from aligntool.recipes.drives import known_geometries
from aligntool.units import GIB, is_grid_size, is_sector_size


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a plan: sizes in bytes; None: taken from the disk or the drive database.

    A plan that is applied later is planned again from the same request: docs/cli.md, "aligntool apply".
    """

    goal: RealignGoal = field(default_factory=RealignGoal)
    sector_size: int | None = None
    physical_sector_size: int | None = None
    page_size: int | None = None
    typed: tuple[str, ...] = ()  # the same options as words of the command line

    def __post_init__(self) -> None:
        """Raise ValueError for sizes that no option can request: a plan may come from a file."""
        for name in ("sector_size", "physical_sector_size"):
            size = getattr(self, name)
            if size is not None and not is_sector_size(size):
                raise ValueError(f"{name}: not a sector size")
        for name, grid in (("page_size", self.page_size), ("grain", self.goal.grain)):
            if grid is not None and not is_grid_size(grid):
                raise ValueError(f"{name}: not a multiple of 512")

    @property
    def audit_options(self) -> AuditOptions:
        return AuditOptions(page_size=self.page_size, grain=self.goal.grain)


_ENOUGH = GIB  # for any journal
_RESERVE = 16  # a part of the free space, for what the file system stores about the file


def with_journal(goal: RealignGoal, file: str | None) -> RealignGoal:
    """Return the goal with its journal in a file that is to be made, and with how much room there is for it:
    the room is part of the request, because a later plan must come to the same journal.
    """
    room = None
    with suppress(OSError):  # reported when the file is made
        found = os.statvfs(Path(file).parent) if file else None
        free = found.f_bavail * found.f_frsize if found else _ENOUGH
        room = free - free // _RESERVE if free < _ENOUGH else None
    return replace(goal, journal_file=file, journal_room=room)


def look_at(target: str, request: Request) -> tuple[Judged, Inventory]:
    """Return the disk, judged, and the inventory. Raises Refused if it cannot be read or is not a single
    disk.
    """
    given = UserLimits(sector_size=request.sector_size, physical_sector_size=request.physical_sector_size)
    inventory = look((target,), given=given)
    report = audit(inventory, known_geometries(inventory), request.audit_options)
    if len(report.judged) != 1:
        raise Refused(f"{target} is {len(report.judged)} disks, not one", hint="name one disk")
    return report.judged[0], inventory
