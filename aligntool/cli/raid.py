"""`aligntool raid`: how an array would be made of these drives, and what those that run are worth."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import colored, size, terminal_width
from aligntool.cli.plan import keep
from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.audit import Judged, Report
    from aligntool.plan import Plan, RaidGoal
    from aligntool.raid.members import Known

raid_app = typer.Typer(
    name="raid",
    help="Arrays: think one out on the boundaries of its drives, or show those that run. Nothing is written yet.\n\n"
    "Example: sudo aligntool raid plan --level 0 /dev/nvme0n1 /dev/nvme1n1",
    no_args_is_help=True,
)

LEVELS = ("0", "1", "10", "5", "6")


def _level(text: str) -> str:
    """ "10" or "raid10" as the kernel's word."""
    word = text.lower().removeprefix("raid")
    if word not in LEVELS:
        raise typer.BadParameter(f"{text!r} is no level; there are {', '.join(LEVELS)}")
    return f"raid{word}"


@raid_app.command("plan")
def plan_command(
    drives: Annotated[
        list[str], typer.Argument(metavar="DEV...", help="Drives, or one partition of each drive.")
    ],
    *,
    level: Annotated[
        str | None, typer.Option("--level", "-l", parser=_level, metavar="0|1|10|5|6", help="Which RAID.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="NAME", help="A goal that comes with aligntool.")
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option("--chunk", parser=size, metavar="SIZE", help="The chunk; recommended unless said."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload", metavar="NAME", help="What for: general, boot, database, sequential, lsm, vm."
        ),
    ] = None,
    filesystem: Annotated[
        str | None, typer.Option("--fs", metavar="NAME", help="xfs unless said; ext4, btrfs, swap, none.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout", metavar="NAME", help="RAID10: n2, f2, o2 ...; RAID5, RAID6: left-symmetric ..."
        ),
    ] = None,
    bitmap: Annotated[
        str | None, typer.Option("--bitmap", metavar="internal|none", help="The write-intent bitmap.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The array's name; data unless said.")
    ] = None,
    mount: Annotated[
        str | None,
        typer.Option(
            "--mount", metavar="DIR", help="Where to mount it; /srv/NAME unless said, none for nowhere."
        ),
    ] = None,
    page: Annotated[
        int | None,
        typer.Option(
            "--database-page", parser=size, metavar="SIZE", help="For --workload database; 16KiB unless said."
        ),
    ] = None,
    spare_room: Annotated[
        int | None,
        typer.Option(
            "--spare-room", parser=size, metavar="SIZE", help="Leave so much free at the end of each drive."
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--whole-drives", help="No partition tables: the drives themselves are the members."),
    ] = False,
    wipe: Annotated[
        list[str] | None,
        typer.Option("--wipe", metavar="DEV", help="What is on this member may be lost; may be given again."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system", metavar="NAME", help="debian, fedora, opensuse or arch; this machine's unless said."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the plan in a file.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
) -> None:
    """Think out an array: partitions, data offset, chunk, file system, and what makes it come back after a reboot.

    Example: sudo aligntool raid plan --recipe nvme-raid0-scratch /dev/nvme0n1 /dev/nvme1n1

    Exit code: 0 there is a plan; 3 refused, with every reason.
    """
    from aligntool.plan import to_json
    from aligntool.render.lines import show
    from aligntool.render.raid import raid_plan_lines

    goal = _goal(level, recipe)
    goal = replace(
        goal,
        chunk=chunk or goal.chunk,
        workload=workload or goal.workload,
        filesystem=filesystem or goal.filesystem,
        layout=layout or goal.layout,
        bitmap=bitmap or goal.bitmap,
        name=name or goal.name,
        mount_at=goal.mount_at if mount is None else "" if mount == "none" else mount,
        database_page=page or goal.database_page,
        spare_room=spare_room or goal.spare_room,
        members="whole-drives" if whole else goal.members,
        wipe=tuple(_resolved(name) for name in wipe or ()),
        system=system or _this_system(goal.system),
    )
    plan = find_array_plan(drives, goal)
    if output is not None:
        keep(output, to_json(plan) + "\n")
    if json_:
        sys.stdout.write(to_json(plan) + "\n")
    else:
        show(raid_plan_lines(plan, width=terminal_width()), sys.stdout, color=colored())


def _goal(level: str | None, name: str | None) -> "RaidGoal":
    """From a recipe, or all recommended; with new UUIDs. What is typed beside a recipe comes before the recipe's
    own."""
    import uuid

    from aligntool.plan import RaidGoal
    from aligntool.recipe import recipe

    goal = recipe(name, "raid").goal if name else RaidGoal(level or "")
    if not isinstance(goal, RaidGoal) or not (level or name):
        raise Refused("which RAID is it to be?", hint="--level 1, or --recipe NAME: aligntool recipes list")
    array = uuid.uuid4().hex
    words = (array[at : at + 8] for at in range(0, 32, 8))
    return replace(
        goal, level=level or goal.level, array_uuid=":".join(words), filesystem_uuid=str(uuid.uuid4())
    )


def _resolved(name: str) -> str:
    """Where a link such as /dev/disk/by-id/... leads; a kernel name as it is."""
    from pathlib import Path

    return str(Path(name).resolve()) if "/" in name else name


def _this_system(otherwise: str) -> str:
    from aligntool.probe.distribution import find_distribution

    return find_distribution() or otherwise


def find_array_plan(drives: list[str], goal: "RaidGoal") -> "Plan":
    """Look at the drives and think. Raises Refused with every reason."""
    from aligntool.probe.health import read_failing
    from aligntool.raid import plan_raid

    report, known = _look(drives)
    named = [_find(report, target) for target in drives]
    members = [
        replace(judged, disk=replace(judged.disk, failing=read_failing(judged.disk))) for judged, _ in named
    ]
    goal = replace(goal, partitions=tuple(number for _, number in named))
    return plan_raid(members, report.inventory, goal, known=known)


def _look(targets: list[str], sysroot: str | None = None) -> "tuple[Report, Known]":
    """Raises Refused, also where one of several targets could not be looked at."""
    from aligntool.audit import audit
    from aligntool.probe.look import look
    from aligntool.recipe import load_drives

    inventory = look(targets, sysroot=sysroot)
    if targets and inventory.unseen:
        hints = dict.fromkeys(each.hint for each in inventory.unseen if each.hint)
        raise Refused("\n".join(each.why for each in inventory.unseen), hint="\n".join(hints))
    database = load_drives()
    known = {disk.name: database.known(disk) for disk in inventory.disks}
    return audit(inventory, known), known


def _find(report: "Report", target: str) -> "tuple[Judged, int | None]":
    """The disk that was meant, and the partition of it; None: the disk itself. Links are followed."""
    from pathlib import Path

    path = Path(target) if "/" in target else Path("/dev", target)
    names = {target, str(path), str(path.resolve())}
    for judged in report.judged:
        if names & {judged.disk.name, judged.disk.path}:
            return judged, None
        for part in judged.disk.partitions:
            if part.node and f"/dev/{part.node}" in names:
                return judged, part.number
    raise Refused(f"{target} is neither a disk nor a partition", hint="lsblk")


@raid_app.command("show")
def show_command(
    arrays: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARRAY...]", help="Arrays, such as md0 or /dev/md/data; all unless said."),
    ] = None,
    *,
    sysroot: Annotated[
        str | None,
        typer.Option("--sysroot", metavar="DIR", help="A captured machine, from `aligntool snapshot`."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The arrays as JSON.")] = False,
) -> None:
    """Show arrays: members, links and what they let through, state, and where the data lie up to the top of the stack.

    Example: aligntool raid show

    Exit code: 0 shown; 3 there is no such array.
    """

    from aligntool.raid.arrays import arrays_of
    from aligntool.render.lines import show
    from aligntool.render.raid import array_lines, arrays_json

    report, _ = _look([], sysroot)
    names = [_resolved(name) if sysroot is None else name for name in arrays or ()]
    views = arrays_of(report, names)
    if json_:
        sys.stdout.write(arrays_json(views))
    else:
        show(array_lines(views, width=terminal_width()), sys.stdout, color=colored())
