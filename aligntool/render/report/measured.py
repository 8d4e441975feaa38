"""Benchmarks as a page shows them: charts, sentences, conditions.

In: plain values. Out: the same, by name. Alone because whoever reads results of benchmarks fills these, and the page
knows no other.
"""

import re
from dataclasses import dataclass

from aligntool.audit import Finding
from aligntool.audit.wishes import MeasuredDisk
from aligntool.inventory import Disk
from aligntool.render.svg_charts import Chart, Rows


@dataclass(frozen=True, slots=True)
class Loss:
    """What random writes of `request` bytes keep of their rate `residue` bytes past a boundary of `unit` bytes, as it
    was measured on `target`, which is on `disk`; None: an older file, which does not say."""

    unit: int
    request: int
    residue: int
    disk: MeasuredDisk | None
    target: str
    text: str

    def is_about(self, finding: Finding, disk: Disk) -> bool:
        """Whether it was measured on that disk, by what the disk calls itself, and from a start that is off as far."""
        cost = finding.cost
        if cost is None or finding.start is None or self.disk is None or not self.disk.is_of(disk):
            return False
        lies = (cost.unit, cost.request, finding.start % self.unit)
        return lies == (self.unit, self.request, self.residue)


@dataclass(frozen=True, slots=True)
class Measured:
    """One result. `notes`: what has to be said with it. `conditions`: a word and what is to be said under it.
    `about`: who was measured and how, a line each, for a picture of its own.
    `figures`: all of them as a table, the heads first; a row of one cell is the head of those below it. A chart whose
    figures are there needs no table of its own.
    """

    title: str
    summary: str
    charts: tuple[Chart, ...] = ()
    figures: Rows = ()
    notes: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    losses: tuple[Loss, ...] = ()
    about: tuple[str, ...] = ()


def when_words(when: str) -> str:
    """ "2026-11-21T23:45:52Z" -> "2026-11-21 23:45 UTC"; what is no such time stays as it is."""
    found = re.fullmatch(r"([0-9-]{10})T([0-9]{2}:[0-9]{2}):[0-9]{2}Z", when)
    return f"{found[1]} {found[2]} UTC" if found else when
