"""The MBR and the EBRs of a move, against tables that sfdisk and fdisk make and parted reads."""

import struct
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.formats.mbr import USUAL_GEOMETRY, moved_address
from aligntool.formats.parked import ParkedMark, find_parked
from aligntool.mover.table import TableState, table_state
from aligntool.steps import EntryChange
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.formats.images import disk, mbr
from tests.mover.tables.disks import (
    JOURNAL_AT,
    MemoryDevice,
    Sparse,
    changes_between,
    extents,
    images_for,
    made_by_sfdisk,
    moved,
    records,
    sfdisk_table,
)

HEAD = "label: dos\nlabel-id: 0x1234abcd\n"
PRIMARIES = (
    "1: start={}, size=20001, type=7, bootable\n2: start=30000, size=63, type=c\n4: start={}, size=40000, type=83\n"
)
LOGICALS = (
    "1: start=2048, size=2048, type=83\n2: start=6144, size=110000, type={container}\n"
    "5: start={}, size=18001, type=7\n6: start={}, size=20000, type=82, bootable\n7: start={}, size=20000, type=83\n"
)
LARGE_SECTORS = (
    "1: start=256, size=256, type=83\n2: start=600, size=9000, type=5\n"
    "5: start={}, size=501, type=7\n6: start={}, size=500, type=82, bootable\n7: start={}, size=500, type=83\n"
)
BOOT_CODE = bytes(range(1, 211)) * 2


def script(template: str, *starts: int, container: str = "5") -> str:
    return HEAD + template.format(*starts, container=container)


def sectors_of(device: MemoryDevice, *places: int | None) -> list[bytes]:
    return [bytes(device.read(at or 0, device.sector_size)) for at in places]


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(("old_starts", "new_starts"), [((63, 60000), (2048, 61440)), ((8191, 31000), (2048, 32768))])
def test_the_new_mbr_equals_the_one_that_sfdisk_makes_with_these_starts(
    sparse: Sparse, old_starts: tuple[int, int], new_starts: tuple[int, int]
) -> None:
    old = made_by_sfdisk(sparse, script(PRIMARIES, *old_starts), "old.img")
    new = made_by_sfdisk(sparse, script(PRIMARIES, *new_starts), "new.img")
    for path in (old, new):
        content = bytearray(path.read_bytes())
        content[:420] = BOOT_CODE
        path.write_bytes(content)
    device = MemoryDevice.of(old)
    images = images_for(device, "dos", changes_between(old, new), [1, 4])
    device.put(images.parked)
    device.put(images.after)
    assert device.content == new.read_bytes()
    device.put(images.before)
    assert device.content == old.read_bytes()


@pytest.mark.needs_tools("fdisk")
@pytest.mark.parametrize("heads", [16, 240])
def test_chs_addresses_follow_the_geometry_of_the_old_ones(sparse: Sparse, tmp_path: Path, heads: int) -> None:
    made = []
    for name, start in (("old", 63), ("new", 2048)):
        path = sparse(64 * MIB, f"{name}.img")
        source = tmp_path / f"{name}.sfdisk"
        source.write_text(f"{HEAD}1: start={start}, size=20000, type=83\n3: start=60000, size=5000, type=83\n")
        run("fdisk", "-H", str(heads), "-S", "63", path, stdin=f"I\n{source}\nw\n")
        made.append(path)
    old, new = made
    device = MemoryDevice.of(old)
    device.put(images_for(device, "dos", changes_between(old, new), [1]).after)
    assert device.content == new.read_bytes()


@pytest.mark.needs_tools("sfdisk")
def test_chs_addresses_beyond_1023_cylinders_are_those_that_sfdisk_writes(sparse: Sparse) -> None:
    template = "1: start={}, size=30000000, type=83\n2: start={}, size=1000, type=83\n"
    heads: list[tuple[bytes, dict[int, Extent]]] = []
    for starts in ((63, 40000001), (2048, 40001536), (20000000, 16434000)):
        path = made_by_sfdisk(sparse, script(template, 63, 40000001) if not heads else script(template, *starts),
                              f"{starts[0]}.img", size=40 * 1024 * MIB)  # fmt: skip
        with path.open("rb") as file:
            heads.append((file.read(MIB), extents(path)))
        path.unlink()
    (old, before), *others = heads
    for new, after in others:
        device = MemoryDevice(bytearray(old))
        changes = [EntryChange(number, before[number], after[number]) for number in (1, 2)]
        big = _Huge(device.content)
        assert images_for(big, "dos", changes, [1, 2]).after[-1][0].data == new[:512]


