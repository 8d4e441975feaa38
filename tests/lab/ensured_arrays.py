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
{top}

[drives]
select = "all-unused"
by_id = [{names}]
{more}
"""
ONE = 'one = "raid0"'
PLAIN = 'one = "filesystem"'
DIRECTORIES = """owner = "1"
group = "12"
mode = "2770"
bind = [{from = "pods", to = "/opt/pods"}]"""
RECIPE = Path("/run/directories.toml")
# How many steps are left after the one before which the making is cut off, and whether it is rolled back then.
CUTS = (
    *((0, True), (1, False), (2, True), (3, False), (4, True), (5, False), (6, True), (7, False), (8, True)),
    *((0, False), (3, True)),
)
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


def ensure(
    name: str, serials: Sequence[str], *more: str, level: str = "raid0", yes: bool = True, top: str = ""
) -> dict[str, object]:
    """Write the file, run the command, and return what it said and what is there then."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = ", ".join(f'"nvme-*_{serial}"' for serial in serials)
    (FOLDER / f"{name}.toml").write_text(FILE.format(level=level, names=names, more="\n".join(more), top=top))
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
    (FOLDER / "named.toml").write_text(text.format(level="raid0", names=f'"nvme-*_{SERIALS[2]}"', more=ONE, top=""))
    said = forked("raid", "ensure", "named", "--json", "--yes")
    return {"said": said, "content": run("blkid", "-p", node, fails=True)}


def settings() -> dict[str, object]:
    """Give the keys of the array that is there on the command line, and another level."""
    found = []
    names = ", ".join(f'"nvme-*_{serial}"' for serial in SERIALS[:2])
    for level in ("raid0", "raid1"):
        words = [f"level={level}", "filesystem=xfs", "drives.select=all-unused", f"drives.by_id=[{names}]"]
        options = [word for setting in words for word in ("--set", setting)]
        found.append(forked("raid", "ensure", "scratch", *options, "--json", "--yes"))
    return {"said": found[0], "differs": found[1]}


def free(*serials: str) -> None:
    """Unmount and stop everything on these drives, and blank them."""
    for place in ("/opt/pods", "/srv/dirs", "/srv/plain", "/srv/scratch", "/srv/other-content", "/srv/single"):
        run("umount", place, fails=True)
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}", fails=True)
    if serials and Path("/opt/pods").exists():
        Path("/opt/pods").rmdir()
    for serial in serials:
        blank(serial)


def with_directories() -> dict[str, object]:
    return {**ensure("dirs", SERIALS[:2], top=DIRECTORIES), **directories()}


def directories() -> dict[str, object]:
    """Return who owns the mount, what is mounted elsewhere, and their lines in fstab."""
    return {
        "access": run("stat", "-c", "%u %g %a", "/srv/dirs", fails=True).strip(),
        "bound": run("findmnt", "-n", "-o", "FSROOT", "--mountpoint", "/opt/pods", fails=True).strip(),
        "table": FSTAB.read_text(),
        "folder": Path("/opt/pods").exists(),
    }


def changed_directories() -> dict[str, object]:
    run("chmod", "0755", "/srv/dirs")
    run("umount", "/opt/pods")
    said = with_directories()
    run("chmod", "2770", "/srv/dirs")
    run("mount", "/opt/pods")
    return said


def new_directories() -> dict[str, object]:
    free(*SERIALS[:2])
    return with_directories()


def cut_directories() -> dict[str, object]:
    """Cut the making off before each of its last steps, and lose every mount and the array, as in a reboot: finish it,
    or roll it back.
    """
    head = 'format = 1\nkind = "raid"\nsummary = "a"\nsource = "b"\nlevel = "raid0"\nname = "dirs"\nfilesystem = "xfs"'
    RECIPE.write_text(f"{head}\n{DIRECTORIES}\n")
    found = []
    for left, back in CUTS:
        free(*SERIALS[:2])
        CONF.write_text(f"HOMEHOST <system>\n{OTHERS[CONF]}")
        FSTAB.write_text(OTHERS[FSTAB])
        step = cut_before_last(left)
        free()
        said = forked("rollback", "dirs", "--yes") if back else forked("raid", "ensure", "dirs", "--yes", "--json")
        if not back:
            run("mount", "--all", fails=True)  # as a start does with the steps that were done before the cut
        found.append({"back": back, "said": said, "step": step, **directories()})
    return {"said": found[0]["said"], "cuts": found}


def cut_before_last(left: int) -> str:
    """Cut the making off before the last step, or one that is so many steps before it; return its kind."""
    words = ("--recipe", str(RECIPE), "--system", "debian", *(drive(serial) for serial in SERIALS[:2]))
    forked("raid", "plan", *words, "--json")
    steps = json.loads((OUT / "forked").read_text())["plan"]["steps"]
    cut(*words, done=len(steps) - 1 - left)
    return str(steps[-1 - left]["step"])


def kept_directories() -> dict[str, object]:
    """Cut the making off before its last step, write a file, and try to roll it back."""
    free(*SERIALS[:2])
    cut_before_last(0)
    Path("/srv/dirs/pods/file").write_text("of a user")
    said = forked("rollback", "dirs", "--yes")
    finished = ensure("dirs", SERIALS[:2], top=DIRECTORIES)
    return {"said": said, "finished": finished["said"], "text": Path("/opt/pods/file").read_text()}


def plain(*, new: bool) -> dict[str, object]:
    """Want a plain file system on the third drive. `new`: blank it before, and the others: no line is stale while a
    member of an array that does not run could hide something.
    """
    if new:
        free(*SERIALS)
    said = ensure("plain", SERIALS[2:], PLAIN)
    node = drive(SERIALS[2])
    return {
        **said,
        "table": run("sfdisk", "--json", node, fails=True),
        "content": run("blkid", "-p", "-o", "export", f"{node}p1", fails=True),
        "mount": run("findmnt", "-n", "-o", "SOURCE,FSTYPE", "--mountpoint", "/srv/plain", fails=True).split(),
        "node": node,
        "examined": run("mdadm", "--examine", f"{node}p1", fails=True),
    }


def beside_plain() -> dict[str, object]:
    free(SERIALS[1])
    run("mount", "/srv/plain")
    return ensure("plain", SERIALS[1:], PLAIN)


STEPS: dict[str, Callable[[], dict[str, object]]] = {
    "shown": lambda: ensure("scratch", SERIALS[:2], yes=False),
    "made": lambda: ensure("scratch", SERIALS[:2]),
    "again": lambda: ensure("scratch", SERIALS[:2]),
    "one more": lambda: ensure("scratch", SERIALS),
    "not selected": lambda: ensure("scratch", SERIALS[:1]),
    "too few": lambda: ensure("scratch", SERIALS[:2], "at_least = 3"),
    "too many": lambda: ensure("scratch", SERIALS[:2], "at_most = 1"),
    "settings": settings,
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
    "directories": new_directories,
    "directories again": with_directories,
    "directories changed": changed_directories,
    "directories anew": new_directories,
    "directories cut": cut_directories,
    "directories kept": kept_directories,
    "plain": lambda: plain(new=True),
    "plain again": lambda: plain(new=False),
    "plain anew": lambda: plain(new=True),
    "beside plain": beside_plain,
}
