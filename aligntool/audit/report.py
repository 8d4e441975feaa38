"""The words an audit answers in: severities, grids, checks, verdicts, findings.

Plain values, so that `render` can tell them, scripts can read them and tests can compare them.
"""

from dataclasses import dataclass
from enum import StrEnum

from aligntool.audit.codes import Code
from aligntool.audit.cost import Cost
from aligntool.inventory import Disk, Inventory, Source
from aligntool.units import off_by


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is worst."""
        return _SEVERITY_RANK[self]


_SEVERITY_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


class GridKind(StrEnum):
    """What asks for a boundary."""

    PHYSICAL = "physical sector"
    MINIMUM_IO = "minimum I/O size"
    PAGE = "NAND page"
    UNIT = "indirection unit"
    ALLOCATION = "allocation unit"
    CHUNK = "RAID chunk"
    ERASE = "erase block"
    OPTIMAL_IO = "optimal I/O size"
    GRAIN = "grain"


@dataclass(frozen=True, slots=True)
class Grid:
    """A boundary that a device, a database or a guess asks for.

    `severity` is what a partition off this grid deserves (DESIGN: error off the physical grid, warning off
    page, unit, allocation unit and chunk, info off the rest).
    """

    kind: GridKind
    size: int
    phase: int
    source: Source
    by: str
    severity: Severity

    def off_by(self, offset: int) -> int:
        return off_by(offset, self.size, self.phase)


@dataclass(frozen=True, slots=True)
class Check:
    """One grid against one offset."""

    grid: Grid
    off_by: int

    @property
    def on(self) -> bool:
        return self.off_by == 0


class Answer(StrEnum):
    ON = "on the grid"
    OFF = "off the grid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one partition, or for a disk that is used whole (`partition` None)."""

    disk: str
    partition: int | None
    start: int
    answer: Answer
    checks: tuple[Check, ...]
    matters: bool = True  # False: a BIOS boot partition and the like; said, never a fault
    why: str = ""  # for UNKNOWN, and where it does not matter


@dataclass(frozen=True, slots=True)
class Finding:
    code: Code
    severity: Severity
    summary: str  # one sentence: what, where, by how much
    disk: str | None = None
    partition: int | None = None
    layer: str | None = None  # "md 1.2", "LUKS2", "LVM vg/lv", "FAT32"
    start: int | None = None  # bytes on the disk
    sector_size: int | None = None  # of the user's sectors, in which `start` is also told
    grid: Grid | None = None
    off_by: int | None = None
    cause: str | None = None
    cost: Cost | None = None
    evidence: tuple[str, ...] = ()
    next: str = ""  # the next thing to type


@dataclass(frozen=True, slots=True)
class Judged:
    """A disk with everything that was decided about it."""

    disk: Disk
    grids: tuple[Grid, ...]
    verdicts: tuple[Verdict, ...]

    def verdict(self, partition: int | None) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.partition == partition), None)

    def by_partition(self) -> dict[int | None, Verdict]:
        """For whoever asks for all of them: a table may have thousands. Of two with one number the first counts."""
        return {verdict.partition: verdict for verdict in reversed(self.verdicts)}


@dataclass(frozen=True, slots=True)
class Report:
    inventory: Inventory
    judged: tuple[Judged, ...]
    findings: tuple[Finding, ...]  # worst first, then in the order of the disks

    def count(self, severity: Severity) -> int:
        return sum(1 for finding in self.findings if finding.severity is severity)

    def count_answers(self, answer: Answer) -> int:
        return sum(
            1
            for judged in self.judged
            for verdict in judged.verdicts
            if verdict.matters and verdict.answer is answer
        )
