"""What a change may overwrite outside of partitions: bytes that read as zero, and ranges that the user names."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.claims import ALL_FREE, Claims, format_range, outside, parse_range
from aligntool.units import MIB, Extent

SECTOR = 512


class Bytes:
    """A disk in memory that counts what is read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.bytes_read = content, 0

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        self.bytes_read += length
        return self.content[offset : offset + length]


def disk(size: int, *data: Extent) -> Bytes:
    content = bytearray(size)
    for extent in data:
        content[extent.start : extent.end] = b"x" * extent.length
    return Bytes(bytes(content))


runs = st.tuples(st.integers(0, 6 * MIB // SECTOR), st.integers(1, 400)).map(
    lambda pair: Extent(pair[0] * SECTOR, pair[1] * SECTOR)
)


@given(st.lists(runs, max_size=6), st.lists(runs, max_size=2), runs)
def test_exactly_the_sectors_with_data_that_are_not_named_are_kept(
    data: list[Extent], named: list[Extent], asked: Extent
) -> None:
    made = disk(8 * MIB, *data)
    found = Claims(made, named).kept_in(asked)
    sectors = {at for extent in found for at in range(extent.start, extent.end, SECTOR)}
    expected = {
        at
        for at in range(asked.start, asked.end, SECTOR)
        if any(made.content[at : at + SECTOR]) and not any(extent.start <= at < extent.end for extent in named)
    }
    assert sectors == expected


@given(st.lists(runs, max_size=6), st.integers(1, 5000), st.integers(1, 5000))
def test_no_free_run_has_a_byte_of_data_and_a_long_enough_one_is_found(
    data: list[Extent], sectors: int, fewer: int
) -> None:
    made, gap, enough = disk(8 * MIB, *data), Extent(SECTOR, 8 * MIB - SECTOR), sectors * SECTOR
    least = min(sectors, fewer) * SECTOR
    found = Claims(made).free_runs((gap,), least, enough)
    assert all(gap.contains(run) and not any(made.content[run.start : run.end]) for run in found)
    longest = max((len(zeros) for zeros in _zeros(made.content[gap.start :])), default=0)
    most = max((run.length for run in found), default=0)
    assert (most >= enough) == (longest >= enough)
    assert most == longest or most >= enough


def _zeros(content: bytes) -> Iterator[str]:
    """Yield each run of sectors of zeros, a letter a sector, counted in bytes."""
    line = "".join("-" if any(content[at : at + SECTOR]) else "0" for at in range(0, len(content), SECTOR))
    yield from (run * SECTOR for run in line.split("-"))


def test_a_disk_is_not_read_further_than_needed() -> None:
    made = disk(64 * MIB)
    (run,) = Claims(made).free_runs((Extent(MIB, 63 * MIB),), MIB, 2 * MIB)
    assert run.end == 64 * MIB and made.bytes_read <= 3 * MIB


def test_what_the_change_moves_is_its_own_and_what_is_in_the_way_is_remembered() -> None:
    claims = Claims(disk(4 * MIB, Extent(0, MIB), Extent(2 * MIB, SECTOR)))
    assert claims.kept_in_any((Extent(0, MIB),), (Extent(0, MIB),)) == ()
    assert not claims.in_the_way
    assert claims.kept_in_any((Extent(0, 4 * MIB),), (Extent(0, MIB),)) == (Extent(2 * MIB, SECTOR),)
    assert list(claims.in_the_way) == [Extent(2 * MIB, SECTOR)]


def test_an_estimate_reads_nothing() -> None:
    assert ALL_FREE.kept_in(Extent(0, 1 << 60)) == ()
    assert ALL_FREE.free_runs((Extent(MIB, 5 * MIB),), MIB, 2 * MIB)[0].length >= 2 * MIB


@given(st.lists(runs, max_size=4), st.lists(runs, max_size=4))
def test_outside_leaves_each_sector_that_is_in_no_taken_extent(extents: list[Extent], taken: list[Extent]) -> None:
    def sectors(of: list[Extent]) -> set[int]:
        return {at for extent in of for at in range(extent.start, extent.end, SECTOR)}

    assert sectors(list(outside(extents, tuple(taken)))) == sectors(extents) - sectors(taken)


@pytest.mark.parametrize(
    ("text", "found"),
    [("1MiB..2MiB", Extent(MIB, MIB)), ("0..512", Extent(0, 512)), ("1MiB..1049088", Extent(MIB, 512))],
)
def test_a_range_is_read_as_it_is_written(text: str, found: Extent) -> None:
    assert parse_range(text) == found
    assert parse_range(format_range(found)) == found


@pytest.mark.parametrize("text", ["", "1MiB", "2MiB..1MiB", "1MiB..1MiB", "0..100", "x..y", "-1..512", "1MiB-2MiB"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|size"):
        parse_range(text)
