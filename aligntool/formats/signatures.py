"""Every place where libblkid looks for a signature, and what it looks for there.

The planner holds these places, and the mover removes the bytes that recognition depends on.

From util-linux, libblkid/src/superblocks/ and libblkid/src/partitions/ (2.38.1 and 2.43-devel of 2026-08: the union of
both). The order of the table is that of libblkid: RAID members and encryption, file systems, partition tables. What is
found first is what `blkid -p` reports.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.units import KIB, MIB, align_down

ZFS_LABEL = 256 * KIB  # two at either end; those at the end are aligned to their own size
ZFS_UBERBLOCKS_WANTED = 4  # libblkid before 2.41 recognises a pool by any four of them
XFS_LOG_SEARCHED = 256 * KIB
_UNIT = KIB // 2  # what libblkid counts in, whatever the sectors of the disk are


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern, and its places.

    `heads` are counted from the start of the partition. `tails` are pairs: the partition's length is rounded down to a
    multiple of the first, and the second is subtracted. `vital` is the byte of the pattern that recognition depends on;
    None: any of them.
    """

    kind: str
    source: bytes  # of `pattern`, which most commands never need
    width: int
    heads: tuple[int, ...] = ()
    tails: tuple[tuple[int, int], ...] = ()
    vital: int | None = None

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """Return the compiled pattern; `re` keeps it."""
        return re.compile(self.source, re.DOTALL)

    def places(self, length: int) -> Iterator[int]:
        """Yield the offsets in a partition of `length` bytes."""
        for at in (*self.heads, *(align_down(length, unit) - back for unit, back in self.tails)):
            if 0 <= at <= length - self.width:
                yield at


def _is(kind: str, *magics: bytes, heads: tuple[int, ...] = (), tails: tuple[tuple[int, int], ...] = ()) -> Signature:
    source = b"|".join(re.escape(magic) for magic in magics)
    return Signature(kind, source, max(map(len, magics)), heads, tails)


def _both(*values: int) -> tuple[bytes, ...]:
    """Return four-byte numbers in either byte order."""
    return tuple(value.to_bytes(4, order) for value in values for order in ("little", "big"))


