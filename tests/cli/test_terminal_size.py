"""Output is as wide as the terminal: 60, 120 and 200 columns, without COLUMNS in the environment."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest

from tests.conftest import run
from tests.run_aligntool import UNSET, program, run_aligntool
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "mkfs.fat", "mkswap", "mkntfs", "partclone.ntfs")
ROOT = Path(__file__).parents[2]
COLUMNS = (60, 80, 120, 200)
LINES = 30
CAPTURED = ROOT / "tests/audit/machines/sata-usb-and-sd-card.tar.xz"
LONGEST_S = 120
SCROLL_BAR = "▁▂▃▄▅▆▇█"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in UNSET} | {
    "TERM": "linux",
    "ALIGNTOOL_PAGER": "",
    "NO_COLOR": "1",
}


def _set_size(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))


def printed(columns: int, *words: str | Path) -> list[str]:
    """Return the lines that a program prints on a terminal of that width; standard input is none."""
    ours, theirs = pty.openpty()
    _set_size(theirs, columns)
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=ENVIRONMENT)
    os.close(theirs)
    output = b""
    try:
        while piece := os.read(ours, 1 << 16):
            output += piece
    except OSError:  # EIO: the terminal is not open anywhere any more
        pass
    os.close(ours)
    process.wait(LONGEST_S)
    return [line.rstrip() for line in output.decode().replace("\r\n", "\n").split("\n")]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the disk of `aligntool demo`: four misaligned partitions with names, one of them logical."""
    image = tmp_path_factory.mktemp("demo") / "demo.img"
    run_aligntool("demo", image, code=0)
    return image


@pytest.fixture(autouse=True)
def _in_its_folder(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short names fit every line that has one."""
    monkeypatch.chdir(demo.parent)
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(ROOT))


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_program_finds_the_size_after_the_streams_are_prepared(columns: int) -> None:
    code = "import shutil, aligntool.cli.app as app; app.prepare_streams(); print(*shutil.get_terminal_size((1, 1)))"
    assert printed(columns, sys.executable, "-c", code)[0] == f"{columns} {LINES}"


@pytest.mark.parametrize("columns", COLUMNS)
def test_an_audit_uses_the_whole_width_and_no_more(demo: Path, columns: int) -> None:
    lines = printed(columns, *program("audit", "--map", demo.name))
    bar = next(line for line in lines if line.startswith("·[1="))
    assert len(bar) in range(columns - 4, columns + 1)
    assert max(map(len, lines)) in range(columns - 4, columns + 1)
    assert ("sector " in next(line for line in lines if line.startswith("  #"))) is (columns > 60)


def test_one_screen_names_a_target_that_cannot_be_judged_once(demo: Path) -> None:
    Path("text.img").write_text("x" * 1000)
    lines = printed(80, *program("audit", demo.name, "text.img"))
    assert lines[0] == "3 of 4 partitions misaligned; 1 target could not be judged"
    reason = "text.img is not a disk image"
    assert [line.strip() for line in lines if "text.img" in line and reason not in line] == ["→ file text.img"]
    assert sum(reason in line for line in lines) == 1
    piped = run_aligntool("audit", demo.name, "text.img", code=3)
    assert piped.stdout.count(reason) == piped.stderr.count(reason) == 1


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_plan_uses_the_whole_width_and_no_more(demo: Path, columns: int) -> None:
    lines = printed(columns, *program("plan", "realign", demo.name))
    assert max(len(line) for line in lines if not line.startswith("      $ ")) in range(columns - 4, columns + 1)
    assert any('swap "swap"' in line for line in lines)


@sample(12)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(
    "words",
    [
        ("audit", "-v"), ("plan", "realign", "-v"), ("status",), ("explain", "AT107"), ("explain",),
        ("recipes", "list"), ("recipes", "show", "sector-63"),
        ("plan", "layout", "--part", "512MiB:esp:boot", "--part", "rest:linux:root", "new.img"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_line_but_a_command_is_wider_than_the_terminal(demo: Path, words: tuple[str, ...], columns: int) -> None:
    with (demo.parent / "new.img").open("wb") as file:
        file.truncate(2 << 30)
    on_disk = words[0] in ("audit", "status") or words[1:2] == ("realign",)
    lines = printed(columns, *program(*words, *([demo.name] if on_disk else [])))
    assert len(lines) > 1
    assert [line for line in lines if len(line) > columns and not re.search(r"[→$] ", line)] == []


ONLY_A_COMMAND = re.compile(r"\s*[→$] (sudo )?aligntool [^;]*(/dev/)?\w+$")


@sample(4)
@pytest.mark.parametrize("columns", COLUMNS[:2])
@pytest.mark.parametrize(
    "words",
    [("audit", "--sysroot", CAPTURED), ("audit", "-v", "--sysroot", CAPTURED, "sda"), ("drives",), ("fleet", CAPTURED)],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_what_is_printed_breaks_between_words_and_not_inside_a_command(
    words: tuple[str | Path, ...], columns: int
) -> None:
    lines = printed(columns, *program(*words))
    assert len(lines) > 5
    assert [line for line in lines if len(line) > columns and not ONLY_A_COMMAND.match(line)] == []


@pytest.mark.parametrize("columns", COLUMNS[:2])
def test_the_steps_of_a_move_break_between_words(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    copy = tmp_path / "moved.img"
    run("cp", "--sparse=always", demo, copy)
    monkeypatch.chdir(tmp_path)
    lines = printed(columns, *program("realign", "--yes", "--no-lease", copy.name))
    steps = [line for line in lines if re.match(r"\d+/\d+ ", line)]
    assert len(steps) > 8 and max(map(len, lines)) <= columns
    assert any(line.startswith("    ") for line in lines), "one that was too long"


class Terminal:
    """`aligntool tui` on a terminal of its own."""

    def __init__(self, columns: int, *words: str | Path) -> None:
        self._screen = pyte.Screen(columns, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, theirs = pty.openpty()
        _set_size(theirs, columns)
        self._process = subprocess.Popen(
            program(*words), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), env=ENVIRONMENT,
        )  # fmt: skip
        os.close(theirs)

    def resize(self, columns: int) -> None:
        self._screen.resize(LINES, columns)
        self._screen.reset()
        _set_size(self._ours, columns)

    def until(self, row: int, end: str, widths: range) -> None:
        """Wait until this row of the screen ends with these words, and has one of these widths. After a resize it may
        show the old picture first.
        """
        end_s = time.monotonic() + LONGEST_S
        while (
            not (shown := self._screen.display[row].rstrip(f" {SCROLL_BAR}")).endswith(end) or len(shown) not in widths
        ):
            assert time.monotonic() < end_s, "\n".join(self._screen.display)
            if select.select([self._ours], [], [], 1)[0]:
                self._stream.feed(os.read(self._ours, 1 << 16))

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LONGEST_S)
        os.close(self._ours)


def test_the_tui_fills_the_terminal_and_follows_its_size(demo: Path) -> None:
    terminal, verdict = Terminal(119, "tui", demo.name), "3 of 4 partitions misaligned"
    try:
        terminal.until(1, verdict, range(119 - 4, 119 + 1))
        terminal.until(LINES - 1, "Quit", range(119 + 1))
        for columns, row in ((200, 4), (120, 5)):  # with the audit beside the list, its title up to the right edge
            terminal.resize(columns)
            terminal.until(row, "1GiB", range(columns - 8, columns + 1))
        terminal.resize(100)
        terminal.until(1, verdict, range(100 - 4, 100 + 1))
    finally:
        terminal.end()
