"""The screens of `aligntool tui`, on top of the command line: each shows the output of a command, and names
it.

The commands run in child processes, so that a disk that does not respond does not block the keyboard, and a
move ends in the same ways as on the command line.
"""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, ProgressBar, Static

from aligntool.audit.report import Code, explanations
from aligntool.audit.wording import command, shell_word
from aligntool.change import Plan, Progress, from_json
from aligntool.cli import recover, run_change
from aligntool.cli.options import ANSWERS, own_program
from aligntool.cli.plan import commands_of
from aligntool.errors import ExitCode, Refused
from aligntool.linux.block import open_read_only
from aligntool.mover.status import journal_status
from aligntool.realign.suspended import suspension_sentences
from aligntool.render.lines import Line, fit, harmless, plain
from aligntool.render.plan import attention_lines, plan_lines
from aligntool.render.progress import Pace
from aligntool.units import counted, format_size

HELP = """\
Each screen shows what a command prints; the first line names the command.

  arrows, PgUp, PgDn   select a disk; scroll
  Enter                audit the disk: verdict, map, findings; from 120 columns
                       on, the audit of the selected disk is beside the list
  p                    plan a realign; nothing is written
  r                    show the plan, ask, and move
  u, b                 resume or roll back a move that was interrupted
  a                    audit again
  Esc                  back; at the confirmation, write nothing
  q, Ctrl-C            quit; during a move, stop it

Before anything is written, you have to type the name of the disk. A move that
was stopped is in flight: nothing is lost, and `resume` or `rollback` continues,
here or on the command line."""

_STOP_POLL_S = 0.1
_PAUSE_S = 0.2  # before the audit of a selected disk
_LIST = 64  # columns of the list of disks, if an audit is beside it
_LEAST_BESIDE = 56  # columns of that audit: on a terminal of 120 columns


# Commands in child processes.


async def start(
    *words: str, stdin: int = DEVNULL, out: int = PIPE, errors: int = STDOUT, width: int = 80
) -> Process:
    return await asyncio.create_subprocess_exec(
        *own_program(*words),
        stdin=stdin,
        stdout=out,
        stderr=errors,
        limit=1 << 20,
        env=os.environ | {"COLUMNS": str(width), "ALIGNTOOL_PAGER": ""},
    )


async def printed(*words: str, width: int) -> Text:
    """Return what a command prints on a terminal, with its colours."""
    ours, theirs = os.openpty()
    child = await start(*words, out=theirs, errors=theirs, width=width)
    os.close(theirs)
    text = await asyncio.to_thread(_read_terminal, ours)
    await child.wait()
    return Text.from_ansi(text.replace("\r\n", "\n"))


def _read_terminal(terminal: int) -> str:
    output = b""
    with open(terminal, "rb", buffering=0) as file, suppress(OSError):  # EIO: the command has ended
        while piece := file.read(1 << 16):
            output += piece
    return output.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class DiskRow:
    """A disk in the list."""

    path: str
    size: str
    verdict: str
    in_flight: bool = False


async def list_disks(*targets: str) -> list[DiskRow]:
    """Return the disks of an audit, and what could not be read."""
    child = await start("audit", "--json", "--", *targets, errors=DEVNULL)
    output, _ = await child.communicate()
    report = json.loads(output or '{"disks": [], "findings": [], "unseen": []}')
    found = []
    names = set()
    for disk in report["disks"]:
        disk_findings = [finding for finding in report["findings"] if finding["disk"] == disk["name"]]
        in_flight = any(finding["code"] == "AT317" for finding in disk_findings)
        verdicts = [entry["verdict"] or {} for entry in (disk, *disk["partitions"])]
        answers = [verdict["answer"] for verdict in verdicts if verdict.get("matters")]
        errors = [Code(finding["code"]) for finding in disk_findings if finding["severity"] == "error"]
        inside = sum(
            bool(finding["layer"] and finding["off_by"]) and finding["severity"] != "info"
            for finding in disk_findings
        )
        words = "in flight: resume it or roll it back" if in_flight else _verdict(answers, errors, inside)
        found.append(DiskRow(disk["path"], format_size(disk["size"]), words, in_flight))
        names |= {disk["name"], disk["path"]}
    unseen = (unseen_disk for unseen_disk in report["unseen"] if unseen_disk["what"] not in names)
    return found + [
        DiskRow(unseen_disk["what"], "", f"not judged: {unseen_disk['why']}") for unseen_disk in unseen
    ]


