"""`aligntool realign`, `plan realign`, `layout`, `plan layout` and `demo`."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer

from aligntool.audit.wording import shell_word
from aligntool.change import Event, LayoutGoal, PartitionRequest, Plan, RealignGoal
from aligntool.cli import layers, options, run_change
from aligntool.cli.arrays import namespaces_of
from aligntool.cli.options import command, own_program, remark, typed_words
from aligntool.cli.plan import DiskOperation, RealignOptions, realign_of
from aligntool.cli.reference import find_recipe
from aligntool.demo_disk import make_demo_image
from aligntool.errors import ExitCode, Refused, Stopped, refuse, refuse_folder_name
from aligntool.inventory import Disk
from aligntool.layout.layout import layout_subject, make_layout, refuse_unsound, with_samples
from aligntool.linux.lease import refuse_open_image
from aligntool.linux.look import look
from aligntool.mover.unfinished_change import refuse_changed_table, refuse_in_flight
from aligntool.raid.formatting import Formatting, plan_formats, plan_formatted_layout
from aligntool.raid.steps_format import format_for_table
from aligntool.raid.steps_system import missing_programs
from aligntool.realign.preconditions import find_holders, refuse_part
from aligntool.realign.request import Request, look_at
from aligntool.recipes.drives import known_geometries
from aligntool.recipes.goals import parse_part
from aligntool.steps import FormatDrive

# `aligntool realign`: plan, show, confirm, apply.


@run_change.ends_stream
def realign(
    disk: options.DiskArgument,
    *,
    chosen: RealignOptions,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    no_lease: options.NoLeaseOption = False,
    not_suspended: options.NotSuspendedOption = False,
    key_file: options.KeyFileOption = None,
    json_: options.EventsOption = False,
    geometry: options.Geometry,
) -> None:
    """Move misaligned partitions to aligned starts.

    The plan is shown and confirmed first.

    A realign may be interrupted at any moment, by Ctrl-C or a power cut: `aligntool resume` continues it,
    `aligntool rollback` undoes it.

    Example: sudo aligntool realign /dev/sda

    Exit code: 0 done or nothing to do, 3 refused and nothing written, 4 stopped before the end, with the
    journal kept.
    """
    if key_file and not chosen.layers:
        raise typer.BadParameter("--key-file requires --layers")
    _refuse_with_layers(chosen, rate, no_lease=no_lease)
    refuse(options.attach_virtual(disk, writes=not dry_run, no_lease=no_lease))
    request = chosen.request(geometry)
    change = realign_of(disk, request, rate, no_lease=no_lease)
    operation = layers.Layers(disk, request, key_file) if chosen.layers else change
    run_change.run_change(
        operation, yes=yes, json_=json_, dry_run=dry_run, verbose=verbose, not_suspended=not_suspended
    )


def _refuse_with_layers(chosen: RealignOptions, rate: int | None, *, no_lease: bool) -> None:
    if rate and chosen.layers:
        raise typer.BadParameter("--layers and --rate are mutually exclusive")
    if no_lease and chosen.layers:
        raise typer.BadParameter("--layers and --no-lease are mutually exclusive")


@run_change.ends_stream
def plan_realign(
    disk: options.DiskArgument,
    *,
    chosen: RealignOptions,
    kept: options.PlanFile,
    rate: options.RateOption = None,
    no_lease: options.NoLeaseOption = False,
    verbose: options.VerbosePlanOption = False,
    json_: options.JsonOption = False,
    geometry: options.Geometry,
) -> None:
    """Plan the moves to aligned starts, and show every step.

    The plan shows the disk before and after, and with -v every byte range.

    Example: sudo aligntool plan realign /dev/sda -o plan.json

    Exit code: 0 planned, or nothing to do; 3 refused, with every reason.
    """
    _refuse_with_layers(chosen, rate, no_lease=no_lease)
    refuse(options.attach_virtual(disk))
    request = chosen.request(geometry)
    change = realign_of(disk, request, rate, no_lease=no_lease)
    operation = layers.Layers(disk, request) if chosen.layers else change
    run_change.show_only(operation, json_=json_, kept=kept, verbose=verbose, inputs=(chosen.recipe,))


# `aligntool layout` and `aligntool plan layout`: a new partition table for an empty disk.


def _part(text: str) -> PartitionRequest:
    try:
        return parse_part(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


_PART = "A partition, such as 512MiB:esp; may be repeated. `rest:linux` takes the remaining space."


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Options of a new partition table, except the geometry."""

    parts: Annotated[list[str] | None, typer.Option("--part", metavar="SIZE:ROLE[:NAME]", help=_PART)] = None
    label: options.TableOption = None
    recipe: options.RecipeOption = None
    grain: options.NewGrainOption = None
    spare_end: Annotated[
        int | None,
        typer.Option(
            "--spare-end", metavar="SIZE", parser=options.size, help="Free space to leave at the end."
        ),
    ] = None
    lba_size: options.LbaSizeOption = None
    wipe: options.WipeOption = None

    def goal_and_request(self, disk: str, geometry: options.Geometry) -> tuple[LayoutGoal, Request]:
        """Return the goal, and the given geometry. Options override the values of a recipe. Raises
        Refused.
        """
        wipe = options.may_wipe(disk, self.wipe or ())
        goal = _goal(tuple(_part(text) for text in self.parts or ()), self.recipe)
        goal = replace(
            goal,
            label=self.label or goal.label,
            grain=self.grain or goal.grain,
            wipe=wipe,
            spare_end=goal.spare_end if self.spare_end is None else self.spare_end,
        )
        own = {
            "--recipe": self.recipe,
            "--table": self.label,
            "--grain": self.grain,
            "--spare-end": self.spare_end,
            "--lba-size": self.lba_size,
        }
        typed = [
            *(f"--part {shell_word(part)}" for part in self.parts or ()),
            *typed_words(own | geometry.typed),
        ]
        audit_goal = RealignGoal(grain=goal.grain)  # the audit uses the same grain
        return goal, Request(
            audit_goal, **asdict(geometry), typed=(*typed, *([f"--wipe {shell_word(disk)}"] if wipe else []))
        )


