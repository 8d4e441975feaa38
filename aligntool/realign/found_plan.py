"""Plan the realign of one disk, with what is read from it for that.

`plan`, `realign` and `apply` must make the same plan for the same disk.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from aligntool.audit.report import Judged
from aligntool.audit.wording import hints_for_disk
from aligntool.change import MovePlan
from aligntool.claims import Claims
from aligntool.errors import Refused, failing_as
from aligntool.formats.reader import is_blank
from aligntool.inventory import Disk
from aligntool.linux.block import open_read_only
from aligntool.linux.content import UsedMap, is_free_behind
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.held import held
from aligntool.mover.journal_contents import journal_contents, planned_images
from aligntool.realign.disk_facts import least_lengths, names_on, open_claims, refuse_bad_blocks, uses_of
from aligntool.realign.partition_selection import overwriting_text, shrinkable
from aligntool.realign.planning import plan_realign
from aligntool.realign.preconditions import look_before_change, naming_loops
from aligntool.realign.request import Request
from aligntool.realign.second_table import refuse_second_table
from aligntool.realign.used_maps import read_map
from aligntool.steps import ShrinkContent, WriteJournal
from aligntool.units import Extent


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, and the data from which it was made."""

    plan: MovePlan
    judged: Judged
    maps: Mapping[int, UsedMap]  # of the partitions that move
    # new bytes of each recreated file system
    rebuilt: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)

    @property
    def runs(self) -> dict[int, tuple[Extent, ...]]:
        """The used bytes of each partition that moves, counted from its start."""
        return {number: used.runs for number, used in self.maps.items()}


def find_plan(target: str, request: Request) -> FoundPlan:
    """Return the plan that aligns the partitions of the disk. Raises Refused with every reason."""
    rule = "a realign takes a whole disk, or some of its partitions by number"
    with held(target):
        return _find_plan(target, request, rule)


def _find_plan(target: str, request: Request, rule: str) -> FoundPlan:
    judged = look_before_change(target, request, rule, "--partition")
    path = judged.disk.path
    with naming_loops(path), hints_for_disk(path, judged.disk.raw_copy, request.typed):
        found = plan_for(judged, request)
        refuse_second_table(judged.disk)
        return with_exact_cost(found)


def with_exact_cost(found: FoundPlan) -> FoundPlan:
    """Return the plan with the bytes that its progress will count, unless a shrink changes them: without the
    signatures, which the journal saves.

    Raises Refused if the move could not begin: its tables or its journal cannot be made, such as for an EBR
    with its entries in another order.
    """
    plan = found.plan
    if not plan.of(WriteJournal):
        return found
    place = plan.journal
    at = None if place.file else place.extent.start
    path = plan.disk.path
    with (
        failing_as(Refused, f"{path} cannot be read"),
        open_read_only(path, image_sector_size=plan.disk.sector_size) as device,
    ):
        if plan.of(ShrinkContent):
            planned_images(plan, device, at, bytes(16))  # the content is not yet the one that moves
            return found
        runs = journal_contents(plan, device, found.runs, found.rebuilt, at, bytes(16)).runs
    cost = plan.estimate
    if cost is None:
        return found
    used = tuple(replace(use, bytes=sum(run.length for run in runs[use.partition])) for use in cost.used)
    cost = replace(cost, bytes_to_copy=sum(use.bytes for use in used), used=used)
    return replace(found, plan=replace(plan, estimate=cost))


def plan_for(judged: Judged, request: Request) -> FoundPlan:
    """Return the plan for a judged disk. Raises Refused with every reason.

    Maps of used blocks are read only for partitions that move, as reading the map of a large file system
    takes long. A map may show that another plan is cheaper, so this repeats until every partition that moves
    has a map.
    """
    disk = judged.disk
    with open_claims(disk, request.goal) as (claims, sentences):
        return _plan_with_maps(judged, request, claims, sentences)


def _plan_with_maps(
    judged: Judged, request: Request, claims: Claims, sentences: tuple[str, ...]
) -> FoundPlan:
    disk = judged.disk
    names = names_on(disk)
    # How far a file system can be shrunk depends on its used blocks.
    only = request.goal.used_only
    shorter = shrinkable(disk) if request.goal.shrink else ()
    maps = {part.number: read_map(disk, part.number, part.extent, used_only=only) for part in shorter}
    least = least_lengths(disk, shorter)
    while True:
        used = uses_of(maps, least)
        plan = plan_realign(judged, request.goal, used, claims, names=names)
        moves = {step.partition: step for step in plan.copies}
        unread = [step for number, step in moves.items() if number not in maps]
        if not unread:
            refuse_bad_blocks(disk, disk.partitions, moves)
            _refuse_data_behind(disk, plan)
            plan = replace(plan, attention=(*sentences, *plan.attention)) if plan.steps else plan
            return FoundPlan(plan, judged, {number: maps[number] for number in moves})
        for step in unread:
            maps[step.partition] = read_map(disk, step.partition, step.source, used_only=only)


def _refuse_data_behind(disk: Disk, plan: MovePlan) -> None:
    """Raise Refused if what follows a file system that is to be shrunk is, up to the end of its partition,
    neither blank nor left by a shrink that was interrupted.
    """
    shrunk = {step.partition for step in plan.of(ShrinkContent)}
    for part in (part for part in disk.partitions if part.number in shrunk):
        layer = part.content[0]
        start = part.extent.start + (layer.claims_size or 0)
        with failing_as(Refused, f"{disk.path} cannot be read"), fresh_reader(disk.path) as reader:
            free = is_free_behind(reader, part.extent, layer)
            if not free and not is_blank(reader, Extent(start, part.extent.end - start)):
                raise Refused(overwriting_text(part), code="no-room", subject=f"partition {part.number}")


Finder = Callable[[str, Request], FoundPlan]
"""Function that plans again: `find_plan`, or its counterpart for another operation."""
