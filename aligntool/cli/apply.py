"""`aligntool apply`: a plan that was kept, if it is still true."""

import sys
from typing import Annotated

import typer

from aligntool.cli.realign import EventsOption, RateOption, YesOption
from aligntool.cli.stream_end import ends_stream, write_nothing_to_do
from aligntool.errors import Refused


@ends_stream
def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="As `aligntool plan ... -o FILE` wrote it.")],
    *,
    yes: YesOption = False,
    rate: RateOption = None,
    json_: EventsOption = False,
) -> None:
    """Apply a plan that was kept in a file. Refused when the disk or what lies on it is no longer what was planned for.

    Example: sudo aligntool apply plan.json

    Exit code: 0 done, 3 refused and nothing written, 4 stopped part-way with the journal left.
    """
    from pathlib import Path

    from aligntool.cli.asked import read_plan_text
    from aligntool.cli.confirm import confirm
    from aligntool.cli.layout import carry_out_layout
    from aligntool.cli.moving import carry_out, still_true
    from aligntool.cli.plan import show_plan

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no text"
        raise Refused(f"{file}: {why}", hint="aligntool audit") from error
    purpose = _purpose(text)
    if purpose == "raid":
        _apply_array(text, yes=yes, json_=json_)
        return
    if purpose == "persist":
        from aligntool.cli.persist import apply_persist

        apply_persist(text, yes=yes, json_=json_)
        return
    plan, asked = read_plan_text(text)
    layout = plan.purpose == "layout"
    if not layout:
        still_true(plan, asked)
    show_plan(plan, sys.stderr if json_ else sys.stdout)
    if not plan.steps:
        return write_nothing_to_do(plan) if json_ else None
    confirm(plan, yes)
    if layout:
        carry_out_layout(plan, json_=json_)
    else:
        carry_out(plan, asked, json_=json_, rate=rate)


def _purpose(text: str) -> str:
    from aligntool.plan import from_json

    return from_json(text).purpose


def _apply_array(text: str, *, yes: bool, json_: bool) -> None:
    """Thought out again from what was asked for, with the same UUIDs: the same steps, or refused."""
    from aligntool.cli.arrays import carry_out_array, refuse_changed, show_array_plan, tell_array
    from aligntool.cli.confirm import confirm
    from aligntool.cli.raid import find_array_plan
    from aligntool.plan import from_json, wanted_of

    plan = from_json(text)
    drives, goal = wanted_of(text)
    refuse_changed(plan, find_array_plan(list(drives), goal))
    show_array_plan(plan, sys.stderr if json_ else sys.stdout)
    confirm(plan, yes)
    carry_out_array(plan, lambda: find_array_plan(list(drives), goal), json_=json_)
    tell_array(plan, json_=json_)
