"""Contents are made once for all tests: making them takes longer than moving them."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import run
from tests.moving.attached import looped
from tests.moving.disks import Disk, Row, make_disk
from tests.moving.filesystems import Kind

Contents = Callable[[Kind], Path]
MakeDisk = Callable[..., Disk]
Loop = Callable[..., Path]


MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; a container often has 64 MiB there


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """In memory where there is room, unless the test is marked `on_disk`.

    The power cuts of these tests are simulated, or a SIGKILL, which the page cache outlives; waiting for the disk to
    flush was three quarters of their time.
    """
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    if request.node.get_closest_marker("on_disk") or not in_memory:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="aligntool-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """As everywhere, and writable, and with partitions where the kernel is told of them."""
    with ExitStack() as stack:
        yield lambda image, *, sector_size=512: stack.enter_context(looped(image, sector_size=sector_size))


@pytest.fixture(scope="session")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    folder = tmp_path_factory.mktemp("contents")

    def made(kind: Kind) -> Path:
        content = folder / kind.name
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
