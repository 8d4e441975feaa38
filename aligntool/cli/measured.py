"""What was measured before, for an audit.

In: files of `aligntool probe -o`, and the disks that are audited. Out: what was measured on them. Alone because a
measurement of another disk must not pass for one of this.
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.audit.wishes import MeasuredDisk
    from aligntool.inventory import Inventory

_LONGEST = 1 << 20


def measured_on(files: Sequence[str], inventory: "Inventory") -> "tuple[MeasuredDisk, ...]":
    """Raises Refused for a file that cannot be read, is no result of a probe, or is of none of these disks, where all
    of them could be looked at.
    """
    from aligntool.audit.words import shell_word
    from aligntool.bench.inference_file import read_measured
    from aligntool.cli.asked import command

    again = ""
    for disk in inventory.disks[:1]:
        again = command("probe", disk.path, "-o", shell_word(f"{PurePath(disk.path).name}-measured.json"))
    found = []
    for name in files:
        measured = read_measured(_text(name), name, again)
        if not any(measured.is_of(disk) for disk in inventory.disks) and not _missing(inventory):
            which = measured.serial or measured.path
            raise Refused(
                f"{name} was measured on another disk: {which}",
                hint=command("audit", measured.path, "--measured", shell_word(name)),
            )
        found.append(measured)
    return tuple(found)


def _missing(inventory: "Inventory") -> bool:
    """Whether a target could not be judged: nothing tells which disk that is."""
    from aligntool.inventory import Gap

    return any(one.gap in (Gap.DISK, Gap.NO_ANSWER) for one in inventory.unseen)


def _text(name: str) -> str:
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - the user's own spelling
            return file.read(_LONGEST).decode("utf-8", "replace")
    except OSError as error:
        raise Refused(f"{name} cannot be read: {error.strerror}") from error
