"""Recipes that are goals: how starts lie, what a new table holds, how an array is made, what a benchmark runs.

In: the TOML files under `recipes/realign`, `layouts`, `raid` and `bench`, or one of the user's. Out: a Recipe
with its goal. A file that is not understood to the last key is refused. A recipe names no device (docs/decisions/0003).
"""

from dataclasses import dataclass

from aligntool.errors import Refused
from aligntool.plan import LayoutGoal, PartWish, RaidGoal, RealignGoal
from aligntool.recipe.files import read_recipes
from aligntool.recipe.profiles import BENCH_KEYS, BenchGoal, bench_goal
from aligntool.recipe.raids import RAID_KEYS, raid_goal
from aligntool.recipe.roles import ROLES, role_list
from aligntool.recipe.schema import Document, Entry, read_tables
from aligntool.units import MIB, is_power_of_two

FOLDERS = ("realign", "layouts", "raid", "bench")
FORMAT = 1
LABELS = ("gpt", "dos")
REST = "rest"
_ALWAYS = ("format", "kind", "summary", "note", "source")
_KEYS = {
    "realign": (*_ALWAYS, "grain", "least_start"),
    "layout": (*_ALWAYS, "grain", "label", "spare_end"),
    "raid": (*_ALWAYS, *RAID_KEYS),
    "bench": (*_ALWAYS, *BENCH_KEYS),
}
_PART_KEYS = ("size", "role", "name")


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str  # the file's, without .toml
    file: str
    summary: str
    note: str | None  # what a user should know before taking it
    source: str  # where its numbers come from
    goal: RealignGoal | LayoutGoal | RaidGoal | BenchGoal

    @property
    def kind(self) -> str:
        match self.goal:
            case RealignGoal():
                return "realign"
            case LayoutGoal():
                return "layout"
            case RaidGoal():
                return "raid"
            case BenchGoal():
                return "bench"


def load_recipes() -> tuple[Recipe, ...]:
    """All that come with aligntool, kind by kind, and by name. Raises Refused."""
    return tuple(parse_recipe(*file) for folder in FOLDERS for file in read_recipes(folder))


def recipe(name: str, kind: str | None = None) -> Recipe:
    """The recipe of that name, of that kind ("realign", "layout", "raid" or "bench"). Raises Refused.

    A realign and a layout may have one name, as sd-card has; without `kind` it is the one to realign.
    """
    named = [each for each in load_recipes() if each.name == name]
    for each in named:
        if kind in (None, each.kind):
            return each
    if named:
        raise Refused(f"the recipe {name} is for a {named[0].kind}", hint=f"aligntool recipes show {name}")
    known = dict.fromkeys(each.name for each in load_recipes() if kind in (None, each.kind))
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"aligntool recipes show {near[0]}" if near else "aligntool recipes list"
    raise Refused(f"there is no recipe {name!r}", hint=hint)


def parse_recipe(file: str, content: str) -> Recipe:
    """`file` is how it is named in complaints, and names the recipe. Raises Refused."""
    keys = tuple(dict.fromkeys(key for keys in _KEYS.values() for key in keys))
    document = read_tables(file, content, kinds=("part", "test"), keys=keys)
    top, parts = document.top, document.tables["part"]
    if top.values.get("format") != FORMAT:
        raise top.refusal(
            f"format is {top.values.get('format')!r}", hint=f"this aligntool reads format = {FORMAT}"
        )
    kind = top.choice("kind", tuple(_KEYS)) or top.required("kind")
    top.allow(*_KEYS[kind])
    if kind != "layout" and parts:
        named = {"realign": "to realign", "raid": "for an array"}.get(kind, "for a benchmark")
        raise top.refusal(f"a recipe {named} has no [[part]]", hint='kind = "layout"')
    if kind != "bench" and document.tables["test"]:
        raise top.refusal("only a recipe for a benchmark has a [[test]]", hint='kind = "bench"')
    return Recipe(
        name=file.rpartition("/")[2].removesuffix(".toml"),
        file=file,
        summary=top.required("summary"),
        note=top.text("note"),
        source=top.required("source"),
        goal=_goal(kind, top, document),
    )


def _goal(kind: str, top: Entry, document: Document) -> RealignGoal | LayoutGoal | RaidGoal | BenchGoal:
    if kind == "raid":
        return raid_goal(top)
    if kind == "bench":
        return bench_goal(top, document.tables["test"])
    return _realign_goal(top) if kind == "realign" else _layout_goal(top, document.tables["part"])


def parse_part(text: str) -> PartWish:
    """ "512MiB:esp", "rest:linux" or "64GiB:linux:root" as a wish: size, role, name. Raises ValueError."""
    from aligntool.units import parse_size

    size, _, rest = text.partition(":")
    role, _, name = rest.partition(":")
    if role not in ROLES:
        raise ValueError(f"{text!r}: write SIZE:ROLE, such as 512MiB:esp or rest:linux; {role_list()}")
    length = None if size == REST else parse_size(size)
    if length is not None and length <= 0:
        raise ValueError(f"{text!r}: a partition needs a size")
    return PartWish(length, role, name)


def _realign_goal(top: Entry) -> RealignGoal:
    grain = _grain(top)
    least = top.size("least_start") or 0
    if least % (grain or MIB):
        raise top.refusal("least_start must be a multiple of the grain")
    return RealignGoal(grain=grain or MIB, grain_given=grain is not None, least_start=least)


def _layout_goal(top: Entry, parts: tuple[Entry, ...]) -> LayoutGoal:
    if not parts:
        raise top.refusal("a layout needs partitions", hint='[[part]]\nsize = "rest"\nrole = "linux"')
    wishes = tuple(_part(entry) for entry in parts)
    if sum(wish.size is None for wish in wishes) > 1:
        raise top.refusal("only one partition can take the rest")
    return LayoutGoal(
        parts=wishes,
        label=top.choice("label", LABELS) or LABELS[0],
        grain=_grain(top) or MIB,
        spare_end=top.size("spare_end") or 0,
    )


def _part(entry: Entry) -> PartWish:
    entry.allow(*_PART_KEYS)
    size = None if entry.required("size") == REST else entry.size("size")
    if size == 0:
        raise entry.refusal("a partition needs a size")
    entry.required("role")
    role = entry.choice("role", tuple(ROLES))
    return PartWish(size, role or "", entry.text("name") or "")


def _grain(top: Entry) -> int | None:
    grain = top.size("grain")
    if grain is not None and not (grain >= 4096 and is_power_of_two(grain)):
        raise top.refusal("grain must be a power of two from 4KiB on", hint='grain = "1MiB"')
    return grain
