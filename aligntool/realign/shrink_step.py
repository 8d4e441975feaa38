"""Execute the steps of a plan that shrink file systems."""

from collections.abc import Generator

from aligntool import steps
from aligntool.audit.wording import command
from aligntool.change import Event, MovePlan, Said, StepBegun, StepDone
from aligntool.contents.catalogue import kind_named
from aligntool.contents.layers import read_layers
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.inventory import Layer
from aligntool.linux.content import read_used
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.lock import refuse_disturbed, written_at
from aligntool.linux.signals import defer_interrupts
from aligntool.mover.context import MoveContext
from aligntool.realign import shrink_commit
from aligntool.realign.request import Request, look_at
from aligntool.realign.shrink import mark_freed, refuse_unshrinkable, shrink_btrfs, shrunk_view
from aligntool.realign.used_maps import layer_of, read_map
from aligntool.units import Extent


def shrink_content(
    plan: MovePlan,
    index: int,
    step: steps.ShrinkContent,
    request: Request,
    context: MoveContext,
    since: int | None,
) -> Generator[Event, None, int | None]:
    """Shrink a file system, and return when an image was last written to by that."""
    path = plan.disk.path
    refuse_unshrinkable(path, step)
    yield StepBegun(index)
    if kind_named(step.kind).is_shrunk_mounted:
        with defer_interrupts():
            shrink_btrfs(path, step)
        written = _written_by_shrink(path)
    else:
        prepared = prepare_shrink(plan, step, request, context)
        with context.alone():
            refuse_disturbed(path, since)
            yield Said("the shrunk file system has no errors, and is written to the disk")
            with defer_interrupts():
                yield from shrink_commit.write(plan, context, prepared)
            written = _written_by_shrink(path)
    yield StepDone(index)
    return written


def _written_by_shrink(path: str) -> int | None:
    """Return when an image was last written to. Raises Stopped if the path does not lead to it any more."""
    try:
        return written_at(path)
    except Refused as error:
        raise Stopped(f"{error}; no partition was moved", hint=command("audit", path)) from error


def prepare_shrink(
    plan: MovePlan, step: steps.ShrinkContent, request: Request, context: MoveContext
) -> shrink_commit.Prepared:
    """Shrink a view of the file system, and return what to write to the disk. Raises Refused."""
    path = plan.disk.path
    size = plan.disk.sector_size
    disk = look_at(path, request)[0].disk
    used = read_map(disk, step.partition, step.extent, used_only=request.goal.used_only).runs
    with shrunk_view(path, step) as view, fresh_reader(view.path) as reader:
        layer = next(iter(read_layers(reader, Extent(0, step.extent.length), sector_size=size)), None)
        why = _why_too_long(step, layer)
        if why or layer is None:
            raise Refused(f"{why}; nothing was written", hint=command("audit", path))
        length = layer.claims_size or step.length
        with failing_as(Refused, f"{path}: what a shrink would free cannot be marked"):
            mark_freed(view, reader, step, length)
        shrinker = kind_named(step.kind).shrinker
        if shrinker and shrinker.uses_unwritten:
            # what follows it belongs to the old one
            used += read_used(view.path, Extent(0, length), layer, sector_size=size).runs
        return shrink_commit.prepare(plan, step, context, reader, view.changed(), used)


def runs_after_shrink(plan: MovePlan, request: Request) -> dict[int, tuple[Extent, ...]]:
    """Return the used bytes by partition, read again as a file system that was shrunk has its blocks
    elsewhere. Raises Stopped if it is longer than requested: what lies behind the new end would not be
    copied.
    """
    disk = look_at(plan.disk.path, request)[0].disk
    shrinks = {step.partition: step for step in plan.of(steps.ShrinkContent)}
    for number, step in shrinks.items():
        why = _why_too_long(step, layer_of(disk, number))
        if why:
            raise Stopped(f"{why}; no partition was moved", hint=command("audit", plan.disk.path))
    only = request.goal.used_only
    return {
        copy.partition: read_map(
            disk, copy.partition, copy.source, used_only=only, shrunk=copy.partition in shrinks
        ).runs
        for copy in plan.copies
    }


def _why_too_long(step: steps.ShrinkContent, layer: Layer | None) -> str:
    """Return a sentence if a file system is longer than it was to become; empty if not."""
    claims = layer.claims_size if layer else None
    if claims is not None and claims <= step.length:
        return ""
    found = "an unknown number" if claims is None else str(claims)
    return (
        f"partition {step.partition} was to be shrunk to {step.length} bytes, but its {step.kind} has {found}"
    )
