"""Options that several commands share, confirmation, the standard streams."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, TextIO

import typer

from aligntool.audit.wording import command as command
from aligntool.audit.wording import hints_for_disk as hints_for_disk
from aligntool.audit.wording import typed_words as typed_words
from aligntool.errors import Refusal, Refused
from aligntool.linux import confined
from aligntool.linux.deadline import SILENCE_S
from aligntool.linux.files import refuse_output, write_file
from aligntool.linux.targets import find_virtual, hold_targets
from aligntool.render.lines import Line, fitted, harmless, plain, show, step_line, wants_color
from aligntool.units import either, is_grid_size, is_sector_size, parse_size

# The question before anything is written: what is written to, what is lost, then the name of the target.
#
# Every command asks it here. The user types the name as it is on the command line, because a "y" is typed
# without thinking, and an identifier would only be copied from the line above.

ADD_YES = "add --yes to the command"
ANSWERS = 3  # the first one, and two more


def confirm(
    name: str,
    facts: Iterable[Line],
    *,
    yes: bool,
    undone: str = "nothing was written",
    no_terminal: str = ADD_YES,
) -> None:
    """Return if the user types `name`, or gave --yes. Raises Refused after three wrong answers.

    `name`: of the target, as the user typed it. `facts`: what is written to, and what is lost. `undone`: what
    a wrong answer prevents. `no_terminal`: the hint where nobody can be asked.
    """
    if yes:
        return
    if not _can_ask():
        text = f"there is no terminal for the confirmation; {undone}"
        raise Refused(text, hint=no_terminal, code="not-confirmed", subject=name)
    sys.stdout.flush()
    print(file=sys.stderr)
    show(facts, sys.stderr, color=colored(sys.stderr))
    word = harmless(name)
    for _ in range(ANSWERS):
        print(f"Type {word} to continue: ", end="", file=sys.stderr, flush=True)
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            print(f"\naligntool: not confirmed; {undone}", file=sys.stderr)
            raise
        if answer.split() == word.split():
            return
        if not answer.endswith("\n"):  # the end of the input, or Ctrl-D
            print(file=sys.stderr)
            break
        remark(f"That is not {word}; {undone}. Ctrl-C ends.")
    raise Refused(f"the answer was not {word}; {undone}", code="not-confirmed", subject=name)


def target_lines(written_to: str, about: Iterable[Line] = ()) -> Iterator[Line]:
    """Yield the facts of a question about a disk. `about`: what is lost."""
    yield plain(f"This writes to {written_to}.")
    yield from about


def _can_ask() -> bool:
    """Return whether standard input is a terminal. Python has None for it if it is closed (`<&-`)."""
    return sys.stdin is not None and sys.stdin.isatty()


# Options that several commands share, and how their values are read.


def size(text: str) -> int:
    """Return the bytes of a size such as "4KiB", or raise a usage error with an example."""
    try:
        number = parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if number <= 0:
        raise typer.BadParameter(f"{text!r} is too small")
    return number


def sector(text: str) -> int:
    """Return a sector size, a power of two from 512 bytes to 64 KiB, or raise a usage error."""
    number = size(text)
    if not is_sector_size(number):
        raise typer.BadParameter(f"{text!r} is not a sector size; 512 and 4096 are usual")
    return number


def grid(text: str) -> int:
    """Return a page size or grain, a multiple of 512 bytes, or raise a usage error."""
    number = size(text)
    if not is_grid_size(number):
        raise typer.BadParameter(f"{text!r} is not a multiple of 512 bytes, or is more than 1TiB")
    return number


def integer(least: int, most: int | None = None) -> Callable[[object], int]:
    """Return a parser of whole numbers that accepts only the digits 0 to 9: Python's int() also accepts
    1_000, " 5 " and the digits of other scripts.
    """
    span = f"from {least} to {most}" if most is not None else f"of at least {least}"

    def number(given: object) -> int:  # the default is passed too, as a number
        text = str(given)
        found = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
        if found is None or found < least or (most is not None and found > most):
            raise typer.BadParameter(f"{text!r} is not a whole number {span}")
        return found

    return number


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of one of these words."""

    def word(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(words)}")
        return text

    return word


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
    """Return the numbers of `-p 1 -p 2` or `-p 1,2`, each once, or None if the option was not given."""
    numbers = [integer(1)(word.strip()) for words_ in words or () for word in words_.split(",")]
    return list(dict.fromkeys(numbers)) or None


def mount_point(text: str) -> str:
    """Return a mount point as the kernel names it: no trailing slash, links resolved. Other words are
    unchanged.
    """
    return os.path.realpath(text) if text.startswith("/") else text


def resolve_device(name: str) -> str:
    """Return the target of a link such as /dev/disk/by-id/...; a kernel name is unchanged."""
    return str(Path(name).resolve()) if "/" in name else name


