"""Shrink a file system with its own tool, before anything moves.

A power cut while resize2fs or ntfsresize writes can damage the file system, so they never write to the disk:
they work on a copy-on-write view of it. The result is checked, and what they wrote is then written to the
disk under a journal (realign/shrink_commit.py). btrfs never overwrites data in use; it is shrunk on the disk.

If aligntool is killed, `btrfs` still runs to its end; then the loop device and the mount are gone, too.
"""

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.audit.wording import shell_word
from aligntool.commands import ByHand, by_hand
from aligntool.contents.btrfs import shrunk_length
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import Read, Shrinker, Words
from aligntool.errors import Refused, Stopped
from aligntool.formats.reader import Reader
from aligntool.linux.confined import run_confined
from aligntool.linux.content import digest_of, freed_bytes, shrink_mark
from aligntool.linux.loops import PartitionLoop, partition_loop
from aligntool.linux.programs import ProgramResult, find_program, how_ended, run_program
from aligntool.linux.sysfs import opened
from aligntool.linux.targets import raw_copy
from aligntool.linux.virtual import View, copy_on_write_view
from aligntool.realign.partition_selection import MAKE_ROOM
from aligntool.steps import ShrinkContent
from aligntool.units import Extent, format_size

_REPAIRED = {"e2fsck": 1}  # e2fsck(8): errors were corrected
_NEWER_TOOL = "install a newer version of e2fsprogs, and plan again"
_FREE_SPACE = "no space is left for temporary files: set TMPDIR to a folder on another disk"


def shrink_words(kind: str, device: str, folder: str, length: int) -> tuple[Words, ...]:
    """Return the command lines: first those that check whether shrinking is possible, then those that
    shrink.
    """
    shrinker = _shrinker_of(kind)
    return (*shrinker.check(device, length), *shrinker.shrink(device, folder, length))


def _shrinker_of(name: str) -> Shrinker:
    kind = kind_named(name)
    if kind.shrinker is None:
        raise Refused(kind.why_not_shrinkable or f"{name} cannot be shrunk")
    return kind.shrinker


def refuse_unshrinkable(path: str, step: ShrinkContent) -> None:
    """Raise Refused if shrinking is not possible: not root, a program is missing, or the file system's tool
    refuses.

    Writes nothing. An image file requires root as well, for a loop device: if given the file itself,
    resize2fs would truncate the whole file to the length of the file system.
    """
    if os.geteuid() != 0:
        raise Refused(
            f"only root can shrink partition {step.partition}", hint="run the same command with sudo"
        )
    programs = {words[0] for words in shrink_words(step.kind, "", "", step.length)}
    missing = sorted(program for program in programs if find_program(program) is None)
    if missing:
        names = ", ".join(missing)
        raise Refused(f"not installed: {names}", hint=f"install the packages that contain {names}")
    shrinker = _shrinker_of(step.kind)
    with partition_loop(path, step.extent) as loop:
        for words in shrinker.check(loop.device, step.length):
            with opened(loop.device) as disk:
                ended = run_confined(*words, disks=(disk,))
            if ended.code:
                hint = _NEWER_TOOL if _names_unknown_feature(ended.errors) else MAKE_ROOM
                raise Refused(f"partition {step.partition}: {_failure(words[0], ended)}", hint=hint)
            _refuse_too_short(step, shrinker.least(ended.output, _reading(loop.device)), words[0])
        unsuitable = shrinker.unsuitable(_reading(loop.device))
        if unsuitable:
            how = (raw_copy(path) if unsuitable.takes_raw_copy else "") or _by_hand(
                path, step, ByHand.SHRINKING, unsuitable.program
            )
            text = f"partition {step.partition} {unsuitable.text}"
            raise Refused(text, hint=unsuitable.hint.format(how))


def shrink_btrfs(path: str, step: ShrinkContent) -> None:
    """Shrink the btrfs of the step to `step.length` bytes or a little less, durably.

    Raises Refused if nothing was written, and Stopped if the tool failed and may have written.
    """
    with partition_loop(path, step.extent) as loop, _mount_point() as folder:
        unshare, *commands = _shrinker_of(step.kind).shrink(loop.device, folder, step.length)
        script = "".join(
            f"{shlex.join((find_program(words[0]) or words[0], *words[1:]))}\n" for words in commands
        )
        script += _marking(loop.device, step)
        _run_unshared(path, step, loop, unshare, script)


@contextmanager
def shrunk_view(path: str, step: ShrinkContent) -> Iterator[View]:
    """Yield a view of the partition in which its ext2, ext3, ext4 or NTFS was shrunk and then checked. It has
    no mark yet. The disk is not written to. Raises Refused if the tool fails or its result has errors.
    """
    whole = Extent(0, step.extent.length)
    shrinker = _shrinker_of(step.kind)
    with copy_on_write_view(path, step.extent) as view:
        with partition_loop(view.path, whole) as loop:
            commands = shrinker.shrink(loop.device, "", step.length)
            for words in (*commands, (*shrinker.verify, loop.device)):
                ended = run_confined(*words, disks=(loop.descriptor,), writes=True)
                if ended.code not in (0, _REPAIRED.get(words[0], 0)):
                    text = f"partition {step.partition}: {_failure(words[0], ended)}, on a copy-on-write view"
                    hint = _FREE_SPACE if view.is_full else _check_hint(path, step, ended.errors)
                    raise Refused(f"{text}; nothing was written", hint=hint)
        yield view


