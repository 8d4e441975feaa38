"""What the user asks of an audit beyond what the devices say."""

from dataclasses import dataclass

from aligntool.inventory import Disk
from aligntool.units import MIB


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """A boundary that was timed on a drive: crossing it takes longer. Bytes; confidence from 0 to 1."""

    size: int
    confidence: float


@dataclass(frozen=True, slots=True)
class MeasuredDisk:
    """What `aligntool probe` found on one drive, sure enough to be told."""

    name: str
    path: str
    size: int
    units: tuple[MeasuredUnit, ...]
    serial: str | None = None
    wwn: str | None = None

    def is_of(self, disk: Disk) -> bool:
        """By what the drive calls itself; where it has no number of its own, by its name and size."""
        if self.size != disk.size:
            return False
        for mine, its in ((self.wwn, disk.wwn), (self.serial, disk.serial)):
            if mine or its:
                return mine == its
        return self.name == disk.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Wishes:
    """Sizes in bytes. `page_size` None: ask the drive and the database. `grain`: the boundary partitions should
    be on.
    """

    page_size: int | None = None
    grain: int = MIB
    measured: tuple[MeasuredDisk, ...] = ()
