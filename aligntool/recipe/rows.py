"""One row of the drive database, and reading it from TOML.

In: the text of one file. Out: its rows, checked: a key that the schema (docs/recipes.md) does not have is refused.
"""

from dataclasses import dataclass

from aligntool.inventory import DiskKind, IoLimits, KnownGeometry, Source
from aligntool.recipe.models import Pattern, normal, parse_pattern, spellings
from aligntool.recipe.schema import Entry, read_tables
from aligntool.units import PIB, is_power_of_two

CONFIDENCE = ("high", "medium", "low")
_SIZES = ("physical_sector", "page", "indirection_unit", "erase_block")
_FACTS = (*_SIZES, "dram", "hybrid", "distrust", "note", "source", "confidence")
_RATES = ("read_mb_s", "write_mb_s")
MB = 1_000_000  # as data sheets count
_SCOPE = ("name", "match", "bus", "capacity_min", "capacity_max")
_DRIVE_KEYS = (*_SCOPE, "firmware", "examples", "year", *_RATES, *_FACTS)
_CLASS_KEYS = (*_SCOPE, "rotational", *_FACTS)
_LIMITS = tuple(IoLimits.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class DriveRow:
    file: str
    name: str
    geometry: KnownGeometry
    match: tuple[str, ...]  # as written; empty for a class that is told by kind, rotation and size alone
    patterns: tuple[Pattern, ...]
    makers: tuple[str, ...] = ()  # names that may stand before the model
    firmware: tuple[str, ...] = ()
    firmware_patterns: tuple[Pattern, ...] = ()
    buses: tuple[DiskKind, ...] = ()
    rotational: bool | None = None
    capacity_min: int | None = None
    capacity_max: int | None = None
    year: int | None = None
    examples: tuple[str, ...] = ()  # models as they were seen

    def fits_model(self, model: str) -> bool:
        """`model` is spelled as `normal` does."""
        return self.fits_any(spellings(model, self.makers, cut=False))

    def fits_any(self, texts: tuple[str, ...]) -> bool:
        return any(pattern.fits(text) for pattern in self.patterns for text in texts)

    def fits_firmware(self, firmware: str) -> bool:
        """A row for no special firmware fits all."""
        return not self.firmware or any(each.fits(normal(firmware)) for each in self.firmware_patterns)


def read_rows(file: str, content: str) -> tuple[tuple[DriveRow, ...], tuple[DriveRow, ...]]:
    """The rows of models (`[[drive]]`) and the defaults of classes (`[[class]]`). Raises Refused."""
    document = read_tables(file, content, kinds=("drive", "class"), keys=("makers",))
    makers = document.top.texts("makers")
    drives = tuple(_drive(entry, makers) for entry in document.tables["drive"])
    return drives, tuple(_class(entry) for entry in document.tables["class"])


def _drive(entry: Entry, makers: tuple[str, ...]) -> DriveRow:
    entry.allow(*_DRIVE_KEYS)
    match = entry.texts("match")
    examples = entry.texts("examples")
    if not match:
        raise entry.refusal("match is missing")
    if not examples:
        raise entry.refusal("examples is missing", hint="a model name as a drive printed it")
    year = entry.number("year")
    return DriveRow(
        file=entry.file,
        name=entry.required("name"),
        geometry=_geometry(entry, Source.KNOWN, entry.required("name")),
        match=match,
        patterns=_patterns(entry, "match"),
        makers=tuple(map(normal, makers)),
        firmware=entry.texts("firmware"),
        firmware_patterns=_patterns(entry, "firmware"),
        buses=_buses(entry),
        capacity_min=entry.size("capacity_min"),
        capacity_max=entry.size("capacity_max"),
        year=None if year is None else int(year),
        examples=examples,
    )


def _class(entry: Entry) -> DriveRow:
    entry.allow(*_CLASS_KEYS)
    match = entry.texts("match")
    return DriveRow(
        file=entry.file,
        name=entry.required("name"),
        geometry=_geometry(entry, Source.ASSUMED, f"class: {entry.required('name')}"),
        match=match,
        patterns=_patterns(entry, "match"),
        buses=_buses(entry),
        rotational=entry.flag("rotational"),
        capacity_min=entry.size("capacity_min"),
        capacity_max=entry.size("capacity_max"),
    )


def _geometry(entry: Entry, source: Source, row: str) -> KnownGeometry:
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
        physical_block_size=sizes["physical_sector"],
        page_size=sizes["page"],
        indirection_unit=sizes["indirection_unit"],
        erase_block=sizes["erase_block"],
        dram=dram,
        hybrid=entry.flag("hybrid"),
        note=entry.text("note"),
        hmb=hmb,
        distrust=_distrust(entry),
        read_rate=_rate(entry, "read_mb_s"),
        write_rate=_rate(entry, "write_mb_s"),
    )


def _rate(entry: Entry, key: str) -> int | None:
    """ "read_mb_s = 2200" as bytes per second."""
    value = entry.number(key)
    if value is not None and not 1 <= value <= 1_000_000:
        raise entry.refusal(f"{key} must be a number of MB/s (10^6 bytes per second), not {value!r}")
    return None if value is None else int(value * MB)


def _memory(entry: Entry) -> tuple[bool | None, bool | None]:
    """`dram` is true, false, or "hmb": none of its own, it borrows the host's."""
    value = entry.values.get("dram")
    if value == "hmb":
        return False, True
    if value is not None and not isinstance(value, bool):
        raise entry.refusal(f'dram must be true, false or "hmb", not {value!r}')
    return value, None


def _distrust(entry: Entry) -> tuple[str, ...]:
    for each in entry.texts("distrust"):
        if each not in _LIMITS:
            raise entry.refusal(f"distrust: {each!r} is no queue limit", hint=f"limits: {', '.join(_LIMITS)}")
    return entry.texts("distrust")


def _buses(entry: Entry) -> tuple[DiskKind, ...]:
    kinds = tuple(DiskKind)
    for each in entry.texts("bus"):
        if each not in kinds:
            raise entry.refusal(f"bus: {each!r} is no kind of disk", hint=f"kinds: {', '.join(kinds)}")
    return tuple(map(DiskKind, entry.texts("bus")))


def _patterns(entry: Entry, key: str) -> tuple[Pattern, ...]:
    patterns = []
    for text in entry.texts(key):
        try:
            patterns.append(parse_pattern(text))
        except ValueError as error:
            raise entry.refusal(f"{key}: {text!r} is no pattern: {error}") from error
    return tuple(patterns)
