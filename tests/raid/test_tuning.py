"""The chunk that a sweep recommends, on figures whose answer is known; measurements of another array are ignored."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.change import Plan, RaidGoal
from aligntool.errors import Refused
from aligntool.raid.chunks import Stripes, recommend_chunk
from aligntool.raid.commands import command_of
from aligntool.raid.levels import LEVELS, WORKLOADS
from aligntool.raid.measured import (
    Identity,
    Sample,
    Tuning,
    Verdict,
    choose,
    identity_of,
    loads_of,
    parse_tuning,
    scores_of,
    span_of,
    sweep_chunks,
    sweep_order,
    tuning_text,
)
from aligntool.steps import MakeArray
from aligntool.units import GIB, KIB, MIB
from tests.raid.builders import drives, goal, linked, planned
from tests.raid.test_chunks import grid

CHUNKS = (64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB)


def samples(
    true: dict[int, float], *, rounds: int = 5, noise: float = 0.02, seed: int = 0, drift: float = 0.0
) -> tuple[Sample, ...]:
    """Return two loads, a fast and a slow one; each chunk runs them `true` times as fast, plus or minus `noise`."""
    rng = random.Random(seed)
    found = []
    for number, chunk in sweep_order(tuple(true), rounds):
        for shape, rate in (("read", 8e9), ("randwrite", 4e7)):
            factor = true[chunk] * rng.uniform(1 - noise, 1 + noise) * (1 - drift * number / rounds)
            read, write = (int(rate * factor), 0) if shape == "read" else (0, int(rate * factor))
            found.append(Sample(number, chunk, shape, read, write))
    return tuple(found)


def true(**better: float) -> dict[int, float]:
    return {chunk: better.get(f"k{chunk // KIB}", 1.0) for chunk in CHUNKS}


@pytest.mark.parametrize(
    ("truth", "verdict", "chunk"),
    [
        (true(), Verdict.KEPT, 512 * KIB),
        (true(k64=1.3), Verdict.CHANGED, 64 * KIB),
        (true(k64=0.5, k128=0.8), Verdict.KEPT, 512 * KIB),
        (true(k512=0.7), Verdict.CHANGED, 256 * KIB),  # for all others: the nearest that is larger or smaller
        (true(k64=1.5, k128=1.5), Verdict.CHANGED, 128 * KIB),
        (true(k1024=1.2), Verdict.CHANGED, MIB),
        (true(k512=1.4), Verdict.KEPT, 512 * KIB),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_clearly_faster_chunk_is_chosen_otherwise_the_recommended_one(
    truth: dict[int, float], verdict: Verdict, chunk: int, seed: int
) -> None:
    found = choose(samples(truth, seed=seed), 512 * KIB)
    assert found.verdict is verdict, found
    assert found.value == chunk or (truth[512 * KIB] == 0.7 and found.value in (256 * KIB, MIB))


def test_a_drift_over_the_rounds_is_not_taken_for_a_difference() -> None:
    """A drive that warms up and slows down by 30 %: the order A B C, C B A spreads the slowdown evenly
    over the chunks.
    """
    for seed in range(20):
        assert choose(samples(true(), drift=0.3, seed=seed), 512 * KIB).verdict is Verdict.KEPT


def test_noise_is_rarely_taken_for_a_difference() -> None:
    """Two chunks, five rounds: 2 in C(10, 5) = 252 sweeps have separate ranges; five chunks have four pairs."""
    changed = sum(choose(samples(true(), noise=0.3, seed=seed), 512 * KIB).value != 512 * KIB for seed in range(500))
    assert changed <= 500 * 4 / 252 * 2


def test_an_insignificant_difference_is_ignored() -> None:
    found = choose(samples(true(k64=1.02), noise=0.001), 512 * KIB)
    assert found.verdict is Verdict.KEPT and not found.apart
    assert choose(samples(true(k64=1.05), noise=0.001), 512 * KIB).value == 64 * KIB


def test_every_load_has_equal_weight_at_any_rate() -> None:
    """Twice as fast in the slow load and half as fast in the fast one is neither better nor worse."""
    one = (Sample(0, 1, "read", 100, 0), Sample(0, 1, "write", 0, 20_000))
    two = (Sample(0, 2, "read", 200, 0), Sample(0, 2, "write", 0, 10_000))
    scores = scores_of((*one, *two))
    assert scores[1] == pytest.approx(scores[2])


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_up_to_two_rounds_give_no_verdict(rounds: int) -> None:
    found = choose(samples(true(k64=9.0), rounds=rounds), 512 * KIB)
    assert (found.verdict, found.value) == (Verdict.UNKNOWN, None)


def test_an_incomplete_round_does_not_count() -> None:
    whole = samples(true(k64=1.3))
    cut = (*whole, Sample(5, 64 * KIB, "read", 1, 0))
    assert choose(cut, 512 * KIB) == choose(whole, 512 * KIB)
    assert choose(whole[:-1], 512 * KIB).rounds == 4


def test_without_a_measurement_of_the_recommended_chunk_none_is_chosen() -> None:
    found = choose(samples({64 * KIB: 1.0, 128 * KIB: 2.0}), 512 * KIB)
    assert found.value is None and "512KiB" in found.reason


@given(seed=st.integers(0, 10_000), factor=st.floats(0.01, 100))
def test_the_choice_does_not_depend_on_the_speed_of_the_drives(seed: int, factor: float) -> None:
    rng = random.Random(seed)
    truth = {chunk: rng.choice((0.5, 1.0, 1.5)) for chunk in CHUNKS}
    figures = samples(truth, seed=seed)
    scaled = tuple(replace(one, read=int(one.read * factor), write=int(one.write * factor)) for one in figures)
    assert choose(scaled, 512 * KIB).value == choose(figures, 512 * KIB).value


def test_chunks_are_tried_in_alternating_order() -> None:
    assert sweep_order((1, 2, 3), 3) == ((0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (1, 1), (2, 1), (2, 2), (2, 3))


@pytest.mark.parametrize("level", ["raid0", "raid10", "raid5", "raid6"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_recommended_chunk_and_mdadms_default_are_always_tried(level: str, workload: str) -> None:
    stripes = Stripes(LEVELS[level], 3, workload, 16 * KIB, (grid(4 * KIB),))
    tried = sweep_chunks(stripes)
    assert 512 * KIB in tried and list(tried) == sorted(set(tried)) and len(tried) <= 6
    assert loads_of(workload, 16 * KIB)
    assert recommend_chunk(stripes).size in sweep_chunks(stripes, (64 * KIB,))


def test_no_chunk_below_the_unit_of_the_drives_is_tried_unless_requested() -> None:
    coarse = Stripes(LEVELS["raid0"], 3, "general", 16 * KIB, (grid(256 * KIB),))
    assert min(sweep_chunks(coarse)) == 256 * KIB
    assert 64 * KIB in sweep_chunks(coarse, (64 * KIB,))


def test_the_span_is_the_requested_one_limited_by_the_available_size() -> None:
    assert span_of(100 * GIB, 3, None) == 12 * GIB
    assert span_of(GIB + 5, 3, None) == GIB
    assert span_of(100 * GIB, 3, 64 * MIB) == 64 * MIB


def test_the_loads_of_each_workload_have_unique_names() -> None:
    for workload in WORKLOADS:
        names = [shape.name for shape in loads_of(workload, 16 * KIB)]
        assert len(set(names)) == len(names)


# The result file, and the plan that uses it


def tuning(truth: dict[int, float], wanted: RaidGoal, count: int = 4, **words: object) -> Tuning:
    members = tuple(replace(identity_of(disk), read=3_000_000_000, write=1_000_000_000) for disk in drives(count))
    bitmap = "none" if wanted.level == "raid0" else "internal"
    made = Tuning(wanted.level, "n2" if wanted.level == "raid10" else "", wanted.workload, wanted.database_page, bitmap,
                  members, GIB, 5.0, True, (("fio", "fio-3.33"),), samples(truth))  # fmt: skip
    return replace(made, **words)  # type: ignore[arg-type]


def with_measured(wanted: RaidGoal, measured: Tuning) -> Plan:
    disks = [linked(disk, 3_938_000_000) for disk in drives(4)]
    return planned(replace(wanted, measured=tuning_text(measured)), *disks)


def test_a_result_is_read_back_unchanged() -> None:
    made = tuning(true(k64=1.3), goal("raid0"))
    assert parse_tuning(tuning_text(made)) == made


def test_a_measured_chunk_is_used_and_reported_with_its_figures() -> None:
    plan = with_measured(goal("raid0"), tuning(true(k64=1.3), goal("raid0")))
    said = "\n".join(plan.notes)
    assert "chunk 64KiB for general use: 64KiB had 1.3" in said and "(measured here)" in said
    assert "64KiB 1.3" in said and "within the noise" in said
    assert any("--chunk=64K" in word for word in _create(plan))
    kept = with_measured(goal("raid10"), tuning(true(), goal("raid10")))
    assert "makes no measurable difference here" in "\n".join(kept.notes)
    assert "--chunk=512K" in _create(kept)


def test_a_requested_chunk_has_precedence_over_a_measured_one_which_is_reported() -> None:
    wanted = goal("raid0", chunk=256 * KIB)
    plan = with_measured(wanted, tuning(true(k64=1.3), goal("raid0")))
    assert "--chunk=256K" in _create(plan)
    assert "aligntool recommends 64KiB for general use" in "\n".join(plan.notes)


def _create(plan: Plan) -> tuple[str, ...]:
    return next(command_of(step) for step in plan.steps if isinstance(step, MakeArray))


OTHER = Identity("nvme0n1", "ACME NV1", "another", "eui.ffff", None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"level": "raid10", "layout": "n2", "bitmap": "internal"}, "its level was RAID10, but here it is RAID0"),
        ({"workload": "vm"}, "its workload was vm, but here it is general"),
        ({"members": (OTHER,)}, "not measured: nvme0n1, nvme1n1, nvme2n1, nvme3n1"),
        ({"samples": ()}, "and there are 0"),
    ],
)
def test_measurements_of_another_array_are_not_used_and_the_reason_is_reported(
    change: dict[str, object], why: str
) -> None:
    plan = with_measured(goal("raid0"), tuning(true(k64=1.3), goal("raid0"), **change))  # type: ignore[arg-type]
    assert "--chunk=512K" in _create(plan)
    assert any("the measurement is not used for the chunk" in line and why in line for line in plan.notes)


def test_a_measurement_with_other_database_pages_or_another_bitmap_is_not_used() -> None:
    wanted = goal("raid10", workload="database")
    other = tuning(true(k64=1.3), wanted, database_page=8192)
    assert any("its database pages had 8192 bytes" in line for line in with_measured(wanted, other).notes)
    bare = tuning(true(k64=1.3), wanted, bitmap="none")
    assert any("its bitmap was none" in line for line in with_measured(wanted, bare).notes)


def test_drives_without_an_identity_never_match_the_measured_ones() -> None:
    nameless = tuple(replace(disk, model=None, serial=None, wwn=None) for disk in drives(2))
    made = tuning(true(k64=1.3), goal("raid0"), members=tuple(map(identity_of, nameless)))
    plan = planned(goal("raid0", measured=tuning_text(made)), *nameless)
    assert any("not measured: " in line for line in plan.notes)


def test_measured_rates_of_single_drives_are_used_in_the_ceiling_of_any_level() -> None:
    plan = with_measured(goal("raid5"), tuning(true(), goal("raid0")))
    said = next(line for line in plan.notes if "at most" in line and "limited by" in line)
    assert "12.00 GB/s for reads" in said and "3.00 GB/s for writes" in said and "measured here" in said


DOCUMENT = json.loads(tuning_text(tuning(true(), goal("raid0"))))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("{", "not JSON at line 1, column 2"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "the document"),
        ("{}", "schema"),
        (json.dumps(DOCUMENT | {"schema": "x"}), "schema"),
        (json.dumps(DOCUMENT | {"span": 10**400}), "span"),
        (json.dumps(DOCUMENT | {"version": 2}), "has version 2"),
        (json.dumps(DOCUMENT | {"level": "raid7"}), "level"),
        (json.dumps(DOCUMENT | {"members": [7]}), r"members\[0\]"),
        (json.dumps(DOCUMENT | {"span": -1}), "span"),
        (json.dumps(DOCUMENT | {"runtime_s": float("nan")}), "NaN is not"),
        (json.dumps(DOCUMENT | {"complete": 1}), "complete"),
        (json.dumps(DOCUMENT | {"samples": DOCUMENT["samples"][:1] * 2}), "twice"),
        (json.dumps(DOCUMENT | {"samples": [DOCUMENT["samples"][0] | {"chunk": 0}]}), r"samples\[0\].chunk"),
        (json.dumps(DOCUMENT | {"conditions": None}), "conditions"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        parse_tuning(text)
    assert "\n" not in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*DOCUMENT]), inner, max_size=3),
)


@given(name=st.sampled_from([*DOCUMENT]), value=JSON)
def test_a_damaged_result_is_refused_or_still_valid(name: str, value: object) -> None:
    text = json.dumps(DOCUMENT | {name: value})
    try:
        planned(goal("raid0", measured=text), *drives(4))
    except Refused:
        return
    assert parse_tuning(text)
