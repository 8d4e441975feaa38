"""The steps of a plan: frozen values that describe each change, without files or functions."""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from aligntool.documents import OMITTED
from aligntool.inventory import Disk, array_uuid, layers_on
from aligntool.units import MIB, Extent, merged

# The identity of the disk that a plan is for. Applying computes it again for the disk that it finds; the two
# must be equal.


@dataclass(frozen=True, slots=True)
class Subject:
    """The identity of the disk that a plan is for. `path` is only the name that the user typed."""

    path: str
    size: int
    sector_size: int  # bytes per sector of its table
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


def is_same_disk(first: Subject, second: Subject) -> bool:
    """Return whether everything but the path is equal. Kernel names change from boot to boot."""
    return replace(first, path="") == replace(second, path="")


def recognised_content(
    disk: Disk, number: int | None = None, *, ignored_arrays: Collection[str] = ()
) -> tuple[str, ...]:
    """Return all layers recognised on a partition, or on a disk and all its partitions, as lines: kind, UUID,
    label, offset. The digest of a table does not cover them. Inner layers are included, because they become
    visible once the signature of the outer layer is erased. `ignored_arrays`: UUIDs of md arrays to omit.
    """
    layers = [layer for layer in layers_on(disk, number) if array_uuid(layer) not in ignored_arrays]
    return tuple(
        sorted(
            f"{layer.kind} {layer.uuid or '-'} {layer.label or '-'} at {layer.extent.start}"
            for layer in layers
        )
    )


def _digest(disk: Disk) -> str:
    """Return the SHA-256, in hexadecimal, of all fields of the table: only equal tables have the same
    digest.
    """
    parts = []
    for part in sorted(disk.partitions, key=lambda part: (part.number, part.extent)):
        named = (part.type_code, part.uuid, part.name, part.flags, part.record_at)
        parts.append((part.number, part.extent.start, part.extent.length, part.role.value, *named))
    label, disk_id = (disk.table.label.value, disk.table.disk_id) if disk.table else (None, None)
    return hashlib.sha256(json.dumps((label, disk_id, disk.sector_size, parts)).encode()).hexdigest()


# Where old signatures may be on a drive: at both ends of its current content and of the new content. A plan
# shows these extents and applying zeroes them, for new tables as well as for members of arrays.

HEAD = 5 * MIB
TAIL = 2 * MIB


@dataclass(frozen=True, slots=True)
class DataArea:
    """The area of an array's data on each member: `offset` bytes from its start, `length` long; None: to its
    end.
    """

    offset: int = 0
    length: int | None = None

    def of(self, member: Extent) -> Extent:
        room = max(member.length - self.offset, 0)
        return Extent(member.start + self.offset, room if self.length is None else min(self.length, room))


def wiped_ends(extents: Iterable[Extent], within: Extent, sector_size: int) -> tuple[Extent, ...]:
    """Return both ends of the extents in whole sectors, clipped to `within`, sorted and merged. All in bytes.

    They reach as far as libblkid looks from either end: LUKS2 has its second header 4 MiB in at most,
    bcachefs and VMFS theirs 2 MiB in, Promise's RAID its superblock 3087 sectors of 512 bytes before the end
    (luks.c, bcache.c, vmfs.c, promise_raid.c). ZFS has 512 KiB at either end, md 0.90 up to 128 KiB from the
    end, LDM the last MiB.
    """
    ends = []
    for extent in extents:
        start, end = max(extent.start, within.start), min(extent.end, within.end)
        tail = max(end - TAIL, start)
        ends += [Extent(start, min(HEAD, end - start)), Extent(tail, end - tail)]
    return merged(ends, within, sector_size)


# The steps of a plan: a closed set of frozen values.
#
# Each step is idempotent and states the disk before and after it: if the disk is as after it, the step is
# done; if it is as neither, the work stops. Every size and offset is in bytes. Offsets are counted from the
# start of the disk, unless the docstring states that they are counted from the start of the partition or of
# the journal.


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """The place of the journal, and its parts: first copy, second copy, stash.

    `extent` is counted from the start of the disk, or of `file` if the journal is a file on another disk.
    `stash` is counted from the start of `extent`.
    """

    extent: Extent
    copy_length: int  # of each of the two copies; a power of two
    stash: Extent
    file: str | None = None


@dataclass(frozen=True, slots=True)
class SavedRanges:
    """The bytes that are saved in the journal and overwritten on the disk while the partition is in flight.

    `ranges` cover every signature that libblkid would recognise, counted from the start of the partition.
    """

    ranges: tuple[Extent, ...]

    @property
    def length(self) -> int:
        return sum(extent.length for extent in self.ranges)


