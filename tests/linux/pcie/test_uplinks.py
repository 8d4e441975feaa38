"""Links that several drives share, on made-up machines that resemble existing ones."""

import pytest

from aligntool.inventory import Port, Source
from aligntool.linux.pcie import Topology, find_uplinks
from tests.linux.pcie.machines import (
    BRIDGE,
    GEN2,
    GEN3,
    GEN4,
    NVME,
    PCI,
    SAMSUNG,
    SAS,
    Machine,
    disk,
    link,
    ports,
    read_links,
    switch_disks,
    switch_with_four_drives,
)


def test_both_ports_of_a_switch_are_listed(machine: Machine) -> None:
    first = switch_disks(machine(switch_with_four_drives()))[0]
    assert ports(first.links[0]) == [
        ("0000:05:00.0", Port.ENDPOINT),
        ("0000:04:00.0", Port.SWITCH),
        ("0000:03:00.0", Port.SWITCH),
        ("0000:00:03.0", Port.CPU_ROOT),
    ]


def test_four_drives_on_a_switch_share_its_upstream_port_and_nothing_else(machine: Machine) -> None:
    (uplink,) = find_uplinks(switch_disks(machine(switch_with_four_drives())))
    assert uplink.name == "0000:03:00.0"
    assert uplink.bandwidth == 7_876_923_076  # Gen3 x8: the bandwidth of two drives
    assert uplink.source is Source.REPORTED
    assert uplink.members == ("nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1")


def test_one_drive_on_a_switch_shares_nothing(machine: Machine) -> None:
    assert find_uplinks(switch_disks(machine(switch_with_four_drives()))[:1]) == ()


def test_drives_on_the_processor_share_nothing_and_those_on_the_chipset_the_dmi(machine: Machine) -> None:
    """A Z170 board: one M.2 slot on the processor's lanes through a riser, two on the chipset."""
    tree = machine(
        {
            "pci0000:00/0000:00:01.0": link("8086", "1901", BRIDGE, (GEN3, "4"), (GEN3, "16")),
            "pci0000:00/0000:00:01.0/0000:01:00.0": link(*SAMSUNG, NVME, (GEN3, "4")),
            "pci0000:00/0000:00:1b.0": link("8086", "a167", BRIDGE, (GEN3, "4")),
            "pci0000:00/0000:00:1b.0/0000:02:00.0": link(*SAMSUNG, NVME, (GEN3, "4")),
            "pci0000:00/0000:00:1d.0": link("8086", "a118", BRIDGE, (GEN3, "4")),
            "pci0000:00/0000:00:1d.0/0000:03:00.0": link(*SAMSUNG, NVME, (GEN3, "4")),
            "pci0000:00/0000:00:1f.0": link("8086", "a145", "0x060100"),  # Z170 LPC/eSPI
        }
    )
    topology = Topology(tree)
    disks = [
        disk("nvme0n1", topology.links(f"{PCI}/0000:00:01.0/0000:01:00.0")),
        disk("nvme1n1", topology.links(f"{PCI}/0000:00:1b.0/0000:02:00.0")),
        disk("nvme2n1", topology.links(f"{PCI}/0000:00:1d.0/0000:03:00.0")),
    ]
    assert [each.links[0][-1].port for each in disks] == [Port.CPU_ROOT, Port.CHIPSET_ROOT, Port.CHIPSET_ROOT]
    (dmi,) = find_uplinks(disks)
    assert (dmi.name, dmi.source, dmi.members) == ("DMI 3.0 x4", Source.KNOWN, ("nvme1n1", "nvme2n1"))
    assert dmi.bandwidth == 3_938_461_538


