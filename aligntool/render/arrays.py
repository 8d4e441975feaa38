"""Plans of arrays, running arrays and tuning results as text."""

from collections.abc import Iterator, Sequence
from statistics import median

from aligntool.audit.wording import shell_word
from aligntool.change import Plan, RaidGoal
from aligntool.documents import as_object
from aligntool.measure.chunks import Sweep, sweep_words
from aligntool.raid.chunks import ceiling_words, rate
from aligntool.raid.commands import tuning_command
from aligntool.raid.measured import Choice, Tuning, Verdict
from aligntool.raid.running import ArrayView, MemberView
from aligntool.render.json import document_text
from aligntool.render.lines import EMPTY, Line, Style, cell_width, columns, paragraph, plain
from aligntool.render.plan import attention_lines, sentence_lines, shell_line, size_words, step_lines, time_words
from aligntool.steps import MakeMember
from aligntool.units import format_size

# Arrays for people: a plan of one, and those that run.


def raid_plan_lines(plan: Plan, *, width: int, type_next: str = "") -> Iterator[Line]:
    """What it becomes, what was decided and why, every step with its commands, and what needs the user.

    `type_next`: the command that makes it so.
    """
    members = [step for step in plan.steps if isinstance(step, MakeMember)]
    yield ((f"{plan.disk.path}: {plan.goal}", Style.TITLE),)
    facts = f"  {size_words(plan.disk.size)} · {plan.disk.sector_size}-byte sectors · UUID {plan.disk.disk_id}"
    yield from paragraph(facts, width, style=Style.DIM)
    if members:
        yield from paragraph("  of " + ", ".join(step.device for step in members), width, style=Style.DIM)
    yield EMPTY
    yield from sentence_lines("Decided", plan.notes, Style.PLAIN, width)
    yield from step_lines(plan, {}, width)
    yield EMPTY
    yield from attention_lines(plan, width=width)
    if type_next and plan.steps:
        yield (("→ ", Style.DIM), (type_next, Style.TYPE))


def array_lines(views: Sequence[ArrayView], *, width: int) -> Iterator[Line]:
    """Each array with its members, its ceiling, the audit's findings on its stack, and the commands that repair it."""
    if not views:
        yield plain("No md array is running here.")
    for view in views:
        words = [
            view.level,
            size_words(view.size) if view.size else "",
            f"metadata {view.metadata}" if view.metadata else "",
        ]
        words += [f"chunk {format_size(view.chunk)}" if view.chunk else "no chunk", view.state]
        yield ((f"{view.name}: ", Style.TITLE), (" · ".join(word for word in words if word), Style.PLAIN))
        for member in view.members:
            yield from _member(member, width)
        for sentence in (*view.contents, *ceiling_words(view.ceiling)):
            yield from paragraph(f"  {sentence}", width)
        for finding in view.findings:
            yield from paragraph(f"  {finding}", width, style=Style.DOUBT)
        for step in view.next:
            yield (("  → ", Style.DIM), (step, Style.TYPE))
        yield EMPTY


def _member(member: MemberView, width: int) -> Iterator[Line]:
    words = [member.model or "", member.own_link or "", member.data]
    yield from paragraph(f"  {member.name}: " + ", ".join(word for word in words if word), width)
    more = [f"narrowest on its way: {member.link}" if member.link else "", *member.shares, member.memory or ""]
    for phrase in (phrase for phrase in more if phrase):
        yield from paragraph(f"    {phrase}", width)


def arrays_json(views: Sequence[ArrayView]) -> str:
    """Sizes are bytes, bandwidths bytes per second; null: not known."""
    return document_text("aligntool.raid.show", {"arrays": [as_object(view) for view in views]})


# A sweep over chunks, for people: what is about to be done, and what came of it.


