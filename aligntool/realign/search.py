"""Find places for all partitions of a disk and for the journal, and the patches to file systems."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.change import RealignGoal
from aligntool.claims import Claims, outside
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import StartField
from aligntool.contents.windows_names import LENGTH_OF_START, StartNames
from aligntool.formats.gpt import table_sizes
from aligntool.inventory import Disk, Layer, Partition, Role, TableLabel
from aligntool.mover.claimed_room import FlightClaims, entries_in_flight, mbr_room, unused_slots
from aligntool.mover.held_ranges import held_ranges
from aligntool.mover.journal_places import usable_places
from aligntool.realign import placing
from aligntool.steps import EntryChange, JournalPlace, Patch
from aligntool.units import KIB, MIB, Extent, align_down, align_up, merged

# Where the EBRs of logical partitions lie after a move, and where their container ends then. An EBR is a
# table between the partitions: moving a partition moves its EBR too.
#
# The first EBR is the container's first sector. The others need one sector or more before their partition and
# outside of every other partition (parse_extended() in the kernel's block/partitions/msdos.c reads them at
# any position; fdisk and Windows expect them in front of their partition).

Places = Mapping[int, Extent]  # by the number of a partition
_USUAL_LEAD = 2048  # sectors between an EBR and its partition if there is room, as fdisk makes them


def chain_changes(disk: Disk, places: Places) -> tuple[EntryChange, ...]:
    """Return the changes of every container in which a logical partition moves: all its logical partitions,
    and the container itself if it grows.
    """
    changes: list[EntryChange] = []
    for container in placing.containers(disk):
        chain = placing.logicals_of(disk, container)
        if all(places.get(part.number, part.extent).start == part.extent.start for part in chain):
            continue
        end = max(places[part.number].end for part in chain)
        grown = Extent(container.extent.start, max(container.extent.end, end) - container.extent.start)
        if grown != container.extent:
            changes.append(EntryChange(container.number, container.extent, grown))
        records = _ebr_positions(container, chain, places, disk.sector_size)
        for part in chain:
            before, after = part.record_at, records[part.number]
            changes.append(EntryChange(part.number, part.extent, places[part.number], before, after))
    return tuple(changes)


def irregular_chain_reason(container: Partition, chain: Sequence[Partition]) -> str:
    """Return why this EBR chain cannot be rebuilt; empty if it can."""
    for part in chain:
        if part.record_at is None:
            return f"the position of the EBR of partition {part.number} is unknown"
        if not container.extent.start <= part.record_at < part.extent.start:
            return (
                f"the EBR of partition {part.number}, at byte {part.record_at}, is not before the partition"
            )
    if chain and min(chain, key=lambda part: part.extent.start) is not chain[0]:
        where = f"the chain of EBRs of partition {container.number}"
        return f"partition {chain[0].number} is the first in {where} but not the first on the disk"
    return ""


def _ebr_positions(
    container: Partition, chain: Sequence[Partition], places: Places, sector: int
) -> dict[int, int]:
    """Return the byte of each EBR by partition number. An EBR keeps its distance to the partition if that
    fits; otherwise it gets the largest that fits, up to the usual one.
    """
    first, *others = sorted(chain, key=lambda part: places[part.number].start)
    records = {first.number: container.extent.start}
    end = places[first.number].end
    for part in others:
        start = places[part.number].start
        kept = placing.lead_of(part, sector)
        gap = start - end
        lead = kept if kept <= gap else min(_USUAL_LEAD * sector, gap)
        records[part.number] = start - lead
        end = places[part.number].end
    return records


# Where the journal lies, and how it is divided. It is safe because it lies in space that nothing uses before,
# during or after the move.

STEP = 64 * KIB  # a journal starts on a multiple of this, so that it can be found by looking there
SHORT = 64 * KIB  # a move by less goes through the stash as a whole
_LEAST_COPY = 64 * KIB  # the smallest copy of the journal that a resume looks for
_PREFERRED_COPY = 4 * MIB
_HEADER = 64 * KIB  # positions, records, checksums
_PLAN = 8 * KIB  # text of the plan for each partition, approximately
_PATCH = 256  # text of the plan for each patch of a file
# for the runs of used blocks
_ROOM_PREFERRED = 256 * KIB
_ROOM_TIGHT = 64 * KIB
# For tight space, as measured: a header and two records; text and runs of a partition, compressed; entries.
_SMALL_HEADER = 12 * KIB
_SMALL_PLAN = 4 * KIB
_SMALL_TABLE = 4 * KIB
# least ratio for superblocks and empty sectors; the move is refused before it begins if it is not met
_COMPRESSES = 4
_LEAST_STASH = 64 * KIB


@dataclass(frozen=True, slots=True)
class JournalNeeds:
    """What a journal must have room for, in bytes."""

    held: int  # held ranges of all partitions that move
    table: int  # sectors of the table, in one of its states
    partitions: int
    distances: tuple[int, ...]
    spots: int = 0  # the part of `held` in which a signature can lie; 0: all of it

    @property
    def shortest(self) -> int:
        return min(self.distances)


def journal_sizes(needs: JournalNeeds) -> tuple[tuple[int, int], ...]:
    """Return the possible sizes as (bytes of a copy of the journal, bytes of the stash), the preferred first.

    With a small stash a move has fewer copy strips or smaller windows, and flushes more often; a small copy
    of the journal holds the sectors of signatures only, and the runs of used blocks with the gaps between
    them filled. Both are as safe.
    """
    content = _copy_length(needs)
    preferred = max(_PREFERRED_COPY, copy_length(content + _ROOM_PREFERRED))
    roomy = copy_length(content + _ROOM_PREFERRED)
    tight = copy_length(content + _ROOM_TIGHT)
    short = needs.shortest < SHORT
    stashes = [32 * MIB if short else 40 * MIB, *(size * MIB for size in (24, 16, 8, 4, 2, 1))]
    least = MIB if short else min(MIB, align_up(max(needs.distances), STEP))
    large = [stash for stash in stashes if stash >= least]
    small = [MIB // 2, 256 * KIB, 128 * KIB, _LEAST_STASH]
    spots = needs.spots or needs.held
    small_plan = _SMALL_HEADER + _SMALL_TABLE + needs.partitions * _SMALL_PLAN
    smallest = [copy_length(small_plan + held) for held in (spots, spots // _COMPRESSES)]
    pairs = [(copy, stash) for stash in large for copy in (preferred, roomy)]
    pairs += [(tight, stash) for stash in (*large, *small)]
    pairs += [(copy, stash) for copy in smallest if copy < tight for stash in (*large, *small)]
    return tuple(dict.fromkeys(pairs))


def holds_all(place: JournalPlace, needs: JournalNeeds) -> bool:
    """Return whether a copy of the journal has room for everything held, and not only for the sectors of
    signatures.
    """
    return place.copy_length >= _copy_length(needs)


def _copy_length(needs: JournalNeeds) -> int:
    return _HEADER + needs.held + 3 * needs.table + needs.partitions * _PLAN


def free_runs(taken: Iterable[Extent], room: Extent) -> Iterator[Extent]:
    """Yield the runs of `room` outside of all of `taken`, from left to right, their starts rounded up to 64
    KiB.
    """
    at = room.start
    for extent in (*sorted(taken), Extent(room.end, 0)):
        start = align_up(at, STEP)
        end = min(extent.start, room.end)
        if end > start:
            yield Extent(start, end - start)
        at = max(at, extent.end)


def runs_for_journal(
    disk: Disk, gaps: Collection[Extent], lengths: tuple[int, int], claims: Claims, own: Iterable[Extent] = ()
) -> tuple[Extent, ...]:
    """Return the runs of gaps that a journal may overwrite and where a search finds it, their starts rounded
    up to 64 KiB. `lengths`: the least and the preferred bytes of the journal. Not all are read: the last run
    with room for the preferred ones is enough. `own`: bytes that belong to the content that moves.
    """
    listed, in_chains = (
        [part.extent for part in disk.partitions if (part.role is Role.LOGICAL) is is_logical]
        for is_logical in (False, True)
    )
    least, preferred = lengths
    runs: tuple[Extent, ...] = ()
    for places in usable_places(disk.size or 0, listed, in_chains):
        pieces = [gap.clipped(place) for gap in gaps for place in places if gap.overlaps(place)]
        found = claims.free_runs(pieces, least, preferred + STEP, own)
        runs = tuple(run for each in found for run in free_runs((), each))
        if any(run.length >= least for run in runs):
            break
    return runs


def journal_lengths(needs: JournalNeeds) -> tuple[int, int]:
    """Return the bytes of the smallest possible journal, and of one with the preferred sizes."""
    return least_journal_length(needs), _total(journal_sizes(needs)[0])


def place_journal(runs: Iterable[Extent], needs: JournalNeeds) -> JournalPlace | None:
    """Return the journal in the last run with room for the preferred sizes, otherwise in the largest run;
    None if that is too small for any sizes.
    """
    possible = journal_sizes(needs)
    free = sorted(runs)
    preferred = next((run for run in reversed(free) if run.length >= _total(possible[0])), None)
    run = preferred or max(free, key=lambda free_run: (free_run.length, free_run.start), default=Extent(0, 0))
    fitting = next((pair for pair in possible if _total(pair) <= run.length), None)
    if fitting is None:
        return None
    start = align_down(run.end - _total(fitting), STEP)
    return _divided(max(start, run.start), fitting)


def in_file(goal: RealignGoal, needs: JournalNeeds) -> JournalPlace | None:
    """Return the journal in the file that was requested, from its first byte on, with the best sizes for
    which there is room; if there is none, with the smallest, and the file cannot be created. None if no file
    was requested.
    """
    if goal.journal_file is None:
        return None
    possible = journal_sizes(needs)
    room = goal.journal_room
    smallest = min(possible, key=_total)
    pair = next((pair for pair in possible if room is None or _total(pair) <= room), smallest)
    place = _divided(0, pair)
    return JournalPlace(place.extent, place.copy_length, place.stash, goal.journal_file)


def least_journal_length(needs: JournalNeeds) -> int:
    """Return the bytes of the smallest possible journal."""
    return min(_total(pair) for pair in journal_sizes(needs))


def _divided(start: int, pair: tuple[int, int]) -> JournalPlace:
    copy, stash = pair
    return JournalPlace(Extent(start, _total(pair)), copy, Extent(2 * copy, stash))


def _total(pair: tuple[int, int]) -> int:
    return 2 * pair[0] + pair[1]


def copy_length(size: int) -> int:
    """Return the length of a copy of the journal that holds so many bytes: a power of two."""
    return max(_LEAST_COPY, 1 << (size - 1).bit_length())


# Fields of boot sectors that record where their partition begins, and their new values.
#
# They are in the boot sector and in its copy; exFAT has them in both boot regions, each of which ends with a
# sector of checksums (exFAT specification 3.4). Linux reads none of them; boot code of DOS, Windows and Haiku
# does.

_CHECKSUM = 11  # the sector of checksums in an exFAT boot region
_REGION = 12  # sectors of one region


@dataclass(frozen=True, slots=True)
class Patching:
    """The changes inside a file system when its partition moves, and the sentences for the user."""

    patches: tuple[Patch, ...] = ()
    attention: str = ""
    note: str = ""


def patching(partition: Partition, after: Extent, record_after: int | None, sector_size: int) -> Patching:
    """Return the patches to a boot sector. `record_after`: the byte of a logical partition's EBR after the
    move.
    """
    fields = ((layer, kind_named(layer.kind).start_field) for layer in partition.content)
    layer, start_field = next(((layer, one) for layer, one in fields if one), (None, None))
    if layer is None or start_field is None or layer.hidden_sectors is None:
        return Patching()
    recorded = layer.hidden_sectors
    number = partition.number
    if recorded == 0 and partition.extent.start:
        return Patching(
            note=f"partition {number}: its boot sector does not record the start of the partition; it stays"
            " unchanged"
        )
    new = _new_value(partition, recorded, after, record_after, sector_size)
    if new is None:
        where = f"its boot sector records {recorded} hidden sectors, which does not match its start"
        left = f"the field is left unchanged, and {start_field.boots} may fail to boot from it"
        return Patching(attention=f"partition {number}: {where}; {left}")
    notes = []
    if new >= 1 << 8 * start_field.length:
        new = 0
        notes.append("its new start does not fit into the boot sector's field, which becomes 0")
    if new == recorded:
        return Patching()
    copy = _unpatched_copy(layer)
    if copy:
        notes.append(copy)
    return Patching(
        _patches(layer, start_field, recorded, new),
        note=f"partition {number}: {'; '.join(notes)}" if notes else "",
    )


def _unpatched_copy(layer: Layer) -> str:
    """Return why the copy of the boot sector stays unchanged; "" if it is patched, or if there is none.

    Partition tools patch only the boot sector itself, and in a partition that is longer than its NTFS,
    ntfsfix writes the copy to the end of the partition.
    """
    if layer.backup_boot is None or layer.backup_hidden_sectors == layer.hidden_sectors:
        return ""
    if layer.backup_hidden_sectors is None:
        return (
            f"byte {layer.backup_boot}, where the copy of its boot sector belongs, holds none and stays"
            " unchanged"
        )
    recorded = f"{layer.backup_hidden_sectors} hidden sectors instead of {layer.hidden_sectors}"
    return f"the copy of its boot sector records {recorded} and stays unchanged"


def file_patches(names: StartNames, moved: Mapping[int, int]) -> tuple[Patch, ...]:
    """Return the patches of the files of one volume. `moved`: old start -> new start, as bytes of the disk.

    A value of eight bytes that lies in two pieces needs two patches.
    """
    found: list[Patch] = []
    for named in names.starts:
        if named.start in moved:
            old, new = (
                start.to_bytes(LENGTH_OF_START, "little") for start in (named.start, moved[named.start])
            )
            at = 0
            for place in named.places:
                piece = slice(at, at + place.length)
                values = (int.from_bytes(raw[piece], "little") for raw in (old, new))
                found.append(Patch(named.what, place.start, place.length, *values))
                at += place.length
    return tuple(found)


def needed_for(patch: Patch) -> Extent:
    """Return the bytes of the partition that must be held to make this patch: for a checksum everything it
    covers.
    """
    if patch.before is None:
        return Extent(patch.at - _CHECKSUM * patch.length, (_CHECKSUM + 1) * patch.length)
    return Extent(patch.at, patch.length)


def _new_value(
    partition: Partition, recorded: int, after: Extent, record_after: int | None, sector_size: int
) -> int | None:
    if recorded == partition.extent.start // sector_size:
        return after.start // sector_size
    if partition.role is not Role.LOGICAL or partition.record_at is None or record_after is None:
        return None
    # For a logical partition, DOS and Windows count hidden sectors from its EBR.
    if recorded != (partition.extent.start - partition.record_at) // sector_size:
        return None
    return (after.start - record_after) // sector_size


def _patches(layer: Layer, start_field: StartField, before: int, after: int) -> tuple[Patch, ...]:
    """Return the patches to the boot sector and to its copy. The position of the second boot region of an
    exFAT determines the sector size of the volume; without it the position of the checksums is unknown, and
    there are no patches.
    """
    if start_field.checksum and not layer.backup_boot:
        return ()
    boots = [(0, "")]
    if layer.backup_boot is not None and not _unpatched_copy(layer):
        boots.append((layer.backup_boot, " (copy)"))
    patches = []
    for boot, copy in boots:
        patches.append(
            Patch(f"{start_field.title}{copy}", boot + start_field.at, start_field.length, before, after)
        )
        if start_field.checksum:
            sector = (layer.backup_boot or 0) // _REGION
            patches.append(Patch(f"{start_field.checksum}{copy}", boot + _CHECKSUM * sector, sector))
    return tuple(patches)


def with_new_copy(layer: Layer, length: int) -> Layer:
    """Return an NTFS after a shrink to `length` bytes: ntfsresize copies the boot sector to the last sector,
    in the sector size of the NTFS. Any other layer is unchanged.
    """
    if layer.backup_boot is None or layer.claims_size is None:
        return layer
    sector = layer.claims_size - layer.backup_boot
    is_copied = length % sector == 0  # otherwise in no whole sector
    return replace(
        layer, backup_boot=length - sector, backup_hidden_sectors=layer.hidden_sectors if is_copied else None
    )


# The search for places: partitions stay in their order if possible, otherwise one jumps over its neighbours.
# Room for the partitions is balanced against room for the journal.


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """The places of all partitions. `before` has the shortened extents of partitions that are shrunk."""

    before: Places
    after: Places
    order: tuple[int, ...]  # partitions that move, in the order of copying
    chain: tuple[EntryChange, ...]  # logical partitions and containers
    journal: JournalPlace | None  # None: these places leave no room for a journal
    journal_least: int = 0  # bytes of the smallest possible journal
    journal_room: int = 0  # bytes of the largest free run
    signatures_only: bool = False  # the journal has room for the sectors of signatures only
    journal_unclaimed: int = 0  # bytes of the largest free run that no entry of the table can cover in flight

    @property
    def moved(self) -> dict[int, int]:
        """Return old start -> new start of the partitions that move."""
        return {self.before[number].start: self.after[number].start for number in self.order}


def boot_floor(disk: Disk) -> int:
    """Return the byte below which nothing is moved down: the end of the first MiB, of the used part of the
    gap before the first partition, and if the program of a boot ROM was recognised, of all places of its next
    stages.
    """
    used_to = disk.table.gap_used_to if disk.table else None
    return max(_end_of_boot_loaders(disk), used_to or 0)


def _end_of_boot_loaders(disk: Disk) -> int:
    return placing.BOOT_LOADERS if placing.boot_rom_code(disk) else MIB


def room_of(disk: Disk, goal: RealignGoal) -> placing.Room:
    end = disk.size or 0
    usable = disk.table.usable if disk.table and disk.table.usable else Extent(0, end)
    start = max(usable.start, disk.sector_size)
    return placing.Room(Extent(start, min(usable.end, end) - start), goal.least_start, boot_floor(disk))


def search(
    disk: Disk, movable: placing.Movable, goal: RealignGoal, claims: Claims, *, finer: bool = False
) -> FoundPlaces | None:
    """Return the cheapest places that leave room for a journal; None if there is no place for all partitions.

    No place overwrites what `claims` keeps; `claims.in_the_way` then has the data around which was planned.

    `finer`: if places on the coarsest possible grain leave no room for a journal, try finer grains.
    """
    room = room_of(disk, goal)
    best: FoundPlaces | None = None
    for attempt in _finer(movable) if finer else (movable,):
        found = _search_around_data(disk, attempt, goal, room, claims)
        if found is None or found.journal is not None or not found.order:
            return found or best
        best = best or found
    return best


_MOST_ROUNDS = 64
_MOST_FINE_ROUNDS = 16
_MOST_KEPT = 200  # runs of data around which is planned, each as long as it is
_NEAR = MIB  # data that close to a place is planned around, too


def _search_around_data(
    disk: Disk, movable: placing.Movable, goal: RealignGoal, room: placing.Room, claims: Claims
) -> FoundPlaces | None:
    """Search again around the data at the places found, until nothing is in the way. None if there is no such
    place, or it was not found in many rounds.

    First the data is rounded up to where a journal may start, which takes fewer rounds; then, if there is not
    enough room, it is as long as it is.
    """
    whole = Extent(0, disk.size or 0)
    best: FoundPlaces | None = None
    for is_fine in (False, True):
        kept: tuple[Extent, ...] = ()
        for _ in range(_MOST_FINE_ROUNDS if is_fine else _MOST_ROUNDS):
            found = _search(disk, replace(movable, kept=kept), goal, room, claims)
            if found is None:
                break
            met = claims.kept_in_any(_overwritten(disk, found), _own_bytes(disk, found.before, found.order))
            if not met:
                if found.journal is not None or not found.order or not kept:
                    return found
                best = best or found
                break
            if is_fine:
                kept = _as_fine_as_possible((*kept, *met, *_near(disk, movable, found, room, claims)), whole)
            else:
                kept = merged((*kept, *met), whole, STEP)
        if not kept:
            break
    return best


def _as_fine_as_possible(kept: Collection[Extent], whole: Extent) -> tuple[Extent, ...]:
    """Return runs of data, rounded up if there are too many to plan around."""
    for unit in (1, 4 * KIB, 16 * KIB):
        found = merged(kept, whole, unit)
        if len(found) <= _MOST_KEPT:
            return found
    return merged(kept, whole, STEP)


def _near(
    disk: Disk, movable: placing.Movable, found: FoundPlaces, room: placing.Room, claims: Claims
) -> Iterator[Extent]:
    """Yield the data near the places found, in no partition."""
    parts = {part.number: part.extent.start for part in disk.partitions}
    items = placing.row_of(disk, replace(movable, kept=()))
    own = (*(item.extent for item in items), *_own_bytes(disk, found.before, parts))
    wide = (
        Extent(found.after[number].start - _NEAR, found.after[number].length + 2 * _NEAR)
        for number in found.order
    )
    for gap in outside((extent.clipped(room.extent) for extent in wide), own):
        yield from claims.kept_in(gap)


def _overwritten(disk: Disk, found: FoundPlaces) -> Iterator[Extent]:
    """Yield everything that a move overwrites but its journal: the new places, and the new EBRs."""
    yield from (found.after[number] for number in found.order)
    for change in found.chain:
        if change.record_after is not None:
            yield Extent(change.record_after, disk.sector_size)


def _own_bytes(disk: Disk, before: Places, moved: Collection[int]) -> Iterator[Extent]:
    """Yield the bytes that belong to the partitions that move or are shrunk, and to the chain of EBRs."""
    for part in disk.partitions:
        is_shrunk = before.get(part.number, part.extent) != part.extent
        if part.role is Role.EXTENDED:
            yield Extent(part.extent.start, disk.sector_size)
        elif part.number in moved or is_shrunk:
            yield part.extent
        if part.record_at is not None:
            yield Extent(part.record_at, disk.sector_size)


def _finer(movable: placing.Movable) -> Iterator[placing.Movable]:
    """Yield `movable`, then the same without the coarsest grain, repeatedly: a short move leaves more room
    for the journal.
    """
    most = max((len(start_grids) for start_grids in movable.must.values()), default=1)
    for omitted in range(max(most, 1)):
        must = {number: found[min(omitted, len(found) - 1) :] for number, found in movable.must.items()}
        yield replace(movable, must=must)


def _search(
    disk: Disk, movable: placing.Movable, goal: RealignGoal, room: placing.Room, claims: Claims
) -> FoundPlaces | None:
    best: FoundPlaces | None = None
    rows = dict.fromkeys(placing.row_of(disk, movable, roomy=roomy) for roomy in (True, False))
    for row, choice in _choices(rows, room, movable):
        for lean in placing.PlacePreference:
            found = _with_journal(
                disk, row, placing.place_items(row, room, choice, lean), goal, movable.names, claims
            )
            if found is None:
                continue
            if found.journal is not None:
                return found
            best = best or found
    return best


def _choices(
    rows: Iterable[placing.Row], room: placing.Room, movable: placing.Movable
) -> Iterator[tuple[placing.Row, placing.Choice]]:
    """Yield the cheapest rows with their choices: in the present order, and if that is impossible or moves
    partitions that could stay, also with one partition elsewhere in the order.
    """
    found = [(row, choice) for row in rows if (choice := placing.choose_moves(row, room))]
    if all(choice.cost[1] > len(movable.must) for _, choice in found):
        reordered = (other for row in rows for other in _with_a_jump(row, room))
        found += [(row, choice) for row in reordered if (choice := placing.choose_moves(row, room))]
    yield from sorted(found, key=lambda pair: pair[1].cost)[:_MOST_TRIED]


_MOST_TRIED = 8
_JUMPS_UP_TO = 24  # items: an MBR with 3 primary partitions and some 15 logical ones


def _with_a_jump(row: placing.Row, room: placing.Room) -> Iterator[placing.Row]:
    """Yield every row with one item that must move elsewhere in the order; never into or out of a
    container.
    """
    if len(row) > _JUMPS_UP_TO:
        return
    inside = _in_container(row)
    for index, item in enumerate(row):
        if item.may_stay or inside[index]:
            continue
        rest = [*row[:index], *row[index + 1 :]]
        rest_inside = _in_container(rest)
        for slot in range(len(rest) + 1):
            if (
                slot != index
                and not (slot < len(rest) and rest_inside[slot])
                and _fits(item, rest, slot, room)
            ):
                yield [*rest[:slot], item, *rest[slot:]]


def _fits(item: placing.RowItem, rest: placing.Row, slot: int, room: placing.Room) -> bool:
    """Return whether the gap before `rest[slot]` is long enough for the item."""
    start = rest[slot - 1].extent.end if slot else room.extent.start
    end = rest[slot].extent.start if slot < len(rest) else room.extent.end
    return end - start >= item.extent.length


def _in_container(row: placing.Row) -> list[bool]:
    """Return for each item whether it lies behind the first EBR of a container, the end of which counts
    too.
    """
    ends = [index for index, item in enumerate(row) if item.gives_way]
    found = [False] * len(row)
    for end in ends:
        start = max(index for index in range(end) if row[index].begins_container)
        found[start + 1 : end + 1] = [True] * (end - start)
    return found


def _with_journal(
    disk: Disk,
    row: placing.Row,
    places: Places,
    goal: RealignGoal,
    names: Mapping[int, StartNames],
    claims: Claims,
) -> FoundPlaces | None:
    lengths = {item.number: item.extent for item in row if item.number is not None}
    before = {part.number: lengths.get(part.number, part.extent) for part in disk.partitions}
    after = {number: places.get(number, extent) for number, extent in before.items()}
    moves = {number: (before[number], after[number]) for number in before if before[number] != after[number]}
    order = placing.copy_order(moves)
    if order is None:
        return None
    chain = chain_changes(disk, after)
    if not moves:
        return FoundPlaces(before, after, (), chain, None)
    targets = (*(new for _, new in moves.values()), *(change.after for change in chain))
    if not _can_claim(disk, moves, targets):
        return None
    needs = _needs(disk, before, moves, names)
    runs: tuple[Extent, ...] = ()
    unclaimed = 0
    if not goal.journal_file:
        free = tuple(free_runs(_occupied(disk, before, after, chain), _journal_room(disk, goal)))
        gaps = tuple(run for run in free if _can_claim(disk, moves, (*targets, run)))
        unclaimed = max((run.length for run in free if run not in gaps), default=0)
        own = _own_bytes(disk, before, moves)
        runs = runs_for_journal(disk, gaps, journal_lengths(needs), claims, own)
    journal = in_file(goal, needs) or place_journal(runs, needs)
    largest = max((run.length for run in runs), default=0)
    signatures_only = journal is not None and not holds_all(journal, needs)
    least = least_journal_length(needs)
    return FoundPlaces(before, after, order, chain, journal, least, largest, signatures_only, unclaimed)


def _can_claim(disk: Disk, moving: Collection[int], places: Collection[Extent]) -> bool:
    """Return whether the entries of an MBR can cover these places in flight. Those of a GPT are hardly ever
    used up, which is checked before the first write.
    """
    if disk.table is None or disk.table.label is not TableLabel.DOS:
        return True
    entries = _entries(disk)
    parked = set(moving)
    for container in placing.containers(disk):
        if any(part.number in parked for part in placing.logicals_of(disk, container)):
            parked.add(container.number)
    endless = {part.number for part in disk.partitions if not placing.kind_of(part).states_length}
    found = entries_in_flight(
        FlightClaims(tuple(places), frozenset(endless & set(moving))),
        {number: extent for number, extent in entries.items() if number in parked},
        [extent for number, extent in entries.items() if number not in parked],
        unused_slots(entries),
        (mbr_room(disk.size or 0, disk.sector_size), disk.sector_size),
    )
    return found is not None


def is_full_mbr(disk: Disk) -> bool:
    """Return whether an MBR has no unused entry, so that only longer ones can claim room in flight."""
    is_mbr = disk.table is not None and disk.table.label is TableLabel.DOS
    return is_mbr and not unused_slots(_entries(disk))


def _entries(disk: Disk) -> dict[int, Extent]:
    return {part.number: part.extent for part in disk.partitions if part.role is not Role.LOGICAL}


def _needs(
    disk: Disk, before: Places, moves: Mapping[int, tuple[Extent, Extent]], names: Mapping[int, StartNames]
) -> JournalNeeds:
    sector = disk.sector_size
    parts = {part.number: part for part in disk.partitions}
    moved = {old.start: new.start for old, new in moves.values()}
    patches = {number: found for number, one in names.items() if (found := file_patches(one, moved))}
    held = spots = sum(map(len, patches.values())) * (2 * sector + _PATCH)
    for number in moves.keys() | patches.keys():
        held += held_ranges(parts[number], before[number].length, sector).length
        spots += held_ranges(parts[number], before[number].length, sector, signatures_only=True).length
    if disk.table and disk.table.label is TableLabel.GPT:
        table = sum(table_sizes(sector))
    else:
        table = sector * (1 + 2 * sum(part.role is Role.LOGICAL for part in disk.partitions))
    distances = tuple(abs(new.start - old.start) for old, new in moves.values())
    return JournalNeeds(held, table, len(moves.keys() | patches.keys()), distances, spots)


def _journal_room(disk: Disk, goal: RealignGoal) -> Extent:
    """Return where the journal may lie: not where a boot loader may lie, which is before the first partition,
    on a GPT up to 16 MiB (ARM boards). Data there are kept by `Claims`.
    """
    room = room_of(disk, goal)
    first = min((part.extent.start for part in disk.partitions), default=0)
    if disk.table and disk.table.label is TableLabel.GPT:
        first = min(first, placing.BOOT_LOADERS)
    start = max(room.extent.start, _end_of_boot_loaders(disk), first)
    return Extent(start, max(0, room.extent.end - start))


def _occupied(disk: Disk, before: Places, after: Places, chain: Sequence[EntryChange]) -> Iterator[Extent]:
    """Yield sources, targets, all other partitions, and the EBRs before and after the move."""
    for part in disk.partitions:
        if part.role is Role.EXTENDED:
            yield Extent(part.extent.start, disk.sector_size)
            continue
        yield before[part.number]
        yield after[part.number]
        if part.record_at is not None:
            yield Extent(part.record_at, disk.sector_size)
    records = [change.record_after for change in chain]
    for at in (*records, *(disk.table.empty_records if disk.table else ())):
        if at is not None:
            yield Extent(at, disk.sector_size)
