"""`aligntool audit`: look, judge, report."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import PurePath
from typing import Annotated

import typer

from aligntool.audit.drives import is_nothing_judged, targets_not_judged
from aligntool.audit.judge import audit as judge
from aligntool.audit.report import AuditOptions, MeasuredDisk, Repair, Report, Severity, read_measured
from aligntool.audit.wording import audit_command, next_look, shell_word
from aligntool.cli import options
from aligntool.cli.pager import page_lines
from aligntool.errors import ExitCode, Refusal, Refused, refuse
from aligntool.inventory import Gap, Inventory, Unseen, of_system
from aligntool.linux.deadline import SILENCE_S
from aligntool.linux.files import read_text
from aligntool.linux.installed import installed_below
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits
from aligntool.mover.unmarked import with_unmarked_changes
from aligntool.realign.repairs import for_machine, with_repairs
from aligntool.recipes.drives import known_geometries
from aligntool.render.audit import audit_lines
from aligntool.render.json import audit_json
from aligntool.render.lines import EMPTY, Line, Style, text_of
from aligntool.units import MIB

# Saved measurements, for an audit.
#
# A measurement of another disk must not be used for this one.

_LONGEST = 1 << 20  # bytes


def measured_on(files: Sequence[str], inventory: Inventory) -> tuple[MeasuredDisk, ...]:
    """Return the measurements that `aligntool probe` saved in files.

    Raises Refused for a file that cannot be read, is not the result of a probe, or was measured on another
    disk. The last is not checked if a disk could not be read.
    """
    probe_command = ""
    for disk in inventory.disks[:1]:
        results = shell_word(f"{PurePath(disk.path).name}-measured.json")
        probe_command = options.command("probe", disk.path, "-o", results)
    found = []
    for name in files:
        measured = read_measured(read_text(name, most=_LONGEST), name, probe_command)
        # A target that could not be judged may be the measured disk.
        missing = any(unseen.gap in (Gap.DISK, Gap.NO_ANSWER) for unseen in inventory.unseen)
        if not missing and not any(measured.is_of(disk) for disk in inventory.disks):
            hint = options.command("audit", measured.path, "--measured", shell_word(name))
            raise Refused(
                f"{name} was measured on another disk: {measured.serial or measured.path}", hint=hint
            )
        found.append(measured)
    return tuple(found)


# `aligntool audit`: look, judge, report.


class Format(StrEnum):
    """The format of the report."""

    TEXT = "text"
    JSON = "json"
    PROMETHEUS = "prometheus"


class FailOn(StrEnum):
    """The lowest severity for which the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ReportFile(options.ResultFile):
    """Where the report is written."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report to this file atomically; - is standard output.",
        ),
    ] = None


def audit(
    targets: options.TargetsArgument = None,
    *,
    map_: Annotated[
        bool, typer.Option("--map", help="Draw each disk, and the blocks of each partition over sectors.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    host: Annotated[
        bool, typer.Option("--host", help="Include the name of this machine in the JSON.")
    ] = False,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format", metavar="text|json|prometheus", help="Format of the report [default: text]."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            "--fail-on",
            metavar="error|warning|never",
            help="Exit 1 at this severity or above; error and warning: also 3 if any disk was not judged"
            " [default: 1 at an error, 3 only as stated above].",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only errors and warnings, one line each.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every disk and every note in full.")
    ] = False,
    wake: options.WakeOption = False,
    timeout: options.TimeoutOption = SILENCE_S,
    sysroot: options.SysrootsOption = None,
    below: Annotated[
        str | None,
        typer.Option(
            "--root", metavar="DIR", help="Judge arrays by the files of the system installed below DIR."
        ),
    ] = None,
    sector_size: options.SectorOption = None,
    physical_sector_size: options.PhysicalOption = None,
    page_size: options.PageOption = None,
    measured: options.MeasuredOption = None,
    grain: options.AuditGrainOption = None,
    serials: Annotated[
        bool, typer.Option("--serials", help="Add serial numbers to the metrics of --format prometheus.")
    ] = False,
    kept: ReportFile,
) -> None:
    """Check the alignment of every partition: on the grid, off the grid, or unknown.

    The report shows how far off a start is, why, and what it costs.

    Example: sudo aligntool audit --map /dev/sda

    Exit code: 0 nothing at or above --fail-on, 1 findings, 3 a named target was not judged, a disk did not
    respond, or nothing was judged; 3 outweighs 1. Disks that were not named: only if --fail-on error or
    warning is given, 3 also if one was not judged; with never, not 3.
    """
    began_s = time.monotonic()
    kept.refuse("nothing was written", [*(targets or ()), *(sysroot or ()), *(measured or ())])
    output_format = _output_format(format_, json_=json_, host=host, serials=serials)
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose are mutually exclusive")
    roots: Sequence[str | None] = sysroot or (None,)
    if len(roots) > 1 and output_format is Format.PROMETHEUS:
        raise typer.BadParameter("metrics describe one machine: give one --sysroot")
    options.refuse_two_systems(below, captured=bool(sysroot))
    files = installed_below(below)
    given = UserLimits(sector_size=sector_size, physical_sector_size=physical_sector_size)
    reports = []
    named = tuple(targets or ())
    named, missing = _readable(named, timeout) if sysroot is None else (named, ())
    for root in roots:
        inventory = look(
            named,
            sysroot=root,
            given=given,
            wake=wake,
            files=files is None,
            silence_s=timeout,
            keep_going=True,
            below=True,
        )
        inventory = inventory if files is None else of_system(inventory, files)
        inventory = with_unmarked_changes(inventory, timeout)
        inventory = replace(
            _with_host(inventory) if host else inventory, unseen=(*inventory.unseen, *missing)
        )
        if named and not inventory.disks and output_format is Format.TEXT:
            refuse(Refusal("not-read", unseen.what, unseen.why, unseen.hint) for unseen in inventory.unseen)
        request = AuditOptions(
            page_size=page_size, grain=grain or MIB, measured=measured_on(measured or (), inventory)
        )
        reports.append(judge(inventory, known_geometries(inventory), request))
    match output_format:
        case Format.JSON:
            _write(chain.from_iterable(audit_json(*with_repairs(report)) for report in reports), kept)
        case Format.PROMETHEUS:
            from aligntool.render import prometheus

            run = prometheus.Run(time.time(), time.monotonic() - began_s)
            _write(prometheus.audit_prometheus(reports[0], run, serials=serials), kept)
        case Format.TEXT:
            texts = [
                _lines(report, named=bool(named), map_=map_, quiet=quiet, verbose=verbose)
                for report in reports
            ]
            lines = texts[0] if len(texts) == 1 else _titled(roots, texts)
            page_lines(lines) if kept.output is None else _write(text_of(lines), kept)
    if named and not (output_format is Format.TEXT and kept.output is None and options.is_one_screen()):
        for report in reports:
            _say_not_judged(report)
    raise typer.Exit(max(_exit_code(report, fail_on, named=bool(named)) for report in reports))


def _output_format(format_: Format | None, *, json_: bool, host: bool, serials: bool) -> Format:
    """Return the format of the report. Raises BadParameter if an option contradicts it."""
    found = Format.JSON if json_ else format_ or Format.TEXT
    if format_ not in (None, found):
        raise typer.BadParameter(f"--json and --format {format_} are mutually exclusive")
    for option, given, needed in (("--host", host, Format.JSON), ("--serials", serials, Format.PROMETHEUS)):
        if given and found is not needed:
            raise typer.BadParameter(f"{option} requires --format {needed}")
    return found


def _readable(targets: tuple[str, ...], silence_s: float) -> tuple[tuple[str, ...], tuple[Unseen, ...]]:
    """Make virtual disks readable. Return the targets that can be read, and why the others cannot. Raises
    Refused if none can.
    """
    refusals = options.attach_virtual(*targets, silence_s=silence_s)
    readable = tuple(target for target in targets if target not in {refusal.subject for refusal in refusals})
    if not readable:
        refuse(refusals)
    return readable, tuple(
        Unseen(refusal.subject, refusal.text, refusal.hint, Gap.DISK) for refusal in refusals
    )


def _titled(roots: Sequence[str | None], texts: Iterable[Iterable[Line]]) -> Iterator[Line]:
    for root, text in zip(roots, texts, strict=True):
        lines = tuple(text)
        if lines:  # --quiet: nothing for a machine without findings
            yield from (((f"{root}:", Style.TITLE),), EMPTY, *lines, EMPTY)


def _write(pieces: Iterable[str], kept: ReportFile) -> None:
    if kept.file is None:
        sys.stdout.writelines(pieces)
        sys.stdout.flush()
    else:
        kept.write("".join(pieces))


def _with_host(inventory: Inventory) -> Inventory:
    """Return the inventory with the name of this machine. A snapshot keeps the captured name."""
    manifest = inventory.manifest
    return (
        inventory
        if inventory.captured
        else replace(inventory, manifest=replace(manifest, host=os.uname().nodename))
    )


def _lines(report: Report, *, named: bool, map_: bool, quiet: bool, verbose: bool) -> Iterable[Line]:
    width = options.terminal_width()
    report, repairs = with_repairs(report)
    if named:
        report, repairs = _without_own(report, repairs, map_=map_)
    maps: Iterable[Line] = ()
    if map_:
        from aligntool.render import disk_map

        maps = disk_map.map_lines(report, width=width)
    return audit_lines(report, width=width, verbose=verbose, quiet=quiet, repairs=repairs, maps=maps)


def _without_own(
    report: Report, repairs: dict[str, tuple[Repair, ...]], *, map_: bool
) -> tuple[Report, dict[str, tuple[Repair, ...]]]:
    """Return the report without a next step that is the audit that runs."""
    look = next_look if map_ else audit_command
    own = {for_machine(look(judged.disk), report.inventory) for judged in report.judged}
    findings = tuple(
        replace(finding, next=f"aligntool explain {finding.code}") if finding.next in own else finding
        for finding in report.findings
    )
    left = {
        name: tuple(replace(repair, next="") if repair.next in own else repair for repair in found)
        for name, found in repairs.items()
    }
    return replace(report, findings=findings), left


def _say_not_judged(report: Report) -> None:
    for unseen in targets_not_judged(report):
        options.say(unseen.text)
        for hint in filter(None, unseen.hint.split("\n")):
            options.suggest(for_machine(hint, report.inventory))


def _exit_code(report: Report, fail_on: FailOn | None, *, named: bool) -> ExitCode:
    """Return the exit code; an unjudged disk outweighs any finding. If no disks were named, a disk that did
    not respond counts, and one that could not be opened counts only if --fail-on shows that the caller relies
    on the exit code.
    """
    missing = targets_not_judged(report)
    if not named and fail_on is FailOn.NEVER:
        missing = ()
    elif not named and fail_on is None:
        missing = tuple(unseen for unseen in missing if unseen.gap is Gap.NO_ANSWER)
    if missing:
        return ExitCode.REFUSED
    counted = {
        FailOn.ERROR: (Severity.ERROR,),
        FailOn.WARNING: (Severity.ERROR, Severity.WARNING),
        FailOn.NEVER: (),
    }
    if any(report.count(level) for level in counted[fail_on or FailOn.ERROR]):
        return ExitCode.FINDINGS
    return ExitCode.REFUSED if is_nothing_judged(report) and fail_on is not FailOn.NEVER else ExitCode.DONE
