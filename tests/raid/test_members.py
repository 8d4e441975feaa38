"""What a plan reports of the drives for an array."""

from dataclasses import replace

import pytest

from aligntool.change import Plan
from aligntool.inventory import Disk, Health, NvmeFacts, Source, Uplink
from aligntool.units import MIB
from tests.raid.builders import drives, goal, linked, planned

X4 = 3_938_000_000
WELL = Health(used_percent=3, spare_percent=100, spare_threshold=10, media_errors=0, temperature_c=41)


def with_health(**words: object) -> Disk:
    return replace(drives(1)[0], health=replace(WELL, **words))  # type: ignore[arg-type]


def notes(plan: Plan) -> str:
    return "\n".join(plan.notes)


def test_wear_spare_blocks_and_temperature_are_reported_for_each_member() -> None:
    said = notes(planned(goal(), with_health(), drives(2)[1]))
    assert (
        "nvme0n1: 3 % of its rated endurance used, 100 % of its spare blocks left (warns below 10 %), no media "
        "errors, 41 °C" in said
    )
    assert "nvme1n1: 3 %" not in said


def test_only_a_drive_whose_health_was_not_read_is_reported() -> None:
    one, two = drives(2)
    said = planned(goal(), replace(one, health=None), two).attention
    assert [line for line in said if line.startswith("health not read: nvme0n1; ")]
    assert not [line for line in planned(goal(), one, two).attention if "health" in line]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"used_percent": 80}, "little rated endurance left: nvme0n1 80 % used"),
        ({"media_errors": 4}, "nvme0n1 reports 4 unrecoverable media errors"),
        ({"too_hot": True}, "nvme0n1 is above its own temperature threshold"),
        ({"used_percent": 23}, "unevenly worn: nvme0n1 23 %, nvme1n1 3 %"),
    ],
)
def test_a_problem_of_a_member_needs_attention(words: dict[str, object], said: str) -> None:
    other = replace(drives(2)[1], health=WELL)
    assert any(said in line for line in planned(goal(), with_health(**words), other).attention)
    well = planned(goal(), with_health(used_percent=22), other).attention
    assert not any(word in line for line in well for word in ("endurance", "worn", "hot", "media errors"))


def test_members_on_different_numa_nodes_are_reported_with_the_consequence() -> None:
    one, two = drives(2)
    said = planned(goal(), replace(one, numa_node=0), replace(two, numa_node=1)).attention
    assert any("NUMA nodes: nvme0n1 0, nvme1n1 1" in line and "between the processors" in line for line in said)
    for other in (0, None, -1):
        said = planned(goal(), replace(one, numa_node=0), replace(two, numa_node=other)).attention
        assert not any("NUMA" in line for line in said)


def test_a_shared_uplink_is_reported_for_each_member_below_it() -> None:
    disks = [linked(disk, X4, hidden=X4) for disk in drives(3)]
    uplink = Uplink("DMI 3.0 x4", X4, Source.KNOWN, ("nvme0n1", "nvme1n1"))
    said = notes(planned(goal(), *disks, uplinks=(uplink,)))
    assert "nvme0n1 shares DMI 3.0 x4 with nvme1n1" in said and "nvme1n1 shares DMI 3.0 x4 with nvme0n1" in said
    assert "nvme2n1 shares" not in said


def test_a_link_is_reported_with_its_current_and_maximum_values() -> None:
    disk = linked(drives(1)[0], X4)
    most = replace(disk.links[0][0], max_speed_gts=8.0, max_width=4)
    plan = planned(goal(), replace(disk, links=((most,),)), linked(drives(2)[1], X4))
    assert "link 8 GT/s x4, its maximum" in notes(plan)
    slow = replace(most, bandwidth=X4 // 2, width=2, max_bandwidth=X4)
    plan = planned(goal(), replace(disk, links=((slow,),)), linked(drives(2)[1], X4))
    assert "link 8 GT/s x2 of 8 GT/s x4" in notes(plan)


@pytest.mark.parametrize(
    ("granted", "said"),
    [(64 * MIB, "requests 64MiB of host memory and got 64MiB"), (0, "and got nothing"), (None, "of host memory:")],
)
def test_a_host_memory_buffer_is_reported_as_requested_and_as_granted(granted: int | None, said: str) -> None:
    one, two = drives(2)
    facts = NvmeFacts(hmb_preferred=64 * MIB, hmb_granted=granted)
    assert said in notes(planned(goal(), replace(one, nvme=facts), two))
