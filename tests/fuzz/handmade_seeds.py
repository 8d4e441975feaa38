"""Seeds that need no other tool: tables, pages and texts, written by hand, small and mostly valid.

One list of disks per family, and the texts of the targets that take no disk. Layouts are those of the public
specifications; the checksums come from `checksums`.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from aligntool.units import GIB, MIB
from tests.fuzz import handmade_layers
from tests.fuzz.checksums import fix_checksums
from tests.fuzz.machine import FILES, PLACES, Edit
from tests.fuzz.sparse import IS_DRIVE, SparseDisk, of_pieces

LINUX = UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le
Disks = Callable[[], list[SparseDisk]]


def mbr(*entries: tuple[int, int, int]) -> bytes:
    """Make an MBR with entries of type, start and length."""
    rows = b"".join(
        struct.pack("<B3sB3sII", 0, b"\1\1\0", kind, b"\xfe\xff\xff", start, length) for kind, start, length in entries
    )
    return bytes(440) + b"\xcd\xab\x34\x12\0\0" + rows.ljust(64, b"\0") + b"\x55\xaa"


def gpt(sector: int, size: int, *extents: tuple[int, int], guard: bytes | None = None) -> SparseDisk:
    last = size // sector - 1
    array = b"".join(
        LINUX
        + bytes([index + 1]) * 16
        + struct.pack("<QQQ", first, end, 1 << 60)
        + "data".encode("utf-16-le").ljust(72, b"\0")
        for index, (first, end) in enumerate(extents)
    )
    after = -(-16384 // sector)

    def header(own: int, other: int, entries: int) -> bytes:
        return b"EFI PART" + struct.pack("<IIIIQQQQ16sQIII", 0x10000, 92, 0, 0, own, other, 2 + after, last - after - 1,
                                         b"\x11" * 16, entries, 128, 128, 0)  # fmt: skip

    pieces = [
        (0, guard or mbr((0xEE, 1, min(last, 0xFFFFFFFF)))), (sector, header(1, last, 2)), (2 * sector, array),
        ((last - after) * sector, array), (last * sector, header(last, 1, last - after)),
    ]  # fmt: skip
    choices = {512: 0, 4096: 2}.get(sector, 1)
    return fix_checksums(of_pieces(size, pieces, choices=choices))


def gpt_disks() -> list[SparseDisk]:
    hybrid = mbr((0xEE, 1, 63), (0x83, 2048, 4096))
    return [
        gpt(512, 64 * MIB, (2048, 4095), (4096, 8191)),
        gpt(512, GIB, (34, 4095), (40, 8191), guard=hybrid),
        gpt(4096, 64 * MIB, (256, 1023)),
        gpt(4096, 64 * MIB),
    ]


def mbr_disks() -> list[SparseDisk]:
    chain = [
        (0, mbr((0x83, 63, 8000), (0x05, 16065, 48195))),
        (16065 * 512, mbr((0x83, 63, 16002), (0x05, 16065, 16065))),
        (32130 * 512, mbr((0x82, 63, 16002))),
    ]
    label = struct.pack("<I", 0x82564557).ljust(132, b"\0") + struct.pack("<I2xH", 0x82564557, 3)
    slices = b"".join(struct.pack("<IIIBBH", 1000, start, 0, 7, 0, 0) for start in (0, 1000, 0))
    bsd = label.ljust(148, b"\0") + slices
    solaris = bytes(12) + struct.pack("<II10xH", 0x600DDEEE, 1, 8)
    solaris = solaris.ljust(72, b"\0") + struct.pack("<HHII", 2, 0, 100, 200)
    unixware = struct.pack("<4xI", 0xCA5E600D).ljust(156, b"\0") + struct.pack("<I", 0x600DDEEE)
    unixware = unixware.ljust(228, b"\0") + struct.pack("<HHII", 2, 0, 70000, 200)
    nested = [
        (0, mbr((0xA5, 2048, 8000), (0xBF, 16384, 8000), (0x81, 32768, 8000), (0x63, 65536, 8000))),
        (2049 * 512, bsd), (16385 * 512, solaris), (32768 * 512, mbr((0x81, 32769, 100), (0x81, 33000, 100))),
        ((65536 + 29) * 512, unixware),
    ]  # fmt: skip
    fat = b"\xeb\x3c\x90mkfs.fat" + struct.pack("<HBHBHHBH", 512, 4, 1, 2, 512, 0, 0xF8, 32) + bytes(424)
    stick = fat[:446] + mbr((0x0C, 2048, 8000))[446:]
    return [
        of_pieces(64 * MIB, chain), of_pieces(64 * MIB, nested), of_pieces(64 * MIB, [(0, stick)]),
        of_pieces(64 * MIB, [(0, mbr((0x83, 256, 1000)))], choices=2),
        of_pieces(64 * MIB, [(0, mbr((0, 0, 90000), (0xEF, 100, 200))), (0x8000, b"\1CD001\1")]),
        of_pieces(64 * MIB, [(0, mbr((0x42, 63, 100000))), (6 * 512, b"PRIVHEAD")]),
        of_pieces(64 * MIB, [(0, mbr((0x05, 1, 100))), (512, mbr((0, 0, 0), (0x05, 0, 100)))]),
    ]  # fmt: skip


def old_labels() -> list[SparseDisk]:
    apm = [(0, b"ER\x02\0" + struct.pack(">I", 131072))]
    for number, kind in enumerate((b"Apple_partition_map", b"Apple_HFS", b"Apple_Free"), 1):
        entry = struct.pack(">2s2xIII", b"PM", 3, 64 * number, 63) + b"name".ljust(32, b"\0") + kind.ljust(32, b"\0")
        apm.append((512 * number, entry.ljust(136, b"\1")))
    sun = bytearray(512)
    struct.pack_into(">I8xH", sun, 128, 1, 8)
    struct.pack_into(">HHHH", sun, 142, 5, 0, 2, 0)
    struct.pack_into(">I", sun, 188, 0x600DDEEE)
    struct.pack_into(">HH", sun, 436, 16, 63)
    struct.pack_into(">IIII", sun, 444, 0, 100000, 2, 5000)
    sun[508:510] = b"\xda\xbe"
    sgi = bytearray(b"\x0b\xe5\xa9\x41" + struct.pack(">HH", 0, 1) + b"/unix".ljust(504, b"\0"))
    struct.pack_into(">III", sgi, 312, 8192, 4096, 10)
    atari = bytearray(512)
    struct.pack_into(">I", atari, 0x1C2, 131072)
    struct.pack_into(">B3sIIB3sII", atari, 0x1C6, 1, b"GEM", 2, 1000, 1, b"XGM", 2000, 3000)
    xgm = bytes(0x1C6) + struct.pack(">B3sIIB3sII", 1, b"RAW", 1, 500, 1, b"XGM", 600, 500)
    bsd = struct.pack("<I", 0x82564557).ljust(132, b"\0") + struct.pack("<I2xH", 0x82564557, 2)
    bsd = bsd.ljust(148, b"\0") + struct.pack("<IIIBBH", 1000, 16, 0, 7, 0, 0)
    format4 = b"\x04" * 44 + b"\xf4" + bytes(19) + struct.pack(">H", 15)
    format1 = "LINUX.V0X0201.PART0001.NATIVE".encode("cp037").ljust(44, b"\x40") + b"\xf1" + bytes(62)
    cdl = [(8192, "VOL1VOL10X0201".encode("cp037").ljust(92, b"\x40")), (12 * 4096, format4.ljust(140, b"\1")),
           (13 * 4096, (format1 + struct.pack(">HHHH", 0, 2, 9, 14)).ljust(140, b"\1"))]  # fmt: skip
    cms = "CMS10X0201".encode("cp037").ljust(12, b"\x40") + struct.pack(">I12xI20xI", 4096, 4000, 10)
    return [
        of_pieces(64 * MIB, apm), fix_checksums(of_pieces(64 * MIB, [(0, bytes(sun))])),
        fix_checksums(of_pieces(64 * MIB, [(0, bytes(sgi))])),
        of_pieces(64 * MIB, [(0, bytes(atari)), (2000 * 512, xgm)]),
        of_pieces(64 * MIB, [(512, bsd)]), of_pieces(64 * MIB, cdl, choices=2),
        of_pieces(64 * MIB, [(8192, cms.ljust(92, b"\0"))], choices=2),
        of_pieces(64 * MIB, [(8192, "LNX10X0201".encode("cp037").ljust(79, b"\x40") + b"\xf2" + bytes(12))], choices=2),
    ]  # fmt: skip


def whole_disks() -> list[SparseDisk]:
    """Return tables with layers on their partitions, and layers inside layers."""
    table = gpt(512, 256 * MIB, (2048, 131071), (131072, 262143))
    disks = []
    for family in ("md", "lvm", "luks", "linux-fs"):
        layer = handmade_layers.FAMILIES[family]()[0]
        moved = [(piece.at - layer.start + MIB, piece.content) for piece in layer.pieces]
        disks.append(of_pieces(table.size, [*((piece.at, piece.content) for piece in table.pieces), *moved]))
    return [*disks, *mbr_disks()[:1], *handmade_layers.FAMILIES["other-layers"]()[:3]]


def nvme_pages() -> list[SparseDisk]:
    controller = bytearray(4096)
    controller[4:72] = b"S3R1AL".ljust(20) + b"Made Up NVMe".ljust(40) + b"1.0".ljust(8)
    controller[77] = 5
    struct.pack_into("<II", controller, 272, 16384, 1024)
    namespace = bytearray(4096)
    namespace[0:8] = (1 << 30).to_bytes(8, "little")
    namespace[24:27] = bytes((0x12, 1, 1))
    struct.pack_into("<5H", namespace, 64, 7, 7, 7, 7, 31)
    struct.pack_into("<HBBHBB", namespace, 128, 0, 9, 2, 8, 12, 0)
    pieces = [(0, bytes(controller)), (4096, bytes(namespace)), (8192, b"\1" + struct.pack("<I", 16384))]
    return [of_pieces(GIB, pieces, start=MIB), of_pieces(GIB, pieces[1:], start=32256)]


def ata_pages() -> list[SparseDisk]:
    words = bytearray(512)
    for number, value in ((0, 0x40), (75, 31), (76, 0x0100), (78, 0x0200), (106, 0x6003), (209, 0x4001), (217, 5400)):
        struct.pack_into("<H", words, 2 * number, value)
    words[20:40], words[54:94] = b"ESIRLA".ljust(20), b"aMedU p".ljust(40)
    page = b"\0\x89\x02\x38".ljust(56, b"\0") + b"\xec".ljust(4, b"\0")
    return [of_pieces(GIB, [(0, bytes(words)), (512, b"\0\x80\0\x04abcd")], start=32256, choices=IS_DRIVE),
            of_pieces(GIB, [(0, page + bytes(words))])]  # fmt: skip


def udev_texts(_folder: Path) -> list[bytes]:
    records = [content for path, content in FILES.items() if path.startswith("/run/udev")]
    return [*records, b"DEVLINKS=/dev/disk/by-id/a /dev/disk/by-path/b\nID_MODEL_ENC=a\\x20b\\x5c\\xff\nID_SERIAL=1\n"]


def lvm_texts(_folder: Path) -> list[bytes]:
    return [handmade_layers.LVM_TEXT, b'a {\nb = [1, 2.5, "x\\"y"] # why\nc { d = -3 }\n}\ne = "\xc3\xbc"\n']


def machine_edits(_folder: Path) -> list[bytes]:
    """Return the unmodified files, five to an input, and a link that points to itself."""
    alone = [Edit(index, 0, FILES[path]).encoded() for index, path in enumerate(PLACES) if path in FILES]
    circle = Edit(1, 13, PLACES[1].encode()).encoded()
    return [*(b"".join(alone[at : at + 5]) for at in range(0, len(alone), 5)), circle]


FAMILIES: dict[str, Disks] = {
    "gpt": gpt_disks,
    "mbr": mbr_disks,
    "old-labels": old_labels,
    "contents": whole_disks,
    "nvme": nvme_pages,
    "ata": ata_pages,
    **handmade_layers.FAMILIES,
}
