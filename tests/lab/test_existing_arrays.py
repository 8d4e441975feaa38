"""`raid create` once more on an array that it made: nothing to do if it is as requested, else what differs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab import existing_arrays
from tests.lab.conftest import Part
from tests.lab.drives import Nvme
from tests.lab.existing_arrays import CASES, Case
from tests.thorough import THOROUGH, when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm"),
    when_thorough("makes arrays in an emulated PC, each several times"),
]
LIMIT_S = 600.0  # for each case
if THOROUGH:
    PART = Part(
        "existing_arrays",
        tuple(Nvme(serial, size=existing_arrays.SIZE) for serial in existing_arrays.SERIALS),
        (),
        LIMIT_S * len(CASES),
    )
REASONS = {
    "level": ("--level", "is a RAID0, not the requested RAID1"),
    "chunk": ("--chunk", "its chunk is 256KiB, not the requested 64KiB"),
    "fs": ("--fs", "not ext4"),
    "mount": ("mount", "fstab already mounts it at /srv/stripe"),
    "one more": ("made2", "no single partition of nvme"),
    "no line": ("mdadm.conf", "/etc/mdadm/mdadm.conf lacks a line of it"),
    "no mount": ("mount", "it is not mounted at /srv/stripe"),
    "no mount line": ("fstab", "/etc/fstab lacks a line of it"),
    "label": ("label", "the label of its xfs is 'other', not 'stripe'"),
    "bitmap": ("--bitmap", "its bitmap is internal, not the requested none"),
    "name": ("--name", "its name is 'mirror', not 'another'"),
    "failed": ("made1", "is faulty"),
    "room": ("--spare-end", "not the requested 200MiB"),
}


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def told(said: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    case: Case = request.param
    found: dict[str, Any] = json.loads((said / f"{case.name}.json").read_text())
    return found


def last_event(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def test_the_same_request_has_nothing_to_do(told: dict[str, Any]) -> None:
    code, out, err = told["first"]
    assert code == 0 and last_event(out)["changed"], err
    for code, out, err in (told["again"], told["shown"]):
        assert code == 0, err
        assert "already as requested" in out
    assert "already as requested" in last_event(told["again"][1])["sentences"][0]
    assert last_event(told["again"][1])["changed"] is False
    assert told["state again"] == told["state"]


def test_what_differs_is_named_and_nothing_is_changed_or_stopped(told: dict[str, Any]) -> None:
    for name, change in told["changes"].items():
        code, out, err = change["said"]
        assert (code, change["same"]) == (3, True), (name, err)
        end = last_event(out)
        assert end["changed"] is False
        assert any(REASONS[name][1] in each["text"] for each in end["refusals"]), (name, end)
        assert not any(word in each["hint"] for each in end["refusals"] for word in ("--stop", "umount")), (name, end)


@pytest.fixture
def blanked(said: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((said / "blank.json").read_text())
    return found


def uuid_of(conf: str, name: str) -> str:
    """Return the UUID on the ARRAY line that is not a comment."""
    return next(line.rpartition("UUID=")[2] for line in conf.splitlines() if line.startswith(f"ARRAY /dev/md/{name} "))


def test_an_array_whose_drives_came_back_blank_is_made_anew_in_place_of_its_lines(blanked: dict[str, Any]) -> None:
    code, out, err = blanked["both"]["said"]
    assert code == 0 and last_event(out)["changed"], err
    files, now = blanked["both"]["files"], blanked["both"]["state"]
    conf, table = (now[str(path)] for path in (existing_arrays.CONF, existing_arrays.FSTAB))
    (md,) = [name for name in now if name.startswith("md") and " " not in name]
    assert f"MD_UUID={uuid_of(conf, 'stripe')}" in now[md].splitlines()
    assert uuid_of(conf, "stripe") != uuid_of(files[str(existing_arrays.CONF)], "stripe")
    assert "/srv/stripe" in now[f"{md} mounts"]
    for path, text in files.items():
        for line in text.splitlines():
            kept = line if "stripe" not in line else f"# replaced by aligntool: {line}"
            assert kept in now[path].splitlines()
    mounts = [line.split()[1] for line in table.splitlines() if not line.startswith("#")]
    assert sorted(mounts) == ["/srv/other", "/srv/stripe"]


def test_while_one_drive_still_has_its_member_no_line_is_replaced(blanked: dict[str, Any]) -> None:
    code, _, err = blanked["one"]["said"]
    assert code == 3, err
    for path, text in blanked["one"]["files"].items():
        assert blanked["one"]["state"][path] == text
