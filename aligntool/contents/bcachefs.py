"""bcachefs: its superblock, at byte 4096.

Layout: linux/fs/bcachefs/bcachefs_format.h, struct bch_sb; sb-members_format.h, struct bch_member.
"""

from dataclasses import replace

from aligntool.contents.kind import Kind, contains_no_device, in_whole_blocks
from aligntool.contents.signatures import magic
from aligntool.errors import Refusal
from aligntool.formats.numbers import le16, le32, le64, text_at, uuid_at
from aligntool.formats.reader import Area
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB

_SUPERBLOCK_AT = 4 * KIB
_SECTOR = 512  # the unit of offsets and sizes, whatever the disk's sectors
_MAGIC = bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")
_MAGIC_OF_BCACHE = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_FIELDS_AT = 752
_MEMBERS_V1 = 1
_MEMBERS_V2 = 11
_INITIALIZED = 0x1  # in flags[0]
_CLEAN = 0x2  # in flags[0]


def read_bcachefs(area: Area) -> Layer | None:
    superblock = area.read(_SUPERBLOCK_AT, 4096)
    magic = superblock[24:40]
    is_bcache = le64(superblock, 8) * _SECTOR == _SUPERBLOCK_AT
    if (
        magic not in (_MAGIC, _MAGIC_OF_BCACHE)
        or is_bcache
        or le64(superblock, 104) * _SECTOR != _SUPERBLOCK_AT
    ):
        return None  # before 2022, bcachefs used the magic of bcache
    superblock = area.read(_SUPERBLOCK_AT, min(_FIELDS_AT + 8 * le32(superblock, 124), 64 * 1024))
    version = le16(superblock, 16)
    member = _own_member(superblock)
    bucket = le16(member, 26) * _SECTOR
    claims = le64(member, 16) * bucket or None
    devices = superblock[123]
    return replace(
        area.layer("bcachefs", claims, le16(superblock, 120) * _SECTOR or None),
        version=f"{version >> 10}.{version & 0x3FF}",
        label=text_at(superblock, 72, 32),
        uuid=uuid_at(superblock, 56),
        data_start=area.start + le16(member, 24) * bucket if bucket else None,
        raid_members=devices if devices > 1 else None,
        unclean=_unclean(superblock),
    )


def _unclean(superblock: bytes) -> str | None:
    """Return why the file system is not clean: since its first mount, a flag shows whether it was
    unmounted.
    """
    if le64(superblock, 144) & (_INITIALIZED | _CLEAN) == _INITIALIZED:
        return "was not unmounted cleanly (clean flag clear)"
    return None


def _own_member(superblock: bytes) -> bytes:
    """Return the entry of this device in the member list, or b"" if there is none."""
    index = superblock[122] if len(superblock) > 122 else 0
    at = _FIELDS_AT
    while at + 8 <= len(superblock):
        length = 8 * le32(superblock, at)
        field = le32(superblock, at + 4)
        if length < 8 or at + length > len(superblock):
            break
        if field in (_MEMBERS_V1, _MEMBERS_V2):
            size, first = (56, 8) if field == _MEMBERS_V1 else (le16(superblock, at + 8), 16)
            begin = at + first + index * size
            if size >= 28 and begin + size <= at + length:
                return superblock[begin : begin + size]
        at += length
    return b""


def _why_fixed(layer: Layer) -> Refusal | None:
    if layer.raid_members is None:
        return None
    text = f"is one of {layer.raid_members} devices of a bcachefs, and no tool checks it alone"
    return Refusal("content-kind", "", text)


BCACHEFS = Kind(
    "bcachefs",
    readers=(read_bcachefs,),
    signatures=(magic("bcachefs", _MAGIC, heads=(4 * KIB + 24, 2 * MIB + 24), tails=((1, MIB - 24),)),),
    checker=("bcachefs", "fsck", "-n"),
    why_fixed=_why_fixed,
    why_not_shrinkable="bcachefs cannot be shrunk; copy its files to another disk",
    smallest_unit=in_whole_blocks,
    is_seen_through=contains_no_device,
    states_length=True,
)
