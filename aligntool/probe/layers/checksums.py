"""The checksums that superblocks carry and Python's library lacks.

In: a few KiB of bytes. Out: a number to compare with the stored one. Tables are made at the first use, so that
an audit that needs none pays for none.
"""

import zlib
from functools import cache
from typing import Literal

CASTAGNOLI = 0x82F63B78  # CRC-32C, reflected
ECMA_182 = 0x42F0E1EBA9EA3693  # CRC-64, not reflected
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


@cache
def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (CASTAGNOLI if remainder & 1 else 0)
        table.append(remainder)
    return tuple(table)


@cache
def _crc64_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte << 56
        for _ in range(8):
            remainder = remainder << 1 & _MASK64 ^ (ECMA_182 if remainder >> 63 else 0)
        table.append(remainder)
    return tuple(table)


def crc32c(data: bytes, seed: int = _MASK32) -> int:
    """CRC-32C without the final inversion, as ext4 stores it; btrfs and XFS store the inverse."""
    table = _crc32c_table()
    crc = seed
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc


def crc32c_inverted(data: bytes) -> int:
    return crc32c(data) ^ _MASK32


def crc32_seeded(data: bytes, seed: int) -> int:
    """CRC-32 from a start value of one's own and without inversions: LVM (0xf597a6cf) and f2fs (0xf2f52010)."""
    return zlib.crc32(data, seed ^ _MASK32) ^ _MASK32


def crc64(data: bytes) -> int:
    """CRC-64/WE: bcache's."""
    table = _crc64_table()
    crc = _MASK64
    for byte in data:
        crc = crc << 8 & _MASK64 ^ table[crc >> 56 ^ byte]
    return crc ^ _MASK64


def folded_sum(data: bytes, order: Literal["little", "big"] = "little") -> int:
    """md's: 32-bit words, and a last half-word as a number, summed up, the carries added once."""
    total = sum(int.from_bytes(data[at : at + 4], order) for at in range(0, len(data), 4))
    return ((total & _MASK32) + (total >> 32)) & _MASK32


def fletcher64(data: bytes) -> int:
    """APFS's: Apple File System Reference, Object Checksum."""
    low = high = 0
    for at in range(0, len(data) & ~3, 4):
        low += int.from_bytes(data[at : at + 4], "little")
        high += low
    first = ~((low + high) % _MASK32) & _MASK32
    second = ~((low + first) % _MASK32) & _MASK32
    return second << 32 | first


def rotating_sum(data: bytes, skipped: tuple[int, ...]) -> int:
    """exFAT's boot checksum: specification 3.4. `skipped` are the bytes that change while mounted."""
    total = 0
    for at, byte in enumerate(data):
        if at not in skipped:
            total = ((total & 1) << 31) + (total >> 1) + byte & _MASK32
    return total


_XXH = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def xxh64(data: bytes) -> int:
    """xxHash, 64 bits, seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): btrfs's second checksum."""
    one, two, _, four, five = _XXH
    total = five
    striped = len(data) & ~31
    if striped:
        lanes = [(one + two) & _MASK64, two, 0, -one & _MASK64]
        for at in range(0, striped, 32):
            lanes = [_xxh_round(lane, _le64(data, at + 8 * index)) for index, lane in enumerate(lanes)]
        total = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK64
        for lane in lanes:
            total = ((total ^ _xxh_round(0, lane)) * one + four) & _MASK64
    total = (total + len(data)) & _MASK64
    for at in range(striped, len(data) - 7, 8):
        total = (_rotated(total ^ _xxh_round(0, _le64(data, at)), 27) * one + four) & _MASK64
    return _xxh_end(total, data[len(data) & ~7 :])


def _xxh_end(total: int, rest: bytes) -> int:
    one, two, three, _, five = _XXH
    if len(rest) >= 4:
        total = (
            _rotated(total ^ int.from_bytes(rest[:4], "little") * one & _MASK64, 23) * two + three
        ) & _MASK64
        rest = rest[4:]
    for byte in rest:
        total = _rotated(total ^ byte * five & _MASK64, 11) * one & _MASK64
    total = (total ^ total >> 33) * two & _MASK64
    total = (total ^ total >> 29) * three & _MASK64
    return total ^ total >> 32


def _xxh_round(lane: int, word: int) -> int:
    return _rotated((lane + word * _XXH[1]) & _MASK64, 31) * _XXH[0] & _MASK64


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _MASK64


def _le64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")
