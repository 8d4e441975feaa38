"""Build the HTML report for many machines, in the style of the report for one."""

from aligntool.audit.fleet import Fleet
from aligntool.render import fleet as words
from aligntool.render.lines import Style
from aligntool.render.report.disks import when_words
from aligntool.render.report.page import render_page

_TONES = {Style.BAD: "error", Style.DOUBT: "warning", Style.GOOD: "good"}


def page_html(fleet: Fleet, date: str) -> str:
    verdict, style = words.verdict_of(fleet)
    tiles = (
        (fleet.snapshots - fleet.not_audited, "machines", "", ""),
        (fleet.misaligned, "misaligned", "ranking", "error"), (fleet.disks, "disks", "", ""),
        (fleet.on_grid, "on the grid", "", "good"), (fleet.off_grid, "off the grid", "ranking", "error"),
        (fleet.unknown, "unknown", "", "warning"), (len(fleet.needing_attention), "need attention", "look", "warning"),
        (fleet.not_audited, "not audited", "refused", "warning"),
    )  # fmt: skip
    return render_page(
        "fleet.html", fleet=fleet, made=when_words(date), tiles=tiles, verdict=verdict,
        tone=_TONES.get(style, "info"), facts=list(words.facts_of(fleet)),
        ranking=[words.disk_cells(row) for row in fleet.ranking], disk_heads=words.DISKS, meaning=words.COLUMN_MEANINGS,
        groups=[words.group_cells(each) for each in fleet.groups], group_heads=words.GROUPS,
        looks=[words.look_words(row) for row in fleet.needing_attention],
        refused=[words.refused_words(each) for each in fleet.refused],
    )  # fmt: skip
