"""In every state that a power cut can leave, libblkid finds nothing at the old and the new place, or everything.

For every kind that libblkid knows: `specimens`. By default one of each kind, the small ones, with some states of each
flush epoch; ALIGNTOOL_THOROUGH=1 tests all, up, down and by a few sectors, and the rollback of each.
"""

import random
from dataclasses import replace

import pytest

from aligntool.contents.layers import read_layers
from aligntool.inventory import Partition
from aligntool.mover import hidden_signatures
from aligntool.mover.held_ranges import held_ranges
from aligntool.steps import SavedRanges
from aligntool.units import Extent
from tests.in_memory import BytesReader
from tests.mover.libblkid import ProbedImage, find_library, known_kinds
from tests.mover.recognition import (
    Shift,
    check_every_state,
    make_trip,
    move_log,
    pieces_of,
    rollback_log,
    state_before_commit,
)
from tests.mover.simulated_disk import SECTOR
from tests.mover.specimens import SPECIMENS
from tests.mover.superblocks import Specimen
from tests.thorough import THOROUGH, sample

pytestmark = [
    pytest.mark.needs_tools("sfdisk"),
    pytest.mark.skipif(find_library() is None, reason="libblkid.so.1 is not here"),
]
UP, DOWN, NEAR = Shift(63, 2048), Shift(2048, 63), Shift(34, 45)
SHIFTS = (UP, DOWN, NEAR) if THOROUGH else (UP,)
MOST = 40 if THOROUGH else 8
CHEAP = 20 << 20
FIRST = {one.seen: one for one in reversed(SPECIMENS) if one.length <= CHEAP}
CHOSEN = [one for one in SPECIMENS if THOROUGH or one.below or one is FIRST.get(one.seen)]
looked_at: list[int] = []


def parameters(specimens: list[Specimen]) -> list[object]:
    return [
        pytest.param(one, id=one.name, marks=pytest.mark.needs_tools(one.tool) if one.tool else ()) for one in specimens
    ]


@sample(28)
@pytest.mark.parametrize("shift", SHIFTS, ids=lambda shift: f"{shift.old}-{shift.new}")
@pytest.mark.parametrize("specimen", parameters(CHOSEN))
def test_either_nothing_or_everything_is_recognised(specimen: Specimen, shift: Shift) -> None:
    if specimen.seen not in known_kinds():
        pytest.skip(f"this libblkid does not know {specimen.seen}")
    if shift is NEAR and specimen.seen == "xfs_external_log":
        pytest.skip("its header is recognised wherever it lies in the first 256 KiB, from the other place as well")
    luck = random.Random(specimen.name)
    trip = make_trip(specimen, shift)
    log = move_log(trip)
    looked_at.append(check_every_state(trip, trip.platter, log, luck, most=MOST))
    if THOROUGH or specimen.signatures > 1:
        trip = replace(trip, runs=(Extent(0, trip.old.length),))  # according to a map, it would not be copied back
        halfway = state_before_commit(trip, move_log(trip))
        looked_at.append(check_every_state(trip, halfway, rollback_log(halfway), luck, most=MOST))


@pytest.mark.parametrize("specimen", parameters([one for one in SPECIMENS if one.length <= 128 << 20]))
def test_nothing_is_recognised_once_the_signatures_are_hidden(specimen: Specimen) -> None:
    """For every specimen, without a move: each signature is in the list of those to hide."""
    if specimen.seen not in known_kinds():
        pytest.skip(f"this libblkid does not know {specimen.seen}")
    image = bytearray(specimen.length)
    for at, raw in pieces_of(specimen):
        image[at : at + len(raw)] = raw
    held, marked = hidden(bytes(image))
    with ProbedImage(bytes(image)) as witness:
        assert specimen.seen in witness.see(0, len(image)).values()
        for extent, raw in zip(held.ranges, marked, strict=True):
            witness.write(extent.start, raw)
        assert witness.see(0, len(image)) == {}


# For other programs, and for another libblkid: it may not know the kind, or need more than the signature.
ELSEWHERE = [
    pytest.param(512, b"EFI PART", id="GPT without a protective MBR, which gdisk recognises"),  # UEFI 5.3.2
    pytest.param(512, b"\x57\x45\x56\x82", id="BSD label"),  # FreeBSD sys/disk/bsd.h
    pytest.param(4 << 10, b"\xe5\xd6\xd3\xf1", id="DASD label"),  # arch/s390/include/asm/vtoc.h: VOL1 in EBCDIC
    pytest.param((4 << 10) + 24, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef"), id="bcachefs"),  # bcachefs_format.h
    pytest.param((64 << 10) + 4, b"\x8b\x42\x3c\x10", id="ScoutFS"),  # libblkid/src/superblocks/scoutfs.c
    pytest.param(88, b"CS", id="FileVault 2"),  # libblkid/src/superblocks/cs_fvault2.c
    pytest.param(16 << 10, bytes((1, 1, *bytes(9), 1)), id="ZFS, whose uberblocks are not read since libblkid 2.41"),
    pytest.param(64 << 10, b"\x01\x16\x19\x70", id="GFS"),  # libblkid/src/superblocks/gfs.c
]


@pytest.mark.parametrize(("at", "magic"), ELSEWHERE)
def test_a_signature_that_libblkid_does_not_judge_alone_is_hidden_by_its_offset(at: int, magic: bytes) -> None:
    image = bytearray(4 << 20)
    image[at : at + len(magic)] = magic
    held, marked = hidden(bytes(image))
    for extent, raw in zip(held.ranges, marked, strict=True):
        image[extent.start : extent.end] = raw
    assert image[at : at + len(magic)] != magic


def hidden(image: bytes) -> tuple[SavedRanges, tuple[bytes, ...]]:
    """Return the ranges of a partition that a move holds, and their bytes with all signatures hidden."""
    place = Extent(0, len(image))
    part = Partition(1, place, content=read_layers(BytesReader(image), place))
    held = held_ranges(part, place.length, SECTOR)
    content = tuple(image[extent.start : extent.end] for extent in held.ranges)
    view = hidden_signatures.View(held, content, place.length, hidden_signatures.marker(SECTOR, 0, bytes(8)))
    signs = hidden_signatures.signature_bytes(view)
    return held, hidden_signatures.with_markers(view, signs.redundant, frozenset().union(*signs.last))


KNOWN_AND_NOT_MADE = {
    "bsd": "blkid -p names a BSD label only inside a partition of an MBR",
    "cs_fvault2": "FileVault 2, which libblkid knows since 2.40; nothing mounts or opens it by itself",
}


def test_every_kind_that_libblkid_recognises_has_a_specimen() -> None:
    assert known_kinds() - {specimen.seen for specimen in SPECIMENS} <= set(KNOWN_AND_NOT_MADE)


@pytest.mark.parametrize("shift", [UP, DOWN], ids=lambda shift: f"{shift.old}-{shift.new}")
@pytest.mark.parametrize("name", ["ext4", "luks2 16K"])
def test_old_remains_at_the_new_place_are_not_recognised_once_the_move_has_begun(name: str, shift: Shift) -> None:
    specimen, old = (next(one for one in SPECIMENS if one.name == it) for it in (name, "ext3"))
    stale = bytearray(specimen.length)
    for at, raw in pieces_of(old):
        stale[at : at + len(raw)] = raw[: max(0, len(stale) - at)]
    trip = make_trip(specimen, shift, stale=bytes(stale))
    log = move_log(trip)
    looked_at.append(check_every_state(trip, trip.platter, log, random.Random(1), most=MOST))
