"""Starting an array without a missing drive: for which arrays it is planned, and that its files are valid."""

import configparser
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from aligntool.change import Plan
from aligntool.steps import EnableUnit, WriteFile
from tests.conftest import run
from tests.raid.builders import drives, goal, planned


def late(plan: Plan) -> dict[str, str]:
    """The files, by name."""
    return {
        Path(step.path).name: "\n".join(step.lines) + "\n"
        for step in plan.steps
        if isinstance(step, WriteFile) and "late-start" in step.path
    }


@pytest.mark.parametrize(
    ("level", "system", "wanted"),
    [("raid1", "debian", True), ("raid5", "debian", True), ("raid10", "debian", True), ("raid0", "debian", False),
     ("raid1", "fedora", False), ("raid1", "arch", False), ("raid1", "debian-dracut", False)],
)  # fmt: skip
def test_only_redundant_arrays_on_systems_that_would_not_start_them_get_a_late_start(
    level: str, system: str, wanted: bool
) -> None:
    plan = planned(goal(level, system=system), *drives(4))
    assert bool(late(plan)) is wanted
    enabled = EnableUnit("mdadm-late-start.timer")
    assert (enabled in plan.steps) is wanted
    if wanted:  # before any mount
        fstab = next(at for at, step in enumerate(plan.steps) if getattr(step, "path", "") == "/etc/fstab")
        assert plan.steps.index(enabled) < fstab


def test_the_timer_starts_the_service_which_starts_the_script() -> None:
    files = late(planned(goal("raid1"), *drives(2)))
    units = {}
    for name in ("mdadm-late-start.timer", "mdadm-late-start.service"):
        units[name] = configparser.ConfigParser()
        units[name].read_string(files[name])
    timer, service = units.values()
    assert timer["Timer"]["Unit"] == "mdadm-late-start.service" and timer["Install"]["WantedBy"] == "sysinit.target"
    assert service["Service"]["ExecStart"] == "/bin/sh /usr/local/lib/mdadm-late-start.sh"


@pytest.mark.needs_tools("shellcheck")
def test_the_script_passes_shellcheck_and_does_nothing_if_no_array_waits(tmp_path: Path) -> None:
    script = tmp_path / "late.sh"
    script.write_text(late(planned(goal("raid1"), *drives(2)))["mdadm-late-start.sh"])
    run("shellcheck", "--shell=sh", script)
    assert run(shutil.which("dash") or "sh", script) == ""


def test_the_script_finds_a_line_with_the_uuid_in_the_notation_of_blkid(tmp_path: Path) -> None:
    number = "01234567:89abcdef:01234567:89abcdef"
    state, member = tmp_path / "sys/block/md0/md/array_state", tmp_path / "sys/block/md0/slaves/sda"
    for folder in (state.parent, member, tmp_path / "bin"):
        folder.mkdir(parents=True)
    state.write_text("inactive\n")
    (tmp_path / "mdadm.conf").write_text(f"ARRAY /dev/md0 UUID={uuid.UUID(number.replace(':', ''))}\n")
    mdadm = tmp_path / "bin" / "mdadm"
    mdadm.write_text(f'#!/bin/sh\n[ "$1" = --run ] && echo "$@" >> {tmp_path}/started\necho MD_UUID={number}\n')
    mdadm.chmod(0o755)
    script = late(planned(goal("raid1"), *drives(2)))["mdadm-late-start.sh"]
    for there, here in (("/sys/block", f"{tmp_path}/sys/block"), ("/etc/mdadm.conf", f"{tmp_path}/mdadm.conf")):
        script = script.replace(there, here)
    subprocess.run(["sh", "-c", script], env={"PATH": f"{mdadm.parent}:{os.environ['PATH']}"}, check=True)
    assert (tmp_path / "started").read_text() == "--run /dev/md0\n"
