"""Which tests may run beside which, where `make test` has several processes (a plugin of pytest-xdist).

Emulated PCs keep one process busy for minutes; tests of devices share the machine's loop devices and mounts, and
therefore go one after the other in a second one; the files of everything else fill the rest. What takes longest begins
first. Tests that time a simulated drive come last, and nothing runs beside them. Alone because `pytest` by itself, with
one process, needs nothing of it.
"""

import ast
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
# The files that take longest begin before other files, or the last process would end long after the others.
LONGEST = ("tests/test_architecture.py", "tests/moving/test_simulated_mutations.py", "tests/fuzz/test_fuzz.py")
ORDER = {"lab": 0, "machine": 1, **dict.fromkeys(LONGEST, 2), "timed": 4}
OTHERS = 3
# By what a test is known to belong to a group: names that it uses, itself or through others of its file.
WORDS = {
    "timed": frozenset({"right_or_unknown", "slow_drive"}),
    # Some of the file systems that are made are mounted.
    "machine": frozenset({"needs_root", "FILESYSTEMS", "CONTAINERS"}),
}
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
    file, _, test = nodeid.partition("::")
    if file.startswith("tests/lab/"):
        return "lab"
    name = test.partition("[")[0].rpartition("::")[2]
    return next((found for found, words in WORDS.items() if name in _tests_of(file, words)), file)


@cache
def _tests_of(file: str, wanted: frozenset[str]) -> frozenset[str]:
    """The tests of a file in whose decorators and bodies is one of these words, or a name that leads to one."""
    tree = ast.parse((ROOT / file).read_text())
    named = dict(pair for node in tree.body for pair in _names_of(node))
    found = {name for name, words in named.items() if words & wanted}
    while more := {name for name, words in named.items() if words & found} - found:
        found |= more
    functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return frozenset(functions if "pytestmark" in found else found.intersection(functions))


def _names_of(node: ast.stmt) -> Iterator[tuple[str, set[str]]]:
    """What a statement of a module defines, with the words that are used there."""
    match node:
        case ast.ClassDef():
            marks = _words(*node.decorator_list)
            for inner in node.body:
                yield from ((name, words | marks) for name, words in _names_of(inner))
        case ast.FunctionDef():
            yield node.name, _words(node)
        case ast.Assign(targets=[ast.Name(name), *_]) | ast.AnnAssign(target=ast.Name(name)):
            yield name, _words(node)
        case ast.ImportFrom():
            yield from ((alias.asname or alias.name, {alias.name}) for alias in node.names)


def _words(*nodes: ast.AST) -> set[str]:
    """The names, attributes and parameters (fixtures) that occur."""
    found = {node.id for root in nodes for node in ast.walk(root) if isinstance(node, ast.Name)}
    found |= {node.attr for root in nodes for node in ast.walk(root) if isinstance(node, ast.Attribute)}
    return found | {node.arg for root in nodes for node in ast.walk(root) if isinstance(node, ast.arg)}
