"""All recognisers, each of which can be removed: `pytest -p tests.mover.recognisers`, its name in ALIGNTOOL_WITHOUT.

A recogniser that no test misses, and without which no byte is lost, need not exist. As a program, this prints those:
`python -m tests.mover.recognisers [FROM [TO]]`, a line for each as soon as it is known. The tests are collected once,
and a fork for each recogniser runs them until one fails: a second or less where one does.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TUPLES = {
    "aligntool.contents.catalogue": (
        "OWNER_READERS",
        "FILE_SYSTEM_READERS",
        "ON_FLOPPIES",
        "LAST_RESORT",
        "SIGNATURES",
    ),
    "aligntool.contents.other": ("DRBD_MARKS", "OWNER_MARKS", "OTHERS"),
    "aligntool.formats.other_tables": ("_BOOT_SECTOR_MAGICS", "_MAGICS"),
    "aligntool.formats.tables": ("_MAGICS", "_ENCRYPTION"),  # boot programs before the first partition; in sector 0
}
WITHIN = {"SIGNATURES": "CONTENT_SIGNATURES"}  # a list that is a part of another one
# Without root and quick; those of moves come last.
TESTS = (
    "tests/contents", "tests/formats", "tests/realign", "tests/audit/peers", "tests/audit",
    "tests/mover/test_recognition.py",
)  # fmt: skip
FIRST: dict[str, str | tuple[str, ...]] = {  # the tests that are likely to miss a recogniser of this module
    "aligntool.contents.catalogue": (
        "tests/contents/test_as_libblkid.py",
        "tests/mover/test_recognition.py::test_a_signature_that_libblkid",
        "tests/mover/test_recognition.py::test_nothing_is_recognised_once",
    ),
    "aligntool.contents.other": "tests/contents/test_as_libblkid.py",
    "aligntool.formats.other_tables": "tests/formats/test_boot_sectors.py",
    "aligntool.formats.tables": "tests/formats/test_boot_programs.py",
}
LIMIT_S = 900  # of all tests without one recogniser: a reader that is missing may also make a search endless


def names() -> Iterator[str]:
    """Yield the module, tuple and index of each recogniser."""
    for module, tuples in TUPLES.items():
        loaded = importlib.import_module(module)
        for each in tuples:
            yield from (f"{module}:{each}:{index}" for index in range(len(getattr(loaded, each))))


def describe(name: str) -> str:
    """Return what a recogniser looks for."""
    module, each, index = name.split(":")
    found = getattr(importlib.import_module(module), each)[int(index)]
    text = getattr(found, "__name__", None) or str(getattr(found, "func", found))
    return f"{module.removeprefix('aligntool.formats.')}.{each}: {text[:90]}"


def remove(name: str) -> None:
    """Remove a recogniser, also from the modules that have imported its list by name."""
    module, each, index = name.split(":")
    loaded = importlib.import_module(module)
    gone = getattr(loaded, each)[int(index)]
    for attribute in (each, WITHIN.get(each, each)):
        before = getattr(loaded, attribute)
        after = tuple(one for one in before if one is not gone)
        for user in [one for one in sys.modules.values() if isinstance(one, ModuleType)]:
            for key in [key for key, value in vars(user).items() if value is before]:
                setattr(user, key, after)


class Removals:
    """A plugin that runs the collected tests once for each recogniser, without it, and prints whether one fails."""

    def __init__(self, removed: list[str]) -> None:
        self.removed = removed
        self.not_needed: list[str] = []
        self._elapsed_s: dict[str, float] = {}  # of tests that ran; quick ones come first
        self._missed_by: list[str] = []  # the latest test that failed comes first: neighbours in a list share one

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # a fork would otherwise copy all tests when it collects garbage
        for name in self.removed:
            missed_by = self._missing_test(session, name)
            if not missed_by:
                self.not_needed.append(name)
            words = (
                ("needed    ", name, describe(name), missed_by) if missed_by else ("NOT NEEDED", name, describe(name))
            )
            print(*words, flush=True)
        return True

    def _missing_test(self, session: pytest.Session, name: str) -> str:
        """Return the test that fails without a recogniser; empty if none does."""
        items = sorted(session.items, key=lambda item: self._order(item.nodeid, name))
        failed = self._run(items, name)
        is_new = failed and failed not in self._missed_by
        if is_new and self._run([item for item in items if item.nodeid == failed], ""):
            raise AssertionError(f"{failed} also fails if nothing is removed")
        if failed:
            self._missed_by = [failed, *(one for one in self._missed_by if one != failed)]
        return failed

    def _run(self, items: list[pytest.Item], without: str) -> str:
        """Run tests in a fork. Return the first one that fails; empty if none does."""
        with tempfile.TemporaryFile("w+") as answer:
            child = os.fork()
            if child == 0:
                _run_without(without, items, answer.fileno())
            os.waitpid(child, 0)
            answer.seek(0)
            lines = answer.read().splitlines()
        failed = ""
        for nodeid, elapsed_s, has_failed in map(json.loads, lines):
            self._elapsed_s[nodeid] = elapsed_s
            failed = nodeid if has_failed else failed
        if not failed and len(lines) < len(items):
            raise AssertionError(f"without {without}, the tests ended after {len(lines)} of {len(items)}")
        return failed

    def _order(self, nodeid: str, name: str) -> tuple[int, bool, float]:
        latest = self._missed_by.index(nodeid) if nodeid in self._missed_by else len(self._missed_by)
        is_likely = nodeid.startswith(FIRST.get(name.split(":")[0], ()))
        return latest, not is_likely, self._elapsed_s.get(nodeid, 0)


def _run_without(name: str, items: list[pytest.Item], answer: int) -> None:
    """In a fork: write a line of JSON for each test, until one fails: its name, its seconds, whether it failed."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    code = 1
    try:
        if name:
            remove(name)
        servers = importlib.import_module("tests.run_aligntool")
        vars(servers)["_SERVER"] = servers._Server()  # the old one was forked before the removal
        reports: list[pytest.TestReport] = []
        items[0].config.pluginmanager.register(_Reports(reports))
        begin = time.monotonic()
        for item, following in zip(items, (*items[1:], None), strict=True):
            started = time.monotonic()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            failed = any(report.failed for report in reports) or started - begin > LIMIT_S
            os.write(answer, f"{json.dumps((item.nodeid, time.monotonic() - started, failed))}\n".encode())
            if failed:
                break
        code = 0
    finally:
        os._exit(code)


class _Reports:
    def __init__(self, reports: list[pytest.TestReport]) -> None:
        self._reports = reports

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)


def run_without_each(removed: list[str], tests: tuple[str, ...] = TESTS) -> list[str]:
    """Print whether a test fails without each of these recognisers, and return those that no test misses."""
    plugin = Removals(removed)
    with tempfile.TemporaryDirectory(prefix="aligntool-recognisers-") as folder:
        options = ("-q", "-s", "-p", "no:cacheprovider", f"--basetemp={Path(folder, 'tests')}")
        pytest.main([*options, *tests], plugins=[plugin])
    return plugin.not_needed


def main(words: list[str]) -> None:
    every = list(names())
    first, last = (*map(int, words), *(0, len(every))[len(words) :])
    run_without_each(every[first:last])


if without := os.environ.get("ALIGNTOOL_WITHOUT"):
    remove(without)

if __name__ == "__main__":
    main(sys.argv[1:])
