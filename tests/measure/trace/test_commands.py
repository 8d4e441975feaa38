"""`aligntool trace` and `aligntool estimate boot` as a user types them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import run
from tests.run_aligntool import run_aligntool

BOOT = "time_s,op,lba,sectors,who\n" + "".join(
    f"0.{number},{'W' if number % 3 == 0 else 'R'},{8 * (number * 37 % 101)},8,init\n" for number in range(90)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Write 60 reads and 30 writes of 4 KiB, each at a multiple of 4 KiB."""
    path = tmp_path / "boot.csv"
    path.write_text(BOOT)
    return path


def rows(*words: str | Path, stdin: str = "") -> dict[str, dict[str, object]]:
    done = run_aligntool("trace", "--json", *words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return {row["command"]: row for row in json.loads(done.stdout)["commands"]}


def alignment(*words: str | Path) -> dict[int, tuple[int, int]]:
    """Return writes that start off the grid, and that straddle it, by the size of the grid."""
    found = rows(*words)["write"]["alignment"]
    assert isinstance(found, list)
    return {one["size"]: (one["off_grid"], one["straddling"]) for one in found}


def test_the_table_shows_count_bytes_and_random_commands(log: Path) -> None:
    done = run_aligntool("trace", log)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["read", "60", "240KiB", "0", "60", "100.0", "%"] in lines
    assert ["write", "30", "120KiB", "0", "30", "100.0", "%"] in lines
    assert ["4KiB", "60", "30"] in lines
    assert "Queue depth" not in done.stdout  # the log does not contain when commands ended


def test_standard_input_is_read_like_a_file(log: Path) -> None:
    assert rows("-", stdin=BOOT) == rows(log)


def test_a_given_format_is_not_guessed(log: Path) -> None:
    assert rows(log, "--log-format", "csv") == rows(log)
    assert run_aligntool("trace", log, "--log-format", "iolog").returncode == 3


def test_requests_are_compared_with_a_given_grid(log: Path) -> None:
    assert alignment(log, "--grid", "4KiB") == {4096: (0, 0)}
    assert alignment(log, "--grid", "4KiB", "--phase", "512") == {4096: (30, 30)}
    assert alignment(log, "--grid", "4KiB", "--phase", "0") == {4096: (0, 0)}


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(("start", "off"), [(63, 30), (2048, 0)])
def test_a_log_of_a_partition_is_off_the_grid_as_the_partition_is(
    log: Path, sparse: Callable[..., Path], start: int, off: int
) -> None:
    disk = sparse(64 << 20)
    run("sfdisk", "-q", disk, stdin=f"label: dos\nstart={start}, size=16065\n")
    assert alignment(log, "--disk", disk, "-p", "1") == {4096: (off, off)}
    assert alignment(log, "--disk", disk) == {4096: (0, 0)}  # the log counts from the start of the disk
    refused = run_aligntool("trace", log, "--disk", disk, "-p", "9")
    assert refused.returncode == 3 and "no partition 9" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "log", "--phase", "512"),
        ("trace", "log", "-p", "1"),
        ("trace", "log", "--grid", "4KiB", "--disk", "disk"),
        ("trace", "log", "--log-format", "pcap"),
        ("trace",),
        ("estimate", "boot"),
        ("estimate", "boot", "--rate-a", "fast"),
        ("estimate", "boot", "--rate-a", "1", "--reads", "-1"),
    ],
)
def test_contradictory_or_invalid_arguments_are_a_usage_error(words: tuple[str, ...]) -> None:
    done = run_aligntool(*words)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_the_estimate_uses_the_articles_counts_unless_others_are_given(log: Path) -> None:
    words = ("estimate", "boot", "--json", "--rate-a", "100,20", "--rate-b", "300")
    article = json.loads(run_aligntool(*words).stdout)
    assert (article["reads"], article["writes"]) == (40_553, 4_938)
    traced = json.loads(run_aligntool(*words, "--trace", log).stdout)
    assert (traced["reads"], traced["writes"]) == (60, 30)
    given = json.loads(run_aligntool(*words, "--trace", log, "--writes", "7").stdout)
    assert (given["reads"], given["writes"]) == (60, 7)
    a, b = article["drives"]
    assert article["gap_s"] == pytest.approx(a["boot_s"] - b["boot_s"])


def test_the_estimate_shows_the_difference_of_the_article() -> None:
    # 40 µs against 10 µs a read, 250 µs against 50 µs a write, as rates.
    done = run_aligntool("estimate", "boot", "--rate-a", "102.4,16.384", "--rate-b", "409.6,81.92",
                     "--reads", "40000", "--writes", "5000")  # fmt: skip
    assert "drive B is 2.2 s faster than A" in done.stdout
    assert "30.00 µs × 40,000 + 200.0 µs × 5,000" in done.stdout
