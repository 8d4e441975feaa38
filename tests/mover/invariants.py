"""The invariants of a disk at every moment of a move, and its recovery.

A violation raises AssertionError. Killed programs, failing media and replayed writes are all checked here:
docs/crash-safety.md, "The promise".
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aligntool.units import Extent
from tests.mover.command_line import DONE, REFUSED, STOPPED, exit_code, realign, resume, rollback
from tests.mover.disks import Disk, Seen, blkid, content_of, data_of, hidden_sector_fields, read
from tests.mover.filesystems import SECTOR, Kind


@dataclass(frozen=True)
class Journey:
    """A disk before the move, and the places at both ends of it. `disk` itself is never written."""

    disk: Disk
    options: tuple[str, ...]
    seen: dict[int, Seen]
    old: dict[int, Extent]
    new: dict[int, Extent]

    def kinds(self) -> dict[int, Kind]:
        return {number: row.kind for number, row in zip(self.disk.numbers(), self.disk.rows, strict=True)}

    def at(self, image: Path) -> Disk:
        """Return the same disk in another file."""
        return Disk(image, self.disk.rows)


def journey(disk: Disk, *options: str) -> Journey:
    """Determine the result of the move on a copy, which is kept next to the disk."""
    target = trial(disk)
    copy(disk.image, target)
    realign(target, *options)
    return arrived(disk, *options)


def trial(disk: Disk) -> Path:
    """Return the file in which the disk was moved to determine its result."""
    return disk.image.with_suffix(".moved")


def arrived(disk: Disk, *options: str) -> Journey:
    """Return the move that ends as in the trial file."""
    old, new = disk.extents(), Disk(trial(disk), disk.rows).extents()
    assert any(old[number] != new[number] for number in old)
    return Journey(disk, options, disk.seen(), old, new)


def copy(image: Path, target: Path) -> Path:
    """Copy a file; holes and zeros become holes."""
    assert image != target
    with image.open("rb") as source, target.open("wb") as file:
        file.truncate(image.stat().st_size)
        for at, piece in data_of(source.fileno(), Extent(0, image.stat().st_size)):
            file.seek(at)
            file.write(piece)
    return target


def check_signatures(trip: Journey, image: Path) -> None:
    """Check that blkid finds nothing at the old and at the new place, or what it found before, with
    everything intact.
    """
    for number, kind in trip.kinds().items():
        for place in {trip.old[number], trip.new[number]}:
            said = blkid(image, place)
            if not said or _but_for_redundant_signatures(trip, image, number, place):
                continue
            assert said == trip.seen[number].blkid, f"partition {number} at {place}"
            assert read(image, place, kind) == trip.seen[number].hashes, f"partition {number} at {place}"


REDUNDANT = 16  # sectors with signatures that are hidden or restored between the same two flushes; more than there are
OF_ZFS = 4 * 128  # uberblocks


def _but_for_redundant_signatures(trip: Journey, image: Path, number: int, place: Extent) -> bool:
    """Return whether only a few sectors differ, and they are markers: the power was cut while they were written.

    Sectors that contain the partition's place are excluded: they may be as before or as after.
    """
    kind = trip.kinds()[number]
    patched = {at // SECTOR for at, _ in hidden_sector_fields(kind)}
    with content_of(trip.disk.image, trip.old[number]) as was, content_of(image, place) as found:
        pairs = enumerate(zip(_sectors(was), _sectors(found), strict=True))
        wrong = [now for index, (before, now) in pairs if now != before and index not in patched]
    most = OF_ZFS if kind.name == "zfs" else REDUNDANT
    return 0 < len(wrong) <= most and all(now.startswith(b"aligntool: a partition was") for now in wrong)


def _sectors(content: Path) -> list[bytes]:
    whole = content.read_bytes()
    return [whole[at : at + SECTOR] for at in range(0, len(whole), SECTOR)]


def recover_and_check(trip: Journey, image: Path, target: Path, *options: str, back: bool) -> str:
    """Resume or roll back a move in flight; check that the disk is intact, and return its state."""
    finish: Callable[..., str] = rollback if back else resume
    said = finish(target, "--no-lease", *options, code=None)
    state = whole(trip, image)
    complete = back and state == "new" and "the move is complete" in said
    assert exit_code(said) in ({STOPPED} if complete else {DONE, REFUSED}), said
    if exit_code(said) == DONE:
        turned = "was visible when the work stopped" in " ".join(said.split())  # then only one way is open
        assert state == ("old" if back else "new") or turned or "nothing was in flight" in said, said
    assert exit_code(resume(target, "--no-lease", code=None)) == REFUSED, "there was still something to resume"
    return state


def whole(trip: Journey, image: Path) -> str:
    """Check that the disk is in its old or its new state with everything unchanged, and return which."""
    disk = trip.at(image)
    places = disk.extents()
    assert places in (trip.old, trip.new)
    assert disk.seen() == trip.seen
    disk.check()
    return "old" if places == trip.old else "new"