class _Huge(MemoryDevice):
    """A disk of 40 GiB of which only the first MiB exists."""

    @property
    def size(self) -> int:
        return 40 * 1024 * MIB


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("dummy", [b"\xfe\xff\xff", b"\xff\xff\xff", bytes(3)])
def test_placeholder_chs_addresses_are_kept(sparse: Sparse, dummy: bytes) -> None:
    path = made_by_sfdisk(sparse, script(PRIMARIES, 63, 60000))
    device = MemoryDevice.of(path)
    device.content[447:450] = device.content[451:454] = dummy
    images = images_for(device, "dos", [moved(1, extents(path)[1], 1985 * 512)], [1])
    made = images.after[-1][0].data
    assert struct.unpack_from("<B3sB3sII", made, 446) == (0x80, dummy, 7, dummy, 2048, 20001)


def test_a_chs_address_beyond_1023_cylinders_keeps_its_marker_value() -> None:
    for chs in (b"\xfe\xff\xff", b"\xff\xff\xff", b"\x0f\xff\xff"):
        assert moved_address(chs, 40000001, 40001536, USUAL_GEOMETRY) == chs
    assert moved_address(USUAL_GEOMETRY.address(63), 63, 40001536, USUAL_GEOMETRY) == b"\xfe\xff\xff"


@pytest.mark.needs_tools("sfdisk", "partx")
@pytest.mark.parametrize("journal_at", [JOURNAL_AT, None])
def test_in_flight_other_tools_see_type_7f_at_the_old_position(sparse: Sparse, journal_at: int | None) -> None:
    path = made_by_sfdisk(sparse, script(PRIMARIES, 63, 60000))
    device = MemoryDevice.of(path)
    old = sfdisk_table(path)["partitions"]
    change = moved(1, extents(path)[1], 512)
    device.put(images_for(device, "dos", [change], [1], journal_at=journal_at).parked)
    path.write_bytes(device.content)
    bootless = {key: value for key, value in old[0].items() if key != "bootable"}
    new = sfdisk_table(path)["partitions"]
    assert new[0] | {"size": bootless["size"]} == bootless | {"type": "7f"} and new[0]["size"] >= bootless["size"]
    assert [part for part in new if part["type"] != "7f"] == old[1:]  # the others claim free space that a move needs
    assert set(run("partx", "--show", "--noheadings", "-o", "TYPE", path).split()) == {"0x7f", "0xc", "0x83"}
    assert find_parked(device) == ParkedMark(journal_at, None)
    assert find_parked(MemoryDevice(device.content[:MIB])) == ParkedMark(journal_at, None)  # the end is hidden


@pytest.mark.needs_tools("sfdisk", "parted")
@pytest.mark.parametrize(
    ("container", "starts"),
    [("5", (8192, 32768, 57344)), ("f", (10000, 30721, 57344)), ("85", (8192, 30721, 57344))],
    ids=["all of them", "the last", "first and last"],
)
def test_the_new_chain_equals_the_one_that_sfdisk_makes_with_these_starts(
    sparse: Sparse, container: str, starts: tuple[int, int, int]
) -> None:
    old = made_by_sfdisk(sparse, script(LOGICALS, 10000, 30721, 60001, container=container), "old.img")
    new = made_by_sfdisk(sparse, script(LOGICALS, *starts, container=container), "new.img")
    device = MemoryDevice.of(old)
    images = images_for(device, "dos", changes_between(old, new), [2])
    places = list(records(new).values())[2:]
    assert [part.at for part in images.after[0]] == places
    device.put(images.parked)
    path = old.with_name("parked.img")
    path.write_bytes(device.content)
    assert [part["node"] for part in sfdisk_table(path)["partitions"] if part["type"] != "7f"] == [1]
    for at in list(records(old).values())[2:]:
        device.content[at : (at or 0) + 512] = b"\xee" * 512  # in flight, old EBRs may be overwritten
    device.put(images.after)
    assert sectors_of(device, 0, *places) == sectors_of(MemoryDevice.of(new), 0, *places)
    path.write_bytes(device.content)
    assert sfdisk_table(path) == sfdisk_table(new)
    assert run("parted", "-sm", path, "unit", "s", "print").replace("parked", "new") == (
        run("parted", "-sm", new, "unit", "s", "print")
    )
    device.put(images.before)
    path.write_bytes(device.content)
    assert sfdisk_table(path) == sfdisk_table(old)
    assert table_state(device, images) is TableState.BEFORE


