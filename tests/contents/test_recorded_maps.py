"""Maps of used blocks from what the programs of Debian 12 printed: xfs_db 6.1.0, btrfs-progs 6.2, partclone 0.3.23."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from aligntool.contents.catalogue import kind_named
from aligntool.contents.used_blocks import NoMap
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, Extent
from tests.fuzz.handmade_layers import be, le, packed

# `mkfs.xfs` of 300 MiB: four groups of 19200 blocks.
XFS_DB = """\
    agno    agbno      len
       0        6        1
       0       10        6
       0       24    19176
       1       10    19190
       2    16390        1
       2    16394     2806
       3       10    19190
   from      to extents  blocks    pct
      1       1      16      16   0.03
      4       7       1       6   0.01
"""
XFS = packed(512, (48, be(65542, 8)), (84, be(19200)), (144, be(60384, 8)))  # sb_logstart, sb_agblocks, sb_fdblocks
USED_BLOCKS = ((0, 10), (16, 24), (19200, 19210), (38400, 54794), (57600, 57610))

# `mkfs.btrfs -M` of 128 MiB.
DUMP_TREE = """\
	item 1 key (FIRST_CHUNK_TREE CHUNK_ITEM 1048576) itemoff 3817 itemsize 80
		length 4194304 owner 2 stripe_len 65536 type SYSTEM|single
		num_stripes 1 sub_stripes 0
			stripe 0 devid 1 offset 1048576
	item 2 key (FIRST_CHUNK_TREE CHUNK_ITEM 5242880) itemoff 3737 itemsize 80
		length 8388608 owner 2 stripe_len 65536 type DATA|METADATA|single
		num_stripes 1 sub_stripes 1
			stripe 0 devid 1 offset 5242880
"""
PARTCLONE = """\
# Domain logfile created by unset_name v0.3.23
0x00000000     ?
0x00000000  0x00100000  ?
0x00100000  0x00004000  +
0x00104000  0x07EFC000  ?
"""
BTRFS = (64 * KIB + 120, le(16 * KIB, 8) + bytes(8) + le(1, 8))  # bytes_used, num_devices


@dataclass(frozen=True)
class Recorded:
    """A content of which only some bytes are read, and a device on which programs print what they once did."""

    size: int
    content: bytes
    printed: Mapping[str, str]
    name: str = "/dev/loop0"

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]

    @contextmanager
    def device(self) -> Iterator["Recorded"]:
        yield self

    @contextmanager
    def at_offset(self) -> Iterator["Recorded"]:
        yield self

    @contextmanager
    def lines_of(self, *words: str, title: str = "", limit_s: float | None = None) -> Iterator[Iterable[str]]:
        yield self.printed[words[0]].splitlines(keepends=True)


def used(medium: Recorded, kind: str) -> list[Extent]:
    used_blocks = kind_named(kind).used_blocks
    assert used_blocks
    return list(
        used_blocks(medium, Layer(kind, Extent(0, medium.size), claims_size=medium.size, data_unit=4096), False)
    )


def test_what_xfs_db_does_not_list_as_free_is_used() -> None:
    medium = Recorded(300 * MIB, XFS, {"xfs_db": XFS_DB})
    assert used(medium, "xfs") == [Extent(4096 * first, 4096 * (end - first)) for first, end in USED_BLOCKS]


def test_an_xfs_with_an_external_log_has_no_map() -> None:
    with pytest.raises(NoMap, match="its log is external"):
        used(Recorded(300 * MIB, packed(512, (0, XFS), (48, bytes(8))), {"xfs_db": XFS_DB}), "xfs")


def test_chunks_of_trees_and_superblocks_of_a_btrfs_are_used_whatever_partclone_maps() -> None:
    medium = Recorded(128 * MIB, packed(80 * KIB, BTRFS), {"btrfs": DUMP_TREE, "partclone.btrfs": PARTCLONE})
    chunks = {Extent(MIB, 4 * MIB), Extent(5 * MIB, 8 * MIB)}
    superblocks = {Extent(64 * KIB, 64 * KIB), Extent(64 * MIB, 64 * KIB)}
    assert set(used(medium, "btrfs")) - {Extent(128 * MIB, 0)} == {Extent(MIB, 16 * KIB), *chunks, *superblocks}


@pytest.mark.parametrize(
    ("devices", "tree", "reason"),
    [
        (2, DUMP_TREE, "this btrfs has 2 devices"),
        (1, DUMP_TREE.replace("METADATA|single", "DUP"), "stores data as DATA.DUP, and partclone maps only one copy"),
        (1, "", "lists no metadata chunk"),
    ],
)
def test_a_btrfs_that_partclone_does_not_map_whole_has_no_map(devices: int, tree: str, reason: str) -> None:
    content = packed(80 * KIB, BTRFS, (64 * KIB + 136, le(devices, 8)))
    with pytest.raises(NoMap, match=reason):
        used(Recorded(128 * MIB, content, {"btrfs": tree, "partclone.btrfs": PARTCLONE}), "btrfs")
