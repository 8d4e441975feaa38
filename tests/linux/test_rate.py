"""A rate-limited device against a clock, with a lower bound only: a slow machine may take longer."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from aligntool.device import Device
from aligntool.linux.block import DiskDevice, Limited
from aligntool.linux.child_process import run_in_child
from aligntool.units import KIB, MIB


@pytest.fixture
def device(sparse: Callable[..., Path]) -> Iterator[Device]:
    descriptor = os.open(sparse(MIB), os.O_RDWR | os.O_CLOEXEC)
    try:
        with DiskDevice(descriptor) as made:
            yield made
    finally:
        os.close(descriptor)


def test_all_threads_together_keep_to_the_rate(device: Device) -> None:
    slow = Limited(device, MIB)
    began = time.monotonic()
    slow.run_parallel([partial(slow.write, at, b"x" * 64 * KIB) for at in range(0, 320 * KIB, 64 * KIB)])
    assert time.monotonic() - began >= 4 * 64 / 1024  # the last of five begins after the duration of four
    assert bytes(slow.read(0, 320 * KIB)) == b"x" * 320 * KIB


def test_idle_time_does_not_accumulate(device: Device) -> None:
    slow = Limited(device, MIB)
    slow.write(0, bytes(512))
    time.sleep(0.2)
    began = time.monotonic()
    for _ in range(3):
        slow.write(0, bytes(64 * KIB))
    assert time.monotonic() - began >= 2 * 64 / 1024


def test_a_rate_limited_device_has_the_size_and_sectors_of_its_disk(device: Device) -> None:
    slow = Limited(device, 1)
    assert (slow.size, slow.sector_size) == (device.size, device.sector_size)
    slow.flush()


def test_a_rate_of_zero_raises_value_error(device: Device) -> None:
    with pytest.raises(ValueError):
        Limited(device, 0)


def test_a_wait_for_the_rate_is_not_reported_as_an_unresponsive_disk(sparse: Callable[..., Path]) -> None:
    image, notes = sparse(MIB), list[str]()

    def job(_: Callable[..., None]) -> None:
        with DiskDevice(os.open(image, os.O_RDWR)) as device:
            slow = Limited(device, 64 * KIB)
            slow.run_parallel([partial(slow.write, at, bytes(64 * KIB)) for at in range(0, 256 * KIB, 64 * KIB)])

    run_in_child(job, str(image), print, notes.append, stall_s=0.5)
    assert not notes
