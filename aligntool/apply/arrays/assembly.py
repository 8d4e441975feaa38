"""md arrays: found by their UUID, made, started again after a reboot, and taken apart.

In: a MakeArray step. Out: an array that runs, or none. Alone because only here superblocks of members are read and
zeroed, and only those that carry the UUID of the plan ever are: whatever else is found there stops the work.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from aligntool.apply.arrays.geometry import unlike
from aligntool.apply.arrays.nodes import kernel_folder, settle
from aligntool.apply.arrays.running import ask, do, export_values
from aligntool.apply.arrays.untouched import shown_on
from aligntool.errors import Stopped
from aligntool.plan import MakeArray, Said

_RUNS = ("active", "active-idle", "clean", "readonly", "read-auto", "write-pending")
"""md/array_state of an array that can be used: Documentation/admin-guide/md.rst."""


def make_array(step: MakeArray, size: int) -> Iterator[Said]:
    """Only while nothing was made on the array yet: what is half there is taken apart and made again.

    `size`: of the array, in bytes. Raises Stopped.
    """
    settle()
    running = find_running(step)
    if running is not None and _is_whole(running, step.members):
        yield Said(f"{step.device} runs already")
    else:
        if running is not None and (shown := shown_on(f"/dev/{running}")):
            raise Stopped(
                f"/dev/{running} runs without all its members and holds {shown}; it is not made again"
            )
        take_apart(step)
        _stop_where_something_lies(step.members)
        do(*step.command)
        settle()
    stop_unless_made(step, size)


def start_array(step: MakeArray, *, named: bool) -> Iterator[Said]:
    """An array that was made runs, also after a reboot; where it is to be `named`, under its own name, not as md127.

    Raises Stopped.
    """
    settle()
    running = find_running(step)
    if running is not None and (not named or _leads_to(step.device, running)):
        return
    if running is not None or arrays_above(step.members):
        for name in sorted(arrays_above(step.members)):
            _stop_if_ours(name, step)
    do("mdadm", "--assemble", step.device, f"--uuid={step.uuid}", *step.members)
    settle()
    yield Said(f"{step.device} was started again")
    stop_unless_made(step)


def take_apart(step: MakeArray) -> None:
    """No array of that UUID runs, and no member carries it. Raises Stopped where a member belongs to another array."""
    _stop_foreign(step)
    for name in sorted(arrays_above(step.members)):
        _stop_if_ours(name, step)
    for member in step.members:
        if superblock_uuid(member) == step.uuid:
            do("mdadm", "--zero-superblock", member)
    settle()


def find_running(step: MakeArray) -> str | None:
    """The kernel's name of the array that runs on the step's members and carries its UUID; "md127"."""
    for name in sorted(arrays_above(step.members)):
        state = attribute(name, "array_state")
        if state in _RUNS and all(superblock_uuid(f"/dev/{each}") == step.uuid for each in slaves(name)):
            return name
    return None


def arrays_above(members: Sequence[str]) -> set[str]:
    """md devices that stand on any of these, whether they run or not. A drive's partitions count as the drive."""
    found: set[str] = set()
    for member in members:
        folder = kernel_folder(member)
        if folder is not None:
            found |= {each.name for each in (folder / "holders").glob("md*")}
    return found


def has_superblocks(step: MakeArray) -> bool:
    """Some member still belongs to the array of the plan."""
    return any(superblock_uuid(member) == step.uuid for member in step.members)


def superblock_uuid(device: str) -> str:
    """As mdadm writes it; "": the device carries no superblock of md."""
    said = ask("mdadm", "--examine", "--export", device)
    return export_values(said.output).get("MD_UUID", "")


def _is_whole(name: str, members: Sequence[str]) -> bool:
    return slaves(name) == _names(members) and attribute(name, "degraded") in ("", "0")


def _leads_to(device: str, name: str) -> bool:
    folder = kernel_folder(device)
    return folder is not None and folder.name == name


def stop_unless_made(step: MakeArray, size: int | None = None) -> None:
    """The array runs with all its members, its name leads to it, and it is what was planned. Raises Stopped."""
    name = find_running(step)
    if name is None or slaves(name) != _names(step.members):
        raise Stopped(f"{step.device} does not run with all its members: mdadm --detail {step.device}")
    if not _leads_to(step.device, name):
        raise Stopped(f"the array runs as /dev/{name}, and {step.device} does not lead there")
    if wrong := tuple(unlike(step, Path("/sys/block", name), size)):
        raise Stopped(f"{step.device} is not what was planned: {'; '.join(wrong)}")


def _stop_foreign(step: MakeArray) -> None:
    """A member of another array is never touched, and neither is an array that stands on anything else."""
    for member in step.members:
        uuid = superblock_uuid(member)
        if uuid not in ("", step.uuid):
            raise Stopped(f"{member} carries the superblock of another array, UUID {uuid}")
    for name in arrays_above(step.members):
        if not slaves(name) <= _names(step.members):
            raise Stopped(f"/dev/{name} stands on other drives as well: {', '.join(sorted(slaves(name)))}")


def _stop_if_ours(name: str, step: MakeArray) -> None:
    uuids = {superblock_uuid(f"/dev/{each}") for each in slaves(name)}
    if uuids != {step.uuid}:
        raise Stopped(f"/dev/{name} is another array, and stands on members of this one")
    do("mdadm", "--stop", f"/dev/{name}")


def _stop_where_something_lies(members: Sequence[str]) -> None:
    """`mdadm --create --run` asks nobody about what it overwrites."""
    for member in members:
        folder = kernel_folder(member)
        if folder is None:
            raise Stopped(f"{member} is no block device")
        said = ask("blkid", "-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE", member)
        if said.code not in (0, 2):  # blkid(8): 2 is nothing; 8 is more than one thing
            raise Stopped(f"blkid cannot tell what {member} holds: {said.last_words or said.code}")
        if said.output.strip():
            raise Stopped(
                f"{member} holds {', '.join(said.output.split())}; it is not made a member over that"
            )


def _names(devices: Sequence[str]) -> set[str]:
    return {folder.name for each in devices if (folder := kernel_folder(each)) is not None}


def slaves(name: str) -> set[str]:
    """Return the kernel's names of the members that an array stands on."""
    return {each.name for each in Path("/sys/block", name, "slaves").glob("*")}


def attribute(name: str, word: str) -> str:
    """Return what the kernel says in a file of the array's folder md; "" where there is none."""
    try:
        return Path("/sys/block", name, "md", word).read_text().strip()
    except OSError:
        return ""
