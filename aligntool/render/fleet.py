"""Show the report of many machines as text, JSON and an HTML page."""

from collections.abc import Iterable, Iterator, Sequence

from aligntool import __version__
from aligntool.audit.fleet import Fleet, Machine, Model, Row
from aligntool.audit.wording import shell_word
from aligntool.documents import as_object
from aligntool.render.audit import misaligned_words
from aligntool.render.json import Value, as_value, dumps
from aligntool.render.lines import EMPTY, Line, Style, columns, fit, paragraph, plain, stacked
from aligntool.render.report import page
from aligntool.units import counted, format_about

ROWS_SHOWN = 20  # most rows of a list on a terminal
DISKS = ("machine", "disk", "off", "cost", "written", "extra", "model")
GROUPS = ("model", "drives", "misaligned", "firmware")
COLUMN_MEANINGS = (
    "off: misaligned partitions; cost: predicted factor by which a random 4 KiB write takes longer; written: per day, "
    "to these partitions, on average since the machine booted; extra: written × (cost − 1)"
)
_TONES = {Style.BAD: "error", Style.DOUBT: "warning", Style.GOOD: "good"}


def verdict_of(fleet: Fleet) -> tuple[str, Style]:
    """Return the verdict on all machines in words."""
    audited = fleet.snapshots - fleet.not_audited
    if not audited:
        return f"None of {counted(fleet.snapshots, 'snapshot')} could be audited", Style.BAD
    if fleet.misaligned:
        return misaligned_words((fleet.misaligned, counted(audited, "machine"))), Style.BAD
    if fleet.unknown or fleet.not_audited:
        return "No machine is known to have misaligned partitions; not all could be judged", Style.DOUBT
    if fleet.errors:
        return f"No partition is misaligned; {counted(fleet.errors, 'error')} of another kind", Style.BAD
    if not fleet.on_grid:
        return "No partition to judge", Style.PLAIN
    return f"OK: every partition of {counted(audited, 'machine')} starts on its boundaries", Style.GOOD


def facts_of(fleet: Fleet) -> Iterator[str]:
    """Yield the other facts about all machines, a phrase each."""
    if fleet.not_audited:
        yield f"{counted(fleet.not_audited, 'snapshot')} could not be audited"
    if looks := len(fleet.needing_attention):
        yield f"{counted(looks, 'drive')} {'needs' if looks == 1 else 'need'} new firmware or attention"
    if fleet.unknown:
        yield f"{fleet.unknown} unknown"
    yield f"{counted(fleet.errors, 'error')}, {counted(fleet.warnings, 'warning')}"
    if fleet.dates:
        first, last = (date[:10] for date in fleet.dates)
        yield f"captured on {first}" if first == last else f"captured from {first} to {last}"


def disk_cells(row: Row) -> tuple[str, ...]:
    drive = row.drive
    cost = "–" if drive.cost is None else f"{drive.cost:.2f}×"
    written, extra = ("–" if size is None else format_about(size) for size in (drive.written_a_day, drive.extra_a_day))
    return row.machine, drive.name, str(drive.misaligned), cost, written, extra, drive.model


def group_cells(model: Model) -> tuple[str, ...]:
    named = [f"{name or 'unknown'} ({one.drives})" for name, one in model.by_number()]
    return model.name, str(model.drives), str(model.misaligned), ", ".join(named)


def look_words(row: Row) -> str:
    drive = row.drive
    return f"{row.machine}, {drive.name}{f' ({drive.model})' if drive.model else ''}: {row.why}"


def refused_words(machine: Machine) -> str:
    return f"{machine.snapshot}: {(machine.why or '').removeprefix(f'{machine.snapshot} ')}"


def fleet_lines(fleet: Fleet, *, width: int) -> Iterator[Line]:
    """Yield the report as text, with lists cut to ROWS_SHOWN rows."""
    text, style = verdict_of(fleet)
    yield from stacked(((text, style),), width)
    yield from paragraph("; ".join(facts_of(fleet)), width, "")
    if fleet.ranking:
        rows = [disk_cells(row) for row in fleet.ranking]
        yield from _table("Misaligned disks, most extra work first", DISKS, rows, (0, 1, 6), width)
        yield from _more(fleet.misaligned_disks)
        yield from paragraph(COLUMN_MEANINGS, width, "", Style.DIM)
    if fleet.groups:
        yield from _table("Drives by model", GROUPS, [group_cells(each) for each in fleet.groups], (0, 3), width)
        yield from _more(len(fleet.groups))
    for title, texts, number in (
        (
            "Drives that need new firmware or attention",
            [look_words(row) for row in fleet.needing_attention],
            len(fleet.needing_attention),
        ),
        ("Not audited", [refused_words(each) for each in fleet.refused], fleet.not_audited),
    ):
        if texts:
            yield from _title(title)
        for each in texts[:ROWS_SHOWN]:
            yield from paragraph(f"  {each}", width)
        yield from _more(number)
    first = next(iter(fleet.ranking), None)
    if first:
        yield EMPTY
        yield ((f"→ aligntool audit --sysroot {shell_word(first.snapshot)}", Style.TYPE),)


