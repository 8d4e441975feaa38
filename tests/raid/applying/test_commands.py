"""Commands that are rolled back on real tables, against the JSON of sfdisk."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.arrays import Member
from aligntool.errors import Stopped
from aligntool.inventory import Disk
from aligntool.raid.members import Placed, type_steps
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_system import (
    Paths,
    apply_system,
    files_below,
    find_system_trace,
    is_in_effect,
    refuse_mount_point,
    refuse_unknown_names,
    undo_system,
)
from aligntool.steps import BindMount, Mount, PrepareDirectory, SetPartitionType
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.raid.applying.builders import FS_UUID
from tests.raid.builders import judged

HOME, SWAP = "933AC7E1-2EB4-4F13-B844-0E14E2AEF915", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
# A unit that only this process sees. With SYSTEMD_OFFLINE, systemctl does not ask systemd (systemd, ENVIRONMENT.md).
PRIVATE_UNITS = """export SYSTEMD_OFFLINE=1; mount -t tmpfs none /etc/systemd/system && cd /etc/systemd/system &&
printf '[Install]\\nWantedBy=sysinit.target\\n' > own.service && exec "$@"
"""
ENABLED_AND_UNDONE = """
import os
from aligntool.raid.steps_system import apply_system, find_system_trace, undo_system
from aligntool.steps import EnableUnit
step = EnableUnit("own.service")
for action in (apply_system, apply_system, lambda step: undo_system(step, {})):
    print([said.text for said in action(step)], os.path.islink("sysinit.target.wants/own.service"))
"""
OTHER_UUID = "99999999-2222-4333-8444-555555555555"
RAID = "A19D880F-05FC-4D3B-A006-743F0F84911E"


def types(disk: Path) -> list[str]:
    return [part["type"].upper() for part in json.loads(run("sfdisk", "--json", disk))["partitiontable"]["partitions"]]


def steps(disk: Disk) -> Sequence[SetPartitionType]:
    """Return the steps of a plan whose array member is the first partition."""
    (one,) = judged(disk)
    member = Member(one, disk.partitions[0])
    return tuple(type_steps([Placed(member, f"{disk.path}p1", Extent(MIB, 20 * MIB))]))


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "partx")
@pytest.mark.parametrize(("label", "was", "will"), [("gpt", HOME, RAID), ("dos", "82", "FD")])
def test_a_partition_gets_the_type_of_a_member_and_a_rollback_restores_its_own(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path, label: str, was: str, will: str
) -> None:
    disk = loop(sparse(100 * MIB))
    other = SWAP if label == "gpt" else "83"
    script = f"label: {label}\nstart=2048, size=40960, type={was}\nstart=43008, size=40960, type={other}\n"
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", disk, stdin=script)
    run("partx", "-a", disk)
    held = os.open(f"{disk}p2", os.O_RDONLY | os.O_EXCL)  # as a mount does
    try:
        before = run("sfdisk", "--dump", disk)
        looked = read_disk(str(disk))
        (step,) = steps(looked)
        trace = find_system_trace(step)
        list(apply_system(step))
        assert types(disk) == [will, other]
        assert steps(read_disk(str(disk))) == ()
        list(apply_system(step))  # again, as after a power cut
        list(undo_system(step, trace))
        assert run("sfdisk", "--dump", disk) == before
        list(undo_system(step, trace))
        assert run("sfdisk", "--dump", disk) == before
    finally:
        os.close(held)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk")
def test_a_type_set_by_another_program_is_kept_by_the_rollback(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    disk = loop(sparse(100 * MIB))
    run(
        "sfdisk",
        "-q",
        "--no-reread",
        "--no-tell-kernel",
        disk,
        stdin=f"label: gpt\nstart=2048, size=40960, type={HOME}\n",
    )
    (step,) = steps(read_disk(str(disk)))
    trace = find_system_trace(step)
    list(apply_system(step))
    run("sfdisk", "-q", "--no-tell-kernel", "--part-type", disk, "1", SWAP)
    assert list(undo_system(step, trace)) == [] and types(disk) == [SWAP]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mkfs.ext4", "mount", "findmnt")
def test_a_foreign_file_system_at_the_mount_point_is_detected_and_stays_mounted(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, place = loop(sparse(16 * MIB)), tmp_path / "place"
    run("mkfs.ext4", "-q", "-U", FS_UUID, device)
    place.mkdir()
    fstab = tmp_path / "fstab"
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(fstab))  # findmnt(8)
    step = Mount(str(place))
    run("mount", device, place)
    try:
        fstab.write_text(f"UUID={OTHER_UUID} {place} ext4 defaults 0 0\n")
        with pytest.raises(Stopped, match=f"{FS_UUID} is mounted, but fstab has {OTHER_UUID} there"):
            list(apply_system(step))
        assert any("it stays mounted" in said.text for said in undo_system(step, {}))
        run("mountpoint", "-q", place)
        fstab.write_text(f"UUID={FS_UUID} {place} ext4 defaults 0 0\n")
        assert [said.text for said in apply_system(step)] == ["already done"]
    finally:
        list(undo_system(step, {}))
        assert run("findmnt", "--mountpoint", place, fails=True) == ""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system in memory that fstab mounts, and a directory of it that fstab mounts elsewhere."""
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    for folder in (place, elsewhere):
        folder.mkdir()
    fstab = tmp_path / "fstab"
    fstab.write_text(f"tmpfs {place} tmpfs nofail 0 0\n{place}/kubelet {elsewhere} none bind,nofail 0 0\n")
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(fstab))
    yield place
    for folder in (elsewhere, place):
        run("umount", folder, fails=True)


