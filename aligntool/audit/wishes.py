"""What the user asks of an audit beyond what the devices say."""

from dataclasses import dataclass

from aligntool.units import MIB


@dataclass(frozen=True, slots=True)
class Wishes:
    """Sizes in bytes. `page_size` None: ask the drive and the database. `grain`: the boundary partitions should
    be on.
    """

    page_size: int | None = None
    grain: int = MIB
