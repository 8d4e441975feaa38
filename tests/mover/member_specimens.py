"""Specimens of RAID members, encryption and other kinds that own a whole partition, in libblkid's order."""

from functools import partial

from aligntool.units import KIB, MIB
from tests.fuzz import handmade_layers
from tests.fuzz.handmade_layers import be, le, packed
from tests.mover import superblocks as made
from tests.mover.superblocks import UUID, Specimen

OWNERS = (
    Specimen("md 0.90", "linux_raid_member", lambda length: [handmade_layers.md_0_90(length)]),
    *(Specimen(f"md {version}", "linux_raid_member", partial(made.md, version)) for version in ("1.0", "1.1", "1.2")),
    Specimen("md 0.90 over ext4", "linux_raid_member", made.md_over_ext, tool="mkfs.ext4", signatures=2, below="ext4"),
    Specimen(
        "md 1.0 over ext4", "linux_raid_member", made.md_1_0_over_ext, tool="mkfs.ext4", signatures=2, below="ext4"
    ),
    Specimen("ddf", "ddf_raid_member", made.ddf),
    Specimen("isw", "isw_raid_member", made.at_place(-1024, b"Intel Raid ISM Cfg Sig. 1.3.00")),
    Specimen("lsi", "lsi_mega_raid_member", made.at_place(-512, b"$XIDE$")),
    Specimen("via", "via_raid_member", made.at_place(-512, made.via())),
    Specimen("silicon", "silicon_medley_raid_member", made.at_place(-512, made.silicon())),
    Specimen(
        "nvidia",
        "nvidia_raid_member",
        made.at_place(-1024, made.sum_fixed(packed(512, (0, b"NVIDIA  "), (8, le(30))), 12, 4, 30)),
    ),
    *(
        Specimen(
            f"promise {sectors}",
            "promise_fasttrack_raid_member",
            made.at_place(-512 * sectors, b"Promise Technology, Inc."),
        )
        for sectors in made.PLACES_OF_PROMISE
    ),
    Specimen("hpt45x", "hpt45x_raid_member", made.at_place(-11 * 512, b"\xf3\x16\x78\x5a")),
    Specimen("hpt37x", "hpt37x_raid_member", made.at_place(4608 + 32, b"\xf0\x16\x78\x5a")),
    Specimen("adaptec", "adaptec_raid_member", made.at_place(-512, packed(512, (0, be(0x37FC4D1E)), (256, b"DPTM")))),
    Specimen(
        "jmicron", "jmicron_raid_member", made.at_place(-512, made.sum_fixed(packed(512, (0, b"JM\1\0")), 4, 2, 64))
    ),
    Specimen("bcache", "bcache", made.made_by("make-bcache -B {image}"), tool="make-bcache"),
    Specimen("bcachefs", "bcachefs", made.bcachefs, signatures=3),
    Specimen("bluestore", "ceph_bluestore", made.at_place(0, b"bluestore block device\n")),
    *(
        Specimen(f"drbd {magic:x}", "drbd", made.at_place(-4096, made.drbd(magic)))
        for magic in (0x8374026B, 0x8374026C, 0x8374026D)
    ),
    Specimen(
        "drbdmanage", "drbdmanage_control_volume", made.at_place(0, b"$DRBDmgr=q\n" + b"0123456789abcdef" * 2 + b"\n")
    ),
    Specimen(
        "drbdproxy", "drbdproxy_datalog", made.at_place(0, packed(64, (0, b"DRBDdlh*"), (8, le(1, 8)), (16, UUID)))
    ),
    Specimen("lvm2", "LVM2_member", made.at_place(512, made.lvm())),
    Specimen("lvm1", "LVM1_member", made.at_place(0, b"HM\1\0")),
    Specimen("snapshot", "DM_snapshot_cow", made.at_place(0, b"SnAp" + le(1) + le(1) + le(8))),
    Specimen("verity", "DM_verity_hash", made.at_place(0, packed(512, (0, b"verity\0\0"), (8, le(1)), (16, UUID)))),
    Specimen("integrity", "DM_integrity", made.at_place(0, b"integrt\0\1")),
    Specimen("luks1", "crypto_LUKS", lambda length: [handmade_layers.luks1()]),
    *(
        Specimen(f"luks2 {at >> 10}K", "crypto_LUKS", partial(made.luks2, at), 8 * MIB, signatures=2)
        for at in (16 * KIB << step for step in range(9))
    ),
    Specimen(
        "luks2 by cryptsetup",
        "crypto_LUKS",
        made.made_by("cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 {image} -"),
        18 * MIB,
        "cryptsetup",
        2,
    ),
    Specimen("VMFS volume", "VMFS_volume_member", made.at_place(MIB, packed(1024, (0, b"\x0d\xd0\x01\xc0" + le(5))))),
    Specimen("ubi", "ubi", made.at_place(0, made.ubi())),
    Specimen("vdo", "vdo", made.at_place(0, b"dmvdo001" + bytes(32) + UUID)),
    Specimen("stratis", "stratis", lambda length: [(512, made.stratis()), (9 * 512, made.stratis())], signatures=2),
    Specimen("bitlocker", "BitLocker", lambda length: [(0, b"\xeb\x52\x90-FVE-FS-")]),
    Specimen(
        "bitlocker 7",
        "BitLocker",
        lambda length: [
            (
                0,
                packed(
                    512, (0, b"\xeb\x58\x90-FVE-FS-"), (11, le(512, 2) + b"\x08"), (176, le(MIB, 8)), (510, b"\x55\xaa")
                ),
            ),
            (MIB, packed(256, (0, b"-FVE-FS-"), (10, le(2, 2)), (64, le(48)), (80, UUID))),
        ],
        shared=True,
    ),
)
