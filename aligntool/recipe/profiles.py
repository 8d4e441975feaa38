"""Recipes for benchmarks: which loads, how large, how often, without a drive in them.

In: the top table and the [[test]] tables of a file whose kind is "bench". Out: a BenchGoal. Alone because a profile is
what makes two results comparable: whoever changes one must find all of it in one place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from aligntool.recipe.schema import Entry
from aligntool.units import GIB, MIB, format_size, parse_size

ACCESS = ("sequential", "random")
DO = ("read", "write")
PREPARE = ("none", "twice")
SCORES = ("as-ssd",)
BENCH_KEYS = ("size", "runtime", "repeats", "prepare", "until_steady", "score")
_TEST_KEYS = ("access", "block", "depth", "threads", "do")
LEAST_BLOCK, MOST_BLOCK = 512, 64 * MIB
MOST_DEPTH, MOST_THREADS, MOST_TESTS = 1024, 256, 200


@dataclass(frozen=True, slots=True)
class BenchTest:
    """One load. Its name is CrystalDiskMark's: SEQ1M Q8T1, RND4K Q1T1."""

    random: bool
    block: int  # bytes of a request
    depth: int  # requests in flight, of each thread
    threads: int
    write: bool

    @property
    def name(self) -> str:
        size = format_size(self.block).removesuffix("iB").removesuffix("B")
        return f"{'RND' if self.random else 'SEQ'}{size} Q{self.depth}T{self.threads}"

    @property
    def title(self) -> str:
        return f"{self.name} {'write' if self.write else 'read'}"


@dataclass(frozen=True, slots=True)
class BenchGoal:
    tests: tuple[BenchTest, ...]
    size: int = GIB  # bytes that the requests are spread over
    runtime_s: float = 5.0  # of each run
    repeats: int = 5
    prepare: str = (
        "none"  # "twice": everything is overwritten twice first, as SNIA's test specification has it
    )
    until_steady: bool = False  # rounds until the figures are steady, instead of a fixed number
    score: str | None = None

    @property
    def writes(self) -> bool:
        return any(test.write for test in self.tests) or self.prepare != "none"


def bench_goal(top: Entry, rows: Sequence[Entry]) -> BenchGoal:
    """Raises Refused for what is no profile."""
    tests = tuple(dict.fromkeys(test for row in rows for test in _tests(row)))
    if not tests:
        raise top.refusal("a benchmark needs tests", hint='[[test]]\naccess = "random"\nblock = "4KiB"')
    if len(tests) > MOST_TESTS:
        raise top.refusal(f"these are {len(tests)} tests, and {MOST_TESTS} are the most")
    usual = BenchGoal(tests)
    size = top.size("size") or usual.size
    if size < max(test.block * test.threads for test in tests):
        raise top.refusal("size is smaller than the requests of one of the tests")
    runtime = top.number("runtime")
    if runtime is not None and not 0.1 <= runtime <= 86400:
        raise top.refusal("runtime is in seconds, from 0.1 to 86400")
    return BenchGoal(
        tests=tests,
        size=size,
        runtime_s=usual.runtime_s if runtime is None else float(runtime),
        repeats=_count(top, "repeats", 1000) or usual.repeats,
        prepare=top.choice("prepare", PREPARE) or usual.prepare,
        until_steady=top.flag("until_steady") or False,
        score=top.choice("score", SCORES),
    )


def _tests(row: Entry) -> Iterator[BenchTest]:
    """A list in a row stands for a test with each of its values."""
    row.allow(*_TEST_KEYS)
    row.required("access")
    random = row.choice("access", ACCESS) == "random"
    kinds = row.texts("do") or DO
    for kind in kinds:
        if kind not in DO:
            raise row.refusal(f"do cannot be {kind!r}", hint='do = ["read", "write"]')
    for block, threads, depth in product(_blocks(row), _counts(row, "threads"), _counts(row, "depth")):
        yield from (BenchTest(random, block, depth, threads, kind == "write") for kind in kinds)


def _blocks(row: Entry) -> Iterator[int]:
    words = row.texts("block")
    if not words:
        raise row.refusal("block is missing", hint='block = "4KiB"')
    for word in words:
        try:
            size = parse_size(word)
        except ValueError as error:
            raise row.refusal(f"block: {error}") from error
        if not LEAST_BLOCK <= size <= MOST_BLOCK or size % LEAST_BLOCK:
            raise row.refusal(f"block must be a multiple of 512B up to {format_size(MOST_BLOCK)}")
        yield size


def _counts(row: Entry, key: str) -> list[int]:
    value = row.values.get(key, 1)
    most = MOST_DEPTH if key == "depth" else MOST_THREADS
    listed = value if isinstance(value, list) else [value]
    for each in listed:
        if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= most:
            raise row.refusal(f"{key} must be a number from 1 to {most}, or a list of them, not {value!r}")
    if not listed:
        raise row.refusal(f"{key} is an empty list")
    return listed


def _count(top: Entry, key: str, most: int) -> int | None:
    value = top.number(key)
    if value is not None and (value != int(value) or not 1 <= value <= most):
        raise top.refusal(f"{key} must be a whole number from 1 to {most}")
    return None if value is None else int(value)
