"""Lock the disk of a move, and open the file of its journal."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial

from aligntool.audit.wording import hints_for_disk, shell_word
from aligntool.change import Plan, Waiting
from aligntool.linux.block import DiskDevice, Limited, limited
from aligntool.linux.child_process import STALL_S, OnNote
from aligntool.linux.lock import lock_disk
from aligntool.linux.targets import raw_copy
from aligntool.mover.context import MoveContext
from aligntool.mover.journal import open_journal


@contextmanager
def locked_disk(
    plan: Plan,
    path: str,
    *,
    on_note: OnNote,
    journal_file: str | None,
    new_journal: int | None = None,
    rate: int | None,
    no_lease: bool = False,
) -> Iterator[MoveContext]:
    """Lock the disk, and open the file of its journal if there is one. `new_journal`: bytes of a journal file
    to make. `rate`: bytes per second at most. `no_lease`: see `Lease`. `on_note`: called with each sentence
    that the user should know.

    `path`: the present path of the disk, which may differ from the path in the plan.

    Raises Refused.
    """
    locking = lock_disk(path, image_sector_size=plan.disk.sector_size, keep_posix=True, no_lease=no_lease)
    with hints_for_disk(path, raw_copy(path)), locking as locked:
        for note in locked.notes:
            on_note(note)
        device = limited(locked.device, rate)
        opened = open_journal(journal_file, length=new_journal) if journal_file else nullcontext()
        with opened as journal:
            devices = {path: locked.device} | ({journal_file: journal} if journal_file and journal else {})
            unanswered = partial(_unanswered, devices)
            held = locked.lease.held
            room_for = locked.device.room_for
            yield MoveContext(device, locked.kernel, journal, unanswered, held, room_for)


def _unanswered(devices: Mapping[str, DiskDevice]) -> Waiting | None:
    """Return the request that has waited longest, if it has waited too long."""
    (seconds, request), path = max((device.unanswered(), path) for path, device in devices.items())
    return Waiting(path, request, int(seconds)) if seconds >= STALL_S else None


def unthrottle_function(context: MoveContext) -> Callable[[], None]:
    """Return the function that makes a device with a limited rate stop waiting."""
    device = context.device
    return device.stop_throttling if isinstance(device, Limited) else lambda: None


def journal_options(file: str | None) -> list[str]:
    return [f"--journal {shell_word(file)}"] if file else []
