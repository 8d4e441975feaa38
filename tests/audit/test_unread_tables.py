"""A captured disk whose partition table was not read is unknown, wherever a verdict is shown."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aligntool.audit.report import Code
from aligntool.inventory import DiskKind, Fault, Table, TableFault, TableLabel
from aligntool.render.audit import next_finding, verdict_line
from tests.audit.builders import judge, made_disk
from tests.conftest import attached, run
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.run_aligntool import run_aligntool

GIB = 1 << 30
FINE = MadeDisk("sda", 8 * GIB, [MadePartition(1, 1 << 20, GIB)])
NOT_READ = MadeDisk("loop0", GIB)
OK = "OK: every partition of "
NOTHING = "Nothing could be judged"
NOT_ALL = "No partition is known to be misaligned; not all could be judged"
USED_WHOLE = {"ID_FS_TYPE": "ext4", "ID_FS_USAGE": "filesystem"}


def document(*words: str | Path, code: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_aligntool("audit", "--json", *words, code=code).stdout)
    return found


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "machine", [FINE, NOT_READ])


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "losetup")
def test_a_snapshot_of_a_loop_device_without_partition_nodes_is_not_ok(tmp_path: Path) -> None:
    image, snapshot = tmp_path / "disk.img", tmp_path / "machine.tar.xz"
    image.write_bytes(b"")
    run("truncate", "-s", "64M", image)
    run("sfdisk", "-q", image, stdin="label: gpt\nstart=2049, size=20000\n")
    with attached(image) as device:
        assert len(json.loads(run("sfdisk", "--json", device))["partitiontable"]["partitions"]) == 1
        assert not list(Path("/sys/block", device.name).glob(f"{device.name}p*"))
        run_aligntool("snapshot", "-o", snapshot, code=0)
    judged = run_aligntool("audit", "--sysroot", snapshot, device.name, code=1)
    assert judged.stdout.startswith("1 of 1 partition misaligned\n"), "root has captured the table"
    folder = tmp_path / "machine"
    folder.mkdir()
    run("tar", "-xf", snapshot, "-C", folder)
    shutil.rmtree(folder / "aligntool" / "sectors")  # as captured without root
    snapshot = folder
    named = run_aligntool("audit", "--sysroot", snapshot, device.name, code=3)
    assert named.stdout.startswith(f"{NOTHING}\n") and "0 starts on the grid, 0 off, 1 unknown" in named.stdout
    (disk,) = document("--sysroot", snapshot, device.name, code=3)["disks"]
    assert disk["verdict"]["answer"] == "unknown" and disk["verdict"]["matters"] and not disk["partitions"]


def test_an_audit_counts_it_as_unknown_and_exits_as_documented(captured: Path) -> None:
    """docs/cli.md, "What was not judged"."""
    first_lines: dict[tuple[str, ...], str] = {("sda",): OK, ("loop0",): NOTHING}
    for words, code in (((), 0), (("--fail-on", "error"), 3), (("loop0",), 3), (("sda",), 0)):
        done = run_aligntool("audit", "--sysroot", captured, *words, code=code)
        assert done.stdout.startswith(first_lines.get(words, NOT_ALL))
    report = document("--sysroot", captured, code=0)
    assert [unseen["what"] for unseen in report["unseen"]] == ["loop0"]
    assert [(found["code"], found["disk"]) for found in report["findings"]][:1] == [("AT902", "loop0")]
    assert (
        "1 start on the grid, 0 off, 1 unknown" in run_aligntool("audit", "--sysroot", captured).stdout.splitlines()[-2]
    )


def test_metrics_a_page_and_a_fleet_do_not_say_ok(captured: Path) -> None:
    metrics = run_aligntool("audit", "--sysroot", captured, "--format", "prometheus").stdout.splitlines()
    assert 'aligntool_disk_unseen{device="loop0"} 1' in metrics and 'aligntool_disk_unseen{device="sda"} 0' in metrics
    page = run_aligntool("report", "--sysroot", captured, "-o", "-").stdout
    assert NOT_ALL in page and OK not in page
    fleet = run_aligntool("fleet", captured, code=0).stdout.splitlines()
    assert fleet[0] == "No machine is known to have misaligned partitions; not all could be judged"
    assert fleet[1].startswith("1 start unknown; ")
    (machine,) = json.loads(run_aligntool("fleet", "--json", captured).stdout)["machines"]
    assert (machine["on_grid"], machine["off_grid"], machine["unknown"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("disk", "udev", "answer"),
    [
        ({}, {}, "unknown"),
        ({"mounted_at": ("/srv",)}, {}, "on"),
        ({}, USED_WHOLE, "on"),
        ({}, {"ID_PART_TABLE_TYPE": "gpt"}, "unknown"),  # udev has seen a table, and the kernel no partition
        ({"mounted_at": ("/srv",)}, USED_WHOLE | {"ID_PART_TABLE_TYPE": "dos"}, "unknown"),  # a hybrid ISO image
    ],
)
def test_a_disk_is_judged_as_a_whole_only_if_it_is_known_to_be_used_so(
    tmp_path: Path, disk: Mapping[str, Any], udev: Mapping[str, str], answer: str
) -> None:
    root = make_tree(tmp_path / "machine", [MadeDisk("sdb", GIB, udev=udev, **disk)])
    (found,) = document("--sysroot", root, code=0 if answer == "on" else 3)["disks"]
    assert found["verdict"]["answer"] == answer


def test_a_captured_machine_of_which_nothing_is_known_exits_as_help_promises(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "machine", [NOT_READ])
    for words in ((), ("--fail-on", "error"), ("--fail-on", "warning"), ("-q",), ("--json",)):
        done = run_aligntool("audit", "--sysroot", root, *words, code=3)
        assert words[:1] in (("-q",), ("--json",)) or done.stdout.startswith(f"{NOTHING}\n")
    assert run_aligntool("audit", "--sysroot", root, "--fail-on", "never", code=0).stdout.startswith(f"{NOTHING}\n")
    page = run_aligntool("report", "--sysroot", root, "-o", "-").stdout
    assert NOTHING in page and NOT_ALL not in page


def test_hints_for_a_captured_machine_name_it(tmp_path: Path) -> None:
    """A look at the disk is a command for here, what reads or changes the disk one for the captured machine."""
    root = make_tree(tmp_path / "two machines", [FINE, replace(FINE, name="sdb", alignment_offset=-1), NOT_READ])
    many = run_aligntool("audit", "--sysroot", root, code=0).stdout
    named = run_aligntool("audit", "--sysroot", root, "loop0", code=3)
    assert "  → on the captured machine: sudo aligntool audit /dev/loop0\n" in named.stderr
    for line in (*many.splitlines(), *named.stdout.splitlines(), *named.stderr.splitlines()):
        command = line.partition("→ ")[2]
        known = ("on the captured machine: ", "aligntool explain ", f"aligntool audit --map --sysroot '{root}' ")
        assert not command or command.startswith(known), line


@pytest.fixture
def brief(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "machine", [replace(FINE, name=f"sd{letter}") for letter in "abcdef"])


def test_the_list_of_many_captured_disks_suggests_a_command_for_them(brief: Path) -> None:
    said = run_aligntool("audit", "--sysroot", brief, code=0).stdout
    (hint,) = re.findall(r"→ (aligntool audit --sysroot \S+ )DISK shows its partitions", said)
    run_aligntool(*hint.split()[1:], "sdc", code=0)


@pytest.mark.needs_tools("sfdisk")
def test_the_headline_names_the_fault_that_hides_others(tmp_path: Path) -> None:
    image, other = tmp_path / "disk.img", tmp_path / "other.img"
    for path in (image, other):
        run("truncate", "-s", "64M", path)
        run("sfdisk", "-q", path, stdin="label: gpt\nstart=2049, size=20000\n")
    assert run_aligntool("audit", image).stdout.startswith("1 of 1 partition misaligned\n")
    with image.open("r+b") as file:
        for at in (512, (64 << 20) - 512):  # the header: its checksum does not match
            file.seek(at + 40)
            file.write(b"\1")
    done = run_aligntool("audit", image, code=1)
    assert "AT319" in done.stdout and done.stdout.startswith("Linux does not see these partitions\n")
    both = run_aligntool("audit", image, other, code=1).stdout
    assert both.startswith(f"Linux does not see the partitions of {image}\n")


def gpt_without(path: Path, *sectors: int) -> Path:
    """Make a GPT with a misaligned partition, and overwrite these sectors."""
    run("truncate", "-s", "64M", path)
    run("sfdisk", "-q", path, stdin="label: gpt\nstart=2049, size=20000\n")
    with path.open("r+b") as file:
        for sector in sectors:
            file.seek(sector * 512)
            file.write(bytes(512))
    return path


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(("sectors", "code"), [((0,), "AT310"), ((1,), "AT301"), ((0, 1), "AT301"), ((131071,), "")])
def test_the_headline_names_a_table_that_linux_does_not_read(
    tmp_path: Path, sectors: tuple[int, ...], code: str
) -> None:
    """By find_valid_gpt() in block/partitions/efi.c: unless it is started with `gpt`, Linux needs the protective MBR
    and the primary header.
    """
    image = gpt_without(tmp_path / "disk.img", *sectors)
    said = run_aligntool("audit", image, code=1).stdout
    headline = "Linux does not see these partitions" if code else "1 of 1 partition misaligned"
    assert said.startswith(f"{headline}\n")
    first = said.partition("AT")[2][:3]
    assert not code or (f"AT{first}" == code and "docs/by-hand.md#a-damaged-partition-table" in said)
    assert not code or "sgdisk -v" not in said


def test_the_headline_names_a_disk_of_which_the_kernel_shows_no_partition() -> None:
    disk = made_disk("63+1000000", physical=4096)
    unseen = replace(disk, name="sdb", path="/dev/sdb", kernel_partitions=())
    ((text, _),) = verdict_line(judge(disk, unseen))
    assert text == "Linux does not see the partitions of sdb"
    found = next_finding(judge(disk, unseen))
    assert found is not None and found.code is Code.KERNEL_DISAGREES and found.disk == "sdb"
    loop = replace(unseen, kind=DiskKind.LOOP)
    assert verdict_line(judge(loop))[0][0] == "1 of 1 partition misaligned", "perhaps it is not searched for partitions"


def test_a_damaged_table_whose_partitions_the_kernel_still_has_is_named_as_such() -> None:
    disk = made_disk("63+1000000", physical=4096)
    hurt = Table(TableLabel.GPT, 512, faults=(TableFault(Fault.GPT_PRIMARY_DAMAGED, "…", 512, hides=True),))
    ((text, _),) = verdict_line(judge(replace(disk, table=hurt)))
    assert text == "Linux may not see these partitions after a restart"


def test_a_drive_without_a_medium_is_not_counted(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "machine", [FINE, MadeDisk("sdb", 0, removable=True)])
    done = run_aligntool("audit", "--sysroot", root, "--fail-on", "error", code=0)
    assert done.stdout.startswith(OK) and "sdb is empty: no medium, or nothing attached" in " ".join(
        done.stdout.split()
    )
