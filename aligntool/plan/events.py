"""What acting says while it acts. Here, so that telling need not know acting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepBegun:
    index: int  # of the plan's steps


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` bytes of the whole plan are copied, flushed, verified and recorded."""

    index: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StepDone:
    index: int


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class KernelBehind(Said):
    """Everything is done; the running kernel still shows the partitions as they were, or not at all."""


Event = StepBegun | Progress | StepDone | Said
