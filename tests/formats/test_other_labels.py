"""Apple, BSD, Sun, SGI, Atari and DASD labels, made by parted or by hand, compared with parted, sfdisk and partx."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import Fault, Role, TableLabel
from tests.conftest import run
from tests.formats.images import (
    MIB,
    disk,
    faults_of,
    mbr,
    parted_partitions,
    partx_partitions,
    places,
    read_bytes,
    read_image,
    table_of,
)

Sparse = Callable[..., Path]
SIZE = 64 * MIB
LABELS = {
    "mac": TableLabel.APM,
    "bsd": TableLabel.BSD,
    "sun": TableLabel.SUN,
    "dvh": TableLabel.SGI,
    "atari": TableLabel.ATARI,
    "msdos": TableLabel.DOS,
    "gpt": TableLabel.GPT,
}


def make(sparse: Sparse, label: str) -> Path:
    path = sparse(SIZE)
    first = {"mac": ["one"], "gpt": ["one"]}.get(label, ["primary"] if label in ("dvh", "atari", "msdos") else [])
    words = ["mkpart", *first, "ext2", "8MiB", "16MiB", "mkpart", *first, "ext2", "24MiB", "30MiB"]
    run("parted", "-s", path, "mklabel", label, *words)
    return path


@pytest.mark.needs_tools("parted")
@pytest.mark.parametrize("label", LABELS)
def test_tables_made_by_parted_have_the_partitions_that_parted_prints(label: str, sparse: Sparse) -> None:
    path = make(sparse, label)
    told, reading = parted_partitions(path), read_image(path)
    assert table_of(reading).label is LABELS[label]
    found = {part.number: (part.extent.start, part.extent.length) for part in reading.partitions}
    assert {number: found.get(number) for number in told} == {
        number: (start, size) for number, (start, size, _) in told.items()
    }
    # parted does not list the label's own entries: free space, the map, the slice for the whole disk.
    assert {part.role for part in reading.partitions if part.number not in told} <= {Role.MAP}
    assert faults_of(reading) == []


@pytest.mark.needs_tools("parted", "partx")
@pytest.mark.parametrize("label", ["mac", "atari", "dvh"])
def test_the_numbers_are_those_of_libblkid(label: str, sparse: Sparse) -> None:
    path = make(sparse, label)
    assert places(read_image(path)) == partx_partitions(path)


@pytest.mark.needs_tools("parted")
def test_apple_partitions_have_names_types_and_roles(sparse: Sparse) -> None:
    path = make(sparse, "mac")
    reading = read_image(path)
    told = parted_partitions(path)
    for part in reading.partitions:
        if part.number in told:
            assert part.name == told[part.number][2]
        assert (part.role is Role.MAP) == (part.type_code in ("Apple_partition_map", "Apple_Free"))


def apple_map(block: int, *entries: tuple[int, int, str], count: int | None = None, named: int | None = None) -> bytes:
    """Make a driver descriptor and a map of (start, blocks, type); `named`: the block size in the descriptor."""
    pieces = [(0, b"ER" + struct.pack(">HI", named or block, 1000))]
    for number, (start, blocks, kind) in enumerate(entries, 1):
        body = struct.pack(">III", len(entries) if count is None else count, start, blocks)
        entry = b"PM\0\0" + body + b"disc".ljust(32, b"\0") + kind.encode().ljust(32, b"\0")
        pieces.append((number * block, entry.ljust(512, b"\0")))
    return disk(4 * MIB, *pieces)


ENTRIES = ((1, 63, "Apple_partition_map"), (64, 100, "Apple_Driver43"), (200, 300, "Apple_HFS"))


@pytest.mark.needs_tools("partx")
@pytest.mark.parametrize("block", [512, 1024, 2048, 4096])
def test_an_apple_map_is_read_in_its_own_blocks(block: int, tmp_path: Path) -> None:
    path = tmp_path / "disc.img"
    path.write_bytes(apple_map(block, *ENTRIES))
    reading = read_image(path)
    assert table_of(reading).sector_size == block
    told = {number: (start * 512, size * 512) for number, (start, size) in partx_partitions(path).items()}
    assert {part.number: (part.extent.start, part.extent.length) for part in reading.partitions} == told
    assert [part.role for part in reading.partitions] == [Role.MAP, Role.MAP, Role.PRIMARY]
    assert faults_of(reading) == []


def test_a_disc_that_states_2048_and_has_its_map_in_units_of_512_is_read() -> None:
    reading = read_bytes(apple_map(512, *ENTRIES, named=2048))
    assert table_of(reading).sector_size == 512
    assert places(reading)[3] == (200, 300)


def test_an_mbr_with_partitions_has_precedence_over_an_apple_map_as_in_linux() -> None:
    content = bytearray(apple_map(512, *ENTRIES))
    content[446:512] = mbr((0x83, 200, 300, 0))[446:]
    assert table_of(read_bytes(bytes(content))).label is TableLabel.DOS
    content[446:510] = bytes(64)
    assert table_of(read_bytes(bytes(content))).label is TableLabel.APM


@pytest.mark.parametrize(("count", "fault"), [(5, Fault.BAD_ENTRY), (2**32 - 1, Fault.IMPLAUSIBLE_COUNT)])
def test_a_map_that_claims_too_many_entries_is_limited(count: int, fault: Fault) -> None:
    reading = read_bytes(apple_map(512, *ENTRIES, count=count))
    assert fault in faults_of(reading)
    assert sorted(places(reading)) == [1, 2, 3]


def test_sun_and_sgi_labels_with_a_wrong_checksum_are_not_recognised(sparse: Sparse) -> None:
    for label in ("sun", "dvh"):
        content = bytearray(make(sparse, label).read_bytes()[: 2 * MIB])
        assert table_of(read_bytes(bytes(content))).label is LABELS[label]
        content[445] ^= 1
        assert read_bytes(bytes(content)).table is None


def xgm_disk(*links: tuple[int, int]) -> bytes:
    """Make an Atari disk with one XGM partition; `links` are (sector, next sector counted from the
    first) of its chain.
    """
    root = bytearray(512)
    struct.pack_into(">I", root, 0x1C2, 2048)
    struct.pack_into(">B3sII", root, 0x1C6, 1, b"XGM", 100, 1900)
    pieces = [(0, bytes(root))]
    for sector, following in links:
        xgm = bytearray(512)
        struct.pack_into(">B3sII", xgm, 0x1C6, 1, b"BGM", 1, 10)
        if following:
            struct.pack_into(">B3sII", xgm, 0x1D2, 1, b"XGM", following, 100)
        pieces.append((sector * 512, bytes(xgm)))
    return disk(MIB, *pieces)


@pytest.mark.needs_tools("partx")
def test_an_atari_chain_is_numbered_as_by_libblkid(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.write_bytes(xgm_disk((100, 200), (300, 400), (500, 0)))
    assert places(read_image(path)) == {1: (101, 10), 2: (301, 10), 3: (501, 10)} == partx_partitions(path)


def test_a_circular_atari_chain_ends() -> None:
    reading = read_bytes(xgm_disk((100, 200), (300, 200)))
    assert faults_of(reading) == [Fault.EBR_LOOP]
    assert sorted(places(reading)) == [1, 2]


def ebcdic(text: str, width: int) -> bytes:
    return text.ljust(width).encode("cp037")


@pytest.mark.parametrize("block", [512, 1024, 2048, 4096])
def test_an_ldl_volume_of_any_block_size_has_one_partition_after_the_label(block: int) -> None:
    label = (ebcdic("LNX1", 4) + ebcdic("VOLSER", 6)).ljust(79, b"\x40") + b"\xf2" + struct.pack(">Q", 100)
    reading = read_bytes(disk(200 * block, (2 * block, label)), block)
    assert table_of(reading).disk_id == "VOLSER"
    assert places(reading) == {1: (3, 97)}


def test_a_cms_volume_starts_where_its_label_states() -> None:
    label = bytearray(ebcdic("CMS1", 4) + ebcdic("VOLSER", 6) + bytes(90))
    struct.pack_into(">I", label, 12, 4096)
    struct.pack_into(">I", label, 28, 100)
    struct.pack_into(">I", label, 52, 20)
    assert places(read_bytes(disk(200 * 4096, (2 * 4096, bytes(label))), 4096)) == {1: (20, 79)}


def test_a_cdl_volume_without_its_vtoc_is_recognised_and_the_fault_is_reported() -> None:
    label = ebcdic("VOL1VOL1VOLSER", 14).ljust(84, b"\x40")
    reading = read_bytes(disk(200 * 4096, (2 * 4096, label)), 4096)
    assert (table_of(reading).label, reading.partitions) == (TableLabel.DASD, ())
    assert faults_of(reading) == [Fault.BAD_ENTRY]
