"""Data members and capacity, compared with the kernel's values for such arrays."""

import pytest

from aligntool.raid.levels import LEVELS, capacity, data_members, may_fail
from aligntool.units import GIB, KIB

# io_opt in sysfs of arrays made on five emulated NVMe drives (kernel 6.12): level, layout, members, chunk, io_opt.
MEASURED = [
    ("raid0", "", 4, 512, 2097152),
    ("raid0", "", 3, 512, 1572864),
    ("raid10", "n2", 4, 512, 1048576),
    ("raid10", "n2", 3, 512, 1572864),
    ("raid10", "f2", 4, 64, 262144),
    # mdadm's number of o2 is 0x10201 and of o3 0x10301: near_copies, which io_opt divides by, is the lowest byte
    # (drivers/md/raid10.c, setup_geo and raid10_set_queue_limits).
    ("raid10", "o2", 4, 512, 2097152),
    ("raid10", "o3", 6, 64, 393216),
    ("raid5", "left-symmetric", 4, 512, 1572864),
    ("raid6", "left-symmetric", 4, 64, 131072),
]


@pytest.mark.parametrize(("level", "layout", "members", "chunk", "optimal"), MEASURED)
def test_a_full_stripe_equals_the_optimal_io_size_of_the_kernel(
    level: str, layout: str, members: int, chunk: int, optimal: int
) -> None:
    assert data_members(LEVELS[level], members, layout) * chunk * KIB == optimal


@pytest.mark.parametrize(
    ("level", "layout", "members", "times"),
    [
        ("raid0", "", 3, 3.0),
        ("raid1", "", 3, 1.0),
        ("raid10", "n2", 4, 2.0),
        ("raid10", "n2", 3, 1.5),
        ("raid10", "f3", 3, 1.0),
        ("raid10", "o2", 4, 2.0),
        ("raid5", "left-symmetric", 4, 3.0),
        ("raid6", "left-symmetric", 6, 4.0),
    ],
)
def test_the_capacity_is_net_of_copies_and_parity(level: str, layout: str, members: int, times: float) -> None:
    """md(4)."""
    assert capacity(LEVELS[level], members, layout, GIB) == times * GIB


@pytest.mark.parametrize(
    ("level", "layout", "members", "number"),
    [
        ("raid0", "", 3, 0),
        ("raid1", "", 3, 2),
        ("raid10", "n2", 4, 1),
        ("raid10", "f3", 3, 2),
        ("raid5", "left-symmetric", 4, 1),
        ("raid6", "left-symmetric", 6, 2),
    ],
)
def test_as_many_members_may_fail_as_md_4_says(level: str, layout: str, members: int, number: int) -> None:
    assert may_fail(LEVELS[level], members, layout) == number
