"""A device is overwritten only if nothing forbids it; all reasons are reported together."""

from dataclasses import replace

import pytest

from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, Layer, Partition, Role, Sampled, Table, TableLabel
from aligntool.measure.schedule import refuse_destruction
from aligntool.units import GIB, MIB, Extent

EMPTY = Disk("sdx", "/dev/sdx", DiskKind.ATA, GIB, IoLimits(), table_read=True, content_read=True)
PART = Partition(1, Extent(MIB, 64 * MIB), node="sdx1", content_read=True)
OTHER = Partition(2, Extent(65 * MIB, 64 * MIB), node="sdx2", content_read=True, mounted_at=("/srv",))
PARTED = replace(EMPTY, table=Table(TableLabel.GPT, 512), partitions=(PART, OTHER))
EXT4 = (Layer("ext4", Extent(0, MIB), label="precious"),)


def test_an_empty_disk_and_an_empty_partition_may_be_overwritten() -> None:
    refuse_destruction(EMPTY, None)
    refuse_destruction(PARTED, PART)


@pytest.mark.parametrize(
    ("disk", "partition", "reasons"),
    [
        (replace(EMPTY, read_only=True), None, ["sdx is read-only"]),
        (replace(EMPTY, failing="it says so"), None, ["sdx reports that it is failing: it says so"]),
        (replace(EMPTY, mounted_at=("/srv", "/mnt")), None, ["sdx is mounted at /srv", "sdx is mounted at /mnt"]),
        (replace(EMPTY, holders=("md0",)), None, ["sdx is in use by md0"]),
        (replace(EMPTY, table_read=False), None, ["sdx could not be read"]),
        (replace(EMPTY, content_read=False), None, ["sdx could not be read"]),
        (replace(EMPTY, content=EXT4), None, ['sdx is not empty: ext4 "precious"']),
        (replace(EMPTY, content_hint="zfs_member"), None, ["sdx is not empty: zfs_member"]),
        (replace(EMPTY, table=Table(TableLabel.DOS, 512)), None, ["sdx has a partition table (MBR)"]),
        (
            PARTED, None,
            ["partition 2 of sdx is mounted at /srv", "not empty: partition 1, 64MiB", "not empty: partition 2, 64MiB"],
        ),
        (PARTED, OTHER, ["partition 2 of sdx is mounted at /srv"]),
        (PARTED, replace(PART, content=EXT4), ['partition 1 of sdx is not empty: ext4 "precious"']),
        (PARTED, replace(PART, content_read=False), ["partition 1 of sdx could not be read"]),
        (PARTED, replace(PART, content_hint="LVM2_member"), ["partition 1 of sdx is not empty: LVM2_member"]),
        (PARTED, replace(PART, holders=("dm-0",)), ["partition 1 of sdx is in use by dm-0"]),
        (PARTED, replace(PART, role=Role.EXTENDED), ["not a separate partition but extended"]),
        (replace(PARTED, mounted_at=("/whole",)), PART, ["sdx is mounted at /whole"]),
    ],
)  # fmt: skip
def test_every_reason_is_reported(disk: Disk, partition: Partition | None, reasons: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        refuse_destruction(disk, partition)
    said = str(refused.value).split("\n")
    assert len(said) == len(reasons)
    assert all(reason in line for reason, line in zip(reasons, said, strict=True))


@pytest.mark.parametrize("partition", [None, OTHER])
def test_the_command_that_ends_the_use_is_named(partition: Partition | None) -> None:
    """The partition is a physical volume in a LUKS."""
    safe = replace(EMPTY, name="dm-0", path="/dev/dm-0", mapping="crypt LUKS2 safe", holders=("dm-1",))
    home = replace(EMPTY, name="dm-1", path="/dev/dm-1", mapping="lvm vg/home", mounted_at=("/home",))
    used = replace(OTHER, mounted_at=(), holders=("dm-0",))
    with pytest.raises(Refused, match="is in use by dm-0") as refused:
        refuse_destruction(replace(PARTED, partitions=(used,)), partition and used, above=Inventory((safe, home)))
    hint = next(reason.hint for reason in refused.value.refusals if reason.code == "held")
    assert hint == "sudo umount /home && sudo vgchange -an vg && sudo cryptsetup close safe"


@pytest.mark.parametrize(
    ("written", "unreadable", "reason"),
    [(1, 0, "not empty: unrecognised data at 1 of 102 places"), (0, 1, "cannot be read at 1 of 102 places")],
)
def test_data_without_a_signature_are_overwritten_only_if_named(written: int, unreadable: int, reason: str) -> None:
    sampled = Sampled(102, written, unreadable, "")
    for disk, partition, path in (
        (replace(EMPTY, sampled=sampled), None, "/dev/sdx"),
        (replace(PARTED, sampled=sampled), PART, "/dev/sdx1"),
    ):
        with pytest.raises(Refused, match=reason) as refused:
            refuse_destruction(disk, partition)
        assert f"--wipe {path}" in refused.value.hint
        refuse_destruction(disk, partition, wipe=True)
    few = replace(EMPTY, sampled=Sampled(8194, 0, 0, "", 32 * MIB))
    with pytest.raises(Refused, match="8194 places of 4KiB, every 32MiB, read as unwritten") as refused:
        refuse_destruction(few, None)
    assert "--wipe /dev/sdx" in refused.value.hint
    refuse_destruction(few, None, wipe=True)
    refuse_destruction(replace(EMPTY, sampled=Sampled(8194, 0, 0, "", 16 * MIB)), None)
    with pytest.raises(Refused, match="ext4"):  # recognised content is kept even if the disk is named
        refuse_destruction(replace(EMPTY, content=EXT4, sampled=sampled), None, wipe=True)
