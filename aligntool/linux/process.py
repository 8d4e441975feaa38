"""Run other programs: find, limit in time, kill, and report how they ended."""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

from aligntool.errors import Refused, Stopped

# Where the programs are that change things: mkfs and its kin, resize2fs, losetup.
#
# In: a name. Out: a path. Alone because a plain user's PATH lacks the folders of the administrator, and every
# caller here must look in the same places.

_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


# Asking another program, which writes nothing to a disk: what it is called, what it said, how it ended.
#
# In: a name and its words. Out: its exit code and its text, in the C locale. Alone because whoever asks must
# get the same plain answer for a program that is missing, one that fails and one that hangs.

NOT_RUN = 1000  # no program ends with more than 255
_GRACE_S = 1.0  # for what was killed
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    code: int  # what it ended with; negative: the signal that ended it; NOT_RUN: not started, or ended here
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last lines with text in them, for people."""
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]
        return " / ".join(lines[-3:])


def find_program(name: str) -> str | None:
    """Where it is; None: not installed. A plain user's PATH lacks the folders of the administrator's programs."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + _SBIN)


def ask(
    *words: str, limit_s: float | None = None, keep: tuple[bytes, ...] = (b"",), leashed: bool = False
) -> Answer:
    """Runs a program to its end, without input; after `limit_s` it is ended. Never raises for what it does.

    `keep`: what the lines begin with that are kept of its output. `leashed`: it ends when aligntool is killed.
    """
    program = find_program(words[0])
    if program is None:
        return Answer(NOT_RUN, "", f"{words[0]} is not installed")
    try:
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                (*_leash(leashed), program, *words[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"LC_ALL": "C"},
            )
            try:
                output = _output(child, keep, limit_s)
            except BaseException:  # Ctrl-C, for one
                _kill(child)
                raise
            errors.seek(0)
            said = errors.read()
    except OSError as error:
        return Answer(NOT_RUN, "", f"{words[0]} cannot be started: {error.strerror}")
    if output is None:
        return Answer(NOT_RUN, "", f"{words[0]} did not end within {limit_s:g} s")
    return Answer(child.returncode, _text(output), _text(said))


def _output(child: "subprocess.Popen[bytes]", keep: tuple[bytes, ...], limit_s: float | None) -> bytes | None:
    """What it wrote; None where it did not end in time. It is killed then, and not waited for: a program that waits for
    a dead disk in the kernel ends when the disk comes back.
    """
    end = None if limit_s is None else time.monotonic() + limit_s
    lines, rest = [], b""
    with cast(BinaryIO, child.stdout) as pipe:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while _in_time(poll, end):
            piece = os.read(pipe.fileno(), _PIECE)
            *whole, rest = (rest + piece).split(b"\n")
            lines += [line + b"\n" for line in whole if line.startswith(keep)]
            if piece:
                continue
            lines += [rest] if rest.startswith(keep) else []
            with suppress(subprocess.TimeoutExpired):
                child.wait(_left(end))
                return b"".join(lines)
            break
    _kill(child)
    return None


def _kill(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)
    child.returncode = child.returncode or NOT_RUN  # for Popen, which would complain that it still runs


def _in_time(poll: select.poll, end: float | None) -> bool:
    left = _left(end)
    return bool(poll.poll(None if left is None else left * 1000))


def _left(end: float | None) -> float | None:
    return None if end is None else max(end - time.monotonic(), 0.0)


def _leash(leashed: bool) -> tuple[str, ...]:
    setpriv = find_program("setpriv") if leashed else None
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()


# Running the programs that make arrays, file systems and boot images.
#
# In: words. Out: what the program said, or Stopped with its last words. Alone because every one of them must
# be run alike: nothing to read, the C locale, and nobody left behind when aligntool is told to stop.

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
class Ended:
    """What a program ended with (negative: the signal that ended it) and what it printed."""

    code: int
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]
        return " / ".join(lines)[-_SAID:]


def run_program(*words: str) -> Ended:
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
            _end_group(child)
            raise
        output.seek(0)
        errors.seek(0)
        return Ended(code, _text(output.read()), _text(errors.read()))


def run_or_stop(*words: str) -> Ended:
    """The same; raises Stopped with the program's words where it does not end well."""
    said = run_program(*words)
    if said.code:
        how = (
            f"was ended by {signal.Signals(-said.code).name}" if said.code < 0 else f"failed with {said.code}"
        )
        raise Stopped(f"{words[0]} {how}: {said.last_words or 'without a word'}")
    return said


def export_values(text: str) -> dict[str, str]:
    """KEY=value lines, as `mdadm --export` and `blkid -o export` print them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _end_group(child: "subprocess.Popen[bytes]") -> None:
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
