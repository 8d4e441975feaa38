"""`make lab`: a shell in an emulated PC with NVMe drives, a SCSI adapter and this checkout.

The number and the size of the drives are options; the drives are kept in `.lab/drives`.
"""

import argparse
import subprocess
import sys

import pytest

from tests.lab.drives import MIB, Nvme, Port, Switch
from tests.lab.guest import Guest
from tests.lab.kernel import CACHE, ROOT, debian_kernel

WELCOME = """Debian's kernel on this machine's own files; whatever you write outside of /lab is gone afterwards.
/lab is {lab}, and the drives are kept beside it.
Two drives hang behind a switch, the others on root ports. For odd SCSI geometry:
    modprobe scsi_debug sector_size=512 physblk_exp=3 lowest_aligned=7
aligntool is .venv/bin/aligntool
Type `exit` to turn the PC off; Ctrl-A X cuts its power.
"""


def drives(number: int, size: int, block: int) -> list[Nvme]:
    """Return this many drives: the first two behind one switch, the others each on its own root port."""
    switch = Switch("switch", Port("uplink", speed="8", width=4))
    places = (switch if each < 2 else Port(f"port{each}", speed="8", width=4) for each in range(number))
    return [Nvme(f"lab{each}", size, block, behind=place) for each, place in enumerate(places)]


def main() -> int:
    words = argparse.ArgumentParser(prog="make lab ARGS=...", description=__doc__)
    words.add_argument("--drives", type=int, default=4, metavar="N", help="NVMe drives (4)")
    words.add_argument("--size", type=int, default=1024, metavar="MIB", help="MiB of each (1024); the file is sparse")
    words.add_argument("--block", type=int, default=512, choices=(512, 4096), help="bytes of a logical block (512)")
    words.add_argument("--memory", type=int, default=2048, metavar="MIB", help="MiB of memory (2048)")
    words.add_argument("--run", metavar="COMMAND", help="run this instead of a shell")
    given = words.parse_args()
    folder = CACHE / "drives"
    folder.mkdir(parents=True, exist_ok=True)
    guest = Guest(folder, drives(given.drives, given.size * MIB, given.block), given.memory)
    try:
        inside = ("--script-sh", given.run) if given.run else ()
        command = guest.command(debian_kernel(), "--cwd", str(ROOT), *inside)
    except pytest.skip.Exception as reason:
        print(f"no lab here: {reason}", file=sys.stderr)
        return 1
    print(WELCOME.format(lab=folder / "lab"), file=sys.stderr)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