def mark_freed(view: View, reader: Reader, step: ShrinkContent, claims: int) -> None:
    """Write the mark of a shrink into the last sector of a view. `reader`: of the view; `claims`: the length
    of the file system. Raises OSError.
    """
    whole = Extent(0, step.extent.length)
    mark = shrink_mark(step.length, digest_of(reader, freed_bytes(whole, claims)))
    view.write(whole.length - len(mark), mark)


def _marking(device: str, step: ShrinkContent) -> str:
    """Return lines of a shell's script that write the mark of a shrink into the last sector of the
    partition.
    """
    mark = shrink_mark(step.length, "%s")
    text = shlex.quote(mark.rstrip(b"\0").decode())
    size = len(mark)
    blocks = step.extent.length // len(mark)
    freed = freed_bytes(Extent(0, step.extent.length), shrunk_length(step.length))
    reading = f"bs=1M iflag=skip_bytes,count_bytes skip={freed.start} count={freed.length}"
    writing = f"bs={size} seek={blocks - 1} conv=sync,notrunc,fsync"
    return (
        f"digest=$(dd if={device} {reading} status=none | sha256sum)\n"
        f'printf {text} "${{digest%% *}}" | dd of={device} {writing} status=none\n'
    )


def _run_unshared(path: str, step: ShrinkContent, loop: PartitionLoop, words: Words, script: str) -> None:
    """Run the script in a mount namespace of its own.

    In a chroot whose root is not a mount point, unshare(1) refuses to run anything unless it keeps the
    propagation of mounts unchanged; then the mount is visible outside for as long as it exists.
    """
    ended = _run(loop, ("unshare", "--mount", "true"))
    if ended.code and "propagation" in ended.errors:
        words = ("unshare", "--mount", "--propagation", "unchanged", *words[2:])
    ended = _run(loop, words, script)
    if ended.code:
        text = f"partition {step.partition}: {_failure('btrfs', ended)}; no partition was moved"
        name = "realign" if step.extent.start else "partition"  # byte 0: a file system on the whole disk
        again = " ".join(("sudo aligntool plan", name, shell_word(path), "--shrink"))
        if "'balance" in ended.errors:  # "another exclusive operation 'balance paused' in progress"
            again = f"{by_hand(ByHand.SHRINKING, 'btrfs', 'a balance that is paused')}; then plan again"
        elif "space" in ended.errors:  # ENOSPC
            again = MAKE_ROOM
        raise Stopped(f"{text}; the btrfs is intact: it never overwrites data in use", hint=again)


def _run(loop: PartitionLoop, words: Words, script: str = "") -> ProgramResult:
    """Run a tool. It inherits the loop device's descriptor, so the device stays as long as it runs, also if
    aligntool is killed.
    """
    return run_program(*words, stdin=script.encode(), pass_fds=(loop.descriptor,))


def _failure(program: str, ended: ProgramResult) -> str:
    detail = "" if ended.code < 0 else f": {ended.output_tail}"
    return f"{program} {how_ended(ended.code)}{detail}"


def _names_unknown_feature(errors: str) -> bool:
    """Return whether resize2fs or e2fsck is older than the mke2fs that made the file system."""
    return "unsupported feature" in errors


def _check_hint(path: str, step: ShrinkContent, errors: str) -> str:
    """Return how the user finds and repairs what kept the tool from shrinking the file system."""
    if _names_unknown_feature(errors):
        return _NEWER_TOOL
    # or stable_inodes: resize2fs refuses, and a check finds nothing
    if "feature" in errors or "bigalloc" in errors:
        return f"copy its files to another disk: {step.kind} with this feature cannot be shrunk"
    repair = _shrinker_of(step.kind).repair
    if repair:
        return f"{repair}; then plan again"
    return f"{raw_copy(path) or _by_hand(path, step, ByHand.UNCLEAN, 'e2fsck')}; then plan again"


def _by_hand(path: str, step: ShrinkContent, section: ByHand, program: str) -> str:
    return by_hand(
        section, program, f"{shell_word(path)}, {step.extent.length} bytes from byte {step.extent.start}"
    )


def _reading(device: str) -> Read:
    def read(offset: int, length: int) -> bytes:
        with Path(device).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    return read


def _refuse_too_short(step: ShrinkContent, least: int, program: str) -> None:
    """Raise Refused if the new length is below the minimum that its tool states."""
    if step.length < least:
        text = (
            f"its {step.kind} needs at least {format_size(least)}, according to {program};"
            f" {format_size(step.length)}"
        )
        raise Refused(f"partition {step.partition}: {text} would be left", hint=MAKE_ROOM)


@contextmanager
def _mount_point() -> Iterator[str]:
    """Yield an empty folder, and remove it by rmdir, which never deletes files of a file system mounted
    there.
    """
    folder = tempfile.mkdtemp(prefix="aligntool-")
    try:
        yield folder
    finally:
        Path(folder).rmdir()
