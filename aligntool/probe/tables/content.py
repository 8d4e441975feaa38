"""Is this the start of a file system, and not of a partitioned disk?

Comes in: sector 0, or a place on the disk. Goes out: the name of what was recognised, or None. No verdict on the file
system itself: that is the content probe's. Alone because the rule "a boot sector is not a partition table" is one
decision, taken here: FAT, NTFS, exFAT and BitLocker boot sectors carry 55 AA at the same place as an MBR, and their
messages for people lie where an MBR has its entries (util-linux issue 4103).
"""

import struct

from aligntool.probe.reader import Reader
from aligntool.probe.tables.reading import peek

_OEM_NAMES = {
    b"NTFS    ": "ntfs",
    b"EXFAT   ": "exfat",
    b"-FVE-FS-": "BitLocker",
    b"ReFS\0\0\0\0": "ReFS",
    b"HPFS": "hpfs",
}
_SECTOR_SIZES = (512, 1024, 2048, 4096)
# (offset, magic, name): what can stand at the start of a partition or of a disk without partitions
_MAGICS = (
    (0, b"XFSB", "xfs"),
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
    (0x200, b"LABELONE", "LVM2_member"),
    (0, b"LABELONE", "LVM2_member"),
    (0x400, b"LABELONE", "LVM2_member"),
    (0x600, b"LABELONE", "LVM2_member"),
    (0x438, b"\x53\xef", "ext"),
    (0x400, b"\x10\x20\xf5\xf2", "f2fs"),
    (0x400, b"H+\0\x04", "hfsplus"),
    (0x400, b"HX\0\x05", "hfsplus"),
    (0x400, b"BD", "hfs"),
    (0x20, b"NXSB", "apfs"),
    (0, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (0x1018, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"), "bcache"),
    (0xFF6, b"SWAPSPACE2", "swap"),
    (0xFF6, b"SWAP-SPACE", "swap"),
    (0x8001, b"CD001", "iso9660"),
    (0x10040, b"_BHRfS_M", "btrfs"),
)
_NEAR = 0x1100  # one read for all the magics below this offset


def boot_sector(sector: bytes) -> str | None:
    """The file system whose boot sector this is."""
    if len(sector) < 512:
        return None
    for name, kind in _OEM_NAMES.items():
        if sector.startswith(name, 3):
            return kind
    for magic, kind in ((b"XFSB", "xfs"), (b"LUKS\xba\xbe", "crypto_LUKS")):
        if sector.startswith(magic):
            return kind
    return "vfat" if _is_fat(sector) else None


def _is_fat(sector: bytes) -> bool:
    """A BIOS parameter block whose numbers can be one (Microsoft's FAT specification, section 3.1).

    An MBR of GRUB keeps room for such a block but leaves it zero, so the numbers tell the two apart.
    """
    size, per_cluster, reserved, fats, _, total16, media = struct.unpack_from("<HBHBHHB", sector, 11)
    return (
        size in _SECTOR_SIZES
        and per_cluster > 0
        and per_cluster & (per_cluster - 1) == 0
        and reserved > 0
        and 0 < fats <= 4
        and (media == 0xF0 or media >= 0xF8)
        and (total16 > 0 or int.from_bytes(sector[32:36], "little") > 0 or sector.startswith(b"FAT32", 82))
    )


def starts_at(reader: Reader, offset: int) -> str | None:
    """What is recognised at `offset`: a file system, a RAID or LVM member, swap, LUKS. At most three short reads."""
    near = peek(reader, offset, _NEAR) or b""
    kind = boot_sector(near[:512])
    if kind:
        return kind
    for at, magic, name in _MAGICS:
        found = near[at : at + len(magic)] if at < _NEAR else peek(reader, offset + at, len(magic))
        if found == magic:
            return name
    return None