def sweep_lines(sweep: Sweep, *, width: int) -> Iterator[Line]:
    """Which members, which arrays and loads, how long, and what is written where."""
    yield ((f"A sweep over chunks of a {sweep.level} for {sweep.workload} use", Style.TITLE),)
    said = [f"{sweep_words(sweep)}; about {time_words(round(sweep.seconds))}"]
    said += [
        f"of {', '.join(sweep.members)}; each is measured alone first",
        f"in {format_size(sweep.span)} of each array, {len(sweep.shapes)} loads of {sweep.runtime_s:g} s: "
        + "; ".join(shape.name for shape in sweep.shapes),
        f"bitmap {sweep.bitmap}" + (f", layout {sweep.layout}" if sweep.layout else ""),
    ]
    for text in said:
        yield from paragraph(f"  - {text}", width)
    yield EMPTY
    yield (("What is written, and gone again afterwards", Style.TITLE),)
    for start, end in ((extent.start, extent.end) for extent in sweep.written):
        yield plain(f"  - bytes {start} to {end} of each member, and md's superblock before them")
    for chunk in sweep.chunks:
        yield from paragraph(f"    $ {shell_line(tuning_command(sweep.arrays[chunk]))}", width, "      ")
    yield from paragraph("    $ mdadm --stop ARRAY; mdadm --zero-superblock MEMBER; blkdiscard MEMBER", width)


def tuning_lines(tuning: Tuning, choice: Choice, recommended: int, *, width: int) -> Iterator[Line]:
    """A table of medians with their ranges, and the conclusion."""
    yield EMPTY
    for member in tuning.members:
        if member.read and member.write:
            yield plain(f"{member.name} alone: {rate(member.read)} reading, {rate(member.write)} writing")
    shapes = list(dict.fromkeys(sample.shape for sample in tuning.samples))
    for number, name in enumerate(shapes, start=1):
        yield plain(f"load {number}: {name}")
    yield EMPTY
    chunks = sorted({sample.chunk for sample in tuning.samples})
    rows = [["chunk", *(f"load {number}, MB/s" for number in range(1, len(shapes) + 1)), "all, ratio", ""]]
    for chunk in chunks:
        cells = [_spread(tuning, chunk, shape) for shape in shapes]
        ratio = str(choice.against[chunk]) if chunk in choice.against else "–"
        rows.append([format_size(chunk), *cells, ratio, _words(chunk, choice, recommended)])
    yield from _fitting(rows, width)
    yield EMPTY
    style = Style.DOUBT if choice.verdict is Verdict.UNKNOWN else Style.TITLE
    verdict = (
        f"No verdict: {choice.reason}." if choice.chunk is None else f"{format_size(choice.chunk)}: {choice.reason}."
    )
    yield from paragraph(verdict, width, "", style)


def plan_command(sweep: Sweep, goal: RaidGoal, kept: str) -> str:
    """What plans an array that the result counts for: the options that the sweep was asked with, and its members.

    `goal`: what was asked. `kept`: the file of the result.
    """
    options = [("--level", goal.level.removeprefix("raid")), ("--workload", goal.workload)]
    options += [("--layout", goal.layout)] if goal.layout else []
    options += [("--bitmap", goal.bitmap)] if goal.bitmap else []
    options += [("--database-page", format_size(goal.database_page))] if goal.workload == "database" else []
    words = [word for option in (*options, ("--measured", kept)) for word in option]
    return " ".join(("sudo aligntool raid plan", *map(shell_word, (*words, *sweep.members))))


def _spread(tuning: Tuning, chunk: int, shape: str) -> str:
    rates = [each.rate / 1e6 for each in tuning.samples if each.chunk == chunk and each.shape == shape]
    if not rates:
        return "–"
    return f"{_figure(median(rates))} ({_figure(min(rates))}–{_figure(max(rates))})"


def _figure(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 10 else f"{rate:.2f}"


def _words(chunk: int, choice: Choice, recommended: int) -> str:
    if chunk == recommended:
        return "what aligntool takes unmeasured"
    if not choice.against:
        return ""
    return "" if chunk in choice.apart else "within the noise"


def _fitting(rows: list[list[str]], width: int) -> Iterator[Line]:
    """The table; where it is too wide, one for each load and one for the conclusion."""
    whole = _table(rows)
    if max(map(cell_width, whole)) <= width:
        yield from map(plain, whole)
        return
    for at in range(1, len(rows[0]) - 2):
        yield from map(plain, _table([[row[0], row[at]] for row in rows]))
        yield EMPTY
    yield from map(plain, _table([[row[0], *row[-2:]] for row in rows]))


def _table(rows: list[list[str]]) -> list[str]:
    return list(columns(rows, left=range(len(rows[0]))))
