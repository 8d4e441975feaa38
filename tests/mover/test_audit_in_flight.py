"""A move in flight is an error in every output of an audit, and parked partitions are not compared with anything."""

import json
import random
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Code, Severity
from aligntool.linux.look import look
from aligntool.mover.journal_search import find_journal
from aligntool.mover.status import journal_status
from tests.conftest import run
from tests.mover.command_line import aligntool
from tests.mover.conftest import MakeDisk
from tests.mover.crowded_disks import make_crowd
from tests.mover.disks import Row
from tests.mover.entries import entries
from tests.mover.filesystems import FILESYSTEMS, SECTOR
from tests.mover.simulated_disk import SimulatedDisk, crashes
from tests.mover.test_kills import packed
from tests.mover.test_simulated_cuts import act
from tests.run_aligntool import program, run_aligntool
from tests.thorough import THOROUGH, sample

KINDS = {kind.name: kind for kind in FILESYSTEMS}


def killed_while_copying(image: Path, *options: str) -> None:
    """SIGKILL when the program reports that a copy has begun; at that rate the copy takes seconds."""
    words = ["realign", "--yes", "--json", "--rate", "512KiB", *options, str(image)]
    with subprocess.Popen(program(*words), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step-begun" and event["step"] == "CopyContent":
                break
        process.kill()
    assert process.returncode == -9, "it was to be killed in the copy"


CASES = {
    "gpt": ("gpt", (Row(KINDS["fat16"], 34),), 8 * 2048, False),
    "mbr, primary": ("dos", (Row(KINDS["fat16"], 63),), 8 * 2048, False),
    "mbr, logical": (
        "dos",
        (Row(KINDS["fat12"], 2048), Row(KINDS["fat12"], 10 * 2048 + 63, logical=True)),
        8 * 2048,
        False,
    ),
    "journal in a file": ("dos", (Row(KINDS["fat12"], 63),), 2048 - 63, True),
    "journal in a file, gpt": ("gpt", (Row(KINDS["fat12"], 63),), 2048 - 63 + 40, True),
}


@sample(2)
@pytest.mark.needs_tools("sfdisk", "mkfs.fat", "mcopy")
@pytest.mark.on_disk
@pytest.mark.parametrize("case", CASES)
def test_a_killed_move_is_an_error_in_every_output_until_resumed(case: str, make: MakeDisk, tmp_path: Path) -> None:
    label, rows, free, elsewhere = CASES[case]
    disk = make(label, *rows, free=free)
    journal = tmp_path / "journal"
    if elsewhere and run("stat", "-f", "-c", "%T", tmp_path).strip() == "tmpfs":
        pytest.skip("temporary files lie in memory here, where no journal may lie")
    killed_while_copying(disk.image, *(("--journal", str(journal)) if elsewhere else ()))

    parked = {number for number, seen in entries(disk.image.read_bytes()).items() if seen.parked}
    document = json.loads(body(aligntool("audit", "--json", disk.image, code=1)))
    found = [one for one in document["findings"] if one["code"] == "AT317"]
    assert [one["severity"] for one in found] == ["error"]
    assert document["disks"][0]["table"]["in_flight"]["partitions"] == sorted(parked) != []
    judged = [one for one in document["findings"] if one["partition"] in parked and one["code"][2] in "14"]
    assert judged == []
    assert document["summary"]["unknown"] == len(parked)
    assert "AT317" in aligntool("audit", "-q", disk.image, code=1)
    assert 'code="AT317",severity="error"} 1' in aligntool("audit", "--format=prometheus", disk.image, code=1)
    page = tmp_path / "report.html"
    aligntool("report", disk.image, "-o", page, code=None)
    assert "AT317" in page.read_text()

    words = shlex.split(found[0]["commands"][0].replace("FILE", shlex.quote(str(journal))))
    assert words[:2] == ["aligntool", "resume"] and ("--journal" in words) == elsewhere
    aligntool(*words[1:], "--yes")
    after = json.loads(body(aligntool("audit", "--json", disk.image, code=None)))
    assert after["disks"][0]["table"]["in_flight"] is None
    assert "AT317" not in [one["code"] for one in after["findings"]]


def body(said: str) -> str:
    return said[said.index("{") : said.rindex("}") + 1]


@sample(1)
@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("seed", range(2 if THOROUGH else 1))
def test_at_every_cut_the_audit_reports_the_parked_partitions_without_judging_them(
    label: str, seed: int, tmp_path: Path
) -> None:
    crowd = make_crowd(5000 + seed, label)
    whole = act(crowd, crowd.platter, "realign")
    image, reported = tmp_path / "cut.img", 0
    for number, platter in enumerate(crashes(crowd.platter, whole.log, random.Random(seed))):
        if 40 < number < len(whole.log) - 40 and number % 29:
            continue  # the middle is the same for the table
        image.write_bytes(platter)
        report = audit(look([str(image)]), {})
        findings = [one for one in report.findings if one.code is Code.IN_FLIGHT]
        state = journal_status(SimulatedDisk(platter), None).state
        parked = {number for number, seen in entries(platter).items() if seen.parked}
        assert bool(findings) >= bool(parked), f"cut {number}"
        is_left = find_journal(SimulatedDisk(platter), None) is None  # only to be zeroed
        # One copy is torn, and the other shows no parked entry.
        if state == "in-flight" and not findings and not is_left:
            torn = {Code.GPT_PRIMARY_DAMAGED, Code.GPT_BACKUP_DAMAGED}
            assert torn & {one.code for one in report.findings}, f"cut {number}"
        if findings:
            reported += 1
            assert state == "in-flight", f"cut {number}"
            assert findings[0].severity is Severity.ERROR and "aligntool resume" in findings[0].next
            assert [one.code for one in report.findings if one.code.startswith("AT3")] == [Code.IN_FLIGHT]
        assert not [one for one in report.findings if one.partition in parked and one.code[2] in "14"]
    assert reported > 20


@pytest.mark.needs_tools("sfdisk")
def test_a_partition_of_type_7f_of_another_program_is_audited_as_any_other(tmp_path: Path) -> None:
    """sfdisk writes the usual CHS addresses, which no journal can have."""
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(8 << 20))
    run("sfdisk", "-q", image, stdin="label: dos\nunit: sectors\nstart=63, size=8000, type=7f\n")
    report = audit(look([str(image)]), {})
    assert [one.code for one in report.findings if one.severity is Severity.ERROR] == [Code.OFF_PHYSICAL]


