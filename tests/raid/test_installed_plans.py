"""Plans for a system that is installed below a folder: its paths, and what is done there and what here."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from aligntool.change import (
    ArrayPlan,
    StepBegun,
    array_plan,
    from_json,
    plan_with_request,
    request_in_document,
    to_json,
)
from aligntool.cli.arrays import array_status
from aligntool.cli.run_change import question_lines
from aligntool.errors import Refused
from aligntool.inventory import Inventory, of_system
from aligntool.linux.system import RECORDS
from aligntool.raid.commands import command_in
from aligntool.raid.planning import needs_of_plan, plan_raid
from aligntool.raid.record import Record, read_record, save
from aligntool.raid.running import PersistGoal, plan_persist
from aligntool.raid.steps_system import Paths, find_file, paths_of
from aligntool.render.lines import text_of
from aligntool.render.plan import raid_plan_lines
from aligntool.render.progress import progress_json, remaining_step_lines, status_lines
from aligntool.steps import CheckInitramfs, EditFile, EnableUnit, Mount, RebuildInitramfs, ReloadUnits
from aligntool.system import Installed
from tests.audit.array_builders import image, lines, machine, system
from tests.raid.builders import drives, goal, judged
from tests.schemas import check

INSTALLED = Installed("/mnt", "ext4 11111111-2222-4333-8444-555555555555 /")
BELOW = replace(system(), installed=INSTALLED)


def created(*, installed: bool = True) -> ArrayPlan:
    disks = drives(2)
    return plan_raid(judged(*disks), Inventory(disks, system=BELOW if installed else system()), goal())


def test_systemd_is_not_reloaded_for_a_system_that_does_not_run() -> None:
    assert created(installed=False).of(ReloadUnits)
    assert not created().of(ReloadUnits)
    assert [step for step in created(installed=False).steps if not isinstance(step, ReloadUnits)] == list(
        created().steps
    )


def test_its_own_programs_run_in_a_chroot_and_the_mount_is_made_here() -> None:
    plan = created()
    rebuild, check = plan.of(RebuildInitramfs)[0], plan.of(CheckInitramfs)[0]
    assert command_in(rebuild, INSTALLED) == ("chroot", "/mnt", "update-initramfs", "-u", "-k", "all")
    assert command_in(check, INSTALLED)[:3] == ("chroot", "/mnt", "sh")
    assert command_in(plan.of(EnableUnit)[0], INSTALLED)[:4] == ("chroot", "/mnt", "systemctl", "enable")
    words = ("mount", "--fstab", "/mnt/etc/fstab", "--target-prefix", "/mnt", "/srv/data")
    assert command_in(plan.of(Mount)[0], INSTALLED) == words
    assert [step.path for step in plan.of(EditFile)] == ["/etc/mdadm/mdadm.conf", "/etc/fstab"]
    assert command_in(rebuild, None) == ("update-initramfs", "-u", "-k", "all")


def test_programs_are_needed_where_they_run() -> None:
    needs = needs_of_plan(created(), here=True)
    assert needs.inside == {"mdadm", "update-initramfs", "sh", "unmkinitramfs", "systemctl", "mkdir"}
    assert {"mdadm", "mkfs.xfs", "mount"} <= needs.programs and "update-initramfs" not in needs.programs
    needs = needs_of_plan(created(installed=False), here=True)
    assert needs.inside == frozenset() and "update-initramfs" in needs.programs


def test_the_plan_says_of_each_step_whether_it_is_done_there_or_here() -> None:
    for verbose in (False, True):
        shown = "".join(text_of(raid_plan_lines(created(), width=200, verbose=verbose)))
        steps = [found[1] for line in shown.splitlines() if (found := re.match(r" *[0-9–]+\. (.*)", line))]
        begins = {line.partition(": ")[0] for line in steps}
        assert begins == {"here", "in /mnt", "here, below /mnt"}
        assert "in /mnt: rebuild every initramfs" in steps
        assert any(line.startswith("here: create the array /dev/md/data") for line in steps)
        assert "at /mnt/srv/data now, and at /srv/data whenever that system boots" in shown
        plain = "".join(text_of(raid_plan_lines(created(installed=False), width=200, verbose=verbose)))
        assert "here" not in plain.partition("Steps")[2].partition("Afterwards")[0]


def test_progress_status_and_the_question_name_the_files_below_the_folder(tmp_path: Path) -> None:
    plan = created()
    at = next(number for number, step in plan.numbered(EditFile))
    status = array_status(Record(tmp_path / "x.json", plan, at))
    shown = "".join(
        text_of([*status_lines("md", status, width=500), *remaining_step_lines(status, back=True, width=500)])
    )
    assert "in /mnt: edit /etc/mdadm/mdadm.conf" in shown and "files: /mnt/etc/mdadm/mdadm.conf, " in shown
    assert f"system: /mnt, on {INSTALLED.file_system}" in shown
    asked = "".join(text_of(question_lines(plan, width=500)))
    assert "/mnt/etc/fstab" in asked and " /etc/fstab" not in asked
    events = StringIO()
    with progress_json(plan, events) as on_event:
        on_event(StepBegun(at))
    assert json.loads(events.getvalue().splitlines()[-1])["title"].startswith("in /mnt: edit /etc/mdadm/mdadm.conf")


def test_the_record_and_the_saved_plan_name_the_system(tmp_path: Path) -> None:
    plan = created()
    assert array_plan(from_json(to_json(plan))) == plan and plan.installed == INSTALLED
    text = plan_with_request(plan, "persist", asked := PersistGoal(None, "/srv/data", "/mnt"))
    check(json.loads(text))
    assert request_in_document(text, "persist", PersistGoal) == asked
    assert "root" not in plan_with_request(created(installed=False), "persist", PersistGoal())
    record = Record(tmp_path / "record.json", plan)
    save(record)
    assert read_record(record.file).plan.installed == INSTALLED
    assert "installed" not in to_json(created(installed=False))
    assert paths_of(plan).root == Path("/mnt") and paths_of(plan).state == Path(RECORDS).parent


def test_an_array_is_where_its_system_mounts_it_and_nowhere_else() -> None:
    found = machine(system=system())
    places = ("/mnt", "/mnt/srv/x", "/srv/own", "/mnt2", "[SWAP]")
    disks = (*found.disks[:-1], replace(found.disks[-1], mounted_at=places))
    seen = of_system(replace(found, disks=disks), BELOW)
    assert seen.disks[-1].mounted_at == ("/", "/srv/x", "[SWAP]") and seen.system == BELOW
    assert of_system(replace(found, disks=disks), system()).disks[-1].mounted_at == places


def test_an_array_with_its_root_file_system_is_persisted_as_the_root() -> None:
    """Mounted at /mnt it is the root of that system, whose initramfs has to start it."""
    found = machine(system=system())
    disks = (*found.disks[:-1], replace(found.disks[-1], mounted_at=("/mnt",)))
    seen = of_system(replace(found, disks=disks), replace(BELOW, mdadm=lines(), initramfs=(image(),)))
    plan = plan_persist(seen.disks[-1], seen, PersistGoal(root="/mnt"))
    assert [type(step) for step in plan.steps] == [EditFile, RebuildInitramfs, CheckInitramfs]
    assert plan.installed == INSTALLED
    mounted = plan_persist(
        seen.disks[-1], of_system(found, seen.system or BELOW), PersistGoal(None, "/srv/data", "/mnt")
    )
    assert mounted.of(Mount) and not mounted.of(ReloadUnits)


def test_links_of_an_installed_system_lead_where_they_would_lead_in_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "data/fstab").touch()
    (tmp_path / "fstab").touch()
    for name, target in {"absolute": "/data/fstab", "up": "../../../../data/fstab", "out": f"{tmp_path}/fstab"}.items():
        (root / "etc" / name).symlink_to(target)
    (root / "conf").symlink_to("/etc")
    paths = Paths(root, installed=Installed(str(root), ""))
    for name in ("/etc/absolute", "/etc/up", "/conf/absolute"):
        assert paths.of(name) == find_file(paths, name) == root / "data/fstab"
    assert paths.of("/conf/new") == root / "etc/new" and paths.of("/no/such/file") == root / "no/such/file"
    with pytest.raises(Refused, match="points outside"):
        find_file(paths, "/etc/out")
    assert paths.mounted("/srv") == f"{root}/srv"
