"""Arrays whose NVMe members get another LBA format: made, filled and reformatted; runs in the guest.

`python -m tests.lab.reformat_cases NAME...` writes NAME.json of each case to /lab. The records of aligntool are in /lab
too, because the guest's own tree is gone after a power cut.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aligntool.change import Event, StepBegun, StepDone, array_plan, from_json
from aligntool.raid.apply import apply_record, begin
from aligntool.raid.commands import member_commands
from aligntool.raid.record import lock_state
from aligntool.raid.steps_system import Paths
from aligntool.steps import TakeOutMember
from tests.lab.in_guest import OUT, by_serial, forked, run

MIB = 1 << 20
SIZE = 256 * MIB
SERIALS = ("re0", "re1", "re2", "re3")
STATE = Path("/var/lib/aligntool")
KEY = Path("/run/key")
MAPPED = Path("/dev/mapper/inside")
GROUP = "group"
VOLUME = Path("/dev", GROUP, "files")
PLACE = Path("/mnt/reformatted")
# Ends in the middle of the second member: out and not formatted; formatted and not back; overwritten and not removed.
BACK: dict[str, Event] = {"out": StepDone(4), "back": StepDone(5), "leaving": StepBegun(4)}
# The second member is out; it is formatted and not back.
RETURNED, HALF = StepDone(4), StepDone(5)
SPEED = Path("/proc/sys/dev/raid/speed_limit_max")


@dataclass(frozen=True, slots=True)
class Case:
    """`members`: how many of the drives, the last one a spare if there is one."""

    name: str
    level: str
    members: int
    content: str  # "ext4", "xfs", "luks": an ext4 in a LUKS2, "lvm": one on the second of two volumes
    whole: bool = False
    spare: bool = False
    metadata: str = "1.2"


CASES = (
    Case("mirror", "1", 2, "ext4"),
    Case("striped", "10", 4, "xfs", whole=True),
    Case("five", "5", 3, "luks"),
    Case("ten", "10", 4, "xfs"),
    Case("volumes", "5", 3, "lvm"),
    Case("six", "6", 4, "ext4"),
    Case("spared", "5", 4, "xfs", spare=True),
    Case("old", "1", 2, "ext4", metadata="1.0"),
)


def main(names: Sequence[str]) -> None:
    prepare()
    for name in names:
        began = time.monotonic()
        word, _, how = name.partition("-")
        case = next(each for each in CASES if each.name == word)
        if how.startswith("resume"):
            said = resumed(case, cut=how == "resume+cut")
        elif how == "differing":
            said = differing(case)
        elif how.startswith("returned"):
            said = returned(case, "rollback" if how.endswith("back") else "resume")
        elif how == "half":
            said = half_rebuilt(case)
        else:
            said = roll_back_case(case, BACK[how]) if how in BACK else run_case(case, how)
        (OUT / f"{name}.json").write_text(json.dumps(said, indent=1))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def prepare() -> None:
    """Put aligntool's state into /lab; create folders, a key and modules."""
    (OUT / "state").mkdir(exist_ok=True)
    STATE.mkdir(parents=True, exist_ok=True)
    PLACE.mkdir(parents=True, exist_ok=True)
    KEY.write_text("a key")
    run("mount", "--bind", str(OUT / "state"), str(STATE))
    for module in ("raid1", "raid10", "raid456", "dm-crypt", "xfs", "ext4"):
        run("modprobe", module)


def run_case(case: Case, how: str = "") -> dict[str, object]:
    """Run a case. `how`: "cut" ends with the command in the background, its events on the console, waiting for the
    power cut.
    """
    clear()
    make(case)
    sums, tables = filled(case), tables_of(case)
    (OUT / f"{case.name}.sums").write_text(json.dumps([sums, tables]))
    refused = {} if how else refusals(case)
    words = ("raid", "reformat", "/dev/md/data", "--lba-size", "4096")
    dry = forked(*words, "--dry-run")
    if how == "cut":
        os.execvp(sys.executable, (sys.executable, "-m", "aligntool", *words, "--yes", "--json"))
    done = forked(*words, "--yes", "--json")
    return {"sums": sums, "tables_before": tables, "refused": refused, "dry": dry, "done": done, **seen(case)}


