"""`aligntool partition`, `convert` and their plans: give a disk another partition table."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated

import typer

from aligntool.change import Plan, RealignGoal, plan_with_request
from aligntool.cli import options
from aligntool.cli.layers import read_key
from aligntool.cli.plan import (
    DiskChange,
    DiskOperation,
    limited,
    overwriting,
    overwriting_words,
    report_result,
    table_change,
)
from aligntool.cli.run_change import (
    ChangeInProgress,
    Operation,
    ends_stream,
    lock_in_child,
    run_change,
    show_only,
)
from aligntool.convert.copying import CopyRequest, check_same_copy, lock_copy
from aligntool.convert.operation import Conversion
from aligntool.convert.planning import sector_size_options
from aligntool.errors import Refused, refuse
from aligntool.linux.lease import refuse_open_image
from aligntool.mover.convert_table import SIZES
from aligntool.realign.request import Request, with_journal
from aligntool.whole_disk.operation import WholeDisk

# `aligntool partition` and `plan partition`: put the content of a whole disk into a partition, and back.


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """Options of a table for a whole disk, except the geometry."""

    undo: Annotated[
        bool, typer.Option("--undo", help="Remove the partition table of a disk with one partition.")
    ] = False
    label: options.TableOption = None
    grain: options.NewGrainOption = None
    shrink: Annotated[
        bool,
        typer.Option("--shrink", help="Allow the file system to be shrunk with its own tool to make room."),
    ] = False
    used_only: options.UsedOnlyOption = False
    journal: options.NewJournalOption = None
    overwrite_bytes: options.OverwriteBytesOption = None
    save: options.SaveOption = None
    key_file: Annotated[
        str | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Open a LUKS volume with this key to find the space in use; - asks for the key.",
        ),
    ] = None

    def request(self, geometry: options.Geometry) -> WholeDisk:
        """Return the options as one value."""
        goal = RealignGoal(shrink=self.shrink, used_only=self.used_only)
        goal = with_journal(goal, options.absolute(self.journal))
        if self.grain is not None:
            goal = replace(goal, grain=self.grain, grain_given=True)
        goal = overwriting(goal, self.overwrite_bytes, self.save)
        own = {
            "--table": self.label,
            "--grain": self.grain,
            "--journal": self.journal,
            "--key-file": self.key_file,
        }
        unused = own | {"--shrink": self.shrink, "--journal": None}
        for option in (name for name, given in unused.items() if self.undo and given):
            raise typer.BadParameter(f"--undo and {option} are mutually exclusive")
        flags = {"--undo": self.undo, "--shrink": self.shrink, "--used-only": self.used_only}
        words = options.typed_words(own | geometry.typed)
        typed = (*(word for word, given in flags.items() if given), *words, *overwriting_words(goal))
        return WholeDisk(Request(goal, **asdict(geometry), typed=typed), self.label or "gpt", self.undo)


def partition_change(
    disk: str, asked: WholeDisk, key_file: str | None, rate: int | None = None, *, no_lease: bool = False
) -> DiskChange:
    """Return the operation. A LUKS key stays in memory and is not part of a saved plan."""
    change = table_change("partition", disk, asked, rate, no_lease=no_lease)
    if key_file is None:
        return change
    key = read_key(key_file)
    return replace(change, find=partial(asked.find_plan, key=key.content))


@ends_stream
def partition(
    disk: options.DiskArgument,
    *,
    chosen: PartitionOptions,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    no_lease: options.NoLeaseOption = False,
    not_suspended: options.NotSuspendedOption = False,
    json_: options.EventsOption = False,
    geometry: options.Geometry,
) -> None:
    """Put a whole-disk file system or LVM volume into a partition.

    The content of a disk without a partition table is moved up, and a new table with one partition is written
    before it. UUID and label stay. `--undo` removes the table of a disk with one partition.

    The plan is shown and confirmed first. The change may be interrupted at any moment, like a realign.

    Example: sudo aligntool partition /dev/sdb --shrink

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the journal kept.
    """
    refuse(options.attach_virtual(disk, writes=not dry_run, no_lease=no_lease))
    operation = partition_change(disk, chosen.request(geometry), chosen.key_file, rate, no_lease=no_lease)
    run_change(operation, yes=yes, json_=json_, dry_run=dry_run, verbose=verbose, not_suspended=not_suspended)


@ends_stream
def plan_partition(
    disk: options.DiskArgument,
    *,
    chosen: PartitionOptions,
    kept: options.PlanFile,
    no_lease: options.NoLeaseOption = False,
    verbose: options.VerbosePlanOption = False,
    json_: options.JsonOption = False,
    geometry: options.Geometry,
) -> None:
    """Plan a partition for the content of a whole disk.

    The plan shows the disk before and after, and with -v every byte range.

    Example: sudo aligntool plan partition /dev/sdb --shrink

    Exit code: 0 planned; 3 refused, with every reason.
    """
    refuse(options.attach_virtual(disk))
    operation = partition_change(disk, chosen.request(geometry), chosen.key_file, no_lease=no_lease)
    show_only(operation, json_=json_, kept=kept, verbose=verbose, inputs=(chosen.key_file,))


# `aligntool convert` and `plan convert`: convert a partition table to another sector size.


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Options of a conversion to another sector size."""

    sector_size: Annotated[
        str,
        typer.Option(
            "--sector-size",
            parser=options.one_of("4096", "512"),
            metavar="SIZE",
            help="Sector size of the new table: 4096 or 512.",
        ),
    ] = "4096"
    both: Annotated[
        bool,
        typer.Option("--both", help="Write tables for both sector sizes; for images that will be copied."),
    ] = False
    journal: options.NewJournalOption = None
    overwrite_bytes: options.OverwriteBytesOption = None
    save: options.SaveOption = None

    def request(self) -> Conversion:
        """Return the options as one value."""
        goal = with_journal(RealignGoal(), options.absolute(self.journal))
        goal = overwriting(goal, self.overwrite_bytes, self.save)
        words = options.typed_words({"--journal": self.journal})
        typed = (*sector_size_options(self.sizes), *words, *overwriting_words(goal))
        return Conversion(Request(goal, typed=typed), self.sizes)

    def copying(
        self,
        disk: str,
        output: str,
        rate: int | None,
        *,
        used_only: bool,
        no_lease: bool,
        wiped: Sequence[str],
    ) -> "ConvertCopy":
        """Return the operation that writes a copy and only reads the disk. Raises Refused."""
        if output in ("", "-"):
            raise typer.BadParameter("name a file or a disk for the copy: -o NEW")
        if self.journal:
            text = "a copy has no journal: it gets its table only when it is complete"
            raise Refused(text, hint="omit --journal", code="invalid-option", subject="--journal")
        if self.overwrite_bytes:
            text = "a copy overwrites nothing of the disk that it reads"
            raise Refused(
                text, hint="omit --overwrite-bytes", code="invalid-option", subject="--overwrite-bytes"
            )
        only = ["--used-only"] if used_only else []
        wipe = options.may_wipe(output, wiped)
        named = options.typed_words({"-o": output, **({"--wipe": output} if wipe else {})})
        request = Request(
            RealignGoal(used_only=used_only), typed=(*sector_size_options(self.sizes), *only, *named)
        )
        return ConvertCopy(CopyRequest(request, disk, self.sizes, output, wipe), rate, no_lease)

    @property
    def sizes(self) -> tuple[int, ...]:
        if self.both and self.sector_size != "4096":
            raise typer.BadParameter("--both and --sector-size are mutually exclusive")
        return SIZES if self.both else (int(self.sector_size),)


OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write a copy to this new image or empty disk; DISK is only read.",
    ),
]


CopyWipeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--wipe", metavar="DEVICE", help="With -o: allow unrecognised data on this disk to be lost."
    ),
]


@ends_stream
def convert(
    disk: options.DiskArgument,
    *,
    chosen: ConvertOptions,
    output: OutputOption = None,
    used_only: options.UsedOnlyOption = False,
    wipe: CopyWipeOption = None,
    dry_run: options.DryRunOption = False,
    verbose: options.VerbosePlanOption = False,
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    no_lease: options.NoLeaseOption = False,
    not_suspended: options.NotSuspendedOption = False,
    json_: options.EventsOption = False,
) -> None:
    """Convert the partition table of a disk or image to another sector size.

    The kind of the table stays: an MBR becomes a GPT by hand (docs/by-hand.md).

    Use it after copying a disk to one with 4096-byte sectors, or back. Partitions and files stay. A FAT file
    system, such as the EFI system partition, is recreated with its files. Content that cannot work with such
    sectors is refused.

    The plan is shown and confirmed first. The change may be interrupted at any moment, like a realign.

    Example: sudo aligntool convert /dev/sdb --sector-size 4096

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the journal kept.
    """
    if used_only and output is None:
        raise typer.BadParameter("--used-only requires -o: otherwise no content is copied")
    if wipe and output is None:
        raise typer.BadParameter("--wipe requires -o: otherwise no other disk is written to")
    writes = not dry_run and output is None
    alone = not dry_run
    refuse(options.attach_virtual(disk, writes=writes, alone=alone, no_lease=no_lease))
    operation: Operation
    if output is None:
        operation = table_change("convert", disk, chosen.request(), rate, no_lease=no_lease)
    else:
        operation = chosen.copying(
            disk, output, rate, used_only=used_only, no_lease=no_lease, wiped=wipe or ()
        )
    run_change(operation, yes=yes, json_=json_, dry_run=dry_run, verbose=verbose, not_suspended=not_suspended)


