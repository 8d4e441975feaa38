"""The disk that a plan is about, by identity.

In: a disk. Out: who it is, a digest of its table, and what lies on it. Alone because applying asks the same of the disk
that it finds, and must come to the same answer.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from aligntool.inventory import Disk, Layer


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


def held_by(disk: Disk, number: int | None = None, *, given_up: Collection[str] = ()) -> tuple[str, ...]:
    """Everything that is recognised on a partition, or on a disk and all its partitions, a line each: kind, UUID,
    label, byte. A table's digest says nothing of it. What lies inside of something else is among it, because it shows
    once the other's signature is erased. `given_up`: UUIDs of md arrays that are left out.
    """
    layers = [each for each in _layers(disk, number) if _array_uuid(each) not in given_up]
    return tuple(
        sorted(
            f"{each.kind} {each.uuid or '-'} {each.label or '-'} at {each.extent.start}" for each in layers
        )
    )


def superblocks_on(disk: Disk, number: int | None = None) -> tuple[str, ...]:
    """Return the UUIDs of the md arrays of which a superblock lies on a partition, or on a disk and all its partitions,
    as mdadm writes them.
    """
    found = (_array_uuid(layer) for layer in _layers(disk, number))
    return tuple(dict.fromkeys(each for each in found if each))


def _array_uuid(layer: Layer) -> str:
    """ "": it is no superblock of md."""
    digits = (layer.uuid or "").replace("-", "").replace(":", "").lower()
    if layer.kind != "linux_raid_member" or len(digits) != 32:
        return ""
    return ":".join(digits[at : at + 8] for at in range(0, 32, 8))


def _layers(disk: Disk, number: int | None) -> Iterator[Layer]:
    for part in disk.partitions:
        if number in (None, part.number):
            yield from _with_inner(part.content)
    if number is None:
        yield from _with_inner(disk.content)


def _with_inner(layers: Sequence[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield layer
        yield from _with_inner(layer.inner)


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
