"""Which layers may hold a suspended system that cannot be seen."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import RealignGoal
from aligntool.contents.catalogue import KINDS
from aligntool.contents.layers import read_layers
from aligntool.inventory import Layer
from aligntool.realign.suspended import may_hold_suspended_system
from aligntool.units import MIB, Extent
from tests.contents.test_lvm import Lvm, linear, made, raid_and_thin, restored
from tests.in_memory import BytesReader
from tests.realign.movable_disks import movable_disk, plan_for

__all__ = ["made"]  # a fixture
OFF = "63+100000 ext4; 104448+100000 ext4"
SECOND = Extent(104448 * 512, 100000 * 512)
EXT4 = Layer("ext4", SECOND)
Made = Callable[..., tuple[Lvm, list[Path], list[Path]]]


def held(*content: Layer) -> str:
    """Return what may hold a suspended system on a disk with this content in its second partition."""
    disk = movable_disk(OFF)
    first, second = disk.partitions
    return may_hold_suspended_system(replace(disk, partitions=(first, replace(second, content=content))))


def md(level: str, members: int, **changes: object) -> Layer:
    return Layer("linux_raid_member", SECOND, "1.2", raid_level=level, raid_members=members, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (Layer("crypto_LUKS", SECOND, "LUKS2"), "LUKS2"),
        (md("raid1", 2, inner=(Layer("crypto_LUKS", SECOND, "LUKS1"),)), "LUKS1"),
        (Layer("BitLocker", SECOND), "BitLocker"),
        (Layer("bcache", SECOND, inner=(EXT4,)), "bcache"),
        (Layer("drbd", SECOND), "drbd"),
        (Layer("ldm", SECOND), "ldm"),
        (Layer("a kind of tomorrow", SECOND), "a kind of tomorrow"),
        (md("raid5", 3), "md 1.2"),
        (md("raid0", 2), "md 1.2"),
        (md("linear", 2), "md 1.2"),
        (md("raid1", 2, problems=("the checksum is bad",)), "md 1.2"),
        (Layer("LVM2_member", SECOND), "LVM2 PV"),  # its metadata are on another disk
    ],
)
def test_a_layer_that_cannot_be_looked_into_counts(layer: Layer, name: str) -> None:
    assert held(layer) == f"the {name} on partition 2"


@pytest.mark.parametrize(
    "layer",
    [
        EXT4,
        Layer("swap", SECOND),
        Layer("zfs_member", SECOND),
        Layer("DM_verity_hash", SECOND),
        md("raid1", 2, inner=(EXT4,)),
        md("raid1", 2),
        md("raid0", 1),
        Layer("LVM2_member", SECOND, claims_size=MIB),  # in no group
    ],
)
def test_a_file_system_and_a_layer_that_was_looked_into_do_not_count(layer: Layer) -> None:
    assert held(layer) == ""


def test_every_owner_of_a_partition_counts_and_no_file_system_does() -> None:
    signed = [kind for kind in KINDS if kind.signatures]
    names = [kind.name for kind in signed]
    counted = {name for name in names if held(Layer(name, SECOND))}
    file_systems = set(names[names.index("vfat") :])  # libblkid searches for all of them after RAID and encryption
    others = {"bcachefs", "ceph_bluestore", "DM_verity_hash", "VMFS_volume_member"}
    assert set(names) - counted == file_systems | others


def test_at_most_four_layers_are_named() -> None:
    disk = movable_disk("; ".join(f"{2048 * number}+2048 ext4" for number in range(1, 7)))
    luks = tuple(replace(part, content=(Layer("crypto_LUKS", part.extent, "LUKS2"),)) for part in disk.partitions)
    found = may_hold_suspended_system(replace(disk, partitions=luks))
    assert found.endswith("the LUKS2 on partition 4 and 2 more")


def test_a_plan_that_moves_nothing_does_not_mention_it() -> None:
    on, off = movable_disk("2048+100000 ext4; 104448+100000 ext4"), movable_disk(OFF)
    luks = Layer("crypto_LUKS", SECOND, "LUKS2")
    for disk, said in ((on, False), (off, True)):
        first, second = disk.partitions
        plan = plan_for(
            replace(disk, partitions=(first, replace(second, content=(luks,)))), RealignGoal(partitions=(1,))
        )
        assert bool(plan.steps) is said
        assert any(sentence.startswith("may be suspended: ") for sentence in plan.attention) is said


THIN = raid_and_thin()[5:]


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm", "blkid")
@pytest.mark.parametrize(
    ("volumes", "counts"),
    [
        ((linear(1, "root", 8, '"pv0", 3', visible=True), linear(2, "swap", 8, '"pv0", 20', visible=True)), False),
        (THIN, True),
        (raid_and_thin()[:5], True),
        (raid_and_thin(striped=True)[:5], True),
        ((linear(1, "root", 8, '"pv0", 3', visible=True), linear(2, "f_cvol", 8, '"pv0", 20')), True),
    ],
    ids=["simple", "thin", "mirror", "striped RAID", "cache"],
)
def test_volumes_that_are_not_simple_count(made: Made, volumes: Sequence[str], counts: bool) -> None:
    lvm, images, devices = made(2)
    restored(lvm, devices, volumes)
    content = images[0].read_bytes()
    (layer,) = read_layers(BytesReader(content), Extent(0, len(content)))
    assert layer.kind == "LVM2_member"
    assert held(layer) == ("the LVM2 PV on partition 2" if counts else "")


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm", "blkid")
def test_a_volume_that_begins_on_another_disk_counts(made: Made) -> None:
    lvm, images, devices = made(2)
    lvm("vgcreate", "-q", "-s", "4m", "vg", *devices)
    lvm.create("-L", "8m", "-n", "swap", "vg", str(devices[0]))
    lvm("lvextend", "-q", "-L", "+8m", "vg/swap", str(devices[1]))
    found = [read_layers(BytesReader(image.read_bytes()), Extent(0, 64 * MIB)) for image in images]
    assert [held(*layers) for layers in found] == ["", "the LVM2 PV on partition 2"]
