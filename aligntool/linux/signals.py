"""The signals that end a command, and how they are handled or deferred."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ENDING = STOPPING[:3]  # those that end a command as Ctrl-C does; SIGQUIT ends it at once


def interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Ctrl-C, so that temporary folders are removed. A second signal does not interrupt
    that.
    """
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C for aligntool and for the programs that it runs: another tool may not survive an
    interruption.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
