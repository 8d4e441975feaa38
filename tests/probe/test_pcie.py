"""PCIe paths of drives, in captured trees and in trees made up to be like machines that exist.

The figures expected here are those of the PCI Express specification and of the kernel's own table
(drivers/pci/pci.h, PCIE_SPEED2MBS_ENC): 250, 500, 985, 1969, 3938 and 8000 MB/s a lane.
"""

import subprocess
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, IoLimits, LinkHop, Port, Source
from aligntool.probe.pcie import PciNames, Topology, find_adapters, find_uplinks, read_links
from aligntool.probe.pcie.names import PLACES
from aligntool.probe.tree import Tree
from aligntool.recipe import Side, lane_bandwidth, load_chipsets, parse_chipsets

PCI = "/sys/devices/pci0000:00"
BRIDGE, NVME, AHCI, RAID, SAS = "0x060400", "0x010802", "0x010601", "0x010400", "0x010700"
Attributes = dict[str, str]
Machine = Callable[[Mapping[str, Attributes]], Tree]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A sysfs with these PCI devices: address path below /sys/devices -> attributes; "driver" becomes a link."""

    def build(devices: Mapping[str, Attributes]) -> Tree:
        for path, attributes in devices.items():
            place = tmp_path / "sys/devices" / path
            place.mkdir(parents=True, exist_ok=True)
            for name, value in attributes.items():
                if name == "driver":
                    (place / name).symlink_to(f"../../../bus/pci/drivers/{value}")
                else:
                    (place / name).write_text(f"{value}\n")
        return Tree(str(tmp_path))

    return build


def link(
    vendor: str,
    device: str,
    kind: str,
    now: tuple[str, str] | None = None,
    most: tuple[str, str] | None = None,
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


def ports(hops: tuple[LinkHop, ...]) -> list[tuple[str, Port]]:
    return [(hop.address, hop.port) for hop in hops]


# --- Links ------------------------------------------------------------------------------------------------------------


def test_a_drive_on_the_processor_has_its_four_lanes(machine: Machine) -> None:
    root = link("8086", "1901", BRIDGE, (GEN3, "4"), (GEN3, "16"))
    tree = machine(
        {
            "pci0000:00/0000:00:01.0": root,
            "pci0000:00/0000:00:01.0/0000:01:00.0": link(*SAMSUNG, NVME, (GEN3, "4")),
        }
    )
    drive, port = read_links(tree, f"{PCI}/0000:00:01.0/0000:01:00.0/nvme/nvme0")
    assert (drive.address, drive.port) == ("0000:01:00.0", Port.ENDPOINT)
    assert (drive.speed_gts, drive.width, drive.max_speed_gts, drive.max_width) == (8.0, 4, 8.0, 4)
    assert drive.bandwidth == 3_938_461_538  # 8 GT/s x 128/130 x 4 lanes / 8 bits
    assert (port.address, port.port) == ("0000:00:01.0", Port.CPU_ROOT)
    assert port.max_bandwidth == 15_753_846_153
    assert (port.hidden_uplink, port.pci_id) == (None, "8086:1901")


def test_a_drive_with_half_its_lanes_shows_what_it_has_and_what_it_could_have(machine: Machine) -> None:
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
    [
        (2.5, 1, 250),
        (5.0, 4, 2000),
        (8.0, 1, 985),
        (8.0, 4, 3938),
        (16.0, 4, 7877),
        (32.0, 4, 15754),
        (64.0, 4, 32000),
    ],
)
def test_bandwidth_is_what_is_left_after_encoding(speed: float, lanes: int, megabytes: int) -> None:
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
def test_a_link_speed_is_read_as_every_kernel_prints_it(
    machine: Machine, text: str, gts: float | None
) -> None:
    tree = machine({"pci0000:00/0000:01:00.0": {"current_link_speed": text, "current_link_width": "4"}})
    hop = read_links(tree, f"{PCI}/0000:01:00.0")[0]
    assert hop.speed_gts == gts
    assert hop.bandwidth == (None if gts is None else lane_bandwidth(gts, 4))


@pytest.mark.parametrize(
    ("text", "lanes"),
    [("1", 1), ("4", 4), ("16", 16), ("0", None), ("255", None), ("-4", None), ("63", None), ("x", None)],
)
def test_a_link_width_that_is_none_is_unknown(machine: Machine, text: str, lanes: int | None) -> None:
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
        "/sys/devices/LNXSYSTM:00/0000:01:00.0",  # an address that hangs on no PCI bus
    ):
        assert read_links(tree, path) == ()


@given(
    st.lists(
        st.sampled_from(
            ["sys", "devices", "pci0000:00", "pci10000:e0", "0000:00:01.0", "10000:e1:00.0", "x", ""]
        )
    )
)
def test_no_path_is_too_strange(words: list[str]) -> None:
    hops = read_links(Tree("/nonexistent"), "/".join(words))
    assert all(hop.port is not Port.SWITCH for hop in hops)


def test_a_sata_controller_is_the_first_hop_of_its_disks(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:17.0": link("8086", "a102", AHCI)})
    path = f"{PCI}/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    (controller,) = read_links(tree, path)
    assert (controller.address, controller.port, controller.bandwidth) == (
        "0000:00:17.0",
        Port.ENDPOINT,
        None,
    )
    assert controller.hidden_uplink == "DMI 3.0 x4"  # it is a part of the chipset


def test_a_conventional_bridge_is_no_switch(machine: Machine) -> None:
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


# --- Machines ---------------------------------------------------------------------------------------------------------


def switch_with_four_drives() -> dict[str, Attributes]:
    """PLX PEX 8724 on a Xeon E5 port: x8 up, four times x4 down."""
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
            f"nvme{slot}n1",
            topology.links(f"{upstream}/0000:04:{slot:02x}.0/0000:{5 + slot:02x}:00.0/nvme/nvme{slot}"),
        )
        for slot in range(4)
    ]


def test_a_switch_shows_both_its_ports(machine: Machine) -> None:
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
    assert uplink.bandwidth == 7_876_923_076  # x8 of Gen3: two drives' worth
    assert uplink.source is Source.REPORTED
    assert uplink.members == ("nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1")


def test_one_drive_on_a_switch_shares_nothing(machine: Machine) -> None:
    assert find_uplinks(switch_disks(machine(switch_with_four_drives()))[:1]) == ()


def test_drives_on_the_processor_share_nothing_and_those_on_the_chipset_the_dmi(machine: Machine) -> None:
    """A Z170 board: one M.2 slot on the processor's lanes by a riser, two on the chipset."""
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
def test_a_small_model_of_a_chipset_is_told_by_its_lpc_bridge(
    machine: Machine, bridge: str | None, name: str, bandwidth: int
) -> None:
    devices = {"pci0000:00/0000:00:1d.0": link("8086", "a118", BRIDGE)}
    if bridge:
        devices["pci0000:00/0000:00:1f.0"] = link("8086", bridge, "0x060100")
    hop = read_links(machine(devices), f"{PCI}/0000:00:1d.0/0000:03:00.0")[-1]
    assert (hop.hidden_uplink, hop.hidden_bandwidth) == (name, bandwidth)


