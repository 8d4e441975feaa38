"""`aligntool fleet`."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, Annotated

import typer

from aligntool.audit.fleet import Fleet, Machine, machine_of, natural_key
from aligntool.audit.fleet_changes import compare_fleets, new_errors, read_machines, states_of
from aligntool.audit.judge import audit as judge
from aligntool.cli import options
from aligntool.cli.audit import FailOn
from aligntool.cli.pager import page_lines
from aligntool.errors import ExitCode, Refused, failing_as
from aligntool.linux.deadline import SILENCE_S, Pulse, results_in_children
from aligntool.linux.look import look, now
from aligntool.linux.sysfs import read_written
from aligntool.linux.targets import folder_in_memory, open_sysroot
from aligntool.recipes.drives import known_geometries, load_drives
from aligntool.render.fleet import (
    changes_json,
    fleet_json,
    fleet_lines,
    machine_json,
    page_html,
    refused_words,
)
from aligntool.system import SNAPSHOT_SUFFIXES
from aligntool.units import MIB, either

_REMOVAL_S = 2.0
_PROCESSOR_S = 5.0  # of processor time without the kernel's, for each MiB, begun or whole, of an archive
_FOLDER_S = 60.0  # of a folder, whose size is not known
_LONGEST_REASON = 1000  # characters; an archive may contain names of any length
_JSON = ".json"


@dataclass(frozen=True, slots=True)
class PageFile(options.ResultFile):
    """Where the page is written."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write the report as an HTML page; - is standard output.",
        ),
    ] = None


def fleet(
    snapshots: Annotated[
        list[str],
        typer.Argument(
            parser=options.path,
            metavar="SNAPSHOT...",
            help="Files written by `aligntool snapshot`, or folders of them.",
        ),
    ],
    *,
    json_: options.JsonOption = False,
    kept: PageFile,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="OLDER", help="Compare with older snapshots, or with a file of --json."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option("--fail-on", metavar="error|warning|never", help="Exit 1 at this severity or above."),
    ] = FailOn.ERROR,
    timeout: options.TimeoutOption = SILENCE_S,
) -> None:
    """Audit many captured machines in one report.

    Misaligned disks are ranked by predicted cost × writes.

    Example: aligntool fleet snapshots/

    With --since: what became worse, is unclear, is new, became better, or is gone.

    Exit code: 0 nothing at or above --fail-on, 1 findings, 3 a snapshot could not be audited.
    """
    if json_ and kept.piped:
        raise typer.BadParameter("--json and -o - are mutually exclusive: both write to standard output")
    options.refuse_suffix(kept.file, options.PAGE_SUFFIXES, "a page is HTML")
    names = _names_of(snapshots)
    older = [] if since is None or since.endswith(_JSON) else _older(since)
    kept.refuse("nothing was written", [*names, *older, *([since] if since else [])])
    before = read_machines(_text_of(since), since) if since and since.endswith(_JSON) else ()
    found = Fleet()
    after: list[Machine] = []
    with _temporary_folder() as folder, tempfile.TemporaryFile() as spool:
        # where children unpack: what a killed child leaves behind is removed with the folder
        tempfile.tempdir = folder
        places: dict[int, int] = {}
        if since and older:
            before = tuple(replace(machine, drives=()) for _, machine in _audit_all(older, timeout))
            _refuse_unread(since, before)
        for number, machine in _audit_all(names, timeout):
            found.add(number, machine)
            if since:
                after.append(replace(machine, drives=()))
            elif json_:
                places[number] = spool.tell()
                spool.write(machine_json(machine).encode() + b"\n")
        tempfile.tempdir = None
        changes = None
        if since:
            rose = new_errors(before, after)
            changes = compare_fleets(since, states_of(before), states_of(after), rose)
        if kept.file is not None:
            kept.write(page_html(found, now(), changes))
            options.say(f"{kept.file} written")
        if kept.piped:
            sys.stdout.buffer.write(page_html(found, now(), changes).encode())
        elif json_ and changes:
            sys.stdout.write(changes_json(changes, now()))
        elif json_:
            sys.stdout.writelines(fleet_json(found, _spooled_lines(spool, places), now()))
        else:
            page_lines(fleet_lines(found, changes, width=options.terminal_width()))
    sys.stdout.flush()
    raise typer.Exit(_exit_code(found, fail_on))


def _names_of(given: Iterable[str]) -> list[str]:
    """Return the snapshots, each once, also if its folder is given as well."""
    named = (name for each in given for name in _snapshots_in(each))
    return list({Path(name).absolute(): name for name in named}.values())


