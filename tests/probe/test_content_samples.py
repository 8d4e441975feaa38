"""Unrecognised data are detected by their bytes, and a blank area is not taken for data."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.linux.content import PLACE, SAMPLED_EDGE, SPREAD, sample
from aligntool.units import GIB, MIB, Extent

Sparse = Callable[..., Path]
WHOLE = Extent(0, GIB)


def written_at(image: Path, at: int, content: bytes) -> None:
    with image.open("r+b") as file:
        file.seek(at)
        file.write(content)


def test_a_drive_of_zeros_or_ones_counts_as_blank(sparse: Sparse) -> None:
    image = sparse(GIB)
    assert sample(str(image), WHOLE).written == 0
    small = sparse(4 * MIB, "ones.img")
    small.write_bytes(b"\xff" * (4 * MIB))
    found = sample(str(small), Extent(0, 4 * MIB))
    assert (found.written, found.unreadable) == (0, 0) and found.places > 50


@pytest.mark.parametrize("at", [0, 64 << 10, GIB - SAMPLED_EDGE, GIB - 1, 132 * MIB])
def test_one_byte_at_an_end_or_where_the_data_will_begin_is_detected(sparse: Sparse, at: int) -> None:
    image = sparse(GIB)
    before = sample(str(image), WHOLE, (132 * MIB,))
    written_at(image, at, b"\x01")
    found = sample(str(image), WHOLE, (132 * MIB,))
    assert (before.written, found.written) == (0, 1)
    assert found.digest != before.digest and found.places == before.places


def test_random_data_over_a_part_are_detected_at_about_that_share_of_the_places(sparse: Sparse) -> None:
    """Places are spread evenly: 256 of 1024 MiB are a quarter of them, plus or minus the one at its border."""
    image = sparse(GIB)
    for at in range(300 * MIB, 556 * MIB, 4 * MIB):
        written_at(image, at, os.urandom(4 * MIB))
    assert abs(sample(str(image), WHOLE).written - SPREAD // 4) <= 1


def test_only_the_bytes_of_the_partition_itself_are_read(sparse: Sparse) -> None:
    image = sparse(GIB)
    part = Extent(100 * MIB, 200 * MIB)
    written_at(image, part.start - PLACE, os.urandom(PLACE))
    written_at(image, part.end, os.urandom(PLACE))
    assert sample(str(image), part, (GIB - PLACE,)).written == 0
    written_at(image, part.end - 1, b"x")
    assert sample(str(image), part).written == 1


def test_unreadable_places_are_counted_and_not_taken_for_blank(sparse: Sparse) -> None:
    """Behind the end of a file that is shorter than expected there is nothing to read."""
    found = sample(str(sparse(MIB)), Extent(0, 2 * MIB))
    assert found.unreadable > SPREAD // 3
    assert sample("/nowhere/at/all", WHOLE).unreadable == sample(str(sparse(GIB, "b.img")), WHOLE).places