def _verdict(answers: list[str], errors: list[Code], inside: int) -> str:
    """Return the verdict on a disk in words. `inside`: how many contents have data off the grid."""
    damage = next((code for code in errors if code.is_of_damage), None)
    if damage:
        return explanations()[damage].title
    off = answers.count("off")
    if off:
        return f"{off} of {counted(len(answers), 'partition')} misaligned"
    if "unknown" in answers:
        return "none is known to be misaligned; not all could be judged"
    if errors:
        return explanations()[errors[0]].title
    if answers and inside:
        return f"every partition starts on its boundaries; the data of {counted(inside, 'layer')} are off"
    return "OK: every partition starts on its boundaries" if answers else "no partition to judge"


async def read_disk_state(path: str) -> str:
    """Return "old", "new" or "in-flight"; "" if it is unknown, as when the disk does not respond."""
    child = await start("status", "--json", "--", path, errors=DEVNULL)
    output, _ = await child.communicate()
    return str(json.loads(output or "{}").get("state", ""))


def as_text(lines: Iterable[Line]) -> Text:
    """Return lines with their colours."""
    return Text("\n").join(
        Text.assemble(*((harmless(words), style.value) for words, style in line)) for line in lines
    )


def read_journal(path: str) -> Plan | None:
    """Return the plan that is in flight, if its journal is on the disk."""
    with suppress(Refused, OSError), open_read_only(path) as device:
        return journal_status(device, None).plan
    return None


# The screens.


@dataclass(frozen=True, slots=True)
class Change:
    """A change to confirm: a plan, the facts of the question, the command that applies it, and its standard
    input.
    """

    plan: Plan
    facts: Iterable[Line]
    words: tuple[str, ...]
    given: bytes = b""


@dataclass(slots=True)
class MoveOutput:
    """The output of a move so far."""

    steps: int
    pace: Pace = field(default_factory=lambda: Pace(time.monotonic))
    log: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)
    silent: bool = False  # its last event is that the disk does not respond; lines of text are not events


class Disks(DataTable[Text]):
    """The disks, a row each."""

    BINDINGS: ClassVar = [Binding("enter", "select_cursor", "Audit")]


