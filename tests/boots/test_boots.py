"""Systems that boot before also boot after: by BIOS and GRUB in the MBR gap, and by UEFI; again after a power cut.

They take minutes, so they run only on request.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boots.bootdisks import bios_disk, uefi_disk
from tests.boots.pc import boot
from tests.boots.system import BOOTED, SWAP_UUID, build
from tests.conftest import run
from tests.mover.command_line import realign, resume
from tests.mover.disks import check_table, entries
from tests.mover.test_kills import killed
from tests.thorough import THOROUGH

WANTED = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("debootstrap", "qemu-system-x86_64", "grub-install", "grub-mkstandalone"),
    pytest.mark.needs_tools("sfdisk", "sgdisk", "parted", "partx", "mke2fs", "mkswap", "mkfs.fat", "mmd", "mcopy"),
    pytest.mark.skipif(
        not THOROUGH and os.environ.get("ALIGNTOOL_BOOTS") != "1",
        reason="takes 10 minutes; ALIGNTOOL_BOOTS=1 or `make test-all` runs it",
    ),
]
pytestmark = WANTED
Loop = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boots")


@pytest.fixture(scope="module")
def tree(folder: Path) -> Path:
    return build(folder)


@pytest.fixture(scope="module")
def bios(folder: Path, tree: Path) -> Path:
    return bios_disk(folder, tree)


@pytest.fixture(scope="module")
def uefi(folder: Path, tree: Path) -> Path:
    return uefi_disk(folder, tree)


def booted_from(disk: Path, *, uefi: bool = False) -> tuple[int, str]:
    """Return the first sector of the root as the booted kernel reports it, and the rest of its output."""
    said = boot(disk, uefi=uefi)
    found = re.search(rf"{BOOTED} root (\d+) (.*)", said)
    assert found, said
    return int(found[1]), found[2].strip()


def copy(disk: Path, folder: Path) -> Path:
    run("cp", "--sparse=always", disk, folder)
    return folder / disk.name


def test_a_system_with_grub_in_the_mbr_gap_boots_after_the_move(bios: Path, tmp_path: Path) -> None:
    start, told = booted_from(bios)
    assert start == 63
    assert f"swap {SWAP_UUID} failed 0" in told
    disk = copy(bios, tmp_path)
    realign(disk)
    assert [entry["start"] % 8 for entry in entries(disk).values()] == [0, 0]
    check_table(disk)
    assert booted_from(disk) == (entries(disk)[1]["start"], told)


def test_a_uefi_system_boots_after_the_move(uefi: Path, tmp_path: Path) -> None:
    start, told = booted_from(uefi, uefi=True)
    assert start == entries(uefi)[3]["start"]
    assert f"swap {SWAP_UUID} failed 0" in told
    disk = copy(uefi, tmp_path)
    realign(disk)
    assert [entry["start"] % 8 for entry in entries(disk).values()] == [0, 0, 0]
    check_table(disk)
    assert booted_from(disk, uefi=True) == (entries(disk)[3]["start"], told)


def test_a_system_boots_after_a_power_cut_and_a_resume(bios: Path, tmp_path: Path, loop: Loop) -> None:
    disk = copy(bios, tmp_path)
    device = loop(disk)
    assert killed(device, 200_000, "realign", str(device), "--yes")  # sectors: in the middle of the copy
    assert {entry["type"] for entry in entries(disk).values()} == {"7f"}
    resume(device)
    start, told = booted_from(disk)
    assert start == entries(disk)[1]["start"] == 2048
    assert "failed 0" in told
