"""Call libblkid in this process: what `blkid -p` finds in a part of an image.

A process for each of thousands of states would take an hour.
"""

import ctypes
import ctypes.util
import os
from functools import cache
from types import TracebackType

_SUPERBLOCKS = 0x1EA  # BLKID_SUBLKS_*: label, UUID, type, second type, usage, version, as blkid -p requests
_DETAILS = 1 << 2  # BLKID_PARTS_ENTRY_DETAILS, as blkid -p requests
AMBIVALENT = {"TYPE": "ambivalent"}


@cache
def find_library() -> str | None:
    return ctypes.util.find_library("blkid")


def known_kinds() -> set[str]:
    """Return superblocks and partition tables, by their names in libblkid."""
    library, name, usage = ctypes.CDLL(find_library() or ""), ctypes.c_char_p(), ctypes.c_int()
    found: list[str] = []
    while not library.blkid_superblocks_get_name(len(found), ctypes.byref(name), ctypes.byref(usage)):
        found.append((name.value or b"").decode())
    tables: list[str] = []
    while not library.blkid_partitions_get_name(len(tables), ctypes.byref(name)):
        tables.append((name.value or b"").decode())
    return {*found, *tables}


class ProbedImage:
    """An image that can be changed and probed. Raises OSError if libblkid reports an error."""

    def __init__(self, image: bytes) -> None:
        self._library = ctypes.CDLL(find_library() or "libblkid.so.1", use_errno=True)
        self._library.blkid_new_probe.restype = ctypes.c_void_p
        self._probe = ctypes.c_void_p(self._library.blkid_new_probe())
        self._library.blkid_probe_enable_superblocks(self._probe, 1)
        self._library.blkid_probe_set_superblocks_flags(self._probe, _SUPERBLOCKS)
        self._library.blkid_probe_enable_partitions(self._probe, 1)
        self._library.blkid_probe_set_partitions_flags(self._probe, _DETAILS)
        self._file = os.memfd_create("aligntool-witness")
        os.ftruncate(self._file, len(image))
        for at in range(0, len(image), 1 << 16):  # zeros stay a hole
            piece = image[at : at + (1 << 16)]
            if piece.count(0) < len(piece):
                os.pwrite(self._file, piece, at)

    def __enter__(self) -> "ProbedImage":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.blkid_free_probe(self._probe)
        os.close(self._file)

    def write(self, at: int, raw: bytes) -> None:
        os.pwrite(self._file, raw, at)

    def read(self, at: int, length: int) -> bytes:
        return os.pread(self._file, length, at)

    def see(self, start: int, length: int) -> dict[str, str]:
        """Return names and values as `blkid -p -o export` prints them; empty if nothing is recognised."""
        library = self._library
        done = library.blkid_probe_set_device(self._probe, self._file, ctypes.c_int64(start), ctypes.c_int64(length))
        assert done == 0
        found = library.blkid_do_safeprobe(self._probe)
        if found == -2:
            return AMBIVALENT
        if found < 0:
            raise OSError(f"libblkid: {found}")
        return self._values() if found == 0 else {}

    def _values(self) -> dict[str, str]:
        values = {}
        name, data, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
        for index in range(self._library.blkid_probe_numof_values(self._probe)):
            self._library.blkid_probe_get_value(
                self._probe, index, ctypes.byref(name), ctypes.byref(data), ctypes.byref(size)
            )
            raw = ctypes.string_at(data.value or 0, size.value) if size.value else b""
            values[(name.value or b"").decode()] = raw.rstrip(b"\0").decode(errors="replace")
        return values
