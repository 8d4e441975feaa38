"""Goals, plans, events, and plans as JSON: the contract between planning, acting and rendering."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import TypeVar, get_args

from aligntool.documents import as_object, check_schema, decode, load_object
from aligntool.errors import Refused
from aligntool.steps import CheckContent, Step, Subject
from aligntool.units import KIB, MIB, Extent

# What acting says while it acts. Here, so that telling need not know acting.


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
    """A sentence for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class KernelBehind(Said):
    """Everything is done; the running kernel still shows the partitions as they were, or not at all."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A disk has not answered a request for so long. The work goes on by itself when it does."""

    disk: str  # or the file of a journal
    request: str  # "read", "write" or "flush"; "any" where that is not known
    seconds: int


def waiting_words(event: Waiting) -> tuple[str, str]:
    """Return it as two sentences."""
    if event.request == "any":
        return (
            f"{event.disk} has not answered for {event.seconds} s. It is waited for",
            "Ctrl-C is safe: it shows what is left to do",
        )
    return (
        f"{event.disk} has not answered a {event.request} for {event.seconds} s. The move waits; nothing is lost",
        "Ctrl-C is safe: aligntool resume continues later",
    )


Event = StepBegun | Progress | StepDone | Said | Waiting


class Moment(StrEnum):
    """What happens to a change, in the words of the system's log."""

    BEGUN = "began"
    RESUMED = "is resumed"
    UNDOING = "is being undone"
    DONE = "is complete"
    UNDONE = "is undone"
    STOPPED = "stopped before the end"


# What the user wants.


@dataclass(frozen=True, slots=True)
class RealignGoal:
    """Every start on the disk's grids, and on `grain` where there is room."""

    partitions: tuple[int, ...] = ()  # none: every partition that is off the grid
    grain: int = MIB
    grain_given: bool = False  # the user (or a recipe) insists: a coarser or finer one is not an answer
    shrink: bool = False  # file systems may be shrunk to make room
    journal_file: str | None = None
    least_start: int = 0  # no partition may begin before this byte; SD cards: 4 MiB


@dataclass(frozen=True, slots=True)
class PartWish:
    """One partition of a new layout."""

    size: int | None  # bytes; None: the rest
    role: str  # "esp", "linux", "swap", "linux-raid", "lvm", "home", "bios-boot", ...
    name: str = ""


@dataclass(frozen=True, slots=True)
class LayoutGoal:
    """A new table for an empty disk."""

    parts: tuple[PartWish, ...]
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
"""What fields of a RaidGoal may be."""


