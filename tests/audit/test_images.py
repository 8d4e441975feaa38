"""Images without a reported sector size, made by the tools of each format."""

from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Severity
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits
from aligntool.units import KIB, MIB
from tests.conftest import run
from tests.run_aligntool import run_aligntool


@pytest.mark.needs_tools("mkfs.fat")
def test_a_floppy_disk_has_no_cost(tmp_path: Path) -> None:
    floppy = tmp_path / "floppy.img"
    floppy.write_bytes(bytes(1440 * KIB))
    run("mkfs.fat", floppy)
    report = audit(look([str(floppy)]), {})
    assert [one.code.value for one in report.findings if one.cost or one.severity is not Severity.INFO] == []


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("sectors", [None, 512, 4096])
def test_an_mbr_of_ambiguous_sector_size_is_not_judged_until_one_is_given(tmp_path: Path, sectors: int | None) -> None:
    """A table for sectors of 4096 bytes, for which sfdisk writes the same bytes, with empty partitions."""
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(64 * MIB))
    run("sfdisk", "-q", image, stdin="label: dos\nunit: sectors\nstart=257, size=1000\nstart=1300, size=1000\n")
    report = audit(look([str(image)], given=UserLimits(sector_size=sectors)), {})
    answer = {None: Answer.UNKNOWN, 512: Answer.OFF, 4096: Answer.ON}[sectors]
    assert report.judged[0].verdicts[0].answer is answer
    assert ("AT101" in [one.code.value for one in report.findings]) == (sectors == 512)
    note = next(one for one in report.findings if one.code.value == "AT204")
    assert sectors or "512" in note.summary.split(";")[2]


@pytest.mark.needs_tools("mkfs.ext4", "mkfs.fat", "sfdisk")
def test_the_start_of_a_partition_is_not_in_its_image(tmp_path: Path) -> None:
    """The verdict stays: it is that of a file system on a whole disk."""
    image, floppy, disk = tmp_path / "part.img", tmp_path / "floppy.img", tmp_path / "disk.img"
    run("mkfs.ext4", "-q", "-F", image, "8m")
    run("mkfs.fat", "-C", floppy, "1440")
    disk.write_bytes(bytes(8 * MIB))
    run("sfdisk", "-q", disk, stdin="label: gpt\nstart=2048\n")
    note = "if this is the image of a partition, its start"
    said = {name: run_aligntool("audit", name, code=0).stdout for name in (image, floppy, disk)}
    assert [note in text for text in said.values()] == [True, False, False]
    page = run_aligntool("report", "-o", "-", image).stdout
    assert note in page and "start on the grid" in said[image]


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "sfdisk", "losetup")
def test_an_attached_image_is_first_of_all_in_use(tmp_path: Path) -> None:
    """A file system that is mounted there looks unclean here, and a checker would not notice the mount."""
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(40 * MIB))
    run("sfdisk", "-q", image, stdin="label: dos\nstart=63, size=65536, type=83\n")
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={63 * 512}", image, "32M")
    run("debugfs", "-w", "-R", "feature needs_recovery", f"{image}?offset={63 * 512}")
    assert "e2fsck" in run_aligntool("audit", image).stdout
    device = run("losetup", "-f", "--show", image).strip()
    try:
        said = run_aligntool("audit", image).stdout
    finally:
        run("losetup", "-d", device)
    assert f"sudo losetup -d {device}" in said
    assert "e2fsck" not in said
