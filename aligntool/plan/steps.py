"""The steps that a plan is made of: a small closed set of frozen values.

Each step is idempotent and states the world before and after it: already after means done, neither means stop. Every
size and offset is bytes. Offsets are counted from the start of the disk, unless a field says that they are counted from
the start of the partition or of the journal.
"""

from dataclasses import dataclass
from typing import ClassVar

from aligntool.plan.subject import Subject
from aligntool.plan.wiping import DataArea
from aligntool.units import Extent


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
    """A field in a boot sector that says where the partition begins.

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

    writes: ClassVar[bool] = False
    partition: int
    extent: Extent
    kind: str


@dataclass(frozen=True, slots=True)
class ShrinkContent:
    """Make a file system shorter with its own tool, before anything moves."""

    writes: ClassVar[bool] = True
    partition: int
    extent: Extent
    kind: str
    length: int  # bytes that it may have afterwards


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """The plan, the map of used blocks, the table and everything held, twice, before anything else is written."""

    writes: ClassVar[bool] = True
    journal: JournalPlace


@dataclass(frozen=True, slots=True)
class ParkEntries:
    """Give the entries a type that nothing mounts. From here on the disk is in flight.

    Logical partitions are parked by their container: the whole chain is out of sight.
    """

    writes: ClassVar[bool] = True
    partitions: tuple[int, ...]  # those that move or were shrunk
    parked: tuple[int, ...]  # the entries that change: the same, or the container in place of its logicals


@dataclass(frozen=True, slots=True)
class HoldContent:
    """Put markers over what the journal holds, at the old place."""

    writes: ClassVar[bool] = True
    partition: int
    source: Extent
    held: Held


@dataclass(frozen=True, slots=True)
class CopyContent:
    """Copy what lies between the held ranges, in batches, each flushed, read back and recorded."""

    writes: ClassVar[bool] = True
    partition: int
    kind: str
    source: Extent
    target: Extent
    held: Held
    lanes: Lanes


@dataclass(frozen=True, slots=True)
class ReleaseContent:
    """Put what the journal holds, patched, at the new place."""

    writes: ClassVar[bool] = True
    partition: int
    kind: str
    target: Extent
    held: Held
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteTable:
    """Point the entries at the new place: the moment the move becomes true."""

    writes: ClassVar[bool] = True
    label: str  # "gpt" or "dos"
    changes: tuple[EntryChange, ...]


@dataclass(frozen=True, slots=True)
class CloseJournal:
    """Wipe the journal's head: nothing is in flight any more."""

    writes: ClassVar[bool] = True
    journal: JournalPlace


@dataclass(frozen=True, slots=True)
class MakeTable:
    """A new partition table for a disk without one (or, asked for, over what is there)."""

    writes: ClassVar[bool] = True
    label: str
    entries: tuple[NewEntry, ...]
    wipe: bool = False  # signatures that lie on the disk are wiped first


@dataclass(frozen=True, slots=True)
class MakeMember:
    """Get one drive ready to be a member of an array: a new table on it, or nothing where it is taken as it is.

    Without `entries` the drive keeps its table, or gets none; `device` is then the partition or the whole drive.
    """

    writes: ClassVar[bool] = True
    disk: Subject
    device: str  # what the array is made of: "/dev/nvme0n1p1"
    label: str  # of the new table; "": none is made
    entries: tuple[NewEntry, ...] = ()
    wipe: bool = False  # signatures that lie on what is taken are wiped first
    holds: tuple[str, ...] = ()  # what `wipe` gives up: each thing by kind, UUID, label and byte
    zeroed: tuple[Extent, ...] = ()  # what `wipe` zeroes first
    old_arrays: tuple[str, ...] = ()  # UUIDs of the md superblocks that `wipe` gives up, as mdadm writes them


@dataclass(frozen=True, slots=True)
class MakeArray:
    """Make an array of members that are ready. Done when an array of that UUID runs."""

    writes: ClassVar[bool] = True
    device: str  # "/dev/md/data"
    uuid: str  # as mdadm writes it, four words of eight digits
    members: tuple[str, ...]
    command: tuple[str, ...]
    level: str  # "raid1"
    chunk: int | None  # None: it has none
    data: DataArea


@dataclass(frozen=True, slots=True)
class MakeFileSystem:
    """Make a file system. Done when one of that kind and UUID is there."""

    writes: ClassVar[bool] = True
    device: str
    kind: str
    uuid: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EditFile:
    """Put lines into a text file of the system. Done when they are in it.

    A line of the file that has `instead_of` in it is replaced by them, else they are added at the end. What the file
    was before is kept beside it under `backup`, with a number behind where there is one of an earlier run.
    """

    writes: ClassVar[bool] = True
    path: str
    lines: tuple[str, ...]
    instead_of: str
    backup: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file that is aligntool's own, such as a unit or a script. Done when these lines are all that is in it.

    A file of that name with other text is replaced as a whole; what it was is kept as of an `EditFile`.
    """

    writes: ClassVar[bool] = True
    path: str
    lines: tuple[str, ...]
    backup: str


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run a program of the system that may be run again at any time. Done when it was run."""

    writes: ClassVar[bool] = True
    purpose: str
    command: tuple[str, ...]
    expects: str = ""  # what it must print; "": nothing is asked of it but to succeed


Step = (
    CheckContent
    | ShrinkContent
    | WriteJournal
    | ParkEntries
    | HoldContent
    | CopyContent
    | ReleaseContent
    | RewriteTable
    | CloseJournal
    | MakeTable
    | MakeMember
    | MakeArray
    | MakeFileSystem
    | EditFile
    | WriteFile
    | RunCommand
)

FileStep = EditFile | WriteFile

ArrayStep = MakeMember | MakeArray | MakeFileSystem | FileStep | RunCommand
"""The steps of which an array is made; none of them is ever in a journal."""
