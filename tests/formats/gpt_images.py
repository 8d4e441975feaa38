"""GPT disks for tests: made by sgdisk, or by hand where every number has to be set."""

import functools
import os
import struct
import tempfile
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.conftest import run
from tests.formats.images import MIB, disk, mbr, patch

Sparse = Callable[..., Path]
SIZE = 64 * MIB
LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"


def make_gpt(sparse: Sparse, *options: str, size: int = SIZE, name: str = "disk.img") -> Path:
    path = sparse(size, name)
    start, end = made_by_sgdisk(options or ("-n1:2048:+10M", "-n2:0:+10M", "-t2:8200", "-c1:one"), size)
    patch(path, 0, start)
    patch(path, size - len(end), end)
    return path


@functools.cache
def made_by_sgdisk(options: tuple[str, ...], size: int) -> tuple[bytes, bytes]:
    """Return the first and the last 64 KiB. Cached, because sgdisk sleeps for a second after each write."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "disk.img"
        path.touch()
        os.truncate(path, size)
        run("sgdisk", *options, path)
        with path.open("rb") as file:
            start = file.read(65536)
            file.seek(-65536, os.SEEK_END)
            return start, file.read()


def header(
    *,
    own: int,
    other: int,
    entries_lba: int,
    entries: bytes = b"",
    crc: int | None = None,
    numbers: dict[str, int] | None = None,
) -> bytes:
    """Return a header after the UEFI specification, table 5-5, with a right checksum.

    `numbers`: replace first and last (usable), count and entry_size; `crc`: the checksum of the entries.
    """
    usual = {"first": 34, "last": 2014, "count": 128, "entry_size": 128} | (numbers or {})
    entries_crc = zlib.crc32(entries) if crc is None else crc
    limits = struct.pack("<QQ", usual["first"], usual["last"])
    array = struct.pack("<QIII", entries_lba, usual["count"], usual["entry_size"], entries_crc)
    fields = struct.pack("<QQ", own, other) + limits + bytes(range(16)) + array
    blank = b"EFI PART" + struct.pack("<IIII", 0x10000, 92, 0, 0) + fields
    return blank[:16] + struct.pack("<I", zlib.crc32(blank)) + blank[20:]


def entry(start: int, last: int, *, name: bytes = b"", attributes: int = 0, kind: str = LINUX) -> bytes:
    ids = uuid.UUID(kind).bytes_le + uuid.UUID(int=start + 1).bytes_le
    return ids + struct.pack("<QQQ", start, last, attributes) + name.ljust(72, b"\0")


def gpt_disk(
    entries: bytes, *, sectors: int = 2048, count: int = 128, entry_size: int = 128, pmbr: bytes = b""
) -> bytes:
    """Return a disk of 512-byte sectors whose two copies are both valid."""
    array = entries.ljust(count * entry_size, b"\0")
    length = -(-len(array) // 512)
    numbers = {"first": 2 + length, "last": sectors - length - 2, "count": count, "entry_size": entry_size}
    primary = header(own=1, other=sectors - 1, entries_lba=2, entries=array, numbers=numbers)
    backup = header(own=sectors - 1, other=1, entries_lba=sectors - 1 - length, entries=array, numbers=numbers)
    return disk(
        sectors * 512,
        (0, pmbr or mbr((0xEE, 1, sectors - 1, 0))),
        (512, primary),
        (1024, array),
        ((sectors - 1 - length) * 512, array),
        ((sectors - 1) * 512, backup),
    )
