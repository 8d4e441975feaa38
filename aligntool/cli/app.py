"""The command table and `main`, which ends with the exit code that docs/cli.md documents.

A command's module is imported only when the command runs or its help is shown.
"""

import errno
import io
import os
import re
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import Parameter, Signature, signature
from pkgutil import get_data
from typing import TYPE_CHECKING, Annotated, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup

from aligntool import __version__
from aligntool.commands import command
from aligntool.errors import ExitCode, Refused, Stopped
from aligntool.linux.signals import interrupt_once
from aligntool.render.lines import (
    FORCE_COLOR,
    NO_COLOR,
    cell_width,
    command_lines,
    fitted,
    harmless,
    show,
    wrapped,
)
from aligntool.render.translate import catalogue, language, translated, use_catalogue

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Command: module in aligntool.cli, function, first line of its docstring.
COMMANDS = {
    "audit": (
        "audit",
        "audit",
        "Check the alignment of every partition: on the grid, off the grid, or unknown.",
    ),
    "explain": ("reference", "explain", "Explain a finding: what it means, what it costs, and what to do."),
    "drives": ("reference", "drives", "Show what is known about a drive, with the source of every fact."),
    "realign": ("partitions", "realign", "Move misaligned partitions to aligned starts."),
    "layout": (
        "partitions",
        "layout",
        "Write a new partition table to an empty disk, with every partition aligned.",
    ),
    "partition": ("tables", "partition", "Put a whole-disk file system or LVM volume into a partition."),
    "convert": (
        "tables",
        "convert",
        "Convert the partition table of a disk or image to another sector size.",
    ),
    "apply": ("recover", "apply", "Apply a plan that was saved in a file."),
    "status": (
        "recover",
        "status",
        "Show the progress of an interrupted move or array, and the next command.",
    ),
    "resume": ("recover", "resume", "Finish an interrupted move or array."),
    "rollback": ("recover", "rollback", "Undo an interrupted move or array."),
    "probe": ("probe", "probe", "Find the internal unit of a drive by timing requests."),
    "tui": ("tui", "tui", "Browse disks, verdicts, plans and moves in a full-screen interface."),
    "schema": ("reference", "schema", "Print the JSON Schema of a document that aligntool writes."),
    "report": ("report", "report", "Write one HTML page of disks, findings, arrays and benchmarks."),
    "snapshot": ("report", "snapshot", "Capture what an audit reads from this machine."),
    "fleet": ("fleet", "fleet", "Audit many captured machines in one report."),
    "demo": (
        "partitions",
        "demo",
        "Create a misaligned disk image, audit it, realign it, and audit it again.",
    ),
    "plan realign": ("partitions", "plan_realign", "Plan the moves to aligned starts, and show every step."),
    "plan layout": (
        "partitions",
        "plan_layout_command",
        "Plan a new partition table for an empty disk, and show it.",
    ),
    "plan partition": ("tables", "plan_partition", "Plan a partition for the content of a whole disk."),
    "plan convert": ("tables", "plan_convert", "Plan a partition table for another sector size."),
    "raid plan": ("raid", "plan_command", "Plan an array, and show how it would be created."),
    "raid show": ("raid", "show_command", "Show arrays: members, links, state and data offset."),
    "raid create": (
        "raid",
        "create_command",
        "Create an array, and configure the system to start it at every boot.",
    ),
    "raid ensure": (
        "ensure",
        "ensure_command",
        "Let the array of a file exist: leave it as it is, or make it of blank drives.",
    ),
    "raid persist": (
        "raid",
        "persist_command",
        "Configure the system to start an existing array at every boot.",
    ),
    "raid reformat": (
        "reformat",
        "reformat",
        "Change the LBA format of the NVMe members of an array, one at a time.",
    ),
    "raid tune": ("raid", "tune_command", "Measure which chunk size or settings are fastest."),
    "bench run": ("bench", "bench_run", "Measure a drive with fio, and show medians with their range."),
    "bench list": ("bench", "list_results_command", "List saved results, oldest first."),
    "bench show": ("bench", "show_command", "Show a saved result."),
    "bench compare": ("bench", "compare_command", "Compare results as a chart of log10 ratios."),
    "bench alignment": (
        "bench",
        "bench_alignment",
        "Measure whether the start of a partition matters on this drive.",
    ),
    "bench span": ("bench", "bench_span", "Measure how much of a drive its cached mapping table covers."),
    "trace read": ("trace", "trace", "Analyse a log of commands to a drive."),
    "trace record": ("trace", "record_command", "Analyse the requests to a disk while a command runs."),
    "estimate boot": ("trace", "boot", "Estimate how long a drive needs for the commands of a boot."),
    "recipes list": ("reference", "list_recipes", "List the recipes, and the command for each."),
    "recipes show": (
        "reference",
        "show_recipe",
        "Show the goal of a recipe, and the sources of its numbers.",
    ),
    "recipes check": ("reference", "check_recipe", "Check a recipe of your own, and show it."),
}

