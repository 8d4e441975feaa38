"""`raid create --zero-members` and `--fast-sync` on empty NVMe drives, made, interrupted and refused; in the guest.

`python -m tests.lab.first_sync NAME...` writes NAME.json of each case to /lab. Each drive has random bytes where no
sample of an empty drive is read, others on each: an array of such members that is only assumed to be clean is not.
md's limit for all arrays is so low that a synchronisation still runs when the last step of a plan begins.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from aligntool.change import ArrayPlan, Progress, array_plan, from_json
from aligntool.raid.apply import apply_record, begin
from aligntool.raid.commands import command_of
from aligntool.raid.record import lock_state
from aligntool.raid.steps_system import Paths
from aligntool.steps import MakeArray
from tests.lab import old_arrays
from tests.lab.in_guest import OUT, drive, forked, run

MIB = 1 << 20
SIZE = 512 * MIB
EMPTY = ("ze0", "ze1", "ze2", "ze3")
SCSI = "sc0"
# Between the places that are read in every 16 MiB of the drive, and of the data area that begins 4 MiB into it.
HIDDEN = (98 * MIB, 4 * MIB)
STATE = Path("/var/lib/aligntool")
LEVELS = {"1": "xfs", "10": "ext4", "5": "ext4", "6": "xfs"}
LIMIT_KIB = 1000
DEVICE = "/dev/md/made"
PLACE = Path("/srv/made")


def main(names: Sequence[str]) -> None:
    (OUT / "state").mkdir(exist_ok=True)
    STATE.mkdir(parents=True, exist_ok=True)
    run("mount", "--bind", str(OUT / "state"), str(STATE))
    old_arrays.prepare()
    Path("/usr/bin/dracut").unlink(missing_ok=True)  # otherwise the tools of the boot images are those of dracut
    for module in ("xfs", "ext4"):
        run("modprobe", module)
    Path("/proc/sys/dev/raid/speed_limit_max").write_text(str(LIMIT_KIB))
    cases: dict[str, Callable[[], dict[str, object]]] = {
        **{f"raid{level}": partial(made, level) for level in LEVELS},
        "control": control,
        "refused": refused,
        "resumed": lambda: interrupted("resume"),
        "undone": lambda: interrupted("rollback"),
        "reused": reused,
        "fast": fast,
        "killed": partial(killed, "resume"),
        "fast-undone": partial(killed, "rollback"),
    }
    for name in names:
        began = time.monotonic()
        said = cases[name]()
        (OUT / f"{name}.json").write_text(json.dumps(said, indent=1))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def words(level: str, kind: str) -> list[str]:
    mounted = [] if kind != "none" else ["--mount", "none"]
    return ["--level", level, "--fs", kind, "--name", "made", "--spare-end", "8MiB", *mounted]


def nodes() -> list[str]:
    return [drive(serial) for serial in EMPTY]


def made(level: str) -> dict[str, object]:
    clear()
    asked = [*words(level, LEVELS[level]), "--zero-members", *nodes()]
    dry = forked("raid", "create", *asked, "--dry-run")
    kept = [has_hidden(node) for node in nodes()]
    done = forked("raid", "create", *asked, "--yes", "--json")
    found: dict[str, object] = {"dry": dry, "kept": kept, "done": done, **seen()}
    found["again"] = forked("raid", "create", *asked, "--yes", "--json")
    file = PLACE / "file"
    file.write_bytes(os.urandom(16 * MIB))
    before = digest(file)
    run("sync")
    found["later"] = mismatches()
    member = f"{nodes()[1]}p1"
    run("mdadm", DEVICE, "--fail", member)
    run("sysctl", "-q", "vm.drop_caches=3")
    found["degraded"] = digest(file) == before
    return found


def control() -> dict[str, object]:
    """Make an array of such drives with md alone, assumed to be clean, and compare its members."""
    clear()
    shape = ("--level=5", "--raid-devices=4", "--chunk=64K", "--data-offset=4096K", "--bitmap=none")
    run("mdadm", "--create", DEVICE, "--run", *shape, "--assume-clean", *nodes())
    return {"mismatches": mismatches()}


def refused() -> dict[str, object]:
    """Ask for members on a drive without that command, and on one with data."""
    clear()
    asked = ("raid", "create", *words("1", "none"), "--zero-members", "--yes", "--json")
    (scsi,) = Path("/sys/block").glob("sd*")
    other = forked(*asked, nodes()[0], f"/dev/{scsi.name}")
    striped = forked("raid", "create", *words("0", "none"), "--zero-members", "--yes", "--json", *nodes())
    full = nodes()[1]
    run("mkfs.ext4", "-q", "-F", full)
    before = content(full)
    held, wiped = forked(*asked, *nodes()[:2]), forked(*asked, *nodes()[:2], "--wipe", full)
    return {"other": other, "striped": striped, "held": held, "wiped": wiped, "kept": content(full) == before}


def interrupted(command: str) -> dict[str, object]:
    """Interrupt it after each event of the step that zeroes the members and makes the array."""
    found: list[dict[str, object]] = []
    for events, is_made in ((1, False), (2, False), (3, False), (4, False), (4, True), (5, False)):
        clear()
        event = cut_after(events, is_made=is_made)
        between = [*Path("/sys/block").glob("md*")] != []
        done = forked(command, "--yes", "--json")
        left: dict[str, object] = {"records": records()}
        if command == "resume":
            left = seen()
        else:
            left["tables"] = [run("wipefs", "--no-act", node) for node in nodes()]
        found.append({"event": event, "array": between, "done": done, **left})
    return {"cuts": found}


def reused() -> dict[str, object]:
    """Interrupt it before the array is made, and use a member for something else."""
    clear()
    cut_after(1)
    other = f"{nodes()[2]}p1"
    with Path(other).open("r+b") as device:
        device.seek(64 * MIB)
        device.write(os.urandom(32 * MIB))
        os.fsync(device.fileno())
    before = content(other)
    stopped = forked("resume", "--yes", "--json")
    undone = forked("rollback", "--yes", "--json")
    return {"stopped": stopped, "undone": undone, "kept": content(other) == before, "records": records()}


def fast() -> dict[str, object]:
    """Synchronise a RAID5 without md's limit."""
    clear()
    done = forked("raid", "create", *words("5", "ext4"), "--fast-sync", *nodes(), "--yes", "--json")
    return {"done": done, "limit": limit(), **seen()}


