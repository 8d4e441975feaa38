"""The steps of a plan: frozen values that say what is changed, and hold no file and no function."""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from aligntool.inventory import Disk, array_uuid, layers_on
from aligntool.units import MIB, Extent, merged

# The disk that a plan is about, by identity.
#
# Applying asks the same of the disk that it finds, and must come to the same answer.


@dataclass(frozen=True, slots=True)
class Subject:
    """The disk that a plan is for, by identity; `path` is only how the user called it."""

    path: str
    size: int
    sector_size: int  # bytes in the sectors of its table
    label: str | None  # "gpt", "dos"; None: no table
    disk_id: str | None  # disk GUID or MBR signature
    model: str | None
    serial: str | None
    wwn: str | None
    table_digest: str  # of every entry as it was read


def subject(disk: Disk) -> Subject:
    label, disk_id = (disk.table.label.value, disk.table.disk_id) if disk.table else (None, None)
    known = (label, disk_id, disk.model, disk.serial, disk.wwn, _digest(disk))
    return Subject(disk.path, disk.size or 0, disk.sector_size, *known)


def is_same_disk(one: Subject, other: Subject) -> bool:
    """By all that is known of it but its path: kernel names change from boot to boot."""
    return replace(one, path="") == replace(other, path="")


def held_by(disk: Disk, number: int | None = None, *, ignored_arrays: Collection[str] = ()) -> tuple[str, ...]:
    """Everything that is recognised on a partition, or on a disk and all its partitions, a line each: kind, UUID,
    label, byte. A table's digest says nothing of it. What lies inside of something else is among it, because it shows
    once the other's signature is erased. `ignored_arrays`: UUIDs of md arrays that are left out.
    """
    layers = [each for each in layers_on(disk, number) if array_uuid(each) not in ignored_arrays]
    return tuple(sorted(f"{one.kind} {one.uuid or '-'} {one.label or '-'} at {one.extent.start}" for one in layers))


def _digest(disk: Disk) -> str:
    """SHA-256, in hexadecimal, of everything that the table says: two tables have one digest only if they are alike."""
    parts = []
    for part in sorted(disk.partitions, key=lambda part: (part.number, part.extent)):
        named = (part.type_code, part.uuid, part.name, part.flags, part.record_at)
        parts.append((part.number, part.extent.start, part.extent.length, part.role.value, *named))
    label, disk_id = (disk.table.label.value, disk.table.disk_id) if disk.table else (None, None)
    return hashlib.sha256(json.dumps((label, disk_id, disk.sector_size, parts)).encode()).hexdigest()


# Where signatures of what lay on a drive before may be: at either end of what is on it, and of what will be.
#
# A plan shows them and applying zeroes them, of new tables and of the members of arrays alike.

HEAD = 5 * MIB
TAIL = 2 * MIB


@dataclass(frozen=True, slots=True)
class DataArea:
    """Where on each member an array's data will lie: `offset` bytes from its start, `length` long; None: to its end."""

    offset: int = 0
    length: int | None = None

    def of(self, member: Extent) -> Extent:
        room = max(member.length - self.offset, 0)
        return Extent(member.start + self.offset, room if self.length is None else min(self.length, room))


def wiped_ends(extents: Iterable[Extent], within: Extent, sector_size: int) -> tuple[Extent, ...]:
    """Whole sectors, none outside `within`, sorted, and no two of them overlap. All in bytes, `sector_size` as well.

    As far as libblkid looks from either end: LUKS2 has its second header 4 MiB in at most, bcachefs and VMFS theirs
    2 MiB in, Promise's RAID its superblock 3087 sectors of 512 bytes before the end (luks.c, bcache.c, vmfs.c,
    promise_raid.c). ZFS has 512 KiB at either end, md 0.90 up to 128 KiB from the end, LDM the last MiB.
    """
    ends = []
    for extent in extents:
        start, end = max(extent.start, within.start), min(extent.end, within.end)
        tail = max(end - TAIL, start)
        ends += [Extent(start, min(HEAD, end - start)), Extent(tail, end - tail)]
    return merged(ends, within, sector_size)


