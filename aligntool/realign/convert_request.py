"""Plan a table for sectors of another size as requested: look at the disk, and make what has to be made anew."""

import zlib
from dataclasses import dataclass, replace

from aligntool.audit.report import Judged
from aligntool.audit.wording import naming
from aligntool.errors import Refused
from aligntool.formats.reader import Reader
from aligntool.formats.smallest_units import Unit, smallest_unit
from aligntool.inventory import Disk
from aligntool.linux.block import look_only
from aligntool.linux.commands import asked_health
from aligntool.linux.fat import NewFat, new_fat
from aligntool.linux.users import fresh_reader
from aligntool.realign.conversion import check_sizes, convert_images, table_places
from aligntool.realign.converting import MOST_HELD, Rebuilding, judge, label_of, new_extent, plan_conversion
from aligntool.realign.request import Found, Request, look_at, refuse_in_flight, refuse_part, waited
from aligntool.units import MIB, Extent

_LONGEST_GAP = 64 * MIB  # of which it is read whether it is blank


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was asked of a plan: tables for sectors of which sizes."""

    request: Request
    sector_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        check_sizes(self.sector_sizes)

    def find_plan(self, target: str, asked: Request) -> Found:
        """Return the plan, and what it was made from. Raises Refused with every reason."""
        judged, units = judged_units(target, asked)
        disk, sizes = judged.disk, self.sector_sizes
        judge(judged, sizes, units)
        with naming(disk.path):
            made = rebuilt(judged, sizes, units, MOST_HELD)
            again = {number: rebuilding(disk.path, number, disk, one) for number, one in made.items()}
            with fresh_reader(disk.path) as reader:
                blank = _gap_is_blank(reader, disk, sizes)
            plan = plan_conversion(judged, asked.goal, sizes, units, again, gap_is_blank=blank)
            with look_only(disk.path) as device:  # what is refused of the table's own bytes is refused now
                convert_images(device, plan, journal_at=None, journal_id=bytes(16))
        return Found(plan, judged, {}, {number: one.parts for number, one in made.items()})


def judged_units(target: str, asked: Request) -> tuple[Judged, dict[int, Unit]]:
    """Return the disk, judged, and the bytes that the content of each partition counts in. Raises Refused."""
    judged, _ = look_at(target, asked)
    if waited(judged.disk.path):
        judged, _ = look_at(target, asked)
    disk = judged.disk
    refuse_part(target, disk, "what is converted is the table of a whole disk")
    refuse_in_flight(disk.path)
    try:
        with fresh_reader(disk.path) as reader:
            found = {part.number: part.content[0] for part in disk.partitions if len(part.content) == 1}
            units = {number: smallest_unit(reader, layer) for number, layer in found.items()}
    except OSError as error:
        raise Refused(f"{disk.path} cannot be read: {error.strerror}") from error
    return replace(judged, disk=replace(disk, failing=asked_health(disk).failing)), units


def rebuilt(judged: Judged, sizes: tuple[int, ...], units: dict[int, Unit], most: int) -> dict[int, NewFat]:
    """Return each FAT as it has to be for sectors of these sizes. `most`: bytes of one. Raises Refused."""
    disk, size = judged.disk, max(sizes)
    found = {}
    for part in disk.partitions:
        if part.content and part.content[0].kind == "vfat" and not units[part.number].fits(size):
            length = new_extent(part).length
            found[part.number] = new_fat(disk.path, part.extent, part.content[0], length, size, most)
    return found


def rebuilding(path: str, number: int, disk: Disk, made: NewFat) -> Rebuilding:
    """Return what the plan needs of it, with the bytes that it takes in the journal beside what is there now."""
    start = next(part.extent.start for part in disk.partitions if part.number == number)
    packer, packed = zlib.compressobj(1), 0
    with fresh_reader(path) as reader:
        for run, part in zip(made.runs, made.parts, strict=True):
            for at in range(0, run.length, MIB):
                old = reader.read(start + run.start + at, min(MIB, run.length - at))
                packed += len(packer.compress(old)) + len(packer.compress(part[at : at + MIB]))
    return Rebuilding(made.runs, packed + len(packer.flush()), made.version, made.files)


def _gap_is_blank(reader: Reader, disk: Disk, sizes: tuple[int, ...]) -> bool:
    """Return whether nothing lies between the table and the first partition: no boot program that nobody recognised."""
    start = table_places(label_of(disk), disk.size or 0, sizes)[0].end
    end = min((part.extent.start for part in disk.partitions), default=start)
    gap = Extent(start, max(min(end, start + _LONGEST_GAP) - start, 0))
    return not any(any(reader.read(at, min(MIB, gap.end - at))) for at in range(gap.start, gap.end, MIB))
