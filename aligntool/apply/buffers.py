"""Memory for direct I/O: page-aligned buffers, lent out and taken back by themselves; and comparing what they hold.

In: a length. Out: a writable view. Alone because direct I/O asks for aligned memory, which `bytes` does not promise,
and because fresh pages for every 1 MiB that is read cost a third of the reading (measured: filling a fresh mapping
takes 10 to 20 times as long as filling one that was used before).
"""

import ctypes
import mmap
import weakref
from collections import deque
from contextlib import suppress

from aligntool.units import KIB, MIB, align_up

_SPACE = MIB  # of each buffer that is kept
_KEPT = 40  # two batches of 16 MiB, and one more for each of those who read
_KEPT_SHORT = 8
_LONG = 768 * KIB  # and more: nearly all of a buffer is used, so it may be taken from huge pages
_SHORTEST = 64 * KIB  # for less, fresh pages cost nothing that matters
_HUGE = 2 * MIB  # a huge page, on x86-64 and on arm64 with small pages of 4 KiB
_ARENA = 4 * _HUGE

_Slot = tuple[mmap.mmap, int]  # memory, and where in it the buffer begins


class Buffers:
    """Free lists. A buffer comes back when the last view of it, or of a part of it, is gone.

    Long ones lie in huge pages where the kernel has them: 1 MiB is one piece of memory for the drive then and not 256,
    which halved the processor's time for a transfer, and took a third off the time of a write (measured, virtio).
    """

    def __init__(self) -> None:
        self._long: deque[_Slot] = deque(maxlen=_KEPT + _ARENA // _SPACE)
        self._short: deque[_Slot] = deque(maxlen=_KEPT_SHORT)  # what is not touched of these takes no memory

    def lend(self, length: int) -> memoryview:
        """`length` bytes that begin on a page. What they hold is left over from before."""
        if length == 0:
            return memoryview(bytearray())
        if not _SHORTEST <= length <= _SPACE:
            memory = _map(align_up(length, mmap.PAGESIZE))
            return memoryview((ctypes.c_char * length).from_buffer(memory)).cast("B")
        free = self._long if length >= _LONG else self._short
        slot = _pop(free)
        if slot is None:
            slots = _arena() if length >= _LONG else [(_map(_SPACE), 0)]
            slot = slots.pop()
            free.extend(slots)
        # Every view keeps the array that it looks into alive, and so do its slices; the array keeps the memory.
        array = (ctypes.c_char * length).from_buffer(*slot)
        weakref.finalize(array, free.append, slot).atexit = False
        return memoryview(array).cast("B")


def _pop(free: deque[_Slot]) -> _Slot | None:
    try:
        return free.pop()  # not asked beforehand: another thread may take the last one
    except IndexError:
        return None


def _arena() -> list[_Slot]:
    """Buffers in huge pages, which take memory two by two when the first one is touched."""
    memory = _map(_ARENA + _HUGE)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    first = -_address(memory) % _HUGE
    return [(memory, first + at) for at in range(0, _ARENA, _SPACE)]


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


def _address(data: bytes | memoryview | mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if len(data) else 0


def _map(length: int) -> mmap.mmap:
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
