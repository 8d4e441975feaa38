"""Copy a disk to a new image or an empty disk, with a table for another sector size. The source is only
read.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from aligntool import steps
from aligntool.audit.wording import LOST, hints_for_disk, refuse_sparse, unread_between, unrecognised_data
from aligntool.change import Event, Plan, Progress, StepBegun, StepDone, TablePlan
from aligntool.claims import is_unwritten, outside
from aligntool.commands import Command, is_node, shell_word, typed
from aligntool.convert.operation import describe_rebuilding, judged_units, recreate_fats
from aligntool.convert.planning import label_of, new_extent, plan_copy, reformatting, refuse_unconvertible
from aligntool.device import Device
from aligntool.errors import Refusal, Refused, Stopped, failing_as, refuse, refuse_folder_name
from aligntool.formats.gpt import read_bytes
from aligntool.formats.reader import has_data
from aligntool.inventory import Disk, Partition, Role, TableLabel
from aligntool.linux.applying import ChangeInProgress
from aligntool.linux.block import DiskDevice, limited, open_read_only
from aligntool.linux.content import PLACE, UsedMap, places_for_data, sample
from aligntool.linux.fat import NewFat
from aligntool.linux.held import status_of
from aligntool.linux.in_use import locks_on, occupants
from aligntool.linux.lease import refuse_open_image
from aligntool.linux.lock import lock_against_udev, lock_disk, open_exclusively, refuse_disturbed, written_at
from aligntool.linux.outputs import open_place, remove_if_same
from aligntool.linux.targets import raw_copy
from aligntool.mover import convert_table
from aligntool.mover.hidden_signatures import write_verified
from aligntool.mover.table import sound_mbr, sound_pair
from aligntool.realign.planned_checks import checked_disk, run_checks
from aligntool.realign.preconditions import naming_loops, refuse_part
from aligntool.realign.refusals import refuse_unfit
from aligntool.realign.request import Request, look_at
from aligntool.realign.used_maps import read_map
from aligntool.units import GIB, MIB, Extent, align_up, merged

_MOST_FAT = GIB
_BATCH = 32  # pieces of 1 MiB, flushed and read back together
_CONTAINERS = (".qcow2", ".vmdk", ".vdi", ".vhdx", ".vhd")
_DRIVERS = {"vhd": "vpc"}


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A requested copy of `source` to `output`, with a table for each of `sector_sizes`."""

    request: Request
    source: str
    sector_sizes: tuple[int, ...]
    output: str
    wipe: bool = False  # unrecognised data on the disk `output` may be lost

    def __post_init__(self) -> None:
        convert_table.check_sizes(self.sector_sizes)

    @property
    def command(self) -> str:
        """Return the command that makes this request, with sudo if either of the two is a device."""
        sudo = is_node(self.source) or is_node(self.output)
        return str(Command("aligntool", ("convert", self.source), sudo, self.request.typed))

    def find_plan(self) -> "FoundCopy":
        """Look at both and plan. Raises Refused with every reason."""
        judged, units, cut = judged_units(self.source, self.request)
        disk = judged.disk
        sizes = self.sector_sizes
        target, empty = _target(self.output, disk, sizes)
        refuse_unconvertible(judged, sizes, units, cut, copied_to=target.size)
        with naming_loops(disk.path), hints_for_disk(disk.path, disk.raw_copy):
            _refuse_uncopied(disk, target.size, sizes)
            rebuilds = recreate_fats(judged, sizes, units, _MOST_FAT)
        again = {
            number: describe_rebuilding(disk.path, number, disk, rebuild)
            for number, rebuild in rebuilds.items()
        }
        copied = [part for part in disk.partitions if part.number not in rebuilds]
        only = self.request.goal.used_only
        maps = {part.number: read_map(disk, part.number, part.extent, used_only=only) for part in copied}
        mapped = {part.number for part in copied if maps[part.number].bytes < part.extent.length}
        used = (run for part in copied for run in _used_extents(part, maps[part.number]))
        runs = merged(
            (*used, *_behind_fats(disk, rebuilds), *_gaps(disk)),
            _between_head_and_tail(target.size, sizes, disk),
            convert_table.BLOCK,
        )
        plan = plan_copy(disk, target, sizes, units, again, mapped, sum(run.length for run in runs))
        whole = tuple(_whole_copies(maps, mapped))
        lost, unread = (
            _refuse_data(empty, (*runs, *_written_besides(plan)), wipe=self.wipe) if empty else ((), ())
        )
        plan = replace(plan, attention=(*lost, *plan.attention), notes=(*plan.notes, *whole, *unread))
        return FoundCopy(plan, runs, {number: rebuild.parts for number, rebuild in rebuilds.items()})


