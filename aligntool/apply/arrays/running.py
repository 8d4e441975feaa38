"""Running the programs that make arrays, file systems and boot images.

In: words. Out: what the program said, or Stopped with its last words. Alone because every one of them must be run
alike: nothing to read, the C locale, and nobody left behind when aligntool is told to stop.
"""

import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass

from aligntool.apply.programs import find_program
from aligntool.errors import Refused, Stopped

_SAID = 1500  # characters of a program's last words
PACKAGES = {
    "mdadm": "mdadm",
    "blkid": "util-linux",
    "mkfs.xfs": "xfsprogs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.btrfs": "btrfs-progs (openSUSE: btrfsprogs)",
    "mkfs.fat": "dosfstools",
    "mkswap": "util-linux",
    "sfdisk": "fdisk (others: util-linux)",
    "update-initramfs": "initramfs-tools",
    "unmkinitramfs": "initramfs-tools-core",
    "dracut": "dracut",
    "lsinitrd": "dracut",
    "mkinitcpio": "mkinitcpio",
    "lsinitcpio": "mkinitcpio",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a program ended with (negative: the signal that ended it) and what it printed."""

    code: int
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]
        return " / ".join(lines)[-_SAID:]


def ask(*words: str) -> Said:
    """Run a program to its end, whatever that is. Raises Refused where it is not installed.

    It runs in a session of its own, so that a Ctrl-C on the terminal reaches aligntool alone, which then ends it with
    everything that it started.
    """
    program = find_program(words[0])
    if program is None:
        raise Refused(
            f"{words[0]} is not installed", hint=f"install the package {PACKAGES.get(words[0], words[0])}"
        )
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            (program, *words[1:]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=os.environ | {"LC_ALL": "C"},
            start_new_session=True,
        )
        try:
            code = child.wait()
        except BaseException:
            _end(child)
            raise
        output.seek(0)
        errors.seek(0)
        return Said(code, _text(output.read()), _text(errors.read()))


def do(*words: str) -> Said:
    """The same; raises Stopped with the program's words where it does not end well."""
    said = ask(*words)
    if said.code:
        how = (
            f"was ended by {signal.Signals(-said.code).name}" if said.code < 0 else f"failed with {said.code}"
        )
        raise Stopped(f"{words[0]} {how}: {said.last_words or 'without a word'}")
    return said


def export_values(text: str) -> dict[str, str]:
    """KEY=value lines, as `mdadm --export` and `blkid -o export` print them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _end(child: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(5)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
        break
    child.wait()


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
