"""Make the table of a disk whose content begins at byte 0, or remove it: images of the table, states in
flight.
"""

import secrets
from dataclasses import replace
from uuid import UUID, uuid4

from aligntool import steps
from aligntool.change import MovePlan
from aligntool.commands import command
from aligntool.contents.catalogue import CONTENT_SIGNATURES, kind_named
from aligntool.contents.layers import read_layers
from aligntool.device import Device, Sectors, Writing
from aligntool.errors import Stopped
from aligntool.formats.gpt import GptCopy, new_pair, table_sizes
from aligntool.formats.mbr import USUAL_GEOMETRY, MbrEntry, entries_of, protective_mbr, with_entries
from aligntool.formats.parked import parked_gpt_entry, read_or_empty
from aligntool.formats.part_types import ROLES, PartRole
from aligntool.formats.reader import MappedReader, Reader
from aligntool.formats.tables import read_table
from aligntool.inventory import Partition
from aligntool.mover import hidden_signatures
from aligntool.mover import table as tables
from aligntool.mover.disk_state import DiskState, LegibleDisk, is_complete, is_owned
from aligntool.mover.held_ranges import held_ranges
from aligntool.mover.in_flight import SHOWING, compare
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import Position
from aligntool.mover.steps import patched
from aligntool.units import Extent, align_down

# A new table lies where the content was, and a table that is removed lies where the content will be. So in
# flight there is no table: markers are in its place, and a backup GPT with a parked entry, in the last
# sectors of the disk, shows that it is in flight. No system uses such a backup without a protective MBR in
# sector 0. docs/decisions/0038 has the argument.
#
# The groups of an image are in the order in which they are written: sector 0 of a table is written last,
# markers over sector 0 are written before those over the rest.

_LONG = 6  # least bytes of a signature that is not a coincidence
NUMBER = 1  # of the only partition


def role_of(kind: str) -> PartRole:
    """Return the role of a partition with this content."""
    return ROLES[kind_named(kind).role]


def other_kinds(device: Device, kind: str) -> tuple[str, ...]:
    """Return the kinds with a signature on the disk besides its content: the length of the content, which
    decides what is free, may be that of an older file system. Short signatures are ignored as coincidence.
    """
    size = device.sector_size
    held = held_ranges(Partition(NUMBER, Extent(0, device.size)), device.size, size, signatures_only=True)
    view = hidden_signatures.View(
        held, hidden_signatures.read_saved(device, 0, held), device.size, bytes(size)
    )
    present = (
        signature for signature in CONTENT_SIGNATURES if signature.width >= _LONG and signature.kind != kind
    )
    return tuple(
        dict.fromkeys(
            signature.kind for signature in present if hidden_signatures.has_signature(view, signature)
        )
    )


def table_inside(reader: Reader, extent: Extent, sector_size: int) -> str | None:
    """Return the kind of the table in the first sectors of a partition: at byte 0 it would become that of the
    disk.
    """
    inside = MappedReader(reader, ((0, extent.start, extent.length),), extent.length)
    table = read_table(inside, sector_size=sector_size).table
    return table.label if table else None


def adds_table(plan: MovePlan) -> bool | None:
    """Return whether the plan makes a table: False if it removes one, None if it moves partitions."""
    changes = (change for step in plan.of(steps.RewriteTable) for change in step.changes)
    at_start = [(change.before.start == 0, change.after.start == 0) for change in changes]
    return {(True, False): True, (False, True): False}.get(at_start[0]) if at_start else None


def places(size: int, sector_size: int) -> tuple[Extent, Extent]:
    """Return the sectors that a table takes at the start of the disk and at its end."""
    head, tail = table_sizes(sector_size)
    end = align_down(size, sector_size)
    return Extent(0, head), Extent(end - tail, tail)


