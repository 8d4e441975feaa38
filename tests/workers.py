"""Which tests may run beside which, where `make test` has several processes (a plugin of pytest-xdist).

Emulated PCs keep one process busy for minutes; tests of devices share the machine's loop devices and mounts, and
therefore go one after the other in a second one; the files of everything else fill the rest. What takes longest begins
first. Alone because `pytest` by itself, with one process, needs nothing of it.
"""

import os
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

FEWEST = 3
ROOT = Path(__file__).parent.parent
ORDER = {"lab": 0, "machine": 1}


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return max(FEWEST, os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.get(group(item.nodeid), len(ORDER)))


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
    return "machine" if _takes_devices(file) else file


@cache
def _takes_devices(file: str) -> bool:
    return "needs_root" in (ROOT / file).read_text()
