"""Making an array of a plan, going on with one, taking one back: what the commands have in common.

In: a plan, and how to think it out again. Out: an array, looked at anew. Alone because `raid create`, `apply`, `resume`
and others that change what an array needs must hold, refuse, follow and tell alike.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from aligntool.cli.asked import command
from aligntool.cli.follow import follow, pipes_may_break
from aligntool.cli.options import colored, terminal_width
from aligntool.errors import Refused, Stopped
from aligntool.plan import MakeArray, MakeMember, Plan

if TYPE_CHECKING:
    from typing import TextIO

    from aligntool.apply.arrays.record import Record
    from aligntool.apply.arrays.site import Site
    from aligntool.inventory import Disk

_ANEW = "aligntool raid create shows how it would be made now"


def this_site() -> "Site":
    """This machine, as the walk sees it."""
    from aligntool.apply.arrays.site import Site
    from aligntool.probe.samples import sample

    return Site(_look_at, _look_around, _problem_of, sample)


def show_array_plan(plan: Plan, stream: "TextIO", *, type_next: str = "") -> None:
    from aligntool.render.lines import show
    from aligntool.render.raid import raid_plan_lines

    lines = raid_plan_lines(plan, width=terminal_width(), type_next=type_next)
    show(lines, stream, color=colored() and stream is sys.stdout)
    stream.flush()


def carry_out_array(plan: Plan, think_again: Callable[[], Plan], *, json_: bool) -> None:
    """Hold the drives, think the plan out again, refuse what cannot be, and walk. Also for plans that only edit files.

    Raises Refused while nothing is written, and Stopped afterwards; then the record is kept.
    """
    from aligntool.apply.arrays.holding import hold_members
    from aligntool.apply.arrays.preflight import refuse_impossible
    from aligntool.apply.arrays.record import forget, one_at_a_time
    from aligntool.apply.arrays.walk import begin, go_forward

    site = this_site()
    with pipes_may_break(), one_at_a_time(site.state):
        _refuse_unfinished(plan, site)
        with hold_members(plan.steps) as held:
            refuse_changed(plan, think_again())
            refuse_impossible(plan, site)
            _tell_where_the_record_is(site)
            record = begin(plan, site)
            try:
                follow(plan, go_forward(record, plan, site, held), json_=json_, hint=ways_on(plan))
            except (Refused, KeyboardInterrupt):
                forget(record)  # nothing was written yet
                raise


def go_on(record: "Record", *, back: bool, json_: bool) -> None:
    """Finish an array that is unfinished, or take it back. Raises Refused and Stopped."""
    from aligntool.apply.arrays.record import one_at_a_time, read_record
    from aligntool.apply.arrays.walk import go_back, go_forward
    from aligntool.apply.arrays.whereabouts import plan_here

    site = this_site()
    with pipes_may_break(), one_at_a_time(site.state):
        record = read_record(record.file)  # as it is now that nobody else changes it
        try:
            plan = plan_here(record.plan, site.look_around())
        except Refused as refusal:
            raise Refused(str(refusal), hint=f"{refusal.hint}\n{_given_up(record)}") from None
        events = go_back(record, plan, site) if back else go_forward(record, plan, site)
        follow(plan, events, json_=json_, hint=ways_on(plan))


def ways_on(plan: Plan) -> str:
    """What can be typed when an array stopped part-way, a line each."""
    target = plan.disk.path
    return "\n".join(command(name, target) for name in ("resume", "rollback"))


def tell_array(plan: Plan, *, json_: bool) -> None:
    """The array, looked at and judged anew. Raises Stopped where it cannot be."""
    from aligntool.cli.raid_members import look_at_arrays
    from aligntool.cli.stream_end import write_end
    from aligntool.render.lines import EMPTY, show, text_of
    from aligntool.render.plan import attention_lines
    from aligntool.render.raid import array_lines

    made = next((step for step in plan.steps if isinstance(step, MakeArray)), None)
    lines = []
    if made is not None:
        try:
            lines = list(array_lines(look_at_arrays([_kernel_name(made)]), width=terminal_width()))
        except (Refused, KeyboardInterrupt) as error:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            hint = f"aligntool raid show {made.device}"
            raise Stopped(f"it is done, but was not looked at: {why}", hint=hint) from error
    if json_:
        sentences = tuple(line.rstrip("\n") for line in text_of(lines) if line.strip())
        write_end("new", changed=True, sentences=sentences)
    else:
        show([*lines, EMPTY, *attention_lines(plan, width=terminal_width())], sys.stdout, color=colored())
    sys.stdout.flush()


def _kernel_name(made: MakeArray) -> str:
    from pathlib import Path

    return Path(made.device).resolve().name


def refuse_changed(plan: Plan, now: Plan) -> None:
    """Raises Refused where a plan that is thought out now has other steps, or would give up other things."""
    held = {step.device: step.holds for step in now.steps if isinstance(step, MakeMember)}
    came = [
        f"{step.device} does not hold what it held when the plan was made: then {_told(step.holds)}, now "
        f"{_told(held[step.device])}"
        for step in plan.steps
        if isinstance(step, MakeMember) and held.get(step.device, step.holds) != step.holds
    ]
    if came:
        raise Refused("\n".join(came), hint=_ANEW)
    if plan.steps != now.steps or plan.disk != now.disk:
        members = ", ".join(step.disk.path for step in plan.steps if isinstance(step, MakeMember))
        raise Refused(
            f"{members or plan.disk.path}: what is there now asks for other steps than the plan has",
            hint=_ANEW,
        )


def _given_up(record: "Record") -> str:
    """What ends an array with a drive that never comes back."""
    from aligntool.audit.words import shell_word

    made = next((step.device for step in record.plan.steps if isinstance(step, MakeArray)), None)
    stop = f"sudo mdadm --stop {made}; " if made else ""
    return (
        f"a drive that is gone for good ends it: {stop}sudo rm {shell_word(str(record.file))}; "
        "aligntool raid create --wipe then takes the drives that are left"
    )


def _told(holds: tuple[str, ...]) -> str:
    return ", ".join(holds) or "nothing"


def _refuse_unfinished(plan: Plan, site: "Site") -> None:
    """Raises Refused where another array stopped on the way with any of these drives, or under this name."""
    from aligntool.apply.arrays.record import find_records

    drives = {_drive_key(step) for step in plan.steps if isinstance(step, MakeMember)}
    for record in find_records(site.state):
        others = {_drive_key(step) for step in record.plan.steps if isinstance(step, MakeMember)}
        if drives & others or record.plan.disk.path == plan.disk.path:
            raise Refused(
                f"{record.plan.disk.path} is unfinished, and has the same drives or the same name",
                hint=ways_on(record.plan),
            )


def _drive_key(step: MakeMember) -> tuple[str | None, ...]:
    disk = step.disk
    return (disk.model, disk.serial, disk.wwn) if disk.serial or disk.wwn else (disk.path,)


def _tell_where_the_record_is(site: "Site") -> None:
    from aligntool.apply.lasting import forgetful_kind

    kind = forgetful_kind(site.state)
    if kind:
        print(
            f"aligntool: {site.state} is a {kind}: after a power cut nothing would be left of the record, and an array "
            "that is unfinished then is made anew with --wipe",
            file=sys.stderr,
        )


def _look_at(path: str) -> "Disk":
    from aligntool.probe.look import look

    inventory = look((path,), files=False)
    disk = next((disk for disk in inventory.disks if disk.path == path), None)
    if disk is None:
        raise Refused(f"{path} is no whole disk", hint="lsblk")
    return disk


def _look_around() -> "tuple[Disk, ...]":
    from aligntool.probe.look import look

    return look((), wake=True, files=False).disks


def _problem_of(device: str, size: int, kind: str) -> str | None:
    from aligntool.probe.checks import check_content
    from aligntool.units import Extent

    return check_content(device, Extent(0, size), kind).problem
