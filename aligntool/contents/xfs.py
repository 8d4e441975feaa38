"""XFS, and external XFS logs."""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from aligntool.contents.kind import (
    Answers,
    Kind,
    NewArray,
    OnArray,
    Unit,
    UnitOf,
    contains_no_device,
    unit_of,
)
from aligntool.contents.signatures import UNIT, Signature, magic
from aligntool.contents.used_blocks import NoMap, used_between
from aligntool.device import Medium
from aligntool.formats.numbers import be16, be32, be64, le32, text_at, uuid_at
from aligntool.formats.reader import Area, Reader, checksum_problem, crc32c_inverted
from aligntool.inventory import Layer
from aligntool.units import GIB, KIB, MIB, Extent, format_size

# Whether the log of an XFS was closed by an unmount.
#
# Only the log itself shows it: each of its 512-byte blocks has the number of the cycle in which it was
# written, the head is where that number changes, and the last record before the head of a clean log has one
# operation, the unmount. Layout: linux/fs/xfs/libxfs/xfs_log_format.h; the search: xlog_find_head() and
# xlog_check_unmount_rec() in linux/fs/xfs/xfs_log_recover.c.

BLOCK = 512  # the unit of the log, whatever the sector size
XFS_LOG_SEARCHED = 256 * KIB  # by libblkid
XFS_LOG_MAGIC = b"\xfe\xed\xba\xbe"
CYCLE_DATA = 32 * KIB  # data bytes whose cycle numbers fit into one header block
LOOK_BACK = 256 * KIB // BLOCK + 8  # blocks of the largest record and its headers
UNMOUNT = 0x20  # XLOG_UNMOUNT_TRANS, in oh_flags of an operation


def xfs_log_unclean(area: Area, superblock: bytes) -> str | None:
    """Return why the file system is not clean. None: it was unmounted, or the state is unknown, because the
    log is external, truncated or unwritten.
    """
    block = be32(superblock, 4)
    number = be64(superblock, 48)
    shift = superblock[124]
    # A block number has the allocation group in its upper bits; that of an external log is 0.
    start = ((number >> shift) * be32(superblock, 84) + (number & (1 << shift) - 1)) * block
    count = be32(superblock, 96) * block // BLOCK
    if not start or count <= LOOK_BACK:
        return None
    first, last = _cycle(area, start), _cycle(area, start + (count - 1) * BLOCK)
    if not first:
        return None
    head = 0  # the first block with another cycle than the first block
    if first != last:
        head = bisect_left(range(count - 1), True, key=lambda at: _cycle(area, start + at * BLOCK) != first)
    before = _blocks_before(area, start, count, head)
    at = before.rfind(XFS_LOG_MAGIC)
    while at > 0 and at % BLOCK:  # a magic in the middle of a block is data
        at = before.rfind(XFS_LOG_MAGIC, 0, at)
    if at < 0 or at % BLOCK:
        return "needs its log replayed (no record where it ends)"
    return None if _is_unmount(before[at:]) else "needs its log replayed (the last record is not an unmount)"


def _cycle(area: Area, at: int) -> int:
    """Return the cycle in which a block was written; in a record header it follows the magic."""
    data = area.read(at, 8)
    return be32(data, 4 if data[:4] == XFS_LOG_MAGIC else 0)


def _blocks_before(area: Area, start: int, count: int, head: int) -> bytes:
    """Return the last LOOK_BACK blocks before the head; before the start of the log come the blocks at its
    end.
    """
    direct = min(head, LOOK_BACK)
    wrapped = LOOK_BACK - direct
    data = area.read(start + (head - direct) * BLOCK, direct * BLOCK)
    return area.read(start + (count - wrapped) * BLOCK, wrapped * BLOCK) + data if wrapped else data


