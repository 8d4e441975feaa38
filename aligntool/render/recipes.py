"""Show recipes, the drive database, explanations and the queue-depth picture as text."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data

from aligntool.audit.report import QUESTIONS, Code, explanations
from aligntool.audit.wording import shell_word
from aligntool.change import EnsureGoal, LayoutGoal, RaidGoal, RealignGoal
from aligntool.documents import as_object
from aligntool.inventory import KnownGeometry
from aligntool.raid.levels import least_members, level_of
from aligntool.recipes.goals import BenchGoal, Goal, Recipe
from aligntool.render.lines import EMPTY, Line, Style, cell_width, folded, paragraph, plain, stacked
from aligntool.render.translate import translated
from aligntool.units import format_size, significant

# Rows of the drive database as text.

_SIZES = (
    ("physical sector", "physical_block_size"),
    ("NAND page", "page_size"),
    ("indirection unit", "indirection_unit"),
    ("erase block or allocation unit", "erase_block"),
)


def drive_summary_lines(rows: Sequence[KnownGeometry]) -> Iterator[Line]:
    """Yield a line for each row: its name and the facts in it."""
    for row in rows:
        facts = [f"{name} {format_size(value)}" for name, field in _SIZES if (value := getattr(row, field))]
        yield ((row.row, Style.TITLE), (f"  {', '.join(facts) or row.note or ''}", Style.PLAIN))


def drive_lines(rows: Sequence[KnownGeometry], *, width: int) -> Iterator[Line]:
    for row in rows:
        yield ((row.row, Style.TITLE), (f"  {row.source}, confidence {row.confidence}", Style.NOTE))
        facts = [f"{name}: {format_size(value)}" for name, field in _SIZES if (value := getattr(row, field))]
        rates = (("reads", row.read_rate), ("writes", row.write_rate))
        facts += [
            "" if row.dram is None else f"DRAM: {'yes' if row.dram else 'no'}",
            *(
                f"sequential {does} at most {significant(n / 10**6)} MB/s by its data sheet"
                for does, n in rates
                if n
            ),
            "uses a host memory buffer (HMB)" if row.hmb else "",
            *(f"its {limit} is not used as a grid" for limit in row.distrust),
            "hybrid: a rotating drive with a flash cache" if row.hybrid else "",
        ]
        yield from (plain(f"  {text}") for text in facts if text)
        if row.note:
            yield from paragraph(f"  note: {row.note}", width)
        if row.defect:
            fixed = f"; fixed in firmware {row.fixed_in}" if row.fixed_in else ""
            yield from paragraph(f"  defect: {row.defect}{fixed}", width)
        yield from paragraph(f"  source: {row.citation}", width, style=Style.DIM)
        yield EMPTY


# How concurrency hides latency: the same drive with one command in flight and with four.
#
# The arithmetic is Little's law: commands in flight = rate x time of a command (J. D. C. Little, 1961). That
# a boot runs at QD1 and gains nothing from a deep queue is the point of the article of 2022 on storage for an
# operating system.

LATENCY_US = 100  # of one command on the example drive
BUSY_US = 25  # part of LATENCY_US in controller and link, where commands do not overlap
COMMANDS = 4

TOPIC = "queue-depth"
TITLE = "One command in flight, or four: why a fast drive can feel slow"

PARAGRAPHS = (
    "A program that needs the result of one read before it can send the next keeps one command in flight:"
    " queue depth 1, QD1. The drive then waits for the program, and the program for the drive, so only the"
    " latency of a single command counts.",
    "With four commands in flight, QD4, each command takes as long as before, usually a little longer. But"
    " they wait at the same time: four flash chips are read at once, and only the short part that they share,"
    " the controller and the link, is used by one command at a time. The latency is still there, hidden"
    " behind the other commands.",
    "So commands per second = commands in flight / time per command, until something is saturated: the chips,"
    " the link, or a processor core. Here that is 1 / 100 µs = 10,000 a second at QD1, and at most 4 / 100 µs"
    " = 40,000 at QD4.",
    "Booting a system and opening programs runs at QD1: each read determines the next one. The article of"
    " 2022 counted 40,553 reads in one boot, of which 6 were sequential. For such loads the QD1 rate of a"
    " drive counts, whatever its data sheet says about QD32.",
)
NEXT = ("aligntool estimate boot --rate-a 40 --rate-b 60", "aligntool trace LOG")


@dataclass(frozen=True, slots=True)
class Run:
    """A command on a row of the picture: the times at which it was sent and answered, in µs."""

    row: int
    sent: int
    answered: int


def simulate_commands(depth: int, count: int) -> tuple[Run, ...]:
    """Return `count` commands with `depth` in flight. Each spends its last BUSY_US in the shared controller
    and link, one command at a time.
    """
    free_at = [0] * depth
    shared_free_at = 0
    commands = []
    for index in range(count):
        row = index % depth
        sent = free_at[row]
        begins = max(sent + LATENCY_US - BUSY_US, shared_free_at)
        shared_free_at = begins + BUSY_US
        free_at[row] = shared_free_at
        commands.append(Run(row, sent, shared_free_at))
    return tuple(commands)


def explain_topic(*, width: int) -> Iterator[Line]:
    """Yield the page of `aligntool explain queue-depth`."""
    yield ((translated(TITLE), Style.TITLE),)
    yield EMPTY
    yield from timeline_lines(width=width)
    for text in PARAGRAPHS:
        yield EMPTY
        yield from paragraph("  " + translated(text), width, "  ")
    yield EMPTY
    for command in NEXT:
        yield (("  → ", Style.DIM), (command, Style.TYPE))


def timeline_lines(*, width: int) -> Iterator[Line]:
    """Yield eight commands at QD1, then at QD4, on the same time axis."""
    cells = max(min(width - 14, 64), 32)
    span = 8 * LATENCY_US
    for depth in (1, COMMANDS):
        commands = simulate_commands(depth, 8)
        end = max(run.answered for run in commands)
        for row in range(depth):
            head = f"  QD{depth}" if row == 0 else ""
            yield ((f"{head:<8}", Style.TITLE), (_bar(commands, row, cells, span), Style.NOTE))
        result = translated("8 reads in {time} µs: {rate:,} a second", time=end, rate=8 * 1_000_000 // end)
        yield ((" " * 8 + result, Style.GOOD if depth > 1 else Style.PLAIN),)
        yield EMPTY
    key = translated("[-waits for flash-#-shared part]; one read alone takes {time} µs", time=LATENCY_US)
    yield ((" " * 8 + key, Style.DIM),)


def _bar(commands: tuple[Run, ...], row: int, cells: int, span: int) -> str:
    text = [" "] * cells
    for run in commands:
        if run.row != row:
            continue
        first, last = run.sent * cells // span, max(run.answered * cells // span - 1, 0)
        busy = (run.answered - BUSY_US) * cells // span
        for cell in range(first, last + 1):
            text[cell] = "#" if cell >= busy else "-"
        text[first], text[last] = "[", "]"
    return "".join(text).rstrip()


# Findings: `aligntool explain`.


def explain_lines(code: Code, *, width: int) -> Iterator[Line]:
    """Yield the explanation of a finding code."""
    text = explanations()[code]
    title = translated(text.title)
    severity = translated(text.severity)
    line = ((code.value, Style.TITLE), (f"  {title}  ", Style.TITLE), (severity, Style.NOTE))
    yield from stacked(line, width)
    for question, answer in zip(QUESTIONS, text.answers, strict=True):
        yield EMPTY
        yield ((translated(question), Style.TITLE),)
        yield from paragraph("  " + translated(answer), width, "  ")


def list_lines(*, width: int) -> Iterator[Line]:
    """Yield a line for every finding code, and one for the other topic."""
    for code, text in explanations().items():
        severity = translated(text.severity)
        severity += " " * max(1, 8 - cell_width(severity))
        title = translated(text.title)
        line = ((code.value, Style.TITLE), (f"  {severity}", Style.NOTE), (title, Style.PLAIN))
        yield from folded(line, width)
    yield from stacked(((TOPIC, Style.TITLE), (f"  {translated(TITLE)}", Style.PLAIN)), width)
    yield EMPTY
    words = ", ".join(dict.fromkeys(title for title, _ in glossary().values()))
    yield from paragraph(translated("Words that can be explained, too: {words}", words=words), width, "  ")
    yield EMPTY
    codes = ", ".join(refusals())
    yield from paragraph(translated("Codes of refusals: {codes}", codes=codes), width, "  ")


# The glossary: `aligntool explain WORD`.

_TERM = re.compile(r"^\*\*(.+)\*\*(?: \((.+)\))?: (.+(?:\n\w.*)*)", re.MULTILINE)


@cache
def glossary_markdown() -> str:
    """Return the text of the page docs/glossary.md."""
    return (get_data("aligntool.render", "glossary.md") or b"").decode()


@cache
def glossary() -> Mapping[str, tuple[str, str]]:
    """Return the terms of each entry and its text, by each of its terms as `term_key` returns it."""
    found = {}
    for terms, alternatives, text in _TERM.findall(glossary_markdown()):
        title = f"{terms} ({alternatives})" if alternatives else terms
        for term in (*terms.split(", "), *filter(None, alternatives.split(", "))):
            found[term_key(term)] = (title, text.replace("\n", " ").replace("*", "").replace("`", ""))
    return found


def term_key(word: str) -> str:
    """Return a word as it is looked up: case and hyphens do not matter."""
    return re.sub(r"[\s_-]+", " ", word).strip().lower()


def term_lines(word: str, *, width: int) -> Iterator[Line]:
    """Yield the entry of the glossary for a word that it has."""
    title, text = glossary()[term_key(word)]
    yield ((title, Style.TITLE),)
    yield from paragraph(f"  {text}", width, "  ")


# The codes of refusals: `aligntool explain CODE`.

_REFUSAL = re.compile(r"^\| `([a-z0-9-]+)` \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[(.+?)\]\((.+?)\)")


@cache
def refusals_markdown() -> str:
    """Return the text of the page docs/refusals.md."""
    return (get_data("aligntool.render", "refusals.md") or b"").decode()


@cache
def refusals() -> Mapping[str, str]:
    """Return what is refused, by the code of the refusal."""
    rows = _REFUSAL.findall(refusals_markdown())
    return {code: _LINK.sub(r"\1: docs/\2", text).replace("`", "") for code, text in rows}


def refusal_lines(code: str, *, width: int) -> Iterator[Line]:
    """Yield what the code of a refusal means."""
    yield from stacked(((code, Style.TITLE), ("  a refusal: nothing was written", Style.NOTE)), width)
    yield from paragraph(f"  What is refused: {refusals()[code]}", width, "  ")
    yield from paragraph(
        "  The message of the refusal states the reason, and below it what to type, after an arrow; a command"
        " that changes a disk tells with --json the code, and these, in its last event.",
        width,
        "  ",
    )


# Recipes as text and as JSON.

_COMMANDS = {
    "realign": "realign DISK",
    "layout": "layout DISK",
    "raid": "raid plan DEVICE...",
    "bench": "bench TARGET",
}


def recipe_rows(recipes: Sequence[Recipe], *, width: int) -> Iterator[Line]:
    """Yield for each kind of recipe its command, then the names and summaries."""
    longest = max((len(recipe.name) for recipe in recipes), default=0)
    for kind in dict.fromkeys(recipe.kind for recipe in recipes):
        yield ((f"{_command_for_kind(kind)} NAME", Style.TITLE),)
        for recipe in recipes:
            if recipe.kind == kind:
                yield from paragraph(
                    f"  {recipe.name:<{longest}}  {recipe.summary}", width, " " * (longest + 4)
                )
        yield EMPTY


def recipe_lines(recipes: Sequence[Recipe], *, width: int, typed: str = "") -> Iterator[Line]:
    """Yield what the recipes mean. `typed`: the file of the only one, if it is the user's own."""
    for recipe in recipes:
        yield from stacked(((recipe.name, Style.TITLE), (f"  {recipe.summary}", Style.PLAIN)), width)
        yield from map(plain, _goal_words(recipe.goal))
        sentences = [f"  note: {recipe.note}"] if recipe.note else []
        sentences += [f"  source: {recipe.source}"] if recipe.source else []
        for sentence in sentences:
            yield from paragraph(sentence, width, style=Style.DIM)
        yield ((f"  → {_command_for_kind(recipe.kind)} {shell_word(typed or recipe.name)}", Style.TYPE),)
        yield EMPTY


