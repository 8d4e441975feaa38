"""Commands that change arrays while a member does not answer, interrupted and then finished; runs in the guest.

`python -m tests.lab.stalled_members NAME...` writes NAME.json of each case to /lab. A member stalls because the kernel
limits what a group of processes may write to it (cgroup v2, io.max) to two bytes a second.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.in_guest import OUT, by_serial, ended, forked, run, start
from tests.lab.old_arrays import CONF
from tests.lab.old_arrays import prepare as without_boot_images
from tests.lab.reformat_cases import CASES as REFORMATTED
from tests.lab.reformat_cases import SERIALS, clear, filled, make, prepare, sums_of

GROUP = Path("/run/cgroup/silenced")
PATIENCE_S = 240.0
HELD_S = 40.0  # more than it takes to find that a drive does not answer
CREATE = ("raid", "create", "--level", "1", "--name", "data", "--fs", "ext4", "--mount", "none", "--system", "debian")
REFORMAT = ("raid", "reformat", "/dev/md/data", "--lba-size", "4096")


@dataclass(frozen=True, slots=True)
class Case:
    """`step`: the kind of step at whose beginning the drive stalls; "": before the command. `way`: the command typed
    when it answers again.
    """

    name: str
    words: tuple[str, ...]
    step: str
    way: str

    @property
    def reformats(self) -> bool:
        return self.words == REFORMAT


CASES = (
    Case("table", CREATE, "", "resume"),
    Case("array", CREATE, "MakeArray", "rollback"),
    Case("filesystem", CREATE, "MakeFileSystem", "resume"),
    Case("format", REFORMAT, "FormatMember", "resume"),
    Case("back", REFORMAT, "PutBackMember", "rollback"),
)


def main(names: Sequence[str]) -> None:
    prepare()
    without_boot_images()
    GROUP.parent.mkdir()
    run("mount", "-t", "cgroup2", "none", str(GROUP.parent))
    (GROUP.parent / "cgroup.subtree_control").write_text("+io")
    GROUP.mkdir()
    for name in names:
        began = time.monotonic()
        case = next(each for each in CASES if each.name == name)
        (OUT / f"{name}.json").write_text(json.dumps(run_case(case), indent=1))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def run_case(case: Case) -> dict[str, object]:
    for drive in by_serial().values():  # data in the page cache would be written over what is formatted
        run("blockdev", "--flushbufs", str(drive))
    clear()
    for drive in by_serial().values():
        run("wipefs", "--all", str(drive))
        run("blockdev", "--rereadpt", str(drive), fails=True)
    run("udevadm", "settle")
    CONF.write_text("HOMEHOST <system>\n")
    mirror = REFORMATTED[0]
    sums: dict[str, str] = {}
    if case.reformats:
        make(mirror)
        sums = filled(mirror)
    drives = [str(by_serial()[serial]) for serial in SERIALS[:2]]
    words = (*case.words, *(() if case.reformats else drives), "--yes", "--json")
    silent = "" if case.step else drives[1]
    if silent:
        limit(silent, "2")
    child = in_group(words)
    for event in events(child):
        if event["event"] == "step-begun" and event["step"] == case.step and not silent:
            silent = next((each for each in drives if each in str(event["title"])), drives[1])
            limit(silent, "2")
        if event["event"] == "waiting":
            break
    code, took = interrupted(child)
    said = (OUT / "stalled.err").read_text()
    held = start("held", case.way, "--yes", "--json")
    time.sleep(HELD_S)
    refused = [interrupted(held)[0], (OUT / "held.err").read_text()]
    limit(silent, "max")
    release()
    status = forked("status", "--json")
    done = forked(case.way, "--yes", "--json")
    run("udevadm", "settle")
    found: dict[str, object] = {
        "silent": silent, "waiting": event, "took": took, "code": code, "said": said, "held": refused,
        "status": status, "done": done, "mdstat": Path("/proc/mdstat").read_text(),
        "signatures": run("wipefs", "--noheadings", "--output", "TYPE", *drives),
        "blocks": [int(Path("/sys/block", Path(each).name, "queue/logical_block_size").read_text()) for each in drives],
    }  # fmt: skip
    if case.reformats:
        found |= {"sums": sums, "after": sums_of(mirror)}
    elif case.way == "resume":
        run("e2fsck", "-f", "-n", "/dev/md/data")
    return found


def interrupted(child: int) -> tuple[int, float]:
    """Interrupt it; return its exit code, and the seconds until it ended."""
    began = time.monotonic()
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGINT)
    return ended(child), time.monotonic() - began


def limit(drive: str, rate: str) -> None:
    """Limit the bytes per second that the group may write to a drive."""
    number = Path("/sys/block", Path(drive).name, "dev").read_text().strip()
    (GROUP / "io.max").write_text(f"{number} wbps={rate}")


def in_group(words: Sequence[str]) -> int:
    """Start aligntool in the group of processes whose drive may stall."""
    own = Path("/run/cgroup/cgroup.procs")
    (OUT / "stalled").write_text("")
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    child = start("stalled", *words)
    own.write_text(str(os.getpid()))
    return child


def events(child: int) -> Iterator[dict[str, object]]:
    """Yield its events as they arrive. Raises SystemExit if it ends by itself."""
    deadline = time.monotonic() + PATIENCE_S
    with (OUT / "stalled").open() as file:
        line = ""
        while time.monotonic() < deadline:
            line += file.readline()
            if line.endswith("\n"):
                yield json.loads(line)
                line = ""
            elif os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise SystemExit(
                    f"it ended by itself: {(OUT / 'stalled').read_text()}{(OUT / 'stalled.err').read_text()}"
                )
            else:
                time.sleep(0.05)
    raise SystemExit(f"nothing was reported in time: {(OUT / 'stalled').read_text()}")


def release() -> None:
    """Let the drive answer again, and wait for the processes that were stuck on it."""
    deadline = time.monotonic() + PATIENCE_S
    while (GROUP / "cgroup.procs").read_text().strip():
        if time.monotonic() > deadline:
            raise SystemExit(f"still there: {run('ps', '-eo', 'pid,stat,wchan:30,args')}")
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
