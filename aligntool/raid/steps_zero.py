"""Zero the members of a new array, and prove that they read as zeros."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from aligntool.change import Progress, Said
from aligntool.errors import Stopped, failing_as
from aligntool.formats.identify import deallocates_zeroed
from aligntool.inventory import Disk
from aligntool.linux.commands import identify_namespace
from aligntool.linux.content import dense_places, find_nonzero
from aligntool.linux.programs import run_program
from aligntool.linux.sysfs import opened
from aligntool.raid.commands import zero_command
from aligntool.raid.first_sync import Zeroing, area_of_data, is_read_whole, read_back_words
from aligntool.raid.steps_drives import lock_members, stop_unless_in_place, wait_for_members
from aligntool.raid.steps_md import read_kernel_file
from aligntool.steps import MakeArray, MakeMember
from aligntool.units import GIB, MIB, Extent, format_about

_PIECE = 16 * GIB  # of each member, zeroed or read back at once
_READ = MIB
_HINT = "sudo aligntool rollback\nthe same command then makes it without --zero-members"


def read_zeroing(disk: Disk) -> Zeroing:
    """Return how a drive can be zeroed."""
    longest = read_kernel_file(Path("/sys/block", disk.name, "queue/write_zeroes_max_bytes"))
    namespace = b""
    with suppress(OSError), opened(disk.path) as descriptor:
        namespace = identify_namespace(descriptor, None) or b""
    return Zeroing(int(longest) if longest.isdigit() else None, deallocates_zeroed(namespace))


def zero_members(step: MakeArray, index: int, members: Sequence[MakeMember]) -> Iterator[Said | Progress]:
    """Zero the data areas of all members, and read them back. `index`: of the step.

    The members are locked meanwhile. Each is read again before: only one that is still blank is zeroed.
    Raises Stopped.
    """
    whole = is_read_whole(step.level)
    area = area_of_data(step)
    pieces = [Extent(at, min(_PIECE, area.end - at)) for at in range(area.start, area.end, _PIECE)]
    total = area.length * len(members) * (2 if whole else 1)
    done = 0
    _stop_unless_empty_drives(step, members)
    with lock_members(members), ThreadPoolExecutor(len(members)) as pool:
        for member in members:
            stop_unless_in_place(member, step.data, blank=True)
        for piece in pieces:
            _for_each(pool, _zero, step.members, piece)
            done += piece.length * len(members)
            yield Progress(index, done, total)
        _for_each(pool, _flush, step.members)
        for piece in pieces:
            _for_each(pool, _stop_unless_zeros, step.members, _read_places(piece, whole=whole))
            done += piece.length * len(members) if whole else 0
            yield Progress(index, done, total)
    read = read_back_words(step.level)
    yield Said(f"{format_about(area.length)} of each member are zeroed, and {read} read as zeros")
    wait_for_members(members)


def _stop_unless_empty_drives(step: MakeArray, members: Sequence[MakeMember]) -> None:
    """Raise Stopped for a plan that would zero anything but a known area of members that were blank."""
    same = tuple(member.device for member in members) == step.members
    if not same or step.data.length is None or any(member.wipe for member in members):
        raise Stopped(f"members of {step.device} may hold data, so none is zeroed", hint=_HINT)


def _read_places(piece: Extent, *, whole: bool) -> tuple[Extent, ...]:
    if not whole:
        return dense_places(piece)
    return tuple(Extent(at, min(_READ, piece.end - at)) for at in range(piece.start, piece.end, _READ))


def _for_each(
    pool: ThreadPoolExecutor, work: Callable[..., None], devices: Sequence[str], *words: object
) -> None:
    """Do the work on all devices at once. Raises what one of them raises, after all have ended."""
    futures = [pool.submit(work, device, *words) for device in devices]
    wait(futures)
    for future in futures:
        future.result()


def _zero(device: str, piece: Extent) -> None:
    ended = run_program(*zero_command(device, piece))
    if ended.code:
        raise Stopped(f"{device} was not zeroed: {ended.output_tail or ended.code}", hint=_HINT)


def _flush(device: str) -> None:
    with failing_as(Stopped, device), opened(device, os.O_RDWR) as descriptor:
        os.fsync(descriptor)


def _stop_unless_zeros(device: str, places: Sequence[Extent]) -> None:
    with failing_as(Stopped, device):
        wrong = find_nonzero(device, places)
    if wrong is not None:
        text = f"{device} does not read as zeros at byte {wrong.start}, although its drive zeroed it"
        raise Stopped(text, hint=_HINT)
