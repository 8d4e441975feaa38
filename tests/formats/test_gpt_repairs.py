"""A damaged GPT is reported as sgdisk reports it, and the repair in `explain` works in that case."""

import os
import random
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Report
from aligntool.linux.look import look
from aligntool.units import MIB
from tests.conftest import find_tool, run
from tests.formats.gpt_images import SIZE, Sparse, make_gpt
from tests.formats.images import flip, patch
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sgdisk", "gdisk", "sfdisk", "mke2fs", "mkswap", "partx")

LAST = SIZE // 512 - 1


def judged(path: Path) -> Report:
    return audit(look([str(path)]), {})


def codes(report: Report) -> set[str]:
    return {one.code.value for one in report.findings}


def typed(tool: str, *words: str | Path, stdin: str = "") -> tuple[int, str]:
    """Return exit code and all output; sgdisk's exit code differs from case to case."""
    done = subprocess.run([find_tool(tool) or tool, *words], input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def starts(path: Path) -> list[int]:
    _, said = typed("sfdisk", "--dump", path)
    return [int(line.split("start=")[1].split(",")[0]) for line in said.splitlines() if "start=" in line]


def end_at(path: Path, number: int, last: int, usable: int) -> None:
    """Return the same table, except where one partition ends and which sectors are usable."""
    for lba, entries in ((1, 2), (LAST, LAST - 32)):
        content = bytearray(path.read_bytes())
        struct.pack_into("<Q", content, lba * 512 + 48, usable)
        struct.pack_into("<Q", content, entries * 512 + (number - 1) * 128 + 40, last)
        crc = zlib.crc32(content[entries * 512 : entries * 512 + 128 * 128])
        struct.pack_into("<I", content, lba * 512 + 88, crc)
        content[lba * 512 + 16 : lba * 512 + 20] = bytes(4)
        crc = zlib.crc32(content[lba * 512 : lba * 512 + 92])
        struct.pack_into("<I", content, lba * 512 + 16, crc)
        path.write_bytes(content)


def test_a_backup_alone_is_an_error_and_gdisk_restores_the_table_as_explained(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    was = starts(path)
    for start in (bytes(MIB), random.Random(1).randbytes(MIB)):
        patch(path, 0, start)
        report = judged(path)
        assert {"AT301", "AT310"} <= codes(report)
        assert [verdict.start // 512 for verdict in report.judged[0].verdicts] == was
        code, said = typed("sgdisk", "--backup=/dev/null", path)
        assert code and "Invalid partition data" in said, "then the next command may be --backup"
        assert all("--backup" not in one.next for one in report.findings)
    typed("gdisk", path, stdin="1\nr\nb\nc\ny\np\nw\ny\n")
    assert starts(path) == was and "No problems found" in run("sgdisk", "--verify", path)
    assert not {"AT301", "AT310"} & codes(judged(path))


@pytest.mark.parametrize("make", [["mke2fs", "-q", "-F"], ["mkswap", "-q"], ["mke2fs", "-q", "-F", "-t", "ext4"]])
def test_a_backup_left_by_an_older_table_under_a_file_system_is_not_a_table(sparse: Sparse, make: list[str]) -> None:
    path = make_gpt(sparse)
    patch(path, 0, bytes(MIB))
    run(*make, path)
    report = judged(path)
    assert report.judged[0].disk.table is None and not {"AT301", "AT319"} & codes(report)


def test_a_damaged_primary_is_rewritten_by_the_command_in_explain(sparse: Sparse) -> None:
    path = make_gpt(sparse)
    was = starts(path)
    flip(path, 512 + 60)
    assert "AT301" in codes(judged(path))
    assert typed("sgdisk", "-e", path)[0] == 0
    assert starts(path) == was and "AT301" not in codes(judged(path))


@sample(5)
@pytest.mark.parametrize("last", [LAST, LAST - 20, LAST - 32, LAST - 33])
@pytest.mark.parametrize("usable", ["says it may", "says it may not"])
@pytest.mark.parametrize("backup", ["whole", "overwritten"])
def test_a_partition_over_the_backup_is_an_error_exactly_where_sgdisk_aborts(
    sparse: Sparse, last: int, usable: str, backup: str
) -> None:
    path = make_gpt(sparse)
    end_at(path, 2, last, LAST if usable == "says it may" else LAST - 33)
    if backup == "overwritten":
        patch(path, SIZE - 33 * 512, os.urandom(33 * 512))
    found = codes(judged(path))
    assert ("AT302" in found) == (backup == "overwritten")
    _, said = typed("sgdisk", "-e", path)
    assert ("AT318" in found) == ("Aborting write" in said) == (last > LAST - 33)


LOST = {  # bytes that are flipped in both copies
    "header checksums": (512 + 60, SIZE - 512 + 60),
    "entries": (1024 + 60, SIZE - 33 * 512 + 60),
    "one of each": (512 + 60, SIZE - 33 * 512 + 60),
    "signatures": (512, SIZE - 512),
}


@pytest.mark.parametrize("damage", LOST)
def test_with_both_copies_damaged_no_start_is_judged_and_no_unsafe_repair_proposed(
    sparse: Sparse, damage: str, tmp_path: Path
) -> None:
    path = make_gpt(sparse, "-n1:2049:+10M")
    for offset in LOST[damage]:
        flip(path, offset)
    report = judged(path)
    found = [one for one in report.findings if one.severity.value == "error"]
    assert [one.code.value for one in found] == ["AT319"]
    assert not {"AT101", "AT301", "AT302"} & codes(report)
    disk = report.judged[0]
    assert all(verdict.answer is Answer.UNKNOWN for verdict in disk.verdicts if verdict.matters)
    assert found[0].next == f"by hand, with gdisk on {path}: docs/by-hand.md#a-damaged-partition-table"
    if damage in ("header checksums", "signatures"):
        copy = tmp_path / "typed.img"
        shutil.copy(path, copy)
        typed("sgdisk", "-e", copy)
        assert starts(copy) == [], "explain warns that sgdisk -e writes an empty table here"


@pytest.mark.needs_tools("mkswap")
def test_a_gpt_of_16384_entries_has_no_faults_and_its_partition_is_moved(sparse: Sparse) -> None:
    path = sparse(SIZE)
    run("sfdisk", "-q", path, stdin="label: gpt\ntable-length: 16384\nstart=8193, size=8192\n")
    swap = sparse(4 * MIB, "swap.img")
    run("mkswap", swap)
    patch(path, 8193 * 512, swap.read_bytes()[:4096])
    report = judged(path)
    assert [one.code.value for one in report.findings if one.code.value.startswith("AT3")] == []
    assert [verdict.start for verdict in report.judged[0].verdicts] == [8193 * 512]
    run_aligntool("realign", "--yes", path, code=0)
    assert starts(path) == [8192] and "No errors detected" in run("sfdisk", "--verify", path)
    listed = run("sgdisk", "-p", path)  # its --verify takes four seconds for so many entries
    assert "16384 entries" in listed and listed.split()[-5:-3] == ["8192", "16383"] and "CRC" not in listed
