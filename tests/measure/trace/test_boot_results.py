"""`aligntool estimate boot` with results of `aligntool bench`: which it accepts, and what it reports of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.measure.results import to_json
from tests.measure.bench.sample_results import result, series
from tests.run_aligntool import run_aligntool


def test_passes_over_the_same_data_are_refused(tmp_path: Path) -> None:
    """A hybrid drive: 0.4 MB/s, and 30 from its cache. It needs minutes for the boot of the 2022 article."""
    sides = series(0.4e6, 30e6, 30e6, 30e6, 30e6), series(2e6, 2e6, 2e6, 2e6, 2e6, write=True)
    passes, repeats = tmp_path / "passes.json", tmp_path / "repeats.json"
    passes.write_text(to_json(result(*sides, passes=(1, 5))))
    repeats.write_text(to_json(result(*sides)))
    refused = run_aligntool("estimate", "boot", passes)
    assert refused.returncode == 3 and refused.stdout == "" and "Traceback" not in refused.stderr
    assert f"{passes} has passes over the same data" in refused.stderr and "--profile boot" in refused.stderr
    (told,) = json.loads(run_aligntool("estimate", "boot", repeats, "--json").stdout)["drives"]
    assert (told["read_mb_s"], told["write_mb_s"]) == (30, 2)


def test_problems_of_a_result_are_reported_with_the_estimate(tmp_path: Path) -> None:
    """An interrupted, buffered and CPU-bound one has warnings; another one has none."""
    read, write, deep = (series(*[50e6] * 5, cpu=99), series(*[100e6] * 5, write=True), series(9e6, depth=32, cpu=99))
    made = result(read, write, deep)
    doubtful = replace(
        made,
        complete=False,
        settings=replace(made.settings, direct=False),
        conditions=replace(made.conditions, governor="powersave"),
    )
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text(to_json(doubtful))
    good.write_text(to_json(result(series(*[50e6] * 5), write)))
    told = " ".join(run_aligntool("estimate", "boot", good, bad).stdout.split())
    parts = ("not complete", "CPU-bound: RND4K Q1T1 read:", "page cache", "governor is powersave")
    assert all(part in told for part in parts)
    assert told.count("warning: drive B: ") == 4 and "warning: drive A" not in told
    clean, spoilt = json.loads(run_aligntool("estimate", "boot", good, bad, "--json").stdout)["drives"]
    assert clean["warnings"] == [] and len(spoilt["warnings"]) == 4
    assert all(part in said for part, said in zip(parts, spoilt["warnings"], strict=True))


def test_rounds_that_did_not_become_steady_are_reported_with_the_estimate(tmp_path: Path) -> None:
    file = tmp_path / "rounds.json"
    rounds = (10e6, 20e6, 30e6, 40e6, 50e6)
    file.write_text(to_json(result(series(*rounds), series(*[1e6] * 5, write=True), steady=True)))
    assert "warning: drive A: NOT steady: RND4K Q1T1 read\n" in run_aligntool("estimate", "boot", file).stdout


@pytest.mark.parametrize(
    ("words", "label", "sources"),
    [
        ((), "(the built-in boot)", ("article", "article")),
        (("--reads", "7"), "7 reads, 4,938 writes  (reads given, writes from the built-in boot)", ("given", "article")),
        (("--writes", "7"), "(reads from the built-in boot, writes given)", ("article", "given")),
        (("--reads", "1", "--writes", "1"), "1 reads, 1 writes  (given)", ("given", "given")),
        (("--trace", "LOG"), "2 reads, 1 writes  (LOG)", ("trace", "trace")),
        (("--trace", "LOG", "--reads", "9"), "9 reads, 1 writes  (reads given, writes from LOG)", ("given", "trace")),
        (("--trace", "LOG", "--reads", "1", "--writes", "1"), "1 reads, 1 writes  (given)", ("given", "given")),
    ],
)
def test_the_label_states_the_source_of_the_counts(
    tmp_path: Path, words: tuple[str, ...], label: str, sources: tuple[str, str]
) -> None:
    log = tmp_path / "boot.csv"
    log.write_text("time_s,op,lba,sectors,who\n0.1,R,0,8,x\n0.2,R,80,8,x\n0.3,W,800,8,x\n")
    typed = ("estimate", "boot", "--rate-a", "100", *(str(log) if word == "LOG" else word for word in words))
    assert label.replace("LOG", str(log)) in run_aligntool(*typed).stdout.partition("\n")[0]
    told = json.loads(run_aligntool(*typed, "--json").stdout)
    assert (told["reads_from"], told["writes_from"]) == sources