@dataclass(frozen=True, slots=True)
class CopyStrips:
    """How a copy is divided into strips: docs/crash-safety.md, "Copy strips"."""

    window: int  # bytes that one strip copies at once; never more than the distance
    batch: int  # bytes between two flushes, if there are enough strips
    group: int  # bytes whose strips are copied concurrently
    stash: int  # bytes of stash that may be used
    staged: bool = False  # the distance is so short that all bytes are copied through the stash


@dataclass(frozen=True, slots=True)
class Patch:
    """A field in a boot sector or a file that contains the start of a partition.

    `at` is counted from the start of the partition. `before` and `after` are the field's values; a checksum
    of patched sectors has neither, because it is computed from the sectors.
    """

    what: str  # "NTFS hidden sectors", "exFAT boot checksum"
    at: int
    length: int
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry of a partition table, before and after. `record`: the offset of the EBR of a logical
    partition.
    """

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
    """Check a file system with its own checker, read-only."""

    partition: int
    extent: Extent
    kind: str


@dataclass(frozen=True, slots=True)
class ShrinkContent:
    """Shrink a file system with its own tool, before anything is moved."""

    partition: int
    extent: Extent
    kind: str
    length: int  # the largest size afterwards


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Write the journal: plan, map of used blocks, table and saved bytes, in two copies, before any other
    write.
    """

    journal: JournalPlace


@dataclass(frozen=True, slots=True)
class ParkEntries:
    """Give the entries a type that nothing mounts. From this step on the disk is in flight.

    Logical partitions are parked by their extended partition, which hides the whole chain.
    """

    # those that move, were shrunk, or contain a file with the start of such a partition
    partitions: tuple[int, ...]
    # the entries that change: the same, or the extended partition instead of its logicals
    parked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HoldContent:
    """Overwrite the saved bytes at the old place with markers."""

    partition: int
    source: Extent
    held: SavedRanges

    @property
    def place(self) -> Extent:
        return self.source


@dataclass(frozen=True, slots=True)
class CopyContent:
    """Copy the bytes between the saved ranges in batches, each flushed, read back and recorded."""

    partition: int
    kind: str
    source: Extent
    target: Extent
    held: SavedRanges
    lanes: CopyStrips


@dataclass(frozen=True, slots=True)
class ReleaseContent:
    """Write the saved bytes, patched, at the new place."""

    partition: int
    kind: str
    target: Extent
    held: SavedRanges
    patches: tuple[Patch, ...] = ()

    @property
    def place(self) -> Extent:
        return self.target


@dataclass(frozen=True, slots=True)
class RebuildContent:
    """Recreate a file system in place, with all of its files, for another sector size. 0: it was shrunk.

    The journal contains the bytes of `held` as they were, then as they will be.
    """

    partition: int
    kind: str
    extent: Extent
    sector_size: int
    held: SavedRanges  # the bytes to write, counted from the start of the partition

    @property
    def place(self) -> Extent:
        return self.extent


@dataclass(frozen=True, slots=True)
class RewriteTable:
    """Set the entries to the new place. This commits the move."""

    label: str  # "gpt" or "dos"
    changes: tuple[EntryChange, ...]


@dataclass(frozen=True, slots=True)
class CopyDisk:
    """Copy the used parts of another disk to the same offsets of this one. The other disk is only read."""

    source: Subject
    bytes: int


@dataclass(frozen=True, slots=True)
class ConvertTable:
    """Write the table for another sector size. This commits the conversion."""

    label: str  # "gpt" or "dos"
    changes: tuple[EntryChange, ...]
    sector_sizes: tuple[int, ...]  # of the new table, or of two tables on the disk


@dataclass(frozen=True, slots=True)
class CloseJournal:
    """Wipe the head of the journal. From this step on nothing is in flight."""

    journal: JournalPlace


@dataclass(frozen=True, slots=True)
class MakeTable:
    """Write a new partition table to a disk without one, or, if requested, over its content."""

    label: str
    entries: tuple[NewEntry, ...]
    wipe: bool = False  # wipe the signatures on the disk first


@dataclass(frozen=True, slots=True)
class FormatDrive:
    """Format the NVMe namespace of an empty drive that becomes a member or gets a new table. Done when it has
    that format. It is not undone.
    """

    disk: Subject  # before the format
    namespace: int  # its number on the drive
    format_before: int  # index of the LBA format
    block_before: int  # bytes of its logical blocks
    format_after: int
    block_after: int


