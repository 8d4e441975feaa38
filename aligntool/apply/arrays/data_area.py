"""Where on each member an array's data will lie, and what old content there would show through the new array.

In: the steps of a plan. Out: runs of bytes of a member. Alone because the plan says it in the words of mdadm only, and
because the moment an array runs udev looks into it: an old volume group or array that begins where its data begin is
started, and has the array in use before a file system is made on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.apply.arrays.geometry import planned_size
from aligntool.apply.arrays.running import ask
from aligntool.plan import MakeArray, MakeMember, Step
from aligntool.units import MIB, Extent


@dataclass(frozen=True, slots=True)
class DataArea:
    """`offset` bytes from the start of each member, `length` long; None: as long as there is room."""

    offset: int = 0
    length: int | None = None

    def of(self, member: Extent) -> Extent:
        room = max(member.length - self.offset, 0)
        return Extent(member.start + self.offset, room if self.length is None else min(self.length, room))

    def ends(self, member: Extent) -> tuple[Extent, ...]:
        """Where signatures of what lay in the array before may be: a MiB at either end of it."""
        whole = self.of(member)
        edge = min(MIB, whole.length)
        return Extent(whole.start, edge), Extent(whole.end - edge, edge)


def data_area(steps: Sequence[Step]) -> DataArea:
    """By the command that makes the array."""
    for step in steps:
        if isinstance(step, MakeArray):
            return DataArea(planned_size(step, "--data-offset") or 0, planned_size(step, "--size"))
    return DataArea()


def old_signatures(step: MakeMember, area: DataArea) -> Iterator[str]:
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


def _shown(device: str, place: Extent, where: str) -> Iterator[str]:
    """`place` without a length: to the end of the device."""
    length = ("-S", str(place.length)) if place.length else ()
    said = ask(
        "blkid", "-p", "-O", str(place.start), *length, "-o", "value", "-s", "TYPE", "-s", "PTTYPE", device
    )
    if said.code == 0 and said.output.strip():
        yield f"{device} holds {said.output.split()[0]} at byte {place.start}, {where}"
    elif said.code not in (0, 2):
        yield f"{device}: blkid cannot tell what lies at byte {place.start}: {said.last_words}"
