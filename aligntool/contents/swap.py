"""Swap space, and the image of a suspended system in it."""

from collections.abc import Iterator
from dataclasses import replace

from aligntool.contents.kind import Kind, NewArray, OnArray, contains_no_device, in_whole_blocks
from aligntool.contents.signatures import magic
from aligntool.formats.numbers import be32, le32, text_at, uuid_at
from aligntool.formats.reader import Area
from aligntool.inventory import Layer
from aligntool.units import KIB

# The signature is at the end of the first page, in the page size of the machine that made it, so it is at one
# of five offsets. Layout: linux/include/linux/swap.h, union swap_header.

PAGES = tuple(4 * KIB << step for step in range(5))
HEADER_AT = 1024
TUX_ON_ICE = b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"
SUSPENDED = (b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")


def read_swap(area: Area) -> Layer | None:
    if area.size < 40 * KIB:
        return None
    marks = {page: area.head[page - 10 : page] for page in PAGES}
    if area.head.startswith(TUX_ON_ICE):
        page = next(
            (page for page, mark in marks.items() if mark in (b"SWAPSPACE2", b"SWAP-SPACE")), PAGES[0]
        )
        return _swap_layer(area, "swsuspend", "tuxonice", page)
    for page, mark in marks.items():
        if mark == b"SWAPSPACE2":
            return _swap_layer(area, "swap", "1", page) if _last_page(area.head) else None
        if mark == b"SWAP-SPACE":
            return Layer(
                kind="swap", extent=area.extent, version="0", data_start=area.start + page, data_unit=page
            )
        for suspended in SUSPENDED:
            if mark.startswith(suspended):
                return _swap_layer(area, "swsuspend", suspended.decode().lower(), page)
    return None


def _swap_layer(area: Area, kind: str, version: str, page: int) -> Layer:
    header = area.head[HEADER_AT : HEADER_AT + 512]
    last_page = _last_page(area.head)
    layer = replace(
        area.layer(kind, (last_page + 1) * page if last_page else None, page),
        version=version,
        data_start=area.start + page,
        unclean=f"holds a hibernated system ({version.upper()})" if kind == "swsuspend" else None,
    )
    if any(header[172:180]):  # as in blkid: with nonzero padding, label and UUID are not valid
        return layer
    return replace(layer, label=text_at(header, 28, 16), uuid=uuid_at(header, 12))


def _last_page(head: bytes) -> int:
    """Return the number of the last page, or 0 if the header is not of version 1 in either byte order."""
    return swap_number(head, 4)


def swap_number(head: bytes, at: int) -> int:
    """Return a field of a swap header of version 1, in either byte order; 0 if it is of another version."""
    number = {1: le32, 1 << 24: be32}.get(le32(head, HEADER_AT))
    return number(head, HEADER_AT + at) if number else 0


def _bad_blocks(area: Area) -> int:
    return swap_number(area.head, 8)  # nr_badpages in union swap_header


_SWAP_MAGICS = (b"SWAP-SPACE", b"SWAPSPACE2", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
_SWAP_PLACES = tuple((4 * KIB << step) - 10 for step in range(5))

_LONGEST_LABEL = 15  # bytes


def _options(array: NewArray) -> Iterator[str]:
    yield from ("-U", array.uuid, "-L", array.name[:_LONGEST_LABEL])


SWAP = Kind(
    "swap",
    readers=(read_swap,),
    signatures=(magic("swap", *_SWAP_MAGICS, heads=_SWAP_PLACES),),
    maker="mkswap",
    on_array=OnArray(options=_options),
    list_clearer="mkswap",
    shortener="mkswap",
    cleaning=lambda layer: "start the suspended system and shut it down",
    only_header_matters=True,
    works_anywhere=True,
    role="swap",
    leaves_first_sector=True,
    bad_blocks=_bad_blocks,
    smallest_unit=in_whole_blocks,
    writes_units=False,
    is_seen_through=contains_no_device,
    states_length=True,
)
SUSPENDED_SYSTEM = Kind(
    "swsuspend",
    is_suspended_system=True,
    signatures=(magic("swsuspend", b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", heads=(0,)),),
    is_seen_through=contains_no_device,
)
