"""Whether the log of an XFS was closed by an unmount.

In: the area of the file system and its superblock. Out: a sentence when the log must be replayed first. Alone because
nothing but the log itself says it: every 512-byte block of it carries the number of the round in which it was written,
the head is where that number changes, and before the head of a clean log stands one record with one operation, the
unmount. Layout: linux/fs/xfs/libxfs/xfs_log_format.h; the search: xlog_find_head() and xlog_check_unmount_rec() in
linux/fs/xfs/xfs_log_recover.c.
"""

from aligntool.probe.layers.area import Area, be32, be64
from aligntool.units import KIB

BLOCK = 512  # the log counts in these whatever the sector size
MAGIC = b"\xfe\xed\xba\xbe"
CYCLE_DATA = 32 * KIB  # the data whose cycle numbers one block of a header holds
MOST_HEADERS = 8  # for the largest record, 256 KiB
LOOK_BACK = 256 * KIB // BLOCK + MOST_HEADERS  # blocks of the largest record with its headers
UNMOUNT = 0x20  # XLOG_UNMOUNT_TRANS, in oh_flags of an operation

NOT_CLOSED = "needs its log replayed (the last record is no unmount)"
NO_RECORD = "needs its log replayed (no record where it ends)"


def read_log(area: Area, superblock: bytes) -> str | None:
    """None: it was unmounted, or the log is elsewhere, cut off or was never written, and nobody can tell."""
    block = be32(superblock, 4)
    start = _byte(superblock, be64(superblock, 48), block)
    count = be32(superblock, 96) * block // BLOCK
    if not start or count <= LOOK_BACK:
        return None
    first, last = _cycle(area, start), _cycle(area, start + (count - 1) * BLOCK)
    if not first:
        return None
    head = 0 if first == last else _head(area, start, count, first)
    before = _before(area, start, count, head)
    at = before.rfind(MAGIC)
    while at > 0 and at % BLOCK:  # the magic in the middle of a block is data
        at = before.rfind(MAGIC, 0, at)
    if at < 0 or at % BLOCK:
        return NO_RECORD
    return None if _is_unmount(before[at:]) else NOT_CLOSED


def _byte(superblock: bytes, number: int, block: int) -> int:
    """A block number has the allocation group in its upper bits; 0 for an external log."""
    shift = superblock[124]
    return ((number >> shift) * be32(superblock, 84) + (number & (1 << shift) - 1)) * block


def _cycle(area: Area, at: int) -> int:
    """The round in which a block was written; a record's header has it behind the magic."""
    data = area.read(at, 8)
    return be32(data, 4 if data[:4] == MAGIC else 0)


def _head(area: Area, start: int, count: int, first: int) -> int:
    """The first block that the round of the first block has not reached."""
    low, high = 0, count - 1
    while low + 1 < high:
        middle = (low + high) // 2
        if _cycle(area, start + middle * BLOCK) == first:
            low = middle
        else:
            high = middle
    return high


def _before(area: Area, start: int, count: int, head: int) -> bytes:
    """The blocks before the head, across the end of the log where it begins anew."""
    here = min(head, LOOK_BACK)
    wrapped = LOOK_BACK - here
    data = area.read(start + (head - here) * BLOCK, here * BLOCK)
    return area.read(start + (count - wrapped) * BLOCK, wrapped * BLOCK) + data if wrapped else data


def _is_unmount(record: bytes) -> bool:
    """Whether this is one record up to the end of `record`, and that of an unmount."""
    version, length, operations, size = (be32(record, at) for at in (8, 12, 40, 320))
    headers = -(-size // CYCLE_DATA) if version & 2 and size > CYCLE_DATA else 1
    whole = headers * BLOCK + -(-length // BLOCK) * BLOCK == len(record)
    operation = record[headers * BLOCK : headers * BLOCK + 12]
    return whole and operations == 1 and len(operation) == 12 and bool(operation[9] & UNMOUNT)
