"""Disks that could not be judged, or not all of them: what an audit must never pass over as if all were well."""

from collections.abc import Iterator

from aligntool.audit.codes import Code
from aligntool.audit.report import Answer, Finding, Report, Severity, Verdict
from aligntool.inventory import Disk, Gap, Unseen

_FINDINGS = {
    Gap.PART: (Code.NOT_SEEN, Severity.INFO),
    Gap.EMPTY: (Code.NOT_SEEN, Severity.INFO),
    Gap.DISK: (Code.DISK_NOT_JUDGED, Severity.WARNING),
    Gap.NO_ANSWER: (Code.NO_ANSWER, Severity.ERROR),
}
_OF_THE_DISK = (Gap.DISK, Gap.NO_ANSWER)


def gap_of(disk: Disk) -> Unseen | None:
    """Return what keeps a disk from being judged; None where it was."""
    found = [unseen for unseen in disk.unseen if unseen.gap in _OF_THE_DISK]
    return max(found, key=lambda unseen: _OF_THE_DISK.index(unseen.gap), default=None)


def unjudged(report: Report) -> tuple[Unseen, ...]:
    """Return the targets and the disks that were not judged, each named by `what`."""
    disks = tuple(
        Unseen(disk.name, f"{unseen.what}: {unseen.why}", unseen.hint, unseen.gap)
        for disk in report.inventory.disks
        for unseen in disk.unseen
        if unseen.gap in _OF_THE_DISK
    )
    return report.inventory.unseen + disks


def with_doubt(disk: Disk, verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    """The verdicts on a disk. Without an answer of the disk all of them are unknown."""
    gap = gap_of(disk)
    silent = gap is not None and gap.gap is Gap.NO_ANSWER
    for verdict in verdicts:
        yield _unknown(verdict, gap) if gap is not None and silent else verdict


def lacks_verdict(disk: Disk) -> Unseen | None:
    """Return why a disk as a whole is unknown, beside what is known of its partitions; None where it is not."""
    gap = gap_of(disk)
    if gap is None or (disk.partitions and disk.size is not None and gap.what not in ("size", "partitions")):
        return None
    return gap


def _unknown(verdict: Verdict, gap: Unseen) -> Verdict:
    return Verdict(
        verdict.disk,
        verdict.partition,
        verdict.start,
        Answer.UNKNOWN,
        verdict.checks,
        why=f"{gap.what}: {gap.why}",
    )


def unseen_findings(unseen: tuple[Unseen, ...], disk: Disk | None = None) -> Iterator[Finding]:
    """One for each thing that could not be looked at, of a disk or of the machine."""
    name = "" if disk is None else f"{disk.name}: "
    for one in unseen:
        code, severity = _FINDINGS[one.gap]
        verb = "not known" if one.what in ("size", "partitions") else "not seen"
        summary = f"{name}{one.what} {verb}: {one.why}"
        if disk is not None and one.gap is Gap.NO_ANSWER:
            summary = f"{name}{one.why}"
        hint = one.hint or (f"aligntool explain {code}" if disk else "")
        yield Finding(code, severity, summary, disk=disk.name if disk else None, next=hint)
