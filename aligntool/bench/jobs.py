"""One load on a drive as fio is to make it.

In: what is to be read or written, how large, how deep, how long. Out: the words of fio's command line. Alone because
every measurement here is made of such jobs, and because the same words are what a user types to repeat one.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from aligntool.errors import Refused

ENGINE = "libaio"
PERCENTILES = "50:99:99.9"
FILL_BLOCK = 1 << 20
_PLAIN = re.compile(r"/[A-Za-z0-9/._+@%=,-]+")


class Pattern(StrEnum):
    """fio's own words for its option rw."""

    READ = "read"
    WRITE = "write"
    RANDOM_READ = "randread"
    RANDOM_WRITE = "randwrite"
    RANDOM_MIXED = "randrw"

    @property
    def writes(self) -> bool:
        return self not in (Pattern.READ, Pattern.RANDOM_READ)

    @property
    def sequential(self) -> bool:
        return self in (Pattern.READ, Pattern.WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of fio. Sizes and offsets are bytes; every request begins at `offset` plus a multiple of `block`."""

    name: str
    path: str  # a file that is there already, or a block device
    pattern: Pattern
    block: int  # bytes of a request
    span: int  # bytes from `offset` on that the requests stay in
    offset: int = 0
    depth: int = 1  # requests in flight, of each thread
    threads: int = 1
    runtime_s: float | None = 5.0  # None: once over the span, however long that takes
    ramp_s: float = 0.0  # run before, and not counted
    read_share: int = 100  # percent of reads; of a mixed pattern only
    sync_every: int = 0  # fsync after so many writes of a thread; 0: never
    direct: bool = True  # past the page cache
    loops: int = 1  # so many times over the span; only where runtime_s is None
    engine: str = ENGINE
    seed: int | None = None  # one seed makes one order of random requests; None: another one each time

    @property
    def writes(self) -> bool:
        return self.pattern.writes


def fill_job(path: str, span: int, *, offset: int = 0, direct: bool = True, loops: int = 1) -> Job:
    """Writes the span full of random data, from its start to its end."""
    return Job(
        name="fill", path=path, pattern=Pattern.WRITE, block=min(FILL_BLOCK, span), span=span, offset=offset,
        depth=8, runtime_s=None, direct=direct, loops=loops,
    )  # fmt: skip


def fio_words(job: Job) -> tuple[str, ...]:
    """The options for fio, without the program and without where its output goes. Raises Refused for a path that fio
    would read as another one.

    The file must be there (`allow_file_create=0`): fio makes missing folders as well, and a slip of the keyboard would
    fill the wrong file system. A job that reads says `--readonly`, and fio then refuses every write (fio(1)).
    """
    words = [
        f"--name={job.name}",
        f"--filename={job.path}",
        "--allow_file_create=0",
        "--thread=1",
        f"--ioengine={job.engine}",
        f"--direct={int(job.direct)}",
        f"--rw={job.pattern.value}",
        f"--bs={job.block}",
        f"--iodepth={job.depth}",
        f"--numjobs={job.threads}",
        *_area_words(job),
        *_time_words(job),
        *(("--randrepeat=0",) if job.seed is None else ("--randrepeat=1", f"--randseed={job.seed}")),
        "--group_reporting=1",
        f"--percentile_list={PERCENTILES}",
    ]
    if job.pattern is Pattern.RANDOM_MIXED:
        words.append(f"--rwmixread={job.read_share}")
    words += [f"--fsync={job.sync_every}"] if job.sync_every else []
    words += ["--end_fsync=1"] if job.writes else ["--readonly"]
    if job.writes and job.runtime_s is None:
        words.append("--refill_buffers=1")  # elsewhere the buffers are random once, and scrambled each time
    return tuple(words)


def _area_words(job: Job) -> list[str]:
    """Threads that go on one after the other get a part of the span each: on the same one, a cache would answer all but
    the first (as happens to tools that leave this out).
    """
    if job.threads == 1 or not job.pattern.sequential:
        return [f"--offset={job.offset}", f"--size={job.span}"]
    each = job.span // job.threads // job.block * job.block
    if each < job.block:
        raise Refused(
            f"{job.span} bytes are too few for {job.threads} threads with requests of {job.block} bytes",
            hint="--size with a larger one",
        )
    return [f"--offset={job.offset}", f"--size={each}", f"--offset_increment={each}"]


def _time_words(job: Job) -> list[str]:
    if job.runtime_s is None:
        return [f"--loops={job.loops}"] if job.loops > 1 else []
    words = ["--time_based=1", f"--runtime={_milliseconds(job.runtime_s)}"]
    return [*words, f"--ramp_time={_milliseconds(job.ramp_s)}"] if job.ramp_s else words


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def is_plain(path: str) -> bool:
    """fio splits names at colons, and takes what follows # or ; as a comment, even on its command line."""
    return _PLAIN.fullmatch(path) is not None
