"""The system below a folder: whether it is one, its files, and its programs, which leave no mounts behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.installed import (
    find_installed,
    has_program,
    read_installed,
    refuse_incomplete,
    refuse_other_system,
    refuse_unusable,
    run_inside,
)
from aligntool.system import Installed, parse_fstab
from tests.conftest import run
from tests.installed import installed_system

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("mkfs.ext4", "busybox", "findmnt")]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with installed_system(tmp_path) as folder:
        yield folder


def mounts_below(root: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {root}/" in line]


def test_it_is_known_by_the_uuid_of_what_is_mounted_there(root: Path) -> None:
    device = run("findmnt", "-n", "-o", "SOURCE", root).strip()
    uuid = run("blkid", "-p", "-s", "UUID", "-o", "value", device).strip()
    assert find_installed(str(root)) == Installed(str(root), f"ext4 {uuid} /")
    assert find_installed(f"{root}/../{root.name}/").root == str(root)


def test_a_folder_at_which_nothing_is_mounted_is_refused(root: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, root / "etc", tmp_path / "missing"):
        with pytest.raises(Refused, match="nothing is mounted at"):
            find_installed(str(folder))
    with pytest.raises(Refused, match="the running system"):
        find_installed("/")


def test_another_file_system_at_the_same_place_is_refused(root: Path) -> None:
    found = find_installed(str(root))
    refuse_other_system(found)
    with pytest.raises(Refused, match="not mounted as it was"):
        refuse_other_system(Installed(found.root, "ext4 11111111-2222-4333-8444-555555555555 /"))
    with pytest.raises(Refused, match="not mounted as it was"):
        refuse_other_system(Installed(f"{found.root}/etc", found.file_system))


def test_its_files_are_read_and_the_kernel_is_that_of_this_machine(root: Path) -> None:
    (root / "proc/cmdline").write_text("root=/dev/md9 rd.md.uuid=x")
    found = read_installed(find_installed(str(root)))
    assert (found.family, found.hostname, found.command_line) == ("debian", "there", ())
    assert found.kernel == os.uname().release
    (root / "etc/os-release").unlink()
    (root / "etc/fstab").unlink()
    with pytest.raises(Refused, match="no system is installed below"):
        read_installed(find_installed(str(root)))


def test_a_part_that_is_not_mounted_is_refused_unless_it_may_be_absent(root: Path) -> None:
    lines = parse_fstab(
        "UUID=1 / ext4 x 0 1\nUUID=2 /boot ext4 x 0 2\nUUID=3 /srv ext4 x 0 2\n"
        "UUID=4 /var/lib/x ext4 nofail 0 2\nUUID=5 /boot/efi vfat noauto 0 2\nUUID=6 none swap sw 0 0\n"
    )
    (found,) = refuse_incomplete(find_installed(str(root)), lines)
    assert found.subject == f"{root}/boot"


@pytest.mark.needs_tools("unshare")
def test_its_programs_see_it_as_their_root_with_the_devices_of_this_machine(root: Path) -> None:
    installed = find_installed(str(root))
    assert list(refuse_unusable(installed)) == []
    said = run_inside(installed, "sh", "-c", "cat /etc/hostname; ls /dev/null /proc/self/mounts /sys/block -d; ls -A /")
    assert said.output.split()[:4] == ["there", "/dev/null", "/proc/self/mounts", "/sys/block"]
    assert "work" not in said.output.split()
    assert has_program(installed, "update-initramfs") and not has_program(installed, "mdadm")
    assert mounts_below(root) == [] and os.listdir(root / "run") == [] == os.listdir(root / "dev")  # noqa: PTH208


def test_a_link_in_place_of_a_folder_of_the_kernel_leads_nowhere_else(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (root / "run").rmdir()
    (root / "run").symlink_to(tmp_path / "outside")
    (found,) = refuse_unusable(find_installed(str(root)))
    assert found.code == "no-system"
    assert list((tmp_path / "outside").iterdir()) == [] == mounts_below(root)


def test_a_program_of_another_architecture_is_refused(root: Path) -> None:
    (root / "usr/bin/busybox").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xf3\x00" + bytes(64))
    (found,) = refuse_unusable(find_installed(str(root)))
    assert "cannot be run here" in found.text


_WAITS = """import sys
from aligntool.linux.installed import find_installed, run_inside
run_inside(find_installed(sys.argv[1]), "sh", "-c", "touch /boot/begun; while [ ! -e /boot/end ]; do sleep 0.1; done")
"""


@pytest.mark.needs_tools("unshare")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_mount_is_left_after_a_kill_and_after_ctrl_c(root: Path, number: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", _WAITS, root], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (root / "boot/begun").exists():
        assert child.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    assert mounts_below(root) == []
    child.send_signal(number)
    child.wait(60)
    (root / "boot/end").touch()  # a program that writes is not killed with aligntool
    time.sleep(0.5)
    assert mounts_below(root) == []
    run("umount", root)  # not busy
    run("mount", "-t", "tmpfs", "tmpfs", root)  # for the fixture
