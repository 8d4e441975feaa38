"""Output on a terminal of 80 columns and 24 lines: the pager, the summary before a question, many disks."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
import pytest

from aligntool.cli.pager import pager_of
from tests.conftest import run
from tests.run_aligntool import UNSET, program, run_aligntool

COLUMNS, LINES = 80, 24
LONGEST_S = 120
PAGERS = (
    "PAGER", "ALIGNTOOL_PAGER", "LESS", "LESSSECURE", "SUDO_UID", "DOAS_USER", "PKEXEC_UID", "CLICOLOR_FORCE",
    "FORCE_COLOR",
)  # fmt: skip


def _log_in() -> None:
    """Get a terminal, and as root a login, as from login(1). Whose login is unknown gets no pager of his own."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if os.geteuid() == 0:
        with suppress(OSError):
            Path("/proc/self/loginuid").write_text("0")


def _can_log_in() -> bool:
    code = "from aligntool.cli.pager import login_user; print(login_user())"
    done = subprocess.run([sys.executable, "-c", code], stdin=pty.openpty()[1], start_new_session=True,
                          preexec_fn=_log_in, capture_output=True, text=True, check=True)  # fmt: skip
    return os.geteuid() != 0 or done.stdout.strip() == "0"


class Terminal:
    """A program on a terminal of its own, and the contents of its screen."""

    def __init__(self, *words: str | Path, **environment: str) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in (*UNSET, *PAGERS)}
        self._process = subprocess.Popen(
            program(*words), stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=_log_in, env=kept | {"TERM": "linux"} | environment,
        )  # fmt: skip
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def rows(self) -> list[str]:
        """Return the lines of the screen up to the last one with text."""
        return "\n".join(row.rstrip() for row in self._screen.display).rstrip("\n").split("\n")

    def until(self, shown: Callable[[list[str]], bool]) -> list[str]:
        """Return the screen as soon as it shows something, or when the program has ended."""
        end_s = time.monotonic() + LONGEST_S
        while not shown(self.rows()) and self._read(end_s - time.monotonic()):
            pass
        assert shown(self.rows()), "\n".join(self.rows())
        return self.rows()

    def _read(self, left_s: float) -> bool:
        assert left_s > 0 and select.select([self._master], [], [], left_s)[0], "\n".join(self.rows())
        try:
            self._stream.feed(os.read(self._master, 1 << 16))
        except OSError:  # EIO: the terminal is not open anywhere any more
            return False
        return True

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Return the exit code, and everything that was printed on the screen."""
        while self._read(LONGEST_S):
            pass
        return self._process.wait(LONGEST_S)


@pytest.fixture
def images(tmp_path: Path) -> Callable[[int, int], list[Path]]:
    def made(count: int, start: int) -> list[Path]:
        names = [tmp_path / f"disk{number}.img" for number in range(count)]
        for name in names:
            run("truncate", "-s", "64M", name)
            run("sfdisk", "-q", name, stdin=f"label: dos\nstart={start}, size=20000\n")
        return names

    return made


def _in_less(rows: list[str]) -> bool:
    return len(rows) == LINES and rows[-1] == ":"


@pytest.mark.needs_tools("less", "sfdisk")
def test_a_long_audit_is_paged_from_its_verdict_on_and_keeps_its_exit_code(
    images: Callable[[int, int], list[Path]],
) -> None:
    with Terminal("audit", *images(6, 63)) as terminal:
        rows = terminal.until(_in_less)
        assert rows[0] == "6 of 6 disks have misaligned partitions"
        assert sum("1 of 1 off" in row for row in rows) == 6
        terminal.type("q")
        assert terminal.end() == 1
    with Terminal("audit", "--no-pager", *images(6, 63)) as terminal:
        assert terminal.end() == 1
        assert "on the grid, 6 off" in terminal.rows()[-1]


@pytest.mark.needs_tools("sfdisk")
def test_the_audit_of_six_aligned_disks_fits_one_screen_without_a_pager(
    images: Callable[[int, int], list[Path]], tmp_path: Path
) -> None:
    with Terminal("audit", *images(6, 2048), PAGER=f"cat > {tmp_path}/paged") as terminal:
        assert terminal.end() == 0
        rows = terminal.rows()
    assert rows[0] == "OK: every partition of 6 disks starts on its boundaries"
    assert len(rows) < LINES and sum("1 on the grid" in row for row in rows) == 6
    assert not (tmp_path / "paged").exists()


@contextmanager
def _paged(tmp_path: Path, **environment: str) -> Iterator[Path]:
    file = tmp_path / "paged"
    chosen = {name: f"cat > {file}" if value == "file" else value for name, value in environment.items()}
    with Terminal("explain", **chosen) as terminal:
        assert terminal.end() == 0
    yield file


@pytest.mark.skipif(not _can_log_in(), reason="this root may not state who has logged in")
def test_the_pager_is_chosen_as_by_git_and_a_missing_one_loses_no_output(tmp_path: Path) -> None:
    whole = run_aligntool("explain").stdout
    with _paged(tmp_path, PAGER="file", NO_COLOR="1") as file:
        assert file.read_text() == whole
        file.unlink()
    with _paged(tmp_path, PAGER="file", ALIGNTOOL_PAGER="cat") as file:
        assert not file.exists()
    with Terminal("explain", PAGER="/nowhere/pager") as terminal:
        assert terminal.end() == 0
        assert terminal.rows()[-1].split()[:2] == whole.splitlines()[-1].split()[:2]


def test_nothing_is_paged_in_a_pipe_or_as_json(tmp_path: Path) -> None:
    environment = {"ALIGNTOOL_PAGER": f"cat > {tmp_path}/paged"}
    assert run_aligntool("explain", env=environment, code=0).stdout.count("\n") > LINES
    with Terminal("recipes", "list", "--json", **environment) as terminal:
        assert terminal.end() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_tools("less")
def test_with_lent_rights_the_pager_cannot_start_other_programs() -> None:
    """less(1), SECURITY: LESSSECURE=1 disables the shell, editors, pipes and log files."""
    user = os.geteuid()
    own = pager_of({"PAGER": "most"}, login=user)
    assert own and own[0] == "most" and "LESSSECURE" not in own[1]
    lent = [({name: "1000"}, user) for name in ("SUDO_UID", "DOAS_USER", "PKEXEC_UID")]
    for more, login in (*lent, ({}, user + 1), *([({}, None)] if user == 0 else [])):
        pager = pager_of({"PAGER": "most", "LESSOPEN": "|id", "LESS": "+!id", **more}, login=login)
        assert pager and pager[0] == "less" and pager[1]["LESS"] == "FRX", (more, login)
        assert (pager[1]["LESSSECURE"], pager[1]["LESSOPEN"]) == ("1", "")
    assert pager_of({"SUDO_UID": "1000", "PAGER": ""}, login=user) is None
    with Terminal("explain", SUDO_UID="1000", PAGER="cat") as terminal:
        assert terminal.end() == 0
    with Terminal("explain", SUDO_UID="1000") as terminal:
        terminal.until(_in_less)
        terminal.type("!")
        terminal.until(lambda rows: "not available" in rows[-1])
        terminal.type("\n")
        terminal.until(_in_less)
        terminal.type("q")
        assert terminal.end() == 0


@pytest.mark.needs_tools("sfdisk")
def test_the_summary_precedes_the_question(images: Callable[[int, int], list[Path]]) -> None:
    (image,) = images(1, 63)
    with Terminal("realign", image) as terminal:
        rows = terminal.until(lambda rows: rows[-1].endswith("to continue:"))
        first = next(at for at, row in enumerate(rows) if row.startswith("This writes to"))
        said = " ".join(" ".join(rows[first:]).split())
        assert "64MiB" in said and re.search(r"1 of 1 partition to move, \S+MiB \(\d+B\) to copy, about 1 s\.", said)
        assert "lost: nothing" in said and "at a rate" not in said, "only in the plan"
        assert "At risk: the partitions that move" in said
        terminal.type(f"{image}\n")
        assert terminal.end() == 0
    assert run_aligntool("audit", image).stdout.startswith("OK: ")
