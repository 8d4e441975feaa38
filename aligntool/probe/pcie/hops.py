"""The way from a drive up to the root of its PCIe tree, hop by hop.

In: a `Tree` and the real path of a device, "/sys/devices/pci0000:00/0000:00:1c.0/0000:02:00.0/nvme/nvme0". Out: one
LinkHop per PCI address on that path, the drive (or the controller that the drive hangs on) first, the root last.

What sysfs cannot say is added from `recipes/chipsets.toml` and pci.ids: whether a root port belongs to the processor or
to the chipset, and what link lies between those two.
"""

import re
from dataclasses import dataclass, field, replace

from aligntool.inventory import LinkHop, Port
from aligntool.probe.pcie.names import PciNames
from aligntool.probe.tree import Tree
from aligntool.recipe import ChipsetTable, PortFamily, Side, lane_bandwidth, load_chipsets

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_NUMBER = re.compile(r"0x[0-9a-f]{1,8}")
_SPEEDS = {
    "2.5": 2.5,
    "5": 5.0,
    "8": 8.0,
    "16": 16.0,
    "32": 32.0,
    "64": 64.0,
}  # drivers/pci/probe.c, pci_speed_string
_WIDTHS = frozenset(
    (1, 2, 4, 8, 12, 16, 32)
)  # PCI Express base specification, Link Capabilities, Maximum Link Width
_LPC = "1f.0"  # where every Intel chipset since ICH0 has its LPC or eSPI bridge, whose number tells the model


@dataclass(frozen=True, slots=True)
class Topology:
    """Reads paths and remembers the hops that they share: a thousand drives on one adapter read it once."""

    tree: Tree
    names: PciNames = field(default_factory=PciNames)
    _hops: dict[str, LinkHop] = field(default_factory=dict, repr=False, compare=False)
    _table: list[ChipsetTable] = field(default_factory=list, repr=False, compare=False)

    def links(self, sysfs_device: str) -> tuple[LinkHop, ...]:
        """Nothing for a device that does not hang on PCI."""
        places = _places(sysfs_device)
        hops = [self._hop(place, place is places[-1]) for place in places]
        hops = [
            replace(hop, port=Port.SWITCH) if _is_switch(hops, place) else hop
            for place, hop in enumerate(hops)
        ]
        return tuple(reversed(hops))

    def _hop(self, place: "_Place", last: bool) -> LinkHop:
        key = f"{place.path}{'!' if last else ''}"
        if key not in self._hops:
            self._hops[key] = self._read(place, last)
        return self._hops[key]

    def _read(self, place: "_Place", last: bool) -> LinkHop:
        path = place.path
        vendor, device = self._id(path, "vendor"), self._id(path, "device")
        name = self.names.device(vendor, device) if vendor and device else None
        pci_id = f"{vendor}:{device}" if vendor and device else None
        family = self._family(pci_id, name) if place.on_root_bus else None
        speed = _speed(self.tree.text(f"{path}/current_link_speed"))
        width = _width(self.tree.number(f"{path}/current_link_width"))
        most_speed = _speed(self.tree.text(f"{path}/max_link_speed"))
        most_width = _width(self.tree.number(f"{path}/max_link_width"))
        hidden = self._hidden(place, family)
        return LinkHop(
            address=place.address,
            port=_port(place, last, family),
            name=name,
            speed_gts=speed,
            width=width,
            max_speed_gts=most_speed,
            max_width=most_width,
            bandwidth=_bandwidth(speed, width),
            max_bandwidth=_bandwidth(most_speed, most_width),
            pci_id=pci_id,
            hidden_uplink=hidden.uplink or "chipset link" if hidden else None,
            hidden_bandwidth=hidden.bandwidth if hidden else None,
        )

    def _id(self, path: str, attribute: str) -> str | None:
        text = self.tree.text(f"{path}/{attribute}")
        return f"{int(text, 16):04x}" if text is not None and _NUMBER.fullmatch(text) else None

    def _chipsets(self) -> ChipsetTable:
        if not self._table:
            self._table.append(load_chipsets())
        return self._table[0]

    def _family(self, pci_id: str | None, name: str | None) -> PortFamily | None:
        return None if pci_id is None else self._chipsets().family(pci_id, name)

    def _hidden(self, place: "_Place", family: PortFamily | None) -> PortFamily | None:
        """The link between the processor and the chipset that this hop is a part of."""
        if family is None or family.side is not Side.CHIPSET:
            return None
        bridge = f"{place.outermost_bus}/{place.outermost_bus.rpartition('/pci')[2]}:{_LPC}"
        model = self._id(bridge, "device")
        return self._chipsets().narrowed(family, f"8086:{model}") if model else family


def read_links(tree: Tree, sysfs_device: str) -> tuple[LinkHop, ...]:
    """One LinkHop per PCI address on the path, the drive first, the root last. For many drives use one `Topology`."""
    return Topology(tree).links(sysfs_device)


@dataclass(frozen=True, slots=True)
class _Place:
    """One PCI address on a path in sysfs."""

    address: str
    path: str
    outermost_bus: str  # "/sys/devices/pci0000:00"
    on_root_bus: bool  # nothing of PCI above it but a host bridge
    makes_domain: bool  # below it another host bridge begins: it is a VMD controller


def _places(sysfs_device: str) -> list[_Place]:
    """From the root to the drive."""
    words = sysfs_device.split("/")
    places: list[_Place] = []
    outermost, fresh = "", False
    for index, word in enumerate(words):
        path = "/".join(words[: index + 1])
        if _HOST_BRIDGE.fullmatch(word):
            outermost = outermost or path
            fresh = True
            if places:
                places[-1] = replace(places[-1], makes_domain=True)
        elif outermost and _ADDRESS.fullmatch(word):
            places.append(_Place(word, path, outermost, fresh, False))
            fresh = False
    return places


def _port(place: _Place, last: bool, family: PortFamily | None) -> Port:
    if place.makes_domain:
        return Port.VMD
    if last:
        return Port.ENDPOINT
    if not place.on_root_bus:
        return Port.BRIDGE  # a switch or a plain bridge: `_is_switch` looks at what lies below it
    if family is None:
        return Port.ROOT
    return Port.CHIPSET_ROOT if family.side is Side.CHIPSET else Port.CPU_ROOT


def _is_switch(hops: list[LinkHop], index: int) -> bool:
    """Both it and what lies below it have PCIe links; below a bridge to conventional PCI there is none."""
    here = hops[index]
    return here.port is Port.BRIDGE and _has_link(here) and _has_link(hops[index + 1])


def _has_link(hop: LinkHop) -> bool:
    return hop.max_speed_gts is not None or hop.speed_gts is not None


def _speed(text: str | None) -> float | None:
    """ "8.0 GT/s PCIe", on kernels before 5.9 "8 GT/s"; "Unknown", "Unknown speed"."""
    words = text.split(" ", 1) if text else [""]
    return _SPEEDS.get(words[0].removesuffix(".0"))


def _width(lanes: int | None) -> int | None:
    """0 when the link is down, 255 (PCIE_LNK_WIDTH_UNKNOWN) when nobody knows."""
    return lanes if lanes in _WIDTHS else None


def _bandwidth(speed_gts: float | None, width: int | None) -> int | None:
    if speed_gts is None or width is None:
        return None
    return lane_bandwidth(speed_gts, width)
