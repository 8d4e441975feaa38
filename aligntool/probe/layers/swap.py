"""Swap space, and the image of a suspended system in it.

In: the area of a partition. Out: its layer. The signature ends the first page, and the page size is the
machine's that made it, so it stands at one of five places. Layout: linux/include/linux/swap.h, union
swap_header.
"""

from aligntool.inventory import Layer
from aligntool.probe.layers.area import Area, be32, le32, text_at, uuid_at
from aligntool.units import KIB, Extent

PAGES = (4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)
SMALLEST = 40 * KIB
HEADER_AT = 1024
TUX_ON_ICE = b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"
SUSPENDED = (b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")


def read_swap(area: Area) -> Layer | None:
    if area.size < SMALLEST:
        return None
    if area.head[: len(TUX_ON_ICE)] == TUX_ON_ICE:
        return _layer(
            area, "swsuspend", "tuxonice", _page_with(area, (b"SWAPSPACE2", b"SWAP-SPACE")) or PAGES[0]
        )
    for page in PAGES:
        mark = area.head[page - 10 : page]
        if mark == b"SWAPSPACE2":
            return _layer(area, "swap", "1", page) if _last_page(area.head) else None
        if mark == b"SWAP-SPACE":
            return Layer(
                kind="swap", extent=area.extent, version="0", data_start=area.start + page, data_unit=page
            )
        for suspended in SUSPENDED:
            if mark.startswith(suspended):
                return _layer(area, "swsuspend", suspended.decode().lower(), page)
    return None


def _page_with(area: Area, marks: tuple[bytes, ...]) -> int | None:
    return next((page for page in PAGES if area.head[page - 10 : page] in marks), None)


def _layer(area: Area, kind: str, version: str, page: int) -> Layer:
    header = area.head[HEADER_AT : HEADER_AT + 512]
    last_page = _last_page(area.head)
    claims = (last_page + 1) * page if last_page else None
    named = not any(header[172:180])  # blkid's check for rubbish: two words of the padding
    return Layer(
        kind=kind,
        extent=Extent(area.start, claims or area.size),
        version=version,
        label=text_at(header, 28, 16) if named else None,
        uuid=uuid_at(header, 12) if named else None,
        data_start=area.start + page,
        data_unit=page,
        claims_size=claims,
        unclean=f"holds a hibernated system ({version.upper()})" if kind == "swsuspend" else None,
    )


def _last_page(head: bytes) -> int:
    """0 when the header is not one of version 1, in either byte order."""
    number = {1: le32, 1 << 24: be32}.get(le32(head, HEADER_AT))
    return number(head, HEADER_AT + 4) if number else 0
