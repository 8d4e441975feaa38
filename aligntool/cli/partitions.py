"""`aligntool realign`, `layout` and `plan layout`."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from aligntool.audit.wording import shell_word
from aligntool.change import LayoutGoal, PartWish, Plan, RealignGoal, to_json
from aligntool.cli.options import (
    Asked,
    PageOption,
    PhysicalOption,
    SectorOption,
    command,
    confirm,
    grid,
    naming,
    partition_numbers,
    size,
)
from aligntool.cli.plan import (
    DiskArgument,
    GrainOption,
    JournalOption,
    PartitionsOption,
    RecipeOption,
    ShrinkOption,
    apply_command,
    asked_for,
    find_plan,
    keep,
    look_at,
    refuse_in_flight,
    refuse_part,
    show_plan,
    tell_plan,
)
from aligntool.cli.run_change import carry_out, ends_stream, follow, write_end, write_nothing_to_do
from aligntool.errors import Refused, Stopped
from aligntool.realign.layout import make_layout, plan_layout
from aligntool.recipes.goals import parse_part, recipe
from aligntool.units import format_size

# `aligntool realign`: plan, shown, confirmed, applied.

YesOption = Annotated[
    bool, typer.Option("--yes", help="Do not ask. It answers the one question and overrides no refusal.")
]
EventsOption = Annotated[bool, typer.Option("--json", help="Tell what happens as JSON lines.")]
RateOption = Annotated[
    int | None,
    typer.Option("--rate", parser=size, metavar="SIZE", help="Copy at most so much a second, such as 50MiB."),
]


@ends_stream
def realign(
    disk: DiskArgument,
    *,
    partitions: PartitionsOption = None,
    grain: GrainOption = None,
    recipe: RecipeOption = None,
    shrink: ShrinkOption = False,
    journal: JournalOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop, as `plan realign`.")] = False,
    yes: YesOption = False,
    rate: RateOption = None,
    json_: EventsOption = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:  # fmt: skip
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
    plan = find_plan(disk, asked).plan
    if dry_run:
        return tell_plan(plan, asked, disk, json_=json_)
    show_plan(plan, sys.stderr if json_ else sys.stdout)
    if not plan.steps:
        return write_nothing_to_do(plan) if json_ else None
    confirm(plan, yes)
    carry_out(plan, asked, json_=json_, rate=rate)


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
    str | None, typer.Option("--label", metavar="gpt|dos", help="GPT unless said; dos is an MBR.")
]
LayoutGrainOption = Annotated[
    int | None,
    typer.Option("--grain", parser=grid, metavar="SIZE", help="Boundary to start on; 1MiB unless said."),
]
SpareOption = Annotated[
    int | None,
    typer.Option("--spare-end", parser=size, metavar="SIZE", help="Leave so much free at the end."),
]
WipeOption = Annotated[
    bool, typer.Option("--wipe", help="The disk is not empty, and everything on it may be lost.")
]


def plan_layout_command(
    disk: DiskArgument,
    *,
    parts: PartsOption = None,
    label: LabelOption = None,
    recipe: RecipeOption = None,
    grain: LayoutGrainOption = None,
    spare_end: SpareOption = None,
    wipe: WipeOption = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the plan in a file.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:  # fmt: skip
    """Plan a new partition table for an empty disk, and show it.

    Example: sudo aligntool plan layout /dev/sdb --part 512MiB:esp --part rest:linux

    Exit code: 0 there is a plan; 3 refused, with every reason.
    """
    goal, given = _asked(
        parts=parts, label=label, recipe=recipe, grain=grain, spare_end=spare_end, wipe=wipe,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    judged = look_at(disk, given, "audit")[0]
    refuse_part(disk, judged.disk, "a table is made for a whole disk")
    refuse_in_flight(judged.disk.path)
    plan = plan_layout(judged, goal)
    if output is not None:
        keep(output, to_json(plan) + "\n")
    if json_:
        sys.stdout.write(to_json(plan) + "\n")
    else:
        next_ = command("layout", disk, *given.typed) if output is None else apply_command(output, plan)
        show_plan(plan, sys.stdout, type_next=next_)


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop, as `plan layout`.")] = False,
    yes: YesOption = False,
    json_: EventsOption = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:  # fmt: skip
    """Give an empty disk a new partition table, every start on its grids.

    The plan is shown first, and you are asked.

    Example: sudo aligntool layout /dev/sdb --recipe desktop-uefi

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the table was finished.
    """
    goal, given = _asked(
        parts=parts, label=label, recipe=recipe, grain=grain, spare_end=spare_end, wipe=wipe,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    judged = look_at(disk, given, "audit")[0]
    refuse_part(disk, judged.disk, "a table is made for a whole disk")
    refuse_in_flight(judged.disk.path)
    plan = plan_layout(judged, goal)
    if dry_run and json_:
        sys.stdout.write(to_json(plan) + "\n")
        return
    show_plan(plan, sys.stderr if json_ else sys.stdout)
    if dry_run:
        return
    confirm(plan, yes)
    carry_out_layout(plan, json_=json_)


def carry_out_layout(plan: Plan, *, json_: bool) -> None:
    """Look once more, make the table, look again. Raises Refused before the first write and Stopped after it."""
    path, given = plan.disk.path, Asked(sector_size=plan.disk.sector_size)
    again = command("layout", path, "--wipe")
    with naming(path):
        follow(plan, make_layout(plan, look_at(path, given)[0].disk), json_=json_, hint=again)
    made = look_at(path, given)[0].disk
    if [part.extent for part in made.partitions] != [place.after for place in plan.places]:
        raise Stopped(f"{path} reads back otherwise than it was planned", hint=again)
    seen = command("audit", path)
    if json_:
        write_end("new", changed=True, sentences=("the new table reads back as planned",), hint=seen)
    print(f"Done; see it: {seen}", file=sys.stderr)


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
) -> tuple[LayoutGoal, Asked]:
    """The goal, and what the geometry is said to be. What is typed beside a recipe comes before the recipe's own.

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
    return goal, Asked(wishes, sector_size, physical_sector_size, page_size, tuple(typed))


def _goal(parts: tuple[PartWish, ...], name: str | None) -> LayoutGoal:
    if name is None:
        return LayoutGoal(parts)
    goal = recipe(name, "layout").goal
    if parts or not isinstance(goal, LayoutGoal):
        raise Refused(
            f"the recipe {name} says already which partitions", hint="give either --part or --recipe"
        )
    return goal
