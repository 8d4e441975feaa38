"""Show the report of many machines as text, JSON and an HTML page."""

from collections.abc import Iterable, Iterator, Sequence

from aligntool import __version__
from aligntool.audit.fleet import MOST_ROWS, Drive, Fleet, Machine, MachineRow, Model, Row
from aligntool.audit.fleet_changes import Change, ChangedMachine, FleetChanges, State, state_of
from aligntool.audit.report import Code, explanations
from aligntool.commands import command
from aligntool.documents import as_object
from aligntool.render.audit import misaligned_words
from aligntool.render.json import Value, as_value, dumps
from aligntool.render.lines import (
    EMPTY,
    Line,
    Style,
    cell_width,
    columns,
    paragraph,
    plain,
    room_before,
    stacked,
)
from aligntool.render.report import page
from aligntool.render.report.disks import answer_bar
from aligntool.render.svg import Picture, strip
from aligntool.units import counted, format_about

ROWS_SHOWN = 20  # most rows of a list on a terminal
MACHINES = ("machine", "off", "unknown", "errors", "warnings", "extra", "damage, disks off")
DISKS = ("disk", "off", "cost", "written", "extra", "model")
GROUPS = ("model", "drives", "misaligned", "firmware")
_NOT_SHOWN = "–: the snapshot does not show how much was written; ranked before 0B"
_MEANINGS = {
    "off": "off: misaligned partitions",
    "unknown": "unknown: partitions whose alignment is unknown",
    "extra": f"extra: predicted extra work of the drives per day, as bytes written; {_NOT_SHOWN}",
    "damage, disks off": "damage: errors not only about slow requests; disks off: the misaligned ones",
}
COLUMN_MEANINGS = (
    "off: misaligned partitions; cost: predicted factor by which a random 4 KiB write takes longer"
)
EXTRA_MEANINGS = (
    "; written: per day, to these partitions, on average since the machine booted;"
    f" extra: written × (cost − 1); {_NOT_SHOWN}"
)
_LONG_NAME = 22  # shorter names never have a line of their own
_LAST_COLUMN = 16
_NOTHING = ("", "0", "–")  # a column of these is not shown
_LESS_NEEDED = ("warnings", "errors", "extra")  # columns that a narrow terminal lacks, in this order
_COUNTS = (("off", "off_grid"), ("errors", "errors"), ("unknown", "unknown"), ("warnings", "warnings"))
_TONES = {Style.BAD: "error", Style.DOUBT: "warning", Style.GOOD: "good"}


def verdict_of(fleet: Fleet) -> tuple[str, Style]:
    """Return the verdict on all machines in words."""
    audited = fleet.snapshots - fleet.not_audited
    if not audited:
        none = "The snapshot" if fleet.snapshots == 1 else f"None of {fleet.snapshots} snapshots"
        return f"{none} could {'not ' if fleet.snapshots == 1 else ''}be audited", Style.BAD
    if fleet.damages:
        codes = list(fleet.damages.items())
        found = [
            f"{damage_words(code)} on {counted(number, 'machine')}" for code, number in codes[:_MOST_CODES]
        ]
        found += [f"{len(codes) - _MOST_CODES} more codes of errors"] if len(codes) > _MOST_CODES else []
        found += [_misaligned_machines(fleet, audited)] if fleet.misaligned else []
        return "; ".join(found), Style.BAD
    if fleet.misaligned:
        return _misaligned_machines(fleet, audited), Style.BAD
    if fleet.unknown or fleet.not_audited:
        return "No machine is known to have misaligned partitions; not all could be judged", Style.DOUBT
    if fleet.errors:
        return f"No partition is misaligned; {counted(fleet.errors, 'error')} of another kind", Style.BAD
    if not fleet.on_grid:
        return "No partition to judge", Style.PLAIN
    starts = f"every partition of {counted(audited, 'machine')} starts on its boundaries"
    if fleet.warnings:
        words = f"E{starts.removeprefix('e')}; {counted(fleet.warnings, 'warning')} of another kind"
        return words, Style.DOUBT
    return f"OK: {starts}", Style.GOOD


