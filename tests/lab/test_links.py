"""The links of drives, their shared uplink, and the bandwidth for an array on them, against lspci in the same guest.

Two drives are behind a switch as QEMU makes it, with one lane of 2.5 GT/s for both. Three more are on root ports, and
their links appear as four lanes, two lanes, and a link that trained to a fraction of what both ends can do (see
`odd_disks.LINKS`): QEMU 7.2 cannot make those, so the link registers in the guest's configuration space are replaced.
lspci decodes that space itself; aligntool reads the kernel's attributes.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import REFERENCE_TOOLS
from tests.lab.odd_disks import BEHIND_SWITCH, DRIVES, LINKS, PLANS, SLOWED, X2, X4
from tests.lab.reference_output import links

pytestmark = [
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "udevadm"),
    pytest.mark.needs_tools("sfdisk", "parted", "nvme", "lspci", "mdadm", "mkfs.xfs"),
]
PART = REFERENCE_TOOLS

# Bytes per second of one lane: 8b/10b below 8 GT/s, 128b/130b from there on (PCI Express Base Specification).
LANE = {2.5: 2.5e9 * 8 / 10 / 8, 8: 8e9 * 128 / 130 / 8}
BEHIND_PORTS = (*BEHIND_SWITCH, X4, X2, SLOWED)


@pytest.fixture(scope="module")
def audit(said: Path) -> dict[str, Any]:
    found = json.loads((said / "audit-nvme.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def seen(said: Path) -> dict[str, str]:
    return links(said)


def disk(audit: dict[str, Any], serial: str) -> dict[str, Any]:
    (found,) = (each for each in audit["disks"] if each["serial"] == serial)
    assert isinstance(found, dict)
    return found


def addresses(said: Path, serial: str) -> list[str]:
    """Return the devices on the way from a drive up to the root bus, as folders of sysfs."""
    places = dict(line.split(" ", 1) for line in (said / "places").read_text().splitlines())
    return re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", places[serial])[::-1]


def link(seen: dict[str, str], address: str, register: str) -> tuple[float, int] | None:
    """Return (GT/s, lanes) of LnkCap or LnkSta; None if the device has no such register."""
    found = re.search(rf"{register}:.*?Speed ([\d.]+)GT/s.*?Width x(\d+)", seen[address])
    return (float(found[1]), int(found[2])) if found else None


@pytest.mark.parametrize("serial", [drive.serial for drive in DRIVES])
def test_the_path_to_a_drive_and_each_of_its_links_are_those_that_lspci_prints(
    said: Path, audit: dict[str, Any], seen: dict[str, str], serial: str
) -> None:
    (path,) = disk(audit, serial)["links"]
    assert [hop["address"] for hop in path] == addresses(said, serial)
    for hop in path:
        now, most = link(seen, hop["address"], "LnkSta"), link(seen, hop["address"], "LnkCap")
        assert hop["speed_gts"] is None or (hop["speed_gts"], hop["width"]) == now
        assert hop["max_speed_gts"] is None or (hop["max_speed_gts"], hop["max_width"]) == most
    drive = path[0]
    assert (drive["speed_gts"] is None) == (link(seen, drive["address"], "LnkSta") is None)


@pytest.mark.parametrize("serial", LINKS)
def test_lspci_decodes_the_links_as_intended(said: Path, seen: dict[str, str], serial: str) -> None:
    for address, meant in zip(addresses(said, serial), LINKS[serial], strict=True):
        assert link(seen, address, "LnkSta") == (meant.speed, meant.width)
        assert link(seen, address, "LnkCap") == (meant.max_speed, meant.max_width)


def test_the_two_drives_behind_the_switch_share_its_uplink(
    said: Path, audit: dict[str, Any], seen: dict[str, str]
) -> None:
    left, right = (addresses(said, drive.serial) for drive in BEHIND_SWITCH)
    assert left[:2] != right[:2]
    assert left[2:] == right[2:]
    upstream = left[2]
    assert "Upstream Port" in seen[upstream]
    names = {disk(audit, drive.serial)["name"] for drive in BEHIND_SWITCH}
    (uplink,) = audit["uplinks"]
    assert (uplink["name"], set(uplink["members"])) == (upstream, names)
    now = link(seen, upstream, "LnkSta")
    assert now == (2.5, 1)
    assert uplink["bandwidth"] == now[1] * LANE[now[0]]
    (finding,) = (each for each in audit["findings"] if each["code"] == "AT502")
    assert upstream in finding["summary"]
    assert all(name in finding["summary"] for name in names)


def test_a_slow_link_is_a_fault_only_if_both_ends_are_capable_of_more(
    said: Path, audit: dict[str, Any], seen: dict[str, str]
) -> None:
    found = {
        (each["code"], drive.serial)
        for drive in DRIVES
        for each in audit["findings"]
        if each["disk"] == disk(audit, drive.serial)["name"] and each["code"] in ("AT501", "AT509")
    }
    assert found == {("AT501", SLOWED.serial), ("AT509", X2.serial)}
    # lspci marks a drive that runs below its own maximum, and does not judge ports.
    marked = {
        drive.serial: [
            "downgraded" in (re.search(r"LnkSta:.*", seen[address]) or [""])[0]
            for address in addresses(said, drive.serial)
        ]
        for drive in (X4, X2, SLOWED)
    }
    assert marked == {X4.serial: [False, False], X2.serial: [True, False], SLOWED.serial: [True, False]}


# The bandwidth for an array on these drives


def plan(said: Path, name: str) -> str:
    """Return the notes of a plan, which state the ceiling."""
    text = (said / f"plan-{name}.json").read_text()
    assert text, (said / f"plan-{name}.json.err").read_text()
    return "\n".join(json.loads(text)["plan"]["notes"])


def carried(seen: dict[str, str], address: str) -> float:
    """Return the bytes per second of a link, from the output of lspci."""
    now = link(seen, address, "LnkSta")
    assert now
    return now[1] * LANE[now[0]]


def ceiling(notes: str) -> tuple[float, float, str]:
    """Return (reading, writing, limiting factor); the rates are in bytes per second."""
    found = re.search(r"at most ([\d.]+) ([GM])B/s for reads.*?([\d.]+) ([GM])B/s for writes", notes)
    binds = re.search(r"at most .*?, limited by (.*)", notes)
    assert found, notes
    assert binds, notes
    scale = {"G": 1e9, "M": 1e6}
    return float(found[1]) * scale[found[2]], float(found[3]) * scale[found[4]], binds[0]


def test_the_rate_of_a_stripe_is_its_narrowest_link_times_its_members(said: Path, seen: dict[str, str]) -> None:
    narrow = addresses(said, X2.serial)[0]
    reading, writing, binds = ceiling(plan(said, "x4-and-x2"))
    slowest = min(carried(seen, addresses(said, serial)[0]) for serial in PLANS["x4-and-x2"][1])
    assert reading == writing == pytest.approx(2 * slowest, rel=0.005)
    assert narrow in binds
    assert "8 GT/s x2" in binds


def test_the_rate_of_a_stripe_behind_one_uplink_is_that_of_the_uplink(said: Path, seen: dict[str, str]) -> None:
    upstream = addresses(said, BEHIND_SWITCH[0].serial)[2]
    reading, writing, binds = ceiling(plan(said, "behind-switch"))
    assert reading == writing == pytest.approx(carried(seen, upstream), rel=0.005)
    assert upstream in binds
    assert "shared by" in binds


def test_a_mirror_reads_from_both_links_and_writes_at_the_rate_of_the_slower(said: Path, seen: dict[str, str]) -> None:
    rates = [carried(seen, addresses(said, serial)[0]) for serial in PLANS["slowed-mirror"][1]]
    reading, writing, _ = ceiling(plan(said, "slowed-mirror"))
    assert reading == pytest.approx(sum(rates), rel=0.005)
    assert writing == pytest.approx(min(rates), rel=0.005)
