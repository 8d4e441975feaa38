"""Options given with a profile: contradictions, measurements that take long, and the place of measurement."""

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aligntool.change import Progress
from aligntool.cli.app import app
from aligntool.measure.results import Conditions, DriveState
from aligntool.measure.schedule import BenchOptions
from aligntool.measure.targets import find_target
from aligntool.render.bench import bench_plan_lines
from aligntool.render.lines import text_of
from aligntool.render.progress import Pace, bench_progress_lines
from aligntool.units import MIB
from tests.measure.bench.test_profiles import plan_of


@pytest.mark.parametrize("other", [("--repeats", "3"), ("--runtime", "2")])
def test_passes_contradict_repeats_and_seconds(tmp_path: Path, other: tuple[str, str]) -> None:
    done = CliRunner().invoke(app, ["bench", "run", str(tmp_path), "--passes", "1,5", *other])
    assert done.exit_code == 2 and other[0] in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--passes", "1,500"), ("--repeats", "1000"), ("--runtime", "3000")])
def test_a_measurement_of_hours_requires_confirmation(tmp_path: Path, words: tuple[str, str]) -> None:
    """Standard input is not a terminal here, so there can be no confirmation."""
    done = CliRunner().invoke(app, ["bench", "run", str(tmp_path), "--span", "1MiB", *words])
    assert done.exit_code != 0 and not isinstance(done.exception, AssertionError)
    assert "this takes about" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_estimated_time_is_shown_and_grows_with_the_number_of_passes() -> None:
    """The hard disk of an article takes two minutes for 64 MiB at random, one request at a time."""
    plan = plan_of("boot", wish=BenchOptions(passes=(1, 5)))
    assert 9 * 120 <= plan.seconds(rotational=True) <= 11 * 140
    assert plan.seconds(rotational=False) < 60
    many = plan_of("crystaldiskmark", wish=BenchOptions(passes=(1, 500)))
    assert 3600 < many.seconds(rotational=False) < 4 * 3600 < many.seconds(rotational=True)
    for turns, word in ((True, "hard disk"), (False, "SSD")):
        seen = Conditions(drives=(DriveState("sda", rotational=turns),))
        assert word in "".join(text_of(bench_plan_lines(many, seen, width=200)))


def test_a_result_stores_the_full_path_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(bytes(MIB))
    monkeypatch.chdir(tmp_path)
    for named, place in (
        (".", tmp_path), ("folder", tmp_path / "folder"), ("./folder/", tmp_path / "folder"),
        ("folder/new", tmp_path / "folder/new"), ("./file", tmp_path / "file"), ("folder/..", tmp_path),
    ):  # fmt: skip
        assert find_target(named).place == str(place)


def test_progress_omits_the_remaining_time_below_one_second() -> None:
    stream = io.StringIO()
    with bench_progress_lines(stream) as tell:
        for text, left_s in (("a", 90.0), ("b", 1.2), ("c", 0.3), ("d", 0.0)):
            tell(text, 0.5, left_s)
    assert [" left" in line for line in stream.getvalue().splitlines()] == [True, True, False, False]
    times = iter((0.0, 10.0, 20.0))
    pace = Pace(lambda: next(times))
    words = [pace.words(Progress(1, done, 100 * MIB)) for done in (0, 50 * MIB, 100 * MIB)]
    assert [" left" in each for each in words] == [False, True, False]
