"""The GPT of a move, against tables that sfdisk and sgdisk make and read."""

import re
import struct
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.formats.gpt import new_pair
from aligntool.formats.parked import PARKED_GPT, ParkedMark, find_parked
from aligntool.mover.table import TableState, table_state
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.formats.gpt_images import entry, gpt_disk, header, make_gpt
from tests.mover.tables.disks import (
    JOURNAL_AT,
    JOURNAL_ID,
    MemoryDevice,
    Sparse,
    changes_between,
    extents,
    images_for,
    made_by_sfdisk,
    moved,
    sfdisk_table,
)

HEAD = "label: gpt\nlabel-id: 11111111-2222-3333-4444-555555555555\nfirst-lba: 80\n"
IDS = [f"uuid=AAAAAAAA-0000-0000-0000-00000000000{index}" for index in range(10)]


def script(starts: tuple[int, int, int], *, length: int = 128) -> str:
    one, two, three = starts
    return (
        f"{HEAD}table-length: {length}\n"
        f'1: start={one}, size=2001, type=U, {IDS[1]}, name="röt „x“ 𝄞 \\\\", attrs="LegacyBIOSBootable GUID:60"\n'
        f"2: start={two}, size=2048, type=S, {IDS[2]}\n"
        f'4: start={three}, size=40000, type=L, {IDS[4]}, name="{"n" * 36}", attrs="RequiredPartition"\n'
    )


@pytest.mark.needs_tools("sfdisk", "sgdisk")
@pytest.mark.parametrize("length", [8, 252])
def test_the_new_table_equals_the_one_that_sfdisk_makes_with_these_starts(sparse: Sparse, length: int) -> None:
    old = made_by_sfdisk(sparse, script((4096, 60000, 8193), length=length), "old.img")
    new = made_by_sfdisk(sparse, script((2048, 60000, 16384), length=length), "new.img")
    device = MemoryDevice.of(old)
    images = images_for(device, "gpt", changes_between(old, new), [1, 4])

    assert all(device.read(part.at, len(part.data)) == part.data for group in images.before for part in group)
    device.put(images.parked)
    device.put(images.after)
    assert device.content == new.read_bytes()
    old.write_bytes(device.content)
    assert sfdisk_table(old) == sfdisk_table(new)
    assert "No problems found" in run("sgdisk", "-v", old)
    device.put(images.before)
    assert table_state(device, images) is TableState.BEFORE


@pytest.mark.needs_tools("sgdisk", "parted", "sfdisk")
def test_sgdisk_and_parted_read_the_same_table_except_for_the_starts(sparse: Sparse) -> None:
    options = ("-a1", "-n1:63:20000", "-c1:one & only", "-A1:set:2", "-t1:ef00", "-n3:40001:+8M", "-t3:8200")
    path = make_gpt(sparse, *options)
    before = {tool: told(path) for tool, told in READERS.items()}
    device = MemoryDevice.of(path)
    found = extents(path)
    images = images_for(device, "gpt", [moved(1, found[1], 1985 * 512), moved(3, found[3], 959 * 512)], [1, 3])
    device.put(images.after)
    path.write_bytes(device.content)

    starts = {"63": "2048", "20000": "21985", "40001": "40960", "56384": "57343"}
    for tool, told in READERS.items():
        expected = re.sub(
            r"(?<![\dA-F-])(63|20000|40001|56384)(?![\dA-F-])", lambda match: starts[match[0]], before[tool]
        )
        assert told(path) == expected != before[tool]
    assert "No problems found" in run("sgdisk", "-v", path)


def _by_sgdisk(path: Path) -> str:
    told = [run("sgdisk", "-i", number, path) for number in ("1", "3")]
    return re.sub(r" \(at [^)]*\)", "", "".join(told))


def _by_parted(path: Path) -> str:
    return run("parted", "-sm", path, "unit", "s", "print")


READERS = {"sgdisk": _by_sgdisk, "parted": _by_parted}


