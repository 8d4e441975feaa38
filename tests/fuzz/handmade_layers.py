"""Superblocks written by hand, small and just valid enough to be recognised: for missing tools, and for formats that no
tool here makes.

One list of disks per family of layers. Layouts: the headers that `aligntool.contents.layers` names.
"""

import json
import struct
from collections.abc import Callable

from aligntool.units import KIB, MIB
from tests.fuzz.checksums import fix_checksums
from tests.fuzz.sparse import SparseDisk, of_pieces

UUID = bytes(range(1, 17))
SIZE = 64 * MIB
LVM_UUID = b"abcdefghijklmnopqrstuvwxyzABCDEF"

LVM_TEXT = b"""vg {
id = "xxxxxx-xxxx-xxxx-xxxx-xxxx-xxxx-xxxxxx"
seqno = 3
status = ["RESIZEABLE", "READ", "WRITE"]
extent_size = 8192
physical_volumes {
pv0 {
id = "abcdef-ghij-klmn-opqr-stuv-wxyz-ABCDEF"
dev_size = 131072
pe_start = 2048
pe_count = 15
}
}
logical_volumes {
lv {
status = ["READ", "WRITE", "VISIBLE"]
segment_count = 2
segment1 {
start_extent = 0
extent_count = 4
type = "striped"
stripe_count = 1
stripes = ["pv0", 0]
}
segment2 {
start_extent = 4
extent_count = 4
type = "striped"
stripe_count = 2
stripe_size = 128
stripes = ["pv0", 4, "pv1", 0]
}
}
lv_rimage_0 {
segment1 {
start_extent = 0
extent_count = 2
mirrors = ["pv0", 8]
}
}
}
}
"""


def packed(length: int, *fields: tuple[int, bytes]) -> bytes:
    raw = bytearray(length)
    for at, content in fields:
        raw[at : at + len(content)] = content
    return bytes(raw)


def le(value: int, length: int = 4) -> bytes:
    return value.to_bytes(length, "little")


def be(value: int, length: int = 4) -> bytes:
    return value.to_bytes(length, "big")


