"""The time to a mounted file system: `aligntool raid create` compared with the same steps typed by hand.

    python -m tests.bench.manual_steps [--repeats 3] [--write docs/benchmarks.md]

One emulated PC with a Debian of its own and two empty NVMe drives; the two ways alternate, and the drives are wiped
after each. "By hand" is a script without pauses: what an administrator types who forgets nothing that aligntool does.
The processor is emulated, so only the ratio means anything.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.debian_pc import DebianPC

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from aligntool.units import GIB  # noqa: E402
from tests.bench.page import put  # noqa: E402

COMMAND = "python -m tests.bench.manual_steps --write docs/benchmarks.md"
DRIVES = "/dev/nvme0n1 /dev/nvme1n1"
OURS = f"aligntool raid create --recipe nvme-raid0-scratch {DRIVES} --yes"
HAND = """set -e
for drive in /dev/nvme0n1 /dev/nvme1n1; do
  printf 'label: gpt\\nstart=2048, type=R\\n' | sfdisk -q --wipe always $drive
done
udevadm settle
mdadm --create /dev/md/scratch --run --homehost=any --name=scratch --metadata=1.2 --level=0 --chunk=256K \\
  --raid-devices=2 --data-offset=131072K /dev/nvme0n1p1 /dev/nvme1n1p1
mkfs.xfs -q -b size=4096 -i size=512 -l size=64m,su=256k -d su=256k,sw=2 -L scratch /dev/md/scratch
udevadm settle
mdadm --detail --brief /dev/md/scratch >> /etc/mdadm/mdadm.conf
update-initramfs -u -k all
for image in /boot/initrd.img-*; do
  unmkinitramfs $image /tmp/inside
  grep -rq "$(mdadm --detail --export /dev/md/scratch | sed -n s/MD_UUID=//p)" /tmp/inside
  rm -r /tmp/inside
done
echo "UUID=$(blkid -s UUID -o value /dev/md/scratch) /srv/scratch xfs noatime,logbufs=8,nofail 0 0" >> /etc/fstab
systemctl daemon-reload
mkdir -p /srv/scratch
mount /srv/scratch
"""
WIPED = """set -e
findmnt /srv/scratch >&2
umount /srv/scratch
rmdir /srv/scratch
mdadm --stop /dev/md/scratch
wipefs -qa /dev/nvme0n1p1 /dev/nvme1n1p1
wipefs -qa /dev/nvme0n1 /dev/nvme1n1
partx -d /dev/nvme0n1 /dev/nvme1n1 2>/dev/null || true
for drive in /dev/nvme0n1 /dev/nvme1n1; do blkdiscard --zeroout $drive; done
cp /root/fstab /etc/fstab
cp /root/mdadm.conf /etc/mdadm/mdadm.conf
rm -f /etc/fstab.before-aligntool /etc/mdadm/mdadm.conf.before-aligntool
systemctl daemon-reload
udevadm settle
sync
echo 3 > /proc/sys/vm/drop_caches
"""
KEPT = "cp /etc/fstab /root/fstab; cp /etc/mdadm/mdadm.conf /root/mdadm.conf"
PART = "lsblk -n -o START /dev/nvme0n1p1"
TIMED = "before=$(cut -d' ' -f1 /proc/uptime)\n({script}) >&2 || exit\necho $before $(cut -d' ' -f1 /proc/uptime)"


def measured(repeats: int) -> dict[str, list[float]]:
    """Return the seconds of the PC's clock, by way; the first run of each is not counted."""
    from tests.lab import debian, debian_tool
    from tests.lab.debian_pc import DebianPC, powered
    from tests.lab.drives import Nvme

    found: dict[str, list[float]] = {"aligntool": [], "hand": []}
    with tempfile.TemporaryDirectory(prefix="aligntool-by-hand-") as name:
        folder = Path(name)
        tool = debian_tool.image(folder)
        with powered(DebianPC(folder, debian.disk(), tool, (Nvme("left", GIB), Nvme("right", GIB)))) as pc:
            pc.run(KEPT)
            for number in range(repeats + 1):
                for way, script in (("aligntool", OURS), ("hand", HAND)):
                    seconds = _timed(pc, script)
                    print(f"{number} {way}: {seconds:.1f} s", flush=True)
                    if number:
                        found[way].append(seconds)
    return found


def _timed(pc: "DebianPC", script: str) -> float:
    before, after = pc.run(TIMED.format(script=script)).out.split()
    pc.run(WIPED)
    return float(after) - float(before)


def table(found: dict[str, list[float]]) -> str:
    ratios = [ours / hand for ours, hand in zip(found["aligntool"], found["hand"], strict=True)]
    words = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    more = statistics.median(a - b for a, b in zip(found["aligntool"], found["hand"], strict=True))
    return "\n".join(
        (
            f"An emulated PC, {len(ratios)} interleaved rounds; repeat it with `{COMMAND}`.",
            "",
            "| aligntool | compared with | time, ratio: median (smallest–largest) | by hand | more |",
            "|---|---|---|---|---|",
            "| `aligntool raid create --recipe nvme-raid0-scratch` | sfdisk, mdadm, mkfs.xfs, update-initramfs, "
            f"unmkinitramfs, mount | {words} | {statistics.median(found['hand']):.0f} s | {more:.0f} s |",
        )
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    text = table(measured(given.repeats))
    print(text)
    if given.write:
        put(given.write, "by-hand", text)


if __name__ == "__main__":
    main()
