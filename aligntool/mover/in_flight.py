"""Compare the places of a change in flight with what the change left there: another program may have used
them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from aligntool import steps
from aligntool.change import MovePlan
from aligntool.claims import Claims
from aligntool.device import Device
from aligntool.errors import Stopped
from aligntool.formats.mbr import MbrEntry, entries_of, with_entries
from aligntool.formats.parked import read_or_empty
from aligntool.mover.disk_state import places_in_use
from aligntool.mover.hidden_signatures import (
    Bytes,
    View,
    has_marker_text,
    is_marker,
    is_mix,
    is_visible,
    part_of,
    sectors_of,
    signature_bytes,
    signature_ranges,
    with_markers,
)
from aligntool.mover.journal import Journal
from aligntool.mover.journal_format import Position
from aligntool.mover.table import all_sectors
from aligntool.units import Extent, align_down, merged

# The rule for every step that makes content unusable: it is hidden before and shown after, so a program that
# changed it has ignored the parked entry, or has put an older copy back. Whatever is found to be neither the
# content nor a marker is of another program, and is never overwritten. docs/crash-safety.md, "Content that
# another program changed".
#
# The order of hiding decides what a cut can leave: as long as the deciding signature is shown, everything
# else is whole, except for sectors with redundant signatures. Any other state was made by another program.

CHOOSE = 'docs/crash-safety.md, "Content that another program changed", explains the choice'
STAYS = "it is whole, and a rollback leaves it as it is"
# the batch of a RebuildContent that has begun. 1: version 0.1 began it, which hid no signature
HIDDEN_FIRST = 2
# the batch of every step that shows content: all of it is durable but its signatures
SHOWING = 3


class Found(Enum):
    """What is at the place of content that a step hides or shows."""

    WHOLE = auto()  # the content; sectors with redundant signatures may be hidden
    USED = auto()  # whole, and another program has written to it since the journal was written
    HIDDEN = auto()  # nothing is recognised, and every byte is that of the content or of a marker
    CHANGED = auto()  # neither: another program has written there


@dataclass(frozen=True, slots=True)
class Comparison:
    """The bytes at a place, compared with the content that belongs there."""

    shown: bool  # every byte of the deciding signature is there
    visible: bool  # a byte of it is, see `is_visible`
    # the first byte of a sector that is at least partly a marker, except redundant signatures
    ours: int | None
    other: int | None  # the first byte of a sector that is neither
    compared: int  # sectors
    has_signature: bool


@dataclass(frozen=True, slots=True)
class Change:
    """Where another program has written while the content was in flight."""

    partition: int | None  # None: not in one
    at: int  # byte of the disk
    what: str = ""  # if it is not in a partition
    is_used: bool = False  # it is whole, and a rollback leaves it as it is


def compare(
    device: Device,
    start: int,
    view: View,
    taken: Sequence[Extent] = (),
    also: Sequence[bytes] = (),
    others: Sequence[View] = (),
) -> Comparison:
    """Compare the place at `start` with the content of the view. `taken`: extents of the disk that may hold
    anything. `also`: other content that a sector may have, range by range. `others`: as given to
    `signature_bytes` when it was hidden.

    Unreadable sectors are not compared: a rollback must be possible on a disk that fails.
    """
    size = len(view.sign)
    signs = signature_bytes(view, *others)
    deciding: Bytes = frozenset().union(*signs.last)
    found = _read_sectors(device, start, view, taken)
    shown = bool(deciding) and all(_byte(found, at, size) == view.read(at, 1)[0] for at in deciding)
    # Nothing but signatures is written while a deciding byte is visible, so that no other sector is torn.
    signed = sectors_of(deciding, size)
    visible = shown or is_visible(device, start, view)
    ours = other = None
    for (at, sector), expected in zip(found.items(), _expected(view, found, also), strict=True):
        if sector == expected[0] or sector in expected[1:]:
            continue
        # Content that is shown may be used, and a bit of it changed, such as one of a map.
        is_own = is_marker(sector, view.sign) or is_mix(sector, (*expected, view.sign), flipped=not visible)
        if visible and not has_marker_text(sector, expected, view.sign, byte=at in signed):
            is_own = at in signs.redundant and is_own
        if not is_own:
            other = start + at if other is None else other
        elif at not in signs.redundant:
            ours = start + at if ours is None else ours
    return Comparison(shown, visible, ours, other, len(found), bool(deciding))


def _read_sectors(device: Device, start: int, view: View, taken: Sequence[Extent]) -> dict[int, bytes]:
    """Return the sectors of the saved ranges by their offset in the partition."""
    size = len(view.sign)
    found = {}
    near = [place for place in taken if place.end > start and place.start < start + view.length]
    for extent in view.held.ranges:
        raw = read_or_empty(device, start + extent.start, extent.length)
        for at in range(extent.start, extent.end, size):
            if any(place.overlaps(Extent(start + at, size)) for place in near):
                continue
            sector = raw[at - extent.start : at - extent.start + size] or read_or_empty(
                device, start + at, size
            )
            if sector:
                found[at] = sector
    return found


def _byte(found: dict[int, bytes], at: int, size: int) -> int | None:
    sector = found.get(align_down(at, size))
    return None if sector is None else sector[at % size]


def _expected(view: View, found: dict[int, bytes], also: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    size = len(view.sign)
    others = View(view.held, also, view.length, view.sign) if also else None
    for at in found:
        yield (view.read(at, size), *((others.read(at, size),) if others else ()))


def found_at_source(
    device: Device,
    start: int,
    views: tuple[View, View],
    taken: Sequence[Extent] = (),
    *,
    is_copied: bool = False,
) -> tuple[Found, int]:
    """Return what is at the old place while it is hidden or shown again, and the first byte that another
    program changed. `views`: as of `views_at_source`. `is_copied`: data may have been copied there, so that
    only the deciding signature shows that the content is whole.
    """
    seen = compare(device, start, views[0], taken, others=views[1:])
    at = next((at for at in (seen.other, seen.ours) if at is not None), start)
    if seen.ours is None and (seen.shown or not is_copied):
        if seen.other is None:
            return Found.WHOLE, at
        # Without its deciding signature it is other content: a rollback would write that signature into it.
        return (Found.USED if seen.shown or not seen.has_signature else Found.CHANGED), at
    is_half_shown = seen.shown and seen.ours is not None
    return (Found.CHANGED if is_half_shown or seen.other is not None else Found.HIDDEN), at


def compare_shown(
    device: Device, start: int, views: tuple[View, View], taken: Sequence[Extent] = ()
) -> Comparison:
    """Compare content that was about to be shown when the work stopped, of which signatures may be hidden.
    `taken`: see `compare`.
    """
    deciding: Bytes = frozenset().union(*signature_bytes(*views).last)
    hidden = with_markers(views[0], frozenset(), deciding)
    return compare(device, start, views[0], taken, also=hidden, others=views[1:])


def is_showing(journal: Journal, index: int, *, back: bool) -> bool:
    """Return whether the step was cut after it had begun to hide content that was shown, or to show it: what
    is visible then is the content, and not what was at its place before.
    """
    position = journal.position
    return position.step == index and (position.batch == SHOWING or position.forward is back)


def changes(
    device: Device, journal: Journal, sign: bytes, *, back: bool = False, restore_table: bool = False
) -> Iterator[Change]:
    """Yield each place that another program has written to, according to the journal's position, and that
    would stop the work: at once, or at one of the steps that follow. `back`: a rollback. `restore_table`: the
    sectors of the table are not compared, as the user has decided what they are to hold.
    """
    images = journal.contents.images.sectors if restore_table else ()
    table = tuple(Extent(sectors.at, len(sectors.data)) for sectors in images)
    plan = journal.contents.plan
    position = journal.position
    # Once everything is copied, a resume reads nothing at the new places, where what is shown may be used.
    is_copied = not back and all(index < position.step for index, _ in plan.numbered(steps.CopyContent))
    arrived = tuple(step.target for step in plan.releases) if is_copied else ()
    for index, step in enumerate(plan.steps):
        match step:
            case steps.HoldContent() if index < position.step:
                at = _at_hidden(device, journal, step, sign, (*table, *arrived))
                is_used = False
            case steps.HoldContent():
                at, is_used = _at_shown(device, journal, index, step, sign, table, back=back)
            case steps.RebuildContent():
                at, is_used = _at_rebuilt(device, journal, index, step, sign, back=back)
            case _:
                continue
        if at is not None:
            yield Change(step.partition, at, is_used=is_used)
    yield from (Change(None, data.start, "an EBR") for data in _data_at_records(device, journal))


def _data_at_records(device: Device, journal: Journal) -> tuple[Extent, ...]:
    """Return the data that another program has put where an EBR was. In flight these sectors are hidden, and
    a partition in flight may lie over them. What was at the place of a new EBR is not known: the user may
    have named it. Unreadable sectors are left out, as in `compare`.
    """
    images = journal.contents.images
    unchanged = list[Extent]()
    in_flight = {sectors.at for sectors in all_sectors(images.parked)}
    records = {one.at: len(one.data) for one in all_sectors(images.before) if one.at not in in_flight}
    for at, length in records.items():
        known = [sectors.data for sectors in images.sectors if sectors.at == at]
        found = read_or_empty(device, at, length)
        if (
            not found
            or is_mix(found, (bytes(length), *known))
            or any(lists_the_same(found, one) for one in known)
        ):
            unchanged.append(Extent(at, length))
    own = (*unchanged, *places_in_use(journal.contents.plan))
    return Claims(device).kept_in_any((Extent(*record) for record in records.items()), own)


def lists_the_same(found: bytes, record: bytes) -> bool:
    """Return whether a sector is an EBR, and nothing else, that lists the same partition as this one. A
    program that writes the old table back places the next EBR, and gives CHS addresses, by rules of its own.
    """
    both = entries_of(found), entries_of(record)
    listed = [
        {(each.code, each.start, each.sectors) for each in entries or () if _is_data(each)}
        for entries in both
    ]
    empty = with_entries(bytes(len(found)), {})
    return both[0] is not None and listed[0] == listed[1] and with_entries(found, _NO_ENTRIES) == empty


def _is_data(entry: MbrEntry) -> bool:
    return bool(entry.sectors) and not entry.is_extended


_NO_ENTRIES = {slot: MbrEntry(0, bytes(3), 0, bytes(3), 0, 0) for slot in range(1, 5)}


def _at_shown(
    device: Device,
    journal: Journal,
    index: int,
    step: steps.HoldContent,
    sign: bytes,
    table: tuple[Extent, ...],
    *,
    back: bool,
) -> tuple[int | None, bool]:
    """Return the byte that stops the work at content that is not hidden yet, or is shown again, and whether
    the content is whole.
    """
    views = views_at_source(journal, step, sign)
    start = step.source.start
    position = journal.position
    if index > position.step and back:
        return not_back(device, start, views), False
    shown = compare_shown(device, start, views) if is_showing(journal, index, back=True) else None
    if shown is not None and shown.visible:
        if shown.ours is not None or back:
            return shown.ours, False
        return shown.other, True
    # Content that is shown again is all there: what was copied over it is not any more.
    is_all_there = index > position.step or position == Position(index, SHOWING, forward=False)
    taken = () if is_all_there else (*taken_from(journal, step), *table)
    found, at = found_at_source(
        device, start, views, taken, is_copied=not is_all_there and not position.forward
    )
    is_used = found is Found.USED and not back
    return (at if found is Found.CHANGED or is_used else None), is_used


def not_back(device: Device, start: int, views: tuple[View, View]) -> int | None:
    """Return the first byte that is hidden at the old place of content, or None. Nothing is hidden of content
    whose turn has not come, and of what is shown again: all that differs there is of the system that uses it.
    """
    view = views[0]
    signs = signature_bytes(*views)
    signed = sectors_of(frozenset().union(*signs.last), len(view.sign))
    for at, sector in _read_sectors(device, start, view, ()).items():
        content = view.read(at, len(sector))
        is_hidden = sector != content and has_marker_text(sector, (content,), view.sign, byte=at in signed)
        if is_hidden and at not in signs.redundant:
            return start + at
    return None


def _at_hidden(
    device: Device, journal: Journal, step: steps.HoldContent, sign: bytes, table: tuple[Extent, ...]
) -> int | None:
    views = views_at_source(journal, step, sign)
    start = step.source.start
    taken = (*taken_from(journal, step), *table)
    seen = compare(device, start, views[0], taken, others=views[1:])
    is_back = bool(seen.compared) and seen.ours is None and not taken and not _is_like_marker(views[0])
    if seen.other is not None:
        return seen.other
    return start if seen.shown or is_back else None


def _is_like_marker(view: View) -> bool:
    """Return whether the content consists of markers, such as one that an older move left behind."""
    size = len(view.sign)
    return all(part[at : at + size] == view.sign for part in view.content for at in range(0, len(part), size))


def source_view(journal: Journal, step: steps.HoldContent, sign: bytes) -> View:
    """Return the saved bytes of a partition, at its old place."""
    return View(step.held, journal.contents.held[step.partition], step.source.length, sign)


def views_at_source(journal: Journal, step: steps.HoldContent, sign: bytes) -> tuple[View, View]:
    """Return the saved bytes of a partition as views from the old place and from the new one."""
    view = source_view(journal, step, sign)
    targets = (one.target for one in journal.contents.plan.copies if one.partition == step.partition)
    return view, replace(view, base=next(targets, step.source).start - step.source.start)


def taken_from(journal: Journal, step: steps.HoldContent) -> tuple[Extent, ...]:
    """Return the extents of the disk in which the change may have written over the markers of a partition:
    what is copied, what is released, and the sectors of EBRs. In between, the markers stay, also at a new
    place.
    """
    contents = journal.contents
    position = journal.position
    # Journals of older versions do not state whether a rollback was begun.
    is_unknown = contents.brought is None and position.step >= _first_copy(contents.plan)
    is_any = not position.forward or journal.newest.turned or is_unknown
    places: list[Extent] = []
    for index, one in enumerate(contents.plan.steps):
        if not is_any and position.step < index:
            break
        match one:
            case steps.CopyContent():
                written: Sequence[Extent] = contents.runs[one.partition]
            case steps.ReleaseContent():
                written = one.held.ranges
            case _:
                continue
        places += (Extent(one.target.start + extent.start, extent.length) for extent in written)
    has_records = is_any and not contents.images.of_whole_disk  # a rollback leaves the new EBRs
    if has_records or position.step >= contents.plan.commit_at:
        places += [Extent(sectors.at, len(sectors.data)) for sectors in contents.images.sectors]
    return tuple(dict.fromkeys(places))


def _first_copy(plan: MovePlan) -> int:
    return next((index for index, _ in plan.numbered(steps.CopyContent)), len(plan.steps))


def first_difference(device: Device, start: int, view: View, taken: Sequence[Extent] = ()) -> int | None:
    """Return the first byte of a sector that differs from the content of the view. `taken`: see `compare`."""
    size = len(view.sign)
    found = _read_sectors(device, start, view, taken)
    return next((start + at for at, sector in found.items() if sector != view.read(at, size)), None)


# Content that is rebuilt in place.


def rebuilt_view(journal: Journal, step: steps.RebuildContent, sign: bytes, *, after: bool) -> View:
    """Return the bytes of a partition that is rebuilt, as they were before or as they will be."""
    held = journal.contents.held[step.partition]
    count = len(step.held.ranges)
    return View(step.held, held[count:] if after else held[:count], step.extent.length, sign)


def first_unfinished(
    device: Device, journal: Journal, step: steps.RebuildContent, sign: bytes, *, after: bool
) -> int | None:
    """Return the first byte of a sector of rebuilt content that is hidden, or still what it was before it was
    rebuilt. `after` False: before that was undone.

    Of visible content, which may be used, only the sectors with signatures are compared: a program that
    deletes a file that was moved makes others what they were before.
    """
    wanted, other = (rebuilt_view(journal, step, sign, after=which) for which in (after, not after))
    signatures = hidden_part(wanted, other).ranges
    is_used = is_visible(device, step.extent.start, wanted)
    for at, sector in _read_sectors(device, step.extent.start, wanted, ()).items():
        contents = wanted.read(at, len(sector)), other.read(at, len(sector))
        if sector == contents[0]:
            continue
        is_compared = not is_used or any(one.contains(Extent(at, len(sector))) for one in signatures)
        is_other = is_compared and sector == contents[1]
        if is_other or has_marker_text(sector, contents, sign, byte=is_compared):
            return step.extent.start + at
    return None


def check_rebuilt(device: Device, journal: Journal, sign: bytes, *, after: bool) -> None:
    """Raise Stopped if a part of rebuilt content is of the other state: no table may show a mixture."""
    for step in journal.contents.plan.rebuilds:
        at = first_unfinished(device, journal, step, sign, after=after)
        if at is not None:
            text = (
                f"the content of partition {step.partition} is incomplete at byte {at}; the journal is kept"
            )
            raise Stopped(text)


def hidden_part(before: View, after: View) -> steps.SavedRanges:
    """Return the ranges that are hidden while the rest is rebuilt: those with a signature, before or after,
    and the first sector, in which a marker leads to the journal.
    """
    size = len(before.sign)
    sectors = {
        at for view in (before, after) for place in signature_ranges(view) for at in _sectors(place, size)
    }
    sectors |= {0}
    ranges: list[Extent] = []
    for extent in before.held.ranges:
        inside = (Extent(at, size) for at in sectors if extent.contains(Extent(at, size)))
        ranges += merged(inside, extent, size)
    return steps.SavedRanges(tuple(ranges))


def _sectors(extent: Extent, size: int) -> range:
    return range(align_down(extent.start, size), extent.end, size)


def has_hidden_byte(device: Device, journal: Journal, step: steps.RebuildContent, sign: bytes) -> bool:
    """Return whether the sector of a deciding signature is there, and only that signature is hidden."""
    for after in (False, True):
        view = rebuilt_view(journal, step, sign, after=after)
        deciding: Bytes = frozenset().union(*signature_bytes(view).last)
        hidden = replace(view, content=with_markers(view, frozenset(), deciding))
        for at in sectors_of(deciding, len(sign)):
            if read_or_empty(device, step.extent.start + at, len(sign)) == hidden.read(at, len(sign)):
                return True
    return False


def views_of_rebuilt(
    journal: Journal, step: steps.RebuildContent, sign: bytes, *, after: bool
) -> tuple[View, View]:
    """Return the bytes of a partition that is rebuilt, before or after, and the part of them that is hidden
    meanwhile.
    """
    views = [rebuilt_view(journal, step, sign, after=which) for which in (False, True)]
    return views[after], part_of(views[after], hidden_part(*views))


def is_rebuilt_shown(
    device: Device, journal: Journal, index: int, step: steps.RebuildContent, sign: bytes
) -> bool:
    """Return whether the step was cut while it showed the content in its new state, or in its old one again,
    and the content is visible.
    """
    position = journal.position
    if position.step != index or position.batch != SHOWING:
        return False
    signatures = views_of_rebuilt(journal, step, sign, after=position.forward)[1]
    return is_visible(device, step.extent.start, signatures)


def is_rebuilding(position: Position, index: int) -> bool:
    """Return whether a step that rebuilds content may have written a part of it."""
    return position.step == index and position != Position(index)


def found_at_rebuilt(
    device: Device, journal: Journal, index: int, step: steps.RebuildContent, sign: bytes
) -> tuple[Found, int]:
    """Return what is at the place of content that is rebuilt, and the first byte that another program
    changed.
    """
    before, after = (rebuilt_view(journal, step, sign, after=which) for which in (False, True))
    start = step.extent.start
    position = journal.position
    if not is_rebuilding(position, index):
        at = first_difference(device, start, after if position.step > index else before)
        return (Found.WHOLE, start) if at is None else (Found.USED, at)
    if is_rebuilt_shown(device, journal, index, step, sign):
        return Found.WHOLE, start
    if position.batch == HIDDEN_FIRST and _has_nothing_of(device, start, before, after):
        return Found.USED, start
    seen = compare(device, start, before, also=after.content)
    if seen.other is not None:
        return Found.CHANGED, seen.other
    if position.batch < HIDDEN_FIRST:
        return Found.HIDDEN, start
    for view in (before, after):
        own = compare(device, start, view, also=())
        if own.shown:
            redundant = signature_bytes(before).redundant | signature_bytes(after).redundant
            at = _first_other(device, start, (before, after), redundant)
            return (Found.WHOLE, start) if at is None else (Found.CHANGED, at)
    return Found.HIDDEN, start


def _has_nothing_of(device: Device, start: int, before: View, after: View) -> bool:
    """Return whether the old content is shown, with nothing of the new one and no marker in it, but is not as
    it was:
    a system has used it before anything was hidden.
    """
    seen = compare(device, start, before)
    size = len(before.sign)
    if not seen.shown or seen.ours is not None or seen.other is None:
        return False
    found = _read_sectors(device, start, before, ())
    return not any(sector == after.read(at, size) != before.read(at, size) for at, sector in found.items())


def _first_other(device: Device, start: int, views: Sequence[View], redundant: Bytes) -> int | None:
    """Return the first byte of a sector that prevents the place from being whole, in whichever of the
    views.
    """
    firsts = []
    for view in views:
        size = len(view.sign)
        skipped = sectors_of(redundant, size)
        found = _read_sectors(device, start, view, ())
        differing = (
            at for at, sector in found.items() if at not in skipped and sector != view.read(at, size)
        )
        firsts.append(next(differing, None))
    return None if None in firsts else start + min(at for at in firsts if at is not None)


def _at_rebuilt(
    device: Device, journal: Journal, index: int, step: steps.RebuildContent, sign: bytes, *, back: bool
) -> tuple[int | None, bool]:
    """Return the byte that stops the work at content that is rebuilt, and whether the content is whole."""
    position = journal.position
    is_complete = index < journal.position.step
    is_done = not (is_complete or is_rebuilding(position, index)) if back else is_complete
    if is_done:
        return first_unfinished(device, journal, step, sign, after=not back), False
    found, at = found_at_rebuilt(device, journal, index, step, sign)
    is_used = found is Found.USED and not back
    return (
        at if found is Found.CHANGED or is_used or (found is Found.USED and is_complete) else None
    ), is_used
