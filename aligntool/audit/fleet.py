"""Many machines as one: what is kept of each audit, the ranking of misaligned disks, groups of one model."""

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from aligntool.audit.report import Answer, Code, Judged, Report, Severity

# Everything that is kept is bounded, so the report of a hundred thousand machines takes as much memory as that of a
# hundred.

MOST_ROWS = 100  # of a list of the report
MOST_MODELS, MOST_FIRMWARES, MOST_PLACES = 1000, 20, 5
MOST_DRIVES = 1000  # of one machine
LONGEST = 80  # characters of a name that a stranger may have written
ENOUGH = 5  # drives of a model, before a firmware that one of them has alone says something
_DAY_S = 86400
_SUFFIXES = (".tar.xz", ".tar.gz", ".txz", ".tgz", ".tar")


@dataclass(frozen=True, slots=True)
class Drive:
    """A disk of a machine. Bytes; None: not known."""

    name: str
    model: str
    firmware: str
    size: int | None
    misaligned: int = 0  # partitions
    cost: float | None = None  # predicted: how many times as long a random write of 4 KiB to the worst of them takes
    written_a_day: int | None = None  # to the misaligned partitions, on average since the machine started
    extra_a_day: int | None = None  # as much as the drive works more, predicted
    failing: str | None = None
    defect: str | None = None  # of its firmware


@dataclass(frozen=True, slots=True)
class Machine:
    """What is kept of the audit of one snapshot. `why`: it could not be audited."""

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

    @property
    def name(self) -> str:
        """The host, where the snapshot names it, otherwise the name of the file."""
        name = self.snapshot.rstrip("/").rpartition("/")[2]
        ending = next((each for each in _SUFFIXES if name.endswith(each)), "")
        return self.host or name.removesuffix(ending) or self.snapshot


def machine_of(snapshot: str, report: Report, written: Mapping[str, float]) -> Machine:
    """Return what is kept of an audit. `written`: bytes a second to each disk and partition, by the kernel's names."""
    costs = {
        (one.disk, one.partition): 1 / float(one.cost.write_rate)
        for one in report.findings
        if one.cost is not None and one.start is not None and one.layer is None
    }
    defects = {one.disk: one.summary.partition(": ")[2] for one in report.findings if one.code is Code.FIRMWARE_DEFECT}
    drives = [_drive(judged, costs, written, defects.get(judged.disk.name)) for judged in report.judged]
    drives = [one for one in drives if one.model or one.misaligned or one.failing]
    drives.sort(key=lambda one: not one.misaligned)  # stable, and first what is cut off last
    manifest = report.inventory.manifest
    return Machine(
        snapshot, _cut(manifest.host), _cut(manifest.date), _cut(manifest.aligntool), disks=len(report.judged),
        errors=report.count(Severity.ERROR), warnings=report.count(Severity.WARNING),
        on_grid=report.count_answers(Answer.ON), off_grid=report.count_answers(Answer.OFF),
        unknown=report.count_answers(Answer.UNKNOWN), drives=tuple(drives[:MOST_DRIVES]),
    )  # fmt: skip


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST]


