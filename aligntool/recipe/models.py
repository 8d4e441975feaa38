"""Matching a drive's model name against the patterns of the database.

In: patterns ("WD??EARS*"), the makers' names that may stand before them, and a model as some layer of the system prints
it. Out: whether they fit. Alone because one drive has many spellings:

- the kernel prints "WDC WD20EARS-00MVWB0", udev "WDC_WD20EARS-00MVWB0", a USB bridge or a seller "WD20EARS";
- SCSI INQUIRY has room for 16 characters, and libata answers through it: sysfs says "WDC WD20EARS-00M";
- trailing and doubled blanks come and go.

No regular expressions: compiling a hundred of them takes longer than an audit.
"""

from dataclasses import dataclass

INQUIRY_LENGTH = 16  # SPC-4, standard INQUIRY data, PRODUCT IDENTIFICATION


def normal(model: str) -> str:
    """One spelling for all: lower case, blanks for underscores, none doubled, no "ATA " of libata's."""
    return " ".join(model.replace("_", " ").casefold().split()).removeprefix("ata ")


def may_be_cut(model: str) -> bool:
    """It fills the 16 characters of an INQUIRY, or all but a blank that was stripped."""
    return len(model) in (INQUIRY_LENGTH - 1, INQUIRY_LENGTH)


def without_maker(model: str, makers: tuple[str, ...]) -> tuple[str, ...]:
    """The model, and what is left of it when it begins with a maker's name."""
    return (model, *(model.removeprefix(maker).lstrip() for maker in makers if model.startswith(f"{maker} ")))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A glob: `*` any text, `?` one character, `[ab]` one of these, `[!ab]` none of these, all else itself."""

    tokens: tuple[str, ...]
    start: str  # what every text that fits begins with

    def fits(self, text: str) -> bool:
        return text.startswith(self.start) and _fits(self.tokens, text)

    def fits_cut(self, text: str) -> bool:
        """Some text that goes on after `text` fits."""
        before_star = self.tokens[: self.tokens.index("*")] if "*" in self.tokens else self.tokens
        return (len(text) <= len(before_star) or len(before_star) < len(self.tokens)) and all(
            _is_one_of(character, token) for character, token in zip(text, before_star, strict=False)
        )


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
        tokens.append(rest[:length])
        rest = rest[length:]
    wild = next((place for place, token in enumerate(tokens) if token in "*?" or len(token) > 1), len(tokens))
    return Pattern(tuple(tokens), "".join(tokens[:wild]))


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
