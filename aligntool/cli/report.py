"""`aligntool report` and `snapshot`."""

import sys
from dataclasses import replace
from difflib import get_close_matches
from os import uname
from pathlib import Path
from typing import Annotated

import typer

from aligntool.audit.drives import targets_not_judged
from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions
from aligntool.audit.wording import shell_word
from aligntool.cli import options
from aligntool.errors import Refusal, Refused, refuse
from aligntool.inventory import Inventory
from aligntool.linux.deadline import SILENCE_S
from aligntool.linux.files import archive_of, png_of, write_pages, write_snapshot
from aligntool.linux.look import look, now
from aligntool.linux.snapshot import collect
from aligntool.linux.sysfs import Tree
from aligntool.linux.targets import UserLimits
from aligntool.measure.targets import read_any, temperature_of
from aligntool.mover.unmarked import with_unmarked_changes
from aligntool.raid.ceilings import known_rates
from aligntool.raid.running import arrays_of
from aligntool.realign.repairs import with_repairs
from aligntool.recipes.drives import known_geometries
from aligntool.render.lines import plain
from aligntool.render.recipes import TOPIC
from aligntool.render.report.disks import Content, Measured, pictures_of, when_words
from aligntool.render.report.page import page_html, show_measurements
from aligntool.render.svg import Picture, queue_picture, svg_text
from aligntool.system import SNAPSHOT_SUFFIXES
from aligntool.units import MIB

# `aligntool report`: everything that is known about a machine's disks on one page, and single pictures from
# it.

_STDOUT = "-"


def report(
    targets: options.TargetsArgument = None,
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the page; - is standard output."),
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option("--chart", metavar="NAME", help="Select a single picture, for --svg and --png."),
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Write that picture as SVG.")
    ] = None,
    png: Annotated[
        str | None,
        typer.Option("--png", metavar="FILE", help="Write that picture as PNG; needs rsvg-convert."),
    ] = None,
    bench: Annotated[
        list[str] | None,
        typer.Option("--bench", metavar="FILE", help="Add a result of `aligntool bench`; may be repeated."),
    ] = None,
    overwrite: options.OverwriteOption = False,
    sysroot: options.SysrootOption = None,
    wake: options.WakeOption = False,
    timeout: options.TimeoutOption = SILENCE_S,
    geometry: options.Geometry,
    grain: options.AuditGrainOption = None,
) -> None:
    """Write one HTML page of disks, findings, arrays and benchmarks.

    The page contains its maps, costs and pictures, and needs no network.

    Example: sudo aligntool report -o report.html

    Exit code: 0 written, with or without findings; 3 refused, and nothing was written.
    """
    _check_options(output, chart, svg, png)
    options.refuse_suffix(output, options.PAGE_SUFFIXES, "the page is HTML")
    options.refuse_suffix(svg, (".svg",), "--svg writes SVG")
    options.refuse_suffix(png, (".png",), "--png writes PNG")
    root = options.one_machine(sysroot)
    inputs = [*(targets or ()), *(bench or ()), *(sysroot or ())]
    for name in filter(None, (output, svg, png)):
        options.ResultFile(name, overwrite).refuse("nothing was written", inputs)
    if output is None and chart == TOPIC:  # it needs no disk
        return _write(_drawn(queue_picture(), svg, png), overwrite=overwrite)
    measured = show_measurements([read_any(file) for file in bench or ()])
    given = UserLimits(sector_size=geometry.sector_size, physical_sector_size=geometry.physical_sector_size)
    if targets and root is None:
        refuse(options.attach_virtual(*targets, silence_s=timeout))
    inventory = look(
        tuple(targets or ()), sysroot=root, given=given, wake=wake, silence_s=timeout, below=True
    )
    inventory = with_unmarked_changes(inventory, timeout)
    if targets:
        refuse(Refusal("not-read", each.what, each.text, each.hint) for each in inventory.unseen)
    content = _content(inventory, AuditOptions(page_size=geometry.page_size, grain=grain or MIB), measured)
    content = _with_name(content, targets, root)
    pages = _drawn(_find_picture(content, chart), svg, png) if chart else []
    if output is not None:
        pages.insert(0, (output, page_html(content).encode()))
    _write(pages, overwrite=overwrite)
    for unseen in targets_not_judged(content.report):
        options.say(unseen.text)


