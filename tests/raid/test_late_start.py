"""Starting an array without a missing drive: for which arrays it is planned, and that its files are valid."""

import configparser
import shutil
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
def test_only_an_array_that_can_do_without_a_drive_on_a_system_that_would_not_start_it_gets_it(
    level: str, system: str, wanted: bool
) -> None:
    plan = planned(goal(level, system=system), *drives(4))
    assert bool(late(plan)) is wanted
    enabled = EnableUnit("mdadm-late-start.timer")
    assert (enabled in plan.steps) is wanted
    if wanted:  # before any mount
        fstab = next(at for at, step in enumerate(plan.steps) if getattr(step, "path", "") == "/etc/fstab")
        assert plan.steps.index(enabled) < fstab


def test_the_timer_starts_the_service_and_that_the_script() -> None:
    files = late(planned(goal("raid1"), *drives(2)))
    units = {}
    for name in ("mdadm-late-start.timer", "mdadm-late-start.service"):
        units[name] = configparser.ConfigParser()
        units[name].read_string(files[name])
    timer, service = units.values()
    assert timer["Timer"]["Unit"] == "mdadm-late-start.service" and timer["Install"]["WantedBy"] == "sysinit.target"
    assert service["Service"]["ExecStart"] == "/bin/sh /usr/local/lib/mdadm-late-start.sh"


@pytest.mark.needs_tools("shellcheck")
def test_the_script_is_sound_and_does_nothing_where_no_array_waits(tmp_path: Path) -> None:
    script = tmp_path / "late.sh"
    script.write_text(late(planned(goal("raid1"), *drives(2)))["mdadm-late-start.sh"])
    run("shellcheck", "--shell=sh", script)
    assert run(shutil.which("dash") or "sh", script) == ""