_MOST_CODES = 2  # in the headline


def _misaligned_machines(fleet: Fleet, audited: int) -> str:
    return misaligned_words((fleet.misaligned, counted(audited, "machine")))


def damage_words(code: str, count: int = 1, arrays: Sequence[str] = ()) -> str:
    """Return "AT601 ×2 md0 (data): An array runs with members missing", without the number if it is 1. The
    arrays come first, because the end may be cut off.
    """
    times = f" ×{count}" if count > 1 else ""
    names = f" {', '.join(arrays)}" if arrays else ""
    return f"{code}{times}{names}: {explanations()[Code(code)].title}"


def damages_words(machine: Machine) -> list[str]:
    return [damage_words(each.code, each.count, each.arrays) for each in machine.damages]


def facts_of(fleet: Fleet, *, unknown: bool = True) -> Iterator[str]:
    """Yield the other facts about all machines, a phrase each. `unknown`: also the number of unknown
    starts.
    """
    if fleet.not_audited == fleet.snapshots:
        return
    if fleet.not_audited:
        yield f"{counted(fleet.not_audited, 'snapshot')} could not be audited"
    looks = len(fleet.needing_attention)
    if looks:
        yield f"{counted(looks, 'drive')} {'needs' if looks == 1 else 'need'} new firmware or attention"
    if unknown and fleet.unknown:
        yield f"{counted(fleet.unknown, 'start')} unknown"
    yield f"{counted(fleet.errors, 'error')}, {counted(fleet.warnings, 'warning')}"
    if fleet.dates:
        first, last = (date[:10] for date in fleet.dates)
        undated = f", {fleet.undated} without a date" if fleet.undated else ""
        yield f"captured {f'on {first}' if first == last else f'from {first} to {last}'}{undated}"


def order_of(fleet: Fleet) -> str:
    """Return what the machines are ranked by, after those with other errors: without a known amount written,
    extra work is no basis.
    """
    return "most extra work" if _is_extra_known(fleet) else "most misaligned partitions"


def _is_extra_known(fleet: Fleet) -> bool:
    return any(row.extra_a_day for row in fleet.machines)


def machine_cells(row: MachineRow) -> tuple[str, ...]:
    machine = row.machine
    disks = ", ".join(
        [*damages_words(machine), *(f"{_name_of(drive)} {drive.model}".rstrip() for drive in row.disks)]
    )
    counts = map(str, (machine.off_grid, machine.unknown, machine.errors, machine.warnings))
    return machine.name, *counts, _about(row.extra_a_day) if row.disks else "", disks


def _about(size: int | None) -> str:
    return "–" if size is None else format_about(size)


def _name_of(drive: Drive) -> str:
    """Return the name of a disk, of an md array with its own: "md0 (host:data)"."""
    return f"{drive.name} ({drive.array})" if drive.array else drive.name


def disk_cells(drive: Drive) -> tuple[str, ...]:
    cost = "–" if drive.cost is None else f"{drive.cost:.2f}×"
    return (
        _name_of(drive),
        str(drive.misaligned),
        cost,
        _about(drive.written_a_day),
        _about(drive.extra_a_day),
        drive.model,
    )


def group_cells(model: Model) -> tuple[str, ...]:
    named = [f"{name or 'unknown'} ({one.drives})" for name, one in model.by_number()]
    return model.name, str(model.drives), str(model.misaligned), ", ".join(named)


def look_words(row: Row) -> str:
    drive = row.drive
    return f"{row.machine}, {drive.name}{f' ({drive.model})' if drive.model else ''}: {row.why}"


def refused_words(machine: Machine) -> str:
    why = machine.why or ""
    return f"{machine.snapshot}: {why.removeprefix(machine.snapshot).lstrip(': ')}"