def _title(text: str) -> Iterator[Line]:
    yield EMPTY
    yield ((text, Style.TITLE),)


def _table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], width: int
) -> Iterator[Line]:
    yield from _title(title)
    names = [(fit(cells[0], 22).rstrip(), *cells[1:]) for cells in rows[:ROWS_SHOWN]]
    head, *lines = columns([heads, *names], left=left, wide=width - 2)
    yield ((f"  {head}".rstrip(), Style.DIM),)
    yield from (plain(f"  {line}") for line in lines)


def _more(number: int) -> Iterator[Line]:
    if number > ROWS_SHOWN:
        yield ((f"  … and {number - ROWS_SHOWN} more; --json lists every machine", Style.DIM),)


def page_html(fleet: Fleet, date: str) -> str:
    """Return the report as a page in the style of the report for one machine."""
    verdict, style = verdict_of(fleet)
    tiles = (
        (fleet.snapshots - fleet.not_audited, "machines", "", ""),
        (fleet.misaligned, "misaligned", "ranking", "error"), (fleet.disks, "disks", "", ""),
        (fleet.on_grid, "on the grid", "", "good"), (fleet.off_grid, "off the grid", "ranking", "error"),
        (fleet.unknown, "unknown", "", "warning"), (len(fleet.needing_attention), "need attention", "look", "warning"),
        (fleet.not_audited, "not audited", "refused", "warning"),
    )  # fmt: skip
    return page.render_page(
        "fleet.html", fleet=fleet, made=date, tiles=tiles, verdict=verdict, tone=_TONES.get(style, "info"),
        facts=list(facts_of(fleet)), ranking=[disk_cells(row) for row in fleet.ranking], disk_heads=DISKS,
        meaning=COLUMN_MEANINGS, groups=[group_cells(each) for each in fleet.groups], group_heads=GROUPS,
        looks=[look_words(row) for row in fleet.needing_attention],
        refused=[refused_words(each) for each in fleet.refused],
    )  # fmt: skip


# The document in pieces: each machine was written as soon as it was audited.


def machine_json(machine: Machine) -> str:
    """Return one machine in one line."""
    return dumps(as_value(as_object(machine)))


def fleet_json(fleet: Fleet, machines: Iterable[str], date: str) -> Iterator[str]:
    """Yield the document. `machines`: the results of `machine_json`, in the order of the arguments."""
    summary: Value = {
        "snapshots": fleet.snapshots, "not_audited": fleet.not_audited, "misaligned": fleet.misaligned,
        "disks": fleet.disks, "misaligned_disks": fleet.misaligned_disks, "on_grid": fleet.on_grid,
        "off_grid": fleet.off_grid, "unknown": fleet.unknown, "errors": fleet.errors, "warnings": fleet.warnings,
    }  # fmt: skip
    head: Value = {"schema": "aligntool.fleet", "version": 1, "aligntool": __version__, "date": date}
    yield dumps(head)[:-1] + f',\n"summary": {dumps(summary)}'
    yield from _list("ranking", (dumps(as_value(_row(row))) for row in fleet.ranking))
    yield from _list("models", (dumps(as_value(_model(each))) for each in fleet.groups))
    yield from _list("look", (dumps(as_value(_row(row))) for row in fleet.needing_attention))
    yield from _list("machines", machines)
    yield "}\n"


def _list(name: str, items: Iterable[str]) -> Iterator[str]:
    yield f',\n"{name}": ['
    for place, item in enumerate(items):
        yield ("," if place else "") + "\n" + item
    yield "\n]"


def _row(row: Row) -> dict[str, object]:
    return {"machine": row.machine, "snapshot": row.snapshot, **as_object(row.drive), "why": row.why}


def _model(model: Model) -> dict[str, object]:
    firmwares = [{"firmware": name or None, "drives": one.drives} for name, one in model.by_number()]
    return {"model": model.name, "drives": model.drives, "misaligned": model.misaligned, "firmwares": firmwares}
