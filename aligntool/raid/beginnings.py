"""Where an array's data would begin on its members' drives, before anybody has decided whether there may be one.

In: members and a goal. Out: bytes of the drives. Alone because what lies there is looked at before an array is planned:
old data there would show through the new array.
"""

from collections.abc import Sequence

from aligntool.audit import Judged
from aligntool.errors import Refused
from aligntool.plan import RaidGoal
from aligntool.raid.levels import LEVELS
from aligntool.raid.placing import data_offset, place_members
from aligntool.raid.planning import named_members


def data_begins(members: Sequence[Judged], goal: RaidGoal) -> tuple[int, ...]:
    """One for each member; none where the goal is one that is refused anyway."""
    level = LEVELS.get(goal.level)
    if level is None or not members:
        return ()
    try:
        placed = place_members(named_members(members, goal), goal, level)
    except Refused:
        return ()
    offset = data_offset(placed, goal).size
    return tuple(each.extent.start + offset for each in placed)
