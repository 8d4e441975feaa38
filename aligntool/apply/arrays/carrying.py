"""Files that were put back, carried to where they count: what systemd knows, boot images.

In: a plan and its record. Out: commands that are run once more. Alone because it is never a reason to stop: the array
must go, whatever is wrong with a boot image.
"""

from collections.abc import Iterator
from itertools import dropwhile, takewhile

from aligntool.apply.arrays import commands
from aligntool.apply.arrays.record import Record
from aligntool.errors import Refused, Stopped
from aligntool.plan import EditFile, Plan, RunCommand, Said, WriteFile


def carry_back(index: int, plan: Plan, record: Record) -> Iterator[Said]:
    """A file that was put back is told to systemd, as the edited one was; of several that were edited in a row, once
    all are back. Boot images come last: `build_images_back`.
    """
    before = plan.steps[index - 1] if index else None
    in_a_row = isinstance(before, EditFile | WriteFile) and "after" in record.trace(index - 1)
    if "after" not in record.trace(index) or in_a_row:
        return
    later = range(index + 1, len(plan.steps))
    behind = dropwhile(lambda at: isinstance(plan.steps[at], EditFile | WriteFile), later)
    for at in takewhile(lambda at: isinstance(plan.steps[at], RunCommand), behind):
        step = plan.steps[at]
        if isinstance(step, RunCommand) and commands.tells_systemd(step):
            yield from _again(at, step, record)


def build_images_back(plan: Plan, record: Record) -> Iterator[Said]:
    """Once the array is gone: Debian's hook writes every array that runs into an image whose mdadm.conf names none."""
    changed = [at for at in record.traces if "after" in record.trace(at)]
    for at, step in enumerate(plan.steps):
        if (
            isinstance(step, RunCommand)
            and commands.builds_images(step)
            and any(each < at for each in changed)
        ):
            yield from _again(at, step, record)


def _again(at: int, step: RunCommand, record: Record) -> Iterator[Said]:
    if at not in record.traces:
        return
    typed = " ".join(step.command)
    yield Said(f"{step.purpose}: {typed}")
    try:
        yield from commands.run_command(step)
    except (Refused, Stopped) as error:
        yield Said(
            f"that failed, so it may still have lines of the array; type it again later: {typed}: {error}"
        )
