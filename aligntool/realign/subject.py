"""Which disk a plan is about, so that it is not applied to another one.

In: a disk as it was seen. Out: a Subject. Alone because every planner needs it, and because whoever applies a plan asks
it again just before the first write.
"""

import hashlib
from dataclasses import astuple, replace

from aligntool.inventory import Disk
from aligntool.plan import Subject


def subject_of(disk: Disk, *, sector_size: int | None = None) -> Subject:
    """The disk's identity, and a digest of every entry of its table as it was read.

    `sector_size`: of the table that is to come, where it is not the one that is there.
    """
    table = disk.table
    return Subject(
        path=disk.path,
        size=disk.size or 0,
        sector_size=sector_size or disk.sector_size,
        label=table.label.value if table else None,
        disk_id=table.disk_id if table else None,
        model=disk.model,
        serial=disk.serial,
        wwn=disk.wwn,
        table_digest=_table_digest(disk),
    )


def is_same_disk(one: Subject, other: Subject) -> bool:
    """By all that is known of it but its path: kernel names change from boot to boot."""
    return replace(one, path="") == replace(other, path="")


def _table_digest(disk: Disk) -> str:
    entries = [
        (part.number, astuple(part.extent), part.role.value, part.type_code, part.name, part.uuid, part.flags)
        for part in disk.partitions
    ]
    return hashlib.sha256(repr(entries).encode()).hexdigest()
