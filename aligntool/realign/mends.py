"""What can be repaired on the disks of a report: what an audit of the command line and of the Python API share."""

from aligntool.audit.report import Answer, Mend, Report
from aligntool.formats.parked import seems_in_flight
from aligntool.realign import planning


def with_mends(report: Report) -> tuple[Report, dict[str, tuple[Mend, ...]]]:
    """Return the report, and what can be repaired, by the disk's name: on a disk in flight nothing."""
    any_off = any(verdict.answer is Answer.OFF for judged in report.judged for verdict in judged.verdicts)
    if not any_off and not report.inventory.captured:
        return report, {}  # without loading what plans moves
    found = {one.disk.name: () if seems_in_flight(one.disk) else planning.mends(one) for one in report.judged}
    report = planning.point_to_answers(report, found)
    return planning.on_captured_machine(report, found) if report.inventory.captured else (report, found)