@dataclass(frozen=True, slots=True)
class FoundCopy:
    """A plan, the extents that it copies, and the new bytes of each recreated file system."""

    plan: TablePlan
    runs: tuple[Extent, ...]
    rebuilt: Mapping[int, tuple[bytes, ...]]


def _whole_copies(maps: Mapping[int, UsedMap], mapped: Collection[int]) -> Iterator[str]:
    """Yield why each partition that is not copied according to a map is copied whole."""
    for number in maps:
        if number not in mapped:
            yield f"partition {number} is copied whole: {maps[number].by.removeprefix('everything: ')}"


def _refuse_uncopied(disk: Disk, size: int, sizes: tuple[int, ...]) -> None:
    """Raise Refused if bytes of anything but the table would be left out where the copy has its GPT."""
    if label_of(disk) != TableLabel.GPT:
        return  # what follows an MBR in its sector is copied with it
    with open_read_only(disk.path) as device:
        head, tail = convert_table.table_places(label_of(disk), size, sizes)
        kept = [each.clipped(Extent(0, device.size)) for each in (head, tail)]
        found = [bytes(device.read(each.start, each.length)) if each.length else b"" for each in kept]
        convert_table.refuse_other_content(sound_pair(device, disk.sector_size), kept, found)


def _used_extents(part: Partition, used: UsedMap) -> Iterator[Extent]:
    """Yield the used extents of a partition, counted from the start of the disk, and always its first MiB."""
    place = new_extent(part)
    yield Extent(place.start, min(MIB, place.length))
    for run in used.runs:
        end = min(place.start + run.end, place.end)
        if place.start + run.start < end:
            yield Extent(place.start + run.start, end - place.start - run.start)


def _behind_fats(disk: Disk, rebuilds: Mapping[int, NewFat]) -> Iterator[Extent]:
    """Yield what follows each recreated FAT in its partition, if that is not blank."""
    for part in disk.partitions:
        place = new_extent(part)
        if part.number in rebuilds and rebuilds[part.number].length < place.length:
            start = place.start + rebuilds[part.number].length
            yield Extent(start, place.end - start)


def _gaps(disk: Disk) -> Iterator[Extent]:
    """Yield what is in no partition: boot programs, and what else no table lists. Zeros are skipped when
    copying.
    """
    yield from outside((Extent(0, disk.size or 0),), tuple(part.extent for part in _listed(disk)))


def _listed(disk: Disk) -> Iterator[Partition]:
    return (part for part in disk.partitions if part.role in (Role.PRIMARY, Role.LOGICAL))


def _between_head_and_tail(size: int, sizes: tuple[int, ...], disk: Disk) -> Extent:
    """Return the extent between the head and the tail of the table."""
    head, tail = convert_table.table_places(label_of(disk), size, sizes)
    return Extent(head.end, min(tail.start, align_up(disk.size or 0, convert_table.BLOCK)) - head.end)


