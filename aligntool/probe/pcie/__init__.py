"""Where the drives hang: PCIe links, the uplinks they share, controllers that hide drives.

In: a `Tree` (sysfs, live or captured) and the real path of a device in it. Out: LinkHop, Uplink and Adapter values.
Alone because it is the only part of the probe that knows PCI: classes, link words, device names, chipsets.
"""

from aligntool.probe.pcie.adapters import find_adapters
from aligntool.probe.pcie.hops import Topology, read_links
from aligntool.probe.pcie.names import PciNames
from aligntool.probe.pcie.uplinks import find_uplinks

__all__ = ["PciNames", "Topology", "find_adapters", "find_uplinks", "read_links"]
