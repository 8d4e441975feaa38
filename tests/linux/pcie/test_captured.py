"""PCIe paths in captured trees of real machines."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import Port
from aligntool.linux.pcie import find_adapters, find_uplinks
from aligntool.linux.sysfs import Tree
from tests.linux.pcie.machines import disk, ports, read_links


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Tree]:
    def unpack(data: Path, name: str) -> Tree:
        place = tmp_path_factory.mktemp(name)
        subprocess.run(["tar", "-xJf", data / "sysroots" / f"{name}.tar.xz", "-C", place], check=True)
        root = next(path.parent for path in sorted(place.rglob("sys")) if path.parent.name != "devices")
        return Tree(str(root))

    return unpack


def test_each_drive_of_a_power_server_is_on_its_own_bus(
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
def test_a_tree_without_pci_attributes_gives_addresses_only(
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
        assert {(hop.name, hop.bandwidth, hop.max_bandwidth, hop.hidden_uplink) for hop in hops} == {(None,) * 4}
        disks.append(disk(node, hops))
    assert find_uplinks(disks) == ()
    assert find_adapters(tree) == ()