class DiskList(Screen[None]):
    """The first screen. `stopped`: the messages about each disk whose move was stopped here."""

    BINDINGS: ClassVar = [Binding("a", "audit", "Audit again")]

    def __init__(self, targets: tuple[str, ...], rate: int | None, stopped: dict[str, str]) -> None:
        super().__init__()
        self._targets = targets
        self._rate = rate
        self._stopped = stopped
        self._disks: list[DiskRow] = []
        self._audits: dict[tuple[str, int], Text] = {}  # by path and width

    def compose(self) -> ComposeResult:
        yield Static(
            " ".join(("aligntool audit", *map(shell_word, self._targets))), classes="title", markup=False
        )
        with Horizontal():
            yield Disks(cursor_type="row", show_header=False)
            with VerticalScroll(id="beside", can_focus=False):
                yield Static(id="audit", markup=False)
        yield Static(id="talk", markup=False)
        yield Footer()

    def on_screen_resume(self) -> None:
        self.action_audit()

    @work(exclusive=True)
    async def action_audit(self) -> None:
        message = self.query_one("#talk", Static)
        message.update("Reading the disks …")
        self._audits.clear()
        self._disks = await list_disks(*self._targets)
        self._fill()
        message.update("" if self._disks else "No disks found.")

    def on_resize(self) -> None:
        self._fill()

    @property
    def _beside(self) -> int:
        """Return the width of the audit beside the list, or 0 on a narrow terminal."""
        return self.size.width - _LIST if self.size.width >= _LIST + _LEAST_BESIDE else 0

    def _fill(self) -> None:
        """Show the disks in the width of the screen, and on a wide one the audit of the selected disk beside
        them.
        """
        table = self.query_one(Disks)
        width = self.size.width - self._beside
        self.query_one("#beside").display = bool(self._beside)
        table.styles.width = width
        row = table.cursor_row
        room = width - 17
        wide = room - min(max((len(disk.verdict) for disk in self._disks), default=0), room - 16)
        table.clear(columns=True)
        table.add_columns("disk", "size", "verdict")
        for disk in self._disks:
            path = disk.path if len(disk.path) <= wide else f"…{disk.path[1 - wide :]}"
            table.add_row(
                *map(Text, (fit(path, wide), fit(disk.size, 9, right=True), fit(disk.verdict, room - wide)))
            )
        table.move_cursor(row=row)
        self._show_audit()

    def on_data_table_row_highlighted(self) -> None:
        self._show_audit()

    @work(exclusive=True, group="beside")
    async def _show_audit(self) -> None:
        row = self.query_one(Disks).cursor_row
        if not self._beside or not 0 <= row < len(self._disks):
            return
        shown = self.query_one("#audit", Static)
        place = (self._disks[row].path, self._beside)
        if place not in self._audits:
            shown.update(f"{self._disks[row].verdict}\n\n…")
            await asyncio.sleep(_PAUSE_S)  # the cursor may move on
            self._audits[place] = await printed("audit", "--map", "--", place[0], width=place[1] - 4)
        shown.update(self._audits[place])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.app.push_screen(DiskPage(self._disks[event.cursor_row], self._rate, self._stopped))


