"""`aligntool raid tune`."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated

import typer

from aligntool.audit.report import Judged
from aligntool.audit.wording import shell_word
from aligntool.change import RAID_WORDS, RaidGoal
from aligntool.cli import options
from aligntool.cli.arrays import look_at_members, sampled_members
from aligntool.cli.options import File, Name, Size, print_lines, seconds, size, terminal_width, whole
from aligntool.cli.probe import bench_progress, ended_by_signals, refuse_to_overwrite
from aligntool.cli.raid import level_word
from aligntool.cli.run_change import pipes_may_break
from aligntool.errors import Refused, Stopped
from aligntool.linux.hold import locked
from aligntool.linux.look import look
from aligntool.measure.chunks import Measuring, Sweep, examine, is_test, plan_sweep, take_away
from aligntool.raid.measured import TEST_UUID, Choice, Tuning, choose, has_test_array, tuning_text
from aligntool.render.lines import Style, plain
from aligntool.render.plan import plan_command, sweep_lines, tuning_lines

# `aligntool raid tune`: which chunk is the fastest on these drives, measured while they are still empty.


def _sizes(text: str | None) -> tuple[int, ...]:
    """ "64KiB,128KiB" in bytes."""
    return tuple(size(word) for word in text.split(",")) if text else ()


def _workload(text: str) -> str:
    if text not in RAID_WORDS["workload"]:
        raise typer.BadParameter(f"{text!r} is not a workload; there are {', '.join(RAID_WORDS['workload'])}")
    return text


def tune_command(
    drives: Annotated[list[str], "DEV...", "Empty drives, or one empty partition of each drive."],
    *,
    level: Annotated[str | None, "--level -l", "RAID level.", "0|10|5|6", level_word] = None,
    workload: Annotated[str, "--workload", "As for `raid plan`.", "NAME", _workload] = "general",
    chunks: Annotated[str | None, "--chunks", "The chunks to try, such as 64KiB,128KiB.", "SIZE,..."] = None,
    layout: Annotated[Name, "--layout", "As for `raid plan`."] = None,
    bitmap: Annotated[str | None, "--bitmap", "As for `raid plan`.", "internal|none"] = None,
    page: Annotated[Size, "--database-page", "Page size of the database [default: 16KiB]."] = None,
    span: Annotated[Size, "--span", "How much of each array to use."] = None,
    runtime: Annotated[float, "--runtime", "Duration of each load.", "SECONDS", seconds(0.1, 86400)] = 5.0,
    repeats: Annotated[int, "--repeats", "Rounds over all chunks.", "N", whole(1, 1000)] = 5,
    output: Annotated[
        File, "--output -o", "Save the result in this new file, for `raid plan --measured FILE`; required to measure."
    ] = None,
    clear: Annotated[bool, "--clear", "Only remove test arrays of an earlier sweep from these members."] = False,
    dry_run: options.DryRunOption = False,
    yes: options.YesOption = False,
) -> None:
    """Measure which chunk is the fastest on empty drives.

    Test arrays are made, loaded by fio in turns, and removed.

    Example: sudo aligntool raid tune --level 5 /dev/nvme[0-3]n1 -o chunks.json

    Exit code: 0 measured; 3 refused, nothing was written; 4 ended early, the drives are empty again and the
    measurements are saved.
    """
    if clear:
        clear_members(drives, yes=yes)
        return
    if level is None:
        raise Refused("no RAID level given", hint="--level 0, 10, 5 or 6")
    goal = _goal(level, workload, layout, bitmap, page)
    find = partial(_find_sweep, drives, goal, _sizes(chunks), repeats, runtime, span)
    sweep = find()
    print_lines(sweep_lines(sweep, width=terminal_width()))
    sys.stdout.flush()
    if dry_run:
        return
    if output is None:  # a result that cannot be kept would be minutes of wear for nothing
        raise Refused("no file given for the result; nothing was written", hint="-o chunks.json")
    refuse_to_overwrite(output)
    _confirm(sweep.members, yes)

    def look_again() -> None:
        if find() != sweep:
            raise Refused("the drives have changed since they were looked at; nothing was written", hint="try again")

    _run(sweep, goal, output, look_again)


def _goal(level: str, workload: str, layout: str | None, bitmap: str | None, page: int | None) -> RaidGoal:
    word = uuid.uuid4().hex
    goal = RaidGoal(level, workload=workload, layout=layout, bitmap=bitmap)
    return replace(goal, database_page=page or goal.database_page, array_uuid=f"{TEST_UUID}:{word[:8]}:{word[8:16]}")


def _find_sweep(
    drives: list[str], goal: RaidGoal, chunks: tuple[int, ...], repeats: int, runtime: float, span: int | None
) -> Sweep:
    """Look at the drives and plan. Raises Refused with every reason."""
    members, numbers, _, _ = look_at_members(drives)
    _refuse_leftovers(drives, members)
    goal = replace(goal, partitions=numbers)
    members = sampled_members(members, goal)
    return plan_sweep(members, goal, chunks=chunks, repeats=repeats, runtime_s=runtime, span=span)


def _refuse_leftovers(drives: list[str], members: Sequence[Judged]) -> None:
    """A sweep that the power ended leaves test arrays behind; they are recognised, and --clear is offered."""
    found = [judged.disk.name for judged in members if has_test_array(judged.disk)]
    if found:
        text = f"{', '.join(found)} still hold a test array of a sweep that was cut off"
        raise Refused(text, hint=f"sudo aligntool raid tune --clear {' '.join(map(shell_word, drives))}")


def _confirm(devices: Sequence[str], yes: bool) -> None:
    names = " ".join(PurePath(device).name for device in devices)
    options.confirm_disk(", ".join(devices), names, "the members' names", yes)


def _run(sweep: Sweep, goal: RaidGoal, output: str, look_again: Callable[[], None]) -> None:
    """Measure, keep, report; also what there is when it ends early. Raises Stopped then."""
    measuring = Measuring(sweep)
    said, hint = [], ""
    with pipes_may_break():
        try:
            with ended_by_signals(), _listened() as tell:
                measuring.run(tell, look_again)
        except Stopped as error:
            said, hint = [str(error)], error.hint
        except KeyboardInterrupt:
            if not measuring.wrote:
                raise
            said = ["interrupted"]
        said += ["the sweep ended early"] if said and not measuring.complete else []
        tuning = measuring.tuning(complete=measuring.complete)
        if tuning.samples:
            said = keep_and_tell(tuning, sweep, goal, output, said)
    if said:
        raise Stopped("; ".join(said), hint=hint)


@contextmanager
def _listened() -> Iterator[Callable[[str, float, float | None], None]]:
    """Raise Stopped when standard error is closed; nothing is written there any more."""

    def say(words: str, share: float, left_s: float | None) -> None:
        try:
            tell(words, share, left_s)
        except OSError as error:
            _say_no_more()
            raise Stopped(f"standard error cannot be written: {error.strerror}", hint="") from error

    with ExitStack() as bar:
        tell = bar.enter_context(bench_progress())
        try:
            yield say
        finally:
            try:
                bar.close()
            except OSError:
                _say_no_more()


def _say_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def keep_and_tell(tuning: Tuning, sweep: Sweep, goal: RaidGoal, output: str, said: list[str]) -> list[str]:
    """Kept before it is shown, because the reader may be gone. `said`: what went wrong until then; with what went
    wrong here and where the result is, or nothing where all went well.
    """
    choice = choose(tuning.samples, sweep.recommended)
    text = tuning_text(tuning, _verdict(choice, sweep.recommended))
    where = f"what was measured is in {output}"
    try:
        options.keep(output, text)
    except Refused as error:  # minutes of measuring are not thrown away because a disk is full
        said, where = [*said, str(error)], ""
    try:
        print_lines(tuning_lines(tuning, choice, sweep.recommended, width=terminal_width()))
        if where:
            typed = (("→ ", Style.DIM), (plan_command(sweep, goal, output), Style.TYPE))
            print_lines([plain(f"Kept in {output}. An array that goes by it:"), typed])
        else:
            sys.stdout.write(text)
        sys.stdout.flush()
    except Refused as error:
        return [*said, str(error), where or "the result is lost"]
    return said and [*said, where or "the result stands above instead"]


def _verdict(choice: Choice, recommended: int) -> dict[str, object]:
    return {
        "verdict": choice.verdict.value,
        "chunk": choice.chunk,
        "recommended": recommended,
        "rounds": choice.rounds,
        "reason": choice.reason,
        "ratios": {str(chunk): [each.middle, each.least, each.most] for chunk, each in choice.against.items()},
    }


# `aligntool raid tune --clear`: test arrays that a sweep left behind, because the power went or it was
# killed.
#
# It looks at superblocks only, and touches those of test arrays only.


def clear_members(drives: list[str], *, yes: bool) -> None:
    """Raises Refused where a member holds anything else, or nothing; Stopped where something is left."""
    members, _, _, _ = look_at_members(drives)
    devices = [str(Path(name if "/" in name else f"/dev/{name}").resolve()) for name in drives]
    found = {device: examine(device) for device in devices}
    strange = [device for device, values in found.items() if values and not is_test(values)]
    if strange:
        raise Refused(f"{', '.join(strange)}: an array that is not a test array; nothing was written")
    ours = [device for device in devices if found[device]]
    if not ours:
        raise Refused(f"no test array lies on {', '.join(devices)}; nothing was written")
    _confirm(ours, yes)
    with locked([judged.disk.path for judged in members]):
        take_away(ours)
    wiped = " ".join(f"--wipe {shell_word(device)}" for device in ours)
    sys.stdout.write(
        f"Removed: the test arrays on {', '.join(ours)}.\n"
        f"What their loads wrote is still there: aligntool raid create takes these members with {wiped}; blkdiscard "
        "--zeroout DEV empties one for another sweep.\n"
    )


def clear_hint_of(disk: str) -> str:
    """Return the command that removes a test array that a sweep left on this disk, or ""."""
    try:
        found = look((disk,)).disks
    except Refused:
        return ""
    return f"sudo aligntool raid tune --clear {shell_word(disk)}" if any(map(has_test_array, found)) else ""
