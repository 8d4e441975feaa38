"""The system that is installed below a folder, as in an installer or a rescue system: which one it is, its
files, and how its own programs are run.

Its distribution, its files and its initramfs images are its own. The kernel and the disks are those of this
machine.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from subprocess import SubprocessError

from aligntool.commands import typed
from aligntool.errors import Refusal, Refused, refuse
from aligntool.linux.confined import enter_root
from aligntool.linux.programs import ProgramResult, run_program
from aligntool.linux.sysfs import LIVE, Tree, mounts_now
from aligntool.linux.system import read_system, read_unfinished
from aligntool.system import Installed, System, TableLine

_LOOK = typed("lsblk", "-o", "NAME,FSTYPE,UUID,MOUNTPOINTS")
_HOSTNAME = "/etc/hostname"
_KERNEL = "/proc/sys/kernel/osrelease"
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_ENVIRONMENT = ("-i", f"PATH={':'.join(_FOLDERS)}", "LC_ALL=C", "HOME=/root")
_PAIR = re.compile(r'(\w+)="([^"]*)"')
# What the programs of a system read and write, beside its root file system.
_NEEDED = re.compile(r"/(usr|boot|efi|var|etc)(/.*)?")


def find_installed(folder: str) -> Installed:
    """Return the system that is installed below a folder. Raises Refused if nothing is mounted there, or if
    it could not be found again.
    """
    root = os.path.realpath(folder)
    if root == "/":
        raise Refused("/ is the running system", hint="omit --root", code="invalid-option", subject="--root")
    words = ("findmnt", "--noheadings", "--pairs", "--output", "FSTYPE,UUID,FSROOT", "--mountpoint", root)
    lines = run_program(*words).output.splitlines()
    if not lines:
        text = f"nothing is mounted at {root}, so no system is installed below it"
        raise Refused(text, hint=_LOOK, code="no-system", subject=root)
    found = dict(_PAIR.findall(lines[-1]))  # the topmost
    if not found.get("UUID"):
        text = f"what is mounted at {root} has no UUID, by which an interrupted change would find it again"
        raise Refused(text, hint=_LOOK, code="no-system", subject=root)
    return Installed(root, f"{found['FSTYPE']} {found['UUID']} {found['FSROOT']}")


def refuse_other_system(installed: Installed) -> None:
    """Raise Refused unless the file system that a change was begun on is still, or again, mounted there."""
    text = f"{installed.root} is not mounted as it was, with {installed.file_system}"
    try:
        found = find_installed(installed.root)
    except Refused as error:
        raise Refused(f"{text}; {error}", hint=_LOOK, code="no-system", subject=installed.root) from error
    if found != installed:
        text = f"{text}, and {found.file_system} is there now"
        raise Refused(text, hint=_LOOK, code="no-system", subject=installed.root)


def read_installed(installed: Installed, *, images: bool = True) -> System:
    """Return the files of the installed system. The running kernel is the one that makes arrays; the words of
    its own kernel are unknown. `images`: as for `read_system`. Raises Refused if it has no files of a system.
    """
    tree = Tree(installed.root)
    found = read_system(tree, images=images)
    if found is None:
        text = f"no system is installed below {installed.root}: it has neither os-release nor fstab"
        hint = typed("ls", f"{installed.root}/etc")
        raise Refused(text, hint=hint, code="no-system", subject=installed.root)
    return replace(
        found,
        hostname=tree.text(_HOSTNAME) or None,
        command_line=(),
        unfinished=read_unfinished(LIVE),
        discards_on_parity=None,
        kernel=LIVE.text(_KERNEL),
        installed=installed,
    )


def installed_below(root: str | None, *, images: bool = True) -> System | None:
    """Return the files of the system that is installed below a folder, all of which is mounted; None: of no
    such system. `images`: as for `read_system`. Raises Refused.
    """
    if root is None:
        return None
    installed = find_installed(root)
    files = read_installed(installed, images=images)
    refuse(refuse_incomplete(installed, files.fstab))
    return files


def refuse_incomplete(installed: Installed, fstab: Sequence[TableLine]) -> Iterator[Refusal]:
    """Refuse a system of which a part, without which it would not boot, is not mounted below the folder: an
    initramfs would be written where no boot loader looks for it.
    """
    mounted = {mount.place for mount in mounts_now()}
    table = f"{installed.root}/etc/fstab"
    for line in fstab:
        place = f"{installed.root}{line.place}"
        is_part = _NEEDED.fullmatch(line.place) and not {"noauto", "nofail"} & set(line.options)
        if is_part and place not in mounted:
            text = f"its fstab mounts {line.spec} at {line.place}, and nothing is mounted at {place}"
            yield Refusal("no-system", place, text, typed("cat", table))


def refuse_unusable(installed: Installed) -> Iterator[Refusal]:
    """Refuse a system whose programs do not run here: of another architecture, or without folders for the
    kernel's files.
    """
    try:
        ended = run_inside(installed, "true")
        why = ended.output_tail
    except Refused as error:
        ended = None
        why = str(error)
    if ended is None or ended.code:
        text = f"the programs of the system below {installed.root} cannot be run here: {why}"
        yield Refusal("no-system", installed.root, text, typed("file", f"{installed.root}/usr/bin/env"))


def has_program(installed: Installed, name: str) -> bool:
    """Return whether the installed system has the program."""
    tree = Tree(installed.root)
    return any(tree.exists(f"{folder}/{name}") for folder in _FOLDERS)


def version_words(installed: Installed, programs: Sequence[str]) -> Iterator[str]:
    """Yield a phrase for each program whose version here is not that of the installed system."""
    for program in programs:
        here = _first_line(run_program(program, "-V", only_reads=True))
        try:
            there = _first_line(run_inside(installed, program, "-V", only_reads=True))
        except Refused:
            there = ""
        if here != there:
            yield f"{here or program} here, {there or 'unknown'} in {installed.root}"


def _first_line(ended: ProgramResult) -> str:
    lines = f"{ended.output}\n{ended.errors}".split("\n") if not ended.code else []
    return next((line.strip() for line in lines if line.strip()), "")


def run_inside(installed: Installed, *words: str, only_reads: bool = False) -> ProgramResult:
    """Run a program of the installed system, with the folder as its root. Raises Refused if that is not
    possible here.
    """
    try:
        return run_program(
            "/usr/bin/env",
            *_ENVIRONMENT,
            *words,
            only_reads=only_reads,
            before_exec=partial(enter_root, installed.root),
        )
    except SubprocessError as error:
        text = f"{installed.root} cannot be made the root of a program: it needs mounts of its own, and"
        raise Refused(f"{text} the folders /dev, /proc, /sys and /run", code="no-system") from error
