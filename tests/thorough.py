"""The additional tests of `make test-all`: one variable, ALIGNTOOL_THOROUGH=1."""

import os
import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

THOROUGH = os.environ.get("ALIGNTOOL_THOROUGH") == "1"
# What randomised tests begin with: the same in every `make test`, another one in each `make test-all`. No tree fails by
# chance on a machine that only repeats tests.
SEED = int(os.environ.get("ALIGNTOOL_SEED", "0")) or (random.SystemRandom().randrange(1, 1 << 32) if THOROUGH else 1)


def when_thorough(why: str) -> pytest.MarkDecorator:
    """Return a mark for a test that is too long for `make test`; `why` is what makes it long."""
    return pytest.mark.skipif(not THOROUGH, reason=f"{why}; `make test-all` runs it")


def examples(full: int) -> int:
    """Return how many examples Hypothesis draws: all of them, or every fifth."""
    return full if THOROUGH else max(10, full // 5)


def seeds(full: int) -> range:
    """Return the seeds of a simulation: all of them, or the first third."""
    return range(full if THOROUGH else full // 3)


def sample(cases: int) -> pytest.MarkDecorator:
    """Return a mark for a test with many cases, of which `make test` runs only so many: the same ones every time."""
    return pytest.mark.sample(cases)


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that only `make test-all` runs. Those that are too long by themselves are no choice."""
    if THOROUGH:
        return []
    cases: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        too_long = any(mark.args[:1] == (True,) for mark in item.iter_markers("skipif"))
        if (mark := item.get_closest_marker("sample")) and not too_long:
            cases[item.nodeid.partition("[")[0], *mark.args].append(item)
    more: list[pytest.Item] = []
    for (test, count), every in cases.items():
        chosen = random.Random(test).sample(range(len(every)), min(count, len(every)))
        more += [item for place, item in enumerate(every) if place not in chosen]
    return more
