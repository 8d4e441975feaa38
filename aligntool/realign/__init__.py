"""Inventory + goal -> Plan: where partitions go, in which order, and what stands against it. Pure.

`plan_realign` decides about a disk, `mends` about each misaligned partition in a word, `subject` names a disk and
digests its table. planning.py is where to begin reading.
"""

from aligntool.realign.mending import Mend, mends, on_captured_machine, point_to_answers
from aligntool.realign.planning import plan_realign
from aligntool.realign.subject import subject

__all__ = ["Mend", "mends", "on_captured_machine", "plan_realign", "point_to_answers", "subject"]
