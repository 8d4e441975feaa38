"""How much of a file was never written.

In: a path, and how much of the file counts. Out: a share. Alone because reading a hole measures no drive, and nothing
else that is looked at tells of it.
"""

import errno
import os

_MOST = 100_000  # holes that are counted; what comes after them is taken to be like the rest


def hole_share(path: str, span: int) -> float | None:
    """Of the first `span` bytes, from 0 to 1 (lseek(2), SEEK_DATA and SEEK_HOLE). None: not known.

    Blocks that were only set aside, as by fallocate, are holes to most file systems; one that knows no holes calls
    everything data.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _share(descriptor, min(span, os.fstat(descriptor).st_size))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _share(descriptor: int, span: int) -> float | None:
    at = holes = 0
    for _ in range(_MOST):
        if at >= span:
            break
        try:
            data = min(os.lseek(descriptor, at, os.SEEK_DATA), span)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing but a hole up to the end
                raise
            data = span
        holes += data - at
        at = min(os.lseek(descriptor, data, os.SEEK_HOLE), span) if data < span else span
    return holes / at if at else None
