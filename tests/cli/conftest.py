"""The old disk that the tests of commands work on."""

from pathlib import Path

import pytest

from tests.cli.old_disks import make_old_disk
from tests.conftest import run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_old_disk(tmp_path_factory.mktemp("old") / "old.img")


@pytest.fixture
def disk(model: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    copy = tmp_path / "old disk.img"
    run("cp", "--sparse=always", model, copy)
    return copy
