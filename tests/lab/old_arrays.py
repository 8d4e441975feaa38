"""Arrays created over earlier arrays, in a guest with a real udev: what aligntool and md report of each.

A part of `in_guest`, which passes it the names of cases. It writes one JSON file per case.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aligntool.change import StepDone, array_plan, from_json
from aligntool.raid.apply import apply_record, begin
from aligntool.raid.record import lock_state
from aligntool.raid.steps_drives import lock_members
from aligntool.raid.steps_system import Paths
from tests.lab.in_guest import OUT, drive, forked, run

SERIALS = ("old0", "old1", "old2")
MIB = 1 << 20
SIZE = 64 * MIB
SAME = (MIB, 61 * MIB)  # where aligntool puts a member of such a drive; tests compare it with its plan
OTHER = (5 * MIB, 40 * MIB)
CONF = Path("/etc/mdadm/mdadm.conf")
IMAGES = """#!/bin/sh
mkdir -p "$2/etc/mdadm" && cp /etc/mdadm/mdadm.conf "$2/etc/mdadm/"
"""


@dataclass(frozen=True, slots=True)
class Case:
    """`old`: the place of the earlier members: "whole" drives, partitions at the "same" place or at "other" ones."""

    level: str
    metadata: str
    old: str
    new: str  # "partitions", "whole", or "taken": the old partitions are used as they are
    how: str = ""  # "backwards", "cut" after the first member, or cut, and then "another" array on the others

    @property
    def name(self) -> str:
        return "-".join(word for word in (self.level, self.metadata, self.old, self.new, self.how) if word)


def named(name: str) -> Case:
    return Case(*name.split("-"))


def main(names: Sequence[str]) -> None:
    prepare()
    for name in names:
        began = time.monotonic()
        said = run_case(named(name))
        (OUT / f"{name}.json").write_text(json.dumps(said, indent=1))
        print(f"{name}: exit {said['code']}, {time.monotonic() - began:.0f} s", flush=True)


def prepare() -> None:
    """Replace the boot image tools: in this guest an image with mdadm.conf is present at once."""
    for module in ("raid0", "raid1", "raid10", "raid456"):
        run("modprobe", module)
    run("umount", "/etc/fstab", fails=True)
    Path("/etc/fstab").touch()
    Path("/boot").mkdir(exist_ok=True)
    for kind in ("initrd.img", "vmlinuz"):
        Path(f"/boot/{kind}-{os.uname().release}").touch()
    for program, text in (("/usr/sbin/update-initramfs", "#!/bin/sh\n"), ("/usr/bin/unmkinitramfs", IMAGES)):
        Path(program).unlink(missing_ok=True)
        Path(program).write_text(text)
        Path(program).chmod(0o755)


def run_case(case: Case) -> dict[str, object]:
    clear()
    old = old_array(case)
    names = old if case.new == "taken" else list(drives())
    order = names[::-1] if case.how == "backwards" else names
    words = ["--level", "1", "--name", "new", "--fs", "none", "--mount", "none", "--system", "debian"]
    words += [] if case.new == "taken" else ["--spare-end", "1MiB"]
    words += ["--whole-drives"] if case.new == "whole" else []
    words += [word for name in order for word in ("--wipe", name)]
    before = run("mdadm", "--examine", "--export", old[0])
    left = ""
    if case.how in ("cut", "another"):
        left = cut(*words, *order)
        if case.how == "another":
            other_array(old[1:])
        code, out, err = forked("resume", "--yes", "--json")
    else:
        code, out, err = forked("raid", "create", *words, *order, "--yes", "--json")
    run("udevadm", "trigger", "--action=add", "--subsystem-match=block")
    run("udevadm", "settle")
    return {
        "code": code,
        "out": out,
        "err": err,
        "old": before,
        "left": left,
        "mdstat": Path("/proc/mdstat").read_text(),
        "examined": {node: examined(node) for node in nodes()},
        "records": [path.name for path in Path("/var/lib/aligntool/arrays").glob("*.json")],
    }


@cache
def drives() -> tuple[str, ...]:
    return tuple(drive(serial) for serial in SERIALS)


def nodes() -> list[str]:
    return [node for name in drives() for node in (name, f"{name}p1") if Path(node).is_block_device()]


def examined(node: str) -> str:
    """Return the UUID of the array whose superblock mdadm finds there."""
    said = run("mdadm", "--examine", "--export", node, fails=True).splitlines()
    return next((line.partition("=")[2] for line in said if line.startswith("MD_UUID=")), "")


def cut(*words: str, done: int = 1) -> str:
    """Cut the creation off after this many steps (members first), like a power cut; return what udev assembles."""
    Path("/run/plan.json").unlink(missing_ok=True)
    code, out, err = forked("raid", "plan", *words, "-o", "/run/plan.json")
    if code:
        raise SystemExit(f"raid plan: {code}: {out}{err}")
    child = os.fork()
    if child == 0:
        paths, plan = Paths(), array_plan(from_json(Path("/run/plan.json").read_text()))
        with lock_state(paths.state), lock_members(plan.steps) as locked:
            for event in apply_record(begin(plan, paths), plan, paths, locked):
                done -= isinstance(event, StepDone)
                if not done:
                    os._exit(0)
    os.waitpid(child, 0)
    run("udevadm", "trigger", "--action=add", "--subsystem-match=block")
    run("udevadm", "settle")
    return Path("/proc/mdstat").read_text()


def other_array(members: Sequence[str]) -> None:
    """Create an array as a user might from the members that were not touched yet."""
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}")
    run("mdadm", "--zero-superblock", *members)
    run("mdadm", "--create", "/dev/md/other", "--run", "--level=1", "--raid-devices=3", *members, "missing")
    run("udevadm", "settle")


def clear() -> None:
    """Stop all arrays and blank the drives."""
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}")
    for name in drives():
        run("dd", "if=/dev/zero", f"of={name}", "bs=1M", "status=none", fails=True)
        run("blockdev", "--rereadpt", name, fails=True)
    run("udevadm", "settle")
    CONF.write_text("HOMEHOST <system>\n")
    for record in Path("/var/lib/aligntool/arrays").glob("*.json"):
        record.unlink()


def old_array(case: Case) -> list[str]:
    """Create an array, fill its beginning, and stop it, as before its drives are reused."""
    members = list(drives())
    if case.old != "whole":
        start, length = SAME if case.old == "same" else OTHER
        for name in drives():
            table = f"label: gpt\nstart={start // 512},size={length // 512},type=linux-raid\n"
            run("sfdisk", "--quiet", name, stdin=table)
        run("udevadm", "settle")
        members = [f"{name}p1" for name in drives()]
    run(
        "mdadm", "--create", "/dev/md/old", "--run", f"--level={case.level}", "--raid-devices=3",
        f"--metadata={case.metadata}", "--assume-clean", *members,
    )  # fmt: skip
    run("udevadm", "settle")
    run("mdadm", "--stop", "/dev/md/old")
    run("udevadm", "settle")
    return members
