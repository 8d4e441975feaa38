"""The commands as a user types them."""

import fcntl
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aligntool.cli.app import COMMANDS
from aligntool.linux.programs import run_program
from tests.conftest import run
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check

ROOT = Path(__file__).parents[2]
CAPTURED = str(ROOT / "tests/audit/machines/nvme-behind-switch.tar.xz")


@pytest.fixture
def old_disk(tmp_path: Path) -> Path:
    """Make the table of a PC of 2005 with sfdisk."""
    image = tmp_path / "old disk.img"
    with image.open("wb") as file:
        file.truncate(1 << 30)
    script = "label: dos\nunit: sectors\nstart=63, size=208782, type=7, bootable\nstart=208845, size=1000000, type=83\n"
    run("sfdisk", "-q", image, stdin=script)
    return image


@pytest.mark.needs_tools("sfdisk")
def test_an_audit_of_an_old_disk_exits_with_1_and_prints_nothing_on_stderr(old_disk: Path) -> None:
    done = run_aligntool("audit", old_disk)
    assert done.returncode == 1
    assert "AT101" in done.stdout and "32256B" in done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80 + len(str(old_disk))


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 1),
        (("--fail-on", "never"), 0),
        (("--physical-sector-size", "512"), 0),
        (("--physical-sector-size", "512", "--page-size", "16KiB"), 0),
        (("--physical-sector-size", "512", "--page-size", "16KiB", "--fail-on", "warning"), 1),
    ],
)
def test_the_exit_code_follows_fail_on_and_the_geometry_given(
    old_disk: Path, options: tuple[str, ...], code: int
) -> None:
    assert run_aligntool("audit", *options, old_disk).returncode == code


@pytest.mark.needs_tools("sfdisk")
def test_an_audit_begins_with_the_verdict_in_a_sentence(old_disk: Path, tmp_path: Path) -> None:
    good, torn, empty = (tmp_path / f"{name}.img" for name in ("good", "torn", "empty"))
    for image in (good, torn, empty):
        run("truncate", "-s", "64M", image)
    run("sfdisk", "-q", good, stdin="label: gpt\nstart=2048, size=4096\n")
    run("cp", good, torn)
    with torn.open("r+b") as file:
        file.seek(512 + 16)
        file.write(b"\xff" * 4)  # the checksum of the first GPT header
    first = {
        words: run_aligntool("audit", *words).stdout.partition("\n")[0]
        for words in ((old_disk,), (good,), (good, old_disk), (torn,), (empty,))
    }
    starts = [int(line.split()[0]) for line in run("sfdisk", "-q", "-l", "-o", "start", old_disk).splitlines()[1:]]
    off = sum(start % 8 > 0 for start in starts)
    assert first[old_disk,] == f"{off} of {len(starts)} partitions misaligned"
    assert first[good,] == "OK: every partition of 1 disk starts on its boundaries"
    assert first[good, old_disk] == "1 of 2 disks has misaligned partitions"
    assert first[torn,] == "Linux does not see these partitions"
    assert first[empty,] == "No partition to judge"
    assert run_aligntool("audit", "-q", good).stdout == ""


@pytest.mark.needs_tools("sfdisk")
def test_json_conforms_to_the_schema_and_agrees_with_sfdisk(old_disk: Path) -> None:
    done = run_aligntool("audit", "--json", old_disk)
    document = json.loads(done.stdout)
    check(document)
    truth = json.loads(run("sfdisk", "--json", old_disk))["partitiontable"]["partitions"]
    ours = document["disks"][0]["partitions"]
    assert [(part["start_sector"], part["length"] // 512) for part in ours] == [
        (part["start"], part["size"]) for part in truth
    ]


@pytest.mark.needs_tools("sfdisk")
def test_a_missing_target_is_refused_and_the_other_one_is_still_audited(old_disk: Path) -> None:
    done = run_aligntool("audit", old_disk, "/no/such/disk")
    assert done.returncode == 3
    assert "AT101" in done.stdout
    assert "/no/such/disk" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.needs_tools("sfdisk")
def test_a_file_given_under_several_names_is_one_disk(old_disk: Path) -> None:
    (old_disk.parent / "link.img").symlink_to(old_disk)
    names = (old_disk.name, f"./{old_disk.name}", old_disk, "link.img")
    done = run_aligntool("audit", "--json", *names, cwd=old_disk.parent, code=1)
    assert [disk["path"] for disk in json.loads(done.stdout)["disks"]] == [old_disk.name]


@pytest.mark.needs_tools("sfdisk")
def test_a_suggested_command_for_a_name_with_a_leading_dash_can_be_typed(old_disk: Path) -> None:
    old_disk.rename(old_disk.parent / "-v")
    done = run_aligntool("audit", "--", "-v", cwd=old_disk.parent, code=1)
    (printed,) = re.findall(r"→ aligntool (.*)", done.stdout)
    assert shlex.split(printed)[-1] == "./-v"
    assert "aligntool realign ./-v" in run_aligntool(*shlex.split(printed), cwd=old_disk.parent, code=0).stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("audit", "/no/such/disk"), 3),
        (("audit", "/"), 3),
        (("audit", "/dev/null"), 3),
        (("audit", "--sysroot", "/no/such/folder"), 3),
        (("demo", "/no/such/folder/new/"), 3),
        (("audit", "--sector-size", "1MB", "x"), 2),
        (("audit", "--sector-size", "1000", "x"), 2),
        (("audit", "--fail-on", "sometimes"), 2),
        (("audit", "--no-such-option"), 2),
        (("explain", "AT999"), 2),
        (("drives", "no such drive at all"), 3),
        (("nonsense",), 2),
    ],
)
def test_invalid_input_gives_an_error_the_right_exit_code_and_no_traceback(words: tuple[str, ...], code: int) -> None:
    done = run_aligntool(*words)
    assert done.returncode == code, done.stderr
    assert done.stderr.strip() and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_explain_describes_a_code_and_lists_all() -> None:
    one = run_aligntool("explain", "at101")
    assert one.returncode == 0 and "physical sector" in one.stdout
    assert len(run_aligntool("explain").stdout.splitlines()) > 40


