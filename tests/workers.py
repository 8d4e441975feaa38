"""Which tests may run beside which, where `make test` has several processes (a plugin of pytest-xdist).

Emulated PCs keep one process busy for minutes; tests of devices share the machine's loop devices and mounts, and
therefore go one after the other in a second one; the files of everything else fill the rest. What takes longest begins
first. Tests that time a simulated drive come last, and nothing runs beside them. Alone because `pytest` by itself, with
one process, needs nothing of it.
"""

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

FEWEST = 3
ROOT = Path(__file__).parent.parent
ORDER = {"lab": 0, "machine": 1, "timed": 3}
OTHERS = 2
# Locked, never written: any two files that every process of this checkout has.
GATE, ROOM = Path(__file__), Path(__file__).with_name("conftest.py")


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return max(FEWEST, os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.get(group(item.nodeid), OTHERS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not hasattr(item.config, "workerinput"):  # the only process
        return (yield)
    with _beside_others(alone=group(item.nodeid) == "timed"):
        return (yield)


@contextmanager
def _beside_others(*, alone: bool) -> Iterator[None]:
    """`alone`: from when the others have ended their tests, and they wait. Who comes first goes first."""
    with ROOM.open() as room:
        with GATE.open() as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Groups(config, log)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """By `group`; xdist's own loadgroup reads marks from test ids, where pytest 9 no longer keeps them."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Tests of one group run in one process, one after the other."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/lab/"):
        return "lab"
    text = _text(file)
    return "timed" if "right_or_unknown" in text else "machine" if "needs_root" in text else file


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()
