"""Result files: they are read back as written, and an invalid file is refused in one sentence."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.measure.results import LARGEST, from_json, to_json
from aligntool.measure.targets import history_folder, list_results, read_result
from tests.measure.bench.sample_results import result, series
from tests.schemas import check

GOOD = result(series(1e6, 2e6), series(3e6, depth=32, write=True), passes=(1, 5), score="as-ssd")


def test_a_result_is_read_back_unchanged_and_conforms_to_the_schema() -> None:
    for made in (GOOD, result(series(1e6)), result(), replace(GOOD, complete=False, skipped=("a: b",))):
        check(json.loads(to_json(made)))
        assert from_json(to_json(made), "x.json") == made


def test_a_name_that_is_not_utf8_is_written_as_valid_json() -> None:
    text = to_json(replace(GOOD, target="/srv/\udcff"))
    assert from_json(text, "x").target == "/srv/\ufffd"


def document(change: Callable[[dict[str, object]], object]) -> str:
    made: dict[str, object] = json.loads(to_json(GOOD))
    change(made)
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("{", "not JSON at line 1, column 2"),
        ("[]", "the document"),
        ("{}", "schema"),
        ("[" * 200_000, "nested too deeply"),
        ('{"schema": "aligntool.plan"}', "schema"),
        ('{"schema": "aligntool.bench", "version": 2}', "has version 2, but this aligntool reads version 1"),
        ("9" * 10_000, ""),
        (document(lambda d: d.update(series=3)), "series"),
        (document(lambda d: d.update(series=[3])), "series[0]"),
        (document(lambda d: d.update(series=[{}] * 10_001)), "series"),
        (document(lambda d: d.update(complete="yes")), "complete"),
        (document(lambda d: d.update(target="x" * 5000)), "target"),
        (document(lambda d: d.update(skipped=[1])), "skipped[0]"),
        (document(lambda d: d.pop("conditions")), "conditions"),
        (document(lambda d: d["conditions"].update(free=1e400)), ""),  # type: ignore[attr-defined]
        (document(lambda d: d["settings"].update(passes=[0])), "passes"),  # type: ignore[attr-defined]
        (document(lambda d: d["settings"].update(span=-1)), "span"),  # type: ignore[attr-defined]
        (document(lambda d: d["settings"].update(span=1.5)), "not a whole number"),  # type: ignore[attr-defined]
        (document(lambda d: d["series"][0].update(samples=[])), "without samples"),  # type: ignore[index]
        (document(lambda d: d["series"][0].update(block=0)), "test without requests"),  # type: ignore[index]
        (document(lambda d: d["series"][0]["samples"][0].update(iops="9")), "iops"),  # type: ignore[index]
        (document(lambda d: d["series"][0]["samples"][0].update(cpu=-1)), "cpu"),  # type: ignore[index]
        (document(lambda d: d["series"][0]["samples"][0].update(cpu=True)), "cpu"),  # type: ignore[index]
        (document(lambda d: d["series"].append(d["series"][0])), "same test twice"),  # type: ignore[attr-defined,index]
    ],
)
def test_a_document_that_is_not_a_result_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Refused, match=r"x\.json is not a result") as refused:
        from_json(text, "x.json")
    assert why in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_damaged_results_are_read_or_refused_without_another_exception() -> None:
    """Any byte may be changed."""
    rng, text = random.Random(5), to_json(GOOD)
    ended = {"read": 0, "refused": 0}
    for _ in range(600):
        damaged = list(text)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = chr(rng.choice([0, 34, 44, 45, 48, 57, 91, 123, 125, 0x20AC]))
        try:
            from_json("".join(damaged), "x")
            ended["read"] += 1
        except Refused:
            ended["refused"] += 1
    assert ended["read"] > 20 and ended["refused"] > 20


def test_unreadable_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large").write_bytes(b" " * (LARGEST + 1))
    for name, why in (
        ("binary", "not a text file"),
        ("large", "too large"),
        ("gone", "No such file"),
        (".", "directory"),
    ):
        with pytest.raises(Refused, match=why):
            read_result(str(tmp_path / name))


def test_the_history_lists_its_results_and_marks_files_that_are_not_results(tmp_path: Path) -> None:
    (tmp_path / "2.json").write_text(to_json(GOOD))
    (tmp_path / "1.json").write_text("{}")
    (tmp_path / "note.txt").write_text("x")
    found = list_results(tmp_path)
    shown = [(Path(each.file).name, each.when, each.target) for each in found]
    assert shown == [("1.json", None, None), ("2.json", GOOD.when, GOOD.target)]
    assert "not a result" in str(found[0].complaint) and found[1].complaint is None
    assert list_results(tmp_path / "gone") == []


def test_the_history_is_stored_where_the_xdg_specification_requires() -> None:
    home = {"HOME": "/home/me"}
    assert history_folder(home, root=False) == Path("/home/me/.local/state/aligntool/bench")
    assert history_folder(home, root=True) == Path("/var/lib/aligntool/bench")
    assert history_folder(home | {"XDG_STATE_HOME": "/x"}, root=True) == Path("/x/aligntool/bench")
    assert history_folder(home | {"XDG_STATE_HOME": "not/absolute"}, root=False).is_relative_to("/home/me")