def test_explain_knows_the_words_of_the_glossary() -> None:
    for word in ("stripe", "Read-modify-write", "physical sector", "AU", "in flight"):
        assert len(run_aligntool("explain", word, code=0).stdout.splitlines()) >= 2, word
    near = run_aligntool("explain", "strype", code=2).stderr
    assert "stripe" in near


def test_explain_knows_the_codes_of_refusals() -> None:
    one = " ".join(run_aligntool("explain", "in-use", code=0).stdout.split())
    assert "tells with --json the code, and these, in its last event" in one
    assert "in-use a refusal: nothing was written" in one and "that a program or the kernel has open" in one
    suspended = " ".join(run_aligntool("explain", "may-be-suspended", code=0).stdout.split())
    assert "docs/crash-safety.md#a-suspended-system" in suspended and "](" not in suspended
    both = run_aligntool("explain", "in-flight", code=0).stdout
    assert "a refusal" in both and both.count("\n\n") == 1, "a code that is a word of the glossary, too"
    assert "in-use" in run_aligntool("explain", "inuse", code=2).stderr
    assert "not-confirmed" in run_aligntool("explain", code=0).stdout


def test_drives_shows_an_entry_with_its_source() -> None:
    done = run_aligntool("drives", "WD20EARS")
    assert done.returncode == 0
    assert "physical sector: 4KiB" in done.stdout and "source:" in done.stdout


def test_a_closed_pipe_is_not_an_error() -> None:
    line = f"{sys.executable} -m aligntool explain | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode in (0, 128 + signal.SIGPIPE), "as of any Unix tool: never 1, which means findings"
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.needs_tools("sfdisk", "script")
@pytest.mark.parametrize(
    "words",
    [
        ("explain",), ("drives",), ("--version",), ("--help",), ("explain", "--markdown"), ("snapshot", "-o", "-"),
        ("report", "--chart", "queue-depth", "--svg", "-"), ("fleet", "-o", "-", CAPTURED),
    ],
)  # fmt: skip
def test_output_that_cannot_be_written_is_an_error_of_one_line_and_not_a_bug(words: tuple[str, ...]) -> None:
    command = program(*words)
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 3
    assert done.stderr == "aligntool: standard output cannot be written: No space left on device\n"


def test_output_waits_for_a_full_nonblocking_pipe() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with open(reading, "rb") as answer:  # noqa: PTH123
        running = subprocess.Popen(program("explain", "--markdown"), stdout=writing, stderr=subprocess.PIPE, cwd=ROOT)
        os.close(writing)
        assert running.stderr and select.select([running.stderr], [], [], 2)[0] == []  # it waits, and prints nothing
        text = answer.read().decode()
        assert running.wait() == 0 and running.stderr.read() == b""
    assert text == (ROOT / "docs" / "findings.md").read_text()


@pytest.mark.parametrize(("closed", "code", "said"), [(">&-", 3, "closed"), ("2>&-", 0, ""), (">&- 2>&-", 3, "")])
def test_closed_streams_are_not_reported_as_a_bug(closed: str, code: int, said: str) -> None:
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *program("explain", "AT101")]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == code
    assert said in done.stderr and "Traceback" not in done.stderr


def test_notes_that_cannot_be_written_do_not_change_the_exit_code(old_disk: Path, tmp_path: Path) -> None:
    page, there = tmp_path / "page.html", tmp_path / "not-there.img"
    for words, code in ((("report", old_disk, "-o", page), 0), (("audit", old_disk, there), 3)):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            done = subprocess.run(program(*words), stdout=subprocess.DEVNULL, stderr=full, check=False, cwd=ROOT)
        assert done.returncode == code, "1 would mean findings"
    assert page.exists()


