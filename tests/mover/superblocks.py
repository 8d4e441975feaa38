"""Images of the kinds that libblkid recognises: made by their own tools, or by hand with the minimum it accepts.

For a length, each gives pieces and their places in a partition of that length. Layouts: libblkid's probers; libblkid
decides whether one is accepted.
"""

import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from aligntool.units import KIB, MIB
from tests.conftest import run
from tests.contents.test_other_kinds import zfs_label
from tests.fuzz import handmade_layers
from tests.fuzz.handmade_layers import be, le, packed

Pieces = Iterable[tuple[int, bytes]]
UUID = bytes(range(1, 17))


@dataclass(frozen=True, slots=True)
class Specimen:
    """`seen`: the name that libblkid reports: TYPE, or PTTYPE. `signatures`: places, each of which alone identifies it.

    `shared`: its sector is also a partition table once its file system is not recognised. Both are written in one
    write, and the promise does not cover what a torn one leaves (docs/crash-safety.md).

    `below`: the name of its content, which is whole and recognised once the superblock at its end is hidden.
    """

    name: str
    seen: str
    make: Callable[[int], Pieces]
    length: int = 4 * MIB
    tool: str | None = None
    signatures: int = 1
    shared: bool = False
    below: str = ""


def crc32c(raw: bytes, start: int = 0xFFFFFFFF) -> int:
    crc = start
    for byte in raw:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc


