"""A Device that is not in a hurry.

In: a Device and a limit. Out: a Device. Alone because a disk that others wait for is a wish of the user and no business
of the copying.
"""

import threading
import time

from aligntool.apply.device import Device, Job, Jobs

_NAP_S = 0.1


class Limited:
    """Writes at most so many bytes a second, over all threads; no second is saved up for later.

    Writes alone are counted: a copy reads and verifies as much as it writes, so this is the rate at which data moves.
    """

    def __init__(self, device: Device, bytes_per_second: int) -> None:
        """Raises ValueError for a rate below one byte a second."""
        if bytes_per_second < 1:
            raise ValueError(f"{bytes_per_second} bytes a second is no rate")
        self._device = device
        self._rate = bytes_per_second
        self._lock = threading.Lock()
        self._free_at_s = 0.0  # of the monotonic clock: when what was written so far has had its time
        self._hurried = False

    @property
    def size(self) -> int:
        return self._device.size

    @property
    def sector_size(self) -> int:
        return self._device.sector_size

    def read(self, offset: int, length: int) -> bytes | memoryview:
        return self._device.read(offset, length)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._free_at_s)
            self._free_at_s = begin + len(data) / self._rate
        while not self._hurried and (left := begin - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_S))
        self._device.write(offset, data)

    def is_hole(self, offset: int, length: int) -> bool:
        return self._device.is_hole(offset, length)

    def hurry(self) -> None:
        """No more waiting, also for those who wait now: the work is to be stopped. Signal handlers may call it."""
        self._hurried = True

    def flush(self) -> None:
        self._device.flush()

    def together(self, jobs: Jobs, meanwhile: Job | None = None) -> None:
        self._device.together(jobs, meanwhile)
