"""Windows dynamic disks: the private header of the Logical Disk Manager.

In: the area of a whole disk, or of the metadata partition of a GPT dynamic disk. Out: a layer that says that
the real volumes stand in a database which no partition table shows. Layout: linux/block/partitions/ldm.c,
ldm_parse_privhead.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be16, be64, text_at

MAGIC = b"PRIVHEAD"
SECTOR = 512
MBR_PLACE = 6 * SECTOR  # on a disk with an MBR; a GPT metadata partition ends with it


def read_ldm(area: Area) -> Layer | None:
    places = (area.head[MBR_PLACE : MBR_PLACE + SECTOR], area.tail[-SECTOR:])
    header = next((place for place in places if place[:8] == MAGIC), b"")
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
