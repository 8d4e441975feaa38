"""Read recipes into goals: how partitions start, a new table, an array, a benchmark."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from aligntool.change import (
    MOUNT_POINT,
    NOT_MOUNTED,
    ONE_DRIVE,
    RAID_WORDS,
    Bind,
    DriveSelection,
    EnsureGoal,
    LayoutGoal,
    PartitionRequest,
    RaidGoal,
    RealignGoal,
)
from aligntool.commands import command
from aligntool.documents import schema_texts
from aligntool.errors import Refused
from aligntool.formats.part_types import ROLES, role_list
from aligntool.recipes.schema import Entry, parse_pattern, read_each, read_recipes, read_tables
from aligntool.units import GIB, MIB, format_size, is_power_of_two, is_sector_size, parse_size

# Benchmark profiles (kind "bench"): the loads, their size and number, without a drive. A profile makes two
# results comparable, so it is complete.

ACCESS = ("sequential", "random")
DO = ("read", "write")
PREPARE = ("none", "twice")
SCORES = ("as-ssd",)
BENCH_KEYS = ("size", "runtime", "repeats", "prepare", "until_steady", "score")
_TEST_KEYS = ("access", "block", "depth", "threads", "do")
LEAST_BLOCK = 512
MOST_BLOCK = 64 * MIB
MOST_DEPTH = 1024
MOST_THREADS = 256
MOST_TESTS = 200


@dataclass(frozen=True, slots=True)
class BenchTest:
    """A load, named as in CrystalDiskMark: SEQ1M Q8T1, RND4K Q1T1."""

    random: bool
    block: int  # bytes of a request
    depth: int  # requests in flight, of each thread
    threads: int
    write: bool
    reads: int | None = None  # percent of reads in a mixed test, whose `write` is True

    @property
    def name(self) -> str:
        size = format_size(self.block).removesuffix("iB").removesuffix("B")
        return f"{'RND' if self.random else 'SEQ'}{size} Q{self.depth}T{self.threads}"

    @property
    def title(self) -> str:
        return f"{self.name} {self.does}"

    @property
    def does(self) -> str:
        """Return "read", "write", or "mix70" for 70 % of reads."""
        return f"mix{self.reads}" if self.reads is not None else "write" if self.write else "read"


@dataclass(frozen=True, slots=True)
class BenchGoal:
    tests: tuple[BenchTest, ...]
    size: int = GIB  # bytes that the requests are spread over
    runtime_s: float = 5.0  # of each run
    repeats: int = 5
    # "twice": overwrite everything twice before the test, as in SNIA's test specification
    prepare: str = "none"
    until_steady: bool = False  # repeat until the results are steady, instead of a fixed number of times
    score: str | None = None

    @property
    def writes(self) -> bool:
        return any(test.write for test in self.tests) or self.prepare != "none"


def bench_goal(top: Entry, rows: Sequence[Entry]) -> BenchGoal:
    """Return a benchmark goal. Raises Refused for an invalid profile."""
    values: dict[str, Callable[[], Any]] = {
        "size": lambda: top.size("size") or None,
        "runtime_s": lambda: None if (given := top.number("runtime")) is None else float(given),
        "repeats": partial(_count, top, "repeats", 1000),
        "prepare": partial(top.choice, "prepare", PREPARE),
        "until_steady": partial(top.flag, "until_steady"),
        "score": partial(top.choice, "score", SCORES),
    }
    listed, *read = _read_all(lambda: read_each(lambda row: tuple(_tests(row)), rows), *values.values())
    tests = tuple(dict.fromkeys(test for each in listed for test in each))
    if not tests:
        raise top.refusal("a benchmark needs tests", hint='[[test]]\naccess = "random"\nblock = "4KiB"')
    if len(tests) > MOST_TESTS:
        raise top.refusal(f"there are {len(tests)} tests, but at most {MOST_TESTS} are allowed")
    found = {key: value for key, value in zip(values, read, strict=True) if value is not None}
    goal = BenchGoal(tests, **found)
    if goal.size < max(test.block * test.threads for test in tests):
        raise top.refusal("size is smaller than the requests of one of the tests")
    if not 0.1 <= goal.runtime_s <= 86400:
        raise top.refusal("runtime must be in seconds, from 0.1 to 86400")
    return goal


def _read_all(*reads: Callable[[], Any]) -> list[Any]:
    """Return what each of them returns. Raises Refused with the reasons of all that are refused."""
    return read_each(lambda read: read(), reads)


def _tests(row: Entry) -> Iterator[BenchTest]:
    """Yield the tests of a row: one for each combination of the values of its lists."""
    access, kinds, *lists, _, _ = _read_all(
        partial(row.choice, "access", ACCESS),
        partial(row.choices, "do", DO, "a direction", "directions"),
        partial(_blocks, row),
        partial(_counts, row, "threads"),
        partial(_counts, row, "depth"),
        partial(row.required, "access", ACCESS),
        partial(row.allow, *_TEST_KEYS),
    )
    number = math.prod(map(len, lists))
    if number > MOST_TESTS:
        raise row.refusal(f"there are {number} tests, but at most {MOST_TESTS} are allowed")
    for block, threads, depth in product(*lists):
        yield from (
            BenchTest(access == "random", block, depth, threads, kind == "write") for kind in kinds or DO
        )


def _blocks(row: Entry) -> tuple[int, ...]:
    sizes = row.sizes("block")
    if not sizes:
        raise row.refusal("block is missing", hint='block = "4KiB"')
    if any(not LEAST_BLOCK <= size <= MOST_BLOCK or size % LEAST_BLOCK for size in sizes):
        raise row.refusal(f"block must be a multiple of 512B up to {format_size(MOST_BLOCK)}")
    return sizes


def _counts(row: Entry, key: str) -> list[int]:
    value = row.values.get(key, 1)
    most = MOST_DEPTH if key == "depth" else MOST_THREADS
    listed = value if isinstance(value, list) else [value]
    for number in listed:
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
            raise row.refusal(f"{key} must be a number from 1 to {most}, or a list of them, not {value!r}")
    if not listed:
        raise row.refusal(f"{key} is an empty list")
    return listed


def _count(top: Entry, key: str, most: int) -> int | None:
    value = top.number(key)
    if value is not None and (value != int(value) or not 1 <= value <= most):
        raise top.refusal(f"{key} must be a whole number from 1 to {most}")
    return None if value is None else int(value)


# Recipes for arrays (kind "raid"): level, chunk, file system and so on, without a drive. Whether the level
# and its members allow them is checked when the plan is made.

NOWHERE = "none"
_SIZES = (
    "chunk",
    "database_page",
    "block_size",
    "inode_size",
    "log_size",
    "member_size",
    "spare_room",
    "esp_size",
)
_OWNER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?|\d{1,10}")  # useradd(8), or a number
_ACCESS = {"owner": _OWNER, "group": _OWNER, "mode": re.compile("[0-7]{3,4}")}
_FOLDER = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]+")
_PATH = re.compile(r"(/(?!\.\.?(/|$))[^\s\\#/]+)+")
RAID_KEYS = (*RAID_WORDS, "name", "layout", "mount_at", "mount_options", *_ACCESS, *_SIZES)
# not in a file of `raid ensure`, which asks no question before it writes, and does not keep the boot waiting
RARE_KEYS = ("lba_size", "zero_members", "fast_sync")


def raid_goal(top: Entry, binds: Sequence[Entry] = ()) -> RaidGoal:
    """Return the goal of an array. Raises Refused for a value that is not a size or not an allowed word."""
    reads: dict[str, Callable[[], Any]] = {
        key: partial(top.choice, key, words) for key, words in RAID_WORDS.items()
    }
    reads |= {key: partial(top.size, key) for key in _SIZES} | {
        "mount_options": partial(top.texts, "mount_options")
    }
    reads |= {key: partial(top.text, key) for key in ("name", "layout", "mount_at")}
    reads |= {key: partial(_text_like, top, key, pattern) for key, pattern in _ACCESS.items()}
    reads |= {"binds": lambda: _binds(binds)}
    reads |= {key: partial(top.flag, key) for key in ("zero_members", "fast_sync")}
    reads["lba_size"] = partial(_lba_size, top)
    found = dict(
        zip(
            ("", *reads),
            _read_all(partial(top.required, "level", RAID_WORDS["level"]), *reads.values()),
            strict=True,
        )
    )
    del found[""]
    found["mount_options"] = found["mount_options"] or None
    found["database_page"] = found["database_page"] or None
    if found["mount_at"] == NOWHERE:
        found["mount_at"] = ""
    if found["mount_at"] and not MOUNT_POINT.fullmatch(found["mount_at"]):
        text = f"{found['mount_at']!r} is not a valid mount point for fstab"
        raise top.refusal(text, hint='mount_at = "/srv/data"')
    return RaidGoal(**{key: value for key, value in found.items() if value is not None})


def _text_like(entry: Entry, key: str, pattern: re.Pattern[str]) -> str | None:
    """Return the text of a key. Raises Refused if it is not as the pattern."""
    text = entry.text(key)
    if text is not None and not pattern.fullmatch(text):
        raise entry.refusal(f"{key} cannot be {text!r}")
    return text


def _binds(rows: Sequence[Entry]) -> tuple[Bind, ...]:
    """Return the directories that are mounted elsewhere as well. Raises Refused."""
    found = read_each(_bind, rows)
    for row, bind in zip(rows, found, strict=True):
        others = [other for other in found if other is not bind]
        if any(bind.folder == other.folder or bind.path == other.path for other in others):
            raise row.refusal(f"{bind.folder} or {bind.path} is in two of them")
    return tuple(found)


def _bind(row: Entry) -> Bind:
    folder, path, _, _, _ = _read_all(
        partial(_text_like, row, "from", _FOLDER),
        partial(_text_like, row, "to", _PATH),
        partial(row.required, "from"),
        partial(row.required, "to"),
        partial(row.allow, "from", "to"),
    )
    return Bind(folder, path)


def _lba_size(top: Entry) -> int | None:
    size = top.number("lba_size")
    if size is not None and not (size == int(size) and is_sector_size(int(size))):
        raise top.refusal(f"lba_size is {size!r}, which is not a sector size", hint="lba_size = 4096")
    return None if size is None else int(size)


# Files for arrays that are to exist at every boot (kind "ensure"): the keys of an array, and how its drives
# are found. They are the user's: none is packaged.

SETTINGS = "--set"
"""Stands for the file in messages if there are settings instead."""
UNUSED = "all-unused"
INSTANCE_STORE = "instance-store"
FOREIGN = "foreign"
_DRIVES_KEYS = (
    "select", "model", "by_id", "pci", "size_from", "size_to", "at_least", "at_most", "one", "none", "wipe",
    "serials",
)  # fmt: skip
_MOST_DRIVES = 4096


def ensure_goal(top: Entry, name: str, binds: Sequence[Entry] = ()) -> EnsureGoal:
    """Return the goal of a file. `name`: of the array, unless the file has one. Raises Refused."""
    table = top.values.get("drives")
    if not isinstance(table, dict):
        is_typed = top.file == SETTINGS
        hint = f"--set drives.select={UNUSED}" if is_typed else f'[drives]\nselect = "{UNUSED}"'
        raise top.refusal("the table of the drives is missing", hint=hint)
    drives = Entry(top.file, "drives", table)
    array, selection = _read_all(partial(raid_goal, top, binds), partial(_drive_selection, drives))
    if "name" not in top.values:
        array = replace(array, name=name)
    if array.members == "partitions":
        raise top.refusal("existing partitions cannot be selected", hint='members = "new-partitions"')
    _refuse_one(drives, array, selection.one)
    return EnsureGoal(array, selection)


def _refuse_one(drives: Entry, array: RaidGoal, one: str) -> None:
    """Raise Refused if a single drive cannot become what the file says."""
    if one != "error" and array.layout:
        raise drives.refusal(f'one = "{one}" and a layout exclude each other: a single drive has none')
    if one == "filesystem" and (array.filesystem in NOT_MOUNTED or array.mount_at == ""):
        raise drives.refusal('one = "filesystem" needs a file system that is mounted')
    if one == "filesystem" and (array.esp_size or array.whole_drives):
        text = 'one = "filesystem" makes one partition: esp_size and whole drives exclude it'
        raise drives.refusal(text)


_SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)?")


def text_of_settings(name: str, settings: Sequence[str]) -> str:
    """Return the text of a file with these keys and values, such as "drives.model=Amazon*", for an array of
    this name. A key that is given several times is a list. Raises Refused if it is no key.
    """
    found: dict[str, list[str]] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (equals and _SETTING.fullmatch(key)):
            raise Refused(f"--set {setting}: not KEY=VALUE", hint="--set level=raid0")
        found.setdefault(key, []).append(value)
    always = {"format": [f"{FORMAT}"], "kind": ["ensure"], "name": [name]}
    return "".join(f"{key} = {_value(key, texts)}\n" for key, texts in {**always, **found}.items())


def _value(key: str, texts: Sequence[str]) -> str:
    """Return a value as TOML, which a list or a table is already; the schema says which key is a number."""
    if len(texts) > 1:
        return f"[{', '.join(map(json.dumps, texts))}]"
    (text,) = texts
    is_toml = text.startswith(("[", "{")) or _type_in_schema(key) in ("integer", "boolean")
    return text if is_toml else json.dumps(text)


def _type_in_schema(key: str) -> str:
    schema = json.loads(schema_texts()["ensure"])
    for word in key.split("."):
        schema = schema.get("properties", {}).get(word, {})
    if "const" in schema:
        return "integer" if isinstance(schema["const"], int) else "string"
    return str(schema.get("type", ""))


def _drive_selection(entry: Entry) -> DriveSelection:
    """Return how the drives are found. Without a pattern nothing is selected: that would be any drive."""
    selected, models, names, addresses, *sizes, least, most, one, none, wipe, serials, _ = _read_all(
        partial(entry.choices, "select", (UNUSED, INSTANCE_STORE), "a selector", "selectors"),
        partial(_patterns, entry, "model"),
        partial(_patterns, entry, "by_id"),
        partial(_patterns, entry, "pci"),
        partial(entry.size, "size_from"),
        partial(entry.size, "size_to"),
        partial(_count, entry, "at_least", _MOST_DRIVES),
        partial(_count, entry, "at_most", _MOST_DRIVES),
        partial(entry.choice, "one", ONE_DRIVE),
        partial(entry.choice, "none", ("nothing", "error")),
        partial(entry.choice, "wipe", (FOREIGN,)),
        partial(entry.texts, "serials"),
        partial(entry.allow, *_DRIVES_KEYS),
    )
    if not (selected or models or names or addresses):
        text = "nothing selects a drive: select, model, by_id or pci"
        raise entry.refusal(text, hint=f'select = "{UNUSED}"')
    if bool(wipe) != bool(serials):
        raise entry.refusal('wipe = "foreign" and serials = [...] need each other')
    if most is not None and most < (least or 1):
        raise entry.refusal("at_most is less than at_least")
    return DriveSelection(
        UNUSED in selected, INSTANCE_STORE in selected, models, names, addresses, sizes[0] or 0, sizes[1],
        least or 1, most, one or "error", none == "nothing", serials,
    )  # fmt: skip


def _patterns(entry: Entry, key: str) -> tuple[str, ...]:
    """Return the patterns of a key. Raises Refused if one of them matches nothing, or every drive."""
    for text in entry.texts(key):
        try:
            parse_pattern(text)
        except ValueError as error:
            raise entry.refusal(f"{key}: {text!r}: {error}") from error
    return entry.texts(key)


# Recipes with their goals, packaged or the user's. A file with an unknown key is refused. A recipe names no
# device (docs/decisions/0003).

FOLDERS = ("realign", "layouts", "raid", "bench")
FORMAT = 1
LABELS = ("gpt", "dos")
REST = "rest"
_ALWAYS = ("format", "kind", "summary", "note", "source")
_KEYS = {
    "realign": (*_ALWAYS, "grain", "least_start"),
    "layout": (*_ALWAYS, "grain", "label", "spare_end"),
    "raid": (*_ALWAYS, *RAID_KEYS, *RARE_KEYS),
    "bench": (*_ALWAYS, *BENCH_KEYS),
    "ensure": (*_ALWAYS, *RAID_KEYS, "drives"),
}
_TABLES = ("part", "test", "bind")
_PART_KEYS = ("size", "role", "name")
Goal = RealignGoal | LayoutGoal | RaidGoal | BenchGoal | EnsureGoal
_KINDS: dict[type[Goal], str] = {
    RealignGoal: "realign",
    LayoutGoal: "layout",
    RaidGoal: "raid",
    BenchGoal: "bench",
    EnsureGoal: "ensure",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str  # of the file, without .toml
    file: str
    summary: str
    note: str | None  # advice before its use
    source: str  # the source of its numbers
    goal: Goal

    @property
    def kind(self) -> str:
        return _KINDS[type(self.goal)]


def load_recipes() -> tuple[Recipe, ...]:
    """Return all packaged recipes, by kind and by name. Raises Refused."""
    return tuple(parse_recipe(*file) for folder in FOLDERS for file in read_recipes(folder))


def recipe(name: str, kind: str | None = None) -> Recipe:
    """Return the recipe of that name and kind ("realign", "layout", "raid" or "bench"). Raises Refused.

    A realign and a layout recipe may have the same name, such as sd-card; without `kind` return the one to
    realign.
    """
    named = [candidate for candidate in load_recipes() if candidate.name == name]
    found = next((candidate for candidate in named if kind in (None, candidate.kind)), None)
    if found:
        return found
    if named:
        raise Refused(f"the recipe {name} is for a {named[0].kind}", hint=command("recipes show", name))
    known = dict.fromkeys(other.name for other in load_recipes() if kind in (None, other.kind))
    from difflib import get_close_matches

    similar = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = command("recipes show", similar[0]) if similar else "aligntool recipes list"
    raise Refused(f"there is no recipe {name!r}", hint=hint)


def parse_recipe(file: str, content: str) -> Recipe:
    """Return the recipe in a text. `file`: its name in messages, from which the recipe's name is taken.
    Raises Refused.
    """
    top, tables = read_tables(file, content, kinds=_TABLES, keys=None)
    if top.values.get("format") not in (None, FORMAT):  # another format has other keys
        _require_format(top)
    kind = top.choice("kind", tuple(_KEYS)) or top.required("kind", tuple(_KEYS))
    name = file.rpartition("/")[2].removesuffix(".toml")
    read: dict[str, Callable[[], Goal]] = {
        "ensure": lambda: ensure_goal(top, name, tables["bind"]),
        "raid": lambda: raid_goal(top, tables["bind"]),
        "bench": lambda: bench_goal(top, tables["test"]),
        "realign": lambda: _realign_goal(top),
        "layout": lambda: _layout_goal(top, tables["part"]),
    }
    words = top.text if kind == "ensure" else top.required
    what = "a file of raid ensure" if kind == "ensure" else f"a recipe for a {kind}"
    others = {
        key: f'{key} is not in {what}, but in one with kind = "{other}"'
        for other in _KEYS
        for key in _KEYS[other]
    }
    _, _, _, goal, summary, note, source = _read_all(
        partial(_require_format, top),
        partial(top.allow, *_KEYS[kind], elsewhere=_TABLES, others=others),
        partial(_refuse_other_tables, top, kind, tables),
        read[kind],
        partial(words, "summary"),
        partial(top.text, "note"),
        partial(words, "source"),
    )
    return Recipe(name, file, summary or "", note, source or "", goal)


def _require_format(top: Entry) -> None:
    found = top.values.get("format")
    if found != FORMAT:
        text = "format is missing" if found is None else f"format is {found!r}"
        raise top.refusal(text, hint=f"this aligntool reads format = {FORMAT}")


def _refuse_other_tables(top: Entry, kind: str, tables: Mapping[str, tuple[Entry, ...]]) -> None:
    """Raise Refused if a recipe has tables that are for other recipes."""
    if kind != "layout" and tables["part"]:
        named = {"realign": "to realign", "raid": "for an array", "ensure": "for an array"}.get(
            kind, "for a benchmark"
        )
        raise top.refusal(f"a recipe {named} cannot have a [[part]]", hint='kind = "layout"')
    if kind != "bench" and tables["test"]:
        raise top.refusal("only a recipe for a benchmark can have a [[test]]", hint='kind = "bench"')
    if kind not in ("raid", "ensure") and tables["bind"]:
        raise top.refusal("only a recipe for an array can have a [[bind]]", hint='kind = "raid"')


def parse_part(text: str) -> PartitionRequest:
    """Return the partition of "512MiB:esp", "rest:linux" or "64GiB:linux:root": size, role, name. Raises
    ValueError.
    """
    size, _, rest = text.partition(":")
    role, _, name = rest.partition(":")
    if role not in ROLES:
        raise ValueError(f"{text!r}: write SIZE:ROLE, such as 512MiB:esp or rest:linux; {role_list()}")
    length = None if size == REST else parse_size(size)
    if length is not None and length <= 0:
        raise ValueError(f"{text!r}: a partition needs a size")
    return PartitionRequest(length, role, name)


def _realign_goal(top: Entry) -> RealignGoal:
    grain, least = _read_all(partial(_grain, top), partial(top.size, "least_start"))
    least = least or 0
    if least % (grain or MIB):
        raise top.refusal("least_start must be a multiple of the grain")
    return RealignGoal(grain=grain or MIB, grain_given=grain is not None, least_start=least)


def _layout_goal(top: Entry, parts: tuple[Entry, ...]) -> LayoutGoal:
    if not parts:
        raise top.refusal("a layout needs partitions", hint='[[part]]\nsize = "rest"\nrole = "linux"')
    requested, label, grain, spare_end = _read_all(
        lambda: read_each(_part, parts),
        partial(top.choice, "label", LABELS),
        partial(_grain, top),
        partial(top.size, "spare_end"),
    )
    if sum(part.size is None for part in requested) > 1:
        raise top.refusal("only one partition can take the rest")
    return LayoutGoal(tuple(requested), label or LABELS[0], grain or MIB, spare_end or 0)


def _part(entry: Entry) -> PartitionRequest:
    def size() -> int | None:
        found = None if entry.required("size") == REST else entry.size("size")
        if found == 0:
            raise entry.refusal("a partition needs a size")
        return found

    length, role, name, _, _ = _read_all(
        size,
        partial(entry.choice, "role", tuple(ROLES)),
        partial(entry.text, "name"),
        partial(entry.required, "role", tuple(ROLES)),
        partial(entry.allow, *_PART_KEYS),
    )
    return PartitionRequest(length, role or "", name or "")


def _grain(top: Entry) -> int | None:
    grain = top.size("grain")
    if grain is not None and not (grain >= 4096 and is_power_of_two(grain)):
        raise top.refusal("grain must be a power of two of at least 4KiB", hint='grain = "1MiB"')
    return grain
