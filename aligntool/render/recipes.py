"""Recipes for people, and as JSON.

In: recipes. Out: lines, or one document. Alone because it is neither a plan nor the drive database.
"""

import json
from collections.abc import Iterator, Sequence

from aligntool.plan import LayoutGoal, PartWish, RaidGoal, RealignGoal
from aligntool.recipe import BenchGoal, Recipe
from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped
from aligntool.strict_json import as_object
from aligntool.units import format_size

_COMMANDS = {
    "realign": "aligntool realign DISK",
    "layout": "aligntool layout DISK",
    "raid": "sudo aligntool raid plan DEV...",
    "bench": "aligntool bench TARGET",
}
_OPTIONS = {"bench": "--profile"}


def recipe_rows(recipes: Sequence[Recipe], *, width: int) -> Iterator[Line]:
    """The command that takes each kind, and below it name and summary."""
    longest = max((len(each.name) for each in recipes), default=0)
    for kind in dict.fromkeys(each.kind for each in recipes):
        yield ((f"{_COMMANDS[kind]} {_option(kind)} NAME", Style.TITLE),)
        for each in recipes:
            if each.kind == kind:
                indent = " " * (longest + 4)
                for line in wrapped(f"  {each.name:<{longest}}  {each.summary}", width, indent):
                    yield plain(line)
        yield EMPTY


def recipe_lines(recipes: Sequence[Recipe], *, width: int) -> Iterator[Line]:
    for each in recipes:
        yield ((each.name, Style.TITLE), (f"  {each.summary}", Style.PLAIN))
        yield from map(plain, _goal_words(each.goal))
        sentences = [f"  note: {each.note}"] if each.note else []
        for sentence in (*sentences, f"  source: {each.source}"):
            for line in wrapped(sentence, width, "    "):
                yield ((line, Style.DIM),)
        yield ((f"  → {_COMMANDS[each.kind]} {_option(each.kind)} {each.name}", Style.TYPE),)
        yield EMPTY


def _option(kind: str) -> str:
    return _OPTIONS.get(kind, "--recipe")


def _goal_words(goal: RealignGoal | LayoutGoal | RaidGoal | BenchGoal) -> Iterator[str]:
    if isinstance(goal, BenchGoal):
        yield from _bench_words(goal)
        return
    if isinstance(goal, RaidGoal):
        yield from _array_words(goal)
        return
    if isinstance(goal, RealignGoal):
        insisted = "nothing else is an answer" if goal.grain_given else "a finer one where there is no room"
        yield f"  every start on {format_size(goal.grain)}; {insisted}"
        if goal.least_start:
            yield f"  no start before {format_size(goal.least_start)}"
        return
    yield f"  a new {'GPT' if goal.label == 'gpt' else 'MBR'}, every start on {format_size(goal.grain)}"
    for number, part in enumerate(goal.parts, 1):
        yield f"  {number}. {_part_words(part)}"
    if goal.spare_end:
        yield f"  {format_size(goal.spare_end)} left free at the end"


def _array_words(goal: RaidGoal) -> Iterator[str]:
    """What the recipe says; what it leaves open is for aligntool to recommend."""
    layout = f", layout {goal.layout}" if goal.layout else ""
    yield f"  {goal.level}{layout} of {goal.members.replace('-', ' ')}, for {goal.workload} use"
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
    options = f", mounted {','.join(goal.mount_options)}" if goal.mount_options else ""
    yield f"  file system {goal.filesystem}{options}"


def _bench_words(goal: BenchGoal) -> Iterator[str]:
    if goal.prepare == "twice":
        yield "  first everything is overwritten twice"
    times = "rounds at most, until they are steady" if goal.until_steady else "repeats"
    yield f"  {goal.repeats} {times}, {goal.runtime_s:g} s each, over {format_size(goal.size)}"
    for name in dict.fromkeys(test.name for test in goal.tests):
        kinds = ["write" if test.write else "read" for test in goal.tests if test.name == name]
        yield f"  {name}: {', '.join(kinds)}"


def _part_words(part: PartWish) -> str:
    size = "the rest" if part.size is None else format_size(part.size)
    return f'{size}: {part.role} "{part.name}"' if part.name else f"{size}: {part.role}"


def recipes_json(recipes: Sequence[Recipe]) -> str:
    """Sizes are bytes; a part's size null: the rest."""
    return json.dumps([{"kind": each.kind, **as_object(each)} for each in recipes]) + "\n"
