"""Goals, plans, events, and plans as JSON: the contract between planning, acting and rendering."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar, get_args

from aligntool.commands import ByHand, by_hand, command
from aligntool.documents import OMITTED, as_object, check_schema, decode, load_object
from aligntool.errors import Refused
from aligntool.steps import (
    CheckContent,
    ConvertTable,
    CopyContent,
    DriveStep,
    FormatDrive,
    HoldContent,
    JournalPlace,
    MakeArray,
    ParkEntries,
    RebuildContent,
    ReleaseContent,
    RewriteTable,
    SavedStep,
    ShrinkContent,
    Step,
    Subject,
    WriteJournal,
)
from aligntool.system import Installed
from aligntool.units import KIB, MIB, Extent

_Step = TypeVar("_Step", bound=Step)
_Request = TypeVar("_Request")

# Events that applying a plan yields. They are defined here so that `render` need not import what applies.


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step begins."""

    index: int  # of the plan's steps


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` bytes of the whole plan are copied, flushed, verified and recorded."""

    index: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step is done, and what it wrote is durable."""

    index: int


@dataclass(frozen=True, slots=True)
class Said:
    """A message for the user, one sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class KernelBehind(Said):
    """The change is complete, but the running kernel still has the old partitions, or none."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A disk has not answered a request for `seconds`. The work continues when it answers."""

    disk: str  # or the file of a journal
    request: str  # "read", "write" or "flush"; "any": unknown
    seconds: int


def waiting_words(event: Waiting) -> tuple[str, str]:
    """Return the event as two sentences: the state, and what the user can do."""
    if event.request == "any":
        return (
            f"{event.disk} has not answered for {event.seconds} s. aligntool is waiting",
            "Ctrl-C is safe and shows what is left to do",
        )
    return (
        f"{event.disk} has not answered a {event.request} request for {event.seconds} s."
        " The move is waiting; nothing is lost",
        "Ctrl-C is safe: aligntool resume continues later",
    )


Event = StepBegun | Progress | StepDone | Said | Waiting


class ChangeState(StrEnum):
    """The state of a change in the system's log, as the verb of a sentence."""

    BEGUN = "began"
    RESUMED = "is resumed"
    UNDOING = "is being undone"
    DONE = "is complete"
    UNDONE = "is undone"
    STOPPED = "stopped before the end"


# Goals: the request of the user or of a recipe.


@dataclass(frozen=True, slots=True)
class RealignGoal:
    """Align every start to the disk's grids, and to `grain` if there is room."""

    partitions: tuple[int, ...] = ()  # empty: every misaligned partition
    grain: int = MIB
    grain_given: bool = False  # requested by the user or a recipe: do not choose another grain
    shrink: bool = False  # file systems may be shrunk to make room
    journal_file: str | None = None
    least_start: int = 0  # no partition may begin before this byte; SD cards: 4 MiB
    # Bytes in no partition that the user allows to be overwritten, and the file for a copy of them.
    overwrite: tuple[Extent, ...] = field(default=(), metadata={OMITTED: True})
    save_to: str | None = field(default=None, metadata={OMITTED: True})
    # skip free blocks even if something may need them
    used_only: bool = field(default=False, metadata={OMITTED: True})
    # bytes for `journal_file` when it was requested; None: enough for any journal
    journal_room: int | None = field(default=None, metadata={OMITTED: True})


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A partition of a new layout."""

    size: int | None  # bytes; None: the rest
    role: str  # "esp", "linux", "swap", "linux-raid", "lvm", "home", "bios-boot", ...
    name: str = ""


@dataclass(frozen=True, slots=True)
class LayoutGoal:
    """A new table for an empty disk."""

    parts: tuple[PartitionRequest, ...]
    label: str = "gpt"
    grain: int = MIB
    spare_end: int = 0  # bytes left free at the end
    wipe: bool = False


RAID_WORDS = {
    "level": ("raid0", "raid1", "raid10", "raid5", "raid6"),
    "workload": ("general", "boot", "database", "sequential", "lsm", "vm"),
    "bitmap": ("internal", "none"),
    "metadata": ("1.2", "1.0"),
    "filesystem": ("xfs", "ext4", "btrfs", "swap", "none"),
    "members": ("new-partitions", "partitions", "whole-drives"),
}
"""The allowed values of fields of a RaidGoal."""
NOT_MOUNTED = ("swap", "none")
"""Values of its `filesystem` that have no mount point."""
MOUNT_POINT = re.compile(r"/[^\s\\#]*")
"""What fstab takes as a mount point."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory at the top of the new file system, and the path at which it is mounted as well."""

    folder: str
    path: str


@dataclass(frozen=True, slots=True)
class RaidGoal:
    """A new array on empty drives. None: as aligntool recommends. Sizes in bytes.

    The UUIDs are part of the goal, so that the lines of config files that contain them are known before
    anything is created, and the same goal always gives the same plan.
    """

    level: str  # "raid0", "raid1", "raid10", "raid5", "raid6"
    name: str = "data"
    workload: str = "general"
    database_page: int = 16 * KIB  # for the workload "database"
    chunk: int | None = None
    layout: str | None = None  # RAID10: "n2", "f2" ...; RAID5 and RAID6: "left-symmetric" ...
    bitmap: str | None = None  # "internal" or "none"
    metadata: str = "1.2"
    filesystem: str = "xfs"  # "ext4", "btrfs", "swap", "none"
    block_size: int | None = None  # of the file system
    inode_size: int | None = None
    log_size: int | None = None  # XFS
    mount_at: str | None = None  # None: /srv/NAME; "": do not mount
    mount_options: tuple[str, ...] | None = None
    # of a new table on each drive; "partitions": existing ones; "whole-drives"
    members: str = "new-partitions"
    member_size: int | None = None  # of each member partition; None: all space
    spare_room: int | None = None  # free space at the end of each drive, for a smaller replacement
    esp_size: int = 0  # an EFI system partition of this size on every drive; 0: none
    partitions: tuple[int | None, ...] = ()  # the member partition of each drive; None or (): the whole drive
    wipe: tuple[str, ...] = ()  # names of the drives and partitions that may be overwritten
    measured: str = ""  # the text of a `raid tune` result, used if it is for this array
    # the distribution family, for the files and commands that make the array permanent
    system: str = "debian"
    array_uuid: str = "00000000:00000000:00000000:00000000"
    filesystem_uuid: str = "00000000-0000-0000-0000-000000000000"
    one_drive: bool = field(default=False, metadata={OMITTED: True})  # a RAID0 may have a single member
    # of the top directory of the new file system; "": as its mkfs makes it
    owner: str = field(default="", metadata={OMITTED: True})
    group: str = field(default="", metadata={OMITTED: True})
    mode: str = field(default="", metadata={OMITTED: True})
    binds: tuple[Bind, ...] = field(default=(), metadata={OMITTED: True})
    # bytes of the logical blocks that empty NVMe drives are formatted to; None: they stay as they are
    lba_size: int | None = field(default=None, metadata={OMITTED: True})
    # zero the data areas of empty NVMe members, instead of a first resynchronisation
    zero_members: bool = field(default=False, metadata={OMITTED: True})
    # lift md's limit for the first resynchronisation, and wait for its end
    fast_sync: bool = field(default=False, metadata={OMITTED: True})

    @property
    def whole_drives(self) -> bool:
        return self.members == "whole-drives"

    @property
    def place(self) -> str:
        """Return the mount point; "" if it is not mounted."""
        if self.filesystem in NOT_MOUNTED:
            return ""
        return f"/srv/{self.name}" if self.mount_at is None else self.mount_at


ONE_DRIVE = ("raid0", "filesystem", "error")
"""What is done with a single drive: a RAID0 of one; a plain file system; what the level allows."""


@dataclass(frozen=True, slots=True)
class DriveSelection:
    """Which drives an array is made of: those that match every kind of pattern that is given. Sizes in bytes.

    `unused`: only drives without content, and those with a member of the array itself.
    """

    unused: bool = False
    instance_store: bool = False  # the ephemeral drives of a cloud, by their model
    models: tuple[str, ...] = ()  # patterns; of several, one must match
    names: tuple[str, ...] = ()  # patterns of names in /dev/disk/by-id
    addresses: tuple[str, ...] = ()  # patterns of the PCI address
    least_size: int = 0
    most_size: int | None = None
    least: int = 1  # drives
    most: int | None = None
    one: str = "error"  # what a single drive becomes: one of ONE_DRIVE
    may_be_none: bool = False  # no drive is no error
    wiped_serials: tuple[str, ...] = ()  # drives whose content may be overwritten


@dataclass(frozen=True, slots=True)
class EnsureGoal:
    """An array that is to exist at every boot, and its drives, of which none is named."""

    array: RaidGoal
    drives: DriveSelection


# A plan: the disk, its partitions before and after, the steps and their cost.


@dataclass(frozen=True, slots=True)
class Place:
    """A partition before and after the plan; both equal if it stays, `before` None if it is new."""

    number: int
    before: Extent | None
    after: Extent
    what: str  # "ext4 \"root\"", "EFI System"
    why: str = ""  # why it stays or moves: "on the grid", "3584B past a 4KiB boundary"


EVERYTHING = "everything: "
"""Beginning of the source of a number of used bytes, if it is that of all bytes, before the reason."""


@dataclass(frozen=True, slots=True)
class Used:
    """How much of a partition must be copied, and the source of that number."""

    partition: int
    bytes: int
    by: str  # "partclone.ext4", "everything: no map for crypto_LUKS"
    # Bytes that its resizer leaves at least, if that was asked; not part of a plan.
    least: int = field(default=0, metadata={OMITTED: True})

    @property
    def why(self) -> str:
        """Return why everything is copied, or "" if a map of used blocks decides."""
        return self.by.removeprefix(EVERYTHING) if self.by.startswith(EVERYTHING) else ""


class Rates(NamedTuple):
    """Assumed rates of a kind of work, in bytes per second; even drives that are ten years old are faster."""

    rotational: int
    flash: int


COPY_RATES = Rates(60 * 10**6, 300 * 10**6)  # of reading, writing and reading back together
# Every byte is read, written to cryptsetup's journal, and written to its place.
ENCRYPTION_RATES = Rates(20 * 10**6, 100 * 10**6)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated cost of a plan. It is not binding."""

    bytes_to_copy: int
    seconds: int | None
    used: tuple[Used, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to a disk or an array as steps, with their reasons and cost. Only the steps are binding."""

    # "realign", "layout", "partition", "unpartition", "convert", "convert-copy", "raid", "persist" ...
    purpose: str
    disk: Subject  # of an array: the new array; its members are in the steps
    goal: str  # in words: "every start on 1MiB"
    places: tuple[Place, ...]
    steps: tuple[Step, ...]
    attention: tuple[str, ...] = ()  # tasks for the user afterwards, a sentence each
    notes: tuple[str, ...] = ()  # decisions and their reasons, a sentence each
    estimate: Estimate | None = None
    # what was not checked where the plan was made, a phrase each
    unchecked: tuple[str, ...] = field(default=(), metadata={OMITTED: True})
    # whose files and programs it changes; None: this system's
    installed: Installed | None = field(default=None, metadata={OMITTED: True})

    @property
    def writes(self) -> bool:
        return len(self.of(CheckContent)) < len(self.steps)

    def numbered(self, kind: type[_Step]) -> tuple[tuple[int, _Step], ...]:
        """Return the steps of one kind, each with its index, which a journal or a record counts."""
        return tuple((index, step) for index, step in enumerate(self.steps) if isinstance(step, kind))

    def of(self, kind: type[_Step]) -> tuple[_Step, ...]:
        """Return the steps of one kind."""
        return tuple(step for _, step in self.numbered(kind))


class MovePlan(Plan):
    """A plan whose progress is in a journal: it moves content, or changes the table around it."""

    @property
    def journal(self) -> JournalPlace:
        return self.of(WriteJournal)[0].journal

    @property
    def park(self) -> ParkEntries:
        return self.of(ParkEntries)[0]

    @property
    def park_at(self) -> int:
        return self.index_of(ParkEntries)

    @property
    def holds(self) -> tuple[HoldContent, ...]:
        return self.of(HoldContent)

    @property
    def copies(self) -> tuple[CopyContent, ...]:
        return self.of(CopyContent)

    @property
    def releases(self) -> tuple[ReleaseContent, ...]:
        return self.of(ReleaseContent)

    @property
    def rebuilds(self) -> tuple[RebuildContent, ...]:
        return self.of(RebuildContent)

    @property
    def saved(self) -> tuple[SavedStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, SavedStep))

    @property
    def rewrite(self) -> RewriteTable:
        return self.of(RewriteTable)[0]

    @property
    def conversion(self) -> ConvertTable | None:
        """Return the step that converts the table; None if the plan is not a conversion."""
        return next(iter(self.of(ConvertTable)), None)

    @property
    def commit_at(self) -> int:
        """Return the index of the step that commits."""
        return self.index_of(ConvertTable if self.conversion else RewriteTable)

    def index_of(self, kind: type[Step]) -> int:
        """Return the index of the first step of a kind."""
        return self.numbered(kind)[0][0]


def what_stays_shrunk(plan: Plan, *, ended: bool = False, back: bool = True) -> str:
    """Return what a rollback of the plan does not undo, as a clause; "" if it shrinks no file system.
    `ended`: the plan was applied, or undone (`back`): what began at byte 0 has the whole disk again then.
    """
    names = ", ".join(
        f"the {step.kind} on "
        + ("the whole disk" if back and not step.extent.start else f"partition {step.partition}")
        for step in plan.of(ShrinkContent)
    )
    state = f"now shorter than before: {names}" if ended else f"a rollback leaves {names} shorter"
    how = by_hand(ByHand.GROWING, "its own tool")
    return f"{state}; to lengthen it again: {how}" if names else ""


class TablePlan(Plan):
    """A plan that cannot be continued: a new table, or a copy of a disk with another table."""


class ArrayPlan(Plan):
    """A plan whose progress is in a record: it changes an array, or the layers of a disk."""

    @property
    def drives(self) -> tuple[DriveStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, DriveStep))

    @property
    def members(self) -> tuple[str, ...]:
        """Return the devices of the members that it makes or changes."""
        return tuple(step.device for step in self.drives if not isinstance(step, FormatDrive))

    @property
    def array(self) -> MakeArray | None:
        """Return the step that creates the array, or None."""
        return next(iter(self.of(MakeArray)), None)

    @property
    def changes_layers(self) -> bool:
        """Return whether it changes the layers of its disk, which is no array."""
        return self.purpose == "layers"


def move_plan(plan: Plan) -> MovePlan:
    """Return the plan, narrowed to a MovePlan. Raises ValueError for any other plan."""
    if not isinstance(plan, MovePlan):
        raise ValueError(f"{plan.purpose} has no journal")
    return plan


def array_plan(plan: Plan) -> ArrayPlan:
    """Return the plan, narrowed to an ArrayPlan. Raises ValueError for any other plan."""
    if not isinstance(plan, ArrayPlan):
        raise ValueError(f"{plan.purpose} has no record")
    return plan


def _type_of(plan: object) -> type[Plan]:
    """Return the type of a plan in a document."""
    match plan:
        case {"purpose": "layout" | "convert-copy"}:
            return TablePlan
        case {"purpose": "raid" | "persist" | "reformat" | "layers"}:
            return ArrayPlan
    return MovePlan


# Plans as JSON documents. A digest protects against applying an edited plan by accident.
#
# The names in it are frozen, in plans, journals and records alike: docs/json.md, "Frozen names".

SCHEMA = "aligntool.plan"
VERSION = 1
NO_PLAN = "aligntool plan --help"  # it lists the commands that make one

STEPS: dict[str, type[Step]] = {kind.__name__: kind for kind in get_args(Step)}
"""Every step by its name in documents. A renamed class must keep its old name here."""

_TAGS = {kind: {"step": name} for name, kind in STEPS.items()}


def to_json(plan: Plan) -> str:
    body = {"digest": digest(plan), "plan": as_object(plan, _TAGS)}
    return json.dumps({"schema": SCHEMA, "version": VERSION, **body}, indent=2)


def from_json(text: str, name: str = "the document") -> Plan:
    """Return the plan in a document. `name`: that of its file. Raises Refused if it is not a plan, has
    another version, or was changed.
    """
    try:
        document = load_object(text)
        check_schema(document, SCHEMA, VERSION)
        found = document.get("plan")
        plan = decode(_type_of(found), found, exact=True, tags=_TAGS)
    except ValueError as error:
        raise Refused(f"{name} is not a plan: {error}", hint=NO_PLAN) from error
    if digest(plan) != document.get("digest"):
        text = "the plan has been changed since it was made: its digest does not match"
        raise Refused(text, hint=_replan_command(plan))
    return plan


_PLANNED_BY = {"partition": "plan partition", "unpartition": "plan partition", "convert": "plan convert"}


def planned_by(plan: Plan) -> str:
    """Return the words of the command that plans this change of a disk."""
    return _PLANNED_BY.get(plan.purpose, "plan realign")


def _replan_command(plan: Plan) -> str:
    """Return the command that makes this plan again, or its help if the name of the disk is not sufficient
    for it.
    """
    name = {"realign": "plan realign", "persist": "raid persist"}.get(plan.purpose)
    if name is not None:
        return command(name, plan.disk.path)
    planning = {"raid": "raid plan", "reformat": "raid reformat", "layout": "plan layout"}
    planning |= {"convert-copy": "plan convert", **_PLANNED_BY}
    return f"aligntool {planning.get(plan.purpose, 'plan')} --help"


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """The request from which an array was planned: the drives as named by the user, and the goal."""

    drives: tuple[str, ...]
    goal: RaidGoal
    # what stood for the drives: "capture", of another machine, or "images"; "": the drives themselves
    made_from: str = field(default="", metadata={OMITTED: True})


def plan_with_request(plan: Plan, key: str, asked: object) -> str:
    """Return the plan as a document that also contains the request under `key`. Applying plans again from the
    request.

    The digest covers the plan only: a changed request gives another plan, which is refused.
    """
    return json.dumps(json.loads(to_json(plan)) | {key: as_object(asked)}, indent=2)


def request_in_document(text: str, key: str, kind: type[_Request]) -> _Request:
    """Return the request under `key` in a document. Raises Refused if it is missing or invalid."""
    try:
        return decode(kind, load_object(text).get(key), exact=True)
    except ValueError as error:
        problem = f"the plan does not contain the request it was made from: {error}"
        raise Refused(problem, hint=_replan_command(from_json(text))) from error


def digest(plan: Plan) -> str:
    """Return the SHA-256 of the canonical JSON of a plan, which identifies it in a journal and for a
    reviewer.
    """
    return hashlib.sha256(json.dumps(as_object(plan, _TAGS), sort_keys=True).encode()).hexdigest()


def step_name(step: Step) -> str:
    """Return the name of a step in documents."""
    return _TAGS[type(step)]["step"]
