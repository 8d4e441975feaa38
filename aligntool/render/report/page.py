"""The HTML report put together."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aligntool import __version__
from aligntool.audit.drives import unjudged
from aligntool.audit.report import Answer, Severity
from aligntool.measure.results import Conditions
from aligntool.raid.chunks import ceiling_words, rate
from aligntool.render.bench import drive_facts
from aligntool.render.lines import harmless
from aligntool.render.report import disks
from aligntool.render.svg import Chart, Picture, queue_picture, style_sheet, svg_text, table_of
from aligntool.units import format_about, format_size

# Under which conditions something was measured, as words for the page.


def condition_rows(seen: Conditions) -> Iterator[tuple[str, str]]:
    """What is not known is left out."""
    for drive in seen.drives:
        yield drive.name, ", ".join(drive_facts(drive)) or "nothing known"
    yield from ((word, text) for word, text in _machine(seen) if text)


def _machine(seen: Conditions) -> Iterator[tuple[str, str]]:
    yield "kernel", seen.kernel
    yield "processor", f"{seen.processor or ''} {f'({seen.cores} cores)' if seen.cores else ''}".strip()
    yield "governor", seen.governor or ""
    room = f", {format_about(seen.free)} free" if seen.free is not None else ""
    yield "file system", f"{seen.filesystem}{room}" if seen.filesystem else ""
    if seen.kernel:  # of an older file nothing is known
        yield "caches", "dropped" if seen.caches_dropped else "not dropped"
    yield "fio", seen.fio


# Content -> the page. All text is made harmless first and escaped by the template, so that no name on a disk is ever
# markup; the page forbids scripts and the network.

LONGEST = 1200
"""Characters of one text on the page; a name on a disk may be longer than a book."""


def page_html(content: disks.Content) -> str:
    styles = style_sheet("page.css") + style_sheet("picture.css")
    report = content.report
    return (
        _environment()
        .get_template("page.html")
        .render(
            version=__version__,
            made=content.made,
            styles=Markup(styles),  # ours
            policy=_policy(styles),
            counts={answer.name.lower(): report.count_answers(answer) for answer in Answer},
            severities={severity.value: report.count(severity) for severity in Severity},
            disk_count=len(report.judged),
            disks=disks.disk_views(report, content.mends),
            groups=disks.groups_of(report, [loss for one in content.measured for loss in one.losses]),
            uplinks=report.inventory.uplinks,
            unseen=unjudged(report),
            arrays=[
                (array, ceiling_words(array.ceiling), disks.ceiling_chart(array, report, number, content.rates))
                for number, array in enumerate(content.arrays, 1)
            ],
            tree=disks.tree_of(report, content.arrays),
            measured=content.measured,
            commands=disks.commands_of(report, content.mends),
            queue=queue_picture(),
        )
    )


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("aligntool.render.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "svg": _svg,
        "chart": _chart,
        "rows": table_of,
        "size": format_size,
        "about": format_about,
        "rate": rate,
    }
    return made


def _shown(value: object) -> object:
    """Every value on its way into the page. Markup is ours; all else may have been on a disk."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return harmless(value if len(value) <= LONGEST else value[:LONGEST] + "…")


def _svg(picture: Picture) -> Markup:
    return Markup(svg_text(picture, alone=False))  # written by an XML writer, which escapes


def _chart(chart: Chart) -> Markup:
    return _svg(disks.chart_picture(chart))


def _policy(styles: str) -> str:
    """No script, no network, no style but this one, known by its digest (Content Security Policy Level 3)."""
    digest = b64encode(sha256(styles.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