@pytest.mark.needs_root
@pytest.mark.needs_tools("mount", "findmnt")
def test_a_directory_gets_its_owner_group_and_mode_on_the_mounted_file_system_only(mounted: Path) -> None:
    """Also after a reboot that left it unmounted: the directory below keeps its own."""
    before = run("stat", "-c", "%u %g %a", mounted)
    step = PrepareDirectory(str(mounted), str(mounted), "65534", "12", "2750")
    assert not is_in_effect(step, Paths())
    assert [said.text for said in apply_system(step)] == []
    assert run("stat", "-c", "%u %g %a", mounted) == "65534 12 2750\n" and is_in_effect(step, Paths())
    assert not is_in_effect(replace(step, mode="0750"), Paths())
    assert [said.text for said in apply_system(step)] == ["already done"]
    assert list(undo_system(step, {})) == []
    run("umount", mounted)
    assert run("stat", "-c", "%u %g %a", mounted) == before
    unknown = replace(step, owner="nobody-of-this-name")
    assert not is_in_effect(unknown, Paths())
    assert [each.code for each in refuse_unknown_names(unknown)] == ["invalid-option"]
    assert list(refuse_unknown_names(step)) == list(refuse_unknown_names(replace(step, owner="root"))) == []


@pytest.mark.needs_root
@pytest.mark.needs_tools("mount", "findmnt")
def test_a_directory_is_mounted_elsewhere_and_unmounted_by_a_rollback(mounted: Path) -> None:
    elsewhere = mounted.with_name("elsewhere")
    folder = PrepareDirectory(f"{mounted}/kubelet", str(mounted))
    step = BindMount(str(elsewhere), folder.path, str(mounted))
    assert list(refuse_mount_point(step, Paths())) == []
    list(apply_system(folder))
    list(apply_system(step))
    run("umount", elsewhere)
    run("umount", mounted)
    (mounted / "kubelet").mkdir()  # on the wrong file system
    run("mount", mounted)
    list(apply_system(folder))
    run("umount", mounted)
    with pytest.raises(Stopped, match=f"nothing is mounted at {elsewhere}"):
        list(apply_system(step))  # it is mounted again, but is a new file system
    list(apply_system(folder))
    list(apply_system(step))
    (mounted / "kubelet/file").touch()
    assert (elsewhere / "file").exists() and is_in_effect(step, Paths())
    assert run("findmnt", "-n", "-o", "FSTYPE", "--mountpoint", elsewhere) == "tmpfs\n"
    assert files_below(str(mounted), {"kubelet"}) == ["kubelet"]
    assert [said.text for said in apply_system(step)] == ["already done"]
    assert [said.text for said in undo_system(step, {})] == [f"{elsewhere} is unmounted"]
    (mounted / "kubelet/file").unlink()
    assert files_below(str(mounted), {"kubelet"}) == [] and files_below(str(mounted)) == ["kubelet"]
    run("mount", "--bind", mounted, elsewhere)
    assert not is_in_effect(step, Paths())
    with pytest.raises(Stopped, match=f"something else than {mounted}/kubelet is mounted at {elsewhere}"):
        list(apply_system(step))


def test_a_mount_point_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    step = BindMount(str(tmp_path / "link/kubelet"), "/srv/data/kubelet", "/srv/data")
    (why,) = refuse_mount_point(step, Paths())
    assert f"leads to {tmp_path}/folder/kubelet" in why


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare", "mount", "systemctl")
def test_a_unit_is_enabled_and_disabled_where_systemd_does_not_run() -> None:
    """As in the chroot of an installation."""
    words = ("unshare", "--mount", "sh", "-c", PRIVATE_UNITS, "sh", sys.executable, "-c", ENABLED_AND_UNDONE)
    enabled, again, undone = run(*words).splitlines()
    assert (enabled, again) == ("[] True", "['already done'] True")
    assert undone == "['own.service is disabled'] False"
