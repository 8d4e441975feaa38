"""A content that lists bad blocks of its medium is not moved: the list would point to the wrong blocks.

The lists are made and read by the content's own tools, except those of FAT and swap, which have no tool to read them.
"""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.contents.catalogue import kind_named
from aligntool.formats.reader import open_area
from aligntool.linux.file_reader import fresh_reader
from aligntool.units import MIB, Extent
from tests.by_hand import command_of, type_by_hand
from tests.conftest import find_tool, run
from tests.mover.command_line import REFUSED, aligntool, realign

pytestmark = pytest.mark.needs_tools("sfdisk")

Sparse = Callable[..., Path]
SECTOR, START = 512, 63
TYPES = {"ntfs": "7", "exfat": "7", "vfat": "c", "swap": "82"}


def count_of(content: Path, kind: str) -> int:
    with fresh_reader(str(content)) as reader:
        return kind_named(kind).bad_blocks(open_area(reader, Extent(0, reader.size), SECTOR, lambda *_: ()))


def on_disk(content: Path, kind: str) -> Path:
    """Return a disk whose only partition has this content and begins off the grid."""
    image, length = content.with_name("whole.img"), content.stat().st_size
    with image.open("wb") as file:
        file.truncate(START * SECTOR + length + 4 * MIB)
    script = f"label: dos\nstart={START}, size={length // SECTOR}, type={TYPES.get(kind, '83')}\n"
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", image, stdin=script)
    run("dd", f"if={content}", f"of={image}", f"seek={START}", "conv=notrunc,sparse", "status=none")
    return image


def refused(image: Path, words: str, command: str = "realign") -> str:
    before = image.read_bytes()
    said = aligntool(command, image, "--yes", code=REFUSED)
    assert words in said
    assert "if the list is of another drive, from which this one was cloned: " in said
    assert image.read_bytes() == before
    return said


def of_this_version(options: tuple[str, ...]) -> list[str]:
    """Return the options that this mke2fs supports: 1.47.1 removed -r."""
    usage = subprocess.run([find_tool("mke2fs") or ""], capture_output=True, text=True, check=False).stderr
    revision = "-r0" if "-r fs-revision" in usage else "-Erevision=0"
    return [revision if option == "-r0" else option for option in options]


