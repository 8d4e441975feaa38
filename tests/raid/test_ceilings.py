"""The bandwidth ceiling compared with manual calculations and with a captured machine with a switch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.inventory import Source, Uplink
from aligntool.raid.ceilings import DriveRate, ceiling, ceiling_words, known_rates
from aligntool.raid.levels import LEVELS
from aligntool.recipes.drives import load_drives
from tests.audit.machines.captured import report
from tests.raid.builders import drives, linked

X4, X2 = 3_938_000_000, 1_969_000_000  # PCIe 3.0, PCIE_SPEED2MBS_ENC in the kernel's pci.h
DMI = Uplink("DMI 3.0 x4", X4, Source.KNOWN, ("nvme0n1", "nvme1n1"))


@pytest.mark.parametrize(
    ("level", "read", "write"),
    [
        ("raid0", 4 * X4, 4 * X4),
        ("raid1", 4 * X4, X4),
        ("raid10", 4 * X4, 2 * X4),
        ("raid5", 4 * X4, 3 * X4),
        ("raid6", 4 * X4, 2 * X4),
    ],
)
def test_the_rates_of_drives_on_separate_links_add_up(level: str, read: int, write: int) -> None:
    disks = [linked(disk, X4) for disk in drives(4)]
    found = ceiling(disks, (), LEVELS[level], "n2" if level == "raid10" else "")
    assert (found.read, found.write) == (read, write)


def test_a_stripe_is_limited_by_its_slowest_link() -> None:
    one, two = drives(2)
    found = ceiling([linked(one, X4), linked(two, X2, width=2)], (), LEVELS["raid0"], "")
    assert (found.read, found.write) == (2 * X2, 2 * X2)
    assert "nvme1n1" in found.binds and "8 GT/s x2" in found.binds


def test_two_drives_behind_a_chipset_are_as_fast_as_one() -> None:
    """The article: each drive PCIe 3.0 x4, all of them together DMI 3.0, which is PCIe 3.0 x4."""
    disks = [linked(disk, X4, hidden=X4) for disk in drives(2)]
    found = ceiling(disks, (DMI,), LEVELS["raid0"], "")
    assert (found.read, found.write) == (X4, X4)
    assert "DMI 3.0 x4" in found.binds
    mirror = ceiling(disks, (DMI,), LEVELS["raid1"], "")
    assert (mirror.read, mirror.write) == (X4, X4 // 2)  # every byte is transferred twice over the link


def test_only_members_below_an_uplink_share_it() -> None:
    disks = [linked(disk, X4) for disk in drives(4)]
    found = ceiling(disks, (DMI,), LEVELS["raid0"], "")
    assert found.read == 4 * (X4 // 2)
    mirror = ceiling(disks, (DMI,), LEVELS["raid1"], "")
    assert mirror.read == X4 + 2 * X4 and mirror.alone == X4
    assert any("one sequential reader" in line and "3.94 GB/s" in line for line in ceiling_words(mirror))


def test_two_members_on_one_drive_share_its_link() -> None:
    one, two = (linked(disk, X4) for disk in drives(2))
    found = ceiling([one, one, two], (), LEVELS["raid0"], "")
    assert (found.read, found.write) == (3 * (X4 // 2), 3 * (X4 // 2))
    assert ceiling([one, one], (), LEVELS["raid1"], "").write == X4 // 2
    below = ceiling([one, one, two], (DMI,), LEVELS["raid0"], "")
    assert below.read == 3 * (X4 // 3) and below.binds.endswith("shared by nvme0n1, nvme1n1")


def test_a_link_that_cannot_be_read_is_reported_as_unknown() -> None:
    one, two = drives(2)
    found = ceiling([linked(one, X4), two], (), LEVELS["raid0"], "")
    assert found.unknown == ("nvme1n1",)
    assert any("nvme1n1" in sentence for sentence in ceiling_words(found))
    assert ceiling([one, two], (), LEVELS["raid0"], "").read is None


def test_the_wider_one_of_two_paths_to_a_drive_is_used() -> None:
    one, two = drives(2)
    slow = linked(one, X2)
    both = replace(slow, links=(*slow.links, *linked(one, X4).links))
    assert ceiling([both, linked(two, X4)], (), LEVELS["raid0"], "").read == 2 * X4


def test_two_drives_behind_a_switch_of_a_captured_machine_share_its_uplink() -> None:
    """lspci there: one lane of 2.5 GT/s above the switch, 250 MB/s; nvme6n1 and nvme7n1 have such a lane each."""
    inventory = report("nvme-behind-switch").inventory
    by_name = {disk.name: disk for disk in inventory.disks}
    shared = [by_name["nvme8n1"], by_name["nvme9n1"]]
    apart = [by_name["nvme6n1"], by_name["nvme7n1"]]
    found = ceiling(shared, inventory.uplinks, LEVELS["raid0"], "")
    assert (found.read, found.write) == (250_000_000, 250_000_000)
    assert "0000:03:00.0" in found.binds
    assert ceiling(apart, inventory.uplinks, LEVELS["raid0"], "").read == 500_000_000


@given(
    widths=st.lists(st.sampled_from([X4, X2, X2 // 2]), min_size=4, max_size=8),
    level=st.sampled_from(["raid0", "raid1", "raid10", "raid5", "raid6"]),
    share=st.integers(1, 4 * X4),
)
def test_no_ceiling_exceeds_the_sum_of_links_and_none_writes_faster_than_it_reads(
    widths: list[int], level: str, share: int
) -> None:
    disks = [linked(disk, width) for disk, width in zip(drives(len(widths)), widths, strict=True)]
    uplink = Uplink("switch", share, Source.REPORTED, ("nvme0n1", "nvme1n1", "nvme2n1"))
    found = ceiling(disks, (uplink,), LEVELS[level], "n2" if level == "raid10" else "")
    assert found.read is not None and found.write is not None
    assert found.write <= found.read <= sum(widths)
    assert found.read <= sum(widths[3:]) + min(share, sum(widths[:3]))


def test_a_drive_slower_than_its_link_limits_only_the_direction_concerned() -> None:
    """The article's two SSD 750 400 GB: 2200/900 MB/s each (data sheet); the author measured 4461-4717
    and 1847-2144.
    """
    rates = {disk.name: DriveRate(2_200_000_000, 900_000_000, "known: Intel SSD 750") for disk in drives(2)}
    disks = [linked(disk, X4) for disk in drives(2)]
    found = ceiling(disks, (), LEVELS["raid0"], "", rates)
    assert (found.read, found.write) == (4_400_000_000, 1_800_000_000)
    assert "nvme0n1 itself (2.20 GB/s, known: Intel SSD 750)" in found.binds
    assert "900 MB/s" in found.binds_write
    behind = [linked(disk, X4, hidden=X4) for disk in drives(2)]
    found = ceiling(behind, (DMI,), LEVELS["raid0"], "", rates)
    assert (found.read, found.write) == (X4, 1_800_000_000)
    (said,) = ceiling_words(found)
    assert "DMI 3.0 x4" in said.partition(", and ")[0] and "nvme0n1 itself" in said.partition(", and ")[2]


def test_a_link_slower_than_its_drive_is_the_limit() -> None:
    rates = {disk.name: DriveRate(7_000_000_000, None, "measured here") for disk in drives(2)}
    found = ceiling([linked(disk, X4) for disk in drives(2)], (), LEVELS["raid0"], "", rates)
    assert (found.read, found.write) == (2 * X4, 2 * X4) and "link" in found.binds


def test_drives_with_unknown_links_have_the_ceiling_of_their_own_rates() -> None:
    rates = {disk.name: DriveRate(3_000_000_000, 1_000_000_000, "measured here") for disk in drives(2)}
    found = ceiling(drives(2), (), LEVELS["raid1"], "", rates)
    assert (found.read, found.write, found.alone) == (6_000_000_000, 1_000_000_000, 3_000_000_000)
    assert found.unknown == ("nvme0n1", "nvme1n1")


def test_the_drive_database_has_the_rates_of_the_articles_drive() -> None:
    one, two = (replace(disk, model="INTEL SSDPEDMW400G4") for disk in drives(2, size=400_088_457_216))
    rows = {disk.name: load_drives().known(disk) for disk in (one, two)}
    rates = known_rates(rows)
    assert (rates["nvme1n1"].read, rates["nvme1n1"].write) == (2_200_000_000, 900_000_000)
    assert known_rates({"nvme0n1": load_drives().known(replace(one, model="INTEL SSDPEDMW012T4"))}) == {}
