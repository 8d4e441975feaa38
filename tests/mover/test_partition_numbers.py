"""A GPT partition with a number above 255: Linux does not show it, and it is moved like any other."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.units import MIB, Extent
from tests.conftest import add_partition, run
from tests.run_aligntool import run_aligntool

SECTOR = 512
FIRST, LAST = 4097, 100001
SCRIPT = f"label: gpt\ntable-length: 512\nfirst-lba: 200\n1: start={FIRST}, size=20480\n300: start={LAST}, size=20480\n"

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs")


@pytest.fixture
def disk(sparse: Callable[..., Path], tmp_path: Path) -> Path:
    """Return a disk with the partitions 1 and 300, an ext4 with a file in each."""
    image = sparse(200 * MIB)
    run("sfdisk", "-q", image, stdin=SCRIPT)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "file").write_bytes(bytes(range(256)) * 5000)
    for start in (FIRST, LAST):
        run("mke2fs", "-q", "-t", "ext4", "-d", tmp_path / "files", "-E", f"offset={start * SECTOR}", image, "10M")
    return image


def starts(disk: Path) -> list[int]:
    return [part["start"] for part in json.loads(run("sfdisk", "--json", disk))["partitiontable"]["partitions"]]


def assert_moved(disk: Path, tmp_path: Path) -> None:
    found = starts(disk)
    assert len(found) == 2 and not any(start % 2048 for start in found)
    names = [part["node"] for part in json.loads(run("sfdisk", "--json", disk))["partitiontable"]["partitions"]]
    assert names[0].endswith("1") and names[1].endswith("300")
    for start in found:
        inside = f"{disk}?offset={start * SECTOR}"
        run("e2fsck", "-f", "-n", inside)
        run("debugfs", "-R", f"dump /file {tmp_path}/copy", inside)
        assert (tmp_path / "copy").read_bytes() == bytes(range(256)) * 5000


def test_an_audit_warns_of_it_and_names_no_error_of_the_table(disk: Path) -> None:
    report = json.loads(run_aligntool("audit", "--json", disk, code=1).stdout)
    found = [finding for finding in report["findings"] if finding["code"] == "AT309"]
    assert [one["severity"] for one in found] == ["warning"] and "1 partition with a number above 255" in str(found)
    assert not report["disks"][0]["table"]["faults"]


def test_both_partitions_of_an_image_are_moved(disk: Path, tmp_path: Path) -> None:
    run_aligntool("realign", "--yes", disk, code=0)
    assert_moved(disk, tmp_path)
    assert run_aligntool("audit", disk, code=0).stdout.startswith("OK: ")


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx")
def test_on_a_device_the_kernel_gets_the_partitions_that_it_can_show(
    disk: Path, loop: Callable[..., Path], tmp_path: Path
) -> None:
    device = loop(disk)
    add_partition(device, 1, Extent(FIRST * SECTOR, 20480 * SECTOR))
    assert "AT308" not in run_aligntool("audit", device, code=1).stdout
    run_aligntool("realign", "--yes", device, code=0)
    shown = {file.parent.name: file.read_text().strip() for file in Path("/sys/block", device.name).glob("*/start")}
    assert list(shown) == [f"{device.name}p1"] and int(shown[f"{device.name}p1"]) == starts(device)[0]
    assert_moved(device, tmp_path)
