"""A rollback is cut, a resume continues and is cut as well: what the first run copied may lie over markers."""

import random

import pytest

from aligntool.mover.journal_search import find_journal
from aligntool.steps import RewriteTable
from tests.mover.crowded_disks import make_crowd
from tests.mover.simulated_disk import SimulatedDisk
from tests.mover.test_other_journals import until
from tests.mover.test_simulated_cuts import check_end, final, is_new, recover
from tests.thorough import THOROUGH

pytestmark = pytest.mark.needs_tools("sfdisk")


@pytest.mark.parametrize(("seed", "label"), [(20008, "gpt"), (20016, "gpt"), (20019, "dos"), (20030, "dos")])
def test_runs_that_turn_round_again_and_again_never_stop_by_themselves(seed: int, label: str) -> None:
    """No other program has written anything, so each of them can be continued, in both directions."""
    for number in range(seed, seed + (100 if THOROUGH else 1)):
        luck = random.Random(number)
        crowd = make_crowd(number, label, longest=300 if number % 2 else 60)
        released = until(crowd, crowd.platter, RewriteTable)[0]
        for _ in range(12):
            platter = released
            for how in ("rollback", "resume", "rollback", "resume"):
                if find_journal(SimulatedDisk(platter), None) is None:
                    break
                operations = recover(crowd, platter, how).operations
                cut = luck.randrange(operations * 2 // 3, operations) if how == "rollback" else luck.randrange(60)
                platter = recover(crowd, platter, how, cut).after_the_cut(luck)
            done = final(recover(crowd, platter, luck.choice(("rollback", "resume"))))
            check_end(crowd, done, new=is_new(crowd, done))
