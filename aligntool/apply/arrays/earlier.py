"""What is left of earlier arrays on members that a plan wipes, when the work goes on after a power cut.

A member that was not erased yet brings its old array up at the next start, without the members that were. Such a rest
is stopped. An array of which nothing is missing is not: it may have been used since.
"""

from collections.abc import Iterator, Sequence

from aligntool.apply.arrays.assembly import arrays_above, attribute, slaves, superblock_uuid
from aligntool.apply.arrays.nodes import kernel_folder, settle
from aligntool.apply.arrays.running import ask
from aligntool.errors import Refused
from aligntool.plan import MakeMember, Said, Step


def stop_earlier(steps: Sequence[Step], left: Sequence[Step]) -> Iterator[Said]:
    """Stop every incomplete array that stands on nothing but what `steps` wipe, and of which every superblock is one
    that they give up. `left`: the steps that are not done yet.

    Raises Refused where such an array is in use.
    """
    wiped = [step for step in left if isinstance(step, MakeMember) and step.wipe]
    if not wiped:
        return
    settle()
    uuids = {uuid for step in steps if isinstance(step, MakeMember) for uuid in step.old_arrays}
    things = {name for step in wiped for name in _things(step)}
    for name in sorted(arrays_above([f"/dev/{each}" for each in things])):
        found = {superblock_uuid(f"/dev/{each}") for each in slaves(name)}
        if slaves(name) <= things and len(found) == 1 and found <= uuids and _is_incomplete(name):
            said = ask("mdadm", "--stop", f"/dev/{name}")
            if said.code:
                raise Refused(
                    f"/dev/{name} is what is left of an earlier array, and cannot be stopped: {said.last_words}",
                    hint=f"lsblk /dev/{name}; then sudo mdadm --stop /dev/{name}",
                )
            yield Said(f"/dev/{name}, what is left of the earlier array {found.pop()}, is stopped")
    settle()


def _things(step: MakeMember) -> Iterator[str]:
    """The kernel's names of all that the step wipes: a partition that is taken, else the drive and its partitions."""
    folder = kernel_folder(step.device)
    if step.entries or step.device == step.disk.path:
        folder = kernel_folder(step.disk.path)
    if folder is not None:
        yield folder.name
        yield from (part.parent.name for part in folder.glob("*/partition"))


def _is_incomplete(name: str) -> bool:
    """By the kernel: it does not run, or it runs without a member."""
    lacks_members = attribute(name, "degraded") not in ("", "0")
    return lacks_members or attribute(name, "array_state") in ("inactive", "clear")
