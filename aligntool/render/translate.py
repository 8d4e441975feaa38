"""Translate messages to the user's language on output. Until then they are English, also in JSON, journals and tests.

A catalogue (gettext's .mo) has a translation for each sentence of the source, with {0}, {1} for the values of an
f-string, and {0:d} for a number. A text to be shown is split again: into a sentence of the catalogue and the values in
its holes, or into the parts of a list, and each of these is translated in turn. Of all ways to split it, the one that
leaves the fewest English letters is used. Text without a translation stays as it is: names, commands, units, quotes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pkgutil import get_data
from struct import iter_unpack, unpack_from

# Strings, because compiling them would add a millisecond to every start of the program.
HOLE = r"\{\d+(?::d)?\}"
_WORD = r"(?<![\dA-Za-z])[A-Za-z]{2,}"
_FRAMES = (
    (r"\s*(?:[-·✗!→] |\d+(?:\.|/\d+) |AT\d+ )+\s*", r"\s*$"),
    (r"\s*", r"\s*$"),
    (r"\s*", r"[:,]\s*$"),
    (r"\s*[-·]?\s*\d+ ", r"\s*$"),
)
"""Patterns allowed before and after a sentence: the mark of an item, spaces, a colon or a comma, a number."""
_COMMAND = r"\$ |(?:sudo )?aligntool [a-z]|'[^']*'$"
_JOINS = {" and ": "と", ", ": "、", ". ": "。"}
_SEPARATORS = ("\n", " · ", " – ", " ← ", r"(?<!\d)\. ", "; ", ": ", ", ", " and ", " / ", "  ")
_STRONG = r"\n|; | · | – | ← "
"""Separators that a sentence does not span unless it contains them itself."""
_NOUN = r"[a-z]+ \{0\} of \{1\}"
"""A part of a named thing. The name is one word; the text after it belongs to another sentence."""
_PARENTHESES = r"(.+?)( ?\()(.+)(\))"
_SIZE = r"(.+?)( )([-+]?\d\S*)"
_SHORT = 80
"""Most characters of a text that may be split at any space, if both parts are then known."""
_NAMES = 4
"""Number of first words of a longer text after which it may be split: they name its subject."""
LONGEST = 2000
"""Most characters of a text to translate; longer texts are not messages of aligntool."""
LEAST_LITERALS = 7
"""Fewest literal characters of a sentence to try before lists; "{0} of {1}", for example, is tried after them."""
LANGUAGES = ("ja",)
"""Languages with a catalogue in po/."""
OUTPUT_LANGUAGES: tuple[str, ...] = ()
"""Those of LANGUAGES that the program uses: none, because fragments are put together in the wrong order, which changed
the meaning of sentences (docs/decisions/0035).
"""


class Catalogue:
    """The sentences of one language."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        self._sentences = dict(_second_halves(messages)) | dict(messages)
        self._templates: dict[str, list[_Template]] = {}
        for english, own in self._sentences.items():
            if re.search(HOLE, english):
                template = _Template(english, own)
                self._templates.setdefault(template.key, []).append(template)
        self._around = lru_cache(maxsize=16384)(self._within_frame)
        self._best = lru_cache(maxsize=4096)(self._search)

    def translate(self, text: str) -> str:
        """Return the text in this language, with its spaces at both ends kept; unknown text stays English."""
        return self._around(text)[1] if len(text) <= LONGEST else text

    def _within_frame(self, text: str) -> tuple[int, str]:
        """Return the number of English letters left, and the translation; spaces, the mark of an item, and a colon or
        comma at the end are kept.
        """
        if text in self._sentences:  # with its own spaces
            return 0, self._sentences[text]
        best = _count_letters(text), text
        if re.search(_WORD, text) and not re.match(_COMMAND, text.strip()):
            for mark, end in _FRAMES:
                first = re.match(mark, text)
                last = re.search(end, text)
                if first and last and first.end() < last.start():
                    left, own = self._best(text[first.end() : last.start()])
                    if left < best[0]:
                        best = left, text[: first.end()] + own + text[last.start() :]
        return best

    def _search(self, core: str) -> tuple[int, str]:
        """Return the number of English letters left in the best translation, and the translation."""
        if core in self._sentences:
            return 0, self._sentences[core]
        best = _count_letters(core), core
        for parts, join in self._splits(core):
            found = [(_count_letters(part), part) if quoted else self._around(part) for part, quoted in parts]
            left = sum(letters for letters, _ in found)
            if left < best[0]:
                best = left, join([own for _, own in found])
        return (best[0] and self._two_halves(core)) or best

    def _two_halves(self, core: str) -> tuple[int, str] | None:
        """Return the translation of a text that a space divides into two known parts, or None."""
        spaces = list(re.finditer(r"(?<=[A-Za-z0-9)]{2}) ", core))
        spaces = spaces if len(core) <= _SHORT else spaces[:_NAMES]
        for space in sorted(spaces, key=lambda space: abs(2 * space.start() - len(core))):  # from the middle
            (left, first), (right, last) = map(self._around, (core[: space.start()], core[space.end() :]))
            if not left and not right and re.search(_WORD, core[: space.start()]):
                return 0, first + (" " if first[-1:].isascii() else "") + last
        return None

    def _splits(self, core: str) -> Iterator[tuple[list[tuple[str, bool]], Callable[[list[str]], str]]]:
        """Yield the ways to split a text: its parts, each with True if it is in quotes, and a function to join them.

        English branches to the right: a sentence whose own words come first is the outer one.
        """
        words = {*re.findall(_WORD, core)}
        fitting = [
            (template, holes)
            for word in words
            for template in self._templates.get(word, ())
            if (holes := template.holes_in(core)) is not None
        ]
        fitting.sort(key=lambda match: (len(match[1][0][0]), -match[0].size))
        first = [match for match in fitting if match[0].size >= LEAST_LITERALS and not match[0].reaches_far(match[1])]
        yield from ((holes, template.filled) for template, holes in first)
        for separator in _SEPARATORS:
            found = re.search(separator, core)
            if found:
                for most in (0, 1):  # at every one, or at the first
                    parts = [(part, False) for part in re.split(separator, core, maxsplit=most)]
                    yield parts, _JOINS.get(found[0], found[0]).join
        for pattern in (_PARENTHESES, _SIZE):
            found = re.fullmatch(pattern, core)
            if found:
                yield [(part, False) for part in found.groups()], "".join
        yield from ((holes, template.filled) for template, holes in fitting if (template, holes) not in first)


