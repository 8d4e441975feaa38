"""Whether a drive says that it fails, how worn it is, and how warm.

In: a disk. Out: a sentence, or nothing; a Health. Alone because it is asked only before a plan: reading and writing
much of a drive that is about to die is what kills it, and an audit reads next to nothing. smartctl knows the commands
of each kind of drive and bridge; without it only an NVMe drive can be asked, and without root nobody knows.
"""

import json
import os
from dataclasses import replace

from aligntool.inventory import Disk, DiskKind, Health
from aligntool.probe.nvme_commands import health_log
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
TOO_HOT = 0x02
ZERO_CELSIUS = 273  # K, as nvme-cli and smartctl reckon
# smartctl's names (drivedb.h) of attributes whose normalised value falls from 100 to 0 over the rated endurance.
# A name counts, not a number: makers use one number for different things.
LIFE_LEFT = (
    "Media_Wearout_Indicator", "Percent_Lifetime_Remain", "Wear_Leveling_Count", "SSD_Life_Left",
    "Remaining_Lifetime_Perc",
)  # fmt: skip
ENDURANCE_PAGE, ENDURANCE_OFFSET = (
    7,
    8,
)  # device statistics, Percentage Used Endurance Indicator (ACS-3, A.11.5)


def asked_health(disk: Disk) -> Disk:
    """The disk with what it says of its end and its health; as it was where it cannot be asked. At most ten seconds."""
    if disk.kind not in PHYSICAL or os.geteuid() != 0:
        return disk
    report = ask("smartctl", "-j", "-H", "-A", "-l", "ssd", disk.path, limit_s=PATIENCE_S).output
    failing, health = failing_of(report), health_of(report)
    if failing is None and health is None:
        failing, health = _nvme_itself(disk)
    return replace(disk, failing=failing, health=health)


def read_failing(disk: Disk) -> str | None:
    """What the drive says of its own end; None: nothing, or it cannot be asked. Takes at most ten seconds."""
    if disk.kind not in PHYSICAL or os.geteuid() != 0:
        return None
    report = ask("smartctl", "-j", "-H", "-A", disk.path, limit_s=PATIENCE_S).output
    if health_of(report) is None and failing_of(report) is None:
        return _nvme_itself(disk)[0]
    return failing_of(report)


def _nvme_itself(disk: Disk) -> tuple[str | None, Health | None]:
    """What smartctl would have asked, where it is not installed or knows no answer."""
    if disk.kind is not DiskKind.NVME:
        return None, None
    try:
        descriptor = os.open(disk.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None, None
    try:
        log = health_log(descriptor)
    finally:
        os.close(descriptor)
    return of_health_log(log) if log else (None, None)


def of_health_log(log: bytes) -> tuple[str | None, Health]:
    """What says that it fails, and the health, from 512 bytes of log 02h: NVMe base specification 2.0, figure 207."""
    warning, kelvin = log[0], int.from_bytes(log[1:3], "little")
    said = [what for bit, what in CRITICAL.items() if warning & bit]
    health = Health(
        used_percent=log[5],
        spare_percent=log[3],
        spare_threshold=log[4],
        media_errors=int.from_bytes(log[160:176], "little"),
        temperature_c=kelvin - ZERO_CELSIUS if kelvin else None,
        too_hot=bool(warning & TOO_HOT),
        passed=not said,
    )
    return "; ".join(said) or None, health


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


def health_of(report: str) -> Health | None:
    """Verdict, wear, spare blocks, errors and temperature from the same JSON; None when it tells none of them."""
    try:
        document: object = json.loads(report)
    except (ValueError, RecursionError):
        return None
    log = _at(document, "nvme_smart_health_information_log")
    used = _first(
        _count(log, "percentage_used"), _count(document, "endurance_used", "current_percent"),
        _used_by_statistics(document), _used_by_attribute(document),
    )  # fmt: skip
    warning = _count(log, "critical_warning") or 0
    passed = _at(document, "smart_status", "passed")
    found = Health(
        used_percent=used,
        spare_percent=_count(log, "available_spare"),
        spare_threshold=_count(log, "available_spare_threshold"),
        media_errors=_count(log, "media_errors"),
        temperature_c=_count(document, "temperature", "current"),
        too_hot=bool(warning & TOO_HOT),
        passed=passed if isinstance(passed, bool) else None,
    )
    return None if found == Health() else found


def _used_by_statistics(document: object) -> int | None:
    pages = _at(document, "ata_device_statistics", "pages")
    for page in pages if isinstance(pages, list) else []:
        rows = _at(page, "table") if _at(page, "number") == ENDURANCE_PAGE else None
        for row in rows if isinstance(rows, list) else []:
            if _at(row, "offset") == ENDURANCE_OFFSET and _at(row, "flags", "valid") is True:
                return _count(row, "value")
    return None


def _used_by_attribute(document: object) -> int | None:
    """Of a model that smartctl knows, or the names are guesses."""
    table = _at(document, "ata_smart_attributes", "table")
    if _at(document, "in_smartctl_database") is not True or not isinstance(table, list):
        return None
    left = [_count(row, "value") for row in table if _at(row, "name") in LIFE_LEFT]
    return next((100 - value for value in left if value is not None and value <= 100), None)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _count(value: object, *names: str) -> int | None:
    found = _at(value, *names)
    whole = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    return found if whole and isinstance(found, int) else None


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
