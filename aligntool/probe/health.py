"""Whether a drive says that it fails.

In: a disk. Out: a sentence, or nothing. Alone because it is asked only before a plan: reading and writing much of a
drive that is about to die is what kills it, and an audit reads next to nothing. smartctl knows the commands of each
kind of drive and bridge; without it, or without root, nobody knows.
"""

import json
import os

from aligntool.inventory import Disk, DiskKind
from aligntool.probe.programs import ask

PATIENCE_S = 10.0
PHYSICAL = (DiskKind.ATA, DiskKind.SCSI, DiskKind.NVME, DiskKind.USB)
# ATA attributes whose raw value is a count of sectors that could not be read.
UNREADABLE = {197: "sectors wait to be reallocated", 198: "sectors cannot be corrected"}
COUNT_MASK = 0xFFFFFFFF  # some drives keep something else in the upper two bytes of the raw value
# Critical Warning, NVMe base specification, SMART / Health Information. Bit 1 is the temperature, which passes.
CRITICAL = {
    0x01: "its spare blocks run out",
    0x04: "its reliability is degraded",
    0x08: "it has become read-only",
    0x10: "its volatile memory backup has failed",
    0x20: "its persistent memory region has become read-only",
}


def read_failing(disk: Disk) -> str | None:
    """What the drive says of its own end; None: nothing, or it cannot be asked. Takes at most ten seconds."""
    if disk.kind not in PHYSICAL or os.geteuid() != 0:
        return None
    return failing_of(ask("smartctl", "-j", "-H", "-A", disk.path, limit_s=PATIENCE_S).output)


def failing_of(report: str) -> str | None:
    """The same from the JSON that smartctl (7.0 or newer) printed; None when it is none."""
    try:
        document: object = json.loads(report)
    except (ValueError, RecursionError):
        return None
    said = []
    if _at(document, "smart_status", "passed") is False:
        said.append("the drive expects to fail (SMART status)")
    table = _at(document, "ata_smart_attributes", "table")
    for attribute in table if isinstance(table, list) else []:
        said += _unreadable(attribute)
    warning = _at(document, "nvme_smart_health_information_log", "critical_warning")
    if isinstance(warning, int):
        said += [what for bit, what in CRITICAL.items() if warning & bit]
    return "; ".join(said) or None


def _unreadable(attribute: object) -> list[str]:
    number, count = _at(attribute, "id"), _at(attribute, "raw", "value")
    if not isinstance(number, int) or not isinstance(count, int):
        return []
    count &= COUNT_MASK
    return [f"{count} {UNREADABLE[number]} (attribute {number})"] if count and number in UNREADABLE else []


def _at(value: object, *names: str) -> object:
    """What stands in nested JSON objects under these names; None where one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
