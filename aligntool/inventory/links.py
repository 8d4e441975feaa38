"""Where drives hang: PCIe links, shared uplinks, adapters."""

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
