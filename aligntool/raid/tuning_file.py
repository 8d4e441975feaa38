"""What a sweep measured, as a file, and whether it is about this array.

In: a Tuning, or the text of a file that anybody may have written. Out: text; a Tuning, or Refused with one sentence;
why a measurement does not count here. Alone because a figure that was measured on other drives, for another level or
another workload, is no evidence.

The file is JSON, described in docs/raid.md, "The result file".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.plan import RaidGoal
from aligntool.raid.levels import LEVELS, WORKLOADS
from aligntool.raid.tuning import Identity, Sample, Tuning

SCHEMA = "aligntool.raid-tune"
VERSION = 1
MOST = 10_000  # samples; an honest sweep has hundreds
LARGEST = 1 << 62
LONGEST = 4 << 20  # bytes of a file


def tuning_text(tuning: Tuning, verdict: Mapping[str, object] | None = None) -> str:
    """`verdict` is for readers of the file; aligntool itself judges the samples anew."""
    body = asdict(tuning) | {"conditions": dict(tuning.conditions)}
    return json.dumps({"schema": SCHEMA, "version": VERSION, **body, "verdict": verdict}, indent=1) + "\n"


def parse_tuning(text: str) -> Tuning:
    """Raises Refused, naming what is wrong."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        raise _wrong("it is no JSON") from None
    top = _Fields(document, "the file")
    if top.text("schema") != SCHEMA:
        raise _wrong("it is no result of raid tune")
    if top.whole("version") != VERSION:
        raise Refused("this result of raid tune was written by a newer aligntool", hint="aligntool --version")
    tuning = Tuning(
        level=top.choice("level", tuple(LEVELS)),
        layout=top.text("layout"),
        workload=top.choice("workload", WORKLOADS),
        database_page=top.whole("database_page"),
        bitmap=top.text("bitmap"),
        members=tuple(_identity(each) for each in top.several("members")),
        span=top.whole("span"),
        runtime_s=top.number("runtime_s"),
        complete=top.flag("complete"),
        conditions=tuple(_conditions(top.values.get("conditions"))),
        samples=tuple(_sample(each) for each in top.several("samples")),
    )
    if len(set(_cells(tuning))) != len(tuning.samples):
        raise _wrong("a load is told twice for one array of one round")
    return tuning


def _cells(tuning: Tuning) -> list[tuple[int, int, str]]:
    return [(sample.round, sample.chunk, sample.shape) for sample in tuning.samples]


def _identity(fields: "_Fields") -> Identity:
    return Identity(
        name=fields.text("name"),
        model=fields.maybe_text("model"),
        serial=fields.maybe_text("serial"),
        wwn=fields.maybe_text("wwn"),
        size=fields.maybe_whole("size"),
        firmware=fields.maybe_text("firmware"),
        read=fields.maybe_whole("read"),
        write=fields.maybe_whole("write"),
    )


def _sample(fields: "_Fields") -> Sample:
    chunk = fields.whole("chunk")
    if chunk < 1:
        raise _wrong("a chunk of no bytes")
    return Sample(
        round=fields.whole("round"),
        chunk=chunk,
        shape=fields.text("shape"),
        read=fields.whole("read"),
        write=fields.whole("write"),
        cpu=fields.number("cpu"),
    )


def _conditions(value: object) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        raise _wrong("conditions is missing")
    for name, text in value.items():
        yield str(name), str(text)


class _Fields:
    """One object of the document, read strictly."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(f"{what} is no object")
        self.values: dict[str, object] = value

    def _found(self, name: str) -> object:
        if name not in self.values:
            raise _wrong(f"{name} is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        value = self._found(name)
        if not isinstance(value, str):
            raise _wrong(f"{name} is no text")
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if self._found(name) is None else self.text(name)

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        value = self.text(name)
        if value not in allowed:
            raise _wrong(f"{name} is none of {', '.join(allowed)}")
        return value

    def whole(self, name: str) -> int:
        value = self._found(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise _wrong(f"{name} is no whole number that could be meant")
        return value

    def maybe_whole(self, name: str) -> int | None:
        return None if self._found(name) is None else self.whole(name)

    def number(self, name: str) -> float:
        value = self._found(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
            raise _wrong(f"{name} is no number that could be meant")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self._found(name)
        if not isinstance(value, bool):
            raise _wrong(f"{name} is neither true nor false")
        return value

    def several(self, name: str) -> "list[_Fields]":
        value = self._found(name)
        if not isinstance(value, list) or len(value) > MOST:
            raise _wrong(f"{name} is no list that could be meant")
        return [_Fields(each, f"one of {name}") for each in value]


def _wrong(what: str) -> Refused:
    return Refused(f"the measurement cannot be used: {what}", hint="aligntool raid tune -h")


def why_not_here(
    tuning: Tuning, disks: Sequence[Disk], goal: RaidGoal, layout: str, bitmap: str
) -> tuple[str, ...]:
    """Every reason why it is not about this array; (): it is."""
    asked = (
        ("level", LEVELS[tuning.level].title, LEVELS[goal.level].title),
        ("layout", tuning.layout or "none", layout or "none"),
        ("workload", tuning.workload, goal.workload),
        ("bitmap", tuning.bitmap, bitmap),
    )
    reasons = [f"its {what} was {then}, and here it is {now}" for what, then, now in asked if then != now]
    if tuning.workload == "database" and tuning.database_page != goal.database_page:
        reasons.append(
            f"its database pages had {tuning.database_page} bytes, and here they have {goal.database_page}"
        )
    then = {member.key: member.name for member in tuning.members}
    now = {identity_of(disk).key: disk.name for disk in disks}
    strange = [name for key, name in now.items() if key not in then or not any(key)]
    gone = [name for key, name in then.items() if key not in now]
    if strange:
        reasons.append(f"{', '.join(strange)} took no part in it")
    if gone:
        reasons.append(f"{', '.join(gone)}, as it was called there, is not here")
    return tuple(reasons)


def identity_of(disk: Disk) -> Identity:
    return Identity(disk.name, disk.model, disk.serial, disk.wwn, disk.size, disk.firmware)
