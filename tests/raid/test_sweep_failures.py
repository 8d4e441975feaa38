"""How a failing sweep over chunks ends: writes are undone, what could not be undone is reported, and measurements are
kept.
"""

import errno
import io
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.cli.app import StandardOutput
from aligntool.cli.arrays import look_at_members
from aligntool.cli.options import ResultFile
from aligntool.cli.raid import save_and_report
from aligntool.errors import Refused, Stopped
from aligntool.measure.arrays import Sweep, SweepRun, defer_signals, plan_sweep
from aligntool.raid.measured import parse_tuning
from aligntool.units import GIB, KIB, MIB
from tests.conftest import find_tool, is_blank, run
from tests.raid.builders import drives, goal, judged
from tests.raid.test_sweep import UUID
from tests.raid.test_tuning import true, tuning
from tests.run_aligntool import program, run_aligntool
from tests.thorough import sample

Make = Callable[..., Path]
on_loops = pytest.mark.needs_root
tools = pytest.mark.needs_tools("losetup", "mdadm", "fio", "blkdiscard")
QUICK = ("--level", "0", "--chunks", "64KiB", "--repeats", "1", "--runtime", "0.1", "--span", "64MiB")


def small(names: list[str]) -> Sweep:
    members, numbers, _, _ = look_at_members(names)
    wanted = replace(goal("raid0"), partitions=numbers, array_uuid=UUID)
    return plan_sweep(members, wanted, chunks=(64 * KIB,), repeats=1, runtime_s=0.1, span=64 * MIB)


