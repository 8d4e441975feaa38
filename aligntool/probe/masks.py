"""What a snapshot must not tell: serial numbers, world-wide names, UUIDs, labels, names that people gave.

In: paths and contents as recorded. Out: the same with placeholders, or None for what is left out. Alone because it is a
promise. udev's properties and mounts are kept by a list of what may stay, not of what must go.
"""

import re
from collections.abc import Callable

from aligntool.probe.placeholders import Masks
from aligntool.probe.system_masks import SYSTEM_FILES, mask_system_file

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
