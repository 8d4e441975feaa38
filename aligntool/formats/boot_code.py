"""Boot programs that are found by their place on the disk, and how far the gap before the first partition is used.

Comes in: a `Reader` and the partitions. Goes out: what a move of partitions must neither overwrite nor leave behind.
Alone because it is a table of facts about boot ROMs and boot sectors. Sources: U-Boot's doc/board (allwinner, amlogic,
nxp, rockchip), doc/README.mediatek, include/sunxi_image.h, include/imximage.h, tools/rkcommon.c, tools/omapimage.c;
TI SPRUH73 26.1.8.5; GRUB's include/grub/i386/pc/boot.h; GRUB Legacy's stage1/stage1.h; LILO's first.S; Ventoy's
grub-core/ventoy/ventoy_cmd.c (ventoy_check_official_device); The Sleuth Kit's tsk/util/detect_encryption.c.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aligntool.formats.reader import Reader, TableReading, peek
from aligntool.inventory import BootCode, Partition, Role
from aligntool.units import KIB, MIB, align_down

GAP_READ = 64 * MIB  # of the gap; boot programs of known boards end at 16 MiB
_SECTOR = 512
_HEAD = 512 * KIB
_ROCKCHIP = bytes.fromhex(
    "3b8cdcfcbe9f9d51"
)  # magic 0x0FF0AA55 and four zeros, in RC4 with the boot ROM's key
# (where the program begins, offset of the magic in it, magic, name)
_MAGICS = (
    *((at * KIB, 4, b"eGON.BT0", "Allwinner boot loader") for at in (8, 128, 256)),
    *((at * KIB, 0, b"TOC0.GLH", "Allwinner boot loader") for at in (8, 128, 256)),
    *((32 * KIB, 0, magic, "Rockchip boot loader") for magic in (_ROCKCHIP, b"RKNS")),
    *(
        (at * KIB, 0, b"\xd1\x00\x20" + version, "i.MX boot loader")
        for at in (1, 32, 33)
        for version in (b"\x40", b"\x41", b"\x42", b"\x43")
    ),
    (512, 16, b"@AML", "Amlogic boot loader"),
    (512, 0, b"BRLYT\0", "MediaTek boot loader"),
    *((at * KIB, 20, b"CHSETTINGS", "OMAP boot loader") for at in (0, 128, 256, 384)),
)
# Disk encryption of PCs, which counts in sectors of the disk: (where in sector 0 the mark begins, and the marks)
_ENCRYPTION = (
    (0, 400, "VeraCrypt", (b"VeraCrypt",)),
    (0, 400, "TrueCrypt", (b"TrueCrypt",)),
    (3, 4, "PGP Whole Disk Encryption", (b"PGPGUARD",)),
    (0, 32, "SafeBoot", (b"SafeBoot", b"Safeboot")),
    (110, 150, "SafeGuard", (b"SGM400", b"SGE400")),
    (0, 32, "GuardianEdge", (b"PCGM",)),
    (80, 100, "Check Point Full Disk Encryption", (b"Protect",)),
    (236, 256, "SecureDoc", (b"WMSD",)),
)
_GRUB = b"Geom\0Hard Disk\0Read\0 Error"
_GRUB_LEGACY_VERSION = b"\x03\x02"
_VENTOY = b"VT\0Ge\0HD\0Rd\0 Er\r"


def with_boot_code(reader: Reader, reading: TableReading) -> TableReading:
    """Return the same table with what of a boot program lies outside partitions, or is found by its place."""
    if reading.table is None:
        return reading
    head = peek(reader, 0, _HEAD) or b""
    found = (*_in_sector_0(head[:_SECTOR]), *_by_magic(head))
    used_to = _gap_used_to(reader, reading.partitions)
    return replace(reading, table=replace(reading.table, boot_code=found, gap_used_to=used_to))


def _by_magic(head: bytes) -> Iterator[BootCode]:
    for at, offset, magic, kind in _MAGICS:
        if head.startswith(magic, at + offset):
            yield BootCode(kind, at)


def _in_sector_0(sector: bytes) -> Iterator[BootCode]:
    for first, last, kind, marks in _ENCRYPTION:
        if any(sector.find(mark, first, last + len(mark)) >= 0 for mark in marks):
            yield BootCode(kind, 0, encrypts=True)
    if sector.startswith(b"LILO", 6):
        yield BootCode("LILO", 0)
    if sector.startswith(_VENTOY, 0x190):
        yield BootCode("Ventoy", 0)
    elif _GRUB in sector[0x170:0x1B8]:
        if sector.startswith(_GRUB_LEGACY_VERSION, 0x3E):
            yield BootCode("GRUB Legacy", struct.unpack_from("<I", sector, 0x44)[0] * _SECTOR)
        else:
            yield BootCode("GRUB", struct.unpack_from("<Q", sector, 0x5C)[0] * _SECTOR)


def _gap_used_to(reader: Reader, partitions: Sequence[Partition]) -> int | None:
    """Return the byte behind the last one that is not zero; what cannot be read counts as used. From its end.

    An extended partition is a part of the gap: its logical partitions may begin far behind its first sector.
    """
    holding = (part for part in partitions if part.role not in (Role.NESTED, Role.EXTENDED))
    first = min((part.extent.start for part in holding), default=0)
    end = min(first, GAP_READ, reader.size)
    while end > MIB:
        start = max(MIB, align_down(end - 1, MIB))
        piece = peek(reader, start, end - start)
        if piece is None or len(piece) < end - start:
            return end
        filled = len(piece.rstrip(b"\0"))
        if filled:
            return start + filled
        end = start
    return None
