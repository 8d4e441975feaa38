"""Which PCI devices belong to a processor and which to a chipset, and what link lies between the two.

In: `recipes/chipsets.toml`. Out: a ChipsetTable that answers by PCI number. Alone because sysfs hides that link: a
chipset's root ports stand on bus 0 beside the processor's, and no device between them says "DMI".
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from aligntool.recipe.files import read_recipe
from aligntool.recipe.schema import Entry, read_tables

# Lanes carry GT/s x 10^9 bits: 8b/10b encoding up to 5 GT/s, 128b/130b up to 32 GT/s (PCI Express base specification;
# include/linux PCIE_SPEED2MBS_ENC in drivers/pci/pci.h counts 64 GT/s, which works in FLITs, as 1/1).
_ENCODING = {2.5: (8, 10), 5.0: (8, 10), 8.0: (128, 130), 16.0: (128, 130), 32.0: (128, 130), 64.0: (1, 1)}

_RANGE = re.compile(r"([0-9a-f]{4})(?:-([0-9a-f]{4}))?")
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_FAMILY_KEYS = ("name", "side", "vendor", "devices", "uplink", "speed", "lanes", "source")
_MODEL_KEYS = ("name", "family", "bridges", "uplink", "speed", "lanes", "source")

# For devices that are younger than the table: what pci.ids calls them. The first that fits is taken.
_BY_NAME = (
    (
        "cpu",
        re.compile(r"Core Processor|Xeon|Thunderbolt|Atom|Celeron|Pentium|Processor.*Root Port|GPP Bridge"),
    ),
    ("chipset", re.compile(r"\bPCH\b|Chipset|chipset|\bICH\d|Point(-[A-Z]+)? PCI Express Root Port")),
)


class Side(StrEnum):
    CPU = "cpu"
    CHIPSET = "chipset"


@dataclass(frozen=True, slots=True)
class PortFamily:
    name: str
    side: Side
    uplink: str | None = None  # "DMI 3.0 x4"
    bandwidth: int | None = None  # of the uplink, bytes a second in one direction
    source: str = ""


@dataclass(frozen=True, slots=True)
class _Range:
    vendor: str
    first: int
    last: int
    family: PortFamily


@dataclass(frozen=True, slots=True)
class ChipsetTable:
    ranges: tuple[_Range, ...]
    models: tuple[
        tuple[str, str, PortFamily], ...
    ]  # (LPC bridge's PCI number, family name, what is different)
    vmd: frozenset[str]  # PCI numbers of VMD controllers

    def family(self, pci_id: str, name: str | None) -> PortFamily | None:
        """By number where the table has it, else by what pci.ids calls it; None when nobody knows."""
        vendor, _, device = pci_id.partition(":")
        number = int(device, 16)
        for each in self.ranges:
            if each.vendor == vendor and each.first <= number <= each.last:
                return each.family
        for side, pattern in _BY_NAME:
            if name is not None and pattern.search(name):
                return PortFamily(name, Side(side), source="pci.ids")
        return None

    def narrowed(self, family: PortFamily, bridge: str) -> PortFamily:
        """The same with the uplink of the very model, which its LPC bridge tells: small models have fewer lanes."""
        return next(
            (model for pci_id, name, model in self.models if (pci_id, name) == (bridge, family.name)), family
        )


def lane_bandwidth(speed_gts: float, lanes: int) -> int:
    """Bytes a second in one direction, after encoding and before packet overhead."""
    payload, line = _ENCODING[speed_gts]
    return int(speed_gts * 1_000_000_000) * lanes * payload // (line * 8)


def load_chipsets() -> ChipsetTable:
    """Raises Refused when the packaged table is missing or wrong."""
    return parse_chipsets(*read_recipe("chipsets.toml"))


def parse_chipsets(file: str, content: str) -> ChipsetTable:
    document = read_tables(file, content, kinds=("family", "model"), keys=("vmd", "vmd_source"))
    vmd = document.top.texts("vmd")
    if vmd:
        document.top.required("vmd_source")
    families = [(entry, _family(entry)) for entry in document.tables["family"]]
    by_name = {family.name: family for _, family in families}
    return ChipsetTable(
        ranges=tuple(each for entry, family in families for each in _ranges(entry, family)),
        models=tuple(each for entry in document.tables["model"] for each in _models(entry, by_name)),
        vmd=frozenset(_checked(document.top, pci_id) for pci_id in vmd),
    )


def _family(entry: Entry) -> PortFamily:
    entry.allow(*_FAMILY_KEYS)
    entry.required("side")
    side = Side(entry.choice("side", tuple(Side)) or Side.CPU)
    if side is Side.CPU and entry.text("uplink"):
        raise entry.refusal("only a chipset has an uplink")
    return PortFamily(
        entry.required("name"), side, entry.text("uplink"), _uplink(entry), entry.required("source")
    )


def _ranges(entry: Entry, family: PortFamily) -> list[_Range]:
    vendor = entry.required("vendor")
    listed = entry.texts("devices")
    if not listed:
        raise entry.refusal("devices is missing")
    ranges = []
    for text in listed:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise entry.refusal(
                f"devices: {text!r} is no number of four hexadecimal digits, nor two with a dash"
            )
        first, last = int(match[1], 16), int(match[2] or match[1], 16)
        ranges.append(_Range(vendor, first, last, family))
    return ranges


def _models(entry: Entry, families: dict[str, PortFamily]) -> list[tuple[str, str, PortFamily]]:
    entry.allow(*_MODEL_KEYS)
    name = entry.choice("family", tuple(families)) or entry.required("family")
    model = replace(
        families[name],
        uplink=entry.required("uplink"),
        bandwidth=_uplink(entry),
        source=entry.required("source"),
    )
    return [(_checked(entry, bridge), name, model) for bridge in entry.texts("bridges")]


def _uplink(entry: Entry) -> int | None:
    speed, lanes = entry.number("speed"), entry.number("lanes")
    if speed is None and lanes is None:
        return None
    if speed not in _ENCODING or not isinstance(lanes, int):
        raise entry.refusal(
            "speed (GT/s) and lanes go together", hint=f"speeds: {', '.join(map(str, _ENCODING))}"
        )
    return lane_bandwidth(speed, lanes)


def _checked(entry: Entry, pci_id: str) -> str:
    if not _PCI_ID.fullmatch(pci_id):
        raise entry.refusal(f"{pci_id!r} is no PCI number", hint='like "8086:7a84"')
    return pci_id