def _new_image(output: str, disk: Disk, sizes: tuple[int, ...]) -> steps.Subject | None:
    """Return the image to create, as long as the source, or longer if the table needs it; None if `output`
    exists.
    """
    try:
        os.lstat(output)
        return None
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Refused(f"{output}: {error.strerror}", hint="use another name for -o") from error
    refuse_folder_name(output)
    if output.lower().endswith(_CONTAINERS):
        kind = output.rpartition(".")[2].lower()
        text = f"{output} would be a raw image, not a {kind} as its name promises"
        to_kind = typed(f"qemu-img convert -f raw -O {_DRIVERS.get(kind, kind)}", "NEW.img", output)
        hint = f"-o NEW.img, then: {to_kind}"
        raise Refused(text, hint=hint, code="invalid-option", subject="-o")
    if "/" not in output and Path("/dev", output).exists():
        raise Refused(
            f"{output} is a device of this machine", hint=f"-o /dev/{output}, or -o ./{output} for a file"
        )
    folder = Path(output).parent
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir fails without permission
        raise Refused(f"{output}: {folder} is not a folder", hint="use another name for -o")
    size = align_up(disk.size or 0, convert_table.BLOCK)
    end = max((new_extent(part).end for part in disk.partitions), default=0)
    tail = convert_table.table_places(label_of(disk), size, sizes)[1]
    if end > tail.start:
        size = align_up(end + tail.length, MIB)
    return steps.Subject(output, size, max(sizes), None, None, None, None, None, "")


def _target(output: str, disk: Disk, sizes: tuple[int, ...]) -> tuple[steps.Subject, Disk | None]:
    """Return the image to create, or the disk to be written to, also with all that was read of it. Raises
    Refused.
    """
    image = _new_image(output, disk, sizes)
    if image:
        return image, None
    empty = _empty_disk(output, sizes)
    return steps.subject(empty), empty


def _empty_disk(output: str, sizes: tuple[int, ...]) -> Disk:
    """Return the disk to be written to. Raises Refused if anything is recognised on it, or it has other
    sectors.
    """
    if not Path(output).is_block_device():
        raise Refused(
            f"{output} already exists", hint="use another name for -o", code="not-empty", subject=output
        )
    judged, _ = look_at(output, Request())
    disk = judged.disk
    refuse_part(output, disk, "a copy can only be written to a whole disk")
    refuse_unfit(disk, wipe=None)
    if disk.limits.logical_block_size not in sizes:
        text = f"{disk.name} has sectors of {disk.limits.logical_block_size} bytes"
        raise Refused(
            text, hint="\n".join(reformatting(disk, max(sizes))), code="sector-size", subject=disk.name
        )
    return disk


