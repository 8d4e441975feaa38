"""Plan a table for another sector size as requested: look at the disk, and recreate its FATs in files if
necessary.
"""

import zlib
from dataclasses import dataclass, replace

from aligntool.audit.report import Judged
from aligntool.audit.wording import hints_for_disk
from aligntool.contents.catalogue import kind_named, smallest_unit
from aligntool.contents.kind import Unit
from aligntool.convert import planning as convert_plan
from aligntool.errors import Refused, failing_as
from aligntool.formats.reader import read_or_none
from aligntool.inventory import Disk
from aligntool.linux.block import open_read_only
from aligntool.linux.fat import NewFat, new_fat
from aligntool.linux.file_reader import fresh_reader
from aligntool.mover.convert_table import BLOCK, check_sizes
from aligntool.mover.hidden_signatures import with_signatures
from aligntool.realign.disk_facts import open_claims
from aligntool.realign.found_plan import FoundPlan, with_exact_cost
from aligntool.realign.preconditions import look_before_change, naming_loops
from aligntool.realign.request import Request
from aligntool.realign.second_table import refuse_second_table
from aligntool.units import MIB


@dataclass(frozen=True, slots=True)
class Conversion:
    """The request to convert a table: the sector sizes of the new one."""

    request: Request
    sector_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        check_sizes(self.sector_sizes)

    def find_plan(self, target: str, request: Request) -> FoundPlan:
        """Return the plan, and the data from which it was made. Raises Refused with every reason."""
        judged, units, cut = judged_units(target, request)
        disk = judged.disk
        sizes = self.sector_sizes
        with naming_loops(disk.path), hints_for_disk(disk.path, disk.raw_copy):
            convert_plan.refuse_unconvertible(judged, sizes, units, cut)
            fats = recreate_fats(judged, sizes, units, convert_plan.MOST_HELD)
            fats = {number: _with_signatures(disk, number, one) for number, one in fats.items()}
            rebuilds = {
                number: describe_rebuilding(disk.path, number, disk, one) for number, one in fats.items()
            }
            with open_claims(disk, request.goal) as (claims, sentences):
                plan = convert_plan.plan_conversion(judged, request.goal, sizes, units, rebuilds, claims)
            plan = replace(plan, attention=(*sentences, *plan.attention))
            parts = {number: fat.parts for number, fat in fats.items()}
            return with_exact_cost(FoundPlan(plan, judged, {}, parts))


def judged_units(target: str, request: Request) -> tuple[Judged, dict[int, Unit], frozenset[int]]:
    """Return the disk, judged, by partition the smallest unit in which its content is read, and the numbers
    of the partitions with bytes other than zero after their last whole block. Raises Refused.
    """
    judged = look_before_change(target, request, "only the table of a whole disk can be converted")
    disk = judged.disk
    refuse_second_table(disk)
    with failing_as(Refused, f"{disk.path} cannot be read"), fresh_reader(disk.path) as reader:
        found = {part.number: part.content[0] for part in disk.partitions if len(part.content) == 1}
        units = {number: smallest_unit(reader, layer) for number, layer in found.items()}
        ends = {part.number: (convert_plan.new_extent(part).end, part.extent.end) for part in disk.partitions}
        cut = frozenset(
            number for number, (new, old) in ends.items() if any(read_or_none(reader, new, old - new) or b"")
        )
    return judged, units, cut


def recreate_fats(
    judged: Judged, sizes: tuple[int, ...], units: dict[int, Unit], most: int
) -> dict[int, NewFat]:
    """Return each FAT that must be recreated for sectors of these sizes. `most`: bytes of a FAT at most.
    Raises Refused.
    """
    disk = judged.disk
    size = max(sizes)
    found = {}
    for part in disk.partitions:
        if (
            part.content
            and kind_named(part.content[0].kind).is_recreated
            and not units[part.number].fits(size)
        ):
            length = convert_plan.new_extent(part).length
            found[part.number] = new_fat(disk.path, part.extent, part.content[0], length, size, most)
    return found


def _with_signatures(disk: Disk, number: int, made: NewFat) -> NewFat:
    """Return the FAT with all signatures of its partition, also those that stay, so that all of them are
    hidden.
    """
    part = next(part for part in disk.partitions if part.number == number)
    extent = part.extent
    length = convert_plan.new_extent(part).length
    with open_read_only(disk.path, image_sector_size=BLOCK) as device:
        runs = with_signatures(device, extent.start, length, made.runs, BLOCK)
        parts = []
        for run in runs:
            content = bytearray(device.read(extent.start + run.start, run.length))
            for own, new in zip(made.runs, made.parts, strict=True):
                if run.contains(own):
                    content[own.start - run.start : own.end - run.start] = new
            parts.append(bytes(content))
    return replace(made, runs=runs, parts=tuple(parts))


def describe_rebuilding(path: str, number: int, disk: Disk, made: NewFat) -> convert_plan.Rebuilding:
    """Return the facts about a recreated FAT for the plan, with the packed length of its old and new
    bytes.
    """
    start = next(part.extent.start for part in disk.partitions if part.number == number)
    packer = zlib.compressobj(1)
    packed = 0
    with fresh_reader(path) as reader:
        for run, part in zip(made.runs, made.parts, strict=True):
            for at in range(0, run.length, MIB):
                old = reader.read(start + run.start + at, min(MIB, run.length - at))
                packed += len(packer.compress(old)) + len(packer.compress(part[at : at + MIB]))
    packed += len(packer.flush())
    return convert_plan.Rebuilding(made.runs, packed, made.version, made.files, made.length, made.boot_code)
