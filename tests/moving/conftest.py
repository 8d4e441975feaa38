"""Contents are made once for all tests: making them takes longer than moving them."""

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
