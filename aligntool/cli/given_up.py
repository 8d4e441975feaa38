"""A disk that the user gives up to be measured: only an empty one, and only after its identity was typed.

In: the disk as it was seen. Out: nothing, or a Refused with every reason. Alone because measuring is no reason to lose
data, so that no option makes it one.
"""

from pathlib import PurePath

from aligntool.cli.asked import command
from aligntool.cli.confirm import confirm_disk
from aligntool.errors import Refused
from aligntool.inventory import Disk


def refuse_unless_empty(disk: Disk) -> None:
    """As for a benchmark. Raises Refused for a disk with a table, a file system or a signature, that fails, is in use,
    or could not be looked at.
    """
    from aligntool.bench.refusals import refuse_destruction

    try:
        refuse_destruction(disk, None)
    except Refused as refusal:
        only = f"without --destructive it is only read: {command('probe', disk.path)}"
        raise Refused(str(refusal), hint=f"{refusal.hint}\n{only}".strip()) from None


def confirm_given_up(disk: Disk, yes: bool) -> None:
    """Returns when the user typed the serial number, or the name of a disk that has none. Raises Refused."""
    serial = (disk.serial or "").strip()
    word, what = (serial, "the disk's serial number") if serial else (PurePath(disk.path).name, "its name")
    confirm_disk(disk.path, word, what, yes)
