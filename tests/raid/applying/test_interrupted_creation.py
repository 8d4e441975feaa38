"""Creation cut off at any point: resumed, it ends like an undisturbed one; rolled back, everything is as before.

Not every machine has md, so there is no array here: a drive gets its table, a partition its file system, a file its
line. tests/lab does the same with arrays and with real power cuts.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from aligntool.change import ArrayPlan, StepDone
from aligntool.cli.arrays import recover_array
from aligntool.errors import Refused, Stopped
from aligntool.linux.programs import find_program
from aligntool.raid.apply import apply_record, begin, undo_record
from aligntool.raid.boot import MAKERS
from aligntool.raid.current_names import with_current_names
from aligntool.raid.record import Record, find_records, lock_state, save
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_system import Paths
from aligntool.steps import CheckInitramfs, MakeDirectory, MakeMember, Mount, RebuildInitramfs, ReloadUnits
from aligntool.units import MIB
from tests.conftest import is_blank, remove_partitions, run
from tests.raid.applying.builders import (
    FS_UUID,
    LINE,
    file_system_step,
    fstab_step,
    member_step,
    paths_in,
    plan_of,
    program,
)
from tests.thorough import THOROUGH

OLD = "tmpfs /tmp tmpfs defaults 0 0"
SIZE = 64 * MIB
EVERY = 1 if THOROUGH else 3  # events
PATH = os.environ["PATH"]
Fake = Callable[[str, str], None]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = paths_in(tmp_path)
    (tmp_path / "root/etc/fstab").write_text(OLD)
    with lock_state(paths.state):
        pass
    return paths


@pytest.fixture
def drive(sparse: Callable[..., Path], loop: Callable[..., Path]) -> Path:
    return loop(sparse(SIZE))


def whole_plan(paths: Paths, drive: Path, folder: Path) -> ArrayPlan:
    member = member_step(paths, drive)
    return plan_of(
        [member, file_system_step(member.device), fstab_step(), ReloadUnits(), MakeDirectory(str(folder / "srv/data"))]
    )


def cut_after(plan: ArrayPlan, paths: Paths, events: int) -> bool:
    """Apply the plan up to this event; return whether anything was left to do."""
    walk = apply_record(begin(plan, paths), plan, paths)
    taken = len(list(islice(walk, events)))
    walk.close()  # type: ignore[attr-defined]
    return taken == events and bool(find_records(paths.state))


def unfinished_record(paths: Paths) -> Record:
    (record,) = find_records(paths.state)
    return record


def is_untouched(paths: Paths, drive: Path, folder: Path) -> bool:
    return (
        is_blank(drive)
        and (folder / "root/etc/fstab").read_text() == OLD
        and not (folder / "srv").exists()
        and find_records(paths.state) == ()
    )


def is_finished(paths: Paths, drive: Path, folder: Path) -> bool:
    found = run("blkid", "-p", "-o", "value", "-s", "UUID", f"{drive}p1").strip()
    run("e2fsck", "-f", "-n", f"{drive}p1")
    return (
        found == FS_UUID
        and (folder / "root/etc/fstab").read_text() == f"{OLD}\n{LINE}\n"
        and (folder / "srv/data").is_dir()
        and find_records(paths.state) == ()
    )


def empty_again(plan: ArrayPlan, paths: Paths, drive: Path) -> None:
    """Roll back a finished creation, as if the record were still there."""
    done = Record(paths.state / "arrays/x.json", plan, len(plan.steps))
    traces: dict[int, dict[str, str]] = {index: {} for index in range(len(plan.steps))}
    save(replace(done, traces=traces))
    list(undo_record(unfinished_record(paths), plan, paths))
    run("blkdiscard", "--zeroout", drive)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.ext4")
def test_a_rollback_ends_with_what_was_undone_and_how_each_drive_is(
    paths: Paths, drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = whole_plan(paths, drive, tmp_path)
    list(apply_record(begin(plan, paths), plan, paths))
    done = Record(paths.state / "arrays/x.json", plan, 3, traces={index: {} for index in range(3)})
    save(done)

    def undo(record: Record, **_: object) -> ArrayPlan:
        list(undo_record(record, plan, paths))
        return plan

    monkeypatch.setattr("aligntool.cli.arrays.continue_array", undo)
    recover_array(done, json_=False, back=True)
    said, hint = (" ".join(text.split()) for text in capsys.readouterr())
    assert said.startswith(f"{plan.disk.path} was rolled back removed: the file system {drive}p1")
    assert "its changes are undone in /etc/fstab" in said
    assert f"{drive}: as before, without a partition table or recognised content" in said
    assert not run("wipefs", "--no-act", drive)
    assert hint.endswith(f"→ sudo aligntool audit {drive}")

    (member,) = plan.of(MakeMember)
    wiped = replace(plan, steps=(replace(member, wipe=True, holds=("ext4 - - at 0",)),))
    monkeypatch.setattr("aligntool.cli.arrays.continue_array", lambda *_, **__: wiped)
    recover_array(replace(done, traces={0: {}}), json_=True, back=True)
    (end,) = map(json.loads, capsys.readouterr().out.splitlines())
    overwritten = f"{drive}: its former content (ext4 - - at 0) was overwritten, and cannot be restored"
    assert end["sentences"] == [f"{plan.disk.path} was rolled back", overwritten]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.ext4", "e2fsck", "blkdiscard")
def test_a_creation_cut_after_any_event_and_rolled_back_leaves_no_changes(
    paths: Paths, drive: Path, tmp_path: Path
) -> None:
    plan = whole_plan(paths, drive, tmp_path)
    events = 0
    while cut_after(plan, paths, events):
        list(undo_record(unfinished_record(paths), plan, paths))
        run("wipefs", "--all", "--quiet", drive)
        run("blkdiscard", "--zeroout", "-o", str(MIB), "-l", str(56 * MIB), drive)  # what mkfs wrote inside
        assert is_untouched(paths, drive, tmp_path), f"cut after {events} events"
        events += EVERY
    assert events > 2 * len(plan.steps)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.ext4", "e2fsck", "blkdiscard")
def test_a_creation_cut_after_any_event_and_resumed_is_completed(paths: Paths, drive: Path, tmp_path: Path) -> None:
    plan = whole_plan(paths, drive, tmp_path)
    events = 0
    while cut_after(plan, paths, events):
        record = unfinished_record(paths)
        list(apply_record(record, with_current_names(record.plan, [read_disk(str(drive))]), paths))
        assert is_finished(paths, drive, tmp_path), f"cut after {events} events"
        empty_again(plan, paths, drive)
        (tmp_path / "root/etc/fstab").write_text(OLD)
        for folder in (tmp_path / "srv/data", tmp_path / "srv"):
            folder.rmdir()
        events += EVERY
    assert events > 2 * len(plan.steps)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.ext4", "e2fsck", "blkdiscard")
def test_an_interrupted_rollback_can_be_completed(paths: Paths, drive: Path, tmp_path: Path) -> None:
    plan = whole_plan(paths, drive, tmp_path)
    assert cut_after(plan, paths, 2 * len(plan.steps))
    while find_records(paths.state):
        walk = undo_record(unfinished_record(paths), plan, paths)
        with suppress(StopIteration):
            next(event for event in walk if isinstance(event, StepDone))
        walk.close()  # type: ignore[attr-defined]
    assert (tmp_path / "root/etc/fstab").read_text() == OLD
    assert run("wipefs", "--no-act", "--parsable", drive) == ""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Replace programs of the system with scripts of the test."""

    def make(name: str, script: str) -> None:
        monkeypatch.setenv("PATH", f"{program(tmp_path, name, script)}:{PATH}")

    return make