def device_here(name: str) -> str:
    """Return the path of the device that a name leads to on this machine."""
    return str(Path(name if "/" in name else f"/dev/{name}").resolve())


def distinct_devices(names: Sequence[str], device_of: Callable[[str], str] = device_here) -> list[str]:
    """Return the names without those that lead to a device that another name leads to, as the links in
    /dev/disk/by-id do, and report them. A name that is given twice is kept: it is a typing error.
    `device_of`: returns the device that a name leads to.
    """
    firsts: dict[str, str] = {}
    others: dict[str, list[str]] = {}
    kept = []
    for name in names:
        device = device_of(name)
        first = firsts.setdefault(device, name)
        if first == name:
            kept.append(name)
        elif name not in others.setdefault(device, []):
            others[device].append(name)
    for device, more in others.items():
        remark(f"{', '.join((firsts[device], *more))}: the same device, {device}; it counts once")
    return kept


def may_wipe(disk: str, wiped: Sequence[str]) -> bool:
    """Return whether --wipe names this disk. Raises a usage error if it names another one."""

    def place(name: str) -> Path:
        return Path("/dev" if "/" not in name and not Path(name).exists() else "", name).resolve()

    others = [name for name in wiped if place(name) != place(disk)]
    if others:
        raise typer.BadParameter(f"--wipe {others[0]}: the disk is {disk}")
    return bool(wiped)


def may_wipe_data(target: str, wiped: Sequence[str] | None, *, destructive: bool) -> bool:
    """Return whether --wipe names the target of a measurement. Raises a usage error if nothing is written to
    it.
    """
    if wiped and not destructive:
        raise typer.BadParameter("--wipe requires --destructive")
    return may_wipe(target, wiped or ())


def refuse_unapplied(*, yes: bool, shown: Mapping[str, str | None]) -> None:
    """Raise BadParameter for --yes with one of the options with which a plan is only shown."""
    for option in (name for name, given in shown.items() if yes and given is not None):
        raise typer.BadParameter(
            f"--yes and {option} are mutually exclusive: the plan is shown and not applied"
        )


def no_lease_words(given: bool) -> tuple[str, ...]:
    """Return --no-lease as a word of the command line, if it was given."""
    return ("--no-lease",) if given else ()


def absolute(file: str | None) -> str | None:
    """Return the path of a file for a plan, which may be applied from another folder."""
    return None if file is None else str(Path(file).absolute())


def one_machine(sysroots: list[str] | None) -> str | None:
    """Return the only --sysroot, or None. Raises BadParameter for several; click would use the last."""
    if sysroots and len(sysroots) > 1:
        raise typer.BadParameter(
            f"{', '.join(sysroots)}: give one --sysroot, because this command is for one machine"
        )
    return sysroots[0] if sysroots else None


def refuse_two_systems(below: str | None, *, captured: bool) -> None:
    """Raise BadParameter if both --root and --sysroot are given."""
    if captured and below is not None:
        raise typer.BadParameter("--root is for a system that is mounted here, --sysroot for a captured one")


def attach_virtual(
    *targets: str,
    writes: bool = False,
    alone: bool = False,
    silence_s: float = SILENCE_S,
    no_lease: bool = False,
) -> tuple[Refusal, ...]:
    """Attach the virtual disks among the targets, so that they are read as the disks in them, and written to
    if `writes`. `alone`: no other program may write to them meanwhile. `no_lease`: see `Lease`. Return the
    refusals.

    From here on all targets are held: no path is looked up again by this command (linux/held.py).
    """
    hold_targets(targets, silence_s)
    found = find_virtual(targets, silence_s)
    if not found:
        return ()
    from aligntool.linux import virtual

    return virtual.show_disks(found, say, writes=writes, alone=alone, no_lease=no_lease)


def print_lines(lines: str | Iterable[Line]) -> None:
    """Write lines to standard output, in colour on a terminal, or a text as it is."""
    if isinstance(lines, str):
        sys.stdout.write(lines)
    else:
        show(lines, sys.stdout, color=colored(sys.stdout))


def say(words: str) -> None:
    """Write a remark to standard error, with the program's name."""
    remark(f"aligntool: {words}")


def is_one_screen() -> bool:
    """Return whether a reader sees standard output and standard error on the same terminal."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def own_program(*words: str) -> list[str]:
    """Return the command line that starts this aligntool with `words`, from where it was imported; no other
    folder is searched for modules.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from aligntool.__main__ import main; main()"
    return [
        sys.executable,
        "-I",
        "-c",
        code,
        *(("--unconfined",) if confined.is_unconfined() else ()),
        *words,
    ]


