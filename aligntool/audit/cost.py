"""What misalignment and small writes cost, as arithmetic.

The model and its figures come from the 2010 article on Advanced Format and NAND alignment: a write that covers
parts of two units makes the drive read both and write both; a request of r bytes that starts at a random
multiple of its own size off the grid straddles a unit of u bytes with probability r/u.
"""

from dataclasses import dataclass
from fractions import Fraction

REQUEST = 4096  # the block of nearly every file system, and so the request that is asked about


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted for requests of `request` bytes against units of `unit` bytes. Sizes in bytes."""

    request: int
    unit: int
    straddle_probability: Fraction
    write_rate: Fraction  # of the aligned rate: 1/2 is half as many writes a second
    straddling_read: int  # read by the drive for one straddling write, before it can write
    straddling_written: int
    extra_read: int  # more bytes read from the medium by a read request that straddles
    write_amplification: Fraction  # even when aligned


def predict(unit: int, request: int = REQUEST) -> Cost:
    """The cost of being off a grid of `unit` bytes."""
    return Cost(
        request=request,
        unit=unit,
        straddle_probability=straddle_probability(request, unit),
        write_rate=misaligned_write_rate(request, unit),
        straddling_read=2 * unit if request <= unit else units_touched(request, unit) * unit,
        straddling_written=2 * unit if request <= unit else units_touched(request, unit) * unit,
        extra_read=unit,
        write_amplification=write_amplification(request, unit),
    )


def straddle_probability(request: int, unit: int) -> Fraction:
    """How often a request covers parts of two units; 1 from the size of a unit on."""
    return min(Fraction(request, unit), Fraction(1))


def misaligned_write_rate(request: int, unit: int) -> Fraction:
    """The share of the aligned write rate that is left: 1/(1 + r/u). 4 KiB requests: u = 4 KiB 1/2, 16 KiB 4/5."""
    return 1 / (1 + straddle_probability(request, unit))


def write_amplification(request: int, unit: int) -> Fraction:
    """Bytes written to the medium for each byte asked for, when every request lies within one unit: u/r, at
    least 1.
    """
    return max(Fraction(unit, request), Fraction(1))


def units_touched(length: int, unit: int, start: int = -1) -> int:
    """How many units a request of `length` bytes touches; `start` -1: the worst place off the grid."""
    past = unit - 1 if start < 0 else start % unit
    return -(-(past + length) // unit) if length else 0


def read_modify_write(start: int, length: int, unit: int) -> tuple[int, int]:
    """Bytes read and written on the medium for a write of `length` bytes at `start`.

    A unit that is covered whole needs no reading; one covered in part is read and written whole.
    """
    if not length:
        return 0, 0
    touched = units_touched(length, unit, start)
    partial = {
        index
        for index in (start // unit, (start + length) // unit)
        if _covers_part(start, length, unit, index)
    }
    return len(partial) * unit, touched * unit


def _covers_part(start: int, length: int, unit: int, index: int) -> bool:
    low, high = max(start, index * unit), min(start + length, (index + 1) * unit)
    return 0 < high - low < unit
