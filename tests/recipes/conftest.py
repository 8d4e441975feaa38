"""The packaged drive database, loaded once a module."""

import pytest

from aligntool.recipes.drives import DriveDatabase, load_drives


@pytest.fixture(scope="module")
def database() -> DriveDatabase:
    return load_drives()
