"""`bench alignment`: predictions against the figures of the article, verdicts on known drives, real requests."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.report import predict
from aligntool.errors import Refused
from aligntool.measure.alignment import (
    OLD_START,
    AlignmentVerdict,
    Load,
    Place,
    Rate,
    Row,
    judge_rates,
    loads_of,
    matters_for,
    overall_text,
    overall_verdict,
    places_of,
    predicted,
    runs_of,
)
from aligntool.measure.fio import Pattern
from aligntool.measure.results import Conditions
from aligntool.measure.run import run_sweep
from aligntool.measure.sweeps import Starts
from aligntool.measure.unit_design import FALSE_LINE_RATE
from aligntool.units import GIB, KIB, MIB, Extent
from tests.measure.unit.slow_drives import device_over, needs_nbdkit, slow_drive
from tests.thorough import seeds, when_thorough

Noise = Callable[[random.Random], float]
ROOM = Extent(0, GIB)
WRITES = Load(Pattern.RANDOM_WRITE, 4 * KIB, 1)

# The figures of the article: 1/(1 + r/u) for requests of 4 KiB.
ARTICLE = {4 * KIB: 1 / 2, 16 * KIB: 4 / 5, 32 * KIB: 8 / 9, 64 * KIB: 16 / 17}


@pytest.mark.parametrize(("unit", "share"), ARTICLE.items())
def test_the_prediction_for_a_start_at_sector_63_matches_the_article(unit: int, share: float) -> None:
    assert predicted(WRITES, OLD_START % unit, unit) == pytest.approx(share)
    assert float(predict(unit).write_rate) == pytest.approx(share)


def test_a_start_off_the_unit_by_whole_requests_does_not_slow_small_requests() -> None:
    assert predicted(WRITES, 4 * KIB, 16 * KIB) == 1
    long = Load(Pattern.WRITE, 128 * KIB, 1)
    assert predicted(long, 4 * KIB, 16 * KIB) == pytest.approx(8 / 9)  # nine units of 16 KiB in place of eight


def _rates(
    share: Callable[[Place], float], *, unit: int, noise: float, repeats: int = 5, seed: int = 1
) -> Sequence[Rate]:
    """Return the rates of a drive of 1000 requests per second, reduced to this share; noise is normal."""
    rng = random.Random(seed)
    return [
        Rate(WRITES, place, repeat, 1000 * share(place) * (1 + rng.gauss(0, noise)))
        for repeat in range(repeats)
        for place in places_of(ROOM, unit, 512)
    ]


def _of_63(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row.place.title == "as sector 63")


@pytest.mark.parametrize("unit", [4 * KIB, 16 * KIB, 32 * KIB])
def test_a_drive_that_behaves_as_predicted_shows_that_alignment_matters(unit: int) -> None:
    rates = _rates(lambda place: predicted(WRITES, place.residue, unit), unit=unit, noise=0.005)
    row = _of_63(judge_rates(rates, unit))
    assert row.word is AlignmentVerdict.MATTERS
    assert row.ratio == pytest.approx(ARTICLE[unit], abs=0.02)
    assert row.low <= row.ratio <= row.high


def test_a_drive_that_loses_nothing_shows_that_alignment_does_not_matter() -> None:
    rows = judge_rates(_rates(lambda place: 1.0, unit=4096, noise=0.005), 4096)
    assert {row.word for row in rows} == {AlignmentVerdict.DOES_NOT}
    assert overall_verdict(rows) is AlignmentVerdict.DOES_NOT


def test_the_verdict_on_a_drive_with_more_noise_than_loss_is_unknown() -> None:
    rows = judge_rates(_rates(lambda place: 0.9 if place.residue else 1.0, unit=4096, noise=0.3), 4096)
    assert overall_verdict(rows) is AlignmentVerdict.CANNOT_TELL
    assert all(row.why for row in rows)


@pytest.mark.parametrize(("cpu", "word"), [(94.9, AlignmentVerdict.DOES_NOT), (95.0, AlignmentVerdict.CANNOT_TELL)])
def test_cpu_bound_rates_without_a_difference_are_not_evidence(cpu: float, word: AlignmentVerdict) -> None:
    """Above the share of a core at which `bench` reports CPU-bound."""
    rates = [replace(rate, cpu=cpu) for rate in _rates(lambda place: 1.0, unit=4096, noise=0.005)]
    rows = judge_rates(rates, 4096)
    assert {(row.word, row.cpu, row.cpu_bound) for row in rows} == {(word, cpu, cpu >= 95)}
    slower = _rates(lambda place: 0.5 if place.residue else 1.0, unit=4096, noise=0.005)
    assert {row.word for row in judge_rates([replace(rate, cpu=cpu) for rate in slower], 4096)} == {
        AlignmentVerdict.MATTERS
    }


@pytest.mark.parametrize(
    ("load", "word"),
    [
        (None, AlignmentVerdict.DOES_NOT),
        (3.9, AlignmentVerdict.DOES_NOT),
        (4.0, AlignmentVerdict.CANNOT_TELL),
        (18.0, AlignmentVerdict.CANNOT_TELL),
    ],
)
def test_equal_rates_on_a_busy_machine_are_not_evidence(load: float | None, word: AlignmentVerdict) -> None:
    def found(share: float) -> Starts:
        rates = _rates(lambda place: share if place.residue else 1.0, unit=4096, noise=0.005)
        return Starts("", "/srv", 4096, "--unit", tuple(rates), conditions=Conditions(cores=4, load=load))

    assert {row.word for row in found(1.0).rows} == {word}
    assert ("can't tell" in found(1.0).summary) is (word is AlignmentVerdict.CANNOT_TELL)
    assert {row.word for row in found(0.5).rows} == {AlignmentVerdict.MATTERS}


def gauss(scatter: float) -> Noise:
    return lambda rng: max(0.05, rng.gauss(1, scatter))


def disturbed(rng: random.Random) -> float:
    """Return rates of which two in five are slowed down by something else."""
    return rng.gauss(1, 0.02) if rng.random() > 0.4 else rng.uniform(0.05, 0.9)


NOISES = {
    "5 %": gauss(0.05), "10 %": gauss(0.1), "30 %, skewed": lambda rng: rng.lognormvariate(0, 0.3),
    "disturbed": disturbed,
}  # fmt: skip
PAIRS = (("5 %", 8), ("10 %", 6), ("30 %, skewed", 5), ("disturbed", 5))  # of noise and repeats: each at least once


def whole(
    noise: Noise, *, repeats: int, seed: int, unit: int = 16 * KIB, writes: bool = True, costs: bool = False
) -> tuple[Row, ...]:
    """Run the whole experiment: all loads from all starts, on a drive that loses what is predicted, or nothing."""
    rng = random.Random(seed)
    return judge_rates(
        [
            Rate(load, place, repeat, 1000 * noise(rng) * (predicted(load, place.residue, unit) if costs else 1))
            for repeat in range(repeats)
            for load in loads_of(writes=writes, depth=1)
            for place in places_of(ROOM, unit, 512)
        ],
        unit,
    )


@pytest.mark.parametrize(
    ("noise", "repeats"),
    [
        pytest.param(noise, repeats, marks=() if (noise, repeats) in PAIRS else when_thorough("simulates for seconds"))
        for noise in NOISES
        for repeats in (5, 6, 8)
    ],
)
def test_false_verdicts_caused_by_noise_keep_to_the_false_line_rate(noise: str, repeats: int) -> None:
    """Four loads and eight starts are 32 rows, each of which could lose by chance."""
    false = 0
    for seed in (drawn := seeds(300)):
        rows = whole(NOISES[noise], repeats=repeats, seed=seed)
        assert len(rows) == 32
        false += overall_verdict(rows) is AlignmentVerdict.MATTERS
    assert false <= FALSE_LINE_RATE * len(drawn)


@pytest.mark.parametrize("repeats", [1, 2, 3, 4])
def test_with_fewer_than_five_repeats_the_verdict_is_unknown(repeats: int) -> None:
    rows = whole(gauss(0.001), repeats=repeats, seed=1, costs=True)
    assert {row.word for row in rows} == {AlignmentVerdict.CANNOT_TELL} and overall_verdict(
        rows
    ) is AlignmentVerdict.CANNOT_TELL
    assert {row.why for row in rows} == {"fewer than 5 repeats"}


@pytest.mark.parametrize("unit", [4 * KIB, 16 * KIB, 32 * KIB])
def test_the_losses_of_the_article_are_detected_among_all_rows(unit: int) -> None:
    """1/2, 4/5 and 8/9 of random writes, with runs that scatter by two percent."""
    found = 0
    for seed in range(50):
        rows = whole(gauss(0.02), repeats=5, seed=seed, unit=unit, costs=True)
        row = next(
            row for row in rows if row.load.pattern is Pattern.RANDOM_WRITE and row.place.title == "as sector 63"
        )
        found += row.word is AlignmentVerdict.MATTERS and overall_verdict(rows) is AlignmentVerdict.MATTERS
        assert row.ratio == pytest.approx(ARTICLE[unit], abs=0.05)
    assert found >= {4 * KIB: 50, 16 * KIB: 50, 32 * KIB: 40}[unit]


def test_a_loss_significant_by_itself_may_be_chance_among_many_rows() -> None:
    """Small and not quite even: one such row in some hundred occurs by chance."""
    ratios = (0.891, 0.94, 0.94, 0.94, 0.949)

    def rates(places: Sequence[Place], loads: Sequence[Load]) -> Sequence[Rate]:
        return [
            Rate(load, place, repeat, 1000 * (ratios[repeat] if place.residue == OLD_START % (16 * KIB) else 1))
            for repeat in range(5) for load in loads for place in places
        ]  # fmt: skip

    alone = judge_rates(rates(places_of(ROOM, 16 * KIB, 512, OLD_START), [WRITES]), 16 * KIB)
    assert [row.word for row in alone] == [AlignmentVerdict.MATTERS]
    many = _of_63(judge_rates(rates(places_of(ROOM, 16 * KIB, 512), [WRITES]), 16 * KIB))
    assert many.word is AlignmentVerdict.MATTERS  # still significant among eight rows
    every = [WRITES, *(Load(Pattern.RANDOM_WRITE, 4 * KIB, depth) for depth in (2, 4, 8, 16, 32))]
    among = judge_rates(
        [
            each if each.load == WRITES else Rate(each.load, each.place, each.repeat, 1000)
            for each in rates(places_of(ROOM, 16 * KIB, 512), every)
        ],
        16 * KIB,
    )
    assert _of_63(among).word is AlignmentVerdict.CANNOT_TELL and "chance" in _of_63(among).why


def test_the_headline_names_the_loads_that_it_matters_for() -> None:
    rows = whole(gauss(0.002), repeats=5, seed=1, unit=4 * KIB, costs=True)
    only = tuple(row for row in rows if row.load.pattern is not Pattern.READ)
    assert matters_for(only) == ("random read, 4KiB QD1", "random write, 4KiB QD1")
    assert overall_text(only) == "matters here: random read, 4KiB QD1; random write, 4KiB QD1"


def test_the_verdict_on_a_drive_that_was_only_read_excludes_writes() -> None:
    rows = whole(gauss(0.002), repeats=5, seed=1, writes=False)
    assert {row.word for row in rows} == {AlignmentVerdict.DOES_NOT}
    assert overall_text(rows) == "does not matter for reads; writes were not measured"
    written = whole(gauss(0.002), repeats=5, seed=1)
    assert overall_text(written) == "does not matter here"


def test_a_loss_at_one_start_only_is_not_a_boundary() -> None:
    """8 KiB past a boundary loses, and 2 KiB past, which is off every boundary that 8 KiB is off, does not."""

    def share(place: Place) -> float:
        return 0.5 if place.residue == 8 * KIB else 1

    rows = judge_rates(_rates(share, unit=16 * KIB, noise=0.002), 16 * KIB)
    lost = next(row for row in rows if row.place.residue == 8 * KIB)
    assert lost.ratio < 0.52 and lost.word is AlignmentVerdict.CANNOT_TELL
    assert "loses nothing" in lost.why and overall_verdict(rows) is AlignmentVerdict.CANNOT_TELL


def test_the_tested_starts_are_those_of_the_article_and_every_residue() -> None:
    places = places_of(ROOM, 4096, 512)
    assert [place.start for place in places[:3]] == [2048 * 512, 4096 * 512, (2048 + 63) * 512]
    assert {place.residue for place in places} == set(range(0, 4096, 512))
    assert {place.residue for place in places_of(ROOM, 16 * KIB, 4096)} == {0, 4096, 8192, 12288}


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_unit_of_one_sector_has_no_start_off_its_boundary(sector: int) -> None:
    with pytest.raises(Refused, match="every start is on the boundary"):
        places_of(ROOM, sector, sector)


@pytest.mark.parametrize("unit", [12 * KIB, 24 * KIB, 1536 * KIB])
def test_aligned_starts_are_aligned_to_units_that_are_not_a_power_of_two(unit: int) -> None:
    for place in places_of(ROOM, unit, 512):
        assert place.start % unit == place.residue
        assert place.residue or place.start % MIB == 0 or place.control


def test_a_single_start_can_be_tested() -> None:
    assert places_of(ROOM, 16 * KIB, 512, OLD_START)[2] == next(
        place for place in places_of(ROOM, 16 * KIB, 512) if place.title == "as sector 63"
    )
    (_, _, far) = places_of(ROOM, 16 * KIB, 512, 900 * GIB + 512)
    assert (far.start % (16 * KIB), far.residue) == (512, 512)
    for start, words in ((MIB, "is on the boundary"), (100, "no partition can start at")):
        with pytest.raises(Refused, match=words):
            places_of(ROOM, 16 * KIB, 512, start)


def test_starts_count_from_the_disk_and_not_from_the_partition_or_file() -> None:
    room = Extent(31 * MIB + 512, 512 * MIB)
    places = places_of(room, 16 * KIB, 512)
    for run_ in runs_of(places, loads_of(writes=True, depth=4), room, "/dev/sdb1", room.start, 1.0, 0):
        assert run_.job.offset + room.start == run_.place.start
        assert run_.place.start % (16 * KIB) == run_.place.residue
        assert run_.job.offset + run_.job.span <= room.length


def test_every_repeat_begins_with_a_different_start_and_has_all_of_them() -> None:
    places, loads = places_of(ROOM, 4096, 512), loads_of(writes=False, depth=1)
    firsts = []
    for repeat in range(3):
        runs = list(runs_of(places, loads, ROOM, "/dev/sdb", 0, 1.0, repeat))
        assert len(runs) == len(places) * len(loads)
        assert not any(one.job.writes for one in runs)
        firsts.append(runs[0].place)
    assert len(set(firsts)) == 3


def test_insufficient_space_is_refused() -> None:
    with pytest.raises(Refused, match="too small"):
        places_of(Extent(0, 2 * MIB), 4096, 512)


@pytest.mark.needs_root
@pytest.mark.needs_tools("fio")
@needs_nbdkit
def test_the_requests_to_the_drive_touch_as_many_units_as_predicted(tmp_path: Path) -> None:
    """Counted in the drive's own log of requests, so that no clock is involved: half, 4/5 and 8/9 of the rate."""
    log = tmp_path / "log"
    with slow_drive(tmp_path, f"log={log}", "base_us=0") as file, device_over(file) as device:
        places = places_of(ROOM, 4 * KIB, 512)[:3]
        loads = loads_of(writes=False, depth=1)[:1]
        asked: dict[str, list[int]] = {}
        for one in runs_of(places, loads, ROOM, str(device), 0, 0.5, 0):
            log.write_text("")
            swept = run_sweep([(one.place, "", one.job)], 1, lambda *_: None)
            assert swept.failure is None
            lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
            # Other programs, such as udev, look for tables and signatures at both ends of a new device.
            middle = range(MIB, ROOM.end - MIB)
            asked[one.place.title] = [start for start, length in lines if length == 4 * KIB and start in middle]
    for unit, share in ARTICLE.items():
        touched = {
            title: sum((start + 4 * KIB - 1) // unit - start // unit + 1 for start in starts) / len(starts)
            for title, starts in asked.items()
        }
        assert touched["aligned, as 2048"] == touched["as well aligned"] == 1
        assert 1 / touched["as sector 63"] == pytest.approx(share, abs=0.08)
