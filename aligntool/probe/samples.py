"""Whether anything was ever written where an array is to lie: a few places of a drive or a partition, read.

In: a disk, a run of its bytes, and places that count more than others. Out: `Sampled`. Alone because it is the only
look that asks for data as such: everything else is looked for by its own signature, and what has none (plain dm-crypt,
a raw database, a hidden volume) is found by nothing but this.
"""

import hashlib
from collections.abc import Iterator, Sequence

from aligntool.inventory import Sampled
from aligntool.probe.loops import fresh_reader
from aligntool.probe.reader import Reader
from aligntool.units import KIB, Extent, align_down

EDGE = 128 * KIB  # at either end, read as one place
PLACE = 4 * KIB
SPREAD = 100  # places, evenly over the whole


def sample(path: str, extent: Extent, beside: Sequence[int] = ()) -> Sampled:
    """`beside`: bytes of the disk where something else than chance may have put data. The same places every time."""
    places = tuple(_places(extent, beside))
    try:
        with fresh_reader(path) as reader:
            pieces = [_read(reader, place) for place in places]
    except OSError:
        pieces = [None] * len(places)
    return Sampled(
        places=len(places),
        written=sum(piece is not None and not _is_blank(piece) for piece in pieces),
        unreadable=pieces.count(None),
        digest=hashlib.sha256(b"".join(piece or b"?" for piece in pieces)).hexdigest(),
    )


def _places(extent: Extent, beside: Sequence[int]) -> Iterator[Extent]:
    edge = min(EDGE, extent.length)
    wanted = [Extent(extent.start, edge), Extent(extent.end - edge, edge)]
    starts = [extent.start + extent.length * (2 * index + 1) // (2 * SPREAD) for index in range(SPREAD)]
    wanted += [Extent(align_down(at, PLACE), PLACE) for at in (*beside, *starts)]
    yield from dict.fromkeys(each for each in wanted if each.start >= extent.start and each.end <= extent.end)


def _read(reader: Reader, place: Extent) -> bytes | None:
    """None: the drive cannot give it."""
    try:
        found = reader.read(place.start, place.length)
    except OSError:
        return None
    return found if len(found) == place.length else None


def _is_blank(piece: bytes) -> bool:
    """As a drive answers for what was never written, or was discarded: zeros, or ones throughout."""
    blocks = (piece[at : at + PLACE] for at in range(0, len(piece), PLACE))
    return all(block.count(block[:1]) == len(block) and block[:1] in (b"\x00", b"\xff") for block in blocks)
