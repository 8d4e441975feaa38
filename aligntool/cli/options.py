"""Options that several commands share, confirmation, the standard streams."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.models import ArgumentInfo, OptionInfo

from aligntool.audit.wording import shell_word
from aligntool.errors import Refused, Stopped, refuse_folder_name
from aligntool.render.lines import Line, harmless, show, wants_color
from aligntool.units import format_size, is_power_of_two, parse_size


def command(name: str, disk: str, *words: str) -> str:
    """A command of aligntool on this disk, as it is typed; devices need root, image files do not."""
    root = "sudo " if disk.startswith("/dev/") else ""
    return " ".join((f"{root}aligntool {name} {shell_word(disk)}", *words))


@contextmanager
def naming(disk: str) -> Iterator[None]:
    """Code below does not know how the user named the disk: hints with DISK get its name here."""
    try:
        yield
    except (Refused, Stopped) as error:
        full = re.sub(r"aligntool ([a-z ]+) DISK\b", lambda found: command(found[1], disk), error.hint)
        error.hint = re.sub(r"\bDISK\b", lambda _: shell_word(disk), full)
        raise


# The one question before anything is written.
#
# Every command that begins to write asks it in the same words. What is typed is the disk's own name, not a "y" that
# fingers type by themselves.


def confirm_disk(path: str, word: str, what: str, yes: bool) -> None:
    """Return when the user typed `word`, or gave --yes. Raises Refused."""
    if yes:
        return
    word = harmless(word)
    if not _can_ask():
        hint = "add --yes to the command"
        raise Refused("no terminal to ask on; nothing was written", hint=hint, code="not-confirmed", subject=path)
    if _answer(f"This writes to {harmless(path)}.", f"{what}, {word},") != " ".join(word.split()):
        raise Refused(f"that was not {word}; nothing was written", code="not-confirmed", subject=path)


def confirm_long(about: str, yes: bool) -> None:
    """Return when the user agreed to so long a measurement, or gave --yes. Raises Refused."""
    if yes:
        return
    if not _can_ask():
        raise Refused(
            f"this takes about {about}, and there is no terminal to ask on; nothing was measured",
            hint="add --yes to the command, or take fewer passes or repeats",
        )
    if _answer(f"This takes about {about}.", "yes").lower() != "yes":
        raise Refused("that was not yes; nothing was measured")


def _answer(why: str, what: str) -> str:
    """Return what the user types, with single spaces."""
    print(f"\n{why}\nType {what} to go on: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return " ".join(answer.split())


def _can_ask() -> bool:
    """Standard input can be closed (`<&-`), and then Python has None in its place."""
    return sys.stdin is not None and sys.stdin.isatty()


# Options that several commands share, and how their values are read.


def size(text: str) -> int:
    """ "4KiB" -> 4096, or a usage error with an example."""
    try:
        number = parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if number <= 0:
        raise typer.BadParameter(f"{text!r} is too small")
    return number


def sector(text: str) -> int:
    """A sector size: a power of two from 512 bytes to 64 KiB."""
    number = size(text)
    if not is_power_of_two(number) or not 512 <= number <= 65536:
        raise typer.BadParameter(f"{text!r} is not a sector size; 512 and 4096 are usual")
    return number


def grid(text: str) -> int:
    """A page or grain: a multiple of 512 bytes."""
    number = size(text)
    if number % 512 or number > 1 << 40:
        raise typer.BadParameter(f"{text!r} is not a multiple of 512 bytes that a disk could have")
    return number


def whole(least: int, most: int | None = None) -> Callable[[object], int]:
    """Return a parser of whole numbers, written in the digits 0 to 9 and nothing else: Python's own int() also takes
    1_000, " 5 " and the digits of other scripts.
    """
    span = f"from {least} to {most}" if most is not None else f"of at least {least}"

    def number(given: object) -> int:  # the default is given too, as a number
        text = str(given)
        found = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
        if found is None or found < least or (most is not None and found > most):
            raise typer.BadParameter(f"{text!r} is not a whole number {span}")
        return found

    return number


def seconds(least: float, most: float) -> Callable[[object], float]:
    """Return a parser of seconds: digits with or without a decimal point, so neither nan nor 1e3."""

    def number(given: object) -> float:
        text = str(given)
        found = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", text) else None
        if found is None or not least <= found <= most:
            raise typer.BadParameter(f"{text!r} is not a number of seconds from {least:g} to {most:g}")
        return found

    return number


def partition_numbers(words: Sequence[str] | None) -> list[int] | None:
    """Return the numbers of `-p 1 -p 2` or `-p 1,2`, each once; None: the option was not given."""
    numbers = [whole(1)(word.strip()) for words_ in words or () for word in words_.split(",")]
    return list(dict.fromkeys(numbers)) or None


def place(text: str) -> str:
    """A folder to mount at, as the kernel names it: no slash at the end, no links on the way. Other words stay."""
    return os.path.realpath(text) if text.startswith("/") else text


def keep(path: str, text: str) -> None:
    """A file of the user's choosing; never over another one. Raises Refused."""
    refuse_folder_name(path)
    try:
        with Path(path).open("x") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(f"{path} is there already; nothing was written", hint=f"rm {shell_word(path)}") from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error