@run_change.ends_stream
def plan_layout_command(
    disk: options.DiskArgument,
    *,
    chosen: LayoutOptions,
    kept: options.PlanFile,
    no_lease: options.NoLeaseOption = False,
    verbose: options.VerbosePlanOption = False,
    json_: options.JsonOption = False,
    geometry: options.Geometry,
) -> None:
    """Plan a new partition table for an empty disk, and show it.

    Example: sudo aligntool plan layout /dev/sdb --part 512MiB:esp --part rest:linux

    Exit code: 0 planned; 3 refused, with every reason.
    """
    refuse(options.attach_virtual(disk))
    operation = Layout(disk, *chosen.goal_and_request(disk, geometry), no_lease, chosen.lba_size)
    run_change.show_only(operation, json_=json_, kept=kept, verbose=verbose, inputs=(chosen.recipe,))


@run_change.ends_stream
def layout(
    disk: options.DiskArgument,
    *,
    chosen: LayoutOptions,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    no_lease: options.NoLeaseOption = False,
    json_: options.EventsOption = False,
    geometry: options.Geometry,
) -> None:
    """Write a new partition table to an empty disk, with every partition aligned.

    The plan is shown and confirmed first.

    Example: sudo aligntool layout /dev/sdb --recipe desktop-uefi

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the table was finished.
    """
    refuse(options.attach_virtual(disk, writes=not dry_run, no_lease=no_lease))
    operation = Layout(disk, *chosen.goal_and_request(disk, geometry), no_lease, chosen.lba_size)
    run_change.run_change(operation, yes=yes, json_=json_, dry_run=dry_run, verbose=verbose)


@dataclass(frozen=True, slots=True)
class Layout(DiskOperation):
    """Write a new partition table to an empty disk. `make_layout` compares the disk with the plan before it
    writes.
    """

    disk: str
    goal: LayoutGoal
    given: Request  # the geometry
    no_lease: bool = False
    lba_size: int | None = None  # bytes of the logical blocks that an empty NVMe drive is formatted to first

    @property
    def named(self) -> str:
        return self.disk

    def make_plan(self) -> Plan:
        return plan_formatted_layout(self._formatting(self.lba_size), self.goal)

    def _formatting(self, size: int | None) -> Formatting:
        """Look at the disk, and plan its format to logical blocks of `size` bytes. Raises Refused."""
        judged, inventory = look_at(self.disk, self.given)
        refuse_part(self.disk, judged.disk, "a partition table is made for a whole disk")
        refuse_in_flight(judged.disk.path)
        refuse_changed_table(judged.disk)
        refuse_open_image(judged.disk.path, no_lease=self.no_lease)
        disk = with_samples(judged.disk, whole=self.goal.wipe or size is not None)
        judged = replace(judged, disk=disk, above=find_holders(disk))
        if size is None:
            return Formatting((judged,))
        formatting = plan_formats(
            [judged],
            inventory,
            size,
            known_geometries(inventory),
            namespaces_of([judged]),
            look((), arrays=True, files=False).disks,
            self.given.audit_options,
        )
        missing = missing_programs(["nvme"] if formatting.steps else [])
        return replace(formatting, refusals=(*formatting.refusals, *missing))

    def next_command(self) -> str:
        return command("layout", self.disk, *self.given.typed, *options.no_lease_words(self.no_lease))

    def refuse_changed(self, plan: Plan) -> None:
        """Compare what is formatted with a plan that is made now: a format erases more than a new table."""
        refuse_unsound(plan)
        formats = plan.of(FormatDrive)
        if not formats:
            return
        formatting = self._formatting(formats[0].block_after)
        refuse(formatting.refusals)
        if (formatting.steps, layout_subject(formatting.drives[0].disk)) != (formats, plan.disk):
            text = f"{plan.disk.path}: its current state requires another format than the plan"
            raise Refused(text, hint=command("plan layout", plan.disk.path), code="plan-stale")

    def locked(self, plan: Plan) -> AbstractContextManager[run_change.ChangeInProgress]:
        path = plan.disk.path
        again = self.next_command() if plan.of(FormatDrive) else _write_again(path)

        def events() -> Iterator[Event]:
            yield from format_for_table(plan)
            yield from make_layout(plan, _look_again(plan), no_lease=self.no_lease)

        @contextmanager
        def making(_: Callable[[str], object]) -> Iterator[run_change.ChangeInProgress]:
            yield run_change.ChangeInProgress(events(), again)

        return run_change.lock_in_child(making, plan, path)

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        path = plan.disk.path
        if [part.extent for part in _look_again(plan).partitions] != [place.after for place in plan.places]:
            raise Stopped(f"the new table of {path} does not read back as planned", hint=_write_again(path))
        seen = command("audit", path)
        if json_:
            run_change.write_end(
                "new", changed=True, sentences=("the new table reads back as planned",), hint=seen
            )
        remark(f"To check the result: {seen}")


