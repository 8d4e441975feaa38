"""Mark these tests as tests on a disk: `bench` measures memory in another way, and warns about it."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.on_disk)
