"""The table of chipsets, compared with pci.ids."""

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.pcie import PLACES
from aligntool.recipes.drives import Side, load_chipsets, parse_chipsets


def _side_by_name(name: str) -> Side | None:
    of_chipset = ("PCH", " Point-", "Series Chipset Family", "series chipset", "8 Series PCI")
    of_processor = ("Xeon E", "Core Processor", "Sky Lake-E", "Gen Core", "Atom Processor C")
    if any(word in name for word in of_chipset):
        return Side.CHIPSET
    return Side.CPU if any(word in name for word in of_processor) else None


# Root port 7 of the chipset, among 43b0 to 43c7 of Tiger Lake-H, which the list of 2025 names after the processor.
MISNAMED = "43be"


def test_the_table_agrees_with_every_name_in_pci_ids() -> None:
    """A name in pci.ids that describes a chipset's root port is in the table as such, and so is a processor's."""
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
        side = _side_by_name(name) if "Root Port" in name and device != MISNAMED else None
        if side is not None:
            checked += 1
            family = table.family(f"8086:{device}", None)
            assert family is not None, name
            assert family.side is side, f"{device} {name}"
    assert checked > 250


def test_no_device_belongs_to_two_families() -> None:
    ranges = sorted((vendor, first, last, family.name) for vendor, first, last, family in load_chipsets().ranges)
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
        ('devices = ["a100-a17f"]', 'devices = ["a100-a17"]', "not a number of four hexadecimal digits"),
        ('devices = ["a100-a17f"]', "", "devices is missing"),
        ("speed = 8.0", "speed = 9.0", "speed (GT/s) and lanes go together"),
        ("lanes = 4", "", "speed (GT/s) and lanes go together"),
        ("lanes = 4", "lane = 4", "unknown key 'lane'"),
        ('family = "Z"', 'family = "Y"', "family cannot be 'Y'"),
        ('bridges = ["8086:a143"]', 'bridges = ["a143"]', "not a PCI number"),
        ('vmd_source = "x"', "", "vmd_source is missing"),
    ],
)
def test_an_error_in_the_table_is_refused_by_name(before: str, after: str, complaint: str) -> None:
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
