"""Optical discs: ISO 9660 with its Joliet names, and UDF.

In: the area of a disc image or of a stick that one was copied to. Out: its layer. Source: ECMA-119, sections
8.4 (primary volume descriptor) and 8.5 (supplementary).
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, le16, le32, text_at
from aligntool.units import KIB, Extent

AT = 32 * KIB
SECTOR = 2 * KIB
MOST_DESCRIPTORS = 16
PRIMARY, SUPPLEMENTARY, END = 1, 2, 255
UDF, UDF_STEPS = (b"NSR02", b"NSR03"), (2 * KIB, 4 * KIB)
JOLIET = (b"%/@", b"%/C", b"%/E")
DATES = (830, 813)  # of the last change, of making


def read_iso9660(area: Area) -> Layer | None:
    primary, joliet = _descriptors(area)
    if primary is None:
        return None
    block = le16(primary, 128)
    if not block or block % 512:
        return None
    claims = le32(primary, 80) * block
    return Layer(
        kind="iso9660",
        extent=Extent(area.start, claims),
        version="Joliet Extension" if joliet else None,
        label=_label(primary, joliet),
        uuid=next((uuid for at in DATES if (uuid := _date(primary[at : at + 17]))), None),
        data_start=area.start,
        data_unit=block,
        claims_size=claims,
    )


def read_udf(area: Area) -> Layer | None:
    """Only recognised: its sizes stand in descriptors that would have to be searched for. ECMA-167, 2/8 and 3/9.1."""
    for step in UDF_STEPS:
        for at in range(AT + step, AT + MOST_DESCRIPTORS * SECTOR, step):
            if area.read(at + 1, 5) in UDF:
                return Layer(kind="udf", extent=area.extent)
    return None


def _descriptors(area: Area) -> tuple[bytes | None, bytes | None]:
    primary = joliet = None
    for index in range(MOST_DESCRIPTORS):
        descriptor = area.read(AT + index * SECTOR, SECTOR)
        if descriptor[1:6] != b"CD001" or descriptor[0] == END:
            break
        if descriptor[0] == PRIMARY and primary is None:
            primary = descriptor
        elif descriptor[0] == SUPPLEMENTARY and descriptor[88:91] in JOLIET and joliet is None:
            joliet = descriptor
    return primary, joliet


def _label(primary: bytes, joliet: bytes | None) -> str | None:
    """Joliet has 16 characters of any alphabet, the primary descriptor 32 of ASCII: blkid puts the two together where
    the short one begins the long one, and so do we.
    """
    plain = text_at(primary, 40, 32, "ascii") or ""
    if joliet is None:
        return plain or None
    wide = joliet[40:72].decode("utf-16-be", "replace").ljust(16)[:16]
    long = primary[40:72].decode("ascii", "replace")
    same = all(
        ours == "_" or ours.upper() == theirs.upper() for ours, theirs in zip(long, wide, strict=False)
    )
    return (wide + long[16:] if same else wide).replace("\0", " ").strip() or None


def _date(raw: bytes) -> str | None:
    digits = raw[:16].decode("ascii", "replace")
    if len(digits) < 16 or not digits.isdigit() or (digits == "0" * 16 and raw[16:] == b"\0"):
        return None
    return "-".join((digits[:4], *(digits[at : at + 2] for at in range(4, 16, 2))))
