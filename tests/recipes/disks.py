"""Disks to look up, and the names of the rows that match."""

from aligntool.inventory import Disk, DiskKind, IoLimits, KnownGeometry, Source


def disk(
    model: str | None = None,
    *,
    kind: DiskKind = DiskKind.ATA,
    firmware: str | None = None,
    size: int | None = None,
    rotational: bool | None = None,
) -> Disk:
    return Disk("sda", "/dev/sda", kind, size, IoLimits(), model=model, firmware=firmware, rotational=rotational)


def of_model(found: tuple[KnownGeometry, ...]) -> list[str]:
    return [known.row for known in found if known.source is Source.KNOWN]


def of_class(found: tuple[KnownGeometry, ...]) -> list[str]:
    return [known.row for known in found if known.source is Source.ASSUMED]
