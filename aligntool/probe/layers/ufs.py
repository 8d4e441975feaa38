"""UFS1 and UFS2, the file systems of the BSDs and of Solaris.

In: the area of a partition or slice. Out: its layer. The superblock may lie at four places in either byte
order. Layout: FreeBSD sys/ufs/ffs/fs.h, struct fs.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be32, be64, le32, le64, text_at
from aligntool.units import KIB, Extent, is_power_of_two

PLACES = (0, 8 * KIB, 64 * KIB, 256 * KIB)
MAGIC_AT = 1372
UFS2 = 0x19540119
MAGICS = (UFS2, 0x00011954, 0x00195612, 0x00095014, 0x00612195, 0x05231994)


def read_ufs(area: Area) -> Layer | None:
    for at in PLACES:
        superblock = area.read(at, MAGIC_AT + 4)
        for number, wide in ((le32, le64), (be32, be64)):
            magic = number(superblock, MAGIC_AT)
            fragment = number(superblock, 52)
            if magic not in MAGICS or not is_power_of_two(fragment) or not 512 <= fragment <= 64 * KIB:
                continue
            fragments = wide(superblock, 1080) if magic == UFS2 else number(superblock, 36)
            claims = fragments * fragment
            identity = number(superblock, 144), number(superblock, 148)
            return Layer(
                kind="ufs",
                extent=Extent(area.start, claims or area.size),
                version="2" if magic == UFS2 else "1",
                label=text_at(superblock, 680, 32) if magic == UFS2 else None,
                uuid="{:08x}{:08x}".format(*identity) if any(identity) else None,
                data_start=area.start,
                data_unit=fragment,
                claims_size=claims or None,
            )
    return None
