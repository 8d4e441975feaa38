"""A change in a process of its own: what it raises, and what is said of it while it waits."""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from aligntool.change import Event, Plan, StepBegun, Waiting
from aligntool.errors import Refused
from aligntool.linux.process import run_program
from aligntool.realign.apart import apart
from aligntool.realign.applying import Applying, apply_events
from aligntool.steps import MakeTable, Subject

PLAN = Plan("layout", Subject("disk", 1, 512, None, None, None, None, None, ""), "", (), (MakeTable("gpt", (), False),))


def test_a_bug_after_the_first_write_says_once_what_to_type(tmp_path: Path) -> None:
    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[Applying]:
        def events() -> Iterator[Event]:
            yield StepBegun(0)
            raise ZeroDivisionError

        yield Applying(events(), "aligntool resume disk")

    with pytest.raises(ZeroDivisionError) as bug, apart(locked, PLAN, str(tmp_path), print) as applying:
        apply_events(PLAN, applying, nullcontext(print), lambda *_: None)
    said = "".join(traceback.format_exception(bug.value))
    assert said.count("→ aligntool resume disk") == 1 and "in events" in said


def test_a_disk_that_is_silent_before_anything_is_written_is_named_and_ends_at_a_word(tmp_path: Path) -> None:
    fifo = tmp_path / "disk"
    os.mkfifo(fifo)
    notes: list[str] = []

    def tell(note: str) -> None:
        notes.append(note)
        raise KeyboardInterrupt

    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[Applying]:
        os.read(os.open(fifo, os.O_RDWR), 1)
        raise Refused("nobody writes to it")
        yield

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), apart(locked, PLAN, str(fifo), tell, stall_s=0.3):
        raise AssertionError
    assert notes[0].startswith(f"{fifo} has not answered for 0 s. It is waited for") and time.monotonic() - began < 10


def test_a_program_that_gets_nowhere_is_reported_and_killed_with_what_waits_for_it(tmp_path: Path) -> None:
    number = tmp_path / "number"

    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[Applying]:
        def events() -> Iterator[Event]:
            yield StepBegun(0)
            run_program("sh", "-c", f"trap '' TERM; echo $$ > {number}; exec sleep 600")

        yield Applying(events(), "aligntool resume disk")

    notes: list[str] = []
    with apart(locked, PLAN, "disk", notes.append, stall_s=0.3) as applying:
        first = next(event for event in applying.events if isinstance(event, Waiting))
    assert (first.disk, first.request) == ("disk", "any")
    program = int(number.read_text())
    assert [f"process {program} waits" in note for note in notes] == [True]
    deadline = time.monotonic() + 10
    while Path(f"/proc/{program}/cmdline").exists() and Path(f"/proc/{program}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "it was to be killed"
        time.sleep(0.05)
