"""Names of PCI devices, from the pci.ids file of the machine that runs aligntool.

In: a vendor and a device number as sysfs has them, four hexadecimal digits each. Out: the device's name, or None.
Alone because the file is long (1.3 MB, 35,000 names) and a machine needs a handful of them: it is read once, when the
first name is wanted, and searched as bytes; no dictionary of it is ever built.

Format: https://pci-ids.ucw.cz/ ("vendor  name", then "<tab>device  name", then "<tab><tab>subvendor subdevice  name").
"""

import os
import re
from dataclasses import dataclass, field

PLACES = (
    "/usr/share/misc/pci.ids",
    "/usr/share/hwdata/pci.ids",
)  # Debian and Arch; Fedora, openSUSE and Arch
LONGEST_FILE = 16 * 1024 * 1024

_NEXT_VENDOR = re.compile(
    rb"\n[0-9a-fA-FC]{1,4} "
)  # a vendor, or the list of classes ("C 00  ...") at the end


@dataclass(frozen=True, slots=True)
class PciNames:
    """`places` are tried in turn. What was read and found is kept for the next question."""

    places: tuple[str, ...] = PLACES
    _content: list[bytes] = field(default_factory=list, repr=False, compare=False)
    _found: dict[tuple[str, str], str | None] = field(default_factory=dict, repr=False, compare=False)

    def device(self, vendor: str, device: str) -> str | None:
        known = (vendor, device)
        if known not in self._found:
            self._found[known] = _search(self._file(), vendor.encode(), device.encode())
        return self._found[known]

    def _file(self) -> bytes:
        if not self._content:
            self._content.append(next(filter(None, map(_read, self.places)), b""))
        return self._content[0]


def _read(place: str) -> bytes:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        with os.fdopen(descriptor, "rb") as file:
            return b"\n" + file.read(LONGEST_FILE)
    except OSError:
        return b""


def _search(content: bytes, vendor: bytes, device: bytes) -> str | None:
    start = content.find(b"\n" + vendor + b"  ")
    if start < 0:
        return None
    following = _NEXT_VENDOR.search(content, start + 1)
    end = following.start() if following else len(content)
    line = content.find(b"\n\t" + device + b"  ", start, end)
    if line < 0:
        return None
    name_at = line + len(b"\n\t") + len(device) + len(b"  ")
    line_end = content.find(b"\n", name_at)
    name = content[name_at : line_end if line_end >= 0 else len(content)]
    return name.decode("utf-8", "replace").strip() or None