def _is_unmount(record: bytes) -> bool:
    """Return whether the bytes are exactly one record, with the unmount as its only operation."""
    version, length, operations, size = (be32(record, at) for at in (8, 12, 40, 320))
    headers = -(-size // CYCLE_DATA) if version & 2 and size > CYCLE_DATA else 1
    whole = headers * BLOCK + -(-length // BLOCK) * BLOCK == len(record)
    operation = record[headers * BLOCK : headers * BLOCK + 12]
    return whole and operations == 1 and len(operation) == 12 and bool(operation[9] & UNMOUNT)


# XFS, and external XFS logs.
#
# Everything but the checksum is big-endian. Layout: linux/fs/xfs/libxfs/xfs_format.h, struct xfs_dsb;
# xfs_log_format.h, struct xlog_rec_header.

XFS_MAGIC = b"XFSB"
INCOMPAT_ZONED = 0x200  # Linux 6.15; sb_rtstart


def read_xfs(area: Area) -> Layer | None:
    superblock = area.head[: 32 * 1024]
    if superblock[:4] != XFS_MAGIC or len(superblock) < 512 or not _is_consistent(superblock):
        return None
    block = be32(superblock, 4)
    claims = None if _has_zones(superblock) else be64(superblock, 8) * block
    return replace(
        area.layer("xfs", claims, block),
        label=text_at(superblock, 108, 12),
        uuid=uuid_at(superblock, 32),
        stripe_unit=be32(superblock, 184) * block,
        stripe_width=be32(superblock, 188) * block,
        problems=_xfs_problems(superblock),
        unclean=xfs_log_unclean(area, superblock),
    )


def _has_zones(superblock: bytes) -> bool:
    """Return whether a section of zones with the data of files may follow the blocks that the superblock
    counts.
    """
    return be16(superblock, 100) & 0xF == 5 and bool(be32(superblock, 216) & INCOMPAT_ZONED)


def _is_consistent(superblock: bytes) -> bool:
    """Return whether the sizes match their logarithms, and the groups match the blocks, as mount and blkid
    require.
    """
    # of a block, a sector, an inode
    sizes = (be32(superblock, 4), be16(superblock, 102), be16(superblock, 104))
    logarithms = superblock[120:123]
    known = (range(9, 17), range(9, 16), range(8, 12))
    blocks = be64(superblock, 8)
    group = be32(superblock, 84)
    groups = be32(superblock, 88)
    fit = all(
        log in logs and size == 1 << log for size, log, logs in zip(sizes, logarithms, known, strict=True)
    )
    return fit and groups > 0 and (groups - 1) * group < blocks <= groups * group


def _xfs_problems(superblock: bytes) -> tuple[str, ...]:
    if be16(superblock, 100) & 0xF != 5:
        return ()
    sector = superblock[: be16(superblock, 102)]
    blanked = sector[:224] + bytes(4) + sector[228:]
    return checksum_problem("the XFS superblock", le32(sector, 224), crc32c_inverted(blanked))


def read_xfs_log(area: Area) -> Layer | None:
    """Return an external log. It has no superblock: search its first 64 KiB for a record header."""
    if area.head[:4] == XFS_MAGIC:
        return None  # any records belong to its internal log
    for at in range(0, min(len(area.head), 64 * 1024), 512):
        if area.head[at : at + 4] != XFS_LOG_MAGIC:
            continue
        version = be32(area.head, at + 8)
        length = be32(area.head, at + 12)
        if version in (1, 2) and 0 < length < 1 << 31 and be32(area.head, at + 300) in (1, 2, 3):  # XLOG_FMT_
            return Layer(kind="xfs_external_log", extent=area.extent)
    return None


# Used blocks of XFS, from the free ones that xfs_db lists in each allocation group. It keeps nothing in
# memory: partclone.xfs has a bit for each block, 512 MiB for 16 TiB, and searches the tree for every block.

_XFS_DB = "xfs_db"
_LOG_AT = 48  # sb_logstart in struct xfs_dsb
_GROUP_AT = 84  # sb_agblocks
_FREE_AT = 144  # sb_fdblocks


def _used_blocks(medium: Medium, layer: Layer, shrunk: bool) -> Generator[Extent]:
    with medium.device() as device:
        if not be64(medium.read(_LOG_AT, 8), 0):  # xfs_db does not replay it
            raise NoMap("its log is external, and may hold changes")
        group = be32(medium.read(_GROUP_AT, 4), 0)
        expected = be64(medium.read(_FREE_AT, 8), 0)
        block = layer.data_unit or 0
        count = (layer.claims_size or 0) // block
        with device.lines_of(_XFS_DB, "-r", "-c", "freesp -d", device.name) as lines:
            listed = yield from used_between(_free_in_freesp(lines, group), count, block, _XFS_DB)
        if listed > expected:
            raise NoMap(f"{_XFS_DB} lists {listed} free blocks, the superblock counts {expected}")


def _free_in_freesp(report: Iterable[str], group: int) -> Iterator[tuple[int, int]]:
    """Yield the free runs of blocks, up to the histogram at the end. Raises NoMap for any other line.

    A single block counts as used: the blocks of a group's free list come first, unordered (db/freesp.c,
    scan_ag).
    """
    lines = (line.split() for line in report)
    if next(lines, None) != ["agno", "agbno", "len"]:
        raise NoMap(f"{_XFS_DB} lists no free blocks")
    for words in takewhile(lambda words: words[:1] != ["from"], lines):
        if len(words) != 3 or not all(word.isdecimal() for word in words):
            raise NoMap(f"{_XFS_DB} prints {' '.join(words)!r}, which is not a run of blocks")
        number, first, count = map(int, words)
        if first + count > group:
            raise NoMap(f"{_XFS_DB} lists blocks beyond the end of group {number}")
        if count > 1:
            yield number * group + first, number * group + first + count


_SECTORS = (102, 194)  # struct xfs_dsb: sb_sectsize and sb_logsectsize


def _smallest_unit(reader: Reader, layer: Layer, unit_of_inner: UnitOf) -> Unit:
    head = reader.read(layer.extent.start, 512)
    return unit_of(min((size for at in _SECTORS if (size := be16(head, at))), default=None))


# On an array. mkfs.xfs takes stripes in bytes and data members.

_LOG_UNIT = 256 * KIB  # the maximum; above it mkfs.xfs falls back to 32KiB (xfs_mkfs.c, calc_stripe_factors)
_LOG_FALLBACK = 32 * KIB
_INODE = 512  # the default of mkfs.xfs with checksums
_LONGEST_LABEL = 12  # bytes
_LOG_SIZES = (64 * MIB, 2038 * MIB)  # xfs_mkfs.c, XFS_MIN_REALISTIC_LOG_BLOCKS; xfs_fs.h, XFS_MAX_LOG_BYTES
# xfs_mkfs.c, validate_supported: 300 MiB and a log of 64 MiB. With a stripe there are eight allocation groups
# or more, the log has to lie in one of them, and mkfs.xfs may shorten each by a stripe unit.
_LEAST = 300 * MIB
_GROUPS = 8
_GROUP = 64 * MIB + 256 * KIB  # the log, and what precedes it
# Stripe units for its allocation groups; with fewer mkfs.xfs fails where a unit is 64 MiB or more.
_UNITS = 16
_WIDTH = 2 * GIB  # xfs_validate_stripe_geometry: the stripe is shorter than this
# struct xfs_dsb: 1 until mkfs.xfs has written everything else; it cannot be mounted before
_IN_PROGRESS = 126


def _log_unit(chunk: int) -> int:
    """Return the log stripe unit in bytes, to which XFS pads its log writes."""
    return chunk if chunk <= _LOG_UNIT else _LOG_FALLBACK


def _options(array: NewArray) -> Iterator[str]:
    """Yield the options of mkfs.xfs(8), which would refuse if it found the content of a former array."""
    yield from ("-f", "-m", f"uuid={array.uuid}", "-L", array.name[:_LONGEST_LABEL])
    if not array.discards:
        yield "-K"
    yield from ("-b", f"size={array.block}", "-i", f"size={array.inode_size or _INODE}")
    # The default is the sectors of the device, and with smaller ones it can never be mounted on larger.
    if array.sector:
        yield from ("-s", f"size={array.sector}")
    log = [f"size={array.log_size}"] if array.log_size else []
    if array.chunk:
        yield from ("-d", f"su={array.chunk},sw={array.data}")
        log.append(f"su={_log_unit(array.chunk)}")
    else:  # otherwise mkfs.xfs uses the I/O sizes that md passes on from its members, which are not stripes
        yield from ("-d", "noalign")
    if log:
        yield from ("-l", ",".join(log))


def _notes(array: NewArray) -> Iterator[str]:
    chunk = array.chunk
    if array.sector:
        later = "so that the drives, which all offer such blocks, can be given them later (raid reformat)"
        yield f"XFS: sectors of {format_size(array.sector)}, {later}"
    if not chunk:
        yield (
            "XFS: no stripe unit (noalign): a RAID1 has no chunk, and mkfs.xfs would use the drives' I/O"
            " sizes"
        )
        return
    width = f"stripe width {array.data} units (data members)"
    yield f"XFS: stripe unit {format_size(chunk)} (the chunk), {width}"
    if _log_unit(chunk) != chunk:
        most = f"its maximum is {format_size(_LOG_UNIT)}, less than the chunk"
        yield f"XFS: log stripe unit {format_size(_log_unit(chunk))}, because {most}"


def _option_notes(array: NewArray) -> Iterator[str]:
    if array.log_size:
        yield (
            f"XFS: a log of {format_size(array.log_size)} as requested; by default it grows with the file"
            " system"
        )
    if array.inode_size:
        yield f"XFS: inodes of {array.inode_size}B as requested; the default of mkfs.xfs is {_INODE}B"


def _least_size(array: NewArray) -> int:
    return max(_GROUPS * (_GROUP + array.chunk), _UNITS * array.chunk) if array.chunk else _LEAST


def _chunk_problem(array: NewArray) -> str:
    if array.chunk * array.data < _WIDTH:
        return ""
    wide = f"a stripe of {array.data} times {format_size(array.chunk)}"
    return f"{wide} is too wide for xfs, which requires less than {format_size(_WIDTH)}"


def _sizes_in(head: bytes) -> tuple[int | None, int | None]:
    """Return sb_inodesize and the bytes of sb_logblocks."""
    if not head.startswith(XFS_MAGIC) or len(head) < 512:
        return None, None
    return be16(head, 104), be32(head, 96) * be32(head, 4)


def _was_never_mounted(head: bytes) -> bool:
    return head.startswith(XFS_MAGIC) and head[_IN_PROGRESS] == 1


_ON_ARRAY = OnArray(
    options=_options,
    notes=_notes,
    option_notes=_option_notes,
    inode_sizes=lambda block: (512, min(block // 2, 2 * KIB)),
    log_sizes=_LOG_SIZES,
    least_size=_least_size,
    chunk_problem=_chunk_problem,
    sizes_in=_sizes_in,
    was_never_mounted=_was_never_mounted,
)

# xfs_repair 6.1.0 cannot check it if the log or the realtime data is on another device, nor a small XFS of
# old, which has one allocation group and so no second superblock, nor a feature that it does not know.
_ANSWERS = Answers(
    unable=(
        r"fatal error -- This filesystem has an external log\.|xfs_repair: filesystem has a realtime"
        r" subvolume$|Only one AG detected - cannot validate filesystem geometry\.|Found unsupported"
        r" filesystem features\."
    )
)

XFS = Kind(
    "xfs",
    readers=(read_xfs,),
    signatures=(magic("xfs", b"XFSB", heads=(0,)),),
    checker=("xfs_repair", "-n"),
    answers=_ANSWERS,
    recreator="mkfs.xfs",
    maker="mkfs.xfs",
    mount_options=("noatime",),
    on_array=_ON_ARRAY,
    map_source=_XFS_DB,
    used_blocks=_used_blocks,
    why_not_shrinkable="XFS cannot be shrunk (xfs_growfs(8)); copy its files to another disk",
    is_mountable=True,
    works_anywhere=True,
    smallest_unit=_smallest_unit,
    is_seen_through=contains_no_device,
    starts_extlinux=True,
    states_length=True,
)
EXTERNAL_LOG = Kind(
    "xfs_external_log",
    readers=(read_xfs_log,),
    signatures=(
        Signature(
            "xfs_external_log",
            rb"\xfe\xed\xba\xbe.{4}\0\0\0[\x01-\x03]",
            12,
            tuple(range(0, XFS_LOG_SEARCHED, UNIT)),
        ),
    ),
    held_ends=(XFS_LOG_SEARCHED, 128 * KIB),
    is_seen_through=contains_no_device,
)
