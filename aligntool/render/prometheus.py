"""An audit as metrics for node_exporter's textfile collector.

Format: the Prometheus text exposition format 0.0.4. Labels come from disks and are made harmless and escaped.
"""

from collections import Counter
from collections.abc import Iterator

from aligntool import __version__
from aligntool.audit import Answer, Report
from aligntool.render.lines import harmless

_VALUES = {Answer.ON: 1, Answer.OFF: 0, Answer.UNKNOWN: -1}

METRICS = {
    "aligntool_info": "Version of aligntool that made this file.",
    "aligntool_partition_aligned": "1 on the grid, 0 off the grid, -1 unknown.",
    "aligntool_partition_start_bytes": "Where the partition starts on its disk.",
    "aligntool_partition_off_bytes": "Bytes past the last boundary of the grid that matters most.",
    "aligntool_findings": "Findings by disk, code and severity.",
}


def audit_prometheus(report: Report) -> Iterator[str]:
    yield from _head("aligntool_info")
    yield f'aligntool_info{{version="{__version__}"}} 1\n'
    rows = [(verdict, _labels(disk=verdict.disk, partition=str(verdict.partition or "")))
            for judged in report.judged for verdict in judged.verdicts if verdict.matters]  # fmt: skip
    yield from _head("aligntool_partition_aligned")
    for verdict, labels in rows:
        yield f"aligntool_partition_aligned{labels} {_VALUES[verdict.answer]}\n"
    yield from _head("aligntool_partition_start_bytes")
    for verdict, labels in rows:
        yield f"aligntool_partition_start_bytes{labels} {verdict.start}\n"
    yield from _head("aligntool_partition_off_bytes")
    for verdict, labels in rows:
        failed = [check for check in verdict.checks if not check.on]
        worst = min(failed, key=lambda check: check.grid.severity.rank, default=None)
        past = worst.off_by if worst and verdict.answer is Answer.OFF else 0
        yield f"aligntool_partition_off_bytes{labels} {past}\n"
    yield from _findings(report)


def _findings(report: Report) -> Iterator[str]:
    yield from _head("aligntool_findings")
    counts = Counter((finding.disk or "", finding.code, finding.severity) for finding in report.findings)
    for (disk, code, severity), count in counts.items():
        yield f"aligntool_findings{_labels(disk=disk, code=code.value, severity=severity.value)} {count}\n"


def _head(name: str) -> Iterator[str]:
    yield f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n"


def _labels(**labels: str) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _escape(value: str) -> str:
    return harmless(value).replace("\\", "\\\\").replace('"', '\\"')
