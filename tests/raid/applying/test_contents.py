"""File systems of an interrupted creation: data that a user may have stored in them are never overwritten or wiped."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.raid.apply import undo_record
from aligntool.raid.record import Record
from aligntool.raid.steps_md import make_file_system, refuse_foreign, refuse_used, was_never_mounted
from aligntool.raid.steps_system import Paths
from aligntool.steps import DataArea, MakeArray, MakeFileSystem
from aligntool.units import MIB
from tests.conftest import run, unmount
from tests.contents.test_md import member, superblock_1
from tests.raid.applying.builders import FS_UUID, file_system_step, paths_in, plan_of

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("losetup", "blkid", "wipefs", "mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_db", "xfs_repair"),
]

SIZE = 320 * MIB  # mkfs.xfs refuses less than 300 MB
WORD = "somebody's only copy\n"


@pytest.fixture
def device(sparse: Callable[..., Path], loop: Callable[..., Path]) -> Path:
    return loop(sparse(SIZE))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return paths_in(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "mounted"
    place.mkdir()
    yield place
    if run("mountpoint", "-q", place, fails=True) == "" and place.is_mount():
        unmount(place)


def step_of(kind: str, device: Path) -> MakeFileSystem:
    if kind == "ext4":
        return file_system_step(device)
    return MakeFileSystem(str(device), "xfs", FS_UUID, ("-q", "-f", "-m", f"uuid={FS_UUID}"))


def make(step: MakeFileSystem, *, new: bool = False) -> list[str]:
    return [said.text for said in make_file_system(step, new=new)]


def write_file(device: Path, folder: Path) -> None:
    run("mount", device, folder)
    (folder / "letter.txt").write_text(WORD)
    unmount(folder)


def read_it_back(device: Path, folder: Path) -> str:
    run("mount", "-o", "ro", device, folder)
    word = (folder / "letter.txt").read_text()
    unmount(folder)
    return word


def test_a_used_file_system_is_not_recreated_though_its_checker_finds_errors(
    device: Path, paths: Paths, folder: Path
) -> None:
    step = step_of("ext4", device)
    make(step, new=True)
    write_file(device, folder)
    run("debugfs", "-w", "-R", "set_inode_field <11> links_count 9", device)
    with pytest.raises(Stopped, match="may have been used since"):
        make(step)
    run("e2fsck", "-f", "-y", device, fails=True)
    assert read_it_back(device, folder) == WORD
    assert make(step) == [f"{device} already has its ext4"]  # once repaired, the creation continues


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_whose_creation_was_interrupted_is_recreated(kind: str, device: Path, paths: Paths) -> None:
    step = step_of(kind, device)
    make(step, new=True)
    if kind == "ext4":
        run("debugfs", "-w", "-R", "set_inode_field <11> links_count 9", device)
    else:
        run("xfs_db", "-x", "-c", "sb 0", "-c", "write inprogress 1", device)
    said = make(step)
    assert said[0].startswith("recreated")
    assert run("blkid", "-p", "-o", "value", "-s", "UUID", device).strip() == FS_UUID
    run("e2fsck", "-f", "-n", device) if kind == "ext4" else run("xfs_repair", "-n", device)


def test_a_complete_xfs_that_fails_its_check_is_not_changed(device: Path, paths: Paths) -> None:
    step = step_of("xfs", device)
    make(step, new=True)
    run("xfs_db", "-x", "-c", "sb 0", "-c", "write icount 4096", device)
    before = run("sha256sum", device)
    with pytest.raises(Stopped, match="may have been used since"):
        make(step)
    assert run("sha256sum", device) == before


def test_the_superblock_shows_whether_a_file_system_was_ever_mounted(device: Path, paths: Paths, folder: Path) -> None:
    make(step_of("ext4", device), new=True)
    assert was_never_mounted(str(device), "ext4")
    run("mount", device, folder)
    unmount(folder)
    assert "Mount count:              1" in run("dumpe2fs", "-h", device)
    assert not was_never_mounted(str(device), "ext4")


def test_content_created_by_others_during_an_interruption_is_not_overwritten(device: Path, paths: Paths) -> None:
    run("mkfs.ext4", "-q", "-F", "-L", "his", device)
    before = run("sha256sum", device)
    with pytest.raises(Stopped, match="holds ext4"):
        make(step_of("xfs", device))
    assert run("sha256sum", device) == before
    run("wipefs", "--all", "--quiet", device)
    assert make(step_of("xfs", device)) == []


def test_a_partition_table_counts_as_foreign_content(device: Path, paths: Paths) -> None:
    run("sfdisk", "-q", device, stdin="label: gpt\nstart=2048\n")
    with pytest.raises(Stopped, match="holds gpt"):
        make(step_of("ext4", device))
    with pytest.raises(Refused, match="holds gpt"):
        refuse_foreign(str(device), [])


def test_a_rollback_is_refused_if_an_unmounted_file_system_contains_files(
    device: Path, paths: Paths, folder: Path
) -> None:
    step = step_of("ext4", device)
    make(step, new=True)
    write_file(device, folder)
    record = Record(paths.state / "arrays/x.json", plan_of([step]), 1)
    with pytest.raises(Refused, match=r"letter\.txt"):
        list(undo_record(record, record.plan, paths))
    assert read_it_back(device, folder) == WORD


def test_an_empty_file_system_is_rolled_back_even_if_it_was_mounted_before(
    device: Path, paths: Paths, folder: Path
) -> None:
    step = step_of("ext4", device)
    make(step, new=True)
    run("mount", device, folder)
    unmount(folder)
    refuse_used(step)
    (paths.state / "arrays").mkdir(parents=True)
    record = Record(paths.state / "arrays/x.json", plan_of([step]), 1)
    list(undo_record(record, record.plan, paths))
    assert run("wipefs", "--no-act", "--parsable", device) == ""


def test_a_file_system_mounted_elsewhere_is_checked_for_files_there(device: Path, paths: Paths, folder: Path) -> None:
    step = step_of("ext4", device)
    make(step, new=True)
    run("mount", device, folder)
    (folder / "letter.txt").write_text(WORD)
    with pytest.raises(Refused, match=r"letter\.txt"):
        refuse_used(step)
    unmount(folder)


@pytest.mark.needs_tools("mdadm")
def test_an_array_that_cannot_be_started_is_not_removed_if_it_may_hold_files(
    paths: Paths, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    """Superblocks that no kernel could assemble, like those of members that no longer belong together."""
    at, superblock = superblock_1("1.2", "raid1")
    members = [str(loop(member(sparse(32 * MIB, name), (at, superblock)))) for name in ("a.img", "b.img")]
    uuid = "10111213:14151617:18191a1b:1c1d1e1f"
    array = MakeArray(
        "/dev/md/of-a-test", uuid, "of-a-test", tuple(members), "raid1", "", None, "1.2", None, DataArea()
    )
    file_system = file_system_step(array.device)
    (paths.state / "arrays").mkdir(parents=True)
    record = Record(paths.state / "arrays/x.json", plan_of([array, file_system]), 1, True, traces={0: {}, 1: {}})
    with pytest.raises(Refused, match="cannot be started"):
        list(undo_record(record, record.plan, paths))
    for each in members:
        assert uuid in run("mdadm", "--examine", each)
    run("mdadm", "--zero-superblock", *members)
    list(undo_record(record, record.plan, paths))