class DiskPage(Screen[None]):
    """One disk: its audit, its plan, the question, and the move."""

    BINDINGS: ClassVar = [
        Binding("ctrl+c,q", "stop", "Stop; it can be resumed", priority=True),
        Binding("a", "audit", "Audit"),
        Binding("p", "plan", "Plan"),
        Binding("r", "realign", "Realign"),
        Binding("u", "recover('resume')", "Resume"),
        Binding("b", "recover('rollback')", "Roll back"),
        Binding("escape", "back", "Back"),
        Binding("pageup", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(1)", "Scroll"),
    ]

    def __init__(self, disk: DiskRow, rate: int | None, stopped: dict[str, str]) -> None:
        super().__init__()
        self._disk = disk
        self._stopped = stopped
        self._rate = ("--rate", str(rate)) if rate else ()
        self._busy = True
        self._confirmed = False
        self._unconfirmed: Change | None = None
        self._answers_left = 0
        self.moving: Process | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="title", markup=False)
        with VerticalScroll():
            yield Static(id="text", markup=False)
        yield ProgressBar(total=1, show_eta=False)  # an unknown total would be redrawn continuously
        yield Static(id="talk", markup=False)
        yield Input()
        yield Footer()

    def on_mount(self) -> None:
        self.action_audit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        free = not (self._busy or self._unconfirmed)
        in_flight = self._disk.in_flight
        plans = free and not in_flight
        recovers = free and in_flight
        can = {"audit": free, "plan": plans, "realign": plans, "recover": recovers}
        return (can | {"back": not self._confirmed, "stop": self._confirmed}).get(action, True)

    def _settle(self, message: str | Text = "", *, busy: bool = False, change: Change | None = None) -> None:
        """Show the current activity below the text, and the keys that are available."""
        self._busy = busy
        self._unconfirmed = change
        message_line = self.query_one("#talk", Static)
        message_line.update(message)
        message_line.display = bool(message)
        self.query_one(ProgressBar).display = self.moving is not None
        answer = self.query_one(Input)
        answer.display = change is not None
        (answer if change else self.query_one(VerticalScroll)).focus()
        self.refresh_bindings()

    def _show(self, text: Text) -> None:
        self.query_one("#text", Static).update(text)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def _begin(self, name: str) -> None:
        """Show the name of the command that runs now."""
        self.query_one(".title", Static).update(command(name, self._disk.path))
        self._show(Text())
        self._settle("…", busy=True)

    def action_scroll(self, pages: int) -> None:
        text = self.query_one(VerticalScroll)
        text.scroll_relative(y=pages * (text.size.height - 1), animate=False)

    def action_back(self) -> None:
        if self._unconfirmed:
            self._settle("not confirmed; nothing was written")
        else:
            self.app.pop_screen()

    # Output of commands, and the confirmation.

    @property
    def _width(self) -> int:
        return max(self.size.width - 2, 40)  # without the scroll bar

    async def _printed(self, *words: str) -> Text:
        return await printed(*words, "--", self._disk.path, width=self._width)

    @work(exclusive=True)
    async def action_audit(self) -> None:
        self._begin("audit --map")
        self._show(await self._printed("audit", "--map"))
        self._settle()

    @work(exclusive=True)
    async def action_plan(self) -> None:
        self._begin("plan realign")
        await self._plan()
        self._settle()

    async def _plan(self) -> Change | None:
        """Show the plan of a realign. Return None if it is refused or empty."""
        child = await start("plan", "realign", "--json", "--", self._disk.path, errors=PIPE)
        output, errors = await child.communicate()
        if child.returncode:
            self._show(Text(errors.decode(errors="replace")))
            return None
        plan = from_json(output.decode())
        self._show(as_text(plan_lines(plan, width=self._width, commands=commands_of(plan))))
        facts = run_change.question_lines(plan, width=self._width)
        return Change(plan, facts, ("apply", "/dev/stdin"), output) if plan.steps else None

    @work(exclusive=True)
    async def action_realign(self) -> None:
        self._begin("realign")
        self._ask(await self._plan())

    @work(exclusive=True)
    async def action_recover(self, way: str) -> None:
        self._begin(way)
        self._show(await self._printed(way, "--dry-run"))
        known = await read_disk_state(self._disk.path) == "in-flight"
        plan = await asyncio.to_thread(read_journal, self._disk.path) if known else None
        if plan is None:
            self._settle()
            return
        facts = recover.question_lines(self._disk.path, plan, back=way == "rollback")
        self._ask(Change(plan, facts, (way, self._disk.path)))

    def _ask(self, change: Change | None) -> None:
        if change is None:
            self._settle()
            return
        self.query_one(Input).value = ""
        self._answers_left = ANSWERS
        typed = plain(f"Type {harmless(self._disk.path)} to continue, or press Esc:")
        self._settle(as_text([*change.facts, typed]), change=change)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._unconfirmed is None:
            return
        word = harmless(self._disk.path)
        if event.value.split() != word.split():
            self._answers_left -= 1
            if self._answers_left:
                event.input.value = ""
                message = f"That is not {word}. Type {word} to continue, or press Esc:"
                self._settle(harmless(message), change=self._unconfirmed)
            else:
                self._settle(f"the answer was not {word}; nothing was written")
            return
        change = self._unconfirmed
        self._confirmed = True
        self._settle("…", busy=True)  # now, so that a second Enter starts nothing
        self._move(change)

    # The move.

    @work(exclusive=True)
    async def _move(self, change: Change) -> None:
        asked = ("--not-suspended",) if change.given and suspension_sentences(change.plan) else ()
        self.moving = child = await start(*change.words, "--yes", "--json", *asked, *self._rate, stdin=PIPE)
        self._begin("realign" if change.given else change.words[0])
        output = MoveOutput(len(change.plan.steps))
        if child.stdin and child.stdout:
            child.stdin.write(change.given)
            child.stdin.close()
            async for line in child.stdout:
                self._show_output(output, line.decode(errors="replace").rstrip("\n"))
        exit_code = await child.wait()
        path = self._disk.path
        if exit_code in (ExitCode.DONE, ExitCode.STOPPED):
            in_flight = output.silent or await read_disk_state(path) in ("in-flight", "")
            self._disk = replace(self._disk, in_flight=in_flight)
            self._stopped.pop(path, None)
        if exit_code == ExitCode.STOPPED:
            errors = (line for line in output.log if line.startswith("aligntool: "))
            self._stopped[path] = "\n".join(line.removeprefix("aligntool: ") for line in errors)
        if exit_code == ExitCode.DONE:
            back = change.words[0] == "rollback"
            attention = as_text(() if back else attention_lines(change.plan, width=self._width))
            result = Text("\n".join(map(harmless, output.end)))
            title = Text(f"$ {command('audit', path)}", "bold")
            parts = (result, attention, title, await self._printed("audit"))
            self._show(Text("\n\n").join(part for part in parts if part))
        self.moving = None
        self._confirmed = False
        self._settle()

    def _show_output(self, output: MoveOutput, line: str) -> None:
        """Show an event, or a line that the command prints between its events."""
        event = json.loads(line if line.startswith("{") else '{"event": "text"}')
        output.silent = event["event"] in (("waiting", "text") if output.silent else ("waiting",))
        match event["event"]:
            case "text" if not output.end:
                output.log.append(line)
            case "plan":
                output.log.clear()  # the lines before the events are the plan, once more
            case "step-begun":
                output.log.append(f"{event['index'] + 1}/{output.steps} {event['title']}")
            case "said":
                output.log.append(f"  {event['text']}")
            case "waiting":
                self.query_one("#talk", Static).update(harmless(event["text"]))
            case "progress":
                done = Progress(event["index"], event["done"], event["total"])
                self.query_one(ProgressBar).update(total=done.total, progress=done.done)
                self.query_one("#talk", Static).update(output.pace.words(done))
            case "end":
                output.end = [
                    *event["sentences"],
                    *(f"  → {hint}" for hint in event["next"].split("\n") if hint),
                ]
                output.log += output.end
        self.query_one("#text", Static).update("\n".join(map(harmless, output.log)))
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_stop(self) -> bool:
        """Stop the move as Ctrl-C at the prompt does. Return False if there is none."""
        if self.moving:
            self.query_one("#talk", Static).update("stopping …")
            with suppress(ProcessLookupError):
                self.moving.send_signal(signal.SIGINT)
        return self._confirmed


