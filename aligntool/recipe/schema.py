"""Strict reading of TOML tables: a key or a value that is not understood is refused, never skipped.

In: the text of a file. Out: checked values, or Refused naming file, row and key, the nearest valid key as the hint.
Alone because every recipe is read by it; it knows no recipe.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aligntool.errors import Refused
from aligntool.strict_json import LARGEST
from aligntool.units import parse_size


@dataclass(frozen=True, slots=True)
class Entry:
    """One table of a file and how to name it in a complaint."""

    file: str
    name: str  # 'drive "WD Caviar Green"', 'class 3'
    values: Mapping[str, Any]

    def allow(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                raise self.refusal(f"unknown key {key!r}", hint=nearest(key, keys))

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise self.refusal(f"{key} must be a text, not {value!r}")
        return value

    def required(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise self.refusal(f"{key} is missing")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A text, or a list of them."""
        value = self.values.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(each, str) and each.strip() for each in listed):
            raise self.refusal(f"{key} must be a text or a list of texts, not {value!r}")
        return tuple(listed)

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        value = self.text(key)
        if value is not None and value not in allowed:
            raise self.refusal(f"{key} cannot be {value!r}", hint=nearest(value, tuple(allowed)))
        return value

    def size(self, key: str) -> int | None:
        """ "4KiB" as bytes."""
        value = self.text(key)
        if value is None:
            return None
        try:
            return parse_size(value)
        except ValueError as error:
            raise self.refusal(f"{key}: {error}") from error

    def flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(f"{key} must be true or false, not {value!r}")
        return value

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        wrong = isinstance(value, bool) or not isinstance(value, int | float)
        if value is not None and (wrong or not -LARGEST <= value <= LARGEST):  # TOML has nan and inf
            raise self.refusal(f"{key} must be a number, not {value!r}")
        return value

    def refusal(self, what: str, *, hint: str = "") -> Refused:
        return Refused(f"{self.file}, {self.name}: {what}", hint=hint)


def read_tables(file: str, content: str, *, kinds: tuple[str, ...], keys: tuple[str, ...] = ()) -> "Document":
    """A file that holds lists of tables (`[[drive]]`) of the given kinds, and the given keys at its top."""
    import tomllib

    try:
        parsed = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{file} is no valid TOML: {error}") from error
    top = Entry(file, "at its top", {key: value for key, value in parsed.items() if key not in kinds})
    for key in top.values:
        if key not in keys:
            raise top.refusal(f"unknown key {key!r}", hint=nearest(key, (*keys, *kinds)))
    tables = {kind: _entries(file, kind, parsed.get(kind, [])) for kind in kinds}
    return Document(top, tables)


@dataclass(frozen=True, slots=True)
class Document:
    top: Entry
    tables: Mapping[str, tuple[Entry, ...]]


def _entries(file: str, kind: str, rows: object) -> tuple[Entry, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refused(f"{file}: {kind} must be a list of tables", hint=f"[[{kind}]]")
    return tuple(
        Entry(file, f'{kind} "{row["name"]}"' if isinstance(row.get("name"), str) else f"{kind} {place}", row)
        for place, row in enumerate(rows, start=1)
    )


def nearest(word: str, known: tuple[str, ...]) -> str:
    """A hint: the known word that was probably meant, or all of them."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}"
