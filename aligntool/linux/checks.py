"""Check a file system with its own checker."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import Kind
from aligntool.linux.confined import run_confined
from aligntool.linux.content import open_medium
from aligntool.linux.file_reader import fresh_reader
from aligntool.linux.held import held
from aligntool.linux.loops import NoLoop, read_only_loop
from aligntool.linux.programs import NOT_RUN, ProgramResult, find_program
from aligntool.linux.sysfs import opened
from aligntool.units import Extent

# Nothing is repaired and nothing is written. Each checker has its own option for a check without repair, and
# reports errors in its own way.

# Errors that some checkers print although they exit with 0: xfs_repair for a log that it ignores, fsck.f2fs
# for each failed test.
ALARMS = re.compile(r"^ALERT:|\[Fail\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. `checked` without a `problem`: no errors. Not `checked`: `by` is the reason, and
    a map of used blocks is not to be relied on.
    """

    checked: bool
    problem: str | None  # a sentence with the last output of the checker
    by: str  # "e2fsck"; or the reason: "xfs_repair is not installed", "needs root"


def missing_checker(kind: str) -> str:
    """Return that the checker of this kind is not installed; "" if it is, or if there is none."""
    words = kind_named(kind).checker[:1]
    return "" if all(map(find_program, words)) else f"{words[0]} is not installed"


def check_content(path: str, extent: Extent, name: str) -> CheckResult:
    """Check the file system of the kind `name` at `extent` of the disk or image `path`; it must not be
    mounted.

    It takes as long as the checker does: minutes for a full disk. Without root only ext2, ext3 and ext4 in an
    image are checked, because only e2fsck accepts an offset into a file.
    """
    kind = kind_named(name)
    if not kind.checker:
        return CheckResult(False, None, f"no checker for {name}")
    missing = missing_checker(name)
    if missing:
        return CheckResult(False, None, missing)
    try:
        with held(path):
            answer = _answer(path, extent, kind)
            elsewhere = ""
            if answer.code in kind.answers.unable_codes:
                with open_medium(path, extent) as medium:
                    elsewhere = kind.answers.elsewhere(medium.read)
    except NoLoop as reason:
        return CheckResult(False, None, str(reason))
    except OSError as error:
        return CheckResult(False, None, f"{path}: {error.strerror}")
    if elsewhere:
        return CheckResult(False, None, f"{kind.checker[0]} cannot check this {name}: {elsewhere}")
    return _check_result(kind, answer)


def _answer(path: str, extent: Extent, kind: Kind) -> ProgramResult:
    if kind.name_in_image is None:
        with read_only_loop(path, extent) as device, opened(device) as disk:
            return run_confined(*kind.checker, device, disks=(disk,))
    with fresh_reader(path) as reader:  # drops the cache
        name = f"/proc/self/fd/{reader.descriptor}"
        answer = run_confined(
            *kind.checker, kind.name_in_image(name, extent.start), disks=(reader.descriptor,)
        )
        return _with_path(answer, name, str(Path(path).absolute()))


def _with_path(answer: ProgramResult, name: str, path: str) -> ProgramResult:
    """Return the output with the path of the disk in place of the name by which the checker opened it."""
    stdout, stderr = (
        text.replace(name.encode(), os.fsencode(path)) for text in (answer.stdout, answer.stderr)
    )
    return ProgramResult(answer.code, stdout, stderr)


def _check_result(kind: Kind, answer: ProgramResult) -> CheckResult:
    if answer.code == NOT_RUN:
        return CheckResult(False, None, answer.errors)
    program = kind.checker[0]
    answers = kind.answers
    text = f"{answer.output}\n{answer.errors}"
    if answer.code == 0 and not ALARMS.search(text):
        return CheckResult(True, None, program)
    if answers.harmless and answer.code == answers.harmless[0] and reports_only(answers.harmless[1], text):
        return CheckResult(True, None, program)
    is_unable = answers.unable and (answer.code in answers.unable_codes or not answers.unable_codes)
    if is_unable and (found := re.search(rf"^(?:{answers.unable}).*$", text, re.MULTILINE)):
        return CheckResult(False, None, f"{program} cannot check this {kind.name} ({found[0].rstrip('.')})")
    return CheckResult(True, f"{program} found errors in the {kind.name}: {answer.last_lines}", program)


_NOTHING_FOUND = 2  # by blkid


def run_blkid(device: str, *words: str) -> ProgramResult:
    """Return what blkid finds on a device, without its cache: as of a device that is gone, nothing (blkid(8),
    2). NOT_RUN if it cannot be opened.
    """
    try:
        with opened(device) as disk:
            # Not by its path: /dev/md/NAME and the like are links, which nothing shows to a confined program,
            # and blkid ends with the same code whether it finds no content or no device.
            return run_confined("blkid", "-p", *words, f"/proc/self/fd/{disk}", disks=(disk,))
    except FileNotFoundError as error:
        return ProgramResult(_NOTHING_FOUND, b"", f"{device}: {error.strerror}".encode())
    except OSError as error:
        return ProgramResult(NOT_RUN, b"", f"{device}: {error.strerror}".encode())


def reports_only(findings: str, text: str) -> bool:
    """Return whether each line of a checker's output is one of these findings."""
    return all(re.match(findings, line.strip()) for line in text.splitlines() if line.strip())
