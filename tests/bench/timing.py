"""Run a command and return its wall time and peak memory, as the operating system reports them."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    wall: float  # seconds
    peak: int  # bytes, the largest single process


# A process starts with the peak of its parent (setmax_mm_hiwater_rss in Linux), so the parent is a small one.
_STARTER = """
import os, subprocess, sys, time
begin = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, time.perf_counter() - begin)
"""


def once(command: Sequence[str]) -> Run:
    """Run a command once: its wall time and the peak memory of its largest process. Fails when the command does."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", _STARTER, *command], stdout=subprocess.PIPE, check=True)
    code, peak_kib, wall_s = done.stdout.split()
    if code not in (b"0", b"1"):  # 1: findings
        raise SystemExit(f"{' '.join(command)} ended with {code.decode()}")
    return Run(float(wall_s), int(peak_kib) * 1024)


def aligntool(*words: str) -> list[str]:
    command = Path(sys.executable).parent / "aligntool"
    return [str(command), *words] if command.exists() else [sys.executable, "-m", "aligntool", *words]
