"""`raid ensure` in a guest with a real udev: on drives as they are, blank, one blank, one more, with foreign content.

A part of `in_guest`. The drives are selected by their names in /dev/disk/by-id, as no other drive is to be touched.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.existing_arrays import CONF, FSTAB, OTHERS, blank, state
from tests.lab.in_guest import OUT, drive, forked, run
from tests.lab.old_arrays import cut, prepare

SERIALS = ("kept0", "kept1", "kept2")
MIB = 1 << 20
SIZE = 640 * MIB
FOLDER = Path("/etc/aligntool/arrays.d")
FILE = """format = 1
kind = "ensure"
level = "{level}"
filesystem = "xfs"

[drives]
select = "all-unused"
by_id = [{names}]
{more}
"""
ONE = 'one = "raid0"'
NONE = 'none = "nothing"'


def main(names: Sequence[str]) -> None:
    prepare()
    Path("/usr/bin/dracut").unlink(missing_ok=True)
    for serial in SERIALS:
        blank(serial)
    CONF.write_text(f"HOMEHOST <system>\n{OTHERS[CONF]}")
    FSTAB.write_text(OTHERS[FSTAB])
    told: dict[str, object] = {}
    for name, step in STEPS.items():
        told[name] = step()
        print(f"{name}: {told[name]['said'][0]}", flush=True)  # type: ignore[index]
    (OUT / "ensured.json").write_text(json.dumps(told, indent=1))


def ensure(name: str, serials: Sequence[str], *more: str, level: str = "raid0", yes: bool = True) -> dict[str, object]:
    """Write the file, run the command, and return what it said and what is there then."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = ", ".join(f'"nvme-*_{serial}"' for serial in serials)
    (FOLDER / f"{name}.toml").write_text(FILE.format(level=level, names=names, more="\n".join(more)))
    before, began = state(), os.times()
    said = forked("raid", "ensure", name, "--json", "--yes" if yes else "--dry-run")
    ended = os.times()
    used = ended.children_user + ended.children_system - began.children_user - began.children_system
    return {"said": said, "before": before, "after": state(), "used_s": used}


def stop(name: str) -> None:
    run("umount", f"/srv/{name}")
    run("mdadm", "--stop", f"/dev/md/{name}")


def all_blank() -> dict[str, object]:
    stop("scratch")
    for serial in SERIALS[:2]:
        blank(serial)
    return ensure("scratch", SERIALS[:2])


def one_blank() -> dict[str, object]:
    stop("scratch")
    blank(SERIALS[1])
    return ensure("scratch", SERIALS[:2], ONE)


def after_cut() -> dict[str, object]:
    """Cut the making of the array off after three steps."""
    for serial in SERIALS[:2]:
        blank(serial)
    words = ("--level", "0", "--name", "scratch", "--system", "debian")
    cut(*words, *(drive(serial) for serial in SERIALS[:2]), done=3)
    return ensure("scratch", SERIALS[:2])


def foreign(*more: str) -> dict[str, object]:
    """Put a file system of somebody else on the third drive."""
    node = drive(SERIALS[2])
    run("umount", "/srv/single", fails=True)
    run("mdadm", "--stop", "/dev/md/single", fails=True)
    blank(SERIALS[2])
    run("mkfs.ext4", "-q", "-F", node)
    run("udevadm", "settle")
    told = ensure("other-content", SERIALS[2:], ONE, *more)
    return {**told, "content": run("blkid", "-p", node, fails=True)}


def named() -> dict[str, object]:
    """Select a drive with a file system by its name alone."""
    text = FILE.replace('select = "all-unused"\n', "")
    node = drive(SERIALS[2])
    (FOLDER / "named.toml").write_text(text.format(level="raid0", names=f'"nvme-*_{SERIALS[2]}"', more=ONE))
    said = forked("raid", "ensure", "named", "--json", "--yes")
    return {"said": said, "content": run("blkid", "-p", node, fails=True)}


STEPS: dict[str, Callable[[], dict[str, object]]] = {
    "shown": lambda: ensure("scratch", SERIALS[:2], yes=False),
    "made": lambda: ensure("scratch", SERIALS[:2]),
    "again": lambda: ensure("scratch", SERIALS[:2]),
    "one more": lambda: ensure("scratch", SERIALS),
    "not selected": lambda: ensure("scratch", SERIALS[:1]),
    "too few": lambda: ensure("scratch", SERIALS[:2], "at_least = 3"),
    "too many": lambda: ensure("scratch", SERIALS[:2], "at_most = 1"),
    "another level": lambda: ensure("scratch", SERIALS[:2], level="raid1"),
    "all blank": all_blank,
    "one blank": one_blank,
    "cut": after_cut,
    "none": lambda: ensure("nothing", ("absent",), NONE),
    "none is an error": lambda: ensure("nothing", ("absent",)),
    "one is an error": lambda: ensure("single", SERIALS[2:]),
    "single": lambda: ensure("single", SERIALS[2:], ONE, level="raid1"),
    "single again": lambda: ensure("single", SERIALS[2:], ONE, level="raid1"),
    "foreign": foreign,
    "named": named,
    "wiped": lambda: foreign('wipe = "foreign"', f'serials = ["{SERIALS[2]}"]'),
}
