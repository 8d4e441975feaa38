"""A FAT whose clusters no move aligns: what is said of them, and the remedy that is named."""

import subprocess
from pathlib import Path

import pytest

from aligntool.units import MIB
from tests.by_hand import type_by_hand
from tests.conftest import run
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("sfdisk", "mkfs.fat", "fsck.fat")

START = 63 * 512
OFF = "the clusters of its FAT16 {} off the grid, {} past a 4KiB boundary"


def fat_disk(folder: Path, reserved: int) -> Path:
    """Return an image with a FAT16 at sector 63. mkfs.fat adds two FATs of 160 sectors and a root directory of
    32 to the reserved sectors.
    """
    disk = folder / "fat.img"
    content = folder / "content.img"
    for path, size in ((disk, 200 * MIB), (content, 80 * MIB)):
        with path.open("wb") as file:
            file.truncate(size)
    run("mkfs.fat", "-F", "16", "-s", "4", "-a", "-R", str(reserved), content)
    subprocess.run(
        ["sfdisk", "-q", disk], input=f"label: dos\nstart=63, size={80 * 2048}, type=6\n", text=True, check=True
    )
    run("dd", f"if={content}", f"of={disk}", "bs=512", "seek=63", "conv=notrunc", "status=none")
    return disk


def joined(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("reserved", "verb", "past"), [(2, "stay", "1KiB"), (1, "will be", "512B")])
def test_a_plan_and_its_end_say_which_clusters_are_off(tmp_path: Path, reserved: int, verb: str, past: str) -> None:
    disk = fat_disk(tmp_path, reserved)
    assert OFF.format(verb, past) in joined(run_aligntool("plan", "realign", disk).stdout)
    done = joined(run_aligntool("realign", disk, "--yes", code=0).stdout)
    assert f"its start is on the grid; clusters {past} past a 4KiB boundary" in done
    assert "aligntool explain AT403" in done
    again = run_aligntool("plan", "realign", disk).stdout
    assert "Nothing to do." in again and OFF.format("stay", past) in joined(again)
    assert "OK" not in run_aligntool("audit", disk).stdout


def test_clusters_of_a_partition_that_is_not_named_are_not_in_the_plan(tmp_path: Path) -> None:
    disk = fat_disk(tmp_path, 2)
    run("sfdisk", "-q", "--append", disk, stdin="start=200063, size=20480, type=83\n")
    assert "clusters" not in run_aligntool("plan", "realign", disk, "-p", "2").stdout


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_file_system_made_anew_as_by_hand_has_aligned_clusters(tmp_path: Path) -> None:
    disk = fat_disk(tmp_path, 2)
    run_aligntool("realign", disk, "--yes", code=0)
    remedy = run_aligntool("explain", "AT403").stdout
    device = run("losetup", "-f", "--show", "-o", str(MIB), "--sizelimit", str(80 * MIB), disk).strip()
    try:
        type_by_hand(remedy, "mkfs.fat -s 8", ID="12345678", LABEL="DATA", PARTITION=device)
    finally:
        run("losetup", "-d", device)
    found = run_aligntool("audit", "-v", disk).stdout
    assert "AT403" not in found and found.startswith("OK: every partition")
