"""Links, buffers and queues: numbers from the articles and the PCIe specification."""

from dataclasses import replace
from itertools import product

import pytest

from aligntool.audit.drives import MAP_SHARE, drive_findings
from aligntool.audit.report import Severity
from aligntool.inventory import (
    Adapter,
    Disk,
    DiskKind,
    Inventory,
    LbaFormat,
    LinkHop,
    NvmeFacts,
    Port,
    Source,
    Unseen,
    Uplink,
)
from aligntool.measure.targets import drive_state
from aligntool.units import GIB, KIB, MIB
from tests.audit.builders import codes, judge, made_disk

GEN3_LANE = 984_600_000  # bytes/s after 128b/130b, kernel PCIE_SPEED2MBS_ENC


def drive(name: str = "nvme0n1", **facts: object) -> Disk:
    return replace(made_disk(name=name, kind=DiskKind.NVME, rotational=False, physical=4096), **facts)  # type: ignore[arg-type]


def hop(port: Port, width: int, max_width: int, speed: float = 8.0, max_speed: float = 8.0) -> LinkHop:
    lane = {2.5: 250_000_000, 5.0: 500_000_000, 8.0: GEN3_LANE}
    return LinkHop("0000:01:00.0", port, None, speed, width, max_speed, max_width,
                   width * lane[speed], max_width * lane[max_speed])  # fmt: skip


def test_an_x4_drive_that_runs_at_x2_in_an_x4_slot_is_degraded() -> None:
    path = (hop(Port.ENDPOINT, 2, 4), hop(Port.CPU_ROOT, 2, 4))
    report = judge(drive(links=(path,)))
    assert (codes(report), report.findings[0].severity) == (["AT501"], Severity.WARNING)


def test_a_drive_in_a_slower_slot_is_only_noted() -> None:
    path = (hop(Port.ENDPOINT, 4, 4, 5.0, 8.0), hop(Port.CPU_ROOT, 4, 4, 5.0, 5.0))
    assert codes(judge(drive(links=(path,)))) == ["AT509"]


def test_a_drive_at_its_full_link_speed_has_no_finding() -> None:
    assert codes(judge(drive(links=((hop(Port.ENDPOINT, 4, 4), hop(Port.CPU_ROOT, 4, 16)),)))) == []


def test_a_drive_behind_the_chipset_is_noted() -> None:
    path = (hop(Port.ENDPOINT, 4, 4), hop(Port.CHIPSET_ROOT, 4, 4))
    assert codes(judge(drive(links=(path,)))) == ["AT503"]


def test_two_drives_on_dmi_3_are_a_warning_and_one_is_not() -> None:
    from aligntool.audit.judge import audit

    path = (hop(Port.ENDPOINT, 4, 4), hop(Port.CHIPSET_ROOT, 4, 4))
    disks = (drive(links=(path,)), drive("nvme1n1", links=(path,)))
    dmi = Uplink("DMI 3.0 x4", 4 * GEN3_LANE, Source.KNOWN, ("nvme0n1", "nvme1n1"))
    report = audit(Inventory(disks, uplinks=(dmi,)), {})
    assert codes(report)[0] == "AT502"
    alone = audit(Inventory(disks[:1], uplinks=(replace(dmi, members=("nvme0n1",)),)), {})
    assert "AT502" not in codes(alone)


def test_hidden_drives_and_vmd_are_named() -> None:
    from aligntool.audit.judge import audit

    adapters = (
        Adapter("0000:00:17.0", "RAID bus controller", remapped_nvme=2),
        Adapter("0000:00:0e.0", None, vmd=True),
    )
    assert codes(audit(Inventory((), adapters=adapters), {})) == ["AT504", "AT505"]


def test_the_mapping_table_is_a_1024th_of_the_capacity_so_64_mib_cover_64_gib() -> None:
    assert MAP_SHARE == 1024 and 64 * MIB * MAP_SHARE == 64 * GIB


def test_a_small_host_memory_buffer_is_reported_with_the_capacity_it_covers() -> None:
    facts = NvmeFacts(hmb_preferred=64 * MIB, hmb_minimum=10 * MIB, hmb_granted=32 * MIB)
    report = judge(drive(nvme=facts, size=512 * GIB))
    assert codes(report) == ["AT506", "AT507"]
    assert "32GiB" in report.findings[1].summary
    full = judge(drive(nvme=replace(facts, hmb_granted=64 * MIB), size=512 * GIB))
    assert codes(full) == ["AT507"]
    off = judge(drive(nvme=replace(facts, hmb_granted=None, hmb_enabled=False), size=512 * GIB))
    assert codes(off) == ["AT506", "AT507"] and "nothing" in off.findings[0].summary


def test_a_faster_lba_format_that_the_drive_supports_is_named() -> None:
    formats = (LbaFormat(0, 512, 0, 2), LbaFormat(1, 4096, 0, 0), LbaFormat(2, 4096, 8, 0))
    report = judge(drive(nvme=NvmeFacts(formats, 0)))
    assert codes(report) == ["AT206"] and "format 1 (4096 bytes)" in report.findings[0].summary
    assert codes(judge(drive(nvme=NvmeFacts(formats, 1)))) == []


