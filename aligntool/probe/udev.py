"""The udev database: what its rules and blkid found out about a device, kept for everybody to read.

In: a `Tree` and a device number. Out: properties, decoded. Alone because two forms of it exist in captured trees
(/run/udev/data as the daemon keeps it, /dev/NAME as util-linux's `mk-input.sh` captures it for `lsblk --sysroot`)
and because udev escapes strings in its own way.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aligntool.probe.tree import Tree

LONGEST_RECORD = 256 * 1024  # thousands of links; the daemon itself keeps them in one small file
_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Record:
    """What udev knows of one device."""

    properties: Mapping[str, str]
    links: tuple[str, ...] = ()  # below /dev: "disk/by-id/wwn-0x5000..."

    def get(self, key: str) -> str | None:
        return self.properties.get(key) or None

    def decoded(self, key: str) -> str | None:
        """A property whose name ends in _ENC, or which blkid encodes the same way (ID_PART_ENTRY_NAME)."""
        value = self.properties.get(key)
        return None if value is None else unescape(value).strip() or None

    def number(self, key: str) -> int | None:
        value = self.properties.get(key, "")
        return int(value) if 0 < len(value) <= 20 and value.isascii() and value.isdigit() else None


NOTHING = Record({})


@dataclass(frozen=True, slots=True)
class UdevDatabase:
    tree: Tree
    has_records: bool  # /run/udev/data is there
    has_files: bool  # captured for `lsblk --sysroot`

    def record(self, number: str | None, name: str) -> Record:
        """By device number ("8:1"), else by kernel name."""
        if self.has_records and number:
            content = self.tree.content(f"/run/udev/data/b{number}", LONGEST_RECORD)
            if content is not None:
                return parse_record(content)
        if self.has_files:
            content = self.tree.content(f"/dev/{name}", LONGEST_RECORD)
            if content is not None:
                return parse_dump(content)
        return NOTHING


def open_database(tree: Tree) -> UdevDatabase:
    """Looks once whether there is a database at all: most captured trees have none.

    The files in /dev of a live machine are devices, and nothing here opens one.
    """
    return UdevDatabase(
        tree,
        has_records=tree.is_directory("/run/udev/data"),
        has_files=not tree.live and tree.is_directory("/dev"),
    )


def parse_record(content: bytes) -> Record:
    """Lines "E:KEY=value" and "S:link" (systemd, src/libsystemd/sd-device/device-private.c)."""
    properties: dict[str, str] = {}
    links = []
    for line in content.decode("utf-8", "replace").split("\n"):
        if line.startswith("E:"):
            key, found, value = line[2:].partition("=")
            if found:
                properties[key] = value
        elif line.startswith("S:"):
            links.append(line[2:])
    return Record(properties, tuple(links))


def parse_dump(content: bytes) -> Record:
    """Lines "KEY=value", as `udevadm info --query=property` prints them; links stand in DEVLINKS."""
    properties: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        key, found, value = line.partition("=")
        if found:
            properties[key] = value
    links = properties.get("DEVLINKS", "").split()
    return Record(properties, tuple(link.removeprefix("/dev/") for link in links))


def unescape(text: str) -> str:
    r"""Turn udev's "\x20" back into bytes, and the bytes into text; anything that is not such an escape stays."""
    if "\\x" not in text:
        return text
    raw, at = bytearray(), 0
    while at < len(text):
        if text.startswith("\\x", at) and len(text) >= at + 4 and _HEX.issuperset(text[at + 2 : at + 4]):
            raw.append(int(text[at + 2 : at + 4], 16))
            at += 4
        else:
            raw += text[at].encode("utf-8", "replace")
            at += 1
    return raw.decode("utf-8", "replace")
