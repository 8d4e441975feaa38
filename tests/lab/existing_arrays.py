"""`raid create` on an array that exists, in a guest with a real udev: what it prints, what it leaves.

A part of `in_guest`. Each array is made, asked for again as it is, and then asked for otherwise.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.in_guest import OUT, drive, forked, run
from tests.lab.old_arrays import prepare

SERIALS = ("made0", "made1", "made2")
MIB = 1 << 20
SIZE = 384 * MIB
CONF = Path("/etc/mdadm/mdadm.conf")
FSTAB = Path("/etc/fstab")
OTHERS = {
    CONF: "ARRAY /dev/md/other UUID=01234567:89abcdef:01234567:89abcdef\n",
    FSTAB: "UUID=11111111-2222-4333-8444-555555555555 /srv/other xfs noauto 0 0\n",
}


@dataclass(frozen=True, slots=True)
class Case:
    """An array of the first `members` drives; `changes`: other options, or commands after a colon, by name."""

    name: str
    members: int
    words: tuple[str, ...]
    changes: dict[str, tuple[str, ...]] = field(default_factory=dict)


CASES = (
    Case(
        "stripe", 2, ("--recipe", "nvme-raid0-scratch", "--name", "stripe"),
        {
            "level": ("--level", "1"),
            "chunk": ("--chunk", "64KiB"),
            "fs": ("--fs", "ext4"),
            "mount": ("--mount", "/srv/other"),
            "one more": ("{made2}",),
            "no line": (":sed -i /^ARRAY/d /etc/mdadm/mdadm.conf",),
            "no mount": (":umount /srv/stripe",),
            "no mount line": (":sed -i /stripe/d /etc/fstab",),
            "label": (":umount /srv/stripe; xfs_admin -L other /dev/md/stripe; mount /srv/stripe",),
        },
    ),
    Case(
        "mirror", 2, ("--level", "1", "--fs", "ext4", "--name", "mirror", "--wipe", "{made0}", "--wipe", "{made1}"),
        {
            "bitmap": ("--bitmap", "none"),
            "name": ("--name", "another"),
            "failed": (":mdadm --wait /dev/md/mirror || true; mdadm /dev/md/mirror --fail {made1}p1",),
        },
    ),
    Case("swap", 3, ("--level", "5", "--fs", "swap", "--whole-drives", "--name", "swap", "--chunk", "64KiB")),
    Case("bare", 3, ("--level", "5", "--fs", "none", "--name", "0", "--spare-end", "8MiB"),
         {"room": ("--spare-end", "200MiB")}),
)  # fmt: skip


def main(names: Sequence[str]) -> None:
    prepare()
    Path("/usr/bin/dracut").unlink(missing_ok=True)  # otherwise the tools of the boot images are those of dracut
    for case in CASES:
        (OUT / f"{case.name}.json").write_text(json.dumps(run_case(case), indent=1))
    (OUT / "blank.json").write_text(json.dumps(run_blank(CASES[0]), indent=1))


def run_case(case: Case) -> dict[str, object]:
    clear()
    first = create(case)
    told: dict[str, object] = {"first": first, "state": state()}
    told["again"] = create(case)
    told["shown"] = create(case, "--dry-run", yes=False)
    told["state again"] = state()
    told["changes"] = {}
    for name, words in case.changes.items():
        before = {path: path.read_text() for path in (CONF, FSTAB)}
        for word in words if words[0].startswith(":") else ():
            run("sh", "-ec", filled(word[1:]))
        begun = state()
        said = create(case, *(() if words[0].startswith(":") else words))
        told["changes"][name] = {"said": said, "same": state() == begun}  # type: ignore[index]
        for path, text in before.items():
            path.write_text(text)
        if name == "no mount":
            run("mount", "/srv/stripe")
    return told


def run_blank(case: Case) -> dict[str, object]:
    """Make the array, then lose the content of one of its drives, and of both, as an instance store does."""
    clear()
    create(case)
    for path, line in OTHERS.items():
        path.write_text(path.read_text() + line)
    old = state()
    run("umount", "/srv/stripe")
    run("mdadm", "--stop", "/dev/md/stripe")
    told: dict[str, object] = {"old": old}
    for name, lost in (("one", SERIALS[:1]), ("both", SERIALS[1:2])):
        for serial in lost:
            blank(serial)
        files = {str(path): path.read_text() for path in (CONF, FSTAB)}
        told[name] = {"said": create(case), "files": files, "state": state()}
    return told


def create(case: Case, *more: str, yes: bool = True) -> tuple[int, str, str]:
    nodes = [drive(serial) for serial in SERIALS[: case.members]]
    words = [filled(word) for word in (*case.words, *more)]
    return forked("raid", "create", *words, *nodes, "--json", *(("--yes",) if yes else ()))


def filled(word: str) -> str:
    return word.format(**{serial: drive(serial) for serial in SERIALS})


def state() -> dict[str, str]:
    """Return what mdadm, blkid and findmnt say of the array, and the files of the system."""
    said = {str(path): path.read_text() for path in (CONF, FSTAB)}
    for node in sorted(Path("/sys/block").glob("md*")):
        said[node.name] = run("mdadm", "--detail", "--export", f"/dev/{node.name}")
        said[f"{node.name} content"] = run("blkid", "-p", f"/dev/{node.name}", fails=True)
        said[f"{node.name} mounts"] = run("findmnt", "--noheadings", "--source", f"/dev/{node.name}", fails=True)
    return said


def blank(serial: str) -> None:
    run("blkdiscard", "--force", "--zeroout", drive(serial))  # Write Zeroes; dd takes half a minute
    run("blockdev", "--rereadpt", drive(serial), fails=True)
    run("udevadm", "settle")


def clear() -> None:
    """Stop all arrays and blank the drives, and what was configured for them."""
    run("sh", "-c", "umount /srv/stripe /srv/mirror; swapoff -a", fails=True)
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}")
    for serial in SERIALS:
        blank(serial)
    CONF.write_text("HOMEHOST <system>\n")
    FSTAB.write_text("")
