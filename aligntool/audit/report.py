"""Finding codes, severities, verdicts and the Report that an audit returns; the cost model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from math import gcd
from pkgutil import get_data  # importlib.resources takes 20 ms to import

from aligntool.documents import BOUNDS, POSITIVE, check_schema, decode, load_object
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, Source
from aligntool.units import MIB, is_power_of_two, off_by

# The finding codes: stable names, one rule each. `explanations` returns their texts, which `aligntool explain
# CODE` shows.
#
# Hundreds: 1 starts of partitions, 2 values that a device reports, 3 partition tables, 4 the layers above, 5
# drives and links, 6 arrays and their assembly at boot, 9 what could not be read. A code is never reused for
# another rule.


class Code(StrEnum):
    OFF_PHYSICAL = "AT101"
    OFF_PAGE = "AT102"
    OFF_ALLOCATION_UNIT = "AT103"
    OFF_CHUNK = "AT104"
    OFF_OPTIMAL_IO = "AT105"
    OFF_GRAIN = "AT106"
    END_UNALIGNED = "AT107"
    OFF_ERASE_BLOCK = "AT108"
    UNKNOWN_ALIGNMENT = "AT109"
    NOT_JUDGED = "AT110"

    STACK_CONFLICT = "AT201"
    BOGUS_OPTIMAL_IO = "AT202"
    SECTOR_SIZE_HIDDEN = "AT203"
    SECTOR_SIZE_ASSUMED = "AT204"
    BOGUS_MINIMUM_IO = "AT205"
    BETTER_LBA_FORMAT = "AT206"
    LARGE_UNIT = "AT207"
    SHIFTED_GRID = "AT208"
    SECTOR_SIZE_DISPUTED = "AT209"
    TABLE_TELLS_SECTOR_SIZE = "AT210"

    GPT_PRIMARY_DAMAGED = "AT301"
    GPT_BACKUP_DAMAGED = "AT302"
    OTHER_SECTOR_SIZE = "AT303"
    OVERLAP = "AT304"
    BEYOND_END = "AT305"
    EBR_CHAIN = "AT306"
    HYBRID_MBR = "AT307"
    KERNEL_DISAGREES = "AT308"
    BAD_ENTRY = "AT309"
    PROTECTIVE_MBR = "AT310"
    OUTSIDE_USABLE = "AT311"
    GPT_BACKUP_MISPLACED = "AT312"
    GPT_COPIES_DIFFER = "AT313"
    DYNAMIC_DISK = "AT314"
    FIRMWARE_RAID_MEMBER = "AT315"
    TABLE_UNREADABLE = "AT316"
    IN_FLIGHT = "AT317"
    COVERS_TABLE = "AT318"
    GPT_LOST = "AT319"

    LAYER_OFF_PHYSICAL = "AT401"
    LAYER_OFF_PAGE = "AT402"
    CLUSTERS_OFF = "AT403"
    LAYER_OFF_CHUNK = "AT404"
    STRIPE_MISMATCH = "AT405"
    SMALL_BLOCKS = "AT406"
    LARGER_THAN_CONTAINER = "AT407"
    AMBIGUOUS_CONTENT = "AT408"
    DAMAGED_SUPERBLOCK = "AT409"

    LINK_DEGRADED = "AT501"
    SHARED_UPLINK = "AT502"
    BEHIND_CHIPSET = "AT503"
    REMAPPED_NVME = "AT504"
    BEHIND_VMD = "AT505"
    HMB_SHORT = "AT506"
    HMB_COVERAGE = "AT507"
    NO_QUEUE = "AT508"
    SLOW_SLOT = "AT509"
    DRIVE_NOTE = "AT510"
    FIRMWARE_DEFECT = "AT511"

    ARRAY_DEGRADED = "AT601"
    ARRAY_BUSY = "AT602"
    CHUNK_CUTS_UNITS = "AT603"
    STRIPE_TOO_LONG = "AT604"
    BITMAP_MISSING = "AT605"
    BITMAP_TOO_FINE = "AT606"
    DISCARDS_OFF = "AT607"
    MEMBER_WITH_GPT = "AT608"
    WHOLE_DRIVE_MEMBER = "AT609"
    MIXED_SECTORS = "AT610"
    NO_ARRAY_LINE = "AT611"
    WRONG_ARRAY_LINE = "AT612"
    NOT_IN_INITRAMFS = "AT613"
    FOREIGN_ARRAY = "AT614"
    NUMBERED_IN_FSTAB = "AT615"
    FSTAB_WITHOUT_NOFAIL = "AT616"
    UNFINISHED_ARRAY = "AT617"
    STARTS_ONLY_WHOLE = "AT618"
    FAILED_MEMBER = "AT619"
    MEMBERS_FORBIDDEN = "AT620"
    ARRAY_ABSENT = "AT621"
    ARRAY_NOT_STARTED = "AT622"

    NOT_SEEN = "AT901"
    DISK_NOT_JUDGED = "AT902"
    NO_ANSWER = "AT903"

    @property
    def is_of_damage(self) -> bool:
        """Return whether an error of this code is about more than slow requests: not about starts of
        partitions or of data inside them, nor about what could not be read.
        """
        return not self.value.startswith(("AT1", "AT9")) and self not in _OF_LAYERS


_OF_LAYERS = (Code.LAYER_OFF_PHYSICAL, Code.LAYER_OFF_PAGE, Code.CLUSTERS_OFF, Code.LAYER_OFF_CHUNK)


# The cost model of misalignment and small writes.
#
# The model and its figures come from the 2010 article on Advanced Format and NAND alignment: a write that
# covers parts of two units makes the drive read both and write both; a request of r bytes that starts at a
# random multiple of its own size off the grid straddles a unit of u bytes with probability r/u.

REQUEST = 4096  # the block size of nearly every file system, so the usual request


@dataclass(frozen=True, slots=True)
class Cost:
    """The predicted cost of requests of `request` bytes on units of `unit` bytes. Sizes in bytes."""

    request: int
    unit: int
    straddle_probability: float
    write_rate: float  # relative to aligned writes: 0.5 is half as many writes per second
    straddling_read: int  # bytes that the drive reads before one straddling write
    straddling_written: int
    extra_read: int  # additional bytes read from the medium by a straddling read
    write_amplification: float  # even when aligned

    @property
    def write_share(self) -> str:
        """Return the `write_rate` as a fraction, such as "4/5"."""
        whole = self.unit + min(self.request, self.unit)
        divisor = gcd(self.unit, whole)
        return f"{self.unit // divisor}/{whole // divisor}"


def predict(unit: int, request: int = REQUEST) -> Cost:
    """Return the cost of being off a grid of `unit` bytes."""
    shorter = min(request, unit)
    straddles = shorter / unit  # covers parts of two units
    straddling = unit * max(2, units_touched(request, unit))
    rate = unit / (unit + shorter)  # 4 KiB requests: 1/2 for units of 4 KiB, 4/5 for 16 KiB
    return Cost(request, unit, straddles, rate, straddling, straddling, unit, max(unit / request, 1.0))


def cost_at(off_by: int, unit: int) -> Cost | None:
    """Return the cost of a start `off_by` bytes past a grid of `unit` bytes, or None if no usual request
    straddles a boundary: only larger ones do.
    """
    return predict(unit) if off_by % min(REQUEST, unit) or unit % REQUEST else None


def units_touched(length: int, unit: int, start: int = -1) -> int:
    """Return how many units a request of `length` bytes touches; `start` -1: at the worst start off the
    grid.
    """
    past = unit - 1 if start < 0 else start % unit
    return -(-(past + length) // unit) if length else 0


# The result of an audit: severities, grids, checks, verdicts, findings. Plain values, so that `render` can
# show them, scripts can read them and tests can compare them.


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Return the position in the order of severity; 0 is worst."""
        return list(Severity).index(self)


