"""LVM's text format: sections in braces, values after equal signs, lists in brackets."""

import re
from collections.abc import Iterator
from contextlib import suppress

from aligntool.formats.reader import WORDS, Budget

# Bad text never raises: everything before the first error is returned. Grammar: lvm2 libdm/libdm-config.c.

DEEPEST = 8  # volume group, logical volumes, volume, segment: real metadata has four levels

Value = int | float | str
Section = dict[str, "Value | list[Value] | Section"]

_TOKEN = (
    r'(?as)\s+|#[^\n]*|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>[+-]?\d+(?:\.\d+)?(?![\w.-]))'
    r"|(?P<word>[\w.+/-]+)|(?P<mark>[{}\[\]=,])"
)
_LONGEST_NUMBER = 20


class _Unreadable(ValueError):
    """The rest of the text is not in the format."""


def parse(text: str) -> Section:
    return parse_metadata(text, Budget())[0]


def parse_metadata(text: str, budget: Budget) -> tuple[Section, bool]:
    """Return everything before the first error, and whether that is the whole text. Raises
    OverBudgetError.
    """
    root: Section = {}
    with suppress(_Unreadable):
        tokens = _tokens(text, budget)
        _read_section(tokens, root, DEEPEST)
        return root, next(tokens, None) is None
    return root, False


def _read_section(tokens: Iterator[tuple[str, str]], section: Section, levels: int) -> None:
    """Read up to the closing brace: `name {` opens a section inside this one, `name = value` stores a
    value.
    """
    for kind, name in tokens:
        if (kind, name) == ("mark", "}"):
            return
        opening = next(tokens, ("", ""))
        if kind == "mark" or opening not in (("mark", "{"), ("mark", "=")) or not levels:
            raise _Unreadable(name)
        if opening == ("mark", "{"):
            inner: Section = {}
            section[name] = inner
            _read_section(tokens, inner, levels - 1)
        else:
            section[name] = _read_value(tokens)


def _read_value(tokens: Iterator[tuple[str, str]]) -> "Value | list[Value]":
    kind, word = next(tokens, ("", ""))
    if kind != "mark" or word != "[":
        return _value(kind, word)
    items: list[Value] = []
    for kind, word in tokens:
        if kind == "mark" and word == "]":
            return items
        if kind != "mark":
            items.append(_value(kind, word))
        elif word != ",":
            break
    raise _Unreadable(word)


def _value(kind: str, word: str) -> Value:
    if kind == "text":
        return re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL)
    if kind == "number" and len(word) <= _LONGEST_NUMBER:
        return float(word) if "." in word else int(word)
    raise _Unreadable(word)


def _tokens(text: str, budget: Budget) -> Iterator[tuple[str, str]]:
    at = 0
    token = re.compile(_TOKEN)
    while match := token.match(text, at):
        budget.spend(WORDS)
        at = match.end()
        if match.lastgroup:
            yield match.lastgroup, match.group()
    if at < len(text):
        raise _Unreadable(text[at : at + 20])


def sections(section: Section, name: str) -> Iterator[tuple[str, Section]]:
    inside = section.get(name)
    if isinstance(inside, dict):
        yield from ((key, value) for key, value in inside.items() if isinstance(value, dict))
