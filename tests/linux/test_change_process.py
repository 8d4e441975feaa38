"""A change in a process of its own: the exceptions it passes on, and what is reported while it waits."""

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from aligntool.change import ArrayPlan, Event, MovePlan, Progress, Said, StepBegun, StepDone, TablePlan, Waiting
from aligntool.cli.run_change import apply_and_report
from aligntool.errors import Killed, Refused, Stopped
from aligntool.linux.applying import ChangeInProgress, apply_events
from aligntool.linux.change_process import apply_in_child
from aligntool.linux.child_process import run_in_child
from aligntool.linux.programs import run_program
from aligntool.steps import MakeTable, ShrinkContent, Subject
from aligntool.units import MIB, Extent

PLAN = TablePlan(
    "layout", Subject("disk", 1, 512, None, None, None, None, None, ""), "", (), (MakeTable("gpt", (), False),)
)


def test_a_bug_after_the_first_write_prints_the_resume_command_once(tmp_path: Path) -> None:
    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[ChangeInProgress]:
        def events() -> Iterator[Event]:
            yield StepBegun(0)
            raise ZeroDivisionError

        yield ChangeInProgress(events(), "aligntool resume disk")

    with pytest.raises(ZeroDivisionError) as bug, apply_in_child(locked, PLAN, str(tmp_path), print) as applying:
        apply_events(PLAN, applying, nullcontext(print), lambda *_: None)
    said = "".join(traceback.format_exception(bug.value))
    assert said.count("→ aligntool resume disk") == 1 and "in events" in said


def test_an_unresponsive_disk_is_named_and_ctrl_c_ends_the_wait_before_a_write(tmp_path: Path) -> None:
    fifo = tmp_path / "disk"
    os.mkfifo(fifo)
    notes: list[str] = []

    def tell(note: str) -> None:
        notes.append(note)
        raise KeyboardInterrupt

    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[ChangeInProgress]:
        os.read(os.open(fifo, os.O_RDWR), 1)
        raise Refused("nobody writes to it")
        yield

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), apply_in_child(locked, PLAN, str(fifo), tell, stall_s=0.3):
        raise AssertionError
    assert (
        notes[0].startswith(f"{fifo} has not answered for 0 s. aligntool is waiting") and time.monotonic() - began < 60
    )