# Groups: help text, and an example.
GROUPS = {
    "plan": (
        "Show every change to a disk, to the byte, without writing anything.",
        "aligntool plan realign disk.img",
    ),
    "raid": (
        "Plan, make and show arrays aligned to the boundaries of their drives.",
        "sudo aligntool raid create --level 1 /dev/nvme0n1 /dev/nvme1n1",
    ),
    "bench": (
        "Measure drives with fio; `bench TARGET` is `bench run TARGET`.",
        "aligntool bench /srv --profile crystaldiskmark",
    ),
    "trace": (
        "Analyse commands to a drive; `trace LOG` is `trace read LOG`.",
        "aligntool trace boot.log --grid 4KiB",
    ),
    "estimate": ("Estimate times from measured rates.", "aligntool estimate boot --rate-a 30,90"),
    "recipes": ("List, show and check recipes for common cases.", "aligntool recipes list"),
}
# The command of a group that runs if the first word is not one of its commands.
DEFAULT_COMMANDS = {"bench": "run", "trace": "read"}


class LateCommand(TyperCommand):
    """A command with its name and short help; the rest is loaded when needed."""

    def __init__(self, name: str, module: str, function: str, short: str) -> None:
        super().__init__(name, help=short, short_help=short, rich_markup_mode=None)
        self._module_name = module
        self._function_name = function

    def load(self) -> TyperCommand:
        """Return the command with its options."""
        function = getattr(import_module(f"aligntool.cli.{self._module_name}"), self._function_name)
        program = typer.Typer(add_completion=False, rich_markup_mode=None)
        program.command(self.name)(spread_options(function))
        return cast("TyperCommand", typer.main.get_command(program))  # a single command is not a group

    def make_context(  # type: ignore[override]
        self, info_name: str | None, args: list[str], parent: typer.Context | None = None, **extra: object
    ) -> typer.Context:
        return cast("typer.Context", self.load().make_context(info_name, args, parent, **extra))


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer: each field of a parameter that is a dataclass becomes an option of its own,
    and the options of every command are added.
    """
    groups = {
        name: parameter.annotation
        for name, parameter in signature(command).parameters.items()
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
    }
    spread: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        group = fields(groups[name]) if name in groups else ()
        spread += [_option(field.name, field.default, field.type) for field in group] or [parameter]
    spread += [_option(name, None, kind) for name, kind in _GLOBAL_OPTIONS.items()]

    def wrapper(**values: object) -> None:
        for name in _GLOBAL_OPTIONS:
            del values[name]
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    vars(wrapper)["__signature__"] = Signature(spread)
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    paragraphs = (command.__doc__ or "").split("\n\n")
    wrapper.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    wrapper.__name__ = command.__name__
    return wrapper


def _option(name: str, default: object, kind: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _late_commands(prefix: str) -> dict[str, LateCommand]:
    """Return the commands of the table whose name is `prefix` and one more word."""
    found = {name.removeprefix(prefix): row for name, row in COMMANDS.items() if name.startswith(prefix)}
    return {word: LateCommand(word, *row) for word, row in found.items() if " " not in word}


class Group(TyperGroup):
    """A group of commands. Its default command may be omitted: `bench /srv` is `bench run /srv`."""

    def __init__(self, name: str, text: str, example: str) -> None:
        super().__init__(
            name=name,
            help=f"{text}\n\nExample: {example}",
            short_help=text,
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        self.commands.update(_late_commands(f"{name} "))
        self._default = DEFAULT_COMMANDS.get(name)

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if self._default and args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [self._default, *args]
        return super().parse_args(ctx, args)


# Printed by `aligntool` without arguments; it fits a terminal of 24 lines.
FIRST_PAGE = """\
Audit disks for misaligned partitions, realign them in place, build NVMe RAID.

  look      audit, report, status, tui  check partitions, drives and arrays
            explain, drives, recipes    what is known, with sources
            snapshot, fleet, schema     capture machines, audit many; schemas
  change    plan realign, realign       move partitions onto the boundary
            plan layout, layout         make a new partition table
            plan partition, partition   put a whole disk into a partition
            plan convert, convert       512-byte sectors to 4096, and back
            apply, resume, rollback     apply a saved plan; finish or undo
  arrays    raid plan, create, persist  make an array that starts at every boot
            raid show, tune, reformat   show; measure chunks; change LBA format
  measure   bench, probe                a drive's performance and internal unit
            trace, estimate             analyse a load, and estimate its time
  try       demo                        everything on a disk image, without root