@dataclass(frozen=True, slots=True)
class MakeMember:
    """Prepare a drive as a member of an array: write a new table, or nothing if it is used as it is.

    Without `entries` the drive keeps its table, or gets none; `device` is then the partition or the whole
    drive.
    """

    disk: Subject
    device: str  # the member of the array: "/dev/nvme0n1p1"
    label: str  # of the new table; "": no new table
    entries: tuple[NewEntry, ...] = ()
    wipe: bool = False  # wipe the signatures on `device` first
    holds: tuple[str, ...] = ()  # the signatures that `wipe` overwrites: kind, UUID, label and offset
    zeroed: tuple[Extent, ...] = ()  # the extents that `wipe` zeroes first
    # UUIDs of the md superblocks that `wipe` overwrites, as mdadm writes them
    old_arrays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MakeArray:
    """Create an array from prepared members. Done when an array with this UUID runs."""

    device: str  # "/dev/md/data"
    uuid: str  # as mdadm writes it, four words of eight digits
    name: str  # in the superblocks
    members: tuple[str, ...]
    level: str  # "raid1"
    layout: str  # "n2", "left-symmetric"; "": the level has none
    chunk: int | None  # None: the level has none
    metadata: str  # "1.2"
    bitmap_chunk: int | None  # bytes covered by a bit of the internal bitmap; None: no bitmap
    data: DataArea
    # its data areas are zeroed first, and read back, so that copies and parity are right from the beginning
    zeroed: bool = field(default=False, metadata={OMITTED: True})


@dataclass(frozen=True, slots=True)
class MakeFileSystem:
    """Create a file system. Done when `device` has one of this kind and UUID."""

    device: str
    kind: str
    uuid: str
    options: tuple[str, ...]  # of its mkfs, without the device


@dataclass(frozen=True, slots=True)
class EditFile:
    """Write lines into a text file of the system. Done when the file contains them.

    They replace a line that contains `instead_of`, or are appended. The previous file is kept beside it under
    the name `backup`, with a number appended if that exists from an earlier run.
    """

    path: str
    lines: tuple[str, ...]
    instead_of: str
    backup: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file of aligntool, such as a unit or a script. Done when the file consists of these lines.

    An existing file with other text is replaced as a whole, and kept as for `EditFile`.
    """

    path: str
    lines: tuple[str, ...]
    backup: str


@dataclass(frozen=True, slots=True)
class SetPartitionType:
    """Set the type of a partition. The rest of its entry is unchanged."""

    disk: str
    partition: int
    type_code: str  # as sfdisk takes it: a GUID, or a byte without 0x


INITRAMFS_MAKERS = ("initramfs-tools", "dracut", "mkinitcpio")


@dataclass(frozen=True, slots=True)
class RebuildInitramfs:
    """Rebuild the initramfs of every installed kernel."""

    maker: str  # one of INITRAMFS_MAKERS

    def __post_init__(self) -> None:
        if self.maker not in INITRAMFS_MAKERS:
            raise ValueError(f"{self.maker!r} is not one of {', '.join(INITRAMFS_MAKERS)}")


@dataclass(frozen=True, slots=True)
class CheckInitramfs:
    """Check that every initramfs that needs it contains the ARRAY line of an array."""

    maker: str  # one of INITRAMFS_MAKERS
    uuid: str  # of the array

    def __post_init__(self) -> None:
        if self.maker not in INITRAMFS_MAKERS:
            raise ValueError(f"{self.maker!r} is not one of {', '.join(INITRAMFS_MAKERS)}")


@dataclass(frozen=True, slots=True)
class ReloadUnits:
    """Reload the unit files and fstab: systemctl daemon-reload."""


@dataclass(frozen=True, slots=True)
class EnableUnit:
    """Enable a unit, so that systemd starts it at boot."""

    unit: str


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Create a directory and its missing parents."""

    path: str


@dataclass(frozen=True, slots=True)
class Mount:
    """Mount a directory by its fstab line. Done when it is mounted."""

    path: str


@dataclass(frozen=True, slots=True)
class PrepareDirectory:
    """Create a directory of a mounted file system unless it exists, and set its owner, group and mode. Done
    when it has them; "": any.
    """

    path: str
    mount: str  # where its file system is mounted
    owner: str = ""  # a name or a number
    group: str = ""
    mode: str = ""  # octal digits


@dataclass(frozen=True, slots=True)
class BindMount:
    """Mount a directory of a mounted file system at another path as well, by its fstab line."""

    path: str
    source: str
    mount: str  # where the file system of `source` is mounted


@dataclass(frozen=True, slots=True)
class Synchronise:
    """Lift md's limit of the rate at which the new array is synchronised, wait for the end, and restore the
    limit. Done when all members are in sync. Undone, it restores the limit.
    """

    device: str  # "/dev/md/data"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of an array or of its drives, by its name in `ARRAY_SETTINGS` or `MEMBER_SETTINGS`."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """Give a running array and its drives the settings that a udev rule keeps. Done when they have them."""

    array: str  # its UUID, by which it is found
    path: str
    settings: tuple[SettingChange, ...]


