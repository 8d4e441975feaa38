"""`aligntool demo`: the main job on a disk image of its own, without root."""

import sys
import tempfile
from collections.abc import Iterator
from typing import Annotated

import typer

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Report, Wishes
from aligntool.change import Plan
from aligntool.cli.moves import Realign
from aligntool.cli.options import command, print_lines, terminal_width
from aligntool.cli.plan import find_plan
from aligntool.cli.request import Request
from aligntool.cli.run_change import apply_plan
from aligntool.demo_disk import make_demo_image
from aligntool.linux.look import look
from aligntool.realign.planning import mends
from aligntool.render.audit import audit_lines
from aligntool.render.disk_map import boundary_lines
from aligntool.render.lines import Line, save_svg
from aligntool.render.plan import plan_lines

PICTURE_WIDTH = 100


def demo(
    image: Annotated[
        str | None, typer.Argument(metavar="IMAGE", help="Keep the image as this file; none: a temporary one.")
    ] = None,
    *,
    picture: Annotated[
        str | None, typer.Option("--picture", metavar="FILE", hidden=True, help="Save the audit as an SVG picture.")
    ] = None,
) -> None:
    """Make a misaligned disk image, audit it, realign it, audit it again.

    The image is of a PC of 2005, with files on it.

    An image that is kept is audited and left misaligned, to play with.

    Example: aligntool demo old-disk.img
    """
    if image is not None:
        _audit_old_disk(image, picture)
        _plan(image)
        _say(f"\nThe image stays as it is. Move its partitions: {command('realign', image)}")
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-demo-") as folder:
        path = f"{folder}/disk.img"
        _audit_old_disk(path, picture)
        plan = _plan(path)
        _realign(plan, path)
    _say("\nThe image is gone; `aligntool demo old-disk.img` keeps one to play with.")


def _audit_old_disk(image: str, picture: str | None) -> None:
    _say(f"Making {image}: an MBR disk as Windows XP and a Linux of 2005 partitioned it ...")
    make_demo_image(image)
    report = _report(image)
    _typed(command("audit --map", image))
    print_lines(_lines(report, terminal_width()))
    if picture is not None:
        save_svg(_lines(report, PICTURE_WIDTH), picture, title="aligntool audit --map", width=PICTURE_WIDTH)


def _plan(image: str) -> Plan:
    """Without the steps, which fill three screens."""
    _typed(command("plan realign", image))
    plan = find_plan(image, Request()).plan
    print_lines(plan_lines(plan, width=terminal_width(), brief=True))
    _say(f"({len(plan.steps)} steps; the command itself shows each with every byte)")
    return plan


def _realign(plan: Plan, image: str) -> None:
    _typed(command("realign", image, "--yes"))
    apply_plan(Realign(image, Request()), plan, json_=False)
    _typed(command("audit", image))
    report = _report(image)
    lines = audit_lines(report, width=terminal_width(), verbose=False, quiet=False)
    print_lines(lines)


def _report(image: str) -> Report:
    return audit(look((image,)), {}, Wishes())


def _typed(words: str) -> None:
    _say(f"\n$ {words}\n")


def _say(words: str) -> None:
    """Where both streams go to the same place, talk comes after the data that stand before it."""
    sys.stdout.flush()
    print(words, file=sys.stderr, flush=True)


def _lines(report: Report, width: int) -> Iterator[Line]:
    """The table, and the picture of the first partition that is off."""
    found = {judged.disk.name: mends(judged) for judged in report.judged}
    yield from audit_lines(report, width=width, verbose=False, quiet=False, mends=found)
    yield ()
    for judged in report.judged:
        off = next((verdict for verdict in judged.verdicts if verdict.answer is Answer.OFF), None)
        if off:
            yield from boundary_lines(judged, off, width=width)
