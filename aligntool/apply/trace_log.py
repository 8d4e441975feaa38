"""The log of a recorded trace: a folder while it grows, a file when it is kept.

In: the name that the log shall have, if any. Out: a folder; at the end that file. Alone because a log is kept however
the recording ended, and never over a file that is there.
"""

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.audit.words import shell_word
from aligntool.errors import Refused, refuse_folder_name

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)  # FAT has none; another file system

LOG = "log"
"""The text's name in the folder."""


def refuse_name(output: str | None) -> None:
    """Raise Refused, before anything runs, where no new file can have that name."""
    if output is None:
        return
    refuse_folder_name(output)
    if not Path(output).absolute().parent.is_dir():
        raise Refused(f"{output}: folder not found; nothing was recorded")
    if os.path.lexists(output):
        raise Refused(f"{output} is there already; nothing was recorded", hint=f"rm {shell_word(output)}")


@contextmanager
def log_folder(output: str | None) -> Iterator[Path]:
    """Beside the log, or where temporary files go; gone afterwards. Raises Refused where it cannot be made."""
    folder = None if output is None else _made_in(Path(output).absolute().parent)
    if folder is not None and not _maps(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder = None
    folder = folder or _made_in(Path(tempfile.gettempdir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made_in(parent: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=".aligntool-trace-", dir=parent))
    except OSError as error:
        hint = "-o FILE elsewhere"
        raise Refused(f"nothing can be written in {parent}: {error.strerror}", hint=hint) from error


def _maps(folder: Path) -> bool:
    """blktrace writes into a shared mapping of its files, which network file systems may not have; then it writes
    nothing, and says nothing (blktrace.c, setup_mmap).
    """
    with (folder / "tried").open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        try:
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
        except OSError:
            return False
    (folder / "tried").unlink()
    return True


def keep_log(folder: Path, output: str | None) -> None:
    """If one was recorded, and shall be kept. Raises Refused."""
    text = folder / LOG
    if output is None or not text.exists():
        return
    try:
        try:
            os.link(text, output)  # whole or not at all, and never over another file
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with text.open("rb") as made, Path(output).open("xb") as file:
                shutil.copyfileobj(made, file)
    except OSError as error:
        raise Refused(f"{output} cannot be kept: {error.strerror}") from error
