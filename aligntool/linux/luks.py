"""Open a LUKS container with its key, read-only and briefly, to read the content."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.commands import typed
from aligntool.errors import Refused
from aligntool.linux.block import ReadOnlyDevice, open_read_only
from aligntool.linux.lock import wait_for_udev
from aligntool.linux.programs import run_program
from aligntool.linux.signals import STOPPING
from aligntool.linux.sysfs import live_paths

_WRONG_KEY = 2  # cryptsetup(8), RETURN CODES


@contextmanager
def open_luks(device: str, key: bytes, pass_fds: tuple[int, ...] = ()) -> Iterator[ReadOnlyDevice]:
    """Yield the decrypted content of `device`. Raises Refused if it cannot be opened.

    The mapping is removed when its last descriptor is closed (`--deferred`), even if aligntool is killed.
    """
    name = f"aligntool-{os.getpid()}-{secrets.token_hex(4)}"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the mapping is marked to be closed
    try:
        # A token would be tried first, and would open it whatever the key is.
        words = ("cryptsetup", "open", "--readonly", "--token-type", "none", "--key-file", "-", device, name)
        ended = run_program(*words, stdin=key, pass_fds=pass_fds, only_reads=True)
        if ended.code:
            raise _not_opened(ended.code, ended.errors.partition("\n")[0])
        try:
            with open_read_only(f"/dev/mapper/{name}") as content:
                run_program("cryptsetup", "close", "--deferred", name)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                yield content
        finally:
            _close(name)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _not_opened(code: int, why: str) -> Refused:
    hint = "sudo dmesg" if Path("/dev/mapper/control").exists() else typed("modprobe dm_crypt")
    hint = "try another key or passphrase" if code == _WRONG_KEY else hint
    return Refused(f"the LUKS container cannot be opened to examine it: {why}", hint=hint, code="luks-key")


def _close(name: str) -> None:
    """Close the mapping if it is still there. The system may have activated LVM volumes on it, which are not
    mounted.

    Raises Refused if it is in use.
    """
    wait_for_udev()
    node = Path("/dev/mapper", name)
    if not node.exists():
        return
    holders = Path("/sys/block", node.resolve().name, "holders")
    for file in live_paths(holders, "*/dm/name"):
        run_program("dmsetup", "remove", "--retry", file.read_text().strip())
    ended = run_program("cryptsetup", "close", name)
    if ended.code and node.exists():
        end = f"lsblk; {typed('cryptsetup close', name)}"
        raise Refused(f"{name}, opened to examine the container, is in use: {ended.output_tail}", hint=end)
