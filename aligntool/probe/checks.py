"""Asking a file system's own checker whether it is whole. Nothing is repaired and nothing written.

In: a disk or an image, a partition's place, the kind of what lies there. Out: whole, not whole with the checker's last
words, or not checked with the reason. Alone because each checker has its own words for "only look" and its own ideas of
what is worth a complaint.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from aligntool.probe.loops import NoLoop, fresh_reader, read_only_loop
from aligntool.probe.programs import NOT_RUN, Answer, ask, find_program
from aligntool.units import Extent

EXT = ("ext2", "ext3", "ext4")
E2FSCK = ("e2fsck", "-f", "-n")
CHECKERS = {
    "xfs": ("xfs_repair", "-n"),
    "btrfs": ("btrfs", "check", "--readonly"),
    "ntfs": (
        "ntfsresize",
        "--info",
        "--bad-sectors",
        "--no-progress-bar",
    ),  # counts every cluster; ntfsfix does not
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
                answer = ask(*words, f"{Path(path).absolute()}?offset={extent.start}")
        else:
            with read_only_loop(path, extent) as device:
                answer = ask(*words, device, leashed=True)
    except NoLoop as reason:
        return CheckResult(False, None, str(reason))
    except OSError as error:
        return CheckResult(False, None, f"{path}: {error.strerror}")
    return _result(kind, words[0], answer)


def _result(kind: str, program: str, answer: Answer) -> CheckResult:
    if answer.code == NOT_RUN:
        return CheckResult(False, None, answer.errors)
    text = f"{answer.output}\n{answer.errors}"
    if answer.code == 0 and not ALARMS.search(text):
        return CheckResult(True, None, program)
    if kind == "vfat" and answer.code == 1 and _is_harmless(text):
        return CheckResult(True, None, program)
    return CheckResult(True, f"{program} finds the {kind} not whole: {answer.last_words}", program)


def _is_harmless(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines()]
    return all(HARMLESS.match(line) for line in lines if line)
