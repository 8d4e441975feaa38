"""Mask serial numbers, UUIDs, labels and host names in a snapshot."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aligntool.formats.config_files import is_about_arrays, parse_fstab, parse_mdadm_conf
from aligntool.system import LATE_START_ENABLED

if TYPE_CHECKING:
    from aligntool.system import ArrayLine, MdadmConf


# What stands in a snapshot in place of a secret: the same everywhere for the same value.
#
# In: serial numbers, UUIDs, names, places. Out: placeholders of the same length and shape, so that what
# refers to each other still does. Alone because every kind of file that is masked draws on one set of them.

_UUID = re.compile(r"(?<![0-9A-Fa-f-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])")
_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_ARRAY_UUID = re.compile(r"[0-9a-f]{32}")
_DM_OWNER = re.compile(r"((?:part\d+-)?(?:LVM|mpath|DMRAID|CRYPT-[A-Z0-9]+|[A-Za-z]+)-)(.+)", re.DOTALL)
_NUMBERED_ID = re.compile(r"(.{8})(-\d\d)")  # an MBR partition's PARTUUID ends in its number
_PREFIXED = re.compile(r"(naa\.|eui\.|uuid\.|t10\.|nvme\.|nqn\.|0x)(.+)", re.DOTALL)
_COMMON_PLACES = frozenset(
    [
        "/",
        "/boot",
        "/boot/efi",
        "/efi",
        "/home",
        "/var",
        "/var/log",
        "/var/lib",
        "/usr",
        "/opt",
        "/srv",
        "/tmp",
        "/root",
        "/mnt",
        "/media",
    ]
)

_OF_THE_SYSTEM = ("/home", "/var", "/usr", "/boot", "/opt", "/root", "/etc")


@dataclass(slots=True)
class Masks:
    """The placeholders given so far."""

    _given: dict[str, int] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)

    def value(self, secret: str) -> str:
        """A placeholder as long as the secret; hexadecimal where that is, with its dashes and prefix."""
        plain = secret.strip()
        if not plain.strip("0-:.x"):
            return secret  # zeros: no identity at all
        prefixed, numbered = _PREFIXED.fullmatch(plain), _NUMBERED_ID.fullmatch(plain)
        if prefixed:
            masked = prefixed.group(1) + self._placeholder(prefixed.group(2))
        elif numbered:
            masked = self._placeholder(numbered.group(1)) + numbered.group(2)
        else:
            masked = self._placeholder(plain)
        return secret.replace(plain, masked, 1)

    def name(self, name: str) -> str:
        """A device-mapper name, whose hyphens LVM reads."""
        parts = name.replace("--", "\0").split("-")
        return "-".join(self._placeholder(part.replace("\0", "--")) for part in parts)

    def array_name(self, name: str) -> str:
        """ "host:name" of md; what is said of every host, and numbers, are nobody's."""
        words = [word if word == "any" or word.isdecimal() else self.name(word) for word in name.split(":")]
        return ":".join(words)

    def mapping_uuid(self, uuid: str) -> str:
        """ "LVM-…" and "CRYPT-LUKS2-…" say who made the mapping; the rest is whose it is."""
        owner = _DM_OWNER.fullmatch(uuid)
        return owner.group(1) + self._placeholder(owner.group(2)) if owner else self.value(uuid)

    def place(self, path: str) -> str:
        if path in _COMMON_PLACES or path == "[SWAP]":
            return path
        above = f"/{path.split('/')[1]}" if path.startswith("/") else ""
        kept = above if above in _OF_THE_SYSTEM else ""  # whether the system needs it is no secret
        return self._places.setdefault(path, f"{kept}/masked/{len(self._places) + 1}")

    def anywhere(self, text: str) -> str:
        """UUIDs and network addresses, wherever they turn up."""
        text = _UUID.sub(lambda found: self.value(found.group()), text)
        return _MAC.sub(lambda found: self.value(found.group()), text)

    def _placeholder(self, secret: str) -> str:
        if not secret:
            return secret
        key = secret.lower()
        digits = key.replace("-", "").replace(":", "")
        if _ARRAY_UUID.fullmatch(digits):  # mdadm, blkid and the kernel each write it in their own way
            key = digits
        return _shaped(secret, self._given.setdefault(key, len(self._given) + 1))


