"""The config files that matter for arrays at boot, as values: mdadm.conf, fstab, crypttab, initramfs images.

Each line keeps its exact text, so that it can be found again to be changed. The files are written by hand: a
line that is invalid is skipped, never an error.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath

LATE_START = "mdadm-late-start.timer"  # installed by aligntool: docs/decisions/0022
# the link that `systemctl enable` makes
LATE_START_ENABLED = f"/etc/systemd/system/sysinit.target.wants/{LATE_START}"


@dataclass(frozen=True, slots=True)
class ArrayLine:
    """An ARRAY line of mdadm.conf(5), continuation lines joined."""

    file: str
    text: str  # as in the file; with continuation lines, joined by spaces
    device: str | None = None  # "/dev/md/data", "<ignore>"; None: not in the line
    uuid: str | None = None  # lower case, four words of eight digits
    name: str | None = None  # "host:data"
    pinned: tuple[str, ...] = ()  # other criteria: "devices", "super-minor"
    members: tuple[str, ...] = ()  # patterns of devices=
    joined: bool = False  # it has continuation lines


@dataclass(frozen=True, slots=True)
class MdadmConf:
    """The content of mdadm.conf(5), all its files merged."""

    files: tuple[str, ...] = ()  # the existing files, the main one first
    arrays: tuple[ArrayLine, ...] = ()
    homehost: str | None = None  # "<system>", "<ignore>" or a name; None: not set
    # words of the DEVICE lines: patterns, "partitions", "containers"; (): no such line
    devices: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # files that exist and cannot be read

    def forbidden(self, members: Collection[str]) -> list[str]:
        """Return those device paths that the DEVICE lines do not permit: mdadm ignores them (its config.c,
        conf_test_dev).

        A pattern of links permits everything: the links of new partitions do not exist yet.
        """
        patterns = [PurePath(word) for word in self.devices if word.startswith("/")]
        if not self.devices or any(word.lower() == "partitions" for word in self.devices):
            return []
        if any(str(pattern.parent) not in ("/dev", "/") for pattern in patterns):
            return []
        return [
            member for member in members if not any(PurePath(member).match(str(each)) for each in patterns)
        ]


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
    """The parts of an initramfs image that assemble arrays."""

    path: str
    maker: str = ""  # "initramfs-tools", "dracut", "mkinitcpio"; "": unknown
    has_mdadm: bool = False
    conf: MdadmConf | None = None  # None: it contains no mdadm.conf
    arrays_asked: tuple[str, ...] = ()  # dracut: the UUIDs of rd.md.uuid= inside
    unseen: str = ""  # why it could not be read; "": it was read


SNAPSHOT_SUFFIXES = (".tar.xz", ".tar.gz", ".txz", ".tgz", ".tar")
MASKED_NAME = re.compile(r"masked[/0-9]")  # what a snapshot has in place of names and mount points


@dataclass(frozen=True, slots=True)
class Manifest:
    """Date and version of an inventory, and the host name if the user requested it. None: unknown."""

    date: str | None = None  # UTC, ISO 8601
    aligntool: str | None = None
    host: str | None = None
    serials: bool | None = None  # a snapshot with serial numbers and UUIDs


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A change of an array that was begun and not finished."""

    text: str  # a sentence
    starts: str = ""  # the UUID of the array whose start at boot it configures; "": of none


@dataclass(frozen=True, slots=True)
class Installed:
    """A system that is installed below a folder, and does not run."""

    root: str  # where it is mounted now
    file_system: str  # kind, UUID and subvolume of what is mounted there, by which it is found again


@dataclass(frozen=True, slots=True)
class System:
    """The config files and settings of the inventoried machine. Lines keep their exact text."""

    family: str | None = None  # "debian", "debian-dracut", "fedora", "opensuse", "arch"
    hostname: str | None = None
    mdadm: MdadmConf = MdadmConf()
    fstab: tuple[TableLine, ...] = ()
    crypttab: tuple[TableLine, ...] = ()
    initramfs: tuple[Initramfs, ...] = ()
    command_line: tuple[str, ...] = ()  # words of the kernel command line on arrays, root and resume
    unfinished: tuple[Unfinished, ...] = ()
    discards_on_parity: bool | None = None  # raid456's devices_handle_discard_safely
    sync_limit: int | None = None  # md's, for a resynchronisation of an array, in bytes per second
    late_start: bool = False  # LATE_START is enabled
    kernel: str | None = None  # the release of the running one, as `uname -r` prints it
    installed: Installed | None = None  # None: it is the system of the inventoried machine itself

    def names_arrays(self) -> bool:
        """Return whether mdadm.conf or fstab names an array."""
        return bool(self.mdadm.arrays) or any(line.spec.startswith("/dev/md") for line in self.fstab)


# Parsers of these files.

LONGEST = 4096  # characters; longer lines are skipped
MOST_LINES = 10_000
_BLANKS = " \t"
_UUID = r"[0-9a-f]{32}"
_OCTAL = rb"\\([0-7]{3})"


def parse_mdadm_conf(text: str, file: str) -> MdadmConf:
    """Return the content of an mdadm.conf(5). Keywords may be abbreviated to three letters; a line that
    begins with a blank continues the previous one.
    """
    arrays: list[ArrayLine] = []
    homehost = None
    devices: list[str] = []
    for lines in _joined(text):
        words = [word for line in lines for word in _words(line)]
        keyword = words[0].lower() if words else ""
        if _is(keyword, "array"):
            arrays.append(_array_line(words[1:], " ".join(lines), file, joined=len(lines) > 1))
        elif _is(keyword, "homehost") and len(words) > 1:
            homehost = words[1]
        elif _is(keyword, "device"):
            devices += words[1:]
    return MdadmConf((file,), tuple(arrays), homehost, tuple(devices))


