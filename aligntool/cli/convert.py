"""`aligntool convert` and `plan convert`: a table for sectors of another size."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from aligntool.change import Plan, RealignGoal, with_asked
from aligntool.cli import options
from aligntool.cli.options import command
from aligntool.cli.plan import disk_plan_lines, report_result
from aligntool.cli.run_change import Applying, Operation, ends_stream, pipes_may_break, run_change, show_only
from aligntool.errors import refuse
from aligntool.realign.convert_request import Conversion
from aligntool.realign.request import Request, locked_realign, still_true
from aligntool.render.lines import Line


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Options of a table for sectors of another size."""

    sector_size: Annotated[
        str,
        "--sector-size",
        "Sectors that the table is to be for: 4096 or 512.",
        "BYTES",
        options.one_of("4096", "512"),
    ] = "4096"
    journal: options.NewJournalOption = None

    def request(self) -> Conversion:
        """Return the options as one value."""
        typed = (f"--sector-size {self.sector_size}", *options.typed_words({"--journal": self.journal}))
        goal = RealignGoal(journal_file=options.absolute(self.journal))
        return Conversion(Request(goal, typed=typed), (int(self.sector_size),))


@ends_stream
def convert(
    disk: options.DiskArgument,
    *,
    asked: ConvertOptions,
    dry_run: options.DryRunOption = False,
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    json_: options.EventsOption = False,
) -> None:
    """Give a GPT disk or image a table for sectors of another size.

    For a disk that was copied to one with sectors of 4096 bytes, or back: partitions and files stay, a FAT such as the
    EFI system partition is made anew with its files, and what cannot work on such sectors is refused.

    The plan is shown and confirmed first. It may be interrupted at any moment, as a realign may.

    Example: sudo aligntool convert /dev/sdb --sector-size 4096

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the journal kept.
    """
    refuse(options.show_inside(disk, writes=not dry_run))
    run_change(Convert(disk, asked.request(), rate), yes=yes, json_=json_, dry_run=dry_run)


def plan_convert(
    disk: options.DiskArgument, *, asked: ConvertOptions, kept: options.KeptPlan, json_: options.JsonOption = False
) -> None:
    """Plan a table for sectors of another size.

    It shows what is kept, what is made anew, and every byte range.

    Example: sudo aligntool plan convert /dev/sdb --sector-size 4096

    Exit code: 0 planned; 3 refused, with every reason.
    """
    refuse(options.show_inside(disk))
    operation = Convert(disk, asked.request())
    show_only(operation, operation.make_plan(), json_=json_, kept=kept)


@dataclass(frozen=True, slots=True)
class Convert(Operation):
    """Give a disk a table for sectors of another size."""

    disk: str
    asked: Conversion
    rate: int | None = None  # bytes a second at most

    def make_plan(self) -> Plan:
        return self.asked.find_plan(self.disk, self.asked.request).plan

    def document(self, plan: Plan) -> str:
        return with_asked(plan, "convert", self.asked) + "\n"

    def lines(self, plan: Plan, type_next: str) -> Iterable[Line]:
        return disk_plan_lines(plan, type_next)

    def next_command(self) -> str:
        return command("convert", self.disk, *self.asked.request.typed)

    def refuse_changed(self, plan: Plan) -> None:
        still_true(plan, self.asked.request, self.asked.find_plan)

    @contextmanager
    def locked(self, plan: Plan) -> Iterator[Applying]:
        asked, find = self.asked.request, self.asked.find_plan
        with pipes_may_break(), locked_realign(plan, asked, rate=self.rate, on_note=options.say, find=find) as applying:
            yield applying

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        report_result(plan, plan.disk.path, self.asked.request, json_=json_, kernel_behind=kernel_behind)
