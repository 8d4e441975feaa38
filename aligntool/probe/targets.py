"""What a word names that a user types where TARGET stands: a disk, or a file."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aligntool.audit.words import shell_word
from aligntool.errors import Refused
from aligntool.probe.deadline import SILENCE_S, Pulse, answer_of
from aligntool.probe.devices import Block, block_of_number, find_block, list_blocks
from aligntool.probe.tree import Tree


def find_target(tree: Tree, target: str) -> Block | None:
    """Return the disk; None where the target is an image file. Raises Refused for anything else, and for a word that
    may mean either.
    """
    if "\0" in target or not target:
        raise Refused(f"{target!r} is not a name of a disk or file")
    if not tree.live:
        return _captured(tree, target)
    if "/" not in target:
        refuse_ambiguous(target)
        block = find_block(tree, target)
        if block is not None:
            return block
    return _on_this_machine(tree, target)


def refuse_ambiguous(target: str, *, folders: bool = False) -> None:
    """Raise Refused for a word without a slash that is a file here and a disk of this machine. `folders`: a folder may
    be meant as well.
    """
    if "/" in target or "\0" in target or target in ("", ".", "..") or not os.path.lexists(target):
        return
    here, node = Path(target), Path("/dev", target)
    if not Path("/sys/class/block", target).exists() or (here.is_dir() and not folders):
        return
    if here.exists() and node.exists() and here.samefile(node):
        return
    word = shell_word(target)
    what = "folder" if here.is_dir() else "file"
    raise Refused(
        f"{target} is a {what} here, and {node} is a disk: it is not clear which of them is meant",
        hint=f"./{word} names the {what}, {node} the disk",
    )


def refuse_silent(path: str, silence_s: float = SILENCE_S) -> None:
    """Raise Refused for a disk or file that gives no answer: this process would never come back from opening it.
    Nothing else is opened: opening a character device may do something.
    """

    def read(_: Pulse) -> bool:
        with suppress(OSError, ValueError):
            mode = os.stat(path).st_mode  # noqa: PTH116
            if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
                return True
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            os.pread(descriptor, 4096, 0)
        return True  # whatever it answered

    if answer_of(read, silence_s) is None:
        raise Refused(f"{path} did not answer within {silence_s:g} s", hint="sudo dmesg")


def _on_this_machine(tree: Tree, target: str) -> Block | None:
    try:
        status = os.stat(target)  # noqa: PTH116  (one call, not three)
    except OSError as error:
        hint = "aligntool audit, without a target, lists the disks of this machine"
        raise Refused(f"{target}: {error.strerror}", hint=hint) from error
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISBLK(mode):
        block = block_of_number(tree, f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}")
        if block is None:
            raise Refused(f"{target} is a node for a block device that this kernel does not have")
        return block
    if stat.S_ISDIR(mode):
        hint = (
            f"aligntool audit --sysroot {shell_word(target)}" if Path(target, "sys").is_dir() else "lsblk -d"
        )
        raise Refused(f"{target} is a folder", hint=hint)
    what = "a character device" if stat.S_ISCHR(mode) else "neither a block device nor a regular file"
    raise Refused(f"{target} is {what}", hint=_sibling(target))


def _sibling(target: str) -> str:
    """People type the NVMe controller and mean its namespace."""
    name = target.rpartition("/")[2]
    is_controller = name.startswith("nvme") and name[4:].isdigit()
    return f"sudo aligntool audit {shell_word(target)}n1" if is_controller else "lsblk -d"


def _captured(tree: Tree, target: str) -> Block:
    name = target.removeprefix("/dev/")
    block = find_block(tree, name) or next(_by_link(tree, name), None)
    if block is None:
        known = ", ".join(block.name for block in list_blocks(tree)[:12])
        raise Refused(f"{target} is not in the captured tree", hint=f"it has: {known}" if known else "")
    return block


def _by_link(tree: Tree, link: str) -> Iterator[Block]:
    """/dev/disk/by-id/... as udev made them on the captured machine."""
    from aligntool.probe.udev import open_database

    database = open_database(tree)
    for block in list_blocks(tree):
        parts = [f"{block.path}/{name}" for name in tree.names(block.path) if name.startswith(block.sysname)]
        for path in (block.path, *parts):
            if link in database.record(tree.text(f"{path}/dev"), path.rpartition("/")[2]).links:
                yield block
