"""`aligntool realign`, `plan realign`, `layout` and `plan layout`."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from aligntool.audit.wording import shell_word
from aligntool.change import LayoutGoal, PartWish, Plan, RealignGoal, to_json
from aligntool.cli.moves import Realign, disk_plan_lines
from aligntool.cli.options import (
    DiskArgument,
    DryRunOption,
    EventsOption,
    JsonOption,
    PageOption,
    PhysicalOption,
    PlanOutputOption,
    RateOption,
    RecipeOption,
    SectorOption,
    YesOption,
    command,
    grid,
    naming,
    partition_numbers,
    size,
)
from aligntool.cli.plan import (
    GrainOption,
    JournalOption,
    PartitionsOption,
    ShrinkOption,
    asked_for,
    look_at,
    refuse_in_flight,
    refuse_part,
)
from aligntool.cli.request import Request
from aligntool.cli.run_change import Applying, ends_stream, run_change, show_only, write_end
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Disk
from aligntool.realign.layout import make_layout, plan_layout
from aligntool.recipes.goals import parse_part, recipe
from aligntool.render.lines import Line
from aligntool.units import format_size

# `aligntool realign`: plan, shown, confirmed, applied.


@ends_stream
def realign(
    disk: DiskArgument,
    *,
    partitions: PartitionsOption = None,
    grain: GrainOption = None,
    recipe: RecipeOption = None,
    shrink: ShrinkOption = False,
    journal: JournalOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    rate: RateOption = None,
    json_: EventsOption = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:
    """Move partitions onto the boundary.

    The plan is shown first, and you are asked once.

    It may be interrupted at any moment, by Ctrl-C or by the power: `aligntool resume` goes on, `aligntool rollback`
    takes it back.

    Example: sudo aligntool realign /dev/sda

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped part-way with the journal left.
    """
    asked = asked_for(
        partitions=partition_numbers(partitions), grain=grain, recipe=recipe, shrink=shrink, journal=journal,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    run_change(Realign(disk, asked, rate), yes=yes, json_=json_, dry_run=dry_run)


def plan_realign(
    disk: DiskArgument,
    *,
    partitions: PartitionsOption = None,
    grain: GrainOption = None,
    recipe: RecipeOption = None,
    shrink: ShrinkOption = False,
    journal: JournalOption = None,
    output: PlanOutputOption = None,
    json_: JsonOption = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:
    """Plan how partitions get onto the boundary, and show every step.

    It shows before and after, and every byte range.

    Example: sudo aligntool plan realign /dev/sda -o plan.json

    Exit code: 0 there is a plan, or nothing to do; 3 refused, with every reason.
    """
    asked = asked_for(
        partitions=partition_numbers(partitions), grain=grain, recipe=recipe, shrink=shrink, journal=journal,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    operation = Realign(disk, asked)
    show_only(operation, operation.make_plan(), json_=json_, output=output)


# `aligntool layout` and `aligntool plan layout`: a new partition table for an empty disk.


def _part(text: str) -> PartWish:
    try:
        return parse_part(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


PartsOption = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="SIZE:ROLE[:NAME]",
                 help="A partition, such as 512MiB:esp; in their order. `rest:linux` takes what the others leave."),
]  # fmt: skip
LabelOption = Annotated[
    str | None, typer.Option("--label", metavar="gpt|dos", help="gpt, or dos for an MBR [default: gpt].")
]
LayoutGrainOption = Annotated[
    int | None, typer.Option("--grain", parser=grid, metavar="SIZE", help="Boundary to start on [default: 1MiB].")
]
SpareOption = Annotated[
    int | None, typer.Option("--spare-end", parser=size, metavar="SIZE", help="Leave so much free at the end.")
]
WipeOption = Annotated[bool, typer.Option("--wipe", help="The disk is not empty, and everything on it may be lost.")]


def plan_layout_command(
    disk: DiskArgument,
    *,
    parts: PartsOption = None,
    label: LabelOption = None,
    recipe: RecipeOption = None,
    grain: LayoutGrainOption = None,
    spare_end: SpareOption = None,
    wipe: WipeOption = False,
    output: PlanOutputOption = None,
    json_: JsonOption = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:
    """Plan a new partition table for an empty disk, and show it.

    Example: sudo aligntool plan layout /dev/sdb --part 512MiB:esp --part rest:linux

    Exit code: 0 there is a plan; 3 refused, with every reason.
    """
    goal, given = _asked(
        parts=parts, label=label, recipe=recipe, grain=grain, spare_end=spare_end, wipe=wipe,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    operation = Layout(disk, goal, given)
    show_only(operation, operation.make_plan(), json_=json_, output=output)


@ends_stream
def layout_command(
    disk: DiskArgument,
    *,
    parts: PartsOption = None,
    label: LabelOption = None,
    recipe: RecipeOption = None,
    grain: LayoutGrainOption = None,
    spare_end: SpareOption = None,
    wipe: WipeOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json_: EventsOption = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:
    """Give an empty disk a new partition table, every start on its grids.

    The plan is shown first, and you are asked.

    Example: sudo aligntool layout /dev/sdb --recipe desktop-uefi

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the table was finished.
    """
    goal, given = _asked(
        parts=parts, label=label, recipe=recipe, grain=grain, spare_end=spare_end, wipe=wipe,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    run_change(Layout(disk, goal, given), yes=yes, json_=json_, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class Layout:
    """Give an empty disk a new partition table."""

    disk: str
    goal: LayoutGoal
    given: Request  # the geometry

    def make_plan(self) -> Plan:
        judged = look_at(self.disk, self.given, "audit")[0]
        refuse_part(self.disk, judged.disk, "a table is made for a whole disk")
        refuse_in_flight(judged.disk.path)
        return plan_layout(judged, self.goal)

    def document(self, plan: Plan) -> str:
        return to_json(plan) + "\n"

    def lines(self, plan: Plan, type_next: str) -> Iterable[Line]:
        return disk_plan_lines(plan, type_next)

    def next_command(self) -> str:
        return command("layout", self.disk, *self.given.typed)

    def refuse_changed(self, plan: Plan) -> None:
        """Do nothing: `make_layout` compares the disk with the plan before it writes."""

    @contextmanager
    def held(self, plan: Plan) -> Iterator[Applying]:
        path = plan.disk.path
        with naming(path):
            events = make_layout(plan, _look_again(plan))
            yield Applying(events, command("layout", path, "--wipe"))

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        path = plan.disk.path
        if [part.extent for part in _look_again(plan).partitions] != [place.after for place in plan.places]:
            raise Stopped(f"{path} reads back otherwise than it was planned", hint=command("layout", path, "--wipe"))
        seen = command("audit", path)
        if json_:
            write_end("new", changed=True, sentences=("the new table reads back as planned",), hint=seen)
        print(f"Done; see it: {seen}", file=sys.stderr)


def _look_again(plan: Plan) -> Disk:
    return look_at(plan.disk.path, Request(sector_size=plan.disk.sector_size))[0].disk


def _asked(
    *,
    parts: list[str] | None,
    label: str | None,
    recipe: str | None,
    grain: int | None,
    spare_end: int | None,
    wipe: bool,
    sector_size: int | None,
    physical_sector_size: int | None,
    page_size: int | None,
) -> tuple[LayoutGoal, Request]:
    """Return the goal, and the geometry that was given. What is typed beside a recipe comes before the recipe's own.

    Raises Refused.
    """
    goal = _goal(tuple(_part(text) for text in parts or ()), recipe)
    goal = replace(goal, label=label or goal.label, grain=grain or goal.grain, wipe=wipe,
                   spare_end=goal.spare_end if spare_end is None else spare_end)  # fmt: skip
    options = {
        "--recipe": recipe and shell_word(recipe),
        "--label": label and shell_word(label),
        "--grain": grain and format_size(grain),
        "--spare-end": spare_end and format_size(spare_end),
        "--sector-size": sector_size and format_size(sector_size),
        "--physical-sector-size": physical_sector_size and format_size(physical_sector_size),
        "--page-size": page_size and format_size(page_size),
    }
    typed = [f"--part {shell_word(part)}" for part in parts or ()]
    typed += [f"{option} {value}" for option, value in options.items() if value]
    typed += ["--wipe"] if wipe else []
    wishes = RealignGoal(grain=goal.grain)  # the audit beside it asks for this grain
    return goal, Request(wishes, sector_size, physical_sector_size, page_size, tuple(typed))


def _goal(parts: tuple[PartWish, ...], name: str | None) -> LayoutGoal:
    if name is None:
        return LayoutGoal(parts)
    goal = recipe(name, "layout").goal
    if parts or not isinstance(goal, LayoutGoal):
        raise Refused(f"the recipe {name} already has partitions", hint="give either --part or --recipe")
    return goal