def _shaped(secret: str, number: int) -> str:
    """Digits from the right, where there were letters and digits; a "0" or "x" everywhere else of that kind."""
    hexadecimal = all(letter in "0123456789abcdefABCDEF-:." for letter in secret)
    digits = f"{number:x}" if hexadecimal else f"{number}"
    shaped: list[str] = []
    for letter in reversed(secret):
        if letter in "-:.":
            shaped.append(letter)
        elif digits:
            shaped.append(digits[-1])
            digits = digits[:-1]
        else:
            shaped.append("0" if hexadecimal else "x")
    return "".join(reversed(shaped))


# What a snapshot keeps of the system's files: of each kind of line a list of what may stay.
#
# In: the text of mdadm.conf, fstab, os-release and the like. Out: the same with placeholders, everything else
# left out. Alone because these files are written by hand: comments, addresses and commands in them are
# nobody's business.

HOSTNAME = "/proc/sys/kernel/hostname"
SYSTEM_FILES = ("/etc/", "/usr/lib/os-release", "/aligntool/initramfs/", "/proc/cmdline", HOSTNAME)
_KEPT_OPTIONS = frozenset(
    [
        "defaults",
        "nofail",
        "noauto",
        "auto",
        "ro",
        "rw",
        "noatime",
        "relatime",
        "nodiratime",
        "discard",
        "nodiscard",
        "sw",
        "nouuid",
        "_netdev",
    ]
)
_KEPT_STARTS = ("x-systemd.device-timeout=", "pri=", "logbufs=", "logbsize=", "sunit=", "swidth=", "stripe=")
_SPECS = ("UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID=")


