"""The probe on simulated drives of known page, unit and cache: hits, misses, false answers.

python -m tests.inference.study                     the table on standard output
python -m tests.inference.study --write docs/probing.md     and into the page
python -m tests.inference.study --each 2 --rounds 2     fewer drives, shorter experiments
"""

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum
from itertools import chain
from pathlib import Path

from aligntool.bench.inference import RESAMPLES, Inference, infer
from aligntool.bench.inference_design import ROUNDS, design, regions
from aligntool.units import Extent
from tests.inference.drives import Drive, population

MARKS = ("<!-- study begin -->\n", "<!-- study end -->")
NOISES = ("quiet", "usual", "loud")


class Outcome(StrEnum):
    HIT = "hit"  # the unit, and no boundary that is none
    PARTLY = "larger only"  # a true boundary, but not the smallest one
    RIGHTLY_UNKNOWN = "rightly unknown"
    MISS = "miss"  # unknown, and there is a unit
    FALSE = "FALSE"  # a boundary that is none


def probe_simulated(drive: Drive, rounds: int = ROUNDS, resamples: int = RESAMPLES) -> Inference:
    """The whole experiment, in simulated time."""
    dice = random.Random(drive.seed)
    experiment = design(regions(Extent(0, drive.size)), drive.sector, drive.kinds, dice, rounds=rounds)
    return infer(drive.samples(experiment), dice, resamples=resamples)


def judge(drive: Drive, inference: Inference) -> Outcome:
    said = {boundary.size for boundary in inference.boundaries}
    true = drive.boundaries or frozenset()
    if said - true:
        return Outcome.FALSE
    if not said:
        return Outcome.MISS if true else Outcome.RIGHTLY_UNKNOWN
    return Outcome.HIT if inference.unit == min(true) else Outcome.PARTLY


def _one(task: tuple[str, str, Drive, int]) -> tuple[str, str, Outcome]:
    family, noise, drive, rounds = task
    return family, noise, judge(drive, probe_simulated(drive, rounds))


def study(each: int, rounds: int) -> Mapping[str, Mapping[str, Counter[Outcome]]]:
    """Family -> noise -> how often each outcome."""
    found: dict[str, dict[str, Counter[Outcome]]] = defaultdict(lambda: defaultdict(Counter))
    tasks = [(*name.split("|"), drive, rounds) for name, drive in population(each)]
    with ProcessPoolExecutor() as pool:
        for family, noise, outcome in pool.map(_one, tasks, chunksize=4):
            found[family][noise][outcome] += 1
    return found


def table(found: Mapping[str, Mapping[str, Counter[Outcome]]]) -> Iterator[str]:
    yield "| simulated drive | " + " | ".join(f"{noise} noise" for noise in NOISES) + " |\n"
    yield "|---|" + "---|" * len(NOISES) + "\n"
    for family, by_noise in found.items():
        cells = (
            ", ".join(f"{count} {word}" for word, count in sorted(by_noise[noise].items()))
            for noise in NOISES
        )
        yield f"| {family} | " + " | ".join(cells) + " |\n"
    every = sum((by_noise[noise] for by_noise in found.values() for noise in NOISES), Counter())
    told = ", ".join(f"{every[outcome]} {outcome}" for outcome in Outcome)
    yield f"\nOf {every.total()} drives: {told}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=3, help="drives of each kind and noise")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each experiment")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put the table into this page")
    asked = parser.parse_args()
    text = "".join(chain(table(study(asked.each, asked.rounds))))
    print(text, end="")
    if asked.write:
        page = asked.write.read_text()
        begin, end = (re.escape(mark) for mark in MARKS)
        asked.write.write_text(
            re.sub(f"{begin}.*?{end}", MARKS[0] + text.replace("\\", r"\\") + MARKS[1], page, flags=re.DOTALL)
        )


if __name__ == "__main__":
    main()