def _command_for_kind(kind: str) -> str:
    """Return the command that takes recipes of a kind, including the option before the name."""
    if kind == "ensure":
        return "sudo aligntool raid ensure --dry-run"
    return (
        f"{'sudo ' * (kind == 'raid')}aligntool {_COMMANDS[kind]}"
        f" {'--profile' if kind == 'bench' else '--recipe'}"
    )


def _goal_words(goal: Goal) -> Iterator[str]:
    match goal:
        case EnsureGoal():
            yield from _array_words(goal.array, counted_below=True)
            yield from _selection_words(goal)
        case BenchGoal():
            yield from _bench_words(goal)
        case RaidGoal():
            yield from _array_words(goal)
        case RealignGoal():
            fallback = "no other boundary is used" if goal.grain_given else "a finer one if there is no room"
            yield f"  every start on {format_size(goal.grain)}; {fallback}"
            if goal.least_start:
                yield f"  no start before {format_size(goal.least_start)}"
        case LayoutGoal():
            yield (
                f"  a new {'GPT' if goal.label == 'gpt' else 'MBR'}, every start on {format_size(goal.grain)}"
            )
            for number, part in enumerate(goal.parts, 1):
                size = "the rest" if part.size is None else format_size(part.size)
                yield f"  {number}. {size}: {part.role}" + (f' "{part.name}"' if part.name else "")
            if goal.spare_end:
                yield f"  {format_size(goal.spare_end)} left free at the end"