def test_a_single_drive_on_the_chipset_shares_the_dmi_with_all_other_devices(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:1d.0": link("8086", "8d10", BRIDGE)})
    (dmi,) = find_uplinks([disk("nvme0n1", read_links(tree, f"{PCI}/0000:00:1d.0/0000:03:00.0"))])
    assert (dmi.name, dmi.bandwidth, dmi.members) == ("DMI 2.0 x4", 2_000_000_000, ("nvme0n1",))


@pytest.mark.parametrize(
    ("bridge", "name", "bandwidth"),
    [
        ("a145", "DMI 3.0 x4", 3_938_461_538),  # Z170
        ("a143", "DMI 2.0 x4", 2_000_000_000),  # H110
        (None, "DMI 3.0 x4", 3_938_461_538),
    ],
)
def test_a_lower_model_of_a_chipset_is_recognised_by_its_lpc_bridge(
    machine: Machine, bridge: str | None, name: str, bandwidth: int
) -> None:
    devices = {"pci0000:00/0000:00:1d.0": link("8086", "a118", BRIDGE)}
    if bridge:
        devices["pci0000:00/0000:00:1f.0"] = link("8086", bridge, "0x060100")
    hop = read_links(machine(devices), f"{PCI}/0000:00:1d.0/0000:03:00.0")[-1]
    assert (hop.hidden_uplink, hop.hidden_bandwidth) == (name, bandwidth)


def test_the_bandwidth_of_an_unpublished_chipset_link_is_unknown(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:1d.0": link("8086", "9d18", BRIDGE)})  # Sunrise Point-LP
    (opi,) = find_uplinks([disk("nvme0n1", read_links(tree, f"{PCI}/0000:00:1d.0/0000:03:00.0"))])
    assert (opi.name, opi.bandwidth) == ("OPI", None)


def test_an_amd_chipset_is_a_switch_whose_uplink_is_reported_even_for_one_drive(machine: Machine) -> None:
    """B450: x4 of Gen3 up to the processor, Gen2 lanes below."""
    root = "pci0000:00/0000:00:01.3"
    tree = machine(
        {
            root: link("1022", "1483", BRIDGE, (GEN3, "4"), (GEN4, "8")),
            f"{root}/0000:03:00.2": link("1022", "43c6", BRIDGE, (GEN3, "4")),
            f"{root}/0000:03:00.2/0000:20:04.0": link("1022", "43c7", BRIDGE, (GEN2, "4")),
            f"{root}/0000:03:00.2/0000:20:04.0/0000:26:00.0": link(*SAMSUNG, NVME, (GEN2, "4"), (GEN3, "4")),
        }
    )
    hops = read_links(tree, f"/sys/devices/{root}/0000:03:00.2/0000:20:04.0/0000:26:00.0/nvme/nvme0")
    assert [hop.port for hop in hops] == [Port.ENDPOINT, Port.SWITCH, Port.SWITCH, Port.CPU_ROOT]
    (uplink,) = find_uplinks([disk("nvme0n1", hops)])
    assert (uplink.name, uplink.bandwidth, uplink.source) == ("0000:03:00.2", 3_938_461_538, Source.REPORTED)


def test_disks_on_one_adapter_share_its_link(machine: Machine) -> None:
    """Eight lanes of Gen3 for a SAS adapter with two disks."""
    tree = machine(
        {
            "pci0000:00/0000:00:02.0": link("8086", "2f04", BRIDGE, (GEN3, "8")),
            "pci0000:00/0000:00:02.0/0000:02:00.0": link("1000", "0097", SAS, (GEN3, "8")),
        }
    )
    base = f"{PCI}/0000:00:02.0/0000:02:00.0/host0/port-0:"
    topology = Topology(tree)
    disks = [
        disk(name, topology.links(f"{base}{name}/end_device/target/0:0:0:0/block/{name}")) for name in ("sda", "sdb")
    ]
    (uplink,) = find_uplinks(disks)
    assert (uplink.name, uplink.bandwidth, uplink.members) == ("0000:02:00.0", 7_876_923_076, ("sda", "sdb"))


def test_a_drive_with_two_paths_is_one_member(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:1d.0": link("8086", "a118", BRIDGE)})
    path = read_links(tree, f"{PCI}/0000:00:1d.0/0000:03:00.0")
    other = read_links(tree, f"{PCI}/0000:00:1d.0/0000:04:00.0")
    (dmi,) = find_uplinks([disk("nvme0n1", path, other)])
    assert dmi.members == ("nvme0n1",)