Nothing is written before the plan is shown and confirmed.

  sudo aligntool audit                  every disk of this machine
  aligntool audit disk.img              a disk image, without root
  sudo aligntool realign /dev/sda       plan, ask, move

aligntool --help lists the options, aligntool COMMAND --help those of a command.
"""


_UNDER = " " * 14


def page_within(page: str, width: int) -> Iterator[str]:
    """Yield the lines of a page in columns; on a narrow terminal the last column stands below the others."""
    for line in page.splitlines():
        if cell_width(line) <= width:
            yield line
            continue
        head, _, last = line.rpartition("  ")
        if head.strip():
            yield from wrapped(head.rstrip(), width, _UNDER)
        yield from wrapped(f"{_UNDER if head.strip() else ''}{last}", width, "    ")


class Program(TyperGroup):
    """All commands and groups."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type] # typer's own arguments
        self.commands.update(_late_commands(""))
        self.commands.update({name: Group(name, *row) for name, row in GROUPS.items()})

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args and not ctx.resilient_parsing:  # resilient while completing the first word
            width = max(shutil.get_terminal_size((80, 24)).columns, 40)
            print("\n".join(page_within(translated(FIRST_PAGE), width)))
            ctx.exit()
        index = next((index for index, word in enumerate(args) if word in self.commands), 0)
        if args[index : index + 2] == ["plan", "raid"]:  # users expect it next to `plan realign`
            args = [*args[:index], "raid", "plan", *args[index + 2 :]]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="aligntool",
    cls=Program,
    # click's would start the program at every TAB (half a second), and complete no values
    add_completion=False,
    help="Audit disks for misaligned partitions, and move them onto the boundary without losing data; make"
    " aligned arrays that start at every boot; measure the performance of drives.",
    rich_markup_mode=None,
    epilog="Example: sudo aligntool audit        Without root, the audit covers only what can be read without"
    " root.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _color(when: str | None) -> None:
    """Make the option override the environment, also for the output of rich and typer."""
    if when is None:
        return
    if when not in ("auto", "always", "never"):
        raise typer.BadParameter(f"{when!r} is not auto, always or never")
    for name in (NO_COLOR, *FORCE_COLOR):
        os.environ.pop(name, None)
    if when != "auto":
        os.environ.update(dict.fromkeys(FORCE_COLOR if when == "always" else (NO_COLOR,), "1"))


def _no_pager(wanted: bool) -> None:
    if wanted:
        os.environ["ALIGNTOOL_PAGER"] = ""


def _unconfined(wanted: bool) -> None:
    if wanted:
        import_module("aligntool.linux.confined").allow_unconfined()


