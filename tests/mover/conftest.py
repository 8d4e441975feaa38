"""Contents are made once for all tests: making them takes longer than moving them."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import run
from tests.mover.disks import Disk, Row, make_disk
from tests.mover.filesystems import Kind
from tests.mover.loop_mounts import looped

Contents = Callable[[Kind], Path]
MakeDisk = Callable[..., Disk]
Loop = Callable[..., Path]


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Like the usual fixture, but writable, and with partitions in the kernel."""
    with ExitStack() as stack:
        yield lambda image, *, sector_size=512: stack.enter_context(looped(image, sector_size=sector_size))


@pytest.fixture(scope="session")
def contents(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Contents:
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # of all processes
    folder /= "contents"
    folder.mkdir(exist_ok=True)

    def made(kind: Kind) -> Path:
        content = folder / kind.name
        with (folder / f"{kind.name} lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not content.exists():
                making = folder / f"{kind.name} unfinished"
                with making.open("wb") as file:
                    file.truncate(kind.length)
                kind.make(making)
                run("fallocate", "--dig-holes", making)
                making.rename(content)
        return content

    return made


@pytest.fixture
def make(tmp_path: Path, contents: Contents) -> MakeDisk:
    def make(label: str, *rows: Row, free: int = 20 * 2048, name: str = "disk.img") -> Disk:
        made = {row.kind.name: contents(row.kind) for row in rows}
        return make_disk(tmp_path / name, label, rows, made, free=free)

    return make
