"""A device taken for a benchmark that writes to it, and given back.

In: its path. Out: nothing, inside a `with`. Alone because the device may be a partition, which no other part of
aligntool writes to as a whole.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from aligntool.apply.awake import awake
from aligntool.apply.occupants import occupants
from aligntool.errors import Refused


@contextmanager
def held_device(path: str) -> Iterator[None]:
    """Opened exclusively: nothing that is mounted or stacked, and nothing may be from now on; locked, so that udev does
    not look at it meanwhile. Raises Refused.
    """
    with ExitStack() as stack:
        try:
            status = os.stat(path)  # noqa: PTH116 - the same call as the fstat below
            if not stat.S_ISBLK(status.st_mode):
                raise Refused(f"{path} is no block device")
            found = occupants(status)
            if found:
                reasons = "; ".join(one.what for one in found)
                raise Refused(f"{path} is in use: {reasons}", hint=" && ".join(one.end for one in found))
            descriptor = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOCTTY)
            stack.callback(os.close, descriptor)
            if not os.path.samestat(status, os.fstat(descriptor)):
                raise Refused(f"{path} became another device while it was opened", hint="try again")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = (
                "type the same after sudo" if isinstance(error, PermissionError) else f"sudo fuser -v {path}"
            )
            raise Refused(f"{path} cannot be had for itself: {error.strerror}", hint=hint) from error
        stack.enter_context(awake(f"a benchmark of {path}"))
        yield
