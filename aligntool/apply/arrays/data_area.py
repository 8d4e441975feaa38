"""What old content there would show through a new array, where its data will lie on its members.

In: a member's step. Out: sentences. Alone because the moment an array runs udev looks into it: an old volume group or
array that begins where its data begin is started, and has the array in use before a file system is made on it.
"""

from collections.abc import Iterator

from aligntool.apply.arrays.running import ask
from aligntool.audit.words import shell_word
from aligntool.errors import Objection
from aligntool.plan import DataArea, MakeMember
from aligntool.units import Extent


def old_signatures(step: MakeMember, area: DataArea) -> Iterator[Objection]:
    """What blkid finds, though no table shows it, where new partitions would be and where the array's data would: a
    lost partition, an old member, what an earlier array held.
    """
    for entry in step.entries:
        yield from _shown(step.disk.path, entry.extent, "where the new partition begins")
    if not area.offset:
        return
    if step.entries:
        yield from _shown(
            step.disk.path, area.of(step.entries[-1].extent), "where the array's data would begin"
        )
    else:
        yield from _shown(
            step.device, Extent(area.offset, area.length or 0), "where the array's data would begin"
        )


def _shown(device: str, place: Extent, where: str) -> Iterator[Objection]:
    """`place` without a length: to the end of the device."""
    length = ("-S", str(place.length)) if place.length else ()
    said = ask(
        "blkid", "-p", "-O", str(place.start), *length, "-o", "value", "-s", "TYPE", "-s", "PTTYPE", device
    )
    if said.code == 0 and said.output.strip():
        why = f"{device} holds {said.output.split()[0]} at byte {place.start}, {where}"
        yield why, f"sudo blkid -p -O {place.start} {shell_word(device)}"
    elif said.code not in (0, 2):
        yield f"{device}: blkid cannot tell what lies at byte {place.start}: {said.last_words}", ""