def test_a_chipset_link_that_nobody_publishes_has_no_bandwidth(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:1d.0": link("8086", "9d18", BRIDGE)})  # Sunrise Point-LP
    (opi,) = find_uplinks([disk("nvme0n1", read_links(tree, f"{PCI}/0000:00:1d.0/0000:03:00.0"))])
    assert (opi.name, opi.bandwidth) == ("OPI", None)


def test_an_amd_chipset_is_a_switch_whose_uplink_is_told_even_for_one_drive(machine: Machine) -> None:
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
        disk(name, topology.links(f"{base}{name}/end_device/target/0:0:0:0/block/{name}"))
        for name in ("sda", "sdb")
    ]
    (uplink,) = find_uplinks(disks)
    assert (uplink.name, uplink.bandwidth, uplink.members) == ("0000:02:00.0", 7_876_923_076, ("sda", "sdb"))


def test_a_drive_with_two_paths_is_one_member(machine: Machine) -> None:
    tree = machine({"pci0000:00/0000:00:1d.0": link("8086", "a118", BRIDGE)})
    path = read_links(tree, f"{PCI}/0000:00:1d.0/0000:03:00.0")
    other = read_links(tree, f"{PCI}/0000:00:1d.0/0000:04:00.0")
    (dmi,) = find_uplinks([disk("nvme0n1", path, other)])
    assert dmi.members == ("nvme0n1",)