@ends_stream
def plan_convert(
    disk: options.DiskArgument,
    *,
    chosen: ConvertOptions,
    kept: options.PlanFile,
    no_lease: options.NoLeaseOption = False,
    verbose: options.VerbosePlanOption = False,
    json_: options.JsonOption = False,
) -> None:
    """Plan a partition table for another sector size.

    The plan shows what is kept and what is recreated, and with -v every byte range.

    Example: sudo aligntool plan convert /dev/sdb --sector-size 4096

    Exit code: 0 planned; 3 refused, with every reason.
    """
    refuse(options.attach_virtual(disk))
    operation = table_change("convert", disk, chosen.request(), no_lease=no_lease)
    show_only(operation, json_=json_, kept=kept, verbose=verbose)


@dataclass(frozen=True, slots=True)
class ConvertCopy(DiskOperation):
    """Copy a disk, with a partition table for another sector size."""

    asked: CopyRequest
    rate: int | None = None
    no_lease: bool = False

    @property
    def named(self) -> str:
        return self.asked.output

    def make_plan(self) -> Plan:
        plan = self.asked.find_plan().plan
        refuse_open_image(self.asked.source, no_lease=self.no_lease, readers=True)
        return plan

    def document(self, plan: Plan) -> str:
        return plan_with_request(plan, "copying", self.asked) + "\n"

    def shown(self, plan: Plan) -> Plan:
        return limited(plan, self.rate)

    def next_command(self) -> str:
        return " ".join((self.asked.command, *options.no_lease_words(self.no_lease)))

    def refuse_changed(self, plan: Plan) -> None:
        check_same_copy(plan, self.asked)

    def locked(self, plan: Plan) -> AbstractContextManager[ChangeInProgress]:
        return lock_in_child(
            lambda _: lock_copy(plan, self.asked, self.rate, no_lease=self.no_lease), plan, self.asked.output
        )

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        report_result(plan, plan.disk.path, self.asked.request, json_=json_, kernel_behind=kernel_behind)
