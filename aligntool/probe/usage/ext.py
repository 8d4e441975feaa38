"""Used blocks of ext2, ext3 and ext4, as dumpe2fs lists the free ones.

In: a disk or an image, and where the file system begins on it. Out: its used runs. Alone because dumpe2fs finds a file
system inside an image by itself: neither root nor a loop device is needed. Clusters of bigalloc are listed by their
first block, groups without a bitmap (BLOCK_UNINIT) as the library computes them.
"""

import re
from pathlib import Path

from aligntool.probe.programs import ask, find_program
from aligntool.probe.usage.used_map import NoMap
from aligntool.units import Extent

PROGRAM = "dumpe2fs"
PATIENCE_S = 1800.0  # the bitmaps of a full disk of 16 TiB are 512 MiB, all over the disk

_KEPT = (b"Block size:", b"Block count:", b"Cluster size:", b"Free blocks:", b"  Free blocks: ")
_FREE = re.compile(r"^  Free blocks: (.*)$", re.MULTILINE)


def read_ext(path: str, start: int, claims: int) -> tuple[Extent, ...]:
    """Runs counted from the file system's start. Raises NoMap."""
    if find_program(PROGRAM) is None:
        raise NoMap(f"{PROGRAM} is not installed")
    if "?" in path:
        raise NoMap("a question mark in the path means something to dumpe2fs")
    where = f"{Path(path).absolute()}?offset={start}"
    answer = ask(PROGRAM, where, limit_s=PATIENCE_S, keep=_KEPT)
    if answer.code != 0:
        raise NoMap(f"{PROGRAM} failed: {answer.last_words}")
    return used_of(answer.output, claims)


def used_of(report: str, claims: int) -> tuple[Extent, ...]:
    """The used runs from what dumpe2fs printed. Raises NoMap when it does not add up.

    The free blocks that are listed must be as many as the superblock counts.
    """
    block, count = _number(report, "Block size"), _number(report, "Block count")
    cluster = _number(report, "Cluster size", missing=block)
    if count * block != claims or cluster % block:
        raise NoMap(f"{PROGRAM} counts {count} blocks of {block} bytes, the superblock {claims} bytes")
    free = []
    for listed in _FREE.findall(report):
        for item in listed.split(","):
            first, _, last = item.strip().partition("-")
            if first:
                free.append(_run(first, last or first, cluster // block))
    free = [(first, min(end, count)) for first, end in free]  # the last cluster may be cut short
    told = _number(report, "Free blocks")
    listed_blocks = sum(end - first for first, end in free)
    if listed_blocks != told:
        raise NoMap(f"{PROGRAM} lists {listed_blocks} free blocks, the superblock counts {told}")
    return _between(free, count, block)


def _run(first: str, last: str, ratio: int) -> tuple[int, int]:
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise NoMap(f"{PROGRAM} says {first!r}-{last!r}, which is no run of blocks")
    return int(first), int(last) + ratio


def _number(report: str, name: str, *, missing: int | None = None) -> int:
    found = re.search(rf"^{name}: +(\d+)$", report, re.MULTILINE)
    if found is None and missing is not None:
        return missing
    if found is None:
        raise NoMap(f"{PROGRAM} does not say its {name.lower()}")
    return int(found[1])


def _between(free: list[tuple[int, int]], count: int, block: int) -> tuple[Extent, ...]:
    """What lies between free runs of blocks, in bytes. Raises NoMap when these overlap or are out of order."""
    used, at = [], 0
    for first, end in (*free, (count, count)):
        if first < at:
            raise NoMap(f"{PROGRAM} lists block {first} twice or out of order")
        used.append(Extent(at * block, (first - at) * block))
        at = end
    return tuple(run for run in used if run.length)
