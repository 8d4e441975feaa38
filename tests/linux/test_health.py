"""Health by smartctl's JSON: fields as in smartmontools 7.3 (ataprint.cpp, nvmeprint.cpp)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.inventory import Disk, DiskKind, Health, IoLimits
from aligntool.linux.commands import decode_health_log, decode_smartctl_report, with_health


def failing_of(report: str) -> str | None:
    return decode_smartctl_report(report)[0]


def health_of(report: str) -> Health | None:
    return decode_smartctl_report(report)[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("smart_status", "passed", "ata_smart_attributes", "table", "id", "raw", "value",
                 "nvme_smart_health_information_log", "critical_warning", "percentage_used", "temperature",
                 "current", "ata_device_statistics", "pages", "number", "offset", "flags", "valid", "name")
            ),
            inner,
            max_size=4,
        )
    ),
)  # fmt: skip


def ata(*, passed: bool = True, pending: int = 0, uncorrectable: int = 0) -> str:
    rows = ((5, "Reallocated_Sector_Ct", 8), (194, "Temperature_Celsius", 154620264473),
            (197, "Current_Pending_Sector", pending), (198, "Offline_Uncorrectable", uncorrectable))  # fmt: skip
    table = [{"id": number, "name": name, "raw": {"value": raw}} for number, name, raw in rows]
    return json.dumps({"smart_status": {"passed": passed}, "ata_smart_attributes": {"table": table}})


def nvme(warning: int, *, passed: bool = True) -> str:
    log = {"critical_warning": warning, "media_errors": 0, "available_spare": 100}
    return json.dumps({"smart_status": {"passed": passed}, "nvme_smart_health_information_log": log})


# smartctl 7.3 of a virtio disk, which has no SMART
REFUSED = """{"json_format_version": [1, 0], "smartctl": {"version": [7, 3], "messages":
[{"string": "/dev/vda: Unable to detect device type", "severity": "error"}], "exit_status": 1}}"""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (ata(passed=False), ["SMART status"]),
        (ata(pending=8), ["8 sectors pending"]),
        (ata(pending=8 | 3 << 40, uncorrectable=2), ["8 sectors pending", "2 uncorrectable sectors"]),
        (nvme(0x01), ["spare"]),
        (nvme(0x0C, passed=False), ["SMART status", "reliability", "read-only"]),
    ],
)
def test_a_failing_drive_is_reported_with_its_evidence(report: str, said: list[str]) -> None:
    told = failing_of(report)
    assert told is not None
    assert all(words in told for words in said)
    assert told.count(";") == len(said) - 1


@pytest.mark.parametrize("report", [ata(), nvme(0), nvme(0x02), REFUSED, "{}", "", "no json", "[" * 100_000])
def test_a_healthy_hot_or_unreadable_drive_is_not_reported_as_failing(report: str) -> None:
    assert failing_of(report) is None


@given(document=JSON)
def test_no_input_raises_an_error(document: object) -> None:
    told = failing_of(json.dumps(document))
    assert told is None or told
    health = health_of(json.dumps(document))
    assert health is None or health != Health()


@pytest.mark.parametrize("kind", [DiskKind.IMAGE, DiskKind.LOOP, DiskKind.VIRTIO, DiskKind.MD])
def test_only_drives_are_queried(tmp_path: Path, kind: DiskKind) -> None:
    image = str(tmp_path / "disk.img")
    disk = Disk(image, image, kind, 512, IoLimits())
    assert with_health(disk) == disk


def nvme_log(**fields: int) -> str:
    """Return the log of a drive as smartctl 7.3 prints it; the fields that count are those of the NVMe
    specification.
    """
    log = {"critical_warning": 0, "temperature": 41, "available_spare": 100, "available_spare_threshold": 10,
           "percentage_used": 3, "media_errors": 0}  # fmt: skip
    return json.dumps({"temperature": {"current": 41}, "nvme_smart_health_information_log": log | fields})


def statistics(used: int, *, valid: bool = True) -> dict[str, object]:
    row = {"offset": 8, "name": "Percentage Used Endurance Indicator", "size": 1, "value": used,
           "flags": {"value": 192, "string": "V---C- ", "valid": valid, "normalized": True}}  # fmt: skip
    other = {"offset": 8, "name": "Lifetime Power-On Resets", "value": 2100, "flags": {"valid": True}}
    pages = [{"number": 1, "table": [other]}, {"number": 7, "table": [row]}]
    return {"ata_device_statistics": {"pages": pages}}


def attribute(name: str, value: int, *, known: bool = True) -> dict[str, object]:
    row = {"id": 233, "name": name, "value": value, "raw": {"value": 0}}
    return {"in_smartctl_database": known, "ata_smart_attributes": {"table": [row]}}


def test_the_health_of_an_nvme_drive_is_read_field_by_field() -> None:
    assert health_of(nvme_log()) == Health(3, 100, 10, 0, 41)
    told = health_of(nvme_log(percentage_used=130, media_errors=2, critical_warning=0x02))
    assert told == Health(130, 100, 10, 2, 41, too_hot=True)


@pytest.mark.parametrize(
    ("document", "used"),
    [
        (statistics(7), 7),
        (statistics(7, valid=False), None),
        (attribute("Media_Wearout_Indicator", 93), 7),
        (attribute("Media_Wearout_Indicator", 93, known=False), None),
        (attribute("Unknown_SSD_Attribute", 93), None),
        (attribute("Wear_Leveling_Count", 200), None),
        (statistics(12) | attribute("Media_Wearout_Indicator", 99), 12),
        ({"endurance_used": {"current_percent": 5}} | statistics(12), 5),
        ({"endurance_used": {"current_percent": True}}, None),
    ],
)
def test_the_wear_of_an_ata_drive_is_reported_where_its_meaning_is_certain(
    document: dict[str, object], used: int | None
) -> None:
    told = health_of(json.dumps(document | {"temperature": {"current": 30}}))
    assert told == Health(used_percent=used, temperature_c=30)


def test_a_smart_status_alone_is_a_health_result() -> None:
    assert (health_of(ata()), health_of(ata(passed=False))) == (Health(passed=True), Health(passed=False))


def log(warning: int = 0, used: int = 3, errors: int = 0) -> bytes:
    """Return log page 02h, by the offsets of smartmontools' nvme_smart_log (nvmecmds.h): warning 0, temperature 1,
    spare 3, its threshold 4, percentage used 5, media errors 160.
    """
    page = bytearray(512)
    page[0], page[3:6] = warning, bytes((100, 10, used))
    page[1:3] = (41 + 273).to_bytes(2, "little")
    page[160:176] = errors.to_bytes(16, "little")
    return bytes(page)


def test_the_raw_log_gives_the_same_health_as_smartctls_json() -> None:
    for warning, used, errors in ((0, 3, 0), (0x02, 130, 2), (0x0C, 255, 1 << 70)):
        report = nvme_log(critical_warning=warning, percentage_used=used, media_errors=errors)
        failing, health = decode_health_log(log(warning, used, errors))
        assert failing == failing_of(report)
        assert replace(health, passed=None) == health_of(report)
        assert health.passed is (failing is None)


@pytest.mark.parametrize("report", [REFUSED, "", "no json", "[" * 100_000, "[]"])
def test_a_drive_without_readable_health_has_none(report: str) -> None:
    assert health_of(report) is None