def remark(words: str) -> None:
    """Write a line to standard error. A closed terminal or a full disk there must not change the exit
    code.
    """
    try:
        print(fitted(words, sys.stderr), file=sys.stderr, flush=True)
    except OSError:
        discard_stderr()


def suggest(hint: str) -> None:
    """Write the next command to standard error."""
    try:
        show([step_line("  ", hint)], sys.stderr, color=False)
        sys.stderr.flush()
    except OSError:
        discard_stderr()


def discard_stderr() -> None:
    """Discard what standard error could not take, which Python would write again at exit, and all that
    follows.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def terminal_width() -> int:
    """Return the columns of the terminal, or 80 in a pipe; COLUMNS overrides both."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def colored(stream: TextIO) -> bool:
    return wants_color(stream, os.environ)


_SECTOR_SIZES = ("sector_size", "physical_sector_size")


def _ordered_sectors(context: typer.Context, option: typer.CallbackParam, given: int | None) -> int | None:
    """Return the size. Called for each of the two options, the second time with the first one in the context.

    Raises BadParameter if the physical sector would be smaller than the logical one.
    """
    logical, physical = (given if option.name == name else context.params.get(name) for name in _SECTOR_SIZES)
    if logical and physical and physical < logical:
        raise typer.BadParameter(
            f"physical sectors cannot be smaller than logical ones: {physical}, {logical} bytes"
        )
    return given


def text(word: str) -> str:
    """Return an argument as it is. Help shows the name of this function as its type."""
    return word


def path(word: str) -> str:
    """Return ./-disk.img instead of -disk.img, which printed commands would pass as options."""
    return f"./{word}" if len(word) > 1 and word.startswith("-") else word


_GEOMETRY = "Geometry, if the device does not report it"

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        parser=path,
        metavar="[TARGET...]",
        help="Devices, images or virtual disks [default: this machine's disks].",
    ),
]
DiskArgument = Annotated[
    str, typer.Argument(parser=path, metavar="DISK", help="A whole disk, or a disk image file.")
]
MeasureTargetArgument = Annotated[
    str,
    typer.Argument(
        parser=path, metavar="TARGET", help="A folder (for a temporary file), a file, or a device."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EventsOption = Annotated[bool, typer.Option("--json", help="Report events as JSON lines.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation; refusals still apply.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]
VerbosePlanOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show every byte range, command and reason of the plan.")
]
SysrootsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sysroot", metavar="DIR", help="Use a captured machine: a snapshot or its folder; may be repeated."
    ),
]
SysrootOption = Annotated[
    list[str] | None,
    typer.Option("--sysroot", metavar="DIR", help="Use a captured machine: a snapshot or its folder."),
]
WipeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--wipe", metavar="DEVICE", help="Allow everything on this device to be lost; may be repeated."
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="Use a recipe that comes with aligntool, or your own from a file: FILE.toml.",
    ),
]
DestructiveOption = Annotated[
    bool, typer.Option("--destructive", help="Write to the device itself, which must be empty.")
]
WipeDataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--wipe",
        metavar="DEVICE",
        help="With --destructive: allow unrecognised data on this device to be lost.",
    ),
]
FioOutputOption = Annotated[
    str | None,
    typer.Option("--fio-output", metavar="DIR", help="Save fio's JSON output of every run in this folder."),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        parser=one_of("gpt", "dos"),
        metavar="gpt|dos",
        help="gpt, or dos for an MBR [default: gpt].",
    ),
]
NewGrainOption = Annotated[
    int | None,
    typer.Option(
        "--grain", metavar="SIZE", parser=grid, help="Boundary on which partitions start [default: 1MiB]."
    ),
]
LbaSizeOption = Annotated[
    int | None,
    typer.Option(
        "--lba-size",
        metavar="SIZE",
        parser=sector,
        help="First format empty NVMe drives to logical blocks of this size, such as 4096.",
    ),
]
NewJournalOption = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="FILE", help="Write the journal to this file on another disk, not to free space."
    ),
]
OverwriteBytesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--overwrite-bytes",
        metavar="FROM..TO",
        help="Allow these bytes, which no partition has, to be overwritten.",
    ),
]
SaveOption = Annotated[
    str | None,
    typer.Option("--save", metavar="FILE", help="Copy what --overwrite-bytes names to this new file first."),
]
UsedOnlyOption = Annotated[
    bool,
    typer.Option(
        "--used-only",
        help="Copy only used blocks, even if something else on the disk may need the free ones.",
    ),
]
KeyFileOption = Annotated[
    str | None,
    typer.Option(
        "--key-file", metavar="FILE", help="Read the LUKS2 key from this file [default: ask for it]."
    ),
]
NoLeaseOption = Annotated[
    bool,
    typer.Option("--no-lease", help="No other program has the image open, where that cannot be found out."),
]
NotSuspendedOption = Annotated[
    bool,
    typer.Option(
        "--not-suspended",
        help="No system is suspended to disk in a layer that cannot be looked into, such as a LUKS.",
    ),
]
RateOption = Annotated[
    int | None,
    typer.Option(
        "--rate", metavar="SIZE", parser=size, help="Copy at most this much per second, such as 50MiB."
    ),
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        parser=one_of("debian", "debian-dracut", "fedora", "opensuse", "arch"),
        metavar="NAME",
        help="debian, debian-dracut, fedora, opensuse or arch [default: this system].",
    ),
]
RootOption = Annotated[
    str | None,
    typer.Option("--root", metavar="DIR", help="Configure the system installed below DIR, not this one."),
]
WakeOption = Annotated[bool, typer.Option("--wake", help="Also read disks that are asleep.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        parser=seconds(0.1, 3600),
        metavar="SECONDS",
        help="Skip a disk that does not respond for this long.",
    ),
]
SectorOption = Annotated[
    int | None,
    typer.Option(
        "--sector-size",
        metavar="SIZE",
        parser=sector,
        rich_help_panel=_GEOMETRY,
        callback=_ordered_sectors,
        help="Logical sector size, such as 4096.",
    ),
]
PhysicalOption = Annotated[
    int | None,
    typer.Option(
        "--physical-sector-size",
        metavar="SIZE",
        parser=sector,
        rich_help_panel=_GEOMETRY,
        callback=_ordered_sectors,
        help="Physical sector size; image files are assumed to have 4096.",
    ),
]
PageOption = Annotated[
    int | None,
    typer.Option(
        "--page-size",
        metavar="SIZE",
        parser=grid,
        rich_help_panel=_GEOMETRY,
        help="NAND page or internal unit, such as 16KiB.",
    ),
]
AuditGrainOption = Annotated[
    int | None,
    typer.Option(
        "--grain",
        metavar="SIZE",
        parser=grid,
        rich_help_panel=_GEOMETRY,
        help="Boundary that partitions should start on [default: 1MiB].",
    ),
]
MeasuredOption = Annotated[
    list[str] | None,
    typer.Option(
        "--measured",
        metavar="FILE",
        rich_help_panel=_GEOMETRY,
        help="Compare with the result of `aligntool probe -o FILE`.",
    ),
]


