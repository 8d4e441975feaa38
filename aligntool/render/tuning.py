"""Show a sweep over chunk sizes, or over settings of an array, as text: its plan and its result."""

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from aligntool.audit.wording import shell_word
from aligntool.change import RaidGoal
from aligntool.raid.commands import tuning_command
from aligntool.raid.measured import Choice, Tuning, Verdict
from aligntool.raid.settings import CACHE, SettingsTuning, cache_memory, choices
from aligntool.render.lines import EMPTY, Line, Style, cell_width, columns, paragraph, plain
from aligntool.render.plan import shell_line
from aligntool.units import counted, format_rate, format_size, significant, time_words

if TYPE_CHECKING:  # loading it takes a quarter of the time of `plan realign`
    from aligntool.measure.arrays import Sweep
    from aligntool.measure.settings import SettingsSweep


def _sweep_words(sweep: "Sweep") -> str:
    """Return "chunk sizes 64KiB, 128KiB, 512KiB; 5 rounds"."""
    rounds = counted(len(sweep.order) // len(sweep.chunks), "round")
    chunks = ", ".join(map(format_size, sweep.chunks))
    return f"{'chunk size' if len(sweep.chunks) == 1 else 'chunk sizes'} {chunks}; {rounds}"


def sweep_lines(sweep: "Sweep", *, width: int) -> Iterator[Line]:
    """Yield the plan of a sweep: chunks, duration, members, loads, and the bytes that it writes."""
    yield ((f"A sweep over chunk sizes of a {sweep.level} for {sweep.workload} use", Style.TITLE),)
    sentences = [
        f"{_sweep_words(sweep)}; about {time_words(round(sweep.seconds))}",
        f"members {', '.join(sweep.members)}; each is measured alone first",
        f"in {format_size(sweep.span)} of each array, {len(sweep.loads)} loads of {sweep.runtime_s:g} s: "
        + "; ".join(load.name for load in sweep.loads),
        f"bitmap {sweep.bitmap}" + (f", layout {sweep.layout}" if sweep.layout else ""),
    ]
    for sentence in sentences:
        yield from paragraph(f"  - {sentence}", width)
    yield EMPTY
    yield (("Written, and removed again afterwards", Style.TITLE),)
    for extent in sweep.written:
        yield plain(
            f"  - bytes {extent.start} to {extent.end} of each member, and md's superblock before them"
        )
    for chunk in sweep.chunks:
        yield from paragraph(f"    $ {shell_line(tuning_command(sweep.arrays[chunk]))}", width, "      ")
    words = "each array is then stopped, and its superblocks and what was written are erased"
    yield from paragraph(f"    {words}", width)


def tuning_lines(tuning: Tuning, choice: Choice[int], recommended: int, *, width: int) -> Iterator[Line]:
    """Yield a table of medians with their ranges, and the conclusion."""
    yield EMPTY
    for member in tuning.members:
        if member.read and member.write:
            yield plain(
                f"{member.name} alone: {format_rate(member.read)} reading, {format_rate(member.write)}"
                " writing"
            )
    loads = list(dict.fromkeys(sample.load for sample in tuning.samples))
    yield from (plain(f"load {number}: {name}") for number, name in enumerate(loads, start=1))
    yield EMPTY
    rows = [["chunk", *(f"load {number}, MB/s" for number in range(1, len(loads) + 1)), "all, ratio", ""]]
    for chunk in sorted({sample.chunk for sample in tuning.samples}):
        cells = [_spread(tuning, chunk, load) for load in loads]
        ratio = str(choice.against.get(chunk, "–"))
        rows.append([format_size(chunk), *cells, ratio, _chunk_note(chunk, choice, recommended)])
    yield from _fitted_tables(rows, width)
    yield EMPTY
    style = Style.DOUBT if choice.verdict is Verdict.UNKNOWN else Style.TITLE
    chosen = "No verdict" if choice.value is None else format_size(choice.value)
    yield from paragraph(f"{chosen}: {choice.reason}.", width, "", style)


def plan_command(sweep: "Sweep", goal: RaidGoal, kept: str) -> str:
    """Return the command that plans an array to which the result applies, with the options and members of the
    sweep.

    `goal`: the request of the user. `kept`: the file of the result.
    """
    options = [("--level", goal.level.removeprefix("raid")), ("--workload", goal.workload)]
    options += [("--layout", goal.layout)] if goal.layout else []
    options += [("--bitmap", goal.bitmap)] if goal.bitmap else []
    options += [("--database-page", format_size(goal.database_page))] if goal.workload == "database" else []
    words = [word for option in (*options, ("--tuned", kept)) for word in option]
    return " ".join(("sudo aligntool raid plan", *map(shell_word, (*words, *sweep.members))))


def settings_sweep_lines(sweep: "SettingsSweep", *, width: int) -> Iterator[Line]:
    """Yield the plan of a sweep over settings: values, memory, duration, loads, and what is written."""
    title = f"A sweep over settings of {sweep.path}, a {sweep.level}, for {sweep.workload} use"
    yield ((title, Style.TITLE),)
    for name, values in sweep.tried.items():
        others = ", ".join(value for value in values if value != sweep.now[name])
        sentence = f"{name}: {sweep.now[name]} now; also {others}"
        if name == CACHE:
            most = cache_memory(max(map(int, values)), len(sweep.members), sweep.page)
            sentence += f" (pages of each member: up to {format_size(most)} of memory)"
        yield from paragraph(f"  - {sentence}", width)
    loads = {load.name: None for name in sweep.tried for load in sweep.loads[name]}
    where = f"a new file in {sweep.folder}" if sweep.folder else "the array"
    for sentence in (
        f"{counted(sweep.repeats, 'round')}; about {time_words(round(sweep.seconds))}",
        f"in {format_size(sweep.span)} of {where}, loads of {sweep.runtime_s:g} s: {'; '.join(loads)}",
        "the file is removed afterwards" if sweep.folder else "nothing is written to the array",
        "one setting at a time is changed, and all are restored afterwards",
    ):
        yield from paragraph(f"  - {sentence}", width)
    if sweep.bitmap:
        yield from paragraph(
            f"  - not tried: the bitmap (now {sweep.bitmap}); it is measured on empty drives", width
        )


def settings_lines(tuning: SettingsTuning, *, width: int) -> Iterator[Line]:
    """Yield the ratios of all values of each setting, and the conclusion for it."""
    for name, choice in choices(tuning).items():
        now = tuning.before[name]
        yield EMPTY
        rows = [[name, "all, ratio", ""]]
        for value, ratio in choice.against.items():
            note = "as it was" if value == now else "" if value in choice.apart else "within the noise"
            rows.append([value, str(ratio), note])
        yield from map(plain, columns(rows, left=range(3)) if choice.against else ())
        style = Style.DOUBT if choice.verdict is Verdict.UNKNOWN else Style.TITLE
        yield from paragraph(f"{name}: {choice.value or 'no verdict'}: {choice.reason}.", width, "", style)
    yield EMPTY


def _spread(tuning: Tuning, chunk: int, load: str) -> str:
    rates = [sample.rate / 1e6 for sample in tuning.samples if sample.chunk == chunk and sample.load == load]
    return (
        f"{significant(median(rates))} ({significant(min(rates))}–{significant(max(rates))})"
        if rates
        else "–"
    )


def _chunk_note(chunk: int, choice: Choice[int], recommended: int) -> str:
    if chunk == recommended:
        return "the default without a measurement"
    return "within the noise" if choice.against and chunk not in choice.apart else ""


def _fitted_tables(rows: list[list[str]], width: int) -> Iterator[Line]:
    """Yield the table, or if it is too wide, one table for each load and one for the conclusion."""
    everywhere = range(len(rows[0]))
    tables = [list(columns(rows, left=everywhere))]
    if max(map(cell_width, tables[0])) > width:
        parts = [[[row[0], row[at]] for row in rows] for at in range(1, len(rows[0]) - 2)]
        parts.append([[row[0], *row[-2:]] for row in rows])
        tables = [["", *columns(part, left=everywhere)] for part in parts]
        tables[0] = tables[0][1:]
    yield from (plain(text) if text else EMPTY for table in tables for text in table)
