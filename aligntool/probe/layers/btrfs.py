"""btrfs: the first superblock, at 64 KiB.

In: the area of one of its devices. Out: its layer. Chunks are placed by trees that nobody needs for alignment:
they are multiples of 64 KiB from the device's start, and inside them btrfs works in its sector size. Layout:
linux/include/uapi/linux/btrfs_tree.h, struct btrfs_super_block.
"""

import hashlib

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, checksum_problem, le16, le32, le64, text_at, uuid_at
from aligntool.probe.layers.checksums import crc32c_inverted, xxh64
from aligntool.units import KIB, Extent, is_power_of_two

AT = 64 * KIB
SIZE = 4 * KIB
MAGIC = b"_BHRfS_M"


def read_btrfs(area: Area) -> Layer | None:
    superblock = area.read(AT, SIZE)
    if len(superblock) < SIZE or superblock[64:72] != MAGIC:
        return None
    sector = le32(superblock, 144)
    if not is_power_of_two(sector) or not 512 <= sector <= 64 * KIB:
        return None
    claims = le64(superblock, 209)  # this device's share (dev_item.total_bytes), not the sum over all devices
    return Layer(
        kind="btrfs",
        extent=Extent(area.start, claims),
        label=text_at(superblock, 299, 256),
        uuid=uuid_at(superblock, 32),
        data_start=area.start,
        data_unit=sector,
        claims_size=claims,
        problems=_problems(superblock),
        unclean="needs its log tree replayed (log root set)" if le64(superblock, 96) else None,
    )


def _problems(superblock: bytes) -> tuple[str, ...]:
    covered, stored = superblock[32:], superblock[:32]
    of = "the btrfs superblock"
    match le16(superblock, 196):
        case 0:  # BTRFS_CSUM_TYPE_CRC32, then _XXHASH, _SHA256, _BLAKE2
            return checksum_problem(of, le32(stored, 0), crc32c_inverted(covered))
        case 1:
            return checksum_problem(of, le64(stored, 0), xxh64(covered))
        case 2:
            return checksum_problem(of, stored.hex(), hashlib.sha256(covered).hexdigest())
        case 3:
            return checksum_problem(of, stored.hex(), hashlib.blake2b(covered, digest_size=32).hexdigest())
        case unknown:
            return (f"the btrfs superblock's checksum type {unknown} is not known",)
