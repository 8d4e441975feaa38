"""All signatures that libblkid searches for, and their offsets.

The planner saves the bytes at these offsets, and the mover overwrites those that recognition depends on.

From util-linux, libblkid/src/superblocks/ and libblkid/src/partitions/ (2.38.1 and 2.43-devel of 2026-08: the union of
both). The order of the table is that of libblkid: RAID members and encryption, file systems, partition tables.
`blkid -p` reports the first match.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.units import KIB, MIB, align_down

ZFS_LABEL = 256 * KIB  # two at either end; those at the end are aligned to their own size
ZFS_UBERBLOCKS_WANTED = 4  # libblkid before 2.41 recognises a pool by any four of them
XFS_LOG_SEARCHED = 256 * KIB
_UNIT = KIB // 2  # the unit of libblkid, whatever the disk's sector size


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern and the offsets where it is searched.

    `heads` are offsets from the start of the partition. `tails` are pairs: the partition's length is rounded down to a
    multiple of the first, and the second is subtracted. `vital` is the index of the byte in the pattern that
    recognition depends on; None: every byte.
    """

    kind: str
    source: bytes  # of `pattern`, which is compiled only if needed
    width: int
    heads: tuple[int, ...] = ()
    tails: tuple[tuple[int, int], ...] = ()
    vital: int | None = None

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """Return the compiled pattern, which `re` caches."""
        return re.compile(self.source, re.DOTALL)

    def places(self, length: int) -> Iterator[int]:
        """Yield the offsets in a partition of `length` bytes."""
        for at in (*self.heads, *(align_down(length, unit) - back for unit, back in self.tails)):
            if 0 <= at <= length - self.width:
                yield at


def _magic(
    kind: str, *magics: bytes, heads: tuple[int, ...] = (), tails: tuple[tuple[int, int], ...] = ()
) -> Signature:
    source = b"|".join(re.escape(magic) for magic in magics)
    return Signature(kind, source, max(map(len, magics)), heads, tails)


def _both_orders(*values: int) -> tuple[bytes, ...]:
    """Return the bytes of 32-bit numbers in both byte orders."""
    return tuple(value.to_bytes(4, order) for value in values for order in ("little", "big"))


