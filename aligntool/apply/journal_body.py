"""What a journal remembers, as bytes and back.

In: the plan, the runs that are copied, the table in its three states, everything held. Out: one compressed block. Alone
because it is a format, and formats are tested on their own.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aligntool.apply.device import Sectors, Writing
from aligntool.apply.partition_tables import TableImages
from aligntool.errors import Refused
from aligntool.plan import Plan, from_json, to_json
from aligntool.units import Extent

_LENGTH = struct.Struct("<Q")
_RUN = struct.Struct("<QQ")
LONGEST = 1 << 30  # bytes unpacked; a damaged length must not fill memory

_KEYS = frozenset({"plan", "images", "runs", "held"})


@dataclass(frozen=True, slots=True)
class Contents:
    """By the partition's number: `runs`, counted from its start, and `held`, as found at the old place."""

    plan: Plan
    images: TableImages
    runs: Mapping[int, tuple[Extent, ...]]
    held: Mapping[int, tuple[bytes, ...]]


def pack(contents: Contents) -> bytes:
    blobs: list[bytes] = []
    index = {
        "plan": to_json(contents.plan),
        "images": {
            "before": _lay_images(contents.images.before, blobs),
            "parked": _lay_images(contents.images.parked, blobs),
            "after": _lay_images(contents.images.after, blobs),
        },
        "runs": [[number, _lay(_runs_as_bytes(runs), blobs)] for number, runs in contents.runs.items()],
        "held": [[number, [_lay(part, blobs) for part in parts]] for number, parts in contents.held.items()],
    }
    text = json.dumps(index).encode()
    return zlib.compress(b"".join((_LENGTH.pack(len(text)), text, *blobs)), 1)


def unpack(body: bytes) -> Contents:
    """The inverse. `body` was checked against its digest before. Raises Refused for one of another version."""
    raw = zlib.decompressobj().decompress(body, LONGEST)
    length = _LENGTH.unpack(raw[: _LENGTH.size])[0]
    index = json.loads(raw[_LENGTH.size : _LENGTH.size + length])
    blobs = _Blobs(raw, _LENGTH.size + length)
    if set(index) != _KEYS:
        raise Refused("the journal was written by another version of aligntool")
    images = TableImages(*(_images(index["images"][name], blobs) for name in ("before", "parked", "after")))
    runs = {number: _runs_of(blobs.take(size)) for number, size in index["runs"]}
    held = {number: tuple(blobs.take(size) for size in sizes) for number, sizes in index["held"]}
    return Contents(from_json(index["plan"]), images, runs, held)


class _Blobs:
    """Read in the order in which they were laid down."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self._at = at

    def take(self, length: int) -> bytes:
        found = self._raw[self._at : self._at + length]
        self._at += length
        return found


def _lay(blob: bytes, blobs: list[bytes]) -> int:
    blobs.append(blob)
    return len(blob)


def _lay_images(writing: Writing, blobs: list[bytes]) -> list[list[list[int]]]:
    return [[[sectors.at, _lay(sectors.data, blobs)] for sectors in group] for group in writing]


def _images(groups: Sequence[Sequence[tuple[int, int]]], blobs: _Blobs) -> Writing:
    return tuple(tuple(Sectors(at, blobs.take(length)) for at, length in group) for group in groups)


def _runs_as_bytes(runs: Sequence[Extent]) -> bytes:
    return b"".join(_RUN.pack(run.start, run.length) for run in runs)


def _runs_of(raw: bytes) -> tuple[Extent, ...]:
    def each() -> Iterator[Extent]:
        for start, length in _RUN.iter_unpack(raw):
            yield Extent(start, length)

    return tuple(each())
