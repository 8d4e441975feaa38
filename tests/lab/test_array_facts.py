"""Arrays of every level and layout in a guest: aligntool's facts and findings against mdadm's output.

One guest makes them all, on partitions of the same drives, and queries mdadm, the kernel and aligntool.
"""

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Report
from aligntool.inventory import ArrayFacts, Disk
from aligntool.linux.look import look
from aligntool.units import KIB, MIB
from tests.lab.conftest import Lab
from tests.lab.drives import Nvme
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("makes nine arrays in an emulated PC"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "sgdisk", "udevadm"),
]

DRIVES = tuple(Nvme(name, size=512 * MIB) for name in ("a", "b", "c", "d", "e", "f"))
PARTS = 9
ALIGNTOOL = Path(sys.executable).parent / "aligntool"
MAKE = f"""
hostname lab
modprobe -a raid0 raid1 raid10 raid456
echo 50 > /proc/sys/dev/raid/speed_limit_max
echo 50 > /proc/sys/dev/raid/speed_limit_min
for drive in 0 1 2 3; do
    for part in $(seq {PARTS}); do echo ',48M,linux-raid'; done | sed '1i label: gpt' | sfdisk -q /dev/nvme${{drive}}n1
done
udevadm settle
members() {{ for drive in $(seq 0 $(($2 - 1))); do echo /dev/nvme${{drive}}n1p$1; done; }}
make() {{ name=$1 part=$2 count=$3; shift 3
    mdadm --create /dev/md/$name --run --name=$name --raid-devices=$count "$@" $(members $part $count) 2>&1; }}
make mirror 1 2 --level=1 --assume-clean --bitmap=internal --bitmap-chunk=8M
make near 2 4 --level=10 --layout=n2 --chunk=64 --assume-clean --bitmap=internal
make far 3 4 --level=10 --layout=f2 --chunk=64 --assume-clean --bitmap=none
make offset 4 4 --level=10 --layout=o2 --chunk=64 --assume-clean --bitmap=internal
make five 5 4 --level=5 --chunk=512 --assume-clean --bitmap=internal --bitmap-chunk=4M
make six 6 4 --level=6 --chunk=64 --assume-clean --bitmap=none --homehost=elsewhere
make none 7 2 --level=0 --chunk=4
make busy 8 2 --level=1 --bitmap=internal
make built 9 4 --level=5 --chunk=64 --bitmap=internal
mdadm /dev/md/six --fail /dev/nvme3n1p6 --remove /dev/nvme3n1p6 2>&1
for drive in 4 5; do
    sgdisk --new=1:2048:+8M /dev/nvme${{drive}}n1; dd if=/dev/zero of=/dev/nvme${{drive}}n1 bs=4k count=1
done
udevadm settle
partx -d /dev/nvme4n1 /dev/nvme5n1 || true
mdadm --create /dev/md/whole --run --name=whole --level=1 --raid-devices=2 --assume-clean --bitmap=internal \\
    /dev/nvme4n1 /dev/nvme5n1 2>&1
mkfs.ext4 -q -U 11111111-2222-4333-8444-555555555555 /dev/md/mirror
udevadm settle
mkdir /lab/mdadm
for array in mirror near far offset five six none busy built whole; do
    mdadm --detail --export /dev/md/$array > /lab/mdadm/$array.export
    mdadm --detail /dev/md/$array > /lab/mdadm/$array.detail
    readlink -f /dev/md/$array > /lab/mdadm/$array.node
done
for member in 1 2 3 4 5 6 7; do mdadm --examine /dev/nvme0n1p$member > /lab/mdadm/member$member; done
hostname > /lab/hostname
{ALIGNTOOL} snapshot --serials -o /lab/machine.tar.gz
{ALIGNTOOL} audit --json > /lab/audit.json || test $? = 1
{ALIGNTOOL} raid persist /dev/md/near --system debian --dry-run > /lab/persist
cp /proc/mdstat /lab/mdstat
"""


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(*DRIVES, script=MAKE, limit_s=1800)


@pytest.fixture(scope="module")
def report(said: Path) -> Report:
    inventory = look([], sysroot=str(said / "machine.tar.gz"))
    return audit(inventory, {})


def facts(said: Path, report: Report, name: str) -> ArrayFacts:
    return array(said, report, name).array or ArrayFacts("", None, ())


def array(said: Path, report: Report, name: str) -> Disk:
    node = (said / "mdadm" / f"{name}.node").read_text().strip()
    disk = report.inventory.disk(node)
    assert disk is not None and disk.array is not None, name
    return disk


@cache
def exported(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)


@cache
def detail(file: Path) -> dict[str, str]:
    """Return `mdadm --detail`: "Chunk Size : 64K" and the like."""
    rows = (line.split(" : ", 1) for line in file.read_text().splitlines() if " : " in line)
    return {key.strip(): value.strip() for key, value in rows}


NAMES = ("mirror", "near", "far", "offset", "five", "six", "none", "busy", "whole")


@pytest.mark.parametrize("name", NAMES)
def test_level_uuid_name_and_members_are_those_that_mdadm_prints(said: Path, report: Report, name: str) -> None:
    found, told = facts(said, report, name), exported(said / "mdadm" / f"{name}.export")
    assert found.level == told["MD_LEVEL"]
    assert found.uuid == told["MD_UUID"]
    assert found.metadata == told["MD_METADATA"]
    assert found.devices == int(told["MD_DEVICES"])
    host = "elsewhere" if name == "six" else (said / "hostname").read_text().strip()
    assert found.name == f"{host}:{name}"
    assert any(link.rpartition("/")[2].startswith((name, host)) for link in found.links), found.links


