"""The additional tests of `make test-all`: one variable, ALIGNTOOL_THOROUGH=1."""

import os
import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

THOROUGH = os.environ.get("ALIGNTOOL_THOROUGH") == "1"


def when_thorough(why: str) -> pytest.MarkDecorator:
    """Return a mark for a test that is too long for `make test`; `why` is what makes it long."""
    return pytest.mark.skipif(not THOROUGH, reason=f"{why}; `make test-all` runs it")


def examples(full: int) -> int:
    """Return how many examples Hypothesis draws: all of them, or every fifth."""
    return full if THOROUGH else max(10, full // 5)


def sample(cases: int) -> pytest.MarkDecorator:
    """Return a mark for a test with many cases, of which `make test` runs only so many: the same ones every time."""
    return pytest.mark.sample(cases)


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that only `make test-all` runs."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not THOROUGH and item.get_closest_marker("sample"):
            cases[item.nodeid.partition("[")[0]].append(item)
    return [item for test, every in cases.items() for item in _without_sample(test, every)]


def _without_sample(test: str, every: list[pytest.Item]) -> list[pytest.Item]:
    (mark,) = {item.get_closest_marker("sample").args for item in every}
    chosen = random.Random(test).sample(range(len(every)), min(*mark, len(every)))
    return [item for place, item in enumerate(every) if place not in chosen]
