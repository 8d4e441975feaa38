"""Matching a drive's model name against the patterns of the database.

In: patterns ("WD??EARS*"), the makers' names that may stand before them, and a model as some layer of the system prints
it. Out: whether they fit. Alone because one drive has many spellings:

- the kernel prints "WDC WD20EARS-00MVWB0", udev "WDC_WD20EARS-00MVWB0", a USB bridge or a seller "WD20EARS";
- SCSI INQUIRY has room for 16 characters, and libata answers through it: sysfs says "WDC WD20EARS-00M";
- trailing and doubled blanks come and go.

No regular expressions: compiling a hundred of them takes longer than an audit.
"""

from dataclasses import dataclass

INQUIRY_LENGTH = 16  # SPC-4, standard INQUIRY data, PRODUCT IDENTIFICATION, padded with blanks


def normal(model: str) -> str:
    """One spelling for all: lower case, blanks for underscores, none doubled, no "ATA " of libata's."""
    return " ".join(model.replace("_", " ").casefold().split()).removeprefix("ata ")


def spellings(model: str, makers: tuple[str, ...], *, cut: bool) -> tuple[str, ...]:
    """The model, and what is left of it when it begins with a maker's name.

    `cut`: it came through an INQUIRY, where the blank that "Samsung SSD 840 EVO" is cut at was stripped.
    """
    bare = tuple(model.removeprefix(maker).lstrip() for maker in makers if model.startswith(f"{maker} "))
    if cut and len(model) == INQUIRY_LENGTH - 1:
        return model, *bare, f"{model} ", *(f"{text} " for text in bare)
    return model, *bare


@dataclass(frozen=True, slots=True)
class Pattern:
    """A glob: `*` any text, `?` one character, `[ab0-9]` one of these, `[!ab]` none of these, all else itself."""

    tokens: tuple[str, ...]
    start: str  # what every text that fits begins with

    def fits(self, text: str) -> bool:
        return text.startswith(self.start) and _fits(self.tokens, text)


def parse_pattern(text: str) -> Pattern:
    """Raises ValueError when a bracket is left open or empty."""
    tokens: list[str] = []
    rest = normal(text)
    while rest:
        length = 1
        if rest[0] == "[":
            length = rest.find("]", 3 if rest.startswith("[!") else 2) + 1
            if length < 3:
                raise ValueError("a bracket is not closed")
        tokens.append(_spelled_out(rest[:length]))
        rest = rest[length:]
    wild = next((place for place, token in enumerate(tokens) if token in "*?" or len(token) > 1), len(tokens))
    return Pattern(tuple(tokens), "".join(tokens[:wild]))


def _spelled_out(token: str) -> str:
    """ "[0-9]" as "[0123456789]"."""
    inside, place = token[1:-1], 0
    characters: list[str] = []
    while place < len(inside):
        if inside[place + 1 : place + 2] == "-" and place + 2 < len(inside):
            characters.extend(map(chr, range(ord(inside[place]), min(ord(inside[place + 2]), 0x7F) + 1)))
            place += 3
        else:
            characters.append(inside[place])
            place += 1
    return f"[{''.join(characters)}]" if len(token) > 1 else token


def _fits(tokens: tuple[str, ...], text: str) -> bool:
    """Goes back to the last star only, so it takes len(tokens) x len(text) steps at most."""
    token, place, star, retry = 0, 0, -1, 0
    while place < len(text):
        if token < len(tokens) and tokens[token] == "*":
            star, retry = token, place
            token += 1
        elif token < len(tokens) and _is_one_of(text[place], tokens[token]):
            token, place = token + 1, place + 1
        elif star >= 0:
            retry += 1
            token, place = star + 1, retry
        else:
            return False
    return all(left == "*" for left in tokens[token:])


def _is_one_of(character: str, token: str) -> bool:
    if len(token) == 1:
        return token in ("?", character)
    if token.startswith("[!"):
        return character not in token[2:-1]
    return character in token[1:-1]
