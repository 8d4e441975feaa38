"""Convert JSON documents to dataclasses and back, with a check of every value.

A field has the same name in a document, unless its metadata has another one under `WIRE`. So a field of a
frozen document can be renamed: `new_name: int = field(metadata={WIRE: "old_name"})`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST = 1 << 63  # largest number; no disk has more bytes
MOST = 10_000  # items of a list
LONGEST = 4096  # characters of a text
MOST_VALUES = 2_000_000  # of a document; with more, parsing it would take more memory than a machine may have
WIRE = "wire"
BOUNDS = "bounds"  # metadata: smallest and largest number, instead of 0 and LARGEST
POSITIVE = (1, LARGEST)
OPTIONAL = "optional"  # metadata: True if older documents lack the field
# metadata: True if the field is not written while it has its default, as in older documents
OMITTED = "omitted"

_Kind = TypeVar("_Kind")
_Shown = TypeVar("_Shown", bound="DataclassInstance")
Tags = Mapping[type, Mapping[str, object]]
_NO_TAGS: Tags = MappingProxyType({})


def parse_json(text: str | bytes, parse_constant: Callable[[str], object] | None = None) -> Any:
    """Parse JSON. Raises ValueError if it is none or has too many values, which is decided before they take
    memory, and RecursionError if it is too deep.
    """
    if count_values(text) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values")
    return json.loads(text, parse_constant=parse_constant)


def count_values(text: str | bytes) -> int:
    """Return at least the number of values in a JSON text: a separator within a text counts as well."""
    coded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return sum(coded.count(separator) for separator in (b",", b"[", b"{"))


def wire_fields(kind: object) -> dict[str, Field[Any]]:
    """Return the fields of a dataclass or of an instance by their names in documents."""
    return _wire_fields(kind if isinstance(kind, type) else type(kind))


@cache
def _wire_fields(kind: Any) -> dict[str, Field[Any]]:
    return {field.metadata.get(WIRE, field.name): field for field in fields(kind)}


def as_object(value: object, tags: Tags = _NO_TAGS) -> dict[str, object]:
    """Return a dataclass as a JSON object. `tags`: members to put first in the object, by class."""
    found = {wire: (field, getattr(value, field.name)) for wire, field in wire_fields(value).items()}
    body = {
        wire: as_json(item, tags) for wire, (field, item) in found.items() if not _is_omitted(field, item)
    }
    return {**tags.get(type(value), {}), **body}


def _is_omitted(field: Field[Any], item: object) -> bool:
    return bool(field.metadata.get(OMITTED)) and item == field.default


def as_json(value: object, tags: Tags = _NO_TAGS) -> object:
    """Return a value for JSON: convert dataclasses, tuples, mappings and enums; return anything else
    unchanged.
    """
    if type(value) in _SCALAR_NAMES:
        return value
    if is_dataclass(value):
        return as_object(value, tags)
    match value:
        case Enum():
            return value.value
        case tuple() | list():
            return [as_json(item, tags) for item in value]
        case Mapping():
            return {key: as_json(item, tags) for key, item in value.items()}
    return value


def load_object(text: str) -> dict[str, object]:
    """Return the object in a JSON text. Raises ValueError."""
    try:
        return decode(dict[str, object], parse_json(text, parse_constant=_refuse_constant))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON at line {error.lineno}, column {error.colno}" if text else "it is empty"
        ) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def schema_texts() -> dict[str, str]:
    """Return the JSON Schema of every document, by its name without `aligntool.`."""
    from importlib.resources import files  # slow to import, and used by `aligntool schema` only

    found = {file.name.removesuffix(".json"): file for file in (files("aligntool") / "schemas").iterdir()}
    return {name: found[name].read_text("utf-8") for name in sorted(found)}


def check_schema(document: Mapping[str, object], schema: str, version: int) -> None:
    """Raise ValueError for a document of another kind or version."""
    if document.get("schema") != schema:
        raise ValueError(f"its schema is not {schema}")
    if type(document.get("version")) is not int or document["version"] != version:
        raise ValueError(
            f"it has version {document.get('version')!r:.40}, but this aligntool reads version {version}"
        )


def decode(
    kind: type[_Kind], value: object, path: str = "", *, exact: bool = False, tags: Tags = _NO_TAGS
) -> _Kind:
    """Return a value of a JSON document as `kind`: a dataclass, a tuple, a dict, an enum, a scalar or None.
    Raises ValueError with the path in the document.

    Unknown fields are ignored, a field that may be None or has OPTIONAL may be missing, and numbers, texts
    and lists are bounded. `exact`, for documents protected by a digest: no unknown fields, none missing but
    those with OMITTED, values of exactly the annotated types, of any size. `tags`: as given to `as_object`;
    they select the class of a union.
    """
    found: _Kind = _Decoder(exact, tags).value(kind, value, path, (0, LARGEST))
    return found


def decode_shown(usual: _Shown, value: Mapping[str, object], path: str = "") -> _Shown:
    """Return `usual`, a dataclass of scalars, with the fields of an object that have the annotated types.
    They are only shown, not computed with, so fields of other types are dropped. Raises ValueError for a
    value that is not a scalar or is too large.
    """
    hints = get_type_hints(type(usual))
    found = {}
    for wire, field in wire_fields(usual).items():
        if wire in value:
            item = value[wire]
            kinds = get_args(hints[field.name]) or (hints[field.name],)
            if not (
                item is None
                or (isinstance(item, str) and len(item) <= LONGEST)
                or (isinstance(item, int | float) and abs(item) <= LARGEST)
            ):
                raise ValueError(f"{path}.{wire}: not a string, a number, true, false or null")
            if type(item) in kinds or (type(item) is int and float in kinds):
                found[field.name] = item
    return replace(usual, **found)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the origin and the arguments of an annotation, and whether it is a dataclass."""
    return get_origin(kind), get_args(kind), is_dataclass(kind)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Decode JSON values; see `decode` for `exact` and `tags`."""

    exact: bool
    tags: Tags

    def value(self, kind: Any, value: object, path: str, bounds: tuple[float, float]) -> Any:
        origin, args, is_object = _shape(kind)
        if origin in (Union, UnionType):
            return None if value is None and NoneType in args else self._union(args, value, path, bounds)
        if origin is tuple or origin is list:
            if not isinstance(value, list) or (len(value) > MOST and not self.exact):
                raise ValueError(f"{path}: not a list, or too long")
            return origin(self.value(args[0], item, f"{path}[{at}]", bounds) for at, item in enumerate(value))
        if kind is object:
            return value
        if origin is dict or is_object:
            if not isinstance(value, dict):
                raise ValueError(f"{path or 'the document'}: not an object")
            if origin is dict:
                return {key: self.value(args[1], item, f"{path}[...]", bounds) for key, item in value.items()}
            return self._object(kind, value, path)
        if issubclass(kind, Enum):
            if value not in [member.value for member in kind]:
                raise ValueError(f"{path}: not one of {', '.join(str(member.value) for member in kind)}")
            return kind(value)
        return self._scalar(kind, value, path, bounds)

    def _union(self, args: tuple[Any, ...], value: object, path: str, bounds: tuple[float, float]) -> Any:
        kinds = [kind for kind in args if kind is not NoneType]
        if len(kinds) == 1:
            return self.value(kinds[0], value, path, bounds)
        if isinstance(value, dict):
            for kind in kinds:
                tag = self.tags.get(kind)
                if tag and tag.items() <= value.items():
                    rest = {key: item for key, item in value.items() if key not in tag}
                    return self.value(kind, rest, path, bounds)
        raise ValueError(f"{path}: unknown kind")

    def _object(self, kind: Any, value: Mapping[str, object], path: str) -> Any:
        hints = _hints(kind)
        expected = wire_fields(kind)
        found = {}
        needed = {
            wire for wire, field in expected.items() if wire in value or not field.metadata.get(OMITTED)
        }
        if self.exact and set(value) != needed:
            odd = ", ".join(sorted(set(value) ^ needed))
            raise ValueError(f"{path or 'the document'}: fields missing or unknown: {odd:.200}")
        for wire, field in expected.items():
            if wire not in value and field.metadata.get(OMITTED):
                continue
            if self.exact and type(value.get(wire)) is (hint := hints[field.name]) and hint in _SCALAR_NAMES:
                found[field.name] = value[wire]
            elif wire in value or not field.metadata.get(OPTIONAL):
                place = f"{path}.{wire}".lstrip(".")
                bounds = field.metadata.get(BOUNDS, (0, LARGEST))
                found[field.name] = self.value(hints[field.name], value.get(wire), place, bounds)
        return kind(**found)

    def _scalar(self, kind: type, value: object, path: str, bounds: tuple[float, float]) -> object:
        fits = type(value) is kind and (self.exact or not isinstance(value, str) or len(value) <= LONGEST)
        if (
            not self.exact
            and kind in (int, float)
            and isinstance(value, int | float)
            and not isinstance(value, bool)
        ):
            if not bounds[0] <= value <= bounds[1]:  # NaN is also refused
                raise ValueError(f"{path}: {value!r:.40} is out of range")
            fits = kind is float or value == int(value)
            value = int(value) if kind is int else value
        if not fits:
            raise ValueError(f"{path}: not {_SCALAR_NAMES[kind]}")
        return value


_SCALAR_NAMES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
