"""Files that are not logs, or are damaged: one clear error, exit code 3, and bounded memory."""

import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.errors import Refused
from aligntool.measure import logs
from aligntool.measure.logs import open_log
from aligntool.measure.trace import read_pattern
from tests.run_aligntool import program, run_aligntool
from tests.thorough import when_thorough

HEADER = b"time_s,op,lba,sectors\n"
EVENT = b"  8,0    0        4     0.000003000   697  D   W 135520872 + 16 [fio]\n"
IOLOG = b"fio version 3 iolog\n1 /dev/sda add\n"

HOSTILE = {
    "nothing": (b"", "empty"),
    "zeros": (bytes(10_000), "not text"),
    "an image of a disk": (bytes(510) + b"\x55\xaa", "not text"),
    "prose": (b"Dear Sir,\n", "not a log"),
    "another csv": (b"time,read,write\n1,2,3\n", "not a log"),
    "a header and no more": (HEADER, "no command"),
    "a row without sectors": (HEADER + b"1,R,8\n", "line 2 "),
    "a row with another command": (HEADER + b"1,R,8,8\n1,X,8,8\n", "line 3 "),
    "a row with a negative address": (HEADER + b"1,R,-8,8\n", "line 2 "),
    "a row beyond any disk": (HEADER + b"1,R,8," + b"9" * 30 + b"\n", "line 2 "),
    "a number of ten thousand digits": (HEADER + b"1,R," + b"9" * 10_000 + b",8\n", "line 2 "),
    "a row of no length": (HEADER + b"1,W,8,0\n", "line 2 "),
    "a time that is none": (HEADER + b"noon,W,8,8\n", "line 2 "),
    "a row cut within its last number": (HEADER + b"0,R,0,8\n1,R,8,1", "last line, 3, has no line feed"),
    "a long line": (HEADER + b"1" * 2_000_000, "line 2 .*longer"),
    "text of blkparse, cut": (EVENT + EVENT[:40], "is truncated"),
    "text of blkparse, cut within its last number": (EVENT + EVENT[:62], "is truncated"),
    "text of blkparse with prose in it": (EVENT + b"and so on\n", "line 2 "),
    "text of blkparse with half a line in it": (EVENT + EVENT[:60] + b"\n" + EVENT, "line 2 "),
    "text of blkparse with an address and no length": (EVENT + EVENT[:58] + b"\n" + EVENT, "line 2 "),
    "text of blkparse with a strange device": (EVENT + EVENT.replace(b"8,0", b"sda"), "line 2 "),
    "escape codes": (EVENT + b"\x1b[2J\n", "line 2 "),
    "iolog without commands": (IOLOG, "no command"),
    "iolog, cut": (IOLOG + b"2 /dev/sda read 0 40", "is truncated"),
    "iolog of another version": (b"fio version 4 iolog\n", "not a log"),
    "blktrace, cut": (b"\x07taeabc", "is truncated|not installed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gives_one_clear_error(name: str, tmp_path: Path) -> None:
    content, words = HOSTILE[name]
    log = tmp_path / "log"
    log.write_bytes(content)
    with pytest.raises(Refused, match=words), open_log(str(log)) as opened:
        read_pattern(opened.events)


@pytest.mark.parametrize("name", ["prose", "a long line", "escape codes"])
def test_the_error_consists_of_a_line_and_a_hint(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(HOSTILE[name][0])
    done = run_aligntool("trace", log)
    assert done.returncode == 3 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("  →")]
    assert len(said) == 1 and said[0].startswith("aligntool: "), done.stderr
    assert len(done.stderr) < 500 and "\x1b" not in done.stderr


@given(st.binary(max_size=300), st.sampled_from((b"", HEADER, EVENT, IOLOG)))
def test_any_bytes_are_read_or_refused(content: bytes, beginning: bytes) -> None:
    lines = (beginning + content).split(b"\n")
    for read in (logs.blkparse_events, logs.csv_events, logs.iolog_events):
        with suppress(Refused):
            read_pattern(read(lines))


WORDS = "import resource, sys; from aligntool.cli.app import app; app(sys.argv[1:], standalone_mode=False); "
PEAK = "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


def peak_kib(log: Path) -> int:
    """Return the peak memory of a process that reads the log."""
    words = [sys.executable, "-c", WORDS + PEAK, "trace", str(log)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


@when_thorough("long logs")
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    rows = "".join(f"{number},W,{number * 7919 % 1_000_003 * 8},8\n" for number in range(20_000)).encode()
    short.write_bytes(HEADER + rows)
    long.write_bytes(HEADER + rows * 20)  # 8 MB
    assert abs(peak_kib(long) - peak_kib(short)) < 2048


def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(HEADER)
        file.truncate(16 << 30)  # sparse: 16 GiB of one line
    done = subprocess.run(
        program("trace", log), capture_output=True, text=True, check=False, timeout=20,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20)),
    )  # fmt: skip
    assert done.returncode == 3 and "longer than" in done.stderr


@pytest.mark.parametrize("name", ["/no/such/log", "/", "/dev/null"])
def test_an_unreadable_log_is_refused(name: str) -> None:
    done = run_aligntool("trace", name)
    assert done.returncode == 3 and done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        HEADER + b"0,R,0,8\n1,F\n2,F,,\n3,W,8,8,more\n",
        EVENT + EVENT.replace(b"D   W", b"C   W"),
        IOLOG + b"1 /dev/sda open\n2 /dev/sda read 0 4096\n3 /dev/sda sync 0 0\n4 /dev/sda close\n",
    ],
    ids=["csv", "blkparse", "iolog"],
)
def test_lines_may_end_with_crlf(content: bytes, tmp_path: Path) -> None:
    found = []
    for name, text in (("lf", content), ("crlf", content.replace(b"\n", b"\r\n"))):
        (tmp_path / name).write_bytes(text)
        with open_log(str(tmp_path / name)) as opened:
            found.append(read_pattern(opened.events))
    assert found[0].commands and found[0] == found[1]


def test_standard_input_that_is_closed_is_an_empty_log() -> None:
    words = ("sh", "-c", 'exec "$@" <&-', "sh", *program("trace", "-"))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "standard input is empty" in done.stderr, done.stderr
