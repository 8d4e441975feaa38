"""Images that are attached to a loop device or mounted for a moment, and never longer.

An image file comes in; a block device or a folder goes out, given back when the block ends, whatever happens in it.
"""

import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import detach, remove_partitions, run, unmount


@contextmanager
def looped(image: Path, *, sector_size: int = 512) -> Iterator[Path]:
    """`image` as a block device that may have partitions; exactly this one is detached afterwards."""
    device = Path(run("losetup", "-f", "--show", "-P", "-b", str(sector_size), image).strip())
    try:
        assert stat.S_ISBLK(device.stat().st_mode), f"{device} is not a block device"
        run("blockdev", "--setrw", device)  # read-only is remembered from whoever had the same node before
        yield device
    finally:
        detach(device)


@contextmanager
def partitioned(image: Path) -> Iterator[Path]:
    """The same with a node for every partition, which the kernel is told of: not every kernel reads tables."""
    with looped(image) as device:
        run("partx", "-u", device)
        try:
            yield device
        finally:
            remove_partitions(device)


@contextmanager
def mounted(content: Path, *mount: str) -> Iterator[Path]:
    """The file system in `content`, mounted by the command `mount`."""
    with tempfile.TemporaryDirectory(prefix="aligntool-mount-") as name:
        folder = Path(name) / "mnt"  # what is mounted lies one deeper than what is deleted
        folder.mkdir()
        run(*mount, content, folder)
        try:
            yield folder
        finally:
            unmount(folder)