def differing(case: Case) -> dict[str, object]:
    """Make members differ before the place where an earlier comparison was interrupted."""
    clear()
    make(case)
    name, first = Path("/dev/md/data").resolve().name, f"{by_serial()[SERIALS[0]].name}p1"
    start = 512 * int(Path("/sys/block", name, "md", f"dev-{first}", "offset").read_text())
    with Path("/dev", first).open("r+b", buffering=0) as member:
        member.seek(start + 16 * MIB)
        member.write(b"differs " * 512)
        os.fsync(member.fileno())
    Path("/sys/block", name, "md/sync_min").write_text(str(128 * MIB // 512))
    return {"done": forked("raid", "reformat", "/dev/md/data", "--lba-size", "4096", "--yes", "--json")}


def roll_back_case(case: Case, last: Event) -> dict[str, object]:
    """Interrupt it after this event, in the middle of the second member, and roll it back."""
    clear()
    make(case)
    sums, tables = filled(case), tables_of(case)
    interrupted(last)
    between = Path("/proc/mdstat").read_text()
    done = forked("rollback", "--yes", "--json")
    return {"sums": sums, "before": between, "tables_before": tables, "done": done, **seen(case)}


def returned(case: Case, command: str) -> dict[str, object]:
    """Interrupt it when the second member is out, add that one again as it was, and resume it or roll it back. So it is
    after a power cut before md recorded the removal.
    """
    clear()
    make(case)
    sums, tables = filled(case), tables_of(case)
    member = interrupted(RETURNED)
    run("mdadm", "--incremental", "--run", member)
    between = Path("/proc/mdstat").read_text()
    done = forked(command, "--yes", "--json")
    found = {"sums": sums, "member": Path(member).name, "before": between, "tables_before": tables, "done": done}
    return {**found, **seen(case)}


def half_rebuilt(case: Case) -> dict[str, object]:
    """Interrupt it when the second member is formatted, remove that one in the middle of its recovery, and resume."""
    clear()
    make(case)
    sums, tables = filled(case), tables_of(case)
    member, limit = interrupted(HALF), SPEED.read_text()
    SPEED.write_text("20000")  # KiB/s, so ten seconds for a member
    run("mdadm", "/dev/md/data", "--add", member)
    time.sleep(4)
    between = Path("/proc/mdstat").read_text()
    run("mdadm", "/dev/md/data", "--fail", member)
    run("udevadm", "settle")
    while f" {Path(member).name}[" in Path("/proc/mdstat").read_text():  # busy while md ends the recovery
        run("mdadm", "/dev/md/data", "--remove", member, fails=True)
        time.sleep(0.2)
    SPEED.write_text(limit)
    superblock = run("mdadm", "--examine", member)
    done = forked("resume", "--yes", "--json")
    found = {"sums": sums, "superblock": superblock, "before": between, "tables_before": tables, "done": done}
    return {**found, **seen(case)}


def interrupted(last: Event) -> str:
    """Begin to reformat the array, end after this event, and return the member that the plan removes second."""
    code, out, err = forked(
        "raid", "reformat", "/dev/md/data", "--lba-size", "4096", "-o", "/run/plan.json", "--overwrite"
    )
    if code:
        raise SystemExit(f"raid reformat: {code}: {out}{err}")
    child = os.fork()
    if child == 0:
        paths, plan = Paths(), array_plan(from_json(Path("/run/plan.json").read_text()))
        with lock_state(paths.state):
            for event in apply_record(begin(plan, paths), plan, paths):
                if event == last:
                    step = plan.steps[last.index] if isinstance(last, StepBegun) else None
                    if isinstance(step, TakeOutMember):
                        run(*member_commands(step)[0])
                    os._exit(0)
    os.waitpid(child, 0)
    removed = [
        step.device for step in from_json(Path("/run/plan.json").read_text()).steps if isinstance(step, TakeOutMember)
    ]
    return removed[1]


def tables_of(case: Case) -> list[dict[str, object]]:
    """Return the GUIDs, types and names of the table of each drive that has one, and the places in bytes."""
    found: list[dict[str, object]] = []
    for serial in () if case.whole else SERIALS[: case.members]:
        table: dict[str, Any] = json.loads(run("sfdisk", "--json", str(by_serial()[serial])))["partitiontable"]
        size = table["sectorsize"]
        parts = [[part[word] for word in ("type", "uuid", "name")] for part in table["partitions"]]
        places = [[part[word] * size for word in ("start", "size")] for part in table["partitions"]]
        found.append({"id": table["id"], "parts": parts, "places": places})
    return found


def resumed(case: Case, *, cut: bool) -> dict[str, object]:
    """After a power cut: return what the machine shows, and the result of `resume`; `cut`: it is cut off as well."""
    run("udevadm", "settle")
    before = Path("/proc/mdstat").read_text()
    status = forked("status", "--json")
    if cut:
        os.execvp(sys.executable, (sys.executable, "-m", "aligntool", "resume", "--yes", "--json"))
    done = forked("resume", "--yes", "--json")
    sums, tables = json.loads((OUT / f"{case.name}.sums").read_text())
    found = {"sums": sums, "tables_before": tables, "before": before, "status": status, "done": done}
    return {**found, **seen(case)}


def seen(case: Case) -> dict[str, object]:
    """Return what every tool reports of an unused array, and the hashes of its files, read again."""
    name = Path("/dev/md/data").resolve().name
    drives = [by_serial()[serial] for serial in SERIALS[: case.members]]
    return {
        "after": sums_of(case),
        "detail": run("mdadm", "--detail", "--export", "/dev/md/data"),
        "mismatches": checked(name),
        "array_block": int(Path("/sys/block", name, "queue/logical_block_size").read_text()),
        "blocks": [int(Path("/sys/block", drive.name, "queue/logical_block_size").read_text()) for drive in drives],
        "tables": tables_of(case),
        "mdstat": Path("/proc/mdstat").read_text(),
        "records": [path.name for path in (STATE / "arrays").glob("*.json")],
    }


def make(case: Case) -> None:
    members = [str(by_serial()[serial]) for serial in SERIALS[: case.members]]
    if not case.whole:
        for drive in members:
            run("sfdisk", "--quiet", drive, stdin="label: gpt\nstart=1MiB,size=240MiB,type=linux-raid,name=data\n")
        run("udevadm", "settle")
        members = [f"{drive}p1" for drive in members]
    count = case.members - case.spare
    run(
        "mdadm", "--create", "/dev/md/data", "--run", f"--level={case.level}", f"--raid-devices={count}",
        *(["--spare-devices=1"] if case.spare else []), f"--metadata={case.metadata}", "--bitmap=internal",
        "--homehost=any", "--name=data", *members,
    )  # fmt: skip
    run("udevadm", "settle")  # udev makes the link
    run("mdadm", "--wait", "/dev/md/data", fails=True)
    device = "/dev/md/data"
    if case.content == "luks":
        words = ("luksFormat", "--batch-mode", "--type", "luks2", "--sector-size", "4096", "--pbkdf", "pbkdf2")
        run("cryptsetup", *words, "--pbkdf-force-iterations", "1000", device, str(KEY))
        run("cryptsetup", "open", "--key-file", str(KEY), device, MAPPED.name)
        device = str(MAPPED)
    if case.content == "lvm":
        run("pvcreate", "-q", device)
        run("vgcreate", "-q", GROUP, device)
        run("lvcreate", "-q", "-y", "-n", "swap", "-L", "16M", GROUP)
        run("lvcreate", "-q", "-y", "-n", VOLUME.name, "-l", "100%FREE", GROUP)
        run("mkswap", f"/dev/{GROUP}/swap")
        device = str(VOLUME)
    if case.content == "xfs":
        run("mkfs.xfs", "-q", "-f", "-s", "size=4096", "-d", "noalign", device)
    else:
        run("mkfs.ext4", "-q", "-F", "-b", "4096", device)
    detach(case)


def filled(case: Case) -> dict[str, str]:
    """Fill it with files of odd lengths."""
    device = attach(case)
    run("mount", device, str(PLACE))
    for number in range(12):
        (PLACE / f"file{number}").write_bytes(os.urandom(MIB + 4097 * number + number))
    found = sums()
    run("umount", str(PLACE))
    detach(case)
    return found


def sums_of(case: Case) -> dict[str, str]:
    device = attach(case)
    run(*(("fsck.ext4", "-f", "-n") if case.content != "xfs" else ("xfs_repair", "-n")), device)
    run("mount", device, str(PLACE))
    found = sums()
    run("umount", str(PLACE))
    detach(case)
    return found


def sums() -> dict[str, str]:
    files = sorted(str(file) for file in PLACE.glob("file*"))
    lines = run("sha256sum", *files).splitlines()
    return {line.split()[1]: line.split()[0] for line in lines}


def attach(case: Case) -> str:
    if case.content == "luks":
        run("cryptsetup", "open", "--key-file", str(KEY), "/dev/md/data", MAPPED.name)
        return str(MAPPED)
    if case.content == "lvm":
        run("vgchange", "-q", "-ay", GROUP)
        return str(VOLUME)
    return "/dev/md/data"


def detach(case: Case) -> None:
    if case.content == "luks":
        run("cryptsetup", "close", MAPPED.name)
    if case.content == "lvm":
        run("udevadm", "settle")
        run("vgchange", "-q", "-an", GROUP)
    run("udevadm", "settle")


def refusals(case: Case) -> dict[str, object]:
    """Return what is refused while it is in use, or if a member is missing."""
    words = ("raid", "reformat", "/dev/md/data", "--lba-size", "4096", "--dry-run", "--json")
    device = attach(case)
    run("mount", device, str(PLACE))
    mounted = forked(*words)
    run("umount", str(PLACE))
    detach(case)
    return {"mounted": mounted}


def checked(name: str) -> str:
    run("mdadm", "--action=check", f"/dev/{name}")
    while Path("/sys/block", name, "md/sync_action").read_text().strip() != "idle":
        time.sleep(0.2)
    return Path("/sys/block", name, "md/mismatch_cnt").read_text().strip()


def clear() -> None:
    """Stop all arrays and blank the drives, with blocks of 512 bytes."""
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}")
    for drive in by_serial().values():
        run("nvme", "format", str(drive), "--lbaf=0", "--ses=0", "--force")
    run("udevadm", "settle")


if __name__ == "__main__":
    main(sys.argv[1:])
