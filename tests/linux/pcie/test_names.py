"""Names from pci.ids, and what is derived from a name."""

from pathlib import Path

import pytest

from aligntool.inventory import Port
from aligntool.linux.pcie import PciNames, Topology
from tests.linux.pcie.machines import BRIDGE, PCI, Machine, link, switch_with_four_drives

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
def test_a_device_is_named_by_its_vendor_and_device_id(
    names: PciNames, vendor: str, device: str, name: str | None
) -> None:
    assert names.device(vendor, device) == name


def test_without_a_pci_ids_file_nothing_has_a_name(tmp_path: Path) -> None:
    assert PciNames((str(tmp_path / "missing"),)).device("8086", "a110") is None


def test_the_root_port_of_a_new_chipset_is_recognised_by_its_name(machine: Machine, tmp_path: Path) -> None:
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


def test_a_path_is_read_once_for_any_number_of_disks(machine: Machine) -> None:
    tree = machine(switch_with_four_drives())
    topology = Topology(tree)
    first = topology.links(f"{PCI}/0000:00:03.0/0000:03:00.0/0000:04:00.0/0000:05:00.0/nvme/nvme0")
    for attribute in ("current_link_speed", "max_link_speed"):
        (Path(tree.root) / f"sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/{attribute}").unlink()
    assert topology.links(f"{PCI}/0000:00:03.0/0000:03:00.0/0000:04:00.0/0000:05:00.0/nvme/nvme0") == first
