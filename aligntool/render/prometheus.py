"""Show an audit as Prometheus metrics, for node_exporter's textfile collector."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from aligntool import __version__
from aligntool.audit.drives import worst_gap
from aligntool.audit.report import Answer, Report
from aligntool.inventory import ArrayFacts, Disk, Gap, LinkHop, link_maximum, port_above
from aligntool.render.audit import worst_failed_check
from aligntool.render.lines import harmless

# The text exposition format 0.0.4. An unknown value has no sample. The identity of a disk is in one series;
# all others have only its kernel name, as `device`, the label of node_exporter's own node_disk_ metrics. All
# are gauges.

METRICS = {
    "aligntool_build_info": "Version of aligntool; always 1.",
    "aligntool_last_run_timestamp_seconds": "Unix time at which the audit ended.",
    "aligntool_last_run_duration_seconds": "Time that the audit took.",
    "aligntool_disk_info": "Identity of a disk; always 1.",
    "aligntool_disk_size_bytes": "Size of the disk.",
    "aligntool_disk_unseen": "1 if the disk could not be judged, else 0.",
    "aligntool_move_in_flight": "1 if a move of partitions on the disk is unfinished, else 0.",
    "aligntool_partition_aligned": "1 on the grid, 0 off the grid.",
    "aligntool_partition_start_bytes": "Start of the partition on its disk.",
    "aligntool_partition_off_bytes": "Bytes past the last boundary of the most important grid; 0 on the"
    " grid.",
    "aligntool_findings": "Number of findings by disk, code and severity.",
    "aligntool_array_info": "Identity of an md array; always 1.",
    "aligntool_array_state": "1 for each state that an md array is in, else 0.",
    "aligntool_array_devices": "Number of members of the array, including missing ones.",
    "aligntool_array_missing_devices": "Number of members that are missing.",
    "aligntool_array_sync_ratio": "Completed part of the current synchronisation, from 0 to 1.",
    "aligntool_link_transfers_per_second": "Transfers per second of each lane of the drive's PCIe link.",
    "aligntool_link_max_transfers_per_second": "Maximum transfers per second that both ends of the link"
    " support.",
    "aligntool_link_width": "Number of lanes of the drive's PCIe link.",
    "aligntool_link_max_width": "Maximum number of lanes that both ends of the link have.",
}

ARRAY_STATES = ("clean", "degraded", "inactive", "resync", "recover", "reshape", "check", "repair")

_SYNCS = ARRAY_STATES[3:]

_Sample = tuple[str, dict[str, str | None], float | None]  # name, labels, value; None: unknown


@dataclass(frozen=True, slots=True)
class Run:
    """The time at which an audit ended, as Unix time, and its duration, both in seconds."""

    ended_s: float
    took_s: float


def audit_prometheus(report: Report, run: Run, *, serials: bool = False) -> Iterator[str]:
    """Yield the metrics in pieces. `serials`: include the serial numbers of the disks."""
    disks = report.inventory.disks
    families: dict[str, dict[str, float]] = {name: {} for name in METRICS}
    of_disks = chain.from_iterable(_disk_samples(disk, serials=serials) for disk in disks)
    for name, labels, value in chain(
        _machine_samples(report, run), of_disks, _unseen_disks(report), _partition_samples(report)
    ):
        if value is not None:
            families[name].setdefault(_in_braces(labels), value)  # a damaged table may contain a number twice
    for name, samples in families.items():
        if samples:
            yield f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n"
            yield from (f"{name}{labels} {value}\n" for labels, value in samples.items())


def _machine_samples(report: Report, run: Run) -> Iterator[_Sample]:
    yield "aligntool_build_info", {"version": __version__}, 1
    yield "aligntool_last_run_timestamp_seconds", {}, round(run.ended_s, 3)
    yield "aligntool_last_run_duration_seconds", {}, round(run.took_s, 3)
    counts = Counter(
        (finding.disk, finding.code.value, finding.severity.value) for finding in report.findings
    )
    for (disk, code, severity), count in counts.items():
        yield "aligntool_findings", {"device": disk, "code": code, "severity": severity}, count


def _disk_samples(disk: Disk, *, serials: bool) -> Iterator[_Sample]:
    device: dict[str, str | None] = {"device": disk.name}
    names = {"kind": disk.kind.value, "vendor": disk.vendor, "model": disk.model, "firmware": disk.firmware}
    # For an NVMe drive without an identifier, the kernel makes one that contains the serial number
    # (nvme/host/sysfs.c).
    wwn = None if not serials and (disk.wwn or "").startswith("nvme.") else disk.wwn
    yield "aligntool_disk_info", device | names | {"wwn": wwn, "serial": disk.serial if serials else None}, 1
    yield "aligntool_disk_size_bytes", device, disk.size
    if disk.table_read:
        yield (
            "aligntool_move_in_flight",
            device,
            int(disk.table is not None and disk.table.in_flight is not None),
        )
    if disk.array:
        yield from _array_samples(device, disk.array)
    for path in disk.links:
        yield from _link_samples(device, path)


def _array_samples(device: dict[str, str | None], facts: ArrayFacts) -> Iterator[_Sample]:
    names = {"level": facts.level, "metadata": facts.metadata, "name": facts.name, "uuid": facts.uuid}
    yield "aligntool_array_info", device | names, 1
    yield "aligntool_array_devices", device, facts.devices
    yield "aligntool_array_missing_devices", device, facts.degraded
    if facts.sync_action in _SYNCS and facts.sync_total and facts.sync_done is not None:
        yield "aligntool_array_sync_ratio", device, facts.sync_done / facts.sync_total
    if facts.state is None:
        return
    # Documentation/admin-guide/md.rst; "clean" there is an array without writes in progress.
    inactive = facts.state in ("clear", "inactive", "broken")
    whole = not facts.degraded and facts.sync_action not in ("resync", "recover", "reshape")
    for state in ARRAY_STATES:
        here = {"clean": whole and not inactive, "degraded": bool(facts.degraded), "inactive": inactive}.get(
            state, state == facts.sync_action
        )
        yield "aligntool_array_state", device | {"state": state}, int(here)


def _link_samples(device: dict[str, str | None], path: tuple[LinkHop, ...]) -> Iterator[_Sample]:
    for drive in path[:1]:
        most = link_maximum(drive, port_above(path))
        labels = device | {"address": drive.address}
        yield "aligntool_link_transfers_per_second", labels, _per_second(drive.speed_gts)
        yield "aligntool_link_max_transfers_per_second", labels, _per_second(most.speed_gts)
        yield "aligntool_link_width", labels, drive.width
        yield "aligntool_link_max_width", labels, most.width


def _per_second(gigatransfers: float | None) -> int | None:
    return round(gigatransfers * 10**9) if gigatransfers is not None else None


def _unseen_disks(report: Report) -> Iterator[_Sample]:
    """Yield a sample for each disk, and for each target that could not be read as a disk."""
    for disk in report.inventory.disks:
        yield "aligntool_disk_unseen", {"device": disk.name}, int(worst_gap(disk) is not None)
    for target in report.inventory.unseen:
        if target.gap in (Gap.DISK, Gap.NO_ANSWER):
            yield "aligntool_disk_unseen", {"device": target.what}, 1


def _partition_samples(report: Report) -> Iterator[_Sample]:
    for verdict in (verdict for judged in report.judged for verdict in judged.verdicts if verdict.matters):
        labels: dict[str, str | None] = {"device": verdict.disk, "partition": str(verdict.partition or "")}
        yield "aligntool_partition_start_bytes", labels, verdict.start
        if verdict.answer is not Answer.UNKNOWN:
            worst = worst_failed_check(verdict) if verdict.answer is Answer.OFF else None
            yield "aligntool_partition_aligned", labels, int(verdict.answer is Answer.ON)
            yield "aligntool_partition_off_bytes", labels, worst.off_by if worst else 0


def _in_braces(labels: dict[str, str | None]) -> str:
    """Return labels in braces. An empty label is the same as a missing one."""
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items() if value is not None)
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return harmless(value.strip()).replace("\\", "\\\\").replace('"', '\\"')
