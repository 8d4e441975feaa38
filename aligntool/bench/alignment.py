"""What a start off the boundary costs: the same load from several starts, predicted and measured.

In: the unit, rates of runs. Out: rows, verdicts. Alone because what is predicted (A request
touches so many units more) and what is measured must be held against each other by one rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd
from statistics import median

from aligntool.audit.cost import units_touched
from aligntool.bench.chance import LEAST_RUNS, PROMISED, chance_of_loss, holm
from aligntool.bench.conditions import Conditions, crowded_words
from aligntool.bench.measured import NEAR_A_CORE
from aligntool.bench.starts import Load, Place

MATTERS = 0.95  # of the aligned rate: what keeps more loses nothing worth a move


class Word(StrEnum):
    """The verdicts."""

    MATTERS = "matters here"
    DOES_NOT = "does not matter here"
    NOT_FOR_READS = "does not matter for reads; writes were not measured"  # of all rows together only
    CANNOT_TELL = "can't tell"


@dataclass(frozen=True, slots=True)
class Rate:
    """One run: requests a second, and percent of a core that fio's thread used; None: an older file does not say."""

    load: Load
    place: Place
    repeat: int
    iops: float
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One load from one start, beside the aligned one. Ratios are of pairs of runs of the same repeat."""

    load: Load
    place: Place
    predicted: float  # of the aligned rate
    ratio: float  # median
    low: float
    high: float
    noise: tuple[float, float]  # the same of a start that is as well aligned
    word: Word
    why: str
    cpu: float | None = None  # percent of a core, the median of the runs
    aligned_cpu: float | None = None

    @property
    def cpu_bound(self) -> bool:
        """A thread that has no time left cannot ask the drive for more, from whatever start."""
        return max(self.cpu or 0, self.aligned_cpu or 0) >= NEAR_A_CORE


def predicted(load: Load, residue: int, unit: int) -> float:
    """The share of the aligned rate that is left when a request's cost is the units that it touches.

    For random writes of r bytes this is the article's 1/(1 + p), p the share of requests that straddle: with r = 4 KiB
    1/2 for a unit of 4 KiB, 4/5 for 16 KiB, 8/9 for 32 KiB.
    """
    return _touched(load.block, 0, unit) / _touched(load.block, residue, unit)


def _touched(block: int, residue: int, unit: int) -> float:
    """On average over all requests that follow each other."""
    period = unit // gcd(block, unit)
    return sum(units_touched(block, unit, residue + index * block) for index in range(period)) / period


def verdicts(rates: Sequence[Rate], unit: int) -> tuple[Row, ...]:
    """One row for each load and start that is not the aligned one."""
    rows: list[tuple[Row, list[float]]] = []
    for load in dict.fromkeys(rate.load for rate in rates):
        of_load = [rate for rate in rates if rate.load == load]
        places = list(dict.fromkeys(sorted((rate.place for rate in of_load), key=lambda place: place.start)))
        aligned = next((place for place in places if not place.residue and not place.control), None)
        control = next((place for place in places if place.control), None)
        if aligned is None or control is None:
            continue
        noise = _ratios(of_load, control, aligned)
        found = {place: _ratios(of_load, place, aligned) for place in places if place.residue}
        rows += [(_row(load, place, unit, ratios, noise), ratios) for place, ratios in found.items()]
    return tuple(_with_cpu(row, rates) for row in _without_chance(rows))


def not_beside_others(rows: Sequence[Row], seen: Conditions) -> tuple[Row, ...]:
    """As fast from every start is what a machine shows, too, whose cores other programs wait for."""
    crowded = crowded_words(seen)
    return tuple(
        replace(row, word=Word.CANNOT_TELL, why=crowded) if crowded and row.word is Word.DOES_NOT else row
        for row in rows
    )


def _with_cpu(row: Row, rates: Sequence[Rate]) -> Row:
    """Two rates of one processor are alike, and say nothing of the drive."""
    of_load = [rate for rate in rates if rate.load == row.load and rate.cpu is not None]
    here = [rate.cpu or 0 for rate in of_load if rate.place == row.place]
    aligned = [rate.cpu or 0 for rate in of_load if not rate.place.residue and not rate.place.control]
    row = replace(row, cpu=median(here) if here else None, aligned_cpu=median(aligned) if aligned else None)
    if row.word is not Word.DOES_NOT or not row.cpu_bound:
        return row
    return replace(row, word=Word.CANNOT_TELL, why="CPU-bound: the drive may be faster, and may then differ")


def _without_chance(rows: Sequence[tuple[Row, Sequence[float]]]) -> tuple[Row, ...]:
    """Of 36 rows one may lose in every repeat by chance: what matters must be no chance among so many (a one-sided
    t-test of the logarithms, Holm's correction), and what loses from one start must lose from those further off.
    """
    measured = [ratios for _, ratios in rows if len(ratios) >= LEAST_RUNS]
    chances = iter(holm([chance_of_loss(ratios) for ratios in measured]))
    told = []
    for row, ratios in rows:
        chance = next(chances) if len(ratios) >= LEAST_RUNS else 1.0
        if row.word is Word.MATTERS and chance > PROMISED:
            why = f"slower in every repeat, but among {len(measured)} rows that is chance in {chance:.0%} of cases"
            row = replace(row, word=Word.CANNOT_TELL, why=why)
        elif row.word is Word.MATTERS and (other := _contradiction(row, [each for each, _ in rows])):
            why = (
                f"the start {other.place.title} is off every boundary that this one is off, and loses nothing"
            )
            row = replace(row, word=Word.CANNOT_TELL, why=why)
        told.append(row)
    return tuple(told)


def _contradiction(row: Row, rows: Sequence[Row]) -> Row | None:
    """A start off some power of two is off the larger ones, too: 6 KiB is off whatever 4 KiB is off."""
    step = row.place.residue & -row.place.residue
    return next(
        (
            each
            for each in rows
            if each.load == row.load
            and each.place.residue & -each.place.residue <= step
            and each.ratio >= MATTERS
        ),
        None,
    )


def _ratios(rates: Sequence[Rate], place: Place, aligned: Place) -> list[float]:
    """Of each repeat that has both."""
    by_repeat = {rate.repeat: rate.iops for rate in rates if rate.place == aligned}
    return sorted(
        rate.iops / by_repeat[rate.repeat]
        for rate in rates
        if rate.place == place and by_repeat.get(rate.repeat, 0) > 0
    )


def _row(load: Load, place: Place, unit: int, ratios: Sequence[float], noise: Sequence[float]) -> Row:
    expected = predicted(load, place.residue, unit)
    if min(len(ratios), len(noise)) < LEAST_RUNS:
        nothing = (0.0, 0.0)
        why = f"fewer than {LEAST_RUNS} repeats"
        return Row(load, place, expected, 0.0, 0.0, 0.0, nothing, Word.CANNOT_TELL, why)
    word, why = _word(ratios, noise)
    return Row(load, place, expected, median(ratios), ratios[0], ratios[-1], (noise[0], noise[-1]), word, why)


def _word(ratios: Sequence[float], noise: Sequence[float]) -> tuple[Word, str]:
    """Every repeat must say the same, and the loss be larger than the repeats, and than two aligned starts, differ."""
    lost = 1 - median(ratios)
    scatter = max(noise[-1] - noise[0], ratios[-1] - ratios[0])
    if ratios[-1] < min(MATTERS, noise[0]) and lost > scatter:
        return Word.MATTERS, f"every repeat is slower, by {lost:.0%}, than two aligned starts differ"
    if noise[0] < MATTERS or noise[-1] > 1 / MATTERS:
        return Word.CANNOT_TELL, f"two aligned starts differ as well, {noise[0]:.2f} to {noise[-1]:.2f}"
    if ratios[0] > MATTERS:
        return Word.DOES_NOT, f"every repeat keeps more than {MATTERS:.0%} of the aligned rate"
    return Word.CANNOT_TELL, "the repeats do not agree; more of them, or longer ones, might"


def overall(rows: Sequence[Row]) -> Word:
    """What a user wants to know first: whether any load loses from any start."""
    words = {row.word for row in rows}
    if Word.MATTERS in words:
        return Word.MATTERS
    if words != {Word.DOES_NOT}:
        return Word.CANNOT_TELL
    return Word.DOES_NOT if any(row.load.pattern.writes for row in rows) else Word.NOT_FOR_READS


def matters_for(rows: Sequence[Row]) -> tuple[str, ...]:
    """Titles of the loads that lose from a start."""
    return tuple(dict.fromkeys(row.load.title for row in rows if row.word is Word.MATTERS))


def said_of_all(rows: Sequence[Row]) -> str:
    """The verdict over all rows with the loads that it matters for."""
    return ": ".join(word for word in (overall(rows).value, "; ".join(matters_for(rows))) if word)
