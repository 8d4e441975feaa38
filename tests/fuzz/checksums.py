"""Recompute the checksums of a disk that a fuzzer has changed.

Structures are found by their magic anywhere on the disk; with right checksums, the changed contents are not rejected by
the first check.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable

from aligntool.formats.reader import (
    crc32_seeded,
    crc32c,
    crc32c_inverted,
    crc64,
    fletcher64,
    folded_sum,
    rotating_sum,
    xxh64,
)
from tests.fuzz.sparse import SparseDisk

LVM_SEED = 0xF597A6CF
MOST_MENDED = 24  # structures on one disk

Mend = Callable[[SparseDisk, int], SparseDisk]


def fix_checksums(disk: SparseDisk) -> SparseDisk:
    """Fix every structure whose magic is in a piece, in an order in which one may cover another."""
    mended = 0
    for piece in disk.pieces:
        for magic, before, mend_one in _STRUCTURES:
            found = piece.content.find(magic)
            while found >= 0 and mended < MOST_MENDED:
                mended += 1
                disk = mend_one(disk, max(piece.at + found - before, 0))
                found = piece.content.find(magic, found + 1)
    return fix_sector_0(disk)


def _bytes(disk: SparseDisk, at: int, length: int) -> bytes:
    return disk.reader().read(at, length) if not disk.choices & 0x40 else b""


def _number(raw: bytes, at: int, length: int = 4) -> int:
    return int.from_bytes(raw[at : at + length], "little")


def _put(disk: SparseDisk, at: int, value: int, length: int = 4) -> SparseDisk:
    return disk.with_bytes(at, (value & (1 << 8 * length) - 1).to_bytes(length, "little"))


def _gpt(disk: SparseDisk, at: int) -> SparseDisk:
    """Fix a GPT: the checksum of the entries goes into the header before the header's own is computed."""
    header = _bytes(disk, at, 4096)
    sector = next((size for size in (512, 4096, 2048, 1024) if _number(header, 24, 8) * size == at), 512)
    length, count, size = _number(header, 12), _number(header, 80), _number(header, 84)
    if count * size <= 1 << 20:
        entries = _bytes(disk, _number(header, 72, 8) * sector, count * size)
        disk = _put(disk, at + 88, zlib.crc32(entries))
    header = _bytes(disk, at, min(max(length, 92), 4096))
    return _put(disk, at + 16, zlib.crc32(header[:16] + bytes(4) + header[20:]))


