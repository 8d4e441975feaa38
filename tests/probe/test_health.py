"""What smartctl says, as its JSON has it: fields as in smartmontools 7.3 (ataprint.cpp, nvmeprint.cpp)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.inventory import Disk, DiskKind, IoLimits
from aligntool.probe.health import failing_of, read_failing

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("smart_status", "passed", "ata_smart_attributes", "table", "id", "raw", "value",
                 "nvme_smart_health_information_log", "critical_warning")
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
        (ata(pending=8), ["8 sectors wait"]),
        (ata(pending=8 | 3 << 40, uncorrectable=2), ["8 sectors wait", "2 sectors cannot be corrected"]),
        (nvme(0x01), ["spare"]),
        (nvme(0x0C, passed=False), ["SMART status", "reliability", "read-only"]),
    ],
)
def test_a_drive_that_fails_is_told_with_its_evidence(report: str, said: list[str]) -> None:
    told = failing_of(report)
    assert told is not None
    assert all(words in told for words in said)
    assert told.count(";") == len(said) - 1


@pytest.mark.parametrize("report", [ata(), nvme(0), nvme(0x02), REFUSED, "{}", "", "no json", "[" * 100_000])
def test_a_drive_that_is_well_or_hot_or_silent_does_not_fail(report: str) -> None:
    assert failing_of(report) is None


@given(document=JSON)
def test_no_json_makes_it_raise(document: object) -> None:
    told = failing_of(json.dumps(document))
    assert told is None or told


@pytest.mark.parametrize("kind", [DiskKind.IMAGE, DiskKind.LOOP, DiskKind.VIRTIO, DiskKind.MD])
def test_what_is_no_drive_is_not_asked(tmp_path: Path, kind: DiskKind) -> None:
    image = str(tmp_path / "disk.img")
    assert read_failing(Disk(image, image, kind, 512, IoLimits())) is None
