"""The disk that a plan is about, by identity.

In: a disk. Out: who it is, a digest of its table, and what lies on it. Alone because applying asks the same of the disk
that it finds, and must come to the same answer.
"""

import hashlib
import json
from dataclasses import dataclass, replace

from aligntool.inventory import Disk


@dataclass(frozen=True, slots=True)
class Subject:
    """The disk that a plan was thought out for, by identity; `path` is only how the user called it."""

    path: str
    size: int
    sector_size: int  # bytes in the sectors of its table
    label: str | None  # "gpt", "dos"; None: no table
    disk_id: str | None  # disk GUID or MBR signature
    model: str | None
    serial: str | None
    wwn: str | None
    table_digest: str  # of every entry as it was read


def subject(disk: Disk) -> Subject:
    return Subject(
        path=disk.path,
        size=disk.size or 0,
        sector_size=disk.sector_size,
        label=disk.table.label.value if disk.table else None,
        disk_id=disk.table.disk_id if disk.table else None,
        model=disk.model,
        serial=disk.serial,
        wwn=disk.wwn,
        table_digest=_digest(disk),
    )


def is_same_disk(one: Subject, other: Subject) -> bool:
    """By all that is known of it but its path: kernel names change from boot to boot."""
    return replace(one, path="") == replace(other, path="")


def held_by(disk: Disk, number: int | None = None) -> tuple[str, ...]:
    """Everything that is recognised on a partition, or on a disk and all its partitions, a line each: kind, UUID,
    label, byte. A table's digest says nothing of it.
    """
    layers = [layer for part in disk.partitions if number in (None, part.number) for layer in part.content]
    layers += disk.content if number is None else ()
    return tuple(
        sorted(
            f"{each.kind} {each.uuid or '-'} {each.label or '-'} at {each.extent.start}" for each in layers
        )
    )


def _digest(disk: Disk) -> str:
    """SHA-256, in hexadecimal, of everything that the table says: two tables have one digest only if they are alike."""
    said = [
        disk.table.label.value if disk.table else None,
        disk.table.disk_id if disk.table else None,
        disk.sector_size,
        [
            [
                part.number,
                part.extent.start,
                part.extent.length,
                part.role.value,
                part.type_code,
                part.uuid,
                part.name,
                list(part.flags),
                part.record_at,
            ]
            for part in sorted(disk.partitions, key=lambda part: (part.number, part.extent))
        ],
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