def _from_end(*sectors: int, at: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the tails for offset `at` in the sectors of 512 bytes that are `sectors` before the end."""
    return tuple((_UNIT, _UNIT * count - at) for count in sectors)


_PROMISE = (63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087)
_MD = _both_orders(0xA92B4EFC)
_BCACHE = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"
_BCACHEFS = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"
_SWAP_MAGICS = (b"SWAP-SPACE", b"SWAPSPACE2", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
_SWAP_PLACES = tuple((4 * KIB << step) - 10 for step in range(5))
_UFS = _both_orders(0x19540119, 0x00011954, 0x00195612, 0x00095014, 0x00612195, 0x05231994)
# A boot sector of FAT: one of the magics, sectors per cluster (a power of two), and the number of FATs (not zero).
_FAT = (
    rb"(?=.{54}(?:MSDOS|FAT1[26]   |FAT     )|.{82}(?:MSWIN|FAT32   )|.{510}\x55\xaa)"
    rb".{13}[\x01\x02\x04\x08\x10\x20\x40\x80].{2}[^\0]"
)
_DOS = rb"(?:(?:[\0\x80].{15}){4}|.{4}\xee.{59}|.{20}\xee.{43}|.{36}\xee.{27}|.{52}\xee.{11})\x55\xaa"
_ULTRIX_AT = 16 * KIB - 72

OWNER_SIGNATURES = (
    _magic("linux_raid_member", *_MD, tails=((64 * KIB, 64 * KIB), (4 * KIB, 8 * KIB))),
    _magic("linux_raid_member", *_MD, heads=(0, 4 * KIB)),
    _magic("ddf_raid_member", b"\xde\x11\xde\x11", tails=_from_end(1, 257)),
    _magic("isw_raid_member", b"Intel Raid ISM Cfg Sig. ", tails=(*_from_end(2), (4 * KIB, 8 * KIB))),
    _magic("lsi_mega_raid_member", b"$XIDE$", tails=_from_end(1)),
    _magic("via_raid_member", b"\x55\xaa", tails=_from_end(1)),
    _magic("silicon_medley_raid_member", b"\0\0\0\x2f", tails=_from_end(1, at=0x60)),
    _magic("nvidia_raid_member", b"NVIDIA  ", tails=_from_end(2)),
    _magic("promise_fasttrack_raid_member", b"Promise Technology, Inc.", tails=_from_end(*_PROMISE)),
    _magic("hpt45x_raid_member", b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a", tails=_from_end(11)),
    _magic("hpt37x_raid_member", b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a", heads=(4 * KIB + 544,)),
    _magic("adaptec_raid_member", b"\x37\xfc\x4d\x1e", tails=_from_end(1)),
    _magic("jmicron_raid_member", b"JM", tails=_from_end(1)),
    _magic("bcache", _BCACHE, heads=(4 * KIB + 24,)),
    _magic("bcachefs", _BCACHEFS, heads=(4 * KIB + 24, 2 * MIB + 24), tails=((1, MIB - 24),)),
    _magic("ceph_bluestore", b"bluestore block device", heads=(0,)),
    _magic("drbd", *(b"\x83\x74\x02" + last for last in (b"\x6b", b"\x6c", b"\x6d")), tails=((1, 4 * KIB - 60),)),
    _magic("drbdmanage_control_volume", b"$DRBDmgr=q", heads=(0,)),
    _magic("drbdproxy_datalog", b"DRBDdlh*", heads=(0,)),
    _magic("LVM2_member", b"LVM2 001", heads=(536, 24, 1048, 1560)),
    _magic("LVM1_member", b"HM", heads=(0,)),
    _magic("DM_snapshot_cow", b"SnAp", heads=(0,)),
    _magic("DM_verity_hash", b"verity\0\0", heads=(0,)),
    _magic("DM_integrity", b"integrt\0", heads=(0,)),
    _magic("crypto_LUKS", b"LUKS\xba\xbe", heads=(0,)),
    _magic("crypto_LUKS", b"SKUL\xba\xbe", heads=tuple(16 * KIB << step for step in range(9))),
    _magic("VMFS_volume_member", b"\x0d\xd0\x01\xc0", heads=(MIB,)),
    _magic("ubi", b"UBI#", heads=(0,)),
    _magic("vdo", b"dmvdo001", heads=(0,)),
    _magic("stratis", b"!Stra0tis\x86\xff\x02^\x41rh", heads=(_UNIT + 4, 9 * _UNIT + 4)),
    _magic("BitLocker", *(b"\xeb" + rest for rest in (b"\x52\x90-FVE-FS-", b"\x58\x90-FVE-FS-", b"\x58\x90MSWIN4.1")),
        heads=(0,)),
    _magic("cs_fvault2", b"CS", heads=(88,)),
)  # fmt: skip

ZFS_NVLIST = Signature("zfs_member", rb"\x01[\0\x01]\0\0\0{7}\x01", 12)
ZFS_UBERBLOCK = Signature("zfs_member", rb"\x0c\xb1\xba\0{5}|\0{5}\xba\xb1\x0c", 24)
"""Their offsets are relative to `zfs_labels`."""

FILE_SYSTEM_SIGNATURES = (
    Signature("vfat", _FAT, 512, (0,), vital=13),
    _magic("swsuspend", b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", heads=(0,)),
    _magic("swap", *_SWAP_MAGICS, heads=_SWAP_PLACES),
    _magic("xfs", b"XFSB", heads=(0,)),
    Signature("xfs_external_log", rb"\xfe\xed\xba\xbe.{4}\0\0\0[\x01-\x03]", 12,
        tuple(range(0, XFS_LOG_SEARCHED, _UNIT))),
    _magic("exfs", b"EXFS", heads=(0,)),
    _magic("ext", b"\x53\xef", heads=(KIB + 56,)),
    _magic("reiserfs", b"ReIsErFs", heads=(8 * KIB + 0x34, 8 * KIB + 20)),
    _magic("reiserfs", b"ReIsErFs", b"ReIsEr2Fs", b"ReIsEr3Fs", heads=(64 * KIB + 0x34,)),
    _magic("reiser4", b"ReIsEr4", heads=(64 * KIB,)),
    _magic("jfs", b"JFS1", heads=(32 * KIB,)),
    _magic("udf", *(b"BEA01", b"BOOT2", b"CD001", b"CDW02", b"NSR02", b"NSR03", b"TEA01"), heads=(32 * KIB + 1,)),
    _magic("iso9660", b"CDROM", heads=(32 * KIB + 9,)),
    ZFS_NVLIST,
    ZFS_UBERBLOCK,
    _magic("hfsplus", b"BD", b"H+", b"HX", heads=(KIB,)),
    _magic("ufs", *_UFS, heads=tuple(at * KIB + 1372 for at in (0, 8, 64, 256))),
    _magic("hpfs", b"\x49\xe8\x95\xf9", heads=(8 * KIB,)),
    _magic("sysv", *_both_orders(0xFD187E20), heads=tuple(at * KIB + 1016 for at in (0, 9, 15, 18))),
    _magic("xenix", b"\x2b\x55\x44", b"\x44\x55\x2b", heads=(2 * KIB,)),
    _magic("ntfs", b"NTFS    ", heads=(3,)),
    _magic("ReFS", b"\0\0\0ReFS\0", heads=(0,)),
    _magic("cramfs", b"\x45\x3d\xcd\x28", b"\x28\xcd\x3d\x45", heads=(0,)),
    _magic("romfs", b"-rom1fs-", heads=(0,)),
    _magic("scoutfs", b"\x8b\x42\x3c\x10", heads=(64 * KIB + 4,)),
    _magic("minix",
        *(pair[::step] for pair in (b"\x7f\x13", b"\x8f\x13", b"\x68\x24", b"\x78\x24") for step in (1, -1)),
        heads=(KIB + 16,)),
    _magic("minix", b"\x5a\x4d", b"\x4d\x5a", heads=(KIB + 24,)),
    _magic("gfs", b"\x01\x16\x19\x70", heads=(64 * KIB,)),
    _magic("ocfs", b"OracleCFS", heads=(8 * KIB,)),
    _magic("ocfs2", b"OCFSV2", heads=(KIB, 2 * KIB, 4 * KIB, 8 * KIB)),
    _magic("oracleasm", b"ORCLDISK", heads=(32,)),
    _magic("vxfs", b"\xf5\xfc\x01\xa5", b"\xa5\x01\xfc\xf5", heads=(KIB, 8 * KIB)),
    _magic("squashfs", b"hsqs", b"sqsh", heads=(0,)),
    _magic("nss", b"SPB5", heads=(4 * KIB,)),
    _magic("btrfs", b"_BHRfS_M", heads=(64 * KIB + 64, 64)),
    _magic("ubifs", b"\x31\x18\x10\x06", heads=(0,)),
    _magic("bfs", b"\xce\xfa\xad\x1b", heads=(0,)),
    _magic("VMFS", b"\x5e\xf1\xab\x2f", heads=(2 * MIB,)),
    _magic("befs", b"BFS1", b"1SFB", heads=(32, 544)),
    _magic("nilfs2", b"\x34\x34", heads=(KIB + 6,), tails=_from_end(8, at=6)),
    _magic("exfat", b"EXFAT   ", heads=(3,)),
    _magic("f2fs", b"\x10\x20\xf5\xf2", heads=(KIB,)),
    _magic("mpool", b"mpoolDev", heads=(0,)),
    _magic("apfs", b"NXSB", heads=(32,)),
    _magic("zonefs", b"SFOZ", heads=(0,)),
    _magic("erofs", b"\xe2\xe1\xf5\xe0", heads=(KIB,)),
)  # fmt: skip

PARTITION_TABLES = (
    _magic("aix", b"\xc9\xc2\xd4\xc1", heads=(0,)),
    _magic("sgi", b"\x0b\xe5\xa9\x41", heads=(0,)),
    _magic("sun", b"\xda\xbe", heads=(508,)),
    _magic("gpt", b"EFI PART", heads=(512, 4 * KIB), tails=(*_from_end(1), (4 * KIB, 4 * KIB))),
    Signature("dos", _DOS, 66, (446,), vital=64),
    _magic("mac", b"ER", heads=(0,)),
    _magic("ultrix", *_both_orders(0x032957), heads=(_ULTRIX_AT,)),
    _magic("bsd", b"\x57\x45\x56\x82", heads=(512, 64, 128)),
    _magic("unixware", b"\x0d\x60\xe5\xca", heads=(29 * _UNIT + 4, 29174)),
    _magic("solaris", b"\xee\xde\x0d\x60", heads=(_UNIT + 12,)),
    Signature("atari", rb"[\x01\x81][0-9A-Za-z]{3}", 4, (0x1C6, 0x1D2, 0x1DE, 0x1EA), vital=0),
    _magic("dasd", *(bytes.fromhex(name) for name in ("e5d6d3f1", "d3d5e7f1", "c3d4e2f1")),
        heads=tuple(2 * size + at for size in (512, KIB, 2 * KIB, 4 * KIB) for at in (0, 4))),
)  # fmt: skip

SIGNATURES = (*OWNER_SIGNATURES, *FILE_SYSTEM_SIGNATURES, *PARTITION_TABLES)


def zfs_labels(length: int) -> tuple[int, ...]:
    """Return the offsets of the four labels of a ZFS pool member."""
    end = align_down(length, ZFS_LABEL)
    return (0, ZFS_LABEL, end - 2 * ZFS_LABEL, end - ZFS_LABEL)


def signature_offsets(signature: Signature, length: int) -> Iterator[int]:
    """Yield the offsets of `signature` in a partition of `length` bytes, in libblkid's order."""
    if signature is ZFS_NVLIST:
        yield from (label + 16 * KIB for label in zfs_labels(length))
    elif signature is ZFS_UBERBLOCK:
        yield from (at for label in zfs_labels(length) for at in range(label + 128 * KIB, label + ZFS_LABEL, KIB))
    else:
        yield from signature.places(length)
