"""What fio said of one run, as values.

In: the text of `fio --output-format=json`. Out: a Measured, or a ValueError that says what is wrong with the text.
Alone because fio's words and units (nanoseconds, percent of a thread's time) end here.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

NEAR_A_CORE = 95.0
"""Percent of one core from which on a thread is said to have been held back by it."""


@dataclass(frozen=True, slots=True)
class Side:
    """The reads of a run, or its writes. Latencies are of completion (fio's clat), in microseconds."""

    bytes_per_s: int  # fio's bw_bytes
    iops: float
    moved: int  # bytes
    requests: int
    runtime_s: float
    mean_us: float
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None

    @property
    def mb_s(self) -> float:
        """10^6 bytes a second, as benchmarks print it."""
        return self.bytes_per_s / 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one job."""

    name: str
    read: Side | None
    write: Side | None
    user_cpu: float  # percent of one core that each thread used on average
    system_cpu: float
    threads: int
    error: int  # errno; 0: none
    fio_version: str
    options: tuple[tuple[str, str], ...] = ()  # fio's "job options"
    interrupted: bool = False  # ended before its time

    @property
    def thread_cpu(self) -> float:
        """Percent of one core, user and system, of each thread on average."""
        return self.user_cpu + self.system_cpu

    @property
    def cores(self) -> float:
        """Cores that all threads together kept busy."""
        return self.thread_cpu * self.threads / 100

    @property
    def cpu_bound(self) -> bool:
        """A thread that has no time left cannot ask the drive for more: the figure is then the processor's."""
        return self.thread_cpu >= NEAR_A_CORE

    def side(self, *, write: bool) -> Side | None:
        return self.write if write else self.read


def read_fio(text: str, *, interrupted: bool = False) -> Measured:
    """The first job of the document, which with group_reporting is all of them. Raises ValueError."""
    start = 0 if text.startswith("{") else text.find("\n{")
    if start < 0:
        raise ValueError("fio gave no figures")
    try:
        document = json.loads(text[start:])
    except ValueError as error:
        raise ValueError(f"what fio gave is no JSON: {error}") from None
    except RecursionError:
        raise ValueError("what fio gave is no JSON of fio") from None
    jobs = _mapping(document).get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise ValueError("fio gave figures of no job")
    job = _mapping(jobs[0])
    options = {
        **_mapping(_mapping(document).get("global options", {})),
        **_mapping(job.get("job options", {})),
    }
    return Measured(
        name=str(job.get("jobname", "")),
        read=_side(_mapping(job.get("read", {}))),
        write=_side(_mapping(job.get("write", {}))),
        user_cpu=_number(job, "usr_cpu"),
        system_cpu=_number(job, "sys_cpu"),
        threads=_threads(options.get("numjobs", "1")),
        error=int(_number(job, "error")),
        fio_version=str(_mapping(document).get("fio version", "")),
        options=tuple((str(name), str(value)) for name, value in sorted(options.items())),
        interrupted=interrupted,
    )


def _side(side: Mapping[str, object]) -> Side | None:
    """None: nothing of this kind was done."""
    if not _number(side, "total_ios") or not _number(side, "io_bytes"):
        return None
    latency = _mapping(side.get("clat_ns", {}))
    percentiles = _mapping(latency.get("percentile", {}))
    return Side(
        bytes_per_s=int(_number(side, "bw_bytes")),
        iops=_number(side, "iops"),
        moved=int(_number(side, "io_bytes")),
        requests=int(_number(side, "total_ios")),
        runtime_s=_number(side, "runtime") / 1e3,
        mean_us=_number(latency, "mean") / 1e3,
        p50_us=_microseconds(percentiles, "50.000000"),
        p99_us=_microseconds(percentiles, "99.000000"),
        p999_us=_microseconds(percentiles, "99.900000"),
    )


def _microseconds(percentiles: Mapping[str, object], name: str) -> float | None:
    return _number(percentiles, name) / 1e3 if name in percentiles else None


def _threads(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() and text.isascii() and len(text) < 6 else 1


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("what fio gave has another shape than its JSON has")
    return value


def _number(values: Mapping[str, object], name: str) -> float:
    value = values.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"fio gave {value!r} for {name}")
    return value
