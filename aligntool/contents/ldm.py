"""Windows dynamic disks: the private header of the Logical Disk Manager."""

from aligntool.contents.kind import Kind
from aligntool.formats.numbers import be16, be64, text_at
from aligntool.formats.reader import Area
from aligntool.inventory import Layer

# Layout: linux/block/partitions/ldm.c, ldm_parse_privhead.

SECTOR = 512


def read_ldm(area: Area) -> Layer | None:
    # on an MBR disk; at the end of a GPT partition
    places = (area.head[6 * SECTOR : 7 * SECTOR], area.tail[-SECTOR:])
    header = next((place for place in places if place[:8] == b"PRIVHEAD"), b"")
    if len(header) < SECTOR or be16(header, 12) != 2:
        return None
    start = be64(header, 0x11B) * SECTOR
    return Layer(
        kind="ldm",
        extent=area.extent,
        version=f"{be16(header, 12)}.{be16(header, 14)}",
        uuid=text_at(header, 0x30, 64, "ascii"),
        data_start=start if area.is_whole and start else None,
    )


LDM = Kind(
    "ldm",
    readers=(read_ldm,),
    is_owner=True,
    is_on_floppies=True,  # its own partition has 1 MiB
)
