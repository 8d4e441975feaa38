"""The manifest of a snapshot: time, version, machine, and how much the machine wrote to each disk."""

import json
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aligntool import __version__
from aligntool.linux.files import write_snapshot
from aligntool.linux.look import look
from aligntool.linux.snapshot import Masks, collect, mask_file
from aligntool.linux.sysfs import LIVE, Tree, read_written
from aligntool.system import Manifest
from aligntool.units import GIB
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.run_aligntool import run_aligntool

# Documentation/admin-guide/iostats.rst: field 7 is "sectors written"; three columns name the device before it.
DISKSTATS = """\
   8       0 sda 100 0 2000 50 300 0 40960 60 0 70 80 0 0 0 0 0 0
   8       1 sda1 90 0 1900 50 200 0 20480 60 0 70 80 0 0 0 0 0 0
   8      16 sdb 1 2 3
"""
UPTIME = "1024.00 4000.12\n"


def machine(folder: Path, *, host: str = "db7.example.org") -> Path:
    root = make_tree(folder, [MadeDisk("sda", 8 * GIB, [MadePartition(1, 32256, GIB)], model="DISK")])
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/hostname").write_text(f"{host}\n")
    (root / "proc/diskstats").write_text(DISKSTATS)
    (root / "proc/uptime").write_text(UPTIME)
    return root


def snapshot_of(root: Path, archive: Path, *, host: bool) -> Path:
    write_snapshot(str(archive), collect(Tree(str(root)), serials=False, host=host))
    return archive


def test_a_snapshot_has_its_date_and_version_and_a_host_name_only_on_request(tmp_path: Path) -> None:
    root = machine(tmp_path / "tree")
    began = datetime.now(UTC).replace(microsecond=0)
    archive = snapshot_of(root, tmp_path / "a.tar.xz", host=False)
    manifest = look([], sysroot=str(archive)).manifest
    assert manifest.date and began <= datetime.fromisoformat(manifest.date) <= datetime.now(UTC)
    assert (manifest.aligntool, manifest.host) == (__version__, None)
    entries = list(collect(Tree(str(root)), serials=False))
    assert not any(b"db7" in entry.content for entry in entries)


def test_the_host_name_is_in_the_report_if_it_was_requested(tmp_path: Path) -> None:
    named = snapshot_of(machine(tmp_path / "tree"), tmp_path / "a.tar.xz", host=True)
    document = json.loads(run_aligntool("audit", "--json", "--sysroot", named).stdout)
    assert document["host"] == "db7.example.org" and re.fullmatch(r"[\d-]{10}T[\d:]{8}Z", document["date"])


def test_an_audit_of_this_machine_has_its_time_and_its_name_only_on_request(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(1 << 20))
    before = time.time()
    document = json.loads(run_aligntool("audit", "--json", image).stdout)
    assert document["host"] is None
    assert int(before) <= datetime.fromisoformat(document["date"]).timestamp() <= time.time()
    document = json.loads(run_aligntool("audit", "--json", "--host", image).stdout)
    assert document["host"] == subprocess.check_output(["uname", "-n"], text=True).strip()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"host": 7}', b'{"date": ' + b"[" * 4000, b"\xff\xfe", b"null"]
)
def test_an_invalid_manifest_gives_no_facts(tmp_path: Path, content: bytes) -> None:
    root = machine(tmp_path)
    (root / "aligntool").mkdir()
    (root / "aligntool/manifest.json").write_bytes(content)
    assert look([], sysroot=str(root)).manifest == Manifest()


def test_the_rate_of_writes_is_that_of_the_kernel_s_counters(tmp_path: Path) -> None:
    """40960 sectors of 512 bytes in 1024 s; a truncated line is ignored."""
    assert read_written(Tree(str(machine(tmp_path)))) == {"sda": 20480.0, "sda1": 10240.0}


def test_the_counters_are_included_in_a_snapshot(tmp_path: Path) -> None:
    archive, out = snapshot_of(machine(tmp_path / "tree"), tmp_path / "a.tar", host=False), tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", out], check=True)
    assert read_written(Tree(str(out))) == {"sda": 20480.0, "sda1": 10240.0}


@pytest.mark.parametrize("uptime", ["", "0.00 1.0\n", "-5.0 1\n", "nan 1\n", "1e9999 1\n", "9" * 500])
def test_an_invalid_uptime_gives_no_rate(tmp_path: Path, uptime: str) -> None:
    root = machine(tmp_path)
    (root / "proc/uptime").write_text(uptime)
    assert read_written(Tree(str(root))) == {}


def test_the_rates_of_this_machine_are_those_of_sysfs() -> None:
    """Documentation/block/stat.rst: the seventh number is the sectors written."""
    disks = [path for path in Path("/sys/block").iterdir() if (path / "device").exists()]
    before = {path.name: int((path / "stat").read_text().split()[6]) for path in disks}
    rates = read_written(LIVE)
    seconds = float(Path("/proc/uptime").read_text().split()[0])
    assert before and all(rates[name] * seconds + 1 >= sectors * 512 for name, sectors in before.items())


def test_a_captured_health_page_is_read_and_everything_except_health_is_masked(tmp_path: Path) -> None:
    """NVMe base specification 2.0, figure 207: byte 0 critical warning, bit 2: degraded reliability; byte 5 used."""
    log = bytearray(range(1, 256)) + bytearray(257)
    log[0], log[5] = 0x04, 93
    masked = mask_file(Masks(), "/aligntool/identify/nvme0n1.health", bytes(log)) or b""
    assert len(masked) == 512 and masked[:6] == log[:6] and masked[160:176] == log[160:176]
    assert not any(masked[6:160]) and not any(masked[176:])
    root = make_tree(tmp_path, [MadeDisk("nvme0n1", GIB, model="PRO")])
    (root / "aligntool/identify").mkdir(parents=True)
    (root / "aligntool/identify/nvme0n1.health").write_bytes(masked)
    (disk,) = look([], sysroot=str(root)).disks
    assert disk.failing == "its reliability is degraded"
    assert disk.health is not None and disk.health.used_percent == 93
