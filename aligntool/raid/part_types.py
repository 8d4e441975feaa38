"""A partition that is taken as a member gets the type of one.

In: the members as they are placed. Out: steps. Alone because it is all that is changed in a table that stays: with the
type of a swap space, of /home or of an EFI system partition, systemd-gpt-auto-generator(8), installers and firmware
take a member for that.
"""

from collections.abc import Iterator, Sequence

from aligntool.inventory import TableLabel
from aligntool.plan import RunCommand
from aligntool.raid.members import Member
from aligntool.raid.placing import Placed
from aligntool.recipe.roles import ROLES


def type_steps(placed: Sequence[Placed]) -> Iterator[RunCommand]:
    """Behind the array: before that a member is only what the plan says while its table is the one it was.

    The kernel keeps no types, so it is not told (sfdisk(8), --no-tell-kernel): that would fail while others of the
    drive's partitions are in use.
    """
    for each in placed:
        part, path, wanted = each.member.partition, each.member.disk.path, _raid_type(each.member)
        if part is not None and wanted and part.type_code.removeprefix("0x").upper() != wanted.upper():
            yield RunCommand(
                f"give {each.device} the type of a member",
                ("sfdisk", "--no-tell-kernel", "--part-type", path, str(part.number), wanted),
            )


def _raid_type(member: Member) -> str:
    """As sfdisk takes it: a GUID, or a byte without 0x; "": tables of that kind have no such type."""
    role, table = ROLES["linux-raid"], member.disk.table
    if table is None or table.label not in (TableLabel.GPT, TableLabel.DOS):
        return ""
    return role.gpt if table.label is TableLabel.GPT else (role.mbr or "").removeprefix("0x")
