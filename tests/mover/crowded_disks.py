"""Small crowded disks with plans to move their partitions: a target may overlap a neighbour that has yet to move.

Tables are written by sfdisk. The numbers are as small as possible, so that every operation can be cut.
"""

import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from aligntool.change import MovePlan, Place
from aligntool.steps import (
    CloseJournal,
    CopyContent,
    CopyStrips,
    EntryChange,
    HoldContent,
    JournalPlace,
    ParkEntries,
    Patch,
    ReleaseContent,
    RewriteTable,
    SavedRanges,
    Step,
    Subject,
    WriteJournal,
)
from aligntool.units import Extent
from tests.conftest import run
from tests.mover.simulated_disk import SECTOR

FIRST = 64  # the first sector where a partition may begin
PATCH_AT = 28
JOURNAL = 3 * (1 << 17)


@dataclass(frozen=True, slots=True)
class Part:
    number: int
    old: Extent
    new: Extent
    runs: tuple[Extent, ...]
    held: SavedRanges
    signs: tuple[tuple[int, bytes], ...]  # the signature that identifies it, the one that libblkid checks first
    record_old: int | None = None
    record_new: int | None = None

    @property
    def moves(self) -> bool:
        return self.old != self.new


@dataclass(frozen=True, slots=True)
class Crowd:
    label: str
    platter: bytes
    parts: tuple[Part, ...]
    plan: MovePlan

    @property
    def runs(self) -> dict[int, tuple[Extent, ...]]:
        return {part.number: part.runs for part in self.parts if part.moves}

    def content(self, platter: bytes, part: Part, start: int) -> tuple[bytes, ...]:
        """Return the used content of a partition that begins at `start`, without the patched field."""
        wanted = sorted({*part.runs, *part.held.ranges})
        return tuple(_unpatched(platter[start + it.start : start + it.end], it.start, part.held) for it in wanted)


def _unpatched(raw: bytes, start: int, held: SavedRanges) -> bytes:
    """Remove the field with the partition's start, which every made-up partition has at byte 28."""
    if start == 0 and held.ranges[0].start == 0:
        return raw[:PATCH_AT] + bytes(4) + raw[PATCH_AT + 4 :]
    return raw


def make_crowd(seed: int, label: str, *, longest: int = 60, copy_length: int = 1 << 17) -> Crowd:
    """Make the same disk for the same seed. One whose moves cannot be ordered is drawn again.

    `longest`: the sectors of the longest partition.
    """
    luck = random.Random(seed)
    while True:
        parts = _dos_parts(luck, longest) if label == "dos" else _gpt_parts(luck, longest)
        order = _order([part for part in parts if part.moves])
        if order:
            return _crowd(luck, label, parts, order, copy_length)


def make_tiny(seed: int, label: str) -> Crowd:
    """Make a disk with so few sectors to write that every subset of them can be tried."""
    return make_crowd(seed, label, longest=7, copy_length=1 << 16)


def make_noisy(seed: int, label: str) -> Crowd:
    """Make a disk with random data in all bytes that no table lists, except the journal's place and the new places of
    partitions, which hold zeros.
    """
    crowd, luck = make_crowd(seed, label), random.Random(seed)
    (place,) = (step.journal.extent for step in crowd.plan.steps if isinstance(step, WriteJournal))
    kept = [Extent(0, FIRST * SECTOR), Extent(len(crowd.platter) - 34 * SECTOR, 34 * SECTOR)]
    for part in crowd.parts:
        kept += [part.old, *(Extent(at, SECTOR) for at in (part.record_old, part.record_new) if at is not None)]
    zeros = [place, *(part.new for part in crowd.parts)]
    platter = bytearray(crowd.platter)
    for at in range(0, len(platter), SECTOR):
        sector = Extent(at, SECTOR)
        if any(extent.overlaps(sector) for extent in kept):
            continue
        is_zero = any(extent.overlaps(sector) for extent in zeros)
        platter[at : at + SECTOR] = bytes(SECTOR) if is_zero else luck.randbytes(SECTOR)
    return replace(crowd, platter=bytes(platter))


def _lay_out(luck: random.Random, count: int, gap: int, first: int, longest: int) -> list[tuple[int, int]]:
    """Return starts and lengths in sectors."""
    found, at = [], first
    for _ in range(count):
        at += luck.choice((gap, gap + luck.randint(0, 20)))
        length = luck.randint(1, longest)
        found.append((at, length))
        at += length
    return found


