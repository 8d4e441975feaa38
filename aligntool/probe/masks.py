"""What a snapshot must not tell: serial numbers, world-wide names, UUIDs, labels, names that people gave.

In: paths and contents as recorded. Out: the same with placeholders, or None for what is left out. Alone because it is a
promise. The same value gets the same placeholder everywhere, of the same length and shape, so that what refers to each
other still does. udev's properties and mounts are kept by a list of what may stay, not of what must go.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_UUID = re.compile(r"(?<![0-9A-Fa-f-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])")
_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_DM_OWNER = re.compile(r"((?:part\d+-)?(?:LVM|mpath|DMRAID|CRYPT-[A-Z0-9]+|[A-Za-z]+)-)(.+)", re.DOTALL)
_NUMBERED_ID = re.compile(r"(.{8})(-\d\d)")  # an MBR partition's PARTUUID ends in its number
_PREFIXED = re.compile(r"(naa\.|eui\.|uuid\.|t10\.|nvme\.|nqn\.|0x)(.+)", re.DOTALL)
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


@dataclass(slots=True)
class Masks:
    """The placeholders given so far."""

    _given: dict[str, str] = field(default_factory=dict)
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

    def mapping_uuid(self, uuid: str) -> str:
        """ "LVM-…" and "CRYPT-LUKS2-…" say who made the mapping; the rest is whose it is."""
        owner = _DM_OWNER.fullmatch(uuid)
        return owner.group(1) + self._placeholder(owner.group(2)) if owner else self.value(uuid)

    def place(self, path: str) -> str:
        if path in _COMMON_PLACES or path == "[SWAP]":
            return path
        return self._places.setdefault(path, f"/masked/{len(self._places) + 1}")

    def anywhere(self, text: str) -> str:
        """UUIDs and network addresses, wherever they turn up."""
        text = _UUID.sub(lambda found: self.value(found.group()), text)
        return _MAC.sub(lambda found: self.value(found.group()), text)

    def _placeholder(self, secret: str) -> str:
        if not secret:
            return secret
        key = secret.lower()
        if key not in self._given:
            self._given[key] = _shaped(secret, len(self._given) + 1)
        return self._given[key]


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


def mask_file(masks: Masks, path: str, content: bytes) -> bytes | None:
    """The content without secrets; None: the file is left out."""
    name = path.rpartition("/")[2]
    if name in _LEFT_OUT and "/pci_bus/" not in path:
        return None
    binary = _BINARY.get(name) or _BINARY.get(name.rpartition(".")[2] if "/identify/" in path else "")
    if binary is not None:
        return binary(masks, content)
    text = content.decode("utf-8", "replace")
    return _mask_text(masks, path, name, text).encode()


def _mask_text(masks: Masks, path: str, name: str, text: str) -> str:
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
    key, found, value = line.partition("=")
    key = key.removeprefix("E:")
    if not line.startswith("E:") or not found:
        return ""
    if key in ("DM_NAME", "MD_NAME"):
        return f"E:{key}={masks.name(value)}\n"
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
