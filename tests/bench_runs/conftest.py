"""Marks these tests as those of a disk: `bench` measures memory in another way, and warns of it."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.on_disk)
