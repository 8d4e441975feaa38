"""The order of copies that overlap each other's sources."""

import pytest

from aligntool.realign.placing import copy_order
from aligntool.units import Extent


@pytest.mark.parametrize(
    ("moves", "order"),
    [
        ({1: (63, 2048)}, (1,)),
        ({1: (63, 2048), 2: (1063, 3048)}, (2, 1)),
        ({1: (2048, 63), 2: (3048, 1063)}, (1, 2)),
        ({1: (100, 2000), 2: (2000, 4000), 3: (4000, 100)}, None),
        ({1: (0, 1000), 2: (1000, 0)}, None),
    ],
)
def test_a_copy_waits_until_its_target_is_free(
    moves: dict[int, tuple[int, int]], order: tuple[int, ...] | None
) -> None:
    assert copy_order({one: (Extent(old, 1000), Extent(new, 1000)) for one, (old, new) in moves.items()}) == order
