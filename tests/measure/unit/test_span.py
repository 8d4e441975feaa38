"""`bench span`: the knee of curves whose knee is known. Those of the BG4 are the published ones (2019)."""

import json
import random
from collections.abc import Sequence

import pytest

from aligntool.measure.alignment import (
    Knee,
    doubt_limited_by_cpu,
    find_knee,
    jobs_of,
    knee_of,
    mapped_bytes,
    span_within_knee,
    spans_of,
)
from aligntool.measure.results import Conditions, DriveState
from aligntool.measure.sweeps import Setting, Spans
from aligntool.render.experiments import span_json, span_lines
from aligntool.render.lines import Style, text_of
from aligntool.units import GIB, KIB, MIB
from tests.thorough import sample


def curve(
    spans: Sequence[int], cached: int, *, hit_us: float = 60, miss_us: float = 60, noise: float = 0.01, seed: int = 1
) -> dict[int, list[float]]:
    """Return the curve of a table that is in memory for `cached` bytes: requests beyond it wait in proportion."""
    rng = random.Random(seed)
    return {
        span: [32e6 / (hit_us + miss_us * max(0.0, 1 - cached / span)) * (1 + rng.gauss(0, noise)) for _ in range(5)]
        for span in spans
    }


def spans(last: int) -> tuple[int, ...]:
    return spans_of(last * GIB)


@pytest.mark.parametrize(
    ("cached", "bracket"),
    [
        pytest.param(1 * GIB, (1 * GIB, 2 * GIB), id="BG4 without a host memory buffer: about 1 GiB"),
        pytest.param(30 * GIB, (16 * GIB, 32 * GIB), id="with 61 MB: under 32 GiB"),
        pytest.param(48 * GIB, (32 * GIB, 64 * GIB), id="with 64 MB: 48 GiB"),
    ],
)
def test_the_knee_of_the_bg4_is_the_published_one(cached: int, bracket: tuple[int, int]) -> None:
    # With a span only slightly longer than the map, few requests wait: 30 of 32 GiB needs a more expensive miss to
    # show.
    made = curve(spans(64), cached, miss_us=180)
    knee = find_knee(made, random.Random(1))
    assert (knee.below, knee.above) == bracket
    assert bracket[0] <= cached <= bracket[1]
    assert knee.confidence > 0.95


def test_the_middle_of_the_knee_is_measured_as_well() -> None:
    made = curve(spans(64), 48 * GIB, miss_us=180)
    middle = span_within_knee(find_knee(made, random.Random(1)))
    assert middle == 48 * GIB
    made |= curve([middle], 48 * GIB, miss_us=180)
    knee = find_knee(made, random.Random(1))
    assert (knee.below, knee.above) == (48 * GIB, 64 * GIB)


@pytest.mark.parametrize("seed", range(50))
def test_a_flat_curve_has_no_knee(seed: int) -> None:
    knee = find_knee(curve(spans(64), 1 << 50, noise=0.01, seed=seed), random.Random(seed))
    assert not knee.found
    assert knee.flat and knee.why == "no knee up to 64GiB"
    assert knee.confidence > 0.9


@pytest.mark.parametrize("seed", range(50))
def test_noise_alone_causes_no_confident_knee(seed: int) -> None:
    for noise in (0.05, 0.3):
        knee = find_knee(curve(spans(64), 1 << 50, noise=noise, seed=seed), random.Random(seed))
        assert not knee.found or knee.confidence < 0.95


def test_a_knee_before_the_smallest_span_is_reported_as_unknown() -> None:
    knee = find_knee(curve(spans(64), 32 * MIB), random.Random(1))
    assert not knee.found
    assert knee.why.startswith("can't tell")


def test_a_dip_is_not_a_knee() -> None:
    made = curve(spans(64), 1 << 50)
    made[4 * GIB] = [rate / 2 for rate in made[4 * GIB]]
    knee = find_knee(made, random.Random(1))
    assert not knee.found
    assert "falls and rises again" in knee.why


def test_with_fewer_than_five_repeats_the_knee_is_unknown() -> None:
    """The default, and the minimum that can be requested."""
    made = curve(spans(64), GIB)
    assert find_knee(made, random.Random(1)).found
    knee = find_knee(made | {GIB: made[GIB][:4]}, random.Random(1))
    assert not knee.found and "fewer than 5 repeats" in knee.words
    assert not find_knee({}, random.Random(1)).found


def stepped(at: int, share: float, noise: float, rng: random.Random, *, first: int = MIB) -> dict[int, list[float]]:
    """Return a constant rate up to the span `at`, and `share` of it beyond: the table is in memory or not."""
    return {
        span: [2327 * (1 if span <= at else share) * rng.gauss(1, noise) for _ in range(5)]
        for span in spans_of(128 * GIB, first)
    }


