"""The probe on simulated drives with known page, unit and cache: hits, misses, false answers.

python -m tests.measure.unit.study                     the table on standard output
python -m tests.measure.unit.study --write docs/probing.md     and its totals into the page
python -m tests.measure.unit.study --each 2 --rounds 2     fewer drives, shorter experiments
python -m tests.measure.unit.study hostile             misleading drives; "held-out": those unknown to the rules
"""

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Protocol

from aligntool.measure.unit import RESAMPLES, Inference, infer
from aligntool.measure.unit_design import ROUNDS, Kind, Round, Sample, design, regions
from aligntool.units import Extent
from tests.measure.unit import blind, held_out, hostile
from tests.measure.unit.drives import Drive, population

MARKS = ("<!-- {} begin -->\n", "<!-- {} end -->")
NOISES = ("quiet", "usual", "loud")
KINDS = {"hostile": hostile.KINDS, "held-out": held_out.KINDS, "blind": blind.KINDS}


class Outcome(StrEnum):
    HIT = "hit"  # the unit, and no false boundary
    PARTLY = "larger only"  # a true boundary, but not the smallest one
    RIGHTLY_UNKNOWN = "rightly unknown"
    MISS = "miss"  # unknown, though there is a unit
    FALSE = "FALSE"  # a false boundary


class Simulated(Protocol):
    """A drive that can be probed, and the boundaries that may be reported for it."""

    seed: int
    size: int
    sector: int

    @property
    def boundaries(self) -> frozenset[int] | None: ...

    @property
    def kinds(self) -> tuple[Kind, ...]: ...

    def samples(self, rounds: Iterable[Round]) -> Iterator[Sample]: ...


def probe_simulated(drive: Simulated, rounds: int = ROUNDS, resamples: int = RESAMPLES) -> Inference:
    """Run the whole experiment in simulated time."""
    rng = random.Random(drive.seed)
    experiment = design(regions(Extent(0, drive.size)), drive.sector, drive.kinds, rng, rounds=rounds)
    return infer(drive.samples(experiment), rng, resamples=resamples)


def judge(drive: Simulated, inference: Inference) -> Outcome:
    stated = {boundary.size for boundary in inference.boundaries}
    true = drive.boundaries or frozenset()
    if stated - true:
        return Outcome.FALSE
    if not stated:
        return Outcome.MISS if true else Outcome.RIGHTLY_UNKNOWN
    return Outcome.HIT if inference.unit == min(true) else Outcome.PARTLY


@dataclass(frozen=True)
class Probed:
    """The outcome for one drive, and how many boundaries were reported."""

    family: str
    noise: str
    outcome: Outcome
    stated: int


def _one(task: tuple[str, str, Drive, int]) -> Probed:
    family, noise, drive, rounds = task
    return _probed(family, noise, drive, rounds)


def _probed(family: str, noise: str, drive: Simulated, rounds: int, resamples: int = RESAMPLES) -> Probed:
    found = probe_simulated(drive, rounds, resamples)
    return Probed(family, noise, judge(drive, found), len(found.boundaries))


def probe_kind(task: tuple[str, str, int, int, int]) -> Probed:
    """Probe one drive of `KINDS`: the set, the name of its kind, its seed, rounds, resamples."""
    which, name, seed, rounds, resamples = task
    return _probed(name, "", KINDS[which][name](seed), rounds, resamples)


def kinds_of(
    which: str, each: int, rounds: int, resamples: int = RESAMPLES, first: int = 0
) -> list[tuple[str, str, int, int, int]]:
    """Return `each` drives of every kind of a set, each with its own seed."""
    return [
        (which, name, 1000 * index + seed, rounds, resamples)
        for index, name in enumerate(KINDS[which])
        for seed in range(first, first + each)
    ]


def _study(each: int, rounds: int) -> list[Probed]:
    tasks = [(*name.split("|"), drive, rounds) for name, drive in population(each)]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(_one, tasks, chunksize=4))


def _table(found: Iterable[Probed]) -> Iterator[str]:
    """Return a table by family and noise."""
    by_family: dict[str, Mapping[str, Counter[Outcome]]] = {}
    for one in found:
        by_noise = by_family.setdefault(one.family, {noise: Counter() for noise in NOISES})
        by_noise[one.noise][one.outcome] += 1
    yield "| simulated drive | " + " | ".join(f"{noise} noise" for noise in NOISES) + " |\n"
    yield "|---|" + "---|" * len(NOISES) + "\n"
    for family, by_noise in by_family.items():
        cells = (", ".join(f"{count} {word}" for word, count in sorted(by_noise[noise].items())) for noise in NOISES)
        yield f"| {family} | " + " | ".join(cells) + " |\n"


def _table_of_kinds(found: Iterable[Probed]) -> Iterator[str]:
    by_kind: dict[str, Counter[Outcome]] = defaultdict(Counter)
    for one in found:
        by_kind[one.family][one.outcome] += 1
    yield "| simulated drive | " + " | ".join(Outcome) + " |\n"
    yield "|---|" + "---|" * len(Outcome) + "\n"
    for name, outcomes in by_kind.items():
        words = re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()
        yield f"| {words} | " + " | ".join(str(outcomes[one] or "") for one in Outcome) + " |\n"


def _summary(found: list[Probed]) -> str:
    """Return the totals of all outcomes."""
    outcomes = Counter(one.outcome for one in found)
    told = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome)
    stated = sum(one.stated for one in found)
    kinds = len({one.family for one in found})
    return f"\nOf {len(found)} drives of {kinds} kinds: {told}; {stated} boundaries were stated.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=["usual", *KINDS], default="usual")
    parser.add_argument("--each", type=int, default=3, help="drives of each kind and noise")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each experiment")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put the totals into this page")
    asked = parser.parse_args()
    table: Callable[[Iterable[Probed]], Iterator[str]] = _table
    if asked.which == "usual":
        found = _study(asked.each, asked.rounds)
    else:
        table = _table_of_kinds
        with ProcessPoolExecutor() as pool:
            found = list(pool.map(probe_kind, kinds_of(asked.which, asked.each, asked.rounds), chunksize=4))
    print("".join(chain(table(found), [_summary(found)])), end="")
    if asked.write:
        page = asked.write.read_text()
        begin, end = (mark.format(asked.which) for mark in MARKS)
        totals = begin + _summary(found) + end
        asked.write.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", totals, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
