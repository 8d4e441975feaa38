"""BitLocker. Layout: cryptsetup lib/bitlk/bitlk.c and libbde's format notes."""

from collections.abc import Iterator
from dataclasses import replace

from aligntool.contents.kind import Kind
from aligntool.contents.ntfs import cluster_size
from aligntool.contents.signatures import magic
from aligntool.errors import Refusal
from aligntool.formats.numbers import guid_at, le16, le32, le64, text_at
from aligntool.formats.reader import Area
from aligntool.inventory import Layer
from aligntool.units import KIB, is_power_of_two

VISTA = b"\xeb\x52\x90-FVE-FS-"
WINDOWS_7 = b"\xeb\x58\x90-FVE-FS-"
TO_GO = b"\xeb\x58\x90MSWIN4.1"


def read_bitlocker(area: Area) -> Layer | None:
    boot = area.head[:512]
    start = boot[:11] if len(boot) == 512 else b""
    at = {WINDOWS_7: le64(boot, 176), TO_GO: le64(boot, 440)}.get(start, 0)
    metadata = area.read(at, 64 * KIB) if at and at % 64 == 0 else b""
    if start != VISTA and metadata[:8] != b"-FVE-FS-":
        return None
    sector = le16(boot, 11)
    cluster = cluster_size(boot)
    version = str(le16(metadata, 10)) if metadata else None
    unit = cluster or (sector if is_power_of_two(sector) else None)
    # Encryption in place: all data has the same offset as in the file system.
    found = replace(
        area.layer("BitLocker", None, unit), version=version, label=next(_descriptions(metadata), None)
    )
    return replace(found, uuid=guid_at(metadata, 64 + 16))


def _descriptions(metadata: bytes) -> Iterator[str]:
    """Yield the descriptions in the metadata, whose entries are: size, entry type, value type, version,
    value.
    """
    end = min(64 + le32(metadata, 64), len(metadata))
    at = 64 + 48
    while at + 8 < end:
        size = le16(metadata, at)
        if size < 8 or at + size > end:
            return
        text = text_at(metadata, at + 8, size - 8, "utf-16-le")
        if le32(metadata, at + 2) == 7 | 2 << 16 and text:  # a description, a string
            yield text
        at += size


_FIXED = Refusal(
    "bitlocker",
    "",
    "is encrypted with BitLocker: its inner boot sector contains its offset and cannot be changed from"
    " outside",
    "decrypt it in Windows: manage-bde -off C:",
)

BITLOCKER = Kind(
    "BitLocker",
    readers=(read_bitlocker,),
    is_owner=True,
    is_on_floppies=True,
    signatures=(
        magic(
            "BitLocker",
            *(b"\xeb" + rest for rest in (b"\x52\x90-FVE-FS-", b"\x58\x90-FVE-FS-", b"\x58\x90MSWIN4.1")),
            heads=(0,),
        ),
    ),
    why_fixed=lambda layer: _FIXED,
    used_by_windows=True,
)
