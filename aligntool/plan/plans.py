"""A plan and what it is about: the disk, its partitions before and after, what it will cost."""

from dataclasses import dataclass

from aligntool.plan.steps import Step
from aligntool.plan.subject import Subject
from aligntool.units import Extent


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
    """What it will cost, as far as one can say beforehand. Not a part of what the plan promises."""

    bytes_to_copy: int
    seconds: int | None
    used: tuple[Used, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    purpose: str  # "realign", "layout", "raid", "persist"
    disk: Subject  # of an array: the array to be; its members are in the steps
    goal: str  # in words: "every start on 1MiB"
    places: tuple[Place, ...]
    steps: tuple[Step, ...]
    attention: tuple[str, ...] = ()  # what needs the user afterwards, a sentence each
    notes: tuple[str, ...] = ()  # what was decided and why, a sentence each
    estimate: Estimate | None = None

    @property
    def writes(self) -> bool:
        return any(step.writes for step in self.steps)