@pytest.mark.needs_tools("mke2fs", "dumpe2fs", "e2fsck")
@pytest.mark.parametrize(
    "options",
    [
        ("-text4", "-b1024"), ("-text4", "-b4096"), ("-text2", "-b1024", "-r0"), ("-text4", "-b4096", "-Obigalloc"),
        ("-text4", "-b1024", "-O^64bit,meta_bg,^resize_inode"), ("-text3", "-b2048", "-I128"),
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("listed", [1, 700])
def test_as_many_bad_blocks_of_ext_are_counted_as_dumpe2fs_prints(
    sparse: Sparse, tmp_path: Path, options: tuple[str, ...], listed: int
) -> None:
    content, bad, words = sparse(64 * MIB), tmp_path / "bad", of_this_version(options)
    run("mke2fs", "-q", "-F", *words, content)
    assert count_of(content, "ext4") == 0
    bad.write_text("".join(f"{9000 + 2 * number}\n" for number in range(listed)))
    run("mke2fs", "-q", "-F", "-l", bad, *words, content)
    assert count_of(content, "ext4") == len(run("dumpe2fs", "-b", content).split()) >= listed


@pytest.mark.needs_tools("mke2fs", "e2fsck")
def test_an_ext_with_bad_blocks_is_moved_only_after_its_list_was_cleared(sparse: Sparse, tmp_path: Path) -> None:
    content, bad = sparse(32 * MIB), tmp_path / "bad"
    bad.write_text("20000\n20001\n")
    run("mke2fs", "-q", "-F", "-text4", "-b1024", "-l", bad, content)
    image = on_disk(content, "ext4")
    said = refused(image, "the ext4 on partition 1 lists 2 bad blocks of its medium")
    place = f"{image}?offset={START * SECTOR}"
    assert f"with e2fsck on {image}, " in said
    assert command_of(said, "e2fsck -f -L", PARTITION=f"'{place}'") == f"e2fsck -f -L /dev/null '{place}'"
    run("e2fsck", "-f", "-y", "-L", "/dev/null", place)
    realign(image)
    run("e2fsck", "-f", "-n", f"{image}?offset={MIB}")


@pytest.mark.needs_tools("mke2fs", "e2fsck")
def test_a_whole_disk_with_bad_blocks_gets_no_table(sparse: Sparse, tmp_path: Path) -> None:
    content, bad = sparse(32 * MIB), tmp_path / "bad"
    bad.write_text("20000\n")
    run("mke2fs", "-q", "-F", "-text4", "-b1024", "-l", bad, content, "30000")
    refused(content, f"the ext4 on {content} lists 1 bad block of its medium", "partition")


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat")
@pytest.mark.parametrize(("bits", "size", "mark"), [(12, 2, 0xFF7), (16, 16, 0xFFF7), (32, 64, 0x0FFFFFF7)])
def test_a_fat_with_bad_clusters_is_not_moved(sparse: Sparse, bits: int, size: int, mark: int) -> None:
    content = sparse(size * MIB)
    run("mkfs.fat", "-F", str(bits), "-s", "1" if bits > 12 else "4", content)
    assert count_of(content, "vfat") == 0
    raw = bytearray(content.read_bytes())
    reserved, fat16, fat32 = (struct.unpack_from(form, raw, at)[0] for form, at in (("<H", 14), ("<H", 22), ("<I", 36)))
    for copy in range(2):
        table = (reserved + copy * (fat16 or fat32)) * SECTOR
        for cluster in (700, 703, 712):
            at = table + cluster * bits // 8
            value = int.from_bytes(raw[at : at + 4], "little") | mark << (4 if bits == 12 and cluster % 2 else 0)
            raw[at : at + 4] = value.to_bytes(4, "little")
    if bits == 32:  # free clusters in FSInfo
        struct.pack_into("<I", raw, SECTOR + 488, struct.unpack_from("<I", raw, SECTOR + 488)[0] - 3)
    content.write_bytes(raw)
    run("fsck.fat", "-n", content)  # counts them as used
    assert count_of(content, "vfat") == 3
    assert "mkfs.fat" in refused(on_disk(content, "vfat"), "on partition 1 lists 3 bad blocks of its medium")


@pytest.mark.needs_tools("mkfs.exfat", "fsck.exfat")
def test_an_exfat_with_bad_clusters_is_not_moved(sparse: Sparse) -> None:
    content = sparse(32 * MIB)
    run("mkfs.exfat", "-c", "4096", content)
    assert count_of(content, "exfat") == 0
    with content.open("r+b") as volume:
        table = int.from_bytes(volume.read(512)[80:84], "little") * SECTOR
        volume.seek(table + 4 * 4000)
        volume.write(b"\xf7\xff\xff\xff" * 2)  # exFAT specification, section 4.1.3
    run("fsck.exfat", "-n", content)
    assert count_of(content, "exfat") == 2
    assert "with mkfs.exfat on" in refused(on_disk(content, "exfat"), "on partition 1 lists 2 bad blocks")


@pytest.mark.needs_tools("mkswap")
@pytest.mark.parametrize("order", ["little", "big"])
def test_a_swap_with_bad_pages_is_not_moved(sparse: Sparse, order: str) -> None:
    content = sparse(8 * MIB)
    run("mkswap", "-L", "two words", content)
    assert count_of(content, "swap") == 0
    form = "<I" if order == "little" else ">I"
    raw = bytearray(content.read_bytes())
    last_page = int.from_bytes(raw[1028:1032], sys.byteorder)
    # union swap_header, linux/include/linux/swap.h: version, last_page, nr_badpages; badpages from 1536 on
    for at, value in ((1024, 1), (1028, last_page), (1032, 1), (1536, 700)):
        struct.pack_into(form, raw, at, value)
    content.write_bytes(raw)
    assert count_of(content, "swap") == 1
    said = refused(on_disk(content, "swap"), "the swap on partition 1 lists 1 bad block of its medium")
    assert "-U UUID -L LABEL -p PAGESIZE" in command_of(said, "mkswap", PARTITION="x")


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkntfs", "ntfsresize", "ntfsfix", "partclone.ntfs")
def test_an_ntfs_with_bad_clusters_is_moved_only_after_its_list_was_cleared(sparse: Sparse) -> None:
    content = sparse(64 * MIB)
    run("mkntfs", "-q", "-Q", "-F", "-s", "512", "-p", "63", "-H", "255", "-S", "63", "-c", "4096", content)
    assert count_of(content, "ntfs") == 0
    content.write_bytes(with_bad_clusters(content.read_bytes()))
    assert "at least 3 bad sectors" in run("ntfsresize", "--info", content, fails=True)
    image = on_disk(content, "ntfs")
    type_by_hand(refused(image, "the ntfs on partition 1 lists 3 bad blocks"), "ntfsfix", PARTITION=content)
    image = on_disk(content, "ntfs")
    realign(image)


def with_bad_clusters(volume: bytes) -> bytes:
    """Return an empty NTFS with clusters of 4 KiB in which three clusters are bad, as Windows records it: runs between
    holes in the stream $Bad of file 8, and bits in the bitmap, file 6.
    """
    raw, table = bytearray(volume), int.from_bytes(volume[48:56], "little") * 4096
    at = data_attribute(raw, table + 8 * 1024, named=True)
    clusters = int.from_bytes(raw[at + 24 : at + 32], "little") + 1
    hole, rest = (struct.pack("<BH", 0x02, count) for count in (10000, clusters - 10003))
    pairs = hole + struct.pack("<BBH", 0x21, 3, 10000) + rest
    attribute = raw[at : at + 72] + pairs.ljust(16, b"\0")
    attribute[4:8] = len(attribute).to_bytes(4, "little")
    raw[at : at + len(attribute) + 8] = attribute + b"\xff\xff\xff\xff\0\0\0\0"
    used = at + len(attribute) + 8 - (table + 8 * 1024)
    raw[table + 8 * 1024 + 24 : table + 8 * 1024 + 28] = used.to_bytes(4, "little")
    at = data_attribute(raw, table + 6 * 1024, named=False)
    run_at = at + int.from_bytes(raw[at + 32 : at + 34], "little")
    count_size, first_size = raw[run_at] & 15, raw[run_at] >> 4
    first = int.from_bytes(raw[run_at + 1 + count_size :][:first_size], "little")
    for cluster in range(10000, 10003):
        raw[first * 4096 + cluster // 8] |= 1 << cluster % 8
    return bytes(raw)


def data_attribute(raw: bytearray, record: int, *, named: bool) -> int:
    at = record + int.from_bytes(raw[record + 20 : record + 22], "little")
    while int.from_bytes(raw[at : at + 4], "little") != 0x80 or bool(raw[at + 9]) != named:
        at += int.from_bytes(raw[at + 4 : at + 8], "little")
    return at
