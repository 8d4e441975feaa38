"""A JSON file that anybody may have written, read key by key; and dataclasses as JSON objects.

In: a text. Out: its values, each of the kind that was asked for, or ValueError with one sentence. Alone because what
was measured is kept in several kinds of files, and nothing of a stranger's file goes on unchecked.

The name of a field in a document is the field's own, unless its metadata has another one under `WIRE`. A field whose
documents are frozen is renamed like this: `new_name: int = field(metadata={WIRE: "old_name"})`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

LARGEST = 1 << 63  # of a number: no disk has more bytes
MOST = 10_000  # of anything that is a list
LONGEST = 4096  # letters of a text
WIRE = "wire"

_Value = TypeVar("_Value")
Tags = Mapping[type, Mapping[str, object]]
_NO_TAGS: Tags = MappingProxyType({})


def wire_names(kind: object) -> dict[str, str]:
    """Return the fields of a dataclass, or of an instance of one: the name in a document, and the name in Python."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind!r} is not a dataclass")
    return {each.metadata.get(WIRE, each.name): each.name for each in fields(kind)}


def as_object(value: object, tags: Tags = _NO_TAGS) -> dict[str, object]:
    """Return a dataclass as a JSON object. `tags`: what stands first in the object of a kind."""
    body = {wire: as_json(getattr(value, name), tags) for wire, name in wire_names(value).items()}
    return {**tags.get(type(value), {}), **body}


def as_json(value: object, tags: Tags = _NO_TAGS) -> object:
    """Return dataclasses, tuples, mappings and enums as JSON has them; everything else as it is."""
    if is_dataclass(value):
        return as_object(value, tags)
    match value:
        case Enum():
            return value.value
        case tuple() | list():
            return [as_json(one, tags) for one in value]
        case Mapping():
            return {key: as_json(one, tags) for key, one in value.items()}
    return value


def by_field(kind: object, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return the values of an object under the names of the dataclass's fields; unknown names stay, and are refused by
    its constructor.
    """
    names = wire_names(kind)
    return {names.get(wire, wire): value for wire, value in values.items()}


def read_table(text: str) -> "Table":
    """The whole file. Raises ValueError."""
    try:
        return Table(json.loads(text, parse_constant=_no_constant), "the file")
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


class Table:
    """A JSON object, read key by key. Every reader raises ValueError for what is missing or of another kind."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is no object")
        self.values: Mapping[str, object] = value
        self.where = where

    def word(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or len(value) > LONGEST:
            raise ValueError(f"{key} of {self.where} is no text")
        return value

    def maybe_word(self, key: str) -> str | None:
        return None if self.values.get(key) is None else self.word(key)

    def choice(self, key: str, allowed: Collection[str]) -> str:
        value = self.word(key)
        if value not in allowed:
            raise ValueError(f"{key} of {self.where} is none of {', '.join(allowed)}")
        return value

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} of {self.where} is no number")
        if not 0 <= value <= LARGEST:  # nor NaN
            raise ValueError(f"{key} of {self.where} cannot be {value!r:.40}")
        return value

    def whole(self, key: str) -> int:
        value = self.number(key)
        if value != int(value):
            raise ValueError(f"{key} of {self.where} is no whole number")
        return int(value)

    def maybe_whole(self, key: str) -> int | None:
        return None if self.values.get(key) is None else self.whole(key)

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise ValueError(f"{key} of {self.where} is neither true nor false")
        return value

    def table(self, key: str) -> "Table":
        return Table(self.values.get(key), f"{key} of {self.where}")

    def rows(self, key: str) -> "list[Table]":
        return [
            Table(each, f"{key} {place} of {self.where}") for place, each in enumerate(self._list(key), 1)
        ]

    def _list(self, key: str) -> list[object]:
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > MOST:
            raise ValueError(f"{key} of {self.where} is no list")
        return value

    def numbers(self, key: str) -> list[float]:
        """At least one."""
        found = [Table({key: each}, self.where).number(key) for each in self._list(key)]
        if not found:
            raise ValueError(f"{key} of {self.where} is an empty list")
        return found

    def words(self, key: str) -> tuple[str, ...]:
        found = [each for each in self._list(key) if isinstance(each, str) and len(each) <= LONGEST]
        if len(found) != len(self._list(key)):
            raise ValueError(f"{key} of {self.where} is no list of texts")
        return tuple(found)

    def scalar(self, key: str) -> object:
        """None, a text, a flag or a number."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        return self.word(key) if isinstance(value, str) else self._signed(key)

    def _signed(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, int | float) and abs(value) <= LARGEST:  # nor NaN
            return value
        raise ValueError(f"{key} of {self.where} is no number")
