"""Which tests may run in parallel when `make test` has several processes (a plugin of pytest-xdist).

Emulated PCs keep one process busy for minutes. Tests that mount, or that have mounts of their own (unshare), run one
after the other in a second one: what is mounted when a mount namespace begins stays mounted until that ends, and a file
system that was unmounted meanwhile is not clean. The files of all other tests are spread over the remaining processes;
a test of loop devices uses only its own. The longest begin first. Tests that time a simulated drive mostly wait: they
run last, in parallel with each other only, and after them those that keep every processor busy. `pytest` with one
process does not use this module.
"""

import ast
import compileall
import fcntl
import gc
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TextIO

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

FEWEST = 6  # some of which wait for a disk, a lock or a time limit
ROOT = Path(__file__).parent.parent
# The files that take longest begin before other files, or the last process would end long after the others.
LONGEST = (
    "tests/mover/test_simulated_mutations.py",
    "tests/mover/test_planned_cuts.py",
    "tests/measure/bench/test_experiment_facts.py",
    "tests/measure/bench/test_drives.py",
    "tests/raid/applying/test_locked_members.py",
    "tests/linux/test_deadline.py",
    "tests/test_architecture.py",
    "tests/fuzz/test_fuzz.py",
    "tests/test_completion.py",
    "tests/cli/test_tui.py",
    "tests/raid/test_sweep_failures.py",
    "tests/mover/test_stalled_disk.py",
    "tests/cli/test_job_control.py",
)
ORDER = {"lab": 0, "mounts": 1, **dict.fromkeys(LONGEST, 2), "timed": 4, "alone": 5}
OTHERS = 3
LONGEST_TIMED = (
    "test_a_disk_that_may_be_overwritten",
    "test_a_drive_with_slow_small_writes",
    "test_a_loop_device_over_a_slow_drive",
    "test_passes_over_the_same_data",
    "test_a_drive_that_maps_32_mib",
    "test_a_drive_that_reads_more_pages",
    "test_a_parallel_drive_gains",
)
HURRY = 5  # how much nicer all others are to tests that go one after the other, or those would end long after them
# How a test is assigned to a group: names and words that it uses, itself or through others of its file.
WORDS = {
    "alone": frozenset({"full_machine"}),
    "timed": frozenset({"right_or_unknown", "slow_drive"}),
    # Some of the file systems that are made are mounted.
    "mounts": frozenset(
        {"mount", "umount", "unmount", "unshare", "mounted", "installed_system", "FILESYSTEMS", "CONTAINERS"}
    ),
}
# They use such words, and mount nothing.
WITHOUT_MOUNTS = ("tests/test_install.py", "tests/mover/test_audit_in_flight.py", "tests/mover/test_stalled_disk.py")
UNTIMED = "test_the_requests_to_the_drive"  # a simulated drive whose requests are counted
# Locked, never written: any three files that every process of this checkout has.
GATE, ROOM, ROOM_OF_TIMED = (Path(__file__).with_name(name) for name in ("workers.py", "conftest.py", "thorough.py"))


