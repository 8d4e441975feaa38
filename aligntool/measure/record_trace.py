"""Record a trace with blktrace while a command runs."""

import mmap
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aligntool.audit.wording import shell_word
from aligntool.commands import ByHand, by_hand, typed
from aligntool.errors import Refusal, Refused, failing_as, refuse
from aligntool.linux.device_numbers import block_number, disk_folder, sysfs_folder
from aligntool.linux.files import write_file
from aligntool.linux.outputs import private_folder
from aligntool.linux.programs import (
    end_program,
    find_program,
    how_ended,
    kill_or_abandon,
    pdeathsig_prefix,
    run_program,
)
from aligntool.linux.sysfs import LIVE, live_paths, mounts_now
from aligntool.measure.targets import mount_of

# The log of a recorded trace: in a folder while it grows, then a file. It replaces another file with
# --overwrite only.

LOG = "log"
"""The name of the text in the folder."""


@contextmanager
def log_folder(output: str | None) -> Iterator[Path]:
    """Create a folder beside the log, or in the folder for temporary files, and remove it afterwards. Raises
    Refused if it cannot be created.
    """
    parents = [Path(output).absolute().parent] if output else []
    for parent in (*parents, Path(tempfile.gettempdir())):
        with ExitStack() as stack:
            with failing_as(Refused, f"cannot write in {parent}", hint="-o FILE elsewhere"):
                folder = stack.enter_context(private_folder(parent, ".aligntool-trace-"))
            if parent not in parents or _supports_mapping(folder):
                yield folder
                return


def _supports_mapping(folder: Path) -> bool:
    """Return whether files in the folder can be mapped shared. blktrace writes through such a mapping, which
    network file systems may not support; it then writes nothing, without a message (blktrace.c, setup_mmap).
    """
    with (folder / "tried").open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        try:
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
        except OSError:
            return False
    (folder / "tried").unlink()
    return True


def save_log(folder: Path, output: str | None, *, overwrite: bool = False) -> None:
    """Copy the log to `output`, if a log was recorded and is to be saved. Raises Refused."""
    text = folder / LOG
    if output is None or not text.exists():
        return
    with text.open("rb") as recorded:
        write_file(output, recorded, overwrite=overwrite)


# Run a command while blktrace records the requests to a disk. However it ends (Ctrl-C, a signal, an error),
# no program and no trace in the kernel is left running.

_PREFIX = "trace"
# if blktrace opens no further file of the kernel for this long, all of its threads are running
_STEADY_S = 0.3
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_SIGNAL_PAUSE_S = 5.0  # between one signal and the next, stronger one
_OPENED = re.compile(r"/block/.+/trace\d+$")
_DROPPED = re.compile(r"dropped (\d+)\)")


@dataclass(slots=True)
class Recorded:
    """The outcome of a recording."""

    text: Path  # of blkparse
    code: int = 0  # of the command; 128 + N after signal N, as in shells
    seconds: float = 0.0
    interrupted: bool = False
    dropped: int = 0  # events that the kernel had no room for
    complaint: str = ""  # other errors that blktrace printed


def record(
    device: str, debugfs: str, command: Sequence[str], folder: Path, *, output: int | None = None
) -> Recorded:
    """Run the command to its end, with the terminal's input and output, while the device is traced. `output`:
    a descriptor for the command's standard output instead.

    Raises Refused if blktrace cannot start, before the command runs, and if the log cannot be read
    afterwards.
    """
    recorded = Recorded(folder / LOG)
    with _tracing(device, debugfs, folder, recorded):
        began = time.monotonic()
        recorded.code, recorded.interrupted = _run(command, output)
        recorded.seconds = time.monotonic() - began
    # Merge the files of all processors, in the order of time.
    ended = run_program("blkparse", "-q", "-i", _PREFIX, "-o", LOG, folder=folder)
    if ended.code or not recorded.text.exists():
        raise Refused(f"blkparse {how_ended(ended.code)} on the output of blktrace: {ended.output_tail}")
    return recorded


