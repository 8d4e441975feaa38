"""The rarer kinds that are recognised and named, and no more: a magic at a place, a label and an identifier at
others.

In: the area of a partition. Out: its layer, without geometry: whoever audits can then say what lies here
instead of taking it for empty space. It is alone because it is a table and grows by lines. Places: the libblkid
prober of each kind.
"""

from dataclasses import dataclass

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, text_at, uuid_at
from aligntool.units import KIB, MIB


@dataclass(frozen=True, slots=True)
class Mark:
    kind: str
    at: int  # of the magic; negative: from the container's end
    magic: bytes
    label: tuple[int, int] | None = None  # place and length
    uuid: int | None = None
    version: str | None = None


OWNERS = (
    Mark("drbd", -4096 + 60, b"\x83\x74\x02\x6b", version="v08"),
    Mark("drbd", -4096 + 60, b"\x83\x74\x02\x6c", version="v08"),
    Mark("drbd", -4096 + 60, b"\x83\x74\x02\x6d", version="v09"),
    Mark("DM_snapshot_cow", 0, b"SnAp"),
    Mark("DM_verity_hash", 0, b"verity\0\0", uuid=16, version="1"),
    Mark("DM_integrity", 0, b"integrt\0"),
    Mark("VMFS_volume_member", MIB, b"\x0d\xd0\x01\xc0"),
    Mark("stratis", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    Mark("ubi", 0, b"UBI#"),
)

OTHERS = (
    Mark("ceph_bluestore", 0, b"bluestore block device"),
    Mark("vdo", 0, b"dmvdo001", uuid=40),
    Mark(
        "reiserfs",
        64 * KIB + 0x34,
        b"ReIsEr2Fs",
        label=(64 * KIB + 100, 16),
        uuid=64 * KIB + 84,
        version="3.6",
    ),
    Mark(
        "reiserfs",
        64 * KIB + 0x34,
        b"ReIsEr3Fs",
        label=(64 * KIB + 100, 16),
        uuid=64 * KIB + 84,
        version="JR",
    ),
    Mark("reiserfs", 64 * KIB + 0x34, b"ReIsErFs", version="3.5"),
    Mark("reiserfs", 8 * KIB + 0x34, b"ReIsErFs", version="3.5"),
    Mark("reiser4", 64 * KIB, b"ReIsEr4", label=(64 * KIB + 36, 16), uuid=64 * KIB + 20, version="4"),
    Mark("jfs", 32 * KIB, b"JFS1", label=(32 * KIB + 152, 16), uuid=32 * KIB + 136),
    Mark("gfs2", 64 * KIB, b"\x01\x16\x19\x70\0\0\0\x01"),
    *(
        Mark("ocfs2", at * KIB, b"OCFSV2", label=(at * KIB + 272, 64), uuid=at * KIB + 336)
        for at in (1, 2, 4, 8)
    ),
    Mark("romfs", 0, b"-rom1fs-", label=(16, 16)),
    Mark("zonefs", 0, b"SFOZ"),
    Mark("oracleasm", 32, b"ORCLDISK", label=(40, 24)),
    Mark("VMFS", 2 * MIB, b"\x5e\xf1\xab\x2f", label=(2 * MIB + 29, 128)),
    Mark("nilfs2", KIB + 6, b"\x34\x34", label=(KIB + 168, 80), uuid=KIB + 152, version="2"),
)


def read_owner(area: Area) -> Layer | None:
    return next((layer for mark in OWNERS if (layer := _read(area, mark))), None)


def read_other(area: Area) -> Layer | None:
    return next((layer for mark in OTHERS if (layer := _read(area, mark))), None)


def _read(area: Area, mark: Mark) -> Layer | None:
    if mark.at < 0 and area.ends_with_a_partition:
        return None
    at = mark.at if mark.at >= 0 else area.size + mark.at
    if area.read(at, len(mark.magic)) != mark.magic:
        return None
    return Layer(
        kind=mark.kind,
        extent=area.extent,
        version=mark.version,
        label=text_at(area.read(*mark.label), 0, mark.label[1]) if mark.label else None,
        uuid=uuid_at(area.read(mark.uuid, 16), 0) if mark.uuid is not None else None,
    )
