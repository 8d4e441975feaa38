"""`aligntool demo`: the main job on a disk image of its own, without root."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aligntool.audit import Report
    from aligntool.render.lines import Line

PICTURE_WIDTH = 100


def demo(
    image: Annotated[
        str | None,
        typer.Argument(metavar="IMAGE", help="Keep the image as this file; none: a temporary one."),
    ] = None,
    *,
    picture: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", hidden=True, help="Save the audit as an SVG picture."),
    ] = None,
) -> None:
    """Make a disk image as a PC of 2005 had it, with files on it, and audit it.

    Example: aligntool demo old-disk.img
    """
    import tempfile

    if image is not None:
        _run(image, picture, kept=True)
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-demo-") as folder:
        _run(f"{folder}/disk.img", picture, kept=False)


def _run(image: str, picture: str | None, *, kept: bool) -> None:
    from aligntool.apply.demo import make_demo_image
    from aligntool.audit import Wishes, audit
    from aligntool.probe.look import look
    from aligntool.render.lines import save_svg, show

    print(
        f"Making {image}: an MBR disk as Windows XP and a Linux of 2005 partitioned it ...", file=sys.stderr
    )
    make_demo_image(image)
    report = audit(look((image,)), {}, Wishes())
    print(f"$ aligntool audit --map {image}\n", file=sys.stderr)
    show(_lines(report, terminal_width()), sys.stdout, color=colored())
    if picture is not None:
        save_svg(_lines(report, PICTURE_WIDTH), picture, title="aligntool audit --map", width=PICTURE_WIDTH)
    if kept:
        print(f"\nThe image stays: aligntool audit {image}", file=sys.stderr)
    else:
        print("\nThe image is gone; `aligntool demo old-disk.img` keeps one to play with.", file=sys.stderr)


def _lines(report: "Report", width: int) -> "Iterator[Line]":
    """The table, and the picture of the first partition that is off."""
    from aligntool.audit import Answer
    from aligntool.render.map import boundary_lines
    from aligntool.render.table import audit_lines

    yield from audit_lines(report, width=width, verbose=False, quiet=False)
    yield ()
    for judged in report.judged:
        off = next((verdict for verdict in judged.verdicts if verdict.answer is Answer.OFF), None)
        if off:
            yield from boundary_lines(judged, off, width=width)
