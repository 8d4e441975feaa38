"""Content -> the page.

In: what was found. Out: HTML with its style sheets inside and nothing outside. Alone because here is the one door to
the template: whatever goes through is made harmless first and escaped by the template, so that no name on a disk is
ever markup; and the page forbids itself scripts and the network, should that fail.
"""

from base64 import b64encode
from hashlib import sha256

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aligntool import __version__
from aligntool.audit import Answer, Severity, unjudged
from aligntool.raid import ceiling_words
from aligntool.raid.ceilings import rate
from aligntool.render.lines import harmless
from aligntool.render.report.content import Content, chart_picture
from aligntool.render.report.disks import disk_views
from aligntool.render.report.findings import commands_of, groups_of
from aligntool.render.report.topology import ceiling_chart, tree_of
from aligntool.render.svg import Picture, style_sheet, svg_text
from aligntool.render.svg_charts import Chart, table_of
from aligntool.render.svg_queue import queue_picture
from aligntool.units import format_about, format_size

LONGEST = 1200
"""Characters of one text on the page; a name on a disk may be longer than a book."""


def page_html(content: Content) -> str:
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
            disks=disk_views(report, content.mends),
            groups=groups_of(report, [loss for one in content.measured for loss in one.losses]),
            uplinks=report.inventory.uplinks,
            unseen=unjudged(report),
            arrays=[
                (array, ceiling_words(array.ceiling), ceiling_chart(array, report, number, content.rates))
                for number, array in enumerate(content.arrays, 1)
            ],
            tree=tree_of(report, content.arrays),
            measured=content.measured,
            commands=commands_of(report, content.mends),
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
    return _svg(chart_picture(chart))


def _policy(styles: str) -> str:
    """No script, no network, no style but this one, known by its digest (Content Security Policy Level 3)."""
    digest = b64encode(sha256(styles.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
