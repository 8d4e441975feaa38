"""Parts of made-up machines: PCI devices with their attributes, and the disks attached to them."""

from collections.abc import Callable, Mapping

from aligntool.inventory import Disk, DiskKind, IoLimits, LinkHop, Port
from aligntool.linux.pcie import Topology
from aligntool.linux.sysfs import Tree

PCI = "/sys/devices/pci0000:00"
BRIDGE, NVME, AHCI, RAID, SAS = "0x060400", "0x010802", "0x010601", "0x010400", "0x010700"
Attributes = dict[str, str]
Machine = Callable[[Mapping[str, Attributes]], Tree]


def link(
    vendor: str, device: str, kind: str, now: tuple[str, str] | None = None, most: tuple[str, str] | None = None
) -> Attributes:
    attributes = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": kind}
    if now:
        attributes |= {"current_link_speed": now[0], "current_link_width": now[1]}
    if most or now:
        speed, width = most or now or ("", "")
        attributes |= {"max_link_speed": speed, "max_link_width": width}
    return attributes


GEN1, GEN2, GEN3, GEN4 = "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe"
SAMSUNG = ("144d", "a804")  # NVMe SSD Controller SM961/PM961/SM963


def disk(name: str, *paths: tuple[LinkHop, ...]) -> Disk:
    return Disk(name, f"/dev/{name}", DiskKind.NVME, 10**12, IoLimits(), links=paths)


def read_links(tree: Tree, device: str) -> tuple[LinkHop, ...]:
    return Topology(tree).links(device)


def ports(hops: tuple[LinkHop, ...]) -> list[tuple[str, Port]]:
    return [(hop.address, hop.port) for hop in hops]


def switch_with_four_drives() -> dict[str, Attributes]:
    """Return a PLX PEX 8724 on a Xeon E5 port: x8 up, four times x4 down."""
    root = "pci0000:00/0000:00:03.0"
    upstream = f"{root}/0000:03:00.0"
    devices = {
        root: link("8086", "2f08", BRIDGE, (GEN3, "8"), (GEN3, "16")),
        upstream: link("10b5", "8724", BRIDGE, (GEN3, "8")),
    }
    for slot in range(4):
        port = f"{upstream}/0000:04:{slot:02x}.0"
        devices[port] = link("10b5", "8724", BRIDGE, (GEN3, "4"))
        devices[f"{port}/0000:{5 + slot:02x}:00.0"] = link(*SAMSUNG, NVME, (GEN3, "4"))
    return devices


def switch_disks(tree: Tree) -> list[Disk]:
    topology = Topology(tree)
    upstream = f"{PCI}/0000:00:03.0/0000:03:00.0"
    return [
        disk(
            f"nvme{slot}n1", topology.links(f"{upstream}/0000:04:{slot:02x}.0/0000:{5 + slot:02x}:00.0/nvme/nvme{slot}")
        )
        for slot in range(4)
    ]
