"""Properties of everything that the parsers return and of everything printed about it.

A violation raises `Broken`. The expectations come from the types in `aligntool.inventory`, from the JSON schema and
from what a terminal can show, never from a parser's own output.
"""

import json
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from aligntool.audit.judge import Known, audit
from aligntool.audit.report import AuditOptions
from aligntool.documents import schema_texts
from aligntool.inventory import Inventory, KnownGeometry, Source
from aligntool.render.audit import audit_lines
from aligntool.render.disk_map import map_lines
from aligntool.render.json import audit_json
from aligntool.render.lines import text_of
from aligntool.render.prometheus import Run, audit_prometheus
from aligntool.units import KIB, MIB, Extent
from tests.schemas import strict

MOST_PARTITIONS = 8192  # as many as fit into the MiB of GPT entries that is read
LARGEST_NUMBER = 1 << 160  # sums and products of a few 64-bit fields; more comes from a loop
MOST_TOLD = 16 * MIB  # characters of one report

_ROWS = (
    (),
    (
        KnownGeometry(
            Source.KNOWN, "a row", "a source", "high", physical_block_size=4 * KIB, page_size=16 * KIB,
            indirection_unit=64 * KIB, erase_block=3 * MIB, distrust=("physical_block_size",),
        ),
    ),
)  # fmt: skip
_WISHES = (AuditOptions(), AuditOptions(page_size=16 * KIB, grain=512))


class Broken(AssertionError):
    """A property does not hold."""


def check(value: object) -> None:
    """Check that it is frozen throughout, that every field has its declared type, and that byte counts are not
    negative.
    """
    hash(value)
    for place, hint, found in _walk(type(value), value, type(value).__name__):
        if not _conforms(hint, found):
            raise Broken(f"{place} is {found!r:.80}, not {hint}")
        if isinstance(found, Extent) and (found.start < 0 or found.length < 0):
            raise Broken(f"{place} is {found}: negative")
        if isinstance(found, int) and abs(found) >= LARGEST_NUMBER:
            raise Broken(f"{place} has {found.bit_length()} bits")
        if place.endswith((".data_start", ".claims_size", ".raid_chunk")) and (found or 0) < 0:
            raise Broken(f"{place} is {found}: negative")
        if place.endswith((".data_unit", ".sector_size")) and found is not None and found <= 0:
            raise Broken(f"{place} is {found}: nobody can count in that")
        if place.endswith("Disk.partitions") and len(found) > MOST_PARTITIONS:
            raise Broken(f"{place} has {len(found)} partitions")


def _walk(hint: Any, value: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    yield place, hint, value
    if is_dataclass(value):
        for name, inner in _hints(value.__class__).items():
            yield from _walk(inner, getattr(value, name), f"{type(value).__name__}.{name}")
    elif isinstance(value, tuple):
        for item in value:
            yield from _walk(type(item), item, f"{place}[]")


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _conforms(hint: Any, value: object) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_conforms(choice, value) for choice in get_args(hint))
    if origin is tuple:
        inside = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if len(inside) == 2 and inside[1] is Ellipsis:
            return all(_conforms(inside[0], item) for item in value)
        return len(inside) == len(value) and all(map(_conforms, inside, value))
    if hint in (None, type(None)):
        return value is None
    if isinstance(hint, type) and issubclass(hint, str) and not issubclass(hint, Enum):
        return type(value) is str
    return isinstance(value, hint) if isinstance(hint, type) else True


def render_all(inventory: Inventory, *, rows: Known | None = None, validate: bool) -> None:
    """Print everything about these disks: harmless on a terminal, valid for a program."""
    which = sum(disk.size or 0 for disk in inventory.disks) % len(_ROWS)  # with and without a known drive
    rows = rows or {disk.name: _ROWS[which] for disk in inventory.disks}
    report = audit(inventory, rows, _WISHES[which])
    parsed = json.loads(_rendered("json", audit_json(report)), parse_constant=_no_number)
    if validate:
        _validate(parsed)
    _printable("text", _rendered("text", text_of(audit_lines(report, width=80, verbose=True, quiet=False))))
    _printable("short text", _rendered("text", text_of(audit_lines(report, width=40, verbose=False, quiet=True))))
    _printable("map", _rendered("map", text_of(map_lines(report, width=80))))
    _printable("metrics", _rendered("metrics", audit_prometheus(report, Run(0, 0), serials=True)))


def _rendered(what: str, pieces: Iterator[str]) -> str:
    said, length = [], 0
    for piece in pieces:
        said.append(piece)
        length += len(piece)
        if length > MOST_TOLD:
            raise Broken(f"the {what} has no end: {length} characters")
    return "".join(said)


def _printable(what: str, text: str) -> None:
    for line in text.split("\n"):
        if not line.isprintable():
            odd = next(char for char in line if not char.isprintable())
            raise Broken(f"the {what} holds U+{ord(odd):04X} in {line!r:.120}")


def _no_number(word: str) -> None:
    raise Broken(f"the JSON holds {word}")


@cache
def _validator() -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(strict(json.loads(schema_texts()["audit"])))


def _validate(document: object) -> None:
    wrong = next(_validator().iter_errors(document), None)
    if wrong is not None:
        raise Broken(f"the JSON is not what its schema says: {wrong.json_path}: {wrong.message:.200}")
