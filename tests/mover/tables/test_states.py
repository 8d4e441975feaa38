"""A power cut leaves a table in the state before or after the write, and either can be repaired."""

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.errors import Stopped
from aligntool.formats.parked import find_parked
from aligntool.mover.table import TableImages, TableState, groups_leading_to, table_state
from aligntool.steps import EntryChange
from aligntool.units import MIB, Extent
from tests.formats.gpt_images import entry, gpt_disk
from tests.formats.images import disk, mbr
from tests.mover.tables.disks import JOURNAL_AT, MemoryDevice, images_for
from tests.thorough import examples

BEFORE, PARKED, AFTER, OTHER = TableState.BEFORE, TableState.PARKED, TableState.AFTER, TableState.OTHER
SECTOR = 512
SECTORS = 12288  # so that the place of the journal is on the disk


@dataclass(frozen=True)
class Case:
    content: bytes
    images: TableImages

    def device(self) -> MemoryDevice:
        return MemoryDevice(bytearray(self.content))


def at(start: int, length: int = 100) -> Extent:
    return Extent(start * SECTOR, length * SECTOR)


def gpt_case() -> Case:
    entries = b"".join(entry(start, start + 98) for start in (101, 201, 301, 401, 501, 601, 701, 801))
    content = gpt_disk(entries, sectors=SECTORS)
    changes = [EntryChange(number, at(100 * number + 1, 99), at(100 * number, 99)) for number in (1, 2, 5, 8)]
    return Case(content, images_for(MemoryDevice(bytearray(content)), "gpt", changes, [1, 2, 5, 8]))


def mbr_case() -> Case:
    """The chain changes and sector 0 does not: only the EBRs distinguish the old table from the new one."""
    content = disk(
        SECTORS * SECTOR,
        (0, mbr((0x83, 64, 64, 0x80), (0x05, 1000, 3000, 0))),
        (1000 * SECTOR, mbr((0x83, 63, 100, 0), (0x05, 1000, 163, 0))),
        (2000 * SECTOR, mbr((0x83, 63, 100, 0), (0x05, 2000, 163, 0))),
        (3000 * SECTOR, mbr((0x83, 63, 100, 0))),
    )
    changes = [
        EntryChange(5, at(1063), at(1064), 1000 * SECTOR, 1000 * SECTOR),
        EntryChange(7, at(3063), at(3000), 3000 * SECTOR, 2900 * SECTOR),
    ]
    return Case(content, images_for(MemoryDevice(bytearray(content)), "dos", changes, [2]))


GPT, MBR = gpt_case(), mbr_case()
CASES = pytest.mark.parametrize("case", [GPT, MBR], ids=["gpt", "mbr"])
SURVIVORS = st.frozensets(st.integers(0, 32))
NEIGHBOURS = {BEFORE: (PARKED,), PARKED: (BEFORE, AFTER), AFTER: (PARKED,)}


def cut(device: MemoryDevice, images: TableImages, goal: TableState, draw: st.DataObject) -> None:
    way = groups_leading_to(device, images, goal)
    group = draw.draw(st.integers(0, len(way) - 1), label="group")
    device.write_until_cut(way, group, draw.draw(SURVIVORS, label="sectors that were written"))


@CASES
def test_each_table_state_is_recognised_and_only_the_parked_table_has_a_mark(case: Case) -> None:
    device = case.device()
    for state, images in ((BEFORE, case.images.before), (PARKED, case.images.parked), (AFTER, case.images.after)):
        device.put(images)
        assert table_state(device, case.images) is state
        mark = find_parked(device)
        assert (mark is not None and mark.journal_at == JOURNAL_AT) == (state is PARKED)


@CASES
@pytest.mark.parametrize(("start", "goal"), [(BEFORE, PARKED), (PARKED, AFTER), (PARKED, BEFORE)])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_cut_leaves_the_table_before_or_after_the_write(
    case: Case, start: TableState, goal: TableState, data: st.DataObject
) -> None:
    device = case.device()
    device.put(case.images.of(start))
    images = case.images.of(goal)
    group = data.draw(st.integers(0, len(images) - 1), label="group")
    device.write_until_cut(images, group, data.draw(SURVIVORS, label="sectors that were written"))
    assert table_state(device, case.images) in (start, goal)
    if TableState.PARKED is table_state(device, case.images):
        assert find_parked(device) is not None


@CASES
@settings(max_examples=examples(60))
@given(data=st.data())
def test_after_consecutive_cuts_the_table_can_be_brought_to_its_goal_state(case: Case, data: st.DataObject) -> None:
    device = case.device()
    for _ in range(data.draw(st.integers(1, 6), label="cuts")):
        now = table_state(device, case.images)
        goal = data.draw(st.sampled_from(NEIGHBOURS[now]), label="goal")
        cut(device, case.images, goal, data)
        assert table_state(device, case.images) in (now, goal)
    now = table_state(device, case.images)
    for goal in (now, *NEIGHBOURS[now]):
        again = MemoryDevice(bytearray(device.content))
        again.put(groups_leading_to(again, case.images, goal))
        assert table_state(again, case.images) is goal
        assert all(bytes(again.read(part.at, len(part.data))) == part.data
                   for group in case.images.of(goal) for part in group)  # fmt: skip


