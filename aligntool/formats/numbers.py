"""Decode numbers, labels and UUIDs in the bytes of a superblock or a table."""

from collections.abc import Callable
from typing import Literal
from uuid import UUID

Number = Callable[[bytes, int], int]


def _decoder(length: int, order: Literal["little", "big"]) -> Number:
    """Return a function that decodes a number of `length` bytes at an offset."""
    return lambda data, offset: int.from_bytes(data[offset : offset + length], order)


le16, le32, le64 = (_decoder(length, "little") for length in (2, 4, 8))
be16, be32, be64 = (_decoder(length, "big") for length in (2, 4, 8))


def text_at(data: bytes, offset: int, length: int, encoding: str = "utf-8") -> str | None:
    """Return a label as blkid reads it: up to the first NUL, without surrounding blanks. None if nothing is
    left.
    """
    raw = data[offset : offset + length]
    if encoding.startswith("utf-16"):
        raw = raw[: len(raw) & ~1]
    return raw.decode(encoding, "replace").split("\0", 1)[0].strip(" \t\n\r\v\f") or None


def uuid_at(data: bytes, offset: int) -> str | None:
    """Return the UUID of sixteen bytes in stored order, as in ext4, XFS, md and most others. None if all are
    zero.
    """
    raw = data[offset : offset + 16]
    return str(UUID(bytes=raw)) if len(raw) == 16 and any(raw) else None


def guid_at(data: bytes, offset: int) -> str | None:
    """Return the GUID of sixteen bytes as Microsoft stores it: the first three fields are little-endian."""
    raw = data[offset : offset + 16]
    return str(UUID(bytes_le=raw)) if len(raw) == 16 and any(raw) else None


def serial_at(data: bytes, offset: int) -> str:
    """Return the volume serial number of FAT and exFAT, as blkid and Windows write it."""
    number = le32(data, offset)
    return f"{number >> 16:04X}-{number & 0xFFFF:04X}"
