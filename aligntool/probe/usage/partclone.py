"""Used blocks as partclone maps them for ddrescue.

In: the path of a device that holds one file system from end to end. Out: its used runs. Alone because of what the map
means: "+" is used, "?" is free, anything else is taken for used, and the lines must cover the file system without a
hole. Format: GNU ddrescue manual, "Mapfile structure".
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from aligntool.probe.programs import ask, find_program
from aligntool.probe.usage.used_map import NoMap
from aligntool.units import Extent

PATIENCE_S = 1800.0
FREE = "?"

# kind -> program. Each of them passed the test that copies the mapped runs alone and compares every file. Not here is
# partclone.f2fs: it could be tried on what mkfs.f2fs and sload.f2fs write, and not on what a kernel has written.
PROGRAMS = {
    "xfs": "partclone.xfs",
    "btrfs": "partclone.btrfs",
    "ntfs": "partclone.ntfs",
    "exfat": "partclone.exfat",
}


def read_partclone(program: str, device: str) -> tuple[tuple[Extent, ...], int]:
    """The used runs, and how many bytes the map covers; both from the device's start. Raises NoMap.

    It is not forced: a file system that is mounted or not clean makes partclone fail, and that is right.
    """
    if find_program(program) is None:
        raise NoMap(f"{program} is not installed")
    with TemporaryDirectory(prefix="aligntool-") as folder:
        target, log = Path(folder, "map"), Path(folder, "log")
        words = ("-D", "-q", "-B", "-s", device, "-o", str(target), "-L", str(log))
        answer = ask(program, *words, limit_s=PATIENCE_S, leashed=True)
        if answer.code != 0:
            raise NoMap(f"{program} failed: {answer.last_words}")
        try:
            return used_of(target.read_text(encoding="ascii"))
        except (OSError, UnicodeDecodeError) as error:
            raise NoMap(f"{program} left no map: {error}") from error


def used_of(text: str) -> tuple[tuple[Extent, ...], int]:
    """The used runs of a mapfile and where it ends. Raises NoMap when it has a hole or a line that makes no sense."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    used, at = [], 0
    for words in lines[1:]:  # the first one says where the reading stands
        try:
            position, size, status = words
            run = Extent(int(position, 16), int(size, 16))
        except ValueError as error:
            raise NoMap(f"a line of its map makes no sense: {' '.join(words)}") from error
        if run.start != at or run.length <= 0:
            raise NoMap(f"its map has a hole or an overlap at byte {at}")
        if status != FREE:
            used.append(run)
        at = run.end
    if not used:
        raise NoMap("its map calls nothing used")
    return tuple(used), at
