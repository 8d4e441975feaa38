"""`aligntool partition` and `plan partition`: put the content of a whole disk into a partition, and back."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated

from typer import BadParameter

from aligntool.change import RealignGoal
from aligntool.cli import options
from aligntool.cli.layers import read_key
from aligntool.cli.plan import DiskChange, table_change
from aligntool.cli.run_change import ends_stream, run_change, show_only
from aligntool.errors import refuse
from aligntool.realign.partition_request import WholeDisk
from aligntool.realign.request import Request


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """Options of a table for a whole disk, except the geometry."""

    undo: Annotated[bool, "--undo", "Remove the partition table of a disk with one partition."] = False
    label: options.TableOption = None
    grain: options.NewGrainOption = None
    shrink: Annotated[bool, "--shrink", "Allow the file system to be shrunk with its own tool to make room."] = False
    journal: options.NewJournalOption = None
    key_file: Annotated[
        options.File, "--key-file", "Open a LUKS volume with this key to find the space in use; - asks for the key."
    ] = None

    def request(self, geometry: options.Geometry) -> WholeDisk:
        """Return the options as one value."""
        goal = RealignGoal(shrink=self.shrink, journal_file=options.absolute(self.journal))
        if self.grain is not None:
            goal = replace(goal, grain=self.grain, grain_given=True)
        own = {
            "--table": self.label, "--grain": self.grain, "--journal": self.journal, "--key-file": self.key_file
        }  # fmt: skip
        unused = own | {"--shrink": self.shrink, "--journal": None}
        for option in (name for name, given in unused.items() if self.undo and given):
            raise BadParameter(f"--undo and {option} are mutually exclusive")
        flags = {"--undo": self.undo, "--shrink": self.shrink}
        typed = (*(word for word, given in flags.items() if given), *options.typed_words(own | geometry.typed))
        return WholeDisk(Request(goal, **asdict(geometry), typed=typed), self.label or "gpt", self.undo)


def partition_change(disk: str, asked: WholeDisk, key_file: str | None, rate: int | None = None) -> DiskChange:
    """Return the operation. A LUKS key stays in memory and is not part of a saved plan."""
    change = table_change("partition", disk, asked, rate)
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
    yes: options.YesOption = False,
    rate: options.RateOption = None,
    json_: options.EventsOption = False,
    geometry: options.Geometry,
) -> None:
    """Put a whole-disk file system or LVM volume into a partition.

    The content of a disk without a partition table is moved up, and a new table with one partition is written before
    it. UUID and label stay. `--undo` removes the table of a disk with one partition.

    The plan is shown and confirmed first. The change may be interrupted at any moment, like a realign.

    Example: sudo aligntool partition /dev/sdb --shrink

    Exit code: 0 done, 3 refused and nothing written, 4 stopped before the end, with the journal kept.
    """
    refuse(options.attach_virtual(disk, writes=not dry_run))
    operation = partition_change(disk, chosen.request(geometry), chosen.key_file, rate)
    run_change(operation, yes=yes, json_=json_, dry_run=dry_run)


def plan_partition(
    disk: options.DiskArgument,
    *,
    chosen: PartitionOptions,
    kept: options.PlanFile,
    json_: options.JsonOption = False,
    geometry: options.Geometry,
) -> None:
    """Plan a partition for the content of a whole disk.

    The plan shows the disk before and after, and every byte range.

    Example: sudo aligntool plan partition /dev/sdb --shrink

    Exit code: 0 planned; 3 refused, with every reason.
    """
    refuse(options.attach_virtual(disk))
    operation = partition_change(disk, chosen.request(geometry), chosen.key_file)
    show_only(operation, json_=json_, kept=kept, inputs=(chosen.key_file,))