def _older(given: str) -> list[str]:
    """Return the snapshots to compare with. A wrong name must not make every machine a new one."""
    with failing_as(Refused, f"--since {given}"):
        Path(given).stat()
    return _names_of([given])


def _refuse_unread(since: str, before: tuple[Machine, ...]) -> None:
    """Raise Refused if the file to compare with is no snapshot. In a folder, one may be damaged."""
    for machine in before:
        if machine.why is not None and os.path.isfile(since):  # noqa: PTH113
            hint = "a folder of snapshots, a snapshot, or a .json file that `aligntool fleet --json` wrote"
            raise Refused(f"--since {refused_words(machine)}", hint=hint)


def _text_of(name: str) -> str:
    with failing_as(Refused, name):
        return Path(name).read_text(encoding="utf-8", errors="replace")


def _snapshots_in(given: str) -> Iterator[str]:
    """Yield the snapshots in a folder, or the file itself; if it cannot be read, the report says so. Raises
    Refused for a folder without snapshots.
    """
    folder = Path(given)
    if not _is_folder(given) or _is_folder(folder / "sys"):
        yield given
        return
    with failing_as(Refused, f"{given} cannot be read"):
        inside = sorted(folder.iterdir(), key=lambda entry: natural_key(entry.name))
    snapshots = [
        entry for entry in inside if entry.name.endswith(SNAPSHOT_SUFFIXES) or _is_folder(entry / "sys")
    ]
    if not snapshots:
        hint = "capture a machine with: aligntool snapshot -o snapshot.tar.xz"
        endings = either(SNAPSHOT_SUFFIXES)
        text = f"{given} contains no snapshot: no file that ends in {endings}, and no folder with sys in it"
        raise Refused(text, hint=hint)
    yield from map(str, snapshots)


def _is_folder(path: str | Path) -> bool:
    """Return whether this is a folder; False if that may not be seen, where Path.is_dir fails before Python
    3.14.
    """
    return os.path.isdir(path)  # noqa: PTH112


def _audit_all(names: list[str], silence_s: float) -> Iterator[tuple[int, Machine]]:
    """Yield the number and the result of each snapshot as they come, audited in as many children as there are
    processors.
    """
    load_drives()  # once for all children
    jobs = [partial(_audit, name) for name in names]
    for number, machine in results_in_children(jobs, silence_s, at_once=len(os.sched_getaffinity(0))):
        late = f"did not respond within {silence_s:g} s, or needs more memory than is available"
        yield number, machine or Machine(names[number], why=late)


def _audit(name: str, pulse: Pulse) -> Machine:
    """Audit a snapshot, in a child. Whatever fails, it becomes one line of the report."""
    try:
        with _limited_processor_time(name), open_sysroot(name) as tree:
            pulse.beat()
            inventory = look((), sysroot=tree.root)
            written = read_written(tree)
            return machine_of(name, judge(inventory, known_geometries(inventory)), written)
    except Refused as refusal:
        why = str(refusal)
    except Exception as error:
        why = f"a bug in aligntool, please report it: {type(error).__name__}: {error}"
    return Machine(name, why=why[:_LONGEST_REASON])


@contextmanager
def _limited_processor_time(name: str) -> Iterator[None]:
    """Raise Refused in a snapshot that takes far longer than any machine, however busy this one is."""
    limit_s = (
        _PROCESSOR_S * (1 + os.path.getsize(name) // MIB)  # noqa: PTH202
        if os.path.isfile(name)  # noqa: PTH113
        else _FOLDER_S
    )

    def stop(_number: int, _frame: object) -> None:
        raise Refused(f"{name} was not audited: it takes more than {limit_s:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _spooled_lines(spool: IO[bytes], places: dict[int, int]) -> Iterable[str]:
    for number in sorted(places):
        spool.seek(places[number])
        yield spool.readline().decode().rstrip("\n")


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Yield a folder, and remove it with its content, even if a killed child is still about to make a
    file.
    """
    folder = tempfile.mkdtemp(prefix="aligntool-", dir=folder_in_memory())
    try:
        yield folder
    finally:
        deadline = monotonic() + _REMOVAL_S
        while os.path.lexists(folder) and monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)


def _exit_code(found: Fleet, fail_on: FailOn) -> ExitCode:
    if found.not_audited:
        return ExitCode.REFUSED
    counted = {FailOn.ERROR: found.errors, FailOn.WARNING: found.errors + found.warnings, FailOn.NEVER: 0}
    return ExitCode.FINDINGS if counted[fail_on] else ExitCode.DONE