_GLOBAL_OPTIONS = {
    "color": Annotated[
        str | None,
        typer.Option(
            "--color",
            metavar="auto|always|never",
            callback=_color,
            is_eager=True,
            help="When to colour the output.",
        ),
    ],
    "no_pager": Annotated[
        bool,
        typer.Option(
            "--no-pager", callback=_no_pager, is_eager=True, help="Do not show long text in a pager."
        ),
    ],
    "unconfined": Annotated[
        bool,
        typer.Option(
            "--unconfined",
            callback=_unconfined,
            is_eager=True,
            help="Do not confine the programs that parse a disk or image.",
        ),
    ],
}
"""Options of every command; they may also precede it."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"aligntool {__version__}")
        raise typer.Exit


def _completion(shell: str | None) -> None:
    if shell:
        if shell not in ("bash", "zsh", "fish"):
            raise typer.BadParameter(f"{shell!r} is not bash, zsh or fish")
        sys.stdout.write((get_data("aligntool.cli", f"completions/aligntool.{shell}") or b"").decode())
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="SHELL",
            callback=_completion,
            is_eager=True,
            help="Print the completion file of bash, zsh or fish.",
        ),
    ] = None,
) -> None:
    """Options before the command."""


app.callback()(spread_options(_options))


UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, which some versions of typer bundle


# What is done with a disk whose name stands where a command is expected.
_MEANT = {"aligntool": "audit", "aligntool plan": "plan realign"}
# An option that is a command.
_MEANT_OPTIONS = {("aligntool audit", "--html"): "aligntool report"}


def _command_for(text: str, program: str) -> str:
    """Return the command that was probably meant, or "". `text`: click's words."""
    option = re.match("No such option:? '?(--[a-z]+)", text)
    if option and (program, option[1]) in _MEANT_OPTIONS:
        return _MEANT_OPTIONS[program, option[1]]
    found = re.match("No such command '(.+)'", text)
    if found is None or program not in _MEANT or not os.path.lexists(found[1]):
        return ""
    return command(_MEANT[program], found[1])


def _end_usage_error(error: Exception) -> NoReturn:
    """Print a usage error like any other error, and exit."""
    text = str(getattr(error, "format_message", str)())
    if type(error).__name__ == "NoArgsIsHelpError":
        print(text, file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    text = text.removeprefix("Invalid value: ").removesuffix(".")
    begins_sentence = text[1:2].islower()  # of click: "No such option"
    context = getattr(error, "ctx", None)
    program = context.command_path if context else "aligntool"
    hint = _command_for(text, program) or f"{program} --help"
    _print_error(text[:1].lower() + text[1:] if begins_sentence else text, hint)
    sys.exit(ExitCode.USAGE)


def _run_command() -> int:
    """Run the command, and return the exit code."""
    prepare_streams()
    try:
        return app(prog_name="aligntool", standalone_mode=False) or ExitCode.DONE
    finally:
        sys.stdout.flush()  # a full disk is reported here; at exit it would be a traceback


_MOMENT_S = 0.01


def _prepare_signals() -> None:
    # when a reader closes the pipe (head, less), end as cat does
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # some supervisors ignore it; then every child seems to exit with 0
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, interrupt_once)
    signal.signal(signal.SIGALRM, interrupt_once)
    sys.unraisablehook = _interrupt_again


def _interrupt_again(discarded: "sys.UnraisableHookArgs") -> None:
    """Interrupt the command a moment later, if that happened while an object was freed: Python discards what
    is raised there.
    """
    if isinstance(discarded.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _MOMENT_S)
    else:
        sys.__unraisablehook__(discarded)


