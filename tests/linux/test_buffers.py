"""Buffers for direct I/O: one that is still referenced is never reused, and any other is."""

import mmap
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.linux.block import Buffers, equal_memory, is_memory_aligned
from aligntool.units import KIB, MIB
from tests.linux.test_disk_device import opened

Make = Callable[..., Path]


def noise(length: int) -> bytes:
    return random.Random(1).randbytes(length)


def test_data_that_were_read_stay_valid_while_a_slice_is_referenced(sparse: Make) -> None:
    image = sparse(64 * MIB)
    with image.open("r+b") as file:
        for piece in range(64):
            file.seek(piece * MIB)
            file.write(bytes((piece + 1,)) * MIB)
    with opened(image) as device:
        parts = [device.read(piece * MIB, MIB)[piece * 512 : piece * 512 + 512] for piece in range(64)]
        for piece in range(64):
            device.read(piece * MIB, MIB)
        assert parts == [bytes((piece + 1,)) * 512 for piece in range(64)]


def test_released_buffers_are_reused() -> None:
    buffers = Buffers()
    seen = set()
    for _ in range(50):
        view = buffers.lend(MIB)
        assert is_memory_aligned(view, 4096) and len(view) == MIB
        assert not is_memory_aligned(view[8:], 4096)
        view[:4] = b"used"
        seen.add(hex(id(view.obj)))
        del view
        again = buffers.lend(MIB)
        assert bytes(again[:4]) == b"used"
        other = buffers.lend(MIB)
        other[:4] = b"else"
        assert bytes(again[:4]) == b"used"
        again[:4] = other[:4] = bytes(4)
        del again, other


def test_memory_use_is_bounded_whatever_amount_is_read(sparse: Make) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    with opened(sparse(64 * MIB)) as device:
        before = resident()
        for length in (MIB, 65 * KIB, 4 * MIB, 512, 300 * KIB + 512):
            for _ in range(4):
                kept = [device.read(at, length) for at in range(0, 32 * MIB, max(length, MIB))]
                assert len([device.read(at * MIB, MIB) for at in range(60)]) == 60
                del kept
        assert resident() - before < 96 * MIB


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_memory_is_equal_if_every_byte_is_equal(kind: Callable[[bytes], bytes]) -> None:
    view = Buffers().lend(MIB)
    view[:] = noise(MIB)
    assert equal_memory(view, kind(noise(MIB))) and equal_memory(kind(noise(MIB)), view)
    assert equal_memory(view[512:], kind(noise(MIB)[512:])) and equal_memory(view[:0], kind(b""))
    assert not equal_memory(view, kind(noise(MIB)[:-1]))
    for at in (0, 12345, MIB - 1):
        other = bytearray(noise(MIB))
        other[at] ^= 1
        assert not equal_memory(view, kind(bytes(other)))
