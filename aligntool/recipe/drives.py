"""The drive database: what is known of a model that the drive itself does not report, or reports wrongly.

In: the TOML files of `recipes/drives` (schema: docs/recipes.md). Out: KnownGeometry values for a disk, the most special
first: rows of the model and its firmware, rows of the model, then the one default of its class.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aligntool.inventory import Disk, DiskKind, KnownGeometry
from aligntool.recipe.files import read_recipes
from aligntool.recipe.models import normal, spellings
from aligntool.recipe.rows import DriveRow, read_rows

# Their models come through a SCSI INQUIRY.
_INQUIRY_KINDS = frozenset((DiskKind.ATA, DiskKind.SCSI, DiskKind.USB))


@dataclass(frozen=True, slots=True)
class DriveDatabase:
    rows: tuple[DriveRow, ...]  # of models
    classes: tuple[DriveRow, ...]  # the defaults; the first that fits is taken
    _by_model: dict[tuple[str, bool], tuple[DriveRow, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def known(self, disk: Disk) -> tuple[KnownGeometry, ...]:
        model = normal(disk.model or "")
        rows = [row for row in self._of_model(model, disk.kind in _INQUIRY_KINDS) if _fits(row, disk)]
        rows.sort(key=lambda row: not row.firmware)  # stable: the files' order within
        default = next((row for row in self.classes if _in_class(row, disk, model)), None)
        return tuple(row.geometry for row in (*rows, *((default,) if default else ())))

    def search(self, model: str, *, firmware: str | None = None) -> tuple[KnownGeometry, ...]:
        """Rows for a model as a user types it; when none fits, those with that text in their name or pattern."""
        text = normal(model)
        rows = self._of_model(text, True)
        if not rows and text:
            rows = tuple(
                row for row in self.rows if text in normal(row.name) or text in normal(" ".join(row.match))
            )
        wanted = [row for row in rows if firmware is None or row.fits_firmware(firmware)]
        return tuple(row.geometry for row in sorted(wanted, key=lambda row: not row.firmware))

    def _of_model(self, model: str, through_inquiry: bool) -> tuple[DriveRow, ...]:
        key = (model, through_inquiry)
        if key not in self._by_model:
            makers = {row.makers for row in self.rows}  # one set a file
            texts = {names: spellings(model, names, cut=through_inquiry) for names in makers}
            self._by_model[key] = tuple(row for row in self.rows if row.fits_any(texts[row.makers]))
        return self._by_model[key]


def load_drives() -> DriveDatabase:
    """The packaged database. Raises Refused naming file, row and key when it is not as docs/recipes.md says."""
    return parse_drives(read_recipes("drives"))


def parse_drives(texts: Iterable[tuple[str, str]]) -> DriveDatabase:
    """`texts` are (file name, content)."""
    rows: list[DriveRow] = []
    classes: list[DriveRow] = []
    for file, content in texts:
        of_models, of_classes = read_rows(file, content)
        rows.extend(of_models)
        classes.extend(of_classes)
    return DriveDatabase(tuple(rows), tuple(classes))


def _fits(row: DriveRow, disk: Disk) -> bool:
    if row.buses and disk.kind not in row.buses:
        return False
    if not row.fits_firmware(disk.firmware or ""):
        return False
    return _fits_size(row, disk.size)


def _fits_size(row: DriveRow, size: int | None) -> bool:
    if row.capacity_min is None and row.capacity_max is None:
        return True
    if size is None or size < (row.capacity_min or 0):
        return False
    return row.capacity_max is None or size <= row.capacity_max


def _in_class(row: DriveRow, disk: Disk, model: str) -> bool:
    if row.match and not row.fits_model(model):
        return False
    if row.rotational is not None and disk.rotational is not row.rotational:
        return False
    return (not row.buses or disk.kind in row.buses) and _fits_size(row, disk.size)
