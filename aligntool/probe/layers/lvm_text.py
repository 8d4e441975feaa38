"""LVM's text format: sections in braces, values after equal signs, lists in brackets.

In: the text of a volume group as it lies on a physical volume. Out: dictionaries of numbers, texts, lists and
sections. It is alone because it knows the grammar and nothing of what the words mean. It never fails on bad
text: what was understood before the first mistake is returned. Grammar: lvm2 libdm/libdm-config.c.
"""

import re
from collections.abc import Iterator

DEEPEST = 8  # volume group, logical volumes, volume, segment: real metadata has four levels
MOST_TOKENS = 200_000

Value = int | float | str
Section = dict[str, "Value | list[Value] | Section"]

_TOKEN = re.compile(
    r'\s+|#[^\n]*|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>[+-]?\d+(?:\.\d+)?(?![\w.-]))|(?P<word>[\w.+/-]+)|(?P<mark>[{}\[\]=,])',
    re.DOTALL | re.ASCII,
)
_LONGEST_NUMBER = 20


class _Unreadable(ValueError):
    """The text is not in the format from here on."""


def parse(text: str) -> Section:
    root: Section = {}
    open_sections = [root]
    tokens = _tokens(text)
    try:
        for kind, name in tokens:
            if name == "}" and kind == "mark":
                open_sections.pop()
                if not open_sections:
                    break
                continue
            if kind not in ("word", "number", "text"):
                raise _Unreadable(name)
            _read_entry(name, tokens, open_sections)
    except _Unreadable:
        pass
    return root


def _read_entry(name: str, tokens: Iterator[tuple[str, str]], open_sections: list[Section]) -> None:
    """`name {` opens a section, `name = value` stores a value."""
    kind, word = next(tokens, ("", ""))
    if kind != "mark" or word not in "{=" or len(open_sections) > DEEPEST:
        raise _Unreadable(name)
    if word == "{":
        section: Section = {}
        open_sections[-1][name] = section
        open_sections.append(section)
    else:
        open_sections[-1][name] = _read_value(tokens)


def _read_value(tokens: Iterator[tuple[str, str]]) -> "Value | list[Value]":
    kind, word = next(tokens, ("", ""))
    if kind != "mark":
        return _value(kind, word)
    if word != "[":
        raise _Unreadable(word)
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


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for _ in range(MOST_TOKENS):
        match = _TOKEN.match(text, at)
        if match is None:
            break
        at = match.end()
        if match.lastgroup:
            yield match.lastgroup, match.group()
    if at < len(text):
        raise _Unreadable(text[at : at + 20])