@pytest.mark.parametrize("name", NAMES)
def test_chunk_layout_and_used_member_size_are_those_that_mdadm_prints(said: Path, report: Report, name: str) -> None:
    found, told = facts(said, report, name), detail(said / "mdadm" / f"{name}.detail")
    assert found.chunk == (int(told["Chunk Size"].removesuffix("K")) * KIB if "Chunk Size" in told else None)
    if found.level != "raid0":
        assert found.each == int(told["Used Dev Size"].split()[0]) * KIB
        assert (found.degraded or 0) == int(told["Raid Devices"]) - int(told["Active Devices"])
    layout = told.get("Layout", "")
    near = {"near=2": "n2", "far=2": "f2", "offset=2": "o2"}
    assert found.layout == near.get(layout, layout or None) or found.level in ("raid0", "raid1")


@pytest.mark.parametrize("name", NAMES)
def test_the_policy_and_the_bitmap_are_those_that_mdadm_prints(said: Path, report: Report, name: str) -> None:
    found, told = facts(said, report, name), detail(said / "mdadm" / f"{name}.detail")
    assert found.policy == told.get("Consistency Policy", "none")
    assert (found.bitmap or "none") == told.get("Intent Bitmap", "none").lower()


def test_the_bitmap_chunk_is_the_one_that_was_passed_to_mdadm(said: Path, report: Report) -> None:
    assert facts(said, report, "mirror").bitmap_chunk == 8 * MIB
    assert facts(said, report, "five").bitmap_chunk == 4 * MIB


@pytest.mark.parametrize(
    ("number", "name"), tuple(enumerate(("mirror", "near", "far", "offset", "five", "six", "none"), 1))
)
def test_the_data_begin_where_the_superblock_of_the_member_states(
    said: Path, report: Report, number: int, name: str
) -> None:
    text = (said / "mdadm" / f"member{number}").read_text()
    match = re.search(r"Data Offset : (\d+) sectors", text)
    assert match is not None
    offsets = dict(facts(said, report, name).member_data_offsets)
    assert set(offsets.values()) == {int(match[1]) * 512}


def codes(report: Report, disk: str) -> set[str]:
    return {one.code.value for one in report.findings if one.disk == disk and one.code.value.startswith("AT6")}


@pytest.mark.parametrize(
    ("name", "expected", "never"),
    [
        ("mirror", set(), {"AT601", "AT602", "AT603", "AT605", "AT606"}),
        ("near", set(), {"AT601", "AT603", "AT605", "AT606"}),
        ("far", {"AT605"}, {"AT601", "AT603"}),
        ("five", {"AT604", "AT606"}, {"AT601", "AT605"}),
        ("six", {"AT601", "AT605"}, {"AT604", "AT606"}),
        ("none", {"AT603"}, {"AT601", "AT602", "AT605"}),
        ("busy", {"AT602"}, {"AT601", "AT605"}),
    ],
)
def test_the_findings_on_each_array_are_those_of_its_known_faults(
    said: Path, report: Report, name: str, expected: set[str], never: set[str]
) -> None:
    found = codes(report, array(said, report, name).name)
    assert expected <= found and not never & found, (name, found)


def test_parity_passes_no_discards_by_default_and_this_is_reported(said: Path, report: Report) -> None:
    """lsblk's DISC-MAX, from the same attribute, is 0 for raid456 and not for the others (drivers/md/raid5.c)."""
    for name, off in (("five", True), ("near", False)):
        disk = array(said, report, name)
        assert (disk.limits.discard_max == 0) == off
        assert ("AT607" in codes(report, disk.name)) == off


def live(said: Path) -> Any:
    return json.loads((said / "audit.json").read_text())


def test_the_first_build_of_a_raid5_is_a_note_for_root_who_reads_its_bitmaps(said: Path, report: Report) -> None:
    name = array(said, report, "built").name
    assert "rebuilding" in (said / "mdadm/built.detail").read_text()
    found = {one["code"] for one in live(said)["findings"] if one["disk"] == name}
    assert "AT602" in found and "AT601" not in found
    assert "AT601" in codes(report, name)  # a snapshot has no bitmaps


def test_a_backup_gpt_that_sgdisk_left_is_detected_on_the_live_drives(said: Path) -> None:
    found = {one["disk"] for one in live(said)["findings"] if one["code"] == "AT608"}
    assert found == {"nvme4n1", "nvme5n1"}


def test_root_and_the_snapshot_see_the_same_arrays(said: Path, report: Report) -> None:
    disks = {one["name"]: one["array"] for one in live(said)["disks"] if one["array"]}
    assert set(disks) == {disk.name for disk in report.inventory.disks if disk.array}
    for name, told in disks.items():
        disk = report.inventory.disk(name)
        assert disk is not None and disk.array is not None
        for field in ("level", "chunk", "uuid", "layout", "degraded", "bitmap", "bitmap_chunk", "name"):
            assert told[field] == getattr(disk.array, field), (name, field)


def test_the_plan_of_persist_names_the_array_by_its_uuid(said: Path) -> None:
    uuid = exported(said / "mdadm" / "near.export")["MD_UUID"]
    assert f"UUID={uuid}" in (said / "persist").read_text()
