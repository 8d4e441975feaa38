"""`aligntool report`, `recipes` and `snapshot`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import (
    PageOption,
    PhysicalOption,
    SectorOption,
    TargetsArgument,
    TimeoutOption,
    WakeOption,
    WishedGrainOption,
    colored,
    terminal_width,
)
from aligntool.errors import Refused, refuse
from aligntool.linux.deadline import SILENCE_S

if TYPE_CHECKING:
    from aligntool.audit.report import Wishes
    from aligntool.inventory import Inventory
    from aligntool.recipes.goals import Recipe
    from aligntool.render.report.disks import Content, Measured
    from aligntool.render.svg import Picture


# `aligntool recipes`: the goals that come with aligntool, and a check for one's own.

recipes_app = typer.Typer(
    name="recipes",
    help="Goals for usual cases, as data: list them, show one, check one of your own.\n\n"
    "Example: aligntool recipes list",
    no_args_is_help=True,
)


@recipes_app.command("list")
def list_recipes(
    *, json_: Annotated[bool, typer.Option("--json", help="The recipes as JSON.")] = False
) -> None:
    """List the recipes, and the command that takes each.

    Example: aligntool recipes list
    """
    from aligntool.recipes.goals import load_recipes
    from aligntool.render.lines import show
    from aligntool.render.recipes import recipe_rows, recipes_json

    found = load_recipes()
    if json_:
        sys.stdout.write(recipes_json(found))
    else:
        show(recipe_rows(found, width=terminal_width()), sys.stdout, color=colored())


@recipes_app.command("show")
def show_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `aligntool recipes list` names it.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="The recipe as JSON.")] = False,
) -> None:
    """Show what a recipe wants, why, and where its numbers come from.

    Example: aligntool recipes show desktop-uefi
    """
    from aligntool.recipes.goals import load_recipes, recipe

    found = tuple(each for each in load_recipes() if each.name == name) or (recipe(name),)
    _tell(found, json_=json_)


@recipes_app.command("check")
def check_recipe(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recipe of your own, in TOML.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="The recipe as JSON.")] = False,
) -> None:
    """Check a recipe of your own: every key and value must be understood. Then it is shown.

    Example: aligntool recipes check my-layout.toml

    Exit code: 0 it is good, 3 it is not.
    """
    from pathlib import Path

    from aligntool.recipes.goals import parse_recipe

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no text"
        raise Refused(f"{file}: {why}", hint="aligntool recipes list") from error
    _tell((parse_recipe(file, text),), json_=json_)


def _tell(found: "tuple[Recipe, ...]", *, json_: bool) -> None:
    from aligntool.render.lines import show
    from aligntool.render.recipes import recipe_lines, recipes_json

    if json_:
        sys.stdout.write(recipes_json(found))
    else:
        show(recipe_lines(found, width=terminal_width()), sys.stdout, color=colored())


# `aligntool report`: everything that is known of a machine's disks on one page, and single pictures of it.

_STDOUT = "-"


def report(
    targets: TargetsArgument = None,
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the page; - is standard output."),
    ] = None,
    chart: Annotated[
        str | None, typer.Option("--chart", metavar="NAME", help="A single picture, for --svg and --png.")
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Write that picture as SVG.")
    ] = None,
    png: Annotated[
        str | None, typer.Option("--png", metavar="FILE", help="Write that picture as PNG; needs rsvg-convert.")
    ] = None,
    bench: Annotated[
        list[str] | None,
        typer.Option("--bench", metavar="FILE", help="A result of `aligntool bench`; may be given again."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    sysroot: Annotated[
        str | None, typer.Option("--sysroot", metavar="DIR", help="A captured machine: a snapshot or its folder.")
    ] = None,
    wake: WakeOption = False,
    timeout: TimeoutOption = SILENCE_S,
    sector_size: SectorOption = None,
    physical_sector_size: PhysicalOption = None,
    page_size: PageOption = None,
    grain: WishedGrainOption = None,
) -> None:  # fmt: skip
    """Write one HTML page that needs no network: disks with maps, findings with their cost, arrays with their links,
    benchmarks drawn.

    Example: sudo aligntool report -o report.html

    Exit code: 0 written, whatever was found; 3 refused, and nothing was written.
    """
    from aligntool.audit.drives import unjudged
    from aligntool.audit.report import Wishes
    from aligntool.linux.drives import Given
    from aligntool.linux.look import look
    from aligntool.units import MIB

    _check_words(output, chart, svg, png)
    if output is None and chart is not None and (known := _known_picture(chart)):
        _write(_drawn(known, svg, png), overwrite=overwrite)
        return
    measured = _measured(bench or [])
    given = Given(sector_size=sector_size, physical_sector_size=physical_sector_size)
    inventory = look(tuple(targets or ()), sysroot=sysroot, given=given, wake=wake, silence_s=timeout)
    if targets:
        refuse((f"{each.what}: {each.why}", each.hint) for each in inventory.unseen)
    content = _content(inventory, Wishes(page_size=page_size, grain=grain or MIB), measured)
    pages = _drawn(_find_picture(content, chart), svg, png) if chart else []
    if output is not None:
        pages.insert(0, (output, _page(content)))
    _write(pages, overwrite=overwrite)
    for unseen in unjudged(content.report):
        _say(f"{unseen.what}: {unseen.why}")


def _check_words(output: str | None, chart: str | None, svg: str | None, png: str | None) -> None:
    if chart is not None and not (svg or png):
        raise Refused("where is the picture to go?", hint="--svg FILE or --png FILE")
    if (svg or png) and chart is None:
        raise Refused(
            "which picture is it to be?", hint="--chart NAME; a name that there is not lists them all"
        )
    if not (output or svg or png):
        raise Refused("where is the page to go?", hint="aligntool report -o report.html")
    named = [name for name in (output, svg, png) if name]
    if len(set(named)) < len(named):
        raise Refused("two files of the same name were asked for")


def _known_picture(chart: str) -> "Picture | None":
    """Those for which no disk has to be looked at."""
    from aligntool.render.recipes import TOPIC
    from aligntool.render.svg import queue_picture

    return queue_picture() if chart == TOPIC else None


def _measured(files: list[str]) -> "tuple[Measured, ...]":
    """Raises Refused for a file that is no result."""
    if not files:
        return ()
    from aligntool.measure.results import from_json
    from aligntool.measure.sweeps import experiment_from_json
    from aligntool.measure.targets import read_text
    from aligntool.render.report.results import measured_of

    texts = [(file, read_text(file)) for file in files]
    return measured_of([experiment_from_json(text, file) or from_json(text, file) for file, text in texts])


def _content(inventory: "Inventory", wishes: "Wishes", measured: "tuple[Measured, ...]") -> "Content":
    from datetime import UTC, datetime

    from aligntool.audit.judge import audit
    from aligntool.cli.audit import known_of, with_mends
    from aligntool.raid.chunks import known_rates
    from aligntool.raid.views import arrays_of
    from aligntool.render.report.disks import Content

    known = known_of(inventory)
    rates = known_rates(known)
    found, mends = with_mends(audit(inventory, known, wishes))
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Content(found, arrays_of(found, (), rates), mends, measured, made, rates)


def _find_picture(content: "Content", name: str) -> "Picture":
    from difflib import get_close_matches

    from aligntool.render.report.disks import pictures_of

    made = {picture.name: picture for picture in pictures_of(content)}
    if name in made:
        return made[name]
    near = get_close_matches(name, made, n=1, cutoff=0.0)
    raise Refused(f"there is no picture {name!r}; there are {', '.join(made)}", hint=f"--chart {near[0]}")


def _page(content: "Content") -> bytes:
    from aligntool.render.report.page import page_html

    return page_html(content).encode()


def _drawn(picture: "Picture", svg: str | None, png: str | None) -> list[tuple[str, bytes]]:
    from aligntool.linux.files import png_of
    from aligntool.render.svg import svg_text

    text = svg_text(picture, alone=True)
    made = [(svg, text.encode())] if svg else []
    return [*made, (png, png_of(text))] if png else made


def _write(pages: list[tuple[str, bytes]], *, overwrite: bool) -> None:
    from aligntool.linux.files import write_pages

    files = [(name, content) for name, content in pages if name != _STDOUT]
    write_pages(files, overwrite=overwrite)
    for name, _ in files:
        _say(f"{name} written")
    sys.stdout.flush()
    for content in (content for name, content in pages if name == _STDOUT):
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _say(words: str) -> None:
    from aligntool.render.lines import harmless

    print(f"aligntool: {harmless(words)}", file=sys.stderr)


# `aligntool snapshot`: this machine as a file, for a bug report or an audit elsewhere.


def snapshot(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to: .tar.xz or .tar.gz.")
    ],
    *,
    serials: Annotated[
        bool, typer.Option("--serials", help="Keep serial numbers, UUIDs and labels.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
) -> None:
    """Capture what an audit reads of this machine, without serial numbers unless asked for.

    Example: sudo aligntool snapshot -o server7.tar.xz

    The file is audited with: aligntool audit --sysroot server7.tar.xz
    """
    from aligntool.linux.files import write_snapshot
    from aligntool.linux.snapshot import collect
    from aligntool.linux.sysfs import Tree

    write_snapshot(output, collect(Tree(""), serials=serials), overwrite=overwrite)
    print(f"{output} written; audit it with: aligntool audit --sysroot {output}")
