"""Partitions whose data begin behind a header: RAID, encryption, volume manager. It is the data that are aligned."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.report import AuditOptions, Judged
from aligntool.change import Plan, RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.inventory import Layer, Segment
from aligntool.realign.planning import find_repairs, plan_realign
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.builders import judge, made_disk, with_content
from tests.conftest import run
from tests.mover.loop_mounts import looped
from tests.run_aligntool import run_aligntool

START, SIZE = 1 * MIB, 64 * MIB
HOME = Extent(START, SIZE)
PAGE = 16 * KIB


def judged(*layers: Layer, start: int = START) -> Judged:
    disk = made_disk(f"{start // 512}+{SIZE // 512}", physical=4096)
    return judge(with_content(replace(disk, size=GIB), *layers), wishes=AuditOptions(page_size=PAGE)).judged[0]


def planned(*layers: Layer, start: int = START, goal: RealignGoal | None = None) -> Plan:
    return plan_realign(judged(*layers, start=start), goal or RealignGoal(), {}, ALL_FREE)


def luks(distance: int, start: int = START) -> Layer:
    return Layer("crypto_LUKS", Extent(start, SIZE), "LUKS1", data_start=start + distance, data_unit=512)


def lvm(*extents: int, distance: int = MIB) -> Layer:
    segments = tuple(Segment(f"vg/{at}", 0, Extent(START + distance + at, MIB)) for at in extents)
    return Layer("LVM2_member", HOME, data_start=START + distance, data_unit=4 * KIB, segments=segments)


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(luks(4040 * 512), id="LUKS1, its usual payload of 4040 sectors"),
        pytest.param(lvm(distance=192 * KIB + 4 * KIB), id="LVM, pe_start"),
        pytest.param(lvm(4 * KIB, 20 * KIB), id="LVM, segments that are off by the same"),
        pytest.param(Layer("linux_raid_member", HOME, "1.2", data_start=START + 264 * 512), id="md, 264 sectors"),
        pytest.param(
            Layer("linux_raid_member", HOME, "1.2", raid_level="raid1", data_start=START + 2 * MIB,
                  inner=(Layer("crypto_LUKS", HOME, "LUKS1", data_start=START + 2 * MIB + 4040 * 512),)),
            id="LUKS on a mirror",
        ),
    ],
)  # fmt: skip
def test_a_partition_is_placed_so_that_its_data_are_on_the_boundary(layer: Layer) -> None:
    top = layer.inner[0] if layer.inner else layer
    first = top.segments[0].extent.start if top.segments else top.data_start or 0
    assert first % PAGE, "the case is none"
    plan = planned(layer)
    assert (plan.places[0].after.start + first - START) % MIB == 0
    assert "data of " in plan.places[0].why


def test_data_on_the_boundary_are_not_moved_although_the_partition_begins_off_it() -> None:
    plan = planned(luks(MIB + 4 * KIB, start=MIB - 4 * KIB), start=MIB - 4 * KIB)
    assert (plan.steps, plan.places[0].after.start) == ((), MIB - 4 * KIB)


def test_a_header_that_is_a_multiple_of_the_boundary_changes_nothing() -> None:
    assert planned(luks(16 * MIB, start=63 * 512), start=63 * 512).places[0].after.start % MIB == 0


@pytest.mark.parametrize(
    ("version", "unit", "named", "typed"),
    [
        ("LUKS2", 512, (), "sudo aligntool plan realign /dev/sda --layers"),
        ("LUKS2", 512, (1,), "sudo aligntool plan realign /dev/sda --layers -p 1"),
        ("LUKS2", 4096, (), ""),
        ("LUKS1", 512, (), ""),
    ],
)
def test_small_sectors_of_a_luks2_are_reported_with_the_command_that_enlarges_them(
    version: str, unit: int, named: tuple[int, ...], typed: str
) -> None:
    plan = planned(replace(luks(MIB), version=version, data_unit=unit), goal=RealignGoal(named))
    found = [note for note in plan.notes if "512B sectors" in note]
    assert found == (
        [f"partition 1: LUKS2 with 512B sectors on a drive with 4KiB sectors; to enlarge them afterwards: {typed}"]
        * bool(typed)
    )


def test_segments_that_are_off_by_different_distances_are_reported_and_not_moved() -> None:
    plan = planned(lvm(0, 4 * KIB))
    assert plan.steps == ()
    assert any(
        "segments of LVM2 PV begin at different distances from a boundary of 16KiB" in note for note in plan.notes
    )
    assert any(note.endswith("with pvmove on vg/4096: docs/by-hand.md#move-lvm-volumes") for note in plan.notes), (
        plan.notes
    )


def test_a_damaged_header_is_not_used() -> None:
    assert planned(replace(luks(4040 * 512), problems=("its checksum does not fit",))).steps == ()


def test_a_member_is_not_placed_off_the_sectors_for_its_data() -> None:
    plan = planned(Layer("linux_raid_member", HOME, "1.2", data_start=START + 2 * MIB + 512))
    assert plan.steps == ()
    assert any("is not a multiple of 4KiB" in note for note in plan.notes)


def test_a_given_grain_applies_to_the_data() -> None:
    plan = planned(luks(4040 * 512), goal=RealignGoal(grain=4 * MIB, grain_given=True))
    assert (plan.places[0].after.start + 4040 * 512) % (4 * MIB) == 0


def test_the_audit_reports_that_a_move_repairs_it() -> None:
    found = find_repairs(judged(luks(4040 * 512)))
    assert [(one.partition, one.answer) for one in found] == [(1, "in-place")]
    assert find_repairs(judged(luks(16 * MIB))) == ()


@pytest.mark.needs_tools("cryptsetup", "sfdisk")
def test_a_luks_of_cryptsetup_ends_with_its_payload_on_the_boundary(tmp_path: Path) -> None:
    image, content = tmp_path / "disk.img", tmp_path / "content"
    content.touch()
    with content.open("r+b") as file:
        file.truncate(16 * MIB)
    format_ = ("cryptsetup", "luksFormat", "-q", "--type", "luks1", "--pbkdf-force-iterations", "1000")
    run(*format_, "--align-payload", "8", content, stdin="secret")
    payload = _payload(content)
    before = content.read_bytes()
    image.write_bytes(bytes(MIB) + before + bytes(47 * MIB))
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart=2048,size={len(before) // 512},type=83\n")
    ended = run_aligntool("realign", "--yes", "--not-suspended", "--page-size", "16KiB", image)
    assert ended.returncode == 0, ended.stderr
    start = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"][0]["start"] * 512
    after = image.read_bytes()[start : start + len(before)]
    assert hashlib.sha256(after).digest() == hashlib.sha256(before).digest()
    content.write_bytes(after)
    assert (payload % PAGE, (start + _payload(content)) % MIB) == (2020 * KIB % PAGE, 0)
    again = run_aligntool("audit", "--page-size", "16KiB", image)
    assert again.returncode == 0, again.stdout
    assert "AT402" not in again.stdout
    assert (
        "nothing" in run_aligntool("realign", "--yes", "--not-suspended", "--page-size", "16KiB", image).stdout.lower()
    )


def _payload(content: Path) -> int:
    lines = run("cryptsetup", "luksDump", content).splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("Payload offset:"))) * 512


@pytest.mark.needs_root
@pytest.mark.needs_tools("pvcreate", "pvs", "sfdisk")
def test_a_physical_volume_of_lvm_ends_with_pe_start_on_the_boundary(tmp_path: Path) -> None:
    image, content = tmp_path / "disk.img", tmp_path / "content"
    with content.open("wb") as file:
        file.truncate(16 * MIB)
    with looped(content) as device:
        run("pvcreate", "-q", *_only(device), "--dataalignment", "4k", "--metadatasize", "100k", device)
        pe_start = _pe_start(device)
    before = content.read_bytes()
    image.write_bytes(bytes(MIB) + before + bytes(47 * MIB))
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart=2048,size={len(before) // 512},type=8e\n")
    ended = run_aligntool("realign", "--yes", "--not-suspended", "--page-size", "16KiB", image)
    assert ended.returncode == 0, ended.stderr
    start = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"][0]["start"] * 512
    assert image.read_bytes()[start : start + len(before)] == before
    content.write_bytes(image.read_bytes()[start : start + len(before)])
    with looped(content) as device:
        assert pe_start % PAGE
        assert (start + _pe_start(device)) % MIB == 0


def _only(device: Path) -> tuple[str, str]:
    """Make LVM see only this device, whatever else the machine has."""
    return "--config", f'devices {{ filter = ["a|^{device}$|", "r|.*|"] use_devicesfile = 0 }}'


def _pe_start(device: Path) -> int:
    words = ("pvs", *_only(device), "--noheadings", "--nosuffix", "--units", "b", "-o", "pe_start", device)
    return int(run(*words).split()[-1])
