"""Plan again, and refuse a plan that the disk or the request no longer leads to."""

from aligntool import steps
from aligntool.audit.wording import command
from aligntool.change import Plan, planned_by
from aligntool.errors import Refused
from aligntool.realign.found_plan import Finder, FoundPlan, find_plan
from aligntool.realign.request import Request
from aligntool.realign.suspended import names_suspensions

_SUBJECT_WORDS = {
    "size": "size",
    "sector_size": "sector size",
    "label": "kind of table",
    "disk_id": "disk id",
    "model": "model",
    "serial": "serial number",
    "wwn": "WWN",
    "table_digest": "partition table",
}


def verify_plan(plan: Plan, request: Request, find: Finder = find_plan) -> FoundPlan:
    """Plan again, and return the result. Raises Refused with what changed if disk, table or steps differ."""
    found = find(plan.disk.path, request)
    new = found.plan
    if steps.is_same_disk(plan.disk, new.disk) and plan.steps == new.steps and names_suspensions(plan, new):
        return found
    text = (
        f"{plan.disk.path}: a new plan has different steps: the content of the disk or the request has"
        " changed"
    )
    if not steps.is_same_disk(plan.disk, new.disk):
        changed = [
            word
            for name, word in _SUBJECT_WORDS.items()
            if getattr(plan.disk, name) != getattr(new.disk, name)
        ]
        text = f"{plan.disk.path} has changed since the plan was made: different {', '.join(changed)}"
    if not new.steps:
        text += "; a new plan has nothing to do, as after this plan was applied"
        raise Refused(text, hint=command("audit", plan.disk.path), code="plan-stale")
    again = command(planned_by(plan), plan.disk.path, *request.typed)
    raise Refused(text, hint=f"make a new plan: {again}", code="plan-stale")
