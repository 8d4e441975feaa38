"""The databases of drives and chipsets: read recipes/drives and recipes/chipsets.toml, and look drives up."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache

from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, KnownGeometry, Source
from aligntool.recipes import schema
from aligntool.units import PIB, is_power_of_two

# The table of chipsets (`recipes/chipsets.toml`): which PCI devices belong to a processor and which to a
# chipset, and the link between the two. sysfs hides a chipset's uplink: its root ports are on bus 0 beside
# the processor's, and no device between them shows the DMI.

# A lane carries GT/s x 10^9 bits per second: 8b/10b encoding up to 5 GT/s, 128b/130b up to 32 GT/s (PCI
# Express base specification; include/linux PCIE_SPEED2MBS_ENC in drivers/pci/pci.h counts 64 GT/s, which
# works in FLITs, as 1/1).
_ENCODING = {2.5: (8, 10), 5.0: (8, 10), 8.0: (128, 130), 16.0: (128, 130), 32.0: (128, 130), 64.0: (1, 1)}

_RANGE = r"([0-9a-f]{4})(?:-([0-9a-f]{4}))?"
_PCI_ID = r"[0-9a-f]{4}:[0-9a-f]{4}"
_FAMILY_KEYS = ("name", "side", "vendor", "devices", "uplink", "speed", "lanes", "source")
_MODEL_KEYS = ("name", "family", "bridges", "uplink", "speed", "lanes", "source")

# For devices newer than the table: patterns for their names in pci.ids. The first that matches counts.
_NAME_PATTERNS = (
    ("cpu", r"Core Processor|Xeon|Thunderbolt|Atom|Celeron|Pentium|Processor.*Root Port|GPP Bridge"),
    ("chipset", r"\bPCH\b|Chipset|chipset|\bICH\d|Point(-[A-Z]+)? PCI Express Root Port"),
)


class Side(StrEnum):
    CPU = "cpu"
    CHIPSET = "chipset"


@dataclass(frozen=True, slots=True)
class PortFamily:
    """PCIe root ports of one kind: on the processor, or behind the uplink of a chipset."""

    name: str
    side: Side
    uplink: str | None = None  # "DMI 3.0 x4"
    bandwidth: int | None = None  # of the uplink, bytes per second in one direction
    source: str = ""


@dataclass(frozen=True, slots=True)
class ChipsetTable:
    """The families of root ports, by PCI number and by name."""

    ranges: tuple[tuple[str, int, int, PortFamily], ...]  # (vendor, first and last device number, family)
    # (PCI number of the LPC bridge, family name, with its uplink)
    models: tuple[tuple[str, str, PortFamily], ...]
    vmd: frozenset[str]  # PCI numbers of VMD controllers

    def family(self, pci_id: str, name: str | None) -> PortFamily | None:
        """Return the family by PCI number, or else by the name in pci.ids, or None if unknown."""
        vendor, _, device = pci_id.partition(":")
        number = int(device, 16)
        for maker, first, last, family in self.ranges:
            if maker == vendor and first <= number <= last:
                return family
        for side, pattern in _NAME_PATTERNS:
            if name is not None and re.search(pattern, name):
                return PortFamily(name, Side(side), source="pci.ids")
        return None

    def narrowed(self, family: PortFamily, bridge: str) -> PortFamily:
        """Return the family with the uplink of the exact model, by its LPC bridge: smaller models have fewer
        lanes.
        """
        return next(
            (model for pci_id, name, model in self.models if (pci_id, name) == (bridge, family.name)), family
        )


def lane_bandwidth(speed_gts: float, lanes: int) -> int:
    """Return the bytes per second of a link in one direction, after encoding and before packet overhead."""
    payload, line = _ENCODING[speed_gts]
    return int(speed_gts * 1_000_000_000) * lanes * payload // (line * 8)


def load_chipsets() -> ChipsetTable:
    """Return the packaged table of chipsets. Raises Refused if it is missing or invalid."""
    return parse_chipsets(*schema.read_recipe("chipsets.toml"))


def parse_chipsets(file: str, content: str) -> ChipsetTable:
    top, tables = schema.read_tables(file, content, kinds=("family", "model"), keys=("vmd", "vmd_source"))
    vmd = top.texts("vmd")
    if vmd:
        top.required("vmd_source")
    families = [(entry, _family(entry)) for entry in tables["family"]]
    by_name = {family.name: family for _, family in families}
    return ChipsetTable(
        ranges=tuple(row for entry, family in families for row in _ranges(entry, family)),
        models=tuple(row for entry in tables["model"] for row in _models(entry, by_name)),
        vmd=frozenset(_checked(top, pci_id) for pci_id in vmd),
    )


def _family(entry: schema.Entry) -> PortFamily:
    entry.allow(*_FAMILY_KEYS)
    entry.required("side")
    side = Side(entry.choice("side", tuple(Side)) or Side.CPU)
    if side is Side.CPU and entry.text("uplink"):
        raise entry.refusal("only a chipset has an uplink")
    return PortFamily(
        entry.required("name"), side, entry.text("uplink"), _uplink(entry), entry.required("source")
    )


def _ranges(entry: schema.Entry, family: PortFamily) -> Iterator[tuple[str, int, int, PortFamily]]:
    vendor = entry.required("vendor")
    listed = entry.texts("devices")
    if not listed:
        raise entry.refusal("devices is missing")
    for text in listed:
        match = re.fullmatch(_RANGE, text)
        if match is None:
            raise entry.refusal(
                f"devices: {text!r} is not a number of four hexadecimal digits, nor two with a dash"
            )
        yield vendor, int(match[1], 16), int(match[2] or match[1], 16), family


def _models(entry: schema.Entry, families: dict[str, PortFamily]) -> list[tuple[str, str, PortFamily]]:
    entry.allow(*_MODEL_KEYS)
    name = entry.choice("family", tuple(families)) or entry.required("family")
    model = replace(
        families[name],
        uplink=entry.required("uplink"),
        bandwidth=_uplink(entry),
        source=entry.required("source"),
    )
    return [(_checked(entry, bridge), name, model) for bridge in entry.texts("bridges")]


def _uplink(entry: schema.Entry) -> int | None:
    speed = entry.number("speed")
    lanes = entry.number("lanes")
    if speed is None and lanes is None:
        return None
    if speed not in _ENCODING or not isinstance(lanes, int):
        raise entry.refusal(
            "speed (GT/s) and lanes go together", hint=f"speeds: {', '.join(map(str, _ENCODING))}"
        )
    return lane_bandwidth(speed, lanes)


def _checked(entry: schema.Entry, pci_id: str) -> str:
    if not re.fullmatch(_PCI_ID, pci_id):
        raise entry.refusal(f"{pci_id!r} is not a PCI number", hint='like "8086:7a84"')
    return pci_id


# The rows of the drive database, read from TOML. A key that is not in the schema (docs/recipes.md) is
# refused.

CONFIDENCE = ("high", "medium", "low")
_SIZES = {  # key -> field of KnownGeometry
    "physical_sector": "physical_block_size",
    "page": "page_size",
    "indirection_unit": "indirection_unit",
    "erase_block": "erase_block",
}
_FACTS = (*_SIZES, "dram", "hybrid", "distrust", "note", "source", "confidence")
_RATES = ("read_mb_s", "write_mb_s")
MB = 1_000_000  # as in data sheets
_SCOPE = ("name", "match", "bus", "capacity_min", "capacity_max")
_DRIVE_KEYS = (*_SCOPE, "firmware", "examples", "year", "defect", "fixed_in", *_RATES, *_FACTS)
_CLASS_KEYS = (*_SCOPE, "rotational", *_FACTS)
_LIMITS = tuple(IoLimits.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class DriveRow:
    """A row of the drive database: the drives that it matches, and their geometry."""

    file: str
    name: str
    geometry: KnownGeometry
    # as written; empty for a class that is identified by kind, rotation and size alone
    match: tuple[str, ...]
    patterns: tuple[schema.Pattern, ...]
    makers: tuple[str, ...] = ()  # names that may stand before the model
    firmware: tuple[str, ...] = ()
    firmware_patterns: tuple[schema.Pattern, ...] = ()
    buses: tuple[DiskKind, ...] = ()
    rotational: bool | None = None
    capacity_min: int | None = None
    capacity_max: int | None = None
    year: int | None = None
    examples: tuple[str, ...] = ()  # model names as seen on real drives

    def fits_any(self, texts: tuple[str, ...]) -> bool:
        return any(pattern.fits(text) for pattern in self.patterns for text in texts)

    def fits_firmware(self, firmware: str) -> bool:
        """Return whether the firmware matches. A row without firmware matches any."""
        return not self.firmware or any(
            pattern.fits(schema.normal(firmware)) for pattern in self.firmware_patterns
        )

    def fits_kind(self, disk: Disk) -> bool:
        """Return whether the kind and the size of the disk match."""
        if self.buses and disk.kind not in self.buses:
            return False
        if self.capacity_min is None and self.capacity_max is None:
            return True
        return disk.size is not None and (self.capacity_min or 0) <= disk.size <= (
            self.capacity_max or disk.size
        )


def _row(entry: schema.Entry, makers: tuple[str, ...], *, is_class: bool = False) -> DriveRow:
    """Return the row of a table. A class needs no `match`, because kind, rotation and size may identify
    it.
    """
    entry.allow(*(_CLASS_KEYS if is_class else _DRIVE_KEYS))
    match = entry.texts("match")
    examples = entry.texts("examples")
    year = entry.number("year")
    if not (match or is_class):
        raise entry.refusal("match is missing")
    if not (examples or is_class):
        raise entry.refusal("examples is missing", hint="a model name as reported by a drive")
    if entry.text("defect") and not entry.texts("firmware"):
        raise entry.refusal("a defect belongs to a firmware, but firmware is missing")
    name = entry.required("name")
    source, row = (Source.ASSUMED, f"class: {name}") if is_class else (Source.KNOWN, name)
    return DriveRow(
        file=entry.file,
        name=name,
        geometry=_geometry(entry, source, row),
        match=match,
        patterns=_patterns(entry, "match"),
        makers=tuple(map(schema.normal, makers)),
        firmware=entry.texts("firmware"),
        firmware_patterns=_patterns(entry, "firmware"),
        buses=tuple(map(DiskKind, entry.choices("bus", tuple(DiskKind), "a kind of disk", "kinds"))),
        rotational=entry.flag("rotational"),
        capacity_min=entry.size("capacity_min"),
        capacity_max=entry.size("capacity_max"),
        year=None if year is None else int(year),
        examples=examples,
    )


def _geometry(entry: schema.Entry, source: Source, row: str) -> KnownGeometry:
    sizes = {key: entry.size(key) for key in _SIZES}
    for key, size in sizes.items():
        if size is not None and not 512 <= size <= PIB:
            raise entry.refusal(f"{key} must be at least 512B")
        if size is not None and key != "erase_block" and not is_power_of_two(size):
            raise entry.refusal(f"{key} must be a power of two")
    dram, hmb = _memory(entry)
    entry.required("confidence")
    return KnownGeometry(
        source=source,
        row=row,
        citation=entry.required("source"),
        confidence=entry.choice("confidence", CONFIDENCE) or CONFIDENCE[-1],
        dram=dram,
        hybrid=entry.flag("hybrid"),
        note=entry.text("note"),
        hmb=hmb,
        defect=entry.text("defect"),
        fixed_in=entry.text("fixed_in"),
        distrust=entry.choices("distrust", _LIMITS, "a queue limit", "limits"),
        read_rate=_rate(entry, "read_mb_s"),
        write_rate=_rate(entry, "write_mb_s"),
        **{_SIZES[key]: size for key, size in sizes.items()},
    )


def _rate(entry: schema.Entry, key: str) -> int | None:
    """Return a rate such as "read_mb_s = 2200" in bytes per second."""
    value = entry.number(key)
    if value is not None and not 1 <= value <= 1_000_000:
        raise entry.refusal(f"{key} must be a number of MB/s (10^6 bytes per second), not {value!r}")
    return None if value is None else int(value * MB)


def _memory(entry: schema.Entry) -> tuple[bool | None, bool | None]:
    """Return (has DRAM, uses a Host Memory Buffer) from `dram`: true, false or "hmb", which means HMB without
    DRAM.
    """
    value = entry.values.get("dram")
    if value == "hmb":
        return False, True
    if value is not None and not isinstance(value, bool):
        raise entry.refusal(f'dram must be true, false or "hmb", not {value!r}')
    return value, None


def _patterns(entry: schema.Entry, key: str) -> tuple[schema.Pattern, ...]:
    patterns = []
    for text in entry.texts(key):
        try:
            patterns.append(schema.parse_pattern(text))
        except ValueError as error:
            raise entry.refusal(f"{key}: {text!r} is not a pattern: {error}") from error
    return tuple(patterns)


# The drive database (`recipes/drives`): facts on a model that the drive itself does not report, or reports
# wrongly. The most specific rows come first: of the model and its firmware, of the model, then the default of
# its class.

# Kinds whose model name is read by a SCSI INQUIRY.
_INQUIRY_KINDS = frozenset((DiskKind.ATA, DiskKind.SCSI, DiskKind.USB))


@dataclass(frozen=True, slots=True)
class DriveDatabase:
    """All rows of the database, with a cache of matches."""

    rows: tuple[DriveRow, ...]  # of models
    classes: tuple[DriveRow, ...]  # the defaults of classes; the first that matches counts
    _by_model: dict[tuple[str, bool], tuple[DriveRow, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def known(self, disk: Disk) -> tuple[KnownGeometry, ...]:
        model = schema.normal(disk.model or "")
        rows = [row for row in self._of_model(model, disk.kind in _INQUIRY_KINDS) if row.fits_kind(disk)]
        rows = [row for row in rows if row.fits_firmware(disk.firmware or "")]
        rows.sort(key=lambda row: not row.firmware)  # stable: otherwise in the order of the files
        defaults = [row for row in self.classes if _in_class(row, disk, model)]
        return tuple(row.geometry for row in (*rows, *defaults[:1]))

    def search(self, model: str, *, firmware: str | None = None) -> tuple[KnownGeometry, ...]:
        """Return the rows that match a model, or else those with this text in their name or patterns."""
        text = schema.normal(model)
        rows = self._of_model(text, True)
        if not rows and text:
            rows = tuple(
                row
                for row in self.rows
                if text in schema.normal(row.name) or text in schema.normal(" ".join(row.match))
            )
        wanted = [row for row in rows if firmware is None or row.fits_firmware(firmware)]
        return tuple(row.geometry for row in sorted(wanted, key=lambda row: not row.firmware))

    def _of_model(self, model: str, through_inquiry: bool) -> tuple[DriveRow, ...]:
        key = (model, through_inquiry)
        if key not in self._by_model:
            makers = {row.makers for row in self.rows}  # one tuple per file
            texts = {names: schema.spellings(model, names, cut=through_inquiry) for names in makers}
            self._by_model[key] = tuple(row for row in self.rows if row.fits_any(texts[row.makers]))
        return self._by_model[key]


@cache
def load_drives(*, models: bool = True) -> DriveDatabase:
    """Return the packaged database, or only the defaults of classes if `models` is false.

    Raises Refused, with file, row and key, if a file does not follow docs/recipes.md.
    """
    return parse_drives(
        schema.read_recipes("drives") if models else [schema.read_recipe("drives/classes.toml")]
    )


def parse_drives(texts: Iterable[tuple[str, str]]) -> DriveDatabase:
    """Return the database read from (file name, content) pairs: rows of models, and the defaults of
    classes.
    """
    rows: list[DriveRow] = []
    classes: list[DriveRow] = []
    for file, content in texts:
        top, tables = schema.read_tables(file, content, kinds=("drive", "class"), keys=("makers",))
        rows += (_row(entry, top.texts("makers")) for entry in tables["drive"])
        classes += (_row(entry, (), is_class=True) for entry in tables["class"])
    return DriveDatabase(tuple(rows), tuple(classes))


def _in_class(row: DriveRow, disk: Disk, model: str) -> bool:
    if row.match and not row.fits_any(schema.spellings(model, row.makers, cut=False)):
        return False
    return row.rotational in (None, disk.rotational) and row.fits_kind(disk)


def known_geometries(inventory: Inventory) -> dict[str, tuple[KnownGeometry, ...]]:
    """Return the rows of the drive database for each disk, by the disk's name."""
    disks = (*inventory.disks, *inventory.below)
    database = load_drives(models=any(disk.model for disk in disks))
    return {disk.name: database.known(disk) for disk in disks}