@sample(3)
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("share", [0.66, 0.53, 0.3])
def test_a_drop_at_one_span_with_flat_sides_is_a_knee_there(share: float, noise: float) -> None:
    """At each power of two from 1 MiB to 64 GiB. Before the second span there is nothing to compare."""
    rng = random.Random(round(1000 * share * noise))
    right = 0
    for power in range(17):
        at = MIB << power
        knee = find_knee(stepped(at, share, noise, rng), rng)
        assert not knee.found or not knee.sure or (knee.below, knee.above) == (at, 2 * at), (at, knee)
        assert not (knee.flat and knee.sure)
        right += knee.found and knee.sure
        assert power or not knee.found
    assert right >= (16 if noise < 0.1 and share < 0.6 else 10)


def test_the_curve_once_reported_as_perhaps_a_knee_has_a_certain_one() -> None:
    """2,327 IOPS up to 512 MiB, 1,235 beyond; both sides scatter by a few percent from span to span, as
    real drives do.
    """
    sure = 0
    for seed in range(100):
        rng = random.Random(seed)
        levels = {span: rng.gauss(1, 0.05) for span in spans_of(8 * GIB)}
        made = {
            span: [(2327 if span <= 512 * MIB else 1235) * level * rng.gauss(1, 0.05) for _ in range(5)]
            for span, level in levels.items()
        }
        knee = find_knee(made, rng)
        sure += knee.sure and (knee.below, knee.above) == (512 * MIB, GIB)
    assert sure >= 98


def test_false_knees_on_flat_drives_are_rare() -> None:
    """400 of them, with little and much noise: fewer false knees than the confidence allows."""
    rng = random.Random(11)
    false = 0
    for number in range(400):
        noise = (0.01, 0.03, 0.1, 0.3)[number % 4]
        knee = find_knee(stepped(1 << 60, 1, noise, rng), rng, resamples=60)
        false += knee.found and knee.sure
    assert false <= 4


def test_spans_double_up_to_the_end_of_the_drive_and_include_it() -> None:
    assert spans_of(1 * GIB) == tuple(64 * MIB << power for power in range(5))
    assert spans_of(3 * GIB + 100)[-2:] == (2 * GIB, 3 * GIB)
    assert spans_of(GIB + 4 * KIB)[-1] == GIB


def test_every_second_repeat_measures_the_spans_in_descending_order() -> None:
    up = [span for span, _ in jobs_of(spans(2), "/dev/sdb", 0, write=False, runtime_s=1, repeat=0)]
    down = [span for span, _ in jobs_of(spans(2), "/dev/sdb", 0, write=False, runtime_s=1, repeat=1)]
    assert up == sorted(up) == down[::-1]


def test_a_mebibyte_of_host_memory_maps_a_gibibyte() -> None:
    assert mapped_bytes(64 * MIB) == 64 * GIB


def test_equal_rates_that_are_cpu_bound_are_reported_as_unknown() -> None:
    """95 % of a core, as in `bench`; a drop remains one, whatever limited the small spans."""
    flat = find_knee(curve(spans(64), 1 << 50), random.Random(1))
    busy: dict[int, list[float]] = {span: [99.0, 96.0, 95.0] for span in spans(64)}
    assert doubt_limited_by_cpu(flat, {span: [94.9] * 3 for span in spans(64)}, Conditions()) == flat
    assert doubt_limited_by_cpu(flat, busy, Conditions()).why.startswith("can't tell: CPU-bound")
    bent = find_knee(curve(spans(64), GIB, miss_us=180), random.Random(1))
    assert doubt_limited_by_cpu(bent, busy, Conditions()) == bent


@pytest.mark.parametrize(
    ("drives", "turning"),
    [
        ([("sda", "ata", True)], "sda"),
        ([("md0", "md", True), ("sda", "ata", False), ("sdb", "ata", True)], "sdb"),
        ([("dm-0", "dm", True)], "dm-0"),
        ([("dm-0", "dm", True), ("sda", "usb", False)], ""),  # it keeps the conditions of when it was made
        ([("nvme0n1", "nvme", False)], ""),
        ([("sda", "scsi", None)], ""),
        ([], ""),
    ],
)
def test_a_drop_on_a_rotating_disk_is_not_a_knee(drives: list[tuple[str, str, bool | None]], turning: str) -> None:
    """If nothing gets slower there is no knee, rotating disk or not."""
    seen = Conditions(drives=tuple(DriveState(name, kind=kind, rotational=turns) for name, kind, turns in drives))
    bent = knee_of(curve(spans(64), GIB, miss_us=180), {}, seen, random.Random(1))
    flat, busy = curve(spans(64), 1 << 50), {span: [99.0] * 5 for span in spans(64)}
    assert bent.found is bent.sure is (not turning)
    if turning:
        assert bent.words.startswith(f"can't tell: the kernel reports {turning} as rotating")
    assert knee_of(flat, {}, seen, random.Random(1)).flat
    assert "CPU-bound" in knee_of(flat, busy, seen, random.Random(1)).words