def _again(luck: random.Random, old: list[tuple[int, int]], gap: int, first: int) -> list[tuple[int, int]]:
    """Place the same lengths elsewhere, in the same order: near their old places, or packed differently."""
    found, at = [], first
    for start, length in old:
        low = at + gap
        wish = luck.choice((start, start + luck.randint(-12, 12), low, low + luck.randint(0, 20)))
        begin = max(low, wish)
        found.append((begin, length))
        at = begin + length
    return found


def _gpt_parts(luck: random.Random, longest: int) -> list[Part]:
    old = _lay_out(luck, luck.randint(1, 4), 0, FIRST, longest)
    new = _again(luck, old, 0, FIRST)
    return [_part(luck, number, *pair) for number, pair in enumerate(zip(old, new, strict=True), 1)]


def _dos_parts(luck: random.Random, longest: int) -> list[Part]:
    """Return primaries, and sometimes a container (number 4) with logicals, each preceded by one sector for its EBR."""
    primaries = luck.randint(0, 2)
    logicals = luck.randint(0 if primaries else 1, 3)
    old = _lay_out(luck, primaries, 0, FIRST, longest)
    new = _again(luck, old, 0, FIRST)
    parts = [_part(luck, number, *pair) for number, pair in enumerate(zip(old, new, strict=True), 1)]
    if logicals:
        first = max([start + length for start, length in (*old, *new)], default=FIRST) + luck.randint(0, 5)
        inside = _lay_out(luck, logicals, 1, first, longest)
        moved = _again(luck, inside, 1, first)
        for index, (was, is_) in enumerate(zip(inside, moved, strict=True)):
            record = first if index == 0 else was[0] - 1
            record_new = first if index == 0 else is_[0] - 1
            parts.append(_part(luck, 5 + index, was, is_, record, record_new))
    return parts


