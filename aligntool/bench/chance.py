"""Whether a difference may be chance: Student's t-test, and Holm's correction for many questions asked at once.

In: figures of runs, chances. Out: chances. Alone because of forty lines that are compared one is far apart by chance,
and whoever says "faster" or "matters" must reckon with that in the same way.
"""

from collections.abc import Sequence
from math import atan, cos, log, pi, sin, sqrt
from statistics import mean, variance

PROMISED = 0.05  # of all comparisons of a drive with itself may have a false line
LEAST_RUNS = 5
"""Of fewer nobody knows how far they lie apart: of three runs each, ranges that do not overlap come about by chance
once in ten times (2 of 20), of five each once in 126 times.
"""
_SLOWEST = 1e-9  # a rate of nothing has no logarithm


def chance_of_two(one: Sequence[float], other: Sequence[float]) -> float:
    """That rates of the same drive differ so much or more, in either direction: Welch's t-test of their logarithms.

    At least two of each.
    """
    a, b = _logs(one), _logs(other)
    error_a, error_b = variance(a) / len(a), variance(b) / len(b)
    apart, error = abs(mean(a) - mean(b)), error_a + error_b
    if not error:
        return 0.0 if apart else 1.0
    freedom = error**2 / (error_a**2 / (len(a) - 1) + error_b**2 / (len(b) - 1))  # Welch-Satterthwaite
    return beyond(apart / sqrt(error), int(freedom))


def chance_of_loss(ratios: Sequence[float]) -> float:
    """That ratios whose logarithms are 0 on average lie so far below: a one-sided t-test. At least two."""
    logs = _logs(ratios)
    middle, error = mean(logs), sqrt(variance(logs) / len(logs))
    if not error:
        return 0.0 if middle < 0 else 1.0
    both = beyond(abs(middle) / error, len(logs) - 1)
    return both / 2 if middle < 0 else 1 - both / 2


def holm(chances: Sequence[float]) -> tuple[float, ...]:
    """Each so much larger that below PROMISED there is a false one with a chance of PROMISED, however many there are
    (S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979).
    """
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    found, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        found[place] = largest
    return tuple(found)


def beyond(t: float, freedom: int) -> float:
    """The share of Student's distribution beyond t and -t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = (cos(angle), cos(angle) if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, 1 - within)


def _logs(rates: Sequence[float]) -> list[float]:
    return [log(max(rate, _SLOWEST)) for rate in rates]
