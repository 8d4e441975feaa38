"""Aggregate the audits of many machines: counts, a ranking of misaligned disks, drives grouped by model."""

import re
from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import TypeVar

from aligntool.audit.report import Answer, Code, Judged, Report, Severity
from aligntool.documents import OMITTED, OPTIONAL
from aligntool.inventory import Disk
from aligntool.system import SNAPSHOT_SUFFIXES

# Everything that is kept is bounded, so a report on a hundred thousand machines takes as much memory as one
# on a hundred.

MOST_ROWS = 100  # in a list of the report
MOST_MODELS = 1000
MOST_FIRMWARES = 20
MOST_PLACES = 5
MOST_DRIVES = 1000  # of one machine
MOST_SQUARES = 2000  # machines of the map on the page
MOST_DISKS = 20  # misaligned disks of one machine on the page
LONGEST = 80  # characters of a name, which is untrusted input
ENOUGH = 5  # drives of a model: with fewer, a rare firmware is not significant
_DAY_S = 86400
_Rank = tuple[float, float, int, int, int, int, tuple[str, str], int]
_Costs = Mapping[tuple[str | None, int | None], float]  # by disk and partition
_NUMBER = re.compile("[0-9]+")


def natural_key(name: str) -> tuple[str, str]:
    """Return a key that sorts names as people do: web2 before web10."""
    return _NUMBER.sub(lambda found: found.group().zfill(20), name.casefold()), name


@dataclass(frozen=True, slots=True)
class Drive:
    """A disk of a machine. Sizes in bytes; None: unknown."""

    name: str
    model: str
    firmware: str
    size: int | None
    misaligned: int = 0  # partitions
    # predicted time of a random 4 KiB write to the worst of them; 1: as an aligned write
    cost: float | None = None
    written_a_day: int | None = None  # bytes to the misaligned partitions, on average since boot
    extra_a_day: int | None = None  # predicted extra work of the drive, as bytes written
    failing: str | None = None
    defect: str | None = None  # known defect of its firmware
    array: str = field(default="", metadata={OMITTED: True})  # of an md array: its name, or else its level


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """How many findings of one code are errors."""

    code: str
    count: int
    # the md arrays concerned, "md0 (host:data)"; at most MOST_PLACES
    arrays: tuple[str, ...] = field(default=(), metadata={OMITTED: True})


@dataclass(frozen=True, slots=True)
class Machine:
    """The summary of the audit of one snapshot. `why`: the reason if it could not be audited."""

    snapshot: str
    host: str | None = None
    date: str | None = None
    aligntool: str | None = None
    disks: int = 0
    errors: int = 0
    warnings: int = 0
    on_grid: int = 0
    off_grid: int = 0
    unknown: int = 0
    drives: tuple[Drive, ...] = ()
    why: str | None = None
    error_codes: tuple[ErrorCount, ...] = field(default=(), metadata={OPTIONAL: True})

    @property
    def damages(self) -> tuple[ErrorCount, ...]:
        """Return the errors about more than slow requests."""
        return tuple(each for each in self.error_codes if Code(each.code).is_of_damage)

    @property
    def name(self) -> str:
        """Return the host name in the snapshot, or else the name of its file without the suffix."""
        name = self.snapshot.rstrip("/").rpartition("/")[2]
        ending = next((suffix for suffix in SNAPSHOT_SUFFIXES if name.endswith(suffix)), "")
        return self.host or name.removesuffix(ending) or self.snapshot


def machine_of(snapshot: str, report: Report, written: Mapping[str, float]) -> Machine:
    """Return the summary of an audit. `written`: bytes per second to each disk and partition, by kernel
    name.
    """
    costs = {
        (found.disk, found.partition): 1 / found.cost.write_rate
        for found in report.findings
        if found.cost is not None and found.start is not None and found.layer is None
    }
    defects = {
        found.disk: found.summary.partition(": ")[2]
        for found in report.findings
        if found.code is Code.FIRMWARE_DEFECT
    }
    drives = [_drive(judged, costs, written, defects.get(judged.disk.name)) for judged in report.judged]
    drives = [drive for drive in drives if drive.model or drive.misaligned or drive.failing]
    # stable; misaligned first, because the end may be cut off
    drives.sort(key=lambda drive: not drive.misaligned)
    manifest = report.inventory.manifest
    errors = Counter(found.code.value for found in report.findings if found.severity is Severity.ERROR)
    return Machine(
        snapshot,
        _cut(manifest.host),
        _cut(manifest.date),
        _cut(manifest.aligntool),
        disks=len(report.judged),
        errors=report.count(Severity.ERROR),
        warnings=report.count(Severity.WARNING),
        on_grid=report.count_answers(Answer.ON),
        off_grid=report.count_answers(Answer.OFF),
        unknown=report.count_answers(Answer.UNKNOWN),
        drives=tuple(drives[:MOST_DRIVES]),
        error_codes=tuple(
            ErrorCount(code, count, _arrays_of(report, code)) for code, count in sorted(errors.items())
        ),
    )


