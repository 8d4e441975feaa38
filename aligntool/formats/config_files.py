"""Files of the system that say how arrays and file systems come back: mdadm.conf, fstab, crypttab.

A line must be found again just as it stands when it is to be changed. These files are written by hand: what is not a
line of its kind is left out, and nothing here stops at it.
"""

import re
import shlex
from collections.abc import Iterator

from aligntool.system import ArrayLine, MdadmConf, TableLine

LONGEST = 4096  # characters of a line; nobody writes a longer one
MOST_LINES = 10_000
_UUID = re.compile(r"[0-9a-f]{32}")
_OCTAL = re.compile(r"\\([0-7]{3})")


def parse_mdadm_conf(text: str, file: str) -> MdadmConf:
    """Return mdadm.conf(5): keywords may be cut to three letters; a line that begins with a blank continues the one
    before.
    """
    arrays: list[ArrayLine] = []
    homehost = None
    for line, joined in _joined(text):
        words = _words(line)
        keyword = words[0].lower() if words else ""
        if _is(keyword, "array"):
            arrays.append(_array_line(words[1:], line, file, joined=joined))
        elif _is(keyword, "homehost") and len(words) > 1:
            homehost = words[1]
    return MdadmConf((file,), tuple(arrays), homehost)


def merge_confs(confs: list[MdadmConf]) -> MdadmConf:
    """Return the merged files that mdadm reads together; of two home hosts the first counts."""
    return MdadmConf(
        tuple(file for conf in confs for file in conf.files),
        tuple(line for conf in confs for line in conf.arrays),
        next((conf.homehost for conf in confs if conf.homehost), None),
    )


def parse_fstab(text: str) -> tuple[TableLine, ...]:
    """Return the lines of fstab(5). Blanks in a field are written \040."""
    found = []
    for line in _lines(text):
        fields = line.split()
        if len(fields) >= 3 and not fields[0].startswith("#"):
            spec, place, kind = (_unescape(field) for field in fields[:3])
            options = tuple(fields[3].split(",")) if len(fields) > 3 else ()
            found.append(TableLine(line, _unquote(spec), place.rstrip("/") or place[:1], kind, options))
    return tuple(found)


def parse_crypttab(text: str) -> tuple[TableLine, ...]:
    """Return the lines of crypttab(5): the name of the mapping, the device below it."""
    found = []
    for line in _lines(text):
        fields = line.split()
        if len(fields) >= 2 and not fields[0].startswith("#"):
            found.append(TableLine(line, _unquote(fields[1]), fields[0], "crypt"))
    return tuple(found)


def is_about_arrays(word: str) -> bool:
    """Return whether a word of the kernel's command line names the root, the swap or an array."""
    return word.startswith(("root=", "resume=", "rd.md", "rd.auto", "md=", "raid="))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines()[:MOST_LINES] if len(line) <= LONGEST]


def _joined(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line with its continuations, and whether there are any."""
    waiting: list[str] = []
    for line in _lines(text):
        if line[:1] in (" ", "\t") and waiting:
            if line.strip():
                waiting.append(line.strip())
            continue
        if waiting:
            yield " ".join(waiting), len(waiting) > 1
        waiting = [line.rstrip()] if line.strip() else []
    if waiting:
        yield " ".join(waiting), len(waiting) > 1


def _words(line: str) -> list[str]:
    reader = shlex.shlex(line, posix=True, punctuation_chars=False)
    reader.whitespace_split, reader.commenters, reader.escape = True, "", ""
    words: list[str] = []
    try:
        for word in reader:
            if word.startswith("#"):
                break
            words.append(word)
    except ValueError:  # a quotation mark without its other one: mdadm takes it to the end of the line
        return words
    return words


def _is(keyword: str, name: str) -> bool:
    return len(keyword) >= 3 and name.startswith(keyword)


def _array_line(words: list[str], text: str, file: str, *, joined: bool) -> ArrayLine:
    device = uuid = name = None
    pinned = []
    for word in words:
        key, given, value = word.partition("=")
        match key.lower() if given else "":
            case "":
                device = device or word
            case "uuid":
                uuid = array_uuid(value)
            case "name":
                name = value
            case "devices" | "super-minor" as other:
                pinned.append(other)
    return ArrayLine(file, text, device, uuid, name, tuple(pinned), joined)


def _unescape(field: str) -> str:
    raw = _OCTAL.sub(lambda found: chr(int(found[1], 8) & 0xFF), field)
    return raw if raw == field else raw.encode("latin-1", "replace").decode("utf-8", "replace")


def _unquote(spec: str) -> str:
    """Return the text without quotes, which some write as UUID="..." and libmount removes."""
    return spec.replace('"', "").replace("'", "")


def array_uuid(text: str | None) -> str | None:
    """Return mdadm's four words of eight digits, from these or from the kernel's and blkid's form with hyphens."""
    digits = (text or "").lower().replace("-", "").replace(":", "")
    if not _UUID.fullmatch(digits):
        return None
    return ":".join(digits[at : at + 8] for at in range(0, 32, 8))
