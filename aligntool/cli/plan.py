"""A change of one disk: options, operation and result, for `realign`, `plan`, `apply`, `resume` and
`rollback`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Annotated, Protocol

import typer

from aligntool.audit.wording import shell_word
from aligntool.change import Plan, RealignGoal, plan_with_request
from aligntool.claims import format_range, parse_range
from aligntool.cli import options
from aligntool.cli.reference import find_recipe
from aligntool.cli.run_change import ChangeInProgress, Operation, end_change, pipes_may_break
from aligntool.commands import ByHand, by_hand
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refused
from aligntool.linux.lease import refuse_open_image
from aligntool.linux.targets import raw_copy
from aligntool.mover.journal import refuse_existing
from aligntool.realign.found_plan import Finder, FoundPlan, find_plan
from aligntool.realign.named_ranges import refuse_unsaved
from aligntool.realign.operation import locked_realign
from aligntool.realign.planned_checks import checked_disk
from aligntool.realign.request import Request, look_at, with_journal
from aligntool.realign.shrink import shrink_words
from aligntool.realign.stale_plan import verify_plan
from aligntool.render.lines import Line
from aligntool.render.plan import plan_lines
from aligntool.render.progress import result_lines
from aligntool.steps import CheckContent, ShrinkContent, WriteJournal


@dataclass(frozen=True, slots=True)
class RealignOptions:
    """Options of a realign, except the geometry."""

    partitions: Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N[,N]",
            help="Move only these, such as 1,2 [default: all that are off the grid].",
        ),
    ] = None
    grain: Annotated[
        int | None,
        typer.Option(
            "--grain",
            metavar="SIZE",
            parser=options.grid,
            help="Boundary on which partitions start [default: 1MiB if there is room].",
        ),
    ] = None
    recipe: options.RecipeOption = None
    shrink: Annotated[
        bool,
        typer.Option("--shrink", help="Allow file systems to be shrunk with their own tools to make room."),
    ] = False
    used_only: options.UsedOnlyOption = False
    journal: options.NewJournalOption = None
    overwrite_bytes: options.OverwriteBytesOption = None
    save: options.SaveOption = None
    layers: Annotated[
        bool,
        typer.Option(
            "--layers", help="Move nothing; re-encrypt each LUKS2 volume with sectors of the drive's size."
        ),
    ] = False

    def request(self, geometry: options.Geometry) -> Request:
        """Return the options as one value. Options override the values of a recipe. Raises Refused."""
        numbers = options.partition_numbers(self.partitions) or []
        moving = (self.grain, self.recipe, self.shrink, self.used_only, self.journal, self.overwrite_bytes)
        if self.layers and any(moving):
            excluded = "--grain, --recipe, --shrink, --used-only, --journal and --overwrite-bytes"
            raise typer.BadParameter(f"--layers moves nothing: it excludes {excluded}")
        goal = find_recipe(self.recipe, "realign").goal if self.recipe else RealignGoal()
        if not isinstance(goal, RealignGoal):
            raise Refused(f"the recipe {self.recipe} is not for a realign", hint="aligntool recipes list")
        if self.grain is not None:
            goal = replace(goal, grain=self.grain, grain_given=True)
        if numbers:
            goal = replace(goal, partitions=tuple(sorted(numbers)))
        goal = with_journal(goal, options.absolute(self.journal))
        goal = replace(goal, shrink=self.shrink or goal.shrink)
        goal = overwriting(replace(goal, used_only=self.used_only), self.overwrite_bytes, self.save)
        own = {"--grain": self.grain, "--recipe": self.recipe, "--journal": self.journal}
        typed = [*(f"-p {number}" for number in numbers), *(["--shrink"] if self.shrink else [])]
        typed += ["--used-only"] if self.used_only else []
        typed += [*(["--layers"] if self.layers else []), *overwriting_words(goal)]
        return Request(goal, **asdict(geometry), typed=(*typed, *options.typed_words(own | geometry.typed)))


def overwriting(goal: RealignGoal, ranges: Iterable[str] | None, save_to: str | None) -> RealignGoal:
    """Return the goal with the values of --overwrite-bytes and --save, or raise a usage error."""
    if save_to and not ranges:
        raise typer.BadParameter("--save requires --overwrite-bytes")
    try:
        named = tuple(sorted(parse_range(text) for text in ranges or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return replace(goal, overwrite=named, save_to=options.absolute(save_to))


def overwriting_words(goal: RealignGoal) -> list[str]:
    """Return --overwrite-bytes and --save as words of a command line."""
    ranges = [f"--overwrite-bytes {format_range(extent)}" for extent in goal.overwrite]
    return [*ranges, *options.typed_words({"--save": goal.save_to})]


def commands_of(plan: Plan) -> dict[int, tuple[str, ...]]:
    """Return the command lines that a plan runs, by the index of the step. DEVICE: a loop device over the
    partition, or over VIEW, which shows the partition and is copied on write.
    DISK: the disk in a virtual disk, which these commands would not find in the file.
    """
    lines: dict[int, tuple[str, ...]] = {}
    checked = checked_disk(plan)
    path, checked = ("DISK", "DISK") if raw_copy(checked) else (shell_word(plan.disk.path), checked)
    for index, step in enumerate(plan.steps):
        match step:
            case CheckContent():
                kind = kind_named(step.kind)
                words = " ".join(kind.checker)
                place = f"-o {step.extent.start} --sizelimit {step.extent.length}"
                loop = f"losetup -r -f --show {place} {shell_word(checked)}"
                if kind.name_in_image and (inside := kind.name_in_image(checked, step.extent.start)):
                    lines[index] = (f"{words} {shell_word(inside)}",)
                elif words:
                    lines[index] = (loop, f"{words} DEVICE")
            case ShrinkContent():
                loop = f"losetup -f --show -o {step.extent.start} --sizelimit {step.extent.length} {path}"
                loop = loop if kind_named(step.kind).is_shrunk_mounted else "losetup -f --show VIEW"
                shrinking = shrink_words(step.kind, "DEVICE", "FOLDER", step.length)
                lines[index] = (loop, *(" ".join(words) for words in shrinking))
    return lines


# The operation behind `realign` and `apply`, and what `resume` and `rollback` share with it.


class ChangeRequest(Protocol):
    """A request for a change of a disk other than a realign."""

    @property
    def request(self) -> Request:
        """Return the part that a realign also has."""

    def find_plan(self, target: str, asked: Request) -> FoundPlan:
        """Look at the disk and plan. Raises Refused with every reason."""


class DiskOperation(Operation, Protocol):
    """A change of one disk, shown with the command lines that it runs."""

    def lines(self, plan: Plan, type_next: str, *, verbose: bool = False) -> Iterable[Line]:
        width = options.terminal_width()
        commands = commands_of(plan)
        return plan_lines(plan, width=width, commands=commands, type_next=type_next, verbose=verbose)


@dataclass(frozen=True, slots=True)
class DiskChange(DiskOperation):
    """Change a disk under its journal: `word` is the command, and `find` plans what it does."""

    word: str
    disk: str
    asked: Request
    kept: tuple[str, object]  # saved with the plan: the key in its document, and the request
    find: Finder = find_plan
    rate: int | None = None  # bytes a second at most
    no_lease: bool = False  # see `Lease`

    @property
    def named(self) -> str:
        return self.disk

    def make_plan(self) -> Plan:
        plan = self.find(self.disk, self.asked).plan
        refuse_open_image(plan.disk.path, no_lease=self.no_lease)
        if plan.steps and self.asked.goal.journal_file:
            refuse_existing(self.asked.goal.journal_file)
        if plan.steps and self.asked.goal.save_to:
            refuse_unsaved(self.asked.goal.save_to)
        return plan

    def shown(self, plan: Plan) -> Plan:
        return limited(plan, self.rate)

    def document(self, plan: Plan) -> str:
        return plan_with_request(plan, *self.kept) + "\n"

    def next_command(self) -> str:
        limit = options.typed_words({"--rate": self.rate})
        return options.command(
            self.word, self.disk, *self.asked.typed, *limit, *options.no_lease_words(self.no_lease)
        )

    def refuse_changed(self, plan: Plan) -> None:
        verify_plan(plan, self.asked, self.find)
        refuse_open_image(plan.disk.path, no_lease=self.no_lease)

    @contextmanager
    def locked(self, plan: Plan) -> Iterator[ChangeInProgress]:
        lock = locked_realign(
            plan, self.asked, rate=self.rate, on_note=options.say, find=self.find, no_lease=self.no_lease
        )
        with pipes_may_break(), lock as applying:
            yield applying

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        report_result(plan, plan.disk.path, self.asked, json_=json_, kernel_behind=kernel_behind)


def limited(plan: Plan, rate: int | None) -> Plan:
    """Return the plan with a duration in which the writes do not exceed `rate`, which also gives an image
    one. Its journal is written as well: in the end its place is zeroed.
    """
    cost = plan.estimate
    if not rate or cost is None:
        return plan
    journals = (step.journal for step in plan.of(WriteJournal))
    zeroed = sum(place.extent.length for place in journals if not place.file)
    seconds = max(cost.seconds or 0, ceil((cost.bytes_to_copy + zeroed) / rate))
    return replace(plan, estimate=replace(cost, seconds=seconds))


def realign_of(disk: str, asked: Request, rate: int | None = None, *, no_lease: bool = False) -> DiskChange:
    """Return the operation that moves partitions onto their grids."""
    return DiskChange("realign", disk, asked, ("asked", asked), rate=rate, no_lease=no_lease)


def table_change(
    word: str, disk: str, asked: ChangeRequest, rate: int | None = None, *, no_lease: bool = False
) -> DiskChange:
    """Return the operation of `partition` or `convert`, which give a disk another table."""
    return DiskChange(word, disk, asked.request, (word, asked), asked.find_plan, rate, no_lease)


def report_result(
    plan: Plan, disk: str, asked: Request, *, json_: bool, back: bool = False, kernel_behind: bool = False
) -> None:
    """Look at the disk again and report it; `back`: the plan was undone. Raises Stopped.

    `kernel_behind`: the kernel has not read the new table yet; there is nothing to resume.
    """
    following = ""
    if kernel_behind:
        following = f"restart the machine, or {by_hand(ByHand.KERNEL_TABLE, 'partprobe', shell_word(disk))}"
    end_change(
        plan,
        lambda: result_lines(plan, look_at(disk, asked)[0], back=back, width=options.terminal_width()),
        again=options.command("audit", disk),
        json_=json_,
        back=back,
        hint=following,
    )
    if following:
        options.say("the running kernel still has the old partition table")
        options.suggest(following)
