"""Links of drives, hop by hop.

The expected figures are those of the PCI Express specification and of the kernel's own table (drivers/pci/pci.h,
PCIE_SPEED2MBS_ENC): 250, 500, 985, 1969, 3938 and 8000 MB/s per lane.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.inventory import Port
from aligntool.linux.sysfs import Tree
from aligntool.recipes.drives import lane_bandwidth
from tests.linux.pcie.machines import (
    AHCI,
    BRIDGE,
    GEN1,
    GEN2,
    GEN3,
    NVME,
    PCI,
    SAMSUNG,
    Machine,
    link,
    ports,
    read_links,
)


def test_a_drive_on_the_processor_has_four_lanes(machine: Machine) -> None:
    root = link("8086", "1901", BRIDGE, (GEN3, "4"), (GEN3, "16"))
    tree = machine(
        {"pci0000:00/0000:00:01.0": root, "pci0000:00/0000:00:01.0/0000:01:00.0": link(*SAMSUNG, NVME, (GEN3, "4"))}
    )
    drive, port = read_links(tree, f"{PCI}/0000:00:01.0/0000:01:00.0/nvme/nvme0")
    assert (drive.address, drive.port) == ("0000:01:00.0", Port.ENDPOINT)
    assert (drive.speed_gts, drive.width, drive.max_speed_gts, drive.max_width) == (8.0, 4, 8.0, 4)
    assert drive.bandwidth == 3_938_461_538  # 8 GT/s x 128/130 x 4 lanes / 8 bits
    assert (port.address, port.port) == ("0000:00:01.0", Port.CPU_ROOT)
    assert port.max_bandwidth == 15_753_846_153
    assert (port.hidden_uplink, port.pci_id) == (None, "8086:1901")


def test_a_drive_with_half_its_lanes_shows_current_and_maximum_bandwidth(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:01.0/0000:01:00.0": link(*SAMSUNG, NVME, (GEN3, "2"), (GEN3, "4"))})
    drive = read_links(tree, f"{PCI}/0000:00:01.0/0000:01:00.0")[0]
    assert (drive.width, drive.max_width) == (2, 4)
    assert (drive.bandwidth, drive.max_bandwidth) == (1_969_230_769, 3_938_461_538)


def test_a_gen3_drive_in_a_gen2_slot_has_two_gigabytes_a_second(machine: Machine) -> None:
    tree = machine(
        {
            "pci0000:00/0000:00:1c.4": link("8086", "8c98", BRIDGE, (GEN2, "4")),
            "pci0000:00/0000:00:1c.4/0000:02:00.0": link(*SAMSUNG, NVME, (GEN2, "4"), (GEN3, "4")),
        }
    )
    drive, port = read_links(tree, f"{PCI}/0000:00:1c.4/0000:02:00.0/nvme/nvme0")
    assert (drive.bandwidth, drive.max_bandwidth) == (2_000_000_000, 3_938_461_538)
    assert port.max_speed_gts == 5.0  # so it is the slot


@pytest.mark.parametrize(
    ("speed", "lanes", "megabytes"),
    [(2.5, 1, 250), (5.0, 4, 2000), (8.0, 1, 985), (8.0, 4, 3938), (16.0, 4, 7877), (32.0, 4, 15754), (64.0, 4, 32000)],
)
def test_bandwidth_is_net_of_the_encoding(speed: float, lanes: int, megabytes: int) -> None:
    assert round(lane_bandwidth(speed, lanes) / 1_000_000) == megabytes


@pytest.mark.parametrize(
    ("text", "gts"),
    [
        ("2.5 GT/s PCIe", 2.5),
        ("2.5 GT/s", 2.5),  # before Linux 5.9
        ("5 GT/s", 5.0),
        ("5.0 GT/s PCIe", 5.0),
        ("8 GT/s", 8.0),
        ("16.0 GT/s PCIe", 16.0),
        ("32.0 GT/s PCIe", 32.0),
        ("64.0 GT/s PCIe", 64.0),
        ("Unknown", None),
        ("Unknown speed", None),
        ("", None),
        ("33 MHz PCI", None),
        ("9e99 GT/s PCIe", None),
        ("8.0.0 GT/s PCIe", None),
    ],
)
def test_a_link_speed_is_read_in_the_format_of_every_kernel(machine: Machine, text: str, gts: float | None) -> None:
    tree = machine({"pci0000:00/0000:01:00.0": {"current_link_speed": text, "current_link_width": "4"}})
    hop = read_links(tree, f"{PCI}/0000:01:00.0")[0]
    assert hop.speed_gts == gts
    assert hop.bandwidth == (None if gts is None else lane_bandwidth(gts, 4))


@pytest.mark.parametrize(
    ("text", "lanes"),
    [("1", 1), ("4", 4), ("16", 16), ("0", None), ("255", None), ("-4", None), ("63", None), ("x", None)],
)
def test_an_invalid_link_width_is_unknown(machine: Machine, text: str, lanes: int | None) -> None:
    tree = machine({"pci0000:00/0000:01:00.0": {"current_link_speed": GEN3, "current_link_width": text}})
    hop = read_links(tree, f"{PCI}/0000:01:00.0")[0]
    assert hop.width == lanes
    assert (hop.bandwidth is None) == (lanes is None)


def test_a_device_without_pci_has_no_links() -> None:
    tree = Tree("/nonexistent")
    for path in (
        "",
        "/",
        "/sys/devices/virtual/block/loop0",
        "/sys/devices/platform/soc/fe340000.mmc/mmc_host/mmc0",
        "/sys/devices/LNXSYSTM:00/0000:01:00.0",  # an address without a PCI bus
    ):
        assert read_links(tree, path) == ()


@given(
    st.lists(st.sampled_from(["sys", "devices", "pci0000:00", "pci10000:e0", "0000:00:01.0", "10000:e1:00.0", "x", ""]))
)
def test_any_path_is_accepted(words: list[str]) -> None:
    hops = read_links(Tree("/nonexistent"), "/".join(words))
    assert all(hop.port is not Port.SWITCH for hop in hops)


def test_a_sata_controller_is_the_first_hop_of_its_disks(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:17.0": link("8086", "a102", AHCI)})
    path = f"{PCI}/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    (controller,) = read_links(tree, path)
    assert (controller.address, controller.port, controller.bandwidth) == ("0000:00:17.0", Port.ENDPOINT, None)
    assert controller.hidden_uplink == "DMI 3.0 x4"  # it is a part of the chipset


def test_a_conventional_bridge_is_not_a_switch(machine: Machine) -> None:
    tree = machine(
        {
            "pci0000:00/0000:00:1c.0": link("8086", "1e10", BRIDGE, (GEN1, "1")),
            "pci0000:00/0000:00:1c.0/0000:03:00.0": link("1b21", "1080", BRIDGE, (GEN1, "1")),
            "pci0000:00/0000:00:1c.0/0000:03:00.0/0000:04:00.0": link("1095", "3112", "0x010400"),
        }
    )
    hops = read_links(tree, f"{PCI}/0000:00:1c.0/0000:03:00.0/0000:04:00.0/ata1")
    assert ports(hops) == [
        ("0000:04:00.0", Port.ENDPOINT),
        ("0000:03:00.0", Port.BRIDGE),
        ("0000:00:1c.0", Port.CHIPSET_ROOT),
    ]