def _drive(
    judged: Judged,
    costs: Mapping[tuple[str | None, int | None], float],
    written: Mapping[str, float],
    defect: str | None,
) -> Drive:
    disk = judged.disk
    nodes: dict[int | None, str | None] = {part.number: part.node for part in disk.partitions}
    off = [one.partition for one in judged.verdicts if one.matters and one.answer is Answer.OFF]
    loads, seen = [], [costs.get((disk.name, number)) for number in off]
    for number, cost in zip(off, seen, strict=True):
        rate = written.get(nodes.get(number) or disk.name)
        if rate is not None:
            loads.append((rate * _DAY_S, (cost or 1) - 1))
    known = [cost for cost in seen if cost is not None]
    return Drive(
        disk.name[:LONGEST], _cut(disk.model) or "", _cut(disk.firmware) or "", disk.size, len(off),
        max(known, default=None),
        round(sum(load for load, _ in loads)) if loads else None,
        round(sum(load * more for load, more in loads)) if loads else None,
        _cut(disk.failing), defect,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A drive that is named in a list. `why`: it needs a look."""

    machine: str
    snapshot: str
    drive: Drive
    why: str = ""


@dataclass(slots=True)
class Firmware:
    """The drives of one model with one firmware: how many, and some of them."""

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
        """The firmwares, the most common first."""
        return sorted(self.firmwares.items(), key=lambda one: (-one[1].drives, one[0]))

    def lone(self) -> Iterator[Row]:
        """Yield drives whose firmware hardly any other has, where more than half of the model have the same one."""
        found = [(name, one) for name, one in self.by_number() if name]
        total = sum(one.drives for _, one in found)
        if total < ENOUGH or found[0][1].drives * 2 <= total:
            return
        usual = f"{found[0][1].drives} of {total} drives of this model have {found[0][0]}"
        for name, one in found[1:]:
            if one.drives * 10 <= max(total, 10):
                yield from (
                    Row(row.machine, row.snapshot, row.drive, f"firmware {name}; {usual}") for _, row in one.rows
                )


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _keep(rows: list[tuple[_Key, _Value]], key: _Key, row: _Value, most: int = MOST_ROWS) -> None:
    """Keep the first rows by their keys, of which no two are equal."""
    insort(rows, (key, row))
    del rows[most:]


@dataclass(slots=True)
class Fleet:
    """What all machines are together. The order in which they are added makes no difference."""

    snapshots: int = 0
    misaligned: int = 0  # machines
    disks: int = 0
    misaligned_disks: int = 0
    on_grid: int = 0
    off_grid: int = 0
    unknown: int = 0
    errors: int = 0
    warnings: int = 0
    not_audited: int = 0
    failing: int = 0
    dates: tuple[str, str] | None = None  # the first and the last
    models: dict[str, Model] = field(default_factory=dict)
    _ranked: list[tuple[tuple[float, float, int, int, int], Row]] = field(default_factory=list)
    _failing: list[tuple[tuple[int, int], Row]] = field(default_factory=list)
    _defects: list[tuple[tuple[int, int], Row]] = field(default_factory=list)
    _refused: list[tuple[int, Machine]] = field(default_factory=list)

    def add(self, number: int, machine: Machine) -> None:
        """`number`: of the snapshot, as they were given."""
        self.snapshots += 1
        if machine.why is not None:
            self.not_audited += 1
            _keep(self._refused, number, machine)
            return
        self.misaligned += machine.off_grid > 0
        self.disks += machine.disks
        self.on_grid += machine.on_grid
        self.off_grid += machine.off_grid
        self.unknown += machine.unknown
        self.errors += machine.errors
        self.warnings += machine.warnings
        if machine.date:
            first, last = self.dates or (machine.date, machine.date)
            self.dates = (min(first, machine.date), max(last, machine.date))
        for place, drive in enumerate(machine.drives):
            self._add_drive((number, place), Row(machine.name, machine.snapshot, drive))

    def _add_drive(self, place: tuple[int, int], row: Row) -> None:
        drive = row.drive
        if drive.misaligned:
            self.misaligned_disks += 1
            # what is written is not known: behind all that is written to, before all that is not
            extra = 0.5 if drive.extra_a_day is None else drive.extra_a_day
            _keep(self._ranked, (-extra, -(drive.cost or 0), -drive.misaligned, *place), row)
        if drive.failing is not None:
            self.failing += 1
            _keep(
                self._failing, place, Row(row.machine, row.snapshot, drive, f"reports that it fails: {drive.failing}")
            )
        if drive.defect is not None:
            _keep(self._defects, place, Row(row.machine, row.snapshot, drive, drive.defect))
        if drive.model and (drive.model in self.models or len(self.models) < MOST_MODELS):
            model = self.models.setdefault(drive.model, Model(drive.model))
            model.drives += 1
            model.misaligned += drive.misaligned > 0
            if drive.firmware in model.firmwares or len(model.firmwares) < MOST_FIRMWARES:
                firmware = model.firmwares.setdefault(drive.firmware, Firmware())
                firmware.drives += 1
                _keep(firmware.rows, place, row, MOST_PLACES)

    @property
    def ranking(self) -> list[Row]:
        """Misaligned disks, those first on which the most is written in vain."""
        return [row for _, row in self._ranked]

    @property
    def refused(self) -> list[Machine]:
        """Snapshots that could not be audited."""
        return [machine for _, machine in self._refused]

    @property
    def groups(self) -> list[Model]:
        """Models of which there are several drives, the misaligned ones first."""
        several = [model for model in self.models.values() if model.drives > 1]
        return sorted(several, key=lambda one: (-one.misaligned, -one.drives, one.name))

    @property
    def looks(self) -> list[Row]:
        """Drives that need firmware or a look: that fail, then those with a known defect, then those whose firmware is
        not that of their model.
        """
        lone = [row for name in sorted(self.models) for row in self.models[name].lone()]
        return [*(row for _, row in self._failing), *(row for _, row in self._defects), *lone][:MOST_ROWS]
