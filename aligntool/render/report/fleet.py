"""The HTML report of many machines, in the style of that of one."""

from aligntool.audit.fleet import Fleet
from aligntool.render import fleet as words
from aligntool.render.report.disks import when_words
from aligntool.render.report.page import styled


def page_html(fleet: Fleet, date: str) -> str:
    tiles = (
        ("machines", fleet.snapshots - fleet.not_audited), ("misaligned", fleet.misaligned), ("disks", fleet.disks),
        ("off the grid", fleet.off_grid), ("on the grid", fleet.on_grid), ("unknown", fleet.unknown),
        ("not audited", fleet.not_audited),
    )  # fmt: skip
    return styled(
        "fleet.html", fleet=fleet, made=when_words(date), tiles=tiles,
        verdict=words.verdict_of(fleet)[0], facts=list(words.facts_of(fleet)),
        ranking=[words.disk_cells(row) for row in fleet.ranking], disk_heads=words.DISKS, meaning=words.MEANING,
        groups=[words.group_cells(each) for each in fleet.groups], group_heads=words.GROUPS,
        looks=[words.look_words(row) for row in fleet.looks],
        refused=[words.refused_words(each) for each in fleet.refused],
    )  # fmt: skip