# --- VMD and firmware RAID --------------------------------------------------------------------------------------------

VMD_DRIVE = f"{PCI}/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0"


def vmd_machine() -> dict[str, Attributes]:
    """A laptop of the 11th generation with VMD switched on."""
    vmd = "pci0000:00/0000:00:0e.0"
    return {
        vmd: link("8086", "9a0b", RAID) | {"driver": "vmd"},
        f"{vmd}/pci10000:e0/10000:e0:06.0": link("8086", "9a09", BRIDGE, (GEN4, "4")),
        f"{vmd}/pci10000:e0/10000:e0:06.0/10000:e1:00.0": link("144d", "a80a", NVME, (GEN4, "4")),
    }


def test_a_drive_behind_vmd_is_seen_up_to_the_vmd_controller(machine: Machine) -> None:
    hops = read_links(machine(vmd_machine()), VMD_DRIVE)
    assert ports(hops) == [
        ("10000:e1:00.0", Port.ENDPOINT),
        ("10000:e0:06.0", Port.CPU_ROOT),
        ("0000:00:0e.0", Port.VMD),
    ]
    assert hops[0].bandwidth == 7_876_923_076
    assert find_uplinks([disk("nvme0n1", hops)]) == ()


def test_a_chipset_port_behind_vmd_still_hangs_on_the_dmi(machine: Machine) -> None:
    devices = vmd_machine()
    port = "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:1d.0"
    devices |= {
        port: link("8086", "7ab0", BRIDGE, (GEN4, "4")),
        "pci0000:00/0000:00:1f.0": link("8086", "7a84", "0x060100"),  # Z690
    }
    hops = read_links(machine(devices), f"/sys/devices/{port}/10000:e2:00.0/nvme/nvme1")
    assert [hop.port for hop in hops] == [Port.ENDPOINT, Port.CHIPSET_ROOT, Port.VMD]
    (dmi,) = find_uplinks([disk("nvme1n1", hops)])
    assert (dmi.name, dmi.bandwidth) == ("DMI 4.0 x8", 15_753_846_153)


def test_a_vmd_controller_is_an_adapter_with_a_driver_and_without(machine: Machine) -> None:
    devices = vmd_machine() | {"pci0000:80/0000:80:00.5": link("8086", "201d", RAID)}
    found = find_adapters(machine(devices))
    assert [(each.address, each.vmd, each.remapped_nvme) for each in found] == [
        ("0000:00:0e.0", True, 0),
        ("0000:80:00.5", True, 0),
    ]


@pytest.mark.parametrize(
    ("kind", "remapped", "adapters"),
    [
        (AHCI, "1", [1]),
        (RAID, "2", [2]),
        (AHCI, "0", []),
        (AHCI, "", []),
        (AHCI, "-1", []),
        (AHCI, "99999999", []),
        (NVME, "1", []),
    ],
)
def test_nvme_drives_that_firmware_raid_hides_are_told(
    machine: Machine, kind: str, remapped: str, adapters: list[int]
) -> None:
    tree = machine({"pci0000:00/0000:00:17.0": link("8086", "2822", kind) | {"remapped_nvme": remapped}})
    found = find_adapters(tree)
    assert [each.remapped_nvme for each in found] == adapters
    assert not any(each.vmd for each in found)


def test_an_ordinary_machine_has_no_such_adapter(machine: Machine) -> None:
    assert find_adapters(machine(switch_with_four_drives())) == ()
    assert (
        find_adapters(machine({"pci0000:00/0000:00:1f.2": link("8086", "1d6a", RAID) | {"driver": "isci"}}))
        == ()
    )


# --- Captured trees ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Tree]:
    def unpack(data: Path, name: str) -> Tree:
        place = tmp_path_factory.mktemp(name)
        subprocess.run(["tar", "-xJf", data / "sysroots" / f"{name}.tar.xz", "-C", place], check=True)
        root = next(path.parent for path in sorted(place.rglob("sys")) if path.parent.name != "devices")
        return Tree(str(root))

    return unpack