@pytest.mark.needs_tools("sfdisk")
def test_an_ebr_keeps_its_other_bytes(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script(LOGICALS, 10000, 30721, 60001))
    device = MemoryDevice.of(path)
    at = records(path)[6] or 0
    device.content[at : at + 420] = BOOT_CODE
    change = EntryChange(6, extents(path)[6], extents(path)[6].moved_to(32768 * 512), at, 32000 * 512)
    images = images_for(device, "dos", [change], [2])
    assert {part.at: part.data[:420] for part in images.after[0]}[32000 * 512] == BOOT_CODE


@pytest.mark.needs_tools("sfdisk")
def test_a_container_may_become_longer(sparse: Sparse) -> None:
    old = made_by_sfdisk(sparse, script(LOGICALS, 10000, 30721, 60001), "old.img")
    longer = script(LOGICALS, 10000, 30721, 100000).replace("110000", "120000")
    new = made_by_sfdisk(sparse, longer, "new.img")
    device = MemoryDevice.of(old)
    device.put(images_for(device, "dos", changes_between(old, new), [2]).after)
    assert sectors_of(device, *records(new).values()) == sectors_of(MemoryDevice.of(new), *records(new).values())


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "losetup")
def test_an_ebr_chain_with_sectors_of_4096_bytes_is_moved(sparse: Sparse, loop: object) -> None:
    assert callable(loop)
    attached = [loop(sparse(64 * MIB, name), sector_size=4096) for name in ("old.img", "new.img")]
    for path, starts in zip(attached, ((901, 2001, 3001), (1024, 2048, 3001)), strict=True):
        run("sfdisk", "-q", path, stdin=script(LARGE_SECTORS, *starts))
    old, new = attached
    device = MemoryDevice.of(old, 4096)
    device.put(images_for(device, "dos", changes_between(old, new, 4096), [2]).after)
    assert sectors_of(device, *records(new, 4096).values()) == sectors_of(
        MemoryDevice.of(new, 4096), *records(new, 4096).values()
    )
    old.write_bytes(device.content)
    assert sfdisk_table(old) == sfdisk_table(new)


@pytest.mark.needs_tools("sfdisk")
def test_changes_that_do_not_fit_the_table_are_refused(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script(LOGICALS, 10000, 30721, 60001))
    device, sector = MemoryDevice.of(path), 512
    one, six, at = extents(path)[1], extents(path)[6], records(path)[6] or 0

    def six_to(start: int, record: int) -> EntryChange:
        return EntryChange(6, six, six.moved_to(start * sector), at, record * sector)

    five = EntryChange(5, extents(path)[5], extents(path)[5], 6144 * sector, 6145 * sector)
    for change, parked, why in [
        (moved(1, Extent(one.start, one.length + sector), sector), [1], "the plan expects it"),
        (moved(8, one, sector), [2], "not there"),
        (moved(1, one, 2048 * sector + sector), [1], "overlapping partition 2"),
        (moved(1, one, -2048 * sector), [1], "may only be"),
        (moved(1, one, sector), [2], "does not park its entry"),
        (moved(1, one, sector), [1, 3], "parks entry 3"),
        (six_to(32768, 32000), [6], "moves partition 2 but does not park"),
        (six_to(27000, 7000), [2], "overlapping partition 5"),
        (six_to(32768, 32768), [2], "not be a whole sector before"),
        (six_to(32768, 20000), [2], "inside a partition"),
        (six_to(32768, 6144), [2], "at the same place"),
        (six_to(32768, 3000), [2], "outside of partition 2"),
        (moved(6, six, 512, at + sector), [2], "was made for one at"),
        (five, [2], "would not be at its start"),
        (moved(2, extents(path)[2], sector), [2], "may only grow"),
    ]:
        with pytest.raises(Refused, match=why):
            images_for(device, "dos", [change], parked)
    images_for(device, "dos", [six_to(32768, 32000)], [2])