@contextmanager
def _tracing(device: str, debugfs: str, folder: Path, recorded: Recorded) -> Iterator[None]:
    """Run blktrace during the block; afterwards it has ended and written its last events."""
    blktrace = find_program("blktrace") or "blktrace"
    words = (blktrace, "-d", device, "-r", debugfs, "-D", str(folder), "-o", _PREFIX)
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as summary:
        child = subprocess.Popen(  # it ends as after Ctrl-C, even if aligntool is killed
            (*pdeathsig_prefix("INT"), *words),
            stdin=subprocess.DEVNULL,
            stdout=summary,
            stderr=errors,
            start_new_session=True,
            env=os.environ | {"LC_ALL": "C"},
        )
        ready = False
        try:
            _wait_until_ready(child, errors, device)
            ready = True
            yield
        finally:
            _stop(child, device, ready=ready)
            recorded.dropped = sum(map(int, _DROPPED.findall(_read(summary))[-1:]))
            recorded.complaint = " / ".join(_read(errors).split("\n")).strip(" /")


def _wait_until_ready(child: "subprocess.Popen[bytes]", errors: IO[bytes], device: str) -> None:
    """Wait until blktrace traces: it prints nothing, but each of its threads then has the kernel's file of
    one processor open. Raises Refused if it fails.
    """
    began = time.monotonic()
    opened = 0
    since = began
    while not opened or time.monotonic() - since < _STEADY_S:
        failed = "FAILED" in _read(errors)
        if child.poll() is not None or failed or time.monotonic() - began > _START_TIMEOUT_S:
            raise _not_started(_read(errors), device)
        open_now = _trace_files_open(child.pid)
        if open_now != opened:
            opened = open_now
            since = time.monotonic()
        time.sleep(0.05)


def _trace_files_open(pid: int) -> int:
    found = 0
    for link in live_paths(Path(f"/proc/{pid}/fd"), "*"):
        with suppress(OSError):
            found += bool(_OPENED.search(str(link.readlink())))
    return found


def _not_started(messages: str, device: str) -> Refused:
    if "/Operation not permitted" in messages:
        hint = "man 7 kernel_lockdown; record on another machine, or without Secure Boot"
        return Refused("kernel lockdown, as with Secure Boot, keeps even root from tracing a disk", hint=hint)
    if "/Device or resource busy" in messages:
        return Refused(
            f"{device} is already being traced", hint=f"to end that trace: {typed('blktrace -k -d', device)}"
        )
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    return Refused(f"blktrace did not start on {device}: {' / '.join(lines[:2]) or 'no message'}")


def _stop(child: "subprocess.Popen[bytes]", device: str, *, ready: bool) -> None:
    """Stop blktrace, which writes its remaining events; if it hangs, kill it and end the trace in the
    kernel.
    """
    end_program(child, signal.SIGINT, _STOP_TIMEOUT_S)
    if ready and child.returncode:
        run_program("blktrace", "-k", "-d", device, only_reads=True)


