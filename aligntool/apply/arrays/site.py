"""Where an array is made: whose files, which folder for the record, and who looks at drives.

In: nothing. Out: a value that every step gets. Alone because acting may not import looking, so whoever starts the walk
hands in how to look; and because tests make arrays in a made-up tree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aligntool.apply.arrays.record import STATE
from aligntool.inventory import Disk, Sampled
from aligntool.units import Extent


@dataclass(frozen=True, slots=True)
class Site:
    """`look_at` takes the path of a whole disk and looks at it now; raises Refused where that cannot be done.

    `look_around` looks at every disk of the machine. `problem_of` asks the checker of a file system (device, its size
    in bytes, kind): a sentence where it is not whole, None where it is, or where nobody can tell. `sample` reads a few
    places of a run of a disk's bytes.
    """

    look_at: Callable[[str], Disk]
    look_around: Callable[[], tuple[Disk, ...]]
    problem_of: Callable[[str, int, str], str | None]
    sample: Callable[[str, Extent], Sampled]
    root: Path = Path("/")
    state: Path = STATE

    def path(self, name: str) -> Path:
        """Of a file of the system, below the root."""
        return self.root / name.lstrip("/")
