"""What md made of a command, against what the plan said.

In: a MakeArray step, the size that was planned, the array's folder in sysfs. Out: what differs, a phrase each. Alone
because mdadm and the kernel round, and take whole members where they are told of no size: what runs is then not what
was shown, though every member is there.
"""

from collections.abc import Iterator
from pathlib import Path

from aligntool.plan import MakeArray
from aligntool.units import KIB, format_size

SECTOR = 512
ROUNDING = 64 * KIB  # of a member without a chunk


def unlike(step: MakeArray, folder: Path, size: int | None = None) -> Iterator[str]:
    """`folder`: /sys/block/md127. `size`: of the array, bytes; None: it is not looked at.

    Documentation/admin-guide/md.rst: chunk_size is in bytes, offset in sectors, and so is the size of a block device.
    What sysfs does not show differs in nothing.
    """
    chunk = step.chunk
    found = _number(folder / "md" / "chunk_size")
    if chunk is not None and found is not None and found != chunk:
        yield f"its chunk is {format_size(found)} and not {format_size(chunk)}"
    offset = step.data.offset
    for file in sorted((folder / "md").glob("dev-*/offset")):
        found = _number(file)
        if offset and found is not None and found * SECTOR != offset:
            name = file.parent.name.removeprefix("dev-")
            yield f"its data begin {format_size(found * SECTOR)} into {name} and not {format_size(offset)}"
    found = _number(folder / "size")
    if size is not None and found is not None:
        slack = max(chunk or 0, ROUNDING) * len(step.members)
        if abs(found * SECTOR - size) > slack:
            yield f"it has {format_size(found * SECTOR)} and not {format_size(size)}"


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().split()
    except OSError:
        return None
    return int(text[0]) if text and text[0].isdigit() else None
