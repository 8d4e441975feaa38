"""btrfs."""

import hashlib
import re
from collections.abc import Generator, Iterator
from dataclasses import replace
from heapq import merge
from operator import attrgetter

from aligntool.contents.kind import (
    Answers,
    Kind,
    NewArray,
    OnArray,
    Read,
    Shrinker,
    Unsuitable,
    Words,
    contains_no_device,
    in_whole_blocks,
)
from aligntool.contents.signatures import magic
from aligntool.contents.used_blocks import NoMap, used_by_partclone
from aligntool.device import Borrowed, Medium
from aligntool.formats.numbers import le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import Area, checksum_problem, crc32c_inverted, xxh64
from aligntool.inventory import Layer
from aligntool.units import GIB, KIB, MIB, Extent, align_down, is_power_of_two

# The trees that place chunks are not needed for alignment: chunks start at multiples of 64 KiB of the device,
# and inside them btrfs uses its sector size. Layout: linux/include/uapi/linux/btrfs_tree.h, struct
# btrfs_super_block.


def read_btrfs(area: Area) -> Layer | None:
    superblock = area.read(64 * KIB, 4 * KIB)
    if len(superblock) < 4 * KIB or superblock[64:72] != b"_BHRfS_M":
        return None
    sector = le32(superblock, 144)
    if not is_power_of_two(sector) or not 512 <= sector <= 64 * KIB:
        return None
    claims = le64(superblock, 209)  # this device's share (dev_item.total_bytes), not the sum over all devices
    return replace(
        area.layer("btrfs", claims, sector),
        label=text_at(superblock, 299, 256),
        uuid=uuid_at(superblock, 32),
        problems=_btrfs_problems(superblock),
        unclean="needs its log tree replayed (log root set)" if le64(superblock, 96) else None,
    )


def _btrfs_problems(superblock: bytes) -> tuple[str, ...]:
    covered = superblock[32:]
    stored = superblock[:32]
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


# The conditions under which a map of a btrfs is accepted. partclone.btrfs 0.3.23 lost the second copy of data
# with the DUP profile (a copy of only the mapped runs was damaged): a map is accepted only if data has the
# profile single.

_SUPERBLOCKS = (64 * KIB, 64 * MIB, 256 * GIB)  # btrfs_sb_offset(), linux/fs/btrfs/disk-io.h
_ROOM = 64 * KIB  # kept for each of them
# in struct btrfs_super_block
_BYTES_USED = 120
_NUM_DEVICES = 136
_PATIENCE_S = 300.0

_CHUNK = r"\blength (\d+) .* type (\S+)"
_STRIPE = r"\bstripe \d+ devid \d+ offset (\d+)"
_PROFILES = {"DATA", "METADATA", "single"}


def _check_devices(medium: Medium) -> None:
    """Raise NoMap for a file system on several devices: the used blocks of one are known only from all of
    them.
    """
    devices = le64(medium.read(_SUPERBLOCKS[0] + _NUM_DEVICES, 8), 0)
    if devices != 1:
        raise NoMap(f"this btrfs has {devices} devices")


def _tree_chunks(device: Borrowed) -> tuple[Extent, ...]:
    """Return the chunks of the trees, which also contain older trees.

    partclone maps only the current trees; `mount -o usebackuproot` falls back to older ones that
    are not yet overwritten.

    Raises NoMap if data has any other profile than single, or the output is not understood.
    """
    words = ("btrfs", "inspect-internal", "dump-tree", "-t", "chunk", device.name)
    chunks = []
    length = 0
    with device.lines_of(*words, title="btrfs inspect-internal", limit_s=_PATIENCE_S) as lines:
        for line in lines:
            chunk = re.search(_CHUNK, line)
            if chunk:
                kinds = set(chunk[2].split("|"))
                if "DATA" in kinds and kinds - _PROFILES:
                    raise NoMap(
                        f"this btrfs stores data as {chunk[2]}, and partclone maps only one copy of it"
                    )
                length = int(chunk[1]) if kinds & {"METADATA", "SYSTEM"} else 0
            elif (stripe := re.search(_STRIPE, line)) and length:
                chunks.append(Extent(int(stripe[1]), length))
    if not chunks:
        raise NoMap("btrfs inspect-internal lists no metadata chunk")
    return tuple(chunks)