def _array_words(goal: RaidGoal, *, counted_below: bool = False) -> Iterator[str]:
    """Yield the settings of a recipe for arrays; aligntool recommends the others. `counted_below`: the number
    of drives follows.
    """
    layout = f", layout {goal.layout}" if goal.layout else ""
    least = "" if counted_below else f"at least {least_members(level_of(goal.level), goal.layout or '')} "
    members = goal.members.replace("-", " ")
    yield f"  {goal.level}{layout} of {least}{members}, for {goal.workload} use"
    sizes = (
        ("chunk", goal.chunk),
        ("EFI system partition", goal.esp_size),
        ("left free at the end", goal.spare_room),
        ("block", goal.block_size),
        ("inode", goal.inode_size),
        ("log", goal.log_size),
    )
    words = [f"{title} {format_size(size)}" for title, size in sizes if size]
    words += [f"bitmap {goal.bitmap}"] if goal.bitmap else []
    if words:
        yield f"  {', '.join(words)}"
    if goal.lba_size:
        yield f"  empty NVMe drives are first formatted to logical blocks of {goal.lba_size} bytes"
    if goal.zero_members:
        yield "  empty NVMe drives are zeroed first, so that the array needs no resynchronisation"
    if goal.fast_sync:
        yield "  md's limit is lifted until the array is synchronised"
    options = f", mounted {','.join(goal.mount_options)}" if goal.mount_options else ""
    place = f" at {goal.place}" if goal.place else ""
    yield f"  file system {goal.filesystem}{place}{options}"
    access = {"owner": goal.owner, "group": goal.group, "mode": goal.mode}
    words = [f"{title} {word}" for title, word in access.items() if word]
    if words:
        yield f"  its top directory: {', '.join(words)}"
    for bind in goal.binds:
        yield f"  its directory {bind.folder} is also mounted at {bind.path}"


