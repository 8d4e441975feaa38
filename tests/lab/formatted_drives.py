"""`raid create --lba-size` and `layout --lba-size` on empty NVMe drives, made, interrupted and refused; runs in the
guest.

`python -m tests.lab.formatted_drives NAME...` writes NAME.json of each case to /lab. The records of aligntool are in
/lab, too, because the guest's own tree is gone after a power cut.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aligntool.change import StepDone, array_plan, from_json
from aligntool.raid.apply import apply_record, begin
from aligntool.raid.record import lock_state
from aligntool.raid.steps_format import format_for_table
from aligntool.raid.steps_system import Paths
from tests.lab import old_arrays
from tests.lab.in_guest import OUT, drive, forked, run

MIB = 1 << 20
SIZE = 512 * MIB
EMPTY = ("fo0", "fo1")
FULL = "fo2"
SERIALS = (*EMPTY, FULL)
STATE = Path("/var/lib/aligntool")
CONF = Path("/etc/mdadm/mdadm.conf")
WORDS = ("--level", "1", "--fs", "xfs", "--name", "made", "--spare-end", "8MiB", "--lba-size", "4096")
FIRST_FORMATTED = StepDone(0)
TABLE = ("--part", "64MiB:esp", "--part", "rest:linux", "--lba-size", "4096")


def main(names: Sequence[str]) -> None:
    (OUT / "state").mkdir(exist_ok=True)
    STATE.mkdir(parents=True, exist_ok=True)
    run("mount", "--bind", str(OUT / "state"), str(STATE))
    old_arrays.prepare()
    Path("/usr/bin/dracut").unlink(missing_ok=True)  # otherwise the tools of the boot images are those of dracut
    for module in ("raid1", "xfs", "ext4"):
        run("modprobe", module)
    cases = {
        "made": made,
        "refused": refused,
        "undone": lambda: continued("rollback"),
        "continued": lambda: continued("resume"),
        "reused": reused,
        "table": table,
        "cut": cut,
        "after-cut": after_cut,
    }
    for name in names:
        began = time.monotonic()
        said = cases[name]()
        (OUT / f"{name}.json").write_text(json.dumps(said, indent=1))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def made() -> dict[str, object]:
    clear()
    nodes = [drive(serial) for serial in EMPTY]
    dry = forked("raid", "create", *WORDS, *nodes, "--dry-run", "-v")
    untouched = blocks()
    done = forked("raid", "create", *WORDS, *nodes, "--yes", "--json")
    again = forked("raid", "create", *WORDS, *nodes, "--yes", "--json")
    other = forked("raid", "create", *WORDS[:-1], "512", *nodes, "--dry-run", "--json")
    return {"dry": dry, "untouched": untouched, "done": done, "again": again, "other": other, **seen()}


def refused() -> dict[str, object]:
    """Ask for an array of an empty drive and one with a file system, and of one with unrecognised data."""
    clear()
    full = drive(FULL)
    run("mkfs.ext4", "-q", "-F", full)
    before = digest(full)
    words = ("raid", "create", *WORDS, drive(EMPTY[0]), full, "--yes", "--json")
    plain, wiped = forked(*words), forked(*words, "--wipe", full)
    kept = digest(full) == before
    run("wipefs", "--all", full)
    before = digest(full)
    unknown, unknown_wiped = forked(*words), forked(*words, "--wipe", full)
    kept = kept and digest(full) == before
    run("dd", "if=/dev/zero", f"of={full}", "bs=1M", "status=none", fails=True)
    return {"said": [plain, wiped, unknown, unknown_wiped], "kept": kept, "blocks": blocks()}


def continued(command: str) -> dict[str, object]:
    """Interrupt it when one of two drives is formatted."""
    clear()
    interrupted()
    between = blocks()
    done = forked(command, "--yes", "--json")
    found: dict[str, object] = {"between": between, "done": done, "blocks": blocks(), "records": records()}
    return found if command == "rollback" else {**found, **seen()}


def reused() -> dict[str, object]:
    """Interrupt it when one of two drives is formatted, and use the other one for something else."""
    clear()
    interrupted()
    other = drive(EMPTY[1])
    with Path(other).open("r+b") as device:
        device.seek(32 * MIB)
        device.write(os.urandom(16 * MIB))
    before = digest(other)
    stopped = forked("resume", "--yes", "--json")
    between = blocks()
    undone = forked("rollback", "--yes", "--json")
    found = {"stopped": stopped, "between": between, "undone": undone, "kept": digest(other) == before}
    run("dd", "if=/dev/zero", f"of={other}", "bs=1M", "status=none", fails=True)
    return {**found, "records": records()}


def table() -> dict[str, object]:
    """Make a table on a drive that is formatted first: refused, by a saved plan, interrupted, and once more."""
    clear()
    empty, full = drive(EMPTY[0]), drive(FULL)
    run("mkfs.ext4", "-q", "-F", full)
    before = digest(full)
    refusals = [forked("layout", full, *TABLE, *more, "--yes", "--json") for more in ((), ("--wipe", full))]
    kept = digest(full) == before
    run("dd", "if=/dev/zero", f"of={full}", "bs=1M", "status=none", fails=True)
    plan = forked("plan", "layout", empty, *TABLE, "-v", "-o", "/run/table.json", "--overwrite")
    write_at(empty, 32 * MIB, os.urandom(16 * MIB))
    stale = forked("apply", "/run/table.json", "--yes", "--json")
    untouched = blocks()
    write_at(empty, 32 * MIB, bytes(16 * MIB))
    formatted_only("/run/table.json")
    between = blocks()
    again = forked("apply", "/run/table.json", "--yes", "--json")
    done = forked("layout", empty, *TABLE, "--yes", "--json")
    repeated = forked("layout", empty, *TABLE, "--yes", "--json")
    by_sfdisk = json.loads(run("sfdisk", "--json", empty))["partitiontable"]
    run("sfdisk", "--verify", empty)
    run("nvme", "format", drive(EMPTY[1]), "--lbaf=0", "--ses=0", "--force")
    other = drive(EMPTY[1])
    forked("plan", "layout", other, *TABLE, "-o", "/run/table.json", "--overwrite")
    applied = forked("apply", "/run/table.json", "--yes", "--json")
    found = {"refusals": refusals, "kept": kept, "plan": plan, "stale": stale, "untouched": untouched}
    found |= {"between": between, "again": again, "done": done, "repeated": repeated, "table": by_sfdisk}
    return {**found, "applied": applied, "blocks": blocks()}


def write_at(device: str, at: int, data: bytes) -> None:
    with Path(device).open("r+b") as file:
        file.seek(at)
        file.write(data)


def formatted_only(plan: str) -> None:
    """Apply the plan of a table, and end when the drive is formatted."""
    if FIRST_FORMATTED not in list(format_for_table(from_json(Path(plan).read_text()))):
        raise SystemExit("the drive was not formatted")
    run("udevadm", "settle")


def cut() -> dict[str, object]:
    """Interrupt it in the same place, and wait for the power cut."""
    clear()
    interrupted()
    (OUT / "between.json").write_text(json.dumps(blocks()))
    os.sync()
    (OUT / "cut").touch()
    time.sleep(600)
    return {}


def after_cut() -> dict[str, object]:
    run("udevadm", "settle")
    CONF.parent.mkdir(exist_ok=True)
    before = blocks()
    status = forked("status", "--json")
    done = forked("resume", "--yes", "--json")
    return {"between": before, "status": status, "done": done, "blocks": blocks(), **seen()}


def interrupted() -> None:
    """Begin to make the array, and end when the first drive is formatted."""
    nodes = [drive(serial) for serial in EMPTY]
    code, out, err = forked("raid", "plan", *WORDS, *nodes, "-o", "/run/plan.json", "--overwrite")
    if code:
        raise SystemExit(f"raid plan: {code}: {out}{err}")
    child = os.fork()
    if child == 0:
        paths, plan = Paths(), array_plan(from_json(Path("/run/plan.json").read_text()))
        with lock_state(paths.state):
            for event in apply_record(begin(plan, paths), plan, paths):
                if event == FIRST_FORMATTED:
                    os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit("the first drive was not formatted")
    run("udevadm", "settle")


def blocks() -> list[int]:
    """Return the size of the logical blocks of each drive."""
    names = [Path(drive(serial)).name for serial in SERIALS]
    return [int(Path("/sys/block", name, "queue/logical_block_size").read_text()) for name in names]


def records() -> list[str]:
    return [path.name for path in (STATE / "arrays").glob("*.json")]


def seen() -> dict[str, object]:
    """Return what other tools report of the array, its members and its file system."""
    name = Path("/dev/md/made").resolve().name
    tables = [json.loads(run("sfdisk", "--json", drive(serial)))["partitiontable"] for serial in EMPTY]
    file = Path("/srv/made/file")
    file.write_bytes(b"kept" * MIB)
    run("sync")
    return {
        "array_block": int(Path("/sys/block", name, "queue/logical_block_size").read_text()),
        "detail": run("mdadm", "--detail", "--export", "/dev/md/made"),
        "sectors": [table["sectorsize"] for table in tables],
        "ends": [table["lastlba"] for table in tables],
        "xfs": run("xfs_info", "/srv/made"),
        "mount": run("findmnt", "--noheadings", "/srv/made"),
        "blocks": blocks(),
        "records": records(),
    }


def digest(device: str) -> str:
    run("blockdev", "--flushbufs", device)
    with Path(device).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear() -> None:
    """Stop the array, and blank the drives with blocks of 512 bytes."""
    run("umount", "/srv/made", fails=True)
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}")
    for serial in SERIALS:
        run("nvme", "format", drive(serial), "--lbaf=0", "--ses=0", "--force")
    run("udevadm", "settle")
    CONF.parent.mkdir(exist_ok=True)
    CONF.write_text("HOMEHOST <system>\n")
    Path("/etc/fstab").write_text("")


if __name__ == "__main__":
    main(sys.argv[1:])
