"""The fixture that writes a made-up machine into a folder."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from aligntool.linux.sysfs import Tree
from tests.linux.pcie.machines import Attributes, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Write a sysfs with these PCI devices: address path below /sys/devices -> attributes; "driver" becomes a link."""

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
