"""The ranges that `--wipe` zeroes on a member, byte for byte."""

from pathlib import Path

import pytest

from aligntool.change import ArrayPlan, from_json, to_json
from aligntool.render.lines import text_of
from aligntool.render.plan import raid_plan_lines
from aligntool.steps import MakeMember, wiped_ends
from aligntool.units import GIB, MIB, Extent
from tests.conftest import run
from tests.raid.builders import drive, goal, planned

SIZE = 20 * GIB  # 21474836480 bytes


def member(plan: ArrayPlan) -> MakeMember:
    return next(step for step in plan.steps if isinstance(step, MakeMember))


def spans(step: MakeMember) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in step.zeroed]


def test_both_ends_of_drive_partitions_and_data_are_zeroed() -> None:
    """Two old partitions of 512-byte sectors; the new one of 20378 MiB begins at 1 MiB, its data 19 MiB into it."""
    full = drive(0, size=SIZE, parts="2048+409600 ext4; 500000+1000000")
    plan = planned(goal("raid1", wipe=("nvme0n1",)), full, drive(1, size=SIZE))
    step = member(plan)
    assert step.entries[0].extent == Extent(1048576, 21367881728)
    assert spans(step) == [
        (0, 6291456),
        (20971520, 26214400),
        (208666624, 210763776),
        (256000000, 261242880),
        (765902848, 768000000),
        (21366833152, 21368930304),
        (21472739328, 21474836480),
    ]


def test_nothing_outside_a_member_partition_is_zeroed() -> None:
    """10 GiB from byte 210763776, which is 201 MiB; the data 11 MiB into it."""
    full = drive(0, size=SIZE, parts="2048+409600 ext4; 411648+20971520 xfs")
    other = drive(1, size=SIZE, parts="2048+409600; 411648+20971520")
    wanted = goal("raid1", members="partitions", partitions=(2, 2), wipe=("nvme0n1p2", "nvme1n1p2"))
    for step in planned(wanted, full, other).steps[:2]:
        assert isinstance(step, MakeMember)
        assert spans(step) == [(210763776, 216006656), (222298112, 227540992), (10946084864, 10948182016)]


def test_the_zeroed_bytes_are_listed_below_their_step_only() -> None:
    full = drive(0, size=SIZE, parts="2048+409600 ext4")
    plan = planned(goal("raid1", wipe=("nvme0n1",)), full, drive(1, size=SIZE))
    said = " ".join("".join(text_of(raid_plan_lines(plan, width=100, verbose=True))).split())
    told = (
        "zeroed first, so that no old signature reappears: bytes 0..6291456, 20971520..26214400, "
        "208666624..210763776, 21366833152..21368930304, 21472739328..21474836480"
    )
    assert said.count("zeroed first") == 1 and told in said
    assert said.index("1. write a partition table") < said.index(told) < said.index("2. write a partition table")
    assert from_json(to_json(plan)) == plan


IMAGE = 64 * MIB
# Signatures that libblkid finds farthest from the ends of a device: vmfs.c, promise_raid.c.
FAR = {
    "VMFS_volume_member": (MIB, bytes.fromhex("0dd001c0")),
    "VMFS": (2 * MIB, bytes.fromhex("5ef1ab2f")),
    "promise_fasttrack_raid_member": (IMAGE - 3087 * 512, b"Promise Technology, Inc."),
}


def check_wiped(image: Path, kind: str) -> bool:
    """Return whether blkid finds nothing once the ranges are zeroed; before that it must find this kind."""
    words = ("blkid", "-p", "-o", "value", "-s", "TYPE", image)
    assert run(*words).strip() == kind
    whole = Extent(0, IMAGE)
    with image.open("r+b") as file:
        for each in wiped_ends((whole,), whole, 512):
            file.seek(each.start)
            file.write(bytes(each.length))
    return run(*words, fails=True) == ""


@pytest.mark.needs_tools("blkid")
@pytest.mark.parametrize("kind", FAR)
def test_a_signature_far_from_the_ends_is_wiped(tmp_path: Path, kind: str) -> None:
    at, magic = FAR[kind]
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(IMAGE)
        file.seek(at)
        file.write(magic)
    assert check_wiped(image, kind)


@pytest.mark.needs_tools("blkid", "cryptsetup")
def test_the_second_header_of_luks2_is_wiped_at_any_place(tmp_path: Path) -> None:
    """With the largest metadata that cryptsetup accepts it begins at 4 MiB."""
    image, key = tmp_path / "image", tmp_path / "key"
    key.write_text("key")
    with image.open("wb") as file:
        file.truncate(IMAGE)
    run(
        *("cryptsetup", "luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2"),
        *("--pbkdf-force-iterations", "1000", "--luks2-metadata-size", "4m", "--luks2-keyslots-size", "8m"),
        *(image, key),
    )
    with image.open("r+b") as file:
        file.write(bytes(MIB))
    assert check_wiped(image, "crypto_LUKS")