@pytest.mark.needs_tools("sfdisk", "partx")
def test_in_flight_other_tools_see_only_the_parked_type_and_name(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script((4096, 60000, 8193)))
    device = MemoryDevice.of(path)
    old = {part["node"]: part for part in sfdisk_table(path)["partitions"]}
    found = extents(path)
    device.put(images_for(device, "gpt", [moved(1, found[1], 512), moved(4, found[4], 512)], [1, 4]).parked)
    path.write_bytes(device.content)

    new = {part["node"]: part for part in sfdisk_table(path)["partitions"]}
    assert new[2] == old[2]
    for number in (1, 4):
        assert (new[number]["start"], new[number]["size"]) == (old[number]["start"], old[number]["size"])
        assert new[number]["type"] == str(PARKED_GPT).upper()
        assert new[number]["name"] == f"aligntool resume @{JOURNAL_AT}"
        assert new[number]["uuid"] not in (old[1]["uuid"], old[4]["uuid"])
    assert new[1]["uuid"] != new[4]["uuid"]
    assert set(new[1]["attrs"].split()) == {"NoBlockIOProtocol", "LegacyBIOSBootable", "GUID:60,62,63"}
    assert set(new[4]["attrs"].split()) == {"RequiredPartition", "NoBlockIOProtocol", "GUID:62,63"}
    shown = run("partx", "--show", "--noheadings", "-o", "NR,TYPE,NAME", path)
    assert "ebd0a0a2" not in shown and "0fc63daf" not in shown
    # The other entries claim free space that the move needs.
    assert [node for node, part in new.items() if part["type"] != str(PARKED_GPT).upper()] == [2]
    assert find_parked(device) == ParkedMark(JOURNAL_AT, JOURNAL_ID)


@pytest.mark.parametrize("size", [512, 1024, 2048, 4096])
def test_a_parked_entry_is_found_whatever_the_sector_size(size: int) -> None:
    entry = (PARKED_GPT.bytes_le, bytes(16), Extent(MIB, MIB), f"aligntool resume @{JOURNAL_AT}")
    device = MemoryDevice(bytearray(4 * MIB))
    for copy in new_pair(4 * MIB // size, size, bytes(16), entry):
        device.put((copy.write_order,))
    found = find_parked(device)
    assert found and found.journal_at == JOURNAL_AT


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "sgdisk", "losetup")
def test_a_gpt_with_sectors_of_4096_bytes_is_parked_and_moved(sparse: Sparse, loop: object) -> None:
    assert callable(loop)
    attached = [loop(sparse(64 * MIB, name), sector_size=4096) for name in ("old.img", "new.img")]
    for path, starts in zip(attached, ((511, 7000, 2513), (512, 7000, 2560)), strict=True):
        run("sfdisk", "-q", path, stdin=script(starts).replace("size=40000", "size=4000").replace("80\n", "6\n"))
    old, new = attached
    device = MemoryDevice.of(old, 4096)
    images = images_for(device, "gpt", changes_between(old, new, 4096), [1, 4])
    device.put(images.parked)
    assert find_parked(device) == ParkedMark(JOURNAL_AT, JOURNAL_ID)
    # A stick in another reader, or an image: the sectors of the table are not those of the device.
    assert find_parked(MemoryDevice(device.content)) == ParkedMark(JOURNAL_AT, JOURNAL_ID)
    device.put(images.after)
    assert device.content == new.read_bytes()
    old.write_bytes(device.content)
    assert "No problems found" in run("sgdisk", "-v", old)
    with pytest.raises(Refused, match="for sectors of 512 bytes"):
        images_for(MemoryDevice(device.content), "gpt", [], [])


@pytest.mark.needs_tools("parted")
def test_entries_of_256_bytes_keep_their_data_beyond_the_usual_128_bytes(sparse: Sparse) -> None:
    entries = b"".join(
        entry(start, start + 99, name="é".encode("utf-16-le")).ljust(256, b"\xa5") for start in (100, 301)
    )
    path = sparse(2048 * 512)
    path.write_bytes(gpt_disk(entries, count=12, entry_size=256))
    device = MemoryDevice.of(path)
    images = images_for(device, "gpt", [moved(2, Extent(301 * 512, 100 * 512), 3 * 512)], [2])
    device.put(images.after)
    lines = run("parted", "-sm", path, "unit", "s", "print").splitlines()
    path.write_bytes(device.content)
    expected = [line.replace("301s:400s", "304s:403s") for line in lines]
    assert run("parted", "-sm", path, "unit", "s", "print").splitlines() == expected != lines
    assert bytes(device.content[1024 + 256 + 128 : 1024 + 512]) == b"\xa5" * 128
    device.put(images.parked)
    assert bytes(device.content[1024 + 256 + 128 : 1024 + 512]) == b"\xa5" * 128