def test_writing_the_backup_first_would_lose_a_torn_primary_copy() -> None:
    """This is why `groups_leading_to` begins with the group that decides."""
    device = GPT.device()
    device.put(GPT.images.before)
    device.write_until_cut(GPT.images.parked, 1, [0])
    assert table_state(device, GPT.images) is PARKED
    torn = bytes(device.content)
    device.write_until_cut(GPT.images.before, 0, [0])
    assert table_state(device, GPT.images) is OTHER
    way = groups_leading_to(MemoryDevice(bytearray(torn)), GPT.images, BEFORE)
    for group in range(len(way)):
        again = MemoryDevice(bytearray(torn))
        again.write_until_cut(way, group, [0])
        assert table_state(again, GPT.images) is not OTHER


@CASES
def test_a_table_that_another_program_wrote_is_recognised_as_foreign(case: Case) -> None:
    device = case.device()
    if case is GPT:
        device.put(((*case.images.parked[0],),))
        other = gpt_disk(entry(5000, 5099), sectors=SECTORS)
    else:
        other = disk(SECTORS * SECTOR, (0, mbr((0x83, 5000, 100, 0))))
    device.content[: 34 * SECTOR] = other[: 34 * SECTOR]
    assert table_state(device, case.images) is OTHER
    with pytest.raises(Stopped, match="another program"):
        groups_leading_to(device, case.images, PARKED)


def test_a_chain_that_another_program_changed_is_recognised_as_foreign() -> None:
    device = MBR.device()
    device.put(MBR.images.after)
    device.content[1000 * SECTOR + 450] ^= 1
    assert table_state(device, MBR.images) is OTHER


@CASES
def test_a_table_cannot_be_changed_without_the_parked_state(case: Case) -> None:
    device = case.device()
    with pytest.raises(Stopped, match="cannot be changed"):
        groups_leading_to(device, case.images, AFTER)


def test_the_backup_is_complete_before_the_primary_is_written() -> None:
    device = GPT.device()
    device.put(GPT.images.parked)
    assert device.written == [(SECTORS - 33) * SECTOR, (SECTORS - 1) * SECTOR, 2 * SECTOR, SECTOR]


def test_a_mark_found_only_in_the_backup_is_reported_as_such() -> None:
    device = GPT.device()
    device.put(GPT.images.parked[:1])
    mark = find_parked(device)
    assert mark is not None and mark.only_backup
    device.put(GPT.images.parked)
    mark = find_parked(device)
    assert mark is not None and not mark.only_backup
    device.content[SECTOR] ^= 1  # the primary header is lost
    mark = find_parked(device)
    assert mark is not None and not mark.only_backup


def test_a_torn_primary_still_leads_to_the_journal() -> None:
    device = GPT.device()
    device.put(GPT.images.parked)
    device.write_until_cut(GPT.images.after, 1, [1])
    assert table_state(device, GPT.images) is AFTER
    mark = find_parked(device)
    assert mark is not None and mark.journal_at == JOURNAL_AT


def test_an_intact_copy_is_preferred_to_a_torn_one() -> None:
    device = GPT.device()
    others = images_for(device, "gpt", [EntryChange(1, at(101, 99), at(100, 99))], [1], journal_at=4 * MIB)
    device.put(GPT.images.parked)
    torn = others.parked[-1][0]
    device.write(torn.at, torn.data)
    mark = find_parked(device)
    assert mark is not None and mark.journal_at == JOURNAL_AT


@pytest.mark.parametrize(
    "fields",
    [
        (0, b"\xfe\xff\xff", b"\xfe\xff\xff", 100),  # maxed CHS: type 0x7F of another program
        (0x80, b"\x80\0\0", bytes(3), 100),  # active: ours never are
        (0, b"\x80\0\0", bytes(3), 0),  # not a partition
        (0, bytes(3), bytes(3), 100),  # a journal in sector 0
        (0, b"\x81\0\0", bytes(3), 100),  # not a multiple of 64 KiB
        (0, b"\x80\0\0", b"\0\1\0", 100),  # a journal beyond the end
    ],
)
def test_type_7f_without_the_address_of_a_journal_is_not_a_mark(fields: tuple[int, bytes, bytes, int]) -> None:
    status, start, end, sectors = fields
    sector = bytearray(mbr())
    struct.pack_into("<B3sB3sII", sector, 446, status, start, 0x7F, end, 64, sectors)
    assert find_parked(MemoryDevice(bytearray(disk(SECTORS * SECTOR, (0, bytes(sector)))))) is None
    struct.pack_into("<B3sB3sII", sector, 446, 0, b"\x80\0\0", 0x7F, bytes(3), 64, 100)
    mark = find_parked(MemoryDevice(bytearray(disk(SECTORS * SECTOR, (0, bytes(sector))))))
    assert mark is not None and mark.journal_at == 64 * 1024


@settings(max_examples=examples(150))
@given(
    start=st.binary(max_size=4 * SECTOR),
    sector_size=st.sampled_from((512, 4096)),
    broken=st.lists(st.tuples(st.integers(0, 34 * SECTOR - 1), st.integers(0, 255)), max_size=8),
    parked=st.booleans(),
)
def test_the_search_for_a_mark_raises_no_error_on_any_input(
    start: bytes, sector_size: int, broken: list[tuple[int, int]], parked: bool
) -> None:
    device = GPT.device()
    if parked:
        device.put(GPT.images.parked)
    device.content[: len(start)] = start
    for place, value in broken:
        device.content[place] = device.content[-1 - place] = value
    device.sector_size = sector_size
    find_parked(device)
    find_parked(MemoryDevice(bytearray(start[: len(start) // sector_size * sector_size]), sector_size))
