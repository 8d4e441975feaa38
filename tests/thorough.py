"""The additional tests of `make test-all`: one variable, ALIGNTOOL_THOROUGH=1."""

import os

import pytest

THOROUGH = os.environ.get("ALIGNTOOL_THOROUGH") == "1"


def when_thorough(why: str) -> pytest.MarkDecorator:
    """Return a mark for a test that is too long for `make test`; `why` is what makes it long."""
    return pytest.mark.skipif(not THOROUGH, reason=f"{why}; `make test-all` runs it")


def examples(full: int) -> int:
    """Return how many examples Hypothesis draws: all of them, or every fifth."""
    return full if THOROUGH else max(10, full // 5)
