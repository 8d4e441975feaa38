"""Open a LUKS by its key, read-only and for a moment, to read what lies inside."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.errors import Refused
from aligntool.linux.devices import FileReader
from aligntool.linux.lock import wait_for_udev
from aligntool.linux.process import run_program
from aligntool.linux.sysfs import READ_ONLY, opened

_WRONG_KEY = 2  # cryptsetup(8), RETURN CODES


@contextmanager
def open_luks(device: str, key: bytes, pass_fds: tuple[int, ...] = ()) -> Iterator[FileReader]:
    """Yield a reader of the decrypted content of `device`. Raises Refused if it cannot be opened."""
    name = f"aligntool-{os.getpid()}"
    words = ("cryptsetup", "open", "--readonly", "--key-file", "-", device, name)
    ended = run_program(*words, stdin=key, pass_fds=pass_fds)
    if ended.code:
        hint = "type the passphrase again" if ended.code == _WRONG_KEY else "sudo modprobe dm_crypt"
        why = ended.errors.partition("\n")[0]
        raise Refused(f"the LUKS cannot be opened to look inside: {why}", hint=hint, code="luks-key")
    try:
        with opened(f"/dev/mapper/{name}", READ_ONLY) as descriptor:
            yield FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END))
    finally:
        _close(name)


def _close(name: str) -> None:
    """Close it. The system may have activated LVM volumes on it, which are not mounted. Raises Refused if in use."""
    wait_for_udev()
    holders = Path("/sys/block", Path(f"/dev/mapper/{name}").resolve().name, "holders")
    for file in sorted(holders.glob("*/dm/name")):
        run_program("dmsetup", "remove", "--retry", file.read_text().strip())
    ended = run_program("cryptsetup", "close", name)
    if ended.code:
        end = f"lsblk; sudo cryptsetup close {name}"
        raise Refused(f"{name}, which was opened to look inside, is in use: {ended.last_words}", hint=end)
