"""Apply and undo the steps of a move: patch boot fields, copy batches, walk along the plan in both
directions.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, starmap
from typing import Protocol, assert_never

from aligntool import steps
from aligntool.change import Event, KernelBehind, MovePlan, Progress, Said, StepBegun, StepDone
from aligntool.claims import outside
from aligntool.contents.exfat import CHANGING, CHECKED_SECTORS
from aligntool.device import Device, Jobs, zero
from aligntool.errors import Refused, Stopped
from aligntool.formats.reader import rotating_sum
from aligntool.linux.block import equal_memory
from aligntool.mover import hidden_signatures, in_flight, numbered_marker
from aligntool.mover.disk_state import is_owned
from aligntool.mover.hidden_signatures import View, is_visible
from aligntool.mover.journal import Contents, Journal
from aligntool.mover.journal_format import Position
from aligntool.mover.old_keys import keys_at_old_places
from aligntool.mover.schedule import Batch, Schedule
from aligntool.mover.table import TableImages, TableState, claiming_numbers, table_state, write_table
from aligntool.units import GIB, MIB, Extent

# Fields of boot sectors that hold the start of the partition, patched in memory.
#
# Pure arithmetic on bytes; with a wrong field the system does not boot.

# exFAT specification, 3.1 and 3.4: the checksum covers the boot sectors except VolumeFlags and PercentInUse,
# which change in use; the sector after them holds only the checksum, repeated.


def patched(
    held: steps.SavedRanges, found: Sequence[bytes], patches: Sequence[steps.Patch]
) -> tuple[bytes, ...]:
    """Return the saved bytes with the patches applied in their order, so checksums come last. `found`: the
    bytes of each of `held.ranges`.

    Raises Refused if a field has neither its old nor its new value, or lies outside the saved bytes.
    """
    parts = [bytearray(part) for part in found]
    for patch in patches:
        part, at = _find_extent(held, parts, Extent(patch.at, patch.length), patch.what)
        if patch.before is None or patch.after is None:
            _write_checksum(held, parts, patch)
            continue
        value = int.from_bytes(part[at : at + patch.length], "little")
        if value not in (patch.before, patch.after):
            raise Refused(
                f"{patch.what} at byte {patch.at} of the partition is {value}, not {patch.before}:"
                " it has changed since the plan was made",
                hint="make a new plan",
            )
        part[at : at + patch.length] = patch.after.to_bytes(patch.length, "little")
    return tuple(bytes(part) for part in parts)


def _write_checksum(held: steps.SavedRanges, parts: Sequence[bytearray], patch: steps.Patch) -> None:
    """Write a checksum. `patch.at`: the offset of its sector; `patch.length`: bytes of a sector of the
    volume.
    """
    sector = patch.length
    region = Extent(patch.at - CHECKED_SECTORS * sector, (CHECKED_SECTORS + 1) * sector)
    part, at = _find_extent(held, parts, region, patch.what)
    total = rotating_sum(bytes(part[at : at + CHECKED_SECTORS * sector]), CHANGING)
    end = at + region.length
    part[end - sector : end] = total.to_bytes(4, "little") * (sector // 4)


def _find_extent(
    held: steps.SavedRanges, parts: Sequence[bytearray], wanted: Extent, what: str
) -> tuple[bytearray, int]:
    for extent, part in zip(held.ranges, parts, strict=True):
        if extent.contains(wanted):
            return part, wanted.start - extent.start
    raise Refused(f"{what} at byte {wanted.start} of the partition is outside the bytes saved in the journal")


# Batches: copied, flushed, read back, recorded. Nearly all the time of a move is spent here.

# bytes of one request: long enough for any disk, short enough to have several in progress
REQUEST_LENGTH = MIB


Work = tuple[Position, Batch]
"""A batch, and the position to record once it is at its new place."""


@dataclass(frozen=True, slots=True)
class Transfer:
    length: int
    from_: Device
    source: int  # absolute, on its device
    to: Device
    target: int


@dataclass(frozen=True, slots=True)
class Places:
    """The devices and bytes from which the offsets in a batch are counted."""

    disk: Device
    old: int  # byte of the partition's old start
    new: int
    stash_on: Device
    stash: int

    def transfers(self, batch: Batch, *, back: bool) -> Iterator[Transfer]:
        for copy in batch:
            from_, source = self._device_and_byte(copy.source, self.old, stash=copy.from_stash)
            to, target = self._device_and_byte(copy.target, self.new, stash=copy.to_stash)
            if back:
                from_, source, to, target = to, target, from_, source
            for at in range(0, copy.length, REQUEST_LENGTH):
                yield Transfer(min(REQUEST_LENGTH, copy.length - at), from_, source + at, to, target + at)

    def _device_and_byte(self, offset: int, start: int, *, stash: bool) -> tuple[Device, int]:
        return (self.stash_on, self.stash + offset) if stash else (self.disk, start + offset)


@dataclass(frozen=True, slots=True)
class _Load:
    """A batch in progress. `after`: the position to record; `read`: the bytes of each transfer until it is
    verified.
    """

    after: Position
    batch: Batch
    transfers: tuple[Transfer, ...]
    read: list[bytes | memoryview]

    def reading(self) -> Jobs:
        return (partial(self._read, index) for index in range(len(self.transfers)))

    def writing(self) -> Jobs:
        return (partial(self._write, index) for index in range(len(self.transfers)))

    def comparing(self) -> Jobs:
        return (partial(self._compare, index) for index in range(len(self.transfers)))

    def flush(self) -> None:
        for device in {id(transfer.to): transfer.to for transfer in self.transfers}.values():
            device.flush()

    def _read(self, index: int) -> None:
        transfer = self.transfers[index]
        self.read[index] = transfer.from_.read(transfer.source, transfer.length)

    def _write(self, index: int) -> None:
        transfer = self.transfers[index]
        transfer.to.write(transfer.target, self.read[index])

    def _compare(self, index: int) -> None:
        transfer = self.transfers[index]
        if not equal_memory(transfer.to.read(transfer.target, transfer.length), self.read[index]):
            text = f"{transfer.length} bytes written at byte {transfer.target} read back differently"
            raise Stopped(text)
        self.read[index] = b""  # free the memory for the next batch


def copy_batches(
    places: Places, work: Iterable[Work], record: Callable[[Position], None], *, back: bool = False
) -> Iterator[Batch]:
    """Yield each batch once it is at the other place: durable, verified and recorded.

    While one batch is flushed, read back and recorded, the next batch is already being read, so the disk is
    not idle: without this it was idle for a fifth of the time. This is safe. No batch writes what a later one
    reads, except into the stash (mover/schedule.py), and the writes to the stash are complete when the next
    read begins. No byte of a batch is written before the record of the previous batch is durable.

    A batch whose source and target are both holes of a sparse image needs no copy. It is recorded together
    with the batch before it, because it must be recorded before its source is overwritten.

    Memory: two batches. Raises OSError if a request fails, Stopped if a target reads back differently.
    """
    disk = places.disk
    loads = (_prepare_load(places, after, batch, back=back) for after, batch in work)
    load, empty = _next_load(loads)
    if empty:
        record(empty[-1].after)
        yield from (skipped.batch for skipped in empty)
    if load:
        disk.run_parallel(load.reading())
    while load:
        disk.run_parallel(load.writing())
        following, empty = _next_load(loads)
        after = empty[-1].after if empty else load.after
        disk.run_parallel(
            following.reading() if following else (), partial(_finish, disk, load, record, after)
        )
        yield load.batch
        yield from (skipped.batch for skipped in empty)
        load = following


def _prepare_load(places: Places, after: Position, batch: Batch, *, back: bool) -> _Load:
    transfers = tuple(
        transfer for transfer in places.transfers(batch, back=back) if not _needs_no_copy(transfer)
    )
    return _Load(after, batch, transfers, [b""] * len(transfers))


def _needs_no_copy(copy: Transfer) -> bool:
    return copy.from_.is_hole(copy.source, copy.length) and copy.to.is_hole(copy.target, copy.length)


def _next_load(loads: Iterator[_Load]) -> tuple[_Load | None, list[_Load]]:
    """Return the next batch that has bytes to write, and the batches before it that have none."""
    empty: list[_Load] = []
    for load in loads:
        if load.transfers:
            return load, empty
        empty.append(load)
    return None, empty


def _finish(disk: Device, load: _Load, record: Callable[[Position], None], after: Position) -> None:
    load.flush()
    disk.run_parallel(load.comparing())
    record(after)


def bytes_arriving(batch: Batch) -> int:
    """Return the number of bytes that reach their new place; bytes copied to the stash do not count."""
    return sum(copy.length for copy in batch if not copy.to_stash)


# The walk along a plan's steps, forwards and backwards, each step recorded in the journal.
#
# The rules for records:
#
# - forwards, a step begins at the position that names it, and the next position is recorded once the step is
#   durable;
# - backwards, the position that names a step is recorded before the step is undone, so a change of direction
#   repeats the step from its beginning. Only copies are recorded by the batch: one that is half undone is
#   still at its new place.


class Kernel(Protocol):
    """The running kernel's list of partitions; for an image file the methods do nothing."""

    def forget(self, numbers: tuple[int, ...]) -> None: ...

    def add_absent(self, partitions: tuple[tuple[int, Extent], ...]) -> None: ...

    def show(self, partitions: tuple[tuple[int, Extent], ...]) -> None: ...


