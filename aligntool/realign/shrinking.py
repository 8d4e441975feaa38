"""Which file system to shrink, and by how little, so that everything fits.

In: the disk, what is used of it, and a way to ask whether everything would fit. Out: new lengths, or words about what
would help. Alone because shrinking is the one thing here that changes more than places.

The last file system that can be shrunk is tried first: what lies behind it moves least. ext2, ext3 and ext4 are shrunk
by resize2fs, NTFS by ntfsresize, btrfs by `btrfs filesystem resize`. XFS cannot be shrunk (xfs_growfs(8)).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aligntool.audit.words import next_command
from aligntool.inventory import Disk, Partition, Role
from aligntool.plan import Used
from aligntool.realign.holds import kind_of
from aligntool.realign.reasons import partition_reasons
from aligntool.realign.search import Found
from aligntool.units import MIB, align_down, align_up, format_size

SHRINKABLE = ("ext2", "ext3", "ext4", "ntfs", "btrfs")
_LEAST = {"btrfs": 256 * MIB}  # btrfs_ioctl_resize() in the kernel's fs/btrfs/ioctl.c


@dataclass(frozen=True, slots=True)
class Shrunk:
    kind: str
    length: int  # bytes that the partition has afterwards


Fits = Callable[[Mapping[int, Shrunk]], Found | None]


def room_by_shrinking(
    disk: Disk, used: Mapping[int, Used], fits: Fits
) -> tuple[Found, dict[int, Shrunk]] | None:
    """The first file system, from the end of the disk, that can give enough; by the least number of MiB."""
    for part in shrinkable(disk):
        most = _most(part, used)
        if most < MIB or _try(part, most, fits) is None:
            continue
        low, high = 0, most // MIB  # `low` MiB are too few, `high` are enough
        while high - low > 1:
            middle = (low + high) // 2
            if _try(part, middle * MIB, fits) is None:
                low = middle
            else:
                high = middle
        found = _try(part, high * MIB, fits)
        if found is not None:
            return found, {part.number: _shrunk(part, high * MIB)}
    return None


def what_would_help(disk: Disk, used: Mapping[int, Used], fits: Fits, *, shrink: bool) -> tuple[str, str]:
    """The end of a sentence, and the next thing to type; both empty when nothing would."""
    if shrink:
        kinds = {kind_of(part) for part in disk.partitions if part.role is not Role.EXTENDED}
        only = " (XFS cannot be shrunk)" if "xfs" in kinds else ""
        return f"; no file system here can be shrunk by as much as that takes{only}", ""
    shorter = room_by_shrinking(disk, used, fits)
    if shorter is None:
        return "", ""
    number, one = next(iter(shorter[1].items()))
    by = next(part.extent.length for part in disk.partitions if part.number == number) - one.length
    said = f"; it would fit if the {one.kind} on partition {number} were shrunk by {format_size(by)}"
    return said, next_command(disk, "realign", "--shrink")


def attention_to_shrunk(shrunk: Mapping[int, Shrunk]) -> Iterator[str]:
    """ntfsresize sets the dirty flag; ntfs_fill_super() (Linux, fs/ntfs3/super.c) wants it gone or `force`."""
    for number, one in sorted(shrunk.items()):
        if one.kind == "ntfs":
            yield (
                f"partition {number}: Windows checks an NTFS that was shrunk at its next start; until then Linux'"
                " ntfs3 does not mount it writable (ntfs-3g does)"
            )


def shrinkable(disk: Disk) -> tuple[Partition, ...]:
    """From the end of the disk to its start."""
    found = [
        part
        for part in disk.partitions
        if part.role in (Role.PRIMARY, Role.LOGICAL) and kind_of(part) in SHRINKABLE
    ]
    against = partition_reasons(disk, found)
    found = [part for part in found if not against[part.number]]
    return tuple(sorted(found, key=lambda part: -part.extent.start))


def _most(part: Partition, used: Mapping[int, Used]) -> int:
    """Bytes that can be taken away: what is used stays, an eighth more and 1 MiB, for tables and fragments.

    Half of it where nobody asked what is used; the file system's own tool refuses when that is too much.
    """
    stays = used[part.number].bytes if part.number in used else part.extent.length // 2
    stays = max(align_up(stays + stays // 8 + MIB, MIB), _LEAST.get(kind_of(part), 0))
    return align_down(part.extent.length - stays, MIB)


def _try(part: Partition, by: int, fits: Fits) -> Found | None:
    found = fits({part.number: _shrunk(part, by)})
    return found if found is not None and found.journal is not None else None


def _shrunk(part: Partition, by: int) -> Shrunk:
    return Shrunk(kind_of(part), part.extent.length - by)
