"""A result as a file, and back.

In: a Result, or the text of a file that anybody may have written. Out: text, or a Result, or Refused. Alone because the
format is a contract (docs/bench.schema.json), and because nothing of a stranger's file goes on unchecked.
"""

import json
from dataclasses import fields, replace
from typing import TypeVar

from aligntool.bench.conditions import Conditions, DriveState
from aligntool.bench.results import Result, Sample, Series, Settings
from aligntool.errors import Refused
from aligntool.recipe import BenchTest
from aligntool.strict_json import MOST, WIRE, Table, as_object, read_table

SCHEMA = "aligntool.bench"
VERSION = 1
EXPERIMENTS = ("aligntool.bench.alignment", "aligntool.bench.span")
"""Results of another shape: `bench.experiments` reads them."""
LARGEST = 32 << 20  # bytes of a file; a long sweep has some hundred KiB

_Kind = TypeVar("_Kind")


def to_json(result: Result) -> str:
    """Sizes are bytes, rates bytes a second, latencies microseconds."""
    document = {"schema": SCHEMA, "version": VERSION, **as_object(result)}
    document["series"] = [
        {
            "title": each.test.title,
            **as_object(each.test),
            "samples": [as_object(sample) for sample in each.samples],
        }
        for each in result.series
    ]
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    """Bytes of a path that were no UTF-8 become U+FFFD, so that any JSON reader takes the document."""
    match value:
        case str():
            return (
                value
                if value.isascii()
                else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            )
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def from_json(text: str, name: str) -> Result:
    """`name`: how complaints name the file. Raises Refused."""
    try:
        document = read_table(text)
        schema = document.word("schema")
        if schema in EXPERIMENTS:
            raise Refused(
                f"{name} is a result of bench {schema.rpartition('.')[2]}, and has no tests to put side by side",
                hint="aligntool bench show FILE shows it",
            )
        if schema != SCHEMA:
            raise ValueError("it is no result of aligntool bench")
        if document.values.get("version") != VERSION:
            raise ValueError(
                f"it has version {document.values.get('version')!r}, and this aligntool reads {VERSION}"
            )
        return _result(document)
    except (ValueError, OverflowError) as error:
        raise Refused(f"{name} is no result: {error}", hint="aligntool bench list") from error


def _result(document: Table) -> Result:
    settings = document.table("settings")
    series = tuple(_series(row) for row in document.rows("series"))
    if len({each.test for each in series}) != len(series):
        raise ValueError("it has one test twice")
    return Result(
        when=document.word("when"),
        aligntool=document.word("aligntool"),
        target=document.word("target"),
        kind=document.word("kind"),
        settings=_settings(settings),
        conditions=conditions_of(document.table("conditions")),
        series=series,
        skipped=document.words("skipped"),
        complete=document.flag("complete"),
    )


def _settings(table: Table) -> Settings:
    passes = table.values.get("passes", [])
    listed = passes if isinstance(passes, list) else [None]
    counts = tuple(each for each in listed if isinstance(each, int) and 0 < each <= MOST)
    if len(counts) != len(listed):
        raise ValueError("passes of settings are no counts")
    return Settings(
        profile=table.word("profile"),
        span=table.whole("span"),
        runtime_s=table.number("runtime_s"),
        repeats=table.whole("repeats"),
        direct=table.flag("direct"),
        engine=table.word("engine"),
        prepare=table.word("prepare"),
        passes=counts,
        until_steady=table.flag("until_steady"),
        score=None if table.values.get("score") is None else table.word("score"),
    )


def _series(row: Table) -> Series:
    test = BenchTest(
        row.flag("random"), row.whole("block"), row.whole("depth"), row.whole("threads"), row.flag("write")
    )
    if not (test.block and test.depth and test.threads):
        raise ValueError(f"{row.where} has a test of nothing")
    samples = tuple(_sample(each) for each in row.rows("samples"))
    if not samples:
        raise ValueError(f"{row.where} has no samples")
    return Series(test, samples)


def _sample(row: Table) -> Sample:
    others = {
        key: None if row.values.get(key) is None else row.number(key)
        for key in ("p50_us", "p99_us", "p999_us", "busy_cores")
    }
    return Sample(
        number=row.whole("number"),
        bytes_per_s=row.whole("bytes_per_s"),
        iops=row.number("iops"),
        moved=row.whole("moved"),
        runtime_s=row.number("runtime_s"),
        mean_us=row.number("mean_us"),
        cpu=row.number("cpu"),
        **others,
    )


def conditions_of(table: Table) -> Conditions:
    """What is only told and never reckoned with may be any text or number; what is of another kind is dropped."""
    drives = tuple(_noun(DriveState, row, DriveState(row.word("name"))) for row in table.rows("drives"))
    found = _noun(Conditions, table, Conditions())
    return replace(found, drives=drives)


def _noun(kind: type[_Kind], table: Table, usual: _Kind) -> _Kind:
    values = {}
    for each in fields(usual):  # type: ignore[arg-type] # both kinds are dataclasses
        if each.name != "drives":
            wire, value = each.metadata.get(WIRE, each.name), getattr(usual, each.name)
            found = table.scalar(wire) if wire in table.values else value
            values[each.name] = found if _fits(found, str(each.type)) else value
    return kind(**values)


def _fits(value: object, said: str) -> bool:
    """Whether a value is what the field's annotation says."""
    words = said.replace("<class '", "").replace("'>", "").split(" | ")
    if value is None:
        return "None" in words
    if isinstance(value, bool):
        return "bool" in words
    if isinstance(value, int):
        return "int" in words or "float" in words
    return type(value).__name__ in words
