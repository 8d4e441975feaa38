"""Convert the table of a disk to another sector size: images of the table before, in flight and after."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aligntool import steps
from aligntool.change import MovePlan
from aligntool.commands import DISK, ByHand, Command, Hint, typed
from aligntool.device import Device, Sectors, Writing
from aligntool.errors import Refused
from aligntool.formats.gpt import MOST_ENTRIES, GptCopy, GptEntry, new_copy, read_bytes, table_sizes
from aligntool.formats.mbr import moved_entry, protective_mbr, with_entries
from aligntool.inventory import TableLabel
from aligntool.mover import table as tables
from aligntool.mover.claimed_room import claims_of
from aligntool.mover.hidden_signatures import marker
from aligntool.units import Extent, align_down, align_up

# The old GPT and the new one overlap, so in flight there is none: markers cover both, and a backup GPT with
# parked entries is in the last sectors, as when a table is made (mover/whole_disk.py). The groups of all
# three images cover the same bytes, sector 0 last, so the disk is in one of the three states exactly if all
# these bytes match its image, as for an MBR (mover/table.py). docs/decisions/0042 has the argument. An MBR
# stays in sector 0, so its images are those of a move.

SIZES = (512, 4096)
BLOCK = 4096  # unit of writing, planning and judging: whole sectors of either size
_ARRAY = 16 * 1024  # bytes of 128 entries


def check_sizes(sizes: tuple[int, ...]) -> None:
    """Raise ValueError for sizes that no option can request: a plan may come from a file."""
    if sizes not in ((512,), (4096,), SIZES):
        raise ValueError("sector_sizes: neither 512, 4096 nor both")


def table_places(label: str, size: int, sector_sizes: Sequence[int]) -> tuple[Extent, Extent]:
    """Return the extents that the old and the new table cover at the start and at the end of the disk. The
    disk may be longer than whole blocks only if it is written to by a copy: it has the backup header for 512
    in its last sector.
    """
    end = align_down(size, BLOCK)
    last = align_down(size, min(sector_sizes))
    if label == TableLabel.DOS:
        return Extent(0, BLOCK), Extent(end, 0)
    head, tail = table_sizes(BLOCK)
    more = _ARRAY if len(sector_sizes) > 1 else 0
    return Extent(0, head + more), Extent(end - tail - more, last - end + tail + more)


def convert_images(
    device: Device, plan: MovePlan, *, journal_at: int | None, journal_id: bytes
) -> tables.TableImages:
    """Return the images of the table for a conversion. Writes nothing.

    Raises Refused if the table is not the one for which the plan was made, or its place contains anything
    else.
    """
    rewrite = plan.of(steps.ConvertTable)[0]
    if rewrite.label == TableLabel.DOS:
        return _mbr_images(device, plan, rewrite, journal_at)
    size = plan.disk.size
    old_size = plan.disk.sector_size
    unit = device.sector_size
    pair = tables.sound_pair(device, old_size)
    changes = {change.number: change for change in rewrite.changes}
    found = {entry.number: entry.extent(old_size) for entry in pair[0].used_entries()}
    tables.check_before(found, changes)
    if set(found) != set(changes):
        raise _other_partition()
    head, tail = table_places(rewrite.label, size, rewrite.sector_sizes)
    before = bytes(device.read(head.start, head.length)), bytes(device.read(tail.start, tail.length))
    refuse_other_content(pair, (head, tail), before)
    claims = claims_of(plan.steps)
    parked = tables.parked_gpt_entries(
        pair[0], plan.park, journal_at=journal_at, journal_id=journal_id, claims=claims
    ).values()
    last = size // old_size - 1
    array = align_up(_ARRAY, old_size) // old_size
    mark = new_copy(old_size, last, 1, last - array, pair[0].usable, pair[0].header.disk_guid, parked)
    sign = marker(unit, journal_at, journal_id)
    hidden = sign * (head.length // unit), _copies_at(tail, [mark])
    after = new_table(pair[0], before[0], size, rewrite, (head, tail))
    return tables.TableImages(
        *(table_groups(head, tail, content, unit) for content in (before, hidden, after))
    )


def _other_partition() -> Refused:
    return tables.stale_plan("the table has a partition that is not in the plan")


def _mbr_images(
    device: Device, plan: MovePlan, rewrite: steps.ConvertTable, journal_at: int | None
) -> tables.TableImages:
    unit = device.sector_size
    mbr = tables.sound_mbr(device, with_chains=True, sector_size=plan.disk.sector_size)
    changes = {change.number: change for change in rewrite.changes}
    found = mbr.primaries | mbr.logicals
    tables.check_before(found, changes)
    if set(found) != set(changes):
        raise _other_partition()
    tables.check_parked(plan.park, set(mbr.entries))
    sector = _unit_at(device, 0, unit)
    after = converted_mbr(device, mbr, rewrite, unit)
    entries = tables.parked_mbr_entries(
        mbr, plan.park, journal_at=journal_at, claims=claims_of(plan.steps), disk_size=device.size
    )
    parked = with_entries(sector, entries)
    own = {at for chain in mbr.chains for at in chain.sectors}
    for sectors in tables.all_sectors(after[:-1]):
        if sectors.at not in own and any(_unit_at(device, sectors.at, 512)):
            raise _place_taken(sectors.at, sectors.at + 512)
    places = {align_down(at, unit) for at in own}
    places |= {sectors.at for sectors in tables.all_sectors(after[:-1])}
    ebrs = tuple(Sectors(at, _unit_at(device, at, unit)) for at in sorted(places))
    return tables.TableImages(tables.mbr_writing(ebrs, sector), tables.mbr_writing((), parked), after)


def converted_mbr(device: Device, mbr: tables.Mbr, rewrite: steps.ConvertTable, unit: int) -> Writing:
    """Return the MBR of a disk and its EBRs for another sector size, as sectors of `unit` bytes. Boot code,
    signature and flags stay, and so do the bytes behind the first 512 of a sector.
    """
    (new,) = rewrite.sector_sizes
    old = mbr.sector_size
    changes = {change.number: change for change in rewrite.changes}
    moved = {
        number: moved_entry(
            entry,
            changes[number].before,
            changes[number].after,
            sector_size=old,
            new_size=new,
            geometry=mbr.geometry,
        )
        for number, entry in mbr.entries.items()
    }
    ebrs = (ebr for chain in mbr.chains for ebr in tables.new_chain(chain, changes, old, mbr.geometry, new))
    sectors = tuple(Sectors(ebr.at, ebr.data[:512] + _unit_at(device, ebr.at, unit)[512:]) for ebr in ebrs)
    return tables.mbr_writing(sectors, with_entries(_unit_at(device, 0, unit), moved))


def _unit_at(device: Device, at: int, unit: int) -> bytes:
    return read_bytes(device, at, unit) or b""


def new_table(
    primary: GptCopy, sector_0: bytes, size: int, rewrite: steps.ConvertTable, places: tuple[Extent, Extent]
) -> tuple[bytes, bytes]:
    """Return the bytes at both places after the conversion, with the boot code and the boot flag of
    `sector_0`.
    """
    head, tail = places
    copies = [
        copy for unit in rewrite.sector_sizes for copy in _gpt_copies(primary, size, unit, rewrite, places)
    ]
    first, last = bytearray(_copies_at(head, copies)), _copies_at(tail, copies)
    count = 2**32 if len(rewrite.sector_sizes) > 1 else size // rewrite.sector_sizes[0]
    first[:512] = protective_mbr(sector_0[:512], count)
    return bytes(first), last


def _gpt_copies(
    primary: GptCopy, size: int, sector: int, rewrite: steps.ConvertTable, places: tuple[Extent, Extent]
) -> Iterator[GptCopy]:
    """Yield both copies of a GPT for sectors of `sector` bytes. If there are tables for both sizes, the
    entries of the table for 512 bytes lie behind those of the other at the start of the disk, and before them
    at its end.
    """
    head, tail = places
    beside = len(rewrite.sector_sizes) > 1 and sector != BLOCK
    start = max(primary.usable.start, head.end)
    grown = size > (primary.header.other_lba + 1) * primary.sector_size
    end = tail.start if grown else min(primary.usable.end, tail.start)
    usable = Extent(align_up(start, sector), align_down(end, sector) - align_up(start, sector))
    used = [_converted_entry(entry, rewrite, sector) for entry in primary.used_entries()]
    last = size // sector - 1
    arrays = 2 * sector, align_down(size, sector) - sector - align_up(_ARRAY, sector)
    if beside:
        arrays = head.end - _ARRAY, tail.start
    for own, other, at in ((1, last, arrays[0]), (last, 1, arrays[1])):
        yield new_copy(sector, own, other, at // sector, usable, primary.header.disk_guid, used)


def _converted_entry(entry: GptEntry, rewrite: steps.ConvertTable, sector: int) -> GptEntry:
    after = next(change.after for change in rewrite.changes if change.number == entry.number)
    return replace(entry, first=after.start // sector, last=after.end // sector - 1)


def _copies_at(place: Extent, copies: Sequence[GptCopy]) -> bytes:
    """Return the bytes of a place with the parts of these copies that lie in it; the rest is zeros.

    Only the bytes of a header are copied, not its whole sector: another header may lie in the same 4096
    bytes.
    """
    made = bytearray(place.length)
    for copy in copies:
        for sectors in copy.write_order:
            if place.start <= sectors.at < place.end:
                at = sectors.at - place.start
                data = sectors.data.rstrip(b"\0")
                made[at : at + len(data)] = data
    return bytes(made)


def refuse_other_content(pair: Sequence[GptCopy], places: Sequence[Extent], found: Sequence[bytes]) -> None:
    """Raise Refused if the place of a table contains bytes of anything else, or the table has an unusual
    form.
    """
    primary = pair[0]
    header = primary.header
    if header.entry_size != MOST_ENTRIES or any(
        entry.number > MOST_ENTRIES for entry in primary.used_entries()
    ):
        text = (
            f"it has {header.entry_count} entries of {header.entry_size} bytes; a usual GPT has 128 of 128"
            " bytes"
        )
        raise tables.unsound_table(text)
    known = [
        Extent(0, 512),
        *(extent for copy in pair for extent in (copy.header_extent, copy.entries_extent)),
    ]
    usual = Extent(places[1].end - primary.sector_size - len(primary.entries), len(primary.entries))
    for place, content in zip(places, found, strict=True):
        rest = bytearray(content)
        if place.contains(usual) and content[usual.start - place.start :].startswith(primary.entries):
            # sgdisk -e leaves these entries next to those that its backup header points to
            known.append(usual)
        for extent in known:
            start, end = max(extent.start, place.start), min(extent.end, place.end)
            if start < end:
                rest[start - place.start : end - place.start] = bytes(end - start)
        if any(rest):
            at = place.start + len(rest) - len(bytes(rest).lstrip(b"\0"))
            raise _place_taken(at, min([place.end, *(extent.start for extent in known if extent.start > at)]))


def _place_taken(at: int, end: int) -> Refused:
    text = f"byte {at} is where the new table goes, but holds data that is not part of the present one"
    look = typed("od -A d -c -j", at, "-N", end - at, DISK)
    clear = Command("dd", (DISK,), section=ByHand.EMPTYING, detail=f", {end - at} bytes from byte {at}")
    return Refused(text, hint=Hint(look, "\nif nothing needs it: ", clear), code="place-taken")


def table_groups(head: Extent, tail: Extent, content: tuple[bytes, bytes], unit: int) -> Writing:
    """Return the content of both places as sectors of `unit` bytes: the end of the disk first, sector 0
    last.
    """
    first, last = content
    return (
        (Sectors(tail.start, last),),
        (Sectors(unit, first[unit : head.length]),),
        (Sectors(0, first[:unit]),),
    )


def rebuilt_halves(
    step: steps.RebuildContent, held: Sequence[bytes]
) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the bytes in the journal of a partition that is rebuilt: those before, and those after."""
    count = len(step.held.ranges)
    return held[:count], held[count:]