def fleet_lines(fleet: Fleet, changes: FleetChanges | None = None, *, width: int) -> Iterator[Line]:
    """Yield the report as text, with lists cut to ROWS_SHOWN rows."""
    text, style = verdict_of(fleet)
    yield from stacked(((text, style),), width)
    facts = "; ".join(facts_of(fleet))
    if facts:
        yield from paragraph(facts, width, "")
    if changes:
        yield from _changes_lines(changes, width)
    if fleet.with_findings:
        rows = [machine_cells(row) for row in fleet.machines[: fleet.with_findings]]
        title = "Misaligned machines" if fleet.misaligned == fleet.with_findings else "Machines with findings"
        order = f", {order_of(fleet)} first" if fleet.misaligned and not fleet.damages else ""
        order = ", other errors first" if fleet.damages else order
        yield from _table(f"{title}{order}", MACHINES, rows, width)
        yield from _more(fleet.with_findings)
    if fleet.groups:
        yield from _table("Drives by model", GROUPS, [group_cells(each) for each in fleet.groups], width)
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
    if fleet.with_findings:
        yield EMPTY
        yield ((f"→ {_audit_command(fleet.machines[0].machine)}", Style.TYPE),)


def _audit_command(machine: Machine) -> str:
    return command("audit --sysroot", machine.snapshot)


def _changes_lines(changes: FleetChanges, width: int) -> Iterator[Line]:
    yield EMPTY
    yield from paragraph(f"Since {changes.since}", width, style=Style.TITLE)
    yield from paragraph(f"  {changes_words(changes)}", width)
    for each in changes.machines[:ROWS_SHOWN]:
        yield from paragraph(f"  {each.change:<7}  {each.machine}: {change_words(each)}", width)
    yield from _more(len(changes.machines))


def changes_words(changes: FleetChanges) -> str:
    """Return "3 worse, 0 unclear, 1 new, 0 better, 0 gone, 330 unchanged"."""
    counts = [f"{changes.count(change)} {change}" for change in Change]
    return ", ".join([*counts, f"{changes.unchanged} unchanged"])


def change_words(each: ChangedMachine) -> str:
    """Return "off 0 → 2, errors 1 → 3; new: AT601: ...", or the state of a machine that is new or gone."""
    if each.before is None or each.after is None:
        return state_words(each.after or each.before)
    if each.before.not_audited or each.after.not_audited:
        return f"{state_words(each.before)} → {state_words(each.after)}"
    pairs = ((word, getattr(each.before, name), getattr(each.after, name)) for word, name in _COUNTS)
    words = ", ".join(f"{word} {old} → {new}" for word, old, new in pairs if old != new)
    errors = ", ".join(damage_words(error.code, error.count) for error in each.errors)
    return "; ".join([*([words] if words else []), *([f"new: {errors}"] if errors else [])])


def state_words(state: State | None) -> str:
    if state is None or state.not_audited:
        return "not audited"
    found = [f"{word} {getattr(state, name)}" for word, name in _COUNTS if getattr(state, name)]
    return ", ".join(found) or "no findings"


def _title(text: str) -> Iterator[Line]:
    yield EMPTY
    yield ((text, Style.TITLE),)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Line]:
    """Yield a table whose first and last columns are words. A name that does not fit has a line of its own:
    cut names may look the same.
    """
    yield from _title(title)
    every = [heads, *rows[:ROWS_SHOWN]]
    longest = max(cell_width(cells[0]) for cells in every)
    kept = [at for at in range(len(heads)) if any(cells[at] not in _NOTHING for cells in every[1:])]
    table = [[cells[at] for at in kept] for cells in every]
    for head in _LESS_NEEDED:
        if head in table[0] and room_before(table, width - 2, _LAST_COLUMN) < min(longest, _LONG_NAME):
            kept.remove(heads.index(head))
            table = [[cells[at] for at in kept] for cells in every]
    room = max(room_before(table, width - 2, _LAST_COLUMN), _LONG_NAME)
    is_own = [cell_width(cells[0]) > room for cells in table]
    table = [["", *cells[1:]] if own else cells for cells, own in zip(table, is_own, strict=True)]
    words = {at for at, place in enumerate(kept) if place in (0, len(heads) - 1)}
    head, *lines = columns(table, left=words, wide=width - 2)
    yield ((f"  {head}".rstrip(), Style.DIM),)
    for cells, own, line in zip(every[1:], is_own[1:], lines, strict=True):
        if own:
            yield from paragraph(f"  {cells[0]}", width)
        yield plain(f"  {line}".rstrip())
    meanings = [_MEANINGS[heads[at]] for at in kept if heads[at] in _MEANINGS]
    if meanings:
        yield from paragraph("; ".join(meanings), width, "", Style.DIM)


