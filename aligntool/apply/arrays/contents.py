"""A file system made where the plan wants one, or found there already.

In: a MakeFileSystem step. Out: a file system of that kind and UUID. Alone because making one destroys what was there:
it is done only on a device that nobody uses, and, once the work had stopped, only where nobody can have used it since.
"""

import os
from collections.abc import Iterator

from aligntool.apply.arrays.nodes import kernel_folder, settle
from aligntool.apply.arrays.running import do
from aligntool.apply.arrays.site import Site
from aligntool.apply.arrays.untouched import is_there, shown_on, was_never_mounted
from aligntool.errors import Stopped
from aligntool.plan import MakeFileSystem, Said


def make_file_system(step: MakeFileSystem, site: Site, *, new: bool) -> Iterator[Said]:
    """`new`: the device was made by this very run, so that whatever shows on it is left over from before.

    Raises Stopped: the device is not there or in use, holds what somebody may need, or the program failed.
    """
    settle()
    if kernel_folder(step.device) is None:
        raise Stopped(f"{step.device} is no block device")
    size = _exclusively(step.device)
    if is_there(step):
        problem = site.problem_of(step.device, size, step.kind)
        if problem is None:
            yield Said(f"{step.device} has its {step.kind} already")
            return
        _stop_if_used(step, problem)
        yield Said(f"made again: {problem}")
    elif not new and (shown := shown_on(step.device)):
        raise Stopped(
            f"{step.device} holds {shown}, which was not there when the work stopped, or is left over from before; "
            f"nothing was written over it: sudo blkid -p {step.device}"
        )
    do(*step.command)
    _flush(step.device)
    settle()
    if not is_there(step):
        raise Stopped(f"{step.device} does not hold {step.kind} {step.uuid} after {step.command[0]}")


def _stop_if_used(step: MakeFileSystem, problem: str) -> None:
    """A file system that was finished and is not whole may have been mounted, and hold files."""
    if not was_never_mounted(step.device, step.kind):
        raise Stopped(
            f"{problem}; it may have been used since, so it is not made again: repair {step.device} with its own tool"
        )


def remove_file_system(step: MakeFileSystem) -> Iterator[Said]:
    """Nothing recognises it any more; only if it is the one of the plan. Raises Stopped where it is in use."""
    if kernel_folder(step.device) is None or not is_there(step):
        return
    _exclusively(step.device)
    do("wipefs", "--all", "--quiet", step.device)
    settle()
    yield Said(f"the {step.kind} on {step.device} is gone")


def _exclusively(device: str) -> int:
    """Its size in bytes. Raises Stopped where it is mounted, or anything stands on it."""
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise Stopped(f"{device} is in use or cannot be opened: {error.strerror}") from error
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _flush(device: str) -> None:
    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
