"""VMD controllers and firmware RAID, which hide details of drives."""

import pytest

from aligntool.inventory import Port
from aligntool.linux.pcie import find_adapters, find_uplinks
from tests.linux.pcie.machines import (
    AHCI,
    BRIDGE,
    GEN4,
    NVME,
    PCI,
    RAID,
    Attributes,
    Machine,
    disk,
    link,
    ports,
    read_links,
    switch_with_four_drives,
)

VMD_DRIVE = f"{PCI}/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0"


def vmd_machine() -> dict[str, Attributes]:
    """Return a laptop of the 11th generation with VMD switched on."""
    vmd = "pci0000:00/0000:00:0e.0"
    return {
        vmd: link("8086", "9a0b", RAID) | {"driver": "vmd"},
        f"{vmd}/pci10000:e0/10000:e0:06.0": link("8086", "9a09", BRIDGE, (GEN4, "4")),
        f"{vmd}/pci10000:e0/10000:e0:06.0/10000:e1:00.0": link("144d", "a80a", NVME, (GEN4, "4")),
    }


def test_the_path_of_a_drive_behind_vmd_ends_at_the_vmd_controller(machine: Machine) -> None:
    hops = read_links(machine(vmd_machine()), VMD_DRIVE)
    assert ports(hops) == [
        ("10000:e1:00.0", Port.ENDPOINT),
        ("10000:e0:06.0", Port.CPU_ROOT),
        ("0000:00:0e.0", Port.VMD),
    ]
    assert hops[0].bandwidth == 7_876_923_076
    assert find_uplinks([disk("nvme0n1", hops)]) == ()


def test_a_chipset_port_behind_vmd_still_uses_the_dmi(machine: Machine) -> None:
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


def test_a_vmd_controller_is_an_adapter_with_or_without_a_driver(machine: Machine) -> None:
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
def test_nvme_drives_hidden_by_firmware_raid_are_counted(
    machine: Machine, kind: str, remapped: str, adapters: list[int]
) -> None:
    tree = machine({"pci0000:00/0000:00:17.0": link("8086", "2822", kind) | {"remapped_nvme": remapped}})
    found = find_adapters(tree)
    assert [each.remapped_nvme for each in found] == adapters
    assert not any(each.vmd for each in found)


def test_an_ordinary_machine_has_no_such_adapter(machine: Machine) -> None:
    assert find_adapters(machine(switch_with_four_drives())) == ()
    assert find_adapters(machine({"pci0000:00/0000:00:1f.2": link("8086", "1d6a", RAID) | {"driver": "isci"}})) == ()
