"""Problems are reported before a plan is shown: by `raid plan`, `raid create --dry-run` and `apply`."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.linux.system import find_distribution
from aligntool.raid.boot import MAKERS, SYSTEMS
from tests.conftest import find_tool, run
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("losetup", "mkfs.ext4", "mdadm", "blkid"),
    pytest.mark.skipif(find_distribution() is None, reason="whose files make an array permanent is not known here"),
]
REBUILD = next((MAKERS[SYSTEMS[family].maker].rebuild[0] for family in (find_distribution(),) if family), "")
needs_rebuild = pytest.mark.skipif(
    not find_tool(REBUILD), reason=f"not installed: {REBUILD}, which a plan for this machine names"
)
SIZE = 1 << 30
WORDS = ("--level", "1", "--fs", "ext4")


@pytest.fixture
def drives(sparse: Callable[..., Path], loop: Callable[..., Path]) -> tuple[Path, Path]:
    return loop(sparse(SIZE, "a.img")), loop(sparse(SIZE, "b.img"))


@sample(5)
@needs_rebuild
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc", "something is already mounted at /proc"),
        ("/etc", "/etc is not empty"),
        ("/etc/passwd", "is not a directory"),
        ("/etc/passwd/x/y", "/etc/passwd is not a directory"),
        ("/proc/x", "no directory can be made in /proc"),
    ],
)
@pytest.mark.parametrize("command", [("raid", "plan"), ("raid", "create", "--dry-run"), ("raid", "create", "--yes")])
def test_no_plan_is_shown_for_an_unusable_mount_point(
    drives: tuple[Path, Path], command: tuple[str, ...], place: str, why: str
) -> None:
    done = run_aligntool(*command, *WORDS, "--mount", place, *drives)
    assert (done.returncode, done.stdout) == (3, "")
    assert why in done.stderr
    for drive in drives:
        assert run("wipefs", "--no-act", "--parsable", drive) == ""
    (other,) = re.findall(r"--mount (/srv/\S+)$", done.stderr, re.MULTILINE)
    assert run_aligntool("raid", "plan", *WORDS, "--mount", other, *drives).returncode == 0


def test_reasons_of_members_and_of_the_machine_are_reported_together(drives: tuple[Path, Path]) -> None:
    run("mkfs.ext4", "-q", drives[1])
    done = run_aligntool("raid", "plan", *WORDS, "--mount", "/etc", *drives)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{drives[1].name} is not empty: ext4" in done.stderr and "/etc is not empty" in done.stderr
    assert f"audit {drives[1]}" in done.stderr and "--mount /srv/etc" in done.stderr
    assert "with --wipe, which overwrites" in " ".join(done.stderr.split()) and "--wipe /dev" not in done.stderr


@needs_rebuild
def test_a_mount_point_filled_since_is_reported_before_a_saved_plan_is_shown(
    drives: tuple[Path, Path], tmp_path: Path
) -> None:
    kept, place = tmp_path / "plan.json", tmp_path / "place"
    done = run_aligntool("raid", "plan", *WORDS, "--mount", place, "-o", kept, *drives)
    assert done.returncode == 0, done.stderr
    place.mkdir()
    (place / "theirs").touch()
    done = run_aligntool("apply", "--yes", kept)
    assert (done.returncode, done.stdout) == (3, "")
    assert "a mount would hide the file theirs" in done.stderr


@needs_rebuild
def test_content_in_no_table_is_reported_before_a_plan_is_shown(drives: tuple[Path, Path]) -> None:
    """A lost partition where the new one would begin; none of it is overwritten."""
    run("mkfs.ext4", "-q", "-E", f"offset={1 << 20}", drives[0], "900M")
    done = run_aligntool("raid", "plan", *WORDS, *drives)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{drives[0]} holds ext4 at byte {1 << 20}, where the new partition begins" in done.stderr
    assert run_aligntool("raid", "plan", *WORDS, "--wipe", drives[0], *drives).returncode == 0


def test_a_plan_for_another_family_is_not_checked_against_this_machines_files(drives: tuple[Path, Path]) -> None:
    other = "arch" if find_distribution() != "arch" else "fedora"
    done = run_aligntool("raid", "plan", *WORDS, "--system", other, "--mount", "/etc", *drives)
    assert done.returncode == 0, done.stderr


def test_a_plan_for_another_system_says_what_was_not_checked(drives: tuple[Path, Path]) -> None:
    other = "arch" if find_distribution() != "arch" else "debian"
    done = run_aligntool("raid", "plan", *WORDS, "--system", other, *drives, code=0)
    assert " ".join(done.stdout.split()).count("whether its programs are installed") == 1
    assert done.stdout.count("Not checked here") == 1