def whole_images(
    device: Device, plan: MovePlan, *, journal_at: int | None, journal_id: bytes
) -> tables.TableImages:
    """Return the images of the table for a plan that makes or removes it. Writes nothing.

    Raises Refused if the table is not the one for which the plan was made, or one that cannot be removed.
    """
    kind = plan.releases[0].kind
    change = plan.rewrite.changes[0]
    size = device.sector_size
    head, tail = places(plan.disk.size, size)
    sign = hidden_signatures.marker(size, journal_at, journal_id)
    tail_before = Sectors(tail.start, bytes(device.read(tail.start, tail.length)))
    usable = Extent(head.end, tail.start - head.end)
    gpt = _gpt(plan.disk.size, size, usable, role_of(kind))
    entry = parked_gpt_entry(next(gpt[1].used_entries()), journal_at, journal_id)
    parked = gpt[1].with_entries({entry.number: entry})
    adds = adds_table(plan)
    # A partition of an MBR may begin where a GPT would be: what is its own is hidden with its content.
    end = head.end if adds else min(head.end, change.before.start)
    hidden: Writing = (
        (Sectors(tail.start, _backup_bytes(parked)),),
        (Sectors(0, sign),),
        (Sectors(size, sign * (end // size - 1)),),
    )
    if adds:
        return tables.TableImages(
            ((tail_before,),),
            hidden,
            _new_table(device, plan.disk.size, plan.rewrite.label, change.after, kind),
        )
    refuse_unusual_table(device, plan, command("audit"))
    old = Sectors(size, bytes(device.read(size, end - size))), Sectors(0, bytes(device.read(0, size)))
    return tables.TableImages(
        ((tail_before,), (old[0],), (old[1],)), hidden, ((Sectors(tail.start, bytes(tail.length)),),)
    )


def _gpt(size: int, sector_size: int, extent: Extent, role: PartRole) -> tuple[GptCopy, GptCopy]:
    disk = uuid4().bytes_le
    part = uuid4().bytes_le
    return new_pair(size // sector_size, sector_size, disk, (UUID(role.gpt).bytes_le, part, extent, ""))


def _backup_bytes(copy: GptCopy) -> bytes:
    """Return the bytes of a backup GPT as they lie on the disk."""
    return copy.entries + copy.sector


def _new_table(device: Device, disk_size: int, label: str, extent: Extent, kind: str) -> Writing:
    size = device.sector_size
    role = role_of(kind)
    head, tail = places(disk_size, size)
    if label == "gpt":
        primary, backup = _gpt(disk_size, size, extent, role)
        rest = primary.sector + primary.entries
        end = _backup_bytes(backup)
        mbr = protective_mbr(bytes(size), disk_size // size)
    else:
        first = extent.start // size
        count = extent.length // size
        chs = USUAL_GEOMETRY.nearest(first), USUAL_GEOMETRY.nearest(first + count - 1)
        entry = MbrEntry(0, chs[0], int(role.mbr or "0", 16), chs[1], first, count)
        rest = bytes(head.length - size)
        end = bytes(tail.length)
        mbr = with_entries(bytes(440) + secrets.token_bytes(4) + bytes(size - 444), {1: entry})
    return (Sectors(tail.start, end),), (Sectors(size, rest),), (Sectors(0, mbr),)


def refuse_unusual_table(device: Device, plan: MovePlan, hint: str) -> None:
    """Raise Refused unless the table has the usual size and position, and lists only the one partition.
    `hint`: the command that gives a GPT this size and position.
    """
    size = plan.disk.sector_size
    head, tail = places(plan.disk.size, size)
    changes = {change.number: change for change in plan.rewrite.changes}
    if plan.rewrite.label == "gpt":
        primary, backup = tables.sound_pair(device, size)
        found = {entry.number: entry.extent(size) for entry in primary.used_entries()}
        if (
            primary.entries_extent != Extent(2 * size, head.end - 2 * size)
            or backup.entries_extent.start != tail.start
        ):
            raise tables.unusual_gpt(hint)
    else:
        entries = entries_of(bytes(device.read(0, size))) or ()
        found = {entry.slot: entry.extent(size) for entry in entries if entry.sectors}
    tables.check_before(found, changes)
    if len(found) > 1:
        raise tables.stale_plan("the table has a partition that is not in the plan")


# The state of the disk. What is recognised at the start of the disk decides: a system may have used the disk
# after an interruption, so bytes from the journal are never written over content that is recognised.


def find_whole_disk_state(device: Device, journal: Journal) -> DiskState:
    """Return the state of a disk whose table is made or removed. Raises OSError."""
    plan = journal.contents.plan
    images = journal.contents.images
    step = journal.position.step
    visible = _is_visible(device, journal)
    table = tables.table_state(device, images)
    prepared = step <= plan.index_of(steps.HoldContent)
    if adds_table(plan):
        if prepared and visible and not _is_half_hidden(device, journal):
            return DiskState.NOT_BEGUN
        if table is tables.TableState.AFTER and step >= plan.commit_at:
            return DiskState.COMPLETE if _is_unused(device, journal) else DiskState.LEFT
        if is_complete(journal):
            return DiskState.CHANGED if _is_table_replaced(device, journal) else DiskState.LEFT
        released = False
    else:
        if table is tables.TableState.BEFORE and step <= plan.park_at:
            return DiskState.NOT_BEGUN
        released = step >= plan.index_of(steps.ReleaseContent)
        if released and _has_table_over_content(device, journal):
            return DiskState.CHANGED if is_covered(device, journal) else DiskState.IN_FLIGHT
        if is_complete(journal) or (released and visible):
            return DiskState.LEFT if _is_place_owned(device, journal) else DiskState.COMPLETE
    if _has_only_our_bytes(device, journal):
        return DiskState.IN_FLIGHT
    if not _is_hidden(device, journal):  # not hidden yet, or not any more: the disk was used since
        if released:
            return DiskState.LEFT
        if prepared and adds_table(plan):
            return DiskState.NOT_BEGUN
    return DiskState.CHANGED


def _is_unused(device: Device, journal: Journal) -> bool:
    """Return whether nobody has changed partitions since: the new table, whose sector 0 was written last, is
    as it was written, and nothing has the journal's place.
    """
    sectors = tables.all_sectors(journal.contents.images.after)
    is_same = all(_read(device, Extent(one.at, len(one.data))) == one.data for one in sectors)
    return is_same and not _is_place_owned(device, journal)


def _is_place_owned(device: Device, journal: Journal) -> bool:
    place = journal.contents.plan.journal
    return not place.file and is_owned(device, place.extent)


def _is_half_hidden(device: Device, journal: Journal) -> bool:
    """Return whether content at the start of the disk is shown although a part of it is hidden. No cut leaves
    that: another program has written its first bytes back.
    """
    return compare(device, 0, view_at_start(journal)).ours is not None


def is_covered(device: Device, journal: Journal) -> bool:
    """Return whether a table that was removed lies over the content that was released in its place: another
    program has written it back, and only the journal has these bytes of the content.
    """
    plan = journal.contents.plan
    index = plan.index_of(steps.ReleaseContent)
    if adds_table(plan) or journal.position.step < index:
        return False
    if journal.position.step == index:  # its signatures may be hidden still
        is_all_there = journal.position == Position(index, SHOWING)
        return is_all_there and _has_table_over_content(device, journal, hidden=True)
    return _has_table_over_content(device, journal)


def _has_table_over_content(device: Device, journal: Journal, *, hidden: bool = False) -> bool:
    """Return whether a sector in the place of a table has other bytes of this change than those of the
    content. `hidden`: and of a marker.
    """
    images = journal.contents.images
    view = view_at_start(journal)
    size = len(view.sign)
    sectors = (at for one in images.sectors for at in range(one.at, one.at + len(one.data), size))
    contents = ((at, view.read(at, size)) for at in sectors)
    known = [view.sign] if hidden else []
    differs = any(
        content and not hidden_signatures.is_mix(_read(device, Extent(at, size)), (content, *known))
        for at, content in contents
    )
    return differs and _has_only_our_bytes(device, journal)


def _is_table_replaced(device: Device, journal: Journal) -> bool:
    """Return whether the first bytes of content that was moved into a partition were written back over the
    new table: only the journal names the place of the content then.
    """
    release = journal.contents.plan.releases[0]
    layers = read_layers(LegibleDisk(device, ()), release.target, sector_size=device.sector_size)
    return any(layer.kind == release.kind for layer in layers) and _has_only_our_bytes(device, journal)


def is_unsettled(device: Device, journal: Journal) -> bool:
    """Return whether this journal, which no entry of the table names, still has work to do."""
    if is_covered(device, journal):
        return True
    disk_state = find_whole_disk_state(device, journal)
    if disk_state is DiskState.CHANGED and is_complete(journal):
        return True
    if is_left_without_table(device, journal, disk_state):
        return True
    goal = {DiskState.NOT_BEGUN: tables.TableState.BEFORE, DiskState.COMPLETE: tables.TableState.AFTER}.get(
        disk_state
    )
    if goal is None:
        return disk_state is DiskState.IN_FLIGHT
    remaining = journal.contents.images.without_sector_0(goal)
    state = tables.table_state(device, remaining)
    return state is tables.TableState.PARKED or (
        state is tables.TableState.OTHER and tables.is_own_table(device, remaining)
    )


def is_left_without_table(device: Device, journal: Journal, disk_state: DiskState) -> bool:
    """Return whether the content of the journal is shown at byte 0, without a table, and may have the place
    of the journal by now: what is left to do spares that place.
    """
    is_left = disk_state is DiskState.LEFT and adds_table(journal.contents.plan) is False
    return is_left and _is_visible(device, journal)


def complete_interrupted_writes(device: Device, journal: Journal, goal: tables.TableState) -> None:
    """Complete the writes that were interrupted on a disk that is already in its old or new state; what a
    system has used since then stays as it is.
    """
    images = journal.contents.images
    if not images.has_table(goal) and _is_visible(device, journal):
        hidden_signatures.restore_signatures(device, 0, view_at_start(journal))
    remaining = images.without_sector_0(goal)
    is_known = tables.table_state(device, remaining) is not tables.TableState.OTHER
    if is_known or tables.is_own_table(device, remaining) or not images.has_table(goal):
        _write_own_sectors(device, remaining, goal)


def _write_own_sectors(device: Device, images: tables.TableImages, goal: tables.TableState) -> None:
    """Write the sectors of a table's place that have bytes of this change still, group by group; others have
    been used since. Raises Stopped if one reads back differently.
    """
    size = device.sector_size
    for group in images.of(goal):
        written: dict[int, bytes] = {}
        for sectors in group:
            known = [one.data for one in images.sectors if one.at == sectors.at]
            for at in range(0, len(sectors.data), size):
                found = _read(device, Extent(sectors.at + at, size))
                if hidden_signatures.is_mix(found, [data[at : at + size] for data in known]):
                    written[sectors.at + at] = sectors.data[at : at + size]
        for at, data in written.items():
            device.write(at, data)
        device.flush()
        for at, data in written.items():
            if device.read(at, size) != data:
                raise Stopped(f"the partition table at byte {at} reads back differently")


def marker_of(journal: Journal) -> bytes:
    """Return the marker of a move."""
    place = journal.contents.plan.journal
    return hidden_signatures.marker(
        shortest_write(journal), None if place.file else place.extent.start, journal.id
    )


def shortest_write(journal: Journal) -> int:
    """Return the bytes of the shortest write of the move: a sector of its disk, or in a conversion, whose old
    table was made for other sectors, sector 0.
    """
    contents = journal.contents
    return (
        len(contents.images.parked[-1][-1].data)
        if contents.plan.conversion
        else contents.plan.disk.sector_size
    )


def view_at_start(journal: Journal) -> hidden_signatures.View:
    """Return the held bytes of the content that was at byte 0, or will be there."""
    contents = journal.contents
    sign = marker_of(journal)
    for hold in contents.plan.holds:
        if hold.source.start == 0:
            return hidden_signatures.View(hold.held, contents.held[hold.partition], hold.source.length, sign)
    for release in contents.plan.releases:
        if release.target.start == 0:
            content = patched(release.held, contents.held[release.partition], release.patches)
            return hidden_signatures.View(release.held, content, release.target.length, sign)
    raise ValueError("nothing of this plan lies at byte 0")


def _is_visible(device: Device, journal: Journal) -> bool:
    """Return whether the decisive signature is at the start of the disk."""
    view = view_at_start(journal)
    on_disk = replace(view, content=[_read(device, extent) for extent in view.held.ranges])
    decisive = hidden_signatures.first_vital_byte(view)
    return decisive is not None and hidden_signatures.first_vital_byte(on_disk) == decisive


def _read(device: Device, extent: Extent) -> bytes:
    """Return the bytes of an extent, or zeros if it is unreadable, in which nothing is recognised."""
    return read_or_empty(device, extent.start, extent.length) or bytes(extent.length)


def _is_hidden(device: Device, journal: Journal) -> bool:
    """Return whether a marker is in the place of content at the start of the disk."""
    view = view_at_start(journal)
    size = len(view.sign)
    found = (_read(device, extent) for extent in view.held.ranges)
    return any(part[at : at + size] == view.sign for part in found for at in range(0, len(part), size))


def _has_only_our_bytes(device: Device, journal: Journal) -> bool:
    """Return whether this change wrote every byte that is now where a table is or will be."""
    view = view_at_start(journal)
    images = journal.contents.images
    size = len(view.sign)
    known: dict[int, list[bytes]] = {}
    for sectors in images.sectors:
        for at in range(0, len(sectors.data), size):
            known.setdefault(sectors.at + at, [view.sign]).append(sectors.data[at : at + size])
    for at, states in known.items():
        content = view.read(at, size)
        states += [content] if content else []
        sector = bytes(device.read(at, size))
        if not hidden_signatures.is_mix(sector, states):
            return False
    return True
