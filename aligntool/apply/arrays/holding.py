"""The members of an array to be, all at once taken for oneself from the last look at them until their tables stand.

udev looks at a drive when a writer closes it, and adds what it finds there to arrays and volume groups. So no member
may be given back while any of them still holds what the plan gives up: of an earlier array that is half erased, the
other half would be assembled and be in use.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from aligntool.apply.disk_device import DiskDevice
from aligntool.apply.hold import Holding, hold_disk, hold_partition
from aligntool.errors import Refused, objection_of, refuse
from aligntool.plan import MakeMember, Step

_WHY = "a member of an array"


class HeldMembers:
    """What is held, by path. What is not held yet is held for as long as it is used."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._disks: dict[str, Holding] = {}
        self._partitions: dict[str, DiskDevice] = {}

    def hold(self, step: MakeMember) -> None:
        """A whole drive as `hold_disk` does; of a drive whose partition is taken, that partition. Raises Refused."""
        path = step.disk.path
        if step.entries or step.device == path:
            self._disks[path] = self._stack.enter_context(hold_disk(path, why=_WHY))
        else:
            self._partitions[step.device] = self._stack.enter_context(hold_partition(step.device))

    @contextmanager
    def disk(self, path: str) -> Iterator[Holding]:
        if path in self._disks:
            yield self._disks[path]
        else:
            with hold_disk(path, why=_WHY) as held:
                yield held

    @contextmanager
    def partition(self, path: str) -> Iterator[DiskDevice]:
        if path in self._partitions:
            yield self._partitions[path]
        else:
            with hold_partition(path) as device:
                yield device

    def release(self) -> bool:
        """Give all of them back; return whether anything was held."""
        held = bool(self._disks or self._partitions)
        self._disks.clear()
        self._partitions.clear()
        self._stack.close()
        return held


@contextmanager
def hold_members(steps: Sequence[Step]) -> Iterator[HeldMembers]:
    """Raises Refused with the reasons of all members."""
    refused: list[Refused] = []
    members = HeldMembers()
    try:
        for step in steps:
            try:
                if isinstance(step, MakeMember):
                    members.hold(step)
            except Refused as refusal:
                refused.append(refusal)
        refuse(objection_of(refusal) for refusal in refused)
        yield members
    finally:
        members.release()