@contextmanager
def hidden_from(kernel: Kernel, plan: MovePlan) -> Iterator[None]:
    """Remove the partitions that the plan moves from the kernel, before anything is written; add them again
    if the block fails. Raises Refused if one is in use.
    """
    moving = plan.park.partitions
    kernel.forget(moving)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            kernel.add_absent(
                tuple((it.number, it.before) for it in plan.places if it.number in moving and it.before)
            )
        raise


def views_at_target(journal: Journal, step: steps.ReleaseContent, sign: bytes) -> tuple[View, View]:
    """Return the patched bytes of a partition as views from the new place and from the old one."""
    content = patched(step.held, journal.contents.held[step.partition], step.patches)
    view = View(step.held, content, step.target.length, sign)
    sources = (hold.source for hold in journal.contents.plan.holds if hold.partition == step.partition)
    return view, replace(view, base=next(sources, step.target).start - step.target.start)


PLACE_STAYS = (
    "the content may use all of the disk by now: of the journal only what has a checksum was overwritten"
)


@dataclass(frozen=True, slots=True)
class Walk:
    device: Device
    kernel: Kernel
    journal: Journal
    place: steps.JournalPlace
    sign: bytes  # the marker

    @property
    def plan(self) -> MovePlan:
        return self.journal.contents.plan

    def forward(self, *, was_shown: bool = False) -> Iterator[Event]:
        """Walk from the journal's position to the end. `was_shown`: the content, without a table, so that it
        may have the place of the journal by now.
        """
        position = self.journal.position
        was_written = self._has_new_table() or self._may_have_lost_table(position)
        self.forget()
        for index in range(position.step, len(self.plan.steps)):
            yield StepBegun(index)
            first = position.batch if index == position.step else 0
            ends = isinstance(self.plan.steps[index], steps.CloseJournal)
            if ends and index > position.step and not was_written:
                self._clear_old_places()  # not after a cut: the free space may have been used since
            if ends:
                yield from self.close_journal(was_shown=was_shown)
                yield from self._update_kernel(before=False)
            else:
                yield from self._apply_step(index, steps.journaled_step(self.plan.steps[index]), first)
            yield StepDone(index)

    def back(self) -> Iterator[Event]:
        """Walk from the journal's position to the beginning."""
        position = self.journal.position
        self.forget()
        is_cleared = False
        for index in range(position.step, self.plan.park_at - 1, -1):
            yield StepBegun(index)
            step = self.plan.steps[index]
            if isinstance(step, steps.HoldContent | steps.ParkEntries) and not is_cleared:
                self.clear_new_places()  # before anything is shown: who uses it may remove a key
                is_cleared = True
            if isinstance(step, steps.CopyContent):
                done = position.batch if index == position.step else None
                yield from self._undo_copy(index, step, done)
            elif isinstance(step, steps.RebuildContent):
                self._undo_rebuild(index, step)
            elif isinstance(step, steps.HoldContent):
                self._show(index, step.source.start, self._views_at_source(step), back=True)
            else:
                self._record(Position(index, 0, forward=False))
                self._undo_step(steps.journaled_step(step))
            yield StepDone(index)
        yield from self.close_journal()
        yield from self._update_kernel(before=True)

    def close_journal(self, *, was_shown: bool = False) -> Iterator[Event]:
        """Close the journal. Yields what could not be zeroed. `was_shown`: see `forward`."""
        if was_shown and not self.place.file and is_owned(self.device, self.place.extent):
            self.journal.close_in_use()
            yield Said(PLACE_STAYS)
        elif left := self.journal.close():
            yield Said(left)

    def _record(self, position: Position) -> None:
        numbered_marker.record(self.device, self.journal, self.sign, position)

    def forget(self) -> None:
        """Remove from the kernel the partitions that move, and those of a table in flight that claim free
        space.
        """
        claiming = claiming_numbers(self.journal.contents.images)
        self.kernel.forget((*self.plan.park.partitions, *sorted(claiming)))

    def _apply_step(self, index: int, step: steps.JournaledStep, first_batch: int) -> Iterator[Event]:
        match step:
            case steps.ParkEntries():
                write_table(self.device, self._images(TableState.BEFORE), TableState.PARKED)
            case steps.HoldContent():
                self._check_source(step)
                if self.journal.position.batch:  # it was about to be shown
                    self._record(Position(index))
                self._hide_at_target(step)
                hidden_signatures.write_markers(self.device, step.source.start, *self._views_at_source(step))
            case steps.CopyContent():
                yield from self._copy(index, step, first_batch)
                if (
                    self.journal.contents.images.of_whole_disk
                ):  # no table hides what is shown: it may be in use
                    self._erase_keys()
                    self._erase_stash()
            case steps.ReleaseContent():
                self._show(index, step.target.start, self._views_at_target(step))
            case steps.RebuildContent():
                self._rebuild(index, step)
            case steps.RewriteTable() | steps.ConvertTable():
                in_flight.check_rebuilt(self.device, self.journal, self.sign, after=True)
                if not self.journal.contents.images.of_whole_disk:  # erased once everything was copied
                    self._erase_keys()
                write_table(self.device, self._images(TableState.AFTER), TableState.AFTER)
            case steps.CloseJournal():
                raise ValueError("the journal is closed by `forward`")
            case _:
                assert_never(step)
        self._record(Position(index + 1))

    def _undo_step(self, step: steps.JournaledStep) -> None:
        match step:
            case steps.ParkEntries():
                self._complete_sources()
                in_flight.check_rebuilt(self.device, self.journal, self.sign, after=False)
                write_table(self.device, self._images(TableState.BEFORE), TableState.BEFORE)
            case steps.ReleaseContent():
                hidden_signatures.write_markers_despite_errors(
                    self.device, step.target.start, *self._views_at_target(step)
                )
            case steps.RewriteTable() | steps.ConvertTable():
                write_table(self.device, self._images(TableState.AFTER), TableState.PARKED)
            case steps.CloseJournal():
                pass
            case steps.CopyContent() | steps.HoldContent() | steps.RebuildContent():
                raise ValueError(f"{type(step).__name__} is not undone here")
            case _:
                assert_never(step)

    def _complete_sources(self) -> None:
        """Show what is still hidden of content at its old place. Raises Stopped unless it is recognised
        there: no table may show a place with half of its content.
        """
        for step in self.plan.holds:
            views = self._views_at_source(step)
            start = step.source.start
            at = in_flight.not_back(self.device, start, views)
            if at is not None:
                text = (
                    f"the content of partition {step.partition} is not back at byte {at}; the journal is kept"
                )
                raise Stopped(text)
            hidden_signatures.restore_signatures(self.device, start, views[0])

    def _check_source(self, step: steps.HoldContent) -> None:
        """Raise Stopped unless the content to be hidden is that of the journal."""
        found, at = self._found_at_source(step)
        if found in (in_flight.Found.USED, in_flight.Found.CHANGED):
            text = f"another program has changed byte {at} since the journal was written"
            raise Stopped(text)

    def _found_at_source(self, step: steps.HoldContent) -> tuple[in_flight.Found, int]:
        views = self._views_at_source(step)
        taken = in_flight.taken_from(self.journal, step)
        is_copied = not self.journal.position.forward  # or may be: a rollback may have been interrupted
        return in_flight.found_at_source(self.device, step.source.start, views, taken, is_copied=is_copied)

    def _show(self, index: int, start: int, views: tuple[View, View], *, back: bool = False) -> None:
        """Show content at one of its places. What is visible there since the step was cut may have been used:
        of that only what is still hidden is restored. Raises Stopped if it is not whole.
        """
        shows = Position(index, in_flight.SHOWING, forward=not back)
        if in_flight.is_showing(self.journal, index, back=back) and is_visible(self.device, start, views[0]):
            at = in_flight.compare_shown(self.device, start, views).ours
            if at is not None:  # another program has put a part of the content back
                raise Stopped(f"another program has changed byte {at} since the journal was written")
            if self.journal.position != shows:
                self._record(shows)
            hidden_signatures.restore_signatures(self.device, start, *views)
            return
        if back:
            self._record(Position(index, 0, forward=False))
        hidden_signatures.restore_content(
            self.device, start, *views, before_showing=partial(self._record, shows)
        )

    def _rebuild(self, index: int, step: steps.RebuildContent) -> None:
        """Write the rebuilt content. That it has begun is recorded before the first write; until then the
        place must hold the bytes that the journal has saved.
        """
        found, at = in_flight.found_at_rebuilt(self.device, self.journal, index, step, self.sign)
        if found in (in_flight.Found.USED, in_flight.Found.CHANGED):
            text = f"another program has changed byte {at} since the journal was written"
            raise Stopped(text)
        self._rewrite(index, step, back=False)

    def _undo_rebuild(self, index: int, step: steps.RebuildContent) -> None:
        position = self.journal.position
        if position == Position(index):
            return  # nothing was written yet, and another program may have written there
        found = in_flight.found_at_rebuilt(self.device, self.journal, index, step, self.sign)[0]
        if position.step == index and found is in_flight.Found.USED:
            batch = position.batch if position.batch == in_flight.HIDDEN_FIRST else 0
            self._record(Position(index, batch, forward=False))
            view = in_flight.rebuilt_view(self.journal, step, self.sign, after=False)
            hidden_signatures.restore_signatures(self.device, step.extent.start, view)
        else:
            self._rewrite(index, step, back=True)

    def _rewrite(self, index: int, step: steps.RebuildContent, *, back: bool) -> None:
        """Hide the content, write its other state and show it; what is visible already is only completed."""
        start = step.extent.start
        view, signatures = in_flight.views_of_rebuilt(self.journal, step, self.sign, after=not back)
        if in_flight.is_rebuilt_shown(self.device, self.journal, index, step, self.sign):
            hidden_signatures.restore_signatures(self.device, start, signatures)
            return
        position = self.journal.position
        begun = position.batch if in_flight.is_rebuilding(position, index) else in_flight.HIDDEN_FIRST
        if not in_flight.is_rebuilding(position, index) or position.forward is back:
            self._record(Position(index, min(begun, in_flight.HIDDEN_FIRST), forward=not back))
        shows = partial(self._record, Position(index, in_flight.SHOWING, forward=not back))
        hidden_signatures.rewrite(self.device, start, signatures.held, view, shows)

    def _copy(self, index: int, step: steps.CopyContent, first: int) -> Iterator[Event]:
        done, total = progress(self.journal)
        batches = islice(schedule_of(self.journal, step).batches(), first, None)
        work = ((Position(index, number), batch) for number, batch in enumerate(batches, first + 1))
        for batch in copy_batches(self._places_of(step), work, self._record):
            done += bytes_arriving(batch)
            yield Progress(index, done, total)

    def _undo_copy(self, index: int, step: steps.CopyContent, done: int | None) -> Iterator[Event]:
        """Undo the first `done` batches of the step; None: all. Progress counts the bytes at their old
        place.
        """
        schedule = schedule_of(self.journal, step)
        if done is None:
            done = sum(1 for _ in schedule.batches())
        moved, total = progress(self.journal)
        undone = total - moved
        work = ((Position(index, number, forward=False), batch) for number, batch in schedule.backwards(done))
        for batch in copy_batches(self._places_of(step), work, self._record, back=True):
            undone += bytes_arriving(batch)
            yield Progress(index, undone, total)

    def _images(self, state: TableState) -> TableImages:
        """Return the table images, without markers over content if it lies on the whole disk in `state`."""
        images = self.journal.contents.images
        return images.without_sector_0(state) if images.of_whole_disk else images

    def _places_of(self, step: steps.CopyContent) -> Places:
        stash = self.place.extent.start + self.place.stash.start
        return Places(self.device, step.source.start, step.target.start, self.journal.device, stash)

    def _views_at_source(self, step: steps.HoldContent) -> tuple[View, View]:
        return in_flight.views_at_source(self.journal, step, self.sign)

    def _views_at_target(self, step: steps.ReleaseContent) -> tuple[View, View]:
        return views_at_target(self.journal, step, self.sign)

    def _hide_at_target(self, step: steps.HoldContent) -> None:
        """Hide what is recognised at the new place in free space; other content there belongs to a partition
        and moves with it.
        """
        target = self._both_places(step.partition)[1]
        occupied = self._occupied_before()
        hidden_signatures.hide_in_free_space(
            self.device, target.start, self._views_at_source(step)[0], occupied
        )

    def _occupied_before(self) -> list[Extent]:
        """Return what is not free space before the move, and the place of the journal."""
        return self._occupied([place.before for place in self.plan.places if place.before])

    def _occupied(self, places: list[Extent]) -> list[Extent]:
        # Of a container only the EBRs are occupied.
        occupied = [one for one in places if not any(one.contains(other) for other in places if other != one)]
        occupied += [
            Extent(sectors.at, len(sectors.data)) for sectors in self.journal.contents.images.sectors
        ]
        if self.place.file is None:
            occupied.append(self.place.extent)
        return occupied

    def clear_new_places(self) -> None:
        """Zero what the move wrote into free space, which read as zero before it; every source is restored by
        now.
        """
        occupied = self._occupied_before()
        for step in self.plan.copies:
            self._clear_copies(step, step.target.start, step.source.start, occupied)
        self.device.flush()

    def _clear_old_places(self) -> None:
        """Zero what the move left at the old places, outside of the new ones, so that it reads as free
        space.
        """
        sources = [step.source for step in self.plan.copies]
        left = tuple(outside(sources, tuple(self._occupied([place.after for place in self.plan.places]))))
        if sum(extent.length for extent in left) <= _MOST_CLEARED:
            for extent in left:
                with suppress(OSError):  # no byte of a partition is there any more
                    zero(self.device, (extent,))

    def _has_new_table(self) -> bool:
        with suppress(OSError):  # a table that cannot be read is in flight
            return table_state(self.device, self._images(TableState.AFTER)) is TableState.AFTER
        return False

    def _may_have_lost_table(self, position: Position) -> bool:
        """Return whether content may have been shown at byte 0, which ends a change that removes a table."""
        index = (
            self.plan.index_of(steps.ReleaseContent) if self.journal.contents.images.of_whole_disk else None
        )
        return index is not None and position.step >= index and self.plan.releases[0].target.start == 0

    def _erase_keys(self) -> None:
        """Zero the keys of encrypted content that are left at old places, unless the new table is there
        already: then they are zeroed, and free space may have been used since.
        """
        if self._has_new_table():
            return
        occupied = tuple(self._occupied([place.after for place in self.plan.places]))
        for extent in tuple(keys_at_old_places(self.device, self.journal, occupied)):
            with suppress(OSError):  # a sector that accepts no write does not keep the disk in flight
                zero(self.device, (extent,))

    def _erase_stash(self) -> None:
        """Zero the stash, which may have keys, once everything is copied: a rollback fills it anew."""
        stash = self.place.stash
        with suppress(OSError):  # a sector that accepts no write does not keep the disk in flight
            zero(self.journal.device, (Extent(self.place.extent.start + stash.start, stash.length),))

    def _clear_copies(
        self, step: steps.CopyContent, start: int, kept: int, occupied: Sequence[Extent]
    ) -> None:
        """Zero the copy of a partition's content at byte `start`, outside of what is occupied. `kept`: the
        byte where the content stays.

        A sector that is neither as at the other place nor as the move left it is not from the move, and is
        not changed.
        """
        written = (*self.journal.contents.runs[step.partition], *step.held.ranges)
        places = (Extent(start + run.start, run.length) for run in written)
        other_sectors = self._saved_sectors(step.partition)
        for place in outside(places, tuple(occupied)):
            for at in range(place.start, place.end, REQUEST_LENGTH):
                with suppress(OSError):  # no byte of a partition is there any more
                    self._clear(Extent(at, min(REQUEST_LENGTH, place.end - at)), kept - start, other_sectors)

    def _clear(self, place: Extent, distance: int, other_sectors: frozenset[bytes]) -> None:
        """Zero the sectors of a place that are copies of those `distance` bytes after it, hidden or
        patched.
        """
        at = place.start
        size = self.device.sector_size
        zeros = bytes(place.length)
        found = zeros if self.device.is_hole(at, place.length) else bytes(self.device.read(at, place.length))
        if found == zeros:
            return
        content = bytes(self.device.read(at + distance, place.length))
        if found == content:
            self.device.write(at, zeros)
            return
        for start in range(0, place.length, size):
            sector = found[start : start + size]
            original = content[start : start + size]
            is_own = (
                sector == original or sector in other_sectors or _is_hidden_copy(sector, original, self.sign)
            )
            if any(sector) and is_own:
                self.device.write(at + start, bytes(size))

    def _saved_sectors(self, partition: int) -> frozenset[bytes]:
        """Return the sectors that the journal has saved, as they are at the old place and at the new one."""
        size = self.device.sector_size
        saved = self.journal.contents.held[partition]
        release = next(step for step in self.plan.releases if step.partition == partition)
        parts = (*saved, *patched(release.held, saved, release.patches))
        return frozenset(part[at : at + size] for part in parts for at in range(0, len(part), size))

    def _both_places(self, partition: int) -> tuple[Extent, Extent]:
        old = next(step.source for step in self.plan.holds if step.partition == partition)
        return old, next(step.target for step in self.plan.releases if step.partition == partition)

    def _update_kernel(self, *, before: bool) -> Iterator[Event]:
        """Update the kernel's partitions. The disk is finished and its journal closed, so a kernel that
        refuses does not stop the work.
        """
        conversion = self.plan.conversion
        sizes = (self.plan.disk.sector_size,) if before else conversion.sector_sizes if conversion else ()
        if conversion and self.device.sector_size not in sizes:
            return  # the disk has no table for sectors of this size
        try:
            entries = tuple(entry for entry in self._entries(before=before) if entry[1].start)
            if conversion or self.journal.contents.images.of_whole_disk:
                self.kernel.show(entries)
            else:
                self.kernel.add_absent(entries)
        except OSError as error:
            why = error.strerror
            yield KernelBehind(
                f"the disk is finished, but the running kernel does not show its partitions yet: {why}"
            )

    def _entries(self, *, before: bool) -> tuple[tuple[int, Extent], ...]:
        """Return the partitions that the kernel forgot. A container is not among them: the kernel shows its
        first sectors, which stay.
        """
        moving = self.plan.park.partitions
        places = (place for place in self.plan.places if place.number in moving)
        return tuple((place.number, (before and place.before) or place.after) for place in places)