@dataclass(frozen=True, slots=True)
class Swapon:
    """Enable a swap area. Done when it is in use."""

    uuid: str


@dataclass(frozen=True, slots=True)
class ReencryptSectors:
    """Reencrypt a LUKS2 with larger sectors, by cryptsetup and its own journal. Done when its header has that
    size.
    """

    partition: int
    extent: Extent
    uuid: str  # of the LUKS2
    before: int  # bytes of an encryption sector
    after: int


# The steps that change the logical block size of the members of a running array, one member after the other.
#
# `array` is the UUID, by which the array is found; `path` is its path when the plan was made.


@dataclass(frozen=True, slots=True)
class CheckArray:
    """Run a check of md, which compares all copies, or parity and data. Done if nothing differs and no member
    is missing.
    """

    array: str
    path: str


@dataclass(frozen=True, slots=True)
class TakeOutMember:
    """Remove a member from its array; if there is a spare, after the spare has been rebuilt as its
    replacement.
    """

    array: str
    path: str
    device: str
    spare: str = ""  # "": only the other members have the data until the member is added again


@dataclass(frozen=True, slots=True)
class FormatMember:
    """Format the NVMe namespace of a removed member, and rewrite its table with the same extents and
    GUIDs.
    """

    array: str
    path: str
    disk: Subject
    device: str
    namespace: int  # its number on the drive
    format_before: int  # index of the LBA format
    block_before: int  # bytes of its logical blocks
    format_after: int
    block_after: int
    entries: tuple[NewEntry, ...] = ()  # (): the namespace itself is the member
    uuids: tuple[str, ...] = ()  # of the entries


@dataclass(frozen=True, slots=True)
class PutBackMember:
    """Add a member to its array, and wait until it is rebuilt.

    `block_size`: the logical blocks of the array become at least this large; the array is reassembled if
    necessary.
    """

    array: str
    path: str
    device: str
    block_size: int


ContentStep = CheckContent | ShrinkContent | HoldContent | CopyContent | ReleaseContent | RebuildContent

SavedStep = HoldContent | ReleaseContent | RebuildContent
"""The steps that hide or write, at their `place`, what the journal has saved."""

Commit = RewriteTable | ConvertTable
"""The steps that commit: from then on the new table is valid."""

JournaledStep = (
    HoldContent | CopyContent | ReleaseContent | RebuildContent | ParkEntries | Commit | CloseJournal
)
"""The steps that come after the journal."""

MoveStep = ContentStep | WriteJournal | ParkEntries | Commit | CloseJournal | MakeTable | CopyDisk
"""The steps that change a partition table."""

FileStep = EditFile | WriteFile

InitramfsStep = RebuildInitramfs | CheckInitramfs

MountStep = Mount | BindMount

SystemStep = (
    SetPartitionType
    | InitramfsStep
    | ReloadUnits
    | EnableUnit
    | MakeDirectory
    | Mount
    | PrepareDirectory
    | BindMount
    | Swapon
)
"""The steps that run a program of the system, all of which can be repeated at any time."""

InstalledStep = FileStep | InitramfsStep | EnableUnit | MakeDirectory
"""The steps that write files of the system or run its programs: of an installed one, below its folder. All
others, such as a mount, are done by the running system.
"""

MemberStep = CheckArray | TakeOutMember | FormatMember | PutBackMember
"""The steps that change the members of a running array."""

FormatStep = FormatDrive | FormatMember
"""The steps that give an NVMe drive another LBA format, which erases it."""

DriveStep = MakeMember | FormatStep
"""The steps that contain the identity of a drive of an array."""

ArrayStep = (
    FormatDrive
    | MakeMember
    | MakeArray
    | MakeFileSystem
    | FileStep
    | Synchronise
    | ApplySettings
    | SystemStep
    | MemberStep
    | ReencryptSectors
)
"""The steps whose progress is in a record, never in a journal: they create, persist or reformat an array, or
change a layer in place.
"""

Step = MoveStep | ArrayStep
"""Every step that may occur in a plan document."""


def journaled_step(step: Step) -> JournaledStep:
    """Return the step, narrowed to a JournaledStep. Raises ValueError for any other step."""
    if not isinstance(step, JournaledStep):
        raise ValueError(f"{type(step).__name__} does not come after the journal")
    return step


def array_step(step: Step) -> ArrayStep:
    """Return the step, narrowed to an ArrayStep. Raises ValueError for a step of a move."""
    if isinstance(step, MoveStep):
        raise ValueError(f"{type(step).__name__} is a step of a move")
    return step
