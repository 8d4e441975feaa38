"""`aligntool raid` as a user types it: what it prints, stores and refuses."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.change import RAID_WORDS, ArrayRequest, RaidGoal, plan_with_request, request_in_document, to_json
from aligntool.cli.raid import ArrayOptions, apply_command
from aligntool.commands import ByHand, by_hand
from aligntool.raid.levels import LEVELS
from aligntool.units import GIB, KIB, MIB
from tests.conftest import run
from tests.raid.builders import drives, planned
from tests.raid.golden_plans import RECIPES, golden_plan
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / "tests/audit/machines" / "md-on-misaligned-partitions.tar.xz"


def test_a_plan_without_its_request_is_not_applied(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(golden_plan(RECIPES[0])))
    done = run_aligntool("apply", "--yes", file)
    assert done.returncode == 3
    assert "does not contain the request" in done.stderr and done.stdout == ""


def test_a_saved_plan_for_missing_drives_is_not_applied(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan = golden_plan(RECIPES[0])
    file.write_text(plan_with_request(plan, "wanted", ArrayRequest(("/nowhere/a", "/nowhere/b"), RaidGoal("raid1"))))
    wanted = request_in_document(file.read_text(), "wanted", ArrayRequest)
    assert wanted == ArrayRequest(("/nowhere/a", "/nowhere/b"), RaidGoal("raid1"))
    done = run_aligntool("apply", "--yes", file)
    assert done.returncode == 3 and "serial S0000, which was /dev/nvme0n1, is missing" in done.stderr
    check(json.loads(file.read_text()))


def test_every_golden_plan_conforms_to_the_published_schema() -> None:
    for each in RECIPES:
        check(json.loads(to_json(golden_plan(each))))


def test_image_files_are_refused_with_how_they_become_devices(sparse: Callable[..., Path]) -> None:
    done = run_aligntool("raid", "create", "--dry-run", "--level", "1", sparse(GIB, "a.img"), sparse(GIB, "b.img"))
    assert done.returncode == 3
    assert done.stderr.count("by hand, with losetup on ") == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--level", "3", "x"], 2, "not a RAID level"),
        (["x", "y"], 2, "no RAID level given"),
        (["--recipe", "raid1-dta", "x"], 3, "aligntool recipes show raid1-data"),
        (["--level", "1", "/nowhere/a", "/nowhere/b"], 3, "/nowhere/b: No such file"),
    ],
)
def test_an_invalid_command_is_refused_with_what_to_type(words: list[str], code: int, said: str) -> None:
    done = run_aligntool("raid", "plan", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_arrays_of_a_captured_machine_are_shown_as_json() -> None:
    """mdadm --detail --scan listed these on it."""
    shown = run_aligntool("raid", "show", "--json", "--sysroot", MACHINE, "md2", "md4")
    check(json.loads(shown.stdout))
    listed = json.loads(shown.stdout)["arrays"]
    assert [each["name"] for each in listed] == ["md2", "md4"]
    assert [member["data_at"] for member in listed[0]["members"]] == [631242752] * 3


def test_the_command_that_applies_a_plan_has_all_its_words_except_dry_run() -> None:
    words = ["/dev/md127", "--mount", "/srv/my data", "--dry-run", "--system", "debian"]
    said = "sudo aligntool raid persist /dev/md127 --mount '/srv/my data' --system debian"
    assert apply_command("raid persist", words) == said


def test_hints_about_arrays_of_a_captured_machine_are_for_that_machine(tmp_path: Path) -> None:
    run("tar", "-xf", MACHINE, "-C", tmp_path)
    for size in (tmp_path / "sys/devices").rglob("nvme*n1/*p*/start"):  # off every boundary
        size.write_text(f"{int(size.read_text()) + 1}\n")
    shown = run_aligntool("raid", "show", "--json", "--sysroot", tmp_path)
    hints = [hint for each in json.loads(shown.stdout)["arrays"] for hint in each["next"]]
    here = f"aligntool audit --map --sysroot {tmp_path} "  # a look at what was captured
    assert hints and all(hint.startswith(("on the captured machine: ", "aligntool explain ", here)) for hint in hints)
    assert any(hint.startswith("on the captured machine: ") for hint in hints)


@pytest.mark.parametrize("word", ["show", "persist"])
def test_hints_name_the_arrays_of_a_captured_machine_with_its_sysroot(word: str) -> None:
    refused = run_aligntool("raid", word, "nope", "--sysroot", MACHINE, code=3)
    hints = [line.strip(" →") for line in refused.stderr.splitlines()[1:]]
    assert len(hints) == 7 and all(f"aligntool raid {word} --sysroot {MACHINE} md" in hint for hint in hints)
    if word == "show":
        assert "md0" in run_aligntool(*shlex.split(hints[0])[1:], code=0).stdout


def test_the_command_for_an_array_of_another_machine_is_marked_for_there(tmp_path: Path) -> None:
    """The capture contains no system files; those of a Debian without any ARRAY line are added."""
    run("tar", "-xf", MACHINE, "-C", tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text("ID=debian\n")
    for more in ((), ("--dry-run",), ("-o", tmp_path / "plan.json")):
        done = run_aligntool("raid", "persist", "md2", "--sysroot", tmp_path, *more)
        assert done.returncode == 0 and "edit /etc/mdadm/mdadm.conf" in done.stdout, done.stderr
        assert done.stdout.splitlines()[-1] == "→ on the captured machine: sudo aligntool raid persist md2"
    assert json.loads((tmp_path / "plan.json").read_text())["plan"]["purpose"] == "persist"


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare", "mount")
def test_a_plan_that_is_only_shown_ends_with_the_command_that_applies_it(tmp_path: Path) -> None:
    """Here, with the capture's sysfs in a mount namespace of its own, the array belongs to this machine."""
    run("tar", "-xf", MACHINE, "-C", tmp_path)
    script = 'mount --bind "$1" /sys && shift && exec "$@"'
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(tmp_path / "sys")]
    kept = tmp_path / "plan.json"
    for more, said in (
        (["--dry-run"], "sudo aligntool raid persist /dev/md2 --system arch"),
        (["-o", str(kept)], f"sudo aligntool apply {kept}"),
    ):
        words = ["raid", "persist", "/dev/md2", "--system", "arch", *more]
        done = subprocess.run([*inside, *program(*words)], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"→ {said}"


def test_recipes_for_arrays_are_listed_shown_and_checked() -> None:
    listed = run_aligntool("recipes", "list").stdout
    assert "aligntool raid plan DEVICE... --recipe NAME" in listed and "raid6-archive" in listed
    shown = run_aligntool("recipes", "show", "nvme-raid0-scratch").stdout
    assert "chunk 256KiB" in shown and "mounted noatime,logbufs=8" in shown
    assert run_aligntool("recipes", "check", ROOT / "recipes" / "raid" / "raid1-system.toml").returncode == 0


def test_a_file_system_other_than_the_recipes_gets_none_of_its_values() -> None:
    goals = [
        ArrayOptions(recipe="nvme-raid0-scratch", filesystem=kind, system="debian").goal()
        for kind in RAID_WORDS["filesystem"]
    ]
    own, *others = ((goal.mount_options, goal.block_size, goal.inode_size, goal.log_size) for goal in goals)
    assert own == (("noatime", "logbufs=8"), 4096, 512, 64 * MIB) and others == [(None,) * 4] * 4
    assert [goal.place for goal in goals] == ["/srv/scratch", "/srv/scratch", "/srv/scratch", "", ""]


@pytest.mark.parametrize("level", list(LEVELS))
def test_a_level_other_than_the_recipes_gets_none_of_its_values(level: str) -> None:
    scratch = ArrayOptions(level=level, recipe="nvme-raid0-scratch", system="debian").goal()
    assert scratch.chunk == (256 * KIB if level == "raid0" else None)
    database = ArrayOptions(level=level, recipe="raid10-database", system="debian").goal()
    assert database.layout == ("n2" if level == "raid10" else None)
    planned(scratch, *drives(4))
    planned(database, *drives(4))


def test_a_database_page_without_a_database_workload_is_refused() -> None:
    words = ("raid", "plan", "--level", "1", "--system", "debian", "--database-page", "8KiB")
    done = run_aligntool(*words, "/nowhere/a", "/nowhere/b")
    assert (done.returncode, done.stdout) == (2, "") and "--workload database" in done.stderr
    for more in (("--workload", "database"), ("--recipe", "raid10-database")):
        assert "/nowhere/b: No such file" in run_aligntool(*words, *more, "/nowhere/a", "/nowhere/b").stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare", "mount")
def test_an_unknown_distribution_is_refused_without_a_given_system(tmp_path: Path) -> None:
    """With another os-release(5) in a mount namespace of its own, which ends with the command."""
    release = tmp_path / "os-release"
    release.write_text("ID=templeos\n")
    script = 'mount --bind "$1" /usr/lib/os-release && mount --bind "$1" /etc/os-release && shift && exec "$@"'
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(release), *program()]
    drives = ["raid", "plan", "--level", "1", "/nowhere/a", "/nowhere/b"]
    done = subprocess.run([*words, *drives], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3 and "family of this system is unknown" in done.stderr
    assert "--system: debian, debian-dracut, fedora, opensuse, arch" in done.stderr
    done = subprocess.run(
        [*words, *drives, "--system", "arch"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 3 and "family" not in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "mkfs.ext4", "mkfs.xfs", "mdadm")
def test_a_plan_changes_no_drives_and_refuses_those_that_are_not_empty(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    one, two = loop(sparse(GIB, "a.img")), loop(sparse(GIB, "b.img"))
    kept = tmp_path / "plan.json"
    done = run_aligntool("raid", "plan", "-v", "--level", "1", "--system", "debian", "-o", kept, one, two)
    assert done.returncode == 0, done.stderr
    assert "--raid-devices=2" in done.stdout and f"{one}p1 {two}p1" in " ".join(done.stdout.split())
    assert json.loads(kept.read_text())["plan"]["purpose"] == "raid"
    assert run("sfdisk", "--json", one, fails=True) == ""
    dry = run_aligntool("raid", "create", "--dry-run", "--verbose", "--level", "1", "--system", "debian", one, two)
    assert dry.returncode == 0 and "--raid-devices=2" in dry.stdout
    assert run("sfdisk", "--json", one, fails=True) == ""
    run("mkfs.ext4", "-q", two)
    full = run_aligntool("raid", "plan", "--level", "1", one, two)
    assert full.returncode == 3 and f"{two.name} is not empty: ext4" in full.stderr
    assert run_aligntool("raid", "plan", "--level", "1", "--wipe", two, one, two).returncode == 0


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk", "partx")
def test_a_partition_in_flight_is_refused_although_it_looks_empty(
    sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    """Its signatures are in the journal meanwhile: docs/crash-safety.md."""
    parked = "label: gpt\nstart=2048, size=400000, type=49D6ADEB-B2C3-4691-8FA8-BFBAC209865B, name=x\n"
    drives = [loop(sparse(300 * MIB, name)) for name in ("a.img", "b.img")]
    for drive in drives:
        run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", drive, stdin=parked)
        run("partx", "-a", drive)
    parts = [f"{drive}p1" for drive in drives]
    wiped = [word for drive in drives for word in ("--wipe", drive)]
    for words in (
        ("raid", "plan", "--level", "1", "--system", "debian", *parts),
        ("raid", "plan", "--level", "1", "--system", "debian", *wiped, *drives),
        ("raid", "tune", "--level", "0", "--dry-run", *parts),
        ("bench", parts[0], "--profile", "boot", "--destructive", "--dry-run"),
    ):
        done = run_aligntool(*words)
        assert (done.returncode, done.stdout) == (3, ""), words
        assert "partitions of this disk are in flight" in done.stderr


def test_a_command_for_a_captured_machine_has_no_name_that_the_snapshot_masked(tmp_path: Path) -> None:
    shown = run_aligntool("raid", "show", "md0", "--sysroot", MACHINE).stdout
    assert "on it: ext4, mounted at /masked/" in shown  # a path of the snapshot only
    (step,) = (line for line in shown.splitlines() if "→" in line)
    assert step == f"  → on the captured machine: {by_hand(ByHand.MEMBERS, 'mdadm', '/dev/md0')}"
    words = ("--level", "0", "--system", "debian", "--sysroot", MACHINE, "vdh3", "vdc2")
    refused = run_aligntool("raid", "plan", *words, code=3).stderr
    assert "vdh3 is mounted at /masked/" in refused
    assert "→ on the captured machine: release what uses it (umount), under names that are masked here\n" in refused
    assert not any("masked/" in line for line in refused.splitlines() if "→" in line)
    page = tmp_path / "page.html"
    run_aligntool("report", "--sysroot", MACHINE, "-o", page)
    boxes = re.findall("<pre[^>]*><code>(.*?)</code>", page.read_text(), re.DOTALL)
    assert boxes and not any("masked" in box for box in boxes)