# The steps that a plan is made of: a small closed set of frozen values.
#
# Each step is idempotent and states the world before and after it: already after means done, neither means
# stop. Every size and offset is bytes. Offsets are counted from the start of the disk, unless a field says
# that they are counted from the start of the partition or of the journal.


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where the journal lies, and how it is divided: copy, other copy, stash.

    `extent` is counted from the start of the disk, or of `file` where the journal lies elsewhere. `stash` is counted
    from the start of `extent`.
    """

    extent: Extent
    copy_length: int  # of each of the two copies; a power of two
    stash: Extent
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What is taken off the disk and kept in the journal while the partition is in flight.

    `ranges` cover everything that blkid would recognise, counted from the start of the partition.
    """

    ranges: tuple[Extent, ...]

    @property
    def length(self) -> int:
        return sum(extent.length for extent in self.ranges)


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a copy is cut: docs/crash-safety.md, "Lanes"."""

    window: int  # the longest run that one lane moves at once; never longer than the distance
    batch: int  # bytes between two flushes, if there are enough lanes
    group: int  # bytes whose lanes run together
    stash: int  # bytes of stash that may be used
    staged: bool = False  # the distance is so short that everything goes through the stash


@dataclass(frozen=True, slots=True)
class Patch:
    """A field in a boot sector or a file that says where a partition begins.

    `at` is counted from the start of the partition. `before` and `after` are the field's values; a checksum over
    patched sectors has neither, because it is computed from what is found there.
    """

    what: str  # "NTFS hidden sectors", "exFAT boot checksum"
    at: int
    length: int
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry of a partition table, before and after. `record` is the byte of a logical partition's EBR."""

    number: int
    before: Extent
    after: Extent
    record_before: int | None = None
    record_after: int | None = None


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry of a new table."""

    number: int
    extent: Extent
    type_code: str  # "0x83" for MBR, an upper-case GUID for GPT
    name: str = ""
    active: bool = False


@dataclass(frozen=True, slots=True)
class CheckContent:
    """Ask the file system's own checker, which writes nothing, whether it is whole."""

    partition: int
    extent: Extent
    kind: str


@dataclass(frozen=True, slots=True)
class ShrinkContent:
    """Make a file system shorter with its own tool, before anything moves."""

    partition: int
    extent: Extent
    kind: str
    length: int  # bytes that it may have afterwards


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """The plan, the map of used blocks, the table and everything held, twice, before anything else is written."""

    journal: JournalPlace


@dataclass(frozen=True, slots=True)
class ParkEntries:
    """Give the entries a type that nothing mounts. From here on the disk is in flight.

    Logical partitions are parked by their container: the whole chain is out of sight.
    """

    partitions: tuple[int, ...]  # those that move, were shrunk, or hold a file that names one
    parked: tuple[int, ...]  # the entries that change: the same, or the container in place of its logicals


@dataclass(frozen=True, slots=True)
class HoldContent:
    """Put markers over what the journal holds, at the old place."""

    partition: int
    source: Extent
    held: Held


@dataclass(frozen=True, slots=True)
class CopyContent:
    """Copy what lies between the held ranges, in batches, each flushed, read back and recorded."""

    partition: int
    kind: str
    source: Extent
    target: Extent
    held: Held
    lanes: Lanes


@dataclass(frozen=True, slots=True)
class ReleaseContent:
    """Put what the journal holds, patched, at the new place."""

    partition: int
    kind: str
    target: Extent
    held: Held
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class RebuildContent:
    """Write a file system anew in its place, with all of its files, for sectors of another size.

    The journal has the bytes of `held` as they were, and then as they will be.
    """

    partition: int
    kind: str
    extent: Extent
    sector_size: int
    held: Held  # what is written, counted from the start of the partition


@dataclass(frozen=True, slots=True)
class RewriteTable:
    """Point the entries at the new place: the moment the move becomes true."""

    label: str  # "gpt" or "dos"
    changes: tuple[EntryChange, ...]


@dataclass(frozen=True, slots=True)
class CopyDisk:
    """Copy what is used of another disk to this one, each byte to its own place; the other one is only read."""

    source: Subject
    bytes: int


