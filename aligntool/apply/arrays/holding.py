"""The members of an array to be, all at once taken for oneself while it is thought out again.

In: a plan. Out: nothing, or Refused that names who has a member. Alone because the drives are looked at together, and
given back before the first of them is written to, each for itself and again exclusively: mdadm wants them then.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from aligntool.apply.hold import hold_disk, hold_partition
from aligntool.errors import Refused, objection_of, refuse
from aligntool.plan import MakeMember, Plan


@contextmanager
def hold_members(plan: Plan) -> Iterator[None]:
    """Whole drives as `hold_disk` does; of a drive whose partition is taken, that partition. Raises Refused with the
    reasons of all members.
    """
    refused: list[Refused] = []
    with ExitStack() as stack:
        for step in plan.steps:
            try:
                if isinstance(step, MakeMember) and (step.entries or step.device == step.disk.path):
                    stack.enter_context(hold_disk(step.disk.path, why="a member of an array"))
                elif isinstance(step, MakeMember):
                    stack.enter_context(hold_partition(step.device))
            except Refused as refusal:
                refused.append(refusal)
        refuse(objection_of(refusal) for refusal in refused)
        yield