def test_a_power_server_has_each_drive_on_a_bus_of_its_own(
    unpacked: Callable[[Path, str], Tree], shared_data: Path
) -> None:
    tree = unpacked(shared_data, "tree-pcie")
    found = {}
    for controller in ("nvme0", "nvme1", "nvme2"):
        device = tree.real(f"/sys/class/nvme/{controller}")
        assert device is not None
        found[controller] = ports(read_links(tree, device))
    assert found == {
        "nvme0": [("0214:90:00.0", Port.ENDPOINT)],
        "nvme1": [("052e:78:00.0", Port.ENDPOINT)],
        "nvme2": [("058e:78:00.0", Port.ENDPOINT)],
    }


@pytest.mark.parametrize("name", ["simple-nvme", "simple-lvm"])
def test_a_tree_without_pci_attributes_gives_addresses_and_claims_nothing_else(
    unpacked: Callable[[Path, str], Tree], shared_data: Path, name: str
) -> None:
    tree = unpacked(shared_data, name)
    disks = []
    for node, expected in (
        ("nvme0n1", [("0000:01:00.0", Port.ENDPOINT), ("0000:00:01.0", Port.ROOT)]),
        ("sda", [("0000:00:1f.2", Port.ENDPOINT)]),
        ("sdb", [("0000:00:1f.2", Port.ENDPOINT)]),
    ):
        device = tree.real(f"/sys/block/{node}")
        assert device is not None
        hops = read_links(tree, device)
        assert ports(hops) == expected
        assert {(hop.name, hop.bandwidth, hop.max_bandwidth, hop.hidden_uplink) for hop in hops} == {
            (None,) * 4
        }
        disks.append(disk(node, hops))
    assert find_uplinks(disks) == ()
    assert find_adapters(tree) == ()


# --- Names ------------------------------------------------------------------------------------------------------------

PCI_IDS = """\
# a comment
0e11  Compaq Computer Corporation
\t0001  PCI to EISA Bridge
\t\t0e11 4031  Smart-2/P RAID Controller
8086  Intel Corporation
\t0001  Not the Compaq one
\ta110  Root Port #1
\t\t1043 a110  A subsystem
9999  Last
\ta110  Somebody else's
C 00  Unclassified device
\t0001  No device of 9999
"""


@pytest.fixture
def names(tmp_path: Path) -> PciNames:
    file = tmp_path / "pci.ids"
    file.write_text(PCI_IDS)
    return PciNames((str(tmp_path / "missing.ids"), str(file)))


@pytest.mark.parametrize(
    ("vendor", "device", "name"),
    [
        ("0e11", "0001", "PCI to EISA Bridge"),
        ("8086", "0001", "Not the Compaq one"),
        ("8086", "a110", "Root Port #1"),
        ("9999", "a110", "Somebody else's"),
        ("9999", "0001", None),
        ("8086", "4031", None),
        ("1043", "a110", None),
        ("0e11", "a110", None),
        ("dead", "beef", None),
    ],
)
def test_a_device_is_named_by_its_maker_and_number(
    names: PciNames, vendor: str, device: str, name: str | None
) -> None:
    assert names.device(vendor, device) == name


def test_without_a_pci_ids_file_nothing_has_a_name(tmp_path: Path) -> None:
    assert PciNames((str(tmp_path / "missing"),)).device("8086", "a110") is None