_MOST_CLEARED = GIB  # bytes of old places outside of the new ones; more would take as long as the move
_MOST_HIDDEN = 16  # bytes of a sector that differ in a copy, if single bytes of signatures are hidden


def _is_hidden_copy(sector: bytes, original: bytes, sign: bytes) -> bool:
    """Return whether a sector is a copy of `original`, or of it with hidden signatures, or the marker."""
    if sector in (original, sign):
        return True
    differing: int = sum(starmap(operator.ne, zip(sector, original, strict=True)))
    return differing <= _MOST_HIDDEN


def schedule_of(journal: Journal, step: steps.CopyContent) -> Schedule:
    return Schedule(journal.contents.runs[step.partition], step.target.start - step.source.start, step.lanes)


def places_written(device: Device, contents: Contents) -> Iterator[Extent]:
    """Yield the bytes of the disk that a change writes, before it begins: of its copies all but those from a
    hole to a hole.
    """
    yield from (Extent(sectors.at, len(sectors.data)) for sectors in contents.images.sectors)
    if contents.plan.journal.file is None:
        yield contents.plan.journal.extent
    for step in contents.plan.saved:
        yield from (Extent(step.place.start + one.start, one.length) for one in step.held.ranges)
    for copy in contents.plan.copies:
        yield from _places_copied(device, contents, copy)


def _places_copied(device: Device, contents: Contents, step: steps.CopyContent) -> Iterator[Extent]:
    distance = step.target.start - step.source.start
    for batch in Schedule(contents.runs[step.partition], distance, step.lanes).batches():
        for copy in batch:
            for at in range(0, 0 if copy.to_stash else copy.length, REQUEST_LENGTH):
                length = min(REQUEST_LENGTH, copy.length - at)
                source, target = step.source.start + copy.source + at, step.target.start + copy.target + at
                is_hole = not copy.from_stash and device.is_hole(source, length)
                if not (is_hole and device.is_hole(target, length)):
                    yield Extent(target, length)


def progress(journal: Journal) -> tuple[int, int]:
    """Return the number of bytes at their new place, and the number of all bytes to copy."""
    done = total = 0
    for index, step in journal.contents.plan.numbered(steps.CopyContent):
        schedule = schedule_of(journal, step)
        total += schedule.total
        if index < journal.position.step:
            done += schedule.total
        elif index == journal.position.step:
            done += sum(map(bytes_arriving, islice(schedule.batches(), journal.position.batch)))
    return done, total
