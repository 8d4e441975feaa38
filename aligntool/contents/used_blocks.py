"""Maps of used blocks: what those of several kinds have in common. A byte that is missing from a map is
lost.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice

from aligntool.device import OTHER_OUTPUT, OUTPUT, Borrowed
from aligntool.inventory import Layer
from aligntool.units import Extent


class NoMap(Exception):
    """There is no map of used blocks; the message is the reason."""


def used_between(
    free: Iterable[tuple[int, int]], count: int, block: int, program: str
) -> Generator[Extent, None, int]:
    """Yield the bytes between free runs of blocks; return the number of free blocks. Raises NoMap if the runs
    overlap or are out of order.
    """
    position = listed = 0
    for first, end in chain(free, [(count, count)]):
        if first < position:
            raise NoMap(f"{program} lists block {first} twice or out of order")
        if first > position:
            yield Extent(position * block, (first - position) * block)
        listed += end - first
        position = end
    return listed


# Used blocks as partclone maps them for ddrescue. "+" is used, "?" is free, anything else counts as used, and
# the lines must cover the file system without a hole. Format: GNU ddrescue manual, "Mapfile structure".

FREE = "?"


def used_by_partclone(
    program: str, device: Borrowed, layer: Layer, least: int, *, shrunk: bool = False
) -> Iterator[Extent]:
    """Yield the used runs, `least` bytes at least, and the bytes that the map does not cover. Raises NoMap.

    It runs without --force: partclone must fail on a file system that is mounted, or not clean unless it was
    `shrunk`.
    """
    words = (
        "-D",
        "-q",
        "-B",
        "-s",
        device.name,
        "-o",
        OUTPUT,
        "-L",
        OTHER_OUTPUT,
        *(("-I",) if shrunk else ()),
    )
    try:
        with device.lines_of(program, *words) as lines:
            known, mapped = yield from used_in_mapfile(lines)
    except UnicodeDecodeError as error:
        raise NoMap(f"{program} wrote no map: {error}") from error
    claims = layer.claims_size or 0
    if not claims - 2 * (layer.data_unit or 0) <= known <= claims:
        raise NoMap(f"{program} maps {known} bytes, the superblock counts {claims}")
    if mapped < least:
        raise NoMap(f"{program} finds {mapped} used bytes, but the superblock {least}")
    yield Extent(known, claims - known)


def used_in_mapfile(text: Iterable[str]) -> Generator[Extent, None, tuple[int, int]]:
    """Yield the used runs of a mapfile; return its end and the number of used bytes. Raises NoMap if it has a
    hole or an invalid line.
    """
    lines = (line.split() for line in text if line.strip() and not line.startswith("#"))
    mapped_to = used = 0
    for words in islice(lines, 1, None):  # the first line is the current position
        try:
            position, size, status = words
            run = Extent(int(position, 16), int(size, 16))
        except ValueError as error:
            raise NoMap(f"its map has an invalid line: {' '.join(words)}") from error
        if run.start != mapped_to or run.length <= 0:
            raise NoMap(f"its map has a hole or an overlap at byte {mapped_to}")
        if status != FREE:
            used += run.length
            yield run
        mapped_to = run.end
    if not used:
        raise NoMap("its map has no used blocks")
    return mapped_to, used