_PARTCLONE = "partclone.btrfs"


def _used_blocks(medium: Medium, layer: Layer, shrunk: bool) -> Generator[Extent]:
    """Yield the runs that partclone maps, chunks of trees, and superblocks. Raises NoMap if partclone maps
    fewer bytes than the superblock counts.
    """
    with medium.device() as device:
        _check_devices(medium)
        least = le64(medium.read(_SUPERBLOCKS[0] + _BYTES_USED, 8), 0)
        rooms = (Extent(at, _ROOM) for at in _SUPERBLOCKS if at + _ROOM <= (layer.claims_size or 0))
        more = sorted((*_tree_chunks(device), *rooms))
        yield from merge(used_by_partclone(_PARTCLONE, device, layer, least), more, key=attrgetter("start"))


def _options(array: NewArray) -> Iterator[str]:
    yield from ("-f", "-d", "single", "-m", "dup", "-U", array.uuid, "-L", array.name)
    if not array.discards:
        yield "--nodiscard"


def _notes(array: NewArray) -> Iterator[str]:
    yield "btrfs has no stripe settings; on md its checksums detect damage but cannot repair data"


def shrunk_length(length: int) -> int:
    """Return the length to which a btrfs is shrunk that may have `length` bytes: Linux rounds down to its
    sectors, of 64 KiB at most (btrfs_ioctl_resize() in the kernel's fs/btrfs/ioctl.c).
    """
    return align_down(length, 64 * KIB)


def _shrink(device: str, folder: str, length: int) -> tuple[Words, ...]:
    """Return the commands. A btrfs must be mounted to be shrunk, where no other process sees the mount and no
    paused balance goes on: the lines after `unshare` are the script of its shell.
    """
    mount = ("mount", "-t", "btrfs", "-o", "skip_balance", device, folder)
    resize = ("btrfs", "filesystem", "resize", str(shrunk_length(length)), folder)
    return ("unshare", "--mount", "sh", "-e"), mount, resize, ("umount", folder)


def _unsuitable(read: Read) -> Unsuitable | None:
    """Return why it cannot be shrunk: of several devices, `btrfs filesystem resize` would resize that with id
    1, and Linux mounts a seed read-only (uapi/linux/btrfs_tree.h, struct btrfs_super_block).
    """
    superblock = read(64 * KIB, 4 * KIB)
    devices = le64(superblock, 0x88)
    number = le64(superblock, 0xC9)
    if (devices, number) != (1, 1):
        text = f"is device {number} of a btrfs with {devices} devices; aligntool does not choose one"
        return Unsuitable(text, "btrfs")
    if superblock[0x38 + 4] & 1:  # BTRFS_SUPER_FLAG_SEEDING, 1 << 32
        hint = "if no other btrfs was made from it: {}; then plan again"
        return Unsuitable("is a btrfs seed, which is read-only", "btrfstune", hint, takes_raw_copy=True)
    return None


# It has no check: only its superblock is read.
_SHRINKER = Shrinker(check=lambda device, length: (), shrink=_shrink, unsuitable=_unsuitable, is_mounted=True)
# One of several devices is missing; a feature that it does not know.
_ANSWERS = Answers(
    unable=r"warning, device \d+ is missing$|couldn't open (?:RDWR )?because of unsupported option features "
)

_LEAST = 109 * MIB  # mkfs.btrfs, for one device: 114294784

BTRFS = Kind(
    "btrfs",
    readers=(read_btrfs,),
    signatures=(magic("btrfs", b"_BHRfS_M", heads=(64 * KIB + 64, 64)),),
    checker=("btrfs", "check", "--readonly"),
    answers=_ANSWERS,
    maker="mkfs.btrfs",
    mount_options=("noatime",),
    on_array=OnArray(options=_options, notes=_notes, least_size=lambda array: _LEAST),
    map_source=_PARTCLONE,
    used_blocks=_used_blocks,
    shrinker=_SHRINKER,
    least_size=256 * MIB,  # btrfs_ioctl_resize() in the kernel's fs/btrfs/ioctl.c
    is_mountable=True,
    works_anywhere=True,
    leaves_first_sector=True,
    smallest_unit=in_whole_blocks,
    is_seen_through=contains_no_device,
    starts_extlinux=True,
    states_length=True,
)