def _run(command: Sequence[str], output: int | None) -> tuple[int, bool]:
    """Run the command; return its exit code and whether it was interrupted. Raises Refused if it cannot be
    started.
    """
    try:
        child = subprocess.Popen(command, stdout=output)
    except (OSError, ValueError) as error:
        raise Refused(
            f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
        ) from error
    interrupted = False
    try:
        child.wait()
    except KeyboardInterrupt:
        interrupted = True
        _end(child)
    return (child.returncode if child.returncode >= 0 else 128 - child.returncode), interrupted


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a command after Ctrl-C. The terminal has signalled it as well, so it gets some time before the next
    signal; a second Ctrl-C kills it at once.
    """
    with suppress(KeyboardInterrupt):
        for number in (None, signal.SIGINT, signal.SIGTERM):
            if number is not None:
                child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_SIGNAL_PAUSE_S if number else 1.0)
                return
    kill_or_abandon(child)


def _read(file: IO[bytes]) -> str:
    """Return the output so far, with pread because the program that writes shares the position in the
    file.
    """
    return os.pread(file.fileno(), 1 << 16, 0).decode("utf-8", "replace")


# Check whether the requests to a disk can be recorded: root, the kernel's option, blktrace.
#
# A block device has the folder `trace` in sysfs if the kernel has CONFIG_BLK_DEV_IO_TRACE
# (kernel/trace/blktrace.c, blk_trace_attr_group); the events come through debugfs.

_DEBUGFS = "/sys/kernel/debug"
_MOST_BELOW = 64  # devices below another: disks of an array, volumes of volumes


@dataclass(frozen=True, slots=True)
class Traceable:
    """A device that can be traced."""

    path: str
    name: str  # of the kernel: "nvme0n1", "sda1"
    debugfs: str  # its mount point


def find_traceable(named: str) -> Traceable:
    """Return the named device, ready to be traced. Raises Refused with everything that is missing."""
    path = named if "/" in named or Path(named).exists() else f"/dev/{named}"
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise Refused(f"{named}: {getattr(error, 'strerror', None) or error}", hint="lsblk") from error
    if not stat.S_ISBLK(status.st_mode):
        hint = (
            by_hand(ByHand.ATTACHING, "losetup", shell_word(path))
            if stat.S_ISREG(status.st_mode)
            else "lsblk"
        )
        raise Refused(f"{named} is not a block device, and the kernel traces only those", hint=hint)
    folder = sysfs_folder(status.st_rdev)
    found = [mount.place for mount in mounts_now() if mount.kind == "debugfs"]  # the usual place first
    debugfs = _DEBUGFS if _DEBUGFS in found else next(iter(found), None)
    refuse(_missing(folder, debugfs))
    return Traceable(path, folder.name.replace("!", "/"), debugfs or _DEBUGFS)


def _missing(folder: Path, debugfs: str | None) -> Iterator[Refusal]:
    name = folder.name
    if os.geteuid() != 0:
        yield Refusal("root-only", name, "only root can trace a disk", "run the same command with sudo")
    lacking = ", ".join(program for program in ("blktrace", "blkparse") if find_program(program) is None)
    if lacking:
        yield Refusal("not-installed", lacking, f"not installed: {lacking}", "install the package blktrace")
    if not (folder / "trace").is_dir():
        text = f"this kernel cannot trace {name}: it was built without CONFIG_BLK_DEV_IO_TRACE"
        yield Refusal(
            "kernel-lacks", name, text, "use the kernel of a distribution, or record on another machine"
        )
    # blktrace would fail, and end the other trace as it exits. A file that is missing, or readable only for
    # root, is refused above.
    if (LIVE.text(f"{folder}/trace/enable") or "0") != "0":
        hint = f"to end that trace: {typed('blktrace -k -d', f'/dev/{name}')}"
        yield Refusal("in-use", name, f"{name} is already being traced", hint)
    if debugfs is None:
        text = "debugfs, through which events come, is not mounted"
        yield Refusal("not-mounted", _DEBUGFS, text, typed("mount -t debugfs debugfs", _DEBUGFS))


def lies_on(path: str, traced: Traceable) -> bool:
    """Return whether data written at this path reach the traced disk; False if unknown."""
    mount = mount_of(path)
    numbers = [Path(path).stat().st_dev]
    if mount is not None and (number := block_number(mount.source)):  # the st_dev of btrfs is not a device
        numbers.append(number)
    traced_disk = disk_folder(sysfs_folder(Path(traced.path).stat().st_rdev))
    return any(traced_disk.name in _disks_below(sysfs_folder(number)) for number in numbers)


def _disks_below(folder: Path) -> set[str]:
    """Return the names of the disk of a device and of all devices below it: members, volumes, the device that
    has the file of a loop device.
    """
    found: set[str] = set()
    left = [folder]
    while left and len(found) < _MOST_BELOW:
        device = left.pop()
        disk = disk_folder(device)
        if not device.exists() or disk.name in found:
            continue
        found.add(disk.name)
        left += [slave.resolve() for slave in live_paths(disk, "slaves/*")]
        backing = disk / "loop/backing_file"
        if backing.exists() and (file := Path(backing.read_text().strip())).exists():
            left.append(sysfs_folder(file.stat().st_dev))
    return found
