"""The whole command on slow drives: nbdkit, nbdfuse, a loop device; real requests, real direct I/O.

The penalties are much larger than the delays that a busy computer adds, and nothing is measured in seconds.
"""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aligntool.units import GIB, KIB, MIB
from tests.conftest import is_blank, run
from tests.measure.unit.right_or_unknown import Answer, classify, right_or_unknown
from tests.measure.unit.slow_drives import aligntool, device_over, measured, needs_nbdkit, slow_drive
from tests.run_aligntool import run_aligntool


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the test data that a probe leaves in a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def probed(target: Path, *words: str | Path) -> dict[str, Any]:
    return measured("probe", target, "--largest", "64KiB", "--limit", "600", *words)


def expect_unit(size: int) -> Callable[[dict[str, Any]], Answer]:
    """Judge the answer; every reported boundary counts as one, not only the unit."""

    def judge(found: dict[str, Any]) -> Answer:
        boundaries = [one["size"] for one in found["boundaries"]]
        return Answer.UNKNOWN if not boundaries else classify((found["unit"], boundaries), (size, [size]))

    return judge


def by_writes_across(size: int) -> Callable[[dict[str, Any]], Answer]:
    """Require a unit of this size, with writes that cross its boundary as evidence."""
    judge = expect_unit(size)

    def and_across(found: dict[str, Any]) -> Answer:
        answer = judge(found)
        kinds = {one["kind"] for boundary in found["boundaries"] for one in boundary["evidence"]}
        return Answer.UNKNOWN if answer is Answer.RIGHT and "write across" not in kinds else answer

    return and_across


@pytest.mark.needs_root
@needs_nbdkit
def test_a_loop_device_over_a_slow_drive_shows_its_page_and_the_audit_uses_it(tmp_path: Path) -> None:
    kept = tmp_path / "measured.json"
    with slow_drive(tmp_path, "page=16384", "base_us=500", "page_us=10000") as file, device_over(file) as device:

        def measure() -> dict[str, Any]:
            kept.unlink(missing_ok=True)
            return probed(device, "--most", "2MiB", "-o", kept)

        found = right_or_unknown(measure, expect_unit(16 * KIB))
        out, _ = aligntool("audit", device, "--measured", kept, "--json")
    assert found["experiment"]["written"] == 0
    (evidence,) = found["boundaries"][0]["evidence"]
    assert evidence["interval_us"][1] > 9_000 and evidence["interval_us"][0] < 13_000
    (disk,) = json.loads(out)["disks"]
    assert {"indirection unit", "measured", 16 * KIB} <= {
        value for grid in disk["grids"] for value in grid.values() if isinstance(value, str | int)
    }


@needs_nbdkit
def test_the_unit_of_a_drive_without_pages_is_unknown(tmp_path: Path) -> None:
    with slow_drive(tmp_path, "base_us=1000") as file:
        found = probed(file, "--most", "1MiB")
        assert found["unit"] is None
        assert found["boundaries"] == []


@needs_nbdkit
def test_a_disk_that_may_be_overwritten_shows_the_unit_of_its_writes_too(tmp_path: Path) -> None:
    with slow_drive(tmp_path, "unit=8192", "base_us=200", "part_us=3000") as file:
        words = ("--destructive", "--wipe", file, "--yes", "--most", "30MiB", "--sector-size", "1024")
        found = right_or_unknown(lambda: probed(file, *words), by_writes_across(8 * KIB))
    assert found["experiment"]["written"] > 0


@needs_nbdkit
def test_a_drive_with_slow_small_writes_has_no_unit_and_the_audit_uses_none(tmp_path: Path) -> None:
    kept = tmp_path / "measured.json"
    with slow_drive(tmp_path, "small=16384", "base_us=200", "small_us=3000") as file:
        words = ("--destructive", "--wipe", file, "--yes", "--most", "30MiB", "--sector-size", "1024", "-o", kept)
        found = probed(file, *words)
    with file.open("wb") as blank:  # the drive is gone with everything written to it: a disk of the same name and size
        blank.truncate(GIB)
    out, _ = aligntool("audit", file, "--measured", kept, "--json")
    assert found["unit"] is None and found["boundaries"] == []
    assert found["experiment"]["written"] > 0
    # The halves of 16 KiB do take longer, which must not be taken for a unit.
    part, shifted = (
        next(one["median_us"] for one in looked["penalties"] if one["level"] == 16 * KIB)
        for kind in ("write part", "write shifted")
        for looked in found["looked"]
        if looked["kind"] == kind
    )
    assert part > 2000 > abs(shifted)
    (disk,) = json.loads(out)["disks"]
    assert "measured" not in {value for grid in disk["grids"] for value in grid.values() if isinstance(value, str)}


@pytest.mark.needs_tools("mkfs.ext4")
def test_a_disk_with_content_is_not_written_to(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(64 * MIB))
    run("mkfs.ext4", "-q", "-F", image)
    before = image.read_bytes()
    _, said = aligntool("probe", image, "--destructive", "--yes", code=3)
    assert "is not empty: ext4" in said
    assert image.read_bytes() == before