def _check_options(output: str | None, chart: str | None, svg: str | None, png: str | None) -> None:
    if chart is not None and not (svg or png):
        raise typer.BadParameter("no file given for the picture: --svg FILE or --png FILE")
    if (svg or png) and chart is None:
        raise typer.BadParameter("no picture named: --chart NAME; an unknown name lists them all")
    if not (output or svg or png):
        raise typer.BadParameter("no file given for the page: -o report.html")
    named = [name for name in (output, svg, png) if name]
    if len(set(map(Path, named))) < len(named):
        raise typer.BadParameter("two outputs have the same file name")


def _content(inventory: Inventory, audit_options: AuditOptions, measured: tuple[Measured, ...]) -> Content:
    known = known_geometries(inventory)
    rates = known_rates(known)
    found, repairs = with_repairs(audit(inventory, known, audit_options))
    return Content(found, arrays_of(found, (), rates), repairs, measured, when_words(now()), rates)


def _with_name(content: Content, targets: list[str] | None, sysroot: str | None) -> Content:
    """Return the content with the name of the machine or targets, and the temperatures of its drives."""
    if sysroot is not None:
        return replace(content, machine=Path(sysroot).name.partition(".tar")[0])
    found = ((judged.disk.name, temperature_of(judged.disk.name)) for judged in content.report.judged)
    warm = {name: degrees for name, degrees in found if degrees is not None}
    return replace(content, machine=", ".join(targets or [uname().nodename]), temperatures=warm)


def _find_picture(content: Content, name: str) -> Picture:
    made = {picture.name: picture for picture in pictures_of(content)}
    if name in made:
        return made[name]
    near = get_close_matches(name, made, n=1, cutoff=0.0)
    raise Refused(
        f"there is no picture {name!r}; the pictures are {', '.join(made)}", hint=f"--chart {near[0]}"
    )


def _drawn(picture: Picture, svg: str | None, png: str | None) -> list[tuple[str, bytes]]:
    text = svg_text(picture, alone=True)
    made = [(svg, text.encode())] if svg else []
    return [*made, (png, png_of(text))] if png else made


def _write(pages: list[tuple[str, bytes]], *, overwrite: bool) -> None:
    files = [(name, content) for name, content in pages if name != _STDOUT]
    write_pages(files, overwrite=overwrite)
    for name, _ in files:
        options.say(f"{name} written")
    sys.stdout.flush()
    sys.stdout.buffer.writelines(content for name, content in pages if name == _STDOUT)
    sys.stdout.buffer.flush()


# `aligntool snapshot`: this machine as a file, for a bug report or an audit elsewhere.


def snapshot(
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write: .tar.xz or .tar.gz; - is standard output.",
        ),
    ],
    *,
    serials: Annotated[
        bool, typer.Option("--serials", help="Keep serial numbers, UUIDs and labels.")
    ] = False,
    host: Annotated[
        bool, typer.Option("--host", help="Include the name of this machine in the manifest.")
    ] = False,
    overwrite: options.OverwriteOption = False,
) -> None:
    """Capture what an audit reads from this machine.

    Serial numbers are left out unless --serials is given.

    Example: sudo aligntool snapshot -o server7.tar.xz

    To audit the file: aligntool audit --sysroot server7.tar.xz
    """
    if output != _STDOUT:
        options.refuse_suffix(output, SNAPSHOT_SUFFIXES, "a snapshot is a tar archive", needed=True)
    entries = collect(Tree(""), serials=serials, host=host)
    if output == _STDOUT:
        sys.stdout.buffer.write(archive_of(entries, "w:xz"))
        sys.stdout.buffer.flush()
        return
    write_snapshot(output, entries, overwrite=overwrite)
    options.print_lines(
        [plain(f"{output} written; audit it with: aligntool audit --sysroot {shell_word(output)}")]
    )
