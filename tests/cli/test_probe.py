"""The limits of `aligntool probe` and its progress output, on files of this machine."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from aligntool.errors import ExitCode, Refused
from aligntool.measure.timing import opened_disk, time_rounds
from aligntool.measure.unit_design import Kind, design, regions
from aligntool.units import KIB, MIB, Extent
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check
from tests.thorough import sample


def probe(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return run_aligntool("probe", *words)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    made = tmp_path / "disk.img"
    made.write_bytes(bytes(range(256)) * (64 * MIB // 256))
    return made


def moved(pid_io: str) -> int:
    """Return the bytes of read calls, as the kernel counts them (proc(5), /proc/PID/io)."""
    return int(re.findall(r"rchar: (\d+)", pid_io)[0])


def counted(*words: str | Path) -> tuple[int, dict[str, int]]:
    """Return the kernel's byte counts of the process, and those in the result."""
    script = (
        "import sys; from aligntool.__main__ import main; sys.argv[0] = 'aligntool'\n"
        "before = open('/proc/self/io').read()\n"
        "try:\n    main()\n"
        "except SystemExit: pass\n"
        "print(before, open('/proc/self/io').read(), sep='\\0', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "probe", *map(str, words)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    before, after = done.stderr.split("\0")
    document = json.loads(done.stdout)
    check(document)
    return moved(after) - moved(before), document["experiment"]


@sample(1)
@pytest.mark.parametrize("most", [512, 700, 1500])
def test_the_limit_on_bytes_read_is_respected(most: int, image: Path) -> None:
    # Eight sizes from 512 B to 64 KiB, 32 pairs of each, two requests of 1 KiB per pair: a round has 512 KiB.
    words = (image, "--largest", "64KiB", "--sector-size", "512", "--json")
    read, experiment = counted(*words, "--most", f"{most}KiB")
    assert 512 * KIB <= experiment["read"] <= most * KIB
    little, _ = counted(*words, "--most", "512KiB")
    assert read - little <= (most - 512) * KIB + 64 * KIB  # what Python itself reads is the same in both


def test_a_round_that_exceeds_the_limit_is_refused_with_the_required_limit(image: Path) -> None:
    words = (image, "--largest", "64KiB", "--sector-size", "512")
    refused = probe(*words, "--most", "511KiB")
    assert refused.returncode == 3 and "one round of requests reads and writes 1MiB" in refused.stderr
    (most,) = re.findall(r"→ (--most \S+?),", refused.stderr)
    assert probe(*words, *most.split()).returncode == 0


def test_a_largest_unit_that_is_too_small_is_not_reported_as_a_lack_of_space(image: Path) -> None:
    refused = probe(image, "--largest", "8KiB")
    assert refused.returncode == ExitCode.REFUSED and "→ --largest 16KiB" in refused.stderr
    assert probe(image, "--largest", "16KiB", "--limit", "30").returncode == 0


def test_a_round_that_takes_too_long_is_refused_without_a_partial_result(image: Path) -> None:
    rounds = design(regions(Extent(0, 64 * MIB)), 512, (Kind.READ,), Random(1), most=64 * KIB)
    with opened_disk(str(image), write=False) as target, pytest.raises(Refused, match="only 0 of 256 pairs") as refused:
        time_rounds(rounds, target, limit_s=1e-9, most_bytes=MIB)
    assert refused.value.hint.startswith("--limit ")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the test data that a probe leaves in a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def begun(disk: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Probe an empty disk with writes; yield once the timing begins."""
    words = program("probe", disk, "--destructive", "--yes", "--most", "100GiB", "--limit", "60")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    ) as child:
        assert child.stderr
        assert any("timing for" in line for line in child.stderr), "it was to begin"
        yield child


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    made = tmp_path / "disk.img"
    made.touch()
    os.truncate(made, 256 * MIB)
    return made


def test_an_overwritten_disk_is_reported_even_if_nothing_was_measured(blank: Path) -> None:
    with begun(blank) as child:
        (worker,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        _, said = child.communicate()
    assert child.returncode == ExitCode.STOPPED, said
    assert f"there is no result, and parts of {blank} may have been overwritten: the process" in said
    assert "was killed by SIGKILL" in said


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_the_sleep_inhibitor_is_not_part_of_the_timed_process(
    blank: Path, loop: Callable[..., Path], tmp_path: Path
) -> None:
    """A process whose program does nothing would be taken for one that waits for a disk."""
    inhibitor = tmp_path / "systemd-inhibit"
    inhibitor.write_text(f"#!/bin/sh\necho $PPID > {tmp_path}/parent\necho; exec cat\n")
    inhibitor.chmod(0o755)
    with begun(loop(blank), PATH=f"{tmp_path}:{os.environ['PATH']}") as child:
        child.send_signal(signal.SIGINT)
        _, said = child.communicate()
    assert (tmp_path / "parent").read_text().strip() == str(child.pid)
    assert child.returncode == ExitCode.STOPPED, said


def test_a_signal_that_the_caller_ignores_stays_ignored(image: Path) -> None:
    """As with nohup."""
    with subprocess.Popen(
        ["nohup", *program("probe", image, "--largest", "64KiB", "--limit", "2")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stderr
        assert any("timing for" in line for line in child.stderr), "it was to begin"
        child.send_signal(signal.SIGHUP)
        _, said = child.communicate()
    assert child.returncode == 0, said


def test_the_probe_prints_that_it_is_timing_and_its_time_limit(image: Path) -> None:
    words = (image, "--largest", "64KiB", "--limit", "60", "--most", "1MiB")
    assert "timing for at most 60 s\n" in probe(*words).stderr
    reading, writing = pty.openpty()
    with subprocess.Popen(
        program("probe", *words), stdout=subprocess.DEVNULL, stderr=writing,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    ) as child:  # fmt: skip
        os.close(writing)
        seen = b""
        try:
            while part := os.read(reading, 65536):
                seen += part
        except OSError:  # the other end is closed: EIO
            pass
        assert child.wait() == 0, seen
    os.close(reading)
    assert "━".encode() in seen and b"timing for at most" in seen