@pytest.mark.parametrize("words", [("audit", "--sysroot", CAPTURED), ("fleet", CAPTURED), ("demo",)])
def test_a_missing_folder_for_temporary_files_is_not_reported_as_a_bug(words: tuple[str, ...]) -> None:
    """As on a machine whose only file system is full."""
    code = "import tempfile; tempfile._candidate_tempdir_list = lambda: []; from aligntool.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 3 and ended.stderr.startswith(
        "aligntool: no folder for temporary files can be written\n"
    )
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("RLIMIT_NOFILE, (6, 6)", ("status",)),
        ("RLIMIT_NOFILE, (6, 6)", ("realign", "--dry-run")),
        ("RLIMIT_NOFILE, (6, 6)", ("realign", "--yes")),
        ("RLIMIT_AS, (40 << 20, -1)", ("status",)),
        ("RLIMIT_AS, (40 << 20, -1)", ("realign", "--dry-run")),
    ],
)
def test_an_exhausted_resource_is_not_reported_as_a_bug(old_disk: Path, limit: str, words: tuple[str, ...]) -> None:
    before = old_disk.read_bytes()
    code = f"import resource\nfrom aligntool.__main__ import main\nresource.setrlimit(resource.{limit})\nmain()"
    command = [sys.executable, "-c", code, *words, str(old_disk)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode in (0, 3) and "Traceback" not in ended.stderr
    assert old_disk.read_bytes() == before


def test_capturing_the_output_of_a_program_requires_no_temporary_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not-there"))
    ended = run_program("sh", "-c", "echo printed; echo error >&2")
    assert (ended.stdout, ended.stderr) == (b"printed\n", b"error\n")


def test_closed_standard_input_does_not_become_a_pipe_to_a_child(old_disk: Path) -> None:
    shell = ["sh", "-c", '"$@" <&-', "sh", *program("audit", old_disk)]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1 and "AT101" in done.stdout, done.stderr


def test_colour_is_used_on_a_terminal_and_not_with_no_color(old_disk: Path) -> None:
    command = f"{sys.executable} -m aligntool --no-pager audit '{old_disk}'"
    terminal = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    for extra, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        done = subprocess.run(
            ["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=False,
            cwd=ROOT, env=terminal | extra,
        )  # fmt: skip
        assert ("\x1b[" in done.stdout) is coloured
        assert "AT101" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_show_completion_prints_the_completion_file_of_a_shell(shell: str) -> None:
    done = run_aligntool("--show-completion", shell)
    assert done.returncode == 0
    assert done.stdout == (ROOT / "aligntool" / "cli" / "completions" / f"aligntool.{shell}").read_text()


def test_show_completion_names_the_supported_shells() -> None:
    done = run_aligntool("--show-completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not bash, zsh or fish" in done.stderr


def test_version_prints_the_version_of_the_package() -> None:
    from aligntool import __version__

    assert run_aligntool("--version").stdout == f"aligntool {__version__}\n"


def test_without_arguments_every_command_is_listed_on_a_screen_of_24_lines() -> None:
    done = run_aligntool()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) < 24  # the prompt needs one
    assert max(map(len, lines)) <= 80
    listed = set(re.findall(r"[a-z]+", done.stdout))
    assert {word for name in COMMANDS for word in name.split(" ")[:1]} <= listed


def test_plan_raid_is_the_same_as_raid_plan() -> None:
    words = ("--level", "1", "/dev/not-there-1", "/dev/not-there-2")
    done, other = run_aligntool("plan", "raid", *words), run_aligntool("raid", "plan", *words)
    assert (done.returncode, done.stdout, done.stderr) == (other.returncode, other.stdout, other.stderr)
    assert done.returncode == 3


@pytest.mark.needs_root
@pytest.mark.needs_tools("setpriv")
@pytest.mark.parametrize(
    "words",
    [
        ("audit", "theirs"),
        ("audit", "--sysroot", "theirs/machine"),
        ("fleet", "theirs"),
        ("fleet", "theirs/machine"),
        ("fleet", "."),
        ("probe", "theirs/disk.img"),
        ("realign", "--layers", "theirs/disk.img"),
        ("status", "disk.img", "--journal", "theirs/journal"),
        ("convert", "disk.img", "-o", "theirs/folder/new.img"),
    ],
    ids=" ".join,
)
def test_an_inaccessible_folder_is_a_refusal_and_not_a_bug(old_disk: Path, words: tuple[str, ...]) -> None:
    """Before Python 3.14, Path.is_dir and Path.is_file raise an error for files in such a folder."""
    old_disk.rename(old_disk.with_name("disk.img"))
    theirs = old_disk.with_name("theirs")
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    powerless = (
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        "--inh-caps=-dac_override,-dac_read_search",
    )
    done = subprocess.run(
        [*powerless, *program(*words)], capture_output=True, text=True, check=False, cwd=old_disk.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 3 and done.stderr.startswith("aligntool: ") | ("Not audited" in done.stdout), done.stderr