@pytest.mark.needs_tools("sfdisk")
def test_a_backup_that_is_not_at_the_end_is_not_moved(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script((4096, 60000, 8193)))
    grown = MemoryDevice(bytearray(path.read_bytes()) + bytes(4 * MIB))
    images = images_for(grown, "gpt", [moved(1, extents(path)[1], -512)], [1])
    grown.put(images.after)
    assert grown.content[-4 * MIB :] == bytes(4 * MIB)
    assert {part.at for part in images.after[0]} == {64 * MIB - 512, 64 * MIB - 33 * 512}
    path.write_bytes(grown.content)
    assert extents(path)[1].start == 4095 * 512


@pytest.mark.needs_tools("sfdisk")
def test_a_table_with_one_wrong_byte_is_refused(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script((4096, 60000, 8193)))
    device = MemoryDevice.of(path)
    change = moved(1, extents(path)[1], 512)
    for at, why in [
        (512 + 56, "primary"),
        (1024 + 40, "primary"),
        (-512 + 56, "backup"),
        (-33 * 512 + 40, "backup"),
        (450, "protective"),
    ]:
        device.content[at] ^= 0x10
        with pytest.raises(Refused, match=why):
            images_for(device, "gpt", [change], [1])
        device.content[at] ^= 0x10
    images_for(device, "gpt", [change], [1])


@pytest.mark.needs_tools("sfdisk")
def test_copies_that_disagree_and_hybrid_mbrs_are_refused(sparse: Sparse) -> None:
    old = MemoryDevice.of(made_by_sfdisk(sparse, script((4096, 60000, 8193)), "old.img"))
    path = made_by_sfdisk(sparse, script((4096, 60000, 8194)), "new.img")
    device = MemoryDevice.of(path)
    change = moved(1, extents(path)[1], 512)
    device.content[-33 * 512 :] = old.content[-33 * 512 :]
    with pytest.raises(Refused, match="disagree"):
        images_for(device, "gpt", [change], [1])
    hybrid = MemoryDevice.of(path)
    hybrid.content[446 + 16 : 446 + 32] = struct.pack("<B3xB3xII", 0x80, 0x83, 4096, 2001)
    with pytest.raises(Refused, match="hybrid"):
        images_for(hybrid, "gpt", [change], [1])
    hybrid.content[446 + 16 + 4] = 0xEE  # two 0xEE entries, as gdisk writes for a hybrid, list no partition
    images_for(hybrid, "gpt", [change], [1])


def test_headers_with_valid_checksums_but_wrong_positions_are_refused() -> None:
    entries = entry(101, 200).ljust(128 * 128, b"\0")
    content = gpt_disk(entries)
    change = moved(1, Extent(101 * 512, 100 * 512), -512)
    images_for(MemoryDevice(bytearray(content)), "gpt", [change], [1])
    for own, other, first, why in [
        (2000, 1, 34, "backup"),
        (2047, 7, 34, "disagree"),
        (2047, 1, 33, "overlap each other"),
    ]:
        primary = header(own=1, other=2047, entries_lba=2, entries=entries, numbers={"first": first})
        backup = header(own=own, other=other, entries_lba=2015, entries=entries, numbers={"first": first})
        device = MemoryDevice(bytearray(content))
        device.content[512 : 512 + len(primary)] = primary
        device.content[2047 * 512 : 2047 * 512 + len(backup)] = backup
        with pytest.raises(Refused, match=why):
            images_for(device, "gpt", [change], [1])


@pytest.mark.needs_tools("sfdisk")
def test_changes_that_do_not_fit_the_table_are_refused(sparse: Sparse) -> None:
    path = made_by_sfdisk(sparse, script((4096, 60000, 8193)))
    device = MemoryDevice.of(path)
    one, sector = extents(path)[1], 512
    for change, parked, why in [
        (moved(1, Extent(one.start, one.length + sector), sector), [1], "the plan expects it"),
        (moved(3, one, sector), [3], "not there"),
        (moved(1, one, sector), [2], "does not park"),
        (moved(1, one, sector), [1, 3], "parks partition 3"),
        (moved(1, one, 4096 * sector), [1], "overlapping partition 4"),
        (moved(1, one, -4050 * sector), [1], "may only be"),
        (moved(1, one, 100), [1], "not in whole sectors"),
    ]:
        with pytest.raises(Refused, match=why):
            images_for(device, "gpt", [change], parked)
    images_for(device, "gpt", [moved(1, one, sector)], [1])