def test_a_disk_with_unrecognised_data_is_written_to_only_if_it_is_named(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(32 * MIB) + os.urandom(1 * MIB) + bytes(31 * MIB))
    before = image.read_bytes()
    words = ("probe", image, "--destructive", "--yes", "--largest", "64KiB", "--most", "16MiB", "--limit", "600")
    said = run_aligntool(*words, code=3).stderr
    assert "is not empty: unrecognised data" in said and f"--wipe {image}" in said
    assert image.read_bytes() == before
    run_aligntool(*words, "--wipe", image, code=0)
    assert image.read_bytes() != before
    run_aligntool(*words, code=0)


def test_reading_changes_nothing_and_requires_no_confirmation(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(range(256)) * (64 * MIB // 256))
    before = image.read_bytes()
    found = probed(image, "--most", "512KiB")  # an audit recognises nothing in it
    assert image.read_bytes() == before
    assert found["experiment"]["written"] == 0
    assert found["experiment"]["zeros"] == 0.0


def test_an_empty_disk_requires_its_name_as_confirmation(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(64 * MIB))
    _, said = aligntool("probe", image, "--destructive", code=3)
    assert "there is no terminal for the confirmation; nothing was written" in said
    assert is_blank(image)


def test_the_test_file_in_a_folder_is_removed_again(tmp_path: Path) -> None:
    _skip_without_file_extents(tmp_path)
    out, _ = aligntool("probe", tmp_path, "--size", "64MiB", "--most", "32MiB", "--json")
    found = json.loads(out)
    assert found["experiment"]["written"] > 0
    assert found["experiment"]["file"].startswith(f"{tmp_path}/.aligntool-probe-")
    assert not list(tmp_path.iterdir())


def test_a_measurement_is_refused_for_another_disk(tmp_path: Path) -> None:
    image, other, kept = tmp_path / "disk.img", tmp_path / "other.img", tmp_path / "measured.json"
    for one in (image, other):
        with one.open("wb") as file:
            file.truncate(64 * MIB)
    probed(image, "--most", "512KiB", "-o", kept)
    aligntool("audit", image, "--measured", kept)
    _, said = aligntool("audit", other, "--measured", kept, code=3)
    assert "was measured on another disk" in said


def test_an_invalid_result_is_refused_with_the_command_that_creates_one(tmp_path: Path) -> None:
    """It can be typed as printed."""
    image, kept = tmp_path / "my disk.img", tmp_path / "measured.json"
    image.write_bytes(bytes(MIB) + bytes(range(256)) * (62 * MIB // 256) + bytes(MIB))
    kept.write_text("{}")
    _, said = aligntool("audit", image, "--measured", kept, code=3)
    (hint,) = (line.removeprefix("  → ") for line in said.splitlines() if line.startswith("  → "))
    words = shlex.split(hint)
    assert words[:3] == ["aligntool", "probe", str(image)]
    run_aligntool(*words[1:], "--most", "2MiB", "--largest", "64KiB", cwd=tmp_path, code=0)
    aligntool("audit", image, "--measured", tmp_path / words[-1])


def test_an_unwritable_result_file_is_reported_before_anything_is_measured(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(64 * MIB))
    for output, words in ((tmp_path, "is a folder"), (tmp_path / "gone" / "x", "gone is not a folder")):
        for command in (("probe",), ("bench",), ("bench", "alignment"), ("bench", "span")):
            _, said = aligntool(*command, image, "-o", output, code=3)
            assert words in said and "nothing was measured" in said


def test_a_result_never_overwrites_another_file(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    aligntool("probe", tmp_path, "-o", kept, code=3)
    assert kept.read_text() == "mine"


@pytest.mark.needs_tools("filefrag")
def test_the_extents_of_a_file_are_those_that_filefrag_prints(tmp_path: Path) -> None:
    from aligntool.linux.file_extents import file_extents

    _skip_without_file_extents(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(b"x" * (5 * MIB))
    with path.open("rb") as file:
        runs = file_extents(file.fileno(), str(path)).runs
    # Lines such as "   0:        0..    1279:     345678..    346957:   1280:   last,eof"
    classify = [line.split(":") for line in run("filefrag", "-v", "-b1", path).splitlines() if ".." in line]
    pieces = [(int(line[1].split("..")[0]), int(line[2].split("..")[0])) for line in classify]
    start = runs[0].disk.start - pieces[0][1]  # of the partition
    assert [(run.file_start, run.disk.start - start) for run in runs] == _merged(pieces, classify)
    assert sum(run.disk.length for run in runs) == 5 * MIB


def _skip_without_file_extents(folder: Path) -> None:
    number = folder.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists():
        pytest.skip("the temporary folder lies on no single block device (btrfs, overlay, tmpfs)")


def _merged(pieces: list[tuple[int, int]], classify: list[list[str]]) -> list[tuple[int, int]]:
    """Merge adjacent extents: filefrag prints each, and aligntool counts contiguous ones as one."""
    lengths = [int(line[3]) for line in classify]
    kept = pieces[:1]
    for before, length, piece in zip(pieces, lengths, pieces[1:], strict=False):
        if piece != (before[0] + length, before[1] + length):
            kept.append(piece)
    return kept
