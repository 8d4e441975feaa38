"""Read PCIe links, adapters and uplinks from sysfs, and names from DMI."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from aligntool.inventory import Adapter, Disk, LinkHop, Port, Source, Uplink
from aligntool.linux.sysfs import Tree
from aligntool.recipes.drives import PortFamily, Side, lane_bandwidth, load_chipsets

# Names of PCI devices, from the pci.ids file of the machine that runs aligntool. The file is long (1.3 MB,
# 35,000 names) and a machine needs only a few of them: it is read once, for the first name, and searched as
# bytes, never parsed as a whole.
#
# Format: https://pci-ids.ucw.cz/ ("vendor name", then "<tab>device name", then "<tab><tab>subvendor subdevice
# name").

# Debian and Arch; Fedora, openSUSE and Arch
PLACES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
LONGEST_FILE = 16 * 1024 * 1024
_chipsets = cache(load_chipsets)

# a vendor, or the list of classes ("C 00  ...") at the end
_NEXT_VENDOR = re.compile(rb"\n[0-9a-fA-FC]{1,4} ")


class PciNames:
    """Names of PCI devices; `places` are tried in turn. The file and the names are cached."""

    def __init__(self, places: tuple[str, ...] = PLACES) -> None:
        self._file = cache(lambda: next(filter(None, map(_read_file, places)), b""))
        self.device = cache(self._device)

    def _device(self, vendor: str, device: str) -> str | None:
        return _search(self._file(), vendor.encode(), device.encode())


def _read_file(place: str) -> bytes:
    try:
        with Path(place).open("rb") as file:
            return b"\n" + file.read(LONGEST_FILE)
    except OSError:
        return b""


def _search(content: bytes, vendor: bytes, device: bytes) -> str | None:
    start = content.find(b"\n" + vendor + b"  ")
    if start < 0:
        return None
    following = _NEXT_VENDOR.search(content, start + 1)
    _, found, rest = content[start : following and following.start()].partition(b"\n\t" + device + b"  ")
    return rest.partition(b"\n")[0].decode("utf-8", "replace").strip() or None if found else None


# Adapters: controllers that hide or move the drives behind them. AHCI controllers under which firmware RAID
# hides NVMe drives, and VMD controllers, which put their drives into separate PCI domains. Both exist only on
# root buses, so only those are read.

_DEVICES = "/sys/devices"
_AHCI = "0x0106"  # PCI class: mass storage, SATA
_RAID = "0x0104"  # mass storage, RAID: VMD, and AHCI in RAID mode
_INTEL = "0x8086"
_MOST_REMAPPED = 3  # drivers/ata/ahci.h, AHCI_MAX_REMAP


def find_adapters(tree: Tree) -> tuple[Adapter, ...]:
    names = PciNames()
    return tuple(filter(None, (_adapter(tree, path, names) for path in _functions_on_root_buses(tree))))


def _functions_on_root_buses(tree: Tree) -> Iterator[str]:
    for bus in (name for name in tree.names(_DEVICES) if name.startswith("pci")):
        for address in tree.names(f"{_DEVICES}/{bus}"):
            if address.startswith(f"{bus.removeprefix('pci')}:"):
                yield f"{_DEVICES}/{bus}/{address}"


def _adapter(tree: Tree, path: str, names: PciNames) -> Adapter | None:
    kind = tree.text(f"{path}/class") or ""
    if not kind.startswith((_AHCI, _RAID)):
        return None
    vendor = tree.text(f"{path}/vendor") or ""
    device = tree.text(f"{path}/device") or ""
    remapped = tree.number(f"{path}/remapped_nvme") or 0  # drivers/ata/ahci.c, remapped_nvme_show
    vmd = kind.startswith(_RAID) and vendor == _INTEL and _is_vmd(tree, path, device)
    if not (vmd or 0 < remapped <= _MOST_REMAPPED):
        return None
    name = names.device(vendor.removeprefix("0x"), device.removeprefix("0x"))
    return Adapter(path.rpartition("/")[2], name, 0 if vmd else remapped, vmd)


def _is_vmd(tree: Tree, path: str, device: str) -> bool:
    """Return whether the device is a VMD: by its driver, by its domain, or by its ID if no driver is bound
    (then no drive is visible).
    """
    driver = tree.link(f"{path}/driver") or ""
    if driver.rpartition("/")[2] == "vmd" or any(re.match("pci1.*:", name) for name in tree.names(path)):
        return True
    return f"8086:{device.removeprefix('0x')}" in _chipsets().vmd


# The path from a drive up to the root of its PCIe tree: one LinkHop per PCI address, the drive (or its
# controller) first, the root last.
#
# `recipes/chipsets.toml` and pci.ids add what sysfs does not show: whether a root port belongs to the
# processor or to the chipset, and the link between those two.

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_HOST_BRIDGE = r"pci[0-9a-f]{4,8}:[0-9a-f]{2}"
_NUMBER = r"0x[0-9a-f]{1,8}"
# drivers/pci/probe.c, pci_speed_string
_SPEEDS = {"2.5": 2.5, "5": 5.0, "8": 8.0, "16": 16.0, "32": 32.0, "64": 64.0}
# PCI Express base specification, Link Capabilities, Maximum Link Width
_WIDTHS = frozenset((1, 2, 4, 8, 12, 16, 32))
# the LPC or eSPI bridge of every Intel chipset since ICH0, whose device ID identifies the model
_LPC = "1f.0"


class Topology:
    """Reads paths and caches their common hops: one adapter with a thousand drives is read once."""

    def __init__(self, tree: Tree, names: PciNames | None = None) -> None:
        self.tree = tree
        self.names = names or PciNames()
        self._hop = cache(self._read_hop)

    def links(self, sysfs_device: str) -> tuple[LinkHop, ...]:
        """Return the hops from the drive to the root; () for a device that is not on PCI."""
        places = _places(sysfs_device)
        hops = [self._hop(place, place is places[-1]) for place in places]
        hops = [
            replace(hop, port=Port.SWITCH) if _is_switch(hops, place) else hop
            for place, hop in enumerate(hops)
        ]
        return tuple(reversed(hops))

    def _read_hop(self, place: "_Place", last: bool) -> LinkHop:
        path = place.path
        vendor = self._id(path, "vendor")
        device = self._id(path, "device")
        name = self.names.device(vendor, device) if vendor and device else None
        pci_id = f"{vendor}:{device}" if vendor and device else None
        family = _chipsets().family(pci_id, name) if place.on_root_bus and pci_id else None
        speed = _speed(self.tree.text(f"{path}/current_link_speed"))
        width = _width(self.tree.number(f"{path}/current_link_width"))
        most_speed = _speed(self.tree.text(f"{path}/max_link_speed"))
        most_width = _width(self.tree.number(f"{path}/max_link_width"))
        hidden = self._hidden_uplink(place, family)
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
        return f"{int(text, 16):04x}" if text is not None and re.fullmatch(_NUMBER, text) else None

    def _hidden_uplink(self, place: "_Place", family: PortFamily | None) -> PortFamily | None:
        """Return the family with the link from the chipset to the processor, if the hop is a port of the
        chipset.
        """
        if family is None or family.side is not Side.CHIPSET:
            return None
        model = self._id(
            f"{place.outermost_bus}/{place.outermost_bus.rpartition('/pci')[2]}:{_LPC}", "device"
        )
        return _chipsets().narrowed(family, f"8086:{model}") if model else family


@dataclass(frozen=True, slots=True)
class _Place:
    """A PCI address on a path in sysfs."""

    address: str
    path: str
    outermost_bus: str  # "/sys/devices/pci0000:00"
    on_root_bus: bool  # only a host bridge above it
    makes_domain: bool  # another host bridge below it: it is a VMD controller


def _places(sysfs_device: str) -> list[_Place]:
    """Return the addresses from the root to the drive."""
    words = sysfs_device.split("/")
    places: list[_Place] = []
    outermost = ""
    fresh = False
    for index, word in enumerate(words):
        path = "/".join(words[: index + 1])
        if re.fullmatch(_HOST_BRIDGE, word):
            outermost = outermost or path
            fresh = True
            if places:
                places[-1] = replace(places[-1], makes_domain=True)
        elif outermost and re.fullmatch(_ADDRESS, word):
            places.append(_Place(word, path, outermost, fresh, False))
            fresh = False
    return places


def _port(place: _Place, last: bool, family: PortFamily | None) -> Port:
    if place.makes_domain:
        return Port.VMD
    if last:
        return Port.ENDPOINT
    if not place.on_root_bus:
        return Port.BRIDGE  # a switch or a plain bridge: `_is_switch` checks the device below it
    if family is None:
        return Port.ROOT
    return Port.CHIPSET_ROOT if family.side is Side.CHIPSET else Port.CPU_ROOT


def _is_switch(hops: list[LinkHop], index: int) -> bool:
    """Return whether the hop is a switch: it and the device below it have PCIe links; below a bridge to
    conventional PCI there is none.
    """
    here = hops[index]
    return here.port is Port.BRIDGE and _has_link(here) and _has_link(hops[index + 1])


def _has_link(hop: LinkHop) -> bool:
    return hop.max_speed_gts is not None or hop.speed_gts is not None


def _speed(text: str | None) -> float | None:
    """Parse "8.0 GT/s PCIe", on kernels before 5.9 "8 GT/s"; None for "Unknown" and "Unknown speed"."""
    return _SPEEDS.get((text or "").partition(" ")[0].removesuffix(".0"))


def _width(lanes: int | None) -> int | None:
    """Return the width, or None for 0 (the link is down) and 255 (PCIE_LNK_WIDTH_UNKNOWN)."""
    return lanes if lanes in _WIDTHS else None


def _bandwidth(speed_gts: float | None, width: int | None) -> int | None:
    return None if speed_gts is None or width is None else lane_bandwidth(speed_gts, width)


# Uplinks: links that several drives share. sysfs shows some (a switch's upstream port, the link of a
# controller with several drives) and hides the one between the chipset and the processor.


def find_uplinks(disks: Iterable[Disk]) -> tuple[Uplink, ...]:
    """Return the links that at least two drives share; a chipset's link even for one, because other I/O
    shares it.
    """
    # The hop of a link, and the names of the drives behind it: an ordered set.
    visible: dict[str, tuple[LinkHop, dict[str, None]]] = {}
    hidden: dict[tuple[str, str], tuple[LinkHop, dict[str, None]]] = {}
    for disk in disks:
        for path in disk.links:
            for hop in _link_ends(path):
                visible.setdefault(hop.address, (hop, {}))[1][disk.name] = None
            for hop in path:
                if hop.hidden_uplink is not None:
                    bus = path[-1].address.rpartition(":")[0]
                    hidden.setdefault((bus, hop.hidden_uplink), (hop, {}))[1][disk.name] = None
    found = [
        Uplink(address, hop.bandwidth, Source.REPORTED, tuple(members))
        for address, (hop, members) in sorted(visible.items(), key=lambda one: one[0])
        if len(members) > 1 or _is_chipset(hop)
    ]
    for (_, name), (hop, members) in sorted(hidden.items(), key=lambda one: one[0]):
        found.append(Uplink(name, hop.hidden_bandwidth, Source.KNOWN, tuple(members)))
    return tuple(found)


def _link_ends(path: tuple[LinkHop, ...]) -> Iterator[LinkHop]:
    """Yield the lower end of each link of the path, so that no link counts twice.

    From the root port down, the ports of switches alternate: upstream (the lower end of a link), downstream
    (the upper end of the next), upstream ... The two ports of one switch have no link between them.
    """
    below_root = 0
    for hop in reversed(path):
        if hop.port in (Port.SWITCH, Port.BRIDGE):
            below_root += 1
            if below_root % 2 == 0:
                continue
        elif hop.port is not Port.ENDPOINT:
            below_root = 0
            continue
        if hop.bandwidth is not None or hop.max_bandwidth is not None:
            yield hop


def _is_chipset(hop: LinkHop) -> bool:
    """Return whether the hop belongs to a chipset; AMD's chipsets are switches, so sysfs shows their
    uplink.
    """
    family = _chipsets().family(hop.pci_id, hop.name) if hop.port is Port.SWITCH and hop.pci_id else None
    return family is not None and family.side is Side.CHIPSET
