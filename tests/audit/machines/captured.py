"""The audit of a captured machine, shared by all tests of this folder."""

from functools import cache
from pathlib import Path

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Judged, Report
from aligntool.inventory import Disk
from aligntool.linux.look import look
from aligntool.recipes.drives import load_drives

HERE = Path(__file__).parent


@cache
def report(machine: str, *targets: str) -> Report:
    """Return the audit of the machine, or of some of its disks."""
    inventory = look(targets, sysroot=str(HERE / f"{machine}.tar.xz"))
    drives = load_drives()
    return audit(inventory, {disk.name: drives.known(disk) for disk in inventory.disks})


def judged(machine: str, name: str) -> Judged:
    return next(one for one in report(machine).judged if one.disk.name == name)


def disk(machine: str, name: str) -> Disk:
    return judged(machine, name).disk


def names(machine: str) -> set[str]:
    return {one.disk.name for one in report(machine).judged}


def answers(machine: str, name: str) -> dict[int | None, Answer]:
    return {verdict.partition: verdict.answer for verdict in judged(machine, name).verdicts}


def codes(machine: str, name: str) -> set[str]:
    return {finding.code.value for finding in report(machine).findings if finding.disk == name}
