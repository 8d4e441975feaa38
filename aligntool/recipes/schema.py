"""Read the TOML files of recipes/ strictly, and match model names with their patterns."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pkgutil import get_data  # importlib.resources takes 10 ms to import
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from aligntool.documents import LARGEST
from aligntool.errors import Refusal, Refused, refuse
from aligntool.units import MIB, parse_size

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

# The packaged `recipes/` folder: inside the package in a wheel, beside it in a checkout (or an editable
# install).

PACKAGE = "aligntool"


def read_recipes(folder: str) -> tuple[tuple[str, str], ...]:
    """Return (name, content) of the TOML files in `recipes/FOLDER`, sorted by name.

    Raises Refused if this installation lacks the folder.
    """
    for place in _folders(folder):
        if place.is_dir():
            found = {file.name: file for file in place.iterdir() if file.name.endswith(".toml")}
            return tuple(
                (f"recipes/{folder}/{name}", found[name].read_text("utf-8")) for name in sorted(found)
            )
    raise Refused(
        f"this installation of aligntool lacks its recipes/{folder} folder", hint="reinstall aligntool"
    )


def read_recipe(name: str) -> tuple[str, str]:
    """Return (name, content) of one file of `recipes/`. Raises Refused if this installation lacks it."""
    for place in (f"recipes/{name}", f"../recipes/{name}"):
        with suppress(OSError):
            return f"recipes/{name}", (get_data(PACKAGE, place) or b"").decode()
    raise Refused(f"this installation of aligntool lacks recipes/{name}", hint="reinstall aligntool")


def _folders(name: str) -> "tuple[Traversable, ...]":
    from importlib.resources import files  # slow to import, and not needed for an audit of an image file

    package = files(PACKAGE)
    return package / "recipes" / name, package / ".." / "recipes" / name


# Matching a drive's model name with the patterns of the database ("WD??EARS*"), with or without the maker's
# name.
#
# One drive has many spellings:
#
# - the kernel prints "WDC WD20EARS-00MVWB0", udev "WDC_WD20EARS-00MVWB0", a USB bridge or a seller
#   "WD20EARS";
# - SCSI INQUIRY has room for 16 characters, and libata reports the model through it: "WDC WD20EARS-00M" in
#   sysfs;
# - trailing and doubled blanks vary.
#
# fnmatch compiles a pattern to a regular expression at its first comparison, which takes 0.1 ms; a hundred of
# them take longer than an audit. So a text is first compared with the literal prefix of the pattern.

INQUIRY_LENGTH = 16  # SPC-4, standard INQUIRY data, PRODUCT IDENTIFICATION, padded with blanks


def normal(model: str) -> str:
    """Return a model name in lower case, with single blanks, blanks for underscores, and without libata's
    "ATA ".
    """
    return " ".join(model.replace("_", " ").casefold().split()).removeprefix("ata ")


def spellings(model: str, makers: tuple[str, ...], *, cut: bool) -> tuple[str, ...]:
    """Return the model, also without a maker's name at its start.

    `cut`: the model was read by an INQUIRY. A name that was cut after a blank, such as "Samsung SSD 840 EVO",
    lost that blank, so it is also returned with it.
    """
    bare = tuple(model.removeprefix(maker).lstrip() for maker in makers if model.startswith(f"{maker} "))
    if cut and len(model) == INQUIRY_LENGTH - 1:
        return model, *bare, f"{model} ", *(f"{text} " for text in bare)
    return model, *bare


@dataclass(frozen=True, slots=True)
class Pattern:
    """A glob: `*` any text, `?` one character, `[ab0-9]` one of these, `[!ab]` one other than these."""

    text: str
    start: str  # the literal prefix of every text that matches

    def fits(self, text: str) -> bool:
        return text.startswith(self.start) and fnmatchcase(text, self.text)


def parse_pattern(text: str) -> Pattern:
    """Return the pattern of a text. Raises ValueError if a bracket is not closed or is empty."""
    text = normal(text)
    if "[" in re.sub(r"\[!?+.[^]]*\]", "", text):
        raise ValueError("a bracket is not closed")
    return Pattern(text, re.split(r"[*?[]", text)[0])


# Strict reading of TOML tables: an unknown key or value is refused, never skipped. The refusal names file,
# row and key, and the nearest valid key.


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of a file, and its name in messages."""

    file: str
    name: str  # 'drive "WD Caviar Green"', 'class 3'
    values: Mapping[str, Any]

    def allow(
        self, *keys: str, elsewhere: tuple[str, ...] = (), others: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Raise Refused with every other key. `elsewhere`: what may have been meant as well; `others`: keys
        of other files, with a hint for each.
        """
        known = (*keys, *elsewhere)
        hints = {key: others.get(key) or nearest(key, known) for key in self.values if key not in keys}
        refuse(self.refusal(f"unknown key {key!r}", hint=hint).refusals[0] for key, hint in hints.items())

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise self.refusal(f"{key} must be a string, not {value!r}")
        return value

    def required(self, key: str, allowed: Iterable[str] = ()) -> str:
        """Return the string of a key, which `choice` also reads if it has `allowed` words."""
        value = self.values.get(key) if allowed else self.text(key)
        if value is None:
            raise self.refusal(f"{key} is missing", hint=known_words(allowed))
        return str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of a key: one string or a list of them; () if missing."""
        value = self.values.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(text, str) and text.strip() for text in listed):
            raise self.refusal(f"{key} must be a string or a list of strings, not {value!r}")
        return tuple(listed)

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        words = tuple(allowed)
        if not isinstance(value, str):
            raise self.refusal(f"{key} must be a string, not {value!r}", hint=nearest(str(value), words))
        if value not in words:
            raise self.refusal(f"{key} cannot be {value!r}", hint=nearest(value, words))
        return value

    def choices(self, key: str, allowed: tuple[str, ...], what: str, plural: str) -> tuple[str, ...]:
        """Return the strings of a key, which must all be among `allowed`. `what`, `plural`: their name in
        messages.
        """
        for word in self.texts(key):
            if word not in allowed:
                raise self.refusal(f"{key}: {word!r} is not {what}", hint=f"{plural}: {', '.join(allowed)}")
        return self.texts(key)

    def sizes(self, key: str) -> tuple[int, ...]:
        """Return the sizes of a key in bytes, from "4KiB" or a list of such strings."""
        try:
            return tuple(map(parse_size, self.texts(key)))
        except ValueError as error:
            raise self.refusal(f"{key}: {error}") from error

    def size(self, key: str) -> int | None:
        return None if self.text(key) is None else self.sizes(key)[0]

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


