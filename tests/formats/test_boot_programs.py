"""Programs that are found by their place on the disk are named: a partition over one of them must not move.

Offsets and magics: the sources that aligntool/formats/tables.py names.
"""

import pytest

from aligntool.contents.layers import read_contents
from aligntool.inventory import BootCode
from aligntool.units import KIB
from tests.formats.images import MIB, disk, mbr
from tests.in_memory import BytesReader

PARTITIONED = (0, mbr((0x83, 2048, 2048, 0)))
# Where the program begins, where its magic is, the magic.
BOOT_ROMS = [
    *((at * KIB, at * KIB + 4, b"eGON.BT0", "Allwinner") for at in (8, 128, 256)),
    *((at * KIB, at * KIB, b"TOC0.GLH", "Allwinner") for at in (8, 128, 256)),
    *((32 * KIB, 32 * KIB, magic, "Rockchip") for magic in (bytes.fromhex("3b8cdcfcbe9f9d51"), b"RKNS")),
    *((at * KIB, at * KIB, b"\xd1\0\x20" + last, "i.MX") for at in (1, 32, 33) for last in (b"@", b"A", b"B", b"C")),
    (512, 512 + 16, b"@AML", "Amlogic"),
    (512, 512, b"BRLYT\0", "MediaTek"),
    *((at * KIB, at * KIB + 20, b"CHSETTINGS", "OMAP") for at in (0, 128, 256, 384)),
]  # fmt: skip
ENCRYPTION = [
    (6, b"VeraCrypt Boot Loader", "VeraCrypt"),
    (6, b"TrueCrypt Boot Loader", "TrueCrypt"),
    (3, b"PGPGUARD", "PGP Whole Disk Encryption"),
    (3, b"SafeBoot", "SafeBoot"),
    (3, b"Safeboot", "SafeBoot"),
    (126, b"SGM400", "SafeGuard"),
    (126, b"SGE400", "SafeGuard"),
    (10, b"PCGM", "GuardianEdge"),
    (90, b"Protect", "Check Point Full Disk Encryption"),
    (246, b"WMSD", "SecureDoc"),
]


def boot_code(*pieces: tuple[int, bytes]) -> tuple[BootCode, ...]:
    contents = read_contents(BytesReader(disk(4 * MIB, PARTITIONED, *pieces)), sector_size=512)
    assert contents.table is not None
    return contents.table.boot_code


@pytest.mark.parametrize(("start", "at", "magic", "name"), BOOT_ROMS)
def test_the_program_of_a_boot_rom_is_named_with_its_place(start: int, at: int, magic: bytes, name: str) -> None:
    assert boot_code((at, magic)) == (BootCode(f"{name} boot loader", start),)
    assert boot_code((at + 1, magic)) == ()


@pytest.mark.parametrize(("at", "mark", "name"), ENCRYPTION)
def test_an_encryption_of_the_whole_disk_is_named(at: int, mark: bytes, name: str) -> None:
    assert boot_code((at, mark)) == (BootCode(name, 0, encrypts=True),)