NEW_TABLE = "label: dos\n"


@pytest.mark.needs_tools("sfdisk", "mkfs.fat", "mcopy", "mkfs.ext4", "debugfs", "e2fsck", "mkswap", "swaplabel")
@pytest.mark.parametrize("table", ["new", "old", "none"])
def test_a_move_under_another_table_is_an_error_and_goes_both_ways(make: MakeDisk, tmp_path: Path, table: str) -> None:
    """Who sees unknown entries writes the old table back; sfdisk places the second EBR by a rule of its own."""
    disk = packed(make, "dos", 63, "fat12", "ext2", "swap", logical=1)
    before, dump = disk.seen(), run("sfdisk", "--dump", disk.image)
    killed_while_copying(disk.image)
    if table == "none":
        with disk.image.open("r+b") as file:
            file.write(bytes(SECTOR))
    else:
        run("sfdisk", "-q", "--wipe=never", disk.image, stdin=NEW_TABLE if table == "new" else dump)
    document = json.loads(body(aligntool("audit", "--json", disk.image, code=3 if table == "none" else 1)))
    codes = [one["code"] for one in document["findings"] if one["severity"] == "error"]
    assert codes == ([] if table == "none" else ["AT317"])  # an image without a table is not judged at all
    if table == "none":
        hints = run_aligntool("audit", disk.image, code=3).stderr.replace("'", "")
        assert f"→ aligntool status {disk.image}\n" in hints and "→ file" not in hints
    for way in ("resume", "rollback"):
        copy = tmp_path / f"{way}.img"
        shutil.copyfile(disk.image, copy)
        aligntool(way, "--yes", copy, *(("--restore-table",) if table == "new" else ()))
        assert replace(disk, image=copy).seen() == before
        replace(disk, image=copy).check()
