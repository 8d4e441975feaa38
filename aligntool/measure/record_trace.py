"""Record a trace with blktrace while a command runs."""

import errno
import mmap
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aligntool.audit.wording import shell_word
from aligntool.errors import Refusal, Refused, refuse, refuse_folder_name
from aligntool.linux.process import end_with_us, find_program, how_ended, run_program
from aligntool.linux.sysfs import LIVE, mounts_now
from aligntool.linux.users import block_number, disk_folder, sysfs_folder
from aligntool.measure.targets import mount_of

# The log of a recorded trace: a folder while it grows, then a file, which never replaces another one.

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)  # FAT has none; another file system

LOG = "log"
"""The text's name in the folder."""


def refuse_name(output: str | None, *, overwrite: bool = False) -> None:
    """Raise Refused, before anything runs, where no new file can have that name."""
    if output is None:
        return
    refuse_folder_name(output)
    if not Path(output).absolute().parent.is_dir():
        raise Refused(f"{output}: folder not found; nothing was recorded")
    if os.path.lexists(output) and not overwrite:
        raise Refused(f"{output} is there already; nothing was recorded", hint="another name for -o, or --overwrite")


@contextmanager
def log_folder(output: str | None) -> Iterator[Path]:
    """Beside the log, or where temporary files go; gone afterwards. Raises Refused where it cannot be made."""
    folder = None if output is None else _made_in(Path(output).absolute().parent)
    if folder is not None and not _maps(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder = None
    folder = folder or _made_in(Path(tempfile.gettempdir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made_in(parent: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=".aligntool-trace-", dir=parent))
    except OSError as error:
        hint = "-o FILE elsewhere"
        raise Refused(f"nothing can be written in {parent}: {error.strerror}", hint=hint) from error


def _maps(folder: Path) -> bool:
    """blktrace writes into a shared mapping of its files, which network file systems may not have; then it writes
    nothing, without a message (blktrace.c, setup_mmap).
    """
    with (folder / "tried").open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        try:
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
        except OSError:
            return False
    (folder / "tried").unlink()
    return True


def keep_log(folder: Path, output: str | None, *, overwrite: bool = False) -> None:
    """If one was recorded, and shall be kept. Raises Refused."""
    text = folder / LOG
    if output is None or not text.exists():
        return
    try:
        try:
            (os.replace if overwrite else os.link)(text, output)  # whole or not at all
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with text.open("rb") as made, Path(output).open("wb" if overwrite else "xb") as file:
                shutil.copyfileobj(made, file)
    except OSError as error:
        raise Refused(f"{output} cannot be kept: {error.strerror}") from error


# Running a command while blktrace records the requests to a disk. However it ends (Ctrl-C, a signal, an error), no
# program and no trace in the kernel is left running.

_PREFIX = "trace"
_STEADY_S = 0.3  # so long no further file of the kernel is opened: all of blktrace's threads are at work
_START_S = 60.0
_STOP_S = 60.0
_PATIENCE_S = 5.0  # between one signal and the next, stronger one
_OPENED = re.compile(r"/block/.+/trace\d+$")
_DROPPED = re.compile(r"dropped (\d+)\)")


@dataclass(slots=True)
class Recorded:
    """How it went."""

    text: Path  # of blkparse
    code: int = 0  # the command's; of a signal N, 128 + N, as shells have it
    seconds: float = 0.0
    interrupted: bool = False
    dropped: int = 0  # events that the kernel had no room for
    complaint: str = ""  # what else blktrace said is wrong


def record(device: str, debugfs: str, command: Sequence[str], folder: Path, *, output: int | None = None) -> Recorded:
    """Runs the command to its end, with the terminal's input and output, while the device is traced. `output`: the
    descriptor that gets the command's standard output instead.

    Raises Refused where blktrace cannot start, before the command runs, and where the log cannot be read afterwards.
    """
    recorded = Recorded(folder / LOG)
    with _tracing(device, debugfs, folder, recorded):
        began = time.monotonic()
        recorded.code, recorded.interrupted = _run(command, output)
        recorded.seconds = time.monotonic() - began
    # The files of all processors as one, in the order of time.
    ended = run_program("blkparse", "-q", "-i", _PREFIX, "-o", LOG, folder=folder)
    if ended.code or not recorded.text.exists():
        raise Refused(f"blkparse {how_ended(ended.code)} on what blktrace wrote: {ended.last_words}")
    return recorded


@contextmanager
def _tracing(device: str, debugfs: str, folder: Path, recorded: Recorded) -> Iterator[None]:
    """blktrace is at work inside, and has ended, with its last events written, after it."""
    blktrace = find_program("blktrace") or "blktrace"
    words = (blktrace, "-d", device, "-r", debugfs, "-D", str(folder), "-o", _PREFIX)
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as summary:
        child = subprocess.Popen(  # as after Ctrl-C it ends, also when aligntool is killed
            (*end_with_us("INT"), *words), stdin=subprocess.DEVNULL, stdout=summary, stderr=said,
            start_new_session=True, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
        ready = False
        try:
            _until_ready(child, said, device)
            ready = True
            yield
        finally:
            _stop(child, device, ready=ready)
            recorded.dropped = sum(map(int, _DROPPED.findall(_read(summary))[-1:]))
            recorded.complaint = " / ".join(_read(said).split("\n")).strip(" /")


def _until_ready(child: "subprocess.Popen[bytes]", said: IO[bytes], device: str) -> None:
    """It prints nothing when it has begun: each of its threads then has the kernel's file of one processor open."""
    began = time.monotonic()
    opened, since = 0, began
    while not opened or time.monotonic() - since < _STEADY_S:
        failed = "FAILED" in _read(said)
        if child.poll() is not None or failed or time.monotonic() - began > _START_S:
            raise _not_started(_read(said), device)
        now = _files_open(child.pid)
        if now != opened:
            opened, since = now, time.monotonic()
        time.sleep(0.05)


def _files_open(pid: int) -> int:
    found = 0
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            found += bool(_OPENED.search(str(link.readlink())))
    return found


def _not_started(said: str, device: str) -> Refused:
    if "/Operation not permitted" in said:
        hint = "man 7 kernel_lockdown; record on another machine, or without Secure Boot"
        return Refused("the kernel lets not even root trace a disk: it is locked down, as with Secure Boot", hint=hint)
    if "/Device or resource busy" in said:
        return Refused(f"{device} is being traced already", hint=f"to end that trace: sudo blktrace -k -d {device}")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return Refused(f"blktrace did not start on {device}: {' / '.join(lines[:2]) or 'no message'}")


def _stop(child: "subprocess.Popen[bytes]", device: str, *, ready: bool) -> None:
    """It writes down what it still has; where it hangs it is killed, and the trace in the kernel is ended."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.wait(_STOP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()
    if ready and child.returncode:
        run_program("blktrace", "-k", "-d", device, only_reads=True)


def _run(command: Sequence[str], output: int | None) -> tuple[int, bool]:
    """Its exit code, and whether it was interrupted. Raises Refused where it cannot be started."""
    try:
        child = subprocess.Popen(command, stdout=output)
    except (OSError, ValueError) as error:
        raise Refused(f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}") from error
    interrupted = False
    try:
        child.wait()
    except KeyboardInterrupt:
        interrupted = True
        _end(child)
    return (child.returncode if child.returncode >= 0 else 128 - child.returncode), interrupted


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The terminal has signalled it as well, so it gets a while before the next signal; a second Ctrl-C waits no
    longer.
    """
    with suppress(KeyboardInterrupt):
        for number in (None, signal.SIGINT, signal.SIGTERM):
            if number is not None:
                child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE_S if number else 1.0)
                return
    child.kill()
    child.wait()


def _read(said: IO[bytes]) -> str:
    """Its output until now; where it writes next stays as it is, because both share one position."""
    return os.pread(said.fileno(), 1 << 16, 0).decode("utf-8", "replace")


# Whether the requests to a disk can be recorded here: root, the kernel's option, blktrace.
#
# The folder `trace` of a block device in sysfs is there where the kernel has CONFIG_BLK_DEV_IO_TRACE
# (kernel/trace/blktrace.c, blk_trace_attr_group); the events come through debugfs.

_DEBUGFS = "/sys/kernel/debug"
_MOST_BELOW = 64  # disks of an array, volumes of volumes


@dataclass(frozen=True, slots=True)
class Traceable:
    """A device that can be traced."""

    path: str
    name: str  # the kernel's: "nvme0n1", "sda1"
    debugfs: str  # where it is mounted


def find_traceable(named: str) -> Traceable:
    """Raises Refused with all that is missing."""
    path = named if "/" in named or Path(named).exists() else f"/dev/{named}"
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise Refused(f"{named}: {getattr(error, 'strerror', None) or error}", hint="lsblk") from error
    if not stat.S_ISBLK(status.st_mode):
        hint = f"sudo losetup -f --show {shell_word(path)}" if stat.S_ISREG(status.st_mode) else "lsblk"
        raise Refused(f"{named} is not a block device, and the kernel traces only those", hint=hint)
    folder = sysfs_folder(status.st_rdev)
    found = [mount.place for mount in mounts_now() if mount.kind == "debugfs"]  # the usual place first
    debugfs = _DEBUGFS if _DEBUGFS in found else next(iter(found), None)
    refuse(_missing(folder, debugfs))
    return Traceable(path, folder.name.replace("!", "/"), debugfs or _DEBUGFS)


def _missing(folder: Path, debugfs: str | None) -> Iterator[Refusal]:
    name = folder.name
    if os.geteuid() != 0:
        yield Refusal("root-only", name, "only root may trace a disk", "type the same after sudo")
    lacking = ", ".join(each for each in ("blktrace", "blkparse") if find_program(each) is None)
    if lacking:
        yield Refusal("not-installed", lacking, f"not installed: {lacking}", "install the package blktrace")
    if not (folder / "trace").is_dir():
        text = f"this kernel cannot trace {name}: it was built without CONFIG_BLK_DEV_IO_TRACE"
        yield Refusal("kernel-lacks", name, text, "take the kernel of a distribution, or record on another machine")
    # blktrace would fail, and end that trace as it goes. Not there, or for root only: that is said by itself.
    if (LIVE.text(f"{folder}/trace/enable") or "0") != "0":
        hint = f"to end that trace: sudo blktrace -k -d {shell_word(f'/dev/{name}')}"
        yield Refusal("in-use", name, f"{name} is being traced already", hint)
    if debugfs is None:
        text = "debugfs is not mounted, and events come through it"
        yield Refusal("not-mounted", _DEBUGFS, text, f"sudo mount -t debugfs debugfs {_DEBUGFS}")


def lies_on(path: str, traced: Traceable) -> bool:
    """Return whether data written at this path reaches the traced disk; False also where that is unknown."""
    mount = mount_of(path)
    numbers = [Path(path).stat().st_dev]
    if mount is not None and (number := block_number(mount.source)):  # btrfs shows a number that no device has
        numbers.append(number)
    ours = disk_folder(sysfs_folder(Path(traced.path).stat().st_rdev))
    return any(ours.name in _below(sysfs_folder(number)) for number in numbers)


def _below(folder: Path) -> set[str]:
    """The names of a device's disk and of all that it stands on: members, volumes, the file behind a loop device."""
    found: set[str] = set()
    left = [folder]
    while left and len(found) < _MOST_BELOW:
        each = left.pop()
        disk = disk_folder(each)
        if not each.exists() or disk.name in found:
            continue
        found.add(disk.name)
        left += [slave.resolve() for slave in disk.glob("slaves/*")]
        backing = disk / "loop/backing_file"
        if backing.exists() and (file := Path(backing.read_text().strip())).exists():
            left.append(sysfs_folder(file.stat().st_dev))
    return found
