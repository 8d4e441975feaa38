"""Where signatures of what lay on a drive before may be: at either end of what is on it, and of what will be.

In: extents. Out: the runs of bytes that are zeroed. Alone because a plan shows them and applying zeroes them, of new
tables and of the members of arrays alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from aligntool.units import MIB, Extent, align_down, align_up

HEAD = 5 * MIB
TAIL = 2 * MIB


@dataclass(frozen=True, slots=True)
class DataArea:
    """Where on each member an array's data will lie: `offset` bytes from its start, `length` long; None: to its end."""

    offset: int = 0
    length: int | None = None

    def of(self, member: Extent) -> Extent:
        room = max(member.length - self.offset, 0)
        return Extent(member.start + self.offset, room if self.length is None else min(self.length, room))


def wiped_ends(things: Iterable[Extent], within: Extent, sector_size: int) -> tuple[Extent, ...]:
    """Whole sectors, none outside `within`, sorted, and no two of them overlap. All in bytes, `sector_size` as well.

    As far as libblkid looks from either end: LUKS2 has its second header 4 MiB in at most, bcachefs and VMFS theirs
    2 MiB in, Promise's RAID its superblock 3087 sectors of 512 bytes before the end (luks.c, bcache.c, vmfs.c,
    promise_raid.c). ZFS has 512 KiB at either end, md 0.90 up to 128 KiB from the end, LDM the last MiB.
    """
    ends = []
    for thing in things:
        start, end = max(thing.start, within.start), min(thing.end, within.end)
        ends += [(start, min(start + HEAD, end)), (max(end - TAIL, start), end)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(each for each in ends if each[0] < each[1]):
        start = max(align_down(first, sector_size), within.start)
        end = min(align_up(last, sector_size), within.end)
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(Extent(start, end - start) for start, end in merged)
