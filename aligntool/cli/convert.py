"""`aligntool convert` and `plan convert`: convert a partition table to another sector size."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated

from typer import BadParameter

from aligntool.change import Plan, RealignGoal, plan_with_request
from aligntool.cli import options
from aligntool.cli.plan import disk_plan_lines, report_result, table_change
from aligntool.cli.run_change import ChangeInProgress, Operation, ends_stream, lock_in_child, run_change, show_only
from aligntool.errors import Refused, refuse
from aligntool.realign.convert_copy import CopyRequest, check_same_copy, lock_copy
from aligntool.realign.convert_plan import sector_size_options
from aligntool.realign.convert_request import Conversion
from aligntool.realign.convert_table import SIZES
from aligntool.realign.request import Request
from aligntool.render.lines import Line


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Options of a conversion to another sector size."""

    sector_size: Annotated[
        str, "--sector-size", "Sector size of the new table: 4096 or 512.", "SIZE", options.one_of("4096", "512")
    ] = "4096"
    both: Annotated[bool, "--both", "Write tables for both sector sizes; for images that will be copied."] = False
    journal: options.NewJournalOption = None

    def request(self) -> Conversion:
        """Return the options as one value."""
        typed = (*sector_size_options(self.sizes), *options.typed_words({"--journal": self.journal}))
        goal = RealignGoal(journal_file=options.absolute(self.journal))
        return Conversion(Request(goal, typed=typed), self.sizes)

    def copying(self, disk: str, output: str, rate: int | None) -> "ConvertCopy":
        """Return the operation that writes a copy and only reads the disk. Raises Refused."""
        if output in ("", "-"):
            raise BadParameter("name a file or a disk for the copy: -o NEW")
        if self.journal:
            text = "a copy has no journal: it gets its table only when it is complete"
            raise Refused(text, hint="omit --journal", code="invalid-option", subject="--journal")
        typed = (*sector_size_options(self.sizes), *options.typed_words({"-o": output}))
        return ConvertCopy(CopyRequest(Request(typed=typed), disk, self.sizes, output), rate)

    @property
    def sizes(self) -> tuple[int, ...]:
        if self.both and self.sector_size != "4096":
            raise BadParameter("--both and --sector-size are mutually exclusive")
        return SIZES if self.both else (int(self.sector_size),)


OutputOption = Annotated[
    options.File, "--output -o", "Write a copy to this new image or empty disk; DISK is only read."
]


@ends_stream
def convert(
    disk: options.DiskArgument,
    *,
    chosen: ConvertOptions,
    output: OutputOption = None,
    dry_run: options.DryRunOption = False,
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    json_: options.EventsOption = False,
) -> None:
    """Convert the partition table of a disk or image to another sector size.

    Use it after copying a disk to one with 4096-byte sectors, or back. Partitions and files stay. A FAT file system,
    such as the EFI system partition, is recreated with its files. Content that cannot work with such sectors is
    refused.

    The plan is shown and confirmed first. The change may be interrupted at any moment, like a realign.

    Example: sudo aligntool convert /dev/sdb --sector-size 4096

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the journal kept.
    """
    refuse(options.attach_virtual(disk, writes=not dry_run and output is None, alone=not dry_run))
    operation: Operation
    if output is None:
        operation = table_change("convert", disk, chosen.request(), rate)
    else:
        operation = chosen.copying(disk, output, rate)
    run_change(operation, yes=yes, json_=json_, dry_run=dry_run)


def plan_convert(
    disk: options.DiskArgument, *, chosen: ConvertOptions, kept: options.PlanFile, json_: options.JsonOption = False
) -> None:
    """Plan a partition table for another sector size.

    The plan shows what is kept, what is recreated, and every byte range.

    Example: sudo aligntool plan convert /dev/sdb --sector-size 4096

    Exit code: 0 planned; 3 refused, with every reason.
    """
    refuse(options.attach_virtual(disk))
    operation = table_change("convert", disk, chosen.request())
    show_only(operation, json_=json_, kept=kept)


@dataclass(frozen=True, slots=True)
class ConvertCopy(Operation):
    """Copy a disk, with a partition table for another sector size."""

    asked: CopyRequest
    rate: int | None = None

    def make_plan(self) -> Plan:
        return self.asked.find_plan()[0].plan

    def document(self, plan: Plan) -> str:
        return plan_with_request(plan, "copying", self.asked) + "\n"

    def lines(self, plan: Plan, type_next: str) -> Iterable[Line]:
        return disk_plan_lines(plan, type_next)

    def next_command(self) -> str:
        return self.asked.command

    def refuse_changed(self, plan: Plan) -> None:
        check_same_copy(plan, self.asked)

    def locked(self, plan: Plan) -> AbstractContextManager[ChangeInProgress]:
        return lock_in_child(lambda _: lock_copy(plan, self.asked, self.rate), plan, self.asked.output)

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        report_result(plan, plan.disk.path, self.asked.request, json_=json_, kernel_behind=kernel_behind)
