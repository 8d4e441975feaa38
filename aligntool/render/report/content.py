"""What a report is made of, and the names of its pictures.

In: the answers of those who think. Out: one value for the page, and the pictures, which `--chart` takes by the same
names. Alone because the page and a single picture must come from the same places.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from aligntool.audit import Answer, Judged, Report, Verdict
from aligntool.inventory import Disk
from aligntool.raid.arrays import ArrayView
from aligntool.raid.ceilings import Rates
from aligntool.render.map import check_drawn
from aligntool.render.mending import Mends
from aligntool.render.report.measured import Measured
from aligntool.render.report.topology import ceiling_chart
from aligntool.render.svg import Picture
from aligntool.render.svg_bars import bar_picture, ratio_picture
from aligntool.render.svg_charts import BarChart, Chart, CurveChart, RatioChart
from aligntool.render.svg_curves import curve_picture
from aligntool.render.svg_map import disk_picture
from aligntool.render.svg_queue import queue_picture
from aligntool.render.svg_start import start_picture
from aligntool.render.table import geometry_words, table_words
from aligntool.units import format_about

MOST_STARTS = 2
"""So many starts of a disk are drawn; the table has all of them."""


@dataclass(frozen=True, slots=True)
class Content:
    """`made`: when, as it is to be read. `measured`: benchmarks as charts and words. `rates`: what drives do alone,
    where it is known.
    """

    report: Report
    arrays: tuple[ArrayView, ...] = ()
    mends: Mends = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    made: str = ""
    rates: Rates = field(default_factory=dict)


def chart_picture(chart: Chart, about: tuple[str, ...] = ()) -> Picture:
    """`about`: what a picture of its own says below its title."""
    return replace(_drawn(chart), about=about)


def _drawn(chart: Chart) -> Picture:
    match chart:
        case BarChart():
            return bar_picture(chart)
        case RatioChart():
            return ratio_picture(chart)
        case CurveChart():
            return curve_picture(chart)


def pictures_of(content: Content) -> Iterator[Picture]:
    """All of them, in the order of the page."""
    names = disk_names(content.report)
    for judged in content.report.judged:
        if picture := disk_picture(judged, f"map-{names[judged.disk.name]}"):
            yield replace(picture, about=(facts_line(judged.disk), geometry_words(judged)))
        for picture in start_pictures(judged, names[judged.disk.name]):
            yield replace(picture, about=(facts_line(judged.disk), picture.alternative))
    for number, array in enumerate(content.arrays, 1):
        if chart := ceiling_chart(array, content.report, number, content.rates):
            members = ", ".join(member.name for member in array.members)
            yield chart_picture(chart, (f"{array.name}, {array.level} of {members}", chart.note))
    for measured in content.measured:
        yield from (chart_picture(chart, measured.about) for chart in measured.charts)
    yield queue_picture()


def disk_names(report: Report) -> dict[str, str]:
    """A disk's name as a part of a picture's: letters, digits and hyphens, and no two alike."""
    made: dict[str, str] = {}
    for number, judged in enumerate(report.judged, 1):
        word = re.sub(r"[^a-z0-9]+", "-", judged.disk.name.rsplit("/", 1)[-1].lower()[:40]).strip("-")
        made[judged.disk.name] = word if word and word not in made.values() else f"{word or 'disk'}-{number}"
    return made


def facts_line(disk: Disk) -> str:
    """ "Samsung SSD 980 · 1TB · nvme · GPT"."""
    words = [word for word in (disk.vendor, disk.model) if word]
    if disk.vendor and disk.model and disk.model.startswith(disk.vendor):
        words = [disk.model]
    size = "size unknown" if disk.size is None else format_about(disk.size)
    return " · ".join(word for word in (" ".join(words), size, disk.kind.value, table_words(disk)) if word)


def start_pictures(judged: Judged, name: str) -> Iterator[Picture]:
    """Of the first partitions that are off."""
    for verdict in _off(judged)[:MOST_STARTS]:
        number = "whole" if verdict.partition is None else verdict.partition
        check = check_drawn(verdict)
        if check is not None:
            yield start_picture(judged, verdict, check, f"start-{name}-{number}")


def _off(judged: Judged) -> list[Verdict]:
    return [verdict for verdict in judged.verdicts if verdict.answer is Answer.OFF and verdict.matters]
