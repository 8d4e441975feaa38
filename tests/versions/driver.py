"""Run many command lines of one checkout, each in a forked process: `PYTHONPATH=CHECKOUT python driver.py JOBS`.

In: a JSON file of scenarios. Out: a file of JSON lines beside it for each worker. Alone because it runs in the Python
and with the modules of the checkout that is recorded; it knows no module of it but `aligntool.__main__`.
"""

import contextlib
import ctypes
import datetime
import gc
import hashlib
import importlib
import io
import json
import os
import pkgutil
import pty
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT_S = 60
WARMING = (
    "--help",
    "explain AT101",
    "drives",
    "recipes list",
    "bench list",
    "audit no-such.img",
    "estimate boot --rate-a 1",
)
BLOCK = 4096
SEEN = 1 << 20  # of standard output and error
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}

Document = dict[str, Any]


class FixedTime(datetime.datetime):
    """The date and time of every run."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "FixedTime":
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


class Fixed:
    """What is the same in every run: random bytes, date and time, and the flush at which a run is cut."""

    def __init__(self) -> None:
        self.seed, self.drawn = "", 0
        self.cut, self.signal, self.flushed = 0, signal.SIGKILL, 0

    def urandom(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            self.drawn += 1
            found += hashlib.sha256(f"{self.seed} {self.drawn}".encode()).digest()
        return found[:length]

    def fdatasync(self, descriptor: int) -> None:
        """Before the flush that is named every write is done; there a signal is sent to this process."""
        self.flushed += 1
        if self.flushed == self.cut:
            os.kill(os.getpid(), self.signal)
        _fdatasync(descriptor)


_fdatasync = os.fdatasync
FIXED = Fixed()


def fix_chance() -> None:
    """Replace what differs from run to run, before any module of the program is imported."""
    os.urandom = FIXED.urandom
    os.fdatasync = FIXED.fdatasync  # type: ignore[assignment]
    random._urandom = FIXED.urandom  # type: ignore[attr-defined]
    datetime.datetime = FixedTime  # type: ignore[misc]


def enter_machine(machine: Path) -> None:
    """Put a captured /sys and udev database in place of this machine's, and no device nodes, in a mount namespace."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str | None, flags: int) -> None:
        if libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, None):
            raise OSError(ctypes.get_errno(), f"mount {source} {target}")

    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("none", "/dev", "tmpfs", 0)
    for name, (major, minor) in NODES.items():
        os.mknod(f"/dev/{name}", 0o20666, os.makedev(major, minor))
    mount(str(machine / "sys"), "/sys", None, MS_BIND | MS_REC)
    if (machine / "run" / "udev").is_dir() and Path("/run/udev").is_dir():
        mount(str(machine / "run" / "udev"), "/run/udev", None, MS_BIND | MS_REC)


def prepare_streams(step: Document, out: Path, error: Path) -> int | None:
    """Put files in the place of the three streams; return the other end of a terminal, where one is asked for."""
    other = None
    if "terminal" in step:
        other, end = pty.openpty()
        os.write(other, step["terminal"].encode())
        os.dup2(end, 0)
    else:
        given = out.with_suffix(".in")
        given.write_text(step.get("stdin", ""))
        os.dup2(os.open(given, os.O_RDONLY), 0)
    target = "/dev/full" if step.get("stdout") == "full" else out
    os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    os.dup2(os.open(error, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0, closefd=False), "utf-8", write_through=True)  # noqa: SIM115
    return other


def run_inside(step: Document, folder: Path, name: str) -> int:
    """Call the program as it is typed; return its exit code."""
    os.chdir(folder)
    os.environ["HOME"] = str(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)
    if step.get("machine"):
        enter_machine(Path(step["machine"]))
    if step.get("program"):  # in a process of its own, as a user starts it
        os.execv(sys.executable, [sys.executable, "-m", "aligntool", *step["words"]])
    FIXED.seed, FIXED.cut = name, step.get("cut", 0)
    FIXED.signal = signal.Signals(step.get("signal", signal.SIGKILL))
    sys.argv = ["aligntool", *step["words"]]
    main: Callable[[], None] = importlib.import_module("aligntool.__main__").main
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def call(step: Document, folder: Path, name: str, scratch: Path) -> Document:
    """Run one command line; return exit code and what it printed."""
    out, error = scratch / f"{os.getpid()}.out", scratch / f"{os.getpid()}.err"
    for path in (out, error):
        path.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            prepare_streams(step, out, error)
            code = run_inside(step, folder, name)
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code & 0xFF)
    _, status = os.waitpid(pid, 0)
    texts = [path.read_bytes()[:SEEN].decode("utf-8", "replace") if path.exists() else "" for path in (out, error)]
    return {"exit": os.waitstatus_to_exitcode(status), "stdout": texts[0], "stderr": texts[1]}