def pytest_configure(config: pytest.Config) -> None:
    """Have modules compiled once, even if the environment forbids it: hundreds of programs are started, and an emulated
    processor takes a minute to compile them. pytest compiles tests in its own way, which every process would do with
    all of them at the same time.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        for folder in ("aligntool", "tests"):
            compileall.compile_dir(ROOT / folder, quiet=2)
        if 2 * len([*ROOT.glob("tests/**/test_*-pytest-*.pyc")]) < len([*ROOT.glob("tests/**/test_*.py")]):
            words = (sys.executable, "-m", "pytest", "--collect-only", "-qq", *config.args)
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    gc.disable()  # what is collected is kept, and scanning it for garbage takes as long again


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return max(FEWEST, os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    timed = _places_of_timed([item for item in items if _kind(item.nodeid) == "timed"])
    items.sort(key=lambda item: (ORDER.get(_kind(item.nodeid), OTHERS), timed.get(group(item.nodeid), 0)))


def _places_of_timed(items: list[pytest.Item]) -> dict[str, int]:
    """Return the order of the groups: every other one is a long one, as a waiting process gets two at once."""
    groups = dict.fromkeys(group(item.nodeid) for item in items)
    long = dict.fromkeys(group(item.nodeid) for item in items if item.name.startswith(LONGEST_TIMED))
    others = iter([each for each in groups if each not in long])
    order = [each for one in long for each in (one, next(others, one))]
    return {each: place for place, each in enumerate(dict.fromkeys([*order, *groups]))}


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not hasattr(item.config, "workerinput"):  # the only process
        return (yield)
    kind = _kind(item.nodeid)
    with _hurried() if kind == "mounts" else nullcontext(), _beside(kind):
        return (yield)


@contextmanager
def _hurried() -> Iterator[None]:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, before - HURRY)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


@contextmanager
def _beside(kind: str) -> Iterator[None]:
    """Run in parallel with tests of the same kind, while none of the other kind runs; "alone": in parallel with none.

    First come, first served, except for the timed ones: they wait until no process has others, or each of them would
    keep all other processes waiting, one after the other.
    """
    with ROOM.open() as room, ROOM_OF_TIMED.open() as room_of_timed:
        if kind == "timed":
            while not _only_timed(room, room_of_timed):
                time.sleep(0.1)
        else:
            with GATE.open() as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(room_of_timed, fcntl.LOCK_EX)
                fcntl.flock(room, fcntl.LOCK_EX if kind == "alone" else fcntl.LOCK_SH)
                if kind != "alone":
                    fcntl.flock(room_of_timed, fcntl.LOCK_UN)
        yield


def _only_timed(room: TextIO, room_of_timed: TextIO) -> bool:
    """Enter the room of timed tests if the other one is empty."""
    fcntl.flock(room_of_timed, fcntl.LOCK_SH)
    with suppress(BlockingIOError):
        fcntl.flock(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(room, fcntl.LOCK_UN)
        return True
    fcntl.flock(room_of_timed, fcntl.LOCK_UN)
    return False


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Groups(config, log)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Groups of tests by `group`; xdist's own loadgroup reads marks from test ids, where pytest 9 no
    longer keeps them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which the process crashed, if it did. xdist itself would run it again, in the process that
        takes its place, until none is left to crash.
        """
        units = self.assigned_work.pop(node)
        left = {scope: tests for scope, tests in units.items() if not all(tests.values())}
        if not left:
            return None
        tests = next(iter(left.values()))
        crashed: str = next(test for test, is_done in tests.items() if not is_done)
        tests[crashed] = True
        self.workqueue.update(left)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process at least two tests, if there are as many: it begins none before it knows the next one. xdist
        itself gives one that takes the place of another a single group, and never another if that has a single test.
        """
        if node not in self.registered_collections:  # it has just been started
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def group(nodeid: str) -> str:
    """Tests of one group run in one process, one after the other."""
    kind = _kind(nodeid)
    return f"timed {nodeid.partition('[')[0]}" if kind == "timed" else kind


def _kind(nodeid: str) -> str:
    file, _, test = nodeid.partition("::")
    if file.startswith("tests/lab/"):
        return "lab"
    name = test.partition("[")[0].rpartition("::")[2]
    kind = next((found for found, words in WORDS.items() if name in _tests_of(file, words)), file)
    is_none = (kind == "mounts" and file in WITHOUT_MOUNTS) or name.startswith(UNTIMED)
    return file if is_none else kind


@cache
def _tests_of(file: str, wanted: frozenset[str]) -> frozenset[str]:
    """Return the tests of a file whose decorators or bodies contain one of these words, or a name that leads to one."""
    if not any(word in _text(file) for word in wanted):  # a tree takes a hundred times longer, for each of 500 files
        return frozenset()
    named, functions = _tree(file)
    found = {name for name, words in named.items() if words & wanted}
    while more := {name for name, words in named.items() if words & found} - found:
        found |= more
    return functions if "pytestmark" in found else functions & found


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


@cache
def _tree(file: str) -> tuple[dict[str, set[str]], frozenset[str]]:
    """Return what a file defines, with the words that are used there; and its functions."""
    tree = ast.parse(_text(file))
    functions = frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return dict(pair for node in tree.body for pair in _names_of(node)), functions


def _names_of(node: ast.stmt) -> Iterator[tuple[str, set[str]]]:
    """Return what a statement of a module defines, with the words that are used there."""
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
    """Return the names, attributes, parameters (fixtures) and strings that occur."""
    found: set[str] = set()
    for node in (node for root in nodes for node in ast.walk(root)):
        match node:
            case ast.Constant(value=str(word)) | ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word):
                found.add(word)
    return found