def _write_again(path: str) -> str:
    return command("layout", path, "--wipe", shell_word(path))


def _look_again(plan: Plan) -> Disk:
    return look_at(plan.disk.path, Request(sector_size=plan.disk.sector_size))[0].disk


def _goal(parts: tuple[PartitionRequest, ...], name: str | None) -> LayoutGoal:
    if name is None:
        return LayoutGoal(parts)
    goal = find_recipe(name, "layout").goal
    if parts or not isinstance(goal, LayoutGoal):
        raise Refused(f"the recipe {name} already has partitions", hint="give either --part or --recipe")
    return goal


# `aligntool demo`: realign a disk image made for it, without root.


def demo(
    image: Annotated[
        str | None,
        typer.Argument(
            parser=options.path,
            metavar="IMAGE",
            help="Write the image to this file and keep it [default: a temporary file].",
        ),
    ] = None,
) -> None:
    """Create a misaligned disk image, audit it, realign it, and audit it again.

    The image is that of a PC from 2005, with files. Each command is shown, and what it prints.

    If IMAGE is given, it is audited, left misaligned and kept for experiments.

    Example: aligntool demo old-disk.img
    """
    if image is not None:
        refuse_folder_name(image)
        _make_old_disk(image)
        vouched = _vouched(image)
        _show_command("plan realign", image, *vouched)
        _comment(
            f"\nThe image is left as it is. To move its partitions: {command('realign', image, *vouched)}"
        )
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-demo-") as folder:
        path = f"{folder}/disk.img"
        _make_old_disk(path)
        vouched = _vouched(path)
        _show_command("plan realign", path, *vouched)
        _show_command("realign", path, "--yes", *vouched)
        _show_command("audit", path)
    _comment("\nThe image was removed; `aligntool demo old-disk.img` keeps one for experiments.")


def _vouched(image: str) -> tuple[str, ...]:
    """Return the option for an image that the demo has just made, where the kernel does not know who has it
    open, such as in a container.
    """
    try:
        refuse_open_image(image, no_lease=False)
    except Refused as refused:
        return options.no_lease_words(any(reason.code == "no-lease" for reason in refused.refusals))
    return ()


def _make_old_disk(image: str) -> None:
    _comment(f"Making {image}: an MBR disk as partitioned by Windows XP and a Linux of 2005 ...")
    make_demo_image(image)
    _show_command("audit --map", image)


def _show_command(name: str, image: str, *options: str) -> None:
    """Show a command and run it: it prints what it always prints. Ends with its exit code if it is refused or
    stops.
    """
    _comment(f"\n$ {command(name, image, *options)}\n")
    words = own_program(*name.split(), *options, "--", image)
    environment = os.environ | {"ALIGNTOOL_PAGER": ""}
    exit_code = subprocess.run(words, check=False, env=environment).returncode
    if exit_code not in (ExitCode.DONE, ExitCode.FINDINGS):
        raise typer.Exit(exit_code)


def _comment(words: str) -> None:
    """Write to standard error after flushing standard output, because both may go to the same terminal."""
    sys.stdout.flush()
    for line in words.split("\n"):
        remark(line)
