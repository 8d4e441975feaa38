"""How many cores of the whole machine were busy while fio measured.

In: looks at /proc/stat, from before fio is started until it has ended. Out: cores. Alone because fio's start and its
end, half a second in which little is done, must not count: beside them a second of work never looks like a full
machine.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SHORTEST_S = 0.1
"""Of fewer seconds the kernel's ticks, a hundredth each, tell too little."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ticks of all cores together since the machine's start (proc_stat(5)). `passed` has the idle ones as well."""

    at_s: float  # by the monotonic clock
    busy: int
    passed: int
    cores: int


def busy_cores(looks: Sequence[Look], runtime_s: float) -> float | None:
    """`looks` are in order, the first before fio was started and the last after its end; `runtime_s` is what fio says
    that it measured for.

    Start and end took the rest of the time together, whatever each of them took. So fio was measuring from that rest
    after the first look on until that rest before the last one, and only looks between those two moments count. None:
    there are no two, or they are less than SHORTEST_S apart.
    """
    if len(looks) < 2:
        return None
    began, ended = looks[0].at_s, looks[-1].at_s
    rest = max(ended - began - runtime_s, 0.0)
    inside = [look for look in looks if began + rest <= look.at_s <= ended - rest]
    if len(inside) < 2 or inside[-1].at_s - inside[0].at_s < SHORTEST_S:
        return None
    passed = inside[-1].passed - inside[0].passed
    busy = inside[-1].busy - inside[0].busy
    return round(inside[0].cores * min(max(busy, 0) / passed, 1.0), 2) if passed > 0 else None


class Looks:
    """Those of one run."""

    def __init__(self) -> None:
        self._taken: list[Look] = []

    def take(self) -> None:
        found = _look()
        if found is not None:
            self._taken.append(found)

    def beside(self, tell: Callable[[float], None]) -> Callable[[float], None]:
        """One more whenever it is told how far fio is, a few times a second."""

        def told(share: float) -> None:
            self.take()
            tell(share)

        return told

    def cores(self, runtime_s: float) -> float | None:
        """None: too short to tell, or the kernel says nothing."""
        return busy_cores(self._taken, runtime_s)


def _look() -> Look | None:
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line[:3] == "cpu"]
        ticks = [int(word) for word in lines[0][1:9]]
    except (OSError, ValueError, IndexError):
        return None
    idle = sum(ticks[3:5])  # with the time in which a disk was waited for
    return Look(time.monotonic(), sum(ticks) - idle, sum(ticks), len(lines) - 1 or os.cpu_count() or 1)
