"""The durations of commands, compared with those that btt (of the package blktrace) reports of the same trace."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from aligntool.measure.logs import open_log
from aligntool.measure.trace import PERCENTILES, Kind, Latency, Moment, read_pattern
from tests.conftest import run
from tests.measure.trace.blktrace_files import (
    COMPLETE,
    DISCARD,
    ISSUE,
    QUEUE,
    READ,
    REQUEUE,
    WRITE,
    Record,
    drawn_records,
    write_trace,
)
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("blkparse", "btt")

KINDS = {READ: Kind.READ, WRITE: Kind.WRITE, DISCARD | WRITE: Kind.DISCARD}


def latencies(log: Path) -> tuple[Latency, ...]:
    with open_log(str(log)) as opened:
        return read_pattern(opened.events).latencies


def of_btt(folder: Path, log: Path) -> dict[Moment, list[float]]:
    """Return every latency in seconds, as listed by btt."""
    name = log.name.removesuffix(".blktrace.0")
    run("sh", "-c", f"cd {folder} && blkparse -q -i {name} -d bin >/dev/null && btt -i bin -l d -q q -o out")
    found = {}
    for moment, prefix in ((Moment.ISSUED, "d"), (Moment.QUEUED, "q")):
        files = [each for each in folder.iterdir() if re.fullmatch(rf"{prefix}_.*\.dat", each.name)]
        found[moment] = [float(line.split()[1]) for file in files for line in file.read_text().splitlines() if line]
    return found


def summary_of_btt(folder: Path) -> dict[Moment, tuple[float, float, float, int]]:
    """Return minimum, mean, maximum and count, to the nanosecond."""
    text = (folder / "out.avg").read_text()
    found = {}
    for moment, word in ((Moment.ISSUED, "D2C"), (Moment.QUEUED, "Q2C")):
        row = re.search(rf"^{word}\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)$", text, re.MULTILINE)
        assert row is not None
        found[moment] = float(row[1]), float(row[2]), float(row[3]), int(row[4])
    return found


def check(one: Latency, seconds: Sequence[float], least: float, middle: float, most: float, count: int) -> None:
    """Compare: the list of btt has microseconds, its summary nanoseconds."""
    assert one.count == len(seconds) == count
    assert one.least / 1e9 == pytest.approx(least, abs=1e-9)
    assert one.most / 1e9 == pytest.approx(most, abs=1e-9)
    assert one.mean / 1e9 == pytest.approx(middle, abs=1e-9)
    ranked = sorted(seconds)
    for percent, value in zip(PERCENTILES, one.percentiles, strict=True):
        exact = ranked[max(ceil(percent / 100 * len(ranked)), 1) - 1]
        assert exact - 1e-6 <= value / 1e9 <= exact * 1.008 + 1e-6


def slower(records: Sequence[Record], seed: int) -> Iterator[Record]:
    """Return the same order of events, with pauses of 1 µs to 30 ms between them."""
    rng, now = random.Random(seed), 0
    for one in records:
        now += round(10 ** rng.uniform(3, 7.5))
        yield replace(one, time_ns=now)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("does", KINDS)
def test_latencies_of_each_kind_are_those_of_btt(tmp_path: Path, seed: int, does: int) -> None:
    drawn = [one for one in drawn_records(seed) if one.does == does and one.action != REQUEUE]
    once = [one for at, one in enumerate(drawn) if not (one.action == ISSUE and at and drawn[at - 1] == one)]
    log = write_trace(tmp_path / "sda.blktrace.0", slower(once, seed))
    expected = of_btt(tmp_path, log)
    exact = summary_of_btt(tmp_path)
    found = {one.since: one for one in latencies(log)}
    assert {one.kind for one in found.values()} == {KINDS[does]} and set(found) == set(expected)
    for since, one in found.items():
        check(one, expected[since], *exact[since])


def test_a_device_with_only_queued_commands_has_only_their_latency(tmp_path: Path) -> None:
    records = [one for one in drawn_records(3) if one.action in (QUEUE, COMPLETE) and one.does == READ]
    log = write_trace(tmp_path / "md0.blktrace.0", slower(records, 3))
    (one,) = latencies(log)
    assert (one.since, one.kind) == (Moment.QUEUED, Kind.READ)
    assert one.count == sum(each.action == COMPLETE for each in records)


def test_commands_that_were_merged_or_split_end_with_their_request(tmp_path: Path) -> None:
    records = [
        Record(1000, QUEUE, READ, 0, 4096), Record(2000, QUEUE, READ, 8, 4096),
        Record(3000, ISSUE, READ, 0, 8192), Record(9000, COMPLETE, READ, 0, 8192),
        Record(10_000, QUEUE, WRITE, 64, 8192), Record(11_000, ISSUE, WRITE, 64, 4096),
        Record(12_000, ISSUE, WRITE, 72, 4096), Record(13_000, COMPLETE, WRITE, 64, 4096),
        Record(20_000, COMPLETE, WRITE, 72, 4096),
    ]  # fmt: skip
    found = {
        (one.since, one.kind): (one.least, one.most, one.count)
        for one in latencies(write_trace(tmp_path / "sda.blktrace.0", records))
    }
    assert found == {
        (Moment.ISSUED, Kind.READ): (6000, 6000, 1),
        (Moment.QUEUED, Kind.READ): (7000, 8000, 2),
        (Moment.ISSUED, Kind.WRITE): (2000, 8000, 2),
        (Moment.QUEUED, Kind.WRITE): (10_000, 10_000, 1),
    }


def test_after_a_requeue_the_drive_s_time_counts_from_the_last_issue(tmp_path: Path) -> None:
    records = [
        Record(1000, QUEUE, READ, 0, 4096), Record(2000, ISSUE, READ, 0, 4096), Record(3000, REQUEUE, READ, 0, 4096),
        Record(7000, ISSUE, READ, 0, 4096), Record(9000, COMPLETE, READ, 0, 4096),
    ]  # fmt: skip
    found = {one.since: one.most for one in latencies(write_trace(tmp_path / "sda.blktrace.0", records))}
    assert found == {Moment.ISSUED: 2000, Moment.QUEUED: 8000}


def test_the_figures_are_printed_and_are_in_the_document(tmp_path: Path) -> None:
    log = write_trace(tmp_path / "sda.blktrace.0", slower(drawn_records(5), 5))
    rows = json.loads(run_aligntool("trace", log, "--json").stdout)["latency"]
    assert {(row["command"], row["since"]) for row in rows} == {
        (kind, since) for kind in ("read", "write", "discard") for since in ("issued", "queued")
    }
    assert all(row["min_s"] <= row["p50_s"] <= row["p99.9_s"] <= row["max_s"] for row in rows)
    text = run_aligntool("trace", log).stdout
    assert "Latency D2C" in text and "Latency Q2C" in text


def test_a_log_without_completions_has_no_latency(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("time_s,op,lba,sectors\n0.1,R,0,8\n0.2,W,8,8\n")
    assert latencies(log) == ()