def _second_halves(messages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield second halves of sentences without the separator they begin with, at which lists are split first."""
    for english, own in messages.items():
        if english[:2] in (", ", "; ", ": "):
            yield english[2:], own.lstrip("、;:。 ")


class _Template:
    """A sentence with holes."""

    def __init__(self, english: str, own: str) -> None:
        self._literals = [_unescaped(literal) for literal in re.split(HOLE, english)]
        self._quoted = [literal.endswith('"') for literal in self._literals[:-1]]
        self._names = re.findall(HOLE, english)
        self._number = "{0:d}" in english
        self._noun = bool(re.fullmatch(_NOUN, english))
        self._parts = re.split(f"({HOLE})", own)
        self.size = sum(map(len, self._literals))
        self.key = max(re.findall(_WORD, " ".join(self._literals)) or [""], key=len)

    def holes_in(self, text: str) -> list[tuple[str, bool]] | None:
        """Return the values in the holes, each with True if in quotes, or None if the text is not this sentence."""
        first, *inner, last = self._literals
        end = len(text) - len(last)
        if not text.startswith(first) or not text.endswith(last):
            return None
        holes = []
        at = len(first)
        for literal in inner:
            to = text.find(literal, at, end)
            if to < 0:
                return None
            holes.append(text[at:to])
            at = to + len(literal)
        found = [*holes, text[at:end]]
        if at > end or (self._number and not re.fullmatch(r"[\d,]+", found[0])) or (self._noun and " " in found[-1]):
            return None
        if any(
            hole.startswith("of ") or (hole.endswith((":", ",")) and after)
            for hole, after in zip(found, [*inner, last], strict=True)
        ):
            return None
        return list(zip(found, self._quoted, strict=True))

    def reaches_far(self, holes: list[tuple[str, bool]]) -> bool:
        """Return whether one of the holes contains more than a part of a sentence."""
        before = holes if self._literals[-1] else holes[:-1]
        return any(re.search(_STRONG, text) for text, _ in holes) or any(": " in text for text, _ in before)

    def filled(self, holes: list[str]) -> str:
        """Return the translation of this sentence with the given values in its holes."""
        own = dict(zip(self._names, holes, strict=True))
        return "".join(own.get(part, _unescaped(part)) for part in self._parts)


def _count_letters(text: str) -> int:
    """Count the letters of words, without units after a number and names that contain a digit or a slash."""
    return sum(map(len, re.findall(_WORD, re.sub(r"\S*[\d/_=]\S*", "", text))))


def _unescaped(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")


def read_catalogue(raw: bytes) -> Catalogue:
    """Read a .mo file of msgfmt, UTF-8 and little-endian (the GNU gettext manual, "The Format of GNU MO Files")."""
    number, *tables = unpack_from("<3I", raw, 8)

    def texts(at: int) -> Iterator[str]:
        for length, start in iter_unpack("<2I", raw[at : at + 8 * number]):
            yield raw[start : start + length].decode()

    return Catalogue({english: own for english, own in zip(*map(texts, tables), strict=True) if english})


def language(environment: Mapping[str, str]) -> str | None:
    """Return the first language of the user that has a catalogue, as gettext finds it, or None for English."""
    locale = environment.get("LC_ALL") or environment.get("LC_MESSAGES") or environment.get("LANG") or "C"
    if locale.partition(".")[0] in ("C", "POSIX"):
        return None
    for word in (environment.get("LANGUAGE") or locale).split(":"):
        code = re.split(r"[_.@]", word)[0]
        if code in LANGUAGES or code == "en":
            return None if code == "en" else code
    return None


@lru_cache(maxsize=1)
def _catalogue(code: str) -> Catalogue:
    return read_catalogue(get_data("aligntool", f"locale/{code}/LC_MESSAGES/aligntool.mo") or b"")


_chosen: str | None = None


def use_language(code: str | None) -> None:
    """Set the language of `translated`; None: English."""
    global _chosen
    _chosen = code


def chosen_language() -> str:
    """Return the code of the chosen language, as in HTML."""
    return _chosen or "en"


def translated(text: str) -> str:
    """Return the text in the chosen language."""
    return _catalogue(_chosen).translate(text) if _chosen else text
