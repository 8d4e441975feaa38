"""Memory for direct I/O: page-aligned buffers, lent out and taken back by themselves; and comparing what they hold.

In: a length. Out: a writable view. Alone because direct I/O asks for aligned memory, which `bytes` does not promise,
and because fresh pages for every 1 MiB that is read cost a third of the reading (measured: filling a fresh mapping
takes 10 to 20 times as long as filling one that was used before).
"""

import ctypes
import mmap
import weakref
from collections import deque

from aligntool.units import KIB, MIB, align_up

_SPACE = MIB  # of each buffer that is kept; what a shorter request does not touch takes no memory
_KEPT = 40  # two batches of 16 MiB, and one more for each of those who read
_SHORTEST = 64 * KIB  # for less, fresh pages cost nothing that matters


class Buffers:
    """A free list. A buffer comes back when the last view of it, or of a part of it, is gone."""

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque(maxlen=_KEPT)

    def lend(self, length: int) -> memoryview:
        """`length` bytes that begin on a page. What they hold is left over from before."""
        if length == 0:
            return memoryview(bytearray())
        kept = _SHORTEST <= length <= _SPACE
        memory = self._free_one() if kept else _map(align_up(length, mmap.PAGESIZE))
        # Every view keeps the array that it looks into alive, and so do its slices; the array keeps the memory.
        array = (ctypes.c_char * length).from_buffer(memory)
        if kept:
            weakref.finalize(array, self._free.append, memory).atexit = False
        return memoryview(array).cast("B")

    def _free_one(self) -> mmap.mmap:
        try:
            return self._free.pop()  # not asked beforehand: another thread may take the last one
        except IndexError:
            return _map(_SPACE)


def same(one: bytes | memoryview, other: bytes | memoryview) -> bool:
    """Whether they are equal, by memcmp.

    A memoryview's own == takes a hundred times as long, for it makes an object of each byte, and lets no other thread
    work meanwhile.
    """
    if len(one) != len(other):
        return False
    if _is_read_only(one) or _is_read_only(other):
        return bytes(one) == bytes(other)
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return len(one) == 0 or bool(compare(_address(one), _address(other), len(one)) == 0)


def starts_on(data: bytes | memoryview, boundary: int) -> bool:
    """Whether it lies in memory on a multiple of `boundary`; of read-only memory nobody says where it lies."""
    return not _is_read_only(data) and _address(data) % boundary == 0


def _is_read_only(data: bytes | memoryview) -> bool:
    view = memoryview(data)
    return view.readonly or not view.contiguous


def _address(data: bytes | memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if len(data) else 0


def _map(length: int) -> mmap.mmap:
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
