"""Attach images to a loop device or mount them for the length of a block."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.conftest import attached, run, unmount


def looped(image: Path, *, sector_size: int = 512) -> AbstractContextManager[Path]:
    """Attach `image` as a block device that may have partitions; only this one is detached afterwards."""
    return attached(image, "-P", "-b", str(sector_size))


@contextmanager
def partitioned(image: Path) -> Iterator[Path]:
    """Yield the same with a node for every partition, added by partx: not every kernel reads tables."""
    with looped(image) as device:
        run("partx", "-u", device)
        yield device


@contextmanager
def mounted(content: Path, *mount: str) -> Iterator[Path]:
    """Yield the file system in `content`, mounted by the command `mount`."""
    with tempfile.TemporaryDirectory(prefix="aligntool-mount-") as name:
        folder = Path(name) / "mnt"  # the mount is one folder below the one that is deleted
        folder.mkdir()
        _mount(*mount, content, folder)
        try:
            yield folder
        finally:
            unmount(folder)


def _mount(*command: str | Path, limit_s: float = 60) -> None:
    """Mount. What was mounted otherwise until now is so in a mount namespace that another program created meanwhile,
    until that program ends or leaves it.
    """
    end = time.monotonic() + limit_s
    while True:
        try:
            run(*command)
        except AssertionError as error:
            if "already mounted or mount point busy" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return