def saved_plan(*asked: str) -> ArrayPlan:
    """Plan an array by the command, and return the plan that it saved."""
    file = "/run/plan.json"
    code, out, err = forked("raid", "plan", *asked, "-o", file, "--overwrite")
    if code:
        raise SystemExit(f"raid plan: {code}: {out}{err}")
    return array_plan(from_json(Path(file).read_text()))


def killed(command: str) -> dict[str, object]:
    """End when md synchronises without its limit, and continue."""
    clear()
    plan = saved_plan(*words("1", "none"), "--fast-sync", *nodes())
    child = os.fork()
    if child == 0:
        paths = Paths()
        with lock_state(paths.state):
            for event in apply_record(begin(plan, paths), plan, paths):
                if isinstance(event, Progress):
                    os._exit(0)
        os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit("md had synchronised it before")
    lifted = limit()
    done = forked(command, "--yes", "--json")
    found: dict[str, object] = {"lifted": lifted, "done": done, "records": records()}
    if command == "resume":
        return {**found, "limit": limit(), **seen()}
    return {**found, "arrays": [path.name for path in Path("/sys/block").glob("md*")]}


def limit() -> str:
    return Path("/sys/block", Path(DEVICE).resolve().name, "md/sync_speed_max").read_text().strip()


def cut_after(events: int, *, is_made: bool = False) -> str:
    """Begin to make a RAID5, and end after this number of events of the step; return the last one. `is_made`: mdadm
    has made the array, which the record does not have yet.
    """
    plan = saved_plan(*words("5", "none"), "--zero-members", *nodes())
    child = os.fork()
    if child == 0:
        paths = Paths()
        made = plan.of(MakeArray)[0]
        with lock_state(paths.state):
            before = 2 * plan.steps.index(made)  # the steps before have no other events than begin and end
            *_, last = islice(apply_record(begin(plan, paths), plan, paths), before + events)
            (OUT / "last").write_text(repr(last))
            if is_made:
                run(*command_of(made))
            os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit("it was not interrupted")
    run("udevadm", "settle")
    return (OUT / "last").read_text()


def records() -> list[str]:
    return [path.name for path in (STATE / "arrays").glob("*.json")]


def seen() -> dict[str, object]:
    """Return what md itself reports of the array, before and after it compared all members."""
    name = Path(DEVICE).resolve().name
    first = {word: Path("/sys/block", name, "md", word).read_text().strip() for word in ("sync_action", "resync_start")}
    return {
        **first,
        "detail": run("mdadm", "--detail", DEVICE),
        "mismatches": mismatches(),
        "hidden": [has_hidden(node) for node in nodes()],
        "records": records(),
    }


def mismatches() -> int:
    """Have md read and compare all members; return the number of sectors that differ."""
    folder = Path("/sys/block", Path(DEVICE).resolve().name, "md")
    (folder / "sync_speed_max").write_text("1000000")
    (folder / "sync_action").write_text("check")
    run("mdadm", "--wait", DEVICE, fails=True)
    (folder / "sync_speed_max").write_text("system")
    return int((folder / "mismatch_cnt").read_text())


def has_hidden(node: str) -> bool:
    """Return whether any of the random bytes are left on the drive."""
    start, length = HIDDEN
    run("blockdev", "--flushbufs", node)
    with Path(node).open("rb") as device:
        device.seek(start)
        return device.read(length).strip(b"\0") != b""


def content(device: str) -> str:
    run("blockdev", "--flushbufs", device)
    return digest(Path(device))


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear() -> None:
    """Stop the array, and blank the drives, except for the random bytes."""
    run("umount", str(PLACE), fails=True)
    for array in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{array.name}")
    for record in (STATE / "arrays").glob("*.json"):
        record.unlink()
    start, length = HIDDEN
    for node in nodes():
        parts = [f"/dev/{part.parent.name}" for part in Path("/sys/block", Path(node).name).glob("*/partition")]
        run("wipefs", "--all", "--force", *parts, node)
        run("blkdiscard", "--force", "--zeroout", node)
        with Path(node).open("r+b") as device:
            device.seek(start)
            device.write(os.urandom(length))
            os.fsync(device.fileno())
    run("udevadm", "settle")
    for node in nodes():
        run("blockdev", "--rereadpt", node)
    run("udevadm", "settle")
    old_arrays.CONF.parent.mkdir(exist_ok=True)
    old_arrays.CONF.write_text("HOMEHOST <system>\n")
    Path("/etc/fstab").write_text("")


if __name__ == "__main__":
    main(sys.argv[1:])