class GridKind(StrEnum):
    """The kind of unit that requires a boundary."""

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
    """A grid that a partition should start on, and its source: the device, the database or an assumption.

    `severity`: of a start off this grid (error off the physical grid, warning off page, unit, allocation unit
    and chunk, info off the rest).
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
    """The comparison of one offset with one grid."""

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
    matters: bool = True  # False: a BIOS boot partition and the like; reported, but not a fault
    why: str = ""  # the reason, if UNKNOWN or if it does not matter


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a rule: its code, evidence, and the next command."""

    code: Code
    severity: Severity
    summary: str  # one sentence: what, where, by how much
    disk: str | None = None
    partition: int | None = None
    layer: str | None = None  # "md 1.2", "LUKS2", "LVM vg/lv", "FAT32"
    start: int | None = None  # bytes on the disk
    sector_size: int | None = None  # of the user's sectors, in which `start` is also shown
    grid: Grid | None = None
    off_by: int | None = None
    cause: str | None = None
    cost: Cost | None = None
    evidence: tuple[str, ...] = ()
    next: str = ""  # the next command to type

    @property
    def is_damage(self) -> bool:
        """Return whether this is an error about more than slow requests."""
        return self.severity is Severity.ERROR and self.code.is_of_damage


@dataclass(frozen=True, slots=True)
class Judged:
    """A disk with its grids and verdicts."""

    disk: Disk
    grids: tuple[Grid, ...]
    verdicts: tuple[Verdict, ...]
    above: Inventory | None = None  # the devices that hold the disk; read only where it is to be changed

    def by_partition(self) -> dict[int | None, Verdict]:
        """Return the verdicts by partition number: there may be thousands. Of two with one number the first
        counts.
        """
        return {verdict.partition: verdict for verdict in reversed(self.verdicts)}