@pytest.mark.parametrize(("load", "flat"), [(None, True), (0.5, True), (3.9, True), (4.0, False), (18.0, False)])
def test_equal_rates_on_a_busy_machine_are_reported_as_unknown(load: float | None, flat: bool) -> None:
    seen = Conditions(cores=4, load=load)
    knee = knee_of(curve(spans(64), 1 << 50), {}, seen, random.Random(1))
    assert knee.flat is flat and not knee.found
    assert flat or "busy machine" in knee.words
    assert knee_of(curve(spans(64), GIB, miss_us=180), {}, seen, random.Random(1)).found


@pytest.mark.parametrize(("confidence", "before"), [(0.95, ""), (0.94, "perhaps ")])
def test_a_result_below_the_required_confidence_is_reported_as_perhaps(confidence: float, before: str) -> None:
    knee = Knee(GIB, 2 * GIB, 0.5, confidence, "")
    flat = Knee(None, None, 1.0, confidence, "no knee up to 2GiB")
    assert knee.words == f"{before and 'perhaps a '}knee between 1GiB and 2GiB"
    assert flat.words == before + flat.why
    for found in (knee, flat):
        shown = Spans("", "/dev/sdx", False, found, {GIB: [1.0] * 3, 2 * GIB: [1.0] * 3}, None)
        assert shown.summary == found.words
        assert found.words in " ".join(text_of(span_lines(shown, width=100)))
        assert json.loads(span_json(shown, None))["knee"]["sure"] is (not before)


TB = 10**12  # 931.3 GiB


def flat_over(last: int, drive: int | None, setting: Setting | None = None) -> Spans:
    """Return a constant rate up to `last` bytes of such a drive."""
    rates = {span: [1000.0] * 5 for span in spans_of(last)}
    seen = Conditions(drives=(DriveState("sda", size=drive),) if drive else ())
    knee = find_knee(rates, random.Random(1))
    return Spans("", "/srv", False, knee, rates, None, conditions=seen, setting=setting)


@pytest.mark.parametrize(
    ("kind", "last", "piece", "way"),
    [
        ("folder", 4 * GIB, 4 * GIB, "--size for more"),
        ("folder", 2 * GIB, 4 * GIB, "--to for more"),
        ("device", 64 * GIB, TB, "--to for more"),
        ("device", 64 * GIB, 64 * GIB, "name the whole drive for more"),  # a partition
        ("file", 4 * GIB, 4 * GIB, "name the drive for more"),
    ],
)
def test_no_knee_over_a_part_of_a_drive_names_that_part_and_how_to_measure_more(
    kind: str, last: int, piece: int, way: str
) -> None:
    found = flat_over(last, TB, Setting(kind, piece, piece, 1.0, 5, True, "libaio"))
    lines = list(span_lines(found, width=100))
    styles = {text: style for line in lines for text, style in line}
    words = f"no knee up to {last // GIB}GiB"
    assert found.summary == f"{words} of 931.3GiB" and words in styles
    assert Style.GOOD not in styles.values()
    assert f"  the drive has 931.3GiB: {way}" in styles
    document = json.loads(span_json(found, None))
    assert (document["spanned"], document["drive_size"]) == (last, TB)


def test_no_knee_is_marked_good_only_over_the_whole_of_a_drive_of_known_size() -> None:
    whole, unknown = flat_over(TB, TB), flat_over(TB, None)
    assert whole.whole is True and whole.summary == "no knee up to 931.3GiB" == unknown.summary
    assert ("no knee up to 931.3GiB", Style.GOOD) in [each for line in span_lines(whole, width=90) for each in line]
    assert Style.GOOD not in [style for line in span_lines(unknown, width=90) for _, style in line]
    assert whole.beyond == unknown.beyond == ""
    assert json.loads(span_json(unknown, None))["drive_size"] is None


def test_spans_that_end_less_than_one_step_before_the_end_cover_the_whole_drive() -> None:
    """Of 70 GiB, 64 are spanned; of 128, half is not."""
    assert spans_of(70 * GIB)[-1] == 64 * GIB
    assert flat_over(64 * GIB, 70 * GIB).whole is True
    assert flat_over(64 * GIB, 128 * GIB).whole is False


def test_a_knee_is_reported_whatever_the_size_of_the_drive() -> None:
    bent = curve(spans(4), GIB, miss_us=180)
    knee = find_knee(bent, random.Random(1))
    seen = Conditions(drives=(DriveState("sda", size=TB),))
    found = Spans("", "/srv", False, knee, bent, None, conditions=seen)
    assert found.summary == "knee between 1GiB and 2GiB" and found.beyond == ""
