"""The signatures that libblkid searches for, and their offsets.

The planner saves the bytes at these offsets, and the mover overwrites those that recognition depends on. Each
kind of content states its own, and contents/catalogue.py has their order; those of partition tables are here.

From util-linux, libblkid/src/superblocks/ and libblkid/src/partitions/ (2.38.1 and 2.43-devel of 2026-08: the
union of both).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from aligntool.units import KIB, align_down

UNIT = KIB // 2  # the unit of libblkid, whatever the disk's sector size


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern and the offsets where it is searched.

    `heads` are offsets from the start of the partition. `tails` are pairs: the partition's length is rounded
    down to a multiple of the first, and the second is subtracted. `more` are the offsets for a length that
    are neither. `vital` is the index of the byte in the pattern that recognition depends on; None: every
    byte.
    """

    kind: str
    source: bytes  # of `pattern`, which is compiled only if needed
    width: int
    heads: tuple[int, ...] = ()
    tails: tuple[tuple[int, int], ...] = ()
    vital: int | None = None
    more: Callable[[int], Iterable[int]] | None = None

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """Return the compiled pattern, which `re` caches."""
        return re.compile(self.source, re.DOTALL)

    def places(self, length: int) -> Iterator[int]:
        """Yield the offsets in a partition of `length` bytes."""
        tails = (align_down(length, unit) - back for unit, back in self.tails)
        for at in (*self.heads, *tails, *(self.more(length) if self.more else ())):
            if 0 <= at <= length - self.width:
                yield at


def magic(
    kind: str, *magics: bytes, heads: tuple[int, ...] = (), tails: tuple[tuple[int, int], ...] = ()
) -> Signature:
    source = b"|".join(re.escape(magic) for magic in magics)
    return Signature(kind, source, max(map(len, magics)), heads, tails)


def both_orders(*values: int) -> tuple[bytes, ...]:
    """Return the bytes of 32-bit numbers in both byte orders."""
    return tuple(value.to_bytes(4, order) for value in values for order in ("little", "big"))


def from_end(*sectors: int, at: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the tails for offset `at` in the sectors of 512 bytes that are `sectors` before the end."""
    return tuple((UNIT, UNIT * count - at) for count in sectors)


_DOS = rb"(?:(?:[\0\x80].{15}){4}|.{4}\xee.{59}|.{20}\xee.{43}|.{36}\xee.{27}|.{52}\xee.{11})\x55\xaa"
_ULTRIX_AT = 16 * KIB - 72

PARTITION_TABLES = (
    magic("aix", b"\xc9\xc2\xd4\xc1", heads=(0,)),
    magic("sgi", b"\x0b\xe5\xa9\x41", heads=(0,)),
    magic("sun", b"\xda\xbe", heads=(508,)),
    magic("gpt", b"EFI PART", heads=(512, 4 * KIB), tails=(*from_end(1), (4 * KIB, 4 * KIB))),
    Signature("dos", _DOS, 66, (446,), vital=64),
    magic("mac", b"ER", heads=(0,)),
    magic("ultrix", *both_orders(0x032957), heads=(_ULTRIX_AT,)),
    magic("bsd", b"\x57\x45\x56\x82", heads=(512, 64, 128)),
    magic("unixware", b"\x0d\x60\xe5\xca", heads=(29 * UNIT + 4, 29174)),
    magic("solaris", b"\xee\xde\x0d\x60", heads=(UNIT + 12,)),
    Signature("atari", rb"[\x01\x81][0-9A-Za-z]{3}", 4, (0x1C6, 0x1D2, 0x1DE, 0x1EA), vital=0),
    magic("dasd", *(bytes.fromhex(name) for name in ("e5d6d3f1", "d3d5e7f1", "c3d4e2f1")),
        heads=tuple(2 * size + at for size in (512, KIB, 2 * KIB, 4 * KIB) for at in (0, 4))),
)  # fmt: skip
