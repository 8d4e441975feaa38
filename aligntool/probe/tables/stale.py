"""A GPT that was left behind under another table.

Comes in: what was found of a GPT on a disk whose MBR is an ordinary one. Goes out: the fault that says so. Alone
because the finding is about two tables, and neither of their parsers knows the other.
"""

from aligntool.inventory import Fault, TableFault
from aligntool.probe.tables.gpt import GptPair


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
