"""A GPT that was left behind: under another table, or at the ends of a drive that became a member of an array.

Comes in: what was found of a GPT on a disk whose MBR is an ordinary one. Goes out: the fault that says so. Alone
because the finding is about two tables, and neither of their parsers knows the other.
"""

from aligntool.inventory import Fault, TableCopy, TableCopyState, TableFault
from aligntool.probe.reader import Reader
from aligntool.probe.tables.gpt import GptPair
from aligntool.probe.tables.gpt_copy import read_copy


def leftover_gpt(gpt: GptPair | None) -> tuple[TableFault, ...]:
    """Only a header whose checksum is right counts: less than that no tool would take for a GPT either."""
    if gpt is None or not gpt.has_header:
        return ()
    copy = gpt.primary if gpt.primary.header_crc_good else gpt.backup
    detail = (
        f"a GPT ({copy.name} copy at byte {copy.at}) is on this disk too, but the MBR has no 0xEE entry: Linux uses "
        "the MBR, other systems may use the GPT"
    )
    return (TableFault(Fault.PROTECTIVE_MBR, detail, copy.at),)


def gpt_headers(reader: Reader, sector_size: int) -> tuple[TableCopy, ...]:
    """The headers, in the second sector and in the last, that name themselves as being there and whose checksum is
    right: whatever looks for a GPT takes the disk for one that has it (UEFI 5.3.2), entries or not.
    """
    last = reader.size // sector_size - 1
    if last < 2:
        return ()
    copies = [read_copy(reader, "primary", 1, sector_size), read_copy(reader, "backup", last, sector_size)]
    told = [copy.told() for copy in copies if copy.header_crc_good]
    return tuple(copy for copy in told if copy.state in (TableCopyState.GOOD, TableCopyState.ENTRIES_CRC_BAD))
