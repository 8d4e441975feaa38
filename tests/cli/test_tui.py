"""`aligntool tui`: operated by Textual's own pilot, and on a terminal as by a user."""

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import pyte
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from aligntool.cli.screens import DiskPage, Screens
from tests.cli.old_disks import ROOT, assert_whole, first_start
from tests.conftest import digest
from tests.run_aligntool import program, run_aligntool
from tests.thorough import when_thorough

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs", "blkid")
LONGEST_S = 300


class User:
    """The screen and the keys of a user; a wait that times out fails and shows the screen."""

    def __init__(self, app: Screens, pilot: Pilot[None]) -> None:
        self.app, self._pilot = app, pilot

    def seen(self) -> str:
        """Return the title, the text, and what is below it."""
        if not isinstance(self.app.screen, DiskPage):
            table = self.app.screen.query_one(DataTable)
            return "\n".join(" ".join(map(str, table.get_row_at(row))) for row in range(table.row_count))
        return "\n".join(str(one.render()) for one in self.app.screen.query(Static) if one.display)

    def offered(self) -> set[str]:
        """Return the keys in the last line of the screen."""
        return {
            one.binding.description
            for one in self.app.screen.active_bindings.values()
            if one.binding.show and one.enabled
        }

    async def press(self, *keys: str, until: str) -> str:
        """Press a key and return the screen once it shows these words or offers this key."""
        await self._pilot.press(*keys)
        end = time.monotonic() + LONGEST_S
        while until not in self.seen() and until not in self.offered():
            assert time.monotonic() < end, f"no {until!r} in:\n{self.seen()}"
            await self._pilot.pause(0.2)
        return self.seen()

    async def answer(self, text: str, *, until: str) -> str:
        self.app.screen.query_one(Input).value = text
        return await self.press("enter", until=until)


def stepped(
    disk: Path,
    steps: Callable[[User], Coroutine[None, None, None]],
    *,
    rate: int | None = None,
    verdict: str = "1 of 1 partition misaligned",
) -> Screens:
    """Step through the screens of this disk, on a terminal of 80 columns and 24 lines."""
    app = Screens((str(disk),), rate)

    async def all_of_it() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            user = User(app, pilot)
            await user.press(until=verdict)
            await steps(user)

    asyncio.run(all_of_it())
    return app


def test_a_disk_is_audited_planned_confirmed_and_moved(disk: Path) -> None:
    before = digest(disk)

    async def steps(user: User) -> None:
        audit = await user.press("enter", until="1 off")
        assert "aligntool audit --map" in audit and "3584B past a boundary" in audit
        assert {"Plan", "Realign", "Back", "Quit"} <= user.offered() and not {"Resume", "Roll back"} & user.offered()
        assert "31.50KiB" in await user.press("p", until="To copy:")
        asked = await user.press("r", until="to continue")
        assert f"This writes to {disk}." in asked and f"Type {disk} to continue" in asked and "Journal" in asked
        assert "lost: nothing" in asked and "At risk: the partitions that move" in asked, "as on the command line"
        for answer in ("yes", disk.name):
            await user.answer(answer, until=f"That is not {disk}. Type {disk} to continue")
            assert digest(disk) == before
        await user.answer("", until=f"the answer was not {disk}; nothing was written")
        assert digest(disk) == before
        await user.press("r", until="to continue")
        done = await user.answer(str(disk), until="1 start on the grid")
        assert "partition 1: sector 2048 (1MiB), on the grid" in done
        await user.press("escape", until="OK: every partition starts on its boundaries")

    assert not stepped(disk, steps).stopped
    assert first_start(disk) == 2048
    assert_whole(disk)


def test_a_wide_terminal_shows_the_audit_of_the_selected_disk_beside_the_list(disk: Path) -> None:
    app = Screens((str(disk),), None)

    async def steps() -> None:
        async with app.run_test(size=(120, 30)) as pilot:
            await User(app, pilot).press(until="1 of 1 partition misaligned")
            beside, end = app.screen.query_one("#audit", Static), time.monotonic() + LONGEST_S
            while "3584B past a boundary" not in str(beside.render()):
                assert time.monotonic() < end, str(beside.render())
                await pilot.pause(0.2)
            strip = next(line for line in str(beside.render()).splitlines() if line.startswith("·[1"))
            assert len(strip) <= beside.size.width, "a strip that wraps is not to scale"
            await pilot.resize_terminal(119, 30)
            await pilot.pause(0.2)
            assert not app.screen.query_one("#beside").display

    asyncio.run(steps())


@when_thorough("a slow move")
def test_a_stopped_move_is_in_flight_and_can_be_rolled_back(disk: Path) -> None:
    async def steps(user: User) -> None:
        await user.press("enter", until="Realign")
        await user.press("r", until="to continue")
        await user.press("escape", until="not confirmed; nothing was written")
        await user.press("r", until="to continue")
        await user.answer(str(disk), until="1MiB of")
        assert "Stop; it can be resumed" in user.offered() and "Back" not in user.offered()
        # Quitting stops the move first, also from the page of the keys.
        await user.press("question_mark", "q", "escape", until="Roll back")
        assert "the journal is kept" in user.seen()
        assert "the journal is kept" in user.app.stopped[str(disk)]
        assert "Resume" in user.offered() and not {"Plan", "Realign"} & user.offered()
        asked = await user.press("b", until="to continue")
        assert "steps to undo" in asked and f"This writes to {disk}." in asked and "lost: nothing" in asked
        await user.answer(str(disk), until="$ aligntool audit")

    assert not stepped(disk, steps, rate=4 << 20).stopped
    assert first_start(disk) == 63
    assert_whole(disk)


