"""What stands in the way of an array on this machine, asked before its plan is shown.

In: the steps of a plan, or what is known of one that there cannot be. Out: nothing, or Refused with all reasons at
once. Alone because a plan that is confirmed and then refused has wasted a typed answer, and one that is only shown
promises what cannot be kept.
"""

import os
from collections.abc import Sequence
from dataclasses import replace

from aligntool.errors import Refused, objection_of, refuse
from aligntool.plan import EditFile, RunCommand, Step, WriteFile


def refuse_beforehand(steps: Sequence[Step], system: str, others: Refused | None = None) -> None:
    """Nothing is written, no module loaded, no drive woken. `others`: what was found about the members.

    Drives by two names are known from sysfs and udev: disks that belong to no array are not opened.

    Files and commands of another `system` than this one are not looked for: such a plan is for another machine. Who is
    not root may not look.
    """
    from aligntool.apply.arrays.preflight import reasons_beforehand
    from aligntool.cli.arrays import this_site
    from aligntool.probe.distribution import find_distribution
    from aligntool.probe.look import look

    if os.geteuid() != 0:
        return
    if system != find_distribution():
        steps = [step for step in steps if not isinstance(step, EditFile | WriteFile | RunCommand)]
    site = replace(this_site(), look_around=lambda: look((), arrays=True, files=False).disks)
    reasons = reasons_beforehand(steps, site)
    if reasons:
        refuse([*([objection_of(others)] if others else []), *reasons])