_STDOUT = "-"
PAGE_SUFFIXES = (".html", ".htm")


def refuse_suffix(name: str | None, suffixes: Sequence[str], content: str, *, needed: bool = False) -> None:
    """Raise BadParameter if the name of a file ends as that of another format. `content`: what is written, in
    words; `needed`: the name must have one of these suffixes, which choose the format.
    """
    ending = "" if name is None else Path(name).suffix
    is_given = re.fullmatch(r"\.[A-Za-z]\w*", ending) is not None
    if name is None or name.endswith(tuple(suffixes)) or not (is_given or needed):
        return
    better = name.removesuffix(ending if is_given else "") + suffixes[0]
    text = f"{content}; use a name that ends in {either(suffixes)}, such as {better}; nothing was written"
    raise typer.BadParameter(f"{name}: {text}")


@dataclass(frozen=True, slots=True)
class ResultFile:
    """Where a result is saved, in addition to the printed text."""

    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Save the result as JSON; - is standard output."),
    ] = None
    overwrite: OverwriteOption = False

    @property
    def file(self) -> str | None:
        """Return the named file, or None; also None for standard output."""
        return None if self.output == _STDOUT else self.output

    @property
    def piped(self) -> bool:
        """Return whether standard output gets the result and nothing else."""
        return self.output == _STDOUT

    def refuse(self, undone: str = "nothing was measured", inputs: Iterable[str | None] = ()) -> None:
        """Raise Refused, before anything is done, if the result could not be written. `undone`: what was not
        done. `inputs`: the disks and files that are read.
        """
        if self.file is not None:
            refuse_output(self.file, overwrite=self.overwrite, undone=undone, inputs=inputs)

    def write(self, text: str) -> None:
        """Write the file, whole or not at all. Raises Refused."""
        if self.file is not None:
            write_file(self.file, text.encode(), overwrite=self.overwrite)


@dataclass(frozen=True, slots=True)
class PlanFile(ResultFile):
    """Where a plan is written."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save the plan, for `aligntool apply FILE`; - is standard output.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Geometry:
    """Options for a disk that does not report its geometry."""

    sector_size: SectorOption = None
    physical_sector_size: PhysicalOption = None
    page_size: PageOption = None

    @property
    def typed(self) -> dict[str, int | None]:
        """Return the options by their names on the command line."""
        return dict(
            zip(("--sector-size", "--physical-sector-size", "--page-size"), astuple(self), strict=True)
        )
