"""Run the checks of a plan: each file system's own checker, which writes nothing."""

from collections.abc import Generator

from aligntool import steps
from aligntool.change import Event, Plan, Said, StepBegun, StepDone
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refused
from aligntool.linux.checks import CheckResult, check_content


def run_checks(plan: Plan) -> Generator[Event, None, frozenset[int]]:
    """Run every check of a plan, and return the partitions to copy whole because they could not be checked: a
    map of used blocks is only as right as the file system. Raises Refused if a check finds errors.
    """
    whole = set()
    for index, step in plan.numbered(steps.CheckContent):
        yield StepBegun(index)
        result = _check(checked_disk(plan), step)
        if result.checked:
            yield Said(f"checked by {result.by}")
        elif _is_copied(plan, step.partition) and kind_named(step.kind).is_map_checked:
            whole.add(step.partition)
            yield Said(f"not checked: {result.by}; unused blocks are copied as well")
        else:
            yield Said(f"not checked: {result.by}")
        yield StepDone(index)
    return frozenset(whole)


def checked_disk(plan: Plan) -> str:
    """Return the path of the disk that the checks of a plan read: of a copy, its source."""
    return next((step.source.path for step in plan.of(steps.CopyDisk)), plan.disk.path)


def _check(path: str, step: steps.CheckContent) -> CheckResult:
    """Run the file system's own checker, which writes nothing. Raises Refused with its message."""
    result = check_content(path, step.extent, step.kind)
    if result.problem:
        text = f"partition {step.partition} ({step.kind}) failed the check by {result.by}: {result.problem}"
        subject = f"partition {step.partition}"
        hint = "repair it with its own tool first"
        raise Refused(text, hint=hint, code="content-damaged", subject=subject)
    return result


def _is_copied(plan: Plan, number: int) -> bool:
    """Return whether a plan copies the content of a partition; one that is recreated is not copied."""
    if plan.of(steps.CopyDisk):
        return all(step.partition != number for step in plan.of(steps.RebuildContent))
    return any(step.partition == number for step in plan.of(steps.CopyContent))
