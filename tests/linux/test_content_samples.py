"""Unrecognised data are detected by their bytes, and a blank area is not taken for data."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.linux.content import MOST_ROTATING, PLACE, SAMPLED_EDGE, sample
from aligntool.units import GIB, MIB, TIB, Extent
from tests.conftest import run

Sparse = Callable[..., Path]
Attach = Callable[..., Path]
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


def test_every_block_of_what_is_small_is_read(sparse: Sparse) -> None:
    """Holes of a file count as read: they are zeros."""
    image = sparse(GIB)
    for at in range(300 * MIB, 556 * MIB, 4 * MIB):
        written_at(image, at, os.urandom(MIB))
    found = sample(str(image), WHOLE)
    assert (found.written, found.places, found.spacing) == (64 * MIB // PLACE, GIB // PLACE, None)
    written_at(image, 299 * MIB, bytes(MIB))
    assert sample(str(image), WHOLE) == found  # zeros that are stored are no other content than a hole


@pytest.mark.needs_root
def test_no_area_of_16_mib_of_a_drive_of_64_gib_is_missed(sparse: Sparse, loop: Attach) -> None:
    image = sparse(64 * GIB)
    device, whole = str(loop(image)), Extent(0, 64 * GIB)
    blank = sample(device, whole)
    assert (blank.written, blank.unreadable, blank.spacing, blank.is_sparse) == (0, 0, 16 * MIB, False)
    for at in (5 * GIB + 12345 * 512, 5 * GIB + MIB, 64 * GIB - 17 * MIB):
        for piece in range(at, at + 16 * MIB, MIB):
            written_at(image, piece, os.urandom(MIB))
        found = sample(device, whole)
        assert found.written >= 1 and found.digest != blank.digest
        run("fallocate", "-p", "-o", str(at), "-l", str(16 * MIB), image)
    assert sample(device, whole) == blank


@pytest.mark.needs_root
def test_a_sample_of_a_rotating_drive_admits_what_it_does_not_read(sparse: Sparse, loop: Attach) -> None:
    """Millions of places would take hours there; a loop device does as it is told."""
    device, whole = loop(sparse(2 * TIB)), Extent(0, 2 * TIB)
    rotating = Path("/sys/block", device.name, "queue/rotational")
    before = rotating.read_text()
    try:
        rotating.write_text("0")
        assert sample(str(device), whole).places == 2 * TIB // (16 * MIB) + 2
        rotating.write_text("1")
        found = sample(str(device), whole)
        assert (found.places, found.spacing, found.is_sparse) == (MOST_ROTATING + 2, 256 * MIB, True)
    finally:
        rotating.write_text(before)


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
    assert found.unreadable == MIB // PLACE
    assert sample("/nowhere/at/all", WHOLE).unreadable == GIB // PLACE
