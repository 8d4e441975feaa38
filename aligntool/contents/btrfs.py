"""btrfs."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from aligntool.contents.kind import Kind, NewArray, OnArray, contains_no_device, in_whole_blocks
from aligntool.contents.signatures import magic
from aligntool.formats.numbers import le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import Area, checksum_problem, crc32c_inverted, xxh64
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, is_power_of_two

# The trees that place chunks are not needed for alignment: chunks start at multiples of 64 KiB of the device, and
# inside them btrfs uses its sector size. Layout: linux/include/uapi/linux/btrfs_tree.h, struct btrfs_super_block.


def read_btrfs(area: Area) -> Layer | None:
    superblock = area.read(64 * KIB, 4 * KIB)
    if len(superblock) < 4 * KIB or superblock[64:72] != b"_BHRfS_M":
        return None
    sector = le32(superblock, 144)
    if not is_power_of_two(sector) or not 512 <= sector <= 64 * KIB:
        return None
    claims = le64(superblock, 209)  # this device's share (dev_item.total_bytes), not the sum over all devices
    return replace(
        area.layer("btrfs", claims, sector), label=text_at(superblock, 299, 256), uuid=uuid_at(superblock, 32),
        problems=_btrfs_problems(superblock),
        unclean="needs its log tree replayed (log root set)" if le64(superblock, 96) else None,
    )  # fmt: skip


def _btrfs_problems(superblock: bytes) -> tuple[str, ...]:
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


def _options(array: NewArray) -> Iterator[str]:
    yield from ("-f", "-d", "single", "-m", "dup", "-U", array.uuid, "-L", array.name)


def _notes(array: NewArray) -> Iterator[str]:
    yield "btrfs has no stripe settings; on md its checksums detect damage but cannot repair data"


_LEAST = 109 * MIB  # mkfs.btrfs, for one device: 114294784

BTRFS = Kind(
    "btrfs",
    readers=(read_btrfs,),
    signatures=(magic("btrfs", b"_BHRfS_M", heads=(64 * KIB + 64, 64)),),
    checker=("btrfs", "check", "--readonly"),
    maker="mkfs.btrfs",
    mount_options=("noatime",),
    on_array=OnArray(options=_options, notes=_notes, least_size=lambda array: _LEAST),
    map_source="partclone.btrfs",
    shrinkable=True,
    least_size=256 * MIB,  # btrfs_ioctl_resize() in the kernel's fs/btrfs/ioctl.c
    is_mountable=True,
    works_anywhere=True,
    leaves_first_sector=True,
    smallest_unit=in_whole_blocks,
    is_seen_through=contains_no_device,
    starts_extlinux=True,
)
