"""Whether an SSD has come to rest: SNIA's test for steady state.

In: a figure for each round, in their order. Out: steady or not, and by how much. Alone because it is a published rule
and is tried on made rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 5
MOST_EXCURSION = 0.20
MOST_SLOPE = 0.10


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Of the last WINDOW rounds; shares of their average."""

    steady: bool
    rounds: int  # that there were in all
    average: float
    excursion: float  # highest less lowest
    slope: float  # rise of the fitted line from the first round of the window to the last, without its sign


def steadiness(values: Sequence[float]) -> Steadiness | None:
    """SNIA Solid State Storage Performance Test Specification 2.0.2: within a window of five rounds the values differ
    by at most 20 % of their average, and the line that fits them best (least squares) by at most 10 %.

    None: there are fewer rounds than the window has.
    """
    if len(values) < WINDOW:
        return None
    window = values[-WINDOW:]
    average = sum(window) / WINDOW
    if average <= 0:
        return Steadiness(False, len(values), average, 0.0, 0.0)
    middle = (WINDOW - 1) / 2
    rise = sum((at - middle) * value for at, value in enumerate(window))
    slope = abs(rise / sum((at - middle) ** 2 for at in range(WINDOW)) * (WINDOW - 1)) / average
    excursion = (max(window) - min(window)) / average
    return Steadiness(
        excursion <= MOST_EXCURSION and slope <= MOST_SLOPE, len(values), average, excursion, slope
    )