@dataclass(frozen=True, slots=True)
class ConvertTable:
    """Write the table for sectors of another size: the moment the conversion becomes true."""

    label: str  # "gpt" or "dos"
    changes: tuple[EntryChange, ...]
    sector_sizes: tuple[int, ...]  # of the new table, or of two in one place


@dataclass(frozen=True, slots=True)
class CloseJournal:
    """Wipe the journal's head: nothing is in flight any more."""

    journal: JournalPlace


@dataclass(frozen=True, slots=True)
class MakeTable:
    """A new partition table for a disk without one (or, asked for, over what is there)."""

    label: str
    entries: tuple[NewEntry, ...]
    wipe: bool = False  # signatures that lie on the disk are wiped first


@dataclass(frozen=True, slots=True)
class MakeMember:
    """Get one drive ready to be a member of an array: a new table on it, or nothing where it is taken as it is.

    Without `entries` the drive keeps its table, or gets none; `device` is then the partition or the whole drive.
    """

    disk: Subject
    device: str  # what the array is made of: "/dev/nvme0n1p1"
    label: str  # of the new table; "": none is made
    entries: tuple[NewEntry, ...] = ()
    wipe: bool = False  # signatures that lie on what is taken are wiped first
    holds: tuple[str, ...] = ()  # what `wipe` overwrites: each signature by kind, UUID, label and byte
    zeroed: tuple[Extent, ...] = ()  # what `wipe` zeroes first
    old_arrays: tuple[str, ...] = ()  # UUIDs of the md superblocks that `wipe` overwrites, as mdadm writes them


@dataclass(frozen=True, slots=True)
class MakeArray:
    """Make an array of members that are ready. Done when an array of that UUID runs."""

    device: str  # "/dev/md/data"
    uuid: str  # as mdadm writes it, four words of eight digits
    name: str  # in the superblocks
    members: tuple[str, ...]
    level: str  # "raid1"
    layout: str  # "n2", "left-symmetric"; "": the level has none
    chunk: int | None  # None: the level has none
    metadata: str  # "1.2"
    bitmap_chunk: int | None  # what one bit of the internal bitmap stands for; None: no bitmap
    data: DataArea


@dataclass(frozen=True, slots=True)
class MakeFileSystem:
    """Make a file system. Done when one of that kind and UUID is there."""

    device: str
    kind: str
    uuid: str
    options: tuple[str, ...]  # of its mkfs, without the device


@dataclass(frozen=True, slots=True)
class EditFile:
    """Put lines into a text file of the system. Done when they are in it.

    A line of the file that has `instead_of` in it is replaced by them, else they are added at the end. What the file
    was before is kept beside it under `backup`, with a number behind where there is one of an earlier run.
    """

    path: str
    lines: tuple[str, ...]
    instead_of: str
    backup: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file that is aligntool's own, such as a unit or a script. Done when these lines are all that is in it.

    A file of that name with other text is replaced as a whole; what it was is kept as of an `EditFile`.
    """

    path: str
    lines: tuple[str, ...]
    backup: str


@dataclass(frozen=True, slots=True)
class SetPartitionType:
    """Give a partition another type. Nothing else of its entry changes."""

    disk: str
    partition: int
    type_code: str  # as sfdisk takes it: a GUID, or a byte without 0x


INITRAMFS_MAKERS = ("initramfs-tools", "dracut", "mkinitcpio")


@dataclass(frozen=True, slots=True)
class RebuildInitramfs:
    """Build the initramfs of every installed kernel again."""

    maker: str  # one of INITRAMFS_MAKERS

    def __post_init__(self) -> None:
        if self.maker not in INITRAMFS_MAKERS:
            raise ValueError(f"{self.maker!r} is not one of {', '.join(INITRAMFS_MAKERS)}")


@dataclass(frozen=True, slots=True)
class CheckInitramfs:
    """Check that the line of an array is inside every initramfs that has to have it."""

    maker: str  # one of INITRAMFS_MAKERS
    uuid: str  # of the array

    def __post_init__(self) -> None:
        if self.maker not in INITRAMFS_MAKERS:
            raise ValueError(f"{self.maker!r} is not one of {', '.join(INITRAMFS_MAKERS)}")


@dataclass(frozen=True, slots=True)
class ReloadUnits:
    """Have systemd read its unit files and fstab again."""


@dataclass(frozen=True, slots=True)
class EnableUnit:
    """Have systemd start a unit at every start of the machine."""

    unit: str


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Make a directory, with those above it that are missing."""

    path: str