def _selection_words(goal: EnsureGoal) -> Iterator[str]:
    """Yield how the drives of an array are found, and what happens with few of them."""
    drives = goal.drives
    patterns = {"model": drives.models, "by-id": drives.names, "PCI address": drives.addresses}
    words = [f"{title} {' or '.join(texts)}" for title, texts in patterns.items() if texts]
    words += ["instance store"] if drives.instance_store else []
    words += ["unused"] if drives.unused else []
    words += [f"at least {format_size(drives.least_size)}"] if drives.least_size else []
    words += [f"at most {format_size(drives.most_size)}"] if drives.most_size is not None else []
    number = f"{drives.least} to {drives.most}" if drives.most is not None else f"{drives.least} or more"
    number = f"exactly {drives.least}" if drives.least == drives.most else number
    yield f"  {number} {'drive' if drives.most == 1 else 'drives'}, each: {' and '.join(words)}"
    kinds = {"raid0": "becomes a RAID0 of one", "filesystem": "gets a plain file system"}
    one = kinds.get(drives.one, "is an error unless the level allows one")
    none = "there is nothing to do" if drives.may_be_none else "it is an error"
    yield f"  a single drive {one}; without a drive {none}"
    if drives.wiped_serials:
        yield f"  may be overwritten: the drives with serial {', '.join(drives.wiped_serials)}"


def _bench_words(goal: BenchGoal) -> Iterator[str]:
    if goal.prepare == "twice":
        yield "  everything is overwritten twice first"
    times = "rounds at most, until they are steady" if goal.until_steady else "repeats"
    yield f"  {goal.repeats} {times}, {goal.runtime_s:g} s each, over {format_size(goal.size)}"
    for name in dict.fromkeys(test.name for test in goal.tests):
        kinds = ["write" if test.write else "read" for test in goal.tests if test.name == name]
        yield f"  {name}: {', '.join(kinds)}"


def recipes_json(recipes: Sequence[Recipe]) -> str:
    """Return recipes as JSON: sizes in bytes; a size of null is the rest of the disk."""
    return json.dumps([{"kind": recipe.kind, **as_object(recipe)} for recipe in recipes]) + "\n"