@dataclass(frozen=True, slots=True)
class RaidGoal:
    """An array of drives that are empty. None: what aligntool recommends. Sizes in bytes.

    The UUIDs are a part of the goal, so that the lines that name them are known before anything is made, and one goal
    makes one plan.
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
    mount_at: str | None = None  # None: /srv/NAME; "": nowhere
    mount_options: tuple[str, ...] | None = None
    members: str = "new-partitions"  # a table is made on each drive; "whole-drives": none; "partitions": those named
    member_size: int | None = None  # of each member partition; None: all there is
    spare_room: int | None = None  # left free at the end of each drive, for a smaller replacement
    esp_size: int = 0  # an EFI system partition of this size on every drive; 0: none
    partitions: tuple[int | None, ...] = ()  # for each drive, the partition that is the member; None or (): the drive
    wipe: tuple[str, ...] = ()  # names of the drives and partitions whose content may be lost
    measured: str = ""  # the text of a result of `raid tune`; it counts where it is about this array
    system: str = "debian"  # whose files and commands make the array permanent
    array_uuid: str = "00000000:00000000:00000000:00000000"
    filesystem_uuid: str = "00000000-0000-0000-0000-000000000000"

    @property
    def whole_drives(self) -> bool:
        return self.members == "whole-drives"

    @property
    def place(self) -> str:
        """Where it is mounted; "": nowhere."""
        if self.filesystem in ("swap", "none"):
            return ""
        return f"/srv/{self.name}" if self.mount_at is None else self.mount_at


# A plan and what it is about: the disk, its partitions before and after, what it will cost.


@dataclass(frozen=True, slots=True)
class Place:
    """One partition before and after; equal when it stays, `before` None when it is new."""

    number: int
    before: Extent | None
    after: Extent
    what: str  # "ext4 \"root\"", "EFI System"
    why: str = ""  # why it stays or moves: "on the grid", "off 4KiB by 3584B"


@dataclass(frozen=True, slots=True)
class Used:
    """How much of a partition a move has to copy, and who says so."""

    partition: int
    bytes: int
    by: str  # "partclone.ext4", "everything: no map for crypto_LUKS"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What it will cost, as far as it can be estimated. Not a part of what the plan promises."""

    bytes_to_copy: int
    seconds: int | None
    used: tuple[Used, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done to a disk or an array, step by step, and what it costs. It promises only its steps."""

    purpose: str  # "realign", "layout", "partition", "unpartition", "convert", "convert-copy", "raid", "persist" ...
    disk: Subject  # of an array: the array to be; its members are in the steps
    goal: str  # in words: "every start on 1MiB"
    places: tuple[Place, ...]
    steps: tuple[Step, ...]
    attention: tuple[str, ...] = ()  # what needs the user afterwards, a sentence each
    notes: tuple[str, ...] = ()  # what was decided and why, a sentence each
    estimate: Estimate | None = None

    @property
    def writes(self) -> bool:
        return not all(isinstance(step, CheckContent) for step in self.steps)


# A plan as a JSON document, and back. Protected by a digest, so that an edited plan is not applied by
# accident.
#
# The names in it are frozen, in plans, journals and records alike: docs/json.md, "Frozen names".

SCHEMA = "aligntool.plan"
VERSION = 1
_Asked = TypeVar("_Asked")
_NO_PLAN = "aligntool audit"  # which names every disk, and what to type

STEPS: dict[str, type[Step]] = {kind.__name__: kind for kind in get_args(Step)}
"""Every step by its name in documents. A class that is renamed keeps its old name here."""

_TAGS = {kind: {"step": name} for name, kind in STEPS.items()}


def to_json(plan: Plan) -> str:
    body = {"digest": digest(plan), "plan": as_object(plan, _TAGS)}
    return json.dumps({"schema": SCHEMA, "version": VERSION, **body}, indent=2)


def from_json(text: str) -> Plan:
    """Return the plan of a document. Raises Refused where it is not one, of another version, or was changed."""
    try:
        document = load_object(text)
        check_schema(document, SCHEMA, VERSION)
        plan = decode(Plan, document.get("plan"), exact=True, tags=_TAGS)
    except ValueError as error:
        raise Refused(f"the plan cannot be read: {error}", hint=_NO_PLAN) from error
    if digest(plan) != document.get("digest"):
        raise Refused("the plan was changed since it was made: its digest does not fit", hint=_anew(plan))
    return plan


def _anew(plan: Plan) -> str:
    """What makes a plan of this disk again, where its name is enough for that."""
    words = {"realign": "plan realign", "persist": "raid persist"}.get(plan.purpose)
    if words is None:
        return _NO_PLAN
    return f"{'sudo ' if plan.disk.path.startswith('/dev/') else ''}aligntool {words} {quote(plan.disk.path)}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an array's plan was made of: the drives as named, and the goal."""

    drives: tuple[str, ...]
    goal: RaidGoal


def with_asked(plan: Plan, key: str, asked: object) -> str:
    """Return the plan's document with what was asked for in it, from which applying plans again. The digest is over the
    plan only: other wishes lead to another plan, and that is refused.
    """
    return json.dumps(json.loads(to_json(plan)) | {key: as_object(asked)}, indent=2)


def asked_of(text: str, key: str, kind: type[_Asked]) -> _Asked:
    """Return what was asked for. Raises Refused where the document does not say it."""
    try:
        return decode(kind, load_object(text).get(key), exact=True)
    except ValueError as error:
        raise Refused(f"the plan lacks what was asked for: {error}", hint=_anew(from_json(text))) from error


def digest(plan: Plan) -> str:
    """The name under which a journal and a reviewer remember the plan; SHA-256 of its canonical JSON."""
    return hashlib.sha256(json.dumps(as_object(plan, _TAGS), sort_keys=True).encode()).hexdigest()


def step_name(step: Step) -> str:
    """Return the name of a step in documents."""
    return _TAGS[type(step)]["step"]