def md(version: str, level: int = 1, *, data: int = 2048, size: int = SIZE, uuid: bytes = UUID) -> tuple[int, bytes]:
    at = {"1.0": (size & ~4095) - 8192, "1.1": 0, "1.2": 4096}[version]
    raw = packed(
        512, (0, b"\xfc\x4e\x2b\xa9\1\0\0\0"), (16, uuid), (32, b"host:0"), (72, le(level)), (88, le(1024)),
        (92, le(2)), (128, le(data, 8)), (136, le(size // 512 - 4096, 8)), (144, le(at // 512, 8)), (220, le(2)),
    )  # fmt: skip
    return at, packed(512, (0, raw), (216, le(md_sum(raw))))


def md_sum(raw: bytes) -> int:
    """Return the checksum of a superblock in which it is 0 (drivers/md/md.c, calc_sb_1_csum)."""
    length = 256 + 2 * int.from_bytes(raw[220:224], "little")
    total: int = sum(struct.unpack_from(f"<{length // 4}I{length % 4 // 2}H", raw))
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


def md_0_90(size: int = SIZE) -> tuple[int, bytes]:
    words = {0: 0xA92B4EFC, 1: 0, 2: 90, 5: 7, 7: 1, 8: (size - 65536) // 1024, 10: 2, 13: 1, 14: 2, 15: 3, 65: 65536}
    return (size & ~0xFFFF) - 0x10000, packed(512, *((4 * word, le(value)) for word, value in words.items()))


def ext(**fields: int) -> tuple[int, bytes]:
    return 1024, packed(
        1024, (4, le(16384)), (0x18, le(2)), (0x20, le(32768)), (0x38, b"\x53\xef"), (0x4C, le(1)), (0x5C, le(4)),
        (0x60, le(fields.get("incompat", 0x2C2))), (0x64, le(0x46B)), (0x68, UUID), (0x78, b"root"),
        (0x164, le(fields.get("stride", 16), 2)), (0x170, le(64)),
    )  # fmt: skip


def xfs() -> tuple[int, bytes]:
    return 0, packed(
        512, (0, b"XFSB" + be(4096) + be(16384, 8)), (32, UUID), (84, be(4096) + be(4)), (100, be(0xB4A5, 2)),
        (102, be(512, 2) + be(512, 2)), (108, b"data"), (120, bytes((12, 9, 9))), (184, be(16) + be(32)),
    )  # fmt: skip


def swap() -> tuple[int, bytes]:
    return 1024, packed(3072, (0, le(1) + le(16383)), (12, UUID), (28, b"swap"), (3062, b"SWAPSPACE2"))


def _disk(*pieces: tuple[int, bytes], size: int = SIZE, choices: int = 0, start: int = 0) -> SparseDisk:
    moved = [(at + start, content) for at, content in pieces]
    return fix_checksums(of_pieces(size + start, moved, start=start, choices=choices))


def md_members() -> list[SparseDisk]:
    inside = (MIB + 1024, ext()[1])
    luks = (MIB, luks1()[1])
    return [
        _disk(md("1.2"), inside, start=MIB), _disk(md("1.1", 0, data=264)), _disk(md("1.0", data=0), ext()),
        _disk(md_0_90(), xfs()), _disk(md("1.2"), luks), _disk(md("1.0", data=0), md("1.1"), md("1.2"), md_0_90()),
    ]  # fmt: skip


def lvm(text: bytes = LVM_TEXT) -> list[tuple[int, bytes]]:
    label = packed(
        512, (0, b"LABELONE" + le(1, 8)), (20, le(32)), (24, b"LVM2 001"), (32, LVM_UUID), (64, le(SIZE, 8)),
        (72, le(MIB, 8)), (104, le(4096, 8) + le(MIB - 4096, 8)),
    )  # fmt: skip
    area = packed(
        512, (4, b" LVM2 x[5A%r0N*>" + le(1) + le(4096, 8) + le(MIB - 4096, 8) + le(512, 8) + le(len(text), 8))
    )
    return [(512, label), (4096, area), (4096 + 512, text)]


def lvm_volumes() -> list[SparseDisk]:
    inside = (MIB + 1024, ext()[1])
    nested = [(MIB + at, content) for at, content in lvm()]
    return [_disk(*lvm(), inside, start=32256), _disk(*lvm()), _disk(*lvm(), *nested, start=MIB)]


def luks1() -> tuple[int, bytes]:
    return 0, packed(592, (0, b"LUKS\xba\xbe\0\1"), (8, b"aes"), (104, be(4096)), (168, b"0a0b0c0d-1111"))


def luks2(magic: bytes, at: int, **changes: object) -> tuple[int, bytes]:
    segment = {"type": "crypt", "offset": "16777216", "size": "dynamic", "sector_size": 4096, **changes}
    tree = {"keyslots": {}, "segments": {"0": segment}, "config": {"json_size": "12288"}}
    header = packed(
        512, (0, magic + b"\0\2"), (8, be(16384, 8)), (16, be(3, 8)), (24, b"label"), (72, b"sha256"),
        (168, b"0a0b0c0d-2222"), (256, be(at, 8)),
    )  # fmt: skip
    return at, header.ljust(4096, b"\0") + json.dumps(tree).encode()


def luks_volumes() -> list[SparseDisk]:
    first, second = luks2(b"LUKS\xba\xbe", 0), luks2(b"SKUL\xba\xbe", 16384)
    two = luks2(b"LUKS\xba\xbe", 0, offset="512", size="1048576")
    return [_disk(first, second, start=MIB), _disk(first), _disk(second), _disk(two), _disk(luks1(), start=32256)]


def linux_fs() -> list[SparseDisk]:
    btrfs = packed(4096, (32, UUID), (64, b"_BHRfS_M"), (144, le(4096)), (209, le(SIZE, 8)), (299, b"data"))
    f2fs = packed(3072, (0, b"\x10\x20\xf5\xf2\1\0\x0f\0"), (16, le(12)), (0x20, le(3068)), (0x24, le(16384, 8)),
                  (0x5C, le(1024)), (0x6C, UUID), (0x7C, "f2".encode("utf-16-le")))  # fmt: skip
    bcache = packed(256, (8, le(8, 8)), (16, le(1, 8)), (24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
                    (40, UUID), (72, b"cached"), (192, le(8, 2) + le(1024, 2)), (204, le(1, 2) + le(1, 2)))  # fmt: skip
    bcachefs = packed(832, (8, le(1, 8)), (16, le(0x401, 2)), (24, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")),
                      (104, le(8, 8)), (120, le(8, 2)), (124, le(10)), (752, le(10) + le(11) + le(32, 2)),
                      (768 + 16, le(128, 8) + le(1, 2) + le(512, 2)))  # fmt: skip
    erofs = packed(128, (0, b"\xe2\xe1\xf5\xe0"), (8, le(1)), (12, b"\x0c"), (36, le(1000)), (48, UUID))
    squashfs = packed(96, (0, b"hsqs"), (28, le(4, 2) + le(0, 2)), (40, le(MIB, 8)))
    cramfs = packed(64, (0, le(0x28CD3D45) + le(MIB) + le(1)), (16, b"Compressed ROMFS"), (48, b"small"))
    log = packed(512, (0, b"\xfe\xed\xba\xbe"), (8, be(2) + be(1024)), (300, be(1)))
    return [
        _disk(ext(), start=MIB), _disk(ext(incompat=0x8)), _disk(xfs(), start=32256), _disk((64 * KIB, btrfs)),
        _disk((1024, f2fs)), _disk((4096, bcache), (8192 + 1024, ext()[1])), _disk((4096, bcachefs)), _disk(swap()),
        _disk((1024, erofs)), _disk((0, squashfs)), _disk((0, cramfs)), _disk((1024, log)), _disk(ext(), swap(), xfs()),
    ]  # fmt: skip


def windows_fs() -> list[SparseDisk]:
    fat16 = packed(512, (0, b"\xeb\x3c\x90mkfs.fat"), (11, struct.pack("<HBHBHHBH", 512, 4, 4, 2, 512, 0, 0xF8, 128)),
                   (32, le(131072)), (38, b"\x29\1\2\3\4NO NAME    FAT16   "), (510, b"\x55\xaa"))  # fmt: skip
    label = packed(32, (0, b"LABEL      \x08"))
    fat32 = packed(512, (0, b"\xeb\x58\x90mkfs.fat"), (11, struct.pack("<HBHBHHBH", 512, 1, 32, 2, 0, 0, 0xF8, 0)),
                   (32, le(131072)), (36, le(1008)), (44, le(2)), (48, le(1, 2)), (66, b"\x29\1\2\3\4"),
                   (82, b"FAT32   "), (510, b"\x55\xaa"))  # fmt: skip
    info = packed(512, (0, b"RRaA"), (484, b"rrAa"))
    exfat = packed(512, (0, b"\xeb\x76\x90EXFAT   "), (72, le(131072, 8)), (80, le(128) + le(128) + le(256)),
                   (92, le(16000) + le(4) + le(77)), (104, b"\0\1"), (108, b"\x09\x03\x01"),
                   (510, b"\x55\xaa"))  # fmt: skip
    name = packed(32, (0, b"\x83\x04"), (2, "data".encode("utf-16-le")))
    ntfs = packed(512, (0, b"\xeb\x52\x90NTFS    "), (11, le(512, 2) + b"\x08"), (21, b"\xf8"), (40, le(131071, 8)),
                  (48, le(4, 8) + le(8, 8)), (64, b"\xf6\0\0\0\1"), (72, le(77, 8)), (510, b"\x55\xaa"))  # fmt: skip
    record = packed(128, (0, b"FILE"), (20, le(56, 2)), (56, le(0x60) + le(40)), (72, le(8) + le(24, 2)),
                    (80, "data".encode("utf-16-le")))  # fmt: skip
    locked = packed(512, (0, b"\xeb\x58\x90-FVE-FS-"), (11, le(512, 2) + b"\x08"), (176, le(MIB, 8)))
    metadata = packed(256, (0, b"-FVE-FS-"), (10, le(2, 2)), (64, le(100)), (80, UUID),
                      (112, le(28, 2) + le(7, 2) + le(2, 2) + le(1, 2) + "PC C: 1/1".encode("utf-16-le")))  # fmt: skip
    refs = packed(512, (3, b"ReFS\0\0\0\0"), (16, b"FSRS"), (24, le(131072, 8) + le(512) + le(8)), (40, b"\3\4"))
    return [
        _disk((0, fat16), ((4 + 256) * 512, label), start=MIB),
        _disk((0, fat32), (512, info), ((32 + 2016) * 512, label)),
        _disk((0, exfat), (256 * 512 + 8192, name)), _disk((0, ntfs), (4 * 4096 + 3 * 1024, record)),
        _disk((0, locked), (MIB, metadata)), _disk((0, refs)), _disk((0, b"\xeb\x52\x90-FVE-FS-")),
    ]  # fmt: skip


def _xdr(name: str, kind: int, value: bytes) -> bytes:
    raw = name.encode()
    body = be(len(raw)) + raw.ljust(len(raw) + 3 & ~3, b"\0") + be(kind) + be(1) + value
    return be(8 + len(body)) + be(8 + len(body)) + body


def other_layers() -> list[SparseDisk]:
    zfs = b"\1\1\0\0" + be(0) + be(1) + _xdr("version", 8, be(5000, 8)) + _xdr("name", 9, be(4) + b"tank")
    zfs += (
        _xdr("pool_guid", 8, be(77, 8))
        + _xdr("vdev_tree", 19, be(0) + be(1))
        + _xdr("ashift", 8, be(12, 8))
        + bytes(16)
    )
    apfs = packed(4096, (24, le(1, 2)), (32, b"NXSB" + le(4096) + le(16384, 8)), (72, UUID))
    plus = packed(512, (0, b"H+\0\4"), (40, be(4096) + be(16384)), (104, UUID[:8]), (288, be(16) + be(4)))
    tree = packed(512, (24, be(1)), (32, be(4096, 2)))
    leaf = packed(64, (16, be(1)), (20, be(4, 2) + "Disk".encode("utf-16-be")))
    hfs = packed(
        512, (0, b"BD"), (18, be(1000, 2) + be(4096)), (28, be(16, 2)), (36, b"\4Disk"), (124, b"H+" + be(1, 2))
    )
    ufs = packed(
        1376, (36, le(16384)), (52, le(4096)), (144, le(1) + le(2)), (1080, le(16384, 8)), (1372, le(0x19540119))
    )
    iso = packed(2048, (0, b"\1CD001\1"), (40, b"DISC".ljust(32)), (80, le(1000) + be(1000)), (128, le(2048, 2)),
                 (813, b"2020010100000000\0"))  # fmt: skip
    joliet = packed(2048, (0, b"\2CD001\1"), (40, "Disc".encode("utf-16-be")), (88, b"%/E"))
    ldm = packed(512, (0, b"PRIVHEAD"), (12, be(2, 2) + be(12, 2)), (0x30, b"1b77da20"), (0x11B, be(63, 8)))
    intel = packed(512, (0, b"Intel Raid ISM Cfg Sig. 1.0.00"), (36, le(480)), (56, b"\2\1"),
                   (216 + 96 + 112, le(0) + le(0) + le(0) + le(128, 2) + b"\0\1\2"))  # fmt: skip
    ddf = packed(512, (0, b"\xde\x11\xde\x11"), (8, b"a guid of twenty-four by"), (32, b"01.02.00"))
    return [
        _disk((16 * KIB, zfs)), _disk((0, apfs)), _disk((1024, plus), (16 * 4096, tree), (17 * 4096, leaf)),
        _disk((1024, hfs), (16 * 512 + 4096 + 1024, plus)), _disk((1024, hfs[:124])), _disk((8192, ufs)),
        _disk((32 * KIB, iso), (34 * KIB, joliet), (36 * KIB, b"\xffCD001\1")), _disk((6 * 512, ldm)),
        _disk((SIZE - 1024, intel)), _disk((SIZE - 512, ddf)), _disk((SIZE - 512, b"$XIDE$")),
        _disk((SIZE - 4096 + 60, b"\x83\x74\x02\x6b")), _disk((64 * KIB + 0x34, b"ReIsEr2Fs")),
        _disk((SIZE - 512, b"JM\1\2")),
    ]  # fmt: skip


FAMILIES: dict[str, Callable[[], list[SparseDisk]]] = {
    "md": md_members,
    "lvm": lvm_volumes,
    "luks": luks_volumes,
    "linux-fs": linux_fs,
    "windows-fs": windows_fs,
    "other-layers": other_layers,
}