def taken(device: str | Path) -> bool:
    """Open it exclusively as a mount does: open(2), O_EXCL."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        assert error.errno == errno.EBUSY
        return True
    return False


@pytest.fixture
def two(sparse: Make, loop: Make) -> list[str]:
    return [str(loop(sparse(GIB, name))) for name in ("a.img", "b.img")]


@pytest.fixture
def sweep_of_links(two: list[str], tmp_path: Path) -> Sweep:
    """Return a sweep whose members have names of their own, which disappear like the node of a drive
    that is removed.
    """
    links = [tmp_path / "pulled", tmp_path / "other"]
    for link, name in zip(links, two, strict=True):
        link.symlink_to(name)
    return replace(small(two), members=tuple(map(str, links)))


@sample(1)
@on_loops
@tools
@pytest.mark.parametrize("at", ["filled", "read"])
def test_a_member_that_disappears_is_named_and_the_others_are_still_emptied(
    sweep_of_links: Sweep, two: list[str], at: str
) -> None:
    """It disappears while the other one is written, so its own data stay; or while it is to be read, which is a load
    that fails before it has written anything.
    """
    gone, other = sweep_of_links.members

    def vanish(words: str, share: float, left_s: float | None) -> None:
        if words.startswith(f"{other} alone: filled" if at == "filled" else f"{gone} alone: read"):
            Path(gone).unlink()

    measuring = SweepRun(sweep_of_links)
    with pytest.raises(Stopped, match=r"pulled was not emptied .*No such file") as stopped:
        measuring.run(vanish, lambda: None)
    assert "nothing was written" not in str(stopped.value) and other not in stopped.value.hint
    assert stopped.value.hint.split("\n")[-2:] == [
        f"sudo aligntool raid tune --clear {gone}",
        f"by hand, with blkdiscard on {gone}: docs/by-hand.md#overwrite-what-is-not-needed",
    ]
    assert (is_blank(two[0]), is_blank(two[1])) == (False, True)
    assert not measuring.complete and not taken(two[0]) and not taken(two[1])
    run("blkdiscard", "--zeroout", two[0])


@on_loops
@tools
def test_members_are_read_again_after_they_are_opened_exclusively(two: list[str]) -> None:
    found: list[bool] = []

    def changed() -> None:
        found.extend(map(taken, two))
        raise Refused("they have changed; nothing was written")

    with pytest.raises(Refused, match="have changed"):
        SweepRun(small(two)).run(lambda *told: None, changed)
    assert found == [True, True]
    assert all(is_blank(each) and not taken(each) for each in two)


@on_loops
@tools
def test_data_written_by_another_program_during_the_confirmation_are_not_overwritten(
    two: list[str], tmp_path: Path
) -> None:
    leader, terminal = pty.openpty()
    with subprocess.Popen(
        program("raid", "tune", *QUICK, "-o", tmp_path / "out.json", *two),
        stdin=terminal, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        os.close(terminal)
        assert child.stderr
        asked = ""
        while "to continue: " not in asked:
            piece = child.stderr.read(1)
            assert piece, asked
            asked += piece
        with Path(two[1]).open("r+b") as file:
            file.write(b"mine" * 1024)
        os.write(leader, " ".join(two).encode() + b"\n")
        said = child.stderr.read()
    os.close(leader)
    assert child.returncode == 3 and f"{Path(two[1]).name} " in said, said
    assert is_blank(two[0])
    with Path(two[1]).open("rb") as file:
        assert file.read(4096) == b"mine" * 1024


@on_loops
@tools
def test_a_failing_read_load_ends_a_sweep_that_has_written(two: list[str], tmp_path: Path) -> None:
    """fio itself fails: it is given an engine that it does not have, for loads that read."""
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "fio"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *--rw=read*) set -- "$@" --ioengine=none-such;; esac\nexec {find_tool("fio")} "$@"\n'
    )
    wrapper.chmod(0o755)
    done = run_aligntool(
        "raid", "tune", *QUICK, "--yes", "-o", tmp_path / "out.json", *two,
        env={"PATH": f"{wrapper.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "none-such" in done.stderr and "the sweep ended early" in done.stderr
    assert "nothing was written" not in done.stderr and is_blank(two[0]) and is_blank(two[1])


@on_loops
@tools
def test_a_closed_output_pipe_ends_the_sweep_and_the_members_are_empty(two: list[str], tmp_path: Path) -> None:
    """As with `raid tune ... 2>&1 | head`."""
    with subprocess.Popen(
        program("raid", "tune", *QUICK, "--yes", "-o", tmp_path / "out.json", *two),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stderr
        for line in child.stderr:
            if "alone: filled" in line:
                break
        child.stderr.close()
    assert child.returncode == 4
    assert is_blank(two[0]) and is_blank(two[1])


def test_a_result_is_saved_before_it_is_printed_to_a_closed_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    measured = tuning(true(k64=1.3), goal("raid0"))
    swept = plan_sweep(
        judged(*drives(4, size=20 * GIB)), replace(goal("raid0"), array_uuid=UUID), repeats=5, runtime_s=5.0
    )
    output = io.TextIOWrapper(io.BufferedWriter(StandardOutput(writing, "w")), "utf-8")
    with monkeypatch.context() as patched, output:
        patched.setattr(sys, "stdout", output)
        said = save_and_report(measured, swept, goal("raid0"), ResultFile(str(tmp_path / "out.json")), [])
    assert said == ["standard output cannot be written: Broken pipe", f"the measurements are in {tmp_path}/out.json"]
    assert parse_tuning((tmp_path / "out.json").read_text()) == measured


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_any_thread_waits_for_the_cleanup(number: signal.Signals) -> None:
    """A thread draws the progress bar on a terminal, and the kernel delivers a signal to any thread that accepts it:
    signal(7).
    """

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before, ended, cleaned = signal.signal(number, stop), threading.Event(), False
    drawing = threading.Thread(target=ended.wait)
    drawing.start()
    try:
        with pytest.raises(KeyboardInterrupt), defer_signals():
            os.kill(os.getpid(), number)
            run("sleep", "0.1")
            cleaned = True
        assert cleaned
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
        ended.set()
        drawing.join()