@pytest.mark.needs_tools("sfdisk")
def test_malformed_ebr_chains_are_refused(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script(LOGICALS, 10000, 30721, 60001))
    device = MemoryDevice.of(path)
    change = moved(6, extents(path)[6], 512, records(path)[6])
    at = records(path)[6] or 0
    link = at + 446 + 16
    for place, data, why in [
        (at + 510, b"\0\0", "55 AA"),
        (link + 8, struct.pack("<I", 0), "has no end"),
        (link + 8, struct.pack("<I", 200000), "leads out of it"),
        (link + 4, b"\x83", "unusual order"),
        (at + 446 + 4, b"\x05", "unusual order"),
        (link + 16, struct.pack("<B3xB3xII", 0, 0x83, 1, 1), "unusual order"),
        (at + 446 + 12, struct.pack("<I", 200000), "where none is allowed"),
        (at + 446 + 8, struct.pack("<I", 0), "where none is allowed"),
        (510, b"\0\0", "55 AA"),
        (446 + 4, b"\xee", "GPT"),
    ]:
        kept = bytes(device.content[place : place + len(data)])
        device.content[place : place + len(data)] = data
        with pytest.raises(Refused, match=why):
            images_for(device, "dos", [change], [2])
        device.content[place : place + len(data)] = kept
    images_for(device, "dos", [change], [2])


@pytest.mark.needs_tools("sfdisk")
def test_an_ebr_without_a_partition_is_omitted_from_the_new_chain(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script(LOGICALS, 10000, 30721, 60001))
    device = MemoryDevice.of(path)
    for number in (5, 7):
        at = (records(path)[number] or 0) + 446
        device.content[at : at + 16] = bytes(16)
    path.write_bytes(device.content)
    only = extents(path)[5]
    assert only.start == 30721 * 512
    change = EntryChange(5, only, only.moved_to(32768 * 512), records(path)[5], 6144 * 512)
    images = images_for(device, "dos", [change], [2])
    assert images.after[0][-1].data[446 + 16 :] == bytes(48) + b"\x55\xaa"  # no link
    device.put(images.after)
    path.write_bytes(device.content)
    assert extents(path)[5] == only.moved_to(32768 * 512)
    assert list(extents(path)) == [1, 2, 5]


def test_only_the_container_with_a_move_gets_a_new_chain() -> None:
    content = disk(
        MIB,
        (0, mbr((0x05, 100, 400, 0), (0x0F, 600, 400, 0))),
        (100 * 512, mbr((0x83, 10, 50, 0), (0x05, 100, 60, 0))),
        (200 * 512, mbr((0x83, 10, 50, 0))),
        (600 * 512, mbr((0x83, 10, 50, 0))),
    )
    device = MemoryDevice(bytearray(content))
    seventh = Extent(610 * 512, 50 * 512)  # Linux continues counting in the second container
    images = images_for(device, "dos", [moved(7, seventh, 6 * 512, 600 * 512)], [2])
    assert [part.at for part in images.after[0]] == [600 * 512]
    with pytest.raises(Refused, match="moves partition 2 but"):
        images_for(device, "dos", [moved(7, seventh, 6 * 512, 600 * 512)], [1])


def test_a_chain_beyond_partition_number_255_is_refused() -> None:
    def device(logicals: int) -> MemoryDevice:
        records = range(100, 100 + 4 * logicals, 4)
        ebrs = [(at * 512, mbr((0x83, 2, 1, 0), (0x05, at - 96, 4, 0))) for at in records[:-1]]
        last = (records[-1] * 512, mbr((0x83, 2, 1, 0)))
        return MemoryDevice(bytearray(disk(MIB, (0, mbr((0x05, 100, 1900, 0))), *ebrs, last)))

    change = moved(5, Extent(102 * 512, 512), 512)
    images_for(device(251), "dos", [change], [1])
    with pytest.raises(Refused, match="partition 256"):
        images_for(device(252), "dos", [change], [1])
