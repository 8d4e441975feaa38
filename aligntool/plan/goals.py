"""What the user wants, before anybody has thought about how."""

from dataclasses import dataclass

from aligntool.units import MIB


@dataclass(frozen=True, slots=True)
class RealignGoal:
    """Every start on the disk's grids, and on `grain` where there is room."""

    partitions: tuple[int, ...] = ()  # none: every partition that is off the grid
    grain: int = MIB
    grain_given: bool = False  # the user (or a recipe) insists: a coarser or finer one is no answer
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