def _more(number: int) -> Iterator[Line]:
    if number > ROWS_SHOWN:
        yield ((f"  … and {number - ROWS_SHOWN} more; --json lists every machine", Style.DIM),)


# The page: a square and a row for each machine.

_FILTERS = (
    ("all", "all"),
    ("error", "misaligned or with errors"),
    ("warning", "no error, but unknown or with warnings"),
    ("good", "without findings"),
    ("unknown", "not audited"),
)


def tone_of(state: State) -> str:
    """Return the tone of a machine: "error", "warning", "unknown" or "good"."""
    if state.not_audited:
        return "unknown"
    if state.off_grid or state.errors:
        return "error"
    return "warning" if state.unknown or state.warnings else "good"


def _mark(state: State) -> str:
    """Return the text of a square: the number of misaligned partitions, or a sign."""
    if state.not_audited:
        return "×"
    return str(state.off_grid) if state.off_grid else "!" if tone_of(state) != "good" else "·"


MOST_OPEN = 12
"""Most machines that are seen at once."""
MOST_NAMED = 60
"""Most squares that show the names of their machines; more would need a screen of their own."""


def _squares(fleet: Fleet) -> Iterator[dict[str, object]]:
    """Yield a square for each machine. `row`: the number of its row, or 0."""
    rows = {row.machine.snapshot: number for number, row in enumerate(fleet.machines, 1)}
    for machine in fleet.squares:
        state = state_of(machine)
        yield {
            "name": machine.name,
            "tone": tone_of(state),
            "damage": bool(machine.damages),
            "mark": "!" if machine.damages else _mark(state),
            "words": state_words(state),
            "row": rows.get(machine.snapshot, 0),
        }


def _verdict_words(machine: Machine) -> str:
    return "; ".join([*damages_words(machine), _starts_words(machine)])


def _starts_words(machine: Machine) -> str:
    total = machine.on_grid + machine.off_grid + machine.unknown
    if machine.off_grid:
        return f"{machine.off_grid} of {total} misaligned"
    if machine.unknown:
        return f"{machine.unknown} of {total} unknown"
    return f"{total} aligned" if total else "nothing to judge"


def _extra_words(row: MachineRow) -> str:
    return "extra work unknown" if row.extra_a_day is None else f"{format_about(row.extra_a_day)} extra a day"


def _shown(cells: Sequence[str], *, with_extra: bool) -> list[str]:
    """Return the columns of a machine's disks; if it is unknown everywhere how much was written, without
    these.
    """
    columns = zip(DISKS, cells, strict=True)
    return [cell for head, cell in columns if with_extra or head not in ("written", "extra")]


def _row_of(row: MachineRow, *, with_extra: bool) -> dict[str, object]:
    """Return a machine as the page shows it."""
    machine = row.machine
    facts = [_extra_words(row)] if with_extra and row.disks else []  # first, because it ranks the machines
    facts += [
        f"{machine.disks} disks and stacked devices" if machine.disks > 1 else counted(machine.disks, "disk")
    ]
    facts += [counted(machine.errors, "error")] if machine.errors else []
    facts += [counted(machine.warnings, "warning")] if machine.warnings else []
    return {
        "name": machine.name,
        "tone": tone_of(state_of(machine)),
        "verdict": _verdict_words(machine),
        "facts": " · ".join(facts),
        "date": (machine.date or "")[:10],
        "bar": _machine_bar(machine),
        "damages": damages_words(machine),
        "disks": [_shown(disk_cells(drive), with_extra=with_extra) for drive in row.disks],
        "command": _audit_command(machine),
    }