def read_text(path: str, *, hint: str) -> str:
    """Return the text of a file that the user named. Raises Refused."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise Refused(f"{path}: {why}", hint=hint) from error


def print_lines(lines: str | Iterable[Line]) -> None:
    """Write lines to standard output, in colour on a terminal, or a text as it is."""
    if isinstance(lines, str):
        sys.stdout.write(lines)
    else:
        show(lines, sys.stdout, color=colored())


def say(words: str) -> None:
    """Write a remark to standard error."""
    print(f"aligntool: {harmless(words)}", file=sys.stderr, flush=True)


def now() -> str:
    """Return the time in UTC, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def terminal_width() -> int:
    """Columns of the terminal; 80 in a pipe; COLUMNS overrides both."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def colored() -> bool:
    return wants_color(sys.stdout, dict(os.environ))


_SECTOR_SIZES = ("sector_size", "physical_sector_size")


def _ordered_sectors(context: typer.Context, option: typer.CallbackParam, given: int | None) -> int | None:
    """Return the size; called for either option, and by the later one with the other in the context.

    Raises BadParameter where the physical sector would be smaller than the logical one.
    """
    logical, physical = (given if option.name == name else context.params.get(name) for name in _SECTOR_SIZES)
    if logical and physical and physical < logical:
        raise typer.BadParameter(
            f"physical sectors of {physical} bytes cannot be smaller than logical sectors of {logical} bytes"
        )
    return given


def option(
    names: str,
    about: str,
    metavar: str | None = None,
    parser: Callable[[str], object] | None = None,
    *,
    callback: Callable[..., object] | None = None,
    panel: str | None = None,
    hidden: bool = False,
) -> OptionInfo:
    """Return an option. `names`: as they are typed, with a space between them."""
    made: OptionInfo = typer.Option(
        *names.split(), help=_plain(about), metavar=metavar, parser=parser, callback=callback, rich_help_panel=panel,
        hidden=hidden,
    )  # fmt: skip
    return made


def argument(metavar: str, about: str) -> ArgumentInfo:
    """Return an argument by its place."""
    made: ArgumentInfo = typer.Argument(metavar=metavar, help=_plain(about))
    return made


def _plain(about: str) -> str:
    """Return the words for a help page, where rich takes "[default: 1MiB]" for a style."""
    return about.replace("[", "\\[")


_geometry = partial(option, panel="Geometry, where the device does not report it")

TargetsArgument = Annotated[
    list[str] | None, argument("TARGET", "Devices or disk image files [default: every disk of this machine].")
]
DiskArgument = Annotated[str, argument("DISK", "A whole disk, or a disk image file.")]
MeasureTargetArgument = Annotated[str, argument("TARGET", "A folder (for a temporary file), a file, or a device.")]
JsonOption = Annotated[bool, option("--json", "As JSON.")]
EventsOption = Annotated[bool, option("--json", "Report events as JSON lines.")]
YesOption = Annotated[bool, option("--yes", "Do not ask for confirmation; overrides no refusal.")]
DryRunOption = Annotated[bool, option("--dry-run", "Show the plan and stop.")]
PlanOutputOption = Annotated[str | None, option("--output -o", "Save the plan, for `aligntool apply FILE`.", "FILE")]
SysrootOption = Annotated[str | None, option("--sysroot", "Use a captured machine: a snapshot or its folder.", "DIR")]
OverwriteOption = Annotated[bool, option("--overwrite", "Replace existing files.")]
RecipeOption = Annotated[str | None, option("--recipe", "Use a goal that comes with aligntool.", "NAME")]
DestructiveOption = Annotated[bool, option("--destructive", "Write to the device itself, which must be empty.")]
FioOutputOption = Annotated[
    str | None, option("--fio-output", "Save fio's own JSON of every run in this folder.", "DIR")
]
RateOption = Annotated[int | None, option("--rate", "Copy at most this much per second, such as 50MiB.", "SIZE", size)]
SystemOption = Annotated[
    str | None,
    option(
        "--system", "Target system: debian, debian-dracut, fedora, opensuse or arch [default: this machine's].", "NAME"
    ),
]
WakeOption = Annotated[bool, option("--wake", "Also read disks that are asleep.")]
_TIMEOUT = "How long to wait for a disk; then it is skipped."
TimeoutOption = Annotated[float, option("--timeout", _TIMEOUT, "SECONDS", seconds(0.1, 3600))]
SectorOption = Annotated[
    int | None,
    _geometry("--sector-size", "Logical sector size, such as 4096.", "SIZE", sector, callback=_ordered_sectors),
]
_PHYSICAL = "Physical sector size; image files are assumed to have 4096."
PhysicalOption = Annotated[
    int | None, _geometry("--physical-sector-size", _PHYSICAL, "SIZE", sector, callback=_ordered_sectors)
]
PageOption = Annotated[int | None, _geometry("--page-size", "NAND page or internal unit, such as 16KiB.", "SIZE", grid)]
WishedGrainOption = Annotated[
    int | None, _geometry("--grain", "Boundary that partitions should start on [default: 1MiB].", "SIZE", grid)
]
MeasuredOption = Annotated[
    list[str] | None, _geometry("--measured", "Compare the disk with the result of `aligntool probe -o FILE`.", "FILE")
]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Options of a disk that does not report its geometry."""

    sector_size: SectorOption = None
    physical_sector_size: PhysicalOption = None
    page_size: PageOption = None

    @property
    def typed(self) -> dict[str, int | None]:
        """The options by their names on the command line."""
        names = ("--sector-size", "--physical-sector-size", "--page-size")
        return dict(zip(names, astuple(self), strict=True))


def typed_words(options: Mapping[str, str | int | None]) -> list[str]:
    """Return the options that were given, as they are typed."""
    given = {name: value for name, value in options.items() if value}
    return [f"{name} {format_size(v) if isinstance(v, int) else shell_word(v)}" for name, v in given.items()]
