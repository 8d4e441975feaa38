"""Making a file system shorter with its own tool, before anything moves.

In: a disk or image, and a ShrinkContent step. Out: a shorter file system in a partition of the same length. Alone
because it is the one write here that another program does: whoever wrote that file system's tool knows best, and a
power cut while it runs is that tool's to survive.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.errors import Refused, Stopped
from aligntool.plan import ShrinkContent
from aligntool.units import KIB, Extent

_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # where Debian keeps the programs of the administrator


def shrink_words(kind: str, device: str, folder: str, length: int) -> tuple[tuple[str, ...], ...]:
    """The commands: one that finds out whether it can be done, one that does it, one that clears up.

    resize2fs(8) wants a check first; -p mends only what is safe, and the plan found it clean. ntfsresize(8): -ff asks
    no questions, and Windows checks the volume at its next start. btrfs is shrunk while it is mounted, on `folder`.
    """
    match kind:
        case "ext2" | "ext3" | "ext4":
            return ("e2fsck", "-f", "-p", device), ("resize2fs", device, f"{length // KIB}K")
        case "ntfs":
            size = ("--size", str(length), device)
            return ("ntfsresize", "--no-action", "-ff", *size), ("ntfsresize", "-ff", *size)
        case "btrfs":
            resize = ("btrfs", "filesystem", "resize", str(length), folder)
            return ("mount", "-t", "btrfs", device, folder), resize, ("umount", folder)
        case _:
            raise Refused(f"{kind} cannot be shrunk")


def refuse_unable(step: ShrinkContent) -> None:
    """Raises Refused where it cannot even be tried: no root, no program."""
    if os.geteuid() != 0:
        raise Refused(
            f"partition {step.partition} can be shrunk by root only", hint="type the same after sudo"
        )
    programs = {words[0] for words in shrink_words(step.kind, "", "", step.length)}
    missing = sorted(program for program in programs if _find(program) is None)
    if missing:
        names = ", ".join(missing)
        raise Refused(f"not installed: {names}", hint=f"install the packages that have {names}")


def shrink_content(path: str, step: ShrinkContent) -> None:
    """The file system of the step gets `step.length` bytes or a little less.

    Raises Refused when the tool would not or cannot, and nothing was written; Stopped when it failed half-way.
    """
    with (
        _writable_loop(path, step.extent) as device,
        tempfile.TemporaryDirectory(prefix="aligntool-") as folder,
    ):
        can, do, *clear_up = shrink_words(step.kind, device, folder, step.length)
        _run(Refused, *can)
        try:
            _run(Stopped, *do)
        finally:
            for words in clear_up:
                _run(Stopped, *words)


def _run(failure: type[Refused] | type[Stopped], *words: str) -> None:
    """Raises `failure` when the program fails: Refused, where it wrote nothing that counts."""
    done = subprocess.run(
        (_find(words[0]) or words[0], *words[1:]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"},
    )
    if done.returncode:
        text = (done.stderr or done.stdout).decode("utf-8", "replace")
        said = " / ".join(line.strip() for line in text.splitlines() if line.strip())[-500:]
        raise failure(f"{words[0]} failed: {said}", hint="no partition was moved; check the file system")


def _find(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + _SBIN)


@contextmanager
def _writable_loop(path: str, extent: Extent) -> Iterator[str]:
    """The partition as a device of its own, given back afterwards. Raises Refused."""
    place = ("-o", str(extent.start), "--sizelimit", str(extent.length))
    words = ("losetup", "-f", "--show", *place, str(Path(path).absolute()))
    attached = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    device = attached.stdout.strip()
    if attached.returncode or not device:
        raise Refused(f"there is no loop device: {attached.stderr.strip()}")
    try:
        yield device
    finally:
        subprocess.run(("losetup", "-d", device), capture_output=True, check=False)
