"""Arrays over NVMe and other drives: what their members are worth, how they are made, what bounds them.

Pure: an Inventory and a goal become a Plan, and arrays that run become views. What is written is `apply`'s.
"""

from aligntool.raid.ceilings import Ceiling, ceiling, ceiling_words
from aligntool.raid.levels import LEVELS, WORKLOADS
from aligntool.raid.planning import plan_raid
from aligntool.raid.systems import SYSTEMS

__all__ = ["LEVELS", "SYSTEMS", "WORKLOADS", "Ceiling", "ceiling", "ceiling_words", "plan_raid"]