def test_the_root_of_a_young_chipset_is_told_by_its_name(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "pci.ids"
    file.write_text(
        "8086  Intel\n\tfff0  Somelake PCH-S PCI Express Root Port #1\n\tfff1  30th Gen Core Processor PCIe Port\n"
    )
    tree = machine(
        {
            "pci0000:00/0000:00:1c.0": link("8086", "fff0", BRIDGE),
            "pci0000:00/0000:00:06.0": link("8086", "fff1", BRIDGE),
            "pci0000:00/0000:00:07.0": link("8086", "fff2", BRIDGE),
        }
    )
    topology = Topology(tree, PciNames((str(file),)))
    found = [topology.links(f"{PCI}/0000:00:{slot}.0/0000:01:00.0")[-1] for slot in ("1c", "06", "07")]
    assert [hop.port for hop in found] == [Port.CHIPSET_ROOT, Port.CPU_ROOT, Port.ROOT]
    assert [hop.hidden_uplink for hop in found] == ["chipset link", None, None]


def test_a_path_is_read_once_however_many_disks_hang_on_it(
    machine: Machine,
) -> None:
    tree = machine(switch_with_four_drives())
    topology = Topology(tree)
    first = topology.links(f"{PCI}/0000:00:03.0/0000:03:00.0/0000:04:00.0/0000:05:00.0/nvme/nvme0")
    for attribute in ("current_link_speed", "max_link_speed"):
        (Path(tree.root) / f"sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/{attribute}").unlink()
    assert topology.links(f"{PCI}/0000:00:03.0/0000:03:00.0/0000:04:00.0/0000:05:00.0/nvme/nvme0") == first


# --- The table of chipsets --------------------------------------------------------------------------------------------


def _side_by_name(name: str) -> Side | None:
    of_chipset = ("PCH", " Point-", "Series Chipset Family", "series chipset", "8 Series PCI")
    of_processor = ("Xeon E", "Core Processor", "Sky Lake-E", "Gen Core", "Atom Processor C")
    if any(word in name for word in of_chipset):
        return Side.CHIPSET
    return Side.CPU if any(word in name for word in of_processor) else None


def test_the_table_agrees_with_every_name_in_pci_ids() -> None:
    """What pci.ids calls a chipset's root port is one in the table, and a processor's is a processor's."""
    place = next((Path(place) for place in PLACES if Path(place).is_file()), None)
    if place is None:
        pytest.skip("no pci.ids on this machine; `make test` installs it")
    table, vendor, checked = load_chipsets(), "", 0
    for line in place.read_text("utf-8").splitlines():
        if line[:1] not in ("", "#", "\t"):
            vendor = line[:4]
        if vendor != "8086" or not line.startswith("\t") or line.startswith("\t\t"):
            continue
        device, name = line.strip().split("  ", 1)
        side = _side_by_name(name) if "Root Port" in name else None
        if side is not None:
            checked += 1
            family = table.family(f"8086:{device}", None)
            assert family is not None, name
            assert family.side is side, f"{device} {name}"
    assert checked > 250


def test_no_device_belongs_to_two_families() -> None:
    ranges = sorted((each.vendor, each.first, each.last, each.family.name) for each in load_chipsets().ranges)
    for one, other in pairwise(ranges):
        assert one[0] != other[0] or one[2] < other[1], f"{one} / {other}"


def test_every_row_of_the_table_has_a_source() -> None:
    content = tomllib.loads((Path(__file__).parents[2] / "recipes/chipsets.toml").read_text())
    for row in (*content["family"], *content["model"]):
        assert len(row["source"]) > 10, row["name"]


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('side = "chipset"', 'side = "chipst"', "side cannot be 'chipst'"),
        ('side = "chipset"', "", "side is missing"),
        ('side = "chipset"', 'side = "cpu"', "only a chipset has an uplink"),
        ('devices = ["a100-a17f"]', 'devices = ["a100-a17"]', "no number of four hexadecimal digits"),
        ('devices = ["a100-a17f"]', "", "devices is missing"),
        ("speed = 8.0", "speed = 9.0", "speed (GT/s) and lanes go together"),
        ("lanes = 4", "", "speed (GT/s) and lanes go together"),
        ("lanes = 4", "lane = 4", "unknown key 'lane'"),
        ('family = "Z"', 'family = "Y"', "family cannot be 'Y'"),
        ('bridges = ["8086:a143"]', 'bridges = ["a143"]', "no PCI number"),
        ('vmd_source = "x"', "", "vmd_source is missing"),
    ],
)
def test_a_mistake_in_the_table_is_refused_by_name(before: str, after: str, complaint: str) -> None:
    table = """
vmd = ["8086:201d"]
vmd_source = "x"
[[family]]
name = "Z"
side = "chipset"
vendor = "8086"
devices = ["a100-a17f"]
uplink = "DMI 3.0 x4"
speed = 8.0
lanes = 4
source = "here"
[[model]]
name = "H"
family = "Z"
bridges = ["8086:a143"]
uplink = "DMI 2.0 x4"
source = "there"
"""
    assert parse_chipsets("chipsets.toml", table).vmd == {"8086:201d"}
    assert before in table
    with pytest.raises(Refused) as refused:
        parse_chipsets("chipsets.toml", table.replace(before, after))
    assert complaint in str(refused.value)