def _arrays_of(report: Report, code: str) -> tuple[str, ...]:
    """Return the arrays that have errors of this code."""
    wrong = {
        finding.disk
        for finding in report.findings
        if finding.code == code and finding.severity is Severity.ERROR
    }
    disks = (judged.disk for judged in report.judged)
    names = (f"{disk.name} ({_array_name(disk)})" for disk in disks if disk.array and disk.name in wrong)
    return tuple(name[:LONGEST] for name in islice(names, MOST_PLACES))


def _array_name(disk: Disk) -> str:
    return (disk.array.name or disk.array.level)[:LONGEST] if disk.array else ""


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST]


def _drive(judged: Judged, costs: _Costs, written: Mapping[str, float], defect: str | None) -> Drive:
    disk = judged.disk
    nodes: dict[int | None, str | None] = {part.number: part.node for part in disk.partitions}
    off = [
        verdict.partition for verdict in judged.verdicts if verdict.matters and verdict.answer is Answer.OFF
    ]
    loads = []
    seen = [costs.get((disk.name, number)) for number in off]
    for number, cost in zip(off, seen, strict=True):
        rate = written.get(nodes.get(number) or disk.name)
        if rate is not None:
            loads.append((rate * _DAY_S, (cost or 1) - 1))
    known = [cost for cost in seen if cost is not None]
    return Drive(
        disk.name[:LONGEST],
        _cut(disk.model) or "",
        _cut(disk.firmware) or "",
        disk.size,
        len(off),
        max(known, default=None),
        round(sum(load for load, _ in loads)) if loads else None,
        round(sum(load * more for load, more in loads)) if loads else None,
        _cut(disk.failing),
        defect,
        _array_name(disk),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A drive in a list of the report. `why`: the reason why it needs attention."""

    machine: str
    snapshot: str
    drive: Drive
    why: str = ""


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A machine in the list of the report, without its drives. `disks`: the first of its misaligned ones.
    `extra_a_day`: of all of them; None: unknown.
    """

    machine: Machine
    disks: tuple[Drive, ...]
    extra_a_day: int | None


def _machine_row(machine: Machine) -> MachineRow:
    off = [drive for drive in machine.drives if drive.misaligned]
    extra = [drive.extra_a_day for drive in off if drive.extra_a_day is not None]
    return MachineRow(replace(machine, drives=()), tuple(off[:MOST_DISKS]), sum(extra) if extra else None)


def _rank_of(row: MachineRow, number: int) -> _Rank:
    """Return the key of a machine in the ranking: damaged ones are the first, those that were not audited the
    last.
    """
    machine = row.machine
    if machine.why is not None:
        return inf, 0, 0, 0, 0, 0, natural_key(machine.name), number
    # As in the ranking of disks: a machine whose rate is unknown is before those that do not write.
    extra = 0.5 if row.extra_a_day is None and row.disks else row.extra_a_day or 0
    counts = (-machine.off_grid, -machine.errors, -machine.unknown, -machine.warnings)
    return not machine.damages, -extra, *counts, natural_key(machine.name), number


@dataclass(slots=True)
class Firmware:
    """The drives of one model with one firmware: their number, and a few of them."""

    drives: int = 0
    rows: list[tuple[tuple[int, int], Row]] = field(default_factory=list)


@dataclass(slots=True)
class Model:
    """The drives of one model."""

    name: str
    drives: int = 0
    misaligned: int = 0
    firmwares: dict[str, Firmware] = field(default_factory=dict)

    def by_number(self) -> list[tuple[str, Firmware]]:
        """Return the firmwares, the most common first."""
        return sorted(self.firmwares.items(), key=lambda item: (-item[1].drives, item[0]))

    def lone(self) -> Iterator[Row]:
        """Yield the drives with a rare firmware, if more than half of the drives of the model have the same
        one.
        """
        found = [(name, group) for name, group in self.by_number() if name]
        total = sum(group.drives for _, group in found)
        if total < ENOUGH or found[0][1].drives * 2 <= total:
            return
        usual = f"{found[0][1].drives} of {total} drives of this model have {found[0][0]}"
        for name, group in found[1:]:
            if group.drives * 10 <= max(total, 10):
                yield from (
                    Row(row.machine, row.snapshot, row.drive, f"firmware {name}; {usual}")
                    for _, row in group.rows
                )


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _insert_sorted(rows: list[tuple[_Key, _Value]], key: _Key, row: _Value, most: int = MOST_ROWS) -> None:
    """Insert a row in the order of the keys, and keep the first `most`. No two keys are equal."""
    insort(rows, (key, row))
    del rows[most:]


@dataclass(slots=True)
class Fleet:
    """The totals of all machines. They do not depend on the order in which machines are added."""

    snapshots: int = 0
    misaligned: int = 0  # machines
    damages: Counter[str] = field(default_factory=Counter)  # machines by code
    with_findings: int = 0  # machines: misaligned, or with another error, an unknown start or a warning
    disks: int = 0
    misaligned_disks: int = 0
    on_grid: int = 0
    off_grid: int = 0
    unknown: int = 0
    errors: int = 0
    warnings: int = 0
    not_audited: int = 0
    failing: int = 0
    dates: tuple[str, str] | None = None  # the earliest and the latest
    undated: int = 0  # machines that were audited
    models: dict[str, Model] = field(default_factory=dict)
    _ranked: list[tuple[tuple[float, float, int, int, int], Row]] = field(default_factory=list)
    _failing: list[tuple[tuple[int, int], Row]] = field(default_factory=list)
    _defects: list[tuple[tuple[int, int], Row]] = field(default_factory=list)
    _refused: list[tuple[int, Machine]] = field(default_factory=list)
    _machines: list[tuple[_Rank, MachineRow]] = field(default_factory=list)
    _squares: list[tuple[_Rank, Machine]] = field(default_factory=list)

    def add(self, number: int, machine: Machine) -> None:
        """Add a machine. `number`: the position of its snapshot among the arguments."""
        self.snapshots += 1
        row = _machine_row(machine)
        rank = _rank_of(row, number)
        _insert_sorted(self._squares, rank, row.machine, MOST_SQUARES)
        if machine.why is not None:
            self.not_audited += 1
            _insert_sorted(self._refused, number, machine)
            return
        self.misaligned += machine.off_grid > 0
        self.damages.update(each.code for each in machine.damages)
        self.with_findings += any((machine.off_grid, machine.errors, machine.unknown, machine.warnings))
        self.disks += machine.disks
        self.on_grid += machine.on_grid
        self.off_grid += machine.off_grid
        self.unknown += machine.unknown
        self.errors += machine.errors
        self.warnings += machine.warnings
        if machine.date:
            first, last = self.dates or (machine.date, machine.date)
            self.dates = (min(first, machine.date), max(last, machine.date))
        else:
            self.undated += 1
        _insert_sorted(self._machines, rank, row)
        for place, drive in enumerate(machine.drives):
            self._add_drive((number, place), Row(machine.name, machine.snapshot, drive))

    def _add_drive(self, place: tuple[int, int], row: Row) -> None:
        drive = row.drive
        if drive.misaligned:
            self.misaligned_disks += 1
            # rate unknown: after drives that are written to, before drives that are not
            extra = 0.5 if drive.extra_a_day is None else drive.extra_a_day
            _insert_sorted(self._ranked, (-extra, -(drive.cost or 0), -drive.misaligned, *place), row)
        if drive.failing is not None:
            self.failing += 1
            _insert_sorted(
                self._failing,
                place,
                Row(row.machine, row.snapshot, drive, f"reports that it fails: {drive.failing}"),
            )
        if drive.defect is not None:
            _insert_sorted(self._defects, place, Row(row.machine, row.snapshot, drive, drive.defect))
        if drive.model and (drive.model in self.models or len(self.models) < MOST_MODELS):
            model = self.models.setdefault(drive.model, Model(drive.model))
            model.drives += 1
            model.misaligned += drive.misaligned > 0
            if drive.firmware in model.firmwares or len(model.firmwares) < MOST_FIRMWARES:
                firmware = model.firmwares.setdefault(drive.firmware, Firmware())
                firmware.drives += 1
                _insert_sorted(firmware.rows, place, row, MOST_PLACES)

    @property
    def ranking(self) -> list[Row]:
        """Return the misaligned disks, those with the most extra work first."""
        return [row for _, row in self._ranked]

    @property
    def machines(self) -> list[MachineRow]:
        """Return the audited machines, those with the most extra work first."""
        return [row for _, row in self._machines]

    @property
    def squares(self) -> list[Machine]:
        """Return the machines in the order of the ranking, without their drives; those that were not audited
        are the last.
        """
        return [machine for _, machine in self._squares]

    @property
    def refused(self) -> list[Machine]:
        """Return the snapshots that could not be audited."""
        return [machine for _, machine in self._refused]

    @property
    def groups(self) -> list[Model]:
        """Return the models with several drives, those with the most misaligned drives first."""
        several = [model for model in self.models.values() if model.drives > 1]
        return sorted(several, key=lambda model: (-model.misaligned, -model.drives, model.name))

    @property
    def needing_attention(self) -> list[Row]:
        """Return the drives that need attention: failing drives, then those with a known firmware defect,
        then those with a rare firmware for their model.
        """
        lone = [row for name in sorted(self.models) for row in self.models[name].lone()]
        return [*(row for _, row in self._failing), *(row for _, row in self._defects), *lone][:MOST_ROWS]
