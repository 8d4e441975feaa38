"""What of a partition the journal keeps while the rest is copied: everything by which blkid would know it.

In: a partition's layers and its length. Out: ranges. Alone because it is a table of facts: how much is held.

Where blkid looks is in `plan.signatures`. Heads and tails are held generously, 128 KiB at either end, and of the rest
the sectors in which a signature could lie.
"""

from collections.abc import Iterable, Iterator

from aligntool.inventory import Layer, Partition
from aligntool.plan import Held
from aligntool.plan.signatures import SIGNATURES, XFS_LOG_SEARCHED, ZFS_LABEL
from aligntool.units import KIB, MIB, Extent, align_down, align_up

UNKNOWN = "unknown"
_END = 128 * KIB
_UNKNOWN_HEAD = MIB // 2
_IN_LONG_RANGES = frozenset({"zfs_member", "xfs_external_log"})


def kind_of(partition: Partition) -> str:
    """blkid's word for what lies there; "unknown" when nothing was recognised."""
    return partition.content[0].kind if partition.content else UNKNOWN


def hold(
    partition: Partition,
    length: int,
    sector_size: int,
    more: Iterable[Extent] = (),
    *,
    spots_only: bool = False,
) -> Held:
    """`length`: bytes of the partition when it moves. `more`: what is held as well.
    `spots_only`: the sectors in which a signature could lie, and no more, for a small journal.

    The ranges are whole sectors of the table, in order and apart. What lies on the boundary of a short partition is
    clipped; a partition shorter than head and tail is held whole.
    """
    kinds = set(_kinds(partition.content))
    spots = (
        Extent(at, signature.width)
        for signature in SIGNATURES
        if signature.kind not in _IN_LONG_RANGES
        for at in signature.places(length)
    )
    ends = () if spots_only and not kinds & _IN_LONG_RANGES else _ends(kinds, length)
    ranges = (*ends, *spots, *more)
    return Held(_merged(ranges, length, sector_size))


def _kinds(layers: Iterable[Layer]) -> Iterator[str]:
    """With what lies inside, which is seen once the outer is gone."""
    for layer in layers:
        yield layer.kind
        yield from _kinds(layer.inner)


def _ends(kinds: set[str], length: int) -> Iterator[Extent]:
    head, tail = _END if kinds else _UNKNOWN_HEAD, _END
    if "xfs_external_log" in kinds:
        head = XFS_LOG_SEARCHED
    if "zfs_member" in kinds:
        head, tail = 2 * ZFS_LABEL, 3 * ZFS_LABEL
    yield Extent(0, head)
    yield Extent(max(0, length - tail), tail)


def _merged(ranges: Iterable[Extent], length: int, sector_size: int) -> tuple[Extent, ...]:
    merged: list[Extent] = []
    for one in sorted(ranges):
        start = align_down(max(0, one.start), sector_size)
        end = min(align_up(one.end, sector_size), length)
        if start >= end:
            continue
        if merged and start <= merged[-1].end:
            start = merged[-1].start
            end = max(end, merged[-1].end)
            merged.pop()
        merged.append(Extent(start, end - start))
    return tuple(merged)
