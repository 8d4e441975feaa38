"""Find which misaligned partitions of a report can be repaired, for the audit of the command line and of the
API.
"""

from aligntool.audit.report import Answer, Repair, Report
from aligntool.formats.parked import is_marked_in_flight
from aligntool.inventory import Inventory


def for_machine(command: str, inventory: Inventory) -> str:
    """Return a command for the machine of the inventory. Hints that are no command are unchanged."""
    if not inventory.captured or not command.startswith(("aligntool ", "sudo ")):
        return command
    from aligntool.realign import planning

    return planning.there(command, inventory.sysroot)


def with_repairs(report: Report) -> tuple[Report, dict[str, tuple[Repair, ...]]]:
    """Return the report, and the possible repairs by the name of the disk; none on a disk in flight."""
    any_off = any(verdict.answer is Answer.OFF for judged in report.judged for verdict in judged.verdicts)
    if not any_off and not report.inventory.captured:
        return report, {}
    from aligntool.realign import planning  # only for an audit that has something to repair

    found = {
        judged.disk.name: () if is_marked_in_flight(judged.disk) else planning.find_repairs(judged)
        for judged in report.judged
    }
    found = planning.with_members(report, found)
    report = planning.with_repair_commands(report, found)
    return planning.on_captured_machine(report, found) if report.inventory.captured else (report, found)
