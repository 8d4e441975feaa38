"""One sector with an MBR's four entries, whichever it is: the MBR, an EBR of the chain, a Minix partition's own.

Comes in: 512 bytes. Goes out: entries in sectors, as they stand. Alone because the MBR, the EBRs, the nested tables and
the GPT's protective MBR all read it. Layout: UEFI specification, section 5.2.1.
"""

import struct
from dataclasses import dataclass

from aligntool.probe.tables.mbr_types import EXTENDED_TYPES, GPT_PROTECTIVE

_FIRST_ENTRY = 0x1BE
_AIX = b"\xc9\xc2\xd4\xc1"  # "IBMA" in EBCDIC: an AIX disk, whose 55 AA means nothing (kernel msdos.c)


@dataclass(frozen=True, slots=True)
class Entry:
    slot: int  # 1 to 4
    boot: int
    code: int
    start: int  # sectors
    sectors: int
    addresses: bytes = b""  # both CHS addresses, first and last: six bytes

    @property
    def is_extended(self) -> bool:
        return self.code in EXTENDED_TYPES

    @property
    def end(self) -> int:
        return self.start + self.sectors


@dataclass(frozen=True, slots=True)
class MbrSector:
    entries: tuple[Entry, ...]  # always four
    disk_signature: int
    aix: bool

    @property
    def used(self) -> tuple[Entry, ...]:
        """What Linux counts: a size is enough, a type is not asked for (hybrid ISO images have type 0)."""
        return tuple(entry for entry in self.entries if entry.sectors)

    @property
    def protective(self) -> Entry | None:
        """The 0xEE entry; of several, the one at sector 1, for the kernel asks for no more than one of that kind."""
        guards = [entry for entry in self.entries if entry.code == GPT_PROTECTIVE]
        return next((entry for entry in guards if entry.start == 1), guards[0] if guards else None)

    @property
    def boot_flags_plausible(self) -> bool:
        """The kernel's and blkid's first test that these are entries and not the text of a boot sector."""
        return all(entry.boot in (0, 0x80) for entry in self.entries)


def parse_sector(sector: bytes | None) -> MbrSector | None:
    """None where 55 AA is not at the end of the 512 bytes."""
    if sector is None or len(sector) < 512 or sector[510:512] != b"\x55\xaa":
        return None
    entries = []
    for slot in range(1, 5):
        at = _FIRST_ENTRY + 16 * (slot - 1)
        boot, first, code, last, start, sectors = struct.unpack_from("<B3sB3sII", sector, at)
        entries.append(Entry(slot, boot, code, start, sectors, first + last))
    signature = int.from_bytes(sector[440:444], "little")
    return MbrSector(tuple(entries), signature, sector.startswith(_AIX))
