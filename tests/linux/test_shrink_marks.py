"""The mark of a shrink vouches for the bytes behind the file system that are as they were when it was written.

The digest is that of sha256sum.
"""

import subprocess
from dataclasses import replace

import pytest

from aligntool.inventory import Layer
from aligntool.linux.content import digest_of, freed_bytes, is_free_behind, shrink_mark
from aligntool.units import KIB, Extent
from tests.in_memory import BytesReader

START = 63 * 512
LENGTH = 256 * KIB + 512  # of the partition
CLAIMS = 100 * KIB
SHRUNK = CLAIMS + 1536  # what the file system was to have
LEFT = bytes(512) + b"what the old file system left".ljust(LENGTH - CLAIMS - 1536, b"\0") + b"x" * 512
EXTENT = Extent(START, LENGTH)
EXT4 = Layer("ext4", Extent(START, CLAIMS), data_unit=4 * KIB, claims_size=CLAIMS)
OLD = f"aligntool: this file system was shrunk to {SHRUNK} bytes; all that follows it is free\n"


def sha256sum(content: bytes) -> str:
    ended = subprocess.run(["sha256sum"], input=content, capture_output=True, check=True)
    return ended.stdout.decode().split()[0]


def marked(left: bytes = LEFT, mark: bytes = shrink_mark(SHRUNK, sha256sum(LEFT))) -> BytesReader:
    """Return a disk with a file system, these bytes behind it, and the mark."""
    return BytesReader(b"b" * START + b"f" * CLAIMS + left + mark.ljust(512, b"\0") + b"n" * 512)


def is_free(disk: BytesReader, layer: Layer = EXT4) -> bool:
    return is_free_behind(disk, EXTENT, layer)


def test_what_is_unchanged_since_the_mark_is_free() -> None:
    assert len(LEFT) == LENGTH - CLAIMS - 512
    assert digest_of(marked(), freed_bytes(EXTENT, CLAIMS)) == sha256sum(LEFT)
    assert is_free(marked())


@pytest.mark.parametrize("at", [0, 512, len(LEFT) // 2, len(LEFT) - 1])
def test_one_changed_byte_is_not_free(at: int) -> None:
    assert not is_free(marked(LEFT[:at] + b"\xff" + LEFT[at + 1 :]))


@pytest.mark.parametrize("mark", [OLD.encode(), shrink_mark(SHRUNK, sha256sum(LEFT))])
def test_zeros_before_a_mark_are_free(mark: bytes) -> None:
    assert is_free(marked(bytes(len(LEFT)), mark))


def test_a_mark_without_a_digest_vouches_for_no_data() -> None:
    assert not is_free(marked(mark=OLD.encode()))


@pytest.mark.parametrize("claims", [CLAIMS - 64 * KIB, CLAIMS + 4 * KIB, LENGTH - 511, None])
def test_the_mark_of_another_length_vouches_for_nothing(claims: int | None) -> None:
    assert not is_free(marked(bytes(len(LEFT))), replace(EXT4, claims_size=claims))


def test_a_mark_that_is_followed_by_anything_else_vouches_for_nothing() -> None:
    assert not is_free(marked(bytes(len(LEFT)), OLD.encode().ljust(511, b"\0") + b"x"))
