"""Shrink a file system with its own tool, before anything moves.

This is the only write of a move by another program: the authors of the tool know the file system best, and surviving a
power cut during it is the tool's task. resize2fs and ntfsresize do not promise to; btrfs does.

A tool runs to its end when aligntool is killed, and the loop device and the mount end with it.
"""

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.audit.wording import shell_word, sudo
from aligntool.errors import Refused, Stopped
from aligntool.linux.process import Ended, find_program, how_ended, run_program
from aligntool.linux.users import PartitionLoop, partition_loop
from aligntool.steps import ShrinkContent
from aligntool.units import KIB, format_size

_EXT = ("ext2", "ext3", "ext4")
_MENDED = {"e2fsck": 1}  # e2fsck(8): errors were corrected
_MORE_ROOM = "delete files on it, and plan anew"

Words = tuple[str, ...]


def shrink_words(kind: str, device: str, folder: str, length: int) -> tuple[Words, ...]:
    """Return the command lines: those that check whether it is possible, then those that do it."""
    return (*_looking(kind, device, length), *_doing(kind, device, folder, length))


def _looking(kind: str, device: str, length: int) -> tuple[Words, ...]:
    """Return the commands that write nothing. Of a btrfs only the superblock is read."""
    match kind:
        case "ext2" | "ext3" | "ext4":
            return (("resize2fs", "-P", device),)
        case "ntfs":
            return (("ntfsresize", "--no-action", "-ff", "--size", str(length), device),)
        case "btrfs":
            return ()
        case "xfs":
            raise Refused("xfs cannot be shrunk: xfs_growfs(8) makes it longer only")
        case _:
            raise Refused(f"{kind} cannot be shrunk")


def _doing(kind: str, device: str, folder: str, length: int) -> tuple[Words, ...]:
    """Return the commands. resize2fs(8) wants a check first; -p repairs only what is safe, and the plan found it clean.
    ntfsresize(8): -ff asks no questions, and Windows checks the volume at its next start. btrfs is shrunk while it is
    mounted where no other process sees it: the lines after `unshare` are that shell's.
    """
    match kind:
        case "ntfs":
            return (("ntfsresize", "-ff", "--size", str(length), device),)
        case "btrfs":
            mount = ("mount", "-t", "btrfs", device, folder)
            resize = ("btrfs", "filesystem", "resize", str(length), folder)
            return ("unshare", "--mount", "sh", "-e"), mount, resize, ("umount", folder)
        case _:
            return ("e2fsck", "-f", "-p", device), ("resize2fs", device, f"{length // KIB}K")


def refuse_unable(path: str, step: ShrinkContent) -> None:
    """Raise Refused where it cannot be done: no root, no program, or the file system's own tool refuses.

    Nothing is written. An image file takes root as well: resize2fs finds a file system inside a file and then cuts
    the whole file to its length.
    """
    if os.geteuid() != 0:
        raise Refused(f"partition {step.partition} can be shrunk by root only", hint="type the same after sudo")
    programs = {words[0] for words in shrink_words(step.kind, "", "", step.length)}
    missing = sorted(program for program in programs if find_program(program) is None)
    if missing:
        names = ", ".join(missing)
        raise Refused(f"not installed: {names}", hint=f"install the packages that have {names}")
    with partition_loop(path, step.extent) as loop:
        for words in _looking(step.kind, loop.device, step.length):
            ended = _run(loop, words)
            if ended.code:
                raise Refused(f"partition {step.partition}: {_failed(words[0], ended)}", hint=_MORE_ROOM)
            if step.kind in _EXT:
                _refuse_too_short(step, loop.device, ended.output)
        if step.kind == "btrfs":
            _refuse_several_devices(step, loop.device)


def shrink_content(path: str, step: ShrinkContent) -> None:
    """Shrink the file system of the step to `step.length` bytes or a little less, durably.

    Raises Refused while nothing was written, and Stopped when the tool failed, or nobody knows what it wrote.
    """
    with partition_loop(path, step.extent) as loop, _mount_point() as folder:
        doing = _doing(step.kind, loop.device, folder, step.length)
        if doing[0][0] == "unshare":
            script = "".join(f"{shlex.join((find_program(words[0]) or words[0], *words[1:]))}\n" for words in doing[1:])
            _do_apart(path, step, loop, doing[0], script)
        else:
            for words in doing:
                _do(path, step, loop, words)


