"""`aligntool plan`: what would be done, as text, as JSON, as a file to be applied later."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import (
    PageOption,
    PhysicalOption,
    SectorOption,
    colored,
    grid,
    partition_numbers,
    terminal_width,
)
from aligntool.errors import Refused, refuse_folder_name
from aligntool.units import format_size

if TYPE_CHECKING:
    from typing import TextIO

    from aligntool.cli.asked import Asked
    from aligntool.plan import Plan, RealignGoal

plan_app = typer.Typer(
    name="plan",
    help="Show what would be done to a disk, to the byte, and write nothing to it.\n\n"
    "Example: aligntool plan realign disk.img",
    no_args_is_help=True,
)

DiskArgument = Annotated[str, typer.Argument(metavar="DISK", help="A whole disk, or a disk image file.")]
PartitionsOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="N[,N]",
                 help="Only these partitions, such as 1,2. None: every one that is off the grid."),
]  # fmt: skip
GrainOption = Annotated[
    int | None,
    typer.Option(
        "--grain", parser=grid, metavar="SIZE", help="Boundary to start on; 1MiB where there is room."
    ),
]
RecipeOption = Annotated[
    str | None, typer.Option("--recipe", metavar="NAME", help="A goal that comes with aligntool.")
]
ShrinkOption = Annotated[
    bool, typer.Option("--shrink", help="File systems may be shrunk with their own tools to make room.")
]
JournalOption = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="FILE", help="Journal in a file on another disk, not in free space of this one."
    ),
]


@plan_app.command("realign")
def plan_realign_command(
    disk: DiskArgument,
    *,
    partitions: PartitionsOption = None,
    grain: GrainOption = None,
    recipe: RecipeOption = None,
    shrink: ShrinkOption = False,
    journal: JournalOption = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the plan, for `aligntool apply FILE`.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
) -> None:  # fmt: skip
    """Think out how partitions get onto the boundary, and show it: before and after, every byte range, every step.

    Example: sudo aligntool plan realign /dev/sda -o plan.json

    Exit code: 0 there is a plan, or nothing to do; 3 refused, with every reason.
    """
    from aligntool.cli.asked import plan_text
    from aligntool.cli.planning import find_plan

    asked = asked_for(
        partitions=partition_numbers(partitions), grain=grain, recipe=recipe, shrink=shrink, journal=journal,
        sector_size=sector_size, physical_sector_size=physical_sector_size, page_size=page_size,
    )  # fmt: skip
    plan = find_plan(disk, asked).plan
    if output is not None:
        keep(output, plan_text(plan, asked))
    tell_plan(plan, asked, disk, json_=json_, kept=output)


def asked_for(
    *,
    partitions: list[int] | None,
    grain: int | None,
    recipe: str | None,
    shrink: bool,
    journal: str | None,
    sector_size: int | None,
    physical_sector_size: int | None,
    page_size: int | None,
) -> "Asked":
    """The options as one value. What is typed beside a recipe comes before the recipe's own. Raises Refused."""
    from dataclasses import replace

    from aligntool.audit.words import shell_word
    from aligntool.cli.asked import Asked
    from aligntool.plan import RealignGoal

    goal = RealignGoal() if recipe is None else _recipe_goal(recipe)
    if grain is not None:
        goal = replace(goal, grain=grain, grain_given=True)
    if partitions:
        goal = replace(goal, partitions=tuple(sorted(set(partitions))))
    goal = replace(goal, shrink=shrink or goal.shrink, journal_file=_absolute(journal))
    options = {
        "--grain": grain and format_size(grain),
        "--recipe": recipe and shell_word(recipe),
        "--journal": journal and shell_word(journal),
        "--sector-size": sector_size and format_size(sector_size),
        "--physical-sector-size": physical_sector_size and format_size(physical_sector_size),
        "--page-size": page_size and format_size(page_size),
    }
    typed = [f"-p {number}" for number in partitions or ()] + (["--shrink"] if shrink else [])
    typed += [f"{option} {value}" for option, value in options.items() if value]
    return Asked(goal, sector_size, physical_sector_size, page_size, tuple(typed))


def _recipe_goal(name: str) -> "RealignGoal":
    from aligntool.plan import RealignGoal
    from aligntool.recipe import recipe

    goal = recipe(name, "realign").goal
    if not isinstance(goal, RealignGoal):
        raise Refused(f"the recipe {name} is none for a realign", hint="aligntool recipes list")
    return goal


def _absolute(path: str | None) -> str | None:
    """A plan may be applied from another folder."""
    from pathlib import Path

    return None if path is None else str(Path(path).absolute())


def tell_plan(plan: "Plan", asked: "Asked", disk: str, *, json_: bool, kept: str | None = None) -> None:
    """On standard output: the document, or text with the command that applies it."""
    from aligntool.cli.asked import command, plan_text

    if json_:
        sys.stdout.write(plan_text(plan, asked))
        return
    next_ = apply_command(kept, plan) if kept is not None else command("realign", disk, *asked.typed)
    show_plan(plan, sys.stdout, type_next=next_)


def apply_command(file: str, plan: "Plan") -> str:
    """What applies a plan that was kept; it is the disk, and not the file, that may need root."""
    from aligntool.audit.words import shell_word

    root = "sudo " if plan.disk.path.startswith("/dev/") else ""
    return f"{root}aligntool apply {shell_word(file)}"


def show_plan(plan: "Plan", stream: "TextIO", *, type_next: str = "") -> None:
    from aligntool.cli.planning import commands_of
    from aligntool.render.lines import show
    from aligntool.render.plan import plan_lines

    commands = commands_of(plan)
    lines = plan_lines(plan, width=terminal_width(), commands=commands, type_next=type_next)
    show(lines, stream, color=colored() and stream is sys.stdout)
    stream.flush()


def keep(path: str, text: str) -> None:
    """A file of the user's choosing; never over another one. Raises Refused."""
    from pathlib import Path

    from aligntool.audit.words import shell_word

    refuse_folder_name(path)
    try:
        with Path(path).open("x") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(
            f"{path} is there already; nothing was written", hint=f"rm {shell_word(path)}"
        ) from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error
