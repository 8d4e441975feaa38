"""A disk is recognised again, and one whose table was changed is not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from aligntool.inventory import Disk, Role, Table, TableLabel
from aligntool.steps import is_same_disk, subject
from aligntool.units import Extent
from tests.realign.movable_disks import movable_disk

DISK = movable_disk("63+1000; 2e 2048+400000; 5l 2111+1000", label=TableLabel.DOS)
CHANGES: list[tuple[str, object]] = [
    ("number", 3),
    ("extent", Extent(64 * 512, 1000 * 512)),
    ("extent", Extent(63 * 512, 1001 * 512)),
    ("role", Role.LOGICAL),
    ("type_code", "0x07"),
    ("uuid", "1234-01"),
    ("name", "root"),
    ("flags", ("active",)),
    ("record_at", 512),
]


def entry_with(name: str, value: object) -> Disk:
    first, *others = DISK.partitions
    return replace(DISK, partitions=(replace(first, **{name: value}), *others))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_every_field_of_an_entry_changes_the_digest(name: str, value: object) -> None:
    assert subject(entry_with(name, value)).table_digest != subject(DISK).table_digest


CHANGED: list[Callable[[Disk], Disk]] = [
    lambda disk: replace(disk, table=replace(disk.table or Table(TableLabel.DOS, 512), disk_id="0x12345678")),
    lambda disk: replace(disk, table=replace(disk.table or Table(TableLabel.DOS, 512), label=TableLabel.GPT)),
    lambda disk: replace(disk, serial="another"),
    lambda disk: replace(disk, size=1),
]


@pytest.mark.parametrize("change", CHANGED)
def test_a_different_disk_is_not_taken_for_the_same(change: Callable[[Disk], Disk]) -> None:
    assert not is_same_disk(subject(change(DISK)), subject(DISK))


def test_a_disk_is_recognised_under_another_name() -> None:
    assert is_same_disk(subject(replace(DISK, path="/dev/sdz", name="sdz")), subject(DISK))
