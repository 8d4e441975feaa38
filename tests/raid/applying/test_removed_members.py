"""A removed member of a reformat that was interrupted: it is not formatted if it was used for anything else since."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.errors import Stopped
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_reformat import stop_if_not_its_own, stop_if_reused
from aligntool.steps import FormatMember, NewEntry, subject
from aligntool.units import MIB, Extent
from tests.conftest import run

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("losetup", "sfdisk", "blkid", "mkfs.ext4")]

MEMBER = Extent(MIB, 32 * MIB)


@pytest.fixture(params=["whole", "partition"])
def case(request: pytest.FixtureRequest, sparse: Callable[..., Path], loop: Callable[..., Path]) -> FormatMember:
    drive = loop(sparse(64 * MIB))
    entries = (NewEntry(1, MEMBER, "raid", ""),) if request.param == "partition" else ()
    if entries:
        run("sfdisk", "--quiet", "--no-tell-kernel", drive, stdin="label: gpt\nstart=1MiB, size=32MiB\n")
    device = f"{drive}p1" if entries else str(drive)
    step = FormatMember("0:0:0:0", "/dev/md/data", subject(read_disk(str(drive))), device, 1, 0, 512, 3, 4096, entries)
    return step


def test_a_blank_drive_is_formatted(case: FormatMember) -> None:
    """An interrupted format may have left it so."""
    stop_if_not_its_own(read_disk(case.disk.path), case)


def test_a_drive_with_data_but_no_signature_is_not_formatted(case: FormatMember) -> None:
    """Such as those of a plain dm-crypt, or of a database on the drive itself."""
    path = Path(case.disk.path)
    with path.open("r+b") as drive:
        drive.seek(2 * MIB)
        drive.write(bytes(range(1, 256)) * (4 * MIB // 255))
    with pytest.raises(Stopped, match="has no superblock of the array, but data at") as stopped:
        stop_if_not_its_own(read_disk(case.disk.path), case)
    assert f"with nvme on {path}, to format 3: docs/by-hand.md#another-sector-size" in stopped.value.hint
    with pytest.raises(Stopped, match="it is not overwritten"):
        stop_if_reused(case.disk.path, MEMBER, "blkdiscard")


def test_a_drive_with_recognised_content_passes_this_check(case: FormatMember) -> None:
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={case.entries[0].extent.start if case.entries else 0}",
        case.disk.path, "16M")  # fmt: skip
    stop_if_not_its_own(read_disk(case.disk.path), case)