@dataclass(frozen=True, slots=True)
class Mount:
    """Mount what fstab has for a directory. Done when it is mounted there."""

    path: str


@dataclass(frozen=True, slots=True)
class Swapon:
    """Use a swap space. Done when it is in use."""

    uuid: str


@dataclass(frozen=True, slots=True)
class ReencryptSectors:
    """Encrypt a LUKS2 anew in larger sectors, by cryptsetup, under its own journal. Done when its header says so."""

    partition: int
    extent: Extent
    uuid: str  # of the LUKS2
    before: int  # bytes of an encrypted sector
    after: int


# The steps that give the members of a running array another size of logical blocks, one after the other.
#
# `array` is its UUID, by which it is found; `path` is what it was called when the plan was made.


@dataclass(frozen=True, slots=True)
class CheckArray:
    """Have md compare all copies, or parity and data. Done when nothing differs and no member is missing."""

    array: str
    path: str


@dataclass(frozen=True, slots=True)
class TakeOutMember:
    """Take a member out of its array; where there is a spare, after that holds everything that the member does."""

    array: str
    path: str
    device: str
    spare: str = ""  # "": the others alone hold the data until the member is back


@dataclass(frozen=True, slots=True)
class FormatMember:
    """Format the NVMe namespace of a member that was taken out, and write its table again: same bytes, same GUIDs."""

    array: str
    path: str
    disk: Subject
    device: str
    namespace: int  # its number on its drive
    format_before: int  # index of the LBA format
    block_before: int  # bytes of its logical blocks
    format_after: int
    block_after: int
    entries: tuple[NewEntry, ...] = ()  # (): the namespace itself is the member
    uuids: tuple[str, ...] = ()  # of the entries


@dataclass(frozen=True, slots=True)
class PutBackMember:
    """Add a member to its array, and wait until it holds everything that it should.

    `block_size`: the array's own logical blocks get at least that large, for which it is assembled again if necessary.
    """

    array: str
    path: str
    device: str
    block_size: int


ContentStep = CheckContent | ShrinkContent | HoldContent | CopyContent | ReleaseContent | RebuildContent

Commit = RewriteTable | ConvertTable
"""The steps from which on the new table counts."""

MoveStep = ContentStep | WriteJournal | ParkEntries | Commit | CloseJournal | MakeTable | CopyDisk
"""The steps that change a partition table."""

FileStep = EditFile | WriteFile

InitramfsStep = RebuildInitramfs | CheckInitramfs

SystemStep = SetPartitionType | InitramfsStep | ReloadUnits | EnableUnit | MakeDirectory | Mount | Swapon
"""The steps that run a program of the system which may be run again at any time."""

MemberStep = CheckArray | TakeOutMember | FormatMember | PutBackMember
"""The steps that change the members of a running array."""

DriveStep = MakeMember | FormatMember
"""The steps that hold the identity of a drive of an array."""

ArrayStep = MakeMember | MakeArray | MakeFileSystem | FileStep | SystemStep | MemberStep | ReencryptSectors
"""The steps that go by a record: those that make an array or keep one, and those that change a layer in its place; none
of them is ever in a journal."""

Step = MoveStep | ArrayStep
"""Every step that a plan may have as it is read."""


def move_step(step: Step) -> MoveStep:
    """Return the step itself. Raise ValueError for a step of an array."""
    if isinstance(step, ArrayStep):
        raise ValueError(f"{type(step).__name__} is a step of an array")
    return step


def array_step(step: Step) -> ArrayStep:
    """Return the step itself. Raise ValueError for a step of a move."""
    if isinstance(step, MoveStep):
        raise ValueError(f"{type(step).__name__} is a step of a move")
    return step
