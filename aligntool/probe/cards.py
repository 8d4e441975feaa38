"""What an SD card states of its flash: the SD Status register."""

from aligntool.units import KIB, MIB

_DIGITS = 128  # 512 bits in hexadecimal
_AU_AT = 20  # bits 431 to 428 (SD Physical Layer Simplified Specification 4.10.2): the 21st digit
_AU_SIZES = (
    0, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 12 * MIB,
    16 * MIB, 24 * MIB, 32 * MIB, 64 * MIB,
)  # fmt: skip


def read_allocation_unit(status: str | None) -> int | None:
    """Return the allocation unit in bytes, 0 where the card states none; None: the register is not readable here."""
    digits = (status or "").strip()
    if len(digits) != _DIGITS or digits.strip("0123456789abcdefABCDEF") or not digits.strip("0"):
        return None
    return _AU_SIZES[int(digits[_AU_AT], 16)]
