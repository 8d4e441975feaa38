"""A system that UEFI boots from sectors of 512 bytes boots from sectors of 4096 after `convert`, and back."""

import re
from pathlib import Path

import pytest

from tests.boots.bootdisks import aligned_uefi_disk
from tests.boots.pc import boot
from tests.boots.system import BOOTED, SWAP_UUID, build
from tests.boots.test_boots import WANTED
from tests.conftest import run
from tests.mover.command_line import aligntool
from tests.mover.loop_mounts import looped

pytestmark = [*WANTED, pytest.mark.needs_tools("partx", "mdir", "fsck.fat")]


def boot_report(disk: Path, sector_size: int) -> str:
    """Return what the booted system reports: the start of its root, its swap, failed units, a file digest."""
    said = boot(disk, uefi=True, sector_size=sector_size)
    found = re.search(rf"{BOOTED} (root .*)", said)
    assert found, said
    return found[1].strip()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sectors"))


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_system_boots_from_sectors_of_4096_bytes_and_from_512_again(label: str, tmp_path: Path, tree: Path) -> None:
    disk = aligned_uefi_disk(tmp_path, tree, label)
    before = boot_report(disk, 512)
    assert f"swap {SWAP_UUID} failed 0" in before
    run("mcopy", "-s", "-i", f"{disk}@@1M", "::*", tmp_path)
    program = tmp_path / "EFI/BOOT/BOOTX64.EFI"
    digest = run("sha256sum", program)
    whole, copy, back = run("sha256sum", disk), tmp_path / "4096.img", tmp_path / "512.img"
    aligntool("convert", disk, "--sector-size", "4096", "--yes", "-o", copy)
    assert run("sha256sum", disk) == whole
    with looped(copy, sector_size=4096) as device:
        assert "No errors detected" in run("sfdisk", "--verify", device)
        run("partx", "-a", device)
        run("fsck.fat", "-n", f"{device}p1")
        assert 'BLOCK_SIZE="4096"' in run("blkid", "-p", f"{device}p1")
        run("e2fsck", "-fn", f"{device}p3")
    program.unlink()
    run("mcopy", "-s", "-o", "-i", f"{copy}@@1M", "::*", tmp_path)
    assert run("sha256sum", program) == digest
    assert boot_report(copy, 4096) == before
    aligntool("convert", copy, "--sector-size", "512", "--yes", "-o", back)
    assert boot_report(back, 512) == before


def test_an_image_with_both_tables_boots_from_sectors_of_either_size(tmp_path: Path, tree: Path) -> None:
    disk, copy = aligned_uefi_disk(tmp_path, tree), tmp_path / "both.img"
    aligntool("convert", disk, "--both", "--yes", "-o", copy)
    assert boot_report(copy, 4096) == boot_report(copy, 512) == boot_report(disk, 512)
