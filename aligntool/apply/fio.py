"""Running fio: one job, from its start to its figures.

In: a Job. Out: a Measured; how far it is, meanwhile. Alone because a run can fail, hang or be interrupted, and whoever
measures must get the same answer for each: the figures, or one sentence. It stands in `apply` because most jobs write.
"""

import os
import re
import select
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from aligntool.apply.programs import find_program
from aligntool.bench.jobs import Job, fio_words, is_plain
from aligntool.bench.measured import Measured, read_fio
from aligntool.errors import Refused, Stopped
from aligntool.units import format_size

Tell = Callable[[float], None]
"""Told the share that is done, from 0 to 1, a few times a second."""

INSTALL = "apt-get install fio   (dnf, zypper and pacman call it fio as well)"
_TICK_S = 0.2
_PATIENCE_S = 10.0  # to write down its figures, once it was told to end
_PERCENT = re.compile(rb"\[(\d{1,3}\.\d)%\]")


class FioInterrupted(KeyboardInterrupt):
    """Ctrl-C while fio ran. fio has ended; `measured` is what it had until then, None if that is nothing."""

    def __init__(self, measured: Measured | None) -> None:
        super().__init__()
        self.measured = measured


def run_job(job: Job, *, tell: Tell | None = None, keep: Callable[[str], None] | None = None) -> Measured:
    """Runs fio to its end. `keep` gets its own JSON.

    Raises Refused where nothing was written (fio is missing, or the job reads), Stopped where a job that writes failed,
    FioInterrupted after Ctrl-C.
    """
    program = find_program("fio")
    if program is None:
        raise Refused("fio makes the load, and it is not installed", hint=INSTALL)
    _refuse_unfit(job)
    text, said, code, interrupted = _run(program, job, tell or _nobody)
    if keep is not None:
        keep(text)
    try:
        measured = read_fio(text, interrupted=interrupted)
    except ValueError as error:
        if interrupted:
            raise FioInterrupted(None) from None
        raise _failed(job, said or text, str(error)) from error
    if interrupted:
        raise FioInterrupted(measured if measured.read or measured.write else None)
    if measured.error or code or not (measured.read or measured.write):
        raise _failed(job, said or text, f"it ended with {code}, and did nothing")
    return measured


def _refuse_unfit(job: Job) -> None:
    """A file that is shorter than what it shall work on is deleted by fio and made anew (filesetup.c, extend_file): it
    must never come to that.
    """
    try:
        with open(job.path, "rb") as file:  # noqa: PTH123 - the user's own spelling
            mode = os.fstat(file.fileno()).st_mode
            size = file.seek(0, os.SEEK_END) if stat.S_ISREG(mode) or stat.S_ISBLK(mode) else None
    except OSError as error:
        hint = "type the same after sudo" if isinstance(error, PermissionError) else ""
        raise Refused(f"{job.path} cannot be opened: {error.strerror}", hint=hint) from error
    if size is None:
        raise Refused(f"{job.path} is neither a file nor a block device")
    if job.offset < 0 or job.span < job.block or job.offset + job.span > size:
        raise Refused(
            f"{job.path} has {format_size(size)}, and {format_size(job.span)} from {format_size(job.offset)} on "
            f"with requests of {format_size(job.block)} are asked for"
        )


def _run(program: str, job: Job, tell: Tell) -> tuple[str, str, int, bool]:
    """What fio wrote, what it complained of, its exit code, and whether it was interrupted."""
    with tempfile.TemporaryDirectory(prefix="aligntool-fio-") as folder, tempfile.TemporaryFile() as errors:
        output = Path(folder, "fio.json")
        words: tuple[str, ...] = (program, "--output-format=json", f"--output={output}", "--eta=always")
        words += fio_words(_with_plain_path(job, folder))
        interrupted = False
        with _started(words, errors.fileno()) as child:
            try:
                _follow(child, job, tell)
            except KeyboardInterrupt:
                interrupted = True
                _end(child)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
        text = output.read_text("utf-8", "replace") if output.exists() else ""
        return text, said, child.returncode, interrupted


def _with_plain_path(job: Job, folder: str) -> Job:
    """A name that fio would misread gets another one, which leads to it."""
    path = os.path.abspath(job.path)  # noqa: PTH100 - what a link leads to stays the user's word
    if is_plain(path):
        return replace(job, path=path)
    link = Path(folder, "target")
    link.symlink_to(path)
    return replace(job, path=str(link))


@contextmanager
def _started(words: tuple[str, ...], errors: int) -> "Iterator[subprocess.Popen[bytes]]":
    """In a session of its own, so that Ctrl-C reaches aligntool alone, which then tells fio; never left behind: when
    aligntool itself is killed, nobody reads the line of its progress any more, and SIGPIPE ends it within a second.
    """
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            env=os.environ | {"LC_ALL": "C"}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Refused(f"fio cannot be started: {error.strerror}", hint=INSTALL) from error
    with child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def _follow(child: "subprocess.Popen[bytes]", job: Job, tell: Tell) -> None:
    """Until it has ended. Of a timed job the clock says how far it is, of others fio's own line."""
    began, latest = time.monotonic(), 0.0
    whole_s = None if job.runtime_s is None else job.runtime_s + job.ramp_s
    stdout = child.stdout.fileno() if child.stdout else -1
    tail = b""
    while True:
        if select.select([stdout], [], [], _TICK_S)[0]:
            piece = os.read(stdout, 1 << 16)
            if not piece:
                break
            tail = (tail + piece)[-512:]
        if whole_s is not None:
            latest = (time.monotonic() - began) / whole_s if whole_s else 1.0
        elif found := _PERCENT.findall(tail):
            latest = float(found[-1]) / 100
        tell(min(latest, 1.0))
    child.wait()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """SIGINT makes fio end its jobs and write down their figures (fio(1)); a second Ctrl-C does not wait for that."""
    try:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=_PATIENCE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()


def _failed(job: Job, said: str, otherwise: str) -> Refused | Stopped:
    words = f"fio failed at {job.name} on {job.path}: {_sentence(said) or otherwise}"
    hint = _hint(said)
    return Stopped(words, hint=hint) if job.writes else Refused(words, hint=hint)


def _sentence(said: str) -> str:
    """The line that says why, as fio writes it: "fio: io_u error on file x: No space left on device: write ..."."""
    lines = [line.strip().removeprefix("fio: ") for line in said.split("\n{")[0].splitlines() if line.strip()]
    lines = [line for line in lines if line[0] != "{" and not line.startswith(("terminating on", "Jobs:"))]
    telling = [line for line in lines if "rror" in line or "not " in line or "No " in line]
    return (telling or lines or [""])[0]


def _hint(said: str) -> str:
    if "not loadable" in said:
        return "this fio came without its engine libaio: dnf install fio-engine-libaio"
    if "Permission denied" in said:
        return "type the same after sudo"
    return ""


def _nobody(share: float) -> None:
    """Nobody wants to know how far it is."""