def crc32(raw: bytes, start: int = 0xFFFFFFFF) -> int:
    """Without the final inversion, as in util-linux."""
    return zlib.crc32(raw, start ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def at_place(at: int, raw: bytes) -> Callable[[int], Pieces]:
    """Return the place; `at` below 0 counts from the end."""
    return lambda length: [(at if at >= 0 else length + at, raw)]


def made_by(command: str, *, arguments: Callable[[int], str] = lambda _: "") -> Callable[[int], Pieces]:
    def make(length: int) -> Pieces:
        with tempfile.TemporaryDirectory(prefix="aligntool-specimen-") as folder:
            files = Path(folder, "files")
            files.mkdir()
            (files / "word").write_text("word" * 3000)
            image = Path(folder, "image")
            with image.open("wb") as file:
                file.truncate(length)
            run(*(word.format(image=image, files=files) for word in f"{command} {arguments(length)}".split()),
                stdin="secret")  # fmt: skip
            raw = image.read_bytes()[:length]
        return [(at, raw[at : at + 64 * KIB]) for at in range(0, length, 64 * KIB) if any(raw[at : at + 64 * KIB])]

    return make


def sum_fixed(raw: bytes, at: int, width: int, count: int, order: str = "<") -> bytes:
    """Return `raw` with a word at `at` that makes the sum of its first `count` words 0."""
    code = {1: "B", 2: "H", 4: "I"}[width]
    words: tuple[int, ...] = struct.unpack_from(f"{order}{count}{code}", raw)
    value = -sum(words) & (1 << 8 * width) - 1
    return raw[:at] + value.to_bytes(width, "little" if order == "<" else "big") + raw[at + width :]


def ddf(length: int) -> Pieces:
    anchor = packed(
        512, (0, b"\xff" * 512), (0, be(0xDE11DE11)), (8, b"Linux-MD" + b"A" * 16 + b"01.02.00"), (96, bytes(16))
    )
    return [(length - 512, packed(512, (0, anchor), (4, be(zlib.crc32(anchor, 0xFFFFFFFF) ^ 0xFFFFFFFF))))]


def via() -> bytes:
    raw = packed(512, (0, b"\x55\xaa\x01"), (3, b"\1\0"))
    return packed(512, (0, raw), (50, bytes((sum(raw[:50]) & 0xFF,))))


def silicon() -> bytes:
    raw = packed(512, (0x60, le(0x2F000000)), (0x10C, le(1, 2)))
    return packed(512, (0, raw), (0x13E, le(-sum(struct.unpack("<159H", raw[:0x13E])) & 0xFFFF, 2)))


def bcachefs(length: int) -> Pieces:
    def copy(at: int) -> tuple[int, bytes]:
        return at, packed(
            1024, (16, le(0x401, 2)), (24, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")), (40, UUID), (56, UUID),
            (104, le(at // 512, 8)), (120, le(8, 2)), (123, b"\1"), (240 + 17, b"\5"),
        )  # fmt: skip

    return [copy(4096), copy(2 * MIB), copy(length - MIB)]


def drbd(magic: int) -> bytes:
    return packed(4096, (48, le(7, 8)), (60, be(magic)), (80, be(4096)), (84, be(0)))


def zfs(length: int) -> Pieces:
    label = bytearray(zfs_label(ashift=12, order="<"))
    for slot in range(32):
        struct.pack_into("<Q", label, 128 * KIB + slot * 4096 + 16, 4 + slot)
    end = length & ~(256 * KIB - 1)
    return [(at, bytes(label)) for at in (0, 256 * KIB, end - 512 * KIB, end - 256 * KIB)]


def nilfs(length: int) -> Pieces:
    raw = packed(1024, (0, le(2)), (6, b"\x34\x34"), (8, le(280, 2)), (12, le(0x1234)), (20, le(2)),
                 (32, le(length, 8)), (152, UUID))  # fmt: skip
    value = crc32(raw[:280], 0x1234)
    raw = packed(1024, (0, raw), (16, le(value)))
    return [(1024, raw), ((length // 512 - 8) * 512, raw)]


def zonefs() -> bytes:
    raw = packed(4096, (0, b"SFOZ"), (8, b"zoned"), (40, UUID))
    return packed(4096, (0, raw), (4, le(crc32(raw))))


def ubi() -> bytes:
    raw = packed(64, (0, b"UBI#\1"), (16, be(64) + be(128) + be(77)))
    return packed(64, (0, raw), (60, be(crc32(raw[:60]))))


def ubifs() -> bytes:
    raw = packed(4096, (0, b"\x31\x18\x10\x06"), (16, le(4096)), (20, b"\6"), (80, le(4)), (116, UUID))
    return packed(4096, (0, raw), (4, le(crc32(raw[8:]))))


def romfs() -> bytes:
    return sum_fixed(packed(512, (0, b"-rom1fs-"), (8, be(512)), (16, b"rom")), 12, 4, 128, ">")


def apfs() -> bytes:
    raw = packed(4096, (8, le(1, 8)), (24, le(1, 2)), (32, b"NXSB" + le(4096) + le(1000, 8)), (72, UUID))
    low = high = 0
    for (word,) in struct.iter_unpack("<I", raw[8:]):
        low = (low + word) % 0xFFFFFFFF
        high = (high + low) % 0xFFFFFFFF
    first = 0xFFFFFFFF - (low + high) % 0xFFFFFFFF
    return packed(4096, (0, raw), (0, le(first) + le(0xFFFFFFFF - (low + first) % 0xFFFFFFFF)))


def stratis() -> bytes:
    raw = packed(512, (4, b"!Stra0tis\x86\xff\x02^\x41rh"), (20, le(8192, 8)), (32, b"a" * 64))
    return packed(512, (0, raw), (0, le(crc32c(raw[4:]) ^ 0xFFFFFFFF)))


def mpool() -> bytes:
    raw = packed(512, (0, b"mpoolDev"), (8, b"pool"), (40, UUID))
    return packed(512, (0, raw), (62, le(crc32c(raw[:62]) ^ 0xFFFFFFFF)))


def lvm() -> bytes:
    raw = packed(512, (0, b"LABELONE" + le(1, 8)), (20, le(32) + b"LVM2 001"), (32, handmade_layers.LVM_UUID))
    return packed(512, (0, raw), (16, le(crc32(raw[20:], 0xF597A6CF))))


def befs(at: int, _length: int) -> Pieces:
    """Return a BeFS with the inode of its root folder, which libblkid checks."""
    raw = packed(512, (0, b"Haiku"), (32, b"1SFB" + b"EGIB" + le(2048) + le(11) + le(1000, 8)), (64, le(2048)),
                  (68, le(0xDD121031)), (112, le(0x15B6830E) + le(0) + le(1, 2) + le(1, 2)))  # fmt: skip
    return [(at, raw), (2048, le(0x3BBE0AD9))]


def udf(length: int) -> Pieces:
    """Return the volume recognition sequence, the anchor, and the logical volume descriptor, whose domain is UDF's
    (ECMA-167, 3/10.6; UDF 2.60, 2.2.4.3).
    """
    volume = packed(
        512,
        (0, le(6, 2)),
        (12, le(257)),
        (84, b"\x08disc"),
        (211, b"\5"),
        (212, le(2048)),
        (217, b"*OSTA UDF Compliant"),
    )
    return [
        *(
            (32 * KIB + index * 2048, packed(16, (0, b"\0" + name + b"\1")))
            for index, name in enumerate((b"BEA01", b"NSR02", b"TEA01"))
        ),
        (256 * 2048, packed(512, (0, le(2, 2)), (12, le(256)), (16, le(8 * 2048) + le(257)))),
        (257 * 2048, volume),
    ]


def iso(length: int) -> Pieces:
    root = packed(34, (0, b"\x22\0"), (2, le(20) + be(20)), (10, le(2048) + be(2048)), (25, b"\2"), (32, b"\1\0"))
    volume = packed(
        2048,
        (0, b"\1CD001\1"),
        (8, b" " * 32),
        (40, b"DISC".ljust(32)),
        (80, le(1000) + be(1000)),
        (128, le(2048, 2) + be(2048, 2)),
        (156, root),
        (190, b" " * 623),
        (813, b"2020010100000000\0"),
    )
    return [(32 * KIB, volume), (34 * KIB, b"\xffCD001\1"), (20 * 2048, root)]


def md(version: str, length: int) -> Pieces:
    return [handmade_layers.md(version, size=length)]


def md_over_ext(length: int) -> Pieces:
    return [*made_by("mkfs.ext4 -q -F -b 1024 {image}")(length - 128 * KIB), handmade_layers.md_0_90(length)]


def md_1_0_over_ext(length: int) -> Pieces:
    return [*made_by("mkfs.ext4 -q -F -b 1024 {image}")(length - 128 * KIB), handmade_layers.md("1.0", size=length)]


def sun() -> bytes:
    raw = bytearray(packed(512, (508, b"\xda\xbe"), (0, b"Sun")))
    total = 0
    for (word,) in struct.iter_unpack("<H", raw[:510]):
        total ^= word
    raw[510:512] = le(total, 2)
    return bytes(raw)


MBR = packed(512, (446, b"\x80\0\0\0\x83\0\0\0" + le(8) + le(100)), (510, b"\x55\xaa"))
ATARI = packed(512, (0x1C2, be(8192)), (0x1C6, b"\1GEM" + be(2) + be(100)))
PLACES_OF_PROMISE = (63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087)


HIGH_SIERRA = packed(2048, (8, b"\1CDROM\1"))
MINIX_3 = packed(64, (0, le(64)), (6, le(1, 2) + le(1, 2) + le(7, 2)), (16, le(1 << 20) + le(1000)), (24, b"\x5a\x4d"),
                 (28, le(1024, 2)))  # fmt: skip


def xfs_head(_length: int) -> Pieces:
    """Return the first sector of an XFS, which has no size below 300 MiB."""
    with tempfile.NamedTemporaryFile(suffix=".img") as image:
        image.truncate(300 * MIB)
        run("mkfs.xfs", "-q", image.name)
        return [(0, image.read(512))]


def minix(at: int, magic: bytes) -> Callable[[int], Pieces]:
    return at_place(
        1024, packed(64, (0, le(64, 2) + le(1000, 2) + le(1, 2) + le(1, 2) + le(7, 2)), (18, le(1, 2)), (at, magic))
    )


def swap(page: int, magic: bytes) -> Callable[[int], Pieces]:
    return lambda length: [
        (1024, le(1) + le(length // page - 1) + le(0) + UUID),
        (page - len(magic), magic.ljust(10, b"\0")[:10]) if len(magic) == 10 else (page - 10, magic),
    ]


def luks2(second: int, _length: int) -> Pieces:
    return [handmade_layers.luks2(b"LUKS\xba\xbe", 0), handmade_layers.luks2(b"SKUL\xba\xbe", second)]


def ext4dev(length: int) -> Pieces:
    """Return an ext4 with the flag of a file system under development."""
    made = dict(made_by("mkfs.ext4 -q -F -O ^metadata_csum {image}")(length))
    return [(0, packed(len(made[0]), (0, made[0]), (1024 + 0x160, b"\4"))), *list(made.items())[1:]]


def fat_and_table(length: int) -> Pieces:
    """Return a FAT without boot code: its sector is an empty partition table once the FAT is hidden."""
    made = dict(made_by("mkfs.vfat -F 16 {image}")(length))
    return [(0, packed(len(made[0]), (0, made[0]), (62, bytes(448)))), *list(made.items())[1:]]