def merge_confs(confs: list[MdadmConf]) -> MdadmConf:
    """Return the files that mdadm reads, merged. Of several HOMEHOST lines the first counts."""
    return MdadmConf(
        tuple(file for conf in confs for file in conf.files),
        tuple(line for conf in confs for line in conf.arrays),
        next((conf.homehost for conf in confs if conf.homehost), None),
        tuple(word for conf in confs for word in conf.devices),
    )


def parse_fstab(text: str) -> tuple[TableLine, ...]:
    r"""Return the lines of fstab(5), in which blanks in a field are escaped as \040.

    For getmntent(3), which systemd's generator calls, a carriage return is part of the options before it, so
    that "nofail" is not recognised; mount(8) skips it.
    """
    found = []
    for line, fields in _fields(text, 3):
        spec, place, kind = (unescape(field.encode("utf-8", "replace")) for field in fields[:3])
        last = (
            fields[3] + "\r" * line.endswith(f"{fields[3]}\r") if len(fields) == 4 else "".join(fields[3:4])
        )
        options = tuple(last.split(",")) if last else ()
        found.append(TableLine(line, _unquote(spec), place.rstrip("/") or place[:1], kind, options))
    return tuple(found)


def parse_crypttab(text: str) -> tuple[TableLine, ...]:
    """Return the lines of crypttab(5): name of the mapping, device."""
    return tuple(
        TableLine(line, _unquote(fields[1]), fields[0], "crypt") for line, fields in _fields(text, 2)
    )


def concerns_arrays(word: str) -> bool:
    """Return whether a word of the kernel command line names the root file system, the resume device or an
    array.
    """
    return word.startswith(("root=", "resume=", "rd.md", "rd.auto", "md=", "raid="))


def _lines(text: str) -> list[str]:
    # form feeds do not end a line
    return [line for line in text.split("\n")[:MOST_LINES] if len(line) <= LONGEST]


def _fields(text: str, least: int) -> Iterator[tuple[str, list[str]]]:
    """Yield (line, fields) for each line that is not a comment and has at least `least` fields."""
    for line in _lines(text):
        fields = line.split()
        if len(fields) >= least and not fields[0].startswith("#"):
            yield line, fields


def _joined(text: str) -> Iterator[list[str]]:
    """Yield each line with its continuation lines. Empty lines and comments may be between them: mdadm's
    util.c, conf_word. For mdadm only blanks and tabs separate words; a carriage return before the end of a
    line is in a word.
    """
    parts: list[str] = []
    for line in filter(lambda line: line.strip() and not line.lstrip().startswith("#"), _lines(text)):
        if line[0] in _BLANKS and parts:
            parts.append(line.strip(_BLANKS))
            continue
        if parts:
            yield parts
        parts = [line.rstrip(_BLANKS)]
    if parts:
        yield parts


_QUOTED = r"""'([^']*)(?:'|\Z)|"([^"]*)(?:"|\Z)"""
_WORD = rf"""(?:[^ \t'"]|{_QUOTED})+"""


def _words(line: str) -> list[str]:
    """Return the words as mdadm reads them, without quotation marks; one without its second extends to the
    end of the line: config.c, conf_word.
    """
    words = (found[0] for found in re.finditer(_WORD, line))
    return [
        re.sub(_QUOTED, r"\1\2", word) for word in takewhile(lambda word: not word.startswith("#"), words)
    ]


def _is(keyword: str, name: str) -> bool:
    return len(keyword) >= 3 and name.startswith(keyword)


def _array_line(words: list[str], text: str, file: str, *, joined: bool) -> ArrayLine:
    device = uuid = name = None
    pinned: list[str] = []
    members: list[str] = []
    for word in words:
        key, given, value = word.partition("=")
        match key.lower() if given else "":
            case "":
                # mdadm takes <IGNORE> as well
                device = device or (word.lower() if word.startswith("<") else word)
            case "uuid":
                uuid = array_uuid(value)
            case "name":
                name = value
            case "devices" | "super-minor" as other:
                pinned.append(other)
                members += value.split(",") if other == "devices" else []
    return ArrayLine(file, text, device, uuid, name, tuple(pinned), tuple(filter(None, members)), joined)


def unescape(word: bytes) -> str:
    r"""Return the text with its octal escapes decoded: \040, \011, \012, \134, \043 (fs/proc_namespace.c,
    mangle).
    """
    return re.sub(_OCTAL, lambda found: bytes((int(found[1], 8) & 0xFF,)), word).decode("utf-8", "replace")


def _unquote(spec: str) -> str:
    """Return the text without quotes, as in UUID="...", which libmount removes as well."""
    return spec.replace('"', "").replace("'", "")


def uuid_digits(text: str) -> str:
    """Return the text without capitals and the separators that mdadm ignores in a UUID: its util.c,
    parse_uuid.
    """
    return re.sub("[:. -]", "", text.lower())


def array_uuid(text: str | None) -> str | None:
    """Return a UUID as four words of eight digits, as written by mdadm, from this form, the one with hyphens
    of the kernel and blkid, or any other that mdadm reads (util.c, parse_uuid). Return None if it is not a
    UUID.
    """
    digits = uuid_digits(text or "")
    if not re.fullmatch(_UUID, digits):
        return None
    return ":".join(digits[at : at + 8] for at in range(0, 32, 8))
