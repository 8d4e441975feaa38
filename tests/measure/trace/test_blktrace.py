"""Traces of blktrace, compared with the summary that blkparse prints of them."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.measure.logs import LogFormat, open_log
from aligntool.measure.trace import Kind, Moment, Pattern, read_pattern
from tests.cli.old_disks import ROOT
from tests.conftest import run
from tests.measure.trace.blktrace_files import COMPLETE, FLUSH, ISSUE, QUEUE, READ, Record, drawn_records, write_trace

pytestmark = pytest.mark.needs_tools("blkparse")


def pattern_of(log: Path) -> Pattern:
    with open_log(str(log)) as opened:
        return read_pattern(opened.events)


def summary(text: str, words: str) -> list[int]:
    """The figures after "Read Dispatches:" or the like, of the last block of the summary."""
    found = re.findall(rf"{words}:\s+([\d]+)(?:,\s+(\d+)KiB)?", text)[-1]
    return [int(number) for number in found if number]


def dispatched(text: str, kind: str) -> tuple[int, int]:
    """Return commands that were sent and not requeued, and their KiB. blkparse subtracts the KiB, but not the count."""
    count, kib = summary(text, f"{kind} Dispatches")
    return count - summary(text, f"{kind}s Requeued")[0], kib


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", ["<", ">"])
def test_counts_and_bytes_are_those_of_blkparse(tmp_path: Path, seed: int, order: str) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", drawn_records(seed), order=order)
    text = run("blkparse", "-i", log)
    rows = {row.kind: row for row in pattern_of(log).rows}
    assert (rows[Kind.READ].count, rows[Kind.READ].bytes >> 10) == dispatched(text, "Read")
    # blkparse counts discards as writes.
    writes = rows[Kind.WRITE], rows[Kind.DISCARD]
    assert (sum(row.count for row in writes), sum(row.bytes for row in writes) >> 10) == dispatched(text, "Write")


def test_text_and_binary_and_a_renamed_file_give_the_same_pattern(tmp_path: Path) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", drawn_records(9))
    text, renamed = tmp_path / "text", tmp_path / "renamed"
    text.write_text(run("blkparse", "-i", log))
    shutil.copy(log, renamed)
    with open_log(str(text)) as opened:
        assert opened.form is LogFormat.BLKPARSE
    assert pattern_of(text) == pattern_of(log) == pattern_of(renamed)
    assert pattern_of(log).moment is Moment.ISSUED


def test_the_queue_depth_is_that_of_blkparse(tmp_path: Path) -> None:
    records, depth = [], 5
    for first in range(0, 100, depth):
        for action in (ISSUE, COMPLETE):
            records += [Record(0, action, READ, 64 * at, 4096) for at in range(first, first + depth)]
    timed = [Record(1000 * at, one.action, READ, one.sector, one.length) for at, one in enumerate(records)]
    log = write_trace(tmp_path / "sda.blktrace.0", timed)
    assert summary(run("blkparse", "-i", log), "Read depth") == [depth]
    assert pattern_of(log).depths == (20, 20, 40, 20)  # 1, 2, 3 and 4, 5


def test_files_of_several_processors_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    records = [Record(1000 * at, ISSUE, READ, 8 * at, 4096, processor=at % 2) for at in range(100)]
    write_trace(tmp_path / "sda.blktrace.0", records[::2])
    log = write_trace(tmp_path / "sda.blktrace.1", records[1::2])
    (row,) = pattern_of(log).rows
    assert (row.count, row.sequential) == (100, 99)


def test_no_file_of_a_processor_is_omitted_if_a_number_is_missing(tmp_path: Path) -> None:
    records = [Record(1000 * at, ISSUE, READ, 8 * at, 4096, processor=at % 2 * 2 + 1) for at in range(100)]
    write_trace(tmp_path / "sda.blktrace.1", records[::2])
    log = write_trace(tmp_path / "sda.blktrace.3", records[1::2])
    (tmp_path / "sda.blktrace.1.old").write_text("not a log")
    (row,) = pattern_of(log).rows
    assert (row.count, row.sequential) == (100, 99)
    assert pattern_of(log.rename(tmp_path / "renamed")).commands == 50


def test_a_file_that_blkparse_would_read_partially_is_refused_with_a_pipe_to_read_it(tmp_path: Path) -> None:
    records = [Record(1000 * at, ISSUE, READ, 8 * at, 4096, processor=at % 2) for at in range(100)]
    log = write_trace(tmp_path / "from a pipe", records)
    with pytest.raises(Refused, match="records of several processors") as refused:
        pattern_of(log)
    text, aligntool = refused.value.hint.split(" | ")
    assert aligntool == "aligntool trace -"
    read = subprocess.run(["sh", "-c", text], stdout=subprocess.PIPE, check=False)
    if read.returncode == 128 + signal.SIGABRT:
        pytest.skip("this blkparse aborts with -i -, as that of Ubuntu 24.04 does")
    (tmp_path / "text").write_bytes(read.stdout)
    assert pattern_of(tmp_path / "text").commands == 100


def test_two_files_of_one_processor_are_refused(tmp_path: Path) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", drawn_records(0))
    shutil.copy(log, tmp_path / "sda.blktrace.1")
    with pytest.raises(Refused, match=r"sda.blktrace.0 and sda.blktrace.1 have records of the same processor"):
        pattern_of(log)


def test_commands_of_a_device_that_never_issues_are_counted_when_queued(tmp_path: Path) -> None:
    records = [one for one in drawn_records(3) if one.action in (QUEUE, COMPLETE)]
    log = write_trace(tmp_path / "md0.blktrace.0", records)
    pattern = pattern_of(log)
    assert pattern.moment is Moment.QUEUED
    assert pattern.count(Kind.READ) == summary(run("blkparse", "-i", log), "Reads Queued")[0]


def test_a_flush_is_counted_and_has_no_range(tmp_path: Path) -> None:
    records = [Record(1, ISSUE, READ, 8, 4096), Record(2, ISSUE, FLUSH), Record(3, COMPLETE, FLUSH)]
    log = write_trace(tmp_path / "sda.blktrace.0", records)
    assert " FN " in run("blkparse", "-i", log)
    flush = pattern_of(log).rows[-1]
    assert (flush.kind, flush.count, flush.bytes, flush.random) == (Kind.FLUSH, 1, 0, 0)


@pytest.mark.parametrize("length", [3 * 48 - 1, 2 * 48 + 1, 47])
def test_a_truncated_trace_is_refused_although_blkparse_reports_nothing(tmp_path: Path, length: int) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", drawn_records(0))
    log.write_bytes(log.read_bytes()[:length])
    run("blkparse", "-i", log)
    with pytest.raises(Refused, match="is truncated"):
        pattern_of(log)


def test_a_trace_with_other_data_in_it_is_refused(tmp_path: Path) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", drawn_records(0))
    log.write_bytes(log.read_bytes() + bytes(range(96)))
    with pytest.raises(Refused, match="damaged"):
        pattern_of(log)


# Printed by blkparse 1.2.0 for a trace with one event of each kind.
EACH_ACTION = """\
  8,0    0        0     0.000000000     0  m   N cfq said: D W 8 + 8
  8,0    0        3     0.000001000   697  Q   R 36 [kworker 0:1]
  8,0    0        4     0.000002000   697  D   R 36 (12 00 00 00 24 00 ..) [kworker 0:1]
  8,0    0        5     0.000003000   697  C   R (12 00 00 00 24 00 ..) [0]
  8,0    0        6     0.000004000   697  P   N [kworker 0:1]
  8,0    0        7     0.000005000   697  U   N [kworker 0:1] 3
  8,1    0        8     0.000006000   697  A   W 800 + 8 <- (8,0) 2848
  8,0    0        9     0.000007000   697  X   W 800 / 808 [kworker 0:1]
  8,0    0       10     0.000008000   697  M   W 800 + 16 [kworker 0:1]
  8,0    0       11     0.000009000   697  F   W 800 + 16 [kworker 0:1]
  8,0    0       12     0.000010000   697  D   W 800 + 16 [kworker 0:1]
  8,0    0       13     0.000011000   697  C   W 800 + 16 [0]
  8,0    0       14     0.000012000   697  D  FN [kworker 0:1]
CPU0 (sda):
 Reads Queued:           0,        0KiB	 Writes Queued:           0,        0KiB
"""


def test_only_commands_sent_to_the_drive_are_counted_and_a_summary_ends_the_log(tmp_path: Path) -> None:
    log = tmp_path / "text"
    log.write_text(EACH_ACTION)
    told = [(row.kind, row.count, row.bytes) for row in pattern_of(log).rows]
    assert told == [(Kind.WRITE, 1, 8192), (Kind.FLUSH, 1, 0), (Kind.OTHER, 1, 0)]


def test_concatenated_logs_are_not_read_only_up_to_the_first_summary(tmp_path: Path) -> None:
    log = tmp_path / "text"
    log.write_text(2 * EACH_ACTION)
    with pytest.raises(Refused, match="line 16 of the log is an event, after the summary in line 14"):
        pattern_of(log)


def test_a_binary_trace_through_a_pipe_is_refused_with_what_to_type(tmp_path: Path) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", drawn_records(0))
    command = f"cat {shlex.quote(str(log))} | {shlex.join([sys.executable, '-m', 'aligntool', 'trace', '-'])}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 3 and "blkparse -i - | aligntool trace -" in done.stderr
