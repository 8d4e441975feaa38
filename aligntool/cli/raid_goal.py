"""What is wanted of an array, as it is typed: one set of options for `raid plan` and `raid create`.

In: words. Out: the drives and a RaidGoal. Alone because the two commands must take the same options and mean the same
by them: an option that is added here is an option of both.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from aligntool.cli.options import place, size
from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.plan import RaidGoal

LEVELS = ("0", "1", "10", "5", "6")


def level_word(text: str) -> str:
    """ "10" or "raid10" as the kernel's word."""
    word = text.lower().removeprefix("raid")
    if word not in LEVELS:
        raise typer.BadParameter(f"{text!r} is no level; there are {', '.join(LEVELS)}")
    return f"raid{word}"


def goal_as_typed(
    drives: Annotated[
        list[str], typer.Argument(metavar="DEV...", help="Drives, or one partition of each drive.")
    ],
    *,
    level: Annotated[
        str | None,
        typer.Option("--level", "-l", parser=level_word, metavar="0|1|10|5|6", help="Which RAID."),
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
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata", metavar="1.2|1.0", help="1.2 unless said; 1.0, at the end, for a RAID1 alone."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The array's name; data unless said.")
    ] = None,
    mount: Annotated[
        str | None,
        typer.Option(
            "--mount",
            parser=place,
            metavar="DIR",
            help="Where to mount it; /srv/NAME unless said, none for nowhere.",
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
    measured: Annotated[
        str | None,
        typer.Option("--measured", metavar="FILE", help="What `raid tune` measured on these drives."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="NAME",
            help="debian, debian-dracut, fedora, opensuse or arch; this machine's unless said.",
        ),
    ] = None,
) -> "RaidGoal":
    """The goal, with new UUIDs. What is typed beside a recipe comes before the recipe's own. Raises Refused."""
    goal = _goal(level, recipe)
    if page and (workload or goal.workload) != "database":
        raise Refused("--database-page says nothing without a database", hint="--workload database")
    return replace(
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
        wipe=tuple(resolved(name) for name in wipe or ()),
        metadata=metadata or goal.metadata,
        system=system or _this_system(),
        measured=_measurement(measured) if measured else goal.measured,
    )


def takes_goal(command: Callable[..., None]) -> Callable[..., None]:
    """A command `(drives, goal, *, own options)`, as typer sees it: with the options of `goal_as_typed` and its own."""
    shared, own = inspect.signature(goal_as_typed).parameters, inspect.signature(command).parameters
    together = [*shared.values(), *(each for name, each in own.items() if name not in ("drives", "goal"))]

    def typed(**given: object) -> None:
        goal = goal_as_typed(**{name: given[name] for name in shared})  # type: ignore[arg-type]
        rest = {name: value for name, value in given.items() if name not in shared}
        command(given["drives"], goal, **rest)

    typed.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    typed.__annotations__ = {each.name: each.annotation for each in together}
    typed.__doc__, typed.__name__ = command.__doc__, command.__name__
    return typed


def _goal(level: str | None, name: str | None) -> "RaidGoal":
    """From a recipe, or all recommended; with new UUIDs."""
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


def _measurement(name: str) -> str:
    """The text of a result of `raid tune`. Raises Refused where it is none."""
    from aligntool.raid.tuning_file import LONGEST, parse_tuning

    try:
        with open(name, "rb") as file:  # noqa: PTH123 - the user's own spelling
            text = file.read(LONGEST + 1).decode("utf-8", "replace")
    except OSError as error:
        raise Refused(f"{name} cannot be read: {error.strerror}") from error
    if len(text) > LONGEST:
        raise Refused(f"{name} is too long for a result of raid tune")
    parse_tuning(text)
    return text


def resolved(name: str) -> str:
    """Where a link such as /dev/disk/by-id/... leads; a kernel name as it is."""
    from pathlib import Path

    return str(Path(name).resolve()) if "/" in name else name


def _this_system() -> str:
    """Raises Refused where no family is known: the wrong files and commands would make no array come back."""
    from aligntool.probe.distribution import find_distribution
    from aligntool.raid import SYSTEMS

    found = find_distribution()
    if found is None:
        raise Refused("this system's family is not known", hint=f"--system: {', '.join(SYSTEMS)}")
    return found
