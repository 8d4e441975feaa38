"""Write an audit as JSON, and other values for JSON documents."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum

from aligntool import __version__
from aligntool.audit.drives import targets_not_judged
from aligntool.audit.report import Answer, Finding, Judged, Repair, Report, Severity, Verdict
from aligntool.commands import commands_in
from aligntool.documents import wire_fields
from aligntool.inventory import Partition, TableFault
from aligntool.render.audit import NO_REPAIRS, Repairs
from aligntool.units import Extent

# An audit as JSON: versioned, described by audit.schema.json, every size an integer of bytes.
#
# It is written disk by disk, one line each, so that a thousand disks are never in memory twice.
# Strings from disks are ASCII-escaped, and bytes that are not UTF-8 become U+FFFD, so that any JSON reader
# accepts the document.

SCHEMA = "aligntool.audit"
VERSION = 1

Value = None | bool | int | float | str | Sequence["Value"] | Mapping[str, "Value"]

_ELSEWHERE = frozenset({"partitions", "kernel_partitions"})
_OF_PLANS = frozenset({"sampled", "taken", "raw_copy"})  # used only by plans and hints


def audit_json(report: Report, repairs: Repairs = NO_REPAIRS) -> Iterator[str]:
    """Yield the document in pieces, in order. `repairs`: possible repairs of misaligned partitions, by disk
    name.
    """
    when = _fields(report.inventory.manifest, leave=frozenset({"aligntool", "serials"}))
    head: Value = {
        "schema": SCHEMA,
        "version": VERSION,
        "aligntool": __version__,
        **when,
        "summary": _summary(report),
    }
    yield dumps(head)[:-1] + ',\n"disks": ['
    for index, judged in enumerate(report.judged):
        yield ("," if index else "") + "\n" + dumps(_disk(judged, repairs.get(judged.disk.name, ())))
    yield '\n],\n"uplinks": ' + dumps(as_value(report.inventory.uplinks))
    yield ',\n"adapters": ' + dumps(as_value(report.inventory.adapters))
    yield ',\n"unseen": ' + dumps(as_value(tuple(targets_not_judged(report))))
    yield ',\n"findings": ['
    for index, finding in enumerate(report.findings):
        yield ("," if index else "") + "\n" + dumps(_finding(finding))
    yield "\n]}\n"


def dumps(value: Value) -> str:
    return json.dumps(value)


def document_text(schema: str, values: Mapping[str, object], *, indent: int | None = None) -> str:
    """Return a whole document: its schema and version, the version of aligntool, and `values`."""
    return (
        json.dumps({"schema": schema, "version": 1, "aligntool": __version__, **values}, indent=indent) + "\n"
    )


def _summary(report: Report) -> Value:
    return {
        "disks": len(report.judged),
        "on_grid": report.count_answers(Answer.ON),
        "off_grid": report.count_answers(Answer.OFF),
        "unknown": report.count_answers(Answer.UNKNOWN),
        "errors": report.count(Severity.ERROR),
        "warnings": report.count(Severity.WARNING),
        "infos": report.count(Severity.INFO),
    }


def _disk(judged: Judged, repairs: Sequence[Repair]) -> Value:
    disk = judged.disk
    by_number = {repair.partition: repair for repair in repairs}
    verdicts = {verdict.partition: verdict for verdict in judged.verdicts}
    document = _fields(disk, leave=_ELSEWHERE | _OF_PLANS)
    sector_size = disk.sector_size
    document["grids"] = as_value(judged.grids)
    document["verdict"] = _verdict(verdicts.get(None))
    document["partitions"] = [
        _partition(partition, verdicts.get(partition.number), by_number.get(partition.number), sector_size)
        for partition in disk.partitions
    ]
    document["kernel_partitions"] = [
        {"number": number, **asdict(extent)} for number, extent in disk.kernel_partitions
    ]
    return document


def _partition(
    partition: Partition, verdict: Verdict | None, repair: Repair | None, sector_size: int
) -> Value:
    document = _fields(partition, leave=frozenset({"extent"}))
    document |= _place(partition.extent.start, sector_size)
    document["length"] = partition.extent.length
    document["verdict"] = _verdict(verdict)
    document["mend"] = None if repair is None else _fields(repair, leave=frozenset({"partition"}))
    return document


def _place(start: int | None, sector_size: int | None) -> dict[str, Value]:
    sector = start // sector_size if start is not None and sector_size and start % sector_size == 0 else None
    return {"start": start, "sector_size": sector_size, "start_sector": sector}


def _verdict(verdict: Verdict | None) -> Value:
    if verdict is None:
        return None
    return {
        "answer": verdict.answer.name.lower(),
        "matters": verdict.matters,
        "why": _text(verdict.why),
        "checks": [
            {**_fields(check.grid, leave=frozenset({"by"})), "on": check.on, "off_by": check.off_by}
            for check in verdict.checks
        ],
    }


def _finding(finding: Finding) -> Value:
    document = _fields(finding, leave=frozenset({"grid", "cost", "start", "sector_size"}))
    document |= _place(finding.start, finding.sector_size)
    return document | {"grid": as_value(finding.grid), "cost": as_value(finding.cost)}


def _fields(item: object, *, leave: frozenset[str]) -> dict[str, Value]:
    if not is_dataclass(item):
        return {}
    named = wire_fields(item).items()
    found = {wire: as_value(getattr(item, field.name)) for wire, field in named if field.name not in leave}
    steps = found.get("next", found.get("hint"))
    return found | {"commands": commands_in(steps.split("\n"))} if isinstance(steps, str) else found


def as_value(value: object) -> Value:
    """Return the JSON form of a value. Bytes that are not UTF-8 and lone surrogates become U+FFFD. Raises
    TypeError if it has none.
    """
    match value:
        case Enum():
            return str(value.value)
        case None | bool() | int() | float():
            return value
        case str():
            return _text(value)
        case Extent():
            return {"start": value.start, "length": value.length}
        case TableFault():
            return _fields(value, leave=frozenset({"hides"}))
        case _ if is_dataclass(value):
            return _fields(value, leave=frozenset())
        case tuple() | list():
            return [as_value(item) for item in value]
        case dict():
            return {key: as_value(item) for key, item in value.items()}
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
