"""Print the number of inputs tried at the end of every test run that fuzzed."""

from collections.abc import Callable

import pytest

_COUNTS: pytest.StashKey[list[tuple[str, int, int]]] = pytest.StashKey()

Count = Callable[[str, int, int], None]


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Count:
    """Record a target, its inputs and its failures."""
    counts = request.config.stash.setdefault(_COUNTS, [])

    def add(target: str, tried: int, failures: int) -> None:
        counts.append((target, tried, failures))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = config.stash.get(_COUNTS, [])
    if counts:
        tried, failures = sum(row[1] for row in counts), sum(row[2] for row in counts)
        targets = len({row[0] for row in counts})
        terminalreporter.write_line(f"fuzz: {tried} inputs tried on {targets} targets, {failures} failures")
