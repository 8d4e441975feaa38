"""Logs of fio, compared with the report of the same run, and by hand with its manual."""

import json
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.measure.logs import LogFormat, open_log
from aligntool.measure.trace import Boundary, Kind, Pattern, read_pattern
from tests.conftest import run

MIB = 1 << 20


def pattern_of(log: Path, *boundaries: Boundary) -> Pattern:
    with open_log(str(log)) as opened:
        assert opened.form is LogFormat.IOLOG
        return read_pattern(opened.events, boundaries)


def fio(tmp_path: Path, *options: str) -> tuple[Path, dict[str, dict[str, int]]]:
    """Run fio over a file of 8 MiB; return its log and its report."""
    data, log, report = tmp_path / "data file", tmp_path / "iolog", tmp_path / "report"
    run("fio", "--name=load", f"--filename={data}", "--filesize=8M", "--ioengine=psync", "--randseed=1",
        f"--write_iolog={log}", "--output-format=json", f"--output={report}", *options)  # fmt: skip
    return log, json.loads(report.read_text())["jobs"][0]


@pytest.mark.needs_tools("fio")
@pytest.mark.parametrize("shape", ["--rw=randread", "--rw=randrw", "--rw=write"])
@pytest.mark.parametrize("size", ["--bs=4k", "--bssplit=4k/50:64k/30:128k/20"])
def test_counts_and_bytes_are_those_of_fio(tmp_path: Path, shape: str, size: str) -> None:
    log, report = fio(tmp_path, shape, size, "--size=2M")
    pattern = pattern_of(log)
    rows = {row.kind: row for row in pattern.rows}
    for kind, name in ((Kind.READ, "read"), (Kind.WRITE, "write")):
        ours = (rows[kind].count, rows[kind].bytes) if kind in rows else (0, 0)
        assert ours == (report[name]["total_ios"], report[name]["io_bytes"])


@pytest.mark.needs_tools("fio")
@pytest.mark.parametrize(("shape", "sequential"), [("--rw=read", 255), ("--rw=write", 255)])
def test_a_sequential_load_is_sequential_except_for_its_first_command(
    tmp_path: Path, shape: str, sequential: int
) -> None:
    log, _ = fio(tmp_path, shape, "--bs=4k", "--size=1M")
    assert [row.sequential for row in pattern_of(log).rows if row.bytes] == [sequential]


@pytest.mark.needs_tools("fio")
def test_a_random_load_is_sequential_only_by_chance(tmp_path: Path) -> None:
    log, _ = fio(tmp_path, "--rw=randread", "--bs=4k", "--size=8M", "--norandommap")
    (row,) = pattern_of(log).rows
    assert row.count == 2048 and row.sequential < 10  # one is expected


@pytest.mark.needs_tools("fio")
def test_a_load_that_begins_512_bytes_past_a_boundary_is_off_the_grid_and_straddles(tmp_path: Path) -> None:
    log, _ = fio(
        tmp_path, "--rw=randwrite", "--bs=4k", "--size=1M", "--offset=512", "--blockalign=512", "--norandommap"
    )
    offsets = [int(line.split()[-2]) for line in log.read_text().splitlines() if " write " in line]
    off = sum(1 for offset in offsets if offset % 4096)
    assert off > 100
    (crossing,) = pattern_of(log, Boundary("", 4096)).rows[0].crossings
    assert crossing.off == crossing.straddling == off


VERSION_2 = """fio version 2 iolog
/dev/sda add
/dev/sda open
/dev/sda read 0 4096
/dev/sda wait 1000 0
/dev/sda read 4096 4096
/dev/sda trim 0 65536
/dev/sda datasync 0 0
/dev/sda write 8192 512
/dev/sda close
"""


def test_version_2_is_read_as_in_the_manual(tmp_path: Path) -> None:
    log = tmp_path / "iolog"
    log.write_text(VERSION_2)
    told = {row.kind: (row.count, row.bytes, row.sequential) for row in pattern_of(log).rows}
    assert told == {
        Kind.READ: (2, 8192, 1),
        Kind.WRITE: (1, 512, 0),
        Kind.DISCARD: (1, 65536, 0),
        Kind.FLUSH: (1, 0, 0),
    }


@pytest.mark.needs_tools("fio")
@pytest.mark.parametrize(("way", "flushes"), [("--sync_file_range=write:4", 0), ("--fdatasync=4", 63)])
def test_only_a_sync_that_reaches_the_drive_is_a_flush(tmp_path: Path, way: str, flushes: int) -> None:
    log, _ = fio(tmp_path, "--rw=randwrite", "--bs=4k", "--size=1M", way)
    counts = {row.kind: row.count for row in pattern_of(log).rows}
    assert counts == {Kind.WRITE: 256} | ({Kind.FLUSH: flushes} if flushes else {})


@pytest.mark.parametrize(
    "line",
    ["/dev/sda read 0", "/dev/sda eat 0 4096", "/dev/sda read -1 4096", "/dev/sda read 0 0", "nonsense", "a b c d e"],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: str) -> None:
    log = tmp_path / "iolog"
    log.write_text(f"{VERSION_2}{line}\n/dev/sda add\n")
    with pytest.raises(Refused, match="line 11 "):
        pattern_of(log)
