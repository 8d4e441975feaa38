"""Look into partitions: sampled digests, holes, file system checks."""

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aligntool.formats.reader import Reader
from aligntool.inventory import Sampled
from aligntool.linux.loops import NoLoop, fresh_reader, read_only_loop
from aligntool.linux.process import NOT_RUN, Ended, find_program, run_program
from aligntool.units import KIB, Extent, align_down

# Asking a file system's own checker whether it is whole. Nothing is repaired and nothing written. Each checker has
# its own words for "only look" and its own ideas of what is worth a complaint.

EXT = ("ext2", "ext3", "ext4")
E2FSCK = ("e2fsck", "-f", "-n")
CHECKERS = {
    "xfs": ("xfs_repair", "-n"),
    "btrfs": ("btrfs", "check", "--readonly"),
    "ntfs": ("ntfsresize", "--info", "--bad-sectors", "--no-progress-bar"),  # counts every cluster; ntfsfix does not
    "vfat": ("fsck.fat", "-n"),
    "exfat": ("fsck.exfat", "-n"),
    "f2fs": ("fsck.f2fs", "--dry-run"),
}
# What some say although they end with 0: xfs_repair of a log that it leaves out, fsck.f2fs of each test that failed.
ALARMS = re.compile(r"^ALERT:|\[Fail\]", re.MULTILINE)
# What fsck.fat ends with 1 for and no system minds: a stale count of free clusters, a copy of the boot sector that
# differs (Windows and partition tools patch the first one alone).
HARMLESS = re.compile(
    r"fsck\.fat |Free cluster summary |Auto-correcting|There are differences between boot sector and its backup"
    r"|This is mostly harmless|[0-9:, /a-f]+$|Not automatically fixing this|Leaving filesystem unchanged"
    r"|.*: \d+ files, \d+/\d+ clusters$"
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`problem` None and `checked`: it is whole. Not `checked`: nobody looked, and `by` says why."""

    checked: bool
    problem: str | None  # a sentence with the checker's last words
    by: str  # "e2fsck"; or the reason: "xfs_repair is not installed", "needs root"


def check_content(path: str, extent: Extent, kind: str) -> CheckResult:
    """The file system of this kind at `extent` of the disk or image `path`; nothing may have it mounted.

    It takes as long as the checker does: minutes for a full disk. Without root only ext2, ext3 and ext4 in an image are
    checked, for e2fsck alone finds a file system inside a file.
    """
    words = E2FSCK if kind in EXT else CHECKERS.get(kind)
    if words is None:
        return CheckResult(False, None, f"no checker for {kind}")
    if find_program(words[0]) is None:
        return CheckResult(False, None, f"{words[0]} is not installed")
    try:
        if kind in EXT and "?" not in path:
            with fresh_reader(path):  # for what it does to the cache
                answer = run_program(*words, f"{Path(path).absolute()}?offset={extent.start}", only_reads=True)
        else:
            with read_only_loop(path, extent) as device:
                answer = run_program(*words, device, only_reads=True)
    except NoLoop as reason:
        return CheckResult(False, None, str(reason))
    except OSError as error:
        return CheckResult(False, None, f"{path}: {error.strerror}")
    return _result(kind, words[0], answer)


def _result(kind: str, program: str, answer: Ended) -> CheckResult:
    if answer.code == NOT_RUN:
        return CheckResult(False, None, answer.errors)
    text = f"{answer.output}\n{answer.errors}"
    if answer.code == 0 and not ALARMS.search(text):
        return CheckResult(True, None, program)
    if kind == "vfat" and answer.code == 1 and _is_harmless(text):
        return CheckResult(True, None, program)
    return CheckResult(True, f"{program} finds the {kind} not whole: {answer.last_lines}", program)


def _is_harmless(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines()]
    return all(HARMLESS.match(line) for line in lines if line)


# How much of a file was never written. Reading a hole measures no drive, and no other fact shows it.

_MOST = 100_000  # holes that are counted; what comes after them is taken to be like the rest


def hole_share(path: str, span: int) -> float | None:
    """Of the first `span` bytes, from 0 to 1 (lseek(2), SEEK_DATA and SEEK_HOLE). None: not known.

    Blocks that were only set aside, as by fallocate, are holes to most file systems; one that knows no holes calls
    everything data.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _share(descriptor, min(span, os.fstat(descriptor).st_size))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _share(descriptor: int, span: int) -> float | None:
    at = holes = 0
    for _ in range(_MOST):
        if at >= span:
            break
        try:
            data = min(os.lseek(descriptor, at, os.SEEK_DATA), span)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing but a hole up to the end
                raise
            data = span
        holes += data - at
        at = min(os.lseek(descriptor, data, os.SEEK_HOLE), span) if data < span else span
    return holes / at if at else None


# Whether anything was ever written where an array is to lie: a few places of a drive or a partition, read. It is the
# only look that asks for data as such: everything else is looked for by its own signature, and what has none (plain
# dm-crypt, a raw database, a hidden volume) is found by nothing but this.

EDGE = 128 * KIB  # at either end, read as one place
PLACE = 4 * KIB
SPREAD = 100  # places, evenly over the whole


def sample(path: str, extent: Extent, beside: Sequence[int] = ()) -> Sampled:
    """`beside`: bytes of the disk where something else than chance may have put data. The same places every time."""
    places = tuple(_places(extent, beside))
    try:
        with fresh_reader(path) as reader:
            pieces = [_read(reader, place) for place in places]
    except OSError:
        pieces = [None] * len(places)
    return Sampled(
        places=len(places),
        written=sum(piece is not None and not _is_blank(piece) for piece in pieces),
        unreadable=pieces.count(None),
        digest=hashlib.sha256(b"".join(piece or b"?" for piece in pieces)).hexdigest(),
    )


def _places(extent: Extent, beside: Sequence[int]) -> Iterator[Extent]:
    edge = min(EDGE, extent.length)
    wanted = [Extent(extent.start, edge), Extent(extent.end - edge, edge)]
    starts = [extent.start + extent.length * (2 * index + 1) // (2 * SPREAD) for index in range(SPREAD)]
    wanted += [Extent(align_down(at, PLACE), PLACE) for at in (*beside, *starts)]
    yield from dict.fromkeys(each for each in wanted if each.start >= extent.start and each.end <= extent.end)


def _read(reader: Reader, place: Extent) -> bytes | None:
    """None: the drive cannot give it."""
    try:
        found = reader.read(place.start, place.length)
    except OSError:
        return None
    return found if len(found) == place.length else None


def _is_blank(piece: bytes) -> bool:
    """As a drive answers for what was never written, or was discarded: zeros, or ones throughout."""
    blocks = (piece[at : at + PLACE] for at in range(0, len(piece), PLACE))
    return all(block.count(block[:1]) == len(block) and block[:1] in (b"\x00", b"\xff") for block in blocks)
