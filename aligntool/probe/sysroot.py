"""Where to look: this machine, a folder with another one's files, or the archive that `aligntool snapshot` wrote.

In: what the user gave as --sysroot. Out: a `Tree`, for as long as it is needed. Alone because an unpacked archive
has to go away again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.probe.tree import Tree, captured_tree


@contextmanager
def open_sysroot(sysroot: str | None) -> Iterator[Tree]:
    """Raises Refused when there is nothing to look at."""
    if sysroot is None:
        yield Tree("")
    elif not Path(sysroot).is_file():
        yield captured_tree(sysroot)
    else:
        from tempfile import TemporaryDirectory

        from aligntool.probe.unpack import unpack

        with TemporaryDirectory(prefix="aligntool-") as folder:
            unpack(sysroot, folder)
            yield captured_tree(folder)
