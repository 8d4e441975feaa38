"""Steps for a system below a folder: done there, undone there, continued after a kill, and nowhere else."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import ArrayPlan, StepBegun
from aligntool.cli.arrays import continue_array
from aligntool.cli.raid import with_boot_copies
from aligntool.errors import Refused, Stopped
from aligntool.linux.installed import find_installed
from aligntool.raid.apply import apply_record, begin, undo_record
from aligntool.raid.record import find_records, lock_state
from aligntool.raid.steps_system import Paths, is_in_effect, refuse_mount_point
from aligntool.steps import EditFile, MakeDirectory, Mount, RebuildInitramfs, WriteFile
from tests.conftest import run, unmount
from tests.installed import installed_system
from tests.raid.applying.builders import plan_of

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("mkfs.ext4", "busybox", "findmnt", "mountpoint", "unshare"),
]
CONF = EditFile(
    "/etc/mdadm/mdadm.conf", ("ARRAY /dev/md/data UUID=0:0:0:0",), "UUID=0:0:0:0", "/etc/x.before-aligntool"
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with installed_system(tmp_path, etc__mdadm__mdadm_conf="") as folder:
        (folder / "etc/mdadm/mdadm_conf").rename(folder / "etc/mdadm/mdadm.conf")
        yield folder


@pytest.fixture
def paths(root: Path, tmp_path: Path) -> Paths:
    (tmp_path / "state/arrays").mkdir(parents=True)
    return Paths(root, tmp_path / "state", find_installed(str(root)))


@pytest.fixture
def plan(sparse: Callable[..., Path], loop: Callable[..., Path], paths: Paths) -> ArrayPlan:
    """Return a plan that mounts the file system on a loop device."""
    known = str(uuid.uuid4())
    device = loop(sparse(16 << 20, "data.img"))
    run("mkfs.ext4", "-q", "-U", known, device)
    line = f"UUID={known} /srv/data ext4 nofail 0 2"
    fstab = EditFile("/etc/fstab", (line,), known, "/etc/fstab.before-aligntool")
    made = plan_of([CONF, RebuildInitramfs("initramfs-tools"), fstab, MakeDirectory("/srv/data"), Mount("/srv/data")])
    made = replace(made, purpose="persist")
    return replace(made, installed=paths.installed)


def test_files_and_programs_are_those_of_the_system_and_the_mount_stays(
    plan: ArrayPlan, paths: Paths, root: Path
) -> None:
    here = [Path(name).read_bytes() for name in ("/etc/fstab", "/proc/mounts")]
    list(apply_record(begin(plan, paths), plan, paths))
    assert (root / "boot/image").read_text() == (root / "etc/mdadm/mdadm.conf").read_text() == f"{CONF.lines[0]}\n"
    assert (root / "boot/log").read_text() == "/usr/sbin/update-initramfs -u -k all /\n"
    assert "/srv/data ext4 nofail" in (root / "etc/fstab").read_text()
    assert run("findmnt", "-n", "-o", "UUID", root / "srv/data").strip() in plan.of(EditFile)[1].lines[0]
    assert all(is_in_effect(step, paths) for step in plan.of(Mount))
    added = set(Path("/proc/mounts").read_bytes().split(b"\n")) - set(here[1].split(b"\n"))
    assert [line.split()[1] for line in added if bytes(root) in line] == [f"{root}/srv/data".encode()]
    assert Path("/etc/fstab").read_bytes() == here[0] and find_records(paths.state) == ()
    unmount(root / "srv/data")


@pytest.mark.parametrize("cut", range(5))
def test_a_cut_at_every_step_can_be_continued_and_undone(plan: ArrayPlan, paths: Paths, root: Path, cut: int) -> None:
    before = sorted(str(file) for file in root.rglob("*"))
    for back in (True, False):
        walk = apply_record(begin(plan, paths), plan, paths)
        next(event for event in walk if event == StepBegun(cut))
        walk.close()  # type: ignore[attr-defined]
        (record,) = find_records(paths.state)
        assert record.plan.installed == paths.installed
        if back:
            list(undo_record(record, plan, paths))
            assert (root / "etc/fstab").read_text() == (root / "etc/mdadm/mdadm.conf").read_text() == ""
            left = {str(file) for file in root.rglob("*")} - set(before)
            assert left <= {f"{root}/boot/image", f"{root}/boot/log"}
            assert cut == 0 or not (root / "boot/image").exists() or (root / "boot/image").read_text() == ""
        else:
            list(apply_record(record, plan, paths))
            run("mountpoint", "-q", root / "srv/data")
        assert find_records(paths.state) == ()
    unmount(root / "srv/data")


def test_a_finished_change_is_undone_with_its_mount_and_directory(plan: ArrayPlan, paths: Paths, root: Path) -> None:
    walk = apply_record(begin(plan, paths), plan, paths)
    for event in walk:
        if event == StepBegun(4):
            break
    next(walk)
    walk.close()  # type: ignore[attr-defined]
    run("mountpoint", "-q", root / "srv/data")
    (record,) = find_records(paths.state)
    said = [str(event) for event in undo_record(record, plan, paths)]
    assert any(f"{root}/srv/data is unmounted" in text for text in said)
    assert not (root / "srv/data").exists() and (root / "srv").exists()
    assert (root / "boot/log").read_text().count("update-initramfs") == 2


@pytest.mark.parametrize("back", [True, False])
def test_another_system_at_the_same_place_is_neither_continued_nor_undone(
    plan: ArrayPlan, paths: Paths, root: Path, back: bool
) -> None:
    walk = apply_record(begin(plan, paths), plan, paths)
    next(event for event in walk if event == StepBegun(3))
    walk.close()  # type: ignore[attr-defined]
    (record,) = find_records(paths.state)
    run("mount", "-t", "tmpfs", "tmpfs", root)
    try:
        with pytest.raises(Refused, match=f"{root} is not mounted as it was") as refused:
            continue_array(record, back=back, json_=False)
    finally:
        run("umount", root)
    assert "if that system is gone: by hand" in refused.value.hint
    (root / "etc/fstab").write_text("UUID=1 /boot ext4 defaults 0 2\n")
    with pytest.raises(Refused, match=f"nothing is mounted at {root}/boot"):
        continue_array(record, back=back, json_=False)
    assert find_records(paths.state) == (record,)


def test_a_failed_program_stops_with_its_output(plan: ArrayPlan, paths: Paths, root: Path) -> None:
    (root / "usr/sbin/update-initramfs").write_text("#!/usr/bin/sh\necho no room >&2\nexit 7\n")
    with pytest.raises(Stopped, match=f"update-initramfs failed with exit code 7 in {root}: no room"):
        list(apply_record(begin(plan, paths), plan, paths))
    assert len(find_records(paths.state)) == 1


_LOCKED = """import sys
from pathlib import Path
from aligntool.linux.installed import find_installed, run_inside
from aligntool.raid.record import lock_state
with lock_state(Path(sys.argv[2])):
    installed = find_installed(sys.argv[1])
    run_inside(installed, "sh", "-c", "touch /boot/begun; while [ ! -e /boot/end ]; do sleep 0.1; done")
