"""In every state that a power cut can leave, libblkid finds nothing at the old and the new place, or everything.

For every kind that libblkid knows: `specimens`. By default one of each kind, the small ones, with some states of each
flush epoch; ALIGNTOOL_THOROUGH=1 tests all, up, down and by a few sectors, and the rollback of each.
"""

import random

import pytest

from tests.moving.libblkid import find_library, known_kinds
from tests.moving.recognition import (
    Shift,
    check_every_state,
    make_trip,
    move_log,
    pieces_of,
    rollback_log,
    state_before_commit,
)
from tests.moving.specimens import SPECIMENS
from tests.moving.superblocks import Specimen
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
        halfway = state_before_commit(trip, log)
        looked_at.append(check_every_state(trip, halfway, rollback_log(halfway), luck, most=MOST))


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