def _md(disk: SparseDisk, at: int) -> SparseDisk:
    raw = _bytes(disk, at, 4096)
    if _number(raw, 4) == 1:
        devices = min(_number(raw, 220), 1920)
        disk = _put(disk, at + 144, (at - disk.start) // 512 & (1 << 64) - 1, 8)
        raw = _bytes(disk, at, 256 + 2 * devices)
        return _put(disk, at + 216, folded_sum(raw[:216] + bytes(4) + raw[220:]))
    return _put(disk, at + 152, folded_sum(raw[:152] + bytes(4) + raw[156:]))


def _lvm_label(disk: SparseDisk, at: int) -> SparseDisk:
    return _put(disk, at + 16, crc32_seeded(_bytes(disk, at + 20, 492), LVM_SEED))


def _lvm_area(disk: SparseDisk, at: int) -> SparseDisk:
    """Fix an LVM metadata area; its text ends at the first zero."""
    header = _bytes(disk, at, 512)
    where = _number(header, 40, 8)
    if 512 <= where < 1 << 24:
        text = _bytes(disk, at + where, 64 * 1024).split(b"\0", 1)[0] + b"\0"
        disk = _put(disk, at + 48, len(text), 8)
        disk = _put(disk, at + 56, crc32_seeded(text, LVM_SEED))
    return _put(disk, at, crc32_seeded(_bytes(disk, at + 4, 508), LVM_SEED))


def _luks2(disk: SparseDisk, at: int) -> SparseDisk:
    start = _bytes(disk, at, 512)
    size = int.from_bytes(start[8:16], "big")
    if int.from_bytes(start[6:8], "big") != 2 or not 4096 <= size <= 1 << 22:
        return disk
    name = start[72:104].split(b"\0", 1)[0]
    algorithm = name.decode() if name in (b"sha1", b"sha256", b"sha384", b"sha512") else "sha256"
    content = _bytes(disk, at, size)
    digest = hashlib.new(algorithm, content[:448] + bytes(64) + content[512:]).digest()
    return disk.with_bytes(at + 448, digest)


def _ext(disk: SparseDisk, at: int) -> SparseDisk:
    return _put(disk, at + 0x3FC, crc32c(_bytes(disk, at, 0x3FC)))


def _xfs(disk: SparseDisk, at: int) -> SparseDisk:
    raw = _bytes(disk, at, int.from_bytes(_bytes(disk, at + 102, 2), "big"))
    return _put(disk, at + 224, crc32c_inverted(raw[:224] + bytes(4) + raw[228:]))


def _btrfs(disk: SparseDisk, at: int) -> SparseDisk:
    covered = _bytes(disk, at + 32, 4096 - 32)
    match _number(covered, 196 - 32, 2):
        case 0:
            return _put(disk, at, crc32c_inverted(covered))
        case 1:
            return _put(disk, at, xxh64(covered), 8)
        case 2:
            return disk.with_bytes(at, hashlib.sha256(covered).digest())
        case _:
            return disk.with_bytes(at, hashlib.blake2b(covered, digest_size=32).digest())


def _f2fs(disk: SparseDisk, at: int) -> SparseDisk:
    raw = _bytes(disk, at, 3072)
    place = _number(raw, 0x20)
    return _put(disk, at + place, crc32_seeded(raw[:place], 0xF2F52010)) if place + 4 <= len(raw) else disk


def _exfat(disk: SparseDisk, at: int) -> SparseDisk:
    shift = _bytes(disk, at + 108, 1)
    sector = 1 << shift[0] if shift and 9 <= shift[0] <= 12 else 512
    total = rotating_sum(_bytes(disk, at, 11 * sector), (106, 107, 112))
    return disk.with_bytes(at + 11 * sector, struct.pack("<I", total) * (sector // 4))


def _bcache(disk: SparseDisk, at: int) -> SparseDisk:
    raw = _bytes(disk, at, 208 + 8 * 256)
    return _put(disk, at, crc64(raw[8 : 208 + 8 * min(_number(raw, 206, 2), 256)]), 8)


def _apfs(disk: SparseDisk, at: int) -> SparseDisk:
    block = min(max(_number(_bytes(disk, at + 36, 4), 0), 4096), 65536)
    return _put(disk, at, fletcher64(_bytes(disk, at + 8, block - 8)), 8)


def _erofs(disk: SparseDisk, at: int) -> SparseDisk:
    bits = _bytes(disk, at + 12, 1)
    block = 1 << bits[0] if bits and 11 <= bits[0] <= 16 else 4096
    raw = _bytes(disk, at, block - 1024)
    return _put(disk, at + 4, crc32c(raw[:4] + bytes(4) + raw[8:]))


def _ddf(disk: SparseDisk, at: int) -> SparseDisk:
    raw = _bytes(disk, at, 512)
    return disk.with_bytes(at + 4, crc32_seeded(raw[:4] + b"\xff" * 4 + raw[8:], 0).to_bytes(4, "big"))


def _intel(disk: SparseDisk, at: int) -> SparseDisk:
    raw = _bytes(disk, at, 512)
    length = min(_number(raw, 36), 512) & ~3
    return _put(disk, at + 32, sum(_number(raw, word) for word in range(0, length, 4)) - _number(raw, 32))


_STRUCTURES: tuple[tuple[bytes, int, Mend], ...] = (
    (b"\x53\xef", 0x38, _ext),
    (b"XFSB", 0, _xfs),
    (b"_BHRfS_M", 64, _btrfs),
    (b"\x10\x20\xf5\xf2", 0, _f2fs),
    (b"EXFAT   ", 3, _exfat),
    (bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"), 24, _bcache),
    (b"NXSB", 32, _apfs),
    (b"\xe2\xe1\xf5\xe0", 0, _erofs),
    (b"\xde\x11\xde\x11", 0, _ddf),
    (b"Intel Raid ISM Cfg Sig. ", 0, _intel),
    (b"\xfc\x4e\x2b\xa9", 0, _md),
    (b"LABELONE", 0, _lvm_label),
    (b" LVM2 x[5A%r0N*>", 4, _lvm_area),
    (b"LUKS\xba\xbe", 0, _luks2),
    (b"SKUL\xba\xbe", 0, _luks2),
    (b"EFI PART", 0, _gpt),
)


def fix_sector_0(disk: SparseDisk) -> SparseDisk:
    """Fix sector 0: a Sun label is valid if its 16-bit words cancel out, an SGI label if its 32-bit words add up to
    zero.
    """
    sector = _bytes(disk, 0, 512).ljust(512, b"\0")
    if sector[508:510] == b"\xda\xbe":
        total = 0
        for (word,) in struct.iter_unpack(">H", sector[:510]):
            total ^= word
        return disk.with_bytes(510, total.to_bytes(2, "big"))
    if sector[:4] == b"\x0b\xe5\xa9\x41":
        words = sum(word for (word,) in struct.iter_unpack(">I", sector[:504] + bytes(4) + sector[508:]))
        return disk.with_bytes(504, (-words & 0xFFFFFFFF).to_bytes(4, "big"))
    return disk
