"""The Python API: look at disks, audit them, plan a realign, apply it. docs/api.md states what is stable.

Nothing is printed and no confirmation is requested; problems are raised as exceptions.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit import judge
from aligntool.audit.report import (
    Answer,
    AuditOptions,
    Check,
    Finding,
    Grid,
    Judged,
    Report,
    Severity,
    Verdict,
)
from aligntool.audit.wording import command, typed_words
from aligntool.change import (
    Event,
    KernelBehind,
    Place,
    Plan,
    Progress,
    RealignGoal,
    Said,
    StepBegun,
    StepDone,
    Waiting,
    from_json,
    plan_with_request,
    request_in_document,
)
from aligntool.errors import Refusal, Refused, Stopped, refuse
from aligntool.inventory import Disk, DiskKind, Inventory, Layer, Partition, Unseen
from aligntool.linux import look as machine
from aligntool.linux.applying import apply_events
from aligntool.linux.systemd_journal import record
from aligntool.linux.targets import UserLimits
from aligntool.mover.unmarked import with_unmarked_changes
from aligntool.realign.found_plan import find_plan
from aligntool.realign.operation import locked_realign
from aligntool.realign.repairs import with_repairs
from aligntool.realign.request import Request, look_at, with_journal
from aligntool.realign.suspended import suspension_refusals
from aligntool.recipes.drives import known_geometries
from aligntool.render import json, progress
from aligntool.units import MIB, Extent

__all__ = [
    "Answer", "Applied", "Check", "Disk", "DiskKind", "Event", "Extent", "Finding", "Grid", "Inventory",
    "Judged", "KernelBehind", "Layer", "Partition", "Place", "Plan", "Progress", "RealignPlan", "Refusal",
    "Refused", "Report", "Said", "Severity", "StepBegun", "StepDone", "Stopped", "Unseen", "Verdict",
    "Waiting", "apply", "audit", "event_json", "look", "plan_realign", "read_plan", "to_json",
]  # fmt: skip

Target = str | Path


@dataclass(frozen=True, slots=True)
class RealignPlan:
    """A plan to align the partitions of a disk: `plan.places` before and after, `plan.steps`,
    `plan.attention`.
    """

    plan: Plan
    request: Request

    @property
    def nothing_to_do(self) -> bool:
        """Return whether the plan has no steps, because every partition stays."""
        return not self.plan.steps


@dataclass(frozen=True, slots=True)
class Applied:
    """The disk as audited again after a plan was applied."""

    judged: Judged
    kernel_behind: bool  # the running kernel has the old table: run partprobe, or reboot


def look(
    targets: Target | Iterable[Target] = (),
    sysroot: Target | None = None,
    *,
    sector_size: int | None = None,
    physical_sector_size: int | None = None,
    wake: bool = False,
) -> Inventory:
    """Return the inventory of the named devices and image files, or of every disk of the machine. What could
    not be read is in `unseen`. `sysroot`: read a captured machine instead. `sector_size`,
    `physical_sector_size`: in bytes, for disks that report none or wrong ones. `wake`: also read disks that
    are asleep. Raises Refused.
    """
    named = (targets,) if isinstance(targets, str | Path) else targets
    given = UserLimits(sector_size=sector_size, physical_sector_size=physical_sector_size)
    folder = None if sysroot is None else str(sysroot)
    return with_unmarked_changes(
        machine.look(
            tuple(map(str, named)), sysroot=folder, given=given, wake=wake, keep_going=True, below=True
        )
    )


def audit(
    targets: Inventory | Target | Iterable[Target] = (),
    sysroot: Target | None = None,
    *,
    page_size: int | None = None,
    grain: int = MIB,
) -> Report:
    """Return the report on an inventory, or on the one that `look` returns for these targets. `page_size`: of
    the drives, in bytes. `grain`: the boundary that partitions should start on. Raises Refused.
    """
    inventory = targets if isinstance(targets, Inventory) else look(targets, sysroot)
    return with_repairs(
        judge.audit(inventory, known_geometries(inventory), AuditOptions(page_size=page_size, grain=grain))
    )[0]


def plan_realign(
    target: Target,
    *,
    partitions: Iterable[int] = (),
    grain: int | None = None,
    shrink: bool = False,
    journal_file: Target | None = None,
    used_only: bool = False,
    sector_size: int | None = None,
    physical_sector_size: int | None = None,
    page_size: int | None = None,
) -> RealignPlan:
    """Plan the moves of partitions onto the boundary; nothing is written. `partitions`: numbers; empty: every
    misaligned partition. `grain`: the boundary, in bytes; None: 1 MiB if there is room. `shrink`: file
    systems may be shrunk. `journal_file`: the journal, on another disk. `used_only`: copy only used blocks,
    even if something else may need the free ones. Raises Refused with every reason in `refusals`.
    """
    goal = RealignGoal(
        partitions=tuple(sorted(set(partitions))),
        grain=grain or MIB,
        grain_given=grain is not None,
        shrink=shrink,
        used_only=used_only,
    )
    goal = with_journal(goal, None if journal_file is None else str(Path(journal_file).absolute()))
    own = {
        "--grain": grain,
        "--journal": goal.journal_file,
        "--sector-size": sector_size,
        "--physical-sector-size": physical_sector_size,
        "--page-size": page_size,
    }
    flags = (*(["--shrink"] if shrink else []), *(["--used-only"] if used_only else []))
    typed = (*(f"-p {number}" for number in goal.partitions), *flags, *typed_words(own))
    request = Request(goal, sector_size, physical_sector_size, page_size, typed)
    return RealignPlan(find_plan(str(target), request).plan, request)


def apply(
    plan: RealignPlan,
    on_event: Callable[[Event], object] = lambda event: None,
    *,
    rate: int | None = None,
    no_lease: bool = False,
    not_suspended: bool = False,
) -> Applied:
    """Apply a plan, and return the result. `on_event` is called with each event. `rate`: bytes per second at
    most. `no_lease`: no other program has the image open, where that cannot be found out. `not_suspended`: no
    system is suspended to disk where that cannot be found out.

    Raises Refused before the first write, for example if the disk no longer matches the plan. Raises Stopped
    after the first write, even if `on_event` raises KeyboardInterrupt; `aligntool resume` and `aligntool
    rollback` continue.
    """
    path = plan.plan.disk.path
    behind = False
    if plan.plan.steps:
        if not not_suspended:
            refuse(suspension_refusals(plan.plan))
        locked = locked_realign(
            plan.plan, plan.request, rate=rate, on_note=lambda text: on_event(Said(text)), no_lease=no_lease
        )
        with locked as applying:
            behind = apply_events(plan.plan, applying, nullcontext(on_event), record)
    try:
        return Applied(look_at(path, plan.request)[0], behind)
    except Refused as error:
        text = f"finished, but the result was not verified: {error}"
        raise Stopped(text, hint=command("audit", path)) from error


def to_json(value: Report | RealignPlan) -> str:
    """Return the JSON document that the command line writes: schema `audit` or `plan`."""
    if isinstance(value, Report):
        return "".join(json.audit_json(*with_repairs(value)))
    return plan_with_request(value.plan, "asked", value.request) + "\n"


def read_plan(text: str) -> RealignPlan:
    """Return the plan in a document of `to_json` or of `aligntool plan realign -o`. Raises Refused."""
    return RealignPlan(from_json(text), request_in_document(text, "asked", Request))


def event_json(plan: RealignPlan, event: Event) -> str:
    """Return an event as a line of JSON: schema `events`."""
    return progress.event_json(plan.plan, event)
