"""Disks and trees made as expensive as possible, in ways that random mutation does not find.

Each part of such a disk is valid; together they once cost too much, or might. `test_worst_cases.py` has the limits.
"""

import os
import struct
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from aligntool.formats.reader import crc32_seeded
from aligntool.units import KIB, MIB
from tests.fuzz.checksums import LVM_SEED, fix_checksums
from tests.fuzz.handmade_layers import be, le, lvm, md, md_0_90, packed
from tests.fuzz.handmade_seeds import LINUX, mbr
from tests.fuzz.sparse import Piece, SparseDisk, of_pieces


def gpt_of(places: Sequence[tuple[int, int]], *, size: int = 512 * MIB) -> SparseDisk:
    """Make a whole GPT with as many entries as given, each at (first, last) sector."""
    array = b"".join(
        LINUX + struct.pack("<QQ", number, 7) + struct.pack("<QQQ", first, last, 0) + bytes(72)
        for number, (first, last) in enumerate(places, 1)
    )
    last, after = size // 512 - 1, -(-len(array) // 512)

    def header(own: int, other: int, entries: int) -> bytes:
        raw = b"EFI PART" + struct.pack(
            "<IIIIQQQQ16sQIII", 0x10000, 92, 0, 0, own, other, 2 + after, last - after - 1, b"\x11" * 16, entries,
            len(places), 128, zlib.crc32(array),
        )  # fmt: skip
        return raw[:16] + le(zlib.crc32(raw)) + raw[20:]

    pieces = (
        Piece(0, mbr((0xEE, 1, last))), Piece(512, header(1, last, 2)), Piece(1024, array),
        Piece((last - after) * 512, array), Piece(last * 512, header(last, 1, last - after)),
    )  # fmt: skip
    return SparseDisk(size, pieces)


def lvm_at(start: int, text: bytes) -> list[tuple[int, bytes]]:
    """Return the pieces of an LVM volume with this metadata."""
    label, header = dict(lvm())[512], packed(
        512, (4, b" LVM2 x[5A%r0N*>" + le(1) + le(4096, 8) + le(2 * MIB, 8)), (40, le(512, 8) + le(len(text), 8)),
        (56, le(crc32_seeded(text, LVM_SEED))),
    )  # fmt: skip
    label = label[:16] + le(crc32_seeded(label[20:], LVM_SEED)) + label[20:]
    header = le(crc32_seeded(header[4:], LVM_SEED)) + header[4:]
    return [(start + 512, label), (start + 4096, header), (start + 4096 + 512, text)]


def lvm_of_many_pieces(segments: int, *, group: bytes = b"vg", size: int = 64 * MIB) -> SparseDisk:
    """Make one volume, composed of extents of one sector each."""
    listed = b"".join(
        b'segment%d{start_extent=%d\nextent_count=1\nstripes=["p",%d]}\n' % (index, index, index)
        for index in range(segments)
    )
    text = (
        group + b'{extent_size=1\nphysical_volumes{p{id="abcdef-ghij-klmn-opqr-stuv-wxyz-ABCDEF"\npe_start=0\n'
        b'pe_count=10}}\nlogical_volumes{l{status=["VISIBLE"]\n' + listed + b"}}}\n"
    )
    return SparseDisk(size, tuple(Piece(*piece) for piece in lvm_at(0, text)))


def mirrors_of_luks(size: int = 64 * MIB) -> SparseDisk:
    """Make three RAID superblocks, each with itself inside, and in each of them two LUKS2 headers of 4 MiB."""
    header = packed(512, (0, b"LUKS\xba\xbe\0\2"), (8, be(4 * MIB, 8)), (16, be(3, 8)), (72, b"sha512"))
    second = header.replace(b"LUKS", b"SKUL", 1)
    return fix_checksums(
        of_pieces(size, [(0, header), (4 * MIB, second), md("1.2", data=0), md("1.0", data=0), md_0_90()])
    )


def partitions_on_one_place(count: int, shorter: int = 0) -> SparseDisk:
    """Make this many partitions, all of them the same disk of `mirrors_of_luks`, or each by so many sectors shorter."""
    inside, first = mirrors_of_luks(), 100_000
    last = first + inside.size // 512 - 1
    disk = gpt_of([(first, last - shorter * number) for number in range(count)])
    moved = tuple(Piece(piece.at + first * 512, piece.content) for piece in inside.pieces)
    return SparseDisk(disk.size, (*disk.pieces, *moved))


def make_deep(folder: Path, words: Sequence[str]) -> None:
    """Make nested folders, deeper than any path that the kernel takes at once."""
    here = os.open(folder, os.O_RDONLY)
    for word in words:
        os.mkdir(word, dir_fd=here)
        below = os.open(word, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    size = os.open("size", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.write(size, b"1000\n")
    os.close(size)
    os.close(here)


def archive_of_holes(path: Path, members: int, each: int = 16 * MIB) -> None:
    """Make a tar of sparse members: half a KiB each in the archive, many MiB each when unpacked."""
    headers = []
    for index in range(members):
        member = tarfile.TarInfo(f"sys/block/f{index}")
        member.type = tarfile.GNUTYPE_SPARSE
        raw = bytearray(member.tobuf(tarfile.GNU_FORMAT))
        raw[386:410], raw[483:495] = (b"%011o\0" % 0 * 2, b"%011o\0" % each)  # one hole; the real size
        raw[148:156] = b" " * 8
        raw[148:156] = b"%06o\0 " % sum(raw)
        headers.append(bytes(raw))
    path.write_bytes(b"".join(headers) + bytes(KIB))


# Headers of archives.


def tar_header(kind: bytes, length: int) -> bytes:
    """Return the header of a member of this kind and length."""
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, length
    return member.tobuf(tarfile.USTAR_FORMAT)


TAR_MEMBER = tar_header(tarfile.REGTYPE, 0)
TAR_RECORD = b"30 comment=" + b"x" * 18 + b"\n"
