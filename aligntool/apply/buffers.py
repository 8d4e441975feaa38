"""Memory for direct I/O: page-aligned buffers, lent out and taken back by themselves.

In: a length. Out: a writable view. Alone because direct I/O asks for aligned memory, which `bytes` does not promise,
and because fresh pages for every 1 MiB that is read cost a third of the reading (measured: filling a fresh mapping
takes 10 to 20 times as long as filling one that was used before).
"""

import ctypes
import mmap
import weakref

from aligntool.units import MIB, align_up

_KEPT = 16  # buffers of each length, at most; four workers hold two each
_LARGEST_KEPT = MIB
_SMALLEST_KEPT = MIB // 16


class Buffers:
    """A free list. A buffer comes back when the last view of it, or of a part of it, is gone."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}

    def lend(self, length: int) -> memoryview:
        """`length` bytes that begin on a page. What they hold is left over from before."""
        if length == 0:
            return memoryview(bytearray())
        space = align_up(length, mmap.PAGESIZE)
        free = self._free.setdefault(space, []) if _SMALLEST_KEPT <= space <= _LARGEST_KEPT else []
        try:
            memory = free.pop()  # not asked beforehand: another thread may take the last one
        except IndexError:
            memory = mmap.mmap(-1, space, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Every view keeps the array that it looks into alive, and so do its slices; the array keeps the memory.
        array = (ctypes.c_char * length).from_buffer(memory)
        weakref.finalize(array, _take_back, free, memory).atexit = False
        return memoryview(array).cast("B")


def _take_back(free: list[mmap.mmap], memory: mmap.mmap) -> None:
    if len(free) < _KEPT:
        free.append(memory)


def starts_on(data: bytes | memoryview, boundary: int) -> bool:
    """Whether it lies in memory on a multiple of `boundary`; of read-only memory nobody says where it lies."""
    view = memoryview(data)
    if view.readonly or not view.contiguous:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % boundary == 0