def test_a_failed_command_stops_with_its_output_and_can_be_repeated(paths: Paths, tmp_path: Path, fake: Fake) -> None:
    allowed = tmp_path / "allowed"
    fake("dracut", f"echo not yet >&2; test -e {allowed}")
    plan = plan_of([fstab_step(), RebuildInitramfs("dracut")])
    with pytest.raises(Stopped, match="not yet"):
        list(apply_record(begin(plan, paths), plan, paths))
    assert unfinished_record(paths).position == 1
    allowed.touch()
    list(apply_record(unfinished_record(paths), plan, paths))
    assert find_records(paths.state) == ()


def test_an_initramfs_that_failed_its_check_is_rebuilt_before_the_next_check(
    paths: Paths, tmp_path: Path, fake: Fake
) -> None:
    """The user repaired the files it is built from; an image built from the old files would still fail the check."""
    built, shown = tmp_path / "built", tmp_path / "shown"
    fake("mkinitcpio", f"echo built >> {built}")
    fake("bash", f"cat {shown}")
    shown.write_text("nothing\n")
    plan = plan_of([RebuildInitramfs("mkinitcpio"), CheckInitramfs("mkinitcpio", FS_UUID)])
    with pytest.raises(Stopped, match=f"{FS_UUID} was not found; printed: nothing"):
        list(apply_record(begin(plan, paths), plan, paths))
    shown.write_text(f"UUID={FS_UUID.replace('-', '').upper()}\n")  # as a line added by the user may have it
    list(apply_record(unfinished_record(paths), plan, paths))
    assert built.read_text() == "built\n" * 2
    assert find_records(paths.state) == ()