def test_nvme_units_become_grids_only_if_a_partition_can_be_aligned_to_them() -> None:
    units = {grid.size for grid in judge(drive(nvme=NvmeFacts(preferred_write_granularity=64 * KIB))).judged[0].grids}
    assert 64 * KIB in units
    bogus = {grid.size for grid in judge(drive(nvme=NvmeFacts(preferred_write_granularity=24 * KIB))).judged[0].grids}
    assert 24 * KIB not in bogus


def test_a_queue_of_one_on_sata_is_noted() -> None:
    assert codes(judge(replace(made_disk(), queue_depth=1))) == ["AT508"]
    assert codes(judge(replace(made_disk(), queue_depth=32))) == []


def test_unread_information_is_reported_for_each_disk() -> None:
    report = judge(replace(made_disk(), unseen=(Unseen("partition table", "needs root", "sudo aligntool audit"),)))
    assert codes(report) == ["AT901"] and report.findings[0].next == "sudo aligntool audit"


def test_a_buffer_of_unknown_size_is_reported_neither_as_small_nor_as_granted() -> None:
    unknown = judge(drive(nvme=NvmeFacts(hmb_preferred=64 * MIB), size=512 * GIB))
    assert codes(unknown) == ["AT507"] and "would map" in unknown.findings[0].summary
    on = judge(drive(nvme=NvmeFacts(hmb_preferred=64 * MIB, hmb_enabled=True), size=512 * GIB))
    assert codes(on) == ["AT507"]
    known = judge(drive(nvme=NvmeFacts(hmb_preferred=64 * MIB, hmb_granted=64 * MIB), size=512 * GIB))
    assert " maps at most 64GiB of its 512GiB" in known.findings[0].summary


def test_a_link_whose_port_reports_nothing_is_compared_with_the_drive_alone() -> None:
    silent = LinkHop("0000:00:01.0", Port.ROOT)
    assert codes(judge(drive(links=((hop(Port.ENDPOINT, 2, 4), silent),)))) == ["AT501"]
    assert codes(judge(drive(links=((hop(Port.ENDPOINT, 4, 4), silent),)))) == []
    assert codes(judge(drive(links=((),)))) == []
    slow = judge(drive(links=((hop(Port.ENDPOINT, 2, 4), silent),))).findings[0]
    assert slow.severity is Severity.INFO  # the slot may have two lanes


GENERATIONS = {2.5: 250_000_000, 5.0: 500_000_000, 8.0: GEN3_LANE, 16.0: 2 * GEN3_LANE, 32.0: 4 * GEN3_LANE}


def end(port: Port, now: tuple[float, int], most: tuple[float, int]) -> LinkHop:
    (speed, width), (max_speed, max_width) = now, most
    return LinkHop("0000:01:00.0", port, None, speed, width, max_speed, max_width,
                   width * GENERATIONS[speed], max_width * GENERATIONS[max_speed])  # fmt: skip


@pytest.mark.parametrize(
    ("of_drive", "of_slot"),
    [((16.0, 4), (8.0, 8)), ((32.0, 4), (16.0, 8)), ((8.0, 4), (5.0, 8)), ((16.0, 4), (32.0, 2))],
)
def test_a_link_at_the_common_maximum_of_both_ends_is_not_degraded(
    of_drive: tuple[float, int], of_slot: tuple[float, int]
) -> None:
    trained = (min(of_drive[0], of_slot[0]), min(of_drive[1], of_slot[1]))
    path = (end(Port.ENDPOINT, trained, of_drive), end(Port.CPU_ROOT, trained, of_slot))
    assert codes(judge(drive(links=(path,)))) == ["AT509"]
    assert not drive_state(drive(name="no-such", links=(path,))).link_slowed
    narrow = (end(Port.ENDPOINT, (2.5, 1), of_drive), end(Port.CPU_ROOT, (2.5, 1), of_slot))
    assert drive_state(drive(name="no-such", links=(narrow,))).link_slowed


def test_every_pair_of_link_ends_is_judged_at_every_speed_and_width() -> None:
    # PCI Express: both ends train the fastest speed and the most lanes that they have in common.
    kinds = tuple(product(GENERATIONS, (1, 2, 4, 8, 16)))
    for most, slot in product(kinds, kinds):
        common = (min(most[0], slot[0]), min(most[1], slot[1]))
        for now in product(GENERATIONS, (1, 2, 4, 8, 16)):
            if now[0] > common[0] or now[1] > common[1]:
                continue
            path = (end(Port.ENDPOINT, now, most), end(Port.CPU_ROOT, now, slot))
            found = [each.code.value for each in drive_findings(drive(links=(path,)), ())]
            expected = ["AT501"] if now != common else ["AT509"] if common != most else []
            assert found == expected, (most, slot, now)
