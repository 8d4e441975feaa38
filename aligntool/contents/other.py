"""Contents that are only recognised: bcache, UFS, ISO 9660, APFS and HFS+, ReFS, disk image headers, and
others.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

from aligntool.contents.kind import Kind, StartField, contains_no_device
from aligntool.contents.signatures import UNIT, Signature, both_orders, from_end, magic
from aligntool.formats.numbers import be16, be32, be64, le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import MAY_BE_SHARED, Area, Magic, checksum_problem, crc32c, crc64, fletcher64
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, Extent, is_power_of_two

# Apple's file systems: HFS, HFS+ (also wrapped in HFS) and APFS.
#
# Sources: Apple Technical Note TN1150 (HFS Plus), Inside Macintosh: Files (HFS), Apple File System Reference
# (APFS).

HEADER_AT = 1024
SECTOR = 512
FORKS = 8
CATALOG_EXTENTS = 272 + 16  # offset in the volume header: in the catalog fork, after its sizes
NAMESPACE = bytes.fromhex("b3e20f39f29211d697a400306543ecac")  # Apple's, for version-3 UUIDs of volumes


def read_hfs(area: Area) -> Layer | None:
    header = area.read(HEADER_AT, 512)
    if header[:2] in (b"H+", b"HX"):
        return _read_plus(area, 0, header)
    if header[:2] != b"BD" or len(header) < SECTOR:
        return None
    block = be32(header, 20)
    first = be16(header, 28) * SECTOR
    if not block or block % SECTOR:
        return None
    if header[124:126] in (b"H+", b"HX"):
        offset = first + be16(header, 126) * block
        return _read_plus(area, offset, area.read(offset + HEADER_AT, 512))
    # a copy of the header and a reserved sector end the volume
    claims = first + be16(header, 18) * block + 2 * SECTOR
    return replace(
        area.layer("hfs", claims, block),
        label=text_at(header, 37, min(header[36], 27), "mac_roman"),
        uuid=_volume_uuid(header[116:124]),
        data_start=area.start + first,
    )


def _read_plus(area: Area, offset: int, header: bytes) -> Layer | None:
    block = be32(header, 40)
    blocks = be32(header, 44)
    if (
        header[:2] not in (b"H+", b"HX")
        or len(header) < SECTOR
        or block < SECTOR
        or not is_power_of_two(block)
    ):
        return None
    claims = blocks * block
    return Layer(
        kind="hfsplus",
        extent=Extent(area.start + offset, claims),
        label=_plus_label(area, offset, header, block),
        uuid=_volume_uuid(header[104:112]),
        data_start=area.start + offset,
        data_unit=block,
        claims_size=claims,
    )


def _volume_uuid(finder_id: bytes) -> str | None:
    if len(finder_id) < 8 or not any(finder_id):
        return None
    digest = hashlib.md5(NAMESPACE + finder_id, usedforsecurity=False).digest()
    return str(UUID(bytes=digest, version=3))


def _plus_label(area: Area, offset: int, header: bytes, block: int) -> str | None:
    """Return the name of the volume: the key of the first leaf record in the catalog tree."""
    extents = tuple(struct.iter_unpack(">II", header[CATALOG_EXTENTS : CATALOG_EXTENTS + 8 * FORKS]))
    tree = area.read(offset + extents[0][0] * block, 512)
    node = be16(tree, 14 + 18)
    leaf_head = be32(tree, 14 + 10)
    if node < SECTOR or not leaf_head:
        return None
    wanted = leaf_head * node // block
    for first, count in extents:
        if wanted < count:
            place = offset + (first + wanted) * block + leaf_head * node % block
            leaf = area.read(place, min(node, 4 * KIB))
            is_root_folder = be32(leaf, 14 + 2) == 1
            return (
                text_at(leaf, 14 + 8, min(be16(leaf, 14 + 6), 255) * 2, "utf-16-be")
                if is_root_folder
                else None
            )
        wanted -= count
    return None


def read_apfs(area: Area) -> Layer | None:
    superblock = area.head[:4096]
    if superblock[32:36] != b"NXSB" or le16(superblock, 24) != 1 or len(superblock) < 4096:
        return None
    block = le32(superblock, 36)
    if not is_power_of_two(block) or not 4 * KIB <= block <= 64 * KIB:
        return None
    claims = le64(superblock, 40) * block
    whole = area.read(0, block)
    return replace(
        area.layer("apfs", claims, block),
        uuid=uuid_at(superblock, 72),
        problems=checksum_problem("the APFS superblock", le64(whole, 0), fletcher64(whole[8:])),
    )


# bcache: backing and caching devices.
#
# Layout: linux/include/uapi/linux/bcache.h (kernel 5.x).

BCACHE_SUPERBLOCK_AT = 4096
BCACHE_SECTOR = 512
BCACHE_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
BACKING = (1, 4, 6)  # versions: backing device, with data offset, with features


def read_bcache(area: Area) -> Layer | None:
    superblock = area.read(BCACHE_SUPERBLOCK_AT, 4096)
    if superblock[24:40] != BCACHE_MAGIC or le64(superblock, 8) * BCACHE_SECTOR != BCACHE_SUPERBLOCK_AT:
        return None
    version = le64(superblock, 16)
    block = le16(superblock, 192) * BCACHE_SECTOR
    bucket = le16(superblock, 194) * BCACHE_SECTOR
    inner: tuple[Layer, ...] = ()
    if version in BACKING:
        offset = (16 if version == 1 else le64(superblock, 184)) * BCACHE_SECTOR  # BDEV_DATA_START_DEFAULT
        claims = None
        if 0 < offset < area.size:
            inner = area.inside(area.reader, Extent(area.start + offset, area.size - offset))
    else:
        offset = le16(superblock, 204) * bucket
        claims = le64(superblock, 184) * bucket or None
    return replace(
        area.layer("bcache", claims, block or None),
        version=str(version),
        label=text_at(superblock, 72, 32),
        uuid=uuid_at(superblock, 40),
        data_start=area.start + offset,
        inner=inner,
        problems=_bcache_problems(superblock),
    )


def _bcache_problems(superblock: bytes) -> tuple[str, ...]:
    keys = le16(superblock, 206)
    if keys > 256:
        return (f"the bcache superblock lists {keys} journal buckets, but at most 256 fit",)
    return checksum_problem(
        "the bcache superblock", le64(superblock, 0), crc64(superblock[8 : 208 + 8 * keys])
    )


# Read-only file systems: squashfs, EROFS and cramfs.
#
# Layouts: linux/fs/squashfs/squashfs_fs.h, linux/fs/erofs/erofs_fs.h, linux/include/uapi/linux/cramfs_fs.h.


def read_squashfs(area: Area) -> Layer | None:
    superblock = area.head[:96]
    number = {b"hsqs": le16, b"sqsh": be16}.get(superblock[:4])
    if number is None:
        return None
    major, minor = number(superblock, 28), number(superblock, 30)
    claims = le64(superblock, 40) if major == 4 and number is le16 else None
    return replace(
        area.layer("squashfs" if major >= 4 else "squashfs3", claims or None), version=f"{major}.{minor}"
    )


def read_erofs(area: Area) -> Layer | None:
    superblock = area.read(1024, 128)
    block_bits = superblock[12] if len(superblock) == 128 else 0
    if le32(superblock, 0) != 0xE0F5E1E2 or not 9 <= block_bits <= 16:
        return None
    block = 1 << block_bits
    layer = replace(
        area.layer("erofs", le32(superblock, 36) * block, block),
        label=text_at(superblock, 64, 16),
        uuid=uuid_at(superblock, 48),
    )
    if not le32(superblock, 8) & 1 or block <= 1024:
        return layer
    covered = area.read(1024, block - 1024)
    blanked = covered[:4] + bytes(4) + covered[8:]
    return replace(
        layer, problems=checksum_problem("the EROFS superblock", le32(superblock, 4), crc32c(blanked))
    )


def read_cramfs(area: Area) -> Layer | None:
    superblock = area.head[:64]
    number = {0x28CD3D45: le32, 0x453DCD28: be32}.get(le32(superblock, 0))
    if number is None or superblock[16:32] != b"Compressed ROMFS":
        return None
    second = number(superblock, 8) & 1
    layer = area.layer("cramfs", number(superblock, 4) or None if second else None)
    return replace(layer, version="2" if second else "1", label=text_at(superblock, 48, 16))


# Optical discs: ISO 9660 with Joliet, and UDF.
#
# Source: ECMA-119, sections 8.4 (primary volume descriptor) and 8.5 (supplementary).

ISO9660_AT = 32 * KIB
ISO9660_SECTOR = 2 * KIB
MOST_DESCRIPTORS = 16
UDF = (b"NSR02", b"NSR03")
UDF_STEPS = (2 * KIB, 4 * KIB)
JOLIET = (b"%/@", b"%/C", b"%/E")


def read_iso9660(area: Area) -> Layer | None:
    primary, joliet = _descriptors(area)
    if primary is None:
        return None
    block = le16(primary, 128)
    if not block or block % 512:
        return None
    dates = (_iso_date(primary[at : at + 17]) for at in (830, 813))  # of modification, of creation
    return replace(
        area.layer("iso9660", le32(primary, 80) * block, block),
        version="Joliet Extension" if joliet else None,
        label=_iso_label(primary, joliet),
        uuid=next(filter(None, dates), None),
    )


def read_udf(area: Area) -> Layer | None:
    """Return a UDF volume without sizes: the descriptors that have them would have to be searched. ECMA-167,
    2/8 and 3/9.1.
    """
    for step in UDF_STEPS:
        for at in range(ISO9660_AT + step, ISO9660_AT + MOST_DESCRIPTORS * ISO9660_SECTOR, step):
            if area.read(at + 1, 5) in UDF:
                return Layer(kind="udf", extent=area.extent)
    return None


def _descriptors(area: Area) -> tuple[bytes | None, bytes | None]:
    primary = joliet = None
    for index in range(MOST_DESCRIPTORS):
        descriptor = area.read(ISO9660_AT + index * ISO9660_SECTOR, ISO9660_SECTOR)
        if descriptor[1:6] != b"CD001" or descriptor[0] == 255:  # the last one
            break
        if descriptor[0] == 1:
            primary = primary or descriptor
        elif descriptor[0] == 2 and descriptor[88:91] in JOLIET:
            joliet = joliet or descriptor
    return primary, joliet


def _iso_label(primary: bytes, joliet: bytes | None) -> str | None:
    """Return the label. Joliet has 16 characters of any script, the primary descriptor 32 of ASCII; as in
    blkid, they are combined if the short label is a prefix of the long one.
    """
    plain = text_at(primary, 40, 32, "ascii") or ""
    if joliet is None:
        return plain or None
    short = joliet[40:72].decode("utf-16-be", "replace").ljust(16)[:16]
    long = primary[40:72].decode("ascii", "replace")
    same = all(
        ours == "_" or ours.upper() == theirs.upper() for ours, theirs in zip(long, short, strict=False)
    )
    return (short + long[16:] if same else short).replace("\0", " ").strip() or None


def _iso_date(raw: bytes) -> str | None:
    digits = raw[:16].decode("ascii", "replace")
    if len(digits) < 16 or not digits.isdigit() or (digits == "0" * 16 and raw[16:] == b"\0"):
        return None
    return "-".join((digits[:4], *(digits[at : at + 2] for at in range(4, 16, 2))))


# Rarer formats, which are recognised by a magic and not decoded.
#
# Offsets: the libblkid prober of each kind.

DRBD_BLOCK = 4 * KIB  # of the superblock, at the end of the device
DRBD_MARKS = (
    Magic("drbd", -DRBD_BLOCK + 60, b"\x83\x74\x02\x6b", version="v08"),
    Magic("drbd", -DRBD_BLOCK + 60, b"\x83\x74\x02\x6c", version="v08"),
    Magic("drbd", -DRBD_BLOCK + 60, b"\x83\x74\x02\x6d", version="v09"),
)
OWNER_MARKS = (
    Magic("DM_snapshot_cow", 0, b"SnAp"),
    Magic("DM_verity_hash", 0, b"verity\0\0", uuid=16, version="1"),
    Magic("DM_integrity", 0, b"integrt\0"),
    Magic("VMFS_volume_member", MIB, b"\x0d\xd0\x01\xc0"),
    Magic("stratis", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    Magic("ubi", 0, b"UBI#"),
)

OTHERS = (
    Magic("ceph_bluestore", 0, b"bluestore block device"),
    Magic("vdo", 0, b"dmvdo001", uuid=40),
    Magic("reiserfs", 64 * KIB + 0x34, b"ReIsEr2Fs", (64 * KIB + 100, 16), 64 * KIB + 84, "3.6"),
    Magic("reiserfs", 64 * KIB + 0x34, b"ReIsEr3Fs", (64 * KIB + 100, 16), 64 * KIB + 84, "JR"),
    Magic("reiserfs", 64 * KIB + 0x34, b"ReIsErFs", version="3.5"),
    Magic("reiserfs", 8 * KIB + 0x34, b"ReIsErFs", version="3.5"),
    Magic("reiser4", 64 * KIB, b"ReIsEr4", label=(64 * KIB + 36, 16), uuid=64 * KIB + 20, version="4"),
    Magic("jfs", 32 * KIB, b"JFS1", label=(32 * KIB + 152, 16), uuid=32 * KIB + 136),
    Magic("gfs2", 64 * KIB, b"\x01\x16\x19\x70\0\0\0\x01"),
    *(
        Magic("ocfs2", at * KIB, b"OCFSV2", label=(at * KIB + 272, 64), uuid=at * KIB + 336)
        for at in (1, 2, 4, 8)
    ),
    Magic("romfs", 0, b"-rom1fs-", label=(16, 16)),
    Magic("zonefs", 0, b"SFOZ"),
    Magic("oracleasm", 32, b"ORCLDISK", label=(40, 24)),
    Magic("VMFS", 2 * MIB, b"\x5e\xf1\xab\x2f", label=(2 * MIB + 29, 128)),
    Magic("nilfs2", KIB + 6, b"\x34\x34", label=(KIB + 168, 80), uuid=KIB + 152, version="2"),
    # Disks of virtual machines, as oVirt and Cinder keep them on a volume; with the high bytes of a version,
    # if any.
    Magic("qcow2", 0, b"QFI\xfb\0\0\0"),
    Magic("qed", 0, b"QED\0"),
    Magic("vmdk", 0, b"KDMV"),
    Magic("vdi", 64, b"\x7f\x10\xda\xbe"),
    Magic("vhdx", 0, b"vhdxfile"),
    Magic("vhd", 0, b"conectix"),
)


OCFS2_LOCAL_MOUNT = 0x8  # OCFS2_FEATURE_INCOMPAT_LOCAL_MOUNT


def read_drbd(area: Area) -> Layer | None:
    marks = () if area.ends_with_a_partition else DRBD_MARKS
    return next((layer for mark in marks if (layer := mark.layer(area))), None)


def read_owner(area: Area) -> Layer | None:
    return next((layer for mark in OWNER_MARKS if (layer := mark.layer(area))), None)


def read_other(area: Area) -> Layer | None:
    found = next(((mark, layer) for mark in OTHERS if (layer := mark.layer(area))), None)
    if found is None:
        return None
    mark, layer = found
    by = _shared_by(area, mark)
    return replace(layer, unclean=f"{MAY_BE_SHARED} ({by})") if by else layer


def _shared_by(area: Area, mark: Magic) -> str:
    """Return by what several machines may use a file system at once; "" if only one may, or if it is another
    kind.

    linux/include/uapi/linux/gfs2_ondisk.h, struct gfs2_sb; linux/fs/ocfs2/ocfs2_fs.h, struct
    ocfs2_super_block.
    """
    if mark.kind == "gfs2":
        protocol = text_at(area.read(mark.at + 96, 64), 0, 64)
        return f"lock protocol {protocol}" if protocol and protocol != "lock_nolock" else ""
    is_local = le32(area.read(mark.at + 192 + 32, 4), 0) & OCFS2_LOCAL_MOUNT
    return "a cluster" if mark.kind == "ocfs2" and not is_local else ""


# UFS1 and UFS2, the file systems of the BSDs and of Solaris.
#
# The superblock is at one of four offsets, in either byte order. Layout: FreeBSD sys/ufs/ffs/fs.h, struct fs.

MAGIC_AT = 1372
UFS2 = 0x19540119
MAGICS = (UFS2, 0x00011954, 0x00195612, 0x00095014, 0x00612195, 0x05231994)


def read_ufs(area: Area) -> Layer | None:
    for at in (0, 8 * KIB, 64 * KIB, 256 * KIB):
        superblock = area.read(at, MAGIC_AT + 4)
        for number, wide in ((le32, le64), (be32, be64)):
            magic = number(superblock, MAGIC_AT)
            fragment = number(superblock, 52)
            if magic not in MAGICS or not is_power_of_two(fragment) or not 512 <= fragment <= 64 * KIB:
                continue
            fragments = wide(superblock, 1080) if magic == UFS2 else number(superblock, 36)
            identity = number(superblock, 144), number(superblock, 148)
            return replace(
                area.layer("ufs", fragments * fragment or None, fragment),
                version="2" if magic == UFS2 else "1",
                label=text_at(superblock, 680, 32) if magic == UFS2 else None,
                uuid="{:08x}{:08x}".format(*identity) if any(identity) else None,
            )
    return None


# BFS, the file system of Haiku, as it is written on PCs.
#
# Haiku's headers/private/file_systems/bfs.h. Its boot block has the start of the partition at byte 506, in
# sectors of 512 bytes: src/bin/makebootable/platform/bios_ia32/makebootable.cpp, kPartitionOffsetOffset.


def read_befs(area: Area) -> Layer | None:
    superblock = area.head[SECTOR:KIB]
    block = le32(area.head, SECTOR + 40)
    if (superblock[32:36], le32(superblock, 68)) != (b"1SFB", 0xDD121031) or not is_power_of_two(block):
        return None
    return replace(
        area.layer("befs", le64(superblock, 48) * block, block),
        label=text_at(superblock, 0, 32),
        hidden_sectors=le32(area.head, 506) if area.head[510:SECTOR] == b"\x55\xaa" else 0,
    )


# ReFS. Layout: libfsrefs's format notes.


def read_refs(area: Area) -> Layer | None:
    boot = area.head[:512]
    if boot[:8] != b"\0\0\0ReFS\0":
        return None
    sector = le32(boot, 32)
    per_cluster = le32(boot, 36)
    known = sector in (512, 4096) and is_power_of_two(per_cluster) and sector * per_cluster <= 64 * KIB
    claims = le64(boot, 24) * sector if known else None
    return area.layer("ReFS", claims or None, sector * per_cluster if known else None)


# The kinds, and the signatures of libblkid: more than the readers recognise.

_Reader = Callable[[Area], Layer | None]


def _owner(name: str, *signatures: Signature, reader: _Reader | None = None) -> Kind:
    readers = () if reader is None else (reader,)
    return Kind(name, readers=readers, is_owner=True, signatures=signatures)


def _file_system(name: str, *signatures: Signature, reader: _Reader | None = None) -> Kind:
    """Return a kind without a block device inside."""
    kind = _owner(name, *signatures, reader=reader)
    return replace(kind, is_owner=False, is_seen_through=contains_no_device)


_UFS = both_orders(0x19540119, 0x00011954, 0x00195612, 0x00095014, 0x00612195, 0x05231994)
_WITH_SIGNATURES = (
    replace(
        _owner("bcache", magic("bcache", BCACHE_MAGIC, heads=(4 * KIB + 24,)), reader=read_bcache),
        is_seen_through=lambda layer: False,
        is_owner=False,
    ),  # the cache may have newer data
    _file_system("ceph_bluestore", magic("ceph_bluestore", b"bluestore block device", heads=(0,))),
    replace(
        _owner(
            "drbd",
            magic(
                "drbd",
                *(b"\x83\x74\x02" + last for last in (b"\x6b", b"\x6c", b"\x6d")),
                tails=((1, 4 * KIB - 60),),
            ),
            reader=read_drbd,
        ),
        array_title="DRBD",
    ),
    _owner("drbdmanage_control_volume", magic("drbdmanage_control_volume", b"$DRBDmgr=q", heads=(0,))),
    _owner("drbdproxy_datalog", magic("drbdproxy_datalog", b"DRBDdlh*", heads=(0,))),
    _owner("LVM1_member", magic("LVM1_member", b"HM", heads=(0,))),
    replace(_owner("DM_snapshot_cow", magic("DM_snapshot_cow", b"SnAp", heads=(0,))), describes_others=True),
    # Only hashes.
    replace(
        _file_system("DM_verity_hash", magic("DM_verity_hash", b"verity\0\0", heads=(0,))),
        describes_others=True,
    ),
    replace(_owner("DM_integrity", magic("DM_integrity", b"integrt\0", heads=(0,))), describes_others=True),
    replace(
        _file_system(
            "VMFS_volume_member",
            magic("VMFS_volume_member", b"\x0d\xd0\x01\xc0", heads=(MIB,)),
            reader=read_owner,
        ),
        is_owner=True,
    ),
    _owner("ubi", magic("ubi", b"UBI#", heads=(0,))),
    _owner("vdo", magic("vdo", b"dmvdo001", heads=(0,))),
    _owner("stratis", magic("stratis", b"!Stra0tis\x86\xff\x02^\x41rh", heads=(UNIT + 4, 9 * UNIT + 4))),
    _owner("cs_fvault2", magic("cs_fvault2", b"CS", heads=(88,))),
    _file_system("exfs", magic("exfs", b"EXFS", heads=(0,))),
    _file_system(
        "reiserfs",
        magic("reiserfs", b"ReIsErFs", heads=(8 * KIB + 0x34, 8 * KIB + 20)),
        magic("reiserfs", b"ReIsErFs", b"ReIsEr2Fs", b"ReIsEr3Fs", heads=(64 * KIB + 0x34,)),
    ),
    _file_system("reiser4", magic("reiser4", b"ReIsEr4", heads=(64 * KIB,))),
    _file_system("jfs", magic("jfs", b"JFS1", heads=(32 * KIB,))),
    replace(
        _file_system(
            "udf",
            magic(
                "udf",
                *(b"BEA01", b"BOOT2", b"CD001", b"CDW02", b"NSR02", b"NSR03", b"TEA01"),
                heads=(32 * KIB + 1,),
            ),
            reader=read_udf,
        ),
        coexists=True,
    ),
    replace(
        _file_system("iso9660", magic("iso9660", b"CDROM", heads=(32 * KIB + 9,)), reader=read_iso9660),
        coexists=True,
        is_disc_image=True,
        writes_units=False,
    ),
    _file_system("hfsplus", magic("hfsplus", b"BD", b"H+", b"HX", heads=(KIB,)), reader=read_hfs),
    replace(
        _file_system(
            "ufs",
            magic("ufs", *_UFS, heads=tuple(at * KIB + 1372 for at in (0, 8, 64, 256))),
            reader=read_ufs,
        ),
        leaves_label_free=True,
    ),
    _file_system("hpfs", magic("hpfs", b"\x49\xe8\x95\xf9", heads=(8 * KIB,))),
    _file_system(
        "sysv", magic("sysv", *both_orders(0xFD187E20), heads=tuple(at * KIB + 1016 for at in (0, 9, 15, 18)))
    ),
    _file_system("xenix", magic("xenix", b"\x2b\x55\x44", b"\x44\x55\x2b", heads=(2 * KIB,))),
    replace(
        _file_system("ReFS", magic("ReFS", b"\0\0\0ReFS\0", heads=(0,)), reader=read_refs),
        used_by_windows=True,
    ),
    _file_system(
        "cramfs", magic("cramfs", b"\x45\x3d\xcd\x28", b"\x28\xcd\x3d\x45", heads=(0,)), reader=read_cramfs
    ),
    _file_system("romfs", magic("romfs", b"-rom1fs-", heads=(0,))),
    _file_system("scoutfs", magic("scoutfs", b"\x8b\x42\x3c\x10", heads=(64 * KIB + 4,))),
    _file_system(
        "minix",
        magic(
            "minix",
            *(
                pair[::step]
                for pair in (b"\x7f\x13", b"\x8f\x13", b"\x68\x24", b"\x78\x24")
                for step in (1, -1)
            ),
            heads=(KIB + 16,),
        ),
        magic("minix", b"\x5a\x4d", b"\x4d\x5a", heads=(KIB + 24,)),
    ),
    _file_system("gfs", magic("gfs", b"\x01\x16\x19\x70", heads=(64 * KIB,))),
    _file_system("ocfs", magic("ocfs", b"OracleCFS", heads=(8 * KIB,))),
    replace(
        _file_system("ocfs2", magic("ocfs2", b"OCFSV2", heads=(KIB, 2 * KIB, 4 * KIB, 8 * KIB))),
        unsharer="tunefs.ocfs2",
    ),
    _file_system("oracleasm", magic("oracleasm", b"ORCLDISK", heads=(32,))),
    _file_system("vxfs", magic("vxfs", b"\xf5\xfc\x01\xa5", b"\xa5\x01\xfc\xf5", heads=(KIB, 8 * KIB))),
    replace(
        _file_system("squashfs", magic("squashfs", b"hsqs", b"sqsh", heads=(0,)), reader=read_squashfs),
        is_packed_image=True,
        writes_units=False,
    ),
    _file_system("nss", magic("nss", b"SPB5", heads=(4 * KIB,))),
    _file_system("ubifs", magic("ubifs", b"\x31\x18\x10\x06", heads=(0,))),
    _file_system("bfs", magic("bfs", b"\xce\xfa\xad\x1b", heads=(0,))),
    _file_system("VMFS", magic("VMFS", b"\x5e\xf1\xab\x2f", heads=(2 * MIB,))),
    replace(
        _file_system("befs", magic("befs", b"BFS1", b"1SFB", heads=(32, 544))),
        start_field=StartField(0x1FA, 4, "BFS partition offset", boots="Haiku"),
    ),  # Haiku's makebootable writes it in sectors of 512 bytes
    _file_system("nilfs2", magic("nilfs2", b"\x34\x34", heads=(KIB + 6,), tails=from_end(8, at=6))),
    _file_system("mpool", magic("mpool", b"mpoolDev", heads=(0,))),
    _file_system("apfs", magic("apfs", b"NXSB", heads=(32,)), reader=read_apfs),
    _file_system("zonefs", magic("zonefs", b"SFOZ", heads=(0,))),
    replace(
        _file_system("erofs", magic("erofs", b"\xe2\xe1\xf5\xe0", heads=(KIB,)), reader=read_erofs),
        writes_units=False,
    ),
)
WITHOUT_SIGNATURES = (
    *map(_file_system, ("squashfs3", "qcow2", "qed", "vmdk", "vdi", "vhdx", "vhd")),
    replace(_file_system("hfs"), coexists=True),
    replace(_file_system("gfs2"), unsharer="tunegfs2"),
    Kind("mpath_member", array_title="multipath"),  # udev's name for a path
)
LAST_READERS = (read_befs, read_other)
_BY_NAME = {kind.name: kind for kind in _WITH_SIGNATURES}


def others(*names: str) -> Iterator[Kind]:
    """Yield these kinds."""
    return (_BY_NAME[name] for name in names)