@dataclass(frozen=True, slots=True)
class Repair:
    """Whether one misaligned partition can be realigned, why, and the command that does it."""

    partition: int
    answer: str
    why: str  # one sentence
    next: str  # the command to type


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an audit."""

    inventory: Inventory
    judged: tuple[Judged, ...]
    findings: tuple[Finding, ...]  # worst first, then in the order of the disks

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def count_answers(self, answer: Answer) -> int:
        verdicts = (verdict for judged in self.judged for verdict in judged.verdicts)
        return sum(verdict.matters and verdict.answer is answer for verdict in verdicts)


# Options of an audit, and measured boundaries.


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """A boundary measured on a drive: a request that crosses it takes longer. Bytes; confidence from 0 to
    1.
    """

    size: int
    confidence: float


@dataclass(frozen=True, slots=True)
class MeasuredDisk:
    """The boundaries that `aligntool probe` measured on one drive with sufficient confidence."""

    name: str
    path: str
    size: int
    units: tuple[MeasuredUnit, ...]
    serial: str | None = None
    wwn: str | None = None

    def is_of(self, disk: Disk) -> bool:
        """Return whether this is a result of the disk, by its size and its WWN, or else serial number, or
        else name.
        """
        if self.size != disk.size:
            return False
        for mine, its in ((self.wwn, disk.wwn), (self.serial, disk.serial)):
            if mine or its:
                return mine == its
        return self.name == disk.path.rpartition("/")[2]


PROBE_SCHEMA = "aligntool.probe"
PROBE_VERSION = 1
CONFIDENT = 0.95  # an audit ignores boundaries of lower confidence


@dataclass(frozen=True, slots=True)
class _MeasuredDisk:
    """The fields of the disk in a result that an audit uses."""

    name: str | None
    path: str | None
    size: int = field(metadata={BOUNDS: POSITIVE})
    serial: str | None
    wwn: str | None


def read_measured(text: str, name: str, again: str = "") -> MeasuredDisk:
    """Return the units in a stored result of a probe that are confident enough for an audit.

    `name`: of the file, for messages; `again`: the command that makes a new result. Raises Refused for any
    other document.
    """
    try:
        found = load_object(text)
        check_schema(found, PROBE_SCHEMA, PROBE_VERSION)
        disk = decode(_MeasuredDisk, found.get("disk"), "disk")
        units = decode(tuple[MeasuredUnit, ...], found.get("boundaries"), "boundaries")
        for unit in units:
            if not is_power_of_two(unit.size) or not 512 <= unit.size <= 1 << 30 or unit.confidence > 1:
                raise ValueError(
                    f"{unit.size} is not a valid boundary, or {unit.confidence} not a valid confidence"
                )
        sure = tuple(unit for unit in units if unit.confidence >= CONFIDENT)
        return MeasuredDisk(
            disk.name or "", disk.path or "", disk.size, sure, disk.serial or None, disk.wwn or None
        )
    except ValueError as error:
        raise Refused(f"{name} is not a probe result: {error}", hint=again) from None


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit. Sizes in bytes. `page_size` None: from the drive and the database. `grain`: the
    boundary that partitions should start on.
    """

    page_size: int | None = None
    grain: int = MIB
    measured: tuple[MeasuredDisk, ...] = ()


# The explanation of each finding code, parsed from findings.md in this package, which docs/findings.md is a
# copy of.

QUESTIONS = ("What it means", "How it is judged", "What it costs", "What to do")

_SECTION = re.compile(
    r"^### (AT\d+): (.+)\n\nSeverity: (error|warning|info)\.\n\n"
    + r"\n\n".join(rf"\*\*{question}\.\*\* (.+(?:\n.+)*)" for question in QUESTIONS),
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The text on a finding code. `severity`: the usual one. `answers`: to QUESTIONS, in their order."""

    severity: str
    title: str
    answers: tuple[str, ...]


@cache
def findings_markdown() -> str:
    """Return the text of the page docs/findings.md."""
    return (get_data("aligntool.audit", "findings.md") or b"").decode()


@cache
def explanations() -> Mapping[Code, Explanation]:
    """Return the explanation of every code."""
    return {
        Code(code): Explanation(severity, title, tuple(answer.replace("\n", " ") for answer in answers))
        for code, title, severity, *answers in _SECTION.findall(findings_markdown())
    }