def image_digest(path: Path) -> str:
    """SHA-256 of size and of every block that is not zero, with its place: holes and zeros are the same."""
    found, size, at = hashlib.sha256(), path.stat().st_size, 0
    found.update(str(size).encode())
    with path.open("rb", 0) as file:
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break
            data = os.pread(file.fileno(), 1 << 20, at)
            for offset in range(0, len(data), BLOCK):
                block = data[offset : offset + BLOCK]
                if block.count(0) != len(block):
                    found.update(str(at + offset).encode() + block)
            at += len(data)
    return f"{size} bytes, {found.hexdigest()[:32]}"


def kept(folder: Path) -> dict[str, object]:
    """What lies in a folder after a command: images by their digest, JSON and texts as they are."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or path.is_symlink():
            continue
        if path.suffix in (".img", ".bin", ".journal"):
            found[name] = image_digest(path)
        elif name.endswith((".tar.xz", ".tar.gz")):
            with tarfile.open(path) as archive:
                found[name] = sorted(f"{it.name} {it.size}" for it in archive.getmembers())
        else:
            found[name] = path.read_bytes()[:SEEN].decode("utf-8", "replace")
    return found


def run_scenario(scenario: Document, jobs: Document, scratch: Path) -> Iterator[Document]:
    """Run the steps of a scenario, in a folder of its own where it has files of its own."""
    inputs = Path(jobs["inputs"])
    own = "files" in scenario
    folder = Path(jobs["runs"]) / scenario["number"] if own else inputs
    if own:
        folder.mkdir(parents=True)
        for file in scenario["files"]:
            copy = ["cp", "--sparse=always", "--no-preserve=mode", str(inputs / file), str(folder / Path(file).name)]
            subprocess.run(copy, check=True)
    for number, step in enumerate(scenario["steps"], 1):
        key = f"{scenario['name']} #{number} {' '.join(step['words'])}"
        for change in step.get("change", ()):
            with (folder / change["file"]).open("r+b") as file:
                file.seek(change["at"], os.SEEK_END if change["at"] < 0 else os.SEEK_SET)
                file.write(bytes.fromhex(change["bytes"]))
        began = time.monotonic()
        found = call(step, folder, scenario["name"], scratch)
        found["seconds"] = time.monotonic() - began
        if own:
            found["files"] = kept(folder)
        yield {"key": key, "folder": str(folder), **found}
    if own:
        shutil.rmtree(folder)


def work(jobs: Document, worker: int, queue: int, scratch: Path) -> None:
    """Take the number of a scenario after the other out of a pipe, and write what its commands did."""
    with (scratch / f"results-{worker}").open("w") as file:
        while number := os.read(queue, 4):
            scenario = jobs["scenarios"][int.from_bytes(number, "little")]
            for found in run_scenario(scenario, jobs, scratch):
                file.write(json.dumps(found) + "\n")
                file.flush()


def load_all(checkout: Path) -> None:
    """Import every module once, so that forks need not; refuse when they are not the checkout's."""
    package = importlib.import_module("aligntool")
    if not Path(package.__file__ or "").is_relative_to(checkout):
        raise SystemExit(f"{package.__file__} is not of {checkout}")
    for module in pkgutil.walk_packages(package.__path__, "aligntool."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        for words in WARMING:
            with contextlib.suppress(BaseException):
                sys.argv = ["aligntool", *words.split()]
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
                importlib.import_module("aligntool.__main__").main()
        os.write(writing, "\n".join(sys.modules).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as names:  # noqa: PTH123
        for name in names.read().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    os.waitpid(pid, 0)
    gc.collect()
    gc.freeze()


def main() -> None:
    place = Path(sys.argv[1])
    jobs: Document = json.loads(place.read_text())
    fix_chance()
    load_all(Path(jobs["checkout"]))
    reading, writing = os.pipe()
    children = []
    for worker in range(jobs["workers"]):
        if (pid := os.fork()) == 0:
            os.close(writing)
            code = 1
            try:
                work(jobs, worker, reading, place.parent)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    os.close(reading)
    for number in range(len(jobs["scenarios"])):
        os.write(writing, number.to_bytes(4, "little"))
    os.close(writing)
    if any(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children):
        raise SystemExit("a worker failed")


if __name__ == "__main__":
    main()
