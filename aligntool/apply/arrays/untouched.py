"""Whether anybody used what was made: a file system, or an array, of a work that stopped on the way.

In: a device, and what the plan would have on it. Out: a yes that rests on bytes, or Refused. Alone because a record
tells how far aligntool came and nothing of what the user did since: what he may have written is never made again or
wiped.
"""

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aligntool.apply.arrays.commands import files_below
from aligntool.apply.arrays.nodes import kernel_folder
from aligntool.apply.arrays.running import ask, export_values
from aligntool.audit.words import shell_word
from aligntool.errors import Refused, Stopped
from aligntool.plan import MakeFileSystem
from aligntool.units import KIB

_XFS_IN_PROGRESS = 126  # struct xfs_dsb: 1 until mkfs.xfs has written all else, and not mounted meanwhile
_EXT_SUPER = KIB
# struct ext4_super_block, from its start: s_mtime, s_mnt_count, s_last_mounted.
_EXT_TIME, _EXT_COUNT, _EXT_PLACE = 0x2C, 0x34, 0x88
_EXT_MAGIC = 0xEF53
_FILE_SYSTEMS = ("xfs", "ext4", "btrfs", "vfat")  # those that hold files: swap does not
_NOT_THERE, _TWO_THINGS = 2, 8  # blkid(8), EXIT STATUS


def is_there(step: MakeFileSystem) -> bool:
    """The file system of the plan, as blkid sees it on the device itself, without its cache."""
    said = ask("blkid", "-p", "-o", "export", step.device)
    found = export_values(said.output)
    return (found.get("TYPE"), found.get("UUID", "").lower()) == (step.kind, step.uuid.lower())


def shown_on(device: str) -> str:
    """What blkid recognises, a partition table too; "": nothing. Raises Stopped where it cannot tell."""
    said = ask("blkid", "-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE", device)
    if said.code == _TWO_THINGS:
        return "more than one thing"
    if said.code not in (0, _NOT_THERE):
        raise Stopped(f"blkid cannot tell what {device} holds: {said.last_words or said.code}")
    return " ".join(said.output.split())


def was_never_mounted(device: str, kind: str) -> bool:
    """Only where the superblock itself proves it: False also stands for "nobody can tell". Raises OSError."""
    with open(device, "rb", buffering=0) as file:  # noqa: PTH123 - a device
        head = os.pread(file.fileno(), 4 * KIB, 0)
    if kind == "xfs":
        return head.startswith(b"XFSB") and head[_XFS_IN_PROGRESS] == 1
    if kind == "ext4":
        block = head[_EXT_SUPER:]
        (mounted,) = struct.unpack_from("<I", block, _EXT_TIME)
        count, _, magic = struct.unpack_from("<HHH", block, _EXT_COUNT)
        return magic == _EXT_MAGIC and not (mounted or count or block[_EXT_PLACE])
    return False


def refuse_foreign(device: str, planned: Sequence[MakeFileSystem]) -> None:
    """Raises Refused where the array holds something else than the plan's file system. One that does not run has nobody
    on it.
    """
    if kernel_folder(device) is None or any(is_there(step) for step in planned):
        return
    try:
        shown = shown_on(device)
    except Stopped as error:
        raise Refused(str(error)) from error
    if shown:
        raise Refused(
            f"{device} holds {shown}, which aligntool did not make; it would be lost",
            hint=f"sudo blkid -p {shell_word(device)}",
        )


def refuse_used(step: MakeFileSystem) -> None:
    """Raises Refused where files lie on the file system that would be wiped, or nobody can tell."""
    if step.kind not in _FILE_SYSTEMS or kernel_folder(step.device) is None or not is_there(step):
        return
    if was_never_mounted(step.device, step.kind):
        return
    with _places(step) as places:
        found = sorted({name for place in places for name in files_below(place)})[:5]
    if found:
        raise Refused(
            f"files lie on {step.device}: {', '.join(found)}; they would be lost",
            hint="aligntool resume keeps the array; to take it back all the same, move the files away first",
        )


@contextmanager
def _places(step: MakeFileSystem) -> Iterator[list[str]]:
    """Where it is mounted; else one place, read-only: its log is replayed, so that nothing written is missing."""
    there = ask("findmnt", "-n", "-r", "-o", "TARGET", "--source", step.device).output.split()
    if there:
        yield there
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-look-") as name:
        said = ask("mount", "-t", step.kind, "-o", "ro,nosuid,nodev,noexec", step.device, name)
        if said.code:
            raise Refused(
                f"nobody can tell whether files lie on {step.device}: {said.last_words}",
                hint=f"sudo blkid -p {shell_word(step.device)}",
            )
        try:
            yield [name]
        finally:
            ask("umount", name)
