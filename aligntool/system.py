"""What the system keeps in its files so that arrays come back: mdadm.conf, fstab, crypttab, the initramfs images.

A line must be found again just as it stands when it is to be changed. These files are written by hand: what is not a
line of its kind is left out, and nothing here stops at it.
"""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile

from aligntool.values import dataclass

LATE_START = "mdadm-late-start.timer"  # aligntool's own: docs/decisions/0022
LATE_START_ENABLED = f"/etc/systemd/system/sysinit.target.wants/{LATE_START}"  # the link that `systemctl enable` makes


@dataclass(frozen=True, slots=True)
class ArrayLine:
    """An ARRAY line of mdadm.conf(5), continuation lines joined."""

    file: str
    text: str  # as it stands there; a line that is continued, joined by spaces
    device: str | None = None  # "/dev/md/data", "<ignore>"; None: the line names none
    uuid: str | None = None  # lower case, four words of eight digits
    name: str | None = None  # "host:data"
    pinned: tuple[str, ...] = ()  # what else it goes by: "devices", "super-minor"
    joined: bool = False  # it was spread over several lines


@dataclass(frozen=True, slots=True)
class MdadmConf:
    """All files of it together."""

    files: tuple[str, ...] = ()  # those that are there, the main one first
    arrays: tuple[ArrayLine, ...] = ()
    homehost: str | None = None  # "<system>", "<ignore>" or a name; None: not said


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of fstab(5), or of crypttab(5)."""

    text: str
    spec: str  # "UUID=...", "/dev/md0"
    place: str  # "/srv", "none"; of crypttab the name of the mapping
    kind: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Initramfs:
    """What one initramfs image has for starting arrays."""

    path: str
    maker: str = ""  # "initramfs-tools", "dracut", "mkinitcpio"; "": not told
    has_mdadm: bool = False
    conf: MdadmConf | None = None  # None: no mdadm.conf is inside
    arrays_asked: tuple[str, ...] = ()  # dracut: the UUIDs of rd.md.uuid= inside
    unseen: str = ""  # why nobody could look inside; "": it was looked into


@dataclass(frozen=True, slots=True)
class Manifest:
    """When a machine was looked at, by which version, and its name where the user asked for it. None: not known."""

    date: str | None = None  # UTC, ISO 8601
    aligntool: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """Of the machine that was looked at. Lines are kept as they stand in their files."""

    family: str | None = None  # "debian", "debian-dracut", "fedora", "opensuse", "arch"
    hostname: str | None = None
    mdadm: MdadmConf = MdadmConf()
    fstab: tuple[TableLine, ...] = ()
    crypttab: tuple[TableLine, ...] = ()
    initramfs: tuple[Initramfs, ...] = ()
    command_line: tuple[str, ...] = ()  # words of the kernel's that have to do with arrays, root and resume
    unfinished: tuple[str, ...] = ()  # arrays whose making was begun and has not ended, a sentence each
    discards_on_parity: bool | None = None  # raid456's devices_handle_discard_safely
    late_start: bool = False  # LATE_START is enabled


# The lines of those files, read.

LONGEST = 4096  # characters of a line; nobody writes a longer one
MOST_LINES = 10_000
_UUID = re.compile(r"[0-9a-f]{32}")
_OCTAL = re.compile(rb"\\([0-7]{3})")


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
    for line, fields in _fields(text, 3):
        spec, place, kind = (unescape(field.encode("utf-8", "replace")) for field in fields[:3])
        options = tuple(fields[3].split(",")) if len(fields) > 3 else ()
        found.append(TableLine(line, _unquote(spec), place.rstrip("/") or place[:1], kind, options))
    return tuple(found)


def parse_crypttab(text: str) -> tuple[TableLine, ...]:
    """Return the lines of crypttab(5): the name of the mapping, the device below it."""
    return tuple(TableLine(line, _unquote(fields[1]), fields[0], "crypt") for line, fields in _fields(text, 2))


def is_about_arrays(word: str) -> bool:
    """Return whether a word of the kernel's command line names the root, the swap or an array."""
    return word.startswith(("root=", "resume=", "rd.md", "rd.auto", "md=", "raid="))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines()[:MOST_LINES] if len(line) <= LONGEST]


def _fields(text: str, least: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each line that is no comment and has its fields, with them."""
    for line in _lines(text):
        fields = line.split()
        if len(fields) >= least and not fields[0].startswith("#"):
            yield line, fields


def _joined(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line with its continuations, and whether there are any."""
    waiting: list[str] = []
    for line in (*_lines(text), ""):
        if line[:1] in (" ", "\t") and waiting:
            waiting += [line.strip()] if line.strip() else []
            continue
        if waiting:
            yield " ".join(waiting), len(waiting) > 1
        waiting = [line.rstrip()] if line.strip() else []


def _words(line: str) -> list[str]:
    reader = shlex.shlex(line, posix=True, punctuation_chars=False)
    reader.whitespace_split, reader.commenters, reader.escape = True, "", ""
    words: list[str] = []
    with suppress(ValueError):  # a quotation mark without its other one: mdadm takes it to the end of the line
        for word in takewhile(lambda word: not word.startswith("#"), reader):
            words.append(word)
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


def unescape(word: bytes) -> str:
    r"""Return the text without octal escapes: \040, \011, \012, \134, \043 (fs/proc_namespace.c, mangle)."""
    return _OCTAL.sub(lambda found: bytes((int(found[1], 8) & 0xFF,)), word).decode("utf-8", "replace")


def _unquote(spec: str) -> str:
    """Return the text without quotes, which some write as UUID="..." and libmount removes."""
    return spec.replace('"', "").replace("'", "")


def array_uuid(text: str | None) -> str | None:
    """Return mdadm's four words of eight digits, from these or from the kernel's and blkid's form with hyphens."""
    digits = (text or "").lower().replace("-", "").replace(":", "")
    if not _UUID.fullmatch(digits):
        return None
    return ":".join(digits[at : at + 8] for at in range(0, 32, 8))
