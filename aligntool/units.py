"""Units of size, extents, alignment arithmetic, and sizes and rates as text.

Inside aligntool every bare size or offset is in bytes. Sectors occur only in `formats` and in calls to the
kernel.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
PIB = 1024 * TIB

_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "PiB": PIB}


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A half-open run of bytes: includes `start`, excludes `end`."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length

    def moved_to(self, start: int) -> "Extent":
        return Extent(start, self.length)

    def overlaps(self, other: "Extent") -> bool:
        return self.start < other.end and other.start < self.end

    def clipped(self, within: "Extent") -> "Extent":
        """Return the part inside of `within`; it is empty if there is none."""
        start = max(self.start, within.start)
        return Extent(start, max(min(self.end, within.end) - start, 0))

    def contains(self, other: "Extent") -> bool:
        return self.start <= other.start and other.end <= self.end


def off_by(offset: int, grid: int, phase: int = 0) -> int:
    """Return how many bytes `offset` is past the last boundary of the grid; 0 means on it.

    The boundaries are the multiples of `grid` shifted up by `phase` bytes (the kernel's `alignment_offset`).
    """
    return (offset - phase) % grid


def align_up(offset: int, grid: int, phase: int = 0) -> int:
    """Return the first boundary of the grid at or after `offset`."""
    return offset + (phase - offset) % grid


def align_down(offset: int, grid: int, phase: int = 0) -> int:
    """Return the last boundary of the grid at or before `offset`."""
    return offset - (offset - phase) % grid


def merged(extents: Iterable[Extent], within: Extent, grid: int) -> tuple[Extent, ...]:
    """Return the extents widened to the grid, clipped to `within`, sorted, and merged if they touch."""
    found: list[tuple[int, int]] = []
    spans = ((align_down(each.start, grid), align_up(each.end, grid)) for each in extents if each.length > 0)
    for low, high in sorted(spans):
        start, end = max(low, within.start), min(high, within.end)
        if start < end and found and start <= found[-1][1]:
            start, last = found.pop()
            end = max(end, last)
        if start < end:
            found.append((start, end))
    return tuple(Extent(start, end - start) for start, end in found)


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def is_sector_size(number: int) -> bool:
    """Return whether a user may give this as the sector size of a disk, in bytes."""
    return is_power_of_two(number) and 512 <= number <= 64 * KIB


def is_grid_size(number: int) -> bool:
    """Return whether a user may give this as a page size or grain, in bytes."""
    return number % 512 == 0 and 512 <= number <= 1 << 40


def parse_size(text: str) -> int:
    """Return the bytes of "4096", "512B", "4KiB" or "1MiB".

    "1M" and "1MB" are refused: tools disagree by 4.9 % on their meaning, and a partition placed by the wrong
    one has exactly the fault that this program finds.

    Raises ValueError with a message for the user.
    """
    number = text.strip()
    factor = 1
    for unit, size in sorted(_UNITS.items(), key=lambda item: -len(item[0])):
        if number.lower().endswith(unit.lower()):
            number = number[: -len(unit)].strip()
            factor = size
            break
    if not (text.isascii() and number.isdigit()) or len(number) > 20:
        raise ValueError(f"{text!r} is not a size; write it in binary units, like 512B, 4KiB or 1MiB")
    return int(number) * factor


def format_size(size: int) -> str:
    """Return the size in the largest unit that divides it, without rounding: 32256B, 4KiB, 1MiB."""
    for unit, factor in reversed(_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def format_about(size: int) -> str:
    """Return the size rounded to one decimal in the largest unit that fits: 931.5GiB. Not for input to a
    program.
    """
    for unit, factor in reversed(_UNITS.items()):
        if abs(size) >= factor:
            whole = f"{size / factor:.1f}".removesuffix(".0")
            return f"{whole}{unit}"
    return f"{size}B"


def format_start(start: int, sector_size: int) -> str:
    """Return the start of a partition to be shown beside its sector: exact in the largest unit if that is
    whole (1MiB), or else rounded to four digits (207.8GiB, 100.0MiB). A start within a sector is exact,
    because no sector is shown beside it.
    """
    if start % sector_size:
        return format_size(start)
    unit, factor = next((each for each in reversed(_UNITS.items()) if start >= each[1]), ("B", 1))
    if start % factor == 0:
        return f"{start // factor}{unit}"
    digits = len(str(start // factor))
    return f"{start / factor:.{max(4 - digits, 1)}f}{unit}"


def significant(value: float, digits: int = 3) -> str:
    """Return a number with at least this many significant digits and without an exponent: 0.312, 41.5,
    1,520.
    """
    places = digits - 1 - floor(log10(abs(value))) if value else 0
    return f"{value:,.{min(max(places, 0), 12)}f}"


def mb_s(bytes_per_s: float) -> str:
    """Return a rate in MB/s (10^6 bytes) as benchmarks print it: one decimal, more for small rates."""
    rate = bytes_per_s / 10**6
    return significant(rate) if rate < 10 else f"{rate:.1f}" if rate < 10**4 else f"{rate:.0f}"


def format_rate(bytes_per_s: float) -> str:
    """Return a rate in decimal units, as for drives and links: 3.94 GB/s."""
    if bytes_per_s >= 10**9:
        return f"{bytes_per_s / 10**9:.2f} GB/s"
    if bytes_per_s >= 10**6:
        return f"{significant(bytes_per_s / 10**6)} MB/s"
    return f"{format_about(round(bytes_per_s))}/s"


def time_words(seconds: int) -> str:
    """Return "40 s", "12 min", "3 h 20 min": rounded for people."""
    if seconds < 90:
        return f"{max(seconds, 1)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def listed(numbers: Iterable[int]) -> str:
    """Return "1, 2, 5–9": three or more that follow one another as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def either(words: Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def first_of(words: Sequence[str], most: int) -> str:
    """Return "a, b and 3 more": at most so many of the words, and the number of the others."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def counted(number: int, word: str) -> str:
    """Return "1 disk", "2 disks"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
