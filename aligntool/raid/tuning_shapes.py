"""What a sweep over chunks measures: the loads of each workload, the chunks that are tried, and in which order.

In: a workload, what a chunk has to fit, what was asked for. Out: loads, chunks, cells. Alone because what is concluded
is only as good as what is compared; docs/raid.md, "Measuring the chunk", argues for each choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aligntool.raid.chunks import HALF_MIB, LARGEST, Stripes, least_chunk, recommend_chunk
from aligntool.units import GIB, KIB, MIB, align_down, format_size

DEFAULT_CHUNK = HALF_MIB  # mdadm's own (mdadm.h, DEFAULT_CHUNK)
SPAN_OF_MEMBER = 4 * GIB  # of each member, unless the user says otherwise
_STRIPED = (64 * KIB, 128 * KIB, 256 * KIB, HALF_MIB, MIB)
_PARITY = (32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, HALF_MIB)


@dataclass(frozen=True, slots=True)
class Shape:
    """One load. `pattern` is fio's word for its option rw; `sync_every`: fsync after so many writes, 0 for never."""

    pattern: str
    block: int  # bytes
    depth: int
    threads: int = 1
    read_share: int = 100  # per cent, of a mixed pattern only
    sync_every: int = 0

    @property
    def name(self) -> str:
        """ "randrw 16KiB QD16, 70 % reads"."""
        words = f"{self.pattern} {format_size(self.block)} QD{self.depth}"
        words += f" x{self.threads}" if self.threads > 1 else ""
        words += f", {self.read_share} % reads" if self.pattern == "randrw" else ""
        return words + (", synced" if self.sync_every else "")


def shapes_of(workload: str, database_page: int) -> tuple[Shape, ...]:
    """The loads that stand for a workload; all of them count alike."""
    page = database_page
    loads = {
        "general": (
            Shape("read", MIB, 8),
            Shape("write", MIB, 8),
            Shape("randrw", 16 * KIB, 16, read_share=70),
        ),
        "boot": (Shape("randread", 4 * KIB, 1), Shape("randwrite", 4 * KIB, 1)),
        "database": (
            Shape("randrw", page, 16, read_share=70),
            Shape("randwrite", page, 1, threads=4, sync_every=1),
        ),
        "sequential": (Shape("read", MIB, 8), Shape("write", MIB, 8), Shape("read", MIB, 1)),
        "lsm": (Shape("write", MIB, 4), Shape("read", MIB, 4), Shape("randread", 16 * KIB, 32)),
        "vm": (
            Shape("randrw", 4 * KIB, 32, read_share=70),
            Shape("randrw", 64 * KIB, 8, read_share=70),
        ),
    }
    return loads[workload]


def drive_shapes() -> tuple[Shape, ...]:
    """What each drive is asked to do alone, for the ceiling: large requests in order, written before they are read."""
    return Shape("write", MIB, 8), Shape("read", MIB, 8)


def sweep_chunks(stripes: Stripes, asked: Sequence[int] = ()) -> tuple[int, ...]:
    """Those to try, ascending: what was asked for, else a usual range; always what aligntool recommends, and, unless
    something was asked for, mdadm's own.

    Nothing below the members' page or unit is tried by itself: it would wear the drives to show what is known.
    """
    usual = _PARITY if stripes.level.parity else _STRIPED
    floor = least_chunk(stripes)
    wanted = set(asked) or {size for size in (*usual, DEFAULT_CHUNK) if size >= floor}
    recommended = recommend_chunk(stripes).size
    return tuple(sorted(wanted | ({recommended} if recommended else set())))


def sweep_order(chunks: Sequence[int], repeats: int) -> tuple[tuple[int, int], ...]:
    """Cells (round, chunk): A B C, C B A, A B C ... so that what drifts, drifts over all of them alike."""
    return tuple(
        (number, chunk)
        for number in range(repeats)
        for chunk in (chunks if number % 2 == 0 else chunks[::-1])
    )


def span_of(size: int, data: int, asked: int | None) -> int:
    """Bytes of the array that the loads stay in: what was asked for, else 4 GiB of each data member, and never more
    than there are. A multiple of the largest chunk."""
    return align_down(min(asked or SPAN_OF_MEMBER * data, size), LARGEST)