def mask_system_file(masks: "Masks", path: str, text: str) -> str:
    if path == HOSTNAME:
        return masks.name(text.strip()) + "\n"
    if path == "/proc/cmdline":
        words = [word for word in text.split() if is_about_arrays(word)]
        return " ".join(_word(masks, word) for word in words) + "\n"
    if path.endswith("os-release"):
        kept = [line for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE="))]
        return "".join(f"{line}\n" for line in kept)
    if path == LATE_START_ENABLED:
        return ""  # that it is there is enough
    if path == "/etc/fstab":
        return "".join(_fstab(masks, text))
    if path.startswith("/aligntool/"):
        head, inside, conf = text.partition("conf:\n")
        head = "".join(f"{_fact(masks, line)}\n" for line in head.splitlines())
        return head + inside + "".join(_conf(masks, parse_mdadm_conf(conf, path)))
    return "".join(_conf(masks, parse_mdadm_conf(text, path)))


def _conf(masks: "Masks", conf: "MdadmConf") -> Iterator[str]:
    if conf.homehost:
        special = conf.homehost.startswith("<") or conf.homehost == "any"
        yield f"HOMEHOST {conf.homehost if special else masks.name(conf.homehost)}\n"
    for line in conf.arrays:
        yield " ".join(_array(masks, line)) + "\n"


def _array(masks: "Masks", line: "ArrayLine") -> Iterator[str]:
    yield "ARRAY"
    if line.device:
        yield _device(masks, line.device)
    if line.uuid:
        yield f"UUID={masks.value(line.uuid)}"
    if line.name:
        yield f"name={masks.array_name(line.name)}"
    yield from (f"{word}=masked" for word in line.pinned)


def _fstab(masks: "Masks", text: str) -> Iterator[str]:
    for line in parse_fstab(text):
        spec = _spec(masks, line.spec)
        if spec:
            kept = [word for word in line.options if word in _KEPT_OPTIONS or word.startswith(_KEPT_STARTS)]
            place = line.place if line.place in ("none", "swap") else masks.place(line.place)
            yield f"{spec} {place} {line.kind} {','.join(kept) or 'defaults'} 0 0\n"


def _word(masks: "Masks", word: str) -> str:
    key, _, value = word.partition("=")
    if key == "rd.md.uuid":
        return f"{key}={masks.value(value)}"
    if key in ("root", "resume"):
        return f"{key}={_spec(masks, value) or 'masked'}"
    return word if key.startswith("rd.") else f"{key}=masked"


def _fact(masks: "Masks", line: str) -> str:
    key, _, value = line.partition("=")
    return f"{key}={masks.value(value)}" if key == "asked" else masks.anywhere(line)


def _spec(masks: "Masks", spec: str) -> str:
    """Of a device; "" for a network share, a pseudo file system, a file."""
    key = next((key for key in _SPECS if spec.startswith(key)), None)
    if key is not None:
        return key + masks.value(spec.removeprefix(key))
    return _device(masks, spec) if spec.startswith("/dev/") else ""


def _device(masks: "Masks", device: str) -> str:
    if device.startswith("/dev/md/"):
        return "/dev/md/" + masks.array_name(device.removeprefix("/dev/md/"))
    if device.startswith("/dev/mapper/"):
        return "/dev/mapper/" + masks.name(device.removeprefix("/dev/mapper/"))
    if device.startswith("<") or (device.startswith("/dev/") and device.count("/") == 2):
        return device
    return masks.place(device) if device.startswith("/") else masks.array_name(device)


# What a snapshot must not tell: serial numbers, world-wide names, UUIDs, labels, names that people gave.
#
# In: paths and contents as recorded. Out: the same with placeholders, or None for what is left out. Alone
# because it is a promise. udev's properties and mounts are kept by a list of what may stay, not of what must
# go.

_SECRET_ATTRIBUTES = frozenset(
    [
        "serial",
        "wwid",
        "wwn",
        "nguid",
        "eui",
        "uuid",
        "subsysnqn",
        "hostnqn",
        "hostid",
        "cid",
        "sas_address",
        "unique_id",
        "volume_name",
        "ident",
    ]
)
_LEFT_OUT = frozenset(["vpd_pg83", "inquiry", "address", "csd", "hostname"])
_KEPT_PROPERTIES = re.compile(
    r"ID_(?:BUS|TYPE|MODEL|MODEL_ENC|REVISION|ATA(?:_\w+)?|DRIVE_\w+|PART_TABLE_TYPE|FS_TYPE|FS_VERSION|FS_USAGE|"
    r"PART_ENTRY_(?:SCHEME|TYPE|FLAGS|NUMBER|OFFSET|SIZE|DISK))|MAJOR|MINOR|DEVTYPE|PARTN|DISKSEQ|SUBSYSTEM"
)
_MASKED_PROPERTIES = re.compile(
    r"(?:ID_|SCSI_IDENT_|ID_SCSI_)SERIAL(?:_SHORT)?|ID_WWN\w*|ID_PART_(?:ENTRY|TABLE)_UUID|ID_PART_ENTRY_NAME|"
    r"ID_FS_(?:UUID|LABEL)(?:_ENC)?|DM_NAME|DM_UUID|MD_NAME|MD_UUID"
)
_KEPT_UEVENT = re.compile(
    rb"(?:MAJOR|MINOR|DEVNAME|DEVTYPE|DISKSEQ|PARTN|DRIVER|PCI_CLASS|PCI_ID|PCI_SUBSYS_ID)=.*"
)


def mask_file(masks: Masks, path: str, content: bytes) -> bytes | None:
    """The content without secrets; None: the file is left out."""
    name = path.rpartition("/")[2]
    if name in _LEFT_OUT and "/pci_bus/" not in path and not path.startswith(SYSTEM_FILES):
        return None
    binary = _BINARY.get(name) or _BINARY.get(name.rpartition(".")[2] if "/identify/" in path else "")
    if binary is not None:
        return binary(masks, content)
    text = content.decode("utf-8", "replace")
    return _mask_text(masks, path, name, text).encode()


def _mask_text(masks: Masks, path: str, name: str, text: str) -> str:
    if path.startswith(SYSTEM_FILES):
        return mask_system_file(masks, path, text)
    if path.startswith("/run/udev/data/"):
        return "".join(_udev_line(masks, line) for line in text.splitlines())
    if path == "/proc/self/mountinfo":
        return "".join(_mount_line(masks, line) for line in text.splitlines())
    if path == "/proc/swaps":
        return "".join(_swap_line(masks, line) for line in text.splitlines())
    if path.endswith("/dm/name"):
        return masks.name(text.strip()) + "\n"
    if path.endswith("/dm/uuid"):
        return masks.mapping_uuid(text.strip()) + "\n"
    if name == "backing_file":
        return masks.place(text.strip()) + "\n"
    if name == "uevent":
        kept = [line for line in text.encode().splitlines() if _KEPT_UEVENT.fullmatch(line)]
        return b"".join(line + b"\n" for line in kept).decode()
    if name in _SECRET_ATTRIBUTES:
        return masks.value(text)
    return masks.anywhere(text)


def _udev_line(masks: Masks, line: str) -> str:
    if line.startswith("S:md/"):
        return f"S:md/{masks.array_name(line.removeprefix('S:md/'))}\n"
    key, found, value = line.partition("=")
    key = key.removeprefix("E:")
    if not line.startswith("E:") or not found:
        return ""
    if key == "DM_NAME":
        return f"E:{key}={masks.name(value)}\n"
    if key == "MD_NAME":
        return f"E:{key}={masks.array_name(value)}\n"
    if key == "DM_UUID":
        return f"E:{key}={masks.mapping_uuid(value)}\n"
    if _MASKED_PROPERTIES.fullmatch(key):
        return f"E:{key}={masks.value(value)}\n"
    return f"E:{line[2:]}\n" if _KEPT_PROPERTIES.fullmatch(key) else ""


def _mount_line(masks: Masks, line: str) -> str:
    """Only what is mounted from a device; where from inside the file system, and with which options, is nobody's."""
    before, _, after = line.partition(" - ")
    words, rest = before.split(" "), after.split(" ")
    if len(words) < 5 or len(rest) < 2 or not rest[1].startswith("/dev/"):
        return ""
    numbers = " ".join(words[:3])
    return f"{numbers} / {masks.place(words[4])} rw - {rest[0]} {_node(masks, rest[1])} rw\n"


def _swap_line(masks: Masks, line: str) -> str:
    words = line.split()
    if not words or words[0] == "Filename":
        return f"{line}\n"
    if not words[0].startswith("/dev/"):
        return ""  # a swap file
    return "\t".join([_node(masks, words[0]), *words[1:]]) + "\n"


def _node(masks: Masks, node: str) -> str:
    if node.startswith("/dev/mapper/"):
        return "/dev/mapper/" + masks.name(node.removeprefix("/dev/mapper/"))
    return node if node.count("/") == 2 else masks.place(node)


def _blank(content: bytes, *runs: tuple[int, int]) -> bytes:
    raw = bytearray(content)
    for start, end in runs:
        raw[start:end] = bytes(len(raw[start:end]))
    return bytes(raw)


def _identify_controller(masks: Masks, page: bytes) -> bytes:
    """Serial number; FRU identifier; subsystem name, which holds the serial number; vendor's own bytes."""
    serial = masks.value(page[4:24].decode("ascii", "replace")).encode("ascii", "replace")[:20].ljust(20)
    page = _blank(page, (112, 128), (768, 1024), (3072, 4096))
    return page[:4] + serial + page[24:] if len(page) >= 24 else b""


def _identify_namespace(masks: Masks, page: bytes) -> bytes:
    """NGUID, EUI-64, vendor's own bytes."""
    return _blank(page, (104, 128), (384, 4096))


def _host_memory_buffer(masks: Masks, page: bytes) -> bytes:
    """Its size; not where in memory it lies."""
    return _blank(page, (8, 4100))


def _vpd_serial(masks: Masks, page: bytes) -> bytes:
    return page[:4] + masks.value(page[4:].decode("ascii", "replace")).encode("ascii", "replace")


def _vpd_identify(masks: Masks, page: bytes) -> bytes:
    """ATA words 10-19 (serial), 108-111 (world-wide name), 129-159 (vendor's), 176-205 (medium's serial), 255."""
    words = ((10, 20), (108, 112), (129, 160), (176, 206), (255, 256))
    return _blank(page, *((60 + 2 * first, 60 + 2 * end) for first, end in words))


_BINARY: dict[str, Callable[[Masks, bytes], bytes]] = {
    "ctrl": _identify_controller,
    "ns": _identify_namespace,
    "hmb": _host_memory_buffer,
    "vpd_pg80": _vpd_serial,
    "vpd_pg89": _vpd_identify,
}