def read_tables(
    file: str, content: str, *, kinds: tuple[str, ...], keys: tuple[str, ...] | None = ()
) -> tuple[Entry, dict[str, tuple[Entry, ...]]]:
    """Return the top level of a file, which may have `keys`, and its lists of tables (`[[drive]]`), by kind.
    `keys` None: the caller checks them.
    """
    import tomllib

    _refuse_large(file, content)
    try:
        parsed = tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of more than 4300 digits
        raise Refused(f"{file} is not valid TOML: {error}") from error
    top = Entry(file, "at its top", {key: value for key, value in parsed.items() if key not in kinds})
    if keys is not None:
        top.allow(*keys, elsewhere=kinds)
    return top, {kind: _entries(file, kind, parsed.get(kind, [])) for kind in kinds}


# characters of a file; the drive database, the largest that is shipped, has less than a fifth of it
LONGEST = MIB
MOST_DOTS = 100  # in one line; tomllib needs quadratic time for a key of that many parts


def _refuse_large(file: str, content: str) -> None:
    """Raise Refused for a file that would take very long to parse, or much memory."""
    if len(content) > LONGEST:
        raise Refused(f"{file} is not a file of tables: it has more than {LONGEST} characters")
    for number, line in enumerate(content.split("\n"), start=1):
        if line.count(".") > MOST_DOTS:
            raise Refused(
                f"{file}, line {number} has more than {MOST_DOTS} dots, which no key and no text needs"
            )


def _entries(file: str, kind: str, rows: object) -> tuple[Entry, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refused(f"{file}: {kind} must be a list of tables", hint=f"[[{kind}]]")
    return tuple(
        Entry(file, f'{kind} "{row["name"]}"' if isinstance(row.get("name"), str) else f"{kind} {place}", row)
        for place, row in enumerate(rows, start=1)
    )


def read_each(read: Callable[[_Item], _Value], items: Iterable[_Item]) -> list[_Value]:
    """Return what `read` returns for each item. Raises Refused with the reasons of all that are refused, of
    several each with its hint.
    """
    found: list[_Value] = []
    refusals: list[Refusal] = []
    for item in items:
        try:
            found.append(read(item))
        except Refused as error:
            refusals += error.refusals
    distinct = tuple(dict.fromkeys(refusals))
    if len(distinct) < 2:
        refuse(distinct)
        return found
    beside = [each.hint if "\n" not in each.hint else "" for each in distinct]
    texts = [
        f"{each.text} ({hint})" if hint else each.text for each, hint in zip(distinct, beside, strict=True)
    ]
    below = (each.hint for each, hint in zip(distinct, beside, strict=True) if not hint and each.hint)
    raise Refused("\n".join(texts), hint="\n".join(below), refusals=distinct)


def nearest(word: str, known: tuple[str, ...]) -> str:
    """Return a hint with the known word that was probably meant, or with all of them."""
    import difflib

    similar = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {similar[0]!r}?" if similar else known_words(known)


def known_words(known: Iterable[str]) -> str:
    words = ", ".join(sorted(known))
    return f"known: {words}" if words else ""