"""


def test_a_program_that_outlives_a_kill_keeps_the_records_locked(root: Path, tmp_path: Path) -> None:
    """Otherwise a resume would run the same program beside it."""
    child = subprocess.Popen([sys.executable, "-c", _LOCKED, root, tmp_path / "state"])
    end = time.monotonic() + 60
    while not (root / "boot/begun").exists():
        assert child.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    child.kill()
    child.wait()
    with pytest.raises(Refused), lock_state(tmp_path / "state"):
        pass
    (root / "boot/end").touch()
    while time.monotonic() < end:
        with suppress(Refused), lock_state(tmp_path / "state"):
            return
        time.sleep(0.1)
    pytest.fail("still locked")


def test_a_mount_point_through_a_link_is_refused_and_never_made(plan: ArrayPlan, paths: Paths, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "srv").rmdir()
    (root / "srv").symlink_to(outside)
    (why,) = refuse_mount_point(plan.of(Mount)[0], paths)
    assert "/srv is a symbolic link" in why
    with pytest.raises(Stopped, match="/srv is a symbolic link"):
        list(apply_record(begin(plan, paths), plan, paths))
    assert list(outside.iterdir()) == []
    outside.rmdir()


@pytest.mark.parametrize("place", ["/run/data", "/proc/x", "/dev/shm/x", "/sys/x"])
def test_a_mount_point_in_a_folder_of_the_kernel_is_refused(paths: Paths, place: str) -> None:
    assert list(refuse_mount_point(Mount(place), paths))


# EFI system partitions beside the array, which the system that made the array keeps in sync.

SYSTEMCTL = """#!/usr/bin/sh
case $1 in
    enable) echo "$2" >> /etc/enabled ;;
    *) grep -qx "$2" /etc/enabled ;;
esac
"""
ARRAY = "6b3b2ed4:0c1a4f0e:9c552f5a:0a3d1c11"
LINE = 'ESP_COPIES="1111-AAAA 1111-AAAB" ESP_ARRAY=6b3b2ed4-0c1a-4f0e-9c55-2f5a0a3d1c11'
COPIED = ("/etc/default/esp-copies", "/usr/local/lib/esp-copies.sh", "/etc/systemd/system/esp-copies.service")


def with_copies(paths: Paths, here: Path, text: str) -> ArrayPlan:
    (here / "etc/default").mkdir(parents=True)
    (here / "etc/default/esp-copies").write_text(text)
    made = replace(plan_of([]), purpose="persist", installed=paths.installed)
    made = replace(made, disk=replace(made.disk, disk_id=ARRAY))
    return with_boot_copies(made, Paths(here, here / "state"))


def test_an_installed_system_gets_the_copies_of_the_boot_loader(paths: Paths, root: Path, tmp_path: Path) -> None:
    for folder in ("etc/default", "etc/systemd/system"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/systemctl").write_text(SYSTEMCTL)
    (root / "usr/bin/systemctl").chmod(0o755)
    plan = with_copies(paths, tmp_path / "here", f"# of the user\n{LINE}\n")
    assert [step.path for step in plan.steps if isinstance(step, EditFile | WriteFile)] == list(COPIED)
    list(apply_record(begin(plan, paths), plan, paths))
    assert (root / COPIED[0][1:]).read_text() == f"{LINE}\n"
    assert "ESP_ARRAY" in (root / COPIED[1][1:]).read_text()
    assert (root / "etc/enabled").read_text() == "esp-copies.service\n"
    assert with_copies(paths, tmp_path / "again", f"{LINE}\n").steps == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        LINE.replace("1c11", "1c12"),  # of another array
        f"{LINE}; reboot",
        LINE.replace("1111-AAAB", "$(reboot)"),
        f"#{LINE}",
    ],
)
def test_a_list_that_is_not_for_this_array_is_not_copied(paths: Paths, tmp_path: Path, text: str) -> None:
    assert with_copies(paths, tmp_path / "here", f"{text}\n").steps == ()
