"""Disks in a short notation, so that a test is about one thing.

made_disk("63+40 ext4; 2048+200; 5e 300+100")     starts and lengths in sectors of the disk
"""

from dataclasses import replace

from aligntool.audit.judge import audit
from aligntool.audit.report import AuditOptions, Report
from aligntool.inventory import (
    Disk,
    DiskKind,
    Inventory,
    IoLimits,
    KnownGeometry,
    Layer,
    Partition,
    Role,
    Table,
    TableLabel,
)
from aligntool.units import GIB, Extent


def made_disk(
    partitions: str = "",
    *,
    name: str = "sda",
    kind: DiskKind = DiskKind.ATA,
    logical: int | None = 512,
    physical: int | None = 512,
    minimum: int | None = None,
    optimal: int | None = 0,
    offset: int | None = 0,
    rotational: bool | None = True,
    size: int = 500 * GIB,
    label: TableLabel = TableLabel.GPT,
) -> Disk:
    sector = logical or 512
    parts = tuple(_partition(index, words.split(), sector) for index, words in enumerate(_split(partitions), 1))
    return Disk(
        name=name, path=f"/dev/{name}", kind=kind, size=size, rotational=rotational,
        limits=IoLimits(logical, physical, minimum if minimum is not None else physical, optimal, offset),
        drive_port="sas" if kind is DiskKind.SCSI else None,
        table=Table(label, sector) if parts else None, table_read=True, partitions=parts,
        kernel_partitions=tuple((part.number, part.extent) for part in parts),
    )  # fmt: skip


def _split(text: str) -> list[str]:
    return [words for words in text.split(";") if words.strip()]


def _partition(number: int, words: list[str], sector: int) -> Partition:
    role = Role.PRIMARY
    if words[0].endswith("e") and words[0][:-1].isdigit():
        number, role, words = int(words[0][:-1]), Role.EXTENDED, words[1:]
    elif words[0].endswith("l") and words[0][:-1].isdigit():
        number, role, words = int(words[0][:-1]), Role.LOGICAL, words[1:]
    start, _, length = words[0].partition("+")
    extent = Extent(int(start) * sector, int(length or 1_000_000) * sector)
    content = tuple(Layer(kind, extent) for kind in words[1:])
    return Partition(number, extent, role, type_code="0x83", content=content, content_read=True)


def with_content(disk: Disk, *layers: Layer) -> Disk:
    """Return the disk with these layers on its first partition."""
    first = replace(disk.partitions[0], content=layers)
    return replace(disk, partitions=(first, *disk.partitions[1:]))


def judge(*disks: Disk, known: tuple[KnownGeometry, ...] = (), wishes: AuditOptions | None = None) -> Report:
    return audit(Inventory(disks), {disk.name: known for disk in disks}, wishes)


def codes(report: Report) -> list[str]:
    return [finding.code.value for finding in report.findings]
