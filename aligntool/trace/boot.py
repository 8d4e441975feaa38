"""How long the commands of a boot take on a drive, and how far two drives are apart.

In: the rates of a drive with one 4 KiB command in flight (QD1), and how many commands a boot sends. Out: seconds.
Alone because it is a model with a source: the article of 2022 on storage for an operating system, which counted the
commands of one boot and reckons each at 4 KiB / QD1 rate.
"""

from dataclasses import dataclass
from fractions import Fraction

REQUEST = 4096  # bytes of a command whose rate is asked for
MEGABYTE = 10**6  # of MB/s, as benchmarks print it


@dataclass(frozen=True, slots=True)
class BootCounts:
    """Commands of a boot."""

    reads: int
    writes: int


ARTICLE = BootCounts(reads=40_553, writes=4_938)
"""Of these 6 and 2 are sequential."""


@dataclass(frozen=True, slots=True)
class Drive:
    """A drive by its QD1 4 KiB rates, in MB/s (10^6 bytes a second); both greater than 0."""

    read: Fraction
    write: Fraction

    @property
    def read_s(self) -> Fraction:
        """Seconds for a read: 100 MB/s → 40.96 µs."""
        return Fraction(REQUEST) / (self.read * MEGABYTE)

    @property
    def write_s(self) -> Fraction:
        return Fraction(REQUEST) / (self.write * MEGABYTE)

    def boot_s(self, counts: BootCounts) -> Fraction:
        """Seconds that the drive is busy with the commands of a boot, one after the other."""
        return self.read_s * counts.reads + self.write_s * counts.writes


def gap_s(slow: Drive, fast: Drive, counts: BootCounts) -> Fraction:
    """Δread x reads + Δwrite x writes, in seconds; negative where the second drive is the slower one."""
    return (slow.read_s - fast.read_s) * counts.reads + (slow.write_s - fast.write_s) * counts.writes


def parse_drive(text: str) -> Drive:
    """Reads "41.5,120": MB/s of reads and of writes; of one number alone: both.

    Raises ValueError with a sentence for the user.
    """
    rates = [_rate(word) for word in text.split(",")]
    if len(rates) > 2 or None in rates:
        raise ValueError(f"{text!r} is no rate; write MB/s of reads, or of reads and writes, like 41.5,120")
    first, last = rates[0], rates[-1]
    return Drive(first or Fraction(0), last or Fraction(0))


def _rate(word: str) -> Fraction | None:
    number = word.strip()
    if len(number) > 20 or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    rate = Fraction(number if number[0] != "." else f"0{number}")
    return rate if rate > 0 else None
