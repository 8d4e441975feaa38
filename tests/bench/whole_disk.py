"""A file system on a whole disk becomes a partition: `aligntool partition` beside the ways over a second disk.

    sudo python -m tests.bench.whole_disk [--repeats 5] [--gib 1] [--write docs/benchmarks.md]

The same ext4, a third of it files of 8 MiB all over the disk, on an image without holes that is restored before each
run; the three ways in turns. The other two need a second disk of the same size, and have nothing that survives a power
cut; they write less to a medium, because nothing is moved on top of itself and nothing is read back.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.old_disks import forget, write_out  # noqa: E402
from tests.bench.once import aligntool, once  # noqa: E402
from tests.bench.page import put  # noqa: E402
from tests.conftest import run  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20
COMMAND = "sudo python -m tests.bench.whole_disk --write docs/benchmarks.md"
FREE = 64 * MIB  # behind the file system: for the table and the journal
DD = """set -e
printf 'label: gpt\\nstart=1MiB, size={sectors}\\n' | sfdisk -q -w always {other}
dd if={disk} of={other} bs=1M count={mib} seek=1 iflag=direct oflag=direct conv=notrunc,fsync status=none
"""
FILES = """set -e
printf 'label: gpt\\nstart=1MiB, size={sectors}\\n' | sfdisk -q -w always {other}
old=$(losetup -f --show -r {disk})
new=$(losetup -f --show -o 1048576 --sizelimit {length} {other})
mkfs.ext4 -q -F -U $(blkid -s UUID -o value $old) $new
mkdir -p {folder}/old {folder}/new
mount -o ro,noload $old {folder}/old
mount $new {folder}/new
cp -a {folder}/old/. {folder}/new/
umount {folder}/old {folder}/new
losetup -d $old
losetup -d $new
sync {other}
"""


def measured(folder: Path, size: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of the clock by way; the first round is not counted."""
    kept, disk, other = folder / "kept.img", folder / "disk.img", folder / "other.img"
    length = size - FREE
    _make(folder, kept, size, length)
    for image in (disk, other):
        write_out(image, size)
    facts = {"disk": disk, "other": other, "sectors": length // 512, "mib": length // MIB, "length": length}
    ways = {
        "aligntool": aligntool("partition", str(disk), "--yes"),
        "dd": ["sh", "-c", DD.format(**facts)],
        "files": ["sh", "-c", FILES.format(**facts, folder=folder)],
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(repeats + 1):
        for way, words in ways.items():
            run("dd", f"if={kept}", f"of={disk}", "bs=4M", "conv=notrunc,fsync", "status=none")
            for image in (disk, other):
                forget(image)
            seconds = once(words).wall
            if number:
                found[way].append(seconds)
    return found


def _make(folder: Path, image: Path, size: int, length: int) -> None:
    """Files until it is nine tenths full; of three of them two are deleted."""
    files = folder / "files"
    files.mkdir()
    count = length * 9 // 10 // (8 * MIB)
    for number in range(count):
        (files / f"{number}").write_bytes(os.urandom(8 * MIB))
    image.write_bytes(b"")
    os.truncate(image, size)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-d", files, image, f"{length // 1024}k")
    gone = [f"rm /{number}" for number in range(count) if number % 3]
    run("debugfs", "-w", "-f", "-", image, stdin="\n".join(gone))
    run("e2fsck", "-fy", image, fails=True)
    run("rm", "-r", files)


def table(found: dict[str, list[float]], size: int) -> str:
    ours = found["aligntool"]
    lines = [
        f"ext4, a third used, on {size / GIB:.3g} GiB, {len(ours)} interleaved rounds; repeat it with `{COMMAND}`.",
        "",
        "| way | second disk | survives a power cut | time | as long as aligntool: median (smallest–largest) |",
        "|---|---|---|---|---|",
        f"| `aligntool partition` | no | yes | {statistics.median(ours):.1f} s | |",
    ]
    names = {"dd": "`sfdisk`, `dd` to another disk", "files": "`sfdisk`, `mkfs.ext4`, `cp -a` to another disk"}
    for way, name in names.items():
        ratios = [other / own for other, own in zip(found[way], ours, strict=True)]
        words = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        lines.append(f"| {name} | yes | the old disk stays | {statistics.median(found[way]):.1f} s | {words} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the disk")
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    size = int(given.gib * GIB) // MIB * MIB
    with tempfile.TemporaryDirectory(prefix="aligntool-whole-disk-") as name:
        text = table(measured(Path(name), size, given.repeats), size)
    print(text)
    if given.write:
        put(given.write, "whole-disk", text)


if __name__ == "__main__":
    main()
