"""`aligntool trace record` of an NVMe drive, together with dd, fio, signals and another trace; runs in the guest.

A part of `in_guest`. For each recording it writes NAME, its standard output, NAME.err, NAME.code, and NAME.left:
whether the kernel still traces, the blktraces that run and the folders that are left.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.in_guest import OUT, drive, ended, start

SERIAL = "traced"
MOUNTED = Path("/tmp/mounted")
EVERY = "every"


def main(words: Sequence[str]) -> None:
    """Make some recordings, or with the word `EVERY` all of them."""
    os.chdir(OUT)
    disk = drive(SERIAL)
    if EVERY in words:
        subprocess.run(["umount", "-l", "/sys/kernel/debug"], check=False)
        record("unmounted", disk, "--", "true")
        subprocess.run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"], check=True)
    dd = ("dd", f"if={disk}", "of=/dev/null", "iflag=direct")
    record("reads", disk, "--json", "-o", "/lab/reads.txt", "--", *dd, "bs=64k", "count=100")
    record(
        "writes", disk, "--json", "--grid", "4KiB", "--",
        "fio", "--output-format=json", "--output=/lab/fio.json", "--name=x", f"--filename={disk}",
        "--rw=randwrite", "--bs=4k", "--offset=512", "--size=4m", "--direct=1", "--ioengine=libaio",
        "--iodepth=1",
    )  # fmt: skip
    script = f"{' '.join(dd)} bs=4k count=9; echo $$ > /lab/pid; exec sleep 3600"
    stopped = ("-o", "/lab/stopped.txt", "--", "sh", "-c", script)
    record("stopped", disk, *stopped, end=sends(signal.SIGINT, OUT / "pid"))
    pid = (OUT / "pid").read_text().strip()
    (OUT / "stopped.alive").write_text(output("ps", "-p", pid))
    killed = ("--", "sh", "-c", "touch /lab/runs; exec sleep 3600")
    record("killed", disk, *killed, end=sends(signal.SIGKILL, OUT / "runs"))
    for folder in Path("/tmp").glob(".aligntool-trace*"):  # nothing else removes it
        shutil.rmtree(folder)
    if EVERY in words:
        three = f"{' '.join(dd)} bs=4k count=3; exit 7"
        record("failed", disk, "-o", "/lab/failed.txt", "--", "sh", "-c", three)
        record("idle", disk, "--", "true")
        beside_another(disk)
        on_the_traced_disk(disk)


def on_the_traced_disk(disk: str) -> None:
    """Record with a log that is written to the drive itself."""
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    MOUNTED.mkdir(exist_ok=True)
    subprocess.run(["mount", disk, MOUNTED], check=True)
    record("itself", disk, "-o", str(MOUNTED / "log"), "--", "true")
    subprocess.run(["umount", MOUNTED], check=True)


def record(name: str, disk: str, *words: str, end: Callable[[int], None] = lambda _: None) -> None:
    """Record, and write down the output and what is left. `end` may send a signal to the recording."""
    child = start(name, "trace", "record", disk, *words)
    end(child)
    (OUT / f"{name}.code").write_text(f"{ended(child)}\n")
    wait_for(disk, "0")
    folders = [*Path().glob(".aligntool-trace*"), *Path("/tmp").glob(".aligntool-trace*")]
    left = traced(disk) + output("pgrep", "-x", "blktrace") + "".join(f"{folder}\n" for folder in folders)
    (OUT / f"{name}.left").write_text(left)


def sends(number: signal.Signals, file: Path) -> Callable[[int], None]:
    """Return a function that sends this signal once the traced command has made a file, after five minutes at the
    latest.
    """

    def end(child: int) -> None:
        until = time.monotonic() + 300
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.2)
        os.kill(child, number)

    return end


def beside_another(disk: str) -> None:
    """Record while another blktrace traces the drive."""
    other = subprocess.Popen(["blktrace", "-d", disk, "-o", "-"], stdout=subprocess.DEVNULL)
    wait_for(disk, "1")
    code = ended(start("busy", "trace", "record", disk, "--", "touch", "/lab/ran"))
    (OUT / "busy.code").write_text(f"{code}\n")
    (OUT / "busy.left").write_text(traced(disk))
    other.send_signal(signal.SIGINT)
    other.wait()
    wait_for(disk, "0")


def wait_for(disk: str, state: str) -> None:
    """Wait until the kernel traces the drive ("1") or does not ("0"), a minute at most."""
    until = time.monotonic() + 60
    while traced(disk).strip() != state and time.monotonic() < until:
        time.sleep(0.2)


def traced(disk: str) -> str:
    return (Path("/sys/class/block") / Path(disk).name / "trace/enable").read_text()


def output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout
