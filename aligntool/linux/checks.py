"""Check a file system with its own checker."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from aligntool.contents.catalogue import kind_named
from aligntool.contents.ext import EXT_NAMES, name_for_e2fsck
from aligntool.linux.confined import run_confined
from aligntool.linux.held import held
from aligntool.linux.process import NOT_RUN, Ended, find_program
from aligntool.linux.sysfs import opened
from aligntool.linux.users import NoLoop, fresh_reader, read_only_loop
from aligntool.units import Extent

# Nothing is repaired and nothing is written. Each checker has its own option for a check without repair, and reports
# errors in its own way.

# Errors that some checkers print although they exit with 0: xfs_repair for a log that it ignores, fsck.f2fs for each
# failed test.
ALARMS = re.compile(r"^ALERT:|\[Fail\]", re.MULTILINE)
# Findings for which fsck.fat exits with 1 and that harm no system: a label that is in one place only, or that DOS would
# not write; a stale count of free clusters, a differing copy of the boot sector (Windows and partition tools patch only
# the first one), a FAT32 without a copy or without that count, as the specification allows (BPB_BkBootSec, BPB_FSInfo).
ABOUT_LABELS = re.compile(
    r"fsck\.fat |Leaving filesystem unchanged|.*: \d+ files, \d+/\d+ clusters$"
    r"|(?:Volume l|L)abel '|Label in boot sector |There is no label in boot sector,"
    r"|Auto-(?:removing label|copying volume label) ?"
)
HARMLESS = re.compile(
    rf"{ABOUT_LABELS.pattern}|Free cluster summary |Auto-correcting"
    r"|There are differences between boot sector and its backup|This is mostly harmless|[0-9:, /a-f]+$"
    r"|Not automatically fixing this|There is no backup boot sector|Auto-creating backup boot block"
    r"|Created backup of boot sector|No FSINFO sector|Not automatically creating it"
)
# What a checker prints if it cannot check a file system, which may be intact: fsck.fat 4.2 for four FATs, fsck.exfat
# 1.2.0 for two, xfs_repair 6.1.0 if the log or the realtime data is on another device, btrfs if one of several devices
# is missing, xfs_repair for a small XFS of old, which has one allocation group and so no second superblock; xfs_repair,
# btrfs and e2fsck for a feature that they do not know, e2fsck for the version of a character encoding.
UNSUPPORTED = re.compile(
    r"^(?:Currently, only 1 or 2 FATs are supported|unsupported FAT count: "
    r"|fatal error -- This filesystem has an external log\.|xfs_repair: filesystem has a realtime subvolume$"
    r"|Only one AG detected - cannot validate filesystem geometry\."
    r"|warning, device \d+ is missing$|couldn't open (?:RDWR )?because of unsupported option features "
    r"|Found unsupported filesystem features\.).*$",
    re.MULTILINE,
)
# What e2fsck prints, with exit code 4, if only the counts of blocks and inodes of users, groups or projects are wrong
# (e2fsprogs, lib/support/mkquota.c), which mkfs.ext4 -O quota -d leaves so: it copies the files after it has counted.
# Bitmaps and files are right, and Linux mounts it.
QUOTA_USAGE = re.compile(
    r"(?:e2fsck \d\S* \(\S+\)|Pass \d: Checking [a-z ,]+"
    r"|\[QUOTA WARNING\] Usage inconsistent for ID \d+: ?actual \(-?\d+, -?\d+\) != expected \(-?\d+, -?\d+\)"
    r"|Update quota info for quota type \d\? no"
    r"|.*: \*+ WARNING: Filesystem still has errors \*+|.*: \d+/\d+ files \(\S+ non-contiguous\), \d+/\d+ blocks)$"
)
_UNKNOWN_TO_E2FSCK = re.compile(r"^.+ has unsupported (?:feature\(s\)|encoding): .*$", re.MULTILINE)
_LEFT_UNCORRECTED = 4  # e2fsck(8)
_NOT_CHECKED = (8, 12)  # e2fsck(8): operational error, alone or with "errors left uncorrected"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. `checked` without a `problem`: no errors. Not `checked`: `by` is the reason, and a map of
    used blocks is not to be relied on.
    """

    checked: bool
    problem: str | None  # a sentence with the last output of the checker
    by: str  # "e2fsck"; or the reason: "xfs_repair is not installed", "needs root"


def missing_checker(kind: str) -> str:
    """Return that the checker of this kind is not installed; "" if it is, or if there is none."""
    words = kind_named(kind).checker[:1]
    return "" if all(map(find_program, words)) else f"{words[0]} is not installed"


def check_content(path: str, extent: Extent, kind: str) -> CheckResult:
    """Check the file system of this kind at `extent` of the disk or image `path`; it must not be mounted.

    It takes as long as the checker does: minutes for a full disk. Without root only ext2, ext3 and ext4 in an image are
    checked, because only e2fsck accepts an offset into a file.
    """
    words = kind_named(kind).checker
    if not words:
        return CheckResult(False, None, f"no checker for {kind}")
    if missing := missing_checker(kind):
        return CheckResult(False, None, missing)
    try:
        with held(path):
            if kind in EXT_NAMES:
                with fresh_reader(path) as reader:  # drops the cache
                    name = f"/proc/self/fd/{reader.descriptor}"
                    answer = run_confined(*words, name_for_e2fsck(name, extent.start), disks=(reader.descriptor,))
                    answer = _with_path(answer, name, str(Path(path).absolute()))
            else:
                with read_only_loop(path, extent) as device, opened(device) as disk:
                    answer = run_confined(*words, device, disks=(disk,))
            unfit = kind in EXT_NAMES and answer.code in _NOT_CHECKED and _has_external_journal(path, extent)
    except NoLoop as reason:
        return CheckResult(False, None, str(reason))
    except OSError as error:
        return CheckResult(False, None, f"{path}: {error.strerror}")
    if unfit:
        return CheckResult(False, None, f"{words[0]} cannot check this {kind}: its journal is on another device")
    return _check_result(kind, words[0], answer)


def _with_path(answer: Ended, name: str, path: str) -> Ended:
    """Return the output with the path of the disk in place of the name by which the checker opened it."""
    stdout, stderr = (text.replace(name.encode(), os.fsencode(path)) for text in (answer.stdout, answer.stderr))
    return Ended(answer.code, stdout, stderr)


def _has_external_journal(path: str, extent: Extent) -> bool:
    """Return whether an ext4 has a journal (s_feature_compat) that is no inode of its own (s_journal_inum); e2fsck
    reports in many ways that it does not find it. linux/fs/ext4/ext4.h, struct ext4_super_block.
    """
    with fresh_reader(path) as reader:
        superblock = reader.read(extent.start + 1024, 1024)
    return bool(superblock[0x5C] & 4) and not any(superblock[0xE0:0xE4])


def _check_result(kind: str, program: str, answer: Ended) -> CheckResult:
    if answer.code == NOT_RUN:
        return CheckResult(False, None, answer.errors)
    text = f"{answer.output}\n{answer.errors}"
    if answer.code == 0 and not ALARMS.search(text):
        return CheckResult(True, None, program)
    if kind == "vfat" and answer.code == 1 and reports_only(HARMLESS, text):
        return CheckResult(True, None, program)
    if kind in EXT_NAMES and answer.code == _LEFT_UNCORRECTED and reports_only(QUOTA_USAGE, text):
        return CheckResult(True, None, program)
    unsupported = UNSUPPORTED
    if kind in EXT_NAMES and answer.code in _NOT_CHECKED:  # otherwise it may be the name of a file that is damaged
        unsupported = _UNKNOWN_TO_E2FSCK
    if found := unsupported.search(text):
        return CheckResult(False, None, f"{program} cannot check this {kind} ({found[0].rstrip('.')})")
    return CheckResult(True, f"{program} found errors in the {kind}: {answer.last_lines}", program)


_NOTHING_FOUND = 2  # by blkid


def run_blkid(device: str, *words: str) -> Ended:
    """Return what blkid finds on a device, without its cache: as of a device that is gone, nothing (blkid(8), 2).
    NOT_RUN if it cannot be opened.
    """
    try:
        with opened(device) as disk:
            # Not by its path: /dev/md/NAME and the like are links, which nothing shows to a confined program, and blkid
            # ends with the same code whether it finds no content or no device.
            return run_confined("blkid", "-p", *words, f"/proc/self/fd/{disk}", disks=(disk,))
    except FileNotFoundError as error:
        return Ended(_NOTHING_FOUND, b"", f"{device}: {error.strerror}".encode())
    except OSError as error:
        return Ended(NOT_RUN, b"", f"{device}: {error.strerror}".encode())


def reports_only(findings: re.Pattern[str], text: str) -> bool:
    """Return whether each line of a checker's output is one of these findings."""
    return all(findings.match(line.strip()) for line in text.splitlines() if line.strip())
