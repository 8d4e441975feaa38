"""Arrays that are unfinished, as `status`, `resume` and `rollback` find them: in the records, by any of their names.

In: what the user typed, or nothing. Out: the record that is meant. Alone because a move is found on its disk and an
array in the folder of records, and whoever types `aligntool resume` need not know which of the two stopped.
"""

import sys
from typing import TYPE_CHECKING

from aligntool.cli.options import colored, terminal_width
from aligntool.errors import Refused
from aligntool.plan import EditFile, MakeMember, Plan, WriteFile

if TYPE_CHECKING:
    from aligntool.apply.arrays.record import Record


def record_of(target: str | None) -> "Record | None":
    """The unfinished array that a device, a name or a UUID belongs to; without a target, the only one there is.

    Raises Refused where several could be meant, or a record cannot be read.
    """
    from aligntool.apply.arrays.record import find_records

    records = find_records()
    if target is not None:
        return next((record for record in records if _is_meant(record.plan, target)), None)
    if len(records) > 1:
        raise Refused(
            "several are unfinished: " + ", ".join(record.plan.disk.path for record in records),
            hint="\n".join(f"aligntool status {record.plan.disk.path}" for record in records),
        )
    return records[0] if records else None


def _is_meant(plan: Plan, target: str) -> bool:
    """By the names of the plan; a drive of it also by what it is now."""
    from pathlib import Path

    array = plan.disk
    if target in (array.path, Path(array.path).name, array.disk_id):
        return True
    steps = [step for step in plan.steps if isinstance(step, MakeMember)]
    path = target if "/" in target else f"/dev/{target}"
    names = {path, str(Path(path).resolve())}
    if not names.isdisjoint(_drives_now(plan, steps)):
        return True
    return Path(array.path).exists() and Path(path).exists() and Path(array.path).samefile(path)


def _drives_now(plan: Plan, steps: list[MakeMember]) -> set[str]:
    from aligntool.apply.arrays.whereabouts import plan_here
    from aligntool.cli.arrays import this_site

    try:
        plan = plan_here(plan, this_site().look_around())
    except Refused:  # a drive is missing: the names of the plan are all there is
        return {name for step in steps for name in (step.disk.path, step.device)}
    now = [step for step in plan.steps if isinstance(step, MakeMember)]
    return {name for step in now for name in (step.disk.path, step.device)}


def tell_array_status(record: "Record | None", *, json_: bool) -> None:
    """How far it came, and what to type. None: nothing is unfinished."""
    from aligntool.render.lines import plain, show
    from aligntool.render.status import array_status_json, array_status_lines

    if record is None:
        if json_:
            sys.stdout.write(array_status_json(None, 0, forward=True, sentences=(), type_next=()))
        else:
            show(
                [plain("No array is unfinished here. Disks in flight are named by: sudo aligntool audit")],
                sys.stdout,
                color=False,
            )
        return
    following = _ways_on(record)
    sentences = tuple(_sentences(record))
    if json_:
        sys.stdout.write(
            array_status_json(
                record.plan, record.position, forward=record.forward, sentences=sentences, type_next=following
            )
        )
        return
    lines = array_status_lines(
        record.plan, record.position, forward=record.forward, sentences=sentences, type_next=following,
        width=terminal_width(),
    )  # fmt: skip
    show(lines, sys.stdout, color=colored())


def recover_array(record: "Record | None", *, json_: bool, back: bool) -> None:
    """Raises Refused where nothing is unfinished, Stopped where it stops again."""
    from aligntool.cli.arrays import go_on, tell_array
    from aligntool.cli.stream_end import write_end

    if record is None:
        raise Refused(
            "no array is unfinished here",
            hint="sudo aligntool audit names the disks in flight; name one of them",
        )
    go_on(record, back=back, json_=json_)
    if not back:
        tell_array(record.plan, json_=json_)
    elif json_:
        write_end("old", changed=True)
    else:
        print(f"{record.plan.disk.path} is taken back", file=sys.stderr)


def _ways_on(record: "Record") -> tuple[str, ...]:
    from aligntool.cli.arrays import ways_on

    return tuple(ways_on(record.plan).split("\n"))


def _sentences(record: "Record") -> list[str]:
    made = "it is not finished: do not put anything on it yet"
    files = [step.path for step in record.plan.steps if isinstance(step, EditFile | WriteFile)]
    found = [made if record.forward else "it was being taken back"]
    drives = [step.device for step in record.plan.steps if isinstance(step, MakeMember)]
    found += [f"members: {', '.join(drives)}"] if drives else []
    found += [f"files: {', '.join(files)}"] if files else []
    found.append(f"record: {record.file}")
    return found
