"""A test array: made, found, taken away again, and told from every other array.

In: what the sweep says. Out: a device that is the array and nothing else. Alone because here superblocks are zeroed:
only those whose name and UUID are a test array's.
"""

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aligntool.apply.arrays.nodes import settle
from aligntool.apply.arrays.running import Said, ask, export_values
from aligntool.apply.occupants import sysfs_folder
from aligntool.errors import Refused, Stopped
from aligntool.plan import MakeArray
from aligntool.raid.tuning_marks import TEST_NAME, TEST_UUID

_PATIENCE_S = 20.0
_PAUSE_S = 0.2
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """What takes a test array away is not interrupted; a Ctrl-C meanwhile counts afterwards.

    By handlers: a mask is a thread's own, and the kernel would hand the signal to the thread that draws the bar.
    """
    came: list[int] = []
    before = {}
    try:
        for one in _STOPPING:
            before[one] = signal.signal(one, lambda number, frame: came.append(number))
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def locked(disks: Sequence[str]) -> Iterator[None]:
    """udev keeps away from a whole disk that is locked (systemd, "Locking Block Device Access"). Otherwise it would see
    the superblocks of an array that has just been stopped, and start it again. Raises Refused.
    """
    with ExitStack() as stack:
        for path in dict.fromkeys(disks):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Refused(
                    f"{path} cannot be locked: {error.strerror}", hint=f"sudo fuser -v {path}"
                ) from error
        yield


@contextmanager
def alone(members: Sequence[str]) -> Iterator[None]:
    """Nobody else mounts them or makes anything of them meanwhile (open(2), O_EXCL on a block device): a load that is
    made on a member itself would not mind. Raises Refused where somebody has one.
    """
    with ExitStack() as stack:
        for device in members:
            try:
                descriptor = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NOCTTY)
                stack.callback(os.close, descriptor)
            except OSError as error:
                why = "is in use" if error.errno == errno.EBUSY else f"cannot be opened: {error.strerror}"
                raise Refused(
                    f"{device} {why}; nothing was written", hint=f"sudo fuser -v {device}"
                ) from error
        yield


def make_array(step: MakeArray) -> str:
    """The node of the array that now runs; only an array of the step's UUID is ever returned. Raises Stopped."""
    said = ask(*step.command)
    if said.code:
        raise Stopped(f"mdadm made no array: {said.last_words}", hint="")
    settle()
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = [node for node, values in running_arrays() if values.get("MD_UUID") == step.uuid]
        if len(found) == 1 and _is_block(found[0]):
            return found[0]
        if time.monotonic() > deadline:
            raise Stopped(
                f"mdadm made {step.device}, and no array of UUID {step.uuid} runs",
                hint=clear_hint(step.members),
            )
        time.sleep(_PAUSE_S)


def running_arrays() -> Iterator[tuple[str, dict[str, str]]]:
    """Every array that the kernel has, also one that is not started, with what mdadm says of it."""
    for folder in sorted(Path("/sys/block").glob("md*/md")):
        node = f"/dev/{folder.parent.name}"
        if _is_block(node):
            yield node, export_values(ask("mdadm", "--detail", "--export", node).output)


def is_test(values: dict[str, str]) -> bool:
    """By name and UUID both, as `mdadm --examine --export` and `--detail --export` tell them."""
    name = values.get("MD_NAME", "").rpartition(":")[2]
    return name == TEST_NAME and values.get("MD_UUID", "").startswith(TEST_UUID)


def examine(device: str) -> dict[str, str]:
    """What md's superblock on it says; empty: there is none."""
    return export_values(ask("mdadm", "--examine", "--export", device).output)


def take_away(members: Sequence[str]) -> None:
    """No test array runs on these members, and none of them has a test array's superblock. Others are left alone.

    Raises Stopped with what is left.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        left = _once(members)
        if not left:
            return
        if time.monotonic() > deadline:
            raise Stopped(f"a test array is still there: {'; '.join(left)}", hint=clear_hint(members))
        time.sleep(_PAUSE_S)


def _once(members: Sequence[str]) -> list[str]:
    left = [f"{node}: {said.last_words}" for node, said in _stopped(members) if said.code]
    for device in members:
        if not is_test(examine(device)):
            continue
        said = ask("mdadm", "--zero-superblock", device)
        if said.code or is_test(examine(device)):
            left.append(f"{device}: {said.last_words}")
    return left


def _stopped(members: Sequence[str]) -> Iterator[tuple[str, Said]]:
    """Test arrays that stand on one of the members."""
    holders = {holder for device in members for holder in _holders(device)}
    for node, values in running_arrays():
        if Path(node).name in holders and is_test(values):
            yield node, ask("mdadm", "--stop", node)


def _holders(device: str) -> list[str]:
    """None of a member that is gone: an array is found by those that are there."""
    try:
        folder = sysfs_folder(Path(device).stat().st_rdev) / "holders"
        return [path.name for path in folder.glob("*")]
    except OSError:
        return []


def _is_block(path: str) -> bool:
    try:
        return stat.S_ISBLK(Path(path).stat().st_mode)
    except OSError:
        return False


def clear_hint(members: Sequence[str]) -> str:
    return f"sudo aligntool raid tune --clear {' '.join(members)}"
