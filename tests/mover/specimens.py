"""One specimen of each kind that libblkid recognises, as a table: file systems and partition tables, in libblkid's
order.
"""

from functools import partial

from aligntool.units import KIB, MIB
from tests.fuzz.handmade_layers import be, le, packed
from tests.mover import superblocks as made
from tests.mover.member_specimens import OWNERS
from tests.mover.superblocks import UUID, Specimen

FILE_SYSTEMS = (
    *(
        Specimen(f"fat{bits}", "vfat", made.made_by(f"mkfs.vfat -F {bits} {{image}}"), length, "mkfs.vfat", shared=True)
        for bits, length in ((12, 2 * MIB), (16, 16 * MIB), (32, 36 * MIB))
    ),
    Specimen("fat16 without boot code", "vfat", made.fat_and_table, 16 * MIB, "mkfs.vfat", shared=True),
    *(
        Specimen(
            f"swap {page >> 10}K {magic.decode().strip()}",
            "swap" if b"SWAP" in magic else "swsuspend",
            made.swap(page, magic),
        )
        for page in (4 * KIB << step for step in range(5))
        for magic in (b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
    ),
    Specimen(
        "TuxOnIce",
        "swsuspend",
        lambda length: [(0, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"), (4086, b"SWAPSPACE2")],
        signatures=2,
    ),
    Specimen("xfs", "xfs", made.made_by("mkfs.xfs -q {image}"), 300 * MIB, "mkfs.xfs"),
    Specimen("xfs head", "xfs", made.xfs_head, tool="mkfs.xfs"),
    *(
        Specimen(
            f"xfs log {at}",
            "xfs_external_log",
            made.at_place(at, packed(512, (0, b"\xfe\xed\xba\xbe"), (8, be(2) + be(1024)), (300, be(1)), (304, UUID))),
            12 * MIB,
        )
        for at in (0, 200 * KIB)
    ),
    Specimen(
        "exfs",
        "exfs",
        made.at_place(
            0,
            packed(
                512,
                (0, b"EXFS" + be(4096) + be(16384, 8)),
                (32, UUID),
                (80, be(16) + be(4096) + be(4)),
                (102, be(512, 2) + be(512, 2)),
                (120, bytes((12, 9, 9, 3))),
            ),
        ),
    ),
    *(
        Specimen(kind, kind, made.made_by(f"mkfs.{kind} -q -F {{image}}"), 8 * MIB, f"mkfs.{kind}")
        for kind in ("ext2", "ext3", "ext4")
    ),
    Specimen("ext4dev", "ext4dev", made.ext4dev, 8 * MIB, "mkfs.ext4"),
    Specimen("jbd", "jbd", made.made_by("mke2fs -q -F -O journal_dev -b 4096 {image}"), 8 * MIB, "mke2fs"),
    *(
        Specimen(
            f"reiserfs {magic.decode()} {at >> 10}K",
            "reiserfs",
            made.at_place(at, packed(128, (12, le(18)), (44, le(4096, 2)), (0x34, magic), (84, UUID))),
            20 * MIB,
        )
        for at, magic in (
            (64 * KIB, b"ReIsErFs"),
            (64 * KIB, b"ReIsEr2Fs"),
            (64 * KIB, b"ReIsEr3Fs"),
            (8 * KIB, b"ReIsErFs"),
        )
    ),
    Specimen("reiser4", "reiser4", made.at_place(64 * KIB, packed(64, (0, b"ReIsEr4"), (18, le(4096, 2)), (20, UUID)))),
    Specimen(
        "jfs",
        "jfs",
        made.at_place(
            32 * KIB,
            packed(512, (0, b"JFS1" + le(1)), (16, le(4096) + le(12, 2) + le(3, 2) + le(512) + le(9, 2)), (136, UUID)),
        ),
        20 * MIB,
    ),
    Specimen("udf", "udf", made.udf),
    Specimen("iso9660", "iso9660", made.iso),
    Specimen("high sierra", "iso9660", made.at_place(32 * KIB, made.HIGH_SIERRA)),
    Specimen(
        "iso9660 by genisoimage",
        "iso9660",
        made.made_by("genisoimage -quiet -J -o {image} {files}"),
        tool="genisoimage",
    ),
    Specimen("zfs", "zfs_member", made.zfs, 66 * MIB, signatures=4 * 33),
    Specimen(
        "hfs",
        "hfs",
        made.at_place(1024, packed(512, (0, b"BD"), (18, be(1000, 2) + be(4096)), (28, be(16, 2)), (36, b"\4Disk"))),
    ),
    Specimen(
        "hfsplus",
        "hfsplus",
        made.at_place(
            1024, packed(512, (0, b"H+\0\4"), (40, be(4096) + be(1024)), (104, UUID[:8]), (288, be(16) + be(4)))
        ),
    ),
    Specimen(
        "hfsx",
        "hfsplus",
        made.at_place(1024, packed(512, (0, b"HX\0\5"), (40, be(4096) + be(1024)), (288, be(16) + be(4)))),
    ),
    *(
        Specimen(f"ufs {at}K", "ufs", made.at_place(at * KIB, packed(1376, (1372, le(0x19540119)))))
        for at in (0, 8, 64, 256)
    ),
    Specimen(
        "ufs by makefs",
        "ufs",
        made.made_by("makefs -t ffs -B be -o version=1,bsize=16384,fsize=2048 -s 8m {image} {files}"),
        8 * MIB,
        "makefs",
    ),
    Specimen(
        "hpfs",
        "hpfs",
        lambda length: [(8 * KIB, b"\x49\xe8\x95\xf9\xc5\xe9\x53\xfa\2"), (8 * KIB + 512, b"\x49\x18\x91\xf9")],
    ),
    *(Specimen(f"sysv {block}", "sysv", made.at_place(block * KIB + 1016, le(0xFD187E20))) for block in (0, 9, 15, 18)),
    Specimen("xenix", "xenix", made.at_place(2048, b"\x2b\x55\x44")),
    Specimen("ntfs", "ntfs", made.made_by("mkfs.ntfs -q -Q -F {image}"), 8 * MIB, "mkfs.ntfs", shared=True),
    Specimen("refs", "ReFS", made.at_place(0, b"\0\0\0ReFS\0")),
    Specimen("cramfs", "cramfs", made.made_by("mkfs.cramfs {files} {image}"), tool="mkfs.cramfs"),
    Specimen("romfs", "romfs", made.at_place(0, made.romfs())),
    *(
        Specimen(f"minix {magic.hex()}", "minix", made.minix(at, magic))
        for at, magic in ((16, b"\x7f\x13"), (16, b"\x8f\x13"))
    ),
    Specimen("minix 3", "minix", made.at_place(1024, made.MINIX_3)),
    Specimen(
        "gfs",
        "gfs",
        made.at_place(64 * KIB, packed(512, (0, b"\x01\x16\x19\x70"), (24, be(1309) + be(1401)))),
        34 * MIB,
    ),
    Specimen(
        "gfs2",
        "gfs2",
        made.at_place(64 * KIB, packed(512, (0, b"\x01\x16\x19\x70" + be(1)), (24, be(1801) + be(1900)))),
        34 * MIB,
    ),
    Specimen("ocfs", "ocfs", made.at_place(8 * KIB, packed(512, (0, b"OracleCFS"))), 16 * MIB),
    *(
        Specimen(f"ocfs2 {at}K", "ocfs2", made.at_place(at * KIB, packed(512, (0, b"OCFSV2"))), 16 * MIB)
        for at in (1, 2, 4, 8)
    ),
    Specimen("oracleasm", "oracleasm", made.at_place(32, b"ORCLDISKVOL1")),
    Specimen("vxfs", "vxfs", made.at_place(1024, packed(64, (0, b"\xf5\xfc\x01\xa5"), (4, le(4)), (32, le(1024))))),
    Specimen(
        "vxfs big-endian", "vxfs", made.at_place(8192, packed(64, (0, b"\xa5\x01\xfc\xf5"), (4, be(4)), (32, be(1024))))
    ),
    Specimen("squashfs", "squashfs", made.made_by("mksquashfs {files} {image} -quiet -noappend"), tool="mksquashfs"),
    Specimen("squashfs3", "squashfs3", made.at_place(0, packed(64, (0, b"sqsh"), (28, be(3, 2) + be(1, 2))))),
    Specimen("netware", "nss", made.at_place(4 * KIB, packed(64, (0, b"SPB5")))),
    Specimen("btrfs", "btrfs", made.made_by("mkfs.btrfs -q {image}"), 120 * MIB, "mkfs.btrfs"),
    Specimen("ubifs", "ubifs", made.at_place(0, made.ubifs())),
    Specimen("bfs", "bfs", made.made_by("mkfs.bfs {image}"), tool="mkfs.bfs"),
    Specimen("VMFS", "VMFS", made.at_place(2 * MIB, b"\x5e\xf1\xab\x2f" + le(15))),
    *(Specimen(f"befs {at}", "befs", partial(made.befs, at)) for at in (0, 512)),
    Specimen("nilfs2", "nilfs2", made.nilfs, signatures=2),
    Specimen("exfat", "exfat", made.made_by("mkfs.exfat {image}"), 8 * MIB, "mkfs.exfat", shared=True),
    Specimen("f2fs", "f2fs", made.made_by("mkfs.f2fs -q {image}"), 64 * MIB, "mkfs.f2fs"),
    Specimen("mpool", "mpool", made.at_place(0, made.mpool())),
    Specimen("apfs", "apfs", made.at_place(0, made.apfs())),
    Specimen("zonefs", "zonefs", made.at_place(0, made.zonefs())),
    Specimen("erofs", "erofs", made.made_by("mkfs.erofs {image} {files}"), tool="mkfs.erofs"),
    Specimen("dos table", "dos", made.at_place(0, made.MBR)),
    Specimen(
        "protective table",
        "PMBR",
        made.at_place(0, packed(512, (450, b"\xee\0\0\0" + le(1) + le(100)), (510, b"\x55\xaa"))),
    ),
    Specimen("gpt", "gpt", made.made_by("sgdisk -n 1:0:+1M {image}"), tool="sgdisk", signatures=3, shared=True),
    Specimen("mac table", "mac", lambda length: [(0, b"ER\x02\0"), (512, b"PM\0\0\0\0\0\1")]),
    Specimen("sun table", "sun", made.at_place(0, made.sun())),
    Specimen(
        "sgi table", "sgi", made.at_place(0, made.sum_fixed(packed(512, (0, b"\x0b\xe5\xa9\x41")), 504, 4, 128, ">"))
    ),
    Specimen("aix table", "aix", made.at_place(0, b"\xc9\xc2\xd4\xc1")),
    Specimen("ultrix table", "ultrix", made.at_place(16 * KIB - 72, le(0x032957) + le(1))),
    Specimen("unixware table", "unixware", lambda length: [(29 * 512 + 156, le(0x600DDEEE)), (29174, le(0xCAE5600D))]),
    Specimen(
        "solaris table", "solaris", made.at_place(512, packed(512, (12, le(0x600DDEEE)), (16, le(1)), (30, le(16, 2))))
    ),
    Specimen("atari table", "atari", made.at_place(0, made.ATARI), 8 * MIB),
)

SPECIMENS = (*OWNERS, *FILE_SYSTEMS)
