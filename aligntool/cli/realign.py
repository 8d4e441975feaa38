"""`aligntool realign`: plan, shown, confirmed, applied."""

import sys
from typing import Annotated

import typer

from aligntool.cli.options import PageOption, PhysicalOption, SectorOption, partition_numbers, size
from aligntool.cli.plan import (
    DiskArgument,
    GrainOption,
    JournalOption,
    PartitionsOption,
    RecipeOption,
    ShrinkOption,
    asked_for,
    show_plan,
    tell_plan,
)
from aligntool.cli.stream_end import ends_stream, write_nothing_to_do

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
    """Move partitions onto the boundary. The plan is shown first, and you are asked once.

    It may be interrupted at any moment, by Ctrl-C or by the power: `aligntool resume` goes on, `aligntool rollback`
    takes it back.

    Example: sudo aligntool realign /dev/sda

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped part-way with the journal left.
    """
    from aligntool.cli.confirm import confirm
    from aligntool.cli.moving import carry_out
    from aligntool.cli.planning import find_plan

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