def _machine_bar(machine: Machine) -> Picture:
    """Return the starts of a machine as a bar; other errors are shown as starts that are off."""
    off = machine.off_grid + sum(each.count for each in machine.damages)
    return answer_bar([machine.on_grid, off, machine.unknown])


def _model_bar(model: Model, most: int) -> Picture:
    """Return the drives of a model as a bar, the misaligned ones first. `most`: the drives of the longest
    bar.
    """
    return strip([(model.misaligned / most, "bad"), ((model.drives - model.misaligned) / most, "good")], 16)


def page_html(fleet: Fleet, date: str, changes: FleetChanges | None = None) -> str:
    """Return the report as a page in the style of the report for one machine."""
    verdict, style = verdict_of(fleet)
    counts = [fleet.on_grid, fleet.off_grid, fleet.unknown]
    most = max((model.drives for model in fleet.groups), default=1)
    squares = list(_squares(fleet))
    with_extra = _is_extra_known(fleet)
    first = fleet.machines[0].machine if fleet.misaligned or fleet.damages else None
    tones = [square["tone"] for square in squares]
    return page.render_page(
        "fleet.html",
        ("page.css", "picture.css", "fleet.css"),
        ("copy.js", "find.js"),
        fleet=fleet,
        made=date,
        verdict=verdict,
        tone=_TONES.get(style, "info"),
        facts=list(facts_of(fleet, unknown=False)),
        bar=answer_bar(counts),
        legend=page.legend_of(counts),
        starts=counted(sum(counts), "start"),
        squares=squares,
        named=len(squares) <= MOST_NAMED,
        rows=[_row_of(row, with_extra=with_extra) for row in fleet.machines],
        most_open=MOST_OPEN,
        first=_audit_command(first) if first else "",
        asked=first.name if first else "",
        why=", ".join(damages_words(first)) if first else "",
        order=order_of(fleet),
        filters=[(id_, words, len(tones) if id_ == "all" else tones.count(id_)) for id_, words in _FILTERS],
        disk_heads=_shown(DISKS, with_extra=with_extra),
        meaning=COLUMN_MEANINGS + (EXTRA_MEANINGS if with_extra else ""),
        groups=[(*group_cells(each), _model_bar(each, most)) for each in fleet.groups[:MOST_ROWS]],
        more_groups=max(len(fleet.groups) - MOST_ROWS, 0),
        looks=[look_words(row) for row in fleet.needing_attention],
        refused=[refused_words(each) for each in fleet.refused],
        changes=changes,
        changed=[(each, change_words(each)) for each in changes.machines[:MOST_ROWS]] if changes else [],
        changes_words=changes_words(changes) if changes else "",
    )


def changes_json(changes: FleetChanges, date: str) -> str:
    """Return what changed since an older report."""
    counts: dict[str, Value] = {change.value: changes.count(change) for change in Change}
    document: Value = {
        "schema": "aligntool.fleet.since",
        "version": 1,
        "aligntool": __version__,
        "date": date,
        "since": changes.since,
        "summary": {**counts, "unchanged": changes.unchanged},
        "machines": [as_value(as_object(each)) for each in changes.machines],
    }
    return dumps(document) + "\n"


# The document in pieces: each machine was written as soon as it was audited.


def machine_json(machine: Machine) -> str:
    """Return one machine in one line."""
    return dumps(as_value(as_object(machine)))


def fleet_json(fleet: Fleet, machines: Iterable[str], date: str) -> Iterator[str]:
    """Yield the document. `machines`: the results of `machine_json`, in the order of the arguments."""
    summary: Value = {
        "snapshots": fleet.snapshots,
        "not_audited": fleet.not_audited,
        "misaligned": fleet.misaligned,
        "disks": fleet.disks,
        "misaligned_disks": fleet.misaligned_disks,
        "on_grid": fleet.on_grid,
        "off_grid": fleet.off_grid,
        "unknown": fleet.unknown,
        "errors": fleet.errors,
        "warnings": fleet.warnings,
    }
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
    return {
        "model": model.name,
        "drives": model.drives,
        "misaligned": model.misaligned,
        "firmwares": firmwares,
    }
