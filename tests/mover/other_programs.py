"""What other programs do to a disk in flight: edit its table, use free space, put old copies back.

Each action changes the disk, and states what it owns afterwards: bytes that must stay as long as the table shows them.
"""

import random
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aligntool.units import Extent
from tests.conftest import run
from tests.mover.crowded_disks import Crowd
from tests.mover.entries import Seen, entries
from tests.mover.simulated_disk import SECTOR, SimulatedDisk


@dataclass(slots=True)
class World:
    """A disk, the partitions that other programs have grown or made on it, and those that they have deleted."""

    crowd: Crowd
    platter: bytes
    past: tuple[bytes, ...] = ()  # the disk at earlier moments
    claimed: tuple[Extent, ...] = ()  # bytes that nobody writes to, although no entry shows them
    grown: dict[int, tuple[Extent, bytes]] = field(default_factory=dict)  # by partition: bytes that were written to it
    deleted: set[int] = field(default_factory=set)
    acted: bool = False

    @property
    def entries(self) -> dict[int, Seen]:
        return entries(self.platter)

    def edit_table(self, *options: str, lines: str, numbers: tuple[str, ...] = ()) -> None:
        """Run sfdisk, which may refuse. `numbers`: of partitions, behind the name of the disk."""
        with tempfile.NamedTemporaryFile(suffix=".img", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
            file.write(self.platter)
            file.flush()
            never = ("--wipe", "never", "--wipe-partitions", "never", "--no-reread", "--no-tell-kernel", "--force")
            try:
                run("sfdisk", "-q", *never, *options, file.name, *numbers, stdin=lines, limit_s=30)
            except (AssertionError, subprocess.TimeoutExpired):
                return
            self.platter = Path(file.name).read_bytes()

    def write(self, at: int, data: bytes) -> None:
        self.platter = self.platter[:at] + data + self.platter[at + len(data) :]

    def free(self, claimed: tuple[Extent, ...] = ()) -> list[Extent]:
        """Return the runs that no entry of the table shows."""
        taken = sorted((*claimed, *(seen.extent for seen in self.entries.values())))
        at, found = 64 * SECTOR, []
        for extent in (*taken, Extent(len(self.platter) - 34 * SECTOR, 34 * SECTOR)):
            if extent.start > at:
                found.append(Extent(at, extent.start - at))
            at = max(at, extent.end)
        return found


Action = Callable[[World, random.Random], None]


def grow_a_neighbour(world: World, luck: random.Random) -> None:
    """Grow a partition that is not parked over the free space after it, and use that: growpart and resize2fs."""
    chances = [
        (number, seen.extent, run)
        for number, seen in world.entries.items()
        for run in world.free()
        if number < 4 and not seen.parked and run.start == seen.extent.end
    ]
    if not chances:
        return
    number, extent, room = luck.choice(chances)
    length = luck.randint(1, room.length // SECTOR) * SECTOR
    world.edit_table("-N", str(number), lines=f"{extent.start // SECTOR}, {(extent.length + length) // SECTOR}\n")
    grown = world.entries.get(number)
    if grown and grown.extent.end > extent.end:
        use(world, luck, number, Extent(extent.end, grown.extent.end - extent.end))


def use(world: World, luck: random.Random, number: int, room: Extent) -> None:
    data = luck.randbytes(room.length)
    world.write(room.start, data)
    world.grown[number] = (room, data)
    world.acted = True


def make_a_partition(world: World, luck: random.Random) -> None:
    """Make a partition in free space, and use it."""
    if not world.free():
        return
    room = max(world.free(), key=lambda run: run.length) if luck.random() < 0.5 else luck.choice(world.free())
    start = luck.randrange(room.start, room.end, SECTOR)
    length = luck.randint(1, (room.end - start) // SECTOR) * SECTOR
    before = set(world.entries)
    kind = "linux" if world.crowd.label == "gpt" else "83"
    world.edit_table("--append", lines=f"{start // SECTOR}, {length // SECTOR}, {kind}\n")
    for number in set(world.entries) - before:
        use(world, luck, number, world.entries[number].extent)


def delete_a_partition(world: World, luck: random.Random) -> None:
    number = luck.choice([number for number in world.entries if number < 4] or [1])
    world.edit_table("--delete", lines="", numbers=(str(number),))
    if number not in world.entries:
        world.deleted.add(number)
        world.acted = True


def write_to_free_space(world: World, luck: random.Random) -> None:
    """Write to bytes that no entry shows, and to no table."""
    if rooms := world.free(world.claimed):
        room = luck.choice(rooms)
        at = luck.randrange(room.start, room.end, SECTOR)
        length = min(luck.choice((1, 8, 100)) * SECTOR, room.end - at)
        world.write(at, luck.choice((luck.randbytes(length), bytes(length), b"\xff" * length)))
        world.acted = True


def put_an_old_copy_of_the_disk_back(world: World, luck: random.Random) -> None:
    """All of it."""
    if world.past:
        world.platter = luck.choice(world.past)
        world.acted = True


ACTIONS: tuple[Action, ...] = (
    grow_a_neighbour,
    make_a_partition,
    delete_a_partition,
    write_to_free_space,
    put_an_old_copy_of_the_disk_back,
)


class SharedDisk(SimulatedDisk):
    """A disk on which another program acts after an operation of the move, in spite of the lock."""

    def __init__(self, world: World, action: Action, luck: random.Random, *, after: int) -> None:
        super().__init__(world.platter)
        self._world, self._action, self._luck, self._after = world, action, luck, after

    def write(self, offset: int, data: bytes | memoryview) -> None:
        super().write(offset, data)
        self._let_act()

    def flush(self) -> None:
        super().flush()
        self._let_act()

    def _let_act(self) -> None:
        if self.operations == self._after:
            self._world.platter = self.read(0, self.size)
            self._action(self._world, self._luck)
            self._platter = bytearray(self._world.platter)
            self._cache = {}
