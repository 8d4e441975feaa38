"""CHS addresses of MBR entries that move: cylinder, head and sector, which some boot code still reads.

In: the old address and the old and new LBA. Out: the new address in the manner of the old one. Alone because nobody
needs it but old systems, and all the guessing about their geometry belongs in one place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

_CYLINDERS = 1024  # what ten bits count
_MAXED = b"\xfe\xff\xff"  # 1023/254/63: "beyond what CHS reaches" in every tool of today


@dataclass(frozen=True, slots=True)
class Geometry:
    heads: int
    sectors: int  # of a track

    def reaches(self, lba: int) -> bool:
        return lba < _CYLINDERS * self.heads * self.sectors

    def address(self, lba: int) -> bytes:
        """Head; sector, counted from 1, with the top two bits of the cylinder; cylinder."""
        cylinder, rest = divmod(lba, self.heads * self.sectors)
        head, sector = divmod(rest, self.sectors)
        return bytes((head, sector + 1 | cylinder >> 8 << 6, cylinder & 0xFF))


USUAL = Geometry(255, 63)


def geometry_of(addresses: Sequence[tuple[bytes, int]]) -> Geometry:
    """The one that fits all `addresses` (CHS, LBA) that say something; the usual one where several do, or none."""
    telling = [(chs, lba) for chs, lba in addresses if _says_something(chs)]
    others = (Geometry(heads, sectors) for heads, sectors in product(range(256, 0, -1), range(63, 0, -1)))
    for geometry in (USUAL, *others):
        if all(geometry.reaches(lba) and geometry.address(lba) == chs for chs, lba in telling):
            return geometry
    return USUAL


def moved_address(chs: bytes, old_lba: int, new_lba: int, geometry: Geometry) -> bytes:
    """An address that never said anything, though it could have, goes on saying nothing."""
    if old_lba == new_lba or (not _says_something(chs) and geometry.reaches(old_lba)):
        return chs
    if geometry.reaches(new_lba):
        return geometry.address(new_lba)
    return _MAXED if geometry.reaches(old_lba) else chs


def _says_something(chs: bytes) -> bool:
    """There is no sector 0, and the last cylinder stands for all beyond it."""
    sector, cylinder = chs[1] & 0x3F, chs[2] | (chs[1] & 0xC0) << 2
    return sector != 0 and cylinder < _CYLINDERS - 1
