"""The program that runs as root in the one guest whose results many tests read.

aligntool is loaded once, because that takes longest on an emulated processor, and forked for each run; pytest is not
loaded. A fork runs the command line from its arguments to its exit code. Each part writes the output of its programs to
files in /lab, which the tests then check.
"""

import gc
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aligntool.cli.app import main as aligntool

# Modules that the command line loads on demand, and that every fork would load again: seconds each time.
LOADED = (
    "aligntool.audit.judge",
    "aligntool.cli.audit",
    "aligntool.cli.raid",
    "aligntool.cli.trace",
    "aligntool.linux.look",
    "aligntool.recipes.goals",
    "aligntool.raid.planning",
    "aligntool.render.plan",
    "tomllib._parser",
)
OUT = Path("/lab")


def start(name: str, *words: str) -> int:
    """Start aligntool's command line with these arguments; return the process ID.

    Its standard streams are /dev/null and the files NAME and NAME.err in /lab.
    """
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(OUT / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(os.open(OUT / f"{name}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["aligntool", *words]
        aligntool()
        os._exit(0)
    return child


def ended(child: int) -> int:
    """Wait for its end; return the exit code as a shell does."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def run(*words: str, stdin: str = "", fails: bool = False) -> str:
    done = subprocess.run(words, input=stdin, text=True, capture_output=True, check=False)
    if done.returncode and not fails:
        raise SystemExit(f"{' '.join(words)}: {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def forked(*words: str) -> tuple[int, str, str]:
    """Run aligntool's command line with these arguments: exit code, standard output, standard error."""
    code = ended(start("forked", *words))
    return code, (OUT / "forked").read_text(), (OUT / "forked.err").read_text()


def drive(serial: str) -> str:
    """Return the NVMe drive with this serial number."""
    return str(by_serial()[serial])


def by_serial() -> dict[str, Path]:
    """Return all NVMe drives by serial number."""
    drives = (path.parent for path in Path("/sys/class/block").glob("nvme*/device"))
    return {(drive / "device/serial").read_text().strip(): Path("/dev") / drive.name for drive in sorted(drives)}


def main(parts: Sequence[str]) -> None:
    """Run these parts one after the other: a name, and further arguments separated by colons."""
    gc.disable()
    for name in LOADED:
        importlib.import_module(name)
    for part in parts:
        name, *words = part.split(":")
        began = time.monotonic()
        importlib.import_module(f"tests.lab.{name}").main(words)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