class Terminal:
    """A terminal of 80 columns and 24 lines, without a mouse, that runs a program."""

    def __init__(self, *words: str | Path) -> None:
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.environ |= {"TERM": "linux", "COLUMNS": "80", "LINES": "24"}
            os.chdir(ROOT)
            os.execv(sys.executable, [str(word) for word in words])

    def type(self, keys: str, *, until: str) -> str:
        """Return the screen once it shows these words."""
        os.write(self._terminal, keys.encode())
        end = time.monotonic() + LONGEST_S
        while until not in (seen := "\n".join(self.screen.display)):
            assert time.monotonic() < end, f"no {until!r} in:\n{seen}"
            if select.select([self._terminal], [], [], 1)[0]:
                self._stream.feed(os.read(self._terminal, 1 << 16))
        return seen

    def ends(self, keys: str) -> tuple[int, str]:
        """Return the exit code, and what is printed at the end."""
        os.write(self._terminal, keys.encode())
        printed = b""
        with suppress(OSError):
            while some := os.read(self._terminal, 1 << 16):
                printed += some
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), printed.decode()


@when_thorough("a slow move")
def test_at_a_terminal_a_move_is_stopped_and_the_next_commands_are_printed(disk: Path) -> None:
    terminal = Terminal(*program("tui", "--rate", "4MiB", disk))
    # Every usable key is in the last line.
    assert "q Quit" in terminal.type("", until="1 of 1 partition misaligned").splitlines()[23]
    page = terminal.type("\r", until="r Realign").splitlines()
    assert page[1].startswith("1 of 1 partition misaligned") and "p Plan" in page[23]
    terminal.type("r", until="to continue")
    terminal.type(f"{disk}\r", until="MiB/s")
    stopped = terminal.type("\x03", until="b Roll back")
    assert "the journal is kept" in " ".join(stopped.split())
    code, printed = terminal.ends("q")
    assert code == 4, printed
    assert f"aligntool resume '{disk}'" in printed and f"aligntool rollback '{disk}'" in printed
    assert run_aligntool("resume", "--yes", disk).returncode == 0
    assert first_start(disk) == 2048
    assert_whole(disk)


def test_sigterm_restores_the_terminal(disk: Path) -> None:
    terminal = Terminal(*program("tui", disk))
    terminal.type("", until="1 of 1 partition misaligned")
    os.kill(terminal.pid, signal.SIGTERM)
    code, printed = terminal.ends("")
    assert code == 0 and "\x1b[?1049l" in printed  # leaves the alternate screen: ctlseqs(5)


@when_thorough("a slow move")
def test_sigterm_stops_a_move_first(disk: Path) -> None:
    terminal = Terminal(*program("tui", "--rate", "4MiB", disk))
    terminal.type("", until="1 of 1 partition misaligned")
    terminal.type("\r", until="r Realign")
    terminal.type("r", until="to continue")
    terminal.type(f"{disk}\r", until="MiB/s")
    os.kill(terminal.pid, signal.SIGTERM)
    code, printed = terminal.ends("")
    assert code == 4 and f"aligntool resume '{disk}'" in printed
    assert run_aligntool("resume", "--yes", disk).returncode == 0
    assert_whole(disk)


def test_with_no_color_the_text_has_the_default_colours_of_the_terminal(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(*program("tui", disk))
    terminal.type("", until="1 of 1 partition misaligned")
    terminal.type("\r", until="r Realign")
    colours = {(char.fg, char.bg) for row in terminal.screen.buffer.values() for char in row.values()}
    assert colours == {("default", "default")}
    assert terminal.ends("q")[0] == 0


def test_without_textual_the_tui_is_refused_and_the_package_named() -> None:
    hidden = "import sys; sys.modules['textual'] = None; from aligntool.__main__ import main; main()"
    code, printed = Terminal(sys.executable, "-c", hidden, "tui").ends("")
    assert code == 3 and "python3-textual" in printed and "→ sudo aligntool audit" in printed


def test_without_a_terminal_the_tui_is_refused() -> None:
    done = run_aligntool("tui", code=3)
    assert (
        done.stdout == ""
        and "the tui command needs a terminal" in done.stderr
        and "→ sudo aligntool audit" in done.stderr
    )


def test_the_tui_does_not_draw_into_a_file(disk: Path) -> None:
    """Textual draws on standard error, so with 2>FILE the screen would be blank, and the keys work."""
    terminal, inside = os.openpty()
    words = program("tui", disk)
    done = subprocess.run(words, stdin=inside, stdout=inside, stderr=subprocess.PIPE, check=False, timeout=300)
    os.close(terminal)
    os.close(inside)
    assert done.returncode == 3 and b"the tui command needs a terminal" in done.stderr


def test_no_other_command_loads_textual() -> None:
    importing = [
        path
        for path in (ROOT / "aligntool").rglob("*.py")
        if re.search("^ *(from|import) textual", path.read_text(), re.M)
    ]
    assert [path.name for path in importing] == ["screens.py"]
    named = [path.name for path in (ROOT / "aligntool").rglob("*.py") if "cli.screens" in path.read_text()]
    assert named == ["tui.py"]
