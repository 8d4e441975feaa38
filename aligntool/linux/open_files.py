"""Find the processes that have a file open."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aligntool.linux.device_numbers import identity
from aligntool.linux.same_bytes import backings_of
from aligntool.linux.sysfs import live_paths


def openers(path: Path) -> Iterator[int]:
    """Yield the processes that have a file open, not those that only hold its name (O_PATH)."""
    place = path.resolve()
    for link in live_paths(Path("/proc"), "[0-9]*/fd/*"):
        with suppress(OSError):
            # by name: a stat may hang if the file of another process is on a dead server
            if link.readlink() == place:
                flags = (
                    (link.parent.with_name("fdinfo") / link.name).read_text().split("flags:\t")[1].split()[0]
                )
                if not int(flags, 8) & os.O_PATH:
                    yield int(link.parts[2])


def writers_below(status: os.stat_result) -> Iterator[tuple[str, int]]:
    """Yield each file that a loop device shows, and the processes that have it open for writing: what they
    write goes past the lock on the device. Only root sees those of other users.
    """
    files = {backing: name for backing, name in backings_of(status.st_rdev) if backing[0]}
    numbers = {inode for _, inode in files}
    for link in live_paths(Path("/proc"), "[0-9]*/fdinfo/*") if files else ():
        with suppress(OSError, KeyError, ValueError):
            fields = dict(line.split(":\t", 1) for line in link.read_text().splitlines() if ":\t" in line)
            # The number first: to ask for the status of any other file may hang, if its server is dead.
            if int(fields["ino"]) in numbers and int(fields["flags"], 8) & os.O_ACCMODE != os.O_RDONLY:
                yield (
                    files[identity(link.parent.with_name("fd").joinpath(link.name).stat())],
                    int(link.parts[2]),
                )
