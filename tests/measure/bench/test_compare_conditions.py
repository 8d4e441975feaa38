"""Two results compared: invalid results and different conditions, on the terminal, in JSON and on the page."""

import json
from dataclasses import replace
from typing import Any

import pytest

from aligntool.measure.compare import Verdict, compare, differences, doubts
from aligntool.measure.results import Conditions, Result
from aligntool.render.bench import compare_json, compare_lines
from aligntool.render.lines import text_of
from aligntool.render.report.page import show_measurements
from tests.measure.bench.sample_results import result, series


def around(rate: float) -> tuple[float, ...]:
    """Return five runs within two percent of each other."""
    return tuple(rate * share for share in (0.99, 0.995, 1, 1.005, 1.01))


def everywhere(before: Result, after: Result) -> tuple[str, dict[str, Any], str]:
    """Return what the terminal, the JSON and the page print about the two."""
    told = " ".join(" ".join(text_of(compare_lines([before, after], ["a", "b"], width=70))).split())
    page = " | ".join(show_measurements([before, after])[2].notes)
    return told, json.loads(compare_json([before, after], ["a", "b"])), page


def of(seen: Conditions, **drive: object) -> Result:
    """Return a result under these conditions, on a drive with these properties."""
    (known,) = result().conditions.drives
    return replace(
        result(series(*around(100e6))),
        conditions=replace(seen, kernel=seen.kernel or "6.1", drives=(replace(known, **drive),)),  # type: ignore[arg-type]
    )


QUIET = of(Conditions())


@pytest.mark.parametrize(
    ("doubtful", "words"),
    [
        (of(Conditions(), name="md0", array_action="resync"), "md0 is busy with a resync"),
        (of(Conditions(), array_degraded=True), "sda is degraded"),
        (of(Conditions(), kind="nvme", temperature_after_c=83.0), "sda reached 83 °C"),
        (of(Conditions(on_battery=True)), "the machine runs on its battery"),
        (of(Conditions(hole_share=0.5)), "50 % of what is read are holes"),
        (replace(QUIET, complete=False), "not complete: it was interrupted, or fio failed"),
        (replace(QUIET, settings=replace(QUIET.settings, direct=False)), "direct I/O is not possible here"),
    ],
)
def test_a_doubt_about_one_result_is_reported_for_that_result_only(doubtful: Result, words: str) -> None:
    assert list(doubts(QUIET)) == []
    for before, after, side, others in ((QUIET, doubtful, "2", "1"), (doubtful, QUIET, "1", "2")):
        told, document, page = everywhere(before, after)
        line_of_a, line_of_b = told.index(" A 2026"), told.index(" B 2026")
        place = told.index(f"warning: {words[:40]}")
        assert place > line_of_b if side == "2" else line_of_a < place < line_of_b
        assert f"warning: {side}. Made Up 1: {words}" in page and f"warning: {others}. " not in page
        kept = (document["first_warnings"], document["others"][0]["warnings"])
        assert any(words in each for each in kept[int(side) - 1]) and kept[int(others) - 1] == []
        complete = (document["first_complete"], document["others"][0]["complete"])
        assert complete == (before.complete, after.complete)


@pytest.mark.parametrize(
    ("changed", "what", "before", "after"),
    [
        (of(Conditions(governor="performance")), "governor", "not known", "performance"),
        (of(Conditions(kernel="6.12")), "kernel", "6.1", "6.12"),
        (of(Conditions(fio="fio-3.36")), "fio", "not known", "fio-3.36"),
        (of(Conditions(cores=4)), "cores", "not known", "4"),
        (of(Conditions(filesystem="xfs")), "file system", "not known", "xfs"),
        (of(Conditions(caches_dropped=True)), "caches", "not dropped", "dropped"),
        (of(Conditions(), link="8 GT/s x2"), "link of sda", "8 GT/s x4", "8 GT/s x2"),
        (of(Conditions(), name="sdb", scheduler="none"), "scheduler of sda and sdb", "mq-deadline", "none"),
        (of(Conditions(), firmware="2.0"), "firmware of sda", "1.0", "2.0"),
        (of(Conditions(), write_cache="write through"), "write cache of sda", "write back", "write through"),
        (of(Conditions(), queue_depth=1), "queue depth of sda", "32", "1"),
    ],
)
def test_different_conditions_are_reported(changed: Result, what: str, before: str, after: str) -> None:
    first = of(Conditions(), link="8 GT/s x4", firmware="1.0", scheduler="mq-deadline", write_cache="write back")
    told, document, page = everywhere(first, changed)
    assert f"differences: {what}: {before} and {after}" in told
    assert f"difference: {what}: {before} and {after}" in page
    assert document["others"][0]["differences"] == [{"what": what, "before": before, "after": after}]
    told, document, page = everywhere(changed, changed)
    assert "differences: " not in told and "difference: " not in page and document["others"][0]["differences"] == []


def test_firmware_of_another_model_is_not_reported_as_a_different_condition() -> None:
    first, other = of(Conditions(), firmware="1.0"), of(Conditions(), firmware="9", model="Made Up 2")
    assert differences(first, other) == ()
    two = replace(first, conditions=replace(first.conditions, drives=first.conditions.drives * 2))
    assert [each.words for each in differences(first, two)] == ["number of drives: 1 and 2"]


def test_a_drive_that_did_not_reach_steady_state_has_no_verdict() -> None:
    """100, 80, 60, 40, 20: the fitted line falls by 133 % of their average."""
    steady = result(series(*around(100e6)), steady=True)
    falling = result(series(100e6, 80e6, 60e6, 40e6, 20e6), steady=True)
    slow = result(series(*around(10e6)), steady=True)
    assert compare(steady, slow)[0].verdict is Verdict.SLOWER
    why = "NOT steady: RND4K Q1T1 read"
    for before, after in ((steady, falling), (falling, slow), (falling, falling)):
        (ratio,) = compare(before, after)
        assert (ratio.verdict, ratio.chance) == (Verdict.UNSTEADY, None)
        told, document, page = everywhere(before, after)
        assert f"warning: {why[:50]}" in told and " ? " in told and "slower" not in told.split("log10 of B")[0]
        assert document["others"][0]["tests"][0]["verdict"] == "not steady"
        assert why in page
    # The same sequence as repeats is noise of five runs.
    assert compare(result(series(*around(100e6))), result(falling.series[0]))[0].verdict is not Verdict.UNSTEADY
