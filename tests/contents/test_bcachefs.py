"""A bcachefs, on one device and on several: superblocks after bcachefs_format.h, which blkid then reads as well."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.cli.plan import commands_of
from aligntool.contents.catalogue import kind_named, smallest_unit
from aligntool.contents.layers import read_layers
from aligntool.errors import Refused
from aligntool.formats.part_types import ROLES
from aligntool.inventory import Layer
from aligntool.linux.checks import check_content
from aligntool.linux.programs import find_program
from aligntool.mover.whole_disk import role_of
from aligntool.units import KIB, MIB, Extent
from tests.contents.placed_partitions import blkid
from tests.fuzz.handmade_layers import le, packed
from tests.in_memory import BytesReader
from tests.mover.libblkid import known_kinds
from tests.mover.superblocks import bcachefs
from tests.realign.movable_disks import movable_disk, plan_for

Sparse = Callable[..., Path]

SIZE = 16 * MIB
BUCKET = 256 * KIB
INITIALIZED, CLEAN = 1, 2  # of flags[0], byte 144


def member(index: int) -> bytes:
    """Return an entry of the member list: nbuckets, first_bucket, bucket_size (sectors)."""
    return packed(56, (16, le(SIZE // BUCKET - index, 8)), (24, le(4, 2)), (26, le(BUCKET // 512, 2)))


def image(*, devices: int = 1, index: int = 0, flags: int = INITIALIZED | CLEAN, block: int = 4096) -> bytes:
    """Return the content of one device: three superblocks, each with the list of all members."""
    members = b"".join(map(member, range(devices)))
    length = 8 + len(members)
    content = bytearray(SIZE)
    for at, raw in bcachefs(SIZE):
        fields = (
            (0, raw), (72, b"data"), (120, le(block // 512, 2)), (122, bytes((index, devices))), (124, le(length // 8)),
            (144, le(flags, 8)), (752, le(length // 8) + le(1) + members),
        )  # fmt: skip
        copy = packed(1024, *fields)
        content[at : at + len(copy)] = copy
    return bytes(content)


def layer_of(content: bytes) -> Layer:
    (layer,) = read_layers(BytesReader(content), Extent(0, SIZE))
    return layer


def test_a_bcachefs_on_one_device_is_recognised(sparse: Sparse) -> None:
    content = image()
    layer = layer_of(content)
    assert (layer.kind, layer.label, layer.version, layer.raid_members) == ("bcachefs", "data", "1.1", None)
    assert (layer.data_unit, layer.claims_size, layer.data_start) == (4096, SIZE, 4 * BUCKET)
    assert (layer.unclean, layer.problems) == (None, ())
    if "bcachefs" in known_kinds():
        path = sparse(SIZE)
        path.write_bytes(content)
        found = blkid(path)
        assert (found["TYPE"], found["LABEL"], found["UUID"]) == ("bcachefs", layer.label, layer.uuid)


@pytest.mark.parametrize("index", [0, 1])
def test_each_device_of_several_has_its_own_size_and_is_not_moved(index: int) -> None:
    layer = layer_of(image(devices=2, index=index))
    assert (layer.raid_members, layer.claims_size) == (2, SIZE - index * BUCKET)
    with pytest.raises(Refused, match="is one of 2 devices of a bcachefs, and no tool checks it alone"):
        disk = movable_disk("63+40000 bcachefs")
        part = replace(disk.partitions[0], content=(replace(layer, extent=disk.partitions[0].extent),))
        plan_for(replace(disk, partitions=(part,)))


@pytest.mark.parametrize(
    ("flags", "unclean"),
    [(INITIALIZED, "was not unmounted cleanly (clean flag clear)"), (INITIALIZED | CLEAN, None), (0, None)],
)
def test_a_bcachefs_that_was_mounted_last_is_unclean(flags: int, unclean: str | None) -> None:
    assert layer_of(image(flags=flags)).unclean == unclean


def test_a_bcachefs_is_checked_by_its_own_fsck_and_copied_whole(sparse: Sparse) -> None:
    plan = plan_for(movable_disk("63+40000 bcachefs"))
    lines = [line for lines in commands_of(plan).values() for line in lines]
    assert lines[1:] == ["bcachefs fsck -n DEVICE"]
    kind = kind_named("bcachefs")
    assert kind.used_blocks is None and not kind.shrinkable
    if not find_program("bcachefs"):
        assert check_content(str(sparse(SIZE)), Extent(0, SIZE), "bcachefs").by == "bcachefs is not installed"


@pytest.mark.parametrize("block", [512, 4096])
def test_the_smallest_unit_of_a_bcachefs_is_its_block(block: int) -> None:
    content = image(block=block)
    unit = smallest_unit(BytesReader(content), layer_of(content))
    assert (unit.size, unit.fits(512), unit.fits(4096)) == (block, True, block == 4096)


def test_a_partition_with_a_bcachefs_has_the_type_of_linux_data() -> None:
    assert role_of("bcachefs") == ROLES["linux"]
