"""Arrays that are not started because members are missing: what the finding says is kept and lost.

How many members may be missing: md(4).
"""

from dataclasses import replace

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Finding
from aligntool.inventory import DiskKind, Inventory, Layer
from tests.audit.array_builders import UUID, drive
from tests.audit.builders import made_disk

KEPT, LOST, UNKNOWN = "kept: everything, if", "lost: everything", "kept: everything if each part"


def found(level: str, members: int, here: int, *, kind: str = "linux_raid_member") -> list[Finding]:
    drives = []
    for number in range(here):
        disk = drive(number)
        part = disk.partitions[0]
        layer = Layer(kind, part.extent, "1.2", uuid=UUID.replace(":", ""), raid_level=level, raid_members=members)
        drives.append(replace(disk, partitions=(replace(part, content=(layer,), content_read=True),)))
    array = made_disk(name="md127", kind=DiskKind.MD, size=0)
    array = replace(array, slaves=tuple(f"{disk.name}p1" for disk in drives))
    findings = audit(Inventory((*drives, array)), {}).findings
    return [one for one in findings if one.code.value == "AT622"]


@pytest.mark.parametrize(
    ("level", "members", "here", "expected"),
    [
        ("raid0", 2, 1, LOST),
        ("linear", 2, 1, LOST),
        ("raid1", 2, 1, KEPT),
        ("raid1", 3, 1, KEPT),
        ("raid5", 3, 2, KEPT),
        ("raid5", 3, 1, LOST),
        ("raid6", 4, 2, KEPT),
        ("raid6", 4, 1, LOST),
        ("raid10", 4, 3, UNKNOWN),
        ("raid1", 2, 2, "no member is missing"),
    ],
)
def test_the_finding_states_what_of_the_array_can_be_kept(level: str, members: int, here: int, expected: str) -> None:
    (finding,) = found(level, members, here)
    assert finding.severity.value == "error" and finding.evidence[0].startswith(expected)
    assert f"{level} is not started, {here} of {members} members here: nvme0n1p1" in finding.summary
    assert ("--wipe" in finding.evidence[1]) == (expected == LOST)


def test_nothing_is_stated_without_the_superblocks_of_all_members_that_are_there() -> None:
    assert found("raid1", 2, 1, kind="ext4") == [] and found("raid1", 2, 0) == []
