"""The file that a benchmark works on: made, and removed again whatever happens.

In: a folder and a size. Out: a path, inside a `with`. Alone because nothing of a benchmark may be left behind, and
nothing that was there may be touched.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aligntool.errors import Refused
from aligntool.units import format_about

PREFIX = ".aligntool-bench-"


@contextmanager
def made_file(folder: str, size: int, *, name: str | None = None) -> Iterator[str]:
    """Room for all of it is taken at once, so that a file system that is too full says so now. Raises Refused."""
    path = str(Path(folder, name or f"{PREFIX}{secrets.token_hex(4)}"))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        hint = "name a folder that you may write to" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise Refused(f"{path} cannot be made: {error.strerror}", hint=hint) from error
    try:
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            raise Refused(f"{format_about(size)} cannot be taken in {folder}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        yield path
    finally:
        with suppress(FileNotFoundError):
            Path(path).unlink()


def drop_caches() -> bool:
    """The kernel forgets what it has read of files (Documentation/admin-guide/sysctl/vm.rst). False: it may not, for
    want of root.
    """
    try:
        with Path("/proc/sys/vm/drop_caches").open("w") as file:
            file.write("1\n")
    except OSError:
        return False
    return True
