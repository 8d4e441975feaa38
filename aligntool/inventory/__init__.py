"""What a machine has: a frozen picture, taken once by `probe` and never changed after.

Every size and offset is in bytes, and every offset inside a disk is counted from that disk's first byte.
Strings that came from a device (models, serials, labels) are kept as they were read; whoever shows them makes them
harmless first.
"""

from aligntool.inventory.drives import ArrayFacts, AtaFacts, Health, LbaFormat, NvmeFacts
from aligntool.inventory.geometry import DiskKind, IoLimits, KnownGeometry, Source
from aligntool.inventory.layers import Layer, Segment
from aligntool.inventory.links import (
    Adapter,
    LinkHop,
    LinkMost,
    Port,
    Uplink,
    most_of,
    port_above,
    runs_below,
)
from aligntool.inventory.machine import Disk, Gap, Inventory, Sampled, Unseen
from aligntool.inventory.system import (
    LATE_START,
    LATE_START_ENABLED,
    ArrayLine,
    Initramfs,
    MdadmConf,
    System,
    TableLine,
)
from aligntool.inventory.tables import (
    BootCode,
    Fault,
    InFlight,
    Partition,
    Role,
    Table,
    TableCopy,
    TableCopyState,
    TableFault,
    TableLabel,
)

__all__ = [
    "LATE_START",
    "LATE_START_ENABLED",
    "Adapter",
    "ArrayFacts",
    "ArrayLine",
    "AtaFacts",
    "BootCode",
    "Disk",
    "DiskKind",
    "Fault",
    "Gap",
    "Health",
    "InFlight",
    "Initramfs",
    "Inventory",
    "IoLimits",
    "KnownGeometry",
    "Layer",
    "LbaFormat",
    "LinkHop",
    "LinkMost",
    "MdadmConf",
    "NvmeFacts",
    "Partition",
    "Port",
    "Role",
    "Sampled",
    "Segment",
    "Source",
    "System",
    "Table",
    "TableCopy",
    "TableCopyState",
    "TableFault",
    "TableLabel",
    "TableLine",
    "Unseen",
    "Uplink",
    "most_of",
    "port_above",
    "runs_below",
]
