"""Synchronise a new array without md's limit."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aligntool.change import Progress, Said
from aligntool.commands import typed
from aligntool.errors import Stopped, failing_as
from aligntool.linux.programs import run_or_stop
from aligntool.raid.first_sync import SYNC_LIFTED
from aligntool.raid.steps_md import attribute, find_running
from aligntool.raid.steps_reformat import wait_until_idle
from aligntool.steps import MakeArray

_PATIENCE_S = 10.0  # until md begins
_PAUSE_S = 0.1
_AS_THE_SYSTEM = "system"  # Documentation/admin-guide/md.rst, sync_speed_max: the limit of all arrays


def synchronise(made: MakeArray, index: int) -> Iterator[Said | Progress]:
    """Wait until the array is in sync, without md's limit meanwhile; md still gives way to other requests.
    The limit is restored in any case, also when the wait ends early; a reboot restores it, too.

    Raises Stopped.
    """
    name = find_running(made)
    if name is None:
        raise Stopped(f"{made.device} does not run", hint=typed("mdadm --detail", made.device))
    if attribute(name, "array_state") == "read-auto":  # after a reboot, until something is written
        run_or_stop("mdadm", "--readwrite", f"/dev/{name}")
    with failing_as(Stopped, f"{made.device}: md's limit cannot be changed"):
        _set_limit(name, str(SYNC_LIFTED))
    try:
        yield from _wait_until_in_sync(made, name, index)
    finally:
        restore_limit(made)
    yield Said(f"{made.device} is in sync, and md's limit is restored")


def _wait_until_in_sync(made: MakeArray, name: str, index: int) -> Iterator[Progress]:
    deadline = time.monotonic() + _PATIENCE_S
    while attribute(name, "degraded") != "0" or attribute(name, "resync_start") != "none":
        for progress in wait_until_idle(name, index):
            deadline = time.monotonic() + _PATIENCE_S
            yield progress
        if time.monotonic() > deadline:
            look = f"{typed('mdadm --detail', made.device)}; sudo dmesg"
            raise Stopped(f"md does not synchronise {made.device}", hint=look)
        time.sleep(_PAUSE_S)


def restore_limit(made: MakeArray) -> None:
    """Restore md's limit, if the array runs."""
    name = find_running(made)
    if name is not None:
        with suppress(OSError):
            _set_limit(name, _AS_THE_SYSTEM)


def _set_limit(name: str, word: str) -> None:
    Path("/sys/block", name, "md/sync_speed_max").write_text(word)
