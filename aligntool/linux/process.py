"""Run other programs: find them, limit their time, end them, and return what they printed."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from aligntool.errors import Refused, Stopped

NOT_RUN = 1000  # no program ends with more than 255
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
    "rsvg-convert": "librsvg2-bin (Fedora: librsvg2-tools, openSUSE: rsvg-convert, Arch: librsvg)",
}
_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # missing in a plain user's PATH
_LONGEST = 1500  # characters of a program's last words
_GRACE_S = 1.0
_END_S = 5.0
_NO_VALUES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it printed."""

    code: int  # negative: the signal that ended it; NOT_RUN: not started, or not ended in time
    stdout: bytes
    stderr: bytes

    @property
    def output(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    @property
    def last_words(self) -> str:
        """Return the end of what it printed as one line."""
        return " / ".join(self._lines())[-_LONGEST:]

    @property
    def last_lines(self) -> str:
        """Return the last three lines with text in them as one line."""
        return " / ".join(self._lines()[-3:])

    def _lines(self) -> list[str]:
        return [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]


def find_program(name: str) -> str | None:
    """Return the path of a program, also of an administrator's; None: not installed."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + _SBIN)


def run_program(
    *words: str,
    only_reads: bool = False,
    limit_s: float | None = None,
    keep: tuple[bytes, ...] = (b"",),
    stdin: bytes = b"",
    pass_fds: tuple[int, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] = _NO_VALUES,
) -> Ended:
    """Run a program to its end, in the C locale. Raises Refused where it cannot be started.

    Its output goes into a file: a program that writes to a disk must not be ended by a pipe without a reader.

    `only_reads`: the program ends when aligntool is killed; where it cannot be started the code is NOT_RUN.
    `limit_s`: it is ended then, with NOT_RUN. `keep`: how the lines of the output begin that are kept.
    """
    program = find_program(words[0])
    if program is None:
        package = PACKAGES.get(words[0], words[0])
        return _not_run(f"{words[0]} is not installed", f"install the package {package}", only_reads)
    file = tempfile.TemporaryFile
    with file() as given, file() as output, file() as errors:
        given.write(stdin)
        given.seek(0)
        try:
            child = subprocess.Popen(  # in a session of its own Ctrl-C on the terminal does not reach it
                (*(end_with_us("KILL") if only_reads else ()), program, *words[1:]),
                stdin=given, stdout=output, stderr=errors, cwd=folder, pass_fds=pass_fds,
                env={**os.environ, "LC_ALL": "C", **environment}, start_new_session=not only_reads,
            )  # fmt: skip
        except OSError as error:
            return _not_run(f"{words[0]} cannot be started: {error.strerror}", "", only_reads)
        if not _wait(child, limit_s, only_reads=only_reads):
            return Ended(NOT_RUN, b"", f"{words[0]} did not end within {limit_s:g} s".encode())
        output.seek(0)
        errors.seek(0)
        kept = b"".join(line for line in output if line.startswith(keep))
        return Ended(child.returncode, kept, errors.read())


def run_or_stop(*words: str) -> Ended:
    """Run a program. Raises Stopped with its last words unless it ends with 0."""
    ended = run_program(*words)
    if ended.code:
        how = how_ended(ended.code)
        raise Stopped(f"{words[0]} {how}: {ended.last_words or 'without a message'}")
    return ended


def how_ended(code: int) -> str:
    """Return "failed with 1" or "was ended by SIGKILL"."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with {code}"


def export_values(text: str) -> dict[str, str]:
    """Return the KEY=value lines that `mdadm --export` and `blkid -o export` print."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def end_with_us(signal_name: str) -> tuple[str, ...]:
    """Return the words before a command that end it with this signal when aligntool is killed; (): not possible."""
    setpriv = find_program("setpriv")
    return (setpriv, "--pdeathsig", signal_name) if setpriv else ()


def _not_run(why: str, hint: str, only_reads: bool) -> Ended:
    if only_reads:
        return Ended(NOT_RUN, b"", why.encode())
    raise Refused(why, hint=hint)


def _wait(child: "subprocess.Popen[bytes]", limit_s: float | None, *, only_reads: bool) -> bool:
    """Wait for the end of a program. False: it had to be ended."""
    try:
        child.wait(limit_s)
    except subprocess.TimeoutExpired:
        _end(child, only_reads=only_reads)
        return False
    except BaseException:  # Ctrl-C, for one
        _end(child, only_reads=only_reads)
        raise
    return True


def _end(child: "subprocess.Popen[bytes]", *, only_reads: bool) -> None:
    """End a program. One that only reads is not waited for: where a dead disk holds it in the kernel, it ends when the
    disk comes back.
    """
    if only_reads:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
        child.returncode = child.returncode or NOT_RUN  # for Popen, which would complain that it still runs
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            os.killpg(child.pid, number)
            child.wait(_END_S)
            break
    child.wait()
