"""What an experiment of `aligntool bench` works on: a file that is made, or something that is there.

In: a target, a size. Out: a path, the bytes of the disk behind it, whether it may be written to; inside a `with`. Alone
because starts and spans count from the disk's first byte, whatever the path is.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aligntool.errors import Refused
from aligntool.units import Extent

if TYPE_CHECKING:
    from aligntool.apply.sweep import Tell
    from aligntool.bench.conditions import Conditions
    from aligntool.bench.experiments import Setting
    from aligntool.bench.inference_file import Probed
    from aligntool.bench.schedule import Target
    from aligntool.inventory import Disk


@dataclass(frozen=True, slots=True)
class Working:
    """`room`: bytes of the disk; `shift`: the byte of the disk where the file or device begins."""

    path: str
    disk: str  # to be looked at
    size: int  # bytes, of the file or device
    room: Extent
    shift: int
    writes: bool
    seen: "Conditions"  # before the first run


@contextmanager
def working_on(
    target: "Target", size: int, tell: "Tell", *, destructive: bool, yes: bool
) -> Iterator[Working]:
    """A folder gets a file of `size`, full of random data. Raises Refused."""
    from aligntool.bench.schedule import TargetKind

    if not target.direct:
        raise Refused(
            f"{target.named} cannot be had past the page cache, so its rates would be the memory's",
            hint="name a disk, or a folder on a file system with direct I/O",
        )
    if destructive and target.kind is not TargetKind.DEVICE:
        raise Refused(
            f"--destructive is for devices, and {target.named} is a {target.kind}",
            hint="in a folder writes are measured anyway, in a file of their own",
        )
    seen = _look_at_conditions(target, size)
    match target.kind:
        case TargetKind.FOLDER:
            with _file_in(target, size, tell, seen) as working:
                yield working
        case TargetKind.FILE:
            size = target.size or 0
            yield Working(target.path, target.path, size, Extent(0, size), 0, False, seen)
        case TargetKind.DEVICE:
            with _device(target, seen, destructive=destructive, yes=yes) as working:
                yield working


def _look_at_conditions(target: "Target", size: int) -> "Conditions":
    """What is already known to spoil it is said."""
    from aligntool.bench.conditions import warnings_of
    from aligntool.probe.conditions import look_at_conditions
    from aligntool.render.lines import harmless

    seen = look_at_conditions(target, target.size or size)
    for sentence in warnings_of(seen, direct=target.direct):
        print(f"warning: {harmless(sentence)}", file=sys.stderr)
    return seen


def conditions_after(working: Working, fio_version: str) -> "Conditions":
    """For the result: how warm it got, and by which fio."""
    from dataclasses import replace

    from aligntool.probe.conditions import warmed

    return replace(warmed(working.seen), fio=fio_version)


@contextmanager
def _file_in(target: "Target", size: int, tell: "Tell", seen: "Conditions") -> Iterator[Working]:
    """The longest piece of the file that lies on the disk in one run is worked on."""
    from aligntool.apply.bench_file import made_file
    from aligntool.apply.extents import file_extents
    from aligntool.bench.conditions import room_words

    words = room_words(size, target.free) if target.free is not None else ""
    if words:
        raise Refused(f"there is too little room in {target.path}: {words}", hint="--size with less")
    with made_file(target.path, size, name=target.name) as path:
        _fill(path, size, tell)
        with open(path, "rb") as file:  # noqa: PTH123 - a descriptor is wanted
            placed = file_extents(file.fileno(), path)
        longest = max(placed.runs, key=lambda run: run.disk.length)
        shift = longest.disk.start - longest.file_start
        working = Working(path, placed.disk, size, longest.disk, shift, True, seen)
        _say_piece(working)
        yield working


def _fill(path: str, size: int, tell: "Tell") -> None:
    import time

    from aligntool.apply.fio import run_job
    from aligntool.bench.jobs import fill_job

    began = time.monotonic()

    def told(share: float) -> None:
        spent = time.monotonic() - began
        tell("filling the file with random data", share, spent / share - spent if share > 0.02 else None)

    run_job(fill_job(path, size), tell=told)


def setting_of(target: "Target", working: Working, runtime_s: float, repeats: int) -> "Setting":
    from aligntool.bench.experiments import Setting
    from aligntool.bench.jobs import ENGINE

    kind, piece = target.kind.value, working.room.length
    return Setting(kind, working.size, piece, runtime_s, repeats, target.direct, ENGINE)


def _say_piece(working: Working) -> None:
    from aligntool.bench.experiments import Setting, piece_words

    setting = Setting("folder", working.size, working.room.length, 0, 0, True, "")
    for sentence in piece_words(setting):
        print(f"warning: {sentence}", file=sys.stderr)


@contextmanager
def _device(target: "Target", seen: "Conditions", *, destructive: bool, yes: bool) -> Iterator[Working]:
    from aligntool.apply.bench_hold import held_device
    from aligntool.apply.extents import disk_of

    name, start = disk_of(os.stat(target.path).st_rdev)  # noqa: PTH116 - its number is wanted
    size = target.size or 0
    working = Working(target.path, name, size, Extent(start, size), start, destructive, seen)
    if not destructive:
        yield working
        return
    from aligntool.cli.confirm import confirm_disk

    confirm_disk(target.path, refuse_data(target), "its name", yes)
    with held_device(target.path):
        refuse_data(target)
        yield working


def refuse_data(target: "Target") -> str:
    """The name of the device, which holds nothing. Raises Refused."""
    from pathlib import Path

    from aligntool.bench.refusals import refuse_destruction
    from aligntool.cli.planning import refuse_in_flight
    from aligntool.probe.look import look

    disk = look((target.path,)).disks[0]
    refuse_in_flight(disk.path)
    name = Path(target.path).resolve().name
    if name == disk.name.rpartition("/")[2]:
        refuse_destruction(disk, None)
    else:
        part = next((part for part in disk.partitions if (part.node or "").rpartition("/")[2] == name), None)
        if part is None:
            raise Refused(f"{target.path} is a part of {disk.path}, and is not in its partition table")
        refuse_destruction(disk, part)
    return name


def look_at_disk(name: str) -> "Disk | None":
    """For what is told beside the figures; None: nobody could look, which spoils nothing."""
    from aligntool.probe.look import look

    try:
        return look((name,), known=False).disks[0]
    except Refused:
        return None


def identity_of(disk: "Disk | None") -> "Probed | None":
    """For a reader who asks whether it is the same disk."""
    from aligntool.cli.measuring import identity

    return identity(disk) if disk else None