def test_a_missing_program_is_reported_as_not_installed(paths: Paths) -> None:
    missing = [maker for maker, each in MAKERS.items() if find_program(each.rebuild[0]) is None]
    if not missing:
        pytest.skip("every maker of an initramfs is installed here")
    plan = plan_of([RebuildInitramfs(missing[0])])
    with pytest.raises(Refused, match="not installed"):
        list(apply_record(begin(plan, paths), plan, paths))


def test_systemd_is_reloaded_after_a_file_is_restored(paths: Paths) -> None:
    plan = plan_of([fstab_step(), ReloadUnits()])
    list(apply_record(begin(plan, paths), plan, paths))
    said = roll_back_finished(plan, paths, traces={0: {"after": "changed by somebody"}, 1: {}})
    assert any("systemctl daemon-reload" in text for text in said)
    said = roll_back_finished(plan, paths, traces={0: {"after": "changed by somebody"}})  # it never began
    assert not any("systemctl daemon-reload" in text for text in said)


def test_systemd_is_reloaded_once_after_consecutive_files_are_restored(paths: Paths) -> None:
    """If systemd read them after the first file, it would keep the lines of the second."""
    plan = plan_of([fstab_step(), fstab_step("other"), ReloadUnits()])
    changed = {"after": "changed by somebody"}
    events = list(roll_back_finished(plan, paths, traces={0: changed, 1: changed, 2: {}}))
    (reloaded,) = (at for at, text in enumerate(events) if text.endswith("fstab: systemctl daemon-reload"))
    assert reloaded > max(at for at, text in enumerate(events) if "fstab was changed since" in text)


def test_an_initramfs_that_cannot_be_rebuilt_does_not_stop_the_rollback(
    paths: Paths, tmp_path: Path, fake: Fake
) -> None:
    fstab = tmp_path / "root/etc/fstab"
    fake("dracut", "echo no room left >&2; exit 1")
    plan = plan_of([fstab_step(), RebuildInitramfs("dracut")])
    with pytest.raises(Stopped, match="no room left"):
        list(apply_record(begin(plan, paths), plan, paths))
    said = [getattr(event, "text", "") for event in undo_record(unfinished_record(paths), plan, paths)]
    assert any("run dracut -f --regenerate-all again later" in text for text in said)
    assert fstab.read_text() == OLD and find_records(paths.state) == ()


def roll_back_finished(plan: ArrayPlan, paths: Paths, traces: dict[int, dict[str, str]]) -> list[str]:
    """Carry a plan out, roll it back, and return the messages."""
    (paths.of("/etc/fstab")).write_text(f"{LINE}\nother\n")
    save(Record(paths.state / "arrays/x.json", plan, len(plan.steps), traces=traces))
    return [getattr(event, "text", "") for event in undo_record(unfinished_record(paths), plan, paths)]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "wipefs", "mkfs.ext4", "e2fsck", "blkdiscard")
def test_a_drive_reused_meanwhile_is_overwritten_by_neither_resume_nor_rollback(
    paths: Paths, drive: Path, tmp_path: Path
) -> None:
    """With unrecognised bytes, both before anything was written to it and once it had its table."""
    plan = plan_of([member_step(paths, drive), MakeDirectory(str(tmp_path / "srv"))])
    for events in (1, 2):
        assert cut_after(plan, paths, events)
        start = 0 if events == 1 else MIB
        holds = os.urandom(SIZE - start)
        with drive.open("r+b") as file:
            file.seek(start)
            file.write(holds)
            os.fsync(file.fileno())
        if events == 1:
            with pytest.raises(Stopped, match=r"holds (data|content) that was not there when the plan was made"):
                list(apply_record(unfinished_record(paths), plan, paths))
        list(undo_record(unfinished_record(paths), plan, paths))
        assert drive.read_bytes()[start:] == holds and find_records(paths.state) == ()
        run("blkdiscard", "--zeroout", drive)
        remove_partitions(drive)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "mkfs.ext4", "mount", "findmnt", "blkdiscard")
def test_a_file_system_that_a_reboot_mounted_is_unmounted_by_the_rollback(
    paths: Paths, drive: Path, tmp_path: Path
) -> None:
    """Its line is in fstab from the third step on, and the step that mounts it never began."""
    place = tmp_path / "srv/data"
    whole = whole_plan(paths, drive, tmp_path)
    plan = plan_of([*whole.steps, Mount(str(place))])
    walk = apply_record(begin(plan, paths), plan, paths)
    next(event for event in walk if event == StepDone(2))
    walk.close()  # type: ignore[attr-defined]
    place.mkdir(parents=True)
    run("mount", f"{drive}p1", place)
    said = [getattr(event, "text", "") for event in undo_record(unfinished_record(paths), plan, paths)]
    assert f"{place} is unmounted" in said
    assert run("findmnt", "--mountpoint", place, fails=True) == "" and find_records(paths.state) == ()
    assert (tmp_path / "root/etc/fstab").read_text() == OLD
