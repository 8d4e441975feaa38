"""An audit that could not read something never succeeds: exit code, JSON and all other formats name what was not
judged.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.units import GIB, MIB
from tests.conftest import run
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check
from tests.thorough import sample

ROOT = Path(__file__).parents[2]


def made(folder: Path, what: str) -> Path:
    """Return a file that is not a disk image, or one that does not exist."""
    path = folder / "target"
    match what:
        case "text":
            path.write_text("root:x:0:0::/root:/bin/sh\n" * 100)
        case "text of whole sectors":
            path.write_text("x" * 4095 + "\n")
        case "random":
            path.write_bytes(os.urandom(3 * MIB))
        case "random behind zeros":
            path.write_bytes(bytes(2 * MIB) + os.urandom(2 * MIB))
        case "odd zeros":
            path.write_bytes(bytes(1000))
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    return path


def test_the_suggested_command_for_one_of_several_targets_has_its_own_line(tmp_path: Path) -> None:
    blank = tmp_path / "blank.img"
    blank.write_bytes(bytes(2 * MIB))
    done = run_aligntool("audit", blank, tmp_path, code=3)
    assert done.stderr.count(str(tmp_path)) == 1
    done = run_aligntool("audit", blank, tmp_path / "missing", code=3)
    line = "  → the disks of this machine: aligntool audit"
    assert done.stderr.splitlines()[-1] == line


NOT_DISKS = ["text", "text of whole sectors", "random", "random behind zeros", "odd zeros", "empty", "folder", "pipe"]


@pytest.mark.parametrize("what", [*NOT_DISKS, "missing"])
def test_a_target_that_cannot_be_judged_gives_exit_code_3_in_every_format(tmp_path: Path, what: str) -> None:
    path = made(tmp_path, what)
    document = run_aligntool("audit", "--json", path)
    assert document.returncode == 3
    listed = json.loads(document.stdout)
    check(listed)
    assert [one["what"] for one in listed["unseen"]] == [str(path)] and listed["summary"]["disks"] == 0
    assert [one["code"] for one in listed["findings"]] == ["AT902"]
    quiet, metrics = (run_aligntool("audit", "-q", path), run_aligntool("audit", "--format", "prometheus", path))
    assert (quiet.returncode, metrics.returncode) == (3, 3)
    assert str(path) in quiet.stderr and 'code="AT902"' in metrics.stdout


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
def test_a_blank_image_is_an_empty_disk(tmp_path: Path, fill: bytes) -> None:
    (tmp_path / "blank.img").write_bytes(fill * 3 * MIB)
    done = run_aligntool("audit", "--json", "--fail-on", "warning", tmp_path / "blank.img")
    assert done.returncode == 0 and json.loads(done.stdout)["summary"]["disks"] == 1


@pytest.mark.needs_root
@pytest.mark.needs_tools("setpriv", "losetup")
def test_without_root_a_named_device_or_fail_on_gives_exit_code_3(
    sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    device = loop(sparse(64 * MIB))

    def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        drop = [shutil.which("setpriv") or "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        keep = "import os,sys;os.chdir('/');from aligntool.__main__ import main;main()"
        command = [*drop, "--inh-caps=-all", "--bounding-set=+dac_read_search", sys.executable, "-c", keep, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)

    done = as_nobody("audit", "-q", "--fail-on", "warning", str(device))
    if done.returncode == 127 or ("aligntool" in done.stderr and "Error" in done.stderr):
        pytest.skip("this checkout or its Python cannot be read without root")
    assert done.returncode == 3 and str(device) in done.stderr and "AT902" in done.stdout
    assert as_nobody("audit", "-q", str(device)).returncode == 3
    whole = as_nobody("audit", "--json", "--fail-on", "error")
    document = json.loads(whole.stdout)
    assert whole.returncode == 3 and device.name in {one["what"] for one in document["unseen"]}
    again = as_nobody("audit", "--json")
    summary = json.loads(again.stdout)["summary"]  # other tests may have changed the machine since
    codes = (0, 1) if summary["on_grid"] or summary["off_grid"] else (1, 3)  # 3: nothing could be judged
    assert again.returncode in codes


class TestCapturedTree:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        disks = [MadeDisk("sda", GIB, [MadePartition(1, 63 * 512, MIB), MadePartition(2, 2 * MIB, MIB)])]
        return make_tree(tmp_path / "tree", disks)

    def test_padding_added_by_tar_does_not_change_the_audit(self, root: Path, tmp_path: Path) -> None:
        """tar trusts st_size, which is 4096 in sysfs, and pads what it could not read."""
        (tmp_path / "padded.tar").touch()
        with tarfile.open(tmp_path / "padded.tar", "w") as tar:
            for path in sorted(root.rglob("*")):
                member = tar.gettarinfo(str(path), str(path.relative_to(root)))
                if path.is_symlink() or not path.is_file():
                    tar.addfile(member)
                    continue
                content = path.read_bytes()
                content += bytes(max(4096 - len(content), 0)) if path.is_relative_to(root / "sys") else b""
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        plain = run_aligntool("audit", "--json", "--sysroot", root)
        for captured in (tmp_path / "padded.tar", _unpacked(tmp_path / "padded.tar", tmp_path / "unpacked")):
            padded = run_aligntool("audit", "--json", "--sysroot", captured)
            assert padded.stdout == plain.stdout and padded.returncode == plain.returncode == 1

    @sample(6)
    @pytest.mark.parametrize("attribute", ["size", "sda1/start", "sda1/size", "sda2/start"])
    @pytest.mark.parametrize("content", [None, b"", b"\0" * 4096, b"-8\n", b"garbage\n", b"12 34\n"])
    def test_a_disk_without_a_readable_size_or_partition_is_unknown(
        self, root: Path, attribute: str, content: bytes | None
    ) -> None:
        place = (root / "sys/class/block/sda").resolve() / attribute
        place.unlink()
        if content is not None:
            place.write_bytes(content)
        done = run_aligntool("audit", "--json", "--fail-on", "error", "--sysroot", root)
        document = json.loads(done.stdout)
        assert done.returncode == 3
        assert document["disks"][0]["verdict"]["answer"] == "unknown" and document["summary"]["unknown"] >= 1
        assert [one["what"] for one in document["unseen"]] == ["sda"]
        metrics = run_aligntool("audit", "--format", "prometheus", "--sysroot", root).stdout
        assert (
            'aligntool_disk_unseen{device="sda"} 1' in metrics and 'aligned{device="sda",partition=""}' not in metrics
        )
        assert "AT902" in run_aligntool("audit", "-q", "--sysroot", root).stdout
        assert run_aligntool("audit", "--sysroot", root, "sda").returncode == 3


def _unpacked(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    run("tar", "-xf", archive, "-C", folder)
    return folder


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.parametrize(
    "words",
    [("audit",), ("plan", "realign"), ("realign", "--dry-run"), ("plan", "layout", "--part", "rest:linux"), ("status",),
     ("resume",), ("rollback",), ("bench", "run"), ("bench", "alignment"), ("bench", "span"), ("probe",),
     ("raid", "plan", "--level", "1", "other"), ("report", "-o", "-")],
)  # fmt: skip
def test_a_name_of_both_a_file_and_a_disk_is_refused_by_every_command(
    sparse: Callable[..., Path],
    loop: Callable[..., Path],
    tmp_path: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = loop(sparse(64 * MIB, "backing"))
    shutil.copyfile(tmp_path / "backing", tmp_path / device.name)
    monkeypatch.chdir(tmp_path)
    done = run_aligntool(*words, device.name)
    assert done.returncode == 3, done.stderr
    assert f"./{device.name}" in done.stderr and f"/dev/{device.name}" in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare")
@pytest.mark.parametrize("words", [("audit", "--fail-on", "never"), ("report", "-o", "-"), ("snapshot", "-o", "-")])
def test_a_machine_without_sysfs_is_not_reported_as_having_no_disks(words: tuple[str, ...]) -> None:
    shell = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys; exec "$@"', "sh", *program(*words)]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert done.stderr.startswith("aligntool: /sys is not mounted")
