"""The links that several drives share.

In: disks whose `links` were read. Out: Uplinks: those that sysfs shows (a switch's upstream port, the link of a
controller with several drives on it) and the one that it hides, between the chipset and the processor.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from aligntool.inventory import Disk, LinkHop, Port, Source, Uplink
from aligntool.recipe import ChipsetTable, Side, load_chipsets


@dataclass(slots=True)
class _Shared:
    hop: LinkHop
    members: dict[str, None] = field(default_factory=dict)  # in order, each once


def find_uplinks(disks: Iterable[Disk]) -> tuple[Uplink, ...]:
    """A link is told when two drives share it; the chipset's also for one, since all other I/O shares it."""
    visible: dict[str, _Shared] = {}
    hidden: dict[tuple[str, str], _Shared] = {}
    for disk in disks:
        for path in disk.links:
            for hop in _link_ends(path):
                visible.setdefault(hop.address, _Shared(hop)).members[disk.name] = None
            for hop in path:
                if hop.hidden_uplink is not None:
                    bus = path[-1].address.rpartition(":")[0]
                    hidden.setdefault((bus, hop.hidden_uplink), _Shared(hop)).members[disk.name] = None
    chipsets = load_chipsets() if any(each.hop.port is Port.SWITCH for each in visible.values()) else None
    return (*_visible(visible, chipsets), *_hidden(hidden))


def _link_ends(path: tuple[LinkHop, ...]) -> Iterator[LinkHop]:
    """The lower end of each link of the path, so that no link counts twice.

    Counted from the root port, the ports of switches alternate: upstream (the lower end of a link), downstream (its
    upper end), upstream ... What lies between the two ports of one switch is no link.
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


def _visible(shared: dict[str, _Shared], chipsets: ChipsetTable | None) -> Iterator[Uplink]:
    for address in sorted(shared):
        hop, members = shared[address].hop, tuple(shared[address].members)
        if len(members) < 2 and not (chipsets and hop.port is Port.SWITCH and _is_chipset(hop, chipsets)):
            continue
        yield Uplink(address, hop.bandwidth, Source.REPORTED, members)


def _is_chipset(hop: LinkHop, chipsets: ChipsetTable) -> bool:
    """AMD's chipsets are switches: their uplink is plain to see."""
    family = chipsets.family(hop.pci_id, hop.name) if hop.pci_id else None
    return family is not None and family.side is Side.CHIPSET


def _hidden(shared: dict[tuple[str, str], _Shared]) -> Iterator[Uplink]:
    for bus, name in sorted(shared):
        each = shared[bus, name]
        yield Uplink(name, each.hop.hidden_bandwidth, Source.KNOWN, tuple(each.members))