def test_ctrl_c_before_a_disk_is_reported_unresponsive_is_sufficient(tmp_path: Path) -> None:
    fifo = tmp_path / "disk"
    os.mkfifo(fifo)
    notes: list[str] = []

    def job(told: Callable[..., None]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as in the kernel, where no signal arrives
        told("begins")
        os.read(os.open(fifo, os.O_RDWR), 1)

    def typed(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before, began = signal.signal(signal.SIGALRM, typed), time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_child(job, str(fifo), lambda _: signal.setitimer(signal.ITIMER_REAL, 0.1), notes.append, stall_s=0.5)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 60 and ["waits for it" in note for note in notes] == [True]


def test_the_results_until_ctrl_c_are_returned() -> None:
    def job(told: Callable[..., None]) -> list[int]:
        found: list[int] = []
        with suppress(KeyboardInterrupt):
            while True:
                told(len(found))
                found.append(len(found))
        return found

    def tell(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    assert run_in_child(job, "disk", tell, print) == [0, 1, 2]


def test_sigterm_to_the_child_counts_as_an_interruption_and_sigkill_does_not() -> None:
    def job(told: Callable[..., None]) -> None:
        told(os.getpid())
        time.sleep(60)

    with pytest.raises(Killed, match="was killed by SIGKILL"):
        run_in_child(job, "disk", lambda pid: os.kill(pid, signal.SIGKILL), print)
    with pytest.raises(KeyboardInterrupt):
        run_in_child(job, "disk", lambda pid: os.kill(pid, signal.SIGTERM), print)


@pytest.mark.parametrize(("in_flight", "end"), [(False, Killed), (True, Stopped)])
def test_a_resume_killed_before_its_first_step_may_have_written(
    tmp_path: Path, in_flight: bool, end: type[Refused | Stopped]
) -> None:
    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[ChangeInProgress]:
        def events() -> Iterator[Event]:
            os.kill(os.getpid(), signal.SIGKILL)
            yield StepBegun(0)

        yield ChangeInProgress(events(), "aligntool resume disk")

    with pytest.raises(end, match="was killed by SIGKILL"), apply_in_child(locked, PLAN, str(tmp_path), print) as begun:
        apply_events(PLAN, begun, nullcontext(print), lambda *_: None, in_flight=in_flight)


@pytest.mark.parametrize(
    ("error", "writes", "why", "hint"),
    [
        (KeyboardInterrupt(), False, "interrupted in step 1 of 1; nothing was written", ""),
        (KeyboardInterrupt(), True, "interrupted in step 1", "aligntool plan realign disk --shrink"),
        (Killed("killed"), True, "killed", "aligntool status disk"),
    ],
)
def test_an_interrupted_shrink_is_reported_as_a_change_once_its_result_is_written(
    error: BaseException, writes: bool, why: str, hint: str
) -> None:
    """It is in flight if it was killed, and complete if it was interrupted, because it defers that."""
    step = ShrinkContent(1, Extent(MIB, 4 * MIB), "ext4", 3 * MIB)
    plan = MovePlan("realign", PLAN.disk, "", (), (step,))

    def events() -> Iterator[Event]:
        yield StepBegun(0)
        if writes:
            yield Said("it is written")
        raise error

    with pytest.raises(Stopped if hint else KeyboardInterrupt, match=why) as raised:
        apply_events(plan, ChangeInProgress(events(), "resume"), nullcontext(print), lambda *_: None)
    assert getattr(raised.value, "hint", "").replace("sudo ", "") == hint


def test_an_interruption_before_the_first_write_says_in_which_step(capsys: pytest.CaptureFixture[str]) -> None:
    plan = MovePlan("realign", PLAN.disk, "", (), (ShrinkContent(1, Extent(MIB, 4 * MIB), "ext4", 3 * MIB),))

    def events() -> Iterator[Event]:
        yield StepBegun(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_and_report(plan, ChangeInProgress(events(), "resume"), json_=False)
    assert capsys.readouterr().err.endswith("\naligntool: interrupted in step 1 of 1; nothing was written\n")


def test_an_interruption_without_words_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    plan = MovePlan("realign", PLAN.disk, "", (), (ShrinkContent(1, Extent(MIB, 4 * MIB), "ext4", 3 * MIB),))
    stopping = ChangeInProgress(iter(()), "resume")
    stops = patch("aligntool.cli.run_change.apply_events", side_effect=KeyboardInterrupt)
    with stops, pytest.raises(KeyboardInterrupt):
        apply_and_report(plan, stopping, json_=False)
    assert capsys.readouterr().err == "aligntool: interrupted\n"


def test_a_long_wait_for_a_disk_is_reported_at_increasing_intervals(tmp_path: Path) -> None:
    fifo = tmp_path / "disk"
    os.mkfifo(fifo)
    notes: list[str] = []

    def job(told: Callable[..., None]) -> None:
        os.read(os.open(fifo, os.O_RDWR), 1)

    def tell(note: str) -> None:
        notes.append(note)
        if "for 4 s" in note:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_child(job, str(fifo), lambda: None, tell, stall_s=0.4)
    seconds = [int(note.split(" for ")[1].split()[0]) for note in notes if "not answered for" in note]
    assert seconds[-3:] == [1, 2, 4]


def test_a_stalled_program_is_reported_and_killed_with_the_process_waiting_for_it(tmp_path: Path) -> None:
    number = tmp_path / "number"

    @contextmanager
    def locked(_: Callable[[str], object]) -> Iterator[ChangeInProgress]:
        def events() -> Iterator[Event]:
            yield StepBegun(0)
            run_program("sh", "-c", f"trap '' TERM; echo $$ > {number}; exec sleep 600")

        yield ChangeInProgress(events(), "aligntool resume disk")

    notes: list[str] = []
    with apply_in_child(locked, PLAN, "disk", notes.append, stall_s=0.3) as applying:
        first = next(event for event in applying.events if isinstance(event, Waiting))
    assert (first.disk, first.request) == ("disk", "any")
    program = int(number.read_text())
    assert [f"process {program} waits" in note for note in notes] == [True]
    deadline = time.monotonic() + 60
    while Path(f"/proc/{program}/cmdline").exists() and Path(f"/proc/{program}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "it was to be killed"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("error", "hints"),
    [
        (Stopped("md0 does not run"), ["sudo aligntool resume md0", "sudo aligntool rollback md0"]),
        (Stopped("", hint="lsblk"), ["lsblk", "sudo aligntool resume md0", "sudo aligntool rollback md0"]),
        (Refused("it is in use"), ["sudo aligntool resume md0", "sudo aligntool rollback md0"]),
    ],
)
def test_a_stopped_array_has_one_command_to_resume_it(error: Exception, hints: list[str]) -> None:
    def events() -> Iterator[Event]:
        yield StepBegun(0)
        raise error

    continued = ChangeInProgress(events(), "sudo aligntool resume md0\nsudo aligntool rollback md0")
    with pytest.raises(Stopped) as raised:
        apply_events(ArrayPlan("raid", PLAN.disk, "", (), PLAN.steps), continued, nullcontext(print), lambda *_: None)
    assert raised.value.hint.split("\n") == hints


@pytest.mark.parametrize(
    ("last", "words"),
    [(Progress(1, MIB, 4 * MIB), "in step 2 of 2, 1MiB of 4MiB copied"), (StepBegun(1), "in step 2 of 2;")],
)
def test_an_interruption_states_the_progress_of_its_own_step(last: Event, words: str) -> None:
    def events() -> Iterator[Event]:
        yield from (StepBegun(0), Progress(0, 3 * MIB, 4 * MIB), StepDone(0), StepBegun(1), last)
        raise KeyboardInterrupt

    plan = replace(PLAN, steps=PLAN.steps * 2)
    with pytest.raises(Stopped, match=words):
        apply_events(plan, ChangeInProgress(events(), ""), nullcontext(print), lambda *_: None)


@pytest.mark.parametrize(("error", "why"), [(MemoryError(), "out of memory"), (OSError(5, "an error"), "an error")])
@pytest.mark.parametrize("writes", [False, True])
def test_a_lack_of_memory_is_reported_like_an_error_of_the_disk(error: Exception, why: str, writes: bool) -> None:
    def events() -> Iterator[Event]:
        yield from [StepBegun(0)] * writes
        raise error

    with pytest.raises(Stopped if writes else Refused, match=f"disk: {why}"):
        apply_events(PLAN, ChangeInProgress(events(), "resume"), nullcontext(print), lambda *_: None)