class Help(Screen[None]):
    """The keys."""

    BINDINGS: ClassVar = [Binding("escape", "app.pop_screen", "Back")]

    def compose(self) -> ComposeResult:
        yield Static("aligntool tui", classes="title")
        yield VerticalScroll(Static(HELP, markup=False))
        yield Footer()


class Screens(App[None]):
    """The application with all screens."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    .title { text-style: bold reverse; width: 100%; height: 1; }
    VerticalScroll, Disks, Horizontal { height: 1fr; }
    #beside { padding-left: 2; }
    ProgressBar, Bar { width: 1fr; }
    Input { border: none; height: 1; padding: 0; }
    """
    BINDINGS: ClassVar = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, targets: tuple[str, ...], rate: int | None) -> None:
        super().__init__(ansi_color=True)  # otherwise NO_COLOR makes text and background black
        self.stopped: dict[str, str] = {}
        self._first = DiskList(targets, rate, self.stopped)

    def on_mount(self) -> None:
        theme = next(
            (name for name in ("ansi-dark", "textual-ansi") if name in self.available_themes), self.theme
        )
        self.theme = theme  # the terminal's own colours
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminate)
        self.push_screen(self._first)

    def action_help(self) -> None:
        if not isinstance(self.screen, Help):
            self.push_screen(Help())

    async def action_quit(self) -> None:
        """Leave; if partitions are moving, stop the move first."""
        if not any([page.action_stop() for page in self._pages()]):
            self.exit()

    @work
    async def _terminate(self) -> None:
        """Stop a move, wait for its end, and leave with the terminal as it was."""
        for page in self._pages():
            page.action_stop()
        while any(page.moving for page in self._pages()):
            await asyncio.sleep(_STOP_POLL_S)
        self.exit()

    def _pages(self) -> list[DiskPage]:
        return [screen for screen in self.screen_stack if isinstance(screen, DiskPage)]


def run(targets: tuple[str, ...], rate: int | None) -> dict[str, str]:
    """Show the screens until the user leaves; return the messages about each disk that was left in flight."""
    app = Screens(targets, rate)
    app.run(mouse=False)
    if app.return_code:
        sys.exit(ExitCode.BUG)
    return app.stopped