def _do_apart(path: str, step: ShrinkContent, loop: PartitionLoop, words: Words, script: str) -> None:
    """In a chroot whose root is not a mount point unshare(1) refuses before it runs anything, unless it leaves
    the mounts as they are; the mount is seen outside then, for as long as it is there.
    """
    ended = _run(loop, ("unshare", "--mount", "true"))
    if ended.code and "propagation" in ended.errors:
        words = ("unshare", "--mount", "--propagation", "unchanged", *words[2:])
    _do(path, step, loop, words, script)


def _do(path: str, step: ShrinkContent, loop: PartitionLoop, words: Words, script: str = "") -> None:
    ended = _run(loop, words, script)
    if ended.code not in (0, _MENDED.get(words[0], 0)):
        what, (promise, hint) = "btrfs" if script else words[0], _after_failure(path, step)
        text = f"partition {step.partition}: {_failed(what, ended)}; no partition was moved; {promise}"
        raise Stopped(text, hint=hint)


def _run(loop: PartitionLoop, words: Words, script: str = "") -> Ended:
    """Run a tool. It keeps the loop device as long as it runs, also without aligntool."""
    return run_program(*words, stdin=script.encode(), pass_fds=(loop.descriptor,))


def _failed(program: str, ended: Ended) -> str:
    said = "" if ended.code < 0 else f": {ended.last_words}"
    return f"{program} {how_ended(ended.code)}{said}"


def _after_failure(path: str, step: ShrinkContent) -> tuple[str, str]:
    """Return what the tool's makers say about an interrupted resize, and the command to run before a new attempt."""
    root = sudo(path)
    match step.kind:
        case "btrfs":
            name = "realign" if step.extent.start else "partition"  # that of a whole disk
            again = " ".join(("sudo aligntool plan", name, shell_word(path), "--shrink"))
            return "the btrfs is whole: it never writes over what counts", again
        case "ntfs":
            lost = "if ntfsresize ended in the middle, only chkdsk can tell what is left"
            return lost, "start Windows and type there: chkdsk /f; then plan anew"
    check = f"{root}e2fsck -f {shell_word(f'{path}?offset={step.extent.start}')}; then plan anew"
    return "if resize2fs ended in the middle, e2fsck repairs what can be repaired", check


def _refuse_too_short(step: ShrinkContent, device: str, said: str) -> None:
    """Raise Refused below the minimum of resize2fs -P: "Estimated minimum size of the filesystem: N", in its blocks
    (resize/main.c).
    """
    blocks = int(said.split()[-1])
    with Path(device).open("rb") as file:
        file.seek(1024 + 24)  # s_log_block_size: linux/fs/ext4/ext4.h
        least = blocks * (KIB << int.from_bytes(file.read(4), "little"))
    if step.length < least:
        text = f"its {step.kind} needs {format_size(least)} at least, says resize2fs; {format_size(step.length)} would"
        raise Refused(f"partition {step.partition}: {text} be left", hint=_MORE_ROOM)


def _refuse_several_devices(step: ShrinkContent, device: str) -> None:
    """Raise Refused for a btrfs of several devices: `btrfs filesystem resize` resizes the one with id 1
    (uapi/linux/btrfs_tree.h, struct btrfs_super_block).
    """
    with Path(device).open("rb") as file:
        file.seek(64 * KIB)
        superblock = file.read(4 * KIB)
    devices, number = (int.from_bytes(superblock[at : at + 8], "little") for at in (0x88, 0xC9))
    if (devices, number) != (1, 1):
        text = f"partition {step.partition} is device {number} of a btrfs of {devices}; aligntool does not choose one"
        raise Refused(text, hint=f"mount it and type: btrfs filesystem resize {number}:{step.length} FOLDER")


@contextmanager
def _mount_point() -> Iterator[str]:
    """Yield an empty folder. It is removed only when it is empty: nothing that is mounted there is ever deleted."""
    folder = tempfile.mkdtemp(prefix="aligntool-")
    try:
        yield folder
    finally:
        Path(folder).rmdir()
