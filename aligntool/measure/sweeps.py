"""Results of the alignment and span experiments as values and JSON."""

from dataclasses import dataclass, field, replace
from math import gcd

from aligntool.documents import as_object, check_schema, decode, load_object
from aligntool.errors import Refused
from aligntool.inventory import NvmeFacts
from aligntool.measure import alignment
from aligntool.measure.results import EXPERIMENTS, Conditions, conditions_of, warnings_of
from aligntool.measure.unit import ProbedDisk
from aligntool.units import format_about, format_size

VERSION = 1
_LONGEST_PERIOD = 1 << 16  # requests until one has the same position in the unit as the first


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of an experiment. Sizes in bytes."""

    kind: str  # "folder", "file", "device"
    size: int  # of the file or device
    piece: int  # its longest piece that is contiguous on the disk: the part that was used
    runtime_s: float  # of each run
    repeats: int  # as requested
    direct: bool  # bypassing the page cache
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The part of the result that both experiments have."""

    conditions: Conditions = field(default_factory=Conditions)
    setting: Setting | None = None  # None: an older file lacks it
    disk: ProbedDisk | None = None  # that was measured
    complete: bool = True  # False: interrupted, or fio failed

    @property
    def drive(self) -> str:
        """The model or name of the drive; "" if unknown."""
        return self.conditions.drive or ((self.disk.model or self.disk.name) if self.disk else "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """The reasons not to trust the result, a sentence each."""
        direct = self.setting.direct if self.setting else True
        return (*piece_words(self.setting), *warnings_of(self.conditions, direct=direct))


def piece_words(setting: Setting | None) -> tuple[str, ...]:
    """Return the warning that only the longest contiguous piece of a file is used: starts and spans have no
    meaning across a gap.
    """
    if setting is None or setting.piece >= setting.size:
        return ()
    piece = format_about(setting.piece)
    size = format_about(setting.size)
    return (f"{piece} of {size} lie in one piece on the disk, and only those are worked on",)


@dataclass(frozen=True, slots=True)
class Starts(Experiment):
    """The result of `bench alignment`. `unit` in bytes."""

    when: str  # ISO 8601, UTC; "": an older file lacks it
    target: str
    unit: int
    unit_by: str
    rates: tuple[alignment.Rate, ...]

    @property
    def rows(self) -> tuple[alignment.Row, ...]:
        return alignment.doubt_rows_of_busy_machine(
            alignment.judge_rates(self.rates, self.unit), self.conditions
        )

    @property
    def summary(self) -> str:
        rows = self.rows
        said = alignment.overall_text(rows) if rows else "nothing was measured"
        return f"alignment {said}, unit of {format_size(self.unit)}"


@dataclass(frozen=True, slots=True)
class Spans(Experiment):
    """The result of `bench span`. Spans in bytes, rates in requests per second."""

    when: str
    target: str
    write: bool
    knee: alignment.Knee
    curve: dict[int, list[float]]
    nvme: NvmeFacts | None  # its Host Memory Buffer
    cpu: dict[int, list[float]] = field(default_factory=dict)  # percent of a core in each repeat

    @property
    def spanned(self) -> int:
        """The largest span in bytes; 0 if nothing was measured."""
        return max(self.curve, default=0)

    @property
    def drive_size(self) -> int | None:
        """Bytes of the largest drive below the target, which has one map for all of it; None if unknown."""
        sizes = [drive.size for drive in self.conditions.drives]
        sizes += [self.disk.size] if self.disk else []
        return max((size for size in sizes if size), default=None)

    @property
    def whole(self) -> bool | None:
        """Whether the spans reach the end of the drive; None if unknown."""
        return (
            None
            if self.drive_size is None
            else self.drive_size <= self.spanned * alignment.WHOLE_DRIVE_FACTOR
        )

    @property
    def summary(self) -> str:
        """The verdict as text, with the drive's size if only a part of it was measured and has no knee: the
        rest is then unknown.
        """
        of = f" of {format_about(self.drive_size)}" if self.drive_size and not self.whole else ""
        return f"{self.knee.words}{of}" if self.knee.flat else self.knee.words

    @property
    def beyond(self) -> str:
        """The size that was not measured, with the option for it; "" if a knee was found or nothing is
        left.
        """
        if not self.knee.flat or self.drive_size is None or self.whole:
            return ""
        option = "--size or --to"
        if self.setting is not None:
            options = {"folder": "--size", "device": "name the whole drive"}
            longer = self.setting.piece > self.spanned * alignment.WHOLE_DRIVE_FACTOR
            option = "--to" if longer else options.get(self.setting.kind, "name the drive")
        return f"the drive has {format_about(self.drive_size)}: {option} for more"


def experiment_from_json(text: str, name: str) -> Starts | Spans | None:
    """Return the experiment in a text, or None if it is another document; `name` is the file in messages.
    Raises Refused for an experiment that cannot be read.
    """
    try:
        document = load_object(text)
        schema = document.get("schema")
        if schema not in EXPERIMENTS:
            return None
        check_schema(document, str(schema), VERSION)
        seen = conditions_of(document["conditions"]) if "conditions" in document else Conditions()
        completed = {"when": "", "complete": True} | document  # older files lack these
        completed |= {"conditions": as_object(Conditions()), "setting": document.get("settings")}
        return replace(_starts(completed) if schema == EXPERIMENTS[0] else _spans(completed), conditions=seen)
    except (ValueError, OverflowError) as error:
        raise Refused(f"{name} is not a result: {error}", hint="aligntool bench list") from error


def _starts(document: dict[str, object]) -> Starts:
    starts = decode(Starts, document)
    unit = starts.unit
    if not unit or unit % 512:
        raise ValueError("its unit is not a multiple of 512 bytes")
    if not all(rate.load.block for rate in starts.rates):
        raise ValueError("it has a request size of 0")
    if any(unit // gcd(rate.load.block, unit) > _LONGEST_PERIOD for rate in starts.rates):
        raise ValueError("no position satisfies both its unit and its request size")
    return starts


@dataclass(frozen=True, slots=True)
class _Point:
    span: int
    iops: tuple[float, ...]
    cpu: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class _Memory:
    preferred: int | None
    granted: int | None


def _spans(document: dict[str, object]) -> Spans:
    points = decode(tuple[_Point, ...], document.get("curve"), "curve")
    if not all(point.iops and point.cpu != () for point in points):
        raise ValueError("curve: iops or cpu is an empty list")
    figures: dict[str, object] = {
        "curve": {point.span: list(point.iops) for point in points},
        "cpu": {point.span: list(point.cpu) for point in points if point.cpu is not None},
    }
    found = decode(Spans, document | figures)
    value = document.get("host_memory_buffer")
    memory = None if value is None else decode(_Memory, value, "host_memory_buffer")
    nvme = NvmeFacts(hmb_preferred=memory.preferred, hmb_granted=memory.granted) if memory else None
    return replace(found, nvme=nvme)
