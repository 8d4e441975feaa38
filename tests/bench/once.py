"""One run of a command, timed by the operating system.

In: a command. Out: its wall time and peak memory. Alone because everything on docs/benchmarks.md is measured like this.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    wall: float  # seconds
    peak: int  # bytes, the largest single process


def once(command: Sequence[str]) -> Run:
    """One run of a command: its wall time and the peak memory of its largest process. Fails when the command does."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):  # 1: findings
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return Run(time.perf_counter() - begin, usage.ru_maxrss * 1024)


def aligntool(*words: str) -> list[str]:
    command = Path(sys.executable).parent / "aligntool"
    return [str(command), *words] if command.exists() else [sys.executable, "-m", "aligntool", *words]
