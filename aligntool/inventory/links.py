"""Where drives hang: PCIe links, shared uplinks, adapters."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from aligntool.inventory.geometry import Source


class Port(StrEnum):
    """What a hop of the PCIe path is."""

    ENDPOINT = "endpoint"
    SWITCH = "switch"
    CPU_ROOT = "cpu-root-port"
    CHIPSET_ROOT = "chipset-root-port"
    ROOT = "root-port"  # a root port, and nobody can tell whose
    VMD = "vmd"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class LinkHop:
    """One PCIe device on the way from a drive up to the root; speeds in bytes per second over all lanes, one
    direction.
    """

    address: str  # 0000:01:00.0
    port: Port
    name: str | None = None  # from pci.ids
    speed_gts: float | None = None  # GT/s a lane, now
    width: int | None = None  # lanes, now
    max_speed_gts: float | None = None
    max_width: int | None = None
    bandwidth: int | None = None
    max_bandwidth: int | None = None
    pci_id: str | None = None  # "8086:a110"
    hidden_uplink: str | None = None  # a link above it that sysfs does not show: "DMI 3.0 x4"
    hidden_bandwidth: int | None = None


@dataclass(frozen=True, slots=True)
class LinkMost:
    """The most that a link can run at: the lower speed of its two ends, and the fewer lanes. None: not reported."""

    speed_gts: float | None
    width: int | None
    bandwidth: int | None  # bytes per second, one direction
    both_ends: bool  # False: the port reports nothing, and this is the drive's own maximum


def most_of(drive: LinkHop, port: LinkHop | None) -> LinkMost:
    """Return what the link between a drive and the port above it can run at. A port never trains a faster speed than
    its own, and lanes that one end lacks stay dark (PCI Express base specification, Link Training).
    """
    ends = [end for end in (drive, port) if end is not None]
    widths = [end.max_width for end in ends if end.max_width]
    speeds = [(end.max_speed_gts, _lane(end)) for end in ends if end.max_speed_gts]
    width = min(widths, default=None)
    speed, lane = min(speeds, key=lambda each: each[0], default=(None, None))
    bandwidth = lane * width if lane and width else None
    return LinkMost(speed, width, bandwidth, len(widths) == len(speeds) == 2)


def runs_below(drive: LinkHop, most: LinkMost) -> bool:
    """Return whether a link runs slower or narrower than it could. What is not reported is not slow."""
    slow = drive.speed_gts and most.speed_gts and drive.speed_gts < most.speed_gts
    narrow = drive.width and most.width and drive.width < most.width
    return bool(slow or narrow)


def port_above(path: Sequence[LinkHop]) -> LinkHop | None:
    """Return the upper end of the drive's link; None: unknown. A VMD controller is no end of a link."""
    return path[1] if len(path) > 1 and path[1].port is not Port.VMD else None


def _lane(hop: LinkHop) -> int | None:
    return hop.max_bandwidth // hop.max_width if hop.max_bandwidth and hop.max_width else None


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link that several drives share."""

    name: str  # "DMI 3.0 x4" or the address of the switch's upstream port
    bandwidth: int | None  # bytes per second, one direction; None: unknown
    source: Source
    members: tuple[str, ...]  # disk names below it


@dataclass(frozen=True, slots=True)
class Adapter:
    """A controller that changes what can be seen of the drives behind it."""

    address: str
    name: str | None
    remapped_nvme: int = 0  # ahci's remapped_nvme: drives hidden by firmware RAID
    vmd: bool = False
