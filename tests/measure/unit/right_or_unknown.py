"""Check measurements on a machine that also does other things: an answer is right or unknown, never wrong.

A busy machine can hide what a drive does, and "unknown" is then the honest answer; it does not excuse a wrong one. So a
test that times a simulated drive measures a few times: every answer must be right or unknown, and one must be right. If
none is, and processes had to wait for a processor meanwhile as the kernel counts it, the test is skipped: it is not
possible to measure on that machine.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import pytest

Found = TypeVar("Found")
TRIES = 4
PRESSURE = Path("/proc/pressure/cpu")  # Documentation/accounting/psi.rst; not on every kernel
TOO_BUSY = 0.4  # of the time some process waited for a processor


class Answer(StrEnum):
    RIGHT = "right"
    UNKNOWN = "unknown"  # no claim, or only a doubtful one
    WRONG = "wrong"


def right_or_unknown(measure: Callable[[], Found], judge: Callable[[Found], Answer]) -> Found:
    """Return the first right answer. Fails at once for a wrong one, and if none of `TRIES` is right on a machine that
    had processors to spare.
    """
    began, waited = time.monotonic(), _waited_s()
    for _ in range(TRIES):
        found = measure()
        answer = judge(found)
        assert answer is not Answer.WRONG, f"a wrong answer: {found}"
        if answer is Answer.RIGHT:
            return found
    share = (_waited_s() - waited) / (time.monotonic() - began)
    if share > TOO_BUSY:
        pytest.skip(f"too busy to time a drive: processes waited for a processor {share:.0%} of the time")
    raise AssertionError(f"unknown {TRIES} times, at last: {found}")


def _waited_s() -> float:
    """Return the seconds since boot in which some process waited for a processor; 0 if the kernel does
    not count them.
    """
    try:
        line = PRESSURE.read_text().partition("\n")[0]
    except OSError:
        return 0.0
    return int(line.rpartition("total=")[2]) / 1e6


def classify(answer: object, right: object, unknown: object = None) -> Answer:
    """Classify one value: it is wrong if it is neither the right one nor the word for unknown."""
    return Answer.RIGHT if answer == right else Answer.UNKNOWN if answer == unknown else Answer.WRONG
