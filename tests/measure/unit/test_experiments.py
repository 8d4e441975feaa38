"""`bench alignment` and `bench span` as commands: what they write, what they refuse, and figures that match fio's."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jsonschema
import pytest

from aligntool.documents import schema_texts
from aligntool.units import KIB, MIB
from tests.conftest import run
from tests.measure.unit.right_or_unknown import Answer, classify, right_or_unknown
from tests.measure.unit.slow_drives import aligntool, device_over, measured, needs_nbdkit, slow_drive
from tests.schemas import strict
from tests.thorough import when_thorough

needs_fio = pytest.mark.needs_tools("fio")


@pytest.fixture(autouse=True)
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Store results apart from those of this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/aligntool/bench"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(range(256)) * (32 * MIB // 256))
    return path


@when_thorough("a timed drive")
@needs_fio
def test_a_file_is_only_read_and_every_row_follows_from_the_rates(image: Path) -> None:
    before, kept = image.read_bytes(), image.with_name("kept.json")
    words = ("--unit", "1024", "--runtime", "0.1", "--repeats", "5", "-o", kept, "--json")
    out, _ = aligntool("bench", "alignment", image, *words, "--fio-output", image.with_name("fio"))
    assert image.read_bytes() == before
    found = json.loads(out)
    check_figures(image.with_name("fio"), [(rate["iops"], rate["cpu"]) for rate in found["rates"]], found["conditions"])
    assert found == json.loads(kept.read_text())
    assert {rate["load"]["pattern"] for rate in found["rates"]} == {"randread", "read"}
    for row in found["rows"]:
        by_start = {
            start: {rate["repeat"]: rate["iops"] for rate in found["rates"]
                    if rate["load"] == row["load"] and rate["place"]["start"] == start}
            for start in (row["place"]["start"], MIB)
        }  # fmt: skip
        off, on = by_start.values()
        ratios = sorted(off[repeat] / on[repeat] for repeat in on)
        assert (row["low"], row["ratio"], row["high"]) == pytest.approx((ratios[0], ratios[2], ratios[4]))
        assert row["predicted"] == pytest.approx(4 / 5 if row["load"]["block"] == 4 * KIB else 128 / 129)
        shares = [
            rate["cpu"] for rate in found["rates"] if (rate["load"], rate["place"]) == (row["load"], row["place"])
        ]
        assert row["cpu"] == median(shares) and len(shares) == 5
    shown, _ = aligntool("bench", "show", kept)
    assert sum(f"CPU {row['cpu']:.0f}%" in shown for row in found["rows"]) == 2


def check_figures(folder: Path, figures: list[tuple[float, float]], conditions: dict[str, Any]) -> None:
    """Check requests per second, and user and system time in percent of a core, of each run in order."""
    files = sorted(folder.iterdir(), key=lambda file: int(file.stem.rpartition("-")[2]))
    documents = [json.loads(file.read_text()) for file in files]
    jobs = [document["jobs"][0] for document in documents]
    assert [(job["read"]["iops"], job["usr_cpu"] + job["sys_cpu"]) for job in jobs] == figures
    assert {document["fio version"] for document in documents} == {conditions["fio"]}
    assert conditions["kernel"] == run("uname", "-r").strip()
    schema = json.loads(schema_texts()["bench"])
    jsonschema.validate(conditions, strict(schema["properties"]["conditions"]))


@needs_fio
def test_spans_of_a_file_double_up_to_its_size(image: Path) -> None:
    fio = image.with_name("fio")
    words = ("--from", "8MiB", "--runtime", "0.1", "--json", "--fio-output", fio)
    found = json.loads(aligntool("bench", "span", image, *words)[0])
    count = len(list(fio.iterdir()))
    by_span: dict[int, list[tuple[float, float]]] = {
        point["span"]: list(zip(point["iops"], point["cpu"], strict=True)) for point in found["curve"]
    }
    doubling = [8 * MIB, 16 * MIB, 32 * MIB]
    order = [*doubling, *doubling[::-1]] * 2 + doubling
    order += [span for span in by_span if span not in doubling] * 5
    assert len(order) == count
    check_figures(fio, [by_span[span].pop(0) for span in order], found["conditions"])
    spans = [point["span"] for point in found["curve"]]
    assert {8 * MIB, 16 * MIB, 32 * MIB} <= set(spans)
    assert all(len(point["iops"]) == 5 and min(point["iops"]) > 0 for point in found["curve"])
    assert found["write"] is False


def test_a_file_is_never_written_to(image: Path) -> None:
    before = image.read_bytes()
    for words in (("alignment", image, "--destructive", "--yes"), ("span", image, "--write")):
        aligntool("bench", *words, code=3)
    assert image.read_bytes() == before


def test_one_start_and_every_start_exclude_each_other(image: Path) -> None:
    _, said = aligntool("bench", "alignment", image, "--every", "--start", "32256", code=2)
    assert "are mutually exclusive" in " ".join(said.replace("│", " ").split())


def test_a_span_smaller_than_a_request_is_a_usage_error(image: Path) -> None:
    _, said = aligntool("bench", "span", image, "--from", "1KiB", code=2)
    assert "at least one request of 4KiB" in said


def test_nothing_is_measured_if_the_result_cannot_be_saved(image: Path) -> None:
    kept = image.with_name("kept.json")
    kept.touch()
    for output, why in ((kept, "already exists"), (image, "is what is read")):
        _, said = aligntool("bench", "span", image, "-o", output, code=3)
        assert f"{why}; nothing was measured" in said


@needs_fio
def test_no_file_is_filled_if_the_output_of_fio_cannot_be_saved(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in ("alignment", "span"):
        _, said = aligntool("bench", command, tmp_path, "--fio-output", tmp_path / "file", code=3)
        assert "file cannot be created" in said and "filling the file" not in said and "lie in one piece" not in said


def test_a_target_that_is_too_small_is_refused(tmp_path: Path) -> None:
    small = tmp_path / "small.img"
    small.write_bytes(bytes(MIB))
    for command, words in (("alignment", "1MiB is too small"), ("span", "but only 1MiB are available")):
        _, said = aligntool("bench", command, small, code=3)
        assert words in said


# The history


PLACES = (
    ("aligned, as 2048", MIB, 0, False),
    ("as well aligned", 2 * MIB, 0, True),
    ("as sector 63", MIB + 32256, 3584, False),
)


def starts(**changes: object) -> dict[str, Any]:
    """Return a document as `bench alignment` writes it: 1000 requests per second, and half of that at sector 63."""
    load = {"pattern": "randwrite", "block": 4096, "depth": 1}
    rates = [
        {"load": load, "repeat": repeat, "iops": (500 if residue else 1000) + repeat,
         "place": {"title": title, "start": start, "residue": residue, "control": control}}
        for title, start, residue, control in PLACES for repeat in range(5)
    ]  # fmt: skip
    return {
        "schema": "aligntool.bench.alignment", "version": 1, "when": "2026-01-01T00:00:00Z", "target": "/dev/sdx",
        "unit": 4096, "unit_by": "--unit", "rates": rates,
    } | changes  # fmt: skip


def spans(**changes: object) -> dict[str, Any]:
    curve = [{"span": size * MIB, "iops": [rate, rate, rate]} for size, rate in ((64, 900), (128, 900), (256, 300))]
    knee = {"below": 128 * MIB, "above": 256 * MIB, "share": 1 / 3, "confidence": 1.0, "why": ""}
    memory = {"preferred": 64 * MIB, "minimum": 8 * MIB, "granted": 32 * MIB, "enabled": True}
    return {
        "schema": "aligntool.bench.span", "version": 1, "when": "2026-01-02T00:00:00Z", "target": "/dev/sdy",
        "write": False, "knee": knee, "host_memory_buffer": memory, "curve": curve,
    } | changes  # fmt: skip


def test_experiments_are_listed_and_shown_among_the_results(history: Path) -> None:
    history.mkdir(parents=True)
    files = [history / "1.json", history / "2.json"]
    for file, document in zip(files, (starts(), spans()), strict=True):
        file.write_text(json.dumps(document))
    classify, _ = aligntool("bench", "list")
    assert (
        "alignment matters here: random write, 4KiB QD1, unit of 4KiB" in classify
        and "knee between 128MiB and 256MiB" in classify
    )
    rows = json.loads(aligntool("bench", "list", "--json")[0])
    assert [(row["file"], row["profile"], row["complaint"]) for row in rows] == [
        (str(files[0]), "alignment", None), (str(files[1]), "span", None),
    ]  # fmt: skip
    shown, _ = aligntool("bench", "show", files[0])
    assert "as sector 63" in shown and "0.50 (0.50–0.50)" in shown
    shown, _ = aligntool("bench", "show", files[1])
    assert "drops to 33% of the rate before" in shown and "64MiB requested, 32MiB granted" in shown


def test_a_comparison_of_experiments_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "starts.json"
    file.write_text(json.dumps(starts()))
    _, said = aligntool("bench", "compare", file, file, code=3)
    assert f"{file} is a result of bench alignment, and has no tests to compare" in said


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (starts(version=2), "version 2"),
        (starts(unit=0), "not a multiple"),
        (starts(unit=(1 << 40) + 512), "no position"),
        (starts(rates=[{}]), "load"),
        (starts(rates=5), "rates"),
        (starts(target=["x"]), "target"),
        (spans(curve=[{"span": 4096, "iops": []}]), "curve"),
        (spans(curve=[{"span": -1, "iops": [1]}]), "span"),
        (spans(knee=None), "knee"),
        (spans(host_memory_buffer={"preferred": "x"}), "preferred"),
        (spans(write=1), "write"),
    ],
)
def test_a_hostile_experiment_is_refused_with_the_reason(tmp_path: Path, document: dict[str, Any], words: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))
    _, said = aligntool("bench", "show", file, code=3)
    assert "is not a result" in said and words in said


# Drives whose answer is known. They mostly wait, much longer than the delays that a busy computer adds.


def as_the_model_has_it(shares: dict[str, float]) -> Callable[[dict[str, Any]], Answer]:
    """Check the verdict. The drive takes a time for each page that is touched, so what is predicted is true: what keeps
    less than 95 % of the rate matters. `shares`: by pattern, what the only tested start must keep, in each of the
    tries.
    """
    found_right: set[str] = set()

    def judge(found: dict[str, Any]) -> Answer:
        answers = [
            classify(row["word"], "matters here" if row["predicted"] < 0.95 else "does not matter here", "can't tell")
            for row in found["rows"]
        ]
        if Answer.WRONG in answers:
            return Answer.WRONG
        for row in found["rows"]:
            pattern = row["load"]["pattern"]
            near = pattern in shares and row["ratio"] == pytest.approx(shares[pattern], abs=0.06)
            if near and row["word"] == "matters here":
                found_right.add(pattern)
        return Answer.RIGHT if found_right == set(shares) else Answer.UNKNOWN

    return judge


@needs_fio
@needs_nbdkit
@pytest.mark.needs_root
@when_thorough("times a drive for a minute, with nothing beside it")
@pytest.mark.parametrize(
    ("page", "shares"),
    [
        pytest.param(4 * KIB, {"randread": 1 / 2}, id="4 KiB on pages of 4 KiB: half"),
        pytest.param(16 * KIB, {"randread": 4 / 5, "read": 8 / 9}, id="4 and 128 KiB on 16 KiB: 4/5 and 8/9"),
    ],
)
def test_a_drive_that_reads_more_pages_at_sector_63_has_the_share_of_the_article(
    tmp_path: Path, history: Path, page: int, shares: dict[str, float]
) -> None:
    words = ("--unit", str(page), "--start", "32256", "--runtime", "0.5", "--repeats", "5")
    with (
        slow_drive(tmp_path, f"page={page}", "base_us=5000", "page_us=5000", "rate=1") as file,
        device_over(file) as device,
    ):
        found = right_or_unknown(lambda: measured("bench", "alignment", device, *words), as_the_model_has_it(shares))
    assert found["verdict"] == "matters here"
    for row in found["rows"]:
        assert (row["place"]["title"], row["place"]["residue"]) == ("as sector 63", 32256 % page)
        assert row["predicted"] == pytest.approx(shares.get(row["load"]["pattern"], 32 / 33))
    kept = sorted(history.iterdir())[-1]
    assert json.loads(kept.read_text()) == found and "-alignment" in kept.name


@needs_fio
@needs_nbdkit
@pytest.mark.needs_root
@when_thorough("times a drive for a minute, with nothing beside it")
def test_a_drive_that_maps_32_mib_has_its_knee_at_32_mib(tmp_path: Path, history: Path) -> None:
    def judge(found: dict[str, Any]) -> Answer:
        knee = found["knee"]
        if knee["below"] is None or knee["confidence"] < 0.95:
            return classify(knee["why"][:7] == "no knee", right=None, unknown=False)
        return classify((knee["below"], knee["above"]), (32 * MIB, 48 * MIB))

    words = ("--from", "16MiB", "--to", "64MiB", "--runtime", "0.6")
    with (
        slow_drive(tmp_path, f"mapped={32 * MIB}", "base_us=2000", "miss_us=16000", "rate=1") as file,
        device_over(file) as device,
    ):
        found = right_or_unknown(lambda: measured("bench", "span", device, *words), judge)
    curve = {point["span"]: median(point["iops"]) for point in found["curve"]}
    assert curve[64 * MIB] < curve[48 * MIB] < curve[32 * MIB] / 2
    assert json.loads(sorted(history.iterdir())[-1].read_text()) == found
