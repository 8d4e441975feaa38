"""The bytes of a partition that the journal keeps while the rest is copied: all by which blkid would
recognise it.

The offsets that blkid reads are in `contents.catalogue.SIGNATURES`. Heads and tails are held generously, 128
KiB at either end; in between, only the sectors in which a signature could lie.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from aligntool.contents.catalogue import SIGNATURES, kind_named
from aligntool.inventory import Layer, Partition
from aligntool.steps import SavedRanges
from aligntool.units import KIB, MIB, Extent, merged

_END = 128 * KIB
_UNKNOWN_HEAD = MIB // 2


def held_ranges(
    partition: Partition,
    length: int,
    sector_size: int,
    more: Iterable[Extent] = (),
    *,
    signatures_only: bool = False,
) -> SavedRanges:
    """Return the held ranges of a partition of `length` bytes that moves. `more`: further ranges to hold.
    `signatures_only`: only the sectors in which a signature could lie, for a small journal.

    The ranges are whole sectors of the table, sorted and disjoint. A range that crosses the end of a short
    partition is clipped; a partition shorter than head and tail is held whole.
    """
    kinds = [kind_named(name) for name in _kinds(partition.content)]
    fixed = [kind.held_ends for kind in kinds if kind.held_ends]
    head_and_tail = fixed or [(_END if kinds else _UNKNOWN_HEAD, _END)]
    ends = () if signatures_only and not fixed else _ends(head_and_tail, length)
    return SavedRanges(merged((*ends, *_signature_ranges(length), *more), Extent(0, length), sector_size))


@lru_cache(1)  # asked twice, with and without head and tail
def _signature_ranges(length: int) -> tuple[Extent, ...]:
    signatures = (signature for signature in SIGNATURES if not kind_named(signature.kind).held_ends)
    return tuple(Extent(at, signature.width) for signature in signatures for at in signature.places(length))


def _kinds(layers: Iterable[Layer]) -> Iterator[str]:
    """Yield the kinds of these layers and of those inside, which are recognised once the outer signature is
    hidden.
    """
    for layer in layers:
        yield layer.kind
        yield from _kinds(layer.inner)


def _ends(lengths: Sequence[tuple[int, int]], length: int) -> Iterator[Extent]:
    """Yield the longest head and the longest tail."""
    head, tail = (max(each) for each in zip(*lengths, strict=True))
    yield Extent(0, head)
    yield Extent(max(0, length - tail), tail)
