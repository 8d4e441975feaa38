"""The moves that every content has to survive, named after sectors: its start and its target.

For a kind of content it returns rows for a disk, the options for aligntool and the expected places. By default every
kind makes two moves, chosen so that every move is made by several kinds; ALIGNTOOL_THOROUGH=1 makes all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aligntool.units import GIB, KIB, MIB, format_size
from tests.mover.disks import Row
from tests.mover.filesystems import LINUX, SECTOR, Kind
from tests.thorough import THOROUGH


@dataclass(frozen=True)
class Shift:
    """`free` sectors remain behind the partition for the journal; `grain` is None if the default gives this move."""

    start: int
    target: int
    label: str
    free: int
    grain: int | None = None

    @property
    def name(self) -> str:
        return f"{self.start} to {self.target} {self.label}"

    def options(self) -> tuple[str, ...]:
        return ("--grain", format_size(self.grain)) if self.grain else ()


MIB_OF_SECTORS = MIB // SECTOR
SHIFTS = (
    Shift(63, 2048, "dos", 60 * MIB_OF_SECTORS),
    Shift(2047, 2048, "gpt", 50 * MIB_OF_SECTORS),  # one sector up, through the largest possible stash
    Shift(63, 64, "dos", 6 * MIB_OF_SECTORS, grain=32 * KIB),  # and through a small one
    Shift(34, 40, "gpt", 9 * MIB_OF_SECTORS, grain=4 * KIB),
    Shift(2049, 2048, "dos", 12 * MIB_OF_SECTORS),
    Shift(2041, 2048, "dos", 9 * MIB_OF_SECTORS + 77),
    Shift(34, 2048, "gpt", 8 * MIB_OF_SECTORS),
    Shift(4001, 4096, "gpt", 20 * MIB_OF_SECTORS + 5),
)


def chosen(kinds: Sequence[Kind]) -> list[tuple[Kind, Shift]]:
    """Return two shifts for each kind: one that advances by one per kind, the other by three; never the same."""
    if THOROUGH:
        return [(kind, shift) for kind in kinds for shift in SHIFTS]
    count = len(SHIFTS)
    pairs = [(kind, SHIFTS[index % count]) for index, kind in enumerate(kinds)]
    return pairs + [(kind, SHIFTS[(3 * index + 1) % count]) for index, kind in enumerate(kinds)]


# Ten GiB to the left: there is a gap at the start, an aligned partition, and behind it a misaligned one.

LARGE_OR_SMALL = tuple(
    Kind(
        f"nothing in {length} bytes", length, "da", LINUX,
        make=lambda content: None, read=lambda content: {}, check=lambda content: None, marks=(), by_hand=True,
    )
    for length in (10 * GIB + 3 * SECTOR, MIB)
)  # fmt: skip


def far_left(kind: Kind) -> tuple[Row, Row, Row]:
    """Return rows where the last partition fits only into the gap, where 12 MiB remain for the journal.

    The first partition exists because the space before it belongs to a boot loader on an MBR.
    """
    small = Row(LARGE_OR_SMALL[1], MIB_OF_SECTORS)
    gap = (kind.length // MIB + 17) * MIB_OF_SECTORS
    large = Row(LARGE_OR_SMALL[0], gap)
    return small, large, Row(kind, large.end)
