"""A part of `in_guest`: ansible-playbook makes arrays of the guest's drives, and mdadm and the kernel describe them.

It writes what was printed and seen to played.json.
"""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.ansible.play import play, play_thrice
from tests.lab.in_guest import OUT, drive, ended, run, start
from tests.lab.old_arrays import CONF, cut, prepare

SERIALS = ("played0", "played1", "played2")
OF_CUT = ("cut0", "cut1")
ENSURED = ("ensured0", "ensured1")
SIZE = 64 << 20
WANTED = ("--name", "played", "--level", "5", "--chunk", "128KiB", "--fs", "ext4", "--spare-end", "1MiB")
CUT = ("--name", "cut", "--level", "1", "--fs", "none", "--mount", "none", "--spare-end", "1MiB")
FILES = (CONF, Path("/etc/fstab"))
RECORDS = Path("/var/lib/aligntool/arrays")


def main(_: Sequence[str]) -> None:
    prepare()
    CONF.write_text("HOMEHOST <system>\n")
    with tempfile.TemporaryDirectory() as folder:
        played = {**thrice(Path(folder)), **unfinished(Path(folder)), **ensured(Path(folder))}
    (OUT / "played.json").write_text(json.dumps(played))
    clean_up()


def thrice(folder: Path) -> dict[str, object]:
    drives = [drive(serial) for serial in SERIALS]
    ended(start("played-plan", "raid", "create", *WANTED, "--system", "debian", *drives, "--dry-run", "--json"))
    seen = partial(look, "played", drives)
    return {"thrice": list(play_thrice(folder, "arrays.yml", {"drives": drives}, seen))}


def ensured(folder: Path) -> dict[str, object]:
    drives = [drive(serial) for serial in ENSURED]
    return {"ensured": list(play_thrice(folder, "ensured.yml", {}, partial(look, "scratch", drives)))}


def unfinished(folder: Path) -> dict[str, object]:
    """Cut an array off when it runs and no system file names it: roll it back, and after another cut finish it."""
    drives, found = [drive(serial) for serial in OF_CUT], {}
    seen = partial(look, "cut", drives)
    for task in ("undo", "finish"):
        cut(*CUT, "--system", "debian", *drives, done=len(drives) + 1)
        before = seen()
        said = play(folder, "unfinished.yml", {"drives": drives}, "--tags", task)
        found[task] = [before, said, seen()]
    return dict(found)


def clean_up() -> None:
    """Clean up so that later parts find no array, and nothing that udev would assemble."""
    run("umount", "/srv/played")
    run("umount", "/opt/pods")
    run("umount", "/srv/scratch")
    for node in sorted(Path("/sys/block").glob("md*")):
        run("mdadm", "--stop", f"/dev/{node.name}")
    for each in (drive(serial) for serial in (*SERIALS, *OF_CUT, *ENSURED)):
        run("mdadm", "--zero-superblock", f"{each}p1")
        run("wipefs", "--all", each)
    run("udevadm", "settle")


def look(name: str, drives: Sequence[str]) -> dict[str, object]:
    """Return what is on the drives, the facts of the array, and the files that name arrays."""
    return {
        "sums": [digest(each) for each in drives],
        "export": said("mdadm", "--detail", "--export", f"/dev/md/{name}"),
        "detail": said("mdadm", "--detail", f"/dev/md/{name}"),
        "examine": [said("mdadm", "--examine", f"{each}p1") for each in drives],
        "tables": [said("sfdisk", "--dump", each) for each in drives],
        "superblock": said("dumpe2fs", "-h", f"/dev/md/{name}"),
        "mount": said("findmnt", "--noheadings", "--output", "FSTYPE", f"/srv/{name}").strip(),
        "files": [path.read_text() for path in FILES],
        "records": [path.name for path in RECORDS.glob("*.json")],
    }


def digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def said(*words: str) -> str:
    return subprocess.run(words, text=True, capture_output=True, check=False).stdout
