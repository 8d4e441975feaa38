"""Tables inside MBR partitions, compared with partx."""

import struct
from pathlib import Path

import pytest

from aligntool.inventory import Role
from tests.formats.images import MIB, disk, mbr, partx_partitions, places, read_bytes, read_image
from tests.formats.mbr_images import bsd_label, solaris_vtoc


@pytest.mark.needs_tools("partx")
@pytest.mark.parametrize(
    ("kind", "inside", "expected"),
    [
        (0xA5, (512, bsd_label((40, 10, 7), (9, 60, 1), (1000, 0, 0))), {5: (110, 40), 6: (160, 9)}),
        (0xA5, (512, bsd_label((40, 110, 7), (9, 160, 1), (1000, 100, 0))), {5: (110, 40), 6: (160, 9)}),
        (0xA6, (512, bsd_label((40, 110, 7), (9, 160, 1), (2048, 0, 0))), {5: (110, 40), 6: (160, 9)}),
        (0xA9, (512, bsd_label((40, 110, 7), (9, 3, 8))), {5: (110, 40)}),
        (0x82, (512, solaris_vtoc((2, 10, 40), (3, 60, 9))), {5: (110, 40), 6: (160, 9)}),
        (0x81, (0, mbr((0x81, 110, 40, 0), (0x81, 160, 9, 0))), {5: (110, 40), 6: (160, 9)}),
        (0x82, (512, b"not a label"), {}),
    ],
    ids=["FreeBSD, relative", "FreeBSD, absolute", "OpenBSD", "NetBSD", "Solaris", "Minix", "Linux swap"],
)
def test_nested_tables_are_read_as_by_partx(
    kind: int, inside: tuple[int, bytes], expected: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    path = tmp_path / "disk.img"
    # 8 MiB: libblkid looks for no nested table on anything of a floppy disk's size.
    pieces = (0, mbr((kind, 100, 1000, 0), signature=1)), (100 * 512 + inside[0], inside[1])
    path.write_bytes(disk(8 * MIB, *pieces))
    reading = read_image(path)
    assert places(reading) == {1: (100, 1000), **expected}
    shown = partx_partitions(path)
    if kind not in (0x81, 0x82) or len(shown) > 1:  # libblkid 2.41 finds none of Solaris and Minix
        assert places(reading) == shown
    assert all(part.role is Role.NESTED for part in reading.partitions if part.number >= 5)


def test_unixware_slices_are_read() -> None:
    label = bytearray(512)
    struct.pack_into("<I", label, 4, 0xCA5E600D)
    struct.pack_into("<I", label, 156, 0x600DDEEE)
    for index, (tag, start, sectors) in enumerate([(5, 100, 1000), (2, 200, 40), (3, 300, 9)]):
        struct.pack_into("<HHII", label, 216 + 12 * index, tag, 0x200, start, sectors)
    content = disk(MIB, (0, mbr((0x63, 100, 1000, 0))), ((100 + 29) * 512, bytes(label)))
    assert places(read_bytes(content)) == {1: (100, 1000), 5: (200, 40), 6: (300, 9)}


def test_nested_numbers_follow_the_logical_ones(tmp_path: Path) -> None:
    content = disk(
        MIB,
        (0, mbr((0xA5, 100, 500, 0), (0x05, 1000, 500, 0))),
        (1000 * 512, mbr((0x83, 10, 20, 0))),
        (101 * 512, bsd_label((40, 110, 7), (9, 160, 1), (500, 100, 0))),
    )
    assert places(read_bytes(content)) == {1: (100, 500), 2: (1000, 500), 5: (1010, 20), 6: (110, 40), 7: (160, 9)}
