"""System files that get a line: everything else in them is kept, and the edit can be undone."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import Said
from aligntool.errors import Refused, Stopped
from aligntool.raid.apply import apply_record, begin
from aligntool.raid.steps_system import backup_of, edit_file, edited, find_file_trace, refuse_unwritable, restore_file
from aligntool.steps import EditFile, FileStep, WriteFile
from tests.conftest import run
from tests.raid.applying.builders import FS_UUID, LINE, fstab_step, paths_in
from tests.raid.builders import drives, goal, planned


@pytest.fixture
def fstab(tmp_path: Path) -> Path:
    paths_in(tmp_path)
    return tmp_path / "root/etc/fstab"


def edit(folder: Path, step: FileStep) -> list[str]:
    paths = paths_in(folder)
    return [said.text for said in edit_file(step, paths, find_file_trace(step, paths))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", f"{LINE}\n"),
        (b"/dev/sda1 / ext4 defaults 0 1\n", f"/dev/sda1 / ext4 defaults 0 1\n{LINE}\n"),
        (b"/dev/sda1 / ext4 defaults 0 1", f"/dev/sda1 / ext4 defaults 0 1\n{LINE}\n"),
        (f"a\nUUID={FS_UUID} /old xfs x 0 0\nb\n".encode(), f"a\n{LINE}\nb\n"),
        (f"# UUID={FS_UUID} was here\n".encode(), f"# UUID={FS_UUID} was here\n{LINE}\n"),
        (f"{LINE}\n# kept\n".encode(), f"{LINE}\n# kept\n"),
        (f"{LINE}\na\nUUID={FS_UUID} /old xfs x 0 0\nb\n".encode(), f"{LINE}\na\nb\n"),
    ],
    ids=["empty", "at the end", "no final newline", "in place of", "a comment stays", "there already", "both"],
)
def test_a_line_is_added_to_a_file_and_everything_else_is_kept(before: bytes, after: str) -> None:
    assert edited(before, fstab_step()) == after.encode()
    assert edited(after.encode(), fstab_step()) == after.encode()


def test_bytes_that_are_not_valid_text_are_kept() -> None:
    assert edited(b"\xff\xfe\r\n", fstab_step()) == b"\xff\xfe\r\n" + LINE.encode() + b"\n"


@pytest.mark.needs_tools("findmnt")
def test_findmnt_reads_the_line_as_intended(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text("tmpfs /tmp tmpfs defaults 0 0")
    edit(tmp_path, fstab_step())
    words = ("findmnt", "--fstab", "--tab-file", fstab, "-n", "-r", "-o", "SOURCE,FSTYPE,OPTIONS")
    assert run(*words, "/srv/data").split() == [f"UUID={FS_UUID}", "ext4", "noatime,nofail"]
    assert run(*words, "/tmp").split()[1] == "tmpfs"


def test_mode_owner_and_extended_attributes_are_kept_and_a_link_is_followed(tmp_path: Path, fstab: Path) -> None:
    real = fstab.with_name("fstab.real")
    real.write_text("old\n")
    real.chmod(0o640)
    os.setxattr(real, "user.aligntool", b"kept")
    if os.geteuid() == 0:
        os.chown(real, 1234, 4321)
    fstab.symlink_to("fstab.real")
    edit(tmp_path, fstab_step())
    status = real.stat()
    assert fstab.is_symlink() and real.read_text() == f"old\n{LINE}\n"
    assert status.st_mode & 0o7777 == 0o640 and os.getxattr(real, "user.aligntool") == b"kept"
    assert os.geteuid() or (status.st_uid, status.st_gid) == (1234, 4321)
    backup = fstab.with_name("fstab.before-aligntool")
    assert backup.read_text() == "old\n" and backup.stat().st_mode & 0o7777 == 0o640


def other_files(fstab: Path) -> list[str]:
    return sorted(each.name for each in fstab.parent.iterdir() if each.name.startswith("fstab"))


OTHER = replace(fstab_step(), lines=("UUID=2 /b ext4 x 0 0",), instead_of="UUID=2 ")


def test_every_run_keeps_a_copy_of_the_file_from_before_it(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text("first\n")
    edit(tmp_path, fstab_step())
    second = fstab.read_text()
    edit(tmp_path, OTHER)
    assert fstab.with_name("fstab.before-aligntool").read_text() == "first\n"
    assert fstab.with_name("fstab.before-aligntool.1").read_text() == second
    assert len(other_files(fstab)) == 3


def test_an_interrupted_step_that_is_repeated_keeps_one_copy(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text("first\n")
    paths = paths_in(tmp_path)
    trace = find_file_trace(fstab_step(), paths)
    backup = backup_of(fstab_step(), paths, trace)
    assert backup is not None
    backup.write_text("first\n")  # cut here
    list(edit_file(fstab_step(), paths, trace))
    list(edit_file(fstab_step(), paths, trace))
    assert other_files(fstab) == ["fstab", "fstab.before-aligntool"]
    list(restore_file(fstab_step(), paths, trace))
    assert other_files(fstab) == ["fstab"] and fstab.read_text() == "first\n"


def test_undoing_an_edit_removes_its_own_copy_and_no_other(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text("first\n")
    edit(tmp_path, fstab_step())
    paths = paths_in(tmp_path)
    trace = find_file_trace(OTHER, paths)
    list(edit_file(OTHER, paths, trace))
    list(restore_file(OTHER, paths, trace))
    assert other_files(fstab) == ["fstab", "fstab.before-aligntool"]


UNIT = WriteFile("/etc/own.timer", ("[Unit]", "", "[Timer]", "OnActiveSec=30"), "/etc/own.timer.before-aligntool")


@pytest.mark.parametrize("before", [None, "[Unit]\n\n[Timer]\nOnActiveSec=60\n", "[Timer]\nOnActiveSec=30\n[Unit]", ""])
def test_a_file_of_aligntool_is_written_completely_and_restored_completely(
    tmp_path: Path, fstab: Path, before: str | None
) -> None:
    file, paths = fstab.with_name("own.timer"), paths_in(tmp_path)
    if before is not None:
        file.write_text(before)
    trace = find_file_trace(UNIT, paths)
    list(edit_file(UNIT, paths, trace))
    assert file.read_text() == "[Unit]\n\n[Timer]\nOnActiveSec=30\n"
    assert find_file_trace(UNIT, paths) == {}
    copy = file.with_name("own.timer.before-aligntool")
    assert (copy.read_text() if copy.exists() else None) == before
    list(restore_file(UNIT, paths, trace))
    assert (file.read_text() if file.exists() else None) == before and not copy.exists()


def to_step(path: str, old: str, *new: str) -> EditFile:
    return EditFile(path, new, old, f"{path}.before-aligntool")


ARRAY = "01234567:89abcdef:01234567:89abcdef"
OTHER_ARRAY = "89abcdef:01234567:89abcdef:01234567"
CONF = "/etc/mdadm/mdadm.conf"
BY_NAME = "ARRAY /dev/md/data name=any:data"
BY_NODE = "/dev/md0 /srv/data xfs defaults 0 0"


@pytest.mark.parametrize(
    ("step", "now"),
    [
        (to_step(CONF, BY_NAME, f"ARRAY /dev/md/data UUID={ARRAY}"), f"ARRAY /dev/md/mine UUID={ARRAY}\n"),
        (to_step(CONF, BY_NAME, f"ARRAY /dev/md/data UUID={ARRAY}"), f"# {BY_NAME}\nARRAY /dev/md/x name=any:data\n"),
        (to_step(CONF, f"UUID={ARRAY}", f"ARRAY /dev/md/data UUID={ARRAY}"), f"array mine uuid={ARRAY.upper()}\n"),
        (to_step("/etc/fstab", BY_NODE, LINE), f"UUID={FS_UUID.upper()} /srv/data xfs nofail 0 0\n"),
        (to_step("/etc/fstab", BY_NODE, LINE), "/dev/md0 /srv/elsewhere xfs defaults 0 0\n"),
        (fstab_step(), "UUID=other /srv/data ext4 defaults 0 2\n"),
    ],
    ids=["by UUID", "another name", "another spelling", "the same place", "another place", "a place that is taken"],
)
def test_a_line_that_was_changed_before_a_resume_does_not_get_a_second_one(
    tmp_path: Path, fstab: Path, step: EditFile, now: str
) -> None:
    """mdadm --incremental starts no array that two lines match."""
    paths = paths_in(tmp_path)
    paths.of(step.path).write_text(now)
    with pytest.raises(Stopped, match="was changed since the plan was made"):
        edit(tmp_path, step)
    assert paths.of(step.path).read_text() == now
    assert sorted(file.name for file in paths.of(step.path).parent.glob("*before*")) == []


def test_a_line_of_several_that_is_there_by_now_is_not_written_again() -> None:
    first, second = f"ARRAY /dev/md/data UUID={ARRAY}", f"ARRAY /dev/md/root UUID={OTHER_ARRAY}"
    step = to_step(CONF, f"UUID={ARRAY}", first, second)
    assert edited(f"{second}\nMAILADDR root\n".encode(), step) == f"MAILADDR root\n{first}\n{second}\n".encode()


def put_back(folder: Path, change: str | None) -> tuple[bytes | None, list[Said]]:
    """Edit the file, let another program change it, and undo the edit."""
    paths, step = paths_in(folder), fstab_step()
    trace = find_file_trace(step, paths)
    list(edit_file(step, paths, trace))
    file = folder / "root/etc/fstab"
    if change is not None:
        file.write_text(file.read_text() + change)
    said = list(restore_file(step, paths, trace))
    return (file.read_bytes() if file.exists() else None), said


@pytest.mark.parametrize("before", [b"x", b"x\n", b"\xff\n\n", b""])
def test_a_restored_file_is_identical_to_the_original(tmp_path: Path, fstab: Path, before: bytes) -> None:
    fstab.write_bytes(before)
    assert put_back(tmp_path, None)[0] == before


def test_a_file_that_did_not_exist_before_is_removed(tmp_path: Path, fstab: Path) -> None:
    assert put_back(tmp_path, None)[0] is None
    assert not fstab.with_name("fstab.before-aligntool").exists()


def test_a_file_that_was_changed_since_is_kept_and_the_line_is_named(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text("x\n")
    now, said = put_back(tmp_path, "theirs\n")
    assert now == f"x\n{LINE}\ntheirs\n".encode()
    assert len(said) == 1 and "by hand" in said[0].text and LINE in said[0].text


@pytest.mark.parametrize("now", [None, "", "theirs\n", f"x\r\n{LINE}\r\n"])
def test_the_copy_of_a_file_that_was_changed_since_is_kept(tmp_path: Path, fstab: Path, now: str | None) -> None:
    """It may be the only one left of the former content: a user who has lost fstab since needs it."""
    fstab.write_text("x\n")
    paths, step = paths_in(tmp_path), fstab_step()
    trace = find_file_trace(step, paths)
    list(edit_file(step, paths, trace))
    fstab.unlink() if now is None else fstab.write_bytes(now.encode())
    (said,) = restore_file(step, paths, trace)
    assert (fstab.read_bytes().decode() if fstab.exists() else None) == now
    assert fstab.with_name("fstab.before-aligntool").read_text() == "x\n"
    assert "fstab was changed since" in said.text and ("by hand" in said.text) == (LINE in (now or ""))


def test_a_line_that_was_there_before_is_not_removed(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text(f"{LINE}\n")
    assert put_back(tmp_path, None) == (f"{LINE}\n".encode(), [])


def test_a_symlink_that_points_outside_the_root_is_refused(tmp_path: Path, fstab: Path) -> None:
    (tmp_path / "outside").write_text("theirs\n")
    fstab.symlink_to(tmp_path / "outside")
    with pytest.raises(Refused, match="points outside"):
        edit(tmp_path, fstab_step())
    assert list(refuse_unwritable(fstab_step(), paths_in(tmp_path)))
    assert (tmp_path / "outside").read_text() == "theirs\n"


@pytest.mark.needs_root
@pytest.mark.needs_tools("mount")
def test_a_file_that_is_a_mount_point_is_reported_before_anything_is_written(tmp_path: Path, fstab: Path) -> None:
    fstab.write_text("x\n")
    (tmp_path / "other").write_text("y\n")
    assert list(refuse_unwritable(fstab_step(), paths_in(tmp_path))) == []
    run("mount", "--bind", tmp_path / "other", fstab)
    try:
        assert ["mount point" in why for why in refuse_unwritable(fstab_step(), paths_in(tmp_path))] == [True]
    finally:
        run("umount", fstab)


def test_a_unit_file_is_not_written_where_systemd_is_missing(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    step = EditFile("/etc/systemd/system/x.timer", ("[Timer]",), "[Timer]", "x")
    assert find_file_trace(step, paths) == {} and list(refuse_unwritable(step, paths)) == []
    (said,) = edit(tmp_path, step)
    assert said == f"/etc/systemd/system not found, so systemd would not read {step.path}"
    assert not paths.of("/etc/systemd").exists()
    paths.of("/etc/systemd/system").mkdir(parents=True)
    edit(tmp_path, step)
    assert paths.of(step.path).read_text() == "[Timer]\n"


def test_the_newest_five_copies_of_a_file_are_kept_and_each_removed_one_is_named(tmp_path: Path, fstab: Path) -> None:
    paths = paths_in(tmp_path)
    (paths.state / "arrays").mkdir(parents=True)
    strange = [fstab.with_name(f"fstab.before-aligntool{end}") for end in (".old", ".01", "x", ".1.gz")]
    for each in strange:
        each.write_text("not aligntool's\n")
    said: list[str] = []
    for number in range(8):
        fstab.write_text(f"run {number}\n")
        plan = replace(planned(goal(), *drives(2)), purpose="persist", steps=(fstab_step(),))
        events = list(apply_record(begin(plan, paths), plan, paths))
        said += [event.text for event in events if isinstance(event, Said) and "removed" in event.text]
    copies = {each.name: each.read_text() for each in fstab.parent.glob("fstab.before*") if each not in strange}
    assert copies == {f"fstab.before-aligntool.{number}": f"run {number}\n" for number in range(3, 8)}
    folder = fstab.parent
    names = ("fstab.before-aligntool", "fstab.before-aligntool.1", "fstab.before-aligntool.2")
    assert said == [f"{folder / name} is removed: the newest 5 are kept" for name in names]
    assert all(each.exists() for each in strange)