def _refuse_data(
    disk: Disk, written: Iterable[Extent], *, wipe: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is lost of the disk to be written to, and what was not read. Raises Refused if data would
    be overwritten that nothing recognises, unless `wipe` allows it. `written`: all that the plan writes.
    """
    sampled = sample(disk.path, places_for_data(disk), overwritten=written)
    disk = replace(disk, sampled=sampled)
    if not wipe:
        refuse_unfit(disk, wipe=None)
        refuse(refuse_sparse((disk, disk.name, disk.path)))
    if sampled.unreadable:
        text = f"{disk.name} cannot be read at {sampled.unreadable} of {sampled.places} places"
        raise Refused(text, hint="use another disk", code="failing", subject=disk.name)
    lost = tuple(f"{LOST}{data}, on {disk.name}" for data in unrecognised_data(disk))
    unread = unread_between(disk)
    return lost, (f"{disk.name}: {unread}",) if unread else ()


def _written_besides(plan: Plan) -> Iterator[Extent]:
    """Yield what a plan writes besides the extents that it copies."""
    for step in plan.steps:
        match step:
            case steps.RebuildContent():
                yield from (Extent(step.extent.start + run.start, run.length) for run in step.held.ranges)
            case steps.ConvertTable():
                yield from convert_table.table_places(step.label, plan.disk.size, step.sector_sizes)


# Applying the plan. No program recognises the copy before its sector 0 is written, which is the last write.
# Nothing but zeros, or the ones of discarded blocks, is overwritten without --wipe: what samples do not show
# is read here.


@contextmanager
def lock_copy(
    plan: Plan, asked: CopyRequest, rate: int | None = None, *, no_lease: bool = False
) -> Iterator[ChangeInProgress]:
    """Lock the source, check that the plan is still valid, open the target, and yield the change. A new image
    that is not complete is removed. `rate`: bytes per second at most. `no_lease`: see `Lease`. Raises
    Refused.
    """
    locking = _locked_source(asked.source, no_lease=no_lease)
    with hints_for_disk(asked.source, raw_copy(asked.source)), locking as source:
        since = written_at(asked.source)
        if not os.path.lexists(asked.output):
            found = check_same_copy(plan, asked)
            with _created_image(asked.output, plan.disk) as target:
                yield _applying(found, source, limited(target, rate), asked, since)
            return
        with lock_disk(asked.output, keep_posix=True) as target_disk:
            found = check_same_copy(plan, asked)
            yield _applying(found, source, limited(target_disk.device, rate), asked, since)
            with suppress(OSError):  # the copy is complete anyway; partprobe makes the kernel read its table
                target_disk.kernel.show(tuple((place.number, place.after) for place in plan.places))


@contextmanager
def _locked_source(path: str, *, no_lease: bool = False) -> Iterator[Device]:
    """Open the source for reading, locked so that no program writes to it meanwhile. `no_lease`: see `Lease`.
    Raises Refused. A writer that comes later is detected by what it writes: `refuse_disturbed`.
    """
    found = (*occupants(status_of(path)), *locks_on(path))
    refuse(Refusal("in-use", path, f"{path} is in use: {user.what}", user.end) for user in found)
    disks = [path] if Path(path).is_block_device() else []
    with (
        open_exclusively(disks),
        lock_against_udev([path], shared=True, keep_posix=True),
        open_read_only(path) as device,
    ):
        refuse_open_image(path, no_lease=no_lease, readers=True)
        yield device


def check_same_copy(plan: Plan, asked: CopyRequest) -> FoundCopy:
    """Plan again and return the result. Raises Refused unless the disks and steps are the same."""
    found = asked.find_plan()
    shown = plan.disk
    now = found.plan.disk
    if shown.path == now.path and steps.is_same_disk(shown, now) and plan.steps == found.plan.steps:
        return found
    text = f"{asked.source} or {asked.output} has changed since the plan was made"
    raise Refused(text, hint="run the same command again", code="plan-stale", subject=asked.source)


def _applying(
    found: FoundCopy, source: Device, target: Device, asked: CopyRequest, since: int | None
) -> ChangeInProgress:
    return ChangeInProgress(_events(found, source, target, asked, since), asked.command)


@contextmanager
def _created_image(output: str, target: steps.Subject) -> Iterator[Device]:
    with failing_as(Refused, output, hint="use another name for -o"), open_place(output) as place:
        descriptor = place.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.truncate(descriptor, target.size)
        with DiskDevice(descriptor, image_sector_size=target.sector_size) as device:
            yield device
    except BaseException:
        with suppress(FileNotFoundError):
            remove_if_same(output, descriptor)
        raise
    finally:
        os.close(descriptor)


def _events(
    found: FoundCopy, source: Device, target: Device, asked: CopyRequest, since: int | None
) -> Iterator[Event]:
    plan = found.plan
    made = found.rebuilt
    whole = yield from run_checks(plan)
    places = (place.after for place in plan.places if place.number in whole)
    runs = merged((*found.runs, *places), Extent(0, target.size), convert_table.BLOCK)
    for index, step in enumerate(plan.steps):
        if isinstance(step, steps.CheckContent):
            continue
        yield StepBegun(index)
        match step:
            case steps.CopyDisk():
                for piece in _pieces(_written_besides(plan)):
                    _keep_data(target, piece, asked)
                yield from _copy_runs(index, runs, source, target, asked)
            case steps.RebuildContent():
                write_verified(target, step.extent.start, step.held, made[step.partition])
            case steps.ConvertTable():
                refuse_disturbed(checked_disk(plan), since)
                _write_table(plan, step, source, target)
        yield StepDone(index)


def _pieces(extents: Iterable[Extent]) -> Iterator[Extent]:
    return (
        Extent(at, min(MIB, each.end - at)) for each in extents for at in range(each.start, each.end, MIB)
    )


def _keep_data(target: Device, piece: Extent, asked: CopyRequest) -> None:
    """Raise Stopped if there is data that may not be lost: no sample showed it, or it is younger than the
    samples.
    """
    if asked.wipe or target.is_hole(piece.start, piece.length):
        return
    old = bytes(target.read(piece.start, piece.length))
    for at in range(0, len(old), PLACE):
        if not is_unwritten(old[at : at + PLACE]):
            text = f"{asked.output} holds data at byte {piece.start + at}, between the places that were read"
            raise Stopped(f"{text}; if it is not needed, add: --wipe {shell_word(asked.output)}")


def _copy_runs(
    index: int, runs: tuple[Extent, ...], source: Device, target: Device, asked: CopyRequest
) -> Iterator[Event]:
    total = sum(run.length for run in runs)
    done = 0
    batch: list[Extent] = []
    for piece in _pieces(runs):
        batch.append(piece)
        done += piece.length
        if len(batch) == _BATCH:
            _copy_batch(batch, source, target, asked)
            batch = []
            yield Progress(index, done, total)
    _copy_batch(batch, source, target, asked)


def _copy_batch(batch: list[Extent], source: Device, target: Device, asked: CopyRequest) -> None:
    """Copy pieces and read them back. Zeros are not written where the target has zeros."""
    written: list[tuple[Extent, bytes]] = []
    for piece in batch:
        if target.is_hole(piece.start, piece.length) and source.is_hole(piece.start, piece.length):
            continue
        _keep_data(target, piece, asked)
        length = min(piece.length, source.size - piece.start)
        with failing_as(Stopped, f"the source cannot be read at byte {piece.start}"):
            content = bytes(source.read(piece.start, length)).ljust(piece.length, b"\0")
        if has_data(content) or not _is_zero(target, piece):
            target.write(piece.start, content)
            written.append((piece, content))
    target.flush()
    for piece, content in written:
        if bytes(target.read(piece.start, piece.length)) != content:
            raise Stopped(f"data written at byte {piece.start} reads back differently: the disk is failing")


def _is_zero(target: Device, piece: Extent) -> bool:
    return target.is_hole(piece.start, piece.length) or not has_data(
        bytes(target.read(piece.start, piece.length))
    )


def _write_table(plan: Plan, step: steps.ConvertTable, source: Device, target: Device) -> None:
    old = plan.of(steps.CopyDisk)[0].source.sector_size
    if step.label == TableLabel.DOS:
        mbr = sound_mbr(source, with_chains=True, sector_size=old)
        # Whole blocks: GRUB's program begins behind the MBR.
        writing = convert_table.converted_mbr(source, mbr, step, convert_table.BLOCK)
    else:
        head, tail = convert_table.table_places(step.label, plan.disk.size, step.sector_sizes)
        sector_0 = read_bytes(source, 0, 512) or b""
        content = convert_table.new_table(
            sound_pair(source, old)[0], sector_0, plan.disk.size, step, (head, tail)
        )
        writing = convert_table.table_groups(head, tail, content, target.sector_size)
    for group in writing:
        for sectors in group:
            write_verified(
                target, sectors.at, steps.SavedRanges((Extent(0, len(sectors.data)),)), (sectors.data,)
            )