def main() -> None:
    """Run the program, and end with the exit code that docs/cli.md documents."""
    if len(os.environ.get("COLUMNS", "")) > 4:  # lines that are padded to such a width would fill the memory
        del os.environ["COLUMNS"]
    use_catalogue(catalogue(language(os.environ)))
    _prepare_signals()
    try:
        sys.exit(_run_command())
    except UsageError as error:
        _end_usage_error(error)
    except (Refused, Stopped) as error:
        for number in (signal.SIGINT, signal.SIGPIPE):  # from here on only the exit code matters
            signal.signal(number, signal.SIG_IGN)
        _print_error(str(error), error.hint, error.about if isinstance(error, Stopped) else ())
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        # a move that has begun raises Stopped
        if isinstance(error, OSError) and error.errno == errno.ENOTCONN:
            _print_error(
                f"the program that exports the disk has exited: {error}", "run the same command again"
            )
            sys.exit(ExitCode.REFUSED)
        if isinstance(error, FileNotFoundError) and "usable" in (error.strerror or ""):  # by tempfile
            _print_error(
                "no folder for temporary files can be written", "set TMPDIR to a folder with free space"
            )
            sys.exit(ExitCode.REFUSED)
        if _is_shortage(error):
            traceback.clear_frames(error.__traceback__)  # frees memory, which the message needs
            what = error.strerror if isinstance(error, OSError) else str(error) or "memory"
            _print_error(f"a resource is exhausted: {what}", "ulimit -a   shows the limits")
            sys.exit(ExitCode.REFUSED)
        for line in traceback.format_exc().splitlines():  # a message may have a name from a disk
            print(harmless(line), file=sys.stderr)
        print(
            "aligntool: this is a bug in aligntool. Please report it with the lines above.", file=sys.stderr
        )
        print(
            "  → aligntool snapshot -o snapshot.tar.xz   captures this machine for the report",
            file=sys.stderr,
        )
        sys.exit(ExitCode.BUG)


def _is_shortage(error: Exception) -> bool:
    """Return whether memory, processes or open files are exhausted. A change that has begun raises
    Stopped.
    """
    exhausted = isinstance(error, OSError) and error.errno in (
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
    )
    # they name the way back
    is_thread = "can't start new thread" in str(error) and not hasattr(error, "__notes__")
    return exhausted or isinstance(error, MemoryError) or is_thread


def _print_error(reason: str, hint: str, about: Sequence[str] = ()) -> None:
    """Print an error to stderr; names in it may come from a disk or another user's path. `about`: what each
    line of the hint does.
    """
    try:
        for line in reason.split("\n"):
            print(fitted(f"aligntool: {line}", sys.stderr), file=sys.stderr)
        width = shutil.get_terminal_size((80, 24)).columns
        show(command_lines(hint.split("\n") if hint else (), width, about), sys.stderr, color=False)
    except OSError:  # the terminal was closed: keep the exit code, also when Python flushes what is left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


# Standard output whose errors are refusals: a full disk, a closed pipe.


class StandardOutput(io.FileIO):
    """Reports output that cannot be written, then discards it; Python would try again at exit."""

    def write(self, content: "ReadableBuffer") -> int:
        try:
            while (written := super().write(content)) is None:
                select.select([], [self], [])  # a full pipe that does not block
            return written
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise Refused(f"standard output cannot be written: {error.strerror}") from error


class StandardError(io.FileIO):
    """Discards messages for which there is no space: a full disk under a log neither stops a change nor sets
    the exit code. Other errors, such as of a closed terminal, are raised.
    """

    def write(self, content: "ReadableBuffer") -> int:
        try:
            return super().write(content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            return memoryview(content).nbytes


def prepare_streams() -> None:
    """Replace closed standard streams (`>&-`): Python has None for them, and the next file would get their
    number.

    Raises Refused if standard output is closed.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    elif isinstance(sys.stderr, io.TextIOWrapper):
        raw_error = StandardError(sys.stderr.fileno(), "w", closefd=False)  # Textual uses sys.__stderr__
        coding = sys.stderr.encoding
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw_error), coding, "backslashreplace", line_buffering=True
        )
    if sys.stdout is None:
        raise Refused("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        coding = sys.stdout.encoding
        by_line = sys.stdout.line_buffering
        raw = StandardOutput(sys.stdout.detach().fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), coding, "backslashreplace", line_buffering=by_line
        )
        vars(sys)["__stdout__"] = sys.stdout  # shutil.get_terminal_size asks this one for its descriptor
