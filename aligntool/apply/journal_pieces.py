"""A journal put together again from what is left of its two copies.

In: a Device and a place. Out: a head, its body, and which pieces of which copy are damaged. Alone because damage is not
tidy: the head of one copy and the body of the other may be gone, and then every piece is there once.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from aligntool.apply.device import Device
from aligntool.apply.journal_sectors import (
    BODY_AT,
    LONGEST_COPY,
    SLOT,
    SMALLEST_COPY,
    Head,
    read_head,
    read_or_nothing,
)
from aligntool.errors import Refused

COPIES = (0, 1)
_BLOCK = 512
_MOST_CHOICES = 8  # places at which the two bodies differ: 256 digests to try


class LostPiece(Refused):
    """There is a journal, and a piece of it is in neither copy."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A head, a body or a record that is damaged, and how it has to be."""

    name: str
    copy_at: int  # byte at which its copy begins
    at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    head: Head
    body: bytes
    damaged: tuple[Piece, ...]  # bodies before heads

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return what is damaged, a sentence each."""
        return tuple(
            f"the {piece.name} of the copy of the journal at byte {piece.copy_at} is damaged; the other copy has it"
            for piece in self.damaged
        )


def read_pieces(device: Device, at: int) -> Pieces:
    """Return the journal at `at` with what is damaged of it. Raises Refused where a piece is lost in both copies."""
    found = False
    for head in _heads(device, at):
        found = True
        bodies = [_body(device, at, head, copy) for copy in COPIES]
        whole = [_is_body(body, head) for body in bodies]
        body = bodies[whole.index(True)] if any(whole) else _put_together(bodies, head)
        if body is not None:
            return Pieces(head, body, tuple(_damaged(device, at, head, body, whole)))
    if found:
        raise LostPiece(f"there is no readable journal at byte {at}: both of its copies are damaged at the same place",
                      hint="keep the disk as it is; a copy made with ddrescue may have what is missing")  # fmt: skip
    raise Refused(f"there is no readable journal at byte {at}")


def copy_lengths(room: int) -> list[int]:
    """Return every length that a copy can have here: what tells is in the damaged head."""
    lengths = []
    length = SMALLEST_COPY
    while length <= LONGEST_COPY and length + SLOT <= room:
        lengths.append(length)
        length *= 2
    return lengths


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % SLOT)


def _heads(device: Device, at: int) -> Iterator[Head]:
    first = read_head(device, at, 0)
    if first is not None:
        yield first
        return
    for length in copy_lengths(device.size - at):
        second = read_head(device, at + length, 1)
        if second is not None and second.copy_length == length:
            yield second


def _body(device: Device, at: int, head: Head, copy: int) -> bytes:
    """With zeros for what cannot be read."""
    start = at + copy * head.copy_length + BODY_AT
    length = len(padded(bytes(head.body_length)))
    whole = read_or_nothing(device, start, length)
    if not whole:
        each = (read_or_nothing(device, start + offset, SLOT) for offset in range(0, length, SLOT))
        whole = b"".join(block or bytes(SLOT) for block in each)
    return whole[: head.body_length]


def _is_body(body: bytes, head: Head) -> bool:
    return hashlib.sha256(body).digest() == head.body_digest


def _put_together(bodies: list[bytes], head: Head) -> bytes | None:
    """Return the body of which each copy has lost another part; None where both have lost the same part."""
    blocks = [
        at for at in range(0, head.body_length, _BLOCK)
        if bodies[0][at : at + _BLOCK] != bodies[1][at : at + _BLOCK]
    ]  # fmt: skip
    runs: list[list[int]] = []
    for at in blocks:
        if runs and runs[-1][-1] + _BLOCK == at:
            runs[-1].append(at)
        else:
            runs.append([at])
    parts = [[at] for at in blocks] if len(blocks) <= _MOST_CHOICES else runs
    if len(parts) > _MOST_CHOICES:
        return None
    for choice in product(COPIES, repeat=len(parts)):
        made = bytearray(bodies[0])
        for copy, part in zip(choice, parts, strict=True):
            made[part[0] : part[-1] + _BLOCK] = bodies[copy][part[0] : part[-1] + _BLOCK]
        if _is_body(bytes(made), head):
            return bytes(made)
    return None


def _damaged(device: Device, at: int, head: Head, body: bytes, whole: list[bool]) -> Iterator[Piece]:
    copies = [at + copy * head.copy_length for copy in COPIES]
    for copy_at, is_whole in zip(copies, whole, strict=True):
        if not is_whole:
            yield Piece("body", copy_at, copy_at + BODY_AT, padded(body))
    for copy, copy_at in zip(COPIES, copies, strict=True):
        found = _head_or_none(device, copy_at, copy)
        if found is None or not found.is_twin_of(head):
            yield Piece("head", copy_at, copy_at, replace(head, copy=copy).sealed())


def _head_or_none(device: Device, at: int, copy: int) -> Head | None:
    try:
        return read_head(device, at, copy)
    except Refused:  # of another version: not of this journal
        return None
