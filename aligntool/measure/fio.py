"""Run fio: turn jobs into its options, and its JSON into figures."""

import os
import re
import select
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from aligntool.documents import WIRE, decode, load_object
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.linux.held import descriptors_of, open_held, place_of
from aligntool.linux.programs import find_program, kill_or_abandon
from aligntool.units import format_size

# One load on a drive, as options of fio's command line.

ENGINE = "libaio"
PERCENTILES = "50:99:99.9"
_PLAIN = re.compile(r"/[A-Za-z0-9/._+@%=,-]+")


class Pattern(StrEnum):
    """The values of fio's option rw."""

    READ = "read"
    WRITE = "write"
    RANDOM_READ = "randread"
    RANDOM_WRITE = "randwrite"
    MIXED = "rw"
    RANDOM_MIXED = "randrw"

    @property
    def writes(self) -> bool:
        return self not in (Pattern.READ, Pattern.RANDOM_READ)

    @property
    def sequential(self) -> bool:
        return self in (Pattern.READ, Pattern.WRITE, Pattern.MIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of fio. Sizes and offsets are bytes; every request begins at `offset` plus a multiple of
    `block`.
    """

    name: str
    path: str  # an existing file, or a block device
    pattern: Pattern
    block: int  # bytes of a request
    span: int  # bytes from `offset` on, within which all requests are
    offset: int = 0
    depth: int = 1  # requests in flight, of each thread
    threads: int = 1
    runtime_s: float | None = 5.0  # None: once over the span, however long that takes
    ramp_s: float = 0.0  # run before the measurement and not counted
    read_share: int = 100  # percent of reads; for mixed patterns only
    together: bool = False  # report reads and writes of a mixed pattern together, in `Measured.write`
    zeros: bool = False  # write zeros instead of random data
    sync_every: int = 0  # fsync after this many writes of a thread; 0: never
    direct: bool = True  # bypass the page cache
    loops: int = 1  # how many times over the span; only if runtime_s is None
    once: bool = False  # at most once over the span: what is cached would be read again
    engine: str = ENGINE
    seed: int | None = None  # of the order of random requests; None: a different order each time

    @property
    def writes(self) -> bool:
        return self.pattern.writes


def fill_job(
    path: str, span: int, *, offset: int = 0, direct: bool = True, loops: int = 1, zeros: bool = False
) -> Job:
    """Return a job that fills the span with random data, or with zeros, from its start to its end."""
    return Job(
        name="fill",
        path=path,
        pattern=Pattern.WRITE,
        block=min(1 << 20, span),
        span=span,
        offset=offset,
        depth=8,
        runtime_s=None,
        direct=direct,
        loops=loops,
        zeros=zeros,
    )


def fio_options(job: Job) -> tuple[str, ...]:
    """Return the options for fio, without the program name and the output file. Raises Refused if the span is
    too small for the threads.

    The file must exist (`allow_file_create=0`): fio also creates missing folders, and a typing error would
    fill the wrong file system. A job that reads has `--readonly`, with which fio refuses every write
    (fio(1)).
    """
    words = [
        f"--name={job.name}", f"--filename={job.path}", "--allow_file_create=0", "--thread=1",
        f"--ioengine={job.engine}", f"--direct={int(job.direct)}", f"--rw={job.pattern.value}",
        f"--bs={job.block}", f"--iodepth={job.depth}", f"--numjobs={job.threads}", *_area_options(job),
        *_time_options(job),
        *(("--randrepeat=0",) if job.seed is None else ("--randrepeat=1", f"--randseed={job.seed}")),
        "--group_reporting=1", f"--percentile_list={PERCENTILES}",
    ]  # fmt: skip
    if job.pattern in (Pattern.MIXED, Pattern.RANDOM_MIXED):
        words.append(f"--rwmixread={job.read_share}")
    words += ["--unified_rw_reporting=1"] if job.together else []
    words += [f"--fsync={job.sync_every}"] if job.sync_every else []
    words += ["--end_fsync=1"] if job.writes else ["--readonly"]
    if job.writes and job.zeros:
        words += ["--zero_buffers=1", "--scramble_buffers=0"]
    elif job.writes and job.runtime_s is None:
        # otherwise buffers are random once, and scrambled for each request
        words.append("--refill_buffers=1")
    return tuple(words)


def _area_options(job: Job) -> list[str]:
    """Return the options for the area. Each thread of a sequential pattern gets its own part of the span: on
    the same part, a cache would answer all threads but the first (as happens with tools that omit this).
    """
    if job.threads == 1 or not job.pattern.sequential:
        return [f"--offset={job.offset}", f"--size={job.span}"]
    part = job.span // job.threads // job.block * job.block
    if part < job.block:
        threads = f"{job.threads} threads with requests of {job.block} bytes"
        raise Refused(f"{job.span} bytes are too few for {threads}", hint="a larger --span")
    return [f"--offset={job.offset}", f"--size={part}", f"--offset_increment={part}"]


def _time_options(job: Job) -> list[str]:
    if job.runtime_s is None:
        return [f"--loops={job.loops}"] if job.loops > 1 else []
    words = [] if job.once else ["--time_based=1"]
    words += [f"--runtime={round(job.runtime_s * 1000)}ms"]
    return [*words, f"--ramp_time={round(job.ramp_s * 1000)}ms"] if job.ramp_s else words


def is_plain(path: str) -> bool:
    """Return whether fio takes the path literally: it splits names at colons, and treats what follows # or ;
    as a comment, even on its command line.
    """
    return _PLAIN.fullmatch(path) is not None


# The output of `fio --output-format=json` as values; fio's units (nanoseconds, percent of a thread's time)
# are converted here.

NEAR_A_CORE = 95.0
"""Percent of one core from which on a thread counts as limited by the processor."""


@dataclass(frozen=True, slots=True)
class Side:
    """The reads of a run, or its writes. Latencies are completion latencies (fio's clat), in microseconds."""

    bytes_per_s: int  # fio's bw_bytes
    iops: float
    moved: int  # bytes
    runtime_s: float
    mean_us: float
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one job."""

    read: Side | None
    write: Side | None
    thread_cpu: float  # percent of one core, user and system, of each thread on average
    error: int  # errno; 0: none
    fio_version: str

    def side(self, *, write: bool) -> Side | None:
        return self.write if write else self.read


@dataclass(frozen=True, slots=True)
class _Latency:
    mean: float | None
    percentile: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class _Direction:
    total_ios: int | None
    io_bytes: int | None
    bw_bytes: int | None
    iops: float | None
    runtime: float | None
    clat_ns: _Latency | None


@dataclass(frozen=True, slots=True)
class _Job:
    read: _Direction | None
    write: _Direction | None
    mixed: _Direction | None
    usr_cpu: float | None
    sys_cpu: float | None
    error: int | None


@dataclass(frozen=True, slots=True)
class _Output:
    """The parts of fio's JSON document that are used."""

    jobs: tuple[_Job, ...]
    version: str | None = field(metadata={WIRE: "fio version"})


def read_fio(text: str) -> Measured:
    """Return the figures of the first job, which with group_reporting stands for all. Raises ValueError."""
    start = 0 if text.startswith("{") else text.find("\n{")
    if start < 0:
        raise ValueError("fio returned no figures")
    try:
        found = decode(_Output, load_object(text[start:]))
    except ValueError as error:
        raise ValueError(f"the output of fio is not its JSON: {error}") from None
    if not found.jobs:
        raise ValueError("fio returned no figures for a job")
    job = found.jobs[0]
    cpu = (job.usr_cpu or 0.0) + (job.sys_cpu or 0.0)
    return Measured(
        _side(job.read), _side(job.write) or _side(job.mixed), cpu, job.error or 0, found.version or ""
    )


def _side(side: _Direction | None) -> Side | None:
    """Return the figures of one direction, or None if it has no requests."""
    if side is None or not side.total_ios or not side.io_bytes:
        return None
    latency = side.clat_ns or _Latency(None, None)
    us = {name: value / 1e3 for name, value in (latency.percentile or {}).items()}
    percentiles = (us.get(name) for name in ("50.000000", "99.000000", "99.900000"))
    runtime_s = (side.runtime or 0) / 1e3
    mean_us = (latency.mean or 0) / 1e3
    return Side(side.bw_bytes or 0, side.iops or 0.0, side.io_bytes, runtime_s, mean_us, *percentiles)


# Run one job of fio, from its start to its figures.

Tell = Callable[[float], None]
"""Called with the finished share, from 0 to 1, a few times per second."""

INSTALL = "install the package fio"
_END_TIMEOUT_S = 8.0  # for fio to write its figures after SIGINT
_PERCENT = re.compile(rb"\[(\d{1,3}\.\d)%\]")


class FioInterrupted(KeyboardInterrupt):
    """Raised for Ctrl-C while fio ran. fio has ended; `measured` has its figures until then, None if there
    are none.
    """

    def __init__(self, measured: Measured | None) -> None:
        super().__init__()
        self.measured = measured


def run_job(job: Job, *, tell: Tell | None = None, keep: Callable[[str], None] | None = None) -> Measured:
    """Run fio to its end and return its figures. `keep` is called with fio's own JSON.

    Raises Refused if nothing was written (fio is missing, or the job only reads), Stopped if a job that
    writes failed, FioInterrupted after Ctrl-C.
    """
    program = find_program("fio")
    if program is None:
        raise Refused("fio, which creates the load, is not installed", hint=INSTALL)
    _refuse_unfit(job)
    text, messages, code, interrupted = _run(program, job, tell or (lambda share: None))
    if keep is not None:
        keep(text)
    try:
        measured = read_fio(text)
    except ValueError as error:
        if interrupted:
            raise FioInterrupted(None) from None
        raise _failed(job, messages or text, str(error)) from error
    if interrupted:
        raise FioInterrupted(measured if measured.read or measured.write else None)
    if measured.error or code or not (measured.read or measured.write):
        raise _failed(job, messages or text, f"it exited with {code} and did nothing")
    return measured


def _refuse_unfit(job: Job) -> None:
    """Raise Refused unless the file or device has the whole range of the job: fio deletes and recreates a
    file that is shorter (filesetup.c, extend_file).
    """
    opening = failing_as(Refused, f"{job.path} cannot be opened", denied="run the same command with sudo")
    with opening, os.fdopen(open_held(job.path, os.O_RDONLY), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        size = file.seek(0, os.SEEK_END) if stat.S_ISREG(mode) or stat.S_ISBLK(mode) else None
    if size is None:
        raise Refused(f"{job.path} is neither a file nor a block device")
    if job.offset < 0 or job.span < job.block or job.offset + job.span > size:
        requested = (
            f"{format_size(job.span)} from {format_size(job.offset)} on with requests of"
            f" {format_size(job.block)}"
        )
        raise Refused(f"{job.path} has {format_size(size)}, but {requested} are needed")


def _run(program: str, job: Job, tell: Tell) -> tuple[str, str, int, bool]:
    """Run fio; return its JSON, its error messages, its exit code, and whether it was interrupted."""
    with tempfile.TemporaryDirectory(prefix="aligntool-fio-") as folder, tempfile.TemporaryFile() as errors:
        output = Path(folder, "fio.json")
        words: tuple[str, ...] = (program, "--output-format=json", f"--output={output}", "--eta=always")
        words += fio_options(_with_plain_path(job, folder))
        interrupted = False
        with _started(words, errors.fileno(), descriptors_of(job.path)) as child:
            try:
                _report_progress(child, job, tell)
            except KeyboardInterrupt:
                interrupted = True
                _end(child)
        errors.seek(0)
        messages = errors.read().decode("utf-8", "replace")
        text = output.read_text("utf-8", "replace") if output.exists() else ""
        return text, messages, child.returncode, interrupted


def _with_plain_path(job: Job, folder: str) -> Job:
    """Return the job with the descriptor of what is held, or a symbolic link in place of a path that fio
    would misread. Raises Refused as `place_of` does.
    """
    place = place_of(job.path)
    if place != job.path:
        return replace(job, path=place)
    path = os.path.abspath(job.path)  # noqa: PTH100 - links in the user's path are not resolved
    if is_plain(path):
        return replace(job, path=path)
    link = Path(folder, "target")
    link.symlink_to(path)
    return replace(job, path=str(link))


@contextmanager
def _started(
    words: tuple[str, ...], errors: int, inherited: tuple[int, ...]
) -> "Iterator[subprocess.Popen[bytes]]":
    """Start fio, and end it if it still runs after the block.

    fio gets its own session, so that Ctrl-C reaches only aligntool, which then signals fio. If aligntool
    itself is killed, fio's progress line has no reader any more, and SIGPIPE ends fio within a second.
    """
    with failing_as(Refused, "fio cannot be started", hint=INSTALL):
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"LC_ALL": "C"},
            start_new_session=True,
            pass_fds=inherited,
        )
    try:
        yield child
    finally:
        if child.stdout:
            child.stdout.close()
        if child.poll() is None:
            kill_or_abandon(child)


def _report_progress(child: "subprocess.Popen[bytes]", job: Job, tell: Tell) -> None:
    """Report the progress until fio has ended: of a timed job by the clock, of others by fio's own progress
    line.
    """
    began = time.monotonic()
    latest = 0.0
    total_s = None if job.runtime_s is None else job.runtime_s + job.ramp_s
    stdout = child.stdout.fileno() if child.stdout else -1
    tail = b""
    while True:
        if select.select([stdout], [], [], 0.2)[0]:
            output = os.read(stdout, 1 << 16)
            if not output:
                break
            tail = (tail + output)[-512:]
        if total_s is not None:
            latest = (time.monotonic() - began) / total_s if total_s else 1.0
        elif found := _PERCENT.findall(tail):
            latest = float(found[-1]) / 100
        tell(min(latest, 1.0))
    child.wait()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End fio with SIGINT, upon which it ends its jobs and writes their figures (fio(1)); a second Ctrl-C
    does not wait for that.
    """
    try:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=_END_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        kill_or_abandon(child)


_HINTS = {
    "not loadable": "this fio lacks its engine libaio: install the package fio-engine-libaio",
    "Permission denied": "run the same command with sudo",
}


def name_of(path: str) -> str:
    """Return the name of the file behind the path of a descriptor (measure.run, made_file), or the path
    itself.
    """
    with suppress(OSError):
        return str(Path(path).readlink()) if path.startswith("/proc/") else path
    return path


def _failed(job: Job, messages: str, otherwise: str) -> Refused | Stopped:
    name = name_of(job.path)
    words = f"fio failed at {job.name} on {name}: {_reason(messages.replace(job.path, name)) or otherwise}"
    hint = next((hint for part, hint in _HINTS.items() if part in messages), "")
    return Stopped(words, hint=hint) if job.writes else Refused(words, hint=hint)


def _reason(messages: str) -> str:
    """Return the line with the reason from messages such as "fio: io_u error on file x: No space left on
    device".
    """
    lines = [
        line.strip().removeprefix("fio: ") for line in messages.split("\n{")[0].splitlines() if line.strip()
    ]
    lines = [line for line in lines if line[0] != "{" and not line.startswith(("terminating on", "Jobs:"))]
    errors = [line for line in lines if "rror" in line or "not " in line or "No " in line]
    return (errors or lines or [""])[0]
