"""Inhibiting sleep, with a substitute for systemd-inhibit, which needs a login manager that test machines lack."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aligntool.linux.lock import inhibit_sleep
from aligntool.linux.sysfs import on_battery

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.fixture
def inhibitor(tmp_path: Path) -> Path:
    """Write a program like systemd-inhibit: it runs a command, and records its options and its process ID."""
    program = tmp_path / "inhibitor"
    program.write_text(
        f'#!/bin/sh\nfor word; do echo "$word"; done > {tmp_path}/words\necho $$ > {tmp_path}/pid\n'
        'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
    )
    program.chmod(0o755)
    return program


def process(inhibitor: Path) -> Path:
    return Path("/proc") / inhibitor.with_name("pid").read_text().strip()


def test_sleep_is_inhibited_only_inside_the_context(inhibitor: Path) -> None:
    with inhibit_sleep("moving /dev/sda1", program=str(inhibitor)) as note:
        assert note == ""
        deadline = time.monotonic() + 60  # the shell has printed its line and becomes cat
        while (process(inhibitor) / "cmdline").read_bytes() != b"cat\0" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (process(inhibitor) / "cmdline").read_bytes() == b"cat\0"
    assert not process(inhibitor).exists()
    words = inhibitor.with_name("words").read_text().splitlines()
    assert (
        "--what=sleep:shutdown:idle" in words
        and "--why=moving /dev/sda1" in words
        and words[-3:] == ["sh", "-c", "echo; exec cat"]
    )


def test_the_inhibition_ends_with_a_program_that_is_killed(inhibitor: Path) -> None:
    code = (
        "import os\nfrom aligntool.linux.lock import inhibit_sleep\n"
        f"with inhibit_sleep('why', program={str(inhibitor)!r}): os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False)
    assert killed.returncode == -9
    deadline = time.monotonic() + 60
    while process(inhibitor).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not process(inhibitor).exists()


def test_ctrl_c_on_the_terminal_does_not_reach_the_inhibitor(inhibitor: Path) -> None:
    with inhibit_sleep("why", program=str(inhibitor)):
        assert os.getsid(int(process(inhibitor).name)) != os.getsid(0)


@pytest.mark.parametrize(("program", "reason"), [("/nowhere/inhibit", "not found"), ("false", "was refused")])
def test_a_machine_that_cannot_inhibit_sleep_is_reported_and_the_work_continues(program: str, reason: str) -> None:
    with inhibit_sleep("why", program=program) as note:
        assert note.startswith("sleep and shutdown are not inhibited") and reason in note


BATTERY = {"type": "Battery", "status": "Discharging"}
MAINS = {"type": "Mains", "online": "1"}
MOUSE = {"type": "Battery", "status": "Discharging", "scope": "Device"}


@pytest.mark.parametrize(
    ("supplies", "warned"),
    [
        ([], False),
        ([MAINS], False),
        ([BATTERY], True),
        ([BATTERY, MAINS | {"online": "0"}], True),
        ([BATTERY, MAINS], False),
        ([BATTERY, {"type": "USB", "online": "1"}], False),
        ([BATTERY | {"status": "Full"}], False),
        ([MOUSE], False),
        ([MOUSE, BATTERY], True),
    ],
)
def test_battery_operation_is_detected_from_the_power_supplies(
    tmp_path: Path, supplies: list[dict[str, str]], warned: bool
) -> None:
    """Attributes as in Documentation/ABI/testing/sysfs-class-power."""
    for index, supply in enumerate(supplies):
        folder = tmp_path / f"supply{index}"
        folder.mkdir()
        for name, value in supply.items():
            (folder / name).write_text(f"{value}\n")
    assert on_battery(str(tmp_path)) is warned