def _part(
    luck: random.Random,
    number: int,
    old: tuple[int, int],
    new: tuple[int, int],
    record_old: int | None = None,
    record_new: int | None = None,
) -> Part:
    length = old[1]
    head, tail = min(luck.randint(1, 6), length), luck.randint(0, 3)
    ranges = [Extent(0, head * SECTOR)]
    if tail and head + tail < length:
        ranges.append(Extent((length - tail) * SECTOR, tail * SECTOR))
    signs = [(at, magic) for at, magic in _signs(length) if any(it.start <= at < it.end for it in ranges)]
    runs, at = [], luck.randint(0, length // 2)
    while at < length:
        size = luck.randint(1, length - at)
        runs.append(Extent(at * SECTOR, size * SECTOR))
        at += size + luck.randint(1, 12)
    return Part(
        number,
        Extent(old[0] * SECTOR, length * SECTOR),
        Extent(new[0] * SECTOR, length * SECTOR),
        tuple(runs),
        SavedRanges(tuple(ranges)),
        tuple(sorted(luck.sample(signs, luck.randint(1, len(signs))), key=signs.index)),
        None if record_old is None else record_old * SECTOR,
        None if record_new is None else record_new * SECTOR,
    )


def _signs(length: int) -> tuple[tuple[int, bytes], ...]:
    """Return magics of libblkid, in its order, no two in one sector: LSI RAID, LVM, XFS, ext and SysV."""
    at_the_end = (((length - 1) * SECTOR, b"$XIDE$"),) if length > 5 else ()
    return (*at_the_end, (536, b"LVM2 001"), (0, b"XFSB"), (1080, b"\x53\xef"), (2048, b"\x2b\x55\x44"))


def _order(moving: list[Part]) -> list[Part]:
    """Return an order in which no target covers a source that is still to be copied; empty if there is none."""
    left, order = list(moving), []
    while left:
        free = [it for it in left if not any(it.new.overlaps(other.old) for other in left if other is not it)]
        if not free:
            return []
        order.append(free[0])
        left.remove(free[0])
    return order


def _crowd(luck: random.Random, label: str, parts: list[Part], order: list[Part], copy_length: int) -> Crowd:
    end = max(extent.end for part in parts for extent in (part.old, part.new))
    start = -(-end // 65536) * 65536
    place = JournalPlace(Extent(start, 3 * copy_length), copy_length, Extent(2 * copy_length, copy_length))
    size = place.extent.end + 65536
    platter = _platter(luck, label, parts, size, _container(parts))
    return Crowd(label, platter, tuple(parts), _plan(luck, label, parts, order, place, size))


def _container(parts: list[Part]) -> Extent | None:
    logicals = [part for part in parts if part.record_old is not None]
    if not logicals:
        return None
    first = logicals[0].record_old or 0
    return Extent(first, max(max(part.old.end, part.new.end) for part in logicals) - first)


def _platter(luck: random.Random, label: str, parts: list[Part], size: int, container: Extent | None) -> bytes:
    platter = bytearray(luck.randbytes(size) if luck.random() < 0.5 else size)
    platter[: FIRST * SECTOR] = bytes(FIRST * SECTOR)
    platter[-34 * SECTOR :] = bytes(34 * SECTOR)
    sparse = luck.choice((0.1, 0.5, 0.9))
    for part in parts:
        signed = {at // SECTOR * SECTOR for at, _ in part.signs}
        for at in range(0, part.old.length, SECTOR):
            hole = luck.random() < sparse and at not in signed  # like a sparse image
            platter[part.old.start + at : part.old.start + at + SECTOR] = (
                bytes(SECTOR) if hole else luck.randbytes(SECTOR)
            )
        for at, magic in part.signs:
            platter[part.old.start + at : part.old.start + at + len(magic)] = magic
        field = (part.old.start // SECTOR).to_bytes(4, "little")
        platter[part.old.start + PATCH_AT : part.old.start + PATCH_AT + 4] = field
    lines = [f"label: {label}", "first-lba: 34" if label == "gpt" else "label-id: 0x12345678", "unit: sectors"]
    entries = [(part.number, part.old, "L") for part in parts]
    if container:
        entries.append((4, container, "E"))
    for number, extent, kind in sorted(entries):
        kind = "0x83" if kind == "L" and label == "dos" else kind
        lines.append(f"{number} : start={extent.start // SECTOR}, size={extent.length // SECTOR}, type={kind}")
    with tempfile.NamedTemporaryFile(suffix=".img") as file:
        file.write(platter)
        file.flush()
        run("sfdisk", "--no-reread", "--no-tell-kernel", "--wipe", "never", "--wipe-partitions", "never", file.name,
            stdin="\n".join(lines) + "\n")  # fmt: skip
        return Path(file.name).read_bytes()


def _plan(
    luck: random.Random, label: str, parts: list[Part], order: list[Part], place: JournalPlace, size: int
) -> MovePlan:
    logical = any(part.record_old is not None for part in order)
    numbers = tuple(part.number for part in order)
    parked = tuple(sorted({4 if part.record_old is not None else part.number for part in order}))
    changed = [part for part in parts if part.moves or (logical and part.record_old is not None)]
    steps: list[Step] = [WriteJournal(place), ParkEntries(numbers, parked)]
    steps += [HoldContent(part.number, part.old, part.held) for part in order]
    steps += [
        CopyContent(part.number, "ext4", part.old, part.new, part.held, _lanes(luck, part, place)) for part in order
    ]
    steps += [ReleaseContent(part.number, "ext4", part.new, part.held, _patches(part)) for part in order]
    changes = tuple(EntryChange(part.number, part.old, part.new, part.record_old, part.record_new) for part in changed)
    steps += [RewriteTable(label, changes), CloseJournal(place)]
    places = tuple(Place(part.number, part.old, part.new, "made up") for part in parts)
    disk = Subject("crowd.img", size, SECTOR, label, None, None, None, None, "")
    return MovePlan("realign", disk, "anywhere", places, tuple(steps))


def _lanes(luck: random.Random, part: Part, place: JournalPlace) -> CopyStrips:
    distance = abs(part.new.start - part.old.start)
    staged = distance <= 2 * SECTOR
    window = luck.randint(1, 30) * SECTOR if staged else luck.randint(1, distance // SECTOR) * SECTOR
    batch, group = luck.randint(1, 40) * SECTOR, luck.randint(1, 60) * SECTOR
    return CopyStrips(window, batch, group, luck.choice((place.stash.length, 30 * SECTOR)), staged)


def _patches(part: Part) -> tuple[Patch, ...]:
    return (Patch("hidden sectors", PATCH_AT, 4, part.old.start // SECTOR, part.new.start // SECTOR),)