def _from_end(*sectors: int, at: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the offset of whole sectors of 512 bytes before the end, and bytes into the sector."""
    return tuple((_UNIT, _UNIT * count - at) for count in sectors)


_PROMISE = (63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087)
_MD = _both(0xA92B4EFC)
_BCACHE = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"
_BCACHEFS = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"
_SWAP_MAGICS = (b"SWAP-SPACE", b"SWAPSPACE2", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
_SWAP_PLACES = tuple((4 * KIB << step) - 10 for step in range(5))
_UFS = _both(0x19540119, 0x00011954, 0x00195612, 0x00095014, 0x00612195, 0x05231994)
# A boot sector of FAT: one of the magics, sectors a cluster (a power of two, or it is none), and the number of FATs.
_FAT = (
    rb"(?=.{54}(?:MSDOS|FAT1[26]   |FAT     )|.{82}(?:MSWIN|FAT32   )|.{510}\x55\xaa)"
    rb".{13}[\x01\x02\x04\x08\x10\x20\x40\x80].{2}[^\0]"
)
_DOS = rb"(?:(?:[\0\x80].{15}){4}|.{4}\xee.{59}|.{20}\xee.{43}|.{36}\xee.{27}|.{52}\xee.{11})\x55\xaa"
_ULTRIX_AT = 16 * KIB - 72

OWNER_SIGNATURES = (
    _is("linux_raid_member", *_MD, tails=((64 * KIB, 64 * KIB), (4 * KIB, 8 * KIB))),
    _is("linux_raid_member", *_MD, heads=(0, 4 * KIB)),
    _is("ddf_raid_member", b"\xde\x11\xde\x11", tails=_from_end(1, 257)),
    _is("isw_raid_member", b"Intel Raid ISM Cfg Sig. ", tails=(*_from_end(2), (4 * KIB, 8 * KIB))),
    _is("lsi_mega_raid_member", b"$XIDE$", tails=_from_end(1)),
    _is("via_raid_member", b"\x55\xaa", tails=_from_end(1)),
    _is("silicon_medley_raid_member", b"\0\0\0\x2f", tails=_from_end(1, at=0x60)),
    _is("nvidia_raid_member", b"NVIDIA  ", tails=_from_end(2)),
    _is("promise_fasttrack_raid_member", b"Promise Technology, Inc.", tails=_from_end(*_PROMISE)),
    _is("hpt45x_raid_member", b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a", tails=_from_end(11)),
    _is("hpt37x_raid_member", b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a", heads=(4 * KIB + 544,)),
    _is("adaptec_raid_member", b"\x37\xfc\x4d\x1e", tails=_from_end(1)),
    _is("jmicron_raid_member", b"JM", tails=_from_end(1)),
    _is("bcache", _BCACHE, heads=(4 * KIB + 24,)),
    _is("bcachefs", _BCACHEFS, heads=(4 * KIB + 24, 2 * MIB + 24), tails=((1, MIB - 24),)),
    _is("ceph_bluestore", b"bluestore block device", heads=(0,)),
    _is("drbd", *(b"\x83\x74\x02" + last for last in (b"\x6b", b"\x6c", b"\x6d")), tails=((1, 4 * KIB - 60),)),
    _is("drbdmanage_control_volume", b"$DRBDmgr=q", heads=(0,)),
    _is("drbdproxy_datalog", b"DRBDdlh*", heads=(0,)),
    _is("LVM2_member", b"LVM2 001", heads=(536, 24, 1048, 1560)),
    _is("LVM1_member", b"HM", heads=(0,)),
    _is("DM_snapshot_cow", b"SnAp", heads=(0,)),
    _is("DM_verity_hash", b"verity\0\0", heads=(0,)),
    _is("DM_integrity", b"integrt\0", heads=(0,)),
    _is("crypto_LUKS", b"LUKS\xba\xbe", heads=(0,)),
    _is("crypto_LUKS", b"SKUL\xba\xbe", heads=tuple(16 * KIB << step for step in range(9))),
    _is("VMFS_volume_member", b"\x0d\xd0\x01\xc0", heads=(MIB,)),
    _is("ubi", b"UBI#", heads=(0,)),
    _is("vdo", b"dmvdo001", heads=(0,)),
    _is("stratis", b"!Stra0tis\x86\xff\x02^\x41rh", heads=(_UNIT + 4, 9 * _UNIT + 4)),
    _is("BitLocker", *(b"\xeb" + rest for rest in (b"\x52\x90-FVE-FS-", b"\x58\x90-FVE-FS-", b"\x58\x90MSWIN4.1")),
        heads=(0,)),
    _is("cs_fvault2", b"CS", heads=(88,)),
)  # fmt: skip

ZFS_NVLIST = Signature("zfs_member", rb"\x01[\0\x01]\0\0\0{7}\x01", 12)
ZFS_UBERBLOCK = Signature("zfs_member", rb"\x0c\xb1\xba\0{5}|\0{5}\xba\xb1\x0c", 24)
"""Their places are those of `zfs_labels`."""

FILE_SYSTEM_SIGNATURES = (
    Signature("vfat", _FAT, 512, (0,), vital=13),
    _is("swsuspend", b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", heads=(0,)),
    _is("swap", *_SWAP_MAGICS, heads=_SWAP_PLACES),
    _is("xfs", b"XFSB", heads=(0,)),
    Signature("xfs_external_log", rb"\xfe\xed\xba\xbe.{4}\0\0\0[\x01-\x03]", 12,
        tuple(range(0, XFS_LOG_SEARCHED, _UNIT))),
    _is("exfs", b"EXFS", heads=(0,)),
    _is("ext", b"\x53\xef", heads=(KIB + 56,)),
    _is("reiserfs", b"ReIsErFs", heads=(8 * KIB + 0x34, 8 * KIB + 20)),
    _is("reiserfs", b"ReIsErFs", b"ReIsEr2Fs", b"ReIsEr3Fs", heads=(64 * KIB + 0x34,)),
    _is("reiser4", b"ReIsEr4", heads=(64 * KIB,)),
    _is("jfs", b"JFS1", heads=(32 * KIB,)),
    _is("udf", *(b"BEA01", b"BOOT2", b"CD001", b"CDW02", b"NSR02", b"NSR03", b"TEA01"), heads=(32 * KIB + 1,)),
    _is("iso9660", b"CDROM", heads=(32 * KIB + 9,)),
    ZFS_NVLIST,
    ZFS_UBERBLOCK,
    _is("hfsplus", b"BD", b"H+", b"HX", heads=(KIB,)),
    _is("ufs", *_UFS, heads=tuple(at * KIB + 1372 for at in (0, 8, 64, 256))),
    _is("hpfs", b"\x49\xe8\x95\xf9", heads=(8 * KIB,)),
    _is("sysv", *_both(0xFD187E20), heads=tuple(at * KIB + 1016 for at in (0, 9, 15, 18))),
    _is("xenix", b"\x2b\x55\x44", b"\x44\x55\x2b", heads=(2 * KIB,)),
    _is("ntfs", b"NTFS    ", heads=(3,)),
    _is("ReFS", b"\0\0\0ReFS\0", heads=(0,)),
    _is("cramfs", b"\x45\x3d\xcd\x28", b"\x28\xcd\x3d\x45", heads=(0,)),
    _is("romfs", b"-rom1fs-", heads=(0,)),
    _is("scoutfs", b"\x8b\x42\x3c\x10", heads=(64 * KIB + 4,)),
    _is("minix", *(pair[::step] for pair in (b"\x7f\x13", b"\x8f\x13", b"\x68\x24", b"\x78\x24") for step in (1, -1)),
        heads=(KIB + 16,)),
    _is("minix", b"\x5a\x4d", b"\x4d\x5a", heads=(KIB + 24,)),
    _is("gfs", b"\x01\x16\x19\x70", heads=(64 * KIB,)),
    _is("ocfs", b"OracleCFS", heads=(8 * KIB,)),
    _is("ocfs2", b"OCFSV2", heads=(KIB, 2 * KIB, 4 * KIB, 8 * KIB)),
    _is("oracleasm", b"ORCLDISK", heads=(32,)),
    _is("vxfs", b"\xf5\xfc\x01\xa5", b"\xa5\x01\xfc\xf5", heads=(KIB, 8 * KIB)),
    _is("squashfs", b"hsqs", b"sqsh", heads=(0,)),
    _is("nss", b"SPB5", heads=(4 * KIB,)),
    _is("btrfs", b"_BHRfS_M", heads=(64 * KIB + 64, 64)),
    _is("ubifs", b"\x31\x18\x10\x06", heads=(0,)),
    _is("bfs", b"\xce\xfa\xad\x1b", heads=(0,)),
    _is("VMFS", b"\x5e\xf1\xab\x2f", heads=(2 * MIB,)),
    _is("befs", b"BFS1", b"1SFB", heads=(32, 544)),
    _is("nilfs2", b"\x34\x34", heads=(KIB + 6,), tails=_from_end(8, at=6)),
    _is("exfat", b"EXFAT   ", heads=(3,)),
    _is("f2fs", b"\x10\x20\xf5\xf2", heads=(KIB,)),
    _is("mpool", b"mpoolDev", heads=(0,)),
    _is("apfs", b"NXSB", heads=(32,)),
    _is("zonefs", b"SFOZ", heads=(0,)),
    _is("erofs", b"\xe2\xe1\xf5\xe0", heads=(KIB,)),
)  # fmt: skip

PARTITION_TABLES = (
    _is("aix", b"\xc9\xc2\xd4\xc1", heads=(0,)),
    _is("sgi", b"\x0b\xe5\xa9\x41", heads=(0,)),
    _is("sun", b"\xda\xbe", heads=(508,)),
    _is("gpt", b"EFI PART", heads=(512, 4 * KIB), tails=(*_from_end(1), (4 * KIB, 4 * KIB))),
    Signature("dos", _DOS, 66, (446,), vital=64),
    _is("mac", b"ER", heads=(0,)),
    _is("ultrix", *_both(0x032957), heads=(_ULTRIX_AT,)),
    _is("bsd", b"\x57\x45\x56\x82", heads=(512, 64, 128)),
    _is("unixware", b"\x0d\x60\xe5\xca", heads=(29 * _UNIT + 4, 29174)),
    _is("solaris", b"\xee\xde\x0d\x60", heads=(_UNIT + 12,)),
    Signature("atari", rb"[\x01\x81][0-9A-Za-z]{3}", 4, (0x1C6, 0x1D2, 0x1DE, 0x1EA), vital=0),
    _is("dasd", *(bytes.fromhex(name) for name in ("e5d6d3f1", "d3d5e7f1", "c3d4e2f1")),
        heads=tuple(2 * size + at for size in (512, KIB, 2 * KIB, 4 * KIB) for at in (0, 4))),
)  # fmt: skip

SIGNATURES = (*OWNER_SIGNATURES, *FILE_SYSTEM_SIGNATURES, *PARTITION_TABLES)


def zfs_labels(length: int) -> tuple[int, ...]:
    """Return where the four labels of a ZFS pool begin."""
    end = align_down(length, ZFS_LABEL)
    return (0, ZFS_LABEL, end - 2 * ZFS_LABEL, end - ZFS_LABEL)


def places(signature: Signature, length: int) -> Iterator[int]:
    """Yield the places of `signature` in a partition of `length` bytes, in libblkid's order."""
    if signature is ZFS_NVLIST:
        yield from (label + 16 * KIB for label in zfs_labels(length))
    elif signature is ZFS_UBERBLOCK:
        yield from (at for label in zfs_labels(length) for at in range(label + 128 * KIB, label + ZFS_LABEL, KIB))
    else:
        yield from signature.places(length)
